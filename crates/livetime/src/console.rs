//! What the program prints: results on standard output, talk on standard error.
//!
//! A reader that goes away, such as `| head` or a `tee` that Ctrl-C ended first, is no reason to
//! end a run or to report a bug, which is what `println!` and `eprintln!` would do. One that stays and
//! does not read holds up whoever prints, but for a run, from its beginning to its end: what that says
//! goes by way of [`talk`], and [`readers`] says how long its readers are waited for. What is printed is
//! the business of the verbs.

pub(crate) mod readers;
mod talk;

use std::borrow::Cow;
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
    thread.spawn(move || talk().write_all(&mut out))?;
    // Only now: without the thread nobody would hear why.
    talk();
    Ok(())
}

fn talk() -> &'static Talk {
    TALK.get_or_init(Talk::new)
}

/// A text whose control characters do nothing to a terminal, such as those of a path; lines and tabs stay.
/// Within a string of JSON it is the same text.
fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut harmless = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_harmful(c) {
            true => harmless += &format!("\\u{:04x}", u32::from(c)),
            false => harmless.push(c),
        }
    }
    harmless.into()
}

fn put(mut said: Said) {
    let (Said::Talk(text) | Said::Progress(text) | Said::Screen(text)) = &mut said;
    if let Cow::Owned(harmless) = harmless(text) {
        *text = harmless;
    }
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

/// As [`with_causes`], and what is to be done where a limit on open files is behind it.
pub(crate) fn with_remedy(error: &(dyn Error + 'static)) -> String {
    let text = with_causes(error);
    match livetime_shm::limit_of_files(error) {
        Some(limit) if !text.contains(limit) => format!("{text}; {limit}"),
        _ => text,
    }
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
    let text = text.to_string();
    let written = out.write_all(harmless(&text).as_bytes());
    outcome_of(written.and_then(|()| out.flush()))
}

/// As [`print()`], in parts, each of which is noted when it is written.
fn print_parts(text: &str, mut note: impl FnMut()) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let text = harmless(text);
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
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(harmless("a\tb\n\u{e9}"), "a\tb\n\u{e9}");
        let shown = harmless("a\u{1b}[31mb\u{7f}\u{9b}2J");
        assert_eq!(shown, r"a\u001b[31mb\u007f\u009b2J");
        let document = serde_json::to_string("a\u{9b}2J").expect("a string");
        let read: String = serde_json::from_str(&harmless(&document)).expect("a string");
        assert_eq!(read, "a\u{9b}2J");
    }

    #[test]
    fn a_limit_on_open_files_is_named_once() {
        let error = std::io::Error::from_raw_os_error(24);
        let said = with_remedy(&error);
        assert_eq!(said.matches("`ulimit -n`").count(), 1, "{said}");
        let other = std::io::Error::other(said.clone());
        assert_eq!(with_remedy(&other), said);
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
