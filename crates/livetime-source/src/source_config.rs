//! The whole configuration of a source, and what must hold between its parts.

use livetime_wire::trigger_packet::{HEADER_WORDS, WORDS_MAX_DEFAULT};
use livetime_wire::{Problem, SourceId};

use crate::fragment_writer::FragmentConfig;
use crate::physics_config::PhysicsConfig;
use crate::problem_code::{DATA_LINKS, PACKET_WORDS};
use crate::trigger_source::TriggerSourceConfig;

/// Most data links of one source.
pub const DATA_LINKS_MAX: usize = 4096;
/// Words of a packet that holds nothing but its header and the sums, which are never dropped.
const PACKET_WORDS_LEAST: usize = HEADER_WORDS + 4;
/// Words that the 16-bit length of a packet can say.
const PACKET_WORDS_MOST: usize = 65_535;

/// A source of triggers and fragments.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceConfig {
    /// Seed of everything random: events, sizes, arrival times. Equal seeds give equal runs as far
    /// as triggers are accepted equally. Default 1.
    pub seed: u64,
    /// When triggers are offered.
    pub triggers: TriggerSourceConfig,
    /// What the physics generator draws; unused with recorded events.
    pub physics: PhysicsConfig,
    /// Sizes of the data fragments.
    pub fragment: FragmentConfig,
    /// Source ids of the data links, in the order in which objects are spread over them; 1 to 4096,
    /// all different. Default eight links of sub-detector 1.
    pub data_links: Vec<SourceId>,
    /// Most words of a trigger packet, 10 to 65 535. Default 510. A packet above it loses items and
    /// is flagged; size it above all but rare events, and the trigger link's pages above it.
    pub packet_words_max: usize,
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            triggers: TriggerSourceConfig::default(),
            physics: PhysicsConfig::default(),
            fragment: FragmentConfig::default(),
            data_links: (0..8).map(|module| SourceId(1 << 16 | module)).collect(),
            packet_words_max: WORDS_MAX_DEFAULT,
        }
    }
}

impl SourceConfig {
    /// Every problem of this source; `path` is its key path, such as `source`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = self.triggers.validate(path);
        problems.extend(self.physics.validate(&format!("{path}.physics")));
        let links = self.data_links.len();
        problems.extend(self.fragment.validate(&format!("{path}.fragment"), links));
        if !(1..=DATA_LINKS_MAX).contains(&links) {
            let (path, found) = (format!("{path}.data_links"), format!("{links} links"));
            // Of too many the event builder says how many are allowed, which are fewer.
            let allowed = match links {
                0 => "1 or more".to_owned(),
                _ => format!("1 to {DATA_LINKS_MAX}"),
            };
            let help = "a source spreads its events over at least one data link";
            problems.push(Problem::new(DATA_LINKS, path, found, allowed, help));
        }
        let mut sorted: Vec<(SourceId, usize)> = Vec::with_capacity(links);
        sorted.extend(self.data_links.iter().copied().zip(0..));
        sorted.sort_unstable();
        for pair in sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let place = |n: usize| format!("{path}.data_links[{n}]");
            let help = "the builder files fragments under their source id, so each has its own";
            let problem = Problem::new(
                DATA_LINKS,
                place(pair[1].1),
                pair[1].0,
                "a source id that no other link has",
                help,
            );
            problems.push(problem.with_related(place(pair[0].1), "first used here"));
        }
        if !(PACKET_WORDS_LEAST..=PACKET_WORDS_MOST).contains(&self.packet_words_max) {
            let path = format!("{path}.packet_words_max");
            let allowed = format!("{PACKET_WORDS_LEAST} to {PACKET_WORDS_MOST}");
            let help = "510 holds every event of the generator and of the recorded files";
            let found = self.packet_words_max;
            problems.push(Problem::new(PACKET_WORDS, path, found, allowed, help));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::ByteSize;

    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(SourceConfig::default().validate("source"), []);
    }

    #[test]
    fn all_problems_come_at_once_each_with_its_place() {
        let mut config = SourceConfig::default();
        config.triggers.arrival.rate.0 = 0.0;
        config.physics.z_fraction = 2.0;
        config.fragment.bytes_mean = ByteSize(1 << 20);
        config.data_links[5] = config.data_links[2];
        config.packet_words_max = 9;
        let problems = config.validate("source");
        let places: Vec<&str> = problems.iter().map(|p| p.path.as_str()).collect();
        let expected = [
            "source.rate",
            "source.physics.z_fraction",
            "source.fragment.bytes_mean",
            "source.data_links[5]",
            "source.packet_words_max",
        ];
        assert_eq!(places, expected);
        let related = problems[3]
            .related
            .as_ref()
            .map(|(place, _)| place.as_str());
        assert_eq!(related, Some("source.data_links[2]"));
        for problem in problems {
            assert!(problem.to_string().contains("help: "), "{problem}");
        }
    }

    #[test]
    fn fragments_must_hold_the_objects_of_their_link() {
        let mut config = SourceConfig::default();
        config.fragment.bytes_max = ByteSize(512);
        config.fragment.bytes_mean = ByteSize(256);
        assert_eq!(config.validate("s")[0].path, "s.fragment.bytes_max");
        // With more links each carries fewer objects.
        config.data_links = (0..256).map(SourceId).collect();
        assert_eq!(config.validate("s"), []);
        config.data_links.clear();
        assert!(
            config
                .validate("s")
                .iter()
                .any(|p| p.path == "s.data_links")
        );
    }
}
