//! Finds the events that are whole in bytes that no checksum vouches for any more.
//!
//! A chunk with one wrong bit holds many events, and each of them has checksums of its own. They
//! are searched by their magic word and believed if the message around them is one of the events'
//! channel, their own CRCs agree and they are of this run. Where the file's index says that one is, no
//! message need be around it. An event inside the payload of another
//! one has no such message around it, or is stepped over with the event that it is in. Whether
//! bytes may be searched at all is decided by [`crate::run_reader`] and [`crate::run_scan`].

use std::collections::BTreeSet;

use livetime_wire::{RunNumber, event};

use crate::chunk_data::words_of;
use crate::damage::DamageReason;
use crate::mcap_record::{Fields, MESSAGE_HEADER_BYTES, MessageHeader, RECORD_HEADER_BYTES, op};
use crate::run_chunk::{Channel, filling};
use crate::run_reader::checked_event;

/// Bytes from the start of an event to the end of its trigger number.
const EVENT_START_BYTES: usize = 24;
/// A message's header says five things of its event that can be compared; one may be damaged.
const AGREEMENTS_MIN: usize = 4;
/// How often the length of the bytes may be checked again for events that turn out damaged.
const BUDGET_PASSES: usize = 4;

/// Where bytes of an event lie in the bytes that were searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventBytes {
    /// Where its words start.
    pub(crate) start: usize,
    /// Bytes of its words.
    pub(crate) bytes: usize,
}

/// What was found in bytes of a run file.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// Events that are whole, in the order of the file.
    pub(crate) whole: Vec<EventBytes>,
    /// Events that are there and damaged, and why.
    pub(crate) damaged: Vec<(EventBytes, DamageReason)>,
}

impl Salvage {
    /// Searches `data` for events of a run.
    pub(crate) fn of(data: &[u8], run: RunNumber) -> Self {
        let mut found = Self::default();
        let mut scratch = Vec::new();
        let mut budget = data.len().saturating_mul(BUDGET_PASSES);
        let mut at = 0;
        while let Some(start) = next_magic(data, at) {
            at = start + 1;
            let Some(candidate) = Candidate::of(data, start).filter(|c| c.run == run) else {
                continue;
            };
            let Some(bytes) = data
                .get(start..)
                .and_then(|data| data.get(..candidate.bytes))
            else {
                continue;
            };
            if bytes.len() > budget {
                break;
            }
            budget -= bytes.len();
            let place = EventBytes {
                start,
                bytes: bytes.len(),
            };
            match checked_event(words_of(bytes, &mut scratch)) {
                Ok(_) => {
                    found.whole.push(place);
                    at = start + place.bytes;
                }
                Err(reason) => {
                    found.damaged.push((place, reason));
                    at = candidate.next_record(data).unwrap_or(at);
                }
            }
        }
        found
    }

    /// The run of the first whole event in `data`, where no chunk says which run it is of.
    pub(crate) fn run_of(data: &[u8]) -> Option<RunNumber> {
        let mut scratch = Vec::new();
        let mut budget = data.len().saturating_mul(BUDGET_PASSES);
        let mut at = 0;
        while let Some(start) = next_magic(data, at) {
            at = start + 1;
            let Some(candidate) = Candidate::of(data, start) else {
                continue;
            };
            let bytes = data
                .get(start..)
                .and_then(|data| data.get(..candidate.bytes));
            let Some(bytes) = bytes else { continue };
            budget = budget.checked_sub(bytes.len())?;
            if checked_event(words_of(bytes, &mut scratch)).is_ok() {
                return Some(candidate.run);
            }
        }
        None
    }

