//! The daemon and its receiver as D-Bus objects.

use std::collections::HashMap;
use std::sync::Arc;

use livetime_timing::{
    ActionFlag, Change, ClockFault, ConditionSpec, FlagSet, IdFilter, Operation, SchedulePlayer,
    SinkKind, SinkSpec, TableLimits, drift_problem,
};
use livetime_wire::{DurationNs, TaiNs, TimingMessage, timing_message::EventId};
use zbus::message::Header;
use zbus::{Connection, OwnedFd, OwnedObjectPath, fdo, interface};

use super::server::Server;
use super::{Object, RECEIVER_PATH, invalid, owned_path, to_error};
use crate::bulk::{BulkError, read_schedule};
use crate::control::ControlError;
use crate::lease::Holder;
use crate::status::status_document;

/// The daemon.
#[derive(Debug)]
pub struct DaemonObject {
    server: Arc<Server>,
}

impl DaemonObject {
    pub(super) fn new(server: &Arc<Server>) -> Self {
        Self {
            server: Arc::clone(server),
        }
    }
}

#[interface(
    name = "org.livetime.Timing1.Daemon",
    spawn = false,
    introspection_docs = false
)]
impl DaemonObject {
    #[zbus(property(emits_changed_signal = "const"))]
    fn source_version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    #[zbus(property(emits_changed_signal = "const"))]
    fn epoch(&self) -> u32 {
        self.server.control.epoch()
    }

    #[zbus(property(emits_changed_signal = "const"))]
    fn devices(&self) -> fdo::Result<HashMap<String, OwnedObjectPath>> {
        Ok([("tr0".to_owned(), owned_path(RECEIVER_PATH.to_owned())?)].into())
    }

    /// The role of the caller.
    async fn role(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<String> {
        let client = self.server.caller(connection, &header).await?;
        Ok(client.role.key().to_owned())
    }

    /// Has the caller's sinks and conditions stay for so many seconds after its connection is gone,
    /// 1 to 3600; 0 ends that. Returns the token with which another connection of the same user
    /// takes them over.
    async fn lease(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        seconds: u32,
    ) -> fdo::Result<String> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        control.lease(&client, seconds).map_err(to_error)
    }

    /// Takes over the lease of a token and what is under it; returns the number of objects.
    async fn resume(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        token: String,
    ) -> fdo::Result<u32> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        control.resume(&client, &token).map_err(to_error)
    }

    /// Starts the time of the lease of a token again and takes it from nobody; returns the number
    /// of objects under it, and whether its holder is connected, so that no time runs.
    async fn renew(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        token: String,
    ) -> fdo::Result<(u32, bool)> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        let (objects, holder) = control.renew(&client, &token).map_err(to_error)?;
        Ok((objects, holder == Holder::Connected))
    }

    async fn quit(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        control
            .authorise(&client.caller(), Operation::Quit)
            .map_err(to_error)?;
        self.server.quit();
        Ok(())
    }
}

/// The receiver.
#[derive(Debug)]
pub struct ReceiverObject {
    server: Arc<Server>,
}

impl ReceiverObject {
    pub(super) fn new(server: &Arc<Server>) -> Self {
        Self {
            server: Arc::clone(server),
        }
    }

    fn sinks_of(&self, kind: SinkKind) -> fdo::Result<HashMap<String, OwnedObjectPath>> {
        let names: Vec<String> = self.server.control.read(|registry| {
            let sinks = registry.sinks().filter(|sink| sink.spec.kind == kind);
            sinks.map(|sink| sink.spec.name.clone()).collect()
        });
        names
            .into_iter()
            .map(|name| Ok((name.clone(), owned_path(format!("{RECEIVER_PATH}/{name}"))?)))
            .collect()
    }

    async fn apply(
        &self,
        connection: &Connection,
        header: &Header<'_>,
        changes: &[Change],
    ) -> fdo::Result<Vec<OwnedObjectPath>> {
        let client = self.server.caller(connection, header).await?;
        let control = &self.server.control;
        let applied = control.apply(&client.caller(), changes).map_err(to_error)?;
        let mut paths = Vec::new();
        for id in applied.added {
            let condition = control.condition(id).map_err(to_error)?;
            let sink = control.sink(condition.spec.sink).map_err(to_error)?;
            let object = Object::Condition(id, sink.spec.name);
            paths.push(owned_path(object.path())?);
            self.server.add_object(object).await?;
        }
        Ok(paths)
    }
}

