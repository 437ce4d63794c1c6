//! Algorithms of users: a cut written in Rust outside this crate, chosen by name in the menu.
//!
//! An algorithm looks at one packet and at its tracks corrected for the beam, and answers yes or no.
//! It keeps no state between packets, so that the decision is the same whichever node takes it, and
//! it must not allocate, wait or panic: it runs in the decision loop. [`AlgorithmRegistry`] holds
//! what a program offers; one line registers an algorithm there.

use core::fmt::Debug;
use std::sync::Arc;

use livetime_wire::trigger_packet::TriggerPacketView;

use crate::two_track::CorrectedTracks;

/// What an algorithm sees of an event.
#[derive(Debug, Clone, Copy)]
pub struct AlgorithmInput<'a> {
    /// The packet, checked.
    pub packet: &'a TriggerPacketView<'a>,
    /// The first twenty tracks of the silicon tracker, corrected for the beam.
    pub tracks: &'a CorrectedTracks,
}

/// A cut of a user.
///
/// ```
/// use livetime_trigger::{Algorithm, AlgorithmInput, AlgorithmRegistry};
///
/// #[derive(Debug)]
/// struct ManyStubs {
///     count: usize,
/// }
///
/// impl Algorithm for ManyStubs {
///     fn is_true(&self, input: &AlgorithmInput<'_>) -> bool {
///         input.packet.muons().len() >= self.count
///     }
/// }
///
/// let mut registry = AlgorithmRegistry::new();
/// registry.add("many_stubs", |options| Ok(ManyStubs { count: options.whole("count", 1..=255)? }));
/// assert!(registry.names().eq(["many_stubs"]));
/// ```
pub trait Algorithm: Debug + Send + Sync {
    /// Whether the packet passes.
    fn is_true(&self, input: &AlgorithmInput<'_>) -> bool;
}

/// Why an algorithm does not take its options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// It needs an option that is not there.
    #[error("option `{key}` is missing, allowed is {allowed}")]
    Missing {
        /// Which.
        key: String,
        /// What it may be.
        allowed: String,
    },
    /// An option has a value that it cannot take.
    #[error("option `{key}` is \"{found}\", allowed is {allowed}")]
    Value {
        /// Which.
        key: String,
        /// What stands there.
        found: String,
        /// What may stand there.
        allowed: String,
    },
    /// An option that it does not have.
    #[error("option `{key}` is not one of this algorithm")]
    Unknown {
        /// Which.
        key: String,
    },
}

/// The options of an algorithm as texts, in the order of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlgorithmOptions {
    entries: Vec<(String, String)>,
    asked: core::cell::RefCell<Vec<String>>,
}

impl AlgorithmOptions {
    /// These keys and values.
    pub fn new(entries: Vec<(String, String)>) -> Self {
        Self {
            entries,
            asked: core::cell::RefCell::default(),
        }
    }

    /// The keys and values.
    pub fn entries(&self) -> &[(String, String)] {
        &self.entries
    }

    /// The text of an option.
    ///
    /// # Errors
    /// [`OptionError::Missing`].
    #[inline]
    pub fn text(&self, key: &str) -> Result<&str, OptionError> {
        self.asked.borrow_mut().push(key.to_owned());
        let entry = self.entries.iter().find(|(name, _)| name == key);
        entry
            .map(|(_, value)| value.as_str())
            .ok_or_else(|| OptionError::Missing {
                key: key.to_owned(),
                allowed: "a text".to_owned(),
            })
    }

    /// An option that is read from its text, such as a threshold with its unit.
    ///
    /// # Errors
    /// [`OptionError::Missing`], or [`OptionError::Value`] with what `allowed` says.
    pub fn parsed<T: core::str::FromStr>(
        &self,
        key: &str,
        allowed: &str,
    ) -> Result<T, OptionError> {
        let text = self.text(key).map_err(|_| OptionError::Missing {
            key: key.to_owned(),
            allowed: allowed.to_owned(),
        })?;
        text.parse().map_err(|_| OptionError::Value {
            key: key.to_owned(),
            found: text.to_owned(),
            allowed: allowed.to_owned(),
        })
    }

    /// A whole number in a range.
    ///
    /// # Errors
    /// As [`AlgorithmOptions::parsed`].
    pub fn whole(
        &self,
        key: &str,
        range: core::ops::RangeInclusive<usize>,
    ) -> Result<usize, OptionError> {
        let allowed = format!("a whole number, {} to {}", range.start(), range.end());
        let value: usize = self.parsed(key, &allowed)?;
        if range.contains(&value) {
            return Ok(value);
        }
        Err(OptionError::Value {
            key: key.to_owned(),
            found: value.to_string(),
            allowed,
        })
    }

    /// Nothing has been asked for.
    #[inline]
    pub(crate) fn forget_asked(&self) {
        self.asked.borrow_mut().clear();
    }

    /// An option that nobody asked for.
    #[inline]
    pub(crate) fn left_over(&self) -> Option<&str> {
        let asked = self.asked.borrow();
        let is_left = |key: &&String| !asked.contains(key);
        self.entries
            .iter()
            .map(|(key, _)| key)
            .find(is_left)
            .map(String::as_str)
    }
}

/// An algorithm in a menu, with the name by which it was chosen.
#[derive(Debug, Clone)]
pub struct UserCut {
    name: String,
    options: Vec<(String, String)>,
    algorithm: Arc<dyn Algorithm>,
}

