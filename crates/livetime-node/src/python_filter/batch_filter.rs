//! A filter that judges batches: two of them in turn, and the event on which it fails.
//!
//! One batch is filled while the other is judged; when it is full it is asked about already. When the interpreter dies of a batch, takes too
//! long, raises an exception or returns what is no verdict, the batch is taken again in halves, until
//! the events are found that it cannot judge; those are failed, with the reason, and all others are
//! judged without them. It holds no pages: who fills it does. The process is in
//! [`super::interpreter`].

use std::collections::VecDeque;
use std::time::Duration;

use livetime_shm::{PagePool, WordsError};
use livetime_trigger::FilterOutput;
use livetime_wire::event::EventAccess;
use livetime_wire::{DurationNs, RunNs, TriggerNumber};

use super::PythonConfig;
use super::batch_arena::{BatchArena, SLOTS};
use super::batch_columns::{BatchColumns, BatchRow, TABLE_WORDS};
use super::filter_fill::{FilterFill, FilterHistograms};
use super::interpreter::{Heard, Interpreter, Request, SharedRegions, Surroundings, pool_bases};
use super::printed_output::PrintedBytes;
use crate::process::FilterFailure;

/// Why an event is kept or not.
pub const REASONS: [&str; 2] = ["kept", "dropped"];
/// How long an interpreter may take to load its filter.
const LOAD_PATIENCE: Duration = Duration::from_secs(60);
/// Most time that one look adds to the filter's, so that a machine that stood still blames nobody.
const STEP_MAX: u64 = 100_000_000;
/// Interpreters, or lives of one, that do not get as far as a request, one after the other, until no
/// other is started.
const STARTS_MAX: u32 = 3;
/// Failures of a unit that are told with their reasons; all are counted.
const TOLD_MAX: u64 = 200;
/// Words of a slot for the columns of a batch, besides those of its fragments.
const SLOT_WORDS_MIN: usize = 1 << 18;

/// Why a Python filter cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PythonFilterError {
    /// The interpreter was not started by the system.
    #[error("cannot start {interpreter}: {error}")]
    Start {
        /// The interpreter.
        interpreter: String,
        /// Why.
        error: std::io::Error,
    },
    /// It ended, or did not come up in time.
    #[error("{0}")]
    Load(String),
    /// No memory for batches.
    #[error("no memory for batches: {0}")]
    Memory(#[from] WordsError),
}

/// What is known of an event when its batch is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchVerdict {
    /// The filter's answer.
    Judged(FilterOutput),
    /// The filter fails on it: it goes to the error stream.
    Failed,
}

/// How far a batch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Empty,
    Filling,
    Asking,
    Judged,
}

#[derive(Debug)]
struct Batch {
    stage: Stage,
    triggers: Vec<TriggerNumber>,
    failed: Vec<bool>,
    verdicts_at: usize,
    /// Ranges that are still to be judged, the next one last.
    ranges: Vec<(usize, usize)>,
}

/// What was asked and is not answered.
#[derive(Debug)]
struct Asked {
    request: Request,
    spent_ns: u64,
    over_time: bool,
    fills: Vec<FilterFill>,
}

/// What a filter did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchCounts {
    /// Batches judged.
    pub batches: u64,
    /// Requests answered, those of parts of batches included.
    pub requests: u64,
    /// Events whose verdicts are in the histograms.
    pub events: u64,
    /// Events that the filter failed on.
    pub failed: u64,
    /// Exceptions and results that were no verdict.
    pub exceptions: u64,
    /// Deaths of its process.
    pub deaths: u64,
    /// Deaths because it worked for too long.
    pub over_time: u64,
    /// Processes that it forked.
    pub forks: u64,
    /// Time in the filter itself, without that of making its columns \[ns\].
    pub filter_ns: u64,
    /// Time in which questions were open \[ns\].
    pub asked_ns: u64,
}

