//! The byte stream of the ATLAS family: files of built events in nested fragments of detectors.
//!
//! Checked views of the file's records, of full events, ROBs and RODs, and the frame into which an
//! event falls apart when its ROBs are taken out, so that the stream can be put together again word
//! for word. Payload is not looked into, and trailing checksums of version 4 are kept, not checked.
//! The family is ATLAS up to version 3 with its children (BESIII, test beams), and version 4, which
//! has no sub-detector and ROS levels and other headers; the page is `docs/formats/byte-stream.md`.
//!
//! ```text
//! 1234AAAA file   1234AABB name   1234BBBB run parameters            once
//! 1234CCCC separator | AA1234AA event [ BB1234BB sub-detector [ CC1234CC ROS [
//!     DD1234DD ROB [ EE1234EE ROD data ] ] ] ]                       for each event
//! 1234DDDD .. 1234EEEE                                               at the end
//! ```

use crate::id::{RunNumber, SourceId};

/// First word of a file.
pub const FILE_START: u32 = 0x1234_AAAA;
/// First word of the names in a file.
pub const FILE_NAME: u32 = 0x1234_AABB;
/// First word of the run parameters.
pub const RUN_PARAMETERS: u32 = 0x1234_BBBB;
/// First word of an event separator.
pub const SEPARATOR: u32 = 0x1234_CCCC;
/// First word of the end of a file.
pub const FILE_END: u32 = 0x1234_DDDD;
/// First word of a full event.
pub const FULL_EVENT: u32 = 0xAA12_34AA;
/// First word of a sub-detector fragment.
pub const SUB_DETECTOR: u32 = 0xBB12_34BB;
/// First word of a ROS fragment.
pub const ROS: u32 = 0xCC12_34CC;
/// First word of a ROB fragment.
pub const ROB: u32 = 0xDD12_34DD;
/// First word of a ROD fragment.
pub const ROD: u32 = crate::fragment::MARKER;

/// Words of the fixed part of a header: marker, length, header length, version, source, number of
/// status words.
const HEADER_WORDS_MIN: usize = 6;
/// Of the end of a file: the word with the number of its events.
const EVENTS_IN_FILE: usize = 4;
/// Words of a ROD's trailer.
const ROD_TRAILER_WORDS: usize = 3;

/// Why words are not a byte stream. Positions count words from the start of what was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ByteStreamError {
    /// Another first word than allowed here.
    #[error("word {position} is {found:#010x}, expected {expected}")]
    Marker {
        /// Where.
        position: usize,
        /// The word.
        found: u32,
        /// What is allowed.
        expected: &'static str,
    },
    /// The words of the other byte order.
    #[error("word {position} is {found:#010x}: the stream is of the other byte order")]
    ByteOrder {
        /// Where.
        position: usize,
        /// The word.
        found: u32,
    },
    /// A length that does not fit what is around it.
    #[error("length {found} at word {position} does not fit, {allowed} words are there")]
    Length {
        /// Where.
        position: usize,
        /// The length.
        found: usize,
        /// Words there are.
        allowed: usize,
    },
    /// A ROD's trailer contradicts its length.
    #[error("trailer of the ROD at word {position} says {found} words, it has {expected}")]
    Trailer {
        /// Where.
        position: usize,
        /// Words by the trailer.
        found: usize,
        /// Words there are.
        expected: usize,
    },
    /// Two ROBs of one source in an event.
    #[error("source {source_id} comes twice in the event at word {position}")]
    SourceTwice {
        /// Where the event is.
        position: usize,
        /// The source.
        source_id: SourceId,
    },
    /// A frame that is none, or that its ROBs do not fit.
    #[error("frame word {position} is {found:#010x}, which fits no byte stream")]
    Frame {
        /// Where.
        position: usize,
        /// The word.
        found: u32,
    },
}

/// A fragment with a header: event, sub-detector, ROS or ROB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NestedView<'a> {
    words: &'a [u32],
    header_words: usize,
}

