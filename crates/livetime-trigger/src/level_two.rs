//! Level-2 decisions: the menu run over one packet after the other.
//!
//! A decision looks at each path once: Level-1 bits, then the cut, then the prescale. Tracks are
//! corrected for the beam at most once per packet, and only if a two-track path is open. Nothing
//! is allocated after construction. Checking packets and answering them is the business of
//! [`crate::level_two_node`].

use livetime_wire::L2Mask;
use livetime_wire::trigger_packet::TriggerPacketView;

use crate::beam_spot::BeamSpot;
use crate::menu::Menu;
use crate::path::{Cut, PathConfig};
use crate::prescale::PrescaleCounter;
use crate::trig_table::TrigTable;
use crate::two_track::CorrectedTracks;

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
    beam_spot: BeamSpot,
    table: TrigTable,
    tracks: CorrectedTracks,
}

impl LevelTwo {
    /// The menu with all prescale counters at 0.
    pub fn new(menu: &Menu) -> Self {
        let paths = menu.paths().iter().map(|config| RunningPath {
            config: config.clone(),
            prescale: PrescaleCounter::new(config.prescale),
            counters: PathCounters::default(),
        });
        Self {
            paths: paths.collect(),
            beam_spot: menu.beam_spot(),
            table: TrigTable::new(),
            tracks: CorrectedTracks::default(),
        }
    }

    /// Decides on a packet; moves the prescale counters of the paths that pass.
    pub fn decide(&mut self, packet: &TriggerPacketView<'_>) -> Decided {
        let l1_bits = packet.l1_bits();
        let mut tracks_are_filled = false;
        let mut decided = Decided::default();
        for path in &mut self.paths {
            if path.config.l1_mask & l1_bits == 0 {
                continue;
            }
            let passes = match &path.config.cut {
                Cut::Auto | Cut::MinBias => true,
                Cut::SingleMuon(cut) => cut.is_true(packet.muons()),
                Cut::Dimuon(cut) => cut.is_true(packet.muons()),
                Cut::TwoTrack(cut) => {
                    if !tracks_are_filled {
                        self.tracks.fill(packet.svt(), &self.table, self.beam_spot);
                        tracks_are_filled = true;
                    }
                    cut.is_true(&self.tracks)
                }
            };
            if passes {
                let bit = 1u128 << path.config.bit;
                decided.before.0 |= bit;
                path.counters.passes += 1;
                if path.prescale.count() {
                    decided.after.0 |= bit;
                    path.counters.fires += 1;
                }
            }
        }
        decided
    }

    /// Every path with what it did so far, in the order of the menu.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = (&PathConfig, PathCounters)> {
        self.paths.iter().map(|path| (&path.config, path.counters))
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::trigger_packet::{MuonStub, SvtTrack, TriggerPacket};

    use super::*;
    use crate::menu::MenuConfig;
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
        let mut level_two = level_two(|config| config.paths[1].prescale = 3);
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
}
