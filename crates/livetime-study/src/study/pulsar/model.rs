//! What the timed model of card, bus and link says to the note's figures.
//!
//! Lines through the event-driven times of one block, and round trips with and without interrupts,
//! from `livetime_fabric::host_bus`. The block's figures are fitted there, round trips are predicted,
//! but for the one with algorithms: the note does not print their time, which is fitted on it.

use livetime_fabric::DurationPs;
use livetime_fabric::host_bus::{
    BlockTiming, BusParameters, FarEnd, Interrupts, LineFit, RoundTripConfig, block_time, line_fit,
    round_trips,
};

use super::{ANSWER_WORDS, PACKET_WORDS, SMALL_BELOW};
use crate::study::row::{Row, within};

/// Round trips simulated; the tail is then known to some percent.
const TRIPS: usize = 200_000;
/// Seed of their phases and interrupts.
const SEED: u64 = 1;
/// Words of a mean event of the note, and of its answer.
const EVENT_WORDS: u64 = 34;
const MASK_WORDS: u64 = 4;
/// Time of the algorithms on the note's computer. Fitted on its 11 us with algorithms, the only row
/// that tells of them: with it that row is met, and the rows without algorithms stay predictions.
const ALGORITHMS: DurationPs = DurationPs(6_240_000);

/// The model's values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    small: LineFit,
    large: LineFit,
    quiet: Trips,
    interrupted: Trips,
    event_us: f64,
    packet_126_us: f64,
    with_algorithms_us: f64,
    computers_us: f64,
    computers_with_algorithms_us: f64,
}

/// A distribution of round trips.
#[derive(Debug, Clone, Copy)]
struct Trips {
    mean_us: f64,
    longest_us: f64,
    beyond_20_us_ppm: f64,
}

impl Model {
    /// Simulates.
    pub(super) fn simulate() -> Self {
        let small: Vec<_> = (2..u64::from(SMALL_BELOW)).map(block).collect();
        let large: Vec<_> = (0..128).map(|n| block(200 + n * 126)).collect();
        let (packet, answer) = (PACKET_WORDS as u64, ANSWER_WORDS as u64);
        let io = RoundTripConfig {
            parameters: BusParameters::PULSAR,
            packet_words: packet,
            answer_words: answer,
            far_end: FarEnd::Board,
            algorithm: DurationPs(0),
            interrupts: None,
        };
        let event = RoundTripConfig {
            packet_words: EVENT_WORDS,
            answer_words: MASK_WORDS,
            ..io
        };
        let board = RoundTripConfig {
            answer_words: MASK_WORDS,
            ..io
        };
        let computers = RoundTripConfig {
            far_end: FarEnd::Computer,
            ..board
        };
        let with_algorithms = |config: RoundTripConfig| RoundTripConfig {
            algorithm: ALGORITHMS,
            ..config
        };
        Self {
            small: line_fit(&small),
            large: line_fit(&large),
            quiet: trips(&io),
            interrupted: trips(&RoundTripConfig {
                interrupts: Some(Interrupts::default()),
                ..io
            }),
            event_us: trips(&event).mean_us,
            packet_126_us: trips(&board).mean_us,
            with_algorithms_us: trips(&with_algorithms(event)).mean_us,
            computers_us: trips(&computers).mean_us,
            computers_with_algorithms_us: trips(&with_algorithms(computers)).mean_us,
        }
    }

    /// Puts the model's values and their ranges into the rows.
    pub(super) fn fill(&self, rows: &mut [Row]) {
        for row in rows {
            let (model, allowed) = match row.id {
                "large_bandwidth" => (self.large.megabytes_per_s, within(158.0, 2.0)),
                "large_latency" => (self.large.latency_us, within(4.5, 5.0)),
                "small_bandwidth" => (self.small.megabytes_per_s, within(122.8, 2.0)),
                "small_latency" => (self.small.latency_us, within(3.6, 5.0)),
                "packet_126" => (self.packet_126_us, None),
                "io_mean" => (self.quiet.mean_us, within(10.0, 5.0)),
                "io_longest" => (self.quiet.longest_us, Some((0.0, 12.0))),
                "io_tail" => (self.quiet.beyond_20_us_ppm, Some((0.0, 0.0))),
                // By sign only: the note shows that there is a tail.
                "noise_tail" => (
                    self.interrupted.beyond_20_us_ppm,
                    Some((f64::MIN_POSITIVE, f64::INFINITY)),
                ),
                "without_algorithms" => (self.event_us, None),
                "with_algorithms" => (self.with_algorithms_us, within(11.0, 10.0)),
                // By sign: the note has plots of two computers and no figures, and says that they are
                // slower than board and computer with the same packets.
                "computers" => (self.computers_us, Some((self.packet_126_us, f64::INFINITY))),
                "computers_with_algorithms" => (
                    self.computers_with_algorithms_us,
                    Some((self.with_algorithms_us, f64::INFINITY)),
                ),
                _ => continue,
            };
            (row.model, row.allowed) = (Some(model), allowed);
        }
    }
}

/// Bytes and mean time in microseconds of a block, over hosts that look at different phases.
fn block(words: u64) -> (f64, f64) {
    const PHASES: u64 = 8;
    let times = (0..PHASES).map(|phase| {
        let timing = BlockTiming {
            first_look: DurationPs(phase * 90_000),
            ..BlockTiming::default()
        };
        block_time(&BusParameters::PULSAR, &timing, words).0 as f64 / 1e6
    });
    (words as f64 * 4.0, times.sum::<f64>() / PHASES as f64)
}

fn trips(config: &RoundTripConfig) -> Trips {
    let us: Vec<f64> = round_trips(config, TRIPS, SEED)
        .into_iter()
        .map(|trip| trip.0 as f64 / 1e6)
        .collect();
    let beyond = us.iter().filter(|us| **us > 20.0).count();
    Trips {
        mean_us: us.iter().sum::<f64>() / TRIPS as f64,
        longest_us: us.iter().copied().fold(0.0, f64::max),
        beyond_20_us_ppm: beyond as f64 / TRIPS as f64 * 1e6,
    }
}
