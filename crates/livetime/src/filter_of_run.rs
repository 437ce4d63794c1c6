//! The Python filter of a run: its file is kept with the run, so that it can be replayed.
//!
//! A filter in Python is a file that people go on working on. What a run is filtered with, from its
//! first filter unit to one that joins hours later, is what its directory holds. Reading the
//! configuration is not done here, see [`crate::config`].

use std::path::Path;

use livetime_node::FilterConfig;

/// Name of the filter's file in a run directory.
pub(crate) const FILE: &str = "filter.py";

/// Copies the file of a Python filter into the run directory, and has the filter loaded from there.
///
/// # Errors
/// That the file cannot be copied, with what to do.
pub(crate) fn keep(filter: &mut FilterConfig, directory: &Path) -> Result<(), String> {
    let FilterConfig::Python(python) = filter else {
        return Ok(());
    };
    let kept = directory.join(FILE);
    let file = python.file.display();
    std::fs::copy(&python.file, &kept).map_err(|error| {
        format!(
            "cannot read the filter {file}: {error}\n\
             help: `[filter] python` names it from the working directory"
        )
    })?;
    python.kept = Some(kept);
    Ok(())
}

/// The file that was kept, where a filter is loaded from one.
pub(crate) fn kept_file(filter: &FilterConfig) -> Option<&Path> {
    match filter {
        FilterConfig::Python(python) => python.kept.as_deref(),
        _ => None,
    }
}

/// Has a Python filter loaded from a file that was kept.
pub(crate) fn load_from(filter: &mut FilterConfig, kept: &Path) {
    if let FilterConfig::Python(python) = filter {
        python.kept = Some(kept.to_owned());
    }
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
