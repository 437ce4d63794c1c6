//! Cuts on calorimeter clusters and energy sums: electrons, photons, jets, taus, missing Et.
//!
//! One count of Et is 125 MeV, so the comparison is count x 125 > threshold in MeV; ratios and
//! angles are cross-multiplied as `docs/formats/trigger-packet.md`, section 3, says, nothing is
//! divided. Charged tracks that belong to a cluster are XTRP tracks near it in azimuth. Muons and
//! displaced tracks are in [`crate::muon_cut`] and [`crate::two_track`].

use livetime_wire::Problem;
use livetime_wire::trigger_packet::{Cluster, Sums, TriggerPacketView, XtrpTrack};

use crate::muon_cut::SingleMuonCut;
use crate::path::{muon_problems, outside};
use crate::threshold::{AngleMdeg, EnergyMev, Thousandths};

/// One count of Et.
const ET_LSB_MEV: i64 = 125;
/// One count of a track's pT code.
const PT_CODE_MEV: i64 = 500;
/// Isolation flags of a cluster with nothing around it.
const ISOLATED: u32 = 15;
/// The circle in steps that both cluster bins (64) and track pixels (2304) divide into halves.
const CIRCLE: i64 = 73_728;
const CLUSTER_BIN: i64 = CIRCLE / 64;
const TRACK_BIN: i64 = CIRCLE / 2304;
/// 360 000 mdeg / 73 728 steps, in lowest terms.
const MDEG_PER_STEP: (i64, i64) = (625, 128);
/// Largest Et of a cluster field, and of a sum, that a threshold can ask to exceed.
const CLUSTER_ET_MAX: EnergyMev = EnergyMev(4095 * 125 - 1);
const CLUSTER_TOTAL_MAX: EnergyMev = EnergyMev(2 * 4095 * 125 - 1);
const SUM_ET_MAX: EnergyMev = EnergyMev(65_535 * 125 - 1);
/// Largest pT of an XTRP track that a threshold can ask to exceed.
const TRACK_PT_MAX: EnergyMev = EnergyMev(31 * 500 - 1);
/// Most clusters of a packet.
const CLUSTERS_MAX: u32 = 255;

/// What makes a cluster electromagnetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmCut {
    /// EM Et is above this.
    pub em_min: EnergyMev,
    /// HAD / EM is below this.
    pub had_em_max: Thousandths,
}

/// `single_electron`: an electromagnetic cluster with a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SingleElectronCut {
    /// The cluster.
    pub em: EmCut,
    /// pT code x 0.5 GeV of the XTRP track is above this.
    pub track_pt_min: EnergyMev,
    /// Azimuth between the middles of the cluster's bin and the track's pixel is below this.
    pub match_max: AngleMdeg,
}

/// `photon`: an electromagnetic cluster with nothing around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhotonCut {
    /// The cluster.
    pub em: EmCut,
}

/// `electron_muon`: an electromagnetic cluster and a muon stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElectronMuonCut {
    /// The cluster.
    pub em: EmCut,
    /// The stub.
    pub muon: SingleMuonCut,
}

/// `jet`, `multi_jet` and `jets_met`: a number of clusters, with conditions on the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JetCut {
    /// At least this many clusters, 1 to 255.
    pub count: u32,
    /// EM + HAD Et of each is above this.
    pub et_min: EnergyMev,
    /// Sum Et is above this; `None` does not ask.
    pub sum_et_min: Option<EnergyMev>,
    /// Missing Et is above this; `None` does not ask.
    pub met_min: Option<EnergyMev>,
}

/// `met_em`: missing Et and an electromagnetic cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetEmCut {
    /// Missing Et is above this.
    pub met_min: EnergyMev,
    /// The cluster.
    pub em: EmCut,
}

/// `sum_et`: much energy in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SumEtCut {
    /// Sum Et is above this.
    pub sum_et_min: EnergyMev,
}

