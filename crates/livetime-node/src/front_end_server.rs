//! Where front-ends of users send: streams that they open and datagrams, for the events of a run.
//!
//! ```text
//! stream ---> FrontEndStream (whole frames) --+
//! stream ---> FrontEndStream                --+--> FrontEndEvents --> the front-end role
//! datagrams (a frame each) -------------------+
//! ```
//!
//! A frame whose trigger is not open yet stays with its stream, which is not read on: TCP then holds
//! the sender up. Datagrams are lost where there is no room, and counted. A stream that sends what is no frame of
//! the run is told why and ended; the others go on. Whoever can reach the addresses can send: they are
//! not authenticated.

mod front_end_datagrams;
mod front_end_stream;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use livetime_source::{FrontEndEvents, FrontEndEventsConfig, SourceEvent};
use livetime_wire::front_end_frame::Said;
use livetime_wire::{RunNs, RunNumber, SourceId, TriggerNumber};

use crate::counter_block::Gauges;
use crate::socket_watch::SocketWatch;
use front_end_datagrams::{DatagramCounts, FrontEndDatagrams};
use front_end_stream::{FrontEndStream, Received};

/// Most streams at once: as many as a run may have links.
const STREAMS_MAX: usize = 4096;
/// Places of the sockets in the watch; streams follow.
const LISTENER: usize = 0;
const DATAGRAMS: usize = 1;
const STREAMS: usize = 2;

/// Where front-ends send, and how their frames become events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrontEndServerConfig {
    /// Where streams are accepted.
    pub listen: Option<SocketAddr>,
    /// Where datagrams are received.
    pub datagrams: Option<SocketAddr>,
    /// How frames become events.
    pub events: FrontEndEventsConfig,
}

/// What has been done with streams and datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerCounts {
    /// Streams that were accepted.
    pub streams: u64,
    /// Streams that were ended for what they sent, and those that were too many.
    pub streams_refused: u64,
    /// Streams that ended within a frame.
    pub streams_cut: u64,
    /// Streams that the end of the run found with frames in hand: for which there was no room yet, or that
    /// came faster than they were taken.
    pub streams_held: u64,
}

/// An address that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what} {address} for front-ends cannot be used: {source}")]
pub struct AddressError {
    what: &'static str,
    address: SocketAddr,
    source: std::io::Error,
}

/// The sockets of front-ends and their events.
#[derive(Debug)]
pub struct FrontEndServer {
    events: FrontEndEvents,
    listener: Option<TcpListener>,
    datagrams: Option<FrontEndDatagrams>,
    /// Of datagrams, once there is no socket any more.
    datagram_counts: DatagramCounts,
    streams: Vec<FrontEndStream>,
    watch: SocketWatch,
    has_ended: bool,
    counts: ServerCounts,
}

impl FrontEndServer {
    /// Opens the sockets. Fragments of the sources, in the order of their links, have at most
    /// `fragment_words` words with header and trailer.
    ///
    /// # Errors
    /// [`AddressError`] where an address cannot be used.
    pub fn bind(
        config: &FrontEndServerConfig,
        run: RunNumber,
        sources: &[SourceId],
        fragment_words: usize,
    ) -> Result<Self, AddressError> {
        let listener = config.listen.map(|address| {
            let listener = TcpListener::bind(address);
            let ready = listener.and_then(|l| l.set_nonblocking(true).map(|()| l));
            ready.map_err(|source| AddressError {
                what: "listening at",
                address,
                source,
            })
        });
        let datagrams = config.datagrams.map(|address| {
            FrontEndDatagrams::bind(address).map_err(|source| AddressError {
                what: "receiving datagrams at",
                address,
                source,
            })
        });
        let mut server = Self {
            events: FrontEndEvents::new(&config.events, run, sources, fragment_words),
            listener: listener.transpose()?,
            datagrams: datagrams.transpose()?,
            datagram_counts: DatagramCounts::default(),
            streams: Vec::new(),
            watch: SocketWatch::new(std::iter::empty()),
            has_ended: false,
            counts: ServerCounts::default(),
        };
        server.watch_all();
        Ok(server)
    }

