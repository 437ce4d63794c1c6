//! The physics generator: event `k` of a seed, drawn from distributions that look like a detector.
//!
//! Each event has its own ChaCha8 stream, numbered by its index, so event `k` costs the same
//! whether or not the events before it were drawn, and every driver sees the same ones. It is a
//! stand-in that exercises triggers and plots, not a simulation of any experiment: shapes are
//! simple closed forms, and what a number is modelled on is said where it stands. The mix is in
//! [`PhysicsConfig`].
//!
//! Budget: 30 to 80 draws an event, about 1 us; nothing is allocated.

use core::f64::consts::PI;

use livetime_wire::EventNumber;
use livetime_wire::object::ObjectKind;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{ChiSquared, Distribution, Exp1, Poisson, StandardNormal};

use crate::kinematics::{FourVector, two_body_decay, wrapped_phi};
use crate::physics_config::PhysicsConfig;
use crate::source_event::{OBJECTS_MAX, SourceEvent, SourceObject};

/// Mass of the Z in GeV.
pub const Z_MASS: f64 = 91.19;
/// Width of the Z in GeV.
pub const Z_WIDTH: f64 = 2.495;
/// Mass of the muon in GeV.
const MUON_MASS: f64 = 0.105_66;
/// Mass of the charged pion in GeV.
const PION_MASS: f64 = 0.139_57;
/// Mass of the displaced parent, a B meson in GeV.
const PARENT_MASS: f64 = 5.279;
/// Mean decay length of the displaced parent at rest, c tau, in cm.
const PARENT_CTAU_CM: f64 = 0.045;
/// Muons beyond this pseudorapidity leave nothing, as in the CMS sample.
const MUON_ETA_MAX: f64 = 2.4;
/// Softest muon that reaches the chambers in GeV; below it is only a track.
const MUON_PT_MIN: f64 = 1.5;
/// Degrees of freedom of a track fit.
const FIT_DEGREES: f64 = 4.0;

/// What kind of event was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventClass {
    /// Z to two muons.
    Z,
    /// Two muons of the continuum.
    Continuum,
    /// Two tracks from a displaced vertex.
    Displaced,
    /// One muon.
    SingleMuon,
    /// An electron, a photon or two jets.
    Calorimeter,
    /// No object.
    Empty,
    /// One or more of every kind of object.
    ManyObjects,
    /// Soft tracks only.
    Soft,
}

impl EventClass {
    /// Every class, in the order of [`PhysicsConfig::fractions`], then what is left over.
    pub const ALL: [Self; 8] = [
        Self::Z,
        Self::Continuum,
        Self::Displaced,
        Self::SingleMuon,
        Self::Calorimeter,
        Self::Empty,
        Self::ManyObjects,
        Self::Soft,
    ];
}

/// Draws events by index.
#[derive(Debug, Clone)]
pub struct PhysicsGenerator {
    config: PhysicsConfig,
    /// A stream that no number was drawn from yet: copied, not rewound, since a copy costs less.
    unread: ChaCha8Rng,
    soft_tracks: Option<Poisson<f64>>,
    soft_jets: Option<Poisson<f64>>,
    chi2: ChiSquared<f64>,
}

impl PhysicsGenerator {
    /// A generator of the events of `seed`; `config` has been validated.
    pub fn new(config: PhysicsConfig, seed: u64) -> Self {
        // 256 bits of key: the seed and a name, so that no other use of ChaCha8 with this seed
        // runs through the same numbers.
        let mut key = *b"........livetime-source physics1";
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Self {
            unread: ChaCha8Rng::from_seed(key),
            // A mean of 0 has no distribution: none at all.
            soft_tracks: Poisson::new(config.soft_tracks_mean).ok(),
            soft_jets: Poisson::new(config.soft_jets_mean).ok(),
            chi2: ChiSquared::new(FIT_DEGREES).expect("the number of degrees is above 0"),
            config,
        }
    }

    /// Writes event `index` over the contents of `event`.
    pub fn event(&self, index: u64, event: &mut SourceEvent) {
        let mut draw = self.draw(index, event);
        let class = draw.class();
        draw.fill(class);
    }

