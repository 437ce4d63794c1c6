//! The rows of the comparison: the note's figures beside this machine's, in the order of the page. How
//! they are measured is in [`super`], what the model says to them in [`super::model`].

use livetime_shm::floor::Samples;
use livetime_trigger::dead_time::refused_fraction_m_d_1_k;

use super::{Found, SMALL_BELOW, Trials, line};
use crate::bench::paced_loop::Outliers;
use crate::study::row::Row;

impl Found {
    pub(super) fn rows(&self) -> Vec<Row> {
        [
            self.size_rows(),
            self.io_rows(),
            self.algorithm_rows(),
            self.trial_rows(),
        ]
        .concat()
    }

    /// Time of a packet against its size.
    fn size_rows(&self) -> Vec<Row> {
        let fits = |low, high| [false, true].map(|floor| self.fit(low, high, floor));
        let [large, large_floor] = fits(256, u32::MAX);
        let [small, small_floor] = fits(0, SMALL_BELOW);
        let at_126 = self.sweep.iter().find(|point| point.words == 126);
        vec![
            Row {
                id: "large_bandwidth",
                quantity: "bandwidth, large packets",
                unit: "MB/s",
                paper: Some(158.0),
                measured: Some(large.1),
                floor: Some(large_floor.1),
                ..Row::default()
            },
            Row {
                id: "large_latency",
                quantity: "latency, large packets",
                unit: "us",
                paper: Some(4.5),
                measured: Some(large.0),
                floor: Some(large_floor.0),
                ..Row::default()
            },
            Row {
                id: "small_bandwidth",
                quantity: "bandwidth, small packets",
                unit: "MB/s",
                paper: Some(122.8),
                measured: Some(small.1),
                floor: Some(small_floor.1),
                ..Row::default()
            },
            Row {
                id: "small_latency",
                quantity: "latency, small packets",
                unit: "us",
                paper: Some(3.6),
                measured: Some(small.0),
                floor: Some(small_floor.0),
                ..Row::default()
            },
            Row {
                id: "packet_126",
                quantity: "126 words there, 4 back",
                unit: "us",
                measured: Some(at_126.map_or(f64::NAN, |point| us(point.median_ns as f64))),
                floor: at_126.map(|point| us(point.floor_ns as f64)),
                ..Row::default()
            },
        ]
    }

    /// Fits of the sizes from `low` words on and below `high`: latency in us, bandwidth in MB/s.
    fn fit(&self, low: u32, high: u32, floor: bool) -> (f64, f64) {
        let points = self
            .sweep
            .iter()
            .filter(move |point| (low..high).contains(&point.words));
        line(points.map(|point| {
            let ns = if floor {
                point.floor_ns
            } else {
                point.median_ns
            };
            (f64::from(point.words) * 4.0, ns as f64)
        }))
    }

    /// I/O only, without and with other programs on the cores.
    fn io_rows(&self) -> Vec<Row> {
        let longest = self.quiet.sorted_ns().last().copied().unwrap_or(0) as f64;
        vec![
            Row {
                id: "io_mean",
                quantity: "I/O only, 126 words and 100 back, mean",
                unit: "us",
                paper: Some(10.0),
                measured: Some(us(self.quiet.mean())),
                floor: Some(us(self.floor.mean())),
                ..Row::default()
            },
            Row {
                id: "io_longest",
                quantity: "I/O only, longest",
                unit: "us",
                paper: Some(12.0),
                measured: Some(us(longest)),
                ..Row::default()
            },
            Row {
                id: "io_tail",
                quantity: "I/O only, beyond 20 us",
                unit: "ppm",
                paper: Some(0.0),
                measured: Some(beyond_20_us(&self.quiet) * 1e6),
                ..Row::default()
            },
            Row {
                id: "noise_tail",
                quantity: "with noise on the cores, beyond 20 us",
                unit: "ppm",
                measured: Some(beyond_20_us(&self.noisy) * 1e6),
                ..Row::default()
            },
        ]
    }

