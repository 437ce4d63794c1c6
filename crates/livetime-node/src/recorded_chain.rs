//! The chain for data that exist already: links, readout, event builder, in one thread and in order.
//!
//! Each source's words of an event go as the data of a fragment through both ends of an S-LINK of
//! its own, are checked and filed, and the event builder makes an event of them: the very cores of
//! a run, without trigger, filter and rings. It is for importing files; nothing is decided, and
//! what goes in comes out or is an error. Where the data come from is the caller's business.
//!
//! The builder's key is dense and grows; what is stored need not be, as Level 2 rejects and files are
//! read one after the other. So events have a number of their own in the builder's messages, while
//! fragments and built events carry that of their trigger.

use std::collections::{BTreeMap, VecDeque};

use arrayvec::ArrayVec;
use livetime_builder::readout_unit::{FragmentVerdict, ReadoutOutput};
use livetime_builder::{BuilderConfig, BuilderUnit, EventManager, Handled, ReadoutUnit};
use livetime_readout::{
    Assembled, AssemblerConfig, Begun, FragmentAssembler, FragmentBuffer, FragmentBufferConfig,
    HeapPages, LinkConfig, PageLink, PageRead, PageStore, Receiver, SlinkSource, SourceLinkConfig,
};
use livetime_wire::crc::crc32c;
use livetime_wire::event::{EventHeader, FragmentEntry};
use livetime_wire::fragment::{CrcCheck, FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::message::{
    BuilderMessage, Envelope, EventTicket, FRAGMENT_PAGES_MAX, FragmentDescriptor, Keep,
};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, Problem, RunNs, RunNumber, SourceId, TriggerNumber, UnitId, UnitKind};

/// Sources of one readout unit.
const SOURCES_PER_UNIT: usize = 32;
/// Pages of each link: those of the longest fragment, and some above the thresholds of XOFF.
const PAGES_PER_LINK: u32 = 32;
/// Epoch of all units: none is ever replaced.
const EPOCH: u32 = 1;
/// Rounds of messages in which an event must be built; it takes about ten.
const ROUNDS_MAX: usize = 10_000;

/// Why an event did not come out.
#[derive(Debug, thiserror::Error)]
pub enum RecordedChainError<E> {
    /// The fragment is not as it was sent; a bug.
    #[error("fragment of source {source_id}, trigger {trigger}, did not come through its link")]
    Link {
        /// Whose.
        source_id: SourceId,
        /// Of which trigger.
        trigger: TriggerNumber,
    },
    /// The event was not built; a bug.
    #[error("event of trigger {trigger} was not built")]
    NotBuilt {
        /// Of which trigger.
        trigger: TriggerNumber,
    },
    /// Who takes the events refused one.
    #[error(transparent)]
    Sink(E),
}

/// Where recorded data go in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// At the sources: links, readout, event builder.
    Links,
    /// At the readout units, with their fragments in pages: event builder.
    Builder,
}

/// What went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordedChainCounts {
    /// Fragments handed to links.
    pub fragments_sent: u64,
    /// Fragments filed.
    pub fragments_received: u64,
    /// Their words, header and trailer included.
    pub words: u64,
    /// Events built.
    pub events_built: u64,
}

/// The numbers of an event.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    /// Of its trigger, as stored.
    trigger: TriggerNumber,
    /// In the messages of the builder: from 1, one after the other.
    event: TriggerNumber,
}

/// A link with both ends and its pages.
struct Link {
    id: SourceId,
    source: SlinkSource,
    receiver: Receiver,
    pages: HeapPages,
    assembler: FragmentAssembler,
    words: Vec<u32>,
    page_words: usize,
    pool: u16,
    /// Free pages of a link that is left out: fragments are put into them as a receiver would.
    left_out: Option<Vec<u32>>,
}

/// A readout unit, its links, and their fragments on file.
struct Unit {
    core: ReadoutUnit,
    links: Vec<Link>,
    buffer: FragmentBuffer,
}

/// The chain.
pub struct RecordedChain {
    run: RunNumber,
    units: Vec<Unit>,
    manager: EventManager,
    builder: BuilderUnit,
    messages: VecDeque<(UnitId, Envelope)>,
    sequences: BTreeMap<(UnitId, UnitId), u32>,
    ticket: EventTicket,
    header: Vec<u32>,
    /// What Level 2 is to have said of events.
    mask: L2Mask,
    counts: RecordedChainCounts,
}