/// A filter of batches, with its interpreter.
pub struct BatchFilter {
    role: String,
    config: PythonConfig,
    surroundings: Surroundings,
    pools: Vec<PagePool>,
    bases: Vec<usize>,
    arena: BatchArena,
    columns: BatchColumns,
    interpreter: Option<Interpreter>,
    /// Whether the interpreter takes requests.
    alive: bool,
    /// Whether the present life is to be killed.
    life_killed: bool,
    /// Interpreters and lives in a row that did not come up or died with requests that they had not
    /// begun, and how long the present one takes \[ns\].
    starts_failed: u32,
    loading_ns: u64,
    work_ns: u64,
    /// Why no other interpreter is started.
    broken: Option<String>,
    batches: [Batch; SLOTS],
    /// Slot that is filled next, and slot that is judged next.
    filling: usize,
    judging: usize,
    batch_max: usize,
    wait: DurationNs,
    /// In the order of the questions; the interpreter works on the first.
    asked: VecDeque<Asked>,
    sequence: u64,
    last_poll: RunNs,
    /// Of the single event in question: how the interpreter died of it.
    deaths: Vec<String>,
    forks_of_life: u64,
    printed: PrintedBytes,
    counts: BatchCounts,
    failures: Vec<FilterFailure>,
    histograms: FilterHistograms,
}

/// Bounds of what a filter is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchBounds {
    /// Fragments of an event at most.
    pub sources: usize,
    /// Words of an event at most.
    pub event_words: usize,
    /// Events that whoever fills it can hold at a time.
    pub events: usize,
}

impl BatchFilter {
    /// Starts the interpreter of filter unit `role` and waits until its filter is loaded.
    ///
    /// # Errors
    /// [`PythonFilterError`] when there is no interpreter, or it cannot load the filter.
    pub fn start(
        role: &str,
        config: &PythonConfig,
        bounds: BatchBounds,
        pools: Vec<PagePool>,
        surroundings: Surroundings,
    ) -> Result<Self, PythonFilterError> {
        let printed = PrintedBytes::default();
        let started = Interpreter::start(role, config, &surroundings, &printed);
        let mut interpreter = started.map_err(|error| PythonFilterError::Start {
            interpreter: config.interpreter.display().to_string(),
            error,
        })?;
        let Heard::Loaded { batch, wait_ms } = wait_for(&mut interpreter)? else {
            return Err(PythonFilterError::Load("it said something else".to_owned()));
        };
        let own = usize::try_from(batch).unwrap_or(usize::MAX);
        let wanted = config.batch.unwrap_or(own).clamp(1, super::BATCH_MAX);
        // Two batches have to fit into what may be held: one is filled while one is judged.
        let batch_max = wanted.min((bounds.events / SLOTS).max(1));
        let wait = config.wait.unwrap_or(DurationNs((wait_ms * 1e6) as u64));
        let of_event = BatchColumns::words_of_event(bounds.sources, bounds.event_words);
        let of_fragments = batch_max * (16 + bounds.sources * 4);
        let arena = BatchArena::new(TABLE_WORDS + SLOT_WORDS_MIN + of_fragments + 2 * of_event)?;
        let mut filter = Self {
            role: role.to_owned(),
            config: config.clone(),
            surroundings,
            bases: pool_bases(&arena, &pools),
            pools,
            arena,
            columns: BatchColumns::default(),
            interpreter: None,
            alive: false,
            life_killed: false,
            starts_failed: 0,
            loading_ns: 0,
            work_ns: 0,
            broken: None,
            batches: std::array::from_fn(|_| Batch::with_capacity(batch_max)),
            filling: 0,
            judging: 0,
            batch_max,
            wait,
            asked: VecDeque::with_capacity(SLOTS),
            sequence: 0,
            last_poll: RunNs(0),
            deaths: Vec::new(),
            forks_of_life: 0,
            printed,
            counts: BatchCounts::default(),
            failures: Vec::new(),
            histograms: FilterHistograms::default(),
        };
        filter.begin(&mut interpreter);
        match wait_for(&mut interpreter)? {
            Heard::Alive => filter.alive = true,
            _ => return Err(PythonFilterError::Load("it said something else".to_owned())),
        }
        filter.interpreter = Some(interpreter);
        Ok(filter)
    }

