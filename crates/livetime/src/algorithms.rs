//! The algorithms that this program offers to menus besides its own cuts.
//!
//! None, unless the program was built with some: `livetime::run_program` takes a registry, and
//! `examples/algorithm` shows a program that does so. What an algorithm is stands in
//! `livetime_trigger::algorithm`.

use std::sync::OnceLock;

use livetime_trigger::AlgorithmRegistry;

static REGISTRY: OnceLock<AlgorithmRegistry> = OnceLock::new();

/// Offers these algorithms from now on; only the first call has an effect.
pub(crate) fn offer(registry: AlgorithmRegistry) {
    let _ = REGISTRY.set(registry);
}

/// What is offered.
pub(crate) fn registry() -> &'static AlgorithmRegistry {
    REGISTRY.get_or_init(AlgorithmRegistry::new)
}
