//! One N x N crossbar: throughput and waiting under uniform traffic.
//!
//! Formulas after Karol, Hluchyj, Morgan (IEEE Trans. Commun. 35, 1987), Anderson et al. (ACM
//! TOCS 1993) and McKeown (IEEE/ACM Trans. Netw. 7, 1999); the chain of [`fifo_inputs`] is exact
//! for every N. All loads and throughputs are fractions of the link rate. Networks of several
//! crossbars are in [`super::multistage`].

use std::collections::BTreeMap;

/// The most ports for which [`fifo_inputs`] solves its chain: 8349 states at 32 ports.
pub const FIFO_PORTS_MAX: u32 = 32;

/// Relative change of the throughput per step below which the chain counts as settled.
const SETTLED: f64 = 1e-14;
/// Steps after which the chain is taken as it is; it settles in less than 300 at all sizes.
const STEPS_MAX: u32 = 5_000;

/// Throughput per port of input FIFOs that never run empty, with head-of-line blocking: fixed
/// cells, synchronous slots, uniform destinations, any arbiter that does not look behind the head.
///
/// Stationary state of the exact chain over the occupancies of the N head-of-line queues; `None`
/// for 0 ports and above [`FIFO_PORTS_MAX`]. For more ports see [`fifo_inputs_limit`].
pub fn fifo_inputs(ports: u32) -> Option<f64> {
    (1..=FIFO_PORTS_MAX)
        .contains(&ports)
        .then(|| HeadOfLineChain::new(ports).throughput())
}

/// Limit of [`fifo_inputs`] for many ports: 2 - sqrt 2 = 0.585786.
pub fn fifo_inputs_limit() -> f64 {
    2.0 - 2.0_f64.sqrt()
}

/// Throughput per port of input FIFOs with packets of exponential length, not synchronised:
/// N / (2 N - 1), from the closed product-form network; limit 1/2.
pub fn fifo_inputs_exponential(ports: u32) -> f64 {
    let n = f64::from(ports);
    n / (2.0 * n - 1.0)
}

/// Throughput per port when losers are dropped instead of queued: 1 - (1 - p/N)^N at load `p`;
/// limit 1 - 1/e. Also a saturated VOQ switch with one iteration of parallel iterative matching.
pub fn losers_dropped(ports: u32, load: f64) -> f64 {
    let n = f64::from(ports);
    1.0 - (1.0 - load / n).powf(n)
}

/// Mean wait in slots before service in a switch with output queues at Bernoulli load `p`:
/// (N-1)/N * p / (2 (1-p)); infinite at full load.
pub fn output_queue_wait_slots(ports: u32, load: f64) -> f64 {
    let n = f64::from(ports);
    (n - 1.0) / n * load / (2.0 * (1.0 - load))
}

/// Load above which dropping losers carries more than queueing at the inputs: ln(1 + sqrt 2).
pub fn dropping_crossover() -> f64 {
    (1.0 + 2.0_f64.sqrt()).ln()
}

/// Mean number of iterations in which parallel iterative matching is maximal, at most: log2 N + 4/3.
pub fn matching_iterations(ports: u32) -> f64 {
    f64::from(ports).log2() + 4.0 / 3.0
}

/// Speed-up with which a combined input and output queued switch with virtual output queues
/// does exactly what an output queued one does: 2 - 1/N (Chuang et al., JSAC 17, 1999).
pub fn emulation_speed_up(ports: u32) -> f64 {
    2.0 - 1.0 / f64::from(ports)
}

/// Throughput of round-robin matching whose pointers always advance, saturated and started with
/// equal grant pointers: 1/N, since all outputs grant the same input for ever.
pub fn round_robin_matching_locked(ports: u32) -> f64 {
    1.0 / f64::from(ports)
}

/// How many times faster than a link the memory of an output queue must work: N writes and one
/// read in the time of a cell.
pub const fn output_memory_speed_up(ports: u32) -> u32 {
    ports + 1
}

/// Occupancies of the head-of-line queues as partitions of N: queues are alike, so only the
/// multiset counts.
struct HeadOfLineChain {
    ports: u32,
    /// `layers[j]`: the partitions of j into at most N parts.
    layers: Vec<Vec<Vec<u8>>>,
    /// `added[j][i]`: where partition i of j goes when one more packet joins a random queue.
    added: Vec<Vec<Vec<(usize, f64)>>>,
    /// `served[i]`: layer and partition after each busy queue of state i has served one.
    served: Vec<(usize, usize)>,
}

impl HeadOfLineChain {
    fn new(ports: u32) -> Self {
        let n = ports as usize;
        let layers: Vec<Vec<Vec<u8>>> = (0..=n).map(partitions).collect();
        let index: Vec<BTreeMap<&[u8], usize>> = layers
            .iter()
            .map(|layer| {
                let numbered = layer.iter().enumerate();
                numbered.map(|(i, parts)| (parts.as_slice(), i)).collect()
            })
            .collect();
        let added = (0..n)
            .map(|j| {
                let layer = layers[j].iter();
                layer.map(|parts| joins(parts, n, &index[j + 1])).collect()
            })
            .collect();
        let served = layers[n]
            .iter()
            .map(|parts| {
                let left: Vec<u8> = parts.iter().map(|c| c - 1).filter(|c| *c > 0).collect();
                let layer = n - parts.len();
                (layer, index[layer][left.as_slice()])
            })
            .collect();
        Self {
            ports,
            layers,
            added,
            served,
        }
    }

