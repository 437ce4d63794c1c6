//! What peers and other daemons can do to a daemon that is reached by its socket or on a bus.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use livetime_timing_daemon::bulk::seal;
use livetime_timing_daemon::bus::listener::BusChoice;
use livetime_timing_daemon::{Daemon, DaemonConfig};
use livetime_wire::{EventId, TaiNs, TimingMessage};
use zbus::connection::Builder;
use zbus::export::serde::Serialize;
use zbus::{Connection, DynamicType, Fd, Message, OwnedObjectPath, Variant, block_on};

const RECEIVER: &str = "/org/livetime/Timing1/tr0";
const START: TaiNs = TaiNs(1_000_000_000_000);

fn uid(folder: &Path) -> u32 {
    folder.metadata().unwrap().uid()
}

fn config(folder: &Path) -> DaemonConfig {
    let mut config = DaemonConfig::for_user(uid(folder));
    config.socket = Some(folder.join("t.sock"));
    config.virtual_start = Some(START);
    config
}

fn connect(folder: &Path) -> Connection {
    let stream = UnixStream::connect(folder.join("t.sock")).unwrap();
    block_on(Builder::unix_stream(stream).p2p().build()).unwrap()
}

fn call<B: Serialize + DynamicType>(
    connection: &Connection,
    path: &str,
    member: &str,
    body: &B,
) -> zbus::Result<Message> {
    let (interface, method) = member.split_once('.').unwrap();
    let interface = format!("org.livetime.Timing1.{interface}");
    let none: Option<&str> = None;
    block_on(connection.call_method(none, path, Some(interface.as_str()), method, body))
}

/// A peer that has said who it is and writes what it likes.
fn raw_peer(folder: &Path) -> UnixStream {
    let mut stream = slow_peer(folder);
    stream.write_all(b"BEGIN\r\n").unwrap();
    stream
}

/// A peer that has said who it is, and does not begin.
fn slow_peer(folder: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(folder.join("t.sock")).unwrap();
    let digits = uid(folder).to_string();
    let hex: String = digits.bytes().map(|byte| format!("{byte:02x}")).collect();
    write!(stream, "\0AUTH EXTERNAL {hex}\r\n").unwrap();
    let mut byte = [0];
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    assert!(said.starts_with(b"OK "), "{said:?}");
    stream
}

/// Reads one message, or more exactly over it; returns its type.
fn read_message(stream: &mut UnixStream) -> u8 {
    let mut head = [0; 16];
    stream.read_exact(&mut head).unwrap();
    let length = |at: usize| {
        let bytes = head[at..at + 4].try_into().unwrap();
        u32::from_le_bytes(bytes) as usize
    };
    let mut rest = vec![0; length(12).next_multiple_of(8) + length(4)];
    stream.read_exact(&mut rest).unwrap();
    head[1]
}

