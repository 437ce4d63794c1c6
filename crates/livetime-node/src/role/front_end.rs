//! The front-ends with their supervisor: triggers offered, packets and fragments sent, replies
//! taken.
//!
//! Drives `TriggerSource`, `TriggerSupervisor`, both ends of every emulated link, and the sending end
//! of links over sockets, whose receiving end is the readout unit's. After a trigger packet is on its
//! link, fragments go out link by link, with a look at the replies in between: a supervisor that
//! writes payload does not notice its decisions. Nothing here decides; what happens to a trigger is
//! said in `livetime_trigger::supervisor`.

mod trigger_offers;

use std::collections::BTreeMap;
use std::sync::Arc;

use hdrhistogram::Histogram;
use livetime_builder::AcceptedTrigger;
use livetime_readout::{FlowControl, LinkState};
use livetime_shm::{Consumer, Producer};
use livetime_source::{
    EventGenerator, FragmentTrigger, FragmentWriter, PacketEncoder, SourceEvent, TriggerPause,
    TriggerSource,
};
use livetime_trigger::{ReplyOutcome, SupervisorOutput, TriggerSupervisor};
use livetime_wire::message::{BuilderMessage, Envelope, Keep};
use livetime_wire::{LossCause, RunNs, RunNumber, SourceId, TriggerNumber, UnitId, UnitKind};

use super::manager_path::ManagerPath;
use super::spill_gate::SpillGate;
use super::{Role, RoleCommand, RoleResult, latency_histogram, record_latency};
use crate::builder_transport::PeerSocket;
use crate::chain_plan::{Channel, RingKey, front_end_of};
use crate::completion::Completion;
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::emulated_link::LinkProgress;
use crate::front_end_server::FrontEndServer;
use crate::link::{FragmentLink, LinkSender, TransportCounters};
use crate::message_ring::{Inbox, MessageSender, is_taken};
use crate::packet_link::PacketLink;
use crate::socket_watch::SocketWatch;
use crate::worker::Phase;

/// A link that is down for a while, from a `--fault` option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkFault {
    /// Index of the data link.
    pub link: usize,
    /// When it goes down.
    pub from: RunNs,
    /// When it comes up again.
    pub until: RunNs,
}

/// One data link of the front-end, and the unit that its acknowledge entries go to.
pub struct DataLink {
    /// The link.
    pub link: FragmentLink,
    /// Index of its readout unit among [`FrontEndParts::readout_units`].
    pub unit: usize,
    /// Its index at the readout unit.
    pub index_at_unit: u16,
    /// The source at its far end.
    pub source: SourceId,
    /// Its readout unit is lost: it stays down until another takes its place.
    pub has_ended: bool,
    /// Fragments up to this trigger are not for the readout unit at its end, which took the place of
    /// another; 0 for a unit that was there from the start.
    pub joined_after: TriggerNumber,
}

/// The rings of the links whose pages are filled here.
pub struct CardRings {
    /// Acknowledge entries out.
    pub completions: Producer,
    /// Pages back: pairs of link index at the unit and page number.
    pub pages_back: Consumer,
}

/// What is between the front-end and one readout unit, but for links over sockets.
pub struct ReadoutRings {
    /// Of links whose pages are filled here, if it has any.
    pub cards: Option<CardRings>,
    /// Decisions out.
    pub decisions: MessageSender,
    /// Messages sent so far.
    pub sequence: u32,
    /// The unit is gone, and nothing is read at the other ends.
    pub is_lost: bool,
}

impl ReadoutRings {
    /// The rings towards a unit that takes the place of a lost one; `None` without a way for its
    /// decisions.
    fn renewed(
        unit: UnitId,
        mut producers: BTreeMap<RingKey, Producer>,
        mut consumers: BTreeMap<RingKey, Consumer>,
        socket: Option<PeerSocket>,
    ) -> Option<Self> {
        let cards = UnitId::SUPERVISOR;
        let key = |from, to, channel| RingKey { from, to, channel };
        let completions = producers.remove(&key(cards, unit, Channel::Completions));
        let pages_back = consumers.remove(&key(unit, cards, Channel::PagesBack));
        let ring = producers.remove(&key(cards, unit, Channel::Messages));
        let decisions = match ring {
            Some(ring) => MessageSender::Ring(ring),
            None => MessageSender::over_stream(unit, socket?.into_stream()?).ok()?,
        };
        let cards = completions.zip(pages_back);
        Some(Self {
            cards: cards.map(|(completions, pages_back)| CardRings {
                completions,
                pages_back,
            }),
            decisions,
            sequence: 0,
            is_lost: false,
        })
    }
}

