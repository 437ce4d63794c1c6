//! The Level-3 menu: paths with cuts on candidates, prescales and streams, in stages.
//!
//! ```text
//! unpack ── reconstruct ── select ── prescale ── tag
//! leptons   candidates     cuts of    by a hash    streams of the paths that fired;
//!                          each path  of the       none fired: the event is dropped
//!                                     trigger
//! ```
//! Each stage is timed by a clock that the driver gives, and an event that takes longer than its
//! limit goes to the error stream. An answer depends on the event alone, prescales included, so that
//! each filter unit and a replay give the same one. Candidates are made in [`crate::candidate`].

use livetime_wire::decision::mix64;
use livetime_wire::event::{EventAccess, EventHeader};
use livetime_wire::object::ObjectKind;
use livetime_wire::{DurationNs, Problem};

use crate::candidate::{Candidate, Leptons};
use crate::filter::{EventFilter, FilterOutput};
use crate::problem_code::EVENT_MENU;

/// Most paths of a menu.
pub const PATHS_MAX: usize = 256;
/// Longest name of a path \[bytes\]: those of running menus describe their cuts, and have up to 100.
pub const PATH_NAME_BYTES_MAX: usize = 128;
/// Most streams: the last bit of the field is the error stream.
pub const STREAMS_MAX: usize = 15;

/// The stages, in their order.
pub const STAGES: [&str; 5] = ["unpack", "reconstruct", "select", "prescale", "tag"];

/// What is asked of a candidate; bounds are inclusive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CandidateCut {
    /// Lowest mass \[GeV\]. Default 0.
    pub mass_min_gev: f64,
    /// Highest mass \[GeV\]. Default infinite.
    pub mass_max_gev: f64,
    /// Least transverse momentum \[GeV\]. Default 0.
    pub pt_min_gev: f64,
    /// Most distance of the vertex from (0, 0) \[cm\]; infinite, the default, asks for no vertex.
    pub vertex_max_cm: f64,
}

impl Default for CandidateCut {
    fn default() -> Self {
        Self {
            mass_min_gev: 0.0,
            mass_max_gev: f64::INFINITY,
            pt_min_gev: 0.0,
            vertex_max_cm: f64::INFINITY,
        }
    }
}

impl CandidateCut {
    fn passes(&self, candidate: Option<&Candidate>) -> bool {
        let Some(candidate) = candidate else {
            return false;
        };
        let is_near = self.vertex_max_cm.is_infinite()
            || candidate
                .vertex_cm
                .is_some_and(|vertex| vertex <= self.vertex_max_cm);
        (self.mass_min_gev..=self.mass_max_gev).contains(&candidate.mass_gev)
            && candidate.pt_gev >= self.pt_min_gev
            && is_near
    }

    fn problems(&self, path: &str) -> Vec<Problem> {
        let (min, max) = (self.mass_min_gev, self.mass_max_gev);
        let vertex_um = (self.vertex_max_cm * 1e4).round();
        let mut problems = not_below_zero(path, "mass_min", min, "GeV");
        let window = |key: &str, found: f64, allowed: String| {
            let help = "put the lower edge of the window below the upper one";
            let found = format!("{found} GeV");
            Problem::new(EVENT_MENU, format!("{path}.{key}"), found, allowed, help)
        };
        // An edge of the default is never the one to blame.
        if max.is_nan() || max <= 0.0 {
            problems.push(window("mass_max", max, "above 0 GeV".to_owned()));
        } else if min >= max {
            let allowed = format!("below {max} GeV, the value of `mass_max`");
            let related = format!("{path}.mass_max");
            let problem = window("mass_min", min, allowed);
            problems.push(problem.with_related(related, "upper edge set here"));
        }
        problems.extend(not_below_zero(path, "pt_min", self.pt_min_gev, "GeV"));
        problems.extend(not_below_zero(path, "vertex_max", vertex_um, "um"));
        problems
    }
}

