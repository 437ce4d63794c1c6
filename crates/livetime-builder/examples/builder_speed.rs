//! How many fragments per second one core builds into events, by descriptor, beside the bare cost
//! of its messages.
//!
//! ```text
//! cargo run --release -p livetime-builder --example builder_speed [SOURCES_PER_RU [CREDITS]]
//! ```
//!
//! Measured: 2 readout units x 2 builder units, event manager and one filter unit that accepts at
//! once, all on one thread; every message is encoded into a queue of words and parsed from it, and
//! every fragment has one page of 2 KiB in a pool of the size that `PageDemand` asks for. Not
//! measured: payload (nobody reads it here), links, threads and rings between them. The floor is
//! the same number of fragment messages encoded, queued and parsed without any unit. Floor and
//! measurement are interleaved in rounds; the best and the median round of each are printed.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use livetime_builder::{
    BuilderConfig, BuilderUnit, EventManager, FragmentVerdict, FrameLink, Handled, LinkFull,
    PageDemand, ReadoutOutput, ReadoutUnit,
};
use livetime_wire::message::{
    BuilderMessage, Envelope, EventTicket, FragmentDescriptor, MESSAGE_WORDS_MAX, TriggerList,
};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{
    ByteSize, ChainCounts, L2Mask, LossCounts, RunNs, SourceId, TriggerNumber, UnitId, UnitKind,
};

const READOUT_UNITS: u32 = 2;
const FRAGMENT_WORDS: u32 = 512;
const ROUNDS: usize = 9;
const FRAGMENTS_PER_ROUND: u64 = 400_000;
const EPOCH: u32 = 0;

/// Messages for one unit, in slots of a fixed size.
struct MessageQueue {
    words: Vec<u32>,
    lengths: Vec<usize>,
    head: usize,
    len: usize,
}

impl MessageQueue {
    fn new(slots: usize) -> Self {
        Self {
            words: vec![0; slots * MESSAGE_WORDS_MAX],
            lengths: vec![0; slots],
            head: 0,
            len: 0,
        }
    }

    fn push(&mut self, words: &[u32]) -> bool {
        if self.len == self.lengths.len() {
            return false;
        }
        let at = (self.head + self.len) % self.lengths.len();
        self.words[at * MESSAGE_WORDS_MAX..][..words.len()].copy_from_slice(words);
        self.lengths[at] = words.len();
        self.len += 1;
        true
    }

    fn front(&self) -> Option<&[u32]> {
        (self.len > 0)
            .then(|| &self.words[self.head * MESSAGE_WORDS_MAX..][..self.lengths[self.head]])
    }

    fn pop(&mut self) {
        self.head = (self.head + 1) % self.lengths.len();
        self.len -= 1;
    }
}

/// The queues of all units, and what went through them.
struct Queues {
    units: Vec<(UnitId, MessageQueue)>,
    fragment_messages: u64,
    control_messages: u64,
}

impl Queues {
    fn queue(&mut self, unit: UnitId) -> &mut MessageQueue {
        let found = self.units.iter_mut().find(|(id, _)| *id == unit);
        &mut found.expect("every unit has a queue").1
    }

    fn send(&mut self, to: UnitId, envelope: &Envelope) {
        match envelope.message {
            BuilderMessage::FragmentData { .. } => self.fragment_messages += 1,
            BuilderMessage::FragmentRequest { .. } | BuilderMessage::Release { .. } => {
                self.control_messages += 1;
            }
            _ => {}
        }
        let mut end = QueueEnd {
            queues: self,
            unit: envelope.sender,
        };
        end.try_send(to, &envelope.to_words())
            .expect("queues are as long as the credits allow");
    }
}

/// One unit's end of the queues.
struct QueueEnd<'a> {
    queues: &'a mut Queues,
    unit: UnitId,
}

impl FrameLink for QueueEnd<'_> {
    fn try_send(&mut self, to: UnitId, words: &[u32]) -> Result<(), LinkFull> {
        if self.queues.queue(to).push(words) {
            Ok(())
        } else {
            Err(LinkFull { to })
        }
    }

    fn poll(&mut self) -> Option<&[u32]> {
        self.queues.queue(self.unit).front()
    }

    fn consume(&mut self) {
        self.queues.queue(self.unit).pop();
    }
}

