//! A run in several files, read as one while it grows and when parts of it are gone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "../../livetime-store/tests/run_file/support.rs"]
#[expect(dead_code, reason = "the tests of run files use the rest")]
mod support;

use std::fs::{self, File};
use std::io::Cursor;
use std::path::{Path, PathBuf};

use livetime_client::RunFolder;
use livetime_client::run_folder::LackingFile;
use livetime_client::run_input::OPEN_FILES_MAX;
use livetime_store::summary::{Latencies, RunIdentification, WriterSummary};
use livetime_store::{
    Condition, FileName, FilePart, RunBegin, RunEnd, RunSummary, RunWriter, recover_part,
};
use livetime_wire::{ChainCounts, LossCounts, RunNs, TriggerNumber};

use support::{RUN, begin, event, small_chunks};

thread_local! {
    /// What the files of a test say of the run's writers.
    static WRITERS: std::cell::Cell<u16> = const { std::cell::Cell::new(1) };
    /// Their configuration.
    static CONFIG: std::cell::Cell<&'static str> = const { std::cell::Cell::new("format = 1\n") };
}

/// Events from `triggers` in a file, which is closed unless `end` is none.
fn write(
    folder: &Path,
    name: &str,
    events_before: u64,
    triggers: std::ops::Range<u64>,
    end: Option<bool>,
) -> PathBuf {
    let parsed = FileName::parse(name).unwrap();
    let file = (parsed != FileName::default()).then_some(FilePart {
        writer: parsed.writer,
        stream: parsed.stream,
        part: parsed.part,
        events_before,
    });
    let writers = WRITERS.with(std::cell::Cell::get);
    let begin = RunBegin {
        file,
        writers,
        config: CONFIG.with(std::cell::Cell::get).to_owned(),
        ..begin()
    };
    let path = folder.join(name);
    let output = File::create_new(&path).unwrap();
    let mut writer = RunWriter::new(output, &begin, small_chunks(4096)).unwrap();
    for trigger in triggers {
        let words = event(trigger, &[3, 5]);
        let (trigger, time) = (TriggerNumber(trigger), RunNs(trigger));
        writer.write_event(trigger, time, &[&words]).unwrap();
    }
    match end {
        None => writer.flush_chunk().unwrap(),
        Some(continued) => {
            let end = RunEnd {
                continued,
                ..RunEnd::new(RUN, Condition::GOOD, "test", 9)
            };
            writer.finish(&end).unwrap();
        }
    }
    path
}

fn triggers(folder: &mut RunFolder) -> Vec<u64> {
    let mut found = Vec::new();
    while let Some(event) = folder.next_event().unwrap() {
        found.push(event.header().trigger.0);
    }
    found
}

#[test]
fn all_files_are_one_run_and_what_is_gone_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "events.mcap", 0, 1..40, Some(true));
    let middle = write(path, "events.0001.mcap", 39, 40..60, Some(true));
    let last = write(path, "events.0002.mcap", 59, 60..61, Some(false));
    write(path, "events.dimuon.mcap", 0, 100..130, Some(false));
    fs::write(path.join("events.notes.txt"), b"no run file").unwrap();

    let mut run = RunFolder::open(path).unwrap();
    assert_eq!(run.file_count(), 4);
    assert_eq!(
        triggers(&mut run),
        (1..61).chain(100..130).collect::<Vec<_>>()
    );
    assert_eq!(run.end().map(|end| end.events_stored), Some(90));
    assert_eq!(run.events_missing(), 0);
    assert!(run.files_missing().is_empty());
    assert!(run.inspect().unwrap().complete);
    assert_eq!(run.condition(), Condition::GOOD);
    assert_eq!(
        triggers(&mut run).len(),
        90,
        "an inspection leaves it at the start"
    );
    let found = run.event(TriggerNumber(110)).unwrap().unwrap();
    assert_eq!(found.header().trigger, TriggerNumber(110));
    assert!(run.event(TriggerNumber(61)).unwrap().is_none());
    assert_eq!(run.event_places().unwrap().len(), 90);

    fs::remove_file(&middle).unwrap();
    let mut run = RunFolder::open(path).unwrap();
    assert_eq!(triggers(&mut run).len(), 70);
    assert_eq!(
        (run.events_missing(), run.files_missing()),
        (20, vec![middle])
    );
    // The others tell that the run has ended, and how many events it has stored.
    assert_eq!(run.end().map(|end| end.events_stored), Some(90));
    let said = run.shortfall().map(|lacking| lacking.to_string());
    let expected = "20 of 90 events are damaged or missing; not there: events.0001.mcap";
    assert_eq!(said.as_deref(), Some(expected));
    let found = run.inspect().unwrap();
    assert_eq!(
        (found.events, found.events_missing, found.complete),
        (70, 20, false)
    );
    assert_eq!(found.files_missing, ["events.0001.mcap"]);
    assert_eq!(
        (found.condition, run.condition()),
        (Condition::INCOMPLETE, Condition::INCOMPLETE)
    );

    fs::remove_file(&last).unwrap();
    let run = RunFolder::open(path).unwrap();
    assert_eq!(
        run.files_missing().len(),
        1,
        "what the last one says follows"
    );
}

