//! Parameters of the physics generator: the mix of events, the beam and what surrounds a signal.

use livetime_wire::{Problem, RunNumber};

use crate::problem_code::{MIX, PHYSICS};

/// What the generator draws. The defaults imitate the CDF sample of the PULSAR timing note: 80 % of
/// the events have tracks, and a packet of those has 34 words on average; with the menu of
/// `examples/dimuon.toml` about 5 % pass Level 2.
#[derive(Debug, Clone, PartialEq)]
pub struct PhysicsConfig {
    /// Fraction of Z to two muons. Default 0.032. Sets the height of the mass peak.
    pub z_fraction: f64,
    /// Fraction of muon pairs with a falling mass spectrum, 5 to 200 GeV. Default 0.025.
    pub continuum_fraction: f64,
    /// Fraction of track pairs from a displaced vertex. Default 0.025. Feeds the two-track path.
    pub displaced_fraction: f64,
    /// Fraction of events with one muon. Default 0.05. Feeds the single-muon path.
    pub single_muon_fraction: f64,
    /// Fraction of events with an electron, a photon or a pair of jets. Default 0.18.
    pub calorimeter_fraction: f64,
    /// Fraction of events without any object. Default 0.20. What the fractions leave over is soft
    /// tracks.
    pub empty_fraction: f64,
    /// Fraction of events with an electron, a muon, a photon, two to six jets and a displaced pair
    /// of tracks. Default 0. No experiment has many of them: they exercise every path of a menu.
    pub many_objects_fraction: f64,
    /// Mean number of soft tracks around a signal, 0 to 60; a soft event has one more. Default 3.8.
    /// Each adds 3 words to the trigger packet.
    pub soft_tracks_mean: f64,
    /// Mean number of soft jets in an event that is not empty, 0 to 60. Default 2.8. Each adds a
    /// cluster, 2 words, to the trigger packet.
    pub soft_jets_mean: f64,
    /// Position of the beam in the transverse plane in mm, each at most 10. Default (+0.746,
    /// +0.422), as measured in the CMS dimuon sample of 2011. The trigger must be given the same.
    pub beam_mm: (f64, f64),
    /// Run number that generated events carry as payload. Default 1.
    pub source_run: RunNumber,
}

impl Default for PhysicsConfig {
    fn default() -> Self {
        Self {
            z_fraction: 0.032,
            continuum_fraction: 0.025,
            displaced_fraction: 0.025,
            single_muon_fraction: 0.05,
            calorimeter_fraction: 0.18,
            empty_fraction: 0.20,
            many_objects_fraction: 0.0,
            soft_tracks_mean: 3.8,
            soft_jets_mean: 2.8,
            beam_mm: (0.746, 0.422),
            source_run: RunNumber(1),
        }
    }
}

impl PhysicsConfig {
    /// The fractions with their keys, in the order in which an event is drawn.
    pub fn fractions(&self) -> [(&'static str, f64); 7] {
        [
            ("z_fraction", self.z_fraction),
            ("continuum_fraction", self.continuum_fraction),
            ("displaced_fraction", self.displaced_fraction),
            ("single_muon_fraction", self.single_muon_fraction),
            ("calorimeter_fraction", self.calorimeter_fraction),
            ("empty_fraction", self.empty_fraction),
            ("many_objects_fraction", self.many_objects_fraction),
        ]
    }

    /// Every problem of these parameters; `path` is their key path.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let fractions = self.fractions();
        for (key, fraction) in fractions {
            if !(0.0..=1.0).contains(&fraction) {
                let help = "give the share of this kind of event, 0.02 for 2 %";
                problems.push(Problem::new(
                    MIX,
                    format!("{path}.{key}"),
                    fraction,
                    "0 to 1",
                    help,
                ));
            }
        }
        let sum: f64 = fractions.iter().map(|(_, fraction)| fraction).sum();
        // Twelve decimals: 0.1 ten times is not exactly 1 in binary.
        if problems.is_empty() && sum > 1.0 + 1e-12 {
            let help = "lower a fraction; what is left over becomes events with soft tracks";
            let found = format!("a mix that adds up to {sum}");
            problems.push(Problem::new(MIX, path, found, "at most 1 in all", help));
        }
        for (key, mean) in [
            ("soft_tracks_mean", self.soft_tracks_mean),
            ("soft_jets_mean", self.soft_jets_mean),
        ] {
            if !(0.0..=60.0).contains(&mean) {
                let help = "an event has room for 256 objects; keep the mean well below";
                let path = format!("{path}.{key}");
                problems.push(Problem::new(PHYSICS, path, mean, "0 to 60", help));
            }
        }
        for (key, position) in [("beam_x", self.beam_mm.0), ("beam_y", self.beam_mm.1)] {
            if !(-10.0..=10.0).contains(&position) {
                let help = "impact parameters above 5.1 mm saturate the trigger's field";
                let (path, found) = (format!("{path}.{key}"), format!("{position} mm"));
                problems.push(Problem::new(PHYSICS, path, found, "-10 mm to 10 mm", help));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_leave_room_for_soft_events() {
        let config = PhysicsConfig::default();
        assert_eq!(config.validate("source.physics"), []);
        let sum: f64 = config.fractions().iter().map(|(_, f)| f).sum();
        assert!(sum < 1.0, "{sum}");
    }

    #[test]
    fn each_bad_parameter_is_named_and_all_are_reported_at_once() {
        let config = PhysicsConfig {
            z_fraction: -0.1,
            empty_fraction: f64::NAN,
            soft_tracks_mean: 1e9,
            beam_mm: (0.0, 11.0),
            ..PhysicsConfig::default()
        };
        let paths: Vec<String> = config.validate("s").into_iter().map(|p| p.path).collect();
        let expected = [
            "s.z_fraction",
            "s.empty_fraction",
            "s.soft_tracks_mean",
            "s.beam_y",
        ];
        assert_eq!(paths, expected);

        let full = PhysicsConfig {
            z_fraction: 0.9,
            ..PhysicsConfig::default()
        };
        let problems = full.validate("s");
        assert_eq!(problems.len(), 1);
        assert_eq!((problems[0].code, problems[0].path.as_str()), (MIX, "s"));
    }
}
