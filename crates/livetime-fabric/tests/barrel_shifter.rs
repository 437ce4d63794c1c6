//! The barrel shifter at work: 16 readout units and 16 builder units on a crossbar, events given out
//! by the event manager, fragments of many sizes in blocks of one.
//!
//! A port takes one block at a time and makes later ones wait, in the order in which they come:
//! the back-pressure that keeps the shifters in step. Everything is simulated; a block takes one
//! unit of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use livetime_builder::{
    BarrelShifter, BlockAssembler, BuilderConfig, EventManager, Pace, ShiftSchedule,
};
use livetime_wire::message::{BuilderMessage, Envelope};
use livetime_wire::{DurationNs, L2Mask, RunNs, SourceId, TriggerNumber, UnitId};

const UNITS: u16 = 16;
const BLOCK_BYTES: u32 = 4096;
const BLOCK_TIME: u64 = 1_000;
/// Events per builder unit that are under way at a time.
const CREDITS: u32 = 24;

/// Bytes of a fragment: 256 to 3840, 2048 on average.
fn size(trigger: u64, source: u16) -> u32 {
    let mixed = (trigger * 31 + u64::from(source)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    256 + (mixed >> 40) as u32 % 3585
}

struct Hall {
    manager: EventManager,
    shifters: Vec<BarrelShifter>,
    /// By builder and readout unit.
    assemblers: Vec<Vec<BlockAssembler>>,
    /// Fragments of each event that are still to come.
    missing: BTreeMap<TriggerNumber, u16>,
    /// By builder unit: when it is through with what it has, and what one event costs it.
    free_at: Vec<u64>,
    event_time: Vec<u64>,
    /// Clears that are due, by time.
    clears: BinaryHeap<Reverse<(u64, u16, u64)>>,
    next_trigger: u64,
    sequences: Vec<u32>,
    accepts: u32,
    built: Vec<u64>,
    bytes: Vec<u64>,
}

/// What a run showed.
struct Shown {
    /// Time in which links carried blocks, of all time.
    link_use: f64,
    /// Payload bytes per builder unit and block time.
    bytes_per_step: Vec<f64>,
    built: Vec<u64>,
}

impl Hall {
    fn new(pace: impl Fn(u16) -> Pace, event_time: Vec<u64>) -> Self {
        let config = BuilderConfig {
            readout_units: (0..u32::from(UNITS)).map(|n| vec![SourceId(n)]).collect(),
            builder_units: UNITS,
            credits: CREDITS,
            evm_queue: 64,
            ..BuilderConfig::default()
        };
        assert_eq!(config.validate("builder"), []);
        let schedule = ShiftSchedule::in_order(UNITS, UNITS);
        let mut hall = Self {
            manager: EventManager::new(&config, 1),
            shifters: (0..UNITS)
                .map(|unit| {
                    let queue = CREDITS as usize;
                    BarrelShifter::new(schedule.clone(), unit, pace(unit), BLOCK_BYTES, queue)
                })
                .collect(),
            assemblers: (0..UNITS)
                .map(|_| (0..UNITS).map(|_| BlockAssembler::new()).collect())
                .collect(),
            missing: BTreeMap::new(),
            free_at: vec![0; UNITS.into()],
            event_time,
            clears: BinaryHeap::new(),
            next_trigger: 0,
            sequences: vec![0; UNITS.into()],
            accepts: 0,
            built: vec![0; UNITS.into()],
            bytes: vec![0; UNITS.into()],
        };
        for unit in 0..UNITS {
            hall.tell(
                UnitId::builder(unit),
                BuilderMessage::EventRequest { credits: CREDITS },
            );
        }
        hall
    }

    fn tell(&mut self, sender: UnitId, message: BuilderMessage) {
        let sequence = match sender {
            UnitId::SUPERVISOR => &mut self.accepts,
            _ => &mut self.sequences[usize::from(sender.index)],
        };
        let envelope = Envelope {
            sender,
            epoch: 1,
            sequence: *sequence,
            message,
        };
        *sequence += 1;
        let handled = self.manager.handle_message(RunNs(0), &envelope);
        assert_eq!(handled, livetime_builder::Handled::Taken);
    }

    /// Triggers for all credits, assignments to the shifters' queues.
    fn assign(&mut self, now: u64) {
        while let Some(Reverse((due, unit, trigger))) = self.clears.peek().copied() {
            if due > now {
                break;
            }
            self.clears.pop();
            let triggers = [TriggerNumber(trigger)].into_iter().collect();
            self.tell(UnitId::builder(unit), BuilderMessage::Clear { triggers });
        }
        loop {
            if self.manager.queued() == 0 {
                self.next_trigger += 1;
                let accept = BuilderMessage::L2Accept {
                    trigger: TriggerNumber(self.next_trigger),
                    mask: L2Mask(1),
                    triggered_at: RunNs(now),
                };
                self.tell(UnitId::SUPERVISOR, accept);
            }
            let Some(sent) = self.manager.poll_output(RunNs(now)) else {
                return;
            };
            let BuilderMessage::Assignment { trigger, .. } = sent.envelope.message else {
                panic!("{sent:?}");
            };
            self.missing.insert(trigger, UNITS);
            for (unit, shifter) in (0..UNITS).zip(&mut self.shifters) {
                let source = SourceId(unit.into());
                let pushed = shifter.push(sent.to.index, trigger, source, size(trigger.0, unit));
                assert_eq!(pushed, Ok(()), "the queue holds all credits");
            }
        }
    }

    /// Runs for `steps` block times; the first `warm` of them do not count.
    fn run(&mut self, start: impl Fn(u16) -> u64, steps: u64, warm: u64) -> Shown {
        let mut senders: BinaryHeap<_> = (0..UNITS).map(|n| Reverse((start(n), n))).collect();
        let mut port_free = vec![0; UNITS.into()];
        let (mut busy, mut blocks_from) = (0, vec![0; UNITS.into()]);
        while let Some(Reverse((now, sender))) = senders.pop() {
            if now >= steps * BLOCK_TIME {
                break;
            }
            self.assign(now);
            let shifter = &mut self.shifters[usize::from(sender)];
            let Some(block) = shifter.poll_block(RunNs(now)) else {
                senders.push(Reverse((shifter.poll_timeout().0.max(now + 1), sender)));
                continue;
            };
            let port: &mut u64 = &mut port_free[usize::from(block.to)];
            let ends = (*port).max(now) + BLOCK_TIME;
            *port = ends;
            senders.push(Reverse((ends, sender)));
            let is_counted = now >= warm * BLOCK_TIME;
            busy += u64::from(is_counted);
            blocks_from[usize::from(sender)] += 1;
            let to = usize::from(block.to);
            let mut whole = Vec::new();
            self.assemblers[to][usize::from(sender)]
                .handle_block(&block, |piece| whole.push(piece));
            for piece in whole {
                self.bytes[to] += u64::from(piece.total) * u64::from(is_counted);
                let left = self.missing.get_mut(&piece.trigger).expect("assigned");
                *left -= 1;
                if *left == 0 {
                    self.missing.remove(&piece.trigger);
                    self.free_at[to] = self.free_at[to].max(ends) + self.event_time[to];
                    let clear = (self.free_at[to], block.to, piece.trigger.0);
                    self.clears.push(Reverse(clear));
                    self.built[to] += u64::from(is_counted);
                }
            }
        }
        let (least, most) = (blocks_from.iter().min(), blocks_from.iter().max());
        assert!(
            most.zip(least)
                .is_some_and(|(most, least)| most - least <= 8),
            "out of step: {blocks_from:?}"
        );
        let counted = (steps - warm) as f64;
        Shown {
            link_use: busy as f64 / (counted * f64::from(UNITS)),
            bytes_per_step: self.bytes.iter().map(|b| *b as f64 / counted).collect(),
            built: self.built.clone(),
        }
    }
}

fn even() -> Vec<u64> {
    vec![BLOCK_TIME; UNITS.into()]
}

/// Given senders that begin at any time, when there is nothing but back-pressure, then they fall
/// into step and every link is used all the time; blocks are nearly full.
#[test]
fn back_pressure_alone_brings_all_into_step() {
    let mut hall = Hall::new(|_| Pace::BackPressure, even());
    let start = |sender: u16| u64::from(sender * 7 % UNITS) * 391;
    let shown = hall.run(start, 6_000, 500);
    assert!(shown.link_use > 0.999, "{}", shown.link_use);
    let mean = shown.bytes_per_step.iter().sum::<f64>() / f64::from(UNITS);
    assert!(
        mean > 0.97 * f64::from(BLOCK_BYTES),
        "{mean} of {BLOCK_BYTES}"
    );
}

/// Given one builder unit of half the speed, then it gets half of the events, the others keep their
/// pace, and the shifters stay in step.
#[test]
fn a_slow_builder_unit_slows_nobody_else() {
    let even_run = Hall::new(|_| Pace::BackPressure, even()).run(|_| 0, 6_000, 500);
    let mut times = even();
    // An event takes eight blocks of a builder unit's link.
    times[3] = 16 * BLOCK_TIME;
    let slow_run = Hall::new(|_| Pace::BackPressure, times).run(|_| 0, 6_000, 500);
    assert!(slow_run.link_use > 0.999, "{}", slow_run.link_use);
    let even = even_run.built.iter().sum::<u64>() as f64 / f64::from(UNITS);
    for (unit, built) in slow_run.built.into_iter().enumerate() {
        let share = built as f64 / even;
        let expected = if unit == 3 { 0.45..0.55 } else { 0.95..1.05 };
        assert!(expected.contains(&share), "bu{unit}: {built} of {even}");
    }
}

/// Given one clock for all, then no block ever waits for another.
#[test]
fn with_a_common_clock_no_two_blocks_meet() {
    let pace = |_| Pace::Clock {
        start: RunNs(BLOCK_TIME),
        step: DurationNs(BLOCK_TIME),
    };
    let shown = Hall::new(pace, even()).run(|_| 0, 6_000, 500);
    assert!(shown.link_use > 0.999, "{}", shown.link_use);
}
