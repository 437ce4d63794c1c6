//! Streams between threads that are cut, and made again.
//!
//! Where roles are threads, both ends of a stream are here and as they were: a new stream takes the
//! place of the old one, and what the filter unit has not answered goes over it once more, see
//! [`crate::role::verdict_log`]. Where roles are processes, the one at the other end is taken for
//! dead instead, see [`crate::process::recovery`]. Streams of the event builder and of data links are
//! made again as those between processes are.

use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use livetime_shm::Doorbell;
use livetime_wire::{RunNs, UnitId, UnitKind};

use crate::builder_transport::{BuilderTransport, PeerSocket, StreamPair};
use crate::chain_plan::role_of;
use crate::process::{CutStreams, FaultTime};
use crate::role::RoleCommand;
use crate::role_ends::unit_of;
use crate::worker::CommandBox;

/// Streams that may be made again in one run; then the run ends.
pub const MENDED_MAX: usize = 64;

/// Streams that are cut during the run, from a `--fault` option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamFault {
    /// The filter unit whose streams are cut.
    pub unit: UnitId,
    /// When.
    pub at: FaultTime,
}

/// A stream that was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutStream {
    /// The unit that found it cut.
    pub from: UnitId,
    /// The unit at the other end.
    pub to: UnitId,
    /// Whether there is another one; `Err` says why the run has to end.
    pub mended: Result<(), String>,
}

/// A worker, as far as commands go to its roles.
pub(crate) struct Addressee {
    pub(crate) roles: Vec<String>,
    pub(crate) commands: CommandBox,
    pub(crate) bell: Doorbell,
}

/// The streams between the threads of a run.
#[derive(Default)]
pub(crate) struct StreamMender {
    workers: Vec<Addressee>,
    congestion: Option<String>,
    /// What carries the messages of two units, and the frames of data links.
    transports: Vec<((UnitId, UnitId), BuilderTransport)>,
    ended: CutStreams,
    /// By builder unit and filter unit, one end of each.
    streams: Vec<((UnitId, UnitId), TcpStream)>,
    faults: Vec<StreamFault>,
    mended: usize,
}

impl StreamMender {
    /// For streams of filter units with this congestion control between roles on these workers, and for
    /// those of these pairs.
    pub(crate) fn new(
        workers: Vec<Addressee>,
        congestion: Option<&str>,
        transports: Vec<((UnitId, UnitId), BuilderTransport)>,
    ) -> Self {
        Self {
            workers,
            congestion: congestion.map(str::to_owned),
            transports,
            ..Self::default()
        }
    }

    /// Takes note of a stream between two units, so that a fault can cut it.
    pub(crate) fn note(&mut self, (a, b): (UnitId, UnitId), ends: &[PeerSocket; 2]) {
        // The builder unit's end: another handle of the filter unit's would hide from the builder
        // unit that the filter unit has closed its own.
        let (units, end) = match (a.kind, b.kind) {
            (UnitKind::Builder, UnitKind::Filter) => ((a, b), &ends[0]),
            (UnitKind::Filter, UnitKind::Builder) => ((b, a), &ends[1]),
            _ => return,
        };
        let PeerSocket::Stream(end) = end else {
            return;
        };
        self.streams.retain(|(noted, _)| *noted != units);
        // Without a descriptor left it cannot be cut; it works all the same.
        let kept = end.try_clone();
        self.streams.extend(kept.ok().map(|kept| (units, kept)));
    }

    /// Has these faults made when their time comes.
    pub(crate) fn plan(&mut self, faults: Vec<StreamFault>) {
        self.faults = faults;
    }

    /// Whether there are faults to be made.
    pub(crate) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Makes the faults that are due.
    pub(crate) fn make_faults(&mut self, now: RunNs, triggers: u64) {
        let due = self.faults.extract_if(.., |fault| match fault.at {
            FaultTime::At(at) => at <= now,
            FaultTime::Triggers(count) => count <= triggers,
            // Of roles that are processes.
            FaultTime::LossOf { .. } => false,
        });
        for fault in due {
            let of_unit = self.streams.iter().filter(|((_, to), _)| *to == fault.unit);
            for (_, stream) in of_unit {
                // One that has ended already cannot be cut.
                let _cut = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Makes the stream between a role and a unit again.
    pub(crate) fn mend(&mut self, role: &str, to: UnitId) -> Option<CutStream> {
        let from = unit_of(role)?;
        Some(self.replace(from, to))
    }

    /// Replaces the stream between two units, unless too many were cut.
    fn replace(&mut self, from: UnitId, to: UnitId) -> CutStream {
        let mended = match self.mended {
            MENDED_MAX.. => Err(format!("{MENDED_MAX} streams were cut in this run")),
            _ => {
                self.mended += 1;
                self.connect_again(from, to)
            }
        };
        CutStream { from, to, mended }
    }

    /// A role has told that its stream to a unit has ended by itself.
    pub(crate) fn note_ended(&mut self, role: &str, to: UnitId, now: Instant) {
        if let Some(from) = unit_of(role) {
            self.ended.note(from, Some(to), now);
        }
    }

    /// Makes the next of these streams again, once both of its ends may have told; what could not be is
    /// to end the run.
    pub(crate) fn mend_ended(&mut self, now: Instant) -> Option<CutStream> {
        let pair = self.ended.next_due(now)?;
        let cut = self.replace(pair.0, pair.1);
        self.ended.end(pair, cut.mended.is_ok());
        Some(cut)
    }

    /// The pairs of units for which that was done since the last call.
    pub(crate) fn take_mended(&mut self) -> Vec<(UnitId, UnitId)> {
        self.ended.take_mended()
    }

    fn congestion_of(&self, (a, b): (UnitId, UnitId)) -> Option<&str> {
        let mut transports = self.transports.iter();
        match transports.find(|(pair, _)| *pair == (a, b) || *pair == (b, a)) {
            Some((_, transport)) => transport.congestion(),
            None => self.congestion.as_deref(),
        }
    }

    fn connect_again(&mut self, from: UnitId, to: UnitId) -> Result<(), String> {
        let pair = StreamPair::connect(self.congestion_of((from, to)));
        let ends = pair.map_err(|error| error.to_string())?.ends;
        let ends = ends.map(PeerSocket::Stream);
        self.note((from, to), &ends);
        let [near, far] = ends.map(PeerSocket::into_stream);
        // Of a data link, both ends know its front-end.
        let link = [from, to].into_iter().find(|u| u.kind == UnitKind::Source);
        for (role, unit, stream) in [(from, to, near), (to, from, far)] {
            let unit = link.unwrap_or(unit);
            let role = role_of(role);
            let worker = self
                .workers
                .iter()
                .find(|worker| worker.roles.contains(&role));
            let worker = worker.ok_or_else(|| format!("there is no {role}"))?;
            worker
                .commands
                .put(&role, RoleCommand::StreamBack { unit, stream });
            worker.bell.ring();
        }
        Ok(())
    }
}
