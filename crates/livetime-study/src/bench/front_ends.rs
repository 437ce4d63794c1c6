//! `front-ends`: frames of users' front-ends through a stream each, beside bare TCP.
//!
//! ```text
//! frames made beforehand --write--> stream of a source --+
//!                                                     .. +--> FrontEndServer --> events
//! core of the senders                                 core of the front-end role
//! ```
//!
//! One core sends the frames of four sources through four streams of the loopback, so many bytes a
//! call; the other does what the front-end role of a run does with them: it takes frames, puts events
//! together, and writes the fragment of each source, with its CRC. Every event must be whole. The floor
//! is as many bytes through as many streams and calls, each end with one buffer a stream, with the same
//! congestion control, from one core to the other. Not measured: datagrams, senders in Python, how
//! long an event takes, and all that follows in a run.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use livetime_node::builder_transport::DEFAULT_CONGESTION;
use livetime_node::front_end_server::{FrontEndServer, FrontEndServerConfig};
use livetime_node::transport::set_congestion;
use livetime_source::{FragmentTrigger, FrontEndEventsConfig, SourceEvent};
use livetime_wire::fragment::OVERHEAD_WORDS;
use livetime_wire::front_end_frame::{ANSWER_WORDS, FrameContent, FrontEndFrame, HEADER_WORDS};
use livetime_wire::{DurationNs, RunNs, RunNumber, SourceId, TriggerNumber};
use serde_json::json;

use super::builder::Shape;
use super::builder_network::{PagesInUse, system};
use super::document::{BenchDocument, Target, rounded, time_per_item};
use super::interleave::{LIKE_FLOORS, interleave};
use super::pinned_threads::{Patience, time_pair};
use super::raw_tcp::{RawTcp, Threads};
use super::{BenchError, BenchOptions};

/// Sources, each with its stream.
const SOURCES: u16 = 4;
/// Bytes of a frame with its header.
const FRAME_BYTES: [usize; 2] = [256, 2 << 10];
/// Bytes that a sender hands to the kernel at once.
const CALL_BYTES: usize = 64 << 10;
/// Triggers that may be open: many calls of a sender, so that sources seldom wait for each other.
const QUEUE: u32 = 1024;
/// Bytes of a block.
const BLOCK_BYTES: usize = 64 << 20;

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a frame is not in its event.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let mut document = BenchDocument::new("front-ends");
    for frame_bytes in FRAME_BYTES {
        measure(&mut document, options, frame_bytes)?;
    }
    Ok(document)
}

fn measure(
    document: &mut BenchDocument,
    options: &BenchOptions,
    frame_bytes: usize,
) -> Result<(), BenchError> {
    let of_block = BLOCK_BYTES / (frame_bytes * usize::from(SOURCES));
    let (blocks, triggers) = match options.quick {
        true => (1, 200),
        false => (9, of_block as u64),
    };
    // A buffer of a call for each stream, as a sender has one for its frames.
    let shape = Shape {
        readout_units: SOURCES,
        builder_units: 1,
        fragment_words: CALL_BYTES / 4,
    };
    let in_use = PagesInUse {
        sent_from: usize::from(SOURCES),
        received_into: usize::from(SOURCES),
    };
    let mut bare = RawTcp::new(shape, in_use)?;
    let mut front_ends = FrontEnds::new(frame_bytes)?;
    let per_stream = triggers * frame_bytes as u64;
    let measured = interleave(
        blocks,
        LIKE_FLOORS,
        || bare.measure(Threads::Two, per_stream, CALL_BYTES),
        || front_ends.take(triggers),
        |floor| *floor,
    )?;
    front_ends.check()?;
    let selection = measured.select(|floor| *floor, |_| ());
    let bytes_per_s = |event_ns: f64| 1e9 * (frame_bytes * usize::from(SOURCES)) as f64 / event_ns;
    let share = selection.quotient(|kept| (bytes_per_s(*kept.block), kept.floor(|floor| *floor)));
    let per_frame: Vec<f64> = selection.all(|kept| *kept.block / f64::from(SOURCES));
    let time = time_per_item(&per_frame);
    let rate = time["per_s_at_p50"].as_f64().unwrap_or(f64::NAN);
    let name = format!("{frame_bytes}_bytes");
    let counts = front_ends.server.events().counts();
    let result = json!({
        "frame_ns": time,
        "mb_per_s_at_p50": (rate * frame_bytes as f64 / 1e6).round(),
        "frames": counts.used,
        "congestion": front_ends.congestion,
        "blocks": selection.to_json(),
    });
    document.add_result(&name, result);
    let bare_rate = selection.median(|kept| kept.floor(|floor| *floor));
    document.add_floor(format!("bare_tcp_{name}_per_s"), rounded(bare_rate));
    document.add_quotient(format!("{name}_to_bare_tcp"), share);
    let absent = counts.absent + counts.discarded;
    document.add_target(Target::at_most(format!("{name}_lost"), absent as f64, 0.0));
    Ok(())
}

