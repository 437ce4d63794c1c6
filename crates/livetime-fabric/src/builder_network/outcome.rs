//! What a run of an event builder on a network gives.

use super::two_step::TwoStepOutcome;
use crate::network::{Estimate, Latencies, LinkReport};
use crate::time::{DurationPs, SimPs};
use crate::trace::TraceHash;

/// What was counted in one batch of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchCounts {
    /// Triggers that came, those refused included; 0 where there is always another one.
    pub offered: u64,
    /// Those among them that found no room.
    pub refused: u64,
    /// Events that went through the filters.
    pub built: u64,
    /// Fragments that came to builder units.
    pub fragments: u64,
    /// Packets that readout units sent.
    pub packets: u64,
    /// Packets lost at full buffers.
    pub packets_lost: u64,
}

/// Numbers of a run.
#[derive(Debug, Clone)]
pub struct BuilderNetworkOutcome {
    /// Readout units.
    pub readout_units: u32,
    /// Builder units.
    pub builder_units: u32,
    /// Networks side by side.
    pub rails: u32,
    /// Events that went through the filters, per second.
    pub event_rate: Estimate,
    /// Payload per builder unit and second, bytes: that of events that went through the filters, or, if
    /// this is more than the links of the builder units carry, what came over them in the same time.
    pub throughput_per_node: f64,
    /// The same as a share of what these links carry, all rails together; 0 to 1.
    pub efficiency_link: f64,
    /// Events that went through the filters while counting.
    pub events_counted: u64,
    /// Events that went through the filters, in all.
    pub events_built: u64,
    /// Events among them that were closed without some of their fragments.
    pub events_incomplete: u64,
    /// Triggers given to the event manager.
    pub triggers: u64,
    /// Triggers that found no room: dead time.
    pub refused: u64,
    /// Triggers that are not yet built at the end.
    pub open: u64,
    /// Fragments that readout units handed to their shapers, repetitions included.
    pub fragments_sent: u64,
    /// Fragments that came to builder units.
    pub fragments_delivered: u64,
    /// Fragments withdrawn because their builder or readout unit was gone, in shapers or at its door.
    pub fragments_withdrawn: u64,
    /// Fragments that went down with packets that were lost or came damaged.
    pub fragments_lost: u64,
    /// Fragments in shapers or on the way at the end.
    pub fragments_in_flight: u64,
    /// Fragments that were asked for again.
    pub fragments_sent_again: u64,
    /// Packets of the data networks.
    pub packets: u64,
    /// Packets lost at full buffers.
    pub packets_lost: u64,
    /// Packets that came damaged and were dropped by the adapter, those of control messages on a
    /// shared network included.
    pub packets_damaged: u64,
    /// Share of the blocks' bytes that carried payload; 0 without a barrel shifter.
    pub block_fill: f64,
    /// Control messages.
    pub messages: u64,
    /// Builder units that died.
    pub builders_dead: u32,
    /// Those of them that were found dead: whose events others build.
    pub builders_found_dead: u32,
    /// Builder units that began again.
    pub builders_back: u32,
    /// Readout units that died.
    pub readouts_dead: u32,
    /// Readout units that began again.
    pub readouts_back: u32,
    /// Event managers that took the place of a dead one.
    pub manager_restarts: u32,
    /// Events of dead builder units that others built.
    pub events_reassigned: u64,
    /// The longest time while counting in which no event went through a filter.
    pub longest_gap: DurationPs,
    /// Jain's index over the events of the builder units.
    pub fairness_builders: f64,
    /// Events of a slow builder unit as a share of those of one that is well; 1 without slow ones.
    pub slow_share: f64,
    /// What moved in two steps; `None` where events are gathered at once.
    pub two_step: Option<TwoStepOutcome>,
    /// The most events that a builder unit held.
    pub held_max: usize,
    /// Time from the trigger to the end of the filter, nanoseconds.
    pub latency_ns: Latencies,
    /// Skew of events: time from the first fragment at the builder unit to the last one, or to the
    /// timeout of an event that is closed without some, nanoseconds in steps of 16.
    pub skew_ns: Latencies,
    /// Event rate of each batch that is over at the end, for plots against time, Hz.
    pub series: Vec<f64>,
    /// What was counted in each batch.
    pub batches: Vec<BatchCounts>,
    /// Length of a batch.
    pub batch: DurationPs,
    /// What links and buffers of each data network did, if
    /// [`Load::counts_links`](crate::network::Load::counts_links) asked for it.
    pub links: Vec<LinkReport>,
    /// What should never happen; empty in a good run.
    pub violations: Vec<String>,
    /// Whether some of them are that an event was larger than `builder.event_bytes`, which
    /// is a mistake of the scenario.
    pub is_event_too_large: bool,
    /// Packets in the network that stand still at [`Self::simulated`], where the run ends if nothing
    /// else moves there: each waits for what another one holds. 0 without a deadlock.
    pub packets_deadlocked: u64,
    /// Whether other packets of that network find a way in a deadlock, which may have begun at any time
    /// then.
    pub do_others_move: bool,
    /// The data network that they are in; `None` without a deadlock, and of that of control messages.
    pub rail_deadlocked: Option<usize>,
    /// Simulated time, warm-up included.
    pub simulated: SimPs,
    /// Events of the kernel.
    pub events: u64,
    /// Hash of what happened.
    pub trace_hash: TraceHash,
}

impl BuilderNetworkOutcome {
    /// Whether every fragment is accounted for, and nothing happened that should not.
    pub fn is_conserved(&self) -> bool {
        self.violations.is_empty()
            && self.has_all_fragments()
            && self.triggers == self.events_built + self.open
    }

    /// Whether every fragment is accounted for.
    pub const fn has_all_fragments(&self) -> bool {
        let accounted = self.fragments_delivered
            + self.fragments_withdrawn
            + self.fragments_lost
            + self.fragments_in_flight;
        self.fragments_sent == accounted
    }

    /// Whether packets of one of the networks stand still for ever.
    pub const fn is_deadlocked(&self) -> bool {
        self.packets_deadlocked > 0
    }
}
