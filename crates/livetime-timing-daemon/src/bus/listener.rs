//! Peers on a socket and the connection to a bus.
//!
//! Each peer has a thread that does its handshake, sends its signals and notices its end; peers
//! beyond [`PEERS_MAX`] are turned away, and those that say nothing are dropped ([`super::handshakes`]). The kernel says who a peer is, not the peer.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zbus::connection::Builder;
use zbus::names::BusName;
use zbus::{Connection, Guid, block_on, fdo};

use super::mailbox::Mailbox;
use super::peer_stream::PeerStream;
use super::readiness::Readiness;
use super::server::{Link, Server};
use super::{BUS_NAME, to_error};
use crate::control::places_for;

/// Peers connected at a time; the last of them are admins.
pub const PEERS_MAX: usize = 512;

/// Which bus to be on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusChoice {
    /// The system bus.
    System,
    /// The session bus.
    Session,
    /// A bus at an address.
    Address(String),
}

impl fmt::Display for BusChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("the system bus"),
            Self::Session => f.write_str("the session bus"),
            Self::Address(address) => write!(f, "the bus at {address}"),
        }
    }
}

/// Why the daemon cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The socket cannot be made.
    #[error("cannot listen on {path}: {source}")]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A daemon listens there already.
    #[error("a daemon listens on {path} already")]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// Something else is there.
    #[error(
        "cannot listen on {path}: {found} is there and not the socket of a daemon that has ended; move it \
         away, or name another place"
    )]
    Foreign {
        /// Where.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// The bus refuses.
    #[error("cannot serve {BUS_NAME} on the bus: {0}")]
    Bus(#[from] zbus::Error),
    /// Somebody else has the name.
    #[error(
        "cannot serve {BUS_NAME} on the bus: {owner} has the name; end that one, or serve on another bus"
    )]
    NameTaken {
        /// Its connection, and its process where the bus knows.
        owner: String,
    },
    /// No thread could be started.
    #[error("no thread for connections: {}", livetime_shm::with_limit(.0))]
    Thread(io::Error),
}

/// A socket that is listened on; its file is removed at the end, and nobody listens any more.
#[derive(Debug)]
pub struct PeerSocket {
    path: PathBuf,
    /// Device and number of the file that was made.
    made: (u64, u64),
    listener: UnixListener,
    accepting: Option<JoinHandle<()>>,
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let data = std::fs::symlink_metadata(path)?;
    Ok((data.dev(), data.ino()))
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        // What somebody else has put there meanwhile is theirs.
        if identity(&self.path).is_ok_and(|there| there == self.made) {
            // Nothing is lost when it stays: the next daemon takes it over.
            let _ = std::fs::remove_file(&self.path);
        }
        // Ends the wait for the next peer; a socket that cannot is closed already.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        // A panic was reported by the program's hook.
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

/// Listens for peers on a socket.
///
/// # Errors
/// [`ListenError`]; a socket that a dead daemon left is taken over.
pub fn listen(server: &Arc<Server>, path: &Path) -> Result<PeerSocket, ListenError> {
    let failed = |source| ListenError::Socket {
        path: path.to_owned(),
        source,
    };
    clear_place(path)?;
    let listener = UnixListener::bind(path).map_err(failed)?;
    // Everybody may connect: what one may do is decided by the user behind the connection.
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(path, everybody).map_err(failed)?;
    let made = identity(path).map_err(failed)?;
    let mut socket = PeerSocket {
        path: path.to_owned(),
        made,
        listener: listener.try_clone().map_err(failed)?,
        accepting: None,
    };
    let server = Arc::clone(server);
    let readiness = Readiness::start().map_err(ListenError::Thread)?;
    let accepting = std::thread::Builder::new()
        .name("timing-listener".to_owned())
        .spawn(move || accept(&server, &listener, &readiness));
    socket.accepting = Some(accepting.map_err(ListenError::Thread)?);
    Ok(socket)
}

/// Removes the socket that a dead daemon left, and nothing else.
pub(crate) fn clear_place(path: &Path) -> Result<(), ListenError> {
    let path_buf = || path.to_owned();
    let failed = |source| ListenError::Socket {
        path: path_buf(),
        source,
    };
    let kind = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(there) => there.file_type(),
    };
    match UnixStream::connect(path) {
        Ok(_) => return Err(ListenError::InUse { path: path_buf() }),
        // Nobody listens there.
        Err(error) if kind.is_socket() && error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) if kind.is_socket() => return Err(failed(error)),
        Err(_) => {
            let found = match kind {
                _ if kind.is_symlink() => "a symbolic link",
                _ if kind.is_dir() => "a folder",
                _ if kind.is_file() => "a file",
                _ => "a device or pipe",
            };
            return Err(ListenError::Foreign {
                path: path_buf(),
                found,
            });
        }
    }
    std::fs::remove_file(path).map_err(failed)
}

