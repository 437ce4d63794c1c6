use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use livetime_source::FragmentTrigger;
use livetime_wire::fragment::HEADER_WORDS as FRAGMENT_HEADER;
use livetime_wire::front_end_frame::{
    ANSWER_WORDS, FrameContent, FrameRefusal, FrontEndAnswer, FrontEndFrame, STATUS_ABSENT,
};
use zerocopy::IntoBytes;

use super::*;

const RUN: RunNumber = RunNumber(5);
const SOURCES: [SourceId; 2] = [SourceId(0x1_0000), SourceId(0x1_0001)];
/// How long the system may take to hand a few bytes on.
const PATIENCE: Duration = Duration::from_secs(60);

fn server(queue: u32) -> FrontEndServer {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = FrontEndServerConfig {
        listen: Some(any),
        datagrams: Some(any),
        events: FrontEndEventsConfig {
            queue,
            ..FrontEndEventsConfig::default()
        },
    };
    FrontEndServer::bind(&config, RUN, &SOURCES, 1024).unwrap()
}

fn connect(server: &FrontEndServer) -> TcpStream {
    let at = server.listens_at().unwrap();
    TcpStream::connect(at).unwrap()
}

/// Polls until something is so.
fn poll_until(server: &mut FrontEndServer, mut is_so: impl FnMut(&mut FrontEndServer) -> bool) {
    let start = Instant::now();
    loop {
        server.poll(RunNs(1));
        if is_so(server) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{:?}", server.details());
        std::thread::yield_now();
    }
}

fn frame(source: SourceId, trigger: u64, data: &[u32]) -> Vec<u8> {
    let header = FrontEndFrame {
        run: Some(RUN),
        source,
        trigger: TriggerNumber(trigger),
        content: FrameContent::Data {
            words: data.len() as u32,
            event_type: 3,
            status: 0,
        },
    };
    let words = [&header.emit()[..], data].concat();
    words.as_bytes().to_vec()
}

fn end(source: SourceId, trigger: u64) -> Vec<u8> {
    let header = FrontEndFrame {
        run: None,
        source,
        trigger: TriggerNumber(trigger),
        content: FrameContent::End,
    };
    header.emit().as_bytes().to_vec()
}

fn answer(stream: &mut TcpStream) -> FrontEndAnswer {
    let mut words = [0; ANSWER_WORDS];
    stream.read_exact(words.as_mut_bytes()).unwrap();
    FrontEndAnswer::parse(&words).unwrap()
}

/// Hands the next event on; the data of each source and whether it was absent.
fn hand_on(server: &mut FrontEndServer) -> Vec<(Vec<u32>, bool)> {
    let trigger = FragmentTrigger {
        trigger: server.events().head(),
        bunch: 0,
        trigger_type: 1,
        event_type: 0,
    };
    server.begin(&mut SourceEvent::new());
    let mut words = Vec::new();
    let data = (0..SOURCES.len()).map(|link| {
        server.events().write(link, &trigger, &mut words);
        let (data, trailer) = words[FRAGMENT_HEADER..].split_at(words.len() - 14);
        (data.to_vec(), trailer[0] == STATUS_ABSENT)
    });
    let data = data.collect();
    server.release();
    data
}

fn count(server: &FrontEndServer, name: &str) -> u64 {
    let details = server.details();
    let found = details.iter().find(|(key, _)| key == name);
    found.unwrap_or_else(|| panic!("no {name}")).1
}

