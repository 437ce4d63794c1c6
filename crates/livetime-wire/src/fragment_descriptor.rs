//! Where a received fragment lies: its pages are named, and its words are not copied.

use arrayvec::ArrayVec;

use crate::id::SourceId;
use crate::message::FRAGMENT_PAGES_MAX;
use crate::slink::FragmentStatus;

/// Where a received fragment lies and what is known of it.
#[derive(Debug, PartialEq, Eq)]
pub struct FragmentDescriptor {
    /// Who sent it.
    pub source: SourceId,
    /// The readout unit whose pool the pages belong to.
    pub pool: u16,
    /// Number of words.
    pub words: u32,
    /// What the receiver found.
    pub status: FragmentStatus,
    /// CRC-32C over all its words, as received; 0 where it was not computed.
    pub crc: u32,
    /// Its pages in order; all but the last are full.
    pub pages: ArrayVec<u32, FRAGMENT_PAGES_MAX>,
}

impl FragmentDescriptor {
    /// The CRC that its words are to be compared with; `None` where its link is trusted, so that
    /// nobody has computed one. A sound fragment never has 0: behind the CRC that it carries itself,
    /// that of all its words depends on their number alone, and is 0 for none below 15 GB.
    #[inline]
    pub fn known_crc(&self) -> Option<u32> {
        (self.crc != 0).then_some(self.crc)
    }
}

impl Clone for FragmentDescriptor {
    /// Copies the page numbers at once; one by one, as a list of anything clones, takes several times
    /// as long.
    #[inline]
    fn clone(&self) -> Self {
        let mut pages = ArrayVec::new_const();
        // The same list has room for them.
        let _fits = pages.try_extend_from_slice(&self.pages);
        Self { pages, ..*self }
    }
}
