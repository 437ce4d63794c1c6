//! The end of a story by force: everybody gives up what they can, then builder units count what is
//! still in filter units and at the writer, then the others count what is left, as in a run whose
//! patience is over.
//!
//! It begins when nobody is being replaced, as in a run, where one thing comes after the other; from
//! then on nobody dies or is taken for dead. Messages are lost, and units cut off or stopped, as before.
//! Filter units and the writer may stand still for ever: that is why runs are ended by force.

use livetime_builder::{BuilderUnit, EventManager, ReadoutUnit};
use livetime_wire::UnitKind;

use super::hosts::HeldTicket;
use super::world::{SwarmEvent, SwarmWorld};
use crate::queue::EventClass;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};

/// How often it is looked whether a step is done.
const LOOK: DurationPs = DurationPs::from_ms(5);
/// The longest time that what is on its way to units without loss takes.
const ON_ITS_WAY: DurationPs = DurationPs::from_ms(10);
/// Time that units have for a step, as in a run.
const PATIENCE: DurationPs = DurationPs::from_ms(20_000);

/// How far the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// There is none, or it is not time for it, or somebody is being replaced.
    Before,
    GiveUp,
    CloseBuilders,
    CloseOthers,
}

/// The end of a story by force.
#[derive(Debug)]
pub(super) struct ForcedEnd {
    step: Step,
    /// When the step began.
    since: SimPs,
    /// Units that have not heard of it.
    untold: usize,
}

impl ForcedEnd {
    pub(super) const NONE: Self = Self {
        step: Step::Before,
        since: SimPs::ZERO,
        untold: 0,
    };

    /// Whether it has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.step > Step::Before
    }
}

impl SwarmWorld {
    /// Goes on to the next step if the present one is done.
    pub(super) fn go_on_to_end(&mut self, s: &mut Scheduler<SwarmEvent>) {
        let now = s.now();
        let is_done = match self.end.step {
            Step::Before => self.is_complete(now),
            Step::CloseBuilders => self.is_at_rest(now) && self.are_units_idle(),
            Step::GiveUp | Step::CloseOthers => self.is_at_rest(now),
        };
        // Somebody may be so slow that there is always something on its way.
        let is_patient = !self.end.has_begun() || now < self.end.since + PATIENCE;
        let next = match self.end.step {
            _ if !is_done && is_patient => None,
            Step::Before => {
                self.hang(now);
                if self.faults.contains_key("builder_lost") {
                    self.end_finished(s);
                }
                Some(Step::GiveUp)
            }
            Step::GiveUp => Some(Step::CloseBuilders),
            Step::CloseBuilders => Some(Step::CloseOthers),
            Step::CloseOthers => {
                self.check_accounts(now);
                return s.halt();
            }
        };
        if let Some(step) = next {
            let told = self.told_of(step);
            self.end = ForcedEnd {
                step,
                since: s.now(),
                untold: told.len(),
            };
            for unit in told {
                let delay = self.membership_delay();
                s.after(delay, EventClass(0), SwarmEvent::EndStep(unit));
            }
        }
        s.after(LOOK, EventClass(1), SwarmEvent::ForcedEnd);
    }

    /// Whether nobody is away or being replaced, and all readout units hear what they are told.
    fn is_complete(&self, now: SimPs) -> bool {
        let builders = self.builders.iter().zip(&self.membership.is_gone);
        self.membership.is_idle()
            && self.readouts_stopped(now).is_none()
            && self.manager.is_some()
            && self.readouts.iter().all(|host| host.core.is_some())
            && self.filters.iter().all(|filter| filter.is_up)
            && self.writer.is_up
            && builders
                .zip(&self.builder_epochs)
                .all(|((host, is_gone), epoch)| *is_gone || host.is_up && host.epoch == *epoch)
    }

