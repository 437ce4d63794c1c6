//! Simulated networks from outside: gates, scenario files, presets.

use serde_json::Value;

use crate::workbench::{Workbench, project, value};

/// Runs `sim run` on a scenario of the examples and returns its document.
fn simulate(scenario: &str, level: &str) -> Value {
    let bench = Workbench::new();
    let path = project().join("examples/scenarios").join(scenario);
    let path = path.to_str().expect("the path is text");
    let run = bench.run(&["sim", "run", path, "--level", level, "--json"]);
    run.ended_with(0).document()
}

#[test]
fn every_quick_gate_passes() {
    let bench = Workbench::new();
    let gates = bench.run(&["sim", "gates", "--quick", "--json"]);
    let document = gates.ended_with(0).document();
    assert_eq!(document["schema"], "livetime.gates/1");
    assert_eq!(document["passed"], true);
    let rows = document["rows"].as_array().expect("rows");
    for gate in [
        "V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8", "V9", "V11", "V12",
    ] {
        let judged = rows.iter().filter(|row| row["gate"] == gate).count();
        assert!(judged > 0, "{gate} has rows");
    }
    let unknown = bench.run(&["sim", "gates", "V99"]).ended_with(2);
    assert!(unknown.err.contains("no gate `V99`"), "{}", unknown.err);
}

#[test]
fn the_scenarios_of_the_examples_agree_between_packets_and_flits() {
    for scenario in ["delta-64.toml", "two-rooms.toml"] {
        let documents = ["packet", "flit"].map(|level| simulate(scenario, level));
        let efficiency = documents.each_ref().map(|document| {
            assert_eq!(document["schema"], "livetime.sim/1");
            assert_eq!(document["converged"], true, "{scenario}: {document:#}");
            assert_eq!(value(document, "packets.conserved"), true);
            document["efficiency_link"].as_f64().expect("converged")
        });
        let difference = (efficiency[0] - efficiency[1]).abs();
        assert!(difference <= 0.015, "{scenario}: {efficiency:?}");
    }
}

#[test]
fn the_event_builder_of_the_examples_builds_every_event_on_its_network() {
    let document = simulate("builder-64.toml", "packet");
    assert_eq!(document["schema"], "livetime.sim/1");
    let violations = value(&document, "builder.violations").as_array();
    assert_eq!(violations.map(Vec::len), Some(0), "{document:#}");
    assert_eq!(value(&document, "fragments.conserved"), true);
    assert_eq!(value(&document, "losses.incomplete"), 0);
    assert_eq!(document["converged"], true, "{document:#}");
    let rate = document["event_rate_hz"].as_f64().expect("converged");
    let share = |key: &str| document[key].as_f64().expect("converged");
    let (of_link, of_p2p) = (share("efficiency_link"), share("efficiency_p2p"));
    assert!(of_link < of_p2p && of_p2p < 1.0, "{of_link} {of_p2p}");
    // What is offered is carried.
    assert!((rate / 40e3 - 1.0).abs() < 0.02, "{rate}");
}

#[test]
fn in_two_steps_a_third_of_the_payload_moves_and_the_first_units_send_it() {
    let document = simulate("two-step-64.toml", "packet");
    let violations = value(&document, "builder.violations").as_array();
    assert_eq!(violations.map(Vec::len), Some(0), "{document:#}");
    assert_eq!(document["converged"], true, "{document:#}");
    let rate = document["event_rate_hz"].as_f64().expect("converged");
    assert!((rate / 40e3 - 1.0).abs() < 0.02, "{rate}");
    let of = |key: &str| {
        let steps = value(&document, "builder.two_step");
        steps[key].as_f64().expect("converged")
    };
    assert_eq!(of("first_units"), 16.0);
    let moved = 0.25 + 0.75 * of("accepted");
    assert!((of("moved") - moved).abs() < 0.01, "{document:#}");
    assert!(of("first_bytes_per_s") > 5.0 * of("rest_bytes_per_s"));
    let at_once = simulate("builder-64.toml", "packet");
    assert_eq!(value(&at_once, "builder.two_step"), &Value::Null);
}

