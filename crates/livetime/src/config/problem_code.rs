//! Codes of the problems that reading a configuration raises, area C.
//!
//! C00xx are about the text and its values, C01xx about tables and how they fit together. What the
//! cores find has codes of their own crates. Each code has a page under `docs/explain/`.

use livetime_wire::ProblemCode;

/// The text is not TOML.
pub(crate) const SYNTAX: ProblemCode = ProblemCode::new("C0001", "not valid TOML");
/// A key that nothing reads.
pub(crate) const UNKNOWN_KEY: ProblemCode = ProblemCode::new("C0002", "unknown key");
/// A value of the wrong type.
pub(crate) const WRONG_TYPE: ProblemCode = ProblemCode::new("C0003", "value of the wrong type");
/// A quantity that cannot be read.
pub(crate) const BAD_QUANTITY: ProblemCode = ProblemCode::new("C0004", "quantity cannot be read");
/// A word that is not one of those allowed.
pub(crate) const BAD_CHOICE: ProblemCode =
    ProblemCode::new("C0005", "value is not one of those allowed");
/// A number outside its range.
pub(crate) const OUT_OF_RANGE: ProblemCode = ProblemCode::new("C0006", "number out of range");
/// A key that must be there is not.
pub(crate) const MISSING_KEY: ProblemCode = ProblemCode::new("C0007", "key is missing");

/// Two keys of which only one can hold.
pub(crate) const BOTH_KEYS: ProblemCode = ProblemCode::new("C0120", "two keys exclude each other");
/// The beam spot is not two lengths.
pub(crate) const BEAM_SPOT: ProblemCode = ProblemCode::new("C0101", "beam spot is not two lengths");
/// The file is of another format version.
pub(crate) const FORMAT: ProblemCode = ProblemCode::new("C0102", "configuration of another format");
/// The number of sources or trigger links is not one.
pub(crate) const ONE_OF: ProblemCode = ProblemCode::new("C0103", "table is not there exactly once");
/// A link to a unit that does not exist.
pub(crate) const LINK_TARGET: ProblemCode = ProblemCode::new("C0104", "link to an unknown unit");
/// Keys of a link that do not go with its kind.
pub(crate) const LINK_KIND: ProblemCode =
    ProblemCode::new("C0107", "key does not go with the kind of the link");
/// A path or name that the system cannot have.
pub(crate) const CONTROL_CHARACTERS: ProblemCode =
    ProblemCode::new("C0108", "text with control characters");
/// A file that cannot be opened or played.
pub(crate) const NAMED_FILE: ProblemCode =
    ProblemCode::new("C0109", "file that is named cannot be used");
/// Two links with one source id.
pub(crate) const SOURCE_ID_TWICE: ProblemCode =
    ProblemCode::new("C0105", "source id is used twice");
/// Readout units without links in between.
pub(crate) const UNIT_GAP: ProblemCode = ProblemCode::new("C0106", "readout unit without links");
/// A host with the name of another, or with none.
pub(crate) const HOST_TWICE: ProblemCode = ProblemCode::new("C0130", "host has no name of its own");
/// A role that the chain does not have.
pub(crate) const UNKNOWN_ROLE: ProblemCode = ProblemCode::new("C0131", "host with an unknown role");
/// A role on two hosts.
pub(crate) const ROLE_TWICE: ProblemCode = ProblemCode::new("C0132", "role is on two hosts");
/// A role on no host.
pub(crate) const ROLE_ON_NO_HOST: ProblemCode = ProblemCode::new("C0133", "role is on no host");
/// Roles with common memory on different hosts.
pub(crate) const ROLES_APART: ProblemCode =
    ProblemCode::new("C0134", "roles that share memory are on different hosts");
/// A launcher without a command.
pub(crate) const LAUNCHER_COMMAND: ProblemCode =
    ProblemCode::new("C0135", "launcher has no command to start a host with");
/// A coordinator that hosts cannot reach.
pub(crate) const CONTROL_ADDRESS: ProblemCode =
    ProblemCode::new("C0136", "hosts cannot reach the coordinator");
/// A key of a scenario that does nothing without another one.
pub(crate) const IDLE_KEY: ProblemCode = ProblemCode::new("C0137", "key has no effect");
/// A host at an address that names no machine.
pub(crate) const NO_ADDRESS: ProblemCode =
    ProblemCode::new("C0138", "host has no address of its own");
