//! The spill structure at the simulated front-ends: gate, scheduled triggers, read-back.
//!
//! The same core as in the program, at the times of the simulation, counted from the TAI of the
//! begin-of-run record if it is aligned to TAI; what happens when is said in
//! `livetime_timing::spill`.

use livetime_source::FragmentTrigger;
use livetime_timing::{ScheduledTrigger, Spill};
use livetime_wire::fragment::{FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::timing_read_back::{ReadBack, emit, words_of};
use livetime_wire::{Problem, RunNs, RunNumber, SourceId, TaiNs};

use super::chain_config::SimulatedSpill;

/// What generators and magnets did when a trigger was accepted.
pub(crate) struct Sample {
    gate_open: bool,
    generators: Vec<ReadBack>,
}

/// The spill structure of a simulated run.
pub(crate) struct SpillGate {
    spill: Spill,
    /// Time of the spill at the start of the run.
    origin: TaiNs,
    read_back: Option<(usize, SourceId)>,
}

impl SpillGate {
    /// The structure of a run that starts at `started`.
    pub(crate) fn new(
        config: &SimulatedSpill,
        started: TaiNs,
        sources: &[SourceId],
    ) -> Result<Self, Vec<Problem>> {
        let link = config.read_back;
        let origin = config.spill.align.map_or(TaiNs(0), |_| started);
        Ok(Self {
            spill: Spill::new(&config.spill, origin)?,
            origin,
            read_back: link.and_then(|link| Some((link, *sources.get(link)?))),
        })
    }

    fn spill_time(&self, now: RunNs) -> TaiNs {
        TaiNs(self.origin.0 + now.0)
    }

    /// Lets everything happen up to `now`.
    pub(crate) fn advance(&mut self, now: RunNs) {
        self.spill.advance(self.spill_time(now));
    }

    pub(crate) fn is_open(&self) -> bool {
        self.spill.is_gate_open()
    }

    /// Takes the next trigger that the schedule asks for.
    pub(crate) fn poll_trigger(&mut self) -> Option<ScheduledTrigger> {
        self.spill.poll_trigger()
    }

    /// The run takes no more triggers: how many the schedule has asked for that nobody has taken.
    pub(crate) fn end(&mut self) -> u64 {
        self.spill.end()
    }

    /// When something happens next.
    pub(crate) fn poll_timeout(&self) -> Option<RunNs> {
        let at = self.spill.poll_timeout()?;
        Some(RunNs(at.0.saturating_sub(self.origin.0)))
    }

    /// The data link that carries the read-back, if any.
    pub(crate) fn read_back_link(&self) -> Option<usize> {
        self.read_back.map(|(link, _)| link)
    }

    /// The place of a link among those with detector data.
    pub(crate) fn detector_link(&self, link: usize) -> usize {
        link - usize::from(self.read_back_link().is_some_and(|other| other < link))
    }

    pub(crate) fn sample(&self, now: RunNs) -> Sample {
        Sample {
            gate_open: self.is_open(),
            generators: self.spill.read_back(self.spill_time(now)).collect(),
        }
    }

    /// Writes the fragment of a trigger.
    pub(crate) fn write(
        &self,
        run: RunNumber,
        trigger: &FragmentTrigger,
        sample: &Sample,
        out: &mut Vec<u32>,
    ) {
        let header = FragmentHeader {
            source: self.read_back.map_or(SourceId(0), |(_, source)| source),
            run,
            trigger_low: trigger.trigger.low(),
            bunch: trigger.bunch,
            trigger_type: trigger.trigger_type,
            event_type: trigger.event_type,
        };
        let words = words_of(sample.generators.len());
        out.clear();
        out.resize(words + OVERHEAD_WORDS, 0);
        header.emit(0, words, out, |data| {
            emit(sample.gate_open, sample.generators.iter().copied(), data);
        });
    }
}
