//! The configuration: TOML with places, to typed values, to problems rendered for people.
//!
//! `document.rs` knows TOML and units, the sections what the tables mean, `run_config.rs` how they
//! fit together, `render.rs` how problems look. The cores check their own values.

#[cfg(test)]
mod any_text;
mod builder_scenario;
mod builder_section;
mod cut_section;
mod document;
mod event_menu_section;
mod exact_time;
mod filter_section;
mod governed_keys;
mod host_section;
mod link_fault;
mod link_section;
mod named_files;
mod problem_code;
mod render;
mod run_config;
mod run_fault;
mod run_notes;
mod scenario;
mod shaping_keys;
mod source_section;
mod store_section;
mod timing_section;
mod trigger_section;
mod worker_section;

use std::io::ErrorKind;
use std::path::Path;

pub(crate) use builder_scenario::{BUS_ALLOWED, BUS_RATES};
use document::Quantity;
#[cfg(feature = "cluster")]
pub(crate) use host_section::HostConfig;
pub(crate) use host_section::{HostLauncher, HostTable};
use livetime_node::ChainSpill;
use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use named_files::UnreadEvents;
use run_config::Reading;
pub(crate) use run_config::{Overrides, RunConfig};
pub(crate) use run_fault::{RunFault, parse_fault, sort_faults};
pub(crate) use run_notes::{making_note, memory_note, processes_note, run_notes};
pub(crate) use scenario::{
    LoadedScenario, ScenarioOverrides, is_scenario, load_scenario, parse_bit_rate, read_scenario,
};

/// What is said where events are to be made that front-ends of users send.
pub(crate) const NO_EVENTS_OF_OUR_OWN: &str = "its events are those of front-ends (`kind = \"external\"`), and none is made here\nhelp: write \
     `kind = \"physics\"` or `\"recorded\"` in `[[source]]`";

/// The spill structure of a configuration's text; `None` without one, or if the text has problems.
pub(crate) fn spill_of(text: &str) -> Option<ChainSpill> {
    // As many cores as any placement may name: where the run's workers were does not matter here.
    let cores: Vec<usize> = (0..4096).collect();
    let reading = run_config::read(text, &Overrides::of_taken_run(), &cores);
    reading.config?.chain.spill
}

/// A quantity with unit in an option, such as `--rate 10kHz`.
///
/// # Errors
/// What is wrong with the text, and how the quantity is written.
pub(crate) fn parse_quantity<T: Quantity>(text: &str) -> Result<T, String> {
    T::read(text).map_err(|error| format!("{error}; write {}", T::IN_OPTION))
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
    let (name, text) = read_file(path)?;
    let reading = run_config::read(&text, overrides, &livetime_shm::allowed_cpus());
    finish(&name, text, reading)
}

/// The same without its recorded events.
///
/// # Errors
/// As there.
pub(crate) fn load_without_events(path: &Path, overrides: &Overrides) -> Result<Loaded, String> {
    let (name, text) = read_file(path)?;
    let mut reading = run_config::read(&text, overrides, &livetime_shm::allowed_cpus());
    reading.files.leave_events_out();
    finish(&name, text, reading)
}

/// As [`load`], with a look at the other files that it names, which a run opens; returns what is to be
/// known of these as well.
///
/// # Errors
/// The rendered problems of the configuration and of the files, all at once.
pub(crate) fn load_with_files(
    path: &Path,
    overrides: &Overrides,
) -> Result<(Loaded, Vec<String>), String> {
    let (name, text) = read_file(path)?;
    judge_with_files(&name, text, overrides)
}

/// As [`load_with_files`], of a text that was read already; `name` is its file's.
///
/// # Errors
/// As there.
pub(crate) fn judge_with_files(
    name: &str,
    text: String,
    overrides: &Overrides,
) -> Result<(Loaded, Vec<String>), String> {
    let mut reading = run_config::read(&text, overrides, &livetime_shm::allowed_cpus());
    let (notes, problems) = reading.files.check();
    reading.add(problems);
    let in_processes = |config: &RunConfig| config.processes || !config.hosts.hosts.is_empty();
    if overrides.processes || reading.config.as_ref().is_some_and(in_processes) {
        reading.files.expect_another_reader();
    }
    Ok((finish(name, text, reading)?, notes))
}

/// The text of a file that people wrote. The mark of its encoding, which some editors put in front, is
/// no part of it: a line that is put before the text would have it in its middle.
fn read_marked(path: &Path) -> std::io::Result<String> {
    let mut text = plain_file::read_text_from_any(path, TEXT_BYTES_MAX)?;
    if text.starts_with('\u{feff}') {
        drop(text.drain(..'\u{feff}'.len_utf8()));
    }
    Ok(text)
}

/// The text of a file with a configuration or a scenario, read once: of a pipe there is no second time.
///
/// # Errors
/// Why it cannot be read, rendered.
pub(crate) fn read_config(path: &Path) -> Result<String, String> {
    read_marked(path).map_err(|error| {
        let name = path.display();
        let help = match error.kind() {
            ErrorKind::InvalidData => {
                "a configuration is text in UTF-8: save the file in that encoding"
            }
            _ => "examples/dimuon.toml is a configuration to start from",
        };
        format!("error: cannot read {name}: {error}\nhelp: {help}\n")
    })
}

/// The name and the text of a file that is to be a run's configuration.
fn read_file(path: &Path) -> Result<(String, String), String> {
    let (name, text) = (path.display().to_string(), read_config(path)?);
    if is_scenario(&text) {
        return Err(format!(
            "error: {name} is the scenario of a network, not the configuration of a run\nhelp: \
             `livetime sim run {name}` simulates it; examples/dimuon.toml is a configuration to \
             start from\n"
        ));
    }
    Ok((name, text))
}

/// The configuration with its recorded events, if neither has a problem.
fn finish(name: &str, text: String, mut reading: Reading) -> Result<Loaded, String> {
    let (events, mut said) = match reading.files.read_events() {
        Ok(events) => (events, String::new()),
        Err(UnreadEvents::Unopened(problem)) => {
            reading.add(vec![*problem]);
            (None, String::new())
        }
        Err(UnreadEvents::Bad(problem, text)) => {
            reading.add(problem.map(|problem| *problem).into_iter().collect());
            (None, text)
        }
    };
    if !reading.problems.is_empty() {
        said.insert_str(0, &render(name, &text, &reading));
    }
    match reading.config.filter(|_| said.is_empty()) {
        Some(mut config) => {
            config.chain.recorded = events;
            Ok(Loaded { text, config })
        }
        None => Err(said),
    }
}

fn render(name: &str, text: &str, reading: &Reading) -> String {
    render::render_problems(name, text, &reading.spans, &reading.problems)
}

/// Renders problems that were found after reading, at the keys of the configuration.
#[cfg(feature = "cluster")]
pub(crate) fn render_later(path: &Path, text: &str, problems: &[livetime_wire::Problem]) -> String {
    let cores = livetime_shm::allowed_cpus();
    let reading = run_config::read(text, &Overrides::default(), &cores);
    let name = path.display().to_string();
    render::render_problems(&name, text, &reading.spans, problems)
}

/// Reads a configuration from its text; files that it names are not opened.
///
/// # Errors
/// The rendered problems, all at once; `name` is the file's.
pub(crate) fn read_text(
    name: &str,
    text: &str,
    overrides: &Overrides,
) -> Result<RunConfig, String> {
    let cores = livetime_shm::allowed_cpus();
    let reading = run_config::read(text, overrides, &cores);
    match reading.config {
        Some(config) => Ok(config),
        None => Err(render(name, text, &reading)),
    }
}
