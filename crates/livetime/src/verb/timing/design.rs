//! `livetime timing fg design`: a curve, as points or as a formula, into coefficient sets.
//!
//! Needs no daemon. Values are fractions of full scale, -1 to 1, as in Python's
//! `livetime.waveform`; what is printed is what `fg feed` reads, with the stated error in comments.
//! How a curve is cut and what the error bounds is in `livetime_timing::waveform`.

use std::path::{Path, PathBuf};

use livetime_study::plot::{Axis, LinePlot, Series};
use livetime_study::report::{Figure, Report, Table};
use livetime_timing::formula::Formula;
use livetime_timing::waveform::{Design, DesignOptions, PointCurve, design, output_at};
use livetime_wire::DurationNs;
use livetime_wire::timing_coefficient::CoefficientSet;
use serde_json::json;

use super::Failure;
use super::generator::read_text;
use crate::console::{print, print_line, say};
use crate::output_place;

/// Units of the output at full scale.
const FULL_SCALE: f64 = 2_147_483_647.0;
/// Points of a drawn curve.
const DRAWN: u32 = 1000;
/// Coefficient sets that a page lists.
const LISTED: usize = 200;

/// Options of the act.
#[derive(Debug, clap::Args)]
pub(super) struct DesignArguments {
    /// Points: lines of `seconds value` in the order of time, joined by straight lines; standard
    /// input without it. Values are fractions of full scale, -1 to 1
    #[arg(conflicts_with = "formula")]
    file: Option<PathBuf>,
    /// A formula of `t` in seconds in place of points, such as `0.5 * (1 - cos(pi * t))`
    #[arg(short, long, requires = "duration", allow_hyphen_values = true)]
    formula: Option<String>,
    /// Length, such as `1 s`; without it, that of the points
    #[arg(short, long)]
    duration: Option<DurationNs>,
    /// Largest error allowed, as a fraction of full scale
    #[arg(short, long, default_value_t = 1e-5)]
    tolerance: f64,
    /// Sample frequency of all sets, 0 to 7: 16, 32, 64, 125, 250, 500, 1000, 2000 kHz; without
    /// it, chosen for each
    #[arg(long)]
    frequency: Option<u8>,
    /// Make this file with the sets instead of printing them
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw curve, output and error into this file, by its name SVG or HTML; a former one is replaced
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON document (livetime.timing_design/1) instead of the sets
    #[arg(long)]
    json: bool,
}

/// The wanted curve, in units of the output.
enum Curve {
    Formula(Formula),
    Points(PointCurve),
}

impl Curve {
    fn at(&self, seconds: f64) -> f64 {
        FULL_SCALE
            * match self {
                Self::Formula(formula) => formula.at(seconds),
                Self::Points(points) => points.at(seconds),
            }
    }
}

/// Designs.
pub(super) fn run(options: &DesignArguments) -> Result<(), Failure> {
    if let Some(path) = &options.output {
        output_place::check_new(path).map_err(Failure::new)?;
    }
    if let Some(path) = &options.plot {
        output_place::check_page(path).map_err(Failure::new)?;
    }
    let (curve, duration) = read_curve(options)?;
    let bounds = DesignOptions {
        tolerance: options.tolerance * FULL_SCALE,
        frequency: options.frequency,
    };
    let designed = design(|t| curve.at(t), duration, &bounds)?;
    if let Some(path) = &options.plot {
        draw(&curve, &designed, options, path)?;
    }
    let lines = set_lines(&designed.sets);
    match &options.output {
        Some(path) => {
            let text = format!("{}{lines}", heading(&designed));
            write_file(path, &text)?;
            say(format_args!("{}", statement(&designed)));
        }
        None if !options.json => print(format_args!("{}{lines}", heading(&designed)))?,
        None => {}
    }
    if options.json {
        print_line(document(&designed))?;
    }
    Ok(())
}

