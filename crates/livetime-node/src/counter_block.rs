//! Counters that a role publishes and everybody may read while the run goes on.
//!
//! Cores count in plain integers; after a duty cycle with work the role copies them here. A reader
//! gets the counters of one role as of one publication, those of different roles not of one
//! instant, which is why the equations of `livetime_wire::count` are claimed only after drain. The
//! words may lie in memory shared with other processes. It computes no rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use livetime_shm::SharedWords;
use livetime_wire::{ChainCounts, LossCause, LossCounts, TriggerNumber};

/// Looks at a block that changes under the reader.
const READ_ATTEMPTS: usize = 8;
const COUNTS: usize = 15;
const LOSSES: usize = LossCause::ALL.len();

/// Values that go up and down, for the live summary and for the end of the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gauges {
    /// 1 when the role holds nothing that is still to be passed on.
    pub idle: u64,
    /// Payload bytes that passed since the start.
    pub bytes: u64,
    /// Fragments, events or triggers held at present. Of a role that is idle, fragments of which nothing
    /// more can come: at a front-end those of which the other ends of their links say nothing any more,
    /// at a readout unit those of triggers behind `newest`.
    pub held: u64,
    /// The bound of `held`.
    pub held_max: u64,
    /// Time in which the role refused its input (XOFF, full Level-2 buffers) \[ns\].
    pub busy_ns: u64,
    /// Sum of the latencies recorded \[ns\].
    pub latency_sum_ns: u64,
    /// Latencies recorded.
    pub latency_count: u64,
    /// Largest latency recorded \[ns\].
    pub latency_max_ns: u64,
    /// Events received by this role.
    pub received: u64,
    /// Events of this role that others are through with.
    pub done: u64,
    /// 1 when the role cannot do its work any more; of a trigger node, when it records no packets any
    /// more.
    pub failed: u64,
    /// 1 while the writer, or the record of trigger packets, has no room on the disk.
    pub disk_full: u64,
    /// Incomplete events among those that a filter unit has judged, or of a builder unit those that
    /// others are through with.
    pub incomplete: u64,
    /// Fragments in them.
    pub fragments_in_incomplete: u64,
    /// Fragments in all events that a filter unit has judged, or that others are through with.
    pub fragments: u64,
    /// Offers that came outside the trigger gate or in a pause, which is no dead time.
    pub refused_outside: u64,
    /// Time in which the interpreter of a filter unit was loading or had a question, within its
    /// limits \[ns\]: while it grows, the filter is at work and not stuck.
    pub filter_work_ns: u64,
    /// The newest trigger that a readout unit was told of.
    pub newest: u64,
    /// 1 when a front-end has come to the end of its run: it gives no more triggers.
    pub ended: u64,
    /// Sources of front-ends of users that hold up the run.
    pub awaited: u64,
    /// The first of them, where there are some.
    pub first_awaited: u64,
    /// Sources that were waited for in vain and have sent nothing since.
    pub silent: u64,
    /// The first of them, where there are some.
    pub first_silent: u64,
    /// Events that the filter of a filter unit failed on; they are in the error stream.
    pub filter_failures: u64,
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

const GAUGES: usize = 24;
/// Words of the counters of a role.
pub const COPY: usize = COUNTS + LOSSES + GAUGES;

/// The shared memory of one role's counters: twice, so that there is always a whole one.
///
/// ```text
/// word 0       number of publications; its lowest bit says which copy is the last whole one
///      1..     first copy: counters, losses, gauges
///      1+COPY  second copy
///      last    the event that a filter unit is working on, 0 for none
/// ```
#[derive(Debug)]
pub struct CounterBlock {
    words: SharedWords,
    first: usize,
}

impl CounterBlock {
    /// Words of a block, a multiple of two cache lines.
    pub const WORDS: usize = (2 + 2 * COPY).next_multiple_of(16);

