//! The two-track cut: a pair of displaced tracks that meet away from the beam.
//!
//! Integer arithmetic throughout, condition by condition as in `docs/formats/trigger-packet.md`,
//! section 3: each comparison is a cross-multiplication, nothing is divided or rounded but the
//! beam correction and the square root. Ranges: |D| < 2^18 um, |X|, |Y| < 2^35, det < 2^31,
//! |px|, |py|, P < 2^25, so that all but the last products fit 64 bits; those are taken in 128.
//! The tracks are corrected once per packet for all paths ([`CorrectedTracks`]); which paths ask
//! is the business of [`crate::level_two`].

use arrayvec::ArrayVec;
use livetime_wire::trigger_packet::SvtTrack;

use crate::beam_spot::BeamSpot;
use crate::path::ChargeRule;
use crate::threshold::{AngleMdeg, EnergyMev, LengthUm, Sixteenths};
use crate::trig_table::{SinCos, TrigTable};

/// Tracks beyond the first twenty are not looked at: bounds the number of pairs to 190.
pub const TRACKS_MAX: usize = 20;
const _: () = assert!(TRACKS_MAX <= 32, "a set of tracks is the bits of a word");
/// pT of one count of c, in MeV: pT = 180.855 GeV / magnitude.
pub(crate) const PT_OF_ONE_COUNT_MEV: i64 = 180_855;
/// Full circle in packet counts and in mdeg.
const CIRCLE: i64 = 8192;
const CIRCLE_MDEG: i64 = 360_000;

/// `two_track`: all conditions must hold for one pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TwoTrackCut {
    /// pT of each track is above this; c = 0 is infinite pT and passes.
    pub pt_min: EnergyMev,
    /// Sum of both pT is above this; true if either c is 0.
    pub sum_pt_min: EnergyMev,
    /// chi2 of each track is below this.
    pub chi2_max: Sixteenths,
    /// What the two charges must be.
    pub charge: ChargeRule,
    /// Opening angle in the transverse plane is above this.
    pub dphi_min: AngleMdeg,
    /// Opening angle in the transverse plane is below this.
    pub dphi_max: AngleMdeg,
    /// Impact parameter of each track with respect to the beam is above this in magnitude.
    pub d_min: LengthUm,
    /// Impact parameter of each track with respect to the beam is below this in magnitude.
    pub d_max: LengthUm,
    /// Distance of the vertex from the beam along the pair's momentum is above this.
    pub lxy_min: LengthUm,
    /// Impact parameter of the pair is below this in magnitude; `None` does not ask.
    pub d_pair_max: Option<LengthUm>,
}

/// An SVT track with its angle looked up and its impact parameter corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorrectedTrack {
    /// Azimuth in steps of 2 pi / 8192.
    pub phi: i64,
    /// Sine of the azimuth, in units of 1/32768.
    pub sin: i64,
    /// Cosine of the azimuth, in units of 1/32768.
    pub cos: i64,
    /// Impact parameter with respect to the beam in um.
    pub d_um: i64,
    /// Magnitude of the half curvature, 0..=255: pT is 180.855 GeV / c, and infinite for 0.
    pub c: i64,
    /// Chi-square of the fit in sixteenths.
    pub chi2: i64,
    /// Whether the charge is negative.
    pub is_negative: bool,
}

/// The first [`TRACKS_MAX`] tracks of a packet, corrected for the beam.
#[derive(Debug, Clone, Default)]
pub struct CorrectedTracks(ArrayVec<CorrectedTrack, TRACKS_MAX>);

impl CorrectedTracks {
    /// The tracks in the order of the packet.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &CorrectedTrack> {
        self.0.iter()
    }

    /// Replaces the tracks by those of a packet.
    pub fn fill(
        &mut self,
        tracks: impl Iterator<Item = SvtTrack>,
        table: &TrigTable,
        beam_spot: BeamSpot,
    ) {
        self.0.clear();
        self.0.extend(tracks.take(TRACKS_MAX).map(|track| {
            let angle = table.at(track.phi());
            let SinCos { sin, cos } = angle;
            CorrectedTrack {
                phi: i64::from(track.phi()),
                sin: i64::from(sin),
                cos: i64::from(cos),
                d_um: beam_spot.corrected_um(track.d(), angle),
                c: i64::from(track.c_magnitude()),
                chi2: i64::from(track.chi2()),
                is_negative: track.is_negative(),
            }
        }));
    }
}

