//! Leases of clients: granted, taken over, renewed and ended.

use std::time::{Duration, Instant};

use super::{Client, Control, ControlError, Departed, shares};
use crate::lease::{Holder, LEASE_MAX, NotResumed};

impl Control {
    /// Has what a client owns stay for so long after its connection is gone; 0 ends that. Returns
    /// the token with which another connection of the same user gets it.
    ///
    /// # Errors
    /// [`ControlError::Gone`], [`ControlError::LeaseTime`], or [`ControlError::LeaseToken`].
    pub fn lease(&self, client: &Client, seconds: u32) -> Result<String, ControlError> {
        let mut state = self.lock();
        state.check_here(client.id)?;
        if seconds == 0 {
            state.leases.give_back(client.id);
            return Ok(String::new());
        }
        let length = Duration::from_secs(seconds.into());
        if length > LEASE_MAX {
            return Err(ControlError::LeaseTime { seconds });
        }
        let token = state.leases.grant(client.id, client.uid, length);
        Ok(token.map_err(ControlError::LeaseToken)?.as_str().to_owned())
    }

    /// Gives a client the lease of a token and what its last holder owns, once that one is gone;
    /// returns how many objects.
    ///
    /// # Errors
    /// [`ControlError::Gone`], [`ControlError::NoLease`], [`ControlError::LeaseHeld`], or
    /// [`ControlError::Full`] where the client would own more than one may.
    pub fn resume(&self, client: &Client, token: &str) -> Result<u32, ControlError> {
        let mut state = self.lock();
        state.check_here(client.id)?;
        let not_resumed = |error| match error {
            NotResumed::Unknown => ControlError::NoLease { uid: client.uid },
            NotResumed::Held(holder) => ControlError::LeaseHeld { holder },
        };
        let from = state.leases.resumable(token, client.uid, client.id);
        let from = from.map_err(not_resumed)?;
        if from != client.id {
            // Before anything is taken over: what does not fit stays under its lease.
            shares::check_taken_over(&state.registry, &client.caller(), from)?;
        }
        let resumed = state.leases.resume(token, client.uid, client.id);
        let from = resumed.map_err(not_resumed)?;
        state.revision += 1;
        Ok(state.registry.hand_over(from, client.id) as u32)
    }

    /// Starts the time of a lease again, without taking it from anybody; how many objects are under
    /// it, and whether its holder is gone.
    ///
    /// # Errors
    /// [`ControlError::NoLease`].
    pub fn renew(&self, client: &Client, token: &str) -> Result<(u32, Holder), ControlError> {
        let mut state = self.lock();
        let renewed = state.leases.renew(token, client.uid, Instant::now());
        let (of, holder) = renewed.ok_or(ControlError::NoLease { uid: client.uid })?;
        Ok((state.registry.owned_by(of) as u32, holder))
    }

    /// Clears one client away whose lease is over, if there is one.
    ///
    /// # Errors
    /// [`ControlError::Core`].
    pub fn expire_lease(&self) -> Result<Option<Departed>, ControlError> {
        let mut state = self.lock();
        let expired = state.leases.take_expired(Instant::now());
        expired.map(|client| state.clear_away(client)).transpose()
    }

    /// Leases whose holders are gone.
    pub fn orphans(&self) -> usize {
        self.lock().leases.orphans()
    }
}
