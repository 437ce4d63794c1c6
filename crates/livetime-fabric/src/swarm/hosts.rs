//! What stands around the cores in a story: fragments on file, tickets in filter units.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use livetime_builder::{BlockAssembler, BuilderUnit, ReadoutUnit};
use livetime_wire::message::{EventTicket, FragmentDescriptor};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{SourceId, TriggerNumber};

use super::interruption::Interruption;
use super::scenario::FRAGMENT_BYTES_MAX;
use super::shaper::SwarmShaper;

/// Bits of a page number below the life of its pool.
const LIFE_SHIFT: u32 = 24;

/// A builder unit's process.
pub(super) struct BuilderHost {
    pub(super) core: BuilderUnit,
    /// By readout unit: what puts fragments together from its blocks.
    pub(super) assemblers: Vec<BlockAssembler>,
    /// Its own epoch.
    pub(super) epoch: u32,
    /// Its process is there.
    pub(super) is_up: bool,
    pub(super) interruption: Interruption,
    /// Microseconds that every message to it takes longer.
    pub(super) slow_us: u64,
    /// Life of the writer that it hands events to; `None` while it knows of none.
    pub(super) writer_life: Option<u32>,
    /// Lives of the filter units as it was told of them: tickets go to those.
    pub(super) filter_epochs: Vec<u32>,
    pub(super) ticket: EventTicket,
}

/// A readout unit's process with its pages.
pub(super) struct ReadoutHost {
    /// `None` while it is away.
    pub(super) core: Option<ReadoutUnit>,
    pub(super) interruption: Interruption,
    /// Where fragments wait for their turn.
    pub(super) shaper: Option<SwarmShaper>,
    pub(super) epoch: u32,
    /// The newest trigger when it rejoined; 0 in its first life.
    pub(super) joined_after: TriggerNumber,
    /// Life of the pool: pages of an earlier one are gone with their process.
    pub(super) life: u32,
    pub(super) file: BTreeMap<TriggerNumber, BTreeMap<SourceId, u32>>,
    pub(super) pages: BTreeSet<u32>,
    pub(super) next_page: u32,
    /// Fragments that came in its present life and do not wait.
    pub(super) received: u64,
    /// Fragments that the core makes wait.
    pub(super) waiting: VecDeque<(TriggerNumber, SourceId)>,
    /// Messages of the supervisor so far.
    pub(super) decisions: u32,
}

impl ReadoutHost {
    pub(super) fn new(core: ReadoutUnit, epoch: u32, shaper: Option<SwarmShaper>) -> Self {
        Self {
            core: Some(core),
            interruption: Interruption::NONE,
            shaper,
            epoch,
            joined_after: TriggerNumber(0),
            life: 0,
            file: BTreeMap::new(),
            pages: BTreeSet::new(),
            next_page: 0,
            received: 0,
            waiting: VecDeque::new(),
            decisions: 0,
        }
    }

    /// Puts a fragment on file.
    pub(super) fn file(&mut self, trigger: TriggerNumber, source: SourceId) {
        let page = self.life << LIFE_SHIFT | self.next_page;
        self.next_page += 1;
        self.pages.insert(page);
        self.file.entry(trigger).or_default().insert(source, page);
    }

    /// A fragment on file, as messages describe it.
    pub(super) fn descriptor(
        &self,
        unit: u16,
        trigger: TriggerNumber,
        source: SourceId,
    ) -> Option<FragmentDescriptor> {
        let page = *self.file.get(&trigger)?.get(&source)?;
        let spread = (trigger.low().wrapping_mul(2_654_435_761) ^ source.0) % 100;
        Some(FragmentDescriptor {
            source,
            pool: unit,
            words: 1 + spread * (FRAGMENT_BYTES_MAX / 4 - 1) as u32 / 99,
            status: FragmentStatus::GOOD,
            crc: trigger.low(),
            pages: [page].into_iter().collect(),
        })
    }

    /// Whether a page is of its present life.
    pub(super) fn is_present(&self, page: u32) -> bool {
        page >> LIFE_SHIFT == self.life
    }

    /// Whether a page may be read: it is in use, or its pool is gone with its process, whose memory
    /// the readers keep.
    pub(super) fn is_readable(&self, page: u32) -> bool {
        !self.is_present(page) || self.pages.contains(&page)
    }

    /// Frees the pages of a trigger; false when it is not on file.
    pub(super) fn free(&mut self, trigger: TriggerNumber) -> bool {
        let Some(fragments) = self.file.remove(&trigger) else {
            return false;
        };
        fragments.values().all(|page| self.pages.remove(page))
    }
}

/// A ticket in a filter unit, or on its way to one.
#[derive(Debug, Clone)]
pub(super) struct HeldTicket {
    pub(super) ticket: EventTicket,
    /// Life of the builder unit that wrote it.
    pub(super) epoch: u32,
    /// Whom it goes to.
    pub(super) filter: u16,
    /// Taken by the filter unit.
    pub(super) is_taken: bool,
    /// It is a first step, whose rest the filter unit wants.
    pub(super) fetches_rest: bool,
    /// Life of the filter unit that it goes to.
    pub(super) filter_epoch: u32,
    /// The answer is on its way.
    pub(super) is_answered: bool,
}

/// A filter unit, with what is written behind it.
#[derive(Debug)]
pub(super) struct FilterHost {
    /// Its process is there.
    pub(super) is_up: bool,
    pub(super) interruption: Interruption,
    pub(super) epoch: u32,
    /// By builder unit: tickets of earlier epochs are refused.
    pub(super) fences: Vec<u32>,
    /// Every trigger it ever took, and of which builder unit, but of those whose rest it has fetched
    /// and not seen.
    pub(super) memory: BTreeMap<TriggerNumber, u16>,
    /// Messages to each builder unit so far, in this life and in the one before, whose last answers
    /// may be on their way.
    pub(super) sequences: Vec<u32>,
    pub(super) former_sequences: Vec<u32>,
}
