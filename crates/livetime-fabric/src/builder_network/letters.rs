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
        let (text, bytes) = self.texts.keep(sent.envelope, receivers);
        let time = DurationPs::for_bits(u64::from(bytes) * 8, self.control_bits_per_s);
        let units = self.readouts.len() as u16;
        let others = copies.iter();
        let others = others.map(|copy| (UnitId::readout(copy.to), copy.sequence));
        for (to, sequence) in std::iter::once(first).chain(others) {
            let host = &mut self.builders[usize::from(unit)];
            let ready = host.processor.spend(s.now(), self.plan.hosts.message);
            if self.is_shared && to.kind == UnitKind::Readout {
                let letter = Letter {
                    ready,
                    text,
                    sequence,
                };
                let port = self.readout_port[usize::from(to.index)];
                host.outbox.push_back((port.into(), letter));
                if host.is_idle {
                    self.send_letters(unit, s);
                }
                continue;
            }
            let at = host.link.spend(ready, time) + self.control_latency;
            let key = s.reserve(at, HOST);
            if host.letters.push(key, to, (text, sequence), units) {
                s.enter(key, NetworkEvent::LetterOf(unit).into());
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
