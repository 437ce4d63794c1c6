//! From an event to its trigger packet: what the front-end electronics of a trigger would send.
//!
//! `docs/formats/trigger-packet.md`, section 2, is the definition, and the code follows it line by
//! line: floating point up to the first rounding of each value, integers from there. The words are
//! laid out by [`livetime_wire::trigger_packet`].

use core::f64::consts::{PI, TAU};

use livetime_wire::decision::mix64;
use livetime_wire::object::ObjectKind;
use livetime_wire::trigger_packet::{
    ANGLE_LSB, Cluster, MuonStub, REFUSED_MAX, REFUSED_SHIFT, Sums, SvtTrack, TriggerPacket,
    XtrpTrack,
};
use livetime_wire::{RunNs, RunNumber, TriggerNumber};

use crate::source_event::{OBJECTS_MAX, SourceEvent, SourceObject};

/// pT in GeV times the magnitude of the half curvature c, in counts.
const PT_TIMES_C: f64 = 180.855;
/// Nanoseconds of a tick of the time stamp.
const TICK_NS: u64 = 25;
/// Every so many events the source sets the AUTO bit of Level 1.
const AUTO_EVERY: u64 = 1000;
/// One event in this many gets the random bit of Level 1.
const RANDOM_EVERY: u64 = 1024;
/// Thresholds of the calorimeter bits of Level 1, in counts of 0.125 GeV.
const L1_EM: u32 = 64;
const L1_JET: u32 = 80;
const L1_SUM_ET: u32 = 480;
const L1_MISSING_ET: u32 = 120;

/// What a packet says besides its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// Number that the supervisor gave.
    pub trigger: TriggerNumber,
    /// Level-2 buffer that the supervisor gave, 0..4.
    pub l2_buffer: u8,
    /// Bunch crossing; its low 8 bits are sent.
    pub bunch: u32,
    /// The run being taken; 24 bits are sent.
    pub run: RunNumber,
    /// Lumi section; its low 8 bits are sent.
    pub lumi_section: u32,
    /// When the trigger came; sent in ticks of 25 ns, which wrap after 107.4 s.
    pub triggered_at: RunNs,
    /// Index of the event in the source's sequence, from 0.
    pub index: u64,
}

/// What an encoder has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCounts {
    /// Packets.
    pub packets: u64,
    /// Their words, without the link's control words.
    pub words: u64,
    /// Packets that had to drop items to fit the limit.
    pub truncated: u64,
    /// Items dropped in all.
    pub items_dropped: u64,
}

/// Encodes events, reusing its storage.
#[derive(Debug, Clone)]
pub struct PacketEncoder {
    words_max: usize,
    /// sin and cos in 2^-15, by angle in steps of 2 pi / 8192.
    sine: Vec<i32>,
    cosine: Vec<i32>,
    packet: TriggerPacket,
    /// What one board sends of it.
    part: TriggerPacket,
    /// Level-1 accepts refused since the last packet.
    refused: u32,
    counts: PacketCounts,
}

impl PacketEncoder {
    /// An encoder of packets with at most `words_max` words
    /// ([`livetime_wire::trigger_packet::WORDS_MAX_DEFAULT`] is 510).
    pub fn new(words_max: usize) -> Self {
        let table = |function: fn(f64) -> f64| {
            let entry = |k: u32| (32_768.0 * function(TAU * f64::from(k) / 8192.0)).round() as i32;
            (0..ANGLE_LSB).map(entry).collect()
        };
        let roomy = || TriggerPacket {
            xtrp: Vec::with_capacity(OBJECTS_MAX),
            svt: Vec::with_capacity(OBJECTS_MAX),
            clusters: Vec::with_capacity(OBJECTS_MAX),
            muons: Vec::with_capacity(OBJECTS_MAX),
            ..TriggerPacket::default()
        };
        Self {
            words_max,
            sine: table(f64::sin),
            cosine: table(f64::cos),
            // Room for the items of the largest event, so that encoding allocates nothing.
            packet: roomy(),
            part: roomy(),
            refused: 0,
            counts: PacketCounts::default(),
        }
    }

    /// Notes a Level-1 accept that was refused; the next packet says how many there were.
    pub fn count_refused(&mut self) {
        self.refused = (self.refused + 1).min(REFUSED_MAX);
    }

