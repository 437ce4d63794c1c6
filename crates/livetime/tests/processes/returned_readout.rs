//! A dead readout unit whose place another takes: the events up to the boundary are whole or name its
//! sources, those behind it are whole, and every fragment is accounted for.

use std::collections::BTreeSet;
use std::fs::File;

use livetime_store::RunReader;

use crate::draining_run::killed_in_drain;
use crate::process_run::{Run, keeping_all, patient, turn};

const TRIGGERS: u64 = 24_000;
/// Links of each readout unit of the example.
const LINKS_USUAL: u64 = 4;
/// So many that their sockets do not fit into one packet of descriptors.
const LINKS_MANY: u64 = 18;
/// Causes under which fragments of a dead unit are lost.
const CAUSES: [&str; 4] = [
    "link_down",
    "link_truncated",
    "readout_lost",
    "link_aborted",
];

/// The example in which others take the places of readout units and every event is kept; with these
/// lines of its builder table.
fn restarting(lines: &str) -> impl Fn(String) -> String + use<'_> {
    move |config| {
        let table = format!("[builder]\non_readout_loss = \"restart\"\n{lines}");
        keeping_all(patient(config)).replace("[builder]\n", &table)
    }
}

fn with_faults(edit: impl Fn(String) -> String, faults: &[&str]) -> Run {
    let triggers = TRIGGERS.to_string();
    let mut arguments = vec!["--triggers", &triggers, "--processes"];
    arguments.extend(faults.iter().flat_map(|fault| ["--fault", *fault]));
    Run::of(edit, &arguments)
}

/// Trigger and missing sources of each event in the file.
fn events(run: &Run) -> Vec<(u64, BTreeSet<u32>)> {
    let file = File::open(run.folder.path().join("run/events.mcap")).expect("a run file");
    let mut reader = RunReader::open(file).expect("a whole file");
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().expect("a file that can be read") {
        let missing = event.missing().map(|source| source.0).collect();
        events.push((event.header().trigger.0, missing));
    }
    events
}

/// The trigger behind which a unit that took the place of another has joined; 0 for one that was there
/// all the time.
fn boundary(run: &Run, unit: &str) -> u64 {
    let counters = &run.summary["roles"][unit];
    counters["joined_after"].as_u64().unwrap_or(0)
}

/// How often another took the place of a unit.
fn restarts(run: &Run, unit: &str) -> usize {
    let said = format!("process of {unit} is gone (signal: 9 (SIGKILL))");
    let lines = run.errors();
    let told = lines.lines().filter(|line| line.contains(&said));
    told.filter(|line| line.contains("another took its place"))
        .count()
}

/// Everything that holds after these units were killed and are back.
fn assert_returned(run: &Run, whole: &Run, killed: &[&str]) {
    assert_returned_with(LINKS_USUAL, run, whole, killed);
}

/// The same where each unit has so many links.
fn assert_returned_with(links: u64, run: &Run, whole: &Run, killed: &[&str]) {
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.count("triggers"), TRIGGERS);
    assert_eq!(run.digest(), whole.digest());
    for unit in killed {
        assert!(restarts(run, unit) > 0, "{}", run.errors());
        assert!(boundary(run, unit) > 0, "{unit} has joined");
        assert!(boundary(run, unit) < TRIGGERS, "{unit} before the end");
    }
    let causes = run.causes();
    let allowed = BTreeSet::from(CAUSES.map(str::to_owned));
    assert!(causes.is_subset(&allowed), "{causes:?}");
    // No more is lost than what was of the units before they joined.
    let units = killed.iter().map(|unit| boundary(run, unit));
    let lost: u64 = run.losses().map(|(_, count)| count).sum();
    let most = links * units.sum::<u64>();
    assert!(lost > 0 && lost <= most, "{lost} of {most}");
    assert_events(run, whole, killed);
}

