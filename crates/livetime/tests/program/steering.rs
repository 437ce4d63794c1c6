//! Orders to a run that goes on: status, pause and resume, an end in order and one at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use livetime_store::RunReader;
use rustix::process::Signal;
use serde_json::Value;

use crate::workbench::{
    Running, SMALL, Workbench, assert_conserved, changed, count, flags, lost, lost_in_all,
};

/// Where the first run of a folder writes to.
const RUN: &str = "runs/000001";

/// Gives an order that is obeyed; the answer.
#[track_caller]
fn order(bench: &Workbench, order: &str) -> String {
    let words: Vec<&str> = ["steer", RUN].into_iter().chain(order.split(' ')).collect();
    bench.run(&words).ended_with(0).out.trim().to_owned()
}

/// Gives an order that is refused; why.
#[track_caller]
fn refused(bench: &Workbench, order: &str) -> String {
    let words: Vec<&str> = ["steer", RUN].into_iter().chain(order.split(' ')).collect();
    bench.run(&words).ended_with(1).err
}

fn status(bench: &Workbench) -> Value {
    let told = bench.run(&["steer", RUN, "status", "--json"]);
    let status = told.ended_with(0).document();
    assert_eq!(status["schema"], "livetime.status/1");
    status
}

/// Asks for the status until it is as it should be.
fn wait_for(bench: &Workbench, is_so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let status = status(bench);
        if is_so(&status) {
            return status;
        }
    }
}

/// Triggers of a run that is paused, once offers come without that one is taken.
fn triggers_that_stay(bench: &Workbench) -> u64 {
    let mut before = status(bench);
    loop {
        assert_eq!(before["state"], "paused");
        let offered = count(&before, "counts.offered");
        let now = wait_for(bench, |now| count(now, "counts.offered") > offered + 1000);
        let triggers = count(&now, "counts.triggers");
        if triggers == count(&before, "counts.triggers") {
            return triggers;
        }
        before = now;
    }
}

fn started(bench: &Workbench, options: &[&str]) -> Running {
    bench.write("small.toml", SMALL);
    let running = bench.start(&[&["run", "small.toml", "--json"][..], options].concat());
    wait_for_control(bench);
    running
}

/// A run takes orders as soon as its roles have started.
fn wait_for_control(bench: &Workbench) {
    while bench.run(&["steer", RUN, "status"]).code != Some(0) {}
}

#[test]
fn a_paused_run_takes_no_triggers_and_has_no_dead_time_of_it() {
    for options in [&[][..], &["--processes"]] {
        let bench = Workbench::new();
        let mut running = started(&bench, options);
        let before = wait_for(&bench, |status| count(status, "counts.events_stored") > 0);
        assert_eq!(
            (&before["state"], &before["run"]),
            (&"running".into(), &1.into())
        );
        order(&bench, "pause");
        running.wait_for_line("paused: ");
        assert!(refused(&bench, "pause").contains("paused already"));
        // A thread comes to it in its next duty cycle.
        let triggers = triggers_that_stay(&bench);
        assert!(order(&bench, "status").contains("run 1 is paused"));
        // Once a second has passed in the pause, no offer counts in the rates.
        while !order(&bench, "status").contains("dead time -\n") {}
        wait_for(&bench, |now| now["rates"]["refused_fraction"].is_null());
        order(&bench, "resume");
        assert!(refused(&bench, "resume").contains("not paused"));
        wait_for(&bench, |status| {
            status["state"] == "running" && count(status, "counts.triggers") > triggers + 100
        });
        order(&bench, "stop");
        let finished = running.finish().ended_with(0);
        assert!(finished.err.contains("stopping: the run ends in order"));
        let run = finished.document();
        assert_conserved(&run);
        assert_eq!(lost_in_all(&run), 0);
        assert_eq!(run["run"]["condition"], "INTERRUPTED");
        let of_source = |name: &str| count(&run, &format!("roles.src0.{name}"));
        let paused = of_source("refused_paused");
        assert!(paused >= 1000 && of_source("paused_ms") > 0);
        assert_eq!(of_source("pauses"), 1);
        let n = |name: &str| count(&run, &format!("counts.{name}")) - paused;
        let dead = run["dead_time"]["refused_fraction"].as_f64();
        assert_eq!(dead, Some(n("refused") as f64 / n("offered") as f64));
    }
}