/// A readout unit that takes the place of a lost one.
struct ReturningReadout {
    /// Its index.
    unit: usize,
    /// What is between it and the front-end.
    rings: ReadoutRings,
    /// Its links over sockets, by the front-end of each.
    data_sockets: BTreeMap<UnitId, PeerSocket>,
}

/// The rings between the front-end and the trigger node.
pub struct TriggerRings {
    /// Trigger packets out.
    pub packets: Producer,
    /// Replies in.
    pub replies: Consumer,
}

/// The way to one trigger node and back.
pub struct TriggerPath {
    /// A trigger link for each input of the merger; one that carries whole packets without it.
    pub links: Vec<PacketLink>,
    /// Their rings.
    pub rings: TriggerRings,
}

impl TriggerPath {
    fn is_idle(&self) -> bool {
        self.links.iter().all(PacketLink::is_idle)
    }
}

/// Everything that a front-end is made of.
pub struct FrontEndParts {
    /// Role id.
    pub id: String,
    /// Run number.
    pub run: RunNumber,
    /// When triggers come.
    pub source: TriggerSource,
    /// What they contain.
    pub generator: EventGenerator,
    /// The front-ends that say both instead, if it is not the source.
    pub front_ends: Option<FrontEndServer>,
    /// Trigger packets.
    pub encoder: PacketEncoder,
    /// Fragments.
    pub writer: FragmentWriter,
    /// The supervisor.
    pub supervisor: TriggerSupervisor,
    /// The trigger nodes, which get triggers in turn.
    pub trigger: Vec<TriggerPath>,
    /// The data links, in the order of their source ids.
    pub data_links: Vec<DataLink>,
    /// Rings of the readout units.
    pub readout_units: Vec<ReadoutRings>,
    /// Level-2 accepts out.
    pub event_manager: ManagerPath,
    /// Links that go down.
    pub faults: Vec<LinkFault>,
    /// The spill structure, if there is one.
    pub spill: Option<SpillGate>,
    /// Where the counters are published.
    pub block: Arc<CounterBlock>,
    /// Epoch of the messages.
    pub epoch: u32,
    /// Fragments come from files, whose n-th one is that of the n-th trigger.
    pub in_step: bool,
    /// Whether the run begins with a pause.
    pub starts_paused: bool,
    /// Whether triggers are taken from the first duty cycle on, and not from time 0: the time of the run
    /// goes on while its roles are started.
    pub starts_late: bool,
}

/// The event that is being sent.
#[derive(Debug, Clone, Copy)]
struct Sending {
    index: u64,
    trigger: FragmentTrigger,
    next_link: usize,
}

/// The front-end role.
pub struct FrontEnd {
    parts: FrontEndParts,
    /// The sockets of its data links.
    sockets: SocketWatch,
    event: SourceEvent,
    sending: Option<Sending>,
    latency: Histogram<u64>,
    counts: RoleCounts,
    finished: bool,
    /// From when on triggers are offered, once they are: the source counts its time from there.
    taken_from: Option<RunNs>,
    /// Until when triggers were offered, once that is over.
    taken_until: RunNs,
    foreign_words: u64,
    /// Fragments of an accepted trigger that never reached their links, because the run was ended
    /// by force: on neither side of an equation, and reported.
    unsent: u64,
    /// Accepted triggers of which the event manager was never told, because the run was ended by force.
    untold: u64,
    /// A readout unit whose links are to begin again as soon as nobody reads their pages.
    returning: Option<ReturningReadout>,
    /// A readout unit is about to join: no trigger is given until it has.
    is_held: bool,
    /// When an operator holds triggers back.
    pause: TriggerPause,
    /// The answer to the last command: the last trigger given.
    named: Vec<TriggerNumber>,
}

