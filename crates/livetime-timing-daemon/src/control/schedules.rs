//! Schedules that play in the core: begun beside each other, ended together.

use livetime_timing::{Caller, Operation, SCHEDULES_MAX, SchedulePlayer, authorise};

use super::{Control, ControlError};
use crate::core_worker::CoreCommand;

impl Control {
    /// Plays messages in the core, beside what is playing there.
    ///
    /// # Errors
    /// [`ControlError::Access`], [`ControlError::Full`] while [`SCHEDULES_MAX`] schedules are playing,
    /// or [`ControlError::Core`].
    pub fn play(&self, caller: &Caller, player: SchedulePlayer) -> Result<(), ControlError> {
        authorise(caller, Operation::PlaySchedule, None)?;
        let mut state = self.lock();
        if state.fresh_figures(false)?.schedules >= SCHEDULES_MAX {
            return Err(ControlError::Full {
                what: "places for schedules that play at a time",
                max: SCHEDULES_MAX,
            });
        }
        Ok(state.core.send(CoreCommand::Play(player))?)
    }

    /// Ends all schedules that are playing, whoever has had them played; returns how many were. What
    /// is sent already, up to its lead before its time, is acted on.
    ///
    /// # Errors
    /// [`ControlError::Access`] or [`ControlError::Core`].
    pub fn stop_schedules(&self, caller: &Caller) -> Result<usize, ControlError> {
        authorise(caller, Operation::PlaySchedule, None)?;
        let mut state = self.lock();
        let playing = state.fresh_figures(false)?.schedules;
        state.core.send(CoreCommand::StopSchedules)?;
        state.snapshot = None;
        Ok(playing)
    }
}
