//! Quantities are texts, not words, but they are parsed from what a user wrote.

use livetime_wire::{ByteSize, DurationNs, RateHz};
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,30}") {
        let results = (
            text.parse::<DurationNs>(),
            text.parse::<ByteSize>(),
            text.parse::<RateHz>(),
        );
        prop_assert!(results.2.is_err() || results.2.is_ok_and(|rate| rate.0.is_finite()));
    }

    #[test]
    fn numbers_with_units_are_read_or_refused(
        text in "[-+]?[0-9_]{0,25}\\.?[0-9]{0,25} ?(ns|us|µs|ms|s|min|h|B|KiB|GiB|GB|Hz|kHz|MHz|)",
    ) {
        if let Ok(rate) = text.parse::<RateHz>() {
            prop_assert!((0.0..=1e12).contains(&rate.0));
        }
        if let Ok(size) = text.parse::<ByteSize>() {
            prop_assert!(size.0 <= 9_000_000_000_000_000_000);
        }
        if let Ok(time) = text.parse::<DurationNs>() {
            prop_assert!(time.0 <= 9_000_000_000_000_000_000);
        }
    }

    /// What is printed reads back as the same within the digits printed.
    #[test]
    fn printed_sizes_and_rates_read_back(bytes in 0_u64..1 << 50, hz in 0.01_f64..1e11) {
        let size: ByteSize = ByteSize(bytes).to_string().parse().unwrap();
        let unit = [1_u64 << 30, 1 << 20, 1 << 10, 1];
        let unit = unit.into_iter().find(|unit| bytes >= *unit).unwrap_or(1);
        prop_assert!(size.0.abs_diff(bytes) <= unit / 20 + 1, "{bytes}: {size}");
        let rate: RateHz = RateHz(hz).to_string().parse().unwrap();
        let unit = if hz >= 1e6 { 1e6 } else if hz >= 1e3 { 1e3 } else { 1.0 };
        prop_assert!((rate.0 - hz).abs() <= 0.0051 * unit, "{hz}: {rate}");
    }
}
