//! The coordinator's side of a run over several hosts: roles that are processes elsewhere.
//!
//! To [`super::process_group`] a role of another host looks like one of its own: a socket, and
//! counters on the run page. Behind the socket a thread turns documents into orders; reports of the
//! host become documents, counters and, at the end, the hang-up. Descriptors stay behind: the host
//! makes what their names stand for. Who carries orders and reports is the caller's business.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use livetime_shm::{control_pair, recv_fds, send_fds};
use livetime_wire::TriggerNumber;

use super::ProcessError;
use super::control_message::DOCUMENT_MAX;
use super::host_document::{BlockState, HostOrder, HostReport, Preparation, RoleSignal};
use super::run_page::RunPage;

/// How long a host may take to prepare a run or to start a process.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a host may take to say how a killed process ended.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks at the phase that hosts are to know.
const LOOK: Duration = Duration::from_millis(2);

/// Carries an order to a host; it is dropped when the host is gone.
pub type SendOrder = Box<dyn Fn(&str, &[u8]) + Send + Sync>;

/// The hosts of a run and the roles on them.
#[derive(Clone)]
pub struct RoleHosts(Arc<Shared>);

struct Shared {
    placement: BTreeMap<String, String>,
    preparation: Preparation,
    send: SendOrder,
    state: Mutex<State>,
    changed: Condvar,
    page: OnceLock<RunPage>,
}

#[derive(Default)]
struct State {
    roles: BTreeMap<u64, Role>,
    hosts: BTreeMap<String, Host>,
}

struct Role {
    host: String,
    /// Our end of the socket to the process group, until the role has ended: a run may see hundreds of
    /// them.
    socket: Option<Arc<UnixStream>>,
    process: Option<Result<u32, String>>,
    exit: Option<String>,
    /// Whether its host has said that its process has ended: one that is not heard may live.
    is_reaped: bool,
    holds_dropped: u32,
}

#[derive(Default)]
struct Host {
    /// Whether it is prepared, or why it cannot be.
    prepared: Option<Result<(), String>>,
    /// Phase and step that it knows.
    knows: (u64, u64),
    /// Why it takes no more orders.
    gone: Option<String>,
}

/// A role's process on a host.
pub(super) struct HostedRole {
    hosts: RoleHosts,
    block: u64,
}

