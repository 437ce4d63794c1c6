//! How hosts come, and what is left of them when the run is stopped before all are there, when one
//! of them is, or when there is no place to listen for them.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::live_run::{start, wait_for_more};
use crate::process_run::{self, Lines, Run, text, turn};
use crate::{LOCAL, host, on_one_host, on_two_hosts, refusal};

const READOUT: &str = r#""src0", "trg0", "ru0", "ru1", "evm""#;
const BUILDING: &str = r#""bu0", "bu1", "fu0", "wr0""#;

fn example() -> String {
    std::fs::read_to_string(process_run::example()).expect("the example is there")
}

/// The example on two hosts, started by these command lines.
pub(crate) fn launched_by(readout: &str, building: &str) -> String {
    let by = |command: &str| format!("launcher = \"exec\"\ncommand = \"{command}\"");
    let hosts = [
        host("readout", READOUT, &by(readout)),
        host("building", BUILDING, &by(building)),
    ];
    on_one_host(example()) + &hosts.concat()
}

/// The process of a host of the run that was started in a folder, and the host's own folder; waits
/// until there are both.
pub(crate) fn host_of(folder: &Path, name: &str) -> (Pid, PathBuf) {
    loop {
        let entries = std::fs::read_dir("/proc").expect("a system with /proc");
        for entry in entries.flatten() {
            let pid = entry.file_name().to_string_lossy().parse().ok();
            let Some(pid) = pid.and_then(Pid::from_raw) else {
                continue;
            };
            let at = std::fs::read_link(entry.path().join("cwd"));
            let words = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<&str> = words.split('\0').collect();
            let is_it = words.get(1..3) == Some(&["host", name]);
            if !is_it || !at.is_ok_and(|at| at == folder) {
                continue;
            }
            let key = words.iter().find_map(|word| word.strip_prefix("--key="));
            let key = key.expect("a host has a key");
            let own = std::env::temp_dir().join(format!("livetime-{key}-{name}"));
            if own.is_dir() {
                return (pid, own);
            }
        }
        std::thread::yield_now();
    }
}

/// Whatever of it is left would hold the pipe open to whose end is read.
#[test]
fn a_signal_while_hosts_are_waited_for_leaves_nothing_behind() {
    let _turn = turn();
    for signal in [Signal::INT, Signal::TERM] {
        for is_one_there in [false, true] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let config = launched_by("sleep 100000; {command}", "{command}");
            let running = start(&config, folder.path());
            let coordinator = Pid::from_raw(running.id() as i32).expect("a process");
            let mut lines = Lines::of(running);
            lines.wait_for("waiting for 2 hosts", 1);
            let there = is_one_there.then(|| host_of(folder.path(), "building").1);
            kill_process(coordinator, signal).expect("it lives");
            let output = lines.finish();
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{errors}");
            assert!(errors.contains("no run was begun"), "{errors}");
            assert!(!errors.contains("error["), "{errors}");
            assert!(!folder.path().join("run").exists(), "nothing is begun");
            assert!(!there.is_some_and(|own| own.exists()), "{errors}");
        }
    }
}

#[test]
fn a_host_that_is_ended_by_a_signal_leaves_nothing_behind() {
    let _turn = turn();
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let running = start(&on_two_hosts(LOCAL)(example()), folder.path());
        let lines = Lines::of(running);
        let file = folder.path().join("run/events.mcap");
        // The coordinator begins the file; what comes then is a host's.
        wait_for_more(&file);
        wait_for_more(&file);
        let (host, own) = host_of(folder.path(), "building");
        assert!(own.join("config.toml").is_file(), "it has a run");
        kill_process(host, signal).expect("it lives");
        let run = Run::finished(lines.finish(), folder);
        assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
        let said = format!(
            "host building: ended by SIG{}",
            match signal {
                Signal::INT => "INT",
                _ => "TERM",
            }
        );
        assert!(run.errors().contains(&said), "{}", run.errors());
        assert!(!own.exists(), "{}", run.errors());
    }
}

/// Of a name that is none of the run's, as one with a slip of the pen in its launcher.
#[test]
fn a_host_that_is_none_of_the_run_is_refused() {
    let _turn = turn();
    let slip = "sed 's/host building/host bulding/'";
    let stranger = format!("echo {{command}} | {slip} | sh 2> refused; {{command}}");
    let config = |_| launched_by("{command}", &stranger);
    let run = Run::of(config, &["--triggers", "1000"]);
    let errors = run.errors();
    assert!(run.output.status.success(), "{errors}");
    let reason = "it has no host bulding; its hosts are building, readout";
    let said = format!("warning: a host is refused by the run: {reason}");
    assert!(errors.contains(&said), "{errors}");
    let refused = std::fs::read_to_string(run.folder.path().join("refused"));
    let refused = refused.expect("the launcher has written it");
    let said = format!("error: host bulding: refused by the run: {reason}");
    assert!(refused.contains(&said), "{refused}");
}

/// It is there much earlier than the other, and says so all the time.
#[test]
fn a_host_that_waits_for_others_is_heard() {
    let _turn = turn();
    let control = "\n[control]\nsuspect = \"4 s\"\ndead = \"20 s\"\n";
    let late = |_| launched_by("sleep 6; {command}", "{command}") + control;
    let run = Run::of(late, &["--triggers", "1000"]);
    assert!(run.output.status.success(), "{}", run.errors());
    assert!(!run.errors().contains("heard"), "{}", run.errors());
}

#[test]
fn a_control_address_that_cannot_be_had_is_named_with_its_key() {
    let _turn = turn();
    let taken = TcpListener::bind("127.0.0.1:0").expect("the loopback has ports");
    let taken = taken.local_addr().map(|at| (at, taken));
    let (at, _listener) = taken.expect("it is bound");
    // An address of documentation: RFC 5737.
    let elsewhere = "192.0.2.1:7461";
    let error = TcpListener::bind(elsewhere).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    for (address, reason) in [
        (at.to_string(), "where another program listens"),
        (elsewhere.to_owned(), "which is no address of this machine"),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let control = format!("{LOCAL}\n[control]\naddress = \"{address}\"");
        let errors = refusal(folder.path(), &control);
        let said = format!("`control.address` is {address}, {reason}");
        for part in ["error[R0204]", &said, "nothing was started"] {
            assert!(errors.contains(part), "{part}: {errors}");
        }
        assert!(!errors.contains(".rs"), "{errors}");
    }
}

/// `[workers]` says which roles share a thread where they are threads.
#[test]
fn a_check_says_that_roles_are_processes_where_they_are() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let processes = example() + "\n[workers]\nprocesses = true\n";
    for (config, expected) in [
        (example(), "  worker   "),
        (processes, "  process  one for each role\n"),
        (
            on_two_hosts(LOCAL)(example()),
            "  process  one for each role\n  host ",
        ),
    ] {
        std::fs::write(folder.path().join("run.toml"), config).expect("a writable folder");
        let output = Command::new(env!("CARGO_BIN_EXE_livetime"))
            .current_dir(folder.path())
            .args(["check", "run.toml"])
            .output()
            .expect("the built program starts");
        let said = text(&output.stdout);
        assert!(said.contains(expected), "{said}");
        let has_workers = said.contains("  worker   ");
        assert_eq!(has_workers, !said.contains("  process  "), "{said}");
    }
}
