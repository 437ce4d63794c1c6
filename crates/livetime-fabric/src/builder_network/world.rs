//! The world: units on hosts, networks between them, and what happens at each kernel event. What
//! networks bring is in [`super::deliveries`], what builder units say in [`super::letters`].
//!
//! A message changes a unit's state when it comes; what the unit then says leaves when its
//! processor is through with both. Readout units that shape by blocks look at their messages when
//! they fill a block, so that a message costs one event of the kernel.

use livetime_builder::{AcceptedTrigger, Block, Handled, MessageCopy, PhaseBarrier, ShiftSchedule};
use livetime_wire::message::{BuilderMessage, Envelope, EventTicket, PhaseDemand};
use livetime_wire::{DurationNs, L2Mask, RunNs, SourceId, TriggerNumber, UnitId, UnitKind};

use super::adapter::{Adapter, Cargo, Outlet, Wanted, injection};
use super::check::{Check, Sizes};
use super::control::Texts;
use super::engine::Engine;
use super::event::{EventWord, NetworkEvent};
use super::foresight::Foreseen;
use super::hosts::{
    BuilderHost, FIRST_EPOCH, Finishing, Letter, ManagerHost, ReadoutHost, adapters, builder_hosts,
    readout_hosts,
};
use super::moving::Moving;
use super::packet_loss::PacketDamage;
use super::parts::Parts;
use super::placement::units_at;
use super::tally::Tally;
use super::two_step::Steps;
use super::{BuilderNetwork, ShaperPlace, Shaping};
use crate::address::NodeId;
use crate::kernel::World;
use crate::network::arrival::ArrivalTimes;
use crate::network::port::Parcel;
use crate::network::topology::Topology;
use crate::network::{Arrival, Load};
use crate::queue::EventClass;
use crate::random::RandomStreams;
use crate::scenario::Switching;
use crate::scheduler::Scheduler;
use crate::time::{ByteTime, DurationPs, SimPs};
use crate::trace::EventLabel;
use crate::wake_up::WakeUp;

/// The class of what happens at hosts: before the networks settle an instant.
pub(super) const HOST: EventClass = EventClass(0);

/// The world.
pub(super) struct NetworkWorld<'t> {
    pub(super) plan: &'t BuilderNetwork,
    pub(super) topology: &'t Topology,
    pub(super) load: &'t Load,
    pub(super) byte_time: ByteTime,
    pub(super) engines: Vec<Engine<'t>>,
    /// Whether packets might wait for each other for ever.
    pub(super) may_deadlock: bool,
    /// What moves in each of them, if so.
    pub(super) moving: Vec<Moving>,
    /// The first one that stood still, and its packets.
    pub(super) deadlocked: Option<(usize, u64)>,
    pub(super) rails: usize,
    pub(super) control_bits_per_s: u64,
    pub(super) control_latency: DurationPs,
    pub(super) is_shared: bool,
    pub(super) readouts: Vec<ReadoutHost>,
    /// By readout unit and rail.
    pub(super) adapters: Vec<Adapter>,
    pub(super) builders: Vec<BuilderHost>,
    pub(super) manager: ManagerHost,
    pub(super) readout_port: Vec<u16>,
    pub(super) readout_at: Vec<u16>,
    pub(super) builder_port: Vec<u16>,
    pub(super) builder_at: Vec<u16>,
    pub(super) cargo: Vec<Option<Cargo>>,
    /// The blocks of those that are one, one for each cargo.
    pub(super) blocks: Vec<Block>,
    cargo_free: Vec<u32>,
    pub(super) texts: Texts,
    pub(super) sizes: Sizes<'t>,
    arrivals: ArrivalTimes,
    arrived: u64,
    /// The ticket of an event, filled in anew for each.
    ticket: EventTicket,
    /// The other receivers of a message that a builder unit sends.
    copies: Vec<MessageCopy>,
    pub(super) barrier: PhaseBarrier,
    pub(super) steps: Option<Steps>,
    pub(super) damage: Option<PacketDamage>,
    pub(super) parts: Option<Parts>,
    wakes: Vec<WakeUp>,
    pub(super) foreseen: Foreseen,
    pub(super) check: Check,
    pub(super) tally: Tally,
}

