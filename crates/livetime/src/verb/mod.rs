//! The verbs of the program, one file each: options in, exit code out.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod generate;
#[cfg(feature = "cluster")]
pub(crate) mod host;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod pattern;
mod pattern_link;
mod played_source;
pub(crate) mod replay;
pub(crate) mod replay_batches;
pub(crate) mod report;
pub(crate) mod role;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod source;
pub(crate) mod steer;
pub(crate) mod study;
pub(crate) mod timing;
