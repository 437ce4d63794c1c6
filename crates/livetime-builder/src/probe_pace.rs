//! How often a unit repeats what a peer may not have heard.
//!
//! Each look repeats all that is overdue. But a peer that stands still reads nothing, and whoever waits
//! for room on the way to it keeps all others waiting. So one that has said nothing since so many
//! repetitions is sent more of them ever more rarely, until it says something: some sixteen more fill an
//! age, however short a look is, and what it waits for is at most as long as its silence.

use std::collections::BTreeMap;

/// Looks to the first repetition of the rare ones; to each after it twice as many.
const LOOKS_BETWEEN: u32 = 4;
/// The most looks between two.
const LOOKS_MOST: u32 = 1 << 20;

/// A peer for which something was overdue at the last look.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// What it had said by then.
    heard: u32,
    /// Repetitions since it said something.
    sent: u32,
    look: u32,
    /// The look from which on one more may be sent, and how many looks after that the next one.
    rare_at: u32,
    looks_between: u32,
}

/// The peers for which something is overdue: few, since they are slow, or messages were lost.
#[derive(Debug)]
pub(crate) struct ProbePace {
    peers: BTreeMap<u16, Waiting>,
    look: u32,
    /// Repetitions to a peer that says nothing before they become rare.
    often_max: u32,
}

impl ProbePace {
    pub(crate) fn new(often_max: u32) -> Self {
        Self {
            peers: BTreeMap::new(),
            look: 0,
            often_max,
        }
    }

    /// The next look begins.
    pub(crate) fn begin_look(&mut self) {
        let last = self.look;
        self.peers.retain(|_, peer| peer.look == last);
        self.look = last.wrapping_add(1);
    }

    /// Whether to repeat another message to a peer at this look; `heard` changes with all that it says.
    pub(crate) fn may_repeat(&mut self, peer: u16, heard: u32) -> bool {
        let look = self.look;
        let silent = Waiting {
            heard,
            sent: 0,
            look,
            rare_at: look,
            looks_between: LOOKS_BETWEEN,
        };
        let waiting = self.peers.entry(peer).or_insert(silent);
        if waiting.heard != heard {
            *waiting = silent;
        }
        waiting.look = look;
        let is_rare = waiting.sent >= self.often_max;
        if is_rare && look.wrapping_sub(waiting.rare_at).cast_signed() < 0 {
            return false;
        }
        waiting.sent = waiting.sent.saturating_add(1);
        if is_rare {
            waiting.looks_between = (2 * waiting.looks_between).min(LOOKS_MOST);
        }
        waiting.rare_at = look.wrapping_add(waiting.looks_between);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of ten messages to a peer are repeated at the next look.
    fn look(pace: &mut ProbePace, peer: u16, heard: u32) -> usize {
        pace.begin_look();
        (0..10).filter(|_| pace.may_repeat(peer, heard)).count()
    }

    #[test]
    fn a_peer_that_stays_silent_is_sent_messages_ever_more_rarely() {
        let mut pace = ProbePace::new(32);
        let sent = [(); 20].map(|()| look(&mut pace, 3, 7));
        let at = |n: usize| match n {
            0..3 => 10,
            // What is left of 32.
            3 => 2,
            7 | 15 => 1,
            _ => 0,
        };
        assert_eq!(sent, std::array::from_fn(at));
        let more: usize = (0..100_000).map(|_| look(&mut pace, 3, 7)).sum();
        assert!((10..=16).contains(&more), "{more} would fill the way to it");
        assert_eq!(look(&mut pace, 3, 8), 10, "it has said something");
    }

    #[test]
    fn each_peer_has_its_own_pace_and_is_forgotten_when_nothing_is_overdue() {
        let mut pace = ProbePace::new(32);
        for look in 0..6 {
            pace.begin_look();
            let sent = (0..10).filter(|_| pace.may_repeat(0, 1)).count();
            assert_eq!(sent, [10, 10, 10, 2, 0, 0][look]);
            assert!(pace.may_repeat(1, 1));
        }
        pace.begin_look();
        assert_eq!(look(&mut pace, 0, 1), 10);
    }
}
