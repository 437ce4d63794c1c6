//! A peer that writes nonsense into shared memory: every result is an error or a plain value,
//! never a panic, an endless loop or an access outside.
//!
//! The peer is a second mapping of the same descriptor, through which random bytes are written
//! while nobody holds a slice of the memory.
#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

use std::os::fd::OwnedFd;

use livetime_shm::mapping::Mapping;
use livetime_shm::{
    Found, HugePages, OverflowRule, OwnerId, PageIndex, PagePool, PoolConfig, PoolError, PushError,
    ReclaimError, RecordReader, RecordRingConfig, RecordWriter, RingConfig, RingError, RingFault,
    RingRegion, Side, open_consumer,
};
use proptest::prelude::*;

/// Byte offsets of the layout, as documented in `ring_region` and `page_pool`.
const PRODUCER: usize = 128;
const TAIL: usize = 384;
const SLOTS: usize = 512;
const OWNERS: usize = 128;
const STATES: usize = 512;
/// And those of `record_ring`.
const OFFERED: usize = 128;
const RECORDS: usize = 384;
const RECORD_BYTES: usize = 64;

struct Peer(Mapping);

impl Peer {
    fn new(fd: OwnedFd) -> Self {
        Self(Mapping::open(fd).unwrap())
    }

    fn write_u64(&self, offset: usize, value: u64) {
        assert!(offset + 8 <= self.0.bytes() && offset.is_multiple_of(8));
        // SAFETY: inside the mapping and aligned; nobody holds a slice of it now.
        unsafe {
            self.0
                .base()
                .add(offset)
                .cast::<u64>()
                .write_volatile(value)
        };
    }

    fn write_u32(&self, offset: usize, value: u32) {
        assert!(offset + 4 <= self.0.bytes() && offset.is_multiple_of(4));
        // SAFETY: inside the mapping and aligned; nobody holds a slice of it now.
        unsafe {
            self.0
                .base()
                .add(offset)
                .cast::<u32>()
                .write_volatile(value)
        };
    }
}

fn ring_with_peer(slots: u32, slot_words: u32) -> (RingRegion, Peer) {
    let region = RingRegion::create(&RingConfig { slots, slot_words }, 7).unwrap();
    let peer = Peer::new(duplicate(&region));
    (region, peer)
}

fn duplicate(region: &RingRegion) -> OwnedFd {
    region.fd().unwrap().try_clone_to_owned().unwrap()
}

#[test]
fn a_message_longer_than_its_slot_is_a_fault() {
    let (region, peer) = ring_with_peer(4, 14);
    let mut consumer = region.consumer().unwrap();
    for words in [15, 1 << 20, u32::MAX] {
        peer.write_u64(SLOTS, (1 << 32) | u64::from(words));
        let fault = RingFault::Length {
            slot: 0,
            words,
            slot_words: 14,
        };
        assert_eq!(consumer.try_pop(<[u32]>::len), Err(fault));
        assert_eq!(consumer.pop_batch(4, |_| ()), Err(fault));
        assert!(!consumer.is_empty() && !consumer.is_finished());
    }
    peer.write_u64(SLOTS, (1 << 32) | 14);
    assert_eq!(consumer.try_pop(<[u32]>::len), Ok(Some(14)));
}

#[test]
fn an_impossible_sequence_number_is_a_fault() {
    let (region, peer) = ring_with_peer(4, 14);
    let mut consumer = region.consumer().unwrap();
    for found in [2, 5, u32::MAX] {
        peer.write_u64(SLOTS, u64::from(found) << 32);
        let fault = RingFault::Sequence {
            slot: 0,
            found,
            expected: 1,
        };
        assert_eq!(consumer.try_pop(|_| ()), Err(fault));
    }
    // A good message before a bad one is delivered first.
    peer.write_u64(SLOTS, 1 << 32);
    peer.write_u64(SLOTS + 64, 9 << 32);
    assert_eq!(consumer.pop_batch(4, |_| ()), Ok(1));
    let fault = RingFault::Sequence {
        slot: 1,
        found: 9,
        expected: 2,
    };
    assert_eq!(consumer.pop_batch(4, |_| ()), Err(fault));
}

