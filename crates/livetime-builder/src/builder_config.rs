//! The builder's configuration: who takes part, and the bound of every queue and table.
//!
//! One struct for all units, since their bounds depend on each other; how many pages the readout
//! units need for it is in [`crate::page_demand`]. Reading it from a file is the program's work.

use livetime_wire::message::{EventTicket, FRAGMENT_PAGES_MAX, TRIGGERS_MAX};
use livetime_wire::{ByteSize, DurationNs, Problem, SourceId, UnitId};

use crate::problem_code;
use crate::shaping_config::ShapingConfig;

/// Most sources of one readout unit: its masks have 32 bits.
pub const READOUT_SOURCES_MAX: usize = 32;
/// Most sources of an event: its ticket must stay below 64 Ki words at the most pages per fragment.
pub const EVENT_SOURCES_MAX: usize =
    (0xFFFF - EventTicket::words_max(0, 0)) / (5 + FRAGMENT_PAGES_MAX);
/// Most credits of one builder unit.
pub const CREDITS_MAX: u32 = 4096;
/// Largest table of triggers.
pub const TRIGGERS_HELD_MAX: u32 = 1 << 24;
/// Triggers that a readout unit may hold beside those queued and in building: undecided ones, and
/// those whose release is on its way.
pub const TRIGGERS_UNDECIDED: u32 = 64;

/// Who makes the readout units send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BuildMode {
    /// The builder unit asks for the fragments of the events that it was assigned.
    #[default]
    Pull,
    /// The event manager tells the readout units whose an event is, and they send unasked.
    Push,
}

/// What the event manager, the builder units and the readout units are built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuilderConfig {
    /// The sources that each readout unit serves, in any order. Every event has one fragment of
    /// each. Default: none; the links of a configuration give them. At most 32 per unit.
    pub readout_units: Vec<Vec<SourceId>>,
    /// Number of builder units. Default 2.
    pub builder_units: u16,
    /// Number of filter units. Default 1.
    pub filter_units: u16,
    /// Groups of builder units, each with filter units of its own that no other serves: unit `n` of
    /// either kind is in group `n % subfarms`. Default 1: every builder unit serves all filter
    /// units.
    pub subfarms: u16,
    /// Number of writers, each with the builder and filter units of some subfarms: unit `n` of either
    /// kind is written by writer `n % writers`. Default 1. A divisor of `subfarms`.
    pub writers: u16,
    /// Events that one builder unit may hold, from assignment to clear: in building, waiting for a
    /// filter unit, in it, and being written. Default 16. More hides longer round trips and slower
    /// filters and takes pages in every readout unit: see [`crate::PageDemand`].
    pub credits: u32,
    /// Most triggers that one request, release or clear names, 1 to 32. Default 8. Messages are
    /// not held back to fill up, but over streams
    /// ([`BuilderUnit::group_messages`](crate::BuilderUnit::group_messages)); small numbers cost
    /// messages under load (the CMS event builder demonstrators were limited by them at 4).
    pub requests_per_message: u32,
    /// Time from the arrival of an assignment to the event's closing without the fragments that
    /// did not come. Default 1 s. Longer holds up one credit per broken event for as long; shorter
    /// than the worst delay of a fragment breaks good events.
    pub timeout: DurationNs,
    /// Time after which a builder unit asks again for fragments that did not come. Default 100 ms.
    /// Must be longer than the round trip, or every fragment is sent twice. While nothing comes of an
    /// event the time doubles with each request, up to 16 times this one: a network that loses what
    /// it is asked for is not asked for more.
    pub retry: DurationNs,
    /// Time after which the event manager and the readout units ask whether an event is still in
    /// work. Default 1 s. One small message per event in work and interval.
    pub probe: DurationNs,
    /// Accepted triggers that may wait for a credit. Default 64. Once full, the supervisor's
    /// messages wait in their link. More than the readout units' pages can hold is never used.
    pub evm_queue: u32,
    /// Events that one builder unit may have in one filter unit, its writing included. Default 4.
    /// 1 makes every event wait for the round trip of the one before.
    pub filter_in_flight: u32,
    /// Closed triggers that each unit remembers, a power of two. Default 65536 (256 KiB per unit).
    /// At least `trigger_window`: a fragment that waited in its link must not seem to be late. Should
    /// cover the triggers, rejected ones included, of the time in which a message may still come late:
    /// rate x probe interval is ample. Events may be open for longer.
    pub history: u32,
    /// Triggers that a readout unit holds fragments or requests for. Default 4096 (200 KiB). When
    /// full, fragments wait in their link. Fragments whose trigger number is further ahead than
    /// this of every trigger that a message has named are refused: their number is damaged.
    pub trigger_window: u32,
    /// Pull or push. Default pull. Push saves half a round trip per event and takes one small
    /// message per group of events and readout unit from the event manager.
    pub mode: BuildMode,
    /// Readout units whose fragments are gathered first; a selection on them decides whether the
    /// rest is fetched or released. Empty, the default, for whole events at once. Pull mode only.
    pub first_step: Vec<u16>,
    /// Payload bytes that one builder unit may hold, from assignment to clear; 0, the default, for
    /// no bound but `credits`. With it no receiver overflows whose buffer has
    /// [`BuilderConfig::receive_bytes`].
    pub credit_bytes: u64,
    /// Payload bytes set aside for an event until its size is known: those of the largest event.
    /// Used with `credit_bytes` only. Smaller than the largest event, and buffers overflow; larger,
    /// and credits lie idle while events are built. Default 0.
    pub event_bytes: u64,
    /// Longest silence of a living builder unit towards the event manager,
    /// [`BuilderConfig::HEARTBEAT_MIN`] to 30 min; 0, the default, where a transport tells that a unit
    /// is gone (rings and sockets of one machine do). More often, and the event manager finds a
    /// message at each look, and never is at rest.
    pub heartbeat: DurationNs,
    /// Silence after which a builder unit gets no new events. Default 300 ms. With `heartbeat`
    /// only.
    pub suspect: DurationNs,
    /// Silence after which a builder unit is taken for dead and its events are built by others.
    /// Default 500 ms. With `heartbeat` only.
    pub dead: DurationNs,
    /// How the readout units shape what they send to builder units over a network. Default `None`:
    /// they send what is asked for as the links take it.
    pub shaping: Option<ShapingConfig>,
    /// What is broken on purpose, to see whether the checks of the simulation find it.
    #[cfg(feature = "mutants")]
    pub mutant: Option<crate::mutant::Mutant>,
}

