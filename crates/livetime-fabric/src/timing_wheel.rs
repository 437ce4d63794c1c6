//! A hierarchical timing wheel: the event queue of real runs, constant cost per event.
//!
//! Time is cut into granules of about 4 ns. The granule number, read as digits of base 256, says
//! where an event waits: on the level of the highest digit in which it differs from the current
//! granule, in the slot of that digit (Varghese and Lauck, SOSP 1987, scheme 7). So the lowest
//! used level holds the earliest events, and its first used slot the earliest of these:
//!
//! ```text
//! level 0   256 slots of 1 granule       4 ns    the next 1 us
//! level 1   256 slots of 256 granules    1 us    the next 268 us
//! level 2   256 slots of 65536 granules  268 us  the next 69 ms      (to level 7: all of u64)
//! current   the granule being drained, sorted; queues and a heap of what is scheduled into it
//! lanes     events that their world knows to come in their order, however late
//! ```
//!
//! When a slot above level 0 comes up, the wheel jumps straight to the earliest granule in it, so
//! a lonely event costs two moves however far away it was. Within a granule events are sorted,
//! hence the order does not depend on the granule: `tests/queue_order.rs` holds the wheel against
//! the [`HeapQueue`](crate::heap_queue::HeapQueue). The wheel gives out no keys and does not
//! forbid the past; see [`crate::scheduler`] for both.

use core::mem;
use std::collections::{BinaryHeap, VecDeque};

use crate::queue::{EventKey, Lane, Pending};
use crate::time::SimPs;

/// Bits of a digit. 6 and 10 cost the same within the noise (`examples/queue_cost.rs`); 8 keeps the
/// table of slots at 48 KiB.
const DIGIT_BITS: u32 = 8;
/// Slots of a level.
const SLOTS: usize = 1 << DIGIT_BITS;
/// Levels that cover every `u64`.
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// Words of 64 flags that a level's occupied slots take.
const WORDS: usize = SLOTS / 64;
/// A slot that is empty again gives its room to others, so that few and warm ones do for all; the
/// room of so many slots is kept.
const SPARES: usize = 64;
/// Room for more events than these is not kept, so that a burst does not leave its footprint.
const RETAINED_EVENTS: usize = 1024;
/// Queues of events that are scheduled into the current granule in their order: of the lowest class,
/// and of all others.
const QUEUES: usize = 2;
/// Lanes of events that are scheduled in their order, whenever they are due.
const LANES: usize = Lane::Second as usize + 1;
/// Where the earliest event may be: in one of the queues, in one of the lanes, or in one of these.
const SORTED: usize = QUEUES + LANES;
const HEAPED: usize = QUEUES + LANES + 1;
const SOURCES: usize = QUEUES + LANES + 2;
/// The place in the order of no event.
const NEVER: u128 = u128::MAX;

/// Events of type `E` in a hierarchical timing wheel.
#[derive(Debug, Clone)]
pub struct TimingWheel<E> {
    /// A granule is 2^this picoseconds.
    granule_bits: u32,
    /// The granule that `current` and `arrivals` hold; all events on the levels are later.
    position: u64,
    /// The position stays before this granule, which is not beyond the first one of any slot that holds
    /// events: else they would not be where their digits say.
    filed_from: u64,
    /// Events of the current granule, the earliest last.
    current: Vec<Pending<E>>,
    /// First the queues of events scheduled into the current granule after it was sorted, where they
    /// come in their order, as those of one instant and class do; then the lanes of events that their
    /// world knows to come in their order.
    queues: [VecDeque<Pending<E>>; QUEUES + LANES],
    /// Those that come in another order, or before the current granule.
    arrivals: BinaryHeap<Pending<E>>,
    /// Room of slots that are empty again.
    spare: Vec<Vec<Pending<E>>>,
    /// Slot `digit` of `level` is number `level * SLOTS + digit`; unordered within.
    slots: Vec<Vec<Pending<E>>>,
    /// Which slots of each level hold events.
    occupied: [[u64; WORDS]; LEVELS],
    /// Which levels hold events, one bit each.
    levels_used: u32,
    /// The first event of each of `queues`, of `current` and of `arrivals`.
    firsts: [u128; SOURCES],
    /// Where the last event popped was: the next one is there, too, as a rule.
    popped_from: usize,
    /// The first event of all the others.
    first_of_others: u128,
    len: usize,
}

