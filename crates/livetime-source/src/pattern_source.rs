//! When pattern blocks are sent: at a rate, and with the missed ones made up for after an XOFF.
//!
//! While its link is off the SLIDAS card counts the triggers that it misses and sends their blocks
//! afterwards, so that the mean rate is kept; so does this. It counts what is owed instead of
//! queueing it, and makes no blocks itself: see [`crate::pattern`].

use livetime_wire::RunNs;

use crate::arrival::{ArrivalConfig, ArrivalKind, ArrivalProcess};

/// Triggers that one poll takes in; a longer backlog is taken in by the next polls.
const TRIGGERS_PER_POLL: usize = 65_536;

/// Whether the link takes words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkFlow {
    /// XON.
    On,
    /// XOFF, or the link is down.
    Off,
}

/// What a pattern source wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternPoll {
    /// Send the next block now; counted as sent.
    Send,
    /// Nothing before this time, unless the flow changes.
    Wait {
        /// When the next trigger comes.
        until: RunNs,
    },
    /// The link is off and blocks are owed.
    Blocked,
    /// All blocks are sent.
    Finished,
}

/// What a pattern source has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PatternSourceCounts {
    /// Triggers that have come: `sent` plus what is still owed.
    pub triggers: u64,
    /// Triggers that came while the link was off.
    pub missed: u64,
    /// Blocks sent.
    pub sent: u64,
}

/// Says when blocks are sent.
#[derive(Debug, Clone)]
pub struct PatternSource {
    arrival: ArrivalProcess,
    unpaced: bool,
    next_at: RunNs,
    blocks_max: u64,
    counts: PatternSourceCounts,
}

impl PatternSource {
    /// A source of `blocks_max` blocks (`u64::MAX` for no end); `config` has been validated.
    pub fn new(config: &ArrivalConfig, seed: u64, blocks_max: u64) -> Self {
        let mut arrival = ArrivalProcess::new(config, seed);
        Self {
            next_at: arrival.next_offer(),
            arrival,
            unpaced: config.kind == ArrivalKind::Unpaced,
            blocks_max,
            counts: PatternSourceCounts::default(),
        }
    }

    /// What to do at `now`.
    pub fn poll(&mut self, now: RunNs, flow: LinkFlow) -> PatternPoll {
        self.take_in(now, flow);
        if self.counts.sent == self.blocks_max {
            PatternPoll::Finished
        } else if self.counts.sent == self.counts.triggers {
            // Unpaced, with the link off: the next trigger is always due.
            if self.unpaced {
                return PatternPoll::Blocked;
            }
            PatternPoll::Wait {
                until: self.next_at,
            }
        } else if flow == LinkFlow::Off {
            PatternPoll::Blocked
        } else {
            self.counts.sent += 1;
            PatternPoll::Send
        }
    }

    /// Takes in the triggers up to `now`. An unpaced source has one whenever the link takes it, so
    /// it misses none.
    fn take_in(&mut self, now: RunNs, flow: LinkFlow) {
        if self.unpaced {
            let due = flow == LinkFlow::On && self.counts.triggers < self.blocks_max;
            self.counts.triggers += u64::from(due);
            return;
        }
        for _ in 0..TRIGGERS_PER_POLL {
            if self.next_at > now || self.counts.triggers == self.blocks_max {
                return;
            }
            self.counts.triggers += 1;
            self.counts.missed += u64::from(flow == LinkFlow::Off);
            self.next_at = self.arrival.next_offer();
        }
    }

    /// What has been done so far.
    pub fn counts(&self) -> PatternSourceCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::RateHz;

    use super::*;

    fn source(kind: ArrivalKind, blocks: u64) -> PatternSource {
        let config = ArrivalConfig {
            kind,
            rate: RateHz(100_000.0),
        };
        PatternSource::new(&config, 1, blocks)
    }

    /// Polls until there is nothing more to send at `now`; returns the blocks sent.
    fn drain(source: &mut PatternSource, now: u64, flow: LinkFlow) -> (u64, PatternPoll) {
        let mut sent = 0;
        loop {
            match source.poll(RunNs(now), flow) {
                PatternPoll::Send => sent += 1,
                other => return (sent, other),
            }
        }
    }

    #[test]
    fn missed_triggers_are_counted_and_sent_after_the_xoff() {
        let mut source = source(ArrivalKind::FixedGap, 50);
        let wait = |until| PatternPoll::Wait {
            until: RunNs(until),
        };
        assert_eq!(drain(&mut source, 9_999, LinkFlow::On), (0, wait(10_000)));
        assert_eq!(
            drain(&mut source, 100_000, LinkFlow::On),
            (10, wait(110_000))
        );
        assert_eq!(
            drain(&mut source, 305_000, LinkFlow::Off),
            (0, PatternPoll::Blocked)
        );
        assert_eq!(source.counts().missed, 20);
        assert_eq!(
            drain(&mut source, 306_000, LinkFlow::On),
            (20, wait(310_000))
        );
        assert_eq!(
            drain(&mut source, 1_000_000, LinkFlow::On),
            (20, PatternPoll::Finished)
        );
        let counts = source.counts();
        assert_eq!((counts.triggers, counts.sent, counts.missed), (50, 50, 20));
    }

    #[test]
    fn unpaced_sources_send_whenever_the_link_is_on_and_miss_nothing() {
        let mut source = source(ArrivalKind::Unpaced, 1000);
        assert_eq!(source.poll(RunNs(0), LinkFlow::Off), PatternPoll::Blocked);
        assert_eq!(
            drain(&mut source, 0, LinkFlow::On),
            (1000, PatternPoll::Finished)
        );
        assert_eq!(source.counts().missed, 0);
    }

    #[test]
    fn a_long_backlog_is_taken_in_over_several_polls_and_not_lost() {
        let mut source = source(ArrivalKind::FixedGap, u64::MAX);
        let now = 2_000_000_000;
        assert_eq!(source.poll(RunNs(now), LinkFlow::Off), PatternPoll::Blocked);
        let (sent, _) = drain(&mut source, now, LinkFlow::On);
        assert_eq!(sent, 200_000);
    }
}
