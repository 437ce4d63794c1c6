//! What starts the hosts of a run: a process for each, in a group of its own, that ends with the run.
//!
//! A launcher may be the host itself, or a shell with whatever its command line starts. So what is
//! ended is always the whole group. What hosts say is in [`crate::run_hosts`].

use std::net::SocketAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::command_words::shell_words;
use crate::config::{HostConfig, HostLauncher};

/// How long what was launched may take to end when it is dropped.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take from a signal to its end.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks at what is to end.
const LOOK: Duration = Duration::from_millis(5);

/// The launchers of a run with the names of their hosts, in the order of these. Nothing of them
/// outlives this.
#[derive(Default)]
pub(crate) struct LaunchedHosts {
    launchers: Vec<(String, Child)>,
}

/// What was launched for a host that is lost, and is told to end.
pub(crate) struct DismissedHost {
    launched: LaunchedHosts,
    kill_at: Instant,
}

impl LaunchedHosts {
    /// Starts the next host, which is to connect to `control`.
    ///
    /// # Errors
    /// That of the system; those before go on until this is dropped.
    pub(crate) fn launch(
        &mut self,
        host: &HostConfig,
        control: SocketAddr,
        key: &str,
    ) -> std::io::Result<()> {
        let mut command = command_of(host, control, key)?;
        // A process group of its own: the terminal's Ctrl-C is the coordinator's to handle.
        command.process_group(0);
        let launcher = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        self.launchers.push((host.name.clone(), launcher));
        Ok(())
    }

    /// Tells what was launched for a host to end, apart from the others. A host that only cannot be
    /// heard is to do nothing more, as far as that can be had from here.
    pub(crate) fn dismiss(&mut self, host: &str) -> DismissedHost {
        let of_host = self.launchers.extract_if(.., |(name, _)| name == host);
        let launched = Self {
            launchers: of_host.collect(),
        };
        let patience = match launched.have_ended() {
            true => Duration::ZERO,
            false => SIGNAL_PATIENCE,
        };
        launched.signal(Signal::TERM);
        DismissedHost {
            launched,
            kill_at: Instant::now() + patience,
        }
    }

    /// How the launcher of each host has ended, if it has.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Option<ExitStatus>> {
        self.launchers.iter().map(|(_, launcher)| end_of(launcher))
    }

    /// Whether all launchers have ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.ends().all(|end| end.is_some())
    }

    /// Waits for all launchers; what has not ended in time is told to, and then killed.
    pub(crate) fn end(&mut self, patience: Duration) {
        self.await_all(patience);
        // Of one that has ended, too: it may have left something behind.
        self.signal(Signal::TERM);
        self.await_all(SIGNAL_PATIENCE);
        for (_, mut launcher) in self.launchers.drain(..) {
            match end_of(&launcher) {
                None => signal(&launcher, Signal::KILL),
                // What it was just starting when it was told has not heard it: shells hold signals back
                // meanwhile.
                Some(_) => signal(&launcher, Signal::TERM),
            }
            // It has ended; there is nothing to say about how.
            let _reaped = launcher.wait();
        }
    }

    fn signal(&self, name: Signal) {
        for (_, launcher) in &self.launchers {
            signal(launcher, name);
        }
    }

    fn await_all(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while !self.have_ended() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for LaunchedHosts {
    fn drop(&mut self) {
        self.end(END_PATIENCE);
    }
}

impl DismissedHost {
    /// Whether its time is up. A launcher may have ended before what it has started.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.kill_at
    }

    /// Kills whatever has not ended.
    pub(crate) fn kill(mut self) {
        self.launched.signal(Signal::KILL);
        for (_, mut launcher) in self.launched.launchers.drain(..) {
            // It has ended; there is nothing to say about how.
            let _reaped = launcher.wait();
        }
    }
}

/// How a launcher has ended. It is not reaped: as long as its number is taken, no other process group
/// has it.
fn end_of(launcher: &Child) -> Option<ExitStatus> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = waitid(WaitId::Pid(Pid::from_child(launcher)), options).ok()??;
    let signal = ended.terminating_signal();
    let raw = signal.or(ended.exit_status().map(|code| code << 8));
    Some(ExitStatus::from_raw(raw.unwrap_or(0)))
}

/// Signals all that a launcher has started and that is not in another process group.
fn signal(launcher: &Child, signal: Signal) {
    // A group that nobody is in any more needs no signal.
    let _nobody = kill_process_group(Pid::from_child(launcher), signal);
}

