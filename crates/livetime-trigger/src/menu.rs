//! The Level-2 menu: the beam spot and the paths, checked as a whole.
//!
//! [`MenuConfig`] is what a configuration gives, [`Menu`] the proof that it has no problem; only
//! the latter can take decisions. The paths themselves are in [`crate::path`], the decisions in
//! [`crate::level_two`].

use livetime_wire::Problem;
use livetime_wire::trigger_packet::MuonStub;

use crate::beam_fit::BeamFitConfig;
use crate::beam_spot::BeamSpot;
use crate::muon_cut::{DimuonCut, SingleMuonCut};
use crate::path::{ChargeRule, Cut, PathConfig, outside};
use crate::prescale::Prescale;
use crate::prescale_step::DeadTimeControl;
use crate::problem_code::{DUPLICATE_BIT, DUPLICATE_NAME, EMPTY_MENU};
use crate::threshold::{AngleMdeg, EnergyMev, LengthUm, Sixteenths};
use crate::two_track::TwoTrackCut;

/// A menu as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MenuConfig {
    /// Position of the beam, subtracted from every impact parameter. Default (0, 0).
    pub beam_spot: BeamSpot,
    /// How the position is fitted while data are taken; `None`, the default, leaves it where it is.
    pub beam_fit: Option<BeamFitConfig>,
    /// How the dead time steps dynamic prescales.
    pub dead_time: DeadTimeControl,
    /// Luminosity in 10^30 / cm^2 / s by lumi section, from the first one of the run; the last holds
    /// on. Default empty: none is known, and every path is open.
    pub luminosity: Vec<u32>,
    /// The paths, at least one. Default: see [`MenuConfig::default`].
    pub paths: Vec<PathConfig>,
}

/// A menu without problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Menu(MenuConfig);

impl MenuConfig {
    /// Checks every path, and that no two share a bit or a name.
    ///
    /// `path` is the key of the table that holds `beam_spot` and `path`, such as `trigger`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = self.beam_spot.validate(&format!("{path}.beam_spot"));
        problems.extend(self.beam_fit.iter().flat_map(|fit| fit.validate(path)));
        problems.extend(self.dead_time.validate(path));
        if self.paths.is_empty() {
            problems.push(Problem::new(
                EMPTY_MENU,
                format!("{path}.path"),
                "empty",
                "one path or more",
                "add a path, for example one with the cut `auto` and a prescale",
            ));
        }
        for (index, config) in self.paths.iter().enumerate() {
            let key = format!("{path}.path[{index}]");
            problems.extend(config.validate(&key));
            problems.extend(self.unreachable_d(&key, &config.cut));
            let earlier = &self.paths[..index];
            if let Some(first) = earlier.iter().position(|other| other.bit == config.bit) {
                let problem = Problem::new(
                    DUPLICATE_BIT,
                    format!("{key}.bit"),
                    config.bit,
                    "a bit that no other path sets",
                    "give each path its own bit, or the decision does not tell them apart",
                );
                problems.push(problem.with_related(
                    format!("{path}.path[{first}].bit"),
                    format!("taken by `{}`", self.paths[first].name),
                ));
            }
            if let Some(first) = earlier.iter().position(|other| other.name == config.name) {
                let problem = Problem::new(
                    DUPLICATE_NAME,
                    format!("{key}.name"),
                    format!("\"{}\"", config.name),
                    "a name that no other path has",
                    "give each path its own name, or reports mix them up",
                );
                problems.push(
                    problem.with_related(format!("{path}.path[{first}].name"), "first used here"),
                );
            }
        }
        problems
    }

    /// A problem if no track can have the impact parameter that a cut asks for. A beam that is fitted
    /// may be anywhere.
    fn unreachable_d(&self, path: &str, cut: &Cut) -> Option<Problem> {
        let d_min = match cut {
            Cut::TwoTrack(cut) => cut.d_min,
            Cut::LeptonTrack(cut) => cut.d_min,
            _ => return None,
        };
        // What is out of every range is reported with the cut.
        let is_length = (LengthUm(0)..=LengthUm(1_000_000)).contains(&d_min);
        if self.beam_fit.is_some() || !is_length {
            return None;
        }
        let below = self.beam_spot.d_reach();
        outside(path, "d_min", d_min, LengthUm(0)..=LengthUm(below.0 - 1))
    }
}

