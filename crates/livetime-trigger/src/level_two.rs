//! Level-2 decisions: the menu run over one packet after the other.
//!
//! A decision looks at each path once: Level-1 bits, luminosity, then the cut, then the prescale.
//! Tracks are corrected for the beam at most once per packet, and only if a path that needs them is
//! open; dead time and beam are followed behind the decision. Nothing is allocated after
//! construction. Checking packets and answering them is the business of [`crate::level_two_node`].

use livetime_wire::L2Mask;
use livetime_wire::trigger_packet::TriggerPacketView;

use crate::beam_fit::BeamFit;
use crate::beam_spot::BeamSpot;
use crate::menu::Menu;
use crate::packet_clock::PacketClock;
use crate::path::{Cut, PathConfig};
use crate::prescale::{PrescaleCounter, PrescaleState};
use crate::prescale_step::PrescaleStep;
use crate::trig_table::TrigTable;
use crate::two_track::CorrectedTracks;

/// chi2 of tracks that the beam fit takes, in sixteenths.
const FIT_CHI2_MAX: u32 = 25 * 16;

/// The decision on one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decided {
    /// The paths that passed.
    pub before: L2Mask,
    /// The paths that fired, after prescale: a subset. The trigger is accepted if there is one.
    pub after: L2Mask,
}

/// What a path did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathCounters {
    /// Packets that passed its Level-1 bits and cut.
    pub passes: u64,
    /// Of these, packets that fired after prescale.
    pub fires: u64,
}

/// A path with its state.
#[derive(Debug, Clone)]
struct RunningPath {
    config: PathConfig,
    prescale: PrescaleCounter,
    counters: PathCounters,
}

/// The menu at work.
///
/// ```
/// use livetime_trigger::{LevelTwo, Menu, MenuConfig};
/// use livetime_wire::trigger_packet::{TriggerPacket, TriggerPacketView};
///
/// let menu = Menu::new_checked(MenuConfig::default(), "trigger").expect("the default is good");
/// let mut level_two = LevelTwo::new(&menu);
/// let packet = TriggerPacket { l1_bits: 1 << 4, ..TriggerPacket::default() };
/// let mut words = Vec::new();
/// packet.emit(&mut words);
/// let view = TriggerPacketView::new_checked(&words).expect("just emitted");
/// assert_eq!(level_two.decide(&view).after.0, 1, "bit 0 is MIN_BIAS");
/// ```
#[derive(Debug, Clone)]
pub struct LevelTwo {
    paths: Vec<RunningPath>,
    /// Level-1 bits that open a path which looks at tracks.
    track_l1_mask: u64,
    beam_spot: BeamSpot,
    beam_fit: Option<BeamFit>,
    step: PrescaleStep,
    clock: PacketClock,
    table: TrigTable,
    tracks: CorrectedTracks,
}

impl LevelTwo {
    /// The menu with all prescale counters at 0.
    pub fn new(menu: &Menu) -> Self {
        let config = menu.config();
        let paths = config.paths.iter().map(|config| RunningPath {
            config: config.clone(),
            prescale: PrescaleCounter::new(&config.prescale),
            counters: PathCounters::default(),
        });
        let steps = config.paths.iter().map(|path| path.prescale.steps.len());
        let with_tracks = config.paths.iter().filter(|path| path.cut.needs_tracks());
        Self {
            paths: paths.collect(),
            track_l1_mask: with_tracks.fold(0, |mask, path| mask | path.l1_mask),
            beam_spot: config.beam_spot,
            beam_fit: config.beam_fit.map(BeamFit::new),
            step: PrescaleStep::new(config.dead_time, steps.max().unwrap_or(1) - 1),
            clock: PacketClock::new(&config.luminosity),
            table: TrigTable::new(),
            tracks: CorrectedTracks::default(),
        }
    }

