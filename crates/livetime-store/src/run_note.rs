//! What operators note of a run, each with its time: in the run's summary and end-of-run record.

use livetime_wire::RunNs;
use serde::{Deserialize, Serialize};

/// Most notes of a run.
pub const NOTES_MAX: usize = 1000;
/// Longest text of a note \[bytes\].
pub const NOTE_BYTES_MAX: usize = 1000;

/// A sentence about a run, such as what was changed at the beam line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNote {
    /// When it was noted, since the start of the run \[ns\].
    #[serde(with = "crate::string_u64")]
    pub time_ns: u64,
    /// What.
    pub text: String,
}

/// Why a note is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// Nothing but blanks.
    #[error("a note of no words")]
    Empty,
    /// Too much to say.
    #[error("a note of {bytes} bytes; at most {NOTE_BYTES_MAX} are allowed")]
    TooLong {
        /// Of its text.
        bytes: usize,
    },
    /// Line ends, and what else a terminal takes for an order.
    #[error("a note with the control character {0:?}; a note is one line of text")]
    Control(char),
}

impl RunNote {
    /// A note of one line of text, without the blanks around it.
    ///
    /// # Errors
    /// [`NoteError`] if it is empty, longer than [`NOTE_BYTES_MAX`], or no line of text.
    pub fn new(at: RunNs, text: &str) -> Result<Self, NoteError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(NoteError::Empty);
        }
        if text.len() > NOTE_BYTES_MAX {
            return Err(NoteError::TooLong { bytes: text.len() });
        }
        if let Some(control) = text.chars().find(|char| char.is_control()) {
            return Err(NoteError::Control(control));
        }
        Ok(Self {
            time_ns: at.0,
            text: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_one_line_of_text() {
        let note = RunNote::new(RunNs(7), "  beam back, 120 GeV/c; ü \"ok\"  ").unwrap();
        assert_eq!(note.text, "beam back, 120 GeV/c; ü \"ok\"");
        let json = serde_json::to_string(&note).unwrap();
        assert!(json.starts_with(r#"{"time_ns":"7","#), "{json}");
        assert_eq!(serde_json::from_str::<RunNote>(&json).unwrap(), note);
        let longest = "x".repeat(NOTE_BYTES_MAX);
        assert!(RunNote::new(RunNs(0), &longest).is_ok());
        for (text, error) in [
            (" \t ", NoteError::Empty),
            ("two\nlines", NoteError::Control('\n')),
            ("\u{1b}[31mred", NoteError::Control('\u{1b}')),
            (
                &*(longest.clone() + "x"),
                NoteError::TooLong {
                    bytes: NOTE_BYTES_MAX + 1,
                },
            ),
        ] {
            assert_eq!(RunNote::new(RunNs(0), text), Err(error));
        }
    }
}
