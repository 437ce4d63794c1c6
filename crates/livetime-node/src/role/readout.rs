//! A readout unit: pages in from its links, checked fragments filed, sent and freed on request.
//!
//! Drives one `FragmentAssembler` per link, the `FragmentBuffer`, the `ReadoutUnit`, and the receiving
//! ends of links over sockets; of other links acknowledge entries come, from the front-end's role. Pages
//! are only named in what it sends; they go back to their link when the builder releases them.

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use livetime_builder::{
    FragmentVerdict, FreeReason, Handled, Outgoing, ReadoutOutput, ReadoutUnit,
};
use livetime_readout::fragment_assembler::DAMAGED_TRIGGER_DISTANCE_MAX;
use livetime_readout::{Assembled, FragmentAssembler, FragmentBuffer};
use livetime_shm::{Consumer, PageIndex, PagePool, Producer};
use livetime_wire::message::{BuilderMessage, FRAGMENT_PAGES_MAX, FragmentDescriptor};
use livetime_wire::{LossCause, RunNs, TriggerNumber, UnitId, UnitKind};

use super::flagged_fragments::FlaggedFragments;
use super::{Role, RoleCommand, RoleResult, network_details, poll_cut, reconnect, restore_socket};
use crate::completion::Completion;
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::link::{LinkReceiver, TransportCounters};
use crate::message_ring::{Inbox, Outbox, is_taken, receive};
use crate::pooled_page::HeldPages;
use crate::socket_watch::SocketWatch;
use crate::transport::fragment_shaper::QueuedFragment;
use crate::transport::{FragmentShaper, NetworkLink};
use crate::worker::Phase;

/// Pages and messages taken in one duty cycle, so that other roles get their turn.
const PAGES_PER_POLL: usize = 16;
const MESSAGES_PER_POLL: usize = 64;
/// Entries that are read ahead, so that the lines of their pages are on the way from the card's core
/// while the page before is worked on.
const PAGES_AHEAD: usize = 2;
/// Index of no builder unit.
const NO_BUILDER: u16 = u16::MAX;
/// Pages that one message returns at most.
const PAGES_PER_MESSAGE: usize = 8;

/// The rings from and to links whose pages are filled in the front-end's role.
pub struct CardEnds {
    /// Acknowledge entries in.
    pub completions: Consumer,
    /// Pages back: pairs of link index and page.
    pub pages_back: Producer,
}

/// A link over a socket, which ends here.
pub struct SocketLink {
    /// Its index at this unit.
    pub index: u16,
    /// The unit at its far end.
    pub front_end: UnitId,
    /// Its end here.
    pub receiver: LinkReceiver,
}

/// Everything that a readout unit is made of.
pub struct ReadoutParts {
    /// Role id.
    pub id: String,
    /// The protocol core.
    pub core: ReadoutUnit,
    /// One assembler per link, by the link's index at this unit.
    pub assemblers: Vec<FragmentAssembler>,
    /// First page of each link and, last, the number of pages of the pool.
    pub first_pages: Vec<u32>,
    /// The fragments on file.
    pub buffer: FragmentBuffer,
    /// The pool of this unit's pages.
    pub pool: PagePool,
    /// The rings of links whose pages are filled elsewhere, if it has any.
    pub cards: Option<CardEnds>,
    /// The links whose pages are filled here.
    pub links: Vec<SocketLink>,
    /// Messages of the supervisor and the builder units.
    pub inboxes: Vec<Inbox>,
    /// Messages to the builder units.
    pub outbox: Outbox,
    /// What gives builder units behind a network their turns, if their traffic is shaped.
    pub shaper: Option<FragmentShaper>,
    /// Where the counters are published.
    pub block: Arc<CounterBlock>,
}

