//! Finds the chunks of a run file in any bytes: cut off, bit-flipped, with garbage between.
//!
//! The scan trusts no length that no CRC covers: after each chunk it searches byte by byte for
//! the next header that does not contradict itself, and takes the chunk if its CRC agrees and it
//! carries the mark of this run and a sequence number that was not there before. So a chunk inside
//! an event's payload, or of an older file on the same disk, is not taken, and one that lies at
//! another place than it was written to is. It uses memory for the
//! largest chunk and the list of chunks, both bounded by the length of the input, and time bounded
//! by [`SCAN_BUDGET_PASSES`] times that. It does not look into events: [`crate::run_reader`] does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek, SeekFrom};

use livetime_wire::RunNumber;

use crate::chunk_data::ChunkData;
use crate::damage::{Damage, DamageList, DamageReason};
use crate::file_tail::FileTail;
use crate::mcap_record::{CHUNK_HEADER_BYTES, ChunkHeader, MAGIC, RECORD_HEADER_BYTES, crc32, op};
use crate::run_chunk::{Channel, ChunkContent, RunIdentity};

/// How often the length of the input may be read again for chunks that turn out false.
pub const SCAN_BUDGET_PASSES: u64 = 4;
/// And a floor to that, for short inputs.
const SCAN_BUDGET_BYTES_MIN: u64 = 64 << 20;
const WINDOW_BYTES_MIN: u64 = 4 << 10;
const WINDOW_BYTES_MAX: u64 = 256 << 10;
/// Most records between two chunks: one message index per channel, or the records of the tail.
const RECORDS_BETWEEN_MAX: usize = 64;
/// Most bytes of a gap that are searched for events at once; an event across pieces is not found.
pub const GAP_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a message index before its entries: channel, and bytes of the entries.
const MESSAGE_INDEX_FIXED_BYTES: usize = 6;
/// Most false chunks that are remembered for the report.
const FALSE_CHUNKS_MAX: usize = 4096;

/// A chunk whose CRC agrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScannedChunk {
    /// Where its record starts.
    pub offset: u64,
    /// Bytes of its data.
    pub data_bytes: u64,
    /// What it holds.
    pub content: ChunkContent,
}

impl ScannedChunk {
    /// Where the chunk ends.
    pub fn end(&self) -> u64 {
        self.offset + CHUNK_HEADER_BYTES as u64 + self.data_bytes
    }
}

/// Bytes between chunks that may hold events: a damaged chunk, or one that is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// Whether it goes on to the end of a file that was not closed, where a chunk may still be being
    /// written.
    pub at_end: bool,
}

/// The result of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// The chunks of one run file, in the order of the file.
    pub chunks: Vec<ScannedChunk>,
    /// What was passed over.
    pub damage: DamageList,
    /// What of it may hold events, in the order of the file; at most [`GAP_BYTES_MAX`] in a piece.
    pub gaps: Vec<Gap>,
    /// Bytes of the input.
    pub input_bytes: u64,
    /// Whether the file ends as one that was closed.
    pub is_closed: bool,
}

/// What is known of the file whose chunks are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: the file that most bytes belong to.
    AnyRun,
    /// Its run alone, as an event tells it: of the files of that run, the one that most bytes belong to.
    Run(RunNumber),
    /// All.
    File(RunIdentity),
}

impl Wanted {
    /// Whether a chunk with this mark may be one of the file's.
    pub(crate) fn admits(self, identity: RunIdentity) -> bool {
        match self {
            Self::AnyRun => true,
            Self::Run(run) => run == identity.run,
            Self::File(wanted) => wanted == identity,
        }
    }
}

