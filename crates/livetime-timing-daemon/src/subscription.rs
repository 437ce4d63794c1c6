//! One client's place in a sink: its ring or pipe, what is counted of it, and the record that lies
//! ahead of its time.
//!
//! Control makes it with the client's ends; the core's worker holds it in its
//! [`crate::delivery::Delivery`], which says when a record is due.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use livetime_shm::{
    OfferOutcome, OverflowRule, RecordRingConfig, RecordRingError, RecordWriter, RingClosed,
    RingMonitor, WakeGroup, WakeSource, Waker, wake_pair,
};
use livetime_wire::{PriorityClass, RecordFlags, TaiNs, TimingRecord};

use crate::executed_action::{ExecutedAction, saturate};

/// Slots of a ring unless the client asks for others.
pub const RING_SLOTS_USUAL: u32 = 4096;
/// Most slots that a client may ask for: 4 MiB.
pub const RING_SLOTS_MAX: u32 = 1 << 16;
/// Bound after which a record of class high counts as delivered late, unless the client says.
pub const HIGH_BOUND_NS_USUAL: u64 = 1_000_000;
/// Bins of a latency histogram: bin `i` counts from `2^i` ns on, the first also less.
pub const LATENCY_BINS: usize = 40;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionConfig {
    /// Slots of its ring, a power of two from 2 to [`RING_SLOTS_MAX`].
    pub slots: u32,
    /// What happens when it is full.
    pub rule: OverflowRule,
    /// How urgent it is.
    pub class: PriorityClass,
    /// Class high: from the execution of an action to its record; more is counted and flagged.
    pub bound_ns: u64,
    /// Which start of the daemon this is.
    pub epoch: u32,
}

impl SubscriptionConfig {
    fn checked_slots(&self) -> Result<u32, SubscriptionError> {
        let slots = self.slots;
        if !slots.is_power_of_two() || !(2..=RING_SLOTS_MAX).contains(&slots) {
            return Err(SubscriptionError::Slots { slots });
        }
        Ok(slots)
    }

    /// Whether a record that enters the ring so long after its execution is late, ns.
    #[inline]
    fn is_late(&self, delay_ns: u64) -> bool {
        self.class == PriorityClass::High && delay_ns > self.bound_ns
    }
}

impl Default for SubscriptionConfig {
    fn default() -> Self {
        Self {
            slots: RING_SLOTS_USUAL,
            rule: OverflowRule::DropOldest,
            class: PriorityClass::Generic,
            bound_ns: HIGH_BOUND_NS_USUAL,
            epoch: 0,
        }
    }
}

/// What one subscription has counted; written by the core's worker, read by control.
#[derive(Debug)]
pub struct SubscriptionCounters {
    offered: AtomicU64,
    dropped: AtomicU64,
    delivered_late: AtomicU64,
    deferred: AtomicU64,
    wake_ups: AtomicU64,
    unqueued: AtomicU64,
    latency: [AtomicU64; LATENCY_BINS],
}

