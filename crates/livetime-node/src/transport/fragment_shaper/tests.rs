use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

use livetime_shm::{HugePages, PageIndex, PagePool, PoolConfig};
use livetime_wire::crc::crc32c;
use livetime_wire::message::{BuilderMessage, FragmentDescriptor};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{DurationNs, UnitId};
use proptest::prelude::*;

use super::*;
use crate::builder_transport::PeerSocket;
use crate::transport::{ReceivePages, TcpFrameLink, UdpFrameLink};

mod phases;

const PAGE_WORDS: usize = 64;
const PAGES: u32 = 1024;
const RU: UnitId = UnitId::readout(0);
const SOURCES: u32 = 4;
const CREDITS: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp,
    Udp,
    /// Datagrams of a kind of socket that has a short queue, and says when it is full.
    Short,
}

fn pool() -> PagePool {
    PagePool::create(&PoolConfig {
        pages: PAGES,
        page_bytes: 4 * PAGE_WORDS as u32,
        huge_pages: HugePages::Never,
    })
    .unwrap()
}

fn sockets(kind: Kind) -> [PeerSocket; 2] {
    match kind {
        Kind::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            [near, listener.accept().unwrap().0].map(PeerSocket::Stream)
        }
        Kind::Udp => {
            let [near, far] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
            near.connect(far.local_addr().unwrap()).unwrap();
            far.connect(near.local_addr().unwrap()).unwrap();
            [near, far].map(PeerSocket::Datagrams)
        }
        Kind::Short => {
            let (near, far) = UnixDatagram::pair().unwrap();
            [near, far].map(|end| PeerSocket::Datagrams(OwnedFd::from(end).into()))
        }
    }
}

/// A readout unit's shaper with its link, and the links of its builder units.
struct Bench {
    kind: Kind,
    from: PagePool,
    shaper: FragmentShaper,
    link: NetworkLink,
    builders: Vec<NetworkLink>,
    /// Fragments on file, with the page of their first words; each has pages of its own.
    on_file: Vec<(QueuedFragment, usize, u32)>,
    next_page: u32,
    now: RunNs,
}

impl Bench {
    fn new(kind: Kind, builders: u16, block_bytes: u32, pace: ShapingPace) -> Self {
        Self::of_units(kind, (0, 1), builders, block_bytes, pace)
    }

    /// Of readout unit `index` of so many.
    fn of_units(
        kind: Kind,
        (index, readout_units): (u16, usize),
        builders: u16,
        block_bytes: u32,
        pace: ShapingPace,
    ) -> Self {
        let shaping = ShapingConfig {
            block_bytes,
            pace,
            ..ShapingConfig::default()
        };
        let config = BuilderConfig {
            readout_units: vec![(0..SOURCES).map(SourceId).collect(); readout_units],
            builder_units: builders,
            credits: CREDITS,
            ..BuilderConfig::default()
        };
        let from = pool();
        let sent_from = Some(from.clone());
        let buffers = FragmentShaper::send_buffer_bytes(&shaping);
        let mut link = match kind {
            Kind::Tcp => {
                let link = TcpFrameLink::new(sent_from, None).shaped(buffers);
                NetworkLink::Tcp(Box::new(link))
            }
            Kind::Udp | Kind::Short => {
                let link = UdpFrameLink::new(sent_from, None, 1 << 20).shaped(buffers);
                NetworkLink::Udp(Box::new(link))
            }
        };
        let mut others = Vec::new();
        for builder in 0..builders {
            let [near, far] = sockets(kind);
            link.add(UnitId::builder(builder), near).unwrap();
            let pages = Some(ReceivePages::new(pool(), 0));
            let mut other = match kind {
                Kind::Tcp => NetworkLink::Tcp(Box::new(TcpFrameLink::new(None, pages))),
                Kind::Udp | Kind::Short => {
                    NetworkLink::Udp(Box::new(UdpFrameLink::new(None, pages, 1 << 20)))
                }
            };
            other.add(RU, far).unwrap();
            others.push(other);
        }
        Self {
            kind,
            from,
            shaper: FragmentShaper::new(&shaping, &config, index),
            link,
            builders: others,
            on_file: Vec::new(),
            next_page: 0,
            now: RunNs(0),
        }
    }

