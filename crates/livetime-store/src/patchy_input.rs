//! An input of which some bytes cannot be read, as those of a bad sector of a disk.
//!
//! They read as zeros, which no checksum agrees with, and are listed: so what a reader does with bytes
//! that are wrong, it does with bytes that are not there. A read that fails is repeated in pieces of
//! [`PIECE_BYTES`], so that only those are given up that fail themselves, and none is asked for
//! twice, as a bad sector may take seconds. Pieces are given up in whole: systems read in such. An input that was cut off while it was open lacks all
//! from there on. An error of the whole input is passed on, and so is one after too many pieces.
//! An input without faults is read with the same calls as without this.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

use crate::damage::{Damage, DamageReason, ReadFault};

/// What is read at once where a longer read failed: a page of most systems, a sector of most disks.
const PIECE_BYTES: u64 = 4 << 10;
/// Most pieces that are given up, before the input as a whole is: 256 MiB.
const PIECES_FAILED_MAX: u32 = 1 << 16;

/// Bytes that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    start: u64,
    end: u64,
    fault: ReadFault,
}

impl From<Stretch> for Damage {
    fn from(stretch: Stretch) -> Self {
        Self {
            offset: stretch.start,
            bytes: stretch.end - stretch.start,
            reason: DamageReason::Unreadable(stretch.fault),
        }
    }
}

/// Reads around what cannot be read.
#[derive(Debug)]
pub(crate) struct PatchyInput<R> {
    inner: R,
    /// Where the next read starts.
    at: u64,
    /// Whether the inner input is somewhere else.
    is_elsewhere: bool,
    /// Bytes of the input when its end was looked for last.
    bytes: u64,
    /// Up to where a read that failed went.
    pieces_to: u64,
    pieces_failed: u32,
    /// What cannot be read, in the order of the file, without overlap.
    stretches: Vec<Stretch>,
    /// Whether any of it was not told yet.
    has_news: bool,
}

impl<R: Read + Seek> PatchyInput<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            at: 0,
            is_elsewhere: true,
            bytes: 0,
            pieces_to: 0,
            pieces_failed: 0,
            stretches: Vec::new(),
            has_news: false,
        }
    }

    /// The input itself; where it is read next is asked of it anew.
    pub(crate) fn inner_mut(&mut self) -> &mut R {
        self.is_elsewhere = true;
        &mut self.inner
    }

    pub(crate) fn into_inner(self) -> R {
        self.inner
    }

    /// What cannot be read, as far as it was tried.
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = Damage> {
        self.stretches.iter().map(|stretch| Damage::from(*stretch))
    }

    /// Whether more cannot be read than when this was asked last.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Why some of these bytes cannot be read; `None` if all were, or were not tried.
    pub(crate) fn fault_in(&self, offset: u64, bytes: u64) -> Option<ReadFault> {
        let next = self.next_stretch(offset)?;
        (next.start < offset.saturating_add(bytes)).then_some(next.fault)
    }

    /// The first stretch that ends behind `offset`.
    fn next_stretch(&self, offset: u64) -> Option<Stretch> {
        let at = self.stretches.partition_point(|s| s.end <= offset);
        self.stretches.get(at).copied()
    }

    /// Takes note of a stretch that overlaps no other.
    fn mark(&mut self, start: u64, end: u64, fault: ReadFault) {
        self.has_news = true;
        let mut joined = Stretch { start, end, fault };
        let mut from = self.stretches.partition_point(|s| s.end <= start);
        let mut to = from;
        let before = from.checked_sub(1).map(|before| self.stretches[before]);
        if let Some(before) = before.filter(|s| s.end == start && s.fault == fault) {
            joined.start = before.start;
            from -= 1;
        }
        let behind = self.stretches.get(to).copied();
        if let Some(behind) = behind.filter(|s| s.start == end && s.fault == fault) {
            joined.end = behind.end;
            to += 1;
        }
        self.stretches.splice(from..to, [joined]);
    }

    /// Gives zeros up to `end`.
    fn give_zeros(&mut self, out: &mut [u8], end: u64) -> usize {
        let count = usize::try_from(end - self.at).unwrap_or(usize::MAX);
        let count = count.min(out.len());
        out[..count].fill(0);
        self.at += count as u64;
        self.is_elsewhere = true;
        count
    }

    /// Takes note that all from the end of the input on is gone, if it was longer before.
    fn mark_cut_off(&mut self) -> io::Result<()> {
        let end = self.inner.seek(SeekFrom::End(0))?;
        self.is_elsewhere = true;
        if end <= self.at && self.at < self.bytes {
            self.stretches.retain(|stretch| stretch.start < end);
            if let Some(last) = self.stretches.last_mut() {
                last.end = last.end.min(end);
            }
            self.mark(end, self.bytes, ReadFault::CutOff);
        }
        Ok(())
    }

    /// Takes note that the piece at this place cannot be read, if the input is not to be given up.
    fn mark_failed(&mut self, error: &io::Error) -> io::Result<()> {
        self.pieces_failed += 1;
        if self.pieces_failed > PIECES_FAILED_MAX {
            let text = format!(
                "the piece at byte {} cannot be read, nor can {PIECES_FAILED_MAX} others: {error}",
                self.at
            );
            return Err(io::Error::new(error.kind(), text));
        }
        // All of it, whichever part of it was asked for first.
        let piece = self.at / PIECE_BYTES * PIECE_BYTES;
        let end = (piece + PIECE_BYTES).min(self.bytes.max(self.at + 1));
        let before = self.stretches.partition_point(|s| s.end <= self.at);
        let start = before.checked_sub(1).map_or(0, |at| self.stretches[at].end);
        let next = self.stretches.get(before).map_or(end, |next| next.start);
        self.mark(piece.max(start), end.min(next), ReadFault::from(error));
        Ok(())
    }
}

