//! What a user who may only observe can do: read and listen, and nothing else.
//!
//! Every method and every property that can be written, as the page of the D-Bus interfaces lists
//! them, is either tried here on what acts on hardware and must be refused, or is one of [`OPEN`].

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;

use livetime_timing::{
    Caller, Change, ClientId, ConditionId, ConditionSpec, IdFilter, Ownership, Role, TAG_ON,
};
use livetime_timing_daemon::bulk::seal;
use livetime_timing_daemon::{AccessRules, Control, Daemon, DaemonConfig};
use livetime_wire::timing_coefficient::{CoefficientSet, emit_block};
use livetime_wire::{EventId, TaiNs};
use zbus::connection::Builder;
use zbus::export::serde::Serialize;
use zbus::{Connection, DynamicType, Fd, Variant, block_on};

const ROOT: &str = "/org/livetime/Timing1";
const RECEIVER: &str = "/org/livetime/Timing1/tr0";
const ADMIN: Caller = Caller {
    client: ClientId(0),
    role: Role::Admin,
};

/// Reading, listening in sinks of one's own, and leases of what one has oneself.
const OPEN: [&str; 23] = [
    "ActionSink.ReadFill",
    "Daemon.Lease",
    "Daemon.Renew",
    "Daemon.Resume",
    "Daemon.Role",
    "InputEventSource.ReadInput",
    "MasterFunctionGenerator.ReadExecutedParameterCounts",
    "MasterFunctionGenerator.ReadFillLevels",
    "MasterFunctionGenerator.ReadStates",
    "OutputActionSink.ReadChanges",
    "OutputActionSink.ReadOutput",
    "SoftwareActionSink.NewCondition",
    "SoftwareActionSink.Subscribe",
    "SoftwareActionSink.SubscribePipe",
    "SoftwareActionSink.SubscribeSignals",
    "SoftwareActionSink.Unsubscribe",
    "TimingReceiver.CurrentTime",
    "TimingReceiver.FlightRecorder",
    "TimingReceiver.HardwareTables",
    "TimingReceiver.InactivateAll",
    "TimingReceiver.NewSoftwareActionSink",
    "TimingReceiver.ReadRawCurrentTime",
    "TimingReceiver.Status",
];

/// Somebody who tries everything.
struct Observer {
    connection: Connection,
    tried: BTreeSet<String>,
}

impl Observer {
    fn is_refused<B: Serialize + DynamicType>(
        &self,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) {
        let none: Option<&str> = None;
        let call = self
            .connection
            .call_method(none, path, Some(interface), method, body);
        match block_on(call) {
            Err(zbus::Error::FDO(error)) if matches!(*error, zbus::fdo::Error::AccessDenied(_)) => {
            }
            other => panic!("{interface}.{method} of {path}: {other:?}"),
        }
    }

    fn method<B: Serialize + DynamicType>(&mut self, path: &str, member: &str, body: &B) {
        let (interface, method) = member.split_once('.').unwrap();
        let interface = format!("org.livetime.Timing1.{interface}");
        self.is_refused(path, &interface, method, body);
        self.tried.insert(member.to_owned());
    }

