//! One path of the menu: Level-1 bits, a cut, a prescale, and the bit it sets in the decision.
//!
//! This file says what a path is and which of its values are allowed; rules between paths are in
//! [`crate::menu`]. How a path becomes a bit of the decision is in [`crate::level_two`].

use core::fmt::Display;
use core::ops::RangeInclusive;
use core::str::FromStr;

use livetime_wire::{Problem, ProblemCode};

use crate::algorithm::UserCut;
use crate::calorimeter_cut::{
    ElectronMuonCut, JetCut, MetEmCut, PhotonCut, SingleElectronCut, SumEtCut, TauCut,
};
use crate::lepton_track::LeptonTrackCut;
use crate::muon_cut::{DimuonCut, PT_MIN_MAX, SingleMuonCut};
use crate::prescale::Prescale;
use crate::problem_code::{BIT_RANGE, EMPTY_L1_MASK, EMPTY_WINDOW, PATH_NAME, THRESHOLD_RANGE};
use crate::threshold::{AngleMdeg, EnergyMev, LengthUm, Sixteenths};
use crate::two_track::TwoTrackCut;

/// Bits of a Level-2 decision.
pub const BITS: u8 = 128;
/// Longest name of a path.
pub const NAME_BYTES_MAX: usize = 32;

/// A path of the Level-2 menu.
///
/// It passes when any of its Level-1 bits is set, the luminosity leaves it open and its cut is true;
/// which passes fire is said by its prescale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathConfig {
    /// Name in reports: 1 to 32 letters, digits, `_` and `-`, unique in the menu.
    pub name: String,
    /// Bit in the decision, 0..128, unique in the menu.
    pub bit: u8,
    /// Level-1 bits of which any one opens the path; bit `n` of the mask is Level-1 bit `n`.
    pub l1_mask: u64,
    /// What the packet must show.
    pub cut: Cut,
    /// Which passes fire. Raise it when the path takes too much rate.
    pub prescale: Prescale,
}

/// What a path asks of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// Always true: the Level-1 accept is taken unseen.
    Auto,
    /// Always true: an unbiased sample.
    MinBias,
    /// A muon stub.
    SingleMuon(SingleMuonCut),
    /// Two muon stubs.
    Dimuon(DimuonCut),
    /// Two displaced tracks.
    TwoTrack(TwoTrackCut),
    /// A lepton and a displaced track.
    LeptonTrack(LeptonTrackCut),
    /// An electromagnetic cluster with a track.
    SingleElectron(SingleElectronCut),
    /// An isolated electromagnetic cluster.
    Photon(PhotonCut),
    /// An electromagnetic cluster and a muon stub.
    ElectronMuon(ElectronMuonCut),
    /// One cluster.
    Jet(JetCut),
    /// Several clusters, and sum Et.
    MultiJet(JetCut),
    /// Clusters and missing Et.
    JetsMet(JetCut),
    /// Missing Et and an electromagnetic cluster.
    MetEm(MetEmCut),
    /// Sum Et.
    SumEt(SumEtCut),
    /// A narrow hadronic cluster with an isolated track.
    Tau(TauCut),
    /// Always true: for the bit that Level 1 sets at random.
    ZeroBias,
    /// An algorithm of the user.
    User(UserCut),
}

/// What the charges of a pair must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChargeRule {
    /// One positive, one negative.
    #[default]
    Opposite,
    /// Both positive or both negative.
    Same,
    /// Either.
    Any,
}

/// A text that names no charge rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("charge is none of `opposite`, `same`, `any`")]
pub struct ChargeRuleError;

impl ChargeRule {
    /// Whether it takes a pair; each argument says whether that charge is negative.
    #[inline]
    pub fn takes(self, first_negative: bool, second_negative: bool) -> bool {
        let opposite = first_negative != second_negative;
        (self == Self::Any) | (opposite == (self == Self::Opposite))
    }

    /// The name in configurations.
    #[inline]
    pub fn name(self) -> &'static str {
        match self {
            Self::Opposite => "opposite",
            Self::Same => "same",
            Self::Any => "any",
        }
    }
}