    /// Adds whole events that are at these places and were not found: nothing of the messages around
    /// them need be left.
    pub(crate) fn add_told(&mut self, data: &[u8], run: RunNumber, places: &[(usize, usize)]) {
        let mut scratch = Vec::new();
        let known: BTreeSet<usize> = self.whole.iter().map(|event| event.start).collect();
        for &(start, bytes) in places {
            let words = start
                .checked_add(bytes)
                .and_then(|end| data.get(start..end));
            let Some(words) = words.filter(|_| !known.contains(&start)) else {
                continue;
            };
            let event = checked_event(words_of(words, &mut scratch)).ok();
            if let Some(event) = event.filter(|event| event.header().run == run) {
                // A shorter one may be there than was told.
                let bytes = event.words().len() * 4;
                self.whole.push(EventBytes { start, bytes });
                self.damaged.retain(|(event, _)| event.start != start);
            }
        }
        self.whole.sort_by_key(|event| event.start);
    }

    /// The first whole event that starts at `offset` or behind it.
    pub(crate) fn next_from(&self, offset: usize) -> Option<EventBytes> {
        let at = self.whole.partition_point(|event| event.start < offset);
        self.whole.get(at).copied()
    }
}

/// The trigger number of the event that starts at `start`.
pub(crate) fn trigger_at(data: &[u8], start: usize) -> Option<u64> {
    let header = data.get(start..start.checked_add(EVENT_START_BYTES)?)?;
    let mut fields = Fields(header.get(EVENT_START_BYTES - 8..)?);
    fields.u64()
}

/// Where the next magic word of an event starts, at `from` or behind it.
fn next_magic(data: &[u8], from: usize) -> Option<usize> {
    let magic = event::MAGIC.to_le_bytes();
    let rest = data.get(from..)?;
    let at = rest.windows(magic.len()).position(|bytes| bytes == magic)?;
    Some(from + at)
}

/// What stands where an event starts, before any checksum was compared.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    run: RunNumber,
    /// Bytes of the event, as it says itself.
    bytes: usize,
    /// Where its message ends, as the message says.
    message_end: Option<usize>,
}

impl Candidate {
    /// The event at `start`; `None` if the bytes before it are no message around it.
    fn of(data: &[u8], start: usize) -> Option<Self> {
        let message_at = start.checked_sub(MESSAGE_HEADER_BYTES)?;
        let message = data.get(message_at..start)?;
        let mut fields = Fields(data.get(start..start.checked_add(EVENT_START_BYTES)?)?);
        fields.bytes(8)?;
        let bytes = usize::try_from(fields.u32()?).ok()?.checked_mul(4)?;
        let run = RunNumber(fields.u32()?);
        let trigger_low = fields.u32()?;

        let mut record = Fields(message);
        let opcode = record.u8()?;
        let content_bytes = usize::try_from(record.u64()?).unwrap_or(usize::MAX);
        let (header, _) = MessageHeader::parse(record.0)?;
        let published = record.bytes(14).and_then(|_| record.u64())?;
        let fixed_bytes = MESSAGE_HEADER_BYTES - RECORD_HEADER_BYTES;
        let agreements = [
            opcode == op::MESSAGE,
            header.channel == Channel::Events as u16,
            header.sequence == trigger_low,
            header.time == published,
            content_bytes
                == fixed_bytes
                    .saturating_add(bytes)
                    .saturating_add(filling(bytes)),
        ];
        let agreeing = agreements.iter().filter(|agrees| **agrees).count();
        let message_end = message_at
            .checked_add(RECORD_HEADER_BYTES)
            .and_then(|content_at| content_at.checked_add(content_bytes));
        (agreeing >= AGREEMENTS_MIN).then_some(Self {
            run,
            bytes,
            message_end,
        })
    }

    /// Where to go on behind a damaged event: the end of its message, if another one starts there.
    fn next_record(&self, data: &[u8]) -> Option<usize> {
        let end = self.message_end?;
        // In bytes of another place any byte may look like the start of a record.
        let is_next = end == data.len() || data.get(end..).is_some_and(is_message);
        is_next.then_some(end)
    }
}

