//! Times as text that are whole nanoseconds: `"0.1 us"` is one, `"1.5 ns"` is none.
//!
//! What is kept is a whole number of nanoseconds. A text in between is refused, as one of an energy is
//! in between two MeV: rounded, the run would do something else than the file says. Counted in
//! integers, since 0.1 is no number of floating point. Units and their spelling are those of
//! [`livetime_wire::quantity`].

use livetime_wire::DurationNs;

/// Reads a time.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_time(text: &str) -> Result<DurationNs, String> {
    text.parse::<DurationNs>()
        .map_err(|error| error.to_string())?;
    let ns = whole_ns(text).ok_or("value is not a whole number of ns")?;
    let ns = u64::try_from(ns).map_err(|_| "value is out of range")?;
    Ok(DurationNs(ns))
}

/// The nanoseconds of a text that is a time; `None` if they are no whole number.
fn whole_ns(text: &str) -> Option<u128> {
    let text = text.trim().trim_start_matches(['+', '-']);
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_')))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let digits = match digits.trim_start_matches('0') {
        "" => return Some(0),
        digits => digits,
    };
    // More digits than these are no whole number, or beyond all times.
    let ns = digits
        .parse::<u128>()
        .ok()?
        .checked_mul(ns_of(unit.trim()))?;
    let parts = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    ns.is_multiple_of(parts).then(|| ns / parts)
}

fn ns_of(unit: &str) -> u128 {
    match unit {
        "us" | "µs" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_to_the_nanosecond() {
        for (text, ns) in [
            ("0.1 us", 100),
            ("25 ns", 25),
            ("25.000 ns", 25),
            ("1_000.5us", 1_000_500),
            ("0.000000001 s", 1),
            ("+1.5 min", 90_000_000_000),
            ("0.0000000025 h", 9000),
            ("208.333 ms", 208_333_000),
            ("0", 0),
            ("-0 s", 0),
            (".5 µs", 500),
            ("5. us", 5000),
            // Beyond what a number of floating point tells apart.
            ("9000000.000000001 s", 9_000_000_000_000_001),
        ] {
            assert_eq!(parse_time(text), Ok(DurationNs(ns)), "{text}");
        }
    }

    #[test]
    fn what_is_between_two_nanoseconds_is_refused() {
        for text in [
            "25.4 ns",
            "1.5 ns",
            "-0.4 ns",
            "0.0001 us",
            "0.1234567891 s",
            "0.00000000000000000000000000000000000000001 h",
            "0.33333333333333333333333333333333333333333 s",
        ] {
            let error = parse_time(text).expect_err(text);
            assert!(error.contains("whole number of ns"), "{text}: {error}");
        }
        for (text, reason) in [
            ("5", "unit is missing"),
            ("1 kHz", "unit is not known here"),
            ("-1 s", "value is out of range"),
            ("9e9 s", "unit is not known here"),
            ("9000000000000 s", "value is out of range"),
            ("soon", "no number found"),
        ] {
            assert_eq!(parse_time(text), Err(reason.to_owned()), "{text}");
        }
    }
}
