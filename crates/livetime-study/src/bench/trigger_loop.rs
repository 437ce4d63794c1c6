//! `loop`: a trigger packet of 34 words out over its link, and the decision back over the other.
//!
//! One event in flight between two pinned threads that spin, on the path of a run: the front-end's
//! end of the trigger link (`PacketLink` and its ring), the trigger node's role with its
//! `LevelTwoNode`, and the return link. The time runs from the first word of the packet to the reply
//! read, checked against the decision of a node that was asked beforehand. I/O only means a menu of
//! one path without a cut: the packet is checked, nothing is computed. With algorithms the menu has 16
//! paths that all look at the packet.
//!
//! Not measured here: the front-end's other work (fragments, supervisor), the rate with several
//! events in flight (`chain`), and links between machines.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use livetime_node::completion::Completion;
use livetime_node::counter_block::CounterBlock;
use livetime_node::packet_link::{PacketLink, slot_words};
use livetime_node::role::Role;
use livetime_node::role::front_end::TriggerRings;
use livetime_node::role::trigger::{TriggerNode, TriggerNodeParts};
use livetime_node::run_clock::RunClock;
use livetime_node::worker::Phase;
use livetime_readout::LinkConfig;
use livetime_shm::floor::{FloorError, Samples};
use livetime_shm::{RingConfig, TscClock, ring};
use livetime_trigger::{LevelTwo, LevelTwoNode, Menu};
use livetime_wire::trigger_packet::TriggerPacketView;
use livetime_wire::{L2Reply, RunNs};
use serde_json::json;

use super::document::{BenchDocument, Target, latency, median, rounded};
use super::full_menu::{
    RUN, TYPICAL_WORDS, menu_of_sixteen, menu_without_cuts, typical_packet, words_of,
};
use super::interleave::{LIKE_FLOORS, LineFloor, Selection, add_line_floor, interleave};
use super::pinned_threads::{Patience, run_alone, run_pair};
use super::{BenchError, BenchOptions};

/// Different packets, used in turn.
const PACKETS: u32 = 1024;
/// Most words of a packet on these links.
const WORDS_MAX: u32 = 512;
/// Events of a block that come before the measured ones.
const WARM_UP: u32 = 200;

/// Passages of a packet that bring all pages and slots of a loop into memory.
const FIRST_PASSAGES: u32 = 1_000;
/// Turns of the node in which it answers a packet that it has, with many to spare.
const TURNS_MAX: u32 = 1_000;

/// The bit of a mask that no path of the menu has.
const NO_PATH: u128 = 1 << 127;

struct Size {
    blocks: usize,
    events: u32,
    menu_passes: usize,
}

struct LoopBlock {
    io: Samples,
    algorithms: Samples,
    /// Time of a decision on a packet \[ns\].
    menu: f64,
    /// Time of checking a packet \[ns\].
    decode: f64,
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a reply does not come.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let size = if options.quick {
        Size {
            blocks: 2,
            events: 500,
            menu_passes: 2,
        }
    } else {
        Size {
            blocks: 60,
            events: 5_000,
            menu_passes: 20,
        }
    };
    let clock = TscClock::of_process();
    let packets = Packets::new();
    let (io_menu, full_menu) = (menu_without_cuts(), menu_of_sixteen());
    let mut io = Loop::new(&io_menu)?;
    let mut algorithms = Loop::new(&full_menu)?;
    let carried = TYPICAL_WORDS * 4;
    let measured = interleave(
        size.blocks,
        LIKE_FLOORS,
        || LineFloor::measure(&[carried], size.events),
        || {
            Ok(LoopBlock {
                io: io.measure(&packets, size.events, &clock)?,
                algorithms: algorithms.measure(&packets, size.events, &clock)?,
                menu: run_alone(|| Ok(menu_time(&packets, &full_menu, size.menu_passes)))?,
                decode: run_alone(|| Ok(decode_time(&packets, size.menu_passes)))?,
            })
        },
        LineFloor::bare_p50,
    )?;
    let selection = measured.select(LineFloor::bare_p50, LineFloor::placement);
    let mut document = BenchDocument::new("loop");
    add_line_floor(&mut document, &selection);
    report(&mut document, &selection, carried);
    let wrong = io.wrong + algorithms.wrong;
    document.add_result("decisions", io.decisions + algorithms.decisions);
    document.add_result("wrong_decisions", wrong);
    document.add_target(Target::at_most("wrong_decisions", wrong as f64, 0.0));
    Ok(document)
}

