//! The world of a story: units, hops between them, and what happens at each kernel event.
//!
//! After every input a unit is polled until it has nothing more to say. Messages travel as the
//! words of the real format. Who tells the units of each other's deaths is in
//! [`super::membership`].

use std::collections::{BTreeMap, VecDeque};

use livetime_builder::{
    AcceptLog, AcceptedTrigger, BuilderConfig, BuilderUnit, EventManager, FragmentVerdict, Handled,
    PhaseBarrier, ReadoutOutput, ReadoutUnit,
};
use livetime_wire::message::{AcceptedEvent, BuilderMessage, Envelope, Keep};
use livetime_wire::{L2Mask, RunNs, SourceId, TriggerNumber, UnitId};

use super::Broken;
use super::check::Check;
use super::forced_end::ForcedEnd;
use super::former_manager::FormerManager;
use super::hosts::{BuilderHost, FilterHost, HeldTicket, ReadoutHost};
use super::interruption::Interruption;
use super::membership::Membership;
use super::network::{Letters, Text};
use super::scenario::{SwarmFault, SwarmScenario};
use super::shaper::{Shaped, SwarmShaper};
use super::writer::{HandedOver, WriterHost};
use crate::address::NodeId;
use crate::kernel::World;
use crate::queue::EventClass;
use crate::random::RandomStream;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};
use crate::trace::EventLabel;
use crate::wake_up::WakeUp;

/// The epoch in which every unit begins.
pub(super) const FIRST_EPOCH: u32 = 1;
/// Latency of the hops that lose nothing.
const SURE_HOP: DurationPs = DurationPs::from_us(10);
/// How often it is looked whether the story is over.
const LOOK: DurationPs = DurationPs::from_ms(50);

/// What happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum SwarmEvent {
    /// The supervisor has another trigger.
    Trigger,
    /// The supervisor's decision comes to a readout unit.
    Decision {
        readout: u16,
        trigger: u64,
        keep: bool,
    },
    /// The supervisor's accept comes to the event manager.
    Accept { trigger: u64 },
    /// A fragment comes out of a link.
    Fragment {
        readout: u16,
        source: u16,
        trigger: u64,
    },
    /// A message comes.
    Letter(u32),
    /// A ticket comes to a filter unit.
    Ticket(u32),
    /// A filter unit is through with an event.
    Filtered(u32),
    /// The builder unit hears of it.
    Done(u32),
    /// An accepted event comes to the writer.
    Write(u32),
    /// Its builder unit hears that it is written.
    Written(u32),
    /// A unit's timeout may be due: event manager, builder units, readout units.
    Wake(u16),
    /// A fault of the story.
    Fault(u16),
    /// The membership goes on.
    Membership,
    /// A builder unit that was taken for dead hears of it.
    Renew(u16),
    /// It is looked at what nobody has asked for, and so many times more.
    Unasked { more: u8 },
    /// An event manager that was taken for dead goes on.
    FormerManager,
    /// Is it over?
    Look,
    /// Is a step of the end by force done?
    ForcedEnd,
    /// A unit hears of such a step.
    EndStep(u16),
}

/// The world.
pub(super) struct SwarmWorld {
    pub(super) scenario: SwarmScenario,
    pub(super) config: BuilderConfig,
    pub(super) manager: Option<EventManager>,
    pub(super) manager_epoch: u32,
    pub(super) former_manager: Option<FormerManager>,
    pub(super) manager_interruption: Interruption,
    pub(super) builders: Vec<BuilderHost>,
    /// Epochs that builder units are to be in, as the membership knows them.
    pub(super) builder_epochs: Vec<u32>,
    pub(super) readouts: Vec<ReadoutHost>,
    pub(super) filters: Vec<FilterHost>,
    pub(super) tickets: Vec<Option<HeldTicket>>,
    pub(super) writer: WriterHost,
    pub(super) handed_over: Vec<Option<HandedOver>>,
    pub(super) log: AcceptLog,
    pub(super) membership: Membership,
    pub(super) check: Check,
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) end: ForcedEnd,
    pub(super) triggers_given: u64,
    pub(super) accepted: u64,
    pub(super) accepts: VecDeque<u64>,
    /// Accepts on their way to the event manager.
    pub(super) accepts_under_way: u64,
    accepts_sent: u32,
    pub(super) letters: Letters,
    /// Says when the phases of a linear shift begin; it lives and dies with the event manager.
    pub(super) barrier: Option<PhaseBarrier>,
    wakes: Vec<WakeUp>,
    pub(super) random: RandomStream,
}

