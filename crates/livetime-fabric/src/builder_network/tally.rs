//! Counters of a running builder.

use livetime_wire::DurationNs;

use super::outcome::BatchCounts;
use crate::network::measure::BATCHES;
use crate::network::{Latencies, Load};
use crate::time::{DurationPs, SimPs};

/// Significant digits of percentiles.
const LATENCY_DIGITS: u8 = 3;

/// Counters; what they mean is in [`super::BuilderNetworkOutcome`].
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) batch: DurationPs,
    /// The end of the batch that is on, and its number from 1; 0 before the first one. Time goes
    /// forward, so that no moment needs a division to find its batch.
    batch_end: SimPs,
    batch_on: usize,
    pub(super) batches: Vec<BatchCounts>,
    counts_from: SimPs,
    /// Payload of the events that went through their filters while counting, in words, and what came
    /// over the links of the builder units in the same time, in bytes.
    pub(super) words: u64,
    pub(super) carried: u64,
    pub(super) built: u64,
    pub(super) incomplete: u64,
    pub(super) refused: u64,
    pub(super) sent: u64,
    pub(super) delivered: u64,
    pub(super) withdrawn: u64,
    pub(super) lost: u64,
    pub(super) packets: u64,
    pub(super) packets_lost: u64,
    pub(super) packets_damaged: u64,
    pub(super) messages: u64,
    /// Units that died, those whose death was found, and those that began again.
    pub(super) builders_dead: u32,
    pub(super) builders_found_dead: u32,
    pub(super) builders_back: u32,
    pub(super) readouts_dead: u32,
    pub(super) readouts_back: u32,
    pub(super) manager_restarts: u32,
    /// What units had counted in lives that are over: events that they gave up, and that others built,
    /// and fragments that were asked for again.
    pub(super) gave_up: u64,
    pub(super) reassigned: u64,
    pub(super) sent_again: u64,
    /// When the last event went through its filter, and the longest time without one while counting.
    built_at: SimPs,
    longest_gap: DurationPs,
    pub(super) latency_ns: Latencies,
    pub(super) skew_ns: Latencies,
}

impl Tally {
    pub(super) fn new(load: &Load) -> Self {
        let times = Latencies::with_digits(LATENCY_DIGITS);
        Self {
            batch: DurationPs((load.duration.0 / BATCHES as u64).max(1)),
            batch_end: SimPs::ZERO + load.warm_up,
            batch_on: 0,
            batches: vec![BatchCounts::default(); BATCHES],
            counts_from: SimPs::ZERO + load.warm_up,
            words: 0,
            carried: 0,
            built: 0,
            incomplete: 0,
            refused: 0,
            sent: 0,
            delivered: 0,
            withdrawn: 0,
            lost: 0,
            packets: 0,
            packets_lost: 0,
            packets_damaged: 0,
            messages: 0,
            builders_dead: 0,
            builders_found_dead: 0,
            builders_back: 0,
            readouts_dead: 0,
            readouts_back: 0,
            manager_restarts: 0,
            gave_up: 0,
            reassigned: 0,
            sent_again: 0,
            built_at: SimPs::ZERO,
            longest_gap: DurationPs::ZERO,
            latency_ns: times.clone(),
            skew_ns: times,
        }
    }

    /// Payload bytes of what is counted, where the links carry so many in this time. An event counts whole
    /// when it is through: of the first ones some came before. If that is seen, since they are more than
    /// the links carry, what came in this time counts.
    pub(super) fn payload(&self, links_carry: f64) -> f64 {
        let through = 4.0 * self.words as f64;
        match through > links_carry {
            true => self.carried as f64,
            false => through,
        }
    }

    /// Events per second of each batch that is over after so much counted time.
    pub(super) fn rates(&self, counted: DurationPs) -> Vec<f64> {
        let over = (counted.0 / self.batch.0) as usize;
        let batch_s = self.batch.0 as f64 * 1e-12;
        let batches = self.batches.iter().take(over);
        batches.map(|batch| batch.built as f64 / batch_s).collect()
    }

    /// The batch of now; `None` outside of them.
    #[inline]
    fn batch_mut(&mut self, now: SimPs) -> Option<&mut BatchCounts> {
        while now > self.batch_end {
            self.batch_on += 1;
            self.batch_end = match self.batch_on > BATCHES {
                true => SimPs::MAX,
                false => self.batch_end + self.batch,
            };
        }
        self.batches.get_mut(self.batch_on.checked_sub(1)?)
    }

