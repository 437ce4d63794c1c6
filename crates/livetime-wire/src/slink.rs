//! S-LINK words: control words with their error bits, and the status of a received fragment.
//!
//! A word on the link is data or control (S-LINK specification, UCTRL#); of a control word only
//! bits 31:4 are the user's, the link overwrites bits 3:0. Framing of whole blocks is done by the
//! state machines of `livetime-readout`; this module only says what the bits mean.

use core::fmt;

/// One word as it stands on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineWord {
    /// A data word (UCTRL# high).
    Data(u32),
    /// A control word (UCTRL# low).
    Control(ControlWord),
}

/// A control word: user bits 31:4, error bits 3:0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ControlWord(pub u32);

impl ControlWord {
    /// Begin of fragment, as at CERN and CDF.
    pub const BEGIN_FRAGMENT: Self = Self(0xB0F0_0000);
    /// End of fragment.
    pub const END_FRAGMENT: Self = Self(0xE0F0_0000);
    /// The bits that belong to the user.
    pub const USER_MASK: u32 = 0xFFFF_FFF0;
    /// Bit 0: transmission error in the preceding data block.
    pub const DATA_ERROR: u32 = 0b01;
    /// Bit 1: error in this control word.
    pub const CONTROL_ERROR: u32 = 0b10;

    /// The user's bits.
    #[inline]
    pub fn user(self) -> u32 {
        self.0 & Self::USER_MASK
    }

    /// Whether the user's bits are those of `other`.
    #[inline]
    pub fn matches(self, other: Self) -> bool {
        self.user() == other.user()
    }

    /// Whether the link reports an error in the data block before this word.
    #[inline]
    pub fn data_error(self) -> bool {
        self.0 & Self::DATA_ERROR != 0
    }

    /// Whether the link reports an error in this word.
    #[inline]
    pub fn control_error(self) -> bool {
        self.0 & Self::CONTROL_ERROR != 0
    }

    /// The word with error bits set by the link (reserved bits 3:2 zero).
    #[must_use]
    #[inline]
    pub fn with_errors(self, data_error: bool, control_error: bool) -> Self {
        Self(self.user() | u32::from(data_error) | (u32::from(control_error) << 1))
    }
}

/// Status bits of a received fragment: the acknowledge bits of the FILAR in 31:28, the link's error
/// bits in 1:0, and what the receiver's own checks found between them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FragmentStatus(pub u32);

impl FragmentStatus {
    /// Nothing wrong.
    pub const GOOD: Self = Self(0);
    /// Data came without a begin-of-fragment word.
    pub const NO_BEGIN: Self = Self(1 << 31);
    /// The begin-of-fragment word had wrong user bits.
    pub const WRONG_BEGIN: Self = Self(1 << 30);
    /// No end-of-fragment word: more to come in the next page, or cut off.
    pub const NO_END: Self = Self(1 << 29);
    /// The end-of-fragment word had wrong user bits.
    pub const WRONG_END: Self = Self(1 << 28);
    /// The link reported an error in the data block.
    pub const LINK_DATA: Self = Self(1 << 0);
    /// The link reported an error in a control word.
    pub const LINK_CONTROL: Self = Self(1 << 1);
    /// The header is not a fragment header.
    pub const BAD_HEADER: Self = Self(1 << 8);
    /// The trailer does not agree with the length.
    pub const BAD_LENGTH: Self = Self(1 << 9);
    /// The CRC-32C does not agree with the words.
    pub const BAD_CRC: Self = Self(1 << 10);
    /// The run number is not this run's.
    pub const WRONG_RUN: Self = Self(1 << 11);
    /// Longer than the pages that one fragment may take; the rest was discarded.
    pub const TOO_LONG: Self = Self(1 << 12);
    /// The source does not belong to this link.
    pub const WRONG_SOURCE: Self = Self(1 << 13);

    /// Names of all bits, in the order of [`fmt::Debug`].
    pub const NAMES: [(Self, &'static str); 12] = [
        (Self::NO_BEGIN, "no_begin"),
        (Self::WRONG_BEGIN, "wrong_begin"),
        (Self::NO_END, "no_end"),
        (Self::WRONG_END, "wrong_end"),
        (Self::TOO_LONG, "too_long"),
        (Self::WRONG_SOURCE, "wrong_source"),
        (Self::WRONG_RUN, "wrong_run"),
        (Self::BAD_CRC, "bad_crc"),
        (Self::BAD_LENGTH, "bad_length"),
        (Self::BAD_HEADER, "bad_header"),
        (Self::LINK_CONTROL, "link_control"),
        (Self::LINK_DATA, "link_data"),
    ];

    /// Whether no bit is set.
    #[inline]
    pub fn is_good(self) -> bool {
        self.0 == 0
    }

    /// Whether all bits of `other` are set.
    #[inline]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the bits of `other`.
    #[inline]
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The bits of both.
    #[must_use]
    #[inline]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for FragmentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_good() {
            return f.write_str("good");
        }
        let mut first = true;
        for (bit, name) in Self::NAMES {
            if self.contains(bit) {
                f.write_str(if first { "" } else { "|" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        let known = Self::NAMES.iter().fold(0, |bits, (bit, _)| bits | bit.0);
        if self.0 & !known != 0 {
            write!(f, "{}{:#x}", if first { "" } else { "|" }, self.0 & !known)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_bits_do_not_change_what_a_control_word_is() {
        let word = ControlWord::BEGIN_FRAGMENT.with_errors(true, true);
        assert_eq!(word.0, 0xB0F0_0003);
        assert!(word.matches(ControlWord::BEGIN_FRAGMENT));
        assert!(!word.matches(ControlWord::END_FRAGMENT));
        assert!(word.data_error() && word.control_error());
        assert_eq!(
            ControlWord(0xB0F0_000F).with_errors(false, false).0,
            0xB0F0_0000
        );
    }

    #[test]
    fn status_bits_are_distinct_and_named() {
        let all = FragmentStatus::NAMES.iter().fold(0u32, |bits, (bit, _)| {
            assert_eq!(bits & bit.0, 0);
            bits | bit.0
        });
        assert_eq!(all.count_ones(), 12);
        let status = FragmentStatus::BAD_CRC.with(FragmentStatus::LINK_DATA);
        assert_eq!(format!("{status:?}"), "bad_crc|link_data");
        assert_eq!(format!("{:?}", FragmentStatus(1 << 20)), "0x100000");
    }
}
