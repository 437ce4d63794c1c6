//! Function generators: waveforms from coefficient sets, streamed to emulated hardware.
//!
//! [`segment`] is the arithmetic, bit for bit; [`validation`] checks sets before they are queued;
//! [`firmware`] emulates what runs the segments, with a short queue of its own; [`generator`] is
//! the state machine that a client arms, starts and refills; [`master`] drives up to 64 of them
//! as one. What to write into a set for a given curve is answered by [`crate::waveform`].

pub mod firmware;
pub mod generator;
pub mod master;
pub mod segment;
pub mod validation;

pub use firmware::{Firmware, FirmwareConfig, FirmwareFault};
pub use generator::{
    Appended, FunctionGenerator, GeneratorConfig, GeneratorError, GeneratorSignal, GeneratorState,
};
pub use master::{MasterError, MasterFunctionGenerator, MasterOutput};
pub use segment::{Accumulator, Segment, period_ns, samples};
pub use validation::{SetProblem, SetRule, ValidationMode, ValidationRules, validate_sets};