    /// All counters zero, for threads of this process.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            words: SharedWords::on_heap(Self::WORDS),
            first: 0,
        })
    }

    /// The block at `first` of shared words; `None` when it does not fit.
    #[inline]
    pub fn at(words: &SharedWords, first: usize) -> Option<Arc<Self>> {
        let end = first.checked_add(Self::WORDS)?;
        let words = words.clone();
        (end <= words.words().len()).then(|| Arc::new(Self { words, first }))
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &self.words.words()[self.first..self.first + Self::WORDS]
    }

    /// Publishes; only the role itself calls this. A role that is killed in here leaves the
    /// counters of its publication before.
    pub fn publish(&self, counts: &RoleCounts) {
        let words = self.words();
        // Relaxed: only this thread writes it.
        let sequence = words[0].load(Ordering::Relaxed).wrapping_add(1);
        let copy = &words[copy_of(sequence)..][..COPY];
        let (chain, copy) = copy.split_at(COUNTS);
        let (losses, gauges) = copy.split_at(LOSSES);
        // Pairs with the fence in `read`: who finds a word of this publication in a copy that it reads
        // finds the one before published, too, and reads again.
        fence(Ordering::Release);
        let store = |words: &[AtomicU64], values: &[u64]| {
            for (word, value) in words.iter().zip(values) {
                // Relaxed: covered by the Release below.
                word.store(*value, Ordering::Relaxed);
            }
        };
        store(chain, &counts.chain.entries().map(|(_, value)| value));
        store(losses, counts.losses.values());
        store(gauges, &counts.gauges.to_array());
        // Release pairs with the Acquire in `read`.
        words[0].store(sequence, Ordering::Release);
    }

    /// Notes the event that this role works on from now on, `None` for none: so that whoever finds
    /// the role hung or dead knows of which event. Only the role itself calls this.
    #[inline]
    pub fn note_event(&self, trigger: Option<TriggerNumber>) {
        let word = &self.words()[Self::WORDS - 1];
        // Relaxed: it orders nothing, and a dead role's last store is there to be read.
        word.store(trigger.map_or(0, |trigger| trigger.0), Ordering::Relaxed);
    }

    /// The event that the role works on, or worked on when it died.
    #[inline]
    pub fn event_in_work(&self) -> Option<TriggerNumber> {
        let trigger = self.words()[Self::WORDS - 1].load(Ordering::Relaxed);
        (trigger != 0).then_some(TriggerNumber(trigger))
    }

    /// Reads all counters of one publication. Under many publications in a row it may give up and
    /// mix two; a role that is idle or gone is read exactly.
    pub fn read(&self) -> RoleCounts {
        let words = self.words();
        let mut values = [0; COPY];
        for _ in 0..READ_ATTEMPTS {
            // Acquire pairs with the Release in `publish`.
            let sequence = words[0].load(Ordering::Acquire);
            let copy = &words[copy_of(sequence)..];
            for (value, word) in values.iter_mut().zip(copy) {
                *value = word.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            // Relaxed: ordered by the fence. Only the publication after the next writes this copy.
            if words[0].load(Ordering::Relaxed) == sequence {
                break;
            }
        }
        RoleCounts::from_words(values)
    }
}

impl RoleCounts {
    /// The counters as words, so that another host can have them.
    pub fn to_words(&self) -> [u64; COPY] {
        let (chain, gauges) = (self.chain.entries(), self.gauges.to_array());
        let losses = self.losses.values();
        std::array::from_fn(|i| match i {
            i if i < COUNTS => chain[i].1,
            i if i < COUNTS + LOSSES => losses[i - COUNTS],
            i => gauges[i - COUNTS - LOSSES],
        })
    }

    /// The counters of [`RoleCounts::to_words`].
    pub fn from_words(values: [u64; COPY]) -> Self {
        let mut losses = LossCounts::new();
        for (index, cause) in LossCause::ALL.iter().enumerate() {
            losses.add(*cause, values[COUNTS + index]);
        }
        Self {
            chain: ChainCounts::from_values(std::array::from_fn(|i| values[i])),
            losses,
            gauges: Gauges::from_array(std::array::from_fn(|i| values[COUNTS + LOSSES + i])),
        }
    }
}

/// Where the copy of a publication begins.
#[inline]
fn copy_of(sequence: u64) -> usize {
    1 + (sequence & 1) as usize * COPY
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
            self.done,
            self.failed,
            self.disk_full,
            self.incomplete,
            self.fragments_in_incomplete,
            self.fragments,
            self.refused_outside,
            self.filter_work_ns,
            self.newest,
            self.ended,
            self.awaited,
            self.first_awaited,
            self.silent,
            self.first_silent,
            self.filter_failures,
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
            done,
            failed,
            disk_full,
            incomplete,
            fragments_in_incomplete,
            fragments,
            refused_outside,
            filter_work_ns,
            newest,
            ended,
            awaited,
            first_awaited,
            silent,
            first_silent,
            filter_failures,
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
            done,
            failed,
            disk_full,
            incomplete,
            fragments_in_incomplete,
            fragments,
            refused_outside,
            filter_work_ns,
            newest,
            ended,
            awaited,
            first_awaited,
            silent,
            first_silent,
            filter_failures,
        }
    }

    /// Records one latency.
    #[inline]
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
        (counts.gauges.done, counts.gauges.failed) = (5, 1);
        counts.gauges.disk_full = 1;
        (counts.gauges.newest, counts.gauges.ended) = (99, 1);
        (counts.gauges.awaited, counts.gauges.first_awaited) = (3, 70);
        (counts.gauges.silent, counts.gauges.first_silent) = (2, 71);
        counts.gauges.filter_failures = 4;
        (counts.gauges.incomplete, counts.gauges.refused_outside) = (6, 33);
        (
            counts.gauges.fragments_in_incomplete,
            counts.gauges.fragments,
        ) = (17, 90);
        block.note_event(Some(TriggerNumber(u64::MAX)));
        block.publish(&counts);
        block.publish(&counts);
        assert_eq!(block.read(), counts);
        assert_eq!(block.event_in_work(), Some(TriggerNumber(u64::MAX)));
        block.note_event(None);
        assert_eq!(block.event_in_work(), None);
        assert_eq!(block.read(), counts);
    }

    #[test]
    fn blocks_share_words_and_must_fit() {
        let words = SharedWords::on_heap(2 * CounterBlock::WORDS + 5);
        let first = CounterBlock::at(&words, 5).unwrap();
        let second = CounterBlock::at(&words, 5 + CounterBlock::WORDS).unwrap();
        assert!(CounterBlock::at(&words, 6 + CounterBlock::WORDS).is_none());
        assert!(CounterBlock::at(&words, usize::MAX).is_none());
        let mut counts = RoleCounts::default();
        for triggers in 1..4 {
            counts.chain.triggers = triggers;
            first.publish(&counts);
            assert_eq!(first.read(), counts);
            assert_eq!(second.read(), RoleCounts::default());
        }
    }
}
