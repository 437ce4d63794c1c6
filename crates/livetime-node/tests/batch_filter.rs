//! Batches for an interpreter, here a script that speaks its protocol without any package.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use livetime_node::pooled_event::PooledEvent;
use livetime_node::python_filter::batch_filter::BatchBounds;
use livetime_node::python_filter::interpreter::Surroundings;
use livetime_node::python_filter::{BatchFilter, BatchRow, BatchVerdict, PythonConfig};
use livetime_shm::Doorbell;
use livetime_wire::{DurationNs, RunNs, TriggerNumber};

const BATCH: u64 = 4;
/// What the script does with requests follows.
const INTERPRETER: &str = r#"#!/usr/bin/env python3
import array, json, mmap, os, socket, struct, sys

control = socket.socket(fileno=os.dup(0))
control.send(json.dumps(["loaded", {"batch": 4, "wait_ms": 5}]).encode())
descriptors, given = [], {}
while not given or len(descriptors) < 2:
    packet, ancillary, _, _ = control.recvmsg(1 << 17, socket.CMSG_SPACE(64))
    for _level, _kind, part in ancillary:
        found = array.array("i")
        found.frombytes(part)
        descriptors.extend(found)
    what, *body = json.loads(packet)
    given = body[0] if what == "begin" else given
data = socket.socket(fileno=descriptors[0])
def say(what, body):
    control.send(json.dumps([what, body]).encode())

say("life", 1)

def asked():
    packet = data.recv(64)
    if len(packet) != 24:
        sys.exit(0)
    return struct.unpack("<IIIIQ", packet)

def done(request):
    data.send(struct.pack("<QQQQ", 1, request[4], 5, 0))

def failed(request):
    data.send(struct.pack("<QQ", 2, request[4]) + json.dumps(["bad", "trace"]).encode())

if sys.argv[-1].startswith("stillborn"):
    # Lives that die before they read what they are asked, but for those that are named: they answer once.
    answering = [int(life) for life in sys.argv[-1].split()[1:]]
    life = 1
    while True:
        request = asked()
        if life in answering:
            done(request)
            request = asked()
        say("died", "exit status: 1")
        life += 1
        say("life", life)
if sys.argv[-1] == "late":
    # Answers as it is killed for that, and has begun what was asked ahead.
    first, second = asked(), asked()
    order = json.loads(control.recv(256))
    (done if order == ["kill", 1, first[4]] else failed)(first)
    with mmap.mmap(descriptors[1], 0) as arena:
        arena[given["in_work"] : given["in_work"] + 8] = struct.pack("<Q", second[4])
    say("died", "signal: 9 (SIGKILL)")
    say("life", 2)
if sys.argv[-1] == "ahead":
    # Answers to a question only when it knows the next.
    while True:
        first, second = asked(), asked()
        done(first)
        done(second)
# Fails on the third event of the first slot.
while True:
    life, slot, first, last, sequence = request = asked()
    (failed if slot == 0 and first <= 2 < last else done)(request)
"#;

/// A filter with that interpreter, and the folder in which it lies.
fn filter(function: &str) -> Option<(BatchFilter, tempfile::TempDir)> {
    filter_within(function, None)
}

/// The same, with a limit of its time.
fn filter_within(
    function: &str,
    time_limit: Option<DurationNs>,
) -> Option<(BatchFilter, tempfile::TempDir)> {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIPPED: there is no python3");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("interpreter");
    std::fs::write(&script, INTERPRETER).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut config = PythonConfig {
        interpreter: script,
        ..PythonConfig::new("filter.py".into(), function.to_owned())
    };
    config.time_limit = time_limit.unwrap_or(config.time_limit);
    let bounds = BatchBounds {
        sources: 1,
        event_words: 16,
        events: 2 * BATCH as usize,
    };
    let surroundings = Surroundings {
        bell: Some(Doorbell::in_process()),
        faults: Vec::new(),
    };
    let filter = BatchFilter::start("fu0", &config, bounds, Vec::new(), surroundings);
    Some((filter.unwrap(), folder))
}

/// Fills a batch with events from `first` on, and closes it.
fn fill(filter: &mut BatchFilter, first: u64) {
    for trigger in first..first + BATCH {
        let mut event = PooledEvent::with_capacity(1, 1);
        event.ticket_mut().trigger = TriggerNumber(trigger);
        let row = BatchRow {
            triggered_at: RunNs(0),
            missing: 0,
        };
        let is_full = filter.push(&event, row, |_, _| None);
        assert_eq!(is_full, trigger == first + BATCH - 1);
    }
    filter.close_batch();
}

