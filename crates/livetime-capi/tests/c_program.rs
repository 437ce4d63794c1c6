//! The C example, compiled with the system's compiler, against the Rust reader.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod support;

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use livetime_store::RunReader;

use support::{run_bytes, write_run};

/// Where cargo puts the library: beside the test programs.
fn library_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

/// Compiles an example with warnings as errors.
fn compile(folder: &Path, example: &str, link: &[&str]) -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(example);
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
        .arg(crate_folder.join("include"))
        .arg(crate_folder.join("examples").join(format!("{example}.c")))
        .arg("-o")
        .arg(&program)
        .args(link)
        .output()
        .expect("a C compiler is needed; set CC to its name");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

fn static_program(folder: &Path) -> PathBuf {
    static_example(folder, "read_run")
}

fn static_example(folder: &Path, example: &str) -> PathBuf {
    let library = library_folder().join("liblivetime_capi.a");
    compile(
        folder,
        example,
        &[
            library.to_str().unwrap(),
            "-lpthread",
            "-ldl",
            "-lm",
            "-lgcc_s",
        ],
    )
}

fn run(program: &Path, argument: &Path) -> Output {
    let folder = library_folder();
    Command::new(program)
        .arg(argument)
        .env("LD_LIBRARY_PATH", folder)
        .output()
        .unwrap()
}

/// What the example must print of a run, counted by the Rust reader.
fn expected(path: &Path) -> String {
    let mut reader = RunReader::open(File::open(path.join("events.mcap")).unwrap()).unwrap();
    let (mut events, mut incomplete, mut fragments, mut flagged) = (0, 0, 0, 0);
    let (mut words, mut sum) = (0, 0);
    while let Some(event) = reader.next_event().unwrap() {
        events += 1;
        incomplete += u64::from(event.is_incomplete());
        for (entry, fragment) in event.fragments() {
            fragments += 1;
            flagged += u64::from(!entry.status.is_good());
            words += fragment.len();
            sum += fragment.iter().map(|word| u64::from(*word)).sum::<u64>();
        }
    }
    let closed = if reader.end().is_some() {
        "closed"
    } else {
        "not closed"
    };
    let missing = reader.events_missing();
    let mut text = format!("run {}, {closed}\n", reader.run().0);
    writeln!(
        text,
        "events {events}, incomplete {incomplete}, missing {missing}"
    )
    .unwrap();
    writeln!(text, "fragments {fragments}, flagged {flagged}").unwrap();
    writeln!(text, "words {words}, sum {sum}").unwrap();
    for damage in reader.damage().entries() {
        writeln!(text, "damage: {damage}").unwrap();
    }
    text
}

#[test]
fn c_program_counts_what_the_reader_counts() {
    let folder = tempfile::tempdir().unwrap();
    let program = static_program(folder.path());
    let bytes = run_bytes(500);
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let cut = bytes[..bytes.len() * 2 / 3].to_vec();
    for (name, bytes) in [("good", bytes), ("flipped", flipped), ("cut", cut)] {
        let path = write_run(folder.path(), name, &bytes);
        let expected = expected(&path);
        assert_eq!(expected.contains("damage"), name != "good", "{expected}");
        assert!(expected.contains("fragments "), "{expected}");
        for argument in [&path, &path.join("events.mcap")] {
            let output = run(&program, argument);
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name}");
            assert_eq!(output.status.code(), Some(0), "{name}");
        }
    }
}

#[test]
fn c_program_runs_with_the_shared_library() {
    let folder = tempfile::tempdir().unwrap();
    let library = library_folder();
    let program = compile(
        folder.path(),
        "read_run",
        &["-L", library.to_str().unwrap(), "-llivetime_capi"],
    );
    let path = write_run(folder.path(), "good", &run_bytes(10));
    let output = run(&program, &path);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected(&path));
}

#[test]
fn c_program_says_why_it_cannot_open_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let program = static_program(folder.path());
    let foreign = write_run(folder.path(), "foreign", b"not a run file");
    let absent = folder.path().join("absent");
    for (path, text) in [(foreign, "not a run file"), (absent, "No such file")] {
        let output = run(&program, &path);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.starts_with("error: cannot open the run: "),
            "{stderr}"
        );
        assert!(stderr.contains(text), "{stderr}");
        assert!(
            stderr.contains(path.file_name().unwrap().to_str().unwrap()),
            "{stderr}"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn c_program_reads_every_channel_of_the_cards_without_a_bad_word() {
    let folder = tempfile::tempdir().unwrap();
    let program = static_example(folder.path(), "read_links");
    for (cards, firmware, channels) in [("1", "single", 4), ("2", "dma", 6), ("4", "single", 16)] {
        let output = Command::new(&program)
            .args([cards, firmware, "1000"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let fragments = channels * 1000;
        let expected = format!(
            "channels {channels}, fragments {fragments}, words {}\nbad words 0, bad fragments 0\n",
            fragments * 300
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        assert_eq!(output.status.code(), Some(0));
    }
    let refused = Command::new(&program)
        .args(["5", "dma", "1"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(
        stderr,
        "error: cannot open the cards: 5 cards, there can be 1 to 4\n"
    );
}