/// The readout unit role.
pub struct Readout {
    parts: ReadoutParts,
    /// Pages whose fragment is not complete yet, by link.
    held: Vec<HeldPages>,
    /// The sockets of its links.
    sockets: SocketWatch,
    /// The link over a socket that is asked for its next page first.
    turn: usize,
    /// Entries read ahead, in order.
    ahead: ArrayVec<Completion, { PAGES_AHEAD + 1 }>,
    /// A fragment that found the core's table full, and its link.
    waiting: Option<(usize, TriggerNumber, FragmentDescriptor)>,
    freed: Freed,
    /// When it was last polled.
    polled_at: RunNs,
    counts: RoleCounts,
    malformed: u64,
    aborted: bool,
    /// No more triggers are given, and what is on its way passes.
    is_draining: bool,
    lost_here: u64,
    /// Fragments that were left in the end and belong to no trigger.
    of_no_trigger: u64,
    /// Fragments of events that a lost builder unit had handed on.
    freed_of_lost: u64,
    /// Payload bytes sent to builder units, repetitions included.
    sent_bytes: u64,
    /// The answer to the last command: events that a lost builder unit had released.
    named: Vec<TriggerNumber>,
}

/// What is off the file.
struct Freed {
    /// Pages on their way back; every page is in at most one place, so the pool bounds it.
    pages_back: VecDeque<u32>,
    /// Triggers, since it was last asked.
    triggers: usize,
    /// Fragments that were never asked for, since the first step rejected their events.
    unasked: u64,
    /// Their payload bytes.
    unasked_bytes: u64,
}

impl Freed {
    /// Frees what the core wants freed, up to the next fragment that it wants sent.
    fn next_to_send(
        &mut self,
        core: &mut ReadoutUnit,
        buffer: &mut FragmentBuffer,
    ) -> Option<QueuedFragment> {
        loop {
            match core.poll_output()? {
                ReadoutOutput::SendFragment {
                    to,
                    sequence,
                    trigger,
                    source,
                } => {
                    return Some(QueuedFragment {
                        to: to.index,
                        sequence,
                        trigger,
                        source,
                    });
                }
                ReadoutOutput::Free { trigger, reason } => {
                    self.triggers += 1;
                    let is_unasked = reason == FreeReason::Unasked;
                    buffer.remove(trigger, |fragment| self.take(&fragment, is_unasked));
                }
            }
        }
    }

    /// Takes a fragment that is not on file, or not any more.
    fn take(&mut self, fragment: &FragmentDescriptor, is_unasked: bool) {
        if is_unasked {
            self.unasked += 1;
            self.unasked_bytes += u64::from(fragment.words) * 4;
        }
        self.pages_back.extend(fragment.pages.iter().copied());
    }
}

/// Whether somebody reads a page.
fn is_read(pool: &PagePool, page: u32) -> bool {
    pool.readers(PageIndex(page))
        .is_ok_and(|readers| readers > 0)
}

/// Watches the sockets of links.
fn watch(links: &[SocketLink]) -> SocketWatch {
    let receivers = links.iter().map(|link| &link.receiver);
    SocketWatch::new(receivers.map(|receiver| Some(receiver.socket())))
}

/// Where a fragment that is to be sent is on file.
fn on_file<'a>(
    buffer: &'a FragmentBuffer,
    fragment: &QueuedFragment,
) -> Option<&'a FragmentDescriptor> {
    buffer.fragment(fragment.trigger, fragment.source)
}

/// Tells the barrier with which phase of a linear shift this unit is through; returns how many
/// messages that took.
fn tell_barrier(
    now: RunNs,
    core: &ReadoutUnit,
    shaper: &mut FragmentShaper,
    network: &mut NetworkLink,
) -> usize {
    let Some((phase, demand)) = shaper.poll_through(now, network) else {
        return 0;
    };
    let to = UnitId::EVENT_MANAGER;
    let envelope = core.through_message(phase, demand);
    if network.send(&Outgoing { to, envelope }).is_err() {
        shaper.take_back_through();
        return 0;
    }
    network.flush_to(to);
    1
}