    fn property<'a>(&mut self, path: &str, member: &str, value: impl Into<Variant<'a>>) {
        let (interface, name) = member.split_once('.').unwrap();
        let interface = format!("org.livetime.Timing1.{interface}");
        let body = (interface.as_str(), name, value.into());
        self.is_refused(path, "org.freedesktop.DBus.Properties", "Set", &body);
        self.tried.insert(member.to_owned());
    }

    fn try_sinks(&mut self, io: &str, bus: &str) {
        for path in [io, bus] {
            for act in ["Owned.Own", "Owned.Disown", "Owned.Destroy"] {
                self.method(path, act, &());
            }
            self.method(path, "ActionSink.ToggleActive", &());
            self.property(path, "ActionSink.MinOffset", 0i64);
            self.property(path, "ActionSink.MaxOffset", 1i64);
            self.property(path, "ActionSink.MostFull", 0u32);
            self.property(path, "ActionSink.SignalRate", 1u64);
        }
        let level = (true, 1u64, u64::MAX, 0i64, true);
        self.method(io, "OutputActionSink.NewCondition", &level);
        let tag = (true, 1u64, u64::MAX, 0i64, 1u32);
        self.method(bus, "OutputActionSink.NewTagCondition", &tag);
        self.method(io, "OutputActionSink.WriteOutput", &true);
    }

    fn try_condition(&mut self, path: &str) {
        for act in ["Owned.Own", "Owned.Disown", "Owned.Destroy"] {
            self.method(path, act, &());
        }
        for flag in ["Conflict", "Delayed", "Early", "Late"] {
            self.property(path, &format!("Condition.Accept{flag}"), true);
        }
        self.property(path, "Condition.Active", false);
        self.property(path, "Condition.ID", 2u64 << 32);
        self.property(path, "Condition.Mask", u64::MAX << 32);
        self.property(path, "Condition.Offset", 1i64);
        self.property(path, "OutputCondition.On", false);
        self.property(path, "OutputCondition.Tag", 1u32);
        let path = zbus::OwnedObjectPath::try_from(path).unwrap();
        type Added = (zbus::OwnedObjectPath, u64, u64, i64, u32, u8, bool);
        let io = zbus::OwnedObjectPath::try_from(format!("{RECEIVER}/IO1")).unwrap();
        let added: Added = (io, 1, u64::MAX, 0, TAG_ON, 0, true);
        let none = Vec::<(zbus::OwnedObjectPath, bool)>::new();
        let remove = (Vec::<Added>::new(), vec![path.clone()], none.clone());
        let activate = (
            Vec::<Added>::new(),
            Vec::<zbus::OwnedObjectPath>::new(),
            vec![(path, false)],
        );
        let add = (vec![added], Vec::<zbus::OwnedObjectPath>::new(), none);
        for body in [remove, activate, add] {
            self.method(RECEIVER, "TimingReceiver.ApplyConditions", &body);
        }
    }

    fn try_receiver(&mut self) {
        self.method(ROOT, "Daemon.Quit", &());
        let message = (1u64, 2u64, 3u64);
        self.method(RECEIVER, "TimingReceiver.InjectEvent", &message);
        let fault = ("lost", 0i64);
        self.method(RECEIVER, "TimingReceiver.InjectClockFault", &fault);
        self.method(RECEIVER, "TimingReceiver.AdvanceClock", &u64::MAX);
        let schedule = seal("schedule", &[0; 32]).unwrap();
        let play = (Fd::from(schedule), 1_000_000u64, 1u32, 0u64);
        self.method(RECEIVER, "TimingReceiver.PlaySchedule", &play);
        self.method(RECEIVER, "TimingReceiver.StopSchedules", &());
        let input = format!("{RECEIVER}/IN1");
        self.method(&input, "InputEventSource.SetLevel", &true);
        self.property(&input, "InputEventSource.EventEnable", true);
        self.property(&input, "InputEventSource.EventPrefix", 2u64);
        self.property(&input, "InputEventSource.StableTime", 32u32);
    }

    fn try_generators(&mut self) {
        let path = format!("{RECEIVER}/mfg");
        let member = |act| format!("MasterFunctionGenerator.{act}");
        for act in ["Arm", "Abort", "Flush"] {
            self.method(&path, &member(act), &());
        }
        let active = member("SetActiveFunctionGenerators");
        self.method(&path, &active, &vec![0u32]);
        self.method(&path, &member("SetStartTag"), &1u32);
        let signals = member("SetGenerateIndividualSignals");
        self.method(&path, &signals, &true);
        let set = [CoefficientSet::default()];
        let block = seal("sets", &emit_block(&[&set[..]]).unwrap()).unwrap();
        let append = member("AppendParameterSets");
        self.method(&path, &append, &(Fd::from(block), true));
    }
}

/// A condition of the first output that nobody owns.
fn condition_of_nobody(control: &Control) -> ConditionId {
    let io = control.read(|registry| registry.sink_by_name("IO1").unwrap().id);
    let filter = IdFilter::leading(EventId(1 << 32), 32).unwrap();
    let spec = ConditionSpec::new(io, filter, TAG_ON);
    let id = control.apply(&ADMIN, &[Change::Add(spec)]).unwrap().added[0];
    control.apply(&ADMIN, &[Change::Disown(id)]).unwrap();
    id
}

/// Members of the interfaces that can change anything: all methods, and properties to be written.
fn members_of_the_page() -> BTreeSet<String> {
    let xml = include_str!("../../../docs/formats/timing-dbus-v1.xml");
    let mut interface = "";
    let mut members = BTreeSet::new();
    for line in xml.lines().map(str::trim) {
        let name = line.split('"').nth(1).unwrap_or("");
        if line.starts_with("<interface") {
            interface = name.rsplit('.').next().unwrap();
        } else if line.starts_with("<method")
            || line.starts_with("<property") && line.contains("access=\"readwrite\"")
        {
            members.insert(format!("{interface}.{name}"));
        }
    }
    members
}