/// A limit of a quantity that is never below 0; `path` is the key of the table.
fn not_below_zero(path: &str, key: &str, limit: f64, unit: &str) -> Vec<Problem> {
    // Written so that a NaN is a problem, too.
    if limit >= 0.0 {
        return Vec::new();
    }
    vec![Problem::new(
        EVENT_MENU,
        format!("{path}.{key}"),
        format!("{limit} {unit}"),
        format!("0 {unit} or more"),
        "leave the key out where the path is to ask nothing of it",
    )]
}

/// Names of the reasons behind those of the paths: no path fired, the event took too long.
const OTHER_REASONS: [&str; 2] = ["no_path", "over_time"];

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EventCut {
    /// Nothing: every event passes.
    All,
    /// A dimuon.
    Dimuon(CandidateCut),
    /// Four leptons in two pairs.
    FourLepton(CandidateCut),
    /// So many muons of at least this transverse momentum \[GeV\].
    Muons(usize, f64),
    /// So many electrons of at least this transverse momentum \[GeV\].
    Electrons(usize, f64),
}

impl EventCut {
    /// Limits that nothing can keep, or that ask for nothing; `path` is the key of the path's table.
    fn problems(&self, path: &str) -> Vec<Problem> {
        match self {
            Self::All => Vec::new(),
            Self::Dimuon(cut) | Self::FourLepton(cut) => cut.problems(path),
            Self::Muons(_, pt_min) | Self::Electrons(_, pt_min) => {
                not_below_zero(path, "pt_min", *pt_min, "GeV")
            }
        }
    }
}

/// A path.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPathConfig {
    /// Its name, which stands in the counters.
    pub name: String,
    /// What it asks for.
    pub cut: EventCut,
    /// Level-2 bits of which one must be set; empty for any decision.
    pub l2: Vec<u8>,
    /// One of this many passes fires, chosen by a hash of the trigger number. Default 1.
    pub prescale: u32,
    /// Streams of the events that it fires on, by their bit; at least one.
    pub streams: Vec<u8>,
}

/// A menu as configured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventMenuConfig {
    /// The streams by name: the first is bit 0.
    pub streams: Vec<String>,
    /// The paths, at least one.
    pub paths: Vec<EventPathConfig>,
    /// Longest time for one event; an event over it goes to the error stream. 0, the default, for
    /// no limit.
    pub event_limit: DurationNs,
}

impl EventMenuConfig {
    /// Checks the values; `path` is the key of the table, such as `filter`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let problem = |key: String, found: String, allowed: &str, help: &str| {
            Problem::new(EVENT_MENU, format!("{path}.{key}"), found, allowed, help)
        };
        let mut problems = Vec::new();
        if self.paths.is_empty() || self.paths.len() > PATHS_MAX {
            let found = format!("{} paths", self.paths.len());
            let help = "add a [[filter.path]]; one with cut = \"all\" keeps everything";
            problems.push(problem("path".to_owned(), found, "1 to 256 paths", help));
        }
        for (nth, name) in self.streams.iter().enumerate() {
            let twice = self.streams[..nth].contains(name);
            if nth >= STREAMS_MAX || name.is_empty() || name == "error" || twice {
                let allowed = "at most 15 names, each once, without `error`";
                let help = "give each stream a name of its own, and leave out those of no path";
                problems.push(problem(
                    "streams".to_owned(),
                    format!("\"{name}\""),
                    allowed,
                    help,
                ));
            }
        }
        for (nth, config) in self.paths.iter().enumerate() {
            let key = |name: &str| format!("path[{nth}].{name}");
            let usable = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let name = &config.name;
            let twice = self.paths[..nth].iter().any(|other| other.name == *name);
            let is_taken = twice || OTHER_REASONS.contains(&name.as_str());
            let is_sized = (1..=PATH_NAME_BYTES_MAX).contains(&name.len());
            if !is_sized || !name.chars().all(usable) || is_taken {
                let help = "give each path a name of its own, of letters, digits and underscores";
                let allowed = format!(
                    "1 to {PATH_NAME_BYTES_MAX} letters, digits and `_` that no other path has, not \
                     `no_path` or `over_time`"
                );
                problems.push(problem(key("name"), format!("\"{name}\""), &allowed, help));
            }
            if config.prescale == 0 {
                let help = "set 1 to keep every pass, or remove the path to switch it off";
                problems.push(problem(key("prescale"), "0".to_owned(), "1 or more", help));
            }
            if config.streams.is_empty() {
                let help = "name a stream of `[filter] streams`, so that the event is kept";
                problems.push(problem(
                    key("streams"),
                    "none".to_owned(),
                    "one or more",
                    help,
                ));
            }
            problems.extend(config.cut.problems(&format!("{path}.path[{nth}]")));
        }
        problems
    }
}

