//! Orders to a run that goes on: lines over a socket in its directory.
//!
//! The run looks at the socket between its other duties and never waits for whoever is at the other end:
//! it takes what has come, a line each, and answers each with a line ([`connection`]). Those who have
//! connected beyond [`CONNECTIONS_MAX`] take the places of those who are silent. `livetime steer` is the
//! other end, or any program; what an order does is said in [`crate::run_watch`].

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use livetime_node::role_ends::unit_of;
use livetime_store::RunNote;
use livetime_wire::{RunNs, UnitId, UnitKind};

use crate::run_directory::is_held;

mod connection;

use connection::{Connection, LINE_MAX};

/// Name of the socket in a run directory.
pub(crate) const SOCKET: &str = "control";
/// How long the run may take to do what it is told.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// Connections at a time, and those taken at one look: more than people and programs that steer one run.
/// Of each a line and an answer are held.
const CONNECTIONS_MAX: usize = 32;
/// Orders taken at one look.
const ORDERS_PER_LOOK: usize = 4;
/// Reads from one connection at one look: of the rest of a line that is too long there are several.
const READS_PER_LOOK: usize = 16;
/// Reads of what a connection has said in vain when it is closed: more than its socket holds.
const READS_AT_CLOSE: usize = 256;
/// How long answers may take that a run still owes when it has ended, all of them together.
const LAST_PATIENCE: Duration = Duration::from_millis(200);
/// Between two looks at those.
const LAST_LOOK: Duration = Duration::from_millis(2);
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
    clients: Mutex<Clients>,
    /// The time by which connections are held to their limits.
    now: fn() -> Instant,
}

/// Who has connected, the first first.
#[derive(Default)]
struct Clients {
    connected: Vec<Client>,
    /// How many have connected, which is the number of the next one.
    number: u64,
    /// Orders that were said.
    orders: u64,
}

/// One of them.
struct Client {
    number: u64,
    stream: UnixStream,
    connection: Connection,
    /// The place of its order among all: that of the first comes first.
    place: Option<u64>,
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
            clients: Mutex::default(),
            now: Instant::now,
        })
    }

    /// Takes the orders that have come, and answers each with what `obey` says.
    pub(crate) fn serve(&self, mut obey: impl FnMut(Order) -> Result<String, String>) {
        for _ in 0..ORDERS_PER_LOOK {
            // Not held while it is obeyed: an end at once is looked for meanwhile.
            let next = self
                .clients()
                .look(&self.listener, (self.now)())
                .take_next();
            let Some((client, order)) = next else {
                return;
            };
            let answer = obey(order);
            self.clients().answer(client, answer, (self.now)());
        }
    }

    /// Whether an end at once was ordered since the last look; other orders wait for their turn.
    pub(crate) fn take_abort(&self) -> bool {
        let mut clients = self.clients();
        let Some(client) = clients.look(&self.listener, (self.now)()).take_abort() else {
            return false;
        };
        clients.answer(client, Ok("the run ends at once".to_owned()), (self.now)());
        true
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        // Whoever panicked with it in hand left whole entries.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunControl {
    fn drop(&mut self) {
        // A socket that stays is replaced by the next run here.
        let _stays = fs::remove_file(&self.path);
        let mut clients = self.clients();
        // Who was quicker is waiting for an answer.
        let now = (self.now)();
        clients.look(&self.listener, now).part(now);
        let since = Instant::now();
        while clients.are_answers_owed() && since.elapsed() < LAST_PATIENCE {
            std::thread::sleep(LAST_LOOK);
            clients.exchange(now);
        }
        clients.connected.drain(..).for_each(Client::close);
    }
}

impl Clients {
    /// Takes what has come, and hands over what is to be said.
    fn look(&mut self, listener: &UnixListener, now: Instant) -> &mut Self {
        // Those who are here first: one that has just said its line is not silent.
        self.exchange(now);
        for _ in 0..CONNECTIONS_MAX {
            let Ok((stream, _)) = listener.accept() else {
                break;
            };
            if stream.set_nonblocking(true).is_ok() {
                self.admit(stream, now);
            }
        }
        self
    }

