//! Quantities as text with units: "20 us", "2 KiB", "100 kHz", "25 Gb/s".
//!
//! Bare numbers are refused on purpose (a `timeout = 1` that means seconds to one reader and
//! milliseconds to the next loses data). Sizes are binary (KiB, MiB), rates decimal.

use core::fmt;
use core::str::FromStr;

use crate::time::DurationNs;

/// A size in bytes; text form in B, KiB, MiB, GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

/// A rate in Hz; text form in Hz, kHz, MHz.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct RateHz(pub f64);

/// A rate of a link in bits per second; text form in b/s or B/s with decimal prefixes up to T.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(pub u64);

/// Why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// No number at the start.
    #[error("no number found")]
    NoNumber,
    /// A number without a unit.
    #[error("unit is missing")]
    NoUnit,
    /// A unit that this quantity does not have.
    #[error("unit is not known here")]
    UnknownUnit,
    /// Negative, not finite, or too large.
    #[error("value is out of range")]
    OutOfRange,
}

/// Splits "20 us" into 20 and "us".
fn number_and_unit(text: &str) -> Result<(f64, &str), QuantityError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | '_')))
        .unwrap_or(text.len());
    let digits: String = text[..end].chars().filter(|c| *c != '_').collect();
    let value: f64 = digits.parse().map_err(|_| QuantityError::NoNumber)?;
    let unit = text[end..].trim();
    if unit.is_empty() && value != 0.0 {
        return Err(QuantityError::NoUnit);
    }
    Ok((value, unit))
}

/// Scales and rounds to an integer count of the base unit.
#[inline]
fn scaled(value: f64, factor: f64) -> Result<u64, QuantityError> {
    let scaled = (value * factor).round();
    if (0.0..9.0e18).contains(&scaled) {
        Ok(scaled as u64)
    } else {
        Err(QuantityError::OutOfRange)
    }
}

impl FromStr for DurationNs {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (value, unit) = number_and_unit(text)?;
        let factor = match unit {
            "" | "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "min" => 60e9,
            "h" => 3600e9,
            _ => return Err(QuantityError::UnknownUnit),
        };
        scaled(value, factor).map(Self)
    }
}

impl FromStr for ByteSize {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (value, unit) = number_and_unit(text)?;
        let factor = match unit {
            "" | "B" => 1.0,
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            "kB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            _ => return Err(QuantityError::UnknownUnit),
        };
        scaled(value, factor).map(Self)
    }
}

impl FromStr for RateHz {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (value, unit) = number_and_unit(text)?;
        let factor = match unit {
            "" | "Hz" => 1.0,
            "kHz" => 1e3,
            "MHz" => 1e6,
            _ => return Err(QuantityError::UnknownUnit),
        };
        let hz = value * factor;
        if (0.0..=1e12).contains(&hz) {
            Ok(Self(hz))
        } else {
            Err(QuantityError::OutOfRange)
        }
    }
}

impl FromStr for BitRate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (value, unit) = number_and_unit(text)?;
        let bits = unit.strip_suffix("b/s").map(|prefix| (prefix, 1.0));
        let bytes = || unit.strip_suffix("B/s").map(|prefix| (prefix, 8.0));
        let (prefix, bits) = bits.or_else(bytes).ok_or(QuantityError::UnknownUnit)?;
        let scale = match prefix {
            "" => 1.0,
            "k" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "T" => 1e12,
            _ => return Err(QuantityError::UnknownUnit),
        };
        let rate = value * scale * bits;
        if !(1.0..=1e18).contains(&rate) {
            return Err(QuantityError::OutOfRange);
        }
        Ok(Self(rate.round() as u64))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] = [
            ("Tb/s", 1_000_000_000_000),
            ("Gb/s", 1_000_000_000),
            ("Mb/s", 1_000_000),
            ("kb/s", 1_000),
        ];
        for (unit, scale) in UNITS {
            if self.0 >= scale {
                return write!(f, "{} {unit}", self.0 as f64 / scale as f64);
            }
        }
        write!(f, "{} b/s", self.0)
    }
}

