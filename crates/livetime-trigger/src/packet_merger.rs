//! The merger: parts of a trigger packet from several inputs become one packet.
//!
//! Each input board sends its own items (tracks, clusters, stubs, sums) with the header of the
//! trigger. A trigger is merged when every input has sent its part; items stand in the order of the
//! inputs whatever the order of arrival, so the result is the packet that one board would have sent.
//! Several decision nodes behind a merger share its packets by [`node_of`]. The merger decides
//! nothing; a trigger whose part never comes is closed by the timeout of [`crate::supervisor`].
//!
//! Budget: a part is copied once and read once more when its trigger is complete. Nothing is
//! allocated after construction; at most [`SLOTS`] triggers are held.

use std::collections::VecDeque;

use livetime_wire::trigger_packet::{
    FLAG_TRUNCATED, TriggerPacket, TriggerPacketView, WORDS_MAX_DEFAULT,
};
use livetime_wire::{DurationNs, Problem, RunNs};

use crate::level_two_node::MalformedCounts;
use crate::problem_code::MERGER;
use crate::supervisor::SupervisorConfig;

/// Most inputs.
pub const INPUTS_MAX: usize = 16;
/// Triggers held at once: twice the Level-2 buffers, since a trigger that timed out at the supervisor
/// may still wait for a part here.
pub const SLOTS: usize = 8;
/// Most items of a block.
const ITEMS_MAX: usize = 255;

/// Parameters of the merger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergerConfig {
    /// Inputs, 1 to 16. Default 2.
    pub inputs: usize,
    /// Most words of a part and of the merged packet, 10 to 65 535. Default 510; beyond it items are
    /// dropped as the front-end drops them.
    pub words_max: usize,
    /// A trigger is given up when a part is missing for so long. Default 1 ms, at most 60 s: longer
    /// than the inputs are apart, shorter than the decision timeout.
    pub timeout: DurationNs,
}

impl Default for MergerConfig {
    fn default() -> Self {
        Self {
            inputs: 2,
            words_max: WORDS_MAX_DEFAULT,
            timeout: DurationNs(1_000_000),
        }
    }
}

impl MergerConfig {
    /// Longest [`MergerConfig::timeout`]: that of the supervisor.
    pub const TIMEOUT_MAX: DurationNs = SupervisorConfig::TIMEOUT_MAX;

    /// A single input, whose packets are whole: no merger is needed.
    pub const NONE: Self = Self {
        inputs: 1,
        words_max: WORDS_MAX_DEFAULT,
        timeout: DurationNs(1_000_000),
    };

    /// Checks the values; `path` is the prefix of their keys, such as `merger`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut report = |key: &str, found: String, allowed: String, help: &str| {
            problems.push(Problem::new(
                MERGER,
                format!("{path}.{key}"),
                found,
                allowed,
                help,
            ));
        };
        if !(1..=INPUTS_MAX).contains(&self.inputs) {
            let help = "merge in two stages when there are more inputs";
            let allowed = format!("1 to {INPUTS_MAX}");
            report("inputs", self.inputs.to_string(), allowed, help);
        }
        if !(10..=65_535).contains(&self.words_max) {
            let help = "510 holds all but absurd events";
            let allowed = "10 to 65535".to_owned();
            report("words_max", self.words_max.to_string(), allowed, help);
        }
        if !(1..=Self::TIMEOUT_MAX.0).contains(&self.timeout.0) {
            let help = "wait longer than the inputs are apart, shorter than `decision_timeout`";
            let allowed = format!("more than 0, at most {}", Self::TIMEOUT_MAX);
            report("timeout", self.timeout.to_string(), allowed, help);
        }
        problems
    }
}

/// What became of the parts of one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InputCounters {
    /// Parts that came, good or not.
    pub parts: u64,
    /// Of these, not well formed.
    pub malformed: MalformedCounts,
    /// Longer than a packet may be.
    pub too_long: u64,
    /// A second part for a trigger that had one of this input.
    pub duplicate: u64,
    /// With another header than the other parts of its trigger.
    pub disagrees: u64,
    /// For a trigger that had been given up.
    pub late: u64,
    /// Triggers given up because this input had sent nothing.
    pub missing: u64,
}

/// What the merger did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergerCounters {
    /// Packets merged.
    pub merged: u64,
    /// Of these, items had to be dropped to fit the limit here.
    pub truncated: u64,
    /// Triggers given up by timeout.
    pub timed_out: u64,
    /// Triggers given up to make room for a newer one.
    pub pushed_out: u64,
}

