//! The `[timing]` table: the spill structure of a run, with the curves of its ramps.
//!
//! The schedule is written as it is in a schedule file, one text per message; curves are points of
//! time and percent of full scale, made into coefficient sets here, so that a curve that cannot be
//! followed is a problem of the file. What the messages then do is said in
//! `livetime_timing::spill`.

use livetime_node::link::LinkTransport;
use livetime_node::{ChainSpill, DataLinkConfig};
use livetime_timing::waveform::{DesignOptions, PointCurve, design};
use livetime_timing::{Schedule, SpillConfig};
use livetime_wire::{CoefficientSet, DurationNs, EventId, Problem, SourceId, TaiNs};

use super::document::{Findings, Quantity as _, Section};
use super::exact_time::parse_time;
use super::problem_code::{BAD_QUANTITY, LINK_KIND, LINK_TARGET, MISSING_KEY};

const MESSAGE: &str = "an event ID such as \"0x112c101000000000\"";
const POINTS: &str =
    "rising points of time and percent of full scale, such as [\"0 ms: 0 %\", \"300 ms: 80 %\"]";
/// Full scale in units of the output.
const FULL_SCALE: f64 = 2_147_483_647.0;
/// Largest error of a ramp unless the file says otherwise, percent of full scale.
const TOLERANCE_PERCENT: f64 = 0.001;

/// The table as it is written.
#[derive(Debug)]
pub(crate) struct TimingTable {
    spill: SpillConfig,
    /// Whether ramps are written, whatever could be made of them.
    has_ramps: bool,
    read_back: Option<SourceId>,
}

/// Reads the table, if there is one.
pub(crate) fn read_timing(root: &mut Section<'_, '_>, findings: &Findings) -> Option<TimingTable> {
    let mut timing = root.section("timing")?;
    timing.require(
        "schedule",
        "a list of messages: event ID, parameter, time in ns",
    );
    let lines = timing.texts("schedule");
    let schedule = lines.and_then(|lines| read_schedule(&lines, &timing, findings));
    let mut period = schedule
        .as_ref()
        .map_or(DurationNs::SECOND, Schedule::length);
    timing.quantity("period", &mut period);
    let align = timing.parsed("align", DurationNs::ALLOWED, DurationNs::read);
    let mut message = |key| timing.parsed(key, MESSAGE, str::parse::<EventId>);
    let (open, close) = (message("gate_open"), message("gate_close"));
    let trigger = message("trigger");
    let ramp_start = message("ramp_start");
    if open.is_some() != close.is_some() {
        let missing = if open.is_some() {
            "gate_close"
        } else {
            "gate_open"
        };
        timing.require(missing, MESSAGE);
    }
    let mut magnet = DurationNs(2_000_000);
    timing.quantity("magnet", &mut magnet);
    let read_back = timing.integer("read_back", 0..=u64::from(u32::MAX));
    refuse_idle(&mut timing);
    let ramps = timing.sections("ramp");
    let has_ramps = !ramps.is_empty() || timing.is_unread("ramp");
    let ramps = ramps
        .into_iter()
        .flat_map(|ramp| read_ramp(ramp, findings))
        .collect();
    timing.finish();
    let spill = SpillConfig {
        schedule: schedule?,
        period,
        align,
        gate: open.zip(close),
        trigger,
        ramp_start,
        ramps,
        magnet,
    };
    for problem in spill.validate("timing") {
        findings.report(problem);
    }
    check_messages(&spill, findings);
    Some(TimingTable {
        spill,
        has_ramps,
        read_back: read_back
            .and_then(|id| u32::try_from(id).ok())
            .map(SourceId),
    })
}

/// Reports keys of ramps where there are none, and a schedule that nothing follows.
fn refuse_idle(timing: &mut Section<'_, '_>) {
    if !timing.has("ramp") {
        let help = "remove it, or add a `[[timing.ramp]]`";
        timing.refuse_idle(
            &["ramp_start", "magnet"],
            "these keys with `[[timing.ramp]]`",
            help,
        );
    }
    // With `align` the run itself begins on the grid.
    let followers = [
        "gate_open",
        "gate_close",
        "trigger",
        "ramp_start",
        "ramp",
        "align",
    ];
    if !followers.iter().any(|key| timing.has(key)) {
        let help = "remove the table, or name what its messages do";
        timing.refuse_idle(
            &["schedule"],
            "a schedule with a gate, a `trigger`, ramps or `align`",
            help,
        );
    }
}

fn read_schedule(
    lines: &[String],
    timing: &Section<'_, '_>,
    findings: &Findings,
) -> Option<Schedule> {
    match Schedule::parse(&lines.join("\n")) {
        Ok(schedule) => Some(schedule),
        Err(error) => {
            findings.report(Problem::new(
                BAD_QUANTITY,
                timing.key_path("schedule"),
                error,
                "lines of event ID (hexadecimal), parameter (hexadecimal), time (ns)",
                "write one text per message, such as \"0x112c101000000000 0x0 5000000\"",
            ));
            None
        }
    }
}

