//! Scenarios with `[builder]` from outside: what is refused and how, and what a document says of a run.

use serde_json::Value;

use crate::workbench::{Finished, Workbench, value};

/// A scenario of 8 ports with these keys of `[builder]`, and what stands before and behind the table.
fn scenario(before: &str, builder: &str, behind: &str) -> String {
    format!(
        "format = 1\n{before}\n[topology]\nkind = \"crossbar\"\nports = 8\n{behind}\n[builder]\n{builder}\n"
    )
}

/// The document of a run of it.
fn simulate(text: &str, status: i32) -> Value {
    let bench = Workbench::new();
    bench.write("s.toml", text);
    let run = bench.run(&["sim", "run", "s.toml", "--json"]);
    run.ended_with(status).document()
}

/// Given switches in a ring and buffers of a packet, when packets wait for each other all around, then
/// the run says since when nothing moves, and how many packets are in it.
#[test]
fn a_ring_that_stands_still_is_a_deadlock_and_no_run_that_was_too_short() {
    let bench = Workbench::new();
    let switches = (0..5).map(|n| format!("switch s{n}\nnode a{n} s{n}\nnode b{n} s{n}\n"));
    let links = (0..5).map(|n| format!("link s{n} s{}\n", (n + 1) % 5));
    let ring: String = switches.chain(links).collect();
    bench.write("ring.graph", &ring);
    for switch in [
        "",
        "[switch]\nmode = \"cut-through\"\nbuffer = \"2 KiB\"\n",
        "[switch]\nmode = \"store-and-forward\"\nbuffer = \"4 KiB\"\nflow_control = \"stop-go\"\n",
    ] {
        let rails = 1 + usize::from(switch.contains("2 KiB"));
        let text = format!(
            "format = 1\nrails = {rails}\nduration = \"20 s\"\nduration_max = \"1 min\"\nwarm_up = \"1 s\"\n[topology]\n\
             kind = \"graph\"\nfile = \"ring.graph\"\n[builder]\n[host]\nevent = \"1 us\"\n{switch}"
        );
        bench.write("ring.toml", &text);
        let document = bench.run(&["sim", "run", "ring.toml", "--json"]);
        let document = document.ended_with(0).document();
        assert_eq!(document["deadlock"], true, "{switch}{document:#}");
        assert_eq!(document["converged"], false);
        assert_eq!(document["event_rate_hz"], Value::Null);
        assert_eq!(value(&document, "fragments.conserved"), true);
        let packets = value(&document, "builder.packets_deadlocked").as_u64();
        assert!(packets >= Some(5), "{document:#}");
        assert!(document["simulated_s"].as_f64() < Some(0.5), "{document:#}");
        let held = value(&document, "links.held").as_array().map(Vec::len);
        assert!(held >= Some(5), "{document:#}");
        let text = bench.run(&["sim", "run", "ring.toml"]).ended_with(0).out;
        assert!(
            text.contains("  deadlock          nothing moves in"),
            "{text}"
        );
        assert!(
            !text.contains("not converged") && !text.contains("latency"),
            "{text}"
        );
    }
    let moving = simulate(&scenario("duration = \"20 ms\"", "", ""), 0);
    assert_eq!(moving["deadlock"], false);
    assert_eq!(value(&moving, "builder.packets_deadlocked"), 0);
}

#[test]
fn values_out_of_range_are_refused_by_the_keys_of_the_file() {
    const OF_UNITS: [&str; 5] = [
        "evm_queue",
        "filter_in_flight",
        "history",
        "probe",
        "window",
    ];
    let bench = Workbench::new();
    let refused = |text: &str, parts: &[&str]| {
        bench.write("bad.toml", text);
        let run = bench.run(&["sim", "run", "bad.toml"]).ended_with(1);
        for part in parts {
            assert!(run.err.contains(part), "{part} in\n{}", run.err);
        }
        for key in OF_UNITS {
            assert!(!run.err.contains(key), "{key} in\n{}", run.err);
        }
    };
    for (key, parts) in [
        ("queue = 0", ["builder.queue", "from 1 to 1048576"]),
        ("credits = 100000", ["builder.credits", "from 1 to 4096"]),
        (
            "requests_per_message = 33",
            ["requests_per_message", "from 1 to 32"],
        ),
        (
            "readout_units = 0",
            ["builder.readout_units", "from 1 to 4096"],
        ),
        (
            "builder_units = 0",
            ["builder.builder_units", "from 1 to 4096"],
        ),
        ("mtu = \"0 B\"", ["builder.mtu", "512 B to 1 MiB"]),
        ("retry = \"10 s\"", ["builder.retry", "1.00 us to 5.00 s"]),
        ("timeout = \"2 h\"", ["builder.timeout", "1.00 ms to"]),
    ] {
        refused(&scenario("", key, ""), &parts);
    }
    // What is compared with a wrong value is not wrong for it.
    bench.write("bad.toml", scenario("", "timeout = \"0 s\"", ""));
    let run = bench.run(&["sim", "run", "bad.toml"]).ended_with(1);
    assert!(run.err.contains("1 problem in bad.toml"), "{}", run.err);
    let hosts = |keys: &str| scenario("", "", &format!("[host]\n{keys}\n"));
    for (key, parts) in [
        ("bus = \"1 b/s\"", ["host.bus", "1 kb/s to 100 Tb/s"]),
        ("interval = \"1 ns\"", ["host.interval", "100 ns and more"]),
    ] {
        refused(&hosts(key), &parts);
    }
    bench.write(
        "good.toml",
        hosts("interval = \"100 ns\"\nbus = \"1 kB/s\""),
    );
    bench.run(&["check", "good.toml"]).ended_with(0);
    let arrivals = "[arrival]\nlaw = \"poisson\"\nrate = \"0 Hz\"\n";
    refused(
        &scenario("", "", arrivals),
        &["arrival.rate", "0.001 Hz or more"],
    );
}

