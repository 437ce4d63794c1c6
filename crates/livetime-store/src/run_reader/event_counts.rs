//! How many events of a file were found, and how many are known to be missing.
//!
//! The end-of-run record and the summary tell the events of the whole file. Where neither is left, a
//! chunk's mark tells how many came before it, and behind the last whole chunk only damaged events
//! tell that they were there. Nothing is read here: numbers are right once all events were read.

use std::io::{Read, Seek};

use super::{ChunkPlace, RunReader};

impl<R: Read + Seek> RunReader<R> {
    /// Whole events, as far as the chunks were read; with [`RunReader::events_missing`] those that
    /// are known to have been stored.
    pub fn events_found(&self) -> u64 {
        self.chunks.iter().map(ChunkPlace::events_found).sum()
    }

    /// Events that were found in damaged chunks, as far as these were read.
    pub fn events_salvaged(&self) -> u64 {
        self.chunks.iter().map(|place| place.events_salvaged).sum()
    }

    /// Events that are there and damaged, as far as chunks were read, and whole nowhere else.
    pub fn events_damaged(&self) -> u64 {
        let in_whole: u64 = self.chunks.iter().map(|place| place.events_damaged).sum();
        in_whole.saturating_add(self.known.damaged_from(0))
    }

    /// Events known to be missing or damaged, as far as the chunks read so far tell: by the
    /// end-of-run record or the summary, else by what the last chunk says came before it and the events
    /// that are there and damaged behind it. Of a repaired copy those of the file that it was made from
    /// are among them.
    ///
    /// Right once all events were read.
    pub fn events_missing(&self) -> u64 {
        let end = self.end.as_ref();
        let by_end = end.map(|end| end.events_stored);
        let (by_marks, last_good) = self.events_by_marks();
        // Less than the marks tell is told by a record of another file.
        let stored = by_end.or(self.events_by_summary);
        let stored = stored.filter(|stored| *stored >= by_marks);
        let missing = match stored {
            Some(stored) => stored.saturating_sub(self.events_found()),
            None => {
                let behind = last_good.map_or(0, |last| last + 1);
                // What was salvaged behind the last mark is in no sum of marks.
                let counted = self.chunks.get(..behind).unwrap_or_default().iter();
                let found: u64 = counted.map(ChunkPlace::events_found).sum();
                let damaged = self.known.damaged_from(behind);
                by_marks.saturating_sub(found).saturating_add(damaged)
            }
        };
        let before = end.map_or(0, |end| end.events_missing);
        missing.saturating_add(before)
    }

    /// Events up to the end of the whole chunk that knows of most, and which one that is.
    fn events_by_marks(&self) -> (u64, Option<usize>) {
        let mut most = (0, None);
        for (chunk, place) in self.chunks.iter().enumerate() {
            let Some(content) = place.good() else {
                continue;
            };
            let known = content.mark.events_before.saturating_add(content.events);
            if most.1.is_none() || known >= most.0 {
                most = (known, Some(chunk));
            }
        }
        most
    }
}