impl Readout {
    /// A readout unit at the start of its run.
    pub fn new(parts: ReadoutParts) -> Self {
        let pages = FRAGMENT_PAGES_MAX + 1;
        let hold = |_: &FragmentAssembler| HeldPages::new(parts.pool.clone(), pages);
        let mut counts = RoleCounts::default();
        counts.gauges.held_max = u64::from(parts.pool.page_count());
        // How many pages there are is asked for before the first fragment comes.
        parts.block.publish(&counts);
        Self {
            held: parts.assemblers.iter().map(hold).collect(),
            sockets: watch(&parts.links),
            turn: 0,
            ahead: ArrayVec::new(),
            waiting: None,
            freed: Freed {
                pages_back: VecDeque::with_capacity(parts.pool.page_count() as usize),
                triggers: 0,
                unasked: 0,
                unasked_bytes: 0,
            },
            parts,
            polled_at: RunNs(0),
            counts,
            malformed: 0,
            aborted: false,
            is_draining: false,
            lost_here: 0,
            of_no_trigger: 0,
            freed_of_lost: 0,
            sent_bytes: 0,
            named: Vec::new(),
        }
    }

    /// Takes the next filled page; `false` when there is none or its fragment has to wait.
    fn take_page(&mut self, now: RunNs) -> bool {
        if let Some((link, trigger, fragment)) = self.waiting.take() {
            return self.file(now, link, trigger, fragment);
        }
        self.read_ahead();
        let Some(Completion { link, completed }) = self.ahead.pop_at(0) else {
            return false;
        };
        let link = usize::from(link);
        let (Some(held), Some(assembler)) =
            (self.held.get_mut(link), self.parts.assemblers.get_mut(link))
        else {
            self.malformed += 1;
            return true;
        };
        if held.hold(completed.page).is_err() {
            self.malformed += 1;
            return true;
        }
        let assembled = assembler.handle_completed(&completed, held);
        match assembled {
            Assembled::MoreToCome => true,
            Assembled::Fragment { trigger, fragment } => {
                held.clear();
                self.counts.gauges.bytes += u64::from(fragment.words) * 4;
                self.file(now, link, trigger, fragment)
            }
            Assembled::Refused { pages, .. } => {
                for page in pages {
                    held.drop_page(page);
                    self.freed.pages_back.push_back(page);
                }
                true
            }
        }
    }

    /// Reads entries as long as there is room for more of them ahead.
    fn read_ahead(&mut self) {
        while !self.ahead.is_full() {
            let Some(entry) = self.next_entry() else {
                break;
            };
            if let Some(held) = self.held.get(usize::from(entry.link)) {
                held.prepare(entry.completed.page, entry.completed.len_words);
            }
            self.ahead.push(entry);
        }
    }

    /// The next acknowledge entry, from the ring or from the links that end here, in turn.
    fn next_entry(&mut self) -> Option<Completion> {
        if let Some(cards) = &mut self.parts.cards {
            match cards.completions.try_pop(Completion::parse) {
                Ok(Some(Ok(entry))) => return Some(entry),
                Ok(Some(Err(_))) => {
                    self.malformed += 1;
                    return None;
                }
                Ok(None) | Err(_) => {}
            }
        }
        let links = self.parts.links.len();
        for at in (self.turn..links).chain(0..self.turn.min(links)) {
            let SocketLink {
                index, receiver, ..
            } = &mut self.parts.links[at];
            if let Some(completed) = receiver.poll_completed() {
                self.turn = at + 1;
                let link = *index;
                return Some(Completion { link, completed });
            }
        }
        None
    }

    /// Takes what has come over the links that end here.
    fn poll_links(&mut self, now: RunNs) -> usize {
        self.sockets.look();
        let links = self.parts.links.iter_mut().enumerate();
        links
            .map(|(at, link)| link.receiver.poll(now, self.sockets.is_ready(at)))
            .sum()
    }

