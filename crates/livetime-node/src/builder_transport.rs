//! What carries messages and payload between readout units, event manager and builder units, and
//! whole events from there to filter units.
//!
//! Rings of shared memory, with fragments left in the pages of their readout unit, or TCP streams or
//! UDP sockets of this machine's loopback, one per pair of units, with payload sent into pages of the
//! receiver. UDP may lose, repeat and reorder, which only readout units, event manager and builder
//! units make good between them. The link itself is in [`crate::transport`]; which pairs there are
//! says [`crate::chain_plan`].

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::transport::set_congestion;

/// Congestion control of streams for which none is named. Every Linux has it and lets any program use
/// it. That of the system may be one that paces by timers, as `bbr` does: a burst of fragments then waits
/// for them, however empty the network is.
pub const DEFAULT_CONGESTION: &str = "reno";

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
        /// Name of the congestion control, such as `cubic`; [`DEFAULT_CONGESTION`] without one.
        congestion: Option<String>,
    },
    /// UDP datagrams.
    Udp {
        /// Bytes asked for the receive buffer of each socket; 0 for as many as the credits need.
        receive_buffer_bytes: u64,
    },
}

impl BuilderTransport {
    /// Whether payload is sent and does not stay where it is.
    pub fn is_network(&self) -> bool {
        *self != Self::Shm
    }

    /// The congestion control that is asked for, where there are streams.
    pub fn congestion(&self) -> Option<&str> {
        match self {
            Self::Shm | Self::Udp { .. } => None,
            Self::Tcp { congestion } => Some(congestion.as_deref().unwrap_or(DEFAULT_CONGESTION)),
        }
    }

    /// The same with the congestion control that no machine refuses; that which is asked for is set
    /// later.
    pub(crate) fn without_congestion(&self) -> Self {
        match self {
            Self::Tcp { .. } => Self::Tcp { congestion: None },
            other => other.clone(),
        }
    }

    /// Whether messages go in datagrams, which may be lost.
    pub fn is_udp(&self) -> bool {
        matches!(self, Self::Udp { .. })
    }

    /// What the sockets of a pair of units are called where their descriptors are passed on.
    pub(crate) fn socket_kind(&self) -> &'static str {
        match self.is_udp() {
            true => DATAGRAMS,
            false => STREAM,
        }
    }
}

impl fmt::Display for BuilderTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shm",
            Self::Tcp { .. } => "tcp",
            Self::Udp { .. } => "udp",
        })
    }
}

/// What a socket to a peer is called where its descriptor is passed on.
pub(crate) const STREAM: &str = "stream";
/// The same of one for datagrams.
pub(crate) const DATAGRAMS: &str = "datagrams";

/// One end of what is between two units.
#[derive(Debug)]
pub enum PeerSocket {
    /// A TCP stream.
    Stream(TcpStream),
    /// A connected UDP socket.
    Datagrams(UdpSocket),
}

impl PeerSocket {
    /// What it is called where its descriptor is passed on.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stream(_) => STREAM,
            Self::Datagrams(_) => DATAGRAMS,
        }
    }

    /// The socket of a descriptor of that kind.
    pub(crate) fn of_kind(kind: &str, fd: OwnedFd) -> Option<Self> {
        match kind {
            STREAM => Some(Self::Stream(fd.into())),
            DATAGRAMS => Some(Self::Datagrams(fd.into())),
            _ => None,
        }
    }

    /// The stream, if it is one.
    pub fn into_stream(self) -> Option<TcpStream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Datagrams(_) => None,
        }
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stream(stream) => stream.as_fd(),
            Self::Datagrams(socket) => socket.as_fd(),
        }
    }
}

impl From<PeerSocket> for OwnedFd {
    fn from(socket: PeerSocket) -> Self {
        match socket {
            PeerSocket::Stream(stream) => stream.into(),
            PeerSocket::Datagrams(socket) => socket.into(),
        }
    }
}

/// Two connected sockets on this machine, and of streams the congestion control in force on both.
pub(crate) struct SocketPair {
    pub(crate) ends: [PeerSocket; 2],
    pub(crate) congestion: Option<String>,
}

impl SocketPair {
    /// Connects two sockets of a transport over the network.
    ///
    /// # Errors
    /// What the system says, and what helps; a congestion control that is not allowed is named with
    /// those that are.
    pub(crate) fn connect(transport: &BuilderTransport) -> io::Result<Self> {
        if transport.is_udp() {
            let connect = || -> io::Result<_> {
                let near = datagrams_at(Ipv4Addr::LOCALHOST.into())?;
                let far = datagrams_at(Ipv4Addr::LOCALHOST.into())?;
                near.connect(far.local_addr()?)?;
                far.connect(near.local_addr()?)?;
                Ok((near, far))
            };
            let (near, far) = connect().map_err(on_loopback)?;
            return Ok(Self {
                ends: [near, far].map(PeerSocket::Datagrams),
                congestion: None,
            });
        }
        let StreamPair { ends, congestion } = StreamPair::connect(transport.congestion())?;
        Ok(Self {
            ends: ends.map(PeerSocket::Stream),
            congestion: Some(congestion),
        })
    }
}

/// A socket for datagrams at an address of this machine, at a port that is free.
pub(crate) fn datagrams_at(address: IpAddr) -> io::Result<UdpSocket> {
    UdpSocket::bind(SocketAddr::new(address, 0))
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
        let ends = connected().map_err(on_loopback)?;
        let mut in_force = String::new();
        for stream in &ends {
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
            ends,
            congestion: in_force,
        })
    }
}

/// Two connected streams on this machine.
fn connected() -> io::Result<[TcpStream; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    loop {
        let (far, from) = listener.accept()?;
        // Another program may have come in between; it is sent away.
        if from == near.local_addr()? {
            return Ok([near, far]);
        }
    }
}

/// The system's reason with the address, and what helps where something of this machine is missing.
fn on_loopback(error: io::Error) -> io::Error {
    let help = match error.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => {
            "; no port may be free: end what holds them, or widen `net.ipv4.ip_local_port_range`"
        }
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            "; the loopback device may be down: `ip link set lo up`"
        }
        _ => "",
    };
    let message = format!("{} on the loopback: {error}{help}", Ipv4Addr::LOCALHOST);
    io::Error::new(error.kind(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loopback_lacks_is_said_with_its_address_and_what_helps() {
        for (kind, help) in [
            (io::ErrorKind::NetworkUnreachable, "`ip link set lo up`"),
            (io::ErrorKind::AddrInUse, "`net.ipv4.ip_local_port_range`"),
            (
                io::ErrorKind::AddrNotAvailable,
                "`net.ipv4.ip_local_port_range`",
            ),
        ] {
            let said = on_loopback(kind.into());
            assert_eq!(said.kind(), kind);
            let said = said.to_string();
            for part in ["127.0.0.1", &io::Error::from(kind).to_string(), help] {
                assert!(said.contains(part), "{said}");
            }
        }
    }

    #[test]
    fn streams_for_which_no_congestion_control_is_named_do_not_take_that_of_the_system() {
        let tcp = BuilderTransport::Tcp { congestion: None };
        let pair = SocketPair::connect(&tcp).unwrap();
        assert_eq!(pair.congestion.as_deref(), Some(DEFAULT_CONGESTION));
        assert_eq!(BuilderTransport::Shm.congestion(), None);
    }

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
