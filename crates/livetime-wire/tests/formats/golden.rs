//! Golden files: one 32-bit word per line, hexadecimal; `#` starts a comment.

use std::path::PathBuf;

/// Lines of a golden file without comments.
pub(crate) fn golden_lines(name: &str) -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats");
    let path = folder.join(name);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// Words of a golden file.
pub(crate) fn golden_words(name: &str) -> Vec<u32> {
    golden_lines(name)
        .iter()
        .map(|line| {
            u32::from_str_radix(line, 16).unwrap_or_else(|error| panic!("{name}: {line}: {error}"))
        })
        .collect()
}

/// Fails with both texts, word by word, so that a wanted change is easy to take over.
pub(crate) fn assert_golden(name: &str, words: &[u32]) {
    let golden = golden_words(name);
    let text =
        |words: &[u32]| -> Vec<String> { words.iter().map(|word| format!("{word:08x}")).collect() };
    assert_eq!(text(words), text(&golden), "{name}");
}

/// Calls `check` with every word sequence that differs from `words` in one bit.
pub(crate) fn for_each_flipped_bit(words: &[u32], mut check: impl FnMut(&[u32], usize)) {
    let mut flipped = words.to_vec();
    for bit in 0..words.len() * 32 {
        flipped[bit / 32] ^= 1 << (bit % 32);
        check(&flipped, bit);
        flipped[bit / 32] ^= 1 << (bit % 32);
    }
}
