//! The pages say what the program does: keys, defaults, options, counters, losses, the example.
//!
//! Each test asks the built program, or the crate that counts, and compares it with the page, so
//! that neither can change alone. Whether the sentences around the tables are true is for readers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use livetime_wire::{ChainCounts, LossCause};
use serde_json::Value;

const UNKNOWN: &str = "zz_unknown";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn livetime(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_livetime"));
    command
        .args(arguments)
        .output()
        .expect("the built program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Cells of a table row, without the outer bars.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
    Some(inner.split(" | ").map(str::trim).collect())
}

fn code(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

/// The documented keys of each table with their default cells; `""` is the top of the file.
fn documented_keys() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut tables = BTreeMap::<String, BTreeMap<String, String>>::new();
    let (mut table, mut column) = (None, None);
    for line in page("docs/configuration.md").lines() {
        if line.starts_with('#') {
            let name = line.trim_start_matches('#').trim();
            table = match code(name) {
                Some(name) => Some(name.trim_matches(['[', ']']).to_owned()),
                None => (name == "Top of the file").then(String::new),
            };
        }
        let (Some(table), Some(cells)) = (&table, cells(line)) else {
            continue;
        };
        if cells[0] == "key" {
            column = cells.iter().position(|cell| *cell == "default");
        } else if let (Some(key), Some(column)) = (code(cells[0]), column) {
            let keys = tables.entry(table.clone()).or_default();
            let twice = keys.insert(key.to_owned(), cells[column].to_owned());
            assert_eq!(twice, None, "`{table}.{key}` stands twice on the page");
        }
    }
    tables
}

/// One path for each cut, so that every key of every cut is asked for.
const CUTS: [&str; 17] = [
    "auto",
    "dimuon",
    "electron_muon",
    "jet",
    "jets_met",
    "lepton_track",
    "met_em",
    "min_bias",
    "multi_jet",
    "photon",
    "single_electron",
    "single_muon",
    "sum_et",
    "tau",
    "two_track",
    "user",
    "zero_bias",
];

/// Filters whose keys are others than those of the default one.
const FILTERS: [&str; 3] = ["menu", "python", "user"];
/// Cuts of the Level-3 menu.
const FILTER_CUTS: [&str; 5] = ["all", "dimuon", "four_lepton", "muons", "electrons"];

/// Configurations with a key in every table that nothing reads.
fn configurations_of_unknown_keys() -> Vec<String> {
    let of_filter = |name| format!("format = 1\n[filter]\nname = \"{name}\"\n{UNKNOWN} = 1\n");
    let of_filters = FILTERS.iter().map(of_filter);
    let of_cut = |cut| format!("[[filter.path]]\ncut = \"{cut}\"\n{UNKNOWN} = 1\n");
    let of_cuts: String = FILTER_CUTS.iter().map(of_cut).collect();
    std::iter::once(configuration_of_unknown_keys())
        .chain(of_filters)
        .chain([format!("format = 1\n[filter]\nname = \"menu\"\n{of_cuts}")])
        .collect()
}

fn configuration_of_unknown_keys() -> String {
    let mut text = format!("{UNKNOWN} = 1\nformat = 1\n");
    for table in [
        "[run]",
        "[[source]]",
        "[source.fragment]",
        "[source.physics]",
        "[[source]]\nkind = \"recorded\"",
        "[[source]]\nkind = \"external\"",
        "[[link]]",
        "[timing]",
        "[[timing.ramp]]",
        "[trigger]",
        "[builder]",
        "[filter]",
        "[filter.first_step]",
        "[store]",
        "[[store.file]]",
        "[workers]",
        "[[workers.worker]]",
        "[[host]]",
        "[control]",
    ] {
        text += &format!("{table}\n{UNKNOWN} = 1\n");
    }
    for cut in CUTS {
        text += &format!("[[trigger.path]]\ncut = \"{cut}\"\n{UNKNOWN} = 1\n");
    }
    text
}

/// `trigger.path[3]` without the index: the name of the table on the page.
fn without_index(path: &str) -> String {
    let mut name = String::new();
    let mut inside = false;
    for c in path.chars() {
        inside = (inside || c == '[') && c != ']';
        if !inside && c != ']' {
            name.push(c);
        }
    }
    name
}

/// The keys that the program allows in each table, from what `verb` says about unknown ones in
/// files.
fn keys_of_the_program(verb: &[&str], files: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("unknown.toml");
    let mut problems = String::new();
    for configuration in files {
        std::fs::write(&file, configuration).expect("the folder is ours");
        let path = file.to_str().expect("a path in UTF-8");
        let output = livetime(&[verb, &[path]].concat());
        assert_eq!(output.status.code(), Some(1));
        problems += &text(&output.stderr);
    }
    let mut tables = BTreeMap::<String, BTreeSet<String>>::new();
    for problem in problems
        .split("error[")
        .filter(|text| text.starts_with("C0002"))
    {
        let end = problem
            .find(&format!("{UNKNOWN}` is"))
            .expect("the key is named with its path");
        let start = problem[..end].rfind('`').expect("the path is in backticks");
        let table = problem[start + 1..end].trim_end_matches('.');
        let (_, allowed) = problem
            .split_once("allowed: ")
            .expect("the allowed keys are listed");
        let (allowed, _) = allowed.split_once("more:").expect("the code comes last");
        let keys = allowed
            .split([',', ' ', '\n'])
            .filter(|key| !key.is_empty());
        tables
            .entry(without_index(table))
            .or_default()
            .extend(keys.map(str::to_owned));
    }
    tables
}

#[test]
fn every_key_is_on_the_page_and_every_key_on_the_page_is_read() {
    let documented = documented_keys();
    let program = keys_of_the_program(&["check"], &configurations_of_unknown_keys());
    for (table, keys) in &program {
        let known: BTreeSet<&str> = documented
            .get(table)
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .collect();
        // Tables of tables have sections of their own.
        let tables = keys.iter().filter(|key| {
            let path = format!("{table}.{key}");
            documented.contains_key(path.trim_start_matches('.'))
        });
        let tables: BTreeSet<&str> = tables.map(String::as_str).collect();
        let keys: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
        let missing: Vec<_> = keys
            .difference(&known)
            .filter(|k| !tables.contains(*k))
            .collect();
        assert!(
            missing.is_empty(),
            "[{table}] lacks on the page: {missing:?}"
        );
        let gone: Vec<_> = known.difference(&keys).collect();
        assert!(gone.is_empty(), "[{table}] has on the page only: {gone:?}");
    }
    let tables: Vec<_> = program.keys().collect();
    assert_eq!(tables, documented.keys().collect::<Vec<_>>());
}

/// Tables of a scenario file with the key that says which others there are, and its words.
const SCENARIO_TABLES: [(&str, &str, &[&str]); 5] = [
    (
        "topology",
        "kind",
        &[
            "crossbar",
            "delta",
            "four-layer",
            "six-layer",
            "clos",
            "benes",
            "fat-tree",
            "two-level",
            "gigabit-1",
            "gigabit-2",
            "chassis",
            "graph",
        ],
    ),
    (
        "switch",
        "mode",
        &["wormhole", "cut-through", "store-and-forward"],
    ),
    (
        "traffic",
        "pattern",
        &[
            "uniform",
            "permutation",
            "hot-spot",
            "incast",
            "events-in-order",
            "events-random",
            "events-permuted",
            "events-digit-reversed",
            "staggered",
            "barrel-shifter",
        ],
    ),
    (
        "size",
        "law",
        &["fixed", "exponential", "log-normal", "list"],
    ),
    (
        "arrival",
        "law",
        &[
            "saturated",
            "fixed",
            "poisson",
            "bernoulli",
            "bursty",
            "bunches",
        ],
    ),
];

/// Scenarios with a key in every table that nothing reads, one for each word.
fn scenarios_of_unknown_keys() -> Vec<String> {
    let mut files = Vec::new();
    for (table, key, words) in SCENARIO_TABLES {
        for word in words {
            let mut text = format!("{UNKNOWN} = 1\n[{table}]\n{key} = \"{word}\"\n{UNKNOWN} = 1\n");
            // These make other keys of the table known.
            if table == "switch" && *word != "wormhole" {
                text += "flow_control = \"stop-go\"\n";
                text += match *word {
                    "cut-through" => "queues = \"combined\"\nmatching = \"pim\"\n",
                    _ => "queues = \"crosspoint\"\n",
                };
            }
            for other in ["link", "flit", "builder", "host"] {
                text += &format!("[{other}]\n{UNKNOWN} = 1\n");
            }
            files.push(text);
        }
    }
    files
}

/// The code spans of a text.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Of each table of a scenario: all words of its section that may be keys, and those that its tables
/// on the page list as keys.
fn scenario_page() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let page = page("docs/operator/scenarios.md");
    let (_, keys) = page.split_once("## Keys\n").expect("the keys have a part");
    let (keys, _) = keys
        .split_once("\n### Traffic shaping")
        .expect("which ends");
    let mut tables = BTreeMap::<String, (BTreeSet<String>, BTreeSet<String>)>::new();
    for section in format!("(top)\n{keys}").split("\n### ") {
        let (heading, body) = section.split_once('\n').expect("a heading has a text");
        let is_key = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let words = codes(body).filter_map(|code| code.split(' ').next());
        let words: BTreeSet<String> = words.filter(is_key).map(str::to_owned).collect();
        let named = codes(heading).filter_map(|code| code.strip_prefix('[')?.strip_suffix(']'));
        let named: Vec<&str> = named.collect();
        let mut table = (*named.first().unwrap_or(&"")).to_owned();
        let mut column = 0;
        for cells in body.lines().filter_map(cells) {
            let is_head = cells[0].starts_with("key") || cells.get(1) == Some(&"keys");
            if is_head {
                let other = cells[0]
                    .split_once("`[")
                    .and_then(|(_, rest)| rest.split_once(']'));
                table = other.map_or(table, |(other, _)| other.to_owned());
                column = usize::from(cells.get(1) == Some(&"keys"));
            }
            let entry = tables.entry(table.clone()).or_default();
            entry.0.extend(words.iter().cloned());
            if !is_head {
                let listed = codes(cells[column]).filter(is_key).map(str::to_owned);
                entry.1.extend(listed);
            }
        }
    }
    tables
}

