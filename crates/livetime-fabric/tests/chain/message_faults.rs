//! What messages between units suffer: lost, repeated, delayed, out of order.
//!
//! Given a chain in which every trigger is accepted and stored, when the network misbehaves, then
//! each event is in the file once, and misses exactly what was lost with its name: a fragment whose
//! link was down, or one that came too late for its event.

use livetime_fabric::chain::LinkOutage;
use livetime_fabric::{
    DurationPs, FaultPlan, FaultProfile, LinkId, Probability, SimulatedChainConfig, TimeWindow,
};
use livetime_wire::{LossArea, LossCause, UnitId};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::story::{
    at_ms, lossless, menu_one_in, ms, small_chain, stored_events, tell, tell_in_order,
};

/// Failing inputs are kept here and tried first.
const SEEDS: &str = "tests/seeds/message_faults.txt";

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(SEEDS))),
        ..ProptestConfig::default()
    }
}

/// A profile for the hops of the builder's network.
fn profile(percent: [u32; 4], shift_max_us: u64) -> FaultProfile {
    let [drop, duplicate, delay, reorder] = percent.map(|p| Probability::from_ppm(p * 10_000));
    FaultProfile {
        drop,
        duplicate,
        delay,
        reorder,
        shift_min: DurationPs::from_ns(100),
        shift_max: DurationPs::from_us(shift_max_us),
        active: TimeWindow::ALWAYS,
    }
}

/// The profile on every hop between event manager, builder units and readout units.
fn on_network(config: &SimulatedChainConfig, profile: FaultProfile) -> FaultPlan {
    let layout = config.layout();
    FaultPlan {
        links: layout.lossy_links().map(|link| (link, profile)).collect(),
        ..FaultPlan::none()
    }
}

fn chain(triggers: u64, seed: u64) -> SimulatedChainConfig {
    let mut config = lossless(small_chain(menu_one_in(1), 1.0, 1), triggers);
    config.builder.credits = 4;
    config.builder.retry = ms(1);
    config.builder.probe = ms(5);
    config.builder.timeout = ms(500);
    config.source.seed = seed;
    config.seed = seed;
    config
}

proptest! {
    #![proptest_config(cases(24))]

    /// With timeouts far above retries every fragment comes home in the end.
    #[test]
    fn a_bad_network_loses_no_event(
        seed: u64,
        drop in 0..20_u32,
        duplicate in 0..20_u32,
        delay in 0..20_u32,
        reorder in 0..20_u32,
        shift_max_us in 1..2_000_u64,
    ) {
        let mut config = chain(150, seed);
        let profile = profile([drop, duplicate, delay, reorder], shift_max_us);
        config.faults = on_network(&config, profile);
        let outcome = tell_in_order(&config);
        prop_assert_eq!(outcome.losses.total(), 0);
        let events = stored_events(&config, &outcome);
        prop_assert_eq!(events.len(), 150);
        prop_assert!(events.iter().all(|event| event.missing.is_empty()));
    }

    /// With timeouts that strike while messages are repeated, and a link that goes down as well,
    /// events miss fragments, and every one that is missing is accounted for.
    #[test]
    fn what_an_event_misses_was_lost_by_name(
        seed: u64,
        drop in 0..30_u32,
        duplicate in 0..20_u32,
        reorder in 0..20_u32,
        shift_max_us in 1..20_000_u64,
        down_ms in 0..12_u64,
    ) {
        let mut config = chain(150, seed);
        config.builder.timeout = ms(4);
        config.faults = on_network(&config, profile([drop, duplicate, 0, reorder], shift_max_us));
        config.link_outages = vec![LinkOutage {
            link: 1,
            from: at_ms(down_ms),
            until: at_ms(down_ms + 3),
        }];
        let outcome = tell_in_order(&config);
        let events = stored_events(&config, &outcome);
        prop_assert_eq!(events.len(), 150);
        let missing: usize = events.iter().map(|event| event.missing.len()).sum();
        let lost = outcome.losses.in_area(LossArea::Link)
            + outcome.losses.of(LossCause::FragmentLate);
        prop_assert_eq!(missing as u64, lost);
        prop_assert_eq!(outcome.losses.total(), lost);
        let incomplete = events.iter().filter(|event| !event.missing.is_empty()).count();
        prop_assert_eq!(incomplete as u64, outcome.counts.events_incomplete);
    }

    /// Ended by force at any moment, the accounts of a bad network settle.
    #[test]
    fn a_forced_end_on_a_bad_network_settles(
        seed: u64,
        drop in 0..20_u32,
        duplicate in 0..20_u32,
        reorder in 0..20_u32,
        end_us in 0..30_000_u64,
    ) {
        let mut config = chain(100_000, seed);
        config.faults = on_network(&config, profile([drop, duplicate, 0, reorder], 300));
        config.force_end_at = Some(livetime_wire::RunNs(end_us * 1_000));
        let outcome = tell(&config);
        prop_assert!(!outcome.is_drained);
        stored_events(&config, &outcome);
    }
}

