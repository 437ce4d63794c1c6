//! What front-ends of users send into a run, and what the run says back.
//!
//! ```text
//! w0 0x4C464601   w1 run, 0 any   w2 source id   w3 data words, 0xFFFFFFFF at the end
//! w4 trigger, low half   w5 high half   w6 detector event type   w7 status   then data
//! ```
//! An answer is six words: `0x4C464101`, what it is, run number, a number, a trigger. The page is
//! `docs/formats/front-end-frame.md`.

use crate::id::{RunNumber, SourceId, TriggerNumber};

/// First word of a frame: its last byte is the version.
pub const MAGIC: u32 = 0x4C46_4601;
/// First word of an answer: its last byte is the version.
pub const ANSWER_MAGIC: u32 = 0x4C46_4101;
/// Words in front of the data.
pub const HEADER_WORDS: usize = 8;
/// Words of an answer.
pub const ANSWER_WORDS: usize = 6;
/// Most data words that a frame can have; a run may allow fewer.
pub const DATA_WORDS_MAX: u32 = (1 << 24) - 1;
/// Set in the status of a fragment for which its front-end sent nothing.
pub const STATUS_ABSENT: u32 = 1 << 31;

/// Data words of an end.
const END: u32 = u32::MAX;
const WELCOME: u32 = 1;
const ENDED: u32 = 2;
const REFUSED: u32 = 3;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontEndFrame {
    /// The run that it is for; `None` for whichever takes data.
    pub run: Option<RunNumber>,
    /// Whose data.
    pub source: SourceId,
    /// The trigger; of an end the last one of the source.
    pub trigger: TriggerNumber,
    /// What it is.
    pub content: FrameContent,
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameContent {
    /// The data of a trigger, which follow.
    Data {
        /// How many words.
        words: u32,
        /// Detector event type.
        event_type: u32,
        /// Status set by the front-end, 0 = good.
        status: u32,
    },
    /// The end of a source's data.
    End,
}

/// Why the run does not take a frame, and ends the stream that it came on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum FrameRefusal {
    /// The words are not a frame of this version.
    #[error("the words are not a front-end frame of version 1")]
    NoFrame = 1,
    /// No link of the run has this source.
    #[error("no link of the run has this source id")]
    Source = 2,
    /// More data words than a frame of this run may have.
    #[error("more data words than a fragment of this run may have")]
    TooLong = 3,
    /// Another run number.
    #[error("the frame is for another run")]
    Run = 4,
    /// Trigger number 0.
    #[error("trigger numbers begin with 1 in each run")]
    TriggerZero = 5,
    /// A trigger number too far on.
    #[error("the trigger number is too far ahead of the run's: numbers begin with 1 in each run")]
    Far = 6,
}

impl FrameRefusal {
    /// The refusal of a code.
    pub fn from_code(code: u32) -> Option<Self> {
        let all = [
            Self::NoFrame,
            Self::Source,
            Self::TooLong,
            Self::Run,
            Self::TriggerZero,
            Self::Far,
        ];
        all.into_iter().find(|refusal| *refusal as u32 == code)
    }
}

impl FrontEndFrame {
    /// Its words, without the data.
    pub fn emit(&self) -> [u32; HEADER_WORDS] {
        let (words, event_type, status) = match self.content {
            FrameContent::Data {
                words,
                event_type,
                status,
            } => (words, event_type, status),
            FrameContent::End => (END, 0, 0),
        };
        [
            MAGIC,
            self.run.map_or(0, |run| run.0),
            self.source.0,
            words,
            self.trigger.0 as u32,
            (self.trigger.0 >> 32) as u32,
            event_type,
            status,
        ]
    }

    /// Reads the words in front of the data.
    ///
    /// # Errors
    /// [`FrameRefusal::NoFrame`] for another first word, [`FrameRefusal::TooLong`] above
    /// [`DATA_WORDS_MAX`], [`FrameRefusal::TriggerZero`] for data without a trigger.
    pub fn parse(words: &[u32; HEADER_WORDS]) -> Result<Self, FrameRefusal> {
        let [magic, run, source, words, low, high, event_type, status] = *words;
        if magic != MAGIC {
            return Err(FrameRefusal::NoFrame);
        }
        let trigger = TriggerNumber(u64::from(high) << 32 | u64::from(low));
        let content = match words {
            END => FrameContent::End,
            words if words > DATA_WORDS_MAX => return Err(FrameRefusal::TooLong),
            _ if trigger.0 == 0 => return Err(FrameRefusal::TriggerZero),
            words => FrameContent::Data {
                words,
                event_type,
                status,
            },
        };
        Ok(Self {
            run: (run != 0).then_some(RunNumber(run)),
            source: SourceId(source),
            trigger,
            content,
        })
    }

    /// Words of data that follow.
    pub fn data_words(&self) -> usize {
        match self.content {
            FrameContent::Data { words, .. } => words as usize,
            FrameContent::End => 0,
        }
    }
}