/// Configuration with something broken.
#[cfg(feature = "mutants")]
fn with_broken(config: BuilderConfig, broken: Broken) -> BuilderConfig {
    BuilderConfig {
        mutant: broken,
        ..config
    }
}

#[cfg(not(feature = "mutants"))]
fn with_broken(config: BuilderConfig, (): Broken) -> BuilderConfig {
    config
}

impl SwarmWorld {
    pub(super) fn new(scenario: SwarmScenario, broken: Broken) -> Self {
        let config = with_broken(scenario.builder_config(), broken);
        let builders: Vec<BuilderHost> = (0..config.builder_units)
            .map(|unit| {
                let core = BuilderUnit::new(&config, unit, FIRST_EPOCH);
                BuilderHost {
                    ticket: core.empty_ticket(),
                    core,
                    assemblers: scenario.assemblers(),
                    epoch: FIRST_EPOCH,
                    writer_life: Some(FIRST_EPOCH),
                    filter_epochs: vec![FIRST_EPOCH; config.filter_units.into()],
                    is_up: true,
                    interruption: Interruption::NONE,
                    slow_us: 0,
                }
            })
            .collect();
        let readouts: Vec<ReadoutHost> = (0..scenario.readouts)
            .map(|unit| {
                let core = ReadoutUnit::new(&config, unit, FIRST_EPOCH);
                let shaper = SwarmShaper::new(scenario.shaping, &config, unit);
                ReadoutHost::new(core, FIRST_EPOCH, shaper)
            })
            .collect();
        let filters = (0..config.filter_units).map(|_| FilterHost {
            is_up: true,
            interruption: Interruption::NONE,
            epoch: FIRST_EPOCH,
            fences: vec![FIRST_EPOCH; builders.len()],
            memory: BTreeMap::new(),
            sequences: vec![0; builders.len()],
            former_sequences: Vec::new(),
        });
        let mut manager = EventManager::new(&config, FIRST_EPOCH);
        manager.report_closed();
        let units = 1 + builders.len() + readouts.len();
        Self {
            manager: Some(manager),
            manager_epoch: FIRST_EPOCH,
            former_manager: None,
            manager_interruption: Interruption::NONE,
            builder_epochs: vec![FIRST_EPOCH; builders.len()],
            filters: filters.collect(),
            tickets: Vec::new(),
            writer: WriterHost::new(builders.len()),
            handed_over: Vec::new(),
            log: AcceptLog::new(&config),
            membership: Membership::new(builders.len()),
            check: Check::new(&config),
            faults: BTreeMap::new(),
            end: ForcedEnd::NONE,
            triggers_given: 0,
            accepted: 0,
            accepts: VecDeque::new(),
            accepts_under_way: 0,
            accepts_sent: 0,
            letters: Letters::default(),
            barrier: scenario.barrier(PhaseBarrier::new),
            wakes: vec![WakeUp::new(); units],
            random: scenario.stream(41),
            builders,
            readouts,
            config,
            scenario,
        }
    }

    /// Schedules the first events.
    pub(super) fn start(&mut self, s: &mut Scheduler<SwarmEvent>) {
        s.at(SimPs::ZERO, EventClass(0), SwarmEvent::Trigger);
        s.after(LOOK, EventClass(1), SwarmEvent::Look);
        for (index, fault) in (0..).zip(&self.scenario.faults) {
            let at = SimPs::ZERO + DurationPs::from_ms(fault.at_ms);
            s.at(at, EventClass(0), SwarmEvent::Fault(index));
        }
        if let Some(end) = self.scenario.forced_end {
            let at = SimPs::ZERO + DurationPs::from_ms(end.at_ms);
            s.at(at, EventClass(1), SwarmEvent::ForcedEnd);
        }
        self.pump_all(s);
    }

