//! Every role killed, stopped, and the links of every readout unit taken down: one row each.
//!
//! `LIVETIME_LONG=1` stops every role for two seconds on its own; otherwise two of them.

use std::collections::BTreeSet;

use crate::process_run::{Run, patient, turn};

const TRIGGERS: &str = "20000";
const ROLES: [&str; 9] = [
    "src0", "trg0", "ru0", "ru1", "evm", "bu0", "bu1", "fu0", "wr0",
];

/// What is known beforehand of a fault.
struct Expected {
    policy: &'static str,
    code: i32,
    causes: &'static [&'static str],
}

fn of_kill(role: &str) -> Expected {
    let (policy, causes): (_, &[&str]) = match role {
        "evm" | "bu0" | "bu1" | "fu0" => ("restart", &[]),
        "wr0" => ("restart", &["writer_lost"]),
        // The run ends by force: what was on its way is lost where it was.
        "src0" => ("stop", &["decision_lost", "source_lost"]),
        "trg0" => ("stop", &["decision_lost"]),
        _ => ("stop", &["readout_lost", "decision_aborted"]),
    };
    Expected {
        policy,
        code: i32::from(policy == "stop"),
        causes,
    }
}

/// Causes that any run ended by force may have.
const ABORTED: [&str; 7] = [
    "decision_aborted",
    "link_aborted",
    "fragment_aborted",
    "event_aborted",
    "builder_lost",
    "filter_aborted",
    "filter_lost",
];

/// The role that a fault kills.
fn killed(fault: &str) -> Option<&str> {
    fault.strip_prefix("kill:")?.split('@').next()
}

/// Runs one fault, prints its row and checks everything that holds for it.
fn row(fault: &str, expected: &Expected, whole: &Run) {
    let run = Run::of(
        patient,
        &["--triggers", TRIGGERS, "--processes", "--fault", fault],
    );
    let code = run.output.status.code();
    let condition = run.summary["run"]["condition"].as_str().unwrap_or("?");
    let losses: Vec<String> = run.losses().map(|(c, n)| format!("{c} {n}")).collect();
    println!(
        "{fault:<22} {:<8} exit {code:?} {condition:<40} losses [{}] conserved {} stored {}",
        expected.policy,
        losses.join(", "),
        run.summary["conserved"],
        run.count("events_stored"),
    );
    assert_eq!(code, Some(expected.code), "{fault}: {}", run.errors());
    run.assert_accounted();
    let by_force = expected.policy == "stop";
    if let Some(role) = killed(fault) {
        let named = format!("process of {role} is gone (signal: 9 (SIGKILL))");
        assert!(run.errors().contains(&named), "{}", run.errors());
        assert_eq!(condition.contains("ABORTED"), by_force, "{condition}");
    }
    let mut allowed: BTreeSet<String> = expected.causes.iter().map(|c| c.to_string()).collect();
    if by_force {
        allowed.extend(ABORTED.iter().map(|cause| cause.to_string()));
    }
    assert!(
        run.causes().is_subset(&allowed),
        "{fault}: {:?}",
        run.causes()
    );
    assert!(run.stored().is_subset(&whole.stored()), "{fault}");
    if !by_force {
        assert_eq!(run.digest(), whole.digest(), "{fault}");
        let missing = whole.stored().len() - run.stored().len();
        assert_eq!(missing as u64, run.lost_in("store"), "{fault}");
    }
}

#[test]
fn every_role_may_die() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", TRIGGERS]);
    for role in ROLES {
        row(&format!("kill:{role}@5000triggers"), &of_kill(role), &whole);
    }
}

/// When the last trigger is there the chain is drained within a look or two: whether a role dies while
/// the run goes on or when it has ended makes no difference to whether it may.
#[test]
fn every_role_may_die_at_the_end_if_it_may_die_before() {
    let _turn = turn();
    for role in ROLES {
        let fault = format!("kill:{role}@4000triggers");
        let arguments = ["--triggers", "4000", "--processes", "--fault", &fault];
        let run = Run::of(patient, &arguments);
        let expected = of_kill(role);
        let code = run.output.status.code();
        assert_eq!(code, Some(expected.code), "{role}: {}", run.errors());
        let named = format!("the process of {role} ");
        let (warning, error) = (format!("warning: {named}"), format!("error: {named}"));
        assert_eq!(
            run.errors().contains(&warning),
            expected.code == 0,
            "{}",
            run.errors()
        );
        assert_eq!(
            run.errors().contains(&error),
            expected.code == 1,
            "{}",
            run.errors()
        );
        run.assert_accounted();
        if expected.code == 0 {
            assert_eq!(run.count("triggers"), 4000);
            run.assert_only_writer_lost();
        }
    }
}

/// Nobody can take the place of what is the last of its kind, at no time.
#[test]
fn the_last_of_its_kind_may_not_die_at_the_end_either() {
    let _turn = turn();
    for (key, role) in [("continue", "fu0"), ("stop", "fu0")] {
        let edit = |config: String| {
            patient(config).replace("[filter]\n", &format!("[filter]\non_loss = \"{key}\"\n"))
        };
        let fault = format!("kill:{role}@4000triggers");
        let run = Run::of(
            edit,
            &["--triggers", "4000", "--processes", "--fault", &fault],
        );
        assert_eq!(run.output.status.code(), Some(1), "{key}: {}", run.errors());
        run.assert_accounted();
    }
}

