//! The supervisor under random interleavings of offers, replies in any order, duplicates,
//! strangers, damage, timeouts and slow fetching: every trigger is closed once and counted once.
//!
//! The model here keeps sets of trigger numbers and shares no code with the supervisor.

use std::collections::{BTreeMap, BTreeSet};

use livetime_trigger::{
    Offer, RefusedBy, ReplyOutcome, SupervisorConfig, SupervisorOutput, TriggerSupervisor,
};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{
    DecisionDigest, DurationNs, L2Mask, L2Reply, LossArea, LossCause, RunNs, TriggerNumber,
};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Offer { xoff: bool },
    Reply { pick: usize, accept: bool },
    ReplyAgain { pick: usize },
    ReplyAny { trigger_low: u32 },
    Malformed { words: Vec<u32> },
    FirstWord { pick: usize },
    Pass { ns: u64 },
    Fetch { count: usize },
    Xoff { xoff: bool },
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => proptest::bool::weighted(0.1).prop_map(|xoff| Step::Offer { xoff }),
        8 => (any::<usize>(), any::<bool>())
            .prop_map(|(pick, accept)| Step::Reply { pick, accept }),
        1 => any::<usize>().prop_map(|pick| Step::ReplyAgain { pick }),
        1 => prop_oneof![0..50u32, any::<u32>()].prop_map(|trigger_low| Step::ReplyAny { trigger_low }),
        1 => vec(any::<u32>(), 0..8).prop_map(|words| Step::Malformed { words }),
        1 => any::<usize>().prop_map(|pick| Step::FirstWord { pick }),
        4 => (0..40_000u64).prop_map(|ns| Step::Pass { ns }),
        6 => (0..6usize).prop_map(|count| Step::Fetch { count }),
        1 => any::<bool>().prop_map(|xoff| Step::Xoff { xoff }),
        1 => proptest::bool::weighted(0.05)
            .prop_map(|stop| if stop { Step::Stop } else { Step::Fetch { count: 1 } }),
    ]
}

/// What must have happened so far.
struct Model {
    now: RunNs,
    offers: u64,
    in_flight: BTreeMap<u64, RunNs>,
    accepted: BTreeSet<u64>,
    rejected: BTreeSet<u64>,
    timed_out: BTreeSet<u64>,
    late: BTreeSet<u64>,
    digest: DecisionDigest,
    outputs: Vec<SupervisorOutput>,
    stopped: bool,
}

impl Model {
    fn decided(&self) -> usize {
        self.accepted.len() + self.rejected.len()
    }

    fn nth(&self, pick: usize) -> Option<u64> {
        let count = self.in_flight.len().max(1);
        self.in_flight.keys().nth(pick % count).copied()
    }
}

fn mask_of(trigger: u64, accept: bool) -> L2Mask {
    L2Mask(if accept { u128::from(trigger) << 40 } else { 0 })
}

fn reply_of(trigger: u64, mask: L2Mask) -> L2Reply {
    L2Reply {
        trigger_low: TriggerNumber(trigger).low(),
        mask,
    }
}

fn expected_unmatched(model: &mut Model, trigger_low: u32) -> ReplyOutcome {
    let trigger = u64::from(trigger_low);
    if model.timed_out.contains(&trigger) && model.late.insert(trigger) {
        ReplyOutcome::Late
    } else if model.timed_out.contains(&trigger)
        || model.accepted.contains(&trigger)
        || model.rejected.contains(&trigger)
    {
        ReplyOutcome::Duplicate
    } else {
        ReplyOutcome::Stranger
    }
}

