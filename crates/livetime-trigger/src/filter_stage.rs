//! Filters of users as a chain of stages: unpack, reconstruct, select, tag, prescale, in any number
//! and order.
//!
//! A stage looks at the event and at what the stages before it left, and says whether the next one
//! is to see it. The chain times each stage, and an event that takes longer than its limit goes to
//! the error stream without the stages that are left. An answer depends on the event alone, so that
//! each filter unit and a replay give the same one; [`PrescaleStage`] therefore draws by a hash of
//! the trigger number. One line registers a chain in a [`FilterRegistry`].
//!
//! [`FilterRegistry`]: crate::filter_registry::FilterRegistry

use livetime_wire::DurationNs;
use livetime_wire::decision::mix64;
use livetime_wire::event::{EventAccess, EventHeader};

use crate::event_menu::{NoClock, STREAMS_MAX, StageClock};
use crate::filter::{EventFilter, FilterOutput};

/// Most stages of a chain.
pub const CHAIN_STAGES_MAX: usize = 64;
/// Names of the reasons before and behind those of the stages.
const OTHER_REASONS: [&str; 2] = ["kept", "over_time"];

/// What a stage says about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageVerdict {
    /// The next stage is to see it; behind the last one it is kept.
    Pass,
    /// It is dropped.
    Drop,
}

impl StageVerdict {
    /// [`StageVerdict::Pass`] if that is so.
    #[inline]
    pub fn pass_if(is_good: bool) -> Self {
        match is_good {
            true => Self::Pass,
            false => Self::Drop,
        }
    }
}

/// The streams that stages put an event into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamTags(u16);

impl StreamTags {
    /// Adds the stream of that index in the chain's list.
    ///
    /// # Panics
    /// If the index is that of no stream, 15 or more.
    #[inline]
    pub fn tag(&mut self, stream: usize) {
        assert!(stream < STREAMS_MAX, "a chain has no stream {stream}");
        self.0 |= 1 << stream;
    }

    /// One bit for each stream.
    #[inline]
    pub fn bits(self) -> u16 {
        self.0
    }
}

/// A stage of a chain whose stages share a `W`: unpacked objects, candidates, whatever later ones
/// need. It must not wait or panic.
///
/// Closures of the same arguments are stages.
pub trait FilterStage<W>: Send {
    /// Judges an event. What the event before left in `work` is still there: a stage that fills
    /// something empties it first.
    fn judge(
        &mut self,
        event: &dyn EventAccess,
        work: &mut W,
        tags: &mut StreamTags,
    ) -> StageVerdict;

    /// Judges the first step of an event, where events are built in two: drops those that
    /// [`FilterStage::judge`] is not to see. Each stage is asked until one drops it; `work` is shared
    /// as there. Passes everything by default.
    fn judge_first_step(&mut self, _first: &dyn EventAccess, _work: &mut W) -> StageVerdict {
        StageVerdict::Pass
    }
}

impl<W, F> FilterStage<W> for F
where
    F: FnMut(&dyn EventAccess, &mut W, &mut StreamTags) -> StageVerdict + Send,
{
    fn judge(
        &mut self,
        event: &dyn EventAccess,
        work: &mut W,
        tags: &mut StreamTags,
    ) -> StageVerdict {
        self(event, work, tags)
    }
}

/// Passes one in so many events, chosen by a hash of the trigger number.
#[derive(Debug, Clone, Copy)]
pub struct PrescaleStage {
    /// One in so many; 0 passes none.
    pub one_in: u64,
    /// Two prescales of one salt choose the same events.
    pub salt: u16,
}

impl<W> FilterStage<W> for PrescaleStage {
    fn judge(&mut self, event: &dyn EventAccess, _: &mut W, _: &mut StreamTags) -> StageVerdict {
        let hash = mix64(event.trigger().0 ^ u64::from(self.salt) << 48);
        StageVerdict::pass_if(self.one_in > 0 && hash.is_multiple_of(self.one_in))
    }

    /// The trigger number is known before the rest is there.
    fn judge_first_step(&mut self, first: &dyn EventAccess, work: &mut W) -> StageVerdict {
        self.judge(first, work, &mut StreamTags::default())
    }
}

