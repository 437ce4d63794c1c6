//! Sine and cosine of the packet's 8192 angles as integers, scaled by 32768.
//!
//! `sin[k] = round(32768 sin(2 pi k / 8192))`, halves away from zero, in f64
//! (`docs/formats/trigger-packet.md`, section 2). Built once per [`crate::LevelTwo`] and read by
//! [`crate::beam_spot`] and [`crate::two_track`]; nothing else in the decisions uses floating point.

use core::f64::consts::PI;

use livetime_wire::trigger_packet::ANGLE_LSB;

/// Entries of the table.
const ENTRIES: usize = ANGLE_LSB as usize;

/// Sine and cosine of one angle, in units of 1/32768.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinCos {
    /// Sine, -32768..=32768.
    pub sin: i32,
    /// Cosine, -32768..=32768.
    pub cos: i32,
}

/// The table; one look-up touches one cache line.
#[derive(Debug, Clone)]
pub struct TrigTable {
    entries: Box<[SinCos; ENTRIES]>,
}

impl TrigTable {
    /// Computes the table.
    pub fn new() -> Self {
        let entries: Vec<SinCos> = (0..ANGLE_LSB)
            .map(|k| {
                let angle = 2.0 * PI * f64::from(k) / f64::from(ANGLE_LSB);
                SinCos {
                    sin: (32768.0 * angle.sin()).round() as i32,
                    cos: (32768.0 * angle.cos()).round() as i32,
                }
            })
            .collect();
        Self {
            entries: entries
                .into_boxed_slice()
                .try_into()
                .expect("one entry per angle was collected"),
        }
    }

    /// Sine and cosine of `phi` counts of 2 pi / 8192; only the low 13 bits count.
    #[inline]
    pub fn at(&self, phi: u32) -> SinCos {
        self.entries[phi as usize % ENTRIES]
    }
}

impl Default for TrigTable {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::crc::crc32c;

    use super::*;

    #[test]
    fn table_is_the_one_computed_elsewhere() {
        let table = TrigTable::new();
        let sines = (0..ANGLE_LSB).map(|k| table.at(k).sin);
        let cosines = (0..ANGLE_LSB).map(|k| table.at(k).cos);
        let words: Vec<u32> = sines.chain(cosines).map(i32::cast_unsigned).collect();
        // CRC-32C of the little-endian sines, then cosines, computed by a Python program from the
        // definition.
        assert_eq!(crc32c(&words), 0x50BA_B816);
    }

    #[test]
    fn quadrants_are_exact_and_the_circle_closes() {
        let table = TrigTable::new();
        let exact = |k| (table.at(k).sin, table.at(k).cos);
        assert_eq!(exact(0), (0, 32768));
        assert_eq!(exact(2048), (32768, 0));
        assert_eq!(exact(4096), (0, -32768));
        assert_eq!(exact(6144), (-32768, 0));
        assert_eq!(exact(8192), exact(0));
        for k in 0..ANGLE_LSB {
            assert_eq!(table.at(k).cos, table.at(k + 2048).sin, "k = {k}");
            assert_eq!(table.at(k).sin, -table.at(ANGLE_LSB - k).sin, "k = {k}");
        }
    }
}
