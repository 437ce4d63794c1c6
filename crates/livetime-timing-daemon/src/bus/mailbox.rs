//! A bounded queue of signals for one connection, and the task that sends them.
//!
//! A client that does not read its socket blocks that task and nobody else: further signals are
//! dropped and counted, as the values they report can be read at any time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use zbus::{Connection, Message};

/// Signals waiting at a time.
pub const SIGNALS_WAITING: usize = 64;

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Message>,
    waker: Option<Waker>,
    dropped: u64,
}

/// Signals for one connection.
#[derive(Debug, Default)]
pub struct Mailbox {
    state: Mutex<State>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a signal in, or drops and counts it when there is no room.
    pub fn put(&self, signal: Message) {
        let mut state = self.lock();
        if state.waiting.len() == SIGNALS_WAITING {
            state.dropped += 1;
            return;
        }
        state.waiting.push_back(signal);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Signals dropped so far.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Sends what comes until the connection is closed.
    pub async fn send_until_closed(&self, connection: &Connection) {
        let mut closed = pin!(connection.closed());
        loop {
            let next = poll_fn(|context| {
                if closed.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                let mut state = self.lock();
                match state.waiting.pop_front() {
                    Some(signal) => Poll::Ready(Some(signal)),
                    None => {
                        state.waker = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            })
            .await;
            let Some(signal) = next else {
                return;
            };
            // A failure is the end of the connection, seen in the next turn; and one that does
            // not read must still be able to go.
            let mut sending = pin!(connection.send(&signal));
            let open = poll_fn(|context| {
                if closed.as_mut().poll(context).is_ready() {
                    return Poll::Ready(false);
                }
                sending.as_mut().poll(context).map(|sent| sent.is_ok())
            })
            .await;
            if !open {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted() {
        let mailbox = Mailbox::default();
        let signal = Message::signal("/a", "b.c", "D").build(&()).unwrap();
        for _ in 0..SIGNALS_WAITING + 3 {
            mailbox.put(signal.clone());
        }
        assert_eq!(mailbox.dropped(), 3);
    }
}
