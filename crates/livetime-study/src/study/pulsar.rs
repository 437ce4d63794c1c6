//! `pulsar`: the timing studies of the PULSAR note (paper 000) on this machine.
//!
//! Size of a packet against its time, I/O only with replies of 100 words, without and with other
//! programs on the cores, algorithms without and with their time swept from I/O bound to CPU bound,
//! and 63 000 events repeated in trials: means of the trials, spread of each event, outliers by whose
//! they are. The link is the emulated S-LINK of a run through shared memory, so the card, the bus and
//! the fibre of the note are not measured here: the model column is the timed model of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use livetime_node::role::trigger::TriggerNodeParts;
use livetime_node::run_clock::RunClock;
use livetime_shm::TscClock;
use livetime_shm::floor::{Samples, cache_line_ping_pong};
use livetime_trigger::{
    Algorithm, AlgorithmInput, AlgorithmOptions, AlgorithmRegistry, Cut, LevelTwo, LevelTwoNode,
    Menu,
};
use livetime_wire::L2Mask;
use livetime_wire::RunNs;
use livetime_wire::decision::mix64;
use serde_json::{Value, json};

use super::row::Row;
use crate::bench::BenchError;
use crate::bench::document::{latency, median, rounded};
use crate::bench::full_menu::{RUN, menu_of, menu_of_sixteen, menu_without_cuts, packet, words_of};
use crate::bench::paced_loop::{Outliers, serve};
use crate::bench::pinned_threads::run_pair;
use crate::bench::stall_meter::{
    Gap, OUTLIER_NS, Repeated, StallMeter, of_the_machine, ticks_of, touched,
};
use crate::bench::trigger_loop::{Loop, loop_parts, work_alone};
use crate::report::Report;

mod model;
mod page;
mod rows;

/// Name of the document's format.
pub const SCHEMA: &str = "livetime.study_pulsar/1";
/// Sizes of packets that are sent, in words.
const SIZES: [u32; 13] = [2, 4, 8, 16, 34, 64, 100, 126, 256, 1024, 4096, 8192, 16_384];
/// Sizes below this make the note's fit for small blocks.
const SMALL_BELOW: u32 = 120;
/// Words of a packet and of its answer in the note's test without algorithms.
const PACKET_WORDS: usize = 126;
const ANSWER_WORDS: usize = 100;
/// Events of the note's sample, of which a fifth has no track.
const EVENTS: usize = 63_000;
/// Times of an algorithm that only waits.
const ALGORITHM_US: [u64; 7] = [0, 1, 2, 5, 10, 20, 50];
/// Events in flight in the sweep of algorithm time, as many as Level-2 buffers.
const IN_FLIGHT: usize = 4;

/// The study's results.
#[derive(Debug)]
pub struct PulsarStudy {
    /// The JSON document.
    pub document: Value,
    /// The page.
    pub report: Report,
    /// Whether every decision is right and every row of the model within its tolerance.
    pub passed: bool,
}

/// Sizes of the study.
#[derive(Debug, Clone, Copy)]
struct Effort {
    rounds: usize,
    trials: usize,
    events: usize,
}

/// Measures everything.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when an answer does not come.
pub fn run(quick: bool, command: &str) -> Result<PulsarStudy, BenchError> {
    let effort = if quick {
        Effort {
            rounds: 20_000,
            trials: 10,
            events: EVENTS,
        }
    } else {
        Effort {
            rounds: 200_000,
            trials: 100,
            events: EVENTS,
        }
    };
    make(effort, command)
}

fn make(effort: Effort, command: &str) -> Result<PulsarStudy, BenchError> {
    let clock = TscClock::of_process();
    let floor = cache_line_ping_pong(0, effort.rounds as u32)?.round_trip;
    let sweep = size_sweep(effort.rounds / 10, &clock)?;
    let quiet = echo(PACKET_WORDS, ANSWER_WORDS, effort.rounds, &clock)?;
    let noisy = {
        let _noise = Noise::start();
        echo(PACKET_WORDS, ANSWER_WORDS, effort.rounds, &clock)?
    };
    let events = events(effort.events);
    let without = trials(
        &menu_without_cuts(),
        &events,
        1 + effort.trials / 10,
        &clock,
    )?;
    let menu = menu_of_sixteen();
    let with = trials(&menu, &events, effort.trials, &clock)?;
    let alone_ns =
        stand_alone(&menu, &events, &clock) - stand_alone(&menu_without_cuts(), &events, &clock);
    let algorithm = algorithm_sweep(effort.rounds / 20, &clock)?;
    let found = Found {
        floor,
        sweep,
        quiet,
        noisy,
        without,
        with,
        alone_ns,
        algorithm,
    };
    let mut rows = found.rows();
    model::Model::simulate().fill(&mut rows);
    let document = found.document(&rows, effort, command);
    Ok(PulsarStudy {
        passed: found.wrong() == 0 && rows.iter().all(Row::is_good),
        report: Report {
            summary_json: document.to_string(),
            ..found.report(&rows, effort, command)
        },
        document,
    })
}

