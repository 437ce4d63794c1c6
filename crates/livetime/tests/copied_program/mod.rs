//! The built program at another place.

use std::path::Path;
use std::process::Command;

/// Copies the program by another process: who starts a program at this moment would inherit the open
/// file of ours, and a file that is open for writing cannot be run.
pub(crate) fn copy_program(to: &Path) {
    let copy = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_livetime"))
        .arg(to)
        .status();
    assert!(copy.is_ok_and(|status| status.success()), "{to:?}");
}