impl FromStr for ChargeRule {
    type Err = ChargeRuleError;

    #[inline]
    fn from_str(text: &str) -> Result<Self, ChargeRuleError> {
        [Self::Opposite, Self::Same, Self::Any]
            .into_iter()
            .find(|rule| rule.name() == text)
            .ok_or(ChargeRuleError)
    }
}

impl Cut {
    /// Names of all cuts in configurations, for messages about unknown ones.
    pub const NAMES: [&'static str; 17] = [
        "auto",
        "min_bias",
        "single_muon",
        "dimuon",
        "two_track",
        "lepton_track",
        "single_electron",
        "photon",
        "electron_muon",
        "jet",
        "multi_jet",
        "jets_met",
        "met_em",
        "sum_et",
        "tau",
        "zero_bias",
        "user",
    ];

    /// The name in configurations.
    pub fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Self::Auto => 0,
            Self::MinBias => 1,
            Self::SingleMuon(_) => 2,
            Self::Dimuon(_) => 3,
            Self::TwoTrack(_) => 4,
            Self::LeptonTrack(_) => 5,
            Self::SingleElectron(_) => 6,
            Self::Photon(_) => 7,
            Self::ElectronMuon(_) => 8,
            Self::Jet(_) => 9,
            Self::MultiJet(_) => 10,
            Self::JetsMet(_) => 11,
            Self::MetEm(_) => 12,
            Self::SumEt(_) => 13,
            Self::Tau(_) => 14,
            Self::ZeroBias => 15,
            Self::User(_) => 16,
        }]
    }

    /// Whether it looks at tracks of the silicon tracker.
    #[inline]
    pub(crate) fn needs_tracks(&self) -> bool {
        matches!(
            self,
            Self::TwoTrack(_) | Self::LeptonTrack(_) | Self::User(_)
        )
    }

    /// Checks the thresholds; `path` is the key of the path.
    fn validate(&self, path: &str) -> Vec<Problem> {
        match self {
            Self::Auto | Self::MinBias | Self::ZeroBias | Self::User(_) => Vec::new(),
            Self::SingleMuon(cut) => muon_problems(path, cut.types, cut.pt_min),
            Self::Dimuon(cut) => muon_problems(path, cut.types, cut.pt_min),
            Self::TwoTrack(cut) => two_track_problems(path, cut),
            Self::LeptonTrack(cut) => cut.validate(path),
            Self::SingleElectron(cut) => cut.validate(path),
            Self::Photon(cut) => cut.em.validate(path),
            Self::ElectronMuon(cut) => cut.validate(path),
            Self::Jet(cut) | Self::MultiJet(cut) | Self::JetsMet(cut) => cut.validate(path),
            Self::MetEm(cut) => cut.validate(path),
            Self::SumEt(cut) => cut.validate(path),
            Self::Tau(cut) => cut.validate(path),
        }
    }
}

impl PathConfig {
    /// Checks the values of this path; `path` is its key, such as `trigger.path[3]`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty()
            || self.name.len() > NAME_BYTES_MAX
            || !self.name.chars().all(usable)
        {
            problems.push(Problem::new(
                PATH_NAME,
                format!("{path}.name"),
                format!("\"{}\"", self.name),
                format!("1 to {NAME_BYTES_MAX} letters, digits, `_` and `-`"),
                "name the path as it is to appear in reports",
            ));
        }
        if self.bit >= BITS {
            problems.push(Problem::new(
                BIT_RANGE,
                format!("{path}.bit"),
                self.bit,
                format!("0 to {}", BITS - 1),
                "use a free bit of the 128 of a decision",
            ));
        }
        if self.l1_mask == 0 {
            problems.push(Problem::new(
                EMPTY_L1_MASK,
                format!("{path}.l1"),
                "empty",
                "one or more of the bits 0 to 63",
                "list the Level-1 bits of which any one opens the path",
            ));
        }
        problems.extend(self.prescale.validate(path));
        problems.extend(self.cut.validate(path));
        problems
    }
}