impl UserCut {
    /// The name under which it was registered.
    #[inline]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the packet passes.
    #[inline]
    pub fn is_true(&self, packet: &TriggerPacketView<'_>, tracks: &CorrectedTracks) -> bool {
        self.algorithm.is_true(&AlgorithmInput { packet, tracks })
    }
}

impl PartialEq for UserCut {
    /// Equal names and options make equal algorithms.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.options == other.options
    }
}

impl Eq for UserCut {}

/// What makes an algorithm of its options.
type Factory =
    Box<dyn Fn(&AlgorithmOptions) -> Result<Arc<dyn Algorithm>, OptionError> + Send + Sync>;

/// The algorithms that a program offers to menus.
#[derive(Default)]
pub struct AlgorithmRegistry {
    factories: Vec<(&'static str, Factory)>,
}

impl Debug for AlgorithmRegistry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl AlgorithmRegistry {
    /// No algorithm.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers an algorithm under the name that menus give as `algorithm`.
    ///
    /// # Panics
    /// If the name is taken.
    #[inline]
    pub fn add<A: Algorithm + 'static>(
        &mut self,
        name: &'static str,
        make: impl Fn(&AlgorithmOptions) -> Result<A, OptionError> + Send + Sync + 'static,
    ) -> &mut Self {
        assert!(
            self.names().all(|taken| taken != name),
            "two algorithms are registered as `{name}`"
        );
        let factory: Factory = Box::new(move |options| Ok(Arc::new(make(options)?)));
        self.factories.push((name, factory));
        self
    }

    /// The names in the order of their registration.
    #[inline]
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.factories.iter().map(|(name, _)| *name)
    }

    /// The algorithm of this name with these options; `None` if there is no such name.
    ///
    /// # Errors
    /// What the algorithm says of its options, or that there is one that it does not have.
    pub fn make(
        &self,
        name: &str,
        options: &AlgorithmOptions,
    ) -> Option<Result<UserCut, OptionError>> {
        let (_, factory) = self.factories.iter().find(|(known, _)| *known == name)?;
        options.forget_asked();
        Some(factory(options).and_then(|algorithm| {
            if let Some(key) = options.left_over() {
                return Err(OptionError::Unknown {
                    key: key.to_owned(),
                });
            }
            Ok(UserCut {
                name: name.to_owned(),
                options: options.entries.clone(),
                algorithm,
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::trigger_packet::{MuonStub, TriggerPacket};

    use super::*;
    use crate::threshold::EnergyMev;

    #[derive(Debug)]
    struct Stubs {
        count: usize,
        pt_min: EnergyMev,
    }

    impl Algorithm for Stubs {
        fn is_true(&self, input: &AlgorithmInput<'_>) -> bool {
            let hard = |stub: &MuonStub| stub.pt_code() as i32 * 500 > self.pt_min.0;
            input.packet.muons().filter(hard).count() >= self.count
        }
    }

    fn registry() -> AlgorithmRegistry {
        let mut registry = AlgorithmRegistry::new();
        registry.add("stubs", |options| {
            Ok(Stubs {
                count: options.whole("count", 1..=255)?,
                pt_min: options.parsed("pt_min", "an energy")?,
            })
        });
        registry
    }

    fn made(entries: &[(&str, &str)]) -> Result<UserCut, OptionError> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let options = AlgorithmOptions::new(entries.iter().map(own).collect());
        registry().make("stubs", &options).expect("it is there")
    }

    #[test]
    fn an_algorithm_decides_with_its_options() {
        let cut = made(&[("count", "2"), ("pt_min", "3 GeV")]).unwrap();
        let passes = |codes: &[u32]| {
            let packet = TriggerPacket {
                muons: (codes.iter())
                    .map(|code| MuonStub::new(0, 1, 255, false, *code))
                    .collect(),
                ..TriggerPacket::default()
            };
            let mut words = Vec::new();
            packet.emit(&mut words);
            let view = TriggerPacketView::new_checked(&words).unwrap();
            cut.is_true(&view, &CorrectedTracks::default())
        };
        assert!(passes(&[7, 8]));
        assert!(!passes(&[7, 6]));
        assert_eq!(cut.name(), "stubs");
    }

    #[test]
    fn bad_options_are_said_with_what_is_allowed() {
        let error = |entries: &[(&str, &str)]| made(entries).unwrap_err().to_string();
        assert_eq!(
            error(&[("pt_min", "3 GeV")]),
            "option `count` is missing, allowed is a whole number, 1 to 255"
        );
        assert_eq!(
            error(&[("count", "0"), ("pt_min", "3 GeV")]),
            "option `count` is \"0\", allowed is a whole number, 1 to 255"
        );
        assert_eq!(
            error(&[("count", "1"), ("pt_min", "3")]),
            "option `pt_min` is \"3\", allowed is an energy"
        );
        assert_eq!(
            error(&[("count", "1"), ("pt_min", "3 GeV"), ("eta", "1")]),
            "option `eta` is not one of this algorithm"
        );
        assert!(
            registry()
                .make("stub", &AlgorithmOptions::default())
                .is_none()
        );
    }

    #[test]
    #[should_panic(expected = "two algorithms are registered as `stubs`")]
    fn a_name_is_given_once() {
        registry().add("stubs", |_| {
            Ok(Stubs {
                count: 1,
                pt_min: EnergyMev(0),
            })
        });
    }
}
