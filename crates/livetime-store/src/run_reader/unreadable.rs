//! What a reader says of bytes that cannot be read: where they are, and nothing else of that place.
//!
//! They are zeros in memory, so that checksums are wrong where they are. That is their consequence, and
//! not listed beside them.

use std::io::{self, Read, Seek};

use super::RunReader;
use crate::damage::{Damage, DamageList};

impl<R: Read + Seek> RunReader<R> {
    /// Lists damage, unless bytes in it cannot be read: these are listed.
    pub(super) fn push_damage(&mut self, damage: Damage) {
        self.note_unreadable();
        // What is missing altogether has a place, too.
        let bytes = damage.bytes.max(1);
        if self.input.fault_in(damage.offset, bytes).is_none() {
            self.damage.push(damage);
        }
    }

    /// Lists what cannot be read, as far as it was tried.
    pub(super) fn note_unreadable(&mut self) {
        if self.input.take_news() {
            self.damage.put_unreadable(self.input.unreadable());
        }
    }

    /// Lists what a scan has found in place of what was listed.
    pub(super) fn take_damage(&mut self, found: DamageList) {
        self.damage = found;
        let input = &self.input;
        (self.damage).retain(|damage| input.fault_in(damage.offset, damage.bytes).is_none());
        self.input.take_news();
        self.damage.put_unreadable(self.input.unreadable());
    }

    /// Why nothing of a run file was found, if that may be because it cannot be read.
    pub(super) fn unreadable_error(&self) -> Option<io::Error> {
        let stretches: Vec<Damage> = self.input.unreadable().collect();
        let bytes: u64 = stretches.iter().map(|stretch| stretch.bytes).sum();
        let first = stretches.first()?;
        Some(io::Error::other(format!(
            "no chunk of a run file in what can be read of it: of {} bytes {bytes} are not, first {first}",
            self.input_bytes
        )))
    }
}
