//! `builder`: fragments on file become whole events, pages handed over by number, on one core.
//!
//! Two readout units of four sources, two builder units, the event manager, and filter units that
//! look at each event in place and answer at once; every message goes through a ring of its own,
//! as in a run. A source takes a free page of 2 KiB, stamps header and trailer over payload that is
//! already there, and files it. The event is whole when all eight fragments are in the ticket and
//! each page holds the header that it must. The floor is a fragment's message alone: made, sent
//! through a ring, parsed. Not measured: links and CRC (`readout`), threads (`chain`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use livetime_builder::{
    BuilderConfig, BuilderUnit, EventManager, FragmentVerdict, Handled, Outgoing, PageDemand,
    ReadoutOutput, ReadoutUnit,
};
use livetime_readout::{FragmentBuffer, FragmentBufferConfig};
use livetime_shm::{Consumer, HugePages, PageIndex, PagePool, PoolConfig, Producer, TscClock};
use livetime_wire::fragment::{HEADER_WORDS, MARKER, OVERHEAD_WORDS, VERSION};
use livetime_wire::message::{
    BuilderMessage, Envelope, EventTicket, FragmentDescriptor, TriggerList,
};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{
    ByteSize, L2Mask, LossCounts, RunNs, SourceId, TriggerNumber, UnitId, UnitKind,
};
use serde_json::json;

use super::builder_rings::{Inbox, Outbox, Rings, message_ring, receive};
use super::builder_scale::{BuilderDriver, TriggeredUnit, UnitsApart};
use super::document::{BenchDocument, Target, median, rounded, time_per_item};
use super::interleave::{LIKE_FLOORS, add_item_floor, interleave};
use super::pinned_threads::run_alone;
use super::{BenchError, BenchOptions};

/// Sources of each readout unit.
pub(super) const SOURCES_PER_UNIT: u32 = 4;
pub(super) const FILTER: UnitId = UnitId {
    kind: UnitKind::Filter,
    index: 0,
};
pub(super) const EPOCH: u32 = 0;
/// Accepted triggers that wait for the event manager, for each builder unit.
const ACCEPTS_WAITING: usize = 8;
/// How many units there are, and how long a fragment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) readout_units: u16,
    pub(super) builder_units: u16,
    pub(super) fragment_words: usize,
}

impl Shape {
    /// What the bench measures unless it is asked for the grid.
    const DEFAULT: Self = Self {
        readout_units: 2,
        builder_units: 2,
        fragment_words: 512,
    };

    /// Sources of an event.
    pub(super) fn sources(self) -> u64 {
        u64::from(self.readout_units) * u64::from(SOURCES_PER_UNIT)
    }

    /// Pairs of a readout and a builder unit.
    pub(super) fn pairs(self) -> u64 {
        u64::from(self.readout_units) * u64::from(self.builder_units)
    }

    pub(super) fn fragment_bytes(self) -> u64 {
        4 * self.fragment_words as u64
    }

    /// Accepted triggers that wait for the event manager at most.
    pub(super) fn accepts_waiting(self) -> usize {
        ACCEPTS_WAITING * usize::from(self.builder_units)
    }

    /// The builder of this shape, with one filter unit that answers at once.
    pub(super) fn config(self) -> BuilderConfig {
        let sources = |unit: u16| {
            let of_unit = |source| SourceId(u32::from(unit) << 16 | source);
            (0..SOURCES_PER_UNIT).map(of_unit).collect()
        };
        let config = BuilderConfig {
            readout_units: (0..self.readout_units).map(sources).collect(),
            builder_units: self.builder_units,
            filter_in_flight: BuilderConfig::default().credits,
            ..BuilderConfig::default()
        };
        debug_assert!(config.validate("builder").is_empty());
        config
    }

    /// The pages of a readout unit, each of one fragment.
    pub(super) fn pool_config(self, config: &BuilderConfig) -> PoolConfig {
        let page_bytes = self.fragment_words as u32 * 4;
        let demand = PageDemand {
            page: ByteSize(page_bytes.into()),
            pages_per_fragment: 1,
            l2_buffers: 4,
            posted_pages: 15,
            xoff_reserve: 8,
        };
        let pages = demand.pages_needed(config, SOURCES_PER_UNIT as usize) as u32;
        PoolConfig {
            pages,
            page_bytes,
            huge_pages: HugePages::Prefer,
        }
    }
}

