//! Transactions and ownership: whole or not at all, and only by those who may.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use livetime_timing::{
    AccessError, ActionUnitConfig, Caller, Change, ClientId, ConditionId, ConditionSpec,
    ConflictPolicy, FlagSet, IdFilter, RegistryConfig, Role, SinkError, SinkKind, SinkSpec,
    TimingCore, TransactionError,
};
use livetime_wire::{EventId, TaiNs, TimingMessage};

const ME: Caller = Caller {
    client: ClientId(1),
    role: Role::Operate,
};
const OTHER: Caller = Caller {
    client: ClientId(2),
    role: Role::Operate,
};

fn core() -> TimingCore {
    TimingCore::new(RegistryConfig::default(), ActionUnitConfig::HARDWARE).unwrap()
}

fn software(name: &str) -> SinkSpec {
    SinkSpec::new(SinkKind::Software, name)
}

/// 10 000 swaps under a stream of messages: each message meets the old set or the new one, across
/// all sinks, never a mixture.
#[test]
fn every_message_sees_the_old_set_or_the_new_one() {
    let mut core = core();
    let sinks: Vec<_> = (0..4)
        .map(|n| core.create_sink(&ME, software(&format!("s{n}"))).unwrap())
        .collect();
    let set = |generation: u32| -> Vec<Change> {
        let spec = |sink| ConditionSpec {
            accept: FlagSet::ALL,
            ..ConditionSpec::new(sink, IdFilter::ALL, generation)
        };
        sinks.iter().map(|sink| Change::Add(spec(*sink))).collect()
    };
    let mut current: Vec<ConditionId> = core.apply(&ME, &set(0)).unwrap().added;
    for generation in 1..=10_000u32 {
        let now = TaiNs(1_000_000 + u64::from(generation) * 10_000);
        let mut changes: Vec<Change> = current.iter().map(|id| Change::Remove(*id)).collect();
        changes.extend(set(generation));
        let broken = generation % 3 == 0;
        if broken {
            // One wrong change at the end: nothing of it may be seen.
            changes.push(Change::Remove(ConditionId::from_bits(u64::MAX)));
            let error = core.apply(&ME, &changes).unwrap_err();
            assert!(matches!(
                error,
                TransactionError::UnknownCondition { index: 8, .. }
            ));
        } else {
            current = core.apply(&ME, &changes).unwrap().added;
        }
        let expected = generation - u32::from(broken);
        let message = TimingMessage::new(EventId(7), 0, TaiNs(now.0 + 5000));
        assert_eq!(core.handle_message(now, &message), 4);
        let mut seen = Vec::new();
        while let Some(action) = core.poll_output(TaiNs(now.0 + 9000)) {
            assert_eq!(action.tag, expected);
            seen.push(action.sink);
        }
        assert_eq!(seen, sinks);
    }
    assert_eq!(core.registry().conditions().count(), 4);
}

#[test]
fn errors_name_the_change_the_value_and_what_is_allowed() {
    let mut core = core();
    let output = core
        .add_fixed_sink(SinkSpec::new(SinkKind::Output, "io1"))
        .unwrap();
    let good = ConditionSpec::new(output, IdFilter::ALL, 2);
    let error = |core: &mut TimingCore, spec| {
        let changes = [Change::Add(good), Change::Add(spec)];
        core.apply(&ME, &changes).unwrap_err().to_string()
    };
    let late = ConditionSpec {
        offset_ns: 1_000_000_001,
        ..good
    };
    assert_eq!(
        error(&mut core, late),
        "change 1: offset 1000000001 ns, allowed in io1 is -1000000000 to 1000000000 ns"
    );
    let hole = IdFilter::masked(EventId(0), 1).unwrap();
    assert_eq!(
        error(
            &mut core,
            ConditionSpec {
                filter: hole,
                ..good
            }
        ),
        "change 1: io1 matches leading bits only; use a prefix"
    );
    let conflict = error(&mut core, good);
    assert!(
        conflict.starts_with(
            "the new condition of change 1 and the new condition of change 0 of io1 conflict for \
             every message with event ID 0x0"
        ) || conflict.starts_with(
            "the new condition of change 0 and the new condition of change 1 of io1 conflict for \
             every message with event ID 0x0"
        ),
        "{conflict}"
    );
    for tag in [0, 3, 0x11] {
        assert_eq!(
            error(&mut core, ConditionSpec { tag, ..good }),
            format!(
                "change 1: tag {tag} in io1, an output; allowed are 1, which is off, and 2, which \
                 is on"
            )
        );
    }
    assert_eq!(core.registry().conditions().count(), 0);
    let observer = Caller {
        client: ClientId(3),
        role: Role::Observe,
    };
    let denied = core.apply(&observer, &[Change::Add(good)]).unwrap_err();
    assert_eq!(
        denied.to_string(),
        "change 0: role observe may not do this, operate is needed"
    );
}

