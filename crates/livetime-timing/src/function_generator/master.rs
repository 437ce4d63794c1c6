//! The master: 1 to 64 function generators driven as one.
//!
//! One call appends to all members or to none; arming and aborting are jobs that end with one
//! output, by success or by time-out; `AllStopped` comes exactly once per cycle, however many
//! members stop in the same nanosecond, and after it every member can be armed again at once.
//! Signals of single members are given on request only, to save the control connection.

use livetime_wire::timing_coefficient::{
    BLOCK_CHANNELS, CoefficientBlockError, CoefficientBlockView,
};
use livetime_wire::{CoefficientSet, TaiNs};

use super::firmware::FirmwareFault;
use super::generator::{
    Appended, FunctionGenerator, GeneratorConfig, GeneratorError, GeneratorSignal, GeneratorState,
};

/// Members as a bit mask, member 0 in bit 0.
pub type MemberMask = u64;

/// What the master tells its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MasterOutput {
    /// A signal of one member, if those are wanted.
    Member {
        /// Which member, from 0.
        member: usize,
        /// Its signal.
        signal: GeneratorSignal,
    },
    /// A member asks for more data.
    Refill {
        /// Which member, from 0.
        member: usize,
        /// When its waveform ends without more.
        dry_at: TaiNs,
    },
    /// Every member that has data is armed: the end of an arm job.
    AllArmed,
    /// Some members did not acknowledge arming: the end of an arm job.
    ArmTimeout {
        /// Which.
        missing: MemberMask,
    },
    /// Every member of the cycle has stopped.
    AllStopped {
        /// When the last one stopped.
        time: TaiNs,
        /// Members that were aborted.
        aborted: MemberMask,
        /// Members that ran dry.
        underflow: MemberMask,
    },
}

/// Why the master does not do what it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MasterError {
    /// Wrong number of members or channels.
    #[error("{found} channels for {expected} active function generators")]
    Channels {
        /// Channels given.
        found: usize,
        /// Active members.
        expected: usize,
    },
    /// A member that does not exist, or twice the same.
    #[error("member {member} is not usable here; there are {members}, each at most once")]
    Member {
        /// The member asked for.
        member: usize,
        /// Members there are.
        members: usize,
    },
    /// The bytes are not a block of coefficient sets.
    #[error(transparent)]
    Block(#[from] CoefficientBlockError),
    /// More sets than all queues hold.
    #[error("{sets} sets in all, allowed is {max}")]
    Sets {
        /// Sets given.
        sets: usize,
        /// Sets that the copy can hold.
        max: usize,
    },
    /// A member refuses.
    #[error("channel {channel}: {error}")]
    Generator {
        /// Which channel of the call, from 0.
        channel: usize,
        /// Why.
        error: GeneratorError,
    },
}

/// Function generators driven as one.
#[derive(Debug, Clone)]
pub struct MasterFunctionGenerator {
    members: Vec<FunctionGenerator>,
    /// Members that take part, in the order of channels.
    active: Vec<usize>,
    individual_signals: bool,
    /// Sets copied out of a client's memory before they are checked.
    copy: Vec<CoefficientSet>,
    copy_max: usize,
    /// Members of the arm job in progress that have not answered.
    arming: MemberMask,
    arm_missing: MemberMask,
    arm_job: bool,
    /// Members armed in this cycle, and those of them that have stopped.
    cycle: MemberMask,
    stopped: MemberMask,
    aborted: MemberMask,
    underflow: MemberMask,
    last_stop: TaiNs,
    /// Of each member, how many of the signals that wait were taken in already, from the front.
    taken: Vec<usize>,
    /// An aggregate output that waits to be fetched.
    pending: [Option<MasterOutput>; 2],
}

impl MasterFunctionGenerator {
    /// A master of equal members, all active. Allocates all it ever will.
    ///
    /// # Panics
    /// If there are not 1 to 64 members.
    pub fn new(members: usize, config: GeneratorConfig) -> Self {
        assert!(
            (1..=BLOCK_CHANNELS).contains(&members),
            "a master has 1 to 64 members"
        );
        let copy_max = members * config.queue;
        Self {
            // Made one by one: a clone would have only the capacity it needs.
            members: (0..members)
                .map(|_| FunctionGenerator::new(config))
                .collect(),
            active: (0..members).collect(),
            individual_signals: false,
            copy: Vec::with_capacity(copy_max),
            copy_max,
            arming: 0,
            arm_missing: 0,
            arm_job: false,
            cycle: 0,
            stopped: 0,
            aborted: 0,
            underflow: 0,
            last_stop: TaiNs(0),
            taken: vec![0; members],
            pending: [None; 2],
        }
    }

