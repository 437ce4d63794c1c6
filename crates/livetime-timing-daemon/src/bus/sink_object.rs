//! Sinks as D-Bus objects: counters for all, conditions and subscriptions, owners.

use std::collections::HashMap;
use std::sync::Arc;

use livetime_shm::OverflowRule;
use livetime_timing::{
    ActionFlag, Change, ConditionSpec, FlagSet, IdFilter, Operation, SinkCounters, SinkId, TAG_OFF,
    TAG_ON, registry::Sink,
};
use livetime_wire::PriorityClass;
use livetime_wire::timing_message::EventId;
use zbus::message::Header;
use zbus::{Connection, OwnedFd, OwnedObjectPath, OwnedVariant, Variant, fdo, interface};

use super::server::Server;
use super::{Object, invalid, owned_path, to_error};
use crate::control::{DeliveryMode, owner_text};
use crate::core_worker::CoreSnapshot;
use crate::signal_forwarder;
use crate::subscription::SubscriptionConfig;

/// What every sink has.
#[derive(Debug)]
pub struct ActionSinkObject {
    server: Arc<Server>,
    sink: SinkId,
}

impl ActionSinkObject {
    pub(super) fn new(server: &Arc<Server>, sink: SinkId) -> Self {
        Self {
            server: Arc::clone(server),
            sink,
        }
    }

    fn figures(&self) -> fdo::Result<Arc<CoreSnapshot>> {
        self.server.control.figures().map_err(to_error)
    }

    fn counters(&self) -> fdo::Result<SinkCounters> {
        let figures = self.figures()?;
        let own = figures.sinks.iter().find(|(sink, _)| *sink == self.sink);
        Ok(own.map(|(_, counters)| *counters).unwrap_or_default())
    }

    fn flagged(&self, flag: ActionFlag) -> fdo::Result<u64> {
        Ok(self.counters()?.flagged[flag as usize])
    }

    fn sink(&self) -> fdo::Result<Sink> {
        self.server.control.sink(self.sink).map_err(to_error)
    }

    fn conditions(&self, wanted: impl Fn(bool) -> bool) -> fdo::Result<Vec<OwnedObjectPath>> {
        let name = self.sink()?.spec.name;
        let ids: Vec<_> = self.server.control.read(|registry| {
            registry
                .conditions()
                .filter(|c| c.spec.sink == self.sink && wanted(c.spec.active))
                .map(|condition| condition.id)
                .collect()
        });
        ids.into_iter()
            .map(|id| owned_path(Object::Condition(id, name.clone()).path()))
            .collect()
    }

    async fn set_offsets(
        &self,
        connection: &Connection,
        header: Option<Header<'_>>,
        bounds: impl Fn(&Sink) -> (i64, i64),
    ) -> fdo::Result<()> {
        let Some(header) = header else {
            return Err(fdo::Error::AccessDenied("nobody asks".to_owned()));
        };
        let client = self.server.caller(connection, &header).await?;
        let (min, max) = bounds(&self.sink()?);
        self.server
            .control
            .set_offsets(&client.caller(), self.sink, min, max)
            .map_err(to_error)
    }
}