/// A clock for stages \[ns\], from any origin.
pub trait StageClock: Send {
    /// The time now.
    fn now_ns(&mut self) -> u64;
}

/// A clock that stands still, where nobody asks for times.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoClock;

impl StageClock for NoClock {
    #[inline]
    fn now_ns(&mut self) -> u64 {
        0
    }
}

/// What a path did, over the events that were judged in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PathCounts {
    passed: u64,
    fired: u64,
}

/// What a path says about the event in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PathAnswer {
    passes: bool,
    fires: bool,
}

/// The menu at work.
pub struct EventMenu {
    config: EventMenuConfig,
    /// Names of the paths and one for events on which none fired.
    reasons: Vec<String>,
    clock: Box<dyn StageClock>,
    leptons: Leptons,
    events: u64,
    over_time: u64,
    stage_ns: [u64; STAGES.len()],
    event_ns_max: u64,
    paths: Vec<PathCounts>,
    streams: Vec<u64>,
    /// What the paths say about the event in hand.
    answers: Vec<PathAnswer>,
}

impl EventMenu {
    /// A menu of these paths, timed by `clock`.
    ///
    /// # Panics
    /// If [`EventMenuConfig::validate`] finds a problem.
    pub fn new(config: EventMenuConfig, clock: Box<dyn StageClock>) -> Self {
        let problems = config.validate("filter");
        assert!(problems.is_empty(), "unchecked configuration: {problems:?}");
        let names = config.paths.iter().map(|path| path.name.clone());
        Self {
            reasons: names.chain(OTHER_REASONS.map(str::to_owned)).collect(),
            clock,
            leptons: Leptons::default(),
            events: 0,
            over_time: 0,
            stage_ns: [0; STAGES.len()],
            event_ns_max: 0,
            paths: vec![PathCounts::default(); config.paths.len()],
            streams: vec![0; config.streams.len()],
            answers: vec![PathAnswer::default(); config.paths.len()],
            config,
        }
    }

    fn select(
        &mut self,
        event: &dyn EventAccess,
        dimuon: Option<&Candidate>,
        four: Option<&Candidate>,
    ) {
        let mask = event.mask().0;
        for (nth, path) in self.config.paths.iter().enumerate() {
            let passes = is_seeded(path, mask)
                && match path.cut {
                    EventCut::All => true,
                    EventCut::Dimuon(cut) => cut.passes(dimuon),
                    EventCut::FourLepton(cut) => cut.passes(four),
                    EventCut::Muons(count, pt) => self.leptons.count(ObjectKind::Muon, pt) >= count,
                    EventCut::Electrons(count, pt) => {
                        self.leptons.count(ObjectKind::Electron, pt) >= count
                    }
                };
            self.answers[nth].passes = passes;
        }
    }

    /// Which of the passes fire.
    #[inline]
    fn prescale(&mut self, event: &dyn EventAccess) {
        let trigger = event.trigger().0;
        for (nth, path) in self.config.paths.iter().enumerate() {
            let answer = &mut self.answers[nth];
            answer.fires = answer.passes && does_fire(path, nth, trigger);
        }
    }

