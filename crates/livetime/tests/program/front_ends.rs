//! Front-ends outside of the program send the events of a run, over streams and datagrams.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use livetime_wire::front_end_frame::{
    ANSWER_WORDS, FrameContent, FrameRefusal, FrontEndAnswer, FrontEndFrame, Said,
};
use livetime_wire::{SourceId, TriggerNumber};
use serde_json::Value;

use crate::workbench::{Running, SMALL, Workbench, assert_conserved, changed, count, project};

/// How long a run may take to begin.
const PATIENCE: Duration = Duration::from_secs(120);
const SOURCES: [u32; 4] = [0x51_0000, 0x51_0001, 0x52_0000, 0x52_0001];

/// A bench with the configuration of a run that takes front-ends at these addresses.
fn bench_of(keys: &str) -> (Workbench, SocketAddr, SocketAddr) {
    let bench = Workbench::new();
    let any = (Ipv4Addr::LOCALHOST, 0);
    let free = TcpListener::bind(any).and_then(|socket| socket.local_addr());
    let other = UdpSocket::bind(any).and_then(|socket| socket.local_addr());
    let (listen, datagrams) = (free.unwrap(), other.unwrap());
    let table = format!(
        "kind = \"external\"\nlisten = \"{listen}\"\ndatagrams = \"{datagrams}\"\n{keys}\n"
    );
    bench.write("run.toml", changed(SMALL, "rate = \"5 kHz\"\n", &table));
    (bench, listen, datagrams)
}

fn start(bench: &Workbench, options: &[&str]) -> Running {
    let command = ["run", "run.toml", "--out", "out", "--json"];
    bench.start(&[&command[..], options].concat())
}

fn connect(listen: SocketAddr) -> TcpStream {
    // The address is there when the front-end role is.
    let start = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(listen) {
            Ok(stream) => break stream,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::yield_now();
    };
    assert!(matches!(answer(&mut stream).said, Said::Welcome { .. }));
    stream
}

fn answer(stream: &mut TcpStream) -> FrontEndAnswer {
    let mut bytes = [0; 4 * ANSWER_WORDS];
    stream.read_exact(&mut bytes).expect("an answer");
    let (words, _) = bytes.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    FrontEndAnswer::parse(words.first_chunk().unwrap()).expect("it is an answer")
}

/// A frame whose data say whose it is.
fn frame(source: u32, trigger: u64) -> Vec<u8> {
    let data = vec![source ^ trigger as u32; trigger as usize % 100];
    let content = FrameContent::Data {
        words: data.len() as u32,
        event_type: 2,
        status: 0,
    };
    bytes(source, trigger, content, &data)
}

fn end(source: u32, trigger: u64) -> Vec<u8> {
    bytes(source, trigger, FrameContent::End, &[])
}

fn bytes(source: u32, trigger: u64, content: FrameContent, data: &[u32]) -> Vec<u8> {
    let header = FrontEndFrame {
        run: None,
        source: SourceId(source),
        trigger: TriggerNumber(trigger),
        content,
    };
    let words = header.emit().into_iter().chain(data.iter().copied());
    words.flat_map(u32::to_le_bytes).collect()
}

fn of_source(summary: &Value, name: &str) -> u64 {
    count(summary, &format!("roles.src0.{name}"))
}

/// Two streams and datagrams, of which one carries two sources.
fn all_events_are_built(options: &[&str]) {
    const TRIGGERS: u64 = 200;
    let (bench, listen, datagrams) = bench_of("queue = 1000");
    let run = start(&bench, options);
    let (mut first, mut second) = (connect(listen), connect(listen));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let [a, b, c, d] = SOURCES;
    for trigger in 1..=TRIGGERS {
        first.write_all(&frame(a, trigger)).unwrap();
        first.write_all(&frame(b, trigger)).unwrap();
        second.write_all(&frame(c, trigger)).unwrap();
        socket.send_to(&frame(d, trigger), datagrams).unwrap();
    }
    first
        .write_all(&[end(a, TRIGGERS), end(b, TRIGGERS)].concat())
        .unwrap();
    second.write_all(&end(c, TRIGGERS)).unwrap();
    socket.send_to(&end(d, TRIGGERS), datagrams).unwrap();
    for stream in [&mut first, &mut second] {
        let told = answer(stream);
        assert_eq!((told.said, told.trigger.0), (Said::Ended, TRIGGERS));
    }
    let summary = run.finish().ended_with(0).document();
    assert_conserved(&summary);
    assert_eq!(count(&summary, "counts.triggers"), TRIGGERS);
    assert_eq!(count(&summary, "counts.events_stored"), TRIGGERS / 10);
    assert_eq!(of_source(&summary, "front_end_frames_used"), 4 * TRIGGERS);
    for none in [
        "fragments_absent",
        "frames_late",
        "frames_discarded",
        "streams_cut",
    ] {
        assert_eq!(
            of_source(&summary, &format!("front_end_{none}")),
            0,
            "{none}"
        );
    }
    let inspected = bench.inspect("out/events.mcap");
    assert_eq!(count(&inspected, "events"), TRIGGERS / 10);
}