/// Offers are made at this multiple of the best rate when they are paced.
const OVERLOAD: f64 = 3.0;
/// A block that takes longer will never end.
const PATIENCE_NS: u64 = 10_000_000_000;

/// How closely a filter unit looks at an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// At the header of each fragment.
    Headers,
    /// At every word.
    Everything,
}

/// What a converter did with a number of events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandedOver {
    /// Time per event \[ns\].
    pub(crate) event_ns: f64,
    /// Bytes that the filter found at another place in memory than the source had put them.
    pub(crate) bytes_moved: u64,
}

/// A converter alone: eight fragments of so many words become events that filter units look at in
/// place. Each call builds a number of events.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a fragment is lost.
pub(crate) fn hand_over(
    fragment_words: usize,
    look: Look,
) -> Result<impl FnMut(u64) -> Result<HandedOver, BenchError>, BenchError> {
    let mut chain = Builders::new(Shape {
        fragment_words,
        ..Shape::DEFAULT
    })?;
    chain.look = look;
    Ok(move |events| {
        let moved_before = chain.bytes_moved;
        let built = chain.build(events, None)?;
        check("events handed over", built.accepted, events)?;
        let account = chain.account()?;
        check("incomplete events", account.incomplete, 0)?;
        Ok(HandedOver {
            event_ns: built.ns_per_fragment * Shape::DEFAULT.sources() as f64,
            bytes_moved: chain.bytes_moved - moved_before,
        })
    })
}

struct Size {
    blocks: usize,
    events: u64,
    floor_messages: u32,
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a fragment is lost.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let size = if options.quick {
        Size {
            blocks: 2,
            events: 200,
            floor_messages: 2_000,
        }
    } else {
        Size {
            blocks: 60,
            events: 2_500,
            floor_messages: 20_000,
        }
    };
    run_alone(|| measure(&size))
}

fn measure(size: &Size) -> Result<BenchDocument, BenchError> {
    let shape = Shape::DEFAULT;
    let chain = RefCell::new(Builders::new(shape)?);
    let mut floor_ring = message_ring(64)?;
    let mut floor = || message_floor(&mut floor_ring, size.floor_messages);
    chain.borrow_mut().build(size.events, None)?;
    let mut document = BenchDocument::new("builder");
    let best = interleave(
        size.blocks,
        LIKE_FLOORS,
        &mut floor,
        || Ok(chain.borrow_mut().build(size.events, None)?.ns_per_fragment),
        |floor| *floor,
    )?;
    let selection = best.select(|floor| *floor, |_| ());
    let times = selection.all(|kept| *kept.block);
    let rate = 1e9 / median(&times);
    document.add_result("fragment_ns", time_per_item(&times));
    document.add_result("blocks", selection.to_json());
    document.add_result(
        "mb_per_s_by_page",
        (rate * shape.fragment_bytes() as f64 / 1e6).round(),
    );
    add_item_floor(&mut document.floor, "message_ns", &selection);
    let to_message = selection.quotient(|kept| (*kept.block, kept.floor(|floor| *floor)));
    document.add_quotient("fragment_to_message", to_message);

    document.add_target(selection.judged(Target::at_least("fragments_per_s", rate, 2e6)));
    let found = Best {
        rate,
        floors_agree: !selection.unlike,
    };
    overload(size, &mut document, &chain, &mut floor, found)?;
    add_account(&mut document, &chain.borrow().account()?);
    Ok(document)
}

/// What was built at best.
struct Best {
    /// Fragments per second.
    rate: f64,
    floors_agree: bool,
}

