//! Reads run files: by their index where they have one, by a scan for chunks where not.
//!
//! Only what a CRC covers is believed: a chunk's CRC before anything in it is used, the event
//! header's and the fragments' CRCs before an event is handed out, the summary's before the index.
//! Damage is passed over, and listed in [`RunReader::damage`]; of a damaged chunk the events are
//! read that are whole themselves, by the module `salvage`, those that are nowhere else. Bytes that the
//! system does not give are damage too: `patchy_input` reads around them. A file that is still being
//! written, or was cut off by a crash, is read up to its last complete chunk; [`RunReader::refresh`]
//! goes on from there. Iterating allocates nothing per event: an event is a view into the loaded chunk.
//! Nothing is repaired here: that is [`crate::recovery`].

use std::io::{self, Read, Seek, SeekFrom};

use livetime_wire::event::{EventError, EventView, FragmentCrcError};
use livetime_wire::{RunNumber, TriggerNumber};

use crate::chunk_data::{ChunkData, words_of};
use crate::damage::{Damage, DamageList, DamageReason};
use crate::event_index::{EventIndex, EventPlace};
use crate::file_tail::FileTail;
use crate::histogram::{Histogram, histograms_from_json};
use crate::mcap_record::{
    CHUNK_HEADER_BYTES, ChunkHeader, ChunkIndex, RECORD_HEADER_BYTES, Record, attachment_data,
    crc32, op,
};
use crate::patchy_input::PatchyInput;
use crate::run_chunk::{Channel, ChunkContent, Messages, RunIdentity};
use crate::run_record::{RunBegin, RunEnd};
use crate::run_scan::{Gap, Scan, ScannedChunk, Wanted, scan};
use crate::salvage::{Salvage, trigger_at};
use doubles::KnownTriggers;
use moved_event::MovedEvents;

mod displaced;
mod doubles;
mod event_counts;
mod frame;
mod growth;
mod identity;
mod moved_event;
mod unreadable;

/// Why a file cannot be opened as a run file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The input failed.
    #[error("the file cannot be read")]
    Io(#[from] io::Error),
    /// Nothing in the file is a chunk of a run file.
    #[error("not a run file: no chunk of one in its {bytes} bytes")]
    NotRunFile {
        /// Bytes of the file.
        bytes: u64,
    },
    /// The file is not of the run whose directory it lies in.
    #[error(
        "a run file of another run than {than}; move it out of the directory, where it can be read alone"
    )]
    OtherRun {
        /// Bytes of the file.
        bytes: u64,
        /// What tells which run the directory is of.
        than: RunToldBy,
    },
    /// The file is a copy of another one of its run, whose events would count twice.
    #[error(
        "holds what {of} of the run holds, under another name; move it out of the directory, where it \
         can be read alone"
    )]
    Copy {
        /// The name that its begin-of-run record gives it.
        of: String,
    },
}

/// What tells which run a directory is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RunToldBy {
    /// The first of its run files.
    #[error("the first file of its directory")]
    FirstFile,
    /// The summary in it.
    #[error("run {run}, which the summary.json beside it is of")]
    Summary {
        /// The run's number.
        run: u32,
    },
}

/// Why an event cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The input failed.
    #[error("the run file cannot be read")]
    Io(#[from] io::Error),
    /// The event is there and damaged.
    #[error("event of trigger {trigger}: {damage}")]
    Damaged {
        /// Its trigger number.
        trigger: u64,
        /// What is wrong.
        damage: Damage,
    },
}

/// Where the list of chunks comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexOrigin {
    /// From the summary at the end of the file.
    Summary,
    /// From a scan of the file, which has no summary or a damaged one.
    Scan,
}

/// Whether a place is a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceKind {
    /// A chunk, by the summary or a scan.
    Chunk,
    /// What a scan found between chunks, to be searched for events.
    Gap,
    /// The same behind the last chunk, where one may still be being written.
    CutEnd,
}

#[derive(Debug, Clone, Copy)]
struct ChunkPlace {
    kind: PlaceKind,
    offset: u64,
    data_bytes: u64,
    channels: u8,
    /// Known once the chunk was verified.
    content: Option<ChunkContent>,
    damaged: bool,
    /// Its events that are damaged while it is not, as far as it was iterated over.
    events_damaged: u64,
    /// How far in its data these were counted.
    iterated_to: usize,
    /// Its events that are whole while it is damaged and nowhere else, once it was searched.
    events_salvaged: u64,
    /// Whether message indexes follow it, as far as the summary says.
    has_indexes: bool,
    /// Whether what is around it was compared with it.
    frame_compared: bool,
}

