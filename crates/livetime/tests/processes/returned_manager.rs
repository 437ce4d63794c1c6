//! A dead event manager whose place another takes: each accepted trigger is in the file exactly once,
//! whole, whenever and however often it dies.
//!
//! `LIVETIME_LONG=1` makes fifty runs with deaths at random instead of two; `LIVETIME_SEED` others.

use std::collections::BTreeSet;

use crate::draining_run::killed_in_drain;
use crate::process_run::{Run, keeping_all, patient, turn};

const TRIGGERS: &str = "6000";

/// The example in which every event is kept; with these lines of its builder table.
fn keeping(lines: &str) -> impl Fn(String) -> String + use<'_> {
    move |config| {
        keeping_all(patient(config)).replace("[builder]\n", &format!("[builder]\n{lines}"))
    }
}

fn with_faults(edit: impl Fn(String) -> String, faults: &[&str]) -> Run {
    let mut arguments = vec!["--triggers", TRIGGERS, "--processes"];
    arguments.extend(faults.iter().flat_map(|fault| ["--fault", *fault]));
    Run::of(edit, &arguments)
}

fn whole() -> Run {
    Run::of(keeping(""), &["--triggers", TRIGGERS])
}

/// How often another took the place of a role.
fn restarts(run: &Run, role: &str) -> usize {
    let said = format!("process of {role} is gone (signal: 9 (SIGKILL))");
    let lines = run.errors();
    let told = lines.lines().filter(|line| line.contains(&said));
    told.filter(|line| line.contains("another took its place"))
        .count()
}

