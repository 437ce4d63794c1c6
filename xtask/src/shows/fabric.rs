//! Fabric: the simulator of networks against published figures and against itself.
//!
//! As for [`super::first_light`], each function shows one line from outside.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::judged_command::{succeed, targets_met_in};
use super::{Capability, Line, Shown, Stage};
use crate::Failure;
use crate::program::{cargo, finish};

pub(super) const CAPABILITY: Capability = Capability {
    name: "fabric",
    title: "networks that nobody has bought yet",
    lines: &[
        Line {
            promise: "`livetime sim gates`: all within tolerance",
            show: |stage| succeed(stage, &[&["sim", "gates"]], minutes(10)),
        },
        Line {
            promise: "`livetime study cms --quick` in under 10 minutes, every row within its \
                      tolerance",
            show: |stage| succeed(stage, &[&["study", "cms", "--quick"]], minutes(10)),
        },
        Line {
            promise: "`livetime sim swarm --runs 2000` with all faults in under 5 minutes: 0 \
                      violations",
            show: |stage| succeed(stage, &[&["sim", "swarm", "--runs", "2000"]], minutes(5)),
        },
        Line {
            promise: "each protocol that is broken on purpose is found by the swarm",
            show: mutants_are_found,
        },
        Line {
            promise: "`livetime bench fabric --json` beside CAMINOS: each target met",
            show: bench_beside_caminos,
        },
        Line {
            promise: "a scenario file and a graph file written from the documentation alone run, \
                      and packets and flits agree within 0.015",
            show: levels_agree,
        },
        Line {
            promise: "the event builder's own units on a simulated network keep every promise, and \
                      the same scenario is the same run",
            show: builder_on_a_network,
        },
        Line {
            promise: "a real run replayed in the simulator gives the same decisions and events",
            show: replay_gives_the_same,
        },
    ],
};

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn mutants_are_found(stage: &Stage) -> Result<Shown, Failure> {
    let mut command = cargo(&stage.root);
    command.args([
        "test",
        "--release",
        "--package",
        "livetime-fabric",
        "--features",
        "mutants",
        "--test",
        "swarm",
        "every_mutant",
    ]);
    let output = finish(command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = text.contains("every_mutant_is_found_and_its_story_shrinks ... ok");
    Ok(Shown::new(
        passed,
        "each mutant was found within 2000 stories, and its story shrank".to_owned(),
    ))
}

/// The simulator beside which the level of flits is measured. It is no dependency; this installs it,
/// with the versions that it was released with, below the folder for builds.
const CAMINOS: &str = "0.6.3";

fn bench_beside_caminos(stage: &Stage) -> Result<Shown, Failure> {
    let root = stage.root.join("target/caminos");
    let program = root.join("bin/caminos");
    if !program.is_file() {
        let mut install = cargo(&stage.root);
        install.args([
            "install",
            "--quiet",
            "--locked",
            "caminos",
            "--version",
            CAMINOS,
        ]);
        install.arg("--root").arg(&root);
        install.env("CARGO_TARGET_DIR", root.join("build"));
        finish(install)?;
    }
    let environment = [("LIVETIME_CAMINOS", program.as_path())];
    targets_met_in(
        stage,
        &["bench", "fabric", "--json"],
        &environment,
        minutes(5),
    )
}

/// 64 ports: three stages of 4 x 4 crossbars, as docs/operator/scenarios.md describes them.
const DELTA: &str = r#"format = 1
name = "64 ports"
packet_times = 4000
[topology]
kind = "delta"
radix = 4
stages = 3
[link]
rate = "1 Gb/s"
hop_delay = "64 ns"
[size]
mean = "2 KiB"
"#;

/// The same with a graph of our own: two edge switches and a core.
const GRAPH_SCENARIO: &str = r#"format = 1
name = "a graph"
packet_times = 16000
[topology]
kind = "graph"
file = "own.graph"
[link]
rate = "1 Gb/s"
hop_delay = "64 ns"
[size]
mean = "2 KiB"
"#;

/// Four nodes at each of two edges, and a link of a node's rate between core and edge.
fn graph() -> String {
    let mut text = "switch core\nswitch left\nswitch right\n".to_owned();
    for edge in ["left", "right"] {
        for node in 0..4 {
            text += &format!("node {edge}{node} {edge}\n");
        }
        text += &format!("link {edge} core\n");
    }
    text
}

fn levels_agree(stage: &Stage) -> Result<Shown, Failure> {
    let folder = stage.folder("levels")?;
    std::fs::write(folder.join("delta.toml"), DELTA)?;
    std::fs::write(folder.join("graph.toml"), GRAPH_SCENARIO)?;
    std::fs::write(folder.join("own.graph"), graph())?;
    let mut passed = true;
    let mut figures = Vec::new();
    for scenario in ["delta.toml", "graph.toml"] {
        let of = |level| efficiency(stage, &folder, scenario, level);
        let (packet, flit) = (of("packet")?, of("flit")?);
        passed &= (packet - flit).abs() <= 0.015;
        figures.push(format!("{scenario} {packet:.4} and {flit:.4}"));
    }
    Ok(Shown::new(passed, figures.join("; ")))
}

fn efficiency(stage: &Stage, folder: &Path, scenario: &str, level: &str) -> Result<f64, Failure> {
    let arguments = ["sim", "run", scenario, "--level", level, "--json"];
    let document = stage.program.json(folder, arguments)?;
    let efficiency = document["efficiency_link"].as_f64();
    efficiency.ok_or_else(|| format!("{scenario} has not converged at level {level}").into())
}

fn builder_on_a_network(stage: &Stage) -> Result<Shown, Failure> {
    let folder = stage.scratch_folder()?;
    let scenario = stage.file("examples/scenarios/builder-64.toml");
    let run = || {
        let arguments = ["sim", "run", &scenario, "--json"];
        stage.program.json(folder.path(), arguments)
    };
    let (first, second) = (run()?, run()?);
    let number = |pointer: &str| {
        let value = first.pointer(pointer).and_then(Value::as_f64);
        value.ok_or_else(|| Failure::from(format!("the document has no {pointer}")))
    };
    let built = number("/builder/built")?;
    let passed = built > 0.0
        && first["fragments"]["conserved"] == true
        && number("/losses/incomplete")? == 0.0
        && first["trace_hash"] == second["trace_hash"];
    Ok(Shown::new(
        passed,
        format!(
            "{built:.0} events built, {} fragments delivered, trace {}",
            number("/fragments/delivered")?,
            first["trace_hash"]
        ),
    ))
}

fn replay_gives_the_same(stage: &Stage) -> Result<Shown, Failure> {
    let folder = stage.scratch_folder()?;
    let config = stage.file("examples/dimuon.toml");
    let run = [
        "run",
        &config,
        "--lossless",
        "--triggers",
        "20000",
        "--seed",
        "5",
        "--out",
        "real",
    ];
    finish(stage.program.command(folder.path(), run))?;
    let replay = ["sim", "replay", "real", "--json"];
    let document = stage.program.json(folder.path(), replay)?;
    Ok(Shown::new(
        document["same"] == true,
        format!(
            "decision digests {} and {}, {} stored events, {} differ",
            document["decision_digest"]["real"],
            document["decision_digest"]["simulated"],
            document["events"]["real"],
            document["differing"]
        ),
    ))
}