#[test]
fn an_impossible_tail_is_a_fault_that_stays() {
    for found in [3, 4, u64::MAX] {
        let (region, peer) = ring_with_peer(2, 14);
        let mut producer = region.producer().unwrap();
        producer.try_push(&[1]).unwrap();
        producer.try_push(&[2]).unwrap();
        peer.write_u64(TAIL, found);
        let fault = RingFault::Tail {
            found,
            oldest: 0,
            newest: 2,
        };
        assert_eq!(producer.try_push(&[3]), Err(PushError::Fault(fault)));
        assert_eq!(producer.free_slots(), 0);
        peer.write_u64(TAIL, 1);
        assert_eq!(producer.try_push(&[3]), Err(PushError::Fault(fault)));
    }
    // Going backwards is as bad as running ahead.
    let (region, peer) = ring_with_peer(2, 14);
    let mut producer = region.producer().unwrap();
    producer.try_push(&[1]).unwrap();
    peer.write_u64(TAIL, 1);
    assert_eq!(producer.free_slots(), 2);
    peer.write_u64(TAIL, 0);
    assert_eq!(producer.free_slots(), 0);
}

#[test]
fn a_ring_of_another_kind_is_refused_field_by_field() {
    type Change = (usize, u64, &'static str);
    // Offsets of the header: magic, (version, slots), (slot words, slot bytes), epoch.
    let changes: [Change; 6] = [
        (0, 0, "magic"),
        (8, 2 | 4 << 32, "layout version"),
        (8, 1 | 3 << 32, "size"),
        (8, 1 | 1 << 52, "mapped bytes"),
        (16, 14 | 128 << 32, "slot bytes"),
        (16, 64 << 32, "size"),
    ];
    for (offset, value, refused) in changes {
        let (region, peer) = ring_with_peer(4, 14);
        peer.write_u64(offset, value);
        match open_consumer(duplicate(&region), 7) {
            Err(RingError::Layout { field, .. }) => assert_eq!(field, refused),
            other => panic!("{refused}: {other:?}"),
        }
    }
    let (region, _peer) = ring_with_peer(4, 14);
    let old = open_consumer(duplicate(&region), 6);
    assert!(
        matches!(
            old,
            Err(RingError::Epoch {
                found: 7,
                expected: 6
            })
        ),
        "{old:?}"
    );
    let _consumer = open_consumer(duplicate(&region), 7).unwrap();
    let second = open_consumer(duplicate(&region), 7);
    let this = std::process::id();
    assert!(
        matches!(&second, Err(RingError::Taken { side: Side::Consumer, owner }) if owner.pid() == this),
        "{second:?}"
    );
    let tiny = Mapping::create("test", 1, HugePages::Never).unwrap();
    assert!(RingRegion::open(tiny.fd().try_clone_to_owned().unwrap(), 7).is_err());
}

fn pool_with_peer(pages: u32) -> (PagePool, Peer) {
    let config = PoolConfig {
        pages,
        page_bytes: 64,
        huge_pages: HugePages::Never,
    };
    let pool = PagePool::create(&config).unwrap();
    let peer = Peer::new(pool.fd().try_clone_to_owned().unwrap());
    (pool, peer)
}

#[test]
fn a_pool_of_another_kind_is_refused_field_by_field() {
    type Change = (usize, u64, &'static str);
    // Offsets of the header: magic, (version, pages), (page bytes, state offset), data offset.
    let changes: [Change; 8] = [
        (0, 1, "magic"),
        (8, 4 << 32, "layout version"),
        (8, 1, "size"),
        (8, 1 | 0xffff_ffff << 32, "data offset"),
        (16, 65 | 512 << 32, "size"),
        (16, 64 | 448 << 32, "state offset"),
        (16, 0xffff_ffc0 | 512 << 32, "mapped bytes"),
        (24, 0, "data offset"),
    ];
    for (offset, value, refused) in changes {
        let (pool, peer) = pool_with_peer(4);
        peer.write_u64(offset, value);
        match PagePool::open(pool.fd().try_clone_to_owned().unwrap()) {
            Err(PoolError::Layout { field, .. }) => assert_eq!(field, refused),
            other => panic!("{refused}: {other:?}"),
        }
    }
}

#[test]
fn living_and_unknown_owners_are_not_reclaimed() {
    let (pool, peer) = pool_with_peer(4);
    let other = PagePool::open(pool.fd().try_clone_to_owned().unwrap()).unwrap();
    let alive = pool.reclaim(other.owner());
    assert!(
        matches!(alive, Err(ReclaimError::Alive { .. })),
        "{alive:?}"
    );
    for owner in [2, 29, 30, 255] {
        let unknown = pool.reclaim(OwnerId(owner));
        assert_eq!(
            unknown,
            Err(ReclaimError::Unknown {
                owner: OwnerId(owner)
            })
        );
    }
    // An owner entry of nonsense is a process that does not exist.
    peer.write_u64(OWNERS + 8 * 5, 0x7fff_ffff_ffff_ffff);
    assert_eq!(pool.reclaim(OwnerId(5)).unwrap().freed, 0);
    assert_eq!(
        pool.reclaim(OwnerId(5)),
        Err(ReclaimError::Unknown { owner: OwnerId(5) })
    );
}

#[test]
fn pages_of_a_vanished_owner_come_back() {
    let (pool, peer) = pool_with_peer(6);
    let dead = PagePool::open(pool.fd().try_clone_to_owned().unwrap()).unwrap();
    let filled_by_us = pool.write(PageIndex(0)).unwrap().finish();
    let hold = dead.read(filled_by_us).unwrap();
    let second_hold = dead.read(filled_by_us).unwrap();
    let writing = dead.write(PageIndex(1)).unwrap();
    let filled_by_it = dead.write(PageIndex(2)).unwrap().finish();
    dead.write(PageIndex(3)).unwrap().finish();
    // It died in the middle of a release: state 3, its owner id.
    peer.write_u32(STATES + 64 * 3, 3 | u32::from(dead.owner().0) << 2 | 1 << 8);
    let owner = dead.owner();
    assert!(pool.release(filled_by_us).is_err());
    // A process that does not exist any more: the highest possible number, started at tick 1.
    peer.write_u64(OWNERS + 8 * usize::from(owner.0), 0x3f_ffff << 41 | 1);

    let reclaimed = pool.reclaim(owner).unwrap();
    assert_eq!((reclaimed.freed, reclaimed.holds_dropped), (2, 2));
    assert_eq!(reclaimed.adopted, [filled_by_it]);
    let counts = pool.counts();
    assert_eq!(
        (counts.free, counts.writing, counts.filled, counts.holds),
        (4, 0, 2, 0)
    );
    pool.release(filled_by_us).unwrap();
    pool.release(filled_by_it).unwrap();

    // A writer that was only believed dead does no harm to the state of its page.
    let new_writer = pool.write(PageIndex(1)).unwrap();
    assert_eq!(writing.finish(), PageIndex(1));
    assert_eq!(pool.counts().writing, 1);
    drop(new_writer);
    std::mem::forget((hold, second_hold, dead));
}

const RULES: [OverflowRule; 3] = [
    OverflowRule::DropOldest,
    OverflowRule::DropNewest,
    OverflowRule::Disconnect,
];

fn records_with_peer(rule: OverflowRule) -> (RecordWriter, RecordReader, Peer) {
    let config = RecordRingConfig {
        slots: 4,
        rule,
        epoch: 7,
    };
    let writer = RecordWriter::create(&config).unwrap();
    let reader = RecordReader::open(writer.fd().try_clone_to_owned().unwrap()).unwrap();
    let peer = Peer::new(writer.fd().try_clone_to_owned().unwrap());
    (writer, reader, peer)
}

/// Polls more often than a ring of four slots has things to say; each loss has an end behind its
/// beginning.
fn poll_all(reader: &mut RecordReader) {
    for _ in 0..8 {
        if let Found::Lost { first, last } = reader.poll() {
            assert!(first <= last, "{first} to {last}");
        }
        let _ = (reader.is_ready(), reader.behind(), reader.lost());
    }
}

#[test]
fn a_count_of_records_that_nobody_reaches_ends_no_reader() {
    for rule in RULES {
        for offered in [u64::MAX, u64::MAX - 1, 1 << 63] {
            let (writer, mut reader, peer) = records_with_peer(rule);
            // Later stamps, so that a reader of the newest records thinks it was overtaken.
            for stamp in [0, 2, u64::MAX - 1, 0] {
                for slot in 0..4 {
                    peer.write_u64(RECORDS + slot * RECORD_BYTES, stamp);
                }
                peer.write_u64(OFFERED, offered);
                poll_all(&mut reader);
            }
            drop(writer);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Garbage(usize, u64),
    Use(u32),
}

fn step(bytes: usize) -> impl Strategy<Value = Step> {
    let small = prop_oneof![
        any::<u64>(),
        0u64..8,
        (0u64..8).prop_map(|high| high << 32 | 3)
    ];
    prop_oneof![
        (0..bytes / 8, small).prop_map(|(word, value)| Step::Garbage(word * 8, value)),
        (0u32..64).prop_map(Step::Use),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn garbage_in_a_ring_gives_errors(steps in prop::collection::vec(step(512 + 4 * 64), 1..150)) {
        let (region, peer) = ring_with_peer(4, 14);
        let (mut producer, mut consumer) = (region.producer().unwrap(), region.consumer().unwrap());
        for step in steps {
            match step {
                // Not the word that says who we are to each other: closing is no nonsense.
                Step::Garbage(offset, _) if (PRODUCER..TAIL).contains(&offset) => {}
                Step::Garbage(offset, value) => peer.write_u64(offset, value),
                Step::Use(choice) => {
                    let words = [choice; 14];
                    let _ = producer.try_push(&words[..choice as usize % 15]);
                    let _ = producer.push_batch(&[&words[..1], &words[..14]]);
                    prop_assert!(producer.free_slots() <= 4);
                    if let Ok(Some(len)) = consumer.try_pop(<[u32]>::len) {
                        prop_assert!(len <= 14);
                    }
                    if let Ok(count) = consumer.pop_batch(3, |words| assert!(words.len() <= 14)) {
                        prop_assert!(count <= 3);
                    }
                    let _ = (consumer.is_empty(), consumer.is_finished());
                }
            }
        }
    }

    #[test]
    fn garbage_in_a_record_ring_gives_records_and_losses(
        rule in prop::sample::select(RULES.to_vec()),
        steps in prop::collection::vec(step(RECORDS + 4 * RECORD_BYTES), 1..150),
    ) {
        let (mut writer, mut reader, peer) = records_with_peer(rule);
        for step in steps {
            match step {
                Step::Garbage(offset, value) => peer.write_u64(offset, value),
                Step::Use(choice) => {
                    let offered = writer.offer(&[u64::from(choice); 8]);
                    prop_assert!(offered.sequence <= writer.offered());
                    prop_assert!(writer.unread() <= 4);
                    poll_all(&mut reader);
                }
            }
        }
    }

    #[test]
    fn garbage_in_a_pool_gives_errors(steps in prop::collection::vec(step(512 + 4 * 64), 1..150)) {
        let (pool, peer) = pool_with_peer(4);
        for step in steps {
            match step {
                Step::Garbage(offset, value) => peer.write_u64(offset, value),
                Step::Use(choice) => {
                    let page = PageIndex(choice % 5);
                    if let Ok(mut writer) = pool.write(page) {
                        writer.fill(1);
                        if choice % 2 == 0 { writer.finish(); }
                    }
                    if let Ok(reader) = pool.read(page) {
                        prop_assert_eq!(reader.len(), 16);
                    }
                    let _ = (pool.release(page), pool.state(page), pool.owners());
                    let _ = pool.reclaim(OwnerId((choice % 32) as u8));
                    let counts = pool.counts();
                    prop_assert_eq!(counts.free + counts.writing + counts.filled, 4);
                }
            }
        }
    }
}
