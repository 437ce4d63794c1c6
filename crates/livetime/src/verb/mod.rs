//! The verbs of the program, one file each: options in, exit code out.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod pattern;
pub(crate) mod report;
pub(crate) mod role;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod source;
