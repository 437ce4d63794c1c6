//! Another event manager in the place of a dead one, in the middle of a run.
//!
//! ```text
//! supervisor      reads which triggers the dead one said to be finished; what comes goes into its log
//! builder units   read what it had assigned; what they say to it is dropped, and remembered by them
//! readout units   wait for no phase of it
//! all             get rings and streams to the new process, and readout units its epoch
//! readout units   name those of the open triggers that were released, as far as they lie so far back
//!                 that a builder unit may not know it any more
//! supervisor      tells it the triggers of its log that are open, and then those that come
//! new one         asks the builder units which of those they hold or have finished, which ends the
//!                 epoch of the dead one, and assigns the others ([`super::recovery`] tells it which
//!                 builder units are gone)
//! ```
//! Builder units go on with what they have. Triggers are given until the log is full, and again when
//! events are finished: the price is dead time, and nothing is lost. The log is closed by what the
//! event manager says and, of builder units that are gone, by what is decided here; so it does not
//! matter when an event manager dies: at work, before it knows what is open, or while another loss is
//! settled. Each of them is one of the processes that may be started again in a run.

use livetime_wire::{UnitId, UnitKind};

use super::process_group::ProcessGroup;

/// Where the supervisor lives.
const SOURCE: UnitId = UnitId {
    kind: UnitKind::Source,
    index: 0,
};

impl ProcessGroup {
    /// Starts a process in the place of a lost event manager, and waits until it knows what is open.
    pub(super) fn replace_manager(&mut self) -> Result<(), String> {
        use UnitKind::{Builder, EventManager, Readout, Source};
        let manager = UnitId::EVENT_MANAGER;
        let old = self.tell("lost", manager, &[Source], &[])?;
        if !self.lives(SOURCE) {
            // Who else knows what is open, died with it.
            return Err("the supervisor is gone, too".to_owned());
        }
        self.tell("lost", manager, &[Builder, Readout], &[])?;
        self.restart(manager)?;
        // Builder units reach the new one by now: what they release from here on, it hears of.
        let finished = match old.is_empty() {
            true => Vec::new(),
            false => self.tell("released", manager, &[Readout], &old)?,
        };
        self.tell("succeed", manager, &[EventManager], &finished)?;
        for unit in self.builders_gone() {
            // What it had handed on is closed in the log: nothing of it is left.
            self.tell("lost", unit, &[EventManager], &[])?;
            self.tell("decide", unit, &[EventManager], &[])?;
        }
        Ok(())
    }

    /// Builder units that the run goes on without: their loss is settled.
    fn builders_gone(&self) -> Vec<UnitId> {
        let units = (0..self.config.builder.builder_units).map(UnitId::builder);
        let is_gone = |unit: &UnitId| {
            // Its last life says; one that is not settled yet is told of in its turn.
            let mut lives = self.processes.iter().rev().filter(|p| p.unit == *unit);
            lives.next().is_none_or(|last| last.settled)
        };
        units.filter(is_gone).collect()
    }

    /// Has another event manager where it has died while something else was settled.
    pub(super) fn await_manager(&mut self) -> Result<(), String> {
        while !self.lives(UnitId::EVENT_MANAGER) {
            let mut missed = self.missed.iter();
            let is_it = |index: &usize| self.processes[*index].unit == UnitId::EVENT_MANAGER;
            let Some(nth) = missed.position(is_it) else {
                return Err("the event manager is gone, too".to_owned());
            };
            let index = self.missed.remove(nth);
            let incident = self.lose(index);
            let handled = incident.handled.clone();
            self.managers_lost.push(incident);
            handled?;
        }
        Ok(())
    }
}
