//! The events of a run in rows, which keep their numbers while the run grows.
//!
//! Of a run that is opened the rows are in the order of the trigger number. Files of a growing run are
//! written side by side, so that later events may have lower numbers: they come behind the rows that
//! were there, so that whoever has read up to a row reads on from it and misses none.

use livetime_wire::TriggerNumber;

/// Where an event is among all files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderPlace {
    /// Its trigger number.
    pub trigger: TriggerNumber,
    /// Index of its file.
    pub file: usize,
    /// Bytes of its words.
    pub bytes: u32,
}

/// The places of all events, one a row.
#[derive(Debug, Default)]
pub(crate) struct EventRows {
    rows: Vec<FolderPlace>,
    /// Rows in the order of the trigger number; empty where all are.
    by_trigger: Vec<usize>,
    /// Where further copies of events are that are stored twice, by trigger number.
    copies: Vec<FolderPlace>,
}

impl EventRows {
    /// The rows of a run that is opened; of equal trigger numbers the first counts.
    pub(crate) fn new(mut places: Vec<FolderPlace>) -> Self {
        places.sort_by_key(|place| place.trigger);
        let mut copies = Vec::new();
        places.dedup_by(|copy, first| {
            let is_copy = copy.trigger == first.trigger;
            copies.extend(Some(*copy).filter(|_| is_copy));
            is_copy
        });
        Self {
            rows: places,
            by_trigger: Vec::new(),
            copies,
        }
    }

    /// The rows of the same run with all of its events now: those that were there keep their numbers.
    pub(crate) fn grown(self, now: Self) -> Self {
        let mut is_known = vec![false; now.rows.len()];
        let mut rows = self.rows;
        for row in &mut rows {
            let found = now
                .rows
                .binary_search_by_key(&row.trigger, |place| place.trigger);
            match found {
                Ok(at) => {
                    is_known[at] = true;
                    *row = now.rows[at];
                }
                // It keeps its row, as a damaged event does.
                Err(_) => row.file = usize::MAX,
            }
        }
        let new = now.rows.iter().zip(is_known);
        rows.extend(new.filter(|(_, known)| !known).map(|(place, _)| *place));
        let mut by_trigger = Vec::new();
        if !rows.is_sorted_by_key(|place| place.trigger) {
            by_trigger.extend(0..rows.len());
            by_trigger.sort_by_key(|row: &usize| rows[*row].trigger);
        }
        Self {
            rows,
            by_trigger,
            copies: now.copies,
        }
    }

    /// How many copies in other files there are of events that have a row.
    pub(crate) fn copy_count(&self) -> u64 {
        self.copies.len() as u64
    }

    /// Where further copies of an event are.
    pub(crate) fn copies_of(&self, trigger: TriggerNumber) -> Vec<FolderPlace> {
        let start = self.copies.partition_point(|copy| copy.trigger < trigger);
        let copies = self.copies[start..].iter();
        let copies = copies.take_while(|copy| copy.trigger == trigger);
        copies.copied().collect()
    }

    /// All rows.
    pub(crate) fn rows(&self) -> &[FolderPlace] {
        &self.rows
    }

    /// The place of the event of a trigger.
    pub(crate) fn find(&self, trigger: TriggerNumber) -> Option<FolderPlace> {
        let row = match self.by_trigger.is_empty() {
            true => self
                .rows
                .binary_search_by_key(&trigger, |place| place.trigger)
                .ok()?,
            false => {
                let of_row = |row: &usize| self.rows[*row].trigger;
                let at = self
                    .by_trigger
                    .binary_search_by_key(&trigger, of_row)
                    .ok()?;
                self.by_trigger[at]
            }
        };
        self.rows.get(row).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(triggers: &[(u64, usize)]) -> EventRows {
        let places = triggers.iter().map(|&(trigger, file)| FolderPlace {
            trigger: TriggerNumber(trigger),
            file,
            bytes: 8,
        });
        EventRows::new(places.collect())
    }

    fn triggers(rows: &EventRows) -> Vec<u64> {
        rows.rows().iter().map(|place| place.trigger.0).collect()
    }

    #[test]
    fn rows_that_were_there_keep_their_numbers() {
        let known = rows(&[(4, 0), (9, 0), (2, 1)]);
        assert_eq!(triggers(&known), [2, 4, 9]);
        assert_eq!(known.copy_count(), 0);
        // A file came between, and with it events between; one is not there any more.
        let known = known.grown(rows(&[(4, 0), (9, 0), (3, 1), (12, 1), (5, 2)]));
        assert_eq!(triggers(&known), [2, 4, 9, 3, 5, 12]);
        let known = known.grown(rows(&[
            (1, 0),
            (2, 1),
            (3, 2),
            (4, 1),
            (5, 3),
            (9, 1),
            (12, 2),
        ]));
        assert_eq!(triggers(&known), [2, 4, 9, 3, 5, 12, 1]);
        for (trigger, file) in [(1, 0), (2, 1), (3, 2), (4, 1), (5, 3), (9, 1), (12, 2)] {
            let found = known.find(TriggerNumber(trigger)).map(|place| place.file);
            assert_eq!(found, Some(file), "{trigger}");
        }
        assert_eq!(known.find(TriggerNumber(6)), None);
        // Of an event that is stored twice the first file's copy has the row.
        let known = known.grown(rows(&[(9, 1), (12, 2), (9, 4), (13, 4), (9, 5)]));
        assert_eq!(
            known.find(TriggerNumber(9)).map(|place| place.file),
            Some(1)
        );
        let files = |trigger| {
            let copies = known.copies_of(TriggerNumber(trigger));
            copies.iter().map(|place| place.file).collect::<Vec<_>>()
        };
        assert_eq!((files(9), files(12)), (vec![4, 5], vec![]));
        assert_eq!(known.copy_count(), 2);
    }
}
