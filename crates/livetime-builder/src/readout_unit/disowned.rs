//! Triggers that builder units do not know any more, though nobody has asked for them here.
//!
//! A kept trigger that nobody has asked for is sent to one builder unit after the other
//! ([`ReadoutUnit::handle_timeout`]): requests and release may all have been lost. Of one that is older
//! than its memory a builder unit cannot say whether it has built it or another one has it still. Who
//! has it says nothing. So the event is over only when all have disowned it, one behind the other; its
//! fragments are in no event then, since nobody has asked for them.

use std::collections::BTreeMap;

use livetime_wire::TriggerNumber;

use super::ReadoutUnit;
use super::at_once::{AtOnce, Take};
use crate::held_trigger::{Mark, NO_BUILDER};

/// Who has disowned a trigger.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// The builder unit that was last.
    last: u16,
    /// How many have, with it.
    units: usize,
}

/// The triggers of a round of builder units: few, since messages must have been lost, or an event be
/// open for longer than builder units remember.
#[derive(Debug, Default)]
pub(super) struct Disowned(BTreeMap<TriggerNumber, Round>);

impl Disowned {
    /// Notes that a builder unit, of so many, has disowned a trigger; whether now all have.
    fn note(&mut self, trigger: TriggerNumber, builder: u16, units: usize) -> bool {
        let next = |last: u16| (usize::from(last) + 1) % units;
        let before = self.0.get(&trigger).copied();
        let round = match before {
            // Said twice.
            Some(round) if round.last == builder => round,
            Some(round) if next(round.last) == usize::from(builder) => Round {
                last: builder,
                units: round.units + 1,
            },
            _ => Round {
                last: builder,
                units: 1,
            },
        };
        self.0.insert(trigger, round);
        round.units >= units
    }

    /// Forgets all triggers but these.
    pub(super) fn keep(&mut self, is_unasked: impl Fn(TriggerNumber) -> bool) {
        self.0.retain(|trigger, _| is_unasked(*trigger));
    }
}

impl ReadoutUnit {
    /// A builder unit that was sent a fragment does not know the trigger any more.
    pub(super) fn disown(
        &mut self,
        trigger: TriggerNumber,
        builder: u16,
        at_once: &mut AtOnce<impl Take>,
    ) {
        let units = self.builders.len();
        match self.held.find(trigger) {
            None => self.counts.releases_repeated += 1,
            Some((_, held)) if held.is_open() && held.builder == NO_BUILDER => {
                if !self.disowned.note(trigger, builder, units) {
                    return;
                }
                self.counts.triggers_disowned += 1;
                if self.is_two_step && self.drop_unasked(trigger) {
                    at_once.is_open = false;
                } else {
                    self.release(trigger, builder, u32::MAX, at_once);
                }
            }
            // An event manager that is gone meant it for this builder unit, which may never have heard
            // of it.
            Some((place, mut held)) if held.is_open() && held.has(Mark::Uncertain) => {
                if held.builder == builder {
                    held.builder = NO_BUILDER;
                    held.set(Mark::Kept);
                    held.unset(Mark::Uncertain);
                    (held.unsent, held.scans) = (0, 0);
                    self.held.set(place, held);
                }
            }
            // What it has asked for it had.
            Some(_) => self.release(trigger, builder, 0, at_once),
        }
    }
}
