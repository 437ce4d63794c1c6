//! Where events come from: drawn or recorded, behind one call.

use crate::physics::PhysicsGenerator;
use crate::recorded::RecordedEvents;
use crate::source_event::SourceEvent;

/// A sequence of events, addressed by index from 0. Equal for every driver: event `index` depends
/// on nothing but the generator's own inputs, so refused offers may be skipped.
#[derive(Debug, Clone)]
pub enum EventGenerator {
    /// Drawn from the physics generator.
    Physics(Box<PhysicsGenerator>),
    /// Looked up in a file of recorded events, repeating.
    Recorded(RecordedEvents),
}

impl EventGenerator {
    /// Writes event `index` over the contents of `event`.
    pub fn event(&self, index: u64, event: &mut SourceEvent) {
        match self {
            Self::Physics(generator) => generator.event(index, event),
            Self::Recorded(events) => events.event(index, event),
        }
    }
}