/// A stage with its name and what it did.
struct Timed<W> {
    name: String,
    stage: Box<dyn FilterStage<W>>,
    dropped: u64,
    ns: u64,
}

/// Stages in their order, as a filter.
///
/// ```
/// use livetime_trigger::{Leptons, StageChain, StageVerdict, StreamTags};
/// use livetime_wire::event::EventAccess;
///
/// let chain = StageChain::new(Leptons::default(), ["z"])
///     .then("unpack", |event: &dyn EventAccess, leptons: &mut Leptons, _: &mut StreamTags| {
///         leptons.unpack(event);
///         StageVerdict::Pass
///     })
///     .then("select", |_: &dyn EventAccess, leptons: &mut Leptons, tags: &mut StreamTags| {
///         tags.tag(0);
///         StageVerdict::pass_if(leptons.dimuon().is_some_and(|pair| pair.mass_gev > 60.0))
///     });
/// assert_eq!(chain.stage_names().collect::<Vec<_>>(), ["unpack", "select"]);
/// ```
pub struct StageChain<W> {
    work: W,
    stages: Vec<Timed<W>>,
    streams: Vec<(String, u64)>,
    clock: Box<dyn StageClock>,
    event_limit: DurationNs,
    events: u64,
    over_time: u64,
    event_ns_max: u64,
}

impl<W: Send> StageChain<W> {
    /// A chain without stages, which keeps everything, with streams of these names: the first is
    /// stream 0. An event that no stage tags goes to stream 0.
    ///
    /// # Panics
    /// If there are more than 15 streams.
    pub fn new<'a>(work: W, streams: impl IntoIterator<Item = &'a str>) -> Self {
        let streams: Vec<_> = streams
            .into_iter()
            .map(|name| (name.to_owned(), 0))
            .collect();
        assert!(
            streams.len() <= STREAMS_MAX,
            "more than {STREAMS_MAX} streams"
        );
        Self {
            work,
            stages: Vec::new(),
            streams,
            clock: Box::new(NoClock),
            event_limit: DurationNs(0),
            events: 0,
            over_time: 0,
            event_ns_max: 0,
        }
    }

    /// Adds a stage behind the others. The name stands in counters: letters, digits and
    /// underscores.
    ///
    /// # Panics
    /// If the name is taken, `kept` or `over_time`, or cannot be used, or there are 64 stages.
    pub fn then(mut self, name: &str, stage: impl FilterStage<W> + 'static) -> Self {
        let is_usable = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_free =
            self.stage_names().all(|taken| taken != name) && !OTHER_REASONS.contains(&name);
        assert!(
            !name.is_empty() && name.chars().all(is_usable) && is_free,
            "\"{name}\" cannot be the name of a stage"
        );
        assert!(self.stages.len() < CHAIN_STAGES_MAX, "more than 64 stages");
        self.stages.push(Timed {
            name: name.to_owned(),
            stage: Box::new(stage),
            dropped: 0,
            ns: 0,
        });
        self
    }

    /// Times the stages by `clock`; an event over `event_limit` goes to the error stream, 0 for no
    /// limit.
    pub fn timed(mut self, clock: Box<dyn StageClock>, event_limit: DurationNs) -> Self {
        (self.clock, self.event_limit) = (clock, event_limit);
        self
    }

    /// The names of the stages in their order.
    pub fn stage_names(&self) -> impl Iterator<Item = &str> {
        self.stages.iter().map(|stage| stage.name.as_str())
    }

    /// Index of the reason for an event over its limit.
    fn over_time_reason(&self) -> u16 {
        self.stages.len() as u16 + 1
    }

    fn keep(&mut self, tags: StreamTags) -> FilterOutput {
        let streams = match tags.bits() {
            0 => 1,
            bits => bits,
        };
        for (bit, (_, events)) in self.streams.iter_mut().enumerate() {
            *events += u64::from(streams >> bit & 1);
        }
        FilterOutput {
            accept: true,
            reason: 0,
            streams,
        }
    }
}