impl Default for SubscriptionCounters {
    fn default() -> Self {
        Self {
            offered: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            delivered_late: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            wake_ups: AtomicU64::new(0),
            unqueued: AtomicU64::new(0),
            latency: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl SubscriptionCounters {
    /// Records offered, whatever became of them.
    pub fn offered(&self) -> u64 {
        // Relaxed, here and below: figures for people, each word by itself.
        self.offered.load(Ordering::Relaxed)
    }

    /// Records that found the ring or pipe full: overwrote an unread one, or were not written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Records of class high that came later than their bound.
    pub fn delivered_late(&self) -> u64 {
        self.delivered_late.load(Ordering::Relaxed)
    }

    /// Records of class idle that were offered after they had been put off.
    pub fn deferred(&self) -> u64 {
        self.deferred.load(Ordering::Relaxed)
    }

    /// Times that the client was woken.
    pub fn wake_ups(&self) -> u64 {
        self.wake_ups.load(Ordering::Relaxed)
    }

    /// Gaps offered: actions that found no place in the core's queue.
    pub fn unqueued(&self) -> u64 {
        self.unqueued.load(Ordering::Relaxed)
    }

    /// Histogram of the time from execution to the record in the ring.
    pub fn latency(&self) -> [u64; LATENCY_BINS] {
        std::array::from_fn(|bin| self.latency[bin].load(Ordering::Relaxed))
    }

    fn add(counter: &AtomicU64) {
        // One writer: a load and a store are enough, and cheaper than a locked addition.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// How records reach the client.
#[derive(Debug)]
enum Transport {
    Ring {
        writer: RecordWriter,
        waker: Waker,
    },
    /// The compatibility mode `pipe`: one write per record. A full pipe drops the newest.
    Pipe {
        write_end: OwnedFd,
        sequence: u64,
        closed: bool,
    },
}

/// One client's place in a sink, as the core's worker holds it.
#[derive(Debug)]
pub struct Subscription {
    transport: Transport,
    config: SubscriptionConfig,
    counters: Arc<SubscriptionCounters>,
    /// The record that lies in the ring ahead of its time, if there was room for it.
    prepared: Option<Prepared>,
}

/// The next record of a client, made before its time.
#[derive(Debug)]
struct Prepared {
    action: ExecutedAction,
    /// How long after its execution it was published, once it was.
    delay_ns: Option<u64>,
}

/// What control keeps and hands to the client.
#[derive(Debug)]
pub struct SubscriptionEnds {
    /// Ring: its memory. Pipe: its read end.
    pub data: OwnedFd,
    /// Ring: what to sleep on. Pipe: nothing.
    pub wake: Option<WakeSource>,
    /// Counters.
    pub counters: Arc<SubscriptionCounters>,
    /// The ring's own counters.
    pub monitor: Option<RingMonitor>,
}

/// Why a subscription could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionError {
    /// More slots than a client may have.
    #[error("{slots} slots is not a power of two from 2 to {RING_SLOTS_MAX}")]
    Slots {
        /// Slots asked for.
        slots: u32,
    },
    /// No ring could be made.
    #[error(transparent)]
    Ring(#[from] RecordRingError),
    /// The system refused a descriptor.
    #[error("no descriptors for a subscription: {0}")]
    Descriptors(#[from] std::io::Error),
}

impl Subscription {
    /// Makes a subscription with a ring, and the client's ends.
    ///
    /// # Errors
    /// [`SubscriptionError`].
    pub fn ring(
        config: &SubscriptionConfig,
    ) -> Result<(Box<Self>, SubscriptionEnds), SubscriptionError> {
        Self::ring_with(config, wake_pair()?)
    }

    /// Makes a subscription with a ring whose client can be woken with others of the group.
    ///
    /// # Errors
    /// [`SubscriptionError`].
    pub fn ring_in(
        group: &WakeGroup,
        config: &SubscriptionConfig,
    ) -> Result<(Box<Self>, SubscriptionEnds), SubscriptionError> {
        Self::ring_with(config, group.pair()?)
    }

    fn ring_with(
        config: &SubscriptionConfig,
        (waker, source): (Waker, WakeSource),
    ) -> Result<(Box<Self>, SubscriptionEnds), SubscriptionError> {
        let slots = config.checked_slots()?;
        let writer = RecordWriter::create(&RecordRingConfig {
            slots,
            rule: config.rule,
            epoch: config.epoch.into(),
        })?;
        let counters = Arc::new(SubscriptionCounters::default());
        let ends = SubscriptionEnds {
            data: writer.fd().try_clone_to_owned()?,
            wake: Some(source),
            counters: Arc::clone(&counters),
            monitor: Some(writer.monitor()),
        };
        let transport = Transport::Ring { writer, waker };
        Ok((Box::new(Self::new(transport, config, counters)), ends))
    }

    /// Makes a subscription with a pipe, and the client's end.
    ///
    /// # Errors
    /// [`SubscriptionError::Descriptors`], or [`SubscriptionError::Slots`] of slots that no ring has
    /// either; a pipe makes no use of them.
    pub fn pipe(
        config: &SubscriptionConfig,
    ) -> Result<(Box<Self>, SubscriptionEnds), SubscriptionError> {
        config.checked_slots()?;
        let (read_end, write_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(std::io::Error::from)?;
        // Each end of a pipe has flags of its own: the client cannot make this one block.
        rustix::fs::fcntl_setfl(&write_end, rustix::fs::OFlags::NONBLOCK)
            .map_err(std::io::Error::from)?;
        let counters = Arc::new(SubscriptionCounters::default());
        let transport = Transport::Pipe {
            write_end,
            sequence: 0,
            closed: false,
        };
        let ends = SubscriptionEnds {
            data: read_end,
            wake: None,
            counters: Arc::clone(&counters),
            monitor: None,
        };
        Ok((Box::new(Self::new(transport, config, counters)), ends))
    }

    fn new(
        transport: Transport,
        config: &SubscriptionConfig,
        counters: Arc<SubscriptionCounters>,
    ) -> Self {
        Self {
            transport,
            config: *config,
            counters,
            prepared: None,
        }
    }

    /// Ends the subscription: the client sees everything up to now, and then the end.
    pub fn close(&mut self) {
        match &mut self.transport {
            Transport::Ring { writer, waker } => {
                writer.close(RingClosed::Finished);
                waker.wake();
            }
            Transport::Pipe { closed, .. } => *closed = true,
        }
    }

    /// Gets on its way what [`Subscription::offer`] will need, and puts what is known of the record
    /// into the ring: all but the time at which it enters.
    #[inline]
    pub(crate) fn prepare(&mut self, action: &ExecutedAction) {
        std::hint::black_box(self.counters.offered());
        let record = self.record(action, 0, false);
        if let Transport::Ring { writer, .. } = &mut self.transport {
            writer.prepare();
            // Without room it is written in its time, by its rule.
            let _is_ahead = writer.write_ahead(&record.to_words());
        }
        self.prepared = Some(Prepared {
            action: *action,
            delay_ns: None,
        });
    }

    /// Publishes the record that [`Subscription::prepare`] has put into the ring; what else there is
    /// to do for it, [`Subscription::offer`] does.
    #[inline]
    pub(crate) fn publish_prepared(&mut self, now: TaiNs) {
        let Some(prepared) = &mut self.prepared else {
            return;
        };
        let delay_ns = now.0.saturating_sub(prepared.action.executed.0);
        let is_late = self.config.is_late(delay_ns);
        // One that is late says so, in a word that is written already.
        if let Transport::Ring { writer, .. } = &mut self.transport
            && !is_late
        {
            let last = TimingRecord::last_word(saturate(delay_ns), self.config.epoch);
            prepared.delay_ns = writer.publish_ahead(last).map(|_| delay_ns);
        }
    }

    fn record(&self, action: &ExecutedAction, delay_ns: u64, deferred: bool) -> TimingRecord {
        let mut record = action.record(self.config.class, delay_ns, self.config.epoch);
        if self.config.is_late(delay_ns) {
            record.flags.0 |= RecordFlags::DELIVERED_LATE;
        }
        if deferred {
            record.flags.0 |= RecordFlags::DEFERRED;
        }
        record
    }

    /// Whether a record lies in the ring ahead of its time.
    #[inline]
    pub(crate) fn is_prepared(&self) -> bool {
        self.prepared.is_some()
    }

    /// Wakes the client.
    #[inline]
    pub(crate) fn wake(&self) {
        if let Transport::Ring { waker, .. } = &self.transport {
            waker.wake();
        }
    }

    /// Has the looks at clients that sleep come after all records written before.
    #[inline]
    pub(crate) fn fence(&self) {
        if let Transport::Ring { writer, .. } = &self.transport {
            writer.fence_before_sleepers();
        }
    }

    /// Whether the client sleeps and is to be woken. After [`Subscription::fence`] of one of those
    /// written to.
    #[inline]
    pub(crate) fn must_wake(&self) -> bool {
        let Transport::Ring { writer, .. } = &self.transport else {
            return false;
        };
        let wake = !writer.is_closed() && writer.take_sleeper();
        if wake {
            SubscriptionCounters::add(&self.counters.wake_ups);
        }
        wake
    }

    /// Writes one record, unless it is in the ring already; `now` is when it enters the ring. The
    /// caller wakes the client, if it is to be woken.
    #[inline]
    pub(crate) fn offer(
        &mut self,
        action: &ExecutedAction,
        now: &impl Fn() -> TaiNs,
        deferred: bool,
    ) {
        let prepared = self.prepared.take();
        debug_assert!(prepared.as_ref().is_none_or(|its| its.action == *action));
        let published = prepared.and_then(|prepared| prepared.delay_ns);
        let delay_ns = match published {
            Some(delay_ns) => delay_ns,
            None => now().0.saturating_sub(action.executed.0),
        };
        // One that has ended counts nothing more: what comes then was never offered.
        if published.is_none() && !self.offer_whole(action, delay_ns, deferred) {
            return;
        }
        let counters = &*self.counters;
        SubscriptionCounters::add(&counters.offered);
        let bin = (delay_ns.max(1).ilog2() as usize).min(LATENCY_BINS - 1);
        SubscriptionCounters::add(&counters.latency[bin]);
    }

    /// Writes all of a record; false if the subscription is closed.
    #[inline]
    fn offer_whole(&mut self, action: &ExecutedAction, delay_ns: u64, deferred: bool) -> bool {
        let record = self.record(action, delay_ns, deferred);
        let written = self.write(record);
        if written && self.config.is_late(delay_ns) {
            SubscriptionCounters::add(&self.counters.delivered_late);
        }
        if written && deferred {
            SubscriptionCounters::add(&self.counters.deferred);
        }
        written
    }

    /// Gives a record its number and writes it, by the rule of the ring; false if the subscription is
    /// closed.
    #[inline]
    fn write(&mut self, mut record: TimingRecord) -> bool {
        let counters = &*self.counters;
        match &mut self.transport {
            Transport::Ring { writer, waker } => {
                let offered = writer.publish(&record.to_words());
                if offered.outcome == OfferOutcome::Closed {
                    return false;
                }
                if writer.is_closed() {
                    // This record has ended it, by its rule.
                    waker.wake();
                    SubscriptionCounters::add(&counters.wake_ups);
                }
                if offered.outcome != OfferOutcome::Written {
                    SubscriptionCounters::add(&counters.dropped);
                }
            }
            Transport::Pipe {
                write_end,
                sequence,
                closed,
            } => {
                if *closed {
                    return false;
                }
                record.sequence = *sequence;
                *sequence += 1;
                // A record is smaller than PIPE_BUF, so that it is written whole or not at all.
                if rustix::io::write(&*write_end, &record.to_bytes()).is_err() {
                    SubscriptionCounters::add(&counters.dropped);
                }
            }
        }
        true
    }

    /// The number of the next record.
    fn next_sequence(&self) -> u64 {
        match &self.transport {
            Transport::Ring { writer, .. } => writer.offered(),
            Transport::Pipe { sequence, .. } => *sequence,
        }
    }

    /// Offers a gap of one for each of so many actions that found no place in the core's queue, and
    /// wakes the client if that is due. Each has the number that its record would have had, so that
    /// what is lost of the gaps themselves is still counted right.
    pub(crate) fn offer_unqueued(&mut self, count: u64, now: TaiNs) {
        for _ in 0..count {
            let number = self.next_sequence();
            let gap = TimingRecord {
                class: self.config.class,
                ..TimingRecord::gap(number, number, 1, now, self.config.epoch)
            };
            if !self.write(gap) {
                return;
            }
            SubscriptionCounters::add(&self.counters.offered);
            SubscriptionCounters::add(&self.counters.unqueued);
        }
        self.fence();
        if self.must_wake() {
            self.wake();
        }
    }

    /// Offers a record that was put off, and wakes the client if that is due.
    pub(crate) fn offer_deferred(&mut self, action: &ExecutedAction, now: &impl Fn() -> TaiNs) {
        self.offer(action, now, true);
        self.fence();
        if self.must_wake() {
            self.wake();
        }
    }
}
