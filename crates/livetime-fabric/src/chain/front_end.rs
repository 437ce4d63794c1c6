//! The front-ends with their supervisor: triggers offered, packets and fragments sent, replies
//! taken.
//!
//! Drives `TriggerSource`, `TriggerSupervisor` and the sending ends of the links. Triggers come as
//! hardware brings them, at their time; each data link sends its own fragments as fast as its line
//! takes them, and a few events may wait for their links. Replies and decisions are a host's work
//! and take its time. Nothing here decides; see `livetime_trigger::supervisor`.

use std::collections::VecDeque;

use livetime_readout::PageRead;
use livetime_source::{
    Buffers, EventGenerator, FragmentTrigger, FragmentWriter, Offer as SourceOffer, PacketCounts,
    PacketEncoder, PacketHeader, RefusalCause, SourceEvent, SourcePoll, TriggerSource,
};
use livetime_timing::GateSince;
use livetime_trigger::{Offer, RefusedBy, ReplyOutcome, SupervisorOutput, TriggerSupervisor};
use livetime_wire::decision::mix64;
use livetime_wire::message::{BuilderMessage, Envelope, Keep};
use livetime_wire::{RunNs, RunNumber, TriggerNumber, UnitId};

use super::chain_event::{ChainEvent, KIND_DECISION};
use super::host::{Hall, Surroundings, Unit, record_latency};
use super::spill_gate::{Sample, SpillGate};
use crate::address::NodeId;
use crate::time::{DurationPs, SimPs};
use crate::trace::EventLabel;
use crate::wake_up::WakeUp;

/// Lumi sections of 23.3 s, as long as at the LHC.
const LUMI_SECTION_NS: u64 = 23_311_000_000;

/// Trigger type of the source's own triggers.
const TRIGGER_PHYSICS: u32 = 1;
/// Trigger type of triggers that the schedule asks for.
const TRIGGER_SCHEDULED: u32 = 2;

/// Everything that a front-end is made of.
pub(crate) struct FrontEndParts {
    pub(crate) run: RunNumber,
    pub(crate) epoch: u32,
    pub(crate) source: TriggerSource,
    pub(crate) generator: EventGenerator,
    pub(crate) encoder: PacketEncoder,
    pub(crate) writer: FragmentWriter,
    pub(crate) supervisor: TriggerSupervisor,
    /// Events that may wait for their links.
    pub(crate) events_max: usize,
    pub(crate) data_links: usize,
    pub(crate) trigger_link: usize,
    pub(crate) return_link: usize,
    /// Hops to the readout units.
    pub(crate) decisions: Vec<u32>,
    /// Hop to the event manager.
    pub(crate) accepts: u32,
    /// How long a reply takes.
    pub(crate) reply_time: DurationPs,
    /// The spill structure, if there is one.
    pub(crate) spill: Option<SpillGate>,
}

/// An event of which not every link has taken its fragment.
struct Waiting {
    index: u64,
    trigger: FragmentTrigger,
    event: SourceEvent,
    sample: Option<Sample>,
}

/// The front-end.
pub(crate) struct FrontEnd {
    parts: FrontEndParts,
    waiting: VecDeque<Waiting>,
    /// Emptied events, to be filled again.
    spare: Vec<SourceEvent>,
    /// Number of the first waiting event in the sequence of accepted ones.
    first: u64,
    /// Number of the event whose fragment each link sends next.
    next: Vec<u64>,
    /// Packets that wait for the trigger link: slot and trigger.
    packets: VecDeque<(u32, TriggerNumber)>,
    due: WakeUp,
    sequences: Vec<u32>,
    accept_sequence: u32,
    is_finished: bool,
    planned: u32,
    unsent: u64,
}

impl FrontEnd {
    pub(crate) fn new(parts: FrontEndParts) -> Self {
        Self {
            waiting: VecDeque::with_capacity(parts.events_max),
            spare: (0..parts.events_max).map(|_| SourceEvent::new()).collect(),
            first: 0,
            next: vec![0; parts.data_links],
            packets: VecDeque::new(),
            due: WakeUp::new(),
            sequences: vec![0; parts.decisions.len()],
            accept_sequence: 0,
            is_finished: false,
            planned: 0,
            unsent: 0,
            parts,
        }
    }

    /// The trigger source.
    pub(crate) fn source(&self) -> &TriggerSource {
        &self.parts.source
    }