/// Offers more than was built at best: the sources must wait, and the rate must stay.
fn overload(
    size: &Size,
    document: &mut BenchDocument,
    chain: &RefCell<Builders>,
    floor: &mut impl FnMut() -> Result<f64, BenchError>,
    best: Best,
) -> Result<(), BenchError> {
    let rate = best.rate;
    let paced = interleave(
        size.blocks,
        LIKE_FLOORS,
        floor,
        || {
            chain.borrow_mut().build(
                size.events,
                Some(OVERLOAD * rate / Shape::DEFAULT.sources() as f64),
            )
        },
        |floor| *floor,
    )?;
    let selection = paced.select(|floor| *floor, |_| ());
    let times = selection.all(|kept| kept.block.ns_per_fragment);
    let kept_rate = 1e9 / median(&times) / rate;
    let refused: u64 = selection.kept.iter().map(|kept| kept.block.refused).sum();
    let accepted: u64 = selection.kept.iter().map(|kept| kept.block.accepted).sum();
    document.add_result(
        "overloaded",
        json!({
            "offered_to_best_rate": OVERLOAD,
            "fragment_ns": time_per_item(&times),
            "refused_fraction": rounded(refused as f64 / (refused + accepted).max(1) as f64),
            "blocks": selection.to_json(),
        }),
    );
    document.add_ratio("overloaded_to_best_rate", kept_rate);
    let target = Target::at_least("overloaded_to_best_rate", kept_rate, 0.95);
    let floors_agree = best.floors_agree && !selection.unlike;
    document.add_target(target.where_floors_agree(floors_agree));
    Ok(())
}

/// What became of every fragment.
fn add_account(document: &mut BenchDocument, account: &Account) {
    document.add_result("events_built", account.built);
    document.add_result("events_incomplete", account.incomplete);
    document.add_result("fragments", account.fragments);
    document.add_result("lost", account.lost);
    document.add_target(Target::at_most("lost", account.lost as f64, 0.0));
    document.add_result(
        "control_messages_per_8_events_and_pair",
        rounded(account.control_messages),
    );
    document.add_target(Target::at_most(
        "control_messages_per_8_events_and_pair",
        account.control_messages,
        4.0,
    ));
    document.add_target(Target::at_most(
        "events_incomplete",
        account.incomplete as f64,
        0.0,
    ));
}

/// A fragment's message made, sent through a ring and parsed \[ns\].
pub(super) fn message_floor(
    (producer, consumer): &mut (Producer, Consumer),
    messages: u32,
) -> Result<f64, BenchError> {
    let start = Instant::now();
    for sequence in 0..messages {
        let envelope = Envelope {
            sender: UnitId::readout(0),
            epoch: EPOCH,
            sequence,
            message: BuilderMessage::FragmentData {
                trigger: TriggerNumber(sequence.into()),
                fragment: descriptor(0, SourceId(1), sequence, 512),
            },
        };
        producer.try_push(&envelope.to_words())?;
        black_box(consumer.try_pop(Envelope::parse)?);
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(messages))
}

fn descriptor(pool: u16, source: SourceId, page: u32, words: usize) -> FragmentDescriptor {
    FragmentDescriptor {
        source,
        pool,
        words: words as u32,
        status: FragmentStatus::GOOD,
        crc: 0,
        pages: [page].into_iter().collect(),
    }
}

/// What one block did.
pub(super) struct Built {
    pub(super) ns_per_fragment: f64,
    accepted: u64,
    refused: u64,
}

/// What came out over all blocks.
pub(super) struct Account {
    pub(super) built: u64,
    pub(super) incomplete: u64,
    pub(super) fragments: u64,
    pub(super) lost: u64,
    /// Messages from a builder unit to a readout unit for each 8 of its events.
    pub(super) control_messages: f64,
}

/// Triggers that come by a clock, whether there is room for them or not.
struct Pace {
    start_ns: u64,
    per_ns: f64,
    offered: u64,
}

impl Pace {
    fn due(&self, now_ns: u64) -> u64 {
        let arrived = now_ns.saturating_sub(self.start_ns) as f64 * self.per_ns;
        (arrived as u64).saturating_sub(self.offered)
    }
}

struct Manager {
    core: EventManager,
    inboxes: Vec<Inbox>,
    outbox: Outbox,
}

struct Builder {
    core: BuilderUnit,
    inboxes: Vec<Inbox>,
    outbox: Outbox,
    ticket: EventTicket,
    answers: TriggerList,
    answer_sequence: u32,
    whole: u64,
    damaged: u64,
}

/// A readout unit with its pages.
struct Readout {
    fragment_words: usize,
    core: ReadoutUnit,
    index: u16,
    sources: Vec<SourceId>,
    pool: PagePool,
    pages_free: Vec<u32>,
    /// Where the source found each page in memory.
    places: Vec<usize>,
    buffer: FragmentBuffer,
    inboxes: Vec<Inbox>,
    outbox: Outbox,
}

