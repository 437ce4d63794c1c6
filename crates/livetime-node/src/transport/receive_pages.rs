//! The pages that a link fills with what comes, and those of them that are free.
//!
//! Whoever reads them says when they are free again. A unit that takes the place of one that died
//! finds pages that others still read; it takes them as they are given up.

use livetime_shm::{PageError, PageIndex, PagePool, PageState, PageWriter};

/// Pages for what comes: a pool of the receiver, and those of its pages that are free.
pub struct ReceivePages {
    pool: PagePool,
    index: u16,
    free: Vec<u32>,
    /// Pages that were still read when they came here: those of a former life of the receiver.
    inherited: Vec<u32>,
}

impl ReceivePages {
    /// The pages of `pool`; messages will name it as pool `index`. What a former receiver filled
    /// and nobody reads is free.
    pub fn new(pool: PagePool, index: u16) -> Self {
        let mut pages = Self {
            free: Vec::with_capacity(pool.page_count() as usize),
            inherited: (0..pool.page_count()).collect(),
            pool,
            index,
        };
        pages.inherit();
        pages
    }

    /// Takes inherited pages that nobody reads any more.
    fn inherit(&mut self) {
        let Self {
            pool,
            free,
            inherited,
            ..
        } = self;
        inherited.retain(|page| {
            let at = PageIndex(*page);
            let is_free = match pool.state(at) {
                Ok(PageState::Free) => true,
                Ok(PageState::Filled) => pool.release(at).is_ok(),
                _ => false,
            };
            if is_free {
                free.push(*page);
            }
            !is_free
        });
    }

    /// A free page to be written; none when all are in use.
    pub(super) fn take(&mut self) -> Option<PageWriter> {
        if self.free.is_empty() && !self.inherited.is_empty() {
            self.inherit();
        }
        loop {
            let page = self.free.pop()?;
            // One that is not free after all is another's, and not used here again.
            if let Ok(writer) = self.pool.write(PageIndex(page)) {
                return Some(writer);
            }
        }
    }

    /// A page that was taken and is not filled.
    pub(super) fn give_back_unfilled(&mut self, writer: PageWriter) {
        self.free.push(writer.page().0);
    }

    /// A page is not needed any more and may be filled again, once nobody reads it.
    ///
    /// # Errors
    /// [`PageError`] for a page that was not filled; it is not taken back then.
    pub fn give_back(&mut self, page: u32) -> Result<(), PageError> {
        match self.pool.release(PageIndex(page)) {
            Ok(()) => self.free.push(page),
            Err(PageError::InUse { .. }) => self.inherited.push(page),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Number of free pages.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The pool.
    pub fn pool(&self) -> &PagePool {
        &self.pool
    }

    /// How messages name the pool.
    pub(super) fn index(&self) -> u16 {
        self.index
    }
}
