//! Graph files whose links have rates and delays of their own, from outside.

use crate::workbench::{Workbench, project, value};

const SCENARIO: &str =
    "format = 1\npacket_times = 200\n[topology]\nkind = \"graph\"\nfile = \"halls.graph\"\n";

/// Problems on one line, however they were broken.
fn joined(problems: &str) -> String {
    let words = problems.split_whitespace().filter(|word| *word != "│");
    words.collect::<Vec<&str>>().join(" ")
}

#[test]
fn the_long_link_of_the_example_carries_its_rate_with_the_buffer_of_the_example() {
    let bench = Workbench::new();
    let path = project().join("examples/scenarios/two-halls.toml");
    let path = path.to_str().expect("the path is text");
    let arguments = ["sim", "run", path, "--json", "--links", "links.csv"];
    let document = bench.run(&arguments).ended_with(0).document();
    assert_eq!(document["converged"], true, "{document:#}");
    assert_eq!(value(&document, "packets.conserved"), true);
    assert_eq!(document["notes"].as_array().map(Vec::len), Some(0));
    // 100 Gb/s of 8 x 25 Gb/s, on average 12.5 Gb/s into each of the links of 25 Gb/s behind it.
    let carried = document["efficiency_link"].as_f64().expect("converged");
    assert!((carried - 0.5).abs() < 0.005, "{carried}");
    let table = bench.read("links.csv");
    let link = table.lines().find(|line| line.contains(",4,"));
    let columns: Vec<&str> = link.expect("one is 4 times as fast").split(',').collect();
    assert_eq!(columns[1], "element 0 port 0");
    assert_eq!(columns[7..], ["100000000000", "5000"]);
    let share: f64 = columns[4].parse().expect("a share");
    assert!(share > 0.99, "{table}");
}

#[test]
fn a_buffer_that_is_too_small_for_a_cable_is_noted_beside_what_it_carries() {
    let bench = Workbench::new();
    let graph = "switch a\nswitch b\nsource s a\ndestination d b\nlink a b delay=100us\n";
    bench.write("halls.graph", graph);
    // 200 us at 1 Gb/s are 25000 B, and a packet: a third of them is there.
    let switch = "[switch]\nmode = \"cut-through\"\nbuffer = \"9 kB\"\n[size]\nmean = \"1 kB\"\n";
    let text = SCENARIO.replace("200", "20000");
    bench.write("halls.toml", format!("{text}{switch}"));
    let checked = bench.run(&["check", "halls.toml"]).ended_with(0).out;
    assert!(checked.contains("halls.graph:5"), "{checked}");
    assert!(checked.contains("carries 34.6 % of its rate"), "{checked}");
    let document = bench.run(&["sim", "run", "halls.toml", "--json"]);
    let document = document.ended_with(0).document();
    let carried = document["efficiency_link"].as_f64().expect("converged");
    assert!((carried - 9.0 / 26.0).abs() < 0.003, "{carried}");
}

#[test]
fn what_links_of_their_own_cannot_do_is_refused_by_file_and_line() {
    let bench = Workbench::new();
    let graph = "switch a\nnode n a rate=2Gb/s\nnode m a delay=1us\n";
    bench.write("halls.graph", graph);
    bench.write("halls.toml", SCENARIO);
    let run = bench.run(&["sim", "run", "halls.toml"]).ended_with(1);
    for part in [
        "`link.rate` is less than the 2 Gb/s of halls.graph:2 (source `n`)",
        "up to 1 Gb/s",
        "set `[link] rate` to the rate of the fastest node",
    ] {
        assert!(joined(&run.err).contains(part), "{part} in\n{}", run.err);
    }
    let link = format!("{SCENARIO}[link]\nrate = \"2 Gb/s\"\n");
    bench.write("halls.toml", &link);
    bench.run(&["check", "halls.toml"]).ended_with(0);
    // 2 ms of flits of 32 ns, there and back.
    let far = graph
        .replace("2Gb/s", "2Gb/s delay=2ms")
        .replace("1us", "2ms");
    bench.write("halls.graph", far);
    let flits = ["sim", "run", "halls.toml", "--level", "flit"];
    let run = bench.run(&flits).ended_with(1);
    for part in [
        "F0206",
        "125000 flits under way and back on halls.graph:2 (source `n`) with",
        "and 1 more like it",
        "use `level = \"packet\"`",
    ] {
        assert!(joined(&run.err).contains(part), "{part} in\n{}", run.err);
    }
    bench.write("halls.graph", graph);
    bench.run(&flits).ended_with(0);
    let shared = "[switch]\nmode = \"store-and-forward\"\nbuffer_place = \"shared\"\n";
    bench.write("halls.toml", format!("{link}{shared}"));
    let run = bench.run(&["check", "halls.toml"]).ended_with(1);
    for part in ["F0204", "halls.graph:3 (source `m`)", "a delay of 1.00 us"] {
        assert!(joined(&run.err).contains(part), "{part} in\n{}", run.err);
    }
}

#[test]
fn mistakes_of_a_graph_are_all_named_by_file_and_line() {
    let bench = Workbench::new();
    let graph =
        "switch a\nnode n a rate=fast\nlink a a 2 rate=4Gb/s dealy=1us\nnode m b delay=2s\n";
    bench.write("halls.graph", graph);
    bench.write("halls.toml", SCENARIO);
    let run = bench.run(&["check", "halls.toml"]).ended_with(1);
    for part in [
        "halls.graph:2: `rate=fast`: no number found",
        "halls.graph:3: a link from switch `a` to itself; allowed are two switches",
        "halls.graph:3: a speed of `2` and a `rate` for one link",
        "halls.graph:3: `dealy` is no key of a link",
        "halls.graph:4: no switch `b` above this line",
        "halls.graph:4: `delay=2s`: value is out of range",
    ] {
        assert!(joined(&run.err).contains(part), "{part} in\n{}", run.err);
    }
}
