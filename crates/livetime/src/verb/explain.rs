//! `livetime explain CODE`: the page of a problem code.

use std::process::ExitCode;

use crate::console::{print, say};
use crate::exit;

/// Codes and pages, sorted by code.
static PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/explain_pages.rs"));

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Code of a problem, such as B0107; without it the codes are listed
    code: Option<String>,
}

/// Prints the page of a code, or the list of codes.
pub(crate) fn run(options: &Options) -> ExitCode {
    let Some(code) = &options.code else {
        let lines = PAGES
            .iter()
            .map(|(code, page)| format!("{code}  {}\n", title(page)));
        return exit::after_printing(print(lines.collect::<String>()));
    };
    let wanted = code.to_uppercase();
    match PAGES.iter().find(|(code, _)| *code == wanted) {
        Some((_, page)) => exit::after_printing(print(page)),
        None => {
            say(format_args!("error: no problem has the code \"{code}\""));
            say(format_args!(
                "help: `livetime explain` lists the {} codes there are",
                PAGES.len()
            ));
            exit::PROBLEM
        }
    }
}

/// The first heading of a page, without its code.
fn title(page: &str) -> &str {
    let heading = page
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches('#')
        .trim();
    heading.split_once(": ").map_or(heading, |(_, title)| title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_starts_with_its_code_and_says_what_to_do() {
        assert!(!PAGES.is_empty());
        for (code, page) in PAGES {
            assert!(page.starts_with(&format!("# {code}: ")), "{code}");
            assert!(page.contains("## What to do"), "{code} has no advice");
        }
    }
}
