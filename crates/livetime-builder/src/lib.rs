//! Event builder protocol: readout unit, builder unit, event manager, filter dispatch.
