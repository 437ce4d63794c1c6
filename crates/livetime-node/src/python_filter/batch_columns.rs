//! A batch of events as columns: what an interpreter sees as arrays.
//!
//! Each event is appended to growing columns, which are then laid out in a slot of the
//! [`super::batch_arena`]. Fragments stay where they are: a column says where their words lie in the
//! memory that the interpreter has mapped; only what is scattered over pages is copied behind the
//! columns. What becomes of the batch is in [`super::batch_filter`].

use livetime_trigger::for_each_object;
use livetime_wire::RunNs;
use livetime_wire::event::{EventAccess, EventHeader};
use livetime_wire::object::PhysicsObject;
use zerocopy::IntoBytes;

use super::batch_arena::Slot;

/// 64-bit words of an event's row, as in the dtype `EVENT_DTYPE` of the Python package.
const ROW_WORDS: usize = 5;
/// Entries of the table at the front of a slot.
pub const TABLE_WORDS: usize = 24;
/// Bytes of one object in the columns: kind and five values.
const OBJECT_BYTES: usize = 2 + 5 * 4;
/// Bytes of one fragment in the columns: source, status, words, start and end.
const FRAGMENT_BYTES: usize = 3 * 4 + 2 * 8;

/// Of an event what is not in its [`EventAccess`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRow {
    /// When Level 1 accepted it.
    pub triggered_at: RunNs,
    /// Sources that are missing.
    pub missing: usize,
}

/// The columns of one batch.
#[derive(Debug, Default)]
pub struct BatchColumns {
    events: usize,
    rows: Vec<u64>,
    masks: Vec<u64>,
    fragment_offsets: Vec<i64>,
    sources: Vec<u32>,
    statuses: Vec<u32>,
    word_counts: Vec<u32>,
    /// Where a fragment begins \[words\]; of a copied one its place in `copied`, below zero.
    starts: Vec<i64>,
    copied: Vec<u32>,
    object_offsets: Vec<i64>,
    kinds: Vec<u16>,
    values: [Vec<f32>; 5],
    unreadable: u64,
    /// The objects of one event, to be put in order.
    objects: Vec<PhysicsObject>,
}

/// Bytes rounded up to whole 64-bit words.
fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

impl BatchColumns {
    /// Events so far.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Forgets all events.
    pub fn clear(&mut self) {
        self.events = 0;
        for column in [&mut self.rows, &mut self.masks] {
            column.clear();
        }
        for column in [&mut self.sources, &mut self.statuses, &mut self.word_counts] {
            column.clear();
        }
        for column in [&mut self.fragment_offsets, &mut self.object_offsets] {
            column.clear();
            column.push(0);
        }
        self.starts.clear();
        self.copied.clear();
        self.kinds.clear();
        self.values.iter_mut().for_each(Vec::clear);
        self.unreadable = 0;
    }

    /// 64-bit words that a slot needs for these events, and for the verdicts on them.
    fn words(&self) -> usize {
        let bytes = [
            self.events * ROW_WORDS * 8,
            self.events * 16,
            (self.events + 1) * 8,
            self.sources.len() * 4,
            self.sources.len() * 4,
            self.sources.len() * 4,
            self.sources.len() * 8,
            self.sources.len() * 8,
            self.copied.len() * 4,
            (self.events + 1) * 8,
            self.kinds.len() * 2,
            5 * (self.kinds.len() * 4 + 8),
            self.events * 4,
        ];
        TABLE_WORDS + bytes.map(words_of).iter().sum::<usize>()
    }

    /// 64-bit words that an event may take at most: of `fragments` with `words` words in all.
    pub fn words_of_event(fragments: usize, words: usize) -> usize {
        let objects = words / livetime_wire::object::OBJECT_WORDS;
        let bytes = ROW_WORDS * 8 + 16 + 16 + 4 + fragments * FRAGMENT_BYTES;
        words_of(bytes + objects * OBJECT_BYTES + words * 4) + 16
    }

