use livetime_wire::trigger_packet::{
    Cluster, FLAG_TRUNCATED, HEADER_WORDS, MuonStub, PacketError, Sums, SvtTrack, TriggerPacket,
    TriggerPacketView, XtrpTrack,
};
use proptest::prelude::*;

use crate::golden::{assert_golden, for_each_flipped_bit, golden_words};

/// The packet of `trigger-packet-v1.hex`.
fn golden_packet() -> TriggerPacket {
    let svt = |phi, d, c, negative, chi2, number| {
        SvtTrack::new(phi, 32, d, c, negative, chi2).with_number(number)
    };
    TriggerPacket {
        l2_buffer: 2,
        flags: 0,
        bunch: 0xAB,
        trigger_low: 0x1234_5678,
        l1_bits: 0x8000_0000_0000_000F,
        run: 0xAB_CDEF,
        lumi_section: 0x17,
        time_stamp: 40_001,
        xtrp: vec![
            XtrpTrack::new(117, 7, 31, true, true),
            XtrpTrack::new(0, 0, 0, false, false),
            XtrpTrack::new(287, 3, 16, true, false),
            XtrpTrack::new(144, 4, 4, false, true),
        ],
        svt: vec![
            svt(3356, -75, 3, true, 32, 0),
            svt(8191, 600, 300, false, 3000, 1),
            svt(0, -511, 0, true, 0, 2),
            svt(4096, 0, 90, false, 25, 511),
        ],
        clusters: vec![
            Cluster::new(48, 33, 6, 41, -100, 63, 15),
            Cluster::new(5000, 0, 255, 2048, 63, 0, 0),
            Cluster::new(2, 0, 1, 1, -1, 26, 15),
        ],
        muons: vec![
            MuonStub::new(58, 3, 0, true, 109),
            MuonStub::new(143, 8, MuonStub::NO_TRACK, false, 200),
        ],
        sums: Some(Sums::new(4178, 437, 7452)),
    }
}

fn emit(packet: &TriggerPacket) -> Vec<u32> {
    let mut words = vec![1, 2, 3];
    packet.emit(&mut words);
    assert_eq!(words.len(), packet.words());
    words
}

/// The packet that a view shows.
fn read_back(view: &TriggerPacketView) -> TriggerPacket {
    TriggerPacket {
        l2_buffer: view.l2_buffer(),
        flags: view.flags(),
        bunch: view.bunch(),
        trigger_low: view.trigger_low(),
        l1_bits: view.l1_bits(),
        run: view.run(),
        lumi_section: view.lumi_section(),
        time_stamp: view.time_stamp(),
        xtrp: view.xtrp().collect(),
        svt: view.svt().collect(),
        clusters: view.clusters().collect(),
        muons: view.muons().collect(),
        sums: view.sums(),
    }
}

#[test]
fn golden_packet_is_emitted_and_read() {
    let golden = golden_words("trigger-packet-v1.hex");
    assert_eq!(golden.len(), 34, "the typical packet");
    let view = TriggerPacketView::new_checked(&golden).unwrap();
    assert_eq!(read_back(&view), golden_packet());
    assert_golden("trigger-packet-v1.hex", &emit(&golden_packet()));
}

#[test]
fn items_read_as_the_page_says_and_saturate() {
    let packet = golden_packet();
    let xtrp = packet.xtrp[2];
    assert_eq!((xtrp.wedge(), xtrp.pixel(), xtrp.pt_code()), (287, 3, 16));
    assert!(xtrp.is_negative() && !xtrp.is_isolated());
    let svt = packet.svt[1];
    assert_eq!((svt.phi(), svt.z(), svt.d()), (8191, 32, 511));
    assert_eq!(
        (svt.c_magnitude(), svt.chi2(), svt.number()),
        (255, 2047, 1)
    );
    assert!(
        packet.svt[2].is_negative(),
        "the charge of an infinite pT survives"
    );
    assert_eq!((packet.svt[2].c_magnitude(), packet.svt[2].d()), (0, -511));
    let cluster = packet.clusters[0];
    assert_eq!((cluster.em(), cluster.had(), cluster.et()), (48, 33, 81));
    assert_eq!((cluster.towers(), cluster.seed()), (6, 41));
    assert_eq!(
        (cluster.eta(), cluster.phi(), cluster.isolation()),
        (-64, 63, 15)
    );
    assert_eq!(
        (packet.clusters[1].em(), packet.clusters[1].eta()),
        (4095, 63)
    );
    let stub = packet.muons[1];
    assert_eq!(
        (stub.phi(), stub.types(), stub.track()),
        (143, MuonStub::BMU, 255)
    );
    assert_eq!((stub.is_negative(), stub.pt_code()), (false, 127));
    let sums = Sums::new(70_000, 80_000, 8191);
    assert_eq!(
        (sums.sum_et(), sums.missing_et(), sums.missing_phi()),
        (65_535, 65_535, 8191)
    );
    // A received minus zero is zero.
    assert_eq!(SvtTrack([1 << 28, 0]).d(), 0);
}

