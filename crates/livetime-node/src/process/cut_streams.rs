//! Streams between two role processes that have ended although both live: each gets another.
//!
//! A stream also ends when the process at its other end dies, of which the hang-up of its socket
//! tells soon; so a cut waits a little before it is believed. What was on its way on the stream is
//! lost: the event builder's units ask again for what does not come, as for any lost message, and the
//! fragments of a data link are missed by their numbers. Not so what the supervisor says, each accept and
//! each decision once: an event manager without its stream is ended, since the supervisor tells the next
//! one what is open; without that to a readout unit the run ends.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use livetime_wire::{UnitId, UnitKind};

use super::ProcessError;
use super::control_message::{EndName, Message};
use super::process_group::ProcessGroup;
use super::recovery::OnLoss;
use super::role_loop::rejoined_with;
use crate::chain_plan::{name_of_socket, role_of, transport_of};

/// How long a cut waits for the news that a process has died.
const PATIENCE: Duration = Duration::from_millis(300);

/// Where the supervisor lives.
const SOURCE: UnitId = UnitId {
    kind: UnitKind::Source,
    index: 0,
};

/// The cuts that were heard of, by the two units; at most one for each stream of the run.
#[derive(Debug, Default)]
pub(crate) struct CutStreams {
    since: BTreeMap<(UnitId, UnitId), Instant>,
    mended: Vec<(UnitId, UnitId)>,
    /// Why others were not; as many as were looked at since somebody asked.
    stay_away: Vec<String>,
}

impl CutStreams {
    /// A unit says that its stream to another has ended.
    pub(crate) fn note(&mut self, unit: UnitId, peer: Option<UnitId>, now: Instant) {
        if let Some(peer) = peer {
            let pair = (unit.min(peer), unit.max(peer));
            self.since.entry(pair).or_insert(now);
        }
    }

    /// A unit is gone, and its streams with it.
    pub(super) fn forget(&mut self, unit: UnitId) {
        // The role of the front-ends has the streams of all of them.
        let is_of = |other: &UnitId| role_of(*other) == role_of(unit);
        self.since.retain(|(a, b), _| !is_of(a) && !is_of(b));
    }

    pub(crate) fn next_due(&self, now: Instant) -> Option<(UnitId, UnitId)> {
        let mut cuts = self.since.iter();
        let due = cuts.find(|(_, since)| now.duration_since(**since) >= PATIENCE);
        due.map(|(pair, _)| *pair)
    }

    /// Two units have another stream, or not. What was said of it meanwhile was said of the one that is
    /// gone; a unit whose stream stays away says so again.
    pub(crate) fn end(&mut self, pair: (UnitId, UnitId), is_mended: bool) {
        self.since.remove(&pair);
        self.mended.extend(is_mended.then_some(pair));
    }

    /// The pairs of units that got another stream since the last call.
    pub(crate) fn take_mended(&mut self) -> Vec<(UnitId, UnitId)> {
        std::mem::take(&mut self.mended)
    }
}

impl ProcessGroup {
    /// Gives the units of cut streams others.
    pub(super) fn mend_streams(&mut self) {
        while let Some(pair) = self.cuts.next_due(Instant::now()) {
            let ends = [pair.0, pair.1];
            if ends.contains(&UnitId::SUPERVISOR) {
                let is_manager = ends.contains(&UnitId::EVENT_MANAGER);
                let lost = match is_manager && self.policy.manager == OnLoss::Restart {
                    true => UnitId::EVENT_MANAGER,
                    false => SOURCE,
                };
                self.cuts.forget(lost);
                self.take_for_dead(lost);
                continue;
            }
            let mended = self.reconnect(pair);
            self.cuts.end(pair, matches!(mended, Ok(true)));
            if let Err(error) = mended {
                self.cuts.stay_away.push(error.to_string());
            }
        }
    }

    /// Why streams that were cut stay away, of those since the last call.
    pub fn take_stay_away(&mut self) -> Vec<String> {
        std::mem::take(&mut self.cuts.stay_away)
    }

    /// The pairs of units that got another stream since the last call.
    pub fn take_mended(&mut self) -> Vec<(UnitId, UnitId)> {
        self.cuts.take_mended()
    }

    /// Makes another stream between two units and waits until both have it; `false` if one of them
    /// is not there, or has none.
    fn reconnect(&mut self, (a, b): (UnitId, UnitId)) -> Result<bool, ProcessError> {
        let living = self.processes.iter().enumerate().filter(|(_, p)| !p.gone);
        // The front-ends of all data links are in one role.
        let (role_a, role_b) = (role_of(a), role_of(b));
        let ends = living.filter_map(|(index, process)| match &process.id {
            id if *id == role_a => Some((index, name_of_socket(a, b))),
            id if *id == role_b => Some((index, name_of_socket(b, a))),
            _ => None,
        });
        let ends: Vec<(usize, UnitId)> = ends.collect();
        let is_planned = self.plan.stream_peers(a).any(|peer| peer == b)
            || self.plan.data_sockets.contains(&(a, b));
        if ends.len() != 2 || !is_planned {
            return Ok(false);
        }
        let peers: Vec<u64> = ends
            .iter()
            .map(|(_, peer)| rejoined_with(*peer).0)
            .collect();
        self.ring_epoch += 1;
        let mut passing = self.passing();
        let transport = transport_of(&self.config, (a, b));
        passing.connect((a, b), transport, self.ring_epoch)?;
        let mut waiting = Vec::new();
        for (index, peer) in ends {
            let process = &self.processes[index];
            let passed = passing.of(&process.id);
            let names: Vec<EndName> = passed.iter().map(|(name, _)| name.clone()).collect();
            let fds: Vec<_> = passed.iter().filter_map(|(_, end)| end.fd()).collect();
            let message = Message::Command {
                what: "reconnect".to_owned(),
                unit: peer.to_code(),
                epoch: 0,
                ends: names,
                triggers: Vec::new(),
            };
            // One that cannot be told is dying itself, and is dealt with in its turn.
            if process.send(&message, &fds).is_ok() {
                waiting.push(index);
            }
        }
        let role = format!("{a} and {b}");
        let rejoined = self.await_settled(waiting);
        let rejoined = rejoined.map_err(|reason| ProcessError::Refused { role, reason })?;
        // One that has died meanwhile, or whose host is not reached, has none.
        let have_it = peers.iter().all(|peer| rejoined.contains(peer));
        Ok(have_it && rejoined.len() == peers.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_believed_after_a_while_and_once_for_both_ends() {
        let (builder, readout) = (UnitId::builder(1), UnitId::readout(0));
        let start = Instant::now();
        let mut cuts = CutStreams::default();
        cuts.note(builder, Some(readout), start);
        cuts.note(readout, Some(builder), start + PATIENCE / 2);
        cuts.note(builder, None, start);
        assert_eq!(cuts.since.len(), 1);
        assert_eq!(cuts.next_due(start), None);
        let pair = (builder.min(readout), builder.max(readout));
        assert_eq!(cuts.next_due(start + PATIENCE), Some(pair));
        cuts.note(builder, Some(UnitId::EVENT_MANAGER), start);
        cuts.forget(readout);
        assert_eq!(cuts.since.len(), 1);
        cuts.forget(builder);
        assert_eq!(cuts.next_due(start + PATIENCE), None);
    }
}