/// Hands every message that came for `unit` to it.
fn receive(
    queues: &mut Queues,
    unit: UnitId,
    mut handle: impl FnMut(&Envelope) -> Handled,
) -> usize {
    let mut end = QueueEnd { queues, unit };
    let mut count = 0;
    while let Some(words) = end.poll() {
        let envelope = Envelope::parse(words).expect("written by a unit");
        match handle(&envelope) {
            Handled::Taken => end.consume(),
            Handled::Busy => break,
            Handled::Refused => panic!("{unit} refused {envelope:?}"),
        }
        count += 1;
    }
    count
}

/// One readout unit with its fragments on file: a row of pages per trigger.
struct Readout {
    unit: ReadoutUnit,
    sources: Vec<SourceId>,
    file: Vec<Vec<u32>>,
    pages_free: Vec<u32>,
    next_trigger: u64,
}

impl Readout {
    /// Links bring one trigger, when there are pages for it.
    fn bring(&mut self, now: RunNs) -> bool {
        if self.pages_free.len() < self.sources.len() {
            return false;
        }
        let trigger = TriggerNumber(self.next_trigger);
        let row = (trigger.0 as usize) % self.file.len();
        if !self.file[row].is_empty() {
            return false;
        }
        for source in &self.sources {
            let verdict = self.unit.handle_fragment(now, trigger, *source);
            assert_eq!(verdict, FragmentVerdict::Hold);
            self.file[row].extend(self.pages_free.pop());
        }
        self.next_trigger += 1;
        true
    }

    fn poll(&mut self, queues: &mut Queues) -> usize {
        let mut count = 0;
        while let Some(output) = self.unit.poll_output() {
            count += 1;
            match output {
                ReadoutOutput::SendFragment {
                    to,
                    sequence,
                    trigger,
                    source,
                } => {
                    let row = &self.file[trigger.0 as usize % self.file.len()];
                    let column = self.sources.iter().position(|s| *s == source);
                    let fragment = descriptor(source, row[column.expect("its own source")]);
                    let message = self.unit.fragment_message(sequence, trigger, fragment);
                    queues.send(to, &message);
                }
                ReadoutOutput::Free { trigger, .. } => {
                    let row = trigger.0 as usize % self.file.len();
                    self.pages_free.append(&mut self.file[row]);
                }
            }
        }
        count
    }
}

fn descriptor(source: SourceId, page: u32) -> FragmentDescriptor {
    FragmentDescriptor {
        source,
        pool: 0,
        words: FRAGMENT_WORDS,
        status: FragmentStatus::GOOD,
        crc: page,
        pages: [page].into_iter().collect(),
    }
}

/// The filter unit's answers to one builder unit.
#[derive(Default)]
struct Answers {
    triggers: TriggerList,
    sequence: u32,
}

struct Chain {
    config: BuilderConfig,
    queues: Queues,
    evm: EventManager,
    builders: Vec<BuilderUnit>,
    readouts: Vec<Readout>,
    answers: Vec<Answers>,
    ticket: EventTicket,
    accepts: VecDeque<TriggerNumber>,
    accept_sequence: u32,
    counts: ChainCounts,
    now: RunNs,
}

impl Chain {
    fn new(sources_per_unit: u32, credits: u32) -> Self {
        let config = BuilderConfig {
            readout_units: (0..READOUT_UNITS)
                .map(|unit| {
                    (0..sources_per_unit)
                        .map(|source| SourceId((unit << 16) | source))
                        .collect()
                })
                .collect(),
            credits,
            filter_in_flight: credits,
            ..BuilderConfig::default()
        };
        let problems = config.validate("builder");
        assert!(problems.is_empty(), "{problems:?}");
        let demand = PageDemand {
            page: ByteSize(2048),
            pages_per_fragment: 1,
            l2_buffers: 4,
            posted_pages: 15,
            xoff_reserve: 8,
        };
        let pages = demand.pages_needed(&config, sources_per_unit as usize) as u32;
        let slots = 2 * (config.ring_slots() * u64::from(READOUT_UNITS)) as usize;
        let units = [UnitId::EVENT_MANAGER]
            .into_iter()
            .chain((0..config.builder_units).map(UnitId::builder))
            .chain((0..READOUT_UNITS as u16).map(UnitId::readout));
        let builders: Vec<_> = (0..config.builder_units)
            .map(|index| BuilderUnit::new(&config, index, EPOCH))
            .collect();
        Self {
            queues: Queues {
                units: units.map(|unit| (unit, MessageQueue::new(slots))).collect(),
                fragment_messages: 0,
                control_messages: 0,
            },
            evm: EventManager::new(&config, EPOCH),
            ticket: builders[0].empty_ticket(),
            answers: builders.iter().map(|_| Answers::default()).collect(),
            builders,
            readouts: (0..READOUT_UNITS as u16)
                .map(|index| Readout {
                    unit: ReadoutUnit::new(&config, index, EPOCH),
                    sources: config.sources_of(index),
                    file: vec![Vec::new(); 1024],
                    pages_free: (0..pages).collect(),
                    next_trigger: 1,
                })
                .collect(),
            accepts: VecDeque::new(),
            accept_sequence: 0,
            counts: ChainCounts::default(),
            now: RunNs(0),
            config,
        }
    }

