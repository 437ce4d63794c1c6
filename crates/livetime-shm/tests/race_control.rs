//! A ring with one ordering taken away: ThreadSanitizer must report its race.
//!
//! The control of `cargo xtask test`'s run of the other tests under ThreadSanitizer: a checker that
//! finds nothing here would find nothing there. Built for that run only, since this is undefined
//! behaviour on purpose.
#![cfg(sanitized)]

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use livetime_shm::ring::{RingStorage, Side};
use livetime_shm::{Consumer, Producer};

const SLOT_WORDS: usize = 14;
const MESSAGES: u32 = 1000;

/// One slot whose stamp is published without an ordering.
#[derive(Debug, Default)]
struct Words {
    stamp: AtomicU64,
    tail: AtomicU64,
    closed: [AtomicBool; 2],
    payload: UnsafeCell<[u32; SLOT_WORDS]>,
}

#[derive(Debug, Clone)]
struct Flawed(Arc<Words>);

// SAFETY: wrong on purpose: the payload is shared without the ordering that would make it sound,
// and the process that does so is run to be reported and thrown away.
unsafe impl Send for Flawed {}

impl RingStorage for Flawed {
    fn slots(&self) -> u32 {
        1
    }

    fn slot_words(&self) -> u32 {
        SLOT_WORDS as u32
    }

    fn load_stamp(&self, _slot: u32, _order: Ordering) -> u64 {
        self.0.stamp.load(Ordering::Relaxed)
    }

    fn store_stamp(&self, _slot: u32, stamp: u64, _order: Ordering) {
        self.0.stamp.store(stamp, Ordering::Relaxed);
    }

    fn load_tail(&self, order: Ordering) -> u64 {
        self.0.tail.load(order)
    }

    fn store_tail(&self, tail: u64, order: Ordering) {
        self.0.tail.store(tail, order);
    }

    fn is_closed(&self, side: Side, order: Ordering) -> bool {
        self.0.closed[side as usize].load(order)
    }

    fn close(&self, side: Side, order: Ordering) {
        self.0.closed[side as usize].store(true, order);
    }

    unsafe fn read_payload<R>(&self, _slot: u32, words: u32, read: impl FnOnce(&[u32]) -> R) -> R {
        // SAFETY: the memory lives as long as `self`; that nobody writes to it is what is broken.
        read(unsafe { &(&*self.0.payload.get())[..words as usize] })
    }

    unsafe fn fill_payload<R>(
        &self,
        _slot: u32,
        words: u32,
        fill: impl FnOnce(&mut [u32]) -> R,
    ) -> R {
        // SAFETY: the memory lives as long as `self`; that nobody reads it is what is broken.
        fill(unsafe { &mut (&mut *self.0.payload.get())[..words as usize] })
    }
}

#[test]
fn a_stamp_without_an_ordering_is_reported() {
    let storage = Flawed(Arc::new(Words::default()));
    // SAFETY: one of each; what is broken here is the ordering of their storage.
    let (mut producer, mut consumer) =
        unsafe { (Producer::new(storage.clone()), Consumer::new(storage)) };
    thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..MESSAGES {
                while producer.try_push(&[n; SLOT_WORDS]).is_err() {
                    thread::yield_now();
                }
            }
        });
        scope.spawn(move || {
            let mut sum = 0u64;
            for _ in 0..MESSAGES {
                loop {
                    match consumer.try_pop(|words| u64::from(words[0])) {
                        Ok(Some(word)) => {
                            sum += word;
                            break;
                        }
                        Ok(None) => thread::yield_now(),
                        Err(fault) => panic!("{fault}"),
                    }
                }
            }
            assert!(sum > 0);
        });
    });
}