    /// Those of the story stand still from now on.
    fn hang(&mut self, now: SimPs) {
        let Some(end) = self.scenario.forced_end else {
            return;
        };
        self.count("forced_end");
        let for_ever = now + DurationPs::from_ms(self.scenario.horizon_ms());
        for filter in self.filters.iter_mut().take(end.hung_filters.into()) {
            filter.interruption.stop_until(for_ever);
        }
        if end.is_writer_hung {
            self.writer.interruption.stop_until(for_ever);
        }
    }

    /// Who does something at the beginning of a step, by the numbers of their wake-ups.
    fn told_of(&self, step: Step) -> Vec<u16> {
        let builders = self.builders.len() as u16;
        let others = std::iter::once(0).chain(1 + builders..1 + builders + self.scenario.readouts);
        let is_gone = &self.membership.is_gone;
        let present = (1..=builders).filter(|unit| !is_gone[usize::from(unit - 1)]);
        match step {
            Step::Before => Vec::new(),
            Step::GiveUp => others.chain(present).collect(),
            Step::CloseBuilders => present.collect(),
            Step::CloseOthers => others.collect(),
        }
    }

    /// A unit hears of the step that has begun.
    pub(super) fn begin_step(&mut self, told: u16, s: &mut Scheduler<SwarmEvent>) {
        let unit = self.woken(told);
        if let Some(until) = self.stopped(unit, s.now()) {
            return s.at(until, EventClass(0), SwarmEvent::EndStep(told));
        }
        self.end.untold -= 1;
        let (at, is_first) = (usize::from(unit.index), self.end.step == Step::GiveUp);
        match unit.kind {
            UnitKind::Builder => {
                let core = &mut self.builders[at].core;
                if is_first {
                    core.abort();
                } else {
                    core.close();
                    self.forget_unanswered(unit.index);
                }
                self.pump_builder(unit.index, s);
            }
            UnitKind::Readout => {
                let host = &mut self.readouts[at];
                if let Some(core) = &mut host.core {
                    match is_first {
                        true => core.abort(),
                        false => core.close(),
                    }
                }
                self.pump_readout(unit.index, s);
            }
            _ => {
                if let Some(manager) = &mut self.manager {
                    match is_first {
                        true => manager.abort(),
                        false => manager.close(),
                    }
                }
                self.pump_manager(s);
            }
        }
    }

    /// What filter units and the writer still have of a builder unit was counted as lost by it.
    fn forget_unanswered(&mut self, builder: u16) {
        for slot in &mut self.tickets {
            let Some(held) = slot.take_if(|held| held.ticket.builder == builder) else {
                continue;
            };
            if held.is_taken && !held.fetches_rest {
                self.check.take_back(held.ticket.trigger, builder);
            }
        }
        for slot in &mut self.handed_over {
            slot.take_if(|handed| handed.is_of(builder));
        }
    }

    /// Whether nothing is on its way and nobody works, but those that hang.
    fn is_at_rest(&self, now: SimPs) -> bool {
        let (end, writer) = (&self.end, &self.writer);
        let is_told = end.untold == 0 && now >= end.since + ON_ITS_WAY;
        let is_hung = |held: &HeldTicket| {
            let filter = &self.filters[usize::from(held.filter)];
            filter.interruption.stopped(now).is_some() && !held.is_answered
        };
        let writer_hangs = writer.interruption.stopped(now).is_some();
        is_told
            && self.letters.is_empty()
            && self.accepts.is_empty()
            && self.accepts_under_way == 0
            && self.readouts.iter().all(|host| host.waiting.is_empty())
            && self.tickets.iter().flatten().all(is_hung)
            && (writer_hangs || self.handed_over.iter().all(Option::is_none))
    }

    fn are_units_idle(&self) -> bool {
        let is_gone = &self.membership.is_gone;
        let mut builders = self.builders.iter().zip(is_gone);
        let mut readouts = self.readouts.iter().filter_map(|host| host.core.as_ref());
        self.manager.as_ref().is_none_or(EventManager::is_idle)
            && builders.all(|(host, is_gone)| *is_gone || BuilderUnit::is_idle(&host.core))
            && readouts.all(ReadoutUnit::is_idle)
    }
}
