//! Where each event lies in a run file: an attachment at the end, sorted for look-up in memory.
//!
//! The index only saves time. A reader rebuilds it from the chunks when it is absent, and an event
//! found through it is still checked by the event's own CRCs.
//!
//! ```text
//! attachment `event-index`:  version 1 u32 | run u32 | count u64 | count entries
//! entry (24 bytes):          trigger u64 | chunk record's offset u64
//!                            | event's offset in the chunk's data u32 | event's bytes u32
//! ```

use livetime_wire::{RunNumber, TriggerNumber};

use crate::mcap_record::{AttachmentName, Fields};

/// Name and media type of the attachment.
pub const ATTACHMENT: AttachmentName<'static> = AttachmentName {
    name: "event-index",
    media_type: "application/x-livetime-event-index",
};
/// Bytes before the entries.
pub const HEADER_BYTES: usize = 16;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 24;
const VERSION: u32 = 1;

/// The place of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPlace {
    /// Its trigger number.
    pub trigger: TriggerNumber,
    /// Where the record of its chunk starts in the file.
    pub chunk_offset: u64,
    /// Where its words start in the chunk's data.
    pub offset: u32,
    /// Bytes of its words.
    pub bytes: u32,
}

impl EventPlace {
    /// Appends the entry.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.trigger.0.to_le_bytes());
        out.extend_from_slice(&self.chunk_offset.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
    }

    fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            trigger: TriggerNumber(fields.u64()?),
            chunk_offset: fields.u64()?,
            offset: fields.u32()?,
            bytes: fields.u32()?,
        })
    }
}

/// Appends what stands before the entries.
pub fn put_header(out: &mut Vec<u8>, run: RunNumber, count: u64) {
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&run.0.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
}

/// The places of all events of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventIndex {
    places: Vec<EventPlace>,
    doubled: u64,
}

impl EventIndex {
    /// An index of these places, in any order; of equal trigger numbers the first one counts.
    pub fn new(mut places: Vec<EventPlace>) -> Self {
        let all = places.len();
        places.sort_by_key(|place| place.trigger);
        places.dedup_by_key(|place| place.trigger);
        let doubled = (all - places.len()) as u64;
        Self { places, doubled }
    }

    /// Reads the attachment of the run; `None` if it is of another version or run, or cut off.
    pub fn parse(data: &[u8], run: RunNumber) -> Option<Self> {
        let mut fields = Fields(data);
        let [version, run_found] = [fields.u32()?, fields.u32()?];
        let count = fields.u64()?;
        let fits = count.checked_mul(ENTRY_BYTES as u64) == Some(fields.0.len() as u64);
        if version != VERSION || run_found != run.0 || !fits {
            return None;
        }
        let mut places = Vec::with_capacity(fields.0.len() / ENTRY_BYTES);
        while !fields.0.is_empty() {
            places.push(EventPlace::parse(&mut fields)?);
        }
        Some(Self::new(places))
    }

    /// How many places of other events of the same triggers there were.
    pub fn doubled(&self) -> u64 {
        self.doubled
    }

    /// All places by trigger number.
    pub fn places(&self) -> &[EventPlace] {
        &self.places
    }

    /// The place of an event.
    pub fn find(&self, trigger: TriggerNumber) -> Option<EventPlace> {
        let at = self
            .places
            .binary_search_by_key(&trigger, |place| place.trigger)
            .ok()?;
        self.places.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_reads_back_in_order_of_trigger() {
        let place = |trigger, offset| EventPlace {
            trigger: TriggerNumber(trigger),
            chunk_offset: 99,
            offset,
            bytes: 8,
        };
        let written = [place(7, 1), place(3, 2), place(u64::MAX, 3), place(7, 4)];
        let mut data = Vec::new();
        put_header(&mut data, RunNumber(5), written.len() as u64);
        assert_eq!(data.len(), HEADER_BYTES);
        written.iter().for_each(|place| place.put(&mut data));
        assert_eq!(data.len(), HEADER_BYTES + 4 * ENTRY_BYTES);

        let index = EventIndex::parse(&data, RunNumber(5)).unwrap();
        assert_eq!(
            index.places(),
            [place(3, 2), place(7, 1), place(u64::MAX, 3)]
        );
        assert_eq!(index.doubled(), 1);
        assert_eq!(index.find(TriggerNumber(7)), Some(place(7, 1)));
        assert_eq!(index.find(TriggerNumber(8)), None);
        assert_eq!(EventIndex::parse(&data, RunNumber(6)), None);
        assert_eq!(
            EventIndex::parse(&data[..data.len() - 1], RunNumber(5)),
            None
        );
        assert_eq!(EventIndex::parse(&[], RunNumber(5)), None);
    }
}
