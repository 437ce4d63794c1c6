//! Pages of the shared pool as the cores see them: to be filled by one link, to be read by a unit.
//!
//! The pool's page states make sure that nobody reads what is being written; here the exclusive
//! writer and the shared readers are held for as long as a core works on a page.

use std::ops::Range;

use livetime_readout::{PageRead, PageStore};
use livetime_shm::{PageError, PageIndex, PagePool, PageReader, PageWriter};

/// The pages that one link fills, one at a time.
pub struct LinkPages {
    pool: PagePool,
    /// The clone that goes with the writer, while there is none.
    spare: Option<PagePool>,
    writer: Option<PageWriter>,
}

impl LinkPages {
    /// Pages of `pool`.
    pub fn new(pool: PagePool) -> Self {
        Self {
            spare: Some(pool.clone()),
            pool,
            writer: None,
        }
    }

    /// Hints that a page comes back soon.
    #[inline]
    pub fn prepare_to_release(&self, page: u32) {
        self.pool.prepare_to_release(PageIndex(page));
    }

    /// Makes all pages of a range writable again that nobody will return any more, since who had them
    /// is gone; `false` as long as one of them is read.
    pub fn free_range(&mut self, pages: Range<u32>) -> bool {
        // One that was being filled is given up with its writer.
        if self.writer.take().is_some() {
            self.spare = Some(self.pool.clone());
        }
        let mut is_any_read = false;
        for page in pages {
            let released = self.pool.release(PageIndex(page));
            is_any_read |= matches!(released, Err(PageError::InUse { .. }));
        }
        !is_any_read
    }

    /// Makes a page that came back writable again.
    ///
    /// # Errors
    /// When the page is still being read or was never filled: a page number that nobody may
    /// return now.
    #[inline]
    pub fn release(&self, page: u32) -> Result<(), PageError> {
        self.pool.release(PageIndex(page))
    }
}

/// Pages that a link fills and gets back.
pub trait LinkStore: PageStore {
    /// Makes a page that came back writable again; `false` for one that nobody may return now.
    fn take_back(&self, page: u32) -> bool;
}

impl LinkStore for LinkPages {
    #[inline]
    fn take_back(&self, page: u32) -> bool {
        self.release(page).is_ok()
    }
}

impl PageStore for LinkPages {
    #[inline]
    fn prepare(&mut self, page: u32, len_words: u32) {
        self.pool
            .prepare_to_write(PageIndex(page), len_words as usize);
    }

    #[inline]
    fn start(&mut self, page: u32) {
        let pool = self.spare.take();
        let pool = pool.expect("one page is filled at a time");
        let writer = pool
            .into_writer(PageIndex(page))
            .map_err(|(_, error)| error);
        self.writer = Some(writer.expect("a page of the receiver's own free list is free"));
    }

    #[inline]
    fn words_mut(&mut self, _page: u32) -> &mut [u32] {
        self.writer
            .as_mut()
            .expect("filling was started before words are written")
    }

    #[inline]
    fn finish(&mut self, _page: u32, _len_words: u32) {
        if let Some(writer) = self.writer.take() {
            let (_, pool) = writer.finish_into_pool();
            self.spare = Some(pool);
        }
    }
}

/// Pages of one pool held for reading, found by their number; a handful at a time.
pub struct HeldPages {
    pool: PagePool,
    readers: Vec<(u32, PageReader)>,
    /// The clones that go with the readers.
    spares: Vec<PagePool>,
}

impl HeldPages {
    /// Room for `pages` pages of `pool`; more are held at the cost of an allocation.
    pub fn new(pool: PagePool, pages: usize) -> Self {
        Self {
            readers: Vec::with_capacity(pages),
            spares: (0..pages).map(|_| pool.clone()).collect(),
            pool,
        }
    }

    /// Hints that a page will be held soon and its first words be read.
    #[inline]
    pub fn prepare(&self, page: u32, len_words: u32) {
        self.pool
            .prepare_to_read(PageIndex(page), len_words as usize);
    }

    /// Holds a page until [`HeldPages::clear`].
    ///
    /// # Errors
    /// When the page is not a filled one.
    pub fn hold(&mut self, page: u32) -> Result<(), PageError> {
        let pool = self.spares.pop().unwrap_or_else(|| self.pool.clone());
        match pool.into_reader(PageIndex(page)) {
            Ok(reader) => {
                self.readers.push((page, reader));
                Ok(())
            }
            Err((pool, error)) => {
                self.spares.push(pool);
                Err(error)
            }
        }
    }

    /// Lets all pages go.
    #[inline]
    pub fn clear(&mut self) {
        let readers = self.readers.drain(..);
        self.spares
            .extend(readers.map(|(_, reader)| reader.into_pool()));
    }

    /// Lets one page go.
    #[inline]
    pub fn drop_page(&mut self, page: u32) {
        while let Some(found) = self.readers.iter().position(|(held, _)| *held == page) {
            let (_, reader) = self.readers.swap_remove(found);
            self.spares.push(reader.into_pool());
        }
    }
}

impl PageRead for HeldPages {
    #[inline]
    fn words(&self, page: u32) -> &[u32] {
        // An empty slice makes the core refuse the fragment; it cannot happen for a held page.
        self.readers
            .iter()
            .find(|(held, _)| *held == page)
            .map_or(&[], |(_, reader)| reader)
    }
}
