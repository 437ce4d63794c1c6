//! The fragments of a readout unit, filed under trigger number and source.
//!
//! [`FragmentBuffer`] holds descriptors from their arrival until the trigger is rejected or its
//! event built. It decides nothing and knows no pages: what is removed is handed back, and the
//! caller recycles. Bound: `triggers_max` triggers, each with one fragment of every source; a
//! trigger that was let in once always has room for all its sources, so that one link running
//! ahead cannot lock out the others.
//!
//! Triggers are found through a table of at least twice as many slots (linear probing, slot given
//! by the golden ratio, which spreads consecutive numbers evenly), so a probe is short whatever
//! stays behind. Rows are reused last in, first out: the memory touched is that of the triggers in
//! flight.

use livetime_wire::message::FragmentDescriptor;
use livetime_wire::{LossCause, LossCounts, Problem, SourceId, TriggerNumber};

use crate::problem_code;

/// Most triggers that can be configured.
const TRIGGERS_MAX: u32 = 1 << 20;

/// Bounds of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentBufferConfig {
    /// Triggers with fragments in the buffer, 1 to 1 048 576, default 4096. At least rate times the
    /// longest time from arrival to release (decision, assignment, build, filter); too few show as
    /// XOFF. Memory: triggers x sources x about 100 bytes.
    pub triggers_max: u32,
}

impl Default for FragmentBufferConfig {
    fn default() -> Self {
        Self { triggers_max: 4096 }
    }
}

impl FragmentBufferConfig {
    /// Bytes of the memory of a buffer for so many sources, all of it taken when it is made.
    pub fn memory_bytes(&self, sources: usize) -> u64 {
        let rows = u64::from(self.triggers_max);
        let of_row = sources * size_of::<Option<FragmentDescriptor>>() + size_of::<u32>();
        rows * of_row as u64 + (slots_for(self.triggers_max) * size_of::<Slot>()) as u64
    }

    /// Every problem of the configuration; `path` is its key in the file, such as `builder`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        if (1..=TRIGGERS_MAX).contains(&self.triggers_max) {
            return Vec::new();
        }
        vec![Problem::new(
            problem_code::BUFFER_SIZE,
            format!("{path}.triggers_max"),
            self.triggers_max,
            format!("1 to {TRIGGERS_MAX}"),
            "set it to rate times the longest time from arrival to release",
        )]
    }
}

/// Why a fragment was not filed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedReason {
    /// All triggers are taken: keep it, apply back-pressure, try again after a removal.
    Full,
    /// The trigger has a fragment of this source. A sound one replaces a damaged one; what comes
    /// back is the one not kept. Counted as lost.
    Duplicate,
    /// The source is not one of this readout unit's. Counted as lost.
    Stranger,
}

/// A fragment that was not filed, handed back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsertRefused {
    /// Why.
    pub reason: RefusedReason,
    /// The fragment to be kept back or recycled.
    pub fragment: FragmentDescriptor,
}

/// Counters of the buffer.
///
/// `inserted` = `removed` + fragments in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferCounters {
    /// Fragments filed.
    pub inserted: u64,
    /// Fragments taken out.
    pub removed: u64,
    /// Insertions refused because all triggers were taken.
    pub full: u64,
    /// Damaged fragments replaced by a sound duplicate.
    pub replaced: u64,
    /// Most triggers at one time.
    pub triggers_high_water: u32,
    /// Most fragments at one time.
    pub fragments_high_water: u64,
}

/// A slot of the trigger table.
#[derive(Debug, Clone, Copy)]
struct Slot {
    trigger: u64,
    /// Row of its fragments, or [`FREE`].
    row: u32,
    /// Fragments in the row.
    count: u32,
}

/// No row: the slot is free.
const FREE: u32 = u32::MAX;

const EMPTY_SLOT: Slot = Slot {
    trigger: 0,
    row: FREE,
    count: 0,
};