/// Calls until nothing more is taken; returns how many calls went out whole.
fn flood(stream: &mut UnixStream, message: &[u8]) -> usize {
    const ENOUGH: usize = 64 << 20;
    // A daemon that takes everything never lets us wait.
    let patience = Duration::from_secs(2);
    stream.set_write_timeout(Some(patience)).unwrap();
    let mut sent = 0;
    while sent < ENOUGH {
        match stream.write(&message[sent % message.len()..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return sent / message.len();
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the daemon has taken {sent} bytes of calls that nobody reads the answers of")
}

#[test]
fn a_peer_that_calls_and_does_not_read_stops_itself_whatever_it_calls() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(&config(folder.path())).unwrap();
    let other = connect(folder.path());
    let standard = |interface: &str| format!("org.freedesktop.DBus.{interface}");
    let to = |interface: &str, method: &'static str| {
        Message::method_call(RECEIVER, method).interface(interface.to_owned())
    };
    let receiver = "org.livetime.Timing1.TimingReceiver";
    let calls = [
        to(&standard("Peer"), "Ping").build(&()).unwrap(),
        to(&standard("Introspectable"), "Introspect")
            .build(&())
            .unwrap(),
        to(&standard("Properties"), "GetAll")
            .build(&receiver)
            .unwrap(),
        // An error is an answer too.
        to(&standard("Properties"), "Nothing").build(&()).unwrap(),
        to(receiver, "ReadRawCurrentTime").build(&()).unwrap(),
    ];
    let mut floods = Vec::new();
    for message in &calls {
        let mut stream = raw_peer(folder.path());
        let calls = flood(&mut stream, message.data());
        // Nobody else waits.
        call(&other, RECEIVER, "TimingReceiver.ReadRawCurrentTime", &()).unwrap();
        floods.push((stream, calls));
    }
    for (stream, calls) in &mut floods[..3] {
        // Once it reads, everything it has asked is answered.
        for _ in 0..*calls {
            read_message(stream);
        }
    }
    // Those that do not read do not hold up the end either.
    daemon.stop().unwrap();
}

/// Their ends are seen by as many threads at once, when the core has stopped already.
#[test]
fn the_end_does_not_wait_for_the_many_who_are_connected() {
    const MANY: usize = 150;
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(&config(folder.path())).unwrap();
    let mut streams: Vec<UnixStream> = (0..MANY).map(|_| raw_peer(folder.path())).collect();
    while daemon.connections() < MANY {
        std::thread::yield_now();
    }
    daemon.stop().unwrap();
    for stream in &mut streams {
        // What was on its way comes first.
        let _ended = std::io::copy(stream, &mut std::io::sink());
    }
    while !daemon.control().clients().is_empty() {
        std::thread::yield_now();
    }
}

/// A peer takes its time for the handshake, and the place of a sink is another one's by then.
#[test]
fn a_peer_that_begins_late_finds_the_objects_that_there_are() {
    const ANSWER: u8 = 2;
    const ERROR: u8 = 3;
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&config(folder.path())).unwrap();
    let client = connect(folder.path());
    let make = |name: &str| {
        let member = "TimingReceiver.NewSoftwareActionSink";
        call(&client, RECEIVER, member, &name).unwrap();
        let control = daemon.control();
        control.read(|registry| registry.sink_by_name(name).unwrap().id)
    };
    let gone = make("gone");
    let mut late = slow_peer(folder.path());
    call(&client, &format!("{RECEIVER}/gone"), "Owned.Destroy", &()).unwrap();
    assert_eq!(make("there"), gone);
    late.write_all(b"BEGIN\r\n").unwrap();
    for (sink, expected) in [("gone", ERROR), ("there", ANSWER)] {
        let call = Message::method_call(format!("{RECEIVER}/{sink}"), "ReadFill");
        let call = call.interface("org.livetime.Timing1.ActionSink").build(&());
        late.write_all(call.unwrap().data()).unwrap();
        let answer = loop {
            match read_message(&mut late) {
                answer @ (ANSWER | ERROR) => break answer,
                _signal => {}
            }
        };
        assert_eq!(answer, expected, "{sink}");
    }
}

#[test]
fn nobody_listens_any_more_when_a_daemon_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&config(folder.path())).unwrap();
    // The file of the socket goes, and this name of it stays.
    let other = folder.path().join("other.sock");
    std::fs::hard_link(folder.path().join("t.sock"), &other).unwrap();
    drop(UnixStream::connect(&other).unwrap());
    drop(daemon);
    let error = UnixStream::connect(&other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn automatic_names_pass_over_those_of_sinks_that_were_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.state_file = Some(folder.path().join("kept.json"));
    let mut made = Vec::new();
    for _ in 0..2 {
        let daemon = Daemon::start(&config).unwrap();
        let client = connect(folder.path());
        for _ in 0..2 {
            let method = "TimingReceiver.NewSoftwareActionSink";
            let answer = call(&client, RECEIVER, method, &"").unwrap();
            let sink: OwnedObjectPath = answer.body().deserialize().unwrap();
            call(&client, sink.as_str(), "Owned.Disown", &()).unwrap();
            made.push(sink.to_string());
        }
        drop(daemon);
    }
    let expected: Vec<String> = (1..=4).map(|n| format!("{RECEIVER}/_{n}")).collect();
    assert_eq!(made, expected);
}

