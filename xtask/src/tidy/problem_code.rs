//! Codes of problems are well formed, declared once, and each explained on a page.
//!
//! A code is declared as `ProblemCode::new("CODE", ..)`; `livetime explain CODE` shows
//! `docs/explain/CODE.md`. Whether the page helps is for its readers to say.

use std::collections::BTreeMap;

use super::{Finding, Sources};
use crate::tree::Tree;

const RULE: &str = "problem-code";
const FOLDER: &str = "docs/explain/";

/// Areas: C config, L link, T trigger, B builder, S store, F fabric, G timing, R run time.
const AREAS: &str = "CLTBSFGR";

/// The words before a declaration's text.
const DECLARATION: &str = concat!("ProblemCode", "::new(");

pub(super) fn check(tree: &Tree, sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut declared: BTreeMap<&str, String> = BTreeMap::new();
    for (path, source) in sources
        .iter()
        .filter(|(path, _)| path.starts_with("crates/"))
    {
        for (position, _) in source.code_and_literals.match_indices(DECLARATION) {
            if source.in_test(position) {
                continue;
            }
            let line = source.line_of(position);
            let after = source.code_and_literals[position + DECLARATION.len()..].trim_start();
            let Some(code) = after
                .strip_prefix('"')
                .and_then(|text| text.split('"').next())
            else {
                continue;
            };
            if !is_code(code) {
                let message = format!("`{code}` is not one letter of {AREAS} and four digits");
                findings.push(Finding::error(RULE, path, line, message));
            } else if let Some(first) = declared.insert(code, format!("{path}:{line}")) {
                let message = format!("`{code}` is declared a second time; first at {first}");
                findings.push(Finding::error(RULE, path, line, message));
            }
        }
    }
    for (code, place) in &declared {
        let (path, line) = place.rsplit_once(':').expect("a place holds a colon");
        let line = line.parse().expect("a place ends in its line");
        let page = format!("{FOLDER}{code}.md");
        match tree.text(&page) {
            None => {
                let message = format!("`{code}` has no page {page}");
                findings.push(Finding::error(RULE, path, line, message));
            }
            Some(text)
                if !text
                    .lines()
                    .next()
                    .is_some_and(|title| title.contains(code)) =>
            {
                let message = format!("the title does not name `{code}`");
                findings.push(Finding::error(RULE, &page, 1, message));
            }
            Some(_) => {}
        }
    }
    let pages = tree.paths().filter_map(|path| {
        let code = path.strip_prefix(FOLDER)?.strip_suffix(".md")?;
        (is_code(code) && !declared.contains_key(code)).then_some(path)
    });
    findings.extend(
        pages.map(|page| Finding::error(RULE, page, 0, "explains a code that no crate declares")),
    );
    findings
}

fn is_code(code: &str) -> bool {
    let mut characters = code.chars();
    code.len() == 5
        && characters.next().is_some_and(|area| AREAS.contains(area))
        && characters.all(|digit| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::{seeded, sources};
    use super::{DECLARATION, check};

    #[test]
    fn malformed_doubled_and_unexplained_codes_are_found() {
        let declare = |code: &str| format!("const A: P = {DECLARATION}\n    \"{code}\", \"t\");\n");
        let text = [
            declare("C0001"),
            declare("C0002"),
            declare("X0003"),
            declare("C004"),
        ]
        .concat();
        let again = format!("{}// {DECLARATION}\"C0009\"\n", declare("C0001"));
        let tested = format!("#[cfg(test)]\nmod tests {{ {} }}", declare("C0001"));
        let tree = seeded::tree(&[
            ("crates/livetime-wire/src/a.rs", &text),
            ("crates/livetime-wire/src/b.rs", &again),
            ("crates/livetime-wire/src/c.rs", &tested),
            ("docs/explain/C0001.md", "# C0001: title\n"),
            ("docs/explain/C0007.md", "# C0007: nobody raises it\n"),
        ]);
        let mut messages: Vec<String> = check(&tree, &sources(&tree))
            .iter()
            .map(|finding| finding.message.clone())
            .collect();
        messages.sort();
        let expected = [
            "`C0001` is declared a second time; first at crates/livetime-wire/src/a.rs:1",
            "`C0002` has no page docs/explain/C0002.md",
            "`C004` is not one letter of CLTBSFGR and four digits",
            "`X0003` is not one letter of CLTBSFGR and four digits",
            "explains a code that no crate declares",
        ];
        assert_eq!(messages, expected);
    }

    #[test]
    fn a_page_names_its_code_in_its_title() {
        let tree = seeded::tree(&[
            (
                "crates/livetime-wire/src/a.rs",
                &format!("{DECLARATION}\"C0001\", \"t\")"),
            ),
            ("docs/explain/C0001.md", "# pool too small\n"),
        ]);
        let findings = check(&tree, &sources(&tree));
        assert_eq!(seeded::places(&findings), ["docs/explain/C0001.md:1"]);
    }
}
