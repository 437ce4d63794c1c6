//! Leases: a client that dies and comes back finds its sinks and conditions as they were.

use std::time::Duration;

use livetime_client::{ClientError, EventId, Filter, SubscriptionOptions, TaiNs, TimingClient};
use livetime_wire::timing_coefficient::emit_block;

use crate::stage::{LONG, MASTER, RECEIVER, START, Stage, bus_stage, messages, stage};

fn objects(stage: &Stage) -> (usize, usize) {
    let control = stage.daemon.control();
    control.read(|r| (r.sinks().count(), r.conditions().count()))
}

fn gone(stage: &Stage, client: TimingClient) {
    drop(client);
    while !stage.daemon.control().clients().is_empty() {
        std::thread::yield_now();
    }
}

fn resumes(stage: &Stage) {
    let before = objects(stage);
    let client = stage.client();
    let sink = client.new_sink("kept").unwrap();
    let path = sink.path().to_owned();
    let condition = sink.add(&Filter::group(0x123)).unwrap();
    let mut subscription = sink.subscribe(&SubscriptionOptions::default()).unwrap();
    let token = client.lease(Duration::from_secs(3600)).unwrap();
    gone(stage, client);
    // The ring has no reader any more; what listens stays, and counts.
    assert!(matches!(subscription.next(LONG), Err(ClientError::Gone)));
    assert_eq!(objects(stage), (before.0 + 1, before.1 + 1));
    assert_eq!(stage.daemon.control().subscriptions().len(), 0);
    let client = stage.client();
    let sink = client.sink_at(&path);
    assert!(matches!(
        sink.subscribe(&SubscriptionOptions::default()),
        Err(ClientError::Denied(_))
    ));
    let wrong = client.resume(&"0".repeat(32));
    assert!(matches!(&wrong, Err(ClientError::Refused(_))), "{wrong:?}");
    assert_eq!(client.resume(&token).unwrap(), 2);
    let mut subscription = sink.subscribe(&SubscriptionOptions::default()).unwrap();
    let id = EventId(Filter::group(0x123).id);
    let now = client.raw_time().unwrap();
    client.inject(id, 5, TaiNs(now.0 + 100_000)).unwrap();
    client.advance_clock(TaiNs(now.0 + 200_000)).unwrap();
    assert_eq!(messages(&mut subscription, 1)[0].param, 5);
    // Given back, it ends with the connection.
    assert_eq!(client.lease(Duration::ZERO).unwrap(), "");
    let active: bool = client.property(&condition, "Condition", "Active").unwrap();
    assert!(active);
    gone(stage, client);
    assert_eq!(objects(stage), before);
    let refused = stage.client().resume(&token);
    assert!(refused.is_err());
}

#[test]
fn a_client_that_comes_back_with_its_token_finds_its_objects() {
    resumes(&stage());
}

#[test]
fn a_client_of_a_bus_that_comes_back_finds_its_objects() {
    if let Some(stage) = bus_stage() {
        resumes(&stage);
    }
}

/// To renew a lease is not to take it: its holder keeps what it has, and no time runs.
#[test]
fn a_renewed_lease_stays_its_holders() {
    let stage = stage();
    let holder = stage.client();
    let condition = holder.new_sink("held").unwrap();
    let path = condition.path().to_owned();
    let token = holder.lease(Duration::from_secs(3600)).unwrap();
    let other = stage.client();
    assert_eq!(other.renew(&token).unwrap(), (1, true));
    let number = other.property::<String>(&path, "Owned", "Owner").unwrap();
    drop(other);
    while stage.daemon.control().clients().len() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(stage.daemon.control().orphans(), 0);
    // Still the holder's own to destroy.
    let owner = holder.property::<String>(&path, "Owned", "Owner").unwrap();
    assert_eq!(owner, number);
    gone(&stage, holder);
    let other = stage.client();
    assert_eq!(other.renew(&token).unwrap(), (1, false));
    gone(&stage, other);
    assert_eq!(stage.daemon.control().orphans(), 1);
    let unknown = stage.client().renew(&"0".repeat(32)).unwrap_err();
    assert!(unknown.to_string().contains("no lease of this token"));
}

