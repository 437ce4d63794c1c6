//! Delivery: from executed actions to the rings of the clients that wait for them.
//!
//! The core's worker owns a [`Delivery`] and gives it the actions of each turn; every subscription
//! of the sink gets a record, class high first, then generic, while idle ones are put off until a
//! turn has nothing else to do. It matches nothing and reads no clock but the one it is given.
//! Subscriptions and the table of who listens to what ([`Routing`]) are made by control and
//! exchanged whole, so that no lock is shared and nothing is allocated here; see [`crate::timing`].
//!
//! Budget per record and subscription: one ring write (two cache lines) and, if the client sleeps,
//! one system call that cannot block; if most of the listeners of a sink sleep, one for all of them,
//! after all rings are written, and if they are many not even that (see [`WakeThread`]). Bounds: [`SUBSCRIPTIONS_MAX`] subscriptions, `slots` records
//! in each ring, [`DeliveryConfig::idle_pending`] records put off; when these are full the oldest
//! goes to its ring at once, where the ring's own rule holds. So every record offered is received
//! or reported lost, whatever a client does.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use livetime_shm::{
    OfferOutcome, OverflowRule, RecordRingConfig, RecordRingError, RecordWriter, RingClosed,
    RingMonitor, WakeGroup, WakeSource, Waker, wake_pair,
};
use livetime_wire::{PriorityClass, RecordFlags, RecordKind, TaiNs, TimingRecord};

use super::wake_thread::WakeThread;

/// Most subscriptions of one daemon.
pub const SUBSCRIPTIONS_MAX: usize = 1024;
/// Slots of a ring unless the client asks for others.
pub const RING_SLOTS_USUAL: u32 = 4096;
/// Most slots that a client may ask for: 4 MiB.
pub const RING_SLOTS_MAX: u32 = 1 << 16;
/// Bound after which a record of class high counts as delivered late, unless the client says.
pub const HIGH_BOUND_NS_USUAL: u64 = 1_000_000;
/// Bins of a latency histogram: bin `i` counts from `2^i` ns on, the first also less.
pub const LATENCY_BINS: usize = 40;

/// A group is woken as a whole if it has at most so many listeners for each one that sleeps.
const LISTENERS_PER_SLEEPER_MAX: usize = 2;
/// From so many sleepers on it takes less time to wake a thread that wakes them.
const SLEEPERS_MANY: usize = 4;

