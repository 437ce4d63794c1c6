//! Relativistic kinematics of the generator: four-vectors and two-body decays.
//!
//! Natural units: energies, momenta and masses in GeV.

use core::f64::consts::{PI, TAU};

/// Momentum and energy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FourVector {
    pub(crate) px: f64,
    pub(crate) py: f64,
    pub(crate) pz: f64,
    pub(crate) energy: f64,
}

impl FourVector {
    /// From transverse momentum, rapidity, azimuth and mass.
    pub(crate) fn from_rapidity(pt: f64, rapidity: f64, phi: f64, mass: f64) -> Self {
        let transverse_mass = (pt * pt + mass * mass).sqrt();
        Self {
            px: pt * phi.cos(),
            py: pt * phi.sin(),
            pz: transverse_mass * rapidity.sinh(),
            energy: transverse_mass * rapidity.cosh(),
        }
    }

    pub(crate) fn pt(&self) -> f64 {
        self.px.hypot(self.py)
    }

    /// Pseudorapidity; large but finite along the beam.
    pub(crate) fn eta(&self) -> f64 {
        (self.pz / self.pt().max(1e-9)).asinh()
    }

    pub(crate) fn phi(&self) -> f64 {
        self.py.atan2(self.px)
    }

    /// This vector, given in the rest frame of `parent`, in the frame where `parent` is given.
    fn boosted_by(&self, parent: &Self, parent_mass: f64) -> Self {
        let gamma = parent.energy / parent_mass;
        let dot = (self.px * parent.px + self.py * parent.py + self.pz * parent.pz) / parent_mass;
        let along = (dot / (gamma + 1.0) + self.energy) / parent_mass;
        Self {
            px: self.px + along * parent.px,
            py: self.py + along * parent.py,
            pz: self.pz + along * parent.pz,
            energy: gamma * self.energy + dot,
        }
    }
}

/// Decays `parent` of mass `mass` into two daughters of mass `daughter`, in the direction
/// (`cos_theta`, `phi`) of the rest frame, the second one opposite to the first.
pub(crate) fn two_body_decay(
    parent: &FourVector,
    mass: f64,
    daughter: f64,
    cos_theta: f64,
    phi: f64,
) -> [FourVector; 2] {
    let momentum = (0.25 * mass * mass - daughter * daughter).max(0.0).sqrt();
    let sin_theta = (1.0 - cos_theta * cos_theta).max(0.0).sqrt();
    let at_rest = |sign: f64| FourVector {
        px: sign * momentum * sin_theta * phi.cos(),
        py: sign * momentum * sin_theta * phi.sin(),
        pz: sign * momentum * cos_theta,
        energy: 0.5 * mass,
    };
    [1.0, -1.0].map(|sign| at_rest(sign).boosted_by(parent, mass))
}

/// An azimuth brought to -pi..pi.
pub(crate) fn wrapped_phi(phi: f64) -> f64 {
    let turned = (phi + PI).rem_euclid(TAU) - PI;
    turned.clamp(-PI, PI)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decays_conserve_momentum_energy_and_mass() {
        for (mass, daughter, pt, rapidity) in [
            (91.19, 0.10566, 20.0, 1.5),
            (5.279, 0.1396, 3.0, -2.0),
            (10.0, 0.0, 0.0, 0.0),
        ] {
            for (cos_theta, phi) in [(0.3, 1.0), (-1.0, 0.0), (0.9, -3.0)] {
                let parent = FourVector::from_rapidity(pt, rapidity, 0.7, mass);
                let [a, b] = two_body_decay(&parent, mass, daughter, cos_theta, phi);
                for (sum, expected) in [
                    (a.px + b.px, parent.px),
                    (a.py + b.py, parent.py),
                    (a.pz + b.pz, parent.pz),
                    (a.energy + b.energy, parent.energy),
                ] {
                    assert!((sum - expected).abs() < 1e-9 * parent.energy, "{a:?} {b:?}");
                }
                for d in [a, b] {
                    let square = d.energy * d.energy - d.pt() * d.pt() - d.pz * d.pz;
                    let tolerance = 1e-9 * d.energy * d.energy;
                    assert!((square - daughter * daughter).abs() < tolerance, "{d:?}");
                }
            }
        }
    }

    #[test]
    fn azimuths_wrap_into_the_circle() {
        assert!((wrapped_phi(PI + 0.1) + PI - 0.1).abs() < 1e-12);
        assert!((wrapped_phi(-PI - 0.1) - PI + 0.1).abs() < 1e-12);
        assert_eq!(wrapped_phi(0.5), 0.5);
    }
}