impl TwoTrackCut {
    /// Whether any pair of `tracks` satisfies all conditions.
    pub fn is_true(&self, tracks: &CorrectedTracks) -> bool {
        let tracks = &tracks.0;
        // Conditions are joined without short cuts where they are cheap: tracks are random, and a
        // wrongly predicted branch costs more than all the comparisons of a pair.
        let mut firsts = tracks.iter().enumerate().fold(0u32, |bits, (i, track)| {
            bits | u32::from(self.takes_track(track)) << i
        });
        while firsts != 0 {
            let first = &tracks[firsts.trailing_zeros() as usize];
            firsts &= firsts - 1;
            let mut seconds = firsts;
            while seconds != 0 {
                let second = &tracks[seconds.trailing_zeros() as usize];
                seconds &= seconds - 1;
                if self.takes_pair(first, second) && self.takes_vertex(first, second) {
                    return true;
                }
            }
        }
        false
    }

    /// Conditions 1 and 5, which each track satisfies alone.
    #[inline]
    fn takes_track(&self, track: &CorrectedTrack) -> bool {
        let d_um = track.d_um.abs();
        (track.chi2 < self.chi2_max.count())
            & (track.c * self.pt_min.count() < PT_OF_ONE_COUNT_MEV)
            & (self.d_min.count() < d_um)
            & (d_um < self.d_max.count())
    }

    /// Conditions 2, 3 and 4.
    #[inline]
    fn takes_pair(&self, a: &CorrectedTrack, b: &CorrectedTrack) -> bool {
        self.charge.takes(a.is_negative, b.is_negative)
            & self.takes_opening_angle(a.phi, b.phi)
            & self.takes_sum_pt(a.c, b.c)
    }

    /// Condition 4.
    #[inline]
    fn takes_opening_angle(&self, phi_a: i64, phi_b: i64) -> bool {
        let apart = (phi_a - phi_b).abs();
        let dphi = apart.min(CIRCLE - apart) * CIRCLE_MDEG;
        (self.dphi_min.count() * CIRCLE < dphi) & (dphi < self.dphi_max.count() * CIRCLE)
    }

    /// Condition 3: 180855 / c1 + 180855 / c2 > threshold, without a division.
    #[inline]
    fn takes_sum_pt(&self, c_a: i64, c_b: i64) -> bool {
        let product = c_a * c_b;
        (product == 0) | (PT_OF_ONE_COUNT_MEV * (c_a + c_b) > self.sum_pt_min.count() * product)
    }

    /// Conditions 6 and 7: the vertex of the two straight lines.
    fn takes_vertex(&self, a: &CorrectedTrack, b: &CorrectedTrack) -> bool {
        let Some(vertex) = Vertex::of(a, b) else {
            return false;
        };
        let along = vertex.along();
        // Spares half of the pairs their square root, and is implied by the comparison below.
        if along <= 0 && self.lxy_min.0 >= 0 {
            return false;
        }
        let unit = vertex.det_times_momentum();
        along > i128::from(self.lxy_min.0) * unit
            && self
                .d_pair_max
                .is_none_or(|limit| vertex.across().abs() < i128::from(limit.0) * unit)
    }
}

/// Where two straight lines cross, and the direction of the pair; everything relative to the beam.
///
/// The coordinates are `x` / `det` x 32768 um; the momentum has an arbitrary scale, the same for
/// both components.
struct Vertex {
    x: i64,
    y: i64,
    /// Positive.
    det: i64,
    px: i64,
    py: i64,
}

impl Vertex {
    /// `None` for parallel lines.
    fn of(a: &CorrectedTrack, b: &CorrectedTrack) -> Option<Self> {
        let det = a.cos * b.sin - a.sin * b.cos;
        if det == 0 {
            return None;
        }
        let x = a.d_um * b.cos - b.d_um * a.cos;
        let y = a.d_um * b.sin - b.d_um * a.sin;
        // pT goes with 1 / c; the common factor c1 c2 makes the weights whole numbers.
        let (weight_a, weight_b) = match (b.c, a.c) {
            (0, 0) => (1, 1),
            weights => weights,
        };
        let sign = det.signum();
        Some(Self {
            x: x * sign,
            y: y * sign,
            det: det * sign,
            px: weight_a * a.cos + weight_b * b.cos,
            py: weight_a * a.sin + weight_b * b.sin,
        })
    }

    /// Flight distance along the momentum [um] times [`Vertex::det_times_momentum`].
    #[inline]
    fn along(&self) -> i128 {
        i128::from(self.x * self.px + self.y * self.py) * 32768
    }