    fn throughput(&self) -> f64 {
        let n = self.ports as usize;
        let mut state = vec![0.0; self.layers[n].len()];
        state[0] = 1.0;
        let mut last = 0.0;
        for _ in 0..STEPS_MAX {
            let busy: f64 = state
                .iter()
                .zip(&self.layers[n])
                .map(|(p, parts)| p * parts.len() as f64)
                .sum();
            let throughput = busy / f64::from(self.ports);
            if (throughput - last).abs() < SETTLED {
                break;
            }
            last = throughput;
            state = self.step(&state);
        }
        last
    }

    /// Serves every busy queue, then lets the freed inputs choose queues one after the other.
    fn step(&self, state: &[f64]) -> Vec<f64> {
        let mut layers: Vec<Vec<f64>> = self
            .layers
            .iter()
            .map(|layer| vec![0.0; layer.len()])
            .collect();
        for (p, (layer, to)) in state.iter().zip(&self.served) {
            layers[*layer][*to] += p;
        }
        for (j, added) in self.added.iter().enumerate() {
            let (from, to) = layers.split_at_mut(j + 1);
            for (p, joins) in from[j].iter().zip(added) {
                for (target, share) in joins {
                    to[0][*target] += p * share;
                }
            }
        }
        layers.pop().unwrap_or_default()
    }
}

/// All partitions of `total`, parts falling.
fn partitions(total: usize) -> Vec<Vec<u8>> {
    fn extend(left: usize, most: usize, parts: &mut Vec<u8>, all: &mut Vec<Vec<u8>>) {
        if left == 0 {
            all.push(parts.clone());
            return;
        }
        for part in (1..=left.min(most)).rev() {
            parts.push(part as u8);
            extend(left - part, part, parts, all);
            parts.pop();
        }
    }
    let mut all = Vec::new();
    extend(total, total, &mut Vec::new(), &mut all);
    all
}

/// The partitions that one more packet makes of `parts`, with their probabilities.
fn joins(parts: &[u8], queues: usize, index: &BTreeMap<&[u8], usize>) -> Vec<(usize, f64)> {
    let mut joined = Vec::new();
    let mut from = 0;
    while from < parts.len() {
        let alike = parts[from..].iter().filter(|c| **c == parts[from]).count();
        let mut grown = parts.to_vec();
        // The first of equal parts grows, so that the parts stay sorted.
        grown[from] += 1;
        joined.push((index[grown.as_slice()], alike as f64 / queues as f64));
        from += alike;
    }
    if parts.len() < queues {
        let mut grown = parts.to_vec();
        grown.push(1);
        let share = (queues - parts.len()) as f64 / queues as f64;
        joined.push((index[grown.as_slice()], share));
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_line_table() {
        let table = [
            (1, 1.0),
            (2, 0.75),
            (3, 0.68254),
            (4, 0.655_242),
            (5, 0.639_917),
            (6, 0.630_15),
            (7, 0.623_371),
            (8, 0.618_39),
            (10, 0.611_56),
            (12, 0.607_097),
            (16, 0.601_616),
            (20, 0.598_377),
        ];
        for (ports, expected) in table {
            let found = fifo_inputs(ports).expect("in range");
            assert!((found - expected).abs() < 1e-5, "{ports}: {found}");
        }
        assert!((fifo_inputs_limit() - 0.585_786).abs() < 1e-6);
        assert_eq!((fifo_inputs(0), fifo_inputs(33)), (None, None));
    }

    #[test]
    fn closed_forms() {
        let rounded = |value: f64| (value * 1e4).round() / 1e4;
        let of = |f: fn(u32) -> f64, ports: [u32; 4]| ports.map(|n| rounded(f(n)));
        assert_eq!(
            of(fifo_inputs_exponential, [2, 4, 8, 16]),
            [0.6667, 0.5714, 0.5333, 0.5161]
        );
        assert_eq!(
            of(|n| losers_dropped(n, 1.0), [2, 4, 8, 16]),
            [0.75, 0.6836, 0.6564, 0.6439]
        );
        let waits = [0.5, 0.8, 0.9, 0.95].map(|load| output_queue_wait_slots(16, load));
        for (found, expected) in waits.iter().zip([0.469, 1.875, 4.219, 8.906]) {
            assert!((found - expected).abs() < 6e-4, "{found} {expected}");
        }
        assert!((dropping_crossover() - 0.881).abs() < 5e-4);
        assert!((losers_dropped(1_000_000, 1.0) - 0.6321).abs() < 1e-4);
        assert!((matching_iterations(16) - 5.333).abs() < 1e-3);
        assert_eq!(emulation_speed_up(2), 1.5);
        assert_eq!(round_robin_matching_locked(16), 0.0625);
        assert_eq!(output_memory_speed_up(512), 513);
    }
}
