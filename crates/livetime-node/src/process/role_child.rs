//! A role's process as its parent has it: a child, or a process of another host.

use std::process::Child;

use livetime_shm::{continue_process, stop_process};

use super::host_document::RoleSignal;
use super::role_hosts::HostedRole;

/// A role's process.
pub(super) enum RoleChild {
    /// A child of this process.
    Here(Child),
    /// A child of a host.
    There(HostedRole),
}

impl RoleChild {
    /// Its number on its host.
    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Here(child) => child.id(),
            Self::There(role) => role.process(),
        }
    }

    /// Kills it; one that is dead already stays so.
    pub(super) fn kill(&mut self) {
        match self {
            // One that was reaped is known to be dead.
            Self::Here(child) => drop(child.kill()),
            Self::There(role) => role.signal(RoleSignal::Kill),
        }
    }

    /// Waits until one that was killed is dead, if it is here.
    pub(super) fn await_end(&mut self) {
        if let Self::Here(child) = self {
            // Whoever buries it is told the same once more.
            drop(child.wait());
        }
    }

    /// Stops it; whether it could be.
    pub(super) fn stop(&self) -> bool {
        match self {
            Self::Here(child) => stop_process(child.id()).is_ok(),
            Self::There(role) => {
                role.signal(RoleSignal::Stop);
                true
            }
        }
    }

    /// Lets it go on.
    pub(super) fn go_on(&self) {
        match self {
            // It can only have died, which its socket tells.
            Self::Here(child) => drop(continue_process(child.id())),
            Self::There(role) => role.signal(RoleSignal::Continue),
        }
    }

    /// Whether it is stopped, so that its time does not run. Of a process of another host this is
    /// not known.
    pub(super) fn is_stopped(&self) -> bool {
        let Self::Here(child) = self else {
            return false;
        };
        let stat = format!("/proc/{}/stat", child.id());
        let stat = std::fs::read_to_string(stat).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('T' | 't'))
    }

    /// Whether it has ended; one that has is no zombie any more. A host sees to its own.
    pub(super) fn has_ended(&mut self) -> bool {
        match self {
            Self::Here(child) => matches!(child.try_wait(), Ok(Some(_))),
            Self::There(_) => true,
        }
    }

    /// Whether one that hung up has surely ended, and is not only not heard any more.
    pub(super) fn is_surely_dead(&self) -> bool {
        match self {
            Self::Here(_) => true,
            Self::There(role) => role.is_reaped(),
        }
    }

    /// Waits until it has ended; says how.
    pub(super) fn wait(&mut self) -> String {
        match self {
            Self::Here(child) => match child.wait() {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            },
            Self::There(role) => role.await_exit(),
        }
    }
}
