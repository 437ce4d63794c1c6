//! A switch with a queue for each pair of input and output, matched in every slot.
//!
//! The ways to match them are in [`crate::matcher`].

use crate::matcher::{Matcher, UNMATCHED};
use crate::random::RandomStream;

use super::stream;

pub use crate::matcher::{MAXIMUM_WEIGHT_PORTS, Matching};

/// Cells offered.
#[derive(Debug, Clone, PartialEq)]
pub enum Offered {
    /// All queues always hold cells.
    Saturated,
    /// At each input with this probability a slot, to a uniform destination.
    Uniform(f64),
    /// At each input `i` for each output `j` with probability `loads[i][j]`; rows sum to at most 1.
    Matrix(Vec<Vec<f64>>),
}

/// A switch with virtual output queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchedSwitch {
    /// Inputs, and outputs.
    pub ports: u32,
    /// The scheduler.
    pub matching: Matching,
}

/// What a run measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Matched {
    /// Cells per port and slot.
    pub throughput: f64,
    /// Mean delay after the slot of arrival, slots, by Little's law; 0 when saturated.
    pub delay_slots: f64,
    /// Cells that wait at the end.
    pub left: u64,
}

impl MatchedSwitch {
    /// Runs `slots` slots after `warm_up` more.
    ///
    /// # Panics
    /// For maximum-weight matching with more than [`MAXIMUM_WEIGHT_PORTS`] ports.
    pub fn run(&self, offered: &Offered, warm_up: u64, slots: u64, seed: u64) -> Matched {
        let n = self.ports as usize;
        let mut random = stream(seed);
        let is_saturated = *offered == Offered::Saturated;
        let mut queues = vec![u64::from(is_saturated); n * n];
        let mut matcher = Matcher::new(n, n, self.matching);
        let (mut sent, mut waiting, mut in_queue) = (0_u64, 0_u64, 0_u64);
        for slot in 0..warm_up + slots {
            in_queue += arrivals(offered, n, &mut queues, &mut random);
            matcher.clear();
            for output in 0..n {
                for input in 0..n {
                    match queues[input * n + output] {
                        0 => {}
                        cells => matcher.request(input, output, cells),
                    }
                }
            }
            matcher.schedule(&mut random);
            let mut served = 0;
            for (input, output) in matcher.outputs().iter().enumerate() {
                if *output != UNMATCHED {
                    served += 1;
                    if !is_saturated {
                        queues[input * n + output] -= 1;
                    }
                }
            }
            if !is_saturated {
                in_queue -= served;
            }
            if slot >= warm_up {
                sent += served;
                waiting += in_queue;
            }
        }
        Matched {
            throughput: sent as f64 / (slots * n as u64) as f64,
            delay_slots: waiting as f64 / sent.max(1) as f64,
            left: in_queue,
        }
    }
}

/// Adds the arrivals of a slot; returns their number.
fn arrivals(offered: &Offered, n: usize, queues: &mut [u64], random: &mut RandomStream) -> u64 {
    let mut arrived = 0;
    for input in 0..n {
        let output = match offered {
            Offered::Saturated => None,
            Offered::Uniform(load) => {
                (random.unit() < *load).then(|| random.below(n as u64) as usize)
            }
            Offered::Matrix(loads) => {
                let mut left = random.unit();
                loads[input].iter().position(|load| {
                    left -= load;
                    left < 0.0
                })
            }
        };
        if let Some(output) = output {
            queues[input * n + output] += 1;
            arrived += 1;
        }
    }
    arrived
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saturated(ports: u32, matching: Matching, warm_up: u64) -> f64 {
        let switch = MatchedSwitch { ports, matching };
        let run = switch.run(&Offered::Saturated, warm_up, 5_000, 1);
        run.throughput
    }

    #[test]
    fn pointers_that_always_move_stay_in_step() {
        for ports in [4, 16] {
            let locked = |iterations, moves_in_all| {
                let matching = Matching::RoundRobin {
                    iterations,
                    moves_in_all,
                };
                saturated(ports, matching, 100)
            };
            assert_eq!(locked(1, true), 1.0 / f64::from(ports));
            assert_eq!(locked(2, false), 2.0 / f64::from(ports));
            assert_eq!(locked(2, true), 1.0);
        }
    }

    #[test]
    fn slip_is_perfect_once_it_has_settled() {
        assert_eq!(saturated(16, Matching::Slip { iterations: 1 }, 2_000), 1.0);
    }

    #[test]
    fn parallel_matching_needs_iterations() {
        for (iterations, expected) in [(1, 0.6439), (2, 0.882), (4, 0.999)] {
            let found = saturated(16, Matching::Parallel { iterations }, 100);
            assert!((found - expected).abs() < 0.006, "{iterations}: {found}");
        }
    }

    #[test]
    fn the_heaviest_matching_carries_any_admissible_load() {
        // Uneven, and full to 98 %: a diagonal of half the load.
        let loads: Vec<Vec<f64>> = (0..4)
            .map(|i| {
                let load = |j| if i == j { 0.53 } else { 0.15 };
                (0..4).map(load).collect()
            })
            .collect();
        let switch = |matching| MatchedSwitch { ports: 4, matching };
        let offered = Offered::Matrix(loads);
        let heaviest = switch(Matching::MaximumWeight).run(&offered, 1_000, 50_000, 1);
        let random = switch(Matching::Parallel { iterations: 1 }).run(&offered, 1_000, 50_000, 1);
        assert!(heaviest.left < 1_000, "{heaviest:?}");
        assert!(random.left > 10_000, "{random:?}");
    }
}
