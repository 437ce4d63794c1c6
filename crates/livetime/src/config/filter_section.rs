//! The `[filter]` table: the filter units and what they run.

use std::path::PathBuf;

use livetime_builder::BuilderConfig;
use livetime_builder::problem_code::FIRST_STEP;
use livetime_node::process::LossPolicy;
use livetime_node::python_filter::{BATCH_MAX, PythonConfig, default_interpreter};
use livetime_node::{BuilderTransport, FilterConfig};
use livetime_trigger::candidate::LEPTONS_MAX;
use livetime_trigger::problem_code::USER_FILTER;
use livetime_trigger::{
    AlgorithmOptions, EnergyMev, FilterRegistry, FirstStepConfig, MassWindowConfig,
};
use livetime_wire::{DurationNs, Problem};

use super::builder_section::{EVENT_TRANSPORT, ON_LOSS, read_transport};
use super::document::{Findings, Section};
use super::event_menu_section::read_event_menu;
use super::problem_code::OUT_OF_RANGE;
use super::trigger_section::ENERGY;
use crate::extensions;

/// What filter units run.
pub(crate) struct FilterTable {
    /// On whole events.
    pub(crate) filter: FilterConfig,
    /// On the first step of events that are built in two.
    pub(crate) first_step: FirstStepConfig,
    /// What brings events to them.
    pub(crate) transport: BuilderTransport,
}

/// Reads the table. The number of units and their window are part of the builder's configuration.
pub(crate) fn read_filter(
    root: &mut Section<'_, '_>,
    builder: &mut BuilderConfig,
    policy: &mut LossPolicy,
    findings: &Findings,
) -> FilterTable {
    let Some(mut section) = root.section("filter") else {
        return FilterTable {
            filter: FilterConfig::MassWindow(MassWindowConfig::default()),
            first_step: FirstStepConfig::default(),
            transport: BuilderTransport::default(),
        };
    };
    let transport = read_transport(&mut section, &EVENT_TRANSPORT, findings);
    read_units(&mut section, builder, policy);
    if let Some(retries) = section.integer("retries", 0..=100) {
        policy.retries = u32::try_from(retries).unwrap_or(u32::MAX);
    }
    // With no time at all each unit would be killed.
    section.time_above_zero(
        "time_limit",
        &mut policy.time_limit,
        "set it above the time of the worst event, or leave the key out for 10 s",
    );
    if let Some(in_flight) = section.integer("in_flight", 0..=1 << 24) {
        builder.filter_in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
    }
    if let Some(on_loss) = section.choice("on_loss", &ON_LOSS) {
        policy.filter = on_loss;
    }
    // Parameters of a filter that is not chosen are unknown keys: they would change nothing.
    let names = [
        ("mass_window", Kind::MassWindow),
        ("accept_all", Kind::AcceptAll),
        ("menu", Kind::Menu),
        ("user", Kind::User),
        ("python", Kind::Python),
    ];
    let unnamed = match section.has("python") {
        true => Kind::Python,
        false => Kind::MassWindow,
    };
    let name = section.choice("name", &names);
    if name.is_none() && section.has("name") {
        section.pass_over(&KEYS_OF_KINDS);
    }
    let filter = match name.unwrap_or_else(|| match section.has("name") {
        // Nothing is asked of a filter whose name could not be read.
        true => Kind::AcceptAll,
        false => unnamed,
    }) {
        Kind::AcceptAll => FilterConfig::AcceptAll,
        Kind::MassWindow => {
            let mut window = MassWindowConfig::default();
            read_mass_window(&mut section, &mut window);
            FilterConfig::MassWindow(window)
        }
        Kind::Menu => FilterConfig::Menu(Box::new(read_event_menu(&mut section, findings))),
        Kind::User => read_user(&mut section, &extensions::offered().filters, findings),
        Kind::Python => FilterConfig::Python(Box::new(read_python(&mut section, policy))),
    };
    let first_step = read_first_step(&mut section, builder, findings);
    section.finish();
    FilterTable {
        filter,
        first_step,
        transport,
    }
}

/// How many filter units there are, at the start and at most, and how they are divided.
fn read_units(section: &mut Section<'_, '_>, builder: &mut BuilderConfig, policy: &mut LossPolicy) {
    if let Some(units) = section.integer("units", 1..=4096) {
        builder.filter_units = u16::try_from(units).unwrap_or(u16::MAX);
    }
    let at_start = builder.filter_units;
    // What goes with a number that could not be read is not held against the default.
    let is_known = !section.is_unread("units");
    let units_least = if is_known { u64::from(at_start) } else { 1 };
    if let Some(most) = section.integer("units_max", units_least..=4096)
        && most > u64::from(at_start)
    {
        policy.filters_at_start = Some(at_start);
        builder.filter_units = u16::try_from(most).unwrap_or(u16::MAX);
    }
    let subfarms_most = if is_known { u64::from(at_start) } else { 4096 };
    if let Some(subfarms) = section.integer("subfarms", 1..=subfarms_most) {
        builder.subfarms = u16::try_from(subfarms).unwrap_or(u16::MAX);
    }
}

/// The keys that belong to one kind of filter or another.
const KEYS_OF_KINDS: [&str; 13] = [
    "batch",
    "chain",
    "event_limit",
    "interpreter",
    "keep_one_in",
    "mass_max",
    "mass_min",
    "memory_max",
    "options",
    "path",
    "python",
    "streams",
    "wait",
];