    /// Impact parameter of the pair [um] times [`Vertex::det_times_momentum`].
    #[inline]
    fn across(&self) -> i128 {
        i128::from(self.y * self.px - self.x * self.py) * 32768
    }

    /// The common denominator, with the momentum's length rounded down.
    #[inline]
    fn det_times_momentum(&self) -> i128 {
        let squared = (self.px * self.px + self.py * self.py).cast_unsigned();
        i128::from(self.det) * i128::from(squared.isqrt())
    }
}

#[cfg(test)]
mod tests {
    use core::f64::consts::PI;

    use super::*;

    /// Asks for nothing but two tracks that cross.
    const OPEN: TwoTrackCut = TwoTrackCut {
        pt_min: EnergyMev(0),
        sum_pt_min: EnergyMev(0),
        chi2_max: Sixteenths(2048),
        charge: ChargeRule::Any,
        dphi_min: AngleMdeg(-1),
        dphi_max: AngleMdeg(360_000),
        d_min: LengthUm(-1),
        d_max: LengthUm(1_000_000),
        lxy_min: LengthUm(-1_000_000),
        d_pair_max: None,
    };

    fn track(phi: u32, d: i32, c: u32) -> SvtTrack {
        SvtTrack::new(phi, 32, d, c, false, 16)
    }

    fn passes(cut: TwoTrackCut, tracks: &[SvtTrack]) -> bool {
        passes_from(cut, tracks, BeamSpot::default())
    }

    fn passes_from(cut: TwoTrackCut, tracks: &[SvtTrack], beam_spot: BeamSpot) -> bool {
        let mut corrected = CorrectedTracks::default();
        corrected.fill(tracks.iter().copied(), &TrigTable::new(), beam_spot);
        cut.is_true(&corrected)
    }

    /// The packet's d of a straight track with angle `phi` through (x, y) um.
    fn d_through(x_um: f64, y_um: f64, phi: u32) -> i32 {
        let angle = 2.0 * PI * f64::from(phi) / 8192.0;
        ((-x_um * angle.sin() + y_um * angle.cos()) / 10.0).round() as i32
    }

    #[test]
    fn pt_cuts_strictly_at_one_count_of_curvature() {
        let cut = |mev| TwoTrackCut {
            pt_min: EnergyMev(mev),
            ..OPEN
        };
        let pair = |c| [track(0, 20, c), track(1000, -20, c)];
        // 180855 / 90 = 2009.5, 180855 / 91 = 1987.4.
        assert!(passes(cut(2000), &pair(90)));
        assert!(!passes(cut(2000), &pair(91)));
        // 180855 = 45 x 4019: the threshold itself does not pass.
        assert!(!passes(cut(4019), &pair(45)));
        assert!(passes(cut(4018), &pair(45)));
        assert!(passes(cut(1_000_000), &pair(0)), "c = 0 is infinite pT");
        assert!(!passes(cut(1_000_000), &pair(1)));
    }

    #[test]
    fn sum_pt_is_cut_exactly() {
        let cut = |mev| TwoTrackCut {
            sum_pt_min: EnergyMev(mev),
            ..OPEN
        };
        let pair = |a, b| [track(0, 20, a), track(1000, -20, b)];
        // 180855 / 45 = 4019 twice.
        assert!(!passes(cut(8038), &pair(45, 45)));
        assert!(passes(cut(8037), &pair(45, 45)));
        assert!(passes(cut(8038), &pair(45, 44)));
        assert!(!passes(cut(8038), &pair(45, 46)));
        assert!(passes(cut(1_000_000), &pair(0, 255)));
        assert!(passes(cut(1_000_000), &pair(255, 0)));
    }

    #[test]
    fn chi2_is_cut_strictly_below() {
        let chi2 = |counts| {
            [0, 1000].map(|phi| {
                SvtTrack::new(phi, 32, if phi == 0 { 20 } else { -20 }, 9, false, counts)
            })
        };
        let cut = TwoTrackCut {
            chi2_max: Sixteenths(400),
            ..OPEN
        };
        assert!(passes(cut, &chi2(399)));
        assert!(!passes(cut, &chi2(400)));
        assert!(!passes(cut, &chi2(401)));
    }

