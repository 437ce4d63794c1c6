//! `examples/spill.toml`: data only during flat-tops, read-back in every event, one picture of it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufReader;

use livetime_store::RunReader;
use livetime_wire::fragment::{FragmentView, HEADER_WORDS};
use livetime_wire::timing_read_back::ReadBackView;

use crate::workbench::{Workbench, assert_conserved, count, project};

/// The gate of the example: 400 to 700 ms of each second; its scheduled trigger: 500 ms.
const GATE_MS: std::ops::Range<u64> = 400..700;
const MS: u64 = 1_000_000;

#[test]
fn events_come_in_the_gates_and_carry_the_read_back() {
    let bench = Workbench::new();
    let example = fs::read_to_string(project().join("examples/spill.toml")).unwrap();
    bench.write("spill.toml", example);
    let arguments = [
        "run",
        "spill.toml",
        "--duration",
        "2600ms",
        "--json",
        "--out",
        "out",
    ];
    let document = bench.run(&arguments).ended_with(0).document();
    assert_conserved(&document);
    let of_source = |name: &str| count(&document, &format!("roles.src0.{name}"));
    // A program that stands still ends its run later, in further turns of the schedule.
    assert!(of_source("gates_opened") >= 3);
    assert!(of_source("triggers_scheduled") >= 3);
    assert!(of_source("ramps_started") >= 36);
    assert_eq!(of_source("ramp_faults"), 0);
    assert!(of_source("refused_gate") > 0, "two thirds of the offers");
    // What the gate refused is no dead time.
    let by_gate = of_source("refused_gate") + of_source("refused_gate_passed");
    let in_gate = |name: &str| (count(&document, &format!("counts.{name}")) - by_gate) as f64;
    let fraction = document["dead_time"]["refused_fraction"].as_f64().unwrap();
    assert!((fraction - in_gate("refused") / in_gate("offered")).abs() < 1e-9);
    let page = bench.read("out/report.html");
    assert!(page.contains("refused by the trigger gate"));

    let file = File::open(bench.path("out/events.mcap")).unwrap();
    let mut reader = RunReader::open(BufReader::new(file)).unwrap();
    assert!(reader.begin().unwrap().started_tai_ns > 1_700_000_000 * 1000 * MS);
    let (mut events, mut scheduled, mut turns) = (0, 0, BTreeSet::new());
    while let Some(event) = reader.next_event().unwrap() {
        events += 1;
        let at = event.header().triggered_at.0;
        assert!(GATE_MS.contains(&(at / MS % 1000)), "triggered at {at} ns");
        turns.insert(at / MS / 1000);
        let fragment = event
            .fragments()
            .find(|(entry, _)| entry.source.0 == 0x7F_0000);
        let (_, words) = fragment.expect("every event has the read-back");
        let fragment = FragmentView::new_checked(words).unwrap();
        assert_eq!(fragment.check().crc_good, Some(true));
        let view = ReadBackView::new_checked(fragment.data()).unwrap();
        assert!(view.is_gate_open());
        let full = f64::from(i32::MAX);
        let percent = |value: i32| f64::from(value) / full * 100.0;
        let wanted = [[80.0; 8].as_slice(), &[45.0; 2], &[-40.0; 2]].concat();
        assert_eq!(view.generators().len(), wanted.len());
        for (generator, wanted) in view.generators().zip(wanted) {
            assert!(
                (percent(generator.output) - wanted).abs() < 0.001,
                "{generator:?}"
            );
            // 50 ms after the ramp the magnet, with 5 ms, is at its field.
            assert!(
                (percent(generator.read_back) - wanted).abs() < 0.1,
                "{generator:?}"
            );
        }
        scheduled += u64::from(words[HEADER_WORDS - 2] == 2);
    }
    // How many, and whether some in each turn, is the machine's affair: a starved one is late.
    assert!(events > 0 && events == count(&document, "counts.events_stored"));
    assert!(turns.is_subset(&BTreeSet::from([0, 1, 2])), "{turns:?}");
    let passed = of_source("refused_gate_passed");
    assert_eq!(scheduled + passed, 3, "trigger type 2 of each turn");

    let page = bench.read("out/report.html");
    let inside = format!("{events} were triggered inside the gates and 0 outside");
    for part in [
        "Ramps, gate, events and read-back",
        "magnet 0, read back",
        &inside,
    ] {
        assert!(page.contains(part), "{part}");
    }
}