/// Nothing is lost, nothing is there twice, and every accepted trigger is a whole event in the file.
fn assert_whole(run: &Run, what: &str) {
    assert!(run.output.status.success(), "{what}: {}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new(), "{what}");
    assert_eq!(run.count("events_incomplete"), 0, "{what}");
    assert_eq!(
        run.count("events_stored"),
        run.count("l2_accepted"),
        "{what}"
    );
    let of_supervisor = &run.summary["roles"]["src0"];
    assert!(of_supervisor["accepts_told_again"].is_u64(), "{what}");
}

fn assert_same(run: &Run, whole: &Run, what: &str) {
    assert_whole(run, what);
    assert_eq!(run.digest(), whole.digest(), "{what}");
    assert_eq!(run.differing(whole), BTreeSet::new(), "{what}");
}

#[test]
fn another_takes_the_place_of_a_dead_event_manager_again_and_again() {
    let _turn = turn();
    let whole = whole();
    let faults = [1000, 2500, 4000].map(|count| format!("kill:evm@{count}triggers"));
    for lines in [
        "",
        "mode = \"push\"\n",
        "credit_bytes = \"1 MiB\"\nevent_bytes = \"64 KiB\"\n",
        "first_step = [\"ru0\"]\n",
        "transport = \"tcp\"\nmode = \"push\"\n",
        "transport = \"udp\"\nretry = \"50 ms\"\nprobe = \"200 ms\"\n",
    ] {
        let run = with_faults(keeping(lines), &faults.each_ref().map(String::as_str));
        assert_same(&run, &whole, lines);
        // One that is killed before it has taken its place counts as one with the last.
        let restarts = restarts(&run, "evm");
        assert!((1..=3).contains(&restarts), "{lines}: {restarts}");
    }
    // One that has hardly begun.
    let soon = [2000, 2020, 2040, 2060].map(|count| format!("kill:evm@{count}triggers"));
    let run = with_faults(keeping(""), &soon.each_ref().map(String::as_str));
    assert_same(&run, &whole, "soon");
    println!("killed soon: {} restarts", restarts(&run, "evm"));
    assert!(restarts(&run, "evm") >= 1);
}

/// While nothing is finished: the log of the supervisor fills up, and its triggers wait.
#[test]
fn what_is_accepted_while_there_is_none_waits_and_is_built() {
    let _turn = turn();
    let whole = whole();
    let faults = [
        "stop:bu0@2000triggers+2s",
        "stop:bu1@2000triggers+2s",
        "kill:evm@2000triggers",
    ];
    let small = keeping("credits = 1\nevm_queue = 2\n");
    let small = move |config: String| small(config.replace("\ncredits = 16\n", "\n"));
    let run = with_faults(small, &faults);
    assert_same(&run, &whole, "a small log");
    assert_eq!(restarts(&run, "evm"), 1);
    let told = run.summary["roles"]["src0"]["accepts_told_again"].as_u64();
    // Twice what may be open in the builder, and 64.
    assert!(told > Some(0) && told <= Some(72), "{told:?}");
}

/// Open triggers that lie so far back that a builder unit may have forgotten one that it has finished:
/// the readout units are asked, too.
#[test]
fn events_that_are_longer_in_the_filter_than_is_remembered_are_not_built_twice() {
    let _turn = turn();
    let whole = whole();
    let faults = ["stop:fu0@1000triggers+2s", "kill:evm@2800triggers"];
    let run = with_faults(keeping("history = 1024\ntrigger_window = 1024\n"), &faults);
    assert_same(&run, &whole, "a short memory");
    assert_eq!(restarts(&run, "evm"), 1);
}

#[test]
fn a_run_that_drains_gets_another_as_well() {
    let _turn = turn();
    let run = killed_in_drain(keeping(""), "evm");
    assert_whole(&run, "draining");
    assert_eq!(restarts(&run, "evm"), 1);
}

/// Whoever dies with it, or after it: builder units, whose events it alone knew, filter units, and a
/// readout unit whose place is taken.
#[test]
fn others_may_die_with_it() {
    let _turn = turn();
    let whole = whole();
    for (lines, faults) in [
        ("", &["kill:bu1@1500triggers", "kill:evm@1500triggers"][..]),
        (
            "",
            &[
                "kill:bu0@1500triggers",
                "kill:bu1@1500triggers",
                "kill:evm@1500triggers",
            ],
        ),
        (
            "transport = \"tcp\"\n",
            &[
                "kill:evm@1500triggers",
                "kill:bu1@1500triggers",
                "kill:fu0@1500triggers",
            ],
        ),
        (
            "mode = \"push\"\n",
            &[
                "kill:bu1@1500triggers",
                "kill:evm@1550triggers",
                "kill:bu1@3000triggers",
            ],
        ),
    ] {
        let run = with_faults(keeping(lines), faults);
        assert_same(&run, &whole, &format!("{lines}{faults:?}"));
        assert!(restarts(&run, "evm") == 1 && restarts(&run, "bu1") >= 1);
    }
    // A builder unit that is not replaced: no other event manager waits for it.
    let go_on = keeping("on_loss = \"continue\"\n");
    let faults = [
        "kill:bu0@1500triggers",
        "kill:evm@2500triggers",
        "kill:evm@4000triggers",
    ];
    let run = with_faults(go_on, &faults);
    assert_same(&run, &whole, "without bu0");
    assert!((1..=2).contains(&restarts(&run, "evm")));
    // A readout unit loses what it held, and nothing else is lost.
    let restarting = keeping("on_readout_loss = \"restart\"\n");
    let faults = [
        "kill:ru1@1500triggers",
        "kill:evm@1500triggers",
        "kill:evm@4000triggers",
    ];
    let run = with_faults(restarting, &faults);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.stored(), whole.stored());
    let allowed = [
        "link_down",
        "link_truncated",
        "readout_lost",
        "link_aborted",
    ];
    let allowed = BTreeSet::from(allowed.map(str::to_owned));
    assert!(run.causes().is_subset(&allowed), "{:?}", run.causes());
    assert!(run.summary["roles"]["ru1"]["joined_after"].as_u64() > Some(0));
}

/// As many small events as triggers, of which a thousand times as many as usual may be open.
const MANY_OPEN: &str = r#"
format = 1

[run]
duration = "1 h"
seed = 42
directory = "runs"

[[source]]
rate = "20 kHz"

[source.fragment]
bytes_mean = "200 B"
bytes_max = "4 KiB"

[[link]]
to = "trg0"
source_id = 0x700000

[[link]]
to = "ru0"
source_id = 0x510000
page = "256 B"
pages = 32768

[[link]]
to = "ru1"
source_id = 0x520000
page = "256 B"
pages = 32768

[trigger]
decision_timeout = "20 s"

[[trigger.path]]
name = "EVERY"
bit = 5
l1 = [0]
cut = "auto"

[builder]
credits = 8
evm_queue = 24000
trigger_window = 32000
timeout = "20 s"