/// Why a part is not taken; it is counted already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// There is no such input.
    #[error("input {found} does not exist, there are {inputs}")]
    Input {
        /// Which was named.
        found: usize,
        /// How many there are.
        inputs: usize,
    },
    /// It is not well formed.
    #[error(transparent)]
    Packet(#[from] livetime_wire::trigger_packet::PacketError),
    /// It is longer than a packet may be.
    #[error("part has {words} words, at most {words_max} are allowed")]
    TooLong {
        /// Its words.
        words: usize,
        /// Most words.
        words_max: usize,
    },
    /// The input had sent its part of this trigger.
    #[error("input {input} sent a second part of trigger {trigger_low:#010x}")]
    Duplicate {
        /// Which input.
        input: usize,
        /// Low bits of the trigger number.
        trigger_low: u32,
    },
    /// Its header is not that of the trigger's other parts.
    #[error("header of input {input} for trigger {trigger_low:#010x} is not that of the others")]
    Disagrees {
        /// Which input.
        input: usize,
        /// Low bits of the trigger number.
        trigger_low: u32,
    },
    /// Its trigger had been given up.
    #[error("trigger {trigger_low:#010x} was given up before the part of input {input} came")]
    Late {
        /// Which input.
        input: usize,
        /// Low bits of the trigger number.
        trigger_low: u32,
    },
}

/// A trigger whose parts are coming in.
#[derive(Debug, Clone)]
struct Slot {
    trigger_low: u32,
    since: RunNs,
    /// One bit for each input that has sent.
    have: u32,
    /// Words of each input's part; storage is kept.
    parts: Vec<Vec<u32>>,
}

/// The merger.
#[derive(Debug, Clone)]
pub struct PacketMerger {
    config: MergerConfig,
    free: Vec<Slot>,
    /// Incomplete ones, the oldest first.
    waiting: VecDeque<Slot>,
    /// Complete ones in the order of their completion.
    complete: VecDeque<Slot>,
    /// Triggers given up last, so that their late parts do not open them anew.
    given_up: VecDeque<u32>,
    packet: TriggerPacket,
    inputs: Vec<InputCounters>,
    counters: MergerCounters,
}

/// The decision node, of `nodes`, that gets a trigger: in turn, so that each decides on the same
/// triggers in every repetition of a run, and their prescales with it.
///
/// # Panics
/// If there is no node.
#[inline]
pub fn node_of(trigger_low: u32, nodes: usize) -> usize {
    assert!(nodes > 0, "someone has to decide");
    trigger_low as usize % nodes
}

impl PacketMerger {
    /// A merger that has seen nothing.
    ///
    /// # Errors
    /// All problems that [`MergerConfig::validate`] finds; `path` is the prefix of their keys.
    pub fn new_checked(config: MergerConfig, path: &str) -> Result<Self, Vec<Problem>> {
        let problems = config.validate(path);
        if !problems.is_empty() {
            return Err(problems);
        }
        let slot = || Slot {
            trigger_low: 0,
            since: RunNs(0),
            have: 0,
            parts: (0..config.inputs)
                .map(|_| Vec::with_capacity(config.words_max))
                .collect(),
        };
        let mut packet = TriggerPacket::default();
        let items = ITEMS_MAX * config.inputs;
        packet.xtrp.reserve(items);
        packet.svt.reserve(items);
        packet.clusters.reserve(items);
        packet.muons.reserve(items);
        Ok(Self {
            config,
            free: (0..SLOTS).map(|_| slot()).collect(),
            waiting: VecDeque::with_capacity(SLOTS),
            complete: VecDeque::with_capacity(SLOTS),
            given_up: VecDeque::with_capacity(SLOTS),
            packet,
            inputs: vec![InputCounters::default(); config.inputs],
            counters: MergerCounters::default(),
        })
    }

