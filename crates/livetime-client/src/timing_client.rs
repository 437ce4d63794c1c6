//! The daemon's control over D-Bus: sinks, conditions, subscriptions, injection, schedules.
//!
//! Calls wait for their answer. Bulk data and records never go through messages: they are passed
//! as descriptors. Any stock D-Bus tool can do the same; `docs/timing.md` lists the members.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use livetime_shm::{PeerWatch, WakeSource};
use livetime_wire::timing_message::EventId;
use livetime_wire::{TaiNs, TimingMessage};
use zbus::connection::Builder;
use zbus::{Connection, DynamicType, Fd, OwnedObjectPath, Variant, block_on};

use crate::address::Address;
use crate::deadline::{block_on_until, connect_until};
use crate::error::ClientError;
use crate::subscription::{Subscription, SubscriptionOptions};

/// Memory of the ring, the two descriptors of its wake-ups, number, epoch.
type SubscribeReply = (zbus::OwnedFd, zbus::OwnedFd, zbus::OwnedFd, u32, u32);

const NAME: &str = "org.livetime.Timing1";
const ROOT: &str = "/org/livetime/Timing1";
const RECEIVER: &str = "/org/livetime/Timing1/tr0";
/// Longest wait for an answer, and for a connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// The process that connected first, 0 before. The D-Bus library keeps its threads for the rest of a
/// process, and a child made by `fork` has the memory that speaks of them without having them.
static CONNECTED: AtomicU32 = AtomicU32::new(0);

/// Takes note that this process connects; refuses where it is a copy of one that has connected, since a
/// connection would wait for threads that are not there.
fn note_process(connected: &AtomicU32, process: u32) -> Result<(), ClientError> {
    // Relaxed: no other memory hangs on it, and fork copies it as it is.
    match connected.compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed) {
        Err(other) if other != process => Err(ClientError::Forked { connected: other }),
        _ => Ok(()),
    }
}

/// Which messages a condition matches, and when its action is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    /// Event ID.
    pub id: u64,
    /// Bits of it that are compared; leading ones in hardware, any in software sinks.
    pub mask: u64,
    /// Deadline of the action minus time of the message, ns.
    pub offset_ns: i64,
    /// Also deliver what is late, early or in conflict (delayed is always delivered).
    pub accept_all: bool,
}

impl Filter {
    /// Every message.
    pub const ALL: Self = Self {
        id: 0,
        mask: 0,
        offset_ns: 0,
        accept_all: true,
    };

    /// The messages of one group of equipment, in the current ID format.
    pub fn group(group: u16) -> Self {
        Self {
            id: 1 << 60 | u64::from(group & 0xFFF) << 48,
            mask: 0xFFFF << 48,
            ..Self::ALL
        }
    }

    /// The messages of one group and number, in the current ID format.
    pub fn number(group: u16, number: u16) -> Self {
        let of_group = Self::group(group);
        Self {
            id: of_group.id | u64::from(number & 0xFFF) << 36,
            mask: of_group.mask | 0xFFF << 36,
            ..of_group
        }
    }
}

/// An action of the flight recorder: event ID, parameter, deadline, executed, flags, and from
/// execution to delivery \[ns\].
pub type FlownAction = (u64, u64, u64, u64, u16, u32);

/// A connection to the daemon, of the process that made it.
///
/// A child process that inherited a copy of it can drop the copy, which the daemon and this
/// process do not notice; calls there are refused.
#[derive(Debug)]
pub struct TimingClient {
    /// Taken when it is dropped.
    connection: Option<Connection>,
    watch: PeerWatch,
    address: Address,
    /// The process that it is of.
    process: u32,
}

impl Drop for TimingClient {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A child has a copy of this memory, but the kernel's objects are those of its parent:
            // closing in order would take the parent's socket out of what its thread polls.
            std::mem::forget(self.connection.take());
        }
    }
}

