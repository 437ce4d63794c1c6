//! Counters that a role publishes and everybody may read while the run goes on.
//!
//! Cores count in plain integers; after a duty cycle with work the role copies them here with
//! relaxed stores. A reader gets each counter whole but not all of one instant, which is why the
//! equations of `livetime_wire::count` are claimed only after drain. It computes no rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use livetime_wire::{ChainCounts, LossCause, LossCounts};

const COUNTS: usize = 15;
const LOSSES: usize = LossCause::ALL.len();

/// Values that go up and down, for the live summary and for the end of the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gauges {
    /// 1 when the role holds nothing that is still to be passed on.
    pub idle: u64,
    /// Payload bytes that passed since the start.
    pub bytes: u64,
    /// Fragments, events or triggers held at present.
    pub held: u64,
    /// The bound of `held`.
    pub held_max: u64,
    /// Time in which the role refused its input (XOFF, full Level-2 buffers) [ns].
    pub busy_ns: u64,
    /// Sum of the latencies recorded [ns].
    pub latency_sum_ns: u64,
    /// Latencies recorded.
    pub latency_count: u64,
    /// Largest latency recorded [ns].
    pub latency_max_ns: u64,
    /// Events received by this role.
    pub received: u64,
}

/// What a role publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoleCounts {
    /// Its share of the chain's counters.
    pub chain: ChainCounts,
    /// Its losses by cause.
    pub losses: LossCounts,
    /// Its gauges.
    pub gauges: Gauges,
}

const GAUGES: usize = 9;

/// The shared memory of one role's counters.
#[derive(Debug)]
pub struct CounterBlock {
    words: [AtomicU64; COUNTS + LOSSES + GAUGES],
}

impl CounterBlock {
    /// All counters zero.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            words: [const { AtomicU64::new(0) }; COUNTS + LOSSES + GAUGES],
        })
    }

    /// Publishes; only the role itself calls this.
    pub fn publish(&self, counts: &RoleCounts) {
        let chain = counts.chain.entries().into_iter().map(|(_, value)| value);
        let losses = counts.losses.iter().map(|(_, value)| value);
        let gauges = counts.gauges.to_array();
        for (word, value) in self.words.iter().zip(chain.chain(losses).chain(gauges)) {
            // Relaxed: each counter stands for itself; the readers claim nothing about pairs.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads all counters.
    pub fn read(&self) -> RoleCounts {
        let value = |index: usize| self.words[index].load(Ordering::Relaxed);
        let mut losses = LossCounts::new();
        for (index, cause) in LossCause::ALL.iter().enumerate() {
            losses.add(*cause, value(COUNTS + index));
        }
        RoleCounts {
            chain: ChainCounts::from_values(std::array::from_fn(value)),
            losses,
            gauges: Gauges::from_array(std::array::from_fn(|i| value(COUNTS + LOSSES + i))),
        }
    }
}

impl Gauges {
    fn to_array(self) -> [u64; GAUGES] {
        [
            self.idle,
            self.bytes,
            self.held,
            self.held_max,
            self.busy_ns,
            self.latency_sum_ns,
            self.latency_count,
            self.latency_max_ns,
            self.received,
        ]
    }

    fn from_array(values: [u64; GAUGES]) -> Self {
        let [
            idle,
            bytes,
            held,
            held_max,
            busy_ns,
            sum,
            count,
            max,
            received,
        ] = values;
        Self {
            idle,
            bytes,
            held,
            held_max,
            busy_ns,
            latency_sum_ns: sum,
            latency_count: count,
            latency_max_ns: max,
            received,
        }
    }

    /// Records one latency.
    pub fn record_latency(&mut self, ns: u64) {
        self.latency_sum_ns = self.latency_sum_ns.saturating_add(ns);
        self.latency_count += 1;
        self.latency_max_ns = self.latency_max_ns.max(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read() {
        let block = CounterBlock::new();
        assert_eq!(block.read(), RoleCounts::default());
        let mut counts = RoleCounts::default();
        counts.chain.offered = 1;
        counts.chain.events_stored = 15;
        counts.losses.add(LossCause::DecisionTimeout, 16);
        counts.losses.add(LossCause::StoreAborted, 17);
        counts.gauges.idle = 1;
        counts.gauges.received = 42;
        counts.gauges.record_latency(7);
        block.publish(&counts);
        assert_eq!(block.read(), counts);
    }
}
