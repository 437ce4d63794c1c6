//! The chain as a world of the kernel: which event does what, and when hosts work.
//!
//! A host is idle, called (it will look at what has come at this instant), or working. What comes
//! meanwhile waits in its inboxes. A paused host keeps what it has begun and what comes to it until
//! the pause is over; cards, lines and triggers are hardware and do not pause.

use livetime_readout::LinkState;
use livetime_wire::RunNs;

use super::builder_host::BuilderHost;
use super::chain_config::SimulatedChainConfig;
use super::chain_event::ChainEvent;
use super::chain_layout::ChainLayout;
use super::filter_host::FilterHost;
use super::front_end::FrontEnd;
use super::host::{Hall, Unit};
use super::manager_host::ManagerHost;
use super::readout_host::ReadoutHost;
use super::trigger_host::TriggerHost;
use super::writer_host::WriterHost;
use crate::address::NodeId;
use crate::fault::{Admission, Arrival};
use crate::kernel::World;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};
use crate::trace::EventLabel;
use crate::wake_up::WakeUp;

/// Every unit of the chain, in the order of the layout's nodes.
pub(crate) struct Units {
    pub(crate) front_end: FrontEnd,
    pub(crate) trigger: TriggerHost,
    pub(crate) manager: ManagerHost,
    pub(crate) readouts: Vec<ReadoutHost>,
    pub(crate) builders: Vec<BuilderHost>,
    pub(crate) filters: Vec<FilterHost>,
    pub(crate) writer: WriterHost,
}

impl Units {
    /// The unit of a host.
    fn get(&mut self, host: usize) -> &mut dyn Unit {
        match host {
            0 => return &mut self.front_end,
            1 => return &mut self.trigger,
            2 => return &mut self.manager,
            _ => {}
        }
        let mut index = host - 3;
        if index < self.readouts.len() {
            return &mut self.readouts[index];
        }
        index -= self.readouts.len();
        if index < self.builders.len() {
            return &mut self.builders[index];
        }
        index -= self.builders.len();
        if index < self.filters.len() {
            return &mut self.filters[index];
        }
        &mut self.writer
    }

    fn are_idle(&self) -> bool {
        self.front_end.is_idle()
            && self.trigger.is_idle()
            && self.manager.is_idle()
            && self.readouts.iter().all(Unit::is_idle)
            && self.builders.iter().all(Unit::is_idle)
            && self.filters.iter().all(Unit::is_idle)
            && self.writer.is_idle()
    }
}

/// What a host does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostState {
    /// Nothing, and nothing waits.
    Idle,
    /// A [`ChainEvent::Begin`] is scheduled.
    Called,
    /// It works on what it has taken.
    Working,
}

/// A host.
#[derive(Debug)]
struct Host {
    state: HostState,
    wake_up: WakeUp,
    /// How much slower than others of its kind it is.
    factor: u64,
}

/// The chain.
pub(crate) struct ChainWorld {
    pub(crate) units: Units,
    pub(crate) hall: Hall,
    hosts: Vec<Host>,
    send_time: DurationPs,
    data_links: usize,
}

impl ChainWorld {
    pub(crate) fn new(
        config: &SimulatedChainConfig,
        layout: &ChainLayout,
        hall: Hall,
        units: Units,
    ) -> Self {
        let slow = &config.timing.slow_units;
        let hosts = layout.units().iter().map(|unit| Host {
            state: HostState::Idle,
            wake_up: WakeUp::new(),
            factor: slow.get(unit).copied().unwrap_or(1).into(),
        });
        Self {
            units,
            hall,
            hosts: hosts.collect(),
            send_time: config.timing.service.send,
            data_links: config.data_links.len(),
        }
    }

    /// Schedules what happens from outside, and lets every unit say its first word.
    pub(crate) fn start(
        &mut self,
        config: &SimulatedChainConfig,
        scheduler: &mut Scheduler<ChainEvent>,
    ) {
        for outage in &config.link_outages {
            let link = outage.link as u32;
            for (at, state) in [
                (outage.from, LinkState::Down),
                (outage.until, LinkState::Up),
            ] {
                let event = ChainEvent::LinkState { link, state };
                scheduler.at(SimPs::from_run_ns(at), event.class(), event);
            }
        }
        self.call_all(scheduler);
    }

    /// Calls every host.
    fn call_all(&mut self, scheduler: &mut Scheduler<ChainEvent>) {
        for host in 0..self.hosts.len() {
            self.call(NodeId(host as u32), scheduler);
        }
    }

    /// Whether nothing is held or on its way anywhere.
    pub(crate) fn is_idle(&self) -> bool {
        self.units.are_idle()
            && self.hall.fabric.is_quiet()
            && self.hall.links.iter().all(|link| link.is_quiet())
    }

