//! `chain`: a whole run on two cores, from the trigger to a writer whose file keeps nothing.
//!
//! `livetime-node`'s chain as it takes data: front-ends with supervisor and the trigger node on one
//! core; two readout units, event manager, two builder units, filter unit and writer on the other.
//! Eight data links bring fragments of 2 KiB for every trigger, their payload prefilled, header and
//! CRC-32C stamped, and the events were drawn before the run; everything else is as in a run:
//! packets are encoded, decided by the default menu, CRCs checked, events gathered into chunks with
//! their checksums. Only the last system call goes nowhere. A prescaled path accepts a quarter of
//! the triggers on top of the menu.
//!
//! Rates are medians over intervals of a run that takes triggers without pace and without loss.
//! Not measured: the disk (`store`), and the shape of the latency at a given rate (`livetime run`).

use std::thread;
use std::time::{Duration, Instant};

use livetime_builder::BuilderConfig;
use livetime_node::link::LinkTransport;
use livetime_node::{
    BuilderTransport, Chain, ChainConfig, ChainOutcome, DataLinkConfig, FilterConfig, RunFile,
    WorkerConfig, latency_summary,
};
use livetime_readout::LinkConfig;
use livetime_shm::{WaitStrategy, request_fifo, two_cpus};
use livetime_source::{
    ArrivalConfig, ArrivalKind, EventGenerator, FragmentConfig, OfferMode, PayloadKind,
    PhysicsGenerator, RecordedEvents, SourceConfig, TriggerSourceConfig,
};
use livetime_store::{FilePlan, RunBegin, WriterLimits};
use livetime_trigger::{
    Cut, FirstStepConfig, Menu, MenuConfig, MergerConfig, PathConfig, SupervisorConfig,
};
use livetime_wire::{ByteSize, RunNumber, SourceId};
use serde_json::{Value, json};

use super::document::{BenchDocument, Target, median, quantile, rounded};
use super::interleave::{LIKE_FLOORS, LineFloor, add_line_floor, interleave};
use super::{BenchError, BenchOptions, PRIORITY};

const RUN: RunNumber = RunNumber(1);
const LINKS: u32 = 8;
const READOUT_UNITS: u16 = 2;
const FRAGMENT_BYTES: u64 = 2048;
/// One trigger in so many is accepted whatever it contains.
const PRESCALE: u32 = 4;
/// Events drawn before the run and played again and again: so many that no cache holds them all.
const PREPARED: u32 = 20_000;
const FLOOR_ROUNDS: u32 = 5_000;
/// A run that does not come to its end in this time never will.
const PATIENCE: Duration = Duration::from_secs(20);

struct Size {
    runs: usize,
    warm_up: Duration,
    intervals: usize,
    interval: Duration,
}

/// What one run did.
struct Run {
    decisions_per_s: Vec<f64>,
    built_per_s: Vec<f64>,
    outcome: ChainOutcome,
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when the counts of a run do not agree.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let millis = Duration::from_millis;
    let size = if options.quick {
        Size {
            runs: 1,
            warm_up: millis(20),
            intervals: 4,
            interval: millis(20),
        }
    } else {
        Size {
            runs: 8,
            warm_up: millis(200),
            intervals: 40,
            interval: millis(25),
        }
    };
    let config = chain_config();
    let measured = interleave(
        size.runs,
        LIKE_FLOORS,
        || LineFloor::measure(&[], FLOOR_ROUNDS),
        || take_data(&config, &size, options.realtime),
        LineFloor::bare_p50,
    )?;
    let selection = measured.select(LineFloor::bare_p50, LineFloor::placement);
    let mut document = BenchDocument::new("chain");
    add_line_floor(&mut document, &selection);
    let all = |figure: fn(&Run) -> &Vec<f64>| -> Vec<f64> {
        selection
            .kept
            .iter()
            .flat_map(|kept| figure(kept.block).iter().copied())
            .collect()
    };
    let decisions = all(|run| &run.decisions_per_s);
    let built = all(|run| &run.built_per_s);
    document.add_result("decisions_per_s", rates(&decisions));
    document.add_result("built_events_per_s", rates(&built));
    let event_bytes = f64::from(LINKS) * FRAGMENT_BYTES as f64;
    document.add_result(
        "built_mb_per_s",
        rounded(median(&built) * event_bytes / 1e6),
    );
    let copies = selection.median(|kept| kept.block.outcome.copies_per_byte());
    document.add_result("copies_per_stored_byte_after_link_page", rounded(copies));
    let outcomes: Vec<&ChainOutcome> = (selection.kept.iter())
        .map(|kept| &kept.block.outcome)
        .collect();
    add_outcomes(&mut document, &outcomes);
    for target in [
        Target::at_least("decisions_per_s", median(&decisions), 200e3),
        Target::at_least("built_events_per_s", median(&built), 50e3),
    ] {
        document.add_target(selection.judged(target));
    }
    document.add_target(Target::at_most("copies_per_byte", copies, 2.0));
    Ok(document)
}