#[test]
fn the_same_scenario_is_the_same_run_and_writes_what_is_asked_for() {
    let bench = Workbench::new();
    bench.write(
        "small.toml",
        "format = 1\nname = \"small\"\npacket_times = 50\n[topology]\nkind = \"crossbar\"\n\
         ports = 4\n[size]\nlaw = \"log-normal\"\nmean = \"1 KiB\"\n",
    );
    let arguments = [
        "sim",
        "run",
        "small.toml",
        "--json",
        "--csv",
        "s.csv",
        "--html",
        "s.html",
    ];
    let first = bench.run(&arguments).ended_with(0).document();
    let second = bench.run(&arguments).ended_with(0).document();
    assert_eq!(first["trace_hash"], second["trace_hash"]);
    assert_eq!(bench.read("s.csv").lines().count(), 33);
    assert!(bench.read("s.html").contains("<svg"));
    let other = bench.run(&["sim", "run", "small.toml", "--json", "--seed", "2"]);
    assert_ne!(
        other.ended_with(0).document()["trace_hash"],
        first["trace_hash"]
    );
    // Fifty packet times are too few for a number of the steady state.
    assert_eq!(first["converged"], false);
    assert!(first["efficiency_link"].is_null());
    let text = bench.run(&["sim", "run", "small.toml"]).ended_with(0);
    assert!(text.out.contains("not converged"), "{}", text.out);
}

#[test]
fn links_are_named_in_text_document_page_and_table() {
    let bench = Workbench::new();
    bench.write(
        "hot.toml",
        "format = 1\npacket_times = 200\n[topology]\nkind = \"crossbar\"\nports = 4\n[switch]\n\
         mode = \"cut-through\"\n[traffic]\npattern = \"incast\"\ndestination = 2\n",
    );
    let arguments = [
        "sim", "run", "hot.toml", "--links", "l.csv", "--html", "l.html",
    ];
    let text = bench.run(&arguments).ended_with(0);
    let line = "busiest element 0 port 2 to destination 2 (100.0 % of the time), most blocked behind source ";
    assert!(text.out.contains(line), "{}", text.out);
    assert_eq!(bench.read("l.csv").lines().count(), 9);
    let page = bench.read("l.html");
    assert_eq!(page.matches("<rect").count(), 2 * 8 + 2, "{page}");
    let document = bench.run(&["sim", "run", "hot.toml", "--json"]);
    let document = document.ended_with(0).document();
    assert_eq!(value(&document, "links.count"), 8);
    assert_eq!(value(&document, "links.use.max"), 1.0);
    let blocked = &value(&document, "links.most_blocked")[0];
    assert!(
        blocked["head_of_line"]
            .as_f64()
            .is_some_and(|share| share > 0.7)
    );
    assert_eq!(value(&document, "buffers.count"), 4);
    assert_eq!(value(&document, "buffers.max_bytes.max"), 65536.0);
    assert_eq!(
        value(&document, "buffers.fullest").as_array().map(Vec::len),
        Some(4)
    );
    let refused = [
        "sim", "run", "hot.toml", "--level", "flit", "--links", "f.csv",
    ];
    let refused = bench.run(&refused).ended_with(1);
    assert!(refused.err.contains("--links needs"), "{}", refused.err);
}

#[test]
fn files_that_would_be_lost_or_empty_are_refused() {
    let bench = Workbench::new();
    let scenario = "format = 1\npacket_times = 50\n[topology]\nkind = \"crossbar\"\nports = 4\n";
    bench.write("small.toml", scenario);
    bench.write("sizes.txt", "100\n200\n");
    let listed = format!("{scenario}[size]\nlaw = \"list\"\nfile = \"sizes.txt\"\n");
    bench.write("listed.toml", listed);
    for option in ["--csv", "--links", "--html"] {
        let run = bench.run(&["sim", "run", "listed.toml", option, "sizes.txt"]);
        let said = format!("{option} sizes.txt: this is the file of the scenario");
        assert!(run.ended_with(1).err.contains(&said), "{option}");
    }
    let kept = std::fs::read_to_string(bench.path("sizes.txt"));
    assert_eq!(kept.expect("it is there"), "100\n200\n");
    for (options, said) in [
        (
            &["--csv", "./small.toml"][..],
            "--csv ./small.toml: this is the file of the scenario",
        ),
        (
            &["--csv", "./x", "--links", "x"],
            "--links x: this is the file of --csv",
        ),
        (
            &["--level", "analytic", "--csv", "x"],
            "--csv needs a simulation",
        ),
    ] {
        let run = bench.run(&[&["sim", "run", "small.toml"][..], options].concat());
        let err = run.ended_with(1).err;
        assert!(err.contains(said), "{err}");
    }
    let kept = std::fs::read_to_string(bench.path("small.toml")).expect("it is there");
    assert_eq!(kept, scenario);
}