    /// A fragment of so many words is on file and to be sent.
    fn push(&mut self, to: u16, trigger: u64, words: usize) {
        let fragment = QueuedFragment {
            to,
            sequence: trigger as u32,
            trigger: TriggerNumber(trigger),
            source: SourceId(0),
        };
        self.shaper.push(fragment, 4 * words as u32);
        let first_page = self.next_page;
        for part in words_of(trigger, words).chunks(PAGE_WORDS) {
            // One that is used again keeps what is in it.
            if let Ok(mut writer) = self.from.write(PageIndex(self.next_page)) {
                writer[..part.len()].copy_from_slice(part);
                writer.finish();
            }
            self.next_page += 1;
        }
        self.on_file.push((fragment, words, first_page));
    }

    /// One duty cycle at a time of the run.
    fn poll_at(&mut self, ns: u64) -> usize {
        self.now = RunNs(ns);
        self.shaper.begin_cycle(self.now);
        let on_file = &self.on_file;
        self.shaper.poll(self.now, &mut self.link, |fragment| {
            let (_, words, page) = on_file.iter().find(|(other, ..)| other == fragment)?;
            Some(message(fragment, *words, *page))
        })
    }

    /// Triggers of the fragments that have come to a builder unit, each whole and right.
    fn received(&mut self, builder: usize) -> Vec<u64> {
        let link = &mut self.builders[builder];
        let mut triggers = Vec::new();
        let mut next = None;
        while link.take_next(|envelope| next = Some(envelope.message.clone())) {
            let Some(BuilderMessage::FragmentData { trigger, fragment }) = next.take() else {
                panic!("only fragments are sent");
            };
            let pages = link.pages_mut().unwrap();
            let mut words = Vec::new();
            for page in &fragment.pages {
                words.extend_from_slice(&pages.pool().read(PageIndex(*page)).unwrap());
                pages.give_back(*page).unwrap();
            }
            words.truncate(fragment.words as usize);
            assert_eq!(words, words_of(trigger.0, fragment.words as usize));
            triggers.push(trigger.0);
        }
        triggers
    }

    /// Waits until these have come to a builder unit, and finds no others.
    fn expect(&mut self, builder: usize, triggers: &[u64]) {
        let mut came = Vec::new();
        for _ in 0..1_000_000 {
            came.extend(self.received(builder));
            if came.len() >= triggers.len() {
                break;
            }
        }
        assert_eq!(came, triggers, "{:?}", self.kind);
    }

    fn detail(&self, name: &str) -> u64 {
        let details = self.shaper.details();
        let found = details.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no {name}")).1
    }

    fn payload_sent(&self) -> u64 {
        let details = self.link.details();
        let found = details
            .iter()
            .find(|(name, _)| *name == "network_payload_bytes_sent");
        found.unwrap().1
    }
}

/// The same for each fourth trigger.
fn words_of(trigger: u64, words: usize) -> Vec<u32> {
    (0..words as u32)
        .map(|n| n.wrapping_mul(1 + trigger as u32 % 4))
        .collect()
}

fn message(fragment: &QueuedFragment, words: usize, first_page: u32) -> Envelope {
    let pages = words.div_ceil(PAGE_WORDS) as u32;
    Envelope {
        sender: RU,
        epoch: 1,
        sequence: fragment.sequence,
        message: BuilderMessage::FragmentData {
            trigger: fragment.trigger,
            fragment: FragmentDescriptor {
                source: fragment.source,
                pool: 0,
                words: words as u32,
                status: FragmentStatus::GOOD,
                crc: crc32c(&words_of(fragment.trigger.0, words)),
                pages: (first_page..first_page + pages).collect(),
            },
        },
    }
}

const BY_CLOCK: ShapingPace = ShapingPace::Clock {
    step: DurationNs(1000),
};

fn by_back_pressure(turn_max: u64) -> ShapingPace {
    ShapingPace::BackPressure {
        turn_max: DurationNs(turn_max),
    }
}