impl<'a> NestedView<'a> {
    /// The fragment at the start of `words`, whose first word is `marker`.
    ///
    /// # Errors
    /// A [`ByteStreamError`] with positions from `at` on.
    pub fn new_checked(
        words: &'a [u32],
        at: usize,
        marker: u32,
        expected: &'static str,
    ) -> Result<Self, ByteStreamError> {
        let found = words.first().copied().unwrap_or(0);
        if found != marker {
            return Err(wrong_marker(at, found, expected));
        }
        let allowed = words.len();
        let length = |index: usize| words.get(index).map_or(0, |word| *word as usize);
        let (total, header_words) = (length(1), length(2));
        if total > allowed || total < HEADER_WORDS_MIN {
            let (position, found) = (at + 1, total);
            return Err(ByteStreamError::Length {
                position,
                found,
                allowed,
            });
        }
        if !(HEADER_WORDS_MIN..=total).contains(&header_words) {
            return Err(ByteStreamError::Length {
                position: at + 2,
                found: header_words,
                allowed: total,
            });
        }
        let (words, status) = (&words[..total], words[5] as usize);
        if HEADER_WORDS_MIN + status > header_words {
            return Err(ByteStreamError::Length {
                position: at + 5,
                found: status,
                allowed: header_words - HEADER_WORDS_MIN,
            });
        }
        Ok(Self {
            words,
            header_words,
        })
    }

    /// All its words.
    pub fn words(&self) -> &'a [u32] {
        self.words
    }

    /// Words of its header.
    pub fn header_words(&self) -> usize {
        self.header_words
    }

    /// Format version.
    pub fn version(&self) -> u32 {
        self.words[3]
    }

    /// Source.
    pub fn source(&self) -> SourceId {
        SourceId(self.words[4])
    }

    /// Status words.
    pub fn status(&self) -> &'a [u32] {
        &self.words[HEADER_WORDS_MIN..HEADER_WORDS_MIN + self.words[5] as usize]
    }

    /// Major version.
    fn major(&self) -> u32 {
        self.version() >> 24
    }

    /// The words of the header after the status.
    fn after_status(&self) -> &'a [u32] {
        &self.words[HEADER_WORDS_MIN + self.words[5] as usize..self.header_words]
    }

    /// The specific words of the header: up to version 3 their number first, from version 4 on behind
    /// the checksum type.
    pub fn specific(&self) -> &'a [u32] {
        let words = self.after_status();
        match self.major() {
            0..4 => words,
            _ => words.get(1..).unwrap_or_default(),
        }
    }

    /// The words between the header and the checksum: from version 4 on there is one where the checksum
    /// type is not 0.
    pub fn payload(&self) -> &'a [u32] {
        let words = &self.words[self.header_words..];
        let kind = self.after_status().first().filter(|_| self.major() >= 4);
        let has_checksum = kind.is_some_and(|kind| *kind != 0);
        &words[..words.len() - usize::from(has_checksum && !words.is_empty())]
    }
}

/// A ROD fragment: nine header words or as many as it says, data and status, three trailer words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RodView<'a> {
    words: &'a [u32],
    header_words: usize,
}

impl<'a> RodView<'a> {
    /// All of `words` as a ROD.
    ///
    /// # Errors
    /// A [`ByteStreamError`] with positions from `at` on.
    pub fn new_checked(words: &'a [u32], at: usize) -> Result<Self, ByteStreamError> {
        let found = words.first().copied().unwrap_or(0);
        if found != ROD {
            return Err(wrong_marker(at, found, "a ROD, 0xEE1234EE"));
        }
        let header_words = words.get(1).map_or(0, |word| *word as usize);
        let most = words.len().saturating_sub(ROD_TRAILER_WORDS);
        if !(HEADER_WORDS_MIN..=most).contains(&header_words) {
            return Err(ByteStreamError::Length {
                position: at + 1,
                found: header_words,
                allowed: most,
            });
        }
        let trailer = &words[words.len() - ROD_TRAILER_WORDS..];
        let found = trailer[0] as u64 + trailer[1] as u64;
        let expected = most - header_words;
        if found != expected as u64 {
            return Err(ByteStreamError::Trailer {
                position: at,
                found: found.min(u64::from(u32::MAX)) as usize,
                expected,
            });
        }
        Ok(Self {
            words,
            header_words,
        })
    }

    /// Source.
    pub fn source(&self) -> SourceId {
        SourceId(self.words[3])
    }

    /// The Level-1 number, if the header has it.
    pub fn level_one_id(&self) -> Option<u32> {
        (self.header_words > 5).then(|| self.words[5])
    }

