//! Handshakes under way: a peer that does not say who it is has its place for a while only.
//!
//! The time is looked at by the daemon's ticker, which passes it in; no handshake has a timer of
//! its own. Bound: one for each peer there can be.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// A peer that has not finished its handshake by then is dropped.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Handshake {
    until: Instant,
    is_over: bool,
    waker: Option<Waker>,
}

/// All handshakes under way, by the keys of their connections.
#[derive(Debug, Default)]
pub struct Handshakes(Mutex<BTreeMap<String, Handshake>>);

impl Handshakes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Handshake>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a handshake that begins now; `None`, and it is given up, when its time is over.
    pub async fn within_time<T>(
        &self,
        key: &str,
        now: Instant,
        handshake: impl Future<Output = T>,
    ) -> Option<T> {
        let under_way = Handshake {
            until: now + HANDSHAKE_TIME,
            is_over: false,
            waker: None,
        };
        self.lock().insert(key.to_owned(), under_way);
        let mut handshake = pin!(handshake);
        let done = poll_fn(|context| {
            if let Poll::Ready(done) = handshake.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            match self.lock().get_mut(key) {
                Some(under_way) if !under_way.is_over => {
                    under_way.waker = Some(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(None),
            }
        })
        .await;
        self.lock().remove(key);
        done
    }

    /// Ends those whose time is over.
    pub fn expire(&self, now: Instant) {
        for handshake in self.lock().values_mut() {
            if handshake.until > now {
                continue;
            }
            handshake.is_over = true;
            if let Some(waker) = handshake.waker.take() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Context;

    use super::*;

    #[test]
    fn a_handshake_ends_with_its_peer_or_with_its_time() {
        let handshakes = Handshakes::default();
        let start = Instant::now();
        let mut context = Context::from_waker(Waker::noop());
        let done = pin!(handshakes.within_time("quick", start, async { 7 }));
        assert_eq!(done.poll(&mut context), Poll::Ready(Some(7)));
        let silent = std::future::pending::<()>();
        let mut given_up = pin!(handshakes.within_time("silent", start, silent));
        assert_eq!(given_up.as_mut().poll(&mut context), Poll::Pending);
        handshakes.expire(start + HANDSHAKE_TIME - Duration::from_nanos(1));
        assert_eq!(given_up.as_mut().poll(&mut context), Poll::Pending);
        handshakes.expire(start + HANDSHAKE_TIME);
        assert_eq!(given_up.as_mut().poll(&mut context), Poll::Ready(None));
        assert!(handshakes.lock().is_empty());
    }
}
