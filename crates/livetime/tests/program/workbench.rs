//! A folder in which a test runs the program, and what it reads back.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Four data links on two readout units, small pages and chunks, every tenth trigger accepted and
/// stored.
pub(crate) const SMALL: &str = include_str!("small.toml");
/// The variable with the folder of recorded events.
const DATA: &str = "LIVETIME_DATA";

/// The root of the project.
pub(crate) fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The configuration that newcomers run.
pub(crate) fn example() -> String {
    let path = project().join("examples/dimuon.toml");
    fs::read_to_string(path).expect("the example is there")
}

/// `text` with one place replaced; a replacement without effect is a mistake of the test.
pub(crate) fn changed(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "places with `{from}`");
    text.replace(from, to)
}

/// A file of recorded events; `None`, said in the way that is counted, where there are none.
pub(crate) fn recorded(name: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(DATA).filter(|folder| !folder.is_empty()) {
        return Some(Path::new(&folder).join(name));
    }
    let required = std::env::var_os("LIVETIME_DATA_REQUIRED");
    assert!(required.is_none_or(|r| r != "1"), "{DATA} is not set");
    println!("SKIPPED: {DATA} is not set");
    None
}

/// What a finished program left.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Finished {
    fn new(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the program prints UTF-8");
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Asserts the exit code; shows what the program said if it is another.
    #[track_caller]
    pub(crate) fn ended_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.err, self.out);
        self
    }

    /// The one document on standard output.
    #[track_caller]
    pub(crate) fn document(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }
}

/// A temporary folder, in which the program runs.
pub(crate) struct Workbench(TempDir);

impl Workbench {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("the folder is ours");
    }

    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The program with these arguments, not yet started.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        self.prepared(Command::new(env!("CARGO_BIN_EXE_livetime")), arguments)
    }

    /// The program under a shell that first does `setup`, such as setting a limit.
    pub(crate) fn command_after(&self, setup: &str, arguments: &[&str]) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{setup}; exec \"$0\" \"$@\"")]);
        shell.arg(env!("CARGO_BIN_EXE_livetime"));
        self.prepared(shell, arguments)
    }

    fn prepared<A: AsRef<OsStr>>(&self, mut command: Command, arguments: &[A]) -> Command {
        command
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Finished {
        finished(self.command(arguments))
    }

    /// Starts `livetime run` and returns when it says that it takes data.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        self.start_command(self.command(arguments))
    }

    /// As [`Workbench::start`], of a command that ends in the program.
    pub(crate) fn start_command(&self, command: Command) -> Running {
        self.start_until(command, "run ")
    }

    /// As [`Workbench::start_command`], and returns at a line of its talk that starts with `start`.
    pub(crate) fn start_until(&self, mut command: Command, start: &str) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the built program starts");
        let err = child.stderr.take().expect("it is piped");
        let mut running = Running {
            child,
            err: BufReader::new(err),
            said: String::new(),
        };
        running.wait_for_line(start);
        running
    }

    /// What is in a run file, as `inspect` says it.
    #[track_caller]
    pub(crate) fn inspect(&self, file: &str) -> Value {
        let inspected = self.run(&["inspect", file, "--json", "--triggers"]);
        assert!(matches!(inspected.code, Some(0 | 1)), "{}", inspected.err);
        assert!(
            inspected
                .out
                .starts_with("{\"schema\":\"livetime.inspect/1\"")
        );
        inspected.document()
    }
}

/// Runs a command to its end.
pub(crate) fn finished(mut command: Command) -> Finished {
    Finished::new(command.output().expect("the command starts"))
}

/// The program while it runs; killed when the test fails.
pub(crate) struct Running {
    child: Child,
    err: BufReader<ChildStderr>,
    said: String,
}

impl Running {
    /// Reads standard error up to a line that starts with `start`.
    #[track_caller]
    pub(crate) fn wait_for_line(&mut self, start: &str) {
        let mut line = String::new();
        while self.err.read_line(&mut line).expect("it is UTF-8") > 0 {
            self.said += &line;
            if line.starts_with(start) {
                return;
            }
            line.clear();
        }
        panic!("it ended without `{start}..`: {}", self.said);
    }

