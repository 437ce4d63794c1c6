//! A delta network with a FIFO of b cells at each crossbar input and back-pressure.
//!
//! Sources are saturated, destinations uniform, every output takes a random one of the heads that
//! want it. Whether a place that becomes free in a cycle may be filled in the same cycle is a named
//! option, because throughput depends on it by up to half.

use crate::random::RandomStream;

use super::stream;

/// When a place that becomes free may be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refill {
    /// In the same cycle: last stage served first.
    SameCycle,
    /// In the next one: there must be a place at the start of the cycle, for sources too.
    NextCycle,
}

/// A network of `radix`^`stages` ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferedDelta {
    /// Ports of a crossbar.
    pub radix: u32,
    /// Stages.
    pub stages: u32,
    /// Cells of a FIFO of one lane.
    pub cells: u32,
    /// FIFOs of each input (virtual lanes); a cell keeps the lane that its source draws.
    pub lanes: u32,
    /// When places are filled.
    pub refill: Refill,
}

struct Fifo {
    cells: Vec<u32>,
    head: Vec<u16>,
    len: Vec<u16>,
    depth: usize,
}

impl Fifo {
    fn new(queues: usize, depth: u32) -> Self {
        Self {
            cells: vec![0; queues * depth as usize],
            head: vec![0; queues],
            len: vec![0; queues],
            depth: depth as usize,
        }
    }

    fn first(&self, queue: usize) -> u32 {
        self.cells[queue * self.depth + usize::from(self.head[queue])]
    }

    fn push(&mut self, queue: usize, cell: u32) {
        let place = (usize::from(self.head[queue]) + usize::from(self.len[queue])) % self.depth;
        self.cells[queue * self.depth + place] = cell;
        self.len[queue] += 1;
    }

    fn pop(&mut self, queue: usize) -> u32 {
        let cell = self.first(queue);
        self.head[queue] = ((usize::from(self.head[queue]) + 1) % self.depth) as u16;
        self.len[queue] -= 1;
        cell
    }
}

impl BufferedDelta {
    /// One lane of `cells` cells.
    pub const fn new(radix: u32, stages: u32, cells: u32, refill: Refill) -> Self {
        Self {
            radix,
            stages,
            cells,
            lanes: 1,
            refill,
        }
    }

    /// Cells delivered per port and cycle over `cycles` cycles after `warm_up` more.
    pub fn throughput(&self, warm_up: u64, cycles: u64, seed: u64) -> f64 {
        let mut state = State::new(*self, seed);
        let mut delivered = 0;
        for cycle in 0..warm_up + cycles {
            let arrived = state.cycle(cycle + 1);
            if cycle >= warm_up {
                delivered += arrived;
            }
        }
        delivered as f64 / cycles as f64 / state.nodes as f64
    }
}

struct State {
    network: BufferedDelta,
    nodes: usize,
    /// The FIFOs in front of each stage, by (stage, link that leads to it, lane).
    fifo: Fifo,
    /// Whether each FIFO had a place at the start of the cycle.
    room: Vec<bool>,
    /// Cycle in which each link into a stage was used last: one cell a cycle, whatever its lane.
    used: Vec<u64>,
    /// The lane that each output looks at first.
    lane_turn: Vec<usize>,
    random: RandomStream,
}

impl State {
    fn new(network: BufferedDelta, seed: u64) -> Self {
        let nodes = network.radix.pow(network.stages) as usize;
        let links = network.stages as usize * nodes;
        let queues = links * network.lanes as usize;
        Self {
            network,
            nodes,
            fifo: Fifo::new(queues, network.cells),
            room: vec![false; queues],
            used: vec![0; links],
            lane_turn: vec![0; links],
            random: stream(seed),
        }
    }

    /// One cycle; the number of cells that arrived.
    fn cycle(&mut self, cycle: u64) -> u64 {
        if self.network.refill == Refill::NextCycle {
            for (room, len) in self.room.iter_mut().zip(&self.fifo.len) {
                *room = u32::from(*len) < self.network.cells;
            }
        }
        let mut delivered = 0;
        for stage in (0..self.network.stages as usize).rev() {
            for output in 0..self.nodes {
                delivered += self.serve(stage, output, cycle);
            }
        }
        self.feed();
        delivered
    }

    fn has_room(&self, queue: usize) -> bool {
        match self.network.refill {
            Refill::SameCycle => u32::from(self.fifo.len[queue]) < self.network.cells,
            Refill::NextCycle => self.room[queue],
        }
    }

    /// Lets an output of a stage take a cell; 1 if it left the network.
    fn serve(&mut self, stage: usize, output: usize, cycle: u64) -> u64 {
        let (nodes, lanes) = (self.nodes, self.network.lanes as usize);
        let is_last = stage + 1 == self.network.stages as usize;
        let next = (stage + 1) * nodes + output;
        let first = self.lane_turn[stage * nodes + output];
        for lane in (0..lanes).map(|lane| (first + lane) % lanes) {
            if !is_last && !self.has_room(next * lanes + lane) {
                continue;
            }
            let Some(link) = self.choose(stage, output, lane, cycle) else {
                continue;
            };
            self.lane_turn[stage * nodes + output] = (lane + 1) % lanes;
            self.used[link] = cycle;
            let cell = self.fifo.pop(link * lanes + lane);
            if !is_last {
                self.fifo.push(next * lanes + lane, cell);
            }
            return u64::from(is_last);
        }
        0
    }

    /// A random one of the links into the crossbar whose head of this lane wants the output.
    fn choose(&mut self, stage: usize, output: usize, lane: usize, cycle: u64) -> Option<usize> {
        let (nodes, lanes) = (self.nodes, self.network.lanes as usize);
        let k = self.network.radix as usize;
        let (crossbar, port) = (output / k, output % k);
        let place = nodes / k.pow(stage as u32 + 1);
        let (mut chosen, mut rivals) = (None, 0);
        for input in 0..k {
            let link = stage * nodes + input * (nodes / k) + crossbar;
            let queue = link * lanes + lane;
            let wants = self.fifo.len[queue] > 0
                && self.used[link] != cycle
                && self.fifo.first(queue) as usize / place % k == port;
            if wants {
                rivals += 1;
                if rivals == 1 || self.random.below(rivals) == 0 {
                    chosen = Some(link);
                }
            }
        }
        chosen
    }

    /// Saturated sources: each fills its place at the first stage.
    fn feed(&mut self) {
        let lanes = self.network.lanes as usize;
        for source in 0..self.nodes {
            let lane = match lanes {
                1 => 0,
                _ => self.random.below(lanes as u64) as usize,
            };
            let queue = source * lanes + lane;
            if self.has_room(queue) {
                let cell = self.random.below(self.nodes as u64) as u32;
                self.fifo.push(queue, cell);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_network_table() {
        let table = [
            (1, Refill::SameCycle, 0.499),
            (4, Refill::SameCycle, 0.566),
            (1, Refill::NextCycle, 0.310),
            (2, Refill::NextCycle, 0.512),
        ];
        for (cells, refill, expected) in table {
            let found = BufferedDelta::new(4, 2, cells, refill).throughput(500, 10_000, 1);
            assert!(
                (found - expected).abs() < 0.008,
                "{cells} {refill:?}: {found}"
            );
        }
    }

    #[test]
    fn one_stage_is_a_crossbar() {
        let found = BufferedDelta::new(8, 1, 4, Refill::SameCycle).throughput(200, 10_000, 1);
        assert!((found - 0.618_39).abs() < 0.008, "{found}");
    }
}