/// The sums over all runs; latencies and workers of the last.
fn add_outcomes(document: &mut BenchDocument, outcomes: &[&ChainOutcome]) {
    let sum = |count: fn(&ChainOutcome) -> u64| -> u64 {
        outcomes.iter().map(|outcome| count(outcome)).sum()
    };
    document.add_result("triggers", sum(|outcome| outcome.counts.triggers));
    document.add_result("events_built", sum(|outcome| outcome.counts.events_built));
    document.add_result(
        "events_incomplete",
        sum(|outcome| outcome.counts.events_incomplete),
    );
    document.add_result("lost", sum(|outcome| outcome.losses.total()));
    let Some(last) = outcomes.last() else {
        return;
    };
    let latency = |histogram| {
        let summary = latency_summary(histogram, 0);
        json!({
            "count": summary.count, "min": summary.min, "mean": rounded(summary.mean),
            "p50": summary.p50, "p90": summary.p90, "p99": summary.p99, "p99_9": summary.p99_9,
            "p99_99": summary.p99_99, "max": summary.max,
        })
    };
    document.add_result("decision_ns", latency(&last.decision_latency));
    document.add_result("build_ns", latency(&last.build_latency));
    let workers = last.workers.iter().map(|worker| {
        let waits = worker.waits;
        let turns = waits.busy + waits.spins + waits.yields + waits.sleeps;
        (
            worker.name.clone(),
            rounded(waits.busy as f64 / turns.max(1) as f64),
        )
    });
    document.add_result("busy_fraction", Value::Object(workers.collect()));
}

/// Rates of all intervals.
fn rates(per_s: &[f64]) -> Value {
    json!({
        "intervals": per_s.len(),
        "min": rounded(quantile(per_s, 0.0)),
        "p50": rounded(quantile(per_s, 0.5)),
        "p90": rounded(quantile(per_s, 0.9)),
        "p99": rounded(quantile(per_s, 0.99)),
        "p99_9": rounded(quantile(per_s, 0.999)),
        "max": rounded(quantile(per_s, 1.0)),
    })
}

/// Runs a chain, looks at its counters in intervals, and ends it in order.
fn take_data(config: &ChainConfig, size: &Size, realtime: bool) -> Result<Run, BenchError> {
    let file = RunFile::discarding(&RunBegin::new(RUN), config.store)?;
    // The workers inherit the priority; this thread must come before them to look at all.
    if realtime {
        let _ = request_fifo(PRIORITY);
    }
    let chain = Chain::start(config, file)?;
    if realtime {
        let _ = request_fifo(PRIORITY + 1);
    }
    thread::sleep(size.warm_up);
    let mut before = chain.snapshot();
    let (mut decisions_per_s, mut built_per_s) = (Vec::new(), Vec::new());
    for _ in 0..size.intervals {
        thread::sleep(size.interval);
        let after = chain.snapshot();
        let seconds = after.at.since(before.at).as_seconds().max(1e-9);
        let (a, b) = (before.counts(), after.counts());
        let decided = |counts: &livetime_wire::ChainCounts| counts.l2_accepted + counts.l2_rejected;
        decisions_per_s.push((decided(&b) - decided(&a)) as f64 / seconds);
        built_per_s.push((b.events_built - a.events_built) as f64 / seconds);
        before = after;
    }
    let outcome = end_in_order(chain)?;
    if realtime {
        let _ = request_fifo(PRIORITY);
    }
    let counts = &outcome.counts;
    for (what, found, expected) in [
        ("events built", counts.events_built, counts.l2_accepted),
        (
            "fragments in them",
            counts.fragments_in_built,
            counts.l2_accepted * u64::from(LINKS),
        ),
        (
            "fragments sent",
            counts.fragments_sent,
            counts.triggers * u64::from(LINKS),
        ),
        ("losses", outcome.losses.total(), 0),
    ] {
        if found != expected {
            return Err(BenchError::Conservation {
                what,
                found,
                expected,
            });
        }
    }
    Ok(Run {
        decisions_per_s,
        built_per_s,
        outcome,
    })
}

/// Stops the triggers, waits until the chain has drained, ends it and lets its file go.
///
/// # Errors
/// [`BenchError::Stuck`] when it does not drain, [`BenchError::Conservation`] when its counts do
/// not agree.
pub(crate) fn end_in_order(chain: Chain) -> Result<ChainOutcome, BenchError> {
    chain.stop();
    let limit = Instant::now() + PATIENCE;
    while !chain.is_drained() {
        if Instant::now() > limit {
            return Err(BenchError::Stuck);
        }
        thread::sleep(Duration::from_millis(1));
    }
    let mut outcome = chain.finish();
    outcome.run_files.clear();
    match outcome.conservation_problems().len() as u64 {
        0 => Ok(outcome),
        found => Err(BenchError::Conservation {
            what: "equations that do not hold",
            found,
            expected: 0,
        }),
    }
}

