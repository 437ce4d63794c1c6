//! Scenarios as they are read, and what is said of bad ones.

use livetime_fabric::network::FlowControl;
use livetime_fabric::scenario::Switching;

use super::*;

#[test]
fn problems_of_a_scenario_are_found_all_at_once() {
    let text = "format = 1\nlevl = \"flit\"\n[topology]\nkind = \"delta\"\nradix = 4\n\
                [size]\nlaw = \"fixd\"\n[link]\nrate = \"2 Gbit\"\nhop_dely = \"1 us\"\n";
    let read = read_scenario(
        "s.toml",
        text.to_owned(),
        Path::new("."),
        ScenarioOverrides::default(),
    );
    let problems = read.err().expect("it is wrong");
    for part in ["`level`", "stages", "\"fixed\"", "2 Gbit", "`hop_delay`"] {
        assert!(problems.contains(part), "{part} in\n{problems}");
    }
}

/// What is wrong with a text, in words.
fn problems_of(text: &str) -> String {
    let overrides = ScenarioOverrides::default();
    let read = read_scenario("s.toml", text.to_owned(), Path::new("."), overrides);
    read.err().expect("it is wrong")
}

#[test]
fn what_cannot_be_read_hides_nothing_else() {
    let text = "format = 1\n[topology]\nkind = \"crossbar\"\nports = 4\n\
                [switch]\nmode = \"cut-through\"\nbuffer = \"1 B\"\nlanes = 99\n\
                iterations = 77\n[traffic]\npattern = \"permutation\"\nto = [9, 1, 2]\n\
                [size]\nlaw = \"fixed\"\nmean = \"17 MiB\"\n\
                [arrival]\nlaw = \"bernoulli\"\nprobability = 3.0\n";
    let problems = problems_of(text);
    let all = [
        "`size` is",
        "`switch.buffer`",
        "`switch.lanes`",
        "`switch.iterations`",
        "`traffic` is",
        "`arrival.probability`",
        "6 problems",
    ];
    for part in all {
        assert!(problems.contains(part), "{part} in\n{problems}");
    }
    // What follows from a value that could not be read is not told.
    for (wrong, part) in [
        ("ports = 4", "ports = \"4\""),
        ("17 MiB", "17 MB/s"),
        ("mode", "moda"),
    ] {
        let problems = problems_of(&text.replace(wrong, part));
        let is_told = problems.contains("`switch.buffer` is 1 bytes");
        assert!(!is_told, "{part}: {problems}");
    }
}

#[test]
fn a_range_is_told_alike_on_both_sides_of_it() {
    let text = |of: &str, value: &str| {
        format!(
            "format = 1\n[topology]\nkind = \"crossbar\"\nports = {}\n[arrival]\n\
             law = \"bernoulli\"\nprobability = {}\n",
            if of == "ports" { value } else { "4" },
            if of == "probability" { value } else { "0.5" },
        )
    };
    for (key, values, range) in [
        ("probability", ["0.0", "3.0"], "from 0.000000001 to 1"),
        ("ports", ["0", "-3"], "from 1 to 1048576"),
    ] {
        for value in values {
            let problems = problems_of(&text(key, value));
            assert!(problems.contains(range), "{key} of {value}: {problems}");
        }
    }
}

#[test]
fn a_scenario_says_what_it_says() {
    let text = "format = 1\nname = \"n\"\nseed = 7\npacket_times = 10\n[topology]\n\
                kind = \"crossbar\"\nports = 4\n[size]\nlaw = \"exponential\"\n\
                mean = \"1 KiB\"\n[link]\nrate = \"1 Gb/s\"\n[switch]\n\
                mode = \"cut-through\"\nbuffer = \"64 KiB\"\nflow_control = \"none\"\n";
    let loaded = read_scenario(
        "s.toml",
        text.to_owned(),
        Path::new("."),
        ScenarioOverrides::default(),
    )
    .ok();
    let loaded = loaded.expect("it is good");
    assert_eq!(loaded.name, "n");
    let scenario = loaded.scenario;
    assert_eq!(scenario.load.seed, 7);
    assert_eq!(scenario.load.duration, DurationPs(10 * 8_192_000));
    assert_eq!(scenario.load.sizes, SizeLaw::Exponential { mean: 1024.0 });
    let Switching::Buffered(buffering) = scenario.switching else {
        panic!("no buffers");
    };
    assert_eq!(buffering.flow, FlowControl::None);
}