/// Values of Prometheus' text format by metric and labels, each with the type that is told before it.
fn values_of(metrics: &str) -> BTreeMap<String, (String, f64)> {
    let mut values = BTreeMap::new();
    let mut told: Option<(String, String)> = None;
    for line in metrics.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "HELP", ..] => {}
            ["#", "TYPE", name, kind] => told = Some((name.to_owned(), kind.to_owned())),
            [metric, value] => {
                let (name, kind) = told.clone().expect("a type comes before the values");
                assert_eq!(metric.split('{').next(), Some(&name[..]), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                let value = (kind, value.parse().expect("a number"));
                assert!(values.insert(metric.to_owned(), value).is_none(), "{line}");
            }
            _ => panic!("{line:?} is no line of the format"),
        }
    }
    values
}

#[test]
fn a_status_as_metrics_has_every_counter_and_every_loss() {
    let bench = Workbench::new();
    let running = started(&bench, &["--paused"]);
    let before = status(&bench);
    let told = bench.run(&["steer", RUN, "status", "--prometheus"]);
    let values = values_of(&told.ended_with(0).out);
    let after = status(&bench);
    let value = |metric: &str| values[metric].1;
    for name in before["counts"].as_object().expect("a table").keys() {
        let path = format!("counts.{name}");
        let between = count(&before, &path) as f64..=count(&after, &path) as f64;
        let metric = format!("livetime_{name}_total");
        assert!(between.contains(&value(&metric)), "{metric}");
    }
    let mut causes = 0;
    for (area, of_area) in before["losses"].as_object().expect("a table") {
        for cause in of_area.as_object().expect("a table").keys() {
            let metric = format!("livetime_losses_total{{area=\"{area}\",cause=\"{cause}\"}}");
            assert_eq!(value(&metric), 0.0, "{metric}");
            causes += 1;
        }
    }
    let losses = values.keys().filter(|name| name.contains("losses_total"));
    assert_eq!(losses.count(), causes);
    for (state, is) in [("running", 0.0), ("paused", 1.0), ("stopping", 0.0)] {
        assert_eq!(
            value(&format!("livetime_run_state{{state=\"{state}\"}}")),
            is
        );
    }
    assert_eq!(value("livetime_run_info{run=\"1\"}"), 1.0);
    assert_eq!(value("livetime_pages"), count(&before, "pages") as f64);
    assert_eq!(count(&before, "pages"), 2048, "before the first fragment");
    order(&bench, "stop");
    running.finish().ended_with(0);
}

#[test]
fn a_run_that_begins_paused_waits_for_the_order() {
    for options in [&["--paused"][..], &["--paused", "--processes"]] {
        let bench = Workbench::new();
        let mut running = started(&bench, options);
        running.wait_for_line("paused: triggers are held back until `livetime steer ");
        let waiting = wait_for(&bench, |status| count(status, "counts.offered") > 1000);
        assert_eq!(waiting["state"], "paused");
        assert_eq!(count(&waiting, "counts.triggers"), 0);
        order(&bench, "resume");
        wait_for(&bench, |status| count(status, "counts.events_stored") > 0);
        order(&bench, "stop");
        let run = running.finish().ended_with(0).document();
        assert_conserved(&run);
        assert_eq!(lost_in_all(&run), 0);
        assert!(count(&run, "roles.src0.refused_paused") >= 1000);
    }
}