#[test]
fn a_gap_of_any_length_is_named_by_its_ends() {
    let folder = tempfile::tempdir().unwrap();
    let names = |run: &RunFolder| -> Vec<String> {
        let paths = run.files_missing().into_iter();
        paths
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect()
    };
    let named = format!("events.{}.mcap", u32::MAX);
    write(folder.path(), "events.mcap", 0, 1..10, Some(true));
    let part = write(folder.path(), "events.0101.mcap", 9, 10..20, Some(true));
    let missing = names(&RunFolder::open(folder.path()).unwrap());
    assert_eq!(missing.len(), 101, "all before it, and the one behind it");
    // One that stands alone may have any name.
    fs::remove_file(folder.path().join("events.mcap")).unwrap();
    fs::rename(part, folder.path().join(&named)).unwrap();
    let mut run = RunFolder::open(folder.path()).unwrap();
    let missing = names(&run);
    assert_eq!(missing.len(), 100, "there is none behind it");
    assert_eq!(missing[..2], ["events.mcap", "events.0001.mcap"]);
    let [half, last] = [50, 99].map(|place| missing[place].clone());
    assert_eq!(half, "events.4294967245.mcap");
    assert_eq!(last, "events.4294967294.mcap");
    assert_eq!(triggers(&mut run), (10..20).collect::<Vec<_>>());
    assert!(!run.inspect().unwrap().complete);
}

#[test]
fn files_of_all_writers_are_one_run_and_a_writer_that_is_gone_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    WRITERS.set(3);
    let first = write(path, "events.mcap", 0, 1..10, Some(false));
    write(path, "events-1.mcap", 0, 10..20, Some(true));
    write(path, "events-1.0001.mcap", 10, 20..30, Some(false));
    write(path, "events-1.dimuon.mcap", 0, 30..40, Some(false));
    let last = write(path, "events-2.mcap", 0, 40..50, Some(false));

    let mut run = RunFolder::open(path).unwrap();
    assert_eq!((run.writers(), run.file_count()), (3, 5));
    assert_eq!(triggers(&mut run), (1..50).collect::<Vec<_>>());
    assert_eq!(run.end().map(|end| end.events_stored), Some(49));
    assert!(run.files_missing().is_empty());
    assert!(run.inspect().unwrap().complete);

    for (gone, stays) in [(&last, 39), (&first, 30)] {
        fs::remove_file(gone).unwrap();
        let mut run = RunFolder::open(path).unwrap();
        assert!(run.files_missing().contains(gone), "{gone:?}");
        assert_eq!(triggers(&mut run).len(), stays);
        assert!(run.end().is_some() && run.has_ended());
        let found = run.inspect().unwrap();
        assert!(!found.complete);
        assert_eq!(found.condition, run.condition());
    }
}

#[test]
fn a_file_of_which_nothing_is_left_is_missed_as_one_that_is_gone() {
    for name in ["events.mcap", "events.0001.mcap", "events.z.mcap"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        WRITERS.set(1);
        write(path, "events.mcap", 0, 1..10, Some(true));
        write(path, "events.0001.mcap", 9, 10..20, Some(false));
        write(path, "events.z.mcap", 0, 30..40, Some(false));
        let what_is_left = |path: &Path| {
            let mut run = RunFolder::open(path).unwrap();
            let triggers = triggers(&mut run);
            (triggers, run.files_missing(), run.events_missing())
        };
        fs::write(path.join(name), [0; 1000]).unwrap();
        let emptied = what_is_left(path);
        // It is there, and so it is not said to be gone; of a stream alone nothing tells.
        let mut run = RunFolder::open(path).unwrap();
        triggers(&mut run);
        let said = run.shortfall().map(|lacking| lacking.to_string());
        let expected = format!("without any chunk of a run file: {name}");
        let expected = (name != "events.z.mcap").then_some(expected);
        assert_eq!(said.is_some(), expected.is_some(), "{said:?}");
        for (said, expected) in said.iter().zip(&expected) {
            assert!(said.ends_with(expected), "{said}");
            assert!(!said.contains("not there"), "{said}");
        }
        fs::remove_file(path.join(name)).unwrap();
        assert_eq!(emptied, what_is_left(path), "{name}");
        assert!(emptied.0.len() < 29);
    }
}

