//! Reports, plots and benches.
