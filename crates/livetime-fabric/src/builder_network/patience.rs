//! For how long nothing may be built although something is open, before that is a bug.
//!
//! Units wait for timeouts, filters and the dead; messages wait for the control network and for
//! processors, behind all others that may be before them. What waits for longer than twice the sum
//! of all of these waits for nothing. The sum is a bound, and far above what a good setting has.

use livetime_builder::{BuildMode, BuilderConfig};
use livetime_wire::DurationNs;

use super::{BuilderNetwork, MTU};
use crate::time::DurationPs;

/// Messages that come one after the other until an event is built and the next one is assigned,
/// some to spare: assignment, request, that of a second step, return of the credit.
const MESSAGES_IN_A_ROW: u64 = 8;
/// Messages of an event manager for an event: assignment, return of the credit, question and answer
/// after one that is late.
const MANAGER_MESSAGES: u64 = 4;

impl BuilderNetwork {
    /// For so long nothing may be built while something is open, with so many readout and builder
    /// units.
    pub(super) fn patience(&self, readouts: u64, builders: u32) -> DurationPs {
        let slow = self.sick.slow_factor.max(1.0);
        let event = DurationPs((self.hosts.event.0 as f64 * slow) as u64);
        let silence = match self.sick.heartbeat() {
            DurationNs(0) => DurationNs(0),
            _ => BuilderConfig::default().dead,
        };
        let given_up = DurationNs(self.timeout.0.saturating_add(silence.0));
        let waits = DurationPs::from_duration_ns(given_up) + event;
        let looks = self.hosts.interval * MESSAGES_IN_A_ROW;
        (waits + looks + self.messages_time(readouts, builders)) * 2
    }

    /// What messages take at most that are before the one by which an event is built or assigned.
    fn messages_time(&self, readouts: u64, builders: u32) -> DurationPs {
        let (_, bits_per_s, latency) = self.control.parts();
        // Every message fits into the least packet.
        let on_link = DurationPs::for_bits(8 * u64::from(*MTU.start()), bits_per_s);
        let each = self.hosts.message + on_link;
        let times = 1 + self.timeout.0 / self.retry.0.max(1);
        let fragments = readouts
            .saturating_mul(u64::from(self.credits))
            .saturating_mul(times);
        // A fragment is asked for and released.
        let of_builder = each * 2 + self.hosts.fragment;
        let told = match self.mode {
            BuildMode::Push => readouts,
            BuildMode::Pull => 0,
        };
        let of_manager = u64::from(self.open_max(builders)).saturating_mul(MANAGER_MESSAGES + told);
        latency * MESSAGES_IN_A_ROW + of_builder * fragments + each * of_manager
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Control, HostModel};
    use super::*;
    use crate::network::{Arrival, Load, Pattern, SizeLaw, Topology, Traffic};
    use crate::scenario::Switching;

    fn load(seconds: u64) -> Load {
        load_at(DurationPs::from_ms(1), seconds)
    }

    fn load_at(interval: DurationPs, seconds: u64) -> Load {
        let mut load = Load::saturated(Traffic::new(Pattern::Uniform), SizeLaw::Fixed(2048), 1);
        load.arrival = Arrival::Fixed { interval };
        load.duration = DurationPs::from_ms(1_000 * seconds);
        load
    }

    fn control(latency_ms: u64) -> Control {
        Control::Separate {
            bits_per_s: 1_000_000_000,
            latency: DurationPs::from_ms(latency_ms),
        }
    }

    fn violations(plan: &BuilderNetwork, load: &Load) -> Vec<String> {
        let topology = Topology::crossbar(4).unwrap();
        assert_eq!(plan.validate(&topology, load, &Switching::Wormhole, 1), []);
        let outcome = plan.run(&topology, load, &Switching::Wormhole, 1);
        assert!(outcome.has_all_fragments());
        outcome.violations
    }

    #[test]
    fn what_is_slow_is_no_broken_promise() {
        let far = BuilderNetwork {
            credits: 64,
            control: control(4_500),
            ..BuilderNetwork::default()
        };
        let hasty = BuilderNetwork {
            timeout: DurationNs(20 * DurationNs::MILLISECOND.0),
            retry: DurationNs::MILLISECOND,
            control: control(100),
            ..BuilderNetwork::default()
        };
        let narrow = BuilderNetwork {
            control: Control::Separate {
                bits_per_s: 1_000,
                latency: DurationPs::from_us(10),
            },
            ..BuilderNetwork::default()
        };
        let mut slow = BuilderNetwork::default();
        slow.hosts.message = DurationPs::from_ms(1_000);
        let mut late = BuilderNetwork::default();
        late.hosts.fragment = DurationPs::from_ms(10_000);
        let mut pushed = BuilderNetwork {
            mode: BuildMode::Push,
            ..BuilderNetwork::default()
        };
        pushed.hosts.message = DurationPs::from_ms(1_000);
        for plan in [far, hasty, narrow, slow, late, pushed] {
            assert_eq!(violations(&plan, &load(600)), [""; 0], "{plan:?}");
        }
    }

    /// A batch is a little longer than a second: each look comes ever later after a trigger, and from one
    /// event to the next there is more time than any of them may take.
    #[test]
    fn triggers_that_are_rare_are_no_broken_promise() {
        let mut plan = BuilderNetwork {
            timeout: DurationNs(20 * DurationNs::MILLISECOND.0),
            retry: DurationNs::MILLISECOND,
            ..BuilderNetwork::default()
        };
        plan.hosts.event = DurationPs::from_ms(300);
        let second = DurationPs::from_ms(1_000);
        assert!(plan.patience(4, 4) < second);
        assert_eq!(violations(&plan, &load_at(second, 33)), [""; 0]);
    }

    #[test]
    fn what_takes_no_time_is_waited_for_little_longer_than_what_is_given_up() {
        let plan = BuilderNetwork {
            hosts: HostModel::default(),
            ..BuilderNetwork::default()
        };
        let patience = plan.patience(64, 64);
        let given_up = DurationPs::from_duration_ns(plan.timeout) * 2;
        assert!(
            given_up < patience && patience < given_up + given_up,
            "{patience}"
        );
    }

    /// Who is not heard for 500 ms is dead, and a sign of life comes every 100 ms.
    #[test]
    fn units_that_die_are_heard_while_they_live() {
        let topology = Topology::crossbar(4).unwrap();
        let paths = |latency_ms, units| {
            let mut plan = BuilderNetwork {
                control: control(latency_ms),
                ..BuilderNetwork::default()
            };
            plan.sick.builders.units = units;
            let problems = plan.validate(&topology, &load(3), &Switching::Wormhole, 1);
            let paths = problems.into_iter().map(|problem| problem.path);
            paths.collect::<Vec<_>>()
        };
        assert_eq!(paths(400, 0), [""; 0]);
        assert_eq!(paths(399, 1), [""; 0]);
        assert_eq!(paths(400, 1), ["builder.control_latency"]);
        let mut plan = BuilderNetwork {
            control: control(399),
            ..BuilderNetwork::default()
        };
        plan.sick.builders.units = 1;
        plan.sick.builders.at = DurationPs::from_ms(2_000);
        let outcome = plan.run(&topology, &load(30), &Switching::Wormhole, 1);
        assert_eq!(outcome.violations, [""; 0]);
        assert_eq!(outcome.builders_found_dead, 1);
    }
}
