//! Which source belongs to which readout unit, and its place in events and masks.

use livetime_wire::SourceId;

use crate::builder_config::BuilderConfig;

/// A source's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourcePlace {
    pub(crate) source: SourceId,
    /// Index of its readout unit.
    pub(crate) readout: u16,
    /// Its bit in that unit's masks: its rank among the unit's sources.
    pub(crate) bit: u8,
}

/// All sources of the builder, ordered by id; a source's rank is its place in events.
#[derive(Debug)]
pub(crate) struct SourceMap {
    places: Vec<SourcePlace>,
    /// By readout unit: the ranks of its sources, in the order of its bits.
    ranks: Vec<Vec<u32>>,
}

impl SourceMap {
    pub(crate) fn new(config: &BuilderConfig) -> Self {
        let mut places: Vec<SourcePlace> = (0..config.readout_units.len())
            .flat_map(|unit| {
                let sources = config.sources_of(unit as u16);
                sources
                    .into_iter()
                    .enumerate()
                    .map(move |(bit, source)| SourcePlace {
                        source,
                        readout: unit as u16,
                        bit: bit as u8,
                    })
            })
            .collect();
        places.sort();
        let mut ranks = vec![Vec::new(); config.readout_units.len()];
        // Ranks ascend with the source id, and so do the bits of a unit.
        for (rank, place) in places.iter().enumerate() {
            ranks[usize::from(place.readout)].push(rank as u32);
        }
        Self { places, ranks }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Rank and place of a source.
    #[inline]
    pub(crate) fn find(&self, source: SourceId) -> Option<(usize, SourcePlace)> {
        // Where ids are numbered from 0 on without gaps, a source's rank is its id.
        let dense = source.0 as usize;
        if let Some(place) = self.places.get(dense)
            && place.source == source
        {
            return Some((dense, *place));
        }
        let rank = self
            .places
            .binary_search_by_key(&source, |place| place.source)
            .ok()?;
        Some((rank, self.places[rank]))
    }

    /// The source of a rank.
    #[inline]
    pub(crate) fn source(&self, rank: usize) -> SourceId {
        self.places[rank].source
    }

    /// The sources of readout unit `unit` that are not in `received` (bits by rank), as its mask.
    #[inline]
    pub(crate) fn missing_of(&self, unit: usize, received: &[u64]) -> u32 {
        let mut missing = 0;
        for (bit, rank) in self.ranks[unit].iter().enumerate() {
            let rank = *rank as usize;
            if received[rank / 64] & (1 << (rank % 64)) == 0 {
                missing |= 1 << bit;
            }
        }
        missing
    }

    /// The mask of all sources of a readout unit.
    #[inline]
    pub(crate) fn all_of(&self, unit: usize) -> u32 {
        (1u64 << self.ranks[unit].len()).wrapping_sub(1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_source_ids_and_bits_the_ranks_within_a_unit() {
        let map = SourceMap::new(&BuilderConfig {
            readout_units: vec![
                vec![SourceId(9), SourceId(2)],
                vec![SourceId(5), SourceId(1), SourceId(7)],
            ],
            ..BuilderConfig::default()
        });
        assert_eq!(map.len(), 5);
        let sources: Vec<u32> = (0..5).map(|rank| map.source(rank).0).collect();
        assert_eq!(sources, [1, 2, 5, 7, 9]);
        let (rank, place) = map.find(SourceId(7)).unwrap();
        assert_eq!((rank, place.readout, place.bit), (3, 1, 2));
        assert_eq!(map.find(SourceId(3)), None);
        // Received: 1, 2 and 5. Missing: 9 of unit 0 (bit 1) and 7 of unit 1 (bit 2).
        assert_eq!(map.missing_of(0, &[0b00111]), 0b10);
        assert_eq!(map.missing_of(1, &[0b00111]), 0b100);
        assert_eq!(map.all_of(1), 0b111);
    }
}