fn report(
    document: &mut BenchDocument,
    selection: &Selection<'_, LineFloor, LoopBlock>,
    carried: usize,
) {
    let io = selection.merged(|block| &block.io);
    let algorithms = selection.merged(|block| &block.algorithms);
    let menu = selection.median(|kept| kept.block.menu);
    document.add_result("io_ns", latency(&io));
    document.add_result("algorithms_ns", latency(&algorithms));
    let decode = selection.median(|kept| kept.block.decode);
    document.add_result("menu_ns", json!({ "mean": rounded(menu), "paths": 16 }));
    document.add_result(
        "decode_ns",
        json!({ "mean": rounded(decode), "words": TYPICAL_WORDS }),
    );
    let tail = |samples: &Samples| samples.p99() as f64 / samples.p50().max(1) as f64;
    let bare = |floor: &LineFloor| floor.bare.p50() as f64;
    let io_p50 = |block: &LoopBlock| block.io.p50() as f64;
    let to_line = selection.quotient(|kept| (io_p50(kept.block), kept.floor(bare)));
    let carrying = |floor: &LineFloor| floor.of_bytes(carried).p50() as f64;
    let to_carrying = selection.quotient(|kept| (io_p50(kept.block), kept.floor(carrying)));
    let tails =
        selection.quotient(|kept| (tail(&kept.block.io), kept.floor(|floor| tail(&floor.bare))));
    let allowed = |kept: &LoopBlock| 1.2 * (kept.io.p50() as f64 + kept.menu);
    let with_menu =
        selection.quotient(|kept| (kept.block.algorithms.p50() as f64, allowed(kept.block)));
    document.add_quotient("io_to_cache_line", to_line);
    document.add_quotient("io_to_cache_line_carrying_136_bytes", to_carrying);
    document.add_ratio("io_p99_over_p50", tail(&io));
    document.add_quotient("io_tail_to_cache_line_tail", tails);
    document.add_quotient("algorithms_to_io_plus_menu_plus_20_percent", with_menu);
    for target in [
        Target::by_floor("loop_io_p50", to_line.value(), 3.0),
        Target::at_most("loop_io_tail", tails.value(), 1.5),
        Target::at_most("loop_algorithms_p50", with_menu.value(), 1.0),
        Target::at_most("menu_mean_ns", menu, 400.0),
        Target::at_most("decode_mean_ns", decode, 100.0),
    ] {
        document.add_target(selection.judged(target));
    }
}

/// The packets of all events, with trigger numbers of their own.
struct Packets(Vec<Vec<u32>>);

impl Packets {
    fn new() -> Self {
        Self((0..PACKETS).map(|n| words_of(&typical_packet(n))).collect())
    }

    fn of(&self, event: u64) -> &[u32] {
        &self.0[(event % u64::from(PACKETS)) as usize]
    }
}

