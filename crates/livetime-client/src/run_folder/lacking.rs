//! What a run lacks: files that are not there, that cannot be read, and that are elsewhere.
//!
//! Which must have been there is told by the files that are: by the parts that they follow and are
//! followed by, by the writers and the streams of the run in their begin-of-run records. How many events
//! are missing is counted in [`crate::run_folder`].

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use livetime_store::inspect::{DAMAGE_LISTED_MAX, DamagedRange};
use livetime_store::{FileName, Inspection, RunBegin, RunReader};

use super::{FolderFile, RunFolder, name_of, sum};
use crate::run_input::RunInput;
use crate::shortfall::Shortfall;

/// So many parts at each end of a gap are named.
const GAP_NAMED: u32 = 50;

/// A file of a run that is there, and that the system does not let be read.
pub(super) struct UnreadableFile {
    pub(super) name: FileName,
    pub(super) bytes: u64,
    pub(super) error: io::Error,
}

impl UnreadableFile {
    fn reason(&self) -> String {
        format!("the file cannot be read: {}", self.error)
    }
}

/// A file that a run lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LackingFile {
    /// Bytes of what is there in its place.
    pub bytes: u64,
    /// Its name and why it is lacking.
    pub text: String,
}

impl RunFolder {
    /// Whether no file is known to be missing or cannot be read.
    pub(super) fn has_all_files(&self) -> bool {
        let is_lost = |file: &FolderFile| file.lost.is_some();
        self.unreadable.is_empty()
            && !self.files.iter().any(is_lost)
            && self.files_missing().is_empty()
    }

    /// What the run lacks of its files, each with its reason: those that must have been there, that cannot
    /// be read, and that are elsewhere.
    pub fn files_lacking(&self) -> Vec<LackingFile> {
        let missing = self.files_missing().into_iter().map(|path| {
            let what = match unreadable_bytes(&path) {
                Some(_) => "no chunk of a run file is in it",
                None => "the file is not there",
            };
            LackingFile {
                bytes: unreadable_bytes(&path).unwrap_or(0),
                text: format!("{}: {what}", name_of(&path)),
            }
        });
        let unreadable = self.unreadable.iter().map(|file| LackingFile {
            bytes: file.bytes,
            text: format!("{}: {}", file.name, file.reason()),
        });
        let lost = self.files_lost().map(|(file, error)| LackingFile {
            bytes: file.reader.input_bytes(),
            text: format!(
                "{}: the file cannot be read any more: {error}",
                name_of(&file.path)
            ),
        });
        let elsewhere = self.files_elsewhere().into_iter();
        let elsewhere = elsewhere.map(|place| LackingFile {
            bytes: 0,
            text: format!("{place}: the file is there"),
        });
        let here = missing.chain(unreadable).chain(lost);
        here.chain(elsewhere).collect()
    }

    /// Files that were read and went away or were replaced, and why they are read no more.
    fn files_lost(&self) -> impl Iterator<Item = (&FolderFile, &io::Error)> {
        let files = self.files.iter();
        files.filter_map(|file| Some((file, file.lost.as_ref()?)))
    }

    /// Files that must have been there, as far as the others tell; those that are there and cannot be read
    /// are not among them. Of more than a hundred parts that follow each other the first fifty and the last
    /// are named: a file may have been given any number.
    pub fn files_missing(&self) -> Vec<PathBuf> {
        if self.directory.is_none() {
            return Vec::new();
        }
        let mut missing = self.files_never_met();
        for (index, file) in self.files.iter().enumerate() {
            let name = |part| FileName {
                part,
                ..file.name.clone()
            };
            let before = index.checked_sub(1).map(|before| &self.files[before].name);
            let expected = before
                .filter(|before| before.is_part_of(&file.name))
                .map_or(0, |before| before.part.saturating_add(1));
            missing.extend(parts_named(expected..file.name.part).map(name));
            let next = self.files.get(index + 1).map(|file| &file.name);
            let is_last = next.is_none_or(|next| !next.is_part_of(&file.name));
            if is_last && file.is_continued() {
                missing.extend(file.name.part.checked_add(1).map(name));
            }
        }
        missing.retain(|name| !self.unreadable.iter().any(|file| file.name == *name));
        let paths = missing
            .iter()
            .map(|name| self.directory_absolute.join(name.to_string()));
        paths.collect()
    }