/// The selection on the first step: it selects nothing where events are built in one.
fn read_first_step(
    section: &mut Section<'_, '_>,
    builder: &BuilderConfig,
    findings: &Findings,
) -> FirstStepConfig {
    let mut config = FirstStepConfig::default();
    let Some(mut table) = section.section("first_step") else {
        return config;
    };
    let is_said = findings.has_problem_at("builder.first_step");
    if builder.first_step.is_empty() && !is_said {
        findings.report(Problem::new(
            FIRST_STEP,
            section.key_path("first_step"),
            "a selection, and no `[builder] first_step`",
            "a selection where events are built in two steps",
            "name the readout units of the first step in `[builder] first_step`, or leave the table out",
        ));
    }
    let bits = table.integers("l2", 127).unwrap_or_default().into_iter();
    config.l2 = bits.filter_map(|bit| u8::try_from(bit).ok()).collect();
    if let Some(leptons) = table.integer("leptons", 0..=LEPTONS_MAX as u64) {
        config.leptons = usize::try_from(leptons).unwrap_or(usize::MAX);
    }
    if let Some(pt_min) = table.parsed("pt_min", ENERGY, str::parse::<EnergyMev>) {
        config.pt_min_gev = f64::from(pt_min.0) * 1e-3;
        if pt_min < EnergyMev(0) {
            findings.report(Problem::new(
                OUT_OF_RANGE,
                table.key_path("pt_min"),
                pt_min,
                "0 GeV or more",
                "leave the key out for leptons of any transverse momentum",
            ));
        }
    }
    if let Some(one_in) = table.integer("keep_one_in", 0..=u64::from(u32::MAX)) {
        config.keep_one_in = u32::try_from(one_in).unwrap_or(u32::MAX);
    }
    if config.leptons == 0 {
        let help = "remove it, or set `leptons`";
        table.refuse_idle_by(&["leptons"], &["pt_min"], "`pt_min` with `leptons`", help);
    }
    if config.leptons == 0 && config.l2.is_empty() {
        let help = "remove it, or set `l2` or `leptons`: without them every event passes";
        table.refuse_idle_by(
            &["l2", "leptons"],
            &["keep_one_in"],
            "`keep_one_in` with `l2` or `leptons`",
            help,
        );
    }
    table.finish();
    config
}

/// What filter units run, by its name.
#[derive(Debug, Clone, Copy)]
enum Kind {
    AcceptAll,
    MassWindow,
    Menu,
    User,
    Python,
}

/// A chain of stages of this program, by its name.
fn read_user(
    section: &mut Section<'_, '_>,
    registry: &FilterRegistry,
    findings: &Findings,
) -> FilterConfig {
    section.require("chain", "the name of a chain of stages of this program");
    let mut event_limit = DurationNs(0);
    section.quantity("event_limit", &mut event_limit);
    let options = AlgorithmOptions::new(section.text_entries("options"));
    let Some(name) = section.text("chain") else {
        return FilterConfig::AcceptAll;
    };
    let (found, allowed) = match registry.make(&name, &options, event_limit) {
        Some(Ok(filter)) => return FilterConfig::User(Box::new(filter)),
        Some(Err(error)) => (error.to_string(), "the options of the chain".to_owned()),
        None => {
            let names: Vec<_> = registry.names().collect();
            let allowed = match names.as_slice() {
                [] => "none: this program was built without filters of users".to_owned(),
                names => names.join(", "),
            };
            (format!("\"{name}\""), allowed)
        }
    };
    findings.report(Problem::new(
        USER_FILTER,
        section.key_path("chain"),
        found,
        allowed,
        "examples/algorithm shows a program with a chain of stages and its options",
    ));
    FilterConfig::AcceptAll
}

const FUNCTION: &str = "a file and a function in it, such as \"my_filter.py:select\"";

fn read_python(section: &mut Section<'_, '_>, policy: &LossPolicy) -> PythonConfig {
    section.require("python", FUNCTION);
    let split = |text: &str| -> Result<(PathBuf, String), &'static str> {
        let (file, function) = text.rsplit_once(':').ok_or("there is no colon in it")?;
        Ok((PathBuf::from(file), function.to_owned()))
    };
    // One that is not there or none is said once: nothing more is to be found in its place.
    let (file, function) = section
        .parsed("python", FUNCTION, split)
        .unwrap_or_else(|| (PathBuf::from("filter.py"), "select".to_owned()));
    let mut python = PythonConfig::new(file, function);
    python.interpreter = default_interpreter();
    if let Some(interpreter) = section.plain_text("interpreter") {
        python.interpreter = PathBuf::from(interpreter);
    }
    if let Some(batch) = section.integer("batch", 1..=BATCH_MAX as u64) {
        python.batch = usize::try_from(batch).ok();
    }
    let mut wait = DurationNs(u64::MAX);
    section.quantity("wait", &mut wait);
    python.wait = Some(wait).filter(|wait| wait.0 != u64::MAX);
    if let Some(streams) = section.texts("streams") {
        python.streams = streams;
    }
    section.quantity("memory_max", &mut python.memory_max);
    (python.retries, python.time_limit) = (policy.retries, policy.time_limit);
    python
}

fn read_mass_window(section: &mut Section<'_, '_>, window: &mut MassWindowConfig) {
    let (mut edges, mut are_read) = ([window.mass_min_gev, window.mass_max_gev], true);
    for (key, edge) in ["mass_min", "mass_max"].into_iter().zip(&mut edges) {
        match section.parsed(key, ENERGY, str::parse::<EnergyMev>) {
            Some(energy) => *edge = f64::from(energy.0) * 1e-3,
            None => are_read &= !section.has(key),
        }
    }
    // Beside the default of one that could not be read the other may seem to be wrong.
    if are_read {
        [window.mass_min_gev, window.mass_max_gev] = edges;
    }
    if let Some(one_in) = section.integer("keep_one_in", 0..=u64::from(u32::MAX)) {
        window.keep_one_in = u32::try_from(one_in).unwrap_or(u32::MAX);
    }
}
