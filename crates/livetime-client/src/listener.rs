//! Listening that goes on by itself: records of some conditions, across restarts of the daemon.
//!
//! A [`Listener`] keeps what it asked for. When the daemon is gone it connects again until there is
//! one, asks again, and gives a record of kind [`RecordKind::Restart`] with the new epoch: what was
//! sent meanwhile is not known. Where the daemon is there and has ended the subscription, because an
//! admin destroyed its sink or one of its conditions, all of it is made anew, and the record says so
//! ([`TimingRecord::is_renewal`]). A thread of its own does that, so that a daemon that does not answer
//! makes no wait longer than its timeout. Gaps within an epoch are exact. It never gives up by itself: it ends
//! only when the daemon has ended its subscription, whose rule is then [`OverflowRule::Disconnect`].
//!
//! [`OverflowRule::Disconnect`]: crate::OverflowRule::Disconnect

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use livetime_wire::{RecordKind, TimingRecord};

use crate::address::Address;
use crate::error::ClientError;
use crate::subscription::{Subscription, SubscriptionOptions, Wait, now};
use crate::timing_client::{Filter, TimingClient};

/// Longest time without a look whether the daemon is still there, for those that are not told.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Pause between two attempts to connect again.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Records of some conditions.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    filters: Vec<Filter>,
    options: SubscriptionOptions,
    session: Option<Session>,
    /// Under way while there is no session.
    reconnection: Option<Reconnection>,
    /// That of the last session.
    epoch: u32,
    restarts: u32,
    /// The process that it is of.
    process: u32,
}

#[derive(Debug)]
struct Session {
    // The sink belongs to the client's connection and goes with it.
    client: TimingClient,
    subscription: Subscription,
}

impl Session {
    fn start(
        address: &Address,
        filters: &[Filter],
        options: &SubscriptionOptions,
    ) -> Result<Self, ClientError> {
        let client = TimingClient::connect(address)?;
        let sink = client.new_sink("")?;
        // Subscribed before there are conditions, so that the first action is not missed.
        let subscription = sink.subscribe(options)?;
        for filter in filters {
            sink.add(filter)?;
        }
        Ok(Self {
            client,
            subscription,
        })
    }
}

/// The search for the next daemon, in a thread of its own.
#[derive(Debug)]
struct Reconnection {
    found: mpsc::Receiver<Result<Session, ClientError>>,
    stop: Arc<AtomicBool>,
}

impl Reconnection {
    fn start(
        address: Address,
        filters: Vec<Filter>,
        options: SubscriptionOptions,
    ) -> Result<Self, ClientError> {
        let (give, found) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        std::thread::Builder::new()
            .name("timing-reconnect".to_owned())
            .spawn(move || {
                while !stopping.load(Ordering::SeqCst) {
                    match Session::start(&address, &filters, &options) {
                        Err(error) if error.may_pass() => std::thread::sleep(TRY_AGAIN),
                        found => {
                            // Nobody takes it when the listener is gone, and it ends here.
                            let _ = give.send(found);
                            return;
                        }
                    }
                }
            })
            .map_err(ClientError::system("starting a thread"))?;
        Ok(Self { found, stop })
    }

    /// What the search came to, if that is known after `left`; waits for ever without it.
    fn wait(&self, left: Option<Duration>) -> Option<Result<Session, ClientError>> {
        let found = match left {
            Some(left) => self.found.recv_timeout(left),
            None => self.found.recv().map_err(mpsc::RecvTimeoutError::from),
        };
        match found {
            Ok(found) => Some(found),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            // A panic of the thread, which the panic hook has reported.
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(Err(ClientError::Gone)),
        }
    }
}

impl Drop for Reconnection {
    fn drop(&mut self) {
        // Not waited for: the thread may be in a call that a stopped daemon leaves unanswered.
        self.stop.store(true, Ordering::SeqCst);
    }
}

impl Listener {
    /// Connects and listens to the messages of `filters`.
    ///
    /// # Errors
    /// [`ClientError`] when there is no daemon, or it refuses.
    pub fn start(
        address: &Address,
        filters: &[Filter],
        options: &SubscriptionOptions,
    ) -> Result<Self, ClientError> {
        let session = Session::start(address, filters, options)?;
        Ok(Self {
            address: address.clone(),
            filters: filters.to_vec(),
            options: *options,
            epoch: session.subscription.epoch(),
            session: Some(session),
            reconnection: None,
            restarts: 0,
            process: std::process::id(),
        })
    }

