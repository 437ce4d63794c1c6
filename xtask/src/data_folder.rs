//! The folder of recorded events, which `LIVETIME_DATA` names.
//!
//! A relative path is meant from where a verb is started, but what the verb starts runs in folders of
//! its own: cargo runs each test in that of its crate. So it is made absolute once, before anything
//! else. A process cannot change its own environment without `unsafe`; it gives way to one of its
//! kind that has the absolute path.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// The variable.
pub(crate) const DATA: &str = "LIVETIME_DATA";

/// The folder, absolute after [`make_absolute`]; `None` where none is named.
pub(crate) fn data_folder() -> Option<PathBuf> {
    let data = std::env::var_os(DATA).filter(|data| !data.is_empty())?;
    Some(data.into())
}

/// Sees to it that the variable is absolute, for this process and all that it starts.
///
/// # Errors
/// Where the folder cannot be resolved or the process not started anew.
pub(crate) fn make_absolute() -> Result<(), Failure> {
    let Some(data) = data_folder() else {
        return Ok(());
    };
    match anew(std::env::args_os(), &data, &std::env::current_dir()?)? {
        Some(mut command) => Err(format!("xtask does not start anew: {}", command.exec()).into()),
        None => Ok(()),
    }
}

/// The command that runs this program with these arguments (its name first) and an absolute folder;
/// `None` where `data` is absolute already.
fn anew(
    arguments: impl IntoIterator<Item = OsString>,
    data: &Path,
    here: &Path,
) -> io::Result<Option<Command>> {
    if data.is_absolute() {
        return Ok(None);
    }
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(arguments.into_iter().skip(1))
        .env(DATA, std::path::absolute(here.join(data))?);
    Ok(Some(command))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_relative_folder_is_made_absolute_where_the_verb_was_started() {
        let here = Path::new("/srv/project");
        let arguments = || ["xtask", "shows", "links", "3"].map(OsString::from);
        let command = anew(arguments(), Path::new("../data"), here).unwrap();
        let command = command.expect("a relative folder");
        let given: Vec<&OsStr> = command.get_args().collect();
        assert_eq!(given, ["shows", "links", "3"]);
        let set: Vec<_> = command.get_envs().collect();
        let folder = OsStr::new("/srv/project/../data");
        assert_eq!(set, [(OsStr::new(DATA), Some(folder))]);
        // The one that is started so has nothing left to do.
        let again = anew(arguments(), Path::new(folder), here).unwrap();
        assert!(again.is_none());
    }
}
