//! The readers of what a run says and prints, and how long they are waited for.
//!
//! While the run goes on nobody waits for them ([`super::talk`]). When its files are written, what it
//! has to say and its result are: until they have read it, or a signal says that it is enough.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use signal_hook::iterator::Signals;

use super::talk::LOOK;
use super::{TALK, print_parts};
use crate::ending_signal::ending_signals;

/// How long one may read nothing after somebody has asked for the end of the run, and one of standard
/// error alone in any case: the result is elsewhere.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same once a signal came because of it.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// The readers of a run, and the signals that end the wait for them.
pub(crate) struct Readers {
    /// Those that come since the run began, in the order in which somebody looks for them.
    pub(crate) signals: Signals,
    /// How long one of them may read nothing; without it, for ever.
    patience: Option<Duration>,
    /// Nobody reads standard error any more.
    is_talk_given_up: bool,
    /// Whether standard output and error go to the same place, such as a terminal.
    is_one: bool,
}

impl Readers {
    /// Begins a run: signals are events from here on, and what is said waits in a queue.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn begin() -> io::Result<Self> {
        // The signals first: they come to this thread.
        let signals = Signals::new(ending_signals())?;
        super::begin_talk()?;
        Ok(Self {
            signals,
            patience: None,
            is_talk_given_up: false,
            is_one: are_one(io::stdout(), io::stderr()),
        })
    }

    /// Somebody has asked for the end of the run: who does not read is not waited for any more.
    pub(crate) fn end_is_wanted(&mut self) {
        self.patience.get_or_insert(PATIENCE);
    }

    /// Waits until all that was said has been read.
    pub(crate) fn flush(&mut self) {
        let Some(talk) = TALK.get() else { return };
        let mut is_given_up = false;
        talk.flush(|idle| {
            let most = match self.patience() {
                None if !self.is_one => Some(PATIENCE),
                patience => patience,
            };
            is_given_up = most.is_some_and(|most| idle >= most) || self.is_talk_given_up;
            is_given_up
        });
        self.is_talk_given_up |= is_given_up;
    }

    /// Prints a result, after all that was said.
    ///
    /// # Errors
    /// When it cannot be written, or a signal came while nobody read it.
    pub(crate) fn print(&mut self, text: String) -> io::Result<()> {
        self.flush();
        let text: Arc<str> = text.into();
        let parts = Arc::new(AtomicU64::new(0));
        let (done, is_done) = channel();
        let printing = {
            let (text, parts) = (Arc::clone(&text), Arc::clone(&parts));
            // Relaxed: an observation.
            let note = move || {
                parts.fetch_add(1, Ordering::Relaxed);
            };
            // Whoever has given it up does not hear the end.
            move || drop(done.send(print_parts(&text, note)))
        };
        let thread = std::thread::Builder::new().name("result".to_owned());
        if thread.spawn(printing).is_err() {
            return print_parts(&text, || {});
        }
        let (mut printed, mut since) = (0, Instant::now());
        loop {
            match is_done.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("cannot write to standard output"));
                }
            }
            let now = parts.load(Ordering::Relaxed);
            if now != printed {
                (printed, since) = (now, Instant::now());
            }
            let patience = self.patience();
            if patience.is_some_and(|most| since.elapsed() >= most) {
                return Err(io::Error::other(
                    "cannot write to standard output: nobody reads it, and the run is to end",
                ));
            }
        }
    }

    /// How long a reader may read nothing from now on.
    fn patience(&mut self) -> Option<Duration> {
        if self.signals.pending().next().is_some() {
            self.patience = Some(LAST_PATIENCE);
        }
        self.patience
    }
}

/// Whether two descriptors are of the same file, pipe or terminal.
fn are_one(a: impl AsFd, b: impl AsFd) -> bool {
    let of = |about: rustix::fs::Stat| (about.st_dev, about.st_ino);
    match (rustix::fs::fstat(a), rustix::fs::fstat(b)) {
        (Ok(a), Ok(b)) => of(a) == of(b),
        _ => false,
    }
}
