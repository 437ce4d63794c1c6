//! Conditions as D-Bus objects: what they match, what they accept, who owns them.

use std::sync::Arc;

use livetime_timing::{
    ActionFlag, Change, Condition, ConditionId, ConditionSpec, IdFilter, TAG_OFF, TAG_ON,
};
use livetime_wire::timing_message::EventId;
use zbus::message::Header;
use zbus::{Connection, fdo, interface};

use super::server::Server;
use super::{Object, invalid, to_error};
use crate::control::{ControlError, owner_text};

/// What every condition has.
#[derive(Debug)]
pub struct ConditionObject {
    server: Arc<Server>,
    id: ConditionId,
}

impl ConditionObject {
    pub(super) fn new(server: &Arc<Server>, id: ConditionId) -> Self {
        Self {
            server: Arc::clone(server),
            id,
        }
    }

    fn condition(&self) -> fdo::Result<Condition> {
        self.server.control.condition(self.id).map_err(to_error)
    }

    fn accepts(&self, flag: ActionFlag) -> fdo::Result<bool> {
        Ok(self.condition()?.spec.accept.contains(flag))
    }

    async fn accept(
        &self,
        flag: ActionFlag,
        value: bool,
        connection: &Connection,
        header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        let change = |mut spec: ConditionSpec| {
            spec.accept = if value {
                spec.accept.with(flag)
            } else {
                spec.accept.without(flag)
            };
            Ok(spec)
        };
        replace(&self.server, self.id, connection, header, change).await
    }

    async fn set_filter(
        &self,
        change: impl Fn(u64, u64) -> (u64, u64),
        connection: &Connection,
        header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        let change = |mut spec: ConditionSpec| {
            let (id, mask) = spec.filter.id_and_mask();
            let (id, mask) = change(id.0, mask);
            spec.filter =
                IdFilter::masked(EventId(id), mask).map_err(|e| invalid(e.to_string()))?;
            Ok(spec)
        };
        replace(&self.server, self.id, connection, header, change).await
    }
}

async fn replace(
    server: &Arc<Server>,
    id: ConditionId,
    connection: &Connection,
    header: Option<Header<'_>>,
    change: impl Fn(ConditionSpec) -> fdo::Result<ConditionSpec>,
) -> fdo::Result<()> {
    let Some(header) = header else {
        return Err(fdo::Error::AccessDenied("nobody asks".to_owned()));
    };
    let client = server.caller(connection, &header).await?;
    let replaced = server.control.replace(&client.caller(), id, |spec| {
        change(spec).map_err(Refused::Value)
    });
    replaced.map_err(|refused| match refused {
        Refused::Value(error) => error,
        Refused::Control(error) => to_error(error),
    })
}

/// Why a condition is not changed: by what it would become, or by control.
enum Refused {
    Value(fdo::Error),
    Control(ControlError),
}

impl From<ControlError> for Refused {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

#[interface(
    name = "org.livetime.Timing1.Condition",
    spawn = false,
    introspection_docs = false
)]
impl ConditionObject {
    #[zbus(property(emits_changed_signal = "false"), name = "ID")]
    fn id(&self) -> fdo::Result<u64> {
        Ok(self.condition()?.spec.filter.id_and_mask().0.0)
    }