fn read_curve(options: &DesignArguments) -> Result<(Curve, DurationNs), Failure> {
    if let Some(text) = &options.formula {
        let duration = options.duration.unwrap_or_default();
        return Ok((Curve::Formula(Formula::parse(text)?), duration));
    }
    let points = parse_points(&read_text(options.file.as_ref())?).map_err(Failure::new)?;
    let points = PointCurve::new(points)?;
    let duration = match options.duration {
        Some(duration) => duration,
        None => DurationNs((points.end().max(0.0) * 1e9).round() as u64),
    };
    Ok((Curve::Points(points), duration))
}

/// Lines of two numbers; `#` begins a comment, a comma may stand between.
fn parse_points(text: &str) -> Result<Vec<(f64, f64)>, String> {
    let mut points = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or("").trim();
        if content.is_empty() {
            continue;
        }
        let fields: Vec<&str> = content
            .split([',', ' ', '\t'])
            .filter(|field| !field.is_empty())
            .collect();
        let numbers = fields.iter().map(|field| field.parse::<f64>().ok());
        match numbers.collect::<Option<Vec<f64>>>().as_deref() {
            Some([seconds, _]) if *seconds < 0.0 => {
                return Err(format!(
                    "line {line} is `{content}`, {seconds} s: a waveform begins at 0 s, and no point \
                     may be before it"
                ));
            }
            Some([seconds, value]) => points.push((*seconds, *value)),
            _ => {
                return Err(format!(
                    "line {line} is `{content}`; two numbers are expected: \
                     seconds and fraction of full scale"
                ));
            }
        }
    }
    match points.is_empty() {
        true => Err("there are no points; lines of `seconds value` are expected".to_owned()),
        false => Ok(points),
    }
}

/// One line per set, as `fg feed` reads them.
fn set_lines(sets: &[CoefficientSet]) -> String {
    let line = |set: &CoefficientSet| {
        let CoefficientSet {
            a,
            b,
            c,
            step,
            frequency,
            shift_a,
            shift_b,
        } = set;
        format!("{a} {shift_a} {b} {shift_b} {c} {step} {frequency}\n")
    };
    sets.iter().map(line).collect()
}

fn fraction(units: f64) -> f64 {
    units / FULL_SCALE
}

fn statement(design: &Design) -> String {
    format!(
        "{} sets, {}, error at most {:.3} ppm of full scale, at {}",
        design.sets.len(),
        design.duration,
        fraction(design.error_max) * 1e6,
        design.error_at
    )
}

fn heading(design: &Design) -> String {
    format!(
        "# {}\n# a shift_a b shift_b c step freq\n",
        statement(design)
    )
}

fn document(design: &Design) -> serde_json::Value {
    let sets = design.sets.iter().map(|set| {
        json!({
            "a": set.a, "shift_a": set.shift_a, "b": set.b, "shift_b": set.shift_b, "c": set.c,
            "step": set.step, "frequency": set.frequency,
        })
    });
    json!({
        "schema": "livetime.timing_design/1",
        "duration_ns": design.duration.0.to_string(),
        "error_max_fraction": fraction(design.error_max),
        "error_at_ns": design.error_at.0.to_string(),
        "sets": sets.collect::<Vec<_>>(),
    })
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    output_place::write(path, text).map_err(Failure::new)
}

fn draw(
    curve: &Curve,
    design: &Design,
    options: &DesignArguments,
    path: &Path,
) -> Result<(), Failure> {
    let kind = path.extension().and_then(|kind| kind.to_str());
    let (wave, error) = plots(curve, design, options.tolerance);
    match kind {
        Some("svg") => write_file(path, &wave.to_svg()),
        Some("html") => write_file(path, &page(design, &wave, &error).to_html()),
        _ => Err(Failure::new(format!(
            "plot {} ends in neither .svg nor .html",
            path.display()
        ))),
    }
}

