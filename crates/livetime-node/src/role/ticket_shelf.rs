//! Tickets that a filter unit has handed to the writer and not heard of again.
//!
//! They are kept so that another writer can be given them when the first one dies. The memory is
//! that of the window; nothing is allocated after the start.

use livetime_wire::TriggerNumber;

/// A ticket on the shelf.
#[derive(Debug, Clone, Default)]
struct Kept {
    builder: u16,
    trigger: TriggerNumber,
    /// It was given to a second writer already.
    again: bool,
    words: Vec<u32>,
}

/// The tickets, in the order in which they were handed over.
#[derive(Debug)]
pub struct TicketShelf {
    slots: Vec<Kept>,
    first: usize,
    len: usize,
}

impl TicketShelf {
    /// Room for `tickets` of at most `words` words.
    pub fn new(tickets: usize, words: usize) -> Self {
        let slot = || Kept {
            words: Vec::with_capacity(words),
            ..Kept::default()
        };
        Self {
            slots: std::iter::repeat_with(slot).take(tickets.max(1)).collect(),
            first: 0,
            len: 0,
        }
    }

    /// Number of tickets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        self.len == self.slots.len()
    }

    /// Whether a builder unit has an event here.
    pub fn has_any_of(&self, builder: u16) -> bool {
        (0..self.len).any(|nth| self.slot(nth).builder == builder)
    }

    /// Whether an event is here.
    pub fn has(&self, builder: u16, trigger: TriggerNumber) -> bool {
        let mut kept = (0..self.len).map(|nth| self.slot(nth));
        kept.any(|kept| kept.builder == builder && kept.trigger == trigger)
    }

    fn slot(&self, nth: usize) -> &Kept {
        &self.slots[(self.first + nth) % self.slots.len()]
    }

    /// Keeps a ticket.
    ///
    /// # Panics
    /// If there is no room.
    pub fn push(&mut self, builder: u16, trigger: TriggerNumber, words: &[u32]) {
        assert!(!self.is_full(), "the caller looked for room");
        let at = (self.first + self.len) % self.slots.len();
        let slot = &mut self.slots[at];
        (slot.builder, slot.trigger, slot.again) = (builder, trigger, false);
        slot.words.clear();
        slot.words.extend_from_slice(words);
        self.len += 1;
    }

    /// Takes a ticket off the shelf and shows its words; `None` when it is not there. The writer
    /// answers in order, so that it is the first one.
    pub fn remove(&mut self, builder: u16, trigger: TriggerNumber) -> Option<&[u32]> {
        let mut places = 0..self.len;
        let is_it = |kept: &Kept| kept.builder == builder && kept.trigger == trigger;
        let nth = places.find(|nth| is_it(self.slot(*nth)))?;
        // Those before it move up by one place.
        for to in (0..nth).rev() {
            let count = self.slots.len();
            let (a, b) = ((self.first + to) % count, (self.first + to + 1) % count);
            self.slots.swap(a, b);
        }
        let at = self.first;
        self.pop();
        Some(&self.slots[at].words)
    }

    /// The first ticket: its builder unit and trigger.
    pub fn first(&self) -> Option<(u16, TriggerNumber)> {
        (self.len > 0).then(|| (self.slot(0).builder, self.slot(0).trigger))
    }

    /// Takes the first ticket off.
    pub fn pop(&mut self) {
        if self.len > 0 {
            self.first = (self.first + 1) % self.slots.len();
            self.len -= 1;
        }
    }

    /// Hands the words of each ticket to another writer, in order, and notes that. Those that a
    /// second one has had already come first and go to `given_up` instead.
    pub fn hand_over_again(
        &mut self,
        mut given_up: impl FnMut(u16, TriggerNumber, &[u32]),
        mut send: impl FnMut(&[u32]),
    ) {
        while self.len > 0 && self.slot(0).again {
            let kept = self.slot(0);
            given_up(kept.builder, kept.trigger, &kept.words);
            self.pop();
        }
        for nth in 0..self.len {
            let at = (self.first + nth) % self.slots.len();
            let kept = &mut self.slots[at];
            kept.again = true;
            send(&kept.words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: fn(u64) -> TriggerNumber = TriggerNumber;

    #[test]
    fn tickets_are_taken_off_in_any_order_and_handed_over_once_more() {
        let mut shelf = TicketShelf::new(3, 2);
        for lap in 0..5_u64 {
            (1..=3).for_each(|n| shelf.push(n as u16, T(n + lap), &[n as u32]));
            assert!(shelf.is_full() && shelf.has_any_of(2) && !shelf.has_any_of(0));
            assert!(shelf.has(2, T(2 + lap)) && !shelf.has(1, T(2 + lap)));
            assert_eq!(shelf.remove(1, T(2 + lap)), None, "another's");
            assert_eq!(shelf.remove(2, T(2 + lap)), Some(&[2][..]));
            let mut sent = Vec::new();
            let none =
                |_: u16, _: TriggerNumber, _: &[u32]| panic!("all are here for the first time");
            shelf.hand_over_again(none, |words| sent.push(words[0]));
            assert_eq!(sent, [1, 3]);
            shelf.push(4, T(9), &[4]);
            let (mut sent, mut given_up) = (Vec::new(), Vec::new());
            shelf.hand_over_again(
                |builder, trigger, words| given_up.push((builder, trigger.0, words[0])),
                |words| sent.push(words[0]),
            );
            assert_eq!(
                (sent, given_up),
                (vec![4], vec![(1, 1 + lap, 1), (3, 3 + lap, 3)])
            );
            assert_eq!((shelf.len(), shelf.first()), (1, Some((4, T(9)))));
            assert_eq!(shelf.remove(4, T(9)), Some(&[4][..]));
            assert!(shelf.is_empty());
        }
    }
}