    /// The first parts of files that every writer has from its start, the main one and those of streams,
    /// where no part of them is here.
    fn files_never_met(&self) -> Vec<FileName> {
        let names = self.files.iter().map(|file| &file.name);
        let here: BTreeSet<(u16, &str)> = names
            .map(|name| (name.writer, name.stream.as_str()))
            .collect();
        let mut streams = vec![String::new()];
        streams.extend(self.begin().map(RunBegin::stream_files).unwrap_or_default());
        let of_writer = |writer| streams.iter().map(move |stream| (writer, stream.as_str()));
        let all = (0..self.writers()).flat_map(of_writer);
        let missing = all.filter(|of| !here.contains(of));
        let names = missing.map(|(writer, stream)| FileName {
            writer,
            stream: stream.to_owned(),
            part: 0,
        });
        names.collect()
    }

    /// Files that only the hosts of their writers have, as `HOST:PATH`: here are those that were begun,
    /// or nothing. What a writer that died has left has no end, and its events may be in the files of
    /// streams alone.
    pub fn files_elsewhere(&self) -> Vec<String> {
        let told = self.told.as_ref().filter(|_| self.directory.is_some());
        let told = told.map_or(&[][..], |told| &told.elsewhere);
        let is_here = |name: &FileName| {
            let mut files = (self.files.iter()).filter(|file| file.name.writer == name.writer);
            files.any(|file| file.reader.end().is_some() || file.events() > 0)
        };
        let elsewhere = told.iter().filter(|(name, _)| !is_here(name));
        elsewhere.map(|(_, place)| place.clone()).collect()
    }

    /// What the run lacks; right once all events were read.
    pub fn shortfall(&self) -> Option<Shortfall> {
        let names = |wanted: &dyn Fn(&RunReader<RunInput>) -> bool| -> Vec<String> {
            let files = self.files.iter().filter(|file| wanted(&file.reader));
            files.map(|file| name_of(&file.path)).collect()
        };
        let found = sum(self.files.iter().map(|f| f.reader.events_found()));
        let events_missing = self.events_missing();
        let missing_here = sum(self.files.iter().map(|f| f.reader.events_missing()));
        let missing = self.files_missing().into_iter();
        let (unreadable, missing): (Vec<PathBuf>, Vec<PathBuf>) =
            missing.partition(|path| unreadable_bytes(path).is_some());
        let shortfall = Shortfall {
            events_missing,
            events_missing_here: missing_here,
            events_stored: sum([found, events_missing]),
            files_damaged: names(&|reader| reader.events_missing() > 0),
            files_cut_off: names(&RunReader::is_cut_off),
            files_open: self.files_open(),
            files_missing: missing.iter().map(|path| name_of(path)).collect(),
            files_unreadable: unreadable.iter().map(|path| name_of(path)).collect(),
            files_not_opened: self.files_not_opened(),
            files_elsewhere: self.files_elsewhere(),
        };
        Some(shortfall).filter(|shortfall| !shortfall.is_none())
    }

    /// Files that cannot be read, as `NAME (REASON)`.
    fn files_not_opened(&self) -> Vec<String> {
        let unreadable = self.unreadable.iter();
        let unreadable = unreadable.map(|file| format!("{} ({})", file.name, file.error));
        let lost = self.files_lost();
        let lost = lost.map(|(file, error)| format!("{} ({error})", name_of(&file.path)));
        unreadable.chain(lost).collect()
    }

    /// Names of the files that end between chunks without an end-of-run record, but for those that are
    /// on other hosts.
    fn files_open(&self) -> Vec<String> {
        let told = self.told.as_ref().map_or(&[][..], |told| &told.elsewhere);
        let is_here = |file: &&FolderFile| !told.iter().any(|(name, _)| *name == file.name);
        let is_open = |file: &&FolderFile| file.reader.end().is_none() && !file.reader.is_cut_off();
        let open = self.files.iter().filter(is_open).filter(is_here);
        open.map(|file| name_of(&file.path)).collect()
    }

    /// Lists the files that cannot be read before all other damage.
    pub(super) fn list_unreadable(&self, found: &mut Inspection) {
        let ranges = self.unreadable.iter().map(|file| DamagedRange {
            file: file.name.to_string(),
            offset: 0,
            bytes: file.bytes,
            reason: file.reason(),
        });
        found.damaged_ranges += self.unreadable.len() as u64;
        found.damage.splice(0..0, ranges);
        found.damage.truncate(DAMAGE_LISTED_MAX);
    }
}

/// Those of a gap's parts that are named.
fn parts_named(gap: Range<u32>) -> impl Iterator<Item = u32> {
    let first = gap.start..gap.end.min(gap.start.saturating_add(GAP_NAMED));
    let last = gap.end.saturating_sub(GAP_NAMED).max(first.end)..gap.end;
    first.chain(last)
}

/// Bytes of a file that is there and that [`RunFolder::files_missing`] names all the same, since no chunk
/// of a run file is in it; `None` if it is not there.
pub fn unreadable_bytes(path: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok();
    metadata.filter(|found| found.is_file()).map(|f| f.len())
}
