//! What waits for a sink that is destroyed: it is executed for nobody, and counted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::collections::BTreeMap;

use livetime_timing::{
    Action, ActionFlag, ActionUnitConfig, Caller, Change, ClientId, ConditionSpec, FlagSet,
    IdFilter, RegistryConfig, Role, SinkCounters, SinkId, SinkKind, SinkSpec, TimingCore,
};
use livetime_wire::{EventId, TaiNs, TimingMessage};

#[path = "support/random.rs"]
mod random;

use random::Random;

const CALLER: Caller = Caller {
    client: ClientId(1),
    role: Role::Admin,
};
const NOW: u64 = 1_000_000;
const DUE: u64 = NOW + 100_000;

fn core() -> TimingCore {
    TimingCore::new(RegistryConfig::HARDWARE, ActionUnitConfig::HARDWARE).unwrap()
}

/// A sink that asks for the messages of an ID, whatever is wrong with them.
fn sink(core: &mut TimingCore, name: &str, id: u64) -> SinkId {
    let spec = SinkSpec::new(SinkKind::Software, name);
    let sink = core.create_sink(&CALLER, spec).unwrap();
    let condition = ConditionSpec {
        accept: FlagSet::ALL,
        ..ConditionSpec::new(sink, IdFilter::leading(EventId(id), 64).unwrap(), 0)
    };
    core.apply(&CALLER, &[Change::Add(condition)]).unwrap();
    sink
}

fn send(core: &mut TimingCore, id: u64, times: impl IntoIterator<Item = u64>) {
    for time in times {
        let message = TimingMessage::new(EventId(id), time, TaiNs(time));
        core.handle_message(TaiNs(NOW), &message);
    }
}

fn executed(core: &mut TimingCore, until: u64) -> Vec<Action> {
    std::iter::from_fn(|| core.poll_output(TaiNs(until))).collect()
}

#[test]
fn the_next_sink_in_the_place_gets_nothing_of_the_old_one() {
    let mut core = core();
    let old = sink(&mut core, "old", 1);
    // One that is on time, two that conflict with it, one that is late.
    send(&mut core, 1, [DUE, DUE, DUE, NOW]);
    core.destroy_sink(&CALLER, old).unwrap();
    assert_eq!(core.actions().withdrawn(), 4);
    assert_eq!(core.actions().fill(SinkKind::Software), 0);
    let new = sink(&mut core, "new", 2);
    assert_eq!(new, old, "the place is used again");
    send(&mut core, 2, [DUE]);
    let actions = executed(&mut core, 2 * DUE);
    let found: Vec<_> = actions.iter().map(|a| (a.message.id.0, a.flag)).collect();
    assert_eq!(found, [(2, None)]);
    let expected = SinkCounters {
        matched: 1,
        delivered: 1,
        ..SinkCounters::default()
    };
    assert_eq!(core.actions().counters(new), expected);
    for flag in ActionFlag::ALL {
        assert_eq!(core.actions().report(new, flag), None, "{flag:?}");
    }
    assert_eq!(core.actions().fill(SinkKind::Software), 0);
    assert_eq!(core.poll_timeout(), None);
}

/// While more of others waits, what is withdrawn keeps its places until it is due, and takes no
/// cycle of the channel from those that are executed then; or until it is the more.
#[test]
fn what_is_withdrawn_delays_nobody_and_holds_no_more_places_than_the_others() {
    let mut core = core();
    let [old, staying] = [("old", 1), ("staying", 2)].map(|(name, id)| sink(&mut core, name, id));
    send(&mut core, 1, [DUE, DUE, DUE + 500]);
    send(&mut core, 2, (0..4).map(|n| DUE + 1_000 * n));
    core.destroy_sink(&CALLER, old).unwrap();
    assert_eq!(core.actions().fill(SinkKind::Software), 7);
    let first = executed(&mut core, DUE);
    assert_eq!((first.len(), first[0].executed.0), (1, DUE));
    assert_eq!(first[0].flag, None, "the two before it take no cycle");
    let new = sink(&mut core, "new", 3);
    send(&mut core, 3, [DUE + 700]);
    let fills = [DUE + 500, DUE + 700, DUE + 3_000].map(|until| {
        let executed = executed(&mut core, until);
        assert!(executed.iter().all(|action| action.flag.is_none()));
        (executed.len(), core.actions().fill(SinkKind::Software))
    });
    assert_eq!(fills, [(0, 4), (1, 3), (3, 0)]);
    // The larger part goes at once.
    send(&mut core, 2, (0..3).map(|n| 2 * DUE + n));
    send(&mut core, 3, [2 * DUE]);
    core.destroy_sink(&CALLER, staying).unwrap();
    assert_eq!(core.actions().fill(SinkKind::Software), 1);
    assert_eq!(executed(&mut core, 3 * DUE).len(), 1);
    assert_eq!(core.actions().counters(new).delivered, 2);
    assert_eq!(core.actions().withdrawn(), 6);
}

/// What the actions of all sinks that there ever were came to.
#[derive(Default)]
struct Sums {
    matched: u64,
    accounted: u64,
    delivered: u64,
}

impl Sums {
    fn add(&mut self, counters: SinkCounters) {
        self.matched += counters.matched;
        self.accounted += counters.delivered + counters.refused + counters.overflow;
        self.delivered += counters.delivered;
    }
}

/// Sinks come and go at random: what is executed is of a sink that is there, and each action is
/// delivered, refused, dropped, withdrawn or waiting.
#[test]
fn whatever_sinks_come_and_go_no_action_is_executed_for_another() {
    let mut random = Random::new();
    let mut core = core();
    let mut alive: BTreeMap<SinkId, u64> = BTreeMap::new();
    let (mut sums, mut executed, mut id) = (Sums::default(), 0u64, 0u64);
    for step in 0..20_000 {
        let now = NOW + 300 * step;
        match random.below(8) {
            0 if alive.len() < 6 => {
                id += 1;
                let sink = sink(&mut core, &format!("s{id}"), id);
                alive.insert(sink, id);
            }
            1 if !alive.is_empty() => {
                let places: Vec<SinkId> = alive.keys().copied().collect();
                let sink = places[random.below(places.len() as u64) as usize];
                sums.add(core.actions().counters(sink));
                core.destroy_sink(&CALLER, sink).unwrap();
                alive.remove(&sink);
            }
            _ => {}
        }
        for of in alive.values() {
            let time = now + random.below(40_000);
            let message = TimingMessage::new(EventId(*of), 0, TaiNs(time));
            core.handle_message(TaiNs(now), &message);
        }
        while let Some(action) = core.poll_output(TaiNs(now)) {
            let of = alive.get(&action.sink);
            assert_eq!(of, Some(&action.message.id.0), "seed {}", random.seed());
            executed += 1;
        }
    }
    while core.poll_output(TaiNs(u64::MAX)).is_some() {
        executed += 1;
    }
    let kept = |sink: &SinkId| {
        let report = |flag: &&ActionFlag| core.actions().report(*sink, **flag).is_some();
        ActionFlag::ALL.iter().filter(report).count()
    };
    let reports: usize = alive.keys().map(kept).sum();
    assert_eq!(core.actions().fill(SinkKind::Software), reports);
    for sink in alive.keys() {
        sums.add(core.actions().counters(*sink));
    }
    let withdrawn = core.actions().withdrawn();
    assert!(withdrawn > 1_000, "{withdrawn}");
    assert_eq!(
        sums.matched,
        sums.accounted + withdrawn,
        "seed {}",
        random.seed()
    );
    assert_eq!(sums.delivered, executed);
}