/// `{}` rounds what is no whole number of its unit; `{:#}` does not.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, size) in UNITS {
            if f.alternate() && !self.0.is_multiple_of(size) {
                continue;
            }
            if self.0 >= size {
                let value = self.0 as f64 / size as f64;
                let decimals = usize::from(!self.0.is_multiple_of(size));
                return write!(f, "{value:.decimals$} {unit}");
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// `{}` rounds to two decimals; `{:#}` does not.
impl fmt::Display for RateHz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            hz if hz >= 1e6 => (hz / 1e6, "MHz"),
            hz if hz >= 1e3 => (hz / 1e3, "kHz"),
            hz => (hz, "Hz"),
        };
        if f.alternate() {
            return write!(f, "{value} {unit}");
        }
        let text = format!("{value:.2}");
        write!(
            f,
            "{} {unit}",
            text.trim_end_matches('0').trim_end_matches('.')
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alternate_form_is_exact() {
        for (size, rounded, exact) in [
            (2047, "2.0 KiB", "2047 B"),
            (2048, "2 KiB", "2 KiB"),
            ((3 << 20) + 1024, "3.0 MiB", "3073 KiB"),
            (5, "5 B", "5 B"),
            (0, "0 B", "0 B"),
        ] {
            let size = ByteSize(size);
            assert_eq!(
                (size.to_string(), format!("{size:#}")),
                (rounded.into(), exact.into())
            );
        }
        assert_eq!(format!("{:#}", RateHz(10_001_000.0)), "10.001 MHz");
        assert_eq!(RateHz(10_001_000.0).to_string(), "10 MHz");
    }

    #[test]
    fn texts_with_units_parse_and_print() {
        assert_eq!("20 us".parse(), Ok(DurationNs(20_000)));
        assert_eq!("1.5ms".parse(), Ok(DurationNs(1_500_000)));
        assert_eq!("2 KiB".parse(), Ok(ByteSize(2048)));
        assert_eq!("10kHz".parse(), Ok(RateHz(10_000.0)));
        assert_eq!(ByteSize(2048).to_string(), "2 KiB");
        assert_eq!(ByteSize(1_572_864).to_string(), "1.5 MiB");
        assert_eq!(RateHz(10_000.0).to_string(), "10 kHz");
        assert_eq!(RateHz(12.5).to_string(), "12.5 Hz");
    }

    #[test]
    fn rates_of_links_are_decimal_in_bits_or_bytes() {
        assert_eq!("2 Gb/s".parse(), Ok(BitRate(2_000_000_000)));
        assert_eq!("160MB/s".parse(), Ok(BitRate(1_280_000_000)));
        assert_eq!(BitRate(2_500_000_000).to_string(), "2.5 Gb/s");
        assert_eq!(BitRate(999).to_string(), "999 b/s");
        for (text, error) in [
            ("2 GiB/s", QuantityError::UnknownUnit),
            ("2 Gb", QuantityError::UnknownUnit),
            ("fast", QuantityError::NoNumber),
            ("25", QuantityError::NoUnit),
            ("0", QuantityError::UnknownUnit),
            ("0 b/s", QuantityError::OutOfRange),
            ("-1 Gb/s", QuantityError::OutOfRange),
            ("2000000 Tb/s", QuantityError::OutOfRange),
        ] {
            assert_eq!(text.parse::<BitRate>(), Err(error), "{text}");
        }
    }

    #[test]
    fn texts_without_units_or_with_foreign_ones_are_refused() {
        assert_eq!("20".parse::<DurationNs>(), Err(QuantityError::NoUnit));
        assert_eq!(
            "20 kHz".parse::<DurationNs>(),
            Err(QuantityError::UnknownUnit)
        );
        assert_eq!("fast".parse::<RateHz>(), Err(QuantityError::NoNumber));
        assert_eq!("-1 s".parse::<DurationNs>(), Err(QuantityError::OutOfRange));
        assert_eq!(
            "1e99 s".parse::<DurationNs>(),
            Err(QuantityError::UnknownUnit)
        );
    }
}