    #[test]
    fn opening_angle_is_cut_at_one_count_and_across_zero() {
        let cut = |min, max| TwoTrackCut {
            dphi_min: AngleMdeg(min),
            dphi_max: AngleMdeg(max),
            ..OPEN
        };
        let pair = |a, b| [track(a, 20, 9), track(b, -20, 9)];
        // 90 deg is 2048 counts.
        assert!(!passes(cut(2000, 90_000), &pair(0, 2048)));
        assert!(passes(cut(2000, 90_000), &pair(0, 2047)));
        assert!(!passes(cut(90_000, 135_000), &pair(0, 2048)));
        assert!(passes(cut(90_000, 135_000), &pair(0, 2049)));
        // 2 deg is 45.5 counts.
        assert!(!passes(cut(2000, 90_000), &pair(0, 45)));
        assert!(passes(cut(2000, 90_000), &pair(0, 46)));
        assert!(
            passes(cut(2000, 90_000), &pair(8180, 34)),
            "46 counts across zero"
        );
        assert!(!passes(cut(2000, 90_000), &pair(8181, 34)));
        assert!(!passes(cut(2000, 90_000), &pair(34, 8181)));
    }

    #[test]
    fn charge_is_cut_and_a_straight_track_keeps_its_sign() {
        let cut = |charge| TwoTrackCut { charge, ..OPEN };
        let pair = |a, b| {
            [
                SvtTrack::new(0, 32, 20, 0, a, 16),
                SvtTrack::new(1000, 32, -20, 0, b, 16),
            ]
        };
        assert!(passes(cut(ChargeRule::Opposite), &pair(true, false)));
        assert!(!passes(cut(ChargeRule::Opposite), &pair(true, true)));
        assert!(passes(cut(ChargeRule::Same), &pair(true, true)));
        assert!(!passes(cut(ChargeRule::Same), &pair(false, true)));
    }

    #[test]
    fn impact_parameter_is_cut_after_the_beam_is_subtracted() {
        let cut = TwoTrackCut {
            d_min: LengthUm(120),
            d_max: LengthUm(1000),
            ..OPEN
        };
        let pair = |d| [track(0, d, 9), track(1000, -d, 9)];
        assert!(!passes(cut, &pair(12)), "120 um is not above 120 um");
        assert!(passes(cut, &pair(13)));
        assert!(passes(cut, &pair(99)));
        assert!(!passes(cut, &pair(100)));
        assert!(!passes(cut, &pair(511)));
        // At phi = 0 a beam at y0 = 1 um takes 1 um away, at phi = 8192/2 it adds it.
        let up = |y| BeamSpot {
            x: LengthUm(0),
            y: LengthUm(y),
        };
        let pair = [track(0, 12, 9), track(4000, -12, 9)];
        assert!(!passes_from(cut, &pair, up(0)));
        assert!(!passes_from(cut, &pair, up(1)));
        assert!(!passes_from(
            cut,
            &[track(0, 13, 9), track(1, 13, 9)],
            up(10)
        ));
        assert!(passes_from(cut, &[track(0, 13, 9), track(1, 13, 9)], up(9)));
        assert!(passes_from(
            cut,
            &[track(0, 12, 9), track(1, 12, 9)],
            up(-1)
        ));
    }

    #[test]
    fn minus_zero_impact_parameter_is_zero() {
        let mut minus_zero = track(0, 0, 9);
        minus_zero.0[0] |= 1 << 28;
        let cut = TwoTrackCut {
            d_min: LengthUm(0),
            ..OPEN
        };
        assert!(!passes(cut, &[minus_zero, track(1000, -20, 9)]));
        assert!(passes(OPEN, &[minus_zero, track(1000, -20, 9)]));
    }

    #[test]
    fn parallel_and_back_to_back_tracks_have_no_vertex() {
        assert!(!passes(OPEN, &[track(500, 20, 9), track(500, -20, 9)]));
        assert!(!passes(
            OPEN,
            &[track(500, 20, 9), track(500 + 4096, 20, 9)]
        ));
        assert!(passes(OPEN, &[track(500, 20, 9), track(501, -20, 9)]));
        assert!(passes(OPEN, &[track(500, 20, 9), track(500 + 4095, 20, 9)]));
    }