/// A packet of `words` words with made-up content: the echo does not read it.
fn filling(words: usize) -> Vec<u32> {
    (0..words as u64).map(|word| mix64(word) as u32).collect()
}

/// Round trips of packets whose answers have a fixed number of words, one at a time.
fn echo(
    packet_words: usize,
    answer_words: usize,
    rounds: usize,
    clock: &TscClock,
) -> Result<Samples, BenchError> {
    const WARM_UP: usize = 200;
    let words_max = packet_words.max(answer_words) as u32;
    let mut parts = loop_parts(&menu_without_cuts(), words_max.max(512))?;
    let run_clock = RunClock::start();
    let (mut front_end, node) = parts.split(&run_clock);
    let over = AtomicBool::new(false);
    let packet = filling(packet_words);
    let mut times_ns = Vec::with_capacity(rounds + WARM_UP);
    let (times_ns, ()) = run_pair(
        |mut patience| {
            for _ in 0..rounds + WARM_UP {
                front_end.pump();
                patience.restart();
                let start = clock.ticks();
                front_end.send(&packet);
                let answer = loop {
                    if let Some(answer) = front_end.take_words(|words| Some(words.len()))? {
                        break answer;
                    }
                    // A packet of several pages' worth of line goes on when it is pumped.
                    front_end.pump();
                    patience.idle()?;
                };
                times_ns.push(clock.ticks_to_ns(clock.ticks().wrapping_sub(start)));
                if answer != Some(answer_words) {
                    return Err(BenchError::Conservation {
                        what: "words of an answer",
                        found: answer.unwrap_or(0) as u64,
                        expected: answer_words as u64,
                    });
                }
            }
            // Release pairs with the Acquire below.
            over.store(true, Ordering::Release);
            Ok(times_ns.split_off(WARM_UP))
        },
        |mut patience| {
            let mut end = EchoEnd::new(node, answer_words);
            while !over.load(Ordering::Acquire) {
                if end.poll(run_clock.now())? {
                    patience.restart();
                } else {
                    patience.idle()?;
                }
            }
            Ok(())
        },
    )?;
    Ok(Samples::from_unsorted(times_ns))
}

/// The far end: answers each packet with a fixed number of words and computes nothing.
struct EchoEnd<'a> {
    parts: &'a mut TriggerNodeParts,
    answer: Vec<u32>,
}

impl<'a> EchoEnd<'a> {
    fn new(parts: &'a mut TriggerNodeParts, answer_words: usize) -> Self {
        Self {
            parts,
            answer: filling(answer_words),
        }
    }

    /// Whether anything was done.
    fn poll(&mut self, now: RunNs) -> Result<bool, BenchError> {
        let TriggerNodeParts {
            packets,
            return_link,
            replies,
            ..
        } = &mut *self.parts;
        let mut worked = false;
        if return_link.is_idle() {
            let sum = packets.try_pop(|message| {
                // Every word is looked at, or long packets would never leave the sender's cache.
                message
                    .iter()
                    .fold(0_u32, |sum, word| sum.wrapping_add(*word))
            })?;
            if let Some(sum) = std::hint::black_box(sum) {
                std::hint::black_box(sum);
                let answer = &self.answer;
                return_link.send(|out| {
                    out.clear();
                    out.extend_from_slice(answer);
                });
                worked = true;
            }
        }
        return_link.pump(now);
        return_link.poll_flow(now);
        worked |= return_link.pass_on(0, replies) > 0;
        Ok(worked)
    }
}

/// Median time of each size, sent one way and answered by four words, and of the bare machine with as
/// many bytes both ways.
struct SizePoint {
    words: u32,
    median_ns: u64,
    floor_ns: u64,
}

fn size_sweep(rounds: usize, clock: &TscClock) -> Result<Vec<SizePoint>, BenchError> {
    SIZES
        .into_iter()
        .map(|words| {
            let samples = echo(words as usize, 4, rounds.max(200), clock)?;
            let floor = cache_line_ping_pong(words as usize * 4, rounds.max(200) as u32)?;
            Ok(SizePoint {
                words,
                median_ns: samples.p50(),
                floor_ns: floor.round_trip.p50(),
            })
        })
        .collect()
}