impl RoleHosts {
    /// Hosts that get their orders by `send`, those without roles too. `preparation` needs `config`,
    /// `arguments`, `folder`, `placement` and `streams_at`; the rest is filled in when the run starts.
    pub fn new(preparation: Preparation, send: SendOrder) -> Self {
        let placement: BTreeMap<String, String> = preparation.placement.iter().cloned().collect();
        let joined = preparation.streams_at.iter().map(|(host, _)| host);
        let hosts = placement.values().chain(joined).cloned();
        let state = State {
            hosts: hosts.map(|host| (host, Host::default())).collect(),
            ..State::default()
        };
        Self(Arc::new(Shared {
            placement,
            preparation,
            send,
            state: Mutex::new(state),
            changed: Condvar::new(),
            page: OnceLock::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked with it in hand left whole entries.
        let locked = self.0.state.lock();
        locked.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn order(&self, host: &str, order: &HostOrder) {
        (self.0.send)(host, &order.to_bytes());
    }

    /// Waits until `found` gives something, as long as patience lasts.
    fn wait_for<T>(
        &self,
        patience: Duration,
        mut found: impl FnMut(&State) -> Option<T>,
    ) -> Option<T> {
        let until = Instant::now() + patience;
        let mut state = self.state();
        loop {
            if let Some(found) = found(&state) {
                return Some(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |waited| waited.0);
        }
    }

    /// Tells all hosts of the run, and waits until they are prepared.
    ///
    /// # Errors
    /// [`ProcessError::Refused`] by a host that cannot take part.
    pub(super) fn prepare(
        &self,
        page: &RunPage,
        complete: impl FnOnce(Preparation) -> Preparation,
    ) -> Result<(), ProcessError> {
        let preparation = complete(self.0.preparation.clone());
        let order = HostOrder::Prepare(Box::new(preparation));
        let hosts: Vec<String> = self.state().hosts.keys().cloned().collect();
        for host in &hosts {
            self.order(host, &order);
        }
        for host in &hosts {
            let found = self.wait_for(PATIENCE, |state| {
                let host = state.hosts.get(host)?;
                let gone = host.gone.clone().map(Err);
                host.prepared.clone().or(gone)
            });
            let result = found.unwrap_or_else(|| Err("it does not answer".to_owned()));
            result.map_err(|reason| ProcessError::Refused {
                role: format!("host {host}"),
                reason,
            })?;
        }
        // The first call sets it, and there is one run.
        let _first = self.0.page.set(page.clone());
        let (shared, page) = (Arc::downgrade(&self.0), page.clone());
        let start = |error| ProcessError::Start {
            role: "phase".to_owned(),
            error,
        };
        let thread = std::thread::Builder::new().name("phase".to_owned());
        let tell = move || tell_phases(&shared, &page);
        thread.spawn(tell).map(drop).map_err(start)
    }

    /// Starts a role on its host; the socket is the process group's end.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub(super) fn spawn(
        &self,
        role: &str,
        block: u64,
    ) -> Result<(HostedRole, OwnedFd), ProcessError> {
        let failed = |error| ProcessError::Start {
            role: role.to_owned(),
            error,
        };
        let refused = |reason: String| ProcessError::Refused {
            role: role.to_owned(),
            reason,
        };
        let host = self.0.placement.get(role).cloned();
        let host = host.ok_or_else(|| refused("it has no host".to_owned()))?;
        // One that comes back is not to start it after all.
        if let Some(reason) = self.gone(role) {
            return Err(refused(format!("host {host}: {reason}")));
        }
        let pair = control_pair().map_err(|error| ProcessError::Control {
            role: role.to_owned(),
            error,
        })?;
        let (theirs, ours) = pair;
        let socket = Arc::new(UnixStream::from(ours));
        let entry = Role {
            host: host.clone(),
            socket: Some(Arc::clone(&socket)),
            process: None,
            exit: None,
            is_reaped: false,
            holds_dropped: 0,
        };
        self.state().roles.insert(block, entry);
        let order = HostOrder::Spawn {
            block,
            role: role.to_owned(),
        };
        self.order(&host, &order);
        let started = self.wait_for(PATIENCE, |state| {
            let gone = state.hosts.get(&host).and_then(|host| host.gone.clone());
            let started = state.roles.get(&block)?.process.clone();
            started.or(gone.map(|reason| Err(format!("host {host}: {reason}"))))
        });
        let started = started.unwrap_or_else(|| Err(format!("host {host} does not answer")));
        if let Err(reason) = started {
            if let Some(role) = self.state().roles.get_mut(&block) {
                role.end(reason.clone());
            }
            return Err(refused(reason));
        }
        let hosts = self.clone();
        let thread = std::thread::Builder::new().name(format!("order-{role}"));
        let carry = move || hosts.carry_orders(&host, block, &socket);
        thread.spawn(carry).map_err(failed)?;
        let role = HostedRole {
            hosts: self.clone(),
            block,
        };
        Ok((role, theirs))
    }

    /// Makes orders of what the process group says to a role, until one of both is gone.
    fn carry_orders(&self, host: &str, block: u64, socket: &UnixStream) {
        let mut buffer = vec![0; DOCUMENT_MAX];
        while let Ok(received) = recv_fds(socket, &mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..received.bytes]).into_owned();
            self.order(host, &HostOrder::Say { block, text });
        }
        self.order(host, &HostOrder::HangUp { block });
    }

    /// Takes in a report of a host; says why it leaves, if it does. Reports of a host are to come in
    /// their order.
    pub fn handle_report(&self, host: &str, bytes: &[u8]) -> Option<String> {
        let report = HostReport::from_bytes(bytes)?;
        let mut leaves = None;
        let mut state = self.state();
        match report {
            HostReport::Prepared(failure) => {
                if let Some(host) = state.hosts.get_mut(host) {
                    host.prepared = Some(failure.map_or(Ok(()), Err));
                }
            }
            HostReport::Started { block, process } => {
                if let Some(role) = state.roles.get_mut(&block) {
                    role.process = Some(process);
                }
            }
            HostReport::Said {
                block,
                text,
                state: counters,
            } => {
                self.note(&state, block, &counters);
                let socket = (state.roles.get(&block)).and_then(|role| role.socket.clone());
                // Not with the state in hand: it may wait for the reader.
                drop(state);
                if let Some(socket) = socket {
                    // A process group that has gone listens to nobody.
                    let _gone = send_fds(socket.as_ref(), text.as_bytes(), &[]);
                }
                return None;
            }
            HostReport::Gone {
                block,
                exit,
                holds_dropped,
                state: counters,
            } => {
                self.note(&state, block, &counters);
                let left = state.hosts.get(host).and_then(|host| host.gone.as_ref());
                let exit = left.map_or(exit, |reason| format!("host {host}: {reason}"));
                if let Some(role) = state.roles.get_mut(&block) {
                    role.holds_dropped = holds_dropped;
                    role.is_reaped = true;
                    role.end(exit);
                }
            }
            HostReport::Leaving(reason) => {
                // Its roles go on until it has ended them, which it says of each.
                if let Some(host) = state.hosts.get_mut(host) {
                    host.gone.get_or_insert(reason.clone());
                }
                leaves = Some(reason);
            }
            HostReport::Counters {
                phase,
                step,
                blocks,
            } => {
                for (block, counters) in &blocks {
                    self.note(&state, *block, counters);
                }
                if let Some(host) = state.hosts.get_mut(host) {
                    host.knows = (phase, step);
                }
            }
        }
        self.0.changed.notify_all();
        leaves
    }

    /// A host is gone, and with it all its roles. Why it left counts more than that it is not heard, if
    /// it could say so.
    pub fn handle_host_gone(&self, host: &str, reason: &str) {
        let mut state = self.state();
        let said =
            (state.hosts.get_mut(host)).map(|host| host.gone.get_or_insert(reason.to_owned()));
        let reason = said.map_or_else(|| reason.to_owned(), |said| said.clone());
        let roles = state.roles.values_mut().filter(|role| role.host == host);
        for role in roles.filter(|role| role.exit.is_none()) {
            role.end(format!("host {host}: {reason}"));
        }
        self.0.changed.notify_all();
    }

    /// Counters of a role go to its block of the run page. What comes after the role's end is late:
    /// then the process group writes the block.
    fn note(&self, state: &State, block: u64, counters: &BlockState) {
        let lives = (state.roles.get(&block)).is_some_and(|role| role.exit.is_none());
        let Some(page) = self.0.page.get().filter(|_| lives) else {
            return;
        };
        let index = usize::try_from(block).unwrap_or(usize::MAX);
        let Some(words) = page.block(index) else {
            return;
        };
        let trigger = (counters.event != 0).then_some(TriggerNumber(counters.event));
        words.note_event(trigger);
        words.publish(&counters.counts);
        page.note(index, counters.activity);
    }

    /// Waits so long until every host that lives knows phase and step of the run; whether all do.
    pub(super) fn await_phase(&self, page: &RunPage, patience: Duration) -> bool {
        let due = (page.phase().get() as u64, page.step() as u64);
        let known = self.wait_for(patience, |state| {
            let mut hosts = state.hosts.values().filter(|host| host.gone.is_none());
            hosts.all(|host| host.knows == due).then_some(())
        });
        known.is_some()
    }

    /// The host that a role is on.
    pub(super) fn host_of(&self, role: &str) -> Option<String> {
        self.0.placement.get(role).cloned()
    }

    /// Why the host of a role takes no more orders, if it does not.
    pub(super) fn gone(&self, role: &str) -> Option<String> {
        let host = self.0.placement.get(role)?;
        self.state().hosts.get(host)?.gone.clone()
    }

    /// Whether the host of a role has said that its process has ended.
    pub(super) fn is_reaped(&self, block: u64) -> bool {
        let state = self.state();
        state.roles.get(&block).is_some_and(|role| role.is_reaped)
    }

    /// Page holds that the host of a dead role has dropped.
    pub(super) fn holds_dropped(&self, block: u64) -> u32 {
        let state = self.state();
        state.roles.get(&block).map_or(0, |role| role.holds_dropped)
    }

    /// Tells a host that the run goes on without it.
    pub fn send_home(&self, host: &str) {
        self.order(host, &HostOrder::Quit);
    }

    /// Tells all hosts that the run is over.
    pub fn quit(&self) {
        let hosts: Vec<String> = self.state().hosts.keys().cloned().collect();
        for host in hosts {
            self.order(&host, &HostOrder::Quit);
        }
    }
}

impl Role {
    fn end(&mut self, exit: String) {
        self.exit.get_or_insert(exit);
        // What was said before is read first; then the process group hears the hang-up. Whoever carries
        // its orders has the socket until it has taken the last of them.
        if let Some(socket) = self.socket.take() {
            let _already_shut = socket.shutdown(Shutdown::Both);
        }
    }
}

impl HostedRole {
    pub(super) fn process(&self) -> u32 {
        let state = self.hosts.state();
        let process = state.roles.get(&self.block).and_then(|r| r.process.clone());
        process.and_then(Result::ok).unwrap_or(0)
    }

    pub(super) fn signal(&self, signal: RoleSignal) {
        let block = self.block;
        let host = {
            let state = self.hosts.state();
            let role = state.roles.get(&block).filter(|role| role.exit.is_none());
            role.map(|role| role.host.clone())
        };
        if let Some(host) = host {
            self.hosts
                .order(&host, &HostOrder::Signal { block, signal });
        }
    }

    /// Whether its host has said that it has ended.
    pub(super) fn is_reaped(&self) -> bool {
        self.hosts.is_reaped(self.block)
    }

    pub(super) fn await_exit(&self) -> String {
        let exit = self.hosts.wait_for(EXIT_PATIENCE, |state| {
            state.roles.get(&self.block)?.exit.clone()
        });
        exit.unwrap_or_else(|| "its host does not say how it ended".to_owned())
    }
}

/// Tells the hosts phase and step whenever they change, until nobody has the hosts any more.
fn tell_phases(shared: &Weak<Shared>, page: &RunPage) {
    let mut told = (0, 0);
    while let Some(shared) = shared.upgrade() {
        let now = (page.phase().get() as u64, page.step() as u64);
        if now != told {
            told = now;
            let hosts = RoleHosts(shared);
            let names: Vec<String> = hosts.state().hosts.keys().cloned().collect();
            let (phase, step) = now;
            for host in names {
                hosts.order(&host, &HostOrder::Phase { phase, step });
            }
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter_block::RoleCounts;
    use crate::process::run_page::Activity;

    /// Hosts with one role on a block, and the process group's end of its socket.
    fn hosts_with_role(block: u64) -> (RoleHosts, OwnedFd) {
        let preparation = Preparation {
            placement: vec![("ru0".to_owned(), "a".to_owned())],
            ..Preparation::default()
        };
        let hosts = RoleHosts::new(preparation, Box::new(|_, _| {}));
        let (theirs, ours) = control_pair().expect("a socket pair");
        let role = Role {
            host: "a".to_owned(),
            socket: Some(Arc::new(UnixStream::from(ours))),
            process: None,
            exit: None,
            is_reaped: false,
            holds_dropped: 0,
        };
        hosts.state().roles.insert(block, role);
        (hosts, theirs)
    }

    /// The exit of the only role of a host that is gone after these reports.
    fn exit_after(reports: &[HostReport]) -> Option<String> {
        let (hosts, _theirs) = hosts_with_role(3);
        for report in reports {
            hosts.handle_report("a", &report.to_bytes());
        }
        hosts.handle_host_gone("a", "it is not heard any more");
        let state = hosts.state();
        state.roles.get(&3).and_then(|role| role.exit.clone())
    }

    #[test]
    fn a_host_that_does_not_know_a_step_is_waited_for_no_longer_than_asked_and_while_it_lives() {
        let preparation = Preparation {
            placement: vec![("ru0".to_owned(), "a".to_owned())],
            ..Preparation::default()
        };
        let hosts = RoleHosts::new(preparation, Box::new(|_, _| {}));
        let page = RunPage::new(1).expect("memory for a page");
        assert!(hosts.await_phase(&page, Duration::ZERO), "it begins there");
        page.advance(crate::process::run_page::SettleStep::CloseBuilders);
        assert!(!hosts.await_phase(&page, Duration::ZERO));
        hosts.handle_host_gone("a", "it is not heard any more");
        assert!(hosts.await_phase(&page, Duration::ZERO));
    }

    #[test]
    fn the_last_words_of_a_role_are_heard_though_its_socket_is_given_back() {
        let (hosts, theirs) = hosts_with_role(3);
        let state = BlockState {
            counts: RoleCounts::default(),
            activity: Activity { cycles: 0, work: 0 },
            event: 0,
        };
        let said = HostReport::Said {
            block: 3,
            text: "last words".to_owned(),
            state: Box::new(state),
        };
        let gone = HostReport::Gone {
            block: 3,
            exit: "exit status: 0".to_owned(),
            holds_dropped: 0,
            state: Box::new(state),
        };
        for report in [said, gone] {
            hosts.handle_report("a", &report.to_bytes());
        }
        assert!(hosts.state().roles[&3].socket.is_none());
        let mut buffer = [0; 16];
        assert_eq!(recv_fds(&theirs, &mut buffer).expect("words").bytes, 10);
        assert!(recv_fds(&theirs, &mut buffer).is_err());
        assert!(hosts.is_reaped(3));
    }

    #[test]
    fn why_a_host_left_is_said_of_its_roles_though_it_could_not_say_how_they_ended() {
        let silent = exit_after(&[]);
        assert_eq!(silent.as_deref(), Some("host a: it is not heard any more"));
        let left = exit_after(&[HostReport::Leaving("ended by SIGTERM".to_owned())]);
        assert_eq!(left.as_deref(), Some("host a: ended by SIGTERM"));
    }
}
