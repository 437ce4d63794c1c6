//! The hosts: a unit with what is around it.

use std::collections::VecDeque;
use std::sync::Arc;

use livetime_builder::barrel_shifter::Piece;
use livetime_builder::{
    AcceptLog, BlockAssemblers, BuilderConfig, BuilderUnit, EventManager, Handled, ReadoutUnit,
    ShiftSchedule,
};
use livetime_wire::message::FragmentDescriptor;
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{DurationNs, RunNs, SourceId, TriggerNumber};

use super::adapter::{Adapter, Sending};
use super::check::words;
use super::control::{LettersOut, Server};
use super::{BuilderNetwork, Shaping};
use crate::time::{DurationPs, SimPs};

/// The epoch in which every unit begins.
pub(super) const FIRST_EPOCH: u32 = 1;

/// Which life of a unit this is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) epoch: u32,
    pub(super) began: SimPs,
}

impl Life {
    pub(super) const FIRST: Self = Self {
        epoch: FIRST_EPOCH,
        began: SimPs::ZERO,
    };

    /// The next one begins now.
    pub(super) const fn next(self, now: SimPs) -> Self {
        Self {
            epoch: self.epoch + 1,
            began: now,
        }
    }
}

/// How far the loss of a builder unit is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// It lives, or nobody knows that it does not.
    Unnoticed,
    /// Its events are about to be given to others.
    Settling,
    /// Nothing of its life counts any more.
    Settled,
}

/// A control message that came, or is to go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Letter {
    /// Not before this.
    pub(super) ready: SimPs,
    pub(super) text: u32,
    pub(super) sequence: u32,
}

/// The host of a readout unit. What a message touches when it comes is within one cache line, and the
/// first lines of the unit follow it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct ReadoutHost {
    /// Messages that the processor works on; a message and a request of each credit at most.
    pub(super) inbox: VecDeque<Letter>,
    pub(super) processor: Server,
    /// Triggers whose fragments the unit was offered: up to this number.
    pub(super) fed: u64,
    /// A fragment that found no room in its shaper.
    pub(super) kept: Option<(usize, Sending, SourceId)>,
    pub(super) unit: ReadoutUnit,
    /// It does nothing, and whether the others know that.
    pub(super) is_dead: bool,
    pub(super) is_gone: bool,
    pub(super) life: Life,
    /// Triggers up to this one were given before its present life.
    pub(super) joined_after: TriggerNumber,
}

/// An event in a filter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finishing {
    pub(super) trigger: TriggerNumber,
    pub(super) triggered_at: RunNs,
    pub(super) words: u64,
    pub(super) skew: DurationNs,
    /// When the filter is through with it.
    pub(super) done: SimPs,
    pub(super) is_complete: bool,
    /// It is the first step of an event alone.
    pub(super) is_first_step: bool,
}

/// The host of a builder unit, and the filter behind it. What a block touches comes first, and the
/// first lines of the unit follow it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct BuilderHost {
    pub(super) is_dead: bool,
    pub(super) bus: Server,
    pub(super) processor: Server,
    /// By rail and readout unit.
    pub(super) assemblers: BlockAssemblers,
    pub(super) unit: BuilderUnit,
    /// Its link to the control network, and what is on it.
    pub(super) link: Server,
    pub(super) letters: LettersOut,
    /// Messages that wait for the other direction of the data network, with their ports.
    pub(super) outbox: VecDeque<(u32, Letter)>,
    /// That direction waits for one.
    pub(super) is_idle: bool,
    pub(super) filter: Server,
    /// Time of the filter for an event.
    pub(super) event_time: DurationPs,
    /// Events in the filter, at most its credits.
    pub(super) finishing: VecDeque<Finishing>,
    pub(super) done_sequence: u32,
    /// Events that went through the filter while counting.
    pub(super) counted: u64,
    /// Events that it has released after their first step: if it dies, what it had to say of them to
    /// readout units of the second step may die with it.
    pub(super) released: Vec<TriggerNumber>,
    pub(super) held_max: usize,
    pub(super) loss: Loss,
    /// Its epoch is that of the next life as soon as its loss is settled.
    pub(super) life: Life,
    /// It is about to look for work.
    pub(super) is_ticking: bool,
}

impl BuilderHost {
    pub(super) fn new(unit: BuilderUnit, assemblers: usize, event_time: DurationPs) -> Self {
        Self {
            unit,
            processor: Server::default(),
            bus: Server::default(),
            link: Server::default(),
            letters: LettersOut::default(),
            outbox: VecDeque::new(),
            is_idle: true,
            assemblers: BlockAssemblers::new(assemblers),
            filter: Server::default(),
            event_time,
            finishing: VecDeque::new(),
            done_sequence: 0,
            is_dead: false,
            counted: 0,
            released: Vec::new(),
            held_max: 0,
            loss: Loss::Unnoticed,
            life: Life::FIRST,
            is_ticking: false,
        }
    }

