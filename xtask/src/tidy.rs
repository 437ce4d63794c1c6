//! Rules of STYLE.md and ARCHITECTURE.md that show in texts and in the dependency graph.
//!
//! Each rule is a function from texts to findings with a test that seeds a violation; rules read
//! nothing themselves. What clippy, rustdoc and rustfmt already find is left to them. Add a rule
//! as a file beside the others and list it in [`findings`].

mod decision_page;
mod doc_link;
mod file_name;
mod forbidden_word;
mod golden_file;
mod layer;
mod length;
mod machine_path;
mod problem_code;
mod purity;
mod unsafe_code;

use std::collections::BTreeMap;
use std::fmt;

use crate::Failure;
use crate::source_text::SourceText;
use crate::tree::{Tree, workspace_root};

/// What a finding means for the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Warning,
    Error,
}

/// One place where a rule does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    severity: Severity,
    rule: &'static str,
    path: String,
    /// From 1; 0 where the finding is about the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn error(rule: &'static str, path: &str, line: usize, message: impl Into<String>) -> Self {
        let (path, message) = (path.to_owned(), message.into());
        Self {
            severity: Severity::Error,
            rule,
            path,
            line,
            message,
        }
    }

    fn warning(rule: &'static str, path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(rule, path, line, message)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}[{}]: {}", self.rule, self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The Rust sources of a tree by path, blanked once for all rules.
type Sources = BTreeMap<String, SourceText>;

fn sources(tree: &Tree) -> Sources {
    tree.texts()
        .filter(|(path, _)| path.ends_with(".rs"))
        .map(|(path, text)| (path.to_owned(), SourceText::new(path, text)))
        .collect()
}

/// Every finding of the rules about texts.
fn findings(tree: &Tree) -> Vec<Finding> {
    let sources = sources(tree);
    [
        unsafe_code::check(&sources),
        purity::check(&sources),
        forbidden_word::check(&sources),
        problem_code::check(tree, &sources),
        length::check(&sources),
        file_name::check(tree),
        machine_path::check(tree),
        doc_link::check(tree),
        golden_file::check(tree),
        decision_page::check(tree),
    ]
    .concat()
}

/// Checks the workspace and prints what it finds; `true` where there is no error.
pub(crate) fn run() -> Result<bool, Failure> {
    let root = workspace_root();
    let mut all = layer::check(&layer::read(&root)?);
    all.extend(findings(&Tree::read(&root)?));
    all.sort_by(|a, b| (a.severity, &a.path, a.line).cmp(&(b.severity, &b.path, b.line)));
    for finding in &all {
        println!("{finding}");
    }
    let errors = all
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .count();
    println!("tidy: {errors} errors, {} warnings", all.len() - errors);
    Ok(errors == 0)
}

#[cfg(test)]
mod seeded {
    //! Trees with one seeded violation, for the tests of the rules.

    use super::*;

    /// A tree of the given files.
    pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.insert(path, text);
        }
        tree
    }

    /// The sources of the given files.
    pub(super) fn sources_of(files: &[(&str, &str)]) -> Sources {
        sources(&tree(files))
    }

    /// Places of findings, as `path:line`.
    pub(super) fn places(findings: &[Finding]) -> Vec<String> {
        findings
            .iter()
            .map(|finding| format!("{}:{}", finding.path, finding.line))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seeded_violation_of_each_text_rule_is_found_through_the_list_of_rules() {
        let home = concat!("/ho", "me/someone");
        let tree = seeded::tree(&[
            ("Cargo.toml", "[workspace.dependencies]\nserde = \"1\"\n"),
            ("README.md", &format!("[gone](gone.md) {home}")),
            ("crates/livetime-wire/src/utils.rs", "unsafe {}"),
            (
                "crates/livetime-readout/src/lib.rs",
                "use std::time::Instant; fn f() { todo!() }",
            ),
            (
                "crates/livetime-readout/src/a.rs",
                "ProblemCode::new(\"L0001\", \"a\")",
            ),
            ("crates/livetime-readout/src/long.rs", &"\n".repeat(2000)),
            ("docs/formats/event-v1.md", "no golden file"),
        ]);
        let mut rules: Vec<&str> = findings(&tree).iter().map(|finding| finding.rule).collect();
        rules.sort_unstable();
        rules.dedup();
        let expected = [
            "decision-page",
            "doc-link",
            "file-name",
            "forbidden-word",
            "golden-file",
            "length",
            "machine-path",
            "problem-code",
            "purity",
            "unsafe-code",
        ];
        assert_eq!(rules, expected);
    }

    #[test]
    fn a_finding_names_rule_place_and_message() {
        let finding = Finding::error("length", "a/b.rs", 7, "too long");
        assert_eq!(finding.to_string(), "error[length]: a/b.rs:7: too long");
        let finding = Finding::warning("length", "a/b.rs", 0, "too long");
        assert_eq!(finding.to_string(), "warning[length]: a/b.rs: too long");
    }
}
