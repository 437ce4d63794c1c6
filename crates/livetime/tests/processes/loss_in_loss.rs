//! A process that dies while something else is amiss: when it is about to hear of the loss of another,
//! at the same place of the settlement each time, where deaths at random hardly ever are; or with events
//! that have waited for a filter unit for longer than anybody remembers.

use std::collections::BTreeSet;

use crate::process_run::{Run, keeping_all, patient, turn};

/// The example in which every event is kept, with these lines of its builder table, a unit that dies
/// in the middle of the run, and others that die of its loss.
fn run(lines: &str, faults: &[&str]) -> Run {
    let edit = |config| {
        keeping_all(patient(config)).replace("[builder]\n", &format!("[builder]\n{lines}"))
    };
    let mut arguments = vec!["--triggers", "6000", "--processes"];
    arguments.extend(faults.iter().flat_map(|fault| ["--fault", *fault]));
    Run::of(edit, &arguments)
}

/// Every accepted trigger is in the file once, but for those that a writer took with it.
fn assert_all_but_written(run: &Run, dead: &[&str], what: &str) {
    let roles = &run.summary["roles"];
    let errors = run.errors();
    assert!(run.output.status.success(), "{what}: {errors}\n{roles:#}");
    run.assert_accounted();
    run.assert_only_writer_lost();
    assert_eq!(run.count("events_incomplete"), 0, "{what}");
    let lost = run.losses().map(|(_, count)| count).sum::<u64>();
    let stored = run.count("events_stored");
    assert_eq!(stored + lost, run.count("l2_accepted"), "{what}");
    assert_eq!(run.stored().len() as u64, stored, "{what}");
    for role in dead {
        let said = format!("process of {role} is gone (signal: 9 (SIGKILL))");
        assert!(run.errors().contains(&said), "{what}: {}", run.errors());
    }
}

/// The first of them that the run cannot do without ends it, and says so; the others are named, too.
#[test]
fn all_that_die_with_the_one_that_ends_the_run_are_named() {
    let _turn = turn();
    let edit =
        |config: String| patient(config).replace("units = 1", "units = 2\non_loss = \"continue\"");
    let dead = ["fu0", "fu1", "evm", "bu0"];
    let faults = dead.map(|role| format!("kill:{role}@1500triggers"));
    let faults = faults.iter().flat_map(|fault| ["--fault", fault.as_str()]);
    let arguments = ["--triggers", "6000", "--processes"].into_iter();
    let run = Run::of(edit, &arguments.chain(faults).collect::<Vec<_>>());
    assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
    run.assert_accounted();
    for role in dead {
        let said = format!("the process of {role} ");
        assert!(run.errors().contains(&said), "{role}: {}", run.errors());
    }
}

#[test]
fn an_event_manager_may_die_of_the_loss_of_a_builder_unit() {
    let _turn = turn();
    for lines in [
        "",
        "on_loss = \"continue\"\n",
        "mode = \"push\"\n",
        "transport = \"tcp\"\n",
    ] {
        for nth in 1..=3 {
            let second = format!("kill:evm@loss-of:bu0#{nth}");
            let run = run(lines, &["kill:bu0@1500triggers", &second]);
            let what = format!("{lines}{second}");
            // Another one is not always told so many things.
            let dead = if nth < 3 {
                &["bu0", "evm"][..]
            } else {
                &["bu0"]
            };
            assert_all_but_written(&run, dead, &what);
            assert_eq!(run.causes(), BTreeSet::new(), "{what}");
        }
    }
}