impl ChunkPlace {
    fn has(&self, channel: Channel) -> bool {
        self.channels & (1 << channel as u16) != 0
    }

    fn record_bytes(&self) -> u64 {
        self.data_at() - self.offset + self.data_bytes
    }

    /// Where its data start in the file; no header of a gap is believed.
    fn data_at(&self) -> u64 {
        match self.kind {
            PlaceKind::Chunk => self.offset + CHUNK_HEADER_BYTES as u64,
            PlaceKind::Gap | PlaceKind::CutEnd => self.offset,
        }
    }

    /// What is in it, if it is whole.
    fn good(&self) -> Option<ChunkContent> {
        self.content.filter(|_| !self.damaged)
    }

    /// Its whole events, once it was iterated over.
    fn events_found(&self) -> u64 {
        match self.good() {
            Some(content) => content.events.saturating_sub(self.events_damaged),
            None => self.events_salvaged,
        }
    }

    /// A chunk of a summary.
    fn unread(offset: u64, data_bytes: u64, channels: u8) -> Self {
        Self {
            kind: PlaceKind::Chunk,
            offset,
            data_bytes,
            channels,
            content: None,
            damaged: false,
            events_damaged: 0,
            iterated_to: 0,
            events_salvaged: 0,
            has_indexes: true,
            frame_compared: false,
        }
    }
}

impl From<&ScannedChunk> for ChunkPlace {
    fn from(chunk: &ScannedChunk) -> Self {
        let channels = chunk.content.channels;
        Self {
            content: Some(chunk.content),
            ..Self::unread(chunk.offset, chunk.data_bytes, channels)
        }
    }
}

impl From<&Gap> for ChunkPlace {
    fn from(gap: &Gap) -> Self {
        let kind = match gap.at_end {
            true => PlaceKind::CutEnd,
            false => PlaceKind::Gap,
        };
        Self {
            kind,
            damaged: true,
            ..Self::unread(gap.offset, gap.bytes, 1 << Channel::Events as u16)
        }
    }
}

/// Reads one run file.
pub struct RunReader<R> {
    input: PatchyInput<R>,
    input_bytes: u64,
    /// Whether the file ends as one that was closed.
    is_closed: bool,
    origin: IndexOrigin,
    chunks: Vec<ChunkPlace>,
    index_place: Option<(u64, u64)>,
    /// Whether what is there was read and is no index.
    index_is_wrong: bool,
    /// Where the summary starts, if it is believed.
    summary_start: Option<u64>,
    index: Option<EventIndex>,
    /// The places of all whole events, where one was not where the index of the file tells.
    index_of_whole: Option<EventIndex>,
    /// Events in all chunks by the summary, if it was believed.
    events_by_summary: Option<u64>,
    identity: Option<RunIdentity>,
    /// The run by an event, where no chunk tells it.
    run_by_event: Option<RunNumber>,
    begin: Option<RunBegin>,
    end: Option<RunEnd>,
    damage: DamageList,
    /// The chunk in memory.
    data: ChunkData,
    loaded: Option<usize>,
    /// Or the damaged one, and the events in it.
    salvaged: Option<(usize, Salvage)>,
    known: KnownTriggers,
    moved: MovedEvents,
    /// Whether begin- and end-of-run record were read out of the chunks that are known.
    records_read: bool,
    /// Whether the chunks of the summary were looked for at their places.
    places_compared: bool,
    /// The index of a file whose chunks are not at their places.
    told: Option<EventIndex>,
    /// Where that is, until it was read.
    told_place: Option<(u64, u64)>,
    /// Whether events of a chunk that is cut off are read as well.
    with_cut_end: bool,
    /// Whether chunks are compared with what is around them when they are loaded.
    compares_frames: bool,
    /// The chunk that iteration is in, and where in its data.
    cursor: (usize, usize),
    /// Words of an event that does not lie on a word.
    scratch: Vec<u32>,
    single: ChunkData,
    single_scratch: Vec<u32>,
}

