//! How much memory the tables of a unit take that grow with the trigger window and the history.
//!
//! They are made before the first trigger, in full, so that whoever starts units can say beforehand
//! whether there is memory for them. What a unit holds for each of its credits is not counted: a small
//! part of the pages that go with them; nor what a builder unit keeps of incomplete events, for which
//! it takes memory when there are some.

use livetime_wire::TriggerNumber;

use crate::builder_config::BuilderConfig;
use crate::closed_events::ClosedEvents;
use crate::dense_history::DenseHistory;
use crate::held_triggers::HeldTriggers;
use crate::trigger_history::TriggerHistory;

/// Bytes of the tables of readout unit `index`, beside its fragment buffer.
///
/// # Panics
/// If the configuration has no such unit.
pub fn readout_unit_bytes(config: &BuilderConfig, index: u16) -> u64 {
    let window = config.trigger_window as usize;
    let sources = config.readout_units[usize::from(index)].len();
    let work = (window as u64 + 1) * size_of::<TriggerNumber>() as u64;
    let history = DenseHistory::memory_bytes(config.history as usize);
    HeldTriggers::memory_bytes(window, sources) + work + history
}

/// Bytes of the history of the event manager.
pub fn event_manager_bytes(config: &BuilderConfig) -> u64 {
    TriggerHistory::memory_bytes(config.history as usize)
}

/// Bytes of the history of a builder unit.
pub fn builder_unit_bytes(config: &BuilderConfig) -> u64 {
    ClosedEvents::memory_bytes(config)
}
