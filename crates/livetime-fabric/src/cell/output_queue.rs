//! A switch with queues at its outputs: every cell crosses at once and waits there.
//!
//! Bernoulli arrivals, uniform destinations. Waits are taken from each cell and, independently,
//! from the mean queue by Little's law.

use std::collections::VecDeque;

use super::stream;

/// What a run measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueWait {
    /// Mean wait of a cell before it is sent, slots.
    pub wait_slots: f64,
    /// Mean number of cells that wait at an output.
    pub queue_cells: f64,
    /// Cells sent per output and slot.
    pub throughput: f64,
}

impl QueueWait {
    /// Mean wait by Little's law, slots.
    pub fn wait_by_little(&self) -> f64 {
        self.queue_cells / self.throughput
    }
}

/// Runs a switch of `ports` at load `load` (0 to below 1) for `slots` slots after as many of
/// warm-up divided by ten.
pub fn run(ports: u32, load: f64, slots: u64, seed: u64) -> QueueWait {
    let mut random = stream(seed);
    let mut queues: Vec<VecDeque<u64>> = vec![VecDeque::new(); ports as usize];
    let warm_up = slots / 10;
    let (mut waits, mut sent, mut waiting) = (0, 0_u64, 0_u64);
    for slot in 0..warm_up + slots {
        let counts = slot >= warm_up;
        for _ in 0..ports {
            if random.unit() < load {
                let output = random.below(u64::from(ports)) as usize;
                queues[output].push_back(slot);
            }
        }
        for queue in &mut queues {
            let Some(arrived) = queue.pop_front() else {
                continue;
            };
            if counts {
                waits += slot - arrived;
                sent += 1;
                waiting += queue.len() as u64;
            }
        }
    }
    let port_slots = slots as f64 * f64::from(ports);
    QueueWait {
        wait_slots: waits as f64 / sent.max(1) as f64,
        queue_cells: waiting as f64 / port_slots,
        throughput: sent as f64 / port_slots,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytic::crossbar::output_queue_wait_slots;

    #[test]
    fn waits_follow_the_formula_and_little() {
        for load in [0.5, 0.8] {
            let found = run(16, load, 60_000, 1);
            let formula = output_queue_wait_slots(16, load);
            assert!((found.wait_slots / formula - 1.0).abs() < 0.03, "{found:?}");
            let little = found.wait_by_little() / found.wait_slots;
            assert!((little - 1.0).abs() < 0.01, "{found:?}");
        }
    }
}
