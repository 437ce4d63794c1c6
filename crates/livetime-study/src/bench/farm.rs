//! `farm`: the Level-3 stage: what a converter hands over, whether 250 MB/s goes through without dead
//! time, and how long a filter unit that sleeps takes to get its event.
//!
//! The converter is the event builder of bench `builder` with events of 150 kB (paper 002): pages go to
//! the filter by number. A null filter looks at one header per fragment; beside it one that reads every
//! word, on the floor of a copy through pages. The whole stage is a chain on two cores with 1000
//! events of 250 kB a second (the paper's enhanced requirement), each through the dimuon
//! reconstruction; its writer keeps nothing. The hand-over to a sleeping unit is the ring and the doorbell
//! of the run, on the floor of a bare eventfd that wakes a thread after a sleep of the same length. Not measured: the
//! Python filter, whose process belongs to its own package, and disks (`store`).

use std::thread;
use std::time::{Duration, Instant};

use livetime_node::{Chain, ChainConfig, FilterConfig, RunFile};
use livetime_readout::LinkConfig;
use livetime_shm::floor::{Samples, eventfd_one_way, memcpy_through_pool};
use livetime_shm::{
    Doorbell, HugePages, PagePool, PoolConfig, RingConfig, TscClock, WaitStrategy, Waiter,
    heap_ring,
};
use livetime_source::{ArrivalKind, OfferMode};
use livetime_store::RunBegin;
use livetime_trigger::{Cut, MassWindowConfig, Menu, MenuConfig, PathConfig};
use livetime_wire::{ByteSize, RateHz, RunNumber};
use serde_json::json;

use super::builder::{Look, hand_over};
use super::document::{BenchDocument, Target, latency, median, rounded, time_per_item};
use super::interleave::{LIKE_FLOORS, add_item_floor, interleave};
use super::two_cores::{Patience, run_alone, run_pair};
use super::{BenchError, BenchOptions, chain};

/// Words of a fragment: eight of them are an event of 150 kB.
const CONVERTER_WORDS: usize = 4688;
/// Bytes of a fragment of the whole stage: eight of them are an event of 250 kB.
const STAGE_FRAGMENT_BYTES: u64 = 31_232;
const STAGE_RATE_HZ: f64 = 1000.0;
const LINKS: u64 = 8;
const PAGE_BYTES: u32 = 64 * 1024;
/// A thread that found nothing for this long sleeps.
const ASLEEP: Duration = Duration::from_millis(3);
const PATIENCE: Duration = Duration::from_secs(10);

struct Size {
    blocks: usize,
    events: u64,
    copy_bytes: u64,
    stage: Duration,
    wake_ups: u32,
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when an event is lost.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let size = if options.quick {
        Size {
            blocks: 2,
            events: 200,
            copy_bytes: 16 << 20,
            stage: Duration::from_millis(300),
            wake_ups: 20,
        }
    } else {
        Size {
            blocks: 20,
            events: 2_500,
            copy_bytes: 256 << 20,
            stage: Duration::from_secs(10),
            wake_ups: 500,
        }
    };
    let mut document = BenchDocument::new("farm");
    for (name, look) in [("null", Look::Headers), ("reading", Look::Everything)] {
        run_alone(|| converter(&mut document, &size, name, look))?;
    }
    whole_stage(&mut document, &size)?;
    sleeping_unit(&mut document, &size)?;
    Ok(document)
}

