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
    let is_builder = unit_of(role.id()).is_some_and(|unit| unit.kind == UnitKind::Builder);
    let closes_at = if is_builder {
        SettleStep::CloseBuilders
    } else {
        SettleStep::CloseOthers
    };
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
        if step == SettleStep::Finish {
            return;
        }
        if !closed && step >= closes_at {
            closed = true;
            role.close();
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
