//! The histograms that filters fill, beside the run file while the run goes on.
//!
//! `histograms.json` in the run directory is written anew each second, whole and under another name
//! first, so that whoever opens it finds one state of it. At the end the histograms are in the run
//! file, and this file is taken away. How they come together is the chain's business.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use livetime_node::Chain;
use livetime_store::histogram::histograms_to_json;

use crate::console::say;
use crate::output_place;

/// Name of the file in a run directory.
pub(crate) const FILE: &str = "histograms.json";
/// Time between two states of it.
const INTERVAL: Duration = Duration::from_secs(1);

/// The file of a run.
pub(crate) struct HistogramFile {
    path: PathBuf,
    due: Instant,
    failed: bool,
}

impl HistogramFile {
    /// The file in a run directory; nothing is written yet.
    pub(crate) fn of(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
            due: Instant::now() + INTERVAL,
            failed: false,
        }
    }

    /// Writes the present histograms if it is time and there are any.
    pub(crate) fn write_if_due(&mut self, running: &Chain) {
        let now = Instant::now();
        if self.failed || now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        let histograms = running.filter_histograms();
        if histograms.is_empty() {
            return;
        }
        let text = histograms_to_json(&histograms).to_string();
        if let Err(error) = output_place::write(&self.path, text) {
            // The run goes on: its file will have them.
            self.failed = true;
            say(format_args!(
                "\nwarning: {error}; the histograms are in the run file at the end"
            ));
        }
    }
}

impl Drop for HistogramFile {
    fn drop(&mut self) {
        // It is not there when no filter has filled any.
        let _absent = fs::remove_file(&self.path);
    }
}