#[test]
fn every_key_of_a_scenario_is_on_its_page_and_every_key_there_is_read() {
    let program = keys_of_the_program(&["sim", "run"], &scenarios_of_unknown_keys());
    let page = scenario_page();
    for (table, keys) in &program {
        let (words, listed) = page.get(table).unwrap_or_else(|| panic!("[{table}]"));
        let tables = |key: &&String| table.is_empty() && page.contains_key(*key);
        let choice = SCENARIO_TABLES.iter().find(|entry| entry.0 == table);
        let missing: Vec<_> = keys
            .difference(words)
            .filter(|key| !tables(key) && choice.is_none_or(|entry| entry.1 != *key))
            .collect();
        assert!(
            missing.is_empty(),
            "[{table}] lacks on the page: {missing:?}"
        );
        let gone: Vec<_> = listed.difference(keys).collect();
        assert!(gone.is_empty(), "[{table}] has on the page only: {gone:?}");
    }
    let tables: Vec<_> = program.keys().collect();
    assert_eq!(tables, page.keys().collect::<Vec<_>>());
}

/// The smallest configuration.
const SMALLEST: [(&str, &str); 4] = [
    ("", "format = 1"),
    ("[[source]]", ""),
    ("[[link]]", "to = \"ru0\"\nsource_id = 1"),
    ("[[link]]", "to = \"trg0\"\nsource_id = 2"),
];

