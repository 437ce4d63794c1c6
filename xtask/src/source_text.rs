//! A Rust source with its comments and literals blanked and its test code marked.
//!
//! Rules look for words in code; this makes sure that a word in a comment, a string or a test
//! does not count. It knows tokens, not grammar: what is inside a macro is code like any other.
//! Positions and lines are the same in all forms, because characters are replaced by spaces.

/// Three aligned forms of one source.
#[derive(Debug)]
pub(crate) struct SourceText {
    /// Comments and the contents of string and character literals replaced by spaces.
    pub(crate) code: String,
    /// Only comments replaced by spaces.
    pub(crate) code_and_literals: String,
    /// For each line from 0: whether it belongs to an item under `#[cfg(test)]` or `#[test]`.
    test_lines: Vec<bool>,
}

impl SourceText {
    /// Blanks `text` and marks its test items; `path` decides whether all of it is test code.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, code_and_literals) = blank(text);
        let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let mut source = Self {
            code,
            code_and_literals,
            test_lines: vec![false; lines],
        };
        if is_test_path(path) {
            source.test_lines.fill(true);
        } else {
            source.mark_test_items();
        }
        source
    }

    /// The line of a byte position, from 1.
    pub(crate) fn line_of(&self, position: usize) -> usize {
        line_of(&self.code, position)
    }

    /// Whether a byte position belongs to test code.
    pub(crate) fn in_test(&self, position: usize) -> bool {
        self.test_lines[self.line_of(position) - 1]
    }

    /// The number of lines outside test code.
    pub(crate) fn lines_outside_tests(&self) -> usize {
        self.test_lines.iter().filter(|in_test| !**in_test).count()
    }

    /// Positions in [`Self::code`] of `needle` as a whole word or path.
    pub(crate) fn words<'a>(&'a self, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
        let bytes = self.code.as_bytes();
        self.code
            .match_indices(needle)
            .map(|(position, _)| position)
            .filter(move |position| {
                let before = position.checked_sub(1).map(|before| bytes[before]);
                let after = bytes.get(position + needle.len()).copied();
                !before.is_some_and(is_word) && !after.is_some_and(is_word)
            })
    }

    fn mark_test_items(&mut self) {
        let mut from = 0;
        while let Some(found) = self.code[from..].find("#[") {
            let start = from + found;
            let Some(end) = matching(&self.code, start + 1) else {
                return;
            };
            from = end;
            let attribute = &self.code[start + 2..end - 1];
            if is_test_attribute(attribute) {
                let item_end = item_end(&self.code, end);
                let (first, last) = (self.line_of(start), self.line_of(item_end));
                self.test_lines[first - 1..last].fill(true);
                from = item_end;
            }
        }
    }
}

/// The line of a byte position in a text, from 1.
pub(crate) fn line_of(text: &str, position: usize) -> usize {
    text.as_bytes()[..position.min(text.len())]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// Whether a file holds nothing but test code.
pub(crate) fn is_test_path(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "benches")
        || path.ends_with("/tests.rs")
}

/// The position after the bracket that closes the one at `open`.
pub(crate) fn matching(code: &str, open: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let (opening, closing) = match bytes[open] {
        b'{' => (b'{', b'}'),
        b'[' => (b'[', b']'),
        _ => (b'(', b')'),
    };
    let mut depth = 0_usize;
    for (offset, byte) in bytes[open..].iter().enumerate() {
        if *byte == opening {
            depth += 1;
        } else if *byte == closing {
            depth -= 1;
            if depth == 0 {
                return Some(open + offset + 1);
            }
        }
    }
    None
}

/// Whether a byte can be part of an identifier.
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn is_test_attribute(attribute: &str) -> bool {
    let attribute = attribute.trim();
    let names_test = attribute
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| word == "test");
    attribute == "test"
        || (attribute.starts_with("cfg(") && names_test && !attribute.contains("not(test)"))
}

/// The end of the item that starts after `from`: its closing brace or its semicolon.
fn item_end(code: &str, from: usize) -> usize {
    let bytes = code.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' => match matching(code, at) {
                Some(end) => at = end,
                None => return code.len(),
            },
            b'{' => return matching(code, at).unwrap_or(code.len()),
            b';' => return at + 1,
            _ => at += 1,
        }
    }
    code.len()
}

/// What a stretch of source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stretch {
    Code,
    Comment,
    Literal,
}