fn apply(
    supervisor: &mut TriggerSupervisor,
    model: &mut Model,
    config: &SupervisorConfig,
    step: Step,
) {
    let now = model.now;
    match step {
        Step::Offer { xoff } => {
            model.offers += 1;
            match supervisor.offer(now, xoff) {
                Offer::Accepted { trigger, l2_buffer } => {
                    assert!(!xoff && !model.stopped);
                    assert!(l2_buffer < config.l2_buffers);
                    let given = model.in_flight.len() + model.decided() + model.timed_out.len();
                    assert_eq!(trigger.0, given as u64 + 1, "numbers are dense");
                    model.in_flight.insert(trigger.0, now);
                }
                Offer::Refused(by) => match by {
                    RefusedBy::Stopped => assert!(model.stopped),
                    RefusedBy::Xoff => assert!(xoff),
                    RefusedBy::BuffersFull => {
                        assert_eq!(model.in_flight.len(), usize::from(config.l2_buffers));
                    }
                    RefusedBy::OutputsFull => {
                        let reserved = 2 * (model.in_flight.len() + 1);
                        assert!(model.outputs.len() + reserved > config.output_queue);
                    }
                },
            }
        }
        Step::Reply { pick, accept } => {
            if let Some(trigger) = model.nth(pick) {
                reply(supervisor, model, trigger, accept);
            }
        }
        Step::ReplyAgain { pick } => {
            let decided: Vec<u64> = model.accepted.union(&model.rejected).copied().collect();
            if let Some(trigger) = decided.get(pick % decided.len().max(1)) {
                let outcome = supervisor.handle_reply(now, &reply_of(*trigger, L2Mask(1)));
                assert_eq!(outcome, ReplyOutcome::Duplicate);
            }
        }
        Step::ReplyAny { trigger_low } => {
            if model.in_flight.contains_key(&u64::from(trigger_low)) {
                reply(supervisor, model, u64::from(trigger_low), true);
            } else {
                let expected = expected_unmatched(model, trigger_low);
                let outcome =
                    supervisor.handle_reply(now, &reply_of(trigger_low.into(), L2Mask(1)));
                assert_eq!(outcome, expected);
            }
        }
        Step::Malformed { words } => {
            let status = if words.len() == 5 {
                FragmentStatus::LINK_CONTROL
            } else {
                FragmentStatus::GOOD
            };
            let outcome = supervisor.handle_reply_words(now, &words, status);
            assert_eq!(outcome, ReplyOutcome::Malformed);
        }
        Step::FirstWord { pick } => {
            if let Some(trigger) = model.nth(pick) {
                supervisor.handle_first_word(now, TriggerNumber(trigger));
            }
        }
        Step::Pass { ns } => pass(supervisor, model, config, ns),
        Step::Fetch { count } => fetch(supervisor, model, count),
        Step::Xoff { xoff } => supervisor.handle_xoff(now, xoff),
        Step::Stop => {
            supervisor.stop(now);
            model.stopped = true;
        }
    }
}

fn reply(supervisor: &mut TriggerSupervisor, model: &mut Model, trigger: u64, accept: bool) {
    let mask = mask_of(trigger, accept);
    let triggered_at = model
        .in_flight
        .remove(&trigger)
        .expect("picked from the map");
    let outcome = supervisor.handle_reply(model.now, &reply_of(trigger, mask));
    let ReplyOutcome::Decided(sample) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((sample.trigger.0, sample.mask), (trigger, mask));
    assert!(sample.latency <= model.now.since(triggered_at));
    let trigger = TriggerNumber(trigger);
    model.digest.add(trigger, mask);
    model.outputs.push(SupervisorOutput::Decision {
        trigger,
        keep: accept,
    });
    if accept {
        model.accepted.insert(trigger.0);
        model.outputs.push(SupervisorOutput::L2Accept {
            trigger,
            mask,
            triggered_at,
        });
    } else {
        model.rejected.insert(trigger.0);
    }
}

