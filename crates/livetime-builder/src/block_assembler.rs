//! Puts the fragments of blocks together again, at the receiver of [`crate::barrel_shifter`].
//!
//! Blocks of a sender carry numbers, so that one that is lost is noticed: the fragments of which a
//! piece was in it are broken, and the builder unit asks for them again. A [`BlockAssembler`] is for
//! one sender, [`BlockAssemblers`] for all of a builder unit: 20 bytes for each.

use livetime_wire::SourceId;

use crate::barrel_shifter::{Block, Piece};

/// What became of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AssemblyCounts {
    /// Blocks that came in order.
    pub blocks: u64,
    /// Blocks that never came, by the gaps in the sequence numbers.
    pub blocks_missing: u64,
    /// Blocks that came again or too late; they are passed over.
    pub blocks_repeated: u64,
    /// Fragments put together.
    pub fragments: u64,
    /// Fragments of which a piece is missing, or does not fit; the builder unit asks again.
    pub fragments_broken: u64,
}

/// What is known of one sender: the number of its next block, and the fragment of which a part is
/// here.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Sender {
    /// The low bits of its trigger, as on a link.
    trigger_low: u32,
    source: SourceId,
    next: u32,
    /// Bytes of the fragment that are here.
    had: u32,
    /// All of them; 0 where no fragment is begun, as one without bytes is whole at once.
    total: u32,
}

impl Sender {
    const FIRST: Self = Self {
        trigger_low: 0,
        source: SourceId(0),
        next: 0,
        had: 0,
        total: 0,
    };

    #[inline]
    fn handle_block(
        &mut self,
        block: &Block,
        counts: &mut AssemblyCounts,
        mut done: impl FnMut(Piece),
    ) {
        let ahead = block.sequence.wrapping_sub(self.next).cast_signed();
        if ahead < 0 {
            counts.blocks_repeated += 1;
            return;
        }
        if ahead > 0 {
            counts.blocks_missing += u64::from(ahead.cast_unsigned());
            self.give_up(counts);
        }
        self.next = block.sequence.wrapping_add(1);
        counts.blocks += 1;
        for piece in &block.pieces {
            self.take(piece, counts, &mut done);
        }
    }

    #[inline]
    fn take(&mut self, piece: &Piece, counts: &mut AssemblyCounts, done: &mut impl FnMut(Piece)) {
        let continues = self.total > 0
            && (self.trigger_low, self.source, self.total, self.had)
                == (piece.trigger.low(), piece.source, piece.total, piece.offset);
        if !continues {
            self.give_up(counts);
        }
        let had = core::mem::take(&mut self.had);
        self.total = 0;
        let end = piece.offset.checked_add(piece.bytes);
        let is_good = piece.offset == had && end.is_some_and(|end| end <= piece.total);
        if !is_good {
            // The end of one whose beginning was in a lost block, or nonsense.
            counts.fragments_broken += u64::from(end == Some(piece.total));
            return;
        }
        let bytes = had + piece.bytes;
        if bytes == piece.total {
            counts.fragments += 1;
            done(Piece {
                offset: 0,
                bytes,
                ..*piece
            });
        } else {
            (self.trigger_low, self.source) = (piece.trigger.low(), piece.source);
            (self.had, self.total) = (bytes, piece.total);
        }
    }

    /// The fragment that was begun will not become whole.
    #[inline]
    fn give_up(&mut self, counts: &mut AssemblyCounts) {
        counts.fragments_broken += u64::from(self.total > 0);
        (self.had, self.total) = (0, 0);
    }
}

/// Puts the fragments of one sender together again.
#[derive(Debug)]
pub struct BlockAssembler {
    sender: Sender,
    counts: AssemblyCounts,
}

impl Default for BlockAssembler {
    fn default() -> Self {
        Self::new()
    }
}

impl BlockAssembler {
    /// For a sender at its beginning.
    pub const fn new() -> Self {
        Self {
            sender: Sender::FIRST,
            counts: AssemblyCounts {
                blocks: 0,
                blocks_missing: 0,
                blocks_repeated: 0,
                fragments: 0,
                fragments_broken: 0,
            },
        }
    }

    /// Takes a block; calls `done` with each fragment that is whole: its last piece, whose offset
    /// and bytes are those of all of it.
    pub fn handle_block(&mut self, block: &Block, done: impl FnMut(Piece)) {
        self.sender.handle_block(block, &mut self.counts, done);
    }

    /// What it did.
    pub const fn counts(&self) -> &AssemblyCounts {
        &self.counts
    }
}

/// Puts the fragments of all senders of a builder unit together again.
#[derive(Debug)]
pub struct BlockAssemblers {
    senders: Vec<Sender>,
    counts: AssemblyCounts,
}

impl BlockAssemblers {
    /// For so many senders at their beginning.
    pub fn new(senders: usize) -> Self {
        Self {
            senders: vec![Sender::FIRST; senders],
            counts: AssemblyCounts::default(),
        }
    }

    /// Takes a block of a sender; `done` is as in [`BlockAssembler::handle_block`].
    ///
    /// # Panics
    /// If there is no such sender.
    #[inline]
    pub fn handle_block(&mut self, sender: usize, block: &Block, done: impl FnMut(Piece)) {
        self.senders[sender].handle_block(block, &mut self.counts, done);
    }

    /// Where a block of a sender is taken to, for drivers that read it ahead, from its beginning to its
    /// end: one in three is in two cache lines. What is there means nothing to them.
    #[inline]
    pub fn foresee(&self, sender: usize) -> Option<[&u32; 2]> {
        let sender = self.senders.get(sender)?;
        Some([&sender.trigger_low, &sender.total])
    }

    /// What it did, all senders together.
    pub const fn counts(&self) -> &AssemblyCounts {
        &self.counts
    }
}
