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
    /// The last try failed, which was said.
    has_failed: bool,
}

impl HistogramFile {
    /// The file in a run directory; nothing is written yet.
    pub(crate) fn of(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
            due: Instant::now() + INTERVAL,
            has_failed: false,
        }
    }

    /// Writes the present histograms if it is time and there are any.
    pub(crate) fn write_if_due(&mut self, running: &Chain) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        let histograms = running.filter_histograms();
        if !histograms.is_empty() {
            self.write(histograms_to_json(&histograms).to_string());
        }
    }

    /// Writes a state. The run goes on where that fails, and so do the tries: a disk may have room again.
    fn write(&mut self, text: String) {
        let written = output_place::write(&self.path, text);
        let had_failed = std::mem::replace(&mut self.has_failed, written.is_err());
        match (written, had_failed) {
            (Err(error), false) => say(format_args!(
                "\nwarning: {error}; {FILE} is not of now until that is said to be over; at the end the \
                 histograms are in the run file"
            )),
            (Ok(()), true) => say(format_args!("\n{FILE} is written again")),
            _ => {}
        }
    }
}

impl Drop for HistogramFile {
    fn drop(&mut self) {
        // It is not there when no filter has filled any.
        let _absent = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_could_not_be_written_does_not_end_the_tries() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let mut file = HistogramFile::of(directory.path());
        // A name that is taken.
        fs::create_dir(&file.path)?;
        fs::write(file.path.join("inside"), "")?;
        file.write("first".to_owned());
        assert!(file.has_failed);
        fs::remove_dir_all(&file.path)?;
        file.write("second".to_owned());
        assert!(!file.has_failed);
        assert_eq!(fs::read_to_string(&file.path)?, "second");
        Ok(())
    }
}