/// What a run says to a front-end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontEndAnswer {
    /// The run.
    pub run: RunNumber,
    /// Of a welcome the trigger that is put together now, of an end the last one of the run, of a
    /// refusal that of the frame.
    pub trigger: TriggerNumber,
    /// What is said.
    pub said: Said,
}

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Frames are taken.
    Welcome {
        /// Most data words of a frame.
        words_max: u32,
    },
    /// The run has ended.
    Ended,
    /// A frame was refused, and the stream ends.
    Refused(FrameRefusal),
}

impl FrontEndAnswer {
    /// Its words.
    pub fn emit(&self) -> [u32; ANSWER_WORDS] {
        let (kind, number) = match self.said {
            Said::Welcome { words_max } => (WELCOME, words_max),
            Said::Ended => (ENDED, 0),
            Said::Refused(refusal) => (REFUSED, refusal as u32),
        };
        let trigger = self.trigger.0;
        [
            ANSWER_MAGIC,
            kind,
            self.run.0,
            number,
            trigger as u32,
            (trigger >> 32) as u32,
        ]
    }

    /// Reads an answer; `None` if the words are none.
    pub fn parse(words: &[u32; ANSWER_WORDS]) -> Option<Self> {
        let [ANSWER_MAGIC, kind, run, number, low, high] = *words else {
            return None;
        };
        let said = match (kind, number) {
            (WELCOME, words_max) => Said::Welcome { words_max },
            (ENDED, 0) => Said::Ended,
            (REFUSED, code) => Said::Refused(FrameRefusal::from_code(code)?),
            _ => return None,
        };
        Some(Self {
            run: RunNumber(run),
            trigger: TriggerNumber(u64::from(high) << 32 | u64::from(low)),
            said,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn golden(page: &str) -> Vec<u32> {
        let lines = page.lines().filter_map(|line| line.split('#').next());
        let lines = lines.map(str::trim).filter(|text| !text.is_empty());
        lines
            .map(|text| u32::from_str_radix(text, 16).unwrap())
            .collect()
    }

    #[test]
    fn a_frame_is_the_golden_words() {
        let golden = golden(include_str!("../../../docs/formats/front-end-frame-v1.hex"));
        let frame = FrontEndFrame {
            run: Some(RunNumber(42)),
            source: SourceId(0x1_0003),
            trigger: TriggerNumber(0x1_0000_0007),
            content: FrameContent::Data {
                words: 2,
                event_type: 5,
                status: 0x10,
            },
        };
        let (header, data) = golden.split_first_chunk().unwrap();
        assert_eq!(
            (frame.emit(), data),
            (*header, &[0xDEAD_BEEF, 0xC0_FFEE][..])
        );
        assert_eq!(FrontEndFrame::parse(header), Ok(frame));
        assert_eq!(frame.data_words(), data.len());
    }

    #[test]
    fn an_answer_is_the_golden_words() {
        let golden = golden(include_str!(
            "../../../docs/formats/front-end-answer-v1.hex"
        ));
        let answer = FrontEndAnswer {
            run: RunNumber(42),
            trigger: TriggerNumber(0x1_0000_0007),
            said: Said::Welcome { words_max: 4082 },
        };
        assert_eq!(answer.emit().as_slice(), golden);
        assert_eq!(FrontEndAnswer::parse(&answer.emit()), Some(answer));
    }

    #[test]
    fn what_is_no_frame_is_refused_with_the_reason() {
        let end = FrontEndFrame {
            run: None,
            source: SourceId(1),
            trigger: TriggerNumber(0),
            content: FrameContent::End,
        };
        assert_eq!(FrontEndFrame::parse(&end.emit()), Ok(end));
        let refused = |word: usize, value: u32| {
            let content = FrameContent::Data {
                words: 0,
                event_type: 0,
                status: 0,
            };
            let trigger = TriggerNumber(1);
            let mut words = FrontEndFrame {
                content,
                trigger,
                ..end
            }
            .emit();
            words[word] = value;
            FrontEndFrame::parse(&words).err()
        };
        assert_eq!(refused(0, 0x4C46_4602), Some(FrameRefusal::NoFrame));
        assert_eq!(refused(3, DATA_WORDS_MAX + 1), Some(FrameRefusal::TooLong));
        assert_eq!(refused(3, DATA_WORDS_MAX), None);
        assert_eq!(refused(4, 0), Some(FrameRefusal::TriggerZero));
    }

    proptest! {
        #[test]
        fn any_words_are_read_or_refused(
            words in prop::array::uniform8(any::<u32>()),
            is_ours in any::<bool>(),
        ) {
            let mut words = words;
            if is_ours {
                words[0] = MAGIC;
            }
            if let Ok(frame) = FrontEndFrame::parse(&words) {
                let emitted = frame.emit();
                let known = if frame.content == FrameContent::End { 6 } else { HEADER_WORDS };
                prop_assert_eq!(&emitted[..known], &words[..known]);
            }
            let mut answer = [words[0], words[1], words[2], words[3], words[4], words[5]];
            if is_ours {
                answer[0] = ANSWER_MAGIC;
                answer[1] %= 4;
                answer[3] %= 7;
            }
            if let Some(said) = FrontEndAnswer::parse(&answer) {
                prop_assert_eq!(said.emit(), answer);
            }
        }
    }
}