#[test]
fn links_and_damaged_packets_of_an_event_builder_are_counted() {
    let bench = Workbench::new();
    let scenario = |damage: &str| {
        format!(
            "format = 1\nduration = \"40 ms\"\n[topology]\nkind = \"crossbar\"\nports = 4\n\
             [switch]\nmode = \"store-and-forward\"\n[size]\nmean = \"2 KiB\"\n\
             [builder]\nretry = \"2 ms\"\ncontrol = \"shared\"\npacket_damage = {damage}\n"
        )
    };
    bench.write("noisy.toml", scenario("0.002"));
    let text = bench.run(&["sim", "run", "noisy.toml", "--links", "l.csv"]);
    let text = text.ended_with(0);
    assert!(
        text.out.contains("links             busiest"),
        "{}",
        text.out
    );
    assert_eq!(bench.read("l.csv").lines().count(), 9);
    let document = bench.run(&["sim", "run", "noisy.toml", "--json"]);
    let document = document.ended_with(0).document();
    assert!(value(&document, "losses.damaged").as_u64() > Some(0));
    assert_eq!(value(&document, "losses.buffer_full"), 0);
    assert_eq!(value(&document, "losses.incomplete"), 0);
    assert_eq!(value(&document, "fragments.conserved"), true);
    assert_eq!(value(&document, "links.count"), 8);
    assert!(value(&document, "links.use.max").as_f64() > Some(0.1));
    assert_eq!(value(&document, "buffers.count"), 4);
    bench.write("noisy.toml", scenario("0.7"));
    let refused = bench.run(&["sim", "run", "noisy.toml"]).ended_with(1);
    assert!(
        refused.err.contains("builder.packet_damage"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("0 to 0.5"), "{}", refused.err);
}

#[test]
fn large_fragments_go_in_packets_of_the_network() {
    let bench = Workbench::new();
    let scenario = |key: &str| {
        let text = format!(
            "format = 1\nduration = \"300 ms\"\n[topology]\nkind = \"crossbar\"\nports = 4\n\
             [switch]\nmode = \"store-and-forward\"\nqueues = \"output\"\n[link]\noverhead = \"100 B\"\n\
             [size]\nmean = \"4000 B\"\n[host]\nevent = \"20 us\"\n[builder]\n{key}\n"
        );
        bench.write("packets.toml", text);
        bench.run(&["sim", "run", "packets.toml", "--json"])
    };
    let rate = |key: &str| {
        let document = scenario(key).ended_with(0).document();
        assert_eq!(value(&document, "fragments.conserved"), true);
        value(&document, "event_rate_hz")
            .as_f64()
            .expect("converged")
    };
    // Three packets and their overhead instead of one: 4100 bytes become 4300.
    let ratio = rate("mtu = \"1500 B\"") / rate("");
    assert!((ratio / (4100.0 / 4300.0) - 1.0).abs() < 0.01, "{ratio}");
    let barrel = "shaping = \"barrel-shifter\"\nblock = \"4 KiB\"\nmtu = \"1500 B\"";
    let refused = scenario(barrel).ended_with(1);
    for part in [
        "builder.mtu",
        "1.5 KiB",
        "4 KiB or more: a block is a packet",
    ] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
}

#[test]
fn a_scenario_chooses_queues_and_scheduler_of_its_switch() {
    let bench = Workbench::new();
    let efficiency = |queues: &str, matching: &str| {
        bench.write(
            "matched.toml",
            format!(
                "format = 1\n[topology]\nkind = \"crossbar\"\nports = 8\n[switch]\n\
                 mode = \"store-and-forward\"\nqueues = \"{queues}\"\n\
                 buffer = \"1 MiB\"\n{matching}\n"
            ),
        );
        let run = bench.run(&["sim", "run", "matched.toml", "--json"]);
        let document = run.ended_with(0).document();
        assert_eq!(value(&document, "packets.conserved"), true);
        document["mean_of_batches"].as_f64().expect("a number")
    };
    let matched = |matching| efficiency("virtual-output", matching);
    let one = matched("matching = \"pim\"");
    let four = matched("matching = \"pim\"\niterations = 4");
    let slip = matched("matching = \"islip\"");
    assert!(one < 0.68 && four > 0.97, "{one} {four}");
    assert!(slip > one + 0.2, "{one} {slip}");
    assert_eq!(matched("matching = \"arbiter\""), matched(""));
    // One iteration between queues at both sides is enough if the element is faster.
    let combined = "matching = \"pim\"\nspeedup = 1.75\noutput_buffer = \"64 KiB\"";
    let combined = efficiency("combined", combined);
    assert!(combined > 0.98, "{combined}");
    let crosspoints = efficiency("crosspoint", "crosspoint_buffer = \"2 KiB\"");
    assert!(crosspoints > 0.95, "{crosspoints}");
}

#[test]
fn scenarios_that_cannot_be_are_refused_with_place_and_help() {
    let bench = Workbench::new();
    let cases = [
        ("[topology]\nkind = \"benes\"\nports = 12\n", "F0201"),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[traffic]\npattern = \"incast\"\ndestination = 9\n",
            "F0202",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 9\n[traffic]\npattern = \"events-digit-reversed\"\n",
            "`traffic` is digit-reversed events of radix 2 for 9 destinations",
        ),
        (
            "[topology]\nkind = \"benes\"\nports = 8\n[traffic]\npattern = \"barrel-shifter\"\n",
            "F0203",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[switch]\nmode = \"cut-through\"\nbuffer = \"1 KiB\"\n",
            "F0204",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[switch]\nmode = \"cut-through\"\nqueues = \"virtual-output\"\nlanes = 2\n",
            "switch.lanes",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[switch]\nmode = \"cut-through\"\nqueues = \"combined\"\nspeedup = 0.5\n",
            "switch.speedup",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[switch]\nmode = \"cut-through\"\nqueues = \"combined\"\noutput_buffer = \"1 KiB\"\n",
            "switch.output_buffer",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[switch]\nmode = \"cut-through\"\nqueues = \"crosspoint\"\nbuffer_place = \"shared\"\n",
            "switch.buffer_place",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[switch]\nmode = \"cut-through\"\nqueues = \"crosspoint\"\ncrosspoint_buffer = \"1 KiB\"\n",
            "switch.crosspoint_buffer",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 9\n[switch]\nmode = \"cut-through\"\nqueues = \"virtual-output\"\nmatching = \"maximum-weight\"\n",
            "switch.matching",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[switch]\nmode = \"cut-through\"\nqueues = \"virtual-output\"\nmatching = \"pim\"\niterations = 17\n",
            "C0006",
        ),
        (
            "[topology]\nkind = \"fat-tree\"\nradix = 2\nlevels = 13\n",
            "levels is 13, allowed is 1 to 12",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 65536\n[switch]\nmode = \"cut-through\"\nqueues = \"virtual-output\"\n",
            "switch.queues",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 65536\n[switch]\narbiter = \"least-recent\"\n",
            "switch.arbiter",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[size]\nmean = \"32 MiB\"\n",
            "F0205",
        ),
        (
            "level = \"analytic\"\n[topology]\nkind = \"benes\"\nports = 8\n",
            "F0206",
        ),
        (
            "duration = \"2 h\"\n[topology]\nkind = \"crossbar\"\nports = 4\n",
            "F0207",
        ),
        (
            "rails = -1\n[topology]\nkind = \"crossbar\"\nports = 4\n",
            "set `rails` to a whole number from 1 to 16",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[traffic]\npattern = \"permutation\"\nto = [1, -1, 2, \"3\"]\n",
            "`traffic.to[1]` is -1, and 1 more of the list",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[builder]\nbuilder_units = 5\n",
            "F0208",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[builder]\nplacement = \"interleaved\"\n",
            "builder.placement",
        ),
        (
            "[topology]\nkind = \"benes\"\nports = 8\n[builder]\nshaping = \"barrel-shifter\"\n",
            "F0203",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\n[builder]\n[traffic]\n",
            "C0120",
        ),
        (
            "[topology]\nkind = \"crossbar\"\nports = 4\nradixes = 2\n",
            "C0002",
        ),
    ];
    for (text, code) in cases {
        bench.write("bad.toml", format!("format = 1\n{text}"));
        let run = bench.run(&["sim", "run", "bad.toml"]).ended_with(1);
        assert!(run.err.contains(code), "{code} in\n{}", run.err);
        assert!(run.err.contains("help"), "{}", run.err);
        assert_eq!(run.out, "");
    }
    bench.write("island.graph", "switch a\nswitch b\nnode n a\nnode m b\n");
    bench.write(
        "island.toml",
        "format = 1\n[topology]\nkind = \"graph\"\nfile = \"island.graph\"\n",
    );
    let run = bench.run(&["sim", "run", "island.toml"]).ended_with(1);
    assert!(
        run.err.contains("no route from source n to destination m"),
        "{}",
        run.err
    );
    let mut chain: String = (0..24).map(|s| format!("switch s{s}\n")).collect();
    chain.extend((1..24).map(|s| format!("link s{} s{s}\n", s - 1)));
    bench.write(
        "island.graph",
        format!("{chain}source n s0\nsource n s1\ndestination m s23\n"),
    );
    let run = bench.run(&["check", "island.toml"]).ended_with(1);
    let text = "island.graph:49: source `n` is there twice";
    assert!(run.err.contains(text), "{}", run.err);
    bench.write(
        "island.graph",
        format!("{chain}source n s0\ndestination m s23\n"),
    );
    let run = bench.run(&["check", "island.toml"]).ended_with(1);
    for part in ["source n to destination m has 25 links", "allowed are 24"] {
        let words: Vec<&str> = run.err.split_whitespace().filter(|w| *w != "│").collect();
        assert!(words.join(" ").contains(part), "{part} in\n{}", run.err);
    }
}

