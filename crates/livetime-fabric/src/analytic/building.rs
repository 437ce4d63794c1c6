//! Arithmetic of event building: two steps, slow builders, grouped requests, the design point.
//!
//! The numbers are those of the CMS event builder studies (Lyon, 2000); shares are fractions of 1.
//! It knows no networks; those are in [`super::crossbar`] and [`super::multistage`].

/// Share of the data that two-step building moves: `first` of each event, and the rest of the
/// share `kept` of the events.
pub fn two_step_share(first: f64, kept: f64) -> f64 {
    first + kept * (1.0 - first)
}

/// Load of a readout unit of the first step and of one of the second, as shares of building every
/// event whole: they differ by 1 / kept, which is the imbalance of two-step building.
pub fn two_step_unit_loads(kept: f64) -> (f64, f64) {
    (1.0, kept)
}

/// Rate of a builder with `builders` units of which one works at the share `slow` of the others,
/// as a share of the rate with none slow, when events go where there is room.
pub fn slow_builder_demand_driven(builders: u32, slow: f64) -> f64 {
    (f64::from(builders) - 1.0 + slow) / f64::from(builders)
}

/// The same when events are dealt in turn: every unit waits for the slow one.
pub fn slow_builder_in_turn(slow: f64) -> f64 {
    slow
}

/// Time per fragment below which grouped requests cannot go, microseconds: one control message of
/// `message_us` asks for `group` fragments.
pub fn request_plateau_us(message_us: f64, group: u32) -> f64 {
    message_us / f64::from(group)
}

/// Smallest buffer at a builder's port, bytes, that loses nothing when each of `sources` may have
/// `window` fragments of at most `fragment_max` bytes on the way to it.
pub const fn lossless_buffer_bytes(sources: u64, window: u64, fragment_max: u64) -> u64 {
    sources * window * fragment_max
}

/// Rate into each port of a builder, bits per second, with fragments of `bytes` at `rate_hz`.
pub fn port_bits_per_s(bytes: f64, rate_hz: f64) -> f64 {
    bytes * 8.0 * rate_hz
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_talk() {
        let share = two_step_share(0.25, 0.1);
        assert!((share - 0.325).abs() < 1e-12);
        assert!((1.0 / share - 3.08).abs() < 0.005);
        assert_eq!(two_step_unit_loads(0.1), (1.0, 0.1));
        assert!((slow_builder_demand_driven(16, 0.5) - 0.969).abs() < 3e-4);
        assert_eq!(slow_builder_in_turn(0.5), 0.5);
        assert_eq!(request_plateau_us(12.0, 4), 3.0);
        assert_eq!(request_plateau_us(12.0, 2), 6.0);
        assert!((port_bits_per_s(2048.0, 100e3) - 1.638e9).abs() < 1e6);
        assert_eq!(lossless_buffer_bytes(15, 2, 2048), 61_440);
    }
}