    /// The members.
    pub fn members(&self) -> &[FunctionGenerator] {
        &self.members
    }

    /// The members that take part, in the order of channels.
    pub fn active(&self) -> &[usize] {
        &self.active
    }

    /// Breaks or repairs the emulated hardware of a member.
    pub fn set_fault(&mut self, member: usize, fault: FirmwareFault) {
        if let Some(member) = self.members.get_mut(member) {
            member.set_fault(fault);
        }
    }

    /// Chooses whether signals of single members are given.
    pub fn set_individual_signals(&mut self, wanted: bool) {
        self.individual_signals = wanted;
    }

    /// Chooses the members that take part, in the order of channels.
    ///
    /// # Errors
    /// [`MasterError::Member`] for one that does not exist or comes twice,
    /// [`MasterError::Generator`] if one of all is not disabled.
    pub fn set_active(&mut self, active: &[usize]) -> Result<(), MasterError> {
        self.need_disabled()?;
        let mut seen: MemberMask = 0;
        for member in active {
            if *member >= self.members.len() || seen & bit(*member) != 0 {
                return Err(MasterError::Member {
                    member: *member,
                    members: self.members.len(),
                });
            }
            seen |= bit(*member);
        }
        self.active.clear();
        self.active.extend_from_slice(active);
        Ok(())
    }

    /// Sets the start tag of all members that take part.
    ///
    /// # Errors
    /// [`MasterError::Generator`] if one of them is not disabled; then none is changed.
    pub fn set_start_tag(&mut self, tag: u32) -> Result<(), MasterError> {
        self.need_disabled()?;
        self.for_active(|member| member.set_start_tag(tag))
    }

    /// Throws the queues of all members that take part away.
    ///
    /// # Errors
    /// [`MasterError::Generator`] if one of them is not disabled; then none is changed.
    pub fn flush(&mut self) -> Result<(), MasterError> {
        self.need_disabled()?;
        self.for_active(FunctionGenerator::flush)
    }

    /// Appends the channels of a block to the members that take part: all of them, or nothing.
    /// The sets are copied once, and the copy is checked.
    ///
    /// # Errors
    /// [`MasterError`] naming the channel and the index of what is wrong.
    pub fn append_block(
        &mut self,
        now: TaiNs,
        block: &CoefficientBlockView<'_>,
    ) -> Result<Appended, MasterError> {
        let channels = block.channels();
        self.need_channels(channels)?;
        self.end_aborts(now);
        let sets: usize = (0..channels).map(|channel| block.sets_of(channel)).sum();
        if sets > self.copy_max {
            return Err(MasterError::Sets {
                sets,
                max: self.copy_max,
            });
        }
        self.copy.clear();
        for channel in 0..channels {
            for set in block.sets(channel) {
                self.copy.push(set?);
            }
        }
        let copy = core::mem::take(&mut self.copy);
        let result = self.append_ranges(now, &copy, |channel| block.sets_of(channel));
        self.copy = copy;
        result
    }

    /// Appends to the members that take part: all of them, or nothing.
    ///
    /// # Errors
    /// As [`MasterFunctionGenerator::append_block`].
    pub fn append(
        &mut self,
        now: TaiNs,
        channels: &[&[CoefficientSet]],
    ) -> Result<Appended, MasterError> {
        self.need_channels(channels.len())?;
        self.end_aborts(now);
        let mut all = no_findings();
        for (channel, sets) in channels.iter().enumerate() {
            let member = &self.members[self.active[channel]];
            let one = member
                .check(now, sets)
                .map_err(|error| MasterError::Generator { channel, error })?;
            merge(&mut all, &one);
        }
        for (channel, sets) in channels.iter().enumerate() {
            self.members[self.active[channel]].append_checked(sets);
        }
        Ok(all)
    }

    fn end_aborts(&mut self, now: TaiNs) {
        for member in &mut self.members {
            member.end_abort(now);
        }
    }

