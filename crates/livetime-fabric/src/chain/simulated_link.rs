//! One link in simulated time: S-LINK source, line, and receiver card.
//!
//! The cores at both ends are the real ones; simulated is the line between them, which carries
//! bursts of words at its rate, delivers them after its latency and in order, and brings XON and
//! XOFF back. Words that find no page wait at the receiver, so nothing is lost on a line but by its
//! going down, which both cores are told at the same place in the stream of words. Who gives it
//! fragments is in `front_end.rs`.

use std::collections::VecDeque;

use livetime_readout::{
    Begun, Completed, FlowControl, HeapPages, LineSlice, LinkConfig, LinkState, PageLink, Receiver,
    SlinkSource, SourceLinkConfig,
};
use livetime_wire::slink::ControlWord;

use super::chain_event::ChainEvent;
use super::chain_timing::LineTiming;
use crate::address::LinkId;
use crate::fault::FaultShim;
use crate::scheduler::Scheduler;
use crate::time::SimPs;

/// The words of a fragment for as long as the line needs them.
#[derive(Debug, Clone, Default)]
struct Slot {
    words: Vec<u32>,
    /// The source while it sends, and each burst on the line.
    users: u32,
}

/// What the line carries as one step.
#[derive(Debug, Clone, Copy)]
enum Burst {
    /// Words `from` to just before `to` of the fragment in a slot, its begin word being word 0.
    Words { slot: u32, from: usize, to: usize },
    /// The place in the stream at which the link went down or came up.
    State(LinkState),
}

/// How a link is made.
#[derive(Debug, Clone)]
pub(crate) struct LinkSetup {
    /// Number of the link among all of the chain.
    pub(crate) index: u32,
    pub(crate) config: LinkConfig,
    /// Number of its first page in its pool.
    pub(crate) first_page: u32,
    /// Which pool its pages are in.
    pub(crate) pool: usize,
    pub(crate) line: LineTiming,
    /// Its number in the fault plan, if its blocks may be lost; they are carried whole then.
    pub(crate) shim_link: Option<LinkId>,
    /// The host at its receiving end.
    pub(crate) host: u32,
}

/// Both ends of a link and the line between them.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedLink {
    pub(crate) source: SlinkSource,
    pub(crate) receiver: Receiver,
    pub(crate) pool: usize,
    pub(crate) host: u32,
    index: u32,
    line: LineTiming,
    shim_link: Option<LinkId>,
    begin: ControlWord,
    end: ControlWord,
    slots: Vec<Slot>,
    slots_free: Vec<u32>,
    /// Slot and next word of the fragment being sent.
    sending: Option<(u32, usize)>,
    is_line_busy: bool,
    bursts: Vec<Burst>,
    bursts_free: Vec<u32>,
    /// Arrival of the last burst; the next cannot come before.
    last_arrival: SimPs,
    /// Bursts that have come and are not taken by the receiver yet.
    arrived: VecDeque<u32>,
    /// Bursts between the two ends.
    on_line: u32,
    /// What the source was told last; nothing after the link came up.
    flow_told: Option<FlowControl>,
}

impl SimulatedLink {
    /// An idle link that is up.
    pub(crate) fn new(setup: LinkSetup) -> Self {
        let (begin, end) = (setup.config.begin, setup.config.end);
        let source = SourceLinkConfig {
            begin,
            end,
            ..SourceLinkConfig::default()
        };
        Self {
            source: SlinkSource::new(source),
            receiver: Receiver::new(setup.config, setup.first_page),
            pool: setup.pool,
            host: setup.host,
            index: setup.index,
            line: setup.line,
            shim_link: setup.shim_link,
            begin,
            end,
            slots: Vec::new(),
            slots_free: Vec::new(),
            sending: None,
            is_line_busy: false,
            bursts: Vec::new(),
            bursts_free: Vec::new(),
            last_arrival: SimPs::ZERO,
            arrived: VecDeque::new(),
            on_line: 0,
            flow_told: Some(FlowControl::Xon),
        }
    }

