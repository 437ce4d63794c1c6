//! Events of front-ends that are not ours: what they send, put together trigger by trigger.
//!
//! Each source sends a frame for each trigger, in its own order and time; a window of triggers is
//! open at once, and the one in front, the *head*, is handed on when each source has sent its part,
//! or will not:
//!
//! ```text
//! frames -> [ head | +1 | +2 | .. ] -> begin -> write, a fragment a link -> release
//!            one place for each source     a frame behind the window waits with its sender
//! ```
//!
//! Until each source was heard once nothing is handed on, so that front-ends may be started in any
//! order. From then on a head waits for the configured time for what is missing, from when it became
//! the head: a front-end that is slow, and holds the others up, loses nothing. Who has sent nothing
//! then is taken for silent, and not waited for until it sends again, and nothing that is later than a
//! window: a board that has died, or begins with 1 again, costs one wait, and its fragments are empty
//! with a bit in their status. Who has sent later triggers has left
//! this one out, or a network has lost it: that is waited for from the first of these on, so that gaps
//! are waited for together, and no more once the source is a whole window ahead. So after a pause in
//! which all have gone on the head follows them, by triggers without data. A caller that stood still is
//! no reason to give anything up. Frames of triggers that have passed, and second ones, are dropped and
//! counted.
//!
//! Conserved: kept = used + discarded + those that wait.

use livetime_wire::fragment::{FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::front_end_frame::{FrameContent, FrameRefusal, FrontEndFrame, STATUS_ABSENT};
use livetime_wire::object::{ObjectBlockView, PhysicsObject};
use livetime_wire::{DurationNs, EventNumber, Problem, RunNs, RunNumber, SourceId, TriggerNumber};

use crate::fragment_writer::FragmentTrigger;
use crate::problem_code::FRONT_ENDS;
use crate::source_event::{OBJECTS_MAX, SourceEvent, SourceObject};

/// Most triggers that may be open at once.
const QUEUE_MAX: u32 = 65_536;
/// Largest azimuth, pi as a float has it.
const PHI_MAX: f32 = std::f32::consts::PI;
/// Longest wait.
const WAIT_MAX: DurationNs = DurationNs(3600 * DurationNs::SECOND.0);
/// Triggers that a frame may be ahead of the head: more than a long pause leaves out. The head follows
/// by as many triggers without data.
const AHEAD_MAX: u64 = 1 << 24;
/// The same before the first trigger: who begins further on has not begun with 1.
const AHEAD_MAX_AT_FIRST: u64 = 1 << 17;
/// A head that waits for longer than this is worth telling: each waits for the slowest front-end.
const WORTH_TELLING: DurationNs = DurationNs(100 * DurationNs::MILLISECOND.0);
/// A caller that looks later than this has stood still.
const STANDSTILL: DurationNs = DurationNs(10 * DurationNs::MILLISECOND.0);

/// How frames become events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontEndEventsConfig {
    /// Triggers that are open at once, 1 to 65 536: so far one front-end may be ahead of another.
    /// Default 64.
    pub queue: u32,
    /// How long a trigger waits for the sources that have not sent theirs, above 0 to 1 h.
    /// Default 1 s.
    pub wait: DurationNs,
}

impl Default for FrontEndEventsConfig {
    fn default() -> Self {
        Self {
            queue: 64,
            wait: DurationNs::SECOND,
        }
    }
}

impl FrontEndEventsConfig {
    /// Bytes that the open triggers may take, of so many sources with at most `data_bytes` each: so much is
    /// there when all front-ends but one are ahead of it as far as they may be.
    pub fn memory_bytes(&self, sources: u64, data_bytes: u64) -> u64 {
        let of_part = data_bytes.saturating_add(size_of::<Part>() as u64);
        let of_trigger = of_part.saturating_mul(sources);
        of_trigger.saturating_mul(self.queue.into())
    }

    /// Every problem of it; `path` is its key path.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(1..=QUEUE_MAX).contains(&self.queue) {
            problems.push(Problem::new(
                FRONT_ENDS,
                format!("{path}.queue"),
                self.queue,
                format!("1 to {QUEUE_MAX}"),
                "64 triggers let front-ends be some milliseconds ahead of each other",
            ));
        }
        if self.wait.0 == 0 || self.wait > WAIT_MAX {
            problems.push(Problem::new(
                FRONT_ENDS,
                format!("{path}.wait"),
                self.wait,
                format!("above 0 to {WAIT_MAX}"),
                "longer than the slowest front-end takes to send a fragment; 1 s suits most",
            ));
        }
        problems
    }
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameTaken {
    /// It is kept, or was an end.
    Kept,
    /// Its trigger is handed on already: dropped.
    Late,
    /// Its source has sent one for this trigger already: dropped.
    Twice,
    /// Its trigger is behind the window: it was not taken, and may come again.
    Ahead,
}