/// The converter alone, with a filter that looks so closely.
fn converter(
    document: &mut BenchDocument,
    size: &Size,
    name: &str,
    look: Look,
) -> Result<(), BenchError> {
    let pool = PagePool::create(&PoolConfig {
        pages: 256,
        page_bytes: PAGE_BYTES,
        huge_pages: HugePages::Prefer,
    })?;
    let mut hand = hand_over(CONVERTER_WORDS, look)?;
    hand(size.events)?;
    let floor = || Ok(1.0 / memcpy_through_pool(&pool, size.copy_bytes)?.gb_per_s());
    let measured = interleave(
        size.blocks,
        LIKE_FLOORS,
        floor,
        || hand(size.events),
        |floor| *floor,
    )?;
    let selection = measured.select(|floor| *floor, |_| ());
    let event_bytes = (CONVERTER_WORDS as u64 * 4 * LINKS) as f64;
    let times = selection.all(|kept| kept.block.event_ns);
    let gb_per_s = event_bytes / median(&times);
    let moved: u64 = selection
        .kept
        .iter()
        .map(|kept| kept.block.bytes_moved)
        .sum();
    let handed = selection.kept.len() as f64 * size.events as f64 * event_bytes;
    let moves = moved as f64 / handed.max(1.0);
    document.add_result(
        format!("converter_{name}_filter"),
        json!({
            "event_bytes": event_bytes,
            "event_ns": time_per_item(&times),
            "gb_per_s": rounded(gb_per_s),
            "moves_per_byte": rounded(moves),
            "blocks": selection.to_json(),
        }),
    );
    let copy_name = format!("copy_ns_per_byte_{name}");
    add_item_floor(&mut document.floor, copy_name, &selection);
    let ratio = selection.median(|kept| {
        let per_byte = kept.block.event_ns / event_bytes;
        kept.floor(|floor| *floor) / per_byte
    });
    document.add_ratio(format!("converter_{name}_filter_to_copy"), ratio);
    document.add_target(Target::at_least(
        format!("converter_{name}_filter_gb_per_s"),
        gb_per_s,
        1.5,
    ));
    let name = format!("moves_per_byte_{name}_filter");
    document.add_target(Target::at_most(name, moves, 0.0));
    Ok(())
}

/// 1000 events of 250 kB a second through the whole chain.
fn whole_stage(document: &mut BenchDocument, size: &Size) -> Result<(), BenchError> {
    let config = stage_config();
    let file = RunFile::discarding(&RunBegin::new(RunNumber(1)), config.store)?;
    let chain = Chain::start(&config, file)?;
    // Pages are touched for the first time in here.
    thread::sleep(size.stage / 4);
    let before = chain.snapshot();
    thread::sleep(size.stage);
    let after = chain.snapshot();
    let outcome = chain::end_in_order(chain)?;
    let (a, b) = (before.counts(), after.counts());
    let seconds = after.at.since(before.at).as_seconds().max(1e-9);
    let offered = (b.offered - a.offered).max(1) as f64;
    let dead = (b.refused - a.refused) as f64 / offered;
    let event_bytes = (STAGE_FRAGMENT_BYTES * LINKS) as f64;
    let mb_per_s = (b.events_built - a.events_built) as f64 * event_bytes / seconds / 1e6;
    document.add_result(
        "whole_stage",
        json!({
            "event_bytes": event_bytes,
            "rate_hz": STAGE_RATE_HZ,
            "built_mb_per_s": rounded(mb_per_s),
            "dead_time_fraction": rounded(dead),
            "events_built": outcome.counts.events_built,
            "filter_accepted": outcome.counts.filter_accepted,
            "lost": outcome.losses.total(),
            "copies_per_stored_byte": rounded(outcome.copies_per_byte()),
        }),
    );
    document.add_target(Target::at_least("stage_mb_per_s", mb_per_s, 240.0));
    document.add_target(Target::at_most("stage_dead_time_fraction", dead, 0.0));
    Ok(())
}

/// The chain of bench `chain` with the events and the filter of the farm.
pub(crate) fn stage_config() -> ChainConfig {
    let mut config = chain::chain_config();
    let triggers = &mut config.source.triggers;
    triggers.arrival.kind = ArrivalKind::FixedGap;
    triggers.arrival.rate = RateHz(STAGE_RATE_HZ);
    triggers.mode = OfferMode::default();
    config.source.fragment.bytes_mean = ByteSize(STAGE_FRAGMENT_BYTES);
    config.source.fragment.bytes_max = ByteSize(STAGE_FRAGMENT_BYTES);
    for link in &mut config.data_links {
        link.link = LinkConfig {
            page_words: PAGE_BYTES / 8,
            fragment_words_max: PAGE_BYTES / 8,
            ..link.link.clone()
        };
    }
    let mut menu = MenuConfig::default();
    menu.paths.push(PathConfig {
        name: "EVERYTHING".to_owned(),
        bit: 127,
        l1_mask: u64::MAX,
        cut: Cut::Auto,
        prescale: 1.into(),
    });
    config.menu = Menu::new_checked(menu, "trigger").expect("the path has a bit of its own");
    config.filter = FilterConfig::MassWindow(MassWindowConfig::default());
    config
}