    /// Files a fragment if the core holds it; `false` when it has to wait.
    fn file(
        &mut self,
        now: RunNs,
        link: usize,
        trigger: TriggerNumber,
        fragment: FragmentDescriptor,
    ) -> bool {
        match self
            .parts
            .core
            .handle_fragment(now, trigger, fragment.source)
        {
            FragmentVerdict::Hold => {
                let filed = self.parts.buffer.insert(trigger, fragment);
                // The core has checked source, repetition and room; the buffer has the same bounds.
                debug_assert!(filed.is_ok(), "core and buffer agree");
                true
            }
            FragmentVerdict::Discard { .. } => {
                self.forget_far_number(link, trigger);
                self.freed.take(&fragment, false);
                true
            }
            FragmentVerdict::DiscardUnasked => {
                self.freed.take(&fragment, true);
                true
            }
            FragmentVerdict::KeepBetter => {
                let other = self.parts.buffer.keep_better(trigger, fragment);
                self.freed.take(&other, false);
                true
            }
            FragmentVerdict::Wait => {
                self.waiting = Some((link, trigger, fragment));
                false
            }
        }
    }

    /// Numbers are extended from that of the last sound fragment of their link. One that no event took
    /// and that is far from all that are in work is none to extend from: a few such would carry all
    /// behind them out of the range.
    fn forget_far_number(&mut self, link: usize, trigger: TriggerNumber) {
        let newest = self.parts.core.newest();
        if trigger.0.abs_diff(newest.0) > DAMAGED_TRIGGER_DISTANCE_MAX {
            self.parts.assemblers[link].expect_after(newest);
        }
    }

    /// Does what the core says, as long as there is room for its messages.
    fn act(&mut self, now: RunNs) -> usize {
        let Self {
            parts,
            freed,
            sent_bytes,
            ..
        } = self;
        let ReadoutParts {
            core,
            buffer,
            outbox,
            shaper,
            ..
        } = parts;
        let sent = match (shaper, outbox.network()) {
            (Some(shaper), Some(network)) => {
                shaper.begin_cycle(now);
                while let Some(fragment) = freed.next_to_send(core, buffer) {
                    if let Some(on_file) = on_file(buffer, &fragment) {
                        shaper.push(fragment, on_file.words * 4);
                    }
                }
                let sent = shaper.poll(now, network, |fragment| {
                    let on_file = on_file(buffer, fragment)?.clone();
                    Some(core.fragment_message(fragment.sequence, fragment.trigger, on_file))
                });
                sent + tell_barrier(now, core, shaper, network)
            }
            _ => {
                // What was kept, first.
                let mut sent = outbox.send_all(|| None);
                while !outbox.is_full()
                    && let Some(fragment) = freed.next_to_send(core, buffer)
                {
                    let Some(on_file) = on_file(buffer, &fragment) else {
                        continue;
                    };
                    *sent_bytes += u64::from(on_file.words) * 4;
                    let QueuedFragment {
                        sequence, trigger, ..
                    } = fragment;
                    let message = core.fragment_on_file(sequence, trigger, on_file);
                    let to = UnitId::builder(fragment.to);
                    sent += usize::from(outbox.send_fragment(to, &message));
                }
                outbox.flush();
                sent
            }
        };
        sent + core::mem::take(&mut freed.triggers)
    }