impl RecordedChain {
    /// A chain for these sources, whose fragments have at most `data_words_max` words of data.
    ///
    /// # Errors
    /// The problems of the configuration that follows from it: too many sources, or too long
    /// fragments.
    pub fn new(
        run: RunNumber,
        sources: &[SourceId],
        data_words_max: usize,
    ) -> Result<Self, Vec<Problem>> {
        Self::entering_at(Entry::Links, run, sources, data_words_max)
    }

    /// As [`RecordedChain::new`], entered at another place.
    ///
    /// # Errors
    /// As there.
    pub fn entering_at(
        entry: Entry,
        run: RunNumber,
        sources: &[SourceId],
        data_words_max: usize,
    ) -> Result<Self, Vec<Problem>> {
        let units: Vec<Vec<SourceId>> = sources
            .chunks(SOURCES_PER_UNIT)
            .map(<[SourceId]>::to_vec)
            .collect();
        let config = BuilderConfig {
            readout_units: units.clone(),
            builder_units: 1,
            ..BuilderConfig::default()
        };
        let words = (data_words_max + OVERHEAD_WORDS) as u32;
        let page_words = words.div_ceil(FRAGMENT_PAGES_MAX as u32 / 2).max(64);
        let link = LinkConfig {
            page_words,
            pages: PAGES_PER_LINK,
            xoff_below: 2,
            xon_above: 4,
            words_in_flight: 7,
            fragment_words_max: words,
            ..LinkConfig::default()
        };
        let mut problems = config.validate("builder");
        problems.extend(link.validate("link"));
        if !problems.is_empty() {
            return Err(problems);
        }
        let units = (0u16..).zip(units).map(|(index, sources)| Unit {
            core: ReadoutUnit::new(&config, index, EPOCH),
            buffer: FragmentBuffer::new(FragmentBufferConfig { triggers_max: 16 }, &sources),
            links: (0..)
                .zip(sources)
                .map(|(number, id)| Link::new(entry, run, index, number, id, &link))
                .collect(),
        });
        let builder = BuilderUnit::new(&config, 0, EPOCH);
        Ok(Self {
            run,
            units: units.collect(),
            manager: EventManager::new(&config, EPOCH),
            ticket: builder.empty_ticket(),
            builder,
            messages: VecDeque::new(),
            sequences: BTreeMap::new(),
            header: Vec::new(),
            mask: L2Mask::NONE,
            counts: RecordedChainCounts::default(),
        })
    }

    /// Level 2 has given these bits to the events that come from now on; none unless told.
    pub fn set_level_two(&mut self, mask: L2Mask) {
        self.mask = mask;
    }

