//! What the parent does when a role process dies, and the faults that it can be asked to make.
//!
//! ```text
//! filter unit     its page holds dropped ── builder units read its last verdicts and give the rest
//!                 of its events to other filter units; an event that too many died of goes to the
//!                 error stream
//! builder unit    event manager withdraws its credits and names its events ── writer writes what it
//!                 has of it and names that ── readout units name what it had released, which only
//!                 the dead may know of ── filter units finish theirs and name what they reject ──
//!                 event manager has the rest built again ── readout units keep the fragments of
//!                 those and free the others; what they were never asked for is looked for later
//!                 ([`super::unasked_events`])
//! writer          builder units read its last answers ── the next writer takes the file up and gets
//!                 what was not answered
//! readout unit    its links end ── builder units close events without it and name its sources ──
//!                 another may take its place, see [`super::returned_readout`]; only where the run
//!                 may go on without one
//! event manager   see [`super::returned_manager`]: the supervisor tells another what is open
//! building group  see [`super::lost_group`]: its builder units as above, where nobody can say what
//!                 the writer has
//! any other       the run ends by force
//! ```
//! Each step waits until those concerned say that they have settled it. A unit that comes back
//! gets rings, an epoch and counters of its own; what the dead one said last is in its old rings,
//! which are read to their end first. How the counters are settled is in [`super::lost_unit`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use livetime_shm::PeerError;
use livetime_wire::{DurationNs, RunNs, TriggerNumber, UnitId, UnitKind};

use super::control_message::{Message, Unsent};
use super::lost_group::triggers_of;
use super::process_group::{ProcessGroup, RoleProcess};
use crate::building_group::{BuildingGroup, knows};
use crate::chain_plan::role_of;
use crate::role_ends::FIRST_EPOCH;

/// How long the others may take to settle a loss, beside judging events.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);
/// Time within which processes that die together hang up.
const TOGETHER: Duration = Duration::from_millis(20);

/// What is done when a unit is lost whose loss a run can survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// A new process takes its place in a new epoch.
    #[default]
    Restart,
    /// The others go on without it, as long as there is one.
    Continue,
    /// The run is ended.
    Stop,
}

/// What is done about lost units; the loss of any other ends the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossPolicy {
    /// About filter units.
    pub filter: OnLoss,
    /// About builder units.
    pub builder: OnLoss,
    /// About the writer; there is no other that could go on.
    pub writer: OnLoss,
    /// About the event manager; there is no other that could go on.
    pub manager: OnLoss,
    /// About readout units, `Stop` by default. What was in its pages is gone in any case.
    pub readout: OnLoss,
    /// How often an event that a filter unit died of is given to another, 1 by default; then it
    /// goes to the error stream.
    pub retries: u32,
    /// Longest time that a filter unit may work on an event, 10 s by default; then its process is
    /// killed.
    pub time_limit: DurationNs,
    /// Filter units that are there from the start, all of the configuration by default.
    pub filters_at_start: Option<u16>,
}

impl Default for LossPolicy {
    fn default() -> Self {
        Self {
            filter: OnLoss::default(),
            builder: OnLoss::default(),
            writer: OnLoss::default(),
            manager: OnLoss::default(),
            readout: OnLoss::Stop,
            retries: 1,
            time_limit: DurationNs(10 * DurationNs::SECOND.0),
            filters_at_start: None,
        }
    }
}

/// When a fault is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultTime {
    /// At this time of the run.
    At(RunNs),
    /// When so many triggers have been accepted.
    Triggers(u64),
    /// When the parent is about to tell the role something about the loss of a unit.
    LossOf {
        /// Which unit.
        unit: UnitId,
        /// The how-many-eth thing, from 1 on.
        nth: u32,
    },
}

/// Something that is done to a role process during the run, from a `--fault` option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFault {
    /// Role id.
    pub role: String,
    /// When.
    pub at: FaultTime,
    /// For how long it is stopped; `None` kills it.
    pub stopped: Option<DurationNs>,
}

/// A role process that went away without having ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// Role id.
    pub role: String,
    /// How its process ended.
    pub exit: String,
    /// Page holds of it that were dropped.
    pub holds_dropped: u32,
    /// The event that it was working on, if it was a filter unit.
    pub event: Option<TriggerNumber>,
    /// Whether that event went to the error stream.
    pub given_up: bool,
    /// What was done; `Err` says why the run has to end.
    pub handled: Result<OnLoss, String>,
    /// Whether nobody takes its place since the run is ending, where another would have.
    pub at_end: bool,
}

