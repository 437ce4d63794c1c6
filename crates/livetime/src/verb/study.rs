//! `livetime study NAME`: the tables and figures of the papers, measured or simulated anew.
//!
//! The studies are in `livetime_study::study`; here they are chosen and their results written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use livetime_study::bench::BenchError;
use livetime_study::report::Report;
use livetime_study::study::{cms, filar, level3, pulsar, saft};
use serde_json::Value;

use crate::console::{print_line, say, with_causes};
use crate::exit;
use crate::output_place::{self, Remade};

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    study: Study,
}

#[derive(Debug, Subcommand)]
enum Study {
    /// The PULSAR note: size, I/O only, algorithms, trials of 63 000 events, outliers by whose they are
    Pulsar(PulsarOptions),
    /// The FILAR slides: throughput, rate and host time against length, 1 to 12 channels, both firmwares
    Filar(FilarOptions),
    /// The CMS event builder studies: every row and figure of the talk, and its open questions
    Cms(CmsOptions),
    /// SAFTlib's latencies and transfers: broker, peer to peer, pipe, ring; with and without monitors
    Saft(SaftOptions),
    /// Figure 2 of the Level-3 note: throughput against processors, measured and simulated
    Level3(Level3Options),
}

#[derive(Debug, clap::Args)]
struct PulsarOptions {
    /// Ten trials instead of a hundred: less than three minutes
    #[arg(long)]
    quick: bool,
    /// Print the JSON document (livetime.study_pulsar/1)
    #[arg(long)]
    json: bool,
    /// Write the page here; only a former page is replaced
    #[arg(long, value_name = "FILE.html", default_value = "pulsar.html")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct FilarOptions {
    /// Fewer lengths and shorter streams: less than a minute
    #[arg(long)]
    quick: bool,
    /// Print the JSON document (livetime.study_filar/1)
    #[arg(long)]
    json: bool,
    /// Write the page here; only a former page is replaced
    #[arg(long, value_name = "FILE.html", default_value = "filar.html")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct CmsOptions {
    /// Shorter simulations, fewer seeds and buffers: minutes
    #[arg(long)]
    quick: bool,
    /// Print the JSON document (livetime.study_cms/1)
    #[arg(long)]
    json: bool,
    /// Write the page here; only a former page is replaced
    #[arg(long, value_name = "FILE.html", default_value = "cms.html")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct SaftOptions {
    /// Fewer messages: less than a minute, tails less well known
    #[arg(long)]
    quick: bool,
    /// Print the JSON document (livetime.study_saft/1)
    #[arg(long)]
    json: bool,
    /// Write the page here; only a former page is replaced
    #[arg(long, value_name = "FILE.html", default_value = "saft.html")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Level3Options {
    /// Shorter measurements and simulations: less than three minutes
    #[arg(long)]
    quick: bool,
    /// Print the JSON document (livetime.study_level3/2)
    #[arg(long)]
    json: bool,
    /// Write the page here; only a former page is replaced
    #[arg(long, value_name = "FILE.html", default_value = "level3.html")]
    out: PathBuf,
}

/// What to do with a study that was made.
struct Output<'a> {
    json: bool,
    out: &'a Path,
}

impl<'a> Output<'a> {
    fn new(json: bool, out: &'a Path) -> Self {
        Self { json, out }
    }
}

/// A study that was made.
struct Made {
    document: Value,
    report: Report,
    /// Whether all is where it must be.
    passed: bool,
}

impl Study {
    /// Its name, whether it is to be short, and what to do with it.
    fn wanted(&self) -> (&'static str, bool, Output<'_>) {
        match self {
            Self::Pulsar(PulsarOptions { quick, json, out }) => {
                ("pulsar", *quick, Output::new(*json, out))
            }
            Self::Filar(FilarOptions { quick, json, out }) => {
                ("filar", *quick, Output::new(*json, out))
            }
            Self::Cms(CmsOptions { quick, json, out }) => ("cms", *quick, Output::new(*json, out)),
            Self::Saft(SaftOptions { quick, json, out }) => {
                ("saft", *quick, Output::new(*json, out))
            }
            Self::Level3(Level3Options { quick, json, out }) => {
                ("level3", *quick, Output::new(*json, out))
            }
        }
    }

    /// Makes it; `command` is what makes it again.
    fn make(&self, quick: bool, command: &str) -> Result<Made, BenchError> {
        let (document, report, passed) = match self {
            Self::Pulsar(_) => {
                let study = pulsar::run(quick, command)?;
                (study.document, study.report, study.passed)
            }
            Self::Filar(_) => {
                let study = filar::run(quick, command)?;
                (study.document, study.report, study.passed)
            }
            Self::Cms(_) => {
                let study = cms::run(quick, command)?;
                (study.document, study.report, study.passed)
            }
            Self::Saft(_) => {
                let study = saft::run(quick, command)?;
                (study.document, study.report, true)
            }
            Self::Level3(_) => {
                let study = level3::run(quick, command)?;
                (study.document, study.report, study.passed)
            }
        };
        Ok(Made {
            document,
            report,
            passed,
        })
    }
}

/// Makes the study.
pub(crate) fn run(options: &Options) -> ExitCode {
    let study = &options.study;
    let (name, quick, output) = study.wanted();
    if let Err(error) = output_place::check_remade(output.out, &Remade::PAGE) {
        say(format_args!("error: {error}"));
        return exit::PROBLEM;
    }
    let suffix = if quick { " --quick" } else { "" };
    let made = match study.make(quick, &format!("livetime study {name}{suffix}")) {
        Ok(made) => made,
        Err(error) => {
            say(format_args!("error: study {name}: {}", with_causes(&error)));
            return exit::PROBLEM;
        }
    };
    if !made.passed {
        if matches!(study, Study::Level3(_)) {
            say(
                "error: the simulated farm is not where the note has it, or the stage is below the enhanced rate",
            );
        }
        say("error: a row is outside its tolerance or a decision wrong; the page says which");
    }
    match write(&made.document, &made.report, &output) {
        ExitCode::SUCCESS if !made.passed => exit::PROBLEM,
        code => code,
    }
}

/// Writes the page, and prints the document or the tables.
fn write(document: &Value, report: &Report, output: &Output<'_>) -> ExitCode {
    let path = output.out.display();
    if let Err(error) = output_place::write(output.out, report.to_html()) {
        say(format_args!("error: {error}"));
        return exit::PROBLEM;
    }
    say(format_args!("wrote {path}"));
    if output.json {
        return exit::after_printing(print_line(format_args!("{document:#}")));
    }
    let mut lines = Vec::new();
    for table in &report.tables {
        lines.push(format!(
            "{}\n  {}",
            table.caption,
            table.headings.join(" | ")
        ));
        lines.extend(
            table
                .rows
                .iter()
                .map(|row| format!("  {}", row.join(" | "))),
        );
        lines.extend(table.conclusion.iter().map(|text| format!("  => {text}")));
    }
    exit::after_printing(print_line(lines.join("\n")))
}
