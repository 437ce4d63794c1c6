//! Who tells the units that one of them is gone or back: the part that a parent process or a
//! membership service plays in a real run.
//!
//! One loss is settled after the other, in the steps of a real run, each unit being told at its own
//! moment while all traffic goes on. A builder unit may be lost while the event manager recovers, and
//! the event manager at any moment: what it was needed for begins again with the next one, which
//! knows only what the log of accepts, the builder units and the readout units know.

use std::collections::VecDeque;

use livetime_builder::{
    AcceptedTrigger, BlockAssembler, EventManager, PeerEpochs, PhaseBarrier, ReadoutUnit,
};
use livetime_wire::TriggerNumber;

use super::shaper::SwarmShaper;
use super::world::{FIRST_EPOCH, SwarmEvent, SwarmWorld};
use crate::queue::EventClass;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};

/// No builder unit.
const NOBODY: u16 = u16::MAX;

/// What is being settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matter {
    BuilderLost(u16),
    ReadoutLost(u16),
    ReadoutBack(u16),
    ManagerBack,
    FilterLost(u16),
    FilterBack(u16),
    WriterLost,
    WriterBack,
}

/// A matter and how far it is.
#[derive(Debug)]
pub(super) struct Active {
    matter: Matter,
    /// The next step.
    pub(super) stage: Stage,
    /// The unit that is told next.
    pub(super) next: usize,
    pub(super) events: Vec<TriggerNumber>,
    pub(super) handed_on: Vec<TriggerNumber>,
    /// The event manager has died meanwhile.
    pub(super) is_again: bool,
    /// Not before this.
    not_before: SimPs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Begin,
    Writer,
    Released,
    Filters,
    Log,
    Reassign,
    Open,
    Readouts,
    Builders,
    End,
}

impl Stage {
    /// Whether it comes before the event manager has said all that there is to say about a loss.
    fn needs_manager(self) -> bool {
        !matches!(self, Self::Readouts | Self::Builders | Self::End)
    }
}

/// The membership.
#[derive(Debug)]
pub(super) struct Membership {
    waiting: VecDeque<(Matter, SimPs)>,
    active: Option<Active>,
    /// The loss of a builder unit that waits for the next event manager.
    interrupted: Option<Active>,
    /// By builder unit: its loss is being settled, or waits for it; or it is gone.
    pub(super) is_lost: Vec<bool>,
    /// By builder unit: it does not come back.
    pub(super) is_gone: Vec<bool>,
}

impl Membership {
    pub(super) fn new(builders: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            active: None,
            interrupted: None,
            is_lost: vec![false; builders],
            is_gone: vec![false; builders],
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.active.is_none()
            && self.interrupted.is_none()
            && self.is_lost == self.is_gone
    }

    /// Whether the loss of a builder unit is settled, and it is not yet back.
    fn is_away(&self, builder: u16) -> bool {
        let matter = Matter::BuilderLost(builder);
        let of_it = |active: &Option<Active>| active.as_ref().is_some_and(|a| a.matter == matter);
        self.is_lost[usize::from(builder)]
            && !of_it(&self.active)
            && !of_it(&self.interrupted)
            && !self.waiting.iter().any(|(waiting, _)| *waiting == matter)
    }

    pub(super) fn state(&self) -> String {
        format!(
            "{:?}, then {:?} and {:?}, lost {:?}, gone {:?}",
            self.active, self.interrupted, self.waiting, self.is_lost, self.is_gone
        )
    }
}

impl SwarmWorld {
    /// A builder unit is gone, or seems to be.
    pub(super) fn lose_builder(&mut self, builder: u16, s: &mut Scheduler<SwarmEvent>) {
        if self.end.has_begun() {
            // Nobody is replaced any more.
            return;
        }
        let is_lost = &mut self.membership.is_lost[usize::from(builder)];
        if std::mem::replace(is_lost, true) {
            return;
        }
        self.count("builder_lost");
        if self.builders[usize::from(builder)].is_up {
            self.count("falsely_dead");
        }
        self.settle(Matter::BuilderLost(builder), s.now(), s);
    }