[filter]
name = "accept_all"

[store]
chunk = "64 KiB"
"#;

/// More than one document of the parent and its roles has room for.
#[test]
fn seventeen_thousand_open_triggers_are_told_of_in_parts() {
    let _turn = turn();
    let arguments = [
        "--triggers",
        "20000",
        "--processes",
        "--fault",
        "stop:bu0@1000triggers+5s",
        "--fault",
        "stop:bu1@1000triggers+5s",
        "--fault",
        "kill:evm@18000triggers",
        "--fault",
        "kill:bu0@18000triggers",
    ];
    let run = Run::of(|_| MANY_OPEN.to_owned(), &arguments);
    assert_whole(&run, "many open triggers");
    assert_eq!(run.count("events_stored"), 20_000);
    let told = run.summary["roles"]["src0"]["accepts_told_again"].as_u64();
    assert!(told > Some(17_000), "{told:?}");
    assert_eq!((restarts(&run, "evm"), restarts(&run, "bu0")), (1, 1));
}

/// The barrier of a linear shift is the event manager's: that of the next one goes on.
#[test]
fn the_phases_of_a_linear_shift_go_on() {
    let _turn = turn();
    let whole = whole();
    let faults = ["kill:evm@1500triggers", "kill:evm@3500triggers"];
    for transport in ["tcp", "udp"] {
        let lines = format!(
            "transport = \"{transport}\"\nshaping = \"linear-shift\"\nblock = \"4 KiB\"\n\
             retry = \"50 ms\"\nprobe = \"200 ms\"\n"
        );
        let run = with_faults(keeping(&lines), &faults);
        assert_same(&run, &whole, transport);
        assert!((1..=2).contains(&restarts(&run, "evm")));
        let phases = run.summary["roles"]["evm"]["shaping_phases"].as_u64();
        assert!(phases > Some(10), "{phases:?} after the last death");
    }
}

#[test]
fn the_policy_of_the_builder_may_end_the_run_with_it() {
    let _turn = turn();
    let whole = whole();
    for transport in ["", "transport = \"tcp\"\nshaping = \"linear-shift\"\n"] {
        let lines = format!("on_loss = \"stop\"\n{transport}");
        // More events than its builder units may have in hand, while these stand still.
        let faults = [
            "stop:bu0@1300triggers+2s",
            "stop:bu1@1300triggers+2s",
            "kill:evm@1500triggers",
        ];
        let run = with_faults(keeping(&lines), &faults);
        assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
        let said = "process of evm is gone (signal: 9 (SIGKILL))";
        assert!(run.errors().contains(said), "{}", run.errors());
        assert!(run.errors().contains("the run ends"), "{}", run.errors());
        run.assert_accounted();
        assert!(
            run.causes().contains("event_manager_lost"),
            "{:?}",
            run.causes()
        );
        assert!(run.stored().is_subset(&whole.stored()));
    }
}

/// Numbers that look random and are the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (z ^ (z >> 27)) % n
    }
}

#[test]
fn deaths_at_random_lose_nothing() {
    let _turn = turn();
    let seed = std::env::var("LIVETIME_SEED").ok();
    let seed: u64 = seed.map_or(2030, |seed| seed.parse().expect("a number"));
    let runs = match std::env::var_os("LIVETIME_LONG") {
        Some(_) => 50,
        None => 2,
    };
    let whole = whole();
    let mut random = Random(seed);
    for nth in 0..runs {
        let mut faults = Vec::new();
        for _ in 0..3 {
            let at = 500 + random.below(5_300);
            faults.push(format!("kill:evm@{at}triggers"));
            // Another one soon before, together with it, or soon after.
            let other = ["bu0", "bu1", "fu0"][random.below(3) as usize];
            let at = at - 20 + random.below(40);
            if random.below(2) == 0 {
                faults.push(format!("kill:{other}@{at}triggers"));
            }
        }
        println!("seed {seed}, run {nth}: {}", faults.join(" "));
        let lines = ["", "mode = \"push\"\n", "transport = \"tcp\"\n"][random.below(3) as usize];
        let faults: Vec<&str> = faults.iter().map(String::as_str).collect();
        let run = with_faults(keeping(lines), &faults);
        assert_same(&run, &whole, lines);
    }
}
