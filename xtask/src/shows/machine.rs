//! The machine and the commit that figures belong to, in one sentence.

use std::path::Path;
use std::process::Command;

/// Processor, cores, kernel, compiler and commit; what cannot be found out is said to be unknown.
pub(crate) fn describe(root: &Path) -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = first_line(root, "uname", &["-sr"]);
    let compiler = first_line(root, "rustc", &["--version"]);
    let commit = first_line(root, "git", &["rev-parse", "--short=12", "HEAD"]);
    let changed = first_line(root, "git", &["status", "--porcelain"]);
    let changes = if changed == UNKNOWN {
        ""
    } else {
        " with uncommitted changes"
    };
    format!("Machine: {model}, {cores} cores, {kernel}, {compiler}; commit {commit}{changes}.")
}

const UNKNOWN: &str = "unknown";

fn first_line(root: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let line = text
        .ok()
        .and_then(|text| text.lines().next().map(str::to_owned));
    line.unwrap_or_else(|| UNKNOWN.to_owned())
}
