//! What must hold while a builder runs on a network.

use std::borrow::Cow;

use livetime_wire::DurationNs;
use livetime_wire::message::EventTicket;

use crate::network::SizeLaw;
use crate::network::size_law::listed;
use crate::network::traffic::mixed;
use crate::time::{DurationPs, SimPs};

/// Violations that are kept; one is enough to fail.
const VIOLATIONS_MAX: usize = 16;
/// Sizes drawn in advance, a power of two.
const SIZES: usize = 1 << 16;

/// Sizes of fragments, chosen by trigger and readout unit, so that whoever asks finds the same without
/// keeping it: of those that were drawn from their law once, at random; of a list, in its order, each
/// readout unit from another place of it.
#[derive(Debug)]
pub(super) struct Sizes<'l> {
    sizes: Cow<'l, [u32]>,
    is_list: bool,
    seed: u64,
    is_per_event: bool,
}

impl<'l> Sizes<'l> {
    pub(super) fn new(law: &'l SizeLaw, seed: u64, is_per_event: bool) -> Self {
        let (sizes, is_list) = match law {
            SizeLaw::Trace(sizes) => (Cow::Borrowed(sizes.as_slice()), true),
            _ => {
                let drawn = (0..SIZES as u64).map(|number| {
                    let random = mixed(seed ^ mixed(number));
                    law.size(0, number, random)
                });
                (drawn.collect(), false)
            }
        };
        Self {
            sizes,
            is_list,
            seed: mixed(seed),
            is_per_event,
        }
    }

    /// Bytes of a fragment.
    #[inline]
    pub(super) fn of(&self, trigger: u64, readout: u16) -> u32 {
        *self.place(trigger, readout)
    }

    /// Where they are.
    #[inline]
    pub(super) fn place(&self, trigger: u64, readout: u16) -> &u32 {
        let readout = if self.is_per_event { 0 } else { readout };
        if self.is_list {
            return listed(&self.sizes, readout.into(), trigger);
        }
        let number = mixed(self.seed ^ (trigger << 16 | u64::from(readout)));
        &self.sizes[(number >> 48) as usize % SIZES]
    }
}

/// A time in picoseconds as people read it.
const fn rounded(ps: u64) -> DurationNs {
    DurationNs(ps / 1_000)
}

/// The words of a fragment.
pub(super) const fn words(bytes: u32) -> u32 {
    bytes.div_ceil(4)
}

/// The checks.
#[derive(Debug, Default)]
pub(super) struct Check {
    /// A bit for each trigger: its event went through a filter.
    built: Vec<u64>,
    violations: Vec<String>,
    /// Whether a unit held more payload than it may, since an event was larger than was set aside.
    is_event_too_large: bool,
    /// When an event was built last, or opened where none was open.
    last_progress: SimPs,
}

impl Check {
    /// Something that should never happen.
    pub(super) fn report(&mut self, now: SimPs, what: impl FnOnce() -> String) {
        if self.violations.len() < VIOLATIONS_MAX {
            let now = rounded(now.0);
            self.violations.push(format!("{now}: {}", what()));
        }
    }

    /// An event is open and no other one is: the time before was that of the triggers.
    pub(super) const fn open_first(&mut self, now: SimPs) {
        self.last_progress = now;
    }

    /// An event went through a filter; false if it had before.
    pub(super) fn build(&mut self, now: SimPs, trigger: u64) {
        self.last_progress = now;
        let (word, bit) = ((trigger / 64) as usize, 1 << (trigger % 64));
        if self.built.len() <= word {
            self.built.resize(word + 1, 0);
        }
        if self.built[word] & bit != 0 {
            self.report(now, || format!("event {trigger} was built twice"));
        }
        self.built[word] |= bit;
    }

    /// Whether an event went through a filter.
    pub(super) fn is_built(&self, trigger: u64) -> bool {
        let word = self.built.get((trigger / 64) as usize);
        word.is_some_and(|word| word & (1 << (trigger % 64)) != 0)
    }