/// `tau`: a narrow hadronic cluster with an isolated track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TauCut {
    /// EM + HAD Et of the cluster is above this.
    pub et_min: EnergyMev,
    /// It has at most this many towers, 1 to 255.
    pub towers_max: u32,
    /// HAD / EM is above this.
    pub had_em_min: Thousandths,
    /// pT code x 0.5 GeV of the isolated XTRP track is above this.
    pub track_pt_min: EnergyMev,
    /// Azimuth between the middles of the cluster's bin and the track's pixel is below this.
    pub match_max: AngleMdeg,
}

/// Et of some counts in MeV.
#[inline]
fn mev(counts: u32) -> i64 {
    i64::from(counts) * ET_LSB_MEV
}

/// HAD compared with a ratio of EM: both sides in thousandths.
#[inline]
fn had_and_limit(cluster: Cluster, ratio: Thousandths) -> (i64, i64) {
    (
        i64::from(cluster.had()) * 1000,
        i64::from(cluster.em()) * ratio.count(),
    )
}

impl EmCut {
    /// Whether a cluster is one.
    #[inline]
    pub fn takes(&self, cluster: Cluster) -> bool {
        let (had, limit) = had_and_limit(cluster, self.had_em_max);
        (mev(cluster.em()) > self.em_min.count()) & (had < limit)
    }

    /// Whether any cluster of the packet is one.
    #[inline]
    pub fn is_true(&self, packet: &TriggerPacketView<'_>) -> bool {
        packet.clusters().any(|cluster| self.takes(cluster))
    }

    pub(crate) fn validate(&self, path: &str) -> Vec<Problem> {
        let em = outside(path, "em_min", self.em_min, EnergyMev(0)..=CLUSTER_ET_MAX);
        let ratio = Thousandths(1)..=Thousandths(1_000_000);
        let had = outside(path, "had_em_max", self.had_em_max, ratio);
        em.into_iter().chain(had).collect()
    }
}

/// Whether a track points at a cluster.
#[inline]
fn is_near(cluster: Cluster, track: XtrpTrack, match_max: AngleMdeg) -> bool {
    let pixel = i64::from(track.wedge() * 8 + track.pixel());
    let of_cluster = i64::from(2 * cluster.phi() + 1) * (CLUSTER_BIN / 2);
    let of_track = (2 * pixel + 1) * (TRACK_BIN / 2);
    // A wedge beyond the 288 of the circle is a front-end's error and must not go negative.
    let apart = (of_cluster - of_track).abs() % CIRCLE;
    let apart = apart.min(CIRCLE - apart);
    apart * MDEG_PER_STEP.0 < match_max.count() * MDEG_PER_STEP.1
}

impl SingleElectronCut {
    /// Whether any cluster and track qualify.
    #[inline]
    pub fn is_true(&self, packet: &TriggerPacketView<'_>) -> bool {
        packet.clusters().any(|cluster| {
            self.em.takes(cluster)
                && packet.xtrp().any(|track| {
                    (i64::from(track.pt_code()) * PT_CODE_MEV > self.track_pt_min.count())
                        & is_near(cluster, track, self.match_max)
                })
        })
    }

    pub(crate) fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = self.em.validate(path);
        problems.extend(track_problems(path, self.track_pt_min, self.match_max));
        problems
    }
}

#[inline]
fn track_problems(path: &str, pt_min: EnergyMev, match_max: AngleMdeg) -> Vec<Problem> {
    let pt = outside(path, "track_pt_min", pt_min, EnergyMev(0)..=TRACK_PT_MAX);
    let angle = AngleMdeg(1)..=AngleMdeg(180_001);
    let near = outside(path, "match_max", match_max, angle);
    pt.into_iter().chain(near).collect()
}

impl PhotonCut {
    /// Whether any cluster qualifies.
    #[inline]
    pub fn is_true(&self, packet: &TriggerPacketView<'_>) -> bool {
        packet
            .clusters()
            .any(|cluster| (cluster.isolation() == ISOLATED) & self.em.takes(cluster))
    }
}

