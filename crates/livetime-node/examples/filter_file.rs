//! A filter of one's own, tried on the events of a run file.
//!
//! The same filter works in a filter unit: its answer depends on the event alone. It sees the
//! fragments as they came from the links; here it takes the full-precision objects from them.
//! `docs/integrator.md` says where a filter is put into the program. Run it with
//! `cargo run --release --package livetime-node --example filter_file -- runs/000001/events.mcap`.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;

use livetime_store::RunReader;
use livetime_trigger::{EventFilter, FilterCounts, FilterOutput, dimuon_mass};
use livetime_wire::event::EventAccess;

/// Keeps the pairs around the Z, in a stream of their own, and events that cannot be judged.
struct NearZ {
    half_width_gev: f64,
}

/// Mass of the Z in GeV.
const Z_MASS: f64 = 91.19;
const REASONS: [&str; 4] = ["near_z", "elsewhere", "no_pair", "incomplete"];

impl EventFilter for NearZ {
    fn filter(&mut self, event: &dyn EventAccess) -> FilterOutput {
        let (accept, reason) = match dimuon_mass(event) {
            Some(mass) if (mass - Z_MASS).abs() < self.half_width_gev => (true, 0),
            // A missing fragment may hold the muon that makes a pair of another mass.
            _ if event.is_incomplete() => (true, 3),
            Some(_) => (false, 1),
            None => (false, 2),
        };
        let streams = u16::from(reason == 0);
        FilterOutput {
            accept,
            reason,
            streams,
        }
    }

    fn reasons(&self) -> &[&str] {
        &REASONS
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("name a run file")?;
    let mut reader = RunReader::open(BufReader::new(File::open(path)?))?;
    let mut filter = NearZ {
        half_width_gev: 5.0,
    };
    let mut counts = FilterCounts::new(&filter);
    while let Some(event) = reader.next_event()? {
        counts.add(&filter.filter(&event));
    }
    println!("{} accepted, {} rejected", counts.accepted, counts.rejected);
    for (reason, name) in (0..).zip(filter.reasons()) {
        let (accepted, rejected) = counts.of(reason);
        println!("  {name:<12}{accepted:>8} accepted{rejected:>8} rejected");
    }
    for damage in reader.damage().entries() {
        println!("  passed over: {damage:?}");
    }
    Ok(())
}
