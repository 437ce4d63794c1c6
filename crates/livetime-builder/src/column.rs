//! Cells of many alike units side by side: a row for each trigger or peer, a column for each unit.
//!
//! A message that goes round hundreds of readout units in one simulation touches the same row in all
//! of them, which is a few cache lines and one page instead of one of each for every unit. A unit
//! by itself has a table of one column. Cells are atomics without any ordering, as plain memory, since
//! units are sent between threads; each is changed by its own unit alone.

use std::sync::Arc;

/// The cells of one unit.
#[derive(Debug)]
pub(crate) struct Column<T> {
    table: Arc<[T]>,
    columns: usize,
    column: usize,
}

impl<T> Column<T> {
    /// Columns of so many rows of one table.
    pub(crate) fn side_by_side(
        rows: usize,
        columns: usize,
        blank: impl Fn() -> T,
    ) -> impl Iterator<Item = Self> {
        let table: Arc<[T]> = (0..rows * columns).map(|_| blank()).collect();
        (0..columns).map(move |column| Self {
            table: table.clone(),
            columns,
            column,
        })
    }

    /// A table of one column.
    pub(crate) fn alone(rows: usize, blank: impl Fn() -> T) -> Self {
        Self {
            table: (0..rows).map(|_| blank()).collect(),
            columns: 1,
            column: 0,
        }
    }

    /// Number of rows.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.table.len() / self.columns
    }

    /// The cell in a row, if there is one such.
    #[inline(always)]
    pub(crate) fn get(&self, row: usize) -> Option<&T> {
        self.table.get(row * self.columns + self.column)
    }

    /// The cell in a row.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize) -> &T {
        &self.table[row * self.columns + self.column]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn each_unit_has_its_own_cells() {
        let columns: Vec<_> = Column::side_by_side(3, 2, || AtomicU32::new(0)).collect();
        for (unit, column) in (1..).zip(&columns) {
            for row in 0..3 {
                column
                    .at(row)
                    .store(10 * unit + row as u32, Ordering::Relaxed);
            }
        }
        for (unit, column) in (1..).zip(&columns) {
            let cells = (0..4).filter_map(|row| column.get(row));
            let cells: Vec<u32> = cells.map(|cell| cell.load(Ordering::Relaxed)).collect();
            assert_eq!(cells, [10 * unit, 10 * unit + 1, 10 * unit + 2]);
            assert_eq!(column.len(), 3);
        }
        assert_eq!(Column::alone(4, || ()).len(), 4);
    }
}
