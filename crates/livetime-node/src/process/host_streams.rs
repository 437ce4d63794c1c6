//! Streams between roles of different hosts: who connects to whom, and whose stream came in.
//!
//! Each host accepts at one address. Of two roles that start together the builder unit connects, or
//! the one behind it; of two where one runs, the one that is started. What connects says
//! in one line which run it is of, who it is, whom it is for and the epoch; anything else is sent
//! away. A stream waits on the shelf until its role is given it.
//!
//! ```text
//! livetime stream KEY UNIT PEER EPOCH            ─►  the stream is theirs from here on
//! livetime datagrams KEY UNIT PEER EPOCH PORT    ─►  ◄─ PORT       and the stream ends
//! ```
//! Sockets for datagrams find each other over such a stream: either side binds one at its own address
//! of the stream and connects it to the other's port. The host answers for its role, which may not
//! have asked yet.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use livetime_wire::{UnitId, UnitKind};

use crate::builder_transport::{
    BuilderTransport, DATAGRAMS, PeerSocket, STREAM, SocketPair, datagrams_at,
};
use crate::role_ends::unit_of;

/// How long a connecting peer may take to say who it is, and a connection to be made.
const PATIENCE: Duration = Duration::from_secs(5);
/// Peers that are heard at the same time, each by a thread of its own; of more the next is heard before
/// others are accepted.
const HEARD_MAX: usize = 64;
/// Time until the next try where none can be accepted, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest first line.
const LINE_MAX: usize = 256;
/// Streams on the shelf; more are sent away.
const SHELF_MAX: usize = 4096;

/// Who has which stream: the unit here, the unit at the other end, the epoch.
pub(super) type StreamKey = (UnitId, UnitId, u64);

/// Why two roles are to have a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// Both start.
    Start,
    /// This one is started while the other runs.
    Restart,
    /// The other is started while this one runs.
    PeerRestart,
    /// Both run, and the stream that they had was cut.
    Cut,
}

impl Occasion {
    /// How long the stream is waited for: where one was cut, its other end may be dead.
    fn patience(self) -> Duration {
        match self {
            Self::Cut => Duration::from_secs(2),
            _ => Duration::from_secs(15),
        }
    }
}

/// The streams of a host.
#[derive(Debug)]
pub(super) struct HostStreams {
    key: String,
    address: SocketAddr,
    shelf: Mutex<BTreeMap<StreamKey, PeerSocket>>,
    arrived: Condvar,
}

