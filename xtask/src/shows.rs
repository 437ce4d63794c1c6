//! `cargo xtask shows NAME [LINE]`: runs what a capability promises and prints what came out.
//!
//! Each line of a capability is a function that returns PASS or FAIL with its figures; a line
//! that cannot run is a FAIL that says why. `--write` replaces the capability's section of
//! docs/shows.md. The lines are in one file per capability, such as [`first_light`].

mod builder;
mod evidence;
mod fabric;
mod farm;
mod filter_unit;
mod first_light;
mod judged_command;
mod links;
pub(crate) mod machine;
mod plot_reader;
mod proof;
mod run_file;
mod timing;

use std::path::PathBuf;
use std::time::Instant;

use tempfile::TempDir;

use crate::Failure;
use crate::data_folder::{DATA, data_folder};
use crate::program::Program;
use crate::tree::workspace_root;

/// The page that `--write` updates.
const PAGE: &str = "docs/shows.md";

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    name: String,
    /// One line from 1, or all of them.
    line: Option<usize>,
    write: bool,
}

impl Request {
    /// Reads `NAME [LINE]` or `NAME --write`; `None` for anything else. A page of one line would
    /// lose the others, so only a full run is written.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let write = arguments.contains(&"--write");
        let mut rest = arguments.iter().filter(|argument| **argument != "--write");
        let name = (*rest.next()?).to_owned();
        let lines = capability(&name)?.lines.len();
        let line = match rest.next() {
            Some(line) => Some(
                line.parse()
                    .ok()
                    .filter(|line| (1..=lines).contains(line))?,
            ),
            None => None,
        };
        let partial_page = write && line.is_some();
        (rest.next().is_none() && !partial_page).then_some(Self { name, line, write })
    }
}

/// A capability and the lines that show it.
struct Capability {
    name: &'static str,
    title: &'static str,
    lines: &'static [Line],
}

/// One line: what is promised and how it is shown.
struct Line {
    promise: &'static str,
    show: fn(&Stage) -> Result<Shown, Failure>,
}

/// What a line found.
#[derive(Debug)]
struct Shown {
    passed: bool,
    /// The figures, as a clause or several joined by semicolons.
    figures: String,
}

impl Shown {
    fn new(passed: bool, figures: impl Into<String>) -> Self {
        Self {
            passed,
            figures: figures.into(),
        }
    }
}

/// Where lines run: the built program and an empty folder that goes away afterwards.
#[derive(Debug)]
struct Stage {
    root: PathBuf,
    program: Program,
    scratch: TempDir,
}

impl Stage {
    fn set() -> Result<Self, Failure> {
        let root = workspace_root();
        let program = match Program::given()? {
            Some(program) => program,
            None => Program::build_distribution(&root)?,
        };
        Ok(Self {
            root,
            program,
            scratch: tempfile::tempdir()?,
        })
    }

    /// A new folder for one run.
    fn folder(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.scratch.path().join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// An empty folder that goes away with the value.
    fn scratch_folder(&self) -> Result<TempDir, Failure> {
        Ok(tempfile::tempdir_in(self.scratch.path())?)
    }

    /// A file of the repository as an argument.
    fn file(&self, path: &str) -> String {
        self.root.join(path).display().to_string()
    }

    /// A file of recorded events.
    fn recorded(&self, name: &str) -> Result<String, Failure> {
        let folder = data_folder()
            .ok_or_else(|| format!("{DATA} is not set; it names the folder of recorded events"))?;
        let file = folder.join(name);
        if !file.is_file() {
            return Err(format!("{} is not there", file.display()).into());
        }
        Ok(file.display().to_string())
    }
}

/// The outcome of one line.
struct Outcome {
    number: usize,
    promise: &'static str,
    shown: Shown,
    seconds: f64,
}

/// Every capability that can be shown.
const CAPABILITIES: [&Capability; 7] = [
    &first_light::CAPABILITY,
    &proof::CAPABILITY,
    &links::CAPABILITY,
    &builder::CAPABILITY,
    &fabric::CAPABILITY,
    &timing::CAPABILITY,
    &farm::CAPABILITY,
];

fn capability(name: &str) -> Option<&'static Capability> {
    CAPABILITIES
        .into_iter()
        .find(|capability| capability.name == name)
}

/// Runs the lines of a request; `true` where none failed.
pub(crate) fn run(request: &Request) -> Result<bool, Failure> {
    let capability = capability(&request.name).ok_or("no such capability")?;
    let stage = Stage::set()?;
    let mut outcomes = Vec::new();
    for (index, line) in capability.lines.iter().enumerate() {
        let number = index + 1;
        if request.line.is_some_and(|wanted| wanted != number) {
            continue;
        }
        eprintln!("{} line {number}: {}", capability.name, line.promise);
        let start = Instant::now();
        let shown = (line.show)(&stage).unwrap_or_else(|why| Shown::new(false, why.to_string()));
        let seconds = start.elapsed().as_secs_f64();
        let verdict = if shown.passed { "PASS" } else { "FAIL" };
        println!(
            "{verdict} {} {number}: {} ({seconds:.0} s)",
            capability.name, shown.figures
        );
        outcomes.push(Outcome {
            number,
            promise: line.promise,
            shown,
            seconds,
        });
    }
    if request.write {
        write_page(&stage, capability, &outcomes)?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.shown.passed))
}

fn write_page(stage: &Stage, capability: &Capability, outcomes: &[Outcome]) -> Result<(), Failure> {
    let path = stage.root.join(PAGE);
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    let section = section(capability, outcomes, &machine::describe(&stage.root));
    std::fs::write(&path, with_section(&old, capability.name, &section))?;
    eprintln!("wrote {PAGE}");
    Ok(())
}

