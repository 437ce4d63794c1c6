//! The Level-3 menu under `[filter]`: its streams and its `[[filter.path]]` tables.
//!
//! In the style of the Level-2 menu, see [`super::trigger_section`]; what is around it is in
//! [`super::filter_section`].

use livetime_trigger::{CandidateCut, EnergyMev, EventCut, EventMenuConfig, EventPathConfig};
use livetime_wire::Problem;

use super::document::{Findings, Section};
use super::problem_code::BAD_CHOICE;
use super::trigger_section::{ENERGY, LENGTH};

/// The cuts by name.
const CUTS: [(&str, Kind); 5] = [
    ("all", Kind::All),
    ("dimuon", Kind::Dimuon),
    ("four_lepton", Kind::FourLepton),
    ("muons", Kind::Muons),
    ("electrons", Kind::Electrons),
];

/// The keys that belong to one cut or another.
const KEYS_OF_CUTS: [&str; 5] = ["count", "mass_max", "mass_min", "pt_min", "vertex_max"];

#[derive(Debug, Clone, Copy)]
enum Kind {
    All,
    Dimuon,
    FourLepton,
    Muons,
    Electrons,
}

/// Reads the menu.
pub(crate) fn read_event_menu(
    section: &mut Section<'_, '_>,
    findings: &Findings,
) -> EventMenuConfig {
    let mut menu = EventMenuConfig::default();
    if let Some(streams) = section.texts("streams") {
        menu.streams = streams;
    }
    // Of a list that could not be read no path is told that its stream is not in it.
    let are_known = !section.is_unread("streams");
    if !are_known {
        menu.streams = vec!["unread".to_owned()];
    }
    section.quantity("event_limit", &mut menu.event_limit);
    for mut path in section.sections("path") {
        let streams = are_known.then_some(&menu.streams[..]);
        menu.paths.push(read_path(&mut path, streams, findings));
        path.finish();
    }
    menu
}

/// Reads a path. What stands for a value that could not be read is right, so that the others are
/// judged.
fn read_path(
    path: &mut Section<'_, '_>,
    streams: Option<&[String]>,
    findings: &Findings,
) -> EventPathConfig {
    path.require("name", "a name for counters, such as \"Z\"");
    path.require("cut", "what the path asks for, such as \"dimuon\"");
    let name = path.text("name");
    let cut = path.choice("cut", &CUTS);
    let prescale = path.integer("prescale", 1..=u64::from(u32::MAX));
    let l2 = path.integers("l2", 127).unwrap_or_default();
    let bits = match streams {
        Some(streams) => read_streams(path, streams, findings),
        None => path.texts("streams").map(|_| vec![0]),
    };
    if cut.is_none() {
        path.pass_over(&KEYS_OF_CUTS);
    }
    let cut = match cut {
        None | Some(Kind::All) => EventCut::All,
        Some(Kind::Dimuon) => EventCut::Dimuon(read_candidate(path)),
        Some(Kind::FourLepton) => EventCut::FourLepton(read_candidate(path)),
        Some(Kind::Muons) => {
            let (count, pt) = read_leptons(path);
            EventCut::Muons(count, pt)
        }
        Some(Kind::Electrons) => {
            let (count, pt) = read_leptons(path);
            EventCut::Electrons(count, pt)
        }
    };
    let name = name.unwrap_or_else(|| {
        let letters = path.path().chars().filter(char::is_ascii_alphanumeric);
        letters.collect()
    });
    EventPathConfig {
        name,
        cut,
        l2: l2
            .into_iter()
            .filter_map(|bit| u8::try_from(bit).ok())
            .collect(),
        prescale: prescale.map_or(1, |factor| factor as u32),
        streams: bits.unwrap_or_else(|| vec![0]),
    }
}

/// The bits of the streams that a path names; `None` if one is not in the list.
fn read_streams(
    path: &mut Section<'_, '_>,
    streams: &[String],
    findings: &Findings,
) -> Option<Vec<u8>> {
    let mut bits = Vec::new();
    let mut known = true;
    for name in path.texts("streams").unwrap_or_default() {
        match streams.iter().position(|stream| *stream == name) {
            Some(bit) => bits.push(bit as u8),
            None => {
                known = false;
                findings.report(Problem::new(
                    BAD_CHOICE,
                    path.key_path("streams"),
                    format!("\"{name}\""),
                    format!("names of `[filter] streams`: {}", streams.join(", ")),
                    "add the stream to `[filter] streams`, or name another",
                ));
            }
        }
    }
    known.then_some(bits)
}

fn gev(path: &mut Section<'_, '_>, key: &'static str) -> Option<f64> {
    let energy: EnergyMev = path.parsed(key, ENERGY, str::parse)?;
    Some(f64::from(energy.0) * 1e-3)
}

fn read_candidate(path: &mut Section<'_, '_>) -> CandidateCut {
    let mut cut = CandidateCut::default();
    for (key, field) in [
        ("mass_min", &mut cut.mass_min_gev),
        ("mass_max", &mut cut.mass_max_gev),
        ("pt_min", &mut cut.pt_min_gev),
    ] {
        if let Some(value) = gev(path, key) {
            *field = value;
        }
    }
    let vertex = path.parsed(
        "vertex_max",
        LENGTH,
        str::parse::<livetime_trigger::LengthUm>,
    );
    if let Some(vertex) = vertex {
        cut.vertex_max_cm = f64::from(vertex.0) * 1e-4;
    }
    cut
}

fn read_leptons(path: &mut Section<'_, '_>) -> (usize, f64) {
    let count = path.integer("count", 1..=64).unwrap_or(1) as usize;
    (count, gev(path, "pt_min").unwrap_or(0.0))
}