    /// Encodes `event` over the contents of `out`; true if items had to be dropped.
    pub fn encode(
        &mut self,
        event: &SourceEvent,
        header: &PacketHeader,
        out: &mut Vec<u32>,
    ) -> bool {
        let dropped = self.prepare(event, header);
        self.packet.emit(out);
        dropped
    }

    /// Encodes `event`, to be sent in parts by [`PacketEncoder::emit_part`]; true if items had to be
    /// dropped.
    pub fn prepare(&mut self, event: &SourceEvent, header: &PacketHeader) -> bool {
        let packet = &mut self.packet;
        packet.clear_items();
        packet.flags = (core::mem::take(&mut self.refused) << REFUSED_SHIFT) as u8;
        packet.l2_buffer = header.l2_buffer;
        packet.bunch = (header.bunch & 0xFF) as u8;
        packet.trigger_low = header.trigger.low();
        packet.run = header.run.0;
        packet.lumi_section = (header.lumi_section & 0xFF) as u8;
        packet.time_stamp = ((header.triggered_at.0 / TICK_NS) & 0xFFFF_FFFF) as u32;
        for object in &event.objects {
            push_items(object, packet);
        }
        let sums = self.sums(&event.objects);
        let packet = &mut self.packet;
        packet.sums = Some(sums);
        packet.l1_bits = level_one_bits(packet, header.index);
        let dropped = packet.truncate(self.words_max);
        self.counts.packets += 1;
        self.counts.words += packet.words() as u64;
        self.counts.truncated += u64::from(dropped > 0);
        self.counts.items_dropped += dropped as u64;
        dropped > 0
    }

    /// Writes what board `input` of `inputs` sends of the packet prepared last over the contents of
    /// `out`: the blocks whose type, from 1, is in turn its own, behind the header of the trigger.
    pub fn emit_part(&mut self, input: usize, inputs: usize, out: &mut Vec<u32>) {
        let (whole, part) = (&self.packet, &mut self.part);
        let is_own = |block_type: usize| (block_type - 1) % inputs.max(1) == input;
        part.clear_items();
        part.flags = whole.flags;
        part.l2_buffer = whole.l2_buffer;
        part.bunch = whole.bunch;
        part.trigger_low = whole.trigger_low;
        part.l1_bits = whole.l1_bits;
        part.run = whole.run;
        part.lumi_section = whole.lumi_section;
        part.time_stamp = whole.time_stamp;
        if is_own(1) {
            part.xtrp.extend_from_slice(&whole.xtrp);
        }
        if is_own(2) {
            part.svt.extend_from_slice(&whole.svt);
        }
        if is_own(3) {
            part.clusters.extend_from_slice(&whole.clusters);
        }
        if is_own(4) {
            part.muons.extend_from_slice(&whole.muons);
        }
        part.sums = whole.sums.filter(|_| is_own(5));
        part.emit(out);
    }

    /// The packet encoded last.
    pub fn packet(&self) -> &TriggerPacket {
        &self.packet
    }

    /// What has been done so far.
    pub fn counts(&self) -> PacketCounts {
        self.counts
    }

    fn sums(&self, objects: &[SourceObject]) -> Sums {
        let sum_et = self
            .packet
            .clusters
            .iter()
            .map(|cluster| u64::from(cluster.et()))
            .sum();
        let (mut x, mut y) = (0_i64, 0_i64);
        for object in objects {
            let p = i64::from(count(f64::from(object.pt) * 8.0, 65_535));
            let angle = phi13(object) as usize;
            x += p * i64::from(self.cosine[angle]);
            y += p * i64::from(self.sine[angle]);
        }
        let (x_long, y_long) = (i128::from(x), i128::from(y));
        let square = (x_long * x_long + y_long * y_long).unsigned_abs();
        // Below 2^32 each, as in all but absurd events, the fast square root does.
        let root = u64::try_from(square).map_or_else(|_| square.isqrt() as u64, u64::isqrt);
        let phi = if x == 0 && y == 0 {
            0
        } else {
            angle_counts((-y as f64).atan2(-x as f64))
        };
        Sums::new(saturated(sum_et), saturated(root >> 15), phi)
    }
}

/// At most 65 535, as the sums are sent.
fn saturated(value: u64) -> u32 {
    value.min(65_535) as u32
}

/// Rounded to nearest, halves away from zero, and at most `max`; below zero and NaN it is 0.
fn count(value: f64, max: u32) -> u32 {
    // `as` saturates.
    (value.round() as u32).min(max)
}

