//! Candidates of a whole event: pairs and quadruples of leptons with mass and vertex.
//!
//! The same definitions as `livetime.candidates` of the Python package, which says more about them.
//! [`Leptons`] collects the objects of an event, and is used again for the next one. What is asked of
//! a candidate is in [`crate::event_menu`].

use livetime_wire::event::EventAccess;
use livetime_wire::object::{ObjectKind, PhysicsObject};

use crate::dimuon::for_each_object;

/// Most leptons of one event; the hardest of them are kept.
pub const LEPTONS_MAX: usize = 64;

const MUON_MASS: f64 = 0.105_658;
const ELECTRON_MASS: f64 = 0.000_511;
const Z_MASS: f64 = 91.188;
/// Tracks within a milliradian of each other have no crossing that could be measured.
const DETERMINANT_MIN: f64 = 1e-6;

/// A candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Invariant mass \[GeV\]; a NaN, which is in no window, of energies beyond the largest number.
    pub mass_gev: f64,
    /// Transverse momentum of the sum \[GeV\].
    pub pt_gev: f64,
    /// Distance of the vertex from (0, 0) in the transverse plane \[cm\]; `None` for parallel tracks.
    pub vertex_cm: Option<f64>,
}

/// The leptons of one event.
#[derive(Debug, Clone)]
pub struct Leptons {
    leptons: Vec<PhysicsObject>,
    unreadable: u32,
}

impl Default for Leptons {
    fn default() -> Self {
        Self {
            leptons: Vec::with_capacity(LEPTONS_MAX + 1),
            unreadable: 0,
        }
    }
}

impl Leptons {
    /// Takes the muons and electrons of an event in place of those of the one before.
    pub fn unpack(&mut self, event: &dyn EventAccess) {
        self.leptons.clear();
        self.unreadable = 0;
        for index in 0..event.fragment_count() {
            let read = for_each_object(event, index, |object| self.add(object));
            self.unreadable += u32::from(read.is_err());
        }
        self.leptons.sort_unstable_by_key(|lepton| lepton.index);
    }

    fn add(&mut self, object: PhysicsObject) {
        let finite = object.pt.is_finite() && object.eta.is_finite() && object.phi.is_finite();
        let is_lepton = matches!(object.kind, ObjectKind::Muon | ObjectKind::Electron);
        if !is_lepton || !finite || object.pt <= 0.0 {
            return;
        }
        self.leptons.push(object);
        if self.leptons.len() > LEPTONS_MAX {
            let softest = (0..self.leptons.len())
                .min_by(|a, b| self.leptons[*a].pt.total_cmp(&self.leptons[*b].pt));
            self.leptons.swap_remove(softest.unwrap_or(0));
        }
    }

    /// Fragments that could not be read: their leptons are missing.
    #[inline]
    pub fn unreadable(&self) -> u32 {
        self.unreadable
    }

    /// Leptons of a kind with at least this transverse momentum \[GeV\].
    #[inline]
    pub fn count(&self, kind: ObjectKind, pt_min_gev: f64) -> usize {
        let passes =
            |lepton: &&PhysicsObject| lepton.kind == kind && f64::from(lepton.pt) >= pt_min_gev;
        self.leptons.iter().filter(passes).count()
    }

    /// The hardest positive muon with the hardest negative one.
    #[inline]
    pub fn dimuon(&self) -> Option<Candidate> {
        let hardest = |sign: f32| {
            let muons = self.leptons.iter();
            let muons = muons.filter(|l| l.kind == ObjectKind::Muon && l.charge * sign > 0.0);
            // Of equal ones the first: `max_by` would take the last.
            muons.rev().max_by(|a, b| a.pt.total_cmp(&b.pt))
        };
        Some(candidate(&[hardest(1.0)?, hardest(-1.0)?]))
    }

    /// Two pairs, each of one flavour and opposite charges: the one with the mass nearest to the
    /// Z's, and of the rest the one with the highest sum of transverse momenta.
    #[inline]
    pub fn four_lepton(&self) -> Option<Candidate> {
        let first = self.best_pair(None, |a, b| -(mass(&[a, b]) - Z_MASS).abs())?;
        let second = self.best_pair(Some(first), |a, b| f64::from(a.pt) + f64::from(b.pt))?;
        let four = [first.0, first.1, second.0, second.1].map(|place| &self.leptons[place]);
        Some(candidate(&four))
    }