    /// Counts a trigger, refused or not.
    pub(super) fn offer(&mut self, now: SimPs, is_refused: bool) {
        self.refused += u64::from(is_refused);
        if let Some(batch) = self.batch_mut(now) {
            batch.offered += 1;
            batch.refused += u64::from(is_refused);
        }
    }

    /// Counts fragments that come to a builder unit.
    pub(super) fn receive(&mut self, now: SimPs, fragments: u64) {
        self.delivered += fragments;
        if let Some(batch) = self.batch_mut(now) {
            batch.fragments += fragments;
        }
    }

    /// Counts payload that came to a builder unit over its link in the last `time`: of what began to come
    /// before the counting a share.
    #[inline]
    pub(super) fn carry(&mut self, now: SimPs, time: DurationPs, payload: u64) {
        let counted = now - self.counts_from;
        self.carried += match counted < time {
            false => payload,
            true => (u128::from(payload) * u128::from(counted.0) / u128::from(time.0)) as u64,
        };
    }

    /// Counts a packet that a readout unit sends.
    pub(super) fn send(&mut self, now: SimPs) {
        self.packets += 1;
        if let Some(batch) = self.batch_mut(now) {
            batch.packets += 1;
        }
    }

    /// Counts a packet that is lost.
    pub(super) fn lose(&mut self, now: SimPs) {
        self.packets_lost += 1;
        if let Some(batch) = self.batch_mut(now) {
            batch.packets_lost += 1;
        }
    }

    /// Longest time without an event through its filter, up to the end of the run.
    pub(super) fn longest_gap(&self, end: SimPs) -> DurationPs {
        self.longest_gap.max(end - self.built_at)
    }

    /// Counts an event that went through its filter; whether that was after the warm-up.
    pub(super) fn count(
        &mut self,
        now: SimPs,
        words: u64,
        latency_ns: u64,
        skew: DurationNs,
    ) -> bool {
        let since = std::mem::replace(&mut self.built_at, now);
        let Some(batch) = self.batch_mut(now) else {
            return false;
        };
        batch.built += 1;
        self.longest_gap = self.longest_gap.max(now - since);
        self.words += words;
        self.latency_ns.record(latency_ns.max(1));
        self.skew_ns.record(skew.0.max(1));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Pattern, SizeLaw, Traffic};

    #[test]
    fn a_batch_has_all_up_to_its_end_and_nothing_after_the_last() {
        let traffic = Traffic::new(Pattern::Uniform);
        let load = Load {
            warm_up: DurationPs(100),
            duration: DurationPs(10 * BATCHES as u64),
            ..Load::saturated(traffic, SizeLaw::Fixed(64), 1)
        };
        let mut tally = Tally::new(&load);
        let end = 100 + 10 * BATCHES as u64;
        for at in [0, 100, 101, 110, 111, 135, 135, end, end + 1, u64::MAX] {
            tally.send(SimPs(at));
        }
        let mut packets = [0; BATCHES];
        (packets[0], packets[1], packets[3], packets[BATCHES - 1]) = (2, 1, 2, 1);
        let counted: Vec<u64> = tally.batches.iter().map(|batch| batch.packets).collect();
        assert_eq!(counted, packets);
        assert_eq!(tally.packets, 10);
    }

    #[test]
    fn of_what_began_to_come_before_the_counting_a_share_is_counted() {
        let traffic = Traffic::new(Pattern::Uniform);
        let load = Load {
            warm_up: DurationPs(100),
            ..Load::saturated(traffic, SizeLaw::Fixed(64), 1)
        };
        let mut tally = Tally::new(&load);
        let mut carried = |at, payload| {
            tally.carry(SimPs(at), DurationPs(40), payload);
            tally.carried
        };
        assert_eq!([carried(60, 8), carried(100, 8)], [0, 0]);
        assert_eq!([carried(110, 9), carried(140, 8)], [2, 10]);
        assert_eq!(carried(1_000, 8), 18);
        tally.words = 5;
        assert_eq!([20.0, 19.0].map(|most| tally.payload(most)), [20.0, 18.0]);
    }
}
