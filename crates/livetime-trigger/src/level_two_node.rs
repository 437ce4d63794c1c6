//! The trigger node: packet words in, reply words out.
//!
//! Checks each packet, counts what is wrong with it and answers the good ones; a packet that
//! cannot be trusted gets no reply, and the supervisor's decision timeout closes its trigger. The
//! node measures no time; latency is taken by [`crate::supervisor`].

use livetime_wire::trigger_packet::{FLAG_TRUNCATED, PacketError, TriggerPacketView};
use livetime_wire::{L2Reply, RunNumber};

use crate::level_two::{Decided, LevelTwo};

/// Bits of a run number that a packet carries.
const RUN_BITS: u32 = 0x00FF_FFFF;

/// Counters of a trigger node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounters {
    /// Packets received, good or not.
    pub packets: u64,
    /// Replies given.
    pub replies: u64,
    /// Replies with a path that fired.
    pub accepted: u64,
    /// Good packets that had lost items to the limit of a packet.
    pub truncated: u64,
    /// Well-formed packets of another run, not answered.
    pub foreign_run: u64,
    /// Packets that were not well formed, not answered.
    pub malformed: MalformedCounts,
}

impl NodeCounters {
    /// Adds those of another node.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.replies += other.replies;
        self.accepted += other.accepted;
        self.truncated += other.truncated;
        self.foreign_run += other.foreign_run;
        self.malformed.merge(&other.malformed);
    }
}

/// Malformed packets by what was wrong first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MalformedCounts {
    /// Too few words.
    pub too_short: u64,
    /// Wrong first word.
    pub magic: u64,
    /// Length in the last word not that of the packet.
    pub length: u64,
    /// Wrong CRC-16.
    pub crc: u64,
    /// A block that does not fit.
    pub block: u64,
    /// A block type that does not exist or came twice.
    pub block_type: u64,
    /// Words behind the last block.
    pub left_over: u64,
}

impl MalformedCounts {
    /// Counts one more.
    pub fn add(&mut self, error: &PacketError) {
        *match error {
            PacketError::TooShort { .. } => &mut self.too_short,
            PacketError::Magic { .. } => &mut self.magic,
            PacketError::Length { .. } => &mut self.length,
            PacketError::Crc { .. } => &mut self.crc,
            PacketError::Block { .. } => &mut self.block,
            PacketError::BlockType { .. } => &mut self.block_type,
            PacketError::LeftOver { .. } => &mut self.left_over,
        } += 1;
    }

    /// Adds those of another node.
    pub fn merge(&mut self, other: &Self) {
        self.too_short += other.too_short;
        self.magic += other.magic;
        self.length += other.length;
        self.crc += other.crc;
        self.block += other.block;
        self.block_type += other.block_type;
        self.left_over += other.left_over;
    }

    /// Names and counts, as JSON documents list them.
    pub fn entries(&self) -> [(&'static str, u64); 7] {
        [
            ("too_short", self.too_short),
            ("magic", self.magic),
            ("length", self.length),
            ("crc", self.crc),
            ("block", self.block),
            ("block_type", self.block_type),
            ("left_over", self.left_over),
        ]
    }

    /// The sum.
    #[inline]
    pub fn total(&self) -> u64 {
        self.entries().iter().map(|(_, count)| count).sum()
    }
}

/// The answer to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeReply {
    /// What goes back over the return link: [`L2Reply::to_words`].
    pub reply: L2Reply,
    /// The decision with its mask before prescale, which the reply does not carry.
    pub decided: Decided,
}

/// Why a packet gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// It is not well formed.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// It belongs to another run.
    #[error("packet is of run {found}, the low 24 bits of this run are {expected}")]
    ForeignRun {
        /// Low 24 bits of its run number.
        found: u32,
        /// Low 24 bits of this run's number.
        expected: u32,
    },
}

/// A trigger node.
#[derive(Debug, Clone)]
pub struct LevelTwoNode {
    level_two: LevelTwo,
    run_low: u32,
    counters: NodeCounters,
}

impl LevelTwoNode {
    /// A node that answers the packets of `run`.
    pub fn new(level_two: LevelTwo, run: RunNumber) -> Self {
        Self {
            level_two,
            run_low: run.0 & RUN_BITS,
            counters: NodeCounters::default(),
        }
    }