impl<W: Send> EventFilter for StageChain<W> {
    fn filter(&mut self, event: &dyn EventAccess) -> FilterOutput {
        let begun = self.clock.now_ns();
        let mut at = begun;
        let mut tags = StreamTags::default();
        let mut dropped_by = None;
        let mut is_over = false;
        for (nth, timed) in self.stages.iter_mut().enumerate() {
            let verdict = timed.stage.judge(event, &mut self.work, &mut tags);
            let now = self.clock.now_ns();
            timed.ns += now.saturating_sub(at);
            at = now;
            is_over = self.event_limit.0 > 0 && now.saturating_sub(begun) > self.event_limit.0;
            if is_over {
                break;
            }
            if verdict == StageVerdict::Drop {
                timed.dropped += 1;
                dropped_by = Some(nth as u16);
                break;
            }
        }
        self.events += 1;
        self.event_ns_max = self.event_ns_max.max(at.saturating_sub(begun));
        match (is_over, dropped_by) {
            (true, _) => {
                self.over_time += 1;
                FilterOutput {
                    accept: true,
                    reason: self.over_time_reason(),
                    streams: EventHeader::ERROR_STREAM,
                }
            }
            (false, Some(stage)) => FilterOutput {
                accept: false,
                reason: stage + 1,
                streams: 0,
            },
            (false, None) => self.keep(tags),
        }
    }

    fn wants_rest(&mut self, first: &dyn EventAccess) -> bool {
        let work = &mut self.work;
        let mut stages = self.stages.iter_mut();
        stages.all(|timed| timed.stage.judge_first_step(first, work) == StageVerdict::Pass)
    }

    fn reasons(&self) -> &[&str] {
        // The names of stages are the chain's.
        &OTHER_REASONS[..1]
    }

    /// `kept`, the stages that drop events, `over_time`.
    fn reason_names(&self) -> Vec<String> {
        let stages = self.stage_names().map(str::to_owned);
        let [kept, over_time] = OTHER_REASONS.map(str::to_owned);
        std::iter::once(kept)
            .chain(stages)
            .chain(std::iter::once(over_time))
            .collect()
    }