    /// Round trips with and without algorithms. There is no second computer here: its rows are the
    /// model against what the note says in words.
    fn algorithm_rows(&self) -> Vec<Row> {
        // Beside means, so that both have the machine's pauses in them.
        let line_us = us(self.floor.mean());
        let with = self.with.samples.mean();
        let without = self.without.samples.mean();
        vec![
            Row {
                id: "with_algorithms",
                quantity: "round trip with algorithms, mean",
                unit: "us",
                paper: Some(11.0),
                measured: Some(us(with)),
                floor: Some(line_us),
                ..Row::default()
            },
            Row {
                id: "without_algorithms",
                quantity: "round trip without algorithms, mean",
                unit: "us",
                measured: Some(us(without)),
                floor: Some(line_us),
                ..Row::default()
            },
            Row {
                id: "computers",
                quantity: "two computers, 126 words there, 4 back, mean",
                unit: "us",
                ..Row::default()
            },
            Row {
                id: "computers_with_algorithms",
                quantity: "two computers with algorithms, mean",
                unit: "us",
                ..Row::default()
            },
            Row {
                id: "algorithms",
                quantity: "with less without algorithms",
                unit: "us",
                model: Some(us(self.alone_ns)),
                measured: Some(us(with - without)),
                ..Row::default()
            },
        ]
    }

    /// The events of the trials with algorithms, and what follows from them.
    fn trial_rows(&self) -> Vec<Row> {
        let (outliers, trials) = (self.with.outliers, self.with.samples.count());
        let load = |ns: f64| (40e3 * ns * 1e-9).max(1e-9);
        let dead_time = |ns: f64| 100.0 * refused_fraction_m_d_1_k(load(ns), 4);
        vec![
            Row {
                id: "event_words",
                quantity: "words of an event, mean",
                unit: "words",
                paper: Some(34.0),
                measured: Some(self.with.mean_words),
                ..Row::default()
            },
            Row {
                id: "trial_spread",
                quantity: "spread of the means of the trials",
                unit: "us",
                measured: Some(us(self.with.means_spread_ns())),
                ..Row::default()
            },
            Row {
                id: "event_rms",
                quantity: "spread of an event over the trials, median",
                unit: "us",
                measured: Some(us(self.with.rms_median_ns())),
                ..Row::default()
            },
            Row {
                id: "outliers_ours",
                quantity: "more than 5 us above the event's mean, ours",
                unit: "ppm",
                paper: Some(6.7),
                measured: Some(Outliers::ppm(outliers.ours, trials)),
                ..Row::default()
            },
            Row {
                id: "outliers_host",
                quantity: "more than 5 us above the event's mean, host",
                unit: "ppm",
                measured: Some(Outliers::ppm(outliers.host, trials)),
                ..Row::default()
            },
            Row {
                id: "dead_time",
                quantity: "dead time at 40 kHz, four buffers, computed from the mean time (M/D/1/4)",
                unit: "%",
                model: Some(dead_time(11_000.0)),
                measured: Some(dead_time(self.with.samples.mean())),
                ..Row::default()
            },
            Row {
                id: "wrong_decisions",
                quantity: "decisions other than the oracle's",
                unit: "",
                paper: Some(0.0),
                measured: Some(self.wrong() as f64),
                ..Row::default()
            },
        ]
    }
}

impl Trials {
    /// Spread of the means of the trials.
    fn means_spread_ns(&self) -> f64 {
        let means = &self.means_ns;
        let mean = means.iter().sum::<f64>() / means.len().max(1) as f64;
        let square = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>();
        (square / means.len().max(1) as f64).sqrt()
    }

    /// Median over the events of their spreads.
    fn rms_median_ns(&self) -> f64 {
        let mut rms = self.rms_ns.clone();
        rms.sort_by(f64::total_cmp);
        rms.get(rms.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Share of samples above 20 us.
fn beyond_20_us(samples: &Samples) -> f64 {
    let above = samples.sorted_ns().partition_point(|ns| *ns <= 20_000);
    (samples.count() - above) as f64 / samples.count().max(1) as f64
}

fn us(ns: f64) -> f64 {
    ns * 1e-3
}