impl ElectronMuonCut {
    /// Whether there is one of each.
    #[inline]
    pub fn is_true(&self, packet: &TriggerPacketView<'_>) -> bool {
        self.muon.is_true(packet.muons()) && self.em.is_true(packet)
    }

    pub(crate) fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = self.em.validate(path);
        problems.extend(muon_problems(path, self.muon.types, self.muon.pt_min));
        problems
    }
}

/// Sum Et in MeV; 0 without the block.
#[inline]
fn sum_et(packet: &TriggerPacketView<'_>) -> i64 {
    mev(packet.sums().map_or(0, Sums::sum_et))
}

/// Missing Et in MeV; 0 without the block.
#[inline]
fn missing_et(packet: &TriggerPacketView<'_>) -> i64 {
    mev(packet.sums().map_or(0, Sums::missing_et))
}

impl JetCut {
    /// Whether the sums and enough clusters qualify.
    pub fn is_true(&self, packet: &TriggerPacketView<'_>) -> bool {
        let sums_qualify = self
            .sum_et_min
            .is_none_or(|limit| sum_et(packet) > limit.count())
            && self
                .met_min
                .is_none_or(|limit| missing_et(packet) > limit.count());
        let count = || {
            packet.clusters().fold(0, |count, cluster| {
                count + u32::from(mev(cluster.et()) > self.et_min.count())
            })
        };
        sums_qualify && count() >= self.count
    }

