//! What the program prints: results on standard output, talk on standard error.
//!
//! A reader that goes away, such as `| head` or a `tee` that Ctrl-C ended first, is no reason to
//! end a run or to report a bug, which is what `println!` and `eprintln!` would do. One that stays and
//! does not read holds up whoever prints, but for a run, from its beginning to its end: what that says
//! goes by way of [`talk`], and [`readers`] says how long its readers are waited for. What is printed is
//! the business of the verbs.

pub(crate) mod readers;
mod talk;

use std::error::Error;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use talk::{Said, Talk};

/// Bytes of a result that are written at once.
const PART_BYTES: usize = 4096;

/// What a run says, from its beginning on.
static TALK: OnceLock<Talk> = OnceLock::new();

/// Has all talk go through a queue from here on, as that of a run.
fn begin_talk() -> io::Result<()> {
    // Not by the lock of the standard library, for which a panic would wait.
    let mut out = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let thread = std::thread::Builder::new().name("talk".to_owned());
    let talk = TALK.get_or_init(Talk::new);
    thread.spawn(move || talk.write_all(&mut out)).map(drop)
}

fn put(said: Said) {
    match TALK.get() {
        Some(talk) => talk.put(said),
        None => {
            let (Said::Talk(text) | Said::Progress(text) | Said::Screen(text)) = said;
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }
}

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
    put(Said::Talk(line.to_string()));
}

/// Shows a line of progress; of those that nobody reads few are kept.
pub(crate) fn show_line(line: String) {
    put(Said::Progress(line));
}

/// Draws a screen over the one before.
pub(crate) fn show_screen(screen: String) {
    put(Said::Screen(screen));
}

/// Before the program ends at once: lets what was said be read, by those who read.
pub(crate) fn flush_for(longest: std::time::Duration) {
    if let Some(talk) = TALK.get() {
        talk.flush(|idle| idle >= longest);
    }
}

/// Prints a result. A reader that has seen enough is none the worse for it.
///
/// # Errors
/// When it cannot be written for another reason, such as a full disk.
pub(crate) fn print(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    outcome_of(write!(out, "{text}").and_then(|()| out.flush()))
}

/// As [`print()`], in parts, each of which is noted when it is written.
fn print_parts(text: &str, mut note: impl FnMut()) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut parts = text.as_bytes().chunks(PART_BYTES);
    let written = parts.try_for_each(|part| {
        out.write_all(part)?;
        note();
        Ok(())
    });
    outcome_of(written.and_then(|()| out.flush()))
}

fn outcome_of(written: io::Result<()>) -> io::Result<()> {
    match written {
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
