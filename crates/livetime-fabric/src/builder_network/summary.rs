//! What a run comes to: the counters of hosts, networks and units together.

use super::adapter::{Cargo, ends_in};
use super::outcome::BuilderNetworkOutcome;
use super::parts::Parts;
use super::placement::slow_share;
use super::world::NetworkWorld;
use crate::kernel::{RunReport, StopReason};
use crate::network::LinkReport;
use crate::network::measure::{Estimate, fairness};
use crate::time::{DurationPs, SimPs};

/// What there is at the end.
#[derive(Debug, Default)]
struct Held {
    /// Fragments in shapers and on the way.
    in_flight: u64,
    /// Payload in blocks, and all of their bytes.
    blocks: (u64, u64),
    /// Fragments that were asked for again.
    sent_again: u64,
}

/// Packets of a network that stand still for ever.
#[derive(Debug, Clone, Copy)]
struct Deadlock {
    network: usize,
    packets: u64,
    do_others_move: bool,
}

impl NetworkWorld<'_> {
    /// What the hosts and the networks hold, and what their counters say.
    fn held(&self) -> Held {
        let ports = self.topology.destinations() as u16;
        let mut held = Held::default();
        for host in &self.readouts {
            held.in_flight += u64::from(host.kept.is_some());
            held.sent_again += host.unit.counts().fragments_sent_again;
        }
        for adapter in &self.adapters {
            held.in_flight += adapter.waiting(ports);
            let (payload, all) = adapter.block_bytes();
            held.blocks = (held.blocks.0 + payload, held.blocks.1 + all);
        }
        for (cargo, block) in self.cargo.iter().zip(&self.blocks) {
            held.in_flight += match cargo {
                Some(Cargo::Block { .. }) => ends_in(&block.pieces),
                Some(Cargo::Fragment(_)) => 1,
                // Parts are those of fewer fragments.
                Some(Cargo::Part(_) | Cargo::Letter { .. }) | None => 0,
            };
        }
        held.in_flight += self.parts.as_ref().map_or(0, Parts::open);
        held
    }

    /// What links and buffers of the data networks did, if it was counted.
    fn take_link_reports(&mut self, end: SimPs) -> Vec<LinkReport> {
        let data_networks = self.engines[..self.rails].iter_mut();
        data_networks
            .filter_map(|engine| engine.take_link_report(end))
            .collect()
    }

    /// What must hold at the end.
    fn check_end(&mut self, report: &RunReport) {
        let now = report.now;
        if let StopReason::PendingLimit | StopReason::EventLimit = report.stop {
            let waiting = report.pending;
            self.check.report(now, || {
                format!("the run ended before its time: {waiting} events wait, more than are held")
            });
        }
        if !self.manager.is_dead && !self.manager.unit.credits_conserved() {
            self.check
                .report(now, || "credits are not conserved".to_owned());
        }
        let lost: u64 = self.builders.iter().map(|h| h.unit.losses().total()).sum();
        let lost = lost + self.manager.unit.losses().total() + self.tally.gave_up;
        if lost > 0 {
            self.check
                .report(now, || format!("units gave up {lost} events"));
        }
    }

    /// The network that stands still, or the first one in which some packets do so for ever.
    fn deadlock(&self) -> Option<Deadlock> {
        let (found, do_others_move) = match self.deadlocked {
            Some(found) => (found, false),
            None => {
                let engines = self.engines.iter().enumerate();
                let mut still = engines.map(|(n, engine)| (n, engine.standstill().packets));
                (still.find(|(_, packets)| *packets > 0)?, true)
            }
        };
        Some(Deadlock {
            network: found.0,
            packets: found.1,
            do_others_move,
        })
    }

    /// The simulated time that was counted: of a run that ended in a deadlock less than was planned.
    fn counted(&self, end: SimPs) -> DurationPs {
        let (warm_up, planned) = (SimPs::ZERO + self.load.warm_up, self.load.duration);
        match self.deadlocked {
            Some(_) => DurationPs((end - warm_up).0.clamp(1, planned.0.max(1))),
            None => planned,
        }
    }

    /// What the links of a unit carry at most, on all rails.
    fn link_bytes_per_s(&self) -> f64 {
        self.load.link_bits_per_s as f64 / 8.0 * self.rails as f64
    }

    /// The numbers at the end.
    pub(super) fn into_outcome(mut self, report: &RunReport) -> BuilderNetworkOutcome {
        self.check_end(report);
        let held = self.held();
        let links = self.take_link_reports(report.now);
        let counted = self.counted(report.now);
        let (link, seconds) = (self.link_bytes_per_s(), counted.0 as f64 * 1e-12);
        let deadlock = self.deadlock();
        let (tally, sick) = (self.tally, &self.plan.sick);
        let rates = tally.rates(counted);
        let mut event_rate = Estimate::of(&rates);
        event_rate.converged &= deadlock.is_none();
        let of_units: Vec<u64> = self.builders.iter().map(|host| host.counted).collect();
        let units = self.builders.len() as f64;
        let throughput = tally.payload(link * seconds * units) / seconds / units;
        BuilderNetworkOutcome {
            readout_units: self.readouts.len() as u32,
            builder_units: self.builders.len() as u32,
            rails: self.rails as u32,
            event_rate,
            throughput_per_node: throughput,
            // Above 1 by the rounding of the division alone.
            efficiency_link: (throughput / link).min(1.0),
            events_counted: tally.batches.iter().map(|batch| batch.built).sum(),
            events_built: tally.built,
            events_incomplete: tally.incomplete,
            triggers: self.manager.given,
            refused: tally.refused,
            open: self.manager.given - tally.built,
            fragments_sent: tally.sent,
            fragments_delivered: tally.delivered,
            fragments_withdrawn: tally.withdrawn,
            fragments_lost: tally.lost,
            fragments_in_flight: held.in_flight,
            fragments_sent_again: held.sent_again + tally.sent_again,
            packets: tally.packets,
            packets_lost: tally.packets_lost,
            packets_damaged: tally.packets_damaged,
            block_fill: held.blocks.0 as f64 / (held.blocks.1 as f64).max(1.0),
            messages: tally.messages,
            builders_dead: tally.builders_dead,
            builders_found_dead: tally.builders_found_dead,
            builders_back: tally.builders_back,
            readouts_dead: tally.readouts_dead,
            readouts_back: tally.readouts_back,
            manager_restarts: tally.manager_restarts,
            events_reassigned: tally.reassigned + self.manager.unit.counts().reassigned,
            longest_gap: tally.longest_gap(report.now),
            fairness_builders: fairness(&of_units),
            two_step: self.steps.as_ref().map(|steps| steps.outcome(seconds)),
            slow_share: slow_share(&of_units, sick),
            held_max: self.builders.iter().map(|h| h.held_max).max().unwrap_or(0),
            latency_ns: tally.latency_ns,
            skew_ns: tally.skew_ns,
            series: rates,
            batches: tally.batches,
            batch: tally.batch,
            links,
            is_event_too_large: self.check.is_event_too_large(),
            violations: self.check.into_violations(),
            packets_deadlocked: deadlock.map_or(0, |deadlock| deadlock.packets),
            do_others_move: deadlock.is_some_and(|deadlock| deadlock.do_others_move),
            // Behind the rails is the network of shared control messages.
            rail_deadlocked: deadlock.map(|d| d.network).filter(|n| *n < self.rails),
            simulated: report.now,
            events: report.events,
            trace_hash: report.trace_hash,
        }
    }
}
