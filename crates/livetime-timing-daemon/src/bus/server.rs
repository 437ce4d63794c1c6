//! Connections and objects joined: who calls, what is served where, which signals go out.
//!
//! Peers and callers on a bus become clients of [`Control`] when they first call, and leave it
//! when their connection or bus name goes. A ticker sends changes of counters as property signals,
//! each sink's no more often than its signal rate. Nothing here is on the data path.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use livetime_shm::Doorbell;
use livetime_timing::{ActionFlag, FlagReport, SinkCounters, SinkId, SinkKind};
use zbus::message::Header;
use zbus::{Connection, Message, ObjectServer, Variant, fdo};

use super::condition_object::{
    ConditionObject, OutputConditionObject, OwnedConditionObject, SoftwareConditionObject,
};
use super::generator_object::{GENERATOR_PATH, GeneratorObject};
use super::handshakes::Handshakes;
use super::input_object::InputObject;
use super::listener::BusChoice;
use super::mailbox::Mailbox;
use super::peer_stream::HangUp;
use super::receiver_object::{DaemonObject, ReceiverObject};
use super::sink_object::{
    ActionSinkObject, OutputActionSinkObject, OwnedSinkObject, SoftwareActionSinkObject,
};
use super::{BUS_NAME, Object, RECEIVER_PATH, ROOT_PATH, input_name, to_error};
use crate::control::{Client, Control, Departed};
use crate::generators::Generators;

/// How often the ticker looks.
pub const TICK: Duration = Duration::from_millis(50);
/// Shortest time between two signals about a sink's counters, unless the sink says otherwise.
pub const SIGNAL_RATE_NS_USUAL: u64 = 100_000_000;

/// One connection.
#[derive(Debug, Default)]
pub struct Link {
    /// Set once the handshake is done.
    pub connection: OnceLock<Connection>,
    /// Signals for it.
    pub mailbox: Mailbox,
    /// The client at the other end; on a bus there are many.
    pub client: Option<Client>,
    /// Ends the connection of a peer that does not read.
    pub hang_up: Option<HangUp>,
}

#[derive(Debug, Clone)]
struct SinkTick {
    rate_ns: u64,
    counters: SinkCounters,
    sent: Option<Instant>,
}

/// Objects as they are served, by what control calls them.
#[derive(Debug)]
struct Served {
    conditions: BTreeMap<u64, Object>,
    sinks: BTreeMap<SinkId, String>,
}

/// Everything that is served.
#[derive(Debug)]
pub struct Server {
    /// What it serves.
    pub control: Arc<Control>,
    /// The function generators.
    pub generators: Arc<Generators>,
    /// Peers that have not said who they are.
    pub handshakes: Handshakes,
    links: Mutex<BTreeMap<String, Arc<Link>>>,
    /// By the bus and the name there: two buses may give the same name.
    bus_clients: Mutex<BTreeMap<(String, String), Client>>,
    lost_buses: Mutex<Vec<String>>,
    ticks: Mutex<BTreeMap<SinkId, SinkTick>>,
    names: AtomicU64,
    quitting: AtomicBool,
    quit_bell: Doorbell,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes an object away from a connection.
async fn end_serving(server: &ObjectServer, object: &Object) {
    let path = object.path();
    let path = path.as_str();
    // What is not there any more is as well gone.
    match object {
        Object::Sink(..) => {
            let _ = server.remove::<OwnedSinkObject, _>(path).await;
            let _ = server.remove::<ActionSinkObject, _>(path).await;
            let _ = server.remove::<SoftwareActionSinkObject, _>(path).await;
            let _ = server.remove::<OutputActionSinkObject, _>(path).await;
        }
        Object::Condition(..) => {
            let _ = server.remove::<OwnedConditionObject, _>(path).await;
            let _ = server.remove::<ConditionObject, _>(path).await;
            let _ = server.remove::<SoftwareConditionObject, _>(path).await;
            let _ = server.remove::<OutputConditionObject, _>(path).await;
        }
    }
}

fn bus_client_key(bus: &Connection, name: &str) -> (String, String) {
    (bus.server_guid().to_string(), name.to_owned())
}

impl Server {
    /// A server without connections.
    pub fn new(control: Arc<Control>, generators: Arc<Generators>) -> Arc<Self> {
        Arc::new(Self {
            control,
            generators,
            handshakes: Handshakes::default(),
            links: Mutex::default(),
            bus_clients: Mutex::default(),
            lost_buses: Mutex::default(),
            ticks: Mutex::default(),
            names: AtomicU64::new(1),
            quitting: AtomicBool::new(false),
            quit_bell: Doorbell::in_process(),
        })
    }

