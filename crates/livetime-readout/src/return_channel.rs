//! The way back of a duplex link: XOFF and the four return lines, sampled and late.
//!
//! The receiving card samples its UXOFF# and URL\[3:0\] pins once per period and sends the levels as
//! a return word; the sending card applies them when they come. A return word that is lost or bad
//! is simply not applied, the next one brings the levels again (S-LINK specification, return
//! lines). What XOFF does to the words is in [`crate::card_link`].

use std::collections::VecDeque;

use crate::line::FlowControl;

/// A pulse on a return line must last this many clocks to be seen for certain.
pub const INPUT_PULSE_CLOCKS_MIN: u64 = 32;
/// A pulse that was seen lasts at least this many clocks at the sending card.
pub const DELIVERED_PULSE_CLOCKS_MIN: u64 = 16;
/// The return lines that there are.
const LINES_MASK: u8 = 0b1111;

/// The levels of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReturnWord {
    /// XOFF asked or not.
    pub flow: FlowControl,
    /// URL\[3:0\], in bits 3:0.
    pub lines: u8,
}

impl ReturnWord {
    /// What holds before the first return word and during a reset: XON, all lines low.
    pub const IDLE: Self = Self {
        flow: FlowControl::Xon,
        lines: 0,
    };
}

/// The way back, driven by the clock of the link.
#[derive(Debug, Clone)]
pub struct ReturnChannel {
    period_x100: u64,
    latency_clocks: u64,
    /// Hundredths of a clock since the last sample.
    phase_x100: u64,
    on_way: VecDeque<(u64, ReturnWord)>,
    applied: ReturnWord,
    /// Until when each line is held high.
    held_until: [u64; 4],
    samples: u64,
    lost: u64,
}

impl ReturnChannel {
    /// A channel that samples every `period_x100` hundredths of a clock (at least 100) and delivers
    /// `latency_clocks` later.
    pub fn new(period_x100: u32, latency_clocks: u32) -> Self {
        let period_x100 = u64::from(period_x100.max(100));
        let latency_clocks = u64::from(latency_clocks);
        let on_way = latency_clocks * 100 / period_x100 + 2;
        Self {
            period_x100,
            latency_clocks,
            phase_x100: period_x100 - 100,
            on_way: VecDeque::with_capacity(on_way as usize),
            applied: ReturnWord::IDLE,
            held_until: [0; 4],
            samples: 0,
            lost: 0,
        }
    }

    /// One clock: samples the pins if it is time, and gives what the sending card sees now.
    /// `is_lost` is asked, with its number, for each return word.
    pub fn clock(
        &mut self,
        now: u64,
        pins: ReturnWord,
        is_lost: impl FnOnce(u64) -> bool,
    ) -> ReturnWord {
        self.phase_x100 += 100;
        if self.phase_x100 >= self.period_x100 {
            self.phase_x100 -= self.period_x100;
            if is_lost(self.samples) {
                self.lost += 1;
            } else {
                self.on_way.push_back((now + self.latency_clocks, pins));
            }
            self.samples += 1;
        }
        while let Some((at, word)) = self.on_way.front().copied()
            && at <= now
        {
            self.on_way.pop_front();
            self.apply(now, word);
        }
        ReturnWord {
            flow: self.applied.flow,
            lines: self.lines_at(now),
        }
    }

    /// A reset, or a link that is down: the levels are idle and what is on its way is forgotten.
    pub fn clear(&mut self) {
        self.on_way.clear();
        self.applied = ReturnWord::IDLE;
        self.held_until = [0; 4];
    }

    /// Return words sampled so far, lost ones included.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Return words lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn apply(&mut self, now: u64, word: ReturnWord) {
        let rising = word.lines & !self.applied.lines & LINES_MASK;
        for (line, until) in self.held_until.iter_mut().enumerate() {
            if rising >> line & 1 == 1 {
                *until = now + DELIVERED_PULSE_CLOCKS_MIN;
            }
        }
        self.applied = ReturnWord {
            lines: word.lines & LINES_MASK,
            ..word
        };
    }

    fn lines_at(&self, now: u64) -> u8 {
        let held = self.held_until.iter().enumerate();
        held.fold(self.applied.lines, |lines, (line, until)| {
            lines | u8::from(now < *until) << line
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(flow: FlowControl, lines: u8) -> ReturnWord {
        ReturnWord { flow, lines }
    }

    /// Clocks at which line 0 is high at the sending card, for a pulse of `pulse` clocks.
    fn delivered(period_x100: u32, pulse: u64, start: u64) -> u64 {
        let mut channel = ReturnChannel::new(period_x100, 7);
        let pins = |now: u64| {
            let high = (start..start + pulse).contains(&now);
            levels(FlowControl::Xon, u8::from(high))
        };
        (0..300)
            .map(|now| u64::from(channel.clock(now, pins(now), |_| false).lines & 1))
            .sum()
    }

    #[test]
    fn pulses_of_the_least_length_arrive_and_last_long_enough() {
        for period_x100 in [128, 500, 800] {
            for start in 0..20 {
                let clocks = delivered(period_x100, INPUT_PULSE_CLOCKS_MIN, start);
                assert!(clocks >= DELIVERED_PULSE_CLOCKS_MIN, "{clocks} clocks");
                let one = delivered(period_x100, period_x100.div_ceil(100).into(), start);
                assert!(one >= DELIVERED_PULSE_CLOCKS_MIN, "{one} clocks, stretched");
            }
        }
    }

    #[test]
    fn levels_come_after_the_latency_and_a_lost_word_delays_them_by_a_period() {
        for lost in [false, true] {
            let mut channel = ReturnChannel::new(500, 10);
            let mut first_xoff = None;
            for now in 0..60 {
                // The pin goes low at clock 20, just when a sample is taken.
                let flow = if now < 20 {
                    FlowControl::Xon
                } else {
                    FlowControl::Xoff
                };
                let seen = channel.clock(now, levels(flow, 0b1111_0101), |n| lost && n == 4);
                if seen.flow == FlowControl::Xoff {
                    first_xoff.get_or_insert(now);
                }
                assert_eq!(seen.lines & 0b1111_0000, 0);
            }
            assert_eq!(first_xoff, Some(if lost { 35 } else { 30 }));
            assert_eq!(channel.lost(), u64::from(lost));
            channel.clear();
            let seen = channel.clock(60, ReturnWord::IDLE, |_| false);
            assert_eq!(seen, ReturnWord::IDLE);
        }
    }
}
