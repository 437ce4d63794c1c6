//! Inputs merged into packets, packets shared by several decision nodes, replies out of order.

use livetime_trigger::{
    LevelTwo, LevelTwoNode, Menu, MenuConfig, MergerConfig, Offer, PacketMerger, ReplyOutcome,
    SupervisorConfig, TriggerSupervisor, node_of,
};
use livetime_wire::decision::mix64;
use livetime_wire::trigger_packet::{
    Cluster, MuonStub, Sums, SvtTrack, TriggerPacket, TriggerPacketView, XtrpTrack,
};
use livetime_wire::{L2Reply, RunNs, RunNumber};
use proptest::collection::vec;
use proptest::prelude::*;

const NODES: usize = 3;
const RUN: RunNumber = RunNumber(1);
/// Most words of a part and of a packet in the property, which some packets exceed.
const LIMIT: usize = 250;

fn words(packet: &TriggerPacket) -> Vec<u32> {
    let mut words = Vec::new();
    packet.emit(&mut words);
    words
}

/// A packet that several paths of the default menu look at.
fn packet(trigger_low: u32, l2_buffer: u8) -> TriggerPacket {
    let mut state = mix64(trigger_low.into());
    let mut below = |limit: u32| {
        state = mix64(state);
        ((state >> 32) % u64::from(limit)) as u32
    };
    let svt = |_| {
        let d = below(100).cast_signed() - 50;
        SvtTrack::new(below(8192), 32, d, below(120), below(2) == 0, below(400))
    };
    let svt: Vec<_> = (0..4).map(svt).collect();
    let muon = |_| MuonStub::new(below(144), below(16), 255, below(2) == 0, below(40));
    TriggerPacket {
        trigger_low,
        l2_buffer,
        run: RUN.0,
        l1_bits: 0b1111,
        muons: (0..2).map(muon).collect(),
        svt,
        sums: Some(Sums::new(100, 50, 0)),
        ..TriggerPacket::default()
    }
}

/// The parts that two boards send: tracks, and everything else.
fn parts(whole: &TriggerPacket) -> [TriggerPacket; 2] {
    let tracks = TriggerPacket {
        clusters: Vec::new(),
        muons: Vec::new(),
        sums: None,
        ..whole.clone()
    };
    let rest = TriggerPacket {
        xtrp: Vec::new(),
        svt: Vec::new(),
        ..whole.clone()
    };
    [tracks, rest]
}

fn nodes(menu: &Menu) -> Vec<LevelTwoNode> {
    let node = || LevelTwoNode::new(LevelTwo::new(menu), RUN);
    (0..NODES).map(|_| node()).collect()
}

#[test]
fn three_nodes_share_merged_packets_and_replies_come_in_any_order() {
    let menu = Menu::new_checked(MenuConfig::default(), "trigger").unwrap();
    let (mut nodes, mut reference) = (nodes(&menu), nodes(&menu));
    let mut merger = PacketMerger::new_checked(MergerConfig::default(), "merger").unwrap();
    let mut supervisor = TriggerSupervisor::new(SupervisorConfig::default(), RunNs(0));
    let (mut merged, mut replies) = (Vec::new(), Vec::<L2Reply>::new());
    let (mut accepted, mut reordered, mut now) = (0, 0, RunNs(0));
    for round in 0..500u64 {
        // Four triggers fill the Level-2 buffers; their parts come interleaved.
        let mut offered = Vec::new();
        while let Offer::Accepted { trigger, l2_buffer } = supervisor.offer(now, false) {
            offered.push(packet(trigger.low(), l2_buffer));
        }
        assert_eq!(offered.len(), 4);
        for input in [0, 1] {
            let input = (input + round as usize) % 2;
            for whole in &offered {
                let part = words(&parts(whole)[input]);
                merger.handle_part(now, input, &part).unwrap();
            }
        }
        for whole in &offered {
            assert!(merger.poll_output(&mut merged));
            assert_eq!(merged, words(whole), "as if one board had sent it");
            let node = node_of(whole.trigger_low, NODES);
            let reply = nodes[node].handle_packet(&merged).unwrap().reply;
            let expected = reference[node].handle_packet(&words(whole)).unwrap().reply;
            assert_eq!(reply, expected);
            accepted += u64::from(reply.mask.is_accept());
            replies.push(reply);
        }
        // The replies of different nodes overtake each other.
        replies.sort_by_key(|reply| mix64(u64::from(reply.trigger_low) ^ round));
        reordered += u64::from(!replies.is_sorted_by_key(|reply| reply.trigger_low));
        for reply in replies.drain(..) {
            now = RunNs(now.0 + 100);
            let outcome = supervisor.handle_reply(now, &reply);
            assert!(matches!(outcome, ReplyOutcome::Decided(_)), "{outcome:?}");
            while supervisor.poll_output().is_some() {}
        }
    }
    assert!(reordered > 300, "{reordered} of 500 rounds");
    let counters = supervisor.counters();
    assert_eq!(counters.triggers, 2000);
    assert_eq!(counters.l2_accepted, accepted);
    assert_eq!(counters.l2_accepted + counters.l2_rejected, 2000);
    let share: Vec<u64> = nodes.iter().map(|node| node.counters().packets).collect();
    assert!(
        share.iter().all(|packets| (666..=667).contains(packets)),
        "{share:?}"
    );
}