/// A bus has tags and no levels, an output levels and no tags.
#[test]
fn conditions_must_fit_their_sink() {
    let stage = stage();
    let client = stage.client();
    let refused = |result: Result<zbus::OwnedObjectPath, ClientError>| match result {
        Err(ClientError::Refused(text)) => text,
        other => panic!("{other:?}"),
    };
    let (io, bus) = (format!("{RECEIVER}/IO1"), format!("{RECEIVER}/bus1"));
    let tagged = (true, 1u64, u64::MAX, 0i64, 0x11u32);
    let text = refused(client.call(&io, "OutputActionSink", "NewTagCondition", &tagged));
    assert!(text.contains("tag 17 in IO1, an output"), "{text}");
    let level = (true, 1u64, u64::MAX, 0i64, true);
    let text = refused(client.call(&bus, "OutputActionSink", "NewCondition", &level));
    assert_eq!(text, "bus1 is a bus, not an output");
    let written: Result<(), _> = client.call(&bus, "OutputActionSink", "WriteOutput", &true);
    let text = written.unwrap_err().to_string();
    assert_eq!(text, "bus1 is a bus, not an output");
    let path: zbus::OwnedObjectPath = client
        .call(&bus, "OutputActionSink", "NewTagCondition", &tagged)
        .unwrap();
    let on = zbus::Variant::from(true);
    assert!(
        client
            .set_property(path.as_str(), "OutputCondition", "On", on)
            .is_err()
    );
    let path: zbus::OwnedObjectPath = client
        .call(&io, "OutputActionSink", "NewCondition", &level)
        .unwrap();
    let tag = zbus::Variant::from(7u32);
    assert!(
        client
            .set_property(path.as_str(), "OutputCondition", "Tag", tag)
            .is_err()
    );
}

#[test]
fn callers_that_leave_a_bus_at_once_are_noticed() {
    let Some(stage) = bus_stage() else { return };
    for _ in 0..10 {
        let client = stage.client();
        client.raw_time().unwrap();
        gone(&stage, client);
    }
}

#[test]
fn a_lease_ends_and_its_objects_go_and_generators_never_wait_for_it() {
    let stage = stage();
    let before = objects(&stage);
    let client = stage.client();
    for length in [Duration::from_secs(3601), Duration::MAX] {
        let refused = client.lease(length);
        assert!(
            matches!(&refused, Err(ClientError::Refused(text)) if text.contains("3600")),
            "{refused:?}"
        );
    }
    let sink = client.new_sink("short").unwrap();
    sink.add(&Filter::ALL).unwrap();
    client.lease(Duration::from_secs(1)).unwrap();
    let sets = crate::ramp(20);
    let block = emit_block(&[&sets[..]; 12]).unwrap();
    client.append_block(&block, true).unwrap();
    client.advance_clock(TaiNs(START.0 + 1_000_000)).unwrap();
    gone(&stage, client);
    let generators = stage.daemon.generators();
    assert_eq!(generators.ownership().owner, None);
    // The master is driven by others at once, whatever the lease says.
    let other = stage.client();
    other.advance_clock(TaiNs(START.0 + 2_000_000)).unwrap();
    let states = || -> Vec<String> {
        let interface = "MasterFunctionGenerator";
        other.call(MASTER, interface, "ReadStates", &()).unwrap()
    };
    while states().iter().any(|state| state != "disabled") {
        std::thread::yield_now();
    }
    while objects(&stage) != before {
        std::thread::yield_now();
    }
    assert_eq!(stage.daemon.control().orphans(), 0);
    let path = format!("{RECEIVER}/short");
    while other.all_properties(&path, "ActionSink").is_ok() {
        std::thread::yield_now();
    }
}