impl ProcessGroup {
    /// Makes the faults that are due, takes in what was heard since the last look, and deals with
    /// the roles that went away.
    pub fn look(&mut self) -> Vec<Incident> {
        self.make_faults();
        self.watch_events();
        while let Ok((index, heard)) = self.heard.try_recv() {
            self.take(index, heard);
        }
        if self.config.builder.writers > 1 && !self.missed.is_empty() {
            self.await_others();
        }
        let mut incidents = Vec::new();
        // Others may be missed while one is dealt with. Those behind come first: they know what the
        // ones before them had handed on.
        while let Some(index) = self.next_missed() {
            match self.group_lost_with(index) {
                Some(group) => {
                    self.missed.push(index);
                    incidents.extend(self.lose_group(group));
                }
                None => incidents.extend(self.lose_alone(index)),
            }
        }
        self.end_unasked();
        self.processes.iter_mut().for_each(RoleProcess::reap);
        incidents.append(&mut self.managers_lost);
        let is_ending = incidents.iter().any(|incident| incident.handled.is_err());
        incidents.extend(self.bring_readouts_back(is_ending));
        self.mend_streams();
        incidents
    }

    /// Hears who is gone together with those that are missed: what is done about a unit depends on
    /// whether its group is there.
    fn await_others(&mut self) {
        let until = Instant::now() + TOGETHER;
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok((index, heard)) = self.heard.recv_timeout(left()) {
            self.take(index, heard);
        }
    }

    fn next_missed(&mut self) -> Option<usize> {
        let order = |index: &usize| match self.processes[*index].unit.kind {
            UnitKind::Writer => 0,
            UnitKind::Filter => 1,
            // Builder units are settled with it.
            UnitKind::EventManager => 2,
            UnitKind::Builder => 3,
            _ => 4,
        };
        let nth = (0..self.missed.len()).min_by_key(|nth| order(&self.missed[*nth]))?;
        Some(self.missed.remove(nth))
    }

    /// Kills filter units that have worked on one event for too long.
    pub(super) fn watch_events(&mut self) {
        let now = Instant::now();
        for (index, process) in self.processes.iter_mut().enumerate() {
            if process.gone || process.unit.kind != UnitKind::Filter || process.over_time {
                continue;
            }
            let event = process.counters.event_in_work();
            let stopped = event.is_some() && process.child.is_stopped();
            if self.watch.see(index, event, stopped, now) {
                process.over_time = true;
                process.child.kill();
            }
        }
    }

    fn make_faults(&mut self) {
        let now = self.clock().now();
        let due = self.stopped.extract_if(.., |(_, until)| *until <= now);
        for (index, _) in due.collect::<Vec<_>>() {
            self.go_on(index);
        }
        let triggers = self.triggers();
        let due = self.faults.extract_if(.., |fault| match fault.at {
            FaultTime::At(at) => at <= now,
            FaultTime::Triggers(count) => count <= triggers,
            FaultTime::LossOf { .. } => false,
        });
        for fault in due.collect::<Vec<_>>() {
            self.make_fault(&fault);
        }
    }

    fn make_fault(&mut self, fault: &ProcessFault) {
        let now = self.clock().now();
        let mut found = self.processes.iter_mut().enumerate();
        let Some((index, process)) =
            found.find(|(_, process)| process.id == fault.role && !process.gone)
        else {
            self.faults_missed.push(fault.clone());
            return;
        };
        match fault.stopped {
            // A process that has gone by itself meanwhile needs no fault.
            None => process.child.kill(),
            Some(time) => {
                if process.child.stop() {
                    self.stopped.push((index, now.after(time)));
                }
            }
        }
    }

    /// Makes the faults of a process that is about to hear of a loss.
    fn make_faults_of_loss(&mut self, lost: UnitId, index: usize) {
        let role = &self.processes[index].id;
        let due = self.faults.extract_if(.., |fault| match &mut fault.at {
            FaultTime::LossOf { unit, nth } if *unit == lost && fault.role == *role => {
                *nth = nth.saturating_sub(1);
                *nth == 0
            }
            _ => false,
        });
        for fault in due.collect::<Vec<_>>() {
            self.make_fault(&fault);
            if fault.stopped.is_none() {
                // It is dead when it is told, and nobody knows yet.
                self.processes[index].child.await_end();
            }
        }
    }