impl FrontEnd {
    /// A front-end at the start of its run.
    pub fn new(parts: FrontEndParts) -> Self {
        let starts_late = parts.starts_late;
        let mut front_end = Self {
            sockets: watch(&parts.data_links),
            pause: TriggerPause::default(),
            parts,
            event: SourceEvent::new(),
            sending: None,
            latency: latency_histogram(),
            counts: RoleCounts::default(),
            finished: false,
            taken_from: None,
            taken_until: RunNs(0),
            foreign_words: 0,
            unsent: 0,
            untold: 0,
            returning: None,
            is_held: false,
            named: Vec::new(),
        };
        if !starts_late {
            front_end.begin(RunNs(0));
        }
        front_end
    }

    /// Links that are to go down or come up now.
    fn apply_faults(&mut self, now: RunNs) {
        let FrontEndParts {
            faults, data_links, ..
        } = &mut self.parts;
        for index in faults.iter().map(|fault| fault.link) {
            let data_link = data_links.get_mut(index);
            let Some(data_link) = data_link.filter(|data_link| !data_link.has_ended) else {
                continue;
            };
            // A link may fail several times, and stays down as long as any fault says so.
            let mut of_link = faults.iter().filter(|fault| fault.link == index);
            let down = of_link.any(|fault| (fault.from..fault.until).contains(&now));
            let state = if down { LinkState::Down } else { LinkState::Up };
            if data_link.link.state() != state {
                data_link.link.set_state(now, state);
            }
        }
    }

    /// Pages that the readout units have returned.
    fn take_pages_back(&mut self) -> usize {
        let Self {
            parts,
            foreign_words,
            ..
        } = self;
        let FrontEndParts {
            data_links,
            readout_units,
            ..
        } = parts;
        let mut work = 0;
        for (unit, rings) in readout_units.iter_mut().enumerate() {
            let Some(rings) = &mut rings.cards else {
                continue;
            };
            while let Ok(Some(bad)) = rings.pages_back.try_pop(|words| {
                words
                    .chunks_exact(2)
                    .filter(|pair| !recycle(data_links, unit, pair))
                    .count()
            }) {
                work += 1;
                *foreign_words += bad as u64;
            }
        }
        work
    }

    /// Replies that came over the return link.
    fn take_replies(&mut self, now: RunNs) -> usize {
        let nodes = 0..self.parts.trigger.len();
        nodes.map(|node| self.take_replies_of(now, node)).sum()
    }

    fn take_replies_of(&mut self, now: RunNs, node: usize) -> usize {
        let mut work = 0;
        let FrontEndParts {
            trigger,
            supervisor,
            ..
        } = &mut self.parts;
        let replies = &mut trigger[node].rings.replies;
        while let Ok(Some(outcome)) = replies.try_pop(|message| {
            let (entry, words) = Completion::parse_with_words(message).ok()?;
            Some(supervisor.handle_reply_words(now, words, entry.completed.status))
        }) {
            work += 1;
            match outcome {
                Some(ReplyOutcome::Decided(sample)) => {
                    record_latency(&mut self.latency, sample.latency.0);
                    self.counts.gauges.record_latency(sample.latency.0);
                }
                Some(_) => {}
                None => self.foreign_words += 1,
            }
        }
        work
    }

    /// What the supervisor says to readout units and event manager.
    fn send_outputs(&mut self) -> usize {
        let manager = &mut self.parts.event_manager;
        let mut work = manager.take_closings() + manager.tell_again();
        let has_room = |parts: &mut FrontEndParts| {
            parts.event_manager.has_room()
                && parts
                    .readout_units
                    .iter_mut()
                    .all(|rings| rings.is_lost || rings.decisions.has_room())
        };
        while has_room(&mut self.parts) {
            let Some(output) = self.parts.supervisor.poll_output() else {
                break;
            };
            work += 1;
            match output {
                SupervisorOutput::Decision { trigger, keep } => self.send_decision(trigger, keep),
                SupervisorOutput::L2Accept {
                    trigger,
                    mask,
                    triggered_at,
                } => {
                    self.parts.event_manager.send(AcceptedTrigger {
                        trigger,
                        mask,
                        triggered_at,
                    });
                }
            }
        }
        self.parts.event_manager.flush();
        for rings in &mut self.parts.readout_units {
            rings.decisions.flush();
        }
        work
    }

