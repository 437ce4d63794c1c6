use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn pair(slots: u32, rule: OverflowRule) -> (RecordWriter, RecordReader) {
    let config = RecordRingConfig {
        slots,
        rule,
        epoch: 5,
    };
    let writer = RecordWriter::create(&config).unwrap();
    let reader = RecordReader::open(writer.fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(
        (reader.epoch(), reader.rule(), reader.slots()),
        (5, rule, slots)
    );
    (writer, reader)
}

fn record(value: u64) -> [u64; RECORD_WORDS] {
    [0, value, !value, value << 7, value ^ 0x55, 1, 2, value]
}

/// As it is known before its last word is.
fn early(value: u64) -> [u64; RECORD_WORDS] {
    let mut words = record(value);
    words[RECORD_WORDS - 1] = u64::MAX;
    words
}

fn found(sequence: u64, value: u64) -> Found {
    let mut words = record(value);
    words[0] = published(sequence);
    Found::Record(words)
}

#[test]
fn records_arrive_in_order_with_their_numbers() {
    for rule in [
        OverflowRule::DropOldest,
        OverflowRule::DropNewest,
        OverflowRule::Disconnect,
    ] {
        let (mut writer, mut reader) = pair(4, rule);
        assert_eq!(reader.poll(), Found::Nothing);
        for lap in 0..10 {
            for n in 0..3 {
                let sequence = lap * 3 + n;
                let offered = writer.offer(&record(sequence + 100));
                assert_eq!(
                    (offered.sequence, offered.outcome),
                    (sequence, OfferOutcome::Written)
                );
            }
            for n in 0..3 {
                assert_eq!(reader.poll(), found(lap * 3 + n, lap * 3 + n + 100));
            }
            assert_eq!(reader.poll(), Found::Nothing);
        }
        drop(writer);
        assert_eq!(reader.poll(), Found::Closed(RingClosed::Finished));
    }
}

#[test]
fn drop_oldest_keeps_the_latest_and_names_what_is_gone() {
    let (mut writer, mut reader) = pair(8, OverflowRule::DropOldest);
    for n in 0..20 {
        let outcome = writer.offer(&record(n)).outcome;
        assert_eq!(outcome == OfferOutcome::Overwrote, n >= 8, "{n}");
    }
    // One more slot than what a writer at work leaves whole is never read.
    assert_eq!(reader.poll(), Found::Lost { first: 0, last: 12 });
    for n in 13..20 {
        assert_eq!(reader.poll(), found(n, n));
    }
    assert_eq!(reader.poll(), Found::Nothing);
    assert_eq!((reader.lost(), writer.monitor().lost()), (13, 13));
}

#[test]
fn a_record_written_ahead_is_seen_when_it_is_published_and_not_before() {
    let (mut writer, mut reader) = pair(2, OverflowRule::DropOldest);
    assert!(writer.publish_ahead(0).is_none(), "there is none");
    assert!(writer.write_ahead(&early(9)));
    assert_eq!(reader.poll(), Found::Nothing);
    for n in 0..2 {
        assert!(writer.write_ahead(&early(n)));
        assert_eq!((reader.behind(), reader.is_ready()), (n, n > 0));
        let offered = writer.publish_ahead(n).unwrap();
        assert_eq!(
            (offered.sequence, offered.outcome),
            (n, OfferOutcome::Written)
        );
        assert!(writer.publish_ahead(n).is_none(), "only once");
    }
    // The reader may be at any slot of a full ring.
    assert!(!writer.write_ahead(&early(2)));
    assert_eq!((reader.poll(), reader.poll()), (found(0, 0), found(1, 1)));
    assert_eq!(reader.poll(), Found::Nothing);
    assert!(writer.write_ahead(&early(2)), "the reader has said so");
    writer.offer(&record(7));
    assert!(writer.publish_ahead(2).is_none(), "another took its place");
    assert_eq!(reader.poll(), found(2, 7));
    assert!(writer.write_ahead(&early(3)));
    writer.close(RingClosed::Finished);
    assert!(writer.publish_ahead(3).is_none() && !writer.write_ahead(&early(3)));
    assert_eq!(reader.poll(), Found::Closed(RingClosed::Finished));
}

#[test]
fn drop_newest_keeps_the_first_and_tells_of_the_end_at_once() {
    let (mut writer, mut reader) = pair(4, OverflowRule::DropNewest);
    for n in 0..10 {
        let outcome = writer.offer(&record(n)).outcome;
        assert_eq!(outcome == OfferOutcome::Dropped, n >= 4, "{n}");
    }
    for n in 0..4 {
        assert_eq!(reader.poll(), found(n, n));
    }
    assert_eq!(reader.poll(), Found::Lost { first: 4, last: 9 });
    assert_eq!(reader.poll(), Found::Nothing);
    writer.offer(&record(10));
    assert_eq!(reader.poll(), found(10, 10));
}

#[test]
fn disconnect_closes_and_still_accounts_for_all() {
    let (mut writer, mut reader) = pair(2, OverflowRule::Disconnect);
    for n in 0..3 {
        writer.offer(&record(n));
    }
    assert!(writer.is_closed());
    assert_eq!(writer.offer(&record(3)).outcome, OfferOutcome::Closed);
    assert_eq!(writer.offered(), 3);
    assert_eq!(reader.poll(), found(0, 0));
    assert_eq!(reader.poll(), found(1, 1));
    assert_eq!(reader.poll(), Found::Lost { first: 2, last: 2 });
    assert_eq!(reader.poll(), Found::Closed(RingClosed::Overflow));
}

#[test]
fn a_sleeper_is_reported_once_and_only_when_it_sleeps() {
    let (mut writer, mut reader) = pair(4, OverflowRule::DropOldest);
    assert!(!writer.offer(&record(0)).wake);
    reader.prepare_sleep();
    assert_eq!(reader.poll(), found(0, 0));
    assert!(writer.offer(&record(1)).wake);
    assert!(!writer.offer(&record(2)).wake);
    reader.prepare_sleep();
    reader.stay_awake();
    assert!(!writer.offer(&record(3)).wake);
}

#[test]
fn a_reader_that_lies_only_harms_itself() {
    let (mut writer, reader) = pair(4, OverflowRule::DropNewest);
    for lie in [u64::MAX, 5, 1 << 63] {
        reader
            .memory
            .header()
            .reader
            .passed
            .store(lie, Ordering::Relaxed);
        for n in 0..8 {
            writer.offer(&record(n));
        }
        assert_eq!(writer.unread(), 4);
    }
    assert_eq!(writer.offered(), 24);
}

#[test]
fn other_memory_is_no_record_ring() {
    let words = crate::SharedWords::shared(100).unwrap();
    let fd = words.fd().unwrap().try_clone_to_owned().unwrap();
    assert!(matches!(
        RecordReader::open(fd),
        Err(RecordRingError::Layout { field: "magic", .. })
    ));
    for slots in [0, 1, 3, RECORD_SLOTS_MAX * 2] {
        let config = RecordRingConfig {
            slots,
            rule: OverflowRule::DropOldest,
            epoch: 0,
        };
        assert!(matches!(
            RecordWriter::create(&config),
            Err(RecordRingError::Slots { slots: found }) if found == slots
        ));
    }
}

#[test]
fn at_full_rate_every_record_is_whole_or_reported_lost() {
    const RECORDS: u64 = 300_000;
    for (rule, slots) in [
        (OverflowRule::DropOldest, 8),
        (OverflowRule::DropOldest, 4096),
        (OverflowRule::DropNewest, 8),
    ] {
        let (mut writer, mut reader) = pair(slots, rule);
        let feeder = std::thread::spawn(move || {
            for n in 0..RECORDS {
                writer.offer(&record(n));
            }
            writer.offered()
        });
        let (mut received, mut lost, mut next) = (0, 0, 0);
        loop {
            match reader.poll() {
                Found::Record(words) => {
                    assert_eq!(
                        Found::Record(words),
                        found(next, next),
                        "torn or out of order"
                    );
                    received += 1;
                    next += 1;
                }
                Found::Lost { first, last } => {
                    assert_eq!(first, next);
                    lost += last - first + 1;
                    next = last + 1;
                }
                Found::Nothing => std::hint::spin_loop(),
                Found::Closed(reason) => {
                    assert_eq!(reason, RingClosed::Finished);
                    break;
                }
            }
        }
        assert_eq!(feeder.join().unwrap(), RECORDS);
        assert_eq!(received + lost, RECORDS, "{rule:?} of {slots}");
        assert_eq!(reader.lost(), lost);
    }
}

proptest! {
    /// Any interleaving of offers and polls against a queue: what a reader gets is what a queue
    /// of that bound would give, and nothing is unaccounted for.
    #[test]
    fn operations_against_a_queue(
        operations in prop::collection::vec(0..3u8, 0..300),
        bits in 1u32..4,
        newest: bool,
    ) {
        let slots = 1u32 << bits;
        let rule = if newest { OverflowRule::DropNewest } else { OverflowRule::DropOldest };
        let (mut writer, mut reader) = pair(slots, rule);
        let mut queue = VecDeque::new();
        let (mut received, mut lost) = (0u64, 0u64);
        let mut check = |reader: &mut RecordReader, queue: &mut VecDeque<u64>| {
            match reader.poll() {
                Found::Record(words) => {
                    received += 1;
                    assert_eq!(words[1..], record(words[1])[1..]);
                    while queue.front().is_some_and(|front| *front < words[1]) {
                        queue.pop_front();
                    }
                    assert_eq!(queue.pop_front(), Some(words[1]));
                }
                Found::Lost { first, last } => lost += last - first + 1,
                Found::Nothing => return (false, received, lost),
                Found::Closed(_) => panic!("nobody closed it"),
            }
            (true, received, lost)
        };
        for operation in operations {
            if operation == 0 {
                check(&mut reader, &mut queue);
                continue;
            }
            let sequence = writer.offered();
            let is_ahead = operation == 2 && writer.write_ahead(&early(sequence));
            let offered = match is_ahead {
                true => writer.publish_ahead(sequence).unwrap(),
                false => writer.offer(&record(sequence)),
            };
            prop_assert_eq!(offered.sequence, sequence);
            if offered.outcome != OfferOutcome::Dropped {
                queue.push_back(sequence);
            }
            if queue.len() > slots as usize {
                queue.pop_front();
            }
        }
        let (mut more, mut received, mut lost) = (true, 0, 0);
        while more {
            (more, received, lost) = check(&mut reader, &mut queue);
        }
        prop_assert_eq!(received + lost, writer.offered());
        prop_assert!(queue.is_empty());
    }
}