#[test]
fn documented_defaults_are_what_leaving_them_out_means() {
    let documented = documented_keys();
    let defaults = |table: &str| {
        let keys = documented.get(table).into_iter().flatten();
        let lines = keys.filter_map(|(key, default)| Some(format!("{key} = {}\n", code(default)?)));
        lines.collect::<String>()
    };
    let mut smallest = String::new();
    let mut spelled_out = String::new();
    for (heading, keys) in SMALLEST {
        smallest += &format!("{heading}\n{keys}\n");
        let table = heading.trim_matches(['[', ']']);
        spelled_out += &format!("{heading}\n{keys}\n");
        // The trigger link has other defaults in some places, which the page says in words.
        if !keys.contains("trg0") {
            spelled_out += &defaults(table);
        }
        if table == "source" {
            for part in ["source.fragment", "source.physics"] {
                spelled_out += &format!("[{part}]\n{}", defaults(part));
            }
        }
    }
    for table in ["run", "trigger", "builder", "filter", "store", "workers"] {
        spelled_out += &format!("[{table}]\n{}", defaults(table));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |name: &str, configuration: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, configuration).expect("the folder is ours");
        let out = folder.path().join(format!("{name}.out"));
        let (file, out) = (file.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
        let options = ["--triggers", "2000", "--lossless", "--json", "--out", out];
        let mut command = Command::new(env!("CARGO_BIN_EXE_livetime"));
        command
            .current_dir(folder.path())
            .args(["run", file])
            .args(options);
        let output = command.output().expect("the built program starts");
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        (
            summary["counts"].clone(),
            summary["decision_digest"].clone(),
        )
    };
    // Equal decisions, stored events and sizes; bounds that a good run does not reach are only
    // checked to be allowed.
    assert_eq!(
        run("smallest.toml", &smallest),
        run("spelled.toml", &spelled_out)
    );
}

