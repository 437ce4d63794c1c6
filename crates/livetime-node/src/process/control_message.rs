//! What parent and role processes say to each other, one JSON document per packet; one that is longer
//! than a packet may be travels in parts.
//!
//! ```text
//! child                                   parent
//!   │──hello: protocol, version, role────►│  refused unless it is this very program
//!   │◄─begin: run, clock, epochs──────────│  with run page and, for the writer, its file
//!   │◄─ends: names────────────────────────│  with their descriptors, at most 16 a packet
//!   │──ready─────────────────────────────►│
//!   │◄─start──────────────────────────────│
//!   │◄─ends, ..───────────────────────────│  those of the next command, when it has many
//!   │◄─command────────────────────────────│  a peer is lost or back, any number of times
//!   │──settled───────────────────────────►│  once per command
//!   │──failure, filled───────────────────►│  what a filter failed on, and what it fills
//!   │──silent: unit──────────────────────►│  it is taken for dead, and is killed
//!   │──cut: unit─────────────────────────►│  the stream to it has ended; both get another
//!   │──histogram, .., result─────────────►│  after the run page said that the run ends
//!   │◄─close, .. ─────────────────────────│  to the writer alone: the last records of its file
//!   │──closed────────────────────────────►│
//! ```
//! Both sides end when the socket hangs up. It is the control plane: nothing of the data passes
//! here, and documents may allocate.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use livetime_shm::{PeerError, recv_fds, send_fds};
use livetime_store::Histogram as FilledHistogram;
use livetime_wire::{TriggerNumber, UnitId};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::time::Timespec;
use serde_json::{Value, json};

use super::event_watch::FilterFailure;

/// Version of these documents.
pub const PROTOCOL: u64 = 12;
/// Longest document.
pub(super) const DOCUMENT_MAX: usize = 64 * 1024;
/// Longest message that travels in parts: the widest histogram of a filter, 2^24 bins, has some 40 MB.
const MESSAGE_MAX: usize = 64 << 20;
/// Of a message in a part; quotes and backslashes take twice their room in it.
const PART_BYTES: usize = 24 * 1024;
const _: () = assert!(2 * PART_BYTES < DOCUMENT_MAX);
/// Time between two looks while somebody reads nothing.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
/// Events in one document.
const TRIGGERS_MAX: usize = 2000;
/// Entries of a histogram in one document.
pub const ENTRIES_MAX: usize = 1000;

/// One end of a ring or stream, a pool, or a bell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndName {
    /// `producer`, `consumer`, `pool`, `stream`, `datagrams` or `bell`.
    pub kind: String,
    /// Name of the ring or pool; of a stream or a socket for datagrams, the unit at its other end; of a
    /// bell, who sleeps.
    pub name: String,
    /// Epoch of the ring, stream or socket; 0 for pools and bells.
    pub epoch: u64,
}