/// All units, polled in turn.
pub(super) struct Builders {
    shape: Shape,
    manager: Manager,
    builders: Vec<Builder>,
    readouts: Vec<Readout>,
    clock: TscClock,
    next_trigger: u64,
    accepts: VecDeque<TriggerNumber>,
    look: Look,
    /// Bytes that the filter found at another place in memory than the source had put them.
    bytes_moved: u64,
}

impl Builders {
    pub(super) fn new(shape: Shape) -> Result<Self, BenchError> {
        let config = shape.config();
        let slots = config.ring_slots().max(config.credits_total());
        let (manager, readout, builder) = (
            UnitId::EVENT_MANAGER,
            UnitId::readout as fn(u16) -> UnitId,
            UnitId::builder,
        );
        let mut rings = Rings::new(slots);
        let mut builders = Vec::new();
        let mut readouts = Vec::new();
        for index in 0..config.builder_units {
            let peers: Vec<UnitId> = std::iter::once(manager)
                .chain((0..shape.readout_units).map(readout))
                .collect();
            let core = BuilderUnit::new(&config, index, EPOCH);
            builders.push(Builder {
                ticket: core.empty_ticket(),
                core,
                inboxes: rings.inboxes(builder(index), &peers)?,
                outbox: rings.outbox(builder(index), &peers)?,
                answers: TriggerList::default(),
                answer_sequence: 0,
                whole: 0,
                damaged: 0,
            });
        }
        let builder_units: Vec<UnitId> = (0..config.builder_units).map(builder).collect();
        for index in 0..shape.readout_units {
            let inboxes = rings.inboxes(readout(index), &builder_units)?;
            let outbox = rings.outbox(readout(index), &builder_units)?;
            readouts.push(Readout::new(shape, &config, index, inboxes, outbox)?);
        }
        Ok(Self {
            shape,
            manager: Manager {
                core: EventManager::new(&config, EPOCH),
                inboxes: rings.inboxes(manager, &builder_units)?,
                outbox: rings.outbox(manager, &builder_units)?,
            },
            builders,
            readouts,
            clock: TscClock::of_process(),
            next_trigger: 1,
            accepts: VecDeque::with_capacity(shape.accepts_waiting()),
            look: Look::Headers,
            bytes_moved: 0,
        })
    }

    /// Builds `events` events, as fast as pages come back or from offers at `events_per_s`, and
    /// waits until nothing is on its way.
    pub(super) fn build(
        &mut self,
        events: u64,
        events_per_s: Option<f64>,
    ) -> Result<Built, BenchError> {
        let first = self.next_trigger;
        let until = first + events;
        let start_ns = self.clock.now_ns();
        let mut pace = events_per_s.map(|rate| Pace {
            start_ns,
            per_ns: rate * 1e-9,
            offered: 0,
        });
        let mut refused = 0;
        let start = Instant::now();
        loop {
            let now_ns = self.clock.now_ns();
            let due = pace.as_ref().map_or(u64::MAX, |pace| pace.due(now_ns));
            let wanted = due.min(until - self.next_trigger);
            let now = RunNs(now_ns);
            let accepted = self.trigger(now, wanted)?;
            if let Some(pace) = &mut pace
                && self.next_trigger < until
            {
                // Whatever came and found no page, no queue, is refused, not kept for later.
                refused += due - accepted;
                pace.offered += due;
            }
            let work = accepted as usize + self.cycle(now);
            let over = self.next_trigger == until;
            if over && work == 0 && self.is_idle() {
                break;
            }
            if now_ns.saturating_sub(start_ns) > PATIENCE_NS {
                return Err(BenchError::Stuck);
            }
        }
        let accepted = self.next_trigger - first;
        let ns = start.elapsed().as_secs_f64() * 1e9;
        Ok(Built {
            ns_per_fragment: ns / (accepted * self.shape.sources()) as f64,
            accepted,
            refused,
        })
    }

    /// Takes up to `wanted` triggers, as far as there are pages, and tells the event manager.
    fn trigger(&mut self, now: RunNs, wanted: u64) -> Result<u64, BenchError> {
        let mut accepted = 0;
        while accepted < wanted
            && self.accepts.len() < self.shape.accepts_waiting()
            && self.readouts.iter().all(Readout::has_room)
        {
            let trigger = TriggerNumber(self.next_trigger);
            for readout in &mut self.readouts {
                readout.bring(now, trigger)?;
            }
            self.accepts.push_back(trigger);
            self.next_trigger += 1;
            accepted += 1;
        }
        while let Some(trigger) = self.accepts.front().copied() {
            if !accept(&mut self.manager.core, now, trigger) {
                break;
            }
            self.accepts.pop_front();
        }
        Ok(accepted)
    }

