//! Which salvaged events a reader has elsewhere: bytes repeated in a file make whole events twice.
//!
//! Only what is found in damaged bytes can be a double, chunks that are whole come once. So nothing
//! is done, and nothing kept, for a file without damage. The first salvage of events reads
//! the file once more, for the smallest and largest trigger number of each whole chunk; a chunk in
//! whose range a salvaged trigger lies is looked into. What is kept are these ranges and the
//! places of salvaged events, both bounded by the file. An event in a whole chunk goes before a
//! salvaged one, of salvaged ones the first that was found.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek};

use super::{RunReader, checked_event};
use crate::chunk_data::words_of;
use crate::damage::DamageReason;
use crate::run_chunk::{Channel, Messages};
use crate::salvage::{Salvage, trigger_at};

/// What is known of the triggers of a file with damage.
#[derive(Debug, Default)]
pub(super) struct KnownTriggers {
    /// Smallest and largest trigger number of each place that is a whole chunk with events, as far
    /// as places were asked for.
    ranges: Vec<Option<(u64, u64)>>,
    /// Where each salvaged trigger is handed out: place, and start in its data.
    salvaged: BTreeMap<u64, (usize, usize)>,
    /// The place of each trigger of which a damaged event was found, and no whole one up to then.
    damaged: BTreeMap<u64, usize>,
}

impl KnownTriggers {
    /// Forgets what lies in places from `place` on.
    pub(super) fn forget_from(&mut self, place: usize) {
        self.ranges.truncate(place);
        self.salvaged.retain(|_, (at, _)| *at < place);
        self.damaged.retain(|_, at| *at < place);
    }

    /// Events in places from `place` on that are damaged and whole nowhere, as far as places were
    /// searched.
    pub(super) fn damaged_from(&self, place: usize) -> u64 {
        let behind = self.damaged.iter().filter(|(_, at)| **at >= place);
        let only_damaged = behind.filter(|(trigger, _)| !self.salvaged.contains_key(trigger));
        only_damaged.count() as u64
    }
}

impl<R: Read + Seek> RunReader<R> {
    /// Takes the events that are handed out elsewhere out of what was found in the loaded data of a
    /// place, and lists them.
    pub(super) fn drop_doubles(&mut self, place: usize, salvage: &mut Salvage) -> io::Result<()> {
        let data = self.data.bytes();
        let triggers_of = |starts: &mut dyn Iterator<Item = usize>| -> Vec<u64> {
            starts.filter_map(|start| trigger_at(data, start)).collect()
        };
        let whole = triggers_of(&mut salvage.whole.iter().map(|event| event.start));
        let damaged = triggers_of(&mut salvage.damaged.iter().map(|(event, _)| event.start));
        let wanted: BTreeSet<u64> = whole.iter().chain(&damaged).copied().collect();
        let elsewhere = match wanted.is_empty() {
            true => BTreeSet::new(),
            false => self.in_whole_chunks(&wanted)?,
        };
        let mut doubles = Vec::new();
        let mut triggers = whole.iter();
        salvage.whole.retain(|event| {
            let Some(trigger) = triggers.next() else {
                return true;
            };
            let here = (place, event.start);
            let is_first = !elsewhere.contains(trigger)
                && *self.known.salvaged.entry(*trigger).or_insert(here) == here;
            if !is_first {
                doubles.push((*event, *trigger));
            }
            is_first
        });
        for (event, trigger) in doubles {
            let reason = DamageReason::EventTwice { trigger };
            self.push_damaged_event(place, event.start, event.bytes, reason);
        }
        for trigger in damaged
            .iter()
            .filter(|trigger| !elsewhere.contains(trigger))
        {
            self.known.damaged.entry(*trigger).or_insert(place);
        }
        Ok(())
    }

    /// Which of the triggers are those of whole events in whole chunks.
    fn in_whole_chunks(&mut self, wanted: &BTreeSet<u64>) -> io::Result<BTreeSet<u64>> {
        // Chunks are loaded into the same memory as the place that was searched.
        let searched = std::mem::take(&mut self.data);
        let found = self.look_up(wanted);
        self.data = searched;
        self.loaded = None;
        found
    }

    fn look_up(&mut self, wanted: &BTreeSet<u64>) -> io::Result<BTreeSet<u64>> {
        for place in self.known.ranges.len()..self.chunks.len() {
            let mut range: Option<(u64, u64)> = None;
            for (trigger, _) in self.events_of_whole(place)? {
                let (first, last) = range.unwrap_or((trigger, trigger));
                range = Some((first.min(trigger), last.max(trigger)));
            }
            self.known.ranges.push(range);
        }
        let mut found = BTreeSet::new();
        let mut scratch = Vec::new();
        for place in 0..self.known.ranges.len() {
            let range = self.known.ranges[place];
            let overlaps = |(first, last)| wanted.range(first..=last).next().is_some();
            if range.is_some_and(overlaps) {
                let events = self.events_of_whole(place)?;
                let events = events.filter(|(trigger, _)| wanted.contains(trigger));
                let whole =
                    events.filter(|(_, data)| checked_event(words_of(data, &mut scratch)).is_ok());
                found.extend(whole.map(|(trigger, _)| trigger));
            }
        }
        Ok(found)
    }

    /// Trigger and data of each event of a place that is a whole chunk; none of any other.
    fn events_of_whole(&mut self, place: usize) -> io::Result<impl Iterator<Item = (u64, &[u8])>> {
        let is_whole = self.chunks[place].has(Channel::Events) && self.load(place)?;
        let data = if is_whole { self.data.bytes() } else { &[] };
        let events = Messages::new(data, 0).flatten();
        let events = events.filter(|message| message.channel == Channel::Events);
        Ok(events.filter_map(|message| Some((trigger_at(message.data, 0)?, message.data))))
    }
}