fn accept(server: &Arc<Server>, listener: &UnixListener, readiness: &Arc<Readiness>) {
    let peers = Arc::new(AtomicUsize::new(0));
    while !server.is_quitting() {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // It was shut down: the daemon has ended.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(_) => {
                // No descriptors left: those that wait do so until a peer has gone.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        let before = peers.fetch_add(1, Ordering::SeqCst);
        if before >= PEERS_MAX {
            peers.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let server = Arc::clone(server);
        let readiness = Arc::clone(readiness);
        let count = Arc::clone(&peers);
        let thread = std::thread::Builder::new()
            .name("timing-peer".to_owned())
            .spawn(move || {
                // A failed handshake is the peer's affair.
                let _ = serve_peer(&server, stream, before, &readiness);
                count.fetch_sub(1, Ordering::SeqCst);
            });
        if thread.is_err() {
            peers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Serves one peer that came when so many were there `before` it.
fn serve_peer(
    server: &Arc<Server>,
    stream: UnixStream,
    before: usize,
    readiness: &Arc<Readiness>,
) -> fdo::Result<()> {
    let credentials = rustix::net::sockopt::socket_peercred(&stream)
        .map_err(|errno| fdo::Error::AuthFailed(errno.to_string()))?;
    let uid = credentials.uid.as_raw();
    let pid = u32::try_from(credentials.pid.as_raw_nonzero().get()).ok();
    let gids = groups_of(pid, credentials.gid.as_raw());
    let stream = PeerStream::new(stream, uid, readiness)
        .map_err(|error| fdo::Error::IOError(error.to_string()))?;
    let client = server
        .control
        .client_arrived(uid, &gids, pid, "peer")
        .map_err(to_error)?;
    let served = if before < places_for(client.role, PEERS_MAX) {
        block_on(serve_client(server, stream, &client))
    } else {
        Err(fdo::Error::LimitsExceeded(
            "all places for peers are taken".to_owned(),
        ))
    };
    block_on(server.client_gone(&client));
    served
}

async fn serve_client(
    server: &Arc<Server>,
    stream: PeerStream,
    client: &crate::control::Client,
) -> fdo::Result<()> {
    let guid = Guid::generate();
    let key = guid.to_string();
    let link = Arc::new(Link {
        connection: OnceLock::new(),
        mailbox: Mailbox::default(),
        client: Some(client.clone()),
        hang_up: Some(stream.hang_up()),
    });
    server.add_link(key.clone(), Arc::clone(&link));
    let served = async {
        let builder = Builder::socket(stream).server(guid).p2p();
        let mut builder = server.serve_base(builder);
        let early = server.objects();
        for object in &early {
            builder = server.serve_early(builder, object);
        }
        let handshake = server
            .handshakes
            .within_time(&key, Instant::now(), builder.build());
        let Some(done) = handshake.await else {
            return Ok(());
        };
        let connection = done?;
        let _ = link.connection.set(connection.clone());
        server.update_objects(&connection, &early).await?;
        link.mailbox.send_until_closed(&connection).await;
        Ok::<(), zbus::Error>(())
    }
    .await;
    server.remove_link(&key);
    Ok(served?)
}

/// The groups of a process, as the kernel lists them: the main one, and those in `status`.
fn groups_of(pid: Option<u32>, gid: u32) -> Vec<u32> {
    let mut gids = vec![gid];
    let status = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok());
    if let Some(line) = status
        .as_deref()
        .and_then(|status| status.lines().find_map(|line| line.strip_prefix("Groups:")))
    {
        gids.extend(
            line.split_whitespace()
                .filter_map(|word| word.parse::<u32>().ok()),
        );
    }
    gids
}

/// Serves on a bus too, under [`BUS_NAME`].
///
/// # Errors
/// [`ListenError::Bus`] when there is none, or when the name is taken.
pub fn join_bus(server: &Arc<Server>, choice: &BusChoice) -> Result<(), ListenError> {
    let builder = match choice {
        BusChoice::System => Builder::system(),
        BusChoice::Session => Builder::session(),
        BusChoice::Address(address) => Builder::address(address.as_str()),
    };
    let mut builder = server.serve_base(builder);
    let early = server.objects();
    for object in &early {
        builder = server.serve_early(builder, object);
    }
    let connection = block_on(builder.build())?;
    // Before anybody can call: a caller that leaves at once is noticed as well.
    let names = block_on(fdo::DBusProxy::new(&connection))?;
    let changes = block_on(names.receive_name_owner_changed())?;
    block_on(take_name(&connection, &names))?;
    let link = Arc::new(Link::default());
    let _ = link.connection.set(connection.clone());
    let key = format!("bus {choice:?}");
    server.add_link(key.clone(), Arc::clone(&link));
    let updated = block_on(server.update_objects(&connection, &early));
    updated.map_err(zbus::Error::from)?;
    let (watching, bus) = (Arc::clone(server), connection.clone());
    std::thread::Builder::new()
        .name("timing-bus-names".to_owned())
        .spawn(move || block_on(watch_names(&watching, &bus, changes)))
        .map_err(ListenError::Thread)?;
    let (server, choice) = (Arc::clone(server), choice.clone());
    std::thread::Builder::new()
        .name("timing-bus-signals".to_owned())
        .spawn(move || {
            block_on(link.mailbox.send_until_closed(&connection));
            if !server.is_quitting() {
                block_on(server.bus_gone(&key, &choice, &connection));
            }
        })
        .map_err(ListenError::Thread)?;
    Ok(())
}

/// Takes the name on the bus for good: a second daemon neither gets it nor waits for it.
async fn take_name(connection: &Connection, names: &fdo::DBusProxy<'_>) -> Result<(), ListenError> {
    let flags = fdo::RequestNameFlags::DO_NOT_QUEUE;
    match connection.request_name_with_flags(BUS_NAME, flags).await {
        Err(zbus::Error::NameTaken) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Ok(()),
    }
    let name = BusName::try_from(BUS_NAME)?;
    let Ok(owner) = names.get_name_owner(name).await else {
        let owner = "somebody who has left meanwhile".to_owned();
        return Err(ListenError::NameTaken { owner });
    };
    let pid = names.get_connection_unix_process_id(owner.clone().into());
    let owner = match pid.await {
        Ok(pid) => format!("process {pid} ({owner})"),
        Err(_) => owner.to_string(),
    };
    Err(ListenError::NameTaken { owner })
}

/// Notices callers that leave the bus.
async fn watch_names(
    server: &Arc<Server>,
    bus: &Connection,
    mut changes: fdo::NameOwnerChangedStream,
) {
    while let Some(change) = std::future::poll_fn(|context| {
        futures_core::Stream::poll_next(std::pin::Pin::new(&mut changes), context)
    })
    .await
    {
        if let Ok(arguments) = change.args()
            && arguments.new_owner().is_none()
        {
            server.bus_name_gone(bus, arguments.name().as_str()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_socket_of_a_dead_daemon_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(clear_place(&at("nothing")).is_ok());
        std::fs::write(at("file"), "mine").unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        drop(UnixListener::bind(at("dead")).unwrap());
        let _listening = UnixListener::bind(at("alive")).unwrap();
        for (name, of) in [
            ("to_file", "file"),
            ("to_dead", "dead"),
            ("to_none", "none"),
        ] {
            std::os::unix::fs::symlink(at(of), at(name)).unwrap();
        }
        for (name, said) in [
            ("file", "a file is there"),
            ("folder", "a folder is there"),
            ("to_file", "a symbolic link is there"),
            ("to_dead", "a symbolic link is there"),
            ("to_none", "a symbolic link is there"),
            ("alive", "a daemon listens on"),
        ] {
            let error = clear_place(&at(name)).unwrap_err().to_string();
            assert!(error.contains(said), "{name}: {error}");
            assert!(std::fs::symlink_metadata(at(name)).is_ok(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "mine");
        assert!(clear_place(&at("dead")).is_ok());
        assert!(std::fs::symlink_metadata(at("dead")).is_err());
    }
}
