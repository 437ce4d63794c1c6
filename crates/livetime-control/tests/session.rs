//! Two ends of a control session on the loopback.

use std::net::TcpListener;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use livetime_control::HostHello;
use livetime_control::session::{CoordinatorSaid, CoordinatorSession, HostSaid, HostSession};

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").to_string()
}

/// Waits for what is due, whatever else is said meanwhile.
fn await_said<T: PartialEq + std::fmt::Debug>(heard: &Receiver<T>, due: &T) {
    while heard.recv().expect("the session is open") != *due {}
}

#[test]
fn a_host_is_seen_asked_ordered_and_heard_and_its_end_is_seen() {
    let at = free_port();
    let (tell, heard) = sync_channel(64);
    let coordinator = CoordinatorSession::open(&at, "k1", &tell).unwrap();
    let hello = HostHello {
        host: "a".to_owned(),
        life: 5,
        version: "0.1.0".to_owned(),
        protocol: 1,
        streams_at: "127.0.0.1:1".to_owned(),
        process: 3,
        mtu: 1500,
    };
    let (tell, at_host) = sync_channel(64);
    let host = HostSession::open(&at, "k1", &hello, &tell).unwrap();
    let token = |is_there| HostSaid::Token {
        host: "a".to_owned(),
        life: 5,
        is_there,
    };
    await_said(&heard, &token(true));
    await_said(&at_host, &CoordinatorSaid::Token(true));
    let patience = Duration::from_secs(60);
    assert_eq!(coordinator.ask("a", 5, patience), Some(hello));
    for n in 0..100 {
        coordinator.order("a", 5, &[n]).unwrap();
        await_said(&at_host, &CoordinatorSaid::Order(vec![n]));
    }
    host.report(b"done").unwrap();
    let report = HostSaid::Report {
        host: "a".to_owned(),
        life: 5,
        bytes: b"done".to_vec(),
    };
    host.report_state(b"state").unwrap();
    await_said(&heard, &report);
    drop(host);
    await_said(&heard, &token(false));
}

#[test]
fn a_host_that_is_not_there_does_not_answer() {
    let (tell, _heard) = sync_channel(64);
    let coordinator = CoordinatorSession::open(&free_port(), "k2", &tell).unwrap();
    assert_eq!(
        coordinator.ask("nobody", 1, Duration::from_millis(50)),
        None
    );
}