#[test]
fn events_of_front_ends_are_built_and_stored() {
    all_events_are_built(&[]);
}

#[test]
fn events_of_front_ends_reach_a_run_of_processes() {
    all_events_are_built(&["--processes"]);
}

/// The example in C, compiled by the system's compiler with warnings as errors.
fn c_sender(bench: &Workbench) -> PathBuf {
    let capi = project().join("crates/livetime-capi");
    let program = bench.path("send_front_end");
    let compiler = std::env::var("CC").unwrap_or("cc".to_owned());
    let output = Command::new(compiler)
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-O1",
        ])
        .arg("-I")
        .arg(capi.join("include"))
        .arg(capi.join("examples/send_front_end.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler is needed; set CC to its name");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    program
}

#[test]
fn front_ends_in_c_send_and_are_told() {
    let (bench, listen, _) = bench_of("");
    let program = c_sender(&bench);
    let send = |source: u32, triggers: u64| {
        let (host, port) = (listen.ip().to_string(), listen.port().to_string());
        Command::new(&program)
            .args([&host, &port, &source.to_string(), &triggers.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was compiled")
    };
    let run = start(&bench, &["--triggers", "300"]);
    drop(connect(listen));
    // Also of what was sent last, before it is asked again.
    for triggers in [1_000_000, 1] {
        let stranger = send(7, triggers).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&stranger.stderr);
        assert!(
            said.contains("no link of the run has this source id"),
            "{said}"
        );
    }
    // Two that send as many as there are, and two that would go on.
    let senders = SOURCES.map(|source| send(source, if source % 2 == 0 { 300 } else { 1_000_000 }));
    for (sender, source) in senders.into_iter().zip(SOURCES) {
        let output = sender.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // The run may have ended by the triggers before a sender comes to its own end.
        let is_sent = source % 2 == 0 && said.contains("300 triggers sent");
        assert!(
            is_sent || said.contains("ended after trigger 300"),
            "{source:#x}: {said}"
        );
    }
    let summary = run.finish().ended_with(0).document();
    assert_conserved(&summary);
    assert_eq!(of_source(&summary, "front_end_frames_used"), 4 * 300);
    assert_eq!(of_source(&summary, "front_end_fragments_absent"), 0);
}

#[test]
fn a_source_that_sends_nothing_leaves_empty_fragments_that_say_so() {
    let (bench, listen, _) = bench_of("wait = \"200 ms\"");
    let run = start(&bench, &["--triggers", "50"]);
    let mut stream = connect(listen);
    // The last one falls silent after the first trigger.
    let all = (1..=50).flat_map(|trigger| SOURCES.map(|source| (source, trigger)));
    let sent = all.filter(|(source, trigger)| *trigger == 1 || *source != SOURCES[3]);
    let frames: Vec<u8> = sent
        .flat_map(|(source, trigger)| frame(source, trigger))
        .collect();
    // At once, so that none of the others is waited for where this test loses its core.
    stream.write_all(&frames).unwrap();
    let finished = run.finish().ended_with(0);
    let summary = finished.document();
    assert_conserved(&summary);
    assert_eq!(count(&summary, "counts.triggers"), 50);
    assert_eq!(of_source(&summary, "front_end_fragments_absent"), 49);
    assert_eq!(of_source(&summary, "front_end_silent_of_0x520001"), 1);
}

#[test]
fn fragments_of_front_ends_that_do_not_begin_with_1_are_counted_as_passed_over() {
    let (bench, listen, _) = bench_of("queue = 8\nwait = \"200 ms\"");
    let run = start(&bench, &["--triggers", "110"]);
    let mut streams = SOURCES.map(|source| (source, connect(listen)));
    for (source, stream) in &mut streams {
        let frames = (101..=110).flat_map(|trigger| frame(*source, trigger));
        // At once, so that none is waited for where this test loses its core.
        stream.write_all(&frames.collect::<Vec<_>>()).unwrap();
    }
    let summary = run.finish().ended_with(0).document();
    assert_conserved(&summary);
    let passed_over = of_source(&summary, "front_end_fragments_passed_over");
    assert_eq!(
        passed_over,
        of_source(&summary, "front_end_fragments_absent")
    );
    assert_eq!(
        passed_over + of_source(&summary, "front_end_frames_used"),
        4 * 110
    );
}

/// Asks the run until its status says so many sources of a kind, and the first of them.
fn wait_for(bench: &Workbench, kind: &str, sources: u64, first: Option<u32>) {
    let first = first.map_or(Value::Null, |source| format!("{source:#x}").into());
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE);
        let told = bench.run(&["steer", "out", "status", "--json"]);
        // It takes orders once its roles have started.
        if told.code != Some(0) {
            continue;
        }
        let front_ends = &told.document()["front_ends"];
        if front_ends[kind] == sources && front_ends[format!("first_{kind}")] == first {
            return;
        }
    }
}

