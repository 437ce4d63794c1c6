//! Data links over sockets, with the front-end and the readout unit of each in processes of their own:
//! the events of emulated links, and what becomes of a run whoever dies or stands still.

use std::collections::BTreeSet;

use crate::process_run::{Run, patient, turn};

const TRIGGERS: [&str; 2] = ["--triggers", "4000"];
const KINDS: [&str; 2] = ["tcp", "udp"];

/// The example with its data links over sockets.
fn over(kind: &str) -> impl Fn(String) -> String + use<> {
    let links = format!("count = 4\nkind = \"{kind}\"\n");
    move |config| {
        let changed = patient(config.clone()).replace("count = 4\n", &links);
        assert_ne!(changed, patient(config), "the example has data links");
        changed
    }
}

/// A run over such links in processes, with a fault if there is one.
fn faulty(kind: &str, fault: &str) -> Run {
    let fault: &[&str] = match fault {
        "" => &[],
        fault => &["--fault", fault],
    };
    let arguments = [&TRIGGERS[..], &["--processes"], fault].concat();
    Run::of(over(kind), &arguments)
}

fn assert_same(run: &Run, whole: &Run, what: &str) {
    assert!(run.output.status.success(), "{what}: {}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new(), "{what}");
    assert_eq!(run.digest(), whole.digest(), "{what}");
    assert_eq!(run.summary["counts"], whole.summary["counts"], "{what}");
    assert_eq!(run.differing(whole), BTreeSet::new(), "{what}");
}

fn names(causes: &[&str]) -> BTreeSet<String> {
    causes.iter().map(|cause| (*cause).to_owned()).collect()
}

#[test]
fn links_over_sockets_carry_what_emulated_ones_do() {
    let _turn = turn();
    let whole = Run::of(patient, &TRIGGERS);
    for kind in KINDS {
        let threads = Run::of(over(kind), &TRIGGERS);
        let processes = faulty(kind, "");
        for run in [&threads, &processes] {
            assert_same(run, &whole, kind);
            for unit in ["ru0", "ru1"] {
                let counters = &run.summary["roles"][unit];
                let frames = counters["link_frames"].as_u64();
                assert!(frames >= Some(4 * 4000), "{kind} {unit}: {counters}");
                assert_eq!(counters["link_frames_missing"], 0, "{kind} {unit}");
                assert_eq!(counters["link_kernel_drops"], 0, "{kind} {unit}");
            }
        }
    }
}

#[test]
fn either_end_may_stand_still() {
    let _turn = turn();
    let whole = Run::of(patient, &TRIGGERS);
    for kind in KINDS {
        for role in ["src0", "ru0"] {
            let fault = format!("stop:{role}@1000triggers+1s");
            assert_same(&faulty(kind, &fault), &whole, &format!("{kind} {fault}"));
        }
    }
}

#[test]
fn without_an_end_the_run_ends_and_names_it() {
    let _turn = turn();
    let whole = Run::of(patient, &TRIGGERS);
    for kind in KINDS {
        for (role, cause) in [
            ("src0", "source_lost"),
            ("ru0", "readout_lost"),
            ("trg0", "decision_lost"),
        ] {
            let what = format!("{kind} {role}");
            let run = faulty(kind, &format!("kill:{role}@1500triggers"));
            assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
            let said = format!("process of {role} is gone (signal: 9 (SIGKILL))");
            assert!(run.errors().contains(&said), "{what}: {}", run.errors());
            run.assert_accounted();
            let of_force = [
                // Its streams end before anybody is told.
                "link_down",
                "decision_aborted",
                "decision_lost",
                "link_aborted",
                "link_truncated",
                "fragment_aborted",
                "event_aborted",
                "builder_lost",
                "filter_aborted",
                "filter_lost",
            ];
            let allowed = names(&[&of_force[..], &[cause]].concat());
            assert!(
                run.causes().is_subset(&allowed),
                "{what} {:?}",
                run.causes()
            );
            assert!(run.stored().is_subset(&whole.stored()), "{what}");
        }
    }
}

#[test]
fn a_run_may_go_on_without_a_readout_unit_and_its_links_stay_down() {
    let _turn = turn();
    for kind in KINDS {
        let go_on = |config| {
            let key = "[builder]\non_readout_loss = \"continue\"\n";
            over(kind)(config).replace("[builder]\n", key)
        };
        let fault = ["--processes", "--fault", "kill:ru1@1500triggers"];
        let run = Run::of(go_on, &[&TRIGGERS[..], &fault].concat());
        assert!(run.output.status.success(), "{}", run.errors());
        let said = "process of ru1 is gone (signal: 9 (SIGKILL))";
        assert!(run.errors().contains(said), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.count("triggers"), 4000);
        let (built, incomplete) = (run.count("events_built"), run.count("events_incomplete"));
        assert!(built > 0 && incomplete > 0, "{built} {incomplete}");
        assert_eq!(built + incomplete, run.count("l2_accepted"), "none is lost");
        let causes = run.causes();
        assert!(causes.contains("link_down"), "{causes:?}");
        let allowed = names(&[
            "link_down",
            "link_truncated",
            "readout_lost",
            "link_aborted",
        ]);
        assert!(causes.is_subset(&allowed), "{causes:?}");
    }
}

#[test]
fn links_that_are_down_lose_fragments_under_the_name_of_their_kind() {
    let _turn = turn();
    for (kind, cause) in [("tcp", "link_down"), ("udp", "datagram_lost")] {
        let quick = |config| {
            // A busy machine may well need a tenth of that for the fragments of the other unit.
            let keys = "\ntimeout = \"1 s\"\nretry = \"10 ms\"";
            over(kind)(config).replace("\ntimeout = \"20 s\"", keys)
        };
        let fault = ["--processes", "--fault", "link-down:ru1@0s+1h"];
        let run = Run::of(quick, &[&["--triggers", "400"][..], &fault].concat());
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        // All four links of the unit lose every fragment, and the other unit's none.
        let losses: Vec<(&str, u64)> = run.losses().collect();
        assert_eq!(losses, [(cause, 4 * 400)]);
        assert_eq!(run.count("events_built"), 0);
        assert_eq!(run.count("events_incomplete"), run.count("l2_accepted"));
    }
}