/// A server with the streams of its sources.
struct FrontEnds {
    server: FrontEndServer,
    senders: Vec<Sender>,
    event: SourceEvent,
    fragment: Vec<u32>,
    fragment_words: usize,
    taken: u64,
    start: Instant,
    /// The congestion control in force, as of the floor.
    congestion: String,
}

/// The stream of a source and the frames that it sends next.
struct Sender {
    stream: TcpStream,
    source: SourceId,
    frames: Vec<u8>,
    frame_bytes: usize,
    /// The next trigger, and how much of the frames is sent.
    next: u64,
    sent: usize,
    held: usize,
}

impl FrontEnds {
    fn new(frame_bytes: usize) -> Result<Self, BenchError> {
        let config = FrontEndServerConfig {
            listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
            datagrams: None,
            events: FrontEndEventsConfig {
                queue: QUEUE,
                // No event is given up since the machine has other things to do.
                wait: DurationNs(60 * DurationNs::SECOND.0),
            },
        };
        let sources: Vec<SourceId> = (0..SOURCES).map(|at| SourceId(at.into())).collect();
        let fragment_words = frame_bytes / 4 - HEADER_WORDS + OVERHEAD_WORDS;
        let run = RunNumber(1);
        let server = FrontEndServer::bind(&config, run, &sources, fragment_words);
        let mut server = server?;
        let listen = server.listens_at().ok_or(BenchError::Stuck)?;
        let (mut senders, mut congestion) = (Vec::new(), String::new());
        for source in sources {
            let sender = Sender::new(&mut server, listen, source, frame_bytes)?;
            congestion = sender.1;
            senders.push(sender.0);
        }
        Ok(Self {
            server,
            senders,
            event: SourceEvent::new(),
            fragment: Vec::new(),
            fragment_words,
            taken: 0,
            start: Instant::now(),
            congestion,
        })
    }

    /// Nanoseconds per event.
    fn take(&mut self, triggers: u64) -> Result<f64, BenchError> {
        let Self {
            server,
            senders,
            event,
            fragment,
            fragment_words,
            taken,
            start,
            ..
        } = self;
        let until = *taken + triggers;
        let seconds = time_pair(
            |patience| send(senders, until, patience),
            |mut patience| {
                while *taken < until {
                    let now = RunNs(start.elapsed().as_nanos() as u64);
                    let work = server.poll(now);
                    let before = *taken;
                    while *taken < until && server.is_ready(now) {
                        hand_on(server, event, fragment, *fragment_words)?;
                        *taken += 1;
                    }
                    patience.after(work > 0 || *taken > before)?;
                }
                Ok(())
            },
        )?;
        Ok(1e9 * seconds / triggers as f64)
    }

    /// Every frame is in an event.
    fn check(&self) -> Result<(), BenchError> {
        let counts = self.server.events().counts();
        let expected = self.taken * u64::from(SOURCES);
        match (counts.used, counts.kept) == (expected, expected) {
            true => Ok(()),
            false => Err(BenchError::Conservation {
                what: "frames in events",
                found: counts.used,
                expected,
            }),
        }
    }
}

