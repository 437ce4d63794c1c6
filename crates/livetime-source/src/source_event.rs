//! One event of a source: physics objects with full precision, before any encoding.
//!
//! The order of the objects is part of the event: object `i` travels over data link `i mod links`,
//! and track numbers in the trigger packet count in this order.

use livetime_wire::object::{ObjectKind, PhysicsObject};
use livetime_wire::{EventNumber, RunNumber};

/// Most objects of one event, over all sources of this crate.
pub const OBJECTS_MAX: usize = 256;

/// One object. The fields are `f32` because the encoding of trigger packets is defined on them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceObject {
    /// What it is.
    pub kind: ObjectKind,
    /// Transverse momentum in GeV, above 0.
    pub pt: f32,
    /// Pseudorapidity.
    pub eta: f32,
    /// Azimuth in rad, -pi..pi.
    pub phi: f32,
    /// Charge in e: -1, 0 or 1.
    pub charge: f32,
    /// Transverse impact parameter in cm with respect to (0, 0): -x sin(phi) + y cos(phi).
    pub dxy: f32,
    /// Sum of the transverse energy around it in GeV; isolated below 1.
    pub iso: f32,
    /// Chi-square of the track fit.
    pub chi2: f32,
}

impl SourceObject {
    /// Whether it leaves a track: muons, electrons and tracks do.
    pub fn has_track(&self) -> bool {
        matches!(
            self.kind,
            ObjectKind::Muon | ObjectKind::Electron | ObjectKind::Track
        )
    }

    /// The object as fragments carry it, without isolation and fit quality.
    pub fn to_physics_object(&self, index: u16) -> PhysicsObject {
        PhysicsObject {
            kind: self.kind,
            index,
            pt: self.pt,
            eta: self.eta,
            phi: self.phi,
            charge: self.charge,
            dxy: self.dxy,
        }
    }
}

/// An event; made once and filled again and again.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SourceEvent {
    /// Run number of the source: payload, not the run being taken.
    pub run: RunNumber,
    /// Event number of the source; may repeat and come out of order.
    pub number: EventNumber,
    /// Its objects, at most [`OBJECTS_MAX`].
    pub objects: Vec<SourceObject>,
}

impl SourceEvent {
    /// An empty event with room for [`OBJECTS_MAX`] objects, so that filling it never allocates.
    pub fn new() -> Self {
        Self {
            objects: Vec::with_capacity(OBJECTS_MAX),
            ..Self::default()
        }
    }

    /// Invariant mass of the first two muons in GeV, taken as massless; `None` without two muons.
    pub fn dimuon_mass(&self) -> Option<f64> {
        let mut muons = self
            .objects
            .iter()
            .filter(|object| object.kind == ObjectKind::Muon);
        let (a, b) = (muons.next()?, muons.next()?);
        let eta = f64::from(a.eta) - f64::from(b.eta);
        let phi = f64::from(a.phi) - f64::from(b.phi);
        let product = 2.0 * f64::from(a.pt) * f64::from(b.pt);
        Some((product * (eta.cosh() - phi.cos())).max(0.0).sqrt())
    }
}
