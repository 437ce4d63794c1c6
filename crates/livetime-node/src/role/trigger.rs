//! A trigger node: packets in, decisions back over the return link.
//!
//! Drives `LevelTwoNode`. A packet that is damaged gets no reply: a decision on it would be a
//! guess, and the supervisor's timeout names the trigger. What the menu says is in
//! `livetime_trigger::level_two`.

use std::sync::Arc;

use livetime_shm::{Consumer, Producer};
use livetime_trigger::{LevelTwoNode, PacketMerger};
use livetime_wire::RunNs;

use super::{Role, RoleResult};
use crate::completion::Completion;
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::packet_link::PacketLink;
use crate::packet_log::PacketLog;
use crate::worker::Phase;

/// Packets handled in one duty cycle, so that other roles of the worker get their turn.
const PACKETS_PER_POLL: usize = 16;
/// Words of the longest packet.
const MERGED_WORDS: usize = 65_535;

/// Everything that a trigger node is made of.
pub struct TriggerNodeParts {
    /// Role id.
    pub id: String,
    /// The core.
    pub node: LevelTwoNode,
    /// Makes packets of the parts of several inputs, if there are several.
    pub merger: Option<PacketMerger>,
    /// Trigger packets in.
    pub packets: Consumer,
    /// The return link.
    pub return_link: PacketLink,
    /// Replies out.
    pub replies: Producer,
    /// Where packets are recorded, if they are.
    pub packet_log: Option<PacketLog>,
    /// Where the counters are published.
    pub block: Arc<CounterBlock>,
}

/// The trigger node role.
pub struct TriggerNode {
    parts: TriggerNodeParts,
    /// Words of a packet out of the merger.
    merged: Vec<u32>,
    counts: RoleCounts,
    foreign: u64,
    unreadable: u64,
    /// Of the run, at the last duty cycle.
    phase: Phase,
}

impl TriggerNode {
    /// A node at the start of its run.
    pub fn new(parts: TriggerNodeParts) -> Self {
        Self {
            parts,
            merged: Vec::with_capacity(MERGED_WORDS),
            counts: RoleCounts::default(),
            foreign: 0,
            unreadable: 0,
            phase: Phase::Running,
        }
    }

    /// Whether a duty cycle would find nothing to do: no packet is here and every reply is out.
    #[inline]
    pub fn is_waiting(&mut self) -> bool {
        let TriggerNodeParts {
            merger,
            packets,
            return_link,
            ..
        } = &mut self.parts;
        packets.is_empty() && return_link.is_settled() && merger.is_none()
    }

    /// Decides on the next packet; `false` when there is none or no way for the reply.
    fn decide_next(&mut self, now: RunNs) -> bool {
        let Self {
            parts,
            merged,
            counts,
            foreign,
            unreadable,
            ..
        } = self;
        let TriggerNodeParts {
            node,
            merger,
            packets,
            return_link,
            replies,
            packet_log,
            ..
        } = parts;
        let log_is_ready = packet_log.as_mut().is_none_or(PacketLog::is_ready);
        if !return_link.is_idle() || !log_is_ready {
            return false;
        }
        let taken = packets.try_pop(|message| {
            let Ok((entry, words)) = Completion::parse_with_words(message) else {
                *foreign += 1;
                return;
            };
            counts.gauges.received += 1;
            counts.gauges.bytes += words.len() as u64 * 4;
            // A packet in several pages is longer than a packet may be: none of its parts is good.
            if !entry.completed.status.is_good() {
                *unreadable += 1;
                return;
            }
            let packet = match merger {
                None => words,
                Some(merger) => {
                    let taken = merger.handle_part(now, usize::from(entry.link), words);
                    if taken.is_err() || !merger.poll_output(merged) {
                        return;
                    }
                    merged
                }
            };
            let Ok(decision) = node.handle_packet(packet) else {
                return;
            };
            let reply = decision.reply;
            return_link.send(|out| {
                out.clear();
                out.extend_from_slice(&reply.to_words());
            });
            return_link.pump(now);
            // The reply goes first: it is waited for, and stores reach the other core in their
            // order.
            return_link.pass_on(0, replies);
            if let Some(log) = packet_log {
                log.record(now, reply.trigger_low, reply.mask, packet);
            }
        });
        matches!(taken, Ok(Some(())))
    }