/// Nobody comes to a trigger within the nanosecond before its gate closes, which is how a starved
/// program comes to any: it is refused by name and not stamped outside.
#[test]
fn a_trigger_whose_gate_has_passed_is_refused() {
    let bench = Workbench::new();
    let example = fs::read_to_string(project().join("examples/spill.toml")).unwrap();
    let late = example.replace("0x0 500000000", "0x0 699999999");
    assert_ne!(late, example);
    bench.write("spill.toml", late);
    let arguments = ["run", "spill.toml", "--duration", "1s", "--json"];
    let ran = bench.run(&[&arguments[..], &["--out", "out"]].concat());
    let document = ran.ended_with(0).document();
    assert_conserved(&document);
    let of_source = |name: &str| count(&document, &format!("roles.src0.{name}"));
    // What the schedule asks for while the run ends is not offered.
    assert!(of_source("triggers_scheduled") >= 1);
    assert_eq!(of_source("refused_gate_passed"), 1);
    let file = File::open(bench.path("out/events.mcap")).unwrap();
    let mut reader = RunReader::open(BufReader::new(file)).unwrap();
    let mut events = 0;
    while let Some(event) = reader.next_event().unwrap() {
        events += 1;
        let at = event.header().triggered_at.0;
        assert!(GATE_MS.contains(&(at / MS)), "triggered at {at} ns");
    }
    assert!(events > 0 && events == count(&document, "counts.events_stored"));
}

/// With threads and with processes, the times of events in TAI are those of the grid.
#[test]
fn aligned_spills_begin_with_a_full_second_of_tai() {
    let bench = Workbench::new();
    let example = fs::read_to_string(project().join("examples/spill.toml")).unwrap();
    let aligned = example.replace("period = \"1 s\"", "period = \"1 s\"\nalign = \"1 s\"");
    assert_ne!(aligned, example);
    bench.write("spill.toml", aligned);
    for (out, how) in [("threads", None), ("processes", Some("--processes"))] {
        // With `align` the time that roles need to start is part of the duration: the run ends by its
        // triggers, however long that takes.
        let mut arguments = vec!["run", "spill.toml", "--duration", "1h", "--triggers", "300"];
        arguments.extend(["--json", "--out", out]);
        arguments.extend(how);
        let ran = bench.run(&arguments).ended_with(0);
        let document = ran.document();
        assert_conserved(&document);
        let of_source = |name: &str| count(&document, &format!("roles.src0.{name}"));
        assert_eq!(of_source("ramp_faults"), 0);
        let file = File::open(bench.path(&format!("{out}/events.mcap"))).unwrap();
        let mut reader = RunReader::open(BufReader::new(file)).unwrap();
        let started = reader.begin().unwrap().started_tai_ns;
        let mut events = 0;
        while let Some(event) = reader.next_event().unwrap() {
            events += 1;
            let tai_ms = (started + event.header().triggered_at.0) / MS;
            assert!(
                GATE_MS.contains(&(tai_ms % 1000)),
                "triggered at {tai_ms} ms"
            );
        }
        assert_eq!(
            (events, count(&document, "counts.events_stored")),
            (300, 300)
        );
        assert!(of_source("gates_opened") >= 1);
        let page = bench.read(&format!("{out}/report.html"));
        let first = (started.div_ceil(1000 * MS)).to_string();
        let inside = format!("{events} were triggered inside the gates and 0 outside");
        let began = format!("the first began at {first}.000000000 s TAI");
        for part in [&inside, &began] {
            assert!(page.contains(part.as_str()), "{part}");
        }
    }
}

/// The period is the length of the schedule unless the file says otherwise: the gate closes with the
/// last message and opens with the first of the next turn, at one time.
#[test]
fn a_gate_of_the_usual_period_stays_open() {
    let bench = Workbench::new();
    let example = fs::read_to_string(project().join("examples/spill.toml")).unwrap();
    let link = example.find("[[link]] # function generators").unwrap();
    let rest = example.find("[trigger]").unwrap();
    let timing = r#"[timing]
schedule = ["0x112c103000000000 0x0 0", "0x112c104000000000 0x0 500000000"]
gate_open = "0x112c103000000000"
gate_close = "0x112c104000000000"

"#;
    bench.write(
        "gate.toml",
        [&example[..link], timing, &example[rest..]].concat(),
    );
    let arguments = [
        "sim",
        "gate.toml",
        "--timed",
        "--triggers",
        "3000",
        "--json",
    ];
    let document = bench.run(&arguments).ended_with(0).document();
    assert_eq!(count(&document, "counts.triggers"), 3000);
    let twice = timing.replace("0x0 0\"", "0x0 500000000\"");
    bench.write(
        "gate.toml",
        [&example[..link], &twice, &example[rest..]].concat(),
    );
    let refused = bench.run(&["check", "gate.toml"]).ended_with(1);
    assert!(refused.err.contains("G0303"), "{}", refused.err);
}

#[test]
fn offers_outside_the_gate_have_a_line_of_their_own() {
    let bench = Workbench::new();
    let example = fs::read_to_string(project().join("examples/spill.toml")).unwrap();
    bench.write("spill.toml", example);
    let run = bench.run(&["run", "spill.toml", "--duration", "600ms"]);
    let text = run.ended_with(0).out;
    let line = text.lines().find(|line| line.starts_with("  gate "));
    let line = line.expect("it closes at the start");
    assert!(line.contains(" offers outside the trigger gate "), "{line}");
    assert!(line.ends_with("which is no dead time"), "{line}");
}