    #[test]
    fn decay_length_is_that_of_the_vertex() {
        let lxy = |um| TwoTrackCut {
            lxy_min: LengthUm(um),
            ..OPEN
        };
        // A decay at 2 mm in direction 60 deg, seen from a beam that is off the origin. Counts of
        // 10 um and an opening angle near 60 deg leave an error of some 20 um.
        let beam_spot = BeamSpot {
            x: LengthUm(746),
            y: LengthUm(-422),
        };
        let (x, y) = (
            746.0 + 2000.0 * (PI / 3.0).cos(),
            -422.0 + 2000.0 * (PI / 3.0).sin(),
        );
        let along = [700, 2030].map(|phi| track(phi, d_through(x, y, phi), 40));
        assert!(passes_from(lxy(1960), &along, beam_spot));
        assert!(!passes_from(lxy(2040), &along, beam_spot));
        // The same vertex with both tracks turned around lies behind the beam.
        let against = [700, 2030]
            .map(|phi| phi + 4096)
            .map(|phi| track(phi, d_through(x, y, phi), 40));
        assert!(passes_from(lxy(-2040), &against, beam_spot));
        assert!(!passes_from(lxy(-1960), &against, beam_spot));
        // The order of the tracks turns the sign of det, not the result.
        let swapped = [along[1], along[0]];
        assert!(passes_from(lxy(1960), &swapped, beam_spot));
        assert!(!passes_from(lxy(2040), &swapped, beam_spot));
    }

    #[test]
    fn curvature_weights_the_direction_of_the_pair() {
        // The vertex lies on the first track's direction: with all the momentum in that track the
        // pair points back to the beam, with equal momenta it misses.
        let d_pair = |um| TwoTrackCut {
            d_pair_max: Some(LengthUm(um)),
            ..OPEN
        };
        let (phi_a, phi_b) = (0, 1024);
        let pair = |c_a, c_b| {
            [
                track(phi_a, d_through(2000.0, 0.0, phi_a), c_a),
                track(phi_b, d_through(2000.0, 0.0, phi_b), c_b),
            ]
        };
        assert!(
            passes(d_pair(10), &pair(0, 100)),
            "all momentum in the first"
        );
        assert!(passes(d_pair(40), &pair(1, 100)));
        assert!(
            !passes(d_pair(700), &pair(100, 100)),
            "2 mm x sin(22.5 deg) = 765 um"
        );
        assert!(passes(d_pair(800), &pair(100, 100)));
        assert!(
            passes(d_pair(800), &pair(0, 0)),
            "two straight tracks weigh the same"
        );
        assert!(!passes(d_pair(700), &pair(0, 0)));
        assert!(
            !passes(d_pair(1300), &pair(100, 0)),
            "2 mm x sin(45 deg) = 1414 um"
        );
    }

    #[test]
    fn decay_length_and_pair_impact_parameter_are_cut_strictly() {
        // Tracks along x and y, all momentum in the first: the vertex is exactly (-d2, d1).
        let pair = [track(0, 14, 0), track(2048, -20, 1)];
        let cut = |lxy, d_pair| TwoTrackCut {
            lxy_min: LengthUm(lxy),
            d_pair_max: Some(LengthUm(d_pair)),
            ..OPEN
        };
        assert!(passes(cut(199, 141), &pair));
        assert!(!passes(cut(200, 141), &pair), "200 um is not above 200 um");
        assert!(!passes(cut(199, 140), &pair), "140 um is not below 140 um");
        let at_the_beam = [track(0, 14, 0), track(2048, 0, 1)];
        assert!(passes(cut(-1, 141), &at_the_beam));
        assert!(!passes(cut(0, 141), &at_the_beam));
    }

    #[test]
    fn track_twenty_one_is_not_looked_at() {
        let mut tracks = vec![track(0, 20, 9)];
        tracks.extend((1..19).map(|_| track(0, 20, 9)));
        tracks.push(track(1000, -20, 9));
        assert!(passes(OPEN, &tracks), "the twentieth is");
        tracks.insert(0, track(0, 20, 9));
        assert!(!passes(OPEN, &tracks));
    }

    #[test]
    fn curvature_is_coarse_at_forty_gev() {
        // 4 and 5 counts stand for 45.2 and 36.2 GeV: about 20 % for one count. The packet is
        // meant to be that coarse; masses come from the full-precision objects.
        let counts_at_40_gev = 180.855f64 / 40.0;
        let step = 1.0 / counts_at_40_gev;
        assert!((0.18..0.26).contains(&step), "{step}");
        let pair = |c| [track(0, 20, c), track(1000, -20, c)];
        let cut = |mev| TwoTrackCut {
            pt_min: EnergyMev(mev),
            ..OPEN
        };
        assert!(passes(cut(45_213), &pair(4)) && !passes(cut(45_214), &pair(4)));
        assert!(passes(cut(36_170), &pair(5)) && !passes(cut(36_171), &pair(5)));
        assert!(!passes(cut(40_000), &pair(5)) && passes(cut(40_000), &pair(4)));
    }
}
