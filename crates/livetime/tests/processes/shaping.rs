//! Traffic shaping of the event builder: the events of shared memory, at whatever pace, whoever dies
//! or stands still.

use std::collections::BTreeSet;

use crate::process_run::{Run, patient, turn};

/// The example with these lines for the builder, over a network. Whoever waits asks again soon.
fn with(lines: &str) -> impl Fn(String) -> String + use<> {
    let keys = "retry = \"20 ms\"\nprobe = \"50 ms\"\nshaping = \"barrel-shifter\"\n";
    let keys = format!("[builder]\n{keys}{lines}");
    move |config| patient(config).replace("[builder]\n", &keys)
}

/// What the shapers of a run did, by name.
fn shaping(run: &Run, name: &str) -> u64 {
    let shaping = &run.summary["builder_transport"]["shaping"];
    let count = shaping[name].as_u64();
    count.unwrap_or_else(|| panic!("no {name} in {shaping}"))
}

fn same_events(run: &Run, rings: &Run, what: &str) {
    assert!(run.output.status.success(), "{what}: {}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new(), "{what}");
    assert_eq!(run.count("events_incomplete"), 0, "{what}");
    assert_eq!(run.digest(), rings.digest(), "{what}");
    assert_eq!(run.stored(), rings.stored(), "{what}");
    let (blocks, bytes) = (shaping(run, "blocks"), shaping(run, "payload_bytes"));
    assert!(blocks > 100 && bytes > 1_000_000, "{what}: {blocks}");
    assert!(bytes <= blocks * shaping(run, "block_bytes"), "{what}");
}

const TCP: &str = "transport = \"tcp\"\n";
const UDP: &str = "transport = \"udp\"\n";
const BY_CLOCK: &str = "pace = \"clock\"\nblock = \"8 KiB\"\nlink_rate = \"1 Gb/s\"\n";
const PROCESSES: [&str; 1] = ["--processes"];

#[test]
fn shaped_traffic_builds_the_same_events_and_a_builder_unit_may_die() {
    let _turn = turn();
    let triggers = ["--triggers", "4000"];
    let rings = Run::of(patient, &triggers);
    let push = "mode = \"push\"\nblock = \"4 KiB\"\n";
    let killed = ["--processes", "--fault", "kill:bu1@1500triggers"];
    let cases: [(&[&str], &[&str]); 7] = [
        (&[TCP], &[]),
        (&[UDP, BY_CLOCK], &[]),
        (&[TCP, push], &PROCESSES),
        (&[UDP, push], &PROCESSES),
        (&[TCP, BY_CLOCK, "mode = \"push\"\n"], &PROCESSES),
        (
            &[TCP, "block = \"3 KiB\"\nshift_numbers = [1, 0]\n"],
            &killed,
        ),
        (&[UDP, BY_CLOCK], &killed),
    ];
    for (lines, options) in cases {
        let lines = lines.concat();
        let run = Run::of(with(&lines), &[&triggers, options].concat());
        let what = format!("{lines:?} {options:?}");
        same_events(&run, &rings, &what);
        println!("{what}: {}", run.summary["builder_transport"]["shaping"]);
        let pace = &run.summary["builder_transport"]["shaping"]["pace"];
        let expected = match lines.contains(BY_CLOCK) {
            true => "clock",
            false => "back-pressure",
        };
        assert_eq!(pace, expected, "{what}");
    }
}

/// A builder unit stands still for far longer than all else takes: its events wait, and those of the
/// other are built.
#[test]
fn a_builder_unit_that_stands_still_stops_no_other() {
    let _turn = turn();
    let triggers = ["--triggers", "4000"];
    let rings = Run::of(patient, &triggers);
    let stop = ["--processes", "--fault", "stop:bu1@1000triggers+3s"];
    let arguments = [&triggers[..], &stop].concat();
    for lines in [[TCP, "block = \"4 KiB\"\n"], [UDP, BY_CLOCK]] {
        let run = Run::of(with(&lines.concat()), &arguments);
        same_events(&run, &rings, &lines.concat());
        let assigned = |role: &str| run.summary["roles"][role]["assignments"].as_u64();
        let (going, stopped) = (assigned("bu0"), assigned("bu1"));
        println!("{going:?} and {stopped:?} events");
        assert!(going > stopped, "{going:?} {stopped:?}");
    }
}

#[test]
fn two_steps_are_shaped_and_a_readout_unit_may_die() {
    let _turn = turn();
    let triggers = ["--triggers", "6000"];
    let whole = Run::of(patient, &triggers);
    let two_steps = with(&[TCP, "first_step = [\"ru0\"]\nblock = \"4 KiB\"\n"].concat());
    let run = Run::of(two_steps, &[&triggers[..], &PROCESSES].concat());
    same_events(&run, &whole, "two steps");
    let fault = ["--processes", "--fault", "kill:ru1@3000triggers"];
    for lines in [[TCP, "block = \"4 KiB\"\n"], [UDP, BY_CLOCK]] {
        let lines = [&lines[..], &["on_readout_loss = \"continue\"\n"]].concat();
        let lines = lines.concat();
        let run = Run::of(with(&lines), &[&triggers[..], &fault].concat());
        assert!(run.output.status.success(), "{lines}: {}", run.errors());
        run.assert_accounted();
        let (built, incomplete) = (run.count("events_built"), run.count("events_incomplete"));
        assert!(built > 0 && incomplete > 0, "{built} {incomplete}");
        assert_eq!(built + incomplete, run.count("l2_accepted"), "none is lost");
    }
}
