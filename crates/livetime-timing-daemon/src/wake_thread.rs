//! Wakes many sleeping clients from another core than that of the timing core's worker.
//!
//! ```text
//! core worker ──group──► bounded queue ──► wake thread ──one system call──► all of them that sleep
//! ```
//! To wake one sleeper takes the kernel some microseconds. To wake 32 takes it 30 to 200: they come
//! up on cores whose locks the waker needs for the next one, and a deadline within that time would be
//! met late. So the worker wakes this thread only, which it costs the same for any number. Where the
//! queue is full, or there is no such thread, the worker wakes the group itself: nobody sleeps on.

use std::io;
use std::thread::JoinHandle;

use livetime_shm::{WakeGroup, WakeUp, Waker, avoid_cpu, request_fifo, wake_pair};

/// Groups that wait to be woken; as many are on their way only where this thread gets no core.
const GROUPS_MAX: usize = 256;

/// The thread, at the worker's end. It ends when this is dropped.
#[derive(Debug)]
pub struct WakeThread {
    groups: rtrb::Producer<WakeGroup>,
    /// `None` while it is being ended.
    waker: Option<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl WakeThread {
    /// Starts it, away from the worker's core where that is pinned, and with its real-time priority;
    /// what the machine refuses of that, it has refused the worker as well.
    ///
    /// # Errors
    /// No descriptors, or no thread.
    pub fn start(cpu_of_worker: Option<usize>, priority: Option<u8>) -> io::Result<Self> {
        let (groups, mut waiting) = rtrb::RingBuffer::<WakeGroup>::new(GROUPS_MAX);
        let (waker, source) = wake_pair()?;
        let thread = std::thread::Builder::new().name("timing-wake".to_owned());
        let thread = thread.spawn(move || {
            let _placed = cpu_of_worker.map(avoid_cpu);
            let _hurried = priority.map(request_fifo);
            loop {
                let wake_up = source.wait(None);
                while let Ok(group) = waiting.pop() {
                    group.wake();
                }
                if !matches!(wake_up, Ok(WakeUp::Woken | WakeUp::Nothing)) {
                    return;
                }
            }
        })?;
        Ok(Self {
            groups,
            waker: Some(waker),
            thread: Some(thread),
        })
    }

    /// Has a group woken. One system call, the same for any number of sleepers.
    #[inline]
    pub fn wake(&mut self, group: &WakeGroup) {
        if self.groups.push(group.clone()).is_err() {
            group.wake();
        }
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }
}

impl Drop for WakeThread {
    fn drop(&mut self) {
        self.waker = None;
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_is_woken_also_those_that_still_wait_at_the_end() {
        let groups: Vec<_> = (0..3).map(|_| WakeGroup::new().unwrap()).collect();
        let pairs: Vec<_> = groups.iter().map(|group| group.pair().unwrap()).collect();
        let mut thread = WakeThread::start(Some(livetime_shm::allowed_cpus()[0]), None).unwrap();
        thread.wake(&groups[0]);
        assert_eq!(pairs[0].1.wait(None).unwrap(), WakeUp::Woken);
        for _ in 0..2 * GROUPS_MAX {
            thread.wake(&groups[1]);
        }
        thread.wake(&groups[2]);
        drop(thread);
        let now = Some(std::time::Duration::ZERO);
        let woken = pairs.iter().map(|(_, source)| source.wait(now).unwrap());
        let woken: Vec<WakeUp> = woken.collect();
        assert_eq!(woken, [WakeUp::Nothing, WakeUp::Woken, WakeUp::Woken]);
    }
}
