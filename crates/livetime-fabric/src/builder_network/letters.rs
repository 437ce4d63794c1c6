//! What builder units say on the control network: out as runs of letters, in as one after the other.

use livetime_builder::{MessageCopy, Outgoing};
use livetime_wire::{UnitId, UnitKind};

use super::event::{EventWord, NetworkEvent};
use super::hosts::Letter;
use super::world::{HOST, NetworkWorld};
use crate::queue::Lane;
use crate::scheduler::Scheduler;
use crate::time::DurationPs;

impl NetworkWorld<'_> {
    /// A builder unit sends a message, and copies of it to other readout units.
    pub(super) fn send_from_builder(
        &mut self,
        unit: u16,
        sent: Outgoing,
        copies: &[MessageCopy],
        s: &mut Scheduler<EventWord>,
    ) {
        let receivers = 1 + copies.len() as u32;
        self.tally.messages += u64::from(receivers);
        let first = (sent.to, sent.envelope.sequence);
        let (text, bytes) = self.texts.keep(s.now(), sent.envelope, receivers);
        let others = copies.iter();
        let others = others.map(|copy| (UnitId::readout(copy.to), copy.sequence));
        let letters = std::iter::once(first).chain(others);
        match self.is_shared && first.0.kind == UnitKind::Readout {
            true => self.share(unit, text, letters, s),
            false => self.post(unit, (text, bytes), letters, s),
        }
    }

    /// Letters of a text go out on the builder unit's link to the control network.
    #[inline]
    fn post(
        &mut self,
        unit: u16,
        (text, bytes): (u32, u32),
        letters: impl Iterator<Item = (UnitId, u32)>,
        s: &mut Scheduler<EventWord>,
    ) {
        let work = self.plan.hosts.message;
        let time = DurationPs::for_bits(u64::from(bytes) * 8, self.control_bits_per_s);
        let (latency, units) = (self.control_latency, self.readouts.len() as u16);
        let host = &mut self.builders[usize::from(unit)];
        let (processor, link) = (&mut host.processor, &mut host.link);
        let letters = letters.map(|(to, sequence)| {
            let ready = processor.spend(s.now(), work);
            let at = link.spend(ready, time) + latency;
            (s.reserve(at, HOST), to, sequence)
        });
        if host.letters.extend(text, units, letters)
            && let Some((key, ..)) = host.letters.first()
        {
            s.enter(key, NetworkEvent::LetterOf(unit).into());
        }
    }

    /// Letters of a text wait for the other direction of the data network.
    fn share(
        &mut self,
        unit: u16,
        text: u32,
        letters: impl Iterator<Item = (UnitId, u32)>,
        s: &mut Scheduler<EventWord>,
    ) {
        for (to, sequence) in letters {
            let host = &mut self.builders[usize::from(unit)];
            let letter = Letter {
                ready: host.processor.spend(s.now(), self.plan.hosts.message),
                text,
                sequence,
            };
            let port = self.readout_port[usize::from(to.index)];
            host.outbox.push_back((port.into(), letter));
            if host.is_idle {
                self.send_letters(unit, s);
            }
        }
    }

    /// The first letter of a builder unit comes, and the next one is the first.
    pub(super) fn take_letter(&mut self, unit: u16, s: &mut Scheduler<EventWord>) {
        let units = self.readouts.len() as u16;
        let letters = &mut self.builders[usize::from(unit)].letters;
        let Some((_, to, text, sequence)) = letters.first() else {
            return;
        };
        letters.pop(units);
        if let Some((key, ..)) = letters.first() {
            // All hosts take as long for a letter.
            s.enter_in_order(Lane::Second, key, NetworkEvent::LetterOf(unit).into());
        }
        self.receive(to, text, sequence, s);
    }
}