    /// Moves replies on.
    #[inline]
    fn pump_replies(&mut self, now: RunNs) -> usize {
        let TriggerNodeParts {
            return_link,
            replies,
            ..
        } = &mut self.parts;
        // What a packet that comes now would wait for.
        if return_link.is_settled() {
            return 0;
        }
        return_link.pump(now);
        return_link.poll_flow(now);
        return_link.pass_on(0, replies)
    }

    /// Whether it is to be said that the disk of the packets has become full, has room again, or has
    /// failed.
    fn has_news_of_disk(&self) -> bool {
        let gauges = &self.counts.gauges;
        self.parts.packet_log.as_ref().is_some_and(|log| {
            log.is_disk_full() != (gauges.disk_full == 1)
                || log.has_failed() != (gauges.failed == 1)
        })
    }

    fn publish(&mut self) {
        self.counts.gauges.idle =
            u64::from(self.parts.return_link.is_idle() && self.parts.packets.is_empty());
        if let Some(log) = &mut self.parts.packet_log {
            let gauges = &mut self.counts.gauges;
            gauges.disk_full = u64::from(log.is_disk_full());
            gauges.failed = u64::from(log.has_failed());
            gauges.idle &= u64::from(self.phase < Phase::Draining || log.drain());
        }
        self.parts.block.publish(&self.counts);
    }
}

impl Role for TriggerNode {
    fn id(&self) -> &str {
        &self.parts.id
    }

    /// While it decides, a Level-2 buffer is taken.
    fn is_urgent(&self) -> bool {
        true
    }

    fn poll(&mut self, now: RunNs, phase: Phase) -> usize {
        let mut work = 0;
        self.phase = phase;
        if phase == Phase::Aborting
            && let Some(log) = &mut self.parts.packet_log
        {
            log.abort();
        }
        for _ in 0..PACKETS_PER_POLL {
            let decided = self.decide_next(now);
            work += usize::from(decided) + self.pump_replies(now);
            if !decided {
                break;
            }
        }
        // What lies unread may be what is missed: nothing is given up for it by a node that stood still.
        if let Some(merger) = &mut self.parts.merger
            && self.parts.packets.is_empty()
        {
            merger.handle_timeout(now);
        }
        if work > 0 || phase >= Phase::Draining || self.has_news_of_disk() {
            self.publish();
        }
        work
    }

