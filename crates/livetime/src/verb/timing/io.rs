//! `livetime timing io`: outputs, and the emulated receiver's inputs.

use livetime_client::{EventId, TimingClient};
use livetime_timing::InputConfig;
use serde_json::Value;
use zbus::Variant;

use super::control::status_of;
use super::known_objects::KnownObjects;
use super::{Daemon, Failure, hex};
use crate::console::print_line;

const RECEIVER: &str = "/org/livetime/Timing1/tr0";
const INPUT: &str = "InputEventSource";

/// Options of the act.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    daemon: Daemon,
    /// Output or input, such as IO1 or IN1; without it all are listed
    name: Option<String>,
    /// `on` or `off` drives an output, or sets the level of an emulated input; without it the
    /// level is read
    level: Option<Level>,
    /// Event ID of an input's messages, hexadecimal; its lowest bit becomes the level. Enables it
    #[arg(long, value_parser = hex, requires = "name")]
    prefix: Option<u64>,
    /// How long an input's level must stay to be an edge [ns]: a multiple of 8, at least 16
    #[arg(long, value_name = "NS", requires = "name")]
    stable: Option<u32>,
    /// An input makes no messages any more
    #[arg(long, requires = "name", conflicts_with = "prefix")]
    disable: bool,
}

impl Options {
    /// Whether an input is to be set up.
    fn sets_up(&self) -> bool {
        self.prefix.is_some() || self.stable.is_some() || self.disable
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    On,
    Off,
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Lists, reads, drives or sets up.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let Some(name) = &options.name else {
        return list(&status_of(&options.daemon)?);
    };
    let client = options.daemon.connect()?;
    let path = format!("{RECEIVER}/{name}");
    let is_input = KnownObjects::of(&client)?.is_input(name)?;
    if !is_input && options.sets_up() {
        return Err(Failure::new(format!(
            "{name} is an output; --prefix, --stable and --disable set up an input"
        )));
    }
    set_up(&client, &path, options)?;
    let (interface, set, read) = if is_input {
        (INPUT, "SetLevel", "ReadInput")
    } else {
        ("OutputActionSink", "WriteOutput", "ReadOutput")
    };
    match options.level {
        Some(level) => Ok(client.call(&path, interface, set, &(level == Level::On))?),
        None if options.sets_up() => Ok(()),
        None => {
            let on: bool = client.call(&path, interface, read, &())?;
            Ok(print_line(word(on))?)
        }
    }
}

/// Sets up an input, as far as that was asked for: all of it or nothing.
fn set_up(client: &TimingClient, path: &str, options: &Options) -> Result<(), Failure> {
    // Each value is a property of its own, which the daemon checks when the one before is set.
    let usual = InputConfig::default();
    let asked = InputConfig {
        prefix: options.prefix.map_or(usual.prefix, EventId),
        stable_ns: options.stable.unwrap_or(usual.stable_ns),
        ..usual
    };
    if let Some(problem) = asked.validate("input").first() {
        return Err(Failure::new(problem.to_string()));
    }
    let set = |name: &str, value: Variant<'_>| client.set_property(path, INPUT, name, value);
    if let Some(stable) = options.stable {
        set("StableTime", Variant::from(stable))?;
    }
    if let Some(prefix) = options.prefix {
        set("EventPrefix", Variant::from(prefix))?;
        set("EventEnable", Variant::from(true))?;
    }
    if options.disable {
        set("EventEnable", Variant::from(false))?;
    }
    Ok(())
}

fn list(status: &Value) -> Result<(), Failure> {
    for sink in status["sinks"].as_array().into_iter().flatten() {
        if sink["kind"] == "output" {
            print_line(format_args!(
                "{} {}, {} changes, {} conditions",
                sink["name"].as_str().unwrap_or(""),
                word(sink["level"] == true),
                sink["changes"],
                sink["conditions"].as_array().map_or(0, Vec::len)
            ))?;
        }
    }
    for input in status["inputs"].as_array().into_iter().flatten() {
        let messages = if input["enabled"] == true {
            format!("messages {}", input["prefix"].as_str().unwrap_or(""))
        } else {
            "no messages".to_owned()
        };
        print_line(format_args!(
            "{} {}, {messages}, stable for {} ns, {} edges, {} glitches",
            input["name"].as_str().unwrap_or(""),
            word(input["level"] == true),
            input["stable_ns"],
            input["edges"],
            input["glitches"]
        ))?;
    }
    Ok(())
}