const PAGE_HEAD: &str = "\
# What is shown

Written by `cargo xtask shows NAME --write`; each line runs the built program and reads its
`--json` output. Figures hold for the machine named below them and no other.
";

fn section(capability: &Capability, outcomes: &[Outcome], machine: &str) -> String {
    let mut text = format!("## {}: {}\n\n", capability.name, capability.title);
    text += "| line | what is promised | outcome | figures | took |\n|---|---|---|---|---|\n";
    for Outcome {
        number,
        promise,
        shown,
        seconds,
    } in outcomes
    {
        let verdict = if shown.passed { "PASS" } else { "FAIL" };
        let figures = without_folders(&shown.figures);
        let figures = figures.replace('\n', " ").replace('|', "\\|");
        text += &format!("| {number} | {promise} | {verdict} | {figures} | {seconds:.0} s |\n");
    }
    text + &format!("\n{machine}\n")
}

/// `text` with each absolute path cut down to its last part: a figure, or why a line failed, may name
/// files of this machine, which mean nothing to the readers of the page.
fn without_folders(text: &str) -> String {
    let begins_path =
        |before: Option<char>| before.is_none_or(|c| c.is_whitespace() || "`\"'(=".contains(c));
    let ends_path = |c: char| c.is_whitespace() || "`\"'();,".contains(c);
    let mut short = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, path) = rest.split_at(at);
        short += before;
        let end = path.find(ends_path).unwrap_or(path.len());
        let (path, after) = path.split_at(end);
        // A slash alone divides; so does one within a word, as in `events/s`.
        if path.len() > 1 && begins_path(short.chars().next_back()) {
            short += path
                .trim_end_matches('/')
                .rsplit('/')
                .next()
                .unwrap_or(path);
        } else {
            short += path;
        }
        rest = after;
    }
    short + rest
}

/// `page` with the section of one capability replaced or added.
fn with_section(page: &str, name: &str, section: &str) -> String {
    let start = format!("## {name}: ");
    let mut sections: Vec<String> = Vec::new();
    for line in page.lines() {
        if line.starts_with("## ") {
            sections.push(String::new());
        }
        if let Some(last) = sections.last_mut() {
            *last += line;
            *last += "\n";
        }
    }
    match sections
        .iter_mut()
        .find(|section| section.starts_with(&start))
    {
        Some(old) => *old = section.to_owned(),
        None => sections.push(section.to_owned()),
    }
    let sections: Vec<&str> = sections.iter().map(|section| section.trim_end()).collect();
    format!("{PAGE_HEAD}\n{}\n", sections.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_a_capability_and_a_line_that_exist() {
        let all = Request {
            name: "first-light".to_owned(),
            line: None,
            write: true,
        };
        assert_eq!(Request::parse(&["first-light", "--write"]), Some(all));
        let one = Request {
            name: "first-light".to_owned(),
            line: Some(6),
            write: false,
        };
        assert_eq!(Request::parse(&["first-light", "6"]), Some(one));
        for wrong in [
            &["second-light"][..],
            &["first-light", "7"],
            &["first-light", "0"],
            &[],
        ] {
            assert_eq!(Request::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(Request::parse(&["first-light", "1", "2"]), None);
        assert_eq!(Request::parse(&["first-light", "1", "--write"]), None);
    }

    #[test]
    fn the_page_keeps_the_sections_of_other_capabilities() {
        let page = with_section("", "first-light", "## first-light: a\n\nold\n");
        let page = with_section(&page, "more-light", "## more-light: b\n\nkept\n");
        let page = with_section(&page, "first-light", "## first-light: a\n\nnew\n");
        assert!(page.starts_with(PAGE_HEAD));
        assert!(
            page.ends_with("## first-light: a\n\nnew\n\n## more-light: b\n\nkept\n"),
            "{page}"
        );
        assert_eq!(page.matches("# What is shown").count(), 1);
    }

    /// A line that fails names the command with its files; they are of one machine.
    #[test]
    fn the_page_names_no_folder_of_this_machine() {
        let stage = tempfile::tempdir().unwrap();
        let file = stage.path().join("run").join("events.mcap");
        let file = file.display();
        let failed = format!(
            "`{file} test --out={file}` ended with exit status: 101:\n at {file}:12:5\n(\"{file}\"); 3e6 words/s"
        );
        let outcomes = [Outcome {
            number: 3,
            promise: "p",
            shown: Shown::new(false, failed),
            seconds: 1.0,
        }];
        let text = section(&first_light::CAPABILITY, &outcomes, "machine");
        assert!(
            text.contains(
                "`events.mcap test --out=events.mcap` ended with exit status: 101:  at \
                 events.mcap:12:5 (\"events.mcap\"); 3e6 words/s |"
            ),
            "{text}"
        );
        for same in ["11.2 / 3.1 MB/s", "1/3 of 4 events/s", "and/or", "/", ""] {
            assert_eq!(without_folders(same), same);
        }
    }

    #[test]
    fn figures_stay_in_their_table_cell() {
        let shown = Shown::new(false, "a | b\nc");
        let outcomes = [Outcome {
            number: 2,
            promise: "p",
            shown,
            seconds: 1.2,
        }];
        let text = section(&first_light::CAPABILITY, &outcomes, "machine");
        assert!(
            text.contains("| 2 | p | FAIL | a \\| b c | 1 s |\n"),
            "{text}"
        );
    }
}
