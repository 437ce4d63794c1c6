//! The lepton-and-track cut: a lepton and one displaced track.
//!
//! The lepton is an electromagnetic cluster or a muon stub; the track is one of the first twenty of
//! the silicon tracker, corrected for the beam. Pairs of displaced tracks are in
//! [`crate::two_track`].

use livetime_wire::Problem;
use livetime_wire::trigger_packet::TriggerPacketView;

use crate::calorimeter_cut::EmCut;
use crate::muon_cut::SingleMuonCut;
use crate::path::{empty_window, muon_problems, outside};
use crate::threshold::{EnergyMev, LengthUm, Sixteenths};
use crate::two_track::{CorrectedTracks, PT_OF_ONE_COUNT_MEV};

/// Which lepton.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lepton {
    /// A cluster.
    Electron(EmCut),
    /// A stub.
    Muon(SingleMuonCut),
}

/// `lepton_track`: a lepton and a displaced track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeptonTrackCut {
    /// The lepton.
    pub lepton: Lepton,
    /// pT of the track is above this; c = 0 is infinite pT and passes.
    pub track_pt_min: EnergyMev,
    /// chi2 of the track is below this.
    pub chi2_max: Sixteenths,
    /// Impact parameter with respect to the beam is above this in magnitude.
    pub d_min: LengthUm,
    /// Impact parameter with respect to the beam is below this in magnitude.
    pub d_max: LengthUm,
}

impl LeptonTrackCut {
    /// Whether there is a lepton, and a track among `tracks`.
    pub fn is_true(&self, packet: &TriggerPacketView<'_>, tracks: &CorrectedTracks) -> bool {
        let has_lepton = match &self.lepton {
            Lepton::Electron(cut) => cut.is_true(packet),
            Lepton::Muon(cut) => cut.is_true(packet.muons()),
        };
        has_lepton
            && tracks.iter().any(|track| {
                let d_um = track.d_um.abs();
                (track.chi2 < self.chi2_max.count())
                    & (track.c * self.track_pt_min.count() < PT_OF_ONE_COUNT_MEV)
                    & (self.d_min.count() < d_um)
                    & (d_um < self.d_max.count())
            })
    }

    pub(crate) fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = match &self.lepton {
            Lepton::Electron(cut) => cut.validate(path),
            Lepton::Muon(cut) => muon_problems(path, cut.types, cut.pt_min),
        };
        let energy = EnergyMev(0)..=EnergyMev(1_000_000);
        let chi2 = Sixteenths(1)..=Sixteenths(2048);
        let length = LengthUm(0)..=LengthUm(1_000_000);
        let found = [
            outside(path, "track_pt_min", self.track_pt_min, energy),
            outside(path, "chi2_max", self.chi2_max, chi2),
            outside(path, "d_min", self.d_min, length.clone()),
            outside(path, "d_max", self.d_max, length),
            empty_window(path, ("d_min", self.d_min), ("d_max", self.d_max)),
        ];
        problems.extend(found.into_iter().flatten());
        problems
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::trigger_packet::{Cluster, MuonStub, SvtTrack, TriggerPacket};

    use super::*;
    use crate::beam_spot::BeamSpot;
    use crate::threshold::Thousandths;
    use crate::trig_table::TrigTable;

    const CUT: LeptonTrackCut = LeptonTrackCut {
        lepton: Lepton::Muon(SingleMuonCut {
            types: 3,
            pt_min: EnergyMev(4000),
        }),
        track_pt_min: EnergyMev(2000),
        chi2_max: Sixteenths(400),
        d_min: LengthUm(120),
        d_max: LengthUm(1000),
    };

    fn passes(cut: LeptonTrackCut, muon: u32, em: u32, track: SvtTrack) -> bool {
        let packet = TriggerPacket {
            muons: vec![MuonStub::new(0, 3, 255, false, muon)],
            clusters: vec![Cluster::new(em, 0, 1, 0, 0, 0, 0)],
            svt: vec![track],
            ..TriggerPacket::default()
        };
        let mut words = Vec::new();
        packet.emit(&mut words);
        let view = TriggerPacketView::new_checked(&words).unwrap();
        let mut tracks = CorrectedTracks::default();
        tracks.fill(view.svt(), &TrigTable::new(), BeamSpot::default());
        cut.is_true(&view, &tracks)
    }

    fn track(d: i32, c: u32, chi2: u32) -> SvtTrack {
        SvtTrack::new(100, 32, d, c, false, chi2)
    }

    #[test]
    fn both_the_lepton_and_the_track_are_needed() {
        assert!(passes(CUT, 9, 0, track(13, 90, 399)));
        assert!(!passes(CUT, 8, 0, track(13, 90, 399)), "4 GeV is not above");
        assert!(
            !passes(CUT, 9, 0, track(12, 90, 399)),
            "120 um is not above"
        );
        assert!(
            !passes(CUT, 9, 0, track(-100, 90, 399)),
            "1 mm is not below"
        );
        assert!(passes(CUT, 9, 0, track(-99, 90, 399)));
        assert!(!passes(CUT, 9, 0, track(13, 91, 399)), "below 2 GeV");
        assert!(!passes(CUT, 9, 0, track(13, 90, 400)));
        let electron = LeptonTrackCut {
            lepton: Lepton::Electron(EmCut {
                em_min: EnergyMev(4000),
                had_em_max: Thousandths(125),
            }),
            ..CUT
        };
        assert!(passes(electron, 0, 33, track(13, 90, 399)));
        assert!(!passes(electron, 99, 32, track(13, 90, 399)));
    }

    #[test]
    fn problems_of_lepton_and_track_are_named() {
        assert_eq!(CUT.validate("p"), []);
        let broken = LeptonTrackCut {
            lepton: Lepton::Muon(SingleMuonCut {
                types: 16,
                pt_min: EnergyMev(0),
            }),
            d_min: LengthUm(1000),
            ..CUT
        };
        let paths: Vec<String> = broken.validate("p").into_iter().map(|p| p.path).collect();
        assert_eq!(paths, ["p.types", "p.d_min"]);
    }
}