    /// A readout unit dies with all that it holds.
    pub(super) fn kill_readout(
        &mut self,
        readout: u16,
        for_ms: u64,
        s: &mut Scheduler<SwarmEvent>,
    ) {
        let host = &mut self.readouts[usize::from(readout)];
        if host.core.take().is_none() {
            return;
        }
        host.life += 1;
        host.interruption.begin_life();
        host.shaper = None;
        host.file.clear();
        host.pages.clear();
        host.waiting.clear();
        host.received = 0;
        let sources = self.config.sources_of(readout);
        self.check.excuse(sources);
        self.count("readout_killed");
        let back = s.now() + DurationPs::from_ms(for_ms);
        self.settle(Matter::ReadoutLost(readout), s.now(), s);
        self.settle(Matter::ReadoutBack(readout), back, s);
    }

    /// The event manager dies; if there is none, a little later.
    pub(super) fn restart_manager(
        &mut self,
        index: u16,
        for_ms: u64,
        s: &mut Scheduler<SwarmEvent>,
    ) {
        if self.manager.is_none() {
            s.after(
                DurationPs::from_ms(7),
                EventClass(0),
                SwarmEvent::Fault(index),
            );
            return;
        }
        self.count("manager_killed");
        if self.membership.is_lost.contains(&true) {
            self.count("manager_killed_beside");
        }
        self.retire_manager(s);
        let back = s.now() + DurationPs::from_ms(for_ms);
        self.settle(Matter::ManagerBack, back, s);
    }

    pub(super) fn settle(
        &mut self,
        matter: Matter,
        not_before: SimPs,
        s: &mut Scheduler<SwarmEvent>,
    ) {
        self.membership.waiting.push_back((matter, not_before));
        self.go_on_later(s);
    }

    fn go_on_later(&mut self, s: &mut Scheduler<SwarmEvent>) {
        let delay = self.membership_delay();
        s.after(delay, EventClass(0), SwarmEvent::Membership);
    }

    /// The next step of the settlement.
    pub(super) fn go_on(&mut self, s: &mut Scheduler<SwarmEvent>) {
        self.make_way();
        let Some(mut active) = self.membership.active.take().or_else(|| self.next_matter()) else {
            return;
        };
        if s.now() >= active.not_before {
            let is_through = match active.matter {
                Matter::BuilderLost(builder) => self.settle_builder(builder, &mut active, s),
                Matter::ReadoutLost(readout) => self.tell_readout_lost(readout, &mut active, s),
                Matter::ReadoutBack(readout) => self.tell_readout_back(readout, &mut active, s),
                Matter::ManagerBack => self.bring_manager_back(&mut active, s),
                Matter::FilterLost(filter) => self.tell_filter_lost(filter, &mut active, s),
                Matter::FilterBack(filter) => self.tell_filter_back(filter, &mut active, s),
                Matter::WriterLost => self.tell_writer_lost(&mut active, s),
                Matter::WriterBack => self.tell_writer_back(&mut active, s),
            };
            if is_through {
                self.go_on_later(s);
                return;
            }
        }
        self.membership.active = Some(active);
        self.go_on_later(s);
    }

    /// The loss of a builder unit begins again if the event manager has died that was to settle it.
    fn make_way(&mut self) {
        let is_stuck = |active: &mut Active| {
            matches!(active.matter, Matter::BuilderLost(_)) && active.stage.needs_manager()
        };
        if self.manager.is_none()
            && let Some(active) = self.membership.active.take_if(is_stuck)
        {
            self.membership.interrupted = Some(Active {
                is_again: active.stage != Stage::Begin || active.is_again,
                stage: Stage::Begin,
                next: 0,
                ..active
            });
        }
    }

    /// The event manager first, since nothing can be settled without one.
    fn next_matter(&mut self) -> Option<Active> {
        let waiting = &mut self.membership.waiting;
        let manager = waiting.iter().position(|(m, _)| *m == Matter::ManagerBack);
        if manager.is_none()
            && let Some(interrupted) = self.membership.interrupted.take()
        {
            return Some(interrupted);
        }
        let (matter, not_before) = waiting.remove(manager.unwrap_or(0))?;
        Some(Active {
            matter,
            stage: Stage::Begin,
            next: 0,
            events: Vec::new(),
            handed_on: Vec::new(),
            is_again: false,
            not_before,
        })
    }

    /// Builder units hear, one after the other, that a readout unit is gone.
    fn tell_readout_lost(
        &mut self,
        readout: u16,
        active: &mut Active,
        s: &mut Scheduler<SwarmEvent>,
    ) -> bool {
        let unit = active.next;
        active.next += 1;
        if let Some(barrier) = self.barrier.as_mut().filter(|_| unit == 0) {
            barrier.handle_lost(readout.into());
            self.pump_manager(s);
        }
        if let Some(host) = self.builders.get_mut(unit) {
            host.core.handle_readout_lost(s.now().to_run_ns(), readout);
            self.pump_builder(unit as u16, s);
        }
        active.next >= self.builders.len()
    }

