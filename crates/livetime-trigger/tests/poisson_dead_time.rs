//! Dead time of the supervisor with random triggers and a serial decision loop of constant time,
//! on the virtual clock, against the closed form of M/D/1/4.
//!
//! Given Poisson triggers at 40 kHz, when each decision takes 11, 12 or 20 us and they are taken
//! one after the other, then the fraction refused, and the fraction of time busy, are those of the
//! formula.

use std::collections::VecDeque;

use livetime_trigger::dead_time::refused_fraction_m_d_1_k;
use livetime_trigger::{DeadTime, Offer, ReplyOutcome, SupervisorConfig, TriggerSupervisor};
use livetime_wire::decision::mix64;
use livetime_wire::{DurationNs, L2Mask, L2Reply, RunNs, TriggerNumber};

const TRIGGERS: u64 = 1_500_000;
const MEAN_GAP_NS: f64 = 25_000.0;

/// A serial loop: takes triggers in turn, `service` each.
struct Loop {
    service: DurationNs,
    queue: VecDeque<TriggerNumber>,
    busy_until: RunNs,
}

impl Loop {
    fn take(&mut self, now: RunNs, trigger: TriggerNumber) {
        if self.queue.is_empty() {
            self.busy_until = now + self.service;
        }
        self.queue.push_back(trigger);
    }

    /// Replies to everything that is done before `now`.
    fn run(&mut self, now: RunNs, supervisor: &mut TriggerSupervisor) {
        while self.busy_until <= now
            && let Some(trigger) = self.queue.pop_front()
        {
            let reply = L2Reply {
                trigger_low: trigger.low(),
                mask: L2Mask::NONE,
            };
            let outcome = supervisor.handle_reply(self.busy_until, &reply);
            assert!(matches!(outcome, ReplyOutcome::Decided(_)));
            while supervisor.poll_output().is_some() {}
            self.busy_until = self.busy_until + self.service;
        }
    }
}

fn simulate(service: DurationNs, buffers: u8, seed: u64) -> DeadTime {
    let config = SupervisorConfig {
        l2_buffers: buffers,
        ..SupervisorConfig::default()
    };
    let mut supervisor = TriggerSupervisor::new(config, RunNs(0));
    let mut node = Loop {
        service,
        queue: VecDeque::new(),
        busy_until: RunNs(0),
    };
    let mut at = 0.0;
    for index in 0..TRIGGERS {
        let uniform = (mix64(seed ^ mix64(index)) >> 11) as f64 / (1u64 << 53) as f64;
        at -= MEAN_GAP_NS * (1.0 - uniform).ln();
        let now = RunNs(at as u64);
        node.run(now, &mut supervisor);
        if let Offer::Accepted { trigger, .. } = supervisor.offer(now, false) {
            node.take(now, trigger);
        }
    }
    supervisor.dead_time(RunNs(at as u64))
}

#[test]
fn refused_and_busy_fractions_are_those_of_the_closed_form() {
    for (service_us, buffers, seed) in [(11, 4, 1), (12, 4, 2), (20, 4, 3), (20, 1, 4), (30, 4, 5)]
    {
        let load = service_us as f64 * 1000.0 / MEAN_GAP_NS;
        let expected = refused_fraction_m_d_1_k(load, usize::from(buffers));
        let dead = simulate(DurationNs(service_us * 1000), buffers, seed);
        assert_eq!(dead.offered, TRIGGERS);
        // Refusals come in bursts: six times the spread of as many independent ones.
        let tolerance = 6.0 * (expected / TRIGGERS as f64).sqrt();
        for (name, found) in [
            ("refused", dead.refused_fraction()),
            ("busy", dead.busy_fraction()),
        ] {
            assert!(
                (found - expected).abs() < tolerance,
                "{name} with {service_us} us, {buffers} buffers, seed {seed}: {found}, \
                 expected {expected} +- {tolerance}"
            );
        }
    }
}
