//! What happens in the world, and the word that stands for it in the queue of the kernel.
//!
//! The kernel moves an event several times while it waits; a word is moved at once, where an
//! enumeration is moved in pieces that a processor cannot read back before they are written.

use livetime_wire::message::PhaseDemand;

use crate::network::port::StepEvent;
use crate::network::{buffered, wormhole};

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetworkEvent {
    /// A step of a network without buffers.
    Wormhole(u8, wormhole::Step),
    /// A step of a network with buffers.
    Buffered(u8, buffered::Step),
    /// The supervisor has another trigger.
    Trigger,
    /// A control message of the event manager comes to a unit, by its code.
    Letter { to: u16, text: u32 },
    /// The first control message of a builder unit comes to its receiver.
    LetterOf(u16),
    /// A readout unit is through with a message.
    Work(u16),
    /// A builder unit looks for work.
    Tick(u16),
    /// A builder unit's filter is through with an event.
    Done(u16),
    /// A timeout may be due: event manager, builder units, readout units.
    Wake(u16),
    /// A readout unit is through with a phase.
    Through {
        readout: u16,
        phase: u32,
        demand: PhaseDemand,
    },
    /// A phase begins for a readout unit.
    Phase { readout: u16, phase: u32 },
    /// Units of the kind of this one, by its code, die.
    Die(u16),
    /// A dead builder unit's events are given to others.
    Settle(u16),
    /// All hear that a readout unit is gone.
    Gone(u16),
    /// A unit that died begins again, by its code.
    Back(u16),
    /// A batch is over.
    Look,
}

/// An event in one word: bits 7:0 its kind, 15:8 a network, 31:16 a unit, 63:32 a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventWord(u64);

impl From<NetworkEvent> for EventWord {
    #[inline]
    fn from(event: NetworkEvent) -> Self {
        use {buffered::Step as Buffered, wormhole::Step as Wormhole};
        let (kind, network, unit, number) = match event {
            NetworkEvent::Wormhole(network, Wormhole::Done(source)) => (0, network, 0, source),
            NetworkEvent::Wormhole(network, Wormhole::Head(source)) => (1, network, 0, source),
            NetworkEvent::Wormhole(network, Wormhole::Settle) => (2, network, 0, 0),
            NetworkEvent::Buffered(network, Buffered::Sent(link)) => (3, network, 0, link),
            NetworkEvent::Buffered(network, Buffered::Ready(packet)) => (4, network, 0, packet),
            NetworkEvent::Buffered(network, Buffered::Delivered(packet)) => (5, network, 0, packet),
            NetworkEvent::Buffered(network, Buffered::Settle) => (6, network, 0, 0),
            NetworkEvent::Trigger => (7, 0, 0, 0),
            NetworkEvent::Letter { to, text } => (8, 0, to, text),
            NetworkEvent::LetterOf(unit) => (9, 0, unit, 0),
            NetworkEvent::Work(unit) => (10, 0, unit, 0),
            NetworkEvent::Tick(unit) => (11, 0, unit, 0),
            NetworkEvent::Done(unit) => (12, 0, unit, 0),
            NetworkEvent::Wake(index) => (13, 0, index, 0),
            NetworkEvent::Through {
                readout,
                phase,
                demand: PhaseDemand::Idle,
            } => (14, 0, readout, phase),
            NetworkEvent::Through {
                readout,
                phase,
                demand: PhaseDemand::Waiting,
            } => (15, 0, readout, phase),
            NetworkEvent::Phase { readout, phase } => (16, 0, readout, phase),
            NetworkEvent::Die(code) => (17, 0, code, 0),
            NetworkEvent::Settle(unit) => (18, 0, unit, 0),
            NetworkEvent::Look => (19, 0, 0, 0),
            NetworkEvent::Gone(unit) => (20, 0, unit, 0),
            NetworkEvent::Back(code) => (21, 0, code, 0),
        };
        let small = u32::from(unit) << 16 | u32::from(network) << 8 | kind;
        Self(u64::from(number) << 32 | u64::from(small))
    }
}

