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
//! order. From then on a head waits for the configured time for what is missing. Who has sent
//! nothing then is taken for silent, and not waited for until it sends again: a board that has died
//! costs one wait, and its fragments are empty with a bit in their status. Frames of triggers that
//! have passed, and second ones, are dropped and counted.
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
    /// The last trigger that it has sent a frame for.
    newest: TriggerNumber,
}

impl Sender {
    /// Whether nothing of it is waited for.
    fn is_excused(&self, head: TriggerNumber) -> bool {
        self.is_silent || self.ended.is_some_and(|last| last < head)
    }
}

/// The data of one source for one trigger.
#[derive(Debug, Clone, Default)]
struct Part {
    is_here: bool,
    event_type: u32,
    status: u32,
    words: Vec<u32>,
}

/// One open trigger.
#[derive(Debug, Clone)]
struct OpenTrigger {
    /// When its first frame came.
    first_at: Option<RunNs>,
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
    /// When the first frame came of those that wait, once that was looked for.
    waits_since: Option<RunNs>,
    unheard: usize,
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
                newest: TriggerNumber(0),
            })
            .collect();
        senders.sort_unstable_by_key(|sender| sender.id);
        let trigger = OpenTrigger {
            first_at: None,
            here: 0,
            parts: vec![Part::default(); sources.len()],
        };
        Self {
            wait: config.wait,
            run,
            words_max: fragment_words.saturating_sub(OVERHEAD_WORDS),
            sources: sources.to_vec(),
            unheard: senders.len(),
            senders,
            open: vec![trigger; config.queue.max(1) as usize],
            head: TriggerNumber(1),
            is_begun: false,
            waits_since: None,
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
        let Some(sender) = self.sender(frame.source) else {
            return FrameTaken::Late;
        };
        self.hear(sender);
        let FrameContent::Data {
            event_type, status, ..
        } = frame.content
        else {
            let last = self.senders[sender].ended.get_or_insert(frame.trigger);
            *last = frame.trigger.max(*last);
            return FrameTaken::Kept;
        };
        if frame.trigger < self.head() {
            self.counts.late += 1;
            return FrameTaken::Late;
        }
        let window = self.open.len() as u64;
        if frame.trigger.0 - self.head.0 >= window {
            return FrameTaken::Ahead;
        }
        let sender = &mut self.senders[sender];
        sender.newest = sender.newest.max(frame.trigger);
        let open = &mut self.open[(frame.trigger.0 % window) as usize];
        let part = &mut open.parts[sender.link];
        if part.is_here {
            self.counts.twice += 1;
            return FrameTaken::Twice;
        }
        part.is_here = true;
        part.event_type = event_type;
        part.status = status & !STATUS_ABSENT;
        part.words.clear();
        part.words.extend_from_slice(data);
        open.here += 1;
        open.first_at.get_or_insert(now);
        self.counts.kept += 1;
        FrameTaken::Kept
    }

    /// Whether the head can be handed on.
    pub fn is_ready(&mut self, now: RunNs) -> bool {
        if self.is_begun || self.unheard > 0 || self.waiting() == 0 {
            return false;
        }
        let (head, at) = (self.head, self.place(self.head));
        if self.open[at].here == self.senders.len() {
            return true;
        }
        let first_at = self.open[at].first_at.or(self.waits_since);
        // None has sent this one, but some have sent a later one; what comes from now on is later.
        let first_at = first_at.or_else(|| self.open.iter().filter_map(|o| o.first_at).min());
        let Some(first_at) = first_at else {
            return false;
        };
        self.waits_since = Some(first_at);
        let is_over = now.since(first_at) >= self.wait;
        let parts = &self.open[at].parts;
        let missing = self
            .senders
            .iter_mut()
            .filter(|sender| !parts[sender.link].is_here);
        for sender in missing.filter(|sender| !sender.is_excused(head)) {
            if !is_over {
                return false;
            }
            // One that has sent later ones has left this one out, or lost it.
            sender.is_silent = sender.newest < head;
        }
        true
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
        self.counts.absent += self.senders.len() as u64 - here;
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
        self.head.0 += 1;
    }

    /// Whether every source has said that it has ended, and all that they sent was handed on.
    pub fn is_ended(&self) -> bool {
        let mut senders = self.senders.iter();
        senders.all(|sender| sender.ended.is_some()) && !self.is_begun && self.waiting() == 0
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
        let senders = self.senders.iter().filter(|sender| sender.is_silent);
        senders.map(|sender| sender.id)
    }

    /// What has been done so far.
    pub fn counts(&self) -> FrontEndCounts {
        self.counts
    }

    fn sender(&self, source: SourceId) -> Option<usize> {
        let found = self.senders.binary_search_by_key(&source, |s| s.id);
        found.ok()
    }

    fn hear(&mut self, sender: usize) {
        let sender = &mut self.senders[sender];
        self.unheard -= usize::from(!sender.is_heard);
        sender.is_heard = true;
        sender.is_silent = false;
    }

    fn place(&self, trigger: TriggerNumber) -> usize {
        (trigger.0 % self.open.len() as u64) as usize
    }
}

