//! The frame of a byte-stream event: all its words but the ROBs', and where each ROB goes.
//!
//! The ROBs of an imported event travel as the fragments of their links; everything else, the
//! headers of event, sub-detectors and ROSs and the records around the event, travels as one more
//! fragment from [`FRAME_SOURCE`]. With it and the ROBs the stream is put together again word for
//! word. The views of the stream are in [`crate::bytestream`].
//!
//! ```text
//! w0 0x4C544253  w1 version << 16  w2 words before  w3 words of the event without ROBs
//! w4 words after  w5 ROBs n        n times: source id, position in the event, words
//! then the words before, of the event, and after
//! ```

use crate::bytestream::{ByteStreamError, StreamPiece};
use crate::id::SourceId;

/// The source id of frames: of no detector.
pub const FRAME_SOURCE: SourceId = SourceId(0xFFFF_FF01);
/// First word.
pub const MAGIC: u32 = 0x4C54_4253;
/// Version.
pub const VERSION: u32 = 1;
/// Words before the table.
const FIXED_WORDS: usize = 6;
/// Words of an entry of the table.
const ENTRY_WORDS: usize = 3;

/// Where a ROB goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameEntry {
    /// Whose ROB.
    pub source: SourceId,
    /// Its position in the event's words.
    pub position: usize,
    /// Its words.
    pub words: usize,
}

/// Appends the frame of an event.
pub fn emit(piece: &StreamPiece<'_>, out: &mut Vec<u32>) {
    let event = piece.event.event().words();
    let robs = piece.event.robs();
    let of_robs: usize = robs.map(|(_, rob)| rob.words().len()).sum();
    out.extend_from_slice(&[
        MAGIC,
        VERSION << 16,
        piece.before.len() as u32,
        (event.len() - of_robs) as u32,
        piece.after.len() as u32,
        piece.event.robs().len() as u32,
    ]);
    for (position, rob) in piece.event.robs() {
        let words = rob.words().len() as u32;
        out.extend_from_slice(&[rob.source().0, position as u32, words]);
    }
    out.extend_from_slice(piece.before);
    let mut from = 0;
    for (position, rob) in piece.event.robs() {
        out.extend_from_slice(&event[from..position]);
        from = position + rob.words().len();
    }
    out.extend_from_slice(&event[from..]);
    out.extend_from_slice(piece.after);
}

/// A checked frame.
#[derive(Debug, Clone, Copy)]
pub struct FrameView<'a> {
    table: &'a [[u32; ENTRY_WORDS]],
    before: &'a [u32],
    event: &'a [u32],
    after: &'a [u32],
}

impl<'a> FrameView<'a> {
    /// Checks lengths, and that the ROBs lie in order and inside the event.
    ///
    /// # Errors
    /// [`ByteStreamError::Frame`] with the word that does not fit.
    pub fn new_checked(words: &'a [u32]) -> Result<Self, ByteStreamError> {
        let bad = |position: usize| {
            let found = words.get(position).copied().unwrap_or(0);
            Err(ByteStreamError::Frame { position, found })
        };
        let [magic, version, before, event, after, robs, ..] = *words else {
            return bad(0);
        };
        if magic != MAGIC {
            return bad(0);
        }
        if version != VERSION << 16 {
            return bad(1);
        }
        let lengths = [before, event, after].map(|words| words as usize);
        let table_words = robs as usize * ENTRY_WORDS;
        let total = lengths.iter().sum::<usize>() + FIXED_WORDS + table_words;
        if total != words.len() {
            return bad(5);
        }
        let (table, rest) = words[FIXED_WORDS..].split_at(table_words);
        let (table, _) = table.as_chunks::<ENTRY_WORDS>();
        let (before, rest) = rest.split_at(lengths[0]);
        let (event, after) = rest.split_at(lengths[1]);
        let frame = Self {
            table,
            before,
            event,
            after,
        };
        // `taken` words of the frame and `given` of ROBs stand before each position.
        let (mut taken, mut given) = (0, 0);
        for (index, entry) in frame.entries().enumerate() {
            let own = entry.position.checked_sub(given);
            let Some(own) = own.filter(|own| (taken..=event.len()).contains(own)) else {
                return bad(FIXED_WORDS + index * ENTRY_WORDS + 1);
            };
            taken = own;
            given += entry.words;
        }
        Ok(frame)
    }

    /// Where each ROB goes, in order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = FrameEntry> + 'a {
        self.table
            .iter()
            .map(|[source, position, words]| FrameEntry {
                source: SourceId(*source),
                position: *position as usize,
                words: *words as usize,
            })
    }

    /// Puts the stream's words together; `rob` gives each ROB's.
    ///
    /// # Errors
    /// The entry whose ROB is not there or has another length.
    pub fn rebuild<'r>(
        &self,
        mut rob: impl FnMut(SourceId) -> Option<&'r [u32]>,
        out: &mut Vec<u32>,
    ) -> Result<(), FrameEntry> {
        out.extend_from_slice(self.before);
        let (mut taken, mut given) = (0, 0);
        for entry in self.entries() {
            let words = rob(entry.source).filter(|words| words.len() == entry.words);
            let words = words.ok_or(entry)?;
            let own = entry.position - given;
            out.extend_from_slice(&self.event[taken..own]);
            out.extend_from_slice(words);
            taken = own;
            given += entry.words;
        }
        out.extend_from_slice(&self.event[taken..]);
        out.extend_from_slice(self.after);
        Ok(())
    }
}
