//! The `[trigger]` table: beam spot, supervisor and the Level-2 menu.
//!
//! Paths, prescales and what holds for the whole menu are read here, the cuts of the paths in
//! [`super::cut_section`].

use livetime_source::SourceConfig;
use livetime_trigger::packet_merger::INPUTS_MAX;
use livetime_trigger::path::BITS;
use livetime_trigger::problem_code::FIRE_INTERVAL;
use livetime_trigger::{
    BeamFitConfig, BeamSpot, Cut, MenuConfig, MergerConfig, PathConfig, Prescale, SupervisorConfig,
};
use livetime_wire::{DurationNs, Problem};

use super::cut_section::{CUTS, CutReader, KEYS_OF_CUTS};
use super::document::{Findings, Quantity as _, Section};
use super::problem_code::{BEAM_SPOT, BOTH_KEYS, IDLE_KEY, OUT_OF_RANGE};
use crate::extensions;

/// Most decision nodes.
const NODES_MAX: u64 = 16;

pub(crate) const ENERGY: &str =
    "an energy with unit in quotes, such as \"1.5 GeV\" (keV, MeV, GeV, TeV)";
pub(crate) const LENGTH: &str =
    "a length with unit in quotes, such as \"120 um\" (nm, um, mm, cm, m)";

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
    /// Decision nodes.
    pub(crate) nodes: u16,
    /// The merger in front of each.
    pub(crate) merger: MergerConfig,
}

/// Reads the table.
pub(crate) fn read_trigger(root: &mut Section<'_, '_>, findings: &Findings) -> TriggerTable {
    let mut table = TriggerTable {
        menu: MenuConfig::default(),
        path_keys: Vec::new(),
        supervisor: SupervisorConfig::default(),
        packet_words_max: SourceConfig::default().packet_words_max,
        nodes: 1,
        merger: MergerConfig::NONE,
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
    read_nodes(&mut trigger, &mut table);
    read_menu(&mut trigger, &mut table, findings);
    trigger.finish();
    table
}

/// Reads how many nodes there are, and how many inputs each has.
fn read_nodes(trigger: &mut Section<'_, '_>, table: &mut TriggerTable) {
    if let Some(nodes) = trigger.integer("nodes", 1..=NODES_MAX) {
        table.nodes = u16::try_from(nodes).unwrap_or(1);
    }
    if let Some(inputs) = trigger.integer("inputs", 1..=INPUTS_MAX as u64) {
        table.merger.inputs = inputs as usize;
    }
    trigger.quantity("merge_timeout", &mut table.merger.timeout);
    let decision_timeout = table.supervisor.decision_timeout;
    let are_read = !["merge_timeout", "decision_timeout"]
        .map(|key| trigger.is_unread(key))
        .contains(&true);
    if are_read && table.merger.inputs > 1 && table.merger.timeout >= decision_timeout {
        trigger.report(Problem::new(
            OUT_OF_RANGE,
            trigger.key_path("merge_timeout"),
            table.merger.timeout,
            format!("less than `decision_timeout`, {decision_timeout}"),
            "set both so that the merger gives up first, or no trigger is ever closed by it",
        ));
    }
    if table.merger.inputs == 1 {
        let help = "remove it, or set `inputs` to the number of parts of a trigger";
        trigger.refuse_idle_by(
            &["inputs"],
            &["merge_timeout"],
            "`merge_timeout` with two `inputs`",
            help,
        );
    }
}

/// Reads `beam_spot` and the `path` tables; the default paths stay when none can be read.
fn read_menu(trigger: &mut Section<'_, '_>, table: &mut TriggerTable, findings: &Findings) {
    if let Some(spot) = read_beam_spot(trigger, findings) {
        table.menu.beam_spot = spot;
    }
    read_menu_wide(trigger, &mut table.menu, findings);
    if !trigger.has("path") {
        refuse_idle(trigger, &table.menu.paths);
        return;
    }
    let sections = trigger.sections("path");
    let (mut paths, mut are_good) = (Vec::new(), true);
    for section in sections {
        let key = section.path().to_owned();
        paths.push(read_path(section, findings));
        are_good &= !findings.has_problem_within(&key);
        table.path_keys.push(key);
    }
    give_bits(&mut paths);
    if !trigger.has("luminosity") {
        refuse_unknown_luminosity(trigger, &paths, &table.path_keys);
    }
    // A path with problems may be the one that needs a key.
    if are_good {
        refuse_idle(trigger, &paths);
    }
    // Of paths that are no tables it was said; that there is none would not be true.
    let are_tables = !findings.has_problem_at(&trigger.key_path("path"));
    if are_tables {
        table.menu.paths = paths;
    }
}

/// Reports keys of the whole menu that none of its paths looks at.
fn refuse_idle(trigger: &mut Section<'_, '_>, paths: &[PathConfig]) {
    let has_steps = paths.iter().any(|path| path.prescale.steps.len() > 1);
    let has_limit = paths
        .iter()
        .any(|path| path.prescale.luminosity_max.is_some());
    let of_steps = ["dead_time_window", "dead_time_high", "dead_time_low"].as_slice();
    for (is_used, keys, needed) in [
        (has_steps, of_steps, "`prescales` with two factors or more"),
        (has_limit, &["luminosity"], "`luminosity_max`"),
    ] {
        if !is_used {
            let reason = format!("these keys with a path that has {needed}");
            let help = format!("remove it, or give a path {needed}");
            trigger.refuse_idle(keys, &reason, &help);
        }
    }
}

/// Reports limits of a luminosity that nothing says: they would never close their paths.
fn refuse_unknown_luminosity(trigger: &Section<'_, '_>, paths: &[PathConfig], keys: &[String]) {
    let limited = paths.iter().zip(keys);
    for (_, key) in limited.filter(|(path, _)| path.prescale.luminosity_max.is_some()) {
        trigger.report(Problem::new(
            IDLE_KEY,
            format!("{key}.luminosity_max"),
            "a key without effect",
            "`luminosity_max` with `luminosity` in `[trigger]`",
            "remove it, or give `luminosity` in `[trigger]`: without it the path is always open",
        ));
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
            "two lengths x and y in whole um, such as [\"746 um\", \"422 um\"]",
            "write the position of the beam, or remove the key for (0, 0)",
        ));
    }
    spot
}

