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

/// A problem with its place in a document.
#[derive(Debug)]
struct PlacedProblem<'a> {
    problem: &'a Problem,
    source: &'a NamedSource<String>,
    labels: Vec<LabeledSpan>,
}

impl fmt::Display for PlacedProblem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.problem.code.title)
    }
}

impl std::error::Error for PlacedProblem<'_> {}

impl Diagnostic for PlacedProblem<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(format!("error[{}]", self.problem.code.code)))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let Problem {
            allowed,
            help,
            code,
            ..
        } = self.problem;
        let code = code.code;
        Some(Box::new(format!(
            "{help}\nallowed: {allowed}\nmore: `livetime explain {code}`"
        )))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

/// The place of a key path, or of the longest part of it that stands in the document.
fn place<'s>(path: &str, spans: &'s BTreeMap<String, Range<usize>>) -> Option<&'s Range<usize>> {
    let mut path = path;
    loop {
        if let Some(span) = spans.get(path) {
            return Some(span);
        }
        let end = path.rfind(['.', '['])?;
        path = &path[..end];
    }
}

/// Renders all problems, each with code, place, value found, value allowed and help.
pub(crate) fn render_problems(
    name: &str,
    text: &str,
    spans: &BTreeMap<String, Range<usize>>,
    problems: &[Problem],
) -> String {
    let source = NamedSource::new(name, text.to_owned());
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_context_lines(1)
        .with_width(100);
    let mut out = String::new();
    for problem in problems {
        let found = format!("`{}` is {}", problem.path, problem.found);
        let mut labels = Vec::new();
        match place(&problem.path, spans) {
            Some(span) => labels.push(LabeledSpan::new_primary_with_span(
                Some(found),
                span.clone(),
            )),
            None => labels.push(LabeledSpan::new_primary_with_span(Some(found), 0..0)),
        }
        if let Some((path, label)) = &problem.related
            && let Some(span) = place(path, spans)
        {
            labels.push(LabeledSpan::new_with_span(
                Some(label.clone()),
                span.clone(),
            ));
        }
        let placed = PlacedProblem {
            problem,
            source: &source,
            labels,
        };
        if handler.render_report(&mut out, &placed).is_err() {
            out.push_str(&problem.to_string());
        }
        out.push('\n');
    }
    let s = if problems.len() == 1 { "" } else { "s" };
    out.push_str(&format!(
        "{} problem{s} in {name}; nothing was started\n",
        problems.len()
    ));
    out
}
