//! A packet into a host and its answer out again: the round trip of the PULSAR note.
//!
//! The way in is the event-driven run of [`block_time()`] from the source's first word; the way out is
//! that of one packet through an idle transmitter, whose link sends while its card still reads:
//! register writes, the start of a burst out of memory, the link. Between them the host works. An
//! interrupt takes the processor: one that ends after the packet could have been seen, or comes while
//! the host works, delays the answer. A second computer at the far end instead of a board adds its
//! own way out before the link and its own way in after it. Nothing here is fitted on a round trip.

use super::block_time::{BlockTiming, block_time};
use super::bus_parameters::BusParameters;
use crate::address::NodeId;
use crate::random::{Purpose, RandomStream, RandomStreams};
use crate::time::DurationPs;

/// Register writes that make a request of a transmitter: address and length.
const REQUEST_WRITES: u64 = 2;
/// Looks at the acknowledge register start at one of so many phases.
const PHASES: u64 = 64;

/// Interrupts of a processor, as far as they matter here: assumed figures of a machine of its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interrupts {
    /// How many there are in a second: a timer of 1 kHz, and a disk and a network now and then.
    pub per_second: f64,
    /// Mean of their exponential length.
    pub mean: DurationPs,
}

impl Default for Interrupts {
    fn default() -> Self {
        Self {
            per_second: 1100.0,
            mean: DurationPs(10_000_000),
        }
    }
}

/// Who sends the packet and takes the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarEnd {
    /// A board: words go out at once, and the answer is there with its last word.
    Board,
    /// A computer with a transmitter and a receiver card, whose bus takes part both ways: the packet
    /// is requested and fetched out of memory, the answer is stored there and seen by a look at a
    /// register. Its time runs from the request to that look.
    Computer,
}

/// What goes there and back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTripConfig {
    /// The times of host and links.
    pub parameters: BusParameters,
    /// Words of the packet, 1 to 16 384.
    pub packet_words: u64,
    /// Words of the answer, 1 to 16 384.
    pub answer_words: u64,
    /// Who sends the one and takes the other.
    pub far_end: FarEnd,
    /// What the host computes in between.
    pub algorithm: DurationPs,
    /// What interrupts it, if anything does.
    pub interrupts: Option<Interrupts>,
}

/// The times of `trips` round trips, from the source's first word to the last word of the answer at
/// the far end; the same for the same seed.
///
/// # Panics
/// If the words are out of range.
pub fn round_trips(config: &RoundTripConfig, trips: usize, seed: u64) -> Vec<DurationPs> {
    let parameters = &config.parameters;
    let there = ways_in(parameters, config.packet_words);
    let (before, back) = match config.far_end {
        FarEnd::Board => (0, vec![on_link(parameters, config.answer_words).0]),
        FarEnd::Computer => (
            request(parameters).0,
            ways_in(parameters, config.answer_words),
        ),
    };
    let work = parameters.cpu_single_cycle.0 + config.algorithm.0;
    let answer = request(parameters).0;
    let streams = RandomStreams::new(seed);
    let mut random = streams.stream(NodeId(0), Purpose(0x5254));
    let trip = |_| {
        let seen = before + there[random.below(there.len() as u64) as usize];
        let delay = match &config.interrupts {
            None => 0,
            Some(interrupts) => delay(interrupts, seen, work, &mut random),
        };
        let back = match back.as_slice() {
            [always] => *always,
            several => several[random.below(several.len() as u64) as usize],
        };
        DurationPs(seen + delay + work + answer + back)
    };
    (0..trips).map(trip).collect()
}

/// From a source's first word until the host has seen the packet, for looks that begin at each
/// phase of reading and pausing.
fn ways_in(parameters: &BusParameters, words: u64) -> Vec<u64> {
    let pause = BlockTiming::default().poll_pause;
    let period = parameters.clocks(parameters.register_read_clocks).0 + pause.0;
    let way_in = |phase| {
        let timing = BlockTiming {
            trigger: DurationPs(0),
            first_look: DurationPs(period * phase / PHASES),
            ..BlockTiming::default()
        };
        block_time(parameters, &timing, words).0
    };
    (0..PHASES).map(way_in).collect()
}

/// From the first register write of a request to the first word on the transmitter's link.
fn request(parameters: &BusParameters) -> DurationPs {
    let writes = parameters.clocks(REQUEST_WRITES * parameters.register_write_clocks);
    let start = parameters.clocks(parameters.read_burst_overhead_clocks);
    DurationPs(writes.0 + start.0)
}

