//! Trigger packets against values worked out by hand from `docs/formats/trigger-packet.md`.

use core::f32::consts::PI;

use livetime_source::{PacketEncoder, PacketHeader, SourceEvent, SourceObject};
use livetime_wire::object::ObjectKind;
use livetime_wire::trigger_packet::{
    FLAG_TRUNCATED, MuonStub, TriggerPacketView, WORDS_MAX_DEFAULT,
};
use livetime_wire::{EventNumber, RunNs, RunNumber, TriggerNumber};
use proptest::prelude::*;

const HEADER: PacketHeader = PacketHeader {
    trigger: TriggerNumber(0x1_2345_6789),
    l2_buffer: 2,
    bunch: 0x3AB,
    run: RunNumber(0xAB_CDEF),
    lumi_section: 0x1FE,
    triggered_at: RunNs(1_000_025),
    index: 7,
};

fn object(kind: ObjectKind, pt: f32, eta: f32, phi: f32) -> SourceObject {
    let charge = match kind {
        ObjectKind::Jet | ObjectKind::Photon => 0.0,
        _ => 1.0,
    };
    SourceObject {
        kind,
        pt,
        eta,
        phi,
        charge,
        dxy: 0.0,
        iso: 0.0,
        chi2: 0.0,
    }
}

fn event(objects: Vec<SourceObject>) -> SourceEvent {
    SourceEvent {
        run: RunNumber(1),
        number: EventNumber(1),
        objects,
    }
}

fn encode(objects: Vec<SourceObject>, header: &PacketHeader) -> Vec<u32> {
    let mut words = Vec::new();
    PacketEncoder::new(WORDS_MAX_DEFAULT).encode(&event(objects), header, &mut words);
    words
}

#[test]
fn an_empty_event_has_header_sums_and_trailer() {
    let words = encode(vec![], &HEADER);
    assert_eq!(words.len(), 10);
    assert_eq!(
        words[0], 0xC280_AB01,
        "magic, buffer 2, bunch 0xAB, one block"
    );
    assert_eq!(words[1], 0x2345_6789);
    assert_eq!((words[2], words[3]), (1, 0), "Level-1 bit 0 always");
    assert_eq!(words[4], 0xABCD_EFFE);
    assert_eq!(words[5], 40_001);
    assert_eq!(words[6..9], [0x0501_0002, 0, 0]);
    assert_eq!(words[9] >> 16, 10);
}

#[test]
fn a_muon_gives_track_words_a_stub_and_with_iso_a_cluster() {
    let muon = SourceObject {
        charge: -1.0,
        dxy: -0.074_544_4,
        iso: 0.5,
        chi2: 2.03,
        ..object(ObjectKind::Muon, 54.7055, -0.432_396, 2.574_21)
    };
    let words = encode(vec![muon], &HEADER);
    let view = TriggerPacketView::new_checked(&words).unwrap();

    // 2.57421 x 8192 / 2 pi = 3356.3; x 2304 / 8192 = 943.9: wedge 117, pixel 7.
    let xtrp = view.xtrp().next().unwrap();
    assert_eq!((xtrp.wedge(), xtrp.pixel()), (117, 7));
    assert_eq!(xtrp.pt_code(), 31, "109 saturates");
    assert!(xtrp.is_negative() && xtrp.is_isolated());

    let svt = view.svt().next().unwrap();
    assert_eq!((svt.phi(), svt.z(), svt.d()), (3356, 32, -75));
    assert_eq!(
        (svt.c_magnitude(), svt.is_negative()),
        (3, true),
        "180.855 / 54.7055 = 3.3"
    );
    assert_eq!((svt.chi2(), svt.number()), (32, 0), "2.03 x 16 = 32.48");

    let stub = view.muons().next().unwrap();
    assert_eq!(
        (stub.phi(), stub.types()),
        (58, MuonStub::CMU | MuonStub::CMP)
    );
    assert_eq!((stub.track(), stub.pt_code()), (0, 109));
    assert!(stub.is_negative());

    let cluster = view.clusters().next().unwrap();
    assert_eq!((cluster.em(), cluster.had()), (4, 0), "0.5 GeV around it");
    assert_eq!((cluster.eta(), cluster.phi()), (-4, 26));
    assert_eq!(cluster.isolation(), 15, "isolated below 1 GeV");

    let sums = view.sums().unwrap();
    assert_eq!(sums.sum_et(), 4);
    // The muon's 54.7 GeV are 437.6 counts, rounded 438; its table entries (17616, -27630) are a
    // little shorter than 32768, which leaves 437. What is missing points away from the muon.
    assert_eq!((sums.missing_et(), sums.missing_phi()), (437, 3356 + 4096));
}

