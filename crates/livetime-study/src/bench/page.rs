//! `docs/benchmarks.md` and the text of a terminal, from bench documents and nothing else.
//!
//! A document that was kept can be turned into the page again at any time; nothing is measured or
//! judged here. Documents are made in [`crate::bench::document`].

use std::fmt::Write;

use serde_json::{Map, Value};

/// How a page begins.
pub const BEGIN: &str = "# Benchmarks\n\nWritten by `livetime bench`; do not edit.";
/// Members of a latency object, in the order of the columns.
const COLUMNS: [&str; 6] = ["min", "p50", "p90", "p99", "p99_9", "max"];
/// Members that say how a figure was taken rather than what was found.
const HIDDEN: [&str; 2] = ["histogram", "mean"];

/// The benches of a document: itself, or those that it holds.
struct Bench<'a> {
    name: &'a str,
    machine: &'a Value,
    floor: &'a Value,
    result: &'a Value,
    ratio: &'a Value,
    ratio_of: &'a Value,
    targets: Map<String, Value>,
}

fn benches(document: &Value) -> Vec<Bench<'_>> {
    let name = document["bench"].as_str().unwrap_or("unknown");
    let empty = Map::new();
    let targets = document["targets"].as_object().unwrap_or(&empty);
    if name != "all" {
        return vec![Bench {
            name,
            machine: &document["machine"],
            floor: &document["floor"],
            result: &document["result"],
            ratio: &document["ratio"],
            ratio_of: &document["ratio_of"],
            targets: targets.clone(),
        }];
    }
    let names = document["machine"].as_object();
    let of_bench = |name: &str| {
        let prefix = format!("{name}.");
        let own = |(key, target): (&String, &Value)| {
            key.strip_prefix(&prefix)
                .map(|key| (key.to_owned(), target.clone()))
        };
        targets.iter().filter_map(own).collect()
    };
    let bench = |name| Bench {
        name,
        machine: &document["machine"][name],
        floor: &document["floor"][name],
        result: &document["result"][name],
        ratio: &document["ratio"][name],
        ratio_of: &document["ratio_of"][name],
        targets: of_bench(name),
    };
    let mut ordered: Vec<&str> = names
        .into_iter()
        .flat_map(Map::keys)
        .map(String::as_str)
        .collect();
    let place = |name: &str| {
        super::BenchName::ALL
            .iter()
            .position(|bench| bench.key() == name)
    };
    ordered.sort_by_key(|name| place(name));
    ordered.into_iter().map(bench).collect()
}

/// The page.
pub fn to_markdown(document: &Value) -> String {
    let mut page = format!(
        "{BEGIN} Times depend on the machine, \
         so every figure stands beside the floor that was measured before, between and after its \
         own blocks; blocks whose floors disagree are discarded and counted, and where no two \
         agree nothing is judged. A ratio is that of one block, whose two figures stand beside it. \
         Targets are those of the project; a target that is not met stays in the table.\n\n",
    );
    let benches = benches(document);
    page.push_str(
        "## Targets\n\n| bench | target | wanted | reached | met |\n|---|---|---|---|---|\n",
    );
    for bench in &benches {
        for (name, target) in &bench.targets {
            let _ = writeln!(
                page,
                "| {} | {} | {} {} | {} | {} |",
                bench.name,
                words(name),
                bound(target),
                number(&target["target"]),
                number(&target["value"]),
                match target["met"].as_bool() {
                    Some(true) => "yes".to_owned(),
                    Some(false) => "**no**".to_owned(),
                    None => format!("not judged: {}", why(target)),
                }
            );
        }
    }
    for bench in &benches {
        let _ = writeln!(page, "\n## {}\n", bench.name);
        let _ = writeln!(page, "{}\n", machine_line(bench));
        for (title, value) in [
            ("Floor", bench.floor),
            ("Result", bench.result),
            ("Ratio", bench.ratio),
        ] {
            section(&mut page, title, Rows::of(value, bench.ratio_of));
        }
    }
    page
}