    fn send_decision(&mut self, trigger: TriggerNumber, keep: bool) {
        if keep {
            self.parts.event_manager.announce(trigger);
        }
        let keep = if keep { Keep::Build } else { Keep::Drop };
        for rings in self.parts.readout_units.iter_mut().filter(|r| !r.is_lost) {
            let message = BuilderMessage::Decision { trigger, keep };
            let message = envelope(self.parts.epoch, rings.sequence, message);
            rings.sequence = rings.sequence.wrapping_add(1);
            let sent = rings.decisions.send(message);
            debug_assert!(sent, "a free slot was seen");
        }
    }

    /// Puts the fragments of the event on their links until a link is busy or a reply has come:
    /// replies go first, since the supervisor's time is what the experiment waits for.
    fn send_fragments(&mut self, now: RunNs) -> usize {
        let mut work = 0;
        loop {
            let sent = self.send_next_fragment(now);
            work += sent;
            let mut nodes = self.parts.trigger.iter_mut();
            if sent == 0 || nodes.any(|node| !node.rings.replies.is_empty()) {
                return work;
            }
        }
    }

    /// Puts the fragment of the next link on it, once the packet is out.
    fn send_next_fragment(&mut self, now: RunNs) -> usize {
        let Some(sending) = &mut self.sending else {
            return 0;
        };
        let Some(data_link) = self.parts.data_links.get_mut(sending.next_link) else {
            self.end_event();
            return 0;
        };
        if sending.trigger.trigger <= data_link.joined_after {
            data_link.link.lose_fragment();
            sending.next_link += 1;
            return 1;
        }
        if !data_link.link.is_idle() {
            return 0;
        }
        let (index, trigger, link) = (sending.index, sending.trigger, sending.next_link);
        let (writer, event) = (&mut self.parts.writer, &self.event);
        match &self.parts.spill {
            Some(spill) if spill.read_back_link() == Some(link) => {
                let (run, source) = (self.parts.run, data_link.source);
                data_link
                    .link
                    .send(now, |words| spill.write(run, source, &trigger, words));
            }
            spill => {
                // The writer knows the links with detector data only.
                let read_back = spill.as_ref().and_then(SpillGate::read_back_link);
                let detector = link - usize::from(read_back.is_some_and(|other| other < link));
                let front_ends = self.parts.front_ends.as_ref();
                data_link.link.send(now, |words| match front_ends {
                    Some(server) => server.events().write(detector, &trigger, words),
                    None => writer.write(event, index, detector, &trigger, words),
                });
            }
        }
        sending.next_link += 1;
        let cards = &mut self.parts.readout_units[data_link.unit].cards;
        // What the other end says is heard when all links are pumped.
        pump_link(now, data_link, cards, false);
        1
    }

    /// All links have their fragment of the event, or never will.
    fn end_event(&mut self) {
        self.sending = None;
        if let Some(server) = &mut self.parts.front_ends {
            server.release();
        }
    }

    /// Moves words on all links and hands acknowledge entries to their hosts.
    fn pump_links(&mut self, now: RunNs) -> usize {
        let FrontEndParts {
            trigger,
            data_links,
            readout_units,
            ..
        } = &mut self.parts;
        self.sockets.look();
        let mut work = 0;
        for TriggerPath { links, rings } in trigger {
            for (input, link) in links.iter_mut().enumerate() {
                work += usize::from(link.pump(now) == LinkProgress::Moved);
                work += link.pass_on(input as u16, &mut rings.packets);
                link.poll_flow(now);
            }
        }
        for (index, data_link) in data_links.iter_mut().enumerate() {
            let cards = &mut readout_units[data_link.unit].cards;
            work += pump_link(now, data_link, cards, self.sockets.is_ready(index));
        }
        work
    }