    fn exchange(&mut self, now: Instant) {
        for client in &mut self.connected {
            client.exchange(now, &mut self.orders);
        }
        let over = |client: &mut Client| client.connection.is_over();
        self.connected.extract_if(.., over).for_each(Client::close);
    }

    /// Takes one more, in the place of another if there are too many.
    fn admit(&mut self, stream: UnixStream, now: Instant) {
        let mut client = Client {
            number: self.number,
            stream,
            connection: Connection::new(now),
            place: None,
        };
        self.number += 1;
        if self.connected.len() >= CONNECTIONS_MAX {
            let worth = |client: &Client| client.connection.worth();
            let connected = self.connected.iter().enumerate();
            let worths = connected.filter_map(|(index, client)| Some((worth(client)?, index)));
            let Some((_, index)) = worths.min() else {
                client.turn_away(
                    &format!(
                        "{CONNECTIONS_MAX} orders wait for their turn, the most allowed; give the order \
                         again later"
                    ),
                    now,
                );
                return;
            };
            self.connected.remove(index).turn_away(
                &format!(
                    "more than {CONNECTIONS_MAX} connections, the most allowed; this one was silent for \
                     longest"
                ),
                now,
            );
        }
        client.exchange(now, &mut self.orders);
        self.connected.push(client);
    }

    /// The order that was said first, with the number of who has said it.
    fn take_next(&mut self) -> Option<(u64, Order)> {
        let clients = self.connected.iter_mut();
        let client = clients
            .filter(|client| client.connection.order().is_some())
            .min_by_key(|client| client.place)?;
        // The next of the same client comes after those of others.
        client.place = None;
        Some((client.number, client.connection.take_order()?))
    }

    /// Who has ordered an end at once; its order is taken.
    fn take_abort(&mut self) -> Option<u64> {
        let mut clients = self.connected.iter_mut();
        let client = clients.find(|client| client.connection.order() == Some(&Order::Abort))?;
        client.place = None;
        client.connection.take_order();
        Some(client.number)
    }

    fn answer(&mut self, number: u64, answer: Result<String, String>, now: Instant) {
        let mut clients = self.connected.iter_mut();
        if let Some(client) = clients.find(|client| client.number == number) {
            client.connection.answer(answer, now);
            client.say(now);
        }
    }

    /// Tells everybody that the run has ended.
    fn part(&mut self, now: Instant) {
        for client in &mut self.connected {
            client.connection.part("the run has ended", now);
            client.say(now);
        }
    }

    fn are_answers_owed(&self) -> bool {
        let mut clients = self.connected.iter();
        clients.any(|client| !client.connection.is_over())
    }
}

impl Client {
    /// Hears and says what can be at once; `orders` numbers the order that it has said.
    fn exchange(&mut self, now: Instant, orders: &mut u64) {
        self.say(now);
        self.hear(now);
        self.connection.handle_time(now);
        self.say(now);
        self.place = match self.connection.order() {
            Some(_) => self.place.or_else(|| {
                *orders += 1;
                Some(*orders)
            }),
            None => None,
        };
    }

    fn hear(&mut self, now: Instant) {
        let mut bytes = [0; LINE_MAX + 1];
        for _ in 0..READS_PER_LOOK {
            let room = self.connection.room();
            if room == 0 {
                return;
            }
            match (&self.stream).read(&mut bytes[..room]) {
                Ok(0) => return self.connection.handle_end(now),
                Ok(count) => self.connection.handle_bytes(&bytes[..count], now),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.connection.handle_loss(),
            }
        }
    }