/// The fragments of a readout unit.
#[derive(Debug, Clone)]
pub struct FragmentBuffer {
    /// Ascending; the position of a source is its column.
    sources: Vec<SourceId>,
    /// A power of two, at least twice the number of rows: a probe always meets a free slot.
    slots: Vec<Slot>,
    /// Leaves as many high bits of a product as the table has index bits.
    hash_shift: u32,
    /// Row by row, one cell per source.
    cells: Vec<Option<FragmentDescriptor>>,
    rows_free: Vec<u32>,
    rows: u32,
    counters: BufferCounters,
    losses: LossCounts,
}

/// Slots of the trigger table for so many rows.
fn slots_for(rows: u32) -> usize {
    (2 * rows as usize).next_power_of_two().max(2)
}

impl FragmentBuffer {
    /// An empty buffer for `sources`.
    pub fn new(config: FragmentBufferConfig, sources: &[SourceId]) -> Self {
        let mut sources = sources.to_vec();
        sources.sort_unstable();
        sources.dedup();
        let rows = config.triggers_max;
        let slots = slots_for(rows);
        Self {
            slots: vec![EMPTY_SLOT; slots],
            hash_shift: u64::BITS - slots.trailing_zeros(),
            cells: vec![None; rows as usize * sources.len()],
            rows_free: (0..rows).rev().collect(),
            rows,
            sources,
            counters: BufferCounters::default(),
            losses: LossCounts::new(),
        }
    }

    /// Files a fragment.
    ///
    /// # Errors
    /// [`InsertRefused`] hands a fragment back: the given one, or the damaged one that it replaced.
    pub fn insert(
        &mut self,
        trigger: TriggerNumber,
        fragment: FragmentDescriptor,
    ) -> Result<(), InsertRefused> {
        let Ok(column) = self.sources.binary_search(&fragment.source) else {
            self.losses.add(LossCause::FragmentStranger, 1);
            let reason = RefusedReason::Stranger;
            return Err(InsertRefused { reason, fragment });
        };
        let index = match self.find(trigger) {
            Ok(index) => index,
            Err(free) => {
                let Some(row) = self.rows_free.pop() else {
                    self.counters.full += 1;
                    let reason = RefusedReason::Full;
                    return Err(InsertRefused { reason, fragment });
                };
                self.slots[free] = Slot {
                    trigger: trigger.0,
                    row,
                    count: 0,
                };
                let triggers = self.triggers();
                let high = &mut self.counters.triggers_high_water;
                *high = triggers.max(*high);
                free
            }
        };
        let slot = &mut self.slots[index];
        let cell = &mut self.cells[slot.row as usize * self.sources.len() + column];
        if let Some(there) = cell {
            self.losses.add(LossCause::FragmentDuplicate, 1);
            let mut fragment = fragment;
            self.counters.replaced += u64::from(swap_for_better(there, &mut fragment));
            let reason = RefusedReason::Duplicate;
            return Err(InsertRefused { reason, fragment });
        }
        *cell = Some(fragment);
        slot.count += 1;
        self.counters.inserted += 1;
        let fragments = self.counters.inserted - self.counters.removed;
        let high = &mut self.counters.fragments_high_water;
        *high = fragments.max(*high);
        Ok(())
    }

    /// Keeps the better of a fragment and the one on file for its trigger and source, and hands the
    /// other back. Whoever has judged it a duplicate has counted it.
    pub fn keep_better(
        &mut self,
        trigger: TriggerNumber,
        mut fragment: FragmentDescriptor,
    ) -> FragmentDescriptor {
        if let Some(cell) = self.cell_of(trigger, fragment.source)
            && let Some(there) = &mut self.cells[cell]
        {
            self.counters.replaced += u64::from(swap_for_better(there, &mut fragment));
        }
        fragment
    }