/// The summary of a run of the test's files, whose second writer was on a host that died.
fn summary_with_dead_host(events_stored: u64) -> String {
    let begin = begin();
    let identification = RunIdentification {
        number: RUN.0,
        seed: begin.seed,
        config_hash: begin.config_hash,
        version: String::new(),
        duration_s: 1.0,
        condition: Condition::GOOD,
    };
    let counts = ChainCounts {
        events_stored,
        ..ChainCounts::default()
    };
    let latency = Latencies::default();
    let mut summary = RunSummary::new(identification, &counts, &LossCounts::new(), latency);
    summary.writers.push(WriterSummary {
        role: "wr1".to_owned(),
        host: Some("second".to_owned()),
        file: "/data/events-1.mcap".to_owned(),
        events_stored: 20,
        elsewhere: true,
        lost: true,
        events_built_again: 0,
    });
    serde_json::to_string(&summary).unwrap()
}

#[test]
fn what_a_host_that_died_has_written_is_here_when_it_was_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    WRITERS.set(2);
    write(path, "events.mcap", 0, 1..10, Some(false));
    // As it was begun, here and on the host: all its events are of a stream.
    write(path, "events-1.mcap", 0, 0..0, None);
    fs::write(path.join("summary.json"), summary_with_dead_host(29)).unwrap();
    let mut run = RunFolder::open(path).unwrap();
    assert_eq!(triggers(&mut run).len(), 9);
    assert_eq!(run.files_elsewhere(), ["second:/data/events-1.mcap"]);
    assert_eq!(run.events_missing(), 20);

    write(path, "events-1.z.mcap", 0, 10..30, None);
    let mut run = RunFolder::open(path).unwrap();
    assert_eq!(triggers(&mut run).len(), 29);
    assert_eq!(run.files_elsewhere(), [] as [&str; 0]);
    assert_eq!(run.events_missing(), 0);
}

#[test]
fn a_growing_run_is_taken_up_with_its_new_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let main = write(path, "events.mcap", 0, 1..30, None);
    let mut run = RunFolder::open(path).unwrap();
    assert_eq!(triggers(&mut run).len(), 29);
    assert!(run.end().is_none());
    run.refresh().unwrap();
    assert_eq!(triggers(&mut run), [] as [u64; 0], "nothing came");

    // The first part is finished, the second has begun, a third has not got out its first chunk.
    fs::remove_file(&main).unwrap();
    write(path, "events.mcap", 0, 1..30, Some(true));
    let mut run = RunFolder::open(path).unwrap();
    assert_eq!(triggers(&mut run).len(), 29);
    write(path, "events.0001.mcap", 29, 30..50, None);
    fs::write(path.join("events.0002.mcap"), b"").unwrap();
    run.refresh().unwrap();
    assert_eq!(triggers(&mut run), (30..50).collect::<Vec<_>>());
    assert_eq!(run.file_count(), 2);
}

#[test]
fn a_file_of_another_run_and_an_empty_folder_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let said = |path: &Path| RunFolder::open(path).err().unwrap().to_string();
    assert!(said(folder.path()).contains("events.mcap: "));
    write(folder.path(), "events.mcap", 0, 1..3, Some(false));
    let other = RunBegin {
        started_tai_ns: 5,
        ..begin()
    };
    let path = folder.path().join("events.other.mcap");
    let output = File::create_new(&path).unwrap();
    let mut writer = RunWriter::new(output, &other, small_chunks(4096)).unwrap();
    let end = RunEnd::new(RUN, Condition::GOOD, "test", 9);
    writer.finish(&end).unwrap();
    let said = said(folder.path());
    assert!(
        said.contains("events.other.mcap: a run file of another run"),
        "{said}"
    );
    assert!(RunFolder::open(&path).is_ok(), "alone it is a run");
}

