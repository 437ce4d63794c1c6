//! A TOML document read key by key, with all problems collected and placed.
//!
//! It knows keys, types, units and places, and no meaning: the tables are read by the files
//! beside it. Every value's span is remembered under its key path, so that a problem found
//! later by a core's `validate()` still points at the line that caused it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use livetime_wire::{ByteSize, DurationNs, Problem, ProblemCode, RateHz};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::exact_time::parse_time;
use super::problem_code::{
    BAD_CHOICE, BAD_QUANTITY, CONTROL_CHARACTERS, IDLE_KEY, MISSING_KEY, OUT_OF_RANGE, SYNTAX,
    UNKNOWN_KEY, WRONG_TYPE,
};

/// What is gathered while a document is read: places of keys and problems.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    spans: RefCell<BTreeMap<String, Range<usize>>>,
    problems: RefCell<Vec<Problem>>,
    /// Where headers of tables are broken.
    broken_headers: RefCell<Vec<Range<usize>>>,
}

/// What is wrong with a value whatever else stands in the document.
const OF_VALUES: [ProblemCode; 6] = [
    UNKNOWN_KEY,
    WRONG_TYPE,
    BAD_QUANTITY,
    BAD_CHOICE,
    OUT_OF_RANGE,
    CONTROL_CHARACTERS,
];

impl Findings {
    /// Adds a problem.
    pub(crate) fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Whether a problem with one of these codes was reported.
    pub(crate) fn has_any(&self, codes: &[ProblemCode]) -> bool {
        let problems = self.problems.borrow();
        problems.iter().any(|problem| codes.contains(&problem.code))
    }

    /// Whether anything was reported.
    pub(crate) fn has_any_problem(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    /// The tables, or keys outside of any, with problems other than these: their values are not those of
    /// the text.
    pub(crate) fn tables_unread(&self, harmless: &[ProblemCode]) -> BTreeSet<String> {
        let problems = self.problems.borrow();
        let unread = problems
            .iter()
            .filter(|problem| !harmless.contains(&problem.code));
        let table = |problem: &Problem| {
            let end = problem.path.find(['.', '[']).unwrap_or(problem.path.len());
            problem.path[..end].to_owned()
        };
        unread.map(table).collect()
    }

    /// Whether a problem stands at this key path already.
    pub(crate) fn has_problem_at(&self, path: &str) -> bool {
        let problems = self.problems.borrow();
        problems.iter().any(|problem| problem.path == path)
    }

    /// Whether a problem stands at this key path or below it.
    pub(crate) fn has_problem_within(&self, path: &str) -> bool {
        let is_within = |other: &str| {
            let rest = other.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let problems = self.problems.borrow();
        problems.iter().any(|problem| is_within(&problem.path))
    }

    /// Remembers where a key path stands.
    fn place(&self, path: &str, span: Range<usize>) {
        self.spans.borrow_mut().insert(path.to_owned(), span);
    }

    /// The places and the problems. Behind a syntax error a value may stand for one that could not be
    /// read, at a place without extent: what is wrong with it is nothing that the text says.
    /// A broken header takes lines behind it along, the header of another table perhaps: what is missing
    /// then may be there, and only what is wrong with values elsewhere is said.
    pub(crate) fn into_parts(self) -> (BTreeMap<String, Range<usize>>, Vec<Problem>) {
        let is_broken = self.has_any(&[SYNTAX]);
        let headers = self.broken_headers.into_inner();
        let (spans, mut problems) = (self.spans.into_inner(), self.problems.into_inner());
        if is_broken {
            let is_unread = |path: &str| spans.get(path).is_some_and(Range::is_empty);
            problems.retain(|problem| problem.code == SYNTAX || !is_unread(&problem.path));
        }
        if !headers.is_empty() {
            let is_apart = |span: &Range<usize>| {
                let mut headers = headers.iter();
                headers.all(|header| header.start < span.start || span.end < header.start)
            };
            problems.retain(|problem| {
                let is_apart = spans.get(&problem.path).is_some_and(is_apart);
                problem.code == SYNTAX || (is_apart && OF_VALUES.contains(&problem.code))
            });
        }
        (spans, problems)
    }
}

/// Parses the text; syntax errors are reported and what can be read is returned.
pub(crate) fn parse<'t>(text: &'t str, findings: &Findings) -> Spanned<DeTable<'t>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for (index, error) in errors.iter().enumerate() {
        let path = format!("syntax error {}", index + 1);
        if let Some(span) = error.span() {
            let before = text.get(..span.start).unwrap_or_default();
            let line = before.rfind('\n').map_or(0, |end| end + 1);
            if text[line..].trim_start().starts_with('[') {
                findings.broken_headers.borrow_mut().push(span.clone());
            }
            findings.place(&path, span);
        }
        let help = "correct the line; the rest of the file was read as far as possible";
        findings.report(Problem::new(
            SYNTAX,
            path,
            error.message(),
            "TOML 1.0",
            help,
        ));
    }
    table
}

