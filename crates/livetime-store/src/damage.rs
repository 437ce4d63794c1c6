//! What is wrong with a run file, and where.
//!
//! A reader passes over damage and goes on; what it passed over is listed here, with offsets for
//! a person with a hex editor. Nothing here decides what is damage: that is in
//! [`crate::run_scan`] and [`crate::run_reader`].

use std::io;

use livetime_wire::event::{EventError, FragmentCrcError};

use crate::run_chunk::ContentError;

/// Why bytes were passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DamageReason {
    /// A chunk's header contradicts itself.
    #[error("the header of the chunk contradicts itself")]
    ChunkHeader,
    /// A chunk goes on behind the end of the file: the file is cut off, or still being written.
    #[error("the chunk is cut off, {missing} bytes are missing")]
    ChunkTruncated {
        /// Bytes that are not there.
        missing: u64,
    },
    /// The data of a chunk do not agree with its CRC.
    #[error("checksum of the chunk is {stored:#010x}, its data give {computed:#010x}")]
    ChunkChecksum {
        /// In the file.
        stored: u32,
        /// Of the data.
        computed: u32,
    },
    /// A chunk agrees with its CRC and is not one of a run file.
    #[error("{0}")]
    ChunkContent(ContentError),
    /// A chunk belongs to another run file, as a piece of an older file on the same disk does.
    #[error("the chunk belongs to another run file")]
    OtherRun,
    /// A chunk is there a second time.
    #[error("chunk {sequence} is there a second time")]
    ChunkTwice {
        /// Its number.
        sequence: u64,
    },
    /// A chunk lies behind later ones; it is read all the same.
    #[error("chunk {sequence} lies behind later ones; it is read all the same")]
    OutOfSequence {
        /// Its number.
        sequence: u64,
    },
    /// An event's header is not one, or does not agree with its CRC.
    #[error("event: {0}")]
    Event(EventError),
    /// A fragment of an event does not agree with its CRC.
    #[error("event: {0}")]
    Fragment(FragmentCrcError),
    /// A whole event in damaged bytes that is there a second time, as bytes that were repeated make.
    #[error("the event of trigger {trigger} is there a second time")]
    EventTwice {
        /// Its trigger number.
        trigger: u64,
    },
    /// Something around the chunks that no event depends on.
    #[error("{0}; no event depends on it, but another MCAP reader may stop here")]
    Frame(FramePart),
    /// The index names another event than the one that is there.
    #[error("the index is wrong here")]
    Index,
    /// The record of a begin or end of run, or of histograms, cannot be read.
    #[error("a record in JSON cannot be read")]
    Json,
    /// Bytes that are no records of a run file.
    #[error("no records of a run file")]
    NotRecords,
    /// The system does not give these bytes, as those of a bad sector. What a checksum says of a place
    /// with such bytes is not listed beside it.
    #[error("cannot be read: {0}")]
    Unreadable(ReadFault),
    /// The file looks made to keep a reader busy: too many false chunks; the rest was not read.
    #[error("too many false chunks, the rest was not read")]
    ScanBudget,
}

/// Why an input does not give some of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFault {
    /// An error of the system.
    System {
        /// Its number.
        code: i32,
    },
    /// An error of an input that is no file.
    Input {
        /// Its kind.
        kind: io::ErrorKind,
    },
    /// The input is shorter now than it was.
    CutOff,
}

impl From<&io::Error> for ReadFault {
    fn from(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) => Self::System { code },
            None => Self::Input { kind: error.kind() },
        }
    }
}

impl core::fmt::Display for ReadFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::System { code } => {
                // Without the number that the standard library puts behind the system's words.
                let text = io::Error::from_raw_os_error(*code).to_string();
                f.write_str(text.split(" (os error").next().unwrap_or(&text))
            }
            Self::Input { kind } => kind.fmt(f),
            Self::CutOff => f.write_str("the file was cut off while it was read"),
        }
    }
}

/// What is around the chunks of a run file, without a checksum that is checked before they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramePart {
    /// The first bytes of the file.
    #[error("the magic at the start of the file is wrong")]
    Magic,
    /// The first record of the file.
    #[error("the header record of the file is wrong")]
    Header,
    /// Opcode, lengths, times and compression before the data of a chunk.
    #[error("the header of the chunk does not agree with its data")]
    ChunkHeader,
    /// Where the messages of a channel are in the chunk before it.
    #[error("the message index does not agree with the chunk before it")]
    MessageIndex,
    /// The last record before the summary.
    #[error("the record of the end of the data section is wrong")]
    DataEnd,
}