impl EventWord {
    /// The event.
    ///
    /// # Panics
    /// Never: words are made from events alone.
    #[inline]
    pub(super) fn event(self) -> NetworkEvent {
        use {buffered::Step as Buffered, wormhole::Step as Wormhole};
        let Self(word) = self;
        let (network, unit, number) = ((word >> 8) as u8, (word >> 16) as u16, (word >> 32) as u32);
        match word as u8 {
            0 => NetworkEvent::Wormhole(network, Wormhole::Done(number)),
            1 => NetworkEvent::Wormhole(network, Wormhole::Head(number)),
            2 => NetworkEvent::Wormhole(network, Wormhole::Settle),
            3 => NetworkEvent::Buffered(network, Buffered::Sent(number)),
            4 => NetworkEvent::Buffered(network, Buffered::Ready(number)),
            5 => NetworkEvent::Buffered(network, Buffered::Delivered(number)),
            6 => NetworkEvent::Buffered(network, Buffered::Settle),
            7 => NetworkEvent::Trigger,
            8 => NetworkEvent::Letter {
                to: unit,
                text: number,
            },
            9 => NetworkEvent::LetterOf(unit),
            10 => NetworkEvent::Work(unit),
            11 => NetworkEvent::Tick(unit),
            12 => NetworkEvent::Done(unit),
            13 => NetworkEvent::Wake(unit),
            kind @ (14 | 15) => NetworkEvent::Through {
                readout: unit,
                phase: number,
                demand: match kind {
                    14 => PhaseDemand::Idle,
                    _ => PhaseDemand::Waiting,
                },
            },
            16 => NetworkEvent::Phase {
                readout: unit,
                phase: number,
            },
            17 => NetworkEvent::Die(unit),
            18 => NetworkEvent::Settle(unit),
            19 => NetworkEvent::Look,
            20 => NetworkEvent::Gone(unit),
            21 => NetworkEvent::Back(unit),
            kind => unreachable!("no event is of kind {kind}"),
        }
    }
}

impl StepEvent<wormhole::Step> for EventWord {
    #[inline]
    fn of(network: u8, step: wormhole::Step) -> Self {
        NetworkEvent::Wormhole(network, step).into()
    }
}

impl StepEvent<buffered::Step> for EventWord {
    #[inline]
    fn of(network: u8, step: buffered::Step) -> Self {
        NetworkEvent::Buffered(network, step).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stands_for_one_event() {
        let (unit, number) = (0xABCD, 0x1234_5678);
        let mut events = vec![
            NetworkEvent::Trigger,
            NetworkEvent::Letter {
                to: unit,
                text: number,
            },
            NetworkEvent::LetterOf(unit),
            NetworkEvent::Work(unit),
            NetworkEvent::Tick(unit),
            NetworkEvent::Done(unit),
            NetworkEvent::Wake(unit),
            NetworkEvent::Phase {
                readout: unit,
                phase: number,
            },
            NetworkEvent::Die(unit),
            NetworkEvent::Settle(unit),
            NetworkEvent::Gone(unit),
            NetworkEvent::Back(unit),
            NetworkEvent::Look,
        ];
        for demand in [PhaseDemand::Idle, PhaseDemand::Waiting] {
            events.push(NetworkEvent::Through {
                readout: unit,
                phase: number,
                demand,
            });
        }
        for step in [
            wormhole::Step::Done(number),
            wormhole::Step::Head(number),
            wormhole::Step::Settle,
        ] {
            events.push(NetworkEvent::Wormhole(7, step));
        }
        for step in [
            buffered::Step::Sent(number),
            buffered::Step::Ready(number),
            buffered::Step::Delivered(number),
            buffered::Step::Settle,
        ] {
            events.push(NetworkEvent::Buffered(7, step));
        }
        for event in events {
            assert_eq!(EventWord::from(event).event(), event);
        }
    }
}
