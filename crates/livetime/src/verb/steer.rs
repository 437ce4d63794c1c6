//! `livetime steer DIR ORDER`: changes a run while it goes on.
//!
//! What can be ordered is said in `run_control.rs`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::console::{print_line, say};
use crate::exit;
use crate::run_control::send_order;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory of the run, such as runs/000001
    directory: PathBuf,
    /// What to do: filter add, filter remove, filter remove fu1
    #[arg(required = true)]
    order: Vec<String>,
}

/// Sends the order and prints the answer.
pub(crate) fn run(options: &Options) -> ExitCode {
    match send_order(&options.directory, &options.order.join(" ")) {
        Ok(answer) => exit::after_printing(print_line(answer)),
        Err(error) => {
            say(format_args!("error: {error}"));
            exit::PROBLEM
        }
    }
}
