//! A run that was opened by a relative path, in a program that goes to another directory.
//!
//! A program of its own, since all tests of one share its working directory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "../../livetime-store/tests/run_file/support.rs"]
#[expect(dead_code, reason = "the tests of run files use the rest")]
mod support;

use std::fs::{self, File};
use std::path::Path;

use livetime_client::RunFolder;
use livetime_store::{FileName, FilePart, RunBegin, RunWriter};
use livetime_wire::{RunNs, TriggerNumber};

use support::{begin, event, small_chunks};

fn write(path: &Path, triggers: std::ops::Range<u64>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let output = File::create(path).unwrap();
    let name = path.file_name().and_then(|name| name.to_str());
    let name = FileName::parse(name.unwrap()).unwrap();
    let part = FilePart {
        writer: name.writer,
        stream: name.stream,
        part: name.part,
        events_before: 0,
    };
    let begin = RunBegin {
        file: Some(part),
        ..begin()
    };
    let mut writer = RunWriter::new(output, &begin, small_chunks(4096)).unwrap();
    for trigger in triggers {
        let words = event(trigger, &[3, 5]);
        let (trigger, time) = (TriggerNumber(trigger), RunNs(trigger));
        writer.write_event(trigger, time, &[&words]).unwrap();
    }
    writer.flush_chunk().unwrap();
}

#[test]
fn a_run_is_followed_where_it_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    write(&here.join("run/events.mcap"), 1..10);
    write(&there.join("run/events.mcap"), 1..10);
    write(&there.join("run/events.0001.mcap"), 50..60);
    std::env::set_current_dir(&here).unwrap();
    let mut run = RunFolder::open(Path::new("run")).unwrap();
    std::env::set_current_dir(&there).unwrap();
    run.refresh().unwrap();
    let mut count = 0;
    while run.next_event().unwrap().is_some() {
        count += 1;
    }
    assert_eq!((count, run.file_count()), (9, 1));
    write(&here.join("run/events.z.mcap"), 20..40);
    run.refresh().unwrap();
    let last = run
        .event_places()
        .unwrap()
        .last()
        .map(|place| place.trigger);
    assert_eq!((run.file_count(), last), (2, Some(TriggerNumber(39))));
    std::env::set_current_dir("/").unwrap();
}
