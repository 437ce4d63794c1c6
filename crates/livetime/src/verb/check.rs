//! `livetime check CONFIG`: all problems of a configuration at once, nothing started.

use std::path::PathBuf;
use std::process::ExitCode;

use livetime_wire::ByteSize;

use crate::config::{self, Overrides};
use crate::exit;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Configuration file
    config: PathBuf,
}

/// Reads and validates; prints what the chain would be made of.
pub(crate) fn run(options: &Options) -> ExitCode {
    let loaded = match config::load(&options.config, &Overrides::default()) {
        Ok(loaded) => loaded,
        Err(problems) => {
            eprint!("{problems}");
            return exit::PROBLEM;
        }
    };
    let chain = &loaded.config.chain;
    let pages: u64 = (chain.data_links.iter())
        .map(|link| u64::from(link.link.pages) * u64::from(link.link.page_words) * 4)
        .sum();
    println!("{}: good", options.config.display());
    println!("  roles    {}", chain.role_ids().join(" "));
    println!(
        "  links    1 trigger, {} data, {} of pages",
        chain.data_links.len(),
        ByteSize(pages)
    );
    let builder = &chain.builder;
    println!(
        "  builder  {} x {} credits, timeout {}",
        builder.builder_units, builder.credits, builder.timeout
    );
    for worker in &chain.workers {
        let core = worker
            .core
            .map_or("any core".to_owned(), |core| format!("core {core}"));
        println!(
            "  worker   {}: {} ({core}, {:?})",
            worker.name,
            worker.roles.join(" "),
            worker.wait
        );
    }
    ExitCode::SUCCESS
}
