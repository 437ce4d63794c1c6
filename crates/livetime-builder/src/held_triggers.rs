//! The live triggers of a readout unit: one cell for each number of a window that slides along.
//!
//! Trigger numbers are dense, and most triggers are released in about the order in which they
//! came. So a live trigger stands at its number in a ring of cells: found without a search, beside
//! its neighbours, in 4 bytes with one source and 8 with up to sixteen. The few that stay while the
//! window passes, such as an event in a slow filter, go to a [`TriggerTable`]. Only the number of
//! all of them together is bounded. What a live trigger is stands in [`crate::held_trigger`].
//!
//! ```text
//! word 0   7:0 marks   15:8 scans   28:16 builder unit   29 present, 30 unsent, of one source
//! word 1   15:0 present, 31:16 unsent, of up to 16 sources; or present of up to 32
//! word 2   unsent of up to 32
//! ```

use std::ops::Range;

use livetime_wire::{TriggerNumber, UnitId};

use crate::held_trigger::{Held, NO_BUILDER};
use crate::trigger_table::TriggerTable;

/// Beside the marks of a trigger: the cell holds one.
const OCCUPIED: u32 = 1 << 7;
/// Bits of a builder unit, all set for none.
const BUILDER: u32 = 0x1FFF;
const _: () = assert!((UnitId::INDEX_MAX as u32) < BUILDER);
/// Sources whose two masks share a word.
const SOURCES_PER_WORD: usize = 16;
/// The table for those outside of the window is made for a part of them, this many times smaller.
const OUTSIDE_SHARE: usize = 64;

/// Where a live trigger is, until the next one is inserted or removed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// First word of its cell.
    Cell(usize),
    /// Outside of the window.
    Outside(TriggerNumber),
}

/// The live triggers: one cache line, since hundreds of them are used in turn. What is outside of the
/// window is rarely looked at and lies elsewhere.
#[derive(Debug)]
pub(crate) struct HeldTriggers {
    /// Round about; as far as one was ever occupied, if not [`HeldTriggers::reserve`] was called.
    cells: Vec<u32>,
    /// The trigger with which the window begins.
    first: u64,
    /// Words of a cell.
    cell_words: u32,
    /// The cell of the first trigger.
    first_cell: u32,
    /// Numbers in the window, and the most live triggers.
    capacity: u32,
    /// Live triggers in the window.
    inside: u32,
    /// Live triggers before the window.
    passed: u32,
    /// They themselves.
    outside: Box<TriggerTable<Held>>,
}

const _: () = assert!(size_of::<HeldTriggers>() <= 64);

/// Words of the cell of a trigger with so many sources.
fn cell_words(sources: usize) -> u32 {
    match sources {
        0..=1 => 1,
        2..=SOURCES_PER_WORD => 2,
        _ => 3,
    }
}

impl HeldTriggers {
    /// At most `capacity` triggers of so many sources. Takes memory as triggers come.
    pub(crate) fn lean(capacity: usize, sources: usize) -> Self {
        Self {
            cells: Vec::new(),
            cell_words: cell_words(sources),
            first: 1,
            first_cell: 0,
            // A trigger window is configured in 32 bits.
            capacity: capacity as u32,
            inside: 0,
            passed: 0,
            outside: Box::new(TriggerTable::with_few(capacity, capacity / OUTSIDE_SHARE)),
        }
    }

    /// Bytes for `capacity` triggers of so many sources, in the window and outside.
    pub(crate) fn memory_bytes(capacity: usize, sources: usize) -> u64 {
        let cells = capacity as u64 * u64::from(cell_words(sources)) * size_of::<u32>() as u64;
        cells + TriggerTable::<Held>::memory_bytes(capacity)
    }

    /// Takes the memory for as many triggers as there may be, in the window and outside; only while
    /// there are none outside.
    pub(crate) fn reserve(&mut self) {
        debug_assert!(self.passed == 0, "called at the start");
        let words = self.capacity as usize * self.cell_words as usize;
        self.cells.resize(words, 0);
        *self.outside = TriggerTable::new(self.capacity as usize);
    }

