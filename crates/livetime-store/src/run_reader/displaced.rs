//! Chunks that lie at another place of the file than they were written to, as when a disk or a
//! file system gives blocks back in another order.
//!
//! A scan takes each chunk wherever it lies; they are read in the order in which they were written.
//! A summary tells old places. Whoever reads the whole file asks whether these hold, by the headers
//! of the chunks, and has it scanned where not: if chunks are found at other places, the scan is
//! believed, else the chunks at theirs are damaged. Whoever reads single events does not: of chunks at
//! a wrong place they get what is whole and lies in one piece, and what is missing is told.

use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};

use super::doubles::KnownTriggers;
use super::{ChunkPlace, IndexOrigin, RunReader};
use crate::mcap_record::{CHUNK_HEADER_BYTES, ChunkHeader};
use crate::run_scan::{Gap, Scan, ScannedChunk, scan};

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
    /// starts anew then.
    pub(crate) fn find_displaced(&mut self) -> io::Result<()> {
        if self.origin != IndexOrigin::Summary || !self.has_displaced()? {
            return Ok(());
        }
        let found = scan(&mut self.input, 0, self.identity)?;
        let places = self
            .chunks
            .iter()
            .map(|place| (place.offset, place.data_bytes));
        let told: BTreeSet<(u64, u64)> = places.collect();
        let mut chunks = found.chunks.iter();
        if chunks.all(|chunk| told.contains(&(chunk.offset, chunk.data_bytes))) {
            return Ok(());
        }
        self.take_scan(found);
        // With its summary the file is not being written any more.
        self.with_cut_end = true;
        self.read_records()
    }

    /// Reads from now on what a scan of the whole file has found.
    pub(super) fn take_scan(&mut self, found: Scan) {
        self.origin = IndexOrigin::Scan;
        self.chunks = ChunkPlace::of_scan(&found.chunks, &found.gaps);
        self.damage = found.damage;
        self.index_place = None;
        self.summary_start = None;
        self.index = None;
        self.begin = None;
        self.end = None;
        self.loaded = None;
        self.salvaged = None;
        self.known = KnownTriggers::default();
        self.cursor = (0, 0);
    }

    /// Whether a chunk cannot be read at its place, and no header of one of its size is there.
    fn has_displaced(&mut self) -> io::Result<bool> {
        self.loaded = None;
        self.salvaged = None;
        for at in 0..self.chunks.len() {
            let place = self.chunks[at];
            if place.offset.saturating_add(place.record_bytes()) > self.input_bytes {
                continue;
            }
            let mut header = [0; CHUNK_HEADER_BYTES];
            self.input.seek(SeekFrom::Start(place.offset))?;
            self.input.read_exact(&mut header)?;
            let header = ChunkHeader::parse(&header);
            let agrees = header.is_some_and(|header| header.data_bytes == place.data_bytes);
            if !agrees && self.load_verified(place)?.is_err() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
