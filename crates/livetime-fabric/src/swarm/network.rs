//! The network of a story: messages and blocks are lost, come twice, or late and past each other.
//!
//! Messages travel as the words of the real format. A block comes with the messages of the fragments
//! that end in it; whether such a fragment is whole says the assembler at the other end.

use livetime_builder::Block;
use livetime_wire::message::{BuilderMessage, Envelope, MessageWords};
use livetime_wire::{SourceId, TriggerNumber, UnitId, UnitKind};

use super::world::{SwarmEvent, SwarmWorld};
use crate::queue::EventClass;
use crate::random::Probability;
use crate::scheduler::Scheduler;
use crate::time::DurationPs;

/// What is on its way.
#[derive(Debug, Clone)]
pub(super) enum Text {
    /// A message.
    Message(Box<[u32]>),
    /// A block of a barrel shifter.
    Block {
        block: Box<Block>,
        /// Life of the readout unit that made it.
        epoch: u32,
        /// Messages of the fragments that end in it.
        whole: Vec<(TriggerNumber, SourceId, MessageWords)>,
    },
}

#[derive(Debug, Clone)]
struct Letter {
    from: UnitId,
    to: UnitId,
    /// Life of the builder unit that it goes to, if it is one.
    life: u32,
    text: Text,
}

impl Letter {
    /// Whether it brings payload to a builder unit.
    fn brings_payload(&self) -> bool {
        self.from.kind == UnitKind::Readout && self.to.kind == UnitKind::Builder
    }
}

/// All that is on its way.
#[derive(Debug, Default)]
pub(super) struct Letters {
    letters: Vec<Option<Letter>>,
    free: Vec<u32>,
}

impl Letters {
    fn put(&mut self, letter: Letter) -> u32 {
        if let Some(index) = self.free.pop() {
            self.letters[index as usize] = Some(letter);
            return index;
        }
        self.letters.push(Some(letter));
        self.letters.len() as u32 - 1
    }

    /// Whether nothing is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.letters.len() == self.free.len()
    }

    fn get(&self, index: u32) -> Option<&Letter> {
        self.letters[index as usize].as_ref()
    }

    fn take(&mut self, index: u32) -> Option<Letter> {
        let letter = self.letters[index as usize].take()?;
        self.free.push(index);
        Some(letter)
    }

    /// What the trace names a letter by.
    pub(super) fn key(&self, index: u32) -> u64 {
        match self.get(index).map(|letter| &letter.text) {
            Some(Text::Message(words)) => {
                let words = words.iter().take(6);
                words.fold(0_u64, |key, word| key.rotate_left(13) ^ u64::from(*word))
            }
            Some(Text::Block { block, .. }) => {
                u64::from(block.to) << 32 | u64::from(block.sequence)
            }
            None => 0,
        }
    }
}

impl SwarmWorld {
    /// A message between cores.
    pub(super) fn send(&mut self, to: UnitId, envelope: &Envelope, s: &mut Scheduler<SwarmEvent>) {
        let text = Text::Message(envelope.to_words().as_slice().into());
        self.send_text(envelope.sender, to, text, s);
    }

    /// Sends something through a network that loses, repeats and delays.
    pub(super) fn send_text(
        &mut self,
        from: UnitId,
        to: UnitId,
        text: Text,
        s: &mut Scheduler<SwarmEvent>,
    ) {
        if self.is_cut(from, s.now()) || self.is_cut(to, s.now()) {
            self.count("cut");
            return;
        }
        let drop = Probability::from_ppm(self.scenario.drop_ppm);
        if self.random.chance(drop) {
            self.count("dropped");
            return;
        }
        let twice = Probability::from_ppm(self.scenario.duplicate_ppm);
        let copies = if self.random.chance(twice) {
            self.count("duplicated");
            2
        } else {
            1
        };
        let slow: u64 = [from, to]
            .iter()
            .filter(|unit| unit.kind == UnitKind::Builder)
            .map(|unit| self.builders[usize::from(unit.index)].slow_us)
            .sum();
        for _ in 0..copies {
            let mut latency = self.between_us(5, 50) + DurationPs::from_us(slow);
            let late = Probability::from_ppm(self.scenario.delay_ppm);
            if self.random.chance(late) {
                self.count("delayed");
                latency = latency + self.between_us(0, self.scenario.delay_max_us);
            }
            let text = text.clone();
            let life = self.life_of(to);
            let index = self.letters.put(Letter {
                from,
                to,
                life,
                text,
            });
            s.after(latency, EventClass(0), SwarmEvent::Letter(index));
        }
    }