#[test]
fn events_are_put_together_from_streams_and_datagrams() {
    let mut server = server(4);
    let mut stream = connect(&server);
    poll_until(&mut server, |server| server.streams.len() == 1);
    let welcome = answer(&mut stream);
    let words_max = Said::Welcome { words_max: 1010 };
    assert_eq!(
        (welcome.run, welcome.trigger, welcome.said),
        (RUN, TriggerNumber(1), words_max)
    );
    // In pieces, as a network may cut them.
    let bytes = [
        frame(SOURCES[0], 1, &[1, 2, 3]),
        frame(SOURCES[0], 2, &[4; 1010]),
    ];
    for piece in bytes.concat().chunks(1001) {
        stream.write_all(piece).unwrap();
        server.poll(RunNs(0));
    }
    let at = server.datagrams.as_ref().unwrap().local_addr().unwrap();
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for trigger in [2, 1] {
        let datagram = frame(SOURCES[1], trigger, &[trigger as u32]);
        sender.send_to(&datagram, at).unwrap();
    }
    // One that is not as long as it says, and one that is no frame.
    let cut = &frame(SOURCES[1], 1, &[7, 8])[..36];
    sender.send_to(cut, at).unwrap();
    sender.send_to(b"hello", at).unwrap();
    poll_until(&mut server, |server| {
        count(server, "front_end_frames") == 4 && count(server, "front_end_frames_refused") == 2
    });
    assert!(server.is_ready(RunNs(1)));
    let first = hand_on(&mut server);
    assert_eq!(first, [(vec![1, 2, 3], false), (vec![1], false)]);
    assert!(server.is_ready(RunNs(1)));
    let second = hand_on(&mut server);
    assert_eq!(second, [(vec![4; 1010], false), (vec![2], false)]);
    assert_eq!(count(&server, "front_end_datagrams"), 4);
}

#[test]
fn a_frame_that_is_early_waits_in_its_stream_and_comes_in_its_order() {
    let mut server = server(2);
    let mut streams = [connect(&server), connect(&server)];
    for trigger in 1..=9 {
        let early = frame(SOURCES[0], trigger, &[trigger as u32]);
        streams[0].write_all(&early).unwrap();
    }
    poll_until(&mut server, |server| count(server, "front_end_frames") == 2);
    for trigger in 1..=9 {
        let late = frame(SOURCES[1], trigger, &[10 * trigger as u32]);
        streams[1].write_all(&late).unwrap();
        poll_until(&mut server, |server| server.is_ready(RunNs(1)));
        let data = hand_on(&mut server);
        let expected = [trigger as u32, 10 * trigger as u32].map(|word| (vec![word], false));
        assert_eq!(data, expected);
    }
    for (stream, source) in streams.iter_mut().zip(SOURCES) {
        stream.write_all(&end(source, 9)).unwrap();
    }
    poll_until(&mut server, |server| server.events().is_ended());
    assert_eq!(count(&server, "front_end_frames_used"), 18);
}

#[test]
fn a_datagram_that_is_early_waits_while_the_head_can_go_on() {
    let mut server = server(2);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = server.datagrams.as_ref().unwrap().local_addr().unwrap();
    let send = |source, trigger: u64| {
        let datagram = frame(source, trigger, &[trigger as u32]);
        socket.send_to(&datagram, at).unwrap();
    };
    for trigger in 1..=20 {
        SOURCES.iter().for_each(|source| send(*source, trigger));
    }
    for trigger in 1..=20 {
        poll_until(&mut server, |server| server.is_ready(RunNs(1)));
        assert_eq!(hand_on(&mut server), vec![(vec![trigger], false); 2]);
    }
    assert_eq!(count(&server, "front_end_datagrams_ahead"), 0);
    // While it waits for one of the sources those of the others are lost.
    for trigger in 21..=25 {
        send(SOURCES[0], trigger);
    }
    poll_until(&mut server, |server| {
        count(server, "front_end_datagrams") == 45
    });
    assert_eq!(count(&server, "front_end_datagrams_ahead"), 3);
    // After a pause of all of them the run follows, and is with them again after a window or two.
    for trigger in 99..=110 {
        SOURCES.iter().for_each(|source| send(*source, trigger));
    }
    poll_until(&mut server, |server| {
        if !server.is_ready(RunNs(1)) {
            return false;
        }
        let trigger = server.events().head().0 as u32;
        let data = hand_on(server);
        if trigger > 104 {
            assert_eq!(data, vec![(vec![trigger], false); 2]);
        }
        trigger == 110
    });
    assert_eq!(server.events().silent().count(), 0);
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let mut server = server(2);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = server.datagrams.as_ref().unwrap().local_addr().unwrap();
    let datagram = frame(SOURCES[0], 1, &[0; 1010]);
    // More than the kernel keeps, however much it grants.
    for _ in 0..10_000 {
        socket.send_to(&datagram, at).unwrap();
    }
    let mut received = 0;
    while server.poll(RunNs(1)) > 0 {}
    socket.send_to(&datagram, at).unwrap();
    poll_until(&mut server, |server| {
        let before = std::mem::replace(&mut received, count(server, "front_end_datagrams"));
        before == received
    });
    let dropped = count(&server, "front_end_datagrams_dropped");
    assert_eq!(received + dropped, 10_001);
    assert!(dropped > 0);
}

