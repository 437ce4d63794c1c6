//! Fuzz targets: built with the compiler's coverage instrumentation, run by libFuzzer.
//!
//! The instrumentation is a flag of every compiler, so that no nightly one is needed, only a C++
//! compiler for the engine. What is fuzzed and what must hold is in `fuzz/`; how long, is decided by
//! [`crate::test_driver`] (seconds) and [`crate::soak`] (hours).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cargo_metadata::MetadataCommand;

use crate::Failure;
use crate::program::{host_triple, low_priority};

const MANIFEST: &str = "fuzz/Cargo.toml";
/// Builds, corpora and seeds; not tracked.
const FOLDER: &str = "target/fuzz";
/// Inputs that once broke something; tracked.
const KEPT_SEEDS: &str = "fuzz/seeds";
const ARTIFACTS: &str = "fuzz/artifacts";
const FORMATS: &str = "docs/formats";

/// Coverage of edges, and of the operands of comparisons.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// An input on which a target takes longer hangs.
const INPUT_SECONDS_MAX: u32 = 20;
/// A target that needs more memory allocates by the input's word.
const MEMORY_MIB_MAX: u32 = 2048;
/// How much of the output of a broken target is shown.
const TAIL_LINES: usize = 40;

/// Golden bytes by target, where the names differ.
const GOLDEN: [(&str, &str); 3] = [
    ("slink_word", "slink"),
    ("trigger_reply", "reply"),
    ("run_reader", "run-file"),
];

/// Which targets are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Those of the crates.
    Crates,
    /// Those that include the program, too.
    All,
}

/// A built target.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) name: String,
    executable: PathBuf,
    root: PathBuf,
}

/// What fuzzing one target for a while gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fuzzed {
    /// Inputs tried.
    pub(crate) inputs: u64,
    /// Inputs kept because they reached something new.
    pub(crate) kept: u64,
    /// The end of its output, if it broke.
    pub(crate) failure: Option<String>,
}

/// Why the targets cannot be built on this machine, if so.
pub(crate) fn missing_tool() -> Option<String> {
    let compiler = std::env::var_os("CXX").unwrap_or("c++".into());
    let found = Command::new(&compiler)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_ok_and(|status| status.success()) {
        return None;
    }
    let compiler = compiler.to_string_lossy().into_owned();
    Some(format!("no C++ compiler `{compiler}` for the fuzz engine"))
}

/// Builds the targets with their seeds in place, in the order of their names.
pub(crate) fn build(root: &Path, selection: Selection) -> Result<Vec<Target>, Failure> {
    let host = host_triple(root)?;
    let mut command = low_priority(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command
        .current_dir(root)
        .args(["build", "--quiet", "--release", "--manifest-path", MANIFEST])
        // With a target named, build scripts and procedural macros are not instrumented.
        .args(["--target", &host, "--target-dir", FOLDER])
        .env("RUSTFLAGS", FLAGS);
    if selection == Selection::All {
        command.arg("--all-features");
    }
    if !command.status()?.success() {
        return Err("the fuzz targets do not build".into());
    }
    let names = names(root, selection)?;
    let built = names.into_iter().map(|name| Target {
        executable: root.join(FOLDER).join(&host).join("release").join(&name),
        root: root.to_path_buf(),
        name,
    });
    let built: Vec<Target> = built.collect();
    for target in &built {
        target.write_seeds()?;
    }
    Ok(built)
}

/// The targets of the manifest.
fn names(root: &Path, selection: Selection) -> Result<Vec<String>, Failure> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join(MANIFEST))
        .no_deps()
        .exec()?;
    let targets = metadata
        .packages
        .iter()
        .flat_map(|package| &package.targets);
    let mut names: Vec<String> = targets
        .filter(|target| target.is_bin())
        .filter(|target| selection == Selection::All || target.required_features.is_empty())
        .map(|target| target.name.clone())
        .collect();
    names.sort();
    if names.is_empty() {
        return Err(format!("{MANIFEST} has no targets").into());
    }
    Ok(names)
}

impl Target {
    fn folder(&self, what: &str) -> PathBuf {
        self.root.join(FOLDER).join(what).join(&self.name)
    }

