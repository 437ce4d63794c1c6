//! Times of transfers between two nodes: line fits with a plateau, frames of Ethernet, blocks.
//!
//! The forms are those with which the CMS event builder studies (Lyon, 2000) describe their
//! measurements; the parameters are given by the caller. Times are microseconds and sizes bytes,
//! as in the talk; 1 MB/s is 1 B/us. They are cross-checks of the event-driven models, not models.

/// Time per packet = max(plateau, offset + size / speed).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearTransfer {
    /// Time that no packet goes below, microseconds: the work per packet beside the transfer.
    pub plateau_us: f64,
    /// Time at size 0 of the line, microseconds.
    pub offset_us: f64,
    /// Slope of the line, megabytes per second.
    pub speed_mb_s: f64,
}

impl LinearTransfer {
    /// Myrinet with LANai 7 adapters, point to point.
    pub const MYRINET: Self = Self::new(2.7, 0.5, 149.0);
    /// Myrinet 2000 measurement of the older adapter.
    pub const MYRINET_2000_OLD: Self = Self::new(2.7, 0.61, 164.0);
    /// Myrinet 2000 with LANai 9 adapters.
    pub const MYRINET_2000: Self = Self::new(1.4, 0.33, 263.0);
    /// Event building 16 x 16 over Myrinet with the barrel shifter.
    pub const MYRINET_BUILDER: Self = Self::new(3.0, 0.0, 143.0);

    /// A line with a plateau.
    pub const fn new(plateau_us: f64, offset_us: f64, speed_mb_s: f64) -> Self {
        Self {
            plateau_us,
            offset_us,
            speed_mb_s,
        }
    }

    /// Time for a packet of `bytes`, microseconds.
    pub fn time_us(&self, bytes: f64) -> f64 {
        self.plateau_us
            .max(self.offset_us + bytes / self.speed_mb_s)
    }

    /// Throughput with packets of `bytes`, megabytes per second.
    pub fn throughput_mb_s(&self, bytes: f64) -> f64 {
        bytes / self.time_us(bytes)
    }

    /// Size at which line and plateau cross, bytes.
    pub fn crossing_bytes(&self) -> f64 {
        (self.plateau_us - self.offset_us) * self.speed_mb_s
    }
}

/// Event building over Gigabit Ethernet: t = c0 + c1 * frames + size / link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FramedTransfer {
    /// Time per fragment, microseconds.
    pub fragment_us: f64,
    /// Time per frame, microseconds.
    pub frame_us: f64,
    /// Payload bytes of a full frame.
    pub frame_payload: u32,
    /// Link, megabytes per second.
    pub link_mb_s: f64,
}

impl FramedTransfer {
    /// Gigabit Ethernet 15 x 15 of the talk; the two times are fitted on its builder rows.
    pub const GIGABIT_BUILDER: Self = Self {
        fragment_us: 2.0,
        frame_us: 0.4,
        frame_payload: 1460,
        link_mb_s: 125.0,
    };

    /// Frames of a fragment; an empty one takes a frame as well.
    pub fn frames(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.frame_payload).max(1)
    }

    /// Time for a fragment, microseconds.
    pub fn time_us(&self, bytes: u32) -> f64 {
        self.fragment_us
            + self.frame_us * f64::from(self.frames(bytes))
            + f64::from(bytes) / self.link_mb_s
    }

    /// Throughput with fragments of `bytes`, megabytes per second.
    pub fn throughput_mb_s(&self, bytes: u32) -> f64 {
        f64::from(bytes) / self.time_us(bytes)
    }

    /// Rate of fragments, hertz.
    pub fn rate_hz(&self, bytes: u32) -> f64 {
        1e6 / self.time_us(bytes)
    }
}

/// Payload share of the wire time of full Ethernet frames, the header counted as payload:
/// 1514 bytes of each 1538 (preamble, checksum and gap are the rest).
pub fn ethernet_share() -> f64 {
    1514.0 / 1538.0
}

/// Throughput of blocks of a barrel shifter, megabytes per second: each slot takes the block's
/// time on the link plus an overhead.
pub fn block_throughput_mb_s(block: u32, link_mb_s: f64, overhead_us: f64) -> f64 {
    f64::from(block) / (f64::from(block) / link_mb_s + overhead_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cross_where_the_talk_sees_the_knee() {
        let crossing = |line: LinearTransfer| line.crossing_bytes().round();
        assert_eq!(crossing(LinearTransfer::MYRINET), 328.0);
        assert_eq!(crossing(LinearTransfer::MYRINET_2000), 281.0);
        assert_eq!(crossing(LinearTransfer::MYRINET_BUILDER), 429.0);
        let rate_khz = 1e3 / LinearTransfer::MYRINET_BUILDER.time_us(2048.0);
        assert!((rate_khz - 69.8).abs() < 0.05, "{rate_khz}");
    }

    #[test]
    fn gigabit_builder_rates() {
        let ethernet = FramedTransfer::GIGABIT_BUILDER;
        assert!((ethernet.rate_hz(2048) / 1e3 - 52.1).abs() < 0.1);
        assert!((ethernet.throughput_mb_s(2048) - 106.8).abs() < 0.2);
        assert!((ethernet.throughput_mb_s(4000) - 113.6).abs() < 0.2);
        assert!(ethernet.time_us(1461) - ethernet.time_us(1460) > 0.4);
        assert_eq!(ethernet.frames(0), 1);
        assert!((ethernet_share() * 125.0 - 123.0).abs() < 0.1);
    }

    #[test]
    fn blocks() {
        assert!((block_throughput_mb_s(4096, 160.0, 3.04) - 143.0).abs() < 0.05);
    }
}