#[test]
fn a_run_that_is_too_long_is_refused_at_the_key_that_makes_it_so() {
    let bench = Workbench::new();
    let network = "[topology]\nkind = \"crossbar\"\nports = 4\n";
    let slow = "[link]\nrate = \"1 kb/s\"\n";
    let cases = [
        (
            format!("packet_times = 1000000000\n{network}"),
            "`packet_times` is so many that they take 16384 s",
            "set `packet_times` to 219726562 or less",
        ),
        (
            format!("packet_times = 300\n{network}{slow}"),
            "`packet_times` is so many that they take 4915 s",
            "set `packet_times` to 219 or less",
        ),
        (
            format!("{network}{slow}"),
            "`link.rate` is so low that 2000 packets take 32768 s",
            "set `packet_times` to 219 or less, or raise `rate` of `[link]`",
        ),
        (
            format!("duration = \"2 h\"\n{network}"),
            "`duration` is 7200 s",
            "a few thousand packet times are enough",
        ),
    ];
    for (text, found, help) in cases {
        bench.write("long.toml", format!("format = 1\n{text}"));
        let run = bench.run(&["check", "long.toml"]).ended_with(1);
        for part in ["[long.toml:", found, help, "1 problem in long.toml"] {
            assert!(run.err.contains(part), "{part} in\n{}", run.err);
        }
    }
}