#[test]
fn what_is_noted_of_a_run_is_kept_with_it() {
    let bench = Workbench::new();
    let mut running = started(&bench, &["--note", "shift 7", "--note", "ü <b>&"]);
    let said = order(&bench, "note stage  moved to 12 mm");
    assert!(said.starts_with("noted at "), "{said}");
    running.wait_for_line("note: stage  moved to 12 mm");
    let long = format!("note {}", "x".repeat(1001));
    assert!(refused(&bench, &long).contains("1001 bytes"));
    assert!(order(&bench, "status").contains("stage  moved to 12 mm"));
    let now = status(&bench);
    order(&bench, "stop");
    let run = running.finish().ended_with(0).document();
    let text = |of: &Value, at: usize| of["notes"][at]["text"].as_str().expect("a text").to_owned();
    for notes in [&now, &run] {
        let texts: Vec<String> = (0..3).map(|at| text(notes, at)).collect();
        assert_eq!(texts, ["shift 7", "ü <b>&", "stage  moved to 12 mm"]);
        assert_eq!(notes["notes"][0]["time_ns"], "0");
        assert_ne!(notes["notes"][2]["time_ns"], "0");
    }
    assert_eq!(run["notes"], now["notes"]);
    let page = bench.read("runs/000001/report.html");
    assert!(page.contains("ü &lt;b&gt;&amp;"), "the note is escaped");
    let file =
        RunReader::open(File::open(bench.path("runs/000001/events.mcap")).expect("it is there"))
            .expect("a run file");
    let notes = serde_json::to_value(&file.end().expect("a record").notes).expect("plain");
    assert_eq!(notes, run["notes"]);
}

/// The limit of what is kept holds from the first note on.
#[test]
fn a_run_does_not_begin_with_more_notes_than_it_may_have() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let noted = |count: usize| {
        let notes = ["--note", "x"].repeat(count);
        bench.run(
            &[
                &["run", "small.toml", "--triggers", "50", "--json"],
                &notes[..],
            ]
            .concat(),
        )
    };
    let said = noted(1001).ended_with(2).err;
    let expected = "error: `--note` is given 1001 times; a run has at most 1000 notes";
    assert!(said.contains(expected), "{said}");
    assert!(!bench.path("runs").exists(), "nothing has begun");
    let run = noted(1000).ended_with(0).document();
    assert_eq!(run["notes"].as_array().map(Vec::len), Some(1000));
}

/// A connection to the run's socket.
fn connected(bench: &Workbench) -> UnixStream {
    UnixStream::connect(bench.path(RUN).join("control")).expect("the run listens")
}

