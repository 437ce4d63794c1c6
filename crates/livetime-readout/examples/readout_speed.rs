//! How fast a receiver turns words of a link into checked fragments in the buffer, beside memcpy.
//!
//! ```text
//! cargo run --release -p livetime-readout --example readout_speed
//! ```
//!
//! Measured: line slices -> receiver -> pages -> assembler (CRC-32C) -> buffer -> removal ->
//! recycled pages, one thread, 64 triggers in the buffer. Not measured: threads, rings, the
//! source. The floor is a copy of the same words into the same pages taken in turn. Floor and
//! measurement are interleaved in rounds; the best round of each is printed with the median.

use std::hint::black_box;
use std::time::Instant;

use livetime_readout::{
    Assembled, AssemblerConfig, FragmentAssembler, FragmentBuffer, FragmentBufferConfig, HeapPages,
    LineSlice, LinkConfig, PageLink, PageStore, Receiver,
};
use livetime_wire::fragment::{CrcCheck, FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::slink::ControlWord;
use livetime_wire::{RunNs, RunNumber, SourceId, TriggerNumber};

const SOURCE: SourceId = SourceId(1);
const RUN: RunNumber = RunNumber(1);
/// Different fragments, used in turn.
const FRAGMENTS: u64 = 128;
/// Triggers kept in the buffer.
const IN_FLIGHT: u64 = 64;
/// Bytes of payload per round, at least.
const ROUND_BYTES: usize = 64 << 20;
const ROUNDS: usize = 9;

struct Chain {
    receiver: Receiver,
    pages: HeapPages,
    assembler: FragmentAssembler,
    buffer: FragmentBuffer,
}

impl Chain {
    fn new(config: LinkConfig) -> Self {
        let problems = config.validate("link[0]");
        assert!(problems.is_empty(), "{problems:?}");
        Self {
            pages: HeapPages::new(0, config.pages, config.page_words),
            assembler: FragmentAssembler::new(AssemblerConfig {
                run: RUN,
                pool: 0,
                page_words: config.page_words,
                sources: vec![SOURCE],
                crc: config.crc,
            }),
            receiver: Receiver::new(config, 0),
            buffer: FragmentBuffer::new(FragmentBufferConfig::default(), &[SOURCE]),
        }
    }

    fn send(&mut self, words: &[u32]) {
        for line in [
            LineSlice::Control(ControlWord::BEGIN_FRAGMENT),
            LineSlice::Data(words),
            LineSlice::Control(ControlWord::END_FRAGMENT),
        ] {
            let mut rest = Some(line);
            while let Some(line) = rest {
                let taken = self.receiver.handle_line(RunNs(0), line, &mut self.pages);
                rest = line.rest(taken);
                if rest.is_some() {
                    self.file();
                }
            }
        }
        self.file();
    }

    fn file(&mut self) {
        while let Some(completed) = self.receiver.poll() {
            match self.assembler.handle_completed(&completed, &self.pages) {
                Assembled::MoreToCome => {}
                Assembled::Fragment { trigger, fragment } => {
                    assert!(fragment.status.is_good());
                    self.buffer.insert(trigger, fragment).expect("room");
                    self.release(trigger);
                }
                Assembled::Refused { why, .. } => panic!("{why:?}"),
            }
        }
    }

    /// Removes the trigger that has been in the buffer long enough.
    fn release(&mut self, newest: TriggerNumber) {
        let oldest = TriggerNumber((newest.0 + FRAGMENTS - 1 - IN_FLIGHT) % FRAGMENTS + 1);
        let receiver = &mut self.receiver;
        self.buffer.remove(oldest, |fragment| {
            for page in &fragment.pages {
                receiver.recycle(*page).expect("a page of this link");
            }
        });
    }
}

fn fragments(bytes: usize) -> Vec<Vec<u32>> {
    let words = bytes / 4;
    let data_words = words - OVERHEAD_WORDS;
    (1..=FRAGMENTS)
        .map(|trigger| {
            let header = FragmentHeader {
                source: SOURCE,
                run: RUN,
                trigger_low: TriggerNumber(trigger).low(),
                bunch: 0,
                trigger_type: 0,
                event_type: 0,
            };
            let mut out = vec![0; words];
            header.emit(0, data_words, &mut out, |data| data.fill(trigger as u32));
            out
        })
        .collect()
}

fn config(bytes: usize, crc: CrcCheck) -> LinkConfig {
    let page_words = if bytes <= 4096 { 1024 } else { 4096 };
    LinkConfig {
        page_words,
        pages: 1024,
        fragment_words_max: page_words * 16,
        crc,
        ..LinkConfig::default()
    }
}

/// Seconds per fragment of one round.
fn round(count: usize, mut one: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    for index in 0..count {
        one(index);
    }
    start.elapsed().as_secs_f64() / count as f64
}

fn best_and_median(times: &mut [f64]) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}

fn main() {
    println!("bytes   crc   M frag/s (median)   MB/s    memcpy MB/s   ratio");
    for bytes in [56, 128, 256, 1024, 4096, 16384, 65536] {
        for crc in [CrcCheck::On, CrcCheck::Off] {
            let fragments = fragments(bytes);
            let config = config(bytes, crc);
            let mut chain = Chain::new(config.clone());
            // Whole cycles, so that the trigger numbers follow each other from round to round.
            let count = (ROUND_BYTES / bytes)
                .clamp(2_048, 400_000)
                .next_multiple_of(fragments.len());
            let (mut ours, mut floor) = (Vec::new(), Vec::new());
            let mut page = 0;
            for _ in 0..ROUNDS {
                floor.push(round(count, |index| {
                    let words = &fragments[index % fragments.len()];
                    for part in words.chunks(config.page_words as usize) {
                        let target = chain.pages.words_mut(page);
                        target[..part.len()].copy_from_slice(part);
                        black_box(target);
                        page = (page + 1) % config.pages;
                    }
                }));
                ours.push(round(count, |index| {
                    chain.send(&fragments[index % fragments.len()]);
                }));
            }
            let ((best, median), (floor, _)) =
                (best_and_median(&mut ours), best_and_median(&mut floor));
            println!(
                "{bytes:>6}  {:<4}  {:>6.2} ({:>5.2})      {:>7.0}    {:>7.0}      {:>5.1} %",
                if crc == CrcCheck::On { "on" } else { "off" },
                1e-6 / best,
                1e-6 / median,
                bytes as f64 * 1e-6 / best,
                bytes as f64 * 1e-6 / floor,
                100.0 * floor / best,
            );
            let losses = chain.assembler.losses().total() + chain.buffer.losses().total();
            assert_eq!(losses, 0);
            assert!(chain.receiver.page_account().is_balanced());
        }
    }
}
