//! A run with processes, and everything that is asserted of each.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::contents::contents;

/// Runs at a time: each starts more processes than there are cores, but waits for most of its time.
const TURNS_MAX: usize = 2;

static TURNS_TAKEN: Mutex<usize> = Mutex::new(0);
static TURN_ENDED: Condvar = Condvar::new();

/// The right to have a run, while it lives.
pub(crate) struct Turn;

pub(crate) fn turn() -> Turn {
    let taken = TURNS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let free = TURN_ENDED.wait_while(taken, |taken| *taken == TURNS_MAX);
    *free.unwrap_or_else(PoisonError::into_inner) += 1;
    Turn
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        TURN_ENDED.notify_one();
    }
}

pub(crate) fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dimuon.toml")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A finished run and its files.
pub(crate) struct Run {
    pub(crate) output: Output,
    pub(crate) summary: Value,
    pub(crate) folder: tempfile::TempDir,
}

impl Run {
    /// Runs the example, edited by `edit`, lossless and with a fixed seed.
    pub(crate) fn of(edit: impl Fn(String) -> String, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = std::fs::read_to_string(example()).expect("the example is there");
        std::fs::write(folder.path().join("run.toml"), edit(config)).expect("a writable folder");
        let output = Command::new(env!("CARGO_BIN_EXE_livetime"))
            .current_dir(folder.path())
            .args(["run", "run.toml", "--lossless", "--seed", "11", "--json"])
            .args(["--out", "run"])
            .args(arguments)
            .output()
            .expect("the built program starts");
        Self::finished(output, folder)
    }

    /// A run that has ended, with its files in `run` of the folder.
    pub(crate) fn finished(output: Output, folder: tempfile::TempDir) -> Self {
        let summary = serde_json::from_slice(&output.stdout);
        let summary = summary.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        Self {
            output,
            summary,
            folder,
        }
    }

