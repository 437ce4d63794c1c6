//! The scheduler of a crossbar: which inputs are matched with which outputs.
//!
//! Parallel iterative matching (random grants and accepts), iSLIP (round-robin pointers that move
//! only when a grant of the first iteration is accepted), round-robin matching (pointers that
//! always move), and maximum-weight matching as an oracle for few ports. The pointers outlive a
//! matching; when one is made, and of what, is said by [`crate::cell::MatchedSwitch`] in slots and by
//! [`crate::network::buffered`] in simulated time.

use crate::random::RandomStream;

/// The most ports of [`Matching::MaximumWeight`], whose cost grows as 2^ports.
pub const MAXIMUM_WEIGHT_PORTS: u32 = 8;
/// No partner.
pub(crate) const UNMATCHED: usize = usize::MAX;

/// How inputs and outputs are matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// Random grants, random accepts.
    Parallel {
        /// Rounds of a matching.
        iterations: u32,
    },
    /// Round robin; pointers move past what was accepted in the first iteration.
    Slip {
        /// Rounds of a matching.
        iterations: u32,
    },
    /// Round robin; pointers move past what was granted, accepted or not.
    RoundRobin {
        /// Rounds of a matching.
        iterations: u32,
        /// Whether they move in every iteration or in the first alone.
        moves_in_all: bool,
    },
    /// The heaviest matching, weight being what waits.
    MaximumWeight,
}

/// A crossbar's scheduler. Requests are collected, then matched.
#[derive(Debug)]
pub(crate) struct Matcher {
    matching: Matching,
    /// Inputs that ask, by output.
    requests: Vec<Vec<u32>>,
    /// Weights by input and output, for [`Matching::MaximumWeight`] alone.
    weights: Vec<u64>,
    grant_pointer: Vec<usize>,
    accept_pointer: Vec<usize>,
    input_of: Vec<usize>,
    output_of: Vec<usize>,
    /// Outputs that grant to an input in this round.
    grants: Vec<Vec<usize>>,
    /// See [`Matcher::heaviest`].
    best: Vec<u64>,
}

impl Matcher {
    /// With all pointers at the first port.
    ///
    /// # Panics
    /// For maximum-weight matching with more than [`MAXIMUM_WEIGHT_PORTS`] ports.
    pub(crate) fn new(inputs: usize, outputs: usize, matching: Matching) -> Self {
        let (weights, best) = match matching {
            Matching::MaximumWeight => {
                assert!(inputs.max(outputs) <= MAXIMUM_WEIGHT_PORTS as usize);
                (inputs * outputs, (inputs + 1) << outputs)
            }
            _ => (0, 0),
        };
        Self {
            matching,
            requests: vec![Vec::with_capacity(inputs); outputs],
            weights: vec![0; weights],
            grant_pointer: vec![0; outputs],
            accept_pointer: vec![0; inputs],
            input_of: vec![UNMATCHED; outputs],
            output_of: vec![UNMATCHED; inputs],
            grants: vec![Vec::with_capacity(outputs); inputs],
            best: vec![0; best],
        }
    }

    /// Forgets requests and matches.
    pub(crate) fn clear(&mut self) {
        self.requests.iter_mut().for_each(Vec::clear);
        self.weights.fill(0);
        self.input_of.fill(UNMATCHED);
        self.output_of.fill(UNMATCHED);
    }

    /// An input has something for an output, once at most; `weight` is how much, above 0.
    pub(crate) fn request(&mut self, input: usize, output: usize, weight: u64) {
        self.requests[output].push(input as u32);
        let outputs = self.requests.len();
        if let Some(place) = self.weights.get_mut(input * outputs + output) {
            *place = weight;
        }
    }

    /// The output of each input, or [`UNMATCHED`].
    pub(crate) fn outputs(&self) -> &[usize] {
        &self.output_of
    }

    /// Matches those that ask.
    pub(crate) fn schedule(&mut self, random: &mut RandomStream) {
        match self.matching {
            Matching::MaximumWeight => self.heaviest(),
            Matching::Parallel { iterations }
            | Matching::Slip { iterations }
            | Matching::RoundRobin { iterations, .. } => {
                for iteration in 0..iterations {
                    if !self.round(iteration == 0, random) {
                        break;
                    }
                }
            }
        }
    }

