//! A switch with a queue for each pair of input and output, and the ways to match them.
//!
//! Parallel iterative matching (random grants and accepts), iSLIP (round-robin pointers that move
//! only when a grant of the first iteration is accepted), round-robin matching (pointers that
//! always move), and maximum-weight matching as an oracle for few ports.

use crate::random::RandomStream;

use super::stream;

/// The most ports of [`Matching::MaximumWeight`], whose cost grows as 2^ports.
pub const MAXIMUM_WEIGHT_PORTS: u32 = 8;
/// No partner.
const NONE: usize = usize::MAX;

/// How inputs and outputs are matched in each slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// Random grants, random accepts.
    Parallel {
        /// Rounds of a slot.
        iterations: u32,
    },
    /// Round robin; pointers move past what was accepted in the first iteration.
    Slip {
        /// Rounds of a slot.
        iterations: u32,
    },
    /// Round robin; pointers move past what was granted, accepted or not.
    RoundRobin {
        /// Rounds of a slot.
        iterations: u32,
        /// Whether they move in every iteration or in the first alone.
        moves_in_all: bool,
    },
    /// The heaviest matching, weight being the cells that wait.
    MaximumWeight,
}

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

struct Scheduler {
    n: usize,
    matching: Matching,
    grant_pointer: Vec<usize>,
    accept_pointer: Vec<usize>,
    input_of: Vec<usize>,
    output_of: Vec<usize>,
    /// The output that an input accepts in this round, and whether it is a better one.
    grants: Vec<Vec<usize>>,
}

impl MatchedSwitch {
    /// Runs `slots` slots after `warm_up` more.
    ///
    /// # Panics
    /// For maximum-weight matching with more than [`MAXIMUM_WEIGHT_PORTS`] ports.
    pub fn run(&self, offered: &Offered, warm_up: u64, slots: u64, seed: u64) -> Matched {
        let n = self.ports as usize;
        assert!(self.matching != Matching::MaximumWeight || self.ports <= MAXIMUM_WEIGHT_PORTS);
        let mut random = stream(seed);
        let is_saturated = *offered == Offered::Saturated;
        let mut queues = vec![u64::from(is_saturated); n * n];
        let mut scheduler = Scheduler::new(n, self.matching);
        let (mut sent, mut waiting, mut in_queue) = (0_u64, 0_u64, 0_u64);
        for slot in 0..warm_up + slots {
            in_queue += arrivals(offered, n, &mut queues, &mut random);
            scheduler.schedule(&queues, &mut random);
            let mut served = 0;
            for (input, output) in scheduler.output_of.iter().enumerate() {
                if *output != NONE {
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

impl Scheduler {
    fn new(n: usize, matching: Matching) -> Self {
        Self {
            n,
            matching,
            grant_pointer: vec![0; n],
            accept_pointer: vec![0; n],
            input_of: vec![NONE; n],
            output_of: vec![NONE; n],
            grants: vec![Vec::with_capacity(n); n],
        }
    }

    fn schedule(&mut self, queues: &[u64], random: &mut RandomStream) {
        self.input_of.fill(NONE);
        self.output_of.fill(NONE);
        match self.matching {
            Matching::MaximumWeight => self.heaviest(queues),
            Matching::Parallel { iterations }
            | Matching::Slip { iterations }
            | Matching::RoundRobin { iterations, .. } => {
                for iteration in 0..iterations {
                    if !self.round(queues, iteration == 0, random) {
                        break;
                    }
                }
            }
        }
    }

    /// One round of grants and accepts; whether it matched anything.
    fn round(&mut self, queues: &[u64], is_first: bool, random: &mut RandomStream) -> bool {
        let n = self.n;
        let moves = |matching| match matching {
            Matching::RoundRobin { moves_in_all, .. } => is_first || moves_in_all,
            _ => false,
        };
        let moves_always = moves(self.matching);
        self.grants.iter_mut().for_each(Vec::clear);
        for output in 0..n {
            if self.input_of[output] != NONE {
                continue;
            }
            let asks =
                |input: usize| self.output_of[input] == NONE && queues[input * n + output] > 0;
            if let Some(input) = self.pick(self.grant_pointer[output], asks, random) {
                self.grants[input].push(output);
                if moves_always {
                    self.grant_pointer[output] = (input + 1) % n;
                }
            }
        }
        let mut has_matched = false;
        for input in 0..n {
            if self.grants[input].is_empty() {
                continue;
            }
            has_matched = true;
            let output = match self.matching {
                Matching::Parallel { .. } => {
                    let granted = &self.grants[input];
                    granted[random.below(granted.len() as u64) as usize]
                }
                _ => {
                    let pointer = self.accept_pointer[input];
                    let distance = |output: &usize| (output + n - pointer) % n;
                    let nearest = self.grants[input].iter().copied();
                    nearest.min_by_key(distance).unwrap_or(0)
                }
            };
            self.input_of[output] = input;
            self.output_of[input] = output;
            let is_slip = matches!(self.matching, Matching::Slip { .. });
            if is_slip && is_first {
                self.grant_pointer[output] = (input + 1) % n;
            }
            if moves_always || is_slip && is_first {
                self.accept_pointer[input] = (output + 1) % n;
            }
        }
        has_matched
    }

    /// The input that an output grants to.
    fn pick(
        &self,
        pointer: usize,
        asks: impl Fn(usize) -> bool,
        random: &mut RandomStream,
    ) -> Option<usize> {
        let n = self.n;
        if matches!(self.matching, Matching::Parallel { .. }) {
            let asking = (0..n).filter(|input| asks(*input)).count() as u64;
            if asking == 0 {
                return None;
            }
            let place = random.below(asking) as usize;
            return (0..n).filter(|input| asks(*input)).nth(place);
        }
        (0..n).map(|i| (pointer + i) % n).find(|input| asks(*input))
    }

    /// Maximum-weight matching by the best set of outputs for the first inputs.
    fn heaviest(&mut self, queues: &[u64]) {
        let n = self.n;
        let sets = 1_usize << n;
        // best[i][set]: heaviest matching of the first i inputs with outputs of the set.
        let mut best = vec![0_u64; (n + 1) * sets];
        for input in 0..n {
            for set in 0..sets {
                let mut most = best[input * sets + set];
                for output in (0..n).filter(|output| set >> output & 1 == 1) {
                    let without = best[input * sets + (set & !(1 << output))];
                    most = most.max(without + queues[input * n + output]);
                }
                best[(input + 1) * sets + set] = most;
            }
        }
        let mut set = sets - 1;
        for input in (0..n).rev() {
            let total = best[(input + 1) * sets + set];
            if total == best[input * sets + set] {
                continue;
            }
            let fits = |output: &usize| {
                set >> output & 1 == 1
                    && best[input * sets + (set & !(1 << output))] + queues[input * n + output]
                        == total
            };
            if let Some(output) = (0..n).find(fits) {
                self.output_of[input] = output;
                self.input_of[output] = input;
                set &= !(1 << output);
            }
        }
    }
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
