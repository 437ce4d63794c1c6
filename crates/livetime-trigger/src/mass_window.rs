//! The built-in filter: keeps events whose dimuon mass lies in a window, and a sample of the rest.
//!
//! The mass is recomputed from the full-precision objects, of massless muons ([`crate::dimuon`]; the
//! candidates of a Level-3 menu have their leptons' masses, [`crate::candidate`]). The sample of the
//! rest is chosen by a hash of the trigger number, not by counting, so that every filter unit, and
//! a second run over the file, keeps the same events.

use livetime_wire::Problem;
use livetime_wire::decision::mix64;
use livetime_wire::event::EventAccess;

use crate::dimuon::find_dimuon;
use crate::filter::{EventFilter, FilterOutput};
use crate::problem_code::MASS_WINDOW;

/// Stream bit of events in the window.
pub const STREAM_WINDOW: u16 = 1 << 0;
/// Stream bit of events kept as a sample of the rest.
pub const STREAM_SAMPLE: u16 = 1 << 1;

/// Reason names; [`Reason`] indexes them.
const REASONS: [&str; 6] = [
    "in_window",
    "below_window",
    "above_window",
    "no_dimuon",
    "incomplete",
    "unreadable",
];

/// What the filter found; kept samples carry the reason for which they would be rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Reason {
    /// The mass lies in the window.
    InWindow = 0,
    /// The mass lies below it.
    BelowWindow = 1,
    /// The mass lies above it.
    AboveWindow = 2,
    /// No two muons of opposite charge.
    NoDimuon = 3,
    /// Not in the window, but sources are missing, and a muon may be with them.
    Incomplete = 4,
    /// Not in the window, but a fragment was damaged, and a muon may have been in it.
    Unreadable = 5,
}

/// Parameters of [`MassWindow`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MassWindowConfig {
    /// Lowest mass kept, in GeV. Default 60. Below it the continuum grows quickly.
    pub mass_min_gev: f64,
    /// Highest mass kept, in GeV. Default 120.
    pub mass_max_gev: f64,
    /// One in this many of the other events is kept. Default 100; 0 keeps none, 1 all.
    pub keep_one_in: u32,
}

impl Default for MassWindowConfig {
    fn default() -> Self {
        Self {
            mass_min_gev: 60.0,
            mass_max_gev: 120.0,
            keep_one_in: 100,
        }
    }
}

impl MassWindowConfig {
    /// Checks the values; `path` is the prefix of their keys, such as `filter`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let (min, max) = (self.mass_min_gev, self.mass_max_gev);
        // Written so that a NaN is a problem, too.
        if min >= 0.0 && min < max && max.is_finite() {
            return Vec::new();
        }
        let problem = Problem::new(
            MASS_WINDOW,
            format!("{path}.mass_min"),
            format!("{min} GeV"),
            format!("0 GeV or more, below {max} GeV, the value of `mass_max`"),
            "put the lower edge of the window below the upper one",
        );
        vec![problem.with_related(format!("{path}.mass_max"), "upper edge set here")]
    }
}

/// Keeps events with a dimuon mass in a window, edges included.
#[derive(Debug, Clone)]
pub struct MassWindow {
    config: MassWindowConfig,
}

impl MassWindow {
    /// A filter with these parameters.
    ///
    /// # Panics
    /// If [`MassWindowConfig::validate`] finds a problem.
    pub fn new(config: MassWindowConfig) -> Self {
        let problems = config.validate("filter");
        assert!(problems.is_empty(), "unchecked configuration: {problems:?}");
        Self { config }
    }

    fn reason(&self, event: &dyn EventAccess) -> Reason {
        let found = find_dimuon(event);
        let (min, max) = (self.config.mass_min_gev, self.config.mass_max_gev);
        match found.mass_gev {
            Some(mass) if (min..=max).contains(&mass) => Reason::InWindow,
            // What is missing may hold a harder muon: a mass outside proves nothing then.
            _ if event.is_incomplete() => Reason::Incomplete,
            _ if found.unreadable > 0 => Reason::Unreadable,
            Some(mass) if mass < min => Reason::BelowWindow,
            Some(_) => Reason::AboveWindow,
            None => Reason::NoDimuon,
        }
    }
}

impl EventFilter for MassWindow {
    fn filter(&mut self, event: &dyn EventAccess) -> FilterOutput {
        let reason = self.reason(event);
        let streams = match (reason, u64::from(self.config.keep_one_in)) {
            (Reason::InWindow, _) => STREAM_WINDOW,
            (_, 0) => 0,
            (_, n) if mix64(event.trigger().0).is_multiple_of(n) => STREAM_SAMPLE,
            _ => 0,
        };
        FilterOutput {
            accept: streams != 0,
            reason: reason as u16,
            streams,
        }
    }