/// What has been done with frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrontEndCounts {
    /// Frames with data that were kept.
    pub kept: u64,
    /// Of these, those whose triggers were handed on.
    pub used: u64,
    /// Of these, those whose triggers were never handed on, at the end of the run.
    pub discarded: u64,
    /// Fragments that are empty since their source sent nothing.
    pub absent: u64,
    /// Of these, those of sources that had sent later triggers.
    pub passed_over: u64,
    /// Frames whose triggers had been handed on.
    pub late: u64,
    /// Frames of triggers for which their source had sent one.
    pub twice: u64,
    /// Frames that were refused.
    pub refused: u64,
}

/// A source.
#[derive(Debug, Clone, Copy)]
struct Sender {
    id: SourceId,
    /// Its link.
    link: usize,
    is_heard: bool,
    /// A head has waited for it in vain.
    is_silent: bool,
    /// It has ended after this trigger.
    ended: Option<TriggerNumber>,
    /// The trigger of its last frame.
    last: TriggerNumber,
    /// The last trigger of which its data were kept.
    newest: TriggerNumber,
    /// It was silent before this trigger: what it lacks there does not come.
    since: TriggerNumber,
    /// For which head it was looked up when it went past it, and when that was.
    passed: (TriggerNumber, RunNs),
}

impl Sender {
    /// Whether nothing of it is waited for, by a head with so many open triggers.
    fn is_excused(&self, head: TriggerNumber, window: u64) -> bool {
        self.is_silent
            || head < self.since
            || self.ended.is_some_and(|last| last < head)
            || self.last.0.saturating_sub(head.0) >= window
    }

    /// Whether something of it is still to come: it is ahead, or has said which trigger is its last.
    fn is_expected(&self, head: TriggerNumber, window: u64) -> bool {
        let ends_within =
            |last: TriggerNumber| (head.0..head.0.saturating_add(window)).contains(&last.0);
        self.last >= head || self.ended.is_some_and(ends_within)
    }
}

/// The data of one source for one trigger.
#[derive(Debug, Clone, Default)]
struct Part {
    is_here: bool,
    came_at: RunNs,
    event_type: u32,
    status: u32,
    words: Vec<u32>,
}

/// One open trigger.
#[derive(Debug, Clone)]
struct OpenTrigger {
    here: usize,
    /// By link.
    parts: Vec<Part>,
}

/// Puts frames together.
#[derive(Debug, Clone)]
pub struct FrontEndEvents {
    wait: DurationNs,
    run: RunNumber,
    words_max: usize,
    /// By link.
    sources: Vec<SourceId>,
    /// In the order of their ids.
    senders: Vec<Sender>,
    /// Trigger `n` has its place at `n mod` their number.
    open: Vec<OpenTrigger>,
    head: TriggerNumber,
    /// The head is handed on, and its fragments are being written.
    is_begun: bool,
    /// Since when the head waits for what is missing, once it does.
    waits_since: Option<RunNs>,
    /// When it was last looked whether the head can be handed on, and how much longer it waits since
    /// that was long ago.
    looked_at: RunNs,
    pardoned: DurationNs,
    unheard: usize,
    silent: usize,
    counts: FrontEndCounts,
}

impl FrontEndEvents {
    /// For these sources, in the order of their links, and fragments of at most `fragment_words`
    /// words with header and trailer; `config` has been validated.
    pub fn new(
        config: &FrontEndEventsConfig,
        run: RunNumber,
        sources: &[SourceId],
        fragment_words: usize,
    ) -> Self {
        let links = sources.iter().copied().enumerate();
        let mut senders: Vec<Sender> = links
            .map(|(link, id)| Sender {
                id,
                link,
                is_heard: false,
                is_silent: false,
                ended: None,
                last: TriggerNumber(0),
                newest: TriggerNumber(0),
                since: TriggerNumber(0),
                passed: (TriggerNumber(0), RunNs(0)),
            })
            .collect();
        senders.sort_unstable_by_key(|sender| sender.id);
        let trigger = OpenTrigger {
            here: 0,
            parts: vec![Part::default(); sources.len()],
        };
        Self {
            wait: config.wait,
            run,
            words_max: fragment_words.saturating_sub(OVERHEAD_WORDS),
            sources: sources.to_vec(),
            unheard: senders.len(),
            silent: 0,
            senders,
            open: vec![trigger; config.queue.max(1) as usize],
            head: TriggerNumber(1),
            is_begun: false,
            waits_since: None,
            looked_at: RunNs(0),
            pardoned: DurationNs(0),
            counts: FrontEndCounts::default(),
        }
    }