/// The chain that is measured, the trigger on one core and the event builder on the other.
pub(crate) fn chain_config() -> ChainConfig {
    let sources: Vec<SourceId> = (0..LINKS).map(|link| SourceId(0x51_0000 + link)).collect();
    let unit_of = |link: usize| link as u16 % READOUT_UNITS;
    let readout_units = (0..READOUT_UNITS).map(|unit| {
        let of_unit = sources
            .iter()
            .enumerate()
            .filter(|(link, _)| unit_of(*link) == unit);
        of_unit.map(|(_, source)| *source).collect()
    });
    let source = source_config(&sources);
    let data_links = sources
        .iter()
        .enumerate()
        .map(|(link, source)| DataLinkConfig {
            source: *source,
            unit: unit_of(link),
            link: LinkConfig::default(),
            transport: LinkTransport::Emulated,
        });
    let mut config = ChainConfig {
        run: RUN,
        data_links: data_links.collect(),
        recorded: Some(prepared_events(&source)),
        front_ends: None,
        source,
        trigger_link: LinkConfig {
            pages: 256,
            ..LinkConfig::default()
        },
        trigger_nodes: 1,
        merger: MergerConfig::NONE,
        menu: menu(),
        supervisor: SupervisorConfig {
            // A machine that stands still costs time, not triggers: nothing may be lost.
            decision_timeout: SupervisorConfig::TIMEOUT_MAX,
            ..SupervisorConfig::default()
        },
        builder: BuilderConfig {
            readout_units: readout_units.collect(),
            ..BuilderConfig::default()
        },
        transport: BuilderTransport::Shm,
        event_manager_apart: false,
        readout_apart: Vec::new(),
        filter_transport: BuilderTransport::Shm,
        filter: FilterConfig::AcceptAll,
        first_step: FirstStepConfig::default(),
        store: WriterLimits {
            // Nothing is kept, so nothing need be found again.
            events_indexed_max: 1,
            chunks_indexed_max: 1,
            ..WriterLimits::default()
        },
        files: FilePlan::default(),
        packets: None,
        workers: Vec::new(),
        faults: Vec::new(),
        spill: None,
    };
    config.workers = workers(&config);
    config
}

/// Triggers without pace and without loss, with fragments that cost only their header and CRC.
fn source_config(sources: &[SourceId]) -> SourceConfig {
    SourceConfig {
        triggers: TriggerSourceConfig {
            arrival: ArrivalConfig {
                kind: ArrivalKind::Unpaced,
                ..ArrivalConfig::default()
            },
            mode: OfferMode::Lossless,
            duration: None,
            ..TriggerSourceConfig::default()
        },
        fragment: FragmentConfig {
            bytes_mean: ByteSize(FRAGMENT_BYTES),
            log_sigma: 0.0,
            payload: PayloadKind::Prefilled,
            ..FragmentConfig::default()
        },
        data_links: sources.to_vec(),
        ..SourceConfig::default()
    }
}

/// Events of the physics generator, drawn before the run.
fn prepared_events(source: &SourceConfig) -> RecordedEvents {
    let generator = PhysicsGenerator::new(source.physics.clone(), source.seed);
    RecordedEvents::drawn(&EventGenerator::Physics(Box::new(generator)), PREPARED)
}

/// The default menu, and a path that keeps a quarter of everything.
fn menu() -> Menu {
    let mut config = MenuConfig::default();
    config.paths.push(PathConfig {
        name: "ONE_IN_FOUR".to_owned(),
        bit: 127,
        l1_mask: 1,
        cut: Cut::Auto,
        prescale: PRESCALE.into(),
    });
    Menu::new_checked(config, "trigger").expect("the path has a bit and a name of its own")
}

/// Front-ends and trigger node on one core, everything that sees accepted events on the other.
pub(crate) fn workers(config: &ChainConfig) -> Vec<WorkerConfig> {
    let [trigger, units] = two_cpus();
    let wait = WaitStrategy::Adaptive;
    let (of_trigger, others): (Vec<String>, Vec<String>) = config
        .role_ids()
        .into_iter()
        .partition(|id| id.starts_with("src") || id.starts_with("trg"));
    vec![
        WorkerConfig {
            name: "trigger".to_owned(),
            core: Some(trigger),
            wait,
            roles: of_trigger,
        },
        WorkerConfig {
            name: "units".to_owned(),
            core: Some(units),
            wait,
            roles: others,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_no_problem() {
        let config = chain_config();
        let cores = livetime_shm::allowed_cpus();
        assert_eq!(
            config.validate(&cores, "link", |link| format!("link[{link}]")),
            []
        );
        assert_eq!(config.source.validate("source"), []);
        assert_eq!(config.builder.validate("builder"), []);
        assert_eq!(config.store.validate(), []);
    }
}
