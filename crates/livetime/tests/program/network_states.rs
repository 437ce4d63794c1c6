//! Simulated networks without a steady state, and what is said of rails, from outside.

use serde_json::Value;

use crate::workbench::{Workbench, value};

/// The document and the text of a run of a scenario, which ends well.
fn simulate(bench: &Workbench, text: &str, options: &[&str]) -> (Value, String) {
    bench.write("s.toml", format!("format = 1\n{text}"));
    let run = [&["sim", "run", "s.toml"][..], options].concat();
    let document = bench.run(&[&run[..], &["--json"]].concat());
    let text = bench.run(&run).ended_with(0).out;
    (document.ended_with(0).document(), text)
}

/// Five nodes of a ring wait for each other, and one that sends to itself goes on.
#[test]
fn a_circle_that_leaves_others_a_way_is_a_deadlock_and_says_who_is_in_it() {
    let bench = Workbench::new();
    let nodes = (0..5).map(|n| format!("switch s{n}\nnode n{n} s{n}\n"));
    let links = (0..5).map(|n| format!("link s{n} s{}\n", (n + 1) % 5));
    let graph = nodes.chain(["node x s0\n".to_owned()]).chain(links);
    bench.write("ring.graph", graph.collect::<String>());
    for (switch, level) in [
        ("mode = \"cut-through\"\nbuffer = \"2 KiB\"\n", "packet"),
        ("mode = \"wormhole\"\n", "packet"),
        ("mode = \"wormhole\"\n", "flit"),
    ] {
        let scenario = format!(
            "packet_times = 2000\nduration_max = \"10 s\"\n[topology]\nkind = \"graph\"\nfile = \"ring.graph\"\n[traffic]\n\
             pattern = \"permutation\"\nto = [2, 3, 4, 0, 1, 5]\n[link]\nhop_delay = \"1 us\"\n\
             [switch]\n{switch}"
        );
        let (document, text) = simulate(&bench, &scenario, &["--level", level]);
        assert_eq!(document["deadlock"], true, "{document:#}");
        assert_eq!(document["converged"], false);
        assert_eq!(document["efficiency_link"], Value::Null);
        let sources = serde_json::json!([0, 1, 2, 3, 4]);
        assert_eq!(document["deadlock_sources"], sources);
        assert!(value(&document, "packets.deadlocked").as_u64() >= Some(5));
        assert!(text.contains("packets stand still for ever"), "{text}");
        assert!(
            text.contains("of sources 0, 1, 2, 3, 4; others still move"),
            "{text}"
        );
        assert!(!text.contains("% of the links"), "{text}");
        if level == "packet" {
            assert!(text.contains("link from `s4` to `s0`"), "{text}");
        }
    }
}

/// A tenth too much for a link: its packets come later and later.
#[test]
fn a_backlog_that_grows_is_an_overload_and_its_latencies_are_not_steady() {
    let bench = Workbench::new();
    for (rate, is_overloaded) in [("124 kHz", false), ("137 kHz", true)] {
        let scenario = format!(
            "packet_times = 20000\n[topology]\nkind = \"crossbar\"\nports = 1\n[size]\n\
             mean = \"1000 B\"\n[arrival]\nlaw = \"fixed\"\nrate = \"{rate}\"\n"
        );
        let (document, text) = simulate(&bench, &scenario, &[]);
        assert_eq!(document["overloaded"], is_overloaded, "{document:#}");
        assert_eq!(
            text.contains("  latency           not steady"),
            is_overloaded,
            "{text}"
        );
        assert_eq!(text.contains("  overloaded  "), is_overloaded, "{text}");
    }
}

/// Four rails have four times the packets of one, in the text as in the document.
#[test]
fn packets_and_losses_are_those_of_all_rails() {
    let bench = Workbench::new();
    let of = |rails: u64| {
        let scenario = format!(
            "duration = \"30 ms\"\nrails = {rails}\n[topology]\nkind = \"crossbar\"\nports = 4\n\
             [size]\nmean = \"1000 B\"\n[switch]\nmode = \"cut-through\"\nqueues = \"output\"\n\
             buffer = \"8 KiB\"\nflow_control = \"none\"\n[traffic]\npattern = \"incast\"\n\
             destination = 0\n[arrival]\nlaw = \"fixed\"\nrate = \"{} kHz\"\n",
            40 * rails
        );
        simulate(&bench, &scenario, &[])
    };
    let ((one, _), (four, text)) = (of(1), of(4));
    for key in [
        "packets.offered",
        "packets.delivered",
        "packets.lost",
        "packets.in_flight",
        "losses.buffer_full",
    ] {
        let count = |document: &Value| value(document, key).as_u64().expect("a count");
        assert!(count(&one) > 0, "{key}");
        assert_eq!(count(&four), 4 * count(&one), "{key}");
        assert!(
            text.contains(&format!(" {} ", count(&four))),
            "{key}: {text}"
        );
    }
    assert!(text.contains(" in flight (4 rails)\n"), "{text}");
    let rate = |document: &Value| document["event_rate_hz"].as_f64().expect("converged");
    assert!((rate(&four) / rate(&one) - 4.0).abs() < 1e-9);
}

/// Nothing that was lost is asked for again within the run, so that events hang at its end.
#[test]
fn a_builder_that_waits_for_what_was_lost_has_not_converged() {
    let bench = Workbench::new();
    let scenario = "duration = \"300 ms\"\nwarm_up = \"20 ms\"\n[topology]\nkind = \"crossbar\"\nports = 8\n\
                    [size]\nmean = \"2 KiB\"\n[switch]\nmode = \"cut-through\"\nqueues = \"output\"\n\
                    buffer = \"32 KiB\"\nflow_control = \"none\"\n[builder]\ncredits = 16\n";
    let (document, text) = simulate(&bench, scenario, &[]);
    assert!(value(&document, "fragments.lost").as_u64() > Some(0));
    assert_eq!(document["converged"], false, "{document:#}");
    assert_eq!(document["event_rate_hz"], Value::Null);
    assert!(text.contains("not converged: 24.57 kHz"), "{text}");
    assert!(text.contains("Count 4 times `retry` or more"), "{text}");
}

/// Packets of half a flit, and a window that is none.
#[test]
fn flits_that_are_not_filled_are_noted_and_a_window_of_nothing_is_one_mistake() {
    let bench = Workbench::new();
    let scenario = "[topology]\nkind = \"crossbar\"\nports = 4\n[size]\nmean = \"4 B\"\n";
    let (document, text) = simulate(&bench, scenario, &["--level", "flit"]);
    let note = "packets of 4 B go in whole flits of 8 B: 50.0 % of what the links carry is empty";
    assert!(text.contains(note), "{text}");
    assert_eq!(document["notes"].as_array().map(Vec::len), Some(1));
    let events = "pattern = \"events-in-order\"\nwindow = 0\n";
    let none =
        format!("format = 1\n[topology]\nkind = \"crossbar\"\nports = 4\n[traffic]\n{events}");
    bench.write("none.toml", none);
    let err = bench.run(&["sim", "run", "none.toml"]).ended_with(1).err;
    assert!(err.contains("`traffic.window` is 0"), "{err}");
    assert!(
        err.contains("1 problem in") && !err.contains("window of 0"),
        "{err}"
    );
}
