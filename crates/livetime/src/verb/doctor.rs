//! `livetime doctor`: is this machine fit for a trigger loop?
//!
//! The checks are in `machine_check/`; here they are chosen and their answers printed and kept.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use livetime_wire::DurationNs;

use crate::config::parse_quantity;
use crate::console::{print, print_line, say};
use crate::exit;
use crate::machine_check::{Context, Diagnosis, SLOW, Status, stored};

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print one JSON document (livetime.doctor/1)
    #[arg(long)]
    json: bool,
    /// Only what is read in a moment, without measurements
    #[arg(long)]
    quick: bool,
    /// Only these checks, by number
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=17))]
    only: Vec<u8>,
    /// How long the live test spins on each hot core, at least 1ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_live, conflicts_with = "quick")]
    live: DurationNs,
    /// Where run files are to be written
    #[arg(long, default_value = ".")]
    directory: PathBuf,
}

/// The shortest live test: below it a core is hardly looked at.
const LIVE_MIN: DurationNs = DurationNs(1_000_000);

fn parse_live(text: &str) -> Result<DurationNs, String> {
    let live = parse_quantity::<DurationNs>(text)?;
    match live < LIVE_MIN {
        true => Err(format!(
            "nothing would be measured; write at least {LIVE_MIN}"
        )),
        false => Ok(live),
    }
}

/// Those of the chosen checks that `--quick` leaves out.
fn left_out(options: &Options) -> Vec<String> {
    let chosen = options.only.iter().filter(|_| options.quick);
    let slow = chosen.filter(|check| SLOW.contains(check));
    slow.map(u8::to_string).collect()
}

/// Checks.
pub(crate) fn run(options: &Options) -> ExitCode {
    let left_out = left_out(options);
    if !left_out.is_empty() {
        say(format_args!(
            "error: `--only` names checks that `--quick` leaves out, since they measure: {}\n\
             help: leave out --quick, or these numbers",
            left_out.join(", ")
        ));
        return ExitCode::from(2);
    }
    let directory = options.directory.clone();
    let context = if options.quick {
        Context::quick(directory)
    } else {
        Context::new(directory, Duration::from_nanos(options.live.0))
    };
    let diagnosis = Diagnosis::make(&context, &options.only, |line| say(line));
    let is_full = !options.quick && options.only.is_empty();
    if is_full && let Err(error) = stored::keep(&diagnosis) {
        say(format_args!(
            "warning: the verdict cannot be kept for later runs: {error}"
        ));
    }
    let printed = if options.json {
        print_line(format_args!("{:#}", diagnosis.to_json()))
    } else {
        print(diagnosis.to_text())
    };
    if diagnosis.worst() == Status::Fail && printed.is_ok() {
        return exit::PROBLEM;
    }
    exit::after_printing(printed)
}