/// The shifts of readout units with these numbers, plain ones where they have none that fit.
fn schedule_of(numbers: Vec<u16>, destinations: u32) -> ShiftSchedule {
    let receivers = u16::try_from(destinations).unwrap_or(u16::MAX);
    let units = numbers.len() as u16;
    let schedule = ShiftSchedule::new_checked(numbers, receivers, "builder.order");
    schedule.unwrap_or_else(|_| ShiftSchedule::in_order(units, receivers))
}

impl<'t> NetworkWorld<'t> {
    pub(super) fn new(
        plan: &'t BuilderNetwork,
        topology: &'t Topology,
        load: &'t Load,
        switching: &Switching,
        rails: u32,
    ) -> Self {
        let config = plan.builder_config(topology);
        let shift = plan.schedule(topology, load.routes);
        // When something is sent is the hosts' business.
        let routed = Load {
            routes: shift.policy,
            arrival: Arrival::Saturated,
            ..load.clone()
        };
        let (is_shared, control_bits_per_s, control_latency) = plan.control.parts();
        let engines = rails + u32::from(is_shared);
        let (units, others) = (plan.readouts(topology), plan.builders(topology));
        let [readout_port, builder_port] = plan.ports(topology, load.seed);
        let numbers = readout_port
            .iter()
            .map(|port| shift.index[usize::from(*port)] as u16);
        let schedule = schedule_of(numbers.collect(), topology.destinations());
        Self {
            engines: (0..engines as u8)
                .map(|number| Engine::new(topology, &routed, switching, number))
                .collect(),
            may_deadlock: topology.may_deadlock(),
            moving: vec![Moving::default(); engines as usize],
            deadlocked: None,
            rails: rails as usize,
            control_bits_per_s,
            control_latency,
            is_shared,
            readouts: readout_hosts(&config),
            adapters: adapters(plan, &config, schedule, rails as usize),
            builders: builder_hosts(plan, &config, rails as usize),
            manager: ManagerHost::new(&config, plan.sick.manager.units > 0),
            readout_at: units_at(&readout_port, topology.sources()),
            builder_at: units_at(&builder_port, topology.destinations()),
            readout_port,
            builder_port,
            cargo: Vec::new(),
            blocks: Vec::new(),
            cargo_free: Vec::new(),
            texts: Texts::default(),
            sizes: Sizes::new(&load.sizes, load.seed, load.sizes_per_event),
            arrivals: ArrivalTimes::new(&load.arrival, 1, RandomStreams::new(load.seed)),
            arrived: 0,
            ticket: EventTicket::with_capacity(0),
            copies: Vec::with_capacity(units as usize),
            // Simulated readout units are never silent.
            barrier: PhaseBarrier::new(units as usize, DurationNs(u64::MAX)),
            steps: plan
                .two_step
                .as_ref()
                .map(|steps| Steps::new(steps, config.first_step, units as u16, load.seed)),
            damage: PacketDamage::new(plan.packet_damage, load.seed),
            parts: Parts::new(plan.mtu),
            wakes: vec![WakeUp::new(); 1 + (units + others) as usize],
            foreseen: Foreseen::default(),
            check: Check::default(),
            tally: Tally::new(load),
            byte_time: ByteTime::new(load.link_bits_per_s),
            plan,
            topology,
            load,
        }
    }

    /// Schedules the first events.
    pub(super) fn start(&mut self, s: &mut Scheduler<EventWord>) {
        let interval = self.plan.hosts.interval;
        for unit in 0..self.builders.len() as u16 {
            self.pump_builder(unit, true, s);
            // They look at different moments, as clocks of hosts do.
            let share = u64::from(unit) * interval.0 / self.builders.len() as u64;
            self.start_ticking(unit, DurationPs(share), s);
        }
        self.schedule_trigger(s);
        self.pump_manager(s);
        for unit in 0..self.readouts.len() as u16 {
            self.feed_adapters(unit, s);
        }
        self.plan_deaths(s);
        s.after(self.tally.batch, HOST, NetworkEvent::Look.into());
    }

    /// A builder unit looks for work after so long, and then at equal intervals.
    pub(super) fn start_ticking(
        &mut self,
        unit: u16,
        after: DurationPs,
        s: &mut Scheduler<EventWord>,
    ) {
        if self.plan.hosts.interval > DurationPs::ZERO {
            self.builders[usize::from(unit)].is_ticking = true;
            s.after(after, HOST, NetworkEvent::Tick(unit).into());
        }
    }

