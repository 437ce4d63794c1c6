//! Speed of the kernel: events per second of a small world, all costs included.
//!
//! Each node passes its tokens on to random nodes after a random time (the PHOLD benchmark of
//! parallel simulation), so an event costs a pop, a trace step, two random draws and a push. Wheel
//! and heap take turns and must give the same trace hash.
//!
//! Run with `cargo run --release -p livetime-fabric --example event_rate`.

use std::time::Instant;

use livetime_fabric::random::{Purpose, RandomStream, RandomStreams};
use livetime_fabric::{
    DurationPs, EventClass, EventLabel, NodeId, QueueKind, RunLimits, Scheduler, SimPs, Simulation,
    SimulationConfig, World,
};

const NODES: u32 = 1_024;
const EVENTS: u64 = 5_000_000;
const REPETITIONS: u32 = 3;
const CABLE: DurationPs = DurationPs::from_ns(125);
const SPREAD: DurationPs = DurationPs::from_us(4);

#[derive(Clone, Copy)]
struct Token {
    node: NodeId,
    number: u32,
}

struct Phold {
    streams: Vec<RandomStream>,
    handled: Vec<u64>,
}

impl World for Phold {
    type Event = Token;

    fn label(&self, token: &Token) -> EventLabel {
        EventLabel {
            node: token.node,
            kind: 0,
            key: u64::from(token.number),
        }
    }

    fn handle(&mut self, _now: SimPs, token: Token, scheduler: &mut Scheduler<Token>) {
        let stream = &mut self.streams[token.node.index()];
        self.handled[token.node.index()] += 1;
        let node = NodeId(stream.below(u64::from(NODES)) as u32);
        let delay = CABLE + stream.between(DurationPs::ZERO, SPREAD);
        scheduler.after(delay, EventClass(0), Token { node, ..token });
    }
}

fn events_per_second(queue: QueueKind, tokens: u32) -> (f64, String) {
    let streams = RandomStreams::new(1);
    let world = Phold {
        streams: (0..NODES)
            .map(|node| streams.stream(NodeId(node), Purpose(0)))
            .collect(),
        handled: vec![0; NODES as usize],
    };
    let config = SimulationConfig {
        queue,
        ..SimulationConfig::default()
    };
    let mut simulation = Simulation::new(world, config);
    for number in 0..tokens {
        let token = Token {
            node: NodeId(number % NODES),
            number,
        };
        simulation.schedule(SimPs(u64::from(number) * 400), EventClass(0), token);
    }
    simulation.run(RunLimits::new(SimPs::MAX, EVENTS / 10));
    let start = Instant::now();
    let report = simulation.run(RunLimits::new(SimPs::MAX, EVENTS / 10 + EVENTS));
    let rate = EVENTS as f64 / start.elapsed().as_secs_f64();
    assert_eq!(
        simulation.world().handled.iter().sum::<u64>(),
        report.events
    );
    (rate, report.trace_hash.to_string())
}

fn main() {
    println!(
        "{:>9}  {:>14}  {:>14}  trace hash",
        "pending", "wheel", "heap"
    );
    for tokens in [1_000, 10_000, 100_000] {
        let mut best = [0.0_f64; 2];
        let mut hashes = Vec::new();
        for _ in 0..REPETITIONS {
            for (queue, best) in [QueueKind::Wheel, QueueKind::Heap]
                .into_iter()
                .zip(&mut best)
            {
                let (rate, hash) = events_per_second(queue, tokens);
                *best = best.max(rate);
                hashes.push(hash);
            }
        }
        hashes.dedup();
        assert_eq!(hashes.len(), 1, "wheel and heap tell different stories");
        let [wheel, heap] = best.map(|rate| rate * 1e-6);
        println!(
            "{tokens:>9}  {wheel:>8.1} M ev/s  {heap:>8.1} M ev/s  {}",
            hashes[0]
        );
    }
}
