//! One connection to a run's socket: which orders were said, what is still to be answered, and until
//! when. Without input and output; the time is passed in.
//!
//! ```text
//! hearing --line--> asked --taken--> obeying --answer--> answering --said--> hearing
//! ```
//! While an order or an answer is there, no more is read: a connection holds one line and one answer, and
//! whoever says more than that is held back by the socket. The limits of time are those of a line and of
//! an answer as a whole, so that a byte now and then renews none.

use std::mem;
use std::time::{Duration, Instant};

use livetime_store::run_note::NOTE_BYTES_MAX;

use super::{FORM, Order, parse_order};

/// Longest line \[bytes\]: a note, and some.
pub(super) const LINE_MAX: usize = NOTE_BYTES_MAX + 256;
/// How long a line may take to come, and whoever was answered to say another.
pub(super) const LINE_PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer may take to be read.
pub(super) const READ_PATIENCE: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stage: Stage,
    /// When the stage began.
    since: Instant,
    /// What was read and is in no order yet.
    heard: Vec<u8>,
    /// What follows up to the next line end is the rest of a line that was too long.
    is_skipping: bool,
    /// The other end says nothing more.
    is_all_heard: bool,
    /// Nothing is heard any more once the answer is said.
    is_parting: bool,
    was_answered: bool,
}

#[derive(Debug)]
enum Stage {
    Hearing,
    Asked(Order),
    Obeying,
    Answering { text: Vec<u8>, said: usize },
    Over,
}

