//! Which networks and protocols carry an event builder: a search over both, by simulation.
//!
//! For each candidate network and each way of sending, the event builder's own units run on
//! simulated hosts ([`crate::builder_network`]) with more triggers than they can build; what they
//! build is the capacity. Credits, events per message and the interval at which builder units look
//! for work are chosen in short runs ([`search`]), in small where there are many nodes, then a longer
//! one is judged ([`option`]).
//! Networks have as many sources as destinations; where one side has fewer units, ports stay free.
//! Costs are not known here; the number of switching elements stands for them.
//!
//! ```text
//! PlanRequest ─► candidates (network x way of sending) ─► trials ─► PlanOption with its Verdict
//! ```

pub mod candidate;
mod judge;
mod loads;
pub mod option;
pub mod search;
mod small;
mod starts;
mod trial;

use crate::builder_network::{Control, HostModel, MTU};
use crate::network::SizeLaw;
use crate::time::DurationPs;

pub use candidate::{NetworkKind, Protocol, Sending};
pub use option::{Bottleneck, PlanOption, Verdict};

use candidate::{Candidate, candidates};
use loads::busiest;
use trial::TIME_MAX;

/// The most sources or builders of a plan.
pub const PLAN_NODES_MAX: u32 = 4096;

/// Events of a judged run at least, where nobody asks for more.
pub const EVENTS_USUAL: u64 = 3_000;

/// The least rate of triggers, hertz: there is no room to tell how many times as much a network carries.
const RATE_MIN_HZ: f64 = 1e-3;

const SECONDS_PER_DAY: f64 = 86_400.0;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRequest {
    /// Sources, each with a readout unit, 2 to [`PLAN_NODES_MAX`].
    pub sources: u32,
    /// Builder units, 1 to [`PLAN_NODES_MAX`].
    pub builders: u32,
    /// Law of the sizes of fragments.
    pub sizes: SizeLaw,
    /// Bytes on the link for each packet besides its size.
    pub overhead_bytes: u32,
    /// Most bytes of a packet without overhead, 512 B to 1 MiB: larger fragments go in several. 0 for
    /// any size.
    pub mtu: u32,
    /// Rate of triggers, hertz, 0.001 to 1e9.
    pub rate_hz: f64,
    /// Rate of a node's link, bits per second.
    pub link_bits_per_s: u64,
    /// Time of a header for an element and the cable behind it.
    pub hop_delay: DurationPs,
    /// Bytes of each buffer, where there are buffers.
    pub buffer_bytes: u64,
    /// Bytes of a block of the barrel shifter and of a phase of the linear shift, 64 B to 1 MiB.
    pub block_bytes: u32,
    /// What hosts take time for; `interval` is not used, since it is searched for.
    pub hosts: HostModel,
    /// Control network, one of its own.
    pub control: Control,
    /// Networks to look at; empty for all.
    pub networks: Vec<NetworkKind>,
    /// Protocols to look at; empty for all.
    pub protocols: Vec<Protocol>,
    /// Events of a judged run at least; more take longer and show more.
    pub events: u64,
    /// Seed of the simulations.
    pub seed: u64,
}

