//! Plots as SVG text: step histograms and lines, linear or logarithmic axes.
//!
//! It draws what it is given and computes no physics. Under- and overflow, the number of entries
//! and the axis units are always shown; colours are the Petroff sequence that mplhep uses, and no
//! meaning is carried by colour alone. `report.rs` puts the plots on a page.

use std::fmt::Write;

/// Petroff's six-colour sequence.
pub const PALETTE: [&str; 6] = [
    "#5790fc", "#f89c20", "#e42536", "#964a8b", "#9c9ca1", "#7a21dd",
];

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 56.0;

/// How an axis maps values to the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal distances.
    Linear,
    /// Equal factors are equal distances; values must be positive.
    Log,
}

/// An axis: title with unit, and scale.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Title with unit in brackets, for example `mass [GeV]`.
    pub title: String,
    /// Linear or logarithmic.
    pub scale: Scale,
}

impl Axis {
    /// A linear axis.
    pub fn linear(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            scale: Scale::Linear,
        }
    }

    /// A logarithmic axis.
    pub fn log(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            scale: Scale::Log,
        }
    }
}

/// A one-dimensional histogram to draw.
#[derive(Debug, Clone)]
pub struct HistogramPlot {
    /// What is shown.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Bin edges, one more than bins, ascending.
    pub edges: Vec<f64>,
    /// Bin contents.
    pub counts: Vec<f64>,
    /// Entries below the first edge.
    pub underflow: f64,
    /// Entries at or above the last edge.
    pub overflow: f64,
    /// Positions on the horizontal axis to mark, with their labels.
    pub marks: Vec<(f64, String)>,
}

/// A named line.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name in the legend.
    pub label: String,
    /// Points with ascending x.
    pub points: Vec<(f64, f64)>,
}

/// Lines over a common horizontal axis.
#[derive(Debug, Clone)]
pub struct LinePlot {
    /// What is shown.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

/// Escapes text for SVG and HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The mapping of one axis onto the page.
struct Mapping {
    scale: Scale,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Mapping {
    fn new(scale: Scale, low: f64, high: f64, start: f64, end: f64) -> Self {
        let (low, high) = match scale {
            Scale::Linear if high > low => (low, high),
            Scale::Linear => (low, low + 1.0),
            Scale::Log => {
                let low = if low > 0.0 { low } else { 1e-9 };
                (low, if high > low { high } else { low * 10.0 })
            }
        };
        Self {
            scale,
            low,
            high,
            start,
            end,
        }
    }

    fn fraction(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// Position on the page, kept inside the frame.
    fn at(&self, value: f64) -> f64 {
        self.start + self.fraction(value).clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Tick values: decades when logarithmic, round steps when linear.
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Log => {
                let first = self.low.log10().ceil() as i32;
                let last = self.high.log10().floor() as i32;
                if last > first {
                    return (first..=last).map(|power| 10f64.powi(power)).collect();
                }
                // Less than two decades fit: the steps in between are needed to read the axis.
                let inside = |tick: &f64| (self.low..=self.high).contains(tick);
                let steps = (first - 1..=last + 1)
                    .flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
                steps.filter(inside).collect()
            }
            Scale::Linear => {
                let step = round_step((self.high - self.low) / 6.0);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step + 1e-9).floor() as i64;
                (first..=last).take(32).map(|i| i as f64 * step).collect()
            }
        }
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(raw: f64) -> f64 {
    let power = 10f64.powf(raw.max(1e-12).log10().floor());
    let factor = raw / power;
    let round = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|round| factor <= *round)
        .unwrap_or(10.0);
    round * power
}

/// A tick label without needless digits, and with all of those that tell it from its neighbours.
fn label(value: f64) -> String {
    /// Digits after the first: ticks have fewer, and errors of the arithmetic are further behind.
    const DIGITS: i32 = 5;
    let size = value.abs();
    let (scaled, unit) = match size {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if value == 0.0 {
        return "0".to_owned();
    }
    if size < 1e-3 {
        let text = format!("{value:.0$e}", DIGITS as usize);
        let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", trimmed(mantissa));
    }
    let decimals = (DIGITS - scaled.abs().log10().floor() as i32).max(0) as usize;
    trimmed(&format!("{scaled:.decimals$}")) + unit
}

/// Start of the SVG, frame, grid, ticks and titles.
fn frame(out: &mut String, title: &str, x: (&Axis, &Mapping), y: (&Axis, &Mapping)) {
    let title = escape(title);
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"13\">\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{title}</text>"
    );
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in x.1.ticks() {
        let (at, text) = (x.1.at(tick), label(tick));
        let _ = write!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#eee\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            bottom + 18.0
        );
    }
    for tick in y.1.ticks() {
        let (at, text) = (y.1.at(tick), label(tick));
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#eee\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    let middle = (TOP + bottom) / 2.0;
    let _ = write!(
        out,
        "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#333\"/>\
         <text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <text transform=\"translate(18 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        right - LEFT,
        bottom - TOP,
        HEIGHT - 14.0,
        escape(&x.0.title),
        escape(&y.0.title)
    );
}

impl HistogramPlot {
    /// Sum of the bin contents and the flow bins.
    pub fn entries(&self) -> f64 {
        self.counts.iter().sum::<f64>() + self.underflow + self.overflow
    }

