//! A program in C over `livetime_front_end.h`, against a stream of this process in place of a run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use livetime_wire::front_end_frame::{FrontEndAnswer, Said};
use livetime_wire::{RunNumber, TriggerNumber};

/// Data words of a frame that no kernel takes while nobody reads.
const WORDS_MAX: u32 = 1 << 26;

/// Takes a stream and welcomes it.
fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let answer = FrontEndAnswer {
        run: RunNumber(3),
        trigger: TriggerNumber(1),
        said: Said::Welcome {
            words_max: WORDS_MAX,
        },
    };
    let words = answer.emit();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    stream.write_all(&bytes).unwrap();
    stream
}

/// What comes on a stream, up to its end.
fn all_of(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn after_a_frame_that_was_not_sent_whole_nothing_follows_it() {
    let folder = tempfile::tempdir().unwrap();
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.path().join("program");
    let compiler = std::env::var("CC").unwrap_or("cc".to_owned());
    let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let compiled = Command::new(compiler)
        .args(["-std=c11", "-O1"])
        .args(warnings)
        .arg("-I")
        .arg(crate_folder.join("include"))
        .arg(crate_folder.join("tests/programs/cut_frame.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler is needed; set CC to its name");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut sender = Command::new(program)
        .arg(listener.local_addr().unwrap().port().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stream = accept(&listener);
    let mut lines = BufReader::new(sender.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    assert_eq!(line(), "cut");
    let why = line();
    assert!(why.starts_with("the frame was not sent whole: "), "{why}");
    // What it can send from here on would be read.
    let reader = std::thread::spawn(|| all_of(stream));
    sender.stdin.take().unwrap().write_all(b"\n").unwrap();
    let outcomes = line();
    assert!(outcomes.starts_with("-1 -1 0 send: "), "{outcomes}");
    let received = reader.join().unwrap();
    // A part of one frame: its header, and zeroes.
    assert!(received.len() > 32 && received.len() < 32 + 4 * WORDS_MAX as usize);
    assert!(received[32..].iter().all(|byte| *byte == 0));
    let next = all_of(accept(&listener));
    assert_eq!(next.len(), 32 + 4);
    assert_eq!(line(), "0 0");
    assert!(sender.wait().unwrap().success());
}