impl Default for BuilderConfig {
    fn default() -> Self {
        Self {
            readout_units: Vec::new(),
            builder_units: 2,
            filter_units: 1,
            subfarms: 1,
            writers: 1,
            credits: 16,
            requests_per_message: 8,
            timeout: DurationNs::SECOND,
            retry: DurationNs(100 * DurationNs::MILLISECOND.0),
            probe: DurationNs::SECOND,
            evm_queue: 64,
            filter_in_flight: 4,
            history: 65_536,
            trigger_window: 4096,
            mode: BuildMode::Pull,
            first_step: Vec::new(),
            credit_bytes: 0,
            event_bytes: 0,
            heartbeat: DurationNs(0),
            suspect: DurationNs(300 * DurationNs::MILLISECOND.0),
            dead: DurationNs(500 * DurationNs::MILLISECOND.0),
            shaping: None,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

impl BuilderConfig {
    /// The shortest `heartbeat`: much longer than the event manager takes to read one, so that there
    /// are looks at which it finds none.
    pub const HEARTBEAT_MIN: DurationNs = DurationNs::MILLISECOND;

    /// The sources of a readout unit ordered by id: bit `n` of its masks is the `n`-th.
    ///
    /// # Panics
    /// If there is no such unit.
    pub fn sources_of(&self, readout: u16) -> Vec<SourceId> {
        let mut sources = self.readout_units[usize::from(readout)].clone();
        sources.sort();
        sources
    }

    /// Whether a builder unit gives events to a filter unit: whether they are in one subfarm.
    #[inline]
    pub fn serves(&self, builder: u16, filter: u16) -> bool {
        self.subfarm_of(builder) == self.subfarm_of(filter)
    }

    /// The subfarm of builder or filter unit `index`, from 0.
    #[inline]
    pub fn subfarm_of(&self, index: u16) -> u16 {
        index % self.subfarms.max(1)
    }

    /// The builder units that serve a filter unit, by their index.
    pub fn builders_of(&self, filter: u16) -> impl Iterator<Item = u16> + Clone + use<> {
        let (first, step) = (self.subfarm_of(filter), self.subfarms.max(1));
        (first..self.builder_units).step_by(step.into())
    }

    /// The filter units that a builder unit serves, by their index.
    pub fn filters_of(&self, builder: u16) -> impl Iterator<Item = u16> + Clone + use<> {
        let (first, step) = (self.subfarm_of(builder), self.subfarms.max(1));
        (first..self.filter_units).step_by(step.into())
    }

    /// Events that all builder units may hold together.
    pub fn credits_total(&self) -> u64 {
        u64::from(self.builder_units) * u64::from(self.credits)
    }

    /// The smallest receive buffer of a builder unit in which events of at most `event_bytes`
    /// payload bytes never overflow:
    ///
    /// ```text
    /// events = credits                                        without credit_bytes
    ///        = min(credits, credit_bytes / event_bytes)       with it, rounded down
    /// bytes  = events x event_bytes
    /// ```
    ///
    /// That many bytes are reached when every event has that size; one byte less overflows then.
    /// Smaller events share the same bytes: `credit_bytes` bounds their sum, `credits` their
    /// number.
    pub fn receive_bytes(&self, event_bytes: u64) -> u64 {
        let by_events = u64::from(self.credits);
        let events = match self.credit_bytes {
            0 => by_events,
            bytes => by_events.min(bytes / self.event_bytes.max(event_bytes).max(1)),
        };
        events * event_bytes
    }

    /// Repetitions to a unit that says nothing before they become rare.
    pub(crate) fn repetitions_often(&self) -> u32 {
        2 * self.credits.max(16)
    }

    /// Slots of a ring for what is repeated to a unit that stands still: the rare ones are ever rarer.
    fn repetition_slots(&self) -> u64 {
        u64::from(self.repetitions_often()) + 16
    }

    /// Slots with which a ring between two of the units never fills in regular work: fragments of
    /// all credits towards a builder unit, requests and releases towards a readout unit, and what is
    /// repeated. Repetitions after a loss may fill it; they wait.
    pub fn ring_slots(&self) -> u64 {
        let sources = self.readout_units.iter().map(Vec::len).max().unwrap_or(0);
        u64::from(self.credits) * (sources as u64).max(2) + self.repetition_slots()
    }

    /// The same of a ring for assignments to a builder unit.
    pub fn assignment_slots(&self) -> u64 {
        u64::from(self.credits) + self.repetition_slots()
    }

    /// Every problem of this configuration; `path` is the key prefix, such as `builder`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.check_units(path, &mut problems);
        self.check_sources(path, &mut problems);
        self.check_times(path, &mut problems);
        self.check_bounds(path, &mut problems);
        self.check_bytes(path, &mut problems);
        self.check_liveness(path, &mut problems);
        self.check_steps(path, &mut problems);
        if let Some(shaping) = &self.shaping {
            let units = (self.readout_units.len(), self.builder_units);
            problems.extend(shaping.validate(path, units));
        }
        problems
    }

    fn check_steps(&self, path: &str, problems: &mut Vec<Problem>) {
        let units = self.readout_units.len();
        for (place, unit) in self.first_step.iter().enumerate() {
            let is_known = usize::from(*unit) < units;
            if !is_known || self.first_step[..place].contains(unit) {
                problems.push(Problem::new(
                    problem_code::FIRST_STEP,
                    format!("{path}.first_step[{place}]"),
                    UnitId::readout(*unit),
                    match units {
                        0 => "none: there is no readout unit".to_owned(),
                        units => format!("ru0 to ru{}, each once", units - 1),
                    },
                    "name readout units to which links go",
                ));
            }
        }
        if !self.first_step.is_empty()
            && (self.first_step.len() >= units || self.mode == BuildMode::Push)
        {
            problems.push(Problem::new(
                problem_code::FIRST_STEP,
                format!("{path}.first_step"),
                format!("{} of {units} readout units", self.first_step.len()),
                "some of the readout units, in pull mode",
                "leave some for the second step and use `mode = \"pull\"`, or leave the key out",
            ));
        }
    }

    fn check_bytes(&self, path: &str, problems: &mut Vec<Problem>) {
        let nameable = u64::from(u32::MAX);
        let most = self.credit_bytes.min(nameable);
        if self.credit_bytes > 0 && !(1..=most).contains(&self.event_bytes) {
            let allowed = match self.credit_bytes > nameable {
                // Rounded it would be more than a message can name.
                true => format!("1 B to {most} B"),
                false => format!("1 B to {}", ByteSize(most)),
            };
            problems.push(
                Problem::new(
                    problem_code::CREDIT_BYTES,
                    format!("{path}.event_bytes"),
                    ByteSize(self.event_bytes),
                    allowed,
                    "set it to the payload of the largest event, and `credit_bytes` to a few of it",
                )
                .with_related(
                    format!("{path}.credit_bytes"),
                    "what a builder unit may hold",
                ),
            );
        }
    }

    fn check_liveness(&self, path: &str, problems: &mut Vec<Problem>) {
        if self.heartbeat == DurationNs(0) {
            return;
        }
        let most = DurationNs(3600 * DurationNs::SECOND.0);
        let (least, longest) = (Self::HEARTBEAT_MIN, DurationNs(most.0 / 2));
        if !(least..=longest).contains(&self.heartbeat) {
            problems.push(Problem::new(
                problem_code::LIVENESS,
                format!("{path}.heartbeat"),
                self.heartbeat,
                format!("{}, or {least} to {longest}", DurationNs(0)),
                "set it to a third of `suspect` or less, such as \"100 ms\"",
            ));
            return;
        }
        for (key, value, least, help) in [
            (
                "suspect",
                self.suspect,
                DurationNs(2 * self.heartbeat.0),
                "set it to at least two heartbeats, so that one may be lost",
            ),
            (
                "dead",
                self.dead,
                self.suspect,
                "set it to `suspect` or more",
            ),
        ] {
            if !(least..=most).contains(&value) {
                problems.push(Problem::new(
                    problem_code::LIVENESS,
                    format!("{path}.{key}"),
                    value,
                    format!("{least} to {most}"),
                    help,
                ));
            }
        }
    }

    fn check_units(&self, path: &str, problems: &mut Vec<Problem>) {
        let most = UnitId::INDEX_MAX + 1;
        for (key, count) in [
            ("builder_units", self.builder_units),
            ("filter_units", self.filter_units),
            (
                "readout_units",
                u16::try_from(self.readout_units.len()).unwrap_or(u16::MAX),
            ),
        ] {
            if !(1..=most).contains(&count) {
                problems.push(Problem::new(
                    problem_code::UNIT_COUNT,
                    format!("{path}.{key}"),
                    count,
                    format!("1 to {most}"),
                    "give at least one unit of each kind",
                ));
            }
        }
        let most = self.builder_units.min(self.filter_units).max(1);
        if !(1..=most).contains(&self.subfarms) {
            let problem = Problem::new(
                problem_code::SUBFARMS,
                format!("{path}.subfarms"),
                self.subfarms,
                format!("1 to {most}"),
                "give each subfarm a builder unit and a filter unit, or make fewer of them",
            );
            let builders = format!("{path}.builder_units");
            problems.push(problem.with_related(builders, "the builder units to divide"));
        } else if self.writers == 0 || !self.subfarms.is_multiple_of(self.writers) {
            let problem = Problem::new(
                problem_code::WRITERS,
                format!("{path}.writers"),
                self.writers,
                format!("a divisor of {}, the number of subfarms", self.subfarms),
                "give each writer whole subfarms: as many writers as subfarms, or 1",
            );
            let subfarms = format!("{path}.subfarms");
            problems.push(problem.with_related(subfarms, "the subfarms to divide"));
        }
    }

    fn check_sources(&self, path: &str, problems: &mut Vec<Problem>) {
        let mut all = Vec::new();
        for (unit, sources) in self.readout_units.iter().enumerate() {
            let key = format!("{path}.readout_units[{unit}]");
            if sources.is_empty() {
                problems.push(Problem::new(
                    problem_code::NO_SOURCE,
                    key,
                    "empty",
                    format!("1 to {READOUT_SOURCES_MAX} sources"),
                    "give the readout unit a link, or remove it",
                ));
            } else if sources.len() > READOUT_SOURCES_MAX {
                problems.push(Problem::new(
                    problem_code::TOO_MANY_SOURCES,
                    key,
                    format!("{} sources of ru{unit}", sources.len()),
                    format!("at most {READOUT_SOURCES_MAX} per readout unit"),
                    "spread the links over more readout units",
                ));
            }
            all.extend(sources.iter().map(|source| (*source, unit)));
        }
        if all.len() > EVENT_SOURCES_MAX {
            problems.push(Problem::new(
                problem_code::TOO_MANY_SOURCES,
                format!("{path}.readout_units"),
                format!("{} sources", all.len()),
                format!("at most {EVENT_SOURCES_MAX} in all"),
                "merge sources in front of the links",
            ));
        }
        all.sort();
        for pair in all.windows(2) {
            let [(source, first), (again, second)] = [pair[0], pair[1]];
            if source == again {
                problems.push(
                    Problem::new(
                        problem_code::SOURCE_TWICE,
                        format!("{path}.readout_units[{second}]"),
                        source,
                        "each source once",
                        "give every link its own source id",
                    )
                    .with_related(
                        format!("{path}.readout_units[{first}]"),
                        "listed here first",
                    ),
                );
            }
        }
    }

    fn check_times(&self, path: &str, problems: &mut Vec<Problem>) {
        let hour = DurationNs(3600 * DurationNs::SECOND.0);
        let (shortest, timeout) = (DurationNs::MICROSECOND, self.timeout);
        for (key, value, least, most, help) in [
            (
                "timeout",
                timeout,
                DurationNs::MILLISECOND,
                hour,
                "set it above the worst delay of a fragment; `1 s` suits most systems",
            ),
            (
                "retry",
                self.retry,
                shortest,
                timeout.max(shortest),
                "set it between the worst round trip and `timeout`",
            ),
            (
                "probe",
                self.probe,
                shortest,
                hour,
                "set it to about `timeout`",
            ),
        ] {
            if !(least..=most).contains(&value) {
                problems.push(Problem::new(
                    problem_code::TIMEOUT,
                    format!("{path}.{key}"),
                    value,
                    format!("{least} to {most}"),
                    help,
                ));
            }
        }
    }

    fn check_bounds(&self, path: &str, problems: &mut Vec<Problem>) {
        let least_window = self.credits_total() + u64::from(self.evm_queue);
        let least_window = u32::try_from(least_window + u64::from(TRIGGERS_UNDECIDED))
            .unwrap_or(u32::MAX)
            .min(TRIGGERS_HELD_MAX);
        let most_requests = TRIGGERS_MAX as u32;
        for (code, key, value, range, help) in [
            (
                problem_code::CREDITS,
                "credits",
                self.credits,
                1..=CREDITS_MAX,
                "16 suits one machine; raise it for slow filters or long round trips",
            ),
            (
                problem_code::REQUESTS_PER_MESSAGE,
                "requests_per_message",
                self.requests_per_message,
                1..=most_requests,
                "8 is a good number",
            ),
            (
                problem_code::QUEUE,
                "evm_queue",
                self.evm_queue,
                1..=TRIGGERS_HELD_MAX,
                "set it to the events that the page pools can hold",
            ),
            (
                problem_code::FILTER_WINDOW,
                "filter_in_flight",
                self.filter_in_flight,
                1..=CREDITS_MAX,
                "4 hides the round trip on one machine",
            ),
            (
                problem_code::TRIGGER_WINDOW,
                "trigger_window",
                self.trigger_window,
                least_window..=TRIGGERS_HELD_MAX,
                "raise it to all credits plus the event manager's queue plus 64",
            ),
            (
                problem_code::TRIGGER_WINDOW,
                "history",
                self.history,
                self.trigger_window.clamp(64, TRIGGERS_HELD_MAX)..=TRIGGERS_HELD_MAX,
                "set it to a power of two above trigger rate x `probe`, not below `trigger_window`",
            ),
        ] {
            let is_power = key != "history" || value.is_power_of_two();
            if !range.contains(&value) || !is_power {
                let kind = if key == "history" {
                    ", a power of two"
                } else {
                    ""
                };
                problems.push(Problem::new(
                    code,
                    format!("{path}.{key}"),
                    value,
                    format!("{} to {}{kind}", range.start(), range.end()),
                    help,
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> BuilderConfig {
        BuilderConfig {
            readout_units: vec![
                (1..=4).map(SourceId).collect(),
                (5..=8).map(SourceId).collect(),
            ],
            ..BuilderConfig::default()
        }
    }

    #[test]
    fn the_defaults_are_good_once_there_are_sources() {
        assert_eq!(good().validate("builder"), []);
        let codes: Vec<_> = BuilderConfig::default()
            .validate("builder")
            .iter()
            .map(|problem| problem.code.code)
            .collect();
        assert_eq!(codes, ["B0102"]);
    }

    #[test]
    fn each_bad_value_is_reported_at_its_key() {
        type Change = fn(&mut BuilderConfig);
        let cases: [(&str, &str, Change); 28] = [
            ("B0101", "builder.readout_units[1]", |c| {
                c.readout_units[1].clear();
            }),
            ("B0102", "builder.builder_units", |c| c.builder_units = 0),
            ("B0102", "builder.filter_units", |c| c.filter_units = 5000),
            ("B0117", "builder.writers", |c| c.writers = 0),
            ("B0117", "builder.writers", |c| {
                (c.builder_units, c.filter_units, c.subfarms) = (3, 3, 3);
                c.writers = 2;
            }),
            ("B0116", "builder.subfarms", |c| c.subfarms = 0),
            ("B0116", "builder.subfarms", |c| {
                (c.builder_units, c.filter_units, c.subfarms) = (3, 2, 3);
            }),
            ("B0103", "builder.readout_units[1]", |c| {
                c.readout_units[1][0] = SourceId(2);
            }),
            ("B0104", "builder.credits", |c| c.credits = 0),
            ("B0105", "builder.requests_per_message", |c| {
                c.requests_per_message = 33;
            }),
            ("B0106", "builder.timeout", |c| {
                c.timeout = DurationNs(7_200_000_000_000);
            }),
            ("B0106", "builder.retry", |c| c.retry = DurationNs(0)),
            ("B0106", "builder.retry", |c| {
                c.retry = DurationNs(2 * DurationNs::SECOND.0);
            }),
            ("B0106", "builder.probe", |c| c.probe = DurationNs(0)),
            ("B0108", "builder.evm_queue", |c| c.evm_queue = 0),
            ("B0109", "builder.filter_in_flight", |c| {
                c.filter_in_flight = 0;
            }),
            ("B0110", "builder.readout_units[0]", |c| {
                c.readout_units[0] = (100..133).map(SourceId).collect();
            }),
            ("B0111", "builder.history", |c| c.history = 5000),
            ("B0111", "builder.history", |c| c.history = 2048),
            ("B0112", "builder.event_bytes", |c| c.credit_bytes = 1 << 20),
            ("B0112", "builder.event_bytes", |c| {
                (c.credit_bytes, c.event_bytes) = (1 << 20, (1 << 20) + 1);
            }),
            ("B0115", "builder.first_step[1]", |c| {
                c.readout_units.push(vec![SourceId(9)]);
                c.first_step = vec![1, 1];
            }),
            ("B0115", "builder.first_step[0]", |c| c.first_step = vec![2]),
            ("B0115", "builder.first_step", |c| {
                (c.first_step, c.mode) = (vec![0], BuildMode::Push);
            }),
            ("B0113", "builder.heartbeat", |c| {
                c.heartbeat = DurationNs(BuilderConfig::HEARTBEAT_MIN.0 - 1);
            }),
            ("B0113", "builder.heartbeat", |c| {
                // Twice as much is more than a number of nanoseconds can say.
                c.heartbeat = DurationNs(u64::MAX);
            }),
            ("B0113", "builder.suspect", |c| {
                c.heartbeat = DurationNs(151_000_000)
            }),
            ("B0113", "builder.dead", |c| {
                (c.heartbeat, c.dead) = (DurationNs(100_000_000), DurationNs(299_999_999));
            }),
        ];
        for (code, path, change) in cases {
            let mut config = good();
            change(&mut config);
            let problems = config.validate("builder");
            assert_eq!(problems.len(), 1, "{code} {path}: {problems:?}");
            assert_eq!(
                (problems[0].code.code, problems[0].path.as_str()),
                (code, path)
            );
        }
    }

    #[test]
    fn the_trigger_window_must_cover_credits_and_queue() {
        let config = BuilderConfig {
            trigger_window: 159,
            ..good()
        };
        let problems = config.validate("builder");
        assert_eq!(problems[0].code.code, "B0111");
        assert_eq!(problems[0].allowed, "160 to 16777216");
        let config = BuilderConfig {
            trigger_window: 160,
            ..good()
        };
        assert_eq!(config.validate("builder"), []);
    }

    #[test]
    fn the_receive_buffer_follows_from_the_smaller_window() {
        let events_only = BuilderConfig {
            credits: 5,
            ..good()
        };
        assert_eq!(events_only.receive_bytes(1000), 5000);
        let both = BuilderConfig {
            credit_bytes: 3500,
            event_bytes: 1000,
            ..events_only
        };
        assert_eq!(both.receive_bytes(1000), 3000);
        assert_eq!(both.validate("builder"), []);
    }

    #[test]
    fn too_many_sources_for_a_ticket_are_refused() {
        let units = EVENT_SOURCES_MAX as u32 / 32 + 1;
        let config = BuilderConfig {
            readout_units: (0..units)
                .map(|unit| (32 * unit..32 * (unit + 1)).map(SourceId).collect())
                .collect(),
            ..good()
        };
        let problems = config.validate("b");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].code.code, "B0110");
    }
}