/// Tables of all units have a place for each open event.
#[test]
fn too_many_open_events_are_refused_together() {
    let bench = Workbench::new();
    let text =
        "format = 1\n[topology]\nkind = \"crossbar\"\nports = 4096\n[builder]\ncredits = 4096\n";
    bench.write("many.toml", text);
    let run = bench.run(&["check", "many.toml"]).ended_with(1);
    for part in [
        "builder.credits",
        "16777280 open events",
        "lower `credits` or `queue`",
    ] {
        assert!(run.err.contains(part), "{part} in\n{}", run.err);
    }
}

#[test]
fn units_that_die_are_counted_at_once_and_again_when_they_are_found() {
    let keys = "dead = 3\ndead_readouts = 1\n";
    let dead = |duration: &str| {
        let times = format!("duration = \"{duration}\"\nwarm_up = \"1 ms\"\n");
        let document = simulate(&scenario(&times, keys, ""), 0);
        ["dead", "found_dead", "dead_readouts"]
            .map(|key| value(&document, &format!("builder.{key}")).as_u64())
            .map(|count| count.expect("a count"))
    };
    assert_eq!(dead("120 ms"), [3, 0, 1]);
    assert_eq!(dead("700 ms"), [3, 3, 1]);
}

#[test]
fn fragments_are_conserved_whatever_their_size() {
    let sizes = "[size]\nlaw = \"exponential\"\n[host]\nevent = \"1 us\"\n";
    let keys = "credit_bytes = \"64 KiB\"\nevent_bytes = \"17 KiB\"";
    let document = simulate(&scenario("duration = \"50 ms\"", keys, sizes), 1);
    let violations = value(&document, "builder.violations").as_array();
    assert!(
        violations.is_some_and(|all| !all.is_empty()),
        "{document:#}"
    );
    assert_eq!(value(&document, "fragments.conserved"), true);
}

/// An event counts whole when it is through, and the first ones began to come before the counting.
#[test]
fn no_more_than_the_links_carry_is_ever_their_efficiency() {
    for (duration, block) in [("100 ms", "64 B"), ("100 ms", "4 KiB"), ("40 ms", "1 KiB")] {
        let times = format!("duration = \"{duration}\"\nwarm_up = \"20 ms\"\n");
        let keys = format!("shaping = \"barrel-shifter\"\nblock = \"{block}\"");
        let document = simulate(&scenario(&times, &keys, "[host]\nevent = \"1 us\"\n"), 0);
        let share = document["efficiency_link"].as_f64().expect("converged");
        assert!((0.99..=1.0).contains(&share), "{duration} {block}: {share}");
    }
}

#[test]
fn a_closed_form_has_the_keys_of_a_simulation() {
    let bench = Workbench::new();
    let text = "format = 1\n[topology]\nkind = \"crossbar\"\nports = 4\n";
    bench.write("s.toml", text);
    let run = |level| {
        let run = bench.run(&["sim", "run", "s.toml", "--json", "--level", level]);
        run.ended_with(0).document()
    };
    let (theory, flits) = (run("analytic"), run("flit"));
    for (key, _) in flits.as_object().expect("an object") {
        assert!(theory.get(key).is_some(), "{key} in {theory:#}");
    }
    for key in [
        "efficiency_p2p",
        "losses",
        "latency",
        "trace_hash",
        "events",
    ] {
        assert_eq!(theory[key], Value::Null, "{key}");
    }
    assert!(theory["efficiency_link"].is_number());
}

/// Runs `sim plan` on a small network with these options more.
fn plan(options: &[&str]) -> Finished {
    let small = "sim plan --sources 4 --rate 1kHz --link 1Gb/s --events 100 --network crossbar";
    let mut line: Vec<&str> = small.split(' ').collect();
    line.extend(["--fragment", "2KiB", "--protocol", "pull", "--json"]);
    line.extend(options);
    Workbench::new().run(&line)
}