    fn schedule_trigger(&mut self, s: &mut Scheduler<EventWord>) {
        if let Some(at) = self.arrivals.time(0, self.arrived, 0) {
            self.arrived += 1;
            s.at(at, HOST, NetworkEvent::Trigger.into());
        }
    }

    /// Hands a trigger to the event manager; false if it has no room.
    fn give_trigger(&mut self, at: SimPs) -> bool {
        let now = at.to_run_ns();
        let accepts = self.manager.accepts.as_ref();
        if self.manager.is_dead || accepts.is_some_and(|accepts| !accepts.has_room()) {
            return false;
        }
        let number = self.manager.given + 1;
        let accept = Envelope {
            sender: UnitId::SUPERVISOR,
            epoch: FIRST_EPOCH,
            sequence: self.manager.given as u32,
            message: BuilderMessage::L2Accept {
                trigger: TriggerNumber(number),
                mask: L2Mask(1),
                triggered_at: now,
            },
        };
        let is_given = self.manager.unit.handle_message(now, &accept) == Handled::Taken;
        if is_given && self.manager.given == self.tally.built {
            self.check.open_first(at);
        }
        self.manager.given += u64::from(is_given);
        if let Some(accepts) = self.manager.accepts.as_mut().filter(|_| is_given) {
            let is_kept = accepts.add(AcceptedTrigger {
                trigger: TriggerNumber(number),
                mask: L2Mask(1),
                triggered_at: now,
            });
            debug_assert!(is_kept, "there was room");
        }
        is_given
    }

    pub(super) fn pump_manager(&mut self, s: &mut Scheduler<EventWord>) {
        let now = s.now().to_run_ns();
        if self.manager.is_dead {
            return;
        }
        loop {
            let mut is_new = false;
            if self.load.arrival == Arrival::Saturated {
                while self.give_trigger(s.now()) {
                    is_new = true;
                }
            }
            while let Some(sent) = self.manager.unit.poll_output(now) {
                self.tally.messages += 1;
                let ready = self
                    .manager
                    .processor
                    .spend(s.now(), self.plan.hosts.message);
                let (text, bytes) = self.texts.keep(s.now(), sent.envelope, 1);
                let link = &mut self.manager.link;
                let time = DurationPs::for_bits(u64::from(bytes) * 8, self.control_bits_per_s);
                let at = link.spend(ready, time) + self.control_latency;
                let to = sent.to.to_code();
                s.at(at, HOST, NetworkEvent::Letter { to, text }.into());
            }
            if !is_new {
                break;
            }
        }
        while let Some(builder) = self.manager.unit.poll_silent() {
            self.lose_builder(builder, s);
        }
        if let Some(accepts) = &mut self.manager.accepts {
            while let Some(trigger) = self.manager.unit.poll_closed() {
                accepts.close(trigger);
            }
        }
        self.arm(0, self.manager.unit.poll_timeout(), s);
    }

    /// Lets a builder unit's events go to its filter, and its messages out.
    pub(super) fn pump_builder(&mut self, unit: u16, is_time: bool, s: &mut Scheduler<EventWord>) {
        let now = s.now();
        let readouts = self.readouts.len() as u16;
        let host = &mut self.builders[usize::from(unit)];
        let ticket = &mut self.ticket;
        while let Some(_filter) = host.unit.poll_ticket(ticket) {
            let bytes = host.unit.event_bytes(ticket.trigger);
            let checked = self.check.ticket(now, ticket, bytes, readouts, &self.sizes);
            let (words, is_complete) = checked;
            let from = now.max(host.processor.free_at());
            let done = host.filter.spend(from, host.event_time);
            host.finishing.push_back(Finishing {
                trigger: ticket.trigger,
                triggered_at: ticket.triggered_at,
                words,
                skew: host.unit.event_skew(ticket.trigger),
                done,
                is_complete,
                is_first_step: ticket.is_first_step(),
            });
            s.at(done, HOST, NetworkEvent::Done(unit).into());
        }
        let held = host.unit.events_held();
        if held > host.held_max {
            host.held_max = held;
            let most = self.plan.credits as usize;
            if held > most {
                let check = &mut self.check;
                check.report(now, || {
                    format!("bu{unit} holds {held} events with {most} credits")
                });
            }
        }
        if self.plan.credit_bytes > 0 {
            let held = host.unit.payload_held();
            self.check.payload(now, unit, held, self.plan.credit_bytes);
        }
        if is_time || self.plan.hosts.interval == DurationPs::ZERO {
            let mut copies = std::mem::take(&mut self.copies);
            while let Some(sent) = self.builders[usize::from(unit)]
                .unit
                .poll_copies(now.to_run_ns(), &mut copies)
            {
                self.send_from_builder(unit, sent, &copies, s);
            }
            self.copies = copies;
        }
        let timeout = self.builders[usize::from(unit)].unit.poll_timeout();
        self.arm(1 + usize::from(unit), timeout, s);
    }

