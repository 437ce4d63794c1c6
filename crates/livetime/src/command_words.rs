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
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
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
