//! Orders and reports between the hosts of a run, over Zenoh.
//!
//! ```text
//! livetime/KEY/hello/HOST/LIFE   asked by the coordinator, answered by the host
//! livetime/KEY/alive/HOST/LIFE   liveliness token of a host
//! livetime/KEY/coordinator       liveliness token of the coordinator
//! livetime/KEY/order/HOST/LIFE   from the coordinator
//! livetime/KEY/report/HOST/LIFE  from the host
//! ```
//! `LIFE` is of one start of a host: one that comes in the place of another says nothing in its name.
//! Peers of one run only: the coordinator listens, the hosts connect to it, nobody is looked for in
//! the network. What is heard goes into a bounded channel of the caller, one entry after the other;
//! a sender waits when it is full. Zenoh keeps the order of one sender and loses nothing while the
//! connection stands; one that was made again may have lost something. So orders and reports begin with
//! their number, and a gap is told. Reports of a state, which the next one says again, count as none.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zenoh::Wait;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::query::Queryable;
use zenoh::sample::{Sample, SampleKind};

use crate::host_hello::HostHello;

/// How long a host tries to reach the coordinator.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);
/// Silence of a connection after which Zenoh gives it up. Longer than a host may be silent before
/// it is dead, so that the [`crate::Membership`] decides, and than a coordinator may stand still.
const LEASE: Duration = Duration::from_secs(120);
/// How long the coordinator waits for a connection that takes no more; a host waits for as long as
/// the coordinator may stand still.
const ORDER_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the number before what is said.
const NUMBER_BYTES: usize = 8;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {reason}")]
pub struct SessionError {
    step: String,
    reason: String,
}

impl SessionError {
    fn at(step: impl Into<String>) -> impl FnOnce(zenoh::Error) -> Self {
        let step = step.into();
        move |error| Self {
            step,
            reason: without_places(&error.to_string()),
        }
    }
}

/// What Zenoh says of an error, without the places in its source at which it was found.
fn without_places(error: &str) -> String {
    let mut words = error.split(' ').peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let place = words
            .peek()
            .filter(|next| word == "at" && next.contains(".rs:"));
        match place.map(|place| place.ends_with("]")) {
            // The bracket around an error inside of another.
            Some(is_closed) => {
                words.next();
                if is_closed && let Some(last) = kept.last_mut() {
                    *last += "]";
                }
            }
            None => kept.push(word.to_owned()),
        }
    }
    kept.join(" ")
}

/// What the coordinator hears of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostSaid {
    /// Its token has appeared or gone.
    Token {
        /// The host.
        host: String,
        /// Which start of it.
        life: u64,
        /// Whether it is there.
        is_there: bool,
    },
    /// A report.
    Report {
        /// The host.
        host: String,
        /// Which start of it.
        life: u64,
        /// What it says.
        bytes: Vec<u8>,
    },
    /// Reports were lost on their way.
    Gap {
        /// The host.
        host: String,
        /// Which start of it.
        life: u64,
    },
}

/// What a host hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorSaid {
    /// The coordinator is there, or not any more.
    Token(bool),
    /// An order.
    Order(Vec<u8>),
    /// Orders were lost on their way.
    Gap,
}

/// Opens a session that listens at, or connects to, an `address:port`.
fn open(listen: Option<&str>, connect: Option<&str>) -> Result<zenoh::Session, SessionError> {
    let list = |end: Option<&str>| match end {
        Some(end) => format!("[\"tcp/{end}\"]"),
        None => "[]".to_owned(),
    };
    let mut config = zenoh::Config::default();
    let patience = CONNECT_PATIENCE.as_millis();
    let blocked = match listen {
        Some(_) => ORDER_PATIENCE,
        None => LEASE,
    };
    for (key, value) in [
        ("mode", "\"peer\"".to_owned()),
        ("listen/endpoints", list(listen)),
        ("connect/endpoints", list(connect)),
        ("connect/timeout_ms", patience.to_string()),
        ("connect/exit_on_failure", "true".to_owned()),
        ("scouting/multicast/enabled", "false".to_owned()),
        ("scouting/gossip/enabled", "false".to_owned()),
        ("transport/link/tx/lease", LEASE.as_millis().to_string()),
        (
            "transport/link/tx/queue/congestion_control/block/wait_before_close",
            blocked.as_micros().to_string(),
        ),
    ] {
        config
            .insert_json5(key, &value)
            .map_err(SessionError::at(format!("setting `{key}`")))?;
    }
    let at = listen.or(connect).unwrap_or_default();
    zenoh::open(config)
        .wait()
        .map_err(SessionError::at(format!("control session at {at}")))
}

/// Host and life at the end of a key; `None` for one that says neither.
fn host_of(key: &str) -> Option<(String, u64)> {
    let mut words = key.rsplit('/');
    let life = u64::from_str_radix(words.next()?, 16).ok()?;
    Some((words.next()?.to_owned(), life))
}