impl Default for MenuConfig {
    /// The menu of a run that configures none: minimum bias and a prescaled AUTO path, single
    /// muons above 8 and 15 GeV, dimuons of either charge case, and the two displaced-track
    /// selections, with the Level-1 bits of `docs/formats/trigger-packet.md`, section 2.
    fn default() -> Self {
        const CMUP: u32 = MuonStub::CMU | MuonStub::CMP;
        const L1_TWO_TRACKS: u64 = 1 << 1;
        const L1_MUON: u64 = 1 << 2;
        const L1_DIMUON: u64 = 1 << 3;
        const L1_EVERY_THOUSANDTH: u64 = 1 << 4;
        let path = |name: &str, bit, l1_mask, cut, prescale| PathConfig {
            name: name.to_owned(),
            bit,
            l1_mask,
            cut,
            prescale: Prescale::from(prescale),
        };
        let muon = |types, mev| {
            let pt_min = EnergyMev(mev);
            Cut::SingleMuon(SingleMuonCut { types, pt_min })
        };
        let dimuon = |charge| {
            Cut::Dimuon(DimuonCut {
                types: 0,
                pt_min: EnergyMev(1500),
                charge,
            })
        };
        let charm = TwoTrackCut {
            pt_min: EnergyMev(2000),
            sum_pt_min: EnergyMev(5500),
            chi2_max: Sixteenths(400),
            charge: ChargeRule::Opposite,
            dphi_min: AngleMdeg(2000),
            dphi_max: AngleMdeg(90_000),
            d_min: LengthUm(120),
            d_max: LengthUm(1000),
            lxy_min: LengthUm(200),
            d_pair_max: None,
        };
        let two_pions = TwoTrackCut {
            dphi_min: AngleMdeg(20_000),
            dphi_max: AngleMdeg(135_000),
            d_pair_max: Some(LengthUm(140)),
            ..charm
        };
        Self {
            beam_spot: BeamSpot::default(),
            beam_fit: None,
            dead_time: DeadTimeControl::default(),
            luminosity: Vec::new(),
            paths: vec![
                path("MIN_BIAS", 0, L1_EVERY_THOUSANDTH, Cut::MinBias, 1),
                path("AUTO_TWO_TRACKS", 1, L1_TWO_TRACKS, Cut::Auto, 1000),
                path("CMUP_PT8", 8, L1_MUON, muon(CMUP, 8000), 1),
                path("MUON_PT15", 9, L1_MUON, muon(0, 15_000), 1),
                path("DIMUON_OS", 16, L1_DIMUON, dimuon(ChargeRule::Opposite), 1),
                path("DIMUON_SS", 17, L1_DIMUON, dimuon(ChargeRule::Same), 1),
                path("B_CHARM", 24, L1_TWO_TRACKS, Cut::TwoTrack(charm), 1),
                path("B_PIPI", 25, L1_TWO_TRACKS, Cut::TwoTrack(two_pions), 1),
            ],
        }
    }
}

impl Menu {
    /// Takes a menu in use.
    ///
    /// # Errors
    /// All problems that [`MenuConfig::validate`] finds; `path` is the prefix of their keys.
    #[inline]
    pub fn new_checked(config: MenuConfig, path: &str) -> Result<Self, Vec<Problem>> {
        let problems = config.validate(path);
        if problems.is_empty() {
            Ok(Self(config))
        } else {
            Err(problems)
        }
    }

    /// The configuration that it was made of.
    pub fn config(&self) -> &MenuConfig {
        &self.0
    }

    /// The paths in the order of the configuration.
    #[inline]
    pub fn paths(&self) -> &[PathConfig] {
        &self.0.paths
    }

    /// The path that sets a bit.
    #[inline]
    pub fn path_of_bit(&self, bit: u8) -> Option<&PathConfig> {
        self.0.paths.iter().find(|path| path.bit == bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_menu_is_good() {
        let menu = Menu::new_checked(MenuConfig::default(), "trigger").unwrap();
        assert_eq!(menu.paths().len(), 8);
        assert_eq!(menu.path_of_bit(25).unwrap().name, "B_PIPI");
        assert_eq!(menu.path_of_bit(26), None);
    }

    #[test]
    fn shared_bits_and_names_are_reported_with_both_places() {
        let mut config = MenuConfig::default();
        config.paths[3].bit = 0;
        config.paths[5].name = "B_CHARM".to_owned();
        config.beam_spot.x = LengthUm(200_000);
        let problems = Menu::new_checked(config, "trigger").unwrap_err();
        let places: Vec<_> = problems
            .iter()
            .map(|p| (p.code.code, p.path.as_str()))
            .collect();
        assert_eq!(
            places,
            [
                ("T0109", "trigger.beam_spot"),
                ("T0101", "trigger.path[3].bit"),
                ("T0102", "trigger.path[6].name"),
            ]
        );
        let related = |i: usize| problems[i].related.clone().unwrap();
        assert_eq!(
            related(1),
            (
                "trigger.path[0].bit".to_owned(),
                "taken by `MIN_BIAS`".to_owned()
            )
        );
        assert_eq!(related(2).0, "trigger.path[5].name");
    }

    #[test]
    fn an_impact_parameter_that_no_track_has_is_a_problem() {
        let found = |d_um, x, beam_fit: Option<BeamFitConfig>| {
            let mut config = MenuConfig::default();
            let Cut::TwoTrack(cut) = &mut config.paths[7].cut else {
                panic!("it is the path of two displaced tracks");
            };
            (cut.d_min, cut.d_max) = (LengthUm(d_um), LengthUm(1_000_000));
            config.beam_spot.x = LengthUm(x);
            config.beam_fit = beam_fit;
            let problems = config.validate("trigger");
            let lines = problems.iter().map(|p| (p.code.code, p.path.clone()));
            lines.collect::<Vec<_>>()
        };
        let refused = [("T0105", "trigger.path[7].d_min".to_owned())];
        assert_eq!(found(5109, 0, None), []);
        assert_eq!(found(5110, 0, None), refused);
        assert_eq!(found(5110, 1000, None), []);
        assert_eq!(found(7000, 1000, None), refused);
        assert_eq!(found(7000, 0, Some(BeamFitConfig::default())), []);
    }

    #[test]
    fn an_empty_menu_is_a_problem() {
        let config = MenuConfig {
            paths: Vec::new(),
            ..MenuConfig::default()
        };
        let problems = config.validate("trigger");
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].code, EMPTY_MENU);
    }
}