fn refused(answer: zbus::Result<Message>) -> String {
    answer.unwrap_err().to_string()
}

#[test]
fn options_of_a_pipe_are_checked_and_its_rule_is_the_one_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&config(folder.path())).unwrap();
    let client = connect(folder.path());
    let made = call(
        &client,
        RECEIVER,
        "TimingReceiver.NewSoftwareActionSink",
        &"s",
    )
    .unwrap();
    let sink: OwnedObjectPath = made.body().deserialize().unwrap();
    let subscribe = |option: &str, value: Variant<'static>| {
        let options = HashMap::from([(option, value)]);
        ["Subscribe", "SubscribePipe"].map(|method| {
            let member = format!("SoftwareActionSink.{method}");
            call(&client, sink.as_str(), &member, &options)
        })
    };
    for slots in [0u32, 3, 1 << 31] {
        for answer in subscribe("slots", Variant::new(slots)) {
            let text = refused(answer);
            assert!(
                text.contains(&format!("{slots} slots is not a power of two")),
                "{text}"
            );
        }
    }
    for (option, value, found) in [
        (
            "slots",
            Variant::new("x"),
            "option `slots` is `x` of type s, allowed is a number",
        ),
        (
            "slots",
            Variant::new(-1i64),
            "option `slots` is -1 of type x",
        ),
        ("class", Variant::new(7u8), "option `class` is 7 of type y"),
        (
            "overflow",
            Variant::new("foo"),
            "option `overflow` is `foo` of type s",
        ),
        (
            "bound",
            Variant::new(vec![1u8]),
            "option `bound` is a value of type ay",
        ),
    ] {
        for answer in subscribe(option, value) {
            let text = refused(answer);
            assert!(text.contains(found), "{text}");
        }
    }
    let [ring, pipe] = subscribe("overflow", Variant::new("drop-oldest"));
    let (_ring, _pipe) = (ring.unwrap(), pipe.unwrap());
    let subscriptions = daemon.control().subscriptions();
    let rules: Vec<&str> = subscriptions.iter().map(|s| s.config.rule.name()).collect();
    assert_eq!(rules, ["drop-oldest", "drop-newest"]);
}

#[test]
fn a_schedule_is_not_played_otherwise_than_asked() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&config(folder.path())).unwrap();
    let client = connect(folder.path());
    let at = |ahead| TimingMessage::new(EventId(1), 2, TaiNs(START.0 + ahead)).to_bytes();
    let bytes = [at(1_000_000_000), at(1_000_001_000)].concat();
    let play = |repeats: u32, period: u64| {
        let file = Fd::from(seal("schedule", &bytes).unwrap());
        let body = (file, 1_000_000u64, repeats, period);
        call(&client, RECEIVER, "TimingReceiver.PlaySchedule", &body)
    };
    assert!(refused(play(0, 0)).contains("repeats is 0, allowed is 1 or more"));
    let text = refused(play(3, 999));
    assert!(
        text.contains("period 999 ns: the schedule is 1000 ns long"),
        "{text}"
    );
    let text = refused(play(3, 1 << 63));
    assert!(text.contains("after the last time there is"), "{text}");
    assert_eq!(daemon.control().fresh_figures().unwrap().schedules, 0);
    play(1, 0).unwrap();
    play(3, 1_000).unwrap();
    assert_eq!(daemon.control().fresh_figures().unwrap().playing, 8);
}

#[test]
fn starts_at_one_socket_have_epochs_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.epoch = 77;
    let mut epochs = Vec::new();
    for _ in 0..3 {
        let daemon = Daemon::start(&config).unwrap();
        epochs.push(daemon.control().epoch());
        let second = Daemon::start(&config).unwrap_err().to_string();
        assert!(second.contains("a daemon listens on"), "{second}");
    }
    assert_eq!(epochs, [77, 78, 79]);
}

