//! The beam fit: where the beam is, from the tracks of the last events.
//!
//! Tracks from (x, y) have d = -x sin(phi) + y cos(phi). Over a number of events with usable tracks
//! the squares of what is left of d are summed and minimised; then the sums start anew. Sums are
//! exact integers, the solution is one rounded division in 128 bits each, so two programs fit the
//! same position. The budget is 5 ns a track; what a position is used for is in
//! [`crate::beam_spot`].

use livetime_wire::Problem;
use livetime_wire::trigger_packet::SvtTrack;

use crate::beam_spot::BeamSpot;
use crate::problem_code::BEAM_FIT;
use crate::threshold::LengthUm;
use crate::trig_table::TrigTable;
use crate::two_track::TRACKS_MAX;

/// One count of the packet's impact parameter.
const D_LSB_UM: i128 = 10;
/// The largest magnitude of d, which stands for anything beyond.
const D_SATURATED: i32 = 511;
/// Most events of a fit: keeps every sum within 64 bits.
const EVENTS_MAX: u32 = 100_000;

/// Parameters of the fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeamFitConfig {
    /// Events of one fit, 10 to 100 000. Default 500. A fit of fewer follows a moving beam more
    /// quickly and is less exact.
    pub events: u32,
    /// Tracks farther than this from the present position are left out: decays and cosmics would
    /// pull the fit. Default 2 mm, so that a first fit from (0, 0) finds the beam.
    pub d_max: LengthUm,
}

impl Default for BeamFitConfig {
    fn default() -> Self {
        Self {
            events: 500,
            d_max: LengthUm(2000),
        }
    }
}

impl BeamFitConfig {
    /// Checks the values; `path` is the key of the table that holds them, such as `trigger`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(10..=EVENTS_MAX).contains(&self.events) {
            problems.push(Problem::new(
                BEAM_FIT,
                format!("{path}.beam_fit_events"),
                self.events,
                format!("10 to {EVENTS_MAX}"),
                "500 events find the beam to a few um",
            ));
        }
        if !(1..=100_000).contains(&self.d_max.0) {
            problems.push(Problem::new(
                BEAM_FIT,
                format!("{path}.beam_fit_d_max"),
                self.d_max,
                "1 um to 100000 um",
                "leave room for the beam to be away from where it is first looked for",
            ));
        }
        problems
    }
}

/// Sums over the tracks since the last fit; sine and cosine are in units of 1/32768, d in 10 um.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sums {
    ss: i64,
    sc: i64,
    cc: i64,
    ds: i64,
    dc: i64,
}

/// The fit at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeamFit {
    config: BeamFitConfig,
    sums: Sums,
    events: u32,
    fits: u64,
    refused: u64,
}

impl BeamFit {
    /// A fit without events.
    pub fn new(config: BeamFitConfig) -> Self {
        Self {
            config,
            sums: Sums::default(),
            events: 0,
            fits: 0,
            refused: 0,
        }
    }

    /// Fits that moved the position so far.
    #[inline]
    pub fn fits(&self) -> u64 {
        self.fits
    }

    /// Fits without a solution, or with one outside any beam pipe; the position stayed.
    #[inline]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Adds the tracks of a packet; the new position when that completes a fit.
    pub fn add(
        &mut self,
        tracks: impl Iterator<Item = SvtTrack>,
        table: &TrigTable,
        chi2_max: u32,
        present: BeamSpot,
    ) -> Option<BeamSpot> {
        let mut used = false;
        for track in tracks.take(TRACKS_MAX) {
            let (d, angle) = (track.d(), table.at(track.phi()));
            let from_beam = present.corrected_um(d, angle).abs();
            if d.abs() < D_SATURATED
                && track.chi2() < chi2_max
                && from_beam < self.config.d_max.count()
            {
                let (s, c, d) = (i64::from(angle.sin), i64::from(angle.cos), i64::from(d));
                self.sums.ss += s * s;
                self.sums.sc += s * c;
                self.sums.cc += c * c;
                self.sums.ds += d * s;
                self.sums.dc += d * c;
                used = true;
            }
        }
        self.events += u32::from(used);
        if self.events < self.config.events {
            return None;
        }
        let found = solve(&self.sums);
        (self.sums, self.events) = (Sums::default(), 0);
        if found.is_some() {
            self.fits += 1;
        } else {
            self.refused += 1;
        }
        found
    }
}

