//! How often a unit repeats what a peer may not have heard.
//!
//! Each look repeats all that is overdue to a peer that has said something since the last look at which
//! something was. One that says nothing has heard nothing, or works on something long: more than one
//! message would only fill the way to it, and who waits for room there keeps all others waiting. It is
//! sent one at each look, until it says something.

use std::collections::BTreeMap;

/// A peer for which something was overdue at the last look.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// What it had said by then.
    heard: u32,
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
            look: look.wrapping_sub(1),
            may_repeat: MayRepeat::All,
        });
        if waiting.look != look {
            waiting.look = look;
            waiting.may_repeat = match waiting.heard == heard {
                true => MayRepeat::One,
                false => MayRepeat::All,
            };
            waiting.heard = heard;
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
    fn a_silent_peer_is_sent_one_message_at_each_look() {
        let mut pace = ProbePace::default();
        let sent = [(); 4].map(|()| look(&mut pace, 3, 7));
        assert_eq!(sent, [10, 1, 1, 1]);
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