/// Mean time of a decision on a packet that is in the cache, from its words to its answer: the median
/// over passes \[ns\]. A decision begins when the one before is known, as in the loop; side by side
/// the processor would do parts of several at a time.
fn menu_time(packets: &Packets, menu: &Menu, passes: usize) -> f64 {
    let mut level_two = LevelTwo::new(menu);
    let views: Vec<_> = packets
        .0
        .iter()
        .filter_map(|words| TriggerPacketView::new_checked(words).ok())
        .collect();
    let times: Vec<f64> = (0..passes)
        .map(|_| {
            let start = std::time::Instant::now();
            let mut at = 0;
            while let Some(view) = views.get(at) {
                let decided = level_two.decide(black_box(view));
                // Always the next one, which the compiler does not know and the processor waits for.
                at += 1 + black_box(decided.after.0 & NO_PATH) as usize;
            }
            start.elapsed().as_secs_f64() * 1e9 / views.len().max(1) as f64
        })
        .collect();
    median(&times)
}

/// Time of checking a packet that is in the cache: the median over passes \[ns\].
fn decode_time(packets: &Packets, passes: usize) -> f64 {
    let times: Vec<f64> = (0..passes)
        .map(|_| {
            let start = std::time::Instant::now();
            for words in &packets.0 {
                black_box(TriggerPacketView::new_checked(black_box(words)).is_ok());
            }
            start.elapsed().as_secs_f64() * 1e9 / packets.0.len() as f64
        })
        .collect();
    median(&times)
}

/// Memory that shares no cache line with what another thread writes.
#[repr(align(128))]
struct Apart<T>(T);

/// Makes a value on a thread of its own, whose small allocations lie apart from those of this one.
fn on_a_heap_apart<T: Send>(make: impl FnOnce() -> T + Send) -> Result<T, BenchError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, make);
        let thread = thread.map_err(FloorError::NoThread)?;
        thread.join().map_err(|_| BenchError::Thread)
    })
}

/// Ticks of the work for each packet on one thread, the shorter of two passes.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a reply does not come.
pub(crate) fn work_alone(
    menu: &Menu,
    packets: usize,
    mut packet_of: impl FnMut(usize, &mut Vec<u32>) + Send,
    clock: &TscClock,
) -> Result<Vec<u64>, BenchError> {
    run_alone(|| {
        let mut words = Vec::with_capacity(WORDS_MAX as usize);
        let mut work = vec![u64::MAX; packets];
        for _pass in 0..2 {
            let mut ends = Loop::new(menu)?;
            for (place, shorter) in work.iter_mut().enumerate() {
                let start = clock.ticks();
                packet_of(place, &mut words);
                let preparing = clock.ticks() - start;
                *shorter = (*shorter).min(preparing + ends.work(&words, clock)?);
            }
        }
        Ok(work)
    })
}

/// Both ends of the loop, which keep their links, pools and rings from block to block.
pub(crate) struct Loop {
    link: Apart<PacketLink>,
    rings: Apart<TriggerRings>,
    node: Apart<TriggerNode>,
    /// Decides as the node must, on the same packets in the same order.
    reference: LevelTwoNode,
    clock: RunClock,
    next_event: u64,
    decisions: u64,
    wrong: u64,
}

/// The two ends of a loop before anything runs on them.
pub(crate) struct LoopParts {
    link: Apart<PacketLink>,
    rings: Apart<TriggerRings>,
    pub(crate) node: TriggerNodeParts,
}

/// Links, pools and rings of a loop whose packets and replies have at most `words_max` words.
pub(crate) fn loop_parts(menu: &Menu, words_max: u32) -> Result<LoopParts, BenchError> {
    let default = LinkConfig::default();
    let config = LinkConfig {
        pages: 256,
        // Control words and rounding need a little more than the packet.
        page_words: default.page_words.max(words_max + 64),
        fragment_words_max: words_max,
        ..default
    };
    let message_ring = || {
        ring(&RingConfig {
            slots: config.pages,
            slot_words: slot_words(&config) as u32,
        })
    };
    let (packets_out, packets) = message_ring()?;
    let (replies_out, replies) = message_ring()?;
    let node = TriggerNodeParts {
        packet_log: None,
        id: "trg0".to_owned(),
        node: LevelTwoNode::new(LevelTwo::new(menu), RUN),
        merger: None,
        packets,
        return_link: PacketLink::for_packets(config.clone()),
        replies: replies_out,
        block: CounterBlock::new(),
    };
    Ok(LoopParts {
        link: on_a_heap_apart(|| Apart(PacketLink::for_packets(config)))?,
        rings: Apart(TriggerRings {
            packets: packets_out,
            replies,
        }),
        node,
    })
}

