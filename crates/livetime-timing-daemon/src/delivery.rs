//! Delivery: from executed actions to the rings of the clients that wait for them.
//!
//! The core's worker owns a [`Delivery`] and gives it the actions of each turn; every subscription
//! of the sink gets a record, class high first, then generic, while idle ones are put off until a
//! turn has nothing else to do. It matches nothing and reads no clock but the one it is given.
//! [`Subscription`]s and the table of who listens to what ([`Routing`]) are made by control and
//! exchanged whole, so that no lock is shared and nothing is allocated here; see the [crate].
//!
//! Budget per record and subscription: one ring write (two cache lines) and, if the client sleeps,
//! one system call that cannot block; if most of the listeners of a sink sleep, one for all of them,
//! after all rings are written, and if they are many not even that (see [`WakeThread`]). Bounds: [`SUBSCRIPTIONS_MAX`] subscriptions, `slots` records
//! in each ring, [`DeliveryConfig::idle_pending`] records put off; when these are full the oldest
//! goes to its ring at once, where the ring's own rule holds. So every record offered is received
//! or reported lost, whatever a client does; an action that found no place in the core's queue takes
//! a place in the rings as a gap of one.

use std::collections::VecDeque;

use livetime_shm::WakeGroup;
use livetime_wire::{PriorityClass, TaiNs};

use crate::executed_action::ExecutedAction;
use crate::subscription::Subscription;
use crate::wake_thread::WakeThread;

/// Most subscriptions of one daemon.
pub const SUBSCRIPTIONS_MAX: usize = 1024;

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
            }
        }
    }

    /// Tells the listeners of a sink, of all classes, that so many of its actions found no place in
    /// the core's queue.
    pub fn deliver_unqueued(&mut self, sink: u16, count: u64, now: TaiNs) {
        for class in PriorityClass::ALL {
            let listeners = self.routing.listeners(sink, class);
            for place in listeners.map_or(&[][..], |listeners| &listeners.places) {
                if let Some(subscription) = &mut self.subscriptions[usize::from(*place)] {
                    subscription.offer_unqueued(count, now);
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
                    if !subscription.is_prepared() {
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
mod tests;
