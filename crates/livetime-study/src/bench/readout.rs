//! `readout`: from the words of the line to a checked fragment on file, on one core.
//!
//! Line slices go into a `Receiver`, pages of a shared pool are filled, read, checked (framing,
//! lengths, CRC-32C) and filed; after as many triggers as the pool allows the fragment is taken
//! off the file and its page goes back, so that every page of the pool is in use in turn. The floor
//! is a plain copy of the same words into the same pages in turn. Twelve links with both ends, one
//! core sending and one receiving, are in [`super::card_readout`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use livetime_node::pooled_page::{HeldPages, LinkPages};
use livetime_readout::{
    Assembled, AssemblerConfig, FragmentAssembler, FragmentBuffer, FragmentBufferConfig, LineSlice,
    LinkConfig, PageLink, Receiver,
};
use livetime_shm::{HugePages, PageIndex, PagePool, PageWriter, PoolConfig};
use livetime_wire::fragment::{CrcCheck, FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::slink::ControlWord;
use livetime_wire::{RunNs, RunNumber, SourceId, TriggerNumber};
use serde_json::json;

use super::card_readout::add_cards;
use super::document::{BenchDocument, Target, time_per_item};
use super::interleave::{LIKE_FLOORS, add_item_floor, interleave};
use super::pinned_threads::run_alone;
use super::{BenchError, BenchOptions};

pub(crate) const SOURCE: SourceId = SourceId(1);
pub(crate) const RUN: RunNumber = RunNumber(1);
/// Sizes of fragments, header and trailer included.
const FRAGMENT_BYTES: [usize; 6] = [64, 128, 256, 1024, 4096, 64 * 1024];
/// Fragments up to this size are to come at 3 M/s, and the largest near the speed of memory.
const SMALL_BYTES: usize = 256;
const LARGE_BYTES: usize = 64 * 1024;
/// Different fragments, used in turn.
pub(crate) const FRAGMENTS: usize = 128;
/// Pages of the link: with those on file and those posted, every one is in use.
const PAGES: u32 = 128;
/// Triggers on file.
const ON_FILE: usize = 112;
/// Bytes of a block, and bounds of its number of fragments.
const BLOCK_BYTES: usize = 32 << 20;

struct Size {
    blocks: usize,
    block_bytes: usize,
    fragments_max: usize,
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a fragment is lost.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let size = if options.quick {
        Size {
            blocks: 2,
            block_bytes: 1 << 20,
            fragments_max: 512,
        }
    } else {
        Size {
            blocks: 30,
            block_bytes: BLOCK_BYTES,
            fragments_max: 20_000,
        }
    };
    let mut document = BenchDocument::new("readout");
    let (mut slowest_small, mut floors_agree) = (f64::INFINITY, true);
    for bytes in FRAGMENT_BYTES {
        for crc in [CrcCheck::On, CrcCheck::Off] {
            let found = measure(&mut document, &size, bytes, crc)?;
            if bytes <= SMALL_BYTES && crc == CrcCheck::On {
                slowest_small = slowest_small.min(found.per_s);
                floors_agree &= found.floors_agree;
            }
            if bytes == LARGE_BYTES {
                let (name, target) = match crc {
                    CrcCheck::On => ("memcpy_share_64_kib", 0.4),
                    CrcCheck::Off => ("memcpy_share_64_kib_without_crc", 0.6),
                };
                let target = Target::at_least(name, found.to_copy, target);
                document.add_target(target.where_floors_agree(found.floors_agree));
            }
        }
    }
    let small = Target::at_least("fragments_per_s_small", slowest_small, 3e6);
    document.add_target(small.where_floors_agree(floors_agree));
    add_cards(&mut document, options)?;
    Ok(document)
}

/// What was found at one size.
struct Found {
    /// Fragments per second.
    per_s: f64,
    /// The rate as a fraction of the copy's.
    to_copy: f64,
    floors_agree: bool,
}

/// Measures one size.
fn measure(
    document: &mut BenchDocument,
    size: &Size,
    bytes: usize,
    crc: CrcCheck,
) -> Result<Found, BenchError> {
    // Whole cycles, so that the trigger numbers follow each other from block to block.
    let count = (size.block_bytes / bytes)
        .clamp(FRAGMENTS, size.fragments_max)
        .next_multiple_of(FRAGMENTS);
    let (measured, filed) = run_alone(|| {
        let chain = RefCell::new(LinkEnd::new(bytes, crc)?);
        let measured = interleave(
            size.blocks,
            LIKE_FLOORS,
            || chain.borrow_mut().copy(count),
            || chain.borrow_mut().receive(count),
            |floor| *floor,
        )?;
        let filed = chain.borrow().check()?;
        Ok((measured, filed))
    })?;
    let selection = measured.select(|floor| *floor, |_| ());
    let to_copy = selection.quotient(|kept| (kept.floor(|floor| *floor), *kept.block));
    let times = selection.all(|kept| *kept.block);
    let suffix = if crc == CrcCheck::On {
        ""
    } else {
        "_without_crc"
    };
    let name = format!("{bytes}_bytes{suffix}");
    let time = time_per_item(&times);
    let rate = time["per_s_at_p50"].as_f64().unwrap_or(f64::NAN);
    let result = json!({
        "fragment_ns": time,
        "mb_per_s_at_p50": (rate * bytes as f64 / 1e6).round(),
        "fragments": filed,
        "blocks": selection.to_json(),
    });
    document.add_result(name.clone(), result);
    add_item_floor(&mut document.floor, format!("memcpy_ns_{name}"), &selection);
    document.add_quotient(format!("memcpy_share_{name}"), to_copy);
    Ok(Found {
        per_s: rate,
        to_copy: to_copy.value(),
        floors_agree: !selection.unlike,
    })
}

/// The receiving end of one link with its file of fragments, as in a readout unit.
struct LinkEnd {
    fragments: Vec<Vec<u32>>,
    pool: PagePool,
    pages: LinkPages,
    held: HeldPages,
    receiver: Receiver,
    assembler: FragmentAssembler,
    buffer: FragmentBuffer,
    on_file: VecDeque<TriggerNumber>,
    sent: u64,
}

impl LinkEnd {
    fn new(bytes: usize, crc: CrcCheck) -> Result<Self, BenchError> {
        let page_words = bytes.max(4096) as u32 / 4;
        let config = LinkConfig {
            page_words,
            pages: PAGES,
            fragment_words_max: page_words,
            // Nothing is on its way when the line stops: every page may be in use.
            words_in_flight: 0,
            xoff_below: 1,
            xon_above: 1,
            crc,
            ..LinkConfig::default()
        };
        debug_assert!(config.validate("link").is_empty());
        let pool = PagePool::create(&PoolConfig {
            pages: PAGES,
            page_bytes: page_words * 4,
            huge_pages: HugePages::Prefer,
        })?;
        Ok(Self {
            fragments: (1..=FRAGMENTS as u64)
                .map(|trigger| fragment(trigger, bytes))
                .collect(),
            pages: LinkPages::new(pool.clone()),
            held: HeldPages::new(pool.clone(), 1),
            pool,
            receiver: Receiver::new(config, 0),
            assembler: FragmentAssembler::new(AssemblerConfig {
                run: RUN,
                pool: 0,
                page_words,
                sources: vec![SOURCE],
                crc,
            }),
            buffer: FragmentBuffer::new(FragmentBufferConfig::default(), &[SOURCE]),
            on_file: VecDeque::with_capacity(ON_FILE + 1),
            sent: 0,
        })
    }

    /// Copies fragments into the pages of the pool in turn; returns ns per fragment.
    fn copy(&mut self, count: usize) -> Result<f64, BenchError> {
        let pages = (0..PAGES).map(|page| self.pool.write(PageIndex(page)));
        let mut pages: Vec<PageWriter> = pages.collect::<Result<_, _>>()?;
        let start = Instant::now();
        let mut next = pages.iter_mut();
        let mut left = count;
        while left > 0 {
            // The pages of one turn, then again from the first.
            for (page, words) in next.zip(self.fragments.iter().cycle()).take(left) {
                page[..words.len()].copy_from_slice(black_box(words));
                black_box(&mut page[..]);
                left -= 1;
            }
            next = pages.iter_mut();
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / count as f64)
    }

    /// Receives and files fragments, then takes all off the file; returns ns per fragment.
    fn receive(&mut self, count: usize) -> Result<f64, BenchError> {
        let start = Instant::now();
        for index in 0..count {
            self.send(index % FRAGMENTS)?;
        }
        let elapsed = start.elapsed();
        while !self.on_file.is_empty() {
            self.free_oldest()?;
        }
        Ok(elapsed.as_secs_f64() * 1e9 / count as f64)
    }

    fn send(&mut self, index: usize) -> Result<(), BenchError> {
        let words = &self.fragments[index];
        for line in [
            LineSlice::Control(ControlWord::BEGIN_FRAGMENT),
            LineSlice::Data(words),
            LineSlice::Control(ControlWord::END_FRAGMENT),
        ] {
            let taken = self.receiver.handle_line(RunNs(0), line, &mut self.pages);
            if taken != line.words() {
                let (found, expected) = (taken as u64, line.words() as u64);
                return Err(BenchError::Conservation {
                    what: "words taken",
                    found,
                    expected,
                });
            }
        }
        self.sent += 1;
        self.file()
    }

    fn file(&mut self) -> Result<(), BenchError> {
        while let Some(completed) = self.receiver.poll() {
            self.held.hold(completed.page)?;
            let assembled = self.assembler.handle_completed(&completed, &self.held);
            self.held.clear();
            if let Assembled::Fragment { trigger, fragment } = assembled
                && fragment.status.is_good()
                && self.buffer.insert(trigger, fragment).is_ok()
            {
                self.on_file.push_back(trigger);
            }
            if self.on_file.len() > ON_FILE {
                self.free_oldest()?;
            }
        }
        Ok(())
    }

    fn free_oldest(&mut self) -> Result<(), BenchError> {
        let Some(oldest) = self.on_file.pop_front() else {
            return Ok(());
        };
        let Self {
            buffer,
            pages,
            receiver,
            ..
        } = self;
        let mut released = Ok(());
        buffer.remove(oldest, |fragment| {
            for page in &fragment.pages {
                released = released.and(pages.release(*page));
                // A page of the descriptor was handed out by this receiver.
                let recycled = receiver.recycle(*page);
                debug_assert!(recycled.is_ok());
            }
        });
        Ok(released?)
    }

    /// Whether every fragment sent was filed without a fault; returns how many.
    fn check(&self) -> Result<u64, BenchError> {
        let filed = self.buffer.counters().inserted;
        let flagged = self.assembler.counters().flagged;
        let lost = self.assembler.losses().total() + self.buffer.losses().total();
        for (what, found, expected) in [
            ("fragments filed", filed, self.sent),
            ("fragments with a fault", flagged, 0),
            ("fragments lost", lost, 0),
        ] {
            if found != expected {
                return Err(BenchError::Conservation {
                    what,
                    found,
                    expected,
                });
            }
        }
        Ok(filed)
    }
}

pub(crate) fn fragment(trigger: u64, bytes: usize) -> Vec<u32> {
    let words = bytes / 4;
    let header = FragmentHeader {
        source: SOURCE,
        run: RUN,
        trigger_low: TriggerNumber(trigger).low(),
        bunch: 0,
        trigger_type: 0,
        event_type: 0,
    };
    let mut out = vec![0; words];
    header.emit(0, words - OVERHEAD_WORDS, &mut out, |data| {
        data.fill(trigger as u32)
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_the_pool_goes_round_and_every_fragment_is_filed() {
        for crc in [CrcCheck::On, CrcCheck::Off] {
            let mut end = LinkEnd::new(256, crc).unwrap();
            assert!(end.copy(300).unwrap() > 0.0);
            assert!(end.receive(3 * FRAGMENTS).unwrap() > 0.0);
            assert!(end.copy(1).is_ok(), "every page is free again");
            assert_eq!(end.check().unwrap(), 3 * FRAGMENTS as u64);
            assert!(end.receiver.page_account().is_balanced());
        }
    }

    #[test]
    fn a_lost_fragment_makes_the_measurement_fail() {
        let mut end = LinkEnd::new(64, CrcCheck::On).unwrap();
        end.fragments[5][9] ^= 1;
        end.receive(FRAGMENTS).unwrap();
        assert!(matches!(end.check(), Err(BenchError::Conservation { .. })));
    }
}