#[test]
fn conflicts_are_refused_reported_or_ignored_as_the_sink_says() {
    for policy in [
        ConflictPolicy::Reject,
        ConflictPolicy::Warn,
        ConflictPolicy::Ignore,
    ] {
        let mut core = core();
        let mut spec = software("s");
        spec.conflict_policy = policy;
        let sink = core.create_sink(&ME, spec).unwrap();
        let narrow = IdFilter::leading(EventId(0x1000 << 48), 16).unwrap();
        let first = core
            .apply(
                &ME,
                &[Change::Add(ConditionSpec::new(sink, IdFilter::ALL, 0))],
            )
            .unwrap();
        assert!(first.warnings.is_empty());
        let second = core.apply(&ME, &[Change::Add(ConditionSpec::new(sink, narrow, 0))]);
        match policy {
            ConflictPolicy::Reject => {
                assert!(matches!(
                    second,
                    Err(TransactionError::Conflict { must: 1, .. })
                ));
            }
            ConflictPolicy::Warn => {
                let warnings = second.unwrap().warnings;
                assert_eq!(warnings[0].0, sink);
                let pair = warnings[0].1.pairs[0];
                assert_eq!(
                    (pair.second, pair.example.0),
                    (first.added[0], 0x1000 << 48)
                );
            }
            ConflictPolicy::Ignore => assert!(second.unwrap().warnings.is_empty()),
        }
        // Another offset cannot conflict within one message.
        let apart = ConditionSpec {
            offset_ns: 1,
            ..ConditionSpec::new(sink, narrow, 0)
        };
        assert!(
            core.apply(&ME, &[Change::Add(apart)])
                .unwrap()
                .warnings
                .is_empty()
        );
    }
}

#[test]
fn only_owners_change_things_until_they_give_them_up() {
    let mut core = core();
    let sink = core.create_sink(&ME, software("mine")).unwrap();
    let spec = ConditionSpec::new(sink, IdFilter::ALL, 0);
    let id = core.apply(&ME, &[Change::Add(spec)]).unwrap().added[0];
    let foreign = AccessError::ForeignOwner { owner: ClientId(1) };
    let changes = [
        Change::Remove(id),
        Change::SetActive(id, false),
        Change::Replace(id, spec),
        Change::Own(id),
        Change::Disown(id),
        Change::Toggle(sink),
        Change::Add(spec),
    ];
    for change in changes {
        let error = core.apply(&OTHER, &[change]).unwrap_err();
        let expected = TransactionError::Access {
            index: 0,
            error: foreign,
        };
        assert_eq!(error, expected, "{change:?}");
    }
    assert_eq!(
        core.destroy_sink(&OTHER, sink),
        Err(SinkError::Access(foreign))
    );
    core.registry_mut().disown_sink(&ME, sink).unwrap();
    core.apply(&ME, &[Change::Disown(id)]).unwrap();
    core.apply(&OTHER, &[Change::SetActive(id, false), Change::Own(id)])
        .unwrap();
    let refused = core.apply(&ME, &[Change::Remove(id)]).unwrap_err();
    assert!(matches!(refused, TransactionError::Access { .. }));
    let blocked = core.destroy_sink(&ME, sink).unwrap_err();
    let owner = ClientId(2);
    assert_eq!(
        blocked,
        SinkError::ForeignCondition {
            condition: id,
            owner
        }
    );
    // Disowned objects survive everybody.
    let gone = core.handle_client_gone(ClientId(2));
    assert_eq!(
        (gone.sinks.len(), gone.conditions.len(), gone.released),
        (0, 0, 1)
    );
    assert!(core.registry().condition(id).is_some());
}

