//! Automation of the workspace: `tidy` (rules that the compiler does not know), `test` (every
//! check and every test, with a closing count), `shows` (acceptance lines with their figures) and
//! `soak` (long forms of tests).
//!
//! It builds and runs the workspace through cargo and contains nothing that ships. Read
//! [`tidy`] for the rules, `shows/first_light.rs` for what the first capability promises.

mod benchmarks;
mod data_folder;
mod fuzz;
mod program;
mod shows;
mod soak;
mod source_text;
mod test_driver;
mod tidy;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask VERB

verbs:
  tidy                        check the rules of STYLE.md and ARCHITECTURE.md that a text shows
  test [CRATE|PART..]         formatting, lints, documentation, tidy and every test, or only
                              the tests of some crates and some of the parts loom, oracle,
                              python, miri, thread-sanitizer, fuzz
  shows NAME [LINE | --write] run the acceptance lines of a capability; --write updates
                              docs/shows.md (names: first-light, proof, links,
                              builder, fabric, timing, farm)
  benchmarks --from FILE [--write]
                              put the tables of a `livetime bench all --json` behind the text of
                              docs/benchmarks.md and print it, or write it
  soak [NAME [--hours H]]     the long form of a test, for hours; without a name, list them";

/// Exit code for a wrong command line.
const EXIT_USAGE: u8 = 2;

/// Why a verb could not do its work at all, in one sentence for the person at the terminal.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    if let Err(failure) = data_folder::make_absolute() {
        eprintln!("error: {failure}");
        return ExitCode::FAILURE;
    }
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
        ["benchmarks", rest @ ..] => match benchmarks::Request::parse(rest) {
            Some(request) => benchmarks::run(&request),
            None => return usage(),
        },
        ["soak", rest @ ..] => match soak::Request::parse(rest) {
            Some(request) => soak::run(&request),
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
