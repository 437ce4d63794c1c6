//! Requests and releases that wait for more of their kind, where each message costs its way through
//! a kernel.
//!
//! Readout units answer in order: as long as enough of what was asked for is still to come, an event
//! that is asked for or released a little later holds nobody up. So both wait until a quarter of the
//! credits is together, requests while at least as many events are to come, releases while an eighth
//! of the credits is; a unit with less in hand holds nothing back. Releases that wait go with the next
//! requests: to the same readout units, by the same way through the kernel. Should what the unit has in
//! hand not come, the wait ends after a share of the time to the next request for it.

use livetime_wire::{DurationNs, RunNs};

use super::BuilderUnit;

/// Longest wait, as a share of the time after which fragments are asked for again.
const RETRY_SHARE: u64 = 16;

/// Messages of one kind that wait.
#[derive(Debug)]
pub(super) struct Hold {
    /// So many events go at once; up to 1 for any.
    most: usize,
    /// Nothing waits while fewer are to come.
    coming_least: usize,
    longest: DurationNs,
    /// When the wait ends; [`RunNs::MAX`] while nothing waits.
    pub(super) due: RunNs,
    /// Whether it has ended and its message was not made yet.
    is_over: bool,
}

impl Hold {
    /// Nothing waits.
    pub(super) const NONE: Self = Self {
        most: 0,
        coming_least: 0,
        longest: DurationNs(0),
        due: RunNs::MAX,
        is_over: false,
    };

    /// Whether `count` events wait for more of their kind while `coming` others are to come; what does
    /// not wait is to be sent now.
    #[inline]
    pub(super) fn waits(&mut self, now: RunNs, count: usize, coming: usize) -> bool {
        let is_enough = count == 0 || count >= self.most || coming < self.coming_least;
        if is_enough || self.is_over || self.due <= now {
            (self.due, self.is_over) = (RunNs::MAX, false);
            return false;
        }
        self.due = self.due.min(now.after(self.longest));
        true
    }

    /// Ends the wait: what waits goes now.
    #[inline]
    pub(super) fn end(&mut self) {
        self.is_over |= self.due != RunNs::MAX;
    }

    /// Ends the wait whose time is over.
    pub(super) fn handle_timeout(&mut self, now: RunNs) {
        if self.due <= now {
            (self.due, self.is_over) = (RunNs::MAX, true);
        }
    }
}

impl BuilderUnit {
    /// From here on requests and releases wait for more of their kind while others are to come: for
    /// transports on which a message costs more than the wait, such as streams. They wait for no more
    /// than one message names, and for no longer than a sixteenth of [`crate::BuilderConfig::retry`].
    pub fn group_messages(&mut self) {
        let credits = self.credits as usize;
        let hold = |coming_least: usize| Hold {
            most: self.group_max.min(credits / 4),
            coming_least: self.group_max.min(coming_least),
            longest: DurationNs(self.retry.0 / RETRY_SHARE),
            ..Hold::NONE
        };
        (self.requests_held, self.releases_held) = (hold(credits / 4), hold(credits / 8));
    }

    /// Events that are asked for and still to come; none when they are given up.
    #[inline]
    fn events_coming(&self) -> usize {
        let open = self.assembly.open_events() as usize;
        match self.ending {
            true => 0,
            false => open.saturating_sub(self.waiting.len()),
        }
    }

    /// Whether the events that are to be asked for wait.
    #[inline]
    pub(super) fn holds_requests(&mut self, now: RunNs) -> bool {
        let (count, coming) = (self.waiting.len(), self.events_coming());
        self.requests_held.waits(now, count, coming)
    }

    /// Whether the events that are to be released wait.
    #[inline]
    pub(super) fn holds_releases(&mut self, now: RunNs) -> bool {
        let (count, coming) = (self.finished.len(), self.events_coming());
        self.releases_held.waits(now, count, coming)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_goes_when_enough_is_together_or_little_in_hand_or_its_time_is_over() {
        let mut hold = Hold {
            most: 4,
            coming_least: 3,
            longest: DurationNs(100),
            ..Hold::NONE
        };
        assert!(hold.waits(RunNs(10), 1, 4));
        assert!(hold.waits(RunNs(50), 3, 4));
        assert_eq!(hold.due, RunNs(110), "counted from the first");
        assert!(!hold.waits(RunNs(60), 4, 4));
        assert_eq!(hold.due, RunNs::MAX);
        assert!(hold.waits(RunNs(70), 1, 3));
        assert!(!hold.waits(RunNs(80), 1, 2));
        assert!(hold.waits(RunNs(90), 1, 4));
        hold.handle_timeout(RunNs(189));
        assert!(hold.waits(RunNs(189), 2, 4));
        hold.handle_timeout(RunNs(190));
        assert_eq!(hold.due, RunNs::MAX, "no timeout strikes twice");
        assert!(!hold.waits(RunNs(190), 2, 4));
        assert!(hold.waits(RunNs(190), 1, 4), "the next one waits anew");
        assert!(!hold.waits(RunNs(290), 1, 4));
        hold.end();
        assert!(
            hold.waits(RunNs(300), 1, 4),
            "nothing waited that could end"
        );
        hold.end();
        assert!(!hold.waits(RunNs(310), 1, 4));
        assert!(hold.waits(RunNs(320), 1, 4));
        let mut none = Hold::NONE;
        assert!(!none.waits(RunNs(0), 1, 4));
    }
}
