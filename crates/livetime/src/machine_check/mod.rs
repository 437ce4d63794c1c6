//! `doctor`: is this machine fit for a trigger loop, and what would make it so?
//!
//! Seventeen checks, each with the value found, the threshold, why it matters and the command that
//! mends it. They read what the kernel says under `/proc` and `/sys`, and some try things out for a
//! while; nothing is changed. Which files each one reads stands in the files beside this one; the
//! last full verdict is kept by [`stored`].

mod core_isolation;
mod live;
mod machine;
mod power;
mod right;
pub(crate) mod stored;
mod surroundings;
mod system;

use std::fmt::{Display, Write};
use std::path::PathBuf;
use std::time::Duration;

use livetime_store::summary::{DoctorSummary, DoctorVerdict};
use serde_json::{Value, json};

use system::System;

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// The check says nothing about this machine.
    NotApplicable,
    /// As it should be.
    Pass,
    /// What the check reads or tries out cannot be had here.
    Unknown,
    /// Data are safe, but tails are longer than they need be.
    Warn,
    /// Measurements on this machine mean nothing, or data are at risk.
    Fail,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::NotApplicable => "not applicable",
            Self::Pass => "PASS",
            Self::Unknown => "unknown",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// What mends a check that could not be made.
const MEND_UNKNOWN: &str = "make /proc and /sys visible here, or raise `ulimit -u` where there is no thread, \
                            and check again";

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    /// Its number, 1 to 17.
    id: u8,
    name: &'static str,
    /// What was found.
    value: String,
    /// What it should be.
    threshold: &'static str,
    status: Status,
    /// Why it matters.
    why: &'static str,
    /// What mends it; empty where nothing is to be done.
    fix: String,
}

/// A check before its result.
#[derive(Debug, Clone, Copy)]
struct Question {
    id: u8,
    name: &'static str,
    threshold: &'static str,
    why: &'static str,
}

impl Question {
    fn answer(self, status: Status, value: impl Display, fix: impl Into<String>) -> Check {
        let Self {
            id,
            name,
            threshold,
            why,
        } = self;
        let fix = match status {
            Status::NotApplicable | Status::Pass => String::new(),
            Status::Unknown => MEND_UNKNOWN.to_owned(),
            Status::Warn | Status::Fail => fix.into(),
        };
        Check {
            id,
            name,
            value: value.to_string(),
            threshold,
            status,
            why,
            fix,
        }
    }
}

/// What is good here, as far as it can be read: a check passes only where all that it reads is there.
fn pass_if_read(is_read: bool) -> Status {
    match is_read {
        true => Status::Pass,
        false => Status::Unknown,
    }
}

/// What the checks look at.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    system: System,
    /// Cores on which a loop would spin, the last ones first.
    hot: Vec<usize>,
    /// Where run files go.
    directory: PathBuf,
    /// How long the live test spins on each hot core.
    live: Duration,
    /// Only what is read in a moment: no measurements.
    is_quick: bool,
}

impl Context {
    /// This machine, with runs written to `directory`.
    pub(crate) fn new(directory: PathBuf, live: Duration) -> Self {
        let cores = livetime_shm::allowed_cpus();
        // Core 0 serves the kernel; where there is another one the loop goes there.
        let mut hot: Vec<usize> = cores.iter().copied().filter(|core| *core != 0).collect();
        hot.reverse();
        hot.truncate(2);
        if hot.is_empty() {
            hot = cores;
        }
        Self {
            system: System::here(),
            hot,
            directory,
            live,
            is_quick: false,
        }
    }

    /// Only what is read in a moment.
    pub(crate) fn quick(directory: PathBuf) -> Self {
        Self {
            is_quick: true,
            ..Self::new(directory, Duration::ZERO)
        }
    }

    fn hot_names(&self) -> String {
        system::cpu_list(&self.hot)
    }
}

/// The answers of all checks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Diagnosis {
    checks: Vec<Check>,
    is_virtual: bool,
    /// The largest gap that the live test saw.
    largest_gap: Option<Duration>,
}