    /// Whether an event may be appended for a slot of `room` words.
    pub fn has_room_for(&self, event: &dyn EventAccess, room: usize) -> bool {
        let fragments = event.fragment_count();
        let words = (0..fragments).map(|index| event.entry(index).words as usize);
        self.words() + Self::words_of_event(fragments, words.sum()) <= room
    }

    /// Appends an event; `place` gives the first word of a fragment in the memory that the
    /// interpreter sees, `None` if its words do not lie there one after the other.
    pub fn push(
        &mut self,
        event: &dyn EventAccess,
        row: BatchRow,
        place: impl Fn(usize) -> Option<u64>,
    ) {
        let mut flagged = false;
        let mut payload = 0_u64;
        let mut unreadable = 0;
        self.objects.clear();
        for index in 0..event.fragment_count() {
            let entry = event.entry(index);
            flagged |= !entry.status.is_good();
            payload += u64::from(entry.words);
            self.sources.push(entry.source.0);
            self.statuses.push(entry.status.0);
            self.word_counts.push(entry.words);
            self.starts.push(match place(index) {
                Some(word) => word as i64,
                None => {
                    let at = self.copied.len() as i64;
                    for part in event.parts(index).parts {
                        self.copied.extend_from_slice(part);
                    }
                    -1 - at
                }
            });
            let read = for_each_object(event, index, |object| self.objects.push(object));
            unreadable += u64::from(read.is_err());
        }
        self.fragment_offsets.push(self.sources.len() as i64);
        self.unreadable += unreadable;
        self.push_objects();
        self.push_row(event, row, payload, flagged);
        self.events += 1;
    }

    fn push_objects(&mut self) {
        self.objects.sort_by_key(|object| object.index);
        for object in &self.objects {
            self.kinds.push(object.kind as u16);
            let values = [object.pt, object.eta, object.phi, object.charge, object.dxy];
            for (column, value) in self.values.iter_mut().zip(values) {
                column.push(value);
            }
        }
        self.object_offsets.push(self.kinds.len() as i64);
    }

    fn push_row(&mut self, event: &dyn EventAccess, row: BatchRow, payload: u64, flagged: bool) {
        let fragments = event.fragment_count();
        let bytes = (EventHeader::words(fragments, row.missing) as u64 + payload) * 4;
        // Little-endian fields, two or more to a word; reason and streams are the filter's to say.
        self.rows.extend_from_slice(&[
            event.trigger().0,
            row.triggered_at.0,
            fragments as u64 | (row.missing as u64) << 32,
            bytes & 0xFFFF_FFFF,
            u64::from(event.is_incomplete()) | u64::from(flagged) << 8,
        ]);
        let mask = event.mask().0;
        let low = (mask & u128::from(u64::MAX)) as u64;
        self.masks.extend_from_slice(&[low, (mask >> 64) as u64]);
    }

    /// Writes everything into a slot; returns where the verdicts on its events are to be
    /// \[64-bit words\].
    ///
    /// # Panics
    /// If it does not fit: see [`BatchColumns::has_room_for`].
    pub fn lay_out(&mut self, slot: &mut Slot<'_>) -> usize {
        let mut table = [0_u64; TABLE_WORDS];
        let mut at = TABLE_WORDS;
        let mut put = |bytes: &[u8]| {
            let start = at;
            slot.write(start, bytes);
            at += words_of(bytes.len());
            start as u64
        };
        table[0] = self.events as u64;
        table[1] = self.sources.len() as u64;
        table[2] = self.kinds.len() as u64;
        table[3] = self.unreadable;
        table[4] = put(self.rows.as_bytes());
        table[5] = put(self.masks.as_bytes());
        table[6] = put(self.fragment_offsets.as_bytes());
        table[7] = put(self.sources.as_bytes());
        table[8] = put(self.statuses.as_bytes());
        table[9] = put(self.word_counts.as_bytes());
        table[10] = put(self.object_offsets.as_bytes());
        table[11] = put(self.kinds.as_bytes());
        for (nth, column) in self.values.iter().enumerate() {
            table[12 + nth] = put(column.as_bytes());
        }
        let copied = put(self.copied.as_bytes());
        // The arena is the front of what the interpreter sees, so that copies have places as well.
        let base = slot.first_byte() as u64 / 4 + copied * 2;
        for start in self.starts.iter_mut().filter(|start| **start < 0) {
            *start = base as i64 - 1 - *start;
        }
        let mut put = |bytes: &[u8]| {
            let start = at;
            slot.write(start, bytes);
            at += words_of(bytes.len());
            start as u64
        };
        table[17] = put(self.starts.as_bytes());
        for (start, words) in self.starts.iter_mut().zip(&self.word_counts) {
            *start += i64::from(*words);
        }
        table[18] = put(self.starts.as_bytes());
        table[19] = at as u64;
        slot.write(0, table.as_bytes());
        at
    }
}

