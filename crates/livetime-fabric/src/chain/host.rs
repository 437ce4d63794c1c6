//! What a host of the simulated chain has around it, and what its unit must be able to do.
//!
//! A host works in cycles: it looks at what has come ([`Unit::plan`]), is busy for as long as that
//! takes, then its core takes it and says what to send ([`Unit::work`]); each message sent takes
//! its time as well. Cycles are scheduled in `chain_world.rs`.

use hdrhistogram::Histogram;
use livetime_readout::{Completed, HeapPages};
use livetime_wire::{DurationNs, RunNs, UnitId};

use super::chain_event::ChainEvent;
use super::message_fabric::MessageFabric;
use super::simulated_link::SimulatedLink;
use crate::address::NodeId;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};

/// A unit on its host.
pub(crate) trait Unit {
    /// Notes what is to be taken in this cycle and returns how long that takes.
    fn plan(&mut self, hall: &Hall) -> DurationPs;

    /// Takes what was planned, strikes timeouts that are due, sends what there is to send.
    fn work(&mut self, s: &mut Surroundings<'_>);

    /// Whether something waits that can be taken now.
    fn has_work(&self, hall: &Hall) -> bool;

    /// When its next timeout strikes.
    fn deadline(&self) -> RunNs {
        RunNs::MAX
    }

    /// Whether nothing is held.
    fn is_idle(&self) -> bool;
}

/// Latencies in virtual nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Latencies {
    pub(crate) decision: Histogram<u64>,
    pub(crate) build: Histogram<u64>,
}

impl Latencies {
    /// 1 ns to 100 s with three digits, as in the real program.
    pub(crate) fn new() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("the bounds are in order");
        Self {
            decision: histogram(),
            build: histogram(),
        }
    }
}

/// Records a latency, saturating at the histogram's ends.
pub(crate) fn record_latency(histogram: &mut Histogram<u64>, latency: DurationNs) {
    histogram.saturating_record(latency.0.max(1));
}

/// What all hosts share.
#[derive(Debug, Clone)]
pub(crate) struct Hall {
    pub(crate) fabric: MessageFabric,
    /// Data links, then the trigger link, then the return link.
    pub(crate) links: Vec<SimulatedLink>,
    /// One per readout unit, then those of the trigger link and of the return link.
    pub(crate) pools: Vec<HeapPages>,
    pub(crate) latencies: Latencies,
    /// Hosts that have something new to look at.
    pub(crate) called: Vec<NodeId>,
    /// The present.
    pub(crate) now: SimPs,
    /// Bugs of the simulation or the cores: foreign pages, words that are no message.
    pub(crate) mishaps: u64,
}

/// What a unit sees while it works.
pub(crate) struct Surroundings<'a> {
    /// When the next message leaves: now, or when those before it have been sent.
    pub(crate) departs: SimPs,
    /// How long sending a message takes.
    pub(crate) send_time: DurationPs,
    pub(crate) hall: &'a mut Hall,
    pub(crate) scheduler: &'a mut Scheduler<ChainEvent>,
}

impl Hall {
    /// The surroundings of a unit at the present.
    pub(crate) fn around<'a>(
        &'a mut self,
        send_time: DurationPs,
        scheduler: &'a mut Scheduler<ChainEvent>,
    ) -> Surroundings<'a> {
        Surroundings {
            departs: scheduler.now(),
            send_time,
            hall: self,
            scheduler,
        }
    }
}

impl Surroundings<'_> {
    /// The present as cores see it.
    pub(crate) fn now(&self) -> RunNs {
        self.scheduler.now().to_run_ns()
    }

    /// Sends words behind those sent before.
    pub(crate) fn send(&mut self, lane: u32, words: &[u32]) {
        self.departs = self.departs + self.send_time;
        self.hall
            .fabric
            .send(lane, words, self.departs, self.scheduler);
    }

    /// Takes a message away, and calls its sender if that waits for room.
    pub(crate) fn consume(&mut self, lane: u32) {
        let sender = self.hall.fabric.consume(lane);
        self.hall.called.extend(sender);
    }

    /// The next filled page of a link.
    pub(crate) fn poll_completed(&mut self, link: usize) -> Option<Completed> {
        let hall = &mut *self.hall;
        let completed = hall.links[link].poll_completed();
        if completed.is_some() {
            let pool = hall.links[link].pool;
            hall.links[link].handle_polled(&mut hall.pools[pool], self.scheduler);
        }
        completed
    }

    /// Gives a page back to its link.
    pub(crate) fn recycle(&mut self, link: usize, page: u32) {
        let hall = &mut *self.hall;
        let pool = hall.links[link].pool;
        let is_good = hall.links[link].recycle(page, &mut hall.pools[pool], self.scheduler);
        hall.mishaps += u64::from(!is_good);
        if hall.links[link].completed() > 0 {
            hall.called.push(NodeId(hall.links[link].host));
        }
    }

    /// Puts the next burst on a line.
    pub(crate) fn pump(&mut self, link: usize) {
        let hall = &mut *self.hall;
        hall.links[link].pump(self.scheduler, &mut hall.fabric.shim);
    }
}

/// Where messages to a unit go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) to: UnitId,
    pub(crate) lane: u32,
}