    /// Whether a part can be taken: false while complete packets hold all room, until one is
    /// fetched.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.complete.len() < SLOTS
    }

    /// Takes the words of one part, without the control words of its link.
    ///
    /// # Errors
    /// A [`PartError`] that is already counted; other inputs and triggers are not touched.
    ///
    /// # Panics
    /// If there is no room: ask [`PacketMerger::has_room`] first.
    pub fn handle_part(
        &mut self,
        now: RunNs,
        input: usize,
        words: &[u32],
    ) -> Result<(), PartError> {
        assert!(
            self.has_room(),
            "complete packets are fetched before more parts are given"
        );
        let (words_max, inputs) = (self.config.words_max, self.inputs.len());
        let counters = self.inputs.get_mut(input).ok_or(PartError::Input {
            found: input,
            inputs,
        })?;
        counters.parts += 1;
        if words.len() > words_max {
            counters.too_long += 1;
            return Err(PartError::TooLong {
                words: words.len(),
                words_max,
            });
        }
        let part = TriggerPacketView::new_checked(words)
            .inspect_err(|error| counters.malformed.add(error))?;
        let trigger_low = part.trigger_low();
        let is_here = |slot: &Slot| slot.trigger_low == trigger_low;
        if self.complete.iter().any(is_here) {
            counters.duplicate += 1;
            return Err(PartError::Duplicate { input, trigger_low });
        }
        let position = self.waiting.iter().position(is_here);
        if position.is_none() && self.given_up.contains(&trigger_low) {
            counters.late += 1;
            return Err(PartError::Late { input, trigger_low });
        }
        let position = position.unwrap_or_else(|| self.open(now, trigger_low));
        self.add(position, input, &part)
    }

    /// Files a part with its trigger.
    fn add(
        &mut self,
        position: usize,
        input: usize,
        part: &TriggerPacketView<'_>,
    ) -> Result<(), PartError> {
        let slot = &mut self.waiting[position];
        let counters = &mut self.inputs[input];
        let trigger_low = slot.trigger_low;
        if slot.have >> input & 1 == 1 {
            counters.duplicate += 1;
            return Err(PartError::Duplicate { input, trigger_low });
        }
        let first = slot.have.trailing_zeros() as usize;
        let agrees = slot
            .parts
            .get(first)
            .is_none_or(|other| header_of(other) == header_of(part.words()));
        if !agrees {
            counters.disagrees += 1;
            return Err(PartError::Disagrees { input, trigger_low });
        }
        slot.parts[input].clear();
        slot.parts[input].extend_from_slice(part.words());
        slot.have |= 1 << input;
        if slot.have.count_ones() as usize == self.inputs.len() {
            let slot = self.waiting.remove(position);
            self.complete.extend(slot);
        }
        Ok(())
    }

    /// A slot for a new trigger, as its place among those that wait.
    fn open(&mut self, now: RunNs, trigger_low: u32) -> usize {
        let mut slot = self.free.pop().unwrap_or_else(|| {
            self.counters.pushed_out += 1;
            let oldest = self.waiting.pop_front();
            let oldest = oldest.expect("not all slots are complete, so one waits");
            self.note_given_up(&oldest);
            oldest
        });
        (slot.trigger_low, slot.since, slot.have) = (trigger_low, now, 0);
        self.waiting.push_back(slot);
        self.waiting.len() - 1
    }

    /// Counts who is missing and remembers the trigger.
    #[inline]
    fn note_given_up(&mut self, slot: &Slot) {
        for (input, counters) in self.inputs.iter_mut().enumerate() {
            counters.missing += u64::from(slot.have >> input & 1 == 0);
        }
        if self.given_up.len() == SLOTS {
            self.given_up.pop_front();
        }
        self.given_up.push_back(slot.trigger_low);
    }

    /// When [`PacketMerger::handle_timeout`] is to be called next; `None` if nothing waits.
    #[inline]
    pub fn poll_timeout(&self) -> Option<RunNs> {
        let oldest = self.waiting.front()?;
        Some(oldest.since.after(self.config.timeout))
    }

    /// Gives up the triggers whose time is over.
    #[inline]
    pub fn handle_timeout(&mut self, now: RunNs) {
        while self.poll_timeout().is_some_and(|due| due <= now) {
            let Some(slot) = self.waiting.pop_front() else {
                return;
            };
            self.counters.timed_out += 1;
            self.note_given_up(&slot);
            self.free.push(slot);
        }
    }

    /// Writes the next merged packet over the contents of `out`; false if there is none.
    pub fn poll_output(&mut self, out: &mut Vec<u32>) -> bool {
        let Some(slot) = self.complete.pop_front() else {
            return false;
        };
        self.packet.clear_items();
        let mut flags = 0;
        for words in &slot.parts {
            let part = TriggerPacketView::new_checked(words)
                .expect("a part is checked before it is filed");
            let packet = &mut self.packet;
            flags |= part.flags();
            packet.l2_buffer = part.l2_buffer();
            packet.bunch = part.bunch();
            packet.trigger_low = part.trigger_low();
            packet.l1_bits = part.l1_bits();
            packet.run = part.run();
            packet.lumi_section = part.lumi_section();
            packet.time_stamp = part.time_stamp();
            packet.xtrp.extend(part.xtrp());
            packet.svt.extend(part.svt());
            packet.clusters.extend(part.clusters());
            packet.muons.extend(part.muons());
            packet.sums = packet.sums.or(part.sums());
        }
        self.packet.flags = flags;
        let dropped = self.packet.truncate(self.config.words_max);
        self.packet.emit(out);
        self.counters.merged += 1;
        self.counters.truncated += u64::from(dropped > 0);
        self.free.push(slot);
        true
    }

    /// What was done so far.
    pub fn counters(&self) -> &MergerCounters {
        &self.counters
    }

    /// What became of the parts of each input.
    #[inline]
    pub fn inputs(&self) -> &[InputCounters] {
        &self.inputs
    }
}