    /// Data words: those between header and trailer that are no status.
    pub fn data(&self) -> &'a [u32] {
        let [status, data, status_after] = [0, 1, 2].map(|index| {
            let trailer = self.words.len() - ROD_TRAILER_WORDS;
            self.words[trailer + index] as usize
        });
        let from = self.header_words + if status_after == 0 { status } else { 0 };
        &self.words[from..from + data]
    }
}

/// A full event and where its ROBs are.
#[derive(Debug, Clone)]
pub struct FullEventView<'a> {
    event: NestedView<'a>,
    /// Position in the event's words, and the ROB.
    robs: Vec<(usize, NestedView<'a>)>,
}

impl<'a> FullEventView<'a> {
    /// The event at the start of `words`, with everything in it down to the RODs' trailers.
    ///
    /// # Errors
    /// A [`ByteStreamError`] with positions from `at` on.
    pub fn new_checked(words: &'a [u32], at: usize) -> Result<Self, ByteStreamError> {
        let event = NestedView::new_checked(words, at, FULL_EVENT, "an event, 0xAA1234AA")?;
        let mut robs = Vec::new();
        let mut next = event.header_words();
        let inside = &event.words()[..next + event.payload().len()];
        while next < inside.len() {
            next = find_robs(inside, next, at, &mut robs)?;
        }
        let mut sources: Vec<SourceId> = robs.iter().map(|(_, rob)| rob.source()).collect();
        sources.sort_unstable();
        if let Some(pair) = sources.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ByteStreamError::SourceTwice {
                position: at,
                source_id: pair[0],
            });
        }
        Ok(Self { event, robs })
    }

    /// The event's own fragment.
    pub fn event(&self) -> NestedView<'a> {
        self.event
    }

    /// The ROBs in their order, each with its position in the event's words.
    pub fn robs(&self) -> impl ExactSizeIterator<Item = (usize, NestedView<'a>)> {
        self.robs.iter().copied()
    }

    /// The run number of the header, where the version is known to have it: up to 3 the third specific
    /// word behind their number, in 4 the fifth.
    pub fn run(&self) -> Option<RunNumber> {
        let at = match self.event.major() {
            0..4 => 3,
            4 => 4,
            _ => return None,
        };
        self.event.specific().get(at).map(|word| RunNumber(*word))
    }

    /// The event's own number: up to version 3 the second specific word behind their number, in
    /// version 4 the third, the global number.
    pub fn number(&self) -> Option<u32> {
        let specific = self.event.specific();
        specific.get(2).filter(|_| self.event.major() <= 4).copied()
    }
}

/// Goes into one fragment at `next` of the event's words; returns the position behind it.
fn find_robs<'a>(
    event: &'a [u32],
    next: usize,
    at: usize,
    robs: &mut Vec<(usize, NestedView<'a>)>,
) -> Result<usize, ByteStreamError> {
    let words = &event[next..];
    let expected = "a sub-detector, a ROS or a ROB";
    match words[0] {
        marker @ (SUB_DETECTOR | ROS) => {
            let outer = NestedView::new_checked(words, at + next, marker, expected)?;
            // What is inside must end with it.
            let inside = &event[..next + outer.words().len()];
            let mut inner = next + outer.header_words();
            while inner < inside.len() {
                if inside[inner] == marker || (marker == ROS && inside[inner] == SUB_DETECTOR) {
                    return Err(wrong_marker(
                        at + inner,
                        inside[inner],
                        "a fragment further in",
                    ));
                }
                inner = find_robs(inside, inner, at, robs)?;
            }
            Ok(inner)
        }
        ROB => {
            let rob = NestedView::new_checked(words, at + next, ROB, expected)?;
            let rod_at = at + next + rob.header_words();
            // One that is known to be damaged is passed on as it is.
            if rob.status().iter().all(|word| *word == 0) {
                RodView::new_checked(rob.payload(), rod_at)?;
            }
            robs.push((next, rob));
            Ok(next + rob.words().len())
        }
        found => Err(wrong_marker(at + next, found, expected)),
    }
}

fn wrong_marker(position: usize, found: u32, expected: &'static str) -> ByteStreamError {
    let swapped = found.swap_bytes();
    let is_swapped = [
        FULL_EVENT,
        SUB_DETECTOR,
        ROS,
        ROB,
        ROD,
        FILE_START,
        SEPARATOR,
    ]
    .contains(&swapped);
    if is_swapped {
        return ByteStreamError::ByteOrder { position, found };
    }
    ByteStreamError::Marker {
        position,
        found,
        expected,
    }
}