/// Whether an error tells of the whole input, and not of a place in it.
fn is_of_the_whole(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted
            | ErrorKind::PermissionDenied
            | ErrorKind::IsADirectory
            | ErrorKind::InvalidInput
            | ErrorKind::StaleNetworkFileHandle
            | ErrorKind::OutOfMemory
            | ErrorKind::Unsupported
            | ErrorKind::WouldBlock
    )
}

impl<R: Read + Seek> Read for PatchyInput<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // Each turn but the last takes note of something, or halves what is asked for to a piece.
        while !out.is_empty() {
            let next = self.next_stretch(self.at);
            if let Some(here) = next.filter(|next| next.start <= self.at) {
                return Ok(self.give_zeros(out, here.end));
            }
            let in_pieces = self.at < self.pieces_to;
            let piece_end = (self.at / PIECE_BYTES + 1) * PIECE_BYTES;
            let mut end = self.at.saturating_add(out.len() as u64);
            end = end.min(next.map_or(u64::MAX, |next| next.start));
            if in_pieces {
                end = end.min(piece_end);
            }
            if self.is_elsewhere {
                self.inner.seek(SeekFrom::Start(self.at))?;
                self.is_elsewhere = false;
            }
            let count = (end - self.at) as usize;
            match self.inner.read(&mut out[..count]) {
                Ok(0) => {
                    self.mark_cut_off()?;
                    if self.fault_in(self.at, 1).is_none() {
                        return Ok(0);
                    }
                }
                Ok(count) => {
                    self.at += count as u64;
                    return Ok(count);
                }
                Err(error) if is_of_the_whole(&error) => return Err(error),
                Err(error) => {
                    self.is_elsewhere = true;
                    if end <= piece_end {
                        self.mark_failed(&error)?;
                    } else {
                        self.pieces_to = end;
                    }
                }
            }
        }
        Ok(0)
    }
}

