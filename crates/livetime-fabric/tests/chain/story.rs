//! What every story of the chain needs: a small chain, and the checks that hold at every end.

use std::collections::BTreeSet;
use std::io::Cursor;

use livetime_fabric::{SimulatedChain, SimulatedChainConfig, SimulatedOutcome};
use livetime_source::{ArrivalKind, OfferMode};
use livetime_store::RunReader;
use livetime_trigger::{Cut, Menu, MenuConfig, PathConfig};
use livetime_wire::{ByteSize, DurationNs, RateHz, RunNs, RunNumber, SourceId, TriggerNumber};

/// A menu that accepts one trigger in `prescale`, whatever is in it.
pub(crate) fn menu_one_in(prescale: u32) -> Menu {
    let path = PathConfig {
        name: "EVERY".to_owned(),
        bit: 3,
        // The source sets Level-1 bit 0 in every packet.
        l1_mask: 1,
        cut: Cut::Auto,
        prescale: prescale.into(),
    };
    let config = MenuConfig {
        paths: vec![path],
        ..MenuConfig::default()
    };
    Menu::new_checked(config, "trigger").unwrap()
}

/// The menu of a run that configures none.
pub(crate) fn default_menu() -> Menu {
    Menu::new_checked(MenuConfig::default(), "trigger").unwrap()
}

/// 4 links at 2 readout units, small fragments, 2 builder units, 1 filter unit, Poisson triggers.
pub(crate) fn small_chain(menu: Menu, rate_hz: f64, duration_ms: u64) -> SimulatedChainConfig {
    let mut config = SimulatedChainConfig::new(RunNumber(7), 4, 2, menu);
    config.source.fragment.bytes_mean = ByteSize(512);
    config.builder.trigger_window = 1024;
    config.store.events_indexed_max = 100_000;
    config.store.chunks_indexed_max = 10_000;
    let triggers = &mut config.source.triggers;
    triggers.arrival.rate = RateHz(rate_hz);
    triggers.duration = Some(ms(duration_ms));
    config
}

/// Triggers as fast as they are taken, none refused.
pub(crate) fn lossless(mut config: SimulatedChainConfig, triggers: u64) -> SimulatedChainConfig {
    config.source.triggers.mode = OfferMode::Lossless;
    config.source.triggers.arrival.kind = ArrivalKind::Unpaced;
    config.source.triggers.triggers_max = Some(triggers);
    config.source.triggers.duration = None;
    config
}

pub(crate) const fn ms(ms: u64) -> DurationNs {
    DurationNs(ms * 1_000_000)
}

pub(crate) const fn at_ms(ms: u64) -> RunNs {
    RunNs(ms * 1_000_000)
}

/// Runs the chain and checks what must hold at the end of every run, however it went.
pub(crate) fn tell(config: &SimulatedChainConfig) -> SimulatedOutcome {
    let chain = SimulatedChain::new_checked(config).unwrap_or_else(|error| panic!("{error}"));
    let outcome = chain.run();
    assert_eq!(outcome.conservation_problems(), [], "{:?}", outcome.losses);
    assert!(
        outcome.pages_conserved(),
        "pages: {:?}",
        outcome.units.links
    );
    assert!(
        outcome.credits_conserved,
        "credits: {:?}",
        outcome.units.manager
    );
    assert_eq!(outcome.mishaps, 0);
    assert_eq!(
        outcome.stored_triggers.len() as u64,
        outcome.counts.events_stored
    );
    outcome
}

/// As [`tell`], for a run that must end in order.
pub(crate) fn tell_in_order(config: &SimulatedChainConfig) -> SimulatedOutcome {
    let outcome = tell(config);
    assert!(
        outcome.is_drained,
        "something was left: {:?}",
        outcome.counts
    );
    assert!(outcome.faults.conserved(), "messages: {:?}", outcome.faults);
    let links = outcome.units.links.iter();
    assert_eq!(links.map(|link| link.pages.filling).sum::<u32>(), 0);
    outcome
}

/// An event of a run file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredEvent {
    pub(crate) trigger: TriggerNumber,
    pub(crate) triggered_at: RunNs,
    pub(crate) fragments: Vec<SourceId>,
    pub(crate) missing: Vec<SourceId>,
}

/// Reads the run file back: every checksum is compared, every event is there once, with each
/// source either in it or named missing.
pub(crate) fn stored_events(
    config: &SimulatedChainConfig,
    outcome: &SimulatedOutcome,
) -> Vec<StoredEvent> {
    let mut reader = RunReader::open(Cursor::new(&outcome.run_file)).unwrap();
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        let header = event.header();
        events.push(StoredEvent {
            trigger: header.trigger,
            triggered_at: header.triggered_at,
            fragments: event.entries().map(|entry| entry.source).collect(),
            missing: event.missing().collect(),
        });
    }
    assert!(reader.damage().entries().is_empty());
    let triggers: BTreeSet<TriggerNumber> = events.iter().map(|event| event.trigger).collect();
    assert_eq!(
        triggers.len(),
        events.len(),
        "an event is in the file twice"
    );
    assert!(
        triggers
            .into_iter()
            .eq(outcome.stored_triggers.iter().copied())
    );
    for event in &events {
        let mut sources = [event.fragments.clone(), event.missing.clone()].concat();
        sources.sort_unstable();
        assert_eq!(
            sources, config.source.data_links,
            "trigger {}",
            event.trigger
        );
    }
    events
}