/// Stands for a bit that could not be read, until one is known that no path sets.
const UNREAD_BIT: u8 = u8::MAX;

/// Reads a path. What stands for a value that could not be read is right, so that the others are
/// judged.
fn read_path(mut section: Section<'_, '_>, findings: &Findings) -> PathConfig {
    let names = CUTS.map(|(name, _)| name).join(", ");
    for (key, allowed) in [
        ("name", "a name for reports"),
        ("bit", "a bit of the decision, 0 to 127"),
        ("l1", "a list of Level-1 bits, such as [3]"),
        ("cut", names.as_str()),
    ] {
        section.require(key, allowed);
    }
    let name = section.text("name");
    let bit = section.integer("bit", 0..=127);
    let l1 = section.integers("l1", 63);
    let prescale = read_prescale(&mut section, findings);
    let cut = section.choice("cut", &CUTS);
    if cut.is_none() {
        section.pass_over(&KEYS_OF_CUTS);
    }
    let cut = cut.and_then(|cut| {
        let reader = CutReader {
            section: &mut section,
            findings,
            registry: &extensions::offered().algorithms,
        };
        reader.read(cut)
    });
    let name = name.unwrap_or_else(|| {
        let letters = section.path().chars().filter(char::is_ascii_alphanumeric);
        letters.collect()
    });
    section.finish();
    PathConfig {
        name,
        bit: bit
            .and_then(|bit| bit.try_into().ok())
            .unwrap_or(UNREAD_BIT),
        l1_mask: l1.map_or(1, |bits| {
            bits.into_iter().fold(0, |mask, bit| mask | 1 << bit)
        }),
        cut: cut.unwrap_or(Cut::Auto),
        prescale,
    }
}