/// Whether a message of a channel that we know starts here.
fn is_message(data: &[u8]) -> bool {
    let header = data
        .get(RECORD_HEADER_BYTES..)
        .and_then(MessageHeader::parse);
    let channel = header.and_then(|(header, _)| Channel::from_id(header.channel));
    data.first() == Some(&op::MESSAGE) && channel.is_some()
}

#[cfg(test)]
mod tests {
    use livetime_wire::event::{EventHeader, FragmentEntry};
    use livetime_wire::slink::FragmentStatus;
    use livetime_wire::{L2Mask, RunNs, SourceId, TriggerNumber, crc::crc32c};

    use super::*;

    const RUN: RunNumber = RunNumber(7);

    fn event(run: RunNumber, trigger: u64, payload: &[u32]) -> Vec<u32> {
        let header = EventHeader {
            run,
            trigger: TriggerNumber(trigger),
            triggered_at: RunNs(trigger),
            mask: L2Mask::default(),
            filter_reason: 0,
            streams: 0,
        };
        let entry = FragmentEntry {
            source: SourceId(1),
            words: payload.len() as u32,
            status: FragmentStatus::default(),
            crc: crc32c(payload),
        };
        let mut words = Vec::new();
        header.emit(&[entry], &[], &mut words);
        words.extend_from_slice(payload);
        words
    }

    /// A message of the events' channel, and where its event starts.
    fn put(data: &mut Vec<u8>, words: &[u32], trigger: u32) -> usize {
        let header = MessageHeader {
            channel: Channel::Events as u16,
            sequence: trigger,
            time: 99,
        };
        let bytes = words.len() * 4;
        header.put(data, bytes + filling(bytes));
        let start = data.len();
        data.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        data.resize(data.len() + filling(bytes), 0);
        start
    }

    fn starts(found: &Salvage) -> Vec<usize> {
        found.whole.iter().map(|event| event.start).collect()
    }

    #[test]
    fn every_single_flipped_bit_costs_at_most_the_event_that_it_is_in() {
        let mut data = vec![1, 2, 3];
        let places: Vec<usize> = (1..4u32)
            .map(|trigger| put(&mut data, &event(RUN, u64::from(trigger), &[9; 5]), trigger))
            .collect();
        assert_eq!(starts(&Salvage::of(&data, RUN)), places);
        let event_bytes = event(RUN, 1, &[9; 5]).len() * 4;
        for bit in 0..data.len() * 8 {
            data[bit / 8] ^= 1 << (bit % 8);
            let untouched = places.iter().copied();
            let untouched =
                untouched.filter(|start| !(*start..start + event_bytes).contains(&(bit / 8)));
            let found = Salvage::of(&data, RUN);
            assert_eq!(starts(&found), untouched.collect::<Vec<_>>(), "bit {bit}");
            data[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn events_of_other_runs_and_inside_payloads_are_not_taken() {
        let inner = event(RUN, 3, &[1, 2]);
        let mut data = Vec::new();
        put(&mut data, &event(RunNumber(8), 1, &[4; 4]), 1);
        let mut outer = event(RUN, 2, &inner);
        let at = put(&mut data, &outer, 2);
        assert_eq!(starts(&Salvage::of(&data, RUN)), [at]);
        // The outer one is damaged in the last word of the inner one; behind it all goes on.
        *outer.last_mut().unwrap() ^= 1;
        let mut data = Vec::new();
        let damaged = put(&mut data, &outer, 2);
        let next = put(&mut data, &event(RUN, 4, &[5]), 4);
        let found = Salvage::of(&data, RUN);
        assert_eq!(starts(&found), [next]);
        assert_eq!(found.damaged.len(), 1);
        assert_eq!(found.damaged[0].0.start, damaged);
        // An event that is cut off is none, and no damage of its own.
        let cut = Salvage::of(&data[..data.len() - 8], RUN);
        assert_eq!((cut.whole.len(), cut.damaged.len()), (0, 1));
    }
}