    /// Decides on a packet; moves the prescale counters of the paths that pass.
    pub fn decide(&mut self, packet: &TriggerPacketView<'_>) -> Decided {
        let l1_bits = packet.l1_bits();
        let state = PrescaleState {
            step: self.step.step(),
            ticks: self.clock.ticks(packet.time_stamp()),
            luminosity: self.clock.luminosity(packet.lumi_section()),
        };
        if self.track_l1_mask & l1_bits != 0 {
            self.tracks.fill(packet.svt(), &self.table, self.beam_spot);
        }
        let mut decided = Decided::default();
        for path in &mut self.paths {
            if path.config.l1_mask & l1_bits == 0 || !path.prescale.is_open(&state) {
                continue;
            }
            if passes(&path.config.cut, packet, &self.tracks) {
                let bit = 1u128 << path.config.bit;
                decided.before.0 |= bit;
                path.counters.passes += 1;
                if path.prescale.count(&state) {
                    decided.after.0 |= bit;
                    path.counters.fires += 1;
                }
            }
        }
        self.step.count(packet.refused());
        self.follow_beam(packet);
        decided
    }

    /// Adds the packet's tracks to the beam fit, if there is one.
    #[inline]
    fn follow_beam(&mut self, packet: &TriggerPacketView<'_>) {
        let Some(fit) = &mut self.beam_fit else {
            return;
        };
        let found = fit.add(packet.svt(), &self.table, FIT_CHI2_MAX, self.beam_spot);
        self.beam_spot = found.unwrap_or(self.beam_spot);
    }

    /// Takes a measured luminosity in 10^30 / cm^2 / s, which holds from the next packet on instead
    /// of the configured ones.
    #[inline]
    pub fn handle_luminosity(&mut self, luminosity: u32) {
        self.clock.handle_luminosity(luminosity);
    }

    /// Position of the beam that holds now.
    #[inline]
    pub fn beam_spot(&self) -> BeamSpot {
        self.beam_spot
    }

    /// The beam fit, if the menu has one.
    #[inline]
    pub fn beam_fit(&self) -> Option<&BeamFit> {
        self.beam_fit.as_ref()
    }

    /// Step of the dynamic prescales that holds now.
    #[inline]
    pub fn prescale_step(&self) -> usize {
        self.step.step()
    }

    /// Every path with what it did so far, in the order of the menu.
    #[inline]
    pub fn paths(&self) -> impl ExactSizeIterator<Item = (&PathConfig, PathCounters)> {
        self.paths.iter().map(|path| (&path.config, path.counters))
    }
}

