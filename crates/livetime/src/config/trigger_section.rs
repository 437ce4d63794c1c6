//! The `[trigger]` table: beam spot, supervisor and the Level-2 menu.

use livetime_source::SourceConfig;
use livetime_trigger::{
    BeamSpot, ChargeRule, Cut, DimuonCut, MenuConfig, PathConfig, SingleMuonCut, Sixteenths,
    SupervisorConfig, TwoTrackCut,
};
use livetime_wire::Problem;
use livetime_wire::trigger_packet::MuonStub;

use super::document::{Findings, Section};
use super::problem_code::{BEAM_SPOT, OUT_OF_RANGE};

pub(crate) const ENERGY: &str = "an energy with unit in quotes, such as \"1.5 GeV\" (MeV, GeV)";
pub(crate) const LENGTH: &str = "a length with unit in quotes, such as \"120 um\" (um, mm, cm)";
const ANGLE: &str = "an angle with unit in quotes, such as \"90 deg\" (mdeg, deg)";
const TYPES: [(&str, u32); 4] = [
    ("CMU", MuonStub::CMU),
    ("CMP", MuonStub::CMP),
    ("CMX", MuonStub::CMX),
    ("BMU", MuonStub::BMU),
];
const CHARGES: [(&str, ChargeRule); 3] = [
    ("opposite", ChargeRule::Opposite),
    ("same", ChargeRule::Same),
    ("any", ChargeRule::Any),
];

/// The cuts by name, before their thresholds are read.
#[derive(Debug, Clone, Copy)]
enum CutName {
    Auto,
    MinBias,
    SingleMuon,
    Dimuon,
    TwoTrack,
}

const CUTS: [(&str, CutName); 5] = [
    ("auto", CutName::Auto),
    ("min_bias", CutName::MinBias),
    ("single_muon", CutName::SingleMuon),
    ("dimuon", CutName::Dimuon),
    ("two_track", CutName::TwoTrack),
];

/// The table's parts, which go to three cores.
#[derive(Debug)]
pub(crate) struct TriggerTable {
    /// The Level-2 menu.
    pub(crate) menu: MenuConfig,
    /// The key path of each of its paths.
    pub(crate) path_keys: Vec<String>,
    /// The supervisor.
    pub(crate) supervisor: SupervisorConfig,
    /// Most words of a trigger packet.
    pub(crate) packet_words_max: usize,
}

/// Reads the table.
pub(crate) fn read_trigger(root: &mut Section<'_, '_>, findings: &Findings) -> TriggerTable {
    let mut table = TriggerTable {
        menu: MenuConfig::default(),
        path_keys: Vec::new(),
        supervisor: SupervisorConfig::default(),
        packet_words_max: SourceConfig::default().packet_words_max,
    };
    let Some(mut trigger) = root.section("trigger") else {
        return table;
    };
    let supervisor = &mut table.supervisor;
    if let Some(buffers) = trigger.integer("l2_buffers", 1..=4) {
        supervisor.l2_buffers = u8::try_from(buffers).unwrap_or(4);
    }
    trigger.quantity("deadline", &mut supervisor.deadline);
    trigger.quantity("decision_timeout", &mut supervisor.decision_timeout);
    if let Some(queue) = trigger.integer("output_queue", 2..=65_536) {
        supervisor.output_queue = queue as usize;
    }
    if let Some(words) = trigger.integer("packet_words_max", 10..=65_535) {
        table.packet_words_max = words as usize;
    }
    read_menu(&mut trigger, &mut table, findings);
    trigger.finish();
    table
}

/// Reads `beam_spot` and the `path` tables; the default paths stay when none can be read.
fn read_menu(trigger: &mut Section<'_, '_>, table: &mut TriggerTable, findings: &Findings) {
    if let Some(spot) = read_beam_spot(trigger, findings) {
        table.menu.beam_spot = spot;
    }
    if !trigger.has("path") {
        return;
    }
    let sections = trigger.sections("path");
    let is_empty = sections.is_empty();
    let mut paths = Vec::new();
    for section in sections {
        let key = section.path().to_owned();
        if let Some(path) = read_path(section, findings) {
            paths.push(path);
            table.path_keys.push(key);
        }
    }
    // A menu that is empty only because its paths have problems is not a problem of its own.
    if is_empty || !paths.is_empty() {
        table.menu.paths = paths;
    }
}

fn read_beam_spot(trigger: &mut Section<'_, '_>, findings: &Findings) -> Option<BeamSpot> {
    let texts = trigger.texts("beam_spot")?;
    let spot = match texts.as_slice() {
        [x, y] => x
            .parse()
            .ok()
            .zip(y.parse().ok())
            .map(|(x, y)| BeamSpot { x, y }),
        _ => None,
    };
    if spot.is_none() {
        findings.report(Problem::new(
            BEAM_SPOT,
            trigger.key_path("beam_spot"),
            format!("{texts:?}"),
            "two lengths x and y, such as [\"746 um\", \"422 um\"]",
            "write the position of the beam, or remove the key for (0, 0)",
        ));
    }
    spot
}

