//! Units that stand still or cannot be reached for a while, and go on as if nothing had been.
//!
//! What comes to a process that stands still waits for it, and so does whoever wants an answer of it;
//! its timeouts are late. What comes from or to one that is cut off is lost.

use livetime_wire::{UnitId, UnitKind};

use super::world::{SwarmEvent, SwarmWorld};
use crate::queue::EventClass;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};

/// Until when a unit does nothing, and until when nothing comes from it or to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interruption {
    stopped_until: SimPs,
    cut_until: SimPs,
}

impl Interruption {
    pub(super) const NONE: Self = Self {
        stopped_until: SimPs::ZERO,
        cut_until: SimPs::ZERO,
    };

    /// When it goes on, if it stands still.
    pub(super) fn stopped(&self, now: SimPs) -> Option<SimPs> {
        (self.stopped_until > now).then_some(self.stopped_until)
    }

    /// Whether what waited for it is still unread: at the moment at which it goes on, too.
    pub(super) fn leaves_unread(&self, now: SimPs) -> bool {
        self.stopped_until >= now
    }

    pub(super) fn is_cut(&self, now: SimPs) -> bool {
        self.cut_until > now
    }

    /// When it can be told something, if not now.
    pub(super) fn unreachable(&self, now: SimPs) -> Option<SimPs> {
        let until = self.stopped_until.max(self.cut_until);
        (until > now).then_some(until)
    }

    /// It stands still until then at least.
    pub(super) fn stop_until(&mut self, until: SimPs) {
        self.stopped_until = self.stopped_until.max(until);
    }

    /// Another process is in its place.
    pub(super) fn begin_life(&mut self) {
        self.stopped_until = SimPs::ZERO;
    }
}

impl SwarmWorld {
    fn interruption_of(&mut self, unit: UnitId) -> &mut Interruption {
        let at = usize::from(unit.index);
        match unit.kind {
            UnitKind::Builder => &mut self.builders[at].interruption,
            UnitKind::Readout => &mut self.readouts[at].interruption,
            UnitKind::Filter => &mut self.filters[at].interruption,
            UnitKind::Writer => &mut self.writer.interruption,
            _ => &mut self.manager_interruption,
        }
    }

    /// When a unit goes on, if it stands still.
    pub(super) fn stopped(&mut self, unit: UnitId, now: SimPs) -> Option<SimPs> {
        self.interruption_of(unit).stopped(now)
    }

    pub(super) fn is_cut(&mut self, unit: UnitId, now: SimPs) -> bool {
        self.interruption_of(unit).is_cut(now)
    }

    /// Whether there is a process.
    fn is_there(&self, unit: UnitId) -> bool {
        let at = usize::from(unit.index);
        match unit.kind {
            UnitKind::Builder => self.builders[at].is_up,
            UnitKind::Readout => self.readouts[at].core.is_some(),
            UnitKind::Filter => self.filters[at].is_up,
            UnitKind::Writer => self.writer.is_up,
            _ => self.manager.is_some(),
        }
    }

    /// A unit's process stops for a while, if it is there.
    pub(super) fn stop(&mut self, unit: UnitId, for_ms: u64, s: &mut Scheduler<SwarmEvent>) {
        if !self.is_there(unit) {
            return;
        }
        self.count(match unit.kind {
            UnitKind::Builder => "builder_stopped",
            UnitKind::Readout => "readout_stopped",
            UnitKind::Filter => "filter_stopped",
            UnitKind::Writer => "writer_stopped",
            _ => "manager_stopped",
        });
        let until = s.now() + DurationPs::from_ms(for_ms);
        let interruption = self.interruption_of(unit);
        interruption.stop_until(until);
        let until = interruption.stopped_until;
        if let Some(wake) = self.wake_of(unit) {
            s.at(until, EventClass(1), SwarmEvent::Wake(wake));
        }
    }

    /// Nothing comes from or to a unit for a while.
    pub(super) fn cut(&mut self, unit: UnitId, for_ms: u64, now: SimPs) {
        self.count(match unit.kind {
            UnitKind::Builder => "builder_cut_off",
            UnitKind::Readout => "readout_cut_off",
            _ => "manager_cut_off",
        });
        let until = now + DurationPs::from_ms(for_ms);
        let interruption = self.interruption_of(unit);
        interruption.cut_until = interruption.cut_until.max(until);
    }

    /// Whose timeouts a wake-up is for; filter units and the writer have none.
    fn wake_of(&self, unit: UnitId) -> Option<u16> {
        match unit.kind {
            UnitKind::Builder => Some(1 + unit.index),
            UnitKind::Readout => Some(1 + self.builders.len() as u16 + unit.index),
            UnitKind::Filter | UnitKind::Writer => None,
            _ => Some(0),
        }
    }

    /// Whom a wake-up is for.
    pub(super) fn woken(&self, wake: u16) -> UnitId {
        let builders = self.builders.len() as u16;
        match wake {
            0 => UnitId::EVENT_MANAGER,
            unit if unit <= builders => UnitId::builder(unit - 1),
            unit => UnitId::readout(unit - 1 - builders),
        }
    }

    /// When all readout units go on, if one of them stands still.
    pub(super) fn readouts_stopped(&self, now: SimPs) -> Option<SimPs> {
        let stopped = self.readouts.iter().map(|host| &host.interruption);
        stopped.filter_map(|it| it.stopped(now)).max()
    }
}
