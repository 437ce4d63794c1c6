//! `livetime steer DIR ORDER`: asks or changes a run while it goes on.
//!
//! What can be ordered is said in `run_control.rs`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::console::{print_line, say};
use crate::exit;
use crate::run_control::send_order;
use crate::run_status::RunStatus;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory of the run, such as runs/000001
    directory: PathBuf,
    /// What to do: status, pause, resume, stop, abort, note TEXT, filter add, filter remove, filter remove fu1
    #[arg(required = true)]
    order: Vec<String>,
    /// Print the status as one JSON document (livetime.status/1)
    #[arg(long)]
    json: bool,
    /// Print the status as metrics in Prometheus' text format
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

/// Sends the order and prints the answer.
pub(crate) fn run(options: &Options) -> ExitCode {
    let is_status = options.order == ["status"];
    let forms = [
        ("--json", options.json),
        ("--prometheus", options.prometheus),
    ];
    let given = forms.into_iter().find(|(_, is_given)| *is_given);
    let form = given.map(|(form, _)| form);
    if let Some(form) = form.filter(|_| !is_status) {
        say(format_args!(
            "error: `{form}` goes with the order `status` alone: the others are answered with a sentence",
        ));
        return ExitCode::from(2);
    }
    let answer = send_order(&options.directory, &options.order.join(" "));
    let answer = answer.and_then(|answer| match form {
        Some("--prometheus") => Ok(status_of(&answer)?.to_metrics()),
        None if is_status => Ok(status_of(&answer)?.to_text()),
        _ => Ok(answer),
    });
    match answer {
        Ok(answer) => exit::after_printing(print_line(answer)),
        Err(error) => {
            say(format_args!("error: {error}"));
            exit::PROBLEM
        }
    }
}

fn status_of(document: &str) -> Result<RunStatus, String> {
    serde_json::from_str(document)
        .map_err(|error| format!("the run answered with no status of this version: {error}"))
}