#[test]
fn what_is_no_plain_file_is_refused_without_waiting_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("events.mcap");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("SKIPPED: there is no mkfifo");
        return;
    }
    for path in [folder.path(), &fifo] {
        let said = RunFolder::open(path).err().unwrap().to_string();
        assert!(said.contains("events.mcap: no plain file"), "{said}");
    }
    fs::remove_file(&fifo).unwrap();
    write(folder.path(), "events.mcap", 0, 1..30, Some(false));
    let summary = folder.path().join("summary.json");
    let made = std::process::Command::new("mkfifo").arg(&summary).status();
    assert!(made.is_ok_and(|status| status.success()));
    assert!(RunFolder::open(folder.path()).is_ok());
}

#[test]
fn a_stream_without_files_is_missed_by_the_counts_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let output = File::create_new(path.join("events.mcap")).unwrap();
    let mut writer = RunWriter::new(output, &begin(), small_chunks(4096)).unwrap();
    let words = event(1, &[3]);
    let counts = ChainCounts {
        events_stored: 21,
        ..ChainCounts::default()
    };
    let end = RunEnd::new(RUN, Condition::GOOD, "test", 9);
    let end = end.with_counts(&counts, &LossCounts::new());
    let written = writer.write_event(TriggerNumber(1), RunNs(1), &[&words]);
    written.unwrap();
    writer.finish(&end).unwrap();
    let mut run = RunFolder::open(path).unwrap();
    let found = run.inspect().unwrap();
    assert!(!found.complete && found.condition == Condition::INCOMPLETE);
    assert_eq!((found.events, found.events_missing), (1, 20));
    assert_eq!(run.shortfall().map(|lacks| lacks.events_missing), Some(20));
    assert_eq!(run.end().map(|end| end.events_stored), Some(21));
    let mut alone = RunFolder::open(&path.join("events.mcap")).unwrap();
    assert!(alone.inspect().unwrap().complete, "a file alone is whole");

    write(path, "events.win.mcap", 0, 2..22, Some(false));
    let mut run = RunFolder::open(path).unwrap();
    assert!(run.inspect().unwrap().complete);
    assert_eq!(run.shortfall(), None);
}

#[test]
fn a_streams_file_that_is_gone_is_named_by_the_runs_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    WRITERS.set(2);
    CONFIG.set("[[store.file]]\nname = \"win\"\nstreams = [0]\n");
    write(path, "events.mcap", 0, 1..10, None);
    write(path, "events.win.mcap", 0, 10..20, None);
    write(path, "events-1.mcap", 0, 20..30, None);
    let gone = path.join("events-1.win.mcap");
    let mut run = RunFolder::open(path).unwrap();
    assert_eq!(run.files_missing(), [gone.as_path()]);
    assert!(run.condition().contains(Condition::INCOMPLETE));
    let found = run.inspect().unwrap();
    assert_eq!(found.files_missing, ["events-1.win.mcap"]);
    assert!(found.condition.contains(Condition::INCOMPLETE));
    let said = run.shortfall().unwrap().to_string();
    assert!(said.contains("not there: events-1.win.mcap"), "{said}");
    let alone = RunFolder::open(&path.join("events.mcap")).unwrap();
    assert_eq!(alone.files_missing(), [] as [&Path; 0]);

    // As any first part, it is missed by the parts behind it, too.
    write(path, "events-1.win.0001.mcap", 5, 35..40, None);
    let run = RunFolder::open(path).unwrap();
    assert_eq!(run.files_missing(), [gone.as_path()]);
    write(path, "events-1.win.mcap", 0, 30..35, Some(true));
    let run = RunFolder::open(path).unwrap();
    assert_eq!(run.files_missing(), [] as [&Path; 0]);
}

#[test]
fn a_run_that_was_ended_at_once_lacks_what_nobody_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "events.mcap", 0, 1..30, None);
    let mut run = RunFolder::open(path).unwrap();
    assert_eq!(triggers(&mut run).len(), 29);
    let lacks = run.shortfall().unwrap();
    assert_eq!((lacks.events_missing, lacks.files_open.len()), (0, 1));
    assert_eq!(
        lacks.to_string(),
        "no end-of-run record, so that events of about the last second may be missing: events.mcap"
    );
}

/// Its events would count twice.
#[test]
fn a_copy_under_another_name_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "events.mcap", 0, 1..30, Some(true));
    write(path, "events.0001.mcap", 29, 30..50, Some(false));
    for (file, copy) in [
        ("events.mcap", "events.backup.mcap"),
        ("events.0001.mcap", "events.0002.mcap"),
        ("events.0001.mcap", "events-1.mcap"),
    ] {
        let copied = path.join(copy);
        fs::copy(path.join(file), &copied).unwrap();
        let said = RunFolder::open(path).err().unwrap().to_string();
        let expected = format!("{copy}: holds what {file} of the run holds, under another name");
        assert!(said.contains(&expected), "{said}");
        assert!(RunFolder::open(&copied).is_ok(), "alone it can be read");
        fs::remove_file(&copied).unwrap();
    }
    assert_eq!(RunFolder::open(path).unwrap().file_count(), 2);
}

