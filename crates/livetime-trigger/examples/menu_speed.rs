//! Prints the time of checking a packet and of a decision, for packets of 34 and 126 words.
//!
//! A menu of 16 paths is run over 1024 different packets; the figures are the least and the median
//! of 200 passes over them, on whatever this machine does besides. Not measured: links, caches
//! that another load has emptied, and the tail.

use std::hint::black_box;
use std::time::Instant;

use livetime_trigger::{Cut, LevelTwo, Menu, MenuConfig, SingleMuonCut, TwoTrackCut};
use livetime_trigger::{EnergyMev, LengthUm};
use livetime_wire::decision::mix64;
use livetime_wire::trigger_packet::{
    Cluster, MuonStub, Sums, SvtTrack, TriggerPacket, TriggerPacketView, XtrpTrack,
};

const PACKETS: u64 = 1024;
const PASSES: usize = 200;

/// Numbers of XTRP tracks, SVT tracks, clusters and stubs, and the words that they make.
const SIZES: [([u64; 4], usize); 2] = [([4, 4, 3, 2], 34), ([20, 20, 22, 8], 126)];

fn main() {
    let menu = Menu::new_checked(menu_of_sixteen(), "trigger").expect("the menu has no problem");
    println!("16 paths, {PACKETS} packets, {PASSES} passes; ns per packet, least / median");
    for (items, words) in SIZES {
        let packets: Vec<Vec<u32>> = (0..PACKETS).map(|seed| packet(items, seed)).collect();
        assert!(packets.iter().all(|packet| packet.len() == words));
        let views: Vec<TriggerPacketView<'_>> = packets
            .iter()
            .map(|words| TriggerPacketView::new_checked(words).expect("just emitted"))
            .collect();
        let (check_min, check_median) = nanoseconds(|| {
            for words in &packets {
                black_box(TriggerPacketView::new_checked(black_box(words)).is_ok());
            }
        });
        let mut level_two = LevelTwo::new(&menu);
        let mut passed = 0;
        let (decide_min, decide_median) = nanoseconds(|| {
            for view in &views {
                let decided = level_two.decide(black_box(view));
                passed += u64::from(black_box(decided).before.is_accept());
            }
        });
        println!(
            "{words:>4} words: check {check_min:.0} / {check_median:.0}, decide {decide_min:.0} / \
             {decide_median:.0}, {:.0} % pass a path",
            100.0 * passed as f64 / (PACKETS as usize * PASSES) as f64
        );
    }
}

/// Least and median time of a pass, per packet.
fn nanoseconds(mut pass: impl FnMut()) -> (f64, f64) {
    let mut times: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            pass();
            start.elapsed().as_secs_f64() * 1e9 / PACKETS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[0], times[PASSES / 2])
}

/// The default menu and eight more paths of the same kinds with other thresholds.
fn menu_of_sixteen() -> MenuConfig {
    let mut config = MenuConfig::default();
    for index in 0..8 {
        let mut path = config.paths[index].clone();
        path.name.push_str("_TIGHT");
        path.bit += 64;
        path.cut = match path.cut {
            Cut::SingleMuon(cut) => Cut::SingleMuon(SingleMuonCut {
                pt_min: EnergyMev(20_000),
                ..cut
            }),
            Cut::TwoTrack(cut) => Cut::TwoTrack(TwoTrackCut {
                d_min: LengthUm(100),
                lxy_min: LengthUm(500),
                ..cut
            }),
            same => same,
        };
        config.paths.push(path);
    }
    config
}

/// A packet whose items spread over what the cuts look at; every Level-1 bit but the rare is set.
fn packet([xtrp, svt, clusters, muons]: [u64; 4], seed: u64) -> Vec<u32> {
    let mut state = mix64(seed);
    let mut below = |limit: u32| {
        state = mix64(state);
        ((state >> 32) % u64::from(limit)) as u32
    };
    let packet = TriggerPacket {
        l1_bits: 0b1111,
        xtrp: (0..xtrp)
            .map(|_| XtrpTrack::new(below(288), below(8), below(32), below(2) == 0, true))
            .collect(),
        svt: (0..svt)
            .map(|_| {
                let d = below(100).cast_signed() - 50;
                SvtTrack::new(below(8192), 32, d, below(120), below(2) == 0, below(400))
            })
            .collect(),
        clusters: (0..clusters)
            .map(|_| Cluster::new(below(200), below(200), 3, below(100), 0, below(64), 0))
            .collect(),
        muons: (0..muons)
            .map(|_| MuonStub::new(below(144), below(16), 255, below(2) == 0, below(40)))
            .collect(),
        sums: Some(Sums::new(below(4000), below(400), below(8192))),
        ..TriggerPacket::default()
    };
    let mut words = Vec::new();
    packet.emit(&mut words);
    words
}
