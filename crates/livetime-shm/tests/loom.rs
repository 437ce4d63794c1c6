//! The protocols of ring and page under the model checker loom: every interleaving of a small
//! scenario, with the reorderings that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p livetime-shm --test loom
//! --target-dir target/loom`. The tests that must fail weaken one ordering each, to show that the
//! checker would notice. loom takes SeqCst accesses for AcqRel ones (its README), so the storage
//! here puts a SeqCst fence where the real one relies on SeqCst accesses.
#![cfg(loom)]

use std::sync::atomic::Ordering;

use livetime_shm::page_state::{
    OwnerId, PageState, PageWords, Recovery, Refusal, StateWord, abandon_writing, begin_reading,
    begin_writing, end_reading, finish_writing, recover, release,
};
use livetime_shm::record_ring::RECORD_WORDS;
use livetime_shm::ring::{RingStorage, Side};
use livetime_shm::{
    Consumer, Found, OverflowRule, Producer, PushError, RecordReader, RecordStorage, RecordWriter,
    RingWord,
};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, fence};
use loom::thread;

/// Which ordering is weakened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    StampStore,
    StampLoad,
    TailStore,
    TailLoad,
    Close,
}

fn weakened(flaw: Flaw, here: Flaw, order: Ordering) -> Ordering {
    if flaw == here {
        Ordering::Relaxed
    } else {
        order
    }
}

struct RingWords {
    stamps: Vec<AtomicU64>,
    payload: Vec<UnsafeCell<[u32; 2]>>,
    tail: AtomicU64,
    closed: [AtomicBool; 2],
    flaw: Flaw,
}

#[derive(Clone)]
struct LoomRing(Arc<RingWords>);

// SAFETY: the cells are checked by loom: a conflicting access fails the test.
unsafe impl Send for LoomRing {}

impl LoomRing {
    fn ends(slots: usize, flaw: Flaw) -> (Producer<LoomRing>, Consumer<LoomRing>) {
        let ring = LoomRing(Arc::new(RingWords {
            stamps: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            payload: (0..slots).map(|_| UnsafeCell::new([0; 2])).collect(),
            tail: AtomicU64::new(0),
            closed: [AtomicBool::new(false), AtomicBool::new(false)],
            flaw,
        }));
        // SAFETY: one of each.
        unsafe { (Producer::new(ring.clone()), Consumer::new(ring)) }
    }
}

impl RingStorage for LoomRing {
    fn slots(&self) -> u32 {
        self.0.stamps.len() as u32
    }

    fn slot_words(&self) -> u32 {
        2
    }

    fn load_stamp(&self, slot: u32, order: Ordering) -> u64 {
        self.0.stamps[slot as usize].load(weakened(self.0.flaw, Flaw::StampLoad, order))
    }

    fn store_stamp(&self, slot: u32, stamp: u64, order: Ordering) {
        self.0.stamps[slot as usize].store(stamp, weakened(self.0.flaw, Flaw::StampStore, order));
    }

    fn load_tail(&self, order: Ordering) -> u64 {
        self.0
            .tail
            .load(weakened(self.0.flaw, Flaw::TailLoad, order))
    }

    fn store_tail(&self, tail: u64, order: Ordering) {
        self.0
            .tail
            .store(tail, weakened(self.0.flaw, Flaw::TailStore, order));
    }

    fn is_closed(&self, side: Side, order: Ordering) -> bool {
        self.0.closed[side as usize].load(order)
    }

    fn close(&self, side: Side, order: Ordering) {
        self.0.closed[side as usize].store(true, weakened(self.0.flaw, Flaw::Close, order));
    }

    unsafe fn read_payload<R>(&self, slot: u32, words: u32, read: impl FnOnce(&[u32]) -> R) -> R {
        // SAFETY: the pointer is valid during the call; loom reports any concurrent write.
        self.0.payload[slot as usize].with(|cell| read(unsafe { &(&*cell)[..words as usize] }))
    }

