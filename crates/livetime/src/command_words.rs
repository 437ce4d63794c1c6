//! The command line of this process: as records keep it, and as a shell takes it back.

/// The words of this process's command line. Records are texts: each byte that is no UTF-8 is U+FFFD in
/// them, so that such a command is for people and not for a shell.
pub(crate) fn of_process() -> Vec<String> {
    let words = std::env::args_os();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// A command without its `--out`: there is a run in that directory by now, and the command would be
/// refused.
pub(crate) fn without_out(words: &[String]) -> Vec<String> {
    let mut words = words.iter();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--out" => drop(words.next()),
            word if word.starts_with("--out=") => {}
            word => kept.push(word.to_owned()),
        }
    }
    kept
}

/// A command as a shell takes it back.
pub(crate) fn shell_words(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else if word.chars().any(char::is_control) {
            with_escapes(word)
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// A word with control characters, which would end the line that it stands in, as bash and its kin take
/// them.
fn with_escapes(word: &str) -> String {
    let mut quoted = "$'".to_owned();
    for c in word.chars() {
        match c {
            '\'' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted += "\\n",
            '\r' => quoted += "\\r",
            '\t' => quoted += "\\t",
            c if c.is_ascii_control() => quoted += &format!("\\x{:02x}", u32::from(c)),
            c if c.is_control() => quoted += &format!("\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        let words = [
            "livetime",
            "run",
            "my run.toml",
            "--fault",
            "link-down:3@4s+1s",
            "a'b",
            "",
        ];
        let words = words.map(str::to_owned);
        let text = r"livetime run 'my run.toml' --fault link-down:3@4s+1s 'a'\''b' ''";
        assert_eq!(shell_words(&words), text);
    }

    #[test]
    fn a_word_with_line_ends_stays_in_its_line() {
        let words = ["a\n[run]\r\tb\u{1b}c\u{85}", "it's\n\\"].map(str::to_owned);
        let text = r"$'a\n[run]\r\tb\x1bc\u0085' $'it\'s\n\\'";
        assert_eq!(shell_words(&words), text);
    }

    #[test]
    fn a_command_that_is_given_again_names_no_directory() {
        let words = [
            "livetime", "run", "--out", "a b", "x.toml", "--out=c", "--json",
        ];
        let words = words.map(str::to_owned);
        let again = shell_words(&without_out(&words));
        assert_eq!(again, "livetime run x.toml --json");
        let last = ["run".to_owned(), "--out".to_owned()];
        assert_eq!(without_out(&last), ["run"]);
    }
}