/// As after a building host was lost: of each such event one copy counts, the first that is whole.
#[test]
fn an_event_that_two_writers_stored_counts_once_for_every_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    WRITERS.set(2);
    let first = write(path, "events.mcap", 0, 1..30, Some(false));
    write(path, "events-1.mcap", 0, 20..40, Some(false));
    let mut run = RunFolder::open(path).unwrap();
    let expected: Vec<u64> = (1..40).collect();
    for _ in 0..2 {
        assert_eq!(triggers(&mut run), expected);
        run.rewind();
    }
    assert_eq!(run.event_places().unwrap().len(), 39);
    assert_eq!(run.events_doubled().unwrap(), 10);
    assert_eq!(run.shortfall(), None);
    let found = run.inspect().unwrap();
    assert!(found.is_good());
    assert_eq!((found.events, found.events_doubled), (39, 10));
    let named: Vec<String> = (20..30).map(|trigger: u64| trigger.to_string()).collect();
    assert_eq!(found.triggers_doubled, named);
    assert_eq!(found.condition, Condition::GOOD);

    // Where the first copy is damaged the other one is read.
    let mut bytes = fs::read(&first).unwrap();
    let words = event(25, &[3, 5]);
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = bytes.windows(words.len()).position(|found| found == words);
    bytes[at.unwrap() + words.len() - 2] ^= 1;
    fs::write(&first, bytes).unwrap();
    let mut run = RunFolder::open(path).unwrap();
    let mut found = triggers(&mut run);
    found.sort_unstable();
    assert_eq!(found, expected);
    let found = run.event(TriggerNumber(25)).unwrap().unwrap();
    assert_eq!(found.words(), event(25, &[3, 5]));
    let found = run.inspect().unwrap();
    assert_eq!((found.events, found.events_doubled), (39, 9));
}

/// An event that stands twice in one file is one to every reader as well.
#[test]
fn a_trigger_that_stands_twice_in_a_file_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.mcap");
    let output = File::create_new(&path).unwrap();
    let mut writer = RunWriter::new(output, &begin(), small_chunks(4096)).unwrap();
    for trigger in [1, 2, 1] {
        let (words, number) = (event(trigger, &[3, 5]), TriggerNumber(trigger));
        writer
            .write_event(number, RunNs(trigger), &[&words])
            .unwrap();
    }
    let end = RunEnd::new(RUN, Condition::GOOD, "test", 9);
    writer.finish(&end).unwrap();
    let mut run = RunFolder::open(&path).unwrap();
    assert_eq!(triggers(&mut run), [1, 2]);
    assert_eq!(run.event_places().unwrap().len(), 2);
    assert_eq!(run.events_doubled().unwrap(), 1);
    let found = run.inspect().unwrap();
    assert!(found.is_good(), "{found:?}");
    assert_eq!((found.events, found.events_doubled), (2, 1));
}

/// A file with a flipped bit in its first chunk, recovered and put in its place.
#[test]
fn a_copy_of_a_part_that_had_lost_its_begin_is_read_with_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "events.mcap", 0, 1..40, Some(true));
    let part = write(path, "events.0001.mcap", 39, 40..60, Some(true));
    write(path, "events.0002.mcap", 59, 60..70, Some(false));
    let mut bytes = fs::read(&part).unwrap();
    let text = b"started_tai_ns";
    let at = bytes.windows(text.len()).position(|found| found == text);
    bytes[at.unwrap()] ^= 32;
    fs::write(&part, &bytes).unwrap();

    let folder = RunFolder::open(path).unwrap();
    assert!(folder.files()[1].reader().begin().is_none());
    let by_others = folder.begin_of(&FileName::parse("events.0001.mcap").unwrap());
    let expected = RunBegin {
        file: Some(FilePart {
            part: 1,
            events_before: 39,
            ..FilePart::default()
        }),
        ..begin()
    };
    assert_eq!(by_others, Some(expected.clone()));
    let of_main = folder.begin_of(&FileName::default());
    assert_eq!(of_main, Some(begin()));

    // With what the others tell, and, as by one who has the file alone, without.
    for known in [by_others, None] {
        let (copy, _) = recover_part(Cursor::new(&bytes), Vec::new(), || known.clone()).unwrap();
        fs::write(&part, copy).unwrap();
        let mut run = RunFolder::open(path).unwrap();
        assert_eq!(triggers(&mut run), (1..70).collect::<Vec<_>>());
        assert_eq!(run.shortfall(), None);
        assert_eq!(run.begin(), Some(&begin()));
        let alone = RunFolder::open(&part).unwrap();
        assert_eq!(alone.begin(), known.as_ref());
    }
}

