//! The loss of a builder unit and what follows, in the steps of a real run: who has finished which of
//! its events, what is built again, what readout units keep, and its next life.

use std::collections::BTreeSet;

use livetime_builder::{BuilderUnit, EventManager};
use livetime_wire::{TriggerNumber, UnitId};

use super::hosts::HeldTicket;
use super::membership::{Active, Stage};
use super::world::{SwarmEvent, SwarmWorld};
use crate::queue::EventClass;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};

/// How often it is looked, after the loss of a builder unit, what nobody has asked for.
const UNASKED_LOOKS: u8 = 5;
/// The time between two such looks.
const UNASKED_PAUSE: DurationPs = DurationPs::from_ms(1_000);

impl SwarmWorld {
    /// The event manager, if it is there and answers.
    fn awake_manager(&mut self, now: SimPs) -> Option<&mut EventManager> {
        let is_stopped = self.manager_interruption.stopped(now).is_some();
        self.manager.as_mut().filter(|_| !is_stopped)
    }

    /// The next step after the loss of a builder unit; true when it is settled.
    pub(super) fn settle_builder(
        &mut self,
        builder: u16,
        active: &mut Active,
        s: &mut Scheduler<SwarmEvent>,
    ) -> bool {
        match active.stage {
            Stage::Begin => self.withdraw(builder, active, s),
            Stage::Writer => {
                if let Some(written) = self.find_written(builder, &active.events, s) {
                    active.handed_on.extend(written);
                    active.stage = Stage::Released;
                }
            }
            Stage::Released => self.ask_what_is_released(builder, active, s),
            Stage::Filters => self.ask_what_is_rejected(builder, active, s),
            Stage::Log => {
                // Whoever is the next event manager is not told that they are open.
                let handed_on = active.handed_on.iter();
                handed_on.for_each(|trigger| self.log.close(*trigger));
                for trigger in &active.events {
                    if !active.handed_on.contains(trigger) {
                        self.check.take_back(*trigger, builder);
                    }
                }
                active.stage = Stage::Reassign;
            }
            Stage::Reassign => {
                if let Some(manager) = self.awake_manager(s.now()) {
                    manager.reassign(builder, &active.handed_on);
                    self.pump_manager(s);
                    active.stage = Stage::Open;
                }
            }
            Stage::Open => {
                if let Some(manager) = self.awake_manager(s.now()) {
                    active.events = manager.open_triggers();
                    (active.stage, active.next) = (Stage::Readouts, 0);
                }
            }
            Stage::Readouts => self.tell_what_is_open(builder, active, s),
            Stage::Builders => active.stage = Stage::End,
            Stage::End => {
                self.end_loss(builder, s);
                return true;
            }
        }
        false
    }

    fn withdraw(&mut self, builder: u16, active: &mut Active, s: &Scheduler<SwarmEvent>) {
        if let Some(manager) = self.awake_manager(s.now()) {
            active.events = manager.withdraw_builder(builder);
            self.builder_epochs[usize::from(builder)] += u32::from(!active.is_again);
            active.stage = Stage::Writer;
        }
    }

    fn ask_what_is_released(
        &mut self,
        builder: u16,
        active: &mut Active,
        s: &Scheduler<SwarmEvent>,
    ) {
        let Some(host) = self.readouts.get_mut(active.next) else {
            (active.stage, active.next) = (Stage::Filters, 0);
            return;
        };
        if host.interruption.stopped(s.now()).is_some() {
            return;
        }
        if let Some(core) = &mut host.core {
            let released = core.released_by(builder, &active.events);
            active.handed_on.extend(released);
        }
        active.next += 1;
    }

    /// Those that a filter unit has accepted and the writer has not are built again.
    fn ask_what_is_rejected(
        &mut self,
        builder: u16,
        active: &mut Active,
        s: &Scheduler<SwarmEvent>,
    ) {
        let is_in_work = self.is_in_work(active.next, builder);
        let Some(filter) = self.filters.get_mut(active.next) else {
            (active.stage, active.next) = (Stage::Log, 0);
            return;
        };
        if filter.interruption.stopped(s.now()).is_some() {
            return;
        }
        let at = usize::from(builder);
        filter.fences[at] = self.builder_epochs[at];
        if is_in_work {
            // It finishes them, and then says so: it may die before.
            return;
        }
        let is_rejected = |trigger: &&TriggerNumber| {
            let was_here = filter.memory.get(*trigger) == Some(&builder);
            was_here && !self.scenario.accepts(**trigger)
        };
        let rejected = active.events.iter().filter(is_rejected);
        active.handed_on.extend(rejected);
        active.next += 1;
    }

    fn tell_what_is_open(
        &mut self,
        builder: u16,
        active: &mut Active,
        s: &mut Scheduler<SwarmEvent>,
    ) {
        let Some(host) = self.readouts.get(active.next) else {
            active.stage = Stage::End;
            return;
        };
        let waits = active.next == 0 && self.is_read_from(builder, &active.handed_on);
        if !waits && host.interruption.stopped(s.now()).is_none() {
            self.tell_builder_lost(builder, active, s);
            active.next += 1;
        }
    }

