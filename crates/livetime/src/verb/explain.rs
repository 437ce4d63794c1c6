//! `livetime explain CODE`: the page of a problem code.

use std::process::ExitCode;

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
        for (code, page) in PAGES {
            println!("{code}  {}", title(page));
        }
        return ExitCode::SUCCESS;
    };
    let wanted = code.to_uppercase();
    match PAGES.iter().find(|(code, _)| *code == wanted) {
        Some((_, page)) => {
            print!("{page}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("error: no problem has the code \"{code}\"");
            eprintln!(
                "help: `livetime explain` lists the {} codes there are",
                PAGES.len()
            );
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
