//! Registry and action unit together, for drivers that keep both on one thread.
//!
//! Inputs are `handle_*` and changes of conditions, outputs [`TimingCore::poll_output`]. A driver
//! with a hot thread of its own keeps a [`Registry`] in its control thread and an [`ActionUnit`]
//! in the hot one, and passes tables between them.

use livetime_wire::{Problem, TaiNs, TimingMessage};

use crate::action_unit::{Action, ActionUnit, ActionUnitConfig};
use crate::ownership::{Caller, ClientId};
use crate::registry::{
    Applied, Change, ClientGone, Registry, RegistryConfig, SinkError, TransactionError,
};
use crate::sink::{SinkId, SinkSpec};

/// A whole receiver core: conditions, owners, queues.
#[derive(Debug)]
pub struct TimingCore {
    registry: Registry,
    actions: ActionUnit,
}

impl TimingCore {
    /// A core without sinks.
    ///
    /// # Errors
    /// All problems of both configurations; the number of sinks must be the same in both.
    pub fn new(registry: RegistryConfig, actions: ActionUnitConfig) -> Result<Self, Vec<Problem>> {
        let actions = ActionUnitConfig {
            sinks_max: registry.sinks_max,
            ..actions
        };
        Ok(Self {
            registry: Registry::new(registry)?,
            actions: ActionUnit::new(actions)?,
        })
    }

    /// Sinks and conditions.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Owners of sinks; conditions change through [`TimingCore::apply`] only.
    pub fn registry_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Counters and reports.
    pub fn actions(&self) -> &ActionUnit {
        &self.actions
    }

    /// Counters and reports, to read and clear them.
    pub fn actions_mut(&mut self) -> &mut ActionUnit {
        &mut self.actions
    }

    /// Creates a sink that belongs to the caller.
    ///
    /// # Errors
    /// See [`Registry::create_sink`].
    pub fn create_sink(&mut self, caller: &Caller, spec: SinkSpec) -> Result<SinkId, SinkError> {
        let kind = spec.kind;
        let sink = self.registry.create_sink(caller, spec)?;
        self.actions.clear_sink(sink, kind);
        Ok(sink)
    }

    /// Adds a sink that the receiver itself has.
    ///
    /// # Errors
    /// See [`Registry::add_fixed_sink`].
    pub fn add_fixed_sink(&mut self, spec: SinkSpec) -> Result<SinkId, SinkError> {
        self.registry.add_fixed_sink(spec)
    }

    /// Destroys a sink with its conditions.
    ///
    /// # Errors
    /// See [`Registry::destroy_sink`].
    pub fn destroy_sink(&mut self, caller: &Caller, sink: SinkId) -> Result<(), SinkError> {
        let kind = self.registry.sink(sink).map(|sink| sink.spec.kind);
        let table = self.registry.destroy_sink(caller, sink)?;
        self.actions.install(table);
        if let Some(kind) = kind {
            self.actions.clear_sink(sink, kind);
        }
        Ok(())
    }

    /// Makes all changes or none; they hold for the next message.
    ///
    /// # Errors
    /// See [`Registry::apply`].
    pub fn apply(
        &mut self,
        caller: &Caller,
        changes: &[Change],
    ) -> Result<Applied, TransactionError> {
        let mut applied = self.registry.apply(caller, changes)?;
        applied.table = self.actions.install(applied.table);
        Ok(applied)
    }

    /// Destroys or releases everything that a client owned.
    pub fn handle_client_gone(&mut self, client: ClientId) -> ClientGone {
        let mut gone = self.registry.handle_client_gone(client);
        gone.table = self.actions.install(gone.table);
        for (sink, kind) in &gone.sinks {
            self.actions.clear_sink(*sink, *kind);
        }
        gone
    }

    /// Takes in a message that arrives now; see [`ActionUnit::handle_message`].
    pub fn handle_message(&mut self, now: TaiNs, message: &TimingMessage) -> u32 {
        self.actions.handle_message(now, message)
    }

    /// The next action executed up to `now`; call until `None`.
    pub fn poll_output(&mut self, now: TaiNs) -> Option<Action> {
        self.actions.poll_output(now)
    }

    /// When the next action is due.
    pub fn poll_timeout(&self) -> Option<TaiNs> {
        self.actions.poll_timeout()
    }
}