/// Scans the input from byte `from` on for chunks of one run file.
///
/// # Errors
/// Only errors of the input; damage is reported in the result.
pub fn scan<R: Read + Seek>(input: &mut R, from: u64, wanted: Wanted) -> io::Result<Scan> {
    let input_bytes = input.seek(SeekFrom::End(0))?;
    let from = from.min(input_bytes);
    let mut search = Search::new(input_bytes);
    search.run(input, from)?;
    let identity = search.most_frequent(wanted);
    let chunks = search.each_once(identity);
    let mut found = Scan {
        chunks,
        damage: DamageList::default(),
        gaps: Vec::new(),
        input_bytes,
        is_closed: FileTail::is_closed(input, input_bytes)?,
    };
    report_gaps(input, from, &search, &mut found)?;
    report_displaced(&mut found);
    Ok(found)
}

/// What looked like a chunk.
#[derive(Debug, Clone, Copy)]
struct Refused {
    /// Why it was not taken.
    reason: DamageReason,
    /// Where it would end.
    end: u64,
}

/// The search for chunks that agree with their CRC.
struct Search {
    input_bytes: u64,
    budget: u64,
    /// Whether it ended before all was searched: what lies behind the last chunk then was not read.
    is_exhausted: bool,
    chunks: Vec<ScannedChunk>,
    refused: BTreeMap<u64, Refused>,
    /// Whole chunks that are not taken, start and end: their events are none that are missing.
    strangers: Vec<(u64, u64)>,
    data: ChunkData,
}

impl Search {
    fn new(input_bytes: u64) -> Self {
        let budget = input_bytes
            .saturating_mul(SCAN_BUDGET_PASSES)
            .max(SCAN_BUDGET_BYTES_MIN);
        Self {
            input_bytes,
            budget,
            is_exhausted: false,
            chunks: Vec::new(),
            refused: BTreeMap::new(),
            strangers: Vec::new(),
            data: ChunkData::default(),
        }
    }

    fn run<R: Read + Seek>(&mut self, input: &mut R, from: u64) -> io::Result<()> {
        let mut window = ChunkData::default();
        let mut window_bytes = WINDOW_BYTES_MIN;
        let mut at = from;
        while at.saturating_add(CHUNK_HEADER_BYTES as u64) <= self.input_bytes {
            let taken = window_bytes.min(self.input_bytes - at);
            window.load(input, at, taken as usize)?;
            if let Some(end) = self.chunk_in_window(input, at, window.bytes())? {
                at = end;
                window_bytes = WINDOW_BYTES_MIN;
            } else if self.is_exhausted {
                return Ok(());
            } else {
                // The last bytes may be the start of a header.
                at += taken - (CHUNK_HEADER_BYTES as u64 - 1);
                window_bytes = (window_bytes * 2).min(WINDOW_BYTES_MAX);
            }
        }
        Ok(())
    }

