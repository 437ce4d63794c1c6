//! What a run that was read to its end lacks of what it stored, in one sentence for all readers.
//!
//! Where in a file the damage is, and why, is in the inspection of the run.

use core::fmt;

/// Events and files that are not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortfall {
    /// Events known to be damaged or missing.
    pub events_missing: u64,
    /// Those of them that were in files that are there.
    pub events_missing_here: u64,
    /// Events that were stored, as far as the files tell.
    pub events_stored: u64,
    /// Names of the files in which events are damaged or missing.
    pub files_damaged: Vec<String>,
    /// Names of the files that end within a chunk; what came behind is not counted.
    pub files_cut_off: Vec<String>,
    /// Names of the files without an end-of-run record that end between chunks: of a run that was ended
    /// at once, or that goes on.
    pub files_open: Vec<String>,
    /// Names of the files that must have been there.
    pub files_missing: Vec<String>,
    /// Names of the files that are there without any chunk of a run file, such as one of 0 bytes.
    pub files_unreadable: Vec<String>,
    /// Files that are there and that the system does not let be read, as `NAME (REASON)`.
    pub files_not_opened: Vec<String>,
    /// Files that only the hosts of their writers have, as `HOST:PATH`.
    pub files_elsewhere: Vec<String>,
}

impl Shortfall {
    /// Whether nothing is known to be missing.
    pub(crate) fn is_none(&self) -> bool {
        self.events_missing == 0
            && self.files_cut_off.is_empty()
            && self.files_open.is_empty()
            && self.files_missing.is_empty()
            && self.files_unreadable.is_empty()
            && self.files_not_opened.is_empty()
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.events_missing > 0 {
            let (missing, stored) = (self.events_missing, self.events_stored);
            let mut text = format!("{missing} of {stored} events are damaged or missing");
            let names = self.files_damaged.join(", ");
            let here = self.events_missing_here;
            if !names.is_empty() && here < missing {
                let gone = missing - here;
                text += &format!(", {here} in {names} and {gone} in files that are not there");
            } else if !names.is_empty() {
                text += &format!(" in {names}");
            }
            parts.push(text);
        }
        if !self.files_cut_off.is_empty() {
            let names = self.files_cut_off.join(", ");
            parts.push(format!(
                "cut off within a chunk, with events not counted: {names}"
            ));
        }
        if !self.files_open.is_empty() {
            let names = self.files_open.join(", ");
            parts.push(format!(
                "no end-of-run record, so that events of about the last second may be missing: {names}"
            ));
        }
        if !self.files_missing.is_empty() {
            parts.push(format!("not there: {}", self.files_missing.join(", ")));
        }
        if !self.files_unreadable.is_empty() {
            let names = self.files_unreadable.join(", ");
            parts.push(format!("without any chunk of a run file: {names}"));
        }
        if !self.files_not_opened.is_empty() {
            let names = self.files_not_opened.join(", ");
            parts.push(format!("cannot be read: {names}"));
        }
        if !self.files_elsewhere.is_empty() {
            let places = self.files_elsewhere.join(", ");
            parts.push(format!("on the hosts of their writers: {places}"));
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_names_counts_and_files() {
        let mut shortfall = Shortfall {
            events_missing: 0,
            events_missing_here: 0,
            events_stored: 649,
            files_damaged: Vec::new(),
            files_cut_off: Vec::new(),
            files_open: Vec::new(),
            files_missing: Vec::new(),
            files_unreadable: Vec::new(),
            files_not_opened: Vec::new(),
            files_elsewhere: Vec::new(),
        };
        assert!(shortfall.is_none());
        shortfall.events_missing = 1;
        shortfall.events_missing_here = 1;
        shortfall.files_damaged = vec!["events.mcap".to_owned()];
        shortfall.files_missing = vec!["events.0001.mcap".to_owned()];
        shortfall.files_unreadable = vec!["events.0002.mcap".to_owned()];
        shortfall.files_elsewhere = vec!["far:/runs/1/events-1.mcap".to_owned()];
        assert_eq!(
            shortfall.to_string(),
            "1 of 649 events are damaged or missing in events.mcap; not there: events.0001.mcap; \
             without any chunk of a run file: events.0002.mcap; on the hosts of their writers: \
             far:/runs/1/events-1.mcap"
        );
        shortfall.events_missing = 62;
        shortfall.files_not_opened = vec!["events.z.mcap (Permission denied)".to_owned()];
        assert_eq!(
            shortfall.to_string(),
            "62 of 649 events are damaged or missing, 1 in events.mcap and 61 in files that are not \
             there; not there: events.0001.mcap; without any chunk of a run file: events.0002.mcap; \
             cannot be read: events.z.mcap (Permission denied); on the hosts of their writers: \
             far:/runs/1/events-1.mcap"
        );
    }
}
