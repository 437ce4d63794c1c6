//! What this program offers to configurations besides its own cuts and filters.
//!
//! Nothing, unless the program was built with some: `livetime::run_program` takes them, and
//! `examples/algorithm` shows a program that does so. What they are stands in
//! `livetime_trigger::algorithm` and `livetime_trigger::filter_stage`.

use std::sync::OnceLock;

use livetime_trigger::{AlgorithmRegistry, FilterRegistry};

static OFFERED: OnceLock<Extensions> = OnceLock::new();

/// Algorithms and filters of users that a program is built with.
#[derive(Debug, Default)]
pub struct Extensions {
    /// Algorithms for Level-2 menus.
    pub algorithms: AlgorithmRegistry,
    /// Chains of stages for filter units.
    pub filters: FilterRegistry,
}

impl From<AlgorithmRegistry> for Extensions {
    fn from(algorithms: AlgorithmRegistry) -> Self {
        Self {
            algorithms,
            filters: FilterRegistry::new(),
        }
    }
}

/// Offers these from now on; only the first call has an effect.
pub(crate) fn offer(extensions: Extensions) {
    let _ = OFFERED.set(extensions);
}

/// What is offered.
pub(crate) fn offered() -> &'static Extensions {
    OFFERED.get_or_init(Extensions::default)
}