    /// Counts a fault.
    pub(super) fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(super) fn pump_all(&mut self, s: &mut Scheduler<SwarmEvent>) {
        self.pump_manager(s);
        for unit in 0..self.builders.len() as u16 {
            self.pump_builder(unit, s);
        }
        for unit in 0..self.readouts.len() as u16 {
            self.pump_readout(unit, s);
        }
    }

    pub(super) fn between_us(&mut self, from: u64, to: u64) -> DurationPs {
        DurationPs::from_us(from + self.random.below(to - from + 1))
    }

    /// A delay of the membership.
    pub(super) fn membership_delay(&mut self) -> DurationPs {
        self.between_us(50, 8_000)
    }

    pub(super) fn check_manager(&mut self, now: SimPs) {
        let Some(manager) = &self.manager else { return };
        self.check.expect(now, manager.credits_conserved(), || {
            "credits are not conserved".to_owned()
        });
        for unit in 0..self.config.builder_units {
            let free = manager.free_bytes(unit);
            self.check.expect(now, free >= 0, || {
                format!("bu{unit} is given more bytes than it has room for: {free}")
            });
        }
    }

    pub(super) fn pump_manager(&mut self, s: &mut Scheduler<SwarmEvent>) {
        let now = s.now();
        if self.manager_interruption.stopped(now).is_some() {
            return;
        }
        let Some(mut manager) = self.manager.take() else {
            return;
        };
        while let Some(trigger) = self.accepts.front().copied() {
            let envelope = Envelope {
                sender: UnitId::SUPERVISOR,
                epoch: FIRST_EPOCH,
                sequence: self.accepts_sent,
                message: BuilderMessage::L2Accept {
                    trigger: TriggerNumber(trigger),
                    mask: L2Mask(trigger.into()),
                    triggered_at: RunNs(trigger),
                },
            };
            if manager.handle_message(now.to_run_ns(), &envelope) == Handled::Busy {
                break;
            }
            self.accepts_sent = self.accepts_sent.wrapping_add(1);
            self.accepts.pop_front();
        }
        while let Some(sent) = manager.poll_output(now.to_run_ns()) {
            self.send(sent.to, &sent.envelope, s);
        }
        while let Some((readout, phase)) = self.barrier.as_mut().and_then(|b| b.poll_output()) {
            let envelope = Envelope {
                sender: UnitId::EVENT_MANAGER,
                epoch: self.manager_epoch,
                sequence: phase as u32,
                message: BuilderMessage::Phase { phase },
            };
            self.send(UnitId::readout(readout as u16), &envelope, s);
        }
        while let Some(trigger) = manager.poll_closed() {
            self.log.close(trigger);
        }
        while let Some(builder) = manager.poll_silent() {
            self.lose_builder(builder, s);
        }
        let barrier = self.barrier.as_ref().map(PhaseBarrier::poll_timeout);
        let timeout = manager.poll_timeout().min(barrier.unwrap_or(RunNs::MAX));
        self.arm(0, timeout, s);
        self.manager = Some(manager);
    }

    pub(super) fn pump_builder(&mut self, unit: u16, s: &mut Scheduler<SwarmEvent>) {
        let now = s.now();
        let at = usize::from(unit);
        let host = &self.builders[at];
        if !host.is_up || host.interruption.stopped(now).is_some() {
            return;
        }
        loop {
            let host = &mut self.builders[at];
            if let Some(filter) = host.core.poll_ticket(&mut host.ticket) {
                let held = HeldTicket {
                    ticket: host.ticket.clone(),
                    epoch: host.epoch,
                    filter: filter.index,
                    is_taken: false,
                    fetches_rest: false,
                    is_answered: false,
                    filter_epoch: host.filter_epochs[usize::from(filter.index)],
                };
                let index = self.tickets.len() as u32;
                self.tickets.push(Some(held));
                s.after(SURE_HOP, EventClass(0), SwarmEvent::Ticket(index));
            } else if let Some(life) = host.writer_life
                && host.core.poll_accepted(&mut host.ticket)
            {
                let (ticket, epoch) = (host.ticket.clone(), host.epoch);
                self.hand_over(ticket, (epoch, life), s);
            } else if let Some(sent) = host.core.poll_output(now.to_run_ns()) {
                self.send(sent.to, &sent.envelope, s);
            } else {
                break;
            }
        }
        let core = &self.builders[at].core;
        let (held, most) = (core.events_held(), self.config.credits as usize);
        let timeout = core.poll_timeout();
        self.check.expect(now, held <= most, || {
            format!("bu{unit} holds {held} events with {most} credits")
        });
        self.arm(1 + unit, timeout, s);
    }