/// Numbers of the checks that a machine for real-time work passes: those without which the tail of a
/// latency is the machine's.
const REAL_TIME: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16];

impl Diagnosis {
    /// Runs the checks; `talk` hears the name of each slow one.
    pub(crate) fn make(context: &Context, only: &[u8], mut talk: impl FnMut(&str)) -> Self {
        let wanted = |id: u8| only.is_empty() || only.contains(&id);
        let mut checks = Vec::new();
        let mut largest_gap = None;
        for (id, check) in machine::CHECKS
            .iter()
            .chain(&core_isolation::CHECKS)
            .chain(&right::CHECKS)
            .chain(&power::CHECKS)
            .chain(&surroundings::CHECKS)
        {
            if wanted(*id) && !(context.is_quick && SLOW.contains(id)) {
                if SLOW.contains(id) {
                    talk(&format!("check {id} takes a moment .."));
                }
                checks.push(check(context));
            }
        }
        if wanted(16) && !context.is_quick {
            talk("check 16 spins on each hot core ..");
            let (check, gap) = live::live_test(context);
            checks.push(check);
            largest_gap = gap;
        }
        checks.sort_by_key(|check| check.id);
        Self {
            checks,
            is_virtual: machine::is_virtual(&context.system),
            largest_gap,
        }
    }

    /// The worst status.
    pub(crate) fn worst(&self) -> Status {
        let statuses = self.checks.iter().map(|check| check.status);
        statuses.max().unwrap_or(Status::NotApplicable)
    }

    /// One of three words for what the machine is good for.
    pub(crate) fn verdict(&self) -> &'static str {
        let ready =
            |check: &Check| !REAL_TIME.contains(&check.id) || matches!(check.status, Status::Pass);
        let covered = REAL_TIME
            .iter()
            .all(|id| self.checks.iter().any(|check| check.id == *id));
        if self.worst() == Status::Fail {
            "simulation only"
        } else if covered && self.checks.iter().all(ready) {
            "real-time ready"
        } else {
            "usable"
        }
    }

    /// Checks that are not as they should be.
    pub(crate) fn count(&self, status: Status) -> usize {
        let alike = self.checks.iter().filter(|check| check.status == status);
        alike.count()
    }

    /// The `livetime.doctor/1` document.
    pub(crate) fn to_json(&self) -> Value {
        let checks: Vec<Value> = self
            .checks
            .iter()
            .map(|check| {
                json!({
                    "id": check.id,
                    "name": check.name,
                    "value": check.value,
                    "threshold": check.threshold,
                    "status": check.status.name(),
                    "why": check.why,
                    "fix": check.fix,
                })
            })
            .collect();
        json!({
            "schema": "livetime.doctor/1",
            "checks": checks,
            "verdict": self.verdict(),
            "virtual_machine": self.is_virtual,
            "largest_gap_ns": self.largest_gap.map(|gap| gap.as_nanos() as u64),
        })
    }

    /// The text for people.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let _ = writeln!(
                text,
                "{:>2} {:<15} {:<24} {}",
                check.id,
                check.status.name(),
                check.name,
                check.value
            );
            if check.status > Status::Pass {
                let _ = writeln!(text, "      should be  {}", check.threshold);
                let _ = writeln!(text, "      why        {}", check.why);
                let _ = writeln!(text, "      to mend    {}", check.fix);
            }
        }
        let gap = self.largest_gap.map_or(String::new(), |gap| {
            let gap = livetime_wire::DurationNs(gap.as_nanos() as u64);
            format!(", largest gap {gap}")
        });
        let machine = if self.is_virtual {
            ", virtual machine"
        } else {
            ""
        };
        let _ = writeln!(text, "verdict: {}{gap}{machine}", self.verdict());
        text
    }
}

/// What a run says of its machine: the checks that need no time, and the last full verdict.
pub(crate) fn summary() -> DoctorSummary {
    let quick = Diagnosis::make(&Context::quick(PathBuf::from(".")), &[], |_| {});
    let count = |status| quick.count(status) as u32;
    DoctorSummary {
        virtual_machine: quick.is_virtual,
        quick: [Status::Pass, Status::Warn, Status::Fail].map(count),
        last: stored::last().map(|last| DoctorVerdict {
            verdict: last.verdict,
            age_s: last.age.as_secs(),
            largest_gap_ns: last.largest_gap.map(|gap| gap.as_nanos() as u64),
        }),
    }
}