    /// The pair of highest rank, without those of another one.
    fn best_pair(
        &self,
        without: Option<(usize, usize)>,
        rank: impl Fn(&PhysicsObject, &PhysicsObject) -> f64,
    ) -> Option<(usize, usize)> {
        let is_free = |place: usize| without.is_none_or(|(a, b)| place != a && place != b);
        let mut best = None;
        for (a, first) in self.leptons.iter().enumerate().filter(|(a, _)| is_free(*a)) {
            for (b, second) in self.leptons.iter().enumerate().skip(a + 1) {
                let fits = first.kind == second.kind && first.charge * second.charge < 0.0;
                if !fits || !is_free(b) {
                    continue;
                }
                let rank = rank(first, second);
                // A mass that is no number ranks below all others, as a sort has it in Python.
                let is_higher =
                    |highest: f64| rank > highest || (highest.is_nan() && !rank.is_nan());
                if best.is_none_or(|(highest, _)| is_higher(highest)) {
                    best = Some((rank, (a, b)));
                }
            }
        }
        best.map(|(_, pair)| pair)
    }
}

#[inline]
fn mass_of(lepton: &PhysicsObject) -> f64 {
    match lepton.kind {
        ObjectKind::Muon => MUON_MASS,
        _ => ELECTRON_MASS,
    }
}

fn mass(legs: &[&PhysicsObject]) -> f64 {
    let (mut energy, mut px, mut py, mut pz) = (0.0, 0.0, 0.0, 0.0);
    for leg in legs {
        let (pt, phi) = (f64::from(leg.pt), f64::from(leg.phi));
        let along = pt * f64::from(leg.eta).sinh();
        energy += (pt * pt + along * along + mass_of(leg).powi(2)).sqrt();
        (px, py, pz) = (px + pt * phi.cos(), py + pt * phi.sin(), pz + along);
    }
    let squared: f64 = energy * energy - px * px - py * py - pz * pz;
    // `max` would make 0, a mass that windows take, of the NaN of energies beyond the largest number.
    if squared < 0.0 { 0.0 } else { squared.sqrt() }
}

fn candidate(legs: &[&PhysicsObject]) -> Candidate {
    let sum = |part: fn(f64) -> f64| -> f64 {
        legs.iter()
            .map(|leg| f64::from(leg.pt) * part(f64::from(leg.phi)))
            .sum()
    };
    Candidate {
        mass_gev: mass(legs),
        pt_gev: sum(f64::cos).hypot(sum(f64::sin)),
        vertex_cm: vertex(legs),
    }
}

/// Where the tracks come closest to each other, as its distance from (0, 0): each says
/// `-x sin(phi) + y cos(phi) = dxy`, and these are the normal equations of all of them.
fn vertex(legs: &[&PhysicsObject]) -> Option<f64> {
    let (mut ss, mut sc, mut cc, mut sd, mut cd) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for leg in legs {
        let (sin, cos) = f64::from(leg.phi).sin_cos();
        let dxy = f64::from(leg.dxy);
        (ss, sc, cc) = (ss + sin * sin, sc + sin * cos, cc + cos * cos);
        (sd, cd) = (sd - sin * dxy, cd + cos * dxy);
    }
    let determinant = ss * cc - sc * sc;
    let (x, y) = (
        (cc * sd + sc * cd) / determinant,
        (sc * sd + ss * cd) / determinant,
    );
    (determinant > DETERMINANT_MIN).then(|| x.hypot(y))
}

#[cfg(test)]
mod tests {
    use livetime_wire::event::EventView;

    use super::*;
    use crate::dimuon::tests::{event, fragment, good, muon};

    fn of(objects: &[PhysicsObject]) -> Leptons {
        let words = event(1, &good(vec![fragment(objects)]), &[]);
        let mut leptons = Leptons::default();
        leptons.unpack(&EventView::new_checked(&words).unwrap());
        leptons
    }