    /// The first path that fired, and the streams of all that did.
    fn tag(&self) -> FilterOutput {
        let mut streams = 0_u16;
        let paths = self.config.paths.iter().zip(&self.answers);
        for (path, _) in paths.filter(|(_, answer)| answer.fires) {
            path.streams.iter().for_each(|bit| streams |= 1 << bit);
        }
        let first = self.answers.iter().position(|answer| answer.fires);
        FilterOutput {
            accept: first.is_some(),
            reason: first.unwrap_or(self.config.paths.len()) as u16,
            streams,
        }
    }

    /// Counts an event that was judged in time. One over its limit is in the error stream alone,
    /// whatever its paths said: counted here, fires would exceed what their streams have.
    fn count(&mut self, streams: u16) {
        for (counts, answer) in self.paths.iter_mut().zip(&self.answers) {
            counts.passed += u64::from(answer.passes);
            counts.fired += u64::from(answer.fires);
        }
        for (bit, count) in self.streams.iter_mut().enumerate() {
            *count += u64::from(streams >> bit & 1);
        }
    }

    /// The time of a stage is over; returns when.
    #[inline]
    fn end_stage(&mut self, stage: usize, since: u64) -> u64 {
        let now = self.clock.now_ns();
        self.stage_ns[stage] += now.saturating_sub(since);
        now
    }
}

/// Whether one of the Level-2 bits of a path is set.
#[inline]
fn is_seeded(path: &EventPathConfig, mask: u128) -> bool {
    path.l2.is_empty() || path.l2.iter().any(|bit| mask >> bit & 1 == 1)
}

/// Whether the prescale of the `nth` path lets a pass on a trigger fire.
#[inline]
fn does_fire(path: &EventPathConfig, nth: usize, trigger: u64) -> bool {
    // Another hash for each path, so that prescales are independent of each other.
    let hash = mix64(trigger ^ (nth as u64 + 1) << 48);
    hash.is_multiple_of(u64::from(path.prescale))
}

impl EventFilter for EventMenu {
    fn filter(&mut self, event: &dyn EventAccess) -> FilterOutput {
        let begun = self.clock.now_ns();
        self.leptons.unpack(event);
        let at = self.end_stage(0, begun);
        let (dimuon, four) = (self.leptons.dimuon(), self.leptons.four_lepton());
        let at = self.end_stage(1, at);
        self.select(event, dimuon.as_ref(), four.as_ref());
        let at = self.end_stage(2, at);
        self.prescale(event);
        let at = self.end_stage(3, at);
        let output = self.tag();
        let spent = self.end_stage(4, at).saturating_sub(begun);
        self.events += 1;
        self.event_ns_max = self.event_ns_max.max(spent);
        if self.config.event_limit.0 > 0 && spent > self.config.event_limit.0 {
            self.over_time += 1;
            return FilterOutput {
                accept: true,
                reason: self.config.paths.len() as u16 + 1,
                streams: EventHeader::ERROR_STREAM,
            };
        }
        self.count(output.streams);
        output
    }

    /// Paths whose Level-2 bits are not set, or whose prescale does not fire on the trigger number,
    /// do not fire whatever the rest is.
    fn wants_rest(&mut self, first: &dyn EventAccess) -> bool {
        let (mask, trigger) = (first.mask().0, first.trigger().0);
        let mut paths = self.config.paths.iter().enumerate();
        paths.any(|(nth, path)| is_seeded(path, mask) && does_fire(path, nth, trigger))
    }

    #[inline]
    fn reasons(&self) -> &[&str] {
        // The names of paths are the configuration's.
        &["path"]
    }

    #[inline]
    fn reason_names(&self) -> Vec<String> {
        self.reasons.clone()
    }