#[test]
fn an_observer_changes_nothing_that_acts_on_hardware() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("t.sock");
    let uid = std::os::unix::fs::MetadataExt::uid(&folder.path().metadata().unwrap());
    let mut config = DaemonConfig::for_user(uid);
    config.rules = AccessRules::parse(&format!("user {uid} observe")).unwrap();
    config.socket = Some(socket.clone());
    config.virtual_start = Some(TaiNs(1_000_000_000_000));
    let daemon = Daemon::start(&config).unwrap();
    let id = condition_of_nobody(daemon.control());
    let seen = || {
        daemon.control().read(|registry| {
            let sinks: Vec<_> = registry.sinks().cloned().collect();
            let conditions: Vec<_> = registry.conditions().copied().collect();
            (sinks, conditions)
        })
    };
    let before = seen();
    assert!(
        before
            .0
            .iter()
            .all(|sink| sink.ownership == Ownership::FIXED)
    );
    let stream = UnixStream::connect(&socket).unwrap();
    let connection = block_on(Builder::unix_stream(stream).p2p().build()).unwrap();
    let mut observer = Observer {
        connection,
        tried: BTreeSet::new(),
    };
    observer.try_sinks(&format!("{RECEIVER}/IO1"), &format!("{RECEIVER}/bus1"));
    let name = format!("{RECEIVER}/IO1/c{}_{}", id.slot(), id.generation());
    observer.try_condition(&name);
    observer.try_receiver();
    observer.try_generators();
    assert_eq!(seen(), before);
    let open: BTreeSet<String> = OPEN.map(str::to_owned).into();
    assert!(observer.tried.is_disjoint(&open));
    let known: BTreeSet<String> = observer.tried.union(&open).cloned().collect();
    assert_eq!(known, members_of_the_page());
}

/// Not even an admin takes away what the receiver has, and nothing else brings back.
#[test]
fn outputs_and_buses_are_destroyed_by_nobody() {
    let mut config = DaemonConfig::for_user(0);
    config.virtual_start = Some(TaiNs(1_000_000_000_000));
    let daemon = Daemon::start(&config).unwrap();
    let control = daemon.control();
    condition_of_nobody(control);
    for name in ["IO1", "bus1"] {
        let id = control.read(|registry| registry.sink_by_name(name).unwrap().id);
        let refused = || control.destroy_sink(&ADMIN, id).unwrap_err().to_string();
        assert!(refused().contains("the receiver's own"));
        // Taken and given up it is still the receiver's.
        control.own_sink(&ADMIN, id, true).unwrap();
        assert!(refused().contains("the receiver's own"));
        control.own_sink(&ADMIN, id, false).unwrap();
        assert!(refused().contains("the receiver's own"));
    }
    assert_eq!(control.read(|registry| registry.conditions().count()), 1);
}

/// A queue goes with who filled it, and an admin stops what another one drives without taking it.
#[test]
fn nobody_plays_what_another_one_has_queued() {
    let mut config = DaemonConfig::for_user(0);
    config.virtual_start = Some(TaiNs(1_000_000_000_000));
    let daemon = Daemon::start(&config).unwrap();
    let generators = daemon.generators();
    let operator = |n| Caller {
        client: ClientId(n),
        role: Role::Operate,
    };
    let set = [CoefficientSet::default()];
    let block = emit_block(&[&set[..]; 2]).unwrap();
    let queued = || generators.read(|members| members.iter().map(|m| m.queued()).sum::<usize>());
    generators.set_active(&operator(7), &[0, 1]).unwrap();
    generators.append(&operator(7), &block).unwrap();
    assert_eq!(queued(), 2);
    assert!(generators.flush(&operator(8)).is_err());
    assert!(generators.abort(&operator(8)).is_err());
    generators.abort(&ADMIN).unwrap();
    generators.flush(&ADMIN).unwrap();
    assert_eq!(generators.ownership().owner, Some(ClientId(7)));
    assert_eq!(queued(), 0);
    generators.append(&operator(7), &block).unwrap();
    assert!(generators.client_gone(ClientId(7)));
    assert_eq!((queued(), generators.ownership().owner), (0, None));
}