    fn finish(mut self: Box<Self>, _now: RunNs) -> RoleResult {
        self.publish();
        let counters = *self.parts.node.counters();
        let mut details: std::collections::BTreeMap<String, u64> = [
            ("packets", counters.packets),
            ("replies", counters.replies),
            ("accepted", counters.accepted),
            ("truncated", counters.truncated),
            ("foreign_run", counters.foreign_run),
            ("malformed", counters.malformed.total()),
            ("damaged_by_link", self.unreadable),
            ("foreign_page_numbers", self.foreign),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        if let Some(log) = self.parts.packet_log.take() {
            let logged = log.finish();
            details.insert("packets_recorded".to_owned(), logged.recorded);
            details.insert("packets_unrecorded".to_owned(), logged.unrecorded);
        }
        if let Some(merger) = &self.parts.merger {
            let merged = merger.counters();
            let inputs = || merger.inputs().iter();
            for (name, count) in [
                ("merger.parts", inputs().map(|input| input.parts).sum()),
                ("merger.missing", inputs().map(|input| input.missing).sum()),
                ("merger.merged", merged.merged),
                ("merger.timed_out", merged.timed_out),
                ("merger.pushed_out", merged.pushed_out),
                ("merger.truncated", merged.truncated),
            ] {
                details.insert(name.to_owned(), count);
            }
        }
        let level_two = self.parts.node.level_two();
        for (path, counts) in level_two.paths() {
            details.insert(format!("path.{}.passed", path.name), counts.passes);
            details.insert(format!("path.{}.fired", path.name), counts.fires);
        }
        RoleResult {
            id: self.parts.id,
            counts: self.counts,
            details,
            ..RoleResult::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use livetime_readout::{BlockEnd, Completed, LinkConfig};
    use livetime_shm::{RingConfig, ring};
    use livetime_trigger::{LevelTwo, Menu, MenuConfig, MergerConfig};
    use livetime_wire::slink::FragmentStatus;
    use livetime_wire::trigger_packet::TriggerPacket;
    use livetime_wire::{DurationNs, RunNumber};

    use super::*;

    const SLOT_WORDS: u32 = 600;
    const LATER: RunNs = RunNs(10 * DurationNs::MILLISECOND.0);

    /// A node behind a merger of two inputs, which gives triggers up after 1 ms, and the way to it.
    fn merging_node() -> (TriggerNode, Producer, Consumer) {
        let message_ring = || {
            ring(&RingConfig {
                slots: 64,
                slot_words: SLOT_WORDS,
            })
        };
        let (packets_out, packets) = message_ring().expect("memory for a ring");
        let (replies, replies_in) = message_ring().expect("memory for a ring");
        let menu = Menu::new_checked(MenuConfig::default(), "trigger").expect("a valid menu");
        let merger = PacketMerger::new_checked(MergerConfig::default(), "merger");
        let node = TriggerNode::new(TriggerNodeParts {
            id: "trg0".to_owned(),
            node: LevelTwoNode::new(LevelTwo::new(&menu), RunNumber(7)),
            merger: Some(merger.expect("a valid merger")),
            packets,
            return_link: PacketLink::for_packets(LinkConfig::default()),
            replies,
            packet_log: None,
            block: CounterBlock::new(),
        });
        (node, packets_out, replies_in)
    }

    /// A part of a trigger's packet, as it comes over the link of an input.
    fn part(trigger_low: u32, input: u16) -> Vec<u32> {
        let mut words = Vec::new();
        let packet = TriggerPacket {
            trigger_low,
            run: 7,
            ..TriggerPacket::default()
        };
        packet.emit(&mut words);
        let completed = Completed {
            page: 0,
            len_words: words.len() as u32,
            status: FragmentStatus::GOOD,
            begin: None,
            end: None,
            block_end: BlockEnd::EndWord,
        };
        let entry = Completion {
            link: input,
            completed,
        };
        let mut message = entry.to_words().to_vec();
        message.append(&mut words);
        message
    }

    /// Packets merged, and triggers given up.
    fn merged(node: &TriggerNode) -> (u64, u64) {
        let merger = node.parts.merger.as_ref().expect("made with one");
        (merger.counters().merged, merger.counters().timed_out)
    }

    #[test]
    fn a_node_that_stood_still_gives_nothing_up_for_what_it_has_not_read() {
        let (mut node, mut packets, _replies) = merging_node();
        let triggers = 1..=4;
        for trigger in triggers.clone() {
            packets.try_push(&part(trigger, 0)).expect("room");
        }
        node.poll(RunNs(0), Phase::Running);
        // As much as it reads in a duty cycle comes first.
        for _ in 0..PACKETS_PER_POLL {
            packets.try_push(&[0]).expect("room");
        }
        for trigger in triggers {
            packets.try_push(&part(trigger, 1)).expect("room");
        }
        while !node.parts.packets.is_empty() {
            node.poll(LATER, Phase::Running);
        }
        assert_eq!((node.foreign, merged(&node)), (16, (4, 0)));
    }

    #[test]
    fn a_part_that_does_not_come_is_given_up() {
        let (mut node, mut packets, _replies) = merging_node();
        packets.try_push(&part(1, 0)).expect("room");
        node.poll(RunNs(0), Phase::Running);
        node.poll(LATER, Phase::Running);
        assert_eq!(merged(&node), (0, 1));
    }
}
