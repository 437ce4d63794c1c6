//! Words that lie in several slices, one slice behind the other.
//!
//! A fragment of several pages is read so where a value may lie over the end of a page. Nothing is
//! copied but what is asked for. Fragments of one page are read as the slice that they are.

/// The words of some slices, from front to back.
///
/// ```
/// use livetime_wire::part_words::PartWords;
///
/// let mut words = PartWords::new(&[&[1, 2, 3], &[], &[4, 5]]);
/// assert_eq!(words.next_words(), Some([1, 2]));
/// assert_eq!(words.next_words(), Some([3, 4]));
/// assert_eq!(words.next_words::<2>(), None);
/// assert_eq!(words.peek(), Some(5));
/// ```
#[derive(Debug, Clone)]
pub struct PartWords<'a> {
    part: &'a [u32],
    later: &'a [&'a [u32]],
    left: usize,
}

impl<'a> PartWords<'a> {
    /// All words of `parts`.
    pub fn new(parts: &'a [&'a [u32]]) -> Self {
        Self {
            part: &[],
            later: parts,
            left: parts.iter().map(|part| part.len()).sum(),
        }
    }

    /// How many are left.
    #[inline]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Leaves at most so many.
    #[inline]
    pub fn truncate(&mut self, words: usize) {
        self.left = self.left.min(words);
    }

    /// The next one, which stays.
    #[inline]
    pub fn peek(&self) -> Option<u32> {
        self.clone().next_words().map(|[word]| word)
    }

    /// The next ones; `None`, and none is taken, if fewer are left.
    #[inline]
    pub fn next_words<const WORDS: usize>(&mut self) -> Option<[u32; WORDS]> {
        self.left = self.left.checked_sub(WORDS)?;
        if let Some((next, rest)) = self.part.split_first_chunk() {
            self.part = rest;
            return Some(*next);
        }
        let mut next = [0; WORDS];
        let mut missing = &mut next[..];
        while !missing.is_empty() {
            if self.part.is_empty() {
                (self.part, self.later) = self.later.split_first()?;
            }
            let (now, rest) = self.part.split_at(missing.len().min(self.part.len()));
            missing[..now.len()].copy_from_slice(now);
            (missing, self.part) = (&mut missing[now.len()..], rest);
        }
        Some(next)
    }
}
