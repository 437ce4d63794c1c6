//! What the fuzz targets share: words from bytes.
//!
//! A target states a property (never panics; parse, emit and parse again give the same) and
//! nothing about values. Formats with a checksum are parsed twice: as they come, and with the
//! checksum put right, since random bytes would never pass it.

/// Little-endian words of `data`; bytes that make no whole word are left out.
pub fn words(data: &[u8]) -> Vec<u32> {
    let (chunks, _) = data.as_chunks::<4>();
    chunks
        .iter()
        .map(|chunk| u32::from_le_bytes(*chunk))
        .collect()
}