/// From a push to a unit that sleeps in the kernel to its first look at the event, beside a bare
/// wake-up after a sleep of the same length.
fn sleeping_unit(document: &mut BenchDocument, size: &Size) -> Result<(), BenchError> {
    let floor = || eventfd_one_way(size.wake_ups, ASLEEP).map(|floor| floor.one_way);
    let floor_before = floor()?;
    let delays = hand_over_asleep(size.wake_ups)?;
    let floor_after = floor()?;
    let floor_p50 = (floor_before.p50() + floor_after.p50()) as f64 / 2.0;
    let ratio = delays.p50() as f64 / floor_p50.max(1.0);
    document.add_floor("eventfd_one_way_ns", latency(&floor_before));
    document.add_result("hand_over_to_sleeping_unit_ns", latency(&delays));
    document.add_ratio("hand_over_to_wake_up", ratio);
    document.add_target(Target::at_most("hand_over_to_wake_up", ratio, 1.2));
    Ok(())
}

/// Delays of so many events, one every [`ASLEEP`], to a unit that sleeps on its doorbell.
fn hand_over_asleep(wake_ups: u32) -> Result<Samples, BenchError> {
    let (mut events, mut tickets) = heap_ring(&RingConfig {
        slots: 16,
        slot_words: 16,
    })?;
    let bell = Doorbell::in_process();
    let unit_bell = bell.clone();
    let clock = TscClock::calibrate();
    let converter = |mut patience: Patience<'_>| {
        let begin = Instant::now();
        for event in 1..=wake_ups {
            // Spins, as one that builds the next event: a converter that sleeps wakes late itself.
            while begin.elapsed() < ASLEEP * event {
                patience.idle()?;
                patience.restart();
            }
            let ticks = clock.ticks();
            events.try_push(&[ticks as u32, (ticks >> 32) as u32])?;
            bell.ring();
        }
        Ok(())
    };
    let unit = |_: Patience<'_>| {
        let mut waiter = Waiter::with_doorbell(WaitStrategy::Block, unit_bell);
        let mut delays = Vec::with_capacity(wake_ups as usize);
        let limit = Instant::now() + PATIENCE + ASLEEP * 4 * wake_ups;
        while delays.len() < wake_ups as usize && Instant::now() < limit {
            let popped =
                tickets.try_pop(|words| u64::from(words[0]) | u64::from(words[1]) << 32)?;
            if let Some(sent) = popped {
                delays.push(clock.ticks_to_ns(clock.ticks().wrapping_sub(sent)));
            }
            waiter.after(usize::from(popped.is_some()));
        }
        Ok(delays)
    };
    let ((), delays) = run_pair(converter, unit)?;
    if delays.len() != wake_ups as usize {
        return Err(BenchError::Conservation {
            what: "hand-overs",
            found: delays.len() as u64,
            expected: wake_ups.into(),
        });
    }
    Ok(Samples::from_unsorted(delays))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_the_stage_has_no_problem() {
        let config = stage_config();
        let cores = livetime_shm::allowed_cpus();
        let found = config.validate(&cores, "link", |link| format!("link[{link}]"));
        assert_eq!(found, []);
        assert_eq!(config.source.validate("source"), []);
        let event = STAGE_FRAGMENT_BYTES * config.data_links.len() as u64;
        assert!((249_000..251_000).contains(&event), "{event}");
        assert_eq!(config.data_links.len() as u64, LINKS);
    }
}