    /// Where streams are accepted, as long as they are.
    pub fn listens_at(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Takes what has come; returns how much.
    pub fn poll(&mut self, now: RunNs) -> usize {
        self.watch.look();
        let mut work = 0;
        if let Some(datagrams) = &mut self.datagrams
            && (self.watch.is_ready(DATAGRAMS) || datagrams.has_more())
        {
            work += datagrams.receive(now, &mut self.events);
        }
        let before = self.streams.len();
        let mut place = STREAMS;
        let Self {
            streams,
            watch,
            events,
            counts,
            has_ended,
            ..
        } = self;
        streams.retain_mut(|stream| {
            let is_ready = watch.is_ready(place);
            place += 1;
            if !is_ready && !stream.has_more() {
                return true;
            }
            match stream.receive(now, events, *has_ended) {
                Received::Frames(frames) => work += frames,
                Received::Refused { refusal, trigger } => {
                    counts.streams_refused += 1;
                    stream.say(events.run(), trigger, Said::Refused(refusal));
                }
                Received::End { is_cut } => {
                    counts.streams_cut += u64::from(is_cut);
                    return false;
                }
            }
            true
        });
        let accepted = if self.watch.is_ready(LISTENER) {
            self.accept()
        } else {
            0
        };
        if accepted > 0 || self.streams.len() != before {
            self.watch_all();
        }
        work + accepted
    }

    /// Whether the next event can be handed on.
    pub fn is_ready(&mut self, now: RunNs) -> bool {
        !self.has_ended && self.events.is_ready(now)
    }

    /// The events.
    pub fn events(&self) -> &FrontEndEvents {
        &self.events
    }

    /// Hands the next event on, as [`FrontEndEvents::begin`].
    pub fn begin(&mut self, event: &mut SourceEvent) {
        self.events.begin(event);
    }

    /// Its fragments are on their links.
    pub fn release(&mut self) {
        self.events.release();
    }

    /// The run takes no more triggers: front-ends are told, and what they send from now on is read and
    /// not kept, so that what they were told reaches them.
    pub fn end(&mut self, last: TriggerNumber) {
        if self.has_ended {
            return;
        }
        self.has_ended = true;
        self.events.end();
        // Before anybody hears of it, who would connect to the next run and find this one.
        self.listener = None;
        for stream in &mut self.streams {
            self.counts.streams_held += u64::from(stream.has_more());
            stream.say(self.events.run(), last, Said::Ended);
        }
        if let Some(datagrams) = self.datagrams.take() {
            self.datagram_counts = datagrams.end();
        }
        self.watch_all();
    }

    /// Says in the gauges what the run waits for; whether that is something new.
    pub fn note_missing(&self, now: RunNs, gauges: &mut Gauges) -> bool {
        let before = *gauges;
        let (awaited, silent) = match self.has_ended {
            true => Default::default(),
            false => (
                counted(self.events.awaited(now)),
                counted(self.events.silent()),
            ),
        };
        (gauges.awaited, gauges.first_awaited) = awaited;
        (gauges.silent, gauges.first_silent) = silent;
        *gauges != before
    }

    /// What a role tells of it, by name.
    pub fn details(&self) -> Vec<(String, u64)> {
        let (frames, counts) = (self.events.counts(), self.counts);
        let datagrams = self.datagrams.as_ref();
        let datagrams = datagrams.map_or(self.datagram_counts, FrontEndDatagrams::counts);
        let mut details: Vec<(String, u64)> = [
            ("front_end_frames", frames.kept),
            ("front_end_frames_used", frames.used),
            ("front_end_frames_discarded", frames.discarded),
            ("front_end_frames_late", frames.late),
            ("front_end_frames_twice", frames.twice),
            ("front_end_frames_refused", frames.refused),
            ("front_end_fragments_absent", frames.absent),
            ("front_end_fragments_passed_over", frames.passed_over),
            ("front_end_streams", counts.streams),
            ("front_end_streams_refused", counts.streams_refused),
            ("front_end_streams_cut", counts.streams_cut),
            ("front_end_streams_held", counts.streams_held),
            ("front_end_datagrams", datagrams.received),
            ("front_end_datagrams_ahead", datagrams.ahead),
            ("front_end_datagrams_dropped", datagrams.kernel_drops),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .to_vec();
        let unheard = self.events.unheard();
        details.extend(unheard.map(|source| (format!("front_end_unheard_of_{source}"), 1)));
        let silent = self.events.silent();
        details.extend(silent.map(|source| (format!("front_end_silent_of_{source}"), 1)));
        details
    }

    fn accept(&mut self) -> usize {
        let mut accepted = 0;
        while let Some(listener) = &self.listener {
            // Whatever is wrong with one of them is not the run's.
            let Ok((stream, _)) = listener.accept() else {
                break;
            };
            accepted += 1;
            self.counts.streams += 1;
            let words_max = self.events.words_max();
            let stream = FrontEndStream::new(stream, words_max)
                .ok()
                .filter(|_| self.streams.len() < STREAMS_MAX);
            let Some(mut stream) = stream else {
                self.counts.streams_refused += 1;
                continue;
            };
            let welcome = Said::Welcome {
                words_max: words_max as u32,
            };
            stream.say(self.events.run(), self.events.head(), welcome);
            self.streams.push(stream);
        }
        accepted
    }

    fn watch_all(&mut self) {
        let listener = self.listener.as_ref().map(AsFd::as_fd);
        let datagrams = self.datagrams.as_ref().map(FrontEndDatagrams::as_fd);
        let streams = self.streams.iter().map(|stream| Some(stream.as_fd()));
        self.watch = SocketWatch::new([listener, datagrams].into_iter().chain(streams));
    }
}

/// How many sources there are, and the first of them.
fn counted(mut sources: impl Iterator<Item = SourceId>) -> (u64, u64) {
    let first = sources.next();
    first.map_or((0, 0), |first| (1 + sources.count() as u64, first.0.into()))
}

#[cfg(test)]
mod tests;