/// Messages that something waits for must be in the schedule.
fn check_messages(spill: &SpillConfig, findings: &Findings) {
    let (open, close) = spill.gate.unzip();
    let named = [
        ("gate_open", open),
        ("gate_close", close),
        ("trigger", spill.trigger),
        ("ramp_start", spill.ramp_start),
    ];
    for (key, id) in named.into_iter().filter_map(|(key, id)| Some((key, id?))) {
        if !spill.schedule.entries().iter().any(|entry| entry.id == id) {
            findings.report(Problem::new(
                MISSING_KEY,
                format!("timing.{key}"),
                id,
                "the event ID of a message of `timing.schedule`",
                "add the message to the schedule, or it will never come",
            ));
        }
    }
}

/// The coefficient sets of a ramp table, once for each of its `count` generators.
fn read_ramp(mut section: Section<'_, '_>, findings: &Findings) -> Vec<Vec<CoefficientSet>> {
    section.require("points", POINTS);
    let points = section.texts("points");
    let count = section.integer("count", 1..=64).unwrap_or(1);
    let tolerance = section.number("tolerance_percent", 1e-7..=10.0);
    // Held to another tolerance than the one that is meant, a good curve may seem to be none.
    let is_judged = !section.is_unread("tolerance_percent");
    let path = section.key_path("points");
    section.finish();
    let Some(points) = points.filter(|_| is_judged) else {
        return Vec::new();
    };
    let options = DesignOptions {
        tolerance: tolerance.unwrap_or(TOLERANCE_PERCENT) / 100.0 * FULL_SCALE,
        frequency: None,
    };
    match design_ramp(&points, &options) {
        Ok(sets) => vec![sets; count as usize],
        Err(error) => {
            let help = "put corners on multiples of 125 us, or raise `tolerance_percent`";
            findings.report(Problem::new(BAD_QUANTITY, path, error, POINTS, help));
            Vec::new()
        }
    }
}

fn design_ramp(points: &[String], options: &DesignOptions) -> Result<Vec<CoefficientSet>, String> {
    let points = points.iter().map(|text| read_point(text));
    let points = points.collect::<Result<Vec<_>, _>>()?;
    let curve = PointCurve::new(points).map_err(|error| error.to_string())?;
    let duration = DurationNs::from_seconds(curve.end());
    let design = design(|t| curve.at(t), duration, options).map_err(|error| error.to_string())?;
    Ok(design.sets)
}

/// Seconds and units of the output.
fn read_point(text: &str) -> Result<(f64, f64), String> {
    let wrong = || format!("\"{text}\"");
    let (time, value) = text.split_once(':').ok_or_else(wrong)?;
    let time = parse_time(time).map_err(|_| wrong())?;
    let percent = value.trim().strip_suffix('%').ok_or_else(wrong)?;
    let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
    if !(-100.0..=100.0).contains(&percent) {
        return Err(format!("{} (beyond full scale)", wrong()));
    }
    Ok((time.as_seconds(), percent / 100.0 * FULL_SCALE))
}

/// The spill on the links of the chain.
pub(crate) fn place_spill(
    table: Option<TimingTable>,
    links: &[DataLinkConfig],
    findings: &Findings,
) -> Option<ChainSpill> {
    let TimingTable {
        spill,
        has_ramps,
        read_back,
    } = table?;
    let link = read_back.and_then(|id| links.iter().position(|link| link.source == id));
    if let Some(id) = read_back
        && (link.is_none() || links.len() < 2 || !has_ramps)
    {
        findings.report(Problem::new(
            LINK_TARGET,
            "timing.read_back",
            id,
            "the source id of one of several data links, with ramps to report",
            "add a `[[link]]` with this `source_id` for the read-back alone",
        ));
    } else if let Some(at) = link
        && matches!(links[at].transport, LinkTransport::File { .. })
    {
        findings.report(Problem::new(
            LINK_KIND,
            "timing.read_back",
            "a link of `kind = \"file\"`",
            "a link of another kind",
            "the run itself makes the words of this link: leave `kind` and `frames` out",
        ));
    }
    Some(ChainSpill {
        spill,
        read_back: link,
        origin: TaiNs(0),
    })
}

#[cfg(test)]
mod tests {
    use livetime_readout::LinkConfig;

    use super::super::document::parse;
    use super::*;

    fn read(text: &str) -> (Option<TimingTable>, Vec<String>) {
        let findings = Findings::default();
        let table = parse(text, &findings);
        let mut root = Section::root(table.get_ref(), &findings);
        let timing = read_timing(&mut root, &findings);
        let (_, problems) = findings.into_parts();
        let problems = problems.iter().map(Problem::to_string).collect();
        (timing, problems)
    }

    const GOOD: &str = r#"[timing]
schedule = ["0x10 0x0 0", "0x11 0x0 30000000", "0x12 0x0 60000000"]
period = "100 ms"
gate_open = "0x11"
gate_close = "0x12"
ramp_start = "0x10"
read_back = 0x7f0000
[[timing.ramp]]
count = 3
points = ["0 ms: 0 %", "20 ms: 10 %", "80 ms: 0 %"]
"#;