#[test]
fn a_stream_with_what_the_run_does_not_take_is_told_why_and_the_others_go_on() {
    let mut server = server(4);
    let mut good = connect(&server);
    good.write_all(&frame(SOURCES[0], 1, &[1])).unwrap();
    let stranger = frame(SourceId(9), 1, &[1; 900]);
    let too_long = frame(SOURCES[0], 3, &[0; 1011]);
    let mut other_run = frame(SOURCES[0], 4, &[]);
    other_run[4] += 1;
    for (bytes, refusal, trigger) in [
        (
            b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".repeat(9),
            FrameRefusal::NoFrame,
            0,
        ),
        (stranger.repeat(99), FrameRefusal::Source, 1),
        (too_long, FrameRefusal::TooLong, 3),
        (other_run, FrameRefusal::Run, 4),
        (frame(SOURCES[0], 0, &[]), FrameRefusal::TriggerZero, 0),
        (frame(SOURCES[0], 1 << 40, &[]), FrameRefusal::Far, 1 << 40),
    ] {
        let refused = count(&server, "front_end_streams_refused");
        let mut bad = connect(&server);
        bad.write_all(&bytes).unwrap();
        poll_until(&mut server, |server| {
            count(server, "front_end_streams_refused") == refused + 1
        });
        assert!(matches!(answer(&mut bad).said, Said::Welcome { .. }));
        let told = answer(&mut bad);
        assert_eq!(
            (told.said, told.trigger.0),
            (Said::Refused(refusal), trigger)
        );
        drop(bad);
        poll_until(&mut server, |server| server.streams.len() == 1);
    }
    good.write_all(&frame(SOURCES[1], 1, &[2])).unwrap();
    poll_until(&mut server, |server| server.is_ready(RunNs(1)));
    assert_eq!(hand_on(&mut server), [(vec![1], false), (vec![2], false)]);
}

#[test]
fn a_stream_that_is_cut_within_a_frame_is_counted() {
    let mut server = server(4);
    for (bytes, cut) in [(32, 0), (35, 1), (12, 1)] {
        let before = count(&server, "front_end_streams_cut");
        let mut stream = connect(&server);
        stream
            .write_all(&frame(SOURCES[0], 1, &[])[..bytes.min(32)])
            .unwrap();
        stream
            .write_all(&[0; 3][..bytes.saturating_sub(32)])
            .unwrap();
        poll_until(&mut server, |server| server.streams.len() == 1);
        drop(stream);
        poll_until(&mut server, |server| server.streams.is_empty());
        assert_eq!(
            count(&server, "front_end_streams_cut") - before,
            cut,
            "{bytes}"
        );
    }
}

#[test]
fn at_the_end_front_ends_are_told_and_what_is_left_is_counted() {
    let mut server = server(4);
    let mut stream = connect(&server);
    stream.write_all(&frame(SOURCES[0], 1, &[1])).unwrap();
    poll_until(&mut server, |server| count(server, "front_end_frames") == 1);
    server.end(TriggerNumber(0));
    server.end(TriggerNumber(0));
    assert!(!server.is_ready(RunNs(u64::MAX)));
    assert!(matches!(answer(&mut stream).said, Said::Welcome { .. }));
    assert_eq!(answer(&mut stream).said, Said::Ended);
    // What is sent all the same is read, so that the sender does not wait for ever.
    stream
        .write_all(&frame(SOURCES[0], 2, &[0; 1000]).repeat(100))
        .unwrap();
    drop(stream);
    poll_until(&mut server, |server| server.streams.is_empty());
    assert_eq!(count(&server, "front_end_frames_discarded"), 1);
    assert_eq!(count(&server, "front_end_unheard_of_0x010001"), 1);
}

#[test]
fn an_address_in_use_is_named() {
    let taken = server(1);
    let at = taken.listens_at().unwrap();
    let config = FrontEndServerConfig {
        listen: Some(at),
        ..FrontEndServerConfig::default()
    };
    let error = FrontEndServer::bind(&config, RUN, &SOURCES, 64).unwrap_err();
    assert!(error.to_string().contains(&at.to_string()), "{error}");
}