/// The text for a terminal: targets first, then everything in one column.
pub fn to_text(document: &Value) -> String {
    let mut text = String::new();
    for bench in benches(document) {
        let _ = writeln!(text, "{}  ({})", bench.name, machine_line(&bench));
        for (title, value) in [
            ("floor", bench.floor),
            ("result", bench.result),
            ("ratio", bench.ratio),
        ] {
            let rows = Rows::of(value, bench.ratio_of);
            if rows.is_empty() {
                continue;
            }
            let _ = writeln!(text, "  {title}");
            for (name, columns) in &rows.latencies {
                let _ = write!(text, "    {name:<52}");
                for (column, cell) in COLUMNS.iter().zip(columns) {
                    let _ = write!(text, " {column} {cell}");
                }
                text.push('\n');
            }
            for (name, cell) in &rows.numbers {
                let _ = writeln!(text, "    {name:<52} {cell}");
            }
        }
        for (name, target) in &bench.targets {
            let (verdict, because) = match target["met"].as_bool() {
                Some(true) => ("met", String::new()),
                Some(false) => ("NOT MET", String::new()),
                None => ("not judged", format!(" ({})", why(target))),
            };
            let _ = writeln!(
                text,
                "  {verdict:<10} {name}: {}, {} {} wanted{because}",
                number(&target["value"]),
                bound(target),
                number(&target["target"])
            );
        }
        text.push('\n');
    }
    text
}

fn bound(target: &Value) -> &'static str {
    if target["bound"] == "at_most" {
        "at most"
    } else {
        "at least"
    }
}

fn why(target: &Value) -> &str {
    target["not_judged"].as_str().unwrap_or("not measured")
}

fn words(key: &str) -> String {
    key.replace('_', " ")
}

fn machine_line(bench: &Bench<'_>) -> String {
    let machine = |key: &str| match &bench.machine[key] {
        Value::String(text) => text.clone(),
        Value::Null => "unknown".to_owned(),
        other => number(other),
    };
    let placement = bench.floor["placement"].as_str();
    let placement = placement
        .map(|placement| format!(", cores {placement}"))
        .unwrap_or_default();
    let build = match bench.machine["assertions"].as_bool() {
        Some(true) => ", built with assertions",
        Some(false) => ", built without assertions",
        None => "",
    };
    let quick = match bench.machine["quick"].as_bool() {
        Some(true) => ", quick: the form is right, the figures mean little",
        _ => "",
    };
    format!(
        "{}, {} cores{placement}, {}, scheduling {}, load average {} before{build}{quick}",
        machine("cpu"),
        machine("cores"),
        machine("os"),
        machine("scheduling"),
        machine("load_average")
    )
}

/// The figures of a section, flattened: latencies as rows of columns, other numbers one by one.
#[derive(Default)]
struct Rows {
    latencies: Vec<(String, Vec<String>)>,
    numbers: Vec<(String, String)>,
}

impl Rows {
    /// The figures of a section; to a ratio its two figures are added.
    fn of(section: &Value, ratio_of: &Value) -> Self {
        let mut rows = Self::default();
        rows.take("", section);
        for (key, figures) in ratio_of.as_object().into_iter().flatten() {
            let name = words(key);
            let of_ratio = section.get(key).is_some_and(Value::is_number);
            let found = rows.numbers.iter_mut().find(|(found, _)| *found == name);
            if let Some((_, cell)) = found.filter(|_| of_ratio) {
                let [over, under] = ["over", "under"].map(|side| number(&figures[side]));
                let _ = write!(cell, " = {over} / {under}");
            }
        }
        rows
    }

    fn is_empty(&self) -> bool {
        self.latencies.is_empty() && self.numbers.is_empty()
    }

