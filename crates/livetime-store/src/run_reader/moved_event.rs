//! Single events, found by the index of the file, and those that are not where it says.
//!
//! Whoever asks for single events gets what one gets who reads them one after the other. So an event
//! that is damaged at its place is searched: in the chunk that it was written to, where bytes may have
//! been lost and put in, then in the whole file, which is read once for that. For a file without
//! damage nothing of that is done. What is kept are the places of the events of one chunk, and then of
//! all.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek};

use livetime_wire::TriggerNumber;
use livetime_wire::event::EventView;

use super::{ChunkPlace, IndexOrigin, ReadError, RunReader, checked_event};
use crate::chunk_data::{ChunkData, words_of};
use crate::damage::{Damage, DamageReason};
use crate::event_index::{EventIndex, EventPlace};
use crate::mcap_record::CHUNK_HEADER_BYTES;
use crate::salvage::{Salvage, trigger_at};

/// The chunk that was searched last for events that are not at their places, by where its record
/// starts, and the whole events in it by trigger number.
#[derive(Debug, Default)]
pub(super) struct MovedEvents(Option<(u64, BTreeMap<u64, EventSpan>)>);

/// Where the words of an event lie in the file.
#[derive(Debug, Clone, Copy)]
struct EventSpan {
    offset: u64,
    bytes: u64,
}

impl From<EventPlace> for EventSpan {
    fn from(place: EventPlace) -> Self {
        let data_at = place.chunk_offset.saturating_add(CHUNK_HEADER_BYTES as u64);
        Self {
            offset: data_at.saturating_add(u64::from(place.offset)),
            bytes: u64::from(place.bytes),
        }
    }
}

impl<R: Read + Seek> RunReader<R> {
    /// The event of a trigger, found through the index; iteration goes on where it was.
    ///
    /// Only the event is loaded and not its chunk; its own CRCs cover it. One that is damaged there
    /// and whole elsewhere is searched.
    ///
    /// # Errors
    /// [`ReadError`] if the input fails or the event is damaged.
    pub fn event(&mut self, trigger: TriggerNumber) -> Result<Option<EventView<'_>>, ReadError> {
        let Some(place) = self.event_index()?.find(trigger) else {
            return Ok(None);
        };
        if let Err(reason) = self.load_event(place.into(), trigger)? {
            self.note_unreadable();
            let span = EventSpan::from(place);
            let fault = self.input.fault_in(span.offset, span.bytes);
            let damage = Damage {
                offset: span.offset,
                bytes: span.bytes,
                reason: fault.map_or(reason, DamageReason::Unreadable),
            };
            let trigger = trigger.0;
            let damaged = ReadError::Damaged { trigger, damage };
            let Some(moved) = self.find_moved(place)? else {
                return Err(damaged);
            };
            if self.load_event(moved, place.trigger)?.is_err() {
                return Err(damaged);
            }
        }
        let words = words_of(self.single.bytes(), &mut self.single_scratch);
        Ok(EventView::new_checked(words).ok())
    }

    /// Loads what is at a place, and says why it is not the whole event of this trigger.
    fn load_event(
        &mut self,
        span: EventSpan,
        trigger: TriggerNumber,
    ) -> io::Result<Result<(), DamageReason>> {
        let is_there = span.offset.saturating_add(span.bytes) <= self.input_bytes;
        let Some(bytes) = usize::try_from(span.bytes).ok().filter(|_| is_there) else {
            return Ok(Err(DamageReason::Index));
        };
        self.single.load(&mut self.input, span.offset, bytes)?;
        let words = words_of(self.single.bytes(), &mut self.single_scratch);
        Ok(match checked_event(words) {
            Ok(event) if event.header().trigger == trigger => Ok(()),
            Ok(_) => Err(DamageReason::Index),
            Err(reason) => Err(reason),
        })
    }

    /// Where an event is whole that is damaged at the place that the file's index tells.
    fn find_moved(&mut self, place: EventPlace) -> io::Result<Option<EventSpan>> {
        // An index that was made from the chunks tells nothing that is not there.
        let is_told = self.index_place.is_some() && !self.index_is_wrong;
        if !is_told || self.origin != IndexOrigin::Summary {
            return Ok(None);
        }
        let searched = self.moved.0.as_ref();
        if searched.is_none_or(|(at, _)| *at != place.chunk_offset) {
            let found = self.search_chunk(place.chunk_offset)?;
            self.moved.0 = Some((place.chunk_offset, found));
        }
        let searched = self.moved.0.as_ref();
        let here = searched.and_then(|(_, found)| found.get(&place.trigger.0));
        if let Some(span) = here {
            return Ok(Some(*span));
        }
        // Nothing was read one after the other up to now where this takes a scan.
        self.find_displaced()?;
        let found = match self.origin {
            IndexOrigin::Summary => {
                if self.index_of_whole.is_none() {
                    self.index_of_whole = Some(self.rebuild_index()?);
                }
                let whole = self.index_of_whole.as_ref();
                whole.and_then(|whole| whole.find(place.trigger))
            }
            IndexOrigin::Scan => self.event_index()?.find(place.trigger),
        };
        Ok(found.map(EventSpan::from))
    }

    /// The whole events of a chunk, wherever in it they are.
    fn search_chunk(&mut self, chunk_offset: u64) -> io::Result<BTreeMap<u64, EventSpan>> {
        let mut chunks = self.chunks.iter();
        let place = chunks.find(|place| place.offset == chunk_offset).copied();
        let input_bytes = self.input_bytes;
        let is_there = |bytes: &u64| chunk_offset.saturating_add(*bytes) <= input_bytes;
        let place = place.filter(|place| is_there(&place.record_bytes()));
        let Some((place, bytes)) =
            place.and_then(|place| Some((place, usize::try_from(place.data_bytes).ok()?)))
        else {
            return Ok(BTreeMap::new());
        };
        let mut data = ChunkData::default();
        data.load(&mut self.input, place.data_at(), bytes)?;
        let salvage = Salvage::of(data.bytes(), self.run());
        let whole = salvage.whole.iter().rev().filter_map(|event| {
            let span = EventSpan {
                offset: place.data_at() + event.start as u64,
                bytes: event.bytes as u64,
            };
            Some((trigger_at(data.bytes(), event.start)?, span))
        });
        // Of two the first one counts.
        Ok(whole.collect())
    }

    /// Where the index in the file says that events are: start and bytes in the data of a place.
    pub(super) fn places_told(&mut self, place: ChunkPlace) -> io::Result<Vec<(usize, usize)>> {
        if self.origin == IndexOrigin::Summary && self.index.is_none() {
            self.index = self.read_index()?;
        }
        let index = match self.origin {
            IndexOrigin::Summary => self.index.as_ref(),
            IndexOrigin::Scan => self.told.as_ref(),
        };
        let spans = index.into_iter().flat_map(EventIndex::places);
        let spans = spans.map(|told| EventSpan::from(*told));
        let inside = spans.filter_map(|span| {
            let start = span.offset.checked_sub(place.data_at())?;
            let is_inside = start.checked_add(span.bytes)? <= place.data_bytes;
            is_inside.then_some((start as usize, span.bytes as usize))
        });
        Ok(inside.collect())
    }
}
