//! Farms of the Level-3 note in simulated time: subfarms, sleeps, sockets, memory.
//!
//! The protocol code with a converter that hands over what its port brings, and processors that take
//! as long for an event as four hand-overs unless said otherwise. Fragments travel shortened: what an
//! event of 150 kB costs is the time of the converter, and of the stream where there is one.

use livetime_fabric::chain::{EventStream, SimulatedChain, SimulatedChainConfig};
use livetime_fabric::time::DurationPs;
use livetime_source::{ArrivalKind, OfferMode};
use livetime_trigger::{Cut, Menu, MenuConfig, PathConfig};
use livetime_wire::{ByteSize, RunNumber};

use super::{EVENT_BYTES, LINKS, PORT_MB_PER_S};
use crate::bench::BenchError;

/// Hand-overs that a processor's time for an event is as long as: so many fill a converter.
pub(super) const PROCESSORS_PER_CONVERTER: f64 = 4.0;
/// Pages of a link: those of all events that all subfarms hold.
const PAGES: u32 = 16 * 1024;

/// A farm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Farm {
    /// Converters.
    pub(super) subfarms: u16,
    /// Processors of all subfarms.
    pub(super) processors: u16,
    /// Time of a processor for an event \[s\].
    pub(super) filter_s: f64,
    /// Time slice of a kernel in which a processor sleeps between two looks \[ms\].
    pub(super) slice_ms: f64,
    /// How much slower than its port a converter is.
    pub(super) slowdown: f64,
    /// What is between converter and processor, and events that are on their way to a processor.
    pub(super) stream: Option<(EventStream, u32)>,
}

/// Time in which a port brings an event \[s\].
pub(super) fn hand_over_s() -> f64 {
    EVENT_BYTES / (PORT_MB_PER_S * 1e6)
}

impl Farm {
    /// So many subfarms of so many processors each.
    pub(super) fn new(subfarms: u16, processors: u16) -> Self {
        Self {
            subfarms,
            processors: subfarms * processors,
            filter_s: PROCESSORS_PER_CONVERTER * hand_over_s(),
            slice_ms: 0.0,
            slowdown: 1.0,
            stream: None,
        }
    }

    /// Throughput of all subfarms \[MB/s\], with `message` as the time of a converter for a message;
    /// over about `events` events of each subfarm.
    pub(super) fn mb_per_s(self, message: DurationPs, events: u64) -> Result<f64, BenchError> {
        Ok(self.events_per_s(message, events * u64::from(self.subfarms))? * EVENT_BYTES / 1e6)
    }

    /// The same in events per second, over so many of the whole farm.
    pub(super) fn events_per_s(self, message: DurationPs, events: u64) -> Result<f64, BenchError> {
        let mut config = self.config(message);
        // Twice, with other numbers of events: start and end of a run fall out of the difference.
        let mut seconds = |triggers: u64| {
            config.source.triggers.triggers_max = Some(triggers);
            taken(&config)
        };
        let between = seconds(2 * events)? - seconds(events)?;
        Ok(events as f64 / between.max(1e-9))
    }

    fn config(&self, message: DurationPs) -> SimulatedChainConfig {
        let mut config = SimulatedChainConfig::new(RunNumber(1), LINKS, 1, everything());
        config.source.triggers.mode = OfferMode::Lossless;
        config.source.triggers.arrival.kind = ArrivalKind::Unpaced;
        config.source.triggers.duration = None;
        config.source.fragment.bytes_mean = ByteSize(1024);
        config.source.fragment.log_sigma = 0.0;
        for link in &mut config.data_links {
            link.link.pages = PAGES;
        }
        config.builder.builder_units = self.subfarms;
        config.builder.subfarms = self.subfarms;
        config.builder.filter_units = self.processors;
        // A processor asks for its next event when it is through with the one before, or sooner.
        config.builder.filter_in_flight = self.stream.map_or(1, |(_, in_flight)| in_flight);
        config.store.events_indexed_max = 100_000;
        config.store.chunks_indexed_max = 100_000;
        config.timing.event_stream = self.stream.map(|(stream, _)| stream);
        let filter_s = self.filter_s + 1.5e-3 * self.slice_ms;
        let service = &mut config.timing.service;
        service.builder_message = DurationPs((message.0 as f64 * self.slowdown) as u64);
        service.filter = DurationPs::from_us((filter_s * 1e6) as u64);
        config
    }
}