#[test]
fn theory_is_left_out_where_it_does_not_hold() {
    let bench = Workbench::new();
    let permutation = "format = 1\npacket_times = 1000\n[topology]\nkind = \"crossbar\"\n\
                       ports = 4\n[traffic]\npattern = \"permutation\"\nto = [1, 2, 3, 0]\n\
                       [switch]\nmode = \"store-and-forward\"\n";
    let run = |buffer: &str| {
        bench.write(
            "theory.toml",
            format!("{permutation}buffer = \"{buffer}\"\n"),
        );
        let run = bench.run(&["sim", "run", "theory.toml", "--json"]);
        run.ended_with(0).document()
    };
    let (tight, wide) = (run("2 KiB"), run("4 KiB"));
    assert!(tight["efficiency_analytic"].is_null(), "{tight}");
    assert_eq!(wide["efficiency_analytic"], 1.0, "{wide}");
    run("2 KiB");
    let level = ["sim", "run", "theory.toml", "--level", "analytic"];
    let refused = bench.run(&level).ended_with(1);
    assert!(refused.err.contains("F0206"), "{}", refused.err);
}

#[test]
fn presets_are_listed() {
    let bench = Workbench::new();
    let list = bench.run(&["sim", "presets"]).ended_with(0);
    assert!(list.out.lines().count() >= 10, "{}", list.out);
    let text = bench.run(&["sim", "presets", "lhcb-run3"]).ended_with(0);
    assert!(text.out.contains("barrel-shifter"));
}