impl Connection {
    /// One that was made now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            stage: Stage::Hearing,
            since: now,
            heard: Vec::new(),
            is_skipping: false,
            is_all_heard: false,
            is_parting: false,
            was_answered: false,
        }
    }

    /// How many bytes it takes now.
    pub(super) fn room(&self) -> usize {
        match self.stage {
            Stage::Hearing => LINE_MAX + 1 - self.heard.len(),
            _ => 0,
        }
    }

    /// Takes bytes that were read, no more than [`Self::room`].
    pub(super) fn handle_bytes(&mut self, bytes: &[u8], now: Instant) {
        self.heard.extend_from_slice(bytes);
        self.take_line(now);
    }

    /// Takes that the other end says nothing more; it may still read.
    pub(super) fn handle_end(&mut self, now: Instant) {
        self.is_all_heard = true;
        self.take_line(now);
    }

    /// Takes that the other end is gone.
    pub(super) fn handle_loss(&mut self) {
        self.stage = Stage::Over;
    }

    /// Ends what has taken too long.
    pub(super) fn handle_time(&mut self, now: Instant) {
        let time = now.saturating_duration_since(self.since);
        match self.stage {
            Stage::Hearing if time >= LINE_PATIENCE => {
                let found = match self.heard.len() {
                    0 => "nothing".to_owned(),
                    bytes => format!("{bytes} bytes without a line end"),
                };
                self.part(
                    &format!(
                        "no order came in {LINE_PATIENCE:?}, but {found}; {FORM}, a line each"
                    ),
                    now,
                );
            }
            // It does not read, so that nothing can be said to it.
            Stage::Answering { .. } if time >= READ_PATIENCE => self.stage = Stage::Over,
            _ => {}
        }
    }

    /// The order that was said and waits for its turn.
    pub(super) fn order(&self) -> Option<&Order> {
        match &self.stage {
            Stage::Asked(order) => Some(order),
            _ => None,
        }
    }

    /// Takes the order, which is answered later.
    pub(super) fn take_order(&mut self) -> Option<Order> {
        match mem::replace(&mut self.stage, Stage::Obeying) {
            Stage::Asked(order) => Some(order),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// Answers the order.
    pub(super) fn answer(&mut self, answer: Result<String, String>, now: Instant) {
        let line = match answer {
            Ok(text) => format!("ok: {text}\n"),
            Err(text) => format!("error: {text}\n"),
        };
        self.was_answered = true;
        self.since = now;
        self.stage = Stage::Answering {
            text: line.into_bytes(),
            said: 0,
        };
    }

    /// What is to be said to the other end.
    pub(super) fn to_say(&self) -> &[u8] {
        match &self.stage {
            Stage::Answering { text, said } => text.get(*said..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Takes that so many bytes of [`Self::to_say`] were said.
    pub(super) fn handle_said(&mut self, bytes: usize, now: Instant) {
        let Stage::Answering { text, said } = &mut self.stage else {
            return;
        };
        *said += bytes;
        if *said < text.len() {
            return;
        }
        self.since = now;
        self.stage = match self.is_parting {
            true => Stage::Over,
            false => Stage::Hearing,
        };
        self.take_line(now);
    }

    /// Ends it: whoever waits for an answer is told why, and whoever has all of them hears no more.
    pub(super) fn part(&mut self, why: &str, now: Instant) {
        self.is_parting = true;
        match self.stage {
            Stage::Hearing if self.was_answered && self.heard.is_empty() => {
                self.stage = Stage::Over;
            }
            Stage::Hearing | Stage::Asked(_) | Stage::Obeying => {
                self.answer(Err(why.to_owned()), now);
            }
            Stage::Answering { .. } | Stage::Over => {}
        }
    }

    /// Whether nothing more is heard or said.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// How readily it gives way to another, least first: not while the run owes it something, and one
    /// that has been silent for longest before the others, and before those that read.
    pub(super) fn worth(&self) -> Option<(bool, Instant)> {
        match self.stage {
            Stage::Asked(_) | Stage::Obeying => None,
            Stage::Answering { .. } => Some((true, self.since)),
            Stage::Hearing | Stage::Over => Some((false, self.since)),
        }
    }

    /// Goes on to the next line if it is whole; what is no order is answered at once.
    fn take_line(&mut self, now: Instant) {
        if !matches!(self.stage, Stage::Hearing) {
            return;
        }
        let line_end = |heard: &[u8]| heard.iter().position(|byte| *byte == b'\n');
        if self.is_skipping {
            let end = line_end(&self.heard);
            self.is_skipping = end.is_none();
            self.heard
                .drain(..end.map_or(self.heard.len(), |end| end + 1));
        }
        let line: Vec<u8> = match line_end(&self.heard) {
            Some(end) => self.heard.drain(..=end).collect(),
            None if self.heard.len() > LINE_MAX => {
                self.heard.clear();
                self.is_skipping = true;
                let why = format!(
                    "a line of more than {LINE_MAX} bytes; a note has at most {NOTE_BYTES_MAX}, and no \
                     other order is longer"
                );
                return self.answer(Err(why), now);
            }
            None if !self.is_all_heard => return,
            None if self.heard.is_empty() => {
                self.stage = Stage::Over;
                return;
            }
            // Its writer may have died in the middle of it: `fu1` may be the beginning of `fu10`.
            None => {
                let why = format!(
                    "nothing was done: {} bytes without a line end, which may be a part of an order; end \
                     each order with a line end",
                    self.heard.len()
                );
                self.heard.clear();
                return self.answer(Err(why), now);
            }
        };
        match text_of(&line).and_then(parse_order) {
            Ok(order) => self.stage = Stage::Asked(order),
            Err(why) => self.answer(Err(why), now),
        }
    }
}

/// A line as text.
fn text_of(line: &[u8]) -> Result<&str, String> {
    let text = str::from_utf8(line).map_err(|error| {
        let place = error.valid_up_to();
        format!(
            "a line that is not UTF-8: byte {place} is 0x{:02x}; {FORM}",
            line[place]
        )
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a connection says now, taken in one go.
    fn said(connection: &mut Connection, now: Instant) -> String {
        let text = connection.to_say().to_vec();
        connection.handle_said(text.len(), now);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn several_orders_are_answered_one_after_the_other() {
        let now = Instant::now();
        let mut connection = Connection::new(now);
        connection.handle_bytes(b"pa", now);
        assert_eq!(connection.order(), None);
        connection.handle_bytes(b"use\r\nnote \xfc\n\nhalt\nresu", now);
        assert_eq!(connection.room(), 0, "one order is there");
        assert_eq!(connection.take_order(), Some(Order::Pause));
        connection.answer(Ok("it is".to_owned()), now);
        assert_eq!((connection.take_order(), connection.room()), (None, 0));
        assert_eq!(said(&mut connection, now), "ok: it is\n");
        let told = said(&mut connection, now);
        assert!(told.starts_with("error: a line that is not UTF-8: byte 5 is 0xfc; "));
        assert!(told.contains(FORM), "{told}");
        assert!(said(&mut connection, now).starts_with("error: \"\" is no order"));
        assert!(said(&mut connection, now).starts_with("error: \"halt\" is no"));
        assert_eq!(said(&mut connection, now), "");
        connection.handle_bytes(b"me", now);
        connection.handle_bytes(b"\n", now);
        connection.handle_end(now);
        assert_eq!(connection.take_order(), Some(Order::Resume));
        connection.answer(Err("it is not".to_owned()), now);
        assert!(!connection.is_over());
        assert_eq!(said(&mut connection, now), "error: it is not\n");
        assert!(connection.is_over());
    }

    #[test]
    fn a_line_that_is_cut_short_is_refused() {
        let now = Instant::now();
        for cut in ["filter remove fu1", "note the beam is o", "pause", "sto"] {
            let mut connection = Connection::new(now);
            connection.handle_bytes(format!("status\n{cut}").as_bytes(), now);
            connection.handle_end(now);
            assert_eq!(connection.take_order(), Some(Order::Status));
            connection.answer(Ok("{}".to_owned()), now);
            assert_eq!(said(&mut connection, now), "ok: {}\n");
            assert_eq!(connection.take_order(), None, "{cut}");
            let bytes = cut.len();
            let told = said(&mut connection, now);
            let expected = format!("error: nothing was done: {bytes} bytes without a line end, ");
            assert!(told.starts_with(&expected), "{told}");
            assert!(connection.is_over());
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let now = Instant::now();
        let mut connection = Connection::new(now);
        assert_eq!(connection.room(), LINE_MAX + 1);
        connection.handle_bytes(&[b'x'; LINE_MAX + 1], now);
        let told = said(&mut connection, now);
        assert!(told.starts_with("error: a line of more than 1256 bytes; a note has at most 1000"));
        connection.handle_bytes(&[b'x'; LINE_MAX + 1], now);
        assert_eq!(
            (connection.to_say(), connection.room()),
            (&[][..], LINE_MAX + 1)
        );
        connection.handle_bytes(b"x\nstatus\n", now);
        assert_eq!(connection.take_order(), Some(Order::Status));
        // The longest that may come is no shorter than the longest note.
        let mut connection = Connection::new(now);
        connection.handle_bytes(
            format!("note {}\n", "x".repeat(NOTE_BYTES_MAX)).as_bytes(),
            now,
        );
        assert!(matches!(connection.take_order(), Some(Order::Note(_))));
    }

    /// Given a client that says a byte now and then, then its line has the same time as any.
    #[test]
    fn a_byte_now_and_then_gives_a_line_no_more_time() {
        let began = Instant::now();
        let mut connection = Connection::new(began);
        let mut now = began;
        while now.duration_since(began) + Duration::from_millis(100) < LINE_PATIENCE {
            now += Duration::from_millis(100);
            connection.handle_bytes(b"n", now);
            connection.handle_time(now);
            assert_eq!(connection.to_say(), b"");
        }
        now = began + LINE_PATIENCE;
        connection.handle_time(now);
        let told = said(&mut connection, now);
        let expected = "error: no order came in 2s, but 19 bytes without a line end; orders are ";
        assert!(told.starts_with(expected), "{told}");
        assert!(connection.is_over());
    }

    #[test]
    fn whoever_says_nothing_is_told_so_and_whoever_was_answered_is_not() {
        let began = Instant::now();
        let mut silent = Connection::new(began);
        silent.handle_time(began + LINE_PATIENCE);
        let told = said(&mut silent, began + LINE_PATIENCE);
        assert!(
            told.starts_with("error: no order came in 2s, but nothing; "),
            "{told}"
        );
        assert!(silent.is_over());
        // It waits for the end of the answers, and an error would be of none of its orders.
        let mut answered = Connection::new(began);
        answered.handle_bytes(b"status\n", began);
        answered.take_order();
        // The run has taken its time.
        let late = began + Duration::from_secs(30);
        answered.handle_time(late);
        answered.answer(Ok("{}".to_owned()), late);
        assert_eq!(said(&mut answered, late), "ok: {}\n");
        answered.handle_time(late);
        assert!(!answered.is_over(), "it may say another order");
        answered.handle_time(late + LINE_PATIENCE);
        assert!(answered.is_over());
        assert_eq!(answered.to_say(), b"");
    }

    #[test]
    fn an_answer_that_nobody_reads_is_given_up() {
        let began = Instant::now();
        let mut connection = Connection::new(began);
        connection.handle_bytes(b"status\nabort\n", began);
        connection.take_order();
        connection.answer(Ok("x".repeat(1000)), began);
        let mut now = began;
        for _ in 0..9 {
            now += Duration::from_secs(1);
            connection.handle_said(1, now);
            connection.handle_time(now);
            assert_eq!((connection.room(), connection.order()), (0, None));
            assert!(!connection.is_over());
        }
        connection.handle_time(began + READ_PATIENCE);
        assert!(connection.is_over());
    }

    #[test]
    fn an_end_is_told_to_those_who_wait_for_an_answer() {
        let now = Instant::now();
        let ended = |connection: &mut Connection| {
            connection.part("the run has ended", now);
            let text = said(connection, now);
            assert!(connection.is_over());
            text
        };
        for before in [&b""[..], b"sta", b"status\n"] {
            let mut connection = Connection::new(now);
            connection.handle_bytes(before, now);
            assert_eq!(ended(&mut connection), "error: the run has ended\n");
        }
        let mut connection = Connection::new(now);
        connection.handle_bytes(b"status\nstatus\n", now);
        connection.take_order();
        connection.answer(Ok("{}".to_owned()), now);
        assert_eq!(ended(&mut connection), "ok: {}\n", "the answer is the last");
        let mut connection = Connection::new(now);
        connection.handle_bytes(b"status\n", now);
        connection.take_order();
        connection.answer(Ok("{}".to_owned()), now);
        said(&mut connection, now);
        assert_eq!(ended(&mut connection), "", "it has all answers");
    }
}