/// Opens a path for every trigger.
fn everything() -> Menu {
    let mut menu = MenuConfig::default();
    menu.paths.push(PathConfig {
        name: "EVERYTHING".to_owned(),
        bit: 127,
        l1_mask: u64::MAX,
        cut: Cut::Auto,
        prescale: 1.into(),
    });
    Menu::new_checked(menu, "trigger").expect("the path has a bit of its own")
}

/// Simulated seconds until the farm was through with everything.
fn taken(config: &SimulatedChainConfig) -> Result<f64, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::Simulation(error.to_string());
    let chain = SimulatedChain::new_checked(config).map_err(|error| failed(&error))?;
    let outcome = chain.run();
    let is_whole = outcome.is_drained && outcome.conservation_problems().is_empty();
    if !is_whole || Some(outcome.counts.events_built) != config.source.triggers.triggers_max {
        return Err(failed(&"the simulated farm did not conserve its events"));
    }
    Ok(outcome.ended_at.0 as f64 * 1e-9)
}

/// The time of a converter for a message with which it hands over what its port brings: found by
/// simulation, since how many messages an event takes is the protocol's business. Farms whose events
/// share more of them than those of this one come out above the port by as much.
pub(super) fn calibrated_message(events: u64) -> Result<DurationPs, BenchError> {
    let trial = DurationPs::from_us(1_000);
    let rate = Farm::new(1, 64).mb_per_s(trial, events)?;
    let scaled = trial.0 as f64 * rate / PORT_MB_PER_S;
    Ok(DurationPs(scaled as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_converter_is_filled_by_its_processors_and_no_further() {
        let message = calibrated_message(40).unwrap();
        let [one, two, many] =
            [1, 2, 12].map(|processors| Farm::new(1, processors).mb_per_s(message, 40).unwrap());
        assert!((1.7..2.3).contains(&(two / one)), "{one} {two}");
        assert!((many / PORT_MB_PER_S - 1.0).abs() < 0.1, "{many}");
        let sleeping = Farm {
            slice_ms: 10.0,
            ..Farm::new(1, 1)
        };
        let slow = sleeping.mb_per_s(message, 40).unwrap();
        assert!(slow < 0.85 * one, "sleeps of 10 ms cost: {slow} of {one}");
    }

    #[test]
    fn subfarms_add_up() {
        let message = calibrated_message(40).unwrap();
        let [one, four] =
            [1, 4].map(|subfarms| Farm::new(subfarms, 6).mb_per_s(message, 40).unwrap());
        assert!((3.7..4.2).contains(&(four / one)), "{one} {four}");
    }

    #[test]
    fn a_small_buffer_makes_a_processor_wait_for_the_line() {
        let message = calibrated_message(40).unwrap();
        let rate = |buffer_bytes| {
            let stream = EventStream {
                bytes_per_s: 12_500_000,
                event_bytes: EVENT_BYTES as u64,
                buffer_bytes,
                round_trip: DurationPs::from_us(200),
            };
            let farm = Farm {
                stream: Some((stream, 2)),
                ..Farm::new(1, 1)
            };
            farm.mb_per_s(message, 40).unwrap()
        };
        let (small, large) = (rate(30_000), rate(200_000));
        let filter = Farm::new(1, 1).filter_s;
        // As much where the next event is on its way from the start of the one before.
        let least = filter / (filter + 120e3 / 12.5e6);
        let share = small / large;
        assert!((0.98 * least..0.97).contains(&share), "{small} of {large}");
    }
}
