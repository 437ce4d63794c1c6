//! A ring of messages of `u32` words between one producer and one consumer.
//!
//! Each message lies in a slot of fixed size behind its *stamp*, one word holding the message's
//! sequence number and length. Storing the stamp publishes the message: there is no shared head
//! index, so a message costs one coherence transfer per cache line it fills and no more. The
//! consumer writes nothing into slots; it reports the space it has freed in batches. A message
//! whose stamp was never stored does not exist, so a producer that dies in mid-write leaves
//! nothing torn, and with one writer per word there is no lock that the dead could hold.
//!
//! This file is the protocol and nothing else; the memory is behind [`RingStorage`], so that the
//! same lines run on a shared mapping, on the heap (Miri), and under the model checker loom. Read
//! [`crate::ring_region`] for the layout in memory and for making and opening rings.
//!
//! Budget per message of `n` words: `(8 + 4 n)` bytes in `ceil((8 + 4 n) / 64)` cache lines, each
//! moved once; one copy in, none out (the consumer reads in place); no system call, no locked
//! instruction. The line of the tail moves once per batch, see [`tail_batch`].
//!
//! Rules of one ring: a side is taken once, a ring belongs to one epoch, and a lost peer is
//! answered by a new ring with a new epoch, never by a second producer or consumer on the old one.

use std::sync::atomic::Ordering;

use crate::ring_region::RingRegion;

/// Greatest number of slots of a ring. Sequence numbers are 32 bits: with so few slots the stamp
/// of an earlier lap is never taken for a new one.
pub const MAX_SLOTS: u32 = 1 << 24;
/// Greatest payload of a slot in words.
pub const MAX_SLOT_WORDS: u32 = 1 << 20;

/// Size of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingConfig {
    /// Slots: a power of two, at most [`MAX_SLOTS`]. The bound of the queue: a producer is told
    /// [`PushError::Full`] when so many messages are unread.
    pub slots: u32,
    /// Longest message in words, at most [`MAX_SLOT_WORDS`]. A slot takes `8 + 4 * slot_words`
    /// bytes rounded up to 64: 14, 30, 46 or 126 words leave no gap.
    pub slot_words: u32,
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// No slot is known to be free; try again when the consumer has moved on.
    #[error("ring is full")]
    Full,
    /// The message is longer than a slot.
    #[error("message of {words} words is longer than a slot of {slot_words} words")]
    TooLong {
        /// Length of the message.
        words: usize,
        /// Longest possible message.
        slot_words: u32,
    },
    /// The consumer has closed its side.
    #[error("the consumer has closed its side of the ring")]
    PeerGone,
    /// The consumer wrote nonsense.
    #[error(transparent)]
    Fault(#[from] RingFault),
}

/// The peer wrote something that no correct peer can write. The ring must not be used further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// A published message claims to be longer than its slot.
    #[error("slot {slot} claims a message of {words} words, longest is {slot_words}")]
    Length {
        /// Index of the slot.
        slot: u32,
        /// Length found.
        words: u32,
        /// Longest possible message.
        slot_words: u32,
    },
    /// A slot carries a sequence number that is neither the next one nor that of the lap before.
    #[error("slot {slot} has sequence number {found}, expected {expected}")]
    Sequence {
        /// Index of the slot.
        slot: u32,
        /// Sequence number found.
        found: u32,
        /// Sequence number of the next message.
        expected: u32,
    },
    /// The consumer claims to have read what was never written, or to have gone backwards.
    #[error("consumer reports {found} messages read, between {oldest} and {newest} are possible")]
    Tail {
        /// Messages read, as reported.
        found: u64,
        /// The report before.
        oldest: u64,
        /// Messages written.
        newest: u64,
    },
}

/// One of the two ends of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end that writes messages.
    Producer,
    /// The end that reads messages.
    Consumer,
}

/// Memory a ring can live in: atomic words and payload words, both shared with the other side.
///
/// Orderings are chosen by the protocol alone; an implementation passes them on. Slot indices are
/// always below [`RingStorage::slots`], lengths never above [`RingStorage::slot_words`].
pub trait RingStorage {
    /// Number of slots, a power of two. Constant.
    fn slots(&self) -> u32;

    /// Longest message in words. Constant.
    fn slot_words(&self) -> u32;

