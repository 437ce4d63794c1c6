//! The duty cycles of one role that has a process, or a thread of the parent, for itself.
//!
//! It differs from [`crate::worker`] in that the settlement of a run ended by force happens here,
//! step by step as the parent says, since no process can poll the role of another.

use std::sync::mpsc::Receiver;

use livetime_shm::Waiter;
use livetime_wire::{TriggerNumber, UnitId, UnitKind};

use crate::process::run_page::{Activity, RunPage, SettleStep};
use crate::role::{Role, RoleCommand, RoleReport};
use crate::role_ends::unit_of;
use crate::run_clock::RunClock;
use crate::worker::Phase;

/// What a role answers when it has another stream to a unit. No trigger has such a number: an answer that
/// comes too late names no event.
pub(super) fn rejoined_with(unit: UnitId) -> TriggerNumber {
    TriggerNumber((1 << 63) | u64::from(unit.to_code()))
}

/// The same of a command that gives a role another stream.
fn rejoined_by(command: &RoleCommand) -> Option<TriggerNumber> {
    match command {
        RoleCommand::StreamBack {
            unit,
            stream: Some(_),
        } => Some(rejoined_with(*unit)),
        _ => None,
    }
}

/// When a role counts what it still holds.
fn closes_at(role: &dyn Role) -> SettleStep {
    match unit_of(role.id()).map(|unit| unit.kind) {
        Some(UnitKind::Builder) => SettleStep::CloseBuilders,
        _ => SettleStep::CloseOthers,
    }
}

/// What a role may find wrong with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerTrouble {
    /// It is taken for dead.
    Silent(UnitId),
    /// The stream to it has ended by itself.
    Cut(UnitId),
}

/// Polls `role` until the run ends. Activity goes to block `index` of `page`; `settled` hears of
/// each command that was dealt with, `report` what the role has to tell, `heard` of each unit with
/// which something is wrong.
#[expect(
    clippy::too_many_arguments,
    reason = "one caller, which has each of them in a variable of that name"
)]
pub fn run_role(
    role: &mut dyn Role,
    (page, index): (&RunPage, usize),
    clock: &RunClock,
    waiter: &mut Waiter,
    commands: &Receiver<RoleCommand>,
    mut settled: impl FnMut(Vec<TriggerNumber>),
    mut report: impl FnMut(RoleReport),
    mut heard: impl FnMut(PeerTrouble),
) {
    let phase_cell = page.phase();
    let closes_at = closes_at(role);
    let mut activity = page.activity(index);
    let mut closed = false;
    let mut unsettled = false;
    // The unit to which there is another stream since the last command.
    let mut rejoined = None;
    loop {
        let phase = phase_cell.get();
        let step = match phase {
            Phase::Ending => return,
            Phase::Aborting => page.step(),
            _ => SettleStep::GiveUp,
        };
        // Who stood still meanwhile closes its books when all counters are to be final, but for a builder
        // unit: the event manager has given up what it had.
        let may_close = step < SettleStep::Finish || closes_at == SettleStep::CloseOthers;
        if !closed && step >= closes_at && may_close {
            closed = true;
            role.close();
        }
        if step == SettleStep::Finish {
            return;
        }
        let mut work = 0;
        // One at a time: the next may build upon what this one leaves.
        if !unsettled && let Ok(command) = commands.try_recv() {
            rejoined = rejoined_by(&command);
            role.handle_command(clock.now(), command);
            unsettled = true;
            work += 1;
        }
        if unsettled && let Some(triggers) = role.poll_settled() {
            unsettled = false;
            settled(rejoined.take().map_or(triggers, |unit| vec![unit]));
        }
        if role.has_left() {
            return;
        }
        let now = clock.now();
        work += role.poll(now, phase);
        if let Some(told) = role.poll_report(now) {
            report(told);
        }
        while let Some(unit) = role.poll_silent() {
            heard(PeerTrouble::Silent(unit));
        }
        while let Some(unit) = role.poll_cut(now) {
            heard(PeerTrouble::Cut(unit));
        }
        activity.cycles += 1;
        activity.work += work as u64;
        page.note(index, Activity { ..activity });
        waiter.after(work);
    }
}

#[cfg(test)]
mod tests {
    use livetime_shm::WaitStrategy;
    use livetime_wire::RunNs;

    use super::*;
    use crate::role::RoleResult;

    /// A role that says whether it was closed.
    struct Books {
        id: &'static str,
        are_closed: bool,
    }

    impl Role for Books {
        fn id(&self) -> &str {
            self.id
        }

        fn poll(&mut self, _now: RunNs, _phase: Phase) -> usize {
            panic!("all counters are final");
        }

        fn close(&mut self) {
            assert!(!std::mem::replace(&mut self.are_closed, true));
        }

        fn finish(self: Box<Self>, _now: RunNs) -> RoleResult {
            RoleResult::default()
        }
    }

    /// Given a run that is ended by force, in which a role had no duty cycle until all counters were to be
    /// final, then it counts what it has all the same, unless another has counted that.
    #[test]
    fn a_role_that_stood_still_all_the_time_closes_its_books() {
        for (id, are_closed) in [("evm", true), ("src0", true), ("ru1", true), ("bu1", false)] {
            let page = RunPage::new(1).expect("memory for one role");
            page.phase().advance(Phase::Aborting);
            page.advance(SettleStep::Finish);
            let mut role = Books {
                id,
                are_closed: false,
            };
            let (_commands, none) = std::sync::mpsc::channel();
            let mut waiter = Waiter::new(WaitStrategy::Adaptive);
            run_role(
                &mut role,
                (&page, 0),
                &RunClock::start(),
                &mut waiter,
                &none,
                |_| (),
                |_| (),
                |_| (),
            );
            assert_eq!(role.are_closed, are_closed, "{id}");
        }
    }
}
