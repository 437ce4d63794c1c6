//! Two-step building with processes: the events of one step, whoever dies.

use std::collections::BTreeSet;

use crate::process_run::{Run, patient, turn};

const TRIGGERS: &str = "10000";

/// A menu that knows from the Level-2 bits which events it rejects.
const MENU: &str = "[filter]
units = 2
name = \"menu\"
streams = [\"muons\", \"sample\"]

[[filter.path]]
name = \"MUONS\"
cut = \"muons\"
l2 = [8, 16]
streams = [\"muons\"]

[[filter.path]]
name = \"SAMPLE\"
cut = \"all\"
prescale = 30
streams = [\"sample\"]

";

fn one_step(config: String) -> String {
    let config = patient(config);
    let (before, rest) = config.split_once("[filter]").expect("it has one");
    let store = rest.find("[store]").expect("it has one");
    format!("{before}{MENU}{}", &rest[store..])
}

fn two_steps(config: String) -> String {
    one_step(config).replace("[builder]\n", "[builder]\nfirst_step = [\"ru0\"]\n")
}

fn over_tcp(config: String) -> String {
    let config = two_steps(config).replace("[builder]\n", "[builder]\ntransport = \"tcp\"\n");
    config.replace("[filter]\n", "[filter]\ntransport = \"tcp\"\n")
}

fn with_readout_loss(config: String) -> String {
    two_steps(config).replace("[builder]\n", "[builder]\non_readout_loss = \"continue\"\n")
}

#[test]
fn two_steps_store_the_events_of_one_whoever_dies() {
    let _turn = turn();
    let whole = Run::of(one_step, &["--triggers", TRIGGERS]);
    for (edit, faults) in [
        (two_steps as fn(String) -> String, &[][..]),
        (over_tcp, &[]),
        (
            two_steps,
            &["kill:fu0@3000triggers", "kill:fu1@7000triggers"],
        ),
        (
            two_steps,
            &["kill:bu0@3000triggers", "kill:bu1@8000triggers"],
        ),
        (
            over_tcp,
            &["kill:fu1@3000triggers", "kill:bu0@6000triggers"],
        ),
    ] {
        let mut arguments = vec!["--triggers", TRIGGERS, "--processes"];
        arguments.extend(faults.iter().flat_map(|fault| ["--fault", fault]));
        let run = Run::of(edit, &arguments);
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.causes(), BTreeSet::new(), "{faults:?}");
        assert_eq!(
            (run.digest(), run.contents()),
            (whole.digest(), whole.contents()),
            "{faults:?}"
        );
        let steps = &run.summary["two_step"];
        assert!(steps["saving_factor"].as_f64() > Some(1.0), "{steps:#}");
        assert_eq!(steps["events_unjudged"], 0, "{faults:?}");
    }
}

/// Given that an event crashes its filter unit, then it is whole in the error stream, and what the
/// first step releases is released.
#[test]
fn an_event_that_its_filter_does_not_survive_is_stored_whole() {
    let _turn = turn();
    let whole = Run::of(one_step, &["--triggers", TRIGGERS]);
    let stored = whole.stored();
    let fatal = *stored.iter().next().expect("events are stored");
    let fault = format!("crash:{fatal}");
    let arguments = ["--triggers", TRIGGERS, "--processes", "--fault", &fault];
    let run = Run::of(two_steps, &arguments);
    run.assert_accounted();
    assert_eq!(run.stored(), stored);
    let failures = run.summary["filter_failures"].as_array();
    assert_eq!(failures.map(Vec::len), Some(1), "{}", run.errors());
    assert_eq!(run.count("events_incomplete"), 0);
}

/// Given that the readout unit of the first step dies, then no event is selected on what is not
/// there: all that is left of each is fetched.
#[test]
fn without_its_first_step_an_event_is_judged_by_the_rest() {
    let _turn = turn();
    let fault = "kill:ru0@4000triggers";
    let arguments = ["--triggers", TRIGGERS, "--processes", "--fault", fault];
    let run = Run::of(with_readout_loss, &arguments);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    let unjudged = run.summary["two_step"]["events_unjudged"].as_u64();
    assert!(unjudged > Some(0));
    assert!(run.count("events_incomplete") > 0);
}
