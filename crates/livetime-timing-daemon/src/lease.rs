//! Leases: what a client owns outlives its connection for a while.
//!
//! A client that holds a lease may lose its connection, or die, and its sinks and conditions stay
//! as they are, active ones too, until it comes back with the token or the time is over. Its
//! subscriptions end, since their rings have no reader, and its function generators are aborted: a
//! lease keeps what listens, not what acts unattended. The token is 128 random bits, good for the
//! same user only. Bounds: one lease for each client there can be, [`LEASE_MAX`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::time::{Duration, Instant};

use livetime_timing::ClientId;

/// Longest lease.
pub const LEASE_MAX: Duration = Duration::from_secs(3600);

/// What its holder shows to get its objects back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseToken(String);

impl LeaseToken {
    fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let mut text = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            // Writing into a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    /// 32 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether the holder of a lease is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// It is, so that no time runs.
    Connected,
    /// It is not, and the time runs.
    Gone,
}

#[derive(Debug, Clone)]
struct Lease {
    token: LeaseToken,
    uid: u32,
    length: Duration,
    /// Its holder is gone, and what it owns stays until then.
    until: Option<Instant>,
}

/// Why a lease is not taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotResumed {
    /// There is no lease of the token for the user.
    Unknown,
    /// Another client holds it and is connected, or not noticed to be gone: what it makes from then
    /// on would go with it.
    Held(ClientId),
}

/// The leases of all clients, present and gone.
#[derive(Debug, Default)]
pub struct Leases {
    held: BTreeMap<ClientId, Lease>,
}

impl Leases {
    /// Gives a client a lease, in place of the one it has.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn grant(
        &mut self,
        client: ClientId,
        uid: u32,
        length: Duration,
    ) -> io::Result<&LeaseToken> {
        let lease = Lease {
            token: LeaseToken::random()?,
            uid,
            length: length.min(LEASE_MAX),
            until: None,
        };
        Ok(&self.held.entry(client).insert_entry(lease).into_mut().token)
    }

    /// Takes a client's lease back; returns whether it had one.
    pub fn give_back(&mut self, client: ClientId) -> bool {
        self.held.remove(&client).is_some()
    }

    /// A client is gone; returns whether what it owns stays for now.
    pub fn client_gone(&mut self, client: ClientId, now: Instant) -> bool {
        let Some(lease) = self.held.get_mut(&client) else {
            return false;
        };
        lease.until = Some(now + lease.length);
        true
    }

    /// The lease of a token passes to another client of the same user, once its holder is gone;
    /// returns whose it was.
    ///
    /// # Errors
    /// [`NotResumed`]. Who holds it already keeps it.
    pub fn resume(&mut self, token: &str, uid: u32, by: ClientId) -> Result<ClientId, NotResumed> {
        let from = self.resumable(token, uid, by)?;
        if let Some(lease) = self.held.remove(&from) {
            let until = if from == by { lease.until } else { None };
            self.held.insert(by, Lease { until, ..lease });
        }
        Ok(from)
    }

    /// Whose lease [`Leases::resume`] would pass on.
    ///
    /// # Errors
    /// Those of [`Leases::resume`].
    pub fn resumable(&self, token: &str, uid: u32, by: ClientId) -> Result<ClientId, NotResumed> {
        let mut all = self.held.iter();
        let found = all.find(|(_, lease)| lease.uid == uid && is_equal(&lease.token.0, token));
        let (&from, lease) = found.ok_or(NotResumed::Unknown)?;
        match lease.until {
            None if from != by => Err(NotResumed::Held(from)),
            _ => Ok(from),
        }
    }

    /// Starts the time of a lease again, where it runs; nobody else gets what is under it. Returns
    /// whose it is, and whether that one is gone.
    pub fn renew(&mut self, token: &str, uid: u32, now: Instant) -> Option<(ClientId, Holder)> {
        let (of, lease) = self
            .held
            .iter_mut()
            .find(|(_, lease)| lease.uid == uid && is_equal(&lease.token.0, token))?;
        let holder = match &mut lease.until {
            Some(until) => {
                *until = now + lease.length;
                Holder::Gone
            }
            None => Holder::Connected,
        };
        Some((*of, holder))
    }

    /// Takes out a client whose time is over.
    pub fn take_expired(&mut self, now: Instant) -> Option<ClientId> {
        let expired = |lease: &Lease| lease.until.is_some_and(|until| until <= now);
        let client = *self.held.iter().find(|(_, lease)| expired(lease))?.0;
        self.held.remove(&client);
        Some(client)
    }

    /// Clients of a user that are gone and whose leases are kept.
    pub fn orphans_of(&self, uid: u32) -> impl Iterator<Item = ClientId> {
        let gone =
            move |(_, lease): &(&ClientId, &Lease)| lease.uid == uid && lease.until.is_some();
        self.held.iter().filter(gone).map(|(client, _)| *client)
    }

    /// Leases whose holders are gone.
    pub fn orphans(&self) -> usize {
        let gone = |lease: &&Lease| lease.until.is_some();
        self.held.values().filter(gone).count()
    }
}

