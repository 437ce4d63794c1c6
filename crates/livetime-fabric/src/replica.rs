//! Independent simulations on several threads: the same results for any number of them.
//!
//! A simulation is one thread; what runs side by side are replicas, load points and the checks of
//! [`crate::gate`]. Results come back in the order of the jobs, whoever ran them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs the jobs on up to `threads` threads (at least 1, and no more than there are jobs) and returns
/// their results in order.
///
/// `done` is called after each job with its place, from whichever thread ran it.
///
/// # Panics
/// When a job panics.
pub fn run_all<J, T>(jobs: Vec<J>, threads: usize, done: impl Fn(usize) + Sync) -> Vec<T>
where
    J: FnOnce() -> T + Send,
    T: Send,
{
    let threads = threads.min(jobs.len());
    let results: Vec<Mutex<Option<T>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let jobs: Vec<Mutex<Option<J>>> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        // Relaxed: the counter only deals out places; jobs and results are behind their locks.
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = jobs.get(index) else {
                break;
            };
            let job = place.lock().ok().and_then(|mut job| job.take());
            if let Some(job) = job {
                let result = job();
                if let Ok(mut slot) = results[index].lock() {
                    *slot = Some(result);
                }
                done(index);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    results
        .into_iter()
        .map(|slot| slot.into_inner().ok().flatten())
        .map(|result| result.expect("every job was dealt out and ran"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        for threads in [0, 1, 2, 7] {
            let jobs: Vec<_> = (0..20_u64).map(|i| move || i * i).collect();
            let squares: Vec<u64> = (0..20).map(|i| i * i).collect();
            assert_eq!(run_all(jobs, threads, |_| ()), squares);
        }
    }
}
