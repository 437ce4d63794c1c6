//! What passes along a link: slices of words, the XON/XOFF state, the link's state.
//!
//! These are plain values; the machines that emit and take them are in [`crate::link_source`] and
//! [`crate::link_destination`]. What the bits of a control word mean is in
//! [`livetime_wire::slink`].

use livetime_wire::slink::{ControlWord, LineWord};

/// Words in transit: one control word, or data words in a row.
///
/// A stream of words may be cut into slices anywhere; the state machines give the same result for
/// every cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineSlice<'a> {
    /// One control word (UCTRL# low).
    Control(ControlWord),
    /// Data words (UCTRL# high), possibly none.
    Data(&'a [u32]),
}

impl<'a> LineSlice<'a> {
    /// Number of words.
    #[inline]
    pub fn words(&self) -> usize {
        match self {
            Self::Control(_) => 1,
            Self::Data(words) => words.len(),
        }
    }

    /// What is left after the first `consumed` words; `None` when nothing is.
    ///
    /// For a line that keeps a slice until the destination has taken all of it.
    #[inline]
    pub fn rest(self, consumed: usize) -> Option<Self> {
        match self {
            Self::Control(_) if consumed == 0 => Some(self),
            Self::Control(_) => None,
            Self::Data(words) => match words.get(consumed..) {
                None | Some([]) => None,
                Some(rest) => Some(Self::Data(rest)),
            },
        }
    }

    /// The first `count` words (all of a control word if `count` is not 0).
    #[must_use]
    #[inline]
    pub fn head(self, count: usize) -> Self {
        match self {
            Self::Control(_) if count == 0 => Self::Data(&[]),
            Self::Control(_) => self,
            Self::Data(words) => Self::Data(&words[..count.min(words.len())]),
        }
    }

    /// The words one by one.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = LineWord> + 'a {
        let (control, data) = match self {
            Self::Control(word) => (Some(LineWord::Control(word)), [].as_slice()),
            Self::Data(words) => (None, words),
        };
        control
            .into_iter()
            .chain(data.iter().map(|word| LineWord::Data(*word)))
    }
}

/// A block in one piece, between its control words.
///
/// What a line carries most of the time. A receiving end that takes it at once asks for its page,
/// its entries and XOFF once instead of three times, with the same result as for the slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineBlock<'a> {
    /// The word before it.
    pub begin: ControlWord,
    /// Its data words.
    pub data: &'a [u32],
    /// The word after it.
    pub end: ControlWord,
}

impl LineBlock<'_> {
    /// Number of words, both control words included.
    #[inline]
    pub fn words(&self) -> usize {
        self.data.len() + 2
    }
}

/// Whether a link carries words (LDOWN#).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// Not usable: unplugged, resetting, or in self-test.
    Down,
    /// Usable.
    Up,
}

/// What the receiving end asks of the sending end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowControl {
    /// Send.
    Xon,
    /// Pause: LFF# of the source follows after the return latency.
    Xoff,
}

/// The state of one end of a link, as a card's status register shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkStatus {
    /// LDOWN#.
    pub link: LinkState,
    /// XOFF asked (receiving end) or obeyed (sending end).
    pub flow: FlowControl,
    /// URESET# is driven: a reset was asked and the link has not come up since.
    pub resetting: bool,
    /// Free slots of the request FIFO; 0 at a sending end.
    pub request_free: u32,
    /// Entries of the acknowledge FIFO; 0 at a sending end.
    pub acknowledge_filled: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_rest_make_up_the_slice() {
        let data = LineSlice::Data(&[1, 2, 3]);
        assert_eq!(data.head(2), LineSlice::Data(&[1, 2]));
        assert_eq!(data.rest(2), Some(LineSlice::Data(&[3])));
        assert_eq!(data.rest(3), None);
        assert_eq!(LineSlice::Data(&[]).rest(0), None);
        let control = LineSlice::Control(ControlWord::END_FRAGMENT);
        assert_eq!(control.rest(0), Some(control));
        assert_eq!(control.rest(1), None);
        assert_eq!(control.head(1), control);
        assert_eq!(control.head(0).words(), 0);
    }

    #[test]
    fn words_one_by_one_are_the_slice() {
        let words: Vec<_> = LineSlice::Data(&[7, 8]).iter().collect();
        assert_eq!(words, [LineWord::Data(7), LineWord::Data(8)]);
        let control = LineSlice::Control(ControlWord::BEGIN_FRAGMENT);
        assert_eq!(control.iter().count(), control.words());
    }
}