#[test]
fn clusters_of_electrons_photons_and_jets() {
    let jet = object(ObjectKind::Jet, 10.125, 9.0, -PI);
    let electron = SourceObject {
        iso: 1.0,
        ..object(ObjectKind::Electron, 600.0, -9.0, 0.0)
    };
    let photon = object(ObjectKind::Photon, 0.2, 0.05, 3.0);
    let words = encode(vec![jet, electron, photon], &HEADER);
    let view = TriggerPacketView::new_checked(&words).unwrap();
    let clusters: Vec<_> = view.clusters().collect();
    // 81 counts: 48 electromagnetic, 33 hadronic; 1 + 5 towers; seed (81 + 1) / 2.
    assert_eq!((clusters[0].em(), clusters[0].had()), (48, 33));
    assert_eq!((clusters[0].towers(), clusters[0].seed()), (6, 41));
    assert_eq!((clusters[0].eta(), clusters[0].phi()), (63, 32));
    assert_eq!((clusters[1].em(), clusters[1].eta()), (4095, -64));
    assert_eq!(clusters[1].towers(), 255, "1 + min(254, 255)");
    assert_eq!(
        clusters[1].isolation(),
        0,
        "1 GeV around it is not isolated"
    );
    assert_eq!(
        (clusters[2].em(), clusters[2].eta()),
        (2, 1),
        "0.05 x 10 rounds away from zero"
    );
    assert_eq!(view.xtrp().len(), 1, "only the electron is charged");
    assert_eq!(view.sums().unwrap().sum_et(), 81 + 4095 + 2);
}

