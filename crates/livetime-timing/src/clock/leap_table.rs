//! Leap seconds: TAI minus UTC since 1972.
//!
//! The built-in table is that of IERS Bulletin C up to the leap second of 2017-01-01, the last one
//! announced when this was written. A newer one can be read from the `leap-seconds.list` that
//! operating systems keep.

use livetime_wire::TaiNs;

/// TAI minus UTC from some moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leap {
    /// UTC seconds since 1970-01-01 as POSIX counts them.
    utc: i64,
    /// TAI minus UTC, seconds.
    offset: i64,
}

/// (year, month) from whose first day the next offset holds, the first being 10 s.
const BUILT_IN: [(i64, i64); 28] = [
    (1972, 1),
    (1972, 7),
    (1973, 1),
    (1974, 1),
    (1975, 1),
    (1976, 1),
    (1977, 1),
    (1978, 1),
    (1979, 1),
    (1980, 1),
    (1981, 7),
    (1982, 7),
    (1983, 7),
    (1985, 7),
    (1988, 1),
    (1990, 1),
    (1991, 1),
    (1992, 7),
    (1993, 7),
    (1994, 7),
    (1996, 1),
    (1997, 7),
    (1999, 1),
    (2006, 1),
    (2009, 1),
    (2012, 7),
    (2015, 7),
    (2017, 1),
];

/// Seconds from 1900-01-01 to 1970-01-01.
const NTP_EPOCH: i64 = 2_208_988_800;

/// Leap seconds in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeapTable {
    leaps: Vec<Leap>,
}

/// A text that is not a list of leap seconds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeapTableError {
    /// A line that is neither a comment nor two numbers.
    #[error(
        "line {line} of the leap-second list is `{found}`; \
         expected seconds since 1900 and TAI minus UTC"
    )]
    Line {
        /// Which line, from 1.
        line: usize,
        /// Its text.
        found: String,
    },
    /// Lines out of order, or an offset that changes by more than a second.
    #[error("line {line} of the leap-second list does not follow from the one before")]
    Order {
        /// Which line, from 1.
        line: usize,
    },
    /// No line at all.
    #[error("the leap-second list is empty")]
    Empty,
}

/// Days from 1970-01-01 to the first of a month, Gregorian.
fn days_to_month(year: i64, month: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap_days = |y: i64| y / 4 - y / 100 + y / 400;
    let years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    let in_leap_year = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let extra = i64::from(in_leap_year && month > 2);
    years + BEFORE[(month - 1) as usize] + extra
}

impl LeapTable {
    /// The table compiled in.
    pub fn built_in() -> Self {
        let leaps = BUILT_IN
            .iter()
            .zip(10..)
            .map(|((year, month), offset)| Leap {
                utc: days_to_month(*year, *month) * 86_400,
                offset,
            })
            .collect();
        Self { leaps }
    }

    /// Reads a `leap-seconds.list`: NTP seconds and offset per line, `#` begins a comment.
    ///
    /// # Errors
    /// [`LeapTableError`] naming the line.
    pub fn parse(text: &str) -> Result<Self, LeapTableError> {
        let mut leaps: Vec<Leap> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let content = text.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let mut numbers = content.split_whitespace().map(str::parse::<i64>);
            let (Some(Ok(ntp)), Some(Ok(offset)), None) =
                (numbers.next(), numbers.next(), numbers.next())
            else {
                return Err(LeapTableError::Line {
                    line,
                    found: content.to_owned(),
                });
            };
            let utc = ntp.saturating_sub(NTP_EPOCH);
            let follows = leaps
                .last()
                .is_none_or(|last| utc > last.utc && last.offset.abs_diff(offset) == 1);
            if !follows || !(0..=1000).contains(&offset) {
                return Err(LeapTableError::Order { line });
            }
            leaps.push(Leap { utc, offset });
        }
        if leaps.is_empty() {
            return Err(LeapTableError::Empty);
        }
        Ok(Self { leaps })
    }

    /// TAI minus UTC in seconds for a time of POSIX UTC seconds; before the table, its first.
    pub fn offset_at_utc(&self, utc: i64) -> i64 {
        let after = self.leaps.partition_point(|leap| leap.utc <= utc);
        self.leaps[after.saturating_sub(1)].offset
    }

    /// The latest offset of the table, seconds.
    pub fn latest_offset(&self) -> i64 {
        self.leaps.last().map_or(0, |leap| leap.offset)
    }

    /// TAI of a UTC time in ns since 1970-01-01 as POSIX counts them.
    pub fn tai_from_utc(&self, utc_ns: u64) -> TaiNs {
        let offset = self.offset_at_utc((utc_ns / 1_000_000_000).cast_signed());
        TaiNs(utc_ns).offset_by(offset * 1_000_000_000)
    }

    /// UTC in ns since 1970-01-01 as POSIX counts them. An inserted second is counted as the one
    /// after it, so that UTC never runs backwards by more than a second.
    pub fn utc_from_tai(&self, tai: TaiNs) -> u64 {
        let seconds = (tai.0 / 1_000_000_000).cast_signed();
        let after = self
            .leaps
            .partition_point(|leap| leap.utc + leap.offset <= seconds);
        let offset = self.leaps[after.saturating_sub(1)].offset;
        tai.offset_by(-offset * 1_000_000_000).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_ends_with_37_seconds() {
        let table = LeapTable::built_in();
        assert_eq!(table.latest_offset(), 37);
        // 2017-01-01 00:00:00 UTC and the second before.
        assert_eq!(table.offset_at_utc(1_483_228_800), 37);
        assert_eq!(table.offset_at_utc(1_483_228_799), 36);
        // 1972-01-01 and 1999-01-01.
        assert_eq!(table.offset_at_utc(63_072_000), 10);
        assert_eq!(table.offset_at_utc(915_148_800), 32);
        assert_eq!(table.offset_at_utc(915_148_799), 31);
        assert_eq!(table.offset_at_utc(0), 10, "before the table, its first");
    }

    #[test]
    fn tai_and_utc_round_trip_except_in_inserted_seconds() {
        let table = LeapTable::built_in();
        for utc in [63_072_000u64, 1_483_228_799, 1_483_228_800, 1_700_000_000] {
            let tai = table.tai_from_utc(utc * 1_000_000_000 + 5);
            assert_eq!(table.utc_from_tai(tai), utc * 1_000_000_000 + 5);
        }
        assert_eq!(
            table.tai_from_utc(1_700_000_000_000_000_000),
            TaiNs(1_700_000_037_000_000_000)
        );
    }

    #[test]
    fn a_list_replaces_the_table() {
        let text = "#$ 3676924800\n2272060800  10  # 1 Jan 1972\n2287785600 11\n";
        let table = LeapTable::parse(text).unwrap();
        assert_eq!(table.latest_offset(), 11);
        assert_eq!(table.offset_at_utc(63_072_000), 10);
        let error = LeapTable::parse("2272060800 ten").unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
        let jump = LeapTable::parse("2272060800 10\n2287785600 13");
        assert_eq!(jump, Err(LeapTableError::Order { line: 2 }));
        assert_eq!(LeapTable::parse("# none"), Err(LeapTableError::Empty));
    }
}