    /// The next control message of a builder unit goes into the other direction of the network.
    pub(super) fn send_letters(&mut self, unit: u16, s: &mut Scheduler<EventWord>) {
        let host = &mut self.builders[usize::from(unit)];
        let Some((to, letter)) = host.outbox.pop_front() else {
            host.is_idle = true;
            return;
        };
        host.is_idle = false;
        let Letter {
            ready,
            text,
            sequence,
        } = letter;
        let bytes = self.texts.bytes(text);
        let tag = self.stow(Cargo::Letter { text, sequence });
        let parcel = Parcel { to, bytes, tag };
        let source = self.builder_port[usize::from(unit)];
        self.send(self.rails, (ready.max(s.now()), source.into()), parcel, s);
    }

    /// The number of the next cargo.
    fn next_cargo(&mut self) -> u32 {
        self.cargo_free.pop().unwrap_or_else(|| {
            self.cargo.push(None);
            self.blocks.push(Block::EMPTY);
            self.cargo.len() as u32 - 1
        })
    }

    fn stow(&mut self, cargo: Cargo) -> u32 {
        let tag = self.next_cargo();
        self.cargo[tag as usize] = Some(cargo);
        tag
    }

    pub(super) fn unload(&mut self, tag: u32) -> Cargo {
        self.cargo_free.push(tag);
        let cargo = self.cargo[tag as usize].take();
        cargo.expect("stowed until it is delivered or lost")
    }

    /// A readout unit takes the messages that its processor is through with, and hands what it
    /// wants to send to its shapers.
    pub(super) fn work(&mut self, unit: u16, s: &mut Scheduler<EventWord>) {
        let (now, given) = (s.now(), self.manager.given);
        let time = now.to_run_ns();
        let host = &mut self.readouts[usize::from(unit)];
        let adapters = &mut self.adapters[usize::from(unit) * self.rails..][..self.rails];
        let mut outlet = Outlet {
            unit,
            adapters,
            kept: &mut host.kept,
            ports: &self.builder_port,
            sizes: &self.sizes,
            sent: &mut self.tally.sent,
        };
        outlet.retry();
        let mut is_fed = false;
        while let Some(letter) = host.inbox.front().copied()
            && letter.ready <= now
        {
            host.inbox.pop_front();
            if !is_fed {
                let new = host.fed + 1..given + 1;
                let left = host.unit.handle_fragments(time, new, SourceId(unit.into()));
                // What finds no room waits in its link.
                host.fed = left.start - 1;
                is_fed = true;
            }
            let envelope = self.texts.read(letter.text, letter.sequence);
            // Refused are messages from an earlier life of a builder unit; the unit counts them.
            let _refused = match outlet.has_room() {
                true => {
                    let send = |output| outlet.send(output);
                    host.unit.handle_message_at_once(time, envelope, send)
                }
                false => host.unit.handle_message(time, envelope),
            };
            self.texts.done(letter.text);
        }
        if host.inbox.is_empty() {
            // It begins again at the beginning of its memory, so that little of it is touched.
            host.inbox.clear();
        }
        while outlet.has_room()
            && let Some(output) = host.unit.poll_output()
        {
            outlet.send(output);
        }
    }

    /// Gives idle links of a readout unit something to send.
    pub(super) fn feed_adapters(&mut self, unit: u16, s: &mut Scheduler<EventWord>) {
        if self.is_readout_dead(unit) {
            return;
        }
        self.work(unit, s);
        for rail in 0..self.rails {
            if self.adapters[usize::from(unit) * self.rails + rail].is_idle {
                self.feed_adapter(unit, rail, s);
            }
        }
        self.arm_readout(unit, s);
    }