/// Curve and output, and the difference between them.
fn plots(curve: &Curve, design: &Design, tolerance: f64) -> (LinePlot, LinePlot) {
    let (mut wanted, mut output, mut error) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..DRAWN {
        let at = DurationNs(design.duration.0 / u64::from(DRAWN) * u64::from(n));
        let seconds = at.0 as f64 * 1e-9;
        let put_out = output_at(&design.sets, at).map_or(f64::NAN, f64::from);
        wanted.push((seconds, fraction(curve.at(seconds)) * 100.0));
        output.push((seconds, fraction(put_out) * 100.0));
        error.push((seconds, fraction(put_out - curve.at(seconds)) * 1e6));
    }
    let series = |label: &str, points| Series {
        label: label.to_owned(),
        points,
    };
    let end = design.duration.0 as f64 * 1e-9;
    let bound = |sign: f64| vec![(0.0, sign * tolerance * 1e6), (end, sign * tolerance * 1e6)];
    let time = || Axis::linear("time [s]");
    let wave = LinePlot {
        title: statement(design),
        x: time(),
        y: Axis::linear("output [% of full scale]"),
        series: vec![series("curve", wanted), series("output", output)],
    };
    let error = LinePlot {
        title: "output minus curve, and the tolerance".to_owned(),
        x: time(),
        y: Axis::linear("difference [ppm of full scale]"),
        series: vec![
            series("difference", error),
            series("tolerance", bound(1.0)),
            series("", bound(-1.0)),
        ],
    };
    (wave, error)
}

fn page(design: &Design, wave: &LinePlot, error: &LinePlot) -> Report {
    let rows = design.sets.iter().take(LISTED).map(|set| {
        let line = set_lines(std::slice::from_ref(set));
        line.split_whitespace().map(str::to_owned).collect()
    });
    let table = Table {
        caption: format!(
            "Coefficient sets, the first {} of {}",
            design.sets.len().min(LISTED),
            design.sets.len()
        ),
        headings: ["a", "shift_a", "b", "shift_b", "c", "step", "freq"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
        ..Table::default()
    };
    let figure = |plot: &LinePlot, caption: &str| Figure {
        svg: plot.to_svg(),
        caption: caption.to_owned(),
    };
    Report {
        title: "Designed waveform".to_owned(),
        subtitle: "computed with the arithmetic of the generators; nothing was measured".to_owned(),
        verdict: statement(design),
        verdict_good: true,
        figures: vec![
            figure(wave, "The curve asked for and what the generator puts out."),
            figure(
                error,
                "At 1000 moments; the stated error is the largest at every sample.",
            ),
        ],
        tables: vec![table],
        summary_json: document(design).to_string(),
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_and_errors_name_the_line() {
        let text = "# ramp\n0 0\n0.5, 0.25 # up\n\n1\t0\n";
        assert_eq!(
            parse_points(text),
            Ok(vec![(0.0, 0.0), (0.5, 0.25), (1.0, 0.0)])
        );
        assert!(
            parse_points("0 0\n1\n")
                .unwrap_err()
                .contains("line 2 is `1`")
        );
        assert!(parse_points("# none\n").is_err());
        let before = parse_points("# ramp\n-1 0.2\n0 0\n1 1\n").unwrap_err();
        assert!(before.starts_with("line 2 is `-1 0.2`, -1 s: "), "{before}");
    }

    #[test]
    fn what_is_printed_is_what_feed_reads() {
        let curve = PointCurve::new(vec![(0.0, 0.0), (0.1, 1e8)]).expect("two points that rise");
        let options = DesignOptions {
            tolerance: 1000.0,
            frequency: None,
        };
        let designed = design(|t| curve.at(t), DurationNs(100_000_000), &options)
            .expect("a ramp can be followed");
        let text = format!("{}{}", heading(&designed), set_lines(&designed.sets));
        let channels = super::super::generator::parse_channels(&text);
        assert_eq!(channels, Ok(vec![designed.sets]));
    }
}
