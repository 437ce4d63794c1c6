//! Orders and reports between the hosts of a run, over Zenoh.
//!
//! ```text
//! livetime/KEY/hello/HOST        asked by the coordinator, answered by the host
//! livetime/KEY/alive/HOST        liveliness token of a host
//! livetime/KEY/coordinator       liveliness token of the coordinator
//! livetime/KEY/order/HOST        from the coordinator
//! livetime/KEY/report/HOST       from the host
//! ```
//! Peers of one run only: the coordinator listens, the hosts connect to it, nobody is looked for in
//! the network. What is heard goes into a bounded channel of the caller, one entry after the other;
//! a sender waits when it is full. Zenoh keeps the order of one sender and loses nothing while the
//! connection stands.

use std::sync::mpsc::SyncSender;
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
/// it is dead, so that the [`crate::Membership`] decides.
const LEASE: Duration = Duration::from_secs(30);

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
        /// Whether it is there.
        is_there: bool,
    },
    /// A report.
    Report {
        /// The host.
        host: String,
        /// What it says.
        bytes: Vec<u8>,
    },
}

/// What a host hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorSaid {
    /// The coordinator is there, or not any more.
    Token(bool),
    /// An order.
    Order(Vec<u8>),
}

/// Opens a session that listens at, or connects to, an `address:port`.
fn open(listen: Option<&str>, connect: Option<&str>) -> Result<zenoh::Session, SessionError> {
    let list = |end: Option<&str>| match end {
        Some(end) => format!("[\"tcp/{end}\"]"),
        None => "[]".to_owned(),
    };
    let mut config = zenoh::Config::default();
    let patience = CONNECT_PATIENCE.as_millis();
    for (key, value) in [
        ("mode", "\"peer\"".to_owned()),
        ("listen/endpoints", list(listen)),
        ("connect/endpoints", list(connect)),
        ("connect/timeout_ms", patience.to_string()),
        ("connect/exit_on_failure", "true".to_owned()),
        ("scouting/multicast/enabled", "false".to_owned()),
        ("scouting/gossip/enabled", "false".to_owned()),
        ("transport/link/tx/lease", LEASE.as_millis().to_string()),
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

fn host_of(sample: &Sample) -> String {
    let key = sample.key_expr().as_str();
    key.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The coordinator's session.
pub struct CoordinatorSession {
    session: zenoh::Session,
    key: String,
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
            drop(tokens.send(HostSaid::Token {
                host: host_of(&sample),
                is_there: sample.kind() == SampleKind::Put,
            }));
        };
        let report = move |sample: Sample| {
            drop(reports.send(HostSaid::Report {
                host: host_of(&sample),
                bytes: sample.payload().to_bytes().into_owned(),
            }));
        };
        let reports = session
            .declare_subscriber(format!("livetime/{key}/report/*"))
            .callback(report)
            .wait()
            .map_err(SessionError::at("listening to reports"))?;
        let tokens = session
            .liveliness()
            .declare_subscriber(format!("livetime/{key}/alive/*"))
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
            _token: token,
            _heard: [reports, tokens],
        })
    }

    /// Asks a host who it is; `None` when it does not answer in time or not in these words.
    pub fn ask(&self, host: &str, patience: Duration) -> Option<HostHello> {
        let replies = self
            .session
            .get(format!("livetime/{}/hello/{host}", self.key))
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
    pub fn order(&self, host: &str, bytes: &[u8]) -> Result<(), SessionError> {
        self.session
            .put(format!("livetime/{}/order/{host}", self.key), bytes)
            .congestion_control(CongestionControl::Block)
            .wait()
            .map_err(SessionError::at(format!("order to host {host}")))
    }
}

/// A host's session.
pub struct HostSession {
    reports: Publisher<'static>,
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
        let order = move |sample: Sample| {
            let bytes = sample.payload().to_bytes().into_owned();
            drop(orders.send(CoordinatorSaid::Order(bytes)));
        };
        let token = move |sample: Sample| {
            let is_there = sample.kind() == SampleKind::Put;
            drop(tokens.send(CoordinatorSaid::Token(is_there)));
        };
        let answer = hello.to_bytes();
        let asked = format!("livetime/{key}/hello/{host}");
        let queryable = session
            .declare_queryable(asked.clone())
            .callback(move |query| {
                // An asker that has gone needs no answer.
                let _gone = query.reply(asked.clone(), answer.clone()).wait();
            })
            .wait()
            .map_err(SessionError::at("answering who this is"))?;
        let orders = session
            .declare_subscriber(format!("livetime/{key}/order/{host}"))
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
        let reports = session
            .declare_publisher(format!("livetime/{key}/report/{host}"))
            .congestion_control(CongestionControl::Block)
            .wait()
            .map_err(SessionError::at("preparing reports"))?;
        // Last, so that who sees it can be heard.
        let token = session
            .liveliness()
            .declare_token(format!("livetime/{key}/alive/{host}"))
            .wait()
            .map_err(SessionError::at("showing that the host lives"))?;
        Ok(Self {
            reports,
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
        self.reports
            .put(bytes)
            .wait()
            .map_err(SessionError::at("report"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
