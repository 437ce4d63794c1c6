//! The page of the study: table, plots, verdict. What is measured is in [`super`].

use super::{ALGORITHM_US, Effort, Found, SIZES, SMALL_BELOW, SizePoint};
use crate::plot::{Axis, HistogramPlot, LinePlot, Series};
use crate::report::{Figure, Report};
use crate::study::row::{Row, table};

impl Found {
    pub(super) fn report(&self, rows: &[Row], effort: Effort, command: &str) -> Report {
        let table = table("The note's figures beside this machine's", "note", rows);
        let wrong = self.wrong();
        let outside = rows.iter().filter(|row| !row.is_good()).count();
        Report {
            title: "Study pulsar".to_owned(),
            subtitle: format!(
                "{} events x {} trials on an emulated link through shared memory; the note measured \
                 cards, buses and fibres",
                effort.events, effort.trials
            ),
            verdict: match (wrong, outside) {
                (0, 0) => "every decision is the one known beforehand, and every row of the model \
                           is within its tolerance"
                    .to_owned(),
                (0, outside) => format!("{outside} rows of the model are outside their tolerance"),
                (wrong, _) => format!("{wrong} decisions are wrong"),
            },
            verdict_good: wrong == 0 && outside == 0,
            figures: self.figures(),
            tables: vec![table],
            command: command.to_owned(),
            ..Report::default()
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let rms: Vec<f64> = self.with.rms_ns.iter().map(|ns| ns * 1e-3).collect();
        let mut figures = vec![figure(
            self.times_by_size().to_svg(),
            "Median of each size. The note timed one way over S-LINK.",
        )];
        figures.extend(self.round_trips());
        figures.extend([
            figure(
                self.times_by_algorithm().to_svg(),
                "The time per event stays flat while the link is the slower of the two.",
            ),
            figure(
                self.trial_means().to_svg(),
                "All events of the sample, once a trial.",
            ),
            figure(
                histogram(
                    "Spread of each event over the trials",
                    "RMS [us]",
                    &rms,
                    5.0,
                )
                .to_svg(),
                "One entry an event.",
            ),
            figure(
                histogram(
                    "Outliers",
                    "above the event's mean [us]",
                    &self.with.outlier_us,
                    1000.0,
                )
                .to_svg(),
                "Trials more than 5 us above the mean of their event, host's and ours together.",
            ),
        ]);
        figures
    }

    fn times_by_size(&self) -> LinePlot {
        let sizes = |of: fn(&SizePoint) -> u64| -> Vec<(f64, f64)> {
            let point = |point: &SizePoint| (f64::from(point.words), of(point) as f64 * 1e-3);
            self.sweep.iter().map(point).collect()
        };
        LinePlot {
            title: "Packet there, four words back".to_owned(),
            x: Axis::log("words of the packet"),
            y: Axis::log("median time [us]"),
            series: vec![
                series("here", sizes(|point| point.median_ns)),
                series(
                    "bare machine, as many bytes both ways",
                    sizes(|point| point.floor_ns),
                ),
                series("the note's lines, one way", SIZES.map(note_time).to_vec()),
            ],
        }
    }

    /// Histograms of round trips: I/O only without and with noise, with algorithms and without.
    fn round_trips(&self) -> [Figure; 4] {
        [
            (
                "I/O only",
                &self.quiet,
                "126 words there and 100 back, nothing computed. All other entries are in the overflow.",
            ),
            (
                "I/O only, noise on the cores",
                &self.noisy,
                "The same while one thread per core is busy a tenth of the time: the note's interrupts.",
            ),
            (
                "With algorithms",
                &self.with.samples,
                "Sixteen paths, 34 words on average.",
            ),
            (
                "Without algorithms",
                &self.without.samples,
                "The packet is checked, nothing is computed.",
            ),
        ]
        .map(|(title, samples, caption)| {
            let ns = samples.sorted_ns().iter();
            let us: Vec<f64> = ns.map(|ns| *ns as f64 * 1e-3).collect();
            figure(histogram(title, "round trip [us]", &us, 20.0).to_svg(), caption)
        })
    }

    fn times_by_algorithm(&self) -> LinePlot {
        LinePlot {
            title: "From I/O bound to CPU bound".to_owned(),
            x: Axis::linear("time of the algorithm [us]"),
            y: Axis::linear("time per event, four in flight [us]"),
            series: vec![
                series("here", self.algorithm.clone()),
                series(
                    "algorithm alone",
                    ALGORITHM_US.map(|us| (us as f64, us as f64)).to_vec(),
                ),
            ],
        }
    }

    fn trial_means(&self) -> LinePlot {
        let means = self.with.means_ns.iter().enumerate();
        LinePlot {
            title: "Mean of each trial".to_owned(),
            x: Axis::linear("trial"),
            y: Axis::linear("mean round trip [us]"),
            series: vec![series(
                "with algorithms",
                means.map(|(trial, ns)| (trial as f64, ns * 1e-3)).collect(),
            )],
        }
    }
}

fn figure(svg: String, caption: &str) -> Figure {
    Figure {
        svg,
        caption: caption.to_owned(),
    }
}

fn series(label: &str, points: Vec<(f64, f64)>) -> Series {
    Series {
        label: label.to_owned(),
        points,
    }
}

/// What the note's lines give for a size: words, and us one way.
fn note_time(words: u32) -> (f64, f64) {
    let bytes = f64::from(words) * 4.0;
    let us = if words < SMALL_BELOW {
        3.6 + bytes / 122.8
    } else {
        4.5 + bytes / 158.0
    };
    (f64::from(words), us)
}

/// A histogram of values from 0 to `high`.
fn histogram(title: &str, axis: &str, values: &[f64], high: f64) -> HistogramPlot {
    const BINS: usize = 100;
    let mut counts = vec![0.0; BINS];
    let mut overflow = 0.0;
    for value in values {
        let bin = (value / high * BINS as f64) as usize;
        match counts.get_mut(bin) {
            Some(count) => *count += 1.0,
            None => overflow += 1.0,
        }
    }
    HistogramPlot {
        title: title.to_owned(),
        x: Axis::linear(axis),
        y: Axis::log("entries"),
        edges: (0..=BINS)
            .map(|bin| bin as f64 * high / BINS as f64)
            .collect(),
        counts,
        underflow: 0.0,
        overflow,
        marks: Vec::new(),
    }
}
