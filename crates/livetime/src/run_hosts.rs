//! The hosts of a run as `livetime run` has them: launched, asked who they are, heard, ended.
//!
//! Hosts that do not answer or are of another version are problems before anything is started. From
//! then on a thread takes their reports, and says who is suspect, back or dead.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use livetime_control::session::{CoordinatorSession, HostSaid, SessionError};
use livetime_control::{Difference, HostState, MemberEvent, Membership, MembershipTimes, Refusal};
use livetime_node::process::{HOST_PROTOCOL, HostOrder, Preparation, RoleHosts};
use livetime_wire::{Problem, ProblemCode, RunNs};

use crate::config::{HostConfig, HostTable};
use crate::console::say;
use crate::host_launch::{DismissedHost, LaunchedHosts};
use crate::verb::role::VERSION;

/// A host that did not come.
pub(crate) const HOST_MISSING: ProblemCode = ProblemCode::new("R0201", "host does not answer");
/// A host with another program.
pub(crate) const HOST_VERSION: ProblemCode = ProblemCode::new("R0202", "host of another version");
/// A control address that cannot be listened at.
pub(crate) const CONTROL_NOT_HAD: ProblemCode =
    ProblemCode::new("R0204", "control address cannot be used");
/// A host whose interface takes packets of another size.
pub(crate) const HOST_MTU: ProblemCode = ProblemCode::new("R0203", "hosts of unequal MTU");

/// How long hosts may take to come.
const JOIN_PATIENCE: Duration = Duration::from_secs(30);
/// How long a host may take to say who it is.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// How long hosts may take to end before a start that was refused is reported.
const LEAVING_PATIENCE: Duration = Duration::from_secs(1);
/// Longest time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Reports on their way.
const REPORTS_MAX: usize = 4096;

/// Why the hosts of a run are not there.
#[derive(Debug)]
pub(crate) enum HostsError {
    /// Problems of single hosts.
    Problems(Vec<Problem>),
    /// There is no control session, or nothing can be started.
    Failed(String),
    /// Somebody has stopped the run before all of them were there.
    Stopped,
}