/// From the first word on a link to the last one at its far end.
fn on_link(parameters: &BusParameters, words: u64) -> DurationPs {
    let line = words * parameters.link_word.0 + 2 * parameters.link_control_word.0;
    DurationPs(parameters.link_latency.0 + line)
}

/// How much later the host is through than without interrupts.
fn delay(interrupts: &Interrupts, seen: u64, work: u64, random: &mut RandomStream) -> u64 {
    // One is never drawn as zero, so that the logarithm is finite.
    let mut exponential = |mean: f64| (-(1.0 - random.unit()).ln() * mean) as u64;
    let gap = 1e12 / interrupts.per_second;
    let mean = interrupts.mean.0 as f64;
    let (mut delay, mut at) = (0, exponential(gap));
    // Before the packet can be seen only what lasts beyond that moment matters.
    while at < seen + delay + work {
        let length = exponential(mean);
        delay += (at + length).saturating_sub(at.max(seen));
        at += length + exponential(gap);
    }
    delay
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: RoundTripConfig = RoundTripConfig {
        parameters: BusParameters::PULSAR,
        packet_words: 126,
        answer_words: 100,
        far_end: FarEnd::Board,
        algorithm: DurationPs(0),
        interrupts: None,
    };

    fn us(trips: &[DurationPs]) -> (f64, f64, usize) {
        let us = |trip: &DurationPs| trip.0 as f64 / 1e6;
        let mean = trips.iter().map(us).sum::<f64>() / trips.len() as f64;
        let longest = trips.iter().map(us).fold(0.0, f64::max);
        let beyond = trips.iter().filter(|trip| us(trip) > 20.0).count();
        (mean, longest, beyond)
    }

    #[test]
    fn without_interrupts_the_notes_mean_and_longest_come_out() {
        let (mean, longest, beyond) = us(&round_trips(&NOTE, 10_000, 1));
        println!("mean {mean:.2} us, longest {longest:.2} us");
        assert!((9.5..=10.5).contains(&mean), "{mean}");
        assert!(longest <= 12.0, "{longest}");
        assert_eq!(beyond, 0);
    }

    #[test]
    fn interrupts_make_a_tail_and_an_algorithm_adds_its_time() {
        let interrupted = RoundTripConfig {
            interrupts: Some(Interrupts::default()),
            ..NOTE
        };
        let (with, _, beyond) = us(&round_trips(&interrupted, 100_000, 1));
        println!("{beyond} of 100 000 beyond 20 us, mean {with:.2} us");
        assert!((10..5000).contains(&beyond), "{beyond}");
        let computing = RoundTripConfig {
            algorithm: DurationPs(5_000_000),
            ..NOTE
        };
        let (plain, ..) = us(&round_trips(&NOTE, 1000, 2));
        let (longer, ..) = us(&round_trips(&computing, 1000, 2));
        assert!((longer - plain - 5.0).abs() < 1e-6, "{plain} {longer}");
        assert_eq!(
            round_trips(&interrupted, 50, 7),
            round_trips(&interrupted, 50, 7)
        );
    }
    #[test]
    fn a_computer_at_the_far_end_adds_the_transfers_of_its_own_bus() {
        let computer = RoundTripConfig {
            far_end: FarEnd::Computer,
            ..NOTE
        };
        let (board, ..) = us(&round_trips(&NOTE, 10_000, 3));
        let (mean, longest, _) = us(&round_trips(&computer, 10_000, 3));
        // Its request, and what lies between the last word of the answer and its sight.
        let parameters = &NOTE.parameters;
        let stored = ways_in(parameters, NOTE.answer_words);
        let stored = stored.iter().sum::<u64>() as f64 / stored.len() as f64;
        let link = on_link(parameters, NOTE.answer_words).0 as f64;
        let expected = (request(parameters).0 as f64 + stored - link) / 1e6;
        println!("board {board:.2} us, computer {mean:.2} us, longest {longest:.2} us");
        assert!(expected > 1.0, "{expected}");
        assert!(
            (mean - board - expected).abs() < 0.05,
            "{mean} {board} {expected}"
        );
        // The algorithms make it longer by their time, and nothing else.
        let computing = RoundTripConfig {
            algorithm: DurationPs(50_000_000),
            ..computer
        };
        let (long, ..) = us(&round_trips(&computing, 10_000, 3));
        assert!((long - mean - 50.0).abs() < 1e-6, "{long} {mean}");
    }
}
