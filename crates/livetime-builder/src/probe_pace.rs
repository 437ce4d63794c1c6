//! How often a unit repeats what a peer may not have heard.
//!
//! Each look repeats all that is overdue to a peer that has said something since the last look at which
//! something was. One that says nothing has heard nothing, or works on something long: more than one
//! message would only fill the way to it, and who waits for room there keeps all others waiting. It is
//! sent one, at the first, second, fourth and each eighth look from then on, until it says something.

use std::collections::BTreeMap;

/// Looks between two messages to a peer that stays silent.
const LOOKS_MAX: u32 = 8;

/// A peer for which something was overdue at the last look.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// What it had said by then.
    heard: u32,
    /// Looks since it said something.
    silent: u32,
    look: u32,
    may_repeat: MayRepeat,
}

/// What may be repeated to a peer at this look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MayRepeat {
    All,
    One,
    Nothing,
}

/// The peers for which something is overdue: few, since they are slow, or messages were lost.
#[derive(Debug, Default)]
pub(crate) struct ProbePace {
    peers: BTreeMap<u16, Waiting>,
    look: u32,
}

impl ProbePace {
    /// The next look begins.
    pub(crate) fn begin_look(&mut self) {
        let last = self.look;
        self.peers.retain(|_, peer| peer.look == last);
        self.look = last.wrapping_add(1);
    }

    /// Whether to repeat another message to a peer at this look; `heard` changes with all that it says.
    pub(crate) fn may_repeat(&mut self, peer: u16, heard: u32) -> bool {
        let look = self.look;
        let waiting = self.peers.entry(peer).or_insert(Waiting {
            heard: heard.wrapping_sub(1),
            silent: 0,
            look: look.wrapping_sub(1),
            may_repeat: MayRepeat::All,
        });
        if waiting.look != look {
            waiting.look = look;
            waiting.silent = match waiting.heard == heard {
                true => waiting.silent.saturating_add(1),
                false => 0,
            };
            waiting.heard = heard;
            waiting.may_repeat = match waiting.silent {
                0 => MayRepeat::All,
                silent if silent.is_power_of_two() && silent <= LOOKS_MAX => MayRepeat::One,
                silent if silent.is_multiple_of(LOOKS_MAX) => MayRepeat::One,
                _ => MayRepeat::Nothing,
            };
        }
        match waiting.may_repeat {
            MayRepeat::All => true,
            MayRepeat::One => {
                waiting.may_repeat = MayRepeat::Nothing;
                true
            }
            MayRepeat::Nothing => false,
        }
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
    fn a_silent_peer_is_sent_a_message_now_and_then() {
        let mut pace = ProbePace::default();
        let sent: Vec<usize> = (0..26).map(|_| look(&mut pace, 3, 7)).collect();
        let at = |n: usize| usize::from([1, 2, 4, 8, 16, 24].contains(&n));
        let expected: Vec<usize> = (0..26).map(|n| if n == 0 { 10 } else { at(n) }).collect();
        assert_eq!(sent, expected);
        assert_eq!(look(&mut pace, 3, 8), 10, "it has said something");
        assert_eq!(look(&mut pace, 3, 8), 1);
    }

    #[test]
    fn each_peer_has_its_own_pace_and_is_forgotten_when_nothing_is_overdue() {
        let mut pace = ProbePace::default();
        assert_eq!(look(&mut pace, 0, 1), 10);
        pace.begin_look();
        assert!(pace.may_repeat(0, 1) && !pace.may_repeat(0, 1));
        assert!(pace.may_repeat(1, 1) && pace.may_repeat(1, 1));
        pace.begin_look();
        assert_eq!(look(&mut pace, 0, 1), 10);
    }
}