    /// Sends an event through; `data` gives the words of each source (none at all is an empty
    /// fragment). `sink` gets the built event, as the words of its header and of its fragments'
    /// pages.
    ///
    /// # Errors
    /// A [`RecordedChainError`]; the chain is of no use after it.
    pub fn event<'d, E>(
        &mut self,
        trigger: TriggerNumber,
        data: impl Fn(SourceId) -> &'d [u32],
        sink: impl FnOnce(TriggerNumber, RunNs, &[&[u32]]) -> Result<(), E>,
    ) -> Result<(), RecordedChainError<E>> {
        let event = TriggerNumber(self.counts.events_built + 1);
        let now = RunNs(event.0 * 1000);
        for index in 0..self.units.len() as u16 {
            let decision = BuilderMessage::Decision {
                trigger: event,
                keep: Keep::Build,
            };
            self.send(UnitId::SUPERVISOR, UnitId::readout(index), decision);
        }
        let accept = BuilderMessage::L2Accept {
            trigger: event,
            mask: self.mask,
            triggered_at: RunNs(trigger.0.saturating_mul(1000)),
        };
        self.send(UnitId::SUPERVISOR, UnitId::EVENT_MANAGER, accept);
        let of = Numbers { trigger, event };
        for unit in &mut self.units {
            unit.send_fragments(self.run, of, now, &data, &mut self.counts)
                .map_err(|source_id| RecordedChainError::Link { source_id, trigger })?;
        }
        for _ in 0..ROUNDS_MAX {
            self.poll(now);
            if self.builder.poll_ticket(&mut self.ticket).is_some() {
                self.give(of, sink)?;
                return self.release(of, now);
            }
        }
        Err(RecordedChainError::NotBuilt { trigger })
    }

    /// What went through.
    pub fn counts(&self) -> RecordedChainCounts {
        self.counts
    }

    /// Hands the built event out.
    fn give<E>(
        &mut self,
        of: Numbers,
        sink: impl FnOnce(TriggerNumber, RunNs, &[&[u32]]) -> Result<(), E>,
    ) -> Result<(), RecordedChainError<E>> {
        let Numbers { trigger, event } = of;
        let ticket = &self.ticket;
        if ticket.trigger != event || !ticket.missing.is_empty() {
            return Err(RecordedChainError::NotBuilt { trigger });
        }
        let entries: Vec<FragmentEntry> = (ticket.fragments.iter())
            .map(|fragment| FragmentEntry {
                source: fragment.source,
                words: fragment.words,
                status: fragment.status,
                crc: fragment.crc,
            })
            .collect();
        let header = EventHeader {
            run: self.run,
            trigger,
            triggered_at: ticket.triggered_at,
            mask: ticket.mask,
            filter_reason: 0,
            streams: 0,
        };
        self.header.clear();
        header.emit(&entries, &ticket.missing, &mut self.header);
        let mut parts = vec![self.header.as_slice()];
        for fragment in &ticket.fragments {
            let unit = &self.units[usize::from(fragment.pool)];
            let mut left = fragment.words as usize;
            for page in &fragment.pages {
                let words = unit.links[(page / PAGES_PER_LINK) as usize]
                    .pages
                    .words(*page);
                let here = left.min(words.len());
                parts.push(&words[..here]);
                left -= here;
            }
        }
        self.counts.events_built += 1;
        sink(trigger, ticket.triggered_at, &parts).map_err(RecordedChainError::Sink)
    }

    /// Says that the event is done with, as its filter unit, and goes on until its pages are back.
    fn release<E>(&mut self, of: Numbers, now: RunNs) -> Result<(), RecordedChainError<E>> {
        let triggers = [of.event].into_iter().collect();
        self.send(
            UnitId::filter(0),
            UnitId::builder(0),
            BuilderMessage::EventDone { triggers },
        );
        for _ in 0..ROUNDS_MAX {
            self.poll(now);
            let is_idle = |unit: &Unit| unit.core.is_idle() && unit.buffer.is_empty();
            if self.manager.is_idle() && self.units.iter().all(is_idle) {
                return Ok(());
            }
        }
        let trigger = of.trigger;
        Err(RecordedChainError::NotBuilt { trigger })
    }

    fn send(&mut self, sender: UnitId, to: UnitId, message: BuilderMessage) {
        let next = self.sequences.entry((sender, to)).or_default();
        let envelope = Envelope {
            sender,
            epoch: EPOCH,
            sequence: *next,
            message,
        };
        *next += 1;
        self.messages.push_back((to, envelope));
    }

    /// Delivers what waits and polls every unit once.
    fn poll(&mut self, now: RunNs) {
        for _ in 0..self.messages.len() {
            let (to, envelope) = self.messages.pop_front().expect("counted before");
            let handled = match to.kind {
                UnitKind::EventManager => self.manager.handle_message(now, &envelope),
                UnitKind::Builder => self.builder.handle_message(now, &envelope),
                UnitKind::Readout => {
                    let unit = &mut self.units[usize::from(to.index)];
                    unit.core.handle_message(now, &envelope)
                }
                _ => Handled::Taken,
            };
            if handled == Handled::Busy {
                self.messages.push_back((to, envelope));
            }
        }
        while let Some(sent) = self.manager.poll_output(now) {
            self.messages.push_back((sent.to, sent.envelope));
        }
        while let Some(sent) = self.builder.poll_output(now) {
            self.messages.push_back((sent.to, sent.envelope));
        }
        for unit in &mut self.units {
            unit.poll(&mut self.messages);
        }
    }
}