    #[inline]
    fn reasons(&self) -> &[&str] {
        &REASONS
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::SourceId;
    use livetime_wire::event::EventView;
    use livetime_wire::slink::FragmentStatus;

    use super::*;
    use crate::dimuon::tests::{back_to_back, event, fragment, good};
    use crate::filter::FilterCounts;

    /// A trigger number that the sample of 1 in 100 leaves out, and one that it takes.
    const LEFT_OUT: u64 = 1;

    fn taken() -> u64 {
        (1..)
            .find(|trigger| mix64(*trigger).is_multiple_of(100))
            .unwrap()
    }

    fn filtered(words: &[u32]) -> (bool, &'static str, u16) {
        let mut filter = MassWindow::new(MassWindowConfig::default());
        let output = filter.filter(&EventView::new_checked(words).unwrap());
        assert_eq!(filter.reasons(), REASONS);
        (
            output.accept,
            REASONS[usize::from(output.reason)],
            output.streams,
        )
    }

    fn with_mass(trigger: u64, mass: f32) -> Vec<u32> {
        let [plus, minus] = back_to_back(mass);
        event(
            trigger,
            &good(vec![fragment(&[plus]), fragment(&[minus])]),
            &[],
        )
    }

    #[test]
    fn the_window_is_kept_and_the_rest_rejected_by_reason() {
        assert!(!mix64(LEFT_OUT).is_multiple_of(100));
        assert_eq!(filtered(&with_mass(LEFT_OUT, 91.2)), (true, "in_window", 1));
        assert_eq!(filtered(&with_mass(LEFT_OUT, 60.1)), (true, "in_window", 1));
        assert_eq!(
            filtered(&with_mass(LEFT_OUT, 119.9)),
            (true, "in_window", 1)
        );
        assert_eq!(
            filtered(&with_mass(LEFT_OUT, 59.9)),
            (false, "below_window", 0)
        );
        assert_eq!(
            filtered(&with_mass(LEFT_OUT, 120.1)),
            (false, "above_window", 0)
        );
        let one = event(
            LEFT_OUT,
            &good(vec![fragment(&back_to_back(91.0)[..1])]),
            &[],
        );
        assert_eq!(filtered(&one), (false, "no_dimuon", 0));
    }

    #[test]
    fn an_incomplete_or_damaged_event_is_kept_only_on_what_it_shows() {
        let [plus, minus] = back_to_back(91.2);
        let both = good(vec![fragment(&[plus, minus])]);
        let missing = [SourceId(9)];
        assert_eq!(filtered(&event(1, &both, &missing)), (true, "in_window", 1));
        let one = good(vec![fragment(&[plus])]);
        assert_eq!(
            filtered(&event(1, &one, &missing)),
            (false, "incomplete", 0)
        );
        let mut damaged = one;
        damaged.push((fragment(&[minus]), FragmentStatus::LINK_DATA));
        assert_eq!(filtered(&event(1, &damaged, &[])), (false, "unreadable", 0));
        assert_eq!(
            filtered(&event(1, &damaged, &missing)),
            (false, "incomplete", 0)
        );
    }

    #[test]
    fn a_sample_of_the_rest_is_kept_with_its_reason() {
        assert_eq!(
            filtered(&with_mass(taken(), 30.0)),
            (true, "below_window", 2)
        );
        assert_eq!(filtered(&with_mass(taken(), 91.2)), (true, "in_window", 1));
        let mut filter = MassWindow::new(MassWindowConfig::default());
        let mut counts = FilterCounts::new(&filter);
        for trigger in 1..=20_000 {
            let words = with_mass(trigger, 30.0);
            counts.add(&filter.filter(&EventView::new_checked(&words).unwrap()));
        }
        assert_eq!(counts.accepted + counts.rejected, 20_000);
        assert_eq!(
            counts.of(Reason::BelowWindow as u16),
            (counts.accepted, counts.rejected)
        );
        // 200 expected; five standard deviations are 70.
        assert!((130..270).contains(&counts.accepted), "{counts:?}");
    }

    #[test]
    fn the_answer_does_not_depend_on_what_came_before() {
        let events: Vec<Vec<u32>> = (1..400).map(|t| with_mass(t, 30.0 + t as f32)).collect();
        let mut filter = MassWindow::new(MassWindowConfig {
            keep_one_in: 3,
            ..MassWindowConfig::default()
        });
        let mut answer = |words: &Vec<u32>| filter.filter(&EventView::new_checked(words).unwrap());
        let forwards: Vec<FilterOutput> = events.iter().map(&mut answer).collect();
        let mut backwards: Vec<FilterOutput> = events.iter().rev().map(&mut answer).collect();
        backwards.reverse();
        assert_eq!(forwards, backwards);
    }

    #[test]
    fn zero_keeps_no_sample_and_one_keeps_all() {
        let kept = |keep_one_in| {
            let mut filter = MassWindow::new(MassWindowConfig {
                keep_one_in,
                ..MassWindowConfig::default()
            });
            (1..=200)
                .filter(|trigger| {
                    let words = with_mass(*trigger, 30.0);
                    filter
                        .filter(&EventView::new_checked(&words).unwrap())
                        .accept
                })
                .count()
        };
        assert_eq!(kept(0), 0);
        assert_eq!(kept(1), 200);
    }

    #[test]
    fn a_window_upside_down_is_a_problem() {
        let problems = |mass_min_gev, mass_max_gev| {
            let config = MassWindowConfig {
                mass_min_gev,
                mass_max_gev,
                keep_one_in: 1,
            };
            config.validate("filter").len()
        };
        assert_eq!(problems(60.0, 120.0), 0);
        assert_eq!(problems(0.0, 1.0), 0);
        assert_eq!(problems(60.0, 60.0), 1);
        assert_eq!(problems(-1.0, 60.0), 1);
        assert_eq!(problems(f64::NAN, 60.0), 1);
        assert_eq!(problems(60.0, f64::NAN), 1);
        assert_eq!(problems(60.0, f64::INFINITY), 1);
    }
}
