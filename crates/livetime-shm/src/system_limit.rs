//! What the system means where it refuses a thread, a process or a descriptor, and what is to be done.

use std::error::Error;
use std::io::{self, ErrorKind};

use rustix::io::Errno;

/// Why the system starts no process or thread; at a limit it says no more than that it may do so later.
pub fn with_limit(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock => format!(
            "{error}; a limit on processes and threads is reached: `ulimit -u`, or `pids.max` of the \
             control group"
        ),
        _ => match limit_of_files(error) {
            Some(limit) => format!("{error}; {limit}"),
            None => error.to_string(),
        },
    }
}

/// Which limit on open files stands behind an error or one of its causes, if one does.
pub fn limit_of_files(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let code = match (error.downcast_ref(), error.downcast_ref()) {
            (Some(error), _) => io::Error::raw_os_error(error),
            (_, Some(errno)) => Some(Errno::raw_os_error(*errno)),
            _ => None,
        };
        if code == Some(Errno::MFILE.raw_os_error()) {
            return Some("the limit on open files is reached: `ulimit -n`");
        }
        if code == Some(Errno::NFILE.raw_os_error()) {
            return Some(
                "the limit on open files of the whole machine is reached: `sysctl fs.file-max`",
            );
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot make it: {0}")]
    struct Failed(#[source] io::Error);

    #[test]
    fn a_limit_is_named_and_nothing_is_said_of_other_errors() {
        let error = |errno: Errno| io::Error::from(errno);
        let said = with_limit(&error(Errno::AGAIN));
        assert!(said.contains("`ulimit -u`, or `pids.max`"), "{said}");
        let said = with_limit(&error(Errno::MFILE));
        assert!(said.ends_with("is reached: `ulimit -n`"), "{said}");
        let behind = limit_of_files(&Failed(error(Errno::MFILE)));
        assert!(behind.is_some_and(|limit| limit.contains("ulimit -n")));
        let machine = limit_of_files(&Errno::NFILE);
        assert!(machine.is_some_and(|limit| limit.contains("fs.file-max")));
        assert_eq!(limit_of_files(&Failed(error(Errno::NOENT))), None);
        assert_eq!(with_limit(&io::Error::other("x")), "x");
    }
}
