//! What TAI is ahead of UTC, as the kernel knows it or as it is built in.

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// TAI minus UTC since 2017-01-01 \[ns\]; no leap second has been announced since.
pub const BUILT_IN_TAI_MINUS_UTC_NS: u64 = 37_000_000_000;

/// TAI minus UTC \[ns\]: what a time daemon has told the kernel, else what is built in.
pub fn tai_minus_utc_ns() -> u64 {
    kernel_tai_minus_utc_ns().unwrap_or(BUILT_IN_TAI_MINUS_UTC_NS)
}

/// What the kernel adds to UTC \[ns\], unless that is 0: nobody has told it.
pub fn kernel_tai_minus_utc_ns() -> Option<u64> {
    let utc = clock_gettime(ClockId::Realtime);
    let tai = clock_gettime_dynamic(DynamicClockId::Tai).ok()?;
    let ns = |time: Timespec| time.tv_sec * 1_000_000_000 + time.tv_nsec;
    // A moment passes between the two, and the offset is whole seconds.
    let seconds = (ns(tai) - ns(utc)) / 1_000_000_000;
    u64::try_from(seconds)
        .ok()
        .filter(|seconds| *seconds > 1)
        .map(|seconds| seconds * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_whole_seconds_of_this_century() {
        let seconds = tai_minus_utc_ns() / 1_000_000_000;
        assert_eq!(tai_minus_utc_ns() % 1_000_000_000, 0);
        assert!((32..=60).contains(&seconds), "{seconds}");
    }
}
