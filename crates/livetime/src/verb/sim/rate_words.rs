//! Rates of events and packets as people read them, from below a hertz to gigahertz.

/// Digits of a rate.
pub(super) const RATE_DIGITS: usize = 4;
/// Digits of its error at most.
const ERROR_DIGITS: usize = 2;

/// A rate in hertz with so many digits, 1 or more, and the unit that fits: `7 Hz`, `48.83 kHz`.
pub(super) fn rate_words(hz: f64, digits: usize) -> String {
    let after_first = digits.saturating_sub(1);
    // Rounded before the unit is chosen: 999.96 Hz are 1 kHz.
    let rounded: f64 = format!("{hz:.after_first$e}").parse().unwrap_or(hz);
    let (value, unit) = match rounded {
        hz if hz >= 1e6 => (hz / 1e6, "MHz"),
        hz if hz >= 1e3 => (hz / 1e3, "kHz"),
        hz => (hz, "Hz"),
    };
    let power = match value > 0.0 {
        true => value.log10().floor() as i32,
        false => 0,
    };
    let decimals = (after_first as i32 - power).max(0) as usize;
    let text = format!("{value:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text} {unit}")
}

/// The error of a rate, hertz, to the last digit of the rate.
pub(super) fn error_words(error_hz: f64, hz: f64) -> String {
    let after_first = RATE_DIGITS as i32 - 1;
    let last = match hz > 0.0 {
        true => 10_f64.powi(hz.log10().floor() as i32 - after_first),
        false => return rate_words(error_hz, ERROR_DIGITS),
    };
    rate_words((error_hz / last).round() * last, ERROR_DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_their_digits_whatever_their_size() {
        let cases = [
            (0.0, "0 Hz"),
            (0.001, "0.001 Hz"),
            (0.012_345, "0.01235 Hz"),
            (2.5, "2.5 Hz"),
            (7.0, "7 Hz"),
            (10.0, "10 Hz"),
            (29.802_3, "29.8 Hz"),
            (99.999_9, "100 Hz"),
            (999.96, "1 kHz"),
            (1_000.0, "1 kHz"),
            (48_828.0, "48.83 kHz"),
            (100_000.0, "100 kHz"),
            (999_960.0, "1 MHz"),
            (2e9, "2000 MHz"),
        ];
        for (hz, text) in cases {
            assert_eq!(rate_words(hz, RATE_DIGITS), text, "{hz}");
        }
    }

    #[test]
    fn an_error_has_no_more_digits_than_its_rate() {
        let cases = [
            (5e-14, 290.1, "0 Hz"),
            (0.3456, 290.1, "0.3 Hz"),
            (0.0456, 7.0, "0.046 Hz"),
            (123.0, 48_828.0, "120 Hz"),
            (1_234.0, 48_828.0, "1.2 kHz"),
            (0.5, 0.0, "0.5 Hz"),
        ];
        for (error, hz, text) in cases {
            assert_eq!(error_words(error, hz), text, "{error} of {hz}");
        }
    }
}
