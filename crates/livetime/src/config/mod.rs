//! The configuration: TOML with places, to typed values, to problems rendered for people.
//!
//! `document.rs` knows TOML and units, the sections what the tables mean, `run_config.rs` how they
//! fit together, `render.rs` how problems look. The cores check their own values.

mod builder_section;
mod document;
mod filter_section;
mod link_fault;
mod link_section;
mod problem_code;
mod render;
mod run_config;
mod run_fault;
mod source_section;
mod store_section;
mod trigger_section;
mod worker_section;

use std::path::Path;

use document::Quantity;
pub(crate) use run_config::{Overrides, RunConfig};
pub(crate) use run_fault::{RunFault, parse_fault, sort_faults};
pub(crate) use source_section::read_events;

/// A quantity with unit in an option, such as `--rate 10kHz`.
///
/// # Errors
/// What is wrong with the text, and how the quantity is written.
pub(crate) fn parse_quantity<T: Quantity<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|error: T::Err| format!("{}; write {}", error.to_string(), T::ALLOWED))
}

/// A configuration file that was read.
pub(crate) struct Loaded {
    /// Its text.
    pub(crate) text: String,
    /// What it says.
    pub(crate) config: RunConfig,
}

/// Reads a configuration file with the options over it, and its recorded events.
///
/// # Errors
/// The rendered problems, all at once.
pub(crate) fn load(path: &Path, overrides: &Overrides) -> Result<Loaded, String> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let help = "examples/dimuon.toml is a configuration to start from";
        format!("error: cannot read {name}: {error}\nhelp: {help}\n")
    })?;
    let cores = livetime_shm::allowed_cpus();
    let reading = run_config::read(&text, overrides, &cores);
    let Some(mut config) = reading.config else {
        return Err(render::render_problems(
            &name,
            &text,
            &reading.spans,
            &reading.problems,
        ));
    };
    if let Some(events) = &config.events {
        let events = read_events(events).map_err(|error| {
            let help = "docs/formats/recorded-events.md names the columns and their ranges";
            format!("error: recorded events cannot be used\n{error}\nhelp: {help}\n")
        })?;
        config.chain.recorded = Some(events);
    }
    Ok(Loaded { text, config })
}
