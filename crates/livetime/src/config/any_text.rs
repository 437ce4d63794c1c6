//! Configurations and scenarios that nobody would write: reading them gives problems, never a panic.
//!
//! Good configurations with random edits, seeded; the fuzz target `configuration` does the same
//! guided by coverage. Verified: no panic, and a refusal says why. Not verified: which problems.

#![expect(clippy::print_stdout, reason = "a test says its seed and what it did")]

use std::path::Path;

use super::{Overrides, ScenarioOverrides, read_scenario, read_text};

/// Edited configurations of each example.
const CASES: usize = 400;
const EDITS_MAX: usize = 6;

/// What people and programs put where something else belongs.
const PIECES: [&str; 28] = [
    "-1",
    "0",
    "1",
    "18446744073709551616",
    "1e999",
    "nan",
    "\"\"",
    "\"10 kHz\"",
    "\"5 us\"",
    "\"2 KiB\"",
    "\"\u{b5}\u{b5}\"",
    "true",
    "[]",
    "[[link]]",
    "[run]",
    "[trigger]",
    "{}",
    "\n",
    "=",
    "\"",
    "'''",
    "#",
    "\0",
    "\u{feff}",
    ".",
    "[1, 2, 3]",
    "1979-05-27",
    "0xffffffff",
];

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// One edit of a line or of what stands in it.
fn edit(lines: &mut Vec<String>, random: &mut Random) {
    if lines.is_empty() {
        return;
    }
    let at = random.below(lines.len());
    let other = random.below(lines.len());
    let piece = PIECES[random.below(PIECES.len())];
    let boundary = |line: &str, wanted: usize| {
        let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
        ends.take_while(|end| *end <= wanted).last().unwrap_or(0)
    };
    let length = lines[at].len() + 1;
    let cut = boundary(&lines[at], random.below(length));
    match random.below(7) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[other].clone()),
        2 => lines.swap(at, other),
        3 => lines[at].truncate(cut),
        4 => lines[at].insert_str(cut, piece),
        5 => {
            let key = lines[at].split('=').next().unwrap_or_default().to_owned();
            lines[at] = format!("{key}= {piece}");
        }
        _ => lines[at] = piece.to_owned(),
    }
}

/// The TOML files of a folder.
fn texts_of(folder: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).expect("the examples are there");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let texts = paths.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    let texts = texts.map(|path| std::fs::read_to_string(path).expect("a text"));
    texts.collect()
}

/// Reads edited texts; a refusal must say why.
fn read_edited(texts: &[String], read: impl Fn(&str) -> Result<(), String>) {
    let seed = std::env::var("LIVETIME_TEST_SEED");
    let seed = seed.ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    println!("LIVETIME_TEST_SEED={seed}");
    let mut random = Random(seed);
    assert!(!texts.is_empty());
    let (mut good, mut bad) = (0, 0);
    for text in texts {
        for _ in 0..CASES {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for _ in 0..=random.below(EDITS_MAX) {
                edit(&mut lines, &mut random);
            }
            match read(&lines.join("\n")) {
                Ok(()) => good += 1,
                Err(problems) => {
                    assert!(!problems.is_empty(), "{}", lines.join("\n"));
                    bad += 1;
                }
            }
        }
    }
    println!("{good} good, {bad} refused");
    assert!(good > 0 && bad > 0);
}

#[test]
fn edited_configurations_never_panic_and_refusals_say_why() {
    read_edited(&texts_of("../../examples"), |text| {
        read_text("edited.toml", text, &Overrides::default()).map(drop)
    });
}

#[test]
fn edited_scenarios_never_panic_and_refusals_say_why() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
    read_edited(&texts_of("../../examples/scenarios"), |text| {
        let overrides = ScenarioOverrides::default();
        read_scenario("edited.toml", text.to_owned(), &folder, overrides).map(drop)
    });
}