    /// Has a readout unit woken when it or its linear shift has something to do though nothing comes.
    pub(super) fn arm_readout(&mut self, unit: u16, s: &mut Scheduler<EventWord>) {
        let mut timeout = self.readouts[usize::from(unit)].unit.poll_timeout();
        if let Shaping::LinearShift { .. } = self.plan.shaping {
            let adapters = &self.adapters[usize::from(unit) * self.rails..][..self.rails];
            let of_adapters = adapters.iter().map(Adapter::poll_timeout).min();
            timeout = timeout.min(of_adapters.unwrap_or(RunNs::MAX));
        }
        self.arm(1 + self.builders.len() + usize::from(unit), timeout, s);
    }

    pub(super) fn feed_adapter(&mut self, unit: u16, rail: usize, s: &mut Scheduler<EventWord>) {
        let now = s.now();
        let hosts = &self.plan.hosts;
        let tag = self.next_cargo();
        loop {
            let at = usize::from(unit) * self.rails + rail;
            let wanted = self.next_wanted(at, tag, now.to_run_ns());
            let adapter = &mut self.adapters[at];
            match wanted {
                Wanted::Packet { port, bytes, cargo } => {
                    adapter.is_idle = false;
                    let (start, cost) = match self.plan.shaper {
                        ShaperPlace::Adapter => (now, hosts.packet),
                        ShaperPlace::Host => {
                            let host = &mut self.readouts[usize::from(unit)];
                            (host.processor.spend(now, hosts.packet), DurationPs::ZERO)
                        }
                    };
                    let at = injection(adapter, start, cost, bytes, hosts.bus_bytes_per_s);
                    self.tally.send(now);
                    self.cargo[tag as usize] = Some(cargo);
                    let to = port.into();
                    let parcel = Parcel { to, bytes, tag };
                    let source = self.readout_port[usize::from(unit)];
                    self.send(rail, (at, source.into()), parcel, s);
                    return;
                }
                Wanted::Through { phase, demand } => {
                    let event = NetworkEvent::Through {
                        readout: unit,
                        phase: phase as u32,
                        demand,
                    };
                    s.after(self.control_latency, HOST, event.into());
                }
                Wanted::Nothing => {
                    adapter.is_idle = true;
                    self.cargo_free.push(tag);
                    return;
                }
            }
        }
    }

    /// A control message comes to a unit.
    pub(super) fn receive(
        &mut self,
        to: UnitId,
        text: u32,
        sequence: u32,
        s: &mut Scheduler<EventWord>,
    ) {
        let (now, cost) = (s.now(), self.plan.hosts.message);
        let index = usize::from(to.index);
        match to.kind {
            _ if !self.hears(to, text) => {}
            UnitKind::Readout => {
                let host = &mut self.readouts[index];
                let ready = host.processor.spend(now, cost);
                host.inbox.push_back(Letter {
                    ready,
                    text,
                    sequence,
                });
                // These send whether or not there is something to send, and look then.
                if let Shaping::BarrelShifter { .. } = self.plan.shaping {
                    return;
                }
                if ready > now {
                    s.at(ready, HOST, NetworkEvent::Work(to.index).into());
                } else {
                    self.feed_adapters(to.index, s);
                }
                return;
            }
            UnitKind::Builder => {
                let host = &mut self.builders[index];
                host.processor.spend(now, cost);
                let envelope = self.texts.read(text, sequence);
                let _refused = host.unit.handle_message(now.to_run_ns(), envelope);
                self.pump_builder(to.index, false, s);
            }
            UnitKind::EventManager => {
                self.manager.processor.spend(now, cost);
                let envelope = self.texts.read(text, sequence);
                let _refused = self.manager.unit.handle_message(now.to_run_ns(), envelope);
                self.pump_manager(s);
            }
            _ => {}
        }
        self.texts.done(text);
    }

    /// A filter is through with an event.
    fn finish(&mut self, unit: u16, s: &mut Scheduler<EventWord>) {
        let now = s.now();
        let host = &mut self.builders[usize::from(unit)];
        // An event that was in the filter when its builder unit died is nobody's.
        let is_due = |event: &mut Finishing| event.done == now;
        let Some(event) = host.finishing.pop_front_if(is_due) else {
            return;
        };
        let triggers = [event.trigger].into_iter().collect();
        let fetches = event.is_first_step && self.fetches(event.trigger.0);
        let host = &mut self.builders[usize::from(unit)];
        let done = Envelope {
            sender: UnitId::filter(0),
            epoch: FIRST_EPOCH,
            sequence: host.done_sequence,
            message: match fetches {
                true => BuilderMessage::FetchRest { triggers },
                false => BuilderMessage::EventDone { triggers },
            },
        };
        host.done_sequence = host.done_sequence.wrapping_add(1);
        let _refused = host.unit.handle_message(now.to_run_ns(), &done);
        if !fetches {
            self.end_event(now, unit, &event);
        }
        self.pump_builder(unit, false, s);
    }

