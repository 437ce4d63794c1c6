//! Hand-over of events to a filter unit that sleeps: the rows of bench `farm` about waking it.
//!
//! A chain takes an event every few milliseconds: everything but the filter unit polls on one core,
//! the filter unit sleeps at its doorbell on the other. The time is that of the run's own histogram:
//! from just before the builder unit puts the ticket into the ring and rings, to the first look of
//! the filter unit at it. The floor, before and after each block, is an eventfd that wakes a thread on
//! the same core after a sleep of the same length.

use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use livetime_node::{Chain, ChainConfig, FilterConfig, RunFile, WorkerConfig};
use livetime_shm::floor::{Samples, eventfd_one_way};
use livetime_shm::{WaitStrategy, two_cpus};
use livetime_store::RunBegin;
use livetime_wire::{RateHz, RunNumber};
use serde_json::json;

use super::document::{BenchDocument, Target, latency, rounded};
use super::interleave::{LIKE_FLOORS, interleave};
use super::{BenchError, BenchOptions, chain, farm};

/// Time between two events: a thread that found nothing for so long sleeps.
const ASLEEP: Duration = Duration::from_millis(3);
const FRAGMENT_BYTES: u64 = 2048;

/// What one chain did.
struct Woken {
    hand_over: Samples,
    /// Sleeps of the filter unit, and those of them that the doorbell ended.
    sleeps: u64,
    rung: u64,
}

/// Measures and adds the rows.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when an event is lost.
pub(crate) fn add_rows(
    document: &mut BenchDocument,
    options: &BenchOptions,
) -> Result<(), BenchError> {
    let (blocks, wake_ups) = if options.quick { (1, 20) } else { (6, 300) };
    let config = sleeping_config();
    let measured = interleave(
        blocks,
        LIKE_FLOORS,
        || Ok(eventfd_one_way(wake_ups, ASLEEP)?.one_way),
        || take_events(&config, wake_ups),
        |floor| floor.p50() as f64,
    )?;
    let selection = measured.select(|floor| floor.p50() as f64, |_| ());
    let ratio = selection.quotient(|kept| {
        let floor = kept.floor(|floor| floor.p50() as f64);
        (kept.block.hand_over.p50() as f64, floor.max(1.0))
    });
    let sum = |count: fn(&Woken) -> u64| -> u64 {
        selection.kept.iter().map(|kept| count(kept.block)).sum()
    };
    let (sleeps, rung) = (sum(|woken| woken.sleeps), sum(|woken| woken.rung));
    document.add_floor(
        "eventfd_one_way_ns",
        latency(&selection.merged_floors(|floor| floor)),
    );
    document.add_result(
        "hand_over_to_sleeping_unit_ns",
        latency(&selection.merged(|woken| &woken.hand_over)),
    );
    document.add_result(
        "hand_over_to_sleeping_unit",
        json!({
            "sleeps": sleeps,
            "sleeps_ended_by_the_doorbell": rung,
            "fraction_rung": rounded(rung as f64 / sleeps.max(1) as f64),
            "blocks": selection.to_json(),
        }),
    );
    document.add_quotient("hand_over_to_wake_up", ratio);
    let target = Target::by_floor("hand_over_to_wake_up", ratio.value(), 1.2);
    document.add_target(selection.judged(target));
    Ok(())
}

/// Takes so many events, ends the chain in order, and says how they reached the filter unit.
fn take_events(config: &ChainConfig, events: u32) -> Result<Woken, BenchError> {
    let file = RunFile::discarding(&RunBegin::new(RunNumber(1)), config.store)?;
    let chain = Chain::start(config, file)?;
    thread::sleep(ASLEEP * events);
    let outcome = chain::end_in_order(chain)?;
    let counts = &outcome.counts;
    if counts.filter_accepted != counts.events_built {
        return Err(BenchError::Conservation {
            what: "events through the filter",
            found: counts.filter_accepted,
            expected: counts.events_built,
        });
    }
    let filter = outcome
        .workers
        .iter()
        .find(|worker| worker.name == "filter");
    let waits = filter.map(|worker| worker.waits).unwrap_or_default();
    Ok(Woken {
        hand_over: samples(&outcome.hand_over_latency),
        sleeps: waits.sleeps,
        rung: waits.rung,
    })
}

