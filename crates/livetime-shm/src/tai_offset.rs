//! What TAI is ahead of UTC, as the kernel knows it or as it is built in.

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// TAI minus UTC since 2017-01-01 \[ns\]; no leap second has been announced since.
pub const BUILT_IN_TAI_MINUS_UTC_NS: u64 = 37_000_000_000;

const NS_PER_S: i64 = 1_000_000_000;
/// Readings of the clocks at most: two in a row that go wrong are rare on any machine.
const TRIES_MAX: u32 = 10;

/// TAI minus UTC \[ns\]: what a time daemon has told the kernel, else what is built in.
pub fn tai_minus_utc_ns() -> u64 {
    kernel_tai_minus_utc_ns().unwrap_or(BUILT_IN_TAI_MINUS_UTC_NS)
}

/// What the kernel adds to UTC \[ns\], unless that is 0, so that nobody has told it, or its clocks are
/// set all the time.
pub fn kernel_tai_minus_utc_ns() -> Option<u64> {
    let utc = || Some(clock_gettime(ClockId::Realtime));
    let tai = || clock_gettime_dynamic(DynamicClockId::Tai).ok();
    let seconds = whole_seconds(utc, tai)?;
    u64::try_from(seconds)
        .ok()
        .filter(|seconds| *seconds > 1)
        .map(|seconds| seconds * NS_PER_S as u64)
}

/// TAI minus UTC in whole seconds, of clocks that cannot be read at one moment: UTC before and UTC after
/// must say the same. Who is held up for long between two readings, or reads while the clocks are set,
/// reads again.
fn whole_seconds(
    mut utc: impl FnMut() -> Option<Timespec>,
    mut tai: impl FnMut() -> Option<Timespec>,
) -> Option<i64> {
    let ns = |time: Timespec| time.tv_sec * NS_PER_S + time.tv_nsec;
    for _ in 0..TRIES_MAX {
        let [before, tai, after] = [ns(utc()?), ns(tai()?), ns(utc()?)];
        let rounded = |utc: i64| (tai - utc + NS_PER_S / 2).div_euclid(NS_PER_S);
        if rounded(before) == rounded(after) {
            return Some(rounded(before));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_offset_is_whole_seconds_of_this_century() {
        let seconds = tai_minus_utc_ns() / 1_000_000_000;
        assert_eq!(tai_minus_utc_ns() % 1_000_000_000, 0);
        assert!((32..=60).contains(&seconds), "{seconds}");
    }

    /// The offset of clocks that say these, in milliseconds, and how many were read; UTC, TAI and UTC in
    /// turns.
    fn read(said_ms: &[i64]) -> (Option<i64>, usize) {
        let said = Cell::new(0);
        let next = || {
            let ms = said_ms.get(said.get())?;
            said.set(said.get() + 1);
            Some(Timespec {
                tv_sec: ms.div_euclid(1_000),
                tv_nsec: ms.rem_euclid(1_000) * 1_000_000,
            })
        };
        let seconds = whole_seconds(next, next);
        (seconds, said.get())
    }

    #[test]
    fn clocks_that_are_read_apart_or_set_meanwhile_are_read_again() {
        assert_eq!(read(&[5_000, 42_000, 5_000]), (Some(37), 3));
        assert_eq!(read(&[5_000, 42_400, 5_450]), (Some(37), 3));
        // Two seconds pass before TAI is read, and two behind it.
        let again = [15_000, 52_000, 15_000];
        let apart = [[5_000, 44_000, 7_000], [5_000, 42_000, 7_000]];
        // The clocks are set forth by five seconds, or back.
        let set = [
            [5_000, 47_000, 10_000],
            [5_000, 42_000, 10_000],
            [5_000, 37_000, 0],
        ];
        for first in apart.into_iter().chain(set) {
            assert_eq!(read(&[first, again].concat()), (Some(37), 6), "{first:?}");
        }
        // Another offset is told to the kernel.
        assert_eq!(read(&[5_000, 43_000, 5_000]), (Some(38), 3));
    }

    #[test]
    fn clocks_that_never_agree_are_not_believed() {
        let never = [5_000, 44_000, 7_000].repeat(100);
        assert_eq!(read(&never), (None, 3 * TRIES_MAX as usize));
        assert_eq!(read(&[5_000]), (None, 1), "there is no TAI");
    }
}
