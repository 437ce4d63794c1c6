//! The menu of the loop benches, one path of each kind, and packets that it has to look at.
//!
//! Thresholds are those of `examples/menu-16.toml`; no path is prescaled, so that the decision on a
//! packet is the same whenever it is asked for.

use livetime_trigger::{
    AngleMdeg, ChargeRule, Cut, DimuonCut, ElectronMuonCut, EmCut, EnergyMev, JetCut, LengthUm,
    Lepton, LeptonTrackCut, Menu, MenuConfig, MetEmCut, PathConfig, PhotonCut, SingleElectronCut,
    SingleMuonCut, Sixteenths, SumEtCut, TauCut, Thousandths, TwoTrackCut,
};
use livetime_wire::RunNumber;
use livetime_wire::decision::mix64;
use livetime_wire::trigger_packet::{Cluster, MuonStub, Sums, SvtTrack, TriggerPacket, XtrpTrack};

/// The run of the packets.
pub(crate) const RUN: RunNumber = RunNumber(1);
/// Words of a packet of the CDF sample of 2003.
pub(crate) const TYPICAL_WORDS: usize = 34;

/// One path of each of the sixteen kinds, each open to every Level-1 bit.
pub(crate) fn menu_of_sixteen() -> Menu {
    let cuts = [
        Cut::TwoTrack(two_track()),
        Cut::LeptonTrack(lepton_track()),
        Cut::SingleMuon(muon(MuonStub::CMU | MuonStub::CMP, 8000)),
        Cut::SingleElectron(SingleElectronCut {
            em: em(8000, 125),
            track_pt_min: EnergyMev(4000),
            match_max: AngleMdeg(6000),
        }),
        Cut::Photon(PhotonCut {
            em: em(10_000, 125),
        }),
        Cut::Dimuon(DimuonCut {
            types: 0,
            pt_min: EnergyMev(1500),
            charge: ChargeRule::Opposite,
        }),
        Cut::ElectronMuon(ElectronMuonCut {
            em: em(4000, 125),
            muon: muon(0, 4000),
        }),
        Cut::Jet(jets(1, 40_000, None, None)),
        Cut::MultiJet(jets(3, 15_000, Some(100_000), None)),
        Cut::JetsMet(jets(2, 15_000, None, Some(20_000))),
        Cut::MetEm(MetEmCut {
            met_min: EnergyMev(25_000),
            em: em(8000, 125),
        }),
        Cut::SumEt(SumEtCut {
            sum_et_min: EnergyMev(300_000),
        }),
        Cut::Tau(tau()),
        Cut::MinBias,
        Cut::Auto,
        Cut::ZeroBias,
    ];
    menu_of(cuts.into_iter().enumerate().map(|(bit, cut)| {
        // The paths that are always true get a Level-1 bit that most packets lack.
        let l1_mask = match cut {
            Cut::MinBias | Cut::Auto | Cut::ZeroBias => 1 << 63,
            _ => u64::MAX,
        };
        (format!("PATH_{bit}"), l1_mask, cut)
    }))
}

fn em(em_min: i32, had_em_max: i32) -> EmCut {
    EmCut {
        em_min: EnergyMev(em_min),
        had_em_max: Thousandths(had_em_max),
    }
}

fn muon(types: u32, pt_min: i32) -> SingleMuonCut {
    SingleMuonCut {
        types,
        pt_min: EnergyMev(pt_min),
    }
}

fn jets(count: u32, et_min: i32, sum_et_min: Option<i32>, met_min: Option<i32>) -> JetCut {
    JetCut {
        count,
        et_min: EnergyMev(et_min),
        sum_et_min: sum_et_min.map(EnergyMev),
        met_min: met_min.map(EnergyMev),
    }
}

/// Two displaced tracks of opposite charge.
fn two_track() -> TwoTrackCut {
    TwoTrackCut {
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
    }
}

/// A muon beside a displaced track.
fn lepton_track() -> LeptonTrackCut {
    LeptonTrackCut {
        lepton: Lepton::Muon(muon(0, 4000)),
        track_pt_min: EnergyMev(2000),
        chi2_max: Sixteenths(400),
        d_min: LengthUm(120),
        d_max: LengthUm(1000),
    }
}

