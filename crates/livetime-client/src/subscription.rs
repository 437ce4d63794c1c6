//! Reading the records of one subscription from shared memory.
//!
//! The daemon writes and never waits; what this reader misses comes as a record of kind
//! [`RecordKind::Gap`](livetime_wire::RecordKind), so that received and lost are what was sent.
//! Reading costs no system call while there are records; sleeping costs one. See
//! [`livetime_shm::record_ring`] for the ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use livetime_shm::{Found, OverflowRule, RecordReader, RingClosed, WakeSource, WakeUp};
use livetime_wire::{PriorityClass, RecordKind, TaiNs, TimingRecord};

use crate::error::ClientError;

/// How a client waits for records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Sleeps until woken.
    #[default]
    Sleep,
    /// Looks without pause: a core of its own, and the lowest latency.
    Spin,
}

/// What to ask of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// Slots of the ring: a power of two from 2 to 65536. Default 4096.
    pub slots: u32,
    /// What happens when they are full. Default: the oldest record is dropped.
    pub rule: OverflowRule,
    /// How urgent it is. Default generic.
    pub class: PriorityClass,
    /// Class high: from the execution of an action to its record; more is flagged and counted.
    /// Default 1 ms.
    pub bound_ns: u64,
    /// How to wait. Default: sleep.
    pub wait: Wait,
}

impl Default for SubscriptionOptions {
    fn default() -> Self {
        Self {
            slots: 4096,
            rule: OverflowRule::DropOldest,
            class: PriorityClass::Generic,
            bound_ns: 1_000_000,
            wait: Wait::Sleep,
        }
    }
}

/// The records of one subscription.
#[derive(Debug)]
pub struct Subscription {
    reader: RecordReader,
    wake: WakeSource,
    wait: Wait,
    number: u32,
    epoch: u32,
    received: u64,
    /// Told as lost by the daemon itself, in records of the ring, and records that cannot be read.
    told_lost: u64,
}

/// Looks at the next slot between two polls of the ring and looks at the clock while spinning.
const SPINS_PER_LOOK: u32 = 256;

impl Subscription {
    /// The subscription behind passed descriptors.
    ///
    /// # Errors
    /// [`ClientError::Ring`] when the memory is no ring.
    pub fn open(
        ring: OwnedFd,
        wake: WakeSource,
        number: u32,
        wait: Wait,
    ) -> Result<Self, ClientError> {
        let reader = RecordReader::open(ring)?;
        Ok(Self {
            epoch: reader.epoch() as u32,
            reader,
            wake,
            wait,
            number,
            received: 0,
            told_lost: 0,
        })
    }

    /// Its number, as the daemon counts.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Which start of the daemon made it.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Records received, gaps not counted.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Records reported lost.
    pub fn lost(&self) -> u64 {
        self.reader.lost().saturating_add(self.told_lost)
    }

    /// Records offered and not yet received or reported lost.
    pub fn behind(&self) -> u64 {
        self.reader.behind()
    }