#[test]
fn every_flipped_bit_of_the_golden_packet_is_noticed() {
    for_each_flipped_bit(&golden_words("trigger-packet-v1.hex"), |words, bit| {
        let result = TriggerPacketView::new_checked(words);
        assert!(result.is_err(), "word {} bit {}", bit / 32, bit % 32);
    });
}

/// The words with length and CRC made right, so that only the structure can be wrong.
fn sealed(mut words: Vec<u32>) -> Vec<u32> {
    let n = words.len();
    words[0] = 0xC2 << 24 | words[0] & 0x00FF_FFFF;
    words[n - 1] = (n as u32) << 16;
    words[n - 1] |= u32::from(livetime_wire::crc16::crc16(&words));
    words
}

#[test]
fn errors_say_what_is_wrong() {
    let golden = golden_words("trigger-packet-v1.hex");
    let error = |words: &[u32]| TriggerPacketView::new_checked(words).unwrap_err();
    let with = |index: usize, value: u32| {
        let mut words = golden.clone();
        words[index] = value;
        error(&sealed(words))
    };
    assert_eq!(error(&golden[..6]), PacketError::TooShort { words: 6 });
    assert!(matches!(
        error(&golden[..30]),
        PacketError::Length { words: 30, .. }
    ));
    assert!(matches!(
        error(&golden[1..]),
        PacketError::Magic { found: 0x12 }
    ));
    let blocks = golden[0] & !0xFF;
    assert_eq!(with(0, blocks | 4), PacketError::LeftOver { words: 3 });
    assert!(matches!(
        with(0, blocks | 6),
        PacketError::Block { index: 5, .. }
    ));
    assert_eq!(
        with(11, 1 << 24 | 4 << 16 | 4),
        PacketError::BlockType { index: 1, kind: 1 }
    );
    for kind in [0, 6, 255] {
        let error = with(6, kind << 24 | 4 << 16 | 4);
        assert_eq!(error, PacketError::BlockType { index: 0, kind });
    }
    for (items, words) in [(0, 0), (4, 5), (3, 4), (255, 255)] {
        let error = with(6, 1 << 24 | items << 16 | words);
        let (items, words) = (items as usize, words as usize);
        let index = 0;
        assert_eq!(
            error,
            PacketError::Block {
                index,
                items,
                words
            }
        );
    }
    let two_sums = with(30, 5 << 24 | 2 << 16 | 4);
    assert!(matches!(
        two_sums,
        PacketError::Block {
            index: 4,
            items: 2,
            words: 4
        }
    ));
}

#[test]
fn items_are_dropped_in_the_order_of_the_page() {
    let mut packet = golden_packet();
    // 34 words: the clusters go first, the one with the lowest Et before the others.
    assert_eq!(packet.truncate(33), 1);
    assert_eq!(packet.clusters, golden_packet().clusters[..2]);
    assert_eq!(packet.flags, FLAG_TRUNCATED);
    // Without clusters 27 words; then the XTRP tracks by pT code: 0, 4, 16, 31.
    assert_eq!(packet.truncate(25), 4);
    assert_eq!(packet.xtrp, [packet.xtrp[0], golden_packet().xtrp[2]]);
    // Then SVT tracks, the largest c first; c = 0 is infinite pT and goes last.
    packet.truncate(6 + 3 + 3 + 3 + 1);
    assert_eq!(packet.xtrp, []);
    assert_eq!(packet.svt, [golden_packet().svt[2]]);
    packet.truncate(11);
    assert_eq!(packet.muons, []);
    // The sums are never dropped, even if the packet then stays too long.
    assert_eq!((packet.truncate(3), packet.words()), (0, 10));
    assert!(packet.sums.is_some());
}

#[test]
fn of_equal_items_the_highest_index_is_dropped_first() {
    let mut packet = TriggerPacket {
        xtrp: (0..5)
            .map(|wedge| XtrpTrack::new(wedge, 0, 7, false, false))
            .collect(),
        ..TriggerPacket::default()
    };
    packet.truncate(packet.words() - 2);
    let wedges: Vec<u32> = packet.xtrp.iter().map(|track| track.wedge()).collect();
    assert_eq!(wedges, [0, 1, 2]);
}

