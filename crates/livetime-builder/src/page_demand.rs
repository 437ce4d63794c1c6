//! How many pages the readout units need so that the granted credits can be used.
//!
//! Each data link has its share of its readout unit's pool: pages of fragments that are held, pages
//! posted to the receiver, and the reserve in which words still in flight land after XOFF. With
//! fewer pages nothing is lost, since XOFF stops the sources, but credits could not be used and the
//! reason would be hard to see; so the program refuses it before the run.

use livetime_wire::{ByteSize, Problem};

use crate::builder_config::BuilderConfig;
use crate::problem_code;

/// What one data link takes, beside the builder's configuration.
///
/// ```text
/// pages of a link = pages_per_fragment x (builder_units x credits + evm_queue + l2_buffers)
///                 + posted_pages + xoff_reserve
/// pages of a pool = links of its readout unit x pages of a link
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageDemand {
    /// Size of a page.
    pub page: ByteSize,
    /// Pages of the largest fragment that is to be held at full credits.
    pub pages_per_fragment: u32,
    /// Level-2 buffers: triggers whose decision may be outstanding.
    pub l2_buffers: u32,
    /// Pages posted to the receiver: the depth of its request FIFO.
    pub posted_pages: u32,
    /// Free pages at which XOFF is raised.
    pub xoff_reserve: u32,
}

impl PageDemand {
    /// Pages that one link needs, or as many as can be counted.
    #[inline]
    pub fn pages_per_link(&self, config: &BuilderConfig) -> u64 {
        let events =
            config.credits_total() + u64::from(config.evm_queue) + u64::from(self.l2_buffers);
        let of_events = u64::from(self.pages_per_fragment).saturating_mul(events);
        of_events.saturating_add(self.apart())
    }

    /// Pages of a link that hold no fragment.
    #[inline]
    fn apart(&self) -> u64 {
        u64::from(self.posted_pages) + u64::from(self.xoff_reserve)
    }

    /// Pages that the pool of a readout unit with `links` links needs.
    #[inline]
    pub fn pages_needed(&self, config: &BuilderConfig, links: usize) -> u64 {
        self.pages_per_link(config).saturating_mul(links as u64)
    }

    /// The most credits that a pool of `pages` pages allows, all else unchanged; 0 for none.
    #[inline]
    pub fn credits_possible(&self, config: &BuilderConfig, links: usize, pages: u64) -> u64 {
        let per_link = pages / (links as u64).max(1);
        let events =
            per_link.saturating_sub(self.apart()) / u64::from(self.pages_per_fragment.max(1));
        let waiting = u64::from(config.evm_queue) + u64::from(self.l2_buffers);
        events.saturating_sub(waiting) / u64::from(config.builder_units.max(1))
    }

    /// The problem of a pool of `pages` pages for a readout unit with `links` links, if there is
    /// one. `path` is the builder's key prefix, `pool_path` the key that sizes the pool.
    pub fn check(
        &self,
        config: &BuilderConfig,
        path: &str,
        links: usize,
        pages: u64,
        pool_path: &str,
    ) -> Option<Problem> {
        let needed = self.pages_needed(config, links);
        if needed <= pages {
            return None;
        }
        let size = |pages: u64| ByteSize(pages.saturating_mul(self.page.0));
        let possible = self.credits_possible(config, links, pages);
        let (allowed, help) = if possible == 0 {
            let least = self.pages_needed(
                &BuilderConfig {
                    credits: 1,
                    ..config.clone()
                },
                links,
            );
            (
                "no number with this pool".to_owned(),
                format!(
                    "raise the pool to {}, at least {}",
                    size(needed),
                    size(least)
                ),
            )
        } else {
            (
                format!("at most {possible} with this pool"),
                format!(
                    "set it to at most {possible}, or raise the pool to {}",
                    size(needed)
                ),
            )
        };
        let help = format!("{help}; `livetime explain B0107` shows the formula");
        let problem = Problem::new(
            problem_code::POOL_TOO_SMALL,
            format!("{path}.credits"),
            config.credits,
            allowed,
            help,
        );
        let label = format!(
            "{} pages here, {needed} needed: {links} links x ({} per fragment x ({} builder \
             units x {} credits + {} queued + {} Level-2 buffers) + {} posted + {} for XOFF)",
            pages,
            self.pages_per_fragment,
            config.builder_units,
            config.credits,
            config.evm_queue,
            self.l2_buffers,
            self.posted_pages,
            self.xoff_reserve,
        );
        Some(problem.with_related(pool_path, label))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn demand() -> PageDemand {
        PageDemand {
            page: ByteSize(8192),
            pages_per_fragment: 2,
            l2_buffers: 4,
            posted_pages: 15,
            xoff_reserve: 8,
        }
    }

    #[test]
    fn the_problem_names_formula_and_way_out() {
        let config = BuilderConfig {
            credits: 48,
            ..BuilderConfig::default()
        };
        let needed = demand().pages_needed(&config, 4);
        assert_eq!(needed, 4 * (2 * (2 * 48 + 64 + 4) + 15 + 8));
        let check = |pages| demand().check(&config, "builder", 4, pages, "link[0].pool");
        assert_eq!(check(needed), None);
        let problem = check(needed - 1).unwrap();
        assert_eq!(problem.code.code, "B0107");
        assert_eq!(problem.path, "builder.credits");
        assert_eq!(problem.allowed, "at most 47 with this pool");
        assert!(problem.help.contains("or raise the pool to "), "{problem}");
        let (path, label) = problem.related.unwrap();
        assert_eq!(path, "link[0].pool");
        assert!(label.starts_with("1403 pages here, 1404 needed"), "{label}");
        let problem = check(100).unwrap();
        assert_eq!(problem.allowed, "no number with this pool");
    }

    proptest! {
        /// The credits offered as possible are possible, and one more is not.
        #[test]
        fn possible_credits_are_the_largest_that_fit(
            pages in 0..20_000u64,
            links in 1..9usize,
            builder_units in 1..5u16,
            pages_per_fragment in 1..5u32,
        ) {
            let demand = PageDemand { pages_per_fragment, ..demand() };
            let config = BuilderConfig { builder_units, ..BuilderConfig::default() };
            let possible = demand.credits_possible(&config, links, pages) as u32;
            let fits = |credits| {
                let config = BuilderConfig { credits, ..config.clone() };
                demand.pages_needed(&config, links) <= pages
            };
            prop_assert!(possible == 0 || fits(possible));
            prop_assert!(!fits(possible + 1));
        }
    }

    /// Given the largest numbers that there are, then more pages are needed than there can be, and no
    /// sum goes round.
    #[test]
    fn pages_that_no_number_can_count_are_too_many() {
        let demand = PageDemand {
            page: ByteSize(u64::MAX),
            pages_per_fragment: u32::MAX,
            l2_buffers: u32::MAX,
            posted_pages: u32::MAX,
            xoff_reserve: u32::MAX,
        };
        let config = BuilderConfig {
            credits: u32::MAX,
            builder_units: u16::MAX,
            evm_queue: u32::MAX,
            ..BuilderConfig::default()
        };
        assert_eq!(demand.pages_per_link(&config), u64::MAX);
        assert_eq!(demand.pages_needed(&config, usize::MAX), u64::MAX);
        let problem = demand.check(&config, "builder", 3, 1000, "link[0].pool");
        assert_eq!(problem.unwrap().allowed, "no number with this pool");
    }
}
