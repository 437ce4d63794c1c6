//! What a plan says of an option: what it reaches, whether it holds, and what limits it.

use super::Sending;
use crate::network::Estimate;
use crate::time::DurationPs;

/// What limits an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// The links of the sources.
    SourceLinks,
    /// The links of the builders.
    BuilderLinks,
    /// Packets that wait for each other inside the network.
    Switch,
    /// Buffers that are too small, so that packets are lost.
    Buffers,
    /// Buffers that have no room for more credits, which the rate would take.
    BuffersForCredits,
    /// Too few events in building for the time that each takes.
    Credits,
    /// Processors of the readout units.
    ReadoutProcessor,
    /// Processors of the builder units.
    BuilderProcessor,
    /// Processor of the event manager.
    ManagerProcessor,
    /// Filters behind the builder units.
    Filter,
    /// Buses between memory and adapter.
    Bus,
    /// Adapters of the readout units, which take time for a packet.
    Adapter,
    /// The control network: its links, or its latency where a barrier waits for it.
    ControlNetwork,
}

impl Bottleneck {
    /// What it is, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SourceLinks => "links of the sources",
            Self::BuilderLinks => "links of the builders",
            Self::Switch => "switch (contention)",
            Self::Buffers => "buffers (losses)",
            Self::BuffersForCredits => "buffers (more credits lose packets)",
            Self::Credits => "credits (latency)",
            Self::ReadoutProcessor => "processor of the readout unit",
            Self::BuilderProcessor => "processor of the builder unit",
            Self::ManagerProcessor => "processor of the event manager",
            Self::Filter => "filter of the builder unit",
            Self::Bus => "bus",
            Self::Adapter => "adapter of the readout unit",
            Self::ControlNetwork => "control network",
        }
    }
}

/// Whether an option carries the rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It does, and loses nothing.
    Holds,
    /// It does not.
    Fails,
    /// The simulations show neither; why.
    NotShown(String),
}

/// A network with a way of sending, and what it reaches.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanOption {
    /// The network, in words.
    pub network: String,
    /// Its switching elements.
    pub elements: usize,
    /// How fragments are sent.
    pub sending: Sending,
    /// Events that a builder unit may hold.
    pub credits: u32,
    /// Most events that a request, release or clear names.
    pub requests_per_message: u32,
    /// Builder units look for work this often; 0 for at once.
    pub interval: DurationPs,
    /// Rate of events that it builds when there are always triggers, hertz: that of all starts together
    /// where this is a steady-state number, or else that of the slowest start where each is steady.
    /// Where packets are lost then, the highest rate tried without a loss.
    pub capacity_hz: Option<f64>,
    /// Why there is no capacity, or whose it is; `None` for that of all starts together.
    pub capacity_reason: Option<String>,
    /// Share of the busier link that the capacity takes; `None` without a capacity.
    pub efficiency: Option<f64>,
    /// Capacity over the rate asked for, minus 1; `None` without a capacity.
    pub margin: Option<f64>,
    /// Least and most that the margin may be in any of the starts, also where they have not converged;
    /// `None` where a run says neither, or where packets are lost.
    pub margin_bounds: Option<[f64; 2]>,
    /// Starts that the last run was made from, each with a seed of its own; 0 without a run.
    pub starts: u64,
    /// The last run: events per second, with their error, across its starts.
    pub event_rate: Estimate,
    /// Events of the last run that were counted, in the start with the fewest.
    pub events: u64,
    /// Packets lost in the last run, from all starts.
    pub lost: u64,
    /// Whether it carries the rate.
    pub verdict: Verdict,
    /// What limits it.
    pub bottleneck: Bottleneck,
    /// What limits it nearly as much: more of the first alone would bring little.
    pub next_bottleneck: Option<Bottleneck>,
}

impl PlanOption {
    /// Whether it is shown to carry the rate.
    pub fn holds(&self) -> bool {
        self.verdict == Verdict::Holds
    }
}
