//! Cut values as integers, read from decimal texts with units: "5.5 GeV", "120 um", "135 deg".
//!
//! Every conversion is exact: a text that is no whole number of the base unit is an error, never
//! rounded, so that two programs reading one menu cut at the same place
//! (`docs/formats/trigger-packet.md`, section 3). Durations, sizes and rates are in
//! [`livetime_wire::quantity`]; which values a cut allows is checked in [`crate::menu`].

use core::fmt;
use core::str::FromStr;

/// Why a text is not a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// No decimal number at the start.
    #[error("no number found")]
    NoNumber,
    /// A number without a unit.
    #[error("unit is missing")]
    NoUnit,
    /// A unit that this threshold does not have.
    #[error("unit is not known here")]
    UnknownUnit,
    /// Not a whole number of the unit in which the cut is made.
    #[error("value is not a whole number of {unit}")]
    Inexact {
        /// That unit.
        unit: &'static str,
    },
    /// Too large or too long.
    #[error("value is out of range")]
    OutOfRange,
}

/// A unit: one of it is `numerator` / `denominator` of the base unit.
struct Unit {
    name: &'static str,
    numerator: i128,
    denominator: i128,
}

#[inline]
const fn unit(name: &'static str, numerator: i128, denominator: i128) -> Unit {
    Unit {
        name,
        numerator,
        denominator,
    }
}

const ENERGY_UNITS: &[Unit] = &[
    unit("keV", 1, 1000),
    unit("MeV", 1, 1),
    unit("GeV", 1000, 1),
    unit("TeV", 1_000_000, 1),
];
const LENGTH_UNITS: &[Unit] = &[
    unit("nm", 1, 1000),
    unit("um", 1, 1),
    unit("µm", 1, 1),
    unit("mm", 1000, 1),
    unit("cm", 10_000, 1),
    unit("m", 1_000_000, 1),
];
const ANGLE_UNITS: &[Unit] = &[unit("mdeg", 1, 1), unit("deg", 1000, 1)];
const PLAIN_UNITS: &[Unit] = &[unit("", 16, 1)];
const THOUSANDTH_UNITS: &[Unit] = &[unit("", 1000, 1)];

/// Most digits of a number; with every unit's factor the products stay far below 128 bits.
const DIGITS_MAX: u32 = 18;

/// Splits "-5.50 GeV" into -550, 2 decimals and "GeV".
fn split_decimal(text: &str) -> Result<(i128, u32, &str), ThresholdError> {
    let text = text.trim();
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(unsigned.len());
    let (mut mantissa, mut digits, mut decimals) = (0i128, 0, None);
    for c in unsigned[..end].chars() {
        match (c, decimals.as_mut()) {
            ('_', _) => {}
            ('.', None) => decimals = Some(0),
            ('.', Some(_)) => return Err(ThresholdError::NoNumber),
            (digit, count) => {
                digits += 1;
                if digits > DIGITS_MAX {
                    return Err(ThresholdError::OutOfRange);
                }
                mantissa = mantissa * 10 + i128::from(digit as u8 - b'0');
                if let Some(count) = count {
                    *count += 1;
                }
            }
        }
    }
    if digits == 0 {
        return Err(ThresholdError::NoNumber);
    }
    let signed = if negative { -mantissa } else { mantissa };
    Ok((signed, decimals.unwrap_or(0), unsigned[end..].trim()))
}

/// Reads a decimal with one of `units` as a whole number of `base`.
fn parse(text: &str, units: &[Unit], base: &'static str) -> Result<i32, ThresholdError> {
    let (mantissa, decimals, name) = split_decimal(text)?;
    let Some(unit) = units.iter().find(|unit| unit.name == name) else {
        return match (name.is_empty(), mantissa) {
            (true, 0) => Ok(0),
            (true, _) => Err(ThresholdError::NoUnit),
            (false, _) => Err(ThresholdError::UnknownUnit),
        };
    };
    let numerator = mantissa * unit.numerator;
    let denominator = unit.denominator * 10i128.pow(decimals);
    if numerator % denominator != 0 {
        return Err(ThresholdError::Inexact { unit: base });
    }
    i32::try_from(numerator / denominator).map_err(|_| ThresholdError::OutOfRange)
}

/// Prints `value` / `scale` exactly, `digits` decimals at most, without trailing zeros.
fn print(f: &mut fmt::Formatter<'_>, value: i32, scale: u32, digits: u32) -> fmt::Result {
    let magnitude = value.unsigned_abs();
    let (whole, rest) = (magnitude / scale, magnitude % scale);
    let sign = if value < 0 { "-" } else { "" };
    if rest == 0 {
        return write!(f, "{sign}{whole}");
    }
    let fraction = rest * 10u32.pow(digits) / scale;
    let text = format!("{fraction:0width$}", width = digits as usize);
    write!(f, "{sign}{whole}.{}", text.trim_end_matches('0'))
}