impl Unit {
    /// Sends a fragment on each link and files it; the source whose did not come through is the
    /// error.
    fn send_fragments<'d>(
        &mut self,
        run: RunNumber,
        of: Numbers,
        now: RunNs,
        data: impl Fn(SourceId) -> &'d [u32],
        counts: &mut RecordedChainCounts,
    ) -> Result<(), SourceId> {
        let Numbers { trigger, event } = of;
        for link in &mut self.links {
            let fragment = match link.left_out {
                None => {
                    link.send(run, trigger, now, data(link.id));
                    link.receive()
                }
                Some(_) => link.place(run, trigger, data(link.id)),
            };
            counts.fragments_sent += 1;
            counts.words += link.words.len() as u64;
            let fragment = fragment.ok_or(link.id)?;
            let verdict = self.core.handle_fragment(now, event, link.id);
            if fragment.0 != trigger || verdict != FragmentVerdict::Hold {
                return Err(link.id);
            }
            self.buffer.insert(event, fragment.1).map_err(|_| link.id)?;
            counts.fragments_received += 1;
        }
        Ok(())
    }

    fn poll(&mut self, messages: &mut VecDeque<(UnitId, Envelope)>) {
        while let Some(output) = self.core.poll_output() {
            match output {
                ReadoutOutput::SendFragment {
                    to,
                    sequence,
                    trigger,
                    source,
                } => {
                    if let Some(fragment) = self.buffer.fragment(trigger, source) {
                        let fragment = fragment.clone();
                        let message = self.core.fragment_message(sequence, trigger, fragment);
                        messages.push_back((to, message));
                    }
                }
                ReadoutOutput::Free { trigger, .. } => {
                    let links = &mut self.links;
                    self.buffer.remove(trigger, |fragment| {
                        for page in fragment.pages {
                            let link = &mut links[(page / PAGES_PER_LINK) as usize];
                            link.recycle(page);
                        }
                    });
                }
            }
        }
    }
}

impl Link {
    fn new(
        entry: Entry,
        run: RunNumber,
        unit: u16,
        number: u32,
        id: SourceId,
        config: &LinkConfig,
    ) -> Self {
        let first_page = number * config.pages;
        let assembler = AssemblerConfig {
            run,
            pool: unit,
            page_words: config.page_words,
            sources: vec![id],
            crc: CrcCheck::On,
        };
        Self {
            id,
            source: SlinkSource::new(SourceLinkConfig::default()),
            receiver: Receiver::new(config.clone(), first_page),
            pages: HeapPages::new(first_page, config.pages, config.page_words),
            assembler: FragmentAssembler::new(assembler),
            words: Vec::new(),
            page_words: config.page_words as usize,
            pool: unit,
            left_out: (entry == Entry::Builder)
                .then(|| (first_page..first_page + config.pages).collect()),
        }
    }

    /// The page is free again.
    fn recycle(&mut self, page: u32) {
        if let Some(free) = &mut self.left_out {
            free.push(page);
            return;
        }
        let recycled = self.receiver.recycle(page);
        debug_assert!(recycled.is_ok(), "the page was on file");
    }

    /// Puts a fragment with these data into pages, without the link; `None` without a free page.
    fn place(
        &mut self,
        run: RunNumber,
        trigger: TriggerNumber,
        data: &[u32],
    ) -> Option<(TriggerNumber, FragmentDescriptor)> {
        self.emit(run, trigger, data);
        let mut fragment = FragmentDescriptor {
            source: self.id,
            pool: self.pool,
            words: self.words.len() as u32,
            status: FragmentStatus::GOOD,
            crc: crc32c(&self.words),
            pages: ArrayVec::new(),
        };
        for part in self.words.chunks(self.page_words) {
            let page = self.left_out.as_mut()?.pop()?;
            self.pages.words_mut(page)[..part.len()].copy_from_slice(part);
            fragment.pages.try_push(page).ok()?;
        }
        Some((trigger, fragment))
    }

    /// Makes the words of a fragment with these data.
    fn emit(&mut self, run: RunNumber, trigger: TriggerNumber, data: &[u32]) {
        let header = FragmentHeader {
            source: self.id,
            run,
            trigger_low: trigger.low(),
            bunch: 0,
            trigger_type: 0,
            event_type: 0,
        };
        self.words.resize(data.len() + OVERHEAD_WORDS, 0);
        header.emit(0, data.len(), &mut self.words, |out| {
            out.copy_from_slice(data)
        });
    }

    /// Sends a fragment with these data along the line.
    fn send(&mut self, run: RunNumber, trigger: TriggerNumber, now: RunNs, data: &[u32]) {
        self.emit(run, trigger, data);
        // However far it is from the one before.
        self.assembler
            .expect_after(TriggerNumber(trigger.0.saturating_sub(1)));
        let begun = self.source.begin(self.words.len());
        assert!(begun == Begun::Sending, "the link is up and idle");
        while let Some(slice) = self.source.poll_line(&self.words, usize::MAX) {
            let taken = self.receiver.handle_line(now, slice, &mut self.pages);
            self.source.handle_sent(taken);
            assert!(taken > 0, "the link has pages for the longest fragment");
        }
    }