/// Given chances everywhere, when the chain runs, then rings of one machine lose nothing, trigger
/// packets and replies are lost with their triggers, and everything is accounted for.
#[test]
fn chances_everywhere_spare_the_rings_of_one_machine() {
    let mut config = small_chain(menu_one_in(2), 10_000.0, 30);
    config.supervisor.decision_timeout = ms(1);
    config.builder.retry = ms(1);
    config.builder.probe = ms(5);
    config.faults = FaultPlan::by_chance(profile([3, 3, 3, 3], 100));
    let outcome = tell_in_order(&config);
    let lost = outcome.losses.of(LossCause::DecisionTimeout);
    assert!(lost > 0 && lost == outcome.losses.total());
    assert!(outcome.units.supervisor.replies_duplicate > 0);
    let layout = config.layout();
    let rings = |link: LinkId| !layout.is_lossy(link);
    let script = &outcome.fault_log;
    let is_delay = |fault: &livetime_fabric::ScriptedFault| {
        use livetime_fabric::FaultAction::{Delay, Reorder};
        matches!(fault.action, Delay { .. } | Reorder { .. })
    };
    assert!(
        script
            .iter()
            .filter(|fault| rings(fault.link))
            .all(is_delay)
    );
    assert!(script.iter().any(|fault| rings(fault.link)));
    assert!(outcome.faults.dropped > 50 && outcome.faults.duplicated > 50);
    stored_events(&config, &outcome);
}

/// Given a hop on which every message comes twice, when fragments travel over it, then each is
/// placed once and counted as repeated.
#[test]
fn fragments_that_come_twice_are_placed_once() {
    let mut config = chain(200, 3);
    let layout = config.layout();
    let hop = layout.link(UnitId::readout(0), UnitId::builder(0)).unwrap();
    let always = FaultProfile {
        duplicate: Probability::CERTAIN,
        ..profile([0, 0, 0, 0], 10)
    };
    config.faults.links = vec![(hop, always)];
    let outcome = tell_in_order(&config);
    let builder = outcome.units.builders[0];
    let twice = builder.fragments_repeated + builder.fragments_late;
    assert_eq!(twice, outcome.faults.duplicated);
    assert!(twice >= 2 * builder.events_built);
    assert_eq!(outcome.counts.events_built, 200);
    assert_eq!(outcome.losses.total(), 0);
}

/// Given a hop that loses everything for longer than the timeout, when events need it, then they
/// are closed without the fragments of that readout unit, which it counts as late.
#[test]
fn a_dead_hop_for_a_while_makes_events_incomplete_and_no_more() {
    let mut config = small_chain(menu_one_in(1), 2_000.0, 60);
    config.builder.timeout = ms(5);
    config.builder.retry = ms(1);
    config.builder.probe = ms(5);
    let layout = config.layout();
    let from = livetime_fabric::SimPs::from_run_ns(at_ms(20));
    let until = livetime_fabric::SimPs::from_run_ns(at_ms(35));
    let dead = FaultProfile {
        drop: Probability::CERTAIN,
        active: TimeWindow::new(from, until),
        ..FaultProfile::HEALTHY
    };
    let hop = layout.link(UnitId::readout(1), UnitId::builder(0)).unwrap();
    config.faults.links = vec![(hop, dead)];
    let outcome = tell_in_order(&config);

    assert!(outcome.counts.events_incomplete > 0);
    let late = outcome.losses.of(LossCause::FragmentLate);
    assert_eq!(
        late,
        2 * outcome.counts.events_incomplete,
        "two links end at ru1"
    );
    assert_eq!(outcome.losses.total(), late);
    let of_ru1 = &config.source.data_links[2..];
    for event in stored_events(&config, &outcome) {
        assert!(
            event.missing.is_empty() || event.missing == of_ru1,
            "{event:?}"
        );
    }
}
