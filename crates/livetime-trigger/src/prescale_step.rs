//! The dead-time controller: how far dynamic prescales are stepped up.
//!
//! Each packet says how many Level-1 accepts were refused since the one before. Over a window of
//! packets that gives the dead time; above one limit the step rises, below a lower one it falls, and
//! between them it stays, so that it does not swing. Both limits are compared without a division.
//! What a step means is up to each path ([`crate::prescale::Prescale::steps`]).

use livetime_wire::Problem;

use crate::problem_code::DEAD_TIME_CONTROL;

/// Longest window in packets.
const WINDOW_MAX: u32 = 1_000_000;

/// Parameters of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadTimeControl {
    /// Packets over which the dead time is taken, 1 to 1 000 000. Default 1000: short windows follow
    /// quickly, long ones are not moved by chance.
    pub window: u32,
    /// The step rises when more than this many in a thousand were refused. Default 10.
    pub raise_above_permille: u32,
    /// The step falls when fewer than this many in a thousand were refused, below the other limit.
    /// Default 2.
    pub lower_below_permille: u32,
}

impl Default for DeadTimeControl {
    fn default() -> Self {
        Self {
            window: 1000,
            raise_above_permille: 10,
            lower_below_permille: 2,
        }
    }
}

impl DeadTimeControl {
    /// Checks the values; `path` is the key of the table that holds them, such as `trigger`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let (low, high) = (self.lower_below_permille, self.raise_above_permille);
        let mut problems = Vec::new();
        if !(1..=WINDOW_MAX).contains(&self.window) {
            problems.push(Problem::new(
                DEAD_TIME_CONTROL,
                format!("{path}.dead_time_window"),
                self.window,
                format!("1 to {WINDOW_MAX} packets"),
                "take some hundred packets, so that one busy moment does not move the prescales",
            ));
        }
        if low >= high || high > 1000 {
            let problem = Problem::new(
                DEAD_TIME_CONTROL,
                format!("{path}.dead_time_low"),
                format!("{low} in a thousand"),
                format!("below {high} in a thousand, the value of `dead_time_high`"),
                "leave room between the limits, or the prescales swing up and down",
            );
            problems
                .push(problem.with_related(format!("{path}.dead_time_high"), "upper limit here"));
        }
        problems
    }
}

/// The controller at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrescaleStep {
    control: DeadTimeControl,
    last: usize,
    step: usize,
    packets: u32,
    refused: u64,
}

impl PrescaleStep {
    /// At step 0, with `last` as the highest step that any path has.
    pub fn new(control: DeadTimeControl, last: usize) -> Self {
        Self {
            control,
            last,
            step: 0,
            packets: 0,
            refused: 0,
        }
    }

    /// The step that holds now.
    #[inline]
    pub fn step(&self) -> usize {
        self.step
    }

    /// Takes a packet, before which `refused` Level-1 accepts were refused.
    ///
    /// The packet that completes a window moves the step for those behind it.
    pub fn count(&mut self, refused: u32) {
        self.packets += 1;
        self.refused += u64::from(refused);
        if self.packets < self.control.window {
            return;
        }
        let offered = u64::from(self.packets) + self.refused;
        let permille = |limit: u32| u64::from(limit) * offered;
        if self.refused * 1000 > permille(self.control.raise_above_permille) {
            self.step = (self.step + 1).min(self.last);
        } else if self.refused * 1000 < permille(self.control.lower_below_permille) {
            self.step = self.step.saturating_sub(1);
        }
        (self.packets, self.refused) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> DeadTimeControl {
        DeadTimeControl {
            window: 10,
            raise_above_permille: 100,
            lower_below_permille: 20,
        }
    }

    /// The step after a window with `refused` refusals in one of its packets.
    fn window(step: &mut PrescaleStep, refused: u32) -> usize {
        for packet in 0..10 {
            step.count(if packet == 3 { refused } else { 0 });
        }
        step.step()
    }

    #[test]
    fn the_step_rises_stays_and_falls_with_the_dead_time() {
        let mut step = PrescaleStep::new(control(), 2);
        // 1 of 11 is below 100 in a thousand, 2 of 12 above.
        let steps = [1, 2, 1, 2, 9, 1, 0, 1, 0, 0].map(|refused| window(&mut step, refused));
        assert_eq!(steps, [0, 1, 1, 2, 2, 2, 1, 1, 0, 0]);
    }

    #[test]
    fn the_step_moves_only_at_the_end_of_a_window() {
        let mut step = PrescaleStep::new(control(), 2);
        for packet in 0..9 {
            step.count(31);
            assert_eq!(step.step(), 0, "packet {packet}");
        }
        step.count(0);
        assert_eq!(step.step(), 1);
    }

    #[test]
    fn limits_need_room_between_them() {
        assert_eq!(DeadTimeControl::default().validate("t"), []);
        let broken = DeadTimeControl {
            window: 0,
            raise_above_permille: 20,
            lower_below_permille: 20,
        };
        let problems = broken.validate("t");
        assert_eq!(problems[0].path, "t.dead_time_window");
        assert_eq!(problems[1].path, "t.dead_time_low");
        assert!(problems.iter().all(|p| p.code == DEAD_TIME_CONTROL));
    }
}
