//! The run file of a writer that has not closed it: taken up to be closed here, or left as it is.
//!
//! It is taken up when its process is known to have ended: a child of this process has; of another
//! host's, the host has said so, or nobody has its file any more ([`super::writer_lock`]). A host that
//! is not heard says nothing, and its writer may live. Then the file stays as that leaves it, and so
//! does one that is not at hand: where hosts share no folder, what is here is what it was begun with.

use livetime_wire::{UnitId, UnitKind};

use super::lost_group::{LostGroupLeft, last_life, triggers_of};
use super::process_group::{GroupLeft, ProcessGroup};
use super::writer_lock;
use crate::chain_plan::role_of;
use crate::run_file::{ClosingFile, RunFile};

impl ProcessGroup {
    /// Takes up the run file of a writer that has died, or leaves it.
    pub(super) fn take_up_file(&self, index: u16, left: &mut GroupLeft) {
        let writer = UnitId {
            kind: UnitKind::Writer,
            index,
        };
        let place = self.place_of(writer);
        let Some(result) = last_life(&mut left.results, &role_of(writer)) else {
            return;
        };
        let said = self.said_stored(writer);
        let has_ended = self.has_ended(writer);
        let taken = has_ended
            .then(|| RunFile::reopen_all(&place.path, place.limits, &place.plan))
            .transpose();
        match taken {
            Ok(Some(file)) if self.launcher.hosts.is_none() || file.events_found() >= said => {
                result.counts.chain.events_stored = file.events_found();
                result.run_file = Some(ClosingFile::Here(Box::new(file)));
            }
            Ok(_) => {
                let seen = triggers_of(&place.path).len() as u64;
                result.counts.chain.events_stored = seen.max(said);
                left.lost_groups.push(LostGroupLeft {
                    writer: index,
                    built_again: 0,
                });
                if !has_ended {
                    left.last_heard.push(role_of(writer));
                }
            }
            Err(error) => result.failure = Some(error.to_string()),
        }
    }

    /// Whether the process of a writer that is gone has surely ended.
    fn has_ended(&self, writer: UnitId) -> bool {
        let Some(hosts) = &self.launcher.hosts else {
            return true;
        };
        let mut lives = self.processes.iter().rev();
        let last = lives.find(|process| process.unit == writer);
        last.is_some_and(|last| hosts.is_reaped(last.block as u64))
            || writer_lock::is_free(&self.place_of(writer).path)
    }

    /// Roles of which nothing is known but what they had counted when they were last heard, and whose
    /// neighbours do not know it either: nobody has said that their processes have ended.
    pub(super) fn last_heard(&self) -> Vec<String> {
        let Some(hosts) = &self.launcher.hosts else {
            return Vec::new();
        };
        let kinds = [UnitKind::Source, UnitKind::Trigger, UnitKind::EventManager];
        let unheard = self.processes.iter().filter(|process| {
            let is_reaped = hosts.is_reaped(process.block as u64);
            kinds.contains(&process.unit.kind) && process.left.is_none() && !is_reaped
        });
        unheard.map(|process| process.id.clone()).collect()
    }
}