/// Line through (bytes, ns) with the median of all slopes between two points (Theil and Sen), which a
/// disturbed point does not turn: latency in us and bandwidth in MB/s, infinite for no slope.
fn line(points: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let points: Vec<_> = points.collect();
    let slopes: Vec<f64> = points
        .iter()
        .enumerate()
        .flat_map(|(place, (x, y))| points[..place].iter().map(move |(u, v)| (y - v) / (x - u)))
        .collect();
    let slope = median(&slopes).max(0.0);
    let rests: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    (median(&rests) * 1e-3, 1e3 / slope)
}

/// Programs that take the cores away now and then: one thread per core, busy a tenth of the time.
struct Noise {
    stop: std::sync::Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Noise {
    fn start() -> Self {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let threads = livetime_shm::allowed_cpus()
            .into_iter()
            .map(|core| {
                let stop = stop.clone();
                std::thread::spawn(move || {
                    let _ = livetime_shm::pin_current_thread(core);
                    // A hint, no data behind it.
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_micros(900));
                        let start = Instant::now();
                        while start.elapsed() < Duration::from_micros(100) {
                            std::hint::spin_loop();
                        }
                    }
                })
            })
            .collect();
        Self { stop, threads }
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The sample: packets of 34 words on average, a fifth of them without tracks, with their words.
fn events(count: usize) -> Vec<Vec<u32>> {
    (0..count as u32)
        .map(|number| {
            let mut state = mix64(u64::from(number) ^ 0x5055_4C53);
            let mut below = |limit: u32| {
                state = mix64(state);
                ((state >> 32) % u64::from(limit)) as u32
            };
            let tracks = if below(5) == 0 { 0 } else { 2 + below(7) };
            words_of(&packet([tracks, tracks, 1 + below(5), below(4)], number))
        })
        .collect()
}

/// What the trials of a sample gave.
struct Trials {
    /// Mean of each trial \[ns\].
    means_ns: Vec<f64>,
    /// Spread of each event over the trials \[ns\].
    rms_ns: Vec<f64>,
    samples: Samples,
    outliers: Outliers,
    /// How far each outlier lies above its event's mean \[us\].
    outlier_us: Vec<f64>,
    wrong: u64,
    mean_words: f64,
    gaps: usize,
}

/// Sends every event once a trial, one at a time, and checks each decision.
fn trials(
    menu: &Menu,
    events: &[Vec<u32>],
    trials: usize,
    clock: &TscClock,
) -> Result<Trials, BenchError> {
    let mut reference = LevelTwoNode::new(LevelTwo::new(menu), RUN);
    let expected: Vec<L2Mask> = events
        .iter()
        .map(|words| reference.handle_packet(words))
        .map(|answer| answer.map_or(L2Mask(0), |answer| answer.reply.mask))
        .collect();
    let mut ends = Loop::warmed_up(menu, &events[0])?;
    let (mut front_end, node, run_clock) = ends.ends();
    let over = AtomicBool::new(false);
    let [mut meter, far_meter] = [(); 2].map(|()| StallMeter::new(clock));
    let mut times = touched(events.len() * trials, (u64::MAX, u64::MAX));
    let (near, far_gaps) = run_pair(
        |mut patience| {
            let mut wrong = 0;
            meter.start(clock);
            for (words, expected) in (0..trials).flat_map(|_| events.iter().zip(&expected)) {
                front_end.pump();
                patience.restart();
                let start = clock.ticks();
                meter.look(start, true);
                front_end.send(words);
                meter.look(clock.ticks(), true);
                let reply = loop {
                    let has_reply = front_end.has_reply();
                    meter.look(clock.ticks(), false);
                    if has_reply && let Some(reply) = front_end.take_reply()? {
                        break reply;
                    }
                    patience.idle()?;
                };
                times.push((start, clock.ticks()));
                wrong += u64::from(reply.is_none_or(|reply| reply.mask != *expected));
            }
            // Release pairs with the Acquire in `serve`.
            over.store(true, Ordering::Release);
            Ok((meter.finish(), times, wrong))
        },
        |patience| serve(node, run_clock, clock, &over, far_meter, patience),
    )?;
    let (near_gaps, times, wrong) = near;
    let fill = |place: usize, words: &mut Vec<u32>| {
        words.clear();
        words.extend_from_slice(&events[place % events.len()]);
    };
    let work = work_alone(menu, times.len(), fill, clock)?;
    let repeated =
        (times.iter().zip(work)).map(|(&(start, end), work)| Repeated { start, end, work });
    let repeated: Vec<Repeated> = repeated.collect();
    let gaps = of_the_machine(&[near_gaps, far_gaps], &repeated, clock);
    let mut found = summarise(&times, events.len(), &gaps, clock);
    found.wrong = wrong;
    let words: usize = events.iter().map(Vec::len).sum();
    found.mean_words = words as f64 / events.len().max(1) as f64;
    Ok(found)
}

fn summarise(times: &[(u64, u64)], events: usize, gaps: &[Gap], clock: &TscClock) -> Trials {
    let ns = |(start, end): &(u64, u64)| clock.ticks_to_ns(end - start) as f64;
    let mut sums = vec![(0.0, 0.0); events];
    for (place, time) in times.iter().enumerate() {
        let sum: &mut (f64, f64) = &mut sums[place % events];
        let ns = ns(time);
        *sum = (sum.0 + ns, sum.1 + ns * ns);
    }
    let trials = (times.len() / events.max(1)).max(1) as f64;
    let means: Vec<f64> = sums.iter().map(|(sum, _)| sum / trials).collect();
    let rms_ns = sums
        .iter()
        .map(|(sum, square)| (square / trials - (sum / trials).powi(2)).max(0.0).sqrt())
        .collect();
    let means_ns = times
        .chunks(events.max(1))
        .map(|trial| trial.iter().map(ns).sum::<f64>() / trial.len() as f64)
        .collect();
    let outlier_us = times
        .iter()
        .enumerate()
        .map(|(place, time)| ns(time) - means[place % events])
        .filter(|above| *above > OUTLIER_NS as f64)
        .map(|above| above * 1e-3)
        .collect();
    let numbered = times
        .iter()
        .enumerate()
        .map(|(place, (start, end))| ((place % events) as u32, *start, *end));
    let allowed = ticks_of(clock, OUTLIER_NS);
    Trials {
        means_ns,
        rms_ns,
        samples: Samples::from_unsorted(times.iter().map(|time| ns(time) as u64).collect()),
        outliers: Outliers::count(numbered, events, gaps, allowed),
        outlier_us,
        wrong: 0,
        mean_words: 0.0,
        gaps: gaps.len(),
    }
}

/// Mean time of checking and deciding on a packet without any link \[ns\].
fn stand_alone(menu: &Menu, events: &[Vec<u32>], clock: &TscClock) -> f64 {
    let mut node = LevelTwoNode::new(LevelTwo::new(menu), RUN);
    let start = clock.ticks();
    for words in events {
        std::hint::black_box(node.handle_packet(std::hint::black_box(words)).is_ok());
    }
    clock.ticks_to_ns(clock.ticks() - start) as f64 / events.len().max(1) as f64
}

/// An algorithm that takes a fixed time.
#[derive(Debug)]
struct Wait(Duration);

impl Algorithm for Wait {
    fn is_true(&self, _: &AlgorithmInput<'_>) -> bool {
        let start = Instant::now();
        while start.elapsed() < self.0 {
            std::hint::spin_loop();
        }
        true
    }
}

/// A menu of one algorithm that waits for so many us.
fn waiting_menu(us: u64) -> Result<Menu, BenchError> {
    let mut registry = AlgorithmRegistry::new();
    registry.add("wait", move |_| Ok(Wait(Duration::from_micros(us))));
    let cut = registry.make("wait", &AlgorithmOptions::default());
    let cut = cut.and_then(Result::ok).ok_or(BenchError::Thread)?;
    Ok(menu_of(
        [("WAIT".to_owned(), u64::MAX, Cut::User(cut))].into_iter(),
    ))
}

/// Time per event with four in flight, by the time of the algorithm \[us, us\].
fn algorithm_sweep(rounds: usize, clock: &TscClock) -> Result<Vec<(f64, f64)>, BenchError> {
    let packet = words_of(&packet([4, 4, 3, 2], 1));
    ALGORITHM_US
        .into_iter()
        .map(|us| {
            let mut ends = Loop::new(&waiting_menu(us)?)?;
            let (mut front_end, node, run_clock) = ends.ends();
            let over = AtomicBool::new(false);
            let meter = StallMeter::new(clock);
            let (ticks, _) = run_pair(
                |mut patience| {
                    let (mut sent, mut answered) = (0, 0);
                    let start = clock.ticks();
                    while answered < rounds {
                        if sent < rounds && sent - answered < IN_FLIGHT && front_end.link.is_idle()
                        {
                            front_end.send(&packet);
                            sent += 1;
                        }
                        if front_end.take_reply()?.is_some() {
                            answered += 1;
                            patience.restart();
                        } else {
                            patience.idle()?;
                        }
                        front_end.pump();
                    }
                    let ticks = clock.ticks() - start;
                    // Release pairs with the Acquire of the other side.
                    over.store(true, Ordering::Release);
                    Ok(ticks)
                },
                |patience| serve(node, run_clock, clock, &over, meter, patience),
            )?;
            let per_event = clock.ticks_to_ns(ticks) as f64 * 1e-3 / rounds.max(1) as f64;
            Ok((us as f64, per_event))
        })
        .collect()
}

/// Everything that was measured.
struct Found {
    floor: Samples,
    sweep: Vec<SizePoint>,
    quiet: Samples,
    noisy: Samples,
    without: Trials,
    with: Trials,
    alone_ns: f64,
    algorithm: Vec<(f64, f64)>,
}

impl Found {
    /// Decisions other than those known beforehand.
    fn wrong(&self) -> u64 {
        self.with.wrong + self.without.wrong
    }

