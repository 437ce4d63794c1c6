//! `cargo xtask soak NAME`: the long forms of tests, for hours.
//!
//! A long form is a test that `make test` runs shortly, with more cases and new seeds in each round
//! until the time is over; the first failure ends it and says its seed. What is tested stands in
//! the tests themselves. To add one, add a row to [`SOAKS`].

use std::time::{Duration, Instant, SystemTime};

use crate::Failure;
use crate::fuzz::{self, Selection};
use crate::program::{Program, cargo};
use crate::tree::workspace_root;

/// What to run, and how long.
#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    /// `None` lists what there is.
    name: Option<String>,
    time: Duration,
}

const HOURS_DEFAULT: f64 = 1.0;
/// From the seed of a round to that of the next: more than the seeds that a round goes through.
const SEED_STEP: u64 = 1_000_000;

impl Request {
    /// Reads `[NAME [--hours H]]`; `None` for anything else.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let (name, hours) = match arguments {
            [] => (None, HOURS_DEFAULT),
            [name] => (Some(name), HOURS_DEFAULT),
            [name, "--hours", hours] => (Some(name), hours.parse().ok()?),
            _ => return None,
        };
        let known = name.is_none_or(|name| SOAKS.iter().any(|soak| soak.name == *name));
        let time = Duration::try_from_secs_f64(hours * 3600.0).ok()?;
        known.then(|| Self {
            name: name.map(|name| (*name).to_owned()),
            time,
        })
    }
}

/// A long form.
struct Soak {
    name: &'static str,
    what: &'static str,
    work: Work,
}