    /// Returns pages to their links, several per message to those whose pages are filled elsewhere.
    /// A fragment that was asked for twice may still be on its way to the network when its event is
    /// released: its pages wait until they are sent, or a link would be given what it cannot fill.
    fn return_pages(&mut self) -> usize {
        let mut work = 0;
        let Self {
            parts,
            freed,
            malformed,
            ..
        } = self;
        let may_be_sent = parts.outbox.network().is_some();
        let mut looks = freed.pages_back.len();
        let has_room = |cards: &mut Option<CardEnds>| {
            let ring = cards.as_mut().map(|cards| &mut cards.pages_back);
            ring.is_none_or(|ring| ring.has_room())
        };
        while looks > 0 && has_room(&mut parts.cards) {
            let mut pairs = ArrayVec::<u32, { 2 * PAGES_PER_MESSAGE }>::new();
            while !pairs.is_full() && looks > 0 {
                looks -= 1;
                let Some(page) = freed.pages_back.pop_front() else {
                    break;
                };
                if may_be_sent && is_read(&parts.pool, page) {
                    freed.pages_back.push_back(page);
                    continue;
                }
                let first_pages = &parts.first_pages;
                let link = first_pages
                    .partition_point(|first| *first <= page)
                    .saturating_sub(1);
                let mut here = parts.links.iter_mut();
                work += 1;
                if let Some(here) = here.find(|here| usize::from(here.index) == link) {
                    *malformed += u64::from(!here.receiver.recycle(page));
                    continue;
                }
                pairs.push(link as u32);
                pairs.push(page);
            }
            if let Some(cards) = parts.cards.as_mut().filter(|_| !pairs.is_empty()) {
                let sent = cards.pages_back.try_push(&pairs);
                // Free pages carry nothing: none is lost with a front-end that is gone.
                debug_assert!(is_taken(sent), "a free slot was seen");
            }
        }
        work
    }

    fn take_messages(&mut self, now: RunNs) -> usize {
        let parts = &mut self.parts;
        let (core, outbox) = (&mut parts.core, &mut parts.outbox);
        let shaper = &mut parts.shaper;
        receive(
            &mut parts.inboxes,
            outbox,
            MESSAGES_PER_POLL,
            |envelope| match (&envelope.message, &mut *shaper) {
                (BuilderMessage::Phase { phase }, Some(shaper))
                    if envelope.sender.kind == UnitKind::EventManager =>
                {
                    shaper.handle_phase(*phase);
                    Handled::Taken
                }
                _ => core.handle_message(now, envelope),
            },
        )
    }

    fn lose_peer(&mut self, now: RunNs, unit: UnitId, open: &[TriggerNumber]) {
        let is_builder = unit.kind == UnitKind::Builder;
        if is_builder {
            // What the dead unit said before comes first.
            while self.take_messages(now) > 0 {}
        }
        self.parts.outbox.lose(unit);
        if is_builder {
            if let Some(shaper) = &mut self.parts.shaper {
                shaper.lose(unit.index);
            }
            self.freed_of_lost += self.parts.core.take_back(unit.index, open);
        }
    }

    /// Notes which of the events that a builder unit had, gone or not, were released here.
    fn name_released(&mut self, now: RunNs, unit: UnitId, events: &[TriggerNumber]) {
        // What was said before comes first, and of a dead builder unit nothing after it.
        while self.take_messages(now) > 0 {}
        let builder = match unit.kind {
            UnitKind::Builder => unit.index,
            // None is gone: what they say counts.
            _ => NO_BUILDER,
        };
        if builder != NO_BUILDER {
            self.parts.outbox.lose(unit);
        }
        self.named
            .extend(self.parts.core.released_by(builder, events));
    }