/// An angle in rad in steps of 2 pi / 8192, 0..8192.
fn angle_counts(phi: f64) -> u32 {
    let steps = (phi * 8192.0 / (2.0 * PI)).round();
    // An infinite angle has no remainder but NaN, of which `as` makes 0.
    steps.rem_euclid(8192.0) as u32
}

fn phi13(object: &SourceObject) -> u32 {
    angle_counts(f64::from(object.phi))
}

/// pT in codes of 0.5 GeV, rounded down, at most `max`.
fn pt_code(object: &SourceObject, max: u32) -> u32 {
    ((f64::from(object.pt) * 2.0).floor() as u32).min(max)
}

fn push_items(object: &SourceObject, packet: &mut TriggerPacket) {
    let phi13 = phi13(object);
    let negative = object.charge < 0.0;
    if object.has_track() {
        let index = packet.xtrp.len() as u32;
        let fine = phi13 * 2304 / ANGLE_LSB;
        let isolated = object.iso < 1.0;
        packet.xtrp.push(XtrpTrack::new(
            fine / 8,
            fine % 8,
            pt_code(object, 31),
            negative,
            isolated,
        ));
        let d = (f64::from(object.dxy) * 1000.0).round() as i32;
        let c = count(PT_TIMES_C / f64::from(object.pt), 255);
        let chi2 = count(f64::from(object.chi2) * 16.0, 2047);
        let track = SvtTrack::new(phi13, 32, d, c, negative, chi2);
        packet.svt.push(track.with_number(index % 512));
        if object.kind == ObjectKind::Muon {
            packet.muons.push(MuonStub::new(
                phi13 * 144 / ANGLE_LSB,
                chambers(object.eta),
                index.min(255),
                negative,
                pt_code(object, 127),
            ));
        }
    }
    if let Some((em, had)) = energies(object) {
        let total = em + had;
        packet.clusters.push(Cluster::new(
            em,
            had,
            1 + (total / 16).min(254),
            total.div_ceil(2),
            (f64::from(object.eta) * 10.0).round() as i32,
            phi13 * 64 / ANGLE_LSB,
            if object.iso < 1.0 { 15 } else { 0 },
        ));
    }
}

/// The muon chambers at a pseudorapidity.
fn chambers(eta: f32) -> u32 {
    match f64::from(eta).abs() {
        eta if eta < 0.6 => MuonStub::CMU | MuonStub::CMP,
        eta if eta < 1.0 => MuonStub::CMX,
        _ => MuonStub::BMU,
    }
}

/// Electromagnetic and hadronic Et of the cluster that an object leaves, if it leaves one.
fn energies(object: &SourceObject) -> Option<(u32, u32)> {
    let counts = |gev: f32| count(f64::from(gev) * 8.0, 4095);
    match object.kind {
        ObjectKind::Electron | ObjectKind::Photon => Some((counts(object.pt), 0)),
        ObjectKind::Jet => {
            let total = counts(object.pt);
            let em = total * 3 / 5;
            Some((em, total - em))
        }
        // What lies around a muon, if it is enough for a cluster.
        ObjectKind::Muon if object.iso >= 0.5 => Some((counts(object.iso), 0)),
        ObjectKind::Muon | ObjectKind::Track => None,
    }
}

fn level_one_bits(packet: &TriggerPacket, index: u64) -> u64 {
    let tracks = packet.xtrp.iter().filter(|track| track.pt_code() >= 4);
    let stubs = |code| {
        packet
            .muons
            .iter()
            .filter(|stub| stub.pt_code() >= code)
            .count()
    };
    let clusters = |test: fn(&Cluster) -> bool| packet.clusters.iter().any(test);
    let sums = packet.sums.unwrap_or(Sums([0; 2]));
    [
        true,
        tracks.count() >= 2,
        stubs(8) >= 1,
        stubs(3) >= 2,
        index.is_multiple_of(AUTO_EVERY),
        clusters(|cluster| cluster.em() >= L1_EM),
        clusters(|cluster| cluster.et() >= L1_JET),
        sums.sum_et() >= L1_SUM_ET,
        sums.missing_et() >= L1_MISSING_ET,
        mix64(index).is_multiple_of(RANDOM_EVERY),
    ]
    .into_iter()
    .enumerate()
    .fold(0, |bits, (bit, set)| bits | u64::from(set) << bit)
}