fn blank(text: &str) -> (String, String) {
    let mut code = Vec::with_capacity(text.len());
    let mut code_and_literals = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let (end, stretch) = next_stretch(bytes, at);
        for byte in &bytes[at..end] {
            let blanked = if *byte == b'\n' { b'\n' } else { b' ' };
            code.push(if stretch == Stretch::Code {
                *byte
            } else {
                blanked
            });
            let kept = stretch != Stretch::Comment;
            code_and_literals.push(if kept { *byte } else { blanked });
        }
        at = end;
    }
    let into_text = |bytes| String::from_utf8(bytes).expect("whole characters are blanked");
    (into_text(code), into_text(code_and_literals))
}

/// The end of the comment, literal, word or character that starts at `at`.
fn next_stretch(bytes: &[u8], at: usize) -> (usize, Stretch) {
    let rest = &bytes[at..];
    match rest[0] {
        b'/' if rest.starts_with(b"//") => (at + line_length(rest), Stretch::Comment),
        b'/' if rest.starts_with(b"/*") => (at + block_comment_length(rest), Stretch::Comment),
        b'"' => (at + string_length(rest), Stretch::Literal),
        b'\'' => match char_length(rest) {
            Some(length) => (at + length, Stretch::Literal),
            None => (at + 1, Stretch::Code),
        },
        first if is_word(first) => {
            let word = rest.iter().take_while(|byte| is_word(**byte)).count();
            if matches!(&rest[..word], b"r" | b"br" | b"cr")
                && let Some(length) = raw_string_length(&rest[word..])
            {
                return (at + word + length, Stretch::Literal);
            }
            (at + word, Stretch::Code)
        }
        _ => (at + 1, Stretch::Code),
    }
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| **byte != b'\n').count()
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length from the first `#` or `"` of a raw string, or `None` where it is none.
fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let body = &rest[hashes + 1..];
    let closed = body
        .windows(end.len())
        .position(|window| window == end.as_slice());
    Some(closed.map_or(rest.len(), |position| hashes + 1 + position + end.len()))
}

/// The length of a character literal, or `None` for a lifetime.
fn char_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).position(|byte| *byte == b'\'')?;
        return Some(3 + end + 1);
    }
    let width = match rest.get(1)? {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_literals_are_not_code() {
        let text = r##"
let a = "unsafe"; // unsafe
/* unsafe /* nested */ unsafe */
let b = r#"unsafe " "#; let c = '"'; let d = '\''; let e: &'static str = b"unsafe";
unsafe { f() } // é
unsafe_code();
"##;
        let source = SourceText::new("src/lib.rs", text);
        let lines: Vec<usize> = source
            .words("unsafe")
            .map(|at| source.line_of(at))
            .collect();
        assert_eq!(lines, [5]);
        assert_eq!(source.code.len(), text.len());
        assert!(source.code_and_literals.contains("\"unsafe\""));
        assert!(!source.code_and_literals.contains("nested"));
    }

    #[test]
    fn items_under_cfg_test_are_test_code_and_others_are_not() {
        let text = "\
fn a() { HashMap }
#[cfg(test)]
mod tests {
    use HashMap;
}
#[cfg(not(test))]
fn b() { HashMap }
#[cfg(all(test, not(loom)))]
use HashMap;
#[test]
fn c() { HashMap }
fn d() { HashMap }";
        let source = SourceText::new("src/lib.rs", text);
        let outside: Vec<usize> = source
            .words("HashMap")
            .filter(|at| !source.in_test(*at))
            .map(|at| source.line_of(at))
            .collect();
        assert_eq!(outside, [1, 7, 12]);
        assert_eq!(source.lines_outside_tests(), 4);
        assert_eq!(
            SourceText::new("crates/a/tests/b.rs", text).lines_outside_tests(),
            0
        );
        assert_eq!(
            SourceText::new("crates/a/src/b/tests.rs", text).lines_outside_tests(),
            0
        );
    }

    #[test]
    fn unclosed_sources_end_without_a_panic() {
        for text in [
            "\"open",
            "/* open",
            "r#\"open",
            "'\\",
            "#[cfg(test)] mod a {",
            "#[",
            "b'",
        ] {
            let source = SourceText::new("src/lib.rs", text);
            assert_eq!(source.code.len(), text.len(), "{text}");
        }
    }
}