/// The events of the run are those of one without faults; what is missing in them is of the units up to
/// where they have joined.
fn assert_events(run: &Run, whole: &Run, killed: &[&str]) {
    assert_eq!(run.stored(), whole.stored());
    let source_of = |unit: &str, source: u32| match unit {
        "ru0" => source >> 16 == 0x51,
        _ => source >> 16 == 0x52,
    };
    let (mut partial, mut behind) = (BTreeSet::new(), 0);
    let last = killed.iter().map(|unit| boundary(run, unit)).max();
    for (trigger, missing) in events(run) {
        let mut sources = missing.iter();
        let is_explained = sources.all(|source| {
            let mut units = killed.iter();
            units.any(|unit| source_of(unit, *source) && trigger <= boundary(run, unit))
        });
        assert!(is_explained, "event {trigger} lacks {missing:x?}");
        if !missing.is_empty() {
            partial.insert(trigger);
        }
        behind += u64::from(Some(trigger) > last);
    }
    assert!(!partial.is_empty(), "some events lack its sources");
    assert_eq!(run.differing(whole), partial, "all others are the same");
    assert!(behind > 0, "some events came when all were back");
    let (closed, found) = (run.count("events_incomplete"), partial.len() as u64);
    // Each once, though one that a builder unit had closed before it died is closed again by another:
    // filter units know. Where one died as well, which of two kinds it was may be unknown.
    let are_known = !run.errors().contains("the process of fu");
    assert!(
        closed == found || !are_known,
        "{closed} closed without some, {found} in the file"
    );
}

fn whole() -> Run {
    let triggers = TRIGGERS.to_string();
    Run::of(restarting(""), &["--triggers", &triggers])
}

#[test]
fn another_takes_the_place_of_a_dead_readout_unit() {
    let _turn = turn();
    let whole = whole();
    for lines in [
        "",
        "mode = \"push\"\n",
        "transport = \"tcp\"\n",
        "transport = \"udp\"\nmode = \"push\"\n",
    ] {
        let run = with_faults(restarting(lines), &["kill:ru1@3000triggers"]);
        println!("{lines:?}: joined after {}", boundary(&run, "ru1"));
        assert_returned(&run, &whole, &["ru1"]);
    }
}

#[test]
fn a_readout_unit_may_die_again_and_so_may_the_other() {
    let _turn = turn();
    let whole = whole();
    for lines in ["", "transport = \"tcp\"\n"] {
        let faults = [
            "kill:ru1@2000triggers",
            "kill:ru0@7000triggers",
            "kill:ru1@12000triggers",
        ];
        let run = with_faults(restarting(lines), &faults);
        assert_returned(&run, &whole, &["ru0", "ru1"]);
        assert_eq!((restarts(&run, "ru0"), restarts(&run, "ru1")), (1, 2));
    }
    // Both at once, and one of them again while its place is being taken or soon after.
    let both = ["kill:ru0@3000triggers", "kill:ru1@3000triggers"];
    let run = with_faults(restarting(""), &both);
    assert_returned(&run, &whole, &["ru0", "ru1"]);
    let soon = [3000, 3500, 4000, 4500].map(|count| format!("kill:ru1@{count}triggers"));
    let run = with_faults(restarting(""), &soon.each_ref().map(String::as_str));
    assert_returned(&run, &whole, &["ru1"]);
    println!("killed soon: {} restarts", restarts(&run, "ru1"));
}