    fn take(&mut self, name: &str, value: &Value) {
        match value {
            Value::Object(members) if members.contains_key("p50") && members.len() > 2 => {
                let cell =
                    |column: &&str| number(&members.get(*column).cloned().unwrap_or_default());
                let unit = members.get("unit").and_then(Value::as_str);
                let unit = unit.map(|unit| format!(" [{unit}]")).unwrap_or_default();
                self.latencies
                    .push((format!("{name}{unit}"), COLUMNS.iter().map(cell).collect()));
                let extra = members.iter().filter(|(key, _)| {
                    !COLUMNS.contains(&key.as_str()) && !HIDDEN.contains(&key.as_str())
                });
                for (key, value) in extra.filter(|(key, _)| key.as_str() == "per_s_at_p50") {
                    self.take(&join(name, key), value);
                }
            }
            Value::Object(members) if members.contains_key("discarded_floor_moved") => {
                let count = |key: &str| number(&members.get(key).cloned().unwrap_or_default());
                let agree = match members.get("floors_agree") {
                    Some(Value::Bool(false)) => {
                        "; no two floors agreed: the figures are of the block whose floors do so best"
                    }
                    _ => "",
                };
                let text = format!(
                    "{} of {} kept, {} discarded as the floor moved, {} of another placement{agree}",
                    count("kept"),
                    count("measured"),
                    count("discarded_floor_moved"),
                    count("other_placement")
                );
                self.numbers.push((name.to_owned(), text));
            }
            Value::Object(members) => {
                for (key, value) in members {
                    self.take(&join(name, key), value);
                }
            }
            Value::Array(cells) if cells.iter().all(|cell| cell["name"].is_string()) => {
                for cell in cells {
                    self.take_cell(name, cell);
                }
            }
            Value::Array(rows) if rows.iter().all(Value::is_object) => {
                for (row, figures) in rows.iter().enumerate() {
                    let place = format!("{name}, {}", row + 1);
                    self.numbers.push((place, line_of(figures)));
                }
            }
            Value::Array(_) | Value::Null if name.is_empty() => {}
            Value::String(text) => self.numbers.push((name.to_owned(), text.clone())),
            other => self.numbers.push((name.to_owned(), number(other))),
        }
    }
}

impl Rows {
    /// A cell of a table in one line: what it is called, and its figures that are no objects.
    fn take_cell(&mut self, name: &str, cell: &Value) {
        let place = join(name, cell["name"].as_str().unwrap_or_default());
        self.numbers.push((place, line_of(cell)));
    }
}

/// The figures of an object that are no objects, in one line.
fn line_of(object: &Value) -> String {
    let members = object.as_object().into_iter().flatten();
    let figures = members.filter(|(key, value)| *key != "name" && !value.is_object());
    let figures = figures.map(|(key, value)| format!("{} {}", words(key), number(value)));
    figures.collect::<Vec<_>>().join(", ")
}

fn join(name: &str, key: &str) -> String {
    if name.is_empty() {
        words(key)
    } else {
        format!("{name}, {}", words(key))
    }
}

fn section(page: &mut String, title: &str, rows: Rows) {
    if rows.is_empty() {
        return;
    }
    if !rows.latencies.is_empty() {
        let _ = writeln!(page, "| {title} | {} |", COLUMNS.join(" | "));
        let _ = writeln!(page, "|---|{}", "---:|".repeat(COLUMNS.len()));
        for (name, columns) in &rows.latencies {
            let _ = writeln!(page, "| {name} | {} |", columns.join(" | "));
        }
        page.push('\n');
    }
    if !rows.numbers.is_empty() {
        let _ = writeln!(page, "| {title} | |\n|---|---:|");
        for (name, cell) in &rows.numbers {
            let _ = writeln!(page, "| {name} | {cell} |");
        }
        page.push('\n');
    }
}

/// A number with its digits in groups of three, or what else stands there.
fn number(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Number(number) => grouped(&number.to_string()),
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(number).collect();
            values.join(", ")
        }
        other => other.to_string(),
    }
}

