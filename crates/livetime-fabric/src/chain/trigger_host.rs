//! The trigger nodes on one host: packets in, decisions back over the return link.
//!
//! Drives a `LevelTwoNode` each, which get triggers in turn and decide on one at a time. A packet that is damaged gets no reply: a decision on it would be a
//! guess, and the supervisor's timeout names the trigger.

use std::collections::VecDeque;

use livetime_readout::PageRead;
use livetime_trigger::{LevelTwoNode, NodeCounters, node_of};
use livetime_wire::trigger_packet::TriggerPacketView;

use super::host::{Hall, Surroundings, Unit};
use crate::time::DurationPs;

/// The trigger nodes on their host.
pub(crate) struct TriggerHost {
    nodes: Vec<LevelTwoNode>,
    trigger_link: usize,
    return_link: usize,
    decision_time: DurationPs,
    planned: u32,
    /// Slots of replies that wait for the return link.
    replies: VecDeque<u32>,
}

impl TriggerHost {
    pub(crate) fn new(
        nodes: Vec<LevelTwoNode>,
        trigger_link: usize,
        return_link: usize,
        decision_time: DurationPs,
    ) -> Self {
        Self {
            nodes,
            trigger_link,
            return_link,
            decision_time,
            planned: 0,
            replies: VecDeque::new(),
        }
    }

    /// What all nodes counted.
    pub(crate) fn counters(&self) -> NodeCounters {
        let mut sum = NodeCounters::default();
        for node in &self.nodes {
            sum.add(node.counters());
        }
        sum
    }

    /// Puts the next reply on the return link when that is free.
    pub(crate) fn start_replies(&mut self, s: &mut Surroundings<'_>) {
        let link = self.return_link;
        while s.hall.links[link].is_idle()
            && !s.hall.links[link].is_xoff()
            && let Some(slot) = self.replies.pop_front()
        {
            s.hall.links[link].begin(slot);
            s.pump(link);
        }
        s.pump(link);
    }
}

impl Unit for TriggerHost {
    fn plan(&mut self, hall: &Hall) -> DurationPs {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.planned = hall.links[self.trigger_link].completed().min(nodes);
        self.decision_time * u64::from(self.planned.min(1))
    }

    fn work(&mut self, s: &mut Surroundings<'_>) {
        for _ in 0..std::mem::take(&mut self.planned) {
            let Some(completed) = s.poll_completed(self.trigger_link) else {
                break;
            };
            let pool = s.hall.links[self.trigger_link].pool;
            let words = s.hall.pools[pool].words(completed.page);
            let words = words.get(..completed.len_words as usize).unwrap_or(&[]);
            if completed.status.is_good()
                && let Ok(answer) = node_for(&mut self.nodes, words).handle_packet(words)
            {
                let link = &mut s.hall.links[self.return_link];
                let slot = link.take_slot();
                let out = link.words_mut(slot);
                out.clear();
                out.extend_from_slice(&answer.reply.to_words());
                self.replies.push_back(slot);
            }
            s.recycle(self.trigger_link, completed.page);
        }
        self.start_replies(s);
    }

    fn has_work(&self, hall: &Hall) -> bool {
        hall.links[self.trigger_link].completed() > 0
    }

    fn is_idle(&self) -> bool {
        self.replies.is_empty()
    }
}

/// The node that gets a packet; one that cannot be read is counted by the first.
fn node_for<'a>(nodes: &'a mut [LevelTwoNode], words: &[u32]) -> &'a mut LevelTwoNode {
    let node = match nodes.len() {
        1 => 0,
        count => TriggerPacketView::new_checked(words)
            .map_or(0, |packet| node_of(packet.trigger_low(), count)),
    };
    &mut nodes[node]
}