    /// Ends the daemon soon.
    pub fn quit(&self) {
        self.quitting.store(true, Ordering::SeqCst);
        self.quit_bell.ring();
        self.generators.wake();
    }

    /// Waits until somebody wants the daemon to end, at most so long; returns whether.
    pub fn wait_quit(&self, timeout: Duration) -> bool {
        let ticket = self.quit_bell.ticket();
        if !self.is_quitting() {
            self.quit_bell.wait(ticket, timeout);
        }
        self.is_quitting()
    }

    /// Whether the daemon is ending.
    pub fn is_quitting(&self) -> bool {
        self.quitting.load(Ordering::SeqCst)
    }

    /// A name for an object whose creator gave none.
    pub fn automatic_name(&self) -> String {
        loop {
            let name = format!("_{}", self.names.fetch_add(1, Ordering::Relaxed));
            // A sink that was kept across starts has a name of before.
            if (self.control).read(|registry| registry.sink_by_name(&name).is_none()) {
                return name;
            }
        }
    }

    // --- connections -----------------------------------------------------------------------

    /// Adds a connection under its key (a peer's GUID, or the bus).
    pub fn add_link(&self, key: String, link: Arc<Link>) {
        locked(&self.links).insert(key, link);
    }

    /// Removes a connection.
    pub fn remove_link(&self, key: &str) {
        locked(&self.links).remove(key);
    }

    /// Forgets all connections: with the last user of each it is closed.
    pub fn close_links(&self) {
        let links = std::mem::take(&mut *locked(&self.links));
        for link in links.into_values() {
            if let Some(peer) = &link.hang_up {
                peer.hang_up();
            }
            if let Some(connection) = link.connection.get() {
                // One that is closed already is as well closed.
                let _ = zbus::block_on(connection.clone().close());
            }
        }
    }

    /// The number of connections.
    pub fn link_count(&self) -> usize {
        locked(&self.links).len()
    }

    /// Who calls.
    ///
    /// # Errors
    /// `AccessDenied` for users without a role.
    pub async fn caller(
        self: &Arc<Self>,
        connection: &Connection,
        header: &Header<'_>,
    ) -> fdo::Result<Client> {
        if !connection.is_bus() {
            let key = connection.server_guid().to_string();
            let link = locked(&self.links).get(&key).cloned();
            return link
                .and_then(|link| link.client.clone())
                .ok_or_else(|| fdo::Error::AccessDenied("the connection is closing".to_owned()));
        }
        let sender = header
            .sender()
            .ok_or_else(|| fdo::Error::AccessDenied("the call has no sender".to_owned()))?;
        let key = bus_client_key(connection, sender.as_str());
        if let Some(client) = locked(&self.bus_clients).get(&key) {
            return Ok(client.clone());
        }
        let bus = fdo::DBusProxy::new(connection).await?;
        let credentials = bus
            .get_connection_credentials(sender.clone().into())
            .await?;
        let uid = credentials
            .unix_user_id()
            .ok_or_else(|| fdo::Error::AccessDenied("the bus does not know the user".to_owned()))?;
        let gids = credentials.unix_group_ids().cloned().unwrap_or_default();
        let client = {
            let mut clients = locked(&self.bus_clients);
            // Another call of it may have been quicker.
            if let Some(client) = clients.get(&key) {
                return Ok(client.clone());
            }
            let client = self
                .control
                .client_arrived(uid, &gids, credentials.process_id(), sender.as_str())
                .map_err(to_error)?;
            clients.insert(key, client.clone());
            client
        };
        // It may have left meanwhile: then nobody says so any more.
        // Where the bus cannot say, it has gone itself.
        let is_there = bus.name_has_owner(sender.clone().into()).await;
        if !is_there.unwrap_or(false) {
            self.bus_name_gone(connection, sender.as_str()).await;
            let gone = "the caller has left the bus".to_owned();
            return Err(fdo::Error::AccessDenied(gone));
        }
        Ok(client)
    }

    /// A bus name is gone.
    pub async fn bus_name_gone(self: &Arc<Self>, bus: &Connection, name: &str) {
        let client = locked(&self.bus_clients).remove(&bus_client_key(bus, name));
        if let Some(client) = client {
            self.client_gone(&client).await;
        }
    }

