//! A fixed table of live triggers: open addressing with linear probing, no allocation after start.
//!
//! Trigger numbers are dense, but the live ones need not be: one event that sits in a slow filter
//! stays live while a million rejected triggers pass. So this is a hash table, not a window that
//! would have to wait for its oldest entry. Only its number of entries is bounded.

use livetime_wire::TriggerNumber;

/// Values under trigger numbers. Trigger number 0 is never given and is never found.
#[derive(Debug)]
pub(crate) struct TriggerTable<V> {
    /// Key 0 marks an empty slot.
    slots: Vec<(u64, V)>,
    shift: u32,
    len: usize,
    capacity: usize,
}

impl<V: Copy + Default> TriggerTable<V> {
    /// A table for at most `capacity` triggers, at most three quarters full.
    pub(crate) fn new(capacity: usize) -> Self {
        let slots = (capacity + capacity / 3 + 2).next_power_of_two();
        Self {
            slots: vec![(0, V::default()); slots],
            shift: 64 - slots.trailing_zeros(),
            len: 0,
            capacity,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    /// Number of slots, for [`TriggerTable::slot_mut`].
    #[inline]
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Where a trigger would be without others in its way. Accepted triggers may come in strides
    /// (a prescale), so the number is mixed (multiplicative hashing by the golden ratio).
    #[inline]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// The slot of `key`, or the empty slot where it belongs.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        // Ends: the table always has an empty slot.
        while self.slots[at].0 != key && self.slots[at].0 != 0 {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    pub(crate) fn get(&self, trigger: TriggerNumber) -> Option<&V> {
        let (key, value) = &self.slots[self.find(trigger.0)];
        (*key != 0).then_some(value)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, trigger: TriggerNumber) -> Option<&mut V> {
        let at = self.find(trigger.0);
        let (key, value) = &mut self.slots[at];
        (*key != 0).then_some(value)
    }

    /// Adds an entry; false, and nothing is changed, when the table is full, the trigger is there
    /// already, or it is number 0.
    #[must_use]
    #[inline]
    pub(crate) fn insert(&mut self, trigger: TriggerNumber, value: V) -> bool {
        let at = self.find(trigger.0);
        if self.is_full() || trigger.0 == 0 || self.slots[at].0 != 0 {
            return false;
        }
        self.slots[at] = (trigger.0, value);
        self.len += 1;
        true
    }

    /// Removes an entry and closes the gap, so that no search ever ends too early.
    pub(crate) fn remove(&mut self, trigger: TriggerNumber) -> Option<V> {
        let mut gap = self.find(trigger.0);
        if self.slots[gap].0 == 0 {
            return None;
        }
        let value = self.slots[gap].1;
        let mask = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let key = self.slots[at].0;
            if key == 0 {
                break;
            }
            let home = self.home(key);
            // The entry may move into the gap if its home is not between gap and its place.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = self.slots[at];
                gap = at;
            }
        }
        self.slots[gap].0 = 0;
        self.len -= 1;
        Some(value)
    }

    /// The entry in slot `index`, if there is one.
    #[inline]
    pub(crate) fn slot_mut(&mut self, index: usize) -> Option<(TriggerNumber, &mut V)> {
        let (key, value) = self.slots.get_mut(index)?;
        (*key != 0).then_some((TriggerNumber(*key), value))
    }

    /// Every value, in the order of the slots.
    #[inline]
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.slots
            .iter()
            .filter(|(key, _)| *key != 0)
            .map(|(_, value)| value)
    }

    /// Every entry, in the order of the slots.
    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (TriggerNumber, &mut V)> {
        self.slots
            .iter_mut()
            .filter(|(key, _)| *key != 0)
            .map(|(key, value)| (TriggerNumber(*key), value))
    }

    /// Empties the table.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.slots.iter_mut().for_each(|(key, _)| *key = 0);
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn trigger_zero_is_never_held_and_full_is_full() {
        let mut table = TriggerTable::new(2);
        assert!(!table.insert(TriggerNumber(0), 1));
        assert_eq!(table.get(TriggerNumber(0)), None);
        assert_eq!(table.remove(TriggerNumber(0)), None);
        assert!(table.insert(TriggerNumber(1), 1));
        assert!(!table.insert(TriggerNumber(1), 2), "already there");
        assert!(table.insert(TriggerNumber(2), 2));
        assert!(!table.insert(TriggerNumber(3), 3), "full");
        table.clear();
        assert_eq!(table.len(), 0);
        assert_eq!(table.get(TriggerNumber(1)), None);
    }

    proptest! {
        /// Against an ordered map, under any sequence of operations and with keys in strides.
        #[test]
        fn behaves_like_a_map(
            operations in prop::collection::vec((0..3u8, 1..40u64), 1..400),
            stride in prop::sample::select(vec![1u64, 16, 1024, 1 << 40]),
        ) {
            let mut table = TriggerTable::new(16);
            let mut map = BTreeMap::new();
            for (i, (operation, number)) in operations.into_iter().enumerate() {
                let trigger = TriggerNumber(number * stride);
                match operation {
                    0 => {
                        let fits = map.len() < 16 && !map.contains_key(&trigger);
                        prop_assert_eq!(table.insert(trigger, i), fits);
                        if fits {
                            map.insert(trigger, i);
                        }
                    }
                    1 => prop_assert_eq!(table.remove(trigger), map.remove(&trigger)),
                    _ => prop_assert_eq!(table.get(trigger), map.get(&trigger)),
                }
                prop_assert_eq!(table.len(), map.len());
            }
            let mut entries: Vec<_> = table.iter_mut().map(|(t, v)| (t, *v)).collect();
            entries.sort();
            prop_assert_eq!(entries, map.into_iter().collect::<Vec<_>>());
        }
    }
}