    #[test]
    fn a_spill_is_read_with_its_ramps() {
        let (timing, problems) = read(GOOD);
        assert_eq!(problems, [""; 0]);
        let TimingTable {
            spill, read_back, ..
        } = timing.unwrap();
        assert_eq!(read_back, Some(SourceId(0x7F_0000)));
        assert_eq!(spill.gate, Some((EventId(0x11), EventId(0x12))));
        assert_eq!(spill.ramps.len(), 3);
        assert!(!spill.ramps[0].is_empty() && spill.ramps[0] == spill.ramps[2]);
        assert_eq!(spill.period, DurationNs(100_000_000));
        assert_eq!(spill.align, None);
        let aligned = GOOD.replace("period =", "align = \"250 ms\"\nperiod =");
        let spill = read(&aligned).0.unwrap().spill;
        assert_eq!(spill.align, Some(DurationNs(250_000_000)));
    }

    #[test]
    fn read_back_is_a_link_whose_words_the_run_makes() {
        let link = |source: u32, transport: LinkTransport| DataLinkConfig {
            source: SourceId(source),
            unit: 0,
            link: LinkConfig::default(),
            transport,
        };
        let frames = || LinkTransport::File { path: "a".into() };
        let place = |transport: LinkTransport| {
            let findings = Findings::default();
            let links = [link(0x51_0000, frames()), link(0x7F_0000, transport)];
            let spill = place_spill(read(GOOD).0, &links, &findings).unwrap();
            assert_eq!(spill.read_back, Some(1));
            let (_, problems) = findings.into_parts();
            problems
                .iter()
                .map(|problem| problem.code.code)
                .collect::<Vec<_>>()
        };
        assert_eq!(place(LinkTransport::Emulated), [""; 0]);
        assert_eq!(place(frames()), [LINK_KIND.code]);
    }

    /// Given a ramp that cannot be made, then that is said, and nothing that would follow from it.
    #[test]
    fn a_ramp_with_a_mistake_is_a_ramp_all_the_same() {
        let link = |source: u32| DataLinkConfig {
            source: SourceId(source),
            unit: 0,
            link: LinkConfig::default(),
            transport: LinkTransport::Emulated,
        };
        let unfit = GOOD.replace("20 ms: 10 %", "20.01 ms: 10 %");
        let unread = unfit.replace("count = 3", "count = 3\ntolerance_percent = \"1\"");
        for (text, said) in [(unfit, "off by"), (unread, "tolerance_percent")] {
            let findings = Findings::default();
            let table = parse(&text, &findings);
            let mut root = Section::root(table.get_ref(), &findings);
            let timing = read_timing(&mut root, &findings);
            place_spill(timing, &[link(0x51_0000), link(0x7F_0000)], &findings);
            let problems = findings.into_parts().1;
            assert_eq!(problems.len(), 1, "{problems:#?}");
            assert!(problems[0].to_string().contains(said), "{problems:#?}");
        }
    }

    #[test]
    fn what_nothing_follows_is_named() {
        let ramps = GOOD.find("read_back").unwrap();
        let idle = |text: &str| {
            let problems = read(text).1.into_iter();
            let idle = problems.filter(|problem| problem.contains("C0137"));
            let keys = ["ramp_start", "magnet", "schedule"];
            idle.map(|p| {
                keys.iter()
                    .position(|key| p.contains(&format!("timing.{key}")))
            })
            .collect::<Vec<_>>()
        };
        let magnet = format!("{}magnet = \"3 ms\"\n", &GOOD[..ramps]);
        assert_eq!(idle(&magnet), [Some(0), Some(1)]);
        let schedule = "[timing]\nschedule = [\"0x10 0x0 0\"]\nperiod = \"100 ms\"\n";
        assert_eq!(idle(schedule), [Some(2)]);
        for used in ["align = \"1 s\"", "trigger = \"0x10\""] {
            assert_eq!(idle(&format!("{schedule}{used}\n")), []);
        }
    }

    #[test]
    fn each_mistake_is_named() {
        let cases = [
            (
                "0x11 0x0 30000000",
                "0x11 0x0",
                "line 2 of the schedule has 2 fields",
            ),
            ("period = \"100 ms\"", "period = \"59 ms\"", "G0301"),
            ("period =", "align = \"0 s\"\nperiod =", "G0304"),
            ("period =", "align = \"61 min\"\nperiod =", "at most"),
            ("period =", "align = 1\nperiod =", "timing.align"),
            ("gate_close = \"0x12\"\n", "", "timing.gate_close"),
            (
                "ramp_start = \"0x10\"",
                "ramp_start = \"0x99\"",
                "never come",
            ),
            ("20 ms: 10 %", "20 ms 10 %", "\"20 ms 10 %\""),
            ("20 ms: 10 %", "20 ms: 101 %", "beyond full scale"),
            ("20 ms: 10 %", "20.01 ms: 10 %", "off by"),
            ("count = 3", "count = 65", "1 to 64"),
        ];
        for (from, to, expected) in cases {
            assert!(GOOD.contains(from));
            let (_, problems) = read(&GOOD.replace(from, to));
            let found = problems.iter().any(|problem| problem.contains(expected));
            assert!(found, "{to}: {problems:#?}");
        }
    }
}