impl OpenTrigger {
    fn clear(&mut self) {
        self.first_at = None;
        self.here = 0;
        for part in &mut self.parts {
            part.is_here = false;
        }
    }
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCES: [SourceId; 3] = [SourceId(30), SourceId(10), SourceId(20)];
    const WAIT: DurationNs = DurationNs(1000);

    fn events(queue: u32) -> FrontEndEvents {
        let config = FrontEndEventsConfig { queue, wait: WAIT };
        FrontEndEvents::new(&config, RunNumber(7), &SOURCES, 64)
    }

    fn frame(source: u32, trigger: u64, words: usize) -> FrontEndFrame {
        FrontEndFrame {
            run: None,
            source: SourceId(source),
            trigger: TriggerNumber(trigger),
            content: FrameContent::Data {
                words: words as u32,
                event_type: 4,
                status: 2,
            },
        }
    }

    fn end(source: u32, trigger: u64) -> FrontEndFrame {
        FrontEndFrame {
            content: FrameContent::End,
            ..frame(source, trigger, 0)
        }
    }

    /// Sends the data words (source, trigger).
    fn send(events: &mut FrontEndEvents, at: u64, source: u32, trigger: u64) -> FrameTaken {
        let data = [source, trigger as u32];
        let frame = frame(source, trigger, data.len());
        assert_eq!(events.check(&frame), Ok(2));
        events.handle_frame(RunNs(at), &frame, &data)
    }

    /// Hands the head on; the data of each link.
    fn hand_on(events: &mut FrontEndEvents) -> Vec<Vec<u32>> {
        let (mut event, mut out) = (SourceEvent::new(), Vec::new());
        let trigger = FragmentTrigger {
            trigger: events.head(),
            bunch: 1,
            trigger_type: 1,
            event_type: 0,
        };
        events.begin(&mut event);
        let data = (0..SOURCES.len()).map(|link| {
            events.write(link, &trigger, &mut out);
            let check = livetime_wire::fragment::check_parts(
                &[&out],
                livetime_wire::fragment::CrcCheck::On,
            )
            .unwrap();
            assert_eq!(check.header.source, SOURCES[link]);
            assert_eq!(check.header.trigger_low, trigger.trigger.low());
            assert_eq!(check.crc_good, Some(true));
            let words = &out[livetime_wire::fragment::HEADER_WORDS..][..check.data_words];
            let is_absent = check.front_end_status == STATUS_ABSENT;
            assert_eq!(
                (is_absent, check.front_end_status == 2),
                (words.is_empty(), !words.is_empty())
            );
            words.to_vec()
        });
        let data = data.collect();
        events.release();
        data
    }

    #[test]
    fn an_event_is_handed_on_when_all_have_sent_theirs_in_any_order() {
        let mut events = events(4);
        assert_eq!(send(&mut events, 0, 10, 2), FrameTaken::Kept);
        assert_eq!(send(&mut events, 0, 10, 1), FrameTaken::Kept);
        assert_eq!(send(&mut events, 0, 20, 1), FrameTaken::Kept);
        assert!(
            !events.is_ready(RunNs(u64::MAX)),
            "source 30 may not run yet"
        );
        assert_eq!(events.unheard().collect::<Vec<_>>(), [SourceId(30)]);
        assert_eq!(send(&mut events, 5, 30, 1), FrameTaken::Kept);
        assert!(events.is_ready(RunNs(5)));
        assert_eq!(
            hand_on(&mut events),
            [vec![30, 1], vec![10, 1], vec![20, 1]]
        );
        assert!(!events.is_ready(RunNs(6)));
        assert_eq!(events.waiting(), 1);
    }

