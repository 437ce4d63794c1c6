//! An event builder on a barrel shifter, slot by slot: requests, blocks, credits, a slow builder.
//!
//! After the CMS demonstrator (Lyon, 2000): readout units divide requested fragments into blocks of
//! fixed size and cycle through all builders in a schedule without conflicts, so a slot takes the
//! block's time and an overhead; a block may hold several fragments or part of one. Requests come
//! in messages of several and cost the adapter time each. The event manager gives events to
//! builders by credits. The fabric itself is not simulated: that the schedule fills it is shown by
//! [`crate::network`]. The protocol is a model of the demonstrator's, not the one of
//! `livetime-builder`.

use std::collections::VecDeque;

use crate::address::NodeId;
use crate::network::SizeLaw;
use crate::random::{Purpose, RandomStreams};
use crate::time::DurationPs;

/// How the event manager chooses a builder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// The builder whose credit came back first.
    OnDemand,
    /// The builders in turn, whatever they have room for.
    InTurn,
}

/// Parameters of the builder; the defaults of [`BarrelBuilder::demonstrator`] are those of the talk.
#[derive(Debug, Clone, PartialEq)]
pub struct BarrelBuilder {
    /// Readout units, and builder units.
    pub nodes: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Rate of a link, bits per second.
    pub link_bits_per_s: u64,
    /// Time of a slot beside the transfer of the block.
    pub slot_overhead: DurationPs,
    /// Time of a readout unit for a message of requests.
    pub message: DurationPs,
    /// Requests in a message.
    pub requests_per_message: u32,
    /// Sizes of fragments.
    pub sizes: SizeLaw,
    /// Events that a builder may have open.
    pub credits: u32,
    /// Assignment.
    pub assignment: Assignment,
    /// How many builders are slow: the first ones.
    pub slow_builders: u32,
    /// They finish events at this share of their rate when all are equal; above 0, 1 for none slow.
    pub slow_share: f64,
    /// Seed of the sizes.
    pub seed: u64,
}

/// What a run gives, over its second half.
#[derive(Debug, Clone, PartialEq)]
pub struct BarrelOutcome {
    /// Bytes of fragments per node and second.
    pub throughput: f64,
    /// Events finished per second.
    pub event_rate_hz: f64,
    /// Share of the blocks' bytes that carried fragments.
    pub fill: f64,
    /// Length of a slot.
    pub slot: DurationPs,
    /// Events finished by a slow builder, as a share of those of one that is not; 1 when all are slow.
    pub slow_builder_share: f64,
    /// Throughput per node in tenths of the run, bytes per second.
    pub series: Vec<f64>,
    /// Fragments requested and delivered, in all: what is missing is in the queues.
    pub fragments: (u64, u64),
    /// Fragments in the queues at the end.
    pub fragments_queued: u64,
}

/// Fragments of a readout unit on their way to one builder: event and bytes still to send.
type FragmentQueue = VecDeque<(u64, u32)>;

/// A request as it waits at a readout unit.
#[derive(Debug, Clone, Copy)]
struct Request {
    since: u64,
    event: u64,
    builder: u32,
    bytes: u32,
}

struct Run<'b> {
    config: &'b BarrelBuilder,
    /// Fragments requested and not yet taken up, by readout unit.
    requests: Vec<VecDeque<Request>>,
    /// Time up to which each readout unit is busy with requests.
    busy_until: Vec<u64>,
    queues: Vec<FragmentQueue>,
    /// Fragments missing of each open event, by builder: (event, missing).
    open: Vec<VecDeque<(u64, u32)>>,
    finishing: Vec<VecDeque<u64>>,
    /// Builders with a credit to give, in the order in which they came back.
    credits: VecDeque<u32>,
    credits_of: Vec<u32>,
    next_builder: u32,
    next_event: u64,
    requested: u64,
    delivered: u64,
    delivered_bytes: u64,
    finished: Vec<u64>,
}

impl BarrelBuilder {
    /// The demonstrator with `nodes` readout units and as many builders.
    pub fn demonstrator(nodes: u32, sizes: SizeLaw) -> Self {
        Self {
            nodes,
            block_bytes: 4096,
            link_bits_per_s: 1_280_000_000,
            slot_overhead: DurationPs::from_ns(3_040),
            message: DurationPs::from_us(12),
            requests_per_message: 4,
            sizes,
            credits: 256,
            assignment: Assignment::OnDemand,
            slow_builders: 1,
            slow_share: 1.0,
            seed: 1,
        }
    }