#[test]
fn a_client_that_dies_takes_its_objects_along() {
    let mut core = core();
    let fixed = core
        .add_fixed_sink(SinkSpec::new(SinkKind::Output, "io1"))
        .unwrap();
    let mine = core.create_sink(&ME, software("mine")).unwrap();
    let theirs = core.create_sink(&OTHER, software("theirs")).unwrap();
    let mut added = Vec::new();
    for (caller, sink) in [(&ME, fixed), (&ME, mine), (&OTHER, theirs)] {
        let change = Change::Add(ConditionSpec::new(sink, IdFilter::ALL, 2));
        added.extend(core.apply(caller, &[change]).unwrap().added);
    }
    let gone = core.handle_client_gone(ME.client);
    assert_eq!(gone.sinks, [(mine, SinkKind::Software)]);
    assert_eq!(gone.conditions, added[..2]);
    let left: Vec<_> = core.registry().conditions().map(|c| c.id).collect();
    assert_eq!(left, added[2..]);
    let message = TimingMessage::new(EventId(0), 0, TaiNs(100_000));
    assert_eq!(core.handle_message(TaiNs(0), &message), 1);
    // Place and slots are used again; the ids are not.
    let again = core.create_sink(&ME, software("mine")).unwrap();
    assert_eq!(again, mine);
    let change = Change::Add(ConditionSpec::new(again, IdFilter::ALL, 2));
    let id = core.apply(&ME, &[change]).unwrap().added[0];
    assert!(!added.contains(&id));
    assert_eq!(core.actions().counters(again).matched, 0);
}

#[test]
fn churn_leaves_nothing_behind() {
    let mut core = core();
    for round in 0..10_000u64 {
        let caller = Caller {
            client: ClientId(round),
            role: Role::Operate,
        };
        let sink = core.create_sink(&caller, software("churn")).unwrap();
        let changes: Vec<Change> = (0..3)
            .map(|n| {
                let filter = IdFilter::leading(EventId(n << 60), 4).unwrap();
                Change::Add(ConditionSpec::new(sink, filter, 0))
            })
            .collect();
        core.apply(&caller, &changes).unwrap();
        core.handle_client_gone(caller.client);
    }
    assert_eq!(core.registry().sinks().count(), 0);
    assert_eq!(core.registry().conditions().count(), 0);
    assert_eq!(
        (core.registry().fill().search, core.registry().fill().walker),
        (1, 0)
    );
}

#[test]
fn toggling_switches_prepared_conditions_at_once() {
    let mut core = core();
    let sink = core.create_sink(&ME, software("s")).unwrap();
    let spec = |tag, active| ConditionSpec {
        active,
        ..ConditionSpec::new(sink, IdFilter::ALL, tag)
    };
    let changes = [Change::Add(spec(1, true)), Change::Add(spec(2, false))];
    core.apply(&ME, &changes).unwrap();
    let tag = |core: &mut TimingCore| {
        let entries = core.actions().table();
        let tags: Vec<u32> = entries.matches(EventId(9)).map(|entry| entry.tag).collect();
        assert_eq!(tags.len(), 1);
        tags[0]
    };
    assert_eq!(tag(&mut core), 1);
    core.apply(&ME, &[Change::Toggle(sink)]).unwrap();
    assert_eq!(tag(&mut core), 2);
    core.apply(&ME, &[Change::InactivateMine]).unwrap();
    assert_eq!(core.actions().table().matches(EventId(9)).count(), 0);
}

#[test]
fn sink_names_are_checked() {
    let mut core = core();
    let error = |core: &mut TimingCore, name: &str| {
        core.create_sink(&ME, software(name))
            .unwrap_err()
            .to_string()
    };
    core.create_sink(&ME, software("a_1")).unwrap();
    assert_eq!(error(&mut core, "a_1"), "sink name `a_1` is in use");
    for name in ["", "a/b", "with space", &"x".repeat(65)] {
        assert!(error(&mut core, name).contains("not usable"), "{name}");
    }
}