    fn begin(&self, interpreter: &mut Interpreter) {
        let regions = SharedRegions::new(&self.arena, &self.pools);
        // One that takes nothing is gone, which is heard.
        let _gone = interpreter.begin(&self.config, &self.surroundings.faults, &regions);
    }

    /// Most events of a batch.
    pub fn batch_max(&self) -> usize {
        self.batch_max
    }

    /// Longest time for which events wait for their batch to be full.
    pub fn wait(&self) -> DurationNs {
        self.wait
    }

    /// The slot that takes events, with the events that it has; `None` when both are busy.
    pub fn filling(&self) -> Option<(usize, usize)> {
        let batch = &self.batches[self.filling];
        let takes = matches!(batch.stage, Stage::Empty | Stage::Filling);
        takes.then_some((self.filling, batch.triggers.len()))
    }

    /// Whether an event still fits into the batch that is filled; an empty batch takes any.
    pub fn has_room_for(&self, event: &dyn EventAccess) -> bool {
        let batch = &self.batches[self.filling];
        batch.triggers.is_empty()
            || (batch.triggers.len() < self.batch_max
                && self.columns.has_room_for(event, self.arena.slot_words()))
    }

    /// Word of a page's beginning in the memory that the interpreter sees.
    pub fn word_of_page(&self, pool: usize, page: u32) -> Option<u64> {
        let (base, of) = (self.bases.get(pool)?, self.pools.get(pool)?);
        let first = (base + of.data_offset()) as u64 / 4;
        Some(first + u64::from(page) * of.page_words() as u64)
    }

    /// Takes an event into the batch that is filled; returns whether the batch is full now.
    ///
    /// # Panics
    /// If there is no room: see [`BatchFilter::filling`] and [`BatchFilter::has_room_for`].
    pub fn push(
        &mut self,
        event: &dyn EventAccess,
        row: BatchRow,
        place: impl Fn(&Self, usize) -> Option<u64>,
    ) -> bool {
        let mut columns = std::mem::take(&mut self.columns);
        let batch = &mut self.batches[self.filling];
        assert!(
            batch.triggers.len() < self.batch_max,
            "the caller looked for room"
        );
        if batch.stage == Stage::Empty {
            batch.stage = Stage::Filling;
            columns.clear();
        }
        batch.triggers.push(event.trigger());
        columns.push(event, row, |fragment| place(self, fragment));
        self.columns = columns;
        self.batches[self.filling].triggers.len() == self.batch_max
    }

    /// Ends the batch that is filled: it is to be judged.
    pub fn close_batch(&mut self) {
        let batch = &mut self.batches[self.filling];
        if batch.stage != Stage::Filling {
            return;
        }
        let count = batch.triggers.len();
        batch.verdicts_at = self.columns.lay_out(&mut self.arena.slot(self.filling));
        batch.failed.clear();
        batch.failed.resize(count, false);
        batch.ranges.clear();
        batch.ranges.push((0, count));
        batch.stage = Stage::Asking;
        self.filling = (self.filling + 1) % SLOTS;
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.batches.iter().all(|batch| batch.stage == Stage::Empty)
    }

    /// Events of the batch in a slot.
    pub fn batch_len(&self, slot: usize) -> usize {
        self.batches[slot].triggers.len()
    }

    /// Events held.
    pub fn held(&self) -> usize {
        self.batches.iter().map(|batch| batch.triggers.len()).sum()
    }

    /// A batch whose events have verdicts, and how many they are; batches come in their order.
    pub fn judged(&self) -> Option<(usize, usize)> {
        let batch = &self.batches[self.judging];
        (batch.stage == Stage::Judged).then_some((self.judging, batch.triggers.len()))
    }

