//! What the program prints: results on standard output, talk on standard error.
//!
//! A reader that goes away, such as `| head` or a `tee` that Ctrl-C ended first, is no reason to
//! end a run or to report a bug, which is what `println!` and `eprintln!` would do. What is printed
//! is the business of the verbs.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// An error with what caused it, as far as the error itself does not say so.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text += &format!(": {reason}");
        }
        cause = error.source();
    }
    text
}

/// Prints a line of talk; nobody may be listening.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints a result. A reader that has seen enough is none the worse for it.
///
/// # Errors
/// When it cannot be written for another reason, such as a full disk.
pub(crate) fn print(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(io::Error::new(
            error.kind(),
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Prints a result and a new line.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_line(text: impl Display) -> io::Result<()> {
    print(format_args!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{what} failed")]
    struct Failed {
        what: &'static str,
        #[source]
        cause: Option<Box<Failed>>,
    }

    #[test]
    fn causes_are_said_once() {
        let failed = |what, cause: Option<Failed>| Failed {
            what,
            cause: cause.map(Box::new),
        };
        let error = failed("run", Some(failed("file", Some(failed("disk", None)))));
        assert_eq!(with_causes(&error), "run failed: file failed: disk failed");
        let error = failed("all of disk failed and run", Some(failed("disk", None)));
        assert_eq!(with_causes(&error), "all of disk failed and run failed");
    }
}