/// The command that starts a host.
fn command_of(host: &HostConfig, control: SocketAddr, key: &str) -> std::io::Result<Command> {
    let program = std::env::current_exe()?.display().to_string();
    let words = [
        program,
        "host".to_owned(),
        host.name.clone(),
        format!("--connect={control}"),
        format!("--key={key}"),
        format!("--address={}", host.address),
    ];
    Ok(match &host.launcher {
        HostLauncher::Local => {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        }
        HostLauncher::Exec(template) => {
            let line = template
                .replace("{host}", &host.name)
                .replace("{address}", &host.address.to_string())
                .replace("{command}", &shell_words(&words));
            let mut command = Command::new("sh");
            command.args(["-c", &line]);
            command
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};

    use super::*;

    fn launched(command: &str) -> LaunchedHosts {
        let host = HostConfig {
            name: "far".to_owned(),
            address: std::net::Ipv4Addr::LOCALHOST.into(),
            roles: Vec::new(),
            launcher: HostLauncher::Exec(command.to_owned()),
        };
        let mut launched = LaunchedHosts::default();
        let at = SocketAddr::new(host.address, 9);
        launched.launch(&host, at, "0").expect("there is a shell");
        launched
    }

    #[test]
    fn how_a_launcher_ended_can_be_asked_more_than_once() {
        for (command, end) in [
            ("exit 7", "exit status: 7"),
            ("kill -9 $$", "signal: 9 (SIGKILL)"),
        ] {
            let launched = launched(command);
            launched.await_all(Duration::MAX / 4);
            assert!(launched.have_ended());
            for _ in 0..2 {
                let found = launched.ends().next().flatten().expect("it has ended");
                assert_eq!(found.to_string(), end);
            }
        }
    }

    /// A pipe is at its end when nobody is left who could write to it.
    #[test]
    fn what_a_launcher_has_started_ends_with_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pipe = folder.path().join("pipe");
        let path = pipe.display();
        // Starts something after the signal, as a shell that holds it back until it has.
        let late = "trap 'trap - TERM; sleep 1000 & exit 0' TERM";
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("there is mkfifo").success());
        for line in [
            format!("exec > {path}; echo there; trap '' TERM; sleep 1000; true"),
            format!("exec > {path}; echo there; sleep 1000 & exit 0"),
            format!("exec > {path}; echo there; sleep 1000; true"),
            format!("exec > {path}; {late}; echo there; while :; do sleep 0.01; done"),
        ] {
            let mut launched = launched(&line);
            let file = std::fs::File::open(&pipe).expect("somebody writes");
            let (mut file, mut said) = (BufReader::new(file), String::new());
            file.read_line(&mut said).expect("it can be read");
            assert_eq!(said, "there\n", "{line}");
            launched.end(Duration::ZERO);
            file.read_to_string(&mut said).expect("it can be read");
            assert_eq!(said, "there\n", "{line}");
        }
    }

    #[test]
    fn of_a_lost_host_nothing_is_left_and_others_go_on() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pipe = folder.path().join("pipe");
        let path = pipe.display();
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("there is mkfifo").success());
        let stubborn = "trap '' TERM; echo there; while :; do sleep 1000; done";
        for line in [
            format!("exec > {path}; {stubborn}"),
            format!("exec > {path}; sh -c \"{stubborn}\" & exit 0"),
        ] {
            let mut launched = launched(&line);
            let other = HostConfig {
                name: "near".to_owned(),
                address: std::net::Ipv4Addr::LOCALHOST.into(),
                roles: Vec::new(),
                launcher: HostLauncher::Exec("sleep 1000".to_owned()),
            };
            let at = SocketAddr::new(other.address, 9);
            launched.launch(&other, at, "0").expect("there is a shell");
            let file = std::fs::File::open(&pipe).expect("somebody writes");
            let (mut file, mut said) = (BufReader::new(file), String::new());
            file.read_line(&mut said).expect("it can be read");
            let dismissed = launched.dismiss("far");
            while !dismissed.is_due() {
                std::thread::yield_now();
            }
            dismissed.kill();
            file.read_to_string(&mut said).expect("it can be read");
            assert_eq!(said, "there\n", "{line}");
            assert!(launched.ends().eq([None]), "the other goes on");
            launched.end(Duration::ZERO);
        }
    }
}
