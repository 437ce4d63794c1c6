//! A simulated magnet: its field follows the generator's output with a lag of first order.
//!
//! Integers only, stepped on a fixed grid of a thirty-second of the time constant, so that the
//! same outputs give the same read-back however often it is polled. It models no saturation, no
//! hysteresis and no noise: it is a stand-in for a measured read-back.

use livetime_wire::{DurationNs, TaiNs};

/// Steps per time constant.
pub const STEPS: u64 = 32;
/// Bits of fraction that are kept.
const FRACTION: u32 = 16;

/// A magnet, in the units of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Magnet {
    step_ns: u64,
    next_step: TaiNs,
    field: i64,
}

impl Magnet {
    /// A magnet at rest. It is stepped once per microsecond at most, so that a time constant below 32 us,
    /// also one of 0, is taken as 32 us.
    pub fn new(time_constant: DurationNs, start: TaiNs) -> Self {
        let step_ns = (time_constant.0 / STEPS).max(1000);
        Self {
            step_ns,
            next_step: start,
            field: 0,
        }
    }

    /// When it looks at the output next.
    pub fn next_step(&self) -> TaiNs {
        self.next_step
    }

    /// The output at [`Magnet::next_step`].
    pub fn handle_output(&mut self, output: i32) {
        let wanted = i64::from(output) << FRACTION;
        let lag = wanted - self.field;
        self.field += lag / STEPS as i64;
        self.next_step = self.next_step.after(DurationNs(self.step_ns));
    }

    /// The field.
    pub fn read_back(&self) -> i32 {
        (self.field >> FRACTION) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_followed_to_63_percent_in_a_time_constant() {
        let mut magnet = Magnet::new(DurationNs::MILLISECOND, TaiNs(0));
        while magnet.next_step() < TaiNs(1_000_000) {
            magnet.handle_output(1_000_000);
        }
        let share = f64::from(magnet.read_back()) / 1e6;
        assert!((share - 0.638).abs() < 0.01, "{share}");
        while magnet.next_step() < TaiNs(20_000_000) {
            magnet.handle_output(1_000_000);
        }
        assert!((999_990..=1_000_000).contains(&magnet.read_back()));
    }
}