/// Waits until the next batch is judged; says which of its events have failed.
fn judged(filter: &mut BatchFilter) -> Vec<bool> {
    let slot = loop {
        // A time that stands still: no filter is over its limit.
        filter.poll(RunNs(0));
        if let Some((slot, count)) = filter.judged() {
            assert_eq!(count as u64, BATCH);
            break slot;
        }
        std::thread::yield_now();
    };
    let verdicts = (0..BATCH as usize).map(|nth| filter.verdict(slot, nth));
    let failed = verdicts.map(|verdict| verdict == BatchVerdict::Failed);
    let failed = failed.collect();
    filter.forget(slot);
    failed
}

#[test]
fn the_next_batch_is_asked_about_while_one_is_judged() {
    let Some((mut filter, _folder)) = filter("ahead") else {
        return;
    };
    fill(&mut filter, 1);
    fill(&mut filter, 1 + BATCH);
    for _ in 0..2 {
        assert_eq!(judged(&mut filter), [false; BATCH as usize]);
    }
    assert!(filter.is_empty());
    let counts = filter.counts();
    assert_eq!((counts.batches, counts.requests), (2, 2));
    assert_eq!((counts.events, counts.failed), (2 * BATCH, 0));
}

#[test]
fn a_failing_event_is_found_with_another_batch_asked_about() {
    let Some((mut filter, _folder)) = filter("fails") else {
        return;
    };
    fill(&mut filter, 1);
    fill(&mut filter, 1 + BATCH);
    assert_eq!(judged(&mut filter), [false, false, true, false]);
    assert_eq!(judged(&mut filter), [false; BATCH as usize]);
    let failures = filter.take_failures();
    let triggers: Vec<u64> = failures.iter().map(|failure| failure.trigger.0).collect();
    assert_eq!(triggers, [3]);
    assert_eq!(failures[0].traceback, "trace");
    let counts = filter.counts();
    assert_eq!((counts.batches, counts.failed), (2, 1));
    assert_eq!(
        counts.events,
        2 * BATCH - 1,
        "the failed one is in no histogram"
    );
}

#[test]
fn a_request_that_was_begun_as_another_is_over_its_limit_is_asked_again() {
    let Some((mut filter, _folder)) = filter_within("late", Some(DurationNs(1))) else {
        return;
    };
    fill(&mut filter, 1);
    fill(&mut filter, 1 + BATCH);
    // It is asked about both batches.
    assert_eq!(filter.poll(RunNs(0)) + filter.poll(RunNs(0)), 2);
    filter.poll(RunNs(2));
    for _ in 0..2 {
        assert_eq!(judged(&mut filter), [false; BATCH as usize]);
    }
    let counts = filter.counts();
    // Neither is taken in halves.
    assert_eq!((counts.requests, counts.events), (2, 2 * BATCH));
    assert_eq!((counts.deaths, counts.over_time, counts.failed), (1, 0, 0));
}

#[test]
fn a_filter_whose_lives_die_before_they_begin_is_not_asked_for_ever() {
    let Some((mut filter, _folder)) = filter("stillborn") else {
        return;
    };
    fill(&mut filter, 1);
    while filter.judged().is_none() {
        filter.poll(RunNs(0));
        let deaths = filter.counts().deaths;
        assert!(deaths < 50, "none of them has begun anything");
        std::thread::yield_now();
    }
    assert_eq!(judged(&mut filter), [true; BATCH as usize]);
    let failures = filter.take_failures();
    let why = "the interpreter does not start again: exit status: 1";
    for failure in &failures {
        assert_eq!(failure.deaths, [("fu0".to_owned(), why.to_owned())]);
    }
    assert_eq!(failures.len() as u64, BATCH);
    assert_eq!(filter.counts().deaths, 3);
    // What comes later is not asked about any more.
    fill(&mut filter, 1 + BATCH);
    assert_eq!(judged(&mut filter), [true; BATCH as usize]);
    assert_eq!(filter.counts().deaths, 3);
}

#[test]
fn a_life_that_answers_takes_the_blame_from_those_before_it() {
    let Some((mut filter, _folder)) = filter("stillborn 3 5") else {
        return;
    };
    for batch in 0..2 {
        fill(&mut filter, 1 + batch * BATCH);
        assert_eq!(judged(&mut filter), [false; BATCH as usize]);
    }
    let counts = filter.counts();
    assert_eq!((counts.deaths, counts.failed), (4, 0));
}