fn who_holds_the_run_up_is_in_its_status(options: &[&str]) {
    let (bench, listen, _) = bench_of("wait = \"300 ms\"");
    let run = start(&bench, &[&["--triggers", "3"], options].concat());
    let mut stream = connect(listen);
    let [a, b, c, d] = SOURCES;
    wait_for(&bench, "awaited", 4, Some(a));
    stream
        .write_all(&[frame(b, 1), frame(a, 1)].concat())
        .unwrap();
    wait_for(&bench, "awaited", 2, Some(c));
    let said = bench.run(&["steer", "out", "status"]).ended_with(0).out;
    let line = "front-ends        the run waits for 2 sources, 0x520000 the first of them";
    assert!(said.contains(line), "{said}");
    stream
        .write_all(&[frame(c, 1), frame(d, 1), frame(a, 2)].concat())
        .unwrap();
    // Nothing comes of the others, and they are given up.
    wait_for(&bench, "silent", 3, Some(b));
    wait_for(&bench, "awaited", 0, None);
    let said = bench.run(&["steer", "out", "status"]).ended_with(0).out;
    let line = "3 sources are silent, 0x510001 the first of them: their fragments are empty";
    assert!(said.contains(line), "{said}");
    for source in [b, c, d, a] {
        stream.write_all(&frame(source, 3)).unwrap();
    }
    let summary = run.finish().ended_with(0).document();
    assert_conserved(&summary);
    assert_eq!(of_source(&summary, "front_end_fragments_absent"), 3);
}

#[test]
fn who_holds_the_run_up_is_in_the_status_of_a_run() {
    who_holds_the_run_up_is_in_its_status(&[]);
}

#[test]
fn who_holds_the_run_up_is_in_the_status_of_a_run_of_processes() {
    who_holds_the_run_up_is_in_its_status(&["--processes"]);
}

#[test]
fn what_the_run_does_not_take_ends_its_stream_and_not_the_run() {
    let (bench, listen, _) = bench_of("");
    let run = start(&bench, &["--triggers", "1"]);
    let mut good = connect(listen);
    let mut stranger = connect(listen);
    stranger.write_all(&frame(7, 3)).unwrap();
    let told = answer(&mut stranger);
    assert_eq!(
        (told.said, told.trigger.0),
        (Said::Refused(FrameRefusal::Source), 3)
    );
    for source in SOURCES {
        good.write_all(&frame(source, 1)).unwrap();
    }
    let summary = run.finish().ended_with(0).document();
    assert_eq!(of_source(&summary, "front_end_frames_refused"), 1);
    assert_eq!(of_source(&summary, "front_end_frames_used"), 4);
}

#[test]
fn an_address_that_is_taken_and_what_front_ends_say_themselves_are_refused() {
    let (bench, listen, _) = bench_of("");
    let _taken = TcpListener::bind(listen).unwrap();
    let refused = bench
        .run(&["run", "run.toml", "--out", "out"])
        .ended_with(1);
    assert!(refused.err.contains(&listen.to_string()), "{}", refused.err);
    let refused = bench
        .run(&["run", "run.toml", "--rate", "5kHz"])
        .ended_with(1);
    assert!(refused.err.contains("L0310"), "{}", refused.err);
    for verb in [&["sim", "run.toml"][..], &["source", "run.toml"]] {
        let refused = bench.run(verb).ended_with(1);
        assert!(refused.err.contains("front-ends"), "{}", refused.err);
    }
    bench.write("both.toml", bench.read("run.toml") + "\n[timing]\n");
    let refused = bench.run(&["check", "both.toml"]).ended_with(1);
    assert!(refused.err.contains("timing"), "{}", refused.err);
}

#[test]
fn limits_of_what_is_waited_for_are_said_at_their_keys() {
    let (bench, ..) = bench_of("queue = 0\nwait = \"2 h\"");
    let refused = bench.run(&["check", "run.toml"]).ended_with(1);
    for said in [
        "error[L0310]",
        "`source[0].queue`",
        "1 to 65536",
        "`source[0].wait`",
    ] {
        assert!(refused.err.contains(said), "{said}: {}", refused.err);
    }
}

#[test]
fn addresses_that_front_ends_cannot_be_told_are_refused() {
    let (bench, listen, datagrams) = bench_of("");
    let text = bench.read("run.toml");
    let text = text.replace(&listen.to_string(), "127.0.0.1:0");
    bench.write(
        "nowhere.toml",
        text.replace(&datagrams.to_string(), "[::1]:0"),
    );
    let refused = bench.run(&["check", "nowhere.toml"]).ended_with(1);
    for said in [
        "`source[0].listen`",
        "`source[0].datagrams`",
        "127.0.0.1:0",
        "[::1]:0",
        "a port from 1 to 65535",
    ] {
        assert!(refused.err.contains(said), "{said}: {}", refused.err);
    }
}