    /// Says what its socket takes of one answer.
    fn say(&mut self, now: Instant) {
        loop {
            let text = self.connection.to_say();
            if text.is_empty() {
                return;
            }
            match (&self.stream).write(text) {
                Ok(count) => {
                    let is_all = count == text.len();
                    self.connection.handle_said(count, now);
                    if is_all {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Who goes away before the answer gets none.
                Err(_) => return self.connection.handle_loss(),
            }
        }
    }

    /// Closes it and says why, if its socket takes that.
    fn turn_away(mut self, why: &str, now: Instant) {
        self.connection.part(why, now);
        self.say(now);
        self.close();
    }

    fn close(self) {
        let _gone = self.stream.shutdown(Shutdown::Write);
        // What was said and not read would reset the connection, and the answer with it.
        let mut bytes = [0; LINE_MAX + 1];
        for _ in 0..READS_AT_CLOSE {
            if !matches!((&self.stream).read(&mut bytes), Ok(1..)) {
                return;
            }
        }
    }
}

/// Reads an order.
///
/// # Errors
/// What is wrong with it, and how orders are written.
fn parse_order(line: &str) -> Result<Order, String> {
    let has_blank_at_end = has_blank_at_end(line);
    let line = line.trim();
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["status"] => Ok(Order::Status),
        ["pause"] => Ok(Order::Pause),
        ["resume"] => Ok(Order::Resume),
        ["stop"] => Ok(Order::Stop),
        ["abort"] => Ok(Order::Abort),
        ["note", ..] => note_of(line),
        ["filter", "add"] => Ok(Order::AddFilter),
        // Not the last one: a name was to stand there.
        ["filter", "remove"] if has_blank_at_end => {
            Err(format!("the name of the filter unit is empty; {FORM}"))
        }
        ["filter", "remove"] => Ok(Order::RemoveFilter(None)),
        ["filter", "remove", id] => match unit_of(id) {
            Some(unit) if unit.kind == UnitKind::Filter => Ok(Order::RemoveFilter(Some(unit))),
            _ => Err(format!("{id} is no filter unit; {FORM}")),
        },
        _ => Err(format!("\"{line}\" is no order; {FORM}")),
    }
}

/// Whether blanks follow the last word of a line; what ends the line is none of them.
fn has_blank_at_end(line: &str) -> bool {
    let line = line.trim_end_matches(['\r', '\n']);
    line.ends_with(char::is_whitespace)
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
    send_order_within(directory, order, ANSWER_PATIENCE)
}

fn send_order_within(directory: &Path, order: &str, patience: Duration) -> Result<String, String> {
    parse_order(order)?;
    let shown = directory.display();
    let opened = File::open(directory).map_err(|error| format!("cannot open {shown}: {error}"))?;
    let no_run = |error: io::Error| match error.kind() {
        ErrorKind::PermissionDenied => format!(
            "the run in {shown} is another user's: its socket {SOCKET} may not be opened ({error})"
        ),
        _ => {
            let why = match is_held(directory) {
                true => "the run there has not begun to take orders yet, or takes none any more",
                false => "has it ended?",
            };
            format!("no run takes orders in {shown} ({error}); {why}")
        }
    };
    let mut stream = UnixStream::connect(socket_path(&opened)).map_err(no_run)?;
    let lost = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
            "the run in {shown} did not answer \"{order}\" within {} s: it is stopped, hangs or is slow, and \
             may still do it; let the process go on if it is stopped, then ask it with \
             `livetime steer {shown} status`",
            patience.as_secs_f64()
        ),
        _ => format!("the run in {shown} did not answer: {error}"),
    };
    stream.set_read_timeout(Some(patience)).map_err(lost)?;
    // A run that takes no more orders may have said so before this one.
    let is_said = writeln!(stream, "{order}").and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = String::new();
    let is_read = BufReader::new(stream).read_line(&mut answer);
    if answer.is_empty() {
        is_said.map_err(lost)?;
    }
    is_read.map_err(lost)?;
    let Some(whole) = answer.strip_suffix('\n') else {
        return Err(match answer.is_empty() {
            true => format!("the run in {shown} has ended, and did not answer"),
            false => format!("the answer of the run in {shown} was cut off"),
        });
    };
    match whole.split_once(": ") {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("error", text)) => Err(text.to_owned()),
        _ => Err(format!("the run in {shown} answered \"{whole}\"")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;
    use crate::run_directory::RunDirectory;

    #[test]
    fn orders_are_read_and_others_refused_with_the_form() {
        for (line, order) in [
            ("filter add", Order::AddFilter),
            ("filter remove", Order::RemoveFilter(None)),
            ("filter remove\r", Order::RemoveFilter(None)),
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
            // As `filter remove ""` and names of blanks come.
            "filter remove ",
            "filter remove \t ",
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

    /// A run's end whose time stands still, so that no limit passes on a busy machine.
    fn opened(folder: &Path) -> RunControl {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        let mut control = RunControl::open(folder).expect("the directory is ours");
        control.now = || *BEGIN.get_or_init(Instant::now);
        control
    }

    /// Whether somebody waits for an answer.
    fn is_asked(control: &RunControl) -> bool {
        let clients = control.clients();
        let mut orders = clients.connected.iter().map(|c| c.connection.order());
        orders.any(|order| order.is_some())
    }

    fn connected(folder: &Path) -> UnixStream {
        UnixStream::connect(folder.join(SOCKET)).expect("the run listens")
    }

    /// Looks at the socket until a line has come to somebody.
    fn line_to(reader: &mut BufReader<UnixStream>, control: &RunControl) -> String {
        reader.get_ref().set_nonblocking(true).expect("it is ours");
        let mut line = String::new();
        loop {
            control.serve(|order| Ok(format!("{order:?}")));
            match reader.read_line(&mut line) {
                Ok(_) => return line,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
    }

    #[test]
    fn a_connection_takes_several_orders_and_each_has_its_answer() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let control = opened(folder.path());
        let mut stream = BufReader::new(connected(folder.path()));
        for _ in 0..2 {
            (stream.get_mut().write_all(b"pause\nnote \xff\nstatus\n")).expect("there is room");
            assert_eq!(line_to(&mut stream, &control), "ok: Pause\n");
            let said = line_to(&mut stream, &control);
            assert!(
                said.starts_with("error: a line that is not UTF-8"),
                "{said}"
            );
            assert_eq!(line_to(&mut stream, &control), "ok: Status\n");
        }
        stream
            .get_mut()
            .write_all(b"resume\npau")
            .expect("there is room");
        let whole = stream.get_ref().shutdown(Shutdown::Write);
        whole.expect("it is connected");
        assert_eq!(line_to(&mut stream, &control), "ok: Resume\n");
        let cut = line_to(&mut stream, &control);
        assert!(
            cut.starts_with("error: nothing was done: 3 bytes "),
            "{cut}"
        );
        assert_eq!(line_to(&mut stream, &control), "", "all is answered");
    }

    /// Given clients that say nothing, not all of a line, or do not read, then the others are answered; and
    /// given more than are held, then those that were silent for longest are told so.
    #[test]
    fn nobody_waits_for_clients_that_are_silent_or_do_not_read() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let control = opened(folder.path());
        let mut deaf = connected(folder.path());
        deaf.write_all(b"status\n").expect("there is room");
        while !is_asked(&control) {
            assert!(!control.take_abort());
        }
        let mut silent: Vec<UnixStream> = Vec::new();
        for _ in 1..CONNECTIONS_MAX {
            silent.push(connected(folder.path()));
            silent[0].write_all(b"n").expect("there is room");
            assert!(!control.take_abort());
        }
        let long = "x".repeat(10_000_000);
        control.serve(|_| Ok(long.clone()));
        let mut last = BufReader::new(connected(folder.path()));
        last.get_mut().write_all(b"pause\n").expect("there is room");
        assert_eq!(line_to(&mut last, &control), "ok: Pause\n");
        assert_eq!(control.clients().connected.len(), CONNECTIONS_MAX);
        let mut said = String::new();
        (silent[0].read_to_string(&mut said)).expect("it is not reset");
        let expected = "error: more than 32 connections, the most allowed; this one was silent";
        assert!(said.starts_with(expected), "{said}");
        // It reads at last, and has all of its answer.
        let answer = line_to(&mut BufReader::new(deaf), &control);
        assert_eq!(answer, format!("ok: {long}\n"));
        drop(control);
        for mut stream in silent.into_iter().skip(1) {
            said.clear();
            stream.read_to_string(&mut said).expect("it is not reset");
            assert_eq!(said, "error: the run has ended\n");
        }
    }

    #[test]
    fn orders_that_wait_for_their_turn_keep_their_places() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let control = opened(folder.path());
        let asked = |line: &[u8]| {
            let mut stream = connected(folder.path());
            stream.write_all(line).expect("there is room");
            assert!(!control.take_abort());
            stream
        };
        let streams: Vec<UnixStream> = (0..CONNECTIONS_MAX).map(|_| asked(b"pause\n")).collect();
        let mut said = String::new();
        let read = asked(b"stop\n").read_to_string(&mut said);
        read.expect("it is not reset");
        let expected =
            "error: 32 orders wait for their turn, the most allowed; give the order again";
        assert!(said.starts_with(expected), "{said}");
        for stream in streams {
            let answer = line_to(&mut BufReader::new(stream), &control);
            assert_eq!(answer, "ok: Pause\n");
        }
    }

    #[test]
    fn whoever_says_many_orders_keeps_nobody_else_waiting() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let control = opened(folder.path());
        let _streams = [&b"pause\nresume\nstatus\n"[..], b"stop\n"].map(|lines| {
            let mut stream = connected(folder.path());
            stream.write_all(lines).expect("there is room");
            assert!(!control.take_abort());
            stream
        });
        let mut orders = Vec::new();
        control.serve(|order| {
            orders.push(order);
            Ok(String::new())
        });
        let expected = [Order::Pause, Order::Stop, Order::Resume, Order::Status];
        assert_eq!(orders, expected);
    }

    #[test]
    fn an_end_at_once_is_taken_before_orders_that_wait() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let control = opened(folder.path());
        std::thread::scope(|scope| {
            let first = scope.spawn(|| send_order(folder.path(), "status"));
            while !is_asked(&control) {
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
        let control = opened(folder.path());
        std::thread::scope(|scope| {
            let first = scope.spawn(|| send_order(folder.path(), "pause"));
            while !is_asked(&control) {
                assert!(!control.take_abort());
                std::thread::yield_now();
            }
            drop(control);
            let answer = first.join().expect("it did not panic");
            assert_eq!(answer, Err("the run has ended".to_owned()));
        });
    }

    #[test]
    fn a_run_that_does_not_answer_is_named_with_the_time_and_what_to_do() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let _mute = opened(folder.path());
        let short = Duration::from_millis(5);
        let error = send_order_within(folder.path(), "pause", short).expect_err("nobody looks");
        let shown = folder.path().display();
        let expected = format!("the run in {shown} did not answer \"pause\" within 0.005 s: ");
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.contains("may still do it"), "{error}");
        assert!(error.ends_with(&format!("`livetime steer {shown} status`")));
    }

    #[test]
    fn a_run_that_takes_no_orders_yet_is_not_said_to_have_ended() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let out = base.path().join("out");
        let directory = RunDirectory::create(base.path(), Some(&out)).expect("the run's");
        let error = send_order(&out, "status").expect_err("it does not listen");
        assert!(
            error.contains("has not begun to take orders yet"),
            "{error}"
        );
        drop(directory);
        let error = send_order(&out, "status").expect_err("it has ended");
        assert!(error.contains("has it ended?"), "{error}");
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
        let control = opened(&folder);
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
        assert!(
            answer.starts_with("error: a line of more than "),
            "{answer}"
        );
        assert_eq!(asked.0, Ok("fu2 has joined".to_owned()));
        assert_eq!(asked.1, Err("it is the last".to_owned()));
        drop(control);
        assert!(!folder.join(SOCKET).exists());
    }
}