    fn document(&self, rows: &[Row], effort: Effort, command: &str) -> Value {
        let passed = self.wrong() == 0 && rows.iter().all(Row::is_good);
        let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
        let sweep: Vec<Value> = self
            .sweep
            .iter()
            .map(|point| json!([point.words, point.median_ns, point.floor_ns]))
            .collect();
        json!({
            "schema": SCHEMA,
            "command": command,
            "events": effort.events,
            "trials": effort.trials,
            "passed": passed,
            "model": "event-driven runs of card, bus and link; the time of the algorithms is fitted on the 11 us with them; the difference with algorithms is that of the menu alone, the dead time the closed form at 11 us",
            "rows": rows,
            "size_sweep": { "columns": ["words", "median_ns", "floor_ns"], "points": sweep },
            "algorithm_sweep": {
                "columns": ["algorithm_us", "us_per_event"],
                "points": self.algorithm,
                "in_flight": IN_FLIGHT,
            },
            "io_only_ns": latency(&self.quiet),
            "io_only_with_noise_ns": latency(&self.noisy),
            "with_algorithms_ns": latency(&self.with.samples),
            "without_algorithms_ns": latency(&self.without.samples),
            "trial_means_ns": self.with.means_ns.iter().map(|mean| rounded(*mean)).collect::<Vec<_>>(),
            "outliers": {
                "above_event_mean_ns": OUTLIER_NS,
                "host": self.with.outliers.host,
                "ours": self.with.outliers.ours,
                "host_gaps_above_2_us": self.with.gaps,
            },
            "cache_line_ns": latency(&self.floor),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_study_has_every_row_and_no_wrong_decision() {
        let effort = Effort {
            rounds: 400,
            trials: 2,
            events: 300,
        };
        let study = make(effort, "livetime study pulsar").unwrap();
        let rows = study.document["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 21);
        assert_eq!(study.document["schema"], SCHEMA);
        let wrong = rows.iter().find(|row| row["id"] == "wrong_decisions");
        assert_eq!(wrong.unwrap()["measured"], 0.0);
        for row in rows {
            // So few rounds on a busy machine may find no slope between two sizes.
            let is_slope = row["id"].as_str().unwrap().ends_with("_bandwidth");
            let measured = row["measured"].as_f64();
            if row["id"].as_str().unwrap().starts_with("computers") {
                assert_eq!(
                    (measured, &row["model_within"]),
                    (None, &json!(true)),
                    "{row}"
                );
                continue;
            }
            assert!(measured.map_or(is_slope, f64::is_finite), "{row}");
        }
        let html = study.report.to_html();
        assert_eq!(html.matches("<figure>").count(), 9);
    }

    #[test]
    fn lines_are_fitted() {
        let (us, mb_per_s) = line([(0.0, 4500.0), (1580.0, 14_500.0)].into_iter());
        assert!((us - 4.5).abs() < 1e-9 && (mb_per_s - 158.0).abs() < 1e-9);
    }

    #[test]
    fn the_sample_has_the_notes_mix_and_size() {
        let events = events(20_000);
        let words: usize = events.iter().map(Vec::len).sum();
        let mean = words as f64 / 20_000.0;
        assert!((32.0..36.0).contains(&mean), "{mean} words");
        // Without tracks the packet has no block of XTRP tracks.
        let without = events.iter().filter(|words| words[6] >> 24 != 1).count();
        assert!((3600..4400).contains(&without), "{without} of 20 000");
    }
}