    /// One round of grants and accepts; whether it matched anything.
    fn round(&mut self, is_first: bool, random: &mut RandomStream) -> bool {
        let (inputs, outputs) = (self.grants.len(), self.requests.len());
        let moves_always = match self.matching {
            Matching::RoundRobin { moves_in_all, .. } => is_first || moves_in_all,
            _ => false,
        };
        self.grants.iter_mut().for_each(Vec::clear);
        for output in 0..outputs {
            if self.input_of[output] != UNMATCHED {
                continue;
            }
            if let Some(input) = self.pick(output, random) {
                self.grants[input].push(output);
                if moves_always {
                    self.grant_pointer[output] = (input + 1) % inputs;
                }
            }
        }
        let mut has_matched = false;
        for input in 0..inputs {
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
                    let distance = |output: &usize| (output + outputs - pointer) % outputs;
                    let nearest = self.grants[input].iter().copied();
                    nearest.min_by_key(distance).unwrap_or(0)
                }
            };
            self.input_of[output] = input;
            self.output_of[input] = output;
            let is_slip = matches!(self.matching, Matching::Slip { .. });
            if is_slip && is_first {
                self.grant_pointer[output] = (input + 1) % inputs;
            }
            if moves_always || is_slip && is_first {
                self.accept_pointer[input] = (output + 1) % outputs;
            }
        }
        has_matched
    }

    /// The input that an output grants to.
    fn pick(&self, output: usize, random: &mut RandomStream) -> Option<usize> {
        let inputs = self.grants.len();
        let asking = self.requests[output].iter().map(|input| *input as usize);
        let mut asking = asking.filter(|input| self.output_of[*input] == UNMATCHED);
        if !matches!(self.matching, Matching::Parallel { .. }) {
            let pointer = self.grant_pointer[output];
            return asking.min_by_key(|input| (input + inputs - pointer) % inputs);
        }
        match asking.clone().count() as u64 {
            0 => None,
            count => asking.nth(random.below(count) as usize),
        }
    }

    /// Maximum-weight matching by the best set of outputs for the first inputs.
    fn heaviest(&mut self) {
        let (inputs, outputs) = (self.grants.len(), self.requests.len());
        let (weights, best) = (&self.weights, &mut self.best);
        let sets = 1_usize << outputs;
        // best[i][set]: heaviest matching of the first i inputs with outputs of the set.
        for input in 0..inputs {
            for set in 0..sets {
                let mut most = best[input * sets + set];
                for output in (0..outputs).filter(|output| set >> output & 1 == 1) {
                    let without = best[input * sets + (set & !(1 << output))];
                    most = most.max(without + weights[input * outputs + output]);
                }
                best[(input + 1) * sets + set] = most;
            }
        }
        let mut set = sets - 1;
        for input in (0..inputs).rev() {
            let total = best[(input + 1) * sets + set];
            if total == best[input * sets + set] {
                continue;
            }
            let fits = |output: &usize| {
                set >> output & 1 == 1
                    && best[input * sets + (set & !(1 << output))]
                        + weights[input * outputs + output]
                        == total
            };
            if let Some(output) = (0..outputs).find(fits) {
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
    use crate::address::NodeId;
    use crate::random::{Purpose, RandomStreams};

    fn matched(matcher: &mut Matcher, requests: &[(usize, usize)]) -> Vec<usize> {
        let mut random = RandomStreams::new(1).stream(NodeId(0), Purpose(1));
        matcher.clear();
        for (input, output) in requests {
            matcher.request(*input, *output, 1);
        }
        matcher.schedule(&mut random);
        matcher.outputs().to_vec()
    }

    #[test]
    fn pointers_of_slip_move_with_accepts_alone_and_those_of_round_robin_always() {
        // Both inputs ask for both outputs: both grant input 0, which takes output 0.
        let all = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let mut slip = Matcher::new(2, 2, Matching::Slip { iterations: 1 });
        assert_eq!(matched(&mut slip, &all), [0, UNMATCHED]);
        // Output 0 has moved on to input 1, output 1 still grants input 0.
        assert_eq!(matched(&mut slip, &all), [1, 0]);
        let always = Matching::RoundRobin {
            iterations: 1,
            moves_in_all: true,
        };
        let mut round_robin = Matcher::new(2, 2, always);
        assert_eq!(matched(&mut round_robin, &all), [0, UNMATCHED]);
        assert_eq!(matched(&mut round_robin, &all), [UNMATCHED, 0]);
    }

    #[test]
    fn unequal_sides_and_orders_of_requests_are_matched() {
        for matching in [Matching::Slip { iterations: 3 }, Matching::MaximumWeight] {
            let mut matcher = Matcher::new(3, 2, matching);
            let found = matched(&mut matcher, &[(2, 1), (0, 1), (2, 0)]);
            assert_eq!(found, [1, UNMATCHED, 0], "{matching:?}");
            assert_eq!(matched(&mut matcher, &[]), [UNMATCHED; 3]);
        }
    }
}