    /// Of a builder unit; others have but one here.
    fn life_of(&self, unit: UnitId) -> u32 {
        match unit.kind {
            UnitKind::Builder => self.builders[usize::from(unit.index)].epoch,
            _ => 0,
        }
    }

    /// A letter comes.
    pub(super) fn deliver(&mut self, index: u32, s: &mut Scheduler<SwarmEvent>) {
        let Some(&Letter { from, to, .. }) = self.letters.get(index) else {
            return;
        };
        let now = s.now();
        if let Some(until) = self.stopped(to, now) {
            // It stays in the socket of the stopped process.
            s.at(until, EventClass(0), SwarmEvent::Letter(index));
            return;
        }
        let Some(letter) = self.letters.take(index) else {
            return;
        };
        if self.is_cut(to, now) || self.is_cut(from, now) {
            self.count("cut");
            return;
        }
        if letter.brings_payload() && letter.life != self.life_of(to) {
            self.count("fragments_orphaned");
            return;
        }
        match letter.text {
            Text::Message(words) => self.receive(to, &words, s),
            Text::Block {
                block,
                epoch,
                whole,
            } => self.receive_block(from, to, (&block, epoch), &whole, s),
        }
    }

    fn receive(&mut self, to: UnitId, words: &[u32], s: &mut Scheduler<SwarmEvent>) {
        let (now, unit) = (s.now(), usize::from(to.index));
        let envelope = match Envelope::parse(words) {
            Ok(envelope) => envelope,
            Err(error) => {
                let what = format!("a unit wrote no message: {error}");
                return self.check.report(now, what);
            }
        };
        let time = now.to_run_ns();
        match (to.kind, &envelope.message) {
            (UnitKind::EventManager, BuilderMessage::Through { phase, demand }) => {
                if let Some(barrier) = &mut self.barrier {
                    let sender = envelope.sender.index.into();
                    barrier.handle_through(time, sender, *phase, *demand);
                }
                self.pump_manager(s);
            }
            (UnitKind::EventManager, _) if self.goes_to_former() => self.tell_former(&envelope, s),
            (UnitKind::EventManager, _) => {
                if let Some(manager) = &mut self.manager {
                    let _refused = manager.handle_message(time, &envelope);
                }
                self.pump_manager(s);
                self.check_manager(now);
            }
            (UnitKind::Builder, _) if self.builders[unit].is_up => {
                let _refused = self.builders[unit].core.handle_message(time, &envelope);
                self.pump_builder(to.index, s);
            }
            (UnitKind::Readout, BuilderMessage::Phase { phase }) => {
                if let Some(shaper) = &mut self.readouts[unit].shaper {
                    shaper.handle_phase(*phase);
                }
                self.pump_readout(to.index, s);
            }
            (UnitKind::Readout, _) => {
                if let Some(core) = &mut self.readouts[unit].core {
                    let _refused = core.handle_message(time, &envelope);
                }
                self.pump_readout(to.index, s);
            }
            _ => {}
        }
    }

    /// A block comes to a builder unit: the fragments that are whole with it are taken.
    fn receive_block(
        &mut self,
        from: UnitId,
        to: UnitId,
        (block, epoch): (&Block, u32),
        whole: &[(TriggerNumber, SourceId, MessageWords)],
        s: &mut Scheduler<SwarmEvent>,
    ) {
        let readout = usize::from(from.index);
        let host = &mut self.builders[usize::from(to.index)];
        // What a link still carried of a readout unit that is gone ended with it.
        if !host.is_up || self.readouts[readout].epoch != epoch {
            return;
        }
        let mut complete = Vec::new();
        let assembler = &mut host.assemblers[readout];
        let broken_before = assembler.counts().fragments_broken;
        assembler.handle_block(block, |piece| {
            let mut ended = whole.iter();
            let is_it = |(trigger, source, _): &&(TriggerNumber, SourceId, MessageWords)| {
                (*trigger, *source) == (piece.trigger, piece.source)
            };
            complete.extend(ended.find(is_it).map(|(.., words)| words));
        });
        if assembler.counts().fragments_broken > broken_before {
            self.count("fragments_broken");
        }
        for words in complete {
            self.receive(to, words, s);
        }
    }
}