    /// Begins its next life, with nothing in it; `assemblers` as many as there were.
    pub(super) fn begin_again(&mut self, unit: BuilderUnit, assemblers: usize, now: SimPs) {
        self.unit = unit;
        self.assemblers = BlockAssemblers::new(assemblers);
        (self.processor, self.bus) = (self.processor.stopped(now), self.bus.stopped(now));
        (self.done_sequence, self.life.began) = (0, now);
        (self.is_dead, self.loss) = (false, Loss::Unnoticed);
    }
}

/// Fragments that come to a builder unit together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Intake {
    pub(super) fragments: u64,
    pub(super) bytes: u64,
    /// Those of them that the unit did not take.
    pub(super) refused: u64,
}

impl Intake {
    /// Hands a whole fragment to its builder unit.
    #[inline]
    pub(super) fn hand_in(
        &mut self,
        unit: &mut BuilderUnit,
        now: SimPs,
        readout: u16,
        whole: &Piece,
    ) {
        self.fragments += 1;
        self.bytes += u64::from(whole.total);
        let fragment = FragmentDescriptor {
            source: whole.source,
            pool: readout,
            words: words(whole.total),
            status: FragmentStatus::GOOD,
            crc: 0,
            pages: Default::default(),
        };
        let handled = unit.handle_next_fragment(now.to_run_ns(), readout, whole.trigger, &fragment);
        self.refused += u64::from(handled != Handled::Taken);
    }
}

/// The host of the event manager, and the supervisor before it.
#[derive(Debug)]
pub(super) struct ManagerHost {
    pub(super) unit: EventManager,
    pub(super) processor: Server,
    pub(super) link: Server,
    /// Triggers given; their numbers are 1 to this.
    pub(super) given: u64,
    pub(super) is_dead: bool,
    pub(super) life: Life,
    /// What the supervisor keeps for the next event manager, where this one is to die.
    pub(super) accepts: Option<AcceptLog>,
}

impl ManagerHost {
    pub(super) fn new(config: &BuilderConfig, is_to_die: bool) -> Self {
        let mut unit = EventManager::new(config, FIRST_EPOCH);
        let accepts = is_to_die.then(|| {
            unit.report_closed();
            AcceptLog::new(config)
        });
        Self {
            unit,
            processor: Server::default(),
            link: Server::default(),
            given: 0,
            is_dead: false,
            life: Life::FIRST,
            accepts,
        }
    }
}

/// The hosts of all readout units.
pub(super) fn readout_hosts(config: &BuilderConfig) -> Vec<ReadoutHost> {
    let host = |unit| ReadoutHost {
        unit: ReadoutUnit::lean(config, unit, FIRST_EPOCH),
        fed: 0,
        processor: Server::default(),
        inbox: VecDeque::new(),
        kept: None,
        is_dead: false,
        is_gone: false,
        life: Life::FIRST,
        joined_after: TriggerNumber(0),
    };
    (0..config.readout_units.len() as u16).map(host).collect()
}

/// The adapters of all readout units, by unit and rail.
pub(super) fn adapters(
    plan: &BuilderNetwork,
    config: &BuilderConfig,
    schedule: ShiftSchedule,
    rails: usize,
) -> Vec<Adapter> {
    // Twice the credits: repetitions may wait behind what they repeat.
    let queue = 2 * plan.credits as usize;
    let most = (queue, 2 * config.trigger_window as usize);
    let schedule = Arc::new(schedule);
    let adapter = |unit| Adapter::new(plan.shaping, &schedule, unit, most, plan.barrier_retry);
    (0..config.readout_units.len() * rails)
        .map(|number| adapter((number / rails) as u16))
        .collect()
}

/// What a builder unit puts blocks together with: one for each rail and readout unit.
pub(super) fn assemblers_per_builder(
    plan: &BuilderNetwork,
    readouts: usize,
    rails: usize,
) -> usize {
    match plan.shaping {
        Shaping::BarrelShifter { .. } => rails * readouts,
        _ => 0,
    }
}

/// The hosts of all builder units.
pub(super) fn builder_hosts(
    plan: &BuilderNetwork,
    config: &BuilderConfig,
    rails: usize,
) -> Vec<BuilderHost> {
    let assemblers = assemblers_per_builder(plan, config.readout_units.len(), rails);
    let all = u32::from(config.builder_units);
    let units = BuilderUnit::counting_units(config, FIRST_EPOCH);
    let host = |(unit, core)| {
        let factor = match plan.sick.is_slow(unit, all) {
            true => plan.sick.slow_factor,
            false => 1.0,
        };
        let event_time = DurationPs((plan.hosts.event.0 as f64 * factor) as u64);
        BuilderHost::new(core, assemblers, event_time)
    };
    (0..config.builder_units).zip(units).map(host).collect()
}
