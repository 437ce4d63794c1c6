//! The beam spot: where the beams meet, and impact parameters with respect to it.
//!
//! A track's packet carries its impact parameter d with respect to (0, 0); a beam at (x0, y0)
//! shifts it by x0 sin(phi) - y0 cos(phi). The position comes from the configuration; it is not
//! fitted here. The cuts that use the result are in [`crate::two_track`].

use livetime_wire::Problem;

use crate::problem_code::BEAM_SPOT_RANGE;
use crate::threshold::LengthUm;
use crate::trig_table::SinCos;

/// One count of the packet's impact parameter.
const D_LSB_UM: i64 = 10;
/// Its largest value.
const D_COUNTS_MAX: i64 = 511;

/// Position of the beam in the transverse plane.
///
/// Default (0, 0): impact parameters are taken as they come. Take it from a fit of d against phi;
/// a wrong one of 0.1 mm lets every prompt track pass a cut of 100 um.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BeamSpot {
    /// x0.
    pub x: LengthUm,
    /// y0.
    pub y: LengthUm,
}

impl BeamSpot {
    /// Largest coordinate allowed: 10 cm, more than any beam pipe. Keeps every product of the
    /// two-track cut within its integers.
    pub const COORDINATE_MAX: LengthUm = LengthUm(100_000);

    /// Impact parameter in um with respect to the beam of a track with `d` counts of 10 um.
    ///
    /// Rounded to the nearest um, halves upwards, by an arithmetic shift.
    #[inline]
    pub fn corrected_um(self, d: i32, angle: SinCos) -> i64 {
        let (sin, cos) = (i64::from(angle.sin), i64::from(angle.cos));
        let scaled = i64::from(d) * D_LSB_UM * 32768 + self.x.count() * sin - self.y.count() * cos;
        (scaled + 16384) >> 15
    }

    /// The largest impact parameter that a track can have with respect to the beam here.
    pub fn d_reach(self) -> LengthUm {
        let [x, y] = [self.x, self.y].map(|of| of.count() as f64);
        // Sines are rounded to 15 bits.
        let reach = (D_COUNTS_MAX * D_LSB_UM) as f64 + x.hypot(y) * 1.0001;
        LengthUm(reach.ceil() as i32)
    }

    /// Checks the coordinates; `path` is the key of the spot, such as `trigger.beam_spot`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let limit = Self::COORDINATE_MAX;
        [("x", self.x), ("y", self.y)]
            .into_iter()
            .filter(|(_, value)| value.0.unsigned_abs() > limit.0.unsigned_abs())
            .map(|(key, value)| {
                Problem::new(
                    BEAM_SPOT_RANGE,
                    path,
                    format!("{key} = {value}"),
                    format!("-{limit} to {limit}"),
                    "give the position of the beam in the transverse plane, such as \"0.746 mm\"",
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trig_table::TrigTable;

    #[test]
    fn correction_follows_the_sign_convention() {
        let table = TrigTable::new();
        let spot = BeamSpot {
            x: LengthUm(746),
            y: LengthUm(422),
        };
        // d = -x sin(phi) + y cos(phi) for a track from (x, y): the correction takes it to zero.
        assert_eq!(spot.corrected_um(0, table.at(0)), -422);
        assert_eq!(spot.corrected_um(0, table.at(2048)), 746);
        assert_eq!(spot.corrected_um(42, table.at(0)), -2);
        assert_eq!(spot.corrected_um(-74, table.at(2048)), 6);
        assert_eq!(spot.corrected_um(0, table.at(4096)), 422);
        assert_eq!(spot.corrected_um(0, table.at(6144)), -746);
    }

    #[test]
    fn no_track_is_farther_from_the_beam_than_its_reach() {
        assert_eq!(BeamSpot::default().d_reach(), LengthUm(5110));
        let table = TrigTable::new();
        for (x, y) in [(0, 0), (746, -422), (100_000, 100_000), (-3, 0)] {
            let [x, y] = [x, y].map(LengthUm);
            let spot = BeamSpot { x, y };
            let of_d = |d| (0..8192).map(move |phi| (d, phi));
            let all = [-511, 511].into_iter().flat_map(of_d);
            let most = all.map(|(d, phi)| spot.corrected_um(d, table.at(phi)).abs());
            let (most, reach) = (most.max().unwrap(), spot.d_reach().count());
            assert!(most <= reach && reach - most < 20, "{most} um of {reach}");
        }
    }

    #[test]
    fn rounding_is_to_nearest_with_halves_upwards() {
        let spot = BeamSpot {
            x: LengthUm(1),
            y: LengthUm(0),
        };
        let sin = |sin| SinCos { sin, cos: 0 };
        assert_eq!(spot.corrected_um(0, sin(16383)), 0);
        assert_eq!(spot.corrected_um(0, sin(16384)), 1);
        assert_eq!(spot.corrected_um(0, sin(-16384)), 0);
        assert_eq!(spot.corrected_um(0, sin(-16385)), -1);
        assert_eq!(spot.corrected_um(-1, sin(16384)), -9);
    }

    #[test]
    fn a_beam_outside_the_pipe_is_a_problem() {
        let spot = BeamSpot {
            x: LengthUm(100_001),
            y: LengthUm(-100_001),
        };
        let problems = spot.validate("trigger.beam_spot");
        let found = problems.iter().map(|problem| problem.found.as_str());
        assert!(found.eq(["x = 100001 um", "y = -100001 um"]));
        assert!(
            problems
                .iter()
                .all(|problem| problem.path == "trigger.beam_spot")
        );
        let edge = BeamSpot {
            x: LengthUm(100_000),
            y: LengthUm(-100_000),
        };
        assert_eq!(edge.validate("trigger.beam_spot"), []);
    }
}
