//! Problems as text for people: file, line, the place underlined, help.
//!
//! The only place where miette is used; everything below deals in [`Problem`] values.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use livetime_wire::Problem;
use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode,
};

use super::problem_code::SYNTAX;

/// A problem with its place in a document.
#[derive(Debug)]
struct PlacedProblem<'a> {
    problem: &'a Problem,
    source: &'a NamedSource<String>,
    labels: Vec<LabeledSpan>,
}

impl fmt::Display for PlacedProblem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.problem.code;
        write!(f, "error[{}]: {}", code.code, code.title)?;
        if self.labels.is_empty() {
            write!(f, ": {}", found(self.problem))?;
        }
        Ok(())
    }
}

impl std::error::Error for PlacedProblem<'_> {}

impl Diagnostic for PlacedProblem<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let Problem {
            allowed,
            help,
            code,
            ..
        } = self.problem;
        let mut lines = vec![help.clone()];
        if !help.contains(allowed) {
            lines.push(format!("allowed: {allowed}"));
        }
        lines.push(format!("more: `livetime explain {}`", code.code));
        Some(Box::new(lines.join("\n")))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

/// The place of a key path, or of the longest part of it that stands in the document.
pub(crate) fn place<'s>(
    path: &str,
    spans: &'s BTreeMap<String, Range<usize>>,
) -> Option<&'s Range<usize>> {
    let mut path = path;
    loop {
        if let Some(span) = spans.get(path) {
            return Some(span);
        }
        let end = path.rfind(['.', '['])?;
        path = &path[..end];
    }
}

fn found(problem: &Problem) -> String {
    match problem.code {
        // A syntax error has no key.
        SYNTAX => problem.found.clone(),
        _ => format!("`{}` is {}", problem.path, problem.found),
    }
}

/// Where a problem stands and what was found there; none where the document says nothing of it.
fn labels(problem: &Problem, spans: &BTreeMap<String, Range<usize>>) -> Vec<LabeledSpan> {
    let Some(span) = place(&problem.path, spans) else {
        return Vec::new();
    };
    let found = Some(found(problem));
    let mut labels = vec![LabeledSpan::new_primary_with_span(found, span.clone())];
    if let Some((path, label)) = &problem.related
        && let Some(other) = place(path, spans).filter(|other| *other != span)
    {
        let label = Some(label.clone());
        labels.push(LabeledSpan::new_with_span(label, other.clone()));
    }
    labels
}

/// The text with a line end in place of each carriage return that stands for one, so that lines are
/// counted as editors count them. Places stay where they are.
fn with_line_ends(text: &str) -> String {
    let mut chars = text.chars().peekable();
    let mut ended = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        let is_end = c == '\r' && chars.peek() != Some(&'\n');
        ended.push(if is_end { '\n' } else { c });
    }
    ended
}

/// Renders all problems, each with code, place, value found, value allowed and help.
pub(crate) fn render_problems(
    name: &str,
    text: &str,
    spans: &BTreeMap<String, Range<usize>>,
    problems: &[Problem],
) -> String {
    let source = NamedSource::new(name, with_line_ends(text));
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_context_lines(1)
        .with_width(100);
    let mut out = String::new();
    for problem in problems {
        let placed = PlacedProblem {
            problem,
            source: &source,
            labels: labels(problem, spans),
        };
        let mut rendered = String::new();
        if handler.render_report(&mut rendered, &placed).is_err() {
            rendered = problem.to_string();
        }
        // The handler's mark of an error says less than the word that follows it.
        out.push_str(rendered.trim_start_matches([' ', '\u{d7}']));
        out.push('\n');
    }
    let s = if problems.len() == 1 { "" } else { "s" };
    let is_option = |problem: &Problem| problem.path.starts_with("--");
    let options = match problems.iter().any(is_option) {
        true => " and the options",
        false => "",
    };
    out.push_str(&format!(
        "{} problem{s} in {name}{options}; nothing was started\n",
        problems.len()
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::super::run_config::{Overrides, read};
    use super::*;

    #[test]
    fn lines_are_counted_whatever_ends_them() {
        let text = "format = 1\n# a comment\n[[source]]\nrate = 5\n";
        let place = |end: &str| {
            let text = text.replace('\n', end);
            let read = read(&text, &Overrides::default(), &[0]);
            let mut problems = read.problems.into_iter();
            let rate = problems.find(|problem| problem.path == "source[0].rate");
            let rate = rate.expect("it is no number");
            render_problems("run.toml", &text, &read.spans, &[rate])
        };
        // A carriage return alone ends no line of TOML, but those of some editors.
        for end in ["\n", "\r\n", "\r"] {
            let said = place(end);
            assert!(said.contains("[run.toml:4:8]"), "{said}");
        }
        let mixed = "format = 1\r# a comment\r\nrate = 5\n";
        assert_eq!(
            with_line_ends(mixed),
            "format = 1\n# a comment\r\nrate = 5\n"
        );
    }
}
