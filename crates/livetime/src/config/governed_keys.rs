//! Keys of `[builder]` whose allowed values follow from others: where one of those is wrong, the first
//! is not compared with it, and judged by itself all the same.
//!
//! Compared with a value that nobody meant, a good one would look wrong; not judged at all, a wrong one
//! would be said only when the other is right. So the core judges it beside the most permissive value
//! in place of the wrong one.

use livetime_builder::BuilderConfig;
use livetime_wire::{DurationNs, Problem};

/// The keys of the table, each with those that its allowed values follow from.
const GOVERNED: [(&str, &[&str]); 5] = [
    ("trigger_window", &["credits", "builder_units", "evm_queue"]),
    ("history", &["trigger_window"]),
    ("retry", &["timeout"]),
    ("suspect", &["heartbeat"]),
    ("dead", &["heartbeat", "suspect"]),
];

/// What is wrong with the values of the table at `path`; `is_wrong` says of a key path that its value
/// could not be read.
pub(super) fn builder_problems(
    builder: &BuilderConfig,
    path: &str,
    is_wrong: impl Fn(&str) -> bool,
) -> Vec<Problem> {
    let key_path = |key: &str| format!("{path}.{key}");
    let mut permissive = builder.clone();
    let mut problems = builder.validate(path);
    // A key may govern another only if it is right itself, which those before it decide.
    for (key, governors) in GOVERNED {
        let wrong = |key: &&&str| {
            let at = key_path(key);
            is_wrong(&at) || problems.iter().any(|problem| problem.path == at)
        };
        let wrong: Vec<&str> = governors.iter().filter(wrong).copied().collect();
        if wrong.is_empty() {
            continue;
        }
        wrong.iter().for_each(|key| permit(&mut permissive, key));
        let at = key_path(key);
        let place = problems.iter().position(|problem| problem.path == at);
        problems.retain(|problem| problem.path != at);
        let of_itself = permissive.validate(path).into_iter();
        let of_itself = of_itself.filter(|problem| problem.path == at);
        let place = place.unwrap_or(problems.len());
        problems.splice(place..place, of_itself);
    }
    problems
}

/// Puts the value in place of a key's that allows most of those that it governs.
fn permit(builder: &mut BuilderConfig, key: &str) {
    let heartbeat = BuilderConfig::HEARTBEAT_MIN;
    match key {
        "credits" => builder.credits = 1,
        "builder_units" => builder.builder_units = 1,
        "evm_queue" => builder.evm_queue = 1,
        "trigger_window" => builder.trigger_window = 1,
        "timeout" => builder.timeout = DurationNs(3600 * DurationNs::SECOND.0),
        "heartbeat" => builder.heartbeat = heartbeat,
        "suspect" => builder.suspect = DurationNs(2 * builder.heartbeat.max(heartbeat).0),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(edit: impl FnOnce(&mut BuilderConfig)) -> Vec<(String, String)> {
        let mut builder = BuilderConfig {
            readout_units: vec![vec![livetime_wire::SourceId(1)]],
            ..BuilderConfig::default()
        };
        edit(&mut builder);
        let problems = builder_problems(&builder, "b", |path| path == "b.unread").into_iter();
        let problems = problems.map(|problem| (problem.path, problem.allowed));
        problems.collect()
    }

    fn keys(edit: impl FnOnce(&mut BuilderConfig)) -> Vec<String> {
        problems(edit).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn a_value_that_is_wrong_by_itself_is_said_beside_the_one_that_governs_it() {
        assert_eq!(keys(|_| {}), [""; 0]);
        let of_times = problems(|b| {
            (b.timeout, b.retry) = (DurationNs(0), DurationNs(0));
        });
        let paths: Vec<&str> = of_times.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["b.timeout", "b.retry"]);
        let hour = DurationNs(3600 * DurationNs::SECOND.0);
        assert_eq!(
            of_times[1].1,
            format!("{} to {hour}", DurationNs::MICROSECOND)
        );
        let windows = |history: u32| keys(|b| (b.trigger_window, b.history) = (0, history));
        assert_eq!(windows(100), ["b.trigger_window", "b.history"]);
        let silences = |dead: DurationNs| {
            keys(|b| {
                b.heartbeat = DurationNs::SECOND;
                (b.suspect, b.dead) = (DurationNs(0), dead);
            })
        };
        assert_eq!(silences(DurationNs(0)), ["b.suspect", "b.dead"]);
        assert_eq!(
            keys(|b| (b.credits, b.trigger_window) = (0, 3)),
            ["b.credits", "b.trigger_window"]
        );
    }

    #[test]
    fn a_good_value_is_not_compared_with_a_wrong_one() {
        let (short, hour) = (DurationNs::SECOND, DurationNs(3600 * DurationNs::SECOND.0));
        assert_eq!(
            keys(|b| (b.timeout, b.retry) = (DurationNs(0), short)),
            ["b.timeout"]
        );
        assert_eq!(keys(|b| (b.timeout, b.retry) = (short, hour)), ["b.retry"]);
        assert_eq!(
            keys(|b| (b.trigger_window, b.history) = (0, 64)),
            ["b.trigger_window"]
        );
        assert_eq!(
            keys(|b| (b.credits, b.trigger_window) = (1 << 23, 1024)),
            ["b.credits"]
        );
    }
}
