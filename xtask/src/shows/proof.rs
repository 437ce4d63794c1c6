//! Proof: the chain as processes, attacked, measured against the bare machine, and read elsewhere.
//!
//! As for [`super::first_light`], each function shows one line from outside. Which faults there are
//! follows from the roles that a run names; what a role's loss must come to, from its kind.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::evidence::{Fingerprint, count, inspect, named_tests, run_files, sum};
use super::judged_command::targets_met_of;
use super::{Capability, Line, Shown, Stage};
use crate::Failure;
use crate::program::finish;
use crate::test_driver::RUNNING;

pub(super) const CAPABILITY: Capability = Capability {
    name: "proof",
    title: "processes, attacks, benches, Python and C",
    lines: &[
        Line {
            promise: "50 000 triggers lossless with a process per role: the decision digest and \
                      the stored trigger numbers of the run with threads",
            show: processes_decide_alike,
        },
        Line {
            promise: "every role killed, and stopped for 2 s with events that wait 10 s for their \
                      fragments, every readout unit's links down: the run goes on or ends by \
                      policy, counts conserved, file valid",
            show: faults_of_every_role,
        },
        Line {
            promise: "loom, ThreadSanitizer, fuzz targets, allocator proof, two-process kills and \
                      bit flips pass",
            show: attacks_pass,
        },
        Line {
            promise: "`livetime bench all --json` finishes in under 4 minutes, each target of floor, \
                      ring, loop, readout, builder, store and chain met",
            show: benches,
        },
        Line {
            promise: "the notebook and the C example run; \
                      `print(livetime.open('runs/000001'))` prints a summary",
            show: python_and_c,
        },
    ],
};

const CONFIG: &str = "examples/dimuon.toml";
const SEED: &str = "2024";

/// Arguments of a repeatable run.
fn lossless<'a>(config: &'a str, triggers: &'a str) -> [&'a str; 8] {
    let [a, b, c, d] = ["run", "--lossless", "--seed", SEED];
    [a, config, b, "--triggers", triggers, c, d, "--json"]
}

fn processes_decide_alike(stage: &Stage) -> Result<Shown, Failure> {
    let config = stage.file(CONFIG);
    let mut prints = Vec::new();
    for (name, more) in [("threads", None), ("processes", Some("--processes"))] {
        let folder = stage.folder(name)?;
        let arguments = lossless(&config, "50000").into_iter().chain(more);
        let document = stage.program.json(&folder, arguments)?;
        prints.push((name, Fingerprint::of(stage, &folder, &document)?));
    }
    let passed = prints[0].1 == prints[1].1 && !prints[0].1.stored.is_empty();
    let figures: Vec<String> = prints
        .iter()
        .map(|(name, print)| {
            let events = print.stored.len();
            format!("{name} {} with {events} events", print.decision_digest)
        })
        .collect();
    Ok(Shown::new(passed, figures.join("; ")))
}

/// So many that a quiet machine takes several times [`FAULT_AT`] for them.
const FAULT_TRIGGERS: &str = "100000";
/// When faults come, well inside the run.
const FAULT_AT: &str = "250ms";

/// What must become of a run in which something fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// It goes on, decides and stores what a run without the fault does, and loses nothing.
    Unharmed,
    /// It goes on and decides the same; what the dead had not finished may be lost.
    Recovered,
    /// It ends by policy with exit code 1, with what was taken until then.
    Ended,
    /// It goes on without some fragments.
    Degraded,
}

/// Every fault of the roles, with what must come of it.
fn faults(roles: &[&str]) -> Vec<(String, Expected)> {
    let mut faults = Vec::new();
    for role in roles {
        let kind = role.trim_end_matches(|c: char| c.is_ascii_digit());
        // A filter unit, a builder unit and the writer are replaced; nobody else can do what a
        // source, a trigger node, a readout unit or the event manager held.
        let killed = match kind {
            "fu" | "bu" => Expected::Unharmed,
            "wr" => Expected::Recovered,
            _ => Expected::Ended,
        };
        faults.push((format!("kill:{role}@{FAULT_AT}"), killed));
        faults.push((format!("stop:{role}@{FAULT_AT}+2s"), Expected::Unharmed));
        if kind == "ru" {
            let fault = format!("link-down:{role}@{FAULT_AT}+100ms");
            faults.push((fault, Expected::Degraded));
        }
    }
    faults
}

