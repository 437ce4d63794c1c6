//! Where the timing daemon is reached.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Name of the environment variable that says where the daemon is.
pub const ADDRESS_VARIABLE: &str = "LIVETIME_TIMING";

/// Where the daemon is reached: a socket of its own, or a bus.
///
/// As text: a path, `session`, `system`, or `bus:` and the address of a bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The daemon's own socket: peer to peer, no broker between.
    Socket(PathBuf),
    /// The session bus.
    SessionBus,
    /// The system bus.
    SystemBus,
    /// A bus at an address.
    Bus(String),
}

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is no address; write a path of a socket, `session`, `system` or `bus:ADDRESS`")]
pub struct AddressError {
    /// The text.
    pub found: String,
}

impl Address {
    /// What `LIVETIME_TIMING` says, else the socket of this user's daemon.
    pub fn usual() -> Self {
        std::env::var(ADDRESS_VARIABLE)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| Self::Socket(Self::usual_socket()))
    }

    /// The socket of this user's daemon: `livetime-timing.sock` in the run-time directory, else in
    /// the directory of temporary files with the user's number.
    pub fn usual_socket() -> PathBuf {
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(directory) if !directory.is_empty() => {
                PathBuf::from(directory).join("livetime-timing.sock")
            }
            _ => {
                let user = rustix::process::getuid().as_raw();
                std::env::temp_dir().join(format!("livetime-timing-{user}.sock"))
            }
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "session" => Ok(Self::SessionBus),
            "system" => Ok(Self::SystemBus),
            "" => Err(AddressError {
                found: text.to_owned(),
            }),
            _ => Ok(match text.strip_prefix("bus:") {
                Some(address) => Self::Bus(address.to_owned()),
                None => Self::Socket(PathBuf::from(text)),
            }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::SessionBus => write!(f, "session"),
            Self::SystemBus => write!(f, "system"),
            Self::Bus(address) => write!(f, "bus:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for text in ["/run/t.sock", "session", "system", "bus:unix:path=/run/bus"] {
            assert_eq!(
                text.parse::<Address>().map(|a| a.to_string()),
                Ok(text.to_owned())
            );
        }
        assert!("".parse::<Address>().is_err());
    }
}