#[test]
fn angles_and_impact_parameters_at_their_edges() {
    let track = |phi, dxy, pt| SourceObject {
        dxy,
        ..object(ObjectKind::Track, pt, 0.0, phi)
    };
    let words = encode(
        vec![
            track(-0.000_3, 178.0, 1e5),
            track(PI, -178.0, 0.001),
            track(-PI, -0.000_4, 180.855),
            track(-1.0, 0.000_5, 361.71),
        ],
        &HEADER,
    );
    let view = TriggerPacketView::new_checked(&words).unwrap();
    let svt: Vec<_> = view.svt().collect();
    assert_eq!(
        (svt[0].phi(), svt[0].d(), svt[0].c_magnitude()),
        (0, 511, 0)
    );
    assert_eq!(
        (svt[1].phi(), svt[1].d(), svt[1].c_magnitude()),
        (4096, -511, 255)
    );
    assert_eq!(
        (svt[2].phi(), svt[2].d(), svt[2].c_magnitude()),
        (4096, 0, 1)
    );
    assert_eq!(svt[2].0[0] >> 28 & 1, 0, "no minus zero");
    // -1 rad is -1303.8 steps: 8192 - 1304. Half a count rounds away from zero, both ways.
    assert_eq!((svt[3].phi(), svt[3].c_magnitude()), (6888, 1));
    assert_eq!(
        svt.iter().map(|t| t.number()).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    let codes: Vec<u32> = view.xtrp().map(|t| t.pt_code()).collect();
    assert_eq!(codes, [31, 0, 31, 31]);
}

#[test]
fn level_one_bits_are_set_by_tracks_stubs_and_index() {
    let bits = |objects: Vec<SourceObject>, index: u64| {
        let words = encode(objects, &PacketHeader { index, ..HEADER });
        TriggerPacketView::new_checked(&words).unwrap().l1_bits()
    };
    let track = |pt| object(ObjectKind::Track, pt, 0.0, 1.0);
    let muon = |pt| object(ObjectKind::Muon, pt, 0.8, 1.0);
    assert_eq!(bits(vec![], 1), 0b00001);
    assert_eq!(bits(vec![], 0), 0b10001);
    assert_eq!(bits(vec![], 5000), 0b10001);
    assert_eq!(bits(vec![track(2.0), track(1.999)], 1), 0b00001);
    assert_eq!(bits(vec![track(2.0), track(2.0)], 1), 0b00011);
    assert_eq!(bits(vec![muon(3.99)], 1), 0b00001);
    assert_eq!(bits(vec![muon(4.0)], 1), 0b00101);
    assert_eq!(bits(vec![muon(1.5), muon(1.5)], 1), 0b01001);
    assert_eq!(bits(vec![muon(4.0), muon(1.5)], 1), 0b01101);
    assert_eq!(bits(vec![muon(4.0), muon(2.0)], 1), 0b01111);
}

#[test]
fn level_one_bits_of_the_calorimeter_and_the_random_one() {
    let bits = |objects: Vec<SourceObject>, index: u64| {
        let words = encode(objects, &PacketHeader { index, ..HEADER });
        TriggerPacketView::new_checked(&words).unwrap().l1_bits() >> 5
    };
    let jet = |pt, phi| object(ObjectKind::Jet, pt, 0.0, phi);
    let electron = |pt| object(ObjectKind::Electron, pt, 0.0, 1.0);
    assert_eq!(bits(vec![electron(7.9)], 1), 0b00000);
    assert_eq!(bits(vec![electron(8.0)], 1), 0b00001);
    assert_eq!(bits(vec![jet(9.9, 0.0)], 1), 0b00000);
    assert_eq!(bits(vec![jet(10.0, 0.0)], 1), 0b00010);
    // Three fifths of a jet are electromagnetic; 15 GeV of it are missing on the other side.
    assert_eq!(bits(vec![jet(15.1, 0.0)], 1), 0b01011);
    let balanced = vec![jet(30.0, 0.0), jet(30.0, core::f32::consts::PI)];
    assert_eq!(bits(balanced, 1), 0b00111);
    let random = (0..10_000).filter(|index| bits(vec![], *index) == 0b10000);
    assert!((1..30).contains(&random.count()), "about one in 1024");
}

#[test]
fn refused_accepts_are_said_once_and_saturate() {
    let mut encoder = PacketEncoder::new(WORDS_MAX_DEFAULT);
    let mut words = Vec::new();
    let mut refused_after = |count: u32| {
        (0..count).for_each(|_| encoder.count_refused());
        encoder.encode(&event(vec![]), &HEADER, &mut words);
        TriggerPacketView::new_checked(&words).unwrap().refused()
    };
    assert_eq!(
        [0, 3, 0, 31, 40, 1].map(&mut refused_after),
        [0, 3, 0, 31, 31, 1]
    );
}

#[test]
fn chambers_change_at_their_pseudorapidities() {
    let types: Vec<u32> = [0.59, -0.61, 0.99, -1.0, 2.4]
        .into_iter()
        .map(|eta| {
            let words = encode(vec![object(ObjectKind::Muon, 5.0, eta, 0.0)], &HEADER);
            let view = TriggerPacketView::new_checked(&words).unwrap();
            view.muons().next().unwrap().types()
        })
        .collect();
    assert_eq!(types, [3, 4, 4, 8, 8]);
}

#[test]
fn packets_above_the_limit_lose_items_are_flagged_and_counted() {
    let tracks = (0..10).map(|k| object(ObjectKind::Track, 1.0 + k as f32, 0.0, 0.0));
    let jets = (0..3).map(|_| object(ObjectKind::Jet, 20.0, 0.0, 0.0));
    let event = event(tracks.chain(jets).collect());
    let mut encoder = PacketEncoder::new(30);
    let mut words = Vec::new();
    assert!(encoder.encode(&event, &HEADER, &mut words));
    let view = TriggerPacketView::new_checked(&words).unwrap();
    assert_eq!(view.flags(), FLAG_TRUNCATED);
    // 6 + 3 + 1, 21 of SVT: no clusters, no XTRP, one SVT track less.
    assert_eq!(
        (view.clusters().len(), view.xtrp().len(), view.svt().len()),
        (0, 0, 9)
    );
    assert_eq!(words.len(), 29);
    assert!(
        view.svt().all(|track| track.number() > 0),
        "the softest track went"
    );
    assert_eq!(view.l1_bits() & 2, 2, "Level 1 saw all tracks");
    assert_eq!(
        view.sums().unwrap().sum_et(),
        480,
        "and the sums all clusters"
    );
    assert!(!encoder.encode(&SourceEvent::new(), &HEADER, &mut words));
    let counts = encoder.counts();
    assert_eq!(
        (counts.packets, counts.truncated, counts.items_dropped),
        (2, 1, 14)
    );
    assert_eq!(counts.words, 39);
}

fn any_object() -> impl Strategy<Value = SourceObject> {
    let kind = proptest::sample::select(vec![
        ObjectKind::Muon,
        ObjectKind::Electron,
        ObjectKind::Track,
        ObjectKind::Jet,
        ObjectKind::Photon,
    ]);
    (kind, prop::array::uniform7(any::<f32>())).prop_map(|(kind, f)| SourceObject {
        kind,
        pt: f[0],
        eta: f[1],
        phi: f[2],
        charge: f[3],
        dxy: f[4],
        iso: f[5],
        chi2: f[6],
    })
}

proptest! {
    /// Any values at all, infinities and NaN included: a packet comes out that can be read.
    #[test]
    fn any_event_becomes_a_readable_packet_within_the_limit(
        objects in prop::collection::vec(any_object(), 0..600),
        words_max in 10_usize..2000,
        index: u64,
    ) {
        let mut encoder = PacketEncoder::new(words_max);
        let mut words = Vec::new();
        let header = PacketHeader { index, ..HEADER };
        let truncated = encoder.encode(&event(objects), &header, &mut words);
        prop_assert!(words.len() <= words_max);
        let view = TriggerPacketView::new_checked(&words).unwrap();
        prop_assert_eq!(view.flags() == FLAG_TRUNCATED, truncated);
        prop_assert!(view.sums().is_some());
        prop_assert_eq!(view.xtrp().len(), encoder.packet().xtrp.len());
    }
}

#[test]
fn parts_for_several_inputs_hold_each_block_once() {
    let kinds = [ObjectKind::Muon, ObjectKind::Jet, ObjectKind::Electron];
    let objects = |n| {
        let of_kind = |i: usize| object(kinds[i % 3], 5.0 + i as f32, 0.3, 0.1 * i as f32);
        event((0..n).map(of_kind).collect())
    };
    for inputs in 1..=6 {
        let mut encoder = PacketEncoder::new(WORDS_MAX_DEFAULT);
        let (mut whole, mut part) = (Vec::new(), Vec::new());
        encoder.encode(&objects(12), &HEADER, &mut whole);
        let whole = TriggerPacketView::new_checked(&whole).unwrap();
        let counts = |view: &TriggerPacketView<'_>| {
            [
                view.xtrp().count(),
                view.svt().count(),
                view.clusters().count(),
                view.muons().count(),
                usize::from(view.sums().is_some()),
            ]
        };
        let mut sum = [0; 5];
        for input in 0..inputs {
            encoder.emit_part(input, inputs, &mut part);
            let view = TriggerPacketView::new_checked(&part).unwrap();
            assert_eq!(view.words()[1..6], whole.words()[1..6], "the header");
            for (block, count) in counts(&view).into_iter().enumerate() {
                assert!(count == 0 || block % inputs == input);
                sum[block] += count;
            }
        }
        assert_eq!(sum, counts(&whole), "{inputs} inputs");
        assert!(sum.iter().all(|count| *count > 0));
    }
}
