//! The names of a run's files of streams, out of the text of its configuration.
//!
//! A reader of run files takes no more than this from a configuration: what is wrong with one is for the
//! program that runs it to say.

use serde::Deserialize;

use crate::file_plan::is_name;

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    store: Store,
}

#[derive(Deserialize, Default)]
struct Store {
    #[serde(default)]
    file: Vec<File>,
}

#[derive(Deserialize)]
struct File {
    name: String,
}

/// The names in all tables `[[store.file]]`; none of a text that is no configuration.
pub(crate) fn stream_names(config: &str) -> Vec<String> {
    let read = toml::from_str::<Config>(config);
    let files = read.map(|config| config.store.file).unwrap_or_default();
    let names = files.into_iter().map(|file| file.name);
    names.filter(|name| is_name(name)).collect()
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
        let in_line = "[store]\nfile = [{ name = 'a' }, { name = \"b\" }]\n";
        assert_eq!(stream_names(in_line), ["a", "b"]);
        for none in [
            "",
            "[store]",
            "store = 1",
            "[[store.file]]\nname = 1",
            "= wrong",
        ] {
            assert_eq!(stream_names(none), [] as [&str; 0], "{none}");
        }
    }
}