/// Main files and parts, one event each.
fn write_parts(path: &Path, count: u64) {
    for part in 0..count {
        let name = FileName {
            part: part as u32,
            ..FileName::default()
        };
        let end = Some(part + 1 < count);
        write(path, &name.to_string(), part, part + 1..part + 2, end);
    }
}

#[test]
fn a_run_of_more_files_than_may_be_open_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let count = OPEN_FILES_MAX as u64 * 2 + 1;
    write_parts(path, count);
    let mut run = RunFolder::open(path).unwrap();
    assert_eq!(run.file_count() as u64, count);
    let all: Vec<u64> = (1..=count).collect();
    assert_eq!(triggers(&mut run), all);
    for trigger in all.iter().rev() {
        let found = run.event(TriggerNumber(*trigger)).unwrap().unwrap();
        assert_eq!(found.header().trigger.0, *trigger);
    }
    assert!(run.inspect().unwrap().complete);
    assert_eq!(run.shortfall(), None);
    let open = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let targets = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let of_run = targets.filter(|target| target.starts_with(path)).count();
    assert!(of_run <= OPEN_FILES_MAX, "{of_run} files are open");
}

/// Every event, and the errors between them.
fn triggers_and_errors(run: &mut RunFolder) -> (Vec<u64>, Vec<String>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    loop {
        match run.next_event() {
            Ok(Some(event)) => found.push(event.header().trigger.0),
            Ok(None) => return (found, errors),
            Err(error) => errors.push(error.to_string()),
        }
        assert!(errors.len() < 10, "{errors:?}");
    }
}

/// What was closed and is not there when it is needed again is an error that names it, and left out then.
#[test]
fn a_file_that_goes_away_is_told_once_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let count = OPEN_FILES_MAX as u64 * 2 + 1;
    write_parts(path, count);
    let mut by_order = RunFolder::open(path).unwrap();
    let mut by_trigger = RunFolder::open(path).unwrap();
    let gone = path.join("events.0003.mcap");
    let replaced = path.join("events.0005.mcap");
    fs::remove_file(&gone).unwrap();
    fs::copy(&replaced, path.join("other")).unwrap();
    fs::rename(path.join("other"), &replaced).unwrap();
    let rest = (1..=count).filter(|trigger| ![4, 6].contains(trigger));
    let rest: Vec<u64> = rest.collect();

    let (found, errors) = triggers_and_errors(&mut by_order);
    assert_eq!(found, rest);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with("events.0003.mcap: "), "{errors:?}");
    assert!(errors[1].starts_with("events.0005.mcap: "), "{errors:?}");
    by_order.rewind();
    assert_eq!(triggers_and_errors(&mut by_order), (rest.clone(), vec![]));

    let mut find = |trigger| {
        by_trigger
            .event(TriggerNumber(trigger))
            .map(|e| e.is_some())
    };
    for name in ["events.0003.mcap", "events.0005.mcap"] {
        let said = find(1).unwrap_err();
        let livetime_store::ReadError::Io(said) = said else {
            panic!("{said}");
        };
        assert!(said.to_string().starts_with(name), "{said}");
    }
    for trigger in 1..=count {
        assert_eq!(find(trigger).unwrap(), rest.contains(&trigger), "{trigger}");
    }
    for run in [&by_order, &by_trigger] {
        let lacking = run.files_lacking();
        let texts: Vec<&str> = lacking.iter().map(|file| file.text.as_str()).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(
            texts[0].starts_with("events.0003.mcap: the file cannot be read any more: "),
            "{texts:?}"
        );
        assert!(run.condition().contains(Condition::INCOMPLETE));
        let said = run.shortfall().unwrap().to_string();
        assert!(
            said.contains("cannot be read: events.0003.mcap ("),
            "{said}"
        );
    }
}