    /// The trigger that is put together now: earlier ones are handed on.
    pub fn head(&self) -> TriggerNumber {
        TriggerNumber(self.head.0 + u64::from(self.is_begun))
    }

    /// Most data words of a frame.
    pub fn words_max(&self) -> usize {
        self.words_max
    }

    /// The run.
    pub fn run(&self) -> RunNumber {
        self.run
    }

    /// Whether a frame can be taken, and how many data words belong to it.
    ///
    /// # Errors
    /// Why it is refused; counted.
    pub fn check(&mut self, frame: &FrontEndFrame) -> Result<usize, FrameRefusal> {
        let refusal = if frame.run.is_some_and(|run| run != self.run) {
            Some(FrameRefusal::Run)
        } else if self.sender(frame.source).is_none() {
            Some(FrameRefusal::Source)
        } else if frame.data_words() > self.words_max {
            Some(FrameRefusal::TooLong)
        } else if self.is_far(frame) {
            Some(FrameRefusal::Far)
        } else {
            None
        };
        match refusal {
            Some(refusal) => {
                self.counts.refused += 1;
                Err(refusal)
            }
            None => Ok(frame.data_words()),
        }
    }

    /// The words of something that is no frame.
    pub fn count_refused(&mut self) {
        self.counts.refused += 1;
    }

    /// Takes a frame that was checked, and its data.
    pub fn handle_frame(&mut self, now: RunNs, frame: &FrontEndFrame, data: &[u32]) -> FrameTaken {
        let Some(at) = self.sender(frame.source) else {
            return FrameTaken::Late;
        };
        let (head, window) = (self.head(), self.open.len() as u64);
        let sender = &mut self.senders[at];
        self.unheard -= usize::from(!sender.is_heard);
        sender.is_heard = true;
        let FrameContent::Data {
            event_type, status, ..
        } = frame.content
        else {
            sender.ended = Some(frame.trigger.max(sender.ended.unwrap_or_default()));
            return FrameTaken::Kept;
        };
        sender.last = frame.trigger;
        // A front-end that was started again goes on behind the end of its former life.
        sender.ended = sender.ended.filter(|last| *last >= frame.trigger);
        if frame.trigger >= head && frame.trigger.0 - self.head.0 >= window {
            return FrameTaken::Ahead;
        }
        // One whose numbers are a window behind and more, as after a new start with 1, is no use: waited for
        // again it would cost each trigger the whole wait.
        let is_of_use = frame.trigger.0.saturating_add(window) > head.0;
        if is_of_use && core::mem::take(&mut sender.is_silent) {
            sender.since = frame.trigger;
            self.silent -= 1;
        }
        if frame.trigger < head {
            self.counts.late += 1;
            return FrameTaken::Late;
        }
        let open = &mut self.open[(frame.trigger.0 % window) as usize];
        let part = &mut open.parts[sender.link];
        if part.is_here {
            self.counts.twice += 1;
            return FrameTaken::Twice;
        }
        sender.newest = sender.newest.max(frame.trigger);
        part.is_here = true;
        part.came_at = now;
        part.event_type = event_type;
        part.status = status & !STATUS_ABSENT;
        part.words.clear();
        part.words.extend_from_slice(data);
        open.here += 1;
        self.counts.kept += 1;
        FrameTaken::Kept
    }

