//! The reset of a link: URESET# low until LDOWN# releases, one end after the other.
//!
//! URESET# resets the card that it is connected to and no other, so a system reset goes to both
//! ends in a fixed order. [`ResetHandshake`] drives one pin, [`SystemReset`] both; neither knows
//! what the cards do meanwhile ([`crate::card_link`]) or who asked for it.

use crate::line::LinkState;

/// The level of a URESET# pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResetPin {
    /// High: no reset.
    #[default]
    Released,
    /// Low: reset asked.
    Driven,
}

/// Where a handshake stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Idle,
    /// Driven; the card has not taken the link down yet.
    AwaitDown,
    /// Driven; the link is down.
    AwaitUp,
}

/// The reset handshake of one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetHandshake {
    step: Step,
    /// Clocks that the pin is still to be held low at the least.
    hold_left: u32,
    hold_clocks: u32,
    finished: u64,
}

impl ResetHandshake {
    /// An idle handshake that holds the pin for at least `hold_clocks` clocks, 1 or more (32 for
    /// later cards).
    pub fn new(hold_clocks: u32) -> Self {
        Self {
            step: Step::Idle,
            hold_left: 0,
            hold_clocks: hold_clocks.max(1),
            finished: 0,
        }
    }

    /// Asks for a reset; one that is going on is not begun anew.
    pub fn start(&mut self) {
        if self.step == Step::Idle {
            self.step = Step::AwaitDown;
            self.hold_left = self.hold_clocks;
        }
    }

    /// One clock: what the card's LDOWN# says, and what the pin is to be.
    pub fn clock(&mut self, link: LinkState) -> ResetPin {
        self.hold_left = self.hold_left.saturating_sub(1);
        match (self.step, link) {
            (Step::Idle, _) => return ResetPin::Released,
            (Step::AwaitDown, LinkState::Down) => self.step = Step::AwaitUp,
            (Step::AwaitUp, LinkState::Up) if self.hold_left == 0 => {
                self.step = Step::Idle;
                self.finished += 1;
                return ResetPin::Released;
            }
            (Step::AwaitDown | Step::AwaitUp, _) => {}
        }
        ResetPin::Driven
    }

    /// Whether a reset is going on.
    pub fn is_resetting(&self) -> bool {
        self.step != Step::Idle
    }

    /// Resets finished.
    pub fn finished(&self) -> u64 {
        self.finished
    }
}

/// The reset of a whole link: the receiving end first, then the sending end, so that no word
/// arrives at a card that is being reset. The order is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemReset {
    destination: ResetHandshake,
    source: ResetHandshake,
    source_waits: bool,
}

impl SystemReset {
    /// An idle reset; `hold_clocks` as for [`ResetHandshake::new`].
    pub fn new(hold_clocks: u32) -> Self {
        Self {
            destination: ResetHandshake::new(hold_clocks),
            source: ResetHandshake::new(hold_clocks),
            source_waits: false,
        }
    }

    /// Asks for a reset of both ends.
    pub fn start(&mut self) {
        if !self.is_resetting() {
            self.destination.start();
            self.source_waits = true;
        }
    }

    /// One clock: LDOWN# of both ends, and what both pins are to be, the source's first.
    pub fn clock(&mut self, source: LinkState, destination: LinkState) -> (ResetPin, ResetPin) {
        let destination_pin = self.destination.clock(destination);
        if self.source_waits && !self.destination.is_resetting() {
            self.source_waits = false;
            self.source.start();
        }
        (self.source.clock(source), destination_pin)
    }

    /// Whether a reset is going on.
    pub fn is_resetting(&self) -> bool {
        self.source_waits || self.source.is_resetting() || self.destination.is_resetting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_is_held_until_the_link_was_down_and_is_up_again() {
        let mut reset = ResetHandshake::new(4);
        assert_eq!(reset.clock(LinkState::Up), ResetPin::Released);
        reset.start();
        let mut driven = 0;
        for link in [LinkState::Up, LinkState::Up]
            .into_iter()
            .chain([LinkState::Down; 9])
        {
            assert_eq!(reset.clock(link), ResetPin::Driven);
            reset.start();
            driven += 1;
        }
        assert_eq!((driven, reset.finished()), (11, 0));
        assert_eq!(reset.clock(LinkState::Up), ResetPin::Released);
        assert!(!reset.is_resetting());
        assert_eq!(reset.finished(), 1);
    }

    #[test]
    fn fast_card_is_still_held_for_the_least_time() {
        let mut reset = ResetHandshake::new(32);
        reset.start();
        reset.clock(LinkState::Down);
        let driven = (0..100).take_while(|_| reset.clock(LinkState::Up) == ResetPin::Driven);
        assert_eq!(driven.count() + 1, 31);
    }
}
