//! The allocator's memory in huge pages, for programs that touch much of it at random.
//!
//! A processor knows where some thousand pages are; with 4 KiB each that is less than its cache
//! holds, and every other access first has to find out. Where an allocator takes its memory from the
//! end of the heap, as glibc's does on the first thread, what it has so far may be gathered in pages
//! of 2 MiB at any time. Memory of other allocators and threads is left alone.

use std::io;

use crate::mapping::HUGE_PAGE_BYTES;

/// Gathers the heap of this process in huge pages, as far as the kernel has any (Linux 6.1 and
/// later); returns its bytes, 0 where there is none or nothing could be gathered. What the allocator
/// has not used of it takes memory from now on, too. Takes about a millisecond for 10 MB.
pub fn heap_into_huge_pages() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Some(heap) = maps.lines().find_map(heap_of) else {
        return 0;
    };
    match gather(heap) {
        Ok(()) => heap.1,
        Err(_) => 0,
    }
}

/// Start and bytes of the whole huge pages of the heap, if this line is of it and has any.
fn heap_of(line: &str) -> Option<(usize, usize)> {
    let place = line.strip_suffix("[heap]")?.split(' ').next()?;
    let (start, end) = place.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let start = start.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
    let bytes = end.checked_sub(start)? / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    (bytes > 0).then_some((start, bytes))
}

fn gather((start, bytes): (usize, usize)) -> io::Result<()> {
    let start = std::ptr::without_provenance_mut(start);
    // SAFETY: the advice moves pages of memory that is ours to others and changes no contents, and
    // it reads or writes nothing through this address. A part that was given back meanwhile is
    // refused or nobody's.
    match unsafe { libc::madvise(start, bytes, libc::MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_found_among_mappings_and_cut_to_whole_huge_pages() {
        let line = "5607_02977000-560705a9e000 rw-p 00000000 00:00 0      [heap]";
        assert_eq!(heap_of(line), None, "no number");
        let line = line.replace('_', "");
        let (start, bytes) = heap_of(&line).unwrap();
        assert_eq!((start, bytes), (0x5607_02a0_0000, 24 * HUGE_PAGE_BYTES));
        assert!(start + bytes <= 0x5607_05a9_e000);
        for other in [
            "560702977000-560702a01000 rw-p 00000000 00:00 0      [heap]",
            "7ffd00000000-7ffd00800000 rw-p 00000000 00:00 0      [stack]",
            "7f0000000000-7f0000800000 rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(heap_of(other), None, "{other}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn what_is_in_the_heap_stays_what_it_was() {
        // Small pieces come from the heap, if this thread's allocator has one.
        let pieces: Vec<Vec<u64>> = (0..4096).map(|n| vec![n; 512]).collect();
        let gathered = heap_into_huge_pages();
        assert!(gathered.is_multiple_of(HUGE_PAGE_BYTES));
        for (n, piece) in (0..).zip(&pieces) {
            assert!(piece.iter().all(|word| *word == n));
        }
    }
}