    pub(super) fn pump_readout(&mut self, unit: u16, s: &mut Scheduler<SwarmEvent>) {
        let (now, at) = (s.now(), usize::from(unit));
        let host = &mut self.readouts[at];
        if host.interruption.stopped(now).is_some() {
            return;
        }
        let Some(mut core) = host.core.take() else {
            return;
        };
        while let Some((trigger, source)) = host.waiting.front().copied() {
            match core.handle_fragment(now.to_run_ns(), trigger, source) {
                FragmentVerdict::Hold => host.file(trigger, source),
                FragmentVerdict::Discard { .. }
                | FragmentVerdict::DiscardUnasked
                | FragmentVerdict::KeepBetter => {}
                FragmentVerdict::Wait => break,
            }
            host.waiting.pop_front();
            host.received += 1;
        }
        while let Some(output) = core.poll_output() {
            match output {
                ReadoutOutput::SendFragment {
                    to,
                    sequence,
                    trigger,
                    source,
                } => self.send_fragment(&core, unit, (to, trigger, source), sequence, s),
                ReadoutOutput::Free { trigger, .. } => {
                    let is_freed = self.readouts[at].free(trigger);
                    self.check.expect(now, is_freed, || {
                        format!("ru{unit} frees {trigger}, whose pages it does not have")
                    });
                }
            }
        }
        let turn = self.pump_shaper(&core, unit, s);
        self.arm(
            1 + self.builders.len() as u16 + unit,
            core.poll_timeout().min(turn),
            s,
        );
        self.readouts[at].core = Some(core);
    }

    /// Sends a fragment, or has it wait for its turn.
    fn send_fragment(
        &mut self,
        core: &ReadoutUnit,
        unit: u16,
        (to, trigger, source): (UnitId, TriggerNumber, SourceId),
        sequence: u32,
        s: &mut Scheduler<SwarmEvent>,
    ) {
        let host = &mut self.readouts[usize::from(unit)];
        let Some(fragment) = host.descriptor(unit, trigger, source) else {
            let what = format!("ru{unit} sends {trigger} of {source}, which is not on file");
            return self.check.report(s.now(), what);
        };
        if let Some(shaper) = &mut host.shaper {
            let (now, bytes) = (s.now().to_run_ns(), fragment.words * 4);
            shaper.push(now, (to.index, trigger, source), sequence, bytes);
        } else {
            let envelope = core.fragment_message(sequence, trigger, fragment);
            self.send(to, &envelope, s);
        }
    }

    /// Sends what has its turn; says when the next one may be.
    fn pump_shaper(
        &mut self,
        core: &ReadoutUnit,
        unit: u16,
        s: &mut Scheduler<SwarmEvent>,
    ) -> RunNs {
        let (now, at) = (s.now().to_run_ns(), usize::from(unit));
        let Some(mut shaper) = self.readouts[at].shaper.take() else {
            return RunNs::MAX;
        };
        // What was released while it waited is not on file any more, and its message not sent.
        let message = |host: &ReadoutHost, trigger, source, sequence| {
            let fragment = host.descriptor(unit, trigger, source)?;
            Some(core.fragment_message(sequence, trigger, fragment))
        };
        while let Some(shaped) = shaper.poll(now) {
            let host = &self.readouts[at];
            match shaped {
                Shaped::Block(block, ended) => {
                    let to = UnitId::builder(block.to);
                    let whole = ended.into_iter().filter_map(|(piece, sequence)| {
                        let envelope = message(host, piece.trigger, piece.source, sequence)?;
                        Some((piece.trigger, piece.source, envelope.to_words()))
                    });
                    let text = Text::Block {
                        block,
                        epoch: host.epoch,
                        whole: whole.collect(),
                    };
                    self.send_text(UnitId::readout(unit), to, text, s);
                }
                Shaped::Fragment {
                    to,
                    trigger,
                    source,
                    sequence,
                } => {
                    if let Some(envelope) = message(host, trigger, source, sequence) {
                        self.send(UnitId::builder(to), &envelope, s);
                    }
                }
                Shaped::Through(phase, demand) => {
                    let envelope = core.through_message(phase, demand);
                    self.send(UnitId::EVENT_MANAGER, &envelope, s);
                }
            }
        }
        let timeout = shaper.poll_timeout();
        self.readouts[at].shaper = Some(shaper);
        timeout
    }

