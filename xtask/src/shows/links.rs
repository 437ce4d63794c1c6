//! Links: link and card models, driver library, links of today, decision loop.
//!
//! As for [`super::first_light`], each function shows one line from outside.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::evidence::named_tests;
use super::judged_command::{succeed, targets_met};
use super::{Capability, Line, Shown, Stage};
use crate::Failure;
use crate::program::finish;

pub(super) const CAPABILITY: Capability = Capability {
    name: "links",
    title: "links and cards of yesterday and today",
    lines: &[
        Line {
            promise: "patterns over every link: 10^8 words through each to the checker without an \
                      error; the table of line faults holds",
            show: patterns_over_links,
        },
        Line {
            promise: "`study pulsar --quick` and `study filar --quick` in under 3 minutes each, \
                      every row within its tolerance",
            show: |stage| {
                let studies: [&[&str]; 2] = [
                    &["study", "pulsar", "--quick"],
                    &["study", "filar", "--quick"],
                ];
                succeed(stage, &studies, THREE_MINUTES)
            },
        },
        Line {
            promise: "recorded byte stream imported, built and exported: identical by `cmp`; the \
                      oracle finds no difference and all 16 kinds of path fire",
            show: byte_stream_and_oracle,
        },
        Line {
            promise: "`bench loop` at 40 kHz for 60 s, triggers at equal and at random distances: \
                      every decision right, targets met",
            show: loop_at_rate,
        },
        Line {
            promise: "`bench readout` with 12 channels at 100 kHz for 60 s: targets met",
            show: |stage| {
                let arguments =
                    "bench readout --channels 12 --rate 100kHz --size 1000B --duration 60s --json";
                targets_met(stage, &words(arguments), THREE_MINUTES)
            },
        },
        Line {
            promise: "`livetime doctor --json` knows a virtual machine, and the C program passes",
            show: doctor_and_c,
        },
    ],
};

const THREE_MINUTES: Duration = Duration::from_secs(180);
const BYTE_STREAM: &str = "bes3_run91668_10events.raw";

fn words(arguments: &str) -> Vec<&str> {
    arguments.split(' ').collect()
}

/// Each kind of link with a pattern of its own. Word by word through the cards' models a word takes
/// up to a microsecond.
fn patterns_over_links(stage: &Stage) -> Result<Shown, Failure> {
    let folder = stage.scratch_folder()?;
    let mut passed = true;
    let mut figures = Vec::new();
    for (link, pattern) in [
        ("slink", "random"),
        ("udp", "1"),
        ("tcp", "2"),
        ("file", "4"),
        ("cards", "8"),
    ] {
        let arguments =
            format!("source --pattern {pattern} --link {link} --blocks 100000 --words 1000");
        let document = stage.program.json(folder.path(), words(&arguments))?;
        let count = |key: &str| document[key].as_u64();
        let made = count("words_made").ok_or("the document has no words_made")?;
        passed &= made >= 100_000_000
            && count("words_checked") == Some(made)
            && count("words_bad") == Some(0)
            && count("blocks_lost") == Some(0);
        figures.push(format!("{link} {made:e} words of pattern {pattern}"));
    }
    let faults = named_tests(stage, "livetime-readout", "fault")?;
    figures.push(format!("{faults} tests of line faults"));
    Ok(Shown::new(passed && faults > 0, figures.join("; ")))
}

fn loop_at_rate(stage: &Stage) -> Result<Shown, Failure> {
    let mut passed = true;
    let mut figures = Vec::new();
    for arrival in ["fixed", "poisson"] {
        let arguments =
            format!("bench loop --rate 40kHz --arrival {arrival} --duration 60s --json");
        let shown = targets_met(stage, &words(&arguments), THREE_MINUTES)?;
        passed &= shown.passed;
        figures.push(format!("{arrival}: {}", shown.figures));
    }
    Ok(Shown::new(passed, figures.join("; ")))
}

fn byte_stream_and_oracle(stage: &Stage) -> Result<Shown, Failure> {
    let bytes = byte_stream_comes_back(stage)?;
    let oracle = named_tests(stage, "livetime", "oracle")?;
    let kinds = named_tests(stage, "livetime", "every_kind_of_path")?;
    let passed = bytes.passed && oracle > 0 && kinds > 0;
    let figures = format!(
        "{}; {oracle} tests against the oracle, {kinds} of the sixteen kinds",
        bytes.figures
    );
    Ok(Shown::new(passed, figures))
}

fn byte_stream_comes_back(stage: &Stage) -> Result<Shown, Failure> {
    let folder = stage.folder("byte-stream")?;
    let recorded = stage.recorded(BYTE_STREAM)?;
    let import = ["import", "bytestream", &recorded, "--out", "run"];
    finish(stage.program.command(&folder, import))?;
    let export = [
        "export",
        "run",
        "--format",
        "bytestream",
        "--out",
        "back.raw",
    ];
    finish(stage.program.command(&folder, export))?;
    let mut compare = Command::new("cmp");
    compare.arg(&recorded).arg("back.raw").current_dir(&folder);
    finish(compare)?;
    let bytes = std::fs::metadata(Path::new(&recorded))?.len();
    Ok(Shown::new(true, format!("{bytes} bytes, identical by cmp")))
}

fn doctor_and_c(stage: &Stage) -> Result<Shown, Failure> {
    let folder = stage.folder("doctor")?;
    // Its exit code is its verdict on the machine; here only what it says counts.
    let output = stage
        .program
        .command(&folder, ["doctor", "--json"])
        .output()?;
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let verdict = document["verdict"].as_str().unwrap_or_default();
    let is_virtual = document["virtual_machine"] == true;
    let is_honest = !is_virtual || ["usable", "simulation only"].contains(&verdict);
    let c_tests = named_tests(stage, "livetime-capi", "c_program")?;
    let figures = format!(
        "virtual machine {is_virtual}, verdict \"{verdict}\"; {c_tests} tests of C programs"
    );
    Ok(Shown::new(
        is_honest && !verdict.is_empty() && c_tests > 0,
        figures,
    ))
}
