//! Calls and bytes that fit nothing.

use livetime_client::{
    Address, EventId, Filter, SubscriptionOptions, TaiNs, TimingClient, TimingMessage,
};
use livetime_timing_daemon::AccessRules;

use crate::stage::{MASTER, RECEIVER, START, messages, stage_with, uid};

/// Calls that fit nothing, from a client that may operate, and bytes that are no D-Bus: nothing of
/// it ends the daemon or costs another client a record. `LIVETIME_TIMING_CALLS` makes it longer,
/// `LIVETIME_TEST_SEED` repeats it.
#[test]
fn malformed_calls_harm_nobody() {
    let number = |name: &str, usual: u64| {
        let text = std::env::var(name).ok();
        text.and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let seed = number("LIVETIME_TEST_SEED", 20_261_122);
    let calls = number("LIVETIME_TIMING_CALLS", 4_000);
    println!("LIVETIME_TEST_SEED={seed}");
    let rules = format!("user {} operate", uid());
    let stage = stage_with(|config| config.rules = AccessRules::parse(&rules).unwrap());
    let Address::Socket(socket) = &stage.address else {
        panic!("a socket was asked for")
    };
    let watcher = stage.client();
    let sink = watcher.new_sink("watcher").unwrap();
    let filter = Filter {
        id: 0x7700_0000_0000_0000,
        mask: u64::MAX << 56,
        ..Filter::ALL
    };
    sink.add(&filter).unwrap();
    let mut records = sink.subscribe(&SubscriptionOptions::default()).unwrap();
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 33) % below
    };
    let xml = include_str!("../../../../docs/formats/timing-dbus-v1.xml");
    let named = |kind: &str| -> Vec<&str> {
        let lines = xml.lines().map(str::trim);
        let lines = lines.filter(|line| line.starts_with(kind));
        lines.filter_map(|line| line.split('"').nth(1)).collect()
    };
    let (methods, properties) = (named("<method"), named("<property"));
    let interfaces = named("<interface");
    assert!(methods.len() > 30 && properties.len() > 30 && interfaces.len() == 11);
    let mut client = stage.client();
    let mut sent = 0u64;
    for call in 0..calls {
        if call % 400 == 0 {
            // Its sinks and conditions go with it.
            client = stage.client();
        }
        if call % 100 == 0 {
            garbage(socket, &mut random);
            let time = TaiNs(START.0 + (call + 1) * 10_000);
            let message = TimingMessage::new(EventId(filter.id | sent), sent, time);
            stage.daemon.injector().inject(&[message]);
            // Figures come after what was injected before: it has arrived in time.
            stage.daemon.control().fresh_figures().unwrap();
            stage.daemon.injector().advance_to(TaiNs(time.0 + 5_000));
            assert_eq!(messages(&mut records, 1)[0].param, sent);
            sent += 1;
        }
        let paths = [
            "/org/livetime/Timing1",
            RECEIVER,
            MASTER,
            "/",
            "/org/livetime/Timing1/tr0/IO1",
            "/org/livetime/Timing1/tr0/IN1",
            "/org/livetime/Timing1/tr0/watcher",
            "/org/livetime/Timing1/tr0/IO1/c0_0",
        ];
        let path = paths[random(paths.len() as u64) as usize];
        let interface = interfaces[random(interfaces.len() as u64) as usize];
        let (interface, member) = match random(3) {
            0 => ("org.freedesktop.DBus.Properties", "Set"),
            _ => (interface, methods[random(methods.len() as u64) as usize]),
        };
        let property = properties[random(properties.len() as u64) as usize];
        malformed_call(&client, (path, interface, member, property), &mut random);
    }
    assert_eq!(records.lost(), 0);
    watcher.status().unwrap();
    let clients = || stage.daemon.control().clients().len();
    // Those that hung up in the middle of a handshake are forgotten soon.
    while clients() > 2 {
        std::thread::yield_now();
    }
    assert_eq!(clients(), 2);
}

/// A call with a body that it may or may not have; what it answers does not matter.
fn malformed_call(
    client: &TimingClient,
    (path, interface, member, property): (&str, &str, &str, &str),
    random: &mut impl FnMut(u64) -> u64,
) {
    let connection = client.connection();
    let edges = [0, 1, 255, 1 << 31, 1 << 32, 1 << 63, u64::MAX];
    let number = match random(2) {
        0 => edges[random(edges.len() as u64) as usize],
        _ => random(1 << 30),
    };
    let text = "a_".repeat(random(300) as usize);
    macro_rules! call {
        ($body:expr) => {{
            // Refusals are what is expected of most.
            let _ = zbus::block_on(connection.call_method(
                None::<&str>,
                path,
                Some(interface),
                member,
                $body,
            ));
        }};
    }
    if member == "Set" {
        let value: zbus::Variant<'_> = match random(4) {
            0 => number.into(),
            1 => (number as u32).into(),
            2 => (number % 2 == 0).into(),
            _ => number.cast_signed().into(),
        };
        let of = interface_of(property);
        return call!(&(of, property, value));
    }
    match random(9) {
        0 => call!(&()),
        1 => call!(&number),
        2 => call!(&text),
        3 => call!(&(number % 2 == 0)),
        4 => call!(&(number, random(1 << 40), random(1 << 40))),
        5 => call!(&(
            true,
            number,
            u64::MAX << (number % 64),
            number.cast_signed()
        )),
        6 => call!(&(text.as_str(), number.cast_signed())),
        7 => {
            let (read_end, _write_end) = std::io::pipe().unwrap();
            let fd = zbus::Fd::from(std::os::fd::AsFd::as_fd(&read_end));
            call!(&(fd, number, number as u32, number))
        }
        _ => {
            let (read_end, _write_end) = std::io::pipe().unwrap();
            let fd = zbus::Fd::from(std::os::fd::AsFd::as_fd(&read_end));
            call!(&(fd, number % 2 == 0))
        }
    }
}

/// The interface that the page lists a property under.
fn interface_of(property: &str) -> &'static str {
    let xml = include_str!("../../../../docs/formats/timing-dbus-v1.xml");
    let mut interface = "";
    for line in xml.lines().map(str::trim) {
        let name = line.split('"').nth(1).unwrap_or("");
        if line.starts_with("<interface") {
            interface = name;
        } else if line.starts_with("<property") && name == property {
            return interface;
        }
    }
    interface
}

/// Bytes to the socket that begin like a handshake and go on as they please.
fn garbage(socket: &std::path::Path, random: &mut impl FnMut(u64) -> u64) {
    use std::io::Write;
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let uid: String = uid()
        .to_string()
        .bytes()
        .map(|b| format!("{b:02x}"))
        .collect();
    let begin = format!("\0AUTH EXTERNAL {uid}\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n");
    let cut = random(begin.len() as u64 + 1) as usize;
    let mut bytes = begin.as_bytes()[..cut].to_vec();
    bytes.extend((0..random(400)).map(|_| random(256) as u8));
    // The daemon may have hung up already.
    let _ = stream.write_all(&bytes);
}
