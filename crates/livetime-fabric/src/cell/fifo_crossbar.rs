//! A crossbar with one FIFO at each input that never runs empty: head-of-line blocking.
//!
//! Each slot an output takes cells from the heads that want it, as its arbiter chooses; the next
//! destination of an input is drawn when its head has left, so no arbiter can see it. With `passes`
//! above 1 and queues at the outputs it is a switch with speed-up.

use crate::network::Arbiter;

use super::stream;

/// How the crossbar works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FifoCrossbar {
    /// Inputs, and outputs.
    pub ports: u32,
    /// Who of the heads is taken.
    pub arbiter: Arbiter,
    /// The most heads that an output takes in a pass; each input sends one.
    pub accepts: u32,
    /// Passes of a slot, in which inputs may send again: the speed-up of the fabric.
    pub passes: u32,
    /// Whether what an output takes beyond one cell a slot waits in its queue; if not, it counts
    /// as delivered at once.
    pub has_output_queues: bool,
}

impl FifoCrossbar {
    /// The plain one: an output takes one cell a slot.
    pub const fn new(ports: u32, arbiter: Arbiter) -> Self {
        Self {
            ports,
            arbiter,
            accepts: 1,
            passes: 1,
            has_output_queues: false,
        }
    }

    /// Cells delivered per port and slot over `slots` slots after a tenth more of warm-up.
    pub fn throughput(&self, slots: u64, seed: u64) -> f64 {
        let n = self.ports as usize;
        let mut random = stream(seed);
        let mut heads: Vec<u32> = (0..n)
            .map(|_| random.below(u64::from(self.ports)) as u32)
            .collect();
        let mut state = State {
            since: vec![0; n],
            last: vec![0; n],
            served: vec![0; n * n],
            grants: 0,
        };
        let mut waiting: Vec<Vec<u32>> = vec![Vec::with_capacity(n); n];
        let mut queued = vec![0_u64; n];
        let warm_up = slots / 10;
        let mut delivered = 0;
        for slot in 0..warm_up + slots {
            for _ in 0..self.passes {
                waiting.iter_mut().for_each(Vec::clear);
                for (input, output) in heads.iter().enumerate() {
                    waiting[*output as usize].push(input as u32);
                }
                for (output, contenders) in waiting.iter_mut().enumerate() {
                    for _ in 0..self.accepts {
                        if contenders.is_empty() {
                            break;
                        }
                        let place = self.choose(output, contenders, &state, &mut random);
                        let input = contenders.swap_remove(place) as usize;
                        state.serve(output, input, slot);
                        heads[input] = random.below(u64::from(self.ports)) as u32;
                        queued[output] += 1;
                    }
                }
            }
            let mut left = 0;
            for queue in &mut queued {
                let leave = if self.has_output_queues {
                    (*queue).min(1)
                } else {
                    *queue
                };
                *queue -= leave;
                left += leave;
            }
            if slot >= warm_up {
                delivered += left;
            }
        }
        delivered as f64 / slots as f64 / f64::from(self.ports)
    }

    /// Place in the list of the contender that is taken.
    fn choose(
        &self,
        output: usize,
        contenders: &[u32],
        state: &State,
        random: &mut crate::random::RandomStream,
    ) -> usize {
        let n = u64::from(self.ports);
        if self.arbiter == Arbiter::Random {
            return random.below(contenders.len() as u64) as usize;
        }
        let rank = |input: u32| match self.arbiter {
            Arbiter::Oldest => state.since[input as usize],
            Arbiter::RoundRobin => (u64::from(input) + n - 1 - state.last[output]) % n,
            Arbiter::LeastRecent => state.served[output * self.ports as usize + input as usize],
            Arbiter::Random | Arbiter::Fixed => 0,
        };
        let ranked = contenders.iter().enumerate();
        ranked
            .min_by_key(|(_, input)| (rank(**input), **input))
            .map_or(0, |(place, _)| place)
    }
}

/// What arbiters remember.
struct State {
    /// Slot in which the head of each input came there.
    since: Vec<u64>,
    /// Input that each output served last.
    last: Vec<u64>,
    /// Number of the grant in which an output served an input last.
    served: Vec<u64>,
    grants: u64,
}

impl State {
    fn serve(&mut self, output: usize, input: usize, slot: u64) {
        self.since[input] = slot + 1;
        self.last[output] = input as u64;
        self.grants += 1;
        let n = self.last.len();
        self.served[output * n + input] = self.grants;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytic::crossbar::fifo_inputs;

    #[test]
    fn every_arbiter_has_the_throughput_of_the_chain() {
        for ports in [1, 2, 4, 8] {
            let exact = fifo_inputs(ports).expect("in range");
            for arbiter in Arbiter::ALL {
                let found = FifoCrossbar::new(ports, arbiter).throughput(30_000, 1);
                assert!(
                    (found - exact).abs() < 0.006,
                    "{ports} {arbiter:?}: {found} {exact}"
                );
            }
        }
    }

    #[test]
    fn more_accepted_cells_and_speed_up() {
        let base = FifoCrossbar::new(16, Arbiter::Random);
        for (accepts, expected) in [(2, 0.8996), (3, 0.9818), (4, 0.9974)] {
            let found = FifoCrossbar { accepts, ..base }.throughput(20_000, 1);
            assert!((found - expected).abs() < 0.005, "{accepts}: {found}");
        }
        let speed_up = FifoCrossbar {
            passes: 2,
            has_output_queues: true,
            ..base
        };
        assert!(speed_up.throughput(20_000, 1) > 0.999);
    }
}