    fn is_xoff(&mut self, now: RunNs) -> bool {
        let mut xoff = self.is_held;
        let nodes = self.parts.trigger.iter_mut();
        for link in nodes.flat_map(|node| &mut node.links) {
            xoff |= link.poll_flow(now) == FlowControl::Xoff;
        }
        let living = self.parts.data_links.iter_mut().filter(|l| !l.has_ended);
        for data_link in living {
            xoff |= data_link.link.poll_flow(now) == FlowControl::Xoff;
        }
        xoff
    }

    /// Whether nothing is on its way from here.
    fn is_idle(&self) -> bool {
        self.finished
            && self.sending.is_none()
            && self.parts.supervisor.is_drained()
            && self.parts.event_manager.is_flushed()
            && (self.parts.readout_units.iter())
                .all(|rings| rings.is_lost || rings.decisions.is_flushed())
            && (self.parts.data_links.iter())
                .all(|data_link| data_link.has_ended || data_link.link.is_drained())
    }

    /// A readout unit is gone and the run goes on: its links are down from here on, so that what
    /// they would have carried is lost at once and under its name.
    fn lose_readout(&mut self, now: RunNs, unit: usize) {
        self.returning = self.returning.take().filter(|other| other.unit != unit);
        if let Some(rings) = self.parts.readout_units.get_mut(unit) {
            rings.is_lost = true;
        }
        let of_it = self.parts.data_links.iter_mut().filter(|l| l.unit == unit);
        for data_link in of_it {
            data_link.has_ended = true;
            data_link.link.end(now);
        }
    }

    /// Another readout unit takes the place of a lost one: its links begin again once all of their
    /// pages are free. It gets decisions from then on, and fragments when it has joined.
    fn take_readout_back(&mut self, now: RunNs) {
        let Some(returning) = &self.returning else {
            return;
        };
        let unit = returning.unit;
        let mut links = self.parts.data_links.iter_mut();
        let is_free = links.all(|link| link.unit != unit || link.link.free_pages());
        if !is_free {
            return;
        }
        let Some(mut returning) = self.returning.take() else {
            return;
        };
        let links = self.parts.data_links.iter_mut().enumerate();
        for (index, data_link) in links.filter(|(_, link)| link.unit == unit) {
            let socket = returning.data_sockets.remove(&front_end_of(index));
            // One whose socket cannot be used stays down.
            let begun = data_link.link.begin_again(now, socket);
            data_link.has_ended = begun.is_err();
            data_link.joined_after = TriggerNumber(u64::MAX);
        }
        self.sockets = watch(&self.parts.data_links);
        if let Some(rings) = self.parts.readout_units.get_mut(unit) {
            *rings = returning.rings;
        }
        self.publish(now);
    }

    /// Another event manager took the place of the one that is gone; without a way to it, it is told
    /// nothing, and the parent finds that it waits.
    fn welcome_manager(
        &mut self,
        unit: UnitId,
        producers: BTreeMap<RingKey, Producer>,
        consumers: BTreeMap<RingKey, Consumer>,
        socket: Option<PeerSocket>,
    ) {
        let stream = socket.and_then(PeerSocket::into_stream);
        let over_stream = stream.and_then(|stream| MessageSender::over_stream(unit, stream).ok());
        let ring = producers.into_values().next().map(MessageSender::Ring);
        let closings = consumers.into_values().next();
        if let Some(sender) = ring.or(over_stream) {
            let closings = closings.map(|ring| Inbox::new(unit, ring));
            self.parts.event_manager.welcome(sender, closings);
        }
    }

    /// A readout unit has joined: all that is of later triggers is its own.
    fn open_links(&mut self, unit: usize, newest: TriggerNumber) {
        let links = self.parts.data_links.iter_mut();
        for data_link in links.filter(|link| link.unit == unit) {
            data_link.joined_after = newest;
        }
        self.is_held = false;
    }