    /// An event as a filter gets it, with the bytes that its builder unit counted: of every source
    /// that is not missing what it sent. Returns its words, and whether it is complete.
    pub(super) fn ticket(
        &mut self,
        now: SimPs,
        ticket: &EventTicket,
        bytes: u32,
        readouts: u16,
        sizes: &Sizes<'_>,
    ) -> (u64, bool) {
        let trigger = ticket.trigger.0;
        let of = |readout| u64::from(words(sizes.of(trigger, readout)));
        let mut all: u64 = (0..readouts).map(of).sum();
        let mut missing = ticket.missing.iter().peekable();
        while let Some(source) = missing.next_if(|source| source.0 < u32::from(readouts)) {
            all -= of(source.0 as u16);
        }
        if let Some(source) = missing.next() {
            self.report(now, || {
                format!("event {trigger} misses {source}, which there is not")
            });
        }
        // Builder units count up to 4 GiB.
        let expected = u32::try_from(4 * all).unwrap_or(u32::MAX);
        if bytes != expected {
            self.report(now, || {
                format!("event {trigger} has {bytes} bytes, not {expected}")
            });
        }
        (all, ticket.missing.is_empty() || ticket.is_first_step())
    }

    /// A builder unit holds so many payload bytes, of so many that it may hold.
    pub(super) fn payload(&mut self, now: SimPs, unit: u16, held: u64, most: u64) {
        if held > most {
            self.is_event_too_large = true;
            self.report(now, || {
                format!(
                    "bu{unit} holds {held} B with `credit_bytes` for {most}: \
                     an event was larger than `event_bytes`"
                )
            });
        }
    }

    /// Nothing may be built for so long although there is something to build.
    pub(super) fn progress(&mut self, now: SimPs, patience: DurationPs, open: u64) {
        let gap = now - self.last_progress;
        if open > 0 && gap > patience {
            let (gap, patience) = (rounded(gap.0), rounded(patience.0));
            self.report(now, || {
                format!(
                    "no event was built for {gap}, and all that one may wait for takes {patience}; \
                     {open} are open"
                )
            });
            self.last_progress = now;
        }
    }

    pub(super) const fn is_event_too_large(&self) -> bool {
        self.is_event_too_large
    }

    pub(super) fn into_violations(self) -> Vec<String> {
        self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_too_rarely_is_reported_with_times_that_can_be_read() {
        let mut check = Check::default();
        let patience = DurationPs::from_ms(2_000);
        check.progress(SimPs::ZERO + patience, patience, 7);
        check.progress(SimPs::ZERO + patience * 2, patience, 0);
        assert_eq!(check.violations, [""; 0]);
        check.progress(SimPs::ZERO + patience * 3, patience, 7);
        let found = "6.00 s: no event was built for 6.00 s, and all that one may wait for takes \
                     2.00 s; 7 are open";
        assert_eq!(check.into_violations(), [found]);
    }

    #[test]
    fn time_in_which_nothing_was_open_is_no_delay() {
        let mut check = Check::default();
        let patience = DurationPs::from_ms(2_000);
        let opened = SimPs::ZERO + patience * 3;
        check.open_first(opened);
        check.progress(opened + DurationPs::from_ms(1), patience, 1);
        assert_eq!(check.violations, [""; 0]);
        // What is not built from then on is found all the same.
        check.progress(opened + patience * 2, patience, 1);
        let found = "10.0 s: no event was built for 4.00 s, and all that one may wait for takes \
                     2.00 s; 1 are open";
        assert_eq!(check.into_violations(), [found]);
    }

    #[test]
    fn a_list_is_gone_through_in_its_order_again_and_again() {
        let list: Vec<u32> = (0..200_000).map(|line| 100 + line).collect();
        let law = SizeLaw::Trace(list.clone());
        let sizes = Sizes::new(&law, 1, false);
        for readout in [0, 1, 7] {
            let mut found: Vec<u32> = (1..=200_000).map(|n| sizes.of(n, readout)).collect();
            let steps = found.windows(2).filter(|pair| pair[1] == pair[0] + 1);
            assert_eq!(steps.count(), 199_998, "all but where it begins again");
            assert_eq!(sizes.of(200_001, readout), found[0]);
            found.sort_unstable();
            assert!(found == list, "readout unit {readout}");
        }
        assert_ne!(sizes.of(1, 0), sizes.of(1, 1));
        let alike = Sizes::new(&law, 1, true);
        assert_eq!(alike.of(5, 0), alike.of(5, 3));
    }
}
