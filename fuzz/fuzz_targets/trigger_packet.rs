//! Trigger packets: no words panic, with the checksum as it comes and put right; what parses can
//! be walked and emitted again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::crc16::crc16;
use livetime_wire::trigger_packet::{TriggerPacket, TriggerPacketView};

fuzz_target!(|data: &[u8]| {
    let mut words = livetime_fuzz::words(data);
    walk(&words);
    let length = words.len() as u32;
    if let Some(last) = words.last_mut() {
        *last = length << 16;
        let crc = crc16(&words);
        if let Some(last) = words.last_mut() {
            *last |= u32::from(crc);
        }
        walk(&words);
    }
});

fn walk(words: &[u32]) {
    let Ok(view) = TriggerPacketView::new_checked(words) else {
        return;
    };
    let packet = TriggerPacket {
        l2_buffer: view.l2_buffer(),
        flags: view.flags(),
        bunch: view.bunch(),
        trigger_low: view.trigger_low(),
        l1_bits: view.l1_bits(),
        run: view.run(),
        lumi_section: (words[4] & 0xFF) as u8,
        time_stamp: view.time_stamp(),
        xtrp: view.xtrp().collect(),
        svt: view.svt().collect(),
        clusters: view.clusters().collect(),
        muons: view.muons().collect(),
        sums: view.sums(),
    };
    let mut out = Vec::new();
    packet.emit(&mut out);
    // Blocks may come in any order; the packet has the same length and parses to the same items.
    assert_eq!(out.len(), words.len());
    let again = TriggerPacketView::new_checked(&out).expect("an emitted packet is well formed");
    assert!(again.svt().eq(packet.svt.iter().copied()));
    assert!(again.clusters().eq(packet.clusters.iter().copied()));
    assert!(again.xtrp().eq(packet.xtrp.iter().copied()));
    assert!(again.muons().eq(packet.muons.iter().copied()));
    assert_eq!(again.sums(), packet.sums);

    let mut shorter = packet;
    shorter.truncate(words.len() / 2);
    shorter.emit(&mut out);
    TriggerPacketView::new_checked(&out).expect("a truncated packet is well formed");
}
