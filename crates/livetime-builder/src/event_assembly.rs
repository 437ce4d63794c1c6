//! Events in the hands of a builder unit: a fixed number of slots, each with a bit and a descriptor
//! per source.
//!
//! Bits and descriptors are apart: a simulation of thousands of sources has no payload to describe
//! and keeps the bits alone. Which events these are and what happens next is the builder unit's.

use livetime_wire::event::EventHeader;
use livetime_wire::message::{EventTicket, FragmentDescriptor};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{DurationNs, L2Mask, RunNs, SourceId, TriggerNumber};

use crate::source_map::SourceMap;

/// Where an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The slot holds no event.
    Vacant,
    /// Its fragments are not yet asked for, or not of every readout unit.
    Waiting,
    /// Fragments are on their way.
    Building,
    /// Closed; it waits for a filter unit.
    Ready,
    /// In a filter unit.
    Filtering {
        /// Which filter unit.
        filter: u16,
    },
    /// Accepted; it waits for the writer or is being written.
    Writing,
    /// Through; its fragments are to be released and its credit returned.
    Finished,
}

/// How an event was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With all its fragments.
    Complete,
    /// By the timeout.
    Incomplete,
    /// By the end of the run; it is no event.
    Aborted,
}

/// An event in a builder unit. What a fragment touches comes first, within one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Event {
    pub(crate) trigger: TriggerNumber,
    pub(crate) stage: Stage,
    /// Number of fragments that came.
    pub(crate) received: u32,
    /// Their payload bytes.
    pub(crate) bytes: u32,
    /// When the first fragment came, as a [`tick`].
    pub(crate) first_at: u32,
    /// How often missing fragments were asked for again since one came, up to where it stays the same.
    pub(crate) retries: u8,
    /// Only the fragments of the first step are gathered.
    pub(crate) is_first_step: bool,
    /// Fragments came before the assignment did (push mode); it may be meant for another life.
    pub(crate) is_early: bool,
    /// Whether it waits for its missing fragments to be asked for again.
    pub(crate) is_repeating: bool,
    /// Whether filter units died of it: it goes to the error stream unfiltered.
    pub(crate) is_failed: bool,
    /// Whether a writer that is gone had it.
    pub(crate) is_written_again: bool,
    /// Whether the filter has accepted it.
    pub(crate) is_accepted: bool,
    pub(crate) outcome: Outcome,
    pub(crate) mask: L2Mask,
    pub(crate) triggered_at: RunNs,
    pub(crate) assigned_at: RunNs,
    pub(crate) built_at: RunNs,
    /// When it is closed without what is missing then.
    pub(crate) deadline: RunNs,
    /// When missing fragments are asked for again.
    pub(crate) retry_at: RunNs,
    /// Why the filter keeps it, once it is accepted.
    pub(crate) filter_reason: u16,
    /// Streams that it belongs to, once it is accepted.
    pub(crate) streams: u16,
}

/// A time in steps of 16 ns, round about after 68 s: half the room, for differences.
const fn tick(time: RunNs) -> u32 {
    ((time.0 >> TICK_BITS) & 0xFFFF_FFFF) as u32
}

const TICK_BITS: u32 = 4;

impl Event {
    /// Time from the first fragment to the last one, or to the timeout of an event that is closed without
    /// some; in steps of 16 ns, modulo 68 s.
    pub(crate) const fn skew(&self) -> DurationNs {
        match self.received {
            0 => DurationNs(0),
            _ => DurationNs((tick(self.built_at).wrapping_sub(self.first_at) as u64) << TICK_BITS),
        }
    }

    /// A vacant slot.
    pub(crate) const VACANT: Self = Self {
        trigger: TriggerNumber(0),
        mask: L2Mask::NONE,
        triggered_at: RunNs(0),
        assigned_at: RunNs(0),
        built_at: RunNs(0),
        deadline: RunNs::MAX,
        retry_at: RunNs::MAX,
        retries: 0,
        first_at: 0,
        stage: Stage::Vacant,
        outcome: Outcome::Complete,
        received: 0,
        bytes: 0,
        is_first_step: false,
        is_early: false,
        is_repeating: false,
        is_failed: false,
        filter_reason: 0,
        streams: 0,
        is_written_again: false,
        is_accepted: false,
    };

    /// Whether fragments are still awaited.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Building)
    }
}

const _: () = assert!(size_of::<Event>() == 96);

/// What is kept of the fragments of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// A descriptor of each.
    Described,
    /// Their bytes, all together.
    Counted,
}

impl Payload {
    /// Of so much that is needed after losses alone, what memory is taken for at once: none where
    /// payload is counted, since there are hundreds of units then, of which few need it.
    pub(crate) const fn reserved(self, most: usize) -> usize {
        match self {
            Self::Described => most,
            Self::Counted => 0,
        }
    }
}

/// The slots.
#[derive(Debug)]
pub(crate) struct EventAssembly {
    events: Vec<Event>,
    vacant: Vec<u32>,
    /// Events of which fragments are awaited.
    open_events: u32,
    /// By slot: a bit per source rank.
    received: Vec<u64>,
    words_per_event: usize,
    /// By slot and source rank; meaningful where the bit is set. Empty where payload is counted.
    fragments: Vec<FragmentDescriptor>,
    sources: usize,
}

impl EventAssembly {
    pub(crate) fn new(slots: usize, sources: usize, payload: Payload) -> Self {
        let blank = FragmentDescriptor {
            source: SourceId(0),
            pool: 0,
            words: 0,
            status: FragmentStatus::GOOD,
            crc: 0,
            pages: Default::default(),
        };
        let words_per_event = sources.div_ceil(64);
        Self {
            events: vec![Event::VACANT; slots],
            vacant: (0..slots as u32).rev().collect(),
            open_events: 0,
            received: vec![0; slots * words_per_event],
            words_per_event,
            fragments: match payload {
                Payload::Described => vec![blank; slots * sources],
                Payload::Counted => Vec::new(),
            },
            sources,
        }
    }

