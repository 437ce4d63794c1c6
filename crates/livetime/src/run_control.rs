//! Orders to a run that goes on: lines over a socket in its directory.
//!
//! The run looks at the socket between its other duties, takes one line a connection and answers
//! with one. `livetime steer` is the other end, or any program; what an order does is said in
//! [`crate::run_watch`].

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use livetime_node::role_ends::unit_of;
use livetime_store::RunNote;
use livetime_store::run_note::NOTE_BYTES_MAX;
use livetime_wire::{RunNs, UnitId, UnitKind};

/// Name of the socket in a run directory.
pub(crate) const SOCKET: &str = "control";
/// How long a connection may take to say its line.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long the run may take to do what it is told.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// Orders that may wait for their turn.
const WAITING_MAX: usize = 64;
/// Orders taken at one look.
const ORDERS_PER_LOOK: usize = 4;
/// Longest line: a note, and some.
const LINE_MAX: u64 = NOTE_BYTES_MAX as u64 + 256;
/// What is read of more than a line, and dropped.
const BEYOND_MAX: u64 = 1 << 20;
/// How orders are written.
const FORM: &str = "orders are `status`, `pause`, `resume`, `stop`, `abort`, `note TEXT`, \
                    `filter add`, `filter remove` and `filter remove fu1`";

/// What a run is ordered to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Say what it is doing.
    Status,
    /// Hold triggers back.
    Pause,
    /// Take triggers again.
    Resume,
    /// End in order.
    Stop,
    /// End at once.
    Abort,
    /// Keep a line of text.
    Note(String),
    /// Let a filter unit join.
    AddFilter,
    /// Let a filter unit leave, the last one if none is named.
    RemoveFilter(Option<UnitId>),
}

/// The run's end of the socket.
pub(crate) struct RunControl {
    listener: UnixListener,
    path: PathBuf,
    /// Orders that were read while an end at once was looked for.
    waiting: Mutex<VecDeque<Asked>>,
}

/// Who has said a line, and the order in it.
struct Asked {
    stream: UnixStream,
    order: Result<Order, String>,
}

/// A path to the socket that is short however long that of the directory is.
fn socket_path(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))
}