    /// One duty cycle of every role; returns the work done.
    fn cycle(&mut self, may_trigger: bool) -> usize {
        // Nothing here lasts, so time stands still but for its order.
        self.now.0 += 1;
        let mut work = self.trigger(may_trigger);
        work += self.run_event_manager();
        for index in 0..self.builders.len() {
            work += self.run_builder(index);
        }
        for (index, readout) in self.readouts.iter_mut().enumerate() {
            let (now, unit) = (self.now, &mut readout.unit);
            work += receive(
                &mut self.queues,
                UnitId::readout(index as u16),
                |envelope| unit.handle_message(now, envelope),
            );
            work += readout.poll(&mut self.queues);
        }
        work
    }

    /// Every trigger is accepted, as in the talk's demonstrators.
    fn trigger(&mut self, may_trigger: bool) -> usize {
        let mut count = 0;
        while may_trigger && self.accepts.len() < 16 {
            let next = self.readouts[0].next_trigger;
            if !self.readouts.iter_mut().all(|readout| {
                // A unit that is ahead waits for the others.
                readout.next_trigger > next || readout.bring(self.now)
            }) {
                break;
            }
            self.accepts.push_back(TriggerNumber(next));
            self.counts.triggers += 1;
            self.counts.l2_accepted += 1;
            count += 1;
        }
        while let Some(trigger) = self.accepts.front().copied() {
            let envelope = Envelope {
                sender: UnitId::SUPERVISOR,
                epoch: EPOCH,
                sequence: self.accept_sequence,
                message: BuilderMessage::L2Accept {
                    trigger,
                    mask: L2Mask(1),
                    triggered_at: self.now,
                },
            };
            if self.evm.handle_message(self.now, &envelope) == Handled::Busy {
                break;
            }
            self.accept_sequence += 1;
            self.accepts.pop_front();
            count += 1;
        }
        count
    }

    fn run_event_manager(&mut self) -> usize {
        let (now, evm) = (self.now, &mut self.evm);
        let mut work = receive(&mut self.queues, UnitId::EVENT_MANAGER, |envelope| {
            evm.handle_message(now, envelope)
        });
        while let Some(output) = evm.poll_output(now) {
            self.queues.send(output.to, &output.envelope);
            work += 1;
        }
        work
    }

    fn run_builder(&mut self, index: usize) -> usize {
        let (now, unit) = (self.now, &mut self.builders[index]);
        let mut work = receive(
            &mut self.queues,
            UnitId::builder(index as u16),
            |envelope| unit.handle_message(now, envelope),
        );
        let answers = &mut self.answers[index];
        while unit.poll_ticket(&mut self.ticket).is_some() {
            black_box(&self.ticket);
            self.counts.filter_accepted += 1;
            self.counts.events_stored += 1;
            answers.triggers.push(self.ticket.trigger);
            work += 1;
            if answers.triggers.is_full() {
                answer(unit, now, answers);
            }
        }
        if !answers.triggers.is_empty() {
            answer(unit, now, answers);
        }
        while let Some(output) = unit.poll_output(now) {
            self.queues.send(output.to, &output.envelope);
            work += 1;
        }
        work
    }

    /// Builds events of `fragments` fragments, then drains; returns fragments per second.
    fn round(&mut self, fragments: u64) -> f64 {
        let per_event = self.config.readout_units.iter().flatten().count() as u64;
        let events = fragments / per_event;
        let until = self.counts.triggers + events;
        let start = Instant::now();
        while self.cycle(self.counts.triggers < until) > 0 {}
        let events = events.max(1);
        (events * per_event) as f64 / start.elapsed().as_secs_f64()
    }

