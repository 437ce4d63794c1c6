//! The end of a run by force, of roles that have processes: step by step, each when nobody works any
//! more.
//!
//! Between the units of the event builder a network may have lost something, or hold it back: then
//! nobody works, and a readout unit still holds what a builder unit has released. It asks after
//! `probe`, and is waited for, so that nothing is counted as lost that is in an event. Who asks for the
//! end once more cuts the waits short.

use std::time::{Duration, Instant};

use livetime_wire::UnitId;

use super::process_group::{LOOK, PATIENCE, ProcessGroup};
use super::rest_watch::{Activities, RestWatch, without_cycle};
use super::run_page::SettleStep;
use crate::counter_block::RoleCounts;
use crate::settlement::longest_repair;
use crate::snapshot::is_of_builder;
use crate::worker::Phase;

/// Without a duty cycle for so long a role stands still: it has one in some milliseconds, and hosts tell
/// of theirs in some hundredths of a second.
const STILL: Duration = Duration::from_secs(1);
/// How long a wait takes at most once it was asked to be cut short: roles that are there come to rest
/// in that, and the accounts close.
const HASTE: Duration = Duration::from_millis(500);
/// How long a host that is not heard is waited for, unless that was asked to be cut short.
const HOST_PATIENCE: Duration = Duration::from_secs(5);

impl ProcessGroup {
    /// Has every role count what is its own to count.
    pub(super) fn end_by_force(&mut self, rest: &mut RestWatch) {
        self.end_unasked_now();
        self.page().phase().advance(Phase::Aborting);
        self.await_rest(rest);
        self.page().advance(SettleStep::CloseBuilders);
        self.await_rest(rest);
        self.await_repairs();
        self.page().advance(SettleStep::CloseOthers);
        self.await_rest(rest);
        self.page().advance(SettleStep::Finish);
    }

    /// Waits until no role does any work, as long as patience lasts.
    fn await_rest(&mut self, rest: &mut RestWatch) {
        self.await_hosts();
        let since = Instant::now();
        let mut began = self.activities();
        rest.begin(began.clone());
        while since.elapsed() < self.patience() {
            std::thread::sleep(LOOK);
            self.take_heard();
            // One that hangs on an event has no duty cycle any more.
            self.watch_events();
            let now = self.activities();
            if rest.goes_round(self.living_counts(), &now, Instant::now()) || rest.look(now) {
                return;
            }
        }
        // A writer may be waiting for its disk.
        for process in self.processes.iter().filter(|process| process.is_writer()) {
            began.remove(&process.block);
        }
        rest.end(&began, &self.activities());
    }

    /// Waits until every host knows the step: one that does not would look as if it were through with it.
    fn await_hosts(&mut self) {
        let since = Instant::now();
        while let Some(hosts) = &self.launcher.hosts {
            if hosts.await_phase(self.page(), LOOK)
                || since.elapsed() >= self.patience().min(HOST_PATIENCE)
            {
                return;
            }
        }
    }

    /// Waits until what was lost between units of the event builder is repaired, as long as there are
    /// repairs and patience lasts. Builder units have nothing in hand at this step; what readout units
    /// hold for good is in no event.
    fn await_repairs(&mut self) {
        let longest = longest_repair(&self.config);
        if longest.is_zero() || !self.are_builders_there() {
            return;
        }
        let since = Instant::now();
        let (mut held, mut held_since) = (self.held_by_units(), since);
        while since.elapsed() < self.patience()
            && !self.are_units_idle()
            && held_since.elapsed() < longest
        {
            std::thread::sleep(LOOK);
            self.take_heard();
            let now = self.held_by_units();
            if now != held {
                (held, held_since) = (now, Instant::now());
            }
        }
    }

    /// How long a step is waited for.
    fn patience(&mut self) -> Duration {
        match self.ends_at_once() {
            true => HASTE,
            false => PATIENCE,
        }
    }

    fn held_by_units(&self) -> u64 {
        let units = self.processes.iter().filter(|p| is_of_builder(p.unit.kind));
        units.map(|unit| unit.counters.read().gauges.held).sum()
    }

    fn take_heard(&mut self) {
        while let Ok((index, heard)) = self.heard.try_recv() {
            self.take(index, heard);
        }
    }

    /// Whether each builder unit has a process: one that is gone releases nothing.
    fn are_builders_there(&self) -> bool {
        (0..self.config.builder.builder_units).all(|index| {
            let mut processes = self.processes.iter();
            processes.any(|process| process.unit == UnitId::builder(index) && !process.gone)
        })
    }

    fn are_units_idle(&self) -> bool {
        let living = self.processes.iter().filter(|process| !process.gone);
        let mut units = living.filter(|process| is_of_builder(process.unit.kind));
        units.all(|process| process.counters.read().gauges.idle == 1)
    }

    /// Living roles that stand still, with what is known of that: they are stopped, or wait in the
    /// system, for a disk perhaps.
    pub fn standing_still(&self) -> Vec<(String, String)> {
        let began = self.activities();
        std::thread::sleep(STILL);
        let without_cycle: Vec<usize> = without_cycle(&began, &self.activities()).collect();
        let living = self.processes.iter().filter(|process| !process.gone);
        let still = living.filter_map(|process| {
            let id = process.child.id();
            let why = if process.child.is_stopped() {
                format!("its process {id} is stopped, by a signal or a debugger")
            } else if without_cycle.contains(&process.block) {
                format!("its process {id} did nothing for {STILL:?}")
            } else {
                return None;
            };
            Some((process.name(), why))
        });
        still.collect()
    }

    /// What each living role has counted.
    fn living_counts(&self) -> impl Iterator<Item = RoleCounts> {
        let living = self.processes.iter().filter(|process| !process.gone);
        living.map(|process| process.counters.read())
    }

    /// What each living role has done.
    pub(super) fn activities(&self) -> Activities {
        let living = self.processes.iter().filter(|process| !process.gone);
        living
            .map(|process| (process.block, self.page().activity(process.block)))
            .collect()
    }
}