    /// Triggers accepted so far.
    fn triggers(&self) -> u64 {
        let sources = self.processes.iter();
        let sources = sources.filter(|p| p.unit.kind == UnitKind::Source);
        sources.map(|p| p.counters.read().chain.triggers).sum()
    }

    /// Lets all processes go on, whoever has stopped them: the run ends, and each has a part in it.
    pub(super) fn continue_all(&mut self) {
        self.stopped.clear();
        (0..self.processes.len()).for_each(|index| self.go_on(index));
    }

    fn go_on(&self, index: usize) {
        if let Some(process) = self.processes.get(index).filter(|process| !process.gone) {
            process.child.go_on();
        }
    }

    /// Deals with a process that is gone and whose group is there; should its host be found to be gone
    /// meanwhile, with its group.
    fn lose_alone(&mut self, index: usize) -> Vec<Incident> {
        let mut incident = self.lose(index);
        let refused = incident.handled.is_err();
        if let Some(group) = self.group_lost_with(index).filter(|_| refused) {
            let others = self.lose_group(group);
            let handled = others.first().map(|other| other.handled.clone());
            incident.handled = handled.unwrap_or(Ok(OnLoss::Continue));
            return std::iter::once(incident).chain(others).collect();
        }
        if refused {
            self.watch.note_last_death(incident.event);
        }
        // That of a readout unit is told when another has taken its place.
        self.await_return(index, incident).into_iter().collect()
    }

    /// Deals with a process that is gone.
    pub(super) fn lose(&mut self, index: usize) -> Incident {
        let (mut incident, mut failed) = self.bury(index);
        let unit = self.processes[index].unit;
        let policy = self.policy_about(&self.processes[index]);
        if policy == OnLoss::Stop {
            self.continue_all();
            // The run ends by its death: nobody is to die of its event as well.
            failed = failed.or(incident.event);
        }
        let (handled, given_up) = match self.settle_loss(unit, failed) {
            Ok(given_up) => (self.replace(unit, policy), given_up),
            Err(reason) => (Err(reason), Vec::new()),
        };
        for trigger in &given_up {
            self.watch.note_given_up(TriggerNumber(*trigger));
        }
        // Those who have settled it wait for its streams no more.
        self.cuts.forget(unit);
        incident.given_up = !given_up.is_empty();
        incident.handled = handled;
        incident
    }

    /// What is to be done about the loss of a process.
    pub(super) fn policy_about(&self, process: &RoleProcess) -> OnLoss {
        let RoleProcess { unit, leaving, .. } = *process;
        match unit.kind {
            // Nobody is to take the place of one that was leaving, if others can do its work.
            UnitKind::Filter if leaving && self.filters_beside(unit).next().is_some() => {
                match self.policy.filter {
                    OnLoss::Restart => OnLoss::Continue,
                    policy => policy,
                }
            }
            UnitKind::Filter => self.policy.filter,
            UnitKind::Builder => self.policy.builder,
            UnitKind::Writer => self.policy.writer,
            UnitKind::Readout => self.policy.readout,
            UnitKind::EventManager => self.policy.manager,
            _ => OnLoss::Stop,
        }
    }

    /// Ends what is left of a process, and its counters and page holds; how it is handled is still to
    /// be said. Also returns the event that is not to be filtered any more, if it was a filter unit.
    pub(super) fn bury(&mut self, index: usize) -> (Incident, Option<TriggerNumber>) {
        let time_limit = self.policy.time_limit;
        let process = &mut self.processes[index];
        let mut exit = process.end();
        if process.over_time {
            exit = format!("killed: it worked on an event for more than {time_limit}");
        }
        match (process.silent, process.unit.kind) {
            // One that died by itself says why; its hang-up may have been seen on a stream first.
            (true, UnitKind::Filter) if exit.contains("SIGKILL") => {
                exit += ", a stream to it had ended";
            }
            (true, UnitKind::Filter) => {}
            (true, UnitKind::Source) => {
                exit = "killed: a stream of the supervisor was cut".to_owned();
            }
            (true, UnitKind::EventManager) => {
                exit = "killed: its stream to the supervisor was cut".to_owned();
            }
            (true, _) => {
                let dead = self.config.builder.dead;
                exit = format!("killed: it was silent for more than {dead}");
            }
            (false, _) => {}
        }
        process.lost = Some(exit.clone());
        let (role, unit) = (process.id.clone(), process.unit);
        // From here on this is the only writer of its counters; it holds nothing any more.
        let mut counts = process.counters.read();
        (counts.gauges.idle, counts.gauges.held, counts.gauges.failed) = (1, 0, 0);
        if unit.kind == UnitKind::Writer {
            // What is in the file is counted by who has the file.
            process.stored_last = counts.chain.events_stored;
            counts.chain.events_stored = 0;
        }
        process.counters.publish(&counts);
        let event = process.counters.event_in_work();
        let event = event.filter(|_| unit.kind == UnitKind::Filter);
        let failed = self.watch.note_death(index, &role, event, &exit);
        let holds_dropped = self.reclaim_pages(&self.processes[index]);
        if let Some(group) = self.lost_group_of(unit) {
            self.forget_verdicts(index, group);
        }
        let incident = Incident {
            role,
            exit,
            holds_dropped,
            event,
            given_up: false,
            handled: Ok(OnLoss::Continue),
            at_end: false,
        };
        (incident, failed)
    }