    fn arm(&mut self, unit: u16, timeout: RunNs, s: &mut Scheduler<SwarmEvent>) {
        let deadline = (timeout != RunNs::MAX).then(|| SimPs::from_run_ns(timeout).max(s.now()));
        if let Some(at) = self.wakes[usize::from(unit)].arm(deadline) {
            s.at(at, EventClass(1), SwarmEvent::Wake(unit));
        }
    }

    fn wake(&mut self, unit: u16, s: &mut Scheduler<SwarmEvent>) {
        let now = s.now();
        let _due = self.wakes[usize::from(unit)].fire(now);
        let time = now.to_run_ns();
        if let Some(until) = self.stopped(self.woken(unit), now) {
            s.at(until, EventClass(1), SwarmEvent::Wake(unit));
            return;
        }
        let Some(builder) = unit.checked_sub(1) else {
            if let Some(manager) = &mut self.manager {
                manager.handle_timeout(time);
                if let Some(barrier) = &mut self.barrier {
                    barrier.handle_timeout(time);
                }
            }
            return self.pump_manager(s);
        };
        if let Some(host) = self.builders.get_mut(usize::from(builder)) {
            if host.is_up {
                host.core.handle_timeout(time);
            }
            return self.pump_builder(builder, s);
        }
        let readout = builder - self.builders.len() as u16;
        if let Some(core) = &mut self.readouts[usize::from(readout)].core {
            core.handle_timeout(time);
        }
        self.pump_readout(readout, s);
    }

    /// The supervisor gives a trigger; every seventh is rejected.
    fn trigger(&mut self, s: &mut Scheduler<SwarmEvent>) {
        if self.triggers_given >= self.scenario.triggers || self.end.has_begun() {
            return;
        }
        let mean = self.scenario.interval_us;
        let next = self.between_us(mean / 2, mean * 3 / 2);
        s.after(next, EventClass(0), SwarmEvent::Trigger);
        let trigger = self.triggers_given + 1;
        let keep = !trigger.is_multiple_of(7);
        let event = AcceptedTrigger {
            trigger: TriggerNumber(trigger),
            mask: L2Mask(trigger.into()),
            triggered_at: RunNs(trigger),
        };
        if keep && !self.log.add(event) {
            // Level 2 waits until the builder has room: dead time.
            return;
        }
        self.triggers_given = trigger;
        for readout in 0..self.readouts.len() as u16 {
            for source in 0..self.scenario.sources {
                let after = self.between_us(1, 3_000);
                let fragment = SwarmEvent::Fragment {
                    readout,
                    source,
                    trigger,
                };
                s.after(after, EventClass(0), fragment);
            }
            let decision = SwarmEvent::Decision {
                readout,
                trigger,
                keep,
            };
            s.after(SURE_HOP, EventClass(0), decision);
        }
        if keep {
            self.accepted += 1;
            self.accepts_under_way += 1;
            s.after(SURE_HOP, EventClass(0), SwarmEvent::Accept { trigger });
        }
    }

    fn decide(&mut self, readout: u16, trigger: u64, keep: bool, s: &mut Scheduler<SwarmEvent>) {
        let host = &mut self.readouts[usize::from(readout)];
        if let Some(until) = host.interruption.stopped(s.now()) {
            let decision = SwarmEvent::Decision {
                readout,
                trigger,
                keep,
            };
            s.at(until, EventClass(0), decision);
            return;
        }
        let Some(core) = &mut host.core else { return };
        let envelope = Envelope {
            sender: UnitId::SUPERVISOR,
            epoch: FIRST_EPOCH,
            sequence: host.decisions,
            message: BuilderMessage::Decision {
                trigger: TriggerNumber(trigger),
                keep: if keep { Keep::Build } else { Keep::Drop },
            },
        };
        host.decisions += 1;
        let _refused = core.handle_message(s.now().to_run_ns(), &envelope);
        self.pump_readout(readout, s);
    }