    /// Makes a cell exist, which begins at this word.
    #[cold]
    fn reach(&mut self, at: usize) {
        let cell_words = self.cell_words as usize;
        let cells = (at / cell_words + 1).next_power_of_two();
        let words = cells.min(self.capacity as usize) * cell_words;
        // Not twice as many as there were, which may be more than all.
        self.cells.reserve_exact(words - self.cells.len());
        self.cells.resize(words, 0);
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        (self.inside + self.passed) as usize
    }

    /// A cell counted from the first of all, up to twice as many as there are: round about, without a
    /// division.
    #[inline]
    fn round(&self, cell: u32) -> u32 {
        let round = if cell < self.capacity {
            0
        } else {
            self.capacity
        };
        cell - round
    }

    /// First word of the cell of the `ahead`-th number of the window.
    #[inline]
    fn cell(&self, ahead: u32) -> usize {
        self.round(self.first_cell + ahead) as usize * self.cell_words as usize
    }

    /// How far into the window a trigger is; `None` outside of it. Numbers go round about, as damaged
    /// ones may be the largest.
    #[inline]
    fn ahead(&self, trigger: TriggerNumber) -> Option<u32> {
        let ahead = trigger.0.wrapping_sub(self.first);
        (ahead < self.capacity.into()).then_some(ahead as u32)
    }

    #[inline]
    fn is_occupied(&self, at: usize) -> bool {
        self.cells.get(at).is_some_and(|word| word & OCCUPIED != 0)
    }

    /// The cell of a trigger in the window or soon in it, whatever is in it: that of the next one is that
    /// of the oldest once the window slides.
    #[inline]
    pub(crate) fn foresee(&self, trigger: TriggerNumber) -> Option<&u32> {
        let ahead = trigger.0.wrapping_sub(self.first);
        let ahead = ahead.checked_sub(self.capacity.into()).unwrap_or(ahead);
        let is_near = ahead < self.capacity.into();
        self.cells.get(is_near.then(|| self.cell(ahead as u32))?)
    }

    /// What is known of a live trigger.
    #[inline]
    pub(crate) fn get(&self, trigger: TriggerNumber) -> Option<Held> {
        self.find(trigger).map(|(_, held)| held)
    }

    /// As [`HeldTriggers::get`], with its place for [`HeldTriggers::set`]. In line with
    /// [`HeldTriggers::set`], so that what is known of a trigger never goes through memory.
    #[inline(always)]
    pub(crate) fn find(&self, trigger: TriggerNumber) -> Option<(Place, Held)> {
        let Some(ahead) = self.ahead(trigger) else {
            // New triggers are beyond the window.
            if self.passed == 0 {
                return None;
            }
            // As a reference: a copy would come through memory, and those of the window with it.
            let held = self.find_outside(trigger)?;
            return Some((Place::Outside(trigger), *held));
        };
        let at = self.cell(ahead);
        let word = *self.cells.get(at)?;
        (word & OCCUPIED != 0).then(|| (Place::Cell(at), self.read(at, word)))
    }

    #[cold]
    fn find_outside(&self, trigger: TriggerNumber) -> Option<&Held> {
        self.outside.get(trigger)
    }

    #[inline(always)]
    fn read(&self, at: usize, word: u32) -> Held {
        let (present, unsent) = match self.cell_words {
            1 => (word >> 29 & 1, word >> 30 & 1),
            2 => {
                let masks = self.cells[at + 1];
                (masks & 0xFFFF, masks >> 16)
            }
            _ => (self.cells[at + 1], self.cells[at + 2]),
        };
        let builder = match word >> 16 & BUILDER {
            BUILDER => NO_BUILDER,
            builder => builder as u16,
        };
        Held {
            present,
            unsent,
            builder,
            marks: (word & (OCCUPIED - 1)) as u8,
            scans: (word >> 8) as u8,
        }
    }