    /// One duty cycle of every unit; returns the work done.
    fn cycle(&mut self, now: RunNs) -> usize {
        let Self {
            manager,
            builders,
            readouts,
            look,
            bytes_moved,
            ..
        } = self;
        let mut work = manager.poll(now);
        for builder in builders {
            work += builder.poll(now, |ticket| is_whole(ticket, readouts, *look, bytes_moved));
        }
        for readout in readouts {
            work += readout.poll(now);
        }
        work
    }

    /// The units, each for a thread of its own, and the next so many triggers. Filter units then look
    /// at headers alone.
    pub(super) fn apart(&mut self, events: u64) -> UnitsApart<'_> {
        let first = self.next_trigger;
        self.next_trigger += events;
        let pools: Vec<PagePool> = self.readouts.iter().map(|unit| unit.pool.clone()).collect();
        let mut triggered: Vec<&mut dyn TriggeredUnit> = vec![&mut self.manager];
        for readout in &mut self.readouts {
            triggered.push(readout);
        }
        let driven = |builder| -> BuilderDriver<'_> {
            let (builder, pools): (&mut Builder, _) = (builder, pools.clone());
            Box::new(move |now| Ok(builder.poll(now, |ticket| has_its_headers(ticket, &pools))))
        };
        UnitsApart {
            triggers: first..self.next_trigger,
            triggered,
            builders: self.builders.iter_mut().map(driven).collect(),
        }
    }

    fn is_idle(&self) -> bool {
        self.accepts.is_empty()
            && self.manager.core.is_idle()
            && self.builders.iter().all(|builder| builder.core.is_idle())
            && self.readouts.iter().all(|readout| readout.core.is_idle())
    }

    /// What came out, after every page has come back.
    pub(super) fn account(&self) -> Result<Account, BenchError> {
        let mut losses = LossCounts::new();
        losses.merge(self.manager.core.losses());
        let (mut built, mut incomplete, mut control) = (0, 0, 0);
        let (mut whole, mut damaged) = (0, 0);
        for builder in &self.builders {
            let core = &builder.core;
            whole += builder.whole;
            damaged += builder.damaged;
            losses.merge(core.losses());
            built += core.counts().events_built;
            incomplete += core.counts().events_incomplete;
        }
        for Readout {
            core, buffer, pool, ..
        } in &self.readouts
        {
            losses.merge(core.losses());
            losses.merge(buffer.losses());
            control += core.counts().messages.received;
            let (free, pages) = (pool.counts().free.into(), pool.page_count().into());
            check("pages that came back", free, pages)?;
        }
        let triggers = self.next_trigger - 1;
        check("events", built + incomplete, triggers)?;
        check("whole events seen by the filter", whole, built)?;
        let lost = losses.total() + damaged;
        Ok(Account {
            built,
            incomplete,
            fragments: triggers * self.shape.sources(),
            lost,
            control_messages: 8.0 * control as f64
                / (f64::from(self.shape.readout_units) * triggers.max(1) as f64),
        })
    }
}

pub(super) fn check(what: &'static str, found: u64, expected: u64) -> Result<(), BenchError> {
    if found == expected {
        Ok(())
    } else {
        Err(BenchError::Conservation {
            what,
            found,
            expected,
        })
    }
}

/// Tells the event manager that a trigger is accepted; `false` when its queue is full.
pub(super) fn accept(core: &mut EventManager, now: RunNs, trigger: TriggerNumber) -> bool {
    let envelope = Envelope {
        sender: UnitId::SUPERVISOR,
        epoch: EPOCH,
        sequence: (trigger.0 - 1) as u32,
        message: BuilderMessage::L2Accept {
            trigger,
            mask: L2Mask(1),
            triggered_at: now,
        },
    };
    core.handle_message(now, &envelope) != Handled::Busy
}