    /// A slot for a fragment that is to be sent.
    pub(crate) fn take_slot(&mut self) -> u32 {
        let slot = self.slots_free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].users = 1;
        slot
    }

    /// The words of a slot, to be written before [`SimulatedLink::begin`].
    pub(crate) fn words_mut(&mut self, slot: u32) -> &mut Vec<u32> {
        &mut self.slots[slot as usize].words
    }

    /// Gives back a slot that is not sent after all, or a burst's share of it.
    pub(crate) fn release(&mut self, slot: u32) {
        let users = &mut self.slots[slot as usize].users;
        *users -= 1;
        if *users == 0 {
            self.slots_free.push(slot);
        }
    }

    /// Whether the source can begin a fragment.
    pub(crate) fn is_idle(&self) -> bool {
        self.source.is_idle()
    }

    /// Whether nothing is on its way, up to the host at the receiving end.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_idle() && self.on_line == 0 && self.arrived.is_empty() && self.completed() == 0
    }

    /// Begins to send the fragment in a slot; a link that is down loses and counts it.
    ///
    /// # Panics
    /// If the fragment before is still being sent.
    pub(crate) fn begin(&mut self, slot: u32) {
        match self.source.begin(self.slots[slot as usize].words.len()) {
            Begun::Sending => self.sending = Some((slot, 0)),
            Begun::Lost(_) => self.release(slot),
            Begun::Busy => panic!("a fragment begun on a link that is not idle"),
        }
    }

    /// Puts the next burst on the line if it is free and the source may send.
    pub(crate) fn pump(&mut self, scheduler: &mut Scheduler<ChainEvent>, shim: &mut FaultShim) {
        if self.is_line_busy {
            return;
        }
        let Some((slot, from)) = self.sending else {
            return;
        };
        let burst_words = match self.shim_link {
            Some(_) => usize::MAX,
            None => self.line.burst_words as usize,
        };
        let words = &self.slots[slot as usize].words;
        let mut to = from;
        while let Some(slice) = self.source.poll_line(words, burst_words - (to - from)) {
            to += slice.words();
            self.source.handle_sent(slice.words());
            if to - from == burst_words {
                break;
            }
        }
        if to == from {
            return;
        }
        let left = scheduler.now() + self.line.occupied((to - from) as u64);
        let arrival = left + self.line.latency;
        self.is_line_busy = true;
        let link = self.index;
        let free = ChainEvent::LineFree { link };
        scheduler.at(left, free.class(), free);
        let burst = Burst::Words { slot, from, to };
        match self.shim_link {
            None => self.deliver(burst, arrival.max(self.last_arrival), scheduler),
            Some(shim_link) => {
                let transit = shim.transmit(shim_link, scheduler.now(), arrival);
                for arrival in transit.arrivals() {
                    self.deliver(burst, arrival, scheduler);
                }
            }
        }
        if self.source.is_idle() {
            self.sending = None;
            self.release(slot);
        } else {
            self.sending = Some((slot, to));
        }
    }

    fn deliver(&mut self, burst: Burst, at: SimPs, scheduler: &mut Scheduler<ChainEvent>) {
        if let Burst::Words { slot, .. } = burst {
            self.slots[slot as usize].users += 1;
        }
        let number = self.bursts_free.pop().unwrap_or_else(|| {
            self.bursts.push(burst);
            self.bursts.len() as u32 - 1
        });
        self.bursts[number as usize] = burst;
        self.on_line += 1;
        self.last_arrival = self.last_arrival.max(at);
        let event = ChainEvent::Burst {
            link: self.index,
            burst: number,
        };
        scheduler.at(at, event.class(), event);
    }

    /// The line is free; the caller gives the next fragment or pumps.
    pub(crate) fn handle_line_free(&mut self) {
        self.is_line_busy = false;
    }

    /// A burst has come.
    pub(crate) fn handle_burst(
        &mut self,
        burst: u32,
        pages: &mut HeapPages,
        scheduler: &mut Scheduler<ChainEvent>,
    ) {
        self.on_line -= 1;
        self.arrived.push_back(burst);
        self.take_arrived(pages, scheduler);
    }

    /// Lets the receiver take what has come, as far as it has pages.
    fn take_arrived(&mut self, pages: &mut HeapPages, scheduler: &mut Scheduler<ChainEvent>) {
        let now = scheduler.now().to_run_ns();
        while let Some(number) = self.arrived.front().copied() {
            match self.bursts[number as usize] {
                Burst::State(state) => self.receiver.handle_link(now, state, pages),
                Burst::Words { slot, from, to } => {
                    let taken = self.take_words(slot, from, to, pages, scheduler);
                    if from + taken < to {
                        let from = from + taken;
                        self.bursts[number as usize] = Burst::Words { slot, from, to };
                        break;
                    }
                    self.release(slot);
                }
            }
            self.arrived.pop_front();
            self.bursts_free.push(number);
        }
        self.tell_flow(scheduler);
    }

    /// Gives words to the receiver; returns how many it took.
    fn take_words(
        &mut self,
        slot: u32,
        from: usize,
        to: usize,
        pages: &mut HeapPages,
        scheduler: &Scheduler<ChainEvent>,
    ) -> usize {
        let now = scheduler.now().to_run_ns();
        let words = &self.slots[slot as usize].words;
        let mut next = from;
        while next < to {
            let slice = match next {
                0 => LineSlice::Control(self.begin.with_errors(false, false)),
                at if at <= words.len() => LineSlice::Data(&words[at - 1..words.len().min(to - 1)]),
                _ => LineSlice::Control(self.end.with_errors(false, false)),
            };
            let taken = self.receiver.handle_line(now, slice, pages);
            next += taken;
            if taken < slice.words() {
                break;
            }
        }
        next - from
    }

    /// Tells the source of XON or XOFF when it has changed.
    fn tell_flow(&mut self, scheduler: &mut Scheduler<ChainEvent>) {
        let flow = self.receiver.poll_flow(scheduler.now().to_run_ns());
        if self.flow_told == Some(flow) || self.source.link_status().link == LinkState::Down {
            return;
        }
        self.flow_told = Some(flow);
        let link = self.index;
        let event = ChainEvent::Flow { link, flow };
        scheduler.after(self.line.latency, event.class(), event);
    }

    /// XON or XOFF has come back to the source.
    pub(crate) fn handle_flow(&mut self, now: SimPs, flow: FlowControl) {
        if self.source.link_status().link == LinkState::Up {
            self.source.handle_flow(now.to_run_ns(), flow);
        }
    }

    /// Whether the source obeys XOFF.
    pub(crate) fn is_xoff(&self) -> bool {
        self.source.link_status().flow == FlowControl::Xoff
    }

    /// Takes the link down or up. The receiver hears of it behind the words that were sent before.
    pub(crate) fn set_state(&mut self, state: LinkState, scheduler: &mut Scheduler<ChainEvent>) {
        if self.source.link_status().link == state {
            return;
        }
        self.source.handle_link(scheduler.now().to_run_ns(), state);
        if self.source.is_idle()
            && let Some((slot, _)) = self.sending.take()
        {
            self.release(slot);
        }
        let arrival = (scheduler.now() + self.line.latency).max(self.last_arrival);
        self.deliver(Burst::State(state), arrival, scheduler);
        if state == LinkState::Up {
            self.flow_told = None;
            self.tell_flow(scheduler);
        }
    }

    /// The oldest filled page.
    pub(crate) fn poll_completed(&mut self) -> Option<Completed> {
        self.receiver.poll()
    }

    /// Filled pages that wait for the host.
    pub(crate) fn completed(&self) -> u32 {
        self.receiver.link_status().acknowledge_filled
    }

    /// What follows from the host having polled: XON, perhaps.
    pub(crate) fn handle_polled(
        &mut self,
        pages: &mut HeapPages,
        scheduler: &mut Scheduler<ChainEvent>,
    ) {
        self.take_arrived(pages, scheduler);
    }

    /// Takes a page back and goes on with words that waited for one; `false` when the page was not
    /// one that the host may return.
    pub(crate) fn recycle(
        &mut self,
        page: u32,
        pages: &mut HeapPages,
        scheduler: &mut Scheduler<ChainEvent>,
    ) -> bool {
        let is_good = self.receiver.recycle(page).is_ok();
        self.take_arrived(pages, scheduler);
        is_good
    }

    /// Gives up the fragment that is being sent, counted as aborted.
    pub(crate) fn abort(&mut self) {
        self.source.abort();
        if let Some((slot, _)) = self.sending.take() {
            self.release(slot);
        }
    }

    /// What a trace says of a burst.
    pub(crate) fn burst_key(&self, burst: u32) -> u64 {
        let key = match self.bursts[burst as usize] {
            Burst::Words { from, to, .. } => (from as u64) << 24 | to as u64,
            Burst::State(state) => u64::from(state == LinkState::Up),
        };
        u64::from(self.index) << 48 | key
    }
}

