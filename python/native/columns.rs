//! Columns: what a range of events becomes, one growing vector for each field.
//!
//! Each `push` appends one whole event; offsets mark where an event's, or a fragment's, entries
//! end, as awkward arrays want them. Which events there are is decided in [`crate::run_file`].

use livetime_wire::event::EventView;
use livetime_wire::fragment::FragmentView;
use livetime_wire::object::{self, ObjectBlockView, PhysicsObject};

/// Words of 64 bits in a row of [`EventColumns`].
pub(crate) const EVENT_ROW_WORDS: usize = 5;

/// Header fields, as rows of the numpy type `EVENT_DTYPE` of `run.py`.
#[derive(Debug, Default)]
pub(crate) struct EventColumns {
    pub(crate) rows: Vec<u64>,
}

impl EventColumns {
    pub(crate) fn push(&mut self, event: &EventView<'_>) {
        let header = event.header();
        let flagged = event.entries().any(|entry| !entry.status.is_good());
        // Little-endian fields of a row, two or more to a word: see `EVENT_DTYPE`.
        let row: [u64; EVENT_ROW_WORDS] = [
            header.trigger.0,
            header.triggered_at.0,
            event.entries().len() as u64 | (event.missing().len() as u64) << 32,
            (event.words().len() * 4) as u64
                | u64::from(header.filter_reason) << 32
                | u64::from(header.streams) << 48,
            u64::from(event.is_incomplete()) | u64::from(flagged) << 8,
        ];
        self.rows.extend_from_slice(&row);
    }
}

/// Decisions: the low and the high 64 bits of each mask.
#[derive(Debug, Default)]
pub(crate) struct MaskColumns {
    pub(crate) masks: Vec<u64>,
}

impl MaskColumns {
    pub(crate) fn push(&mut self, event: &EventView<'_>) {
        let mask = event.header().mask.0;
        let low = (mask & u128::from(u64::MAX)) as u64;
        self.masks.extend_from_slice(&[low, (mask >> 64) as u64]);
    }
}

/// The sources that are missing from each event.
#[derive(Debug)]
pub(crate) struct MissingColumns {
    pub(crate) offsets: Vec<i64>,
    pub(crate) sources: Vec<u32>,
}

impl Default for MissingColumns {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            sources: Vec::new(),
        }
    }
}

impl MissingColumns {
    pub(crate) fn push(&mut self, event: &EventView<'_>) {
        self.sources.extend(event.missing().map(|source| source.0));
        self.offsets.push(self.sources.len() as i64);
    }
}

/// The fragments of each event and, if wanted, their words.
#[derive(Debug)]
pub(crate) struct FragmentColumns {
    /// Sources to keep, sorted; all if there is no list.
    wanted: Option<Vec<u32>>,
    with_words: bool,
    pub(crate) offsets: Vec<i64>,
    pub(crate) sources: Vec<u32>,
    pub(crate) statuses: Vec<u32>,
    pub(crate) word_counts: Vec<u32>,
    pub(crate) word_offsets: Vec<i64>,
    pub(crate) words: Vec<u32>,
}

impl FragmentColumns {
    pub(crate) fn new(mut wanted: Option<Vec<u32>>, with_words: bool) -> Self {
        if let Some(sources) = &mut wanted {
            sources.sort_unstable();
        }
        Self {
            wanted,
            with_words,
            offsets: vec![0],
            sources: Vec::new(),
            statuses: Vec::new(),
            word_counts: Vec::new(),
            word_offsets: vec![0],
            words: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, event: &EventView<'_>) {
        for (entry, words) in event.fragments() {
            let source = entry.source.0;
            if self
                .wanted
                .as_ref()
                .is_some_and(|wanted| wanted.binary_search(&source).is_err())
            {
                continue;
            }
            self.sources.push(source);
            self.statuses.push(entry.status.0);
            self.word_counts.push(entry.words);
            if self.with_words {
                self.words.extend_from_slice(words);
                self.word_offsets.push(self.words.len() as i64);
            }
        }
        self.offsets.push(self.sources.len() as i64);
    }
}

/// The physics objects of each event, over all its fragments, in the order of their index.
#[derive(Debug)]
pub(crate) struct ObjectColumns {
    pub(crate) offsets: Vec<i64>,
    pub(crate) kinds: Vec<u16>,
    /// pt, eta, phi, charge, dxy.
    pub(crate) values: [Vec<f32>; 5],
    /// Fragments flagged by the receiver, and object blocks that contradict themselves: what
    /// objects they carry is not known, as for the dimuon filter.
    pub(crate) unreadable: u64,
    event: Vec<PhysicsObject>,
}

impl Default for ObjectColumns {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            kinds: Vec::new(),
            values: Default::default(),
            unreadable: 0,
            event: Vec::new(),
        }
    }
}

impl ObjectColumns {
    pub(crate) fn push(&mut self, event: &EventView<'_>) {
        self.event.clear();
        for (entry, words) in event.fragments() {
            let fragment = FragmentView::new_checked(words).ok();
            let Some(fragment) = fragment.filter(|_| entry.status.is_good()) else {
                self.unreadable += 1;
                continue;
            };
            if fragment.data().first() != Some(&object::MAGIC) {
                // Another front-end's data: no objects, and nothing wrong.
                continue;
            }
            match ObjectBlockView::new_checked(fragment.data()) {
                Ok(block) => self.event.extend(block.objects()),
                Err(_) => self.unreadable += 1,
            }
        }
        self.event.sort_by_key(|object| object.index);
        for object in &self.event {
            self.kinds.push(object.kind as u16);
            let values = [object.pt, object.eta, object.phi, object.charge, object.dxy];
            self.values
                .iter_mut()
                .zip(values)
                .for_each(|(column, value)| column.push(value));
        }
        self.offsets.push(self.kinds.len() as i64);
    }
}