/// Whether every source is there and every page holds the header that it must; what it takes to say
/// so is also looked at.
fn is_whole(ticket: &EventTicket, readouts: &[Readout], look: Look, bytes_moved: &mut u64) -> bool {
    has_every_fragment(ticket, readouts.len(), |fragment, page| {
        let readout = &readouts[usize::from(fragment.pool)];
        let Ok(reader) = readout.pool.read(PageIndex(page)) else {
            return false;
        };
        if readout.places.get(page as usize) != Some(&(reader.as_ptr() as usize)) {
            *bytes_moved += u64::from(fragment.words) * 4;
        }
        if look == Look::Everything {
            let words = reader.iter().take(fragment.words as usize);
            black_box(words.fold(0u32, |sum, word| sum.wrapping_add(*word)));
        }
        reader[3] == fragment.source.0 && reader[5] == ticket.trigger.low()
    })
}

/// The same, by the pages alone.
fn has_its_headers(ticket: &EventTicket, pools: &[PagePool]) -> bool {
    has_every_fragment(ticket, pools.len(), |fragment, page| {
        let reader = pools[usize::from(fragment.pool)].read(PageIndex(page));
        matches!(reader, Ok(reader) if reader[3] == fragment.source.0
            && reader[5] == ticket.trigger.low())
    })
}

fn has_every_fragment(
    ticket: &EventTicket,
    readout_units: usize,
    mut is_good: impl FnMut(&FragmentDescriptor, u32) -> bool,
) -> bool {
    ticket.missing.is_empty()
        && ticket.fragments.len() == readout_units * SOURCES_PER_UNIT as usize
        && ticket.fragments.iter().all(|fragment| {
            let page = fragment.pages.first();
            page.is_some_and(|page| is_good(fragment, *page))
        })
}

impl Manager {
    fn poll(&mut self, now: RunNs) -> usize {
        let Self {
            core,
            inboxes,
            outbox,
        } = self;
        let work = receive(inboxes, |envelope| core.handle_message(now, envelope));
        work + outbox.send_all(|| core.poll_output(now))
    }
}

impl TriggeredUnit for Manager {
    fn take(&mut self, now: RunNs, trigger: TriggerNumber) -> Result<bool, BenchError> {
        Ok(accept(&mut self.core, now, trigger))
    }

    fn poll(&mut self, now: RunNs) -> usize {
        Self::poll(self, now)
    }

    fn is_idle(&self) -> bool {
        self.core.is_idle()
    }
}

impl TriggeredUnit for Readout {
    fn take(&mut self, now: RunNs, trigger: TriggerNumber) -> Result<bool, BenchError> {
        let has_room = self.has_room();
        if has_room {
            self.bring(now, trigger)?;
        }
        Ok(has_room)
    }

    fn poll(&mut self, now: RunNs) -> usize {
        Self::poll(self, now)
    }

    fn is_idle(&self) -> bool {
        self.core.is_idle()
    }
}

impl Builder {
    /// One duty cycle, with a filter unit that answers at once.
    fn poll(&mut self, now: RunNs, mut is_whole: impl FnMut(&EventTicket) -> bool) -> usize {
        let Self { core, inboxes, .. } = self;
        let mut work = receive(inboxes, |envelope| core.handle_message(now, envelope));
        while self.core.poll_ticket(&mut self.ticket).is_some() {
            let is_whole = is_whole(&self.ticket);
            self.whole += u64::from(is_whole);
            self.damaged += u64::from(!is_whole);
            self.answers.push(self.ticket.trigger);
            work += 1;
            if self.answers.is_full() {
                self.answer(now);
            }
        }
        if !self.answers.is_empty() {
            self.answer(now);
        }
        let Self { core, outbox, .. } = self;
        work + outbox.send_all(|| core.poll_output(now))
    }

    fn answer(&mut self, now: RunNs) {
        let envelope = answer(&mut self.answers, &mut self.answer_sequence);
        let handled = self.core.handle_message(now, &envelope);
        debug_assert_eq!(handled, Handled::Taken);
    }
}

/// What filter units say to a builder unit of these events.
pub(super) fn answer(triggers: &mut TriggerList, sequence: &mut u32) -> Envelope {
    let envelope = Envelope {
        sender: FILTER,
        epoch: EPOCH,
        sequence: *sequence,
        message: BuilderMessage::EventDone {
            triggers: triggers.take(),
        },
    };
    *sequence = sequence.wrapping_add(1);
    envelope
}