/// What all parts of a trigger must agree in: the header but the block count and the truncation.
#[inline]
fn header_of(words: &[u32]) -> [u32; 6] {
    let truncated = u32::from(FLAG_TRUNCATED) << 16;
    let first = words[0] & !0xFF & !truncated;
    [first, words[1], words[2], words[3], words[4], words[5]]
}

#[cfg(test)]
mod tests {
    use livetime_wire::trigger_packet::{Cluster, MuonStub, Sums, SvtTrack, XtrpTrack};

    use super::*;

    fn merger(inputs: usize) -> PacketMerger {
        let config = MergerConfig {
            inputs,
            ..MergerConfig::default()
        };
        PacketMerger::new_checked(config, "merger").unwrap()
    }

    fn words(packet: &TriggerPacket) -> Vec<u32> {
        let mut words = Vec::new();
        packet.emit(&mut words);
        words
    }

    fn header(trigger_low: u32) -> TriggerPacket {
        TriggerPacket {
            trigger_low,
            l2_buffer: (trigger_low % 4) as u8,
            l1_bits: 0b1011,
            run: 7,
            time_stamp: 99,
            ..TriggerPacket::default()
        }
    }

    /// A packet with items of every kind, and its parts: tracks, and the rest.
    fn split(trigger_low: u32) -> (TriggerPacket, [TriggerPacket; 2]) {
        let tracks = TriggerPacket {
            xtrp: vec![XtrpTrack(1), XtrpTrack(2)],
            svt: vec![SvtTrack([3, 4]), SvtTrack([5, 6])],
            ..header(trigger_low)
        };
        let rest = TriggerPacket {
            clusters: vec![Cluster([7, 8])],
            muons: vec![MuonStub(9)],
            sums: Some(Sums::new(10, 11, 12)),
            ..header(trigger_low)
        };
        let whole = TriggerPacket {
            xtrp: tracks.xtrp.clone(),
            svt: tracks.svt.clone(),
            ..rest.clone()
        };
        (whole, [tracks, rest])
    }

    #[test]
    fn parts_in_any_order_make_the_packet_of_one_board() {
        let mut merger = merger(2);
        let mut out = Vec::new();
        for (trigger, order) in [(1, [0, 1]), (2, [1, 0])] {
            let (whole, parts) = split(trigger);
            for input in order {
                assert!(!merger.poll_output(&mut out));
                let part = words(&parts[input]);
                merger.handle_part(RunNs(0), input, &part).unwrap();
            }
            assert!(merger.poll_output(&mut out));
            assert_eq!(out, words(&whole));
        }
        assert_eq!(merger.counters().merged, 2);
        assert_eq!(merger.poll_timeout(), None);
    }

    #[test]
    fn a_missing_part_is_named_and_its_late_coming_opens_nothing() {
        let mut merger = merger(2);
        let (_, parts) = split(5);
        merger.handle_part(RunNs(10), 1, &words(&parts[1])).unwrap();
        assert_eq!(merger.poll_timeout(), Some(RunNs(1_000_010)));
        merger.handle_timeout(RunNs(1_000_009));
        assert_eq!(merger.counters().timed_out, 0);
        merger.handle_timeout(RunNs(1_000_010));
        assert_eq!(merger.counters().timed_out, 1);
        let missing: Vec<u64> = merger.inputs().iter().map(|input| input.missing).collect();
        assert_eq!(missing, [1, 0]);
        let late = merger.handle_part(RunNs(2_000_000), 0, &words(&parts[0]));
        let (input, trigger_low) = (0, 5);
        assert_eq!(late, Err(PartError::Late { input, trigger_low }));
        assert_eq!(merger.poll_timeout(), None);
        assert!(!merger.poll_output(&mut Vec::new()));
    }