impl HostStreams {
    /// Accepts streams of the run with this key at an address, at a port that is free.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn listen(address: std::net::IpAddr, key: &str) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind((address, 0))?;
        let streams = Arc::new(Self {
            key: key.to_owned(),
            address: listener.local_addr()?,
            shelf: Mutex::default(),
            arrived: Condvar::new(),
        });
        let shelf = Arc::downgrade(&streams);
        let thread = std::thread::Builder::new().name("streams".to_owned());
        thread.spawn(move || accept(&listener, &shelf))?;
        Ok(streams)
    }

    /// Where it accepts.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    fn shelf(&self) -> MutexGuard<'_, BTreeMap<StreamKey, PeerSocket>> {
        let locked = self.shelf.lock();
        locked.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn put(&self, key: StreamKey, socket: PeerSocket) {
        let mut shelf = self.shelf();
        // Those that came after nobody waited for them any more, in whose place this one is.
        let (unit, peer, epoch) = key;
        shelf.retain(|(a, b, old), _| (*a, *b) != (unit, peer) || *old >= epoch);
        if shelf.len() < SHELF_MAX {
            shelf.insert(key, socket);
        }
        self.arrived.notify_all();
    }

    /// The socket of a unit to a peer on this host.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn take_local(
        &self,
        key: StreamKey,
        transport: &BuilderTransport,
    ) -> io::Result<PeerSocket> {
        // Whoever asks first makes both ends.
        let mut shelf = self.shelf();
        if let Some(socket) = shelf.remove(&key) {
            return Ok(socket);
        }
        let (unit, peer, epoch) = key;
        let [near, far] = SocketPair::connect(&transport.without_congestion())?.ends;
        shelf.insert((peer, unit, epoch), far);
        Ok(near)
    }

    /// The socket of a unit to a peer on the host that accepts at `at`.
    ///
    /// # Errors
    /// What the system says, or that the peer did not connect.
    pub(super) fn take_remote(
        &self,
        key: StreamKey,
        transport: &BuilderTransport,
        at: &str,
        occasion: Occasion,
    ) -> io::Result<PeerSocket> {
        let (unit, peer, _) = key;
        let is_ours = match occasion {
            Occasion::Start | Occasion::Cut => connects(unit, peer),
            Occasion::Restart => true,
            Occasion::PeerRestart => false,
        };
        if is_ours {
            return self.connect(key, transport, at);
        }
        let until = Instant::now() + occasion.patience();
        let mut shelf = self.shelf();
        loop {
            if let Some(socket) = shelf.remove(&key) {
                return Ok(socket);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let patience = occasion.patience();
                let reason = format!("{peer} did not connect within {patience:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            let waited = self.arrived.wait_timeout(shelf, left);
            shelf = waited.map_or_else(|poisoned| poisoned.into_inner().0, |waited| waited.0);
        }
    }

    fn connect(
        &self,
        (unit, peer, epoch): StreamKey,
        transport: &BuilderTransport,
        at: &str,
    ) -> io::Result<PeerSocket> {
        let no_address = |_| io::Error::other(format!("\"{at}\" is no address with port"));
        let address: SocketAddr = at.parse().map_err(no_address)?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{unit} cannot connect to {at}: {error}"),
            )
        })?;
        let ends = format!("{} {peer} {unit} {epoch}", self.key);
        if !transport.is_udp() {
            stream.write_all(format!("livetime {STREAM} {ends}\n").as_bytes())?;
            return Ok(PeerSocket::Stream(stream));
        }
        let socket = datagrams_at(stream.local_addr()?.ip())?;
        let port = socket.local_addr()?.port();
        stream.write_all(format!("livetime {DATAGRAMS} {ends} {port}\n").as_bytes())?;
        let answer = read_line(&mut stream).and_then(|line| line.parse().ok());
        let port: u16 = answer.ok_or_else(|| {
            io::Error::other(format!("{at} has no socket of {peer} for datagrams"))
        })?;
        socket.connect((stream.peer_addr()?.ip(), port))?;
        Ok(PeerSocket::Datagrams(socket))
    }

    /// Takes in who has connected and has said this line.
    fn meet(&self, mut stream: TcpStream, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let ["livetime", kind, key, unit, peer, epoch, ref port @ ..] = words[..] else {
            return;
        };
        if key != self.key {
            return;
        }
        let socket = match (kind, port) {
            (STREAM, []) => {
                let is_good = stream.set_read_timeout(None).is_ok();
                is_good.then_some(PeerSocket::Stream(stream))
            }
            (DATAGRAMS, [port]) => answer_with_socket(&mut stream, port).ok(),
            _ => None,
        };
        if let (Some(unit), Some(peer), Ok(epoch), Some(socket)) =
            (unit_of(unit), unit_of(peer), epoch.parse(), socket)
        {
            self.put((unit, peer, epoch), socket);
        }
    }
}

/// The socket for datagrams to the port of who has connected, who is told its own.
fn answer_with_socket(stream: &mut TcpStream, port: &str) -> io::Result<PeerSocket> {
    let port: u16 = port.parse().map_err(io::Error::other)?;
    let socket = datagrams_at(stream.local_addr()?.ip())?;
    socket.connect((stream.peer_addr()?.ip(), port))?;
    writeln!(stream, "{}", socket.local_addr()?.port())?;
    Ok(PeerSocket::Datagrams(socket))
}

/// Whether of two units that both start, or both run, this one connects.
fn connects(unit: UnitId, peer: UnitId) -> bool {
    match (unit.kind, peer.kind) {
        (UnitKind::Builder, _) => true,
        (_, UnitKind::Builder) => false,
        (one, other) => (one, unit.index) > (other, peer.index),
    }
}

