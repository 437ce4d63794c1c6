//! Farm: filters, streams, replay and export.
//!
//! As for [`super::first_light`], each function shows one line from outside.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::evidence::count;
use super::filter_unit::{
    interpreter, killed_joining_and_leaving, python_filter_fails_on_one_event,
    z_peak_and_four_leptons,
};
use super::judged_command::{succeed, targets_met_in};
use super::{Capability, Line, Shown, Stage};
use crate::Failure;
use crate::program::finish;

pub(super) const CAPABILITY: Capability = Capability {
    name: "farm",
    title: "a filter farm that grows and survives",
    lines: &[
        Line {
            promise: "4 filter units, one killed each second for 20 s, one added and one removed: \
                      conserved, every event filtered once, the error stream empty",
            show: killed_joining_and_leaving,
        },
        Line {
            promise: "a Python filter that crashes, hangs, raises or answers nonsense on chosen \
                      events: those alone are in the error stream, replay fails the same way, the \
                      other counts are those of a run without",
            show: python_filter_fails_on_one_event,
        },
        Line {
            promise: "output budget: over any second at most the budget, and the summary says who \
                      yielded and who waited",
            show: output_budget,
        },
        Line {
            promise: "`replay` of a recorded run into trigger, links, builder and filter: 0 \
                      differing; ROOT, Parquet, HDF5 and byte stream out and in again: 0 differing \
                      events",
            show: replayed_and_exported,
        },
        Line {
            promise: "the Z peak and the four-lepton candidates of recorded events come out of a \
                      Python filter in a notebook",
            show: z_peak_and_four_leptons,
        },
        Line {
            promise: "`livetime study level3 --quick` in under 3 minutes",
            show: |stage| succeed(stage, &[&["study", "level3", "--quick"]], minutes(3)),
        },
        Line {
            promise: "`livetime bench farm --json`: each target met",
            show: bench_farm,
        },
    ],
};

const CONFIG: &str = "examples/dimuon.toml";

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// What the writer says of itself.
fn of_writer(document: &Value, name: &str) -> Result<u64, Failure> {
    let value = document["roles"]["wr0"][name].as_u64();
    value.ok_or_else(|| format!("the document has no roles.wr0.{name}").into())
}

/// The example with these lines for its chunk size, in a folder of its own.
fn changed_example(stage: &Stage, name: &str, store: &str) -> Result<PathBuf, Failure> {
    let text = std::fs::read_to_string(stage.file(CONFIG))?;
    let chunk = "chunk = \"1 MiB\"";
    if text.matches(chunk).count() != 1 {
        return Err(format!("{CONFIG} has not one line `{chunk}`").into());
    }
    let folder = stage.folder(name)?;
    std::fs::write(folder.join("changed.toml"), text.replace(chunk, store))?;
    Ok(folder)
}

fn output_budget(stage: &Stage) -> Result<Shown, Failure> {
    const BUDGET: u64 = 4_000_000;
    let mut figures = Vec::new();
    let mut passed = true;
    for (name, yields) in [("waits", ""), ("yields", "\nyielding_streams = [0, 1]")] {
        let store = format!(
            "chunk = \"256 KiB\"\nevent_max = \"1 MiB\"\noutput_per_second = \"{BUDGET} B\"{yields}"
        );
        let folder = changed_example(stage, name, &store)?;
        let arguments = [
            "run",
            "changed.toml",
            "--triggers",
            "60000",
            "--lossless",
            "--json",
        ];
        let document = stage.program.json(&folder, arguments)?;
        let most = of_writer(&document, "output_window_bytes_max")?;
        let (waits, yielded) = (
            of_writer(&document, "output_waits")?,
            of_writer(&document, "output_yielded")?,
        );
        let bound = match name {
            "waits" => waits > 0 && yielded == 0,
            _ => yielded > 0,
        };
        passed &= document["conserved"] == true && most <= BUDGET && bound;
        figures.push(format!(
            "{name}: at most {most} B in a second (budget {BUDGET} B), {waits} events waited, \
             {yielded} yielded, {} stored",
            count(&document, "events_stored")?
        ));
    }
    Ok(Shown::new(passed, figures.join("; ")))
}

fn replayed_and_exported(stage: &Stage) -> Result<Shown, Failure> {
    let store = "chunk = \"256 KiB\"\ntrigger_packets = true\nfile_max = \"2 MiB\"";
    let folder = changed_example(stage, "replayed", store)?;
    let arguments = [
        "run",
        "changed.toml",
        "--triggers",
        "40000",
        "--lossless",
        "--out",
        "run",
        "--json",
    ];
    let document = stage.program.json(&folder, arguments)?;
    let stored = count(&document, "events_stored")?;
    let mut passed = document["conserved"] == true && stored > 0.0;
    let mut figures = Vec::new();
    for stage_name in ["trigger", "links", "builder", "filter"] {
        let arguments = ["replay", "run", "--into", stage_name, "--json"];
        let replayed = stage.program.json(&folder, arguments)?;
        let (events, differing) = (replayed["events"].as_u64(), replayed["differing"].as_u64());
        passed &= events > Some(0) && differing == Some(0);
        figures.push(format!(
            "{stage_name} {} of {} differ",
            differing.unwrap_or(u64::MAX),
            events.unwrap_or(0)
        ));
    }
    // Out, in through links and builder, and out again: the same bytes.
    let export = |run: &str, file: &str| {
        let arguments = ["export", run, "--format", "bytestream", "--out", file];
        finish(stage.program.command(&folder, arguments))
    };
    export("run", "first.data")?;
    let import = ["import", "bytestream", "first.data", "--out", "again"];
    finish(stage.program.command(&folder, import))?;
    export("again", "second.data")?;
    let read = |name: &str| std::fs::read(folder.join(name));
    let (first, second) = (read("first.data")?, read("second.data")?);
    passed &= !first.is_empty() && first == second;
    figures.push(format!(
        "byte stream of {stored} events out, in and out: {}",
        if first == second {
            "the same bytes"
        } else {
            "other bytes"
        }
    ));
    let python = interpreter(stage)?;
    for ending in ["root", "parquet", "h5"] {
        let file = format!("events.{ending}");
        let mut export = Command::new(&python);
        export
            .current_dir(&folder)
            .args(["-m", "livetime", "export", "run"]);
        export.args([&file, "--fragments", "--verify"]);
        let said = String::from_utf8_lossy(&finish(export)?.stdout).into_owned();
        let said = said.trim();
        passed &= said.starts_with(&format!("{stored} events in ")) && said.ends_with(": 0 differ");
        figures.push(said.to_owned());
    }
    Ok(Shown::new(passed, figures.join("; ")))
}

/// With the interpreter of the project, for the rows about filters in Python.
fn bench_farm(stage: &Stage) -> Result<Shown, Failure> {
    let python = interpreter(stage)?;
    let environment = [("LIVETIME_PYTHON", python.as_path())];
    targets_met_in(
        stage,
        &["bench", "farm", "--json"],
        &environment,
        minutes(5),
    )
}