    /// Whether the head is being handed on.
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Whether the head can be handed on.
    pub fn is_ready(&mut self, now: RunNs) -> bool {
        let looked_at = core::mem::replace(&mut self.looked_at, now);
        if self.is_begun || self.unheard > 0 {
            return false;
        }
        let (head, at, window) = (self.head, self.place(self.head), self.open.len() as u64);
        if self.open[at].here == self.senders.len() {
            return true;
        }
        let mut senders = self.senders.iter();
        if self.waiting() == 0 && !senders.any(|sender| sender.is_expected(head, window)) {
            return false;
        }
        match self.waits_since {
            Some(_) => self.pardon(now.since(looked_at)),
            None => self.waits_since = Some(now),
        }
        let Self { senders, open, .. } = self;
        let missing = senders
            .iter_mut()
            .filter(|sender| !open[at].parts[sender.link].is_here);
        let patience = DurationNs(self.wait.0.saturating_add(self.pardoned.0));
        for sender in missing.filter(|sender| !sender.is_excused(head, window)) {
            let has_passed = sender.newest > head;
            let since = match has_passed {
                true => passed_at(sender, head, open),
                false => self.waits_since,
            };
            if since.is_some_and(|since| now.since(since) < patience) {
                return false;
            }
            sender.is_silent = !has_passed;
            self.silent += usize::from(sender.is_silent);
        }
        true
    }

    /// The caller did not look for so long: what has come meanwhile may not be read. Little of that time
    /// counts, but enough that a caller that is always late ends the wait as well.
    fn pardon(&mut self, not_looked: DurationNs) {
        if not_looked >= STANDSTILL {
            let counted = STANDSTILL.0.min(self.wait.0 / 2);
            let pardoned = self.pardoned.0.saturating_add(not_looked.0 - counted);
            self.pardoned = DurationNs(pardoned);
        }
    }

    fn is_far(&self, frame: &FrontEndFrame) -> bool {
        let most = match self.head.0 {
            1 => AHEAD_MAX_AT_FIRST,
            _ => AHEAD_MAX,
        };
        frame.content != FrameContent::End && frame.trigger.0.saturating_sub(self.head.0) > most
    }

    /// Hands the head on: its objects over the contents of `event`, which Level 2 decides on.
    pub fn begin(&mut self, event: &mut SourceEvent) {
        self.is_begun = true;
        event.run = self.run;
        event.number = EventNumber(self.head.0);
        event.objects.clear();
        let at = self.place(self.head);
        let here = self.open[at].here as u64;
        self.counts.used += here;
        let missing = self.senders.len() as u64 - here;
        if missing > 0 {
            self.counts.absent += missing;
            self.counts.passed_over += self.passed_over(at);
        }
        let parts = self.open[at].parts.iter().filter(|part| part.is_here);
        for part in parts {
            if let Ok(block) = ObjectBlockView::new_checked(&part.words) {
                (event.run, event.number) =
                    (block.header().source_run, block.header().source_event);
                let room = OBJECTS_MAX - event.objects.len();
                let sound = block.objects().filter(is_sound).take(room);
                event
                    .objects
                    .extend(sound.map(|object| source_object(&object)));
            }
        }
    }

    /// Sources without a part of the head, which has its place at `at`, that have sent later triggers.
    fn passed_over(&self, at: usize) -> u64 {
        let parts = &self.open[at].parts;
        let missing = self.senders.iter().filter(|s| !parts[s.link].is_here);
        missing.filter(|sender| sender.last > self.head).count() as u64
    }

    /// Writes the fragment of the trigger that was begun for a link over the contents of `out`.
    pub fn write(&self, link: usize, trigger: &FragmentTrigger, out: &mut Vec<u32>) {
        let at = self.place(self.head);
        let Some(part) = self.open[at].parts.get(link) else {
            return;
        };
        let (words, event_type, status) = match part.is_here {
            true => (&part.words[..], part.event_type, part.status),
            false => (&[][..], trigger.event_type, STATUS_ABSENT),
        };
        let header = FragmentHeader {
            source: self.sources[link],
            run: self.run,
            trigger_low: trigger.trigger.low(),
            bunch: trigger.bunch,
            trigger_type: trigger.trigger_type,
            event_type,
        };
        out.clear();
        out.resize(words.len() + OVERHEAD_WORDS, 0);
        header.emit(status, words.len(), out, |data| data.copy_from_slice(words));
    }

    /// The fragments of the trigger that was begun are on their links; the next one is the head.
    pub fn release(&mut self) {
        if !self.is_begun {
            return;
        }
        let at = self.place(self.head);
        self.open[at].clear();
        self.is_begun = false;
        self.waits_since = None;
        self.pardoned = DurationNs(0);
        self.head.0 += 1;
    }

