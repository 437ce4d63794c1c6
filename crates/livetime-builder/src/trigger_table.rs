//! A fixed table of live triggers: chains from a table of heads, no allocation after start.
//!
//! Trigger numbers are dense, but the live ones need not be: one event that sits in a slow filter
//! stays live while a million rejected triggers pass. So this is a hash table, not a window that
//! would have to wait for its oldest entry. Only its number of entries is bounded. Neighbours have
//! neighbouring heads, and entries that were removed are used again first, so that what is touched
//! is as much as is live.

use livetime_wire::TriggerNumber;

/// No entry.
const NONE: u32 = u32::MAX;

/// An entry, or an unused one, of key 0.
#[derive(Debug)]
struct Entry<V> {
    key: u64,
    /// The next of its chain, or of the unused ones.
    next: u32,
    value: V,
}

/// Values under trigger numbers. Trigger number 0 is never given and is never found.
#[derive(Debug)]
pub(crate) struct TriggerTable<V> {
    /// The first entry of each chain, plus 1; 0 for none, so that memory is taken when touched.
    heads: Vec<u32>,
    entries: Vec<Entry<V>>,
    unused: u32,
    shift: u32,
    len: usize,
    capacity: usize,
}

impl<V: Copy + Default> TriggerTable<V> {
    /// A table for at most `capacity` triggers, two to a chain where it is full.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::with_chains(capacity, capacity.div_ceil(2), capacity)
    }

    /// As [`TriggerTable::new`], of which little is used as a rule: with chains for so many triggers
    /// and memory for an eighth of them; it takes more where there are more.
    pub(crate) fn with_few(capacity: usize, usual: usize) -> Self {
        Self::with_chains(capacity, usual, usual / 8)
    }

    fn with_chains(capacity: usize, chains: usize, reserved: usize) -> Self {
        let heads = chains.next_power_of_two();
        Self {
            heads: vec![0; heads],
            entries: Vec::with_capacity(reserved),
            unused: NONE,
            shift: heads.trailing_zeros(),
            len: 0,
            capacity,
        }
    }

    /// Bytes of a table for `capacity` triggers.
    pub(crate) fn memory_bytes(capacity: usize) -> u64 {
        let heads = capacity.div_ceil(2).next_power_of_two() * size_of::<u32>();
        (heads + capacity * size_of::<Entry<V>>()) as u64
    }

    #[cfg(test)]
    pub(crate) fn memory_bytes_taken(&self) -> u64 {
        let heads = size_of_val(&self.heads[..]);
        (heads + self.entries.capacity() * size_of::<Entry<V>>()) as u64
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
        self.capacity
    }

    /// The chain of a trigger: its number modulo their count. Accepted triggers may come in strides
    /// (a prescale by a power of two), so what is above is mixed in.
    #[inline]
    fn head(&self, key: u64) -> usize {
        (key ^ key >> self.shift) as usize & (self.heads.len() - 1)
    }

    /// The head of the chain of a trigger.
    #[inline]
    pub(crate) fn foresee(&self, trigger: TriggerNumber) -> Option<&u32> {
        self.heads.get(self.head(trigger.0))
    }

    /// The first entry of the chain of a trigger.
    #[inline]
    pub(crate) fn foresee_entry(&self, trigger: TriggerNumber) -> Option<&u64> {
        let first = self.heads.get(self.head(trigger.0))?.wrapping_sub(1);
        Some(&self.entries.get(first as usize)?.key)
    }

    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let mut at = self.heads[self.head(key)].wrapping_sub(1);
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.key == key {
                return Some(at as usize);
            }
            at = entry.next;
        }
        None
    }

    #[inline]
    pub(crate) fn get(&self, trigger: TriggerNumber) -> Option<&V> {
        Some(&self.entries[self.find(trigger.0)?].value)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, trigger: TriggerNumber) -> Option<&mut V> {
        let at = self.find(trigger.0)?;
        Some(&mut self.entries[at].value)
    }

    /// Adds an entry; false, and nothing is changed, when the table is full, the trigger is there
    /// already, or it is number 0.
    #[must_use]
    #[inline]
    pub(crate) fn insert(&mut self, trigger: TriggerNumber, value: V) -> bool {
        let key = trigger.0;
        if self.is_full() || key == 0 || self.find(key).is_some() {
            return false;
        }
        let head = self.head(key);
        let next = self.heads[head].wrapping_sub(1);
        let entry = Entry { key, next, value };
        let at = self.unused;
        if at == NONE {
            self.entries.push(entry);
            self.heads[head] = self.entries.len() as u32;
        } else {
            let unused = core::mem::replace(&mut self.entries[at as usize], entry);
            self.unused = unused.next;
            self.heads[head] = at + 1;
        }
        self.len += 1;
        true
    }

    /// Removes an entry.
    #[inline]
    pub(crate) fn remove(&mut self, trigger: TriggerNumber) -> Option<V> {
        let head = self.head(trigger.0);
        let mut before = NONE;
        let mut at = self.heads[head].wrapping_sub(1);
        while at != NONE && self.entries[at as usize].key != trigger.0 {
            (before, at) = (at, self.entries[at as usize].next);
        }
        let entry = self.entries.get_mut(at as usize)?;
        entry.key = 0;
        let value = entry.value;
        let after = core::mem::replace(&mut entry.next, self.unused);
        match before {
            NONE => self.heads[head] = after.wrapping_add(1),
            before => self.entries[before as usize].next = after,
        }
        self.unused = at;
        self.len -= 1;
        Some(value)
    }

    /// The entry in slot `index`, if there is one.
    #[inline]
    pub(crate) fn slot_mut(&mut self, index: usize) -> Option<(TriggerNumber, &mut V)> {
        let entry = self.entries.get_mut(index)?;
        (entry.key != 0).then_some((TriggerNumber(entry.key), &mut entry.value))
    }

    /// Every value, in the order of the slots.
    #[inline]
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        let entries = self.entries.iter().filter(|entry| entry.key != 0);
        entries.map(|entry| &entry.value)
    }

    /// Every entry, in the order of the slots.
    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (TriggerNumber, &mut V)> {
        let entries = self.entries.iter_mut().filter(|entry| entry.key != 0);
        entries.map(|entry| (TriggerNumber(entry.key), &mut entry.value))
    }

    /// Empties the table.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.heads.fill(0);
        self.entries.clear();
        self.unused = NONE;
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
        assert_eq!(table.foresee_entry(TriggerNumber(2)), Some(&2));
        table.clear();
        assert_eq!(table.foresee_entry(TriggerNumber(2)), None);
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