    /// Does what the policy says about a lost unit; says what was done.
    fn replace(&mut self, unit: UnitId, policy: OnLoss) -> Result<OnLoss, String> {
        let policy = match policy {
            // Nothing can be started where a host is gone; those of other hosts take its events.
            OnLoss::Restart
                if matches!(unit.kind, UnitKind::Filter | UnitKind::Readout)
                    && self.is_homeless(unit) =>
            {
                OnLoss::Continue
            }
            policy => policy,
        };
        if policy != OnLoss::Stop && self.lost_group_of(unit).is_some() {
            // A filter unit that nobody has events for any more.
            return Ok(OnLoss::Continue);
        }
        let mut others = self.processes.iter().filter(|process| !process.gone);
        let has_others = others.any(|p| self.stands_in(p.unit, unit));
        match policy {
            // Once nobody reads its pages.
            OnLoss::Restart if unit.kind == UnitKind::Readout => Ok(policy),
            OnLoss::Restart if unit.kind == UnitKind::EventManager => {
                self.replace_manager().map(|()| policy)
            }
            OnLoss::Restart => match self.restart(unit) {
                // Its host has gone meanwhile.
                Err(_) if unit.kind == UnitKind::Filter && self.is_homeless(unit) => {
                    self.replace(unit, policy)
                }
                restarted => restarted.map(|()| policy),
            },
            // What others could do without its group was asked before.
            OnLoss::Continue if unit.kind == UnitKind::Writer => {
                Err("no other building group may go on without its own".to_owned())
            }
            OnLoss::Continue if has_others => Ok(policy),
            OnLoss::Continue => Err(match (unit.kind, self.config.builder.subfarms) {
                (UnitKind::Filter, 2..) => "it was the last filter unit of its subfarm".to_owned(),
                _ => "it was the last of its kind".to_owned(),
            }),
            OnLoss::Stop => Err("a run does not go on without it".to_owned()),
        }
    }

    /// Whether the host of a unit is gone.
    pub(super) fn is_homeless(&self, unit: UnitId) -> bool {
        let hosts = self.launcher.hosts.as_ref();
        hosts.is_some_and(|hosts| hosts.gone(&role_of(unit)).is_some())
    }

    /// Whether a unit can do the work of another: one of its kind, and a filter unit of its subfarm.
    pub(super) fn stands_in(&self, other: UnitId, unit: UnitId) -> bool {
        let builder = &self.config.builder;
        let is_near = builder.subfarm_of(other.index) == builder.subfarm_of(unit.index);
        other.kind == unit.kind && (is_near || unit.kind != UnitKind::Filter)
    }

    /// Tells everybody, in the order in which they depend on each other; returns the events that go
    /// to the error stream. `failed` is not to be filtered any more.
    fn settle_loss(
        &mut self,
        unit: UnitId,
        failed: Option<TriggerNumber>,
    ) -> Result<Vec<u64>, String> {
        use UnitKind::{Builder, EventManager, Filter, Readout, Source, Writer};
        match unit.kind {
            Readout if self.policy.readout != OnLoss::Stop => {
                // The source first: nothing more is sent to where nobody is.
                for kind in [Source, EventManager, Builder] {
                    self.tell("lost", unit, &[kind], &[])?;
                }
                Ok(Vec::new())
            }
            Filter => {
                let failed: Vec<u64> = failed.iter().map(|trigger| trigger.0).collect();
                self.tell("lost", unit, &[Builder], &failed)
            }
            Builder => self.settle_builder_loss(unit).map(|()| Vec::new()),
            // In the place of it, all at once.
            EventManager if self.policy.manager == OnLoss::Restart => Ok(Vec::new()),
            Writer => {
                self.tell("lost", unit, &[Builder], &[])?;
                Ok(Vec::new())
            }
            _ => {
                for kind in [Writer, Builder, EventManager, Readout, Filter] {
                    self.tell("lost", unit, &[kind], &[])?;
                }
                Ok(Vec::new())
            }
        }
    }

