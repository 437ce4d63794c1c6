//! How fast the chain is simulated: 50 000 triggers, 8 links, 2 KiB fragments, lossless.
//!
//! `cargo run --release -p livetime-fabric --example chain_speed [TRIGGERS [all]]`; with `all`,
//! every trigger is accepted and stored. Prints wall time next to virtual time, events of the kernel
//! and payload; the floor of a kernel event is in `event_rate.rs`.

use std::time::Instant;

use livetime_fabric::{SimulatedChain, SimulatedChainConfig};
use livetime_source::{ArrivalKind, OfferMode};
use livetime_trigger::{Menu, MenuConfig};
use livetime_wire::RunNumber;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let triggers = std::env::args()
        .nth(1)
        .map_or(Ok(50_000), |text| text.parse())?;
    let mut menu = MenuConfig::default();
    if std::env::args().nth(2).as_deref() == Some("all") {
        menu.paths.truncate(1);
        // The source sets Level-1 bit 0 in every packet.
        menu.paths[0].l1_mask = 1;
    }
    let menu = Menu::new_checked(menu, "trigger").expect("the menu is good");
    let mut config = SimulatedChainConfig::new(RunNumber(1), 8, 2, menu);
    config.source.triggers.mode = OfferMode::Lossless;
    config.source.triggers.arrival.kind = ArrivalKind::Unpaced;
    config.source.triggers.triggers_max = Some(triggers);
    config.source.triggers.duration = None;
    let start = Instant::now();
    let outcome = SimulatedChain::new_checked(&config)?.run();
    let seconds = start.elapsed().as_secs_f64();
    assert!(outcome.conservation_problems().is_empty() && outcome.is_drained);
    println!("digest {}, trace {}", outcome.digest, outcome.trace_hash);
    println!(
        "{} triggers, {} stored",
        outcome.counts.triggers, outcome.counts.events_stored
    );
    let events = outcome.events_simulated as f64;
    println!(
        "{seconds:.2} s for {:.3} s of virtual time: {:.1} million events, {:.0} ns each, {:.0} MB/s",
        outcome.ended_at.0 as f64 * 1e-9,
        events * 1e-6,
        seconds / events * 1e9,
        outcome.bytes_sent as f64 / seconds * 1e-6,
    );
    Ok(())
}