/// A problem if `value` is not in `allowed`.
pub(crate) fn outside<T: Display + PartialOrd>(
    path: &str,
    key: &str,
    value: T,
    allowed: RangeInclusive<T>,
) -> Option<Problem> {
    (!allowed.contains(&value)).then(|| {
        Problem::new(
            THRESHOLD_RANGE,
            format!("{path}.{key}"),
            value,
            format!("{} to {}", allowed.start(), allowed.end()),
            "use a threshold that items of the trigger packet can reach",
        )
    })
}

/// A problem if a lower threshold is not below its upper one.
pub(crate) fn empty_window<T: Display + PartialOrd>(
    path: &str,
    (low_key, low): (&str, T),
    (high_key, high): (&str, T),
) -> Option<Problem> {
    const CODE: ProblemCode = EMPTY_WINDOW;
    (low >= high).then(|| {
        let problem = Problem::new(
            CODE,
            format!("{path}.{low_key}"),
            low,
            format!("below {high}, the value of `{high_key}`"),
            "put the lower threshold below the upper one, or the path never passes",
        );
        problem.with_related(format!("{path}.{high_key}"), "upper threshold set here")
    })
}

pub(crate) fn muon_problems(path: &str, types: u32, pt_min: EnergyMev) -> Vec<Problem> {
    let types_problem = (types > 15).then(|| {
        Problem::new(
            THRESHOLD_RANGE,
            format!("{path}.types"),
            types,
            "0 to 15",
            "combine the chamber types CMU (1), CMP (2), CMX (4) and BMU (8)",
        )
    });
    types_problem
        .into_iter()
        .chain(outside(path, "pt_min", pt_min, EnergyMev(0)..=PT_MIN_MAX))
        .collect()
}

