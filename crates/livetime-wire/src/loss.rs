//! The one enum of loss causes, and counters by cause.
//!
//! Nothing in Livetime disappears without being counted here. Each cause belongs to one area, the
//! hop whose conservation equation it closes (see [`crate::count`]).

/// The hop of the chain that lost something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossArea {
    /// Triggers without a decision.
    Trigger,
    /// Fragments sent and not received.
    Link,
    /// Fragments received and neither dropped by decision nor built.
    Readout,
    /// Level-2 accepts that became no event.
    Builder,
    /// Built events without a filter result.
    Filter,
    /// Accepted events that are not in the file.
    Store,
}

impl LossArea {
    /// Every area, in the order of the chain.
    pub const ALL: [Self; 6] = [
        Self::Trigger,
        Self::Link,
        Self::Readout,
        Self::Builder,
        Self::Filter,
        Self::Store,
    ];

    /// The key in JSON documents.
    #[inline]
    pub fn key(self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Link => "link",
            Self::Readout => "readout",
            Self::Builder => "builder",
            Self::Filter => "filter",
            Self::Store => "store",
        }
    }
}

macro_rules! loss_causes {
    ($($(#[$doc:meta])* $name:ident: $area:ident, $key:literal, $help:literal;)*) => {
        /// Why something was lost.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum LossCause { $($(#[$doc])* $name,)* }

        impl LossCause {
            /// Every cause, in the order of the chain; those added later follow.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The hop that it is counted at.
            pub fn area(self) -> LossArea {
                match self { $(Self::$name => LossArea::$area,)* }
            }

            /// The key in JSON documents.
            pub fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// What an operator should know about it.
            pub fn help(self) -> &'static str {
                match self { $(Self::$name => $help,)* }
            }
        }
    };
}

loss_causes! {
    /// No reply for a trigger within the decision timeout.
    DecisionTimeout: Trigger, "decision_timeout",
        "no Level-2 reply came within the decision timeout; the trigger was dropped";
    /// Triggers still undecided when the run was ended by force.
    DecisionAborted: Trigger, "decision_aborted",
        "the run was ended by force before the Level-2 reply came";
    /// The link was down while the fragment was to be sent.
    LinkDown: Link, "link_down", "the link was down while the fragment was sent";
    /// The end-of-fragment word never came.
    LinkTruncated: Link, "link_truncated", "the link lost the end of the fragment";
    /// In flight when the run was ended by force, or its readout unit went away.
    LinkAborted: Link, "link_aborted", "in flight when the run was ended by force or its readout unit went away";
    /// No usable header: neither trigger number nor source could be read.
    FragmentMalformed: Readout, "fragment_malformed",
        "the fragment's header could not be read; its page went back to the pool";
    /// Longer than the pages that one fragment may take.
    FragmentTooLong: Readout, "fragment_too_long",
        "the fragment was longer than one fragment may be";
    /// A second fragment of one trigger and source.
    FragmentDuplicate: Readout, "fragment_duplicate",
        "a second fragment came for the same trigger and source";
    /// A source that the readout unit does not serve.
    FragmentStranger: Readout, "fragment_stranger",
        "the fragment's source is not one of this readout unit's";
    /// Came after its event was closed as incomplete.
    FragmentLate: Readout, "fragment_late", "the fragment came after its event was closed";
    /// In the readout buffers when the run was ended by force.
    FragmentAborted: Readout, "fragment_aborted", "still buffered when the run was ended by force";
    /// Accepted, but not assigned or not finished when the run was ended by force.
    EventAborted: Builder, "event_aborted", "not yet built when the run was ended by force";
    /// A builder unit went away with it.
    BuilderLost: Builder, "builder_lost", "the builder unit went away with the event";
    /// In a filter unit when the run was ended by force.
    FilterAborted: Filter, "filter_aborted", "not yet filtered when the run was ended by force";
    /// A filter unit went away with it.
    FilterLost: Filter, "filter_lost", "the filter unit went away with the event";
    /// The disk was full or the write failed.
    StoreWriteFailed: Store, "write_failed", "the run file could not be written (disk full?)";
    /// Not yet written when the run was ended by force.
    StoreAborted: Store, "store_aborted", "not yet written when the run was ended by force";
    /// The trigger node or the supervisor went away before the decision.
    DecisionLost: Trigger, "decision_lost",
        "the trigger node or the supervisor went away with the trigger";
    /// The front-end went away while it was sent.
    SourceLost: Link, "source_lost", "the front-end went away with the fragment";
    /// A readout unit went away with it.
    ReadoutLost: Readout, "readout_lost", "the readout unit went away with the fragment";
    /// The event manager went away before it was assigned or cleared.
    ManagerLost: Builder, "event_manager_lost", "the event manager went away with the event";
    /// The writer went away before its chunk was in the file.
    WriterLost: Store, "writer_lost", "the writer went away before the event was in the file";
    /// The network lost a datagram of it.
    DatagramLost: Link, "datagram_lost", "the network lost datagrams of the fragment";
    /// Its streams yield when the output budget binds.
    OutputYielded: Store, "output_yielded", "not written: its streams yield to the output budget";
}

/// Number of loss causes.
const CAUSES: usize = LossCause::ALL.len();

/// Counters by loss cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LossCounts([u64; CAUSES]);

impl LossCounts {
    /// No losses.
    pub const fn new() -> Self {
        Self([0; CAUSES])
    }

    /// Counts `n` more under `cause`.
    #[inline]
    pub fn add(&mut self, cause: LossCause, n: u64) {
        self.0[cause as usize] += n;
    }

    /// The count under `cause`.
    #[inline]
    pub fn of(&self, cause: LossCause) -> u64 {
        self.0[cause as usize]
    }

    /// The sum over the causes of an area.
    #[inline]
    pub fn in_area(&self, area: LossArea) -> u64 {
        self.iter()
            .filter(|(cause, _)| cause.area() == area)
            .map(|(_, n)| n)
            .sum()
    }

    /// The sum over all causes.
    #[inline]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds all counts of another.
    ///
    /// Roles merge the counts of all their links after each duty cycle, so this must not cost
    /// anything: counts of things that happened do not reach 2^64, and unchecked additions are
    /// done several at a time.
    #[inline]
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.wrapping_add(theirs);
        }
    }

    /// The counts in the order of [`LossCause::ALL`].
    #[inline]
    pub fn values(&self) -> &[u64] {
        &self.0
    }

    /// Every cause with its count, zeros included.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (LossCause, u64)> + '_ {
        LossCause::ALL.iter().map(|cause| (*cause, self.of(*cause)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_add_up_by_area() {
        let mut counts = LossCounts::new();
        counts.add(LossCause::LinkDown, 3);
        counts.add(LossCause::LinkTruncated, 4);
        counts.add(LossCause::FragmentLate, 5);
        assert_eq!(counts.in_area(LossArea::Link), 7);
        assert_eq!(counts.in_area(LossArea::Readout), 5);
        assert_eq!(counts.total(), 12);
        let mut twice = counts;
        twice.merge(&counts);
        assert_eq!(twice.of(LossCause::LinkDown), 6);
    }

    #[test]
    fn keys_are_unique_within_their_area() {
        for (i, a) in LossCause::ALL.iter().enumerate() {
            for b in &LossCause::ALL[i + 1..] {
                assert!(a.key() != b.key() || a.area() != b.area(), "{a:?} {b:?}");
            }
        }
    }
}