    fn fragment(&mut self, readout: u16, source: u16, trigger: u64, s: &mut Scheduler<SwarmEvent>) {
        let host = &mut self.readouts[usize::from(readout)];
        if host.core.is_some() {
            let source = 1 + u32::from(readout * self.scenario.sources + source);
            host.waiting
                .push_back((TriggerNumber(trigger), SourceId(source)));
            self.pump_readout(readout, s);
        }
    }

    /// A ticket comes to its filter unit, which takes it unless it is of a builder unit's past.
    fn take_ticket(&mut self, index: u32, s: &mut Scheduler<SwarmEvent>) {
        let Some(held) = &mut self.tickets[index as usize] else {
            return;
        };
        let builder = usize::from(held.ticket.builder);
        let filter = &mut self.filters[usize::from(held.filter)];
        if let Some(until) = filter.interruption.stopped(s.now()) {
            s.at(until, EventClass(0), SwarmEvent::Ticket(index));
            return;
        }
        // What was on its way to one that is gone was lost with it.
        if !filter.is_up || held.filter_epoch != filter.epoch {
            self.tickets[index as usize] = None;
            return;
        }
        if held.epoch < filter.fences[builder] {
            self.tickets[index as usize] = None;
            self.count("tickets_refused");
            return;
        }
        held.is_taken = true;
        held.fetches_rest = self.scenario.fetches_rest(&held.ticket);
        if held.fetches_rest {
            self.check.look(s.now(), &held.ticket);
        } else {
            let ticket = &held.ticket;
            filter.memory.insert(ticket.trigger, ticket.builder);
            self.check.take(s.now(), &held.ticket);
        }
        let service = self.between_us(100, 5_000);
        s.after(service, EventClass(0), SwarmEvent::Filtered(index));
    }

    /// A filter unit is through with an event, whose pages it has read until now.
    fn filtered(&mut self, index: u32, s: &mut Scheduler<SwarmEvent>) {
        let Some(held) = &mut self.tickets[index as usize] else {
            return;
        };
        let interruption = &self.filters[usize::from(held.filter)].interruption;
        if let Some(until) = interruption.stopped(s.now()) {
            s.at(until, EventClass(0), SwarmEvent::Filtered(index));
            return;
        }
        held.is_answered = true;
        for fragment in &held.ticket.fragments {
            let readout = &self.readouts[usize::from(fragment.pool)];
            let is_there = readout.is_readable(fragment.pages[0]);
            let trigger = held.ticket.trigger;
            self.check.expect(s.now(), is_there, || {
                format!("a page of event {trigger} was freed while a filter unit read it")
            });
        }
        s.after(SURE_HOP, EventClass(0), SwarmEvent::Done(index));
    }

    /// The builder unit of an event hears that its filter unit is through with it.
    fn done(&mut self, index: u32, s: &mut Scheduler<SwarmEvent>) {
        let Some(held) = &self.tickets[index as usize] else {
            return;
        };
        let (builder, now) = (held.ticket.builder, s.now());
        let host = &mut self.builders[usize::from(builder)];
        if let Some(until) = host.interruption.stopped(now)
            && host.epoch == held.epoch
        {
            s.at(until, EventClass(0), SwarmEvent::Done(index));
            return;
        }
        let filter = &mut self.filters[usize::from(held.filter)];
        let sequences = match held.filter_epoch == filter.epoch {
            true => &mut filter.sequences,
            false => &mut filter.former_sequences,
        };
        let sequence = sequences[usize::from(builder)];
        sequences[usize::from(builder)] += 1;
        let trigger = held.ticket.trigger;
        let triggers = [trigger].into_iter().collect();
        let is_accepted = !held.ticket.is_first_step() && self.scenario.accepts(trigger);
        let envelope = Envelope {
            sender: UnitId::filter(held.filter),
            epoch: held.filter_epoch,
            sequence,
            message: match held.fetches_rest {
                true => BuilderMessage::FetchRest { triggers },
                false if is_accepted => BuilderMessage::EventsAccepted {
                    events: [AcceptedEvent {
                        trigger,
                        reason: 1,
                        streams: 1,
                    }]
                    .into_iter()
                    .collect(),
                },
                false => BuilderMessage::EventDone { triggers },
            },
        };
        if host.is_up && host.epoch == held.epoch {
            let _refused = host.core.handle_message(now.to_run_ns(), &envelope);
        }
        self.tickets[index as usize] = None;
        self.pump_builder(builder, s);
    }