    fn details(&self) -> Vec<(String, u64)> {
        let mut details = vec![
            ("menu.events".to_owned(), self.events),
            ("menu.over_time".to_owned(), self.over_time),
            ("menu.event_ns_max".to_owned(), self.event_ns_max),
        ];
        for (stage, ns) in STAGES.iter().zip(self.stage_ns) {
            details.push((format!("stage.{stage}.ns"), ns));
        }
        for (path, counts) in self.config.paths.iter().zip(&self.paths) {
            details.push((format!("path.{}.passed", path.name), counts.passed));
            details.push((format!("path.{}.fired", path.name), counts.fired));
        }
        for (stream, count) in self.config.streams.iter().zip(&self.streams) {
            details.push((format!("stream.{stream}.events"), *count));
        }
        details
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::event::EventView;

    use super::*;
    use crate::dimuon::tests::{back_to_back, event, fragment, good, muon};
    use crate::filter::FilterCounts;

    fn path(name: &str, cut: EventCut, stream: u8) -> EventPathConfig {
        EventPathConfig {
            name: name.to_owned(),
            cut,
            l2: Vec::new(),
            prescale: 1,
            streams: vec![stream],
        }
    }

    fn window(min: f64, max: f64) -> EventCut {
        EventCut::Dimuon(CandidateCut {
            mass_min_gev: min,
            mass_max_gev: max,
            ..CandidateCut::default()
        })
    }

    fn config() -> EventMenuConfig {
        EventMenuConfig {
            streams: ["z", "rest"].map(str::to_owned).to_vec(),
            paths: vec![
                path("Z", window(70.0, 110.0), 0),
                EventPathConfig {
                    prescale: 10,
                    ..path("ALL", EventCut::All, 1)
                },
            ],
            event_limit: DurationNs(0),
        }
    }

    fn with_mass(trigger: u64, mass: f32) -> Vec<u32> {
        event(trigger, &good(vec![fragment(&back_to_back(mass))]), &[])
    }

    fn answer(menu: &mut EventMenu, words: &[u32]) -> FilterOutput {
        menu.filter(&EventView::new_checked(words).expect("an event"))
    }

    fn detail(menu: &EventMenu, name: &str) -> u64 {
        let details = menu.details();
        let found = details.iter().find(|(detail, _)| detail == name);
        found.unwrap_or_else(|| panic!("{name}: {details:?}")).1
    }

    /// What the first step says goes for the whole event: none is released that a path takes.
    #[test]
    fn no_event_is_released_after_its_first_step_that_the_menu_takes() {
        let mut config = config();
        config.paths[0].l2 = vec![3];
        let mut menu = EventMenu::new(config, Box::new(NoClock));
        let mut wanted = 0;
        for trigger in 1..=500 {
            let words = with_mass(trigger, 91.0);
            let event = EventView::new_checked(&words).expect("an event");
            let wants = menu.wants_rest(&event);
            assert_eq!(menu.filter(&event).accept, wants, "{trigger}");
            wanted += u64::from(wants);
        }
        assert!((20..100).contains(&wanted), "the sample alone: {wanted}");
    }

    #[test]
    fn paths_give_reason_and_streams_and_prescales_go_by_the_event() {
        let mut menu = EventMenu::new(config(), Box::new(NoClock));
        let mut sampled = 0;
        for trigger in 1..=2000 {
            let z = answer(&mut menu, &with_mass(trigger, 91.0));
            assert!(z.accept && z.reason == 0 && z.streams & 1 == 1, "{z:?}");
            let low = answer(&mut menu, &with_mass(trigger, 30.0));
            assert_eq!(low.accept, low.streams == 2, "{low:?}");
            assert_eq!(low.reason, if low.accept { 1 } else { 2 });
            assert_eq!(
                low.accept,
                z.streams == 3,
                "the prescale goes by the trigger alone"
            );
            sampled += u64::from(low.accept);
        }
        // 200 expected; five standard deviations are 67.
        assert!((133..267).contains(&sampled), "{sampled}");
        assert_eq!(menu.reason_names(), ["Z", "ALL", "no_path", "over_time"]);
        for (name, count) in [
            ("menu.events", 4000),
            ("path.Z.fired", 2000),
            ("path.ALL.passed", 4000),
            ("path.ALL.fired", 2 * sampled),
            ("stream.z.events", 2000),
            ("stream.rest.events", 2 * sampled),
        ] {
            assert_eq!(detail(&menu, name), count, "{name}");
        }
    }

    #[test]
    fn each_reason_of_a_menu_is_counted_alone() {
        let mut menu = EventMenu::new(config(), Box::new(NoClock));
        let mut counts = FilterCounts::new(&menu);
        counts.add(&answer(&mut menu, &with_mass(1, 91.0)));
        // The sample of all events is drawn by the trigger number.
        let none = FilterOutput {
            accept: false,
            reason: 2,
            streams: 0,
        };
        let mut rejected = (1..).map(|trigger| answer(&mut menu, &with_mass(trigger, 30.0)));
        let rejected = rejected.find(|output| !output.accept);
        assert_eq!(rejected, Some(none));
        counts.add(&none);
        // Z, ALL, no_path, over_time, and what has no name.
        let by_reason = [0, 1, 2, 3, 4].map(|reason| counts.of(reason));
        assert_eq!(by_reason, [(1, 0), (0, 0), (0, 1), (0, 0), (0, 0)]);
    }

    #[test]
    fn a_path_may_ask_for_level_two_bits() {
        let of_bit = |bit| EventMenuConfig {
            paths: vec![EventPathConfig {
                l2: vec![bit],
                ..path("SEEDED", EventCut::All, 0)
            }],
            ..config()
        };
        // The events of these tests have bit 0.
        let mut menu = EventMenu::new(of_bit(0), Box::new(NoClock));
        assert!(answer(&mut menu, &with_mass(1, 91.0)).accept);
        let mut menu = EventMenu::new(of_bit(100), Box::new(NoClock));
        assert!(!answer(&mut menu, &with_mass(1, 91.0)).accept);
    }

    /// Each look takes a microsecond.
    struct Ticking(u64);

    impl StageClock for Ticking {
        fn now_ns(&mut self) -> u64 {
            self.0 += 1000;
            self.0
        }
    }

    #[test]
    fn stages_are_timed_and_an_event_over_its_limit_goes_to_the_error_stream() {
        let limited = |ns| EventMenuConfig {
            event_limit: DurationNs(ns),
            ..config()
        };
        let mut menu = EventMenu::new(limited(5000), Box::new(Ticking(0)));
        assert_eq!(answer(&mut menu, &with_mass(1, 91.0)).streams & 1, 1);
        for stage in STAGES {
            assert_eq!(detail(&menu, &format!("stage.{stage}.ns")), 1000);
        }
        assert_eq!(detail(&menu, "menu.event_ns_max"), 5000);
        let mut menu = EventMenu::new(limited(4999), Box::new(Ticking(0)));
        let output = answer(&mut menu, &with_mass(1, 91.0));
        assert!(output.accept && output.streams == EventHeader::ERROR_STREAM);
        assert_eq!(detail(&menu, "menu.over_time"), 1);
        // No path has fired on an event that is in none of its streams.
        let counted = menu.details().into_iter();
        let kinds = ["path.", "stream."];
        let counted = counted.filter(|(name, _)| kinds.iter().any(|kind| name.starts_with(kind)));
        assert_eq!(counted.map(|(_, events)| events).sum::<u64>(), 0);
    }

    /// Its mass is no number, which is in no window.
    #[test]
    fn a_pair_whose_energy_overflows_passes_no_window() {
        let muons = |etas: [f32; 2]| {
            let [one, other] = etas;
            let pair = [
                muon(0, 20.0, one, 0.0, 1.0),
                muon(1, 20.0, other, 3.0, -1.0),
            ];
            event(1, &good(vec![fragment(&pair)]), &[])
        };
        let windows = EventMenuConfig {
            paths: vec![
                path("LOW", window(0.0, 5.0), 0),
                path("ANY", window(0.0, f64::INFINITY), 1),
            ],
            ..config()
        };
        let mut menu = EventMenu::new(windows, Box::new(NoClock));
        for etas in [[400.0, 400.0], [400.0, 0.0], [800.0, -800.0]] {
            let output = answer(&mut menu, &muons(etas));
            assert_eq!((output.accept, output.reason), (false, 2), "{etas:?}");
        }
        assert_eq!(answer(&mut menu, &muons([1.0, 0.0])).reason, 1);
    }

    #[test]
    fn menus_that_keep_nothing_or_mix_names_up_are_problems() {
        let problems = |change: fn(&mut EventMenuConfig)| {
            let mut changed = config();
            change(&mut changed);
            let problems = changed.validate("filter");
            problems.iter().map(|p| p.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(problems(|_| {}), [""; 0]);
        assert_eq!(problems(|c| c.paths.clear()), ["filter.path"]);
        assert_eq!(
            problems(|c| c.paths[1].name = "Z".to_owned()),
            ["filter.path[1].name"]
        );
        assert_eq!(
            problems(|c| c.paths[1].name = "a".repeat(PATH_NAME_BYTES_MAX)),
            [""; 0]
        );
        assert_eq!(
            problems(|c| c.paths[1].name = "a".repeat(PATH_NAME_BYTES_MAX + 1)),
            ["filter.path[1].name"]
        );
        // Its events could not be told from those of no path.
        assert_eq!(
            problems(|c| c.paths[1].name = "no_path".to_owned()),
            ["filter.path[1].name"]
        );
        assert_eq!(
            problems(|c| c.paths[0].prescale = 0),
            ["filter.path[0].prescale"]
        );
        assert_eq!(
            problems(|c| c.paths[0].streams.clear()),
            ["filter.path[0].streams"]
        );
        assert_eq!(
            problems(|c| c.streams[0] = "error".to_owned()),
            ["filter.streams"]
        );
    }

    #[test]
    fn limits_that_nothing_can_keep_are_problems() {
        let of_cut = |cut: EventCut| {
            let found = cut.problems("filter.path[0]").into_iter();
            found
                .map(|problem| {
                    let key = problem.path.rsplit('.').next().unwrap_or("").to_owned();
                    (key, problem.found, problem.allowed)
                })
                .collect::<Vec<_>>()
        };
        let said = |key: &str, found: &str, allowed: &str| {
            (key.to_owned(), found.to_owned(), allowed.to_owned())
        };
        let any = CandidateCut::default();
        for fine in [
            EventCut::All,
            EventCut::Dimuon(any),
            window(0.0, 1.0),
            EventCut::Muons(1, 0.0),
            EventCut::FourLepton(CandidateCut {
                vertex_max_cm: 0.0,
                ..any
            }),
        ] {
            assert_eq!(of_cut(fine), []);
        }
        let below = "below 8 GeV, the value of `mass_max`";
        for (min, found) in [(9.0, "9 GeV"), (8.0, "8 GeV")] {
            let window = of_cut(window(min, 8.0));
            assert_eq!(window, [said("mass_min", found, below)]);
        }
        assert_eq!(
            of_cut(window(-6.0, -5.0)),
            [
                said("mass_min", "-6 GeV", "0 GeV or more"),
                said("mass_max", "-5 GeV", "above 0 GeV"),
            ]
        );
        let zero = of_cut(window(0.0, 0.0));
        assert_eq!(zero, [said("mass_max", "0 GeV", "above 0 GeV")]);
        let no_vertex = CandidateCut {
            vertex_max_cm: -1e-4,
            ..any
        };
        let no_pt = CandidateCut {
            pt_min_gev: -1.5,
            ..any
        };
        let of_vertex = said("vertex_max", "-1 um", "0 um or more");
        assert_eq!(of_cut(EventCut::FourLepton(no_vertex)), [of_vertex]);
        let of_pt = said("pt_min", "-1.5 GeV", "0 GeV or more");
        for cut in [
            EventCut::Dimuon(no_pt),
            EventCut::Muons(1, -1.5),
            EventCut::Electrons(2, -1.5),
        ] {
            assert_eq!(of_cut(cut), std::slice::from_ref(&of_pt));
        }
    }
}