/// Lets time pass, with the timeouts on the way.
fn pass(supervisor: &mut TriggerSupervisor, model: &mut Model, config: &SupervisorConfig, ns: u64) {
    model.now = model.now + DurationNs(ns);
    let due = model.in_flight.values().min();
    let due = due.map_or(RunNs::MAX, |at| *at + config.decision_timeout);
    assert_eq!(supervisor.poll_timeout(), due);
    if due > model.now {
        return;
    }
    supervisor.handle_timeout(model.now);
    let gone: BTreeSet<u64> = model
        .in_flight
        .iter()
        .filter(|(_, at)| **at + config.decision_timeout <= model.now)
        .map(|(trigger, _)| *trigger)
        .collect();
    model.in_flight.retain(|trigger, _| !gone.contains(trigger));
    // Several may be due at once; they are dropped in the order of their buffers.
    let mut dropped = BTreeSet::new();
    for _ in 0..model.outputs.len() {
        assert_eq!(supervisor.poll_output(), Some(model.outputs.remove(0)));
    }
    while let Some(SupervisorOutput::Decision {
        trigger,
        keep: false,
    }) = supervisor.poll_output()
    {
        assert!(dropped.insert(trigger.0));
    }
    assert_eq!(dropped, gone);
    model.timed_out.extend(gone);
}

fn fetch(supervisor: &mut TriggerSupervisor, model: &mut Model, count: usize) {
    for _ in 0..count.min(model.outputs.len()) {
        assert_eq!(supervisor.poll_output(), Some(model.outputs.remove(0)));
    }
}

fn check(supervisor: &TriggerSupervisor, model: &Model) {
    let counters = supervisor.counters();
    let lost = supervisor.losses().in_area(LossArea::Trigger);
    let in_flight = supervisor.in_flight() as u64;
    assert_eq!(
        counters.triggers,
        counters.l2_accepted + counters.l2_rejected + lost + in_flight,
        "triggers = accepted + rejected + losses + in flight"
    );
    assert_eq!(counters.offers, counters.refused() + counters.triggers);
    assert_eq!(counters.offers, model.offers);
    assert_eq!(counters.l2_accepted, model.accepted.len() as u64);
    assert_eq!(counters.l2_rejected, model.rejected.len() as u64);
    assert_eq!(in_flight, model.in_flight.len() as u64);
    assert_eq!(lost, model.timed_out.len() as u64);
    assert_eq!(counters.replies_late, model.late.len() as u64);
    assert_eq!(supervisor.digest(), model.digest);
    let dead = supervisor.dead_time(model.now);
    assert!((0.0..=1.0).contains(&dead.busy_fraction()));
    assert!((0.0..=1.0).contains(&dead.refused_fraction()));
    assert_eq!(dead.offered, counters.offers - counters.refused_stopped);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_trigger_is_closed_once(
        steps in vec(step(), 1..300),
        l2_buffers in 1..=4u8,
        room in 0..6usize,
        abort in any::<bool>(),
    ) {
        let config = SupervisorConfig {
            l2_buffers,
            deadline: DurationNs(20_000),
            decision_timeout: DurationNs(60_000),
            output_queue: 2 * usize::from(l2_buffers) + room,
        };
        let mut supervisor = TriggerSupervisor::new(config, RunNs(0));
        let mut model = Model {
            now: RunNs(0),
            offers: 0,
            in_flight: BTreeMap::new(),
            accepted: BTreeSet::new(),
            rejected: BTreeSet::new(),
            timed_out: BTreeSet::new(),
            late: BTreeSet::new(),
            digest: DecisionDigest::default(),
            outputs: Vec::new(),
            stopped: false,
        };
        for step in steps {
            apply(&mut supervisor, &mut model, &config, step);
            check(&supervisor, &model);
        }
        let left = model.in_flight.len() as u64;
        if abort {
            supervisor.abort(model.now);
            prop_assert_eq!(supervisor.losses().of(LossCause::DecisionAborted), left);
        } else {
            supervisor.stop(model.now);
            pass(&mut supervisor, &mut model, &config, 60_000);
            prop_assert_eq!(supervisor.losses().of(LossCause::DecisionAborted), 0);
        }
        while supervisor.poll_output().is_some() {}
        prop_assert!(supervisor.is_drained());
        let counters = supervisor.counters();
        prop_assert_eq!(
            counters.triggers,
            counters.l2_accepted + counters.l2_rejected + supervisor.losses().total()
        );
    }
}
