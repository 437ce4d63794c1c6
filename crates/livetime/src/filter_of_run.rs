//! The Python filter of a run: its file is kept with the run, so that it can be replayed.
//!
//! A filter in Python is a file that people go on working on. What a run was filtered with is what
//! its directory holds. Reading the configuration is not done here, see [`crate::config`].

use std::path::{Path, PathBuf};

use livetime_node::FilterConfig;

/// Name of the filter's file in a run directory.
pub(crate) const FILE: &str = "filter.py";

/// Copies the file of a Python filter into the run directory; returns its path there.
///
/// # Errors
/// That the file cannot be copied, with what to do.
pub(crate) fn keep(filter: &FilterConfig, directory: &Path) -> Result<Option<PathBuf>, String> {
    let FilterConfig::Python(python) = filter else {
        return Ok(None);
    };
    let kept = directory.join(FILE);
    let file = python.file.display();
    std::fs::copy(&python.file, &kept).map_err(|error| {
        format!(
            "cannot read the filter {file}: {error}\n\
             help: `[filter] python` names it from the working directory"
        )
    })?;
    Ok(Some(kept))
}

/// The filter of the run `path` (a directory or a file in it), with the file that was kept with it.
///
/// # Errors
/// That the file is gone, with what to do: one of its name elsewhere may be another by now.
pub(crate) fn kept(mut filter: FilterConfig, path: &Path) -> Result<FilterConfig, String> {
    if let FilterConfig::Python(python) = &mut filter {
        let kept = match path.is_dir() {
            true => path.join(FILE),
            false => path.with_file_name(FILE),
        };
        if !kept.is_file() {
            return Err(format!(
                "error: {}: it is not there, and it is what the run was filtered with\n\
                 help: name a configuration with --filter-of",
                kept.display()
            ));
        }
        python.file = kept;
    }
    Ok(filter)
}
