//! A builder in memory, without any loss: how much a builder unit must be able to hold, and what
//! two-step building saves.
//!
//! The smallest buffer with which a builder unit loses nothing follows from its credits: checked at
//! the exact onset of loss, in pull and push, with credits in events and in bytes. The senders are as fast as they can be and the filter units as slow: they answer only when
//! nothing else moves. Fragments have the largest size that there is.

use std::collections::{BTreeMap, VecDeque};

use livetime_builder::{
    BuildMode, BuilderConfig, BuilderUnit, EventManager, FragmentVerdict, Outgoing, ReadoutOutput,
    ReadoutUnit,
};
use livetime_wire::message::{BuilderMessage, Envelope, EventTicket, FragmentDescriptor, Keep};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, RunNs, SourceId, TriggerNumber, UnitId, UnitKind};

const FRAGMENT_WORDS: u32 = 512;
const FRAGMENT_BYTES: u64 = FRAGMENT_WORDS as u64 * 4;
const TRIGGERS: u64 = 200;
const NOW: RunNs = RunNs(1);

/// A builder unit's receive buffer: fragments lie in it from their arrival until the clear.
#[derive(Default)]
struct Buffer {
    events: BTreeMap<TriggerNumber, u64>,
    used: u64,
    most: u64,
    lost: u64,
}

/// The selection on the first step accepts one event in ten.
fn selects(trigger: TriggerNumber) -> bool {
    trigger.0.is_multiple_of(10)
}

struct Hall {
    config: BuilderConfig,
    manager: EventManager,
    builders: Vec<BuilderUnit>,
    readouts: Vec<ReadoutUnit>,
    buffers: Vec<Buffer>,
    room: u64,
    letters: VecDeque<Outgoing>,
    tickets: VecDeque<EventTicket>,
    accepts: VecDeque<u64>,
    sequences: BTreeMap<(UnitId, UnitId), u32>,
    /// Tickets that came to the filter unit.
    seen: u64,
}

impl Hall {
    fn new(config: BuilderConfig, room: u64) -> Self {
        assert_eq!(config.validate("builder"), []);
        let builders: Vec<_> = (0..config.builder_units)
            .map(|unit| BuilderUnit::new(&config, unit, 1))
            .collect();
        let readouts = (0..config.readout_units.len() as u16)
            .map(|unit| ReadoutUnit::new(&config, unit, 1))
            .collect();
        let mut hall = Self {
            manager: EventManager::new(&config, 1),
            buffers: builders.iter().map(|_| Buffer::default()).collect(),
            builders,
            readouts,
            room,
            letters: VecDeque::new(),
            tickets: VecDeque::new(),
            accepts: (1..=TRIGGERS).collect(),
            sequences: BTreeMap::new(),
            seen: 0,
            config,
        };
        for trigger in 1..=TRIGGERS {
            hall.bring(TriggerNumber(trigger));
        }
        hall
    }

    fn bring(&mut self, trigger: TriggerNumber) {
        for (unit, sources) in self.config.readout_units.clone().iter().enumerate() {
            for source in sources {
                let verdict = self.readouts[unit].handle_fragment(NOW, trigger, *source);
                assert_eq!(verdict, FragmentVerdict::Hold);
            }
            let decision = BuilderMessage::Decision {
                trigger,
                keep: Keep::Build,
            };
            self.say(UnitId::SUPERVISOR, UnitId::readout(unit as u16), decision);
        }
    }

    fn say(&mut self, sender: UnitId, to: UnitId, message: BuilderMessage) {
        let next = self.sequences.entry((sender, to)).or_default();
        let envelope = Envelope {
            sender,
            epoch: 1,
            sequence: *next,
            message,
        };
        *next += 1;
        self.letters.push_back(Outgoing { to, envelope });
    }

    /// Runs to the end: filter units answer one event at a time, when all else stands still.
    fn run(&mut self) {
        loop {
            while self.poll() || self.deliver() || self.accept() {}
            let Some(ticket) = self.tickets.pop_front() else {
                break;
            };
            let triggers = [ticket.trigger].into_iter().collect();
            self.seen += 1;
            let done = if ticket.is_first_step() && selects(ticket.trigger) {
                BuilderMessage::FetchRest { triggers }
            } else {
                BuilderMessage::EventDone { triggers }
            };
            self.say(UnitId::filter(0), UnitId::builder(ticket.builder), done);
        }
        assert!(self.manager.is_idle() && self.accepts.is_empty());
        assert!(self.builders.iter().all(BuilderUnit::is_idle));
        assert!(self.readouts.iter().all(ReadoutUnit::is_idle));
    }

    fn accept(&mut self) -> bool {
        let Some(trigger) = self.accepts.front().copied() else {
            return false;
        };
        if self.manager.queued() >= self.config.evm_queue as usize {
            return false;
        }
        self.accepts.pop_front();
        let accept = BuilderMessage::L2Accept {
            trigger: TriggerNumber(trigger),
            mask: L2Mask(1),
            triggered_at: NOW,
        };
        self.say(UnitId::SUPERVISOR, UnitId::EVENT_MANAGER, accept);
        true
    }

    fn poll(&mut self) -> bool {
        let before = self.letters.len() + self.tickets.len();
        self.letters.extend(self.manager.poll_output(NOW));
        for builder in &mut self.builders {
            let mut ticket = builder.empty_ticket();
            if builder.poll_ticket(&mut ticket).is_some() {
                self.tickets.push_back(ticket);
            }
            self.letters.extend(builder.poll_output(NOW));
        }
        for readout in &mut self.readouts {
            if let Some(ReadoutOutput::SendFragment {
                to,
                sequence,
                trigger,
                source,
            }) = readout.poll_output()
            {
                let fragment = FragmentDescriptor {
                    source,
                    pool: 0,
                    words: FRAGMENT_WORDS,
                    status: FragmentStatus::GOOD,
                    crc: 0,
                    pages: [0].into_iter().collect(),
                };
                let envelope = readout.fragment_message(sequence, trigger, fragment);
                self.letters.push_back(Outgoing { to, envelope });
            }
        }
        self.letters.len() + self.tickets.len() > before
    }