/// A document.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Who a child is.
    Hello {
        /// [`PROTOCOL`].
        protocol: u64,
        /// Version of the program.
        version: String,
        /// Role id.
        role: String,
        /// Identity of the configuration, such as its hash.
        config: String,
    },
    /// The run that a role is to serve.
    Begin {
        /// Run number.
        run: u32,
        /// Index of the role's block on the run page.
        block: u64,
        /// The run's clock.
        clock: [u64; 5],
        /// The role's epoch.
        epoch: u32,
        /// Epochs of units that are not in their first, by unit code.
        epochs: Vec<(u16, u32)>,
        /// Codes of filter units, readout units and builder units that are not there.
        absent: Vec<u16>,
        /// Readout units that took the place of others, by unit code, and the last triggers that were
        /// given before they joined.
        joined: Vec<(u16, u64)>,
        /// TAI at which the time of the run is 0 if its spills are aligned, else 0 \[ns\].
        spill_origin_ns: u64,
        /// Path of the run file: for a writer its own, for others the main one, beside which lies what they
        /// write.
        file: String,
    },
    /// Ends, in the order of the descriptors.
    Ends(Vec<EndName>),
    /// A child has everything.
    Ready,
    /// A child cannot serve.
    Refused(String),
    /// Go.
    Start,
    /// The first of the events of the next command or answer, which has the rest.
    Triggers(Vec<u64>),
    /// Something happened to a peer.
    Command {
        /// `lost`, `back`, `decide`, `released`, `unasked`, `open`, `end`, `retire`, `reconnect`, `held`,
        /// `succeed`, `hold`, `joined`, `pause` or `resume`.
        what: String,
        /// Code of the unit.
        unit: u16,
        /// Its epoch.
        epoch: u32,
        /// The new ends towards it.
        ends: Vec<EndName>,
        /// Events that it had, as the command says.
        triggers: Vec<u64>,
    },
    /// A child has dealt with a command; the events that were lost by it, as far as it knows. Of
    /// `reconnect`, the unit that it has another stream to, if it has, as a number that no event has.
    Settled(Vec<u64>),
    /// A filter has failed on an event.
    Failure(FilterFailure),
    /// A histogram that the role's filter has filled, as it is now.
    Filled(Box<FilledHistogram>),
    /// A unit, by its code, that was silent for too long.
    Silent(u16),
    /// A unit, by its code, to which the stream has ended by itself.
    Cut(u16),
    /// A part of the text of a message.
    Part {
        /// The text.
        text: String,
        /// Whether it is the last part.
        last: bool,
    },
    /// A part of a histogram: values with their counts.
    Histogram {
        /// Which.
        name: String,
        /// Values and counts.
        entries: Vec<(u64, u64)>,
    },
    /// What a role leaves behind, but for counters and histograms.
    Result(RoleLeft),
    /// A part of the last records of the run file, as JSON.
    Close {
        /// The text.
        part: String,
        /// Whether it is the last part.
        last: bool,
    },
    /// The run file is closed, or why it could not be.
    Closed(Option<String>),
}

/// What a role leaves behind, but for counters and histograms.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoleLeft {
    /// Further counters by name.
    pub details: BTreeMap<String, u64>,
    /// Digest of all decisions, from the front-end.
    pub digest: Option<u64>,
    /// Dead time fractions, from the front-end.
    pub dead_time: Option<(f64, f64)>,
    /// Bytes written after the link page.
    pub bytes_copied: u64,
    /// Why the role failed, if it did.
    pub failure: Option<String>,
    /// Duty cycles by what followed them: busy, spins, yields, sleeps, and sleeps that were rung off.
    pub waits: [u64; 5],
    /// Why its thread could not be pinned, if it was to be.
    pub pin_error: Option<String>,
}

impl EndName {
    fn to_json(&self) -> Value {
        json!([self.kind, self.name, self.epoch])
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            kind: text(&value[0])?,
            name: text(&value[1])?,
            epoch: value[2].as_u64()?,
        })
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn list<T>(value: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(read).collect()
}

fn small<T: TryFrom<u64>>(value: &Value) -> Option<T> {
    T::try_from(value.as_u64()?).ok()
}