#[test]
fn two_seconds_of_standing_still_are_no_death() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", TRIGGERS]);
    let waited_for = Expected {
        policy: "wait",
        code: 0,
        causes: &[],
    };
    let roles = match std::env::var_os("LIVETIME_LONG") {
        Some(_) => &ROLES[..],
        None => &["fu0", "wr0"],
    };
    for role in roles {
        row(&format!("stop:{role}@5000triggers+2s"), &waited_for, &whole);
    }
}

#[test]
fn links_of_every_readout_unit_may_go_down() {
    let _turn = turn();
    for role in ["ru0", "ru1"] {
        let fault = format!("link-down:{role}@200ms+50ms");
        let arguments = ["--triggers", TRIGGERS, "--processes", "--fault", &fault];
        let run = Run::of(|config| config, &arguments);
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.count("triggers"), 20_000);
        let lost: Vec<_> = run.losses().collect();
        println!("{fault:<22} wait     losses {lost:?} conserved");
        let allowed = ["link_down", "link_truncated", "fragment_late"].map(str::to_owned);
        assert!(run.causes().is_subset(&allowed.into()), "{lost:?}");
    }
}

#[test]
fn a_dead_writer_may_end_the_run_with_a_whole_file() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", TRIGGERS]);
    let stop =
        |config: String| patient(config).replace("[store]\n", "[store]\non_loss = \"stop\"\n");
    let fault = ["--processes", "--fault", "kill:wr0@5000triggers"];
    let run = Run::of(stop, &[&["--triggers", TRIGGERS][..], &fault].concat());
    assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
    let named = "process of wr0 is gone (signal: 9 (SIGKILL))";
    assert!(run.errors().contains(named), "{}", run.errors());
    run.assert_accounted();
    assert!(run.stored().is_subset(&whole.stored()));
    assert!(run.folder.path().join("run/report.html").is_file());
}

#[test]
fn the_writer_may_die_again_and_again() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", "30000"]);
    let mut arguments = vec!["--triggers", "30000", "--processes"];
    let faults = [
        "kill:wr0@4000triggers",
        "kill:fu0@7000triggers",
        "kill:wr0@10000triggers",
        "kill:bu1@10000triggers",
    ];
    arguments.extend(faults.iter().flat_map(|fault| ["--fault", *fault]));
    let run = Run::of(patient, &arguments);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.digest(), whole.digest());
    run.assert_only_writer_lost();
    let missing = whole.stored().len() - run.stored().len();
    assert_eq!(missing as u64, run.lost_in("store"));
    // What the dead had copied is not known, and of what they stored nothing is set against it.
    let copies = run.summary["copies_per_byte"].as_f64();
    assert!(copies >= Some(1.0), "{copies:?}");
}

/// The run goes on without a readout unit: its sources are missing from then on, and named.
#[test]
fn a_run_may_go_on_without_a_readout_unit() {
    let _turn = turn();
    let go_on = |config: String| {
        let key = "[builder]\non_readout_loss = \"continue\"\n";
        patient(config).replace("[builder]\n", key)
    };
    for edit in ["", "transport = \"tcp\"\n", "transport = \"udp\"\n"] {
        let edit = |config| go_on(config).replace("[builder]\n", &format!("[builder]\n{edit}"));
        let arguments = ["--triggers", "8000", "--processes", "--fault"];
        let fault = ["kill:ru1@3000triggers"];
        let run = Run::of(edit, &[&arguments[..], &fault].concat());
        assert!(run.output.status.success(), "{}", run.errors());
        let said = "process of ru1 is gone (signal: 9 (SIGKILL))";
        assert!(run.errors().contains(said), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.count("triggers"), 8000);
        let (built, incomplete) = (run.count("events_built"), run.count("events_incomplete"));
        assert!(built > 0 && incomplete > 0, "{built} {incomplete}");
        assert_eq!(built + incomplete, run.count("l2_accepted"), "none is lost");
        let causes = run.causes();
        // A link may go down within a fragment.
        let names = [
            "link_down",
            "link_truncated",
            "readout_lost",
            "link_aborted",
        ];
        let names = names.map(str::to_owned);
        assert!(causes.contains("link_down"), "{causes:?}");
        assert!(causes.is_subset(&BTreeSet::from(names)), "{causes:?}");
        let condition = run.summary["run"]["condition"].as_str().unwrap_or("?");
        assert!(condition.contains("DEGRADED"), "{condition}");
        let second = ["--fault", "kill:ru0@5000triggers"];
        let run = Run::of(edit, &[&arguments[..], &fault, &second].concat());
        assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
        let said = "it was the last of its kind";
        assert!(run.errors().contains(said), "{}", run.errors());
        run.assert_accounted();
    }
}
