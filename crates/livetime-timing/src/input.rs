//! Inputs as sources of messages: an edge that stays becomes a timing message.
//!
//! The message's ID is the input's prefix with the new level in its lowest bit, its time that of
//! the edge, its parameter 0. A level that does not stay for the stable time is no edge. The
//! message is known only after the stable time, so conditions on it need an offset of at least
//! that and the latency of the action unit. What the message then causes is the business of
//! [`crate::action_unit`].

use livetime_wire::{EventId, Problem, TaiNs, TimingMessage};

use crate::problem_code;

/// Step of the stable time, ns: one clock cycle.
pub const STABLE_STEP_NS: u32 = 8;
/// Smallest stable time, ns.
pub const STABLE_MIN_NS: u32 = 16;

/// How an input makes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputConfig {
    /// Whether it makes messages at all.
    pub enabled: bool,
    /// ID of its messages; the lowest bit must be 0, since it becomes the level.
    pub prefix: EventId,
    /// How long a level must stay, ns: a multiple of 8, at least 16.
    pub stable_ns: u32,
}

impl InputConfig {
    /// All problems of the values, under `path`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.stable_ns < STABLE_MIN_NS || !self.stable_ns.is_multiple_of(STABLE_STEP_NS) {
            problems.push(Problem::new(
                problem_code::STABLE_TIME,
                format!("{path}.stable"),
                format!("{} ns", self.stable_ns),
                "a multiple of 8 ns, at least 16 ns",
                "use the next larger multiple of 8 ns",
            ));
        }
        if self.prefix.0 & 1 != 0 {
            problems.push(Problem::new(
                problem_code::INPUT_PREFIX,
                format!("{path}.prefix"),
                self.prefix,
                "an event ID whose lowest bit is 0",
                "clear the lowest bit: it becomes the level after the edge",
            ));
        }
        problems
    }
}

impl Default for InputConfig {
    /// Disabled, prefix 0, 16 ns.
    fn default() -> Self {
        Self {
            enabled: false,
            prefix: EventId(0),
            stable_ns: STABLE_MIN_NS,
        }
    }
}

/// One digital input.
#[derive(Debug, Clone)]
pub struct Input {
    config: InputConfig,
    /// Level that was reported last.
    reported: bool,
    /// Level now, and since when.
    level: (bool, TaiNs),
    edges: u64,
    glitches: u64,
}

impl Input {
    /// An input that is low.
    ///
    /// # Errors
    /// All problems of the configuration.
    pub fn new(config: InputConfig) -> Result<Self, Vec<Problem>> {
        let problems = config.validate("timing.input");
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            config,
            reported: false,
            level: (false, TaiNs(0)),
            edges: 0,
            glitches: 0,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &InputConfig {
        &self.config
    }

    /// Changes the configuration; what is on its way keeps its edge and takes the new prefix.
    ///
    /// # Errors
    /// All problems of the configuration; nothing changes then.
    pub fn configure(&mut self, config: InputConfig) -> Result<(), Vec<Problem>> {
        let problems = config.validate("timing.input");
        if !problems.is_empty() {
            return Err(problems);
        }
        self.config = config;
        Ok(())
    }

    /// The level now.
    pub fn level(&self) -> bool {
        self.level.0
    }

    /// Edges that became messages, or would have if the input was enabled.
    pub fn edges(&self) -> u64 {
        self.edges
    }

    /// Changes of level that did not stay.
    pub fn glitches(&self) -> u64 {
        self.glitches
    }

    /// The level is `level` from `at` on. Poll up to `at` first: a message that is due before is
    /// returned here, so that none is lost.
    pub fn handle_level(&mut self, at: TaiNs, level: bool) -> Option<TimingMessage> {
        let due = self.poll_output(at);
        if level != self.level.0 {
            if self.level.0 != self.reported {
                self.glitches += 1;
            }
            self.level = (level, at);
        }
        due
    }

    /// The message of an edge that has stayed up to `now`.
    pub fn poll_output(&mut self, now: TaiNs) -> Option<TimingMessage> {
        let (level, since) = self.level;
        if self.poll_timeout()? > now {
            return None;
        }
        self.reported = level;
        self.edges += 1;
        let id = EventId(self.config.prefix.0 | u64::from(level));
        self.config
            .enabled
            .then(|| TimingMessage::new(id, 0, since))
    }

    /// When the present level becomes an edge, if it stays.
    pub fn poll_timeout(&self) -> Option<TaiNs> {
        let (level, since) = self.level;
        let stable = TaiNs(since.0.saturating_add(u64::from(self.config.stable_ns)));
        (level != self.reported).then_some(stable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(stable_ns: u32) -> Input {
        Input::new(InputConfig {
            enabled: true,
            prefix: EventId(0xFFFE_0000_0000_0010),
            stable_ns,
        })
        .unwrap()
    }

    #[test]
    fn an_edge_script_gives_exactly_its_messages() {
        let mut input = input(24);
        // Up at 100; a glitch down of 8 ns at 200, one of 23 ns at 300; down at 400; up at 424.
        let script = [
            (100, true),
            (200, false),
            (208, true),
            (300, false),
            (323, true),
            (400, false),
            (424, true),
        ];
        let mut messages = Vec::new();
        for (at, level) in script {
            messages.extend(input.handle_level(TaiNs(at), level));
        }
        messages.extend(input.poll_output(TaiNs(447)));
        assert_eq!(input.poll_timeout(), Some(TaiNs(448)));
        messages.extend(input.poll_output(TaiNs(448)));
        let found: Vec<_> = messages.iter().map(|m| (m.id.0 & 1, m.time.0)).collect();
        assert_eq!(found, [(1, 100), (0, 400), (1, 424)]);
        assert_eq!((input.edges(), input.glitches()), (3, 2));
        assert_eq!(input.poll_timeout(), None);
    }

    #[test]
    fn stable_times_are_multiples_of_8_from_16_on() {
        let problems = |stable_ns, prefix| {
            InputConfig {
                enabled: true,
                prefix: EventId(prefix),
                stable_ns,
            }
            .validate("timing.input")
            .into_iter()
            .map(|problem| problem.code.code)
            .collect::<Vec<_>>()
        };
        assert!(problems(16, 0).is_empty());
        assert!(problems(24, 2).is_empty());
        for stable_ns in [0, 8, 15, 17, 20] {
            assert_eq!(problems(stable_ns, 0), ["G0104"], "{stable_ns}");
        }
        assert_eq!(problems(16, 1), ["G0105"]);
    }

    #[test]
    fn a_disabled_input_counts_edges_and_makes_no_message() {
        let mut input = Input::new(InputConfig::default()).unwrap();
        assert_eq!(input.handle_level(TaiNs(10), true), None);
        assert_eq!(input.poll_output(TaiNs(26)), None);
        assert_eq!((input.edges(), input.level()), (1, true));
    }
}
