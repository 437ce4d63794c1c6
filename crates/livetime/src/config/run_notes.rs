//! What a configuration asks for that a run does not do as it seems, although it is no mistake.

use livetime_node::ChainConfig;
use livetime_wire::{ByteSize, DurationNs};

use super::RunConfig;

/// What `check` and `run` say beside the problems; `processes` says whether roles get a process each.
pub(crate) fn run_notes(config: &RunConfig, processes: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if config.chain.builder.heartbeat > DurationNs(0) && !processes {
        notes.push(
            "`[builder] heartbeat` watches processes: without `--processes` or `[[host]]` no unit is \
             taken for dead"
                .to_owned(),
        );
    }
    if config.on_loss.filters_at_start.is_some() && !processes {
        notes.push(
            "`[filter] units_max` is above `units`: filter units join only as processes, so `run` \
             refuses this without `--processes`, `[workers] processes = true` or `[[host]]`"
                .to_owned(),
        );
    }
    notes.extend(size_note(&config.chain));
    notes
}

/// That events may be larger than what byte credits set aside for one.
fn size_note(chain: &ChainConfig) -> Option<String> {
    let builder = &chain.builder;
    let largest = chain.source.fragment.bytes_max.0 * chain.data_links.len() as u64;
    let may_exceed = builder.credit_bytes > 0 && builder.event_bytes < largest;
    (may_exceed && !chain.is_replayed()).then(|| {
        format!(
            "events may have up to {} (`bytes_max` of each source), `[builder] event_bytes` sets {} aside: \
             by larger events a builder unit may hold more than `credit_bytes`",
            ByteSize(largest),
            ByteSize(builder.event_bytes)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::run_config::{Overrides, read};
    use super::*;

    const LINKS: &str = "format = 1\n[[source]]\n[[link]]\nto = \"trg0\"\nsource_id = 1\n\
                         [[link]]\nto = \"ru0\"\nsource_id = 2\ncount = 4\n";

    fn notes(tables: &str, processes: bool) -> Vec<String> {
        let text = format!("{LINKS}{tables}");
        let config = read(&text, &Overrides::default(), &[0, 1]).config;
        run_notes(&config.expect("it has no problem"), processes)
    }

    #[test]
    fn what_needs_processes_or_larger_credits_is_noted() {
        let watched = "[builder]\nheartbeat = \"100 ms\"\n[filter]\nunits = 1\nunits_max = 3\n";
        let found = notes(watched, false);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("heartbeat") && found[1].contains("units_max"));
        assert_eq!(notes(watched, true), Vec::<String>::new());
        let credits = |event: &str| {
            let keys = format!("[builder]\ncredit_bytes = \"1 MiB\"\nevent_bytes = \"{event}\"\n");
            notes(&keys, false)
        };
        let found = credits("1 KiB");
        assert!(found[0].contains("64 KiB"), "{found:?}");
        assert_eq!(credits("64 KiB"), Vec::<String>::new());
    }
}
