//! Takes up what was written to a file since it was looked at last.
//!
//! All up to the last chunk stays as it is. What lies behind it is judged anew, since a writer may have
//! gone on there: but for damaged chunks that are there as they were, whose events were handed out.

use std::io::{self, Read, Seek};

use super::moved_event::MovedEvents;
use super::{ChunkPlace, PlaceKind, RunReader};
use crate::damage::{DamageList, DamageReason};
use crate::run_scan::{Scan, scan};

impl ChunkPlace {
    /// Whether this is a damaged place that is still as it was.
    fn is_same_gap(&self, before: &Self) -> bool {
        let are_gaps = [self, before].map(|place| place.kind) == [PlaceKind::Gap; 2];
        are_gaps && (self.offset, self.data_bytes) == (before.offset, before.data_bytes)
    }
}

impl<R: Read + Seek> RunReader<R> {
    /// Takes up chunks that were written since the file was opened.
    ///
    /// # Errors
    /// Only errors of the input.
    pub fn refresh(&mut self) -> io::Result<()> {
        let is_chunk = |place: &ChunkPlace| place.kind == PlaceKind::Chunk;
        let settled = self.chunks.iter().rposition(is_chunk);
        let settled = settled.map_or(0, |last| last + 1);
        let ends = self.chunks[..settled].iter();
        let ends = ends.map(|chunk| chunk.offset + chunk.record_bytes());
        let from = ends.max().unwrap_or(0);
        let wanted = self.wanted();
        // What is known stays as it is where this fails.
        let found = scan(&mut self.input, from, wanted)?;
        let mut new = self.new_places(&found);
        let before = self.chunks.split_off(settled);
        split_as_before(&mut new, &before);
        if self.is_as_it_was(&found) && is_same(&before, &new) {
            // Nor is anything to be judged anew: what was found while reading stays listed as it was.
            self.chunks.extend(before);
            // But for records that an input did not give.
            self.read_records()?;
            self.note_unreadable();
            return Ok(());
        }
        let pairs = new.iter().zip(&before);
        let same = pairs.take_while(|(new, old)| new.is_same_gap(old)).count();
        let kept = self.chunks.len() + same;
        self.chunks.extend(&before[..same]);
        self.chunks.extend(&new[same..]);
        self.known.forget_from(kept);
        if self.cursor.0 >= kept {
            self.cursor = (kept, 0);
        }
        self.input_bytes = found.input_bytes;
        self.is_closed = found.is_closed;
        self.judge_anew(from, &before[..same], found.damage);
        self.salvaged = None;
        self.moved = MovedEvents::default();
        if self.chunks.len() > kept || before.len() > same {
            self.index = None;
            self.index_of_whole = None;
            self.records_read = false;
        }
        self.read_records()?;
        self.note_unreadable();
        Ok(())
    }

    /// Whether the file is as long as it was and ends as it did.
    fn is_as_it_was(&self, found: &Scan) -> bool {
        (found.input_bytes, found.is_closed) == (self.input_bytes, self.is_closed)
    }

    /// The places that a scan has found behind those that are known.
    fn new_places(&self, found: &Scan) -> Vec<ChunkPlace> {
        let known = self.chunks.iter().filter_map(|chunk| chunk.content);
        let last_sequence = known.map(|content| content.mark.sequence).max();
        let mut new = ChunkPlace::of_scan(&found.chunks, &found.gaps);
        new.retain(|place| {
            let sequence = place.content.map(|content| content.mark.sequence);
            sequence.is_none() || sequence > last_sequence
        });
        new
    }

    /// Damage before `from` stays, and that of the events in places that are as they were; the rest is
    /// what the scan has found.
    fn judge_anew(&mut self, from: u64, same: &[ChunkPlace], found: DamageList) {
        let mut damage = std::mem::take(&mut self.damage);
        damage.retain(|damage| {
            let is_of_event = matches!(
                damage.reason,
                DamageReason::Event(_)
                    | DamageReason::Fragment(_)
                    | DamageReason::EventTwice { .. }
            );
            let mut same = same.iter();
            let is_inside = |place: &ChunkPlace| {
                (place.offset..place.offset + place.data_bytes).contains(&damage.offset)
            };
            damage.offset < from || (is_of_event && same.any(is_inside))
        });
        found.entries().iter().for_each(|found| damage.push(*found));
        self.take_damage(damage);
    }
}

/// Splits gaps where known ones end. The gap of a damaged chunk goes on to the next chunk, which was not
/// there when its events were handed out.
fn split_as_before(new: &mut Vec<ChunkPlace>, before: &[ChunkPlace]) {
    for (at, old) in before.iter().enumerate() {
        let Some(now) = new.get(at).copied() else {
            return;
        };
        let data_bytes = old.data_bytes;
        let kept = ChunkPlace { data_bytes, ..now };
        if kept.is_same_gap(old) && now.data_bytes > data_bytes {
            let rest = ChunkPlace {
                offset: now.offset + data_bytes,
                data_bytes: now.data_bytes - data_bytes,
                ..now
            };
            new.splice(at..=at, [kept, rest]);
        }
    }
}

/// Whether both are the same places.
fn is_same(before: &[ChunkPlace], now: &[ChunkPlace]) -> bool {
    let of = |place: &ChunkPlace| (place.kind, place.offset, place.data_bytes);
    before.iter().map(of).eq(now.iter().map(of))
}
