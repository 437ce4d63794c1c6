//! Properties of Level-2 decisions over random packets: no panic, agreement with a reference that
//! follows the definition word for word, and growth with items, Level-1 bits and looser cuts.
//!
//! Verifies the Rust code against the text of `docs/formats/trigger-packet.md` as read here; the
//! Python oracle is the reading by someone else.

use livetime_trigger::{
    AngleMdeg, BeamSpot, ChargeRule, Cut, Decided, DimuonCut, EnergyMev, LengthUm, LevelTwo, Menu,
    MenuConfig, PathConfig, SingleMuonCut, Sixteenths, TwoTrackCut,
};
use livetime_wire::trigger_packet::{
    Cluster, MuonStub, Sums, SvtTrack, TriggerPacket, TriggerPacketView, XtrpTrack,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn decide(menu: &MenuConfig, packet: &TriggerPacket) -> Decided {
    let menu = Menu::new_checked(menu.clone(), "trigger").expect("strategies give good menus");
    let mut words = Vec::new();
    packet.emit(&mut words);
    let view = TriggerPacketView::new_checked(&words).expect("emitted packets are good");
    LevelTwo::new(&menu).decide(&view)
}

/// Items of any bit pattern.
fn any_packet() -> impl Strategy<Value = TriggerPacket> {
    (
        any::<u64>(),
        vec(any::<u32>(), 0..40),
        vec(any::<[u32; 2]>(), 0..40),
        vec(any::<[u32; 2]>(), 0..10),
        vec(any::<u32>(), 0..20),
        proptest::option::of(any::<[u32; 2]>()),
    )
        .prop_map(
            |(l1_bits, xtrp, svt, clusters, muons, sums)| TriggerPacket {
                l1_bits,
                xtrp: xtrp.into_iter().map(XtrpTrack).collect(),
                svt: svt.into_iter().map(SvtTrack).collect(),
                clusters: clusters.into_iter().map(Cluster).collect(),
                muons: muons.into_iter().map(MuonStub).collect(),
                sums: sums.map(Sums),
                ..TriggerPacket::default()
            },
        )
}

/// Tracks near the cuts, so that each condition decides often.
fn likely_track() -> impl Strategy<Value = SvtTrack> {
    (
        0..8192u32,
        -60..60i32,
        0..100u32,
        any::<bool>(),
        300..500u32,
    )
        .prop_map(|(phi, d, c, negative, chi2)| SvtTrack::new(phi, 32, d, c, negative, chi2))
}

fn charge() -> impl Strategy<Value = ChargeRule> {
    prop_oneof![
        Just(ChargeRule::Opposite),
        Just(ChargeRule::Same),
        Just(ChargeRule::Any)
    ]
}

fn two_track() -> impl Strategy<Value = TwoTrackCut> {
    (
        (0..6000i32, 0..12_000i32, 350..500i32, charge()),
        (0..60_000i32, 60_001..200_000i32),
        (
            0..200i32,
            201..700i32,
            -300..700i32,
            proptest::option::of(1..600i32),
        ),
    )
        .prop_map(
            |((pt, sum_pt, chi2, charge), (near, far), (d0, d1, lxy, d_pair))| TwoTrackCut {
                pt_min: EnergyMev(pt),
                sum_pt_min: EnergyMev(sum_pt),
                chi2_max: Sixteenths(chi2),
                charge,
                dphi_min: AngleMdeg(near),
                dphi_max: AngleMdeg(far),
                d_min: LengthUm(d0),
                d_max: LengthUm(d1),
                lxy_min: LengthUm(lxy),
                d_pair_max: d_pair.map(LengthUm),
            },
        )
}

fn beam_spot() -> impl Strategy<Value = BeamSpot> {
    (-1000..1000i32, -1000..1000i32).prop_map(|(x, y)| BeamSpot {
        x: LengthUm(x),
        y: LengthUm(y),
    })
}

/// A menu of one path that every Level-1 bit opens.
fn menu_of(cut: Cut, beam_spot: BeamSpot) -> MenuConfig {
    MenuConfig {
        beam_spot,
        paths: vec![PathConfig {
            name: "PATH".to_owned(),
            bit: 127,
            l1_mask: u64::MAX,
            cut,
            prescale: 1.into(),
        }],
        ..MenuConfig::default()
    }
}

fn packet_of(svt: Vec<SvtTrack>) -> TriggerPacket {
    TriggerPacket {
        l1_bits: 1,
        svt,
        ..TriggerPacket::default()
    }
}

fn wide(value: impl Into<i128>) -> i128 {
    value.into()
}

/// Section 3 of the definition, in its order, with 128-bit integers and without any short cut.
fn reference(cut: &TwoTrackCut, beam: BeamSpot, tracks: &[SvtTrack]) -> bool {
    let sin_cos = |k: u32| {
        let angle = 2.0 * core::f64::consts::PI * f64::from(k) / 8192.0;
        let scaled = |value: f64| (32768.0 * value).round() as i128;
        (scaled(angle.sin()), scaled(angle.cos()))
    };
    let first_twenty = &tracks[..tracks.len().min(20)];
    let passes = |i: usize, j: usize| {
        let pair = [first_twenty[i], first_twenty[j]];
        let each = |track: &SvtTrack| {
            wide(track.chi2()) < wide(cut.chi2_max.0)
                && wide(track.c_magnitude()) * wide(cut.pt_min.0) < 180_855
        };
        let one = pair.iter().all(each);
        let two = match cut.charge {
            ChargeRule::Opposite => pair[0].is_negative() != pair[1].is_negative(),
            ChargeRule::Same => pair[0].is_negative() == pair[1].is_negative(),
            ChargeRule::Any => true,
        };
        let [c1, c2] = pair.map(|track| wide(track.c_magnitude()));
        let three = c1 == 0 || c2 == 0 || 180_855 * (c1 + c2) > wide(cut.sum_pt_min.0) * c1 * c2;
        let apart = (wide(pair[0].phi()) - wide(pair[1].phi())).abs();
        let dphi = apart.min(8192 - apart) * 360_000;
        let four = wide(cut.dphi_min.0) * 8192 < dphi && dphi < wide(cut.dphi_max.0) * 8192;
        let [d1, d2] = pair.map(|track| {
            let (s, k) = sin_cos(track.phi());
            (wide(track.d()) * 10 * 32768 + wide(beam.x.0) * s - wide(beam.y.0) * k + 16384) >> 15
        });
        let inside = |d: i128| wide(cut.d_min.0) < d.abs() && d.abs() < wide(cut.d_max.0);
        let five = inside(d1) && inside(d2);
        let (s1, k1) = sin_cos(pair[0].phi());
        let (s2, k2) = sin_cos(pair[1].phi());
        let (mut det, mut x, mut y) = (k1 * s2 - s1 * k2, d1 * k2 - d2 * k1, d1 * s2 - d2 * s1);
        if det < 0 {
            (det, x, y) = (-det, -x, -y);
        }
        let (w1, w2) = if c1 == 0 && c2 == 0 { (1, 1) } else { (c2, c1) };
        let (px, py) = (w1 * k1 + w2 * k2, w1 * s1 + w2 * s2);
        let p = (px * px + py * py).isqrt();
        let six = det != 0 && (x * px + y * py) * 32768 > wide(cut.lxy_min.0) * det * p;
        let seven = cut
            .d_pair_max
            .is_none_or(|limit| (y * px - x * py).abs() * 32768 < wide(limit.0) * det * p);
        one && two && three && four && five && six && seven
    };
    let pairs = (0..first_twenty.len()).flat_map(|i| (0..i).map(move |j| (j, i)));
    pairs.into_iter().any(|(i, j)| passes(i, j))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_packet_panics_and_what_fires_has_passed(packet in any_packet(), beam in beam_spot()) {
        let menu = MenuConfig { beam_spot: beam, ..MenuConfig::default() };
        let decided = decide(&menu, &packet);
        prop_assert_eq!(decided.after.0 & !decided.before.0, 0);
        prop_assert_eq!(decided.after, decided.before, "every first pass fires");
    }

    #[test]
    fn no_threshold_panics_on_the_largest_values(
        packet in any_packet(),
        x in prop_oneof![Just(-100_000), Just(100_000)],
        y in prop_oneof![Just(-100_000), Just(100_000)],
        lxy in prop_oneof![Just(-1_000_000), Just(1_000_000)],
    ) {
        let cut = TwoTrackCut {
            pt_min: EnergyMev(0),
            sum_pt_min: EnergyMev(1_000_000),
            chi2_max: Sixteenths(2048),
            charge: ChargeRule::Any,
            dphi_min: AngleMdeg(0),
            dphi_max: AngleMdeg(360_000),
            d_min: LengthUm(0),
            d_max: LengthUm(1_000_000),
            lxy_min: LengthUm(lxy),
            d_pair_max: Some(LengthUm(1_000_000)),
        };
        let beam = BeamSpot { x: LengthUm(x), y: LengthUm(y) };
        let packet = TriggerPacket { l1_bits: 1, ..packet };
        let expected = reference(&cut, beam, &packet.svt);
        prop_assert_eq!(decide(&menu_of(Cut::TwoTrack(cut), beam), &packet).before.is_accept(), expected);
    }

    #[test]
    fn two_track_is_the_definition(
        tracks in vec(likely_track(), 0..24),
        cut in two_track(),
        beam in beam_spot(),
    ) {
        let expected = reference(&cut, beam, &tracks);
        let decided = decide(&menu_of(Cut::TwoTrack(cut), beam), &packet_of(tracks));
        prop_assert_eq!(decided.before.is_accept(), expected);
    }

    #[test]
    fn more_items_and_more_level_one_bits_never_unset_a_path(
        packet in any_packet(),
        likely in vec(likely_track(), 0..10),
        more_tracks in vec(likely_track(), 0..10),
        more_muons in vec(any::<u32>(), 0..10),
        more_l1 in any::<u64>(),
        beam in beam_spot(),
    ) {
        let menu = MenuConfig { beam_spot: beam, ..MenuConfig::default() };
        let small = TriggerPacket { svt: likely, ..packet };
        let mut large = small.clone();
        large.svt.extend(more_tracks);
        large.muons.extend(more_muons.into_iter().map(MuonStub));
        large.l1_bits |= more_l1;
        let (small, large) = (decide(&menu, &small), decide(&menu, &large));
        prop_assert_eq!(small.before.0 & !large.before.0, 0);
    }

    #[test]
    fn a_looser_cut_never_unsets_a_path(
        tracks in vec(likely_track(), 0..20),
        cut in two_track(),
        loosen in vec(0..2000i32, 9),
        beam in beam_spot(),
    ) {
        let looser = TwoTrackCut {
            pt_min: EnergyMev((cut.pt_min.0 - loosen[0]).max(0)),
            sum_pt_min: EnergyMev((cut.sum_pt_min.0 - loosen[1]).max(0)),
            chi2_max: Sixteenths((cut.chi2_max.0 + loosen[2]).min(2048)),
            charge: if loosen[2] % 2 == 0 { ChargeRule::Any } else { cut.charge },
            dphi_min: AngleMdeg((cut.dphi_min.0 - loosen[3]).max(0)),
            dphi_max: AngleMdeg(cut.dphi_max.0 + loosen[4]),
            d_min: LengthUm((cut.d_min.0 - loosen[5]).max(0)),
            d_max: LengthUm(cut.d_max.0 + loosen[6]),
            lxy_min: LengthUm(cut.lxy_min.0 - loosen[7]),
            d_pair_max: cut.d_pair_max.map(|limit| LengthUm(limit.0 + loosen[8])),
        };
        let packet = packet_of(tracks);
        let tight = decide(&menu_of(Cut::TwoTrack(cut), beam), &packet);
        let loose = decide(&menu_of(Cut::TwoTrack(looser), beam), &packet);
        prop_assert_eq!(tight.before.0 & !loose.before.0, 0);
    }

    #[test]
    fn muon_cuts_are_the_definition(
        muons in vec(any::<u32>(), 0..6),
        types in 0..16u32,
        pt_min in 0..63_500i32,
        charge in charge(),
    ) {
        let stubs: Vec<MuonStub> = muons.into_iter().map(MuonStub).collect();
        let packet = TriggerPacket { l1_bits: 1, muons: stubs.clone(), ..TriggerPacket::default() };
        let good = |stub: &MuonStub| {
            stub.types() & types == types && stub.pt_code() as i32 * 500 > pt_min
        };
        let single = stubs.iter().any(good);
        let pair = |i: usize, j: usize| {
            let charges = stubs[i].is_negative() == stubs[j].is_negative();
            good(&stubs[i]) && good(&stubs[j]) && match charge {
                ChargeRule::Opposite => !charges,
                ChargeRule::Same => charges,
                ChargeRule::Any => true,
            }
        };
        let double = (0..stubs.len()).any(|i| (i + 1..stubs.len()).any(|j| pair(i, j)));
        let pt_min = EnergyMev(pt_min);
        let passes = |cut| decide(&menu_of(cut, BeamSpot::default()), &packet).before.is_accept();
        prop_assert_eq!(passes(Cut::SingleMuon(SingleMuonCut { types, pt_min })), single);
        prop_assert_eq!(passes(Cut::Dimuon(DimuonCut { types, pt_min, charge })), double);
    }
}
