//! Chunks that lie at another place of the file than they were written to, as when a disk or a
//! file system gives blocks back in another order.
//!
//! A scan takes each chunk wherever it lies; they are read in the order in which they were written.
//! A summary tells old places. Whoever reads the events one after the other asks first whether these
//! hold, by the headers and marks of the chunks, and has the file scanned where not. Whoever asks for
//! single events does so at the first one that is not where the index says: `moved_event`.

use std::io::{self, Read, Seek, SeekFrom};

use super::doubles::KnownTriggers;
use super::moved_event::MovedEvents;
use super::{ChunkPlace, IndexOrigin, RunReader};
use crate::damage::DamageReason;
use crate::mcap_record::{CHUNK_HEADER_BYTES, ChunkHeader, MESSAGE_HEADER_BYTES};
use crate::run_chunk::{ChunkMark, MARK_BYTES, Preamble};
use crate::run_scan::{Gap, Scan, ScannedChunk, Wanted, scan};

impl ChunkPlace {
    /// The chunks and gaps of a scan, in the order in which they were written: a gap comes before
    /// the chunk that it lies before.
    pub(super) fn of_scan(chunks: &[ScannedChunk], gaps: &[Gap]) -> Vec<Self> {
        let chunks = chunks.iter().map(Self::from);
        let mut places: Vec<Self> = chunks.chain(gaps.iter().map(Self::from)).collect();
        places.sort_by_key(|place| place.offset);
        let mut next_sequence = u64::MAX;
        let mut keyed: Vec<(u64, Self)> = Vec::with_capacity(places.len());
        for place in places.into_iter().rev() {
            let sequence = place.content.map(|content| content.mark.sequence);
            next_sequence = sequence.unwrap_or(next_sequence);
            keyed.push((next_sequence, place));
        }
        keyed.sort_by_key(|(sequence, place)| (*sequence, place.offset));
        keyed.into_iter().map(|(_, place)| place).collect()
    }
}

impl<R: Read + Seek> RunReader<R> {
    /// Scans the file if its summary names places at which other chunks lie, or none; reading
    /// starts anew then. It looks once; after an error it goes on where that came.
    pub(crate) fn find_displaced(&mut self) -> io::Result<()> {
        if self.origin != IndexOrigin::Summary || self.places_compared {
            self.read_told()?;
            return self.read_records();
        }
        if !self.has_displaced()? {
            self.places_compared = true;
            return Ok(());
        }
        let wanted = self.wanted();
        let found = scan(&mut self.input, 0, wanted)?;
        let mut entries = found.damage.entries().iter();
        if entries.any(|damage| damage.reason == DamageReason::ScanBudget) {
            // The places of the summary are more than what was read.
            self.places_compared = true;
            return Ok(());
        }
        let index_place = self.index_place;
        self.take_scan(found);
        self.told_place = index_place.filter(|_| !matches!(self.wanted(), Wanted::AnyRun));
        // With its summary the file is not being written any more.
        self.with_cut_end = true;
        self.read_told()?;
        self.read_records()
    }

    /// Reads the index of a file whose chunks are not at their places: where no message is left around
    /// an event, it may still be where it was written to.
    fn read_told(&mut self) -> io::Result<()> {
        if self.told_place.is_none() {
            return Ok(());
        }
        self.index_place = self.told_place;
        let told = self.read_index();
        // No other event is at the place that it tells.
        self.index_place = None;
        self.told = told?;
        self.told_place = None;
        Ok(())
    }

    /// Reads from now on what a scan of the whole file has found.
    pub(super) fn take_scan(&mut self, found: Scan) {
        self.origin = IndexOrigin::Scan;
        if let Some(first) = found.chunks.first() {
            self.identity = Some(first.content.mark.identity);
        }
        self.chunks = ChunkPlace::of_scan(&found.chunks, &found.gaps);
        self.input_bytes = found.input_bytes;
        self.is_closed = found.is_closed;
        self.take_damage(found.damage);
        self.index_place = None;
        self.index_is_wrong = false;
        self.summary_start = None;
        self.index = None;
        self.index_of_whole = None;
        self.records_read = false;
        self.begin = None;
        self.end = None;
        self.loaded = None;
        self.salvaged = None;
        self.known = KnownTriggers::default();
        self.moved = MovedEvents::default();
        self.cursor = (0, 0);
    }

    /// Whether a chunk cannot be read at its place, and no header of one of its size is there; or
    /// one is there that was written before one that lies before it.
    fn has_displaced(&mut self) -> io::Result<bool> {
        self.loaded = None;
        self.salvaged = None;
        let mut highest = None;
        for at in 0..self.chunks.len() {
            let place = self.chunks[at];
            if place.offset.saturating_add(place.record_bytes()) > self.input_bytes {
                continue;
            }
            let (header, mark) = self.start_of(place)?;
            let agrees = header.is_some_and(|header| header.data_bytes == place.data_bytes);
            if !agrees && self.load_verified(place)?.is_err() {
                return Ok(true);
            }
            let sequence = mark.map(|mark| mark.sequence);
            // What looks like a mark is one if the checksum of the chunk says so.
            if sequence.is_some() && sequence < highest && self.load_verified(place)?.is_ok() {
                return Ok(true);
            }
            highest = highest.max(sequence);
        }
        Ok(false)
    }

    /// The header of the chunk at a place, and its mark, as far as they can be read; the mark is not
    /// verified.
    fn start_of(
        &mut self,
        place: ChunkPlace,
    ) -> io::Result<(Option<ChunkHeader>, Option<ChunkMark>)> {
        let mark_at = CHUNK_HEADER_BYTES + Preamble::get().bytes() + MESSAGE_HEADER_BYTES;
        let there = place.record_bytes().min((mark_at + MARK_BYTES) as u64);
        let mut start = vec![0; there as usize];
        self.input.seek(SeekFrom::Start(place.offset))?;
        self.input.read_exact(&mut start)?;
        let header = start.first_chunk().and_then(ChunkHeader::parse);
        let mark = start.get(mark_at..).and_then(ChunkMark::parse);
        Ok((header, mark))
    }
}
