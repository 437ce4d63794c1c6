//! When a reader is woken: always looking, after every N fragments, or adaptively.
//!
//! The FILAR driver is called when a set number of fragments waits in any channel; a reader that
//! polls needs no waking. [`Notifier`] decides and counts, so that wake-ups per fragment can be
//! compared; it wakes nobody itself.

use livetime_wire::{DurationNs, Problem, RunNs};

use crate::problem_code;

/// The largest batch.
const BATCH_MAX: u32 = 1 << 16;

/// The policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Notification {
    /// The reader looks by itself and is never woken.
    #[default]
    Poll,
    /// When `fragments` wait, or `patience` after the first of fewer, or before that when there is no
    /// room for so many ([`Notifier::handle_full`]).
    EveryN {
        /// Fragments, 1 to 65 536.
        fragments: u32,
        /// The longest that one waits.
        patience: DurationNs,
    },
    /// As every N, with N doubled up to `fragments_max` while more than N are found at a wake-up,
    /// and halved when the patience runs out first.
    Adaptive {
        /// The largest N, 1 to 65 536.
        fragments_max: u32,
        /// The longest that one waits.
        patience: DurationNs,
    },
}

impl Notification {
    /// Every problem of the policy; `path` is its key in the file.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let (Self::EveryN {
            fragments: batch, ..
        }
        | Self::Adaptive {
            fragments_max: batch,
            ..
        }) = *self
        else {
            return Vec::new();
        };
        if (1..=BATCH_MAX).contains(&batch) {
            return Vec::new();
        }
        vec![Problem::new(
            problem_code::NOTIFICATION,
            format!("{path}.fragments"),
            batch,
            format!("1 to {BATCH_MAX}"),
            "1 wakes for each fragment; a larger number costs latency and saves wake-ups",
        )]
    }
}

/// What a notifier has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NotifierCounters {
    /// Fragments that came.
    pub fragments: u64,
    /// Wake-ups because enough of them waited, or as many as there was room for.
    pub wakes_by_count: u64,
    /// Wake-ups because the patience ran out.
    pub wakes_by_time: u64,
}

impl NotifierCounters {
    /// Wake-ups per fragment; 0 without any.
    pub fn wakes_per_fragment(&self) -> f64 {
        let wakes = self.wakes_by_count + self.wakes_by_time;
        wakes as f64 / self.fragments.max(1) as f64
    }
}

/// Says when to wake the reader of a channel.
#[derive(Debug, Clone)]
pub struct Notifier {
    policy: Notification,
    batch: u32,
    waiting: u32,
    first_at: RunNs,
    /// No more can come before the reader has looked.
    is_full: bool,
    counters: NotifierCounters,
}

impl Notifier {
    /// A notifier with nothing waiting.
    pub fn new(policy: Notification) -> Self {
        let batch = match policy {
            Notification::EveryN { fragments, .. } => fragments,
            Notification::Poll | Notification::Adaptive { .. } => 1,
        };
        Self {
            policy,
            batch,
            waiting: 0,
            first_at: RunNs(0),
            is_full: false,
            counters: NotifierCounters::default(),
        }
    }

    /// That many fragments have come.
    pub fn handle_completed(&mut self, now: RunNs, fragments: u32) {
        if self.waiting == 0 && fragments > 0 {
            self.first_at = now;
        }
        self.waiting += fragments;
        self.counters.fragments += u64::from(fragments);
    }

    /// There is no room for another fragment: what waits is enough, whatever N is.
    pub fn handle_full(&mut self) {
        self.is_full = true;
    }

    /// Whether the reader is to be woken now; it takes all that waits then.
    pub fn poll_wake(&mut self, now: RunNs) -> bool {
        let is_full = core::mem::take(&mut self.is_full);
        if self.waiting == 0 || self.policy == Notification::Poll {
            self.waiting = 0;
            return false;
        }
        let by_count = is_full || self.waiting >= self.batch;
        if !by_count && self.poll_timeout().is_none_or(|at| now.0 < at.0) {
            return false;
        }
        if let Notification::Adaptive { fragments_max, .. } = self.policy {
            if self.waiting > self.batch || (by_count && self.batch == 1) {
                self.batch = (self.batch * 2).min(fragments_max);
            } else if !by_count {
                self.batch = (self.batch / 2).max(1);
            }
        }
        self.counters.wakes_by_count += u64::from(by_count);
        self.counters.wakes_by_time += u64::from(!by_count);
        self.waiting = 0;
        true
    }