impl<R: Read + Seek> Seek for PatchyInput<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if matches!(to, SeekFrom::Current(_)) && self.is_elsewhere {
            self.inner.seek(SeekFrom::Start(self.at))?;
        }
        self.at = self.inner.seek(to)?;
        self.is_elsewhere = false;
        if to == SeekFrom::End(0) {
            self.bytes = self.at;
            // It is as long as it is now.
            self.stretches.retain(|s| s.fault != ReadFault::CutOff);
        }
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::ops::Range;

    use super::*;

    /// Fails where a read touches a range.
    struct Disk {
        file: Cursor<Vec<u8>>,
        bad: Vec<Range<u64>>,
        reads: u32,
    }

    impl Read for Disk {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.reads += 1;
            let start = self.file.position();
            let end = start + out.len() as u64;
            match self
                .bad
                .iter()
                .any(|bad| bad.start < end && start < bad.end)
            {
                true => Err(io::Error::from_raw_os_error(5)),
                false => self.file.read(out),
            }
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.file.seek(to)
        }
    }

    fn disk(bytes: usize, bad: &[Range<u64>]) -> PatchyInput<Disk> {
        let mut input = PatchyInput::new(Disk {
            file: Cursor::new((0..bytes).map(|at| at as u8 | 1).collect()),
            bad: bad.to_vec(),
            reads: 0,
        });
        input.seek(SeekFrom::End(0)).unwrap();
        input
    }

    fn read(input: &mut PatchyInput<Disk>, range: Range<usize>) -> Vec<u8> {
        let mut out = vec![7; range.len()];
        input.seek(SeekFrom::Start(range.start as u64)).unwrap();
        input.read_exact(&mut out).unwrap();
        out
    }

    fn places(input: &PatchyInput<Disk>) -> Vec<(u64, u64)> {
        let stretches = input.unreadable();
        stretches
            .map(|damage| (damage.offset, damage.bytes))
            .collect()
    }

    #[test]
    fn pieces_that_fail_are_zeros_and_all_others_are_read() {
        let mut input = disk(100_000, &[9000..9001, 20_000..33_000, 99_999..100_000]);
        let bytes = read(&mut input, 0..100_000);
        let expected = [(8192, 4096), (16_384, 20_480), (98_304, 1696)];
        assert_eq!(places(&input), expected);
        for (at, byte) in bytes.into_iter().enumerate() {
            let inside = |(from, count): &(u64, u64)| (*from..from + count).contains(&(at as u64));
            let is_bad = expected.iter().any(inside);
            assert_eq!(byte, if is_bad { 0 } else { at as u8 | 1 }, "byte {at}");
        }
        assert!(input.take_news() && !input.take_news());
        assert_eq!(input.fault_in(8000, 193).unwrap().to_string(), io_text());
        assert!(input.fault_in(8000, 192).is_none() && input.fault_in(12_288, 4000).is_none());
        // What was given up is not asked for again, and what is beside it is.
        let reads = input.inner.reads;
        assert_eq!(read(&mut input, 9000..9010), [0; 10]);
        assert_eq!(input.inner.reads, reads);
        assert_eq!(read(&mut input, 8190..8194), [0xFF, 0xFF, 0, 0]);
        assert!(!input.take_news());
    }

    /// As the system says it.
    fn io_text() -> String {
        let text = io::Error::from_raw_os_error(5).to_string();
        text.split(" (os error").next().unwrap().to_owned()
    }

    #[test]
    fn what_is_listed_does_not_depend_on_what_was_asked_for_first() {
        let bad = 5000..14_000;
        let mut whole = disk(50_000, std::slice::from_ref(&bad));
        read(&mut whole, 0..50_000);
        let mut parts = disk(50_000, std::slice::from_ref(&bad));
        for range in [13_000..13_001, 9000..9004, 4000..6000] {
            read(&mut parts, range);
        }
        assert_eq!(places(&whole), [(4096, 12_288)]);
        assert_eq!(places(&parts), places(&whole));
    }

    #[test]
    fn an_input_that_was_cut_off_lacks_all_from_there_on() {
        let mut input = disk(50_000, &[9000..9001, 40_000..40_001]);
        read(&mut input, 39_000..41_000);
        input.inner.file.get_mut().truncate(10_000);
        assert_eq!(read(&mut input, 30_000..30_002), [0; 2]);
        assert_eq!(places(&input), [(10_000, 40_000)]);
        let bytes = read(&mut input, 8000..20_000);
        assert!(bytes[192..].iter().all(|byte| *byte == 0));
        assert_eq!(places(&input), [(8192, 1808), (10_000, 40_000)]);
        assert_eq!(input.fault_in(10_000, 1), Some(ReadFault::CutOff));
        // Whoever looks for its end knows.
        assert_eq!(input.seek(SeekFrom::End(0)).unwrap(), 10_000);
        assert_eq!(places(&input), [(8192, 1808)]);
        assert_eq!(input.read(&mut [0; 4]).unwrap(), 0);
    }

    #[test]
    fn an_input_of_which_too_much_fails_is_given_up() {
        let bytes = (u64::from(PIECES_FAILED_MAX) + 2) * PIECE_BYTES;
        let bad = 0..bytes;
        let mut input = disk(0, &[bad]);
        input.bytes = bytes;
        let mut out = vec![1; PIECE_BYTES as usize];
        let mut given = 0;
        let error = loop {
            match input.read(&mut out) {
                Ok(count) => given += count as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(given, u64::from(PIECES_FAILED_MAX) * PIECE_BYTES);
        assert!(
            error
                .to_string()
                .contains(&format!("at byte {given} cannot be read"))
        );
        assert_eq!(places(&input), [(0, given)]);
    }
}
