//! A stream between a builder unit and a filter unit that is cut at any moment and made again:
//! every event is filtered once, answered, and handed to the writer if it is kept.
//!
//! The builder unit is an `EventSender` with a window; its events lie in few pages, which are freed
//! with the answer and filled anew, so that a page that is still being sent would be found out. Steps
//! of all sides come in random order. What the builder unit's core does is not part of it.
#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use livetime_node::counter_block::CounterBlock;
use livetime_node::message_ring::Outbox;
use livetime_node::role::filter::{FilterUnit, FilterUnitParts, UnitFilter};
use livetime_node::role::{Role, RoleCommand};
use livetime_node::run_clock::RunClock;
use livetime_node::transport::{
    EventReceiver, EventSender, NetworkLink, ReceivePages, TcpFrameLink,
};
use livetime_node::worker::Phase;
use livetime_shm::{HugePages, PageIndex, PagePool, PoolConfig};
use livetime_trigger::{EventFilter, FilterOutput};
use livetime_wire::crc::crc32c;
use livetime_wire::event::EventAccess;
use livetime_wire::message::{BuilderMessage, EventTicket, FragmentDescriptor};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{RunNs, SourceId, TriggerNumber, UnitId};

const BU: UnitId = UnitId::builder(0);
const FU: UnitId = UnitId::filter(0);
const WINDOW: usize = 6;
const SOURCES: usize = 3;
const PAGE_WORDS: usize = 1024;
const EVENTS: u64 = 300;

/// Keeps events with even numbers, and notes each that it sees.
struct Noting(Arc<Mutex<Vec<u64>>>);

impl EventFilter for Noting {
    fn filter(&mut self, event: &dyn EventAccess) -> FilterOutput {
        let trigger = event.trigger().0;
        self.0.lock().unwrap().push(trigger);
        FilterOutput {
            accept: trigger.is_multiple_of(2),
            reason: 0,
            streams: 1,
        }
    }

    fn reasons(&self) -> &[&str] {
        &["even or odd"]
    }
}

/// Numbers that look random, the same for the same seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % bound
    }
}

fn streams() -> [TcpStream; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [near, listener.accept().unwrap().0]
}

fn pool(pages: usize) -> PagePool {
    PagePool::create(&PoolConfig {
        pages: pages as u32,
        page_bytes: 4 * PAGE_WORDS as u32,
        huge_pages: HugePages::Never,
    })
    .unwrap()
}

fn words(trigger: u64, nth: usize) -> Vec<u32> {
    let count = 1 + (trigger as usize * 37 + nth * 311) % PAGE_WORDS;
    (0..count as u32)
        .map(|n| n ^ (trigger as u32) << 8)
        .collect()
}

struct Bench {
    sender: EventSender,
    unit: FilterUnit,
    /// Another handle of the builder unit's end.
    near: TcpStream,
    pool: PagePool,
    filtered: Arc<Mutex<Vec<u64>>>,
    /// By trigger: the first of its pages.
    in_flight: BTreeMap<u64, u32>,
    given: u64,
    answered: BTreeSet<u64>,
    accepted: Vec<u64>,
    ticket: EventTicket,
}

impl Bench {
    fn new() -> Self {
        let pool_of_builder = pool(WINDOW * SOURCES);
        let pools = vec![pool_of_builder.clone()];
        let mut sender = EventSender::new(BU, 1, pools, (1, 1, WINDOW), SOURCES);
        // Few pages more than the window needs: those that come again wait for others.
        let own = pool((WINDOW + 1) * SOURCES);
        let pages = ReceivePages::new(own.clone(), 0);
        let mut link = TcpFrameLink::new(None, Some(pages)).ending_with_damage();
        let [near, far] = streams();
        let handle = near.try_clone().unwrap();
        sender.add(FU, near).unwrap();
        link.add(BU, far, None).unwrap();
        let sources = (0..SOURCES as u32).map(SourceId).collect();
        let filtered = Arc::default();
        let parts = FilterUnitParts {
            id: FU.to_string(),
            unit: FU,
            tickets: vec![None],
            streams: Some(EventReceiver::new(1, WINDOW, sources)),
            pools: vec![own],
            bell: None,
            clock: RunClock::start(),
            outbox: Outbox::new(Vec::new())
                .with_network(NetworkLink::Tcp(Box::new(link)), std::iter::once(BU)),
            block: CounterBlock::new(),
            sources: SOURCES,
            epoch: 1,
            credits: WINDOW,
            first_step: None,
        };
        let filter = UnitFilter::Event(Box::new(Noting(Arc::clone(&filtered))));
        Self {
            sender,
            unit: FilterUnit::new(parts, filter),
            near: handle,
            pool: pool_of_builder,
            filtered,
            in_flight: BTreeMap::new(),
            given: 0,
            answered: BTreeSet::new(),
            accepted: Vec::new(),
            ticket: EventTicket::with_capacity(SOURCES),
        }
    }

