//! The last full verdict, kept in the user's state directory so that every run can name it.
//!
//! `$XDG_STATE_HOME/livetime/doctor.json`, or `~/.local/state/livetime/doctor.json`. A machine where
//! neither can be written has no stored verdict, which is said and harms nothing.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use serde_json::Value;

use super::Diagnosis;

/// A verdict of before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastVerdict {
    /// The words.
    pub(crate) verdict: String,
    /// How long ago.
    pub(crate) age: Duration,
    /// The largest gap that its live test saw.
    pub(crate) largest_gap: Option<Duration>,
}

fn path() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    Some(state.or_else(home)?.join("livetime/doctor.json"))
}

/// Keeps a verdict.
///
/// # Errors
/// Why the file could not be written.
pub(crate) fn keep(diagnosis: &Diagnosis) -> std::io::Result<()> {
    let path = path().ok_or_else(|| std::io::Error::other("no home directory is known"))?;
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(path, format!("{:#}\n", diagnosis.to_json()))
}

/// The verdict kept last, if there is one that can be read.
pub(crate) fn last() -> Option<LastVerdict> {
    let path = path()?;
    let written = std::fs::metadata(&path).ok()?.modified().ok()?;
    let document: Value =
        serde_json::from_str(&plain_file::read_text(&path, TEXT_BYTES_MAX).ok()?).ok()?;
    Some(LastVerdict {
        verdict: document["verdict"].as_str()?.to_owned(),
        age: SystemTime::now()
            .duration_since(written)
            .unwrap_or_default(),
        largest_gap: document["largest_gap_ns"]
            .as_u64()
            .map(Duration::from_nanos),
    })
}