    /// Ends the run by force: every unit gives up what it can, and what it gave up still travels.
    pub(crate) fn abort(&mut self, scheduler: &mut Scheduler<ChainEvent>) {
        let mut s = self.hall.around(self.send_time, scheduler);
        self.units.front_end.abort(&mut s);
        self.units.manager.core.abort();
        self.units
            .readouts
            .iter_mut()
            .for_each(|unit| unit.parts.core.abort());
        self.units
            .builders
            .iter_mut()
            .for_each(|unit| unit.core.abort());
        self.call_all(scheduler);
    }

    /// Lets the builder units count what is in filter units as lost.
    pub(crate) fn close_builders(&mut self, scheduler: &mut Scheduler<ChainEvent>) {
        self.units
            .builders
            .iter_mut()
            .for_each(|unit| unit.core.close());
        self.call_all(scheduler);
    }

    /// Lets the other units count everything that is left as lost.
    pub(crate) fn close_others(&mut self, scheduler: &mut Scheduler<ChainEvent>) {
        self.units.manager.core.close();
        for unit in &mut self.units.readouts {
            unit.close(&mut self.hall.around(self.send_time, scheduler));
        }
        self.call_all(scheduler);
    }

    /// Lets a host look at what has come, unless it works or will look anyway.
    fn call(&mut self, node: NodeId, scheduler: &mut Scheduler<ChainEvent>) {
        self.call_at(node, scheduler.now(), scheduler);
    }

    fn call_at(&mut self, node: NodeId, at: SimPs, scheduler: &mut Scheduler<ChainEvent>) {
        let host = &mut self.hosts[node.index()];
        if host.state == HostState::Idle {
            host.state = HostState::Called;
            let event = ChainEvent::Begin { host: node.0 };
            scheduler.at(at, event.class(), event);
        }
    }

    /// Calls the hosts for which something has come up.
    fn call_waiting(&mut self, scheduler: &mut Scheduler<ChainEvent>) {
        while let Some(node) = self.hall.called.pop() {
            self.call(node, scheduler);
        }
    }

    /// Whether a host takes what has come; if it is paused, the event is put off.
    fn is_admitted(
        &mut self,
        node: NodeId,
        what: Arrival,
        event: ChainEvent,
        scheduler: &mut Scheduler<ChainEvent>,
    ) -> bool {
        match self.hall.fabric.shim.admit(node, scheduler.now(), what) {
            Admission::Taken => true,
            Admission::PutOff(until) => {
                scheduler.put_off(until, event);
                false
            }
            // Deaths are refused with the configuration.
            Admission::Lost => false,
        }
    }

    fn begin(&mut self, node: NodeId, scheduler: &mut Scheduler<ChainEvent>) {
        let host = &mut self.hosts[node.index()];
        host.state = HostState::Working;
        let time = self.units.get(node.index()).plan(&self.hall) * host.factor;
        if time == DurationPs::ZERO {
            self.work(node, scheduler);
        } else {
            let event = ChainEvent::Done { host: node.0 };
            scheduler.after(time, event.class(), event);
        }
    }

    /// The end of a cycle.
    fn work(&mut self, node: NodeId, scheduler: &mut Scheduler<ChainEvent>) {
        let send_time = self.send_time * self.hosts[node.index()].factor;
        let unit = self.units.get(node.index());
        let mut s = self.hall.around(send_time, scheduler);
        unit.work(&mut s);
        let departs = s.departs;
        let has_work = unit.has_work(&self.hall);
        let deadline = unit.deadline();
        self.hosts[node.index()].state = HostState::Idle;
        if departs > scheduler.now() || has_work {
            self.call_at(node, departs, scheduler);
        }
        self.arm(node, deadline, scheduler);
        if self.units.writer.failure().is_some() {
            // A run that cannot be stored ends in order.
            self.units.front_end.stop(scheduler.now().to_run_ns());
        }
    }

    fn arm(&mut self, node: NodeId, deadline: RunNs, scheduler: &mut Scheduler<ChainEvent>) {
        // A core that leaves a timeout in the past is asked again in a nanosecond, not for ever.
        let soonest = scheduler.now() + DurationPs::from_ns(1);
        let deadline = SimPs::from_run_ns(deadline).max(soonest);
        let wanted = (deadline < SimPs::MAX).then_some(deadline);
        if let Some(at) = self.hosts[node.index()].wake_up.arm(wanted) {
            let event = ChainEvent::Timer { host: node.0 };
            scheduler.at(at, event.class(), event);
        }
    }

    fn handle_timer(&mut self, node: NodeId, scheduler: &mut Scheduler<ChainEvent>) {
        if self.hosts[node.index()].wake_up.fire(scheduler.now()) {
            // A host that works strikes its timeouts at the end of the cycle.
            self.call(node, scheduler);
            return;
        }
        let deadline = self.units.get(node.index()).deadline();
        self.arm(node, deadline, scheduler);
    }