    fn append_ranges(
        &mut self,
        now: TaiNs,
        copy: &[CoefficientSet],
        sets_of: impl Fn(usize) -> usize,
    ) -> Result<Appended, MasterError> {
        let mut all = no_findings();
        let mut rest = copy;
        for (channel, member) in self.active.iter().enumerate() {
            let (sets, after) = rest.split_at(sets_of(channel));
            rest = after;
            let one = self.members[*member]
                .check(now, sets)
                .map_err(|error| MasterError::Generator { channel, error })?;
            merge(&mut all, &one);
        }
        let mut rest = copy;
        for (channel, member) in self.active.iter().enumerate() {
            let (sets, after) = rest.split_at(sets_of(channel));
            rest = after;
            self.members[*member].append_checked(sets);
        }
        Ok(all)
    }

    /// Appends as [`MasterFunctionGenerator::append_block`] and arms as
    /// [`MasterFunctionGenerator::arm`]: both, or nothing.
    ///
    /// # Errors
    /// Those of both.
    pub fn append_block_and_arm(
        &mut self,
        now: TaiNs,
        block: &CoefficientBlockView<'_>,
    ) -> Result<Appended, MasterError> {
        self.need_channels(block.channels())?;
        // First, so that a block whose arming is refused is not taken.
        self.check_arm(now, |channel| block.sets_of(channel))?;
        let appended = self.append_block(now, block)?;
        self.arm(now)?;
        Ok(appended)
    }

    /// Whether [`MasterFunctionGenerator::arm`] would do it once so many sets more are queued in
    /// each channel.
    fn check_arm(&mut self, now: TaiNs, more: impl Fn(usize) -> usize) -> Result<(), MasterError> {
        self.collect(now);
        self.need_disabled()?;
        let mut has_data = false;
        for (channel, member) in self.active.iter().enumerate() {
            let member = &self.members[*member];
            if member.queued() + more(channel) == 0 {
                continue;
            }
            has_data = true;
            member
                .need_room_for_signals()
                .map_err(|error| MasterError::Generator { channel, error })?;
        }
        match has_data {
            true => Ok(()),
            false => Err(MasterError::Generator {
                channel: 0,
                error: GeneratorError::Empty,
            }),
        }
    }

    /// Arms every active member that has data, as a job: [`MasterOutput::AllArmed`] or
    /// [`MasterOutput::ArmTimeout`] ends it.
    ///
    /// # Errors
    /// [`MasterError::Generator`] if a member is not disabled or none has data (then it is the
    /// first channel's); nothing is armed in that case.
    pub fn arm(&mut self, now: TaiNs) -> Result<(), MasterError> {
        self.check_arm(now, |_| 0)?;
        self.arm_job = true;
        (self.arming, self.arm_missing) = (0, 0);
        (self.cycle, self.stopped) = (0, 0);
        (self.aborted, self.underflow) = (0, 0);
        for channel in 0..self.active.len() {
            let member = self.active[channel];
            if self.members[member].queued() == 0 {
                continue;
            }
            self.members[member]
                .arm(now)
                .map_err(|error| MasterError::Generator { channel, error })?;
            self.arming |= bit(member);
            self.cycle |= bit(member);
        }
        Ok(())
    }

    /// Aborts every member that is doing something; [`MasterOutput::AllStopped`] tells the end.
    pub fn abort(&mut self, now: TaiNs) {
        self.collect(now);
        for member in &mut self.members {
            member.abort(now);
        }
    }

    /// Aborts as [`MasterFunctionGenerator::abort`] and throws away what is queued in any member:
    /// nothing is left of what whoever fed them has queued. Which members take part, their start tag
    /// and the choice of signals stay as they are.
    pub fn clear_away(&mut self, now: TaiNs) {
        self.abort(now);
        for member in &mut self.members {
            // Those that are busy throw their queues away when they have stopped.
            let _is_busy = member.flush().is_err();
        }
    }