/// A piece of a stream: one event, with the words that stand before it and belong to no event.
#[derive(Debug, Clone)]
pub struct StreamPiece<'a> {
    /// File header, names, run parameters, separator.
    pub before: &'a [u32],
    /// The event.
    pub event: FullEventView<'a>,
    /// Everything behind the last event; empty for the others.
    pub after: &'a [u32],
}

/// What the records of a stream's files say of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileRecords {
    /// Files that begin.
    pub starts: u64,
    /// Files that end.
    pub ends: u64,
    /// Events in those that end.
    pub events: u64,
}

impl FileRecords {
    /// Takes the records before or behind an event.
    pub fn note(&mut self, records: &[u32]) {
        let mut next = 0;
        while let Some(words) = record_words(records, next).filter(|words| *words > 0) {
            let record = &records[next..records.len().min(next.saturating_add(words))];
            match record[0] {
                FILE_START => self.starts += 1,
                FILE_END => {
                    self.ends += 1;
                    let events = record.get(EVENTS_IN_FILE).copied();
                    self.events += u64::from(events.unwrap_or(0));
                }
                _ => {}
            }
            next = next.saturating_add(words);
        }
    }
}

/// Words of the record at a position, if one is there; more than any stream has where they are cut.
fn record_words(words: &[u32], at: usize) -> Option<usize> {
    match *words.get(at)? {
        FILE_NAME => Some(name_words(words, at)),
        FILE_START | RUN_PARAMETERS | SEPARATOR | FILE_END => {
            Some(words.get(at + 1).map_or(usize::MAX, |n| *n as usize))
        }
        _ => None,
    }
}

/// Two texts, each with its number of bytes before it and padded to words.
fn name_words(stream: &[u32], at: usize) -> usize {
    let mut words = 1;
    for _ in 0..2 {
        let bytes = stream.get(at + words).map_or(u32::MAX, |n| *n);
        words += 1 + bytes.div_ceil(4) as usize;
    }
    words
}

/// Goes through a stream, event by event.
#[derive(Debug, Clone)]
pub struct StreamReader<'a> {
    words: &'a [u32],
    next: usize,
    has_failed: bool,
}

impl<'a> StreamReader<'a> {
    /// A reader at the start of a stream, with or without the records of a file around its events.
    pub fn new(words: &'a [u32]) -> Self {
        Self {
            words,
            next: 0,
            has_failed: false,
        }
    }

    /// The next record that is no event; returns the position behind it, or `from` if an event or
    /// the end is there.
    fn pass_records(&self, from: usize) -> Result<usize, ByteStreamError> {
        let mut next = from;
        while let Some(word) = self.words.get(next).copied() {
            if word == FULL_EVENT {
                break;
            }
            let Some(words) = record_words(self.words, next) else {
                let expected = "a record of the file or an event";
                return Err(wrong_marker(next, word, expected));
            };
            let left = self.words.len() - next;
            if !(2..=left).contains(&words) {
                return Err(ByteStreamError::Length {
                    position: next + 1,
                    found: words,
                    allowed: left,
                });
            }
            next += words;
        }
        Ok(next)
    }

    fn next_piece(&mut self) -> Result<Option<StreamPiece<'a>>, ByteStreamError> {
        let start = self.next;
        let event_at = self.pass_records(start)?;
        if event_at == self.words.len() {
            return Ok(None);
        }
        let event = FullEventView::new_checked(&self.words[event_at..], event_at)?;
        let end = event_at + event.event().words().len();
        // What follows belongs to the next event if there is one.
        let behind = self.pass_records(end)?;
        let is_last = behind == self.words.len();
        self.next = if is_last { behind } else { end };
        Ok(Some(StreamPiece {
            before: &self.words[start..event_at],
            event,
            after: if is_last { &self.words[end..] } else { &[] },
        }))
    }
}

impl<'a> Iterator for StreamReader<'a> {
    type Item = Result<StreamPiece<'a>, ByteStreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed || self.next == self.words.len() {
            return None;
        }
        let piece = self.next_piece().transpose();
        self.has_failed = matches!(piece, Some(Err(_)));
        piece
    }
}

#[cfg(test)]
mod tests;