    /// The fragment that came.
    fn receive(&mut self) -> Option<(TriggerNumber, FragmentDescriptor)> {
        while let Some(completed) = self.receiver.poll() {
            match self.assembler.handle_completed(&completed, &self.pages) {
                Assembled::MoreToCome => {}
                Assembled::Fragment { trigger, fragment } => {
                    return fragment.status.is_good().then_some((trigger, fragment));
                }
                Assembled::Refused { .. } => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use livetime_wire::event::EventView;
    use livetime_wire::fragment::FragmentView;

    use super::*;

    #[test]
    fn events_come_out_whole_and_every_page_comes_back() {
        for entry in [Entry::Links, Entry::Builder] {
            events_through(entry);
        }
    }

    fn events_through(entry: Entry) {
        let sources: Vec<SourceId> = (0..45).map(|n| SourceId(0xA0_0000 + n)).collect();
        let chain = RecordedChain::entering_at(entry, RunNumber(7), &sources, 3000);
        let mut chain = chain.unwrap();
        let words: Vec<u32> = (0..3000).collect();
        for trigger in (1..=300).map(TriggerNumber) {
            // From nothing to the longest, different for each source.
            let data = |source: SourceId| {
                let len = (trigger.0 * 37 + u64::from(source.0) * 71) % 3001;
                &words[..len as usize]
            };
            let sink = |of: TriggerNumber, _, parts: &[&[u32]]| {
                let event = parts.concat();
                let view = EventView::new_checked(&event).unwrap();
                assert_eq!((of, view.header().trigger), (trigger, trigger));
                view.verify_fragments().unwrap();
                assert_eq!(view.entries().len(), 45);
                for (entry, words) in view.fragments() {
                    let fragment = FragmentView::new_checked(words).unwrap();
                    assert_eq!(fragment.data(), data(entry.source));
                }
                Ok::<(), Infallible>(())
            };
            chain.event(trigger, data, sink).unwrap();
        }
        let counts = chain.counts();
        assert_eq!(counts.fragments_sent, 300 * 45);
        assert_eq!(counts.fragments_received, counts.fragments_sent);
        assert_eq!(counts.events_built, 300);
        let mut links = chain.units.iter().flat_map(|unit| &unit.links);
        assert!(links.all(|link| match &link.left_out {
            None => link.receiver.page_account().handed_out == 0,
            Some(free) => free.len() == PAGES_PER_LINK as usize,
        }));
    }

    #[test]
    fn stored_triggers_may_be_far_apart_and_in_any_order() {
        let sources = [SourceId(0xA0_0000), SourceId(0xA0_0001)];
        let words: Vec<u32> = (0..20).collect();
        let gaps = (1..100).map(|n| n * 5000);
        let files = (1..=300).chain(gaps).chain([1 << 20, 3]);
        let wraps = [(1 << 32) - 1, 1 << 32, 1 << 40, 17];
        let triggers: Vec<u64> = files.chain(wraps).collect();
        for entry in [Entry::Links, Entry::Builder] {
            let chain = RecordedChain::entering_at(entry, RunNumber(7), &sources, 20);
            let mut chain = chain.unwrap();
            for trigger in triggers.iter().copied().map(TriggerNumber) {
                let sink = |of: TriggerNumber, _, parts: &[&[u32]]| {
                    let event = parts.concat();
                    let view = EventView::new_checked(&event).unwrap();
                    assert_eq!((of, view.header().trigger), (trigger, trigger));
                    for (_, words) in view.fragments() {
                        let fragment = FragmentView::new_checked(words).unwrap();
                        assert_eq!(fragment.header().trigger_low, trigger.low());
                    }
                    Ok::<(), Infallible>(())
                };
                chain.event(trigger, |_| &words[..], sink).unwrap();
            }
            assert_eq!(chain.counts().events_built, triggers.len() as u64);
        }
    }

    #[test]
    fn too_many_sources_are_problems_with_their_keys() {
        let sources: Vec<SourceId> = (0..100_000).map(SourceId).collect();
        let problems = RecordedChain::new(RunNumber(1), &sources, 10)
            .err()
            .unwrap();
        assert!(problems[0].path.starts_with("builder"));
    }
}
