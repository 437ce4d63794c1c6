//! The spill structure at the front-ends: gate, scheduled triggers, read-back fragments.
//!
//! Drives `livetime_timing::Spill` with the time of the run, counted from the TAI of its start if
//! it is aligned to TAI; what happens when is said there. The read-back of a trigger is sampled when
//! the trigger is accepted and written when its link is free. Nothing is allocated after the start.

use livetime_source::FragmentTrigger;
use livetime_timing::{ScheduledTrigger, Spill, SpillCounters};
use livetime_wire::fragment::{FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::timing_read_back::{GENERATORS_MAX, ReadBack, emit, words_of};
use livetime_wire::{RunNs, RunNumber, SourceId, TaiNs};

use crate::chain_config::ChainSpill;

/// The spill structure of a run.
pub struct SpillGate {
    spill: Spill,
    /// Time of the spill at the start of the run.
    origin: TaiNs,
    read_back_link: Option<usize>,
    /// Gate and generators when the present trigger was accepted.
    sampled: (bool, Vec<ReadBack>),
}

impl SpillGate {
    /// The structure at the start of the run; `None` if its configuration is not valid, which the
    /// reader of configurations has refused before.
    pub fn new(config: &ChainSpill) -> Option<Self> {
        Some(Self {
            spill: Spill::new(&config.spill, config.origin).ok()?,
            origin: config.origin,
            read_back_link: config.read_back,
            sampled: (false, Vec::with_capacity(GENERATORS_MAX)),
        })
    }

    fn spill_time(&self, now: RunNs) -> TaiNs {
        TaiNs(self.origin.0 + now.0)
    }

    /// Triggers are taken from `now` on: what the schedule has asked for before is nobody's.
    pub fn begin(&mut self, now: RunNs) {
        self.advance(now);
        self.spill.forget_triggers();
    }

    /// Lets everything happen up to `now`.
    pub fn advance(&mut self, now: RunNs) {
        self.spill.advance(self.spill_time(now));
    }

    /// Whether triggers of the source may be taken.
    pub fn is_open(&self) -> bool {
        self.spill.is_gate_open()
    }

    /// Whether triggers of the source might be taken at a moment before the last advance.
    pub fn was_open(&self, at: RunNs) -> bool {
        self.spill.was_gate_open(self.spill_time(at))
    }

    /// The run takes no more triggers: how many the schedule has asked for that nobody has taken.
    pub fn end(&mut self) -> u64 {
        self.spill.end()
    }

    /// Takes the next trigger that the schedule asks for.
    pub fn poll_trigger(&mut self) -> Option<ScheduledTrigger> {
        self.spill.poll_trigger()
    }

    /// The data link that carries the read-back, if any.
    pub fn read_back_link(&self) -> Option<usize> {
        self.read_back_link
    }

    /// Remembers what the generators and magnets do now.
    pub fn sample(&mut self, now: RunNs) {
        let at = self.spill_time(now);
        let (gate, generators) = &mut self.sampled;
        *gate = self.spill.is_gate_open();
        generators.clear();
        generators.extend(self.spill.read_back(at));
    }

    /// Writes the fragment of the trigger sampled last.
    pub fn write(
        &self,
        run: RunNumber,
        source: SourceId,
        trigger: &FragmentTrigger,
        out: &mut Vec<u32>,
    ) {
        let header = FragmentHeader {
            source,
            run,
            trigger_low: trigger.trigger.low(),
            bunch: trigger.bunch,
            trigger_type: trigger.trigger_type,
            event_type: trigger.event_type,
        };
        let (gate, generators) = &self.sampled;
        let words = words_of(generators.len());
        out.clear();
        out.resize(words + OVERHEAD_WORDS, 0);
        header.emit(0, words, out, |data| {
            emit(*gate, generators.iter().copied(), data);
        });
    }

    /// What has been done.
    pub fn counters(&self) -> SpillCounters {
        self.spill.counters()
    }
}