#[cfg(test)]
mod tests {
    use livetime_readout::PageRead;
    use livetime_wire::LossCause;

    use super::*;
    use crate::NodeId;
    use crate::fault_plan::FaultPlan;
    use crate::kernel::{RunLimits, Simulation, SimulationConfig, World};
    use crate::random::RandomStreams;
    use crate::time::DurationPs;
    use crate::trace::EventLabel;

    /// A link and what came out of it.
    struct Wire {
        link: SimulatedLink,
        pages: HeapPages,
        shim: FaultShim,
        received: Vec<(SimPs, Vec<u32>, bool)>,
        /// Pages are given back at once, or never.
        is_recycling: bool,
        fragments: VecDeque<Vec<u32>>,
    }

    impl Wire {
        fn feed(&mut self, scheduler: &mut Scheduler<ChainEvent>) {
            while self.link.is_idle()
                && let Some(words) = self.fragments.pop_front()
            {
                let slot = self.link.take_slot();
                *self.link.words_mut(slot) = words;
                self.link.begin(slot);
            }
            self.link.pump(scheduler, &mut self.shim);
        }
    }

    impl World for Wire {
        type Event = ChainEvent;

        fn label(&self, event: &ChainEvent) -> EventLabel {
            EventLabel {
                node: NodeId(0),
                kind: event.kind(),
                key: 0,
            }
        }