impl<E> TimingWheel<E> {
    /// Granule of [`TimingWheel::new`]: 2^12 ps, about 4 ns, measured best from 10^3 to 10^5
    /// pending events with delays around 1 us.
    pub const GRANULE_BITS: u32 = 12;

    /// An empty wheel.
    pub fn new() -> Self {
        Self::with_granule_bits(Self::GRANULE_BITS)
    }

    /// An empty wheel with granules of 2^`granule_bits` ps (0 to 63; more is taken as 63). Best is
    /// about one event per granule; the order of events is the same for all.
    pub fn with_granule_bits(granule_bits: u32) -> Self {
        Self {
            granule_bits: granule_bits.min(u64::BITS - 1),
            position: 0,
            filed_from: u64::MAX,
            current: Vec::new(),
            queues: [const { VecDeque::new() }; QUEUES + LANES],
            arrivals: BinaryHeap::new(),
            spare: Vec::new(),
            slots: (0..LEVELS * SLOTS).map(|_| Vec::new()).collect(),
            occupied: [[0; WORDS]; LEVELS],
            levels_used: 0,
            firsts: [NEVER; SOURCES],
            popped_from: SORTED,
            first_of_others: NEVER,
            len: 0,
        }
    }

    /// Adds an event. One that is due in the current granule or before it joins a small heap.
    #[inline]
    pub fn push(&mut self, key: EventKey, event: E) {
        self.len += 1;
        let granule = self.granule(key);
        let pending = Pending { key, event };
        if granule <= self.position {
            self.arrive(pending);
        } else {
            self.file(granule, pending);
        }
    }

    /// As [`TimingWheel::push`], for an event that is behind all of its lane as a rule: one of constant
    /// delay, for example. It waits there, at the cost of a queue; where it is not behind them, it is
    /// pushed like any other.
    #[inline]
    pub fn push_in_order(&mut self, lane: Lane, key: EventKey, event: E) {
        let source = QUEUES + lane as usize;
        let queue = &mut self.queues[source];
        let is_first = match queue.back() {
            Some(last) if last.key > key => return self.push(key, event),
            last => last.is_none(),
        };
        queue.push_back(Pending { key, event });
        self.len += 1;
        if is_first {
            self.set_first(source, key.order());
        }
    }

    /// An event has become the first one of a source.
    #[inline]
    fn set_first(&mut self, source: usize, order: u128) {
        self.firsts[source] = order;
        if source != self.popped_from {
            self.first_of_others = self.first_of_others.min(order);
        }
    }

    /// Takes the first event if its time is at most `limit`.
    #[inline]
    pub fn pop_until(&mut self, limit: SimPs) -> Option<(EventKey, E)> {
        let mut time = self.find_first();
        if time >> self.granule_bits >= self.filed_from && self.advance(limit.0.min(time)) {
            time = self.find_first();
        }
        if time > limit.0 {
            return None;
        }
        let Pending { key, event } = self.pop_first()?;
        self.len -= 1;
        // Nothing on the levels is before it, so that they need not be looked at.
        self.position = self.position.max(time >> self.granule_bits);
        Some((key, event))
    }

    /// Finds out where the first of all events is that are not on the levels; its time.
    #[inline]
    fn find_first(&mut self) -> u64 {
        if self.firsts[self.popped_from] > self.first_of_others {
            self.compare_sources();
        }
        (self.firsts[self.popped_from] >> 64) as u64
    }

    fn compare_sources(&mut self) {
        let (mut source, mut first, mut second) = (0, self.firsts[0], NEVER);
        for other in 1..SOURCES {
            let order = self.firsts[other];
            if order < first {
                second = first;
                (source, first) = (other, order);
            } else {
                second = second.min(order);
            }
        }
        (self.popped_from, self.first_of_others) = (source, second);
    }

    /// Takes the first event of where it was found.
    #[inline]
    fn pop_first(&mut self) -> Option<Pending<E>> {
        let order = |next: Option<&Pending<E>>| next.map_or(NEVER, |next| next.key.order());
        let source = self.popped_from;
        if let Some(queue) = self.queues.get_mut(source) {
            let popped = queue.pop_front();
            self.firsts[source] = order(queue.front());
            return popped;
        }
        let popped;
        self.firsts[source] = match source {
            SORTED => {
                popped = self.current.pop();
                order(self.current.last())
            }
            _ => {
                popped = self.arrivals.pop();
                order(self.arrivals.peek())
            }
        };
        popped
    }