    /// The builder unit gives the next event, if the window allows.
    fn give(&mut self) {
        if self.in_flight.len() == WINDOW || self.given == EVENTS {
            return;
        }
        self.given += 1;
        let trigger = self.given;
        let taken: BTreeSet<u32> = self.in_flight.values().copied().collect();
        let firsts = (0..WINDOW as u32).map(|slot| slot * SOURCES as u32);
        let first = firsts
            .into_iter()
            .find(|first| !taken.contains(first))
            .unwrap();
        self.in_flight.insert(trigger, first);
        (self.ticket.builder, self.ticket.trigger) = (BU.index, TriggerNumber(trigger));
        self.ticket.fragments.clear();
        self.ticket.missing.clear();
        for nth in 0..SOURCES {
            let data = words(trigger, nth);
            let mut page = self.pool.write(PageIndex(first + nth as u32)).unwrap();
            page[..data.len()].copy_from_slice(&data);
            self.ticket.fragments.push(FragmentDescriptor {
                source: SourceId(nth as u32),
                pool: 0,
                words: data.len() as u32,
                status: FragmentStatus::GOOD,
                crc: crc32c(&data),
                pages: [page.finish().0].into_iter().collect(),
            });
        }
        self.sender.push(FU.index, &mut self.ticket);
    }

    /// The builder unit reads answers and frees the pages.
    fn read_answers(&mut self) {
        while let Some(envelope) = self.sender.take() {
            let is_accepted = matches!(envelope.message, BuilderMessage::EventsAccepted { .. });
            let triggers: Vec<_> = match envelope.message {
                BuilderMessage::EventDone { triggers } => triggers.to_vec(),
                BuilderMessage::EventsAccepted { events } => {
                    events.iter().map(|event| event.trigger).collect()
                }
                _ => panic!("a filter unit sends nothing else"),
            };
            for trigger in triggers {
                // An answer that comes again changes nothing.
                if let Some(first) = self.in_flight.remove(&trigger.0) {
                    for page in first..first + SOURCES as u32 {
                        self.pool.release(PageIndex(page)).unwrap();
                    }
                    assert!(self.answered.insert(trigger.0), "{trigger} twice");
                    self.accepted.extend(is_accepted.then_some(trigger.0));
                }
            }
        }
    }

    fn poll_unit(&mut self) {
        self.unit.poll(RunNs(0), Phase::Running);
    }

    /// The stream is cut, and made again once the builder unit has seen it.
    fn cut(&mut self) {
        self.near.shutdown(Shutdown::Both).unwrap();
        while self.sender.poll_cut().is_none() {
            self.sender.send();
            self.read_answers();
        }
        let [near, far] = streams();
        self.near = near.try_clone().unwrap();
        let back = |unit, stream| RoleCommand::StreamBack {
            unit,
            stream: Some(stream),
        };
        self.unit.handle_command(RunNs(0), back(BU, far));
        self.sender.resume(FU, near).unwrap();
    }

    /// Random steps until every event is answered; returns how often the stream was cut.
    fn run(&mut self, random: &mut Random, cut_one_in: u64) -> u32 {
        let mut cuts = 0;
        for _ in 0..5_000_000 {
            match random.below(4) {
                0 => self.give(),
                1 => drop(self.sender.send()),
                2 => self.read_answers(),
                _ => self.poll_unit(),
            }
            if random.below(cut_one_in) == 0 && self.answered.len() < EVENTS as usize {
                self.cut();
                cuts += 1;
            }
            if self.answered.len() == EVENTS as usize {
                return cuts;
            }
        }
        panic!("{} of {EVENTS} events are answered", self.answered.len());
    }
}

#[test]
fn every_event_is_filtered_once_however_often_the_stream_is_cut() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut bench = Bench::new();
        let cuts = bench.run(&mut random, [20, 50, 150][seed as usize % 3]);
        assert!(cuts > 0, "seed {seed}");
        let mut filtered = bench.filtered.lock().unwrap().clone();
        filtered.sort_unstable();
        assert!(
            filtered.iter().copied().eq(1..=EVENTS),
            "seed {seed}: {filtered:?}"
        );
        bench.accepted.sort_unstable();
        let even = (1..=EVENTS).filter(|trigger| trigger.is_multiple_of(2));
        assert!(
            bench.accepted.iter().copied().eq(even),
            "seed {seed}: {:?}",
            bench.accepted
        );
        assert!(
            bench.sender.repeated() > 0,
            "seed {seed}: nothing was on its way"
        );
        assert!(bench.sender.is_empty());
        let details = Box::new(bench.unit).finish(RunNs(0)).details;
        assert_eq!(details["network_payloads_damaged"], 0);
        assert_eq!(details["network_streams_refused"], 0);
        let again = details["network_events_again"];
        assert!(again <= bench.sender.repeated(), "seed {seed}: {again}");
    }
}
