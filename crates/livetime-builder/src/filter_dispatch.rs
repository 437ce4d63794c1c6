//! Which filter unit gets the next event of a builder unit: the one with the most room, and of several
//! with as much room the one after the last that got an event, so that all take part when none is busy.
//!
//! Each filter unit may hold a small number of a builder unit's events; a slow one thereby gets
//! fewer. Events are named by their slot in the builder unit, which alone knows them.

use std::collections::VecDeque;

/// Events that wait for a filter unit, and the room in each.
#[derive(Debug)]
pub struct FilterDispatch {
    /// Room left in each filter unit; `None` for one that is away.
    free: Vec<Option<u32>>,
    /// The filter unit that got the last event.
    last: usize,
    window: u32,
    ready: VecDeque<u32>,
    ready_max: usize,
}

impl FilterDispatch {
    /// For `filters` filter units that take `window` events each, and at most `ready_max` events
    /// waiting.
    pub fn new(filters: usize, window: u32, ready_max: usize) -> Self {
        Self {
            free: vec![Some(window); filters],
            last: filters.saturating_sub(1),
            window,
            ready: VecDeque::with_capacity(ready_max),
            ready_max,
        }
    }

    /// An event waits for a filter unit.
    ///
    /// # Panics
    /// If more events wait than the builder unit has slots.
    #[inline]
    pub fn push(&mut self, slot: u32) {
        assert!(
            self.ready.len() < self.ready_max,
            "more than {} events wait for a filter unit",
            self.ready_max
        );
        self.ready.push_back(slot);
    }

    /// An event that was given out waits again, ahead of all others.
    ///
    /// # Panics
    /// If more events wait than the builder unit has slots.
    #[inline]
    pub fn push_again(&mut self, slot: u32) {
        assert!(
            self.ready.len() < self.ready_max,
            "more than {} events wait for a filter unit",
            self.ready_max
        );
        self.ready.push_front(slot);
    }

    /// The oldest waiting event and the filter unit that gets it, if one has room.
    pub fn poll(&mut self) -> Option<(u32, u16)> {
        self.ready.front()?;
        let filters = self.free.len();
        let after_last = self.last + 1;
        let (distance, room) = (0..filters)
            .filter_map(|distance| Some((distance, self.free[(after_last + distance) % filters]?)))
            // `max_by_key` gives the last of equals; the first shall win.
            .rev()
            .max_by_key(|(_, room)| *room)?;
        if room == 0 {
            return None;
        }
        self.last = (after_last + distance) % filters;
        self.free[self.last] = Some(room - 1);
        Some((self.ready.pop_front()?, self.last as u16))
    }

    /// A filter unit is through with an event.
    #[inline]
    pub fn done(&mut self, filter: u16) {
        if let Some(Some(free)) = self.free.get_mut(usize::from(filter)) {
            debug_assert!(*free < self.window, "fu{filter} returned too many events");
            *free = (*free + 1).min(self.window);
        }
    }

    /// A filter unit went away; it gets no more events, and those it had are the caller's.
    #[inline]
    pub fn remove_filter(&mut self, filter: u16) {
        if let Some(free) = self.free.get_mut(usize::from(filter)) {
            *free = None;
        }
    }

    /// A filter unit that was removed is back, with nothing in it.
    #[inline]
    pub fn restore_filter(&mut self, filter: u16) {
        if let Some(free) = self.free.get_mut(usize::from(filter)) {
            free.get_or_insert(self.window);
        }
    }

    /// Number of events that wait.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// Takes an event that waits away, the oldest first.
    #[inline]
    pub fn withdraw(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_unit_with_most_room_gets_the_oldest_event() {
        let mut dispatch = FilterDispatch::new(2, 2, 8);
        (0..5).for_each(|slot| dispatch.push(slot));
        assert_eq!(dispatch.poll(), Some((0, 0)));
        assert_eq!(dispatch.poll(), Some((1, 1)));
        assert_eq!(dispatch.poll(), Some((2, 0)));
        assert_eq!(dispatch.poll(), Some((3, 1)));
        assert_eq!(dispatch.poll(), None, "both windows are full");
        dispatch.done(1);
        assert_eq!(dispatch.poll(), Some((4, 1)));
        assert_eq!(dispatch.poll(), None);
    }

    #[test]
    fn filter_units_that_wait_take_turns() {
        let mut dispatch = FilterDispatch::new(3, 2, 1);
        for turn in 0..9 {
            dispatch.push(0);
            assert_eq!(dispatch.poll(), Some((0, turn % 3)));
            dispatch.done(turn % 3);
        }
    }

    #[test]
    fn a_filter_unit_that_is_away_gets_nothing() {
        let mut dispatch = FilterDispatch::new(2, 1, 8);
        dispatch.remove_filter(0);
        (0..3).for_each(|slot| dispatch.push(slot));
        assert_eq!(dispatch.poll(), Some((0, 1)));
        assert_eq!(dispatch.poll(), None);
        dispatch.done(0);
        assert_eq!(dispatch.poll(), None, "a late answer of the absent one");
        dispatch.restore_filter(0);
        assert_eq!(dispatch.poll(), Some((1, 0)));
        assert_eq!(dispatch.waiting(), 1);
        assert_eq!(dispatch.withdraw(), Some(2));
        assert_eq!(dispatch.withdraw(), None);
    }

    /// One takes three times as long as the other, and gets a quarter of the events.
    #[test]
    fn a_slow_filter_unit_gets_fewer_events() {
        let mut dispatch = FilterDispatch::new(2, 2, 8);
        let (mut given, mut held) = ([0; 2], [0; 2]);
        for cycle in 0..400 {
            while dispatch.waiting() < 4 {
                dispatch.push(0);
            }
            while let Some((_, filter)) = dispatch.poll() {
                given[usize::from(filter)] += 1;
                held[usize::from(filter)] += 1;
            }
            for (filter, pace) in [(0, 1), (1, 3)] {
                if cycle % pace == 0 && held[filter] > 0 {
                    held[filter] -= 1;
                    dispatch.done(filter as u16);
                }
            }
        }
        let [fast, slow] = given;
        assert!((295..=305).contains(&(fast * 300 / 400)), "{given:?}");
        assert!((130..=140).contains(&slow), "{given:?}");
    }

    #[test]
    fn an_event_of_an_absent_filter_unit_comes_first() {
        let mut dispatch = FilterDispatch::new(2, 1, 8);
        (0..4).for_each(|slot| dispatch.push(slot));
        assert_eq!(dispatch.poll(), Some((0, 0)));
        assert_eq!(dispatch.poll(), Some((1, 1)));
        dispatch.remove_filter(0);
        dispatch.push_again(0);
        dispatch.done(1);
        assert_eq!(dispatch.poll(), Some((0, 1)));
        assert_eq!(dispatch.waiting(), 2);
    }
}
