//! The builder as a whole, under random interleavings, loss and duplication.

mod network;

use livetime_builder::{BuildMode, BuilderConfig};
use livetime_wire::{DurationNs, SourceId};
use network::{Faults, Network};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// Failing inputs are kept here and tried first.
const SEEDS: &str = "tests/seeds/builder_network.txt";

/// 256 cases of each, or as `PROPTEST_CASES` says.
fn persistent() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(SEEDS))),
        ..ProptestConfig::default()
    }
}

prop_compose! {
    /// Small builders of all shapes, with timeouts far above retries: these come 160 ms apart in the
    /// end, so that some 60 are lost together before an event is incomplete that need not be.
    fn builder()(
        sources in prop::collection::vec(1..4u32, 1..4),
        builder_units in 1..4u16,
        filter_units in 1..3u16,
        subfarms in 1..3u16,
        credits in 1..7u32,
        requests_per_message in 1..9u32,
        filter_in_flight in 1..4u32,
        evm_queue in 1..9u32,
        mode in prop::sample::select(vec![BuildMode::Pull, BuildMode::Push]),
        events_by_bytes in 0..4u64,
    ) -> BuilderConfig {
        let mut next = 0;
        let all = u64::from(sources.iter().sum::<u32>());
        let readout_units = sources
            .into_iter()
            .map(|count| {
                next += count;
                // Not in order, so that sorting shows.
                (next - count..next).rev().map(|n| SourceId((n % 3) * 100 + n)).collect()
            })
            .collect();
        BuilderConfig {
            readout_units,
            builder_units,
            filter_units,
            subfarms: subfarms.min(builder_units).min(filter_units),
            credits,
            requests_per_message,
            filter_in_flight,
            evm_queue,
            timeout: DurationNs(10 * DurationNs::SECOND.0),
            retry: DurationNs(10 * DurationNs::MILLISECOND.0),
            probe: DurationNs(50 * DurationNs::MILLISECOND.0),
            history: 1024,
            trigger_window: 128,
            mode,
            // The network's fragments have up to 25 words; 0 is no bound in bytes.
            credit_bytes: events_by_bytes * all * 100,
            event_bytes: all * 100,
            ..BuilderConfig::default()
        }
    }
}

proptest! {
    #![proptest_config(persistent())]

    /// Without faults every event is complete, whatever the order of steps, and nothing is ever
    /// repeated or late.
    #[test]
    fn any_interleaving_builds_every_event(config in builder(), seed: u64) {
        let mut network = Network::new(config, 100, seed, Faults::default());
        network.run();
        prop_assert_eq!(network.counts.events_built, network.counts.l2_accepted);
        prop_assert_eq!(network.counts.events_incomplete, 0);
        for builder in &network.builders {
            let counts = builder.counts();
            prop_assert_eq!(counts.fragments_repeated + counts.fragments_late, 0);
            prop_assert_eq!(counts.messages.missing + counts.messages.repeated, 0);
        }
    }

    /// Links lose and duplicate fragments, the network does not: events are incomplete by exactly
    /// the fragments that were lost.
    #[test]
    fn incomplete_events_name_exactly_the_missing_sources(config in builder(), seed: u64) {
        let faults = Faults { link_lost: 5, link_duplicated: 5, ..Faults::default() };
        let mut network = Network::new(config, 60, seed, faults);
        network.run();
        check_missing(&network)?;
    }

    /// The network loses and duplicates messages: repetition brings every fragment home, so that
    /// events are incomplete by exactly the fragments that their links lost.
    #[test]
    fn lost_and_duplicated_messages_lose_no_event(
        config in builder(),
        seed: u64,
        lost in 1..25u32,
        duplicated in 0..25u32,
    ) {
        let faults = Faults { lost, duplicated, link_lost: 2, link_duplicated: 2, hasty: false };
        let mut network = Network::new(config, 60, seed, faults);
        network.run();
        check_missing(&network)?;
    }

    /// Timeouts strike while fragments are on their way: events may miss fragments that came, but
    /// each is built once and every fragment and credit is accounted for.
    #[test]
    fn untimely_timeouts_leave_everything_accounted_for(
        config in builder(),
        seed: u64,
        lost in 0..25u32,
        duplicated in 0..25u32,
    ) {
        let faults = Faults { lost, duplicated, link_lost: 5, link_duplicated: 5, hasty: true };
        let config = BuilderConfig {
            timeout: DurationNs(20 * DurationNs::MILLISECOND.0),
            ..config
        };
        let mut network = Network::new(config, 60, seed, faults);
        network.run();
        prop_assert_eq!(network.events.len() as u64, network.counts.l2_accepted);
    }

    /// Steps chosen byte by byte, as the fuzz target `builder_network` chooses them.
    #[test]
    fn any_choice_of_steps_is_accounted_for(
        config in builder(),
        choices in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let faults = Faults { lost: 10, duplicated: 10, link_lost: 2, link_duplicated: 2, hasty: true };
        let mut network = Network::with_choices(config, 12, &choices, faults);
        network.run();
        prop_assert_eq!(network.events.len() as u64, network.counts.l2_accepted);
    }

    /// A run ended by force at any moment accounts for everything, too.
    #[test]
    fn an_aborted_run_is_accounted_for(
        config in builder(),
        seed: u64,
        steps in 0..2500u64,
        lost in 0..15u32,
        duplicated in 0..15u32,
    ) {
        let faults = Faults { lost, duplicated, link_lost: 2, link_duplicated: 2, hasty: false };
        let mut network = Network::new(config, 100, seed, faults);
        network.run_steps(steps);
        network.abort();
    }
}

/// Every accepted trigger became an event that misses what its links lost, and nothing else.
fn check_missing(network: &Network) -> Result<(), TestCaseError> {
    prop_assert_eq!(network.events.len() as u64, network.counts.l2_accepted);
    for (trigger, missing) in &network.events {
        let withheld: Vec<SourceId> = network
            .withheld
            .iter()
            .filter(|(lost, _)| lost == trigger)
            .map(|(_, source)| *source)
            .collect();
        prop_assert_eq!(missing, &withheld, "trigger {}", trigger);
    }
    Ok(())
}