    #[zbus(property, name = "ID")]
    async fn set_id(
        &self,
        value: u64,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.set_filter(|_, mask| (value, mask), connection, header)
            .await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn mask(&self) -> fdo::Result<u64> {
        Ok(self.condition()?.spec.filter.id_and_mask().1)
    }

    #[zbus(property)]
    async fn set_mask(
        &self,
        value: u64,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.set_filter(|id, _| (id, value), connection, header)
            .await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn offset(&self) -> fdo::Result<i64> {
        Ok(self.condition()?.spec.offset_ns)
    }

    #[zbus(property)]
    async fn set_offset(
        &self,
        value: i64,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        let change = |spec: ConditionSpec| {
            Ok(ConditionSpec {
                offset_ns: value,
                ..spec
            })
        };
        replace(&self.server, self.id, connection, header, change).await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn accept_late(&self) -> fdo::Result<bool> {
        self.accepts(ActionFlag::Late)
    }

    #[zbus(property)]
    async fn set_accept_late(
        &self,
        value: bool,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.accept(ActionFlag::Late, value, connection, header)
            .await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn accept_early(&self) -> fdo::Result<bool> {
        self.accepts(ActionFlag::Early)
    }

    #[zbus(property)]
    async fn set_accept_early(
        &self,
        value: bool,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.accept(ActionFlag::Early, value, connection, header)
            .await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn accept_conflict(&self) -> fdo::Result<bool> {
        self.accepts(ActionFlag::Conflict)
    }

    #[zbus(property)]
    async fn set_accept_conflict(
        &self,
        value: bool,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.accept(ActionFlag::Conflict, value, connection, header)
            .await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn accept_delayed(&self) -> fdo::Result<bool> {
        self.accepts(ActionFlag::Delayed)
    }

    #[zbus(property)]
    async fn set_accept_delayed(
        &self,
        value: bool,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.accept(ActionFlag::Delayed, value, connection, header)
            .await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn active(&self) -> fdo::Result<bool> {
        Ok(self.condition()?.spec.active)
    }

    #[zbus(property)]
    async fn set_active(
        &self,
        value: bool,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        let change = |spec: ConditionSpec| {
            Ok(ConditionSpec {
                active: value,
                ..spec
            })
        };
        replace(&self.server, self.id, connection, header, change).await
    }
}

/// A condition of a software sink; it says what it does by its signal, in the compatibility mode.
#[derive(Debug)]
pub struct SoftwareConditionObject;

#[interface(
    name = "org.livetime.Timing1.SoftwareCondition",
    spawn = false,
    introspection_docs = false
)]
impl SoftwareConditionObject {
    #[zbus(signal)]
    async fn action(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        event: u64,
        param: u64,
        deadline: u64,
        executed: u64,
        flags: u16,
    ) -> zbus::Result<()>;
}

/// A condition of a sink that acts on hardware.
#[derive(Debug)]
pub struct OutputConditionObject {
    server: Arc<Server>,
    id: ConditionId,
}

impl OutputConditionObject {
    pub(super) fn new(server: &Arc<Server>, id: ConditionId) -> Self {
        Self {
            server: Arc::clone(server),
            id,
        }
    }

    async fn tagged(
        &self,
        tag: u32,
        connection: &Connection,
        header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        let change = |spec: ConditionSpec| Ok(ConditionSpec { tag, ..spec });
        replace(&self.server, self.id, connection, header, change).await
    }
}

#[interface(
    name = "org.livetime.Timing1.OutputCondition",
    spawn = false,
    introspection_docs = false
)]
impl OutputConditionObject {
    #[zbus(property(emits_changed_signal = "false"))]
    fn on(&self) -> fdo::Result<bool> {
        let condition = self.server.control.condition(self.id).map_err(to_error)?;
        Ok(condition.spec.tag == TAG_ON)
    }

    #[zbus(property)]
    async fn set_on(
        &self,
        value: bool,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        let control = &self.server.control;
        let sink = control.condition(self.id).map_err(to_error)?.spec.sink;
        control.check_output(sink).map_err(to_error)?;
        let tag = if value { TAG_ON } else { TAG_OFF };
        self.tagged(tag, connection, header).await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn tag(&self) -> fdo::Result<u32> {
        let condition = self.server.control.condition(self.id).map_err(to_error)?;
        Ok(condition.spec.tag)
    }

    #[zbus(property)]
    async fn set_tag(
        &self,
        value: u32,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.tagged(value, connection, header).await
    }
}

/// Who owns a condition.
#[derive(Debug)]
pub struct OwnedConditionObject {
    server: Arc<Server>,
    id: ConditionId,
}

impl OwnedConditionObject {
    pub(super) fn new(server: &Arc<Server>, id: ConditionId) -> Self {
        Self {
            server: Arc::clone(server),
            id,
        }
    }

    async fn apply(
        &self,
        change: Change,
        connection: &Connection,
        header: &Header<'_>,
    ) -> fdo::Result<()> {
        let client = self.server.caller(connection, header).await?;
        self.server
            .control
            .apply(&client.caller(), &[change])
            .map_err(to_error)?;
        Ok(())
    }
}

#[interface(
    name = "org.livetime.Timing1.Owned",
    spawn = false,
    introspection_docs = false
)]
impl OwnedConditionObject {
    /// The owner's number, empty if nobody owns it.
    #[zbus(property(emits_changed_signal = "false"))]
    fn owner(&self) -> fdo::Result<String> {
        let condition = self.server.control.condition(self.id).map_err(to_error)?;
        Ok(owner_text(&condition.ownership))
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn destructible(&self) -> fdo::Result<bool> {
        let condition = self.server.control.condition(self.id).map_err(to_error)?;
        Ok(condition.ownership.is_destructible())
    }

    async fn own(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        self.apply(Change::Own(self.id), connection, &header).await
    }

    async fn disown(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        self.apply(Change::Disown(self.id), connection, &header)
            .await
    }

    async fn destroy(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        let control = &self.server.control;
        let condition = control.condition(self.id).map_err(to_error)?;
        let name = control
            .sink(condition.spec.sink)
            .map_err(to_error)?
            .spec
            .name;
        self.apply(Change::Remove(self.id), connection, &header)
            .await?;
        self.server
            .remove_object(Object::Condition(self.id, name))
            .await;
        Ok(())
    }

    #[zbus(signal)]
    async fn destroyed(emitter: &zbus::object_server::SignalEmitter<'_>) -> zbus::Result<()>;
}