/// The first line, byte by byte: what follows it is the role's. All of it is there within [`PATIENCE`].
fn read_line(stream: &mut TcpStream) -> Option<String> {
    let until = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LINE_MAX {
        let left = until.saturating_duration_since(Instant::now());
        // A time of 0 is refused: it would be one without end.
        stream.set_read_timeout(Some(left)).ok()?;
        stream.read_exact(&mut byte).ok()?;
        if byte[0] == b'\n' {
            return String::from_utf8(line).ok();
        }
        line.push(byte[0]);
    }
    None
}

/// Accepts until nobody has the streams any more. Who connects and says nothing keeps nobody else out.
fn accept(listener: &TcpListener, streams: &Weak<HostStreams>) {
    // Each thread that hears somebody has one more of it.
    let heard = Arc::new(());
    loop {
        let accepted = listener.accept();
        if streams.strong_count() == 0 {
            return;
        }
        match accepted {
            Ok((stream, _)) if Arc::strong_count(&heard) <= HEARD_MAX => {
                hear_aside(stream, streams, Arc::clone(&heard));
            }
            Ok((stream, _)) => hear(stream, streams),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Hears who has connected, for as long as that may take.
fn hear(mut stream: TcpStream, streams: &Weak<HostStreams>) {
    if let Some(line) = read_line(&mut stream)
        && let Some(streams) = streams.upgrade()
    {
        streams.meet(stream, &line);
    }
}

/// The same on a thread of its own, which has `place` meanwhile; here where none is to be had.
fn hear_aside(stream: TcpStream, streams: &Weak<HostStreams>, place: Arc<()>) {
    let (give, take) = channel::<TcpStream>();
    let of_thread = Weak::clone(streams);
    let thread = std::thread::Builder::new().name("stream".to_owned());
    let started = thread.spawn(move || {
        if let Ok(stream) = take.recv() {
            hear(stream, &of_thread);
        }
        drop(place);
    });
    match started {
        Ok(_) => {
            // It waits for that and nothing else.
            let _takes = give.send(stream);
        }
        Err(_) => hear(stream, streams),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const EVM: UnitId = UnitId::EVENT_MANAGER;

    const UDP: BuilderTransport = BuilderTransport::Udp {
        receive_buffer_bytes: 0,
    };
    const TCP: BuilderTransport = BuilderTransport::Tcp { congestion: None };

    fn ends_are_joined(a: PeerSocket, b: PeerSocket) {
        let mut byte = [0];
        match (a, b) {
            (PeerSocket::Stream(mut a), PeerSocket::Stream(mut b)) => {
                a.write_all(b"x").unwrap();
                b.read_exact(&mut byte).unwrap();
            }
            (PeerSocket::Datagrams(a), PeerSocket::Datagrams(b)) => {
                a.send(b"x").unwrap();
                b.recv(&mut byte).unwrap();
                assert_eq!(a.local_addr().unwrap(), b.peer_addr().unwrap());
            }
            ends => panic!("{ends:?}"),
        }
        assert_eq!(byte, *b"x");
    }

    #[test]
    fn a_socket_for_which_nobody_waits_any_more_makes_room_for_the_next() {
        let host = HostStreams::listen(Ipv4Addr::LOCALHOST.into(), "k").unwrap();
        let unit = UnitId::builder(3);
        let [late, next] = SocketPair::connect(&TCP).unwrap().ends;
        host.put((EVM, unit, 5), late);
        let [other, _] = SocketPair::connect(&TCP).unwrap().ends;
        host.put((unit, EVM, 5), other);
        host.put((EVM, unit, 6), next);
        let kept: Vec<StreamKey> = host.shelf().keys().copied().collect();
        assert_eq!(kept.len(), 2);
        assert!(kept.contains(&(EVM, unit, 6)) && kept.contains(&(unit, EVM, 5)));
    }

    #[test]
    fn roles_of_two_hosts_and_of_one_are_joined() {
        for transport in [TCP, UDP] {
            are_joined(&transport);
        }
    }

    fn are_joined(transport: &BuilderTransport) {
        let host = || HostStreams::listen(Ipv4Addr::LOCALHOST.into(), "k").unwrap();
        let (a, b) = (host(), host());
        let unit = UnitId::builder(3);
        let at = a.address().to_string();
        let near = b
            .take_remote((unit, EVM, 7), transport, &at, Occasion::Start)
            .unwrap();
        let far = a.take_remote((EVM, unit, 7), transport, "unused", Occasion::Start);
        ends_are_joined(near, far.unwrap());
        // Whoever is started while the other runs connects.
        let filter = UnitId::filter(1);
        for (new, old) in [(filter, unit), (unit, filter)] {
            let near = b
                .take_remote((new, old, 6), transport, &at, Occasion::Restart)
                .unwrap();
            let far = a.take_remote((old, new, 6), transport, "unused", Occasion::PeerRestart);
            ends_are_joined(near, far.unwrap());
        }
        let near = a.take_local((unit, EVM, 8), transport).unwrap();
        let far = a.take_local((EVM, unit, 8), transport).unwrap();
        ends_are_joined(near, far);
        assert!(a.shelf().is_empty());
        let none = a.take_remote((EVM, unit, 9), transport, "unused", Occasion::Cut);
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn who_is_not_of_the_run_is_sent_away() {
        let host = HostStreams::listen(Ipv4Addr::LOCALHOST.into(), "k").unwrap();
        for line in [
            "livetime stream other evm bu0 1\n".to_owned(),
            "livetime stream k evm nobody 1\n".to_owned(),
            "livetime stream k evm bu0 1 4000\n".to_owned(),
            "livetime datagrams k evm bu0 1\n".to_owned(),
            "livetime datagrams k evm bu0 1 70000\n".to_owned(),
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "x".repeat(LINE_MAX + 1),
        ] {
            let mut stream = TcpStream::connect(host.address()).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            // It hangs up, or resets what it has not read.
            let mut rest = Vec::new();
            let end = stream.read_to_end(&mut rest);
            assert!(end.is_err() || rest.is_empty(), "{line}");
        }
        assert!(host.shelf().is_empty());
    }

    #[test]
    fn who_connects_and_says_nothing_keeps_nobody_out() {
        let host = || HostStreams::listen(Ipv4Addr::LOCALHOST.into(), "k").unwrap();
        let (a, b) = (host(), host());
        // Heard one after the other they would take longer than anybody waits for a stream.
        let silent: Vec<TcpStream> = (0..4)
            .map(|_| TcpStream::connect(a.address()).unwrap())
            .collect();
        let (unit, at) = (UnitId::builder(3), a.address().to_string());
        let near = b.take_remote((unit, EVM, 7), &TCP, &at, Occasion::Start);
        let far = a.take_remote((EVM, unit, 7), &TCP, "unused", Occasion::Start);
        ends_are_joined(near.unwrap(), far.unwrap());
        drop(silent);
    }

    #[test]
    fn an_accept_that_fails_is_not_the_last_one() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // Whenever nobody has connected yet it fails.
        listener.set_nonblocking(true).unwrap();
        let streams = Arc::new(HostStreams {
            key: "k".to_owned(),
            address: listener.local_addr().unwrap(),
            shelf: Mutex::default(),
            arrived: Condvar::new(),
        });
        let shelf = Arc::downgrade(&streams);
        let thread = std::thread::spawn(move || accept(&listener, &shelf));
        let (b, unit) = (
            HostStreams::listen(Ipv4Addr::LOCALHOST.into(), "k").unwrap(),
            UnitId::builder(0),
        );
        let at = streams.address().to_string();
        for epoch in 1..5 {
            let near = b.take_remote((unit, EVM, epoch), &TCP, &at, Occasion::Start);
            let far = streams.take_remote((EVM, unit, epoch), &TCP, "unused", Occasion::Start);
            ends_are_joined(near.unwrap(), far.unwrap());
        }
        drop(streams);
        thread.join().unwrap();
    }

    #[test]
    fn of_two_units_exactly_one_connects() {
        let units = [
            EVM,
            UnitId::builder(0),
            UnitId::readout(1),
            UnitId::SUPERVISOR,
        ];
        for a in units {
            for b in units.into_iter().filter(|b| *b != a) {
                assert_ne!(connects(a, b), connects(b, a), "{a} {b}");
            }
        }
    }
}