impl TimingClient {
    /// Connects, within 20 s.
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`] when nobody is there, [`ClientError::NoAnswer`] when somebody is and
    /// says nothing, [`ClientError::TurnedAway`] when it closes the connection, [`ClientError::Forked`] in
    /// a child made by `fork` of a process that has connected.
    pub fn connect(address: &Address) -> Result<Self, ClientError> {
        Self::connect_within(address, PATIENCE)
    }

    pub(crate) fn connect_within(
        address: &Address,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let until = Instant::now() + patience;
        let no_daemon = |source| ClientError::NoDaemon {
            address: address.clone(),
            source: Box::new(source),
        };
        let no_answer = || ClientError::NoAnswer {
            address: address.clone(),
            waited: patience,
        };
        let (builder, socket) = match address {
            Address::Socket(path) => {
                let stream = connect_until(path, until).map_err(|e| no_daemon(e.into()))?;
                let stream = stream.ok_or_else(no_answer)?;
                let watched = stream.try_clone().map_err(|e| no_daemon(e.into()))?;
                (Builder::unix_stream(stream).p2p(), Some(watched))
            }
            Address::SessionBus => (Builder::session(), None),
            Address::SystemBus => (Builder::system(), None),
            Address::Bus(bus) => (Builder::address(bus.as_str()), None),
        };
        let is_bus = socket.is_none();
        note_process(&CONNECTED, std::process::id())?;
        let connecting = async {
            let connection = builder.method_timeout(PATIENCE).build().await?;
            let watch = match socket {
                Some(socket) => PeerWatch::socket(socket.into()),
                None => watch_owner(&connection).await?,
            };
            Ok((connection, watch))
        };
        let connected = block_on_until(until, connecting);
        let connected = connected.map_err(ClientError::system("starting a thread"))?;
        let (connection, watch) =
            connected
                .ok_or_else(no_answer)?
                .map_err(|error| match error {
                    zbus::Error::InputOutput(_) if !is_bus => ClientError::TurnedAway {
                        address: address.clone(),
                        uid: rustix::process::getuid().as_raw(),
                    },
                    error => no_daemon(error),
                })?;
        Ok(Self {
            connection: Some(connection),
            watch,
            address: address.clone(),
            process: std::process::id(),
        })
    }

    /// The connection, for signals and what else stock tools do.
    pub fn connection(&self) -> &Connection {
        let connection = self.connection.as_ref();
        connection.expect("it is taken only when the client is dropped")
    }

    /// Waits for the answer to a call.
    fn wait<T>(&self, call: impl Future<Output = zbus::Result<T>>) -> Result<T, ClientError> {
        if std::process::id() != self.process {
            // Its answer would reach nobody: what reads the socket is a thread of the parent.
            return Err(ClientError::OtherProcess {
                opened_by: self.process,
            });
        }
        block_on(call).map_err(|error| match &error {
            zbus::Error::InputOutput(cause) if cause.kind() == io::ErrorKind::TimedOut => {
                ClientError::NoAnswer {
                    address: self.address.clone(),
                    waited: PATIENCE,
                }
            }
            _ => ClientError::from(error),
        })
    }

    /// Whether the daemon is gone; does not wait.
    pub fn is_gone(&self) -> bool {
        self.watch.is_gone().unwrap_or(true)
    }

    /// Calls a method of an object, for what has no function of its own here.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn call<B, R>(
        &self,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Result<R, ClientError>
    where
        B: zbus::export::serde::Serialize + DynamicType,
        R: for<'d> zbus::wire::DynamicDeserialize<'d>,
    {
        let destination = self.connection().is_bus().then_some(NAME);
        let interface = format!("{NAME}.{interface}");
        let reply = self.wait(self.connection().call_method(
            destination,
            path,
            Some(interface.as_str()),
            method,
            body,
        ))?;
        Ok(reply.body().deserialize()?)
    }

    /// Reads a property of an object.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers, also when it is of another type.
    pub fn property<T>(&self, path: &str, interface: &str, name: &str) -> Result<T, ClientError>
    where
        T: TryFrom<zbus::OwnedVariant>,
        T::Error: Into<zbus::Error>,
    {
        let destination = self.connection().is_bus().then_some(NAME);
        let interface = format!("{NAME}.{interface}");
        let reply = self.wait(self.connection().call_method(
            destination,
            path,
            Some("org.freedesktop.DBus.Properties"),
            "Get",
            &(interface, name),
        ))?;
        let value: zbus::OwnedVariant = reply.body().deserialize()?;
        Ok(T::try_from(value).map_err(Into::into)?)
    }

    /// Writes a property of an object.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn set_property(
        &self,
        path: &str,
        interface: &str,
        name: &str,
        value: Variant<'_>,
    ) -> Result<(), ClientError> {
        let destination = self.connection().is_bus().then_some(NAME);
        let interface = format!("{NAME}.{interface}");
        self.wait(self.connection().call_method(
            destination,
            path,
            Some("org.freedesktop.DBus.Properties"),
            "Set",
            &(interface, name, value),
        ))?;
        Ok(())
    }

    /// All properties of an object's interface, as monitors read them; returns how many.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn all_properties(&self, path: &str, interface: &str) -> Result<usize, ClientError> {
        let destination = self.connection().is_bus().then_some(NAME);
        let interface = format!("{NAME}.{interface}");
        let reply = self.wait(self.connection().call_method(
            destination,
            path,
            Some("org.freedesktop.DBus.Properties"),
            "GetAll",
            &interface,
        ))?;
        let all: HashMap<String, zbus::OwnedVariant> = reply.body().deserialize()?;
        Ok(all.len())
    }

    /// What this client may: `observe`, `operate` or `admin`.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn role(&self) -> Result<String, ClientError> {
        self.call(ROOT, "Daemon", "Role", &())
    }

    /// Which start of the daemon this is.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn epoch(&self) -> Result<u32, ClientError> {
        self.property(ROOT, "Daemon", "Epoch")
    }

    /// Ends the daemon; for admins.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn quit(&self) -> Result<(), ClientError> {
        self.call(ROOT, "Daemon", "Quit", &())
    }

    /// Has this client's sinks and conditions stay after its connection is gone, for 1 s to an
    /// hour; zero ends that, a part of a second counts as a whole one. Returns the token for [`TimingClient::resume`].
    /// Subscriptions end and function generators are aborted all the same.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn lease(&self, length: Duration) -> Result<String, ClientError> {
        self.call(ROOT, "Daemon", "Lease", &whole_seconds(length))
    }

    /// Takes over the lease of a token, given to a connection of the same user, and the objects
    /// under it. Returns how many they are.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn resume(&self, token: &str) -> Result<u32, ClientError> {
        self.call(ROOT, "Daemon", "Resume", &token)
    }

    /// Starts the time of the lease of a token again, given to a connection of the same user, and
    /// takes it from nobody. Returns how many objects are under it, and whether its holder is
    /// connected, so that its time does not run.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn renew(&self, token: &str) -> Result<(u32, bool), ClientError> {
        self.call(ROOT, "Daemon", "Renew", &token)
    }

    /// Adds an active condition of this client to an output or a bus, such as `IO1`. The tag is the
    /// bus tag; of an output 1 is off and 2 is on, and others are refused. Returns the path of the condition.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn add_output_condition(
        &self,
        sink: &str,
        filter: &Filter,
        tag: u32,
    ) -> Result<String, ClientError> {
        let sink = format!("{RECEIVER}/{sink}");
        let body = (true, filter.id, filter.mask, filter.offset_ns, tag);
        let path: OwnedObjectPath =
            self.call(&sink, "OutputActionSink", "NewTagCondition", &body)?;
        self.accept(path.as_str(), filter)?;
        Ok(path.to_string())
    }

    /// Has a condition deliver what its filter asks for.
    fn accept(&self, condition: &str, filter: &Filter) -> Result<(), ClientError> {
        let flags = ["AcceptLate", "AcceptEarly", "AcceptConflict"];
        for flag in flags.into_iter().filter(|_| filter.accept_all) {
            self.set_property(condition, "Condition", flag, Variant::new(true))?;
        }
        Ok(())
    }

    /// Gives up a sink or condition of this client: it stays when the client goes.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn disown(&self, path: &str) -> Result<(), ClientError> {
        self.call(path, "Owned", "Disown", &())
    }

    /// Destroys a sink or condition that is this client's or nobody's.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn destroy(&self, path: &str) -> Result<(), ClientError> {
        self.call(path, "Owned", "Destroy", &())
    }

    /// A software sink of the daemon by its path, as [`SoftwareSink::path`] gave it.
    pub fn sink_at(&self, path: &str) -> SoftwareSink<'_> {
        SoftwareSink {
            client: self,
            path: path.to_owned(),
        }
    }

    /// The state of the daemon as one JSON document.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn status(&self) -> Result<String, ClientError> {
        self.call(RECEIVER, "TimingReceiver", "Status", &())
    }

    /// The receiver's time.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when its clock is not locked.
    pub fn time(&self) -> Result<TaiNs, ClientError> {
        let time = self.call(RECEIVER, "TimingReceiver", "CurrentTime", &())?;
        Ok(TaiNs(time))
    }

    /// The receiver's time, locked or not.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn raw_time(&self) -> Result<TaiNs, ClientError> {
        let time = self.call(RECEIVER, "TimingReceiver", "ReadRawCurrentTime", &())?;
        Ok(TaiNs(time))
    }

    /// Injects one message; takes no sink.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn inject(&self, id: EventId, param: u64, time: TaiNs) -> Result<(), ClientError> {
        let body = (id.0, param, time.0);
        self.call(RECEIVER, "TimingReceiver", "InjectEvent", &body)
    }

    /// Has messages played: each `lead_ns` before its time, all `repeats` times with `period_ns`
    /// between, beside the schedules that are playing. Returns how many messages there are.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers; they must be in the order of their times.
    pub fn play(
        &self,
        messages: &[TimingMessage],
        lead_ns: u64,
        repeats: u32,
        period_ns: u64,
    ) -> Result<u32, ClientError> {
        let bytes: Vec<u8> = messages.iter().flat_map(TimingMessage::to_bytes).collect();
        let file = seal(&bytes).map_err(ClientError::system("making a memory file"))?;
        let body = (Fd::from(file.as_fd()), lead_ns, repeats, period_ns);
        self.call(RECEIVER, "TimingReceiver", "PlaySchedule", &body)
    }

    /// Ends all schedules that are playing, whoever has had them played; returns how many were. What
    /// is sent already, up to its lead before its time, is acted on.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn stop_schedules(&self) -> Result<u32, ClientError> {
        self.call(RECEIVER, "TimingReceiver", "StopSchedules", &())
    }

    /// Appends a block of coefficient sets (`livetime_wire::timing_coefficient`) to the function
    /// generators that take part, all of it or nothing, and arms them if wanted. Returns whether
    /// they want more.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with channel and index of what is wrong.
    pub fn append_block(&self, block: &[u8], arm: bool) -> Result<bool, ClientError> {
        let file = seal(block).map_err(ClientError::system("making a memory file"))?;
        let path = "/org/livetime/Timing1/tr0/mfg";
        let body = (Fd::from(file.as_fd()), arm);
        self.call(
            path,
            "MasterFunctionGenerator",
            "AppendParameterSets",
            &body,
        )
    }

    /// Advances the virtual clock of a daemon that has one.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn advance_clock(&self, time: TaiNs) -> Result<TaiNs, ClientError> {
        let now = self.call(RECEIVER, "TimingReceiver", "AdvanceClock", &time.0)?;
        Ok(TaiNs(now))
    }

    /// Makes a software sink of this client; a name is found if `name` is empty.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn new_sink(&self, name: &str) -> Result<SoftwareSink<'_>, ClientError> {
        let path: OwnedObjectPath =
            self.call(RECEIVER, "TimingReceiver", "NewSoftwareActionSink", &name)?;
        Ok(SoftwareSink {
            client: self,
            path: path.to_string(),
        })
    }

    /// The last actions of the daemon, oldest first: event, parameter, deadline, executed, flags,
    /// and from execution to delivery \[ns\].
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn flight_recorder(&self) -> Result<Vec<FlownAction>, ClientError> {
        self.call(RECEIVER, "TimingReceiver", "FlightRecorder", &())
    }
}

/// Watches the process that owns the daemon's name.
async fn watch_owner(connection: &Connection) -> zbus::Result<PeerWatch> {
    let name = zbus::names::WellKnownName::try_from(NAME)?;
    let bus = zbus::fdo::DBusProxy::new(connection).await?;
    let pid = bus.get_connection_unix_process_id(name.into()).await?;
    PeerWatch::process(pid).map_err(|error| zbus::Error::from(io::Error::other(error)))
}

fn seal(bytes: &[u8]) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("livetime-bulk", flags)?;
    let mut written = 0;
    while written < bytes.len() {
        written += rustix::io::pwrite(&file, &bytes[written..], written as u64)?;
    }
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// A software sink of this client.
#[derive(Debug)]
pub struct SoftwareSink<'c> {
    client: &'c TimingClient,
    path: String,
}

impl SoftwareSink<'_> {
    /// Its path among the daemon's objects.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Adds a condition; returns its path.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn add(&self, filter: &Filter) -> Result<String, ClientError> {
        let body = (true, filter.id, filter.mask, filter.offset_ns);
        let interface = "SoftwareActionSink";
        let path: OwnedObjectPath =
            self.client
                .call(&self.path, interface, "NewCondition", &body)?;
        self.client.accept(path.as_str(), filter)?;
        Ok(path.to_string())
    }

    /// Subscribes to the records of the sink.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers, or when the ring cannot be used.
    pub fn subscribe(&self, options: &SubscriptionOptions) -> Result<Subscription, ClientError> {
        let asked = options_map(options);
        let (ring, wake, life, number, _epoch): SubscribeReply =
            self.client
                .call(&self.path, "SoftwareActionSink", "Subscribe", &asked)?;
        let wake = WakeSource::from_fds(wake.into(), life.into());
        Subscription::open(ring.into(), wake, number, options.wait)
    }

    /// Subscribes in the compatibility mode `pipe`: 64 bytes per record to be read.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn subscribe_pipe(&self, options: &SubscriptionOptions) -> Result<OwnedFd, ClientError> {
        let asked = options_map(options);
        let (pipe, _number, _epoch): (zbus::OwnedFd, u32, u32) =
            self.client
                .call(&self.path, "SoftwareActionSink", "SubscribePipe", &asked)?;
        Ok(pipe.into())
    }

    /// Subscribes in the compatibility mode `dbus`: `Action` signals of the sink's conditions.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn subscribe_signals(&self, options: &SubscriptionOptions) -> Result<u32, ClientError> {
        let asked = options_map(options);
        self.client
            .call(&self.path, "SoftwareActionSink", "SubscribeSignals", &asked)
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn unsubscribe(&self, number: u32) -> Result<(), ClientError> {
        self.client
            .call(&self.path, "SoftwareActionSink", "Unsubscribe", &number)
    }

    /// Destroys the sink with its conditions and subscriptions.
    ///
    /// # Errors
    /// [`ClientError`] as the daemon answers.
    pub fn destroy(self) -> Result<(), ClientError> {
        self.client.destroy(&self.path)
    }
}

/// A part of a second as a whole one: less than a second is not nothing.
fn whole_seconds(length: Duration) -> u32 {
    let begun = u64::from(length.subsec_nanos() > 0);
    u32::try_from(length.as_secs().saturating_add(begun)).unwrap_or(u32::MAX)
}

fn options_map(options: &SubscriptionOptions) -> HashMap<&'static str, Variant<'static>> {
    [
        ("slots", Variant::new(options.slots)),
        ("overflow", Variant::new(options.rule.name())),
        ("class", Variant::new(options.class.name())),
        ("bound", Variant::new(options.bound_ns)),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_copy_of_a_process_that_has_connected_is_refused() {
        let connected = AtomicU32::new(0);
        assert!(note_process(&connected, 7).is_ok());
        assert!(note_process(&connected, 7).is_ok());
        let refused = note_process(&connected, 8).unwrap_err();
        assert!(
            matches!(refused, ClientError::Forked { connected: 7 }),
            "{refused:?}"
        );
    }

    #[test]
    fn a_part_of_a_second_is_no_end_of_a_lease() {
        let cases = [(0, 0), (1, 1), (900, 1), (1000, 1), (1001, 2)];
        for (milliseconds, seconds) in cases {
            let length = Duration::from_millis(milliseconds);
            assert_eq!(whole_seconds(length), seconds, "{length:?}");
        }
        assert_eq!(whole_seconds(Duration::MAX), u32::MAX);
    }

    #[test]
    fn a_peer_that_takes_the_connection_and_says_nothing_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mute.sock");
        let _mute = UnixListener::bind(&path).unwrap();
        let address = Address::Socket(path);
        let patience = Duration::from_millis(500);
        let error = TimingClient::connect_within(&address, patience).unwrap_err();
        assert!(matches!(error, ClientError::NoAnswer { .. }), "{error:?}");
        let text = error.to_string();
        let place = format!("at {address} does not answer, 0.5 s waited");
        assert!(
            text.contains(&place) && text.contains("let it go on"),
            "{text}"
        );
    }
}