    fn fault(&mut self, index: u16, s: &mut Scheduler<SwarmEvent>) {
        let fault = self.scenario.faults[usize::from(index)].fault;
        if self.end.has_begun() && fault.is_death() {
            return;
        }
        match fault {
            SwarmFault::SlowBuilder { builder, more_us } => {
                self.count("builder_slow");
                self.builders[usize::from(builder)].slow_us += more_us;
            }
            SwarmFault::Stop { unit, for_ms } => self.stop(unit, for_ms, s),
            SwarmFault::Cut { unit, for_ms } => self.cut(unit, for_ms, s.now()),
            SwarmFault::KillBuilder { builder } => {
                self.count("builder_killed");
                self.builders[usize::from(builder)].is_up = false;
                // Some deaths are seen by the hang-up, the others by the silence.
                if self.random.below(2) == 0 {
                    self.lose_builder(builder, s);
                }
            }
            SwarmFault::KillReadout { readout, for_ms } => self.kill_readout(readout, for_ms, s),
            SwarmFault::KillFilter { filter, for_ms } => self.kill_filter(filter, for_ms, s),
            SwarmFault::KillWriter { for_ms } => self.kill_writer(for_ms, s),
            SwarmFault::RestartManager { for_ms } => self.restart_manager(index, for_ms, s),
        }
    }

    /// Looks whether the story is over.
    fn look(&mut self, s: &mut Scheduler<SwarmEvent>) {
        if self.end.has_begun() {
            // It ends in steps.
            return;
        }
        if !self.is_over(s.now()) {
            s.after(LOOK, EventClass(1), SwarmEvent::Look);
            return;
        }
        let now = s.now();
        let (accepted, taken) = (self.accepted, self.check.events_taken());
        self.check.expect(now, taken == accepted, || {
            format!("{accepted} events were accepted, {taken} came to a filter unit")
        });
        let accepts = |trigger| self.scenario.accepts(trigger);
        let unwritten = self
            .check
            .unwritten(accepts, |trigger| self.writer.has(trigger));
        if let Some(trigger) = unwritten {
            let what = format!("event {trigger} is not written as it was judged");
            self.check.report(now, what);
        }
        self.check_accounts(now);
        s.halt();
    }

    fn is_over(&self, now: SimPs) -> bool {
        let last_fault = self.scenario.faults.last().map_or(0, |fault| fault.at_ms);
        let is_manager_idle = |manager: &EventManager| manager.is_idle();
        self.triggers_given >= self.scenario.triggers
            && now > SimPs::ZERO + DurationPs::from_ms(last_fault)
            && self.membership.is_idle()
            && self.accepts.is_empty()
            && self.accepts_under_way == 0
            && self.manager.as_ref().is_some_and(is_manager_idle)
            && self.tickets.iter().all(Option::is_none)
            && self.filters.iter().all(|filter| filter.is_up)
            && self.writer.is_up
            && self.handed_over.iter().all(Option::is_none)
            && self
                .builders
                .iter()
                .zip(&self.builder_epochs)
                .zip(&self.membership.is_gone)
                .all(|((host, epoch), is_gone)| {
                    *is_gone || host.is_up && host.epoch == *epoch && host.core.is_idle()
                })
            && self.readouts.iter().all(|host| {
                host.core.as_ref().is_some_and(ReadoutUnit::is_idle) && host.waiting.is_empty()
            })
    }