#[test]
fn a_plan_refuses_what_it_would_take_no_notice_of() {
    for (options, part) in [
        (
            &["--law", "fixed", "--rms", "1KiB"][..],
            "--rms with a fixed law",
        ),
        (
            &["--law", "exponential", "--rms", "1KiB"],
            "--rms with an exponential law",
        ),
        (&["--mtu", "0B"], "--mtu of 0 B, allowed are 512 B to 1 MiB"),
        (
            &["--host-bus", "7b/s"],
            "--host-bus of 7 b/s, allowed are 1 kb/s to 100 Tb/s",
        ),
        (&["--threads", "0"], "allowed is a whole number from 1 on"),
    ] {
        let run = plan(options).ended_with(2);
        assert!(run.err.contains(part), "{part} in\n{}", run.err);
    }
}

#[test]
fn loads_of_a_plan_have_names_of_their_own() {
    for packet in ["0 ns", "1 us", "1 ms"] {
        let run = plan(&["--host-packet", packet, "--threads", "100000"]);
        let started = "simulating 4 options on 4 threads";
        assert!(run.err.contains(started), "{}", run.err);
        let document = run.document();
        let loads = document["loads"].as_array().expect("loads");
        let mut names: Vec<&str> = loads
            .iter()
            .filter_map(|load| load["of"].as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 6, "{loads:?}");
        let last = loads.last().expect("six");
        assert_eq!(last["of"], "links of the sources with their adapters");
    }
}

#[test]
fn a_swarm_starts_no_more_threads_than_there_are_stories() {
    let bench = Workbench::new();
    let swarm = |threads| bench.run(&["sim", "swarm", "--runs", "3", "--threads", threads]);
    let run = swarm("100000").ended_with(0);
    assert!(run.err.contains(", 3 threads"), "{}", run.err);
    let run = swarm("0").ended_with(2);
    assert!(run.err.contains("from 1 on"), "{}", run.err);
}

/// Given fragments of one size and triggers that are always there, when starts lock into orders of their own,
/// then one start says that it is one, and several are no steady state though each is.
#[test]
fn several_starts_say_what_one_does_not_know() {
    let bench = Workbench::new();
    let text = scenario(
        "duration = \"500 ms\"\nwarm_up = \"200 ms\"",
        "credits = 2",
        "[size]\nmean = \"2 KiB\"\n[host]\nevent = \"20 us\"",
    );
    bench.write("s.toml", &text);
    let one = simulate(&text, 0);
    assert_eq!(one["converged"], true, "{one:#}");
    assert_eq!(one["starts"], Value::Null);
    let note = one["notes"][0].as_str().expect("a note");
    assert!(note.contains("of this start alone"), "{note}");

    let line = ["sim", "run", "s.toml", "--starts", "12"];
    let all = bench.run(&[&line[..], &["--json"]].concat());
    let all = all.ended_with(0).document();
    assert_eq!(all["converged"], false, "{all:#}");
    assert_eq!(all["event_rate_hz"], Value::Null);
    assert_eq!(all["notes"].as_array().map(Vec::len), Some(0));
    let starts = all["starts"].as_array().expect("starts");
    assert_eq!(starts.len(), 12);
    assert!(starts.iter().all(|start| start["converged"] == true));
    assert_eq!(starts[0]["mean_of_batches"], one["mean_of_batches"]);
    assert_eq!(
        (&starts[0]["seed"], &starts[11]["seed"]),
        (&"1".into(), &"12".into())
    );
    let means = starts
        .iter()
        .filter_map(|start| start["mean_of_batches"].as_f64());
    let mean = means.sum::<f64>() / 12.0;
    let of_all = all["mean_of_batches"].as_f64().expect("a mean");
    assert!((of_all / mean - 1.0).abs() < 1e-9, "{of_all} {mean}");
    let text = bench.run(&[&line[..], &["--threads", "1"]].concat());
    let text = text.ended_with(0).out;
    assert!(
        text.contains("across 12 starts") && text.contains("they differ"),
        "{text}"
    );

    bench.write(
        "p.toml",
        "format = 1\n[topology]\nkind = \"crossbar\"\nports = 4\n",
    );
    let refused = bench.run(&["sim", "run", "p.toml", "--starts", "4"]);
    let refused = refused.ended_with(1).err;
    assert!(
        refused.contains("--starts needs a scenario with `[builder]`"),
        "{refused}"
    );
}

#[test]
fn a_plan_takes_a_size_or_a_list_and_says_so() {
    let refused = plan(&["--sizes", "s.txt"]);
    assert!(
        refused.err.contains("<--fragment <SIZE>|--sizes <FILE>>"),
        "{}",
        refused.err
    );
}
