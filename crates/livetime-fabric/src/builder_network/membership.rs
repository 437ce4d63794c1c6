//! The part of a membership: which units live, who dies when, and who begins again.
//!
//! How a loss is settled is in [`super::builder_loss`], [`super::readout_loss`] and
//! [`super::manager_loss`]. What is told here is told to all units at once; that each may hear it at
//! a moment of its own is explored by [`crate::swarm`].

use livetime_wire::{UnitId, UnitKind};

use super::event::{EventWord, NetworkEvent};
use super::world::{HOST, NetworkWorld};
use crate::scheduler::Scheduler;
use crate::time::DurationPs;

/// Time to tell everybody.
pub(super) const TELLING: DurationPs = DurationPs::from_ms(1);

impl NetworkWorld<'_> {
    /// A unit that died begins again, now or when it can.
    pub(super) fn bring_back(&mut self, code: u16, s: &mut Scheduler<EventWord>) {
        let Some(unit) = UnitId::from_code(code) else {
            return;
        };
        let is_back = match unit {
            UnitId::EVENT_MANAGER => {
                self.renew_manager(s);
                true
            }
            unit if unit == UnitId::readout(unit.index) => self.renew_readout(unit.index, s),
            unit => self.renew_builder(unit.index, s),
        };
        if !is_back {
            s.after(TELLING, HOST, NetworkEvent::Back(code).into());
        }
    }

    /// Units of the kind of this one die.
    pub(super) fn die(&mut self, code: u16, s: &mut Scheduler<EventWord>) {
        match UnitId::from_code(code) {
            Some(UnitId::EVENT_MANAGER) => self.kill_manager(s),
            Some(unit) if unit == UnitId::readout(0) => self.kill_readouts(s),
            _ => self.kill_builders(s),
        }
    }

    /// Schedules the deaths of the run.
    pub(super) fn plan_deaths(&self, s: &mut Scheduler<EventWord>) {
        let sick = &self.plan.sick;
        for (deaths, unit) in [
            (sick.builders, UnitId::builder(0)),
            (sick.readouts, UnitId::readout(0)),
            (sick.manager, UnitId::EVENT_MANAGER),
        ] {
            if deaths.units > 0 {
                let code = unit.to_code();
                s.after(deaths.at, HOST, NetworkEvent::Die(code).into());
            }
        }
    }

    /// Whether a unit lives, and did so in this life when a message to it was said.
    #[inline]
    pub(super) fn hears(&self, to: UnitId, text: u32) -> bool {
        let (at, sick) = (usize::from(to.index), &self.plan.sick);
        let (is_dead, may_return, life) = match to.kind {
            UnitKind::Builder => {
                let host = &self.builders[at];
                (host.is_dead, sick.builders.units > 0, &host.life)
            }
            // The life of a unit that never dies is not looked at: that would be memory to wait for.
            UnitKind::Readout if sick.readouts.units > 0 => {
                let host = &self.readouts[at];
                (host.is_dead, true, &host.life)
            }
            UnitKind::EventManager => {
                let host = &self.manager;
                (host.is_dead, sick.manager.units > 0, &host.life)
            }
            _ => return true,
        };
        !is_dead && (!may_return || self.texts.sent(text) >= life.began)
    }

    /// Whether a readout unit does nothing.
    #[inline]
    pub(super) fn is_readout_dead(&self, unit: u16) -> bool {
        self.plan.sick.readouts.units > 0 && self.readouts[usize::from(unit)].is_dead
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::message::{BuilderMessage, Envelope};

    use super::super::{BuilderNetwork, Deaths, SickUnits};
    use super::*;
    use crate::network::{Load, Pattern, SizeLaw, Topology, Traffic};
    use crate::scenario::Switching;
    use crate::time::SimPs;

    /// As a stream ends with a process, so does what is on it.
    #[test]
    fn a_unit_hears_what_was_said_in_its_present_life() {
        let topology = Topology::crossbar(4).unwrap();
        let load = Load::saturated(Traffic::new(Pattern::Uniform), SizeLaw::Fixed(64), 1);
        let dies = Deaths {
            units: 1,
            ..Deaths::default()
        };
        let plan = BuilderNetwork {
            sick: SickUnits {
                builders: dies,
                readouts: dies,
                manager: dies,
                ..SickUnits::default()
            },
            ..BuilderNetwork::default()
        };
        let mut world = NetworkWorld::new(&plan, &topology, &load, &Switching::Wormhole, 1);
        let envelope = Envelope {
            sender: UnitId::SUPERVISOR,
            epoch: 1,
            sequence: 0,
            message: BuilderMessage::Alive,
        };
        let (before, after) = (SimPs(50), SimPs(100));
        let said = [before, after].map(|at| world.texts.keep(at, envelope.clone(), 1).0);
        let units = [
            UnitId::readout(2),
            UnitId::builder(2),
            UnitId::EVENT_MANAGER,
        ];
        let heard =
            |world: &NetworkWorld<'_>| units.map(|unit| said.map(|text| world.hears(unit, text)));
        assert_eq!(heard(&world), [[true, true]; 3]);
        world.readouts[2].life.began = after;
        world.builders[2].life.began = after;
        world.manager.life.began = after;
        assert_eq!(heard(&world), [[false, true]; 3]);
        world.readouts[2].is_dead = true;
        world.builders[2].is_dead = true;
        world.manager.is_dead = true;
        assert_eq!(heard(&world), [[false, false]; 3]);
    }
}
