//! Which run file is read: by the mark of a whole chunk, else by an event.
//!
//! An event tells the run and not which of its files it is of, so a whole chunk of that run that is
//! found later says the rest.

use std::io::{self, Read, Seek};

use livetime_wire::RunNumber;

use super::{OpenError, RunReader};
use crate::run_scan::Wanted;
use crate::salvage::Salvage;

impl<R: Read + Seek> RunReader<R> {
    /// The run number.
    pub fn run(&self) -> RunNumber {
        let identity = self.identity.map(|identity| identity.run);
        let run = identity.or(self.run_by_event);
        run.expect("a reader has verified a chunk or an event")
    }

    /// What chunks have to be of, as far as it is known.
    pub(super) fn wanted(&self) -> Wanted {
        match (self.identity, self.run_by_event) {
            (Some(identity), _) => Wanted::File(identity),
            (None, Some(run)) => Wanted::Run(run),
            (None, None) => Wanted::AnyRun,
        }
    }

    /// The reader, if anything in the file tells which run it is of.
    pub(super) fn if_identified(mut self) -> Result<Self, OpenError> {
        self.note_unreadable();
        match self.wanted() {
            // Another program's file, or nothing in it is whole.
            Wanted::AnyRun => Err(self.unreadable_error().map_or(
                OpenError::NotRunFile {
                    bytes: self.input_bytes,
                },
                OpenError::Io,
            )),
            Wanted::Run(_) | Wanted::File(_) => Ok(self),
        }
    }

    /// Learns from a whole event which run the file is of, where no chunk is whole.
    pub(super) fn identify_by_event(&mut self) -> io::Result<()> {
        for at in 0..self.chunks.len() {
            let place = self.chunks[at];
            let end = place.offset.saturating_add(place.record_bytes());
            let bytes = usize::try_from(place.data_bytes).ok();
            let Some(bytes) = bytes.filter(|_| end <= self.input_bytes) else {
                continue;
            };
            self.loaded = None;
            self.data.load(&mut self.input, place.data_at(), bytes)?;
            self.run_by_event = Salvage::run_of(self.data.bytes());
            if self.run_by_event.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }
}