    fn details(&self) -> Vec<(String, u64)> {
        let mut details = vec![
            ("menu.events".to_owned(), self.events),
            ("menu.over_time".to_owned(), self.over_time),
            ("menu.event_ns_max".to_owned(), self.event_ns_max),
        ];
        for stage in &self.stages {
            details.push((format!("stage.{}.ns", stage.name), stage.ns));
            details.push((format!("stage.{}.dropped", stage.name), stage.dropped));
        }
        for (name, events) in &self.streams {
            details.push((format!("stream.{name}.events"), *events));
        }
        details
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::event::EventView;

    use super::*;
    use crate::candidate::Leptons;
    use crate::dimuon::tests::{back_to_back, event, fragment, good};

    /// Goes on by so much at each look.
    struct Steps(u64, u64);

    impl StageClock for Steps {
        fn now_ns(&mut self) -> u64 {
            self.0 += self.1;
            self.0
        }
    }

    struct Unpack;

    impl FilterStage<Leptons> for Unpack {
        fn judge(
            &mut self,
            event: &dyn EventAccess,
            leptons: &mut Leptons,
            _: &mut StreamTags,
        ) -> StageVerdict {
            leptons.unpack(event);
            StageVerdict::Pass
        }
    }

    /// Keeps dimuons above a mass, and tags those above another.
    fn chain(least_gev: f64, tagged_gev: f64) -> StageChain<Leptons> {
        let mass = |leptons: &Leptons| leptons.dimuon().map_or(0.0, |pair| pair.mass_gev);
        StageChain::new(Leptons::default(), ["low", "high"])
            .then("unpack", Unpack)
            .then(
                "select",
                move |_: &dyn EventAccess, leptons: &mut Leptons, _: &mut StreamTags| {
                    StageVerdict::pass_if(mass(leptons) >= least_gev)
                },
            )
            .then(
                "tag",
                move |_: &dyn EventAccess, leptons: &mut Leptons, tags: &mut StreamTags| {
                    if mass(leptons) >= tagged_gev {
                        tags.tag(1);
                    }
                    StageVerdict::Pass
                },
            )
    }

    #[test]
    fn a_prescale_releases_after_the_first_step_what_it_drops() {
        let prescale = PrescaleStage { one_in: 3, salt: 1 };
        let mut chain = StageChain::new(Leptons::default(), ["all"])
            .then("unpack", Unpack)
            .then("prescale", prescale);
        let mut wanted = 0;
        for trigger in 1..=300 {
            let words = event(trigger, &good(vec![fragment(&back_to_back(91.0))]), &[]);
            let event = EventView::new_checked(&words).unwrap();
            let wants = chain.wants_rest(&event);
            assert_eq!(chain.filter(&event).accept, wants, "{trigger}");
            wanted += u64::from(wants);
        }
        assert!((60..140).contains(&wanted), "{wanted}");
    }

    fn judged(chain: &mut StageChain<Leptons>, mass_gev: f32) -> (bool, String, u16) {
        let words = event(1, &good(vec![fragment(&back_to_back(mass_gev))]), &[]);
        let output = chain.filter(&EventView::new_checked(&words).unwrap());
        let name = chain.reason_names()[usize::from(output.reason)].clone();
        (output.accept, name, output.streams)
    }

    fn detail(chain: &StageChain<Leptons>, name: &str) -> u64 {
        let details = chain.details();
        details.iter().find(|(known, _)| known == name).unwrap().1
    }

    #[test]
    fn an_event_is_dropped_by_a_stage_or_kept_in_its_streams() {
        let mut chain = chain(60.0, 100.0).timed(Box::new(Steps(0, 10)), DurationNs(0));
        assert_eq!(judged(&mut chain, 91.0), (true, "kept".to_owned(), 1));
        assert_eq!(judged(&mut chain, 110.0), (true, "kept".to_owned(), 2));
        assert_eq!(judged(&mut chain, 30.0), (false, "select".to_owned(), 0));
        let of = |name: &str| detail(&chain, name);
        assert_eq!(of("menu.events"), 3);
        assert_eq!((of("stage.unpack.ns"), of("stage.tag.ns")), (30, 20));
        assert_eq!(
            (of("stage.select.dropped"), of("menu.event_ns_max")),
            (1, 30)
        );
        assert_eq!((of("stream.low.events"), of("stream.high.events")), (1, 1));
    }

    #[test]
    fn an_event_over_its_limit_goes_to_the_error_stream_at_once() {
        let mut chain = chain(60.0, 100.0).timed(Box::new(Steps(0, 10)), DurationNs(15));
        let error = (true, "over_time".to_owned(), EventHeader::ERROR_STREAM);
        assert_eq!(judged(&mut chain, 30.0), error);
        assert_eq!(
            (
                detail(&chain, "menu.over_time"),
                detail(&chain, "stage.tag.ns")
            ),
            (1, 0)
        );
    }

    #[test]
    fn a_prescale_chooses_by_the_trigger_and_its_salt() {
        let passes = |one_in, salt, trigger| {
            let words = event(trigger, &[], &[]);
            let event = EventView::new_checked(&words).unwrap();
            let mut stage = PrescaleStage { one_in, salt };
            stage.judge(&event, &mut (), &mut StreamTags::default()) == StageVerdict::Pass
        };
        let count = |one_in, salt| (1..=1000).filter(|t| passes(one_in, salt, *t)).count();
        assert_eq!((count(0, 0), count(1, 0)), (0, 1000));
        assert!((60..=140).contains(&count(10, 0)), "{}", count(10, 0));
        let both = (1..=1000).filter(|t| passes(10, 0, *t) && passes(10, 1, *t));
        assert!(both.count() < 30, "they are independent");
    }

    #[test]
    #[should_panic(expected = "\"a b\" cannot be the name of a stage")]
    fn names_of_stages_are_usable_in_counters() {
        let prescale = PrescaleStage { one_in: 1, salt: 0 };
        StageChain::new((), ["all"]).then("a b", prescale);
    }
}