impl LoopParts {
    /// The front-end's end, and the other one as it is.
    pub(crate) fn split<'a>(
        &'a mut self,
        run_clock: &'a RunClock,
    ) -> (FrontEndSide<'a>, &'a mut TriggerNodeParts) {
        let front_end = FrontEndSide {
            link: &mut self.link.0,
            rings: &mut self.rings.0,
            run_clock,
            now: run_clock.now(),
        };
        (front_end, &mut self.node)
    }
}

impl Loop {
    pub(crate) fn new(menu: &Menu) -> Result<Self, BenchError> {
        let LoopParts { link, rings, node } = loop_parts(menu, WORDS_MAX)?;
        Ok(Self {
            link,
            rings,
            node: Apart(TriggerNode::new(node)),
            reference: LevelTwoNode::new(LevelTwo::new(menu), RUN),
            clock: RunClock::start(),
            next_event: 0,
            decisions: 0,
            wrong: 0,
        })
    }

    /// The two ends, and the clock that both give to their links.
    pub(crate) fn ends(&mut self) -> (FrontEndSide<'_>, &mut TriggerNode, &RunClock) {
        let Self {
            link,
            rings,
            node,
            clock,
            ..
        } = self;
        let front_end = FrontEndSide {
            link: &mut link.0,
            rings: &mut rings.0,
            run_clock: clock,
            now: clock.now(),
        };
        (front_end, &mut node.0, clock)
    }

    /// A loop through which a packet went many times, so that its pages and tables are in memory; for
    /// menus that decide on a packet whatever came before it.
    ///
    /// # Errors
    /// [`BenchError::Stuck`] when no reply comes.
    pub(crate) fn warmed_up(menu: &Menu, packet: &[u32]) -> Result<Self, BenchError> {
        let mut warm = Self::new(menu)?;
        let clock = TscClock::of_process();
        for _ in 0..FIRST_PASSAGES {
            warm.work(packet, &clock)?;
        }
        Ok(warm)
    }

    /// Does the work of both ends for a packet on this one thread; its time in ticks.
    ///
    /// # Errors
    /// [`BenchError::Stuck`] when no reply comes.
    pub(crate) fn work(&mut self, packet: &[u32], clock: &TscClock) -> Result<u64, BenchError> {
        let (mut front_end, node, run_clock) = self.ends();
        let start = clock.ticks();
        front_end.pump();
        front_end.send(packet);
        for _ in 0..TURNS_MAX {
            node.poll(run_clock.now(), Phase::Running);
            if front_end.take_reply()?.is_some() {
                return Ok(clock.ticks() - start);
            }
        }
        Err(BenchError::Stuck)
    }

    /// Sends events one after the other and times each until its reply.
    fn measure(
        &mut self,
        packets: &Packets,
        events: u32,
        clock: &TscClock,
    ) -> Result<Samples, BenchError> {
        let events = events + WARM_UP;
        let first = self.next_event;
        self.next_event += u64::from(events);
        let expected: Vec<Option<L2Reply>> = (first..self.next_event)
            .map(|event| self.reference.handle_packet(packets.of(event)).ok())
            .map(|answer| answer.map(|answer| answer.reply))
            .collect();
        let over = AtomicBool::new(false);
        let (front_end, node, run_clock) = self.ends();
        let ((samples_ns, wrong), ()) = run_pair(
            |patience| {
                let measured = front_end.send_all(packets, first, &expected, clock, patience);
                // Release pairs with the Acquire below.
                over.store(true, Ordering::Release);
                measured
            },
            |mut patience| {
                while !over.load(Ordering::Acquire) {
                    if node.poll(run_clock.now(), Phase::Running) == 0 {
                        patience.idle()?;
                    } else {
                        patience.restart();
                    }
                }
                Ok(())
            },
        )?;
        self.decisions += u64::from(events);
        self.wrong += wrong;
        Ok(Samples::from_unsorted(samples_ns))
    }
}