#[test]
fn a_file_that_was_cut_is_the_same_error_at_each_refresh() {
    for count in [2, OPEN_FILES_MAX as u64 + 2] {
        for cut in ["events.mcap", "events.0001.mcap"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path();
            write_parts(path, count);
            if count == 2 {
                fs::remove_file(path.join("events.0001.mcap")).unwrap();
                write(path, "events.0001.mcap", 1, 2..40, None);
            }
            let mut run = RunFolder::open(path).unwrap();
            let output = fs::OpenOptions::new().write(true).open(path.join(cut));
            let output = output.unwrap();
            let bytes = output.metadata().unwrap().len();
            output.set_len(bytes / 2).unwrap();
            let (_, errors) = triggers_and_errors(&mut run);
            assert_eq!(errors, [] as [&str; 0], "what is left is read");
            let first = run.refresh().unwrap_err().to_string();
            let expected = format!("{cut}: cut to {} bytes", bytes / 2);
            assert!(first.starts_with(&expected), "{first}");
            for _ in 0..3 {
                assert_eq!(run.refresh().unwrap_err().to_string(), first);
                run.rewind();
                triggers_and_errors(&mut run);
            }
        }
    }
}

#[test]
fn a_run_is_read_without_the_file_that_cannot_be_read() {
    for (name, left) in [
        ("events.mcap", 20),
        ("events.0001.mcap", 19),
        ("events.z.mcap", 19),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        write(path, "events.mcap", 0, 1..10, Some(true));
        write(path, "events.0001.mcap", 9, 10..20, Some(false));
        write(path, "events.z.mcap", 0, 30..40, Some(false));
        // Nobody may read a directory as a file, root neither.
        let whole = path.join("whole");
        fs::rename(path.join(name), &whole).unwrap();
        fs::create_dir(path.join(name)).unwrap();
        let mut run = RunFolder::open(path).unwrap();
        assert_eq!(triggers(&mut run).len(), left, "{name}");
        assert!(
            !run.files_missing().contains(&path.join(name)),
            "it is there"
        );
        let lacking = run.files_lacking();
        let reason = format!("{name}: the file cannot be read: no plain file");
        let is_it = |file: &LackingFile| file.text.starts_with(&reason);
        assert!(lacking.iter().any(is_it), "{lacking:?}");
        let said = run.shortfall().unwrap().to_string();
        assert!(
            said.contains(&format!("cannot be read: {name} (no plain file")),
            "{said}"
        );
        let found = run.inspect().unwrap();
        assert_eq!(found.condition, run.condition());
        assert!(!found.complete && found.condition.contains(Condition::INCOMPLETE));
        assert_eq!(
            (found.damaged_ranges, found.damage[0].file.as_str()),
            (1, name)
        );

        fs::remove_dir(path.join(name)).unwrap();
        fs::rename(&whole, path.join(name)).unwrap();
        run.refresh().unwrap();
        assert_eq!(triggers(&mut run).len(), 29, "it can be read now");
        assert_eq!(run.files_lacking(), []);
    }
}

#[test]
fn a_file_that_was_cut_or_replaced_is_an_error_of_the_refresh() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let first = write(path, "events.mcap", 0, 1..40, Some(true));
    let second = write(path, "events.0001.mcap", 39, 40..60, None);
    let mut run = RunFolder::open(path).unwrap();
    let said = |run: &mut RunFolder| run.refresh().unwrap_err().to_string();
    run.refresh().unwrap();
    for (file, name) in [(&first, "events.mcap"), (&second, "events.0001.mcap")] {
        let bytes = fs::read(file).unwrap();
        let output = fs::OpenOptions::new().write(true).open(file).unwrap();
        output.set_len(bytes.len() as u64 / 2).unwrap();
        let error = said(&mut run);
        let expected = format!("{name}: cut to {} bytes", bytes.len() / 2);
        assert!(error.starts_with(&expected), "{error}");
        fs::write(file, &bytes).unwrap();
        run.refresh().unwrap();

        let other = path.join("other");
        fs::write(&other, &bytes).unwrap();
        fs::rename(file, path.join("was")).unwrap();
        fs::rename(&other, file).unwrap();
        let error = said(&mut run);
        assert!(
            error.starts_with(&format!("{name}: another file is there")),
            "{error}"
        );
        fs::rename(path.join("was"), file).unwrap();
        run.refresh().unwrap();
    }
    // A part of a chunk is what a writer that goes on with the file takes away.
    let bytes = fs::read(&second).unwrap();
    let half_a_chunk = [&bytes[..], &bytes[bytes.len() / 2..]].concat();
    fs::write(&second, &half_a_chunk).unwrap();
    run.refresh().unwrap();
    fs::write(&second, &bytes).unwrap();
    run.refresh().unwrap();
    // A part that was finished may be taken away; one that grows may not.
    fs::remove_file(&first).unwrap();
    run.refresh().unwrap();
    assert_eq!(triggers(&mut run).len(), 59);
    fs::remove_file(&second).unwrap();
    assert!(said(&mut run).starts_with("events.0001.mcap: "));
}

