//! The function generators of the daemon: one master, fed by control, started by bus tags.
//!
//! They live on a thread of their own behind one lock that control shares and the core never
//! takes: start tags come from the core through a bounded ring with the time of their action, so
//! that a waveform's times are exact however late this thread looks. All times here are the machine's,
//! which faults of the receiver's clock do not move. What a generator does is in
//! `livetime_timing::function_generator`. Whoever feeds it first owns it; when the owner goes, its
//! waveforms are aborted and its queues thrown away.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use livetime_shm::Doorbell;
use livetime_timing::function_generator::{
    Appended, FunctionGenerator, GeneratorConfig, GeneratorState, MasterError,
    MasterFunctionGenerator, MasterOutput,
};
use livetime_timing::{AccessError, Caller, ClientId, Operation, Ownership, authorise};
use livetime_wire::TaiNs;
use livetime_wire::timing_coefficient::{CoefficientBlockError, CoefficientBlockView};

use crate::tai_clock::TaiClock;

/// Start tags that can be under way from the core.
pub const TAGS_MAX: usize = 256;
/// Bytes of a block of coefficient sets at most: 64 channels of 16 384 sets, and the header.
pub const BLOCK_BYTES_MAX: usize = 64 * 16_384 * 12 + 4 * (2 + 64);
/// Longest sleep: the firmware's queue lasts 6 ms at least after it asked for more.
const SLEEP_MAX: Duration = Duration::from_millis(2);
/// Sleep while nothing is armed or running.
const SLEEP_IDLE: Duration = Duration::from_millis(200);

/// Why the generators refused.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorsError {
    /// The caller may not.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The block has another form.
    #[error(transparent)]
    Block(#[from] CoefficientBlockError),
    /// The master refuses: channel and index are named.
    #[error(transparent)]
    Master(#[from] MasterError),
}

/// A start tag from the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartTag {
    /// When its action was executed, in the machine's time.
    pub at: TaiNs,
    /// The tag.
    pub tag: u32,
}

#[derive(Debug)]
struct State {
    master: MasterFunctionGenerator,
    tags: rtrb::Consumer<StartTag>,
    ownership: Ownership,
}

/// The generators of one receiver.
#[derive(Debug)]
pub struct Generators {
    state: Mutex<State>,
    bell: Doorbell,
    clock: TaiClock,
}