/// A builder unit that dies together with a readout unit, and one that dies when that one is back:
/// their events are built again from what there is.
#[test]
fn builder_and_filter_units_may_die_around_it() {
    let _turn = turn();
    let whole = whole();
    let builders = [
        "kill:bu1@3000triggers",
        "kill:ru1@3000triggers",
        "kill:bu0@12000triggers",
    ];
    let filter_too = [&builders[..], &["kill:fu0@3000triggers"]].concat();
    for (lines, events, faults) in [
        ("", "shm", &builders[..]),
        ("", "shm", &filter_too),
        ("", "tcp", &filter_too),
        ("transport = \"udp\"\n", "shm", &filter_too),
    ] {
        let filter = format!("[filter]\ntransport = \"{events}\"\n");
        let edit = |config| restarting(lines)(config).replace("[filter]\n", &filter);
        let run = with_faults(edit, faults);
        assert_returned(&run, &whole, &["ru1"]);
        let returned = run.errors().matches("another took its place").count();
        assert_eq!(returned, faults.len());
    }
}

/// A builder unit has whole events that a filter unit does not look at, and both die with a readout unit:
/// another builds these events without its fragments, which are lost and in no event.
#[test]
fn fragments_of_events_in_dead_hands_are_lost_with_their_readout_unit() {
    let _turn = turn();
    let whole = whole();
    let faults = [
        "stop:fu0@2200triggers+20s",
        "kill:bu1@3000triggers",
        "kill:ru1@loss-of:bu1",
        "kill:fu0@loss-of:bu1",
    ];
    for lines in ["", "mode = \"push\"\n", "transport = \"udp\"\n"] {
        let run = with_faults(restarting(lines), &faults);
        assert_returned(&run, &whole, &["ru1"]);
        let events = events(&run);
        let partial = events.iter().filter(|(_, missing)| !missing.is_empty());
        let partial: Vec<u64> = partial.map(|(_, missing)| missing.len() as u64).collect();
        assert_eq!(run.count("events_incomplete"), partial.len() as u64);
        let (all, links) = (events.len() as u64, 2 * LINKS_USUAL);
        let in_file = all * links - partial.iter().sum::<u64>();
        let in_built = run.count("fragments_in_built");
        assert_eq!(in_built + run.count("fragments_in_incomplete"), in_file);
        assert_eq!(in_built, (all - partial.len() as u64) * links);
    }
}

/// A run that is ending needs it no more, and says so: the only one is no "other".
#[test]
fn nobody_takes_its_place_in_a_run_that_drains() {
    let _turn = turn();
    let run = killed_in_drain(restarting(""), "ru1");
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    let said = "process of ru1 is gone (signal: 9 (SIGKILL)); the run is ending, and nobody takes its place";
    assert!(run.errors().contains(said), "{}", run.errors());
}

#[test]
fn its_data_links_over_sockets_begin_again() {
    let _turn = turn();
    let whole = whole();
    for (kind, lines, count) in [
        ("tcp", "", LINKS_USUAL),
        ("tcp", "transport = \"tcp\"\n", LINKS_MANY),
        ("udp", "", LINKS_USUAL),
    ] {
        let links = format!("count = {count}\nkind = \"{kind}\"\n");
        let edit = |config| restarting(lines)(config).replace("count = 4\n", &links);
        let run = with_faults(edit, &["kill:ru1@3000triggers"]);
        // More links are other events.
        let triggers = TRIGGERS.to_string();
        let of_many = || Run::of(edit, &["--triggers", &triggers]);
        let many = (count != LINKS_USUAL).then(of_many);
        let whole = many.as_ref().unwrap_or(&whole);
        assert_returned_with(count, &run, whole, &["ru1"]);
        let counters = &run.summary["roles"]["ru1"];
        assert_eq!(counters["link_frames_missing"], 0, "{kind}: {counters}");
    }
}

#[test]
fn in_two_steps_and_shaped_it_comes_back_as_well() {
    let _turn = turn();
    let whole = whole();
    for lines in [
        "first_step = [\"ru0\"]\n",
        "first_step = [\"ru1\"]\n",
        "transport = \"tcp\"\nshaping = \"barrel-shifter\"\nblock = \"16 KiB\"\n",
    ] {
        let run = with_faults(restarting(lines), &["kill:ru1@3000triggers"]);
        assert_returned(&run, &whole, &["ru1"]);
    }
}