    fn publish(&mut self) {
        let parts = &mut self.parts;
        let is_core_idle = parts.core.is_idle();
        let mut idle = (is_core_idle || self.is_draining)
            && self.waiting.is_none()
            && self.ahead.is_empty()
            && self.freed.pages_back.is_empty()
            && parts.outbox.is_empty()
            && parts.shaper.as_ref().is_none_or(FragmentShaper::is_empty)
            && (parts.cards.as_mut()).is_none_or(|cards| cards.completions.is_empty())
            && parts.links.iter().all(|link| link.receiver.is_empty())
            && parts.inboxes.iter_mut().all(Inbox::is_empty);
        // What is held in a drain for triggers behind all that were given is of none: nobody asks for it.
        idle = idle && (is_core_idle || parts.core.holds_only_ahead());
        let mut losses = *parts.core.losses();
        losses.add(LossCause::FragmentAborted, self.lost_here);
        losses.add(LossCause::FragmentMalformed, self.of_no_trigger);
        let mut received = 0;
        for assembler in &parts.assemblers {
            received += assembler.counters().received;
            losses.merge(assembler.losses());
        }
        for link in &parts.links {
            losses.merge(&link.receiver.losses());
        }
        let chain = &mut self.counts.chain;
        chain.fragments_received = received;
        chain.fragments_dropped_by_decision = parts.core.counts().fragments_dropped_by_decision;
        self.counts.losses = losses;
        self.counts.gauges.idle = u64::from(idle);
        self.counts.gauges.held = parts.buffer.len() - self.of_no_trigger;
        self.counts.gauges.newest = parts.core.newest().0;
        parts.block.publish(&self.counts);
    }
}

impl Role for Readout {
    fn id(&self) -> &str {
        &self.parts.id
    }

    fn poll(&mut self, now: RunNs, phase: Phase) -> usize {
        self.polled_at = now;
        self.is_draining = phase == Phase::Draining;
        if phase == Phase::Aborting && !self.aborted {
            self.aborted = true;
            self.parts.core.abort();
            if let Some(shaper) = &mut self.parts.shaper {
                shaper.end_waiting();
            }
            let links = self.parts.links.iter_mut();
            links.for_each(|link| link.receiver.abort(now));
        }
        let mut work = self.take_messages(now) + self.poll_links(now);
        for _ in 0..PAGES_PER_POLL {
            if !self.take_page(now) {
                break;
            }
            work += 1;
        }
        if self.parts.core.poll_timeout() <= now {
            self.parts.core.handle_timeout(now);
        }
        work += self.act(now) + self.return_pages();
        if work > 0 || phase >= Phase::Draining {
            self.publish();
        }
        work
    }

    fn handle_command(&mut self, now: RunNs, command: RoleCommand) {
        match command {
            RoleCommand::PeerLost { unit, triggers } => self.lose_peer(now, unit, &triggers),
            // Events that a lost builder unit had handed on.
            RoleCommand::Decide { triggers, .. } => {
                self.freed_of_lost += self.parts.core.finish_events(&triggers);
            }
            RoleCommand::NameReleased { unit, triggers } => {
                self.name_released(now, unit, &triggers);
            }
            RoleCommand::NameUnasked { .. } => self.named.extend(self.parts.core.unasked()),
            RoleCommand::EndUnasked { triggers, .. } => {
                self.freed_of_lost += self.parts.core.end_unasked(&triggers);
            }
            RoleCommand::Joined { unit, newest } if unit.to_string() == self.parts.id => {
                self.parts.core.handle_joined(newest);
                let assemblers = self.parts.assemblers.iter_mut();
                assemblers.for_each(|assembler| assembler.expect_after(newest));
            }
            RoleCommand::Retire { .. }
            | RoleCommand::NameOpen
            | RoleCommand::NameHeld { .. }
            | RoleCommand::Succeed { .. }
            | RoleCommand::Hold { .. }
            | RoleCommand::Pause { .. }
            | RoleCommand::Joined { .. } => {}
            RoleCommand::StreamBack { unit, stream } if unit.kind == UnitKind::Source => {
                let mut links = self.parts.links.iter_mut();
                let link = links.find(|link| link.front_end == unit);
                if let (Some(link), Some(stream)) = (link, stream) {
                    // One that cannot be used ends, and is told of once more.
                    let _cut = link.receiver.restore(stream);
                    self.sockets = watch(&self.parts.links);
                }
            }
            RoleCommand::StreamBack { unit, stream } => {
                reconnect(&mut self.parts.outbox, unit, stream);
            }
            RoleCommand::PeerBack {
                unit,
                epoch,
                producers,
                consumers,
                socket,
                ..
            } => {
                match unit.kind {
                    UnitKind::EventManager => self.parts.core.handle_manager_back(epoch),
                    _ => self.parts.core.handle_builder_back(unit.index, epoch),
                }
                restore_socket(&mut self.parts.outbox, unit, socket);
                let inbox = self.parts.inboxes.iter_mut().find(|i| i.from() == unit);
                if let (Some(inbox), Some(ring)) = (inbox, consumers.into_values().next()) {
                    inbox.replace(ring);
                }
                if let Some(ring) = producers.into_values().next() {
                    self.parts.outbox.restore(unit, ring);
                }
            }
        }
    }

