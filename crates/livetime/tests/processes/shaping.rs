//! Traffic shaping of the event builder: the events of shared memory, at whatever pace, whoever dies
//! or stands still.

use std::collections::BTreeSet;

use crate::process_run::{Run, patient, turn};

/// The example with these lines for the builder, over a network. Whoever waits asks again soon.
fn with(lines: &str) -> impl Fn(String) -> String + use<> {
    shaped("barrel-shifter", lines)
}

/// The same in phases of whole fragments.
fn in_phases(lines: &str) -> impl Fn(String) -> String + use<> {
    shaped("linear-shift", lines)
}

fn shaped(shaping: &str, lines: &str) -> impl Fn(String) -> String + use<> {
    let keys = format!("retry = \"20 ms\"\nprobe = \"50 ms\"\nshaping = \"{shaping}\"\n");
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
    assert_eq!(run.differing(rings), BTreeSet::new(), "{what}");
    let (blocks, bytes) = (shaping(run, "blocks"), shaping(run, "payload_bytes"));
    assert!(blocks > 100 && bytes > 1_000_000, "{what}: {blocks}");
    let of_run = &run.summary["builder_transport"]["shaping"];
    if of_run["kind"] == "barrel-shifter" {
        assert!(bytes <= blocks * shaping(run, "block_bytes"), "{what}");
        return;
    }
    // Each readout unit has at most one turn in a phase.
    let phases = of_run["barrier"]["phases"].as_u64();
    assert!(
        phases.is_some_and(|phases| phases > 100 && blocks <= 2 * (phases + 1)),
        "{what}: {of_run}"
    );
}

/// One of two builder units stands still in runs of these configurations: its events wait, and more of
/// them go to the other.
fn assert_others_go_on(shaped: [impl Fn(String) -> String; 2]) {
    let triggers = ["--triggers", "4000"];
    let rings = Run::of(patient, &triggers);
    let stop = ["--processes", "--fault", "stop:bu1@1000triggers+8s"];
    let arguments = [&triggers[..], &stop].concat();
    for (nth, edit) in shaped.into_iter().enumerate() {
        let run = Run::of(edit, &arguments);
        same_events(&run, &rings, &format!("configuration {nth}"));
        let assigned = |role: &str| run.summary["roles"][role]["assignments"].as_u64();
        let (going, stopped) = (assigned("bu0"), assigned("bu1"));
        println!("{going:?} and {stopped:?} events");
        assert!(going > stopped, "{going:?} {stopped:?}");
    }
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
    assert_others_go_on(
        [[TCP, "block = \"4 KiB\"\n"], [UDP, BY_CLOCK]].map(|lines| with(&lines.concat())),
    );
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

/// The linear shift: by threads and processes, pulled and pushed, with the death of a builder unit.
#[test]
fn phases_build_the_same_events_and_a_builder_unit_may_die() {
    let _turn = turn();
    let triggers = ["--triggers", "4000"];
    let rings = Run::of(patient, &triggers);
    let push = "mode = \"push\"\nblock = \"4 KiB\"\n";
    let killed = ["--processes", "--fault", "kill:bu1@1500triggers"];
    let gone = "on_loss = \"continue\"\n";
    let cases: [(&[&str], &[&str]); 7] = [
        (&[TCP], &[]),
        (&[UDP, "block = \"8 KiB\"\nbarrier_retry = \"1 ms\"\n"], &[]),
        (&[TCP, push], &PROCESSES),
        (&[UDP, push], &PROCESSES),
        (
            &[TCP, "block = \"3 KiB\"\nshift_numbers = [1, 0]\n"],
            &killed,
        ),
        (&[UDP, "block = \"8 KiB\"\n"], &killed),
        (&[TCP, push, gone], &killed),
    ];
    for (lines, options) in cases {
        let lines = lines.concat();
        let run = Run::of(in_phases(&lines), &[&triggers, options].concat());
        let what = format!("{lines:?} {options:?}");
        same_events(&run, &rings, &what);
        let shaping = &run.summary["builder_transport"]["shaping"];
        println!("{what}: {shaping}");
        assert_eq!(shaping["kind"], "linear-shift", "{what}");
        assert_eq!(shaping["pace"], "barrier", "{what}");
    }
}

/// A builder unit stands still for far longer than all else takes: its phases are empty, and the events of
/// the other are built.
#[test]
fn phases_go_on_while_a_builder_unit_stands_still() {
    let _turn = turn();
    assert_others_go_on(
        [[TCP, "block = \"4 KiB\"\n"], [UDP, "block = \"4 KiB\"\n"]]
            .map(|lines| in_phases(&lines.concat())),
    );
}

/// A readout unit stands still: the others do not wait for it in phases, and it takes part again.
#[test]
fn a_readout_unit_that_stands_still_is_left_out_of_the_barrier_and_comes_back() {
    let _turn = turn();
    let triggers = ["--triggers", "4000"];
    let rings = Run::of(patient, &triggers);
    let stop = ["--processes", "--fault", "stop:ru1@1000triggers+2s"];
    for transport in [TCP, UDP] {
        let lines = [transport, "block = \"4 KiB\"\n"].concat();
        let run = Run::of(in_phases(&lines), &[&triggers[..], &stop].concat());
        same_events(&run, &rings, &lines);
        let barrier = &run.summary["builder_transport"]["shaping"]["barrier"];
        assert!(barrier["left_out"].as_u64() >= Some(1), "{barrier}");
    }
}

/// Two steps, and a readout unit that dies and leaves the barrier: the others go on.
#[test]
fn two_steps_go_in_phases_and_a_readout_unit_that_dies_leaves_the_barrier() {
    let _turn = turn();
    let triggers = ["--triggers", "6000"];
    let whole = Run::of(patient, &triggers);
    let two_steps = in_phases(&[TCP, "first_step = [\"ru0\"]\nblock = \"4 KiB\"\n"].concat());
    let run = Run::of(two_steps, &[&triggers[..], &PROCESSES].concat());
    same_events(&run, &whole, "two steps");
    let fault = ["--processes", "--fault", "kill:ru1@3000triggers"];
    for transport in [TCP, UDP] {
        let lines = [
            transport,
            "block = \"4 KiB\"\non_readout_loss = \"continue\"\n",
        ]
        .concat();
        let run = Run::of(in_phases(&lines), &[&triggers[..], &fault].concat());
        assert!(run.output.status.success(), "{lines}: {}", run.errors());
        run.assert_accounted();
        let (built, incomplete) = (run.count("events_built"), run.count("events_incomplete"));
        assert!(built > 0 && incomplete > 0, "{built} {incomplete}");
        assert_eq!(built + incomplete, run.count("l2_accepted"), "none is lost");
        // With the one that is gone no phase would end.
        let sent = run.summary["roles"]["ru0"]["shaping_fragments"].as_u64();
        assert!(sent > Some(incomplete), "{sent:?} of {incomplete} events");
    }
}