    /// Gives up the event that is being sent and every trigger without a decision.
    fn abort(&mut self, now: RunNs) {
        if let Some(sending) = self.sending {
            let links = self.parts.data_links.len();
            self.unsent += links.saturating_sub(sending.next_link) as u64;
            self.end_event();
        }
        for data_link in &mut self.parts.data_links {
            data_link.link.abort(now);
        }
        self.parts.event_manager.end_waiting();
        self.parts.supervisor.abort(now);
    }

    /// What links from files and the sending ends of those over sockets tell, if there are any.
    fn transport_details(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut sum = TransportCounters::default();
        let (mut senders, mut waits, mut tallies, mut unanswered) = (0, 0, 0, 0);
        for DataLink { link, .. } in &self.parts.data_links {
            sum.add(link.transport_counters());
            if let Some(sender) = link.sender() {
                let (more_waits, more_tallies) = sender.waits_and_tallies();
                senders += 1;
                unanswered += sender.unanswered();
                waits += more_waits;
                tallies += more_tallies;
            }
        }
        let of_senders = [
            ("link_waits", waits),
            ("link_tallies_sent", tallies),
            ("link_fragments_unanswered", unanswered),
        ];
        let of_senders = of_senders.into_iter().filter(move |_| senders > 0);
        sum.details().chain(of_senders)
    }

    fn publish(&mut self, now: RunNs) {
        let source = self.parts.source.counts();
        let supervisor = self.parts.supervisor.counters();
        let chain = &mut self.counts.chain;
        chain.offered = source.offered;
        chain.refused = source.refused();
        chain.triggers = supervisor.triggers;
        chain.l2_accepted = supervisor.l2_accepted;
        chain.l2_rejected = supervisor.l2_rejected;
        let mut losses = *self.parts.supervisor.losses();
        let (mut sent, mut words, mut unanswered) = (0, 0, 0);
        for DataLink { link, .. } in &self.parts.data_links {
            unanswered += link.unanswered();
            let (handed, data_words) = link.handed(now);
            sent += handed;
            words += data_words;
            losses.merge(&link.losses());
        }
        losses.add(LossCause::EventAborted, self.untold);
        chain.fragments_sent = sent;
        self.counts.losses = losses;
        let dead_time = self.parts.supervisor.dead_time(now);
        let idle = u64::from(self.is_idle());
        let is_at_end = self.is_at_end(now);
        let gauges = &mut self.counts.gauges;
        (gauges.held, gauges.ended) = (unanswered, u64::from(is_at_end));
        gauges.bytes = words * 4;
        gauges.busy_ns = dead_time.busy.iter().map(|busy| busy.0).sum();
        gauges.idle = idle;
        gauges.refused_outside = self.parts.source.counts().refused_outside();
        self.parts.block.publish(&self.counts);
    }
}

/// Watches the sockets of links over one.
fn watch(data_links: &[DataLink]) -> SocketWatch {
    let senders = data_links.iter().map(|data_link| data_link.link.sender());
    SocketWatch::new(senders.map(|sender| sender.map(LinkSender::socket)))
}

/// Returns one page to its link; `false` when the pair names none.
fn recycle(data_links: &mut [DataLink], unit: usize, pair: &[u32]) -> bool {
    let link = data_links
        .iter_mut()
        .find(|link| link.unit == unit && u32::from(link.index_at_unit) == pair[0]);
    link.is_some_and(|link| link.link.recycle(pair[1]))
}

/// Moves words on one link, and its acknowledge entries into their ring if its pages are filled here,
/// as far as there is room.
fn pump_link(
    now: RunNs,
    data_link: &mut DataLink,
    cards: &mut Option<CardRings>,
    is_readable: bool,
) -> usize {
    let DataLink {
        link,
        index_at_unit,
        ..
    } = data_link;
    let mut work = usize::from(link.pump(now, is_readable) == LinkProgress::Moved);
    let Some(CardRings { completions, .. }) = cards else {
        return work;
    };
    while completions.has_room() {
        let Some(completed) = link.poll_completed() else {
            break;
        };
        let entry = Completion {
            link: *index_at_unit,
            completed,
        };
        let sent = completions.try_push(&entry.to_words());
        // If the readout unit is gone: the link has counted the fragment as sent, so that it is
        // `link_aborted` once the loss is settled; the page comes back with the others of the unit.
        debug_assert!(is_taken(sent), "a free slot was seen");
        work += 1;
    }
    link.poll_flow(now);
    work
}