/// Hands an event on as the front-end role does, fragment by fragment.
fn hand_on(
    server: &mut FrontEndServer,
    event: &mut SourceEvent,
    fragment: &mut Vec<u32>,
    fragment_words: usize,
) -> Result<(), BenchError> {
    let trigger = FragmentTrigger {
        trigger: server.events().head(),
        bunch: 0,
        trigger_type: 1,
        event_type: 0,
    };
    server.begin(event);
    for link in 0..usize::from(SOURCES) {
        server.events().write(link, &trigger, fragment);
        if fragment.len() != fragment_words {
            return Err(BenchError::Conservation {
                what: "words of a fragment",
                found: fragment.len() as u64,
                expected: fragment_words as u64,
            });
        }
    }
    server.release();
    Ok(())
}

/// Sends the frames of all sources up to a trigger, from each in turn what its stream takes.
fn send(senders: &mut [Sender], until: u64, mut patience: Patience<'_>) -> Result<(), BenchError> {
    loop {
        let (mut sent, mut has_more) = (0, false);
        for sender in senders.iter_mut() {
            sent += sender.send(until)?;
            has_more |= sender.has_more(until);
        }
        if !has_more {
            return Ok(());
        }
        patience.after(sent > 0)?;
    }
}

impl Sender {
    /// With the congestion control of the floor's streams; returns the one in force.
    fn new(
        server: &mut FrontEndServer,
        listen: SocketAddr,
        source: SourceId,
        frame_bytes: usize,
    ) -> Result<(Self, String), BenchError> {
        let failed = || system("connecting a front-end");
        let mut stream = TcpStream::connect(listen).map_err(failed())?;
        // It is accepted, and welcomed, in here.
        server.poll(RunNs(0));
        let patience = Some(Duration::from_secs(10));
        stream.set_read_timeout(patience).map_err(failed())?;
        let mut welcome = [0; 4 * ANSWER_WORDS];
        stream.read_exact(&mut welcome).map_err(failed())?;
        stream.set_nonblocking(true).map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        let congestion = set_congestion(&stream, Some(DEFAULT_CONGESTION)).map_err(failed())?;
        let sender = Self {
            stream,
            source,
            frames: vec![0x5A; CALL_BYTES / frame_bytes * frame_bytes],
            frame_bytes,
            next: 1,
            sent: 0,
            held: 0,
        };
        Ok((sender, congestion))
    }

    fn has_more(&self, until: u64) -> bool {
        self.sent < self.held || self.next <= until
    }

    /// Sends what is in hand, after it was filled again if that is all sent.
    fn send(&mut self, until: u64) -> Result<usize, BenchError> {
        if self.sent == self.held {
            self.fill(until);
        }
        match self.stream.write(&self.frames[self.sent..self.held]) {
            Ok(bytes) => {
                self.sent += bytes;
                Ok(bytes)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(system("sending frames")(error)),
        }
    }

    /// Sets the headers of the next frames; what their data are is the same in all.
    fn fill(&mut self, until: u64) {
        (self.sent, self.held) = (0, 0);
        for place in self.frames.chunks_exact_mut(self.frame_bytes) {
            if self.next > until {
                break;
            }
            let frame = FrontEndFrame {
                run: None,
                source: self.source,
                trigger: TriggerNumber(self.next),
                content: FrameContent::Data {
                    words: (self.frame_bytes / 4 - HEADER_WORDS) as u32,
                    event_type: 0,
                    status: 0,
                },
            };
            let (header, _) = place.as_chunks_mut::<4>();
            for (bytes, word) in header.iter_mut().zip(frame.emit()) {
                *bytes = word.to_le_bytes();
            }
            self.next += 1;
            self.held += self.frame_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_is_in_its_event() {
        let mut front_ends = FrontEnds::new(256).unwrap();
        for _ in 0..2 {
            assert!(front_ends.take(500).unwrap() > 0.0);
        }
        front_ends.check().unwrap();
        let counts = front_ends.server.events().counts();
        assert_eq!((counts.used, counts.absent), (4000, 0));
        front_ends.taken += 1;
        assert!(matches!(
            front_ends.check(),
            Err(BenchError::Conservation { .. })
        ));
    }
}