    pub(crate) fn errors(&self) -> String {
        text(&self.output.stderr)
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.summary["counts"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Sum of the losses of an area.
    pub(crate) fn lost_in(&self, area: &str) -> u64 {
        let causes = self.summary["losses"][area].as_object();
        let causes = causes.unwrap_or_else(|| panic!("no area {area}"));
        causes.values().filter_map(Value::as_u64).sum()
    }

    /// Causes with losses, and how many.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&str, u64)> {
        let areas = self.summary["losses"].as_object().expect("an object");
        let causes = areas.values().filter_map(Value::as_object).flatten();
        causes
            .map(|(cause, count)| (cause.as_str(), count.as_u64().expect("a count")))
            .filter(|(_, count)| *count > 0)
    }

    /// Causes with losses.
    pub(crate) fn causes(&self) -> BTreeSet<String> {
        self.losses().map(|(cause, _)| cause.to_owned()).collect()
    }

    /// Nothing is lost, or only with a writer that died.
    pub(crate) fn assert_only_writer_lost(&self) {
        let allowed = BTreeSet::from(["writer_lost".to_owned()]);
        assert!(self.causes().is_subset(&allowed), "{:?}", self.causes());
    }

    pub(crate) fn digest(&self) -> &str {
        self.summary["decision_digest"].as_str().expect("a digest")
    }

    /// Writers that the run went on without.
    pub(crate) fn lost_writers(&self) -> usize {
        let writers = self.summary["writers"].as_array();
        let lost = writers.into_iter().flatten();
        lost.filter(|writer| writer["lost"] == true).count()
    }

    /// Trigger numbers in the files, which must be whole and hold no event twice.
    pub(crate) fn stored(&self) -> BTreeSet<u64> {
        let inspect = Command::new(env!("CARGO_BIN_EXE_livetime"))
            .arg("inspect")
            .arg(self.folder.path().join("run"))
            .arg("--triggers")
            .output()
            .expect("the built program starts");
        // The file of a lost group may stay as its writer left it.
        let whole = inspect.status.success() || self.lost_writers() > 0;
        assert!(whole, "{}", text(&inspect.stderr));
        let listed: Vec<u64> = text(&inspect.stdout)
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect();
        let unique: BTreeSet<u64> = listed.iter().copied().collect();
        assert_eq!(listed.len(), unique.len(), "an event is in the file twice");
        unique
    }

    /// What is in the files, word by word, which must be whole.
    pub(crate) fn contents(&self) -> BTreeMap<u64, u64> {
        contents(&self.folder.path().join("run"))
    }

    /// Triggers of events that only one of two runs stored, or that are not the same in both.
    pub(crate) fn differing(&self, other: &Self) -> BTreeSet<u64> {
        let (ours, theirs) = (self.contents(), other.contents());
        let all = ours.keys().chain(theirs.keys()).copied();
        all.filter(|trigger| ours.get(trigger) != theirs.get(trigger))
            .collect()
    }

    /// Every equation between the counters, computed here.
    pub(crate) fn assert_accounted(&self) {
        let count = |name| self.count(name);
        let events = count("events_built") + count("events_incomplete");
        for (hop, left, right) in [
            (
                "source",
                count("offered"),
                count("refused") + count("triggers"),
            ),
            (
                "trigger",
                count("triggers"),
                count("l2_accepted") + count("l2_rejected") + self.lost_in("trigger"),
            ),
            (
                "link",
                count("fragments_sent"),
                count("fragments_received") + self.lost_in("link"),
            ),
            (
                "readout",
                count("fragments_received"),
                count("fragments_dropped_by_decision")
                    + count("fragments_in_built")
                    + count("fragments_in_incomplete")
                    + self.lost_in("readout"),
            ),
            (
                "builder",
                count("l2_accepted"),
                events + self.lost_in("builder"),
            ),
            (
                "filter",
                events,
                count("filter_accepted") + count("filter_rejected") + self.lost_in("filter"),
            ),
            (
                "store",
                count("filter_accepted"),
                count("events_stored") + self.lost_in("store"),
            ),
        ] {
            assert_eq!(left, right, "{hop}: {}\n{}", self.summary, self.errors());
        }
        assert_eq!(self.summary["conserved"], true);
        self.assert_whole_events();
        let stored = self.stored();
        assert_eq!(
            stored.len() as u64,
            count("events_stored"),
            "file and counter"
        );
    }

    /// Complete events have a fragment of each link, of which one was sent for each trigger.
    fn assert_whole_events(&self) {
        let is_two_step = self.summary.get("two_step").is_some();
        let source_lost = &self.summary["losses"]["link"]["source_lost"];
        let unsent = &self.summary["roles"]["src0"]["fragments_unsent"];
        if is_two_step || *source_lost != 0 || *unsent != 0 {
            return;
        }
        assert_eq!(
            self.count("fragments_in_built") * self.count("triggers"),
            self.count("events_built") * self.count("fragments_sent"),
            "{}\n{}",
            self.summary,
            self.errors()
        );
    }
}

/// The example with timeouts of builder and decisions that no busy machine reaches.
pub(crate) fn patient(config: String) -> String {
    let changed = config.replace("\ntimeout = \"1 s\"", "\ntimeout = \"20 s\"");
    assert_ne!(changed, config);
    let waiting = changed.replace(
        "decision_timeout = \"100 ms\"",
        "decision_timeout = \"20 s\"",
    );
    assert_ne!(waiting, changed);
    waiting
}

/// A configuration whose filter keeps everything.
pub(crate) fn keeping_all(config: String) -> String {
    let lines = config.lines().filter(|line| {
        let keys = ["mass_min", "mass_max", "keep_one_in"];
        !keys.iter().any(|key| line.starts_with(key))
    });
    let lines: Vec<&str> = lines.collect();
    let changed = (lines.join("\n") + "\n").replace("\"mass_window\"", "\"accept_all\"");
    assert_ne!(changed, config);
    changed
}

/// A running program whose talk is followed.
pub(crate) struct Lines {
    child: Child,
    talk: BufReader<ChildStderr>,
    heard: String,
    results: JoinHandle<Vec<u8>>,
}

impl Lines {
    /// Follows a program whose outputs are piped.
    pub(crate) fn of(mut child: Child) -> Self {
        let talk = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut out = child.stdout.take().expect("a pipe");
        let results = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            out.read_to_end(&mut bytes).expect("a pipe can be read");
            bytes
        });
        Self {
            child,
            talk,
            heard: String::new(),
            results,
        }
    }

    /// Reads until it has said something so many times.
    pub(crate) fn wait_for(&mut self, said: &str, times: usize) {
        while self.heard.matches(said).count() < times {
            let bytes = self.talk.read_line(&mut self.heard).expect("a pipe");
            assert_ne!(bytes, 0, "it ended: {}", self.heard);
        }
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Output {
        self.talk.read_to_string(&mut self.heard).expect("a pipe");
        Output {
            status: self.child.wait().expect("a child of ours"),
            stdout: self.results.join().expect("it did not panic"),
            stderr: self.heard.into_bytes(),
        }
    }
}