fn envelope(epoch: u32, sequence: u32, message: BuilderMessage) -> Envelope {
    Envelope {
        sender: UnitId::SUPERVISOR,
        epoch,
        sequence,
        message,
    }
}

impl Role for FrontEnd {
    fn id(&self) -> &str {
        &self.parts.id
    }

    fn poll(&mut self, now: RunNs, phase: Phase) -> usize {
        self.begin(now);
        if phase >= Phase::Draining && !self.finished {
            self.parts.source.stop();
            self.finish(now);
        }
        if phase == Phase::Aborting {
            self.abort(now);
        }
        if self.is_at_end(now) {
            let links = self.parts.data_links.iter_mut();
            links.for_each(|data_link| data_link.link.handle_end());
        }
        if self.finished && self.sending.is_none() {
            self.parts.supervisor.stop(now);
            let links = self.parts.data_links.iter_mut();
            links.for_each(|data_link| data_link.link.settle());
        }
        self.apply_faults(now);
        self.take_readout_back(now);
        let mut work = self.take_pages_back() + self.take_replies(now);
        if self.parts.supervisor.poll_timeout() <= now {
            self.parts.supervisor.handle_timeout(now);
        }
        work += self.send_outputs();
        if let Some(server) = &mut self.parts.front_ends {
            work += server.poll(now);
        }
        if let Some(spill) = &mut self.parts.spill {
            spill.advance(now);
        }
        if !self.finished {
            work += self.offer(now);
        }
        work += self.pump_links(now);
        work += self.send_fragments(now);
        let front_ends = self.parts.front_ends.as_ref();
        let gauges = &mut self.counts.gauges;
        // While it waits for them there is no work that could tell.
        let is_news = front_ends.is_some_and(|server| server.note_missing(now, gauges));
        let ends = self.finished || self.counts.gauges.ended == 0 && self.is_at_end(now);
        if work > 0 || is_news || ends {
            self.publish(now);
        }
        work
    }

    fn handle_command(&mut self, now: RunNs, command: RoleCommand) {
        self.begin(now);
        match command {
            RoleCommand::PeerLost { unit, .. } if unit.kind == UnitKind::Readout => {
                self.lose_readout(now, unit.index.into());
                self.publish(now);
            }
            RoleCommand::StreamBack { unit, stream } if unit.kind == UnitKind::Source => {
                let data_link = self.parts.data_links.get_mut(usize::from(unit.index));
                if let (Some(data_link), Some(stream)) = (data_link, stream) {
                    // One that cannot be used ends, and its readout unit says so.
                    let _cut = data_link.link.restore(stream);
                }
                self.sockets = watch(&self.parts.data_links);
            }
            RoleCommand::PeerBack {
                unit,
                producers,
                consumers,
                socket,
                data_sockets,
                ..
            } if unit.kind == UnitKind::Readout => {
                let rings = ReadoutRings::renewed(unit, producers, consumers, socket);
                self.returning = rings.map(|rings| ReturningReadout {
                    unit: unit.index.into(),
                    rings,
                    data_sockets,
                });
                self.take_readout_back(now);
            }
            RoleCommand::PeerLost { unit, .. } if unit.kind == UnitKind::EventManager => {
                let given = TriggerNumber(self.parts.supervisor.counters().triggers);
                self.named.extend(self.parts.event_manager.lose(given));
            }
            RoleCommand::Decide { triggers, .. } => self.parts.event_manager.close(&triggers),
            RoleCommand::NameUnasked { triggers, .. } => {
                let finished = self.parts.event_manager.finished_of(&triggers);
                self.named.extend(finished);
            }
            RoleCommand::PeerBack {
                unit,
                producers,
                consumers,
                socket,
                ..
            } if unit.kind == UnitKind::EventManager => {
                self.welcome_manager(unit, producers, consumers, socket);
            }
            RoleCommand::Hold { unit } => {
                let rings = self.parts.readout_units.get(usize::from(unit.index));
                if rings.is_some_and(|rings| !rings.is_lost) {
                    self.is_held = true;
                    let given = self.parts.supervisor.counters().triggers;
                    self.named.push(TriggerNumber(given));
                }
            }
            RoleCommand::Pause { is_on: false } => self.pause.resume(now),
            RoleCommand::Pause { is_on: true } if !self.finished => self.pause.pause(now),
            RoleCommand::Joined { unit, newest } => self.open_links(unit.index.into(), newest),
            _ => {}
        }
    }