/// Compares all of both texts, so that the time taken does not tell how much of a token is right.
fn is_equal(token: &str, shown: &str) -> bool {
    let differing = token.bytes().zip(shown.bytes());
    token.len() == shown.len() && differing.fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = LEASE_MAX;

    #[test]
    fn a_lease_ends_when_its_time_is_over_and_not_while_its_holder_is_there() {
        let mut leases = Leases::default();
        let now = Instant::now();
        let (first, second) = (ClientId(1), ClientId(2));
        leases.grant(first, 7, HOUR).unwrap();
        leases.grant(second, 7, HOUR * 2).unwrap();
        assert_eq!(leases.take_expired(now + 3 * HOUR), None);
        assert!(leases.client_gone(first, now) && leases.client_gone(second, now + HOUR));
        assert!(!leases.client_gone(ClientId(3), now));
        assert_eq!(leases.orphans(), 2);
        let just_before = Duration::from_nanos(1);
        assert_eq!(leases.take_expired(now + HOUR - just_before), None);
        assert_eq!(leases.take_expired(now + HOUR), Some(first));
        assert_eq!(leases.take_expired(now + HOUR), None);
        assert_eq!(
            leases.take_expired(now + 2 * HOUR),
            Some(second),
            "cut to the longest"
        );
        assert!(!leases.give_back(second));
    }

    #[test]
    fn to_renew_a_lease_takes_it_from_nobody() {
        let mut leases = Leases::default();
        let now = Instant::now();
        let token = leases.grant(ClientId(1), 7, HOUR).unwrap().clone();
        let token = token.as_str();
        assert_eq!(leases.renew(token, 8, now), None);
        assert_eq!(
            leases.renew(token, 7, now),
            Some((ClientId(1), Holder::Connected))
        );
        assert_eq!(leases.take_expired(now + 2 * HOUR), None);
        assert!(leases.client_gone(ClientId(1), now));
        let later = now + HOUR / 2;
        assert_eq!(
            leases.renew(token, 7, later),
            Some((ClientId(1), Holder::Gone))
        );
        assert_eq!(leases.take_expired(now + HOUR), None);
        assert_eq!(leases.take_expired(later + HOUR), Some(ClientId(1)));
        assert_eq!(leases.renew(token, 7, later), None);
    }

    #[test]
    fn only_the_token_and_the_user_resume_it_and_only_once_each() {
        let mut leases = Leases::default();
        let token = leases.grant(ClientId(1), 7, HOUR).unwrap().clone();
        assert_eq!(token.as_str().len(), 32);
        let other = leases.grant(ClientId(9), 7, HOUR).unwrap().clone();
        assert_ne!(token, other);
        let shorter = &token.as_str()[..31];
        for (wrong, uid) in [(token.as_str(), 8), (shorter, 7), ("", 7)] {
            let refused = leases.resume(wrong, uid, ClientId(2));
            assert_eq!(refused, Err(NotResumed::Unknown));
        }
        // Its holder is there.
        let held = Err(NotResumed::Held(ClientId(1)));
        assert_eq!(leases.resume(token.as_str(), 7, ClientId(2)), held);
        assert_eq!(
            leases.resume(token.as_str(), 7, ClientId(1)),
            Ok(ClientId(1))
        );
        leases.client_gone(ClientId(1), Instant::now());
        assert_eq!(
            leases.resume(token.as_str(), 7, ClientId(2)),
            Ok(ClientId(1))
        );
        assert_eq!(leases.orphans(), 0);
        let held = Err(NotResumed::Held(ClientId(2)));
        assert_eq!(leases.resume(token.as_str(), 7, ClientId(3)), held);
        assert!(leases.give_back(ClientId(2)));
        assert_eq!(
            leases.resume(token.as_str(), 7, ClientId(4)),
            Err(NotResumed::Unknown)
        );
    }
}