fn read_path(mut section: Section<'_, '_>, findings: &Findings) -> Option<PathConfig> {
    for (key, allowed) in [
        ("name", "a name for reports"),
        ("bit", "a bit of the decision, 0 to 127"),
        ("l1", "a list of Level-1 bits, such as [3]"),
        ("cut", "auto, dimuon, min_bias, single_muon or two_track"),
    ] {
        section.require(key, allowed);
    }
    let name = section.text("name");
    let bit = section.integer("bit", 0..=127);
    let l1 = section.integers("l1", 63);
    let prescale = section
        .integer("prescale", 1..=u64::from(u32::MAX))
        .unwrap_or(1);
    let cut = section.choice("cut", &CUTS);
    let cut = cut.and_then(|cut| read_cut(cut, &mut section, findings));
    section.finish();
    Some(PathConfig {
        name: name?,
        bit: u8::try_from(bit?).ok()?,
        l1_mask: l1?.into_iter().fold(0, |mask, bit| mask | 1 << bit),
        cut: cut?,
        prescale: u32::try_from(prescale).ok()?,
    })
}

fn read_cut(cut: CutName, section: &mut Section<'_, '_>, findings: &Findings) -> Option<Cut> {
    Some(match cut {
        CutName::Auto => Cut::Auto,
        CutName::MinBias => Cut::MinBias,
        CutName::SingleMuon => {
            section.require("pt_min", ENERGY);
            let types = read_types(section, findings);
            let pt_min = section.parsed("pt_min", ENERGY, str::parse)?;
            Cut::SingleMuon(SingleMuonCut { types, pt_min })
        }
        CutName::Dimuon => {
            section.require("pt_min", ENERGY);
            let types = read_types(section, findings);
            let charge = section
                .choice("charge", &CHARGES)
                .unwrap_or(ChargeRule::Opposite);
            let pt_min = section.parsed("pt_min", ENERGY, str::parse)?;
            Cut::Dimuon(DimuonCut {
                types,
                pt_min,
                charge,
            })
        }
        CutName::TwoTrack => Cut::TwoTrack(read_two_track(section, findings)?),
    })
}

fn read_types(section: &mut Section<'_, '_>, findings: &Findings) -> u32 {
    let names = section.texts("types").unwrap_or_default();
    let mut mask = 0;
    for name in names {
        match TYPES.iter().find(|(known, _)| *known == name) {
            Some((_, bit)) => mask |= bit,
            None => findings.report(Problem::new(
                OUT_OF_RANGE,
                section.key_path("types"),
                format!("\"{name}\""),
                "CMU, CMP, CMX, BMU",
                "list the chambers that must all have seen the muon",
            )),
        }
    }
    mask
}

fn read_two_track(section: &mut Section<'_, '_>, findings: &Findings) -> Option<TwoTrackCut> {
    for (key, allowed) in [
        ("pt_min", ENERGY),
        ("sum_pt_min", ENERGY),
        ("dphi_min", ANGLE),
        ("dphi_max", ANGLE),
        ("d_min", LENGTH),
        ("d_max", LENGTH),
        ("lxy_min", LENGTH),
    ] {
        section.require(key, allowed);
    }
    let pt_min = section.parsed("pt_min", ENERGY, str::parse);
    let sum_pt_min = section.parsed("sum_pt_min", ENERGY, str::parse);
    let dphi_min = section.parsed("dphi_min", ANGLE, str::parse);
    let dphi_max = section.parsed("dphi_max", ANGLE, str::parse);
    let d_min = section.parsed("d_min", LENGTH, str::parse);
    let d_max = section.parsed("d_max", LENGTH, str::parse);
    let lxy_min = section.parsed("lxy_min", LENGTH, str::parse);
    let d_pair_max = section.parsed("d_pair_max", LENGTH, str::parse);
    let charge = section
        .choice("charge", &CHARGES)
        .unwrap_or(ChargeRule::Opposite);
    let chi2 = section.number("chi2_max", 0.0625..=128.0).unwrap_or(25.0);
    let sixteenths = chi2 * 16.0;
    if sixteenths.fract() != 0.0 {
        findings.report(Problem::new(
            OUT_OF_RANGE,
            section.key_path("chi2_max"),
            chi2,
            "a multiple of 1/16",
            "use a value that the packet's chi2 field can hold exactly",
        ));
        return None;
    }
    Some(TwoTrackCut {
        pt_min: pt_min?,
        sum_pt_min: sum_pt_min?,
        chi2_max: Sixteenths(sixteenths as i32),
        charge,
        dphi_min: dphi_min?,
        dphi_max: dphi_max?,
        d_min: d_min?,
        d_max: d_max?,
        lxy_min: lxy_min?,
        d_pair_max,
    })
}