    fn handle_burst(&mut self, link: usize, burst: u32, scheduler: &mut Scheduler<ChainEvent>) {
        let hall = &mut self.hall;
        let pool = hall.links[link].pool;
        hall.links[link].handle_burst(burst, &mut hall.pools[pool], scheduler);
        if hall.links[link].completed() > 0 {
            let host = NodeId(hall.links[link].host);
            self.call(host, scheduler);
        }
    }

    /// A line is free, or its source may send again.
    fn handle_line(&mut self, link: usize, scheduler: &mut Scheduler<ChainEvent>) {
        let mut s = self.hall.around(self.send_time, scheduler);
        if link < self.data_links {
            self.units.front_end.handle_line_free(link, &mut s);
        } else if link == self.data_links {
            self.units.front_end.start_packets(&mut s);
        } else {
            self.units.trigger.start_replies(&mut s);
        }
        self.arm_front_end(scheduler);
    }

    /// A trigger that was taken between two cycles of the front-end's host has a timeout, too.
    fn arm_front_end(&mut self, scheduler: &mut Scheduler<ChainEvent>) {
        let deadline = self.units.front_end.deadline();
        self.arm(NodeId(0), deadline, scheduler);
    }

    fn handle_event(
        &mut self,
        now: SimPs,
        event: ChainEvent,
        scheduler: &mut Scheduler<ChainEvent>,
    ) {
        match event {
            ChainEvent::Burst { link, burst } => {
                let index = link as usize;
                let host = NodeId(self.hall.links[index].host);
                // Packets and replies are messages of the fault plan, fragments are not.
                if index < self.data_links
                    || self.is_admitted(host, Arrival::Message, event, scheduler)
                {
                    self.handle_burst(index, burst, scheduler);
                }
            }
            ChainEvent::LineFree { link } => {
                self.hall.links[link as usize].handle_line_free();
                self.handle_line(link as usize, scheduler);
            }
            ChainEvent::Flow { link, flow } => {
                self.hall.links[link as usize].handle_flow(now, flow);
                self.handle_line(link as usize, scheduler);
                let mut s = self.hall.around(self.send_time, scheduler);
                self.units.front_end.handle_link_changed(&mut s);
                self.arm_front_end(scheduler);
            }
            ChainEvent::LinkState { link, state } => {
                self.hall.links[link as usize].set_state(state, scheduler);
                self.handle_line(link as usize, scheduler);
                let mut s = self.hall.around(self.send_time, scheduler);
                self.units.front_end.handle_link_changed(&mut s);
                self.arm_front_end(scheduler);
            }
            ChainEvent::Letter { letter } => {
                let host = self.hall.fabric.receiver(letter);
                if self.is_admitted(host, Arrival::Message, event, scheduler) {
                    self.hall.fabric.arrive(letter, now);
                    self.call(host, scheduler);
                }
            }
            ChainEvent::Offer => {
                let mut s = self.hall.around(self.send_time, scheduler);
                self.units.front_end.handle_due(&mut s);
                self.arm_front_end(scheduler);
            }
            ChainEvent::Begin { host } => {
                if self.is_admitted(NodeId(host), Arrival::Timer, event, scheduler) {
                    self.begin(NodeId(host), scheduler);
                }
            }
            ChainEvent::Done { host } => {
                if self.is_admitted(NodeId(host), Arrival::Timer, event, scheduler) {
                    self.work(NodeId(host), scheduler);
                }
            }
            ChainEvent::Timer { host } => {
                if self.is_admitted(NodeId(host), Arrival::Timer, event, scheduler) {
                    self.handle_timer(NodeId(host), scheduler);
                }
            }
        }
    }
}

impl World for ChainWorld {
    type Event = ChainEvent;

    fn label(&self, event: &ChainEvent) -> EventLabel {
        let (node, key) = match *event {
            ChainEvent::Burst { link, burst } => {
                let link = &self.hall.links[link as usize];
                (NodeId(link.host), link.burst_key(burst))
            }
            ChainEvent::LineFree { link } => (NodeId(0), link.into()),
            ChainEvent::Flow { link, flow } => (NodeId(0), u64::from(link) << 1 | flow as u64),
            ChainEvent::LinkState { link, state } => {
                (NodeId(0), u64::from(link) << 1 | state as u64)
            }
            ChainEvent::Letter { letter } => (
                self.hall.fabric.receiver(letter),
                self.hall.fabric.letter_key(letter),
            ),
            ChainEvent::Offer => (NodeId(0), 0),
            ChainEvent::Begin { host } | ChainEvent::Done { host } | ChainEvent::Timer { host } => {
                (NodeId(host), 0)
            }
        };
        EventLabel {
            node,
            kind: event.kind(),
            key,
        }
    }

    fn handle(&mut self, now: SimPs, event: ChainEvent, scheduler: &mut Scheduler<ChainEvent>) {
        self.hall.now = now;
        self.handle_event(now, event, scheduler);
        self.call_waiting(scheduler);
        // Timeouts may go on for ever: a builder unit that never got an event asks for one.
        if self.is_idle() {
            scheduler.halt();
        }
    }
}
