//! The order in which the actions of a channel are due.
//!
//! Messages mostly come in the order of their deadlines. Those turns stand in a line, to which one
//! is added and from which one is taken at no cost that grows; a turn that is due before the last
//! of the line goes into a heap, and the earlier of both is the first.

use core::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use livetime_wire::TaiNs;

/// Turns that the line takes; more go into the heap. Few enough to stay in a near cache.
const LINE_MAX: usize = 1024;

/// What the queue sorts. Small, so that keeping thousands in order moves few bytes; the action
/// itself stays in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// When it leaves the queue; once settled, its turn among several of one deadline.
    pub(super) due: TaiNs,
    /// Order of arrival.
    pub(super) sequence: u64,
    /// Where the action is.
    pub(super) place: u32,
    /// Whether its turn is known.
    pub(super) settled: bool,
}

impl Turn {
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        (self.due, self.sequence) < (other.due, other.sequence)
    }
}

impl Ord for Turn {
    /// The earliest due is the greatest, since [`BinaryHeap`] gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.sequence).cmp(&(self.due, self.sequence))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Turns, of which the first can be had; it allocates all it ever will when it is made.
#[derive(Debug)]
pub(super) struct TurnQueue {
    line: VecDeque<Turn>,
    heap: BinaryHeap<Turn>,
}

impl TurnQueue {
    /// Room for so many; the owner keeps count.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            line: VecDeque::with_capacity(capacity.min(LINE_MAX)),
            heap: BinaryHeap::with_capacity(capacity),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.line.len() + self.heap.len()
    }

    #[inline]
    pub(super) fn push(&mut self, turn: Turn) {
        let in_order = self.line.back().is_none_or(|last| last.is_before(&turn));
        if in_order && self.line.len() < LINE_MAX {
            self.line.push_back(turn);
        } else {
            self.heap.push(turn);
        }
    }

    /// Whether the first of all is that of the line.
    #[inline]
    fn is_line_first(&self) -> bool {
        match (self.line.front(), self.heap.peek()) {
            (Some(line), Some(heap)) => line.is_before(heap),
            (line, _) => line.is_some(),
        }
    }

    /// The turn that is due first.
    #[inline]
    pub(super) fn first(&self) -> Option<&Turn> {
        if self.is_line_first() {
            self.line.front()
        } else {
            self.heap.peek()
        }
    }

    /// Takes the first turn out.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Turn> {
        if self.is_line_first() {
            self.line.pop_front()
        } else {
            self.heap.pop()
        }
    }

    /// Takes out all turns that are not to stay.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&Turn) -> bool) {
        self.line.retain(&mut stays);
        self.heap.retain(stays);
    }

    /// Puts `turn` in the place of the first, which may be due later now.
    #[inline]
    pub(super) fn replace_first(&mut self, turn: Turn) {
        if !self.is_line_first() {
            if let Some(mut first) = self.heap.peek_mut() {
                *first = turn;
            }
            return;
        }
        let in_order = self.line.get(1).is_none_or(|next| turn.is_before(next));
        if in_order && let Some(first) = self.line.front_mut() {
            *first = turn;
        } else {
            self.line.pop_front();
            self.heap.push(turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Push(u64),
        Pop,
        Delay(u64),
        TakeOut(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Mostly later and later, as messages come, and some out of order.
        let step = prop_oneof![
            6 => (0u64..40).prop_map(Step::Push),
            4 => Just(Step::Pop),
            2 => (0u64..30).prop_map(Step::Delay),
            1 => (2u64..9).prop_map(Step::TakeOut),
        ];
        prop::collection::vec(step, 0..4 * LINE_MAX)
    }

    fn plain_first(plain: &[Turn]) -> Option<usize> {
        let key = |index: &usize| (plain[*index].due, plain[*index].sequence);
        (0..plain.len()).min_by_key(key)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_steps_give_the_turns_that_a_plain_list_gives(steps in steps()) {
            let (mut queue, mut plain) = (TurnQueue::new(8), Vec::<Turn>::new());
            let mut sequence = 0;
            for step in steps {
                let first = plain_first(&plain);
                match step {
                    Step::Push(ahead) => {
                        sequence += 1;
                        let turn = Turn {
                            due: TaiNs(sequence + ahead / 30 * ahead),
                            sequence,
                            place: sequence as u32,
                            settled: false,
                        };
                        queue.push(turn);
                        plain.push(turn);
                    }
                    Step::Pop => prop_assert_eq!(queue.pop(), first.map(|at| plain.remove(at))),
                    Step::Delay(by) => {
                        let Some(at) = first else { continue };
                        plain[at].due = TaiNs(plain[at].due.0 + by);
                        queue.replace_first(plain[at]);
                    }
                    Step::TakeOut(each) => {
                        queue.retain(|turn| turn.sequence % each != 0);
                        plain.retain(|turn| turn.sequence % each != 0);
                    }
                }
                let first = plain_first(&plain).map(|at| plain[at]);
                prop_assert_eq!((queue.first().copied(), queue.len()), (first, plain.len()));
            }
        }
    }
}
