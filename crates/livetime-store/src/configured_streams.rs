//! The names of a run's files of streams, out of the text of its configuration.
//!
//! A reader of run files knows of a configuration only this. The text is that of a run that was started
//! with it, so that it is TOML without errors: of it the tables `[[store.file]]` are found by their lines.
//! A name that is written in another way, as in an array of tables on one line, is not found.

use crate::file_plan::is_name;

/// What begins and ends a text of several lines.
const LONG_QUOTES: [&str; 2] = ["\"\"\"", "'''"];

/// The names in all tables `[[store.file]]`.
pub(crate) fn stream_names(config: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut is_in_table = false;
    let mut long_text = None;
    for line in config.lines().map(str::trim) {
        if let Some(quotes) = long_text {
            long_text = Some(quotes).filter(|quotes| !line.contains(*quotes));
        } else if line.starts_with('#') {
            continue;
        } else if let Some(quotes) = long_text_begun(line) {
            long_text = Some(quotes);
        } else if line.starts_with('[') {
            is_in_table = is_table(line);
        } else if is_in_table {
            let name = name_in(line).map(str::to_owned);
            names.extend(name.filter(|name| !names.contains(name)));
        }
    }
    names
}

/// The quotes of a text that goes on behind this line.
fn long_text_begun(line: &str) -> Option<&'static str> {
    let is_open = |quotes: &&str| line.matches(quotes).count() % 2 == 1;
    LONG_QUOTES.into_iter().find(is_open)
}

/// Whether a line is the head of a table of a file.
fn is_table(line: &str) -> bool {
    let head = line.split('#').next().unwrap_or(line);
    let head: String = head.chars().filter(|c| !c.is_whitespace()).collect();
    head == "[[store.file]]"
}

/// The name that a line gives.
fn name_in(line: &str) -> Option<&str> {
    let (key, value) = line.split_once('=')?;
    let value = value.trim();
    let quote = value.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let (name, _) = value[1..].split_once(quote)?;
    (key.trim() == "name" && is_name(name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_their_tables_alone() {
        let config = r#"
# [[store.file]]
# name = "not-this"
[store]
chunk = "1 MiB" # [[store.file]]
name = "nor-this"
[[store.file]]
name = "win"
streams = [0]
[[ store . file ]] # of the others
streams = [
    1,
]
name   =   'rest-2'   # "x"
[[store.file]]
streams = [2]
name = "win"
[[store.file]]
name = "No"
[filter]
name = "menu"
text = """
[[store.file]]
name = "text"
"""
[[workers.worker]]
name = "w0"
"#;
        assert_eq!(stream_names(config), ["win", "rest-2"]);
        assert_eq!(stream_names(""), [] as [&str; 0]);
    }
}
