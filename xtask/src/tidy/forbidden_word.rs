//! Unfinished code, debugging aids and silenced lints do not enter the repository.
//!
//! Clippy finds some of these, but only in what it compiles; this rule also reads fuzz targets,
//! code behind other `cfg`s and the code of macros.

use super::{Finding, Sources};
use crate::source_text::{SourceText, matching};

const RULE: &str = "forbidden-word";

/// A word and what to do instead.
const WORDS: [(&str, &str); 3] = [
    ("todo!", "unfinished code; finish it or leave it out"),
    (
        "unimplemented!",
        "unfinished code; finish it or leave it out",
    ),
    ("dbg!", "a debugging aid; remove it"),
];

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in sources {
        for (word, help) in WORDS {
            for position in source.words(word) {
                let message = format!("`{word}` is {help}");
                findings.push(Finding::error(
                    RULE,
                    path,
                    source.line_of(position),
                    message,
                ));
            }
        }
        for (position, message) in attribute_problems(source) {
            findings.push(Finding::error(
                RULE,
                path,
                source.line_of(position),
                message,
            ));
        }
    }
    findings
}

fn attribute_problems(source: &SourceText) -> Vec<(usize, &'static str)> {
    let mut problems = Vec::new();
    for (position, _) in source.code.match_indices('#') {
        let rest = &source.code[position + 1..];
        let bang = usize::from(rest.starts_with('!'));
        if !rest[bang..].starts_with('[') {
            continue;
        }
        let open = position + 1 + bang;
        let Some(end) = matching(&source.code, open) else {
            continue;
        };
        let attribute = source.code[open + 1..end - 1].trim_start();
        if attribute.starts_with("allow(") {
            problems.push((
                position,
                "`allow` hides; use `#[expect(lint, reason = \"..\")]`",
            ));
        } else if attribute.starts_with("expect(") && !attribute.contains("reason") {
            problems.push((position, "`expect` needs its `reason = \"..\"`"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::seeded::sources_of;
    use super::check;

    #[test]
    fn unfinished_code_and_silenced_lints_are_found() {
        let text = "\
//! todo!() in a comment is a word.
#![allow(dead_code)]
fn f() { todo!() }
fn g() { dbg!(1); println!(\"dbg!\"); }
#[expect(unused)]
fn h() { unimplemented!() }
#[expect(unused, reason = \"shown by the example\")]
fn allow(a: u8) { let b = [a]; }
";
        let mut lines: Vec<usize> = check(&sources_of(&[("fuzz/fuzz_targets/a.rs", text)]))
            .iter()
            .map(|finding| finding.line)
            .collect();
        lines.sort_unstable();
        assert_eq!(lines, [2, 3, 4, 5, 6]);
    }
}