/// `LIVETIME_LONG=1` takes the large ones, too, which simulate for up to a minute each.
#[test]
fn presets_have_a_steady_state() {
    const LARGE: [&str; 4] = [
        "cms-2000-gbe-1",
        "cms-2000-gbe-2",
        "cms-phase2",
        "atlas-phase2",
    ];
    let bench = Workbench::new();
    let list = bench.run(&["sim", "presets"]).ended_with(0);
    let names = list.out.lines().filter_map(|line| line.split(' ').next());
    let is_long = std::env::var_os("LIVETIME_LONG").is_some();
    for name in names.filter(|name| is_long || !LARGE.contains(name)) {
        let run = bench.run(&["sim", "run", "--preset", name, "--json"]);
        let document = run.ended_with(0).document();
        assert_eq!(document["converged"], true, "{name}: {document}");
    }
}

#[test]
fn a_ring_that_stands_still_is_reported_and_no_steady_state() {
    let bench = Workbench::new();
    let mut graph = String::new();
    for s in 0..4 {
        graph += &format!("switch s{s}\nnode a{s} s{s}\nnode b{s} s{s}\n");
    }
    for s in 0..4 {
        graph += &format!("link s{s} s{}\n", (s + 1) % 4);
    }
    bench.write("ring.graph", &graph);
    bench.write(
        "ring.toml",
        "format = 1\n[topology]\nkind = \"graph\"\nfile = \"ring.graph\"\n",
    );
    let checked = bench.run(&["check", "ring.toml"]).ended_with(0);
    assert!(checked.out.contains("good") && checked.out.contains("in a circle (s0 -> "));
    for level in ["packet", "flit"] {
        let run = bench.run(&["sim", "run", "ring.toml", "--level", level, "--json"]);
        let document = run.ended_with(0).document();
        assert_eq!(document["deadlock"], true, "{document:#}");
        assert_eq!(document["converged"], false);
        assert!(document["efficiency_link"].is_null());
        assert_eq!(document["notes"].as_array().map(Vec::len), Some(1));
        assert_eq!(value(&document, "packets.conserved"), true);
        let text = bench.run(&["sim", "run", "ring.toml", "--level", level]);
        let text = text.ended_with(0).out;
        assert!(text.contains("nothing moves from"), "{text}");
        assert!(!text.contains("blocked"), "{text}");
    }
    // Without buffers and with small ones the links of the circle are held.
    for switch in ["", "[switch]\nmode = \"cut-through\"\nbuffer = \"2 KiB\"\n"] {
        bench.write(
            "ring.toml",
            format!("format = 1\n[topology]\nkind = \"graph\"\nfile = \"ring.graph\"\n{switch}"),
        );
        let text = bench.run(&["sim", "run", "ring.toml"]).ended_with(0).out;
        let document = bench.run(&["sim", "run", "ring.toml", "--json"]);
        let document = document.ended_with(0).document();
        let held = value(&document, "links.held").as_array().expect("a list");
        let line = "held while packets wait for them: link from `s";
        assert!(text.contains(line) && !text.contains("blocked"), "{text}");
        // Which way round the circle goes is chance; there are four links each way.
        let between = text.matches("link from `s").count();
        assert!((4..=8).contains(&between), "{text}");
        let ends: Vec<&str> = held.iter().filter_map(|l| l["from"].as_str()).collect();
        assert!(ends.len() >= 4, "{document:#}");
        assert!(
            ends[..4].iter().all(|end| end.starts_with("element ")),
            "{ends:?}"
        );
    }
}

#[test]
fn a_run_in_which_nothing_came_is_no_steady_state() {
    let bench = Workbench::new();
    bench.write(
        "short.toml",
        "format = 1\nduration = \"1 us\"\n[topology]\nkind = \"crossbar\"\nports = 4\n",
    );
    let document = bench.run(&["sim", "run", "short.toml", "--json"]);
    let document = document.ended_with(0).document();
    assert_eq!(document["converged"], false);
    assert_eq!(document["deadlock"], false);
    assert!(document["fairness_sources"].is_null());
    let text = bench.run(&["sim", "run", "short.toml"]).ended_with(0).out;
    assert!(text.contains("nothing was delivered"), "{text}");
}

#[test]
fn a_scenario_and_a_configuration_are_told_apart() {
    let bench = Workbench::new();
    let scenario = project().join("examples/scenarios/delta-64.toml");
    let scenario = scenario.to_str().expect("the path is text");
    let configuration = project().join("examples/dimuon.toml");
    let configuration = configuration.to_str().expect("the path is text");
    let wrong = bench.run(&["sim", "run", configuration]).ended_with(1);
    assert!(
        wrong.err.contains("configuration of a run"),
        "{}",
        wrong.err
    );
    let wrong = bench.run(&["sim", scenario, "--triggers", "10"]);
    let wrong = wrong.ended_with(1);
    assert!(wrong.err.contains("scenario of a network"), "{}", wrong.err);
    let checked = bench.run(&["check", scenario]).ended_with(0);
    assert!(checked.out.contains("64 sources x 64"), "{}", checked.out);
}