/// A quantity that is written as text with a unit.
pub(crate) trait Quantity: std::str::FromStr<Err: ToString> {
    /// What is allowed, for messages.
    const ALLOWED: &'static str;
    /// What is allowed in an option of the command line, where quotes are the shell's.
    const IN_OPTION: &'static str;

    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with the text.
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: Self::Err| error.to_string())
    }
}

impl Quantity for DurationNs {
    const ALLOWED: &'static str =
        "a time with unit in quotes, such as \"20 us\" (ns, us, ms, s, min, h)";
    const IN_OPTION: &'static str =
        "a time with unit, such as 20us (ns, us, ms, s, min, h), 0 or more and below 2500000 h";

    fn read(text: &str) -> Result<Self, String> {
        parse_time(text)
    }
}

impl Quantity for ByteSize {
    const ALLOWED: &'static str =
        "a size with unit in quotes, such as \"2 KiB\" (B, KiB, MiB, GiB)";
    const IN_OPTION: &'static str =
        "a size with unit, such as 2KiB (B, KiB, MiB, GiB), from 0 to 8000000000 GiB";
}

impl Quantity for RateHz {
    const ALLOWED: &'static str = "a rate with unit in quotes, such as \"10 kHz\" (Hz, kHz, MHz)";
    const IN_OPTION: &'static str =
        "a rate with unit, such as 10kHz (Hz, kHz, MHz), from 0 to 1000000 MHz";
}

/// One table of the document while it is read; every key asked for becomes a known one.
pub(crate) struct Section<'t, 'f> {
    path: String,
    table: &'t DeTable<'t>,
    known: Vec<&'static str>,
    findings: &'f Findings,
}

impl<'t, 'f> Section<'t, 'f> {
    /// The document's root.
    pub(crate) fn root(table: &'t DeTable<'t>, findings: &'f Findings) -> Self {
        Self {
            path: String::new(),
            table,
            known: Vec::new(),
            findings,
        }
    }

    /// The key path of this table, empty for the root.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The key path of a key of this table.
    pub(crate) fn key_path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Whether the key is there.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn value(&mut self, key: &'static str) -> Option<&'t DeValue<'t>> {
        self.known.push(key);
        let value = self.table.get(key)?;
        self.findings.place(&self.key_path(key), value.span());
        Some(value.get_ref())
    }

    fn wrong_type(&self, key: &str, found: &DeValue<'_>, allowed: &str) {
        let path = self.key_path(key);
        let help = format!("write {allowed}");
        let found = format!("{} {}", article(found.type_str()), found.type_str());
        self.findings
            .report(Problem::new(WRONG_TYPE, path, found, allowed, help));
    }