/// Checks that measure for a while.
pub(crate) const SLOW: [u8; 3] = [6, 14, 16];

/// A check: its number, and the function that answers it.
type Entry = (u8, fn(&Context) -> Check);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: u8, status: Status) -> Check {
        Question {
            id,
            name: "n",
            threshold: "t",
            why: "w",
        }
        .answer(status, "v", "f")
    }

    fn diagnosis(checks: Vec<Check>) -> Diagnosis {
        Diagnosis {
            checks,
            is_virtual: true,
            largest_gap: Some(Duration::from_micros(70)),
        }
    }

    #[test]
    fn the_verdict_is_the_worst_of_what_matters() {
        let ready = || REAL_TIME.map(|id| check(id, Status::Pass)).to_vec();
        assert_eq!(diagnosis(ready()).verdict(), "real-time ready");
        let mut network = ready();
        network.push(check(13, Status::Warn));
        assert_eq!(diagnosis(network).verdict(), "real-time ready");
        let mut shared = ready();
        shared[2].status = Status::Warn;
        assert_eq!(diagnosis(shared.clone()).verdict(), "usable");
        shared[2].status = Status::Fail;
        assert_eq!(diagnosis(shared).verdict(), "simulation only");
        let some = diagnosis(vec![check(1, Status::Pass)]);
        assert_eq!(
            some.verdict(),
            "usable",
            "what was not checked is not known"
        );
    }

    #[test]
    fn documents_and_texts_say_what_to_do_only_where_something_is_wrong() {
        let found = diagnosis(vec![check(1, Status::Warn), check(2, Status::Pass)]);
        let document = found.to_json();
        assert_eq!(document["schema"], "livetime.doctor/1");
        assert_eq!(document["checks"][0]["status"], "WARN");
        assert_eq!(document["checks"][0]["fix"], "f");
        assert_eq!(document["checks"][1]["fix"], "");
        assert_eq!(document["virtual_machine"], true);
        assert_eq!(document["largest_gap_ns"], 70_000);
        let text = found.to_text();
        assert_eq!(text.matches("to mend").count(), 1);
        assert!(
            text.ends_with("verdict: usable, largest gap 70.0 us, virtual machine\n"),
            "{text}"
        );
    }

    #[test]
    fn nothing_passes_where_nothing_can_be_read() {
        let root = tempfile::tempdir().unwrap();
        let mut context = Context::quick(PathBuf::from("."));
        context.system = System::at(root.path());
        let found = Diagnosis::make(&context, &[], |_| {});
        for check in &found.checks {
            // That of the tools looks elsewhere.
            let is_passed = check.status == Status::Pass && check.id != 17;
            assert!(!is_passed, "{check:?}");
        }
        let of = |id| found.checks.iter().find(|check| check.id == id).unwrap();
        for id in [1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13] {
            let check = of(id);
            let is_refused = id == 8 && check.value.starts_with("FIFO refused");
            assert!(check.status == Status::Unknown || is_refused, "{check:?}");
            assert!(check.value.contains("unknown"), "{check:?}");
            assert!(
                check.fix.contains("/proc and /sys") || is_refused,
                "{check:?}"
            );
        }
        assert_eq!(found.verdict(), "usable");
    }

    #[test]
    fn a_quick_look_here_answers_without_measuring() {
        let found = Diagnosis::make(&Context::quick(PathBuf::from(".")), &[], |_| {
            panic!("nothing slow is done")
        });
        let ids: Vec<u8> = found.checks.iter().map(|check| check.id).collect();
        let expected: Vec<u8> = (1..=17).filter(|id| !SLOW.contains(id)).collect();
        assert_eq!(ids, expected);
        assert!(found.checks.iter().all(|check| !check.value.is_empty()));
    }
}