impl Message {
    /// The first word of the document, for reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Begin { .. } => "begin",
            Self::Ends(_) => "ends",
            Self::Ready => "ready",
            Self::Refused(_) => "refused",
            Self::Start => "start",
            Self::Triggers(_) => "triggers",
            Self::Command { .. } => "command",
            Self::Settled(_) => "settled",
            Self::Failure(_) => "failure",
            Self::Filled(_) => "filled",
            Self::Silent(_) => "silent",
            Self::Cut(_) => "cut",
            Self::Part { .. } => "part",
            Self::Histogram { .. } => "histogram",
            Self::Result(_) => "result",
            Self::Close { .. } => "close",
            Self::Closed(_) => "closed",
        }
    }

    /// The events of a command or answer.
    fn triggers(&self) -> &[u64] {
        match self {
            Self::Command { triggers, .. } | Self::Settled(triggers) => triggers,
            _ => &[],
        }
    }

    /// The document, of a command or answer with those of its events that are left.
    fn to_json(&self, left: &[u64]) -> Value {
        let ends = |ends: &[EndName]| ends.iter().map(EndName::to_json).collect::<Value>();
        let body = match self {
            Self::Hello {
                protocol,
                version,
                role,
                config,
            } => json!([protocol, version, role, config]),
            Self::Begin {
                run,
                block,
                clock,
                epoch,
                epochs,
                absent,
                joined,
                spill_origin_ns,
                file,
            } => json!([
                run,
                block,
                clock,
                epoch,
                epochs,
                absent,
                joined,
                spill_origin_ns,
                file
            ]),
            Self::Ends(names) => ends(names),
            Self::Ready | Self::Start => Value::Null,
            Self::Refused(reason) => json!(reason),
            Self::Triggers(triggers) => json!(triggers),
            Self::Command {
                what,
                unit,
                epoch,
                ends: names,
                ..
            } => json!([what, unit, epoch, ends(names), left]),
            Self::Settled(_) => json!(left),
            Self::Failure(failure) => {
                json!([failure.trigger.0, failure.deaths, failure.traceback])
            }
            Self::Filled(histogram) => json!([histogram.name(), histogram.to_json()]),
            Self::Silent(unit) | Self::Cut(unit) => json!(unit),
            Self::Part { text, last } => json!([text, last]),
            Self::Histogram { name, entries } => json!([name, entries]),
            Self::Result(left) => json!({
                "details": left.details,
                "digest": left.digest,
                "dead_time": left.dead_time.map(|(a, b)| [a, b]),
                "bytes_copied": left.bytes_copied,
                "failure": left.failure,
                "waits": left.waits,
                "pin_error": left.pin_error,
            }),
            Self::Close { part, last } => json!([part, last]),
            Self::Closed(failure) => json!(failure),
        };
        json!([self.name(), body])
    }

    fn from_json(document: &Value) -> Option<Self> {
        let body = &document[1];
        Some(match document[0].as_str()? {
            "hello" => Self::Hello {
                protocol: body[0].as_u64()?,
                version: text(&body[1])?,
                role: text(&body[2])?,
                config: text(&body[3])?,
            },
            "begin" => Self::Begin {
                run: small(&body[0])?,
                block: body[1].as_u64()?,
                clock: list(&body[2], Value::as_u64)?.try_into().ok()?,
                epoch: small(&body[3])?,
                epochs: list(&body[4], |pair| Some((small(&pair[0])?, small(&pair[1])?)))?,
                absent: list(&body[5], small)?,
                joined: list(&body[6], |pair| Some((small(&pair[0])?, pair[1].as_u64()?)))?,
                spill_origin_ns: body[7].as_u64()?,
                file: text(&body[8])?,
            },
            "ends" => Self::Ends(list(body, EndName::from_json)?),
            "ready" => Self::Ready,
            "start" => Self::Start,
            "refused" => Self::Refused(text(body)?),
            "triggers" => Self::Triggers(list(body, Value::as_u64)?),
            "command" => Self::Command {
                what: text(&body[0])?,
                unit: small(&body[1])?,
                epoch: small(&body[2])?,
                ends: list(&body[3], EndName::from_json)?,
                triggers: list(&body[4], Value::as_u64)?,
            },
            "settled" => Self::Settled(list(body, Value::as_u64)?),
            "failure" => Self::Failure(FilterFailure {
                trigger: TriggerNumber(body[0].as_u64()?),
                deaths: list(&body[1], |pair| Some((text(&pair[0])?, text(&pair[1])?)))?,
                traceback: text(&body[2])?,
            }),
            "filled" => {
                let histogram = FilledHistogram::from_json(body[0].as_str()?, &body[1]);
                Self::Filled(Box::new(histogram.ok()?))
            }
            "silent" => Self::Silent(small(body)?),
            "cut" => Self::Cut(small(body)?),
            "part" => Self::Part {
                text: text(&body[0])?,
                last: body[1].as_bool()?,
            },
            "histogram" => Self::Histogram {
                name: text(&body[0])?,
                entries: list(&body[1], |pair| {
                    Some((pair[0].as_u64()?, pair[1].as_u64()?))
                })?,
            },
            "result" => Self::Result(RoleLeft::from_json(body)?),
            "close" => Self::Close {
                part: text(&body[0])?,
                last: body[1].as_bool()?,
            },
            "closed" => Self::Closed(text(body)),
            _ => return None,
        })
    }

    /// The message of a document that came without descriptors; `None` for one that cannot be read.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        Self::from_json(&serde_json::from_str(text).ok()?)
    }

    /// The document of a message that names no events and comes without descriptors.
    pub(super) fn to_text(&self) -> String {
        self.to_json(&[]).to_string()
    }

    /// Its documents, in their order: what it names beyond its length, and its own text, in parts where
    /// it is too long for one.
    fn to_documents(&self) -> Result<Vec<String>, PeerError> {
        let mut documents = Vec::new();
        let mut left = self.triggers();
        while let Some((first, rest)) = left.split_at_checked(TRIGGERS_MAX) {
            documents.push(Self::Triggers(first.to_vec()).to_text());
            left = rest;
        }
        let whole = self.to_json(left).to_string();
        if whole.len() <= DOCUMENT_MAX {
            documents.push(whole);
            return Ok(documents);
        }
        let bytes_max = match self {
            // A host puts descriptors to what their names stand for, and reads whole documents.
            Self::Begin { .. } | Self::Ends(_) | Self::Command { .. } => DOCUMENT_MAX,
            _ => MESSAGE_MAX,
        };
        if whole.len() > bytes_max {
            return Err(PeerError::TooLong {
                name: self.name(),
                bytes: whole.len(),
                bytes_max,
            });
        }
        let mut rest = whole.as_str();
        while !rest.is_empty() {
            let (part, tail) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
            let part = Self::Part {
                text: part.to_owned(),
                last: tail.is_empty(),
            };
            documents.push(part.to_text());
            rest = tail;
        }
        Ok(documents)
    }

    /// Sends the message; the descriptors come with its last document.
    ///
    /// # Errors
    /// [`PeerError`], [`PeerError::TooLong`] with nothing sent.
    pub fn send(&self, socket: impl AsFd, fds: &[BorrowedFd<'_>]) -> Result<(), PeerError> {
        let mut documents = self.to_documents()?;
        let last = documents.pop().unwrap_or_default();
        for document in documents {
            send_fds(&socket, document.as_bytes(), &[])?;
        }
        send_fds(&socket, last.as_bytes(), fds)
    }

    /// Sends the message to somebody who may read nothing, as one that is stopped: as long as there is
    /// no room for a document, `look` is asked again and again whether to go on.
    ///
    /// # Errors
    /// [`Unsent`].
    pub(super) fn send_patiently(
        &self,
        socket: impl AsFd,
        mut look: impl FnMut() -> Result<(), String>,
    ) -> Result<(), Unsent> {
        for document in self.to_documents()? {
            while !has_room(&socket)? {
                look().map_err(Unsent::GivenUp)?;
            }
            send_fds(&socket, document.as_bytes(), &[])?;
        }
        Ok(())
    }

    /// Puts the events that came ahead of a command or answer in front of its own.
    pub(super) fn take_in(&mut self, ahead: &mut Vec<u64>) {
        if let Self::Command { triggers, .. } | Self::Settled(triggers) = self
            && !ahead.is_empty()
        {
            ahead.append(triggers);
            *triggers = std::mem::take(ahead);
        }
    }

    /// Receives a message, all of its parts, with its descriptors; `Ok(None)` for one that cannot be
    /// read.
    ///
    /// # Errors
    /// [`PeerError`].
    pub fn recv(socket: impl AsFd) -> Result<Option<(Self, Vec<OwnedFd>)>, PeerError> {
        let mut buffer = vec![0; DOCUMENT_MAX];
        let mut whole = String::new();
        loop {
            let received = recv_fds(&socket, &mut buffer)?;
            let document = serde_json::from_slice(&buffer[..received.bytes]).unwrap_or(Value::Null);
            let message = match Self::from_json(&document) {
                Some(Self::Part { text, .. }) if whole.len() + text.len() > MESSAGE_MAX => None,
                Some(Self::Part { text, last }) => {
                    whole += &text;
                    if !last {
                        continue;
                    }
                    Self::from_text(&whole)
                }
                message => message,
            };
            return Ok(message.map(|message| (message, received.fds)));
        }
    }
}

