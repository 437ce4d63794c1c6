//! `livetime role ID CONFIG`: one role of a run, as a process of its own.
//!
//! Started by `livetime run` with `processes = true`, not by people: standard input is the socket
//! to the parent, over which rings and pages come. It ends with its parent. What is said there is
//! in `livetime_node::process`.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use livetime_node::ChainConfig;
use livetime_node::chain_plan::FRONT_END;
use livetime_node::event_fault::EventFault;
use livetime_node::process::process_group::workers_of_processes;
use livetime_node::process::{Launcher, serve_role};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::config::{self, Loaded};
use crate::console::say;
use crate::exit;
use crate::filter_of_run;
use crate::run_summary::config_hash;
use crate::verb::run::SourceOptions;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Role id, such as ru0
    id: String,
    #[command(flatten)]
    source: SourceOptions,
    /// The copy of the filter in Python that the run is filtered with
    #[arg(long, value_name = "FILE")]
    kept_filter: Option<PathBuf>,
}

/// Serves the role.
pub(crate) fn run(options: &Options) -> ExitCode {
    let id = &options.id;
    let (text, mut chain, faults) = match chain_of(&options.source, reads_events(id)) {
        Ok(read) => read,
        Err(problems) => {
            say(format_args!("{id}: {}", problems.trim_end()));
            return exit::PROBLEM;
        }
    };
    if let Some(kept) = &options.kept_filter {
        filter_of_run::load_from(&mut chain.filter, kept);
    }
    match serve(id, chain, &identity(&text, &options.source), faults) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("error: {id}: {error}"));
            exit::PROBLEM
        }
    }
}

/// Whether a role is the one that plays recorded events.
pub(crate) fn reads_events(id: &str) -> bool {
    id == FRONT_END
}

/// The chain of a run for a process that has roles of it: the text of the configuration, the chain
/// with the faults of links, and the faults of events. Recorded events are read where they are played
/// alone: their file may be gone when another role is started again.
///
/// # Errors
/// The rendered problems.
pub(crate) fn chain_of(
    source: &SourceOptions,
    with_events: bool,
) -> Result<(String, ChainConfig, Vec<EventFault>), String> {
    let load = match with_events {
        true => config::load,
        false => config::load_without_events,
    };
    let Loaded { text, config } = load(&source.config, &source.overrides())?;
    let mut chain = config.chain;
    let faults = config::sort_faults(&source.fault, &chain, true)
        .map_err(|error| format!("error: {error}"))?;
    chain.faults = faults.links;
    Ok((text, chain, faults.events))
}

fn serve(
    id: &str,
    chain: ChainConfig,
    identity: &str,
    faults: Vec<EventFault>,
) -> Result<(), Box<dyn std::error::Error>> {
    // One that stands still does not see the parent hang up, and would do a little more when it goes on.
    // The parent starts roles from its main thread alone, whose end is its own.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let workers = workers_of_processes(&chain, livetime_shm::allowed_cpus().len());
    let worker = workers.into_iter().find(|worker| worker.name == id);
    let worker = worker.ok_or("this chain has no such role")?;
    serve_role(socket, id, VERSION, identity, chain, &worker, faults)?;
    Ok(())
}

/// The version that all processes of a run must have.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What parent and role must have in common: the configuration, wherever its file is, and the
/// options over it.
fn identity(text: &str, source: &SourceOptions) -> String {
    format!("{} {}", config_hash(text), source.options().join(" "))
}

/// The command that serves a role with these arguments, and with the filter in Python that was kept.
pub(crate) fn role_command(
    arguments: Vec<OsString>,
    kept_filter: Option<PathBuf>,
) -> std::io::Result<impl Fn(&str) -> Command> {
    let program = std::env::current_exe()?;
    Ok(move |id: &str| {
        let mut command = Command::new(&program);
        command.args(["role", id]).args(&arguments);
        if let Some(kept) = &kept_filter {
            command.arg("--kept-filter").arg(kept);
        }
        command
    })
}

/// How `livetime run` starts the roles of a run with the configuration `text`, which the file holds that
/// `source` names.
pub(crate) fn launcher(
    text: &str,
    source: &SourceOptions,
    kept_filter: Option<&Path>,
) -> std::io::Result<Launcher> {
    let command = role_command(source.arguments(), kept_filter.map(Path::to_owned))?;
    Ok(Launcher {
        command: Box::new(command),
        version: VERSION.to_owned(),
        identity: identity(text, source),
        hosts: None,
    })
}

#[cfg(test)]
mod tests {
    use livetime_node::process::LossPolicy;
    use livetime_node::{Chain, RunFile};
    use livetime_store::RunBegin;

    use super::*;
    use crate::config::Overrides;

    /// Starts a chain whose roles are a shell that says `hello` and then listens.
    fn start_with(hello: &str) -> String {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dimuon.toml");
        let loaded = config::load(&example, &Overrides::default()).expect("the example is good");
        let chain = loaded.config.chain;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let begin = RunBegin::new(chain.run);
        let file = RunFile::create(&folder.path().join("events.mcap"), &begin, chain.store);
        let hello = hello.to_owned();
        let launcher = Launcher {
            command: Box::new(move |id| {
                let mut command = Command::new("sh");
                let hello = hello.replace("ROLE", id);
                let script = format!("printf '%s' '{hello}' >&0; exec cat");
                command.args(["-c", &script]);
                command
            }),
            version: "0.1.0".to_owned(),
            identity: "this one".to_owned(),
            hosts: None,
        };
        let file = file.expect("a writable folder");
        let started =
            Chain::start_processes(&chain, file, launcher, LossPolicy::default(), Vec::new());
        started.err().expect("a shell is no role").to_string()
    }

    #[test]
    fn roles_of_another_program_or_configuration_are_refused() {
        for (hello, expected) in [
            (
                r#"["hello",[12,"0.0.9","ROLE","this one"]]"#,
                "src0 has program version 0.0.9, expected 0.1.0",
            ),
            (
                r#"["hello",[1,"0.1.0","ROLE","this one"]]"#,
                "src0 has protocol 1, expected 12",
            ),
            (
                r#"["hello",[12,"0.1.0","ROLE","another"]]"#,
                "src0 has configuration another, expected this one",
            ),
            (
                r#"["hello",[12,"0.1.0","fu9","this one"]]"#,
                "src0 has role fu9, expected src0",
            ),
            (r#"["ready",null]"#, "src0 sent ready where hello was due"),
            ("nonsense", "src0 sent nonsense where hello was due"),
        ] {
            let error = start_with(hello);
            assert_eq!(error, expected);
        }
    }
}