    /// The verdict on an event of a judged batch.
    pub fn verdict(&self, slot: usize, nth: usize) -> BatchVerdict {
        let batch = &self.batches[slot];
        if batch.failed.get(nth).copied().unwrap_or(true) {
            return BatchVerdict::Failed;
        }
        let word = self.arena.verdict(slot, batch.verdicts_at, nth);
        let accept = word & 1 << 16 != 0;
        BatchVerdict::Judged(FilterOutput {
            accept,
            reason: u16::from(!accept),
            // What the interpreter writes is input: the error stream is not its to give.
            streams: (word & 0x7FFF) as u16,
        })
    }

    /// Forgets the judged batch in `slot`.
    pub fn forget(&mut self, slot: usize) {
        self.batches[slot].triggers.clear();
        self.batches[slot].stage = Stage::Empty;
        self.judging = (slot + 1) % SLOTS;
    }

    /// Gives up what has no verdict, since the run is ended by force: whoever holds the events
    /// counts them as lost.
    pub fn abandon(&mut self) {
        self.interpreter = None;
        self.asked.clear();
        self.alive = false;
        self.broken = Some("the run was ended".to_owned());
        for batch in &mut self.batches {
            if batch.stage != Stage::Judged {
                batch.triggers.clear();
                batch.stage = Stage::Empty;
            }
        }
    }

    /// Time in which its interpreter was loading or had a question, within its limits \[ns\].
    pub fn work_ns(&self) -> u64 {
        self.work_ns
    }

    /// Hears the interpreter and asks it on; returns the work done.
    pub fn poll(&mut self, now: RunNs) -> usize {
        let mut work = 0;
        let passed = now.since(self.last_poll).0.min(STEP_MAX);
        self.last_poll = now;
        while let Some(heard) = self.interpreter.as_mut().and_then(Interpreter::poll) {
            work += 1;
            self.hear(heard);
        }
        if let Some(asked) = self.asked.front_mut() {
            asked.spent_ns += passed;
            if !asked.over_time {
                self.work_ns += passed;
            }
            if asked.spent_ns > self.config.time_limit.0 && !asked.over_time {
                asked.over_time = true;
                if let Some(interpreter) = &mut self.interpreter {
                    interpreter.kill_life(asked.request.sequence);
                    self.life_killed = true;
                }
            }
        }
        self.watch_load(passed);
        work + self.ask_next()
    }

    /// An interpreter that does not come up is replaced.
    fn watch_load(&mut self, passed: u64) {
        if self.alive || self.interpreter.is_none() {
            self.loading_ns = 0;
            return;
        }
        self.loading_ns += passed;
        self.work_ns += passed;
        if Duration::from_nanos(self.loading_ns) > LOAD_PATIENCE {
            self.interpreter = None;
            self.loading_ns = 0;
            self.count_failed_start("the filter did not load in time");
        }
    }