    /// Has the events of a lost builder unit built again that it had not handed on.
    pub(super) fn settle_builder_loss(&mut self, unit: UnitId) -> Result<(), String> {
        use UnitKind::{EventManager, Readout, Source};
        let group = BuildingGroup::of(&self.config, unit.index);
        let mut handed_on = Vec::new();
        let (again, open) = loop {
            self.await_manager()?;
            let had = self.tell("lost", unit, &[EventManager], &[])?;
            if !self.lives(UnitId::EVENT_MANAGER) {
                // Perhaps before it had named one: filter units forget verdicts that are not named.
                continue;
            }
            self.find_handed_on(unit, &had, &mut handed_on)?;
            // Whoever is the next event manager is not told that they are open.
            self.tell("decide", unit, &[Source], &handed_on)?;
            let again = self.tell("decide", unit, &[EventManager], &handed_on)?;
            let open = self.tell("open", unit, &[EventManager], &[])?;
            // One that died meanwhile may not have said all that there is to say.
            if self.lives(UnitId::EVENT_MANAGER) {
                break (again, open);
            }
        };
        self.lost_groups.note_built_again(group, &again);
        self.unasked.begin(unit);
        // All that is open: what an event manager before had meant for it may be another unit's now.
        self.tell("lost", unit, &[Readout], &open)?;
        if !self.config.builder.first_step.is_empty() {
            // Units that it had not asked do not know these as its events.
            self.tell("decide", unit, &[Readout], &handed_on)?;
        }
        let lost = self.processes.iter_mut().filter(|p| p.lost.is_some());
        lost.filter(|process| process.unit == unit)
            .for_each(|process| process.settled = true);
        Ok(())
    }

    /// Adds those events of a lost builder unit that need not be built again, of those that it had.
    fn find_handed_on(
        &mut self,
        unit: UnitId,
        had: &[u64],
        handed_on: &mut Vec<u64>,
    ) -> Result<(), String> {
        let without = |events: &[u64], others: &[u64]| -> Vec<u64> {
            let others: BTreeSet<&u64> = others.iter().collect();
            let events = events.iter().filter(|event| !others.contains(event));
            events.copied().collect()
        };
        let had = without(had, handed_on);
        let finished = self.find_finished(unit, &had)?;
        let group = BuildingGroup::of(&self.config, unit.index);
        self.lost_groups.note_at_writer(group, finished.len());
        let rest = without(&had, &finished);
        handed_on.extend(finished);
        handed_on.extend(self.tell("lost", unit, &[UnitKind::Filter], &rest)?);
        Ok(())
    }

    /// Which events of a lost builder unit need not be built again, or cannot be: those that its
    /// writer has, and those that were released. Who gave the reason for a release may be dead, too.
    fn find_finished(&mut self, unit: UnitId, events: &[u64]) -> Result<Vec<u64>, String> {
        let written = self.tell("lost", unit, &[UnitKind::Writer], events)?;
        let released = self.tell("released", unit, &[UnitKind::Readout], events)?;
        let mut finished: BTreeSet<u64> = written.into_iter().chain(released).collect();
        let writer = BuildingGroup::of(&self.config, unit.index).writer();
        // Another in its place knows the last that was written before it, and the unit may have been
        // slow to clear what is older.
        let is_first = self.epochs.get(&writer).is_none_or(|e| *e == FIRST_EPOCH);
        if !is_first || !self.lives(writer) {
            let stored = triggers_of(&self.place_of(writer).path);
            finished.extend(events.iter().filter(|event| stored.contains(event)));
        }
        Ok(finished.into_iter().collect())
    }