#[test]
fn a_new_file_of_another_run_is_an_error_of_the_refresh() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "events.mcap", 0, 1..40, None);
    let mut run = RunFolder::open(path).unwrap();
    let other = RunBegin {
        started_tai_ns: 5,
        ..begin()
    };
    let output = File::create_new(path.join("events.z.mcap")).unwrap();
    let mut writer = RunWriter::new(output, &other, small_chunks(4096)).unwrap();
    let end = RunEnd::new(RUN, Condition::GOOD, "test", 9);
    writer.finish(&end).unwrap();
    let said = run.refresh().unwrap_err().to_string();
    assert!(
        said.starts_with("events.z.mcap: a run file of another run"),
        "{said}"
    );
    assert_eq!(triggers(&mut run).len(), 39);
}

#[test]
fn rows_of_a_growing_run_keep_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "events.z.mcap", 0, 100..110, None);
    let mut run = RunFolder::open(path).unwrap();
    let rows = |run: &mut RunFolder| -> Vec<u64> {
        let places = run.event_places().unwrap().iter();
        places.map(|place| place.trigger.0).collect()
    };
    assert_eq!(rows(&mut run), (100..110).collect::<Vec<_>>());
    write(path, "events.mcap", 0, 1..30, None);
    run.refresh().unwrap();
    run.refresh().unwrap();
    let expected: Vec<u64> = (100..110).chain(1..30).collect();
    assert_eq!(rows(&mut run), expected);
    for trigger in expected {
        let found = run.event(TriggerNumber(trigger)).unwrap().unwrap();
        assert_eq!(found.header().trigger.0, trigger);
    }
    let mut again = RunFolder::open(path).unwrap();
    assert_eq!(
        rows(&mut again),
        (1..30).chain(100..110).collect::<Vec<_>>()
    );
}

#[test]
fn a_run_of_which_a_summary_says_that_it_has_ended_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "events.mcap", 0, 1..10, Some(true));
    let run = RunFolder::open(path).unwrap();
    assert!(
        run.end().is_none() && !run.has_ended(),
        "the next part may come"
    );
    fs::write(path.join("summary.json"), summary_with_dead_host(29)).unwrap();
    let run = RunFolder::open(path).unwrap();
    assert!(run.end().is_none() && run.has_ended());
}

#[test]
fn counts_that_no_sum_can_hold_are_as_large_as_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for (name, stream) in [("events.mcap", None), ("events.z.mcap", Some("z"))] {
        let file = stream.map(|stream| FilePart {
            stream: stream.to_owned(),
            ..FilePart::default()
        });
        let begin = RunBegin { file, ..begin() };
        let output = File::create_new(path.join(name)).unwrap();
        let mut writer = RunWriter::new(output, &begin, small_chunks(4096)).unwrap();
        let end = RunEnd {
            events_missing: u64::MAX,
            ..RunEnd::new(RUN, Condition::GOOD, "test", 9)
        };
        writer.finish(&end).unwrap();
    }
    let mut run = RunFolder::open(path).unwrap();
    assert_eq!(run.events_missing(), u64::MAX);
    assert_eq!(run.shortfall().unwrap().events_stored, u64::MAX);
    assert_eq!(run.inspect().unwrap().events_missing, u64::MAX);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "events.mcap", 0, 1..40, Some(true));
    write(path, "events.0001.mcap", u64::MAX, 40..60, Some(true));
    write(path, "events.0002.mcap", u64::MAX, 60..70, Some(false));
    let run = RunFolder::open(path).unwrap();
    assert_eq!(run.events_missing(), u64::MAX);
    assert_eq!(run.end().unwrap().events_stored, u64::MAX);
}

#[test]
fn an_inspection_that_fails_leaves_a_run_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_parts(path, OPEN_FILES_MAX as u64 + 1);
    let mut run = RunFolder::open(path).unwrap();
    let first = run.next_event().unwrap().unwrap().header().trigger;
    // It is closed now, and cannot be opened when its turn comes.
    let gone = run.files()[1].path().to_owned();
    let away = path.join("away");
    fs::rename(&gone, &away).unwrap();
    assert!(run.inspect().is_err());
    fs::rename(&away, &gone).unwrap();
    let again = run.next_event().unwrap().unwrap().header().trigger;
    assert_eq!(again, first);
}
