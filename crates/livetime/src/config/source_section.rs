//! The `[[source]]` table: when triggers come and what their events are made of, or where front-ends
//! send both.

use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use livetime_node::front_end_server::FrontEndServerConfig;
use livetime_source::{ArrivalKind, OfferMode, RecordedEvents, SourceConfig};
use livetime_trigger::LengthUm;
use livetime_wire::Problem;

use super::document::{Findings, Section};
use super::problem_code::ONE_OF;
use super::trigger_section::LENGTH;

/// What a source makes its events from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceKind {
    Physics,
    Recorded,
    /// Front-ends of users send them.
    External,
}

const KINDS: [(&str, SourceKind); 3] = [
    ("physics", SourceKind::Physics),
    ("recorded", SourceKind::Recorded),
    ("external", SourceKind::External),
];
/// What an address of a socket looks like.
const ADDRESS: &str =
    "an IP address and a port from 1 to 65535, such as \"127.0.0.1:9870\" or \"[::1]:9870\"";

/// What the `[[source]]` table says beside the configuration of a source.
#[derive(Debug, Default)]
pub(crate) struct SourceTable {
    /// Its key path.
    pub(crate) path: String,
    /// The recorded events that it names.
    pub(crate) events: Option<PathBuf>,
    /// Where front-ends send.
    pub(crate) front_ends: Option<FrontEndServerConfig>,
}
const ARRIVALS: [(&str, ArrivalKind); 2] = [
    ("poisson", ArrivalKind::Poisson),
    ("periodic", ArrivalKind::FixedGap),
];

/// Reads the one `[[source]]` table.
///
/// Of several tables all are read, for the sake of their problems. `has_events` says that an option
/// names the recorded events.
pub(crate) fn read_source(
    root: &mut Section<'_, '_>,
    config: &mut SourceConfig,
    has_events: bool,
    findings: &Findings,
) -> SourceTable {
    let sources = root.sections("source");
    if sources.len() != 1 {
        let found = format!("there {} times", sources.len());
        let help = "write one `[[source]]` table; it feeds all links";
        findings.report(Problem::new(ONE_OF, "source", found, "exactly once", help));
    }
    let tables = sources.into_iter();
    let read = tables.map(|table| read_table(table, config, has_events));
    read.last().unwrap_or_else(|| SourceTable {
        path: "source".to_owned(),
        ..SourceTable::default()
    })
}

fn read_table(
    mut source: Section<'_, '_>,
    config: &mut SourceConfig,
    has_events: bool,
) -> SourceTable {
    let mut table = SourceTable {
        path: source.path().to_owned(),
        ..SourceTable::default()
    };
    let kind = source.choice("kind", &KINDS);
    if kind.is_none() && source.has("kind") {
        source.pass_over(&["events", "listen", "datagrams", "queue", "wait"]);
    }
    // With generated events the key is an unknown one: it would change nothing.
    if kind == Some(SourceKind::Recorded) {
        if !has_events {
            source.require("events", "the path of a CSV file of recorded events");
        }
        table.events = source.plain_text("events").map(PathBuf::from);
    }
    if kind == Some(SourceKind::External) {
        table.front_ends = Some(read_front_ends(&mut source));
        config.triggers.mode = OfferMode::Lossless;
        config.triggers.arrival.kind = ArrivalKind::Unpaced;
        // What pages are planned for.
        if let Some(mut fragment) = source.section("fragment") {
            fragment.quantity("bytes_mean", &mut config.fragment.bytes_mean);
            fragment.quantity("bytes_max", &mut config.fragment.bytes_max);
            fragment.finish();
        }
        source.finish();
        return table;
    }
    read_generated(&mut source, config);
    source.finish();
    table
}

/// Where front-ends send, and how long they are waited for. When triggers come and what is in them is
/// theirs: keys that say so of our own sources are unknown here.
fn read_front_ends(source: &mut Section<'_, '_>) -> FrontEndServerConfig {
    let mut config = FrontEndServerConfig::default();
    if !source.has("datagrams") {
        let allowed = format!("{ADDRESS}, or `datagrams` with one");
        source.require("listen", &allowed);
    }
    config.listen = source.parsed("listen", ADDRESS, read_address);
    config.datagrams = source.parsed("datagrams", ADDRESS, read_address);
    // What they may be is for the events themselves to say.
    if let Some(queue) = source.integer("queue", 0..=u64::from(u32::MAX)) {
        config.events.queue = queue as u32;
    }
    source.quantity("wait", &mut config.events.wait);
    config
}

/// An address that front-ends are told before the run: with port 0 the system would choose one then.
fn read_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => {
            Err("port 0, which no front-end could be told".to_owned())
        }
        Ok(address) => Ok(address),
        Err(error) => Err(error.to_string()),
    }
}

/// What our own sources draw, and when.
fn read_generated(source: &mut Section<'_, '_>, config: &mut SourceConfig) {
    let triggers = &mut config.triggers;
    source.quantity("rate", &mut triggers.arrival.rate);
    if let Some(kind) = source.choice("arrival", &ARRIVALS) {
        triggers.arrival.kind = kind;
    }
    source.time_above_zero(
        "lateness_max",
        &mut triggers.lateness_max,
        "set it to the time for which a front-end keeps its data: with none each trigger comes too late",
    );
    if let Some(mut fragment) = source.section("fragment") {
        fragment.quantity("bytes_mean", &mut config.fragment.bytes_mean);
        fragment.quantity("bytes_max", &mut config.fragment.bytes_max);
        if let Some(sigma) = fragment.number("log_sigma", 0.0..=2.0) {
            config.fragment.log_sigma = sigma;
        }
        fragment.finish();
    }
    if let Some(physics) = source.section("physics") {
        read_physics(physics, config);
    }
}

fn read_physics(mut section: Section<'_, '_>, config: &mut SourceConfig) {
    let physics = &mut config.physics;
    for (key, field) in [
        ("z_fraction", &mut physics.z_fraction),
        ("continuum_fraction", &mut physics.continuum_fraction),
        ("displaced_fraction", &mut physics.displaced_fraction),
        ("single_muon_fraction", &mut physics.single_muon_fraction),
        ("calorimeter_fraction", &mut physics.calorimeter_fraction),
        ("empty_fraction", &mut physics.empty_fraction),
        ("many_objects_fraction", &mut physics.many_objects_fraction),
    ] {
        *field = section.number(key, 0.0..=1.0).unwrap_or(*field);
    }
    for (key, field) in [
        ("soft_tracks_mean", &mut physics.soft_tracks_mean),
        ("soft_jets_mean", &mut physics.soft_jets_mean),
    ] {
        *field = section.number(key, 0.0..=60.0).unwrap_or(*field);
    }
    for (key, field) in [
        ("beam_x", &mut physics.beam_mm.0),
        ("beam_y", &mut physics.beam_mm.1),
    ] {
        if let Some(LengthUm(um)) = section.parsed(key, LENGTH, str::parse) {
            *field = f64::from(um) * 1e-3;
        }
    }
    section.finish();
}

/// Reads recorded events.
///
/// # Errors
/// Every problem of the file with line and column.
pub(crate) fn read_events(path: &Path) -> Result<RecordedEvents, String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    RecordedEvents::read(BufReader::new(file))
        .map_err(|error| format!("{}: {error}", path.display()))
}
