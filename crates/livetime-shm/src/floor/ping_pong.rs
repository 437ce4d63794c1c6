//! The floor of every latency: a few cache lines handed to the other core and back.
//!
//! Both threads spin, each on the sequence word of a slot that both know, and copy the payload in
//! and out, as anybody who moves these bytes must. There is no ring, no length and no check here.
//! The time depends on where a line lies (which slice of the last-level cache is its home) by a
//! third, so the slots move on several times in a measurement.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::two_threads::run_two;
use super::{FloorError, Samples};
use crate::affinity::{pin_current_thread, two_cpus};
use crate::clock::TscClock;

/// Longest payload of a ping-pong in bytes.
pub const PING_PONG_BYTES_MAX: usize = 64 * 1024;
/// A partner that has not answered for so long is taken for dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rounds before the measurement, which bring code and lines into the caches.
const WARM_UP_ROUNDS: u32 = 1_000;
/// Places in memory that a measurement visits one after the other.
const PLACES: u32 = 64;
/// Words that share the cache line of the sequence word.
const FIRST_LINE_WORDS: usize = 15;

/// Times of a ping-pong.
#[derive(Debug, Clone)]
pub struct PingPong {
    /// Full round trips: out and back.
    pub round_trip: Samples,
    /// Bytes carried each way, the sequence word not counted.
    pub bytes_each_way: usize,
    /// The two cores; the same one twice where there is only one.
    pub cpus: [usize; 2],
}

/// Measures `rounds` round trips of `bytes_each_way` bytes (rounded up to words, at most
/// [`PING_PONG_BYTES_MAX`]) between two pinned threads that spin.
///
/// With one core only, the threads yield to each other and the result says so by its `cpus`.
///
/// # Errors
/// [`FloorError`] for an impossible request, or when a thread got stuck.
pub fn cache_line_ping_pong(bytes_each_way: usize, rounds: u32) -> Result<PingPong, FloorError> {
    if bytes_each_way > PING_PONG_BYTES_MAX {
        return Err(FloorError::TooLarge {
            bytes: bytes_each_way,
            max: PING_PONG_BYTES_MAX,
        });
    }
    let words = bytes_each_way.div_ceil(size_of::<u32>());
    let cpus = two_cpus();
    let clock = TscClock::of_process();
    let there: Vec<Slot> = (0..PLACES).map(|_| Slot::new(words)).collect();
    let back: Vec<Slot> = (0..PLACES).map(|_| Slot::new(words)).collect();
    let stop = AtomicBool::new(false);
    let total = rounds + WARM_UP_ROUNDS;
    let place = |round: u32| (u64::from(round - 1) * u64::from(PLACES) / u64::from(total)) as usize;

    let echo = || -> Result<(), FloorError> {
        pin_current_thread(cpus[1])?;
        let mut own = vec![0u32; words];
        for round in 1..=total {
            let place = place(round);
            there[place].receive(round, &mut own, cpus, &stop)?;
            back[place].send(round, &own);
        }
        Ok(())
    };
    let call = || -> Result<Vec<u64>, FloorError> {
        pin_current_thread(cpus[0])?;
        let mut own: Vec<u32> = (0..words as u32).collect();
        let mut samples_ns = Vec::with_capacity(rounds as usize);
        for round in 1..=total {
            let (there, back) = (&there[place(round)], &back[place(round)]);
            let start = clock.ticks();
            there.send(round, &own);
            back.receive(round, &mut own, cpus, &stop)?;
            let ticks = clock.ticks().wrapping_sub(start);
            if round > WARM_UP_ROUNDS {
                samples_ns.push(clock.ticks_to_ns(ticks));
            }
        }
        Ok(samples_ns)
    };
    // A caller that ends early by an error releases its partner. Relaxed pairs with the load in
    // `receive`: a hint to give up, no data behind it.
    let caller = || call().inspect_err(|_| stop.store(true, Ordering::Relaxed));
    let ((), samples) = run_two(echo, caller)?;
    Ok(PingPong {
        round_trip: Samples::from_unsorted(samples),
        bytes_each_way,
        cpus,
    })
}

/// One direction: a sequence word and payload, in lines of their own.
#[repr(C, align(128))]
struct Slot {
    lines: Box<[Line]>,
    words: usize,
}

#[repr(C, align(128))]
struct Line {
    words: UnsafeCell<[u32; 32]>,
}

// SAFETY: the payload words are written by the sender only while the receiver waits for the next
// sequence number, and read by the receiver only after it has seen it; the sender writes again
// only after the answer, which the receiver gives after reading.
unsafe impl Sync for Slot {}

impl Slot {
    fn new(words: usize) -> Self {
        let count = (words + 1).div_ceil(32);
        let lines = (0..count)
            .map(|_| Line {
                words: UnsafeCell::new([0; 32]),
            })
            .collect();
        Self { lines, words }
    }

    fn base(&self) -> *mut u32 {
        // The lines are contiguous: 32 words of 4 bytes are the 128 bytes of a line.
        const { assert!(size_of::<Line>() == 128) };
        self.lines.as_ptr().cast::<u32>().cast_mut()
    }

    #[inline]
    fn sequence(&self) -> &AtomicU32 {
        // SAFETY: word 0 of the slot is only ever used as this atomic.
        unsafe { AtomicU32::from_ptr(self.base()) }
    }

    #[inline]
    fn send(&self, sequence: u32, words: &[u32]) {
        debug_assert_eq!(words.len(), self.words);
        let split = words.len().min(FIRST_LINE_WORDS);
        // SAFETY: the slot has room for `words` behind word 0, and by the order of the game (see
        // `Sync`) the receiver does not look now.
        unsafe {
            let payload = std::slice::from_raw_parts_mut(self.base().add(1), self.words);
            payload[split..].copy_from_slice(&words[split..]);
            payload[..split].copy_from_slice(&words[..split]);
        }
        // Release pairs with the Acquire in `receive`.
        self.sequence().store(sequence, Ordering::Release);
    }

    #[inline]
    fn receive(
        &self,
        sequence: u32,
        words: &mut [u32],
        cpus: [usize; 2],
        stop: &AtomicBool,
    ) -> Result<(), FloorError> {
        let mut spins = 0u32;
        let mut deadline = None;
        // Acquire pairs with the Release in `send`.
        while self.sequence().load(Ordering::Acquire) != sequence {
            std::hint::spin_loop();
            spins = spins.wrapping_add(1);
            if cpus[0] == cpus[1] {
                std::thread::yield_now();
            }
            if spins.is_multiple_of(1 << 14) {
                let limit = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
                // Relaxed pairs with the store at the end of the measurement.
                if stop.load(Ordering::Relaxed) || Instant::now() > limit {
                    return Err(FloorError::Stuck);
                }
            }
        }
        // SAFETY: the sequence number was seen, so the sender has finished and waits for us.
        unsafe {
            let payload = std::slice::from_raw_parts(self.base().add(1), self.words);
            words.copy_from_slice(payload);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_is_measured() {
        for bytes in [0, 8, 136, 504] {
            let result = cache_line_ping_pong(bytes, 200).unwrap();
            assert_eq!(result.round_trip.count(), 200);
            assert_eq!(result.bytes_each_way, bytes);
            assert!(result.round_trip.max() > 0);
        }
    }

    #[test]
    fn too_many_bytes_are_refused() {
        let refused = cache_line_ping_pong(PING_PONG_BYTES_MAX + 1, 1);
        assert!(matches!(refused, Err(FloorError::TooLarge { .. })));
    }
}