    /// Whether everything is accounted for.
    fn check(&mut self) -> ChainCounts {
        assert!(self.evm.is_idle() && self.evm.credits_conserved());
        let mut counts = self.counts;
        let mut losses = *self.evm.losses();
        for builder in &self.builders {
            assert!(builder.is_idle());
            losses.merge(builder.losses());
            counts.events_built += builder.counts().events_built;
            counts.events_incomplete += builder.counts().events_incomplete;
            counts.fragments_in_built += builder.counts().fragments_in_built;
        }
        for readout in &self.readouts {
            assert!(readout.unit.is_idle());
            losses.merge(readout.unit.losses());
            counts.fragments_received += readout.unit.counts().fragments_filed;
        }
        counts.fragments_sent = counts.fragments_received;
        counts.offered = counts.triggers;
        assert_eq!(counts.problems(&losses), []);
        assert_eq!(losses, LossCounts::new());
        counts
    }
}

/// The filter unit is through with what it has of a builder unit.
fn answer(unit: &mut BuilderUnit, now: RunNs, answers: &mut Answers) {
    let envelope = Envelope {
        sender: UnitId {
            kind: UnitKind::Filter,
            index: 0,
        },
        epoch: EPOCH,
        sequence: answers.sequence,
        message: BuilderMessage::EventDone {
            triggers: answers.triggers.clone(),
        },
    };
    answers.sequence += 1;
    answers.triggers.clear();
    assert_eq!(unit.handle_message(now, &envelope), Handled::Taken);
}

/// Fragment messages per second without any unit: encode, queue, parse.
fn floor(queue: &mut MessageQueue, fragments: u64) -> f64 {
    let start = Instant::now();
    for sequence in 0..fragments {
        let envelope = Envelope {
            sender: UnitId::readout(0),
            epoch: EPOCH,
            sequence: sequence as u32,
            message: BuilderMessage::FragmentData {
                trigger: TriggerNumber(sequence),
                fragment: descriptor(SourceId(1), sequence as u32),
            },
        };
        assert!(queue.push(&envelope.to_words()));
        let parsed = queue.front().map(Envelope::parse);
        black_box(&parsed);
        queue.pop();
    }
    fragments as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| {
        argument
            .parse::<u32>()
            .unwrap_or_else(|_| panic!("`{argument}` is not a number"))
    });
    let sources = arguments.next().unwrap_or(4);
    let credits = arguments.next().unwrap_or(16);
    let mut chain = Chain::new(sources, credits);
    let mut queue = MessageQueue::new(64);
    chain.round(FRAGMENTS_PER_ROUND);
    let mut measured = Vec::new();
    let mut floors = Vec::new();
    for _ in 0..ROUNDS {
        floors.push(floor(&mut queue, FRAGMENTS_PER_ROUND));
        measured.push(chain.round(FRAGMENTS_PER_ROUND));
    }
    let counts = chain.check();
    let describe = |name: &str, rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
        println!(
            "{name:<24} best {:.2} M/s ({:.0} ns), median {:.2} M/s ({:.0} ns)",
            best / 1e6,
            1e9 / best,
            median / 1e6,
            1e9 / median,
        );
        best
    };
    println!(
        "2 readout units x {sources} sources, 2 builder units x {credits} credits, {} rounds",
        ROUNDS
    );
    let best_floor = describe("messages alone (floor)", &mut floors);
    let best = describe("fragments built", &mut measured);
    println!(
        "{:<24} {:.2} x floor, {:.0} MB/s of 2 KiB fragments by reference",
        "",
        best_floor / best,
        best * 2048.0 / 1e6,
    );
    let pairs = f64::from(READOUT_UNITS) * f64::from(chain.config.builder_units);
    // Each event belongs to one builder unit, so to one pair per readout unit.
    let per_pair = counts.events_built as f64 / f64::from(chain.config.builder_units);
    println!(
        "events {} built, {} incomplete; {:.2} control messages per 8 events and pair; conserved",
        counts.events_built,
        counts.events_incomplete,
        chain.queues.control_messages as f64 / pairs / per_pair * 8.0,
    );
}
