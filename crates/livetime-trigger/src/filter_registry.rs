//! Filters of users by name: chains of stages that a program offers to configurations.
//!
//! As [`crate::algorithm`] does for cuts of Level 2: one line registers a chain, a configuration
//! chooses it by its name and gives it options. What a chain is stands in [`crate::filter_stage`].

use core::fmt::{self, Debug};
use std::sync::Arc;

use livetime_wire::DurationNs;

use crate::algorithm::{AlgorithmOptions, OptionError};
use crate::event_menu::{NoClock, StageClock};
use crate::filter::EventFilter;
use crate::filter_stage::StageChain;

/// What makes a filter of its options, clock and limit.
type Factory = Arc<
    dyn Fn(
            &AlgorithmOptions,
            Box<dyn StageClock>,
            DurationNs,
        ) -> Result<Box<dyn EventFilter>, OptionError>
        + Send
        + Sync,
>;

/// The filters that a program offers.
///
/// ```
/// use livetime_trigger::{FilterRegistry, PrescaleStage, StageChain};
///
/// let mut filters = FilterRegistry::new();
/// filters.add("one_in", |options| {
///     let one_in = options.whole("events", 1..=1000)? as u64;
///     Ok(StageChain::new((), ["sample"]).then("prescale", PrescaleStage { one_in, salt: 0 }))
/// });
/// assert!(filters.names().eq(["one_in"]));
/// ```
#[derive(Default)]
pub struct FilterRegistry {
    factories: Vec<(&'static str, Factory)>,
}

impl Debug for FilterRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl FilterRegistry {
    /// No filter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a chain of stages under the name that configurations give as `chain`. Each filter
    /// unit has one of its own.
    ///
    /// # Panics
    /// If the name is taken.
    pub fn add<W: Send + 'static>(
        &mut self,
        name: &'static str,
        make: impl Fn(&AlgorithmOptions) -> Result<StageChain<W>, OptionError> + Send + Sync + 'static,
    ) -> &mut Self {
        assert!(
            self.names().all(|taken| taken != name),
            "two filters are registered as `{name}`"
        );
        let factory: Factory = Arc::new(move |options, clock, limit| {
            let filter: Box<dyn EventFilter> = Box::new(make(options)?.timed(clock, limit));
            Ok(filter)
        });
        self.factories.push((name, factory));
        self
    }

    /// The names in the order of their registration.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.factories.iter().map(|(name, _)| *name)
    }

    /// The filter of this name with these options, whose events may take `event_limit`, 0 for no
    /// limit; `None` if there is no such name.
    ///
    /// # Errors
    /// What the filter says of its options, or that there is one that it does not have.
    pub fn make(
        &self,
        name: &str,
        options: &AlgorithmOptions,
        event_limit: DurationNs,
    ) -> Option<Result<UserFilter, OptionError>> {
        let (_, factory) = self.factories.iter().find(|(known, _)| *known == name)?;
        options.forget_asked();
        let tried = factory(options, Box::new(NoClock), event_limit);
        Some(tried.and_then(|_| {
            if let Some(key) = options.left_over() {
                return Err(OptionError::Unknown {
                    key: key.to_owned(),
                });
            }
            Ok(UserFilter {
                name: name.to_owned(),
                options: options.entries().to_vec(),
                event_limit,
                factory: Arc::clone(factory),
            })
        }))
    }
}

/// A chosen filter with its options, which have been taken.
#[derive(Clone)]
pub struct UserFilter {
    name: String,
    options: Vec<(String, String)>,
    event_limit: DurationNs,
    factory: Factory,
}

impl UserFilter {
    /// The name under which it was registered.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The filter at work, timed by `clock`.
    ///
    /// # Panics
    /// If its factory refuses options that it has taken before.
    pub fn to_filter(&self, clock: Box<dyn StageClock>) -> Box<dyn EventFilter> {
        let options = AlgorithmOptions::new(self.options.clone());
        (self.factory)(&options, clock, self.event_limit)
            .expect("the same options were taken when the configuration was read")
    }
}

impl Debug for UserFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserFilter")
            .field("name", &self.name)
            .field("options", &self.options)
            .field("event_limit", &self.event_limit)
            .finish_non_exhaustive()
    }
}

impl PartialEq for UserFilter {
    /// Equal names, options and limits make equal filters.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.options == other.options
            && self.event_limit == other.event_limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter_stage::PrescaleStage;

    fn made(entries: &[(&str, &str)]) -> Result<UserFilter, OptionError> {
        let mut registry = FilterRegistry::new();
        registry.add("one_in", |options| {
            let one_in = options.whole("events", 1..=1000)? as u64;
            let stage = PrescaleStage { one_in, salt: 0 };
            Ok(StageChain::new((), ["sample"]).then("prescale", stage))
        });
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let options = AlgorithmOptions::new(entries.iter().map(own).collect());
        let limit = DurationNs::MILLISECOND;
        assert!(registry.make("one_on", &options, limit).is_none());
        registry
            .make("one_in", &options, limit)
            .expect("it is there")
    }

    #[test]
    fn a_filter_is_made_anew_for_each_unit_and_bad_options_are_said() {
        let filter = made(&[("events", "10")]).unwrap();
        let made_twice = [0, 1].map(|_| filter.to_filter(Box::new(NoClock)));
        for filter in made_twice {
            assert_eq!(filter.reason_names(), ["kept", "prescale", "over_time"]);
        }
        assert_eq!(filter, made(&[("events", "10")]).unwrap());
        assert_ne!(filter, made(&[("events", "11")]).unwrap());
        for (entries, said) in [
            (
                &[][..],
                "option `events` is missing, allowed is a whole number, 1 to 1000",
            ),
            (
                &[("events", "0")],
                "option `events` is \"0\", allowed is a whole number, 1 to 1000",
            ),
            (
                &[("events", "3"), ("eta", "1")],
                "option `eta` is not one of this algorithm",
            ),
        ] {
            assert_eq!(made(entries).unwrap_err().to_string(), said);
        }
    }

    #[test]
    #[should_panic(expected = "two filters are registered as `a`")]
    fn a_name_is_given_once() {
        let all = |_: &AlgorithmOptions| Ok(StageChain::new((), ["all"]));
        FilterRegistry::new().add("a", all).add("a", all);
    }
}