/// Given two builder units and a clock, then each gets what a block holds at its steps, and the rest
/// of a fragment with its next block.
#[test]
fn with_a_clock_each_step_sends_one_block_to_its_builder_unit() {
    for kind in [Kind::Tcp, Kind::Udp] {
        let mut bench = Bench::new(kind, 2, 1024, BY_CLOCK);
        bench.poll_at(999_500);
        // 640 bytes each: 1024 hold one of them and a part of the next.
        for trigger in 1..=4 {
            bench.push(0, trigger, 160);
        }
        assert_eq!(bench.poll_at(999_900), 0, "step 999 is bu1's");
        assert_eq!(bench.poll_at(1_000_000), 1, "{kind:?}");
        bench.expect(0, &[1]);
        assert_eq!(bench.poll_at(1_000_500), 0, "one block a step");
        bench.push(1, 9, 160);
        assert_eq!(bench.poll_at(1_001_000), 1);
        bench.expect(1, &[9]);
        bench.expect(0, &[]);
        // Too late for step 1002, which was bu0's; 1003 is bu1's, for whom nothing waits.
        assert_eq!(bench.poll_at(1_003_100), 0);
        assert_eq!(bench.poll_at(1_004_100), 1);
        bench.expect(0, &[2, 3]);
        assert_eq!(bench.poll_at(1_006_100), 1);
        bench.expect(0, &[4]);
        assert!(bench.shaper.is_empty() && bench.link.is_flushed());
        assert_eq!(bench.detail("shaping_turns_missed"), 1);
        assert_eq!(bench.detail("shaping_blocks"), 4);
        assert_eq!(bench.payload_sent(), 5 * 640, "{kind:?}");
    }
}

/// Given a builder unit that reads nothing, then its turns end after `turn_max`, it has no further
/// ones, and the other gets everything; what it did not take goes out once it reads.
#[test]
fn a_builder_unit_that_stands_still_stops_no_other() {
    let mut bench = Bench::new(Kind::Tcp, 2, 4096, by_back_pressure(1_000_000));
    // Its windows: what the kernels of both ends hold.
    let mut trigger = 0;
    let mut now = 0;
    while bench.detail("shaping_turns_overrun") == 0 {
        now += 100_000;
        for _ in 0..4 {
            trigger += 1;
            // Pages are used again and again.
            bench.next_page = 0;
            bench.push(0, trigger, 16 * PAGE_WORDS);
        }
        bench
            .on_file
            .drain(..bench.on_file.len().saturating_sub(200));
        bench.poll_at(now);
        assert!(trigger < 1_000_000, "the kernel takes everything");
    }
    assert!(!bench.shaper.is_empty());
    bench.next_page = PAGES / 2;
    for other in 0..20 {
        bench.push(1, trigger + 1 + other, PAGE_WORDS);
    }
    let before = bench.detail("shaping_turns_overrun");
    // At once: who overran is not waited for again.
    for _ in 0..20 {
        bench.poll_at(now);
    }
    let others: Vec<u64> = (1..=20).map(|n| trigger + n).collect();
    bench.expect(1, &others);
    assert_eq!(bench.detail("shaping_turns_overrun"), before);
    // Lost now: its lane is empty, and begins again with another life.
    bench.shaper.lose(0);
    bench.link.lose(UnitId::builder(0));
    assert!(bench.shaper.is_empty() && bench.link.is_flushed());
    assert!(bench.detail("shaping_fragments_withdrawn") > 0);
    let [near, far] = sockets(Kind::Tcp);
    bench.link.add(UnitId::builder(0), near).unwrap();
    let pages = Some(ReceivePages::new(pool(), 0));
    bench.builders[0] = NetworkLink::Tcp(Box::new(TcpFrameLink::new(None, pages)));
    bench.builders[0].add(RU, far).unwrap();
    bench.on_file.clear();
    bench.push(0, 7, 100);
    assert_eq!(bench.poll_at(now), 1);
    bench.expect(0, &[7]);
}