/// Why somebody was not told.
#[derive(Debug)]
pub(super) enum Unsent {
    /// It cannot be.
    Failed(PeerError),
    /// It reads nothing, and is waited for no longer, for this reason.
    GivenUp(String),
}

impl From<PeerError> for Unsent {
    fn from(error: PeerError) -> Self {
        Self::Failed(error)
    }
}

/// Whether a socket takes a document without waiting, or an error at once; waits for it for [`LOOK`].
fn has_room(socket: impl AsFd) -> Result<bool, PeerError> {
    let mut watched = [PollFd::new(&socket, PollFlags::OUT)];
    let polled = retry_on_intr(|| poll(&mut watched, Some(&LOOK)));
    polled.map_err(|errno| PeerError::Kernel {
        step: "waiting for room in a socket",
        source: errno.into(),
    })?;
    Ok(!watched[0].revents().is_empty())
}

impl RoleLeft {
    fn from_json(body: &Value) -> Option<Self> {
        let details = body["details"].as_object()?.iter();
        let dead_time = list(&body["dead_time"], Value::as_f64);
        Some(Self {
            details: details
                .map(|(name, value)| Some((name.clone(), value.as_u64()?)))
                .collect::<Option<_>>()?,
            digest: body["digest"].as_u64(),
            dead_time: dead_time.and_then(|pair| Some((*pair.first()?, *pair.get(1)?))),
            bytes_copied: body["bytes_copied"].as_u64()?,
            failure: text(&body["failure"]),
            waits: list(&body["waits"], Value::as_u64)?.try_into().ok()?,
            pin_error: text(&body["pin_error"]),
        })
    }
}

