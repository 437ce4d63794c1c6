//! The time and the lumi section of packets, extended beyond the few bits that a packet carries.
//!
//! Packets of one link come in order, so a smaller value is a later one after a wrap: the 25 ns stamp
//! wraps after 107.4 s, the lumi section after 256 sections. A pause longer than a wrap is seen
//! shorter by whole wraps. What the values are used for is in [`crate::prescale`].

/// Follows a counter of which only the low bits are seen; starts at the first value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Extended {
    value: Option<u64>,
}

impl Extended {
    /// The extended value of `low`, which has the bits of `mask`, a power of two less one.
    #[inline]
    fn follow(&mut self, low: u64, mask: u64) -> u64 {
        let value = self
            .value
            .map_or(low, |value| value + (low.wrapping_sub(value) & mask));
        self.value = Some(value);
        value
    }
}

/// Time and luminosity as packets tell them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PacketClock {
    ticks: Extended,
    section: Extended,
    luminosity: Vec<u32>,
    measured: Option<u32>,
}

impl PacketClock {
    /// With the luminosity by lumi section in 10^30 / cm^2 / s; the last one holds on.
    pub fn new(luminosity: &[u32]) -> Self {
        Self {
            luminosity: luminosity.to_vec(),
            ..Self::default()
        }
    }

    /// Time in ticks of 25 ns, from the stamp of the next packet.
    #[inline]
    pub fn ticks(&mut self, time_stamp: u32) -> u64 {
        self.ticks
            .follow(u64::from(time_stamp), u64::from(u32::MAX))
    }

    /// Luminosity that holds for the next packet, from the low bits of its lumi section; 0 if none
    /// is known.
    #[inline]
    pub fn luminosity(&mut self, section_low: u8) -> u32 {
        let section = self
            .section
            .follow(u64::from(section_low), u64::from(u8::MAX));
        let last = self.luminosity.len().saturating_sub(1);
        let index = usize::try_from(section).map_or(last, |section| section.min(last));
        self.measured
            .or_else(|| self.luminosity.get(index).copied())
            .unwrap_or(0)
    }

    /// A luminosity that was measured; holds instead of the table from the next packet on.
    #[inline]
    pub fn handle_luminosity(&mut self, luminosity: u32) {
        self.measured = Some(luminosity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_over_the_wrap() {
        let mut clock = PacketClock::default();
        assert_eq!(clock.ticks(u32::MAX - 1), u64::from(u32::MAX) - 1);
        assert_eq!(clock.ticks(u32::MAX - 1), u64::from(u32::MAX) - 1);
        assert_eq!(clock.ticks(3), u64::from(u32::MAX) + 4);
        assert_eq!(clock.ticks(2), 2 * (u64::from(u32::MAX) + 1) + 2, "a wrap");
    }

    #[test]
    fn luminosity_follows_the_sections_and_the_last_holds_on() {
        let mut clock = PacketClock::new(&[300, 200, 100]);
        let seen = [0, 0, 1, 2, 9, 255, 0, 1].map(|low| clock.luminosity(low));
        assert_eq!(seen, [300, 300, 200, 100, 100, 100, 100, 100]);
        clock.handle_luminosity(7);
        assert_eq!(clock.luminosity(1), 7);
        assert_eq!(PacketClock::default().luminosity(3), 0);
    }
}