    /// Where everything is, for a story without an end.
    pub(super) fn state(&self) -> String {
        let builders: Vec<_> = self
            .builders
            .iter()
            .map(|host| (host.is_up, host.epoch, host.core.events_held()))
            .collect();
        let readouts: Vec<_> = self
            .readouts
            .iter()
            .map(|host| host.core.as_ref().map(ReadoutUnit::triggers_held))
            .collect();
        format!(
            "{} of {} triggers, {} events taken, builder units (up, epoch, events) {builders:?}, \
             readout units hold {readouts:?}, event manager queues {:?}, idle {:?}, end {:?}, membership \
             {}",
            self.triggers_given,
            self.scenario.triggers,
            self.check.events_taken(),
            self.manager.as_ref().map(EventManager::queued),
            self.manager.as_ref().map(EventManager::is_idle),
            self.end,
            self.membership.state(),
        )
    }

    /// The event manager is gone: so is what waited for it.
    pub(super) fn drop_manager(&mut self) {
        self.manager = None;
        self.manager_interruption.begin_life();
        self.barrier = None;
        self.accepts.clear();
        self.wakes[0] = WakeUp::new();
    }
}

impl World for SwarmWorld {
    type Event = SwarmEvent;

    fn label(&self, event: &SwarmEvent) -> EventLabel {
        let (kind, key) = match *event {
            SwarmEvent::Trigger => (0, self.triggers_given),
            SwarmEvent::Decision {
                readout, trigger, ..
            } => (1, trigger << 8 | u64::from(readout)),
            SwarmEvent::Accept { trigger } => (2, trigger),
            SwarmEvent::Fragment {
                readout,
                source,
                trigger,
            } => (
                3,
                trigger << 16 | u64::from(readout) << 8 | u64::from(source),
            ),
            SwarmEvent::Letter(index) => (4, self.letters.key(index)),
            SwarmEvent::Ticket(index) => (5, index.into()),
            SwarmEvent::Filtered(index) => (6, index.into()),
            SwarmEvent::Done(index) => (7, index.into()),
            SwarmEvent::Wake(unit) => (8, unit.into()),
            SwarmEvent::Fault(index) => (9, index.into()),
            SwarmEvent::Membership => (10, 0),
            SwarmEvent::Renew(unit) => (11, unit.into()),
            SwarmEvent::Unasked { more } => (12, more.into()),
            SwarmEvent::Look => (13, 0),
            SwarmEvent::ForcedEnd => (17, 0),
            SwarmEvent::EndStep(unit) => (18, unit.into()),
            SwarmEvent::FormerManager => (14, 0),
            SwarmEvent::Write(index) => (15, index.into()),
            SwarmEvent::Written(index) => (16, index.into()),
        };
        EventLabel {
            node: NodeId(0),
            kind,
            key,
        }
    }

    fn handle(&mut self, _now: SimPs, event: SwarmEvent, s: &mut Scheduler<SwarmEvent>) {
        match event {
            SwarmEvent::Trigger => self.trigger(s),
            SwarmEvent::Decision {
                readout,
                trigger,
                keep,
            } => self.decide(readout, trigger, keep, s),
            SwarmEvent::Accept { trigger } => {
                self.accepts_under_way -= 1;
                if self.manager.is_some() {
                    self.accepts.push_back(trigger);
                    self.pump_manager(s);
                }
            }
            SwarmEvent::Fragment {
                readout,
                source,
                trigger,
            } => self.fragment(readout, source, trigger, s),
            SwarmEvent::Letter(index) => self.deliver(index, s),
            SwarmEvent::Ticket(index) => self.take_ticket(index, s),
            SwarmEvent::Filtered(index) => self.filtered(index, s),
            SwarmEvent::Done(index) => self.done(index, s),
            SwarmEvent::Write(index) => self.write(index, s),
            SwarmEvent::Written(index) => self.written(index, s),
            SwarmEvent::Wake(unit) => self.wake(unit, s),
            SwarmEvent::Fault(index) => self.fault(index, s),
            SwarmEvent::Membership => self.go_on(s),
            SwarmEvent::Renew(unit) => self.renew_builder(unit, s),
            SwarmEvent::Unasked { more } => self.end_unasked(more, s),
            SwarmEvent::FormerManager => self.go_on_with_former(s),
            SwarmEvent::Look => self.look(s),
            SwarmEvent::ForcedEnd => self.go_on_to_end(s),
            SwarmEvent::EndStep(unit) => self.begin_step(unit, s),
        }
        if self.check.violation().is_some() {
            s.halt();
        }
    }
}
