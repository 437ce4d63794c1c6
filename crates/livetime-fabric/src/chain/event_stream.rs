//! A stream that carries whole events from a builder unit to a filter unit, with sockets at its ends.
//!
//! ```text
//! builder unit ──► send buffer ──── line ────► receive buffer ──► filter unit
//!                  └───────── `buffer_bytes` in all ────────┘     reads when it has nothing to filter
//! ```
//! While a filter unit is busy with one event, as much of the next one comes as the buffers hold;
//! the rest comes when it reads. So a buffer smaller than an event makes a filter unit wait for the
//! line. A window smaller than what is on its way within a round trip slows the line down. Nothing is
//! lost on a stream; retransmission and slow start are not part of it.

use crate::time::{DurationPs, SimPs};

/// A stream to a filter unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventStream {
    /// Rate of the line in bytes per second, more than 0.
    pub bytes_per_s: u64,
    /// Bytes of an event on the stream; those of the simulated event are not looked at.
    pub event_bytes: u64,
    /// Bytes that the buffers of both sockets hold, more than 0.
    pub buffer_bytes: u64,
    /// Time there and back: no more than the buffers hold is sent within it.
    pub round_trip: DurationPs,
}

impl EventStream {
    /// Bytes per second that line and window allow.
    pub fn rate(&self) -> u64 {
        let window = u128::from(self.buffer_bytes) * 1_000_000_000_000;
        let of_window = window / u128::from(self.round_trip.0.max(1));
        let of_window = u64::try_from(of_window).unwrap_or(u64::MAX);
        self.bytes_per_s.min(of_window).max(1)
    }

    /// How long an event takes that nothing of has come.
    pub fn event_time(&self) -> DurationPs {
        self.time_of(self.event_bytes)
    }

    /// How long the part of an event takes that has come while nobody read: what the buffers hold.
    fn ahead(&self) -> DurationPs {
        let bytes = self.buffer_bytes.min(self.event_bytes);
        self.time_of(bytes)
    }

    fn time_of(&self, bytes: u64) -> DurationPs {
        DurationPs::for_bits(bytes.saturating_mul(8), self.rate().saturating_mul(8))
    }
}

/// One stream at work.
#[derive(Debug, Clone)]
pub(crate) struct StreamState {
    stream: EventStream,
    /// When the event taken last had come whole.
    free_at: SimPs,
}

impl StreamState {
    pub(crate) fn new(stream: EventStream) -> Self {
        Self {
            stream,
            free_at: SimPs(0),
        }
    }

    /// The filter unit reads the event that was sent at `sent` from `now` on; returns how long it
    /// takes until it has all of it.
    pub(crate) fn read(&mut self, sent: SimPs, now: SimPs) -> DurationPs {
        let begun = sent.max(self.free_at);
        let whole = self.stream.event_time();
        let come = DurationPs(now.0.saturating_sub(begun.0)).min(self.stream.ahead());
        let rest = DurationPs(whole.0.saturating_sub(come.0));
        self.free_at = match rest {
            DurationPs::ZERO => begun + whole,
            rest => now + rest,
        };
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: EventStream = EventStream {
        bytes_per_s: 1_000_000,
        event_bytes: 1_000,
        buffer_bytes: 400,
        round_trip: DurationPs::ZERO,
    };

    fn ms(count: u64) -> SimPs {
        SimPs(DurationPs::from_ms(count).0)
    }

    #[test]
    fn what_the_buffers_hold_comes_while_nobody_reads() {
        let mut state = StreamState::new(STREAM);
        assert_eq!(state.read(ms(0), ms(0)), DurationPs::from_ms(1));
        // Sent at once, read 5 ms later: 400 bytes are here.
        assert_eq!(state.read(ms(1), ms(6)), DurationPs::from_us(600));
        // Read when 200 bytes have come.
        let later = ms(20) + DurationPs::from_us(200);
        assert_eq!(state.read(ms(20), later), DurationPs::from_us(800));
    }

    #[test]
    fn buffers_of_an_event_cost_no_time_and_events_follow_each_other() {
        let mut state = StreamState::new(EventStream {
            buffer_bytes: 1_000,
            ..STREAM
        });
        assert_eq!(state.read(ms(0), ms(3)), DurationPs::ZERO);
        // It began when the one before was through, at 1 ms.
        let soon = ms(1) + DurationPs::from_us(500);
        assert_eq!(state.read(ms(0), soon), DurationPs::from_us(500));
    }

    #[test]
    fn a_window_within_a_round_trip_limits_the_line() {
        let slow = EventStream {
            round_trip: DurationPs::from_ms(2),
            ..STREAM
        };
        assert_eq!((STREAM.rate(), slow.rate()), (1_000_000, 200_000));
        assert_eq!(slow.event_time(), DurationPs::from_ms(5));
    }
}
