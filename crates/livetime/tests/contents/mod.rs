//! What the files of a run hold, word by word: for tests in which two runs must store the same events.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufReader;
use std::path::Path;

use livetime_store::RunReader;

/// By trigger number, a hash of mask, answer of the filter, and every word of every fragment with the
/// source that it is of. Times and units are left out. A CRC-32C would not do: behind the one that a
/// fragment carries itself, that of all its words depends on their number alone.
///
/// # Panics
/// If a file of the folder cannot be read, or an event is there twice.
pub(crate) fn contents(run: &Path) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(run).expect("the folder of a run") {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if name.starts_with("events") && name.ends_with(".mcap") {
            add(&path, &mut found);
        }
    }
    found
}

fn add(path: &Path, found: &mut BTreeMap<u64, u64>) {
    let file = BufReader::new(File::open(path).expect("the file is there"));
    let mut reader = RunReader::open(file).expect("a run file");
    while let Some(event) = reader.next_event().expect("it is read to its end") {
        let (header, mut hasher) = (event.header(), DefaultHasher::new());
        (header.mask.0, header.filter_reason, header.streams).hash(&mut hasher);
        for (entry, words) in event.fragments() {
            (entry.source.0, words).hash(&mut hasher);
        }
        for source in event.missing() {
            source.0.hash(&mut hasher);
        }
        let before = found.insert(header.trigger.0, hasher.finish());
        assert_eq!(before, None, "event {} is there twice", header.trigger.0);
    }
}
