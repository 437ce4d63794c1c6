//! `cargo xtask benchmarks --from FILE`: the figures of docs/benchmarks.md from a bench document.
//!
//! The program makes the tables from its own document; here they are put behind what the page says
//! about how figures come about, with the date of the document, the machine and the command. Nothing
//! is measured: take the document on a quiet machine with `livetime bench all --json > FILE`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Failure;
use crate::program::{Program, finish};
use crate::shows::machine;
use crate::tree::workspace_root;

const PAGE: &str = "docs/benchmarks.md";
/// Everything behind this line is generated.
const MARK: &str = "<!-- What follows is written by `cargo xtask benchmarks`. -->";
/// Where the tables begin in what the program writes.
const TABLES: &str = "## Targets\n";

/// From which document, and whether the page is written or printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    from: PathBuf,
    write: bool,
}

impl Request {
    /// Reads `--from FILE [--write]`; `None` for anything else.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let (from, write) = match arguments {
            ["--from", from] => (from, false),
            ["--from", from, "--write"] => (from, true),
            _ => return None,
        };
        Some(Self {
            from: from.into(),
            write,
        })
    }
}

/// Makes the page.
pub(crate) fn run(request: &Request) -> Result<bool, Failure> {
    let root = workspace_root();
    let from = std::path::absolute(&request.from)?;
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&from)?)?;
    if document["schema"] != "livetime.bench/1" {
        return Err(format!("{} is no document of livetime bench", from.display()).into());
    }
    let bench = bench_of(&document)?;
    let program = Program::build_distribution(&root)?;
    let folder = tempfile::tempdir()?;
    let mut command = program.command(folder.path(), ["bench", bench, "--from"]);
    finish({
        command.arg(&from).args(["--page", "tables.md"]);
        command
    })?;
    let tables = std::fs::read_to_string(folder.path().join("tables.md"))?;
    let path = root.join(PAGE);
    let page = std::fs::read_to_string(&path)?;
    let page = with_tables(&page, &tables, &introduction(&root, &from, &document)?)?;
    if request.write {
        std::fs::write(&path, page)?;
        eprintln!("wrote {PAGE}");
    } else {
        print!("{page}");
    }
    Ok(true)
}

/// When, where and how the document came about.
fn introduction(root: &Path, from: &Path, document: &Value) -> Result<String, Failure> {
    let mut date = Command::new("date");
    let date = finish({
        date.args(["--utc", "+%Y-%m-%d", "-r"]).arg(from);
        date
    })?;
    let date = String::from_utf8(date.stdout)?;
    let bench = bench_of(document)?;
    let quick = |machine: &Value| machine["quick"] == true;
    let machines = document["machine"].as_object();
    let is_quick = quick(&document["machine"])
        || machines.is_some_and(|machines| machines.values().any(quick));
    let warning = if is_quick {
        " Taken with `--quick`: the form is right, the figures mean little."
    } else {
        ""
    };
    Ok(format!(
        "`livetime bench {bench} --json`, {}.{warning} {}\n",
        date.trim(),
        machine::describe(root)
    ))
}

fn bench_of(document: &Value) -> Result<&str, Failure> {
    let bench = document["bench"].as_str();
    Ok(bench.ok_or("the document has no bench")?)
}

/// The page with the tables behind the mark replaced.
fn with_tables(page: &str, tables: &str, introduction: &str) -> Result<String, Failure> {
    let kept = page.split(MARK).next().unwrap_or_default().trim_end();
    let begin = tables
        .find(TABLES)
        .ok_or("the program wrote no table of targets")?;
    Ok(format!(
        "{kept}\n\n{MARK}\n\n{introduction}\n{}\n",
        tables[begin..].trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_replaced_and_the_text_before_them_stays() {
        let first = with_tables("# A\n\ntext\n", "# B\n\n## Targets\n\n1\n", "when\n").unwrap();
        let expected = format!("# A\n\ntext\n\n{MARK}\n\nwhen\n\n## Targets\n\n1\n");
        assert_eq!(first, expected);
        let again = with_tables(&first, "## Targets\n\n2\n", "later\n").unwrap();
        assert_eq!(again, expected.replace("when", "later").replace("1", "2"));
        assert!(with_tables("# A\n", "nothing", "").is_err());
    }

    #[test]
    fn a_request_names_its_document() {
        let request = Request::parse(&["--from", "a.json", "--write"]).unwrap();
        assert!(request.write && request.from.ends_with("a.json"));
        assert_eq!(Request::parse(&["a.json"]), None);
        assert_eq!(Request::parse(&[]), None);
    }
}