    unsafe fn fill_payload<R>(
        &self,
        slot: u32,
        words: u32,
        fill: impl FnOnce(&mut [u32]) -> R,
    ) -> R {
        self.0.payload[slot as usize]
            // SAFETY: the pointer is valid during the call; loom reports any concurrent access.
            .with_mut(|cell| fill(unsafe { &mut (&mut *cell)[..words as usize] }))
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn pop(consumer: &mut Consumer<LoomRing>) -> Vec<u32> {
    loop {
        match consumer
            .try_pop(<[u32]>::to_vec)
            .expect("a correct producer")
        {
            Some(words) => return words,
            None => thread::yield_now(),
        }
    }
}

fn push(producer: &mut Producer<LoomRing>, words: &[u32]) {
    while let Err(error) = producer.try_push(words) {
        assert_eq!(error, PushError::Full);
        thread::yield_now();
    }
}

/// Three messages through two slots: the third reuses the first one's slot.
fn one_by_one(flaw: Flaw) {
    check(move || {
        let (mut producer, mut consumer) = LoomRing::ends(2, flaw);
        let writer = thread::spawn(move || {
            for message in 1..=3 {
                push(&mut producer, &[message, message * 10]);
            }
            producer
        });
        for message in 1..=3 {
            assert_eq!(pop(&mut consumer), [message, message * 10]);
        }
        drop(writer.join().unwrap());
    });
}

#[test]
fn messages_one_by_one() {
    one_by_one(Flaw::None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn relaxed_publication_is_noticed() {
    one_by_one(Flaw::StampStore);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn relaxed_look_at_a_message_is_noticed() {
    one_by_one(Flaw::StampLoad);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn relaxed_report_of_space_is_noticed() {
    one_by_one(Flaw::TailStore);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn relaxed_look_at_space_is_noticed() {
    one_by_one(Flaw::TailLoad);
}

/// A batch of two and one more: a batch is seen whole.
#[test]
fn messages_in_batches() {
    check(|| {
        let (mut producer, mut consumer) = LoomRing::ends(2, Flaw::None);
        let writer = thread::spawn(move || {
            assert_eq!(producer.push_batch(&[&[1, 2], &[3, 4]]), Ok(2));
            while let Err(error) = producer.push_batch(&[&[5]]) {
                assert_eq!(error, PushError::Full);
                thread::yield_now();
            }
            producer
        });
        let mut seen = Vec::new();
        while seen.len() < 5 {
            let before = seen.len();
            let count = consumer
                .pop_batch(3, |words| seen.extend_from_slice(words))
                .unwrap();
            assert!(before != 0 || count != 1, "half of a batch was seen");
            if count == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(seen, [1, 2, 3, 4, 5]);
        drop(writer.join().unwrap());
    });
}

/// Once the consumer knows that the producer has closed, it has seen every message.
fn last_message_before_the_end(flaw: Flaw) {
    check(move || {
        let (mut producer, mut consumer) = LoomRing::ends(2, flaw);
        let writer = thread::spawn(move || push(&mut producer, &[7]));
        let mut seen = 0;
        while !consumer.is_finished() {
            if consumer.try_pop(|_| ()).unwrap().is_some() {
                seen += 1;
            } else {
                thread::yield_now();
            }
        }
        assert_eq!(seen, 1, "finished before the last message");
        writer.join().unwrap();
    });
}

#[test]
fn nothing_is_missed_at_the_end() {
    last_message_before_the_end(Flaw::None);
}

#[test]
#[should_panic(expected = "finished before the last message")]
fn relaxed_close_is_noticed() {
    last_message_before_the_end(Flaw::Close);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageFlaw {
    None,
    NoTotalOrder,
    EndReading,
    FinishWriting,
    Freeing,
}

struct LoomPage {
    state: AtomicU32,
    holds: [AtomicU16; 2],
    data: UnsafeCell<u32>,
    flaw: PageFlaw,
}

// SAFETY: the cell is checked by loom: a conflicting access fails the test.
unsafe impl Sync for LoomPage {}
// SAFETY: as above.
unsafe impl Send for LoomPage {}

impl LoomPage {
    fn free(flaw: PageFlaw) -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU32::new(0),
            holds: [AtomicU16::new(0), AtomicU16::new(0)],
            data: UnsafeCell::new(0),
            flaw,
        })
    }

    fn fence(&self) {
        if self.flaw != PageFlaw::NoTotalOrder {
            fence(Ordering::SeqCst);
        }
    }

    fn write(&self, owner: OwnerId, value: u32) -> Result<(), Refusal> {
        let claim = begin_writing(self, owner)?;
        // SAFETY: the pointer is valid during the call; loom reports any concurrent access.
        self.data.with_mut(|cell| unsafe { *cell = value });
        finish_writing(self, claim)
    }

    fn write_and_abandon(&self, owner: OwnerId) -> Result<(), Refusal> {
        let claim = begin_writing(self, owner)?;
        // SAFETY: the pointer is valid during the call; loom reports any concurrent access.
        self.data.with_mut(|cell| unsafe { *cell += 1 });
        abandon_writing(self, claim)
    }

    fn read(&self, owner: OwnerId) -> Result<u32, Refusal> {
        begin_reading(self, owner)?;
        // SAFETY: the pointer is valid during the call; loom reports any concurrent write.
        let value = self.data.with(|cell| unsafe { *cell });
        end_reading(self, owner);
        Ok(value)
    }
}

impl PageWords for LoomPage {
    fn load_state(&self, order: Ordering) -> u32 {
        self.state.load(order)
    }

    fn store_state(&self, word: u32, order: Ordering) {
        let is_flawed = match StateWord::from_bits(word).state() {
            PageState::Filled => self.flaw == PageFlaw::FinishWriting,
            _ => self.flaw == PageFlaw::Freeing,
        };
        self.state
            .store(word, if is_flawed { Ordering::Relaxed } else { order });
    }

    fn exchange_state(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.state.compare_exchange(current, new, success, failure)
    }

    fn add_hold_then_load_state(&self, owner: OwnerId) -> (u16, u32) {
        let before = self.holds[usize::from(owner.0)].fetch_add(1, Ordering::SeqCst);
        self.fence();
        (before, self.state.load(Ordering::SeqCst))
    }

    fn exchange_state_then_load_holds(&self, current: u32, new: u32) -> Result<u32, u32> {
        self.state
            .compare_exchange(current, new, Ordering::SeqCst, Ordering::Relaxed)?;
        self.fence();
        Ok(self
            .holds
            .iter()
            .map(|count| u32::from(count.load(Ordering::SeqCst)))
            .sum())
    }

    fn sub_hold(&self, owner: OwnerId, order: Ordering) {
        let order = if self.flaw == PageFlaw::EndReading {
            Ordering::Relaxed
        } else {
            order
        };
        self.holds[usize::from(owner.0)].fetch_sub(1, order);
    }

    fn clear_holds(&self, owner: OwnerId, order: Ordering) -> u16 {
        self.holds[usize::from(owner.0)].swap(0, order)
    }
}

const FIRST: OwnerId = OwnerId(0);
const SECOND: OwnerId = OwnerId(1);
/// Holds nothing, so that it needs no count.
const THIRD: OwnerId = OwnerId(2);

/// One thread reads a page while another releases and rewrites it.
fn read_against_release(flaw: PageFlaw) {
    check(move || {
        let page = LoomPage::free(flaw);
        page.write(FIRST, 1).unwrap();
        let far = Arc::clone(&page);
        let reader = thread::spawn(move || match far.read(SECOND) {
            Ok(value) => assert!(value == 1 || value == 2),
            Err(refusal) => assert!(matches!(refusal, Refusal::State(_))),
        });
        match release(&*page, FIRST) {
            Ok(()) => page.write(FIRST, 2).unwrap(),
            Err(refusal) => assert_eq!(refusal, Refusal::Read(1)),
        }
        reader.join().unwrap();
        // Whatever happened, the page is filled, unread, and can be released now.
        release(&*page, SECOND).unwrap();
    });
}

#[test]
fn a_page_is_not_rewritten_under_a_reader() {
    read_against_release(PageFlaw::None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn reading_and_releasing_without_a_total_order_is_noticed() {
    read_against_release(PageFlaw::NoTotalOrder);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn relaxed_end_of_reading_is_noticed() {
    read_against_release(PageFlaw::EndReading);
}

/// One thread fills a page, another looks until it is filled.
fn fill_then_read(flaw: PageFlaw) {
    check(move || {
        let page = LoomPage::free(flaw);
        let far = Arc::clone(&page);
        let writer = thread::spawn(move || far.write(FIRST, 5).unwrap());
        let value = loop {
            match page.read(SECOND) {
                Ok(value) => break value,
                Err(_) => thread::yield_now(),
            }
        };
        assert_eq!(value, 5);
        writer.join().unwrap();
    });
}

#[test]
fn a_filled_page_is_seen_filled() {
    fill_then_read(PageFlaw::None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn relaxed_finish_is_noticed() {
    fill_then_read(PageFlaw::FinishWriting);
}

/// Two threads want the same page for writing, then to release it.
#[test]
fn a_page_has_one_writer_and_one_releaser() {
    check(|| {
        let page = LoomPage::free(PageFlaw::None);
        let far = Arc::clone(&page);
        let other = thread::spawn(move || far.write_and_abandon(SECOND));
        let own = page.write(FIRST, 9);
        let other = other.join().unwrap();
        assert!(own.is_ok() || other.is_ok());
        if own.is_err() {
            page.write(FIRST, 9).unwrap();
        }
        let far = Arc::clone(&page);
        let releaser = thread::spawn(move || release(&*far, SECOND).is_ok());
        let own = release(&*page, FIRST).is_ok();
        assert!(own ^ releaser.join().unwrap(), "released once");
    });
}

/// One survivor releases what a dead owner has filled while another takes the page in its place.
#[test]
fn a_page_of_a_dead_owner_is_released_while_it_is_recovered() {
    check(|| {
        let page = LoomPage::free(PageFlaw::None);
        page.write(FIRST, 1).unwrap();
        let far = Arc::clone(&page);
        let survivor = thread::spawn(move || recover(&*far, FIRST, THIRD));
        assert_eq!(release(&*page, SECOND), Ok(()));
        let (recovery, _) = survivor.join().unwrap();
        assert!(matches!(recovery, Recovery::Adopted | Recovery::Untouched));
        let word = StateWord::from_bits(page.load_state(Ordering::Relaxed));
        assert_eq!(word.state(), PageState::Free);
    });
}

/// A page is written again after another thread has given it up.
fn write_after_another(flaw: PageFlaw) {
    check(move || {
        let page = LoomPage::free(flaw);
        let far = Arc::clone(&page);
        let other = thread::spawn(move || far.write_and_abandon(SECOND).is_ok());
        while page.write_and_abandon(FIRST).is_err() {
            thread::yield_now();
        }
        other.join().unwrap();
    });
}

#[test]
fn a_free_page_is_really_free() {
    write_after_another(PageFlaw::None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn relaxed_freeing_is_noticed() {
    write_after_another(PageFlaw::Freeing);
}

/// Which part of the record ring's protocol is weakened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordFlaw {
    None,
    /// The final stamp is published without the words before it.
    Stamp,
    /// The reader does not order its second look at the stamp behind the words.
    SecondLook,
    /// Neither end orders its record or announcement before its look at the other.
    Sleep,
}

/// Record ring storage of two slots; only the first two words of a record are stored, which keeps
/// the number of interleavings small, and the others are 0; the second stands for the last.
struct LoomRecords {
    stamps: [AtomicU64; 2],
    words: [[AtomicU64; 2]; 2],
    beside: [AtomicU64; 5],
    rule: OverflowRule,
    flaw: RecordFlaw,
}

impl LoomRecords {
    fn ends(
        rule: OverflowRule,
        flaw: RecordFlaw,
    ) -> (RecordWriter<LoomRecords>, RecordReader<LoomRecords>) {
        let zero = || AtomicU64::new(0);
        // The two ends count their holders outside of the model.
        let records = std::sync::Arc::new(LoomRecords {
            stamps: [zero(), zero()],
            words: [[zero(), zero()], [zero(), zero()]],
            beside: [zero(), zero(), zero(), zero(), zero()],
            rule,
            flaw,
        });
        let reader = RecordReader::over(std::sync::Arc::clone(&records));
        (RecordWriter::over(records), reader)
    }
}

impl RecordStorage for LoomRecords {
    fn slots(&self) -> u32 {
        2
    }

    fn rule(&self) -> OverflowRule {
        self.rule
    }

    fn load_stamp(&self, position: u64, order: Ordering) -> u64 {
        self.stamps[position as usize % 2].load(order)
    }

    fn store_stamp(&self, position: u64, stamp: u64, order: Ordering) {
        let order = match self.flaw {
            RecordFlaw::Stamp => Ordering::Relaxed,
            _ => order,
        };
        self.stamps[position as usize % 2].store(stamp, order);
    }

    fn load_record(&self, position: u64) -> [u64; RECORD_WORDS - 1] {
        let words = &self.words[position as usize % 2];
        let word = |index: usize| words.get(index).map_or(0, |w| w.load(Ordering::Relaxed));
        std::array::from_fn(word)
    }

    fn store_record(&self, position: u64, record: &[u64; RECORD_WORDS - 1]) {
        for (word, value) in self.words[position as usize % 2].iter().zip(record) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    fn store_last_word(&self, position: u64, word: u64) {
        self.words[position as usize % 2][1].store(word, Ordering::Relaxed);
    }

    fn load(&self, word: RingWord, order: Ordering) -> u64 {
        self.beside[word as usize].load(order)
    }

    fn store(&self, word: RingWord, value: u64, order: Ordering) {
        self.beside[word as usize].store(value, order);
    }

    fn fence(&self, order: Ordering) {
        let left_out = match order {
            Ordering::Acquire => self.flaw == RecordFlaw::SecondLook,
            Ordering::SeqCst => self.flaw == RecordFlaw::Sleep,
            _ => false,
        };
        if !left_out {
            fence(order);
        }
    }
}

fn record(number: u64) -> [u64; RECORD_WORDS] {
    [0, number, number * 10, 0, 0, 0, 0, 0]
}

/// Reads until `count` records are accounted for; each is whole, in order, and the gaps are exact.
fn read_records(reader: &mut RecordReader<LoomRecords>, count: u64) {
    let mut next = 0;
    while next < count {
        match reader.poll() {
            Found::Record([stamp, number, tenfold, ..]) => {
                assert_eq!(stamp, (next + 1) * 2, "out of order");
                assert!(number == next && tenfold == next * 10, "torn record");
                next += 1;
            }
            Found::Lost { first, last } => {
                assert_eq!(first, next, "a gap that was not");
                next = last + 1;
            }
            Found::Nothing => thread::yield_now(),
            Found::Closed(_) => panic!("closed with {next} of {count} accounted for"),
        }
    }
    assert_eq!(next, count, "more than there were");
}

/// Three records through two slots, which the writer overwrites or leaves as it finds them.
fn records_are_whole(rule: OverflowRule, flaw: RecordFlaw) {
    check(move || {
        let (mut writer, mut reader) = LoomRecords::ends(rule, flaw);
        let offering = thread::spawn(move || {
            for number in 0..3 {
                writer.offer(&record(number));
            }
            writer
        });
        read_records(&mut reader, 3);
        let writer = offering.join().unwrap();
        assert_eq!(writer.offered(), 3);
    });
}

#[test]
fn overwritten_records_are_whole_or_reported_lost() {
    records_are_whole(OverflowRule::DropOldest, RecordFlaw::None);
}

#[test]
fn refused_records_are_whole_or_reported_lost() {
    records_are_whole(OverflowRule::DropNewest, RecordFlaw::None);
}

#[test]
#[should_panic(expected = "torn record")]
fn relaxed_publication_of_a_record_is_noticed() {
    records_are_whole(OverflowRule::DropNewest, RecordFlaw::Stamp);
}

#[test]
#[should_panic(expected = "torn record")]
fn unordered_second_look_is_noticed() {
    records_are_whole(OverflowRule::DropOldest, RecordFlaw::SecondLook);
}

/// As above, with records written ahead wherever that is allowed.
fn records_written_ahead_are_whole(flaw: RecordFlaw) {
    check(move || {
        let (mut writer, mut reader) = LoomRecords::ends(OverflowRule::DropOldest, flaw);
        let offering = thread::spawn(move || {
            for number in 0..3 {
                let mut early = record(number);
                early[2] = u64::MAX;
                let offered = match writer.write_ahead(&early) {
                    true => writer.publish_ahead(number * 10),
                    false => Some(writer.publish(&record(number))),
                };
                assert_eq!(offered.map(|offered| offered.sequence), Some(number));
            }
            writer
        });
        read_records(&mut reader, 3);
        assert_eq!(offering.join().unwrap().offered(), 3);
    });
}

#[test]
fn records_written_ahead_are_whole_or_reported_lost() {
    records_written_ahead_are_whole(RecordFlaw::None);
}

#[test]
#[should_panic(expected = "torn record")]
fn relaxed_publication_of_a_record_written_ahead_is_noticed() {
    records_written_ahead_are_whole(RecordFlaw::Stamp);
}

/// A reader that announces its sleep and then finds nothing is woken by the next record.
fn a_sleeper_is_woken(flaw: RecordFlaw) {
    check(move || {
        let (mut writer, mut reader) = LoomRecords::ends(OverflowRule::DropOldest, flaw);
        let offering = thread::spawn(move || {
            let woken = writer.offer(&record(0)).wake;
            (writer, woken)
        });
        reader.prepare_sleep();
        let found = reader.poll() != Found::Nothing;
        let (_writer, woken) = offering.join().unwrap();
        assert!(found || woken, "asleep beside a record");
    });
}

#[test]
fn no_sleeper_is_forgotten() {
    a_sleeper_is_woken(RecordFlaw::None);
}

#[test]
#[should_panic(expected = "asleep beside a record")]
fn unordered_announcements_are_noticed() {
    a_sleeper_is_woken(RecordFlaw::Sleep);
}
