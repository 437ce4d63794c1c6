//! The state file: what is in it after a start, and what lies beside it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::fs;
use std::path::Path;

use livetime_timing::{Caller, Change, ConditionId, ConditionSpec, IdFilter, SinkKind, SinkSpec};
use livetime_timing_daemon::{Control, Daemon, DaemonConfig};
use livetime_wire::{EventId, TaiNs};

const UID: u32 = 1000;

fn start(file: &Path) -> Daemon {
    let mut config = DaemonConfig::for_user(UID);
    config.virtual_start = Some(TaiNs(1_000_000_000_000));
    config.state_file = Some(file.to_owned());
    Daemon::start(&config).unwrap()
}

fn caller(control: &Control) -> Caller {
    let client = control.client_arrived(UID, &[], None, "here").unwrap();
    client.caller()
}

fn add(control: &Control, caller: &Caller, sink: &str, id: u64) -> ConditionId {
    let sink = control.read(|registry| registry.sink_by_name(sink).unwrap().id);
    let filter = IdFilter::leading(EventId(id), 64).unwrap();
    let change = Change::Add(ConditionSpec::new(sink, filter, 2));
    control.apply(caller, &[change]).unwrap().added[0]
}

/// Event IDs of the conditions in the order in which those of equal filters act.
fn kept(daemon: &Daemon) -> Vec<u64> {
    daemon.control().read(|registry| {
        let conditions = registry.conditions_by_age().into_iter();
        let ids = conditions.map(|condition| condition.spec.filter.id_and_mask().0.0);
        ids.collect()
    })
}

#[test]
fn conditions_are_kept_in_the_order_of_their_making() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept.json");
    let daemon = start(&file);
    let control = daemon.control();
    let caller = caller(control);
    let [first, second] = [1, 2].map(|id| add(control, &caller, "IO1", id));
    control.apply(&caller, &[Change::Remove(first)]).unwrap();
    // It has the slot of the first.
    let third = add(control, &caller, "IO1", 3);
    assert!(third.slot() < second.slot());
    let disown = [second, third].map(Change::Disown);
    control.apply(&caller, &disown).unwrap();
    drop(daemon);
    for _start in 0..2 {
        assert_eq!(kept(&start(&file)), [2, 3]);
    }
}

#[test]
fn what_was_given_up_stays_also_when_somebody_has_it_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept.json");
    let daemon = start(&file);
    let control = daemon.control();
    let (giver, taker) = (caller(control), caller(control));
    let spec = SinkSpec::new(SinkKind::Software, "stays");
    let sink = control.create_sink(&giver, spec).unwrap();
    let condition = add(control, &giver, "stays", 1);
    // What one made and did not give up goes, in whatever sink it is.
    for (caller, sink) in [(&giver, "stays"), (&taker, "IO1")] {
        add(control, caller, sink, 2);
    }
    let disown = [Change::Disown(condition)];
    control.apply(&giver, &disown).unwrap();
    control.own_sink(&giver, sink, false).unwrap();
    control.own_sink(&taker, sink, true).unwrap();
    let own = [Change::Own(condition)];
    control.apply(&taker, &own).unwrap();
    drop(daemon);
    for _start in 0..2 {
        let daemon = start(&file);
        assert_eq!(kept(&daemon), [1]);
        let owner = daemon.control().read(|registry| {
            let sink = registry.sink_by_name("stays").unwrap();
            sink.ownership.owner
        });
        assert_eq!(owner, None);
    }
}

#[test]
fn what_lies_beside_the_state_file_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = "somebody's text";
    for name in ["Cargo.lock", "Cargo.new", "elsewhere"] {
        fs::write(at(name), text).unwrap();
    }
    let (daemon, file) = (start(&at("Cargo")), at("Cargo"));
    let control = daemon.control();
    let caller = caller(control);
    let condition = add(control, &caller, "IO1", 1);
    control
        .apply(&caller, &[Change::Disown(condition)])
        .unwrap();
    drop(daemon);
    assert_eq!(kept(&start(&file)), [1]);
    // Neither is a link followed, to a file that is there or to one that would come there.
    for (name, target) in [("linked", "elsewhere"), ("dangling", "nothing")] {
        std::os::unix::fs::symlink(at(target), at(&format!("{name}.lock"))).unwrap();
        let mut config = DaemonConfig::for_user(UID);
        config.virtual_start = Some(TaiNs(1_000_000_000_000));
        config.state_file = Some(at(name));
        let refused = Daemon::start(&config).unwrap_err().to_string();
        assert!(refused.starts_with("cannot lock state file "), "{refused}");
    }
    for name in ["Cargo.lock", "Cargo.new", "elsewhere"] {
        assert_eq!(fs::read_to_string(at(name)).unwrap(), text, "{name}");
    }
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "Cargo",
        "Cargo.lock",
        "Cargo.new",
        "dangling.lock",
        "elsewhere",
        "linked.lock",
    ];
    assert_eq!(names, expected);
}