    /// Length of a slot.
    pub fn slot(&self) -> DurationPs {
        DurationPs::for_bits(u64::from(self.block_bytes) * 8, self.link_bits_per_s)
            + self.slot_overhead
    }

    /// Runs so many slots; there is always a next event.
    ///
    /// # Panics
    /// For no nodes, no credits or no requests in a message.
    pub fn run(&self, slots: u64) -> BarrelOutcome {
        assert!(self.nodes > 0 && self.credits > 0 && self.requests_per_message > 0);
        let slot = self.slot();
        let mut run = Run::new(self);
        let mut marks = Vec::with_capacity(11);
        let mut events = Vec::with_capacity(11);
        for step in 0..slots {
            if step % (slots / 10).max(1) == 0 {
                marks.push(run.delivered_bytes);
                events.push(run.finished.clone());
            }
            run.step(step, slot);
        }
        marks.truncate(10);
        marks.push(run.delivered_bytes);
        let tenth = slot.0 as f64 * 1e-12 * (slots / 10).max(1) as f64;
        let nodes = f64::from(self.nodes);
        let series: Vec<f64> = marks
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64 / tenth / nodes)
            .collect();
        let half = &series[series.len() / 2..];
        let throughput = half.iter().sum::<f64>() / half.len() as f64;
        let before = &events[events.len() / 2];
        let done: Vec<f64> = run
            .finished
            .iter()
            .zip(before)
            .map(|(end, start)| (end - start) as f64)
            .collect();
        let (slow, others) = done.split_at(self.slow_builders.min(self.nodes) as usize);
        let mean = |done: &[f64]| done.iter().sum::<f64>() / done.len().max(1) as f64;
        let block_rate = f64::from(self.block_bytes) / (slot.0 as f64 * 1e-12);
        BarrelOutcome {
            throughput,
            event_rate_hz: done.iter().sum::<f64>() / (tenth * half.len() as f64),
            fill: throughput / block_rate,
            slot,
            slow_builder_share: if slow.is_empty() || others.is_empty() {
                1.0
            } else {
                mean(slow) / mean(others).max(1.0)
            },
            series,
            fragments: (run.requested, run.delivered),
            fragments_queued: run.queued(),
        }
    }
}

impl<'b> Run<'b> {
    fn new(config: &'b BarrelBuilder) -> Self {
        let n = config.nodes as usize;
        let mut run = Self {
            config,
            requests: vec![VecDeque::new(); n],
            busy_until: vec![0; n],
            queues: vec![VecDeque::new(); n * n],
            open: vec![VecDeque::new(); n],
            finishing: vec![VecDeque::new(); n],
            credits: VecDeque::new(),
            credits_of: vec![config.credits; n],
            next_builder: 0,
            next_event: 0,
            requested: 0,
            delivered: 0,
            delivered_bytes: 0,
            finished: vec![0; n],
        };
        for _ in 0..config.credits {
            run.credits.extend(0..config.nodes);
        }
        run.assign(0);
        run
    }

    fn queued(&self) -> u64 {
        let requests: usize = self.requests.iter().map(VecDeque::len).sum();
        let queues: usize = self.queues.iter().map(VecDeque::len).sum();
        (requests + queues) as u64
    }

    /// Gives events to builders as long as there are credits.
    fn assign(&mut self, now: u64) {
        loop {
            let builder = match self.config.assignment {
                Assignment::OnDemand => match self.credits.pop_front() {
                    Some(builder) => builder,
                    None => return,
                },
                Assignment::InTurn => {
                    if self.credits_of[self.next_builder as usize] == 0 {
                        return;
                    }
                    self.next_builder
                }
            };
            self.credits_of[builder as usize] -= 1;
            self.next_builder = (builder + 1) % self.config.nodes;
            let event = self.next_event;
            self.next_event += 1;
            self.open[builder as usize].push_back((event, self.config.nodes));
            let streams = RandomStreams::new(self.config.seed);
            let mut sizes = streams.stream(NodeId(event as u32), Purpose(17));
            for unit in 0..self.config.nodes {
                let bytes = self.config.sizes.draw(unit, event, &mut sizes);
                self.requests[unit as usize].push_back(Request {
                    since: now,
                    event,
                    builder,
                    bytes,
                });
                self.requested += 1;
            }
        }
    }