impl Generators {
    /// Generators, all disabled, whose start tags come through `tags`; `bell` is rung with them.
    pub fn new(
        members: usize,
        config: GeneratorConfig,
        tags: rtrb::Consumer<StartTag>,
        bell: Doorbell,
        clock: TaiClock,
    ) -> Self {
        Self {
            state: Mutex::new(State {
                master: MasterFunctionGenerator::new(members, config),
                tags,
                ownership: Ownership::FIXED,
            }),
            bell,
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that drives the generators, as a caller who owns them from then on.
    fn drive<R>(
        &self,
        caller: &Caller,
        drive: impl FnOnce(&mut MasterFunctionGenerator, TaiNs) -> Result<R, GeneratorsError>,
    ) -> Result<R, GeneratorsError> {
        let mut state = self.lock();
        authorise(caller, Operation::DriveGenerator, Some(&state.ownership))?;
        let done = drive(&mut state.master, self.clock.now())?;
        state.ownership = Ownership::created_by(caller.client);
        drop(state);
        self.bell.ring();
        Ok(done)
    }

    /// Appends a block of coefficient sets to the members that take part: all of it or nothing.
    ///
    /// # Errors
    /// [`GeneratorsError`] with channel and index of what is wrong.
    pub fn append(&self, caller: &Caller, block: &[u8]) -> Result<Appended, GeneratorsError> {
        let block = CoefficientBlockView::new_checked(block)?;
        self.drive(caller, |master, now| Ok(master.append_block(now, &block)?))
    }

    /// Appends a block and arms the members that have data, without anybody in between.
    ///
    /// # Errors
    /// [`GeneratorsError`]; nothing of the block is taken when arming is refused.
    pub fn append_and_arm(
        &self,
        caller: &Caller,
        block: &[u8],
    ) -> Result<Appended, GeneratorsError> {
        let block = CoefficientBlockView::new_checked(block)?;
        self.drive(caller, |master, now| {
            Ok(master.append_block_and_arm(now, &block)?)
        })
    }

    /// Chooses the members that take part, in the order of channels.
    ///
    /// # Errors
    /// [`GeneratorsError`].
    pub fn set_active(&self, caller: &Caller, members: &[usize]) -> Result<(), GeneratorsError> {
        self.drive(caller, |master, _| Ok(master.set_active(members)?))
    }

    /// Sets the tag that starts them.
    ///
    /// # Errors
    /// [`GeneratorsError`].
    pub fn set_start_tag(&self, caller: &Caller, tag: u32) -> Result<(), GeneratorsError> {
        self.drive(caller, |master, _| Ok(master.set_start_tag(tag)?))
    }

    /// Chooses whether signals of single members are given.
    ///
    /// # Errors
    /// [`GeneratorsError`].
    pub fn set_individual_signals(
        &self,
        caller: &Caller,
        wanted: bool,
    ) -> Result<(), GeneratorsError> {
        self.drive(caller, |master, _| {
            master.set_individual_signals(wanted);
            Ok(())
        })
    }

    /// Arms every member that has data; a signal tells when all are, or which are not.
    ///
    /// # Errors
    /// [`GeneratorsError`].
    pub fn arm(&self, caller: &Caller) -> Result<(), GeneratorsError> {
        self.drive(caller, |master, now| Ok(master.arm(now)?))
    }

    /// Aborts what is armed or running; a signal tells when all have stopped. An admin may abort
    /// what another client drives; whose they are stays as it was.
    ///
    /// # Errors
    /// [`GeneratorsError`].
    pub fn abort(&self, caller: &Caller) -> Result<(), GeneratorsError> {
        self.stop(caller, |master, now| {
            master.abort(now);
            Ok(())
        })
    }

    /// Throws the queues away; an admin may those of another client.
    ///
    /// # Errors
    /// [`GeneratorsError`].
    pub fn flush(&self, caller: &Caller) -> Result<(), GeneratorsError> {
        self.stop(caller, |master, _| Ok(master.flush()?))
    }

    fn stop(
        &self,
        caller: &Caller,
        stop: impl FnOnce(&mut MasterFunctionGenerator, TaiNs) -> Result<(), GeneratorsError>,
    ) -> Result<(), GeneratorsError> {
        let mut state = self.lock();
        authorise(caller, Operation::StopGenerator, Some(&state.ownership))?;
        stop(&mut state.master, self.clock.now())?;
        drop(state);
        self.bell.ring();
        Ok(())
    }

    /// A client is gone: what it drove is aborted, and what it queued is thrown away. Returns
    /// whether that was anything.
    pub fn client_gone(&self, client: ClientId) -> bool {
        let mut state = self.lock();
        if state.ownership.owner != Some(client) {
            return false;
        }
        state.ownership = Ownership::FIXED;
        let now = self.clock.now();
        state.master.clear_away(now);
        drop(state);
        self.bell.ring();
        true
    }

    /// Looks at the members.
    pub fn read<R>(&self, look: impl FnOnce(&[FunctionGenerator]) -> R) -> R {
        look(self.lock().master.members())
    }

    /// Who drives them.
    pub fn ownership(&self) -> Ownership {
        self.lock().ownership
    }

    /// One turn: start tags in, outputs to `handle`. Returns whether anything is going on.
    pub fn turn(&self, handle: &mut impl FnMut(MasterOutput)) -> bool {
        let mut outputs = Vec::new();
        let busy = {
            let mut state = self.lock();
            let now = self.clock.now();
            while let Ok(StartTag { at, tag }) = state.tags.pop() {
                state.master.handle_start_tag(at, tag);
            }
            while let Some(output) = state.master.poll_output(now) {
                outputs.push(output);
            }
            let members = state.master.members();
            members
                .iter()
                .any(|member| member.state() != GeneratorState::Disabled)
        };
        outputs.into_iter().for_each(handle);
        busy
    }

    /// Has [`Generators::run`] look at once whether it is to stop.
    pub fn wake(&self) {
        self.bell.ring();
    }

    /// Turns until told to stop.
    pub fn run(&self, stopping: &impl Fn() -> bool, mut handle: impl FnMut(MasterOutput)) {
        while !stopping() {
            let ticket = self.bell.ticket();
            let busy = self.turn(&mut handle);
            let sleep = if busy { SLEEP_MAX } else { SLEEP_IDLE };
            self.bell.wait(ticket, sleep);
        }
    }
}