    fn deliver(&mut self) -> bool {
        let Some(Outgoing { to, envelope }) = self.letters.pop_front() else {
            return false;
        };
        let unit = usize::from(to.index);
        match &envelope.message {
            BuilderMessage::FragmentData { trigger, .. } => {
                let buffer = &mut self.buffers[unit];
                if buffer.used + FRAGMENT_BYTES > self.room {
                    buffer.lost += 1;
                }
                buffer.used += FRAGMENT_BYTES;
                buffer.most = buffer.most.max(buffer.used);
                *buffer.events.entry(*trigger).or_default() += FRAGMENT_BYTES;
            }
            BuilderMessage::Clear { triggers } | BuilderMessage::ClearAccepted { triggers }
                if to == UnitId::EVENT_MANAGER =>
            {
                let buffer = &mut self.buffers[usize::from(envelope.sender.index)];
                for trigger in triggers {
                    buffer.used -= buffer.events.remove(trigger).unwrap_or_default();
                }
            }
            _ => {}
        }
        let handled = match to.kind {
            UnitKind::EventManager => self.manager.handle_message(NOW, &envelope),
            UnitKind::Builder => self.builders[unit].handle_message(NOW, &envelope),
            _ => self.readouts[unit].handle_message(NOW, &envelope),
        };
        assert_eq!(handled, livetime_builder::Handled::Taken);
        true
    }
}

fn config(mode: BuildMode, credits: u32, credit_bytes: u64) -> BuilderConfig {
    let readout_units = vec![
        vec![SourceId(1), SourceId(2)],
        vec![SourceId(3)],
        vec![SourceId(4), SourceId(5), SourceId(6)],
    ];
    BuilderConfig {
        readout_units,
        mode,
        credits,
        credit_bytes,
        event_bytes: 6 * FRAGMENT_BYTES,
        evm_queue: 32,
        filter_in_flight: 64,
        ..BuilderConfig::default()
    }
}

#[test]
fn loss_begins_one_byte_below_the_buffer_of_the_formula() {
    let event = 6 * FRAGMENT_BYTES;
    for mode in [BuildMode::Pull, BuildMode::Push] {
        for credits in [1, 3, 16] {
            for credit_bytes in [0, event, 5 * event - 1, 5 * event, 100 * event] {
                let config = config(mode, credits, credit_bytes);
                let needed = config.receive_bytes(event);
                let lost = |room| {
                    let mut hall = Hall::new(config.clone(), room);
                    hall.run();
                    let most = hall.buffers.iter().map(|b| b.most).max();
                    assert_eq!(most, Some(needed), "{mode:?} {credits} {credit_bytes}");
                    hall.buffers.iter().map(|buffer| buffer.lost).sum::<u64>()
                };
                assert_eq!(lost(needed), 0, "{mode:?} {credits} {credit_bytes}");
                assert!(lost(needed - 1) > 0, "{mode:?} {credits} {credit_bytes}");
            }
        }
    }
}

/// Given a first step with a quarter of the data and a selection that accepts one event in ten, then
/// a third of the bytes moves, and the readout units of the first step send ten times as much as
/// the others.
#[test]
fn two_steps_save_a_factor_of_three() {
    for (credits, requests_per_message) in [(16, 8), (3, 1), (1, 32)] {
        let config = BuilderConfig {
            readout_units: (1..=8).map(|source| vec![SourceId(source)]).collect(),
            first_step: vec![0, 5],
            credits,
            requests_per_message,
            evm_queue: 32,
            ..BuilderConfig::default()
        };
        let mut hall = Hall::new(config, u64::MAX);
        hall.run();
        let accepted = TRIGGERS / 10;
        let mut bytes = [0; 8];
        let (mut built, mut fetched, mut in_built) = (0, 0, 0);
        for builder in &hall.builders {
            let counts = builder.counts();
            built += counts.events_built;
            fetched += counts.events_fetched;
            in_built += counts.fragments_in_built;
            assert_eq!(counts.events_incomplete + counts.fetches_refused, 0);
            for (sum, more) in bytes.iter_mut().zip(builder.bytes_by_readout()) {
                *sum += more;
            }
        }
        assert_eq!((built, fetched), (TRIGGERS, accepted));
        assert_eq!(hall.seen, TRIGGERS + accepted, "accepted events come twice");
        for (unit, bytes) in bytes.into_iter().enumerate() {
            let events = if [0, 5].contains(&unit) {
                TRIGGERS
            } else {
                accepted
            };
            assert_eq!(bytes, events * FRAGMENT_BYTES, "ru{unit}");
        }
        let moved = bytes.iter().sum::<u64>() as f64;
        let all = (8 * TRIGGERS * FRAGMENT_BYTES) as f64;
        assert!(
            (moved / all - (0.25 + 0.1 * 0.75)).abs() < 1e-12,
            "{}",
            moved / all
        );
        let dropped: u64 = hall
            .readouts
            .iter()
            .map(|readout| readout.counts().fragments_dropped_by_decision)
            .sum();
        assert_eq!(in_built + dropped, 8 * TRIGGERS, "every fragment once");
        assert!(hall.readouts.iter().all(|r| r.losses().total() == 0));
    }
}
