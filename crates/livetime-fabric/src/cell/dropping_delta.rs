//! A delta network without buffers whose crossbars drop the losers.
//!
//! Every cycle each source offers a cell with the given probability; at each stage a random one of
//! those that want an output survives. The reference is
//! [`crate::analytic::multistage::unbuffered_delta`]; one stage is a crossbar that drops.

use super::stream;

/// Cells delivered per port and cycle of a network of `radix`^`stages` ports at `load`.
pub fn throughput(radix: u32, stages: u32, load: f64, cycles: u64, seed: u64) -> f64 {
    let (k, nodes) = (radix as usize, radix.pow(stages) as usize);
    let per_stage = nodes / k;
    let mut random = stream(seed);
    const EMPTY: u32 = u32::MAX;
    let mut at = vec![EMPTY; nodes];
    let mut next = vec![EMPTY; nodes];
    let mut rivals = vec![0_u64; nodes];
    let mut delivered = 0;
    for _ in 0..cycles {
        for cell in &mut at {
            *cell = EMPTY;
            if random.unit() < load {
                *cell = random.below(nodes as u64) as u32;
            }
        }
        for stage in 0..stages {
            let place = nodes / k.pow(stage + 1);
            next.fill(EMPTY);
            rivals.fill(0);
            for (link, cell) in at.iter().enumerate().filter(|(_, cell)| **cell != EMPTY) {
                let output = link % per_stage * k + *cell as usize / place % k;
                rivals[output] += 1;
                if rivals[output] == 1 || random.below(rivals[output]) == 0 {
                    next[output] = *cell;
                }
            }
            core::mem::swap(&mut at, &mut next);
        }
        delivered += at.iter().filter(|cell| **cell != EMPTY).count();
    }
    delivered as f64 / cycles as f64 / nodes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytic::multistage::unbuffered_delta;

    #[test]
    fn survivors_follow_the_recursion() {
        for (radix, stages, load) in [(4, 1, 1.0), (4, 2, 1.0), (2, 4, 0.5)] {
            let found = throughput(radix, stages, load, 10_000, 1);
            let formula = unbuffered_delta(radix, stages, load);
            assert!((found - formula).abs() < 0.006, "{found} {formula}");
        }
    }
}