    /// The next record, waiting at most `timeout` for it, for ever without one. While the daemon is
    /// away it is looked for meanwhile, and after this call.
    ///
    /// # Errors
    /// [`ClientError::CutOff`] when the daemon ended the subscription for falling behind, after the
    /// records and the gap that it still held, and at each further call; a refusal of the daemon; or
    /// [`ClientError::OtherProcess`] in a child made by `fork` that would wait on its copy.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<TimingRecord>, ClientError> {
        // A wait beyond all time is one for ever.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let session = self.session.as_ref();
            // Asked where it would wait: the system is not called while there are records.
            if !session.is_some_and(|session| session.subscription.is_ready())
                && std::process::id() != self.process
            {
                // What wakes and what looks for the next daemon are its parent's.
                return Err(ClientError::OtherProcess {
                    opened_by: self.process,
                });
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let Some(session) = &mut self.session else {
                if let Some(record) = self.connect_again(left)? {
                    return Ok(Some(record));
                }
                if left.is_some_and(|left| left.is_zero()) {
                    return Ok(None);
                }
                continue;
            };
            let wait = match self.options.wait {
                Wait::Sleep => left,
                Wait::Spin => Some(left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN))),
            };
            let client = &session.client;
            match next_or_gone(&mut session.subscription, wait, || client.is_gone()) {
                Ok(Some(record)) => return Ok(Some(record)),
                Ok(None) if left.is_some_and(|left| left.is_zero()) => return Ok(None),
                Ok(None) => {}
                Err(ClientError::Gone) => self.session = None,
                // The ended subscription stays, and says so again: a new one would look like a
                // restart of the daemon.
                Err(ClientError::CutOff) => return Err(ClientError::CutOff),
                Err(error) => {
                    self.session = None;
                    return Err(error);
                }
            }
        }
    }

    fn connect_again(
        &mut self,
        left: Option<Duration>,
    ) -> Result<Option<TimingRecord>, ClientError> {
        let reconnection = match self.reconnection.take() {
            Some(reconnection) => reconnection,
            None => Reconnection::start(self.address.clone(), self.filters.clone(), self.options)?,
        };
        let Some(found) = reconnection.wait(left) else {
            // It goes on meanwhile, and is taken up by the next call.
            self.reconnection = Some(reconnection);
            return Ok(None);
        };
        let session = found?;
        let epoch = session.subscription.epoch();
        self.session = Some(session);
        // No two starts of a daemon share an epoch.
        if std::mem::replace(&mut self.epoch, epoch) == epoch {
            return Ok(Some(TimingRecord::renewal(now(), epoch)));
        }
        self.restarts += 1;
        Ok(Some(TimingRecord::restart(now(), epoch)))
    }

    /// Times that the daemon was found again after it had ended.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// The present connection; none while the daemon is away.
    pub fn client(&self) -> Option<&TimingClient> {
        self.session.as_ref().map(|session| &session.client)
    }

    /// The present subscription; none while the daemon is away.
    pub fn subscription(&mut self) -> Option<&mut Subscription> {
        self.session
            .as_mut()
            .map(|session| &mut session.subscription)
    }

    /// For event loops: makes the descriptor of the present subscription unreadable again. When the
    /// daemon is gone there is none, and the next look for a record connects again.
    ///
    /// # Errors
    /// [`ClientError::System`].
    pub fn woken(&mut self) -> Result<(), ClientError> {
        match self
            .session
            .as_ref()
            .map(|session| session.subscription.woken())
        {
            Some(Err(ClientError::Gone)) => {
                self.session = None;
                Ok(())
            }
            Some(result) => result,
            None => Ok(()),
        }
    }

    /// Calls `handle` for each record, in a thread of its own, until the returned value is
    /// dropped. An error is given once and ends it.
    ///
    /// # Errors
    /// [`ClientError::System`] when there is no thread.
    pub fn spawn(
        mut self,
        mut handle: impl FnMut(Result<TimingRecord, ClientError>) + Send + 'static,
    ) -> Result<ListenerThread, ClientError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("timing-listener".to_owned())
            .spawn(move || {
                while !stopping.load(Ordering::SeqCst) {
                    match self.next(Some(LOOK_AGAIN)) {
                        Ok(Some(record)) => handle(Ok(record)),
                        Ok(None) => {}
                        Err(error) => {
                            handle(Err(error));
                            return;
                        }
                    }
                }
            })
            .map_err(ClientError::system("starting a thread"))?;
        Ok(ListenerThread {
            stop,
            thread: Some(thread),
        })
    }
}