    /// The plot as one SVG element.
    pub fn to_svg(&self) -> String {
        let first = self.edges.first().copied().unwrap_or(0.0);
        let last = self.edges.last().copied().unwrap_or(1.0);
        let x = Mapping::new(self.x.scale, first, last, LEFT, WIDTH - RIGHT);
        let highest = self.counts.iter().copied().fold(1.0, f64::max);
        let (low, high) = match self.y.scale {
            Scale::Linear => (0.0, highest * 1.08),
            Scale::Log => (0.5, highest * 2.0),
        };
        let y = Mapping::new(self.y.scale, low, high, HEIGHT - BOTTOM, TOP);
        let mut out = String::new();
        frame(&mut out, &self.title, (&self.x, &x), (&self.y, &y));
        let mut path = format!("M{:.1} {:.1}", x.at(first), y.at(low));
        for (edges, count) in self.edges.windows(2).zip(&self.counts) {
            let at = y.at(count.max(low));
            let _ = write!(
                path,
                "L{:.1} {at:.1}L{:.1} {at:.1}",
                x.at(edges[0]),
                x.at(edges[1])
            );
        }
        let _ = write!(path, "L{:.1} {:.1}Z", x.at(last), y.at(low));
        let colour = PALETTE[0];
        let _ = write!(
            out,
            "<path d=\"{path}\" fill=\"{colour}\" fill-opacity=\"0.25\" stroke=\"{colour}\"/>"
        );
        for (index, (value, text)) in self.marks.iter().enumerate() {
            let (at, height) = (x.at(*value), TOP + 16.0 + 15.0 * (index % 8) as f64);
            let anchor = if at > WIDTH * 0.8 {
                ("end", -4.0)
            } else {
                ("start", 4.0)
            };
            let _ = write!(
                out,
                "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{}\" stroke=\"{}\" \
                 stroke-dasharray=\"4 3\"/><text x=\"{:.1}\" y=\"{height:.1}\" \
                 text-anchor=\"{}\">{}</text>",
                HEIGHT - BOTTOM,
                PALETTE[2],
                at + anchor.1,
                anchor.0,
                escape(text)
            );
        }
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"22\" text-anchor=\"end\">entries {:.0}, below {:.0}, above {:.0}\
             </text></svg>",
            WIDTH - RIGHT,
            self.entries(),
            self.underflow,
            self.overflow
        );
        out
    }
}

impl LinePlot {
    /// The plot as one SVG element.
    pub fn to_svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let fold = |get: fn(&(f64, f64)) -> f64, start, pick: fn(f64, f64) -> f64| {
            points().map(get).fold(start, pick)
        };
        let (first, last) = (
            fold(|p| p.0, f64::MAX, f64::min),
            fold(|p| p.0, f64::MIN, f64::max),
        );
        let (first, last) = if first <= last {
            (first, last)
        } else {
            (0.0, 1.0)
        };
        let highest = fold(|p| p.1, 0.0, f64::max);
        // A logarithmic axis has no place for what is 0 everywhere.
        let y_scale = match highest > 0.0 {
            true => self.y.scale,
            false => Scale::Linear,
        };
        let (low, high) = match y_scale {
            Scale::Linear if highest > 0.0 => (0.0, highest * 1.12),
            Scale::Linear => (0.0, 1.0),
            Scale::Log => {
                let least = points()
                    .map(|p| p.1)
                    .filter(|y| *y > 0.0)
                    .fold(f64::MAX, f64::min);
                (least.min(highest) * 0.7, highest * 1.5)
            }
        };
        let x = Mapping::new(self.x.scale, first, last, LEFT, WIDTH - RIGHT);
        let y = Mapping::new(y_scale, low, high, HEIGHT - BOTTOM, TOP);
        let mut out = String::new();
        frame(&mut out, &self.title, (&self.x, &x), (&self.y, &y));
        const DASHES: [&str; 4] = ["none", "7 3", "2 3", "9 3 2 3"];
        for (index, series) in self.series.iter().enumerate() {
            let colour = PALETTE[index % PALETTE.len()];
            let dash = DASHES[index % DASHES.len()];
            let line: String = (series.points.iter())
                .map(|(px, py)| format!("{:.1},{:.1} ", x.at(*px), y.at(*py)))
                .collect();
            let (at, text) = (TOP + 18.0 + 18.0 * index as f64, escape(&series.label));
            let _ = write!(
                out,
                "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
                 stroke-dasharray=\"{dash}\"/><line x1=\"{}\" y1=\"{at}\" x2=\"{}\" y2=\"{at}\" \
                 stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>\
                 <text x=\"{}\" y=\"{}\">{text}</text>",
                LEFT + 12.0,
                LEFT + 44.0,
                LEFT + 50.0,
                at + 4.0
            );
        }
        out.push_str("</svg>");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram() -> HistogramPlot {
        HistogramPlot {
            title: "dimuon mass <&>".to_owned(),
            x: Axis::linear("mass [GeV]"),
            y: Axis::linear("events / GeV"),
            edges: (60..=120).map(f64::from).collect(),
            counts: (0..60)
                .map(|i| f64::from(1000 / (1 + (i - 31i32).pow(2))))
                .collect(),
            underflow: 3.0,
            overflow: 4.0,
            marks: vec![(91.0, "peak 91 GeV".to_owned())],
        }
    }