    fn poll_settled(&mut self) -> Option<Vec<TriggerNumber>> {
        let is_settled = self.returning.is_none();
        is_settled.then(|| std::mem::take(&mut self.named))
    }

    /// What the supervisor still has to say is not said any more. It waits for a readout unit that reads no
    /// decisions: one that stands still or is gone, for which a run is not gone on with.
    fn close(&mut self) {
        while let Some(output) = self.parts.supervisor.poll_output() {
            self.untold += u64::from(matches!(output, SupervisorOutput::L2Accept { .. }));
        }
    }

    fn finish(mut self: Box<Self>, now: RunNs) -> RoleResult {
        // Of a run that has ended in order there is none; a role that stood still may not know of the end.
        self.parts.supervisor.abort(now);
        self.publish(now);
        let dead_time = self.parts.supervisor.dead_time(now);
        let supervisor = *self.parts.supervisor.counters();
        let packets = self.parts.encoder.counts();
        let source = self.parts.source.counts();
        let taken_from = self.taken_from.unwrap_or_default();
        let details = [
            ("refused_buffers", source.refused_buffers),
            ("refused_xoff", source.refused_xoff),
            ("refused_late", source.refused_late),
            ("refused_gate", source.refused_gate),
            ("refused_gate_passed", source.refused_gate_passed),
            ("refused_paused", source.refused_paused),
            ("pauses", self.pause.count()),
            ("paused_ms", self.pause.duration(now).0 / 1_000_000),
            ("taking_from_us", taken_from.0 / 1_000),
            ("taking_us", self.taken_until.since(taken_from).0 / 1_000),
            ("refused_outputs_full", supervisor.refused_outputs_full),
            ("deadline_misses", supervisor.deadline_misses),
            ("replies_late", supervisor.replies_late),
            ("replies_stranger", supervisor.replies_stranger),
            ("replies_duplicate", supervisor.replies_duplicate),
            ("replies_malformed", supervisor.replies_malformed),
            ("packet_words", packets.words),
            ("packets_truncated", packets.truncated),
            ("foreign_page_numbers", self.foreign_words),
            ("fragments_unsent", self.unsent),
        ];
        let transports = self.transport_details();
        let of_manager = self.parts.event_manager.details();
        let front_ends = self.parts.front_ends.iter();
        let of_front_ends: Vec<_> = front_ends.flat_map(FrontEndServer::details).collect();
        let spill = self.parts.spill.iter().flat_map(|spill| {
            let counters = spill.counters();
            [
                ("gates_opened", counters.gates_opened),
                ("triggers_scheduled", counters.triggers),
                ("triggers_missed", counters.triggers_missed),
                ("ramps_started", counters.ramps_started),
                ("ramp_cycles", counters.cycles),
                ("ramp_faults", counters.ramp_faults),
                ("timing_actions_dropped", counters.actions_dropped),
            ]
        });
        RoleResult {
            id: self.parts.id,
            counts: self.counts,
            decision_latency: Some(self.latency),
            digest: Some(self.parts.supervisor.digest()),
            dead_time: Some((dead_time.refused_fraction(), dead_time.busy_fraction())),
            details: details
                .into_iter()
                .chain(of_manager)
                .chain(transports)
                .chain(spill)
                .map(|(name, n)| (name.to_owned(), n))
                .chain(of_front_ends)
                .collect(),
            ..RoleResult::default()
        }
    }
}

#[cfg(test)]
mod tests;
