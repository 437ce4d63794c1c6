//! Builds the program under test and runs it, reading its one JSON document.
//!
//! It judges nothing: what a document must say is in [`crate::shows`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::Failure;

/// How much of a failed command's output an error repeats.
const TAIL_LINES: usize = 12;

/// The built program.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
}

impl Program {
    /// The program that `LIVETIME_PROGRAM` names, built by whoever names it.
    pub(crate) fn given() -> Result<Option<Self>, Failure> {
        let path = std::env::var_os("LIVETIME_PROGRAM").filter(|path| !path.is_empty());
        let Some(path) = path.map(PathBuf::from) else {
            return Ok(None);
        };
        if !path.is_file() {
            return Err(format!("LIVETIME_PROGRAM is {}, which is no file", path.display()).into());
        }
        let path = std::path::absolute(path)?;
        Ok(Some(Self { path }))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Builds the program of the workspace at `root` as tests run it, with its assertions.
    pub(crate) fn build(root: &Path) -> Result<Self, Failure> {
        Self::build_with(root, "release")
    }

    /// Builds the program as it is installed and measured: optimised over all crates, without
    /// assertions. Takes minutes.
    pub(crate) fn build_distribution(root: &Path) -> Result<Self, Failure> {
        Self::build_with(root, "dist")
    }

    fn build_with(root: &Path, profile: &str) -> Result<Self, Failure> {
        let mut cargo = cargo(root);
        cargo.args(["build", "--profile", profile, "--package", "livetime"]);
        if !cargo.status()?.success() {
            return Err("the program does not build".into());
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
        let path = root.join(target).join(profile).join("livetime");
        if !path.is_file() {
            return Err(format!("{} was not built", path.display()).into());
        }
        Ok(Self { path })
    }

    /// A command of the program in `folder`.
    pub(crate) fn command(
        &self,
        folder: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(folder)
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// Runs to the end and returns the JSON document on stdout; exit code 0 is required.
    pub(crate) fn json(
        &self,
        folder: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Value, Failure> {
        let output = finish(self.command(folder, arguments))?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Starts it with its output thrown away.
    pub(crate) fn start(
        &self,
        folder: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Child, Failure> {
        let mut command = self.command(folder, arguments);
        Ok(command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?)
    }
}

/// Cargo in the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(root);
    command
}

/// A program at the lowest priority: it takes what the others leave of the processor.
pub(crate) fn low_priority(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(program);
    command
}

/// The triple of this machine, as cargo's `--target` wants it.
pub(crate) fn host_triple(root: &Path) -> Result<String, Failure> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    let output = command.arg("-vV").current_dir(root).output()?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc does not say its host")?.to_owned())
}

/// Runs a command to its end; anything but exit code 0 is an error with the end of its output.
pub(crate) fn finish(mut command: Command) -> Result<Output, Failure> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output);
    }
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let name = command.get_program().to_string_lossy().into_owned();
    let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    let arguments = arguments.join(" ");
    Err(format!(
        "`{name} {arguments}` ended with {}:\n{}",
        output.status,
        tail(&text)
    )
    .into())
}

/// The last lines of a text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_is_an_error_with_the_end_of_its_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "seq 1 100; echo broken >&2; exit 3"]);
        let text = finish(command).unwrap_err().to_string();
        assert!(
            text.contains("exit status: 3") && text.ends_with("100\nbroken"),
            "{text}"
        );
        assert!(!text.contains("\n50\n"), "{text}");
    }
}