    /// A text.
    pub(crate) fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.value(key)?;
        if value.as_str().is_none() {
            self.wrong_type(key, value, "a text in quotes");
        }
        value.as_str().map(str::to_owned)
    }

    /// A text without control characters, for what becomes a path or a name of the system.
    pub(crate) fn plain_text(&mut self, key: &'static str) -> Option<String> {
        let text = self.text(key)?;
        if text.contains(char::is_control) {
            self.findings.report(Problem::new(
                CONTROL_CHARACTERS,
                self.key_path(key),
                format!("\"{}\"", text.escape_debug()),
                "a text without control characters",
                "leave them out: the system would cut the name short, or nobody could type it",
            ));
            return None;
        }
        Some(text)
    }

    /// A text that `parse` understands; `allowed` says what that is.
    pub(crate) fn parsed<T, E: ToString>(
        &mut self,
        key: &'static str,
        allowed: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.value(key)?;
        let Some(text) = value.as_str() else {
            self.wrong_type(key, value, allowed);
            return None;
        };
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                let found = format!("\"{text}\" ({})", error.to_string());
                let help = format!("write {allowed}");
                let path = self.key_path(key);
                self.findings
                    .report(Problem::new(BAD_QUANTITY, path, found, allowed, help));
                None
            }
        }
    }

    /// A quantity with unit: replaces `field` when the key is there.
    pub(crate) fn quantity<T: Quantity>(&mut self, key: &'static str, field: &mut T) {
        if let Some(value) = self.parsed(key, T::ALLOWED, T::read) {
            *field = value;
        }
    }

    /// As [`Section::quantity`], of a time that is not to be none; `help` says what it is to be.
    pub(crate) fn time_above_zero(
        &mut self,
        key: &'static str,
        field: &mut DurationNs,
        help: &str,
    ) {
        self.quantity(key, field);
        if *field == DurationNs(0) {
            let path = self.key_path(key);
            self.report(Problem::new(OUT_OF_RANGE, path, *field, "above 0", help));
        }
    }

    /// An integer in a range.
    pub(crate) fn integer(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Option<u64> {
        let value = self.value(key)?;
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        let Some(integer) = value.as_integer() else {
            self.wrong_type(key, value, &allowed);
            return None;
        };
        let number = whole(integer).and_then(|number| u64::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let help = format!("set `{key}` to {allowed}");
            let path = self.key_path(key);
            self.findings
                .report(Problem::new(OUT_OF_RANGE, path, integer, allowed, help));
        }
        number
    }

    /// A number in a range, whole or with a point.
    pub(crate) fn number(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<f64>,
    ) -> Option<f64> {
        let value = self.value(key)?;
        let allowed = format!("a number from {} to {}", range.start(), range.end());
        let (text, number) = match value {
            DeValue::Float(float) => {
                let text = float.as_str().replace('_', "");
                let number = text.parse::<f64>().ok();
                (text, number)
            }
            DeValue::Integer(integer) => {
                let number = whole(integer).map(|number| number as f64);
                (integer.to_string(), number)
            }
            other => {
                self.wrong_type(key, other, &allowed);
                return None;
            }
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let help = format!("set `{key}` to {allowed}");
            let path = self.key_path(key);
            self.findings
                .report(Problem::new(OUT_OF_RANGE, path, text, allowed, help));
        }
        number
    }

    /// True or false.
    pub(crate) fn switch(&mut self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        if value.as_bool().is_none() {
            self.wrong_type(key, value, "true or false");
        }
        value.as_bool()
    }

    /// One of several words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.text(key)?;
        let choice = words.iter().find(|(word, _)| *word == text);
        if choice.is_none() {
            let allowed = list(words.iter().map(|(word, _)| *word));
            let help = match nearest(&text, words.iter().map(|(word, _)| *word)) {
                Some(word) => format!("write \"{word}\""),
                None => format!("write one of {allowed}"),
            };
            let path = self.key_path(key);
            let found = format!("\"{text}\"");
            self.findings
                .report(Problem::new(BAD_CHOICE, path, found, allowed, help));
        }
        choice.map(|(_, value)| *value)
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        const ALLOWED: &str = "a list of texts, such as [\"a\", \"b\"]";
        let value = self.value(key)?;
        let texts = value.as_array().and_then(|array| {
            array
                .iter()
                .map(|item| item.get_ref().as_str().map(str::to_owned))
                .collect()
        });
        if texts.is_none() {
            self.wrong_type(key, value, ALLOWED);
        }
        texts
    }

    /// The entries of a table whose keys are the user's, all of them texts; empty without it.
    pub(crate) fn text_entries(&mut self, key: &'static str) -> Vec<(String, String)> {
        const ALLOWED: &str = "a table of texts, such as { pt_min = \"3 GeV\" }";
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let entries = value.as_table().and_then(|table| {
            let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let text = value.get_ref().as_str()?;
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                Some((key.to_string(), text.to_owned()))
            };
            table.iter().map(entry).collect()
        });
        entries.unwrap_or_else(|| {
            self.wrong_type(key, value, ALLOWED);
            Vec::new()
        })
    }

    /// A list of whole numbers.
    pub(crate) fn integers(&mut self, key: &'static str, max: u64) -> Option<Vec<u64>> {
        let value = self.value(key)?;
        let Some(array) = value.as_array() else {
            let allowed = format!("a list of whole numbers from 0 to {max}");
            self.wrong_type(key, value, &allowed);
            return None;
        };
        let number = |item: &Spanned<DeValue<'_>>| {
            let integer = item.get_ref().as_integer()?;
            let number = u64::try_from(whole(integer)?).ok();
            number.filter(|number| *number <= max)
        };
        let numbers: Vec<Option<u64>> = array.iter().map(number).collect();
        if let Some(first) = numbers.iter().position(Option::is_none) {
            let others = numbers[first + 1..].iter().filter(|n| n.is_none()).count();
            self.bad_number(key, (first, &array[first]), others, max);
            return None;
        }
        Some(numbers.into_iter().flatten().collect())
    }

    /// Reports an entry of a list of numbers that is none of those allowed, and how many others are not.
    fn bad_number(
        &self,
        key: &str,
        (index, item): (usize, &Spanned<DeValue<'_>>),
        others: usize,
        max: u64,
    ) {
        let path = format!("{}[{index}]", self.key_path(key));
        self.findings.place(&path, item.span());
        let (code, mut found) = match item.get_ref() {
            DeValue::Integer(integer) => (OUT_OF_RANGE, integer.to_string()),
            other => {
                let kind = other.type_str();
                (WRONG_TYPE, format!("{} {kind}", article(kind)))
            }
        };
        if others > 0 {
            found += &format!(", and {others} more of the list are not allowed");
        }
        let allowed = format!("a whole number from 0 to {max}");
        let help = format!("write {allowed} for each entry of `{key}`");
        self.findings
            .report(Problem::new(code, path, found, allowed, help));
    }

    /// A table of this table.
    pub(crate) fn section(&mut self, key: &'static str) -> Option<Section<'t, 'f>> {
        let value = self.value(key)?;
        let table = value.as_table();
        if table.is_none() {
            self.wrong_type(key, value, &format!("a table [{}]", self.key_path(key)));
        }
        let path = self.key_path(key);
        table.map(|table| Section {
            path,
            table,
            known: Vec::new(),
            findings: self.findings,
        })
    }

    /// The tables of an array of tables, empty when it is not there.
    pub(crate) fn sections(&mut self, key: &'static str) -> Vec<Section<'t, 'f>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let tables: Option<Vec<_>> = value.as_array().and_then(|array| {
            array
                .iter()
                .map(|item| Some((item.span(), item.get_ref().as_table()?)))
                .collect()
        });
        let Some(tables) = tables else {
            self.wrong_type(key, value, &format!("tables [[{}]]", self.key_path(key)));
            return Vec::new();
        };
        let place = |(index, (span, table)): (usize, (Range<usize>, &'t DeTable<'t>))| {
            let path = format!("{}[{index}]", self.key_path(key));
            self.findings.place(&path, span);
            Section {
                path,
                table,
                known: Vec::new(),
                findings: self.findings,
            }
        };
        tables.into_iter().enumerate().map(place).collect()
    }

    /// Reports that a key must be there.
    pub(crate) fn require(&self, key: &str, allowed: &str) {
        if !self.has(key) {
            let help = format!("add `{key} = ..` with {allowed}");
            let mut problem =
                Problem::new(MISSING_KEY, self.key_path(key), "not there", allowed, help);
            if !self.path.is_empty() {
                problem.related = Some((self.path.clone(), "in this table".to_owned()));
            }
            self.findings.report(problem);
        }
    }

    /// Reports keys that are there although nothing would come of them, as long as `reason` holds.
    pub(crate) fn refuse_idle(&mut self, keys: &[&'static str], reason: &str, help: &str) {
        for key in keys {
            if self.value(key).is_some() {
                let path = self.key_path(key);
                let found = "a key without effect";
                self.findings
                    .report(Problem::new(IDLE_KEY, path, found, reason, help));
            }
        }
    }

    /// The same of keys that are without effect because of what others say. Where the value of one of
    /// those could not be read, nothing is known of them.
    pub(crate) fn refuse_idle_by(
        &mut self,
        settings: &[&str],
        keys: &[&'static str],
        reason: &str,
        help: &str,
    ) {
        match settings.iter().any(|setting| self.is_unread(setting)) {
            true => self.pass_over(keys),
            false => self.refuse_idle(keys, reason, help),
        }
    }

    /// Whether the key is there and its value was found to be wrong: what depends on it is not judged.
    pub(crate) fn is_unread(&self, key: &str) -> bool {
        self.has(key) && self.findings.has_problem_within(&self.key_path(key))
    }

    /// Takes these keys for known ones, whatever they say: which of them belong here says a key that
    /// could not be read.
    pub(crate) fn pass_over(&mut self, keys: &[&'static str]) {
        self.known.extend_from_slice(keys);
    }

    /// Reports keys that belong to other words of `setting` than to `word`, which holds; `needs` has for
    /// each key the words that it belongs to. Behind a word that is none nothing is said of them.
    pub(crate) fn refuse_others(
        &mut self,
        setting: &'static str,
        word: &str,
        needs: &[(&'static str, &[&str])],
    ) {
        let is_unknown = self.findings.has_problem_at(&self.key_path(setting));
        for (key, words) in needs.iter().filter(|(_, words)| !words.contains(&word)) {
            if is_unknown {
                self.known.push(key);
                continue;
            }
            let first = words.first().unwrap_or(&"");
            let others = words.iter().skip(1).map(|word| format!(" or \"{word}\""));
            let others: String = others.collect();
            let setting = format!("`{setting} = \"{first}\"`{others}");
            let help = format!("remove `{key}`, or set {setting}");
            self.refuse_idle(&[key], &format!("`{key}` with {setting}"), &help);
        }
    }

    /// Reports a problem of a key of this table.
    pub(crate) fn report(&self, problem: Problem) {
        self.findings.report(problem);
    }

    /// Reports the keys that nobody asked for.
    pub(crate) fn finish(self) {
        for (key, _) in self.table.iter() {
            if self.known.contains(&key.get_ref().as_ref()) {
                continue;
            }
            let path = self.key_path(key.get_ref());
            self.findings.place(&path, key.span());
            let help = match nearest(key.get_ref(), self.known.iter().copied()) {
                Some(known) => format!("a key with a similar name is `{known}`"),
                None => "remove the key".to_owned(),
            };
            let found = "not a key of this table";
            let allowed = list(self.known.iter().copied());
            self.findings
                .report(Problem::new(UNKNOWN_KEY, path, found, allowed, help));
        }
    }
}

/// An integer, in whichever base it is written; `None` beyond all that a key may say.
fn whole(integer: &DeInteger<'_>) -> Option<i128> {
    let digits = integer.as_str().replace('_', "");
    i128::from_str_radix(&digits, integer.radix()).ok()
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    }
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut words: Vec<_> = words.collect();
    words.sort_unstable();
    words.dedup();
    words.join(", ")
}

/// The known word within two edits of a misspelt one.
fn nearest<'a>(found: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |word: &str| edit_distance(found, word);
    words
        .map(|word| (distance(word), word))
        .filter(|(n, _)| *n <= 2)
        .min()
        .map(|(_, word)| word)
}

/// Levenshtein distance.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_of_a_table_are_found_at_once() {
        let text = "timeout = 5\nrate = \"10 kHzz\"\nmode = \"fsat\"\ncredit = 3\ncount = 99\n";
        let findings = Findings::default();
        let table = parse(text, &findings);
        let mut root = Section::root(table.get_ref(), &findings);
        let mut timeout = DurationNs(7);
        let mut rate = RateHz(1.0);
        root.quantity("timeout", &mut timeout);
        root.quantity("rate", &mut rate);
        assert_eq!(root.choice("mode", &[("fast", 1), ("slow", 2)]), None);
        assert_eq!(root.integer("count", 1..=10), None);
        assert_eq!(root.integer("credits", 1..=10), None);
        root.require("seed", "a whole number");
        root.finish();
        let (spans, problems) = findings.into_parts();
        let codes: Vec<_> = problems.iter().map(|problem| problem.code).collect();
        let expected = [
            WRONG_TYPE,
            BAD_QUANTITY,
            BAD_CHOICE,
            OUT_OF_RANGE,
            MISSING_KEY,
            UNKNOWN_KEY,
        ];
        assert_eq!(codes, expected);
        assert_eq!(&text[spans["rate"].clone()], "\"10 kHzz\"");
        assert_eq!(problems[2].help, "write \"fast\"");
        assert_eq!(problems[5].help, "a key with a similar name is `credits`");
        assert_eq!(
            (timeout, rate),
            (DurationNs(7), RateHz(1.0)),
            "the defaults stay"
        );
    }

    /// A number with a point or none is the same number in each base.
    #[test]
    fn integers_are_read_in_their_base_everywhere() {
        let findings = Findings::default();
        let text = "a = 0x1E5\nb = 0b1_0\nc = 0o17\nd = 0xff\ne = -1\nf = 1_0.5\n";
        let table = parse(text, &findings);
        let mut root = Section::root(table.get_ref(), &findings);
        for (key, number) in [
            ("a", Some(485.0)),
            ("b", Some(2.0)),
            ("c", Some(15.0)),
            ("d", None),
            ("e", None),
            ("f", Some(10.5)),
        ] {
            let range = if key == "d" { 0.0..=254.0 } else { 0.0..=1e6 };
            assert_eq!(root.number(key, range), number, "{key}");
        }
        assert_eq!(root.integer("a", 0..=485), Some(485));
        let (_, problems) = findings.into_parts();
        let found: Vec<&str> = problems.iter().map(|p| p.found.as_str()).collect();
        assert_eq!(found, ["0xff", "-1"]);
    }

    #[test]
    fn syntax_errors_do_not_hide_other_problems() {
        let text = "a = = 3\nb = true\n";
        let findings = Findings::default();
        let table = parse(text, &findings);
        let mut root = Section::root(table.get_ref(), &findings);
        assert_eq!(root.integer("b", 0..=1), None);
        let (_, problems) = findings.into_parts();
        assert_eq!(problems.first().map(|problem| problem.code), Some(SYNTAX));
        assert!(
            problems
                .iter()
                .any(|problem| problem.code == WRONG_TYPE && problem.path == "b")
        );
    }

    #[test]
    fn what_stands_for_a_value_that_could_not_be_read_is_no_problem_of_its_own() {
        let findings = Findings::default();
        let table = parse("[t]\na == 3\nb =\nc = 4\n", &findings);
        let mut root = Section::root(table.get_ref(), &findings);
        let mut section = root.section("t").expect("it is there");
        for key in ["a", "b", "c"] {
            assert_eq!(section.integer(key, 1..=3), None);
        }
        let (_, problems) = findings.into_parts();
        let others = problems.iter().filter(|problem| problem.code != SYNTAX);
        let paths: Vec<&str> = others.map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["t.c"]);
    }

    /// One that ends nowhere takes the next header for its own, and what is between them.
    #[test]
    fn behind_a_broken_header_only_values_are_judged() {
        let read = |text: &str| {
            let findings = Findings::default();
            let table = parse(text, &findings);
            let mut root = Section::root(table.get_ref(), &findings);
            root.require("format", "1");
            drop(root.section("first"));
            root.sections("second");
            if let Some(mut third) = root.section("third") {
                third.require("there", "a number");
                third.integer("count", 1..=3);
                third.finish();
            }
            root.finish();
            let problems = findings.into_parts().1.into_iter();
            let paths = problems.map(|problem| (problem.code, problem.path));
            paths.collect::<Vec<_>>()
        };
        let found = read("[first\nseed = 9\n[[second]]\nkind = 1\n[third]\ncount = 4\n");
        let syntax = (SYNTAX, "syntax error 1".to_owned());
        let of_value = (OUT_OF_RANGE, "third.count".to_owned());
        assert_eq!(found, [syntax.clone(), of_value]);
        assert_eq!(read("[[second]]\n[first"), [syntax]);
    }

    #[test]
    fn edit_distances() {
        assert_eq!(edit_distance("credit", "credits"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