    /// A start tag appears on the bus. Returns the members that it started.
    pub fn handle_start_tag(&mut self, at: TaiNs, tag: u32) -> MemberMask {
        let mut started = 0;
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.handle_start_tag(at, tag) {
                started |= bit(index);
            }
        }
        started
    }

    /// The next output up to `now`. Call until `None`.
    pub fn poll_output(&mut self, now: TaiNs) -> Option<MasterOutput> {
        for index in 0..self.members.len() {
            while let Some(signal) = self.members[index].poll_output(now) {
                match self.taken[index].checked_sub(1) {
                    Some(rest) => self.taken[index] = rest,
                    None => self.take_in(index, signal),
                }
                if let GeneratorSignal::Refill { dry_at } = signal {
                    return Some(MasterOutput::Refill {
                        member: index,
                        dry_at,
                    });
                }
                if self.individual_signals {
                    return Some(MasterOutput::Member {
                        member: index,
                        signal,
                    });
                }
            }
        }
        self.pending.iter_mut().find_map(Option::take)
    }

    /// When to poll again.
    pub fn poll_timeout(&self) -> Option<TaiNs> {
        if self.pending.iter().any(Option::is_some) {
            return Some(self.last_stop);
        }
        self.members
            .iter()
            .filter_map(FunctionGenerator::poll_timeout)
            .min()
    }

    /// Takes in what members have to say before a new job, so that the job meets their true state and no
    /// signal of the one before is taken for its own. What the owner is to have waits on to be fetched.
    fn collect(&mut self, now: TaiNs) {
        for index in 0..self.members.len() {
            self.members[index].advance(now);
            let mut at = self.taken[index];
            while let Some(signal) = self.members[index].waiting_signal(at) {
                self.take_in(index, signal);
                at += 1;
            }
            if !self.individual_signals {
                self.members[index].forget_signals();
            }
            self.taken[index] = self.members[index].waiting();
        }
    }

    fn take_in(&mut self, index: usize, signal: GeneratorSignal) {
        match signal {
            GeneratorSignal::Armed(true) => self.answer_arming(index, true),
            GeneratorSignal::Stopped {
                time,
                abort,
                hardware_underflow,
                controller_underflow,
            } => {
                self.answer_arming(index, false);
                self.stopped |= bit(index) & self.cycle;
                if abort {
                    self.aborted |= bit(index);
                }
                if hardware_underflow || controller_underflow {
                    self.underflow |= bit(index);
                }
                self.last_stop = self.last_stop.max(time);
                if self.cycle != 0 && self.stopped == self.cycle {
                    self.cycle = 0;
                    self.pending[1] = Some(MasterOutput::AllStopped {
                        time: self.last_stop,
                        aborted: self.aborted,
                        underflow: self.underflow,
                    });
                }
            }
            _ => {}
        }
    }

    fn answer_arming(&mut self, index: usize, armed: bool) {
        if self.arming & bit(index) == 0 {
            return;
        }
        self.arming &= !bit(index);
        if !armed {
            self.arm_missing |= bit(index);
        }
        if self.arming == 0 && self.arm_job {
            self.arm_job = false;
            self.pending[0] = Some(match self.arm_missing {
                0 => MasterOutput::AllArmed,
                missing => MasterOutput::ArmTimeout { missing },
            });
        }
    }

    fn need_channels(&self, found: usize) -> Result<(), MasterError> {
        let expected = self.active.len();
        if found == expected {
            Ok(())
        } else {
            Err(MasterError::Channels { found, expected })
        }
    }

    fn need_disabled(&self) -> Result<(), MasterError> {
        for (channel, member) in self.active.iter().enumerate() {
            let found = self.members[*member].state();
            if found != GeneratorState::Disabled {
                let needed = GeneratorState::Disabled;
                return Err(MasterError::Generator {
                    channel,
                    error: GeneratorError::State { found, needed },
                });
            }
        }
        Ok(())
    }

    fn for_active(
        &mut self,
        mut change: impl FnMut(&mut FunctionGenerator) -> Result<(), GeneratorError>,
    ) -> Result<(), MasterError> {
        for channel in 0..self.active.len() {
            change(&mut self.members[self.active[channel]])
                .map_err(|error| MasterError::Generator { channel, error })?;
        }
        Ok(())
    }
}

fn bit(member: usize) -> MemberMask {
    1 << member
}

fn no_findings() -> Appended {
    Appended {
        low_fill: false,
        warnings: 0,
        first_warning: None,
    }
}

fn merge(all: &mut Appended, one: &Appended) {
    all.low_fill |= one.low_fill;
    all.warnings += one.warnings;
    all.first_warning = all.first_warning.or(one.first_warning);
}