fn faults_of_every_role(stage: &Stage) -> Result<Shown, Failure> {
    let config = stage.file(CONFIG);
    let folder = stage.folder("faults")?;
    let patient = patient_config(&config, &folder)?;
    let run = |number: usize, fault: Option<&str>| -> Result<FaultRun, Failure> {
        let out = format!("{number}");
        let is_stop = fault.is_some_and(|fault| fault.starts_with("stop:"));
        let config = if is_stop { &patient } else { &config };
        let arguments = lossless(config, FAULT_TRIGGERS).into_iter();
        let fault = fault.iter().flat_map(|fault| ["--fault", fault]);
        let arguments = arguments.chain(["--processes", "--out", &out]).chain(fault);
        FaultRun::of(stage, &folder, stage.program.command(&folder, arguments))
    };
    let whole = run(0, None)?;
    let roles = whole.document["roles"].as_object();
    let roles = roles.ok_or("the document names no roles")?;
    let mut roles: Vec<&str> = roles.keys().map(String::as_str).collect();
    // The front-end counts nothing of its own beyond the document's counters.
    for role in ["src0", "wr0"] {
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    let faults = faults(&roles);
    let (mut wrong, mut lost) = (Vec::new(), 0.0);
    for (index, (fault, expected)) in faults.iter().enumerate() {
        let found = run(index + 1, Some(fault))?;
        let is_right = found.is_as(*expected, &whole);
        eprintln!(
            "  {} {fault}: {}",
            if is_right { "PASS" } else { "FAIL" },
            found.describe()
        );
        lost += found.lost;
        if !is_right {
            wrong.push(format!("{fault} ({})", found.describe()));
        }
    }
    let figures = format!(
        "{} faults of {} roles, {} as promised, {lost} losses in all, each by its cause{}{}",
        faults.len(),
        roles.len(),
        faults.len() - wrong.len(),
        if wrong.is_empty() { "" } else { "; not: " },
        wrong.join(", "),
    );
    Ok(Shown::new(wrong.is_empty(), figures))
}

/// The example, but events wait longer for their fragments than a readout unit is stopped: after the
/// second that they wait otherwise they are closed without them, and name them.
fn patient_config(config: &str, folder: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(config)?;
    let patient = text.replace("\ntimeout = \"1 s\"\n", "\ntimeout = \"10 s\"\n");
    if patient == text {
        return Err(format!("{config} has no `timeout = \"1 s\"`").into());
    }
    let path = folder.join("patient.toml");
    std::fs::write(&path, patient)?;
    Ok(path.display().to_string())
}

/// What a run with a fault came to.
struct FaultRun {
    exit: Option<i32>,
    document: Value,
    digest: Option<String>,
    is_file_valid: bool,
    events_in_file: usize,
    lost: f64,
}

impl FaultRun {
    fn of(stage: &Stage, folder: &Path, mut command: Command) -> Result<Self, Failure> {
        let output = command.output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let document: Value = serde_json::from_slice(&output.stdout)
            .map_err(|why| format!("no document ({why}); {}", errors.trim()))?;
        let mut events_in_file = 0;
        let mut is_file_valid = true;
        for file in run_files(folder, &document)? {
            let inspected = inspect(stage, folder, &file)?;
            is_file_valid &= inspected["checksum_errors"] == 0 && inspected["complete"] == true;
            let triggers = inspected["triggers"].as_array();
            events_in_file += triggers.map_or(0, Vec::len);
        }
        Ok(Self {
            exit: output.status.code(),
            digest: document["decision_digest"].as_str().map(str::to_owned),
            lost: sum(&document["losses"]),
            document,
            is_file_valid,
            events_in_file,
        })
    }

    fn is_as(&self, expected: Expected, whole: &Self) -> bool {
        let stored = count(&self.document, "events_stored").unwrap_or(-1.0);
        let is_sound = self.document["conserved"] == true
            && self.is_file_valid
            && stored == self.events_in_file as f64;
        let is_expected = match expected {
            Expected::Unharmed => {
                let is_same = self.digest == whole.digest && self.lost == 0.0;
                self.exit == Some(0) && is_same && self.events_in_file == whole.events_in_file
            }
            Expected::Recovered => self.exit == Some(0) && self.digest == whole.digest,
            Expected::Ended => self.exit == Some(1),
            Expected::Degraded => self.exit == Some(0) && self.lost > 0.0,
        };
        is_sound && is_expected
    }

    fn describe(&self) -> String {
        let exit = self
            .exit
            .map_or("a signal".to_owned(), |code| code.to_string());
        format!(
            "exit {exit}, {}, conserved {}, {} lost, {} events in the file, valid {}",
            self.document["run"]["condition"]
                .as_str()
                .unwrap_or("no condition"),
            self.document["conserved"],
            self.lost,
            self.events_in_file,
            self.is_file_valid,
        )
    }
}

/// Parts of the tests with builds of their own, and what selects the others.
const PARTS: [&str; 3] = ["loom", "thread-sanitizer", "fuzz"];
const ATTACKS: [(&str, &str, &str); 4] = [
    ("two-process kills", "livetime-shm", "harms_nothing"),
    ("hostile peers", "livetime-shm", "--test hostile_peer"),
    ("bit flips", "livetime-store", "bit"),
    (
        "allocator",
        "livetime-node",
        "nothing_is_allocated_after_start",
    ),
];

fn attacks_pass(stage: &Stage) -> Result<Shown, Failure> {
    if std::env::var_os(RUNNING).is_some() {
        return Err("this line runs the tests and cannot be shown from inside them".into());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.current_dir(&stage.root).arg("test").args(PARTS);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let closing = text.lines().last().unwrap_or("said nothing").to_owned();
    let mut passed = output.status.success() && closing.ends_with(" 0 skipped");
    let mut figures = vec![format!("{}: {closing}", PARTS.join(", "))];
    for (what, package, filter) in ATTACKS {
        let tests = named_tests(stage, package, filter)?;
        passed &= tests > 0;
        figures.push(format!("{what}: {tests} tests"));
    }
    Ok(Shown::new(passed, figures.join("; ")))
}

/// All benches take less than this.
const BENCH_MAX: Duration = Duration::from_secs(240);
/// Those whose targets belong to this capability; `links`, `builder`, `fabric`, `farm` and `timing`
/// judge the others.
const BENCHES: [&str; 7] = [
    "floor", "ring", "loop", "readout", "builder", "store", "chain",
];

fn benches(stage: &Stage) -> Result<Shown, Failure> {
    targets_met_of(stage, &BENCHES, BENCH_MAX)
}

fn python_and_c(stage: &Stage) -> Result<Shown, Failure> {
    let mut notebook = Command::new("bash");
    notebook
        .current_dir(&stage.root)
        .args(["python/check.sh", "-rs", "-k", "notebook"]);
    let output = finish(notebook)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let notebook = text
        .lines()
        .last()
        .unwrap_or_default()
        .trim_matches(['=', ' ']);
    let c_tests = named_tests(stage, "livetime-capi", "c_program")?;
    let folder = stage.folder("python")?;
    let config = stage.file(CONFIG);
    stage.program.json(&folder, lossless(&config, "5000"))?;
    let mut python = Command::new(stage.root.join(".venv/bin/python"));
    python
        .current_dir(&folder)
        .args(["-c", "import livetime; print(livetime.open('runs/000001'))"]);
    let printed = finish(python)?;
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let is_useful = ["run 1", "events"].iter().all(|word| {
        let text = printed.to_lowercase().replace("000001", "1");
        text.contains(word)
    });
    let passed = notebook.contains(" passed") && c_tests > 0 && is_useful;
    let figures = format!(
        "notebook: {notebook}; C example: {c_tests} tests; prints \"{}\"",
        printed.trim().replace('\n', ", ")
    );
    Ok(Shown::new(passed, figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_is_killed_and_stopped_and_links_belong_to_readout_units() {
        let faults = faults(&["src0", "ru1", "wr0"]);
        let expected = [
            ("kill:src0@250ms", Expected::Ended),
            ("stop:src0@250ms+2s", Expected::Unharmed),
            ("kill:ru1@250ms", Expected::Ended),
            ("stop:ru1@250ms+2s", Expected::Unharmed),
            ("link-down:ru1@250ms+100ms", Expected::Degraded),
            ("kill:wr0@250ms", Expected::Recovered),
            ("stop:wr0@250ms+2s", Expected::Unharmed),
        ];
        let expected = expected.map(|(fault, expected)| (fault.to_owned(), expected));
        assert_eq!(faults, expected);
    }
}
