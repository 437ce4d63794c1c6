//! Pages of the shared pool as the cores see them: to be filled by one link, to be read by a unit.
//!
//! The pool's page states make sure that nobody reads what is being written; here the exclusive
//! writer and the shared readers are held for as long as a core works on a page.

use livetime_readout::{PageRead, PageStore};
use livetime_shm::{PageError, PageIndex, PagePool, PageReader, PageWriter};

/// The pages that one link fills, one at a time.
pub struct LinkPages {
    pool: PagePool,
    writer: Option<PageWriter>,
}

impl LinkPages {
    /// Pages of `pool`.
    pub fn new(pool: PagePool) -> Self {
        Self { pool, writer: None }
    }

    /// Makes a page that came back writable again.
    ///
    /// # Errors
    /// When the page is still being read or was never filled: a page number that nobody may
    /// return now.
    pub fn release(&self, page: u32) -> Result<(), PageError> {
        self.pool.release(PageIndex(page))
    }
}

impl PageStore for LinkPages {
    fn start(&mut self, page: u32) {
        let writer = self.pool.write(PageIndex(page));
        self.writer = Some(writer.expect("a page of the receiver's own free list is free"));
    }

    fn words_mut(&mut self, _page: u32) -> &mut [u32] {
        self.writer
            .as_mut()
            .expect("filling was started before words are written")
    }

    fn finish(&mut self, _page: u32, _len_words: u32) {
        if let Some(writer) = self.writer.take() {
            writer.finish();
        }
    }
}

/// Pages held for reading, found by their number; a handful at a time.
#[derive(Default)]
pub struct HeldPages {
    readers: Vec<(u32, PageReader)>,
}

impl HeldPages {
    /// Room for `pages` pages.
    pub fn with_capacity(pages: usize) -> Self {
        Self {
            readers: Vec::with_capacity(pages),
        }
    }

    /// Holds a page until [`HeldPages::clear`].
    ///
    /// # Errors
    /// When the page is not a filled one.
    pub fn hold(&mut self, pool: &PagePool, page: u32) -> Result<(), PageError> {
        let reader = pool.read(PageIndex(page))?;
        self.readers.push((page, reader));
        Ok(())
    }

    /// Lets all pages go.
    pub fn clear(&mut self) {
        self.readers.clear();
    }

    /// Lets one page go.
    pub fn drop_page(&mut self, page: u32) {
        self.readers.retain(|(held, _)| *held != page);
    }
}

impl PageRead for HeldPages {
    fn words(&self, page: u32) -> &[u32] {
        // An empty slice makes the core refuse the fragment; it cannot happen for a held page.
        self.readers
            .iter()
            .find(|(held, _)| *held == page)
            .map_or(&[], |(_, reader)| reader)
    }
}
