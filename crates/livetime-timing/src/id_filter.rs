//! Which event IDs a condition matches: a prefix, or in software sinks any mask or span.
//!
//! Hardware compares leading bits only, so every prefix is a range `[id, id | !mask]` and any two
//! such ranges are nested or disjoint. Masks with holes and spans of IDs are extensions for
//! software sinks; they are filed under the smallest prefix around them and compared once more,
//! and [`IdFilter::is_hardware`] says which is which. The table is in [`crate::match_table`].

use livetime_wire::EventId;

/// What a condition compares an event ID with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdFilter(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Prefix { value: u64, mask: u64 },
    Masked { value: u64, mask: u64 },
    Span { first: u64, last: u64 },
}

/// Why an ID and a mask make no filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The ones of the mask do not all come first.
    #[error(
        "mask {mask:#018x} is not a prefix: its ones must all be leading; \
         only software sinks match masks with holes"
    )]
    NotAPrefix {
        /// The mask.
        mask: u64,
    },
    /// The ID has bits that the mask does not compare.
    #[error("event ID {id:#018x} has bits outside its mask {mask:#018x}; set them to 0")]
    OutsideMask {
        /// The ID.
        id: u64,
        /// The mask.
        mask: u64,
    },
    /// The span ends before it begins.
    #[error("span of event IDs from {first:#018x} to {last:#018x} is empty")]
    EmptySpan {
        /// First ID.
        first: u64,
        /// Last ID.
        last: u64,
    },
    /// A prefix longer than an ID.
    #[error("prefix has {bits} bits, allowed is 0 to 64")]
    PrefixLength {
        /// Bits asked for.
        bits: u32,
    },
}

/// The mask with `bits` leading ones, 0..=64.
pub(crate) const fn prefix_mask(bits: u32) -> u64 {
    if bits == 0 {
        0
    } else {
        u64::MAX << (64 - bits)
    }
}

impl IdFilter {
    /// Every event ID.
    pub const ALL: Self = Self(Kind::Prefix { value: 0, mask: 0 });

    /// The IDs with the leading bits of `id`.
    ///
    /// # Errors
    /// [`FilterError::NotAPrefix`] if a one of the mask follows a zero,
    /// [`FilterError::OutsideMask`] if `id` has bits where the mask has none.
    pub fn prefix(id: EventId, mask: u64) -> Result<Self, FilterError> {
        if mask != prefix_mask(mask.leading_ones()) {
            return Err(FilterError::NotAPrefix { mask });
        }
        Self::masked(id, mask)
    }

    /// The IDs with the first `bits` bits of `id`; the rest of `id` is not looked at.
    ///
    /// # Errors
    /// [`FilterError::PrefixLength`] beyond 64 bits.
    pub fn leading(id: EventId, bits: u32) -> Result<Self, FilterError> {
        if bits > 64 {
            return Err(FilterError::PrefixLength { bits });
        }
        let mask = prefix_mask(bits);
        let value = id.0 & mask;
        Ok(Self(Kind::Prefix { value, mask }))
    }

    /// The IDs equal to `id` in the bits of any mask; hardware can compile it only if the mask is
    /// a prefix.
    ///
    /// # Errors
    /// [`FilterError::OutsideMask`] if `id` has bits where the mask has none.
    pub fn masked(id: EventId, mask: u64) -> Result<Self, FilterError> {
        if id.0 & !mask != 0 {
            return Err(FilterError::OutsideMask { id: id.0, mask });
        }
        let value = id.0;
        Ok(Self(if mask == prefix_mask(mask.leading_ones()) {
            Kind::Prefix { value, mask }
        } else {
            Kind::Masked { value, mask }
        }))
    }

    /// The IDs from `first` to `last`, both included.
    ///
    /// # Errors
    /// [`FilterError::EmptySpan`] if `last` is before `first`.
    pub fn span(first: EventId, last: EventId) -> Result<Self, FilterError> {
        let (first, last) = (first.0, last.0);
        if last < first {
            return Err(FilterError::EmptySpan { first, last });
        }
        let mask = prefix_mask((first ^ last).leading_zeros());
        Ok(Self(if first == first & mask && last == first | !mask {
            Kind::Prefix { value: first, mask }
        } else {
            Kind::Span { first, last }
        }))
    }

    /// Whether an ID is matched.
    pub fn matches(&self, id: EventId) -> bool {
        match self.0 {
            Kind::Prefix { value, mask } | Kind::Masked { value, mask } => id.0 & mask == value,
            Kind::Span { first, last } => (first..=last).contains(&id.0),
        }
    }

    /// Whether hardware can compile it: a prefix.
    pub fn is_hardware(&self) -> bool {
        matches!(self.0, Kind::Prefix { .. })
    }

    /// First and last ID of the smallest prefix around it.
    pub fn enclosing(&self) -> (u64, u64) {
        let (value, mask) = match self.0 {
            Kind::Prefix { value, mask } => (value, mask),
            Kind::Masked { value, mask } => (value, prefix_mask(mask.leading_ones())),
            Kind::Span { first, last } => (first, prefix_mask((first ^ last).leading_zeros())),
        };
        (value & mask, (value & mask) | !mask)
    }

