//! Long files and long functions, as warnings: a reader keeps a screen in mind, not a chapter.
//!
//! Test code does not count. The reviewer decides; a table of data may well be long.

use super::{Finding, Sources};
use crate::source_text::{SourceText, is_word, matching};

const RULE: &str = "length";

const FILE_LINES_MAX: usize = 1000;
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in sources {
        let lines = source.lines_outside_tests();
        if lines > FILE_LINES_MAX {
            let message = format!("{lines} lines without tests, more than {FILE_LINES_MAX}");
            findings.push(Finding::warning(RULE, path, 0, message));
        }
        for function in functions(source) {
            if function.lines > FUNCTION_LINES_MAX && !source.in_test(function.position) {
                let line = source.line_of(function.position);
                let Function { name, lines, .. } = function;
                let message = format!("`{name}` has {lines} lines, more than {FUNCTION_LINES_MAX}");
                findings.push(Finding::warning(RULE, path, line, message));
            }
        }
    }
    findings
}

struct Function {
    name: String,
    position: usize,
    lines: usize,
}

/// Every function with a body; a function pointer type has no name and is none.
fn functions(source: &SourceText) -> Vec<Function> {
    let code = &source.code;
    source
        .words("fn")
        .filter_map(|position| {
            let after = code[position + 2..].trim_start();
            let name: String = after.chars().take_while(|c| is_word(*c as u8)).collect();
            let open = body(code, position)?;
            let end = matching(code, open)?;
            let lines = source.line_of(end - 1) - source.line_of(position) + 1;
            (!name.is_empty()).then_some(Function {
                name,
                position,
                lines,
            })
        })
        .collect()
}

/// The brace that opens the body of the function at `position`, if it has one.
fn body(code: &str, position: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut at = position;
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' => at = matching(code, at)?,
            b'{' => return Some(at),
            b';' | b'}' | b')' | b']' => return None,
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::seeded::{places, sources_of};
    use super::check;

    fn function(name: &str, lines: usize) -> String {
        format!(
            "fn {name}(a: [u8; 4]) -> [u8; 2] {{\n{}}}\n",
            "a;\n".repeat(lines - 2)
        )
    }

    #[test]
    fn a_function_of_71_lines_is_found_and_one_of_70_is_not() {
        let text = format!(
            "type Call = fn(u8) -> u8;\ntrait T {{ fn none(&self); }}\n{}{}#[cfg(test)]\nmod t \
             {{\n{}}}\n",
            function("short", 70),
            function("long", 71),
            function("tested", 200),
        );
        let findings = check(&sources_of(&[("crates/a/src/lib.rs", &text)]));
        assert_eq!(places(&findings), ["crates/a/src/lib.rs:73"]);
        assert!(
            findings[0].message.contains("`long` has 71 lines"),
            "{findings:?}"
        );
    }

    #[test]
    fn a_file_of_1001_lines_is_found_and_its_tests_do_not_count() {
        let long = "//\n".repeat(1000);
        let tested = format!("{}#[cfg(test)]\nmod t {{\n{}}}\n", "//\n".repeat(900), long);
        let findings = check(&sources_of(&[
            ("crates/a/src/long.rs", &long),
            ("crates/a/src/short.rs", &long[..long.len() - 3]),
            ("crates/a/src/tested.rs", &tested),
        ]));
        assert_eq!(places(&findings), ["crates/a/src/long.rs:0"]);
    }
}