    /// The supervisor.
    pub(crate) fn supervisor(&self) -> &TriggerSupervisor {
        &self.parts.supervisor
    }

    /// What became of the trigger packets.
    pub(crate) fn packets(&self) -> PacketCounts {
        self.parts.encoder.counts()
    }

    /// Fragments of accepted triggers that never reached their links, because the run was ended by
    /// force: on neither side of an equation, and reported.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Offers no trigger any more; what the schedule has asked for and nobody has taken is refused.
    pub(crate) fn stop(&mut self, now: RunNs) {
        if !self.is_finished {
            self.is_finished = true;
            let waiting = self.parts.spill.as_mut().map_or(0, SpillGate::end);
            self.parts.source.refuse_waiting(waiting);
            self.parts.source.stop();
            self.parts.supervisor.stop(now);
        }
    }

    /// Gives up what is not sent and every trigger without a decision.
    pub(crate) fn abort(&mut self, s: &mut Surroundings<'_>) {
        self.stop(s.now());
        let all = self.first + self.waiting.len() as u64;
        for next in &mut self.next {
            self.unsent += all - *next;
            *next = all;
        }
        self.retire();
        for link in &mut s.hall.links[..self.parts.data_links] {
            link.abort();
        }
        for (slot, _) in self.packets.drain(..) {
            s.hall.links[self.parts.trigger_link].release(slot);
        }
        self.parts.supervisor.abort(s.now());
    }

    /// A trigger may be due.
    pub(crate) fn handle_due(&mut self, s: &mut Surroundings<'_>) {
        // Whether it is due, the source knows best.
        let _ = self.due.fire(s.scheduler.now());
        self.offer(s);
    }

    /// The line of a data link is free.
    pub(crate) fn handle_line_free(&mut self, link: usize, s: &mut Surroundings<'_>) {
        if self.feed(link, s) {
            self.offer(s);
        }
    }

    /// The state of a link has changed: XON, XOFF, up, down.
    pub(crate) fn handle_link_changed(&mut self, s: &mut Surroundings<'_>) {
        self.offer(s);
    }

    /// Offers every trigger that is due.
    pub(crate) fn offer(&mut self, s: &mut Surroundings<'_>) {
        let now = s.now();
        if let Some(spill) = &mut self.parts.spill {
            spill.advance(now);
        }
        while !self.is_finished {
            let is_off = self.is_off(s.hall);
            self.parts.supervisor.handle_xoff(now, is_off);
            let is_free = self.parts.supervisor.refusal().is_none();
            if is_free && let Some(offer) = self.scheduled_trigger(now) {
                self.offer_one(now, offer, (is_off, TRIGGER_SCHEDULED), s);
                continue;
            }
            let gate = self.parts.spill.as_ref();
            let gate_open = gate.is_none_or(SpillGate::is_open);
            let spill_due = gate.and_then(SpillGate::poll_timeout);
            let buffers = if is_free && gate_open {
                Buffers::Free
            } else {
                Buffers::Full
            };
            match self.parts.source.poll(now, buffers) {
                SourcePoll::Wait { until } if until <= now => {}
                SourcePoll::Wait { until } => {
                    self.arm(Some(spill_due.map_or(until, |at| at.min(until))), s);
                    return;
                }
                SourcePoll::Blocked => {
                    self.arm(spill_due, s);
                    return;
                }
                SourcePoll::Finished => self.stop(now),
                SourcePoll::Offer(offer) if !gate_open => {
                    self.parts.source.handle_refused(offer, RefusalCause::Gate);
                }
                SourcePoll::Offer(offer) => {
                    self.offer_one(now, offer, (is_off, TRIGGER_PHYSICS), s);
                }
            }
        }
    }

    /// Looks again at `at`, if anything comes then.
    fn arm(&mut self, at: Option<RunNs>, s: &mut Surroundings<'_>) {
        let Some(at) = at else {
            return;
        };
        if let Some(at) = self.due.arm(Some(SimPs::from_run_ns(at))) {
            let event = ChainEvent::Offer;
            s.scheduler.at(at, event.class(), event);
        }
    }