    #[test]
    fn a_dimuon_has_mass_momentum_and_vertex() {
        // Two tracks that cross at (0.3, 0.4): dxy is -x sin(phi) + y cos(phi).
        let track = |index, phi: f32, charge| PhysicsObject {
            dxy: -0.3 * phi.sin() + 0.4 * phi.cos(),
            ..muon(index, 20.0, 0.0, phi, charge)
        };
        let found = of(&[track(0, 0.2, 1.0), track(1, 1.7, -1.0)])
            .dimuon()
            .unwrap();
        let opening = f64::from(1.7_f32 - 0.2_f32);
        let expected = 20.0 * (2.0 * (1.0 - opening.cos())).sqrt();
        assert!((found.mass_gev - expected).abs() < 1e-3, "{found:?}");
        let pt = 20.0 * (2.0 * (1.0 + opening.cos())).sqrt();
        assert!((found.pt_gev - pt).abs() < 1e-3, "{found:?}");
        assert!((found.vertex_cm.unwrap() - 0.5).abs() < 1e-5, "{found:?}");
        let parallel = of(&[muon(0, 9.0, 0.0, 1.0, 1.0), muon(1, 9.0, 1.0, 1.0, -1.0)]);
        assert_eq!(parallel.dimuon().unwrap().vertex_cm, None);
        assert_eq!(of(&[muon(0, 9.0, 0.0, 1.0, 1.0)]).dimuon(), None);
    }

    #[test]
    fn four_leptons_are_two_pairs_without_a_common_one() {
        let electron = |index, pt, phi, charge| PhysicsObject {
            kind: ObjectKind::Electron,
            ..muon(index, pt, 0.0, phi, charge)
        };
        let z = [muon(0, 45.6, 0.0, 0.0, 1.0), muon(1, 45.6, 0.0, 3.1, -1.0)];
        let soft = [electron(2, 10.0, 1.0, 1.0), electron(3, 12.0, 2.0, -1.0)];
        let leptons = of(&[z[0], z[1], soft[0], soft[1]]);
        let found = leptons.four_lepton().unwrap();
        assert!((found.mass_gev - mass(&[&z[0], &z[1], &soft[0], &soft[1]])).abs() < 1e-9);
        // Of the second pair's charges both are the same: there is no second pair.
        let same = electron(3, 12.0, 2.0, 1.0);
        assert_eq!(of(&[z[0], z[1], soft[0], same]).four_lepton(), None);
        assert_eq!(leptons.count(ObjectKind::Electron, 11.0), 1);
    }

    /// The pairs of the first muon come first, and their masses are no numbers.
    #[test]
    fn a_pair_whose_energy_overflows_ranks_below_all_others() {
        let far = muon(0, 30.0, 400.0, 0.0, 1.0);
        let z = [muon(1, 45.6, 0.0, 0.0, 1.0), muon(2, 45.6, 0.0, 3.1, -1.0)];
        let rest = muon(3, 5.0, 0.0, 1.0, -1.0);
        let leptons = of(&[far, z[0], z[1], rest]);
        let by_mass = |a: &PhysicsObject, b: &PhysicsObject| -(mass(&[a, b]) - Z_MASS).abs();
        assert!(mass(&[&far, &z[1]]).is_nan());
        assert_eq!(leptons.best_pair(None, by_mass), Some((1, 2)));
        let alone = of(&[far, rest]);
        assert_eq!(alone.best_pair(None, by_mass), Some((0, 1)));
        assert!(alone.dimuon().is_some_and(|found| found.mass_gev.is_nan()));
    }

    #[test]
    fn of_too_many_leptons_the_hardest_are_kept() {
        let many: Vec<_> = (0..200)
            .map(|n| muon(n, f32::from(n) + 1.0, 0.0, 0.0, 1.0))
            .collect();
        let leptons = of(&many);
        assert_eq!(leptons.count(ObjectKind::Muon, 0.0), LEPTONS_MAX);
        assert_eq!(leptons.count(ObjectKind::Muon, 137.0), LEPTONS_MAX);
    }
}