#[test]
fn lists_are_cut_to_255_items_even_below_the_word_limit() {
    let mut packet = TriggerPacket {
        muons: (0..300)
            .map(|k| MuonStub::new(k % 144, 1, 255, false, k))
            .collect(),
        ..TriggerPacket::default()
    };
    assert_eq!(packet.truncate(usize::MAX), 45);
    assert_eq!(packet.muons.len(), 255);
    assert_eq!(packet.muons[0].pt_code(), 45, "the softest went");
    assert!(TriggerPacketView::new_checked(&emit(&packet)).is_ok());
}

fn any_packet() -> impl Strategy<Value = TriggerPacket> {
    let header = (
        0_u8..4,
        0_u8..64,
        any::<(u8, u32, u64, u8, u32)>(),
        0_u32..1 << 24,
    );
    let lists = (
        prop::collection::vec(any::<u32>(), 0..30),
        prop::collection::vec(any::<[u32; 2]>(), 0..30),
        prop::collection::vec(any::<[u32; 2]>(), 0..30),
        prop::collection::vec(any::<u32>(), 0..30),
        any::<Option<[u32; 2]>>(),
    );
    (header, lists).prop_map(|((l2_buffer, flags, h, run), lists)| TriggerPacket {
        l2_buffer,
        flags,
        bunch: h.0,
        trigger_low: h.1,
        l1_bits: h.2,
        run,
        lumi_section: h.3,
        time_stamp: h.4,
        xtrp: lists.0.into_iter().map(XtrpTrack).collect(),
        svt: lists.1.into_iter().map(SvtTrack).collect(),
        clusters: lists.2.into_iter().map(Cluster).collect(),
        muons: lists.3.into_iter().map(MuonStub).collect(),
        sums: lists.4.map(Sums),
    })
}

/// Uses everything that a view gives.
fn use_view(view: &TriggerPacketView) -> u64 {
    let packet = read_back(view);
    let items = packet
        .xtrp
        .iter()
        .map(|t| u64::from(t.wedge() + t.pixel() + t.pt_code()));
    let tracks = packet
        .svt
        .iter()
        .map(|t| i64::from(t.d()).unsigned_abs() + u64::from(t.chi2()));
    let clusters = packet
        .clusters
        .iter()
        .map(|c| u64::from(c.et()) + u64::from(c.seed()));
    let stubs = packet
        .muons
        .iter()
        .map(|s| u64::from(s.phi() + s.track() + s.pt_code()));
    items.chain(tracks).chain(clusters).chain(stubs).sum()
}

proptest! {
    #[test]
    fn what_is_emitted_is_read_back(packet in any_packet()) {
        let words = emit(&packet);
        let view = TriggerPacketView::new_checked(&words).unwrap();
        prop_assert_eq!(read_back(&view), packet);
        prop_assert_eq!(view.words(), &words[..]);
    }

    #[test]
    fn truncated_packets_fit_and_lose_nothing_that_fits(packet in any_packet(), max in 10_usize..200) {
        let mut cut = packet.clone();
        let dropped = cut.truncate(max);
        prop_assert!(cut.words() <= max);
        let items = |p: &TriggerPacket| p.xtrp.len() + p.svt.len() + p.clusters.len() + p.muons.len();
        prop_assert_eq!(items(&packet), items(&cut) + dropped);
        prop_assert_eq!(dropped > 0, packet.words() > max);
        prop_assert_eq!(cut.flags & 1 == 1, dropped > 0 || packet.flags & 1 == 1);
        // The last item dropped was needed: with 1 + 2 words of it the packet would not fit.
        prop_assert!(dropped == 0 || cut.words() + 3 > max);
        prop_assert_eq!(cut.sums, packet.sums);
    }

    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(any::<u32>(), 0..60)) {
        prop_assert!(TriggerPacketView::new_checked(&words).is_err());
        if words.len() > HEADER_WORDS
            && let Ok(view) = TriggerPacketView::new_checked(&sealed(words))
        {
            prop_assert!(use_view(&view) < u64::MAX);
        }
    }

    /// A real packet with a few words changed and sealed again: the structure is attacked, not
    /// only the checksum.
    #[test]
    fn damaged_packets_are_read_or_refused(
        packet in any_packet(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 1..4),
        cut in 0_usize..4,
    ) {
        let mut words = emit(&packet);
        for (place, value) in changes {
            let index = place.index(words.len());
            // Mostly headers: keep the type, change the counts.
            words[index] = words[index] & 0xFF00_0000 | value & 0x00FF_FFFF;
        }
        words.truncate((words.len() - cut).max(HEADER_WORDS + 1));
        if let Ok(view) = TriggerPacketView::new_checked(&sealed(words)) {
            prop_assert!(use_view(&view) < u64::MAX);
        }
    }
}