    /// Takes the first chunk whose header starts in the window, and returns its end.
    fn chunk_in_window<R: Read + Seek>(
        &mut self,
        input: &mut R,
        window_at: u64,
        window: &[u8],
    ) -> io::Result<Option<u64>> {
        for (i, bytes) in window.windows(CHUNK_HEADER_BYTES).enumerate() {
            if bytes[0] != op::CHUNK {
                continue;
            }
            let Some(header) = bytes.first_chunk().and_then(ChunkHeader::parse) else {
                continue;
            };
            let offset = window_at + i as u64;
            match self.verify(input, offset, header)? {
                Ok(content) => {
                    let data_bytes = header.data_bytes;
                    let chunk = ScannedChunk {
                        offset,
                        data_bytes,
                        content,
                    };
                    self.chunks.push(chunk);
                    return Ok(Some(chunk.end()));
                }
                Err(reason) => {
                    let data_at = offset + CHUNK_HEADER_BYTES as u64;
                    let end = data_at.saturating_add(header.data_bytes);
                    self.refuse(offset, Refused { reason, end });
                }
            }
            if self.budget == 0 {
                self.is_exhausted = true;
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn refuse(&mut self, offset: u64, refused: Refused) {
        if self.refused.len() < FALSE_CHUNKS_MAX {
            self.refused.insert(offset, refused);
        }
    }

    /// Where the damaged chunks end that are at `start` in their whole length, one behind the other:
    /// nobody writes them any more, as a chunk that goes on behind the end of the file may be.
    fn settled_end<R: Read + Seek>(&self, input: &mut R, start: u64, end: u64) -> io::Result<u64> {
        let (mut settled, mut at) = (start, start);
        while let Some(refused) = self.refused.get(&at)
            && matches!(refused.reason, DamageReason::ChunkChecksum { .. })
            && refused.end <= end
        {
            settled = refused.end;
            at = known_records_end(input, settled, end, false)?;
        }
        Ok(settled)
    }

    fn verify<R: Read + Seek>(
        &mut self,
        input: &mut R,
        offset: u64,
        header: ChunkHeader,
    ) -> io::Result<Result<ChunkContent, DamageReason>> {
        let data_at = offset + CHUNK_HEADER_BYTES as u64;
        let available = self.input_bytes - data_at;
        let fits = usize::try_from(header.data_bytes).ok();
        let Some(data_bytes) = fits.filter(|_| header.data_bytes <= available) else {
            let missing = header.data_bytes - available.min(header.data_bytes);
            return Ok(Err(DamageReason::ChunkTruncated { missing }));
        };
        self.data.load(input, data_at, data_bytes)?;
        let computed = crc32(self.data.bytes());
        let verified = if computed != header.crc {
            Err(DamageReason::ChunkChecksum {
                stored: header.crc,
                computed,
            })
        } else {
            ChunkContent::of(self.data.bytes()).map_err(DamageReason::ChunkContent)
        };
        if verified.is_err() {
            self.budget = self.budget.saturating_sub(header.data_bytes);
        }
        Ok(verified)
    }

    /// Of the run files that are wanted, the one that most bytes belong to.
    fn most_frequent(&self, wanted: Wanted) -> Option<RunIdentity> {
        let mut bytes: BTreeMap<RunIdentity, u64> = BTreeMap::new();
        for chunk in &self.chunks {
            let identity = chunk.content.mark.identity;
            if wanted.admits(identity) {
                *bytes.entry(identity).or_default() += chunk.data_bytes;
            }
        }
        bytes
            .into_iter()
            .max_by_key(|(_, bytes)| *bytes)
            .map(|(identity, _)| identity)
    }

    /// The chunks of one run file, the first of each sequence number; the others become refused.
    fn each_once(&mut self, identity: Option<RunIdentity>) -> Vec<ScannedChunk> {
        let mut seen = BTreeSet::new();
        let mut taken = Vec::with_capacity(self.chunks.len());
        for chunk in std::mem::take(&mut self.chunks) {
            let mark = chunk.content.mark;
            let reason = if Some(mark.identity) != identity {
                DamageReason::OtherRun
            } else if !seen.insert(mark.sequence) {
                let sequence = mark.sequence;
                DamageReason::ChunkTwice { sequence }
            } else {
                taken.push(chunk);
                continue;
            };
            let end = chunk.end();
            self.refuse(chunk.offset, Refused { reason, end });
            self.strangers.push((chunk.offset, end));
        }
        taken
    }
}

/// Names the chunks that come behind one with a higher sequence number: they are read all the same.
fn report_displaced(found: &mut Scan) {
    let mut highest = None;
    for chunk in &found.chunks {
        let sequence = chunk.content.mark.sequence;
        if Some(sequence) < highest {
            found.damage.push(Damage {
                offset: chunk.offset,
                bytes: chunk.end() - chunk.offset,
                reason: DamageReason::OutOfSequence { sequence },
            });
        }
        highest = highest.max(Some(sequence));
    }
}

/// Reports what lies between the chunks and is not what a writer puts there.
fn report_gaps<R: Read + Seek>(
    input: &mut R,
    from: u64,
    search: &Search,
    found: &mut Scan,
) -> io::Result<()> {
    let input_bytes = found.input_bytes;
    let ends: Vec<(u64, u64)> = {
        let starts = std::iter::once(from).chain(found.chunks.iter().map(ScannedChunk::end));
        let ends = found
            .chunks
            .iter()
            .map(|chunk| chunk.offset)
            .chain([input_bytes]);
        starts.zip(ends).collect()
    };
    let misses_events = misses_events(&found.chunks);
    for (index, (start, end)) in ends.into_iter().enumerate() {
        let at_file_end = end == input_bytes;
        let start = known_records_end(input, start, end, at_file_end)?;
        if start == end {
            continue;
        }
        let exhausted = at_file_end && search.is_exhausted;
        let reason = match search.refused.get(&start) {
            _ if exhausted => DamageReason::ScanBudget,
            Some(refused) => refused.reason,
            None => reason_of_unread(input, start, end)?,
        };
        found.damage.push(Damage {
            offset: start,
            bytes: end - start,
            reason,
        });
        if exhausted {
            continue;
        }
        if misses_events || may_hold_events(&found.chunks, index) {
            let settled = match at_file_end && !found.is_closed {
                true => search.settled_end(input, start, end)?,
                false => end,
            };
            put_gaps(&search.strangers, start, settled, false, &mut found.gaps);
            put_gaps(&search.strangers, settled, end, true, &mut found.gaps);
        }
        report_each_chunk(search, (start, reason), end, &mut found.damage);
    }
    Ok(())
}

/// Of several damaged chunks in a row, names each.
fn report_each_chunk(
    search: &Search,
    first: (u64, DamageReason),
    end: u64,
    damage: &mut DamageList,
) {
    let others = search.refused.range(first.0 + 1..end);
    let others = others.map(|(offset, refused)| (*offset, refused.reason));
    let others = others.filter(|(_, reason)| matches!(reason, DamageReason::ChunkChecksum { .. }));
    let starts: Vec<(u64, DamageReason)> = std::iter::once(first).chain(others).collect();
    let cuts = starts.iter().skip(1).map(|(offset, _)| *offset);
    for ((offset, reason), cut) in starts.iter().copied().zip(cuts.chain([end])) {
        damage.push(Damage {
            offset,
            bytes: cut - offset,
            reason,
        });
    }
}

/// Whether events of chunks before the last one are missing, or may be: a chunk that bytes were put
/// into may go on behind others, and chunks out of their order tell nothing of what lay between them.
fn misses_events(chunks: &[ScannedChunk]) -> bool {
    !chunks.is_sorted_by_key(|chunk| chunk.content.mark.sequence)
        || (0..chunks.len()).any(|index| may_hold_events(chunks, index))
}

/// Whether events are missing between chunk `index` and the one before it, or the end of the file,
/// as far as chunks tell that come in their order.
fn may_hold_events(chunks: &[ScannedChunk], index: usize) -> bool {
    let before = index.checked_sub(1).and_then(|before| chunks.get(before));
    let before = before.map(|chunk| chunk.content);
    let known = before.map_or(0, |content| {
        content.mark.events_before.saturating_add(content.events)
    });
    match chunks.get(index) {
        Some(next) => next.content.mark.events_before > known,
        None => before.is_none_or(|content| !content.has(Channel::End)),
    }
}

/// Adds the bytes from `start` to `end` without the chunks in them that are not of this file; these are
/// in the order of the file.
fn put_gaps(strangers: &[(u64, u64)], start: u64, end: u64, at_end: bool, gaps: &mut Vec<Gap>) {
    let first = strangers.partition_point(|(from, _)| *from < start);
    let behind = strangers[first..].iter();
    let inside = behind.take_while(|(_, to)| *to <= end);
    let mut at = start;
    for (from, to) in inside.copied().chain([(end, end)]) {
        while at < from {
            let bytes = (from - at).min(GAP_BYTES_MAX);
            gaps.push(Gap {
                offset: at,
                bytes,
                at_end,
            });
            at += bytes;
        }
        at = to;
    }
}

/// Why the bytes at `start` were not read as a chunk that the search refused.
fn reason_of_unread<R: Read + Seek>(
    input: &mut R,
    start: u64,
    end: u64,
) -> io::Result<DamageReason> {
    let mut header = [0; CHUNK_HEADER_BYTES];
    let present = header
        .len()
        .min(usize::try_from(end - start).unwrap_or(usize::MAX));
    input.seek(SeekFrom::Start(start))?;
    input.read_exact(&mut header[..present])?;
    if header[0] != op::CHUNK {
        return Ok(DamageReason::NotRecords);
    }
    let missing = (header.len() - present) as u64;
    Ok(match missing {
        0 => DamageReason::ChunkHeader,
        missing => DamageReason::ChunkTruncated { missing },
    })
}

/// Whether the record at `at` is as long as the entries that it says it has, and ends before `end`: a
/// chunk whose opcode has a wrong bit looks like a message index else.
fn is_message_index<R: Read + Seek>(
    input: &mut R,
    at: u64,
    length: u64,
    end: u64,
) -> io::Result<bool> {
    let mut fixed = [0; MESSAGE_INDEX_FIXED_BYTES];
    let fits = at.checked_add((RECORD_HEADER_BYTES + fixed.len()) as u64);
    if fits.is_none_or(|fits| fits > end) {
        return Ok(false);
    }
    input.seek(SeekFrom::Start(at + RECORD_HEADER_BYTES as u64))?;
    input.read_exact(&mut fixed)?;
    let [_, _, entries @ ..] = fixed;
    let entries_bytes = u64::from(u32::from_le_bytes(entries));
    Ok(length == fixed.len() as u64 + entries_bytes)
}

/// Follows records that a writer puts between chunks, from `start` to at most `end`, and returns
/// where they end.
fn known_records_end<R: Read + Seek>(
    input: &mut R,
    start: u64,
    end: u64,
    at_file_end: bool,
) -> io::Result<u64> {
    let mut at = start;
    if at == 0 && end >= MAGIC.len() as u64 {
        let mut magic = [0; MAGIC.len()];
        input.seek(SeekFrom::Start(0))?;
        input.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Ok(0);
        }
        at = MAGIC.len() as u64;
    }
    for _ in 0..RECORDS_BETWEEN_MAX {
        if end - at < RECORD_HEADER_BYTES as u64 {
            break;
        }
        let mut header = [0; RECORD_HEADER_BYTES];
        input.seek(SeekFrom::Start(at))?;
        input.read_exact(&mut header)?;
        let [opcode, length @ ..] = header;
        let known = match opcode {
            op::HEADER => at == MAGIC.len() as u64,
            op::MESSAGE_INDEX => is_message_index(input, at, u64::from_le_bytes(length), end)?,
            op::ATTACHMENT | op::DATA_END => at_file_end,
            _ => false,
        };
        let length = u64::from_le_bytes(length);
        if !known || length > end - at - RECORD_HEADER_BYTES as u64 {
            break;
        }
        at += RECORD_HEADER_BYTES as u64 + length;
        if opcode == op::DATA_END {
            return Ok(if FileTail::spans(input, at, end)? {
                end
            } else {
                at
            });
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_lies_beside_the_strangers_in_them() {
        let strangers = [(10, 20), (20, 25), (40, 60), (60, 61), (80, 90)];
        for start in 0..100 {
            for end in start..100 {
                let mut gaps = Vec::new();
                put_gaps(&strangers, start, end, false, &mut gaps);
                let mut covered = gaps
                    .iter()
                    .flat_map(|gap| gap.offset..gap.offset + gap.bytes);
                let is_inside = |(from, to): &&(u64, u64)| *from >= start && *to <= end;
                let inside: Vec<_> = strangers.iter().filter(is_inside).collect();
                let is_strange = |at: &u64| inside.iter().any(|(a, b)| (a..b).contains(&at));
                let mut expected = (start..end).filter(|at| !is_strange(at));
                assert!(expected.by_ref().eq(covered.by_ref()), "{start}..{end}");
            }
        }
    }
}
