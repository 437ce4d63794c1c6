//! What the numbers of datagrams say: which were lost, came late or came twice.

/// How far back a number is remembered.
const WINDOW: u32 = u64::BITS;

/// What a number says of its datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// So many before it have not come.
    InOrder {
        /// Those between the last one and this.
        missing: u32,
    },
    /// It was taken for lost.
    Late,
    /// It has come before.
    Repeated,
}

/// The numbers that have come from one sender.
#[derive(Debug)]
pub(super) struct DatagramNumbers {
    next: u32,
    /// Bit `n`: number `next - 1 - n` has come.
    seen: u64,
}

impl DatagramNumbers {
    /// Of a sender that begins with 0.
    pub(super) fn new() -> Self {
        Self {
            next: 0,
            seen: u64::MAX,
        }
    }

    /// Takes note of a number. One so old that it is not remembered is called late.
    pub(super) fn note(&mut self, number: u32) -> Arrival {
        let ahead = number.wrapping_sub(self.next);
        if ahead <= u32::MAX / 2 {
            let shifted = ahead
                .checked_add(1)
                .and_then(|by| self.seen.checked_shl(by));
            self.seen = shifted.unwrap_or(0) | 1;
            self.next = number.wrapping_add(1);
            return Arrival::InOrder { missing: ahead };
        }
        let back = self.next.wrapping_sub(number) - 1;
        if back >= WINDOW {
            return Arrival::Late;
        }
        let bit = 1 << back;
        let has_come = self.seen & bit != 0;
        self.seen |= bit;
        match has_come {
            true => Arrival::Repeated,
            false => Arrival::Late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_late_and_repeated_numbers_are_told_apart() {
        let mut numbers = DatagramNumbers::new();
        let in_order = |missing| Arrival::InOrder { missing };
        for (number, arrival) in [
            (0, in_order(0)),
            (1, in_order(0)),
            (4, in_order(2)),
            (3, Arrival::Late),
            (3, Arrival::Repeated),
            (0, Arrival::Repeated),
            (2, Arrival::Late),
            (5, in_order(0)),
            (200, in_order(194)),
            (5, Arrival::Late),
            (137, Arrival::Late),
            (137, Arrival::Repeated),
        ] {
            assert_eq!(numbers.note(number), arrival, "{number}");
        }
    }

    #[test]
    fn numbers_begin_again_after_the_largest() {
        let mut numbers = DatagramNumbers {
            next: u32::MAX - 1,
            seen: u64::MAX,
        };
        assert_eq!(numbers.note(u32::MAX - 1), Arrival::InOrder { missing: 0 });
        assert_eq!(numbers.note(1), Arrival::InOrder { missing: 2 });
        assert_eq!(numbers.note(u32::MAX), Arrival::Late);
        assert_eq!(numbers.note(0), Arrival::Late);
        assert_eq!(numbers.note(0), Arrival::Repeated);
    }

    #[test]
    fn a_first_datagram_that_is_not_number_0_tells_what_was_lost() {
        let mut numbers = DatagramNumbers::new();
        assert_eq!(numbers.note(3), Arrival::InOrder { missing: 3 });
        assert_eq!(numbers.note(u32::MAX), Arrival::Repeated, "never sent");
    }
}