/// Given a link that is full in the middle of a block, then what is left of it follows, and nothing of
/// another takes its place.
#[test]
fn a_block_goes_on_where_its_link_was_full() {
    let mut bench = Bench::new(Kind::Short, 2, 64 << 10, by_back_pressure(1_000_000));
    let (mut trigger, mut now) = (0, 0);
    while bench.detail("shaping_turns_overrun") == 0 {
        now += 200_000;
        if bench.shaper.lanes.lanes[0].queue.is_empty() {
            // A block of them, behind which nothing waits.
            for _ in 0..16 {
                trigger += 4;
                bench.next_page = 0;
                bench.push(0, trigger, 16 * PAGE_WORDS);
            }
        }
        bench.poll_at(now);
        assert!(now < 1_000_000_000, "the link takes everything");
    }
    // 16 datagrams for each fragment.
    assert!(!bench.shaper.lanes.lanes[0].is_placed());
    assert_eq!(bench.detail("shaping_fragments_without_room"), 0);
    bench.next_page = PAGES / 2;
    bench.push(1, trigger + 1, 10);
    (0..20).for_each(|_| _ = bench.poll_at(now));
    bench.expect(1, &[trigger + 1]);
    assert!(!bench.shaper.lanes.lanes[0].is_placed());
    let mut came = Vec::new();
    for _ in 0..1_000_000 {
        now += 1000;
        bench.poll_at(now);
        came.extend(bench.received(0));
        if came.last() == Some(&trigger) {
            break;
        }
    }
    assert_eq!(came, (1..=trigger / 4).map(|n| 4 * n).collect::<Vec<u64>>());
    assert!(bench.shaper.is_empty() && bench.link.is_flushed());
}

#[test]
fn what_waits_already_is_sent_once_and_what_is_released_not_at_all() {
    let mut bench = Bench::new(Kind::Tcp, 1, 512, BY_CLOCK);
    bench.poll_at(0);
    for trigger in [3, 4, 5] {
        bench.push(0, trigger, 200);
    }
    // Asked for again while they wait.
    for trigger in [3, 5] {
        bench.push(0, trigger, 200);
    }
    bench
        .on_file
        .retain(|(fragment, ..)| fragment.trigger.0 != 4);
    (1..10).for_each(|step| _ = bench.poll_at(1000 * step));
    bench.expect(0, &[3, 5]);
    assert_eq!(bench.detail("shaping_fragments_waiting_already"), 2);
    assert_eq!(bench.detail("shaping_fragments_released"), 1);
    assert_eq!(bench.payload_sent(), 2 * 800);
    // Sent before, it is sent again.
    bench.push(0, 3, 200);
    (10..20).for_each(|step| _ = bench.poll_at(1000 * step));
    bench.expect(0, &[3]);
    // More than all credits, whatever they are: the builder unit asks again.
    let bound = u64::from(CREDITS * SOURCES);
    for trigger in 100..100 + bound + 3 {
        bench.next_page = 0;
        bench.push(0, trigger, 1);
    }
    assert_eq!(bench.detail("shaping_fragments_without_room"), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is to be sent, in blocks of whatever size and at whatever pace: each builder unit gets
    /// each fragment whole, once and in order, and nothing is left.
    #[test]
    fn every_fragment_comes_whole_and_in_order(
        fragments in prop::collection::vec((0..3_u16, 0..16 * PAGE_WORDS), 1..60),
        block_bytes in 256..9000_u32,
        is_clocked: bool,
        is_udp: bool,
        polls in 0..4_u64,
    ) {
        let kind = if is_udp { Kind::Udp } else { Kind::Tcp };
        let pace = if is_clocked { BY_CLOCK } else { by_back_pressure(1_000_000) };
        let mut bench = Bench::new(kind, 3, block_bytes, pace);
        let mut expected = vec![Vec::new(); 3];
        let mut came = vec![Vec::new(); 3];
        let (mut now, mut bytes) = (0, 0);
        for (trigger, (to, words)) in (1..).zip(fragments) {
            bench.push(to, trigger, words);
            expected[usize::from(to)].push(trigger);
            bytes += 4 * words as u64;
            for _ in 0..polls {
                now += 700;
                bench.poll_at(now);
            }
        }
        for _ in 0..3000 {
            now += 700;
            bench.poll_at(now);
            for (builder, came) in came.iter_mut().enumerate() {
                came.extend(bench.received(builder));
            }
            if bench.shaper.is_empty() && bench.link.is_flushed() && came == expected {
                break;
            }
        }
        prop_assert_eq!(came, expected, "{:?}", bench.kind);
        prop_assert!(bench.shaper.is_empty() && bench.link.is_flushed());
        prop_assert_eq!(bench.detail("shaping_block_bytes"), bytes);
        prop_assert_eq!(bench.payload_sent(), bytes);
    }
}
