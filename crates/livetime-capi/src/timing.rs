//! A listener of the timing daemon behind a handle.
//!
//! What the functions of [`crate::timing_call`] do, in safe code: it goes on by itself when the
//! daemon is restarted, as [`livetime_client::Listener`] does.

use std::time::Duration;

use livetime_client::{
    Address, ClientError, EventId, Filter, Listener, RecordKind, SubscriptionOptions, TaiNs,
    TimingRecord as Record, Wait,
};

use crate::status::{Failure, Status};

/// A listener of the timing daemon. Used by one thread at a time, of the process that opened it.
pub struct TimingListener {
    listener: Listener,
}

/// What a listener is to hear; all zero is every message, waiting asleep.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TimingFilter {
    /// Event ID.
    pub id: u64,
    /// Bits of the ID that are compared.
    pub mask: u64,
    /// Deadline of the record minus time of the message, in nanoseconds.
    pub offset_ns: i64,
    /// Slots of the ring, a power of two from 2 to 65536; 0 is 4096.
    pub slots: u32,
    /// Whether to poll without pause instead of sleeping.
    pub spin: bool,
}

/// What a record of the timing daemon says.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimingRecord {
    /// 1 a message; 2 a gap (`id` records lost, numbers `param` to `deadline_ns`); 3 the daemon was
    /// restarted and is in `epoch` now, or, where `id` is 1, has ended the subscription, and it was
    /// made anew.
    pub kind: u32,
    /// Flags: 1 late, 2 early, 4 conflict, 8 delayed, 16 delivered late, 32 deferred.
    pub flags: u32,
    /// Sequence number of the record.
    pub sequence: u64,
    /// Event ID.
    pub id: u64,
    /// Parameter.
    pub param: u64,
    /// When the action was due, TAI nanoseconds.
    pub deadline_ns: u64,
    /// When it was executed, or the gap or the restart noticed, TAI nanoseconds.
    pub executed_ns: u64,
    /// From the execution to the entry into the ring, in nanoseconds.
    pub enqueue_delay_ns: u32,
    /// The message's fraction field.
    pub tef: u32,
    /// Which start of the daemon it is of.
    pub epoch: u32,
    /// The condition, as the daemon numbers them.
    pub condition: u32,
}

impl From<&Record> for TimingRecord {
    fn from(record: &Record) -> Self {
        Self {
            kind: match record.kind {
                RecordKind::Message => 1,
                RecordKind::Gap => 2,
                RecordKind::Restart => 3,
            },
            flags: record.flags.0.into(),
            sequence: record.sequence,
            id: record.id,
            param: record.param,
            deadline_ns: record.deadline.0,
            executed_ns: record.executed.0,
            enqueue_delay_ns: record.enqueue_delay_ns,
            tef: record.tef,
            epoch: record.epoch,
            condition: record.condition,
        }
    }
}

fn failure(error: &ClientError) -> Failure {
    let status = match error {
        ClientError::Denied(_) | ClientError::Refused(_) | ClientError::TurnedAway { .. } => {
            Status::ErrorRefused
        }
        ClientError::OtherProcess { .. } | ClientError::Forked { .. } => Status::ErrorArgument,
        ClientError::Ring(_) => Status::ErrorFormat,
        _ => Status::ErrorIo,
    };
    Failure::new(status, error.to_string())
}

impl TimingListener {
    /// Connects to `address` (none is the usual one) and listens.
    pub(crate) fn open(address: Option<&str>, filter: &TimingFilter) -> Result<Self, Failure> {
        let address = match address {
            None => Address::usual(),
            Some(text) => {
                text.parse()
                    .map_err(|error: livetime_client::address::AddressError| {
                        Failure::new(Status::ErrorArgument, error.to_string())
                    })?
            }
        };
        let wanted = Filter {
            id: filter.id,
            mask: filter.mask,
            offset_ns: filter.offset_ns,
            accept_all: true,
        };
        let mut options = SubscriptionOptions::default();
        if filter.slots != 0 {
            options.slots = filter.slots;
        }
        if filter.spin {
            options.wait = Wait::Spin;
        }
        let listener =
            Listener::start(&address, &[wanted], &options).map_err(|error| failure(&error))?;
        Ok(Self { listener })
    }

    /// The next record, at most so long; `None` when there was none.
    pub(crate) fn next(&mut self, timeout_ms: i64) -> Result<Option<TimingRecord>, Failure> {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let record = self
            .listener
            .next(timeout)
            .map_err(|error| failure(&error))?;
        Ok(record.as_ref().map(TimingRecord::from))
    }

    /// Injects a message, `lead_ns` from now.
    pub(crate) fn inject(&mut self, id: u64, param: u64, lead_ns: u64) -> Result<(), Failure> {
        let client = self.listener.client();
        let client = client.ok_or_else(|| failure(&ClientError::Gone))?;
        let now = client.raw_time().map_err(|error| failure(&error))?;
        let time = deadline(now, lead_ns)?;
        let injected = client.inject(EventId(id), param, time);
        injected.map_err(|error| failure(&error))
    }
}

/// The time `lead_ns` from now, if there is one.
fn deadline(now: TaiNs, lead_ns: u64) -> Result<TaiNs, Failure> {
    now.0.checked_add(lead_ns).map(TaiNs).ok_or_else(|| {
        let most = u64::MAX - now.0;
        let text = format!(
            "a lead of {lead_ns} ns ends after the last time there is, {} ns TAI; now at most \
             {most} ns are left",
            u64::MAX
        );
        Failure::new(Status::ErrorArgument, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_beyond_the_last_time_is_refused() {
        let now = TaiNs(1_800_000_000_000_000_000);
        let last = u64::MAX - now.0;
        assert_eq!(deadline(now, last).ok(), Some(TaiNs(u64::MAX)));
        for lead in [last + 1, u64::MAX] {
            assert!(deadline(now, lead).is_err(), "{lead}");
        }
    }
}
