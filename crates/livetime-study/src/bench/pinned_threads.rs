//! Measuring threads, each on a core of its own, which give up when another one does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use livetime_shm::floor::FloorError;
use livetime_shm::{cpus_apart, pin_current_thread, two_cpus};

use super::BenchError;

/// A partner that has not answered for so long is taken for dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// Idle turns between two looks at the clock.
const TURNS_PER_LOOK: u32 = 1 << 14;

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
    let cores = two_cpus();
    let stop = &AtomicBool::new(false);
    let (a, b) = std::thread::scope(|scope| {
        let shares_core = cores[0] == cores[1];
        let b = move || run_one(cores[1], shares_core, stop, second);
        let b = start(scope, stop, b);
        let a = move || run_one(cores[0], shares_core, stop, first);
        let a = start(scope, stop, a);
        (a.and_then(join), b.and_then(join))
    });
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(BenchError::Stuck), Err(error)) | (Err(error), _) | (Ok(_), Err(error)) => Err(error),
    }
}

/// As [`run_pair`], timed as [`time_each`].
///
/// # Errors
/// As [`run_pair`].
pub(crate) fn time_pair<'a>(
    first: impl FnOnce(Patience<'_>) -> Result<(), BenchError> + Send + 'a,
    second: impl FnOnce(Patience<'_>) -> Result<(), BenchError> + Send + 'a,
) -> Result<f64, BenchError> {
    time_each(vec![Box::new(first), Box::new(second)])
}

/// What one of several threads does.
pub(crate) type Body<'a> = Box<dyn FnOnce(Patience<'_>) -> Result<(), BenchError> + Send + 'a>;

/// Runs closures at the same time, each pinned to a core, of its own where there are enough; the time
/// from when all are on their cores until all are through \[s\]. Making the threads and moving them to
/// their cores takes milliseconds at times: as long as a short block.
///
/// # Errors
/// The first of their errors; [`BenchError::Stuck`] only if there is no better one.
pub(crate) fn time_each(bodies: Vec<Body<'_>>) -> Result<f64, BenchError> {
    let (count, cpus) = (bodies.len(), cpus_apart());
    let (stop, on_core) = (AtomicBool::new(false), AtomicUsize::new(0));
    let run = &|body: Body<'_>, core: usize| {
        run_one(core, count > cpus.len(), &stop, |mut patience| {
            on_core.fetch_add(1, Ordering::AcqRel);
            while on_core.load(Ordering::Acquire) < count {
                patience.idle()?;
            }
            patience.restart();
            let began = Instant::now();
            body(patience)?;
            Ok((began, Instant::now()))
        })
    };
    let results: Vec<Result<(Instant, Instant), BenchError>> = std::thread::scope(|scope| {
        let placed = bodies.into_iter().zip(cpus.iter().cycle());
        let threads: Vec<_> = placed
            .map(|(body, core)| start(scope, &stop, move || run(body, *core)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.and_then(join));
        joined.collect()
    });
    let (mut times, mut stuck) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(time) => times.push(time),
            Err(error @ BenchError::Stuck) => stuck = Some(error),
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = stuck {
        return Err(error);
    }
    let began = times.iter().map(|(began, _)| *began).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    let span = began.zip(ended).map(|(began, ended)| ended - began);
    Ok(span.unwrap_or_default().as_secs_f64())
}

fn run_one<T>(
    core: usize,
    shares_core: bool,
    stop: &AtomicBool,
    body: impl FnOnce(Patience<'_>) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let mut give_up = GiveUp { stop, armed: true };
    pin_current_thread(core)?;
    let result = body(Patience {
        stop,
        shares_core,
        turns: 0,
        deadline: None,
    });
    give_up.armed = result.is_err();
    result
}

/// Starts a thread; where the system gives none, its partners are not to wait for it.
fn start<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    stop: &AtomicBool,
    body: impl FnOnce() -> Result<T, BenchError> + Send + 's,
) -> Result<Started<'s, T>, BenchError> {
    let started = Builder::new().spawn_scoped(scope, body);
    started.map_err(|error| {
        stop.store(true, Ordering::Relaxed);
        FloorError::NoThread(error).into()
    })
}

/// A thread that was started.
type Started<'s, T> = ScopedJoinHandle<'s, Result<T, BenchError>>;

fn join<T>(thread: Started<'_, T>) -> Result<T, BenchError> {
    thread.join().map_err(|_| BenchError::Thread).flatten()
}

/// Runs a closure on a thread of its own, pinned to the last of the cores.
///
/// # Errors
/// The closure's error, or that of the thread.
pub(crate) fn run_alone<T: Send>(
    body: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    let core = two_cpus()[1];
    std::thread::scope(|scope| {
        let body = move || {
            pin_current_thread(core)?;
            body()
        };
        start(scope, &AtomicBool::new(false), body).and_then(join)
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

    #[test]
    fn more_threads_than_cores_take_turns_and_one_failure_releases_all() {
        let count = cpus_apart().len() + 2;
        let came = AtomicUsize::new(0);
        let waiting = |_| -> Body<'_> {
            Box::new(|mut patience| {
                came.fetch_add(1, Ordering::AcqRel);
                while came.load(Ordering::Acquire) < count {
                    patience.idle()?;
                }
                Ok(())
            })
        };
        time_each((0..count).map(waiting).collect()).unwrap();
        assert_eq!(came.into_inner(), count);

        let for_ever = |_| -> Body<'_> {
            Box::new(|mut patience| {
                loop {
                    patience.idle()?;
                }
            })
        };
        let mut bodies: Vec<Body<'_>> = (0..count).map(for_ever).collect();
        bodies.push(Box::new(|_| Err(BenchError::Thread)));
        assert!(matches!(time_each(bodies), Err(BenchError::Thread)));
    }
}