    /// The fragments of a trigger, ordered by source.
    #[inline]
    pub fn fragments(&self, trigger: TriggerNumber) -> impl Iterator<Item = &FragmentDescriptor> {
        let cells = match self.find(trigger) {
            Ok(index) => &self.cells[self.row_cells(self.slots[index].row)],
            Err(_) => &[],
        };
        cells.iter().flatten()
    }

    /// The fragment of a trigger and source.
    #[inline]
    pub fn fragment(
        &self,
        trigger: TriggerNumber,
        source: SourceId,
    ) -> Option<&FragmentDescriptor> {
        self.cells[self.cell_of(trigger, source)?].as_ref()
    }

    #[inline]
    fn cell_of(&self, trigger: TriggerNumber, source: SourceId) -> Option<usize> {
        let column = self.sources.binary_search(&source).ok()?;
        let row = self.slots[self.find(trigger).ok()?].row as usize;
        Some(row * self.sources.len() + column)
    }

    /// Number of fragments of a trigger.
    #[inline]
    pub fn fragment_count(&self, trigger: TriggerNumber) -> u32 {
        self.find(trigger)
            .map_or(0, |index| self.slots[index].count)
    }

    /// Takes out the fragments of a trigger, ordered by source; returns how many there were.
    pub fn remove(
        &mut self,
        trigger: TriggerNumber,
        mut take: impl FnMut(FragmentDescriptor),
    ) -> u32 {
        let Ok(index) = self.find(trigger) else {
            return 0;
        };
        let Slot { row, count, .. } = self.slots[index];
        let cells = self.row_cells(row);
        self.cells[cells]
            .iter_mut()
            .filter_map(Option::take)
            .for_each(&mut take);
        self.counters.removed += u64::from(count);
        self.rows_free.push(row);
        self.close_gap(index);
        count
    }

    /// Takes out everything, counted as [`LossCause::FragmentAborted`]: the run is ended by force.
    pub fn abort(&mut self, mut take: impl FnMut(TriggerNumber, FragmentDescriptor)) {
        for slot in &mut self.slots {
            if slot.row == FREE {
                continue;
            }
            let start = slot.row as usize * self.sources.len();
            for cell in &mut self.cells[start..start + self.sources.len()] {
                if let Some(fragment) = cell.take() {
                    take(TriggerNumber(slot.trigger), fragment);
                }
            }
            self.losses
                .add(LossCause::FragmentAborted, u64::from(slot.count));
            self.counters.removed += u64::from(slot.count);
            self.rows_free.push(slot.row);
            *slot = EMPTY_SLOT;
        }
    }

    /// Triggers with fragments in the buffer.
    #[inline]
    pub fn triggers(&self) -> u32 {
        self.rows - self.rows_free.len() as u32
    }

    /// Fragments in the buffer.
    #[inline]
    pub fn len(&self) -> u64 {
        self.counters.inserted - self.counters.removed
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sources, ascending.
    #[inline]
    pub fn sources(&self) -> &[SourceId] {
        &self.sources
    }

    /// The counters.
    pub fn counters(&self) -> &BufferCounters {
        &self.counters
    }

    /// Fragments lost here, by cause.
    pub fn losses(&self) -> &LossCounts {
        &self.losses
    }

    #[inline]
    fn row_cells(&self, row: u32) -> core::ops::Range<usize> {
        let start = row as usize * self.sources.len();
        start..start + self.sources.len()
    }

    /// The slot where a trigger would like to be.
    #[inline]
    fn home(&self, trigger: u64) -> usize {
        const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
        (trigger.wrapping_mul(GOLDEN_RATIO) >> self.hash_shift) as usize
    }

    /// The slot of a trigger, or the free slot that ends its probe.
    fn find(&self, trigger: TriggerNumber) -> Result<usize, usize> {
        let mut index = self.home(trigger.0);
        loop {
            let slot = &self.slots[index];
            if slot.row == FREE {
                return Err(index);
            }
            if slot.trigger == trigger.0 {
                return Ok(index);
            }
            index = (index + 1) & (self.slots.len() - 1);
        }
    }

    /// Empties a slot and moves the ones behind it up, so that every probe still ends at its
    /// trigger (linear probing with backward shift: no tombstones, the probe length does not grow
    /// with age).
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        let mut index = gap;
        loop {
            index = (index + 1) & mask;
            let slot = self.slots[index];
            if slot.row == FREE {
                break;
            }
            let distance = index.wrapping_sub(self.home(slot.trigger)) & mask;
            if distance >= (index.wrapping_sub(gap) & mask) {
                self.slots[gap] = slot;
                gap = index;
            }
        }
        self.slots[gap] = EMPTY_SLOT;
    }
}

