//! The level of flits beside CAMINOS, a simulator that moves phits: the same router in both, in turns.
//!
//! One router of 16 ports at saturation, uniform traffic, packets of 256 flits (phits there), one
//! virtual channel, buffers of 8. What is compared is flits that reached their destination per second.
//! CAMINOS is a program of its own, named by an environment variable; a short and a long run of it
//! differ by cycles alone, so that their difference is free of its start. Without it the figures are
//! null, and the reason is given. That both simulate the same physics is not judged here.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;

use super::{FLITS, PORTS};
use crate::bench::document::{BenchDocument, Target, median, rounded};
use crate::bench::{BenchError, BenchOptions};

/// Names the program.
const PROGRAM: &str = "LIVETIME_CAMINOS";
const WARM_UP: u64 = 1_000;
/// How many times as fast the level of flits must be.
const TIMES: f64 = 5.0;

/// What one run of it did.
struct Moved {
    phits: f64,
    seconds: f64,
}

/// Measures and adds the rows; `flits_per_s` runs our router once.
///
/// # Errors
/// [`BenchError::Simulation`] when the program is named but does not do what it must.
pub(super) fn add(
    document: &mut BenchDocument,
    options: &BenchOptions,
    flits_per_s: impl Fn() -> f64,
) -> Result<(), BenchError> {
    let mut times = f64::NAN;
    match std::env::var_os(PROGRAM).filter(|name| !name.is_empty()) {
        None => {
            let why = format!("{PROGRAM} does not name the program `caminos`");
            document.add_result("caminos", json!({ "measured": false, "why": why }));
        }
        Some(program) => {
            let peer = Caminos {
                program: program.into(),
                directory: &options.directory,
            };
            let (blocks, cycles) = if options.quick {
                (1, 2_000)
            } else {
                (3, 100_000)
            };
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..blocks {
                ours.push(flits_per_s());
                theirs.push(peer.phits_per_s(cycles)?);
            }
            times = median(&ours) / median(&theirs);
            document.add_result(
                "caminos",
                json!({
                    "measured": true,
                    "phits_per_s": rounded(median(&theirs)),
                    "flits_delivered_per_s": rounded(median(&ours)),
                    "blocks": blocks,
                }),
            );
            document.add_ratio("flits_to_caminos", times);
        }
    }
    document.add_target(Target::at_least("flits_to_caminos", times, TIMES));
    Ok(())
}

struct Caminos<'a> {
    program: PathBuf,
    directory: &'a Path,
}

impl Caminos<'_> {
    /// Phits that arrived in a second, in what a long run takes beyond a short one.
    fn phits_per_s(&self, cycles: u64) -> Result<f64, BenchError> {
        let (short, long) = (self.run(cycles)?, self.run(4 * cycles)?);
        Ok((long.phits - short.phits) / (long.seconds - short.seconds).max(1e-9))
    }

    fn run(&self, cycles: u64) -> Result<Moved, BenchError> {
        let file = |ending| {
            let name = format!("livetime-caminos-{}.{ending}", std::process::id());
            self.directory.join(name)
        };
        let (config, results) = (file("cfg"), file("result"));
        let failed = |step| move |source| BenchError::File { step, source };
        std::fs::write(&config, configuration(cycles)).map_err(failed("writing a file"))?;
        let mut command = Command::new(&self.program);
        command.arg(&config);
        command.arg(format!("--results={}", results.display()));
        command.stdin(Stdio::null());
        let start = Instant::now();
        let output = command.output();
        let seconds = start.elapsed().as_secs_f64();
        let text = std::fs::read_to_string(&results).unwrap_or_default();
        for path in [&config, &results] {
            // It may not have been written; what was read decides.
            let _removed = std::fs::remove_file(path);
        }
        let output = output.map_err(failed("starting CAMINOS"))?;
        let load = accepted_load(&text).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or("it says nothing");
            BenchError::Simulation(format!("CAMINOS gave no accepted load: {last}"))
        })?;
        Ok(Moved {
            phits: load * f64::from(PORTS) * cycles as f64,
            seconds,
        })
    }
}

/// The same router for CAMINOS: wormhole, as its flits are of one phit.
fn configuration(cycles: u64) -> String {
    format!(
        "Configuration {{
    random_seed: 1, warmup: {WARM_UP}, measured: {cycles},
    topology: Hamming {{ sides: [1], servers_per_router: {PORTS} }},
    traffic: HomogeneousTraffic {{
        pattern: Uniform, servers: {PORTS}, load: 1.0, message_size: {FLITS},
    }},
    maximum_packet_size: {FLITS},
    router: Basic {{
        virtual_channels: 1, virtual_channel_policies: [ EnforceFlowControl, Random ],
        delay: 0, buffer_size: 8, output_buffer_size: 8, flit_size: 1, bubble: false,
        intransit_priority: false, allow_request_busy_port: true,
        output_prioritize_lowest_label: false,
    }},
    routing: Shortest,
    link_classes: [ LinkClass {{ delay: 1 }}, LinkClass {{ delay: 1 }} ],
    launch_configurations: [],
}}
"
    )
}

/// Phits that a server took in a cycle, of its results; a load is above 0 and at most 1.
fn accepted_load(results: &str) -> Option<f64> {
    let (_, rest) = results.split_once("accepted_load:")?;
    let value = rest.split([',', '}']).next()?.trim();
    let load = value.parse::<f64>().ok()?;
    (load > 0.0 && load <= 1.0).then_some(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_read_from_results_and_nothing_else_is_believed() {
        let results = "Result\n{\n\tcycle:\n\t21000,\n\taccepted_load:\n\t0.604834375,\n}\n";
        assert_eq!(accepted_load(results), Some(0.604_834_375));
        for wrong in [
            "",
            "accepted_load:\n\tNaN,",
            "accepted_load:\n\t7,",
            "accepted_load:",
        ] {
            assert_eq!(accepted_load(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_program_that_gives_no_results_is_an_error_that_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let peer = Caminos {
            program: "true".into(),
            directory: directory.path(),
        };
        let error = peer.phits_per_s(10).unwrap_err().to_string();
        assert!(error.contains("no accepted load"), "{error}");
        let missing = Caminos {
            program: directory.path().join("nothing"),
            ..peer
        };
        let error = missing.phits_per_s(10).unwrap_err().to_string();
        assert!(error.contains("starting CAMINOS"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
