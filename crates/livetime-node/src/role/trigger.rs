//! A trigger node: packets in, decisions back over the return link.
//!
//! Drives `LevelTwoNode`. A packet that is damaged gets no reply: a decision on it would be a
//! guess, and the supervisor's timeout names the trigger. What the menu says is in
//! `livetime_trigger::level_two`.

use std::sync::Arc;

use livetime_readout::PageRead;
use livetime_shm::{Consumer, PagePool, Producer};
use livetime_trigger::{LevelTwoNode, PacketMerger};
use livetime_wire::RunNs;

use super::{Role, RoleResult};
use crate::completion::Completion;
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::emulated_link::EmulatedLink;
use crate::packet_log::PacketLog;
use crate::pooled_page::HeldPages;
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
    /// Acknowledge entries of trigger packets in.
    pub packets: Consumer,
    /// Pages of trigger packets back.
    pub packet_pages_back: Producer,
    /// Pages of the trigger link.
    pub packet_pool: PagePool,
    /// The return link.
    pub return_link: EmulatedLink,
    /// Acknowledge entries of replies out.
    pub replies: Producer,
    /// Pages of replies back.
    pub reply_pages_back: Consumer,
    /// Where packets are recorded, if they are.
    pub packet_log: Option<PacketLog>,
    /// Where the counters are published.
    pub block: Arc<CounterBlock>,
}

/// The trigger node role.
pub struct TriggerNode {
    parts: TriggerNodeParts,
    held: HeldPages,
    /// Words of a packet out of the merger.
    merged: Vec<u32>,
    counts: RoleCounts,
    foreign: u64,
    unreadable: u64,
}

impl TriggerNode {
    /// A node at the start of its run.
    pub fn new(parts: TriggerNodeParts) -> Self {
        let held = HeldPages::new(parts.packet_pool.clone(), 1);
        Self {
            parts,
            held,
            merged: Vec::with_capacity(MERGED_WORDS),
            counts: RoleCounts::default(),
            foreign: 0,
            unreadable: 0,
        }
    }

    /// Decides on the next packet; `false` when there is none or no way for the reply.
    fn decide_next(&mut self, now: RunNs) -> bool {
        let parts = &mut self.parts;
        let log_is_ready = parts.packet_log.as_mut().is_none_or(PacketLog::is_ready);
        if !parts.return_link.is_idle() || !log_is_ready {
            return false;
        }
        let Ok(Some(entry)) = parts.packets.try_pop(Completion::parse) else {
            return false;
        };
        let Ok(Completion { link, completed }) = entry else {
            self.foreign += 1;
            return true;
        };
        self.held.prepare(completed.page, completed.len_words);
        if self.held.hold(completed.page).is_err() {
            self.foreign += 1;
            return true;
        }
        self.counts.gauges.received += 1;
        self.counts.gauges.bytes += u64::from(completed.len_words) * 4;
        let words = self.held.words(completed.page);
        let words = words.get(..completed.len_words as usize).unwrap_or(&[]);
        // A packet in several pages is longer than a packet may be and is refused by its length.
        if completed.status.is_good() {
            let packet = match &mut parts.merger {
                None => Some(words),
                Some(merger) => {
                    let taken = merger.handle_part(now, usize::from(link), words);
                    let is_whole = taken.is_ok() && merger.poll_output(&mut self.merged);
                    is_whole.then_some(&self.merged[..])
                }
            };
            let reply = packet.map(|packet| (packet, parts.node.handle_packet(packet)));
            if let Some((packet, Ok(reply))) = reply {
                parts.return_link.send(|out| {
                    out.clear();
                    out.extend_from_slice(&reply.reply.to_words());
                });
                parts.return_link.pump(now);
                // The reply goes first: it is waited for, and stores reach the other core in their
                // order.
                send_replies(&mut parts.return_link, &mut parts.replies);
                if let Some(log) = &mut parts.packet_log {
                    log.record(now, reply.reply.trigger_low, reply.reply.mask, packet);
                }
            }
        } else {
            self.unreadable += 1;
        }
        self.held.clear();
        // The ring has a slot for every page of the trigger link, so this cannot fail.
        let returned = parts.packet_pages_back.try_push(&[completed.page]);
        self.foreign += u64::from(returned.is_err());
        true
    }

    /// Moves replies on and takes their pages back.
    fn pump_replies(&mut self, now: RunNs) -> usize {
        let TriggerNodeParts {
            return_link,
            replies,
            reply_pages_back,
            ..
        } = &mut self.parts;
        let mut work = 0;
        while let Ok(Some(good)) =
            reply_pages_back.try_pop(|words| words.iter().all(|page| return_link.recycle(*page)))
        {
            work += 1;
            self.foreign += u64::from(!good);
        }
        return_link.pump(now);
        return_link.poll_flow(now);
        work + send_replies(return_link, replies)
    }

    fn publish(&mut self) {
        self.counts.gauges.idle =
            u64::from(self.parts.return_link.is_idle() && self.parts.packets.is_empty());
        self.parts.block.publish(&self.counts);
    }
}

/// Passes on the replies that are through the return link; returns how many.
fn send_replies(return_link: &mut EmulatedLink, replies: &mut Producer) -> usize {
    let mut sent = 0;
    while replies.has_room() {
        let Some(completed) = return_link.poll_completed() else {
            break;
        };
        let pushed = replies.try_push(&Completion { link: 0, completed }.to_words());
        debug_assert!(pushed.is_ok(), "a free slot was seen");
        sent += 1;
    }
    sent
}

impl Role for TriggerNode {
    fn id(&self) -> &str {
        &self.parts.id
    }

    fn poll(&mut self, now: RunNs, phase: Phase) -> usize {
        let mut work = 0;
        if let Some(merger) = &mut self.parts.merger {
            merger.handle_timeout(now);
        }
        for _ in 0..PACKETS_PER_POLL {
            let decided = self.decide_next(now);
            work += usize::from(decided) + self.pump_replies(now);
            if !decided {
                break;
            }
        }
        if work > 0 || phase >= Phase::Draining {
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