    /// A readout unit rejoins, then all hear of it.
    fn tell_readout_back(
        &mut self,
        readout: u16,
        active: &mut Active,
        s: &mut Scheduler<SwarmEvent>,
    ) -> bool {
        let at = usize::from(readout);
        if active.stage == Stage::Begin {
            active.stage = Stage::Builders;
            self.readouts[at].epoch += 1;
            let peers = PeerEpochs {
                supervisor: FIRST_EPOCH,
                manager: self.manager_epoch,
                builders: &self.builder_epochs,
                readouts: &[],
            };
            let newest = TriggerNumber(self.triggers_given);
            let epoch = self.readouts[at].epoch;
            let core = ReadoutUnit::rejoining(&self.config, readout, epoch, peers, newest);
            let shaper = SwarmShaper::new(self.scenario.shaping, &self.config, readout);
            let host = &mut self.readouts[at];
            (host.core, host.shaper, host.joined_after) = (Some(core), shaper, newest);
            if let Some(manager) = &mut self.manager {
                manager.handle_readout_back(readout, epoch);
            }
            if let Some(barrier) = &mut self.barrier {
                barrier.handle_back(at);
            }
            self.pump_readout(readout, s);
            return false;
        }
        let (unit, epoch) = (active.next, self.readouts[at].epoch);
        let newest = self.readouts[at].joined_after;
        active.next += 1;
        if let Some(host) = self.builders.get_mut(unit) {
            let now = s.now().to_run_ns();
            host.assemblers[at] = BlockAssembler::new();
            host.core.handle_readout_back(now, readout, epoch, newest);
            self.pump_builder(unit as u16, s);
        }
        active.next >= self.builders.len()
    }

    /// The readout units hear of the event manager's next epoch, then it begins to recover.
    fn bring_manager_back(&mut self, active: &mut Active, s: &mut Scheduler<SwarmEvent>) -> bool {
        if active.stage == Stage::Begin {
            self.manager_epoch += 1;
            active.stage = Stage::Readouts;
        }
        if active.next < self.readouts.len() {
            if let Some(core) = &mut self.readouts[active.next].core {
                core.handle_manager_back(self.manager_epoch);
            }
            active.next += 1;
            return false;
        }
        if self.readouts_stopped(s.now()).is_some() {
            return false;
        }
        let open = self.log.to_vec();
        let released = self.find_released(&open);
        let readouts: Vec<u32> = self.readouts.iter().map(|host| host.epoch).collect();
        let peers = PeerEpochs {
            supervisor: FIRST_EPOCH,
            manager: self.manager_epoch,
            builders: &self.builder_epochs,
            readouts: &readouts,
        };
        let mut manager =
            EventManager::recovering(&self.config, self.manager_epoch, peers, &open, &released);
        manager.report_closed();
        for builder in 0..self.config.builder_units {
            if self.membership.is_away(builder) {
                // What it had handed on is closed in the log: nothing of it is left.
                manager.withdraw_builder(builder);
                manager.reassign(builder, &[]);
            }
        }
        self.manager = Some(manager);
        self.barrier = self.scenario.barrier(PhaseBarrier::resuming);
        if let Some(barrier) = &mut self.barrier {
            let away = self.readouts.iter().enumerate();
            let away = away.filter(|(_, host)| host.core.is_none());
            away.for_each(|(readout, _)| barrier.handle_lost(readout));
        }
        self.pump_manager(s);
        true
    }

    /// Those of the open triggers that were released, as far as they lie so far back that a builder
    /// unit may not know it any more.
    fn find_released(&mut self, open: &[AcceptedTrigger]) -> Vec<TriggerNumber> {
        let history = u64::from(self.config.history);
        let newest = self.triggers_given;
        let old = |trigger: &TriggerNumber| trigger.0.saturating_add(history) <= newest;
        let old: Vec<TriggerNumber> = open.iter().map(|e| e.trigger).filter(old).collect();
        let readouts = self.readouts.iter_mut();
        let cores = readouts.filter_map(|host| host.core.as_mut());
        // None is gone: what they say counts.
        cores
            .flat_map(|core| core.released_by(NOBODY, &old))
            .collect()
    }
}
