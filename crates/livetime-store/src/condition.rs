//! Condition of a run: what an analyst must know before trusting its data.
//!
//! The flags are those that test-beam users know from Constellation; they combine, and a run
//! without any flag is `GOOD`. Who sets them is said at each flag; this module only names them.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Condition flags of a run, `GOOD` when none is set.
///
/// ```
/// use livetime_store::Condition;
/// let condition = Condition::INTERRUPTED | Condition::TAINTED;
/// assert_eq!(condition.to_string(), "TAINTED|INTERRUPTED");
/// assert_eq!("GOOD".parse(), Ok(Condition::GOOD));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Condition(u8);

impl Condition {
    /// Nothing to report.
    pub const GOOD: Self = Self(0);
    /// Data is there but not to be trusted without a look: checksum errors, wrong decisions.
    pub const TAINTED: Self = Self(1);
    /// Data that the run took is missing from the file, or events are not accounted for.
    pub const INCOMPLETE: Self = Self(1 << 1);
    /// The run did not end in order: a crash, a lost unit, a full disk.
    pub const INTERRUPTED: Self = Self(1 << 2);
    /// An operator or a failure ended the run by force.
    pub const ABORTED: Self = Self(1 << 3);
    /// Not every unit took part all the time: a link went down, a unit was restarted.
    pub const DEGRADED: Self = Self(1 << 4);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::TAINTED, "TAINTED"),
        (Self::INCOMPLETE, "INCOMPLETE"),
        (Self::INTERRUPTED, "INTERRUPTED"),
        (Self::ABORTED, "ABORTED"),
        (Self::DEGRADED, "DEGRADED"),
    ];

    /// Whether every flag of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no flag is set.
    pub fn is_good(self) -> bool {
        self == Self::GOOD
    }
}

impl core::ops::BitOr for Condition {
    type Output = Self;
    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

impl core::ops::BitOrAssign for Condition {
    fn bitor_assign(&mut self, rhs: Self) {
        self.0 |= rhs.0;
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_good() {
            return f.write_str("GOOD");
        }
        let mut separator = "";
        for (_, name) in Self::NAMES.iter().filter(|(flag, _)| self.contains(*flag)) {
            write!(f, "{separator}{name}")?;
            separator = "|";
        }
        Ok(())
    }
}

/// A word that is not a run condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not a run condition")]
pub struct UnknownCondition {
    /// The word found.
    pub found: String,
}

impl FromStr for Condition {
    type Err = UnknownCondition;

    fn from_str(text: &str) -> Result<Self, UnknownCondition> {
        if text == "GOOD" {
            return Ok(Self::GOOD);
        }
        let mut condition = Self::GOOD;
        for word in text.split('|') {
            let known = Self::NAMES.iter().find(|(_, name)| *name == word);
            let (flag, _) = known.ok_or_else(|| UnknownCondition {
                found: word.to_owned(),
            })?;
            condition |= *flag;
        }
        Ok(condition)
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_reads_back() {
        for bits in 0..1u8 << Condition::NAMES.len() {
            let condition = Condition(bits);
            assert_eq!(condition.to_string().parse(), Ok(condition));
            let json = serde_json::to_string(&condition).unwrap();
            assert_eq!(serde_json::from_str::<Condition>(&json).unwrap(), condition);
        }
        assert!("".parse::<Condition>().is_err());
        assert!("TAINTED|FINE".parse::<Condition>().is_err());
    }
}