macro_rules! threshold {
    ($(#[$doc:meta])* $name:ident, $units:expr, $base:literal, $scale:literal, $digits:literal,
     $suffix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub i32);

        impl FromStr for $name {
            type Err = ThresholdError;

            fn from_str(text: &str) -> Result<Self, ThresholdError> {
                parse(text, $units, $base).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print(f, self.0, $scale, $digits)?;
                f.write_str($suffix)
            }
        }

        impl $name {
            /// The value in the arithmetic of the cuts.
            pub(crate) fn count(self) -> i64 {
                i64::from(self.0)
            }
        }
    };
}

threshold!(
    /// An energy or a momentum in MeV; text in keV, MeV, GeV or TeV.
    ///
    /// ```
    /// use livetime_trigger::{EnergyMev, ThresholdError};
    ///
    /// assert_eq!("5.5 GeV".parse(), Ok(EnergyMev(5500)));
    /// let inexact = Err(ThresholdError::Inexact { unit: "MeV" });
    /// assert_eq!("1.0005 GeV".parse::<EnergyMev>(), inexact);
    /// ```
    EnergyMev, ENERGY_UNITS, "MeV", 1000, 3, " GeV"
);
threshold!(
    /// A length in um; text in nm, um, mm, cm or m.
    LengthUm, LENGTH_UNITS, "um", 1, 0, " um"
);
threshold!(
    /// An angle in thousandths of a degree; text in deg or mdeg.
    AngleMdeg, ANGLE_UNITS, "mdeg", 1000, 3, " deg"
);
threshold!(
    /// A number in sixteenths, as chi2 stands in the packet; text without unit.
    Sixteenths, PLAIN_UNITS, "sixteenths", 16, 4, ""
);
threshold!(
    /// A ratio in thousandths, such as HAD/EM of a cluster; text without unit.
    Thousandths, THOUSANDTH_UNITS, "thousandths", 1000, 3, ""
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exact_decimals_become_integers() {
        assert_eq!("8 GeV".parse(), Ok(EnergyMev(8000)));
        assert_eq!("5.50GeV".parse(), Ok(EnergyMev(5500)));
        assert_eq!("1_500 keV".parse::<EnergyMev>().ok(), None);
        assert_eq!("2_000 keV".parse(), Ok(EnergyMev(2)));
        assert_eq!("120 um".parse(), Ok(LengthUm(120)));
        assert_eq!("120 µm".parse(), Ok(LengthUm(120)));
        assert_eq!("-0.746 mm".parse(), Ok(LengthUm(-746)));
        assert_eq!(".01 cm".parse(), Ok(LengthUm(100)));
        assert_eq!("135 deg".parse(), Ok(AngleMdeg(135_000)));
        assert_eq!("0.001 deg".parse(), Ok(AngleMdeg(1)));
        assert_eq!("25".parse(), Ok(Sixteenths(400)));
        assert_eq!("0.0625".parse(), Ok(Sixteenths(1)));
        assert_eq!("0.125".parse(), Ok(Thousandths(125)));
        assert_eq!("0".parse(), Ok(EnergyMev(0)), "zero needs no unit");
    }

    #[test]
    fn what_is_not_an_exact_threshold_is_named() {
        let energy = |text: &str| text.parse::<EnergyMev>().unwrap_err();
        assert_eq!(
            energy("8.0001 GeV"),
            ThresholdError::Inexact { unit: "MeV" }
        );
        assert_eq!(energy("8"), ThresholdError::NoUnit);
        assert_eq!(energy("8 gev"), ThresholdError::UnknownUnit);
        assert_eq!(energy("8e3 MeV"), ThresholdError::UnknownUnit);
        assert_eq!(energy("GeV"), ThresholdError::NoNumber);
        assert_eq!(energy(""), ThresholdError::NoNumber);
        assert_eq!(energy("- 8 GeV"), ThresholdError::NoNumber);
        assert_eq!(energy("1.2.3 GeV"), ThresholdError::NoNumber);
        assert_eq!(energy("2147484 GeV"), ThresholdError::OutOfRange);
        assert_eq!(
            energy("0.0000000000000000001 GeV"),
            ThresholdError::OutOfRange
        );
        assert_eq!(
            "0.1".parse::<Sixteenths>(),
            Err(ThresholdError::Inexact { unit: "sixteenths" })
        );
        assert_eq!(
            "0.1".parse::<Sixteenths>().unwrap_err().to_string(),
            "value is not a whole number of sixteenths"
        );
    }

    proptest! {
        #[test]
        fn every_value_survives_its_text(value: i32) {
            prop_assert_eq!(EnergyMev(value).to_string().parse(), Ok(EnergyMev(value)));
            prop_assert_eq!(LengthUm(value).to_string().parse(), Ok(LengthUm(value)));
            prop_assert_eq!(AngleMdeg(value).to_string().parse(), Ok(AngleMdeg(value)));
            prop_assert_eq!(Sixteenths(value).to_string().parse(), Ok(Sixteenths(value)));
            prop_assert_eq!(Thousandths(value).to_string().parse(), Ok(Thousandths(value)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", number in "[-+0-9._]{0,30}", unit in "[a-zA-Z ]{0,4}") {
            let _ = text.parse::<EnergyMev>();
            let _ = format!("{number}{unit}").parse::<LengthUm>();
            let _ = number.parse::<Sixteenths>();
        }
    }
}
