//! Processes that die when the run has ended already, before they have said what they leave.
//!
//! Nobody takes their places: there is nothing more to be done in them. Whether such a death is an
//! error is what it would have been earlier, see [`super::recovery`]: of a unit that the run would
//! have gone on without it is told, and of any other it is an error. Either way the counters that
//! it published are settled with those of its neighbours, and what does not come out is a loss with a
//! name, or an equation that does not hold, which is an error as in any run.

use std::time::{Duration, Instant};

use livetime_wire::UnitKind;

use super::process_group::{ProcessGroup, RoleProcess};
use super::recovery::OnLoss;

/// How long those that were killed may take to be gone.
const DEATH_PATIENCE: Duration = Duration::from_secs(5);

impl ProcessGroup {
    /// Kills those that have not said in time what they leave: they are stopped by a debugger, or wait
    /// in the kernel. From then on they are like any that died.
    pub(super) fn kill_silent(&mut self) {
        let is_silent = |process: &RoleProcess| !process.gone && process.left.is_none();
        let silent = self.processes.iter_mut().filter(|p| is_silent(p));
        for process in silent {
            process.silent = true;
            process.child.kill();
        }
        let until = Instant::now() + DEATH_PATIENCE;
        while self.processes.iter().any(is_silent) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((index, heard)) = self.heard.recv_timeout(left) else {
                break;
            };
            self.take(index, heard);
        }
    }

    /// Ends what is left of the processes that died at the end of the run; says of those whose deaths
    /// are no error how they ended.
    pub(super) fn bury_missed(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        // Before they are dealt with: what is done without is a matter of who died together.
        let fates = self.missed.iter();
        let fates: Vec<_> = fates.map(|i| (*i, self.goes_on_without(*i))).collect();
        self.missed.clear();
        for (index, goes_on) in fates {
            let process = &mut self.processes[index];
            let mut exit = process.end();
            if process.over_time {
                let limit = self.policy.time_limit;
                exit = format!("killed: it worked on an event for more than {limit}");
            } else if process.silent {
                exit = "killed: it was silent".to_owned();
            }
            let died = format!(
                "the process of {} died at the end of the run: {exit}",
                process.id
            );
            process.lost = Some(exit.clone());
            if process.unit.kind == UnitKind::Filter && !process.silent {
                let event = process.counters.event_in_work();
                self.watch.note_death(index, &process.id, event, &exit);
                self.watch.note_last_death(event);
            }
            if goes_on {
                told.push(format!(
                    "{died}; what it had counted is settled from its neighbours, and its histograms \
                     are unknown"
                ));
            } else {
                process.result.failure = Some(died);
            }
        }
        told
    }

    /// Whether the run would have gone on after the death of a process.
    fn goes_on_without(&self, index: usize) -> bool {
        if self.group_lost_with(index).is_some() {
            return true;
        }
        let process = &self.processes[index];
        let is_other = |other: &RoleProcess| {
            // One that has ended in order hangs up as well.
            let is_there = !other.gone || other.left.is_some();
            is_there && self.stands_in(other.unit, process.unit)
        };
        let policy = match self.policy_about(process) {
            // Nothing could have been started there.
            OnLoss::Restart if self.is_homeless(process.unit) => match process.unit.kind {
                UnitKind::EventManager => OnLoss::Stop,
                _ => OnLoss::Continue,
            },
            policy => policy,
        };
        match policy {
            OnLoss::Restart => self.may_restart(),
            OnLoss::Continue => self.processes.iter().any(is_other),
            OnLoss::Stop => false,
        }
    }
}
