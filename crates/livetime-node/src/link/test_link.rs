//! The data link that tests send over, and its pages.

use livetime_readout::LinkConfig;
use livetime_shm::{HugePages, PagePool, PoolConfig};

/// Words of a page.
pub(super) const PAGE_WORDS: u32 = 256;
/// Pages of the link.
pub(super) const PAGES: u32 = 64;

pub(super) fn pool() -> PagePool {
    let config = PoolConfig {
        pages: PAGES,
        page_bytes: PAGE_WORDS * 4,
        huge_pages: HugePages::Never,
    };
    PagePool::create(&config).unwrap()
}

pub(super) fn config() -> LinkConfig {
    LinkConfig {
        page_words: PAGE_WORDS,
        pages: PAGES,
        xoff_below: 20,
        xon_above: 30,
        fragment_words_max: PAGE_WORDS * 16,
        ..LinkConfig::default()
    }
}