/// The position with the least squares; `None` for tracks that all go one way, or outside the
/// allowed coordinates.
fn solve(sums: &Sums) -> Option<BeamSpot> {
    let Sums { ss, sc, cc, ds, dc } = *sums;
    let [ss, sc, cc, ds, dc] = [ss, sc, cc, ds, dc].map(i128::from);
    let det = ss * cc - sc * sc;
    let coordinate = |numerator: i128| {
        let scaled = numerator * D_LSB_UM * 32768;
        let rounded = (2 * scaled + det).div_euclid(2 * det);
        let limit = i128::from(BeamSpot::COORDINATE_MAX.0);
        (-limit..=limit)
            .contains(&rounded)
            .then_some(LengthUm(rounded as i32))
    };
    if det <= 0 {
        return None;
    }
    let x = coordinate(sc * dc - ds * cc)?;
    let y = coordinate(ss * dc - ds * sc)?;
    Some(BeamSpot { x, y })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A track through (x, y) um with angle `phi`, `off` counts away.
    fn track(x: f64, y: f64, phi: u32, off: i32) -> SvtTrack {
        let angle = core::f64::consts::TAU * f64::from(phi) / 8192.0;
        let d = ((-x * angle.sin() + y * angle.cos()) / 10.0).round() as i32;
        SvtTrack::new(phi, 32, d + off, 40, false, 16)
    }

    fn fit(events: u32, tracks: impl Fn(u32) -> Vec<SvtTrack>) -> (BeamFit, BeamSpot) {
        let config = BeamFitConfig {
            events,
            ..BeamFitConfig::default()
        };
        let (mut fit, mut spot) = (BeamFit::new(config), BeamSpot::default());
        let table = TrigTable::new();
        for event in 0..events {
            if let Some(found) = fit.add(tracks(event).into_iter(), &table, 400, spot) {
                spot = found;
            }
        }
        (fit, spot)
    }

    #[test]
    fn the_beam_is_found_from_the_origin() {
        let (fit, spot) = fit(500, |event| {
            let phi = event * 2731 % 8192;
            vec![
                track(746.0, 422.0, phi, 0),
                track(746.0, 422.0, phi + 900, 0),
            ]
        });
        assert_eq!((fit.fits(), fit.refused()), (1, 0));
        // Each d is rounded to 10 um; a thousand of them leave about 0.1 um.
        assert!((spot.x.0 - 746).abs() <= 1, "{spot:?}");
        assert!((spot.y.0 - 422).abs() <= 1, "{spot:?}");
    }

    #[test]
    fn far_saturated_and_bad_tracks_do_not_count() {
        let (_, spot) = fit(100, |event| {
            let phi = event * 2731 % 8192;
            let bad = SvtTrack::new(phi, 32, 150, 40, false, 400);
            let far = track(0.0, 0.0, phi, 250);
            let cosmic = track(0.0, 0.0, phi, 600);
            vec![track(-300.0, 100.0, phi, 0), bad, far, cosmic]
        });
        assert!((spot.x.0 + 300).abs() <= 2, "{spot:?}");
        assert!((spot.y.0 - 100).abs() <= 2, "{spot:?}");
    }

    #[test]
    fn parallel_tracks_have_no_solution_and_the_position_stays() {
        let (fit, spot) = fit(20, |_| vec![track(500.0, 0.0, 1000, 0)]);
        assert_eq!((fit.fits(), fit.refused()), (0, 1));
        assert_eq!(spot, BeamSpot::default());
    }

    #[test]
    fn events_without_a_track_do_not_count() {
        let config = BeamFitConfig {
            events: 10,
            ..BeamFitConfig::default()
        };
        let mut fit = BeamFit::new(config);
        let table = TrigTable::new();
        for _ in 0..100 {
            let found = fit.add(core::iter::empty(), &table, 400, BeamSpot::default());
            assert_eq!(found, None);
        }
        assert_eq!(fit.refused(), 0);
    }

    #[test]
    fn halves_are_rounded_upwards() {
        // det = 4, d in 10 um: numerators are scaled by 327680, so choose sums directly.
        let sums = Sums {
            ss: 1 << 20,
            sc: 0,
            cc: 1 << 20,
            ds: -8,
            dc: 8,
        };
        // 8 x 2^20 x 327680 / 2^40 = 2.5 in both; for ds = 8 it is -2.5 in x.
        let spot = solve(&sums).expect("there is a solution");
        assert_eq!((spot.x.0, spot.y.0), (3, 3));
        let spot = solve(&Sums { ds: 8, ..sums }).expect("there is a solution");
        assert_eq!(spot.x.0, -2);
    }

    #[test]
    fn unusable_parameters_are_named() {
        assert_eq!(BeamFitConfig::default().validate("t"), []);
        let broken = BeamFitConfig {
            events: 9,
            d_max: LengthUm(0),
        };
        let problems = broken.validate("t");
        let paths = problems.iter().map(|problem| problem.path.as_str());
        assert!(paths.eq(["t.beam_fit_events", "t.beam_fit_d_max"]));
    }
}