    /// Reads the stamp of a slot; 0 before the first message.
    fn load_stamp(&self, slot: u32, order: Ordering) -> u64;

    /// Writes the stamp of a slot.
    fn store_stamp(&self, slot: u32, stamp: u64, order: Ordering);

    /// Reads the number of messages that the consumer has reported as read.
    fn load_tail(&self, order: Ordering) -> u64;

    /// Reports the number of messages read.
    fn store_tail(&self, tail: u64, order: Ordering);

    /// Whether a side has said that it is gone.
    fn is_closed(&self, side: Side, order: Ordering) -> bool;

    /// Says that a side is gone.
    fn close(&self, side: Side, order: Ordering);

    /// Lends the first `words` payload words of a slot for reading.
    ///
    /// # Safety
    /// The slot holds a published message that has not been given back through the tail.
    unsafe fn read_payload<R>(&self, slot: u32, words: u32, read: impl FnOnce(&[u32]) -> R) -> R;

    /// Lends the first `words` payload words of a slot for writing.
    ///
    /// # Safety
    /// The slot is free: the consumer has given it back (or it was never written) and its stamp
    /// has not been stored since.
    unsafe fn fill_payload<R>(
        &self,
        slot: u32,
        words: u32,
        fill: impl FnOnce(&mut [u32]) -> R,
    ) -> R;

    /// Hints that the producer will write so many payload words of a slot soon.
    #[inline]
    fn prepare_to_fill(&self, slot: u32, words: u32) {
        let _ = (slot, words);
    }
}

/// Messages that the consumer reads before it reports the space: a quarter of the ring, at most
/// 64. Fewer reports mean fewer transfers of the tail's cache line; a full ring still frees space
/// long before it runs dry.
#[inline]
pub fn tail_batch(slots: u32) -> u32 {
    (slots / 4).clamp(1, 64)
}

/// Sequence number of the message at `position`: never 0 in the first lap, so that zeroed memory
/// holds no message.
#[inline]
fn sequence_at(position: u64) -> u32 {
    position.wrapping_add(1) as u32
}

#[inline]
fn stamp(sequence: u32, words: u32) -> u64 {
    (u64::from(sequence) << 32) | u64::from(words)
}

#[inline]
fn split_stamp(stamp: u64) -> (u32, u32) {
    ((stamp >> 32) as u32, stamp as u32)
}

/// The writing end of a ring.
#[derive(Debug)]
pub struct Producer<S: RingStorage = RingRegion> {
    storage: S,
    mask: u32,
    slot_words: u32,
    /// Messages written so far.
    head: u64,
    /// The consumer's last report that was looked at; it may have moved on since.
    tail_seen: u64,
    fault: Option<RingFault>,
}

impl<S: RingStorage> Producer<S> {
    /// Takes the producer's side of fresh storage.
    ///
    /// # Safety
    /// There is no other producer on this storage and never will be: it would write into slots that
    /// this one fills or the consumer reads. [`crate::ring_region`] ensures it for its rings.
    pub unsafe fn new(storage: S) -> Self {
        let mask = storage.slots() - 1;
        let slot_words = storage.slot_words();
        Self {
            storage,
            mask,
            slot_words,
            head: 0,
            tail_seen: 0,
            fault: None,
        }
    }