#[test]
fn every_counter_and_loss_is_in_the_operators_tables_in_the_words_of_the_code() {
    let page = page("docs/operator.md");
    for (counter, _) in ChainCounts::default().entries() {
        let row = format!("\n| `{counter}` | ");
        assert!(page.contains(&row), "no row for the counter {counter}");
    }
    for cause in LossCause::ALL {
        let row = format!(
            "\n| `{}.{}` | {} | ",
            cause.area().key(),
            cause.key(),
            cause.help()
        );
        assert!(page.contains(&row), "no row, or an old one: {row}");
    }
    let rows = page.lines().filter_map(cells);
    let documented = rows.filter_map(|cells| code(cells[0])).filter(|name| {
        let area = name.split_once('.').map(|(area, _)| area);
        LossCause::ALL
            .iter()
            .any(|cause| Some(cause.area().key()) == area)
    });
    assert_eq!(
        documented.count(),
        LossCause::ALL.len(),
        "rows without a cause"
    );
}

#[test]
fn every_verb_and_option_of_run_is_on_the_operators_page() {
    let page = page("docs/operator.md");
    let help = text(&livetime(&["--help"]).stdout);
    let (_, verbs) = help.split_once("Commands:\n").expect("verbs are listed");
    let verbs = verbs.lines().take_while(|line| !line.is_empty());
    let verbs = verbs.filter_map(|line| line.split_whitespace().next());
    for verb in verbs.filter(|verb| *verb != "help" && *verb != "run") {
        assert!(
            page.contains(&format!("\n| `{verb}")),
            "no row for `{verb}`"
        );
    }
    let help = text(&livetime(&["run", "--help"]).stdout);
    let options = help
        .split_whitespace()
        .filter(|word| word.starts_with("--"));
    for option in options.filter(|option| *option != "--help") {
        assert!(
            page.contains(&format!("\n| `{option}")),
            "no row for `{option}`"
        );
    }
}

#[test]
fn the_example_gives_its_expected_output() {
    let expected = page("examples/dimuon.expected.json");
    let expected: Value = serde_json::from_str(&expected).expect("the file is JSON");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = root().join("examples/dimuon.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_livetime"));
    command.current_dir(folder.path()).arg("run").arg(config);
    command.args(["--triggers", "20000", "--lossless", "--json"]);
    let output = command.output().expect("the built program starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    for key in ["schema", "counts", "losses", "conserved", "decision_digest"] {
        assert_eq!(found[key], expected[key], "{key}; see examples/README.md");
    }
}