    /// Takes the words of one packet, without the control words of the link.
    ///
    /// # Errors
    /// A [`NodeError`] that is already counted; nothing is to be sent then.
    pub fn handle_packet(&mut self, words: &[u32]) -> Result<NodeReply, NodeError> {
        self.counters.packets += 1;
        let packet = TriggerPacketView::new_checked(words)
            .inspect_err(|error| self.counters.malformed.add(error))?;
        if packet.run() != self.run_low {
            self.counters.foreign_run += 1;
            return Err(NodeError::ForeignRun {
                found: packet.run(),
                expected: self.run_low,
            });
        }
        if packet.flags() & FLAG_TRUNCATED != 0 {
            self.counters.truncated += 1;
        }
        let decided = self.level_two.decide(&packet);
        self.counters.replies += 1;
        self.counters.accepted += u64::from(decided.after.is_accept());
        let reply = L2Reply {
            trigger_low: packet.trigger_low(),
            mask: decided.after,
        };
        Ok(NodeReply { reply, decided })
    }

    /// What was counted so far.
    pub fn counters(&self) -> &NodeCounters {
        &self.counters
    }

    /// The menu at work, with the counters of its paths.
    #[inline]
    pub fn level_two(&self) -> &LevelTwo {
        &self.level_two
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::crc16::crc16;
    use livetime_wire::trigger_packet::{Cluster, Sums, TriggerPacket};

    use super::*;
    use crate::menu::{Menu, MenuConfig};

    fn node() -> LevelTwoNode {
        let menu = Menu::new_checked(MenuConfig::default(), "trigger").unwrap();
        LevelTwoNode::new(LevelTwo::new(&menu), RunNumber(0x0100_002A))
    }

    fn words(edit: impl FnOnce(&mut TriggerPacket)) -> Vec<u32> {
        let mut packet = TriggerPacket {
            trigger_low: 77,
            l1_bits: 1 << 4,
            run: 42,
            sums: Some(Sums::new(1, 2, 3)),
            ..TriggerPacket::default()
        };
        edit(&mut packet);
        let mut words = Vec::new();
        packet.emit(&mut words);
        words
    }

    /// Writes length and CRC anew after the words were tampered with.
    fn resealed(mut words: Vec<u32>) -> Vec<u32> {
        let last = words.len() - 1;
        words[last] = (words.len() as u32) << 16;
        words[last] |= u32::from(crc16(&words));
        words
    }

    #[test]
    fn good_packets_are_answered_and_counted() {
        let mut node = node();
        let answer = node.handle_packet(&words(|_| {})).unwrap();
        assert_eq!(answer.reply.to_words(), [77, 1, 0, 0, 0]);
        let quiet = node
            .handle_packet(&words(|packet| packet.l1_bits = 1))
            .unwrap();
        assert_eq!(quiet.reply.to_words(), [77, 0, 0, 0, 0]);
        let cut = words(|packet| {
            packet.clusters = vec![Cluster::new(1, 0, 1, 1, 0, 0, 0); 9];
            assert!(packet.truncate(20) > 0);
        });
        node.handle_packet(&cut).unwrap();
        let expected = NodeCounters {
            packets: 3,
            replies: 3,
            accepted: 2,
            truncated: 1,
            ..NodeCounters::default()
        };
        assert_eq!(*node.counters(), expected);
        assert_eq!(node.level_two().paths().next().unwrap().1.passes, 2);
    }

    #[test]
    fn every_kind_of_malformed_packet_is_counted_under_its_name() {
        let mut node = node();
        let good = words(|_| {});
        let changed = |index: usize, word: u32| {
            let mut words = good.clone();
            words[index] = word;
            words
        };
        let cases = [
            ("too_short", good[..6].to_vec()),
            ("magic", resealed(changed(0, 0xC300_0001))),
            ("length", good[..good.len() - 1].to_vec()),
            ("crc", changed(1, 78)),
            ("block", resealed(changed(6, 0x0502_0002))),
            ("block_type", resealed(changed(6, 0x0601_0002))),
            ("left_over", resealed(changed(0, 0xC200_0000))),
        ];
        for (index, (name, words)) in cases.iter().enumerate() {
            let error = node.handle_packet(words).unwrap_err();
            assert!(matches!(error, NodeError::Packet(_)), "{name}: {error}");
            let malformed = node.counters().malformed;
            let (counted, count) = malformed.entries()[index];
            assert_eq!((counted, count), (*name, 1), "{error}");
            assert_eq!(malformed.total(), index as u64 + 1);
        }
        assert_eq!(node.counters().packets, 7);
        assert_eq!(node.counters().replies, 0);
    }

    #[test]
    fn packets_of_another_run_are_not_answered() {
        let mut node = node();
        let error = node
            .handle_packet(&words(|packet| packet.run = 43))
            .unwrap_err();
        let expected = NodeError::ForeignRun {
            found: 43,
            expected: 42,
        };
        assert_eq!(error, expected);
        assert_eq!(node.counters().foreign_run, 1);
        assert_eq!(node.level_two().paths().next().unwrap().1.passes, 0);
    }
}
