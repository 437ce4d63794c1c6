//! `livetime check CONFIG`: all problems of a configuration, or of the scenario of a network, at once,
//! nothing started.
//!
//! With `--generate N` the configuration is written first, with N links.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use livetime_node::ChainConfig;
use livetime_node::chain_plan::{memory_bytes_least, pages_bytes};
use livetime_node::process::process_group::workers_of_processes;
use livetime_wire::ByteSize;

use crate::config::{self, HostLauncher, HostTable, Overrides, RunConfig, ScenarioOverrides};
use crate::console::{print, say};
use crate::exit;
use crate::verb::generate;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Configuration file
    config: PathBuf,
    /// Write a configuration of this many data links to the file first; it must not be there
    #[arg(long, value_name = "LINKS", value_parser = clap::value_parser!(u32).range(1..=i64::from(generate::LINKS_MAX)))]
    generate: Option<u32>,
    /// Recorded events (CSV) in place of the configured source, as `run` takes them
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
}

/// Checks the text of a file that is the scenario of a network.
fn check_scenario(path: &Path, text: String) -> ExitCode {
    let (name, folder) = (path.display().to_string(), path.parent());
    let folder = folder.unwrap_or(Path::new("."));
    let read = config::read_scenario(&name, text, folder, ScenarioOverrides::default());
    let loaded = match read {
        Ok(loaded) => loaded,
        Err(problems) => {
            say(problems.trim_end());
            return exit::PROBLEM;
        }
    };
    let topology = (loaded.scenario.topology.build()).expect("a scenario without problems has one");
    let mut text = format!(
        "{name}: good\n  network  {} sources x {} destinations, {} elements, {} links\n",
        topology.sources(),
        topology.destinations(),
        topology.elements().len(),
        topology.links().len()
    );
    for note in loaded.scenario.notes(&topology) {
        text += &format!("  note     {note}\n");
    }
    exit::after_printing(print(text))
}

/// The hosts with their roles.
fn host_lines(table: &HostTable) -> String {
    let mut text = String::new();
    for host in &table.hosts {
        let launcher = match &host.launcher {
            HostLauncher::Local => "local",
            HostLauncher::Exec(command) => command,
        };
        let (name, roles) = (&host.name, host.roles.join(" "));
        text += &format!(
            "  host     {name} at {}: {roles} ({launcher})\n",
            host.address
        );
    }
    text
}

/// The roles as processes, and which have a core of their own.
fn process_lines(chain: &ChainConfig, hosts: &HostTable) -> String {
    let workers = workers_of_processes(chain, livetime_shm::allowed_cpus().len());
    let mut text = "  process  one for each role\n".to_owned();
    // How many cores there are on other hosts is not known here.
    for worker in workers.iter().filter(|_| hosts.hosts.is_empty()) {
        if let Some(core) = worker.core {
            text += &format!(
                "  process  {} (core {core}, {:?})\n",
                worker.name, worker.wait
            );
        }
    }
    text
}

/// What the chain would be made of, with what is to be known of it and of its files.
fn chain_lines(config: &RunConfig, file_notes: Vec<String>) -> String {
    let chain = &config.chain;
    let builder = &chain.builder;
    let mut text = format!(
        "  roles    {}\n  links    {} trigger, {} data\n  memory   {} of pages, {} or more \
         with rings and tables\n  builder  {} x {} credits, timeout {}\n",
        chain.role_ids().join(" "),
        usize::from(chain.trigger_nodes) * chain.merger.inputs,
        chain.data_links.len(),
        ByteSize(pages_bytes(chain)),
        ByteSize(memory_bytes_least(chain)),
        builder.builder_units,
        builder.credits,
        builder.timeout
    );
    let processes = config.processes || !config.hosts.hosts.is_empty();
    // Where each role has a process of its own, none shares a thread.
    for worker in chain.workers.iter().filter(|_| !processes) {
        let core = worker
            .core
            .map_or("any core".to_owned(), |core| format!("core {core}"));
        let (name, roles) = (&worker.name, worker.roles.join(" "));
        text += &format!("  worker   {name}: {roles} ({core}, {:?})\n", worker.wait);
    }
    let hosts = &config.hosts;
    if processes {
        text += &process_lines(chain, hosts);
    }
    text += &host_lines(hosts);
    let notes = config::run_notes(config, processes);
    let notes = notes.into_iter().chain(config::memory_note(config));
    let as_processes = (!processes).then(|| config::processes_note(config));
    let notes = notes.chain(as_processes.flatten());
    for note in notes.chain(file_notes) {
        text += &format!("  note     {note}\n");
    }
    text
}

/// Reads and validates; prints what the chain would be made of.
pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(links) = options.generate {
        let written = File::create_new(&options.config)
            .and_then(|mut file| file.write_all(generate::configuration(links).as_bytes()));
        if let Err(error) = written {
            let path = options.config.display();
            say(format_args!("error: cannot make {path}: {error}"));
            return exit::PROBLEM;
        }
    }
    let start = Instant::now();
    let text = match config::read_config(&options.config) {
        Ok(text) if config::is_scenario(&text) => {
            if options.events.is_some() {
                let path = options.config.display();
                say(format_args!(
                    "error: `--events` is for the configuration of a run, and {path} is the scenario of a \
                     network"
                ));
                return exit::usage();
            }
            return check_scenario(&options.config, text);
        }
        Ok(text) => text,
        Err(problem) => {
            say(problem.trim_end());
            return exit::PROBLEM;
        }
    };
    let name = options.config.display().to_string();
    let overrides = Overrides {
        events: options.events.clone(),
        ..Overrides::default()
    };
    let read = config::judge_with_files(&name, text, &overrides);
    let (loaded, file_notes) = match read {
        Ok(read) => read,
        Err(problems) => {
            say(problems.trim_end());
            return exit::PROBLEM;
        }
    };
    let took = start.elapsed();
    let mut text = format!("{name}: good\n{}", chain_lines(&loaded.config, file_notes));
    if options.generate.is_some() {
        text += &format!("  checked  in {:.0} ms\n", took.as_secs_f64() * 1e3);
    }
    exit::after_printing(print(text))
}