    #[test]
    fn what_is_missing_is_waited_for_once_and_a_silent_source_no_more() {
        let mut events = events(8);
        for source in [10, 20, 30] {
            send(&mut events, 0, source, 1);
        }
        hand_on(&mut events);
        for trigger in 2..=4 {
            send(&mut events, 100 * trigger, 10, trigger);
            send(&mut events, 100 * trigger, 20, trigger);
        }
        assert!(!events.is_ready(RunNs(200 + WAIT.0 - 1)));
        assert!(events.is_ready(RunNs(200 + WAIT.0)));
        assert_eq!(hand_on(&mut events), [vec![], vec![10, 2], vec![20, 2]]);
        assert_eq!(events.silent().collect::<Vec<_>>(), [SourceId(30)]);
        assert!(events.is_ready(RunNs(201 + WAIT.0)), "not waited for again");
        assert_eq!(hand_on(&mut events), [vec![], vec![10, 3], vec![20, 3]]);
        // What it sends too late is dropped, and from then on it is waited for.
        assert_eq!(send(&mut events, 1300, 30, 2), FrameTaken::Late);
        assert!(!events.is_ready(RunNs(1301)));
        assert_eq!(send(&mut events, 1302, 30, 4), FrameTaken::Kept);
        assert!(events.is_ready(RunNs(1302)));
        assert_eq!(
            hand_on(&mut events),
            [vec![30, 4], vec![10, 4], vec![20, 4]]
        );
        let counts = events.counts();
        assert_eq!((counts.absent, counts.late, counts.used), (2, 1, 10));
    }

    #[test]
    fn a_trigger_that_one_has_left_out_costs_one_wait_and_no_silence() {
        let mut events = events(8);
        for source in [10, 20, 30] {
            send(&mut events, 0, source, 2);
        }
        assert!(!events.is_ready(RunNs(WAIT.0 - 1)));
        assert!(events.is_ready(RunNs(WAIT.0)));
        assert_eq!(hand_on(&mut events), [vec![], vec![], vec![]]);
        assert_eq!(events.silent().count(), 0);
        assert!(events.is_ready(RunNs(WAIT.0)));
        assert_eq!(events.counts().absent, 3);
    }

    #[test]
    fn frames_beyond_the_window_wait_with_their_sender() {
        let mut events = events(2);
        for trigger in 1..=2 {
            assert_eq!(send(&mut events, 0, 10, trigger), FrameTaken::Kept);
        }
        assert_eq!(send(&mut events, 0, 10, 3), FrameTaken::Ahead);
        assert_eq!(send(&mut events, 0, 10, u64::MAX), FrameTaken::Ahead);
        assert_eq!(send(&mut events, 0, 10, 2), FrameTaken::Twice);
        send(&mut events, 0, 20, 1);
        send(&mut events, 0, 30, 1);
        assert!(events.is_ready(RunNs(0)));
        // While it is written its place is taken.
        events.begin(&mut SourceEvent::new());
        assert_eq!(send(&mut events, 0, 10, 3), FrameTaken::Ahead);
        assert_eq!(send(&mut events, 0, 10, 1), FrameTaken::Late);
        events.release();
        assert_eq!(send(&mut events, 0, 10, 3), FrameTaken::Kept);
        let counts = events.counts();
        assert_eq!((counts.late, counts.twice, counts.kept), (1, 1, 5));
    }

    #[test]
    fn the_end_is_when_all_have_ended_and_nothing_is_left() {
        let mut events = events(4);
        assert!(!events.is_ended());
        for source in [10, 20] {
            send(&mut events, 0, source, 1);
            events.handle_frame(RunNs(0), &end(source, 1), &[]);
        }
        send(&mut events, 0, 30, 1);
        send(&mut events, 0, 30, 2);
        assert!(events.is_ready(RunNs(0)));
        hand_on(&mut events);
        assert!(events.is_ready(RunNs(0)), "the others will not send it");
        events.handle_frame(RunNs(0), &end(30, 2), &[]);
        assert!(!events.is_ended());
        assert_eq!(hand_on(&mut events), [vec![30, 2], vec![], vec![]]);
        assert!(events.is_ended() && !events.is_ready(RunNs(u64::MAX)));
    }