impl RunControl {
    /// Opens the socket in a directory that this process holds.
    ///
    /// # Errors
    /// When the file system refuses.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(SOCKET);
        match fs::remove_file(&path) {
            // What a run that crashed has left: the directory's lock says that it is gone.
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(socket_path(&File::open(directory)?))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path,
            waiting: Mutex::default(),
        })
    }

    /// Takes the orders that have come, and answers each with what `obey` says.
    pub(crate) fn serve(&self, mut obey: impl FnMut(Order) -> Result<String, String>) {
        for _ in 0..ORDERS_PER_LOOK {
            let waiting = self.waiting().pop_front();
            let Some(asked) = waiting.or_else(|| self.next()) else {
                return;
            };
            asked.answer(&mut obey);
        }
    }

    /// Whether an end at once was ordered since the last look; other orders wait for their turn.
    pub(crate) fn take_abort(&self) -> bool {
        for _ in 0..ORDERS_PER_LOOK {
            let Some(asked) = self.next() else {
                return false;
            };
            let is_full = self.waiting().len() >= WAITING_MAX;
            match asked.order {
                Ok(Order::Abort) => {
                    asked.answer(&mut |_| Ok("the run ends at once".to_owned()));
                    return true;
                }
                _ if is_full => asked.answer(&mut |_| {
                    Err("the run deals with a loss; give the order again later".to_owned())
                }),
                _ => self.waiting().push_back(asked),
            }
        }
        false
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Asked>> {
        // Whoever panicked with it in hand left whole entries.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one who has connected and said a line.
    fn next(&self) -> Option<Asked> {
        loop {
            let (stream, _) = self.listener.accept().ok()?;
            // Who says nothing in time is not answered.
            if let Ok(asked) = Asked::read(stream) {
                return Some(asked);
            }
        }
    }
}

impl Drop for RunControl {
    fn drop(&mut self) {
        // A socket that stays is replaced by the next run here.
        let _stays = fs::remove_file(&self.path);
        // Who was quicker is waiting for an answer.
        let waiting = std::mem::take(&mut *self.waiting());
        let others = (0..WAITING_MAX).map_while(|_| self.next());
        for asked in waiting.into_iter().chain(others) {
            asked.answer(&mut |_| Err("the run has ended".to_owned()));
        }
    }
}

impl Asked {
    fn read(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new((&stream).take(LINE_MAX)).read_line(&mut line)?;
        let order = parse_order(line.trim());
        Ok(Self { stream, order })
    }

    fn answer(self, obey: &mut impl FnMut(Order) -> Result<String, String>) {
        let answer = match self.order.and_then(obey) {
            Ok(text) => format!("ok: {text}"),
            Err(text) => format!("error: {text}"),
        };
        // Who goes away before the answer gets none.
        let _gone = tell(&self.stream, &answer);
    }
}

fn tell(mut stream: &UnixStream, answer: &str) -> io::Result<()> {
    writeln!(stream, "{answer}")?;
    stream.shutdown(Shutdown::Write)?;
    // What was said beyond a line would reset the connection, and the answer with it.
    io::copy(&mut stream.take(BEYOND_MAX), &mut io::sink()).map(drop)
}

/// Reads an order.
///
/// # Errors
/// What is wrong with it, and how orders are written.
fn parse_order(line: &str) -> Result<Order, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["status"] => Ok(Order::Status),
        ["pause"] => Ok(Order::Pause),
        ["resume"] => Ok(Order::Resume),
        ["stop"] => Ok(Order::Stop),
        ["abort"] => Ok(Order::Abort),
        ["note", ..] => note_of(line),
        ["filter", "add"] => Ok(Order::AddFilter),
        ["filter", "remove"] => Ok(Order::RemoveFilter(None)),
        ["filter", "remove", id] => match unit_of(id) {
            Some(unit) if unit.kind == UnitKind::Filter => Ok(Order::RemoveFilter(Some(unit))),
            _ => Err(format!("{id} is no filter unit; {FORM}")),
        },
        _ => Err(format!("\"{line}\" is no order; {FORM}")),
    }
}

/// The text of a note as it was said, its blanks included.
fn note_of(line: &str) -> Result<Order, String> {
    let text = line.trim_start().strip_prefix("note").unwrap_or(line);
    let note = RunNote::new(RunNs(0), text).map_err(|error| error.to_string())?;
    Ok(Order::Note(note.text))
}