        fn handle(&mut self, now: SimPs, event: ChainEvent, scheduler: &mut Scheduler<ChainEvent>) {
            match event {
                ChainEvent::Burst { burst, .. } => {
                    self.link.handle_burst(burst, &mut self.pages, scheduler);
                    while self.is_recycling
                        && let Some(completed) = self.link.poll_completed()
                    {
                        let words = self.pages.words(completed.page);
                        let words = words[..completed.len_words as usize].to_vec();
                        self.received.push((now, words, completed.status.is_good()));
                        assert!(
                            self.link
                                .recycle(completed.page, &mut self.pages, scheduler)
                        );
                    }
                }
                ChainEvent::LineFree { .. } => self.link.handle_line_free(),
                ChainEvent::Flow { flow, .. } => self.link.handle_flow(now, flow),
                ChainEvent::LinkState { state, .. } => self.link.set_state(state, scheduler),
                _ => panic!("no event of a link: {event:?}"),
            }
            self.feed(scheduler);
        }
    }

    fn wire(fragments: &[Vec<u32>]) -> Simulation<Wire> {
        let config = LinkConfig {
            page_words: 64,
            pages: 200,
            fragment_words_max: 1024,
            ..LinkConfig::default()
        };
        let setup = LinkSetup {
            index: 0,
            first_page: 0,
            pool: 0,
            line: LineTiming::default(),
            shim_link: None,
            host: 0,
            config,
        };
        let streams = RandomStreams::new(1);
        let world = Wire {
            pages: HeapPages::new(0, 200, 64),
            link: SimulatedLink::new(setup),
            shim: FaultShim::new_checked(&FaultPlan::none(), 1, 1, streams).unwrap(),
            received: Vec::new(),
            is_recycling: true,
            fragments: fragments.iter().cloned().collect(),
        };
        let mut simulation = Simulation::new(world, SimulationConfig::default());
        let (world, scheduler) = simulation.parts_mut();
        world.feed(scheduler);
        simulation
    }