#[test]
fn others_may_die_of_it_too() {
    let _turn = turn();
    for lines in ["", "mode = \"push\"\n", "transport = \"tcp\"\n"] {
        for (first, others) in [
            ("bu0", &["fu0@loss-of:bu0"][..]),
            ("bu0", &["wr0@loss-of:bu0"]),
            ("bu0", &["bu1@loss-of:evm", "evm@loss-of:bu0#2"]),
            ("bu0", &["wr0@loss-of:bu0", "evm@loss-of:bu0#2"]),
            ("fu0", &["bu0@loss-of:fu0", "evm@loss-of:bu0"]),
            ("fu0", &["bu0@loss-of:fu0", "bu1@loss-of:fu0"]),
            ("wr0", &["bu0@loss-of:wr0", "evm@loss-of:bu0"]),
            ("evm", &["bu0@loss-of:evm", "bu1@loss-of:evm"]),
            ("evm", &["bu1@loss-of:evm", "fu0@loss-of:bu1"]),
        ] {
            let mut faults = vec![format!("kill:{first}@1500triggers")];
            faults.extend(others.iter().map(|other| format!("kill:{other}")));
            let faults: Vec<&str> = faults.iter().map(String::as_str).collect();
            let mut dead = vec![first];
            dead.extend(others.iter().map(|other| &other[..3]));
            let what = format!("{lines}{faults:?}");
            println!("{what}");
            assert_all_but_written(&run(lines, &faults), &dead, &what);
        }
    }
}

/// A run in which somebody was lost ends when nobody does anything any more.
#[test]
fn signs_of_life_keep_no_run_from_its_end() {
    let _turn = turn();
    for lines in ["", "transport = \"tcp\"\n"] {
        let often = format!("{lines}heartbeat = \"1 ms\"\n");
        let run = run(&often, &["kill:bu0@1500triggers"]);
        assert_all_but_written(&run, &["bu0"], &often);
    }
}

/// Another unit has closed so many events since that it does not know what became of these.
#[test]
fn events_of_a_lost_builder_unit_are_built_however_old_they_are() {
    let _turn = turn();
    for lines in ["", "mode = \"push\"\n", "transport = \"tcp\"\n"] {
        let edit = |config| {
            keeping_all(patient(config))
                .replace(
                    "[builder]\n",
                    &format!("[builder]\nhistory = 256\ntrigger_window = 256\n{lines}"),
                )
                .replace("[filter]\nunits = 1\n", "[filter]\nunits = 2\n")
        };
        let faults = ["stop:fu0@1000triggers+2s", "kill:bu0@2800triggers"];
        let [stop, kill] = faults.map(|fault| ["--fault", fault]);
        let triggers = ["--triggers", "4000", "--processes"];
        let run = Run::of(edit, &[&triggers[..], &stop, &kill].concat());
        assert_all_but_written(&run, &["bu0"], lines);
        assert_eq!(run.causes(), BTreeSet::new(), "{lines}");
    }
}

/// Of a unit whose links are down no fragment comes, and none of the events is released while the filter
/// unit stands still: it gives up waiting for them before their builder unit dies, and must not take them
/// for handed on.
#[test]
fn events_are_built_again_where_a_readout_unit_has_given_up_waiting_for_them() {
    let _turn = turn();
    for lines in ["", "mode = \"push\"\n", "transport = \"tcp\"\n"] {
        let edit = |config| {
            let asked = format!("[builder]\nprobe = \"10 ms\"\nretry = \"10 ms\"\n{lines}");
            keeping_all(patient(config))
                .replace("[builder]\n", &asked)
                .replace("\ntimeout = \"20 s\"", "\ntimeout = \"200 ms\"")
        };
        let faults = [
            "link-down:ru1@0s+600s",
            "stop:fu0@100triggers+4s",
            "kill:bu0@2s",
        ];
        let faults = faults.iter().flat_map(|fault| ["--fault", *fault]);
        let arguments = ["--triggers", "400", "--processes"].into_iter();
        let run = Run::of(edit, &arguments.chain(faults).collect::<Vec<_>>());
        assert!(run.output.status.success(), "{lines}: {}", run.errors());
        run.assert_accounted();
        let said = "process of bu0 is gone (signal: 9 (SIGKILL))";
        assert!(run.errors().contains(said), "{lines}: {}", run.errors());
        let forgotten = run.summary["roles"]["ru1"]["requests_forgotten"].as_u64();
        assert!(forgotten > Some(0), "{lines}: {}", run.summary["roles"]);
        let accepted = run.count("l2_accepted");
        assert!(accepted > 0);
        assert_eq!(run.count("events_stored"), accepted, "{lines}");
        assert_eq!(run.count("events_incomplete"), accepted, "{lines}");
        // A busy machine may let the units' own timeout pass.
        let allowed = ["link_down", "fragment_late"].map(str::to_owned);
        assert!(run.causes().is_subset(&allowed.into()), "{lines}");
    }
}