    /// A bus is gone under its key, and all that called on it with it.
    pub async fn bus_gone(self: &Arc<Self>, key: &str, choice: &BusChoice, bus: &Connection) {
        self.remove_link(key);
        locked(&self.lost_buses).push(choice.to_string());
        let guid = bus.server_guid().to_string();
        let gone: Vec<Client> = {
            let mut clients = locked(&self.bus_clients);
            let of_it = clients.extract_if(.., |(bus, _), _| *bus == guid);
            of_it.map(|(_, client)| client).collect()
        };
        for client in gone {
            self.client_gone(&client).await;
        }
    }

    /// Buses that have gone away since this was asked last.
    pub fn take_lost_buses(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.lost_buses))
    }

    /// A client is gone: its objects go with it, unless it has a lease.
    pub async fn client_gone(self: &Arc<Self>, client: &Client) {
        let served = self.served();
        let departed = self.control.client_gone(client.id);
        // After control, which whoever drives them asks afterwards whether it is still there.
        self.generators.client_gone(client.id);
        // Without an answer of the core the daemon is ending.
        if let Ok(departed) = departed {
            self.remove_departed(&served, departed).await;
        }
    }

    /// Objects of clients whose leases are over go.
    pub async fn expire_leases(self: &Arc<Self>) {
        while self.control.orphans() > 0 {
            let served = self.served();
            match self.control.expire_lease() {
                Ok(Some(departed)) => self.remove_departed(&served, departed).await,
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn served(&self) -> Served {
        Served {
            conditions: self.conditions_by_id(),
            sinks: self.sink_names(),
        }
    }

    async fn remove_departed(self: &Arc<Self>, served: &Served, departed: Departed) {
        for id in departed.conditions {
            if let Some(object) = served.conditions.get(&id.to_bits()) {
                self.remove_object(object.clone()).await;
            }
        }
        for id in departed.sinks {
            if let Some(name) = served.sinks.get(&id) {
                self.remove_object(Object::Sink(id, name.clone())).await;
            }
        }
    }

    // --- objects ---------------------------------------------------------------------------

    fn sink_names(&self) -> BTreeMap<SinkId, String> {
        self.control.read(|registry| {
            let sinks = registry.sinks();
            sinks
                .map(|sink| (sink.id, sink.spec.name.clone()))
                .collect()
        })
    }

    fn conditions_by_id(&self) -> BTreeMap<u64, Object> {
        let sinks = self.sink_names();
        self.control.read(|registry| {
            registry
                .conditions()
                .filter_map(|condition| {
                    let sink = sinks.get(&condition.spec.sink)?.clone();
                    Some((
                        condition.id.to_bits(),
                        Object::Condition(condition.id, sink),
                    ))
                })
                .collect()
        })
    }

    /// All objects that come and go.
    pub fn objects(&self) -> Vec<Object> {
        let sinks = self.sink_names().into_iter();
        let sinks = sinks.map(|(id, name)| Object::Sink(id, name));
        sinks.chain(self.conditions_by_id().into_values()).collect()
    }

    fn open_links(&self) -> Vec<Connection> {
        let links = locked(&self.links);
        let open = links.values().filter_map(|link| link.connection.get());
        open.cloned().collect()
    }

    /// Serves what every connection has from the beginning.
    pub fn serve_base<'a>(
        self: &Arc<Self>,
        builder: zbus::connection::Builder<'a>,
    ) -> zbus::connection::Builder<'a> {
        let builder = builder
            .serve_at(ROOT_PATH, DaemonObject::new(self))
            .serve_at(RECEIVER_PATH, ReceiverObject::new(self))
            .serve_at(GENERATOR_PATH, GeneratorObject::new(self));
        (0..self.control.inputs()).fold(builder, |builder, input| {
            let path = format!("{RECEIVER_PATH}/{}", input_name(input));
            builder.serve_at(path, InputObject::new(self, input))
        })
    }

    /// Serves an object on all connections.
    ///
    /// # Errors
    /// What the object server says.
    pub async fn add_object(self: &Arc<Self>, object: Object) -> fdo::Result<()> {
        for connection in self.open_links() {
            self.serve(connection.object_server(), &object).await?;
        }
        // It may have gone meanwhile, with its client or by an admin.
        if !self.is_there(&object) {
            self.remove_object(object).await;
        }
        Ok(())
    }

    /// Serves the objects of now on a new connection, which serves those that there were when it began
    /// to be made: some have come since, and some have gone.
    ///
    /// # Errors
    /// What the object server says.
    pub async fn update_objects(
        self: &Arc<Self>,
        connection: &Connection,
        before: &[Object],
    ) -> fdo::Result<()> {
        let server = connection.object_server();
        for object in before.iter().filter(|object| !self.is_there(object)) {
            end_serving(server, object).await;
        }
        for object in self.objects() {
            self.serve(server, &object).await?;
            if !self.is_there(&object) {
                end_serving(server, &object).await;
            }
        }
        Ok(())
    }

    /// Whether there still is an object: its place may be another one's now.
    fn is_there(&self, object: &Object) -> bool {
        match object {
            Object::Sink(id, name) => {
                let sink = self.control.sink(*id);
                sink.is_ok_and(|sink| sink.spec.name == *name)
            }
            Object::Condition(id, _) => self.control.condition(*id).is_ok(),
        }
    }

    /// Serves an object on a connection that is being made.
    pub fn serve_early<'a>(
        self: &Arc<Self>,
        builder: zbus::connection::Builder<'a>,
        object: &Object,
    ) -> zbus::connection::Builder<'a> {
        let path = object.path();
        match object {
            Object::Sink(id, _) => {
                let builder = builder
                    .serve_at(path.clone(), OwnedSinkObject::new(self, *id))
                    .serve_at(path.clone(), ActionSinkObject::new(self, *id));
                match self.sink_kind(*id) {
                    SinkKind::Software => {
                        builder.serve_at(path, SoftwareActionSinkObject::new(self, *id))
                    }
                    SinkKind::Output | SinkKind::EmbeddedCpu | SinkKind::BusTag => {
                        builder.serve_at(path, OutputActionSinkObject::new(self, *id))
                    }
                }
            }
            Object::Condition(id, _) => {
                let builder = builder
                    .serve_at(path.clone(), OwnedConditionObject::new(self, *id))
                    .serve_at(path.clone(), ConditionObject::new(self, *id));
                match self.condition_kind(*id) {
                    SinkKind::Software => builder.serve_at(path, SoftwareConditionObject),
                    SinkKind::Output | SinkKind::EmbeddedCpu | SinkKind::BusTag => {
                        builder.serve_at(path, OutputConditionObject::new(self, *id))
                    }
                }
            }
        }
    }

    async fn serve(self: &Arc<Self>, server: &ObjectServer, object: &Object) -> fdo::Result<()> {
        let path = object.path();
        let path = path.as_str();
        match object {
            Object::Sink(id, _) => {
                server.at(path, OwnedSinkObject::new(self, *id)).await?;
                server.at(path, ActionSinkObject::new(self, *id)).await?;
                if self.sink_kind(*id) == SinkKind::Software {
                    let object = SoftwareActionSinkObject::new(self, *id);
                    server.at(path, object).await?;
                } else {
                    let object = OutputActionSinkObject::new(self, *id);
                    server.at(path, object).await?;
                }
            }
            Object::Condition(id, _) => {
                let owned = OwnedConditionObject::new(self, *id);
                server.at(path, owned).await?;
                server.at(path, ConditionObject::new(self, *id)).await?;
                if self.condition_kind(*id) == SinkKind::Software {
                    server.at(path, SoftwareConditionObject).await?;
                } else {
                    let object = OutputConditionObject::new(self, *id);
                    server.at(path, object).await?;
                }
            }
        }
        Ok(())
    }

    fn sink_kind(&self, id: SinkId) -> SinkKind {
        let sink = self.control.sink(id);
        sink.map_or(SinkKind::Software, |sink| sink.spec.kind)
    }

    fn condition_kind(&self, id: livetime_timing::ConditionId) -> SinkKind {
        let condition = self.control.condition(id);
        condition.map_or(SinkKind::Software, |condition| {
            self.sink_kind(condition.spec.sink)
        })
    }

    /// Takes an object away from all connections, and says so.
    pub async fn remove_object(self: &Arc<Self>, object: Object) {
        let path = object.path();
        let path = path.as_str();
        if let Object::Sink(id, _) = &object {
            locked(&self.ticks).remove(id);
        }
        self.broadcast(path, "Owned", "Destroyed", &());
        for connection in self.open_links() {
            end_serving(connection.object_server(), &object).await;
        }
    }

    // --- signals ---------------------------------------------------------------------------

    /// Sends a signal to everybody.
    pub fn broadcast<B>(&self, path: &str, interface: &str, member: &str, body: &B)
    where
        B: serde::Serialize + zbus::DynamicType,
    {
        self.broadcast_of(path, &format!("{BUS_NAME}.{interface}"), member, body);
    }

    fn broadcast_of<B>(&self, path: &str, interface: &str, member: &str, body: &B)
    where
        B: serde::Serialize + zbus::DynamicType,
    {
        let Ok(signal) = Message::signal(path, interface, member).build(body) else {
            debug_assert!(
                false,
                "signal {interface}.{member} of {path} has no message"
            );
            return;
        };
        let links = locked(&self.links);
        for link in links
            .values()
            .filter(|link| link.connection.get().is_some())
        {
            link.mailbox.put(signal.clone());
        }
    }

    /// The shortest time between two signals about a sink.
    pub fn signal_rate(&self, sink: SinkId) -> u64 {
        locked(&self.ticks)
            .get(&sink)
            .map_or(SIGNAL_RATE_NS_USUAL, |tick| tick.rate_ns)
    }

    /// Sets the shortest time between two signals about a sink.
    pub fn set_signal_rate(&self, sink: SinkId, rate_ns: u64) {
        let mut ticks = locked(&self.ticks);
        // With the lock: who destroys the sink takes its entry away after it.
        if self.control.sink(sink).is_ok() {
            ticks.entry(sink).or_default().rate_ns = rate_ns;
        }
    }

    /// One look at the counters: signals for sinks whose counters have changed.
    pub fn tick(&self) {
        let Ok(figures) = self.control.figures_with_reports() else {
            return;
        };
        let names = self.sink_names();
        for (sink, report) in &figures.reports {
            if let Some(name) = names.get(sink) {
                self.send_report(name, report);
            }
        }
        let mut due = Vec::new();
        {
            let mut ticks = locked(&self.ticks);
            for (sink, counters) in &figures.sinks {
                let Some(name) = names.get(sink) else {
                    continue;
                };
                let tick = ticks.entry(*sink).or_default();
                let rate = Duration::from_nanos(tick.rate_ns);
                if tick.counters == *counters || tick.sent.is_some_and(|at| at.elapsed() < rate) {
                    continue;
                }
                tick.counters = *counters;
                tick.sent = Some(Instant::now());
                due.push((name, *counters));
            }
        }
        for (name, counters) in due {
            self.send_counters(name, &counters);
        }
    }

    fn send_counters(&self, name: &str, counters: &SinkCounters) {
        let values = [
            ("ActionCount", counters.matched),
            ("OverflowCount", counters.overflow),
            ("LateCount", counters.flagged[ActionFlag::Late as usize]),
            ("EarlyCount", counters.flagged[ActionFlag::Early as usize]),
            (
                "ConflictCount",
                counters.flagged[ActionFlag::Conflict as usize],
            ),
            (
                "DelayedCount",
                counters.flagged[ActionFlag::Delayed as usize],
            ),
        ];
        let changed: HashMap<&str, Variant<'_>> = values
            .iter()
            .map(|(name, value)| (*name, Variant::new(*value)))
            .collect();
        let body = (
            format!("{BUS_NAME}.ActionSink"),
            changed,
            Vec::<String>::new(),
        );
        self.broadcast_of(
            &format!("{RECEIVER_PATH}/{name}"),
            "org.freedesktop.DBus.Properties",
            "PropertiesChanged",
            &body,
        );
    }

    /// The first flagged action since the last such signal, and how many there were.
    fn send_report(&self, name: &str, report: &FlagReport) {
        let path = format!("{RECEIVER_PATH}/{name}");
        let first = &report.first;
        let message = &first.message;
        let (deadline, executed) = (first.deadline.0, first.executed.0);
        let flag = first.flag.unwrap_or(ActionFlag::Delayed);
        let (id, param) = (message.id.0, message.param);
        match flag {
            ActionFlag::Late | ActionFlag::Early => {
                let count = u32::try_from(report.count).unwrap_or(u32::MAX);
                let member = if flag == ActionFlag::Late {
                    "Late"
                } else {
                    "Early"
                };
                let body = (count, id, param, deadline, executed);
                self.broadcast(&path, "ActionSink", member, &body);
            }
            ActionFlag::Conflict | ActionFlag::Delayed => {
                let member = if flag == ActionFlag::Conflict {
                    "Conflict"
                } else {
                    "Delayed"
                };
                let body = (report.count, id, param, deadline, executed);
                self.broadcast(&path, "ActionSink", member, &body);
            }
        }
    }
}

impl Default for SinkTick {
    fn default() -> Self {
        Self {
            rate_ns: SIGNAL_RATE_NS_USUAL,
            counters: SinkCounters::default(),
            sent: None,
        }
    }
}