/// A range of bytes that was passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Where it starts in the file.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// Why.
    pub reason: DamageReason,
}

impl Damage {
    /// Whether the two ranges have a byte in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.offset.saturating_add(other.bytes)
            && other.offset < self.offset.saturating_add(self.bytes)
    }

    /// Whether a checksum, or a chunk header that no checksum can vouch for, was wrong.
    fn is_by_checksum(&self) -> bool {
        matches!(
            self.reason,
            DamageReason::ChunkHeader
                | DamageReason::ChunkChecksum { .. }
                | DamageReason::Event(_)
                | DamageReason::Fragment(_)
        )
    }

    /// Whether it tells of bytes that cannot be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self.reason, DamageReason::Unreadable(_))
    }
}

impl core::fmt::Display for Damage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} bytes at {}: {}",
            self.bytes, self.offset, self.reason
        )
    }
}

/// The damage found so far, up to a bound; the total counts on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DamageList {
    entries: Vec<Damage>,
    total: u64,
    checksum_errors: u64,
}

impl DamageList {
    /// Most entries kept.
    pub const ENTRIES_MAX: usize = 1024;

    /// Takes note of damage, once for each place and reason.
    pub fn push(&mut self, damage: Damage) {
        if self.entries.contains(&damage) {
            return;
        }
        self.total += 1;
        self.checksum_errors += u64::from(damage.is_by_checksum());
        if self.entries.len() < Self::ENTRIES_MAX {
            self.entries.push(damage);
        }
    }

    /// Puts what is known now of bytes that cannot be read in place of what was known of them before:
    /// a stretch grows while more of the file is read.
    pub(crate) fn put_unreadable(&mut self, stretches: impl Iterator<Item = Damage>) {
        for stretch in stretches.take(Self::ENTRIES_MAX) {
            let is_part = |entry: &&mut Damage| entry.is_unreadable() && entry.overlaps(&stretch);
            if let Some(part) = self.entries.iter_mut().find(is_part) {
                *part = stretch;
            } else if self.entries.len() < Self::ENTRIES_MAX {
                self.push(stretch);
            }
        }
        // Two parts of one stretch that were apart before.
        let mut kept: Vec<Damage> = Vec::new();
        self.retain(|entry| {
            let is_double = entry.is_unreadable() && kept.iter().any(|other| other.overlaps(entry));
            if entry.is_unreadable() && !is_double {
                kept.push(*entry);
            }
            !is_double
        });
    }

    /// Drops the entries that `is_kept` says no to; those beyond the bound stay counted.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&Damage) -> bool) {
        let (total, checksum_errors) = (&mut self.total, &mut self.checksum_errors);
        self.entries.retain(|entry| {
            let is_kept = is_kept(entry);
            if !is_kept {
                *total -= 1;
                *checksum_errors -= u64::from(entry.is_by_checksum());
            }
            is_kept
        });
    }

    /// The first entries, at most [`DamageList::ENTRIES_MAX`].
    pub fn entries(&self) -> &[Damage] {
        &self.entries
    }

    /// How often there was damage.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How often a checksum, or a chunk header that no checksum can vouch for, was wrong.
    pub fn checksum_errors(&self) -> u64 {
        self.checksum_errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_bounded_and_counts_on() {
        let mut list = DamageList::default();
        let reason = DamageReason::ChunkChecksum {
            stored: 1,
            computed: 2,
        };
        for offset in 0..2 * DamageList::ENTRIES_MAX as u64 {
            list.push(Damage {
                offset,
                bytes: 9,
                reason,
            });
        }
        list.push(Damage {
            offset: 0,
            bytes: 1,
            reason: DamageReason::NotRecords,
        });
        assert_eq!(list.entries().len(), DamageList::ENTRIES_MAX);
        assert_eq!(list.total(), 2 * DamageList::ENTRIES_MAX as u64 + 1);
        assert_eq!(list.checksum_errors(), 2 * DamageList::ENTRIES_MAX as u64);
        assert!(
            list.entries()[1]
                .to_string()
                .starts_with("9 bytes at 1: checksum")
        );
    }
}