    /// Adds an event of the current granule, or one before it.
    #[inline]
    fn arrive(&mut self, pending: Pending<E>) {
        let order = pending.key.order();
        let class = usize::from(pending.key.class().0).min(QUEUES - 1);
        let queue = &mut self.queues[class];
        let is_first = match queue.back() {
            Some(last) if last.key > pending.key => {
                self.arrivals.push(pending);
                return self.set_first(HEAPED, self.firsts[HEAPED].min(order));
            }
            last => last.is_none(),
        };
        queue.push_back(pending);
        if is_first {
            self.set_first(class, order);
        }
    }

    /// The lane in which the last event popped was.
    #[inline]
    fn popped_lane(&self) -> Option<&VecDeque<Pending<E>>> {
        self.queues
            .get(QUEUES..)?
            .get(self.popped_from.checked_sub(QUEUES)?)
    }

    /// The event after so many others where the last one came from: in its lane, or in the current
    /// granule.
    #[inline]
    pub(crate) fn coming(&self, others: usize) -> Option<&E> {
        let pending = match self.popped_lane() {
            Some(lane) => lane.get(others),
            None => self.current.iter().nth_back(others),
        };
        Some(&pending?.event)
    }

    /// Number of events that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn granule(&self, key: EventKey) -> u64 {
        key.time.0 >> self.granule_bits
    }

    /// Puts an event of a later granule than `position` where its highest differing digit says.
    fn file(&mut self, granule: u64, pending: Pending<E>) {
        debug_assert!(granule > self.position);
        let highest_bit = u64::BITS - 1 - (granule ^ self.position).leading_zeros();
        let level = (highest_bit / DIGIT_BITS) as usize;
        let shift = level as u32 * DIGIT_BITS;
        let above = granule >> shift;
        let digit = above as usize % SLOTS;
        let slot = &mut self.slots[level * SLOTS + digit];
        if slot.capacity() == 0
            && let Some(spare) = self.spare.pop()
        {
            *slot = spare;
        }
        slot.push(pending);
        self.occupied[level][digit / 64] |= 1 << (digit % 64);
        self.levels_used |= 1 << level;
        self.filed_from = self.filed_from.min(above << shift);
    }

    /// Fills `current`, which is empty, with the next granule that holds events on the levels, if it
    /// is not after `limit`.
    fn advance(&mut self, limit: u64) -> bool {
        if self.levels_used == 0 {
            return false;
        }
        let level = self.levels_used.trailing_zeros() as usize;
        let digit = self.first_digit(level);
        let start = self.slot_start(level, digit);
        let limit = limit >> self.granule_bits;
        if start > limit {
            self.filed_from = start;
            return false;
        }
        self.clear_flag(level, digit);
        let mut events = mem::take(&mut self.slots[level * SLOTS + digit]);
        if level == 0 {
            self.position = start;
            self.current.append(&mut events);
        } else {
            // Never beyond the limit: what is scheduled after a stop there shall not meet a wheel
            // that has run ahead and must treat it as an arrival from the past.
            let earliest = events.iter().map(|pending| self.granule(pending.key)).min();
            self.position = earliest.unwrap_or(start).min(limit);
            for pending in events.drain(..) {
                let granule = self.granule(pending.key);
                if granule == self.position {
                    self.current.push(pending);
                } else {
                    self.file(granule, pending);
                }
            }
        }
        if self.spare.len() < SPARES && events.capacity() <= RETAINED_EVENTS {
            self.spare.push(events);
        }
        // Where the first slot is found out when somebody wants to go beyond this granule.
        self.filed_from = match self.levels_used {
            0 => u64::MAX,
            _ => self.position.saturating_add(1),
        };
        self.current.sort_unstable();
        let Some(first) = self.current.last() else {
            return false;
        };
        self.set_first(SORTED, first.key.order());
        true
    }

    /// The first slot of a used level that holds events.
    fn first_digit(&self, level: usize) -> usize {
        let words = &self.occupied[level];
        let word = words.iter().position(|flags| *flags != 0).unwrap_or(0);
        word * 64 + words[word].trailing_zeros() as usize % 64
    }

    /// The first granule of a slot: the digits of the position above it, its own, zeros below.
    fn slot_start(&self, level: usize, digit: usize) -> u64 {
        let shift = level as u32 * DIGIT_BITS;
        let above = self.position.checked_shr(shift + DIGIT_BITS).unwrap_or(0);
        let above = above.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        above | (digit as u64) << shift
    }

    fn clear_flag(&mut self, level: usize, digit: usize) {
        self.occupied[level][digit / 64] &= !(1 << (digit % 64));
        if self.occupied[level].iter().all(|flags| *flags == 0) {
            self.levels_used &= !(1 << level);
        }
    }
}

