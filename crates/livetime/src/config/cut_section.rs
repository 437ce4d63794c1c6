//! The cut of one `[[trigger.path]]`: its thresholds, by the kind that `cut` names.
//!
//! What the cuts compute is in `livetime_trigger`; which values make sense is checked there, too.
//! Here keys and units are read, and what is missing is said.

use livetime_trigger::problem_code::ALGORITHM;
use livetime_trigger::{
    AlgorithmOptions, AlgorithmRegistry, AngleMdeg, ChargeRule, Cut, DimuonCut, ElectronMuonCut,
    EmCut, EnergyMev, JetCut, Lepton, LeptonTrackCut, MetEmCut, PhotonCut, SingleElectronCut,
    SingleMuonCut, Sixteenths, SumEtCut, TauCut, Thousandths, TwoTrackCut,
};
use livetime_wire::Problem;
use livetime_wire::trigger_packet::MuonStub;

use super::document::{Findings, Section};
use super::problem_code::{BAD_CHOICE, OUT_OF_RANGE};
use super::trigger_section::{ENERGY, LENGTH};

const ANGLE: &str = "an angle with unit in quotes, such as \"90 deg\" (mdeg, deg)";
const TYPES: [(&str, u32); 4] = [
    ("CMU", MuonStub::CMU),
    ("CMP", MuonStub::CMP),
    ("CMX", MuonStub::CMX),
    ("BMU", MuonStub::BMU),
];
const CHARGES: [(&str, ChargeRule); 3] = [
    ("opposite", ChargeRule::Opposite),
    ("same", ChargeRule::Same),
    ("any", ChargeRule::Any),
];

/// HAD / EM of an electromagnetic cluster where none is given.
const HAD_EM_MAX: Thousandths = Thousandths(125);
/// HAD / EM of a hadronic cluster where none is given.
const HAD_EM_MIN: Thousandths = Thousandths(500);
/// How near a track must be to an electron's cluster where nothing is said.
const ELECTRON_MATCH: AngleMdeg = AngleMdeg(6000);
/// How near a track must be to a tau's cluster where nothing is said.
const TAU_MATCH: AngleMdeg = AngleMdeg(10_000);

/// The cuts by name, before their thresholds are read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CutName {
    Auto,
    MinBias,
    ZeroBias,
    SingleMuon,
    Dimuon,
    TwoTrack,
    LeptonTrack,
    SingleElectron,
    Photon,
    ElectronMuon,
    Jet,
    MultiJet,
    JetsMet,
    MetEm,
    SumEt,
    Tau,
    User,
}

/// Every cut by its name in configurations.
pub(crate) const CUTS: [(&str, CutName); 17] = [
    ("auto", CutName::Auto),
    ("dimuon", CutName::Dimuon),
    ("electron_muon", CutName::ElectronMuon),
    ("jet", CutName::Jet),
    ("jets_met", CutName::JetsMet),
    ("lepton_track", CutName::LeptonTrack),
    ("met_em", CutName::MetEm),
    ("min_bias", CutName::MinBias),
    ("multi_jet", CutName::MultiJet),
    ("photon", CutName::Photon),
    ("single_electron", CutName::SingleElectron),
    ("single_muon", CutName::SingleMuon),
    ("sum_et", CutName::SumEt),
    ("tau", CutName::Tau),
    ("two_track", CutName::TwoTrack),
    ("user", CutName::User),
    ("zero_bias", CutName::ZeroBias),
];

/// The keys that belong to one cut or another.
pub(crate) const KEYS_OF_CUTS: [&str; 24] = [
    "algorithm",
    "charge",
    "chi2_max",
    "count",
    "d_max",
    "d_min",
    "d_pair_max",
    "dphi_max",
    "dphi_min",
    "em_min",
    "et_min",
    "had_em_max",
    "had_em_min",
    "lepton",
    "lxy_min",
    "match_max",
    "met_min",
    "options",
    "pt_min",
    "sum_et_min",
    "sum_pt_min",
    "towers_max",
    "track_pt_min",
    "types",
];
/// Those that belong to one lepton or the other.
const KEYS_OF_LEPTONS: [&str; 4] = ["em_min", "had_em_max", "pt_min", "types"];

/// Reads the keys of one path.
pub(crate) struct CutReader<'a, 't, 'f> {
    pub(crate) section: &'a mut Section<'t, 'f>,
    pub(crate) findings: &'a Findings,
    pub(crate) registry: &'a AlgorithmRegistry,
}