/// How a long form runs.
enum Work {
    /// Every fuzz target, for equal times.
    Fuzz,
    /// Test programs, round by round.
    Tests(&'static [Round]),
    /// Commands of the program that judge themselves, round by round.
    Commands(&'static [&'static [&'static str]]),
}

/// Tests of one program with the variables that make them long.
struct Round {
    package: &'static str,
    /// The test program of the package, `--lib` for its unit tests, and a filter, if any.
    selection: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// The variable that takes a new seed in each round; proptest draws its own.
    seed: Option<&'static str>,
}

const SOAKS: &[Soak] = &[
    Soak {
        name: "fuzz",
        what: "every fuzz target, guided by coverage",
        work: Work::Fuzz,
    },
    Soak {
        name: "shm-kills",
        what: "a process on rings and a pool killed at 200 seeded steps per way of dying",
        work: Work::Tests(&[Round {
            package: "livetime-shm",
            selection: &["--test", "two_processes"],
            variables: &[("LIVETIME_SHM_KILLS", "200")],
            seed: Some("LIVETIME_SHM_SEED"),
        }]),
    },
    Soak {
        name: "bit-flips",
        what: "run files with a million random bits flipped, one after the other",
        work: Work::Tests(&[Round {
            package: "livetime-store",
            selection: &["--test", "run_file", "damage::"],
            variables: &[("LIVETIME_STORE_FLIPS", "1000000")],
            seed: Some("LIVETIME_TEST_SEED"),
        }]),
    },
    Soak {
        name: "processes",
        what: "runs with a process per role: every fault of every role",
        work: Work::Tests(&[Round {
            package: "livetime",
            selection: &["--test", "processes"],
            variables: &[("LIVETIME_LONG", "1")],
            seed: Some("LIVETIME_SEED"),
        }]),
    },
    Soak {
        name: "stories",
        what: "100 000 stories of the event builder under all faults, and as many of settled losses",
        work: Work::Tests(&[Round {
            package: "livetime-fabric",
            selection: &["--test", "swarm"],
            variables: &[("LIVETIME_SWARM_RUNS", "100000")],
            seed: Some("LIVETIME_SWARM_SEED"),
        }]),
    },
    Soak {
        name: "properties",
        what: "the property tests of rings, links, builder and simulator, 20 000 cases each",
        work: Work::Tests(&[
            Round {
                package: "livetime-shm",
                selection: &["--test", "ring_operations"],
                variables: PROPERTY_CASES,
                seed: None,
            },
            Round {
                package: "livetime-readout",
                selection: &["--test", "link_conservation"],
                variables: PROPERTY_CASES,
                seed: None,
            },
            Round {
                package: "livetime-builder",
                selection: &["--test", "builder_network"],
                variables: PROPERTY_CASES,
                seed: None,
            },
            Round {
                package: "livetime-fabric",
                selection: &["--test", "chain"],
                variables: PROPERTY_CASES,
                seed: None,
            },
        ]),
    },
    Soak {
        name: "presets",
        what: "every preset of the simulator has a steady state",
        work: Work::Tests(&[Round {
            package: "livetime",
            selection: &["--test", "program", "presets_have_a_steady_state"],
            variables: &[("LIVETIME_LONG", "1")],
            seed: None,
        }]),
    },
    Soak {
        name: "timing-1",
        what: "the event codec, a million cases per property",
        work: Work::Tests(&[Round {
            package: "livetime-wire",
            selection: &["--test", "formats", "timing_message"],
            variables: &[("PROPTEST_CASES", "1000000")],
            seed: None,
        }]),
    },
    Soak {
        name: "timing-2",
        what: "matching against plain comparison, new seeds",
        work: Work::Tests(MATCHING),
    },
    Soak {
        name: "timing-4",
        what: "changes against a stream of messages, new seeds",
        work: Work::Tests(TRANSACTIONS),
    },
    Soak {
        name: "timing-5",
        what: "flags and counters against an oracle, new seeds",
        work: Work::Tests(FLAGS),
    },
    Soak {
        name: "timing-7",
        what: "one of 8 clients stopped: 10^5 messages at 20 kHz, and as fast as it goes",
        work: Work::Commands(&[
            &["timing", "soak", "stop"],
            &["timing", "soak", "stop", "--rate", "0"],
        ]),
    },
    Soak {
        name: "timing-11",
        what: "10^4 clients that connect, subscribe and are killed",
        work: Work::Commands(&[&["timing", "soak", "churn"]]),
    },
    Soak {
        name: "timing-12",
        what: "a million malformed calls and garbage on the socket, new seeds",
        work: Work::Tests(&[Round {
            package: "livetime-capi",
            selection: &["--test", "timing_daemon", "malformed_calls_harm_nobody"],
            variables: &[("LIVETIME_TIMING_CALLS", "1000000")],
            seed: Some("LIVETIME_TEST_SEED"),
        }]),
    },
    Soak {
        name: "timing-14",
        what: "function generators against big integers, new seeds",
        work: Work::Tests(GENERATOR),
    },
    Soak {
        name: "timing-20",
        what: "12 simultaneous stops, 10^4 times, armed again at once",
        work: Work::Commands(&[&["timing", "soak", "stops"]]),
    },
];

const MATCHING: &[Round] = &[timing_round(&["--test", "matching"])];
const TRANSACTIONS: &[Round] = &[timing_round(&["--test", "transactions"])];
const FLAGS: &[Round] = &[timing_round(&["--test", "flags"])];
const GENERATOR: &[Round] = &[timing_round(&["--test", "generator"])];

/// A test program of the timing core that draws other cases with each seed.
const fn timing_round(selection: &'static [&'static str]) -> Round {
    Round {
        package: "livetime-timing",
        selection,
        variables: &[],
        seed: Some("SEED"),
    }
}

const PROPERTY_CASES: &[(&str, &str)] = &[("PROPTEST_CASES", "20000")];

/// Runs a long form, or lists them; `true` where nothing failed.
pub(crate) fn run(request: &Request) -> Result<bool, Failure> {
    let Some(name) = &request.name else {
        for soak in SOAKS {
            println!("{:12} {}", soak.name, soak.what);
        }
        println!("\nrun one with: cargo xtask soak NAME [--hours H], one hour by default");
        return Ok(true);
    };
    let soak = SOAKS.iter().find(|soak| soak.name == name);
    let soak = soak.ok_or("no such soak")?;
    let end = Instant::now() + request.time;
    match soak.work {
        Work::Fuzz => fuzz_all(request.time),
        Work::Tests(rounds) => test_rounds(rounds, end),
        Work::Commands(commands) => command_rounds(commands, end),
    }
}

fn fuzz_all(time: Duration) -> Result<bool, Failure> {
    if let Some(why) = fuzz::missing_tool() {
        return Err(why.into());
    }
    let targets = fuzz::build(&workspace_root(), Selection::All)?;
    let each = time / u32::try_from(targets.len())?;
    let mut passed = true;
    for target in &targets {
        let fuzzed = target.run(each)?;
        let verdict = if fuzzed.failure.is_none() {
            "PASS"
        } else {
            "FAIL"
        };
        println!(
            "{verdict} {}: {} inputs, {} kept",
            target.name, fuzzed.inputs, fuzzed.kept
        );
        if let Some(failure) = fuzzed.failure {
            println!("{failure}");
            passed = false;
        }
    }
    Ok(passed)
}

/// At least one round, and more until `end`.
fn command_rounds(commands: &[&[&str]], end: Instant) -> Result<bool, Failure> {
    let root = workspace_root();
    let program = Program::build(&root)?;
    for done in 0.. {
        for arguments in commands {
            if !program.command(&root, *arguments).status()?.success() {
                println!("FAIL `{}` after {done} rounds", arguments.join(" "));
                return Ok(false);
            }
        }
        if Instant::now() >= end {
            println!("PASS: {} rounds", done + 1);
            break;
        }
    }
    Ok(true)
}

/// At least one round, and more until `end`.
fn test_rounds(rounds: &[Round], end: Instant) -> Result<bool, Failure> {
    let root = workspace_root();
    let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let mut seed = start.as_secs();
    let mut done = 0;
    loop {
        for round in rounds {
            let mut command = cargo(&root);
            command
                .args(["test", "--release", "--quiet", "--package", round.package])
                .args(round.selection)
                .envs(round.variables.iter().copied());
            if let Some(variable) = round.seed {
                println!("{variable}={seed}");
                command.env(variable, seed.to_string());
            }
            if !command.status()?.success() {
                println!("FAIL after {done} rounds");
                return Ok(false);
            }
        }
        done += 1;
        seed += SEED_STEP;
        if Instant::now() >= end {
            println!("PASS: {done} rounds");
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_a_long_form_that_exists() {
        let request = Request::parse(&["fuzz", "--hours", "0.5"]).unwrap();
        assert_eq!(request.name.as_deref(), Some("fuzz"));
        assert_eq!(request.time, Duration::from_secs(1800));
        assert_eq!(Request::parse(&[]).map(|request| request.name), Some(None));
        for wrong in [
            &["fuz"][..],
            &["fuzz", "--hours"],
            &["fuzz", "--hours", "-1"],
            &["fuzz", "2"],
        ] {
            assert_eq!(Request::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn every_round_names_tests_that_exist() {
        let root = workspace_root();
        let rounds = SOAKS.iter().filter_map(|soak| match soak.work {
            Work::Tests(rounds) => Some(rounds),
            Work::Fuzz | Work::Commands(_) => None,
        });
        for round in rounds.flatten() {
            let tests = root.join("crates").join(round.package).join("tests");
            let [kind, name, ..] = round.selection else {
                panic!("{} selects nothing", round.package);
            };
            assert_eq!(*kind, "--test");
            let exists = tests.join(format!("{name}.rs")).is_file() || tests.join(name).is_dir();
            assert!(exists, "{} has no test {name}", round.package);
        }
    }
}