    /// ID and mask as tools show them: of a span, the prefix around it.
    pub fn id_and_mask(&self) -> (EventId, u64) {
        match self.0 {
            Kind::Prefix { value, mask } | Kind::Masked { value, mask } => (EventId(value), mask),
            Kind::Span { .. } => {
                let (first, last) = self.enclosing();
                (EventId(first), !(first ^ last))
            }
        }
    }

    /// The span's ends, if it is one that is not a prefix.
    pub fn as_span(&self) -> Option<(EventId, EventId)> {
        match self.0 {
            Kind::Span { first, last } => Some((EventId(first), EventId(last))),
            _ => None,
        }
    }

    /// The smallest ID that both filters match, if there is one.
    pub fn overlap(&self, other: &Self) -> Option<EventId> {
        let (first, last) = (
            self.lowest().max(other.lowest()),
            self.highest().min(other.highest()),
        );
        let (value, mask) = self.bits();
        let (other_value, other_mask) = other.bits();
        if (value ^ other_value) & mask & other_mask != 0 || first > last {
            return None;
        }
        let id = next_masked(first, value | other_value, mask | other_mask)?;
        (id <= last).then_some(EventId(id))
    }

    /// The bits compared; none for a span.
    fn bits(&self) -> (u64, u64) {
        match self.0 {
            Kind::Prefix { value, mask } | Kind::Masked { value, mask } => (value, mask),
            Kind::Span { .. } => (0, 0),
        }
    }

    fn lowest(&self) -> u64 {
        match self.0 {
            Kind::Prefix { value, .. } | Kind::Masked { value, .. } => value,
            Kind::Span { first, .. } => first,
        }
    }

    fn highest(&self) -> u64 {
        match self.0 {
            Kind::Prefix { value, mask } | Kind::Masked { value, mask } => value | !mask,
            Kind::Span { last, .. } => last,
        }
    }
}

/// The smallest number from `from` on whose bits under `mask` are `value`.
fn next_masked(from: u64, value: u64, mask: u64) -> Option<u64> {
    if from & mask == value {
        return Some(from);
    }
    // The answer agrees with `from` above some bit, has a 1 there where `from` has a 0, and is as
    // small as the mask allows below; the lowest such bit gives the smallest answer.
    (0..64).find_map(|bit| {
        let one = 1u64 << bit;
        let above = prefix_mask(63 - bit);
        let possible = from & one == 0
            && (mask & one == 0 || value & one != 0)
            && (from ^ value) & mask & above == 0;
        possible.then_some((from & above) | one | (value & (one - 1)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn masks_must_be_prefixes_and_ids_inside_them() {
        let mask = 0xFFF0_0000_0000_0000;
        let filter = IdFilter::prefix(EventId(0x1230_0000_0000_0000), mask).unwrap();
        assert_eq!(
            filter.enclosing(),
            (0x1230_0000_0000_0000, 0x123F_FFFF_FFFF_FFFF)
        );
        assert_eq!(
            IdFilter::prefix(EventId(0x1231_0000_0000_0000), mask),
            Err(FilterError::OutsideMask {
                id: 0x1231_0000_0000_0000,
                mask
            })
        );
        assert_eq!(
            IdFilter::prefix(EventId(0), 0x0F00_0000_0000_0000),
            Err(FilterError::NotAPrefix {
                mask: 0x0F00_0000_0000_0000
            })
        );
        assert_eq!(IdFilter::prefix(EventId(0), 0), Ok(IdFilter::ALL));
        assert_eq!(IdFilter::ALL.enclosing(), (0, u64::MAX));
    }

    #[test]
    fn spans_that_are_prefixes_are_hardware() {
        let span = |first, last| IdFilter::span(EventId(first), EventId(last)).unwrap();
        assert!(span(0, u64::MAX).is_hardware());
        assert!(span(0x40, 0x7F).is_hardware());
        assert!(span(5, 5).is_hardware());
        assert!(!span(0x40, 0x7E).is_hardware());
        assert_eq!(span(0x41, 0x7E).enclosing(), (0x40, 0x7F));
        assert!(IdFilter::span(EventId(2), EventId(1)).is_err());
    }

    fn small_filter() -> impl Strategy<Value = IdFilter> {
        // Eight-bit IDs at the top, so that overlaps are common and can be enumerated.
        let place = |value: u8| u64::from(value) << 56;
        prop_oneof![
            (any::<u8>(), 0u32..=8).prop_map(move |(id, bits)| IdFilter::leading(
                EventId(place(id)),
                bits
            )
            .unwrap()),
            (any::<u8>(), any::<u8>()).prop_map(move |(id, mask)| {
                IdFilter::masked(EventId(place(id & mask)), place(mask)).unwrap()
            }),
            (any::<u8>(), any::<u8>()).prop_map(move |(a, b)| {
                let (first, last) = (a.min(b), a.max(b));
                IdFilter::span(EventId(place(first)), EventId(place(last))).unwrap()
            }),
        ]
    }

    proptest! {
        #[test]
        fn overlap_is_the_smallest_common_id(a in small_filter(), b in small_filter()) {
            let common = (0..=255u64)
                .map(|top| EventId(top << 56))
                .find(|id| a.matches(*id) && b.matches(*id));
            prop_assert_eq!(a.overlap(&b), common);
            prop_assert_eq!(b.overlap(&a), common);
            let (first, last) = a.enclosing();
            for top in 0..=255u64 {
                let id = top << 56;
                prop_assert!(!a.matches(EventId(id)) || (first..=last).contains(&id));
            }
        }
    }
}
