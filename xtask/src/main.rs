//! Automation of the workspace: `tidy` (rules that the compiler does not know), `test` (every
//! check and every test, with a closing count) and `shows` (acceptance lines with their figures).
//!
//! It builds and runs the workspace through cargo and contains nothing that ships. Read
//! [`tidy`] for the rules, `shows/first_light.rs` for what the first capability promises.

mod program;
mod shows;
mod source_text;
mod test_driver;
mod tidy;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask VERB

verbs:
  tidy                        check the rules of STYLE.md and ARCHITECTURE.md that a text shows
  test [CRATE..]              formatting, lints, documentation, tidy and every test, or only
                              the tests of some crates
  shows NAME [LINE | --write] run the acceptance lines of a capability; --write updates
                              docs/shows.md (names: first-light)";

/// Exit code for a wrong command line.
const EXIT_USAGE: u8 = 2;

/// Why a verb could not do its work at all, in one sentence for the person at the terminal.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["tidy"] => tidy::run(),
        ["test", crates @ ..] if crates.iter().all(|name| !name.starts_with('-')) => {
            test_driver::run(crates)
        }
        ["shows", rest @ ..] => match shows::Request::parse(rest) {
            Some(request) => shows::run(&request),
            None => return usage(),
        },
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => return usage(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(EXIT_USAGE)
}