fn samples(histogram: &Histogram<u64>) -> Samples {
    let values = histogram.iter_recorded().flat_map(|value| {
        let count = usize::try_from(value.count_at_value()).unwrap_or(usize::MAX);
        std::iter::repeat_n(value.value_iterated_to(), count)
    });
    Samples::from_unsorted(values.collect())
}

/// The chain of the farm with small events, far apart, and a filter unit on a core of its own.
fn sleeping_config() -> ChainConfig {
    let mut config = farm::stage_config();
    config.source.triggers.arrival.rate = RateHz(1.0 / ASLEEP.as_secs_f64());
    config.source.fragment.bytes_mean.0 = FRAGMENT_BYTES;
    config.source.fragment.bytes_max.0 = FRAGMENT_BYTES;
    config.filter = FilterConfig::AcceptAll;
    let [others, of_filter] = two_cpus();
    let (filter, rest): (Vec<String>, Vec<String>) =
        (config.role_ids().into_iter()).partition(|id| id.starts_with("fu"));
    let worker = |name: &str, core, wait, roles| WorkerConfig {
        name: name.to_owned(),
        core: Some(core),
        wait,
        roles,
    };
    // Polls as one that builds the next event: a builder unit that sleeps wakes late itself. On a
    // machine of one core that would keep the filter unit from running at all.
    let polling = match others == of_filter {
        true => WaitStrategy::Adaptive,
        false => WaitStrategy::Spin,
    };
    config.workers = vec![
        worker("others", others, polling, rest),
        worker("filter", of_filter, WaitStrategy::Block, filter),
    ];
    config
}

#[cfg(test)]
mod tests {
    use livetime_node::BuilderTransport;
    use livetime_trigger::MassWindowConfig;

    use super::*;

    #[test]
    fn the_configuration_has_no_problem_and_the_filter_unit_sleeps_alone() {
        let config = sleeping_config();
        let cores = livetime_shm::allowed_cpus();
        let found = config.validate(&cores, "link", |link| format!("link[{link}]"));
        assert_eq!(found, []);
        assert_eq!(config.source.validate("source"), []);
        assert_eq!(config.workers[1].roles, ["fu0"]);
        assert_eq!(config.workers[1].wait, WaitStrategy::Block);
    }

    /// Nothing is kept, so that nobody but its streams has a reason to wake it.
    #[test]
    fn a_sleeping_filter_unit_is_woken_by_its_streams() {
        let mut config = sleeping_config();
        config.filter_transport = BuilderTransport::Tcp { congestion: None };
        config.filter = FilterConfig::MassWindow(MassWindowConfig {
            mass_min_gev: 1e5,
            mass_max_gev: 2e5,
            keep_one_in: 0,
        });
        let file = RunFile::discarding(&RunBegin::new(RunNumber(1)), config.store).unwrap();
        let chain = Chain::start(&config, file).unwrap();
        while chain.snapshot().counts().events_built < 20 {
            thread::sleep(ASLEEP);
        }
        let outcome = chain::end_in_order(chain).unwrap();
        let filter = outcome
            .workers
            .iter()
            .find(|worker| worker.name == "filter");
        let waits = filter.unwrap().waits;
        let (built, kept) = (outcome.counts.events_built, outcome.counts.filter_accepted);
        assert!(
            built > 0 && waits.rung > kept,
            "{waits:?}, {kept} of {built} kept"
        );
    }

    #[test]
    fn a_sleeping_filter_unit_is_woken_by_its_doorbell() {
        let woken = take_events(&sleeping_config(), 60).unwrap();
        assert!(woken.hand_over.count() > 0);
        assert!(woken.rung > 0, "{} sleeps, none rung off", woken.sleeps);
        assert!(woken.rung <= woken.sleeps);
    }
}