/// Bounds of the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryConfig {
    /// Records of class idle that can be put off at a time, all subscriptions together. Default
    /// 16384 (1.2 MiB): a second of 16 kHz.
    pub idle_pending: usize,
    /// Records of class idle delivered per idle turn. Default 32: some microseconds.
    pub idle_per_turn: usize,
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            idle_pending: 16_384,
            idle_per_turn: 32,
        }
    }
}

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

    /// Records of class idle that were put off.
    pub fn deferred(&self) -> u64 {
        self.deferred.load(Ordering::Relaxed)
    }

    /// Times that the client was woken.
    pub fn wake_ups(&self) -> u64 {
        self.wake_ups.load(Ordering::Relaxed)
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
        let slots = config.slots;
        if !slots.is_power_of_two() || !(2..=RING_SLOTS_MAX).contains(&slots) {
            return Err(SubscriptionError::Slots { slots });
        }
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
    /// [`SubscriptionError::Descriptors`].
    pub fn pipe(
        config: &SubscriptionConfig,
    ) -> Result<(Box<Self>, SubscriptionEnds), SubscriptionError> {
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
    fn prepare(&mut self, action: &ExecutedAction) {
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
    fn publish_prepared(&mut self, now: TaiNs) {
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
        let mut flags = action.flags;
        if self.config.is_late(delay_ns) {
            flags.0 |= RecordFlags::DELIVERED_LATE;
        }
        if deferred {
            flags.0 |= RecordFlags::DEFERRED;
        }
        TimingRecord {
            sequence: 0,
            kind: RecordKind::Message,
            class: self.config.class,
            id: action.id,
            param: action.param,
            deadline: action.deadline,
            executed: action.executed,
            tef: action.tef,
            condition: action.condition,
            flags,
            match_lead_ns: saturate(action.executed.0.saturating_sub(action.matched.0)),
            enqueue_delay_ns: saturate(delay_ns),
            epoch: self.config.epoch,
        }
    }

    /// Wakes the client.
    #[inline]
    fn wake(&self) {
        if let Transport::Ring { waker, .. } = &self.transport {
            waker.wake();
        }
    }

    /// Has the looks at clients that sleep come after all records written before.
    #[inline]
    fn fence(&self) {
        if let Transport::Ring { writer, .. } = &self.transport {
            writer.fence_before_sleepers();
        }
    }

    /// Whether the client sleeps and is to be woken. After [`Subscription::fence`] of one of those
    /// written to.
    #[inline]
    fn must_wake(&self) -> bool {
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
    fn offer(&mut self, action: &ExecutedAction, now: &impl Fn() -> TaiNs, deferred: bool) {
        let prepared = self.prepared.take();
        debug_assert!(prepared.as_ref().is_none_or(|its| its.action == *action));
        let published = prepared.and_then(|prepared| prepared.delay_ns);
        let delay_ns = match published {
            Some(delay_ns) => delay_ns,
            None => now().0.saturating_sub(action.executed.0),
        };
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
        let mut record = self.record(action, delay_ns, deferred);
        let is_late = self.config.is_late(delay_ns);
        let counters = &*self.counters;
        if is_late {
            SubscriptionCounters::add(&counters.delivered_late);
        }
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

    /// Offers a record that was put off, and wakes the client if that is due.
    fn offer_deferred(&mut self, action: &ExecutedAction, now: &impl Fn() -> TaiNs) {
        self.offer(action, now, true);
        self.fence();
        if self.must_wake() {
            self.wake();
        }
    }
}

fn saturate(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}

/// An action of a software sink, executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutedAction {
    /// The sink, as an index.
    pub sink: u16,
    /// The condition's cookie.
    pub condition: u32,
    /// Event ID of the message.
    pub id: u64,
    /// Its parameter.
    pub param: u64,
    /// Its fraction field.
    pub tef: u32,
    /// When the action was due.
    pub deadline: TaiNs,
    /// When it was executed.
    pub executed: TaiNs,
    /// When its message was matched.
    pub matched: TaiNs,
    /// Its flags.
    pub flags: RecordFlags,
}

/// Who listens to which sink: places of subscriptions by sink and class.
#[derive(Debug, Default)]
pub struct Routing {
    by_sink: Box<[[Listeners; 3]]>,
}

/// The listeners of one sink and class.
#[derive(Debug, Default)]
struct Listeners {
    places: Box<[u16]>,
    /// Wakes all of them, if they are in one.
    group: Option<WakeGroup>,
}

impl Routing {
    /// The table of listeners: place of the subscription, its sink, its class.
    pub fn new(sinks: usize, listeners: &[(u16, u16, PriorityClass)]) -> Self {
        let places = |sink: usize, class: PriorityClass| Listeners {
            places: listeners
                .iter()
                .filter(|(_, of, its)| usize::from(*of) == sink && *its == class)
                .map(|(place, _, _)| *place)
                .collect(),
            group: None,
        };
        Self {
            by_sink: (0..sinks)
                .map(|sink| PriorityClass::ALL.map(|class| places(sink, class)))
                .collect(),
        }
    }

    /// The listeners of this sink and class were all made in this group.
    pub fn set_group(&mut self, sink: u16, class: PriorityClass, group: WakeGroup) {
        if let Some(classes) = self.by_sink.get_mut(usize::from(sink)) {
            classes[usize::from(class.index())].group = Some(group);
        }
    }

    #[inline]
    fn listeners(&self, sink: u16, class: PriorityClass) -> Option<&Listeners> {
        let classes = self.by_sink.get(usize::from(sink))?;
        Some(&classes[usize::from(class.index())])
    }
}

/// All subscriptions, at the core's end.
#[derive(Debug)]
pub struct Delivery {
    subscriptions: Box<[Option<Box<Subscription>>]>,
    routing: Box<Routing>,
    pending: VecDeque<(u16, ExecutedAction)>,
    /// Places whose clients are to be woken for the present record.
    sleepers: Vec<u16>,
    /// Places in whose rings a record lies ahead of its time.
    ahead: Vec<u16>,
    /// Wakes groups in which many sleep.
    wake_thread: Option<WakeThread>,
    config: DeliveryConfig,
}

impl Delivery {
    /// No subscriptions.
    pub fn new(config: DeliveryConfig) -> Self {
        Self {
            subscriptions: (0..SUBSCRIPTIONS_MAX).map(|_| None).collect(),
            routing: Box::default(),
            pending: VecDeque::with_capacity(config.idle_pending.max(1)),
            sleepers: Vec::with_capacity(SUBSCRIPTIONS_MAX),
            ahead: Vec::with_capacity(SUBSCRIPTIONS_MAX),
            wake_thread: None,
            config,
        }
    }

    /// Leaves it to this thread to wake groups in which many sleep.
    pub fn set_wake_thread(&mut self, thread: WakeThread) {
        self.wake_thread = Some(thread);
    }

    /// Puts a subscription into a place, with the table in which it is listed; what was there and
    /// the old table come back, to be freed elsewhere.
    pub fn exchange(
        &mut self,
        place: u16,
        subscription: Option<Box<Subscription>>,
        routing: Box<Routing>,
    ) -> (Option<Box<Subscription>>, Box<Routing>) {
        let old_routing = std::mem::replace(&mut self.routing, routing);
        let mut old = self
            .subscriptions
            .get_mut(usize::from(place))
            .and_then(|slot| std::mem::replace(slot, subscription));
        if let Some(old) = &mut old {
            // Before it is closed: what was put off is due to it.
            for _ in 0..self.pending.len() {
                if let Some((of, action)) = self.pending.pop_front() {
                    if of == place {
                        old.offer_deferred(&action, &|| action.executed);
                    } else {
                        self.pending.push_back((of, action));
                    }
                }
            }
            old.close();
        }
        (old, old_routing)
    }

    /// Delivers the actions of one turn; `now` is asked once per record.
    #[inline]
    pub fn deliver(&mut self, actions: &[ExecutedAction], now: &impl Fn() -> TaiNs) {
        for class in [PriorityClass::High, PriorityClass::Generic] {
            for action in actions {
                self.deliver_at_once(action, class, now);
            }
        }
        for action in actions {
            let idle = |routing: &Routing, index: usize| {
                let listeners = routing.listeners(action.sink, PriorityClass::Idle)?;
                listeners.places.get(index).copied()
            };
            for index in 0.. {
                let Some(place) = idle(&self.routing, index) else {
                    break;
                };
                if self.pending.len() == self.config.idle_pending.max(1) {
                    self.deliver_pending(1, now);
                }
                self.pending.push_back((place, *action));
                if let Some(subscription) = &self.subscriptions[usize::from(place)] {
                    SubscriptionCounters::add(&subscription.counters.deferred);
                }
            }
        }
    }

    /// Brings what the delivery of these actions will need into the near cache, and does what can be
    /// done of it before its time. [`Delivery::publish_prepared`] and [`Delivery::deliver`] of the
    /// same actions come next.
    #[inline]
    pub fn prepare(&mut self, actions: &[ExecutedAction]) {
        self.ahead.clear();
        for action in actions {
            for class in [PriorityClass::High, PriorityClass::Generic] {
                let listeners = self.routing.listeners(action.sink, class);
                for place in listeners.map_or(&[][..], |listeners| &listeners.places) {
                    let Some(subscription) = &mut self.subscriptions[usize::from(*place)] else {
                        continue;
                    };
                    // One that has an action before this one stays as it is.
                    if subscription.prepared.is_none() {
                        subscription.prepare(action);
                        self.ahead.push(*place);
                    }
                }
            }
        }
    }

    /// Lets clients that look see the first record of each that was prepared.
    #[inline]
    pub fn publish_prepared(&mut self, now: TaiNs) {
        for place in &self.ahead {
            if let Some(subscription) = &mut self.subscriptions[usize::from(*place)] {
                subscription.publish_prepared(now);
            }
        }
    }

    /// Writes the rings of all listeners, then wakes those that sleep.
    #[inline]
    fn deliver_at_once(
        &mut self,
        action: &ExecutedAction,
        class: PriorityClass,
        now: &impl Fn() -> TaiNs,
    ) {
        let Some(listeners) = self.routing.listeners(action.sink, class) else {
            return;
        };
        if listeners.places.is_empty() {
            return;
        }
        let mut fenced = None;
        for place in &listeners.places {
            if let Some(subscription) = &mut self.subscriptions[usize::from(*place)] {
                subscription.offer(action, now, false);
                fenced = Some(*place);
            }
        }
        // One fence for all rings: it waits until what was written has reached every one of them.
        let at = |place: u16| self.subscriptions[usize::from(place)].as_deref();
        if let Some(subscription) = fenced.and_then(at) {
            subscription.fence();
        }
        self.sleepers.clear();
        let asleep = |place: &&u16| at(**place).is_some_and(Subscription::must_wake);
        self.sleepers.extend(listeners.places.iter().filter(asleep));
        // Those of the group that are awake will find one wake-up too many.
        let most_sleep = self.sleepers.len() > 1
            && self.sleepers.len() * LISTENERS_PER_SLEEPER_MAX >= listeners.places.len();
        if most_sleep && let Some(group) = &listeners.group {
            match &mut self.wake_thread {
                Some(thread) if self.sleepers.len() >= SLEEPERS_MANY => thread.wake(group),
                _ => group.wake(),
            }
            return;
        }
        for subscription in self.sleepers.iter().filter_map(|place| at(*place)) {
            subscription.wake();
        }
    }

    /// Delivers what was put off, a bounded number of records; for turns with nothing else to do.
    /// Returns how many.
    pub fn deliver_idle(&mut self, now: &impl Fn() -> TaiNs) -> usize {
        let count = self.pending.len().min(self.config.idle_per_turn.max(1));
        self.deliver_pending(count, now);
        count
    }

    /// Whether records were put off.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn deliver_pending(&mut self, count: usize, now: &impl Fn() -> TaiNs) {
        for _ in 0..count {
            let Some((place, action)) = self.pending.pop_front() else {
                return;
            };
            if let Some(subscription) = &mut self.subscriptions[usize::from(place)] {
                subscription.offer_deferred(&action, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use livetime_shm::{Found, RecordReader, WakeUp};

    use super::*;

    fn action(sink: u16, id: u64) -> ExecutedAction {
        ExecutedAction {
            sink,
            condition: 7,
            id,
            param: 1,
            tef: 2,
            deadline: TaiNs(1_000),
            executed: TaiNs(1_100),
            matched: TaiNs(600),
            flags: RecordFlags(RecordFlags::LATE),
        }
    }

    fn subscribe(
        delivery: &mut Delivery,
        listeners: &mut Vec<(u16, u16, PriorityClass)>,
        sink: u16,
        config: &SubscriptionConfig,
    ) -> (RecordReader, SubscriptionEnds) {
        let place = listeners.len() as u16;
        listeners.push((place, sink, config.class));
        let (subscription, ends) = Subscription::ring(config).unwrap();
        let routing = Box::new(Routing::new(4, listeners));
        let (old, _) = delivery.exchange(place, Some(subscription), routing);
        assert!(old.is_none());
        let reader = RecordReader::open(ends.data.try_clone().unwrap()).unwrap();
        (reader, ends)
    }

    fn next(reader: &mut RecordReader) -> Option<TimingRecord> {
        match reader.poll() {
            Found::Record(words) => Some(TimingRecord::new_checked(&words).unwrap()),
            _ => None,
        }
    }

    #[test]
    fn each_listener_of_the_sink_gets_the_record_with_its_times() {
        let mut delivery = Delivery::new(DeliveryConfig::default());
        let mut listeners = Vec::new();
        let config = SubscriptionConfig {
            epoch: 3,
            ..SubscriptionConfig::default()
        };
        let (mut first, ends) = subscribe(&mut delivery, &mut listeners, 1, &config);
        let (mut second, _keep) = subscribe(&mut delivery, &mut listeners, 1, &config);
        let (mut other, _keep) = subscribe(&mut delivery, &mut listeners, 2, &config);
        delivery.deliver(&[action(1, 5)], &|| TaiNs(1_250));
        for reader in [&mut first, &mut second] {
            let record = next(reader).unwrap();
            assert_eq!((record.id, record.condition, record.tef), (5, 7, 2));
            assert_eq!((record.late_by_ns(), record.enqueue_delay_ns), (100, 150));
            assert_eq!((record.match_lead_ns, record.epoch), (500, 3));
            assert!(record.flags.contains(RecordFlags::LATE));
        }
        assert_eq!(next(&mut other), None);
        assert_eq!(ends.counters.offered(), 1);
        assert_eq!(
            ends.counters.latency()[7],
            1,
            "150 ns lie between 2^7 and 2^8"
        );
    }

    #[test]
    fn what_was_prepared_comes_once_in_order_and_as_if_it_was_not() {
        let of = |class, slots| SubscriptionConfig {
            class,
            slots,
            bound_ns: 50,
            ..SubscriptionConfig::default()
        };
        let configs = [
            of(PriorityClass::High, 8),
            of(PriorityClass::Generic, 8),
            // Full after two.
            of(PriorityClass::Generic, 2),
            of(PriorityClass::Idle, 8),
        ];
        let actions = [action(1, 5), action(2, 6), action(1, 7), action(1, 8)];
        // In time for class high, and too late for it.
        for (delay_ns, prepared) in [(50, true), (50, false), (51, true), (51, false)] {
            let mut delivery = Delivery::new(DeliveryConfig::default());
            let mut listeners = Vec::new();
            let mut ends =
                configs.map(|config| subscribe(&mut delivery, &mut listeners, 1, &config));
            let now = || TaiNs(1_100 + delay_ns);
            for _ in 0..2 {
                if prepared {
                    delivery.prepare(&actions);
                    assert!(ends.iter_mut().all(|(reader, _)| next(reader).is_none()));
                    delivery.publish_prepared(now());
                }
                delivery.deliver(&actions, &now);
                for ((reader, ends), config) in ends.iter_mut().zip(&configs) {
                    while delivery.deliver_idle(&now) > 0 {}
                    let records: Vec<_> = std::iter::from_fn(|| match reader.poll() {
                        Found::Nothing => None,
                        found => Some(found),
                    })
                    .collect();
                    let mut ids = Vec::new();
                    for found in records {
                        let Found::Record(words) = found else {
                            assert_eq!(config.slots, 2, "{found:?}");
                            continue;
                        };
                        let record = TimingRecord::new_checked(&words).unwrap();
                        ids.push(record.id);
                        assert_eq!(u64::from(record.enqueue_delay_ns), delay_ns);
                        let is_late = record.flags.0 & RecordFlags::DELIVERED_LATE != 0;
                        assert_eq!(
                            is_late,
                            config.class == PriorityClass::High && delay_ns > 50
                        );
                    }
                    match config.slots {
                        2 => assert_eq!(ids.last(), Some(&8)),
                        _ => assert_eq!(ids, [5, 7, 8]),
                    }
                    let in_bins: u64 = ends.counters.latency().iter().sum();
                    assert_eq!(in_bins, ends.counters.offered());
                }
            }
            let offered = ends.each_ref().map(|(_, ends)| ends.counters.offered());
            assert_eq!(offered, [6; 4], "prepared {prepared}");
            let late = ends[0].1.counters.delivered_late();
            assert_eq!(late, if delay_ns > 50 { 6 } else { 0 });
        }
    }

    #[test]
    fn a_sleeping_client_is_woken_once() {
        let mut delivery = Delivery::new(DeliveryConfig::default());
        let config = SubscriptionConfig::default();
        let (mut reader, ends) = subscribe(&mut delivery, &mut Vec::new(), 0, &config);
        let source = ends.wake.unwrap();
        reader.prepare_sleep();
        assert_eq!(reader.poll(), Found::Nothing);
        delivery.deliver(&[action(0, 1), action(0, 2)], &|| TaiNs(2_000));
        let wake_up = source.wait(Some(std::time::Duration::ZERO)).unwrap();
        assert_eq!(wake_up, WakeUp::Woken);
        assert_eq!(ends.counters.wake_ups(), 1);
        assert_eq!(next(&mut reader).unwrap().id, 1);
        assert_eq!(next(&mut reader).unwrap().id, 2);
    }

    #[test]
    fn where_most_listeners_sleep_the_group_is_woken_else_each_sleeper() {
        let group = WakeGroup::new().unwrap();
        let config = SubscriptionConfig::default();
        let mut delivery = Delivery::new(DeliveryConfig::default());
        let (mut listeners, mut readers, mut counters) = (Vec::new(), Vec::new(), Vec::new());
        let mut sources = Vec::new();
        for place in 0..3 {
            listeners.push((place, 0, PriorityClass::Generic));
            let (subscription, ends) = Subscription::ring_in(&group, &config).unwrap();
            let mut routing = Routing::new(1, &listeners);
            routing.set_group(0, PriorityClass::Generic, group.clone());
            delivery.exchange(place, Some(subscription), Box::new(routing));
            readers.push(RecordReader::open(ends.data).unwrap());
            sources.push(ends.wake.unwrap());
            counters.push(ends.counters);
        }
        let mut woken = |sleepers: &[usize], id: u64| -> Vec<bool> {
            for reader in sleepers {
                readers[*reader].prepare_sleep();
            }
            delivery.deliver(&[action(0, id)], &|| TaiNs(2_000));
            for reader in &mut readers {
                assert_eq!(next(reader).unwrap().id, id);
            }
            let now = Some(std::time::Duration::ZERO);
            let woken = |source: &WakeSource| source.wait(now).unwrap() == WakeUp::Woken;
            sources.iter().map(woken).collect()
        };
        assert_eq!(woken(&[0, 2], 1), [true; 3], "one is woken for nothing");
        assert_eq!(woken(&[1], 2), [false, true, false]);
        assert_eq!(woken(&[], 3), [false; 3]);
        let wake_ups: Vec<u64> = counters
            .iter()
            .map(|counters| counters.wake_ups())
            .collect();
        assert_eq!(wake_ups, [1; 3]);
    }

    #[test]
    fn many_sleepers_of_a_group_are_woken_by_the_thread() {
        let group = WakeGroup::new().unwrap();
        let config = SubscriptionConfig::default();
        let mut delivery = Delivery::new(DeliveryConfig::default());
        delivery.set_wake_thread(WakeThread::start(None, None).unwrap());
        let (mut listeners, mut sleeping) = (Vec::new(), Vec::new());
        for place in 0..SLEEPERS_MANY as u16 {
            listeners.push((place, 0, PriorityClass::Generic));
            let (subscription, ends) = Subscription::ring_in(&group, &config).unwrap();
            let mut routing = Routing::new(1, &listeners);
            routing.set_group(0, PriorityClass::Generic, group.clone());
            delivery.exchange(place, Some(subscription), Box::new(routing));
            let reader = RecordReader::open(ends.data).unwrap();
            reader.prepare_sleep();
            sleeping.push((reader, ends.wake.unwrap(), ends.counters));
        }
        delivery.deliver(&[action(0, 9)], &|| TaiNs(2_000));
        for (reader, source, counters) in &mut sleeping {
            assert_eq!(source.wait(None).unwrap(), WakeUp::Woken);
            assert_eq!(next(reader).unwrap().id, 9);
            assert_eq!(counters.wake_ups(), 1);
        }
    }

    #[test]
    fn high_comes_before_generic_and_idle_waits_for_a_turn_of_its_own() {
        let mut delivery = Delivery::new(DeliveryConfig {
            idle_pending: 4,
            idle_per_turn: 1,
        });
        let mut listeners = Vec::new();
        let of = |class| SubscriptionConfig {
            class,
            bound_ns: 1_000,
            ..SubscriptionConfig::default()
        };
        // Subscribed in the wrong order on purpose.
        let [
            (mut idle, idle_ends),
            (mut generic, _k),
            (mut high, high_ends),
        ] = [
            PriorityClass::Idle,
            PriorityClass::Generic,
            PriorityClass::High,
        ]
        .map(|class| subscribe(&mut delivery, &mut listeners, 0, &of(class)));
        let time = std::cell::Cell::new(2_000);
        let clock = || TaiNs(time.replace(time.get() + 100));
        delivery.deliver(&[action(0, 1), action(0, 2)], &clock);
        let high_delays = [0, 1].map(|_| next(&mut high).unwrap().enqueue_delay_ns);
        let generic_delays = [0, 1].map(|_| next(&mut generic).unwrap().enqueue_delay_ns);
        assert_eq!(
            (high_delays, generic_delays),
            ([900, 1_000], [1_100, 1_200])
        );
        assert_eq!(high_ends.counters.delivered_late(), 0);
        assert_eq!((next(&mut idle), delivery.has_pending()), (None, true));
        assert_eq!(delivery.deliver_idle(&clock), 1);
        let record = next(&mut idle).unwrap();
        assert_eq!(record.id, 1);
        assert!(record.flags.contains(RecordFlags::DEFERRED));
        // More than can be put off: the oldest go to the ring at once, in order.
        for id in 3..8 {
            delivery.deliver(&[action(0, id)], &clock);
        }
        assert!(high_ends.counters.delivered_late() > 0);
        while delivery.deliver_idle(&clock) > 0 {}
        let ids: Vec<u64> = std::iter::from_fn(|| next(&mut idle))
            .map(|r| r.id)
            .collect();
        assert_eq!(ids, [2, 3, 4, 5, 6, 7]);
        assert_eq!(idle_ends.counters.deferred(), 7);
    }

    #[test]
    fn a_full_pipe_drops_and_counts_and_never_blocks() {
        let (subscription, ends) = Subscription::pipe(&SubscriptionConfig::default()).unwrap();
        let mut delivery = Delivery::new(DeliveryConfig::default());
        let routing = Routing::new(1, &[(0, 0, PriorityClass::Generic)]);
        delivery.exchange(0, Some(subscription), Box::new(routing));
        for id in 0..5_000 {
            delivery.deliver(&[action(0, id)], &|| TaiNs(2_000));
        }
        let counters = &ends.counters;
        assert_eq!(counters.offered(), 5_000);
        let held = 5_000 - counters.dropped();
        assert!(counters.dropped() > 0 && held > 0);
        // The client counts as many and sees the gap at the end in the next sequence number.
        let mut bytes = vec![0u8; 64 * 8];
        let mut received = 0;
        while received < held {
            let read = rustix::io::read(&ends.data, &mut bytes[..]).unwrap();
            received += read as u64 / 64;
        }
        delivery.deliver(&[action(0, 9)], &|| TaiNs(2_000));
        assert_eq!(rustix::io::read(&ends.data, &mut bytes[..64]).unwrap(), 64);
        let stamp = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(stamp, (5_000 + 1) * 2);
    }

    #[test]
    fn a_subscription_taken_back_gets_what_was_put_off_and_then_the_end() {
        let mut delivery = Delivery::new(DeliveryConfig::default());
        let config = SubscriptionConfig {
            class: PriorityClass::Idle,
            ..SubscriptionConfig::default()
        };
        let (mut reader, _ends) = subscribe(&mut delivery, &mut Vec::new(), 0, &config);
        delivery.deliver(&[action(0, 1)], &|| TaiNs(2_000));
        let (old, _) = delivery.exchange(0, None, Box::default());
        assert!(old.is_some());
        assert_eq!(next(&mut reader).unwrap().id, 1);
        assert_eq!(reader.poll(), Found::Closed(RingClosed::Finished));
    }
}