    /// Number of slots.
    #[inline]
    pub(crate) fn slots(&self) -> u32 {
        self.events.len() as u32
    }

    /// Bit words per event.
    #[inline]
    pub(crate) fn words_per_event(&self) -> usize {
        self.words_per_event
    }

    /// Puts an event into a vacant slot, if there is one.
    #[inline]
    pub(crate) fn open(&mut self, event: Event) -> Option<u32> {
        let slot = self.vacant.pop()?;
        self.open_events += u32::from(event.is_open());
        self.events[slot as usize] = event;
        let at = slot as usize * self.words_per_event;
        self.received[at..at + self.words_per_event].fill(0);
        Some(slot)
    }

    /// Vacates a slot.
    #[inline]
    pub(crate) fn close(&mut self, slot: u32) {
        let event = &mut self.events[slot as usize];
        debug_assert_ne!(event.stage, Stage::Vacant);
        self.open_events -= u32::from(event.is_open());
        *event = Event::VACANT;
        self.vacant.push(slot);
    }

    #[inline]
    pub(crate) fn event(&self, slot: u32) -> &Event {
        &self.events[slot as usize]
    }

    #[inline]
    pub(crate) fn event_mut(&mut self, slot: u32) -> &mut Event {
        &mut self.events[slot as usize]
    }

    /// Takes an event to another stage. What [`Event::is_open`] says changes by this alone.
    #[inline]
    pub(crate) fn set_stage(&mut self, slot: u32, stage: Stage) {
        let event = &mut self.events[slot as usize];
        self.open_events -= u32::from(event.is_open());
        event.stage = stage;
        self.open_events += u32::from(event.is_open());
    }

    /// Number of events of which fragments are awaited.
    #[inline]
    pub(crate) fn open_events(&self) -> u32 {
        self.open_events
    }

    /// The bits of the sources that came.
    #[inline]
    pub(crate) fn received(&self, slot: u32) -> &[u64] {
        &self.received[slot as usize * self.words_per_event..][..self.words_per_event]
    }

    /// Whether the fragment of a source came.
    #[inline]
    pub(crate) fn has(&self, slot: u32, rank: usize) -> bool {
        self.received(slot)[rank / 64] & (1 << (rank % 64)) != 0
    }

    /// Where an event is, and the bit of a source.
    #[inline]
    pub(crate) fn foresee(&self, slot: u32, rank: usize) -> Option<(&TriggerNumber, &u64)> {
        let event = self.events.get(slot as usize)?;
        let word = slot as usize * self.words_per_event + rank / 64;
        Some((&event.trigger, self.received.get(word)?))
    }

    /// Places a fragment that had not come; true when it was the last.
    #[inline]
    pub(crate) fn place(
        &mut self,
        now: RunNs,
        slot: u32,
        rank: usize,
        fragment: &FragmentDescriptor,
    ) -> bool {
        let at = slot as usize;
        self.received[at * self.words_per_event + rank / 64] |= 1 << (rank % 64);
        if !self.fragments.is_empty() {
            self.fragments[at * self.sources + rank].clone_from(fragment);
        }
        let event = &mut self.events[at];
        if event.received == 0 {
            event.first_at = tick(now);
        }
        event.received += 1;
        event.bytes = event.bytes.saturating_add(fragment.words.saturating_mul(4));
        event.received as usize == self.sources
    }

    /// The descriptors of an event; none where payload is counted.
    #[inline]
    fn fragments(&self, slot: u32) -> &[FragmentDescriptor] {
        let first = slot as usize * self.sources;
        let fragments = self.fragments.get(first..first + self.sources);
        fragments.unwrap_or_default()
    }

    /// The pages of the fragments that came.
    #[inline]
    pub(crate) fn pages(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        let fragments = self.fragments(slot);
        let came = fragments.iter().enumerate();
        came.filter(move |(rank, _)| self.has(slot, *rank))
            .flat_map(|(_, fragment)| fragment.pages.iter().copied())
    }

    /// Fills a ticket with an event.
    pub(crate) fn fill(
        &self,
        slot: u32,
        builder: u16,
        sources: &SourceMap,
        ticket: &mut EventTicket,
    ) {
        let event = self.event(slot);
        ticket.builder = builder;
        ticket.trigger = event.trigger;
        ticket.mask = event.mask;
        ticket.triggered_at = event.triggered_at;
        ticket.assigned_at = event.assigned_at;
        ticket.built_at = event.built_at;
        ticket.filter_reason = event.filter_reason;
        ticket.streams = event.streams;
        if event.is_failed {
            ticket.streams |= EventHeader::ERROR_STREAM;
        }
        // One that was accepted as it is goes to the writer like any other.
        if event.is_first_step && matches!(event.stage, Stage::Filtering { .. }) {
            ticket.streams |= EventTicket::FIRST_STEP;
        }
        ticket.fragments.clear();
        ticket.missing.clear();
        let came = self.fragments(slot).iter().enumerate();
        let came = came.filter(|(rank, _)| self.has(slot, *rank));
        ticket
            .fragments
            .extend(came.map(|(_, fragment)| fragment.clone()));
        if (event.received as usize) < self.sources {
            let missing = (0..self.sources).filter(|rank| !self.has(slot, *rank));
            ticket
                .missing
                .extend(missing.map(|rank| sources.source(rank)));
        }
    }
}