/// Sends an order to the run that writes to `directory`, and returns its answer.
///
/// # Errors
/// What the run says against it, or why there is no answer.
pub(crate) fn send_order(directory: &Path, order: &str) -> Result<String, String> {
    parse_order(order)?;
    let shown = directory.display();
    let opened = File::open(directory).map_err(|error| format!("cannot open {shown}: {error}"))?;
    let no_run = |error: io::Error| match error.kind() {
        ErrorKind::PermissionDenied => format!(
            "the run in {shown} is another user's: its socket {SOCKET} may not be opened ({error})"
        ),
        _ => format!("no run takes orders in {shown} ({error}); has it ended?"),
    };
    let mut stream = UnixStream::connect(socket_path(&opened)).map_err(no_run)?;
    let lost = |error| format!("the run in {shown} did not answer: {error}");
    stream
        .set_read_timeout(Some(ANSWER_PATIENCE))
        .map_err(lost)?;
    writeln!(stream, "{order}").map_err(lost)?;
    stream.shutdown(Shutdown::Write).map_err(lost)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(lost)?;
    let answer = answer.trim();
    match answer.split_once(": ") {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("error", text)) => Err(text.to_owned()),
        _ if answer.is_empty() => Err(format!("the run in {shown} has ended, and did not answer")),
        _ => Err(format!("the run in {shown} answered \"{answer}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_and_others_refused_with_the_form() {
        for (line, order) in [
            ("filter add", Order::AddFilter),
            ("filter remove", Order::RemoveFilter(None)),
            (
                "filter  remove fu3",
                Order::RemoveFilter(Some(UnitId::filter(3))),
            ),
            ("pause", Order::Pause),
            ("resume", Order::Resume),
            ("stop", Order::Stop),
            ("abort", Order::Abort),
            ("status", Order::Status),
            (
                "note  beam  back, 120 GeV",
                Order::Note("beam  back, 120 GeV".to_owned()),
            ),
        ] {
            assert_eq!(parse_order(line), Ok(order));
        }
        for line in [
            "",
            "filter",
            "filter add fu1",
            "filter remove bu1",
            "pause now",
            "Stop",
        ] {
            let error = parse_order(line).expect_err(line);
            assert!(error.contains(FORM), "{line}: {error}");
        }
        for line in ["note", "note  ", "note a\u{7}b"] {
            let error = parse_order(line).expect_err(line);
            assert!(error.starts_with("a note "), "{line}: {error}");
        }
    }

    #[test]
    fn an_end_at_once_is_taken_before_orders_that_wait() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let control = RunControl::open(folder.path()).expect("the directory is ours");
        std::thread::scope(|scope| {
            let first = scope.spawn(|| send_order(folder.path(), "status"));
            while control.waiting().is_empty() {
                assert!(!control.take_abort());
                std::thread::yield_now();
            }
            let abort = scope.spawn(|| send_order(folder.path(), "abort"));
            while !control.take_abort() {
                std::thread::yield_now();
            }
            let answer = abort.join().expect("it did not panic");
            assert_eq!(answer.as_deref(), Ok("the run ends at once"));
            control.serve(|order| Ok(format!("{order:?}")));
            let answer = first.join().expect("it did not panic");
            assert_eq!(answer.as_deref(), Ok("Status"));
        });
    }

    #[test]
    fn an_order_that_comes_too_late_is_told_so() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let control = RunControl::open(folder.path()).expect("the directory is ours");
        std::thread::scope(|scope| {
            let first = scope.spawn(|| send_order(folder.path(), "pause"));
            while control.waiting().is_empty() {
                assert!(!control.take_abort());
                std::thread::yield_now();
            }
            drop(control);
            let answer = first.join().expect("it did not panic");
            assert_eq!(answer, Err("the run has ended".to_owned()));
        });
    }

    #[test]
    fn an_order_is_answered_and_without_a_run_there_is_an_error() {
        let base = tempfile::tempdir().expect("a temporary directory");
        // Longer than the path of a socket may be.
        let folder = base.path().join("d".repeat(120));
        fs::create_dir(&folder).expect("the directory is ours");
        fs::write(folder.join(SOCKET), "left by a crash").expect("the directory is ours");
        let error = send_order(&folder, "filter add").expect_err("nobody listens");
        assert!(error.contains("no run takes orders"), "{error}");
        let control = RunControl::open(&folder).expect("the directory is ours");
        let asked = std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                (
                    send_order(&folder, "filter add"),
                    send_order(&folder, "filter remove fu1"),
                )
            });
            while !asked.is_finished() {
                control.serve(|order| match order {
                    Order::AddFilter => Ok("fu2 has joined".to_owned()),
                    _ => Err("it is the last".to_owned()),
                });
                std::thread::yield_now();
            }
            asked.join().expect("it did not panic")
        });
        // Far more than a line: the answer comes all the same.
        let control_of = File::open(&folder).expect("it is there");
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let mut stream = UnixStream::connect(socket_path(&control_of))?;
                writeln!(stream, "note {}", "x".repeat(100_000))?;
                stream.shutdown(Shutdown::Write)?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).map(|_| answer)
            });
            while !asked.is_finished() {
                control.serve(|_| Ok("noted".to_owned()));
                std::thread::yield_now();
            }
            asked.join().expect("it did not panic")
        });
        let answer = answer.expect("it is not reset");
        assert!(answer.starts_with("error: a note of "), "{answer}");
        assert_eq!(asked.0, Ok("fu2 has joined".to_owned()));
        assert_eq!(asked.1, Err("it is the last".to_owned()));
        drop(control);
        assert!(!folder.join(SOCKET).exists());
    }
}
