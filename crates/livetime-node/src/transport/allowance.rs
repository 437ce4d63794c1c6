//! How much payload one direction of a link may hand to the kernel.
//!
//! Without a shaper as much as there is. With one ([`super::FragmentShaper`]) what the blocks of its
//! turns hold: the rest waits in the link for the next block. It says nothing about messages, which
//! are never held back.

/// Bytes of payload that may go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowance {
    /// All there is.
    Unbounded,
    /// Only so many.
    Bytes {
        /// Bytes that may go out now; never more than there are.
        allowed: u64,
        /// Bytes that there are.
        waiting: u64,
    },
}

impl Allowance {
    /// With a shaper, or without.
    pub(super) const fn new(is_shaped: bool) -> Self {
        match is_shaped {
            true => Self::Bytes {
                allowed: 0,
                waiting: 0,
            },
            false => Self::Unbounded,
        }
    }

    /// What waited is gone.
    pub(super) fn clear(&mut self) {
        *self = Self::new(*self != Self::Unbounded);
    }

    /// Payload was added.
    pub(super) fn push(&mut self, bytes: u64) {
        if let Self::Bytes { waiting, .. } = self {
            *waiting += bytes;
        }
    }

    /// So many bytes more may go out. What is not there cannot: payload that was dropped on the way
    /// leaves nothing to later blocks.
    pub(super) fn allow(&mut self, bytes: u64) {
        if let Self::Bytes { allowed, waiting } = self {
            *allowed = (*allowed + bytes).min(*waiting);
        }
    }

    /// The kernel has taken so many bytes, or they were dropped.
    pub(super) fn take(&mut self, bytes: u64) {
        if let Self::Bytes { allowed, waiting } = self {
            *allowed = allowed.saturating_sub(bytes);
            *waiting = waiting.saturating_sub(bytes);
        }
    }

    /// Bytes that may go out now.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Unbounded => usize::MAX,
            Self::Bytes { allowed, .. } => usize::try_from(*allowed).unwrap_or(usize::MAX),
        }
    }

    /// Whether nothing may go out.
    pub(super) fn is_used_up(&self) -> bool {
        matches!(self, Self::Unbounded | Self::Bytes { allowed: 0, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_may_go_out() {
        let mut allowance = Allowance::new(true);
        allowance.allow(100);
        assert_eq!(allowance.bytes(), 0, "of nothing");
        allowance.push(500);
        allowance.allow(200);
        allowance.take(150);
        assert_eq!(allowance.bytes(), 50);
        allowance.allow(1000);
        assert_eq!(allowance.bytes(), 350);
        allowance.clear();
        assert!(allowance.is_used_up());
        let mut free = Allowance::new(false);
        free.push(1);
        free.clear();
        assert_eq!(free.bytes(), usize::MAX);
    }
}
