//! Clocks of receivers: drift, steps, lock, and the way between TAI and UTC.
//!
//! [`ClockModel`] turns a true time, given by the driver, into what the receiver believes, with
//! faults on request; it reads no clock. [`LeapTable`] has the leap seconds known when this was
//! written and can be replaced. Which clock a driver takes as true is its own choice.

use livetime_wire::{Problem, TaiNs};

use crate::problem_code;

mod leap_table;

pub use leap_table::{LeapTable, LeapTableError};

/// Whether a receiver's time can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockState {
    /// Follows the timing network.
    Locked,
    /// Has followed it and runs on its own oscillator since then.
    Holdover {
        /// When the lock was lost, in the receiver's time.
        since: TaiNs,
    },
    /// Has never followed it; its time may be anything.
    Unlocked,
}

impl LockState {
    /// The word in texts and JSON documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Holdover { .. } => "holdover",
            Self::Unlocked => "unlocked",
        }
    }

    /// Whether the time is that of the network.
    pub fn is_locked(self) -> bool {
        self == Self::Locked
    }
}

/// Something that happens to a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClockFault {
    /// The time jumps by so many ns.
    Step {
        /// Forward, or backward if negative.
        ns: i64,
    },
    /// The oscillator runs off by so many parts in 10^9 from now on; felt in holdover only, since
    /// a locked clock follows the network.
    Drift {
        /// Fast, or slow if negative; within +-1 000 000.
        parts_per_billion: i32,
    },
    /// The network is gone.
    LockLost,
    /// The network is back; the time is right again at once.
    LockRegained,
}

/// Largest drift that is accepted, parts in 10^9: 0.1 %.
pub const DRIFT_MAX: i32 = 1_000_000;

/// The problem of a drift beyond [`DRIFT_MAX`], parts in 10^9.
pub fn drift_problem(found: i64) -> Problem {
    Problem::new(
        problem_code::DRIFT,
        "timing.clock.drift",
        found,
        "-1000000 to 1000000 parts in 10^9",
        "oscillators of receivers stay within 100 000",
    )
}

/// Farthest that a step may bring the clock from the true time, ns: 146 years.
pub const OFFSET_NS_MAX: i64 = 1 << 62;

/// What a receiver believes the time to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockModel {
    lock: LockState,
    drift: i32,
    /// True and believed time at the last change.
    base: (TaiNs, TaiNs),
}

impl ClockModel {
    /// A locked clock: the believed time is the true one.
    pub fn locked() -> Self {
        Self {
            lock: LockState::Locked,
            drift: 0,
            base: (TaiNs(0), TaiNs(0)),
        }
    }

    /// A clock that has never seen the network and starts at `believed`.
    pub fn unlocked(now: TaiNs, believed: TaiNs) -> Self {
        Self {
            lock: LockState::Unlocked,
            drift: 0,
            base: (now, believed),
        }
    }

    /// Whether its time can be trusted.
    pub fn lock_state(&self) -> LockState {
        self.lock
    }

    /// Drift of the oscillator, parts in 10^9.
    pub fn drift(&self) -> i32 {
        self.drift
    }

    /// Whether the believed time is the true one.
    fn is_right(&self) -> bool {
        self.lock.is_locked() && self.base.0 == self.base.1
    }

    /// The believed time at the true time `now`.
    #[inline]
    pub fn time(&self, now: TaiNs) -> TaiNs {
        if self.is_right() {
            return now;
        }
        let (true_base, base) = self.base;
        let passed = i128::from(now.0) - i128::from(true_base.0);
        let drift = if self.lock.is_locked() { 0 } else { self.drift };
        let believed =
            i128::from(base.0) + passed + (passed * i128::from(drift)).div_euclid(1_000_000_000);
        TaiNs(believed.clamp(0, i128::from(u64::MAX)) as u64)
    }

    /// The true time at which the clock will show `believed`, at or after the last change; rounded
    /// so that [`ClockModel::time`] of it is not before `believed`.
    #[inline]
    pub fn true_time(&self, believed: TaiNs) -> TaiNs {
        if self.is_right() {
            return believed;
        }
        let (true_base, base) = self.base;
        let ahead = i128::from(believed.0) - i128::from(base.0);
        let drift = if self.lock.is_locked() { 0 } else { self.drift };
        let rate = 1_000_000_000 + i128::from(drift);
        let passed = (ahead * 1_000_000_000 + rate - 1).div_euclid(rate);
        let guess = (i128::from(true_base.0) + passed).clamp(0, i128::from(u64::MAX)) as u64;
        // Rounding of the drift may leave the guess one off.
        let after = guess.saturating_add(1);
        TaiNs(if self.time(TaiNs(guess)) >= believed {
            guess
        } else {
            after
        })
    }

