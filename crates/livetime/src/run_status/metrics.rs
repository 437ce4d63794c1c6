//! A run's status in Prometheus' text format (version 0.0.4), for the textfile collector of its node
//! exporter and all that reads the same.
//!
//! Every counter and every cause of a loss is there from the start, those that are 0 too: a counter
//! that appears with its first loss would hide that one from `increase()`. All labels and names are ours
//! and need no escapes.

use std::fmt::{Display, Write};

use livetime_wire::{LossArea, LossCause};

use super::{RunState, RunStatus};

/// What the format asks for beside the values: whether a value only rises.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// The text of a status.
struct Metrics(String);

impl Metrics {
    /// Begins a metric.
    fn head(&mut self, name: &str, kind: Kind, help: impl Display) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.line(format_args!("# HELP livetime_{name} {help}"));
        self.line(format_args!("# TYPE livetime_{name} {kind}"));
    }

    fn value(&mut self, name: &str, labels: &str, value: impl Display) {
        self.line(format_args!("livetime_{name}{labels} {value}"));
    }

    fn line(&mut self, line: impl Display) {
        writeln!(self.0, "{line}").expect("a string takes all");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, Kind::Gauge, help);
        self.value(name, "", value);
    }

    fn losses(&mut self, status: &RunStatus) {
        let help = "What was lost, by area and cause.";
        self.head("losses_total", Kind::Counter, help);
        for area in LossArea::ALL {
            for cause in LossCause::ALL.iter().filter(|cause| cause.area() == area) {
                let labels = format!("{{area=\"{}\",cause=\"{}\"}}", area.key(), cause.key());
                self.value("losses_total", &labels, status.losses.of(*cause));
            }
        }
    }
}

impl RunStatus {
    /// The status as metrics, a line each.
    pub(crate) fn to_metrics(&self) -> String {
        let mut text = Metrics(String::new());
        text.head("run_info", Kind::Gauge, "Which run it is; always 1.");
        text.value("run_info", &format!("{{run=\"{}\"}}", self.run), 1);
        text.head("run_state", Kind::Gauge, "1 for what the run is doing.");
        for (state, key) in [
            (RunState::Running, "running"),
            (RunState::Paused, "paused"),
            (RunState::Stopping, "stopping"),
        ] {
            let labels = format!("{{state=\"{key}\"}}");
            text.value("run_state", &labels, u8::from(self.state == state));
        }
        text.gauge(
            "run_seconds",
            "Time since the start of the run.",
            self.seconds,
        );
        let counts = serde_json::to_value(self.counts).unwrap_or_default();
        for (name, count) in counts.as_object().into_iter().flatten() {
            let metric = format!("{name}_total");
            let help = format!("Counter {name} of the run.");
            text.head(&metric, Kind::Counter, help);
            text.value(&metric, "", count);
        }
        text.losses(self);
        let held = "Fragments that the readout units hold.";
        text.gauge("fragments_buffered", held, self.fragments_buffered);
        text.gauge("pages", "Pages of the readout units.", self.pages);
        let building = "Events begun by builder units and not closed.";
        text.gauge("events_in_building", building, self.events_in_building);
        let died = "Roles that have died; what was lost with them is counted when the run ends.";
        text.gauge("roles_died", died, self.died.len());
        let full = "1 while a writer waits for room on its disk.";
        text.gauge("disk_full", full, u8::from(self.disk_full));
        let unrecorded = "1 while trigger packets are not recorded: no room, or a failed write.";
        let is_unrecorded = u8::from(self.packets_unrecorded);
        text.gauge("packets_unrecorded", unrecorded, is_unrecorded);
        let failed = "Events that the filter failed on, which are in the error stream.";
        text.gauge("filter_failures", failed, self.filter_failures);
        let awaited = "Sources of front-ends that hold up the run.";
        text.gauge(
            "front_end_sources_awaited",
            awaited,
            self.front_ends.awaited,
        );
        let silent =
            "Sources of front-ends that were waited for in vain and have sent nothing since.";
        text.gauge("front_end_sources_silent", silent, self.front_ends.silent);
        text.0.truncate(text.0.trim_end().len());
        text.0
    }
}