    /// The class of event `index`, without the event.
    pub fn class(&self, index: u64) -> EventClass {
        self.draw(index, &mut SourceEvent::default()).class()
    }

    fn draw<'a>(&'a self, index: u64, event: &'a mut SourceEvent) -> Draw<'a> {
        let mut random = self.unread.clone();
        random.set_stream(index);
        event.run = self.config.source_run;
        event.number = EventNumber(index);
        event.objects.clear();
        Draw {
            generator: self,
            random,
            event,
        }
    }
}

/// One event while it is drawn.
struct Draw<'a> {
    generator: &'a PhysicsGenerator,
    random: ChaCha8Rng,
    event: &'a mut SourceEvent,
}

impl Draw<'_> {
    fn class(&mut self) -> EventClass {
        let mut left = self.unit();
        let fractions = self.generator.config.fractions();
        for ((_, fraction), class) in fractions.iter().zip(EventClass::ALL) {
            if left < *fraction {
                return class;
            }
            left -= fraction;
        }
        EventClass::Soft
    }

    fn fill(&mut self, class: EventClass) {
        match class {
            EventClass::Z => self.z(),
            EventClass::Continuum => self.continuum(),
            EventClass::Displaced => self.displaced_pair(),
            EventClass::SingleMuon => self.single_muon(),
            EventClass::Calorimeter => self.calorimeter(),
            EventClass::Empty => return,
            EventClass::ManyObjects => self.many_objects(),
            EventClass::Soft => self.soft_track(),
        }
        let (tracks, jets) = (&self.generator.soft_tracks, &self.generator.soft_jets);
        for _ in 0..self.count(tracks.as_ref()) {
            self.soft_track();
        }
        for _ in 0..self.count(jets.as_ref()) {
            let pt = 2.0 + 2.5 * self.exponential();
            let (eta, phi) = (self.between(-2.5, 2.5), self.azimuth());
            self.neutral(ObjectKind::Jet, pt, eta, phi);
        }
        if !self.event.objects.iter().any(SourceObject::has_track) {
            self.soft_track();
        }
    }

    /// Breit-Wigner mass between 50 and 150 GeV, transverse momentum as in hadron collisions
    /// (falling with the fifth power, most at 5 GeV), muons along 1 + cos^2 of the decay angle.
    fn z(&mut self) {
        let half_width = 0.5 * Z_WIDTH;
        let edge = |mass: f64| ((mass - Z_MASS) / half_width).atan();
        let mass = Z_MASS + half_width * self.between(edge(50.0), edge(150.0)).tan();
        let parent = self.parent(mass, 10.0, 1.3);
        let cos_theta = self.cos_theta_of_vector_decay();
        self.dimuon(&parent, mass, cos_theta);
    }

    /// Masses from 5 to 200 GeV falling as the power -2.5.
    fn continuum(&mut self) {
        let (low, high) = (5.0_f64.powf(-1.5), 200.0_f64.powf(-1.5));
        let mass = self.between(high, low).powf(-1.0 / 1.5);
        let parent = self.parent(mass, 6.0, 1.3);
        let cos_theta = self.cos_theta_of_vector_decay();
        self.dimuon(&parent, mass, cos_theta);
    }

    fn dimuon(&mut self, parent: &FourVector, mass: f64, cos_theta: f64) {
        let phi = self.azimuth();
        let muons = two_body_decay(parent, mass, MUON_MASS, cos_theta, phi);
        let vertex = self.beam_cm();
        for (muon, charge) in muons.iter().zip([1.0, -1.0]) {
            self.muon(muon, charge, vertex);
        }
    }

    /// A B meson of 8 GeV and more that decays into two pions after an exponential flight.
    fn displaced_pair(&mut self) {
        let pt = 8.0 + 4.0 * self.exponential();
        let (rapidity, phi) = (self.between(-1.0, 1.0), self.azimuth());
        let parent = FourVector::from_rapidity(pt, rapidity, phi, PARENT_MASS);
        // Transverse flight: c tau times beta gamma, projected.
        let flight = self.exponential() * PARENT_CTAU_CM * pt / PARENT_MASS;
        let beam = self.beam_cm();
        let vertex = (beam.0 + flight * phi.cos(), beam.1 + flight * phi.sin());
        let (cos_theta, phi) = (self.between(-1.0, 1.0), self.azimuth());
        let pions = two_body_decay(&parent, PARENT_MASS, PION_MASS, cos_theta, phi);
        let first = if self.random.random::<bool>() {
            1.0
        } else {
            -1.0
        };
        for (pion, charge) in pions.iter().zip([first, -first]) {
            self.charged(ObjectKind::Track, pion, charge, vertex);
        }
    }

    fn single_muon(&mut self) {
        let pt = 3.0 + 4.0 * self.exponential();
        let (eta, phi) = (self.between(-MUON_ETA_MAX, MUON_ETA_MAX), self.azimuth());
        let muon = FourVector::from_rapidity(pt, eta, phi, 0.0);
        let (charge, vertex) = (self.charge(), self.beam_cm());
        self.muon(&muon, charge, vertex);
    }

    /// 35 % electrons, 10 % photons, the rest pairs of jets back to back.
    fn calorimeter(&mut self) {
        let kind = self.unit();
        let pt = 10.0 + 8.0 * self.exponential();
        let (eta, phi) = (self.between(-2.4, 2.4), self.azimuth());
        if kind < 0.35 {
            let electron = FourVector::from_rapidity(pt, eta, phi, 0.0);
            let (charge, vertex) = (self.charge(), self.beam_cm());
            self.charged(ObjectKind::Electron, &electron, charge, vertex);
        } else if kind < 0.45 {
            self.neutral(ObjectKind::Photon, pt, eta, phi);
        } else {
            let opposite = wrapped_phi(phi + PI + 0.15 * self.normal());
            let balance = (1.0 + 0.15 * self.normal()).clamp(0.5, 1.5);
            let other_eta = self.between(-2.4, 2.4);
            self.neutral(ObjectKind::Jet, pt, eta, phi);
            self.neutral(ObjectKind::Jet, pt * balance, other_eta, opposite);
        }
    }

    /// An electron, a muon, a photon, two to six jets and a displaced pair, all apart.
    fn many_objects(&mut self) {
        for kind in [ObjectKind::Electron, ObjectKind::Muon] {
            let pt = 12.0 + 10.0 * self.exponential();
            let (eta, phi) = (self.between(-1.0, 1.0), self.azimuth());
            let lepton = FourVector::from_rapidity(pt, eta, phi, 0.0);
            let (charge, vertex) = (self.charge(), self.beam_cm());
            self.charged(kind, &lepton, charge, vertex);
        }
        let pt = 10.0 + 10.0 * self.exponential();
        let (eta, phi) = (self.between(-1.0, 1.0), self.azimuth());
        self.neutral(ObjectKind::Photon, pt, eta, phi);
        let jets = 2 + (5.0 * self.unit()) as usize;
        for _ in 0..jets {
            let pt = 10.0 + 20.0 * self.exponential();
            let (eta, phi) = (self.between(-2.0, 2.0), self.azimuth());
            self.neutral(ObjectKind::Jet, pt, eta, phi);
        }
        self.displaced_pair();
    }

    /// A prompt track: 0.5 GeV and more, falling exponentially.
    fn soft_track(&mut self) {
        let pt = 0.5 + 0.8 * self.exponential();
        let (eta, phi) = (self.between(-2.0, 2.0), self.azimuth());
        let track = FourVector::from_rapidity(pt, eta, phi, 0.0);
        let (charge, vertex) = (self.charge(), self.beam_cm());
        self.charged(ObjectKind::Track, &track, charge, vertex);
    }

    /// A muon if the chambers see it, a track if it is too soft, nothing beyond their edge.
    fn muon(&mut self, muon: &FourVector, charge: f64, vertex: (f64, f64)) {
        if muon.eta().abs() <= MUON_ETA_MAX {
            let seen = muon.pt() >= MUON_PT_MIN;
            let kind = if seen {
                ObjectKind::Muon
            } else {
                ObjectKind::Track
            };
            self.charged(kind, muon, charge, vertex);
        }
    }

    /// A charged object from `vertex` [cm], as measured: 1.2 % and 0.015 % per GeV on the
    /// transverse momentum, 0.5 mrad on the angles, and an impact parameter with an error that
    /// falls from 47 um for soft to 35 um for stiff tracks (the range measured at CDF).
    fn charged(&mut self, kind: ObjectKind, p: &FourVector, charge: f64, vertex: (f64, f64)) {
        let (pt, true_phi) = (p.pt(), p.phi());
        let pt_error = (0.012_f64.powi(2) + (0.000_15 * pt).powi(2)).sqrt();
        let measured_pt = pt * (1.0 + pt_error * self.normal()).max(0.1);
        let phi = wrapped_phi(true_phi + 0.0005 * self.normal());
        let eta = p.eta() + 0.0005 * self.normal();
        let dxy_error_cm = 1e-4 * (35.0 + 12.0 * 2.0 / (2.0 + pt));
        let dxy = -vertex.0 * true_phi.sin() + vertex.1 * true_phi.cos();
        let measured_dxy = dxy + dxy_error_cm * self.normal();
        let iso = 0.6 * self.exponential();
        let chi2 = self.generator.chi2.sample(&mut self.random);
        self.push(SourceObject {
            kind,
            pt: measured_pt as f32,
            eta: eta as f32,
            phi: phi as f32,
            charge: charge as f32,
            dxy: measured_dxy as f32,
            iso: iso as f32,
            chi2: chi2 as f32,
        });
    }

    fn neutral(&mut self, kind: ObjectKind, pt: f64, eta: f64, phi: f64) {
        let iso = 1.5 * self.exponential();
        self.push(SourceObject {
            kind,
            pt: pt as f32,
            eta: eta as f32,
            phi: phi as f32,
            charge: 0.0,
            dxy: 0.0,
            iso: iso as f32,
            chi2: 0.0,
        });
    }

    /// The bound of an event: with valid means the 257th object is beyond any tail.
    fn push(&mut self, object: SourceObject) {
        if self.event.objects.len() < OBJECTS_MAX {
            self.event.objects.push(object);
        }
    }

    /// A parent with the given mass, typical transverse momentum and Gaussian rapidity.
    fn parent(&mut self, mass: f64, pt_scale: f64, rapidity_width: f64) -> FourVector {
        // Integral of pt / (pt^2 + scale^2)^3, inverted.
        let pt = pt_scale * (self.unit_above_zero().powf(-0.5) - 1.0).sqrt();
        let rapidity = (rapidity_width * self.normal()).clamp(-3.0, 3.0);
        let phi = self.azimuth();
        FourVector::from_rapidity(pt, rapidity, phi, mass)
    }

    /// Distributed as 1 + cos^2: the real root of c^3 + 3 c = 8 u - 4 (Cardano).
    fn cos_theta_of_vector_decay(&mut self) -> f64 {
        let q = 4.0 * self.unit() - 2.0;
        let root = (q * q + 1.0).sqrt();
        ((q + root).cbrt() + (q - root).cbrt()).clamp(-1.0, 1.0)
    }

    fn beam_cm(&self) -> (f64, f64) {
        let (x, y) = self.generator.config.beam_mm;
        (0.1 * x, 0.1 * y)
    }

    fn count(&mut self, distribution: Option<&Poisson<f64>>) -> usize {
        // The cast saturates; the bound of an event follows in `push`.
        distribution.map_or(0, |poisson| poisson.sample(&mut self.random) as usize)
    }

    fn unit(&mut self) -> f64 {
        self.random.random()
    }

    fn unit_above_zero(&mut self) -> f64 {
        1.0 - self.unit()
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    fn azimuth(&mut self) -> f64 {
        self.between(-PI, PI)
    }

    fn charge(&mut self) -> f64 {
        if self.random.random() { 1.0 } else { -1.0 }
    }

    fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.random)
    }

    fn exponential(&mut self) -> f64 {
        Exp1.sample(&mut self.random)
    }
}