impl<E> Default for TimingWheel<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::EventClass;

    fn key(time: u64, sequence: u64) -> EventKey {
        EventKey::new(SimPs(time), EventClass(0), sequence)
    }

    #[test]
    fn the_ends_of_time_are_ordinary_instants() {
        for granule_bits in [0, 10, 63, 99] {
            let mut wheel = TimingWheel::with_granule_bits(granule_bits);
            for (sequence, time) in [u64::MAX, 0, u64::MAX - 1, 1 << 63, 1]
                .into_iter()
                .enumerate()
            {
                wheel.push(key(time, sequence as u64), time);
            }
            let times: Vec<u64> = core::iter::from_fn(|| wheel.pop_until(SimPs::MAX))
                .map(|popped| popped.1)
                .collect();
            assert_eq!(times, [0, 1, 1 << 63, u64::MAX - 1, u64::MAX]);
        }
    }

    #[test]
    fn a_limit_never_lets_the_wheel_run_ahead() {
        let mut wheel = TimingWheel::new();
        wheel.push(key(1_000_000_000, 0), 'z');
        // The last two limits lie in the slot of the event, before its granule.
        for limit in [0, 5_000, 900_000_000, 990_000_000] {
            assert!(wheel.pop_until(SimPs(limit)).is_none());
            assert!(wheel.position <= limit >> TimingWheel::<char>::GRANULE_BITS);
        }
        // The far event was filed again, closer; an event before it still comes first.
        wheel.push(key(999_999_999, 1), 'a');
        assert_eq!(
            wheel.pop_until(SimPs::MAX).map(|popped| popped.1),
            Some('a')
        );
        assert_eq!(
            wheel.pop_until(SimPs::MAX).map(|popped| popped.1),
            Some('z')
        );
    }

    #[test]
    fn what_comes_is_known_where_the_last_one_came_from() {
        let mut wheel = TimingWheel::new();
        // In one granule, from both ends of it, and in a lane that goes on for longer.
        for (sequence, time) in [4_100, 4_300, 4_200].into_iter().enumerate() {
            wheel.push(key(time, sequence as u64), time);
        }
        for time in (9_000..15_000).step_by(1_000) {
            wheel.push_in_order(Lane::First, key(time, time), time);
        }
        let mut popped = Vec::new();
        while let Some((_, time)) = wheel.pop_until(SimPs::MAX) {
            popped.push((time, wheel.coming(0).copied(), wheel.coming(2).copied()));
        }
        let expected = [
            (4_100, Some(4_200), None),
            (4_200, Some(4_300), None),
            (4_300, None, None),
            (9_000, Some(10_000), Some(12_000)),
        ];
        assert_eq!(popped[..4], expected);
        assert_eq!(popped[8], (14_000, None, None));
    }

    #[test]
    fn a_burst_leaves_no_footprint() {
        let mut wheel = TimingWheel::new();
        for burst in 1..=100_u64 {
            for sequence in 0..2_000 {
                wheel.push(key(burst * 300_000, burst * 8_000 + sequence), ());
            }
            wheel.push(key(burst * 300_000 + 200_000, burst * 8_000), ());
            while wheel.pop_until(SimPs::MAX).is_some() {}
        }
        assert!(wheel.slots.iter().all(|slot| slot.capacity() == 0));
        assert!((1..=SPARES).contains(&wheel.spare.len()));
        let mut spares = wheel.spare.iter();
        assert!(spares.all(|spare| spare.capacity() <= RETAINED_EVENTS));
    }
}