#[interface(
    name = "org.livetime.Timing1.ActionSink",
    spawn = false,
    introspection_docs = false
)]
impl ActionSinkObject {
    #[zbus(property(emits_changed_signal = "false"))]
    fn all_conditions(&self) -> fdo::Result<Vec<OwnedObjectPath>> {
        self.conditions(|_| true)
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn active_conditions(&self) -> fdo::Result<Vec<OwnedObjectPath>> {
        self.conditions(|active| active)
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn inactive_conditions(&self) -> fdo::Result<Vec<OwnedObjectPath>> {
        self.conditions(|active| !active)
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn min_offset(&self) -> fdo::Result<i64> {
        Ok(self.sink()?.spec.offset_min_ns)
    }

    #[zbus(property)]
    async fn set_min_offset(
        &self,
        value: i64,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.set_offsets(connection, header, |sink| (value, sink.spec.offset_max_ns))
            .await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn max_offset(&self) -> fdo::Result<i64> {
        Ok(self.sink()?.spec.offset_max_ns)
    }

    #[zbus(property)]
    async fn set_max_offset(
        &self,
        value: i64,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.set_offsets(connection, header, |sink| (sink.spec.offset_min_ns, value))
            .await
    }

    /// From the arrival of a message to that of its actions, ns.
    #[zbus(property(emits_changed_signal = "const"))]
    fn latency(&self) -> u64 {
        self.server.control.unit_config().latency_ns
    }

    /// How far ahead a deadline may be, ns.
    #[zbus(property(emits_changed_signal = "const"))]
    fn early_threshold(&self) -> u64 {
        self.server.control.unit_config().early_ns
    }

    /// Places of the channel's queue.
    #[zbus(property(emits_changed_signal = "const"))]
    fn capacity(&self) -> u32 {
        u32::try_from(self.server.control.unit_config().queue).unwrap_or(u32::MAX)
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn most_full(&self) -> fdo::Result<u32> {
        let channel = self.sink()?.spec.kind.channel();
        Ok(u32::try_from(self.figures()?.most_full[channel]).unwrap_or(u32::MAX))
    }

    /// Only to 0: the high-water mark starts anew.
    #[zbus(property)]
    async fn set_most_full(
        &self,
        value: u32,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        let Some(header) = header else {
            return Err(fdo::Error::AccessDenied("nobody asks".to_owned()));
        };
        if value != 0 {
            return Err(invalid(format!(
                "MostFull can be set to 0 only, not to {value}"
            )));
        }
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        control
            .clear_most_full(&client.caller(), self.sink)
            .map_err(to_error)
    }

    /// Shortest time between two signals about the counters, ns.
    #[zbus(property(emits_changed_signal = "false"))]
    fn signal_rate(&self) -> u64 {
        self.server.signal_rate(self.sink)
    }

    #[zbus(property)]
    async fn set_signal_rate(
        &self,
        value: u64,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        let Some(header) = header else {
            return Err(fdo::Error::AccessDenied("nobody asks".to_owned()));
        };
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        control
            .authorise_sink(&client.caller(), Operation::ClearCounters, self.sink)
            .map_err(to_error)?;
        self.server.set_signal_rate(self.sink, value);
        Ok(())
    }

    #[zbus(property(emits_changed_signal = "true"))]
    fn action_count(&self) -> fdo::Result<u64> {
        Ok(self.counters()?.matched)
    }

    #[zbus(property(emits_changed_signal = "true"))]
    fn overflow_count(&self) -> fdo::Result<u64> {
        Ok(self.counters()?.overflow)
    }

    /// Actions not delivered because their condition does not accept their flag.
    #[zbus(property(emits_changed_signal = "false"))]
    fn refused_count(&self) -> fdo::Result<u64> {
        Ok(self.counters()?.refused)
    }

    #[zbus(property(emits_changed_signal = "true"))]
    fn late_count(&self) -> fdo::Result<u64> {
        self.flagged(ActionFlag::Late)
    }

    #[zbus(property(emits_changed_signal = "true"))]
    fn early_count(&self) -> fdo::Result<u64> {
        self.flagged(ActionFlag::Early)
    }

    #[zbus(property(emits_changed_signal = "true"))]
    fn conflict_count(&self) -> fdo::Result<u64> {
        self.flagged(ActionFlag::Conflict)
    }

    #[zbus(property(emits_changed_signal = "true"))]
    fn delayed_count(&self) -> fdo::Result<u64> {
        self.flagged(ActionFlag::Delayed)
    }

    /// Actions waiting in the channel now.
    fn read_fill(&self) -> fdo::Result<u32> {
        let channel = self.sink()?.spec.kind.channel();
        let figures = self.server.control.fresh_figures().map_err(to_error)?;
        Ok(u32::try_from(figures.fill[channel]).unwrap_or(u32::MAX))
    }

    /// Active conditions of the caller become inactive and the others active, at once.
    async fn toggle_active(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        control
            .apply(&client.caller(), &[Change::Toggle(self.sink)])
            .map_err(to_error)?;
        Ok(())
    }

    #[zbus(signal)]
    async fn late(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        count: u32,
        event: u64,
        param: u64,
        deadline: u64,
        executed: u64,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn early(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        count: u32,
        event: u64,
        param: u64,
        deadline: u64,
        executed: u64,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn conflict(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        count: u64,
        event: u64,
        param: u64,
        deadline: u64,
        executed: u64,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn delayed(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        count: u64,
        event: u64,
        param: u64,
        deadline: u64,
        executed: u64,
    ) -> zbus::Result<()>;
}

/// A software sink: conditions, and subscriptions to its records.
#[derive(Debug)]
pub struct SoftwareActionSinkObject {
    server: Arc<Server>,
    sink: SinkId,
}

impl SoftwareActionSinkObject {
    pub(super) fn new(server: &Arc<Server>, sink: SinkId) -> Self {
        Self {
            server: Arc::clone(server),
            sink,
        }
    }
}

#[interface(
    name = "org.livetime.Timing1.SoftwareActionSink",
    spawn = false,
    introspection_docs = false
)]
impl SoftwareActionSinkObject {
    async fn new_condition(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        active: bool,
        id: u64,
        mask: u64,
        offset: i64,
    ) -> fdo::Result<OwnedObjectPath> {
        let filter = IdFilter::masked(EventId(id), mask).map_err(|e| invalid(e.to_string()))?;
        let spec = ConditionSpec {
            offset_ns: offset,
            active,
            ..ConditionSpec::new(self.sink, filter, 0)
        };
        new_condition(&self.server, connection, &header, spec).await
    }

    /// A ring of records: its memory, a descriptor to sleep on, another to be kept open beside it
    /// (it hangs up when the subscription ends), the subscription, the epoch.
    /// Options: `slots` u, `overflow` s (drop-oldest, drop-newest, disconnect), `class` s (high,
    /// generic, idle), `bound` t (ns after which a high record is late).
    async fn subscribe(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        options: HashMap<String, OwnedVariant>,
    ) -> fdo::Result<(OwnedFd, OwnedFd, OwnedFd, u32, u32)> {
        let client = self.server.caller(connection, &header).await?;
        let config = subscription_config(&options)?;
        let control = &self.server.control;
        let (place, ends) = control
            .subscribe(&client.caller(), self.sink, &config, DeliveryMode::Ring)
            .map_err(to_error)?;
        let wake = ends.wake.ok_or_else(|| {
            fdo::Error::Failed("a ring without a descriptor to sleep on".to_owned())
        })?;
        let (wake, life) = wake.into_fds();
        let (number, epoch) = (place.into(), control.epoch());
        Ok((ends.data.into(), wake.into(), life.into(), number, epoch))
    }

    /// A pipe of records of 64 bytes: its read end, the subscription, the epoch. The options are
    /// those of a ring; `slots` and `overflow` say nothing here, since a pipe has the kernel's size
    /// and drops the newest.
    async fn subscribe_pipe(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        options: HashMap<String, OwnedVariant>,
    ) -> fdo::Result<(OwnedFd, u32, u32)> {
        let client = self.server.caller(connection, &header).await?;
        let config = subscription_config(&options)?;
        let control = &self.server.control;
        let (place, ends) = control
            .subscribe(&client.caller(), self.sink, &config, DeliveryMode::Pipe)
            .map_err(to_error)?;
        Ok((ends.data.into(), place.into(), control.epoch()))
    }

    /// `Action` signals of the sink's conditions, to the caller alone; the subscription.
    async fn subscribe_signals(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        options: HashMap<String, OwnedVariant>,
    ) -> fdo::Result<u32> {
        let client = self.server.caller(connection, &header).await?;
        let config = subscription_config(&options)?;
        let control = &self.server.control;
        let (place, ends) = control
            .subscribe(&client.caller(), self.sink, &config, DeliveryMode::Ring)
            .map_err(to_error)?;
        let destination = header.sender().map(ToString::to_string);
        let started = signal_forwarder::start(&self.server, connection.clone(), destination, ends);
        if let Err(error) = started {
            // Nobody reads it, and the caller is told of no place at which to end it. Where the core
            // does not answer the daemon is ending, and it goes with it.
            let _is_left = control.unsubscribe(&client.caller(), place).is_err();
            return Err(fdo::Error::Failed(error.to_string()));
        }
        Ok(place.into())
    }

    async fn unsubscribe(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        subscription: u32,
    ) -> fdo::Result<()> {
        let client = self.server.caller(connection, &header).await?;
        let place = u16::try_from(subscription)
            .map_err(|_| invalid(format!("there is no subscription {subscription}")))?;
        let control = &self.server.control;
        control
            .unsubscribe(&client.caller(), place)
            .map_err(to_error)
    }
}

async fn new_condition(
    server: &Arc<Server>,
    connection: &Connection,
    header: &Header<'_>,
    spec: ConditionSpec,
) -> fdo::Result<OwnedObjectPath> {
    let client = server.caller(connection, header).await?;
    let name = server.control.sink(spec.sink).map_err(to_error)?.spec.name;
    let applied = server
        .control
        .apply(&client.caller(), &[Change::Add(spec)])
        .map_err(to_error)?;
    let id = applied
        .added
        .first()
        .ok_or_else(|| fdo::Error::Failed("a condition added has no name".to_owned()))?;
    let object = Object::Condition(*id, name);
    let path = owned_path(object.path())?;
    server.add_object(object).await?;
    Ok(path)
}

fn subscription_config(options: &HashMap<String, OwnedVariant>) -> fdo::Result<SubscriptionConfig> {
    let mut config = SubscriptionConfig::default();
    for (name, value) in options {
        let wrong = |allowed: &str| {
            let found = shown(value);
            invalid(format!("option `{name}` is {found}, allowed is {allowed}"))
        };
        let text = || <&str>::try_from(&**value).ok();
        match name.as_str() {
            "slots" => {
                config.slots = u32::try_from(&**value).map_err(|_| wrong("a number of type u"))?;
            }
            "bound" => {
                config.bound_ns =
                    u64::try_from(&**value).map_err(|_| wrong("nanoseconds of type t"))?;
            }
            "overflow" => {
                config.rule = text()
                    .and_then(OverflowRule::from_name)
                    .ok_or_else(|| wrong("drop-oldest, drop-newest or disconnect"))?;
            }
            "class" => {
                config.class = text()
                    .and_then(PriorityClass::from_name)
                    .ok_or_else(|| wrong("high, generic or idle"))?;
            }
            _ => {
                return Err(invalid(format!(
                    "there is no option `{name}`; there are slots, overflow, class and bound"
                )));
            }
        }
    }
    Ok(config)
}

/// A value as its sender may have written it, with its D-Bus type.
fn shown(value: &Variant<'_>) -> String {
    let text = match value {
        Variant::Str(text) => format!("`{text}`"),
        Variant::Bool(bit) => bit.to_string(),
        Variant::U8(n) => n.to_string(),
        Variant::I16(n) => n.to_string(),
        Variant::U16(n) => n.to_string(),
        Variant::I32(n) => n.to_string(),
        Variant::U32(n) => n.to_string(),
        Variant::I64(n) => n.to_string(),
        Variant::U64(n) => n.to_string(),
        Variant::F64(x) => x.to_string(),
        _ => "a value".to_owned(),
    };
    format!("{text} of type {}", value.value_signature())
}

/// A sink that acts on hardware: outputs, bus tags, embedded processors.
#[derive(Debug)]
pub struct OutputActionSinkObject {
    server: Arc<Server>,
    sink: SinkId,
}

impl OutputActionSinkObject {
    pub(super) fn new(server: &Arc<Server>, sink: SinkId) -> Self {
        Self {
            server: Arc::clone(server),
            sink,
        }
    }

    async fn condition(
        &self,
        connection: &Connection,
        header: &Header<'_>,
        (active, id, mask, offset): (bool, u64, u64, i64),
        tag: u32,
    ) -> fdo::Result<OwnedObjectPath> {
        let filter = IdFilter::prefix(EventId(id), mask).map_err(|e| invalid(e.to_string()))?;
        let spec = ConditionSpec {
            offset_ns: offset,
            active,
            accept: FlagSet::USUAL,
            ..ConditionSpec::new(self.sink, filter, tag)
        };
        new_condition(&self.server, connection, header, spec).await
    }
}

#[interface(
    name = "org.livetime.Timing1.OutputActionSink",
    spawn = false,
    introspection_docs = false
)]
impl OutputActionSinkObject {
    #[zbus(property(emits_changed_signal = "const"))]
    fn kind(&self) -> fdo::Result<String> {
        let sink = self.server.control.sink(self.sink).map_err(to_error)?;
        Ok(sink.spec.kind.key().to_owned())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of the D-Bus method"
    )]
    async fn new_condition(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        active: bool,
        id: u64,
        mask: u64,
        offset: i64,
        on: bool,
    ) -> fdo::Result<OwnedObjectPath> {
        self.server
            .control
            .check_output(self.sink)
            .map_err(to_error)?;
        let tag = if on { TAG_ON } else { TAG_OFF };
        self.condition(connection, &header, (active, id, mask, offset), tag)
            .await
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of the D-Bus method"
    )]
    async fn new_tag_condition(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        active: bool,
        id: u64,
        mask: u64,
        offset: i64,
        tag: u32,
    ) -> fdo::Result<OwnedObjectPath> {
        self.condition(connection, &header, (active, id, mask, offset), tag)
            .await
    }

    async fn write_output(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        on: bool,
    ) -> fdo::Result<()> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        control
            .write_output(&client.caller(), self.sink, on)
            .map_err(to_error)
    }

    fn read_output(&self) -> fdo::Result<bool> {
        let figures = self.server.control.fresh_figures().map_err(to_error)?;
        let output = figures.outputs.get(self.sink.index());
        Ok(output.is_some_and(|(on, _)| *on))
    }

    /// Times that the output has changed.
    fn read_changes(&self) -> fdo::Result<u64> {
        let figures = self.server.control.fresh_figures().map_err(to_error)?;
        let output = figures.outputs.get(self.sink.index());
        Ok(output.map_or(0, |(_, changes)| *changes))
    }
}

/// Who owns a sink.
#[derive(Debug)]
pub struct OwnedSinkObject {
    server: Arc<Server>,
    sink: SinkId,
}

impl OwnedSinkObject {
    pub(super) fn new(server: &Arc<Server>, sink: SinkId) -> Self {
        Self {
            server: Arc::clone(server),
            sink,
        }
    }