    /// An event is through: built, or released after its first step.
    fn end_event(&mut self, now: SimPs, unit: u16, event: &Finishing) {
        let trigger = event.trigger.0;
        self.check.build(now, trigger);
        let latency_ns = now.to_run_ns().0 - event.triggered_at.0;
        self.tally.built += 1;
        self.tally.incomplete += u64::from(!event.is_complete);
        let host = &mut self.builders[usize::from(unit)];
        let is_counted = (self.tally).count(now, event.words, latency_ns, event.skew);
        host.counted += u64::from(is_counted);
        if let Some(steps) = &mut self.steps {
            if event.is_first_step {
                steps.release();
                if self.plan.sick.builders.units > 0 {
                    host.released.push(event.trigger);
                }
            }
            if is_counted {
                let is_full = !event.is_first_step;
                steps.count(trigger, event.words, is_full, &self.sizes);
            }
        }
    }

    fn fetches(&self, trigger: u64) -> bool {
        let steps = self.steps.as_ref();
        steps.is_some_and(|steps| steps.fetches(trigger))
    }

    fn arm(&mut self, index: usize, timeout: RunNs, s: &mut Scheduler<EventWord>) {
        let deadline = (timeout != RunNs::MAX).then(|| SimPs::from_run_ns(timeout));
        if let Some(at) = self.wakes[index].arm(deadline) {
            s.at(
                at.max(s.now()),
                HOST,
                NetworkEvent::Wake(index as u16).into(),
            );
        }
    }

    fn wake(&mut self, index: usize, s: &mut Scheduler<EventWord>) {
        let now = s.now();
        let is_due = self.wakes[index].fire(now);
        let builders = self.builders.len();
        if index == 0 {
            if is_due && !self.manager.is_dead {
                self.manager.unit.handle_timeout(now.to_run_ns());
            }
            self.pump_manager(s);
        } else if index <= builders {
            let host = &mut self.builders[index - 1];
            if host.is_dead {
                return;
            }
            if is_due {
                host.unit.handle_timeout(now.to_run_ns());
            }
            self.pump_builder(index as u16 - 1, is_due, s);
        } else {
            let unit = index - 1 - builders;
            if is_due && !self.is_readout_dead(unit as u16) {
                self.readouts[unit].unit.handle_timeout(now.to_run_ns());
            }
            self.feed_adapters(unit as u16, s);
        }
    }

    /// A readout unit is through with a phase; when all are and one waits, the next begins for all.
    fn through(
        &mut self,
        readout: u16,
        phase: u32,
        demand: PhaseDemand,
        s: &mut Scheduler<EventWord>,
    ) {
        if self.manager.is_dead {
            return;
        }
        let now = s.now().to_run_ns();
        self.barrier
            .handle_through(now, readout.into(), phase.into(), demand);
        self.start_phases(s);
    }

    /// The barrier, which is the event manager's, tells readout units of a phase.
    pub(super) fn start_phases(&mut self, s: &mut Scheduler<EventWord>) {
        if self.manager.is_dead {
            return;
        }
        while let Some((readout, phase)) = self.barrier.poll_output() {
            let (readout, phase) = (readout as u16, phase as u32);
            let event = NetworkEvent::Phase { readout, phase };
            s.after(self.control_latency, HOST, event.into());
        }
    }

    /// A batch is over: what costs time to check is checked now.
    fn look(&mut self, s: &mut Scheduler<EventWord>) {
        let now = s.now();
        if !self.manager.is_dead && !self.manager.unit.credits_conserved() {
            self.check
                .report(now, || "credits are not conserved".to_owned());
        }
        let open = self.manager.given - self.tally.built;
        let builders = self.builders.len() as u32;
        let patience = self.plan.patience(self.readouts.len() as u64, builders);
        self.check.progress(now, patience, open);
        s.after(self.tally.batch, HOST, NetworkEvent::Look.into());
    }
}