/// The unit of a code in a document.
pub fn unit_of_code(code: u16) -> Option<UnitId> {
    UnitId::from_code(code)
}

#[cfg(test)]
mod tests {
    use livetime_shm::control_pair;

    use super::*;

    fn end(name: &str) -> EndName {
        EndName {
            kind: "producer".to_owned(),
            name: name.to_owned(),
            epoch: 3,
        }
    }

    #[test]
    fn documents_travel_whole() {
        let (ours, theirs) = control_pair().unwrap();
        let messages = [
            Message::Hello {
                protocol: 1,
                version: "0.1.0".to_owned(),
                role: "ru0".to_owned(),
                config: "abc".to_owned(),
            },
            Message::Begin {
                run: 7,
                block: 2,
                clock: [1, 2, 3, u64::MAX, 5],
                epoch: 1,
                epochs: vec![(3, 2)],
                absent: vec![7, 9],
                joined: vec![(2, u64::MAX)],
                spill_origin_ns: u64::MAX,
                file: "/run 7/events.mcap".to_owned(),
            },
            Message::Ends(vec![end("a>b:messages"), end("c")]),
            Message::Ready,
            Message::Start,
            Message::Refused("no".to_owned()),
            Message::Command {
                what: "back".to_owned(),
                unit: 9,
                epoch: 2,
                ends: vec![end("x")],
                triggers: vec![7, u64::MAX],
            },
            Message::Settled(vec![3]),
            Message::Triggers(vec![u64::MAX; TRIGGERS_MAX]),
            Message::Silent(9),
            Message::Cut(9),
            Message::Histogram {
                name: "build".to_owned(),
                entries: vec![(1, 2), (u64::MAX, 4)],
            },
            Message::Result(RoleLeft {
                details: BTreeMap::from([("n".to_owned(), 4)]),
                digest: Some(u64::MAX),
                dead_time: Some((0.25, 0.5)),
                failure: Some("disk".to_owned()),
                waits: [1, 2, 3, 4, 5],
                ..RoleLeft::default()
            }),
            Message::Close {
                part: "{\"a\"".to_owned(),
                last: true,
            },
            Message::Closed(None),
            Message::Closed(Some("disk".to_owned())),
        ];
        for message in messages {
            message.send(&ours, &[ours.as_fd()]).unwrap();
            let (received, fds) = Message::recv(&theirs).unwrap().unwrap();
            assert_eq!(received, message);
            assert_eq!(fds.len(), 1);
        }
    }

    /// What the largest menu leaves, with the longest names that a menu takes.
    #[test]
    fn a_message_that_fits_no_document_travels_in_parts() {
        let (ours, theirs) = control_pair().unwrap();
        let name = |path: usize, what: &str| format!("\"µ\\{what}{path:0>120}");
        let details = (0..256).flat_map(|path| {
            ["passed", "fired", "accepted", "rejected"].map(|what| (name(path, what), u64::MAX))
        });
        let result = Message::Result(RoleLeft {
            details: details.collect(),
            ..RoleLeft::default()
        });
        assert!(result.to_text().len() > 2 * DOCUMENT_MAX);
        for document in result.to_documents().unwrap() {
            assert!(document.len() <= DOCUMENT_MAX);
        }
        std::thread::scope(|scope| {
            let heard = scope.spawn(|| {
                [(); 2].map(|()| Message::recv(&theirs).unwrap().map(|(message, _)| message))
            });
            result.send(&ours, &[]).unwrap();
            Message::Ready.send(&ours, &[]).unwrap();
            let heard = heard.join().unwrap();
            assert_eq!(heard, [Some(result), Some(Message::Ready)]);
        });
    }