    /// Slots of the ring: the number of messages it can hold.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.mask + 1
    }

    /// Longest message in words.
    #[inline]
    pub fn slot_words(&self) -> u32 {
        self.slot_words
    }

    /// Messages written since the ring was made.
    #[inline]
    pub fn pushed(&self) -> u64 {
        self.head
    }

    /// Whether the consumer has closed its side.
    #[inline]
    pub fn is_peer_closed(&self) -> bool {
        // Acquire pairs with the Release of the consumer's drop.
        self.storage.is_closed(Side::Consumer, Ordering::Acquire)
    }

    /// Slots free for new messages, after a fresh look at the consumer's report.
    ///
    /// The consumer reports in batches, so that up to [`tail_batch`] slots more may be free. A
    /// ring with a fault has none.
    #[inline]
    pub fn free_slots(&mut self) -> u32 {
        match self.look_at_tail() {
            Ok(()) => self.capacity() - self.unread(),
            Err(_) => 0,
        }
    }

    /// Whether there is room for a message. Looks at the consumer's report only when the last one
    /// does not say so: that line is the consumer's, and fetching it costs as much as a message.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        (self.unread() < self.capacity() && self.fault.is_none()) || self.free_slots() > 0
    }

    /// Writes one message.
    ///
    /// # Errors
    /// [`PushError`]; nothing was written then.
    #[inline]
    pub fn try_push(&mut self, words: &[u32]) -> Result<(), PushError> {
        let count = self.checked_length(words.len())?;
        self.fill_next(count, |slot| copy_first_line_last(slot, words))
    }

    /// Writes one message of `len_words` words, filled in place by `fill`.
    ///
    /// The slice holds words of an old message; `fill` must write all of it. Fill it from the back
    /// where that is no trouble: the consumer watches the first cache line.
    ///
    /// # Errors
    /// [`PushError`]; `fill` was not called then.
    #[inline]
    pub fn try_push_with(
        &mut self,
        len_words: usize,
        fill: impl FnOnce(&mut [u32]),
    ) -> Result<(), PushError> {
        let count = self.checked_length(len_words)?;
        self.fill_next(count, fill)
    }

    /// Writes as many of the messages as there is room for, and publishes them at one stroke.
    ///
    /// Returns how many were written, at least one unless `messages` is empty. The consumer sees
    /// all of them or, if this process dies before the end, none.
    ///
    /// # Errors
    /// [`PushError`], with nothing written; one message that is too long refuses the batch.
    pub fn push_batch(&mut self, messages: &[&[u32]]) -> Result<u32, PushError> {
        // Plain slices: what is checked here is what is copied and published below.
        for message in messages {
            self.checked_length(message.len())?;
        }
        let wanted = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let count = self.reserve(wanted)?;
        for (index, words) in (0..count).zip(messages) {
            // SAFETY: index < count reserved slots: free, and their stamps come after all this.
            unsafe {
                self.storage
                    .fill_payload(self.slot_after(index), words.len() as u32, |slot| {
                        copy_first_line_last(slot, words);
                    });
            }
            self.prepare_ahead(index + BATCH_AHEAD, words.len() as u32);
        }
        self.publish(count, |index| messages[index as usize].len() as u32);
        Ok(count)
    }

    /// Writes up to `count` messages of `len_words` words each, filled in place by
    /// `fill(index, words)`, and publishes them at one stroke. Returns how many.
    ///
    /// # Errors
    /// [`PushError`], with nothing written.
    pub fn push_batch_with(
        &mut self,
        count: u32,
        len_words: usize,
        mut fill: impl FnMut(u32, &mut [u32]),
    ) -> Result<u32, PushError> {
        let words = self.checked_length(len_words)?;
        let count = self.reserve(count)?;
        for index in 0..count {
            let slot = self.slot_after(index);
            // SAFETY: index < count reserved slots: free, and their stamps come after all this.
            unsafe {
                self.storage
                    .fill_payload(slot, words, |slot| fill(index, slot))
            };
            self.prepare_ahead(index + BATCH_AHEAD, words);
        }
        self.publish(count, |_| words);
        Ok(count)
    }

    #[inline]
    fn checked_length(&self, words: usize) -> Result<u32, PushError> {
        match u32::try_from(words) {
            Ok(count) if count <= self.slot_words => Ok(count),
            _ => Err(PushError::TooLong {
                words,
                slot_words: self.slot_words,
            }),
        }
    }

    #[inline]
    fn fill_next(&mut self, words: u32, fill: impl FnOnce(&mut [u32])) -> Result<(), PushError> {
        self.reserve(1)?;
        let slot = self.slot_after(0);
        // SAFETY: one slot was reserved, and its stamp is stored below.
        unsafe { self.storage.fill_payload(slot, words, fill) };
        // Release pairs with the Acquire of the consumer's `peek`.
        self.storage.store_stamp(
            slot,
            stamp(sequence_at(self.head), words),
            Ordering::Release,
        );
        self.head += 1;
        self.prepare_ahead(0, words);
        Ok(())
    }

    /// Stores the stamps of the next `count` slots, the first one last: the consumer waits there,
    /// so that it sees the whole batch or nothing of it.
    fn publish(&mut self, count: u32, words_of: impl Fn(u32) -> u32) {
        for index in (0..count).rev() {
            let sequence = sequence_at(self.head + u64::from(index));
            let order = match index {
                // Release pairs with the Acquire of the consumer's `peek`; it covers the payload
                // and the stamps of the whole batch.
                0 => Ordering::Release,
                // Relaxed: looked at only after the first one was seen.
                _ => Ordering::Relaxed,
            };
            self.storage.store_stamp(
                self.slot_after(index),
                stamp(sequence, words_of(index)),
                order,
            );
        }
        self.head += u64::from(count);
    }

    /// Gets the cache lines of a later slot on their way, unless the consumer still needs them.
    #[inline]
    fn prepare_ahead(&self, index: u32, words: u32) {
        if index < self.capacity() - self.unread() {
            self.storage.prepare_to_fill(self.slot_after(index), words);
        }
    }

    /// Finds up to `wanted` free slots, looking at the consumer's report only when the last one
    /// does not suffice.
    #[inline]
    fn reserve(&mut self, wanted: u32) -> Result<u32, PushError> {
        if self.is_peer_closed() {
            return Err(PushError::PeerGone);
        }
        if self.capacity() - self.unread() < wanted || self.fault.is_some() {
            self.look_at_tail()?;
            if self.unread() == self.capacity() {
                return Err(PushError::Full);
            }
        }
        Ok(wanted.min(self.capacity() - self.unread()))
    }

    fn look_at_tail(&mut self) -> Result<(), RingFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        // Acquire pairs with the Release of the consumer's `report`: what the consumer read from
        // those slots was read before we write there.
        let tail = self.storage.load_tail(Ordering::Acquire);
        if tail < self.tail_seen || tail > self.head {
            let (oldest, newest) = (self.tail_seen, self.head);
            let fault = RingFault::Tail {
                found: tail,
                oldest,
                newest,
            };
            self.fault = Some(fault);
            return Err(fault);
        }
        self.tail_seen = tail;
        Ok(())
    }

    /// Messages not reported as read; at most the capacity, as each push is checked against it.
    #[inline]
    fn unread(&self) -> u32 {
        (self.head - self.tail_seen) as u32
    }

    #[inline]
    fn slot_after(&self, index: u32) -> u32 {
        (self.head as u32).wrapping_add(index) & self.mask
    }

    #[inline]
    pub(crate) fn storage(&self) -> &S {
        &self.storage
    }
}