    /// The next trigger that the schedule asks for. One that waited for a buffer until its gate had
    /// passed is refused: it would be stamped outside.
    fn scheduled_trigger(&mut self, now: RunNs) -> Option<SourceOffer> {
        let FrontEndParts { spill, source, .. } = &mut self.parts;
        let spill = spill.as_mut()?;
        while let Some(trigger) = spill.poll_trigger() {
            match trigger.gate {
                GateSince::Same => return source.offer_scheduled(now),
                GateSince::Passed => source.refuse_scheduled(now, RefusalCause::GatePassed),
            }
        }
        None
    }

    fn offer_one(
        &mut self,
        now: RunNs,
        offer: SourceOffer,
        (is_off, trigger_type): (bool, u32),
        s: &mut Surroundings<'_>,
    ) {
        match self.parts.supervisor.offer(now, is_off) {
            Offer::Accepted { trigger, l2_buffer } => {
                let trigger = FragmentTrigger {
                    trigger,
                    bunch: offer.bunch(),
                    trigger_type,
                    event_type: 0,
                };
                self.begin_event(now, offer, trigger, l2_buffer, s);
            }
            Offer::Refused(RefusedBy::Xoff) => {
                self.parts.source.handle_refused(offer, RefusalCause::Xoff);
            }
            Offer::Refused(_) => {
                self.parts.encoder.count_refused();
                self.parts
                    .source
                    .handle_refused(offer, RefusalCause::BuffersFull);
            }
        }
    }

    /// Whether a link is off, or no room for an event is left.
    fn is_off(&self, hall: &Hall) -> bool {
        self.waiting.len() >= self.parts.events_max
            || hall.links[..=self.parts.trigger_link]
                .iter()
                .any(|link| link.is_xoff())
    }

    fn begin_event(
        &mut self,
        now: RunNs,
        offer: SourceOffer,
        fragment_trigger: FragmentTrigger,
        l2_buffer: u8,
        s: &mut Surroundings<'_>,
    ) {
        let trigger = fragment_trigger.trigger;
        let mut event = self
            .spare
            .pop()
            .expect("a trigger is taken only with room for its event");
        // Whatever was refused: the n-th trigger of a seed is always the same event.
        let index = trigger.0 - 1;
        self.parts.generator.event(index, &mut event);
        let header = PacketHeader {
            trigger,
            l2_buffer,
            bunch: offer.bunch(),
            run: self.parts.run,
            lumi_section: (now.0 / LUMI_SECTION_NS) as u32,
            triggered_at: now,
            index,
        };
        let link = &mut s.hall.links[self.parts.trigger_link];
        let slot = link.take_slot();
        self.parts
            .encoder
            .encode(&event, &header, link.words_mut(slot));
        self.packets.push_back((slot, trigger));
        self.start_packets(s);
        let spill = self.parts.spill.as_ref();
        self.waiting.push_back(Waiting {
            index,
            trigger: fragment_trigger,
            event,
            sample: spill.map(|spill| spill.sample(now)),
        });
        for link in 0..self.parts.data_links {
            self.feed(link, s);
        }
    }

    /// Puts the next packet on the trigger link when that is free.
    pub(crate) fn start_packets(&mut self, s: &mut Surroundings<'_>) {
        let (now, index) = (s.now(), self.parts.trigger_link);
        while s.hall.links[index].is_idle()
            && !s.hall.links[index].is_xoff()
            && let Some((slot, trigger)) = self.packets.pop_front()
        {
            self.parts.supervisor.handle_first_word(now, trigger);
            s.hall.links[index].begin(slot);
            s.pump(index);
        }
        s.pump(index);
    }

    /// Gives a data link its next fragment when it is idle, or its line the next burst; true when
    /// that made room for another event.
    fn feed(&mut self, index: usize, s: &mut Surroundings<'_>) -> bool {
        while s.hall.links[index].is_idle() {
            let number = self.next[index] - self.first;
            let Some(waiting) = self.waiting.get(number as usize) else {
                break;
            };
            let link = &mut s.hall.links[index];
            let slot = link.take_slot();
            let words = link.words_mut(slot);
            let Waiting {
                index: event_index,
                trigger,
                event,
                sample,
            } = waiting;
            match (&self.parts.spill, sample) {
                (Some(spill), Some(sample)) if spill.read_back_link() == Some(index) => {
                    spill.write(self.parts.run, trigger, sample, words);
                }
                (spill, _) => {
                    let place = spill.as_ref().map_or(index, |s| s.detector_link(index));
                    self.parts
                        .writer
                        .write(event, *event_index, place, trigger, words);
                }
            }
            link.begin(slot);
            self.next[index] += 1;
        }
        s.pump(index);
        self.retire()
    }

