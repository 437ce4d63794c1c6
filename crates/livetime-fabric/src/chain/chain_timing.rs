//! How long things take in the simulated chain: lines, message hops, hosts.
//!
//! Plain numbers with defaults in the range of one machine with S-LINK cards. In lossless runs no
//! decision depends on them, which a test says; dead time, latencies and timeouts do.

use std::collections::BTreeMap;

use livetime_readout::link_source::GRACE_WORDS_MAX;
use livetime_wire::UnitId;

use super::event_stream::EventStream;
use crate::time::DurationPs;

/// Bits of a word of a line.
const WORD_BITS: u64 = 32;

/// A line between a link's two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineTiming {
    /// Rate in bytes per second, control words included. Default 160 MB/s: S-LINK, 32 bits at
    /// 40 MHz. More than 0.
    pub bytes_per_s: u64,
    /// Time from one end to the other, the same for XON and XOFF on the way back. Default 100 ns,
    /// 20 m of fibre.
    pub latency: DurationPs,
    /// Most words that the line carries as one step, at least 1. Default 64. Fewer make XOFF act
    /// sooner and cost events. A link whose receiver allows for fewer words in flight takes
    /// smaller steps.
    pub burst_words: u32,
}

impl Default for LineTiming {
    fn default() -> Self {
        Self {
            bytes_per_s: 160_000_000,
            latency: DurationPs::from_ns(100),
            burst_words: 64,
        }
    }
}

impl LineTiming {
    /// A line that takes (almost) no time: 10 TB/s, no latency.
    pub const INSTANT: Self = Self {
        bytes_per_s: 10_000_000_000_000,
        latency: DurationPs::ZERO,
        burst_words: 64,
    };

    /// How long `words` occupy the line.
    pub fn occupied(&self, words: u64) -> DurationPs {
        DurationPs::for_bits(words * WORD_BITS, self.bytes_per_s.saturating_mul(8))
    }

    /// Most words that arrive after XOFF was raised. A burst that is begun is sent whole, and
    /// bursts begin until XOFF has come back: one latency for the burst that raised it, one for
    /// the way back.
    pub fn in_flight_words_max(&self) -> u64 {
        let burst = u64::from(self.burst_words);
        let burst_time = self.occupied(burst).0.max(1);
        let bursts = (2 * self.latency.0).div_ceil(burst_time).max(1);
        bursts * burst + u64::from(GRACE_WORDS_MAX)
    }

    /// The line in steps so small that no more than `words_in_flight` arrive after XOFF; `None` if
    /// it is too long for that.
    pub fn fitted(mut self, words_in_flight: u32) -> Option<Self> {
        while self.in_flight_words_max() > words_in_flight.into() {
            self.burst_words /= 2;
            if self.burst_words == 0 {
                return None;
            }
        }
        Some(self)
    }
}

/// The way of a message between two units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopTiming {
    /// Least time on the way. Default 500 ns.
    pub latency: DurationPs,
    /// Most time on top of it, drawn for each message; the order within a pair of units stays.
    /// Default 200 ns.
    pub jitter_max: DurationPs,
}

impl Default for HopTiming {
    fn default() -> Self {
        Self {
            latency: DurationPs::from_ns(500),
            jitter_max: DurationPs::from_ns(200),
        }
    }
}

/// How long a host is busy with each thing it does; it does one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceTimes {
    /// Supervisor: one reply. Default 300 ns.
    pub reply: DurationPs,
    /// Trigger node: one decision. Default 5 us.
    pub decision: DurationPs,
    /// Readout unit: one page. Default 500 ns.
    pub page: DurationPs,
    /// Event manager: one message. Default 300 ns.
    pub manager_message: DurationPs,
    /// Readout unit: one message. Default 300 ns.
    pub readout_message: DurationPs,
    /// Builder unit: one message. Default 300 ns.
    pub builder_message: DurationPs,
    /// Any unit: sending one message. Default 100 ns.
    pub send: DurationPs,
    /// Filter unit: one event. Default 20 us.
    pub filter: DurationPs,
    /// Writer: one event. Default 10 us.
    pub write: DurationPs,
}

impl Default for ServiceTimes {
    fn default() -> Self {
        Self {
            reply: DurationPs::from_ns(300),
            decision: DurationPs::from_us(5),
            page: DurationPs::from_ns(500),
            manager_message: DurationPs::from_ns(300),
            readout_message: DurationPs::from_ns(300),
            builder_message: DurationPs::from_ns(300),
            send: DurationPs::from_ns(100),
            filter: DurationPs::from_us(20),
            write: DurationPs::from_us(10),
        }
    }
}

/// All times of a simulated chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainTiming {
    /// Every data link.
    pub data_line: LineTiming,
    /// The trigger link and the return link; a packet or reply is one step whatever its length.
    pub trigger_line: LineTiming,
    /// Every hop of a message.
    pub hop: HopTiming,
    /// Every host.
    pub service: ServiceTimes,
    /// What brings events to filter units. Default none: they lie in memory that both share.
    pub event_stream: Option<EventStream>,
    /// Units that are slower: their service times are multiplied. Default none.
    pub slow_units: BTreeMap<UnitId, u32>,
    /// Events whose fragments the front-end holds until their links have taken them, at least 1.
    /// Default 8. When full, triggers are refused as with XOFF.
    pub front_end_events: usize,
}

impl Default for ChainTiming {
    fn default() -> Self {
        Self {
            data_line: LineTiming::default(),
            trigger_line: LineTiming::default(),
            hop: HopTiming::default(),
            service: ServiceTimes::default(),
            event_stream: None,
            slow_units: BTreeMap::new(),
            front_end_events: 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_line_is_s_link() {
        let line = LineTiming::default();
        assert_eq!(line.occupied(1), DurationPs::from_ns(25));
        // One burst takes 1.6 us, longer than the way there and back.
        assert_eq!(line.in_flight_words_max(), 64 + 2);
        let long = LineTiming {
            latency: DurationPs::from_us(2),
            ..line
        };
        assert_eq!(long.in_flight_words_max(), 3 * 64 + 2);
        assert_eq!(LineTiming::INSTANT.in_flight_words_max(), 64 + 2);
        assert_eq!(line.fitted(128), Some(line));
        assert_eq!(line.fitted(40).map(|line| line.burst_words), Some(32));
        // 80 words are on the way there, and as many are sent until XOFF is back.
        assert_eq!(long.fitted(162).map(|line| line.burst_words), Some(32));
        assert_eq!(long.fitted(161), None);
    }
}
