//! Bytes loaded from a run file into memory that is aligned for words.
//!
//! One value is used for many loads and keeps its memory. The caller has checked that the bytes
//! are within the file, which bounds the memory by the file's length.

use std::io::{self, Read, Seek, SeekFrom};

use zerocopy::{FromBytes, IntoBytes};

/// A reused, word-aligned buffer.
#[derive(Debug, Default)]
pub(crate) struct ChunkData {
    words: Vec<u32>,
    len: usize,
}

impl ChunkData {
    /// Loads `len` bytes at `offset`.
    pub(crate) fn load<R: Read + Seek>(
        &mut self,
        input: &mut R,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        self.len = 0;
        let words = len.div_ceil(4);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        input.seek(SeekFrom::Start(offset))?;
        input.read_exact(&mut self.words.as_mut_bytes()[..len])?;
        self.len = len;
        Ok(())
    }

    /// The bytes loaded last.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.len]
    }
}

/// Views bytes as words, in place where they lie on a word, else copied into `scratch`; what is
/// over the last whole word is left out.
pub(crate) fn words_of<'a>(bytes: &'a [u8], scratch: &'a mut Vec<u32>) -> &'a [u32] {
    let whole = &bytes[..bytes.len() & !3];
    if let Ok(words) = <[u32]>::ref_from_bytes(whole) {
        return words;
    }
    scratch.clear();
    scratch.resize(whole.len() / 4, 0);
    scratch.as_mut_bytes().copy_from_slice(whole);
    scratch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_in_place_and_copied() {
        let mut data = ChunkData::default();
        let file: Vec<u8> = (0..40).collect();
        data.load(&mut io::Cursor::new(&file), 0, 40).unwrap();
        let mut scratch = Vec::new();
        for start in 0..5 {
            let words = words_of(&data.bytes()[start..], &mut scratch).to_vec();
            assert_eq!(words.len(), (40 - start) / 4);
            assert_eq!(words[0].to_le_bytes()[0], start as u8);
        }
        assert!(data.load(&mut io::Cursor::new(&file), 1, 40).is_err());
        assert!(data.bytes().is_empty());
    }
}
