//! Changes of conditions: checked, compiled and on their way to the core under one lock.

use livetime_timing::{Applied, Caller, Change, ConditionId, ConditionSpec, TableLimits};

use super::{Control, ControlError, State, shares, unknown};
use crate::core_worker::CoreCommand;

impl Control {
    /// Makes all changes of conditions or none. Where a condition is removed that another client
    /// owns, that one's subscriptions to its sink end. The table is on its way to the core when this
    /// returns, and holds for every message that is injected from then on. (The table in the
    /// answer is an empty one.)
    ///
    /// # Errors
    /// [`ControlError::Gone`], [`ControlError::Transaction`] or [`ControlError::Core`].
    pub fn apply(&self, caller: &Caller, changes: &[Change]) -> Result<Applied, ControlError> {
        self.lock().apply(caller, changes)
    }

    /// Replaces a condition by what `change` makes of it, without anybody in between: two callers that
    /// change one part each of a condition that nobody owns do not undo each other's.
    ///
    /// # Errors
    /// [`ControlError::Unknown`] or those of [`Control::apply`], and whatever `change` refuses.
    pub fn replace<E: From<ControlError>>(
        &self,
        caller: &Caller,
        id: ConditionId,
        change: impl FnOnce(ConditionSpec) -> Result<ConditionSpec, E>,
    ) -> Result<(), E> {
        let mut state = self.lock();
        let found = state.registry.condition(id);
        let spec = found.ok_or_else(|| unknown("condition", &id))?.spec;
        state.apply(caller, &[Change::Replace(id, change(spec)?)])?;
        Ok(())
    }
}

impl State {
    fn apply(&mut self, caller: &Caller, changes: &[Change]) -> Result<Applied, ControlError> {
        self.check_here(caller.client)?;
        shares::check_conditions(&self.registry, caller, changes)?;
        let of_user = self.of_same_user(caller);
        shares::check_conditions_of_user(&self.registry, caller, changes, &of_user)?;
        let deaf = shares::made_deaf(&self.registry, caller, changes);
        let mut applied = self.registry.apply(caller, changes)?;
        self.revision += 1;
        let empty = Box::new(livetime_timing::MatchTable::empty(TableLimits::HARDWARE));
        let table = std::mem::replace(&mut applied.table, empty);
        self.core.send(CoreCommand::Install(table))?;
        // Who listens there is told: it would wait for records that do not come any more.
        self.end_subscriptions(|entry| deaf.contains(&(entry.client, entry.sink)))?;
        Ok(applied)
    }
}