impl<R: Read + Seek> RunReader<R> {
    /// Opens a file; it need not be complete.
    ///
    /// # Errors
    /// [`OpenError`] if the input fails or nothing in it is a chunk of a run file.
    pub fn open(input: R) -> Result<Self, OpenError> {
        let mut input = PatchyInput::new(input);
        let input_bytes = input.seek(SeekFrom::End(0))?;
        let Some(tail) = FileTail::read(&mut input, input_bytes)? else {
            return Self::scanned(input);
        };
        let chunks = tail.chunks.iter();
        let chunks = chunks.map(|chunk| ChunkPlace {
            has_indexes: !chunk.message_indexes.is_empty(),
            ..ChunkPlace::unread(chunk.offset, chunk.data_bytes, channels_of(chunk))
        });
        let chunks = chunks.collect();
        let mut reader = Self::new(input, input_bytes, IndexOrigin::Summary, chunks);
        reader.index_place = tail.event_index;
        reader.summary_start = Some(tail.summary_start);
        reader.events_by_summary = tail.events;
        reader.read_records()?;
        if reader.identity.is_none() && !reader.load_first_good()? {
            // No chunk is whole at its place: all may be at others, where no event tells the run.
            reader.identify_by_event()?;
            reader.find_displaced()?;
        } else if reader.lacks_record() {
            // The chunk that holds it may be at another place.
            reader.find_displaced()?;
        }
        reader.if_identified()
    }

    /// Opens a file by a scan for its chunks, whatever its summary says.
    ///
    /// # Errors
    /// As [`RunReader::open`].
    pub fn open_by_scan(input: R) -> Result<Self, OpenError> {
        Self::scanned(PatchyInput::new(input))
    }

    fn scanned(mut input: PatchyInput<R>) -> Result<Self, OpenError> {
        let found = scan(&mut input, 0, Wanted::AnyRun)?;
        let reader = Self::new(input, found.input_bytes, IndexOrigin::Scan, Vec::new());
        reader.with_scan(found)
    }

    /// Reads what a scan of the whole file has found.
    fn with_scan(mut self, found: Scan) -> Result<Self, OpenError> {
        self.take_scan(found);
        if self.identity.is_none() {
            self.identify_by_event()?;
        }
        self.read_records()?;
        self.if_identified()
    }

    fn new(
        input: PatchyInput<R>,
        input_bytes: u64,
        origin: IndexOrigin,
        chunks: Vec<ChunkPlace>,
    ) -> Self {
        Self {
            input,
            input_bytes,
            is_closed: origin == IndexOrigin::Summary,
            origin,
            chunks,
            index_place: None,
            index_is_wrong: false,
            summary_start: None,
            index: None,
            index_of_whole: None,
            events_by_summary: None,
            identity: None,
            run_by_event: None,
            begin: None,
            end: None,
            damage: DamageList::default(),
            data: ChunkData::default(),
            loaded: None,
            salvaged: None,
            known: KnownTriggers::default(),
            moved: MovedEvents::default(),
            records_read: false,
            places_compared: false,
            told: None,
            told_place: None,
            with_cut_end: false,
            compares_frames: false,
            cursor: (0, 0),
            scratch: Vec::new(),
            single: ChunkData::default(),
            single_scratch: Vec::new(),
        }
    }

    /// The begin-of-run record, if the chunk that holds it is whole.
    pub fn begin(&self) -> Option<&RunBegin> {
        self.begin.as_ref()
    }

    /// The end-of-run record, if the file has one.
    pub fn end(&self) -> Option<&RunEnd> {
        self.end.as_ref()
    }

    /// Where the list of chunks comes from.
    pub fn origin(&self) -> IndexOrigin {
        self.origin
    }

