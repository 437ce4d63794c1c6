//! A path of one person's machine means nothing on another.
//!
//! A line that needs one says so with `machine-path: REASON` on it or on the line before.

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "machine-path";

/// Roots that belong to a user or to a machine. Written apart so that the rule does not find
/// itself.
const ROOTS: [&str; 7] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/t", "mp/"),
    concat!("/Us", "ers/"),
    concat!("/m", "nt/"),
    concat!("C:", "\\"),
];

const ALLOWANCE: &str = "machine-path: ";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        let mut allowed_by_line_before = false;
        for (index, line) in text.lines().enumerate() {
            let allowance = line.split_once(ALLOWANCE);
            let allowed_here = allowance.is_some_and(|(_, reason)| !reason.trim().is_empty());
            if !allowed_here && !allowed_by_line_before {
                for root in ROOTS.iter().filter(|root| names(line, root)) {
                    let message = format!("`{root}..` is a path of one machine");
                    findings.push(Finding::error(RULE, path, index + 1, message));
                }
            }
            allowed_by_line_before = allowed_here;
        }
    }
    findings
}

/// Whether `line` names a path under `root`, and not a longer path that contains it.
fn names(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(position, _)| {
        let before = line[..position].chars().next_back();
        let inside =
            |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '/' | ')');
        !before.is_some_and(inside)
    })
}

#[cfg(test)]
mod tests {
    use super::super::seeded::{places, tree};
    use super::check;

    #[test]
    fn machine_paths_are_found_and_allowances_need_a_reason() {
        let home = concat!("/ho", "me/someone");
        let scratch = concat!("/t", "mp/a");
        let text = format!(
            "see {home}\nhttps://example.org{scratch}\na{scratch}\n\
             {scratch} # machine-path: kernel default\n# machine-path: shown to the reader\n\
             {scratch}\n{scratch}\n# machine-path: \n{scratch}\n"
        );
        let findings = check(&tree(&[("docs/operator.md", &text)]));
        let expected = [
            "docs/operator.md:1",
            "docs/operator.md:7",
            "docs/operator.md:9",
        ];
        assert_eq!(places(&findings), expected);
    }
}
