//! Which peers live: by the time since they were last heard.
//!
//! A peer that is silent for a while is suspected and heard again at any time; one that is silent
//! for longer is dead, and stays so until whoever keeps the membership says that it is back. What
//! follows from either is the owner's; see [`crate::event_manager`].

use livetime_wire::{DurationNs, RunNs};

/// What is thought of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It was never heard, so nothing is expected of it yet.
    Unknown,
    /// It was heard recently.
    Alive,
    /// It is silent: nothing new for it.
    Suspect,
    /// It was silent for too long.
    Dead,
}

#[derive(Debug, Clone, Copy)]
struct Peer {
    heard: RunNs,
    life: Life,
}

/// The lives of a number of peers. 16 bytes each.
#[derive(Debug)]
pub struct Liveness {
    peers: Vec<Peer>,
    suspect: DurationNs,
    dead: DurationNs,
    /// Nothing changes by time alone before this.
    check_at: RunNs,
}

impl Liveness {
    /// `peers` peers that were never heard; `suspect` and `dead` are the silences, `suspect` the
    /// shorter.
    pub fn new(peers: usize, suspect: DurationNs, dead: DurationNs) -> Self {
        let peer = Peer {
            heard: RunNs(0),
            life: Life::Unknown,
        };
        Self {
            peers: vec![peer; peers],
            suspect,
            dead,
            check_at: RunNs::MAX,
        }
    }

    /// A peer said something, or is expected to do so from now on. A dead one is not heard.
    pub fn handle_heard(&mut self, now: RunNs, peer: u16) {
        let Some(peer) = self.peers.get_mut(usize::from(peer)) else {
            return;
        };
        if peer.life != Life::Dead {
            peer.heard = now;
            peer.life = Life::Alive;
            self.check_at = self.check_at.min(now.after(self.suspect));
        }
    }

    /// A peer is known to be gone, or to be back and not heard yet.
    pub fn set(&mut self, peer: u16, life: Life) {
        if let Some(peer) = self.peers.get_mut(usize::from(peer)) {
            peer.life = life;
        }
    }

    /// What is thought of a peer; [`Life::Unknown`] of one that there is not.
    pub fn of(&self, peer: usize) -> Life {
        self.peers.get(peer).map_or(Life::Unknown, |peer| peer.life)
    }

    /// When [`Liveness::handle_timeout`] is next worth calling.
    pub fn poll_timeout(&self) -> RunNs {
        self.check_at
    }

    /// Judges silences, and says for each peer that died thereby. The time by which it is called too late
    /// is no silence: the owner stood still, and what was said meanwhile may lie unread.
    pub fn handle_timeout(&mut self, now: RunNs, mut died: impl FnMut(u16)) {
        if now < self.check_at {
            return;
        }
        let late = self.check_at.standstill(now);
        self.check_at = RunNs::MAX;
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if !matches!(peer.life, Life::Alive | Life::Suspect) {
                continue;
            }
            peer.heard = peer.heard.after(late).min(now);
            let next = if now >= peer.heard.after(self.dead) {
                peer.life = Life::Dead;
                died(index as u16);
                continue;
            } else if now >= peer.heard.after(self.suspect) {
                peer.life = Life::Suspect;
                peer.heard.after(self.dead)
            } else {
                peer.heard.after(self.suspect)
            };
            self.check_at = self.check_at.min(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn liveness() -> Liveness {
        Liveness::new(2, DurationNs(300), DurationNs(500))
    }

    fn died(liveness: &mut Liveness, now: u64) -> Vec<u16> {
        let mut all = Vec::new();
        liveness.handle_timeout(RunNs(now), |peer| all.push(peer));
        all
    }

    #[test]
    fn silence_is_suspect_then_death_and_the_dead_are_not_heard() {
        let mut lives = liveness();
        assert_eq!(lives.poll_timeout(), RunNs::MAX, "nobody was heard");
        lives.handle_heard(RunNs(100), 0);
        assert_eq!(lives.poll_timeout(), RunNs(400));
        assert_eq!(died(&mut lives, 399), []);
        assert_eq!(lives.of(0), Life::Alive);
        assert_eq!(died(&mut lives, 400), []);
        assert_eq!(lives.of(0), Life::Suspect);
        lives.handle_heard(RunNs(450), 0);
        assert_eq!(lives.of(0), Life::Alive, "heard again in time");
        assert_eq!(died(&mut lives, 750), []);
        assert_eq!(lives.poll_timeout(), RunNs(950));
        assert_eq!(died(&mut lives, 950), [0]);
        lives.handle_heard(RunNs(960), 0);
        assert_eq!(lives.of(0), Life::Dead);
        lives.set(0, Life::Unknown);
        lives.handle_heard(RunNs(970), 0);
        assert_eq!((lives.of(0), lives.of(1)), (Life::Alive, Life::Unknown));
        lives.handle_heard(RunNs(0), 9);
        assert_eq!(lives.of(9), Life::Unknown);
    }

    proptest! {
        /// Against the definition: the life of a peer is that of the silence since it was heard.
        #[test]
        fn the_life_is_that_of_the_silence(
            steps in prop::collection::vec((0..200_u64, 0..3_u16), 1..100),
        ) {
            let mut lives = liveness();
            let mut heard: [Option<u64>; 2] = [None; 2];
            let mut dead = [false; 2];
            let mut now = 0;
            for (wait, what) in steps {
                now += wait;
                let died = died(&mut lives, now);
                for peer in 0..2_usize {
                    let silence = heard[peer].map(|at| now - at);
                    let dies = !dead[peer] && silence.is_some_and(|s| s >= 500);
                    prop_assert_eq!(died.contains(&(peer as u16)), dies);
                    dead[peer] |= dies;
                    let expected = match (dead[peer], silence) {
                        (true, _) => Life::Dead,
                        (_, None) => Life::Unknown,
                        (_, Some(0..300)) => Life::Alive,
                        _ => Life::Suspect,
                    };
                    prop_assert_eq!(lives.of(peer), expected);
                }
                if what < 2 && !dead[usize::from(what)] {
                    lives.handle_heard(RunNs(now), what);
                    heard[usize::from(what)] = Some(now);
                }
            }
        }
    }
}
