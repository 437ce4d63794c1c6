//! Fragments that were filed with faults: told by readout units, read at the end of the run.
//!
//! Nothing is lost with them, since their events are built and say so; but a filter may reject an
//! event for a fragment that it cannot read, so that a run with such fragments is not as good as others.

use std::collections::BTreeMap;

use livetime_readout::FragmentAssembler;
use livetime_wire::slink::FragmentStatus;

/// Sources of a unit that are named, those with the most faults; the others are summed up, since what a
/// process leaves has to fit into a message.
const SOURCES_MAX: usize = 256;
const OTHERS: &str = "others";
/// All of a unit, for the report.
const ALL: &str = "fragments_flagged";
/// In front of the source.
const OF_SOURCE: &str = "fragments_flagged_of_";
/// In front of the fault.
const FAULT: &str = "fragment_faults_";

/// Fragments with faults of some readout units.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlaggedFragments {
    /// Fragments that were filed with a fault.
    pub all: u64,
    /// Of each source that has sent some, by its id; of a unit with very many, those with the most.
    pub by_source: BTreeMap<String, u64>,
    /// How often each fault was found, in fragments that were lost for it, too.
    pub by_fault: BTreeMap<String, u64>,
}

impl FlaggedFragments {
    /// What the assemblers of a unit have found.
    pub(super) fn of(assemblers: &[FragmentAssembler]) -> Self {
        let mut found = Self::default();
        for assembler in assemblers {
            let counters = assembler.counters();
            found.all += counters.flagged;
            let sources = assembler.sources().iter().map(ToString::to_string);
            let sources: Vec<String> = sources.collect();
            add(&mut found.by_source, &sources.join("+"), counters.flagged);
            for ((_, fault), count) in FragmentStatus::NAMES.iter().zip(counters.by_status) {
                add(&mut found.by_fault, fault, count);
            }
        }
        found.sum_up_others();
        found
    }

    fn sum_up_others(&mut self) {
        let mut counts: Vec<u64> = self.by_source.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let Some(least) = counts.get(SOURCES_MAX).map(|count| count + 1) else {
            return;
        };
        let (named, others) = std::mem::take(&mut self.by_source)
            .into_iter()
            .partition(|(_, count)| *count >= least);
        self.by_source = named;
        let others: BTreeMap<String, u64> = others;
        add(&mut self.by_source, OTHERS, others.values().sum());
    }

    /// By name, for the report.
    pub(super) fn details(self) -> impl Iterator<Item = (String, u64)> {
        let of_sources = self.by_source.into_iter();
        let of_sources = of_sources.map(|(source, count)| (format!("{OF_SOURCE}{source}"), count));
        let faults = self.by_fault.into_iter();
        let faults = faults.map(|(fault, count)| (format!("{FAULT}{fault}"), count));
        let all = (ALL.to_owned(), self.all);
        std::iter::once(all).chain(of_sources).chain(faults)
    }

    /// Adds what the details of a role say.
    pub fn add<'a>(&mut self, details: impl IntoIterator<Item = (&'a String, &'a u64)>) {
        for (name, count) in details {
            if name == ALL {
                self.all += count;
            } else if let Some(source) = name.strip_prefix(OF_SOURCE) {
                add(&mut self.by_source, source, *count);
            } else if let Some(fault) = name.strip_prefix(FAULT) {
                add(&mut self.by_fault, fault, *count);
            }
        }
    }
}

fn add(counts: &mut BTreeMap<String, u64>, name: &str, count: u64) {
    if count > 0 {
        *counts.entry(name.to_owned()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_units_tell_is_read_as_their_sum() {
        let unit = |source: &str, count| FlaggedFragments {
            all: count,
            by_source: BTreeMap::from([(source.to_owned(), count)]),
            by_fault: BTreeMap::from([("bad_crc".to_owned(), count)]),
        };
        let mut sum = FlaggedFragments::default();
        for told in [unit("0x510002", 3), unit("0x520001", 9)] {
            let details: BTreeMap<String, u64> = told.details().collect();
            sum.add(&details);
        }
        sum.add(&BTreeMap::from([("messages_received".to_owned(), 5)]));
        assert_eq!(sum.all, 12);
        assert_eq!(sum.by_source.len(), 2);
        assert_eq!(sum.by_source["0x520001"], 9);
        assert_eq!(sum.by_fault["bad_crc"], 12);
    }

    #[test]
    fn of_very_many_sources_those_with_the_most_are_named() {
        let counts = (1..=1000).map(|count| (format!("0x{count:06x}"), count));
        let mut flagged = FlaggedFragments {
            by_source: counts.collect(),
            ..FlaggedFragments::default()
        };
        flagged.sum_up_others();
        assert_eq!(flagged.by_source.len(), SOURCES_MAX + 1);
        assert_eq!(flagged.by_source["0x0003e8"], 1000);
        assert_eq!(flagged.by_source[OTHERS], (1..=744).sum::<u64>());
        let alike = (0..1000).map(|source| (source.to_string(), 1));
        flagged.by_source = alike.collect();
        flagged.sum_up_others();
        assert_eq!(flagged.by_source[OTHERS], 1000);
    }
}