    #[inline(always)]
    fn write(&mut self, at: usize, held: Held) {
        let builder = u32::from(held.builder) & BUILDER;
        let word = u32::from(held.marks) | OCCUPIED | u32::from(held.scans) << 8 | builder << 16;
        let word = match self.cell_words {
            1 => word | held.present << 29 | held.unsent << 30,
            2 => {
                self.cells[at + 1] = held.present | held.unsent << 16;
                word
            }
            _ => {
                self.cells[at + 1] = held.present;
                self.cells[at + 2] = held.unsent;
                word
            }
        };
        self.cells[at] = word;
    }

    /// Puts a trigger into a cell that holds none.
    #[inline]
    fn occupy(&mut self, at: usize, held: Held) {
        // There are whole cells.
        if at >= self.cells.len() {
            self.reach(at);
        }
        self.write(at, held);
        self.inside += 1;
    }

    /// Changes what is known of the trigger at a place.
    #[inline(always)]
    pub(crate) fn set(&mut self, place: Place, held: Held) {
        match place {
            Place::Cell(at) => self.write(at, held),
            Place::Outside(trigger) => self.set_outside(trigger, held),
        }
    }

    #[cold]
    fn set_outside(&mut self, trigger: TriggerNumber, held: Held) {
        if let Some(outside) = self.outside.get_mut(trigger) {
            *outside = held;
        }
    }

    /// Adds a trigger; false, and nothing is changed, when there are as many as there may be, it is
    /// there already, or it is number 0.
    #[must_use]
    #[inline]
    pub(crate) fn insert(&mut self, trigger: TriggerNumber, held: Held) -> bool {
        if self.len() >= self.capacity as usize || trigger.0 == 0 {
            return false;
        }
        if self.ahead(trigger).is_none() {
            if self.passed > 0 && self.outside.get(trigger).is_some() {
                return false;
            }
            self.slide(trigger);
        }
        let Some(ahead) = self.ahead(trigger) else {
            return self.insert_outside(trigger, held);
        };
        let at = self.cell(ahead);
        if self.is_occupied(at) {
            return false;
        }
        self.occupy(at, held);
        true
    }

    #[cold]
    fn insert_outside(&mut self, trigger: TriggerNumber, held: Held) -> bool {
        let is_new = self.outside.insert(trigger, held);
        self.passed += u32::from(is_new);
        is_new
    }

    /// Adds triggers one after the other, all alike, as long as there is room and they are new: in the
    /// window or right behind it. Returns how many.
    #[inline]
    pub(crate) fn append(&mut self, triggers: Range<u64>, held: Held) -> u64 {
        let room = u64::from(self.capacity - self.inside - self.passed);
        let end = triggers.end.min(triggers.start.saturating_add(room));
        for trigger in triggers.start..end {
            if trigger.wrapping_sub(self.first) == self.capacity.into() {
                self.slide(TriggerNumber(trigger));
            }
            let cell = self.ahead(TriggerNumber(trigger));
            let Some(cell) = cell.map(|ahead| self.cell(ahead)) else {
                return trigger - triggers.start;
            };
            if self.is_occupied(cell) {
                return trigger - triggers.start;
            }
            self.occupy(cell, held);
        }
        end.saturating_sub(triggers.start)
    }

    /// Lets the window end with a trigger beyond it, or begin anywhere if nothing is held.
    #[cold]
    fn slide_far(&mut self, trigger: TriggerNumber) {
        self.first = trigger
            .0
            .saturating_sub(u64::from(self.capacity) / 2)
            .max(1);
        self.first_cell = 0;
    }

    /// Makes the window reach up to a trigger outside of it; what it leaves goes to the table.
    #[inline]
    fn slide(&mut self, trigger: TriggerNumber) {
        if self.len() == 0 {
            return self.slide_far(trigger);
        }
        let end = self.first.saturating_add(u64::from(self.capacity) - 1);
        let Some(steps) = trigger.0.checked_sub(end) else {
            return;
        };
        let left = steps.min(self.capacity.into()) as u32;
        for ahead in 0..left {
            if self.inside == 0 {
                break;
            }
            let at = self.cell(ahead);
            if self.is_occupied(at) {
                let held = self.read(at, self.cells[at]);
                let moved = TriggerNumber(self.first.wrapping_add(ahead.into()));
                let is_new = self.insert_outside(moved, held);
                debug_assert!(is_new, "there is room for all, and it was not there");
                self.vacate(at);
            }
        }
        self.first += steps;
        self.first_cell = self.round(self.first_cell + left);
    }

