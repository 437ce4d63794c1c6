//! A whole builder, where the input chooses every step: no event is built twice, pages are freed
//! once, credits are conserved, and everything is accounted for, whatever is lost or comes twice.

#![no_main]
#![expect(dead_code, reason = "the network serves the crate's own tests, too")]

#[path = "../../crates/livetime-builder/tests/network/mod.rs"]
mod network;

use libfuzzer_sys::fuzz_target;
use livetime_builder::BuilderConfig;
use livetime_fuzz::Choices;
use livetime_wire::{DurationNs, SourceId};
use network::{Faults, Network};

const TRIGGERS: u64 = 12;

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices::new(data);
    let config = config(&mut choices);
    let faults = Faults {
        lost: choices.below(25) as u32,
        duplicated: choices.below(25) as u32,
        link_lost: choices.below(6) as u32,
        link_duplicated: choices.below(6) as u32,
        hasty: choices.below(2) == 1,
    };
    // One in four ends by force, at any moment.
    let steps = (choices.below(4) == 0).then(|| choices.below(2500) as u64);
    let mut network = Network::with_choices(config, TRIGGERS, choices.rest(), faults);
    match steps {
        Some(steps) => {
            network.run_steps(steps);
            network.abort();
        }
        None => network.run(),
    }
});

/// Small builders of all shapes.
fn config(choices: &mut Choices<'_>) -> BuilderConfig {
    let mut next = 0;
    let units = 1 + choices.below(3);
    let readout_units = (0..units).map(|_| {
        let count = 1 + choices.below(3) as u32;
        next += count;
        (next - count..next).map(SourceId).collect()
    });
    BuilderConfig {
        readout_units: readout_units.collect(),
        builder_units: 1 + choices.below(3) as u16,
        filter_units: 1 + choices.below(2) as u16,
        credits: 1 + choices.below(6) as u32,
        requests_per_message: 1 + choices.below(8) as u32,
        filter_in_flight: 1 + choices.below(3) as u32,
        evm_queue: 1 + choices.below(8) as u32,
        timeout: DurationNs(20 * DurationNs::MILLISECOND.0),
        retry: DurationNs(10 * DurationNs::MILLISECOND.0),
        probe: DurationNs(50 * DurationNs::MILLISECOND.0),
        history: 1024,
        trigger_window: 128,
        ..BuilderConfig::default()
    }
}
