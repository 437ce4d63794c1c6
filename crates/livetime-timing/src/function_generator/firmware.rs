//! The emulated channel behind a function generator: a short queue, segments in exact time.
//!
//! The microcontroller of the hardware keeps 121 places (120 usable) per channel and asks for more
//! once, when 48 sets are left; the segment in progress is out of the queue. This emulation runs
//! segments back to back from the start time, whatever the moments at which it is polled, and can
//! be given faults. What to queue and when to arm is [`super::generator`]'s.

use std::collections::VecDeque;

use livetime_wire::{CoefficientSet, TaiNs};

use super::segment::Segment;

/// Sizes and times of the emulated channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirmwareConfig {
    /// Sets that fit its queue, 1..=65 536.
    pub queue: usize,
    /// It asks for more when so many are left, below `queue`.
    pub refill_at: usize,
    /// Time to acknowledge arming, ns.
    pub arm_ns: u64,
    /// Time to stop after an abort, ns.
    pub abort_ns: u64,
}

impl Default for FirmwareConfig {
    /// 120 sets, refill at 48, arming and aborting within 10 us.
    fn default() -> Self {
        Self {
            queue: 120,
            refill_at: 48,
            arm_ns: 10_000,
            abort_ns: 10_000,
        }
    }
}

/// What may be wrong with the emulated channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirmwareFault {
    /// Nothing.
    #[default]
    None,
    /// It never acknowledges arming or aborting.
    Silent,
    /// It does not hand the next set over in time, though it has one.
    Starved,
}

/// What the channel tells its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirmwareReport {
    /// Few sets are left.
    Refill {
        /// When the threshold was reached.
        time: TaiNs,
    },
    /// The waveform has ended.
    Stopped {
        /// End of the last segment.
        time: TaiNs,
        /// Whether sets were left in the queue: the hardware was not fed in time.
        starved: bool,
    },
}

#[derive(Debug, Clone, Copy)]
struct Playing {
    segment: Segment,
    start: TaiNs,
}

/// The emulated channel.
#[derive(Debug, Clone)]
pub struct Firmware {
    config: FirmwareConfig,
    queue: VecDeque<CoefficientSet>,
    queued_ns: u64,
    playing: Option<Playing>,
    held: i32,
    refill_asked: bool,
    executed: u64,
    fault: FirmwareFault,
}

impl Firmware {
    pub(crate) fn new(config: FirmwareConfig) -> Self {
        Self {
            config,
            queue: VecDeque::with_capacity(config.queue),
            queued_ns: 0,
            playing: None,
            held: 0,
            refill_asked: false,
            executed: 0,
            fault: FirmwareFault::None,
        }
    }

    /// Sizes and times.
    pub fn config(&self) -> &FirmwareConfig {
        &self.config
    }

    /// Breaks it, or repairs it.
    pub fn set_fault(&mut self, fault: FirmwareFault) {
        self.fault = fault;
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.fault == FirmwareFault::Silent
    }

    /// Sets waiting in its queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Length of what waits in its queue, ns.
    pub fn queued_ns(&self) -> u64 {
        self.queued_ns
    }

    /// Sets whose execution has begun since the last start.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    pub(crate) fn room(&self) -> usize {
        self.config.queue - self.queue.len()
    }

    /// Queues a set; the caller has looked at [`Firmware::room`].
    pub(crate) fn push(&mut self, set: CoefficientSet) {
        debug_assert!(self.room() > 0, "the driver counts places");
        self.queued_ns += Segment::new(&set).duration().0;
        self.queue.push_back(set);
        if self.queue.len() > self.config.refill_at {
            self.refill_asked = false;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.queued_ns = 0;
        self.refill_asked = false;
    }

    pub(crate) fn start(&mut self, at: TaiNs) {
        self.executed = 0;
        self.load_next(at);
    }

    /// Ends the present segment at once; the output stays at its last value, and what is queued
    /// stays to be counted and cleared.
    pub(crate) fn stop(&mut self, at: TaiNs) {
        self.held = self.output(at);
        self.playing = None;
    }

    /// When the present segment ends.
    pub(crate) fn segment_end(&self) -> Option<TaiNs> {
        self.playing.map(|p| p.start.after(p.segment.duration()))
    }

    /// The next thing that has happened up to `now`, in the order of time.
    pub(crate) fn poll(&mut self, now: TaiNs) -> Option<FirmwareReport> {
        loop {
            let few = self.queue.len() <= self.config.refill_at;
            if let Some(playing) = self.playing
                && few
                && !self.refill_asked
            {
                self.refill_asked = true;
                return Some(FirmwareReport::Refill {
                    time: playing.start,
                });
            }
            let end = self.segment_end().filter(|end| *end <= now)?;
            let left = !self.queue.is_empty();
            if left && self.fault != FirmwareFault::Starved {
                self.load_next(end);
            } else {
                self.stop(end);
                return Some(FirmwareReport::Stopped {
                    time: end,
                    starved: left,
                });
            }
        }
    }

    fn load_next(&mut self, start: TaiNs) {
        let Some(set) = self.queue.pop_front() else {
            return;
        };
        let segment = Segment::new(&set);
        self.queued_ns -= segment.duration().0;
        self.executed += 1;
        self.playing = Some(Playing { segment, start });
    }

    /// The output at a time not before the last poll: of the present segment, else what is held.
    pub(crate) fn output(&self, at: TaiNs) -> i32 {
        match self.playing {
            Some(Playing { segment, start }) if at >= start => {
                let n = at.since(start).0 / segment.period_ns();
                segment.output_at(n.min(segment.samples() - 1))
            }
            _ => self.held,
        }
    }
}
