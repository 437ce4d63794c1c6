//! Rows of the link papers, from event-driven runs of the card models.
//!
//! Tolerances are those of the list of numbers: bandwidths 2 %, latencies 5 %, 450, 360 and 1100
//! MB/s 5 %, the gain of the DMA firmware 5 points. Which figures are fitted and which predicted is
//! in `BusParameters::SOURCES`.

use livetime_fabric::DurationPs;
use livetime_fabric::host_bus::{
    BlockTiming, BusParameters, Origin, ReceiverHostConfig, Throughput, block_time, line_fit,
    receiver_throughput, transmitter_throughput,
};
use livetime_readout::card::ReceiverKind;

fn throughput(kind: ReceiverKind, cards: u32, channels: u32, fragment_bytes: u64) -> Throughput {
    let config = ReceiverHostConfig {
        parameters: BusParameters::FILAR,
        cards,
        kind,
        channels,
        fragment_bytes,
    };
    receiver_throughput(config, 3000)
}

fn assert_near(value: f64, expected: f64, percent: f64) {
    let off = (value / expected - 1.0) * 100.0;
    assert!(
        off.abs() <= percent,
        "{value:.1} for {expected}, {off:.1} %"
    );
}

#[test]
fn one_block_gives_both_lines_of_the_pulsar_note() {
    let small: Vec<_> = (2..120)
        .map(|words| point(&BusParameters::PULSAR, words))
        .collect();
    let large: Vec<_> = (0..128)
        .map(|n| point(&BusParameters::PULSAR, 200 + n * 126))
        .collect();
    let (small, large) = (line_fit(&small), line_fit(&large));
    println!("small blocks {small:?}, large blocks {large:?}");
    assert_near(small.megabytes_per_s, 122.8, 2.0);
    assert_near(small.latency_us, 3.6, 5.0);
    assert_near(large.megabytes_per_s, 158.0, 2.0);
    assert_near(large.latency_us, 4.5, 5.0);
    // What a throttle sets comes back.
    let throttled = BusParameters {
        link_word: DurationPs(25_000),
        ..BusParameters::PULSAR
    };
    let times: Vec<_> = (0..100).map(|n| point(&throttled, 200 + n * 126)).collect();
    assert_near(line_fit(&times).megabytes_per_s, 160.0, 2.0);
}

/// Bytes and mean time in microseconds of a block, over hosts that look at different phases.
fn point(parameters: &BusParameters, words: u64) -> (f64, f64) {
    const PHASES: u64 = 8;
    let times = (0..PHASES).map(|phase| {
        let timing = BlockTiming {
            first_look: DurationPs(phase * 90_000),
            ..BlockTiming::default()
        };
        block_time(parameters, &timing, words).0 as f64 / 1e6
    });
    (words as f64 * 4.0, times.sum::<f64>() / PHASES as f64)
}

#[test]
fn one_channel_is_limited_by_its_link_and_three_by_the_bus() {
    use ReceiverKind::{FilarDma, FilarSingleCycle};
    for kind in [FilarSingleCycle, FilarDma] {
        let one = throughput(kind, 1, 1, 16 << 10);
        let two = throughput(kind, 1, 2, 16 << 10);
        let three = throughput(kind, 1, 3, 16 << 10);
        println!("{kind:?}: {one:?}\n{two:?}\n{three:?}");
        assert_near(one.megabytes_per_s, 158.0, 2.0);
        assert_near(two.megabytes_per_s, 2.0 * 158.0, 2.0);
        assert_near(three.megabytes_per_s, 450.0, 5.0);
        assert!(three.bus_use > 0.98);
    }
    // A fourth channel adds nothing.
    let four = throughput(FilarSingleCycle, 1, 4, 16 << 10);
    assert_near(four.megabytes_per_s, 450.0, 5.0);
}