    const ALL: RunLimits = RunLimits::new(SimPs(1_000_000_000_000), 1_000_000);

    #[test]
    fn words_arrive_at_the_rate_of_the_line_and_a_latency_later() {
        let fragments = [vec![7; 30], vec![8; 200]];
        let mut simulation = wire(&fragments);
        simulation.run(ALL);
        let received = &simulation.world().received;
        // 32 words of 25 ns; then 64 at a time, the last page with the end word.
        let ns = |ns| SimPs::ZERO + DurationPs::from_ns(ns);
        assert_eq!(received[0], (ns(32 * 25 + 100), fragments[0].clone(), true));
        assert_eq!(received.last().unwrap().0, ns((32 + 202) * 25 + 100));
        let words: usize = received.iter().map(|(_, words, _)| words.len()).sum();
        assert_eq!(words, 230);
        let world = simulation.world();
        assert!(world.link.is_quiet() && world.link.receiver.page_account().is_balanced());
        assert_eq!(world.link.slots.len(), world.link.slots_free.len());
    }

    #[test]
    fn a_host_that_does_not_poll_stops_the_source_and_nothing_is_lost() {
        let fragments: Vec<Vec<u32>> = (0..40).map(|n| vec![n; 10]).collect();
        let mut simulation = wire(&fragments);
        simulation.world_mut().is_recycling = false;
        simulation.run(ALL);
        let world = simulation.world_mut();
        assert!(world.link.is_xoff() && !world.link.is_quiet());
        assert_eq!(world.link.completed(), 15, "as many as the FIFO is deep");
        world.is_recycling = true;
        let (world, scheduler) = simulation.parts_mut();
        let mut received = 0;
        while let Some(completed) = world.link.poll_completed() {
            world
                .link
                .recycle(completed.page, &mut world.pages, scheduler);
            received += 1;
        }
        simulation.run(ALL);
        let world = simulation.world();
        assert!(world.link.is_quiet() && !world.link.is_xoff());
        assert_eq!(received + world.received.len(), 40);
    }

    #[test]
    fn both_ends_account_for_a_link_that_goes_down_in_the_middle_of_a_burst() {
        for at_ns in [1, 300, 801, 900, 1_000, 3_000] {
            let fragments: Vec<Vec<u32>> = (0..20).map(|n| vec![n; 100]).collect();
            let mut simulation = wire(&fragments);
            for (offset, state) in [(0, LinkState::Down), (5_050, LinkState::Up)] {
                let event = ChainEvent::LinkState { link: 0, state };
                let at = SimPs::ZERO + DurationPs::from_ns(at_ns + offset);
                simulation.schedule(at, event.class(), event);
            }
            simulation.run(ALL);
            let world = simulation.world();
            let counters = world.link.source.counters(livetime_wire::RunNs(0));
            let losses = world.link.source.losses();
            assert_eq!(counters.handed, 20);
            assert_eq!(counters.handed, counters.ended + losses.total());
            assert_eq!(losses.of(LossCause::LinkTruncated), 1, "cut at {at_ns} ns");
            assert_eq!(world.link.receiver.losses().total(), 0);
            let good = world.link.receiver.destination_counters().blocks_good;
            assert_eq!(good, counters.ended);
            assert!(world.link.is_quiet());
        }
    }
}