    /// Waits until a file has at least `bytes`.
    #[track_caller]
    pub(crate) fn wait_for_bytes(&mut self, file: &Path, bytes: u64) {
        while fs::metadata(file).map_or(0, |metadata| metadata.len()) < bytes {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "it ended before {bytes} bytes");
            std::thread::yield_now();
        }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).expect("it is our child and not waited for");
    }

    /// Lets go of standard error, as a reader that ends does.
    pub(crate) fn stop_listening(self) -> Deaf {
        let Self { child, err, .. } = self;
        drop(err);
        Deaf(child)
    }

    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Finished {
        let mut out = String::new();
        let mut pipe = self.child.stdout.take().expect("it is piped");
        // Both pipes hold more than the program says, so that one after the other is good.
        pipe.read_to_string(&mut out).expect("it is UTF-8");
        self.err
            .read_to_string(&mut self.said)
            .expect("it is UTF-8");
        let code = self.child.wait().expect("it is our child").code();
        Finished {
            code,
            out,
            err: self.said,
        }
    }

    /// Ends it without giving it a chance.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }
}

/// A running program whose talk nobody hears.
pub(crate) struct Deaf(Child);

impl Deaf {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it is our child");
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        drop(self.0.stdout.take());
        self.0.wait().expect("it is our child")
    }
}

/// A value of a document by its keys, such as `counts.offered`.
#[track_caller]
pub(crate) fn value<'v>(document: &'v Value, path: &str) -> &'v Value {
    let found = path
        .split('.')
        .try_fold(document, |value, key| value.get(key));
    found.unwrap_or_else(|| panic!("no `{path}` in {document}"))
}

/// A count of a document by its keys.
#[track_caller]
pub(crate) fn count(document: &Value, path: &str) -> u64 {
    let found = value(document, path).as_u64();
    found.unwrap_or_else(|| panic!("`{path}` is no count in {document}"))
}

/// The flags of a condition, such as `INTERRUPTED` and `DEGRADED`.
#[track_caller]
pub(crate) fn flags(condition: &Value) -> Vec<&str> {
    let text = condition.as_str().expect("a condition is a text");
    text.split('|').collect()
}

/// The losses of an area.
#[track_caller]
pub(crate) fn lost(run: &Value, area: &str) -> u64 {
    let causes = value(run, &format!("losses.{area}")).as_object();
    let causes = causes.expect("losses have causes").values();
    causes.map(|count| count.as_u64().expect("a count")).sum()
}

/// Asserts the seven equations of the chain, computed here, and that the program found the same.
#[track_caller]
pub(crate) fn assert_conserved(run: &Value) {
    let n = |name: &str| count(run, &format!("counts.{name}"));
    let lost = |area: &str| lost(run, area);
    let equations = [
        ("offered", n("offered"), n("refused") + n("triggers")),
        (
            "triggers",
            n("triggers"),
            n("l2_accepted") + n("l2_rejected") + lost("trigger"),
        ),
        (
            "sent",
            n("fragments_sent"),
            n("fragments_received") + lost("link"),
        ),
        (
            "received",
            n("fragments_received"),
            n("fragments_dropped_by_decision")
                + n("fragments_in_built")
                + n("fragments_in_incomplete")
                + lost("readout"),
        ),
        (
            "accepted",
            n("l2_accepted"),
            n("events_built") + n("events_incomplete") + lost("builder"),
        ),
        (
            "filtered",
            n("events_built") + n("events_incomplete"),
            n("filter_accepted") + n("filter_rejected") + lost("filter"),
        ),
        (
            "stored",
            n("filter_accepted"),
            n("events_stored") + lost("store"),
        ),
    ];
    for (name, left, right) in equations {
        assert_eq!(left, right, "{name}: {run}");
    }
    assert_eq!(run["conserved"], true, "{run}");
}

/// The sum of all losses.
#[track_caller]
pub(crate) fn lost_in_all(run: &Value) -> u64 {
    let areas = value(run, "losses").as_object().expect("areas");
    areas.keys().map(|area| lost(run, area)).sum()
}

/// The trigger numbers that an inspection lists.
#[track_caller]
pub(crate) fn triggers(inspection: &Value) -> Vec<u64> {
    let listed = inspection["triggers"].as_array().expect("it was asked for");
    let number = |text: &Value| text.as_str().and_then(|text| text.parse().ok());
    let numbers: Option<Vec<u64>> = listed.iter().map(number).collect();
    numbers.expect("64-bit numbers are texts")
}