    #[test]
    fn a_message_that_must_be_one_document_is_refused_by_name_where_it_is_longer() {
        let (ours, theirs) = control_pair().unwrap();
        let ends = Message::Ends(vec![end(&"x".repeat(DOCUMENT_MAX))]);
        let refused = ends.send(&ours, &[]).unwrap_err().to_string();
        let bytes = ends.to_text().len();
        assert_eq!(
            refused,
            format!("the message `ends` has {bytes} bytes, {DOCUMENT_MAX} are allowed")
        );
        Message::Ready.send(&ours, &[]).unwrap();
        let heard = Message::recv(&theirs).unwrap().map(|(message, _)| message);
        assert_eq!(heard, Some(Message::Ready), "nothing came before it");
    }

    #[test]
    fn whoever_reads_nothing_is_asked_about_until_it_reads_or_is_given_up() {
        let lost = |triggers: u64| Message::Command {
            what: "lost".to_owned(),
            unit: 9,
            epoch: 2,
            ends: Vec::new(),
            triggers: (0..triggers).collect(),
        };
        let (ours, theirs) = control_pair().unwrap();
        // More than a socket keeps; it is read once somebody has looked.
        let mut heard = Vec::new();
        let mut looks = 0;
        let sent = lost(40_000).send_patiently(&ours, || {
            looks += 1;
            if let Some((Message::Triggers(part), _)) = Message::recv(&theirs).unwrap() {
                heard.extend(part);
            }
            Ok(())
        });
        assert!(sent.is_ok() && looks > 0, "{sent:?} after {looks} looks");
        assert!(heard.is_sorted() && heard.len() < 40_000, "{}", heard.len());
        let (ours, theirs) = control_pair().unwrap();
        let sent = lost(100_000).send_patiently(&ours, || Err("enough".to_owned()));
        assert!(matches!(sent, Err(Unsent::GivenUp(reason)) if reason == "enough"));
        // Short ones find room, and nobody is there for the last.
        let looks = || -> Result<(), String> { panic!("there is room") };
        let (ours, others) = control_pair().unwrap();
        assert!(lost(3).send_patiently(&ours, looks).is_ok());
        drop((theirs, others));
        let sent = lost(3).send_patiently(&ours, looks);
        assert!(
            matches!(sent, Err(Unsent::Failed(PeerError::HungUp))),
            "{sent:?}"
        );
    }

    #[test]
    fn events_that_fit_no_document_come_ahead_of_it() {
        let (ours, theirs) = control_pair().unwrap();
        let triggers: Vec<u64> = (u64::MAX - 10_001..u64::MAX).collect();
        let command = Message::Command {
            what: "lost".to_owned(),
            unit: 9,
            epoch: 2,
            ends: Vec::new(),
            triggers: triggers.clone(),
        };
        let hear = || {
            let mut ahead = Vec::new();
            loop {
                match Message::recv(&theirs).unwrap().unwrap().0 {
                    Message::Triggers(part) => ahead.extend(part),
                    mut last => {
                        assert_eq!(ahead.len(), 5 * TRIGGERS_MAX);
                        last.take_in(&mut ahead);
                        return last;
                    }
                }
            }
        };
        for message in [command, Message::Settled(triggers)] {
            // Together they are more than a socket keeps.
            std::thread::scope(|scope| {
                let heard = scope.spawn(hear);
                message.send(&ours, &[]).unwrap();
                assert_eq!(heard.join().unwrap(), message);
            });
        }
    }

    #[test]
    fn nonsense_is_no_document() {
        let (ours, theirs) = control_pair().unwrap();
        for bytes in [
            &b"x"[..],
            b"[]",
            b"[\"hello\",[1]]",
            b"[\"begin\",[1,2,[1],3,[]]]",
            b"[\"close\",[1]]",
            b"{}",
        ] {
            send_fds(&ours, bytes, &[]).unwrap();
            assert_eq!(Message::recv(&theirs).unwrap().map(|found| found.0), None);
        }
    }
}
