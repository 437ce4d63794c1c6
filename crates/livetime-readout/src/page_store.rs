//! Access to page memory, given to the state machines on each call.
//!
//! Nothing here owns pages of the real chain: there the store is a shared page pool whose writers
//! are taken when filling starts and given up when it ends. [`HeapPages`] is the store of
//! simulations, tests and benches. Who fills and reads: [`crate::link_destination`] and
//! [`crate::fragment_assembler`].

/// Pages that can be filled.
///
/// For each page the calls come in the order `start`, any number of `words_mut`, `finish`; at most
/// one page per link is between `start` and `finish`.
pub trait PageStore {
    /// `page` will be filled after the present one, with about `len_words` words: time to get its
    /// memory ready. A hint, which the default ignores.
    #[inline]
    fn prepare(&mut self, page: u32, len_words: u32) {
        let _ = (page, len_words);
    }

    /// Filling of `page` begins: a store that hands out exclusive writers takes one here.
    #[inline]
    fn start(&mut self, page: u32) {
        let _ = page;
    }

    /// The whole page. Its length must not change while the page is being filled.
    fn words_mut(&mut self, page: u32) -> &mut [u32];

    /// Filling has ended with `len_words` words; the page is read from now on.
    #[inline]
    fn finish(&mut self, page: u32, len_words: u32) {
        let _ = (page, len_words);
    }
}

/// Pages that can be read.
pub trait PageRead {
    /// At least the words that were written to the page.
    fn words(&self, page: u32) -> &[u32];
}

/// Pages of equal size in one heap allocation.
#[derive(Debug, Clone)]
pub struct HeapPages {
    words: Vec<u32>,
    page_words: usize,
    first_page: u32,
}

impl HeapPages {
    /// `pages` pages of `page_words` words each, numbered from `first_page`.
    pub fn new(first_page: u32, pages: u32, page_words: u32) -> Self {
        Self {
            words: vec![0; pages as usize * page_words as usize],
            page_words: page_words as usize,
            first_page,
        }
    }

    #[inline]
    fn range(&self, page: u32) -> core::ops::Range<usize> {
        let start = (page - self.first_page) as usize * self.page_words;
        start..start + self.page_words
    }
}

impl PageStore for HeapPages {
    #[inline]
    fn words_mut(&mut self, page: u32) -> &mut [u32] {
        let range = self.range(page);
        &mut self.words[range]
    }
}

impl PageRead for HeapPages {
    #[inline]
    fn words(&self, page: u32) -> &[u32] {
        &self.words[self.range(page)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_apart_and_numbered_from_the_first() {
        let mut pages = HeapPages::new(10, 2, 3);
        pages.words_mut(10).fill(1);
        pages.words_mut(11)[2] = 5;
        assert_eq!(pages.words(10), [1, 1, 1]);
        assert_eq!(pages.words(11), [0, 0, 5]);
    }
}
