//! The `[filter]` table: the filter units and what they run.

use livetime_builder::BuilderConfig;
use livetime_node::FilterConfig;
use livetime_node::process::LossPolicy;
use livetime_trigger::{EnergyMev, MassWindowConfig};

use super::builder_section::ON_LOSS;
use super::document::Section;
use super::trigger_section::ENERGY;

/// Reads the table; the number of units and their window are part of the builder's configuration.
pub(crate) fn read_filter(
    root: &mut Section<'_, '_>,
    builder: &mut BuilderConfig,
    policy: &mut LossPolicy,
) -> FilterConfig {
    let default = FilterConfig::MassWindow(MassWindowConfig::default());
    let Some(mut section) = root.section("filter") else {
        return default;
    };
    if let Some(units) = section.integer("units", 1..=4096) {
        builder.filter_units = u16::try_from(units).unwrap_or(u16::MAX);
    }
    if let Some(in_flight) = section.integer("in_flight", 0..=1 << 24) {
        builder.filter_in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
    }
    if let Some(on_loss) = section.choice("on_loss", &ON_LOSS) {
        policy.filter = on_loss;
    }
    // Parameters of a filter that is not chosen are unknown keys: they would change nothing.
    let names = [
        ("mass_window", default),
        ("accept_all", FilterConfig::AcceptAll),
    ];
    let mut filter = section.choice("name", &names).unwrap_or(default);
    if let FilterConfig::MassWindow(window) = &mut filter {
        read_mass_window(&mut section, window);
    }
    section.finish();
    filter
}

fn read_mass_window(section: &mut Section<'_, '_>, window: &mut MassWindowConfig) {
    let gev = |energy: EnergyMev| f64::from(energy.0) * 1e-3;
    if let Some(min) = section.parsed("mass_min", ENERGY, str::parse) {
        window.mass_min_gev = gev(min);
    }
    if let Some(max) = section.parsed("mass_max", ENERGY, str::parse) {
        window.mass_max_gev = gev(max);
    }
    if let Some(one_in) = section.integer("keep_one_in", 0..=u64::from(u32::MAX)) {
        window.keep_one_in = u32::try_from(one_in).unwrap_or(u32::MAX);
    }
}
