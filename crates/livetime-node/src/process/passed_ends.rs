//! The ends of rings and sockets on their way to the role processes that get them.
//!
//! In a run on one host the parent makes both ends and passes their descriptors; in a run over several
//! it only names them, and each role's host makes what the names stand for.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use livetime_shm::{PASSED_FDS_MAX, RingRegion};
use livetime_wire::UnitId;

use super::ProcessError;
use super::control_message::{EndName, Message};
use super::process_group::RoleProcess;
use crate::builder_transport::{BuilderTransport, PeerSocket, SocketPair};
use crate::chain_plan::{RingPlan, name_of_socket, role_of};

/// The ends of all roles, as they are made.
pub(super) struct Passing {
    /// Whether ends are only named here, since the roles' hosts make them.
    is_named: bool,
    /// Names, memory and sockets by role id.
    ends: BTreeMap<String, Vec<(EndName, PassedEnd)>>,
}

/// What a descriptor is passed of.
#[derive(Clone)]
pub(super) enum PassedEnd {
    Ring(Arc<RingRegion>),
    Socket(Arc<PeerSocket>),
    /// Made by the role's host.
    Named,
}

impl PassedEnd {
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Ring(region) => region.fd(),
            Self::Socket(socket) => Some(socket.as_fd()),
            Self::Named => None,
        }
    }
}

impl Passing {
    /// Without ends; `is_named` where the roles' hosts make them.
    pub(super) fn new(is_named: bool) -> Self {
        Self {
            is_named,
            ends: BTreeMap::new(),
        }
    }

    /// Makes a ring and notes its two ends.
    pub(super) fn make(&mut self, ring: &RingPlan, epoch: u64) -> Result<(), ProcessError> {
        let end = match self.is_named {
            true => PassedEnd::Named,
            false => PassedEnd::Ring(Arc::new(RingRegion::create(&ring.config, epoch)?)),
        };
        for (kind, unit) in [("producer", ring.key.from), ("consumer", ring.key.to)] {
            let name = EndName {
                kind: kind.to_owned(),
                name: ring.key.to_string(),
                epoch,
            };
            let ends = self.ends.entry(role_of(unit)).or_default();
            ends.push((name, end.clone()));
        }
        Ok(())
    }

    /// Connects two units by sockets and notes both ends; returns the congestion control of streams.
    pub(super) fn connect(
        &mut self,
        units: (UnitId, UnitId),
        transport: &BuilderTransport,
        epoch: u64,
    ) -> Result<Option<String>, ProcessError> {
        let (a, b) = units;
        let failed = |error| ProcessError::Stream {
            ends: format!("{a} and {b}"),
            error,
        };
        let (ends, congestion) = if self.is_named {
            let asked = transport.congestion().map(str::to_owned);
            ([PassedEnd::Named, PassedEnd::Named], asked)
        } else {
            let pair = SocketPair::connect(transport).map_err(failed)?;
            let ends = pair.ends.map(|end| PassedEnd::Socket(Arc::new(end)));
            (ends, pair.congestion)
        };
        for ((unit, peer), end) in [(a, b), (b, a)].into_iter().zip(ends) {
            let name = EndName {
                kind: transport.socket_kind().to_owned(),
                name: name_of_socket(unit, peer).to_string(),
                epoch,
            };
            let ends = self.ends.entry(role_of(unit)).or_default();
            ends.push((name, end));
        }
        Ok(congestion)
    }

    /// Tells a role that a unit is back, with its ends towards it; `false` if it has none, or cannot be
    /// told: then it is dying itself, and is dealt with in its turn.
    pub(super) fn send_back(&self, process: &RoleProcess, unit: UnitId, epoch: u32) -> bool {
        let ends = self.ends.get(&process.id).map_or(&[][..], Vec::as_slice);
        // Those that do not fit into one packet go ahead of the command.
        let (ahead, last) = ends.split_at(ends.len().saturating_sub(PASSED_FDS_MAX));
        let send = |ends: &[(EndName, PassedEnd)], message: &dyn Fn(Vec<EndName>) -> Message| {
            let names = ends.iter().map(|(name, _)| name.clone()).collect();
            let fds: Vec<_> = ends.iter().filter_map(|(_, end)| end.fd()).collect();
            process.send(&message(names), &fds).is_ok()
        };
        let mut ahead = ahead.chunks(PASSED_FDS_MAX);
        !ends.is_empty()
            && ahead.all(|part| send(part, &Message::Ends))
            && send(last, &|ends| Message::Command {
                what: "back".to_owned(),
                unit: unit.to_code(),
                epoch,
                ends,
                triggers: Vec::new(),
            })
    }

    /// The ends of a role.
    pub(super) fn of(&self, id: &str) -> Vec<(EndName, PassedEnd)> {
        self.ends.get(id).cloned().unwrap_or_default()
    }
}