#[test]
fn dma_protocol_gains_a_quarter_at_one_kilobyte_and_nothing_for_long_fragments() {
    let gain = |bytes: u64| {
        let single = throughput(ReceiverKind::FilarSingleCycle, 1, 3, bytes);
        let dma = throughput(ReceiverKind::FilarDma, 1, 3, bytes);
        println!("{bytes} B: {single:?}\n{dma:?}");
        assert!(dma.cpu_use < single.cpu_use || dma.rate_hz > single.rate_hz);
        (dma.megabytes_per_s / single.megabytes_per_s - 1.0) * 100.0
    };
    let gain_at_1k = gain(1024);
    assert!((20.0..=30.0).contains(&gain_at_1k), "{gain_at_1k:.1} %");
    let gain_of_long = gain(32 << 10);
    assert!(gain_of_long.abs() < 3.0, "{gain_of_long:.1} %");
    assert!(gain(256) > gain_at_1k);
}

#[test]
fn throughput_has_saw_teeth_of_the_burst_length() {
    let at = |bytes: u64| throughput(ReceiverKind::FilarDma, 1, 3, bytes).megabytes_per_s;
    let mut drops = Vec::new();
    let mut before = at(1024 - 128);
    for bytes in (1024..=6144).step_by(128) {
        let now = at(bytes);
        // Behind each tooth a burst of a few bytes costs a whole overhead.
        if now < before * 0.985 {
            drops.push(bytes);
        }
        before = now;
    }
    println!("drops at {drops:?}");
    assert_eq!(drops.len(), 5, "{drops:?}");
    assert!(drops.windows(2).all(|pair| pair[1] - pair[0] == 1024));
    assert!(drops.iter().all(|bytes| bytes % 1024 == 128));
}

#[test]
fn three_cards_reach_the_memory_and_keep_a_hundred_kilohertz() {
    let cards = |cards: u32, bytes: u64| throughput(ReceiverKind::FilarDma, cards, 3, bytes);
    let long = cards(3, 16 << 10);
    println!("3 cards, 16 KiB: {long:?}");
    assert_near(long.megabytes_per_s, 1100.0, 5.0);
    for bytes in [256, 512, 768, 1000] {
        let short = cards(3, bytes);
        println!("3 cards, {bytes} B: {short:?}");
        assert!(short.rate_hz >= 100e3, "{bytes} B: {} Hz", short.rate_hz);
    }
    // Below 500 B the processor sets the rate: twice the length is nearly twice the throughput.
    let (half, whole) = (cards(3, 250 / 4 * 4), cards(3, 500));
    let ratio = whole.megabytes_per_s / half.megabytes_per_s;
    assert!(ratio > 1.7, "{ratio}");
    // From 2 kB on, cards add up until the memory is reached.
    let (one, two) = (cards(1, 2048), cards(2, 2048));
    assert_near(two.megabytes_per_s, 2.0 * one.megabytes_per_s, 5.0);
}

#[test]
fn two_transmitter_channels_saturate_the_bus() {
    let of =
        |channels: u32| transmitter_throughput(&BusParameters::TRANSMITTER, channels, 16 << 10, 20);
    let (one, two, three) = (of(1), of(2), of(3));
    println!("{one:.1}, {two:.1}, {three:.1} MB/s");
    assert_near(one, 200.0, 2.0);
    assert_near(two, 360.0, 5.0);
    assert_near(three, two, 2.0);
}

#[test]
fn every_figure_has_a_source_and_fewer_are_fitted_than_rows_come_out() {
    let fitted = BusParameters::SOURCES
        .iter()
        .filter(|source| matches!(source.origin, Origin::Fitted | Origin::FittedOnSeveral));
    // Rows: 158, 4.5, 122.8, 3.6, 160 per channel, 450, +25 %, tooth, 100 kHz, 1100, 360.
    assert!(fitted.count() + 1 < 11);
    assert!(
        BusParameters::SOURCES
            .iter()
            .all(|source| source.text.len() > 10)
    );
}