fn any_packet() -> impl Strategy<Value = TriggerPacket> {
    (
        any::<u64>(),
        vec(any::<u32>(), 0..60),
        vec(any::<[u32; 2]>(), 0..60),
        vec(any::<[u32; 2]>(), 0..60),
        vec(any::<u32>(), 0..60),
        any::<[u32; 2]>(),
    )
        .prop_map(
            |(l1_bits, xtrp, svt, clusters, muons, sums)| TriggerPacket {
                l1_bits,
                xtrp: xtrp.into_iter().map(XtrpTrack).collect(),
                svt: svt.into_iter().map(SvtTrack).collect(),
                clusters: clusters.into_iter().map(Cluster).collect(),
                muons: muons.into_iter().map(MuonStub).collect(),
                sums: Some(Sums(sums)),
                ..TriggerPacket::default()
            },
        )
}

/// Deals items to inputs in runs, as boards that each see a part of the detector.
fn dealt<T: Copy>(items: &[T], cuts: [usize; 2], input: usize) -> Vec<T> {
    let len = items.len();
    let [a, b] = cuts.map(|cut| cut % (len + 1));
    let bounds = [0, a.min(b), a.max(b), len];
    items[bounds[input]..bounds[input + 1]].to_vec()
}

proptest! {
    #[test]
    fn any_division_over_three_inputs_gives_the_undivided_packet(
        packets in vec(any_packet(), 1..=4),
        cuts in any::<[usize; 2]>(),
        order in any::<u64>(),
    ) {
        let config = MergerConfig { inputs: 3, words_max: LIMIT, ..MergerConfig::default() };
        let mut merger = PacketMerger::new_checked(config, "merger").unwrap();
        let mut sent: Vec<(usize, usize)> =
            (0..packets.len()).flat_map(|packet| (0..3).map(move |input| (packet, input))).collect();
        sent.sort_by_key(|(packet, input)| mix64(order ^ (packet * 3 + input) as u64));
        for (index, input) in sent {
            let whole = &packets[index];
            let part = TriggerPacket {
                trigger_low: index as u32,
                xtrp: dealt(&whole.xtrp, cuts, input),
                svt: dealt(&whole.svt, cuts, input),
                clusters: dealt(&whole.clusters, cuts, input),
                muons: dealt(&whole.muons, cuts, input),
                sums: whole.sums.filter(|_| input == 1),
                ..whole.clone()
            };
            prop_assume!(part.words() <= LIMIT);
            prop_assert_eq!(merger.handle_part(RunNs(0), input, &words(&part)), Ok(()));
        }
        let (mut out, mut seen) = (Vec::new(), 0);
        while merger.poll_output(&mut out) {
            let index = TriggerPacketView::new_checked(&out).unwrap().trigger_low();
            let mut whole = TriggerPacket { trigger_low: index, ..packets[index as usize].clone() };
            whole.truncate(LIMIT);
            prop_assert_eq!(&out, &words(&whole));
            seen += 1;
        }
        prop_assert_eq!(seen, packets.len());
    }
}