#[test]
fn units_that_die_and_begin_again_are_accounted_for() {
    let document = simulate("restarts-16.toml", "packet");
    let builder = &document["builder"];
    for (key, expected) in [
        ("dead", 2),
        ("back", 2),
        ("dead_readouts", 1),
        ("readouts_back", 1),
        ("manager_restarts", 1),
    ] {
        assert_eq!(builder[key], expected, "{key} in {builder}");
    }
    assert_eq!(builder["violations"], serde_json::json!([]), "{document}");
    assert_eq!(document["fragments"]["conserved"], true, "{document}");
    // Nothing comes while there is no event manager, for 50 ms.
    let gap = builder["longest_gap_s"].as_f64().unwrap();
    assert!((0.045..0.06).contains(&gap), "{gap}");
    // Without a readout unit are the events of 200 ms at 10 kHz.
    let incomplete = document["losses"]["incomplete"].as_u64().unwrap();
    assert!((1_700..2_400).contains(&incomplete), "{incomplete}");
}

/// Keys that belong to other settings than those beside them.
const OTHERS: &str = "format = 1\n[topology]\nkind = \"crossbar\"\nports = 4\nradix = 2\n[size]\n\
                      file = \"sizes\"\n[arrival]\nlaw = \"bernoulli\"\nrate = \"1 kHz\"\ntrain = 9\n\
                      [traffic]\nto = [0, 1, 2, 3]\n[switch]\nmode = \"cut-through\"\nstop = \"1 KiB\"\n\
                      matching = \"pim\"\niterations = 2\nspeedup = 2\n";

/// Keys for which something else is done, in pattern and builder alike, and whether they have an effect.
#[test]
fn keys_that_others_stand_in_for_are_refused() {
    let bench = Workbench::new();
    let check = |tables: &str, status: i32| {
        let network = "format = 1\n[topology]\nkind = \"four-layer\"\nradix = 4\n";
        bench.write("idle.toml", format!("{network}{tables}"));
        bench.run(&["check", "idle.toml"]).ended_with(status).err
    };
    let voq =
        "[switch]\nmode = \"cut-through\"\nqueues = \"virtual-output\"\narbiter = \"oldest\"\n";
    let routes = "[switch]\nroutes = \"random\"\n";
    let shift = |order: &str| format!("[traffic]\npattern = \"barrel-shifter\"\n{order}");
    let built = |keys: &str| format!("[builder]\n{keys}");
    let barrel = "shaping = \"barrel-shifter\"\n";
    let linear = "shaping = \"linear-shift\"\n";
    let plain = "order = \"plain\"\n";
    let gap = "[link]\nsource_gap = \"1 us\"\n";
    let cases = [
        (
            "switch.arbiter",
            format!("{voq}matching = \"islip\"\n"),
            false,
        ),
        (
            "switch.arbiter",
            format!("{voq}matching = \"arbiter\"\n"),
            true,
        ),
        ("switch.arbiter", voq.to_owned(), true),
        ("switch.routes", format!("{routes}{}", shift("")), false),
        ("switch.routes", format!("{routes}{}", shift(plain)), true),
        ("switch.routes", format!("{routes}{}", built(barrel)), false),
        ("switch.routes", format!("{routes}{}", built(linear)), false),
        (
            "switch.routes",
            format!("{routes}{}{plain}", built(barrel)),
            true,
        ),
        ("switch.routes", format!("{routes}{}", built("")), true),
        ("link.source_gap", format!("{gap}{}", built("")), false),
        ("link.source_gap", gap.to_owned(), true),
    ];
    for (key, tables, has_effect) in cases {
        let said = check(&tables, i32::from(!has_effect));
        assert_eq!(
            said.contains("error[C0137]"),
            !has_effect,
            "{tables}\n{said}"
        );
        assert_eq!(said.contains(key), !has_effect, "{tables}\n{said}");
    }
}