    fn step(&mut self, step: u64, slot: DurationPs) {
        let n = u64::from(self.config.nodes);
        let (start, end) = (step * slot.0, (step + 1) * slot.0);
        let per_request = self.config.message.0 / u64::from(self.config.requests_per_message);
        for unit in 0..self.config.nodes as usize {
            // Requests that are worked off before the slot begins go into this block at the latest.
            while let Some(request) = self.requests[unit].front().copied() {
                let done = self.busy_until[unit].max(request.since) + per_request;
                if done > start {
                    break;
                }
                self.busy_until[unit] = done;
                self.requests[unit].pop_front();
                let queue = unit * n as usize + request.builder as usize;
                self.queues[queue].push_back((request.event, request.bytes));
            }
            let builder = ((unit as u64 + step) % n) as usize;
            self.send_block(unit, builder);
        }
        for builder in 0..n as usize {
            self.finish(builder, end);
        }
        self.assign(end);
    }

    /// Fills a block with what is queued for a builder.
    fn send_block(&mut self, unit: usize, builder: usize) {
        let mut room = self.config.block_bytes;
        let queue = &mut self.queues[unit * self.config.nodes as usize + builder];
        while room > 0 {
            let Some((event, left)) = queue.front_mut() else {
                return;
            };
            let bytes = room.min(*left);
            room -= bytes;
            *left -= bytes;
            self.delivered_bytes += u64::from(bytes);
            if *left > 0 {
                return;
            }
            let event = *event;
            queue.pop_front();
            self.delivered += 1;
            let open = &mut self.open[builder];
            let place = open.binary_search_by_key(&event, |(event, _)| *event);
            if let Ok(place) = place {
                open[place].1 -= 1;
            }
        }
    }

    /// Finishes complete events in order; the slow builder needs time for each.
    fn finish(&mut self, builder: usize, now: u64) {
        let config = self.config;
        while self.open[builder]
            .front()
            .is_some_and(|(_, missing)| *missing == 0)
        {
            self.open[builder].pop_front();
            let ready = if (builder as u32) < config.slow_builders && config.slow_share < 1.0 {
                // The rate of one builder when all take the same share of full blocks.
                let mean = config.sizes.mean();
                let blocks = mean / f64::from(config.block_bytes) * f64::from(config.nodes);
                let time = blocks * config.slot().0 as f64 / config.slow_share;
                let last = self.finishing[builder].back().copied().unwrap_or(0);
                last.max(now) + time as u64
            } else {
                now
            };
            self.finishing[builder].push_back(ready);
        }
        while self.finishing[builder]
            .front()
            .is_some_and(|ready| *ready <= now)
        {
            self.finishing[builder].pop_front();
            self.finished[builder] += 1;
            self.credits_of[builder] += 1;
            self.credits.push_back(builder as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_fragments_fill_the_blocks_and_small_ones_wait_for_requests() {
        let run = |bytes| {
            let builder = BarrelBuilder::demonstrator(8, SizeLaw::Fixed(bytes));
            let outcome = builder.run(4_000);
            let (requested, delivered) = outcome.fragments;
            assert_eq!(requested, delivered + outcome.fragments_queued);
            outcome
        };
        let large = run(2048);
        assert!((large.throughput / 143e6 - 1.0).abs() < 0.02, "{large:?}");
        let small = run(128);
        let per_fragment_us = 128.0 / small.throughput * 1e6;
        assert!((per_fragment_us / 3.0 - 1.0).abs() < 0.05, "{small:?}");
    }

    #[test]
    fn a_slow_builder_costs_its_share_only_when_events_follow_credits() {
        let run = |assignment| {
            let base = BarrelBuilder::demonstrator(16, SizeLaw::Fixed(2048));
            let with = |slow_share| {
                let builder = BarrelBuilder {
                    assignment,
                    slow_share,
                    credits: 64,
                    ..base.clone()
                };
                builder.run(40_000).throughput
            };
            with(0.5) / with(1.0)
        };
        let demand = run(Assignment::OnDemand);
        assert!(demand >= 0.95, "{demand}");
        let in_turn = run(Assignment::InTurn);
        assert!((in_turn - 0.5).abs() < 0.02, "{in_turn}");
    }
}
