//! The `[builder]` table: the event manager, the builder units and their queues.

use livetime_builder::BuilderConfig;
use livetime_node::process::{LossPolicy, OnLoss};

use super::document::Section;

/// What is done when a unit is lost, by its name.
pub(super) const ON_LOSS: [(&str, OnLoss); 3] = [
    ("restart", OnLoss::Restart),
    ("continue", OnLoss::Continue),
    ("stop", OnLoss::Stop),
];

/// Reads the table; its readout units follow from the links, its filter units from `[filter]`.
pub(crate) fn read_builder(root: &mut Section<'_, '_>, policy: &mut LossPolicy) -> BuilderConfig {
    let mut config = BuilderConfig::default();
    let Some(mut section) = root.section("builder") else {
        return config;
    };
    if let Some(units) = section.integer("builder_units", 1..=4096) {
        config.builder_units = u16::try_from(units).unwrap_or(u16::MAX);
    }
    for (key, field) in [
        ("credits", &mut config.credits),
        ("requests_per_message", &mut config.requests_per_message),
        ("evm_queue", &mut config.evm_queue),
        ("history", &mut config.history),
        ("trigger_window", &mut config.trigger_window),
    ] {
        if let Some(value) = section.integer(key, 0..=1 << 24) {
            *field = u32::try_from(value).unwrap_or(u32::MAX);
        }
    }
    if let Some(on_loss) = section.choice("on_loss", &ON_LOSS) {
        policy.builder = on_loss;
    }
    section.quantity("timeout", &mut config.timeout);
    section.quantity("retry", &mut config.retry);
    section.quantity("probe", &mut config.probe);
    section.finish();
    config
}