impl PlanRequest {
    /// What is wrong with it; `None` if nothing is.
    pub fn problem(&self) -> Option<String> {
        let nodes = 1..=PLAN_NODES_MAX;
        if !nodes.contains(&self.sources) || self.sources < 2 || !nodes.contains(&self.builders) {
            return Some(format!(
                "{} sources and {} builders, allowed are 2 to {PLAN_NODES_MAX} and 1 to \
                 {PLAN_NODES_MAX}",
                self.sources, self.builders
            ));
        }
        if let Some(problem) = self.sizes.problem() {
            return Some(format!("{problem}, allowed is 1 B to 16 MiB"));
        }
        if !(RATE_MIN_HZ..=1e9).contains(&self.rate_hz) {
            let found = self.rate_hz;
            return Some(format!(
                "rate of {found} Hz, allowed are {RATE_MIN_HZ} Hz to 1 GHz"
            ));
        }
        if !(1_000_000..=100_000_000_000_000).contains(&self.link_bits_per_s) {
            let found = self.link_bits_per_s;
            return Some(format!(
                "link of {found} b/s, allowed are 1 Mb/s to 100 Tb/s"
            ));
        }
        if !(64..=1 << 20).contains(&self.block_bytes) {
            let found = self.block_bytes;
            return Some(format!(
                "blocks of {found} bytes, allowed are 64 B to 1 MiB"
            ));
        }
        if !(100..=10_000_000).contains(&self.events) {
            let found = self.events;
            return Some(format!(
                "runs of {found} events, allowed are 100 to 10000000"
            ));
        }
        if self.mtu > 0 && !MTU.contains(&self.mtu) {
            let found = self.mtu;
            return Some(format!(
                "packets of {found} bytes, allowed are 512 B to 1 MiB"
            ));
        }
        let has_blocks =
            self.protocols.is_empty() || self.protocols.contains(&Protocol::BarrelShifter);
        if has_blocks && (1..self.block_bytes).contains(&self.mtu) {
            let (found, packet) = (self.block_bytes, self.mtu);
            return Some(format!(
                "blocks of {found} bytes (`--block`) in packets of up to {packet} (`--mtu`), allowed \
                 are blocks of up to {packet} bytes for a barrel shifter; make blocks smaller, or \
                 ask for other protocols"
            ));
        }
        let largest = self.largest();
        if self.buffer_bytes < largest {
            return Some(format!(
                "buffers of {} bytes, the largest packets need {largest} bytes (20 times the \
                 mean of an exponential law, mean + 20 rms of a log-normal one)",
                self.buffer_bytes
            ));
        }
        self.time_problem()
    }

    /// Whether its events take longer than simulated time can be, were they built as fast as links and
    /// hosts can carry them.
    fn time_problem(&self) -> Option<String> {
        let most_hz = |shaping| {
            let (_, load) = busiest(self.loads(shaping).into_iter())?;
            Some(self.rate_hz / load)
        };
        let ways = self.load_ways().into_iter();
        let most_hz = ways.filter_map(most_hz).reduce(f64::min)?;
        let days = TIME_MAX.0 as f64 * 1e-12 / SECONDS_PER_DAY;
        let needed = self.events as f64 / most_hz / SECONDS_PER_DAY;
        (needed > days).then(|| {
            format!(
                "runs of {} events, which take {needed:.0} days of simulated time at the most that links \
                 and hosts carry, allowed are {days:.0} days; ask for fewer events",
                self.events
            )
        })
    }

    /// Bytes of the largest packet with its overhead, or of one that hardly ever comes where the law has no end.
    fn largest(&self) -> u64 {
        let fragment = match &self.sizes {
            SizeLaw::Fixed(bytes) => u64::from(*bytes),
            SizeLaw::Trace(sizes) => u64::from(sizes.iter().copied().max().unwrap_or(0)),
            SizeLaw::Exponential { mean } => (20.0 * mean) as u64,
            SizeLaw::LogNormal { mean, rms } => (mean + 20.0 * rms) as u64,
        };
        let packet = match self.mtu {
            0 => fragment,
            mtu => fragment.min(mtu.into()),
        };
        packet + u64::from(self.overhead_bytes)
    }

    /// How many networks with ways of sending it asks for.
    pub fn options(&self) -> usize {
        candidates(self).len()
    }

    /// The searches that answer it: independent, in the order in which they are listed. `None`
    /// where a way of sending does not exist for a network. `hear` is told of each run that begins,
    /// from whichever thread it is on.
    pub fn jobs<'h, F>(
        &self,
        hear: &'h F,
    ) -> Vec<impl FnOnce() -> Option<PlanOption> + Send + use<'h, F>>
    where
        F: Fn(&PlanRun<'_>) + Sync,
    {
        let job = |candidate: Candidate| {
            let request = self.clone();
            move || request.option(&candidate, hear)
        };
        candidates(self).into_iter().map(job).collect()
    }
}

/// A run of a search that begins.
#[derive(Debug, Clone, Copy)]
pub struct PlanRun<'a> {
    /// The network, in words.
    pub network: &'a str,
    /// How fragments are sent.
    pub sending: Sending,
    /// Sources of the run: fewer than asked for where settings are chosen in small.
    pub sources: u32,
    /// Events that a builder unit may hold.
    pub credits: u32,
    /// Which run of its option, from 1.
    pub number: u32,
}

#[cfg(test)]
mod tests;
