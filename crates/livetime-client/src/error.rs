//! What can go wrong between a client and the daemon.

use std::io;
use std::time::Duration;

use livetime_shm::RecordRingError;

use crate::address::Address;

/// Why a client could not do something.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers there.
    #[error("no timing daemon at {address}: {source}; start one with `livetime timing serve`")]
    NoDaemon {
        /// Where it was looked for.
        address: Address,
        /// Why.
        source: Box<zbus::Error>,
    },
    /// A daemon is there, and has closed the connection at once.
    #[error(
        "the timing daemon at {address} closed the connection: its access rules give user {uid} no role, all \
         its places for clients are taken, or it is ending"
    )]
    TurnedAway {
        /// Where it was looked for.
        address: Address,
        /// Who came.
        uid: u32,
    },
    /// The connection was taken, and no answer came.
    #[error(
        "the timing daemon at {address} does not answer, {} s waited: it is stopped or hangs, or \
         another program has this address; let it go on, or end it and start one with \
         `livetime timing serve`", waited.as_secs_f64()
    )]
    NoAnswer {
        /// Where it was asked.
        address: Address,
        /// How long an answer was waited for.
        waited: Duration,
    },
    /// A copy of the connection that a child process inherited.
    #[error(
        "this connection to the timing daemon is of process {opened_by}, which opened it; open \
         another one in this process"
    )]
    OtherProcess {
        /// The process that it is of.
        opened_by: u32,
    },
    /// A child made by `fork` wants a connection, and the process that it is a copy of has had one.
    #[error(
        "a child made by fork cannot connect to the timing daemon, as process {connected} has before: the \
         threads that read connections are not in the child; call exec behind fork, or fork before \
         anything connects"
    )]
    Forked {
        /// The process that connected first.
        connected: u32,
    },
    /// The daemon does not allow it.
    #[error("the timing daemon refuses: {0}")]
    Denied(String),
    /// The daemon found the arguments wrong, or a bound reached.
    #[error("{0}")]
    Refused(String),
    /// The connection is gone: the daemon has ended, or is being restarted.
    #[error("the timing daemon has gone away")]
    Gone,
    /// The subscription was ended by the daemon because this client did not keep up.
    #[error("the subscription was ended: its ring was full and its rule is disconnect")]
    CutOff,
    /// The ring that was passed cannot be used.
    #[error(transparent)]
    Ring(#[from] RecordRingError),
    /// The system refused something.
    #[error("{step} failed: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The bus or the daemon broke the protocol.
    #[error("D-Bus: {0}")]
    Bus(Box<zbus::Error>),
}

impl ClientError {
    /// Whether a daemon that is found later may do what this one did not.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::NoDaemon { .. } | Self::NoAnswer { .. } | Self::TurnedAway { .. } | Self::Gone
        )
    }

    pub(crate) fn system(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { step, source }
    }
}

impl ClientError {
    fn from_known(error: zbus::fdo::Error) -> Self {
        use zbus::DBusError;
        use zbus::fdo::Error;
        match error {
            Error::AccessDenied(text) => Self::Denied(text),
            Error::ServiceUnknown(_)
            | Error::NameHasNoOwner(_)
            | Error::NoReply(_)
            | Error::Disconnected(_) => Self::Gone,
            Error::ZBus(error) => Self::from(error),
            error => {
                let name = error.name().to_string();
                Self::Refused(error.description().map_or(name, str::to_owned))
            }
        }
    }
}

impl From<zbus::Error> for ClientError {
    fn from(error: zbus::Error) -> Self {
        if let zbus::Error::FDO(known) = error {
            return Self::from_known(*known);
        }
        if let zbus::Error::MethodError(name, text, _) = &error {
            let text = text.clone().unwrap_or_else(|| name.to_string());
            return match name.as_str().rsplit('.').next() {
                Some("AccessDenied") => Self::Denied(text),
                Some("ServiceUnknown" | "NameHasNoOwner" | "NoReply" | "Disconnected") => {
                    Self::Gone
                }
                _ => Self::Refused(text),
            };
        }
        match error {
            zbus::Error::InputOutput(_) => Self::Gone,
            error => Self::Bus(Box::new(error)),
        }
    }
}