/// Gives paths whose bits could not be read bits of their own.
fn give_bits(paths: &mut [PathConfig]) {
    let mut taken: Vec<u8> = paths.iter().map(|path| path.bit).collect();
    for path in paths.iter_mut().filter(|path| path.bit == UNREAD_BIT) {
        path.bit = (0..BITS).find(|bit| !taken.contains(bit)).unwrap_or(0);
        taken.push(path.bit);
    }
}

/// The four ways of a path to fire less often than it passes.
fn read_prescale(section: &mut Section<'_, '_>, findings: &Findings) -> Prescale {
    let fixed = section.integer("prescale", 1..=u64::from(u32::MAX));
    let steps = section.integers("prescales", u64::from(u32::MAX));
    if fixed.is_some() && steps.is_some() {
        let problem = Problem::new(
            BOTH_KEYS,
            section.key_path("prescales"),
            "two prescales",
            "`prescale` or `prescales`",
            "keep `prescale` for a fixed factor, `prescales` for steps of the dead time",
        );
        findings.report(problem.with_related(section.key_path("prescale"), "fixed here"));
    }
    let factor = |factor: u64| u32::try_from(factor).unwrap_or(u32::MAX);
    let mut prescale = Prescale::default();
    if let Some(steps) = steps {
        prescale.steps = steps.into_iter().map(factor).collect();
    } else if let Some(fixed) = fixed {
        prescale.steps = vec![factor(fixed)];
    }
    if let Some(interval) = section.parsed("interval_min", DurationNs::ALLOWED, DurationNs::read) {
        if interval == DurationNs(0) {
            findings.report(Problem::new(
                FIRE_INTERVAL,
                section.key_path("interval_min"),
                interval,
                "a multiple of 25 ns, above 0, at most an hour",
                "leave the key out where fires may be as close as packets are",
            ));
        }
        prescale.interval_min = interval;
    }
    let luminosity = section.integer("luminosity_max", 1..=u64::from(u32::MAX));
    prescale.luminosity_max = luminosity.map(factor);
    prescale
}

/// What holds for the whole menu.
fn read_menu_wide(trigger: &mut Section<'_, '_>, menu: &mut MenuConfig, findings: &Findings) {
    let events = trigger.integer("beam_fit_events", 0..=u64::from(u32::MAX));
    let d_max = trigger.parsed("beam_fit_d_max", LENGTH, str::parse);
    if let Some(events) = events {
        let mut fit = BeamFitConfig::default();
        fit.events = u32::try_from(events).unwrap_or(u32::MAX);
        fit.d_max = d_max.unwrap_or(fit.d_max);
        menu.beam_fit = Some(fit);
    } else {
        let help = "remove it, or set `beam_fit_events`";
        trigger.refuse_idle_by(
            &["beam_fit_events"],
            &["beam_fit_d_max"],
            "`beam_fit_d_max` with `beam_fit_events`",
            help,
        );
    }
    if let Some(window) = trigger.integer("dead_time_window", 0..=u64::from(u32::MAX)) {
        menu.dead_time.window = u32::try_from(window).unwrap_or(u32::MAX);
    }
    for (key, limit) in [
        ("dead_time_high", &mut menu.dead_time.raise_above_permille),
        ("dead_time_low", &mut menu.dead_time.lower_below_permille),
    ] {
        let Some(fraction) = trigger.number(key, 0.0..=1.0) else {
            continue;
        };
        let permille = fraction * 1000.0;
        if (permille - permille.round()).abs() > 1e-6 {
            findings.report(Problem::new(
                OUT_OF_RANGE,
                trigger.key_path(key),
                fraction,
                "a multiple of 0.001",
                "the dead time is compared in thousandths",
            ));
        }
        *limit = permille.round() as u32;
    }
    if let Some(luminosity) = trigger.integers("luminosity", u64::from(u32::MAX)) {
        let by_section = luminosity.into_iter().filter_map(|l| u32::try_from(l).ok());
        menu.luminosity = by_section.collect();
        if menu.luminosity.is_empty() {
            findings.report(Problem::new(
                OUT_OF_RANGE,
                trigger.key_path("luminosity"),
                "an empty list",
                "the luminosity of one lumi section or more",
                "give it, or remove the key: no `luminosity_max` would ever close a path",
            ));
        }
    }
}