    fn count_failed_start(&mut self, how: &str) {
        self.starts_failed += 1;
        if self.starts_failed >= STARTS_MAX {
            self.broken = Some(format!("the interpreter does not start again: {how}"));
        }
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Loaded { .. } => {
                if let Some(mut interpreter) = self.interpreter.take() {
                    self.begin(&mut interpreter);
                    self.interpreter = Some(interpreter);
                }
            }
            Heard::Alive => {
                // Said of a life before it does anything: that it came up is known when it has begun a
                // request.
                (self.alive, self.forks_of_life) = (true, 0);
                self.life_killed = false;
            }
            Heard::Fill(fill) => {
                if let Some(asked) = self.asked.front_mut() {
                    asked.fills.push(fill);
                }
            }
            Heard::Done {
                sequence,
                filter_ns,
                forks,
            } => self.take_answer(sequence, filter_ns, forks),
            Heard::Failed {
                sequence,
                reason,
                traceback,
            } => {
                if let Some(asked) = self.take_asked(sequence) {
                    self.counts.exceptions += 1;
                    self.blame(asked.request, reason, traceback, 0);
                }
            }
            Heard::Died(how) => self.lose_life(how),
            Heard::Gone(how) => {
                self.interpreter = None;
                if !self.alive {
                    self.count_failed_start(&how);
                }
                self.lose_life(how);
            }
        }
    }

    /// What was asked under this number.
    fn take_asked(&mut self, sequence: u64) -> Option<Asked> {
        let first = self.asked.front()?;
        let asked = (first.request.sequence == sequence).then(|| self.asked.pop_front())?;
        self.starts_failed = 0;
        asked
    }

    fn take_answer(&mut self, sequence: u64, filter_ns: u64, forks: u64) {
        let Some(asked) = self.take_asked(sequence) else {
            return;
        };
        self.counts.requests += 1;
        self.counts.filter_ns += filter_ns;
        self.counts.asked_ns += asked.spent_ns;
        self.counts.forks += forks.saturating_sub(self.forks_of_life);
        self.forks_of_life = forks;
        self.counts.events += (asked.request.last - asked.request.first) as u64;
        asked
            .fills
            .iter()
            .for_each(|fill| self.histograms.add(fill));
        self.deaths.clear();
        self.conclude(asked.request.slot);
    }

    /// A life has ended. Only what it had begun is to blame; of one that was killed only what it was
    /// killed for, since it may have answered that, and begun another request, as it was killed.
    fn lose_life(&mut self, how: String) {
        self.alive = false;
        self.counts.deaths += 1;
        let (was_asked, mut has_begun) = (!self.asked.is_empty(), false);
        let in_work = self.arena.in_work();
        while let Some(asked) = self.asked.pop_front() {
            let Request {
                slot, first, last, ..
            } = asked.request;
            has_begun |= in_work == asked.request.sequence || asked.over_time;
            let is_to_blame = in_work == asked.request.sequence && !self.life_killed;
            if !is_to_blame && !asked.over_time {
                self.batches[slot].ranges.push((first, last));
                continue;
            }
            let how = match asked.over_time {
                true => {
                    self.counts.over_time += 1;
                    format!("killed: it worked for more than {}", self.config.time_limit)
                }
                false => how.clone(),
            };
            self.blame(asked.request, how, String::new(), self.config.retries);
        }
        if has_begun {
            self.starts_failed = 0;
        } else if was_asked {
            self.count_failed_start(&how);
            if self.broken.is_some() {
                // Its supervisor would start one life after the other.
                self.interpreter = None;
            }
        }
    }

    /// The filter has failed on the events of a request: on one of them, or they are taken in halves.
    fn blame(&mut self, request: Request, reason: String, traceback: String, retries: u32) {
        let Request {
            slot, first, last, ..
        } = request;
        let batch = &mut self.batches[slot];
        if last - first > 1 {
            let middle = first.midpoint(last);
            batch.ranges.push((middle, last));
            batch.ranges.push((first, middle));
            return;
        }
        self.deaths.push(reason);
        if self.deaths.len() <= retries as usize {
            batch.ranges.push((first, last));
            return;
        }
        batch.failed[first] = true;
        let trigger = batch.triggers[first];
        self.fail(trigger, traceback);
        self.conclude(slot);
    }

    fn fail(&mut self, trigger: TriggerNumber, traceback: String) {
        self.counts.failed += 1;
        let deaths = std::mem::take(&mut self.deaths).into_iter();
        if self.counts.failed <= TOLD_MAX {
            self.failures.push(FilterFailure {
                trigger,
                deaths: deaths.map(|how| (self.role.clone(), how)).collect(),
                traceback,
            });
        }
    }

    /// A batch without further ranges is judged.
    fn conclude(&mut self, slot: usize) {
        let batch = &mut self.batches[slot];
        if batch.ranges.is_empty() && batch.stage == Stage::Asking {
            batch.stage = Stage::Judged;
            self.counts.batches += 1;
        }
    }

    /// Whether a whole batch may be asked about behind another that is being judged: not while
    /// the event is looked for on which the filter fails.
    fn may_ask_ahead(&self, slot: usize) -> bool {
        let is_whole = |slot: usize, range: (usize, usize)| {
            let batch = &self.batches[slot];
            range == (0, batch.triggers.len()) && batch.ranges.len() <= 1
        };
        let first = self.asked.front().map(|asked| asked.request);
        self.asked.len() == 1
            && self.deaths.is_empty()
            && first.is_some_and(|first| is_whole(first.slot, (first.first, first.last)))
            && (self.batches[slot].ranges.last()).is_some_and(|range| is_whole(slot, *range))
    }

    /// Asks about the next range, or starts an interpreter to ask.
    fn ask_next(&mut self) -> usize {
        let mut slots = (0..SLOTS).map(|nth| (self.judging + nth) % SLOTS);
        let is_open = |slot: &usize| {
            let batch = &self.batches[*slot];
            batch.stage == Stage::Asking && !batch.ranges.is_empty()
        };
        let Some(slot) = slots.find(is_open) else {
            return 0;
        };
        if !self.asked.is_empty() && !self.may_ask_ahead(slot) {
            return 0;
        }
        if let Some(reason) = self.broken.clone() {
            self.fail_rest(slot, &reason);
            return 1;
        }
        if self.interpreter.is_none() {
            return self.start_again();
        }
        if !self.alive {
            return 0;
        }
        let Some((first, last)) = self.batches[slot].ranges.pop() else {
            return 0;
        };
        self.sequence += 1;
        let request = Request {
            slot,
            first,
            last,
            sequence: self.sequence,
        };
        let sent = self
            .interpreter
            .as_mut()
            .map(|interpreter| interpreter.ask(&request));
        self.asked.push_back(Asked {
            request,
            spent_ns: 0,
            over_time: false,
            fills: Vec::new(),
        });
        // A life that takes nothing is dead, which is heard.
        usize::from(matches!(sent, Some(Ok(()))))
    }

    fn start_again(&mut self) -> usize {
        match Interpreter::start(&self.role, &self.config, &self.surroundings, &self.printed) {
            Ok(interpreter) => self.interpreter = Some(interpreter),
            Err(error) => self.count_failed_start(&error.to_string()),
        }
        1
    }

    /// Without an interpreter no event has a verdict.
    fn fail_rest(&mut self, slot: usize, reason: &str) {
        while let Some((first, last)) = self.batches[slot].ranges.pop() {
            for nth in first..last {
                self.batches[slot].failed[nth] = true;
                self.deaths = vec![reason.to_owned()];
                let trigger = self.batches[slot].triggers[nth];
                self.fail(trigger, String::new());
            }
        }
        self.conclude(slot);
    }

    /// The events that the filter failed on since the last question, as far as they are told.
    pub fn take_failures(&mut self) -> Vec<FilterFailure> {
        std::mem::take(&mut self.failures)
    }

    /// The histograms that the filter has filled.
    pub fn histograms(&self) -> &FilterHistograms {
        &self.histograms
    }

    /// What it did.
    pub fn counts(&self) -> BatchCounts {
        self.counts
    }

    /// Bytes that its interpreters have printed.
    pub fn printed_bytes(&self) -> u64 {
        self.printed.get()
    }
}

impl Batch {
    fn with_capacity(events: usize) -> Self {
        Self {
            stage: Stage::Empty,
            triggers: Vec::with_capacity(events),
            failed: Vec::with_capacity(events),
            verdicts_at: 0,
            ranges: Vec::with_capacity(64),
        }
    }
}

/// Waits for the first word of an interpreter that was just started.
fn wait_for(interpreter: &mut Interpreter) -> Result<Heard, PythonFilterError> {
    let until = std::time::Instant::now() + LOAD_PATIENCE;
    loop {
        match interpreter.poll() {
            Some(Heard::Gone(why) | Heard::Died(why)) => return Err(PythonFilterError::Load(why)),
            Some(heard) => return Ok(heard),
            None if std::time::Instant::now() > until => {
                let waited = LOAD_PATIENCE.as_secs();
                let why = format!("the filter did not load within {waited} s");
                return Err(PythonFilterError::Load(why));
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
