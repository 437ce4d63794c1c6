//! Timing groups: names for sets of equipment that is controlled together.
//!
//! An event ID names one group number; equipment that belongs together may have several. Since
//! conditions match leading bits, nothing can match "this number, whatever the group" in one
//! condition: a timing group gives the filters, one for each of its group numbers, that together
//! do so for its equipment.

use livetime_wire::timing_message::{EventIdFields, IdFormat};

use crate::id_filter::IdFilter;

/// Bits of an event ID down to the group, and down to the number.
const GROUP_BITS: u32 = 16;
const NUMBER_BITS: u32 = 28;

/// A name and the group numbers behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimingGroup {
    name: String,
    groups: Vec<u16>,
}

/// Why a timing group, or a filter of it, cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimingGroupError {
    /// A group number or event number beyond 12 bits.
    #[error("{field} is {found}, allowed is 0 to 4095")]
    Number {
        /// Which number.
        field: &'static str,
        /// Value found.
        found: u16,
    },
    /// No group numbers.
    #[error("timing group `{name}` is empty; give at least one group number")]
    Empty {
        /// Its name.
        name: String,
    },
}

impl TimingGroup {
    /// A timing group; group numbers are sorted and counted once.
    ///
    /// # Errors
    /// [`TimingGroupError`] without group numbers, or for one beyond 4095.
    pub fn new(
        name: impl Into<String>,
        groups: impl IntoIterator<Item = u16>,
    ) -> Result<Self, TimingGroupError> {
        let name = name.into();
        let mut groups: Vec<u16> = groups.into_iter().collect();
        groups.sort_unstable();
        groups.dedup();
        if groups.is_empty() {
            return Err(TimingGroupError::Empty { name });
        }
        if let Some(found) = groups.iter().copied().find(|group| *group > 4095) {
            let field = "group number";
            return Err(TimingGroupError::Number { field, found });
        }
        Ok(Self { name, groups })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its group numbers, rising.
    pub fn groups(&self) -> &[u16] {
        &self.groups
    }

    /// Whether a group number belongs to it.
    pub fn contains(&self, group: u16) -> bool {
        self.groups.binary_search(&group).is_ok()
    }

    /// The filters that match its messages: all of them, or those with one event number. All are
    /// prefixes, and no message is matched by two of them.
    ///
    /// # Errors
    /// [`TimingGroupError::Number`] for an event number beyond 4095.
    pub fn filters(
        &self,
        format: IdFormat,
        number: Option<u16>,
    ) -> Result<Vec<IdFilter>, TimingGroupError> {
        let bits = number.map_or(GROUP_BITS, |_| NUMBER_BITS);
        let number = number.unwrap_or(0);
        let filter = |group: &u16| {
            let fields = EventIdFields {
                format,
                group: *group,
                number,
                flags: 0,
                sequence: 0,
                beam_process: 0,
                reserved: 0,
            };
            let id = fields.to_id().map_err(|_| TimingGroupError::Number {
                field: "event number",
                found: number,
            })?;
            Ok(IdFilter::leading(id, bits).unwrap_or(IdFilter::ALL))
        };
        self.groups.iter().map(filter).collect()
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::EventId;

    use super::*;

    fn id(group: u16, number: u16, sequence: u16) -> EventId {
        EventIdFields {
            format: IdFormat::Current,
            group,
            number,
            flags: 8,
            sequence,
            beam_process: 77,
            reserved: 3,
        }
        .to_id()
        .unwrap()
    }

    #[test]
    fn filters_match_the_groups_and_the_number() {
        let ring = TimingGroup::new("ring", [300, 210, 300]).unwrap();
        assert_eq!(ring.groups(), [210, 300]);
        assert!(ring.contains(300) && !ring.contains(211));
        let starts = ring.filters(IdFormat::Current, Some(0x101)).unwrap();
        let all = ring.filters(IdFormat::Current, None).unwrap();
        for group in [209, 210, 211, 299, 300] {
            for number in [0x100, 0x101, 0x102] {
                let id = id(group, number, 5);
                let count = |filters: &[IdFilter]| filters.iter().filter(|f| f.matches(id)).count();
                let mine = ring.contains(group);
                assert_eq!(count(&all), usize::from(mine), "{group}");
                let start = mine && number == 0x101;
                assert_eq!(count(&starts), usize::from(start), "{group} {number}");
            }
        }
    }

    #[test]
    fn numbers_beyond_12_bits_are_refused() {
        assert!(TimingGroup::new("x", [4096]).is_err());
        assert!(TimingGroup::new("x", []).is_err());
        let group = TimingGroup::new("x", [0]).unwrap();
        assert!(group.filters(IdFormat::Old, Some(4096)).is_err());
    }
}