impl<S: RingStorage> Drop for Producer<S> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in the consumer's `is_finished`: it sees every message.
        self.storage.close(Side::Producer, Ordering::Release);
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Consumer<S: RingStorage = RingRegion> {
    storage: S,
    mask: u32,
    slot_words: u32,
    tail_batch: u32,
    /// Messages read so far.
    tail: u64,
    /// What the producer has been told.
    tail_reported: u64,
}

impl<S: RingStorage> Consumer<S> {
    /// Takes the consumer's side of fresh storage.
    ///
    /// # Safety
    /// There is no other consumer on this storage and never will be: it would give slots back while
    /// this one reads them. [`crate::ring_region`] ensures it for its rings.
    pub unsafe fn new(storage: S) -> Self {
        let slots = storage.slots();
        let slot_words = storage.slot_words();
        let tail_batch = tail_batch(slots);
        Self {
            storage,
            mask: slots - 1,
            slot_words,
            tail_batch,
            tail: 0,
            tail_reported: 0,
        }
    }

    /// Slots of the ring: the number of messages it can hold.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.mask + 1
    }

    /// Longest message in words.
    #[inline]
    pub fn slot_words(&self) -> u32 {
        self.slot_words
    }

    /// Messages read since the ring was made.
    #[inline]
    pub fn popped(&self) -> u64 {
        self.tail
    }

    /// Reads the next message in place, if there is one.
    ///
    /// The slice is the producer's memory, lent for the call. A producer that keeps the protocol
    /// does not touch it; a peer that breaks it can change the words while they are read, so check
    /// what you copy, not what you may read twice. A message is consumed when `read` returns.
    ///
    /// # Errors
    /// [`RingFault`] when the producer wrote nonsense; it is found again at each further call.
    #[inline]
    pub fn try_pop<R>(&mut self, read: impl FnOnce(&[u32]) -> R) -> Result<Option<R>, RingFault> {
        let Some(words) = self.peek()? else {
            self.report();
            return Ok(None);
        };
        // SAFETY: `peek` saw the stamp of this slot, and `advance` comes after the reading.
        let result = unsafe { self.storage.read_payload(self.slot(), words, read) };
        self.advance();
        Ok(Some(result))
    }

    /// Reads up to `max` messages in order and returns how many there were.
    ///
    /// # Errors
    /// [`RingFault`] when the very next message is nonsense. Good messages before a bad one are
    /// delivered first.
    pub fn pop_batch(&mut self, max: u32, mut read: impl FnMut(&[u32])) -> Result<u32, RingFault> {
        let mut count = 0;
        while count < max {
            match self.peek() {
                Ok(Some(words)) => {
                    // SAFETY: `peek` saw the stamp of this slot; `advance` comes after reading.
                    unsafe { self.storage.read_payload(self.slot(), words, &mut read) };
                    self.advance();
                    count += 1;
                }
                Ok(None) => {
                    self.report();
                    break;
                }
                Err(fault) if count == 0 => return Err(fault),
                Err(_) => break,
            }
        }
        Ok(count)
    }

    /// Whether there is no message to read now. A message of nonsense counts as a message.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        matches!(self.peek(), Ok(None))
    }

    /// Whether the producer has closed its side and every message has been read.
    ///
    /// A producer that was killed closes nothing: watch its process ([`crate::peer`]), and read
    /// until the ring is empty.
    #[inline]
    pub fn is_finished(&mut self) -> bool {
        // Acquire pairs with the Release of the producer's drop, and comes before the look at the
        // slot: no message can be published in between.
        self.storage.is_closed(Side::Producer, Ordering::Acquire) && self.is_empty()
    }

    /// The length of the next message, if it has been published.
    #[inline]
    fn peek(&self) -> Result<Option<u32>, RingFault> {
        let slot = self.slot();
        // Acquire pairs with the Release of the producer's `fill_next` and `publish`: the payload
        // was written before.
        let (found, words) = split_stamp(self.storage.load_stamp(slot, Ordering::Acquire));
        let expected = sequence_at(self.tail);
        if found == expected {
            if words > self.slot_words {
                let slot_words = self.slot_words;
                return Err(RingFault::Length {
                    slot,
                    words,
                    slot_words,
                });
            }
            return Ok(Some(words));
        }
        let lap_before = match self.tail.checked_sub(u64::from(self.capacity())) {
            Some(position) => sequence_at(position),
            None => 0,
        };
        if found == lap_before {
            Ok(None)
        } else {
            Err(RingFault::Sequence {
                slot,
                found,
                expected,
            })
        }
    }

    #[inline]
    fn advance(&mut self) {
        self.tail += 1;
        if self.tail - self.tail_reported >= u64::from(self.tail_batch) {
            self.report();
        }
    }

    /// Tells the producer how far we are, if it does not know.
    #[inline]
    fn report(&mut self) {
        if self.tail != self.tail_reported {
            // Release pairs with the Acquire in the producer's `look_at_tail`: our reads of the
            // slots are over.
            self.storage.store_tail(self.tail, Ordering::Release);
            self.tail_reported = self.tail;
        }
    }

    #[inline]
    fn slot(&self) -> u32 {
        self.tail as u32 & self.mask
    }

    #[inline]
    pub(crate) fn storage(&self) -> &S {
        &self.storage
    }
}