/// Whether a cut is true.
fn passes(cut: &Cut, packet: &TriggerPacketView<'_>, tracks: &CorrectedTracks) -> bool {
    match cut {
        Cut::Auto | Cut::MinBias | Cut::ZeroBias => true,
        Cut::SingleMuon(cut) => cut.is_true(packet.muons()),
        Cut::Dimuon(cut) => cut.is_true(packet.muons()),
        Cut::TwoTrack(cut) => cut.is_true(tracks),
        Cut::LeptonTrack(cut) => cut.is_true(packet, tracks),
        Cut::SingleElectron(cut) => cut.is_true(packet),
        Cut::Photon(cut) => cut.is_true(packet),
        Cut::ElectronMuon(cut) => cut.is_true(packet),
        Cut::Jet(cut) | Cut::MultiJet(cut) | Cut::JetsMet(cut) => cut.is_true(packet),
        Cut::MetEm(cut) => cut.is_true(packet),
        Cut::SumEt(cut) => cut.is_true(packet),
        Cut::Tau(cut) => cut.is_true(packet),
        Cut::User(cut) => cut.is_true(packet, tracks),
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::DurationNs;
    use livetime_wire::trigger_packet::{MuonStub, SvtTrack, TriggerPacket};

    use super::*;
    use crate::beam_fit::BeamFitConfig;
    use crate::menu::MenuConfig;
    use crate::prescale_step::DeadTimeControl;
    use crate::threshold::LengthUm;

    fn level_two(edit: impl FnOnce(&mut MenuConfig)) -> LevelTwo {
        let mut config = MenuConfig::default();
        edit(&mut config);
        LevelTwo::new(&Menu::new_checked(config, "trigger").unwrap())
    }

    fn decide(level_two: &mut LevelTwo, packet: &TriggerPacket) -> Decided {
        let mut words = Vec::new();
        packet.emit(&mut words);
        level_two.decide(&TriggerPacketView::new_checked(&words).unwrap())
    }

    fn bits(bits: &[u8]) -> L2Mask {
        L2Mask(bits.iter().fold(0, |mask, bit| mask | 1 << bit))
    }

    #[test]
    fn a_dimuon_fires_the_muon_paths() {
        let mut level_two = level_two(|_| {});
        let packet = TriggerPacket {
            l1_bits: 0b1111,
            muons: vec![
                MuonStub::new(0, 3, 0, false, 80),
                MuonStub::new(70, 4, 1, true, 20),
            ],
            ..TriggerPacket::default()
        };
        let decided = decide(&mut level_two, &packet);
        assert_eq!(decided.before, bits(&[1, 8, 9, 16]));
        assert_eq!(decided.after, decided.before);
        let closed = TriggerPacket {
            l1_bits: 1,
            ..packet
        };
        assert_eq!(decide(&mut level_two, &closed), Decided::default());
    }

    #[test]
    fn prescales_take_the_first_of_n_and_count() {
        let mut level_two = level_two(|config| config.paths[1].prescale = 3.into());
        let packet = TriggerPacket {
            l1_bits: 0b10,
            ..TriggerPacket::default()
        };
        let fired: Vec<bool> = (0..7)
            .map(|_| {
                let decided = decide(&mut level_two, &packet);
                assert_eq!(decided.before, bits(&[1]));
                decided.after.is_accept()
            })
            .collect();
        assert_eq!(fired, [true, false, false, true, false, false, true]);
        let (config, counters) = level_two.paths().nth(1).unwrap();
        assert_eq!(config.name, "AUTO_TWO_TRACKS");
        assert_eq!((counters.passes, counters.fires), (7, 3));
        assert_eq!(level_two.paths().next().unwrap().1, PathCounters::default());
    }

    #[test]
    fn the_beam_spot_decides_over_displaced_tracks() {
        // Two prompt tracks of a beam at (0.8, 0) mm look displaced from (0, 0), and the other way
        // around.
        let beam = |x| move |config: &mut MenuConfig| config.beam_spot.x = LengthUm(x);
        let d = |phi: u32| {
            let angle = f64::from(phi) * core::f64::consts::TAU / 8192.0;
            (-80.0 * angle.sin()).round() as i32
        };
        let track = |phi, negative| SvtTrack::new(phi, 32, d(phi), 40, negative, 16);
        let packet = TriggerPacket {
            l1_bits: 0b10,
            svt: vec![track(700, false), track(1500, true)],
            ..TriggerPacket::default()
        };
        let mut from_origin = level_two(beam(0));
        let mut from_beam = level_two(beam(800));
        assert_eq!(decide(&mut from_origin, &packet).before, bits(&[1, 24]));
        assert_eq!(decide(&mut from_beam, &packet).before, bits(&[1]));
    }

    #[test]
    fn tracks_of_an_earlier_packet_are_forgotten() {
        let mut level_two = level_two(|_| {});
        let track = |phi, d, negative| SvtTrack::new(phi, 32, d, 40, negative, 16);
        let displaced = TriggerPacket {
            l1_bits: 0b10,
            svt: vec![track(0, -40, false), track(1000, 40, true)],
            ..TriggerPacket::default()
        };
        let swapped = TriggerPacket {
            svt: vec![track(0, 40, false), track(1000, -40, true)],
            ..displaced.clone()
        };
        let empty = TriggerPacket {
            l1_bits: 0b10,
            ..TriggerPacket::default()
        };
        let one_sees = [displaced, swapped]
            .iter()
            .filter(|packet| decide(&mut level_two, packet).before == bits(&[1, 24, 25]))
            .count();
        assert_eq!(one_sees, 1, "one of the two vertices lies before the beam");
        assert_eq!(decide(&mut level_two, &empty).before, bits(&[1]));
    }
    #[test]
    fn dead_time_steps_dynamic_prescales_and_relief_steps_them_back() {
        let mut level_two = level_two(|config| {
            config.paths[1].prescale.steps = vec![1, 3];
            config.dead_time = DeadTimeControl {
                window: 4,
                ..DeadTimeControl::default()
            };
        });
        let mut fires = |refused: u8| {
            let packet = TriggerPacket {
                l1_bits: 0b10,
                flags: refused << 1,
                ..TriggerPacket::default()
            };
            (0..4)
                .filter(|_| decide(&mut level_two, &packet).after.is_accept())
                .count()
        };
        assert_eq!(
            [fires(1), fires(0), fires(0)],
            [4, 1, 4],
            "of passes 4 to 7 the sixth"
        );
    }

    #[test]
    fn luminosity_closes_paths_by_section_or_as_measured() {
        let mut level_two = level_two(|config| {
            config.luminosity = vec![200, 100];
            config.paths[1].prescale.luminosity_max = Some(150);
        });
        let mut passes = |section, measured: Option<u32>| {
            if let Some(luminosity) = measured {
                level_two.handle_luminosity(luminosity);
            }
            let packet = TriggerPacket {
                l1_bits: 0b10,
                lumi_section: section,
                ..TriggerPacket::default()
            };
            decide(&mut level_two, &packet).before.is_accept()
        };
        assert!(!passes(0, None));
        assert!(passes(1, None));
        assert!(!passes(1, Some(150)));
        assert!(passes(1, Some(149)));
    }

    #[test]
    fn rates_are_limited_in_the_time_of_the_packets() {
        let mut level_two = level_two(|config| {
            config.paths[0].prescale.interval_min = DurationNs(1_000_000_000);
        });
        let second = 40_000_000u32;
        let stamps = [u32::MAX - 5, u32::MAX, second - 7, second - 6, 3 * second];
        let fired = stamps.map(|time_stamp| {
            let packet = TriggerPacket {
                l1_bits: 1 << 4,
                time_stamp,
                ..TriggerPacket::default()
            };
            decide(&mut level_two, &packet).after.is_accept()
        });
        assert_eq!(fired, [true, false, false, true, true], "over the wrap");
    }

    #[test]
    fn the_beam_is_followed_and_moves_the_tracks() {
        let mut level_two = level_two(|config| {
            config.beam_fit = Some(BeamFitConfig {
                events: 50,
                ..BeamFitConfig::default()
            });
        });
        let packet = |event: u32| {
            let track = |phi: u32, negative| {
                let angle = f64::from(phi) * core::f64::consts::TAU / 8192.0;
                let d = (-80.0 * angle.sin()).round() as i32;
                SvtTrack::new(phi, 32, d, 40, negative, 16)
            };
            let phi = event * 401 % 8192;
            TriggerPacket {
                l1_bits: 0b10,
                svt: vec![track(phi, false), track((phi + 800) % 8192, true)],
                ..TriggerPacket::default()
            }
        };
        let before =
            (0..50).filter(|event| decide(&mut level_two, &packet(*event)).before.0 >> 24 != 0);
        assert!(before.count() > 5, "seen from (0, 0) they are displaced");
        assert!((level_two.beam_spot().x.0 - 800).abs() < 3);
        let behind =
            (50..150).filter(|event| decide(&mut level_two, &packet(*event)).before.0 >> 24 != 0);
        assert_eq!(behind.count(), 0, "seen from the beam they are prompt");
        assert_eq!(level_two.beam_fit().unwrap().fits(), 3);
    }
}
