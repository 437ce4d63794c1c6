//! Two measuring threads on two cores, which give up when the other one does.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use livetime_shm::{allowed_cpus, pin_current_thread};

use super::BenchError;

/// A partner that has not answered for so long is taken for dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// Idle turns between two looks at the clock.
const TURNS_PER_LOOK: u32 = 1 << 14;

/// The cores of the two threads; the same one twice where there is only one.
pub(crate) fn cores() -> [usize; 2] {
    let allowed = allowed_cpus();
    [allowed[0], allowed[allowed.len().min(2) - 1]]
}

/// How one of two threads waits for the other.
pub(crate) struct Patience<'a> {
    stop: &'a AtomicBool,
    shares_core: bool,
    turns: u32,
    deadline: Option<Instant>,
}

impl Patience<'_> {
    /// Spends one idle turn.
    ///
    /// # Errors
    /// [`BenchError::Stuck`] when the partner has failed or is silent for ten seconds.
    #[inline]
    pub(crate) fn idle(&mut self) -> Result<(), BenchError> {
        if self.shares_core {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS_PER_LOOK) {
            return self.look();
        }
        Ok(())
    }

    /// A turn in which something was done, or an idle one.
    ///
    /// # Errors
    /// As [`Patience::idle`].
    #[inline]
    pub(crate) fn after(&mut self, is_busy: bool) -> Result<(), BenchError> {
        if is_busy {
            self.restart();
            return Ok(());
        }
        self.idle()
    }

    /// The partner has answered: the ten seconds start anew.
    #[inline]
    pub(crate) fn restart(&mut self) {
        self.turns = 0;
        self.deadline = None;
    }

    #[cold]
    fn look(&mut self) -> Result<(), BenchError> {
        let limit = *self
            .deadline
            .get_or_insert_with(|| Instant::now() + PATIENCE);
        // Relaxed pairs with the store in `GiveUp`: a hint, no data behind it.
        if self.stop.load(Ordering::Relaxed) || Instant::now() > limit {
            return Err(BenchError::Stuck);
        }
        Ok(())
    }
}

/// Tells the partner unless it is disarmed: also when its thread panics.
struct GiveUp<'a> {
    stop: &'a AtomicBool,
    armed: bool,
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs two closures at the same time, each pinned to its core.
///
/// # Errors
/// The first error of the two; [`BenchError::Stuck`] only if there is no better one.
pub(crate) fn run_pair<A: Send, B: Send>(
    first: impl FnOnce(Patience<'_>) -> Result<A, BenchError> + Send,
    second: impl FnOnce(Patience<'_>) -> Result<B, BenchError> + Send,
) -> Result<(A, B), BenchError> {
    let cores = cores();
    let stop = AtomicBool::new(false);
    let (a, b) = std::thread::scope(|scope| {
        let b = scope.spawn(|| run_one(cores, 1, &stop, second));
        let a = scope.spawn(|| run_one(cores, 0, &stop, first));
        (a.join(), b.join())
    });
    match (
        a.map_err(|_| BenchError::Thread).flatten(),
        b.map_err(|_| BenchError::Thread).flatten(),
    ) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(BenchError::Stuck), Err(error)) | (Err(error), _) | (Ok(_), Err(error)) => Err(error),
    }
}

/// As [`run_pair`], with the time from when both threads are on their cores until both are through
/// \[s\]. Making the threads and moving them to their cores takes milliseconds at times: as long as a
/// short block.
///
/// # Errors
/// As [`run_pair`].
pub(crate) fn time_pair(
    first: impl FnOnce(Patience<'_>) -> Result<(), BenchError> + Send,
    second: impl FnOnce(Patience<'_>) -> Result<(), BenchError> + Send,
) -> Result<f64, BenchError> {
    let on_core = AtomicU8::new(0);
    let start = |patience: &mut Patience<'_>| {
        on_core.fetch_add(1, Ordering::AcqRel);
        while on_core.load(Ordering::Acquire) < 2 {
            patience.idle()?;
        }
        patience.restart();
        Ok::<_, BenchError>(Instant::now())
    };
    let (a, b) = run_pair(
        |mut patience| {
            let began = start(&mut patience)?;
            first(patience)?;
            Ok((began, Instant::now()))
        },
        |mut patience| {
            let began = start(&mut patience)?;
            second(patience)?;
            Ok((began, Instant::now()))
        },
    )?;
    Ok((a.1.max(b.1) - a.0.min(b.0)).as_secs_f64())
}

fn run_one<T>(
    cores: [usize; 2],
    side: usize,
    stop: &AtomicBool,
    body: impl FnOnce(Patience<'_>) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let mut give_up = GiveUp { stop, armed: true };
    pin_current_thread(cores[side])?;
    let shares_core = cores[0] == cores[1];
    let result = body(Patience {
        stop,
        shares_core,
        turns: 0,
        deadline: None,
    });
    give_up.armed = result.is_err();
    result
}

/// Runs a closure on a thread of its own, pinned to the last of the cores.
///
/// # Errors
/// The closure's error, or that of the thread.
pub(crate) fn run_alone<T: Send>(
    body: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    let core = cores()[1];
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            pin_current_thread(core)?;
            body()
        });
        thread.join().map_err(|_| BenchError::Thread).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_run_and_a_failure_releases_the_partner() {
        let flag = AtomicBool::new(false);
        let pair = run_pair(
            |mut patience| {
                while !flag.load(Ordering::Acquire) {
                    patience.idle()?;
                }
                Ok(1)
            },
            |_| {
                flag.store(true, Ordering::Release);
                Ok(2)
            },
        );
        assert_eq!(pair.unwrap(), (1, 2));
        let failed: Result<((), ()), _> = run_pair(
            |mut patience| loop {
                patience.idle()?;
            },
            |_| {
                Err(BenchError::Conservation {
                    what: "messages",
                    found: 1,
                    expected: 2,
                })
            },
        );
        assert!(matches!(failed, Err(BenchError::Conservation { .. })));
        assert_eq!(run_alone(|| Ok(3)).unwrap(), 3);
    }

    #[test]
    fn time_counts_from_when_both_are_there() {
        let before = Instant::now();
        let mut began = [None, None];
        let [first, second] = &mut began;
        let seconds = time_pair(
            |_| {
                *first = Some(Instant::now());
                Ok(())
            },
            |_| {
                *second = Some(Instant::now());
                Ok(())
            },
        );
        let whole = before.elapsed().as_secs_f64();
        let seconds = seconds.unwrap();
        let apart =
            began[0].unwrap().max(began[1].unwrap()) - began[0].unwrap().min(began[1].unwrap());
        assert!(
            (apart.as_secs_f64()..whole).contains(&seconds),
            "{seconds} of {whole}"
        );
        let failed = time_pair(|_| Ok(()), |_| Err(BenchError::Thread));
        assert!(matches!(failed, Err(BenchError::Thread)));
    }
}
