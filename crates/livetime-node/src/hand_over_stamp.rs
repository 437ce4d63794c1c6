//! The time at which a ticket was handed over, behind its words in the ring to a filter unit.
//!
//! A ticket names its own length, so whoever reads one passes over what follows. Both ends read the
//! clock themselves: the time of their duty cycles is that of its beginning. The stamp is no part
//! of the ticket's format, and goes no further than this ring.

use livetime_wire::RunNs;
use livetime_wire::message::EventTicket;

/// Words behind the ticket.
pub const STAMP_WORDS: usize = 2;

/// Makes room for a stamp behind an emitted ticket.
#[inline]
pub fn add_room(words: &mut Vec<u32>) {
    words.extend([0; STAMP_WORDS]);
}

/// Writes the time of the hand-over; words without room for it stay as they are.
#[inline]
pub fn stamp(words: &mut [u32], at: RunNs) {
    if let Some(place) = words.last_chunk_mut::<STAMP_WORDS>() {
        *place = [(at.0 & 0xFFFF_FFFF) as u32, (at.0 >> 32) as u32];
    }
}

/// The stamp behind a ticket; `None` if there is none.
#[inline]
pub fn stamp_of(words: &[u32]) -> Option<RunNs> {
    let first = *words.first()?;
    let ticket_words = (first & 0xFFFF) as usize;
    if first >> 16 != EventTicket::MAGIC {
        return None;
    }
    let [low, high] = *words.get(ticket_words..)?.first_chunk::<STAMP_WORDS>()?;
    Some(RunNs(u64::from(low) | u64::from(high) << 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_behind_the_ticket_and_changes_nothing_of_it() {
        let mut ticket = EventTicket::with_capacity(1);
        ticket.built_at = RunNs(77);
        let mut words = Vec::new();
        ticket.emit(&mut words);
        assert_eq!(stamp_of(&words), None);
        add_room(&mut words);
        let at = RunNs(0x1234_5678_9ABC_DEF0);
        stamp(&mut words, at);
        assert_eq!(stamp_of(&words), Some(at));
        let mut read = EventTicket::with_capacity(1);
        read.read(&words).unwrap();
        assert_eq!(read, ticket);
    }

    #[test]
    fn nonsense_has_no_stamp() {
        assert_eq!(stamp_of(&[]), None);
        assert_eq!(stamp_of(&[7; 40]), None);
        assert_eq!(stamp_of(&[EventTicket::MAGIC << 16 | 39; 40]), None);
    }
}
