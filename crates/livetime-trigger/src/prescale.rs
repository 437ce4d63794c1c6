//! Prescale counters: which passes of a path fire.
//!
//! A prescale N lets every N-th pass through, the first one included. The counter is a u32 that
//! starts at 0, counts passes and wraps (`docs/formats/trigger-packet.md`, section 3); only passes
//! move it, so equal packets in equal order give equal decisions.

/// The counter of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrescaleCounter {
    factor: u32,
    passes: u32,
}

impl PrescaleCounter {
    /// A counter at 0 with prescale `factor`.
    ///
    /// # Panics
    /// If `factor` is 0: [`crate::menu::MenuConfig::validate`] refuses it.
    pub fn new(factor: u32) -> Self {
        assert!(factor > 0, "a prescale of zero has no meaning");
        Self { factor, passes: 0 }
    }

    /// Counts a pass; whether it fires.
    pub fn count(&mut self) -> bool {
        // One is by far the most frequent factor, and a division costs as much as a small cut.
        let fires = self.factor == 1 || self.passes.is_multiple_of(self.factor);
        self.passes = self.passes.wrapping_add(1);
        fires
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_every_n_fires() {
        let mut counter = PrescaleCounter::new(3);
        let fired: Vec<bool> = (0..7).map(|_| counter.count()).collect();
        assert_eq!(fired, [true, false, false, true, false, false, true]);
        let mut always = PrescaleCounter::new(1);
        assert!((0..5).all(|_| always.count()));
    }

    #[test]
    fn the_counter_wraps_to_zero_and_fires_there() {
        let mut counter = PrescaleCounter {
            factor: 3,
            passes: u32::MAX - 1,
        };
        // 2^32 - 2 is no multiple of 3, 2^32 - 1 is, and 0 is again.
        let fired: Vec<bool> = (0..4).map(|_| counter.count()).collect();
        assert_eq!(fired, [false, true, true, false]);
    }
}
