//! Values of options that clap words badly: those that begin with a minus, and whole numbers that are
//! none or too large.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The command line of this process; where it is wrong the program says so and ends.
pub(crate) fn parse_command_line<T: clap::Parser>() -> T {
    let parsed = parse_words(std::env::args_os().collect());
    parsed.unwrap_or_else(|error| error.exit())
}

/// A whole number of an option, such as `--seed 42`.
///
/// # Errors
/// What is allowed.
pub(crate) fn whole_number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("write a whole number, 0 to {}", u64::MAX))
}

/// A whole number of which none would be nothing to do, such as the events of `source --triggers 10`.
///
/// # Errors
/// What is allowed.
pub(crate) fn whole_number_from_1(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("write a whole number, 1 to {}", u64::MAX))
}

/// A word such as `-1` behind an option is taken for another option, and clap advises to write `-- -1`,
/// with which it is none of its values either. As a value it is refused with what is allowed.
fn parse_words<T: clap::Parser>(mut words: Vec<OsString>) -> Result<T, clap::Error> {
    loop {
        let error = match T::try_parse_from(&words) {
            Ok(parsed) => return Ok(parsed),
            Err(error) => error,
        };
        let Some(index) = negative_value(&words, &error) else {
            return Err(with_advice::<T>(&words, error));
        };
        // One word fewer each time, so that this ends.
        let value = words.remove(index);
        let option = &mut words[index - 1];
        option.push("=");
        option.push(value);
    }
}

/// The error with better advice where a value begins with a minus, such as in `--note -x`: the advised
/// `-- -x` is no value of the option.
fn with_advice<T: clap::Parser>(words: &[OsString], mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let is_found = |index: &usize| {
        words[*index]
            .to_str()
            .is_some_and(|word| word.starts_with(found))
    };
    let Some(index) = (2..words.len()).find(is_found) else {
        return error;
    };
    let is_option = words[index - 1]
        .to_str()
        .is_some_and(|word| word.starts_with('-') && word.len() > 1 && !word.contains('='));
    if error.kind() != ErrorKind::UnknownArgument || !is_option {
        return error;
    }
    let mut joined = words.to_vec();
    let value = joined.remove(index);
    let option = &mut joined[index - 1];
    option.push("=");
    option.push(value);
    let tip = format!("to give it as a value, write '{}'", option.display());
    // An option that takes no value says so of this one.
    let takes_it = match T::try_parse_from(&joined) {
        Ok(_) => true,
        Err(other) => other.kind() == ErrorKind::ValueValidation,
    };
    if takes_it {
        let tip = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

/// Index of the word below zero behind an option that `error` is about.
fn negative_value(words: &[OsString], error: &clap::Error) -> Option<usize> {
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_negative = |word: &str| {
        let rest = word.strip_prefix('-');
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    };
    let is_option = |word: &str| {
        let name = word.trim_start_matches('-');
        word.starts_with('-') && !name.is_empty() && !word.contains('=') && !is_negative(word)
    };
    if error.kind() != ErrorKind::UnknownArgument || !is_negative(found) {
        return None;
    }
    let of_words = |index: &usize| {
        let (before, word) = (words[index - 1].to_str(), words[*index].to_str());
        before.is_some_and(is_option) && word.is_some_and(|word| word.starts_with(found))
    };
    (1..words.len()).find(of_words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Words {
        #[arg(long, value_parser = whole_number)]
        seed: Option<u64>,
        #[arg(short = 'n', long, value_parser = whole_number)]
        repeat: Option<u64>,
        #[arg(long)]
        offset: Option<f64>,
        #[arg(long)]
        note: Option<String>,
        #[arg(long)]
        lossless: bool,
    }

    fn parsed(words: &[&str]) -> Result<Words, String> {
        let words = ["program"].iter().chain(words).map(OsString::from);
        parse_words(words.collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_below_zero_is_refused_with_what_is_allowed() {
        for words in [
            ["--seed", "-1"],
            ["--seed", "-1s"],
            ["--repeat", "-5"],
            ["-n", "-5"],
        ] {
            let error = parsed(&words).expect_err("it is below zero");
            assert!(error.contains("0 to 18446744073709551615"), "{error}");
            assert!(error.contains(&format!("'{}'", words[1])), "{error}");
            assert!(!error.contains("-- -"), "{error}");
        }
    }

    #[test]
    fn a_value_below_zero_goes_to_the_option_that_takes_it() {
        let words = parsed(&["--offset", "-1.5", "--seed", "7", "--lossless"]).expect("it is good");
        assert_eq!((words.offset, words.seed), (Some(-1.5), Some(7)));
        assert!(words.lossless && words.repeat.is_none());
    }

    #[test]
    fn a_value_with_a_minus_is_advised_to_be_joined_to_its_option() {
        let error = parsed(&["--note", "-x y"]).expect_err("it may be an option");
        assert!(error.contains("write '--note=-x y'"), "{error}");
        assert!(!error.contains("-- -x"), "{error}");
        let error = parsed(&["--lossless", "-x"]).expect_err("there is no such option");
        assert!(!error.contains("--lossless=-x"), "{error}");
    }

    #[test]
    fn words_that_are_no_values_are_refused_as_before() {
        let error = parsed(&["-1"]).expect_err("no option is before it");
        assert!(error.contains("unexpected argument '-1'"), "{error}");
        let error = parsed(&["--loss"]).expect_err("there is no such option");
        assert!(error.contains("unexpected argument '--loss'"), "{error}");
    }
}