fn tau() -> TauCut {
    TauCut {
        et_min: EnergyMev(10_000),
        towers_max: 12,
        had_em_min: Thousandths(500),
        track_pt_min: EnergyMev(1000),
        match_max: AngleMdeg(10_000),
    }
}

/// One path that every packet passes: a decision without an algorithm.
pub(crate) fn menu_without_cuts() -> Menu {
    menu_of([("ECHO".to_owned(), u64::MAX, Cut::Auto)].into_iter())
}

/// A menu of paths that are not prescaled.
pub(crate) fn menu_of(paths: impl Iterator<Item = (String, u64, Cut)>) -> Menu {
    let path = |(bit, (name, l1_mask, cut)): (usize, (String, u64, Cut))| PathConfig {
        name,
        bit: bit as u8,
        l1_mask,
        cut,
        prescale: 1.into(),
    };
    let config = MenuConfig {
        paths: paths.enumerate().map(path).collect(),
        ..MenuConfig::default()
    };
    Menu::new_checked(config, "trigger").expect("the paths have bits and names of their own")
}

/// A packet of [`TYPICAL_WORDS`] whose items spread over what the cuts look at.
pub(crate) fn typical_packet(trigger_low: u32) -> TriggerPacket {
    packet([4, 4, 3, 2], trigger_low)
}

/// A packet with these numbers of XTRP tracks, SVT tracks, clusters and stubs.
pub(crate) fn packet([xtrp, svt, clusters, muons]: [u32; 4], trigger_low: u32) -> TriggerPacket {
    let mut state = mix64(trigger_low.into());
    let mut below = |limit: u32| {
        state = mix64(state);
        ((state >> 32) % u64::from(limit)) as u32
    };
    let xtrp: Vec<_> = (0..xtrp)
        .map(|_| XtrpTrack::new(below(288), below(8), below(32), below(2) == 0, true))
        .collect();
    let svt: Vec<_> = (0..svt)
        .map(|_| {
            let d = below(100).cast_signed() - 50;
            SvtTrack::new(below(8192), 32, d, below(120), below(2) == 0, below(400))
        })
        .collect();
    let clusters: Vec<_> = (0..clusters)
        .map(|_| {
            let (em, had) = (below(200), below(200) / (1 + 9 * below(2)));
            Cluster::new(
                em,
                had,
                1 + (em + had) / 16,
                below(100),
                0,
                below(64),
                below(16),
            )
        })
        .collect();
    let muons: Vec<_> = (0..muons)
        .map(|_| MuonStub::new(below(144), below(16), 255, below(2) == 0, below(40)))
        .collect();
    TriggerPacket {
        trigger_low,
        run: RUN.0,
        l1_bits: 0b11_1110_1111,
        xtrp,
        svt,
        clusters,
        muons,
        sums: Some(Sums::new(below(4000), below(400), below(8192))),
        ..TriggerPacket::default()
    }
}

/// The words of a packet.
pub(crate) fn words_of(packet: &TriggerPacket) -> Vec<u32> {
    let mut words = Vec::new();
    packet.emit(&mut words);
    words
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use livetime_trigger::{LevelTwo, LevelTwoNode};

    use super::*;

    #[test]
    fn packets_have_their_words_and_every_cut_is_true_of_some_and_false_of_others() {
        let mut node = LevelTwoNode::new(LevelTwo::new(&menu_of_sixteen()), RUN);
        let (mut any, mut all, mut masks) = (0, u128::MAX, BTreeSet::new());
        for number in 0..4096 {
            let words = words_of(&typical_packet(number));
            assert_eq!(words.len(), TYPICAL_WORDS);
            let mask = node.handle_packet(&words).unwrap().reply.mask;
            any |= mask.0;
            all &= mask.0;
            masks.insert(mask);
        }
        // The last three paths have a Level-1 bit that these packets lack.
        assert_eq!((any, all), ((1 << 13) - 1, 0));
        assert!(masks.len() > 100, "{} different decisions", masks.len());
    }
}
