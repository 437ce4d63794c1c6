//! Pages that a builder unit needs no more, where its transport puts payload into pages of its own.
//!
//! Within one machine fragments stay in the pages of their readout units, which free them at the
//! release. A network link fills pages of the receiver; only the core knows when the event in them is
//! done, and which fragments it did not want: repeated, late and refused ones.

use std::collections::VecDeque;

use livetime_wire::message::FragmentDescriptor;

use super::BuilderUnit;

impl BuilderUnit {
    /// From here on [`BuilderUnit::poll_freed_page`] names pages that are not needed any more.
    /// `pages` is the size of the pool that fragments come in, and the bound of what waits.
    pub fn report_freed_pages(&mut self, pages: usize) {
        self.freed_pages = Some(VecDeque::with_capacity(pages));
    }

    /// The next page that came with a fragment and is not needed any more: its event is cleared, or
    /// the fragment belongs to none here. Each is named once.
    pub fn poll_freed_page(&mut self) -> Option<u32> {
        self.freed_pages.as_mut()?.pop_front()
    }

    /// A fragment that is not placed.
    pub(super) fn free_pages(&mut self, fragment: &FragmentDescriptor) {
        if let Some(freed) = &mut self.freed_pages {
            freed.extend(&fragment.pages);
        }
    }

    /// An event leaves its slot.
    pub(super) fn vacate(&mut self, slot: u32) {
        if let Some(freed) = &mut self.freed_pages {
            freed.extend(self.assembly.pages(slot));
        }
        self.assembly.close(slot);
    }
}
