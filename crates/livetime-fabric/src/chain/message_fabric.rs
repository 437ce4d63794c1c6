//! The hops of messages between units: words that take their time, with faults, into bounded
//! inboxes.
//!
//! What travels are the words of the real messages and tickets. A hop counts what is on its way
//! and what waits at its receiver; a sender that finds it full is remembered and called when there
//! is room. What the messages mean, the units know.

use std::collections::VecDeque;

use super::chain_event::ChainEvent;
use super::chain_layout::{ChainLayout, Lane};
use super::chain_timing::HopTiming;
use crate::address::{LinkId, NodeId};
use crate::fault::FaultShim;
use crate::random::{Purpose, RandomStream, RandomStreams};
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};

/// What jitter is drawn for.
const JITTER: Purpose = Purpose(1);

/// A message on its way or waiting.
#[derive(Debug, Clone, Default)]
struct Letter {
    lane: u32,
    arrived: SimPs,
    words: Vec<u32>,
}

/// A hop at work.
#[derive(Debug, Clone)]
struct Hop {
    from: NodeId,
    to: NodeId,
    capacity: u64,
    /// Messages on their way and waiting.
    held: u64,
    inbox: VecDeque<u32>,
    /// The sender found it full.
    is_sender_waiting: bool,
}

/// All hops.
#[derive(Debug, Clone)]
pub(crate) struct MessageFabric {
    pub(crate) shim: FaultShim,
    hops: Vec<Hop>,
    letters: Vec<Letter>,
    letters_free: Vec<u32>,
    /// Messages on their way and waiting, over all hops.
    held: u64,
    jitter: Vec<RandomStream>,
    timing: HopTiming,
}

impl MessageFabric {
    /// Empty hops.
    pub(crate) fn new(
        layout: &ChainLayout,
        timing: HopTiming,
        shim: FaultShim,
        streams: RandomStreams,
    ) -> Self {
        let node = |unit| layout.node(unit).expect("lanes join units of the layout");
        let hop = |lane: &Lane| Hop {
            from: node(lane.from),
            to: node(lane.to),
            capacity: lane.capacity,
            held: 0,
            inbox: VecDeque::new(),
            is_sender_waiting: false,
        };
        let nodes = (0..layout.node_count() as u32).map(NodeId);
        Self {
            shim,
            hops: layout.lanes().iter().map(hop).collect(),
            letters: Vec::new(),
            letters_free: Vec::new(),
            held: 0,
            jitter: nodes.map(|node| streams.stream(node, JITTER)).collect(),
            timing,
        }
    }

    /// Whether a message may be sent; if not, the sender is called when it may.
    pub(crate) fn has_room(&mut self, lane: u32) -> bool {
        let hop = &mut self.hops[lane as usize];
        let has_room = hop.held < hop.capacity;
        hop.is_sender_waiting |= !has_room;
        has_room
    }

    /// Sends words that leave the host at `departs`.
    pub(crate) fn send(
        &mut self,
        lane: u32,
        words: &[u32],
        departs: SimPs,
        scheduler: &mut Scheduler<ChainEvent>,
    ) {
        let from = self.hops[lane as usize].from;
        let jitter = self.jitter[from.index()].between(DurationPs::ZERO, self.timing.jitter_max);
        let arrival = departs + self.timing.latency + jitter;
        let transit = self.shim.transmit(LinkId(lane), departs, arrival);
        for arrival in transit.arrivals() {
            let letter = self.letters_free.pop().unwrap_or_else(|| {
                self.letters.push(Letter::default());
                self.letters.len() as u32 - 1
            });
            let entry = &mut self.letters[letter as usize];
            entry.lane = lane;
            entry.words.clear();
            entry.words.extend_from_slice(words);
            self.hops[lane as usize].held += 1;
            self.held += 1;
            let event = ChainEvent::Letter { letter };
            scheduler.at(arrival, event.class(), event);
        }
    }

    /// The host that a message on its way goes to.
    pub(crate) fn receiver(&self, letter: u32) -> NodeId {
        self.hops[self.letters[letter as usize].lane as usize].to
    }

    /// A message has come.
    pub(crate) fn arrive(&mut self, letter: u32, now: SimPs) {
        self.letters[letter as usize].arrived = now;
        let lane = self.letters[letter as usize].lane;
        self.hops[lane as usize].inbox.push_back(letter);
    }

    /// Messages that wait in a hop's inbox.
    pub(crate) fn waiting(&self, lane: u32) -> usize {
        self.hops[lane as usize].inbox.len()
    }

    /// The words of the oldest waiting message.
    pub(crate) fn front(&self, lane: u32) -> Option<&[u32]> {
        let letter = *self.hops[lane as usize].inbox.front()?;
        Some(&self.letters[letter as usize].words)
    }

    /// When the oldest waiting message came.
    pub(crate) fn front_arrived(&self, lane: u32) -> Option<SimPs> {
        let letter = *self.hops[lane as usize].inbox.front()?;
        Some(self.letters[letter as usize].arrived)
    }

    /// Takes the oldest waiting message away; returns its sender if that waits for room.
    pub(crate) fn consume(&mut self, lane: u32) -> Option<NodeId> {
        let hop = &mut self.hops[lane as usize];
        let letter = hop.inbox.pop_front()?;
        hop.held -= 1;
        self.held -= 1;
        self.letters_free.push(letter);
        core::mem::take(&mut hop.is_sender_waiting).then_some(hop.from)
    }

    /// Whether nothing is on its way or waiting.
    pub(crate) fn is_quiet(&self) -> bool {
        self.held == 0
    }

    /// What a trace says of a message: its first words, which name sender, kind, number and trigger.
    pub(crate) fn letter_key(&self, letter: u32) -> u64 {
        let Letter { lane, words, .. } = &self.letters[letter as usize];
        let start = words.iter().take(6);
        start.fold(u64::from(*lane), |key, word| {
            key.rotate_left(13) ^ u64::from(*word)
        })
    }
}
