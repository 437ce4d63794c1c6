//! The `--fault` option: a link that goes down during the run.

use livetime_node::LinkFault;
use livetime_wire::{DurationNs, RunNs};

use super::exact_time::parse_time;

/// Reads a fault: `link-down:3@4s+1s` takes data link 3 down at 4 s for 1 s.
///
/// # Errors
/// What is wrong with the text, and how a fault is written.
pub(crate) fn parse_fault(text: &str) -> Result<LinkFault, String> {
    const FORM: &str =
        "a fault is written link-down:LINK@START+DURATION, such as link-down:3@4s+1s";
    let rest = text.strip_prefix("link-down:").ok_or(FORM)?;
    let (link, when) = rest.split_once('@').ok_or(FORM)?;
    let (start, length) = when.split_once('+').ok_or(FORM)?;
    let duration = |text: &str| {
        parse_time(text).map_err(|error| format!("\"{text}\" is no time ({error}); {FORM}"))
    };
    let from = RunNs(duration(start)?.0);
    let length = duration(length)?;
    if length == DurationNs(0) {
        return Err(format!(
            "a link that is down for no time is not down; {FORM}"
        ));
    }
    let until = from.after(length);
    let link = link.parse().map_err(|_| FORM)?;
    Ok(LinkFault { link, from, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let fault = LinkFault {
            link: 3,
            from: RunNs(4_000_000_000),
            until: RunNs(4_250_000_000),
        };
        assert_eq!(parse_fault("link-down:3@4s+250ms"), Ok(fault));
        assert_eq!(parse_fault("link-down:3@4 s+250 ms"), Ok(fault));
    }

    #[test]
    fn other_texts_are_refused_with_the_form() {
        for text in [
            "",
            "link-up:3@4s+1s",
            "link-down:3",
            "link-down:3@4s",
            "link-down:x@4s+1s",
            "link-down:-1@4s+1s",
            "link-down:3@4+1s",
            "link-down:3@4s+1",
            "link-down:3@4s+0s",
        ] {
            let error = parse_fault(text).expect_err(text);
            assert!(error.contains("link-down:3@4s+1s"), "{text}: {error}");
        }
    }
}
