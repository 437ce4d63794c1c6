//! What the receiving end of a link over a network says back to the sending one: the return lines.
//!
//! ```text
//! w0 0x4C544C52   w1 31:16 version, 0 XOFF   w2 frames seen, low half   w3 high half
//! w4 blocks settled, low half   w5 high half   w6 room in the socket [bytes], 0 on streams
//! ```
//! It says what stands and not what has changed, so that one that is lost or late costs nothing but
//! time. The page is `docs/formats/link-frame.md`.

/// First word.
pub const MAGIC: u32 = 0x4C54_4C52;
/// Version.
pub const VERSION: u32 = 1;
/// Words of a return.
pub const RETURN_WORDS: usize = 7;

const XOFF: u32 = 1;

/// How far the receiving end has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkReturn {
    /// The receiver asks for a pause.
    pub is_xoff: bool,
    /// Everything that was sent before this frame has left the socket, or was dropped by it.
    pub frames_seen: u64,
    /// Blocks that came whole or are lost for certain.
    pub blocks_settled: u64,
    /// Bytes that the kernel sets aside for the receiving socket, at its own count, which is more than
    /// the bytes of the datagrams; 0 on streams, which need no such care.
    pub room_bytes: u32,
}

impl LinkReturn {
    /// Its words.
    pub fn emit(&self) -> [u32; RETURN_WORDS] {
        let flags = if self.is_xoff { XOFF } else { 0 };
        let (seen, settled) = (self.frames_seen, self.blocks_settled);
        [
            MAGIC,
            VERSION << 16 | flags,
            seen as u32,
            (seen >> 32) as u32,
            settled as u32,
            (settled >> 32) as u32,
            self.room_bytes,
        ]
    }

    /// Reads a return; `None` if the words are none.
    pub fn parse(words: &[u32]) -> Option<Self> {
        let [
            MAGIC,
            flags,
            seen,
            seen_high,
            settled,
            settled_high,
            room_bytes,
        ] = *words
        else {
            return None;
        };
        let wide = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        (flags & !XOFF == VERSION << 16).then(|| Self {
            is_xoff: flags & XOFF != 0,
            frames_seen: wide(seen, seen_high),
            blocks_settled: wide(settled, settled_high),
            room_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_return_is_the_golden_words() {
        let page = include_str!("../../../docs/formats/link-return-v1.hex");
        let lines = page.lines().filter_map(|line| line.split('#').next());
        let lines = lines.map(str::trim).filter(|text| !text.is_empty());
        let golden: Vec<u32> = lines
            .map(|text| u32::from_str_radix(text, 16).unwrap())
            .collect();
        let said = LinkReturn {
            is_xoff: true,
            frames_seen: 0x1_0000_0002,
            blocks_settled: 7,
            room_bytes: 425_984,
        };
        assert_eq!(said.emit().as_slice(), golden);
        assert_eq!(LinkReturn::parse(&golden), Some(said));
        for (word, flip) in [(0, 1), (1, 2), (1, 1 << 16)] {
            let mut other = golden.clone();
            other[word] ^= flip;
            assert_eq!(LinkReturn::parse(&other), None, "word {word}");
        }
        assert_eq!(LinkReturn::parse(&golden[1..]), None);
    }

    proptest! {
        #[test]
        fn any_words_are_read_or_refused(words in prop::collection::vec(any::<u32>(), 0..12)) {
            if let Some(said) = LinkReturn::parse(&words) {
                prop_assert_eq!(said.emit().to_vec(), words);
            }
        }
    }
}