fn two_track_problems(path: &str, cut: &TwoTrackCut) -> Vec<Problem> {
    // Beyond 1 TeV only tracks with c = 0 are left; 1 m is more than a track's d can reach.
    let energy = EnergyMev(0)..=EnergyMev(1_000_000);
    // Two tracks are at most 180 deg apart, which is to be above the lower threshold; an upper one
    // beyond leaves the window open.
    let angle = |max| AngleMdeg(0)..=AngleMdeg(max);
    let length = |min| LengthUm(min)..=LengthUm(1_000_000);
    let d_pair = cut
        .d_pair_max
        .and_then(|limit| outside(path, "d_pair_max", limit, length(1)));
    [
        outside(path, "pt_min", cut.pt_min, energy.clone()),
        outside(path, "sum_pt_min", cut.sum_pt_min, energy),
        outside(
            path,
            "chi2_max",
            cut.chi2_max,
            Sixteenths(1)..=Sixteenths(2048),
        ),
        outside(path, "dphi_min", cut.dphi_min, angle(179_999)),
        outside(path, "dphi_max", cut.dphi_max, angle(360_000)),
        outside(path, "d_min", cut.d_min, length(0)),
        outside(path, "d_max", cut.d_max, length(0)),
        outside(path, "lxy_min", cut.lxy_min, length(-1_000_000)),
        d_pair,
        empty_window(path, ("dphi_min", cut.dphi_min), ("dphi_max", cut.dphi_max)),
        empty_window(path, ("d_min", cut.d_min), ("d_max", cut.d_max)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(cut: Cut) -> PathConfig {
        PathConfig {
            name: "B_PIPI".to_owned(),
            bit: 127,
            l1_mask: 1 << 63,
            cut,
            prescale: Prescale::default(),
        }
    }

    const TWO_TRACK: TwoTrackCut = TwoTrackCut {
        pt_min: EnergyMev(2000),
        sum_pt_min: EnergyMev(5500),
        chi2_max: Sixteenths(400),
        charge: ChargeRule::Opposite,
        dphi_min: AngleMdeg(20_000),
        dphi_max: AngleMdeg(135_000),
        d_min: LengthUm(120),
        d_max: LengthUm(1000),
        lxy_min: LengthUm(200),
        d_pair_max: Some(LengthUm(140)),
    };

    fn found(config: &PathConfig) -> Vec<(&'static str, String)> {
        config
            .validate("trigger.path[3]")
            .into_iter()
            .map(|problem| (problem.code.code, problem.path))
            .collect()
    }

    #[test]
    fn good_paths_have_no_problem() {
        let muon = SingleMuonCut {
            types: 3,
            pt_min: PT_MIN_MAX,
        };
        let two = TwoTrackCut {
            d_pair_max: None,
            ..TWO_TRACK
        };
        for cut in [
            Cut::Auto,
            Cut::MinBias,
            Cut::SingleMuon(muon),
            Cut::TwoTrack(TWO_TRACK),
            Cut::TwoTrack(two),
        ] {
            assert_eq!(found(&path(cut)), []);
        }
    }

    #[test]
    fn all_problems_of_a_path_are_reported_at_once() {
        let broken = PathConfig {
            name: "no spaces".to_owned(),
            bit: 128,
            l1_mask: 0,
            prescale: 0.into(),
            cut: Cut::Dimuon(DimuonCut {
                types: 16,
                pt_min: EnergyMev(63_500),
                charge: ChargeRule::Any,
            }),
        };
        let expected = [
            ("T0107", "name"),
            ("T0106", "bit"),
            ("T0104", "l1"),
            ("T0103", "prescale"),
            ("T0105", "types"),
            ("T0105", "pt_min"),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(code, key)| (*code, format!("trigger.path[3].{key}")))
            .collect();
        assert_eq!(found(&broken), expected);
    }

    #[test]
    fn two_track_thresholds_are_checked_one_by_one_and_as_windows() {
        let upside_down = TwoTrackCut {
            dphi_min: AngleMdeg(90_000),
            dphi_max: AngleMdeg(90_000),
            d_min: LengthUm(1001),
            ..TWO_TRACK
        };
        let problems = path(Cut::TwoTrack(upside_down)).validate("p");
        assert_eq!(problems.len(), 2);
        assert_eq!(problems[0].code.code, "T0110");
        assert_eq!(problems[0].found, "90 deg");
        assert_eq!(problems[1].related.as_ref().unwrap().0, "p.d_max");
        let far_out = TwoTrackCut {
            pt_min: EnergyMev(-1),
            sum_pt_min: EnergyMev(1_000_001),
            chi2_max: Sixteenths(0),
            dphi_min: AngleMdeg(-1),
            dphi_max: AngleMdeg(360_001),
            d_min: LengthUm(-1),
            d_max: LengthUm(1_000_001),
            lxy_min: LengthUm(-1_000_001),
            d_pair_max: Some(LengthUm(0)),
            charge: ChargeRule::Same,
        };
        let problems = path(Cut::TwoTrack(far_out)).validate("p");
        assert_eq!(problems.len(), 9);
        assert!(
            problems
                .iter()
                .all(|problem| problem.code == THRESHOLD_RANGE)
        );
        assert_eq!(problems[1].found, "1000.001 GeV");
        assert_eq!(problems[1].allowed, "0 GeV to 1000 GeV");
    }

    #[test]
    fn an_opening_angle_above_half_a_turn_is_a_problem() {
        let problems = |dphi_min| {
            let cut = TwoTrackCut {
                dphi_min: AngleMdeg(dphi_min),
                dphi_max: AngleMdeg(360_000),
                ..TWO_TRACK
            };
            let problems = path(Cut::TwoTrack(cut)).validate("p");
            problems.iter().map(|p| p.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(problems(179_999), <[String; 0]>::default());
        assert_eq!(problems(180_000), ["p.dphi_min"]);
    }

    #[test]
    fn charge_rules_read_their_names() {
        for rule in [ChargeRule::Opposite, ChargeRule::Same, ChargeRule::Any] {
            assert_eq!(rule.name().parse(), Ok(rule));
        }
        assert_eq!("Opposite".parse::<ChargeRule>(), Err(ChargeRuleError));
    }
}
