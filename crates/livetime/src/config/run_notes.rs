//! What a configuration asks for that this kind of run does not do, although it is no mistake.

use livetime_wire::DurationNs;

use super::RunConfig;

/// What `check` and `run` say beside the problems; `processes` says whether roles get a process each.
pub(crate) fn run_notes(config: &RunConfig, processes: bool) -> Vec<&'static str> {
    let mut notes = Vec::new();
    if config.chain.builder.heartbeat > DurationNs(0) && !processes {
        notes.push(
            "`[builder] heartbeat` watches processes: without `--processes` or `[[host]]` no unit is \
             taken for dead",
        );
    }
    if config.on_loss.filters_at_start.is_some() && !processes {
        notes.push(
            "`[filter] units_max` is above `units`: such a run needs `--processes` or `[[host]]`",
        );
    }
    notes
}