fn grouped(text: &str) -> String {
    let (sign, rest) = text
        .strip_prefix('-')
        .map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
    let mut out = sign.to_owned();
    // One such as 2e-5 has no groups.
    let is_plain = whole.bytes().all(|digit| digit.is_ascii_digit());
    for (index, digit) in whole.chars().enumerate() {
        if is_plain && index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    if fraction != "0" {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::document::Quotient;
    use crate::bench::{BenchDocument, Target};

    fn document() -> BenchDocument {
        let mut document = BenchDocument::new("ring");
        document.machine = json!({ "cpu": "a processor", "cores": 2, "os": "Linux 6" });
        document.add_machine("scheduling", "fifo");
        document.add_floor("placement", "near");
        document.add_result(
            "one_way",
            json!({ "min": 1, "p50": 12345, "p90": 3, "p99": 4, "p99_9": 5, "max": 6 }),
        );
        document.add_ratio("to_floor", 1.25);
        document.add_target(Target::at_most("one_way", 1.25, 1.3));
        document.add_target(Target::at_least("gain", f64::NAN, 1.8));
        document.add_target(Target::at_most("moved", 1.5, 2.0).where_floors_agree(false));
        document.add_target(Target::at_most("missed", 2.5, 2.0));
        let (over, under) = (3000.0, 2000.0);
        document.add_quotient("gain", Quotient { over, under });
        document.add_floor("ring_stream_per_s", json!([63156.0, 532717.0]));
        document.add_result(
            "stream",
            json!({
                "unit": "ns", "min": 1, "p50": 2, "p90": 3, "p99": 4, "p99_9": 5, "max": 6,
            }),
        );
        let row = |ns: u32| json!({ "service_ns": ns });
        document.add_result("model", json!({ "rows": [row(11_000), row(12_000)] }));
        document
    }

    #[test]
    fn page_has_targets_machine_floor_and_results() {
        let page = to_markdown(&document().to_json());
        for part in [
            "| ring | one way | at most 1.3 | 1.25 | yes |",
            "| ring | gain | at least 1.8 | - | not judged: not measured |",
            "| ring | moved | at most 2 | 1.5 | not judged: no two floors agreed |",
            "| ring | missed | at most 2 | 2.5 | **no** |",
            "a processor, 2 cores, cores near, Linux 6, scheduling fifo",
            "| one way | 1 | 12 345 | 3 | 4 | 5 | 6 |",
            "| to floor | 1.25 |",
            "| gain | 1.5 = 3 000 / 2 000 |",
            "| stream [ns] | 1 | 2 | 3 | 4 | 5 | 6 |",
            "| ring stream per s | 63 156, 532 717 |",
            "| model, rows, 2 | service ns 12 000 |",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
    }

    #[test]
    fn page_of_all_is_made_of_each_in_the_order_of_the_benches() {
        let all = BenchDocument::of_all(&[BenchDocument::new("chain"), document()]);
        let page = to_markdown(&all);
        let place = |text: &str| page.find(text).unwrap();
        assert!(place("## ring") < place("## chain"));
        assert!(page.contains("| ring | one way | at most 1.3 | 1.25 | yes |"));
        let text = to_text(&all);
        assert!(
            text.contains("  not judged gain: -, at least 1.8 wanted (not measured)\n"),
            "{text}"
        );
        assert!(text.contains("  NOT MET    missed: 2.5, at most 2 wanted\n"));
        assert!(text.contains("  met        one_way: 1.25, at most 1.3 wanted\n"));
    }

    #[test]
    fn what_was_measured_short_says_so() {
        let mut quick = document();
        for (is_quick, count) in [(true, 1), (false, 0)] {
            quick.add_machine("quick", is_quick);
            for said in [to_markdown(&quick.to_json()), to_text(&quick.to_json())] {
                assert_eq!(said.matches("quick: the form is right").count(), count);
            }
        }
    }

    #[test]
    fn blocks_whose_floors_disagree_are_not_said_to_be_kept() {
        let blocks = json!({
            "measured": 3, "kept": 0, "discarded_floor_moved": 3, "other_placement": 0,
            "floors_agree": false,
        });
        let mut document = document();
        document.add_floor("blocks", blocks);
        let text = to_text(&document.to_json());
        let said = "0 of 3 kept, 3 discarded as the floor moved, 0 of another placement; no two \
                    floors agreed: the figures are of the block whose floors do so best";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn digits_are_grouped() {
        let cases = [
            ("1", "1"),
            ("1234", "1 234"),
            ("1234567.5", "1 234 567.5"),
            ("-12.0", "-12"),
            ("2e-5", "2e-5"),
            ("1.5e-7", "1.5e-7"),
        ];
        for (text, expected) in cases {
            assert_eq!(grouped(text), expected);
        }
    }
}