    /// Bytes of the file.
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes
    }

    /// Where what was read of the file ends: bytes of it, without a chunk that is cut off.
    pub fn chunks_end(&self) -> u64 {
        let whole = self.chunks.iter();
        let whole = whole.filter(|place| place.kind != PlaceKind::CutEnd);
        let ends = whole.map(|place| place.offset.saturating_add(place.record_bytes()));
        ends.max().unwrap_or(0).min(self.input_bytes)
    }

    /// Number of chunks, damaged ones in the index included.
    pub fn chunk_count(&self) -> usize {
        let chunks = self.chunks.iter();
        chunks
            .filter(|place| place.kind == PlaceKind::Chunk)
            .count()
    }

    /// Number of chunks and of gaps between them that may hold events.
    pub(crate) fn place_count(&self) -> usize {
        self.chunks.len()
    }

    /// Bytes of the largest of these that is there in whole: no event of the file is larger.
    pub(crate) fn place_bytes_max(&self) -> u64 {
        let end_of = |place: &ChunkPlace| place.offset.saturating_add(place.record_bytes());
        let places = self.chunks.iter();
        let whole = places.filter(|place| end_of(place) <= self.input_bytes);
        whole.map(|place| place.data_bytes).max().unwrap_or(0)
    }

    /// Reads the events of a chunk that is cut off at the end of the file as well; not for a file
    /// that may still be being written, in which they come once more with their chunk.
    pub fn read_cut_end(&mut self) {
        self.with_cut_end = true;
    }

    /// Whether there are bytes behind the last whole chunk that may be the start of another one: of a file
    /// without an end-of-run record, behind which none is written.
    pub fn is_cut_off(&self) -> bool {
        let is_cut = |place: &ChunkPlace| place.kind == PlaceKind::CutEnd;
        self.end.is_none() && self.chunks.iter().any(is_cut)
    }

    /// Whether the file has its end-of-run record and was closed when it was looked at last: nothing
    /// comes any more.
    pub fn is_finished(&self) -> bool {
        self.end.is_some() && self.is_closed
    }

    /// What was passed over so far.
    pub fn damage(&self) -> &DamageList {
        &self.damage
    }

    /// The next event that is whole, in the order in which they were written.
    ///
    /// # Errors
    /// Only errors of the input; damaged chunks and events are passed over.
    pub fn next_event(&mut self) -> io::Result<Option<EventView<'_>>> {
        let found = self.find_next()?;
        Ok(found.and_then(|place| self.event_found(place)))
    }

    /// Goes to the next event that is whole: start and bytes in the loaded chunk, for
    /// [`RunReader::event_found`].
    ///
    /// # Errors
    /// Only errors of the input; damaged chunks and events are passed over.
    pub fn find_next(&mut self) -> io::Result<Option<(usize, usize)>> {
        while let Some((start, bytes)) = self.next_event_data()? {
            let words = words_of(&self.data.bytes()[start..start + bytes], &mut self.scratch);
            let Err(reason) = checked_event(words) else {
                return Ok(Some((start, bytes)));
            };
            let (chunk, next) = self.cursor;
            self.push_damaged_event(chunk, start, bytes, reason);
            // Counted once, though it is passed over in each iteration.
            let place = &mut self.chunks[chunk];
            if next > place.iterated_to {
                place.iterated_to = next;
                place.events_damaged += 1;
            }
        }
        Ok(None)
    }

    /// The event that [`RunReader::find_next`] found last.
    pub fn event_found(&mut self, place: (usize, usize)) -> Option<EventView<'_>> {
        let (start, bytes) = place;
        let data = self.data.bytes().get(start..start.checked_add(bytes)?)?;
        let words = words_of(data, &mut self.scratch);
        EventView::new_checked(words).ok()
    }

    /// The trigger of the event that [`RunReader::find_next`] found last.
    pub fn trigger_found(&self, place: (usize, usize)) -> Option<TriggerNumber> {
        trigger_at(self.data.bytes(), place.0).map(TriggerNumber)
    }

    /// Starts again at the first event.
    pub fn rewind(&mut self) {
        self.cursor = (0, 0);
    }

    /// The places of all events: from the file, or rebuilt from the chunks and kept.
    ///
    /// # Errors
    /// Only errors of the input.
    pub fn event_index(&mut self) -> io::Result<&EventIndex> {
        if self.index.is_none() {
            let stored = self.read_index()?;
            let index = match stored {
                Some(index) => index,
                None => {
                    self.find_displaced()?;
                    self.rebuild_index()?
                }
            };
            self.index = Some(index);
        }
        Ok(self.index.get_or_insert_default())
    }

    /// The histograms that were written last, if there are any that can be read.
    ///
    /// # Errors
    /// Only errors of the input.
    pub fn histograms(&mut self) -> io::Result<Option<Vec<Histogram>>> {
        let mut last = None;
        for chunk in 0..self.chunks.len() {
            if !self.chunks[chunk].has(Channel::Histograms) || !self.load(chunk)? {
                continue;
            }
            let messages = Messages::new(self.data.bytes(), 0).flatten();
            let parsed = messages
                .filter(|message| message.channel == Channel::Histograms)
                .map(|message| serde_json::from_slice(message.data).ok())
                .map(|json| json.and_then(|json| histograms_from_json(&json).ok()));
            match parsed.last() {
                Some(Some(histograms)) => last = Some(histograms),
                Some(None) => self.damage_chunk(chunk, DamageReason::Json),
                // The summary did not say which channels it has.
                None => {}
            }
        }
        Ok(last)
    }

    /// The input, for drivers that follow a growing file.
    pub fn input_mut(&mut self) -> &mut R {
        self.input.inner_mut()
    }

    /// Returns the input.
    pub fn into_inner(self) -> R {
        self.input.into_inner()
    }

    /// Loads and verifies a chunk; `false` if it is damaged, which is then listed once.
    pub(crate) fn load(&mut self, chunk: usize) -> io::Result<bool> {
        if self.loaded == Some(chunk) {
            return Ok(true);
        }
        let place = self.chunks[chunk];
        if place.damaged {
            return Ok(false);
        }
        self.loaded = None;
        self.salvaged = None;
        let verified = self.load_verified(place)?;
        match verified {
            Ok(content) => {
                self.identity.get_or_insert(content.mark.identity);
                self.chunks[chunk].content = Some(content);
                self.loaded = Some(chunk);
                if self.compares_frames {
                    self.compare_frame(chunk)?;
                }
                Ok(true)
            }
            Err(reason) => {
                self.damage_chunk(chunk, reason);
                self.chunks[chunk].damaged = true;
                Ok(false)
            }
        }
    }

    /// Loads the whole events of a chunk that is damaged, or of a gap; `None` where none are to be read.
    pub(crate) fn load_salvage(&mut self, chunk: usize) -> io::Result<Option<&Salvage>> {
        let place = self.chunks[chunk];
        let may_grow = !self.with_cut_end && self.end.is_none();
        let cut_end = place.kind == PlaceKind::CutEnd && may_grow;
        let within = place.offset.saturating_add(place.record_bytes()) <= self.input_bytes;
        let bytes = usize::try_from(place.data_bytes).ok();
        // What says that it holds no event was believed by its own checksum.
        let is_searched = place.damaged && place.has(Channel::Events) && !cut_end && within;
        let Some(bytes) = bytes.filter(|_| is_searched) else {
            return Ok(None);
        };
        if self.salvaged.as_ref().is_none_or(|(at, _)| *at != chunk) {
            self.loaded = None;
            self.salvaged = None;
            self.data.load(&mut self.input, place.data_at(), bytes)?;
            let mut salvage = Salvage::of(self.data.bytes(), self.run());
            let told = self.places_told(place)?;
            salvage.add_told(self.data.bytes(), self.run(), &told);
            for (event, reason) in &salvage.damaged {
                self.push_damaged_event(chunk, event.start, event.bytes, *reason);
            }
            self.drop_doubles(chunk, &mut salvage)?;
            self.chunks[chunk].events_salvaged = salvage.whole.len() as u64;
            self.salvaged = Some((chunk, salvage));
        }
        Ok(self.salvaged.as_ref().map(|(_, salvage)| salvage))
    }

    /// The data of the chunk that [`RunReader::load`] loaded last.
    pub(crate) fn loaded_data(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Takes note of an event that is damaged, by its place in the data of a chunk.
    pub(crate) fn push_damaged_event(
        &mut self,
        chunk: usize,
        start: usize,
        bytes: usize,
        reason: DamageReason,
    ) {
        self.push_damage(Damage {
            offset: self.chunks[chunk].data_at() + start as u64,
            bytes: bytes as u64,
            reason,
        });
    }

    /// Sets how many events of a whole chunk are damaged, for one that reads all of it at once.
    pub(crate) fn set_events_damaged(&mut self, chunk: usize, events: u64) {
        self.chunks[chunk].events_damaged = events;
        self.chunks[chunk].iterated_to = usize::MAX;
    }

    /// Place and size come from the summary or a scan, so of the header only the CRC is used.
    fn load_verified(
        &mut self,
        place: ChunkPlace,
    ) -> io::Result<Result<ChunkContent, DamageReason>> {
        let end = place.offset.saturating_add(place.record_bytes());
        let Some(data_bytes) = usize::try_from(place.data_bytes)
            .ok()
            .filter(|_| end <= self.input_bytes)
        else {
            let missing = end.saturating_sub(self.input_bytes);
            return Ok(Err(DamageReason::ChunkTruncated { missing }));
        };
        let mut header = [0; CHUNK_HEADER_BYTES];
        self.input.seek(SeekFrom::Start(place.offset))?;
        self.input.read_exact(&mut header)?;
        let data_at = place.offset + CHUNK_HEADER_BYTES as u64;
        self.data.load(&mut self.input, data_at, data_bytes)?;
        let stored = ChunkHeader::stored_crc(&header);
        let computed = crc32(self.data.bytes());
        if stored != computed {
            return Ok(Err(DamageReason::ChunkChecksum { stored, computed }));
        }
        Ok(match ChunkContent::of(self.data.bytes()) {
            Err(error) => Err(DamageReason::ChunkContent(error)),
            Ok(content) if self.wanted().admits(content.mark.identity) => Ok(content),
            Ok(_) => Err(DamageReason::OtherRun),
        })
    }

    fn damage_chunk(&mut self, chunk: usize, reason: DamageReason) {
        let place = self.chunks[chunk];
        self.push_damage(Damage {
            offset: place.offset,
            bytes: place.record_bytes(),
            reason,
        });
    }

    fn load_first_good(&mut self) -> io::Result<bool> {
        for chunk in 0..self.chunks.len() {
            if self.load(chunk)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the begin- and end-of-run records out of the chunks that hold them, once for these chunks;
    /// after an error it reads them when it is asked next.
    fn read_records(&mut self) -> io::Result<()> {
        if self.records_read {
            return Ok(());
        }
        for chunk in 0..self.chunks.len() {
            let place = self.chunks[chunk];
            let wanted = (self.begin.is_none() && place.has(Channel::Begin))
                || (self.end.is_none() && place.has(Channel::End));
            if !wanted || !self.load(chunk)? {
                continue;
            }
            let mut unreadable = false;
            for message in Messages::new(self.data.bytes(), 0).flatten() {
                match message.channel {
                    Channel::Begin => self.begin = serde_json::from_slice(message.data).ok(),
                    Channel::End => self.end = serde_json::from_slice(message.data).ok(),
                    _ => continue,
                }
                unreadable |= self.begin.is_none() && message.channel == Channel::Begin;
                unreadable |= self.end.is_none() && message.channel == Channel::End;
            }
            if unreadable {
                self.damage_chunk(chunk, DamageReason::Json);
            }
        }
        self.records_read = true;
        Ok(())
    }

    /// Whether a record is not in the chunk that the summary says holds it.
    fn lacks_record(&self) -> bool {
        let is_told = |channel| self.chunks.iter().any(|place| place.has(channel));
        (self.begin.is_none() && is_told(Channel::Begin))
            || (self.end.is_none() && is_told(Channel::End))
    }

    /// Start and bytes, within the loaded chunk, of the next event's data.
    fn next_event_data(&mut self) -> io::Result<Option<(usize, usize)>> {
        if self.cursor == (0, 0) {
            self.find_displaced()?;
        }
        while self.cursor.0 < self.chunks.len() {
            let chunk = self.cursor.0;
            let place = self.chunks[chunk];
            if !place.has(Channel::Events) {
                // Its mark tells how many events came before it.
                if place.content.is_none() {
                    self.load(chunk)?;
                }
            } else if self.load(chunk)? {
                let mut messages = Messages::new(self.data.bytes(), self.cursor.1);
                let next = messages
                    .by_ref()
                    .flatten()
                    .find(|m| m.channel == Channel::Events);
                if let Some(message) = next {
                    let found = (message.data_offset, message.data.len());
                    self.cursor.1 = messages.offset();
                    return Ok(Some(found));
                }
            } else {
                let from = self.cursor.1;
                let salvage = self.load_salvage(chunk)?;
                if let Some(event) = salvage.and_then(|salvage| salvage.next_from(from)) {
                    self.cursor.1 = event.start + event.bytes;
                    return Ok(Some((event.start, event.bytes)));
                }
            }
            self.cursor = (chunk + 1, 0);
        }
        Ok(None)
    }

    fn read_index(&mut self) -> io::Result<Option<EventIndex>> {
        let Some((offset, record_bytes)) = self.index_place.filter(|_| !self.index_is_wrong) else {
            return Ok(None);
        };
        let end = offset.saturating_add(record_bytes);
        let Some(bytes) = usize::try_from(record_bytes)
            .ok()
            .filter(|_| end <= self.input_bytes)
        else {
            return Ok(None);
        };
        self.single.load(&mut self.input, offset, bytes)?;
        let record = Record::split(self.single.bytes());
        let content = record
            .filter(|(record, rest)| record.opcode == op::ATTACHMENT && rest.is_empty())
            .and_then(|(record, _)| attachment_data(record.content));
        let run = self.run();
        let index = content.and_then(|data| EventIndex::parse(data, run));
        if index.is_none() {
            let bytes = record_bytes.max(RECORD_HEADER_BYTES as u64);
            self.push_damage(Damage {
                offset,
                bytes,
                reason: DamageReason::Index,
            });
            self.index_is_wrong = true;
        }
        Ok(index)
    }

    fn rebuild_index(&mut self) -> io::Result<EventIndex> {
        let mut places = Vec::new();
        let mut scratch = Vec::new();
        for chunk in 0..self.chunks.len() {
            if !self.chunks[chunk].has(Channel::Events) {
                continue;
            }
            if !self.load(chunk)? {
                self.index_salvage(chunk, &mut places)?;
                continue;
            }
            let messages = Messages::new(self.data.bytes(), 0).flatten();
            for message in messages.filter(|message| message.channel == Channel::Events) {
                let words = words_of(message.data, &mut scratch);
                // Damaged events are listed when they are read.
                let Ok(event) = EventView::new_checked(words) else {
                    continue;
                };
                places.push(EventPlace {
                    trigger: event.header().trigger,
                    chunk_offset: self.chunks[chunk].offset,
                    offset: message.data_offset as u32,
                    bytes: (event.words().len() * 4) as u32,
                });
            }
        }
        Ok(EventIndex::new(places))
    }

    /// Adds the places of the events that are whole in a damaged chunk or a gap.
    fn index_salvage(&mut self, chunk: usize, places: &mut Vec<EventPlace>) -> io::Result<()> {
        let header_bytes = CHUNK_HEADER_BYTES as u64;
        let data_at = self.chunks[chunk].data_at();
        // Places are told as if a chunk's header came before the data, whatever there is.
        let chunk_offset = data_at.saturating_sub(header_bytes);
        let mut scratch = Vec::new();
        let found = self
            .load_salvage(chunk)?
            .map(|salvage| salvage.whole.clone());
        for event in found.unwrap_or_default() {
            let data = &self.data.bytes()[event.start..event.start + event.bytes];
            let Ok(view) = EventView::new_checked(words_of(data, &mut scratch)) else {
                continue;
            };
            let at = (data_at + event.start as u64).checked_sub(chunk_offset + header_bytes);
            let Some(offset) = at.and_then(|at| u32::try_from(at).ok()) else {
                continue;
            };
            places.push(EventPlace {
                trigger: view.header().trigger,
                chunk_offset,
                offset,
                bytes: event.bytes as u32,
            });
        }
        Ok(())
    }
}

/// The channels with messages in a chunk; all if its message indexes could not be written.
fn channels_of(chunk: &ChunkIndex) -> u8 {
    if chunk.message_indexes.is_empty() {
        return u8::MAX;
    }
    let known = chunk
        .message_indexes
        .iter()
        .filter_map(|(id, _)| Channel::from_id(*id));
    known.fold(0, |bits, channel| bits | 1 << channel as u16)
}

/// Checks an event's header and all its fragments against their CRCs.
pub(crate) fn checked_event(words: &[u32]) -> Result<EventView<'_>, DamageReason> {
    let header = |error: EventError| DamageReason::Event(error);
    let fragment = |error: FragmentCrcError| DamageReason::Fragment(error);
    let event = EventView::new_checked(words).map_err(header)?;
    event.verify_fragments().map_err(fragment)?;
    Ok(event)
}