    fn poll_settled(&mut self) -> Option<Vec<TriggerNumber>> {
        Some(std::mem::take(&mut self.named))
    }

    fn poll_cut(&mut self, now: RunNs) -> Option<UnitId> {
        let parts = &mut self.parts;
        let mut links = parts.links.iter_mut();
        if let Some(link) = links.find_map(|l| l.receiver.poll_cut(now).then_some(l.front_end)) {
            return Some(link);
        }
        let cut = parts.inboxes.iter_mut().find_map(|i| i.poll_cut(now));
        cut.or_else(|| poll_cut(&mut parts.outbox, now))
    }

    fn close(&mut self) {
        // A fragment that waited for room was received and is lost now.
        self.lost_here += u64::from(self.waiting.take().is_some());
        self.parts.core.close();
        self.act(self.polled_at);
    }

    fn finish(mut self: Box<Self>, _now: RunNs) -> RoleResult {
        if self.is_draining {
            self.of_no_trigger = self.parts.buffer.len();
        }
        self.publish();
        let counts = *self.parts.core.counts();
        let malformed: u64 = self.parts.inboxes.iter().map(Inbox::malformed).sum();
        let details = [
            ("fragments_filed", counts.fragments_filed),
            ("fragments_sent_to_builders", counts.fragments_sent),
            ("fragments_sent_again", counts.fragments_sent_again),
            ("requests_forgotten", counts.requests_forgotten),
            ("fragments_freed_of_lost_builders", self.freed_of_lost),
            ("triggers_kept", counts.triggers_kept),
            ("triggers_taken_back", counts.triggers_taken_back),
            ("triggers_dropped", counts.triggers_dropped),
            (
                "triggers_held_high_water",
                self.parts.buffer.counters().triggers_high_water.into(),
            ),
            ("messages_received", counts.messages.received),
            ("messages_malformed", malformed + self.malformed),
        ];
        let joined_after = self.parts.core.joined_after().0;
        let of_joined = (joined_after > 0).then_some(("joined_after", joined_after));
        let shaper = self.parts.shaper.as_ref();
        let sent_bytes = self.sent_bytes + shaper.map_or(0, |shaper| shaper.counts().payload_bytes);
        let of_steps = self.parts.core.is_two_step().then_some([
            ("bytes_sent_to_builders", sent_bytes),
            ("fragments_unasked", self.freed.unasked),
            ("bytes_unasked", self.freed.unasked_bytes),
        ]);
        let of_shaper = shaper.map(FragmentShaper::details);
        let mut of_links = TransportCounters::default();
        for link in &self.parts.links {
            of_links.add(link.receiver.transport_counters());
        }
        RoleResult {
            id: self.parts.id,
            counts: self.counts,
            details: details
                .into_iter()
                .chain(of_joined)
                .chain(of_steps.into_iter().flatten())
                .chain(of_shaper.into_iter().flatten())
                .chain(of_links.details())
                .chain(network_details(&mut self.parts.outbox))
                .map(|(name, n)| (name.to_owned(), n))
                .chain(FlaggedFragments::of(&self.parts.assemblers).details())
                .collect(),
            ..RoleResult::default()
        }
    }
}

#[cfg(test)]
mod tests;