impl CutReader<'_, '_, '_> {
    /// The cut; `None` after its problems have been reported.
    pub(crate) fn read(mut self, cut: CutName) -> Option<Cut> {
        Some(match cut {
            CutName::Auto => Cut::Auto,
            CutName::MinBias => Cut::MinBias,
            CutName::ZeroBias => Cut::ZeroBias,
            CutName::SingleMuon => Cut::SingleMuon(self.muon()?),
            CutName::Dimuon => {
                let charge = self.charge();
                let SingleMuonCut { types, pt_min } = self.muon()?;
                Cut::Dimuon(DimuonCut {
                    types,
                    pt_min,
                    charge,
                })
            }
            CutName::TwoTrack => Cut::TwoTrack(self.two_track()?),
            CutName::LeptonTrack => Cut::LeptonTrack(self.lepton_track()?),
            CutName::SingleElectron => Cut::SingleElectron(self.single_electron()?),
            CutName::Photon => Cut::Photon(PhotonCut { em: self.em()? }),
            CutName::ElectronMuon => {
                let (em, muon) = (self.em(), self.muon());
                Cut::ElectronMuon(ElectronMuonCut {
                    em: em?,
                    muon: muon?,
                })
            }
            CutName::Jet => Cut::Jet(JetCut {
                count: 1,
                et_min: self.energy("et_min")?,
                sum_et_min: None,
                met_min: None,
            }),
            CutName::MultiJet => {
                let count = self.count("count", None);
                let sum_et_min = self.section.parsed("sum_et_min", ENERGY, str::parse);
                let et_min = self.energy("et_min");
                Cut::MultiJet(JetCut {
                    count: count?,
                    et_min: et_min?,
                    sum_et_min,
                    met_min: None,
                })
            }
            CutName::JetsMet => {
                let count = self.count("count", Some(2));
                let (et_min, met_min) = (self.energy("et_min"), self.energy("met_min"));
                Cut::JetsMet(JetCut {
                    count: count?,
                    et_min: et_min?,
                    sum_et_min: None,
                    met_min: Some(met_min?),
                })
            }
            CutName::MetEm => {
                let (met_min, em) = (self.energy("met_min"), self.em());
                Cut::MetEm(MetEmCut {
                    met_min: met_min?,
                    em: em?,
                })
            }
            CutName::SumEt => Cut::SumEt(SumEtCut {
                sum_et_min: self.energy("sum_et_min")?,
            }),
            CutName::Tau => Cut::Tau(self.tau()?),
            CutName::User => self.user()?,
        })
    }

    /// A threshold that must be there.
    fn energy(&mut self, key: &'static str) -> Option<EnergyMev> {
        self.section.require(key, ENERGY);
        self.section.parsed(key, ENERGY, str::parse)
    }

    fn count(&mut self, key: &'static str, default: Option<u32>) -> Option<u32> {
        if default.is_none() {
            self.section.require(key, "a whole number, 1 to 255");
        }
        let count = self.section.integer(key, 1..=255);
        count
            .and_then(|count| u32::try_from(count).ok())
            .or(default)
    }

    fn charge(&mut self) -> ChargeRule {
        let charge = self.section.choice("charge", &CHARGES);
        charge.unwrap_or(ChargeRule::Opposite)
    }

    fn angle(&mut self, key: &'static str, default: AngleMdeg) -> AngleMdeg {
        let angle = self.section.parsed(key, ANGLE, str::parse);
        angle.unwrap_or(default)
    }

    fn muon(&mut self) -> Option<SingleMuonCut> {
        let types = self.types();
        let pt_min = self.energy("pt_min")?;
        Some(SingleMuonCut { types, pt_min })
    }

    fn types(&mut self) -> u32 {
        let names = self.section.texts("types").unwrap_or_default();
        let mut mask = 0;
        for name in names {
            match TYPES.iter().find(|(known, _)| *known == name) {
                Some((_, bit)) => mask |= bit,
                None => self.findings.report(Problem::new(
                    BAD_CHOICE,
                    self.section.key_path("types"),
                    format!("\"{name}\""),
                    "CMU, CMP, CMX, BMU",
                    "list the chambers that must all have seen the muon",
                )),
            }
        }
        mask
    }

    fn em(&mut self) -> Option<EmCut> {
        let had_em_max = self.ratio("had_em_max", 0.001, HAD_EM_MAX);
        let em_min = self.energy("em_min");
        Some(EmCut {
            em_min: em_min?,
            had_em_max: had_em_max?,
        })
    }

    /// A ratio of at least `least` that is a whole number of thousandths.
    fn ratio(
        &mut self,
        key: &'static str,
        least: f64,
        default: Thousandths,
    ) -> Option<Thousandths> {
        let Some(ratio) = self.section.number(key, least..=1000.0) else {
            return Some(default);
        };
        exact(ratio, 1000.0)
            .map(Thousandths)
            .or_else(|| self.inexact(key, ratio, "a multiple of 0.001"))
    }

    fn chi2(&mut self) -> Option<Sixteenths> {
        const KEY: &str = "chi2_max";
        let chi2 = self.section.number(KEY, 0.0625..=128.0).unwrap_or(25.0);
        exact(chi2, 16.0)
            .map(Sixteenths)
            .or_else(|| self.inexact(KEY, chi2, "a multiple of 1/16"))
    }

    fn inexact<T>(&self, key: &str, found: f64, allowed: &str) -> Option<T> {
        self.findings.report(Problem::new(
            OUT_OF_RANGE,
            self.section.key_path(key),
            found,
            allowed,
            "use a value that the integers of the cut can hold exactly",
        ));
        None
    }

    fn single_electron(&mut self) -> Option<SingleElectronCut> {
        let match_max = self.angle("match_max", ELECTRON_MATCH);
        let (em, track_pt_min) = (self.em(), self.energy("track_pt_min"));
        Some(SingleElectronCut {
            em: em?,
            track_pt_min: track_pt_min?,
            match_max,
        })
    }

    fn tau(&mut self) -> Option<TauCut> {
        let match_max = self.angle("match_max", TAU_MATCH);
        let had_em_min = self.ratio("had_em_min", 0.0, HAD_EM_MIN);
        let towers_max = self.count("towers_max", None);
        let (et_min, track_pt_min) = (self.energy("et_min"), self.energy("track_pt_min"));
        Some(TauCut {
            et_min: et_min?,
            towers_max: towers_max?,
            had_em_min: had_em_min?,
            track_pt_min: track_pt_min?,
            match_max,
        })
    }

    fn lepton_track(&mut self) -> Option<LeptonTrackCut> {
        for key in ["d_min", "d_max"] {
            self.section.require(key, LENGTH);
        }
        self.section.require("lepton", "\"electron\" or \"muon\"");
        let lepton = match self
            .section
            .choice("lepton", &[("electron", 0), ("muon", 1)])
        {
            Some(0) => self.em().map(Lepton::Electron),
            Some(_) => self.muon().map(Lepton::Muon),
            None => {
                self.section.pass_over(&KEYS_OF_LEPTONS);
                None
            }
        };
        let track_pt_min = self.energy("track_pt_min");
        let chi2_max = self.chi2();
        let d_min = self.section.parsed("d_min", LENGTH, str::parse);
        let d_max = self.section.parsed("d_max", LENGTH, str::parse);
        Some(LeptonTrackCut {
            lepton: lepton?,
            track_pt_min: track_pt_min?,
            chi2_max: chi2_max?,
            d_min: d_min?,
            d_max: d_max?,
        })
    }

    fn two_track(&mut self) -> Option<TwoTrackCut> {
        for (key, allowed) in [
            ("dphi_min", ANGLE),
            ("dphi_max", ANGLE),
            ("d_min", LENGTH),
            ("d_max", LENGTH),
            ("lxy_min", LENGTH),
        ] {
            self.section.require(key, allowed);
        }
        let (pt_min, sum_pt_min) = (self.energy("pt_min"), self.energy("sum_pt_min"));
        let dphi_min = self.section.parsed("dphi_min", ANGLE, str::parse);
        let dphi_max = self.section.parsed("dphi_max", ANGLE, str::parse);
        let d_min = self.section.parsed("d_min", LENGTH, str::parse);
        let d_max = self.section.parsed("d_max", LENGTH, str::parse);
        let lxy_min = self.section.parsed("lxy_min", LENGTH, str::parse);
        let d_pair_max = self.section.parsed("d_pair_max", LENGTH, str::parse);
        let charge = self.charge();
        let chi2_max = self.chi2();
        Some(TwoTrackCut {
            pt_min: pt_min?,
            sum_pt_min: sum_pt_min?,
            chi2_max: chi2_max?,
            charge,
            dphi_min: dphi_min?,
            dphi_max: dphi_max?,
            d_min: d_min?,
            d_max: d_max?,
            lxy_min: lxy_min?,
            d_pair_max,
        })
    }

    /// An algorithm of this program, by its name.
    fn user(&mut self) -> Option<Cut> {
        self.section
            .require("algorithm", "the name of an algorithm of this program");
        let options = AlgorithmOptions::new(self.section.text_entries("options"));
        let name = self.section.text("algorithm")?;
        let (found, allowed) = match self.registry.make(&name, &options) {
            Some(Ok(cut)) => return Some(Cut::User(cut)),
            Some(Err(error)) => (error.to_string(), "the options of the algorithm".to_owned()),
            None => {
                let names: Vec<_> = self.registry.names().collect();
                let allowed = match names.as_slice() {
                    [] => "none: this program was built without algorithms of users".to_owned(),
                    names => names.join(", "),
                };
                (format!("\"{name}\""), allowed)
            }
        };
        self.findings.report(Problem::new(
            ALGORITHM,
            self.section.key_path("algorithm"),
            found,
            allowed,
            "examples/algorithm shows a program with an algorithm and its options",
        ));
        None
    }
}