/// An action of the flight recorder: event ID, parameter, deadline, executed, flags, and from
/// execution to delivery \[ns\].
type FlownAction = (u64, u64, u64, u64, u16, u32);
/// One condition of a transaction: sink, event ID, mask, offset \[ns\], tag, flags accepted, active.
type NewCondition = (OwnedObjectPath, u64, u64, i64, u32, u8, bool);

#[interface(
    name = "org.livetime.Timing1.TimingReceiver",
    spawn = false,
    introspection_docs = false
)]
impl ReceiverObject {
    #[zbus(property(emits_changed_signal = "const"))]
    fn name(&self) -> &str {
        "tr0"
    }

    #[zbus(property(emits_changed_signal = "const"))]
    fn gateware_info(&self) -> HashMap<String, String> {
        let unit = "emulated receiver, action unit with the timing of the hardware";
        [
            ("kind".to_owned(), unit.to_owned()),
            ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ]
        .into()
    }

    #[zbus(property(emits_changed_signal = "const"))]
    fn clock_source(&self) -> &str {
        self.server.control.injector().clock().source().name()
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn locked(&self) -> fdo::Result<bool> {
        let clock = self.server.control.clock_model();
        Ok(clock.lock_state().is_locked())
    }

    /// `locked`, `holdover` or `unlocked`.
    #[zbus(property(emits_changed_signal = "false"))]
    fn lock_state(&self) -> &str {
        self.server.control.clock_model().lock_state().key()
    }

    /// The receiver's time minus the machine's, ns: what faults of its clock have made of it.
    #[zbus(property(emits_changed_signal = "false"))]
    fn clock_offset(&self) -> i64 {
        let control = &self.server.control;
        let now = control.injector().clock().now();
        let time = control.clock_model().time(now);
        time.0.wrapping_sub(now.0).cast_signed()
    }

    #[zbus(property(emits_changed_signal = "const"))]
    fn inputs(&self) -> fdo::Result<HashMap<String, OwnedObjectPath>> {
        (0..self.server.control.inputs())
            .map(|index| {
                let name = super::input_name(index);
                let path = owned_path(format!("{RECEIVER_PATH}/{name}"))?;
                Ok((name, path))
            })
            .collect()
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn software_action_sinks(&self) -> fdo::Result<HashMap<String, OwnedObjectPath>> {
        self.sinks_of(SinkKind::Software)
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn outputs(&self) -> fdo::Result<HashMap<String, OwnedObjectPath>> {
        self.sinks_of(SinkKind::Output)
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn bus_sinks(&self) -> fdo::Result<HashMap<String, OwnedObjectPath>> {
        self.sinks_of(SinkKind::BusTag)
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn free(&self) -> u32 {
        let free = self.server.control.read(|registry| registry.fill().free());
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn message_count(&self) -> fdo::Result<u64> {
        Ok(self.server.control.figures().map_err(to_error)?.messages)
    }

    /// The time, TAI ns.
    fn current_time(&self) -> fdo::Result<u64> {
        let control = &self.server.control;
        if !control.clock_model().lock_state().is_locked() {
            return Err(to_error(ControlError::NotLocked));
        }
        Ok(control.time().0)
    }

    /// The time without asking whether the clock is locked, TAI ns.
    fn read_raw_current_time(&self) -> u64 {
        self.server.control.time().0
    }

    async fn new_software_action_sink(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        name: &str,
    ) -> fdo::Result<OwnedObjectPath> {
        let client = self.server.caller(connection, &header).await?;
        if name.starts_with('_') {
            return Err(invalid(format!(
                "sink name `{name}` begins with `_`, which is kept for automatic names; \
                 give none to get one"
            )));
        }
        let name = match name {
            "" => self.server.automatic_name(),
            name => name.to_owned(),
        };
        let spec = SinkSpec::new(SinkKind::Software, name.clone());
        let control = &self.server.control;
        let sink = control
            .create_sink(&client.caller(), spec)
            .map_err(to_error)?;
        let object = Object::Sink(sink, name);
        let path = owned_path(object.path())?;
        self.server.add_object(object).await?;
        Ok(path)
    }

    async fn inject_event(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        id: u64,
        param: u64,
        time: u64,
    ) -> fdo::Result<()> {
        let client = self.server.caller(connection, &header).await?;
        let message = TimingMessage::new(EventId(id), param, TaiNs(time));
        let control = &self.server.control;
        control
            .inject(&client.caller(), &[message])
            .map_err(to_error)
    }

    /// Plays messages of 32 bytes each (the format of the timing network) from a sealed memory
    /// file: `lead` ns before their times, `repeats` times with `period` ns from one start to the
    /// next, at least their length. Returns how many there are.
    async fn play_schedule(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        messages: OwnedFd,
        lead: u64,
        repeats: u32,
        period: u64,
    ) -> fdo::Result<u32> {
        let client = self.server.caller(connection, &header).await?;
        if repeats == 0 {
            return Err(invalid("repeats is 0, allowed is 1 or more"));
        }
        let messages = read_schedule(messages.into()).map_err(bulk_error)?;
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let (lead, period) = (DurationNs(lead), DurationNs(period));
        SchedulePlayer::check_repetition(&messages, repeats.into(), period)
            .map_err(|error| invalid(error.to_string()))?;
        let player = SchedulePlayer::of_messages(&messages, lead, repeats.into(), period)
            .ok_or_else(|| invalid("the schedule has no messages"))?;
        let control = &self.server.control;
        control.play(&client.caller(), player).map_err(to_error)?;
        Ok(count)
    }

    /// Ends all schedules that are playing; returns how many were.
    async fn stop_schedules(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<u32> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        let playing = control.stop_schedules(&client.caller()).map_err(to_error)?;
        Ok(u32::try_from(playing).unwrap_or(u32::MAX))
    }

    /// Adds and removes conditions in any sinks, all or nothing, between two messages.
    async fn apply_conditions(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        add: Vec<NewCondition>,
        remove: Vec<OwnedObjectPath>,
        activate: Vec<(OwnedObjectPath, bool)>,
    ) -> fdo::Result<Vec<OwnedObjectPath>> {
        let mut changes = Vec::new();
        let mut gone = Vec::new();
        for path in &remove {
            let object = condition_object(&self.server, path)?;
            if let Object::Condition(id, _) = &object {
                changes.push(Change::Remove(*id));
            }
            gone.push(object);
        }
        for (path, active) in &activate {
            if let Object::Condition(id, _) = condition_object(&self.server, path)? {
                changes.push(Change::SetActive(id, *active));
            }
        }
        for (path, id, mask, offset, tag, accept, active) in &add {
            let name = path.as_str().rsplit('/').next().unwrap_or("");
            let sink = self
                .server
                .control
                .read(|registry| registry.sink_by_name(name).map(|sink| sink.id))
                .ok_or_else(|| fdo::Error::UnknownObject(format!("there is no sink {path}")))?;
            let filter = IdFilter::masked(EventId(*id), *mask)
                .map_err(|error| invalid(error.to_string()))?;
            changes.push(Change::Add(ConditionSpec {
                offset_ns: *offset,
                accept: accepted(*accept)?,
                active: *active,
                ..ConditionSpec::new(sink, filter, *tag)
            }));
        }
        let paths = self.apply(connection, &header, &changes).await?;
        for object in gone {
            self.server.remove_object(object).await;
        }
        Ok(paths)
    }

    /// Makes all conditions of the caller inactive.
    async fn inactivate_all(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        let changes = [Change::InactivateMine];
        self.apply(connection, &header, &changes).await.map(|_| ())
    }

    /// Lets something happen to the emulated receiver's clock, admins only: `lost` and `regained`
    /// (the value is 0), `step` by so many ns, `drift` of so many parts in 10^9.
    async fn inject_clock_fault(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        kind: &str,
        value: i64,
    ) -> fdo::Result<()> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        control
            .authorise(&client.caller(), Operation::ChangeClock)
            .map_err(to_error)?;
        let fault = clock_fault(kind, value)?;
        let before = control.clock_model().lock_state();
        control
            .clock_fault(&client.caller(), fault)
            .map_err(to_error)?;
        let after = control.clock_model().lock_state();
        if before.is_locked() != after.is_locked() {
            let locked = after.is_locked();
            self.server
                .broadcast(RECEIVER_PATH, "TimingReceiver", "Locked", &locked);
        }
        Ok(())
    }

    /// Advances a virtual clock until the receiver's shows a time, TAI ns, that is not past; returns
    /// the time then.
    async fn advance_clock(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        time: u64,
    ) -> fdo::Result<u64> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        let now = control
            .advance_to(&client.caller(), TaiNs(time))
            .map_err(to_error)?;
        Ok(now.0)
    }

    /// Everything about the daemon as one JSON document, `livetime.timing_status/1`.
    fn status(&self) -> fdo::Result<String> {
        let document = status_document(&self.server.control).map_err(to_error)?;
        Ok(document.to_string())
    }

    /// The last actions, oldest first: event, param, deadline, executed, flags, delay to delivery.
    fn flight_recorder(&self) -> fdo::Result<Vec<FlownAction>> {
        let records = self.server.control.flight().map_err(to_error)?;
        Ok(records
            .iter()
            .map(|record| {
                let (deadline, executed) = (record.deadline.0, record.executed.0);
                let (flags, delay) = (record.flags.0, record.enqueue_delay_ns);
                (record.id, record.param, deadline, executed, flags, delay)
            })
            .collect())
    }

    /// Active conditions, and whether the tables of a hardware receiver would hold them: search
    /// and walker entries needed and there.
    fn hardware_tables(&self) -> (u32, u32, u32, u32) {
        let fill = self.server.control.read(|registry| registry.fill());
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let limits = TableLimits::HARDWARE;
        (
            count(fill.search),
            count(fill.walker),
            count(limits.search),
            count(limits.walker),
        )
    }
}

/// The fault of a name and its value.
fn clock_fault(kind: &str, value: i64) -> fdo::Result<ClockFault> {
    match (kind, value) {
        ("lost", 0) => Ok(ClockFault::LockLost),
        ("regained", 0) => Ok(ClockFault::LockRegained),
        ("step", ns) => Ok(ClockFault::Step { ns }),
        ("drift", ppb) => Ok(ClockFault::Drift {
            parts_per_billion: i32::try_from(ppb)
                .map_err(|_| to_error(ControlError::Value(Box::new(drift_problem(ppb)))))?,
        }),
        _ => Err(invalid(format!(
            "clock fault `{kind}` with {value} is not known; there are `lost` and `regained` \
             with 0, `step` with ns, `drift` with parts in 10^9"
        ))),
    }
}

/// The flags of a condition.
fn accepted(bits: u8) -> fdo::Result<FlagSet> {
    let flags = FlagSet::from_bits(bits);
    if flags.to_bits() != bits {
        let all = ActionFlag::ALL.map(|flag| format!("{} {}", flag.bit(), flag.key()));
        let all = all.join(", ");
        return Err(invalid(format!(
            "flags accepted are {bits}, allowed is a sum of {all}"
        )));
    }
    Ok(flags)
}

/// The condition behind a path.
fn condition_object(server: &Server, path: &OwnedObjectPath) -> fdo::Result<Object> {
    let unknown = || fdo::Error::UnknownObject(format!("there is no condition {path}"));
    let name = path.as_str().rsplit('/').next().unwrap_or("");
    let id = super::condition_of_name(name).ok_or_else(unknown)?;
    let condition = server.control.condition(id).map_err(to_error)?;
    let sink = server.control.sink(condition.spec.sink).map_err(to_error)?;
    let object = Object::Condition(id, sink.spec.name);
    if object.path() != path.as_str() {
        return Err(unknown());
    }
    Ok(object)
}

fn bulk_error(error: BulkError) -> fdo::Error {
    invalid(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_do_not_exist_are_not_accepted() {
        assert_eq!(accepted(15).unwrap(), FlagSet::ALL);
        for bits in [16, 255] {
            let refused = accepted(bits).unwrap_err().to_string();
            let said = format!("flags accepted are {bits}, allowed is a sum of ");
            assert!(
                refused.contains(&said) && refused.contains("8 delayed"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_drift_is_refused_as_it_was_given() {
        for ppb in [i64::MIN, i64::from(i32::MAX) + 1] {
            let refused = clock_fault("drift", ppb).unwrap_err().to_string();
            assert!(refused.contains(&ppb.to_string()), "{refused}");
            assert!(refused.contains("-1000000 to 1000000"), "{refused}");
        }
    }
}
