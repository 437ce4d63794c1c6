//! Codes of the configuration problems that this crate raises, area T.
//!
//! T01xx are raised by [`crate::menu::MenuConfig::validate`], T02xx by
//! [`crate::supervisor::SupervisorConfig::validate`], T03xx by
//! [`crate::mass_window::MassWindowConfig::validate`] and
//! [`crate::event_menu::EventMenuConfig::validate`]. Each has a page under `docs/explain/`.

use livetime_wire::ProblemCode;

/// Two paths have the same bit.
pub const DUPLICATE_BIT: ProblemCode = ProblemCode::new("T0101", "two paths share one bit");
/// Two paths have the same name.
pub const DUPLICATE_NAME: ProblemCode = ProblemCode::new("T0102", "two paths share one name");
/// A prescale of zero.
pub const PRESCALE_ZERO: ProblemCode = ProblemCode::new("T0103", "prescale is zero");
/// A path that no Level-1 bit can open.
pub const EMPTY_L1_MASK: ProblemCode = ProblemCode::new("T0104", "path without a Level-1 bit");
/// A threshold that the packet's integers cannot reach or that is absurd.
pub const THRESHOLD_RANGE: ProblemCode = ProblemCode::new("T0105", "threshold out of range");
/// A bit number beyond the 128 of a decision.
pub const BIT_RANGE: ProblemCode = ProblemCode::new("T0106", "bit number out of range");
/// A name that reports and histograms cannot carry.
pub const PATH_NAME: ProblemCode = ProblemCode::new("T0107", "path name is not usable");
/// A menu that accepts nothing.
pub const EMPTY_MENU: ProblemCode = ProblemCode::new("T0108", "menu without a path");
/// A beam spot outside any beam pipe.
pub const BEAM_SPOT_RANGE: ProblemCode = ProblemCode::new("T0109", "beam spot out of range");
/// A lower threshold that is not below its upper one.
pub const EMPTY_WINDOW: ProblemCode = ProblemCode::new("T0110", "thresholds leave no room");
/// Factors of a dynamic prescale that do not rise, or are too many.
pub const PRESCALE_STEPS: ProblemCode = ProblemCode::new("T0111", "prescale steps do not rise");
/// A least interval between fires that packets cannot measure.
pub const FIRE_INTERVAL: ProblemCode = ProblemCode::new("T0112", "interval of fires out of range");
/// A luminosity limit that closes the path for good.
pub const LUMINOSITY_ZERO: ProblemCode = ProblemCode::new("T0113", "luminosity limit is zero");
/// Limits of the dead time that leave no room between them.
pub const DEAD_TIME_CONTROL: ProblemCode =
    ProblemCode::new("T0114", "dead-time limits are not usable");
/// A beam fit over too few or too many events.
pub const BEAM_FIT: ProblemCode = ProblemCode::new("T0115", "beam fit out of range");
/// An algorithm that nobody registered, or that does not take its options.
pub const ALGORITHM: ProblemCode = ProblemCode::new("T0116", "algorithm cannot be used");
/// A parameter of the merger is out of range.
pub const MERGER: ProblemCode = ProblemCode::new("T0117", "merger parameter out of range");

/// Number of Level-2 buffers out of range.
pub const L2_BUFFERS: ProblemCode = ProblemCode::new("T0201", "Level-2 buffers out of range");
/// The decision deadline is out of range.
pub const DEADLINE: ProblemCode = ProblemCode::new("T0202", "decision deadline out of range");
/// The decision timeout is out of range.
pub const TIMEOUT: ProblemCode = ProblemCode::new("T0203", "decision timeout out of range");
/// The output queue is too short for the Level-2 buffers, or absurdly long.
pub const OUTPUT_QUEUE: ProblemCode = ProblemCode::new("T0204", "output queue out of range");

/// The mass window is empty or not a window.
pub const MASS_WINDOW: ProblemCode = ProblemCode::new("T0301", "mass window is not usable");
/// The Level-3 menu keeps nothing, or mixes names up.
pub const EVENT_MENU: ProblemCode = ProblemCode::new("T0302", "Level-3 menu is not usable");
/// A filter of users has no such name, or does not take its options.
pub const USER_FILTER: ProblemCode = ProblemCode::new("T0303", "filter of users cannot be used");