    /// Tells the units of some kinds that know a unit what happened to it, and waits until they have
    /// settled it; returns the events that they name.
    pub(super) fn tell(
        &mut self,
        what: &str,
        unit: UnitId,
        kinds: &[UnitKind],
        triggers: &[u64],
    ) -> Result<Vec<u64>, String> {
        let mut waiting = Vec::new();
        for index in 0..self.processes.len() {
            let process = &self.processes[index];
            let concerned = kinds.contains(&process.unit.kind)
                && knows(self.config.builder.writers, unit, process.unit);
            if process.gone || !concerned {
                continue;
            }
            self.make_faults_of_loss(unit, index);
            let message = Message::Command {
                what: what.to_owned(),
                unit: unit.to_code(),
                epoch: 0,
                ends: Vec::new(),
                triggers: triggers.to_vec(),
            };
            self.tell_one(index, &message)?;
            waiting.push(index);
        }
        self.await_settled(waiting)
    }

    /// Tells a process something that may be longer than its socket keeps; one that stands still is waited
    /// for as by [`ProcessGroup::await_settled`].
    fn tell_one(&mut self, index: usize, message: &Message) -> Result<(), String> {
        let mut left = self.settle_patience(index);
        let mut since = Instant::now();
        let Ok(socket) = self.processes[index].socket().map(Arc::clone) else {
            return Ok(());
        };
        let told = message.send_patiently(&*socket, || {
            if self.ends_at_once() {
                return Err("the run is ended at once".to_owned());
            }
            self.watch_events();
            self.make_faults();
            let process = &self.processes[index];
            let waited = std::mem::replace(&mut since, Instant::now()).elapsed();
            if !process.child.is_stopped() {
                left = left.saturating_sub(waited);
            }
            match left.is_zero() {
                true => Err(format!("{} takes no orders", process.id)),
                false => Ok(()),
            }
        });
        match told {
            Ok(()) => Ok(()),
            Err(Unsent::GivenUp(reason)) => Err(reason),
            // One that cannot be told is dying itself, and is dealt with in its turn: when it has hung
            // up, so that nobody takes its silence for an answer.
            Err(Unsent::Failed(error)) => {
                if !matches!(error, PeerError::HungUp) {
                    eprintln!("{}: cannot be told: {error}", self.processes[index].id);
                }
                self.processes[index].child.kill();
                Ok(())
            }
        }
    }

    /// Has the front-ends do something, and waits until they have.
    ///
    /// # Errors
    /// Why they have not.
    pub fn tell_front_end(&mut self, what: &str) -> Result<(), String> {
        self.tell(what, UnitId::SUPERVISOR, &[UnitKind::Source], &[])
            .map(|_| ())
    }

    /// Waits until these processes have settled what they were told, or are gone; returns the events
    /// that they name. Time in which one of them stands still does not count.
    pub(super) fn await_settled(&mut self, mut waiting: Vec<usize>) -> Result<Vec<u64>, String> {
        let patience = waiting.iter().map(|index| self.settle_patience(*index));
        let mut left = patience.max().unwrap_or_default();
        let mut named = Vec::new();
        while !waiting.is_empty() {
            if left.is_zero() {
                return Err(format!("{} roles did not settle its loss", waiting.len()));
            }
            if self.ends_at_once() {
                return Err("the run is ended at once".to_owned());
            }
            // One of them may hang on an event.
            self.watch_events();
            let since = Instant::now();
            let heard = self.heard.recv_timeout(left.min(Duration::from_millis(20)));
            let stands = |index: &usize| self.processes[*index].child.is_stopped();
            if heard.is_ok() || !waiting.iter().any(stands) {
                left = left.saturating_sub(since.elapsed());
            }
            let Ok((index, heard)) = heard else {
                self.make_faults();
                continue;
            };
            let settled = self.take(index, heard);
            let is_gone = self
                .processes
                .get(index)
                .is_some_and(|process| process.gone);
            if settled.is_some() || is_gone {
                waiting.retain(|other| *other != index);
            }
            named.extend(settled.into_iter().flatten());
        }
        Ok(named)
    }

    /// How long a process may take to settle a loss: a filter unit judges what it has first.
    fn settle_patience(&self, index: usize) -> Duration {
        let events = match self.processes[index].unit.kind {
            UnitKind::Filter => u64::from(self.config.builder.filter_in_flight) + 1,
            _ => 0,
        };
        let judging = self.policy.time_limit.0.saturating_mul(events);
        SETTLE_PATIENCE.saturating_add(Duration::from_nanos(judging))
    }
}
