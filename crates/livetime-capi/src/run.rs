//! The handle: a reader, the event that the caller looks at, and where in it the caller is.
//!
//! All safe but one step: the current event keeps pointing into the reader's chunk, beyond what the
//! compiler can follow. Every method that moves the reader drops that event first.

use std::ffi::CString;
use std::path::Path;

use livetime_client::RunFolder;
use livetime_wire::TriggerNumber;
use livetime_wire::event::{EventHeader, EventView};

use crate::record::{Damage, Event, Fragment, RunInfo};
use crate::status::{Failure, Status};

/// An open run.
pub struct Run {
    path: String,
    reader: RunFolder,
    current: Option<Current>,
    /// The text that the last `livetime_damage_at` handed out.
    reason: CString,
    /// Set while a call is under way: still set at the next one, a panic cut the call short.
    busy: bool,
}

/// The event that the caller looks at.
struct Current {
    /// Borrows from the buffers of the reader beside it, see [`Run::set_current`].
    event: EventView<'static>,
    fragments_given: usize,
    /// Where the words of the next fragment start in the event.
    next_word: usize,
}

impl Run {
    /// Opens a run directory or a run file.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let reader = RunFolder::open(path)
            .map_err(|error| Failure::open(&error.path.display().to_string(), &error.error))?;
        Ok(Self {
            path: path.display().to_string(),
            reader,
            current: None,
            reason: CString::default(),
            busy: false,
        })
    }

    /// Runs one call; refuses if an earlier one never came back.
    pub(crate) fn enter(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<Status, Failure>,
    ) -> Result<Status, Failure> {
        if self.busy {
            let text = "an earlier call failed with a bug; the run can only be closed";
            return Err(Failure::new(Status::ErrorInternal, text));
        }
        self.busy = true;
        let result = call(self);
        self.busy = false;
        result
    }

    pub(crate) fn info(&self) -> RunInfo {
        let end = self.reader.end();
        RunInfo {
            number: self.reader.run().0,
            closed: end.is_some_and(|end| !end.recovered),
            started_tai_ns: self.reader.begin().map_or(0, |begin| begin.started_tai_ns),
            events_stored: end.map_or(0, |end| end.events_stored),
            events_missing: self.reader.events_missing(),
            damaged_ranges: self.reader.damage_total() + self.reader.files_lacking().len() as u64,
            file_bytes: self.reader.input_bytes(),
        }
    }

    pub(crate) fn next_event(&mut self) -> Result<Option<Event>, Failure> {
        self.current = None;
        let Self { path, reader, .. } = self;
        let event = reader
            .next_event()
            .map_err(|error| Failure::io(path, &error))?;
        Ok(set_current(&mut self.current, event))
    }

    pub(crate) fn find_event(&mut self, trigger: TriggerNumber) -> Result<Option<Event>, Failure> {
        self.current = None;
        let Self { path, reader, .. } = self;
        let event = reader
            .event(trigger)
            .map_err(|error| Failure::read(path, &error))?;
        Ok(set_current(&mut self.current, event))
    }

    pub(crate) fn next_fragment(&mut self) -> Option<Fragment> {
        let current = self.current.as_mut()?;
        let entry = current.event.entries().nth(current.fragments_given)?;
        let end = current.next_word + entry.words as usize;
        let words = &current.event.words()[current.next_word..end];
        current.fragments_given += 1;
        current.next_word = end;
        Some(Fragment {
            source: entry.source.0,
            status: entry.status.0,
            words: words.as_ptr(),
            word_count: words.len(),
        })
    }

    pub(crate) fn rewind(&mut self) {
        self.current = None;
        self.reader.rewind();
    }

    pub(crate) fn refresh(&mut self) -> Result<(), Failure> {
        self.current = None;
        self.reader
            .refresh()
            .map_err(|error| Failure::io(&self.path, &error))
    }

    pub(crate) fn damage(&mut self, index: usize) -> Option<Damage> {
        let several = self.reader.file_count() > 1;
        let in_files = self.reader.damage().map(|(path, damage)| {
            let file = path.file_name().filter(|_| several);
            let file = file.map_or(String::new(), |n| format!("{}: ", n.to_string_lossy()));
            let reason = format!("{file}{}", damage.reason);
            (damage.offset, damage.bytes, reason)
        });
        let lacking = self.reader.files_lacking().into_iter();
        let lacking = lacking.map(|file| (0, file.bytes, file.text));
        let (offset, bytes, reason) = in_files.chain(lacking).nth(index)?;
        self.reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
        Some(Damage {
            offset,
            bytes,
            reason: self.reason.as_ptr(),
        })
    }
}

/// Makes `event` the current one and gives the caller's view of it.
fn set_current(current: &mut Option<Current>, event: Option<EventView<'_>>) -> Option<Event> {
    let event = event?;
    let header = event.header();
    let (fragments, missing) = (event.entries().len(), event.missing().len());
    let header_words = EventHeader::words(fragments, missing);
    // Between the table of fragments and the header's CRC.
    let missing_ids = &event.words()[header_words - 1 - missing..header_words - 1];
    let mask = header.mask.0;
    let out = Event {
        trigger: header.trigger.0,
        triggered_at_ns: header.triggered_at.0,
        decision: [(mask & u128::from(u64::MAX)) as u64, (mask >> 64) as u64],
        run: header.run.0,
        filter_reason: header.filter_reason,
        streams: header.streams,
        fragment_count: fragments as u32,
        missing_count: missing as u32,
        missing: missing_ids.as_ptr(),
        words: event.words().as_ptr(),
        word_count: event.words().len(),
    };
    // SAFETY: only the lifetime changes. The words lie in heap buffers of the reader that is a
    // field beside `current`; they are neither written nor freed before the next call that moves
    // the reader, and each of those (`next_event`, `find_event`, `rewind`, `refresh`) sets
    // `current` to `None` before it does. A `Run` is never taken apart, so that both end together.
    let event = unsafe { std::mem::transmute::<EventView<'_>, EventView<'static>>(event) };
    *current = Some(Current {
        event,
        fragments_given: 0,
        next_word: header_words,
    });
    Some(out)
}