    #[test]
    fn histograms_show_flow_entries_and_units() {
        let svg = histogram().to_svg();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
        assert!(svg.contains("below 3, above 4"));
        assert!(svg.contains("mass [GeV]") && svg.contains("peak 91 GeV"));
        assert!(svg.contains("dimuon mass &lt;&amp;&gt;"), "text is escaped");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn empty_and_degenerate_plots_are_still_plots() {
        let mut plot = histogram();
        plot.counts = vec![0.0; 60];
        plot.y = Axis::log("events");
        assert!(!plot.to_svg().contains("NaN"));
        plot.edges.clear();
        plot.counts.clear();
        assert!(!plot.to_svg().contains("NaN"));
        let mut line = LinePlot {
            title: "rates".to_owned(),
            x: Axis::linear("time [s]"),
            y: Axis::log("rate [Hz]"),
            series: vec![Series {
                label: "empty".to_owned(),
                points: Vec::new(),
            }],
        };
        assert!(!line.to_svg().contains("NaN"));
        // What is 0 everywhere has an axis that says so.
        line.series[0].points = vec![(1.0, 0.0), (2.0, 0.0)];
        let svg = line.to_svg();
        for tick in ["0", "0.2", "0.8", "1"] {
            let label = format!("text-anchor=\"end\">{tick}</text>");
            assert_eq!(svg.matches(&label).count(), 1, "{tick}: {svg}");
        }
    }

    #[test]
    fn ticks_are_round_and_inside_the_axis() {
        let mapping = Mapping::new(Scale::Linear, 0.0, 23.0, 0.0, 1.0);
        assert_eq!(mapping.ticks(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        let mapping = Mapping::new(Scale::Log, 500.0, 2e6, 0.0, 1.0);
        assert_eq!(mapping.ticks(), [1e3, 1e4, 1e5, 1e6]);
        let mapping = Mapping::new(Scale::Log, 3e3, 9e3, 0.0, 1.0);
        assert_eq!(mapping.ticks(), [5e3]);
        assert_eq!(
            [0.0, 0.25, 20_000.0, 3e6].map(label),
            ["0", "0.25", "20k", "3M"]
        );
    }

    #[test]
    fn no_two_ticks_of_an_axis_have_the_same_label() {
        for (scale, low, high) in [
            (Scale::Linear, 0.0, 2.9e6),
            (Scale::Linear, 10_000.0, 13_000.0),
            (Scale::Linear, 0.0, 0.003),
            (Scale::Linear, 0.0, 0.000_2),
            (Scale::Linear, -0.3, 0.3),
            (Scale::Log, 1e-7, 1e3),
            (Scale::Log, 1.2e-4, 6e-4),
        ] {
            let ticks = Mapping::new(scale, low, high, 0.0, 1.0).ticks();
            let mut labels: Vec<String> = ticks.iter().map(|tick| label(*tick)).collect();
            assert!(labels.len() > 1, "{low} to {high}");
            labels.dedup();
            assert_eq!(labels.len(), ticks.len(), "{ticks:?}: {labels:?}");
        }
        assert_eq!(
            [
                1.5e6,
                12_500.0,
                0.001_5,
                1e-4,
                2.5e-5,
                -0.2,
                0.1 + 0.2,
                1234.0,
                200.0
            ]
            .map(label),
            [
                "1.5M", "12.5k", "0.0015", "1e-4", "2.5e-5", "-0.2", "0.3", "1234", "200"
            ]
        );
    }
}
