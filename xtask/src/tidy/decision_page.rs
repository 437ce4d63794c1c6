//! Each dependency from outside has a decision page with licence, upkeep and alternative.
//!
//! A page `docs/decisions/NNNN-name.md` lists its crates in backticks in the title. Whether the
//! decision is a good one is for its reviewers.

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "decision-page";
const FOLDER: &str = "docs/decisions/";

/// Manifests whose dependencies are decided on, and the section that lists them.
const MANIFESTS: [(&str, &str); 2] = [
    ("Cargo.toml", "[workspace.dependencies]"),
    ("fuzz/Cargo.toml", "[dependencies]"),
];

const PARTS: [&str; 3] = ["Licence: ", "Upkeep: ", "Alternative: "];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pages: Vec<(&str, &str)> = tree
        .texts()
        .filter(|(path, _)| path.starts_with(FOLDER) && path.ends_with(".md"))
        .collect();
    for (manifest, section) in MANIFESTS {
        let Some(text) = tree.text(manifest) else {
            continue;
        };
        for (line, name) in dependencies(text, section) {
            let quoted = format!("`{name}`");
            let decided = pages.iter().find(|(_, page)| {
                page.lines()
                    .next()
                    .is_some_and(|title| title.contains(&quoted))
            });
            let Some((path, page)) = decided else {
                let message = format!("no page under {FOLDER} has {quoted} in its title");
                findings.push(Finding::error(RULE, manifest, line, message));
                continue;
            };
            for part in PARTS {
                if !page.lines().any(|line| line.starts_with(part)) {
                    let message = format!("no line starts with `{}`", part.trim_end());
                    findings.push(Finding::error(RULE, path, 0, message));
                }
            }
        }
    }
    findings
}

/// Lines from 1 and names of the dependencies from outside in one section of a manifest.
fn dependencies<'a>(manifest: &'a str, section: &str) -> Vec<(usize, &'a str)> {
    let lines = manifest
        .lines()
        .enumerate()
        .skip_while(|(_, line)| line.trim() != section);
    lines
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('['))
        .filter_map(|(index, line)| {
            let (name, value) = line.split_once('=')?;
            let name = name.trim().split('.').next()?;
            let ours = name.starts_with("livetime") || value.contains("path =");
            (!ours && !name.starts_with('#')).then_some((index + 1, name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::seeded::{places, tree};
    use super::check;

    #[test]
    fn undecided_dependencies_and_incomplete_pages_are_found() {
        let manifest = "\
[workspace.dependencies]
livetime-wire = { path = \"crates/livetime-wire\" }
# comment = 1
serde = \"1\"
rand = \"0.10\"

crc.version = \"3\"
[profile.release]
debug = 1
";
        let findings = check(&tree(&[
            ("Cargo.toml", manifest),
            (
                "fuzz/Cargo.toml",
                "[dependencies]\nlibfuzzer-sys = \"0.4\"\n",
            ),
            (
                "docs/decisions/0001-rand.md",
                "# `rand`\nLicence: a\nUpkeep: b\nAlternative: c\n",
            ),
            (
                "docs/decisions/0002-crc.md",
                "# `crc`\nLicence: a\nUpkeep: b\n",
            ),
        ]));
        let expected = [
            "Cargo.toml:4",
            "docs/decisions/0002-crc.md:0",
            "fuzz/Cargo.toml:2",
        ];
        assert_eq!(places(&findings), expected);
    }
}