impl From<SessionError> for HostsError {
    fn from(error: SessionError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<std::io::Error> for HostsError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The hosts of a run.
pub(crate) struct RunHosts {
    hosts: RoleHosts,
    launched: Arc<Mutex<LaunchedHosts>>,
    is_over: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

/// The hosts while they come.
struct Coming<'a> {
    table: &'a HostTable,
    session: Arc<CoordinatorSession>,
    heard: Receiver<HostSaid>,
    launched: LaunchedHosts,
    members: Membership,
    start: Instant,
    streams_at: BTreeMap<String, String>,
    /// What the hosts that are there say of their data interface.
    mtus: BTreeMap<String, u32>,
    problems: Vec<Problem>,
    strangers: Strangers,
}

/// Hosts that come and are none of the run.
#[derive(Default)]
struct Strangers {
    /// Names of which it was said.
    said: BTreeSet<String>,
}

impl Strangers {
    /// Refuses a host that has come, and says so, if it is none of the run: with the name of none of
    /// them, or in the place of one that has joined. Whether it was.
    fn refuse(
        &mut self,
        session: &CoordinatorSession,
        members: &Membership,
        (host, life): (&str, u64),
    ) -> bool {
        let reason = match members.state(host) {
            Some(HostState::Expected | HostState::Refused) => return false,
            Some(_) if members.life(host) == Some(life) => return false,
            Some(_) => {
                format!("another start of host {host} is part of it, and none takes its place")
            }
            None => {
                let names: Vec<&str> = members.names().collect();
                format!("it has no host {host}; its hosts are {}", names.join(", "))
            }
        };
        if self.said.insert(host.to_owned()) {
            say(format_args!(
                "\nwarning: a host is refused by the run: {reason}"
            ));
        }
        // One that cannot be told ends by itself, when the coordinator is gone for long.
        let _in_vain = session.order(host, life, &HostOrder::Refuse(reason).to_bytes());
        true
    }
}

/// What there is most of; of as many the one that comes first.
fn most_frequent(values: &[u32]) -> Option<u32> {
    let times = |value: &u32| values.iter().filter(|other| *other == value).count();
    // The last of equals is taken.
    values.iter().rev().copied().max_by_key(times)
}

fn since(start: Instant) -> RunNs {
    RunNs(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

impl RunHosts {
    /// Launches the hosts and waits until all of them are there. `config` is the text of the
    /// configuration, `arguments` the options over it; `is_stopped` says whether the run has been
    /// stopped meanwhile.
    ///
    /// # Errors
    /// [`HostsError`]; what was launched is ended.
    pub(crate) fn start(
        table: &HostTable,
        config: &str,
        arguments: &[String],
        is_stopped: impl FnMut() -> bool,
    ) -> Result<Self, HostsError> {
        let control = match table.control {
            Some(at) => usable(at)?,
            None => free_port()?,
        };
        let key = random_key()?;
        let (tell, heard) = sync_channel(REPORTS_MAX);
        let session = CoordinatorSession::open(&control.to_string(), &key, &tell)?;
        let times = MembershipTimes {
            suspect: table.suspect,
            dead: table.dead,
        };
        let start = Instant::now();
        let names = table.hosts.iter().map(|host| host.name.clone());
        let mut coming = Coming {
            table,
            session: Arc::new(session),
            heard,
            launched: LaunchedHosts::default(),
            members: Membership::new(names, VERSION, HOST_PROTOCOL, times, since(start)),
            start,
            streams_at: BTreeMap::new(),
            mtus: BTreeMap::new(),
            problems: Vec::new(),
            strangers: Strangers::default(),
        };
        for host in &table.hosts {
            if let Err(error) = coming.launched.launch(host, control, &key) {
                coming.send_home();
                return Err(error.into());
            }
        }
        if !coming.await_all(is_stopped) {
            say("\nstopping: not all hosts are there; those that are, and all launchers, end");
            coming.send_home();
            return Err(HostsError::Stopped);
        }
        if !coming.problems.is_empty() {
            coming.send_home();
            return Err(HostsError::Problems(coming.problems));
        }
        coming.into_hosts(config, arguments)
    }

    /// The hosts, for the launcher of the roles.
    pub(crate) fn role_hosts(&self) -> RoleHosts {
        self.hosts.clone()
    }
}

impl Drop for RunHosts {
    /// Nothing that was launched outlives the run.
    fn drop(&mut self) {
        // First, so that their leaving is not reported.
        self.is_over.store(true, Ordering::Relaxed);
        self.hosts.quit();
        drop(take_launched(&self.launched));
        if let Some(listener) = self.listener.take() {
            // It ends by the flag; that it panicked was said by its panic.
            let _panicked = listener.join();
        }
    }
}

impl Coming<'_> {
    /// Waits until every host is there, is refused, has ended, or patience does; `false` when the run
    /// is stopped before.
    fn await_all(&mut self, mut is_stopped: impl FnMut() -> bool) -> bool {
        let until = self.start + JOIN_PATIENCE;
        while !self.members.is_complete() && self.problems.is_empty() && Instant::now() < until {
            if is_stopped() {
                return false;
            }
            match self.heard.recv_timeout(LOOK) {
                Ok(said) => self.hear(said),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.take_events();
            self.find_ended();
        }
        if self.problems.is_empty() {
            let missing: Vec<String> = self.members.unanswered().map(str::to_owned).collect();
            for host in missing {
                let found = format!("not there: no answer in {} s", JOIN_PATIENCE.as_secs());
                self.problems.extend(self.of_missing(&host, found));
            }
        }
        self.problems.extend(self.of_unequal_mtus());
        true
    }

    fn hear(&mut self, said: HostSaid) {
        match said {
            HostSaid::Token {
                host,
                life,
                is_there: true,
            } => {
                let is_refused =
                    (self.strangers).refuse(&self.session, &self.members, (&host, life));
                let hello = (!is_refused).then(|| self.session.ask(&host, life, HELLO_PATIENCE));
                if let Some(hello) = hello.flatten() {
                    self.members.handle_hello(since(self.start), &hello);
                }
            }
            // Whoever was there and has gone may come again.
            HostSaid::Token { host, life, .. } | HostSaid::Gap { host, life } => {
                self.members.handle_gone_early(&host, life);
            }
            // One that is there already and waits for the others is no silent one.
            HostSaid::Report { host, life, .. } => {
                self.members.handle_heard(since(self.start), &host, life);
            }
        }
    }

    /// Notes who has joined and who is refused.
    fn take_events(&mut self) {
        while let Some(event) = self.members.poll_event() {
            match event {
                MemberEvent::Joined(hello) => {
                    self.mtus.insert(hello.host.clone(), hello.mtu);
                    self.streams_at.insert(hello.host, hello.streams_at);
                }
                MemberEvent::Refused(refusal) => self.problems.extend(self.of_refused(&refusal)),
                _ => {}
            }
        }
    }

    /// Whoever was launched and has ended will not come.
    fn find_ended(&mut self) {
        let ends = self.table.hosts.iter().zip(self.launched.ends());
        // A launcher may return when the host has been started elsewhere.
        let failed = ends.filter_map(|(host, end)| Some((host, end.filter(|end| !end.success())?)));
        let failed: Vec<_> = failed.collect();
        for (host, end) in failed {
            let found = format!("not there: its launcher has ended ({end})");
            self.problems.extend(self.of_missing(&host.name, found));
        }
    }

    /// Ends the hosts that have come, or come meanwhile: what their launchers started may outlive these.
    fn send_home(&mut self) {
        for host in &self.table.hosts {
            if let Some(life) = self.members.life(&host.name) {
                self.tell_to_quit(&host.name, life);
            }
        }
        let until = Instant::now() + LEAVING_PATIENCE;
        while !self.launched.have_ended() && Instant::now() < until {
            if let Ok(HostSaid::Token {
                host,
                life,
                is_there: true,
            }) = self.heard.recv_timeout(LOOK)
            {
                self.tell_to_quit(&host, life);
            }
        }
        self.launched.end(Duration::ZERO);
    }

    fn tell_to_quit(&self, host: &str, life: u64) {
        // One that cannot be told ends by itself, when it has missed the coordinator for long.
        let _in_vain = (self.session).order(host, life, &HostOrder::Quit.to_bytes());
    }

    fn key_of(&self, name: &str) -> Option<(String, &HostConfig)> {
        let mut hosts = self.table.hosts.iter().enumerate();
        let (index, host) = hosts.find(|(_, host)| host.name == name)?;
        Some((format!("host[{index}]"), host))
    }

    fn of_missing(&self, name: &str, found: String) -> Option<Problem> {
        let (path, host) = self.key_of(name)?;
        let allowed = format!("an answer of {name} at {}", host.address);
        let help = "see that its launcher starts it and that it reaches `[control] address`";
        Some(Problem::new(HOST_MISSING, path, found, allowed, help))
    }

    fn of_refused(&self, refusal: &Refusal) -> Option<Problem> {
        let (path, _) = self.key_of(&refusal.host)?;
        let version_help = "install the same livetime on every host";
        let (code, what, help) = match refusal.what {
            Difference::Program => (HOST_VERSION, "program version", version_help),
            Difference::Documents => (HOST_VERSION, "document version", version_help),
        };
        let found = format!("of {what} {}", refusal.found);
        let allowed = format!("{what} {}", refusal.expected);
        Some(Problem::new(code, path, found, allowed, help))
    }

    /// The hosts that have another MTU than most of those that are there.
    fn of_unequal_mtus(&self) -> Vec<Problem> {
        // One that does not know it is taken as it is.
        let known = self
            .table
            .hosts
            .iter()
            .enumerate()
            .filter_map(|(index, host)| {
                let mtu = self.mtus.get(&host.name).copied().filter(|mtu| *mtu > 0)?;
                Some((index, host, mtu))
            });
        let known: Vec<_> = known.collect();
        let mtus: Vec<u32> = known.iter().map(|(.., mtu)| *mtu).collect();
        let Some(usual) = most_frequent(&mtus) else {
            return Vec::new();
        };
        let others = known.iter().filter(|(.., mtu)| *mtu != usual);
        let problem = |(index, host, mtu): &(usize, &HostConfig, u32)| {
            let found = format!("at {} with an MTU of {mtu} B", host.address);
            let with = known.iter().filter(|(.., mtu)| *mtu == usual);
            let with: Vec<&str> = with.map(|(_, host, _)| host.name.as_str()).collect();
            let allowed = format!("{usual} B, that of {}", with.join(", "));
            let help = "give the data interfaces of all hosts one MTU: \
                        `ip link set dev NAME mtu BYTES`";
            Problem::new(HOST_MTU, format!("host[{index}]"), found, allowed, help)
        };
        others.map(problem).collect()
    }

    fn into_hosts(self, config: &str, arguments: &[String]) -> Result<RunHosts, HostsError> {
        let placement = self.table.placement().into_iter();
        let preparation = Preparation {
            config: config.to_owned(),
            arguments: arguments.to_vec(),
            folder: std::env::current_dir()?.display().to_string(),
            placement: placement
                .map(|(role, host)| (role.to_owned(), host.to_owned()))
                .collect(),
            streams_at: self.streams_at.into_iter().collect(),
            ..Preparation::default()
        };
        let session = Arc::clone(&self.session);
        let names = self.members.names();
        let lives: BTreeMap<String, u64> = names
            .filter_map(|host| Some((host.to_owned(), self.members.life(host)?)))
            .collect();
        let send = move |host: &str, order: &[u8]| {
            let Some(life) = lives.get(host) else { return };
            if let Err(error) = session.order(host, *life, order) {
                say(format_args!("warning: {error}"));
            }
        };
        let hosts = RoleHosts::new(preparation, Box::new(send));
        let is_over = Arc::new(AtomicBool::new(false));
        let launched = Arc::new(Mutex::new(self.launched));
        let listening = Listening {
            hosts: hosts.clone(),
            session: self.session,
            strangers: self.strangers,
            members: self.members,
            heard: self.heard,
            start: self.start,
            launched: Arc::clone(&launched),
            lost: Vec::new(),
            is_over: Arc::clone(&is_over),
        };
        let thread = std::thread::Builder::new().name("hosts".to_owned());
        let listener = thread.spawn(move || listening.run())?;
        Ok(RunHosts {
            hosts,
            launched,
            is_over,
            listener: Some(listener),
        })
    }
}

/// What the thread has that takes the reports.
struct Listening {
    hosts: RoleHosts,
    session: Arc<CoordinatorSession>,
    strangers: Strangers,
    members: Membership,
    heard: Receiver<HostSaid>,
    start: Instant,
    launched: Arc<Mutex<LaunchedHosts>>,
    /// Hosts that are dead and whose launchers end.
    lost: Vec<(String, DismissedHost)>,
    is_over: Arc<AtomicBool>,
}

impl Listening {
    fn run(mut self) {
        self.listen();
        // Nothing that was launched outlives the run.
        self.lost.into_iter().for_each(|(_, host)| host.kill());
    }

    fn listen(&mut self) {
        // Relaxed: the flag orders nothing.
        while !self.is_over.load(Ordering::Relaxed) {
            match self.heard.recv_timeout(LOOK) {
                Ok(said) => self.hear(said),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = since(self.start);
            if self.members.poll_timeout().is_some_and(|due| due <= now) {
                self.members.handle_timeout(now);
            }
            while let Some(event) = self.members.poll_event() {
                // Who leaves at the end of the run is not missed.
                if !self.is_over.load(Ordering::Relaxed) {
                    self.tell(event);
                }
            }
            self.lose_hosts();
        }
    }

    fn hear(&mut self, said: HostSaid) {
        match said {
            HostSaid::Report { host, life, bytes } => {
                // A stranger has nothing to say of the run.
                if self.members.life(&host) == Some(life) {
                    self.take_report(&host, life, &bytes);
                }
            }
            HostSaid::Token {
                host,
                life,
                is_there,
            } => {
                let now = since(self.start);
                self.members.handle_token(now, &host, life, is_there);
                if is_there {
                    (self.strangers).refuse(&self.session, &self.members, (&host, life));
                }
            }
            HostSaid::Gap { host, life } => {
                if self.members.life(&host) == Some(life) {
                    say(format_args!(
                        "\nwarning: words of host {host} were lost on their way"
                    ));
                }
                self.members.handle_gap(&host, life);
            }
        }
    }

    fn take_report(&mut self, host: &str, life: u64, bytes: &[u8]) {
        self.members.handle_heard(since(self.start), host, life);
        if let Some(reason) = self.hosts.handle_report(host, bytes) {
            say(format_args!("\nhost {host} leaves: {reason}"));
        }
        if self.members.state(host) == Some(HostState::Dead) {
            // Its roles are lost, whatever they do: one that comes back is to do nothing more.
            self.hosts.send_home(host);
        }
    }

    /// Takes the roles of dead hosts for lost, once what was launched for these has ended: what can be
    /// kept from writing on is kept from it before its files are read.
    fn lose_hosts(&mut self) {
        for (host, dismissed) in self.lost.extract_if(.., |(_, host)| host.is_due()) {
            dismissed.kill();
            self.hosts
                .handle_host_gone(&host, "it is not heard any more");
        }
    }

    fn tell(&mut self, event: MemberEvent) {
        match event {
            MemberEvent::Suspect(host) => say(format_args!("\nhost {host} is not heard")),
            MemberEvent::Recovered(host) => say(format_args!("\nhost {host} is heard again")),
            MemberEvent::Dead(host) => {
                say(format_args!("\nhost {host} is gone"));
                let mut launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
                let dismissed = launched.dismiss(&host);
                self.lost.push((host, dismissed));
            }
            MemberEvent::Joined(_) | MemberEvent::Refused(_) => {}
        }
    }
}

/// What was launched and is not dismissed yet.
fn take_launched(launched: &Mutex<LaunchedHosts>) -> LaunchedHosts {
    std::mem::take(&mut *launched.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A configured control address, if hosts can be listened to there. Asked before the session does:
/// its library would answer in the words of its own source.
fn usable(at: SocketAddr) -> Result<SocketAddr, HostsError> {
    let Err(error) = TcpListener::bind(at) else {
        return Ok(at);
    };
    let (reason, help) = match error.kind() {
        ErrorKind::AddrInUse => (
            "where another program listens".to_owned(),
            "choose another port, or end the program that has this one: `ss -ltnp` names it",
        ),
        ErrorKind::AddrNotAvailable => (
            "which is no address of this machine".to_owned(),
            "write the address of an interface of the machine that `livetime run` is started on: \
             `ip address` lists them",
        ),
        _ => (
            format!("where nothing can listen ({error})"),
            "choose another address or port, such as a port above 1023",
        ),
    };
    let (found, allowed) = (
        format!("{at}, {reason}"),
        "an address of this machine and a free port",
    );
    let problem = Problem::new(CONTROL_NOT_HAD, "control.address", found, allowed, help);
    Err(HostsError::Problems(vec![problem]))
}

/// A port of the loopback that is free now.
fn free_port() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// What names a run among all others; who does not know it cannot join.
fn random_key() -> std::io::Result<String> {
    random_number().map(|number| format!("{number:016x}"))
}

/// A number that nobody else has.
pub(crate) fn random_number() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::most_frequent;

    #[test]
    fn the_usual_value_is_what_there_is_most_of_and_the_first_of_equals() {
        for (values, usual) in [
            (&[1500, 1500, 1400, 1500][..], Some(1500)),
            (&[1400, 1500, 1500][..], Some(1500)),
            (&[9000, 1500][..], Some(9000)),
            (&[9000, 1500, 1500, 9000][..], Some(9000)),
            (&[9000][..], Some(9000)),
            (&[][..], None),
        ] {
            assert_eq!(most_frequent(values), usual, "{values:?}");
        }
    }
}