/// A key of a host of the run with this key.
fn key_of(key: &str, what: &str, host: &str, life: u64) -> String {
    format!("livetime/{key}/{what}/{host}/{life:016x}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked with it in hand left a whole number.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether something is to come, whatever happens, or is said again by the next of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    Word,
    State,
}

/// What is said, after its number: that of a state is that of the last word before it.
fn numbered(number: u64, weight: Weight, bytes: &[u8]) -> Vec<u8> {
    let both = number << 1 | u64::from(weight == Weight::State);
    [&both.to_le_bytes()[..], bytes].concat()
}

/// What is said after the number of which one sender.
#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    is_lost: bool,
}

impl Numbers {
    /// Takes in a number: whether a word before it is missing, which is found once.
    fn handle(&mut self, number: u64, weight: Weight) -> bool {
        let due = self.last + u64::from(weight == Weight::Word);
        self.last = number;
        number != due && !std::mem::replace(&mut self.is_lost, true)
    }
}

/// Number and content of what was said; `None` for what has no number.
fn parts(said: &[u8]) -> Option<(u64, Weight, &[u8])> {
    let (both, bytes) = said.split_first_chunk::<NUMBER_BYTES>()?;
    let both = u64::from_le_bytes(*both);
    let weight = match both & 1 {
        0 => Weight::Word,
        _ => Weight::State,
    };
    Some((both >> 1, weight, bytes))
}

/// The coordinator's session.
pub struct CoordinatorSession {
    session: zenoh::Session,
    key: String,
    /// Numbers of the last orders. Each has its own lock: one that waits for its host keeps no other.
    ordered: Mutex<BTreeMap<u64, Arc<Mutex<u64>>>>,
    _token: LivelinessToken,
    _heard: [Subscriber<()>; 2],
}

impl CoordinatorSession {
    /// Listens at `address:port` for the hosts of the run with this key.
    ///
    /// # Errors
    /// [`SessionError`], such as an address that is in use.
    pub fn open(
        listen: &str,
        key: &str,
        heard: &SyncSender<HostSaid>,
    ) -> Result<Self, SessionError> {
        let session = open(Some(listen), None)?;
        let (tokens, reports) = (heard.clone(), heard.clone());
        // A caller that has gone listens to nobody: what is said then is dropped.
        let token = move |sample: Sample| {
            let Some((host, life)) = host_of(sample.key_expr().as_str()) else {
                return;
            };
            drop(tokens.send(HostSaid::Token {
                host,
                life,
                is_there: sample.kind() == SampleKind::Put,
            }));
        };
        let numbers: Mutex<BTreeMap<u64, Numbers>> = Mutex::default();
        let report = move |sample: Sample| {
            let said = sample.payload().to_bytes();
            let host = host_of(sample.key_expr().as_str());
            let (Some((host, life)), Some((number, weight, bytes))) = (host, parts(&said)) else {
                return;
            };
            if lock(&numbers)
                .entry(life)
                .or_default()
                .handle(number, weight)
            {
                let host = host.clone();
                drop(reports.send(HostSaid::Gap { host, life }));
            }
            let bytes = bytes.to_vec();
            drop(reports.send(HostSaid::Report { host, life, bytes }));
        };
        let reports = session
            .declare_subscriber(format!("livetime/{key}/report/*/*"))
            .callback(report)
            .wait()
            .map_err(SessionError::at("listening to reports"))?;
        let tokens = session
            .liveliness()
            .declare_subscriber(format!("livetime/{key}/alive/*/*"))
            .history(true)
            .callback(token)
            .wait()
            .map_err(SessionError::at("watching hosts"))?;
        let token = session
            .liveliness()
            .declare_token(format!("livetime/{key}/coordinator"))
            .wait()
            .map_err(SessionError::at("showing that the coordinator lives"))?;
        Ok(Self {
            session,
            key: key.to_owned(),
            ordered: Mutex::default(),
            _token: token,
            _heard: [reports, tokens],
        })
    }

    /// Asks a host who it is; `None` when it does not answer in time or not in these words.
    pub fn ask(&self, host: &str, life: u64, patience: Duration) -> Option<HostHello> {
        let replies = self
            .session
            .get(key_of(&self.key, "hello", host, life))
            .timeout(patience)
            .wait()
            .ok()?;
        let reply = replies.recv().ok()?;
        let sample = reply.result().ok()?;
        HostHello::from_bytes(&sample.payload().to_bytes())
    }

    /// Gives a host an order; it waits while the connection takes no more.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn order(&self, host: &str, life: u64, bytes: &[u8]) -> Result<(), SessionError> {
        let ordered = Arc::clone(lock(&self.ordered).entry(life).or_default());
        // Held until it is sent: orders come in the order of their numbers.
        let mut number = lock(&ordered);
        *number += 1;
        self.session
            .put(
                key_of(&self.key, "order", host, life),
                numbered(*number, Weight::Word, bytes),
            )
            .congestion_control(CongestionControl::Block)
            .wait()
            .map_err(SessionError::at(format!("order to host {host}")))
    }
}

/// A host's session.
pub struct HostSession {
    reports: Publisher<'static>,
    states: Publisher<'static>,
    /// Number of the last report.
    reported: Mutex<u64>,
    _token: LivelinessToken,
    _hello: Queryable<()>,
    _heard: [Subscriber<()>; 2],
    _session: zenoh::Session,
}