    /// Writes golden bytes and examples as seeds.
    fn write_seeds(&self) -> Result<(), Failure> {
        let folder = self.folder("seeds");
        std::fs::create_dir_all(&folder)?;
        let seeds = if self.name == "configuration" {
            texts(&self.root.join("examples"), "toml")?
        } else {
            self.golden()?
        };
        for (n, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("golden-{n}")), seed)?;
        }
        Ok(())
    }

    /// The golden bytes of the target's format, whole and in their parts; none for operations.
    fn golden(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let renamed = GOLDEN.iter().find(|(target, _)| *target == self.name);
        let format = renamed.map_or(self.name.replace('_', "-"), |(_, format)| {
            (*format).to_owned()
        });
        let mut seeds = Vec::new();
        for entry in std::fs::read_dir(self.root.join(FORMATS))? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let Some(rest) = name.strip_prefix(&format) else {
                continue;
            };
            if !rest.starts_with("-v") {
                continue;
            }
            if rest.ends_with(".hex") {
                seeds.extend(words_of_hex(&std::fs::read_to_string(&path)?));
            } else if !rest.ends_with(".md") {
                seeds.push(std::fs::read(&path)?);
            }
        }
        Ok(seeds)
    }

    /// Fuzzes for `time`, at low priority.
    pub(crate) fn run(&self, time: Duration) -> Result<Fuzzed, Failure> {
        let corpus = self.folder("corpus");
        let artifacts = self.root.join(ARTIFACTS).join(&self.name);
        std::fs::create_dir_all(&corpus)?;
        std::fs::create_dir_all(&artifacts)?;
        let mut command = low_priority(&self.executable);
        command
            .current_dir(&self.root)
            .arg(format!("-max_total_time={}", time.as_secs().max(1)))
            .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg("-print_final_stats=1")
            .arg(&corpus)
            .arg(self.folder("seeds"))
            .stdin(Stdio::null());
        let kept = self.root.join(KEPT_SEEDS).join(&self.name);
        if kept.is_dir() {
            command.arg(kept);
        }
        let output = command.output()?;
        let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        let text = String::from_utf8_lossy(&text);
        Ok(Fuzzed::parse(&text, output.status.success()))
    }
}

impl Fuzzed {
    fn parse(text: &str, is_success: bool) -> Self {
        let number = |name: &str| {
            let line = text.lines().rev().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
        };
        let inputs = number("stat::number_of_executed_units:");
        let failure = (!is_success || inputs == 0).then(|| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
        });
        Self {
            inputs,
            kept: number("stat::new_units_added:"),
            failure,
        }
    }
}

/// The files of a folder with an extension.
fn texts(folder: &Path, extension: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            texts.push(std::fs::read(path)?);
        }
    }
    Ok(texts)
}

/// The words of a golden file as bytes: all of them, and each part between lines of comments.
fn words_of_hex(text: &str) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = vec![Vec::new()];
    for line in text.lines() {
        // Lines of a link say behind or before the word what kind it is.
        let content = line.split('#').next().unwrap_or_default();
        let is_word = |part: &&str| part.len() == 8;
        let word = content.split_whitespace().find(is_word).unwrap_or_default();
        match u32::from_str_radix(word, 16) {
            Ok(word) => {
                let part = parts.last_mut().expect("begins with one part");
                part.extend_from_slice(&word.to_le_bytes());
            }
            Err(_) => parts.push(Vec::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    if parts.len() > 1 {
        parts.insert(0, parts.concat());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::workspace_root;

    #[test]
    fn golden_words_become_seeds_whole_and_in_parts() {
        let text = "# Two.\n00000001  # one\n00000102\n# next\n\nff000000\n";
        let whole = vec![1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 255];
        let expected = [whole.clone(), whole[..8].to_vec(), whole[8..].to_vec()];
        assert_eq!(words_of_hex(text), expected);
        assert_eq!(words_of_hex("# a\n00000001\n"), [[1, 0, 0, 0]]);
    }

    #[test]
    fn statistics_are_read_and_a_silent_target_is_a_failure() {
        let text = "INFO: seed\nstat::number_of_executed_units: 120\nstat::new_units_added:   7\n";
        let expected = Fuzzed {
            inputs: 120,
            kept: 7,
            failure: None,
        };
        assert_eq!(Fuzzed::parse(text, true), expected);
        assert!(Fuzzed::parse(text, false).failure.is_some());
        assert!(Fuzzed::parse("INFO: seed\n", true).failure.is_some());
    }

    #[test]
    fn every_target_of_a_format_has_golden_seeds() {
        let root = workspace_root();
        let crates = names(&root, Selection::Crates).unwrap();
        let all = names(&root, Selection::All).unwrap();
        assert!(all.len() > crates.len() && crates.len() >= 13, "{all:?}");
        for name in [
            "fragment",
            "slink_word",
            "trigger_reply",
            "run_reader",
            "event",
        ] {
            let target = Target {
                name: name.to_owned(),
                executable: PathBuf::new(),
                root: root.clone(),
            };
            assert!(!target.golden().unwrap().is_empty(), "{name}");
        }
    }

    #[test]
    fn every_file_of_a_target_stands_in_the_manifest() {
        let root = workspace_root();
        let mut files: Vec<String> = std::fs::read_dir(root.join("fuzz/fuzz_targets"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .collect();
        files.sort();
        assert_eq!(files, names(&root, Selection::All).unwrap());
    }
}