/// `value` as a whole number of `1 / scale`, if it is one.
fn exact(value: f64, scale: f64) -> Option<i32> {
    let scaled = value * scale;
    // Decimal fractions such as 0.125 or 0.3 are exact to some ten digits after the product.
    ((scaled - scaled.round()).abs() < 1e-6).then_some(scaled.round() as i32)
}

#[cfg(test)]
mod tests {
    use livetime_trigger::{Algorithm, AlgorithmInput};

    use super::super::document::parse;
    use super::*;

    #[derive(Debug)]
    struct Never;

    impl Algorithm for Never {
        fn is_true(&self, _: &AlgorithmInput<'_>) -> bool {
            false
        }
    }

    fn read(cut: CutName, text: &str) -> (Option<Cut>, Vec<Problem>) {
        let mut registry = AlgorithmRegistry::new();
        registry.add("never", |options| {
            options.whole("depth", 1..=3)?;
            Ok(Never)
        });
        let findings = Findings::default();
        let table = parse(text, &findings);
        let mut section = Section::root(table.get_ref(), &findings);
        let reader = CutReader {
            section: &mut section,
            findings: &findings,
            registry: &registry,
        };
        let cut = reader.read(cut);
        section.finish();
        (cut, findings.into_parts().1)
    }

    #[test]
    fn algorithms_are_chosen_by_name_with_their_options() {
        let text = "algorithm = \"never\"\noptions = { depth = \"2\" }";
        let (cut, problems) = read(CutName::User, text);
        assert_eq!(problems, []);
        assert_eq!(cut.unwrap().name(), "user");
        for (text, found) in [
            ("algorithm = \"nevr\"", "\"nevr\""),
            (
                "algorithm = \"never\"",
                "option `depth` is missing, allowed is a whole number, 1 to 3",
            ),
            (
                "algorithm = \"never\"\noptions = { depth = \"2\", height = \"1\" }",
                "option `height` is not one of this algorithm",
            ),
        ] {
            let (cut, problems) = read(CutName::User, text);
            assert_eq!(cut, None);
            assert_eq!(problems.len(), 1);
            assert_eq!(
                (problems[0].code, problems[0].found.as_str()),
                (ALGORITHM, found)
            );
        }
    }