    #[test]
    fn bad_parts_are_counted_by_input_and_harm_no_other() {
        let mut merger = merger(2);
        let (whole, parts) = split(5);
        let [tracks, rest] = [words(&parts[0]), words(&parts[1])];
        merger.handle_part(RunNs(0), 0, &tracks).unwrap();
        let mut damaged = rest.clone();
        damaged[7] ^= 1;
        assert!(matches!(
            merger.handle_part(RunNs(0), 1, &damaged),
            Err(PartError::Packet(_))
        ));
        let stranger = TriggerPacket {
            l1_bits: 1,
            ..parts[1].clone()
        };
        let disagrees = merger.handle_part(RunNs(0), 1, &words(&stranger));
        assert!(matches!(disagrees, Err(PartError::Disagrees { .. })));
        let twice = merger.handle_part(RunNs(0), 0, &tracks);
        assert!(matches!(twice, Err(PartError::Duplicate { .. })));
        let nobody = merger.handle_part(RunNs(0), 2, &tracks);
        assert!(matches!(nobody, Err(PartError::Input { .. })));
        let long = merger.handle_part(RunNs(0), 0, &[0; 511]);
        assert!(matches!(long, Err(PartError::TooLong { .. })));
        merger.handle_part(RunNs(0), 1, &rest).unwrap();
        let again = merger.handle_part(RunNs(0), 1, &rest);
        assert!(matches!(again, Err(PartError::Duplicate { .. })));
        let mut out = Vec::new();
        assert!(merger.poll_output(&mut out));
        assert_eq!(out, words(&whole));
        let [first, second] = merger.inputs() else {
            panic!("there are two")
        };
        assert_eq!((first.parts, first.duplicate, first.too_long), (3, 1, 1));
        assert_eq!((second.parts, second.malformed.crc), (4, 1));
        assert_eq!((second.disagrees, second.duplicate), (1, 1));
    }

    #[test]
    fn the_ninth_incomplete_trigger_pushes_out_the_oldest() {
        let mut merger = merger(2);
        for trigger in 1..=9 {
            let (_, parts) = split(trigger);
            merger.handle_part(RunNs(0), 0, &words(&parts[0])).unwrap();
        }
        assert_eq!(merger.counters().pushed_out, 1);
        let (_, parts) = split(1);
        let late = merger.handle_part(RunNs(0), 1, &words(&parts[1]));
        assert!(matches!(late, Err(PartError::Late { .. })));
        assert_eq!(merger.inputs()[1].missing, 1);
    }

    #[test]
    fn room_ends_when_nobody_fetches() {
        let mut merger = merger(1);
        for trigger in 0..SLOTS as u32 {
            assert!(merger.has_room());
            merger
                .handle_part(RunNs(0), 0, &words(&header(trigger)))
                .unwrap();
        }
        assert!(!merger.has_room());
        assert!(merger.poll_output(&mut Vec::new()));
        assert!(merger.has_room());
    }

    #[test]
    fn merged_packets_keep_to_the_limit() {
        let mut merger = PacketMerger::new_checked(
            MergerConfig {
                words_max: 12,
                ..MergerConfig::default()
            },
            "merger",
        )
        .unwrap();
        let part = |item| {
            words(&TriggerPacket {
                xtrp: vec![XtrpTrack(item), XtrpTrack(item + 1)],
                ..header(3)
            })
        };
        merger.handle_part(RunNs(0), 0, &part(1 << 16)).unwrap();
        merger.handle_part(RunNs(0), 1, &part(5 << 16)).unwrap();
        let mut out = Vec::new();
        assert!(merger.poll_output(&mut out));
        assert_eq!(
            (out.len(), merger.counters().truncated),
            (12, 0),
            "they just fit"
        );
        let three = words(&TriggerPacket {
            xtrp: vec![XtrpTrack(1 << 16), XtrpTrack(2 << 16), XtrpTrack(3 << 16)],
            ..header(3)
        });
        merger.handle_part(RunNs(0), 0, &three).unwrap();
        merger.handle_part(RunNs(0), 1, &part(5 << 16)).unwrap();
        assert!(merger.poll_output(&mut out));
        let view = TriggerPacketView::new_checked(&out).unwrap();
        assert_eq!(view.flags(), FLAG_TRUNCATED);
        let codes: Vec<u32> = view.xtrp().map(XtrpTrack::pt_code).collect();
        assert_eq!(codes, [2, 3, 5, 5], "the lowest pT went");
        assert_eq!(merger.counters().truncated, 1);
    }

    #[test]
    fn unusable_parameters_are_all_named() {
        let broken = MergerConfig {
            inputs: 17,
            words_max: 9,
            timeout: DurationNs(0),
        };
        let problems = PacketMerger::new_checked(broken, "merger").unwrap_err();
        let paths: Vec<_> = problems.iter().map(|p| p.path.as_str()).collect();
        assert_eq!(
            paths,
            ["merger.inputs", "merger.words_max", "merger.timeout"]
        );
    }
}
