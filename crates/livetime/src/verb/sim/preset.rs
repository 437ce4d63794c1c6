//! `livetime sim presets`: scenarios of event builders that exist or were planned.
//!
//! Each is a scenario file in `presets/`, built into the program and read like any other; the file
//! says where its numbers come from and what is simplified.

use std::path::Path;
use std::process::ExitCode;

use crate::config::{LoadedScenario, ScenarioOverrides, read_scenario};
use crate::console::print;
use crate::exit;

/// A built-in scenario.
struct Preset {
    name: &'static str,
    text: &'static str,
}

const PRESETS: &[Preset] = &[
    Preset {
        name: "cms-2000-myrinet-16",
        text: include_str!("presets/cms-2000-myrinet-16.toml"),
    },
    Preset {
        name: "cms-2000-myrinet-512",
        text: include_str!("presets/cms-2000-myrinet-512.toml"),
    },
    Preset {
        name: "cms-2000-gbe-1",
        text: include_str!("presets/cms-2000-gbe-1.toml"),
    },
    Preset {
        name: "cms-2000-gbe-2",
        text: include_str!("presets/cms-2000-gbe-2.toml"),
    },
    Preset {
        name: "cms-run1",
        text: include_str!("presets/cms-run1.toml"),
    },
    Preset {
        name: "cms-run2",
        text: include_str!("presets/cms-run2.toml"),
    },
    Preset {
        name: "cms-run3",
        text: include_str!("presets/cms-run3.toml"),
    },
    Preset {
        name: "cms-phase2",
        text: include_str!("presets/cms-phase2.toml"),
    },
    Preset {
        name: "lhcb-run3",
        text: include_str!("presets/lhcb-run3.toml"),
    },
    Preset {
        name: "alice-o2",
        text: include_str!("presets/alice-o2.toml"),
    },
    Preset {
        name: "atlas-phase2",
        text: include_str!("presets/atlas-phase2.toml"),
    },
    Preset {
        name: "dune-fd",
        text: include_str!("presets/dune-fd.toml"),
    },
];

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print the scenario of this name instead of the list
    #[arg(value_parser = parse_name)]
    name: Option<String>,
}

/// Lists the presets, or prints one.
pub(crate) fn run(options: &Options) -> ExitCode {
    let Some(name) = &options.name else {
        let mut text = String::new();
        for preset in PRESETS {
            let title = preset.text.lines().next().unwrap_or_default();
            text += &format!("{:<22} {}\n", preset.name, title.trim_start_matches("# "));
        }
        return exit::after_printing(print(text));
    };
    match find(name) {
        Ok(preset) => exit::after_printing(print(preset.text)),
        Err(problem) => {
            crate::console::say(problem);
            exit::PROBLEM
        }
    }
}

/// Reads a preset.
///
/// # Errors
/// A message when there is none of that name.
pub(crate) fn load(name: &str, overrides: ScenarioOverrides) -> Result<LoadedScenario, String> {
    let preset = find(name)?;
    let text = preset.text.to_owned();
    read_scenario(preset.name, text, Path::new("."), overrides)
}

/// A name on the command line.
///
/// # Errors
/// Where there is none of that name.
pub(super) fn parse_name(name: &str) -> Result<String, String> {
    let is_known = PRESETS.iter().any(|preset| preset.name == name);
    let unknown = || "there is no such preset; `livetime sim presets` lists them".to_owned();
    is_known.then(|| name.to_owned()).ok_or_else(unknown)
}

fn find(name: &str) -> Result<&'static Preset, String> {
    let preset = PRESETS.iter().find(|preset| preset.name == name);
    preset.ok_or_else(|| {
        format!("error: there is no preset `{name}`\nhelp: `livetime sim presets` lists them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_can_be_simulated() {
        for preset in PRESETS {
            let loaded = load(preset.name, ScenarioOverrides::default());
            let loaded = loaded.unwrap_or_else(|problems| panic!("{}:\n{problems}", preset.name));
            assert_eq!(loaded.name, preset.name);
            assert!(preset.text.starts_with("# "), "{}", preset.name);
        }
    }
}