    /// Forgets the events whose fragments all links have; true when there were any.
    fn retire(&mut self) -> bool {
        let before = self.first;
        while !self.waiting.is_empty() && self.next.iter().all(|next| *next > self.first) {
            self.spare
                .extend(self.waiting.pop_front().map(|waiting| waiting.event));
            self.first += 1;
        }
        self.first > before
    }

    /// Takes the planned replies.
    fn take_replies(&mut self, s: &mut Surroundings<'_>) {
        let (now, link) = (s.now(), self.parts.return_link);
        for _ in 0..std::mem::take(&mut self.planned) {
            let Some(completed) = s.poll_completed(link) else {
                break;
            };
            let words = s.hall.pools[s.hall.links[link].pool].words(completed.page);
            let words = words.get(..completed.len_words as usize).unwrap_or(&[]);
            let supervisor = &mut self.parts.supervisor;
            let outcome = supervisor.handle_reply_words(now, words, completed.status);
            if let ReplyOutcome::Decided(sample) = outcome {
                record_latency(&mut s.hall.latencies.decision, sample.latency);
                let mask = (sample.mask.0 ^ (sample.mask.0 >> 64)) as u64;
                s.scheduler.note(EventLabel {
                    node: NodeId(0),
                    kind: KIND_DECISION,
                    key: mix64(sample.trigger.0) ^ mask,
                });
            }
            s.recycle(link, completed.page);
        }
    }

    /// What the supervisor says to readout units and event manager.
    fn send_outputs(&mut self, s: &mut Surroundings<'_>) {
        loop {
            // Every hop is asked, so that each one that is full calls back.
            let mut has_room = s.hall.fabric.has_room(self.parts.accepts);
            for lane in &self.parts.decisions {
                has_room &= s.hall.fabric.has_room(*lane);
            }
            if !has_room {
                return;
            }
            let Some(output) = self.parts.supervisor.poll_output() else {
                return;
            };
            match output {
                SupervisorOutput::Decision { trigger, keep } => {
                    let keep = if keep { Keep::Build } else { Keep::Drop };
                    let message = BuilderMessage::Decision { trigger, keep };
                    for (lane, sequence) in self.parts.decisions.iter().zip(&mut self.sequences) {
                        send(s, *lane, self.parts.epoch, sequence, message.clone());
                    }
                }
                SupervisorOutput::L2Accept {
                    trigger,
                    mask,
                    triggered_at,
                } => {
                    let message = BuilderMessage::L2Accept {
                        trigger,
                        mask,
                        triggered_at,
                    };
                    let sequence = &mut self.accept_sequence;
                    send(s, self.parts.accepts, self.parts.epoch, sequence, message);
                }
            }
        }
    }
}

fn send(
    s: &mut Surroundings<'_>,
    lane: u32,
    epoch: u32,
    sequence: &mut u32,
    message: BuilderMessage,
) {
    let envelope = Envelope {
        sender: UnitId::SUPERVISOR,
        epoch,
        sequence: *sequence,
        message,
    };
    *sequence = sequence.wrapping_add(1);
    s.send(lane, &envelope.to_words());
}

impl Unit for FrontEnd {
    fn plan(&mut self, hall: &Hall) -> DurationPs {
        self.planned = hall.links[self.parts.return_link].completed().min(1);
        self.parts.reply_time * u64::from(self.planned)
    }

    fn work(&mut self, s: &mut Surroundings<'_>) {
        // The time of the last input is the time at which outputs count as fetched.
        let is_off = self.is_off(s.hall);
        self.parts.supervisor.handle_xoff(s.now(), is_off);
        self.take_replies(s);
        if self.parts.supervisor.poll_timeout() <= s.now() {
            self.parts.supervisor.handle_timeout(s.now());
        }
        self.send_outputs(s);
        self.offer(s);
    }

    fn has_work(&self, hall: &Hall) -> bool {
        hall.links[self.parts.return_link].completed() > 0
    }

    fn deadline(&self) -> RunNs {
        self.parts.supervisor.poll_timeout()
    }

    fn is_idle(&self) -> bool {
        self.is_finished
            && self.waiting.is_empty()
            && self.packets.is_empty()
            && self.parts.supervisor.is_drained()
    }
}
