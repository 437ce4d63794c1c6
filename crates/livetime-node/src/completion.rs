//! Acknowledge entries and page numbers as words in rings, between a card and its host.
//!
//! In one process or several, what crosses is six words per filled page; the page itself stays
//! where it is. The entry's meaning is in `livetime_readout::page_fifo`.

use livetime_readout::{BlockEnd, Completed};
use livetime_wire::slink::{ControlWord, FragmentStatus};

/// Words of one acknowledge entry.
pub const COMPLETION_WORDS: usize = 6;

/// An acknowledge entry with the link it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Index of the link at its readout unit.
    pub link: u16,
    /// The entry.
    pub completed: Completed,
}

/// Words that are not an acknowledge entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{words} words starting with {first:#010x} are not an acknowledge entry")]
pub struct CompletionError {
    /// Words found.
    pub words: usize,
    /// The first of them.
    pub first: u32,
}

impl Completion {
    /// The words: link and flags, page, length, status, begin word, end word.
    #[inline]
    pub fn to_words(&self) -> [u32; COMPLETION_WORDS] {
        let Completed {
            page,
            len_words,
            status,
            begin,
            end,
            block_end,
        } = self.completed;
        let block_end = match block_end {
            BlockEnd::EndWord => 0,
            BlockEnd::MoreToCome => 1,
            BlockEnd::BeginWord => 2,
            BlockEnd::LinkDown => 3,
        };
        let flags = block_end | u32::from(begin.is_some()) << 2 | u32::from(end.is_some()) << 3;
        [
            u32::from(self.link) << 16 | flags,
            page,
            len_words,
            status.0,
            begin.map_or(0, |word| word.0),
            end.map_or(0, |word| word.0),
        ]
    }

    /// Reads an entry and the words of its page behind it.
    ///
    /// # Errors
    /// [`CompletionError`] when there is no entry, or not as many words as it says.
    #[inline]
    pub fn parse_with_words(message: &[u32]) -> Result<(Self, &[u32]), CompletionError> {
        let error = CompletionError {
            words: message.len(),
            first: message.first().copied().unwrap_or(0),
        };
        let (entry, words) = message.split_at_checked(COMPLETION_WORDS).ok_or(error)?;
        let entry = Self::parse(entry)?;
        if words.len() != entry.completed.len_words as usize {
            return Err(error);
        }
        Ok((entry, words))
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// [`CompletionError`] when length or flags are not those of an entry.
    #[inline]
    pub fn parse(words: &[u32]) -> Result<Self, CompletionError> {
        let error = CompletionError {
            words: words.len(),
            first: words.first().copied().unwrap_or(0),
        };
        let [first, page, len_words, status, begin, end] = *words else {
            return Err(error);
        };
        if first & 0xFFF0 != 0 {
            return Err(error);
        }
        let block_end = match first & 3 {
            0 => BlockEnd::EndWord,
            1 => BlockEnd::MoreToCome,
            2 => BlockEnd::BeginWord,
            _ => BlockEnd::LinkDown,
        };
        Ok(Self {
            link: (first >> 16) as u16,
            completed: Completed {
                page,
                len_words,
                status: FragmentStatus(status),
                begin: (first & 4 != 0).then_some(ControlWord(begin)),
                end: (first & 8 != 0).then_some(ControlWord(end)),
                block_end,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_with_and_without_control_words() {
        for block_end in [
            BlockEnd::EndWord,
            BlockEnd::MoreToCome,
            BlockEnd::BeginWord,
            BlockEnd::LinkDown,
        ] {
            for (begin, end) in [(None, None), (Some(ControlWord(0)), Some(ControlWord(7)))] {
                let completed = Completed {
                    page: 9,
                    len_words: 8,
                    status: FragmentStatus::NO_END,
                    begin,
                    end,
                    block_end,
                };
                let entry = Completion {
                    link: 513,
                    completed,
                };
                assert_eq!(Completion::parse(&entry.to_words()), Ok(entry));
            }
        }
        assert!(Completion::parse(&[0; 5]).is_err());
        assert!(Completion::parse_with_words(&[0; 5]).is_err());
        assert!(Completion::parse_with_words(&[0, 0, 1, 0, 0, 0]).is_err());
        let whole = [0, 0, 2, 0, 0, 0, 8, 9];
        assert_eq!(Completion::parse_with_words(&whole).unwrap().1, [8, 9]);
        assert!(Completion::parse_with_words(&whole[..7]).is_err());
        assert!(Completion::parse(&[0x10, 0, 0, 0, 0, 0]).is_err());
    }
}