    /// When to poll at the latest, if something waits.
    pub fn poll_timeout(&self) -> Option<RunNs> {
        let (Notification::EveryN { patience, .. } | Notification::Adaptive { patience, .. }) =
            self.policy
        else {
            return None;
        };
        (self.waiting > 0).then(|| self.first_at.after(patience))
    }

    /// The present N.
    pub fn batch(&self) -> u32 {
        self.batch
    }

    /// The counters.
    pub fn counters(&self) -> NotifierCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: DurationNs = DurationNs(50_000);

    /// Fragments one by one at a gap, polled each time; returns the notifier.
    fn run(policy: Notification, gap_ns: u64, fragments: u64) -> Notifier {
        assert_eq!(policy.validate("link"), []);
        let mut notifier = Notifier::new(policy);
        for n in 0..fragments {
            let now = RunNs(n * gap_ns);
            if notifier.poll_timeout().is_some_and(|at| at.0 <= now.0) {
                let at = notifier.poll_timeout().unwrap();
                assert!(notifier.poll_wake(at));
            }
            notifier.handle_completed(now, 1);
            notifier.poll_wake(now);
        }
        notifier
    }

    #[test]
    fn polling_wakes_nobody_and_every_n_wakes_once_in_n() {
        let polled = run(Notification::Poll, 10, 1000);
        assert_eq!(polled.counters().wakes_per_fragment(), 0.0);
        for fragments in [1, 10, 100] {
            let policy = Notification::EveryN {
                fragments,
                patience: PATIENCE,
            };
            let counters = run(policy, 10, 1000).counters();
            assert_eq!(counters.wakes_by_count, 1000 / u64::from(fragments));
            assert_eq!(counters.wakes_by_time, 0);
        }
    }

    #[test]
    fn a_slow_link_is_read_when_the_patience_is_out() {
        let policy = Notification::EveryN {
            fragments: 100,
            patience: PATIENCE,
        };
        let counters = run(policy, 30_000, 100).counters();
        assert_eq!(counters.wakes_by_count, 0);
        assert!((45..=50).contains(&counters.wakes_by_time));
    }

    #[test]
    fn adaptive_goes_up_with_bursts_and_down_with_silence() {
        let policy = Notification::Adaptive {
            fragments_max: 64,
            patience: PATIENCE,
        };
        let mut notifier = Notifier::new(policy);
        let mut now = 0;
        for _ in 0..20 {
            now += 1000;
            notifier.handle_completed(RunNs(now), 100);
            assert!(notifier.poll_wake(RunNs(now)));
        }
        assert_eq!(notifier.batch(), 64);
        for _ in 0..10 {
            now += 1_000_000;
            notifier.handle_completed(RunNs(now), 1);
            now += PATIENCE.0;
            let _ = notifier.poll_wake(RunNs(now));
        }
        assert!(notifier.batch() <= 2, "{}", notifier.batch());
        let none = Notification::EveryN {
            fragments: 0,
            patience: PATIENCE,
        };
        assert_eq!(none.validate("link")[0].path, "link.fragments");
    }

    #[test]
    fn a_patience_beyond_the_end_of_time_never_runs_out() {
        let patience = DurationNs(u64::MAX);
        for policy in [
            Notification::EveryN {
                fragments: 2,
                patience,
            },
            Notification::Adaptive {
                fragments_max: 2,
                patience,
            },
        ] {
            let mut notifier = Notifier::new(policy);
            notifier.handle_completed(RunNs(5), 2);
            assert!(notifier.poll_wake(RunNs(5)));
            notifier.handle_completed(RunNs(6), 1);
            assert_eq!(notifier.poll_timeout(), Some(RunNs::MAX));
            assert!(!notifier.poll_wake(RunNs(1 << 60)), "{policy:?}");
        }
    }
}