impl World for NetworkWorld<'_> {
    type Event = EventWord;

    fn label(&self, event: &EventWord) -> EventLabel {
        // Networks have kinds of their own from 16 on, sixteen each.
        let of_network = |number: u8, label: EventLabel| EventLabel {
            kind: label.kind + 16 * (u16::from(number) + 1),
            ..label
        };
        let (kind, node, key) = match event.event() {
            NetworkEvent::Wormhole(number, step) => {
                let Engine::Wormhole(engine) = &self.engines[usize::from(number)] else {
                    unreachable!("a step comes back to the engine that made it");
                };
                return of_network(number, engine.label_of(&step));
            }
            NetworkEvent::Buffered(number, step) => {
                let Engine::Buffered(engine) = &self.engines[usize::from(number)] else {
                    unreachable!("a step comes back to the engine that made it");
                };
                return of_network(number, engine.label_of(&step));
            }
            NetworkEvent::Trigger => (0, 0, self.manager.given),
            NetworkEvent::Letter { to, text } => (1, to, self.texts.sequence(text).into()),
            NetworkEvent::LetterOf(unit) => {
                let first = self.builders[usize::from(unit)].letters.first();
                let (to, sequence) = first.map_or((0, 0), |(_, to, _, n)| (to.to_code(), n));
                (1, to, sequence.into())
            }
            NetworkEvent::Work(unit) => (2, unit, 0),
            NetworkEvent::Tick(unit) => (3, unit, 0),
            NetworkEvent::Done(unit) => (4, unit, 0),
            NetworkEvent::Wake(index) => (5, index, 0),
            NetworkEvent::Through { readout, phase, .. } => (6, readout, phase.into()),
            NetworkEvent::Phase { readout, phase } => (7, readout, phase.into()),
            NetworkEvent::Die(code) => (8, code, 0),
            NetworkEvent::Settle(unit) => (9, unit, 0),
            NetworkEvent::Look => (10, 0, self.tally.built),
            NetworkEvent::Gone(unit) => (11, unit, 0),
            NetworkEvent::Back(code) => (12, code, 0),
        };
        EventLabel {
            node: NodeId(node.into()),
            kind,
            key,
        }
    }

    fn handle(&mut self, now: SimPs, event: EventWord, s: &mut Scheduler<EventWord>) {
        match event.event() {
            NetworkEvent::Wormhole(number, step) => {
                self.take_wormhole_step(number.into(), step, s);
            }
            NetworkEvent::Buffered(number, step) => {
                self.take_buffered_step(number.into(), step, s);
            }
            NetworkEvent::Trigger => {
                let is_given = self.give_trigger(now);
                self.tally.offer(now, !is_given);
                if is_given {
                    self.pump_manager(s);
                }
                self.schedule_trigger(s);
            }
            NetworkEvent::Letter { to, text } => match UnitId::from_code(to) {
                Some(to) => self.receive(to, text, self.texts.sequence(text), s),
                None => self.texts.done(text),
            },
            NetworkEvent::LetterOf(unit) => self.take_letter(unit, s),
            NetworkEvent::Work(unit) => self.feed_adapters(unit, s),
            NetworkEvent::Tick(unit) => {
                let host = &mut self.builders[usize::from(unit)];
                if host.is_dead {
                    host.is_ticking = false;
                } else {
                    self.pump_builder(unit, true, s);
                    self.start_ticking(unit, self.plan.hosts.interval, s);
                }
            }
            NetworkEvent::Done(unit) => self.finish(unit, s),
            NetworkEvent::Wake(index) => self.wake(index.into(), s),
            NetworkEvent::Through {
                readout,
                phase,
                demand,
            } => self.through(readout, phase, demand, s),
            NetworkEvent::Phase { readout, phase } => {
                let first = usize::from(readout) * self.rails;
                for adapter in &mut self.adapters[first..first + self.rails] {
                    adapter.handle_phase(phase.into());
                }
                self.feed_adapters(readout, s);
            }
            NetworkEvent::Die(code) => self.die(code, s),
            NetworkEvent::Settle(builder) => self.settle_builder(builder, s),
            NetworkEvent::Gone(readout) => self.tell_readout_gone(readout, s),
            NetworkEvent::Back(code) => self.bring_back(code, s),
            NetworkEvent::Look => self.look(s),
        }
    }
}