    #[test]
    fn everything_missing_is_said_at_once() {
        let (cut, problems) = read(CutName::Tau, "");
        assert_eq!(cut, None);
        let paths: Vec<_> = problems.iter().map(|p| p.path.as_str()).collect();
        assert_eq!(paths, ["towers_max", "et_min", "track_pt_min"]);
        let (_, problems) = read(CutName::LeptonTrack, "lepton = \"electron\"");
        let paths: Vec<_> = problems.iter().map(|p| p.path.as_str()).collect();
        assert_eq!(paths, ["d_min", "d_max", "em_min", "track_pt_min"]);
    }

    #[test]
    fn unknown_quantities_are_keys_that_nobody_reads() {
        let (_, problems) = read(CutName::Jet, "et_min = \"15 GeV\"\npt_min = \"15 GeV\"");
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "pt_min");
    }

    #[test]
    fn ratios_are_whole_thousandths() {
        let text = "em_min = \"8 GeV\"\nhad_em_max = 0.3";
        let (cut, problems) = read(CutName::Photon, text);
        assert_eq!(problems, []);
        let expected = EmCut {
            em_min: EnergyMev(8000),
            had_em_max: Thousandths(300),
        };
        assert_eq!(cut, Some(Cut::Photon(PhotonCut { em: expected })));
        let none = "em_min = \"8 GeV\"\nhad_em_max = 0";
        let allowed = &read(CutName::Photon, none).1[0].allowed;
        assert_eq!(allowed, "a number from 0.001 to 1000");
        let text = "em_min = \"8 GeV\"\nhad_em_max = 0.1255";
        assert_eq!(read(CutName::Photon, text).1[0].path, "had_em_max");
    }
}