    #[inline]
    fn vacate(&mut self, at: usize) {
        self.cells[at] = 0;
        self.inside -= 1;
    }

    /// Removes the trigger at a place.
    #[inline]
    pub(crate) fn take_out(&mut self, place: Place) {
        match place {
            Place::Cell(at) => self.vacate(at),
            Place::Outside(trigger) => {
                self.passed -= u32::from(self.outside.remove(trigger).is_some());
            }
        }
    }

    /// Number of slots, for [`HeldTriggers::slot`].
    pub(crate) fn slot_count(&self) -> usize {
        self.capacity as usize + self.outside.slot_count()
    }

    /// The trigger in a slot, if there is one: those outside of the window, then the window in the
    /// order of its numbers.
    pub(crate) fn slot(&mut self, slot: usize) -> Option<(TriggerNumber, Place, Held)> {
        let Some(ahead) = slot.checked_sub(self.outside.slot_count()) else {
            let (trigger, held) = self.outside.slot_mut(slot)?;
            return Some((trigger, Place::Outside(trigger), *held));
        };
        let at = self.cell(ahead as u32);
        let is_occupied = self.is_occupied(at);
        is_occupied.then(|| {
            let trigger = TriggerNumber(self.first.wrapping_add(ahead as u64));
            (trigger, Place::Cell(at), self.read(at, self.cells[at]))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const T: fn(u64) -> TriggerNumber = TriggerNumber;

    fn held(present: u32, builder: u16) -> Held {
        Held {
            present,
            unsent: present >> 1,
            builder: builder % (UnitId::INDEX_MAX + 1),
            marks: 0x55,
            scans: builder as u8,
        }
    }

    fn remove(table: &mut HeldTriggers, trigger: TriggerNumber) {
        if let Some((place, _)) = table.find(trigger) {
            table.take_out(place);
        }
    }

    #[test]
    fn the_memory_of_all_triggers_is_known_before_it_is_taken() {
        for sources in [1, 4, 32] {
            let mut table = HeldTriggers::lean(100, sources);
            table.reserve();
            let cells = table.cells.capacity() * size_of::<u32>();
            let of_all = HeldTriggers::memory_bytes(100, sources);
            assert_eq!(of_all, cells as u64 + table.outside.memory_bytes_taken());
        }
    }

    #[test]
    fn the_cell_that_is_foreseen_is_the_one_that_is_taken() {
        let mut table = HeldTriggers::lean(4, 1);
        table.reserve();
        let cell = |table: &HeldTriggers, trigger| {
            table.foresee(T(trigger)).map(std::ptr::from_ref::<u32>)
        };
        for trigger in 1..50 {
            let foreseen = cell(&table, trigger).expect("in the window or right behind it");
            assert!(table.insert(T(trigger), held(1, 8)));
            assert_eq!(cell(&table, trigger), Some(foreseen), "trigger {trigger}");
            if trigger > 2 {
                remove(&mut table, T(trigger - 2));
            }
        }
        assert_eq!(cell(&table, 1 << 40), None, "far away");
    }

    #[test]
    fn one_that_stays_is_found_when_the_window_has_passed() {
        let mut table = HeldTriggers::lean(4, 1);
        assert!(!table.insert(T(0), held(1, 0)));
        assert!(table.insert(T(1), held(1, 7)));
        for trigger in 2..100 {
            assert!(table.insert(T(trigger), held(1, 8)));
            assert!(!table.insert(T(trigger), held(0, 8)), "already there");
            if trigger > 2 {
                remove(&mut table, T(trigger - 1));
            }
        }
        assert_eq!(table.get(T(1)).map(|held| held.builder), Some(7));
        assert_eq!(table.get(T(98)), None);
        assert_eq!(table.len(), 2);
        for passed_over in [6, 5] {
            assert!(table.insert(T(passed_over), held(0, 1)));
        }
        assert!(!table.insert(T(100), held(0, 1)), "full");
    }

    #[test]
    fn memory_is_taken_as_triggers_come_or_at_once() {
        for (sources, words) in [(1, 1), (8, 2), (32, 3)] {
            let mut lean = HeldTriggers::lean(10, sources);
            assert_eq!((lean.cells.len(), lean.get(T(1))), (0, None));
            assert!(lean.insert(T(3), held(1, 7)));
            assert_eq!(lean.cells.len(), 4 * words);
            assert!(lean.insert(T(10), held(1, 7)));
            assert_eq!(lean.cells.len(), 10 * words, "no more than there are cells");
            let mut whole = HeldTriggers::lean(10, sources);
            whole.reserve();
            assert_eq!(whole.cells.len(), 10 * words);
        }
    }

    #[test]
    fn the_window_begins_anew_where_nothing_is_held() {
        let mut table = HeldTriggers::lean(4, 1);
        for trigger in [u64::MAX, 3, 1 << 40, 2] {
            assert!(table.insert(T(trigger), held(1, 3)));
            assert_eq!(table.inside, 1);
            assert_eq!(table.get(T(trigger)), Some(held(1, 3)));
            remove(&mut table, T(trigger));
        }
        assert_eq!(table.len(), 0);
    }

    proptest! {
        /// Against an ordered map, under any sequence of operations, with numbers that jump and
        /// any number of sources.
        #[test]
        fn behaves_like_a_map(
            operations in prop::collection::vec((0..5u8, 0..24u64), 1..400),
            stride in prop::sample::select(vec![1u64, 3, 16, 1 << 40]),
            sources in 1..33_usize,
        ) {
            let mut table = HeldTriggers::lean(16, sources);
            let mut map: BTreeMap<TriggerNumber, Held> = BTreeMap::new();
            let all = (1_u64 << sources) as u32;
            for (i, (operation, number)) in operations.into_iter().enumerate() {
                let trigger = T((number + i as u64 / 8) * stride);
                let value = held((i as u32).wrapping_mul(0x9E37_79B9) & all.wrapping_sub(1), i as u16);
                match operation {
                    0 | 1 => {
                        let fits = map.len() < 16 && trigger.0 > 0 && !map.contains_key(&trigger);
                        prop_assert_eq!(table.insert(trigger, value), fits);
                        if fits {
                            map.insert(trigger, value);
                        }
                    }
                    2 => {
                        remove(&mut table, trigger);
                        map.remove(&trigger);
                    }
                    // Where one is in the way, all behind it are left.
                    4 => {
                        let is_new = |trigger: &u64| !map.contains_key(&T(*trigger));
                        let run = trigger.0.max(1)..trigger.0.max(1) + number % 5;
                        let run = run.start..run.clone().find(|t| !is_new(t)).unwrap_or(run.end);
                        let added = table.append(run.clone(), value);
                        prop_assert!(added <= run.end - run.start);
                        prop_assert!(added <= 16 - map.len() as u64);
                        map.extend((run.start..run.start + added).map(|trigger| (T(trigger), value)));
                    }
                    _ => {
                        prop_assert_eq!(table.get(trigger), map.get(&trigger).copied());
                        if let Some((place, _)) = table.find(trigger) {
                            table.set(place, value);
                            map.insert(trigger, value);
                        }
                    }
                }
                prop_assert_eq!(table.len(), map.len());
            }
            let slots = 0..table.slot_count();
            let mut entries: Vec<_> = slots.filter_map(|slot| table.slot(slot)).collect();
            entries.sort_by_key(|(trigger, ..)| *trigger);
            let entries: Vec<_> = entries.into_iter().map(|(t, _, held)| (t, held)).collect();
            prop_assert_eq!(entries, map.into_iter().collect::<Vec<_>>());
        }
    }
}
