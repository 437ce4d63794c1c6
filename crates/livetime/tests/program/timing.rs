//! The timing daemon through the built program: served, snooped, steered, soaked.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::copied_program::copy_program;

/// A daemon of its own folder, ended with the test.
struct Served {
    child: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn livetime() -> Command {
    Command::new(env!("CARGO_BIN_EXE_livetime"))
}

fn serve(arguments: &[&str]) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("t.sock");
    let mut child = livetime()
        .args(["timing", "serve", "--socket"])
        .arg(&socket)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = child.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready "), "{line}");
    Served {
        child,
        socket,
        _folder: folder,
    }
}

impl Served {
    fn timing(&self, arguments: &[&str]) -> Output {
        let output = livetime()
            .arg("timing")
            .args(arguments)
            .arg("--daemon")
            .arg(&self.socket)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.timing(arguments).stdout).unwrap()
    }

    /// What an act says that must not be done.
    fn refused(&self, arguments: &[&str]) -> String {
        let mut command = livetime();
        command.arg("timing").args(arguments).arg("--daemon");
        let output = command.arg(&self.socket).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn messages_are_snooped_as_text_and_as_json_and_injection_takes_no_sink() {
    let served = serve(&[]);
    for json in [false, true] {
        let mut snoop = livetime();
        snoop.args([
            "timing",
            "snoop",
            "--count",
            "2",
            "1123000000000000",
            "ffff000000000000",
        ]);
        if json {
            snoop.arg("--json");
        }
        let mut snooping = snoop
            .arg("--daemon")
            .arg(&served.socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut talk = BufReader::new(snooping.stderr.take().unwrap());
        talk.read_line(&mut said).unwrap();
        assert!(said.starts_with("listening"), "{said}");
        served.timing(&["inject", "0x1123101000000040", "55", "+20000000"]);
        served.timing(&["inject", "0x1124101000000040", "56"]);
        served.timing(&["inject", "1123101000000040", "57", "1000"]);
        let output = snooping.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        if json {
            let late: Vec<Value> = lines
                .iter()
                .map(|line| serde_json::from_str(line).unwrap())
                .filter(|record: &Value| record["flags"] == serde_json::json!(["late"]))
                .collect();
            assert_eq!(late.len(), 1, "{text}");
            assert_eq!(late[0]["param"], "0x0000000000000057");
        } else {
            assert!(
                text.contains("EvtID: 0x1123101000000040 Param: 0x0000000000000055\n"),
                "{text}"
            );
            assert!(
                text.contains("Param: 0x0000000000000057 !late (by "),
                "{text}"
            );
        }
    }
    let status: Value = serde_json::from_str(&served.text(&["status", "--json"])).unwrap();
    assert_eq!(status["schema"], "livetime.timing_status/1");
    assert_eq!(status["messages"], 6);
    let kinds: Vec<&Value> = status["sinks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["kind"])
        .collect();
    assert!(
        !kinds.contains(&&Value::from("software")),
        "no sink stays: {status}"
    );
}

#[test]
fn outputs_conditions_schedules_and_generators_on_a_virtual_clock() {
    let served = serve(&["--virtual", "1000000000000"]);
    assert_eq!(served.text(&["io", "IO1"]), "off\n");
    served.timing(&["io", "IO1", "on"]);
    assert_eq!(served.text(&["io", "IO1"]), "on\n");
    let path = served.text(&["cond", "add", "IO1", "1000", "fffffffffffff000", "0", "off"]);
    assert!(path.trim().ends_with("/IO1/c0_0"), "{path}");
    let list = served.text(&["cond", "list"]);
    assert!(
        list.contains("condition 0.0: 0x0000000000001000 0xfffffffffffff000 offset 0 ns"),
        "{list}"
    );
    served.timing(&["cond", "remove", "IO1", "0.0"]);
    assert!(!served.text(&["cond", "list"]).contains("condition"));
    let schedule = served.socket.with_file_name("schedule.txt");
    std::fs::write(&schedule, "0x1000 0x0 0 # first\n0x1001 0x1 1000000\n").unwrap();
    let played = served.text(&["dm", "-n", "3", schedule.to_str().unwrap()]);
    assert!(
        played.starts_with("playing 2 messages 3 times from TAI 1000002000000 ns"),
        "{played}"
    );
    // The virtual clock stands still, so that both play on.
    served.text(&["dm", "-n", "4000000000", schedule.to_str().unwrap()]);
    let status = |served: &Served| -> Value {
        serde_json::from_str(&served.text(&["status", "--json"])).unwrap()
    };
    assert_eq!(status(&served)["playing"], 6 + 8_000_000_000u64);
    assert_eq!(served.text(&["dm", "--stop"]), "stopped 2 schedules\n");
    assert_eq!(status(&served)["playing"], 0);
    assert_eq!(served.text(&["dm", "--stop"]), "stopped 0 schedules\n");
    std::fs::write(&schedule, "0x1000 0x0\n").unwrap();
    let refused = livetime()
        .args(["timing", "dm", "--daemon"])
        .args([&served.socket, &schedule])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("line 1"),
        "{refused:?}"
    );
    let states = served.text(&["fg", "status"]);
    assert_eq!(states.lines().count(), 12, "{states}");
    assert!(states.starts_with("fg-0 disabled, 0 ns queued"), "{states}");
}

#[test]
fn conditions_stay_for_a_lease_and_are_resumed_by_its_token() {
    let served = serve(&["--virtual", "1000000000000"]);
    let json =
        |arguments: &[&str]| -> Value { serde_json::from_str(&served.text(arguments)).unwrap() };
    let refused = |arguments: &[&str], code, expected: &str| {
        let mut command = livetime();
        command.arg("timing").args(arguments).arg("--daemon");
        let output = command.arg(&served.socket).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    };
    let first = ["cond", "add", "IO1", "1000", "fffffffffffff000", "0", "on"];
    for seconds in ["0", "3601", "soon"] {
        let arguments = [&first[..], &["--lease", seconds]].concat();
        refused(&arguments, 2, "1 to 3600 whole seconds");
    }
    let said = served.text(&[&first[..], &["--lease", "3600"]].concat());
    let [path, token] = said.lines().collect::<Vec<_>>()[..] else {
        panic!("{said}");
    };
    assert!(path.ends_with("/IO1/c0_0"), "{said}");
    let token = token.strip_prefix("token ").unwrap();
    let unknown = "0".repeat(32);
    refused(&["lease", "renew", &unknown], 1, "no lease of this token");
    refused(&["lease", "renew", &token[1..]], 2, "32 hexadecimal digits");
    // Another one under the same lease, and one that stays for good.
    let second = ["cond", "add", "IO1", "2000", "fffffffffffff000", "0", "off"];
    let added = json(&[&second[..], &["--resume", token, "--json"]].concat());
    assert_eq!(added["schema"], "livetime.timing_condition/1");
    assert_eq!(
        (&added["token"], &added["objects_resumed"]),
        (&token.into(), &1.into())
    );
    let kept = json(&[
        "cond",
        "add",
        "IO1",
        "3000",
        "fffffffffffff000",
        "0",
        "off",
        "--json",
    ]);
    assert_eq!(
        (&kept["token"], &kept["objects_resumed"]),
        (&Value::Null, &Value::Null)
    );
    while json(&["status", "--json"])["leases_waiting"] != 1 {}
    let renewed = json(&["lease", "renew", token, "--json"]);
    assert_eq!(renewed["schema"], "livetime.timing_lease/1");
    assert_eq!(
        (&renewed["state"], &renewed["objects"]),
        (&"renewed".into(), &2.into())
    );
    assert_eq!(renewed["holder_is_connected"], false);
    while json(&["status", "--json"])["leases_waiting"] != 1 {}
    let status = served.text(&["status"]);
    assert!(
        status.contains("leases of clients that are gone: 1"),
        "{status}"
    );
    served.timing(&["cond", "remove", "IO1", "0.0", "--resume", token]);
    let ended = served.text(&["lease", "end", token]);
    assert_eq!(ended, "lease ended; sinks and conditions under it: 1\n");
    let left = || served.text(&["cond", "list"]).matches("condition").count();
    while left() > 1 {}
    refused(
        &["lease", "end", token],
        1,
        "its time is over, it was given back",
    );
    served.timing(&["cond", "remove", "IO1", "2.0"]);
    assert_eq!(left(), 0);
}

#[test]
fn the_clock_and_the_inputs_of_the_emulated_receiver_are_steered() {
    let served = serve(&["--virtual", "1000000000000", "--inputs", "1"]);
    let clock = |arguments: &[&str]| served.text(&[&["clock"], arguments].concat());
    assert_eq!(
        clock(&[]),
        "TAI 1000000000000 ns, clock virtual, locked, +0 ns off\n"
    );
    clock(&["lost"]);
    clock(&["drift", "-1000"]);
    assert_eq!(
        clock(&["advance", "+1000000000"]),
        "TAI 1001000000000 ns, clock virtual, holdover, -1001 ns off\n"
    );
    assert!(
        served
            .text(&["status"])
            .contains("NOT LOCKED, holdover, -1001 ns off"),
        "{}",
        served.text(&["status"])
    );
    assert!(clock(&["step", "1500"]).ends_with(" holdover, +499 ns off\n"));
    // What is given is the time that the receiver shows then.
    clock(&["step", "5000000000"]);
    assert!(clock(&["advance", "1010000000000"]).starts_with("TAI 1010000000000 ns, "));
    let past = served.refused(&["clock", "advance", "1009999999999"]);
    assert!(past.contains("it shows 1010000000000 ns"), "{past}");
    let drift = served.refused(&["clock", "drift", "1000001"]);
    assert!(drift.starts_with("error[G0106]: "), "{drift}");
    assert!(clock(&["regained"]).ends_with(" locked, +0 ns off\n"));
    assert_eq!(served.text(&["io", "IN1"]), "off\n");
    served.timing(&["io", "IN1", "--prefix", "ff00", "--stable", "32"]);
    served.timing(&["io", "IN1", "on"]);
    clock(&["advance", "+1000"]);
    let list = served.text(&["io"]);
    assert!(
        list.ends_with(
            "IN1 on, messages 0x000000000000ff00, stable for 32 ns, 1 edges, 0 glitches\n"
        ),
        "{list}"
    );
    let status: Value = serde_json::from_str(&served.text(&["status", "--json"])).unwrap();
    assert_eq!(status["messages"], 1);
}

/// A feed that goes on, and what it says while it does.
struct Feeding {
    child: Child,
    talk: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Feeding {
    fn start(served: &Served, sets: &str, arguments: &[&str]) -> Self {
        let path = served.socket.with_file_name("sets.txt");
        std::fs::write(&path, sets).unwrap();
        let mut feed = livetime();
        feed.args(["timing", "fg", "feed"])
            .arg(&path)
            .args(arguments)
            .arg("--daemon")
            .arg(&served.socket);
        feed.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = feed.spawn().unwrap();
        let talk = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, talk }
    }

    /// Reads on until something is said that begins so.
    fn wait_for(&mut self, start: &str) {
        let mut said = self.talk.by_ref().map(Result::unwrap);
        assert!(said.any(|line| line.starts_with(start)), "{start}");
    }

    /// Exit code, result and last word.
    fn end(mut self) -> (Option<i32>, String, String) {
        let last = self.talk.map(Result::unwrap).last().unwrap_or_default();
        let mut result = String::new();
        let mut output = self.child.stdout.take().unwrap();
        std::io::Read::read_to_string(&mut output, &mut result).unwrap();
        (self.child.wait().unwrap().code(), result, last)
    }
}

/// 125 us without a slope.
const SET: &str = "0 0 0 0 0 0 7\n";

#[test]
fn a_feed_says_how_its_waveforms_ended() {
    let served = serve(&["--virtual", "1000000000000"]);
    let go = ["--event", "1000", "--go", "--repeat", "3"];
    let mut feeding = Feeding::start(&served, SET, &go);
    feeding.wait_for("the clock is virtual and stands still");
    served.timing(&["clock", "advance", "+1000000000"]);
    let (code, result, _) = feeding.end();
    assert_eq!(
        (code, &*result),
        (Some(0), "stopped, 3 sets executed\n"),
        "all of it"
    );

    // A second at once is more than lies in the generator itself.
    let mut feeding = Feeding::start(&served, &SET.repeat(2000), &go[..3]);
    feeding.wait_for("the clock is virtual");
    while !served.text(&["fg", "status"]).starts_with("fg-0 running") {
        served.timing(&["clock", "advance", "+100000"]);
    }
    served.timing(&["clock", "advance", "+1000000000"]);
    let (code, result, last) = feeding.end();
    assert_eq!((code, &*result), (Some(1), ""));
    assert!(last.starts_with("error: underflow of fg-0; "), "{last}");
    assert!(last.contains(" of 2000 sets executed"), "{last}");

    let mut feeding = Feeding::start(&served, SET, &[]);
    feeding.wait_for("the clock is virtual");
    served.timing(&["fg", "abort"]);
    while !served.text(&["fg", "status"]).starts_with("fg-0 disabled") {
        served.timing(&["clock", "advance", "+100000"]);
    }
    let (code, result, last) = feeding.end();
    assert_eq!((code, &*result), (Some(1), ""));
    assert_eq!(last, "error: aborted: fg-0; 0 of 1 sets executed");
}

/// Waveforms last as long whatever the receiver believes of the time.
#[test]
fn a_feed_is_started_by_a_receiver_whose_clock_is_behind() {
    let served = serve(&["--virtual", "1000000000000"]);
    served.timing(&["clock", "lost"]);
    served.timing(&["clock", "step", "-5000000000"]);
    let go = ["--event", "1000", "--go", "--repeat", "3"];
    let mut feeding = Feeding::start(&served, SET, &go);
    feeding.wait_for("the clock is virtual");
    served.timing(&["clock", "advance", "+2000000"]);
    let (code, result, _) = feeding.end();
    assert_eq!((code, &*result), (Some(0), "stopped, 3 sets executed\n"));
}

/// A start that cannot come any more is not waited for, and a late one would be none the worse.
#[test]
fn a_feed_whose_start_was_lost_says_so() {
    let served = serve(&["--virtual", "1000000000000"]);
    // All places of the queue are taken by actions that are due much later.
    served.timing(&[
        "cond",
        "add",
        "bus1",
        "2000",
        "ffffffffffffffff",
        "1000000000",
        "7",
    ]);
    let schedule = served.socket.with_file_name("full.txt");
    std::fs::write(&schedule, "2000 0 0\n").unwrap();
    let path = schedule.to_str().unwrap();
    served.text(&["dm", path, "-n", "140000", "--period", "100"]);
    served.timing(&["clock", "advance", "+20000000"]);
    let mut feeding = Feeding::start(&served, SET, &["--event", "1000", "--go"]);
    feeding.wait_for("the clock is virtual");
    let list = served.text(&["cond", "list"]);
    assert!(list.contains("tag 1, accepts dc-l, active"), "{list}");
    served.timing(&["clock", "advance", "+2000000"]);
    let (code, result, last) = feeding.end();
    assert_eq!((code, &*result), (Some(1), ""));
    let expected =
        "error: not started: the message that was injected was due at TAI 1000021000000 ns";
    assert!(last.starts_with(expected), "{last}");
}

#[test]
fn what_does_not_fit_the_generators_is_refused_before_it_is_fed() {
    let served = serve(&["--virtual", "1000000000000"]);
    let (code, _, last) = Feeding::start(&served, SET, &["--repeat", "16385"]).end();
    assert_eq!(code, Some(1));
    let expected = "channel 0 has 16385 sets (1, 16385 times), allowed is 16384";
    assert!(last.contains(expected), "{last}");
    let (code, ..) = Feeding::start(&served, SET, &["--repeat", "0"]).end();
    assert_eq!(code, Some(2), "as `dm -n 0`");
}

#[test]
fn a_clock_that_stands_still_is_told() {
    let served = serve(&["--virtual", "1000000000000"]);
    let refused = served.refused(&["latency"]);
    assert!(
        refused.contains("the daemon's clock is virtual"),
        "{refused}"
    );
    let mut audit = livetime();
    audit.args(["timing", "audit", "--messages", "100", "--daemon"]);
    audit.arg(&served.socket);
    audit.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut auditing = audit.spawn().unwrap();
    let mut said = String::new();
    let mut talk = BufReader::new(auditing.stderr.take().unwrap());
    talk.read_line(&mut said).unwrap();
    assert!(said.starts_with("the clock is virtual"), "{said}");
    served.timing(&["clock", "advance", "+1000000000"]);
    let output = auditing.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("sent 100, received 100, lost 0 "),
        "{text}"
    );
}

/// No time wraps around at the end of all times.
#[test]
fn nothing_is_due_after_the_last_time() {
    let served = serve(&["--virtual", "18446744073709000000"]);
    let path = served.socket.with_file_name("schedule.txt");
    std::fs::write(&path, "0x11 0x0 0\n").unwrap();
    let path = path.to_str().unwrap();
    for arguments in [
        &["inject", "1", "1", "--ppsalign", "+0"][..],
        &["inject", "1", "1", "+1000000"],
        &["dm", "--ppsalign", path],
        &["audit", "--messages", "1"],
    ] {
        let error = served.refused(arguments);
        let expected = "after the last time there is, 18446744073709551615 ns TAI";
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    let status: Value = serde_json::from_str(&served.text(&["status", "--json"])).unwrap();
    assert_eq!(status["messages"], 0);
}

/// The values of an input are set together or not at all.
#[test]
fn an_input_is_set_up_as_a_whole() {
    let served = serve(&["--virtual", "1000000000000", "--inputs", "1"]);
    let before = served.text(&["io"]);
    for (stable, prefix, code) in [("40", "101", "G0105"), ("41", "100", "G0104")] {
        let error = served.refused(&["io", "IN1", "--stable", stable, "--prefix", prefix]);
        assert!(error.starts_with(&format!("error[{code}]: ")), "{error}");
        assert_eq!(served.text(&["io"]), before);
    }
}

#[test]
fn a_curve_becomes_sets_with_a_stated_error_and_a_plot() {
    let folder = tempfile::tempdir().unwrap();
    let design = |arguments: &[&str]| {
        livetime()
            .args(["timing", "fg", "design"])
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let formula = [
        "--formula",
        "0.5 * (1 - cos(pi * t))",
        "--duration",
        "500 ms",
    ];
    let plot = ["--plot", "wave.svg", "--output", "wave.txt", "--json"];
    let output = design(&[&formula[..], &plot[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "livetime.timing_design/1");
    let error = document["error_max_fraction"].as_f64().unwrap();
    assert!(error > 0.0 && error <= 1e-5, "{error}");
    let sets = document["sets"].as_array().unwrap();
    let text = std::fs::read_to_string(folder.path().join("wave.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.count(), sets.len());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("error at most "), "{said}");
    let svg = std::fs::read_to_string(folder.path().join("wave.svg")).unwrap();
    assert!(svg.contains("time [s]") && svg.contains("error at most "));

    let again = design(&[&formula[..], &plot[..]].concat());
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8(again.stderr).unwrap();
    let expected = "cannot write wave.txt: a file is there\nhelp: the file is kept";
    assert!(said.contains(expected), "{said}");
    let others = ["--plot", "wave.svg", "--output", "again.txt"];
    let again = design(&[&formula[..], &others].concat());
    assert!(again.status.success(), "a drawing is replaced: {again:?}");

    let points = folder.path().join("ramp.csv");
    std::fs::write(&points, "# s, full scale\n0,0\n0.3,0.8\n0.7,0.8\n0.9,0\n").unwrap();
    let output = design(&["ramp.csv", "--tolerance", "1e-4", "--plot", "ramp.html"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("# ") && text.contains(" sets, 900 ms, "),
        "{text}"
    );
    let html = std::fs::read_to_string(folder.path().join("ramp.html")).unwrap();
    assert!(html.contains("Coefficient sets, the first ") && html.contains("<svg"));

    for (arguments, said) in [
        (
            &["ramp.csv", "--plot", "ramp.pdf"][..],
            "ends in neither .svg nor .html",
        ),
        (
            &["--formula", "1 +", "--duration", "1 s"],
            "at character 4 of the formula",
        ),
        (
            &["--formula", "2.7 * t + 0.1", "--duration", "1 s"],
            "the output reaches from",
        ),
        (&["none.csv"], "cannot read none.csv"),
    ] {
        let refused = design(arguments);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
}

/// What users of other numbers may, with the rules and without; needs root to become another user.
#[test]
fn another_user_may_what_the_rules_say() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    const OTHER: u32 = 54_321;
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: no root, so nobody else can be played");
        return;
    }
    // The program where every user can reach it.
    let folder = tempfile::tempdir().unwrap();
    let everybody = |path: &std::path::Path| {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    };
    everybody(folder.path());
    let program = folder.path().join("livetime");
    copy_program(&program);
    everybody(&program);
    let rules = folder.path().join("rules");
    let of_other = |served: &Served, arguments: &[&str]| {
        let output = Command::new(&program)
            .arg("timing")
            .args(arguments)
            .arg("--daemon")
            .arg(&served.socket)
            .current_dir("/")
            .uid(OTHER)
            .gid(OTHER)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    };
    for (text, observes, operates) in [
        (None, true, false),
        (Some("others none\n".to_owned()), false, false),
        (
            Some(format!("user {OTHER} operate\nothers none\n")),
            true,
            true,
        ),
        (
            Some(format!("group {OTHER} observe\nothers none\n")),
            true,
            false,
        ),
    ] {
        let mut arguments = vec!["--virtual", "1000000000000"];
        if let Some(text) = &text {
            // We stay admin, to start and end it.
            std::fs::write(&rules, format!("user 0 admin\n{text}")).unwrap();
            arguments.extend(["--rules", rules.to_str().unwrap()]);
        }
        let served = serve(&arguments);
        everybody(served.socket.parent().unwrap());
        let (done, said) = of_other(&served, &["status", "--json"]);
        assert_eq!(done, observes, "{text:?}: {said}");
        let (done, said) = of_other(&served, &["inject", "1", "2"]);
        assert_eq!(done, operates, "{text:?}: {said}");
        if operates {
            let lease = [
                "cond",
                "add",
                "IO1",
                "1",
                "ffffffffffffffff",
                "0",
                "on",
                "--lease",
                "9",
            ];
            let ours = served.text(&lease);
            let token = ours.lines().last().unwrap().trim_start_matches("token ");
            let (done, said) = of_other(&served, &["lease", "renew", token]);
            assert!(!done && said.contains("another user's"), "{said}");
            served.timing(&["lease", "end", token]);
        }
        if observes && !operates {
            assert!(said.contains("operate is needed"), "{said}");
        }
        let (done, said) = of_other(&served, &["clock", "lost"]);
        assert!(!done, "faults are for admins");
        if observes {
            assert!(said.contains("admin is needed"), "{said}");
        }
        // We are still admin.
        served.timing(&["clock", "lost"]);
    }
}

#[test]
fn an_audit_finds_what_was_left_out() {
    let served = serve(&[]);
    let arguments = [
        "audit",
        "--messages",
        "5000",
        "--rate",
        "20000",
        "--drop",
        "4321",
        "--json",
    ];
    let audit: Value = serde_json::from_str(&served.text(&arguments)).unwrap();
    assert_eq!(audit["sent"], 5000);
    let in_ring = audit["lost_in_own_ring"].as_u64().unwrap();
    assert_eq!(audit["lost"].as_u64().unwrap(), 1 + in_ring);
    let beyond = served.refused(&["audit", "--messages", "10", "--drop", "10"]);
    assert!(beyond.contains("--drop 10: allowed is 0 to 9"), "{beyond}");
    let twice = served.refused(&["audit", "--drop", "7", "--drop", "8", "--drop", "7"]);
    assert!(twice.contains("--drop 7 is given twice"), "{twice}");
}

/// An action must be one of its sink, and errors name sinks and conditions as users know them.
#[test]
fn what_a_sink_cannot_do_is_refused_by_its_name() {
    let served = serve(&["--virtual", "1000000000000"]);
    let add = |sink, offset, action| -> Vec<&str> {
        vec![
            "cond",
            "add",
            sink,
            "11",
            "ffffffffffffffff",
            offset,
            action,
        ]
    };
    for (sink, offset, action, said) in [
        ("IO1", "0", "1", "allowed is `on` or `off`"),
        ("bus1", "0", "on", "allowed is a decimal tag"),
        ("IO1", "2000000000", "on", "allowed in IO1 is"),
    ] {
        let error = served.refused(&add(sink, offset, action));
        assert!(error.contains(said), "{error}");
    }
    served.timing(&add("bus1", "0", "7"));
    let conflict = served.refused(&add("bus1", "0", "8"));
    for part in [
        "condition 0.0",
        "the new condition of change 0",
        "of bus1 conflict",
    ] {
        assert!(conflict.contains(part), "{conflict}");
    }
    // What outputs and buses do is in the flight recorder.
    served.timing(&add("IO1", "0", "on"));
    served.timing(&["inject", "11", "5", "1000001000000"]);
    served.timing(&["clock", "advance", "+2000000"]);
    let flown = served.text(&["status", "--flight"]);
    assert_eq!(
        flown.matches("EvtID: 0x0000000000000011").count(),
        2,
        "{flown}"
    );
}

#[test]
fn a_lead_beyond_all_times_is_refused() {
    let served = serve(&[]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schedule.txt");
    std::fs::write(&path, "0x11 0x0 0\n").unwrap();
    let path = path.to_str().unwrap();
    let error = served.refused(&["dm", path, "--lead", "18446744073709551615"]);
    assert!(
        error.contains("--lead 18446744073709551615: allowed is at most"),
        "{error}"
    );
}

/// What is at the place of a socket and is none stays as it is.
#[test]
fn a_file_in_place_of_the_socket_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "mine").unwrap();
    let mut serve = livetime();
    let output = serve
        .args(["timing", "serve", "--socket"])
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("a file is there") && said.contains("notes.txt"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

/// A summary is the only output, and comes when the daemon ends the subscription, too.
#[test]
fn a_summary_comes_alone_and_in_any_case() {
    let served = serve(&["--virtual", "1000000000000"]);
    let mut snoop = livetime();
    snoop.args([
        "timing",
        "snoop",
        "--summary",
        "--json",
        "--until",
        "77",
        "--slots",
        "2",
    ]);
    snoop
        .args(["--overflow", "disconnect", "--daemon"])
        .arg(&served.socket);
    let mut snooping = snoop
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(snooping.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "listening");
    let schedule: String = (0..1000).map(|n| format!("0x11 0x0 {n}\n")).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schedule.txt");
    std::fs::write(&path, schedule).unwrap();
    served.timing(&["dm", path.to_str().unwrap()]);
    // All at once: faster than anybody reads a ring of two.
    served.timing(&["clock", "advance", "+10000000"]);
    let summary: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(summary["schema"], "livetime.timing_snoop/1");
    assert_eq!(summary["cut_off"], true, "{summary}");
    assert!(summary["subscription"].is_u64(), "{summary}");
    assert!(lines.next().is_none());
    assert_eq!(snooping.wait().unwrap().code(), Some(1));
}

#[test]
fn trials_of_nothing_are_refused() {
    for arguments in [
        ["stop", "--clients", "0"],
        ["stop", "--clients", "1"],
        ["churn", "--cycles", "0"],
        ["stops", "--cycles", "0"],
    ] {
        let mut soak = livetime();
        let output = soak
            .args(["timing", "soak"])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("is not in"), "{said}");
    }
}

#[test]
fn without_a_daemon_the_error_says_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    let output = livetime()
        .args(["timing", "status", "--daemon"])
        .arg(folder.path().join("none.sock"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("livetime timing serve"), "{said}");
}

fn soak(arguments: &[&str]) -> Value {
    let output = livetime()
        .args(["timing", "soak", "--json"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let document: Value = serde_json::from_str(text.trim())
        .unwrap_or_else(|_| panic!("{text} {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(document["passed"], true, "{document:#}");
    assert!(output.status.success());
    document
}

#[test]
fn a_stopped_client_is_accounted_for_and_the_others_lose_nothing() {
    let at_rate = soak(&[
        "stop",
        "--messages",
        "20000",
        "--rate",
        "20000",
        "--clients",
        "4",
    ]);
    assert!(at_rate["figures"]["stopped"]["lost"].as_u64().unwrap() > 0);
    soak(&[
        "stop",
        "--messages",
        "50000",
        "--rate",
        "0",
        "--clients",
        "3",
    ]);
}

#[test]
fn killed_clients_leave_nothing_behind() {
    soak(&["churn", "--cycles", "1000"]);
}

#[test]
fn twelve_generators_stop_together_and_are_armed_again() {
    let soaked = soak(&["stops", "--cycles", "300"]);
    assert_eq!(soaked["figures"]["all_stopped"], 300);
}

/// A listener goes on by itself when the daemon was killed and started again.
#[test]
fn a_snoop_survives_a_killed_daemon() {
    let mut served = serve(&[]);
    let mut snooping = livetime()
        .args(["timing", "snoop", "--until", "77", "--summary", "--daemon"])
        .arg(&served.socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(snooping.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "listening");
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let mut again = livetime()
        .args(["timing", "serve", "--socket"])
        .arg(&served.socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut output = BufReader::new(again.stdout.take().unwrap());
    output.read_line(&mut ready).unwrap();
    // Until it listens again, nobody hears: the daemon says when somebody does.
    loop {
        let status: Value = serde_json::from_str(&served.text(&["status", "--json"])).unwrap();
        let sinks = status["sinks"].as_array().unwrap();
        if sinks
            .iter()
            .any(|sink| sink["conditions"].as_array().is_some_and(|c| !c.is_empty()))
        {
            break;
        }
    }
    served.timing(&["inject", "77", "0"]);
    let summary: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(
        (&summary["received"], &summary["restarts"]),
        (&1.into(), &1.into()),
        "{summary}"
    );
    snooping.wait().unwrap();
    again.kill().unwrap();
    again.wait().unwrap();
}
