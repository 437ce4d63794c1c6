//! Problems of configurations and inputs: a code, a place, the value found, what is allowed.
//!
//! Config structs of all crates return a `Vec<Problem>` from `validate()`, all problems at once;
//! the program adds file and line and renders them. Each code has a page under `docs/explain/`.

/// Code of a problem: a letter for the area and four digits, declared once where it is raised.
///
/// Areas: C config, L link, T trigger, B builder, S store, F fabric, G timing, R run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProblemCode {
    /// For example `B0107`.
    pub code: &'static str,
    /// Lower-case title without a full stop.
    pub title: &'static str,
}

impl ProblemCode {
    /// Declares a code.
    pub const fn new(code: &'static str, title: &'static str) -> Self {
        Self { code, title }
    }
}

/// One problem found in an input, worded for the person who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Which rule is broken.
    pub code: ProblemCode,
    /// Where: a key path in the configuration, such as `builder.credits` or `link[3].source_id`.
    pub path: String,
    /// The value found there.
    pub found: String,
    /// The values allowed there.
    pub allowed: String,
    /// What to do: a statement, not a question.
    pub help: String,
    /// A second place that takes part in the problem, with its label.
    pub related: Option<(String, String)>,
}

impl Problem {
    /// A problem at `path`.
    pub fn new(
        code: ProblemCode,
        path: impl Into<String>,
        found: impl ToString,
        allowed: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            code,
            path: path.into(),
            found: found.to_string(),
            allowed: allowed.into(),
            help: help.into(),
            related: None,
        }
    }

    /// Adds the second place.
    #[must_use]
    pub fn with_related(mut self, path: impl Into<String>, label: impl Into<String>) -> Self {
        self.related = Some((path.into(), label.into()));
        self
    }
}

impl core::fmt::Display for Problem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            code,
            path,
            found,
            allowed,
            help,
            ..
        } = self;
        write!(
            f,
            "error[{}]: {}: `{path}` is {found}",
            code.code, code.title
        )?;
        write!(f, ", allowed is {allowed}; help: {help}")
    }
}