    /// Whether there is a record now; losses and the end do not show here.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.reader.is_ready()
    }

    /// The next record, if there is one now; gaps are records of their own kind.
    ///
    /// # Errors
    /// [`ClientError::CutOff`] or [`ClientError::Gone`] when nothing more will come.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<TimingRecord>, ClientError> {
        match self.reader.poll() {
            Found::Record(words) => {
                // No daemon of this version writes what cannot be read; whoever counts is told.
                let record = TimingRecord::new_checked(&words).unwrap_or_else(|_| {
                    let number = (words[0] >> 1).wrapping_sub(1);
                    TimingRecord::gap(number, number, 1, now(), self.epoch)
                });
                self.count(&record);
                Ok(Some(record))
            }
            Found::Lost { first, last } => {
                let lost = last - first + 1;
                Ok(Some(TimingRecord::gap(
                    first,
                    last,
                    lost,
                    now(),
                    self.epoch,
                )))
            }
            Found::Nothing => Ok(None),
            Found::Closed(RingClosed::Overflow) => Err(ClientError::CutOff),
            Found::Closed(RingClosed::Finished) => Err(ClientError::Gone),
        }
    }

    #[inline]
    fn count(&mut self, record: &TimingRecord) {
        match record.kind {
            RecordKind::Gap => self.told_lost = self.told_lost.saturating_add(record.id),
            _ => self.received += 1,
        }
    }

    /// The next record, waiting at most `timeout` for it, for ever without one, which is cheaper
    /// when sleeping: no timer is set and taken back.
    ///
    /// A daemon that dies closes nothing, and only who sleeps is told: when spinning use a
    /// [`Listener`](crate::Listener) to notice.
    ///
    /// # Errors
    /// As [`Subscription::try_next`], or [`ClientError::System`].
    #[inline]
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<TimingRecord>, ClientError> {
        if self.reader.is_ready()
            && let Some(record) = self.try_next()?
        {
            return Ok(Some(record));
        }
        // A wait beyond all time is one for ever.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match self.wait {
            Wait::Spin => self.spin_for_next(deadline),
            Wait::Sleep => self.sleep_for_next(deadline),
        }
    }

    #[inline]
    fn spin_for_next(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<TimingRecord>, ClientError> {
        loop {
            // Its own slot only: the daemon is not disturbed until there is a record. Without a
            // pause between two looks, which would take longer than a look.
            for _ in 0..SPINS_PER_LOOK {
                if self.reader.is_ready() {
                    break;
                }
            }
            if let Some(record) = self.try_next()? {
                return Ok(Some(record));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
        }
    }

    fn sleep_for_next(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<TimingRecord>, ClientError> {
        let mut wake_up = WakeUp::Nothing;
        loop {
            let announced = !self.reader.is_ready();
            if announced {
                // Before the look that counts: a record that comes after it wakes us.
                self.reader.prepare_sleep();
            }
            let found = self.try_next();
            if found.as_ref().is_ok_and(Option::is_none) && wake_up == WakeUp::Abandoned {
                return Err(ClientError::Gone);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !matches!(found, Ok(None)) || left.is_some_and(|left| left.is_zero()) {
                if announced {
                    self.reader.stay_awake();
                }
                return found;
            }
            if !announced {
                // Nobody wakes whoever has not said that it sleeps: it is said, and looked again.
                continue;
            }
            let slept = self.wake.wait(left);
            wake_up = slept.map_err(ClientError::system("sleeping"))?;
        }
    }

    /// For event loops: announces a sleep on [`Subscription::wake_fd`]. If it returns a record,
    /// handle it and ask again; if not, wait until the descriptor is readable, call
    /// [`Subscription::woken`], and read on.
    ///
    /// # Errors
    /// As [`Subscription::try_next`].
    pub fn prepare_wait(&mut self) -> Result<Option<TimingRecord>, ClientError> {
        self.reader.prepare_sleep();
        let found = self.try_next()?;
        if found.is_some() {
            self.reader.stay_awake();
        }
        Ok(found)
    }

    /// The descriptor that becomes readable when a prepared wait is over, and stays so when the
    /// daemon is gone.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Makes the descriptor unreadable again.
    ///
    /// # Errors
    /// [`ClientError::Gone`] when that cannot be, as the daemon is gone and everything it sent was
    /// read, or [`ClientError::System`].
    pub fn woken(&self) -> Result<(), ClientError> {
        let wake_up = self.wake.wait(Some(Duration::ZERO));
        let wake_up = wake_up.map_err(ClientError::system("reading a wake-up"))?;
        // Records that were lost at the end are to be told as well, and show in the counts alone.
        if wake_up == WakeUp::Abandoned && !self.reader.is_ready() && self.reader.behind() == 0 {
            return Err(ClientError::Gone);
        }
        Ok(())
    }
}

/// The time for gaps and restarts, TAI as the daemon's machine clock has it: where nobody has told
/// the kernel its offset, with the built-in leap seconds.
pub(crate) fn now() -> TaiNs {
    use rustix::time::{ClockId, clock_gettime};
    let utc = clock_gettime(ClockId::Realtime);
    let utc_ns = utc.tv_sec.unsigned_abs() * 1_000_000_000 + utc.tv_nsec.unsigned_abs();
    TaiNs(utc_ns + livetime_shm::tai_offset::tai_minus_utc_ns())
}

#[cfg(test)]
mod tests {
    use livetime_shm::{RecordRingConfig, RecordWriter, Waker, wake_pair};

    use super::*;

    fn pair(slots: u32, rule: OverflowRule) -> (RecordWriter, Waker, Subscription) {
        let epoch = 3;
        let writer = RecordWriter::create(&RecordRingConfig { slots, rule, epoch }).unwrap();
        let (waker, source) = wake_pair().unwrap();
        let ring = writer.fd().try_clone_to_owned().unwrap();
        let subscription = Subscription::open(ring, source, 0, Wait::Sleep).unwrap();
        (writer, waker, subscription)
    }

    fn message() -> [u64; 8] {
        let message = TimingRecord {
            kind: RecordKind::Message,
            ..TimingRecord::gap(0, 0, 0, TaiNs(0), 3)
        };
        message.to_words()
    }

    /// One without a version, of which nothing is known.
    const UNREADABLE: [u64; 8] = [0; 8];

    #[test]
    fn a_record_that_cannot_be_read_is_a_gap_and_nobody_sleeps_over_the_next() {
        for rule in [OverflowRule::DropOldest, OverflowRule::DropNewest] {
            let (mut writer, waker, mut subscription) = pair(8, rule);
            writer.offer(&message());
            writer.offer(&UNREADABLE);
            let mut next = || subscription.next(Some(Duration::ZERO)).unwrap();
            assert_eq!(next().unwrap().kind, RecordKind::Message);
            let gap = next().unwrap();
            assert_eq!((gap.kind, gap.id, gap.param), (RecordKind::Gap, 1, 1));
            assert_eq!(gap.epoch, 3);
            assert_eq!(next(), None);
            let sleeper = std::thread::spawn(move || {
                let found = subscription.next(None).unwrap();
                (found.unwrap().sequence, subscription)
            });
            if writer.offer(&message()).wake {
                waker.wake();
            }
            let (sequence, subscription) = sleeper.join().unwrap();
            assert_eq!(sequence, 2);
            let counts = (subscription.received(), subscription.lost());
            assert_eq!(counts, (2, 1), "all that was offered");
        }
    }

    #[test]
    fn what_a_daemon_lost_before_it_died_is_told_before_it_is_said_to_be_gone() {
        let (mut writer, waker, mut subscription) = pair(2, OverflowRule::DropNewest);
        for _ in 0..5 {
            writer.offer(&message());
        }
        // As one that is killed: it closes nothing.
        std::mem::forget(writer);
        drop(waker);
        for _ in 0..2 {
            let found = subscription.try_next().unwrap();
            assert_eq!(found.unwrap().kind, RecordKind::Message);
        }
        assert!(subscription.woken().is_ok(), "there is a gap to be told");
        let gap = subscription.try_next().unwrap().unwrap();
        assert_eq!((gap.kind, gap.id), (RecordKind::Gap, 3));
        assert!(matches!(subscription.woken(), Err(ClientError::Gone)));
    }
}