    /// Whether every source has said that it has ended, and all that they sent was handed on; a last
    /// trigger that an end has overtaken is still to come.
    pub fn is_ended(&self) -> bool {
        let (head, window) = (self.head, self.open.len() as u64);
        let mut senders = self.senders.iter();
        let has_ended = |sender: &Sender| {
            sender.ended.is_some() && (sender.is_silent || !sender.is_expected(head, window))
        };
        senders.all(has_ended) && !self.is_begun && self.waiting() == 0
    }

    /// The run takes no more: what waits is discarded.
    pub fn end(&mut self) {
        let begun = self.is_begun.then(|| self.place(self.head));
        for (at, open) in self.open.iter_mut().enumerate() {
            if Some(at) != begun {
                self.counts.discarded += open.here as u64;
                open.clear();
            }
        }
    }

    /// Frames that are kept and not handed on.
    pub fn waiting(&self) -> u64 {
        self.counts.kept - self.counts.used - self.counts.discarded
    }

    /// Sources that have sent nothing so far.
    pub fn unheard(&self) -> impl Iterator<Item = SourceId> {
        let senders = self.senders.iter().filter(|sender| !sender.is_heard);
        senders.map(|sender| sender.id)
    }

    /// Sources that were waited for in vain and have sent nothing since.
    pub fn silent(&self) -> impl Iterator<Item = SourceId> {
        // In most runs none is, and all are looked through in vain.
        let senders = self.senders.iter().take(match self.silent {
            0 => 0,
            _ => self.senders.len(),
        });
        let silent = senders.filter(|sender| sender.is_silent);
        silent.map(|sender| sender.id)
    }

    /// Sources that hold up the run: those that have sent nothing so far, or those for whose part of
    /// the head more than 100 ms were waited.
    pub fn awaited(&self, now: RunNs) -> impl Iterator<Item = SourceId> {
        let (head, window) = (self.head, self.open.len() as u64);
        let waits_long = |since| now.since(since) > WORTH_TELLING;
        let is_late = !self.is_begun && self.waits_since.is_some_and(waits_long);
        let of_head = &self.open[self.place(head)];
        let senders = self.senders.iter().take(match is_late || self.unheard > 0 {
            true => self.senders.len(),
            false => 0,
        });
        let awaited = senders.filter(move |sender| match self.unheard {
            0 => !of_head.parts[sender.link].is_here && !sender.is_excused(head, window),
            _ => !sender.is_heard,
        });
        awaited.map(|sender| sender.id)
    }

    /// What has been done so far.
    pub fn counts(&self) -> FrontEndCounts {
        self.counts
    }

    fn sender(&self, source: SourceId) -> Option<usize> {
        let found = self.senders.binary_search_by_key(&source, |s| s.id);
        found.ok()
    }

    fn place(&self, trigger: TriggerNumber) -> usize {
        (trigger.0 % self.open.len() as u64) as usize
    }
}

impl OpenTrigger {
    fn clear(&mut self) {
        self.here = 0;
        for part in &mut self.parts {
            part.is_here = false;
        }
    }
}

/// When a source that has sent later triggers sent the first of these that wait; `None` where none does.
fn passed_at(sender: &mut Sender, head: TriggerNumber, open: &[OpenTrigger]) -> Option<RunNs> {
    // Looked up once for each head, as there may be many open triggers.
    if sender.passed.0 != head {
        let parts = open.iter().map(|open| &open.parts[sender.link]);
        let later = parts.filter(|part| part.is_here).map(|part| part.came_at);
        sender.passed = (head, later.min()?);
    }
    Some(sender.passed.1)
}

/// Whether the values of an object are such as a trigger packet can carry.
fn is_sound(object: &PhysicsObject) -> bool {
    let is_finite = [object.pt, object.eta, object.phi, object.charge, object.dxy]
        .iter()
        .all(|value| value.is_finite());
    is_finite && object.pt > 0.0 && object.phi.abs() <= PHI_MAX && object.charge.abs() <= 1.0
}

/// The object for Level 2. A front-end says nothing of its surroundings and fit: isolated, and as good
/// as expected.
fn source_object(object: &PhysicsObject) -> SourceObject {
    SourceObject {
        kind: object.kind,
        pt: object.pt,
        eta: object.eta,
        phi: object.phi,
        charge: object.charge,
        dxy: object.dxy,
        iso: 0.0,
        chi2: 1.0,
    }
}

#[cfg(test)]
mod tests;
