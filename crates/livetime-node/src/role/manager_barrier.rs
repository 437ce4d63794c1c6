//! The barrier of a linear shift in the event manager's role, with its messages.
//!
//! What it decides is in [`PhaseBarrier`], which says too why it is here. Messages carry the number of
//! their phase, and what is lost is said again: so neither sequence numbers nor epochs are checked, and
//! what comes late of a readout unit that is dead can at most make another meet it.

use livetime_builder::{Handled, Outgoing, PhaseBarrier};
use livetime_wire::message::{BuilderMessage, Envelope};
use livetime_wire::{DurationNs, RunNs, UnitId, UnitKind};

use crate::role_ends::FIRST_EPOCH;

/// The barrier.
pub struct ManagerBarrier {
    core: PhaseBarrier,
    epoch: u32,
}

impl ManagerBarrier {
    /// For so many readout units, of which it waits for each as long as this; in the epoch of its
    /// event manager.
    pub fn new(readout_units: usize, patience: DurationNs, epoch: u32) -> Self {
        let core = match epoch {
            FIRST_EPOCH => PhaseBarrier::new(readout_units, patience),
            _ => PhaseBarrier::resuming(readout_units, patience),
        };
        Self { core, epoch }
    }

    /// Takes a message that is meant for the barrier; `None` of all others.
    pub fn handle_message(&mut self, now: RunNs, envelope: &Envelope) -> Option<Handled> {
        let (UnitKind::Readout, BuilderMessage::Through { phase, demand }) =
            (envelope.sender.kind, &envelope.message)
        else {
            return None;
        };
        let sender = envelope.sender.index.into();
        self.core.handle_through(now, sender, *phase, *demand);
        Some(Handled::Taken)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: RunNs) {
        self.core.handle_timeout(now);
    }

    /// A unit is lost.
    pub fn lose(&mut self, unit: UnitId) {
        if unit.kind == UnitKind::Readout {
            self.core.handle_lost(unit.index.into());
        }
    }

    /// A unit is back in another life.
    pub fn restore(&mut self, unit: UnitId) {
        if unit.kind == UnitKind::Readout {
            self.core.handle_back(unit.index.into());
        }
    }

    /// The next message.
    pub fn poll_output(&mut self) -> Option<Outgoing> {
        let (to, phase) = self.core.poll_output()?;
        let envelope = Envelope {
            sender: UnitId::EVENT_MANAGER,
            epoch: self.epoch,
            sequence: phase as u32,
            message: BuilderMessage::Phase { phase },
        };
        let to = UnitId::readout(to as u16);
        Some(Outgoing { to, envelope })
    }

    /// What it did, by name, for the report.
    pub fn details(&self) -> [(&'static str, u64); 4] {
        let counts = self.core.counts();
        [
            ("shaping_phases", counts.phases),
            ("shaping_throughs", counts.throughs),
            ("shaping_throughs_again", counts.repetitions),
            ("shaping_readout_units_left_out", counts.left_out),
        ]
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::message::PhaseDemand;

    use super::*;

    fn of(sender: UnitId, message: BuilderMessage) -> Envelope {
        Envelope {
            sender,
            epoch: 1,
            sequence: 0,
            message,
        }
    }

    #[test]
    fn messages_of_readout_units_move_the_phases_and_no_others() {
        let mut barrier = ManagerBarrier::new(2, DurationNs(100), FIRST_EPOCH);
        let through = |phase| BuilderMessage::Through {
            phase,
            demand: PhaseDemand::Waiting,
        };
        let now = RunNs(1);
        for (sender, message) in [
            (UnitId::builder(0), through(0)),
            (UnitId::readout(0), BuilderMessage::Alive),
        ] {
            assert_eq!(barrier.handle_message(now, &of(sender, message)), None);
        }
        let taken = Some(Handled::Taken);
        for index in [0, 1, 1, 7] {
            let said = of(UnitId::readout(index), through(0));
            assert_eq!(barrier.handle_message(now, &said), taken);
        }
        let told: Vec<_> = std::iter::from_fn(|| barrier.poll_output()).collect();
        assert_eq!(told.len(), 2);
        for (index, outgoing) in (0..).zip(&told) {
            assert_eq!(outgoing.to, UnitId::readout(index));
            assert_eq!(
                (outgoing.envelope.epoch, outgoing.envelope.sequence),
                (FIRST_EPOCH, 1)
            );
            let phase = BuilderMessage::Phase { phase: 1 };
            assert_eq!(outgoing.envelope.message, phase);
        }
        // One is lost, and the phases go on; a builder unit is none of it.
        barrier.lose(UnitId::builder(0));
        barrier.lose(UnitId::readout(1));
        let said = of(UnitId::readout(0), through(1));
        assert_eq!(barrier.handle_message(now, &said), taken);
        assert!(barrier.poll_output().is_some() && barrier.poll_output().is_none());
        barrier.restore(UnitId::readout(1));
        let said = of(UnitId::readout(0), through(2));
        assert_eq!(barrier.handle_message(now, &said), taken);
        assert_eq!(
            barrier.poll_output(),
            None,
            "it waits for the one that is back"
        );
        barrier.handle_timeout(RunNs(101));
        assert!(barrier.poll_output().is_some());
        assert_eq!(barrier.details()[3].1, 1);
        // That of the next event manager goes on where this one was.
        let mut next = ManagerBarrier::new(1, DurationNs(100), FIRST_EPOCH + 1);
        let said = of(UnitId::readout(0), through(3));
        assert_eq!(next.handle_message(now, &said), taken);
        let begun = next.poll_output().map(|outgoing| outgoing.envelope.message);
        assert_eq!(begun, Some(BuilderMessage::Phase { phase: 4 }));
    }
}
