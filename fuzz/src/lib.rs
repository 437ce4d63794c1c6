//! What the fuzz targets share: words from bytes, and operations drawn from bytes.
//!
//! A target states a property (never panics; parse, emit and parse again give the same; two ways
//! give one result) and nothing about values. Formats with a checksum are parsed twice: as they
//! come, and with the checksum put right, since random bytes would never pass it.

/// Little-endian words of `data`; bytes that make no whole word are left out.
pub fn words(data: &[u8]) -> Vec<u32> {
    let (chunks, _) = data.as_chunks::<4>();
    chunks
        .iter()
        .map(|chunk| u32::from_le_bytes(*chunk))
        .collect()
}

/// Draws small numbers from the input, front to back; the list of operations ends with the input.
#[derive(Debug)]
pub struct Choices<'a> {
    data: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Choices from `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self { data }
    }

    /// The next byte; `None` at the end of the input.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.data.split_first()?;
        self.data = rest;
        Some(*first)
    }

    /// A number below `bound` (at least 1, at most 65 536) of two bytes; 0 at the end of the input.
    pub fn below(&mut self, bound: usize) -> usize {
        let low = self.byte().unwrap_or(0);
        let high = if bound > 256 {
            self.byte().unwrap_or(0)
        } else {
            0
        };
        usize::from(u16::from_le_bytes([low, high])) % bound.max(1)
    }

    /// A word; missing bytes are 0.
    pub fn word(&mut self) -> u32 {
        let bytes = [(); 4].map(|()| self.byte().unwrap_or(0));
        u32::from_le_bytes(bytes)
    }

    /// What is left of the input.
    pub fn rest(&self) -> &'a [u8] {
        self.data
    }
}