#[test]
fn keys_without_effect_are_refused_all_at_once() {
    let bench = Workbench::new();
    bench.write(
        "idle.toml",
        "format = 1\n[topology]\nkind = \"crossbar\"\nports = 4\n[size]\nrms = \"1 KiB\"\n\
         per_event = true\n[switch]\nbuffer = \"4 KiB\"\nroutes = \"in-turn\"\n[builder]\n\
         block = \"4 KiB\"\nevent_bytes = \"1 KiB\"\n\
         dead_at = \"1 ms\"\ndead_readouts_for = \"9 ms\"\ndead_manager_for = \"9 ms\"\n\
         slot_ports = 2\n",
    );
    let refused = bench.run(&["check", "idle.toml"]).ended_with(1);
    for key in [
        "size.rms",
        "size.per_event",
        "switch.buffer",
        "switch.routes",
        "builder.block",
        "builder.event_bytes",
        "builder.dead_at",
        "builder.dead_readouts_for",
        "builder.dead_manager_for",
        "builder.slot_ports",
    ] {
        assert!(refused.err.contains(key), "{key} in\n{}", refused.err);
    }
    let found = refused.err.matches("error[C0137]").count();
    assert_eq!(found, 10, "{}", refused.err);
    bench.write("idle.toml", OTHERS);
    let refused = bench.run(&["check", "idle.toml"]).ended_with(1);
    let words: Vec<&str> = refused
        .err
        .split_whitespace()
        .filter(|w| *w != "│")
        .collect();
    let said = words.join(" ");
    let others = [
        ("topology.radix", "`kind = \"delta\"` or \"four-layer\""),
        ("traffic.to", "`pattern = \"permutation\"`"),
        ("arrival.rate", "`law = \"fixed\"` or \"poisson\""),
        ("arrival.train", "`law = \"bunches\"`"),
        ("size.file", "`law = \"list\"`"),
        ("switch.stop", "`flow_control = \"stop-go\"`"),
        (
            "switch.matching",
            "`queues = \"virtual-output\"` or \"combined\"",
        ),
        (
            "switch.iterations",
            "`queues = \"virtual-output\"` or \"combined\"",
        ),
        ("switch.speedup", "`queues = \"combined\"`"),
    ];
    for (key, needed) in others {
        assert!(
            said.contains(key) && said.contains(needed),
            "{key} in\n{}",
            refused.err
        );
    }
    let found = refused.err.matches("error[C0137]").count();
    assert_eq!(found, others.len(), "{}", refused.err);
    assert!(!said.contains("C0002"), "{}", refused.err);
    bench.write("idle.toml", OTHERS.replace("\"bernoulli\"", "\"bernouli\""));
    let refused = bench.run(&["check", "idle.toml"]).ended_with(1);
    assert!(!refused.err.contains("arrival.rate"), "{}", refused.err);
}

#[test]
fn a_largest_event_that_fragments_exceed_is_refused() {
    let bench = Workbench::new();
    bench.write(
        "large.toml",
        "format = 1\n[topology]\nkind = \"crossbar\"\nports = 4\n[builder]\n\
         credit_bytes = \"64 KiB\"\nevent_bytes = \"4 KiB\"\n",
    );
    let refused = bench.run(&["sim", "run", "large.toml"]).ended_with(1);
    assert!(refused.err.contains("8 KiB or more"), "{}", refused.err);
}

/// Poisson arrivals at a quarter and at all of what a link carries, of which a delta network passes about
/// half.
#[test]
fn sources_that_fall_behind_are_told_of() {
    let bench = Workbench::new();
    for (rate, is_overloaded) in [("30 kHz", false), ("120 kHz", true)] {
        bench.write(
            "offered.toml",
            format!(
                "format = 1\nduration = \"20 ms\"\n[topology]\nkind = \"delta\"\nradix = 4\nstages = 2\n\
                 [size]\nmean = \"1 KiB\"\n[arrival]\nlaw = \"poisson\"\nrate = \"{rate}\"\n"
            ),
        );
        for level in ["packet", "flit"] {
            let run = ["sim", "run", "offered.toml", "--level", level];
            let document = bench.run(&[&run[..], &["--json"]].concat());
            let document = document.ended_with(0).document();
            assert_eq!(document["overloaded"], is_overloaded, "{document:#}");
            let behind = document["sources_behind_s"].as_f64().expect("a number");
            assert_eq!(behind > 2e-3, is_overloaded, "{rate}, {level}: {behind} s");
            let text = bench.run(&run).ended_with(0).out;
            assert_eq!(text.contains("  overloaded  "), is_overloaded, "{text}");
        }
    }
}