/// What the front-end does with the trigger link and the return link, as in its role.
pub(crate) struct FrontEndSide<'a> {
    pub(crate) link: &'a mut PacketLink,
    rings: &'a mut TriggerRings,
    run_clock: &'a RunClock,
    /// Read once in a duty cycle, as a worker does.
    now: RunNs,
}

impl FrontEndSide<'_> {
    fn send_all(
        mut self,
        packets: &Packets,
        first: u64,
        expected: &[Option<L2Reply>],
        clock: &TscClock,
        mut patience: Patience<'_>,
    ) -> Result<(Vec<u64>, u64), BenchError> {
        let mut samples_ns = Vec::with_capacity(expected.len());
        let mut wrong = 0;
        for (event, expected) in (first..).zip(expected) {
            self.pump();
            patience.restart();
            let start = clock.ticks();
            self.send(packets.of(event));
            let reply = loop {
                if let Some(reply) = self.take_reply()? {
                    break reply;
                }
                patience.idle()?;
            };
            samples_ns.push(clock.ticks_to_ns(clock.ticks().wrapping_sub(start)));
            wrong += u64::from(reply != *expected);
        }
        samples_ns.drain(..WARM_UP as usize);
        Ok((samples_ns, wrong))
    }

    /// Sends a packet, in the duty cycle that began with [`Self::pump`].
    pub(crate) fn send(&mut self, packet: &[u32]) {
        self.link.send(|words| {
            words.clear();
            words.extend_from_slice(packet);
        });
        self.link.pump(self.now);
        self.link.pass_on(0, &mut self.rings.packets);
    }

    /// Begins a duty cycle: what the role does with its link when nothing came.
    pub(crate) fn pump(&mut self) {
        self.now = self.run_clock.now();
        self.link.pump(self.now);
        self.link.pass_on(0, &mut self.rings.packets);
        self.link.poll_flow(self.now);
    }

    /// Whether a reply is here, which looks at its slot alone.
    #[inline]
    pub(crate) fn has_reply(&mut self) -> bool {
        !self.rings.replies.is_empty()
    }

    /// The next reply; `Some(None)` for words that are none.
    pub(crate) fn take_reply(&mut self) -> Result<Option<Option<L2Reply>>, BenchError> {
        self.take_words(|words| L2Reply::parse(words).ok())
    }

    /// What `read` makes of the words of the next reply; `Some(None)` for a damaged one.
    pub(crate) fn take_words<T>(
        &mut self,
        read: impl FnOnce(&[u32]) -> Option<T>,
    ) -> Result<Option<Option<T>>, BenchError> {
        let taken = self.rings.replies.try_pop(|message| {
            let (entry, words) = Completion::parse_with_words(message).ok()?;
            read(words).filter(|_| entry.completed.status.is_good())
        })?;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reply_is_compared_with_the_reference() {
        let clock = TscClock::of_process();
        let packets = Packets::new();
        let mut right = Loop::new(&menu_of_sixteen()).unwrap();
        let samples = right.measure(&packets, 300, &clock).unwrap();
        assert_eq!((samples.count(), right.wrong), (300, 0));
        // A reference with another menu finds every decision wrong that differs.
        let mut wrong = Loop::new(&menu_of_sixteen()).unwrap();
        wrong.reference = LevelTwoNode::new(LevelTwo::new(&menu_without_cuts()), RUN);
        wrong.measure(&packets, 300, &clock).unwrap();
        assert!(wrong.wrong > 0);
    }
}