    #[test]
    fn frames_of_others_are_refused_and_counted() {
        let mut events = events(4);
        assert_eq!(events.words_max(), 50);
        let of_run = |run| FrontEndFrame {
            run: Some(RunNumber(run)),
            ..frame(10, 1, 50)
        };
        assert_eq!(events.check(&of_run(7)), Ok(50));
        assert_eq!(events.check(&of_run(8)), Err(FrameRefusal::Run));
        assert_eq!(events.check(&frame(11, 1, 1)), Err(FrameRefusal::Source));
        assert_eq!(events.check(&frame(10, 1, 51)), Err(FrameRefusal::TooLong));
        assert_eq!(events.counts().refused, 3);
    }

    #[test]
    fn objects_of_all_fragments_are_those_of_the_event_unless_they_cannot_be() {
        let muon = |pt| PhysicsObject {
            kind: livetime_wire::object::ObjectKind::Muon,
            index: 0,
            pt,
            eta: 1.0,
            phi: -1.0,
            charge: 1.0,
            dxy: 0.0,
        };
        let block = livetime_wire::object::ObjectBlock {
            source_run: RunNumber(3),
            source_event: EventNumber(99),
            event_objects: 2,
        };
        let mut events = events(4);
        for (source, pts) in [
            (10, vec![20.0, f32::NAN]),
            (20, vec![30.0, -1.0]),
            (30, vec![]),
        ] {
            let objects: Vec<PhysicsObject> = pts.into_iter().map(muon).collect();
            let mut data = [0; 24];
            let words = block.emit(objects.iter(), &mut data);
            events.handle_frame(RunNs(0), &frame(source, 1, words), &data[..words]);
        }
        assert!(events.is_ready(RunNs(0)));
        let mut event = SourceEvent::new();
        events.begin(&mut event);
        let mut pts: Vec<f32> = event.objects.iter().map(|object| object.pt).collect();
        pts.sort_by(f32::total_cmp);
        assert_eq!(pts, [20.0, 30.0]);
        assert_eq!((event.run, event.number), (RunNumber(3), EventNumber(99)));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Send(usize, u64),
        End(usize),
        Pass(u64),
        HandOn,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..3_usize, 0..12_u64).prop_map(|(source, ahead)| Step::Send(source, ahead)),
            1 => (0..3_usize).prop_map(Step::End),
            2 => (0..600_u64).prop_map(Step::Pass),
            4 => Just(Step::HandOn),
        ]
    }

    proptest! {
        /// Whatever is sent in whatever order: each kept frame is handed on once, with its own
        /// trigger, or discarded.
        #[test]
        fn frames_are_conserved(steps in prop::collection::vec(step(), 0..200)) {
            let mut events = events(4);
            let (mut now, mut used) = (0, 0);
            let mut last = 1;
            for step in steps {
                match step {
                    Step::Send(source, ahead) => {
                        let trigger = (events.head().0 + ahead).saturating_sub(4).max(1);
                        send(&mut events, now, SOURCES[source].0, trigger);
                    }
                    Step::End(source) => {
                        let frame = end(SOURCES[source].0, events.head().0);
                        events.handle_frame(RunNs(now), &frame, &[]);
                    }
                    Step::Pass(time) => now += time,
                    Step::HandOn => {
                        if !events.is_ready(RunNs(now)) {
                            continue;
                        }
                        prop_assert_eq!(events.head().0, last);
                        for (source, data) in SOURCES.iter().zip(hand_on(&mut events)) {
                            if let [from, trigger] = data[..] {
                                prop_assert_eq!((from, u64::from(trigger)), (source.0, last));
                                used += 1;
                            }
                        }
                        last += 1;
                    }
                }
                let counts = events.counts();
                prop_assert_eq!(counts.used, used);
                prop_assert_eq!(counts.used + counts.absent, 3 * (last - 1));
                prop_assert_eq!(counts.kept, used + events.waiting());
            }
            events.end();
            prop_assert_eq!(events.waiting(), 0);
        }
    }
}