    pub(crate) fn validate(&self, path: &str) -> Vec<Problem> {
        let sums = EnergyMev(0)..=SUM_ET_MAX;
        let sum = self
            .sum_et_min
            .and_then(|limit| outside(path, "sum_et_min", limit, sums.clone()));
        let met = self
            .met_min
            .and_then(|limit| outside(path, "met_min", limit, sums));
        let et = EnergyMev(0)..=CLUSTER_TOTAL_MAX;
        [
            outside(path, "count", self.count, 1..=CLUSTERS_MAX),
            outside(path, "et_min", self.et_min, et),
            sum,
            met,
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl MetEmCut {
    /// Whether both qualify.
    #[inline]
    pub fn is_true(&self, packet: &TriggerPacketView<'_>) -> bool {
        missing_et(packet) > self.met_min.count() && self.em.is_true(packet)
    }

    pub(crate) fn validate(&self, path: &str) -> Vec<Problem> {
        let sums = EnergyMev(0)..=SUM_ET_MAX;
        let mut problems = self.em.validate(path);
        problems.extend(outside(path, "met_min", self.met_min, sums));
        problems
    }
}

impl SumEtCut {
    /// Whether the sum qualifies.
    #[inline]
    pub fn is_true(&self, packet: &TriggerPacketView<'_>) -> bool {
        sum_et(packet) > self.sum_et_min.count()
    }

    pub(crate) fn validate(&self, path: &str) -> Vec<Problem> {
        let sums = EnergyMev(0)..=SUM_ET_MAX;
        outside(path, "sum_et_min", self.sum_et_min, sums)
            .into_iter()
            .collect()
    }
}

impl TauCut {
    /// Whether any cluster and track qualify.
    #[inline]
    pub fn is_true(&self, packet: &TriggerPacketView<'_>) -> bool {
        packet.clusters().any(|cluster| {
            self.takes(cluster)
                && packet.xtrp().any(|track| {
                    track.is_isolated()
                        & (i64::from(track.pt_code()) * PT_CODE_MEV > self.track_pt_min.count())
                        & is_near(cluster, track, self.match_max)
                })
        })
    }

    #[inline]
    fn takes(&self, cluster: Cluster) -> bool {
        let (had, limit) = had_and_limit(cluster, self.had_em_min);
        (mev(cluster.et()) > self.et_min.count())
            & (cluster.towers() <= self.towers_max)
            & (had > limit)
    }

    pub(crate) fn validate(&self, path: &str) -> Vec<Problem> {
        let et = EnergyMev(0)..=CLUSTER_TOTAL_MAX;
        let ratio = Thousandths(0)..=Thousandths(1_000_000);
        [
            outside(path, "et_min", self.et_min, et),
            outside(path, "towers_max", self.towers_max, 1..=255),
            outside(path, "had_em_min", self.had_em_min, ratio),
        ]
        .into_iter()
        .flatten()
        .chain(track_problems(path, self.track_pt_min, self.match_max))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::trigger_packet::{MuonStub, TriggerPacket};

    use super::*;

    fn on<T>(packet: &TriggerPacket, ask: impl FnOnce(&TriggerPacketView<'_>) -> T) -> T {
        let mut words = Vec::new();
        packet.emit(&mut words);
        ask(&TriggerPacketView::new_checked(&words).unwrap())
    }

    fn packet(clusters: &[Cluster], xtrp: &[XtrpTrack]) -> TriggerPacket {
        TriggerPacket {
            clusters: clusters.to_vec(),
            xtrp: xtrp.to_vec(),
            sums: Some(Sums::new(1000, 200, 0)),
            ..TriggerPacket::default()
        }
    }

    /// A cluster in azimuth bin 10 (56.25 to 61.875 deg).
    fn cluster(em: u32, had: u32, towers: u32, isolation: u32) -> Cluster {
        Cluster::new(em, had, towers, 0, 0, 10, isolation)
    }

    const EM: EmCut = EmCut {
        em_min: EnergyMev(16_000),
        had_em_max: Thousandths(125),
    };

    #[test]
    fn electromagnetic_clusters_are_cut_strictly() {
        let takes = |em, had| EM.takes(cluster(em, had, 1, 0));
        assert!(!takes(128, 0), "16 GeV is not above 16 GeV");
        assert!(takes(129, 0));
        assert!(!takes(136, 17), "17 / 136 is 0.125");
        assert!(takes(137, 17));
        assert!(!takes(0, 0));
    }

    #[test]
    fn electrons_need_a_track_that_points_at_the_cluster() {
        let cut = SingleElectronCut {
            em: EM,
            track_pt_min: EnergyMev(8000),
            match_max: AngleMdeg(6000),
        };
        let with = |wedge, pixel, code| {
            let track = XtrpTrack::new(wedge, pixel, code, false, false);
            on(&packet(&[cluster(200, 0, 1, 0)], &[track]), |view| {
                cut.is_true(view)
            })
        };
        assert!(with(47, 0, 17));
        assert!(!with(47, 0, 16), "8 GeV is not above 8 GeV");
        // The middle of the bin is 59.0625 deg; the middles of these pixels are 5.86 and 6.02 deg
        // away.
        assert!(with(51, 7, 17));
        assert!(!with(52, 0, 17));
    }

    #[test]
    fn azimuth_is_matched_around_the_circle_and_strictly() {
        let near = |bin, wedge, pixel, mdeg| {
            is_near(
                Cluster::new(1, 0, 1, 0, 0, bin, 0),
                XtrpTrack::new(wedge, pixel, 1, false, false),
                AngleMdeg(mdeg),
            )
        };
        // Middle of bin 0 is 2.8125 deg, that of the last pixel 359.921875 deg: 2.890625 apart.
        assert!(near(0, 287, 7, 2891));
        assert!(!near(0, 287, 7, 2890));
        // Bin 63 is at 357.1875 deg, pixel 0 at 0.078125 deg.
        assert!(near(63, 0, 0, 2891));
        assert!(!near(63, 0, 0, 2890));
        assert!(!near(0, 511, 7, 0), "no panic beyond the circle");
        assert!(
            near(0, 144, 0, 180_001),
            "everything is within half a circle"
        );
    }

    #[test]
    fn photons_are_isolated() {
        let cut = PhotonCut { em: EM };
        let with = |isolation| {
            on(&packet(&[cluster(200, 0, 1, isolation)], &[]), |view| {
                cut.is_true(view)
            })
        };
        assert!(with(15));
        assert!(!with(7));
    }

    #[test]
    fn jets_are_counted_with_their_sums() {
        let clusters = [
            cluster(60, 61, 1, 0),
            cluster(60, 60, 1, 0),
            cluster(0, 121, 1, 0),
        ];
        let with = |count, sum_et_min, met_min| {
            let cut = JetCut {
                count,
                et_min: EnergyMev(15_000),
                sum_et_min,
                met_min,
            };
            on(&packet(&clusters, &[]), |view| cut.is_true(view))
        };
        assert!(with(2, None, None), "120 counts are 15 GeV and not above");
        assert!(!with(3, None, None));
        assert!(with(2, Some(EnergyMev(124_999)), Some(EnergyMev(24_999))));
        assert!(!with(2, Some(EnergyMev(125_000)), None));
        assert!(!with(2, None, Some(EnergyMev(25_000))));
    }

    #[test]
    fn sums_are_nothing_without_their_block() {
        let bare = TriggerPacket {
            clusters: vec![cluster(200, 0, 1, 0)],
            ..TriggerPacket::default()
        };
        let (met, sum) = (
            MetEmCut {
                met_min: EnergyMev(0),
                em: EM,
            },
            SumEtCut {
                sum_et_min: EnergyMev(0),
            },
        );
        on(&bare, |view| {
            assert!(!met.is_true(view) && !sum.is_true(view));
        });
        on(&packet(&[cluster(200, 0, 1, 0)], &[]), |view| {
            assert!(met.is_true(view) && sum.is_true(view));
        });
        on(&packet(&[], &[]), |view| assert!(!met.is_true(view)));
    }

    #[test]
    fn taus_are_narrow_hadronic_and_have_an_isolated_track() {
        let cut = TauCut {
            et_min: EnergyMev(10_000),
            towers_max: 6,
            had_em_min: Thousandths(500),
            track_pt_min: EnergyMev(1000),
            match_max: AngleMdeg(10_000),
        };
        let with = |cluster, isolated| {
            let track = XtrpTrack::new(47, 0, 3, false, isolated);
            on(&packet(&[cluster], &[track]), |view| cut.is_true(view))
        };
        assert!(with(cluster(54, 28, 6, 0), true));
        assert!(!with(cluster(54, 28, 6, 0), false));
        assert!(!with(cluster(54, 28, 7, 0), true), "too wide");
        assert!(
            !with(cluster(56, 28, 6, 0), true),
            "28 / 56 is not above 0.5"
        );
        assert!(
            !with(cluster(53, 27, 6, 0), true),
            "10 GeV is not above 10 GeV"
        );
    }

    #[test]
    fn an_electron_and_a_muon_are_both_needed() {
        let cut = ElectronMuonCut {
            em: EM,
            muon: SingleMuonCut {
                types: 0,
                pt_min: EnergyMev(4000),
            },
        };
        let muon = |code| MuonStub::new(0, 1, 255, false, code);
        let with = |clusters: &[Cluster], code| {
            let both = TriggerPacket {
                muons: vec![muon(code)],
                ..packet(clusters, &[])
            };
            on(&both, |view| cut.is_true(view))
        };
        assert!(with(&[cluster(200, 0, 1, 0)], 9));
        assert!(!with(&[cluster(200, 0, 1, 0)], 8));
        assert!(!with(&[], 9));
    }

    #[test]
    fn thresholds_out_of_reach_are_named() {
        let jet = JetCut {
            count: 0,
            et_min: EnergyMev(1_023_750),
            sum_et_min: Some(EnergyMev(-1)),
            met_min: Some(SUM_ET_MAX),
        };
        let paths: Vec<String> = jet.validate("p").into_iter().map(|p| p.path).collect();
        assert_eq!(paths, ["p.count", "p.et_min", "p.sum_et_min"]);
        let tau = TauCut {
            et_min: CLUSTER_TOTAL_MAX,
            towers_max: 256,
            had_em_min: Thousandths(-1),
            track_pt_min: EnergyMev(15_500),
            match_max: AngleMdeg(0),
        };
        assert_eq!(tau.validate("p").len(), 4);
    }
}