#[cfg(test)]
mod tests {
    use livetime_shm::{HugePages, PageIndex, PagePool, PoolConfig};
    use livetime_wire::fragment::{FragmentHeader, OVERHEAD_WORDS};
    use livetime_wire::message::FragmentDescriptor;
    use livetime_wire::object::{ObjectBlock, ObjectKind};
    use livetime_wire::slink::FragmentStatus;
    use livetime_wire::{EventNumber, RunNumber, SourceId};

    use super::super::super::pooled_event::PooledEvent;
    use super::*;

    fn fragment_words() -> Vec<u32> {
        let objects: Vec<PhysicsObject> = (0..9)
            .map(|index| PhysicsObject {
                kind: ObjectKind::Muon,
                index,
                pt: f32::from(index) + 0.5,
                eta: 1.0,
                phi: -1.0,
                charge: 1.0,
                dxy: 0.1,
            })
            .collect();
        let header = FragmentHeader {
            source: SourceId(1),
            run: RunNumber(1),
            trigger_low: 1,
            bunch: 0,
            trigger_type: 0,
            event_type: 0,
        };
        let block = ObjectBlock {
            source_run: RunNumber(1),
            source_event: EventNumber(1),
            event_objects: 9,
        };
        let data_words = ObjectBlock::words(objects.len());
        let mut words = vec![0; data_words + OVERHEAD_WORDS];
        header.emit(0, data_words, &mut words, |data| {
            block.emit(objects.iter(), data);
        });
        words
    }

    /// The columns of an event of that fragment in pages of a size, the last page first in memory.
    fn columns(page_bytes: u32) -> BatchColumns {
        let config = PoolConfig {
            pages: 8,
            page_bytes,
            huge_pages: HugePages::Never,
        };
        let pool = PagePool::create(&config).unwrap();
        let words = fragment_words();
        let mut event = PooledEvent::with_capacity(1, 8);
        let parts = words.chunks(pool.page_words());
        let pages = (0..parts.len() as u32)
            .rev()
            .zip(parts)
            .map(|(page, part)| {
                let mut writer = pool.write(PageIndex(page)).unwrap();
                writer[..part.len()].copy_from_slice(part);
                writer.finish().0
            });
        event.ticket_mut().fragments.push(FragmentDescriptor {
            source: SourceId(1),
            pool: 0,
            words: words.len() as u32,
            status: FragmentStatus::GOOD,
            crc: 0,
            pages: pages.collect(),
        });
        event.hold(std::slice::from_ref(&pool)).unwrap();
        let mut columns = BatchColumns::default();
        columns.clear();
        let row = BatchRow {
            triggered_at: RunNs(0),
            missing: 0,
        };
        columns.push(&event, row, |_| None);
        columns
    }

    #[test]
    fn columns_are_the_same_whatever_the_size_of_pages() {
        let whole = columns(4096);
        assert_eq!((whole.unreadable, whole.kinds.len()), (0, 9));
        assert_eq!(whole.copied, fragment_words());
        for page_bytes in [64, 128, 192] {
            let columns = columns(page_bytes);
            assert_eq!(columns.unreadable, 0, "{page_bytes}");
            assert_eq!(columns.values, whole.values, "{page_bytes}");
            assert_eq!(columns.object_offsets, whole.object_offsets);
            assert_eq!(
                (columns.kinds, columns.copied),
                (whole.kinds.clone(), whole.copied.clone())
            );
        }
    }
}
