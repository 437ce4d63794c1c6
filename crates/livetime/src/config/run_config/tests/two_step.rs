//! The first step of two-step building, and what selects on it.

use livetime_trigger::FirstStepConfig;

use super::*;

/// The least configuration with three readout units.
fn three_units(builder: &str, filter: &str) -> String {
    let unit = |n: u32| format!("[[link]]\nto = \"ru{n}\"\nsource_id = {}\n", 0x52_0000 + n);
    let more = unit(1) + &unit(2);
    format!("{LEAST}{more}[builder]\n{builder}\n[filter]\n{filter}\n")
}

#[test]
fn the_first_step_and_its_selection_are_read() {
    let selection = "[filter.first_step]\nl2 = [3, 127]\nleptons = 2\npt_min = \"1500 MeV\"\n\
                     keep_one_in = 7";
    let chain = good(&three_units("first_step = [\"ru2\", \"ru0\"]", selection)).chain;
    assert_eq!(chain.builder.first_step, [2, 0]);
    let expected = FirstStepConfig {
        l2: vec![3, 127],
        leptons: 2,
        pt_min_gev: 1.5,
        keep_one_in: 7,
    };
    assert_eq!(chain.first_step, expected);
    let chain = good(&three_units("first_step = []", "")).chain;
    assert!(chain.builder.first_step.is_empty() && chain.first_step.is_empty());
}

#[test]
fn what_can_be_no_first_step_is_named() {
    let with = |builder: &str, filter: &str| problems(&three_units(builder, filter));
    let selection = "[filter.first_step]\nl2 = [1]";
    for (builder, filter, expected) in [
        (
            "first_step = [\"ru0\", \"ru3\"]",
            "",
            each([("B0115", "builder.first_step[1]")]),
        ),
        (
            "first_step = [\"ru0\", \"ru0\"]",
            "",
            each([("B0115", "builder.first_step[1]")]),
        ),
        (
            "first_step = [\"bu0\"]",
            selection,
            each([("C0005", "builder.first_step")]),
        ),
        (
            "first_step = [\"ru0\", \"ru1\", \"ru2\"]",
            "",
            each([("B0115", "builder.first_step")]),
        ),
        (
            "first_step = [\"ru0\"]\nmode = \"push\"",
            "",
            each([("B0115", "builder.first_step")]),
        ),
        ("", selection, each([("B0115", "filter.first_step")])),
        (
            "first_step = [\"ru0\"]",
            "[filter.first_step]\nleptons = 1\npt_min = \"-1 GeV\"",
            each([("C0006", "filter.first_step.pt_min")]),
        ),
    ] {
        assert_eq!(with(builder, filter), expected, "{builder} {filter}");
    }
    let reading = read_plain(&three_units("first_step = [\"ru0\", \"ru3\"]", ""));
    let problem = &reading.problems[0];
    assert_eq!(
        (problem.found.as_str(), problem.allowed.as_str()),
        ("ru3", "ru0 to ru2, each once")
    );
}