impl<S: RingStorage> Drop for Consumer<S> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire of the producer's `is_peer_closed`.
        self.storage.close(Side::Consumer, Ordering::Release);
    }
}

/// Slots by which a batch asks for cache lines before it fills them. Slots come back from the
/// consumer's cache; asking early makes these transfers overlap. Measured between two cores: 61 ->
/// 23 ns per message of 34 words one by one, 34 -> 22 ns in batches; more distance gains nothing.
const BATCH_AHEAD: u32 = 2;

/// Payload words in the first cache line of a slot, behind the stamp.
const FIRST_LINE_WORDS: usize = 14;

/// Copies a message into its slot, the first cache line last.
///
/// The consumer polls that line: writing there early would let it be pulled away, half written,
/// and fetched back for the stamp, which costs a coherence round trip.
#[inline]
fn copy_first_line_last(slot: &mut [u32], words: &[u32]) {
    let split = words.len().min(FIRST_LINE_WORDS);
    slot[split..].copy_from_slice(&words[split..]);
    slot[..split].copy_from_slice(&words[..split]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring_region::heap_ring;

    const CONFIG: RingConfig = RingConfig {
        slots: 4,
        slot_words: 2,
    };

    #[test]
    fn messages_keep_order_and_length_over_many_laps() {
        let (mut producer, mut consumer) = heap_ring(&CONFIG).unwrap();
        for lap in 0..10 {
            for message in 0..4 {
                producer
                    .try_push(&[lap, message][..message as usize % 3])
                    .unwrap();
            }
            assert_eq!(producer.try_push(&[]), Err(PushError::Full));
            for message in 0..4 {
                let popped = consumer.try_pop(<[u32]>::to_vec).unwrap();
                assert_eq!(popped.unwrap(), [lap, message][..message as usize % 3]);
            }
            assert_eq!(consumer.try_pop(|_| ()), Ok(None));
        }
        assert_eq!((producer.pushed(), consumer.popped()), (40, 40));
    }

    /// After 2^32 messages the sequence numbers begin again, through 0, which is also the stamp of
    /// fresh memory.
    #[test]
    fn sequence_numbers_wrap_without_a_seam() {
        let (mut producer, mut consumer) = heap_ring(&CONFIG).unwrap();
        let start = (1u64 << 32) - 6;
        for position in start - 4..start {
            let slot = position as u32 & producer.mask;
            let old = stamp(sequence_at(position), 2);
            producer.storage.store_stamp(slot, old, Ordering::Relaxed);
        }
        producer.storage.store_tail(start, Ordering::Relaxed);
        (producer.head, producer.tail_seen) = (start, start);
        (consumer.tail, consumer.tail_reported) = (start, start);
        for message in 0..20 {
            assert_eq!(consumer.try_pop(|_| ()), Ok(None));
            let second = message + 100;
            assert_eq!(producer.push_batch(&[&[message], &[second]]), Ok(2));
            assert_eq!(consumer.try_pop(|words| words[0]), Ok(Some(message)));
            assert_eq!(consumer.try_pop(|words| words[0]), Ok(Some(second)));
        }
        assert!(sequence_at(producer.head) < 100);
    }

    #[test]
    fn batches_are_cut_to_the_room_there_is() {
        let (mut producer, mut consumer) = heap_ring(&CONFIG).unwrap();
        assert_eq!(producer.push_batch(&[]), Ok(0));
        assert_eq!(producer.push_batch(&[&[1], &[2], &[3]]), Ok(3));
        assert_eq!(
            producer.push_batch_with(9, 1, |index, words| words[0] = 4 + index),
            Ok(1)
        );
        assert_eq!(producer.push_batch(&[&[5]]), Err(PushError::Full));
        let mut seen = Vec::new();
        assert_eq!(consumer.pop_batch(2, |words| seen.push(words[0])), Ok(2));
        assert_eq!(consumer.pop_batch(9, |words| seen.push(words[0])), Ok(2));
        assert_eq!(seen, [1, 2, 3, 4]);
        assert_eq!(producer.free_slots(), 4);
    }

    #[test]
    fn a_message_too_long_changes_nothing() {
        let (mut producer, mut consumer) = heap_ring(&CONFIG).unwrap();
        let too_long = Err(PushError::TooLong {
            words: 3,
            slot_words: 2,
        });
        assert_eq!(producer.try_push(&[0; 3]), too_long);
        assert_eq!(
            producer.try_push_with(3, |_| unreachable!("refused before")),
            too_long
        );
        assert_eq!(producer.push_batch(&[&[1], &[0; 3]]), too_long.map(|()| 0));
        assert!(consumer.is_empty());
    }

    /// A reader that panics has not consumed its message.
    #[test]
    fn a_panicking_reader_finds_the_message_again() {
        let (mut producer, mut consumer) = heap_ring(&CONFIG).unwrap();
        producer.try_push(&[6]).unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            consumer.try_pop(|_| panic!("a reader's own bug"))
        }));
        assert!(panicked.is_err());
        assert_eq!(consumer.try_pop(|words| words[0]), Ok(Some(6)));
    }
}