    async fn own_or_not(
        &self,
        connection: &Connection,
        header: &Header<'_>,
        own: bool,
    ) -> fdo::Result<()> {
        let client = self.server.caller(connection, header).await?;
        let control = &self.server.control;
        control
            .own_sink(&client.caller(), self.sink, own)
            .map_err(to_error)
    }
}

#[interface(
    name = "org.livetime.Timing1.Owned",
    spawn = false,
    introspection_docs = false
)]
impl OwnedSinkObject {
    /// The owner's number, empty if nobody owns it.
    #[zbus(property(emits_changed_signal = "false"))]
    fn owner(&self) -> fdo::Result<String> {
        let sink = self.server.control.sink(self.sink).map_err(to_error)?;
        Ok(owner_text(&sink.ownership))
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn destructible(&self) -> fdo::Result<bool> {
        let sink = self.server.control.sink(self.sink).map_err(to_error)?;
        Ok(sink.ownership.is_destructible())
    }

    async fn own(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        self.own_or_not(connection, &header, true).await
    }

    async fn disown(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        self.own_or_not(connection, &header, false).await
    }

    async fn destroy(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        let name = control.sink(self.sink).map_err(to_error)?.spec.name;
        let conditions = control
            .destroy_sink(&client.caller(), self.sink)
            .map_err(to_error)?;
        for id in conditions {
            let object = Object::Condition(id, name.clone());
            self.server.remove_object(object).await;
        }
        self.server
            .remove_object(Object::Sink(self.sink, name))
            .await;
        Ok(())
    }

    #[zbus(signal)]
    async fn destroyed(emitter: &zbus::object_server::SignalEmitter<'_>) -> zbus::Result<()>;
}