/// A client that says a byte of a line now and then, and begins anew when the run cuts it off.
fn say_slowly(control: &Path) {
    while let Ok(mut stream) = UnixStream::connect(control) {
        while stream.write_all(b"n").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Given clients that say nothing, never end their line, or do not read what they have asked for, then the
/// run does what others order and hears its signals.
#[test]
fn a_run_waits_for_no_client() {
    for options in [&[][..], &["--processes"]] {
        let bench = Workbench::new();
        // Its status is more than a socket holds.
        let note = "x".repeat(1000);
        let notes = ["--note", &note].repeat(500);
        let running = started(&bench, &[options, &notes].concat());
        let control = bench.path(RUN).join("control");
        // It ends with the run.
        std::thread::spawn(move || say_slowly(&control));
        let _silent: Vec<UnixStream> = (0..60).map(|_| connected(&bench)).collect();
        let deaf = connected(&bench);
        (&deaf).write_all(b"status\n").expect("there is room");
        assert_eq!(status(&bench)["state"], "running");
        let several = connected(&bench);
        let said = (&several).write_all(b"note one\nnote two\nnote \xff\nresume\n");
        said.expect("there is room");
        let mut answers = BufReader::new(several).lines();
        for begin in ["ok: noted", "ok: noted", "error: a line that is", "error: "] {
            let answer = answers.next().expect("one each").expect("it is UTF-8");
            assert!(answer.starts_with(begin), "{answer}");
        }
        running.signal(Signal::INT);
        let run = running.finish().ended_with(0).document();
        assert_conserved(&run);
        assert_eq!(run["run"]["condition"], "INTERRUPTED");
        assert_eq!(run["notes"].as_array().map(Vec::len), Some(502));
    }
}

/// With processes the writer's own closes the file: it is told in parts of more than one.
#[test]
fn long_notes_come_to_the_writer_of_a_run_with_processes() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let longest = "\"\u{fc} ".repeat(249) + "end";
    let mut words = vec!["run", "small.toml", "--processes", "--triggers", "50"];
    for _ in 0..100 {
        words.extend(["--note", &longest]);
    }
    bench.run(&words).ended_with(0);
    let file = File::open(bench.path("runs/000001/events.mcap")).expect("it is there");
    let file = RunReader::open(file).expect("a run file");
    let notes = &file.end().expect("a record").notes;
    assert_eq!(notes.len(), 100);
    assert!(notes.iter().all(|note| note.text == longest));
}

/// What the schedule or a file has waits in a lossless run; it is stopped while it does.
#[test]
fn a_lossless_run_that_is_stopped_in_a_pause_has_refused_nothing() {
    let bench = Workbench::new();
    let running = started(&bench, &["--lossless"]);
    wait_for(&bench, |status| count(status, "counts.triggers") > 100);
    order(&bench, "pause");
    assert_eq!(status(&bench)["state"], "paused");
    order(&bench, "stop");
    let run = running.finish().ended_with(0).document();
    assert_conserved(&run);
    assert_eq!((count(&run, "counts.refused"), lost_in_all(&run)), (0, 0));
    assert_eq!(count(&run, "roles.src0.pauses"), 1);
}

#[test]
fn an_order_ends_the_run_at_once_and_a_signal_after_an_order_too() {
    for by_signal in [false, true] {
        let bench = Workbench::new();
        // No event is built before its timeout, so that the drain takes many of them.
        let patient = changed(SMALL, "timeout = \"1 s\"", "timeout = \"20 s\"");
        bench.write("patient.toml", patient);
        let fault = ["--fault", "link-down:0@0s+1h"];
        let mut running = bench.start(&[&["run", "patient.toml", "--json"][..], &fault].concat());
        wait_for_control(&bench);
        wait_for(&bench, |status| count(status, "counts.l2_accepted") > 5);
        order(&bench, "stop");
        running.wait_for_line("stopping: ");
        assert_eq!(status(&bench)["state"], "stopping");
        for late in ["stop", "pause", "resume", "filter add"] {
            assert!(refused(&bench, late).contains("ending already"), "{late}");
        }
        match by_signal {
            true => running.signal(Signal::INT),
            false => drop(order(&bench, "abort")),
        }
        let run = running.finish().ended_with(0).document();
        assert_conserved(&run);
        let condition = flags(&run["run"]["condition"]);
        for flag in ["INTERRUPTED", "ABORTED"] {
            assert!(condition.contains(&flag), "{condition:?}");
        }
        assert!(lost(&run, "builder") > 0);
    }
}

#[test]
fn what_is_no_order_is_refused_with_all_that_are() {
    let bench = Workbench::new();
    let running = started(&bench, &[]);
    bench
        .run(&["run", "small.toml", "--note", " "])
        .ended_with(2);
    for wrong in ["halt", "pause now", "filter", "filter remove bu0"] {
        let error = refused(&bench, wrong);
        for known in [
            "`status`",
            "`pause`",
            "`resume`",
            "`stop`",
            "`abort`",
            "`note TEXT`",
            "`filter add`",
        ] {
            assert!(error.contains(known), "{wrong}: {error}");
        }
    }
    assert!(refused(&bench, "filter add").contains("--processes"));
    for form in ["--json", "--prometheus"] {
        let told = bench.run(&["steer", RUN, "stop", form]).ended_with(2);
        assert!(told.err.contains(form), "{}", told.err);
    }
    order(&bench, "abort");
    running.finish().ended_with(0);
    assert!(refused(&bench, "status").contains("has it ended?"));
}

/// Needs root to become another user.
#[test]
fn another_user_hears_that_a_run_goes_on_and_is_not_theirs() {
    use std::fs::{Permissions, copy, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    const OTHER: u32 = 54_321;
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: no root, so nobody else can be played");
        return;
    }
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let program = bench.path("livetime");
    copy(env!("CARGO_BIN_EXE_livetime"), &program).expect("the folder is ours");
    let everybody = Permissions::from_mode(0o755);
    set_permissions(bench.path("."), everybody).expect("it is ours");
    let running = bench.start(&["run", "small.toml"]);
    while bench.run(&["steer", RUN, "status"]).code != Some(0) {
        std::thread::yield_now();
    }
    let mut steer = std::process::Command::new(&program);
    steer
        .args(["steer", RUN, "status"])
        .current_dir(bench.path("."));
    let steered = crate::workbench::finished({
        steer.uid(OTHER).gid(OTHER);
        steer
    });
    let said =
        "error: the run in runs/000001 is another user's: its socket control may not be opened";
    assert!(steered.err.starts_with(said), "{}", steered.err);
    assert_eq!(steered.code, Some(1));
    running.kill();
}