#[test]
fn an_empty_state_file_is_refused_as_a_damaged_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    let file = folder.path().join("kept.json");
    config.state_file = Some(file.clone());
    for (text, said) in [("", "it is empty"), ("\n", "it is empty"), ("{", "EOF")] {
        std::fs::write(&file, text).unwrap();
        let error = Daemon::start(&config).unwrap_err().to_string();
        assert!(
            error.contains(said) && error.contains("correct it, or move"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
    std::fs::remove_file(&file).unwrap();
    drop(Daemon::start(&config).unwrap());
}

/// A bus of our own.
struct Bus(Child);

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a bus in a folder, with its address; nothing where there is no bus.
fn start_bus(folder: &Path) -> Option<(Bus, String)> {
    let path = folder.join("bus.conf");
    let text = format!(
        "<busconfig><type>custom</type><listen>unix:path={}/bus</listen><auth>EXTERNAL</auth>\
         <policy context=\"default\"><allow user=\"*\"/><allow own=\"*\"/>\
         <allow send_destination=\"*\"/><allow receive_sender=\"*\"/></policy></busconfig>",
        folder.display()
    );
    std::fs::write(&path, text).unwrap();
    let started = Command::new("dbus-daemon")
        .arg(format!("--config-file={}", path.display()))
        .args(["--nofork", "--print-address"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = started else {
        println!("SKIPPED: there is no dbus-daemon");
        return None;
    };
    let output = child.stdout.take().unwrap();
    let bus = Bus(child);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).unwrap();
    Some((bus, line.trim().to_owned()))
}

#[test]
fn a_bus_that_goes_away_takes_its_clients_along_and_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let Some((bus, address)) = start_bus(folder.path()) else {
        return;
    };
    let mut config = config(folder.path());
    config.buses = vec![BusChoice::Address(address.clone())];
    let daemon = Daemon::start(&config).unwrap();
    let at_the_socket = connect(folder.path());
    let on_the_bus = block_on(Builder::address(address.as_str()).build()).unwrap();
    let made = block_on(on_the_bus.call_method(
        Some("org.livetime.Timing1"),
        RECEIVER,
        Some("org.livetime.Timing1.TimingReceiver"),
        "NewSoftwareActionSink",
        &"on_the_bus",
    ));
    made.unwrap();
    let has_sink = || {
        let control = daemon.control();
        control.read(|registry| registry.sink_by_name("on_the_bus").is_some())
    };
    assert!(has_sink() && daemon.take_lost_buses().is_empty());
    drop(bus);
    let told = loop {
        match daemon.take_lost_buses() {
            none if none.is_empty() => std::thread::yield_now(),
            told => break told,
        }
    };
    assert_eq!(told, [format!("the bus at {address}")]);
    while has_sink() {
        std::thread::yield_now();
    }
    call(&at_the_socket, RECEIVER, "TimingReceiver.CurrentTime", &()).unwrap();
    assert_eq!(daemon.control().clients().len(), 1);
    assert!(daemon.take_lost_buses().is_empty());
}

#[test]
fn a_second_daemon_does_not_take_the_name_on_the_bus() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_bus, address)) = start_bus(folder.path()) else {
        return;
    };
    let mut config = config(folder.path());
    config.buses = vec![BusChoice::Address(address)];
    let first = Daemon::start(&config).unwrap();
    config.socket = Some(folder.path().join("second.sock"));
    let error = Daemon::start(&config).unwrap_err().to_string();
    let own = format!("process {} (:1.", std::process::id());
    assert!(error.contains("org.livetime.Timing1 on the bus"), "{error}");
    assert!(error.contains(&own), "{error}");
    drop(first);
    // Nobody waits in a queue for it: it is free again.
    drop(Daemon::start(&config).unwrap());
}