impl HostSession {
    /// Connects to the coordinator at `address:port` and shows that the host lives.
    ///
    /// # Errors
    /// [`SessionError`], such as a coordinator that is not there.
    pub fn open(
        connect: &str,
        key: &str,
        hello: &HostHello,
        heard: &SyncSender<CoordinatorSaid>,
    ) -> Result<Self, SessionError> {
        let session = open(None, Some(connect))?;
        let host = &hello.host;
        let (orders, tokens) = (heard.clone(), heard.clone());
        let numbers: Mutex<Numbers> = Mutex::default();
        let order = move |sample: Sample| {
            let said = sample.payload().to_bytes();
            let Some((number, weight, bytes)) = parts(&said) else {
                return;
            };
            if lock(&numbers).handle(number, weight) {
                drop(orders.send(CoordinatorSaid::Gap));
            }
            drop(orders.send(CoordinatorSaid::Order(bytes.to_vec())));
        };
        let token = move |sample: Sample| {
            let is_there = sample.kind() == SampleKind::Put;
            drop(tokens.send(CoordinatorSaid::Token(is_there)));
        };
        let answer = hello.to_bytes();
        let key_of = |what: &str| key_of(key, what, host, hello.life);
        let asked = key_of("hello");
        let queryable = session
            .declare_queryable(asked.clone())
            .callback(move |query| {
                // An asker that has gone needs no answer.
                let _gone = query.reply(asked.clone(), answer.clone()).wait();
            })
            .wait()
            .map_err(SessionError::at("answering who this is"))?;
        let orders = session
            .declare_subscriber(key_of("order"))
            .callback(order)
            .wait()
            .map_err(SessionError::at("listening to orders"))?;
        let coordinator = session
            .liveliness()
            .declare_subscriber(format!("livetime/{key}/coordinator"))
            .history(true)
            .callback(token)
            .wait()
            .map_err(SessionError::at("watching the coordinator"))?;
        let publisher = |congestion| {
            let declared = session.declare_publisher(key_of("report"));
            let declared = declared.congestion_control(congestion).wait();
            declared.map_err(SessionError::at("preparing reports"))
        };
        let reports = publisher(CongestionControl::Block)?;
        let states = publisher(CongestionControl::Drop)?;
        // Last, so that who sees it can be heard.
        let token = session
            .liveliness()
            .declare_token(key_of("alive"))
            .wait()
            .map_err(SessionError::at("showing that the host lives"))?;
        Ok(Self {
            reports,
            states,
            reported: Mutex::default(),
            _token: token,
            _hello: queryable,
            _heard: [orders, coordinator],
            _session: session,
        })
    }

    /// Reports to the coordinator; it waits while the connection takes no more.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn report(&self, bytes: &[u8]) -> Result<(), SessionError> {
        // Held until it is sent: reports come in the order of their numbers.
        let mut number = lock(&self.reported);
        *number += 1;
        self.reports
            .put(numbered(*number, Weight::Word, bytes))
            .wait()
            .map_err(SessionError::at("report"))
    }

    /// Reports a state that the next report of it says again: while the connection takes no more, it
    /// is dropped.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn report_state(&self, bytes: &[u8]) -> Result<(), SessionError> {
        let number = lock(&self.reported);
        self.states
            .put(numbered(*number, Weight::State, bytes))
            .wait()
            .map_err(SessionError::at("report"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_found_once_and_a_state_leaves_none() {
        use Weight::{State, Word};
        let told = |said: &[(u64, Weight)]| {
            let mut numbers = Numbers::default();
            let found = said.iter().map(|said| numbers.handle(said.0, said.1));
            found.filter(|is_gap| *is_gap).count()
        };
        assert_eq!(told(&[(0, State), (1, Word), (1, State), (2, Word)]), 0);
        assert_eq!(told(&[(1, Word), (3, Word), (4, Word), (9, Word)]), 1);
        assert_eq!(told(&[(1, Word), (2, State)]), 1, "before a state");
        for weight in [Word, State] {
            let said = numbered(7, weight, b"said");
            assert_eq!(parts(&said), Some((7, weight, &b"said"[..])));
        }
        assert_eq!(parts(b"short"), None);
        let key = key_of("k", "alive", "far", u64::MAX);
        assert_eq!(host_of(&key), Some(("far".to_owned(), u64::MAX)));
        assert_eq!(host_of("livetime/k/coordinator"), None);
    }

    #[test]
    fn errors_are_told_without_places_in_the_source_of_a_library() {
        let said = "Can not listen at tcp/127.0.0.1:7450: [127.0.0.1:7450: in use (os error 98) at \
                    /r/zenoh-link-1.1/src/tcp.rs:61.] at /r/zenoh-1.1/src/unicast.rs:338.";
        let expected =
            "Can not listen at tcp/127.0.0.1:7450: [127.0.0.1:7450: in use (os error 98)]";
        assert_eq!(without_places(said), expected);
        for whole in ["", "no place at all", "it is at home"] {
            assert_eq!(without_places(whole), whole);
        }
    }
}