/// Puts a good fragment in the place of a damaged one; whether it did.
fn swap_for_better(there: &mut FragmentDescriptor, other: &mut FragmentDescriptor) -> bool {
    let is_better = !there.status.is_good() && other.status.is_good();
    if is_better {
        core::mem::swap(there, other);
    }
    is_better
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use livetime_wire::slink::FragmentStatus;
    use proptest::prelude::*;

    use super::*;

    const SOURCES: [SourceId; 3] = [SourceId(0x10), SourceId(0x20), SourceId(0x30)];

    fn buffer(triggers_max: u32) -> FragmentBuffer {
        FragmentBuffer::new(FragmentBufferConfig { triggers_max }, &SOURCES)
    }

    fn fragment(source: u32, page: u32) -> FragmentDescriptor {
        FragmentDescriptor {
            source: SourceId(source),
            pool: 0,
            words: 14,
            status: FragmentStatus::GOOD,
            crc: 0,
            pages: [page].into_iter().collect(),
        }
    }

    #[test]
    fn the_memory_of_a_buffer_is_known_before_it_is_made() {
        let buffer = buffer(100);
        let bytes = size_of_val(&buffer.slots[..])
            + size_of_val(&buffer.cells[..])
            + size_of_val(&buffer.rows_free[..]);
        let config = FragmentBufferConfig { triggers_max: 100 };
        assert_eq!(config.memory_bytes(SOURCES.len()), bytes as u64);
    }

    #[test]
    fn fragments_come_back_ordered_by_source() {
        let mut buffer = buffer(4);
        for source in [0x30, 0x10, 0x20] {
            buffer
                .insert(TriggerNumber(7), fragment(source, source))
                .unwrap();
        }
        let sources: Vec<_> = buffer
            .fragments(TriggerNumber(7))
            .map(|f| f.source.0)
            .collect();
        assert_eq!(sources, [0x10, 0x20, 0x30]);
        assert_eq!(buffer.fragment_count(TriggerNumber(7)), 3);
        assert_eq!(
            buffer
                .fragment(TriggerNumber(7), SourceId(0x20))
                .unwrap()
                .pages[0],
            0x20
        );
        let mut taken = Vec::new();
        assert_eq!(
            buffer.remove(TriggerNumber(7), |f| taken.push(f.source.0)),
            3
        );
        assert_eq!(taken, [0x10, 0x20, 0x30]);
        assert_eq!(buffer.remove(TriggerNumber(7), |_| panic!("empty")), 0);
        assert!(buffer.is_empty());
    }

    #[test]
    fn strangers_and_duplicates_are_handed_back_and_named() {
        let mut buffer = buffer(4);
        let refused = buffer
            .insert(TriggerNumber(1), fragment(0x11, 5))
            .unwrap_err();
        assert_eq!(refused.reason, RefusedReason::Stranger);
        assert_eq!(buffer.triggers(), 0, "a stranger takes no row");
        buffer.insert(TriggerNumber(1), fragment(0x10, 1)).unwrap();
        let refused = buffer
            .insert(TriggerNumber(1), fragment(0x10, 2))
            .unwrap_err();
        assert_eq!(
            (refused.reason, refused.fragment.pages[0]),
            (RefusedReason::Duplicate, 2)
        );
        assert_eq!(buffer.losses().of(LossCause::FragmentStranger), 1);
        assert_eq!(buffer.losses().of(LossCause::FragmentDuplicate), 1);
        assert_eq!(buffer.len(), 1);
    }

    #[test]
    fn sound_fragment_replaces_a_damaged_one_and_not_the_other_way() {
        let mut buffer = buffer(4);
        let mut damaged = fragment(0x10, 1);
        damaged.status = FragmentStatus::BAD_CRC;
        buffer.insert(TriggerNumber(1), damaged.clone()).unwrap();
        let refused = buffer
            .insert(TriggerNumber(1), fragment(0x10, 2))
            .unwrap_err();
        assert_eq!(refused.fragment.pages[0], 1);
        let refused = buffer.insert(TriggerNumber(1), damaged).unwrap_err();
        assert_eq!(refused.fragment.pages[0], 1);
        assert_eq!(
            buffer.fragments(TriggerNumber(1)).next().unwrap().pages[0],
            2
        );
        assert_eq!(buffer.counters().replaced, 1);
        assert_eq!(buffer.losses().of(LossCause::FragmentDuplicate), 2);
    }

    #[test]
    fn better_of_two_is_kept_and_the_other_handed_back() {
        let mut buffer = buffer(4);
        let mut damaged = fragment(0x10, 1);
        damaged.status = FragmentStatus::BAD_CRC;
        buffer.insert(TriggerNumber(1), damaged).unwrap();
        let other = buffer.keep_better(TriggerNumber(1), fragment(0x10, 2));
        assert_eq!(other.pages[0], 1);
        let other = buffer.keep_better(TriggerNumber(1), fragment(0x10, 3));
        assert_eq!(other.pages[0], 3, "the first of two good ones stays");
        let other = buffer.keep_better(TriggerNumber(2), fragment(0x10, 4));
        assert_eq!(other.pages[0], 4, "none of that trigger is here");
        assert_eq!((buffer.len(), buffer.counters().replaced), (1, 1));
        assert_eq!(buffer.losses().total(), 0, "the caller has counted them");
    }

    #[test]
    fn full_buffer_refuses_new_triggers_and_completes_old_ones() {
        let mut buffer = buffer(2);
        buffer.insert(TriggerNumber(1), fragment(0x10, 1)).unwrap();
        buffer.insert(TriggerNumber(2), fragment(0x10, 2)).unwrap();
        let refused = buffer
            .insert(TriggerNumber(3), fragment(0x10, 3))
            .unwrap_err();
        assert_eq!(
            (refused.reason, refused.fragment.pages[0]),
            (RefusedReason::Full, 3)
        );
        buffer.insert(TriggerNumber(1), fragment(0x20, 4)).unwrap();
        buffer.insert(TriggerNumber(2), fragment(0x30, 5)).unwrap();
        assert_eq!(
            buffer.losses().total(),
            0,
            "full is back-pressure, not loss"
        );
        buffer.remove(TriggerNumber(1), |_| ());
        buffer.insert(TriggerNumber(3), refused.fragment).unwrap();
        assert_eq!(buffer.counters().full, 1);
        assert_eq!(buffer.counters().triggers_high_water, 2);
        assert_eq!(buffer.counters().fragments_high_water, 4);
    }

    #[test]
    fn old_trigger_that_stays_is_never_overwritten() {
        let mut buffer = buffer(8);
        buffer
            .insert(TriggerNumber(3), fragment(0x10, 333))
            .unwrap();
        for trigger in 4..10_000 {
            buffer
                .insert(TriggerNumber(trigger), fragment(0x10, 1))
                .unwrap();
            if trigger >= 8 {
                assert_eq!(buffer.remove(TriggerNumber(trigger - 4), |_| ()), 1);
            }
        }
        assert_eq!(
            buffer.fragments(TriggerNumber(3)).next().unwrap().pages[0],
            333
        );
    }

    #[test]
    fn abort_hands_everything_back_and_names_it() {
        let mut buffer = buffer(4);
        for trigger in 1..=3 {
            buffer
                .insert(TriggerNumber(trigger), fragment(0x20, trigger as u32))
                .unwrap();
        }
        let mut taken = Vec::new();
        buffer.abort(|trigger, fragment| taken.push((trigger.0, fragment.pages[0])));
        taken.sort_unstable();
        assert_eq!(taken, [(1, 1), (2, 2), (3, 3)]);
        assert_eq!(buffer.losses().of(LossCause::FragmentAborted), 3);
        assert_eq!((buffer.triggers(), buffer.len()), (0, 0));
        buffer.insert(TriggerNumber(9), fragment(0x20, 9)).unwrap();
    }

    #[test]
    fn bounds_are_checked() {
        assert_eq!(FragmentBufferConfig::default().validate("builder"), []);
        for triggers_max in [0, TRIGGERS_MAX + 1] {
            let problems = FragmentBufferConfig { triggers_max }.validate("builder");
            assert_eq!(problems[0].code.code, "L0109");
        }
    }

    #[derive(Debug, Clone)]
    enum Operation {
        Insert(u64, usize),
        Remove(u64),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        // Near each other, far apart, colliding in the low bits, and at the end of the range.
        let trigger = prop_oneof![
            4 => 0u64..40,
            1 => (0u64..8).prop_map(|n| n * 64 + 5),
            1 => (0u64..6).prop_map(|n| u64::MAX - n),
        ];
        (trigger, 0..4usize).prop_map(|(trigger, what)| match what {
            3 => Operation::Remove(trigger),
            source => Operation::Insert(trigger, source),
        })
    }

    proptest! {
        #[test]
        fn buffer_behaves_as_a_bounded_map(
            operations in prop::collection::vec(operation(), 0..400),
            triggers_max in 1u32..24,
        ) {
            let mut buffer = buffer(triggers_max);
            let mut model = BTreeMap::<u64, BTreeMap<u32, u32>>::new();
            for (page, operation) in operations.into_iter().enumerate() {
                match operation {
                    Operation::Insert(trigger, source) => {
                        let (source, page) = (SOURCES[source].0, page as u32);
                        let result = buffer.insert(TriggerNumber(trigger), fragment(source, page));
                        let full = model.len() == triggers_max as usize;
                        let expected = match model.get_mut(&trigger) {
                            None if full => Err(RefusedReason::Full),
                            None => {
                                model.insert(trigger, BTreeMap::from([(source, page)]));
                                Ok(())
                            }
                            Some(row) if row.contains_key(&source) => Err(RefusedReason::Duplicate),
                            Some(row) => {
                                row.insert(source, page);
                                Ok(())
                            }
                        };
                        prop_assert_eq!(result.as_ref().map_err(|r| r.reason), expected.as_ref().map_err(|r| *r));
                        if let Err(refused) = result {
                            prop_assert_eq!(refused.fragment.pages[0], page);
                        }
                    }
                    Operation::Remove(trigger) => {
                        let mut taken = Vec::new();
                        buffer.remove(TriggerNumber(trigger), |f| taken.push((f.source.0, f.pages[0])));
                        let expected: Vec<_> =
                            model.remove(&trigger).unwrap_or_default().into_iter().collect();
                        prop_assert_eq!(taken, expected);
                    }
                }
                prop_assert_eq!(buffer.triggers() as usize, model.len());
                prop_assert_eq!(buffer.len(), model.values().map(|row| row.len() as u64).sum::<u64>());
            }
            for (trigger, row) in &model {
                let found: Vec<_> = buffer
                    .fragments(TriggerNumber(*trigger))
                    .map(|f| (f.source.0, f.pages[0]))
                    .collect();
                let expected: Vec<_> = row.iter().map(|(s, p)| (*s, *p)).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
