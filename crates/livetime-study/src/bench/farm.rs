//! `farm`: the Level-3 stage: what a converter hands over, whether 250 MB/s goes through without dead
//! time, and how long a filter unit that sleeps takes to get its event.
//!
//! The converter is the event builder of bench `builder` with events of 150 kB (paper 002): pages go to
//! the filter by number. A null filter looks at one header per fragment; beside it one that reads every
//! word, on the floor of a copy through pages. The whole stage is a chain on two cores with 1000
//! events of 250 kB a second (the paper's enhanced requirement), each through the dimuon
//! reconstruction; its writer keeps nothing. Level 2 decides beside the front-ends, and the emulated
//! source makes up for stalls of its core by offering what it is late with at once. The hand-over
//! to a unit that sleeps is in `farm_hand_over`, filters in Python are in
//! `farm_python`. Not measured: disks (`store`).

use std::thread;
use std::time::Duration;

use livetime_node::{Chain, ChainConfig, ChainOutcome, FilterConfig, RunFile};
use livetime_readout::LinkConfig;
use livetime_shm::floor::memcpy_through_pool;
use livetime_shm::{HugePages, PagePool, PoolConfig};
use livetime_source::{ArrivalKind, OfferMode};
use livetime_store::RunBegin;
use livetime_trigger::{Cut, MassWindowConfig, Menu, MenuConfig, PathConfig};
use livetime_wire::{ByteSize, DurationNs, RateHz, RunNumber};
use serde_json::{Value, json};

use super::builder::{Look, hand_over};
use super::document::{BenchDocument, Target, median, rounded, time_per_item};
use super::interleave::{LIKE_FLOORS, add_item_floor, interleave};
use super::pinned_threads::run_alone;
use super::{BenchError, BenchOptions, chain, farm_hand_over, farm_python};

/// Words of a fragment: eight of them are an event of 150 kB.
const CONVERTER_WORDS: usize = 4688;
/// Bytes of a fragment of the whole stage: eight of them are an event of 250 kB.
const STAGE_FRAGMENT_BYTES: u64 = 31_232;
const STAGE_RATE_HZ: f64 = 1000.0;
const LINKS: u64 = 8;
const PAGE_BYTES: u32 = 64 * 1024;
/// Events that a builder unit may hold, and accepted triggers that may wait for one to have room.
const STAGE_CREDITS: u32 = 64;
const STAGE_QUEUE: u32 = 512;
/// Offers of the emulated source that are so late count as refused.
const STAGE_LATENESS: DurationNs = DurationNs(100 * DurationNs::MILLISECOND.0);

struct Size {
    blocks: usize,
    events: u64,
    copy_bytes: u64,
    stage: Duration,
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
        }
    } else {
        Size {
            blocks: 20,
            events: 2_500,
            copy_bytes: 256 << 20,
            stage: Duration::from_secs(10),
        }
    };
    let mut document = BenchDocument::new("farm");
    for (name, look) in [("null", Look::Headers), ("reading", Look::Everything)] {
        run_alone(|| converter(&mut document, &size, name, look))?;
    }
    whole_stage(&mut document, &size)?;
    farm_hand_over::add_rows(&mut document, options)?;
    farm_python::add_rows(&mut document, options)?;
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
    let ratio = selection.quotient(|kept| {
        let per_byte = kept.block.event_ns / event_bytes;
        (kept.floor(|floor| *floor), per_byte)
    });
    document.add_quotient(format!("converter_{name}_filter_to_copy"), ratio);
    let target_name = format!("converter_{name}_filter_gb_per_s");
    document.add_target(selection.judged(Target::at_least(target_name, gb_per_s, 1.5)));
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
    let whole = &outcome.counts;
    let offered = counted(a.offered, b.offered, whole.offered);
    let offered = offered.filter(|count| *count > 0.0).unwrap_or(f64::NAN);
    let dead = (b.refused - a.refused) as f64 / offered;
    let event_bytes = (STAGE_FRAGMENT_BYTES * LINKS) as f64;
    let built = counted(a.events_built, b.events_built, whole.events_built);
    let mb_per_s = built.unwrap_or(f64::NAN) * event_bytes / seconds / 1e6;
    document.add_result(
        "whole_stage",
        json!({
            "event_bytes": event_bytes,
            "rate_hz": STAGE_RATE_HZ,
            "built_mb_per_s": rounded(mb_per_s),
            "dead_time_fraction": rounded(dead),
            "whole_run": refusals(&outcome),
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

/// What was counted from one look to the next; none where the whole run counted more than the later
/// look and that saw nothing new: roles tell their counts from time to time, and none told them between
/// the two.
fn counted(before: u64, after: u64, whole: u64) -> Option<f64> {
    let is_seen = after > before || whole <= after;
    is_seen.then(|| after.saturating_sub(before) as f64)
}

/// Refused triggers of the whole run, its start included, by cause. Late are those that the
/// emulated source offered more than [`STAGE_LATENESS`] after they were due: its worker has far less to
/// do in a duty cycle, so the machine did not let it run. All others count as ours, also where
/// the machine stopped the other worker.
fn refusals(outcome: &ChainOutcome) -> Value {
    let front_end = outcome.details.get("src0");
    let count = |name: &str| front_end.and_then(|details| details.get(name).copied());
    let offered = outcome.counts.offered.max(1) as f64;
    let late = count("refused_late").unwrap_or(0);
    let others = outcome.counts.refused.saturating_sub(late);
    json!({
        "refused_buffers_full": count("refused_buffers"),
        "refused_xoff": count("refused_xoff"),
        "refused_source_late": count("refused_late"),
        "dead_time_host": rounded(late as f64 / offered),
        "dead_time_ours": rounded(others as f64 / offered),
    })
}

/// The chain of bench `chain` with the events and the filter of the farm.
pub(crate) fn stage_config() -> ChainConfig {
    let mut config = chain::chain_config();
    let triggers = &mut config.source.triggers;
    triggers.arrival.kind = ArrivalKind::FixedGap;
    triggers.arrival.rate = RateHz(STAGE_RATE_HZ);
    triggers.mode = OfferMode::default();
    triggers.lateness_max = STAGE_LATENESS;
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
    // Events wait in their pages when the machine stops the units' core for half a second.
    config.builder.credits = STAGE_CREDITS;
    config.builder.evm_queue = STAGE_QUEUE;
    // A decision that waited for events to be built and written would hold its Level-2 buffer.
    let (source, units) = config.workers.split_at_mut(1);
    if let ([source], [units]) = (source, units) {
        let is_trigger = |id: &String| id.starts_with("trg");
        source
            .roles
            .extend(units.roles.extract_if(.., |id| is_trigger(id)));
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_told_between_two_looks_is_not_measured() {
        assert_eq!(counted(10, 130, 150), Some(120.0));
        assert_eq!(counted(0, 0, 122), None, "told after the second look");
        assert_eq!(counted(7, 7, 7), Some(0.0), "stood still");
    }

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
