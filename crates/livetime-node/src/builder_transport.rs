//! What carries messages and payload between readout units, event manager and builder units, and
//! whole events from there to filter units.
//!
//! Rings of shared memory, with fragments left in the pages of their readout unit, or TCP streams of
//! this machine's loopback, one per pair of units, with payload sent into pages of the receiver.
//! The link itself is in [`crate::transport`]; which pairs there are says [`crate::chain_plan`].

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::transport::set_congestion;

/// Congestion controls of this machine that any program may use.
const ALLOWED_FILE: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// What carries messages and payload of one stage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BuilderTransport {
    /// Rings; payload stays where the links put it.
    #[default]
    Shm,
    /// TCP streams.
    Tcp {
        /// Name of the congestion control, such as `reno`; that of the system without one.
        congestion: Option<String>,
    },
}

impl BuilderTransport {
    /// Whether payload is sent and does not stay where it is.
    pub fn is_network(&self) -> bool {
        *self != Self::Shm
    }

    /// The congestion control that is asked for.
    pub fn congestion(&self) -> Option<&str> {
        match self {
            Self::Shm => None,
            Self::Tcp { congestion } => congestion.as_deref(),
        }
    }
}

impl fmt::Display for BuilderTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shm",
            Self::Tcp { .. } => "tcp",
        })
    }
}

/// Two connected streams on this machine, and the congestion control in force on both.
pub(crate) struct StreamPair {
    pub(crate) ends: [TcpStream; 2],
    pub(crate) congestion: String,
}

impl StreamPair {
    /// Connects two streams.
    ///
    /// # Errors
    /// What the system says; a congestion control that is not allowed is named with those that are.
    pub(crate) fn connect(congestion: Option<&str>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        // Another program may have come in between; it is sent away.
        let far = loop {
            let (far, from) = listener.accept()?;
            if from == near.local_addr()? {
                break far;
            }
        };
        let mut in_force = String::new();
        for stream in [&near, &far] {
            in_force = set_congestion(stream, congestion).map_err(|error| {
                let name = congestion.unwrap_or_default();
                let allowed = std::fs::read_to_string(ALLOWED_FILE).unwrap_or_default();
                let allowed = allowed.trim();
                let message = format!(
                    "congestion control \"{name}\" is refused ({error}); this machine allows: {allowed}"
                );
                io::Error::new(error.kind(), message)
            })?;
        }
        Ok(Self {
            ends: [near, far],
            congestion: in_force,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_congestion_control_is_named_with_the_allowed_ones() {
        let pair = StreamPair::connect(None).unwrap();
        assert!(!pair.congestion.is_empty());
        let error = StreamPair::connect(Some("carrier-pigeon")).err().unwrap();
        let text = error.to_string();
        assert!(
            text.contains("carrier-pigeon") && text.contains(&pair.congestion),
            "{text}"
        );
    }
}
