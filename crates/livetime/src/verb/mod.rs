//! The verbs of the program, one file each: options in, exit code out.

pub(crate) mod explain;