impl Readout {
    fn new(
        shape: Shape,
        config: &BuilderConfig,
        index: u16,
        inboxes: Vec<Inbox>,
        outbox: Outbox,
    ) -> Result<Self, BenchError> {
        let pool_config = shape.pool_config(config);
        let pages = pool_config.pages;
        let sources = config.sources_of(index);
        let buffer = FragmentBufferConfig {
            triggers_max: config.trigger_window,
        };
        Ok(Self {
            fragment_words: shape.fragment_words,
            core: ReadoutUnit::new(config, index, EPOCH),
            index,
            buffer: FragmentBuffer::new(buffer, &sources),
            sources,
            pool: PagePool::create(&pool_config)?,
            pages_free: (0..pages).collect(),
            places: vec![0; pages as usize],
            inboxes,
            outbox,
        })
    }

    fn has_room(&self) -> bool {
        self.pages_free.len() >= self.sources.len()
    }

    /// One fragment of every source.
    fn bring(&mut self, now: RunNs, trigger: TriggerNumber) -> Result<(), BenchError> {
        for &source in &self.sources {
            let Some(page) = self.pages_free.pop() else {
                break;
            };
            let mut writer = self.pool.write(PageIndex(page))?;
            let place = writer.as_ptr() as usize;
            stamp(&mut writer, self.fragment_words, source, trigger);
            if let Some(known) = self.places.get_mut(page as usize) {
                *known = place;
            }
            writer.finish();
            let verdict = self.core.handle_fragment(now, trigger, source);
            let filed = self.buffer.insert(
                trigger,
                descriptor(self.index, source, page, self.fragment_words),
            );
            let good = verdict == FragmentVerdict::Hold && filed.is_ok();
            check("fragments filed", good.into(), 1)?;
        }
        Ok(())
    }

    fn poll(&mut self, now: RunNs) -> usize {
        let Self {
            core,
            buffer,
            pool,
            pages_free,
            inboxes,
            outbox,
            ..
        } = self;
        let mut work = receive(inboxes, |envelope| core.handle_message(now, envelope));
        work += outbox.send_all(|| {
            loop {
                match core.poll_output()? {
                    ReadoutOutput::SendFragment {
                        to,
                        sequence,
                        trigger,
                        source,
                    } => {
                        let fragment = buffer.fragment(trigger, source)?.clone();
                        let envelope = core.fragment_message(sequence, trigger, fragment);
                        return Some(Outgoing { to, envelope });
                    }
                    ReadoutOutput::Free { trigger, .. } => {
                        buffer.remove(trigger, |fragment| {
                            for page in &fragment.pages {
                                // A page that is still read stays taken, which the account finds.
                                if pool.release(PageIndex(*page)).is_ok() {
                                    pages_free.push(*page);
                                }
                            }
                        });
                    }
                }
            }
        });
        work
    }
}

/// Header and trailer over the payload that lies in the page.
pub(super) fn stamp(
    page: &mut [u32],
    fragment_words: usize,
    source: SourceId,
    trigger: TriggerNumber,
) {
    let header = [
        MARKER,
        HEADER_WORDS as u32,
        VERSION,
        source.0,
        1,
        trigger.low(),
        0,
        1,
        0,
    ];
    page[..HEADER_WORDS].copy_from_slice(&header);
    let data_words = fragment_words - OVERHEAD_WORDS;
    let trailer = [0, 0, 2, data_words as u32, 1];
    page[HEADER_WORDS + data_words..fragment_words].copy_from_slice(&trailer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_whole_and_every_page_comes_back() {
        let mut chain = Builders::new(Shape::DEFAULT).unwrap();
        chain.build(500, None).unwrap();
        let paced = chain.build(500, Some(1e9)).unwrap();
        assert_eq!(paced.accepted, 500);
        let account = chain.account().unwrap();
        assert_eq!(
            (account.built, account.incomplete, account.lost),
            (1000, 0, 0)
        );
        assert_eq!(account.fragments, 8000);
    }

    #[test]
    fn offers_that_find_no_room_are_refused_and_not_lost() {
        let mut chain = Builders::new(Shape::DEFAULT).unwrap();
        let paced = chain.build(2000, Some(1e12)).unwrap();
        assert!(
            paced.refused > 0,
            "a trigger per picosecond cannot be taken"
        );
        assert_eq!(chain.account().unwrap().lost, 0);
    }
}