/// A listener that calls back; it ends when dropped.
#[derive(Debug)]
pub struct ListenerThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ListenerThread {
    /// Ends it and waits until the last call is over.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic of the callback was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for ListenerThread {
    fn drop(&mut self) {
        self.end();
    }
}

/// The next record of a subscription, as [`Subscription::next`]; [`ClientError::Gone`] once the daemon
/// is gone and all that it had written is read.
fn next_or_gone(
    subscription: &mut Subscription,
    wait: Option<Duration>,
    is_gone: impl FnOnce() -> bool,
) -> Result<Option<TimingRecord>, ClientError> {
    let found = subscription.next(wait);
    if !matches!(found, Ok(None)) || !is_gone() {
        return found;
    }
    // It may have written more between the look at the ring and its end.
    subscription.try_next()?.map(Some).ok_or(ClientError::Gone)
}

/// Whether a record carries data of an action.
pub fn is_message(record: &TimingRecord) -> bool {
    record.kind == RecordKind::Message
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use livetime_shm::{OverflowRule, RecordRingConfig, RecordWriter, wake_pair};
    use livetime_wire::TaiNs;

    use super::*;

    /// Whoever has the place of a daemon that is gone and does not answer: the wait is as long as
    /// it was asked to be.
    #[test]
    fn a_wait_for_the_next_daemon_ends_at_its_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mute.sock");
        let mute = UnixListener::bind(&path).unwrap();
        let mut listener = Listener {
            address: Address::Socket(path),
            filters: vec![Filter::ALL],
            options: SubscriptionOptions::default(),
            session: None,
            reconnection: None,
            epoch: 0,
            restarts: 0,
            process: std::process::id(),
        };
        let short = Some(Duration::from_millis(5));
        assert_eq!(listener.next(short).unwrap(), None);
        let taken = mute.accept().unwrap();
        for _ in 0..3 {
            assert_eq!(listener.next(short).unwrap(), None);
        }
        assert_eq!(listener.restarts(), 0);
        // One connection at a time waits for an answer, however often it is asked for.
        mute.set_nonblocking(true).unwrap();
        assert!(mute.accept().is_err());
        drop((taken, mute));
    }

    /// Given a daemon that writes its last records, and loses some, while its listener finds nothing more
    /// and looks whether it is still there, then the listener has or counts all of them.
    #[test]
    fn the_last_records_of_a_daemon_that_dies_are_given() {
        for wait in [Wait::Sleep, Wait::Spin] {
            let config = RecordRingConfig {
                slots: 2,
                rule: OverflowRule::DropNewest,
                epoch: 3,
            };
            let mut writer = RecordWriter::create(&config).unwrap();
            let (_waker, source) = wake_pair().unwrap();
            let ring = writer.fd().try_clone_to_owned().unwrap();
            let mut subscription = Subscription::open(ring, source, 0, wait).unwrap();
            let message = TimingRecord {
                kind: RecordKind::Message,
                ..TimingRecord::restart(TaiNs(0), 3)
            };
            let mut offer = || writer.offer(&message.to_words());
            let dies = || {
                for _ in 0..3 {
                    offer();
                }
                true
            };
            let no_time = Some(Duration::ZERO);
            let first = next_or_gone(&mut subscription, no_time, dies).unwrap();
            assert_eq!(first.unwrap().kind, RecordKind::Message);
            for kind in [RecordKind::Message, RecordKind::Gap] {
                let next = next_or_gone(&mut subscription, no_time, || true).unwrap();
                assert_eq!(next.unwrap().kind, kind);
            }
            let gone = next_or_gone(&mut subscription, no_time, || true);
            assert!(matches!(gone, Err(ClientError::Gone)), "{gone:?}");
            assert_eq!((subscription.received(), subscription.lost()), (2, 1));
        }
    }

    #[test]
    fn a_wait_beyond_all_time_is_one_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let mut listener = Listener {
            address: Address::Socket(folder.path().join("none.sock")),
            filters: vec![Filter::ALL],
            options: SubscriptionOptions::default(),
            session: None,
            reconnection: None,
            epoch: 0,
            restarts: 0,
            // So that it does not wait.
            process: std::process::id() + 1,
        };
        let refused = listener.next(Some(Duration::MAX)).unwrap_err();
        assert!(
            matches!(refused, ClientError::OtherProcess { .. }),
            "{refused:?}"
        );
    }
}