    /// Lets something happen to the clock at the true time `now`.
    ///
    /// # Errors
    /// The problem of a drift beyond [`DRIFT_MAX`], or of a step beyond [`OFFSET_NS_MAX`] or out of
    /// the times there are; nothing happens then.
    #[expect(
        clippy::result_large_err,
        reason = "a rare call, and the problem is complete"
    )]
    pub fn handle_fault(&mut self, now: TaiNs, fault: ClockFault) -> Result<(), Problem> {
        let believed = self.time(now);
        match fault {
            ClockFault::Step { ns } => self.base = (now, stepped(now, believed, ns)?),
            ClockFault::Drift { parts_per_billion } => {
                if parts_per_billion.unsigned_abs() > DRIFT_MAX.unsigned_abs() {
                    return Err(drift_problem(parts_per_billion.into()));
                }
                self.base = (now, believed);
                self.drift = parts_per_billion;
            }
            ClockFault::LockLost => {
                self.base = (now, believed);
                if self.lock.is_locked() {
                    self.lock = LockState::Holdover { since: believed };
                }
            }
            ClockFault::LockRegained => {
                self.base = (now, now);
                self.lock = LockState::Locked;
            }
        }
        Ok(())
    }
}

/// What a clock shows after a step, if it may be made.
#[expect(
    clippy::result_large_err,
    reason = "a rare call, and the problem is complete"
)]
fn stepped(now: TaiNs, believed: TaiNs, ns: i64) -> Result<TaiNs, Problem> {
    let (shown, offset_max) = (i128::from(believed.0), i128::from(OFFSET_NS_MAX));
    let offset = shown - i128::from(now.0);
    let least = (-shown).max(-offset_max - offset);
    let most = (i128::from(u64::MAX) - shown).min(offset_max - offset);
    if (least..=most).contains(&ns.into()) {
        return Ok(believed.offset_by(ns));
    }
    Err(Problem::new(
        problem_code::CLOCK_STEP,
        "timing.clock.step",
        ns,
        format!("{least} to {most} ns"),
        "a clock shows 0 to 2^64 - 1 ns TAI and is at most 2^62 ns off, 146 years",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_clock_drifts_in_holdover_only() {
        let mut clock = ClockModel::locked();
        let drift = ClockFault::Drift {
            parts_per_billion: 1000,
        };
        clock.handle_fault(TaiNs(10 * SECOND), drift).unwrap();
        assert_eq!(clock.time(TaiNs(20 * SECOND)), TaiNs(20 * SECOND));
        clock
            .handle_fault(TaiNs(20 * SECOND), ClockFault::LockLost)
            .unwrap();
        let since = TaiNs(20 * SECOND);
        assert_eq!(clock.lock_state(), LockState::Holdover { since });
        assert_eq!(clock.time(TaiNs(30 * SECOND)), TaiNs(30 * SECOND + 10_000));
        clock
            .handle_fault(TaiNs(30 * SECOND), ClockFault::Step { ns: -10_001 })
            .unwrap();
        assert_eq!(clock.time(TaiNs(30 * SECOND)), TaiNs(30 * SECOND - 1));
        clock
            .handle_fault(TaiNs(31 * SECOND), ClockFault::LockRegained)
            .unwrap();
        assert!(clock.lock_state().is_locked());
        assert_eq!(clock.time(TaiNs(32 * SECOND)), TaiNs(32 * SECOND));
        let absurd = ClockFault::Drift {
            parts_per_billion: 1_000_001,
        };
        assert!(clock.handle_fault(TaiNs(33 * SECOND), absurd).is_err());
    }

    #[test]
    fn a_step_stays_within_the_times_there_are() {
        let mut clock = ClockModel::locked();
        let now = TaiNs(1_800_000_000 * SECOND);
        let mut step = |ns| {
            let done = clock.handle_fault(now, ClockFault::Step { ns });
            (
                done.err().map(|problem| problem.to_string()),
                clock.time(now),
            )
        };
        for ns in [i64::MAX, OFFSET_NS_MAX + 1, i64::MIN] {
            let (refused, after) = step(ns);
            let refused = refused.unwrap();
            assert!(refused.contains(&ns.to_string()), "{refused}");
            assert!(
                refused.contains("-1800000000000000000 to 4611686018427387904 ns"),
                "{refused}"
            );
            assert_eq!(after, now, "nothing happens");
        }
        let farthest = TaiNs(now.0 + OFFSET_NS_MAX as u64);
        assert_eq!(step(OFFSET_NS_MAX), (None, farthest));
        assert!(
            step(1)
                .0
                .is_some_and(|refused| refused.contains(" to 0 ns"))
        );
        let back = -(farthest.0 as i64);
        assert_eq!(step(back), (None, TaiNs(0)));
        assert!(step(-1).0.is_some());
    }

    #[test]
    fn true_time_is_the_first_at_which_the_clock_shows_it() {
        for drift in [-DRIFT_MAX, -333, 0, 7, DRIFT_MAX] {
            let mut clock = ClockModel::unlocked(TaiNs(SECOND), TaiNs(5 * SECOND));
            let fault = ClockFault::Drift {
                parts_per_billion: drift,
            };
            clock.handle_fault(TaiNs(SECOND), fault).unwrap();
            for ahead in [0, 1, 2, 999, 1_000_000_007, 123_456_789_012] {
                let believed = TaiNs(5 * SECOND + ahead);
                let at = clock.true_time(believed);
                assert!(clock.time(at) >= believed, "{drift} {ahead}");
                assert!(
                    at.0 <= SECOND || clock.time(TaiNs(at.0 - 1)) < believed,
                    "{drift} {ahead}"
                );
            }
        }
    }
}