    /// It is told of its next life once it can be reached; until then it lives in its past. Or the
    /// others go on without it, as long as there is one.
    fn end_loss(&mut self, builder: u16, s: &mut Scheduler<SwarmEvent>) {
        let at = usize::from(builder);
        let delay = self.membership_delay();
        let is_gone = &mut self.membership.is_gone;
        is_gone[at] = self.scenario.goes_on_without;
        if is_gone[at] && is_gone.contains(&false) {
            self.builders[at].is_up = false;
            self.count("builder_gone");
        } else {
            is_gone[at] = false;
            let interruption = &self.builders[at].interruption;
            let reachable = interruption.unreachable(s.now()).unwrap_or(s.now());
            s.at(reachable + delay, EventClass(0), SwarmEvent::Renew(builder));
        }
        let more = UNASKED_LOOKS - 1;
        s.after(delay, EventClass(0), SwarmEvent::Unasked { more });
    }

    /// A readout unit hears what is open of the events of a lost builder unit.
    fn tell_builder_lost(&mut self, builder: u16, active: &Active, s: &mut Scheduler<SwarmEvent>) {
        let host = &mut self.readouts[active.next];
        if let Some(shaper) = &mut host.shaper {
            shaper.lose(builder);
        }
        if let Some(core) = &mut host.core {
            core.take_back(builder, &active.events);
            if core.is_two_step() {
                core.finish_events(&active.handed_on);
            }
            core.handle_builder_back(builder, self.builder_epochs[usize::from(builder)]);
        }
        self.pump_readout(active.next as u16, s);
    }

    /// Whether a filter unit has taken events of a builder unit that it has not finished.
    fn is_in_work(&self, filter: usize, builder: u16) -> bool {
        let of_it = |held: &&HeldTicket| {
            usize::from(held.filter) == filter && held.ticket.builder == builder
        };
        let mut held = self.tickets.iter().flatten().filter(of_it);
        held.any(|held| held.is_taken && !held.is_answered)
    }

    /// Whether a filter unit still reads events of a builder unit's past, or one of those that are
    /// to be finished, whoever handed it on.
    fn is_read_from(&self, builder: u16, finished: &[TriggerNumber]) -> bool {
        let epoch = self.builder_epochs[usize::from(builder)];
        let mut held = self.tickets.iter().flatten().filter(|held| held.is_taken);
        held.any(|held| {
            let is_past = held.ticket.builder == builder && held.epoch < epoch;
            is_past || finished.contains(&held.ticket.trigger)
        })
    }

    /// Ends what was finished by a builder unit that is gone, though nobody has asked for it or
    /// released it here: some of what it had said last may have been lost with it.
    pub(super) fn end_unasked(&mut self, more: u8, s: &mut Scheduler<SwarmEvent>) {
        if self.end.has_begun() {
            // What is given up is closed, and in no event.
            return;
        }
        if let Some(until) = self.readouts_stopped(s.now()) {
            return s.at(until, EventClass(0), SwarmEvent::Unasked { more });
        }
        self.end_finished(s);
        if let Some(more) = more.checked_sub(1) {
            s.after(UNASKED_PAUSE, EventClass(0), SwarmEvent::Unasked { more });
        }
    }

    /// Ends at the readout units what is finished and nobody has asked for there.
    pub(super) fn end_finished(&mut self, s: &mut Scheduler<SwarmEvent>) {
        let held = self.tickets.iter().flatten();
        let read: BTreeSet<TriggerNumber> = held.map(|held| held.ticket.trigger).collect();
        for readout in 0..self.readouts.len() {
            let Some(core) = &mut self.readouts[readout].core else {
                continue;
            };
            let mut finished = core.unasked();
            finished.retain(|trigger| !self.log.is_open(*trigger) && !read.contains(trigger));
            core.end_unasked(&finished);
            for _ in &finished {
                self.count("ended_unasked");
            }
            self.pump_readout(readout as u16, s);
        }
    }

    /// A builder unit begins its next life, with nothing in it.
    pub(super) fn renew_builder(&mut self, builder: u16, s: &mut Scheduler<SwarmEvent>) {
        let at = usize::from(builder);
        if let Some(later) = self.builders[at].interruption.unreachable(s.now()) {
            s.at(later, EventClass(0), SwarmEvent::Renew(builder));
            return;
        }
        let epoch = self.builder_epochs[at];
        let mut core = BuilderUnit::new(&self.config, builder, epoch);
        core.renew_peer(UnitId::EVENT_MANAGER, self.manager_epoch);
        for (filter, host) in (0..).zip(&self.filters) {
            core.renew_peer(UnitId::filter(filter), host.epoch);
            if !host.is_up {
                core.redispatch_filter(filter, &[]);
            }
        }
        for (readout, host) in (0..).zip(&self.readouts) {
            let now = s.now().to_run_ns();
            match host.core {
                Some(_) => core.handle_readout_back(now, readout, host.epoch, host.joined_after),
                None => core.handle_readout_lost(now, readout),
            }
        }
        if let Some(manager) = &mut self.manager {
            manager.handle_builder_back(builder, epoch);
        }
        self.pump_manager(s);
        let host = &mut self.builders[at];
        host.core = core;
        host.writer_life = self.writer.is_up.then_some(self.writer.life);
        host.filter_epochs = self.filters.iter().map(|filter| filter.epoch).collect();
        host.assemblers = self.scenario.assemblers();
        host.epoch = epoch;
        host.is_up = true;
        self.membership.is_lost[at] = false;
        self.pump_builder(builder, s);
    }
}
