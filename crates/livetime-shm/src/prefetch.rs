//! Hints to the processor: bring a cache line here before it is needed.
//!
//! A line that another core wrote last takes 50 to 250 ns to come, and a locked instruction lets
//! nothing behind it start meanwhile; asked for ahead, several lines come at the same time. A hint
//! changes nothing that a program can see. Who knows what comes next says so through
//! [`crate::page_pool`] and [`mod@crate::ring`]; of what is not shared, with [`bring`].

use std::ptr::NonNull;

/// Bytes that move together between cores.
pub(crate) const CACHE_LINE: usize = 64;

/// Asks the processor to have the beginning of `place` at hand soon, for programs that touch more
/// memory than fits into the cache and know which. Other than with a read, nothing waits for it.
#[inline]
pub fn bring<T>(place: &T) {
    for_reading(NonNull::from(place).cast());
}

/// As [`bring`], for the first `bytes` of `place`, or all of it where it has fewer.
#[inline]
pub fn bring_first<T>(place: &T, bytes: usize) {
    let start = NonNull::from(place).cast::<u8>().as_ptr();
    for offset in (0..bytes.min(size_of::<T>())).step_by(CACHE_LINE) {
        if let Some(line) = NonNull::new(start.wrapping_add(offset)) {
            for_reading(line);
        }
    }
}

/// Asks the processor to own the cache line of `address` soon.
#[inline]
pub(crate) fn for_writing(address: NonNull<u8>) {
    // The intrinsic of the standard library becomes a prefetch for reading on baseline x86-64.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that changes no memory or flags and faults on no address; processors that do
    // not know it ignore it.
    unsafe {
        std::arch::asm!(
            "prefetchw [{line}]",
            line = in(reg) address.as_ptr(),
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Asks the processor to have the cache line of `address` at hand soon.
#[inline]
pub(crate) fn for_reading(address: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as in `for_writing`.
    unsafe {
        std::arch::asm!(
            "prefetcht0 [{line}]",
            line = in(reg) address.as_ptr(),
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hint shows in nothing but time: what is left to test is that it goes nowhere else.
    #[test]
    fn hints_change_nothing_and_end_where_the_place_does() {
        let place = [7_u64; 40];
        for bytes in [0, 1, 64, 65, 320, usize::MAX] {
            bring_first(&place, bytes);
        }
        bring_first(&(), usize::MAX);
        bring(&place);
        assert_eq!(place, [7; 40]);
    }
}
