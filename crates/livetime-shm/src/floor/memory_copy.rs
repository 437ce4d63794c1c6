//! The floor of every throughput: `memcpy` cycling through the pages of a pool.

use std::time::Instant;

use super::FloorError;
use crate::page_pool::{PageIndex, PagePool, PageWriter};

/// Result of a copy measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryCopy {
    /// Bytes copied, each counted once.
    pub bytes: u64,
    /// Time taken in nanoseconds.
    pub elapsed_ns: u64,
    /// Pages cycled through: all that were free.
    pub pages: u32,
}

impl MemoryCopy {
    /// Bytes per second, each byte counted once.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Decimal gigabytes per second.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes_per_s() / 1e9
    }
}

/// Copies at least `bytes` bytes, a whole page at a time, from one private buffer into the free
/// pages of `pool` in turn. The pages are free again afterwards.
///
/// The pages are taken before the clock starts: no state word is touched while it runs.
///
/// # Errors
/// [`FloorError::NoFreePage`] when every page is in use.
pub fn memcpy_through_pool(pool: &PagePool, bytes: u64) -> Result<MemoryCopy, FloorError> {
    let mut pages: Vec<PageWriter> = (0..pool.page_count())
        .filter_map(|index| pool.write(PageIndex(index)).ok())
        .collect();
    if pages.is_empty() {
        return Err(FloorError::NoFreePage);
    }
    let source: Vec<u32> = (0..pool.page_words() as u32).collect();
    let page_bytes = (pool.page_words() * size_of::<u32>()) as u64;
    let copies = bytes.div_ceil(page_bytes).max(1);

    let start = Instant::now();
    let mut left = copies;
    while left > 0 {
        for page in pages
            .iter_mut()
            .take(usize::try_from(left).unwrap_or(usize::MAX))
        {
            page.copy_from_slice(std::hint::black_box(&source));
            std::hint::black_box(&mut page[..]);
            left -= 1;
        }
    }
    let elapsed_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let pages = u32::try_from(pages.len()).unwrap_or(u32::MAX);
    Ok(MemoryCopy {
        bytes: copies * page_bytes,
        elapsed_ns,
        pages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::HugePages;
    use crate::page_pool::PoolConfig;

    #[test]
    fn free_pages_are_copied_through_and_given_back() {
        let config = PoolConfig {
            pages: 4,
            page_bytes: 4096,
            huge_pages: HugePages::Never,
        };
        let pool = PagePool::create(&config).unwrap();
        let taken = pool.write(PageIndex(2)).unwrap().finish();
        let copy = memcpy_through_pool(&pool, 40_000).unwrap();
        assert_eq!((copy.bytes, copy.pages), (40_960, 3));
        assert!(copy.gb_per_s() > 0.0);
        assert_eq!((pool.counts().free, pool.counts().filled), (3, 1));
        pool.release(taken).unwrap();
        let words = pool.write(PageIndex(3)).unwrap();
        assert_eq!(words[1023], 1023, "the copy has really been made");
    }

    #[test]
    fn a_pool_in_full_use_is_no_floor() {
        let config = PoolConfig {
            pages: 1,
            page_bytes: 64,
            huge_pages: HugePages::Never,
        };
        let pool = PagePool::create(&config).unwrap();
        let _writer = pool.write(PageIndex(0)).unwrap();
        assert!(matches!(
            memcpy_through_pool(&pool, 1),
            Err(FloorError::NoFreePage)
        ));
    }
}
