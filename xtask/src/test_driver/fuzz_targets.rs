//! The short form of fuzzing: every target of the crates for some seconds, two at a time.
//!
//! Targets run at the lowest priority beside the other tests and so take what these leave. The time
//! of each is [`SECONDS`], or as `LIVETIME_FUZZ_SECONDS` says; the corpus of earlier runs on this
//! machine is kept under `target/fuzz`. The long form is `cargo xtask soak fuzz`.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{Environment, Outcome, Report};
use crate::fuzz::{self, Fuzzed, Selection, Target};

const SECONDS: u64 = 10;
const SECONDS_VARIABLE: &str = "LIVETIME_FUZZ_SECONDS";
const AT_A_TIME: usize = 2;

/// Builds and runs the targets; one record per target.
pub(super) fn run(environment: &Environment, report: &mut Report) {
    println!("fuzz targets");
    let start = Instant::now();
    if let Some(reason) = fuzz::missing_tool() {
        report.add("fuzz targets", Outcome::Skipped(reason), start.elapsed());
        return;
    }
    let targets = match fuzz::build(&environment.root, Selection::Crates) {
        Ok(targets) => targets,
        Err(why) => {
            println!("fuzz targets: {why}");
            report.add("fuzz targets", Outcome::Failed, start.elapsed());
            return;
        }
    };
    println!(
        "  {} fuzz targets built in {:.1} s",
        targets.len(),
        start.elapsed().as_secs_f64()
    );
    let seconds = std::env::var(SECONDS_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let mut inputs = 0;
    for (target, fuzzed) in run_all(&targets, time) {
        let name = format!("fuzz {}", target.name);
        inputs += fuzzed.inputs;
        let outcome = match fuzzed.failure {
            None => Outcome::Passed,
            Some(failure) => {
                println!("---- {name}\n{failure}");
                Outcome::Failed
            }
        };
        // Its time is chosen, and says nothing about what is slow.
        report.add_check(name, outcome, time);
    }
    println!(
        "  {} fuzz targets in {:.1} s, {inputs} inputs",
        targets.len(),
        start.elapsed().as_secs_f64()
    );
}

/// What each target gave, in the order of their names.
fn run_all(targets: &[Target], time: Duration) -> Vec<(&Target, Fuzzed)> {
    let next = Mutex::new(targets.iter());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let target = next.lock().map(|mut next| next.next());
                    let Ok(Some(target)) = target else {
                        break;
                    };
                    let fuzzed = target.run(time).unwrap_or_else(|why| Fuzzed {
                        failure: Some(why.to_string()),
                        ..Fuzzed::default()
                    });
                    if let Ok(mut done) = done.lock() {
                        done.push((target, fuzzed));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    done
}
