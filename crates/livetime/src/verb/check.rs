//! `livetime check CONFIG`: all problems of a configuration at once, nothing started.

use std::path::PathBuf;
use std::process::ExitCode;

use livetime_wire::ByteSize;

use crate::config::{self, Overrides};
use crate::console::{print, say};
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
            say(problems.trim_end());
            return exit::PROBLEM;
        }
    };
    let chain = &loaded.config.chain;
    let pages: u64 = (chain.data_links.iter())
        .map(|link| u64::from(link.link.pages) * u64::from(link.link.page_words) * 4)
        .sum();
    let builder = &chain.builder;
    let mut text = format!(
        "{}: good\n  roles    {}\n  links    1 trigger, {} data, {} of pages\n  builder  {} x {} \
         credits, timeout {}\n",
        options.config.display(),
        chain.role_ids().join(" "),
        chain.data_links.len(),
        ByteSize(pages),
        builder.builder_units,
        builder.credits,
        builder.timeout
    );
    for worker in &chain.workers {
        let core = worker
            .core
            .map_or("any core".to_owned(), |core| format!("core {core}"));
        let (name, roles) = (&worker.name, worker.roles.join(" "));
        text += &format!("  worker   {name}: {roles} ({core}, {:?})\n", worker.wait);
    }
    exit::after_printing(print(text))
}
