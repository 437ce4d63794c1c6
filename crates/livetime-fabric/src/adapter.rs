//! Network adapters as servers in a row: work per packet, transfer, and a receiver that may be slower.
//!
//! Packets pass from server to server with a bounded number of places between them, times are
//! integer picoseconds, and each start and end is worked out packet by packet. The measurements
//! they are fitted on are those of point-to-point runs; see `livetime study cms`.

use std::collections::VecDeque;

use crate::time::DurationPs;

/// A server: a fixed time and a time per byte for each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    /// Time per packet.
    pub per_packet: DurationPs,
    /// Time per byte, in thousandths of a picosecond.
    pub per_byte_fs: u64,
}

impl Server {
    /// Work per packet alone.
    pub const fn work(per_packet: DurationPs) -> Self {
        Self {
            per_packet,
            per_byte_fs: 0,
        }
    }

    /// A transfer at so many megabytes per second after an offset.
    pub fn transfer(offset: DurationPs, mb_per_s: f64) -> Self {
        Self {
            per_packet: offset,
            per_byte_fs: (1e9 / mb_per_s) as u64,
        }
    }

    /// Time for a packet of `bytes`.
    pub fn time(&self, bytes: u32) -> DurationPs {
        self.per_packet + DurationPs(u64::from(bytes) * self.per_byte_fs / 1_000)
    }
}

/// What a row of servers did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowOutcome {
    /// Mean time per packet delivered, picoseconds.
    pub per_packet_ps: f64,
    /// Packets lost between two servers.
    pub lost: u64,
    /// Packets sent.
    pub sent: u64,
}

impl RowOutcome {
    /// Throughput with packets of `bytes`, megabytes per second.
    pub fn throughput_mb_s(&self, bytes: u32) -> f64 {
        f64::from(bytes) / self.per_packet_ps * 1e6
    }

    /// Share of the packets that were lost.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / self.sent.max(1) as f64
    }
}

/// Sends `packets` packets of `bytes` through the servers of a sender, one after the other with one
/// packet between two of them, and into a receiver with `places` packets of room.
///
/// With flow control the sender waits for room; without, what finds none is lost.
pub fn run(
    sender: &[Server],
    receiver: Server,
    places: usize,
    flow_control: bool,
    bytes: u32,
    packets: u64,
) -> RowOutcome {
    // When each server of the sender is done with its last packet.
    let mut done = vec![0_u64; sender.len()];
    let mut receiver_done = VecDeque::with_capacity(places);
    let mut last_out = 0;
    let mut lost = 0;
    for _ in 0..packets {
        let mut ready = 0;
        for stage in 0..sender.len() {
            // A packet can be handed on when the next server is done with the one before it.
            let start = done[stage].max(ready);
            let end = start + sender[stage].time(bytes).0;
            let next = done.get(stage + 1).copied().unwrap_or(0);
            ready = end.max(next);
            done[stage] = ready;
        }
        while receiver_done.front().is_some_and(|out| *out <= ready) {
            receiver_done.pop_front();
        }
        if receiver_done.len() == places {
            if !flow_control {
                lost += 1;
                continue;
            }
            if let Some(out) = receiver_done.pop_front() {
                ready = out;
                if let Some(last) = done.last_mut() {
                    *last = out;
                }
            }
        }
        let start = last_out.max(ready);
        last_out = start + receiver.time(bytes).0;
        receiver_done.push_back(last_out);
    }
    let delivered = packets - lost;
    RowOutcome {
        per_packet_ps: last_out as f64 / delivered.max(1) as f64,
        lost,
        sent: packets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_server_sets_the_pace() {
        let work = Server::work(DurationPs::from_ns(2_700));
        let link = Server::transfer(DurationPs::from_ns(500), 149.0);
        let fast = Server::work(DurationPs::from_ns(100));
        let time = |bytes| run(&[work, link], fast, 4, true, bytes, 20_000).per_packet_ps / 1e6;
        assert!((time(64) - 2.7).abs() < 0.01);
        assert!((time(4096) - (0.5 + 4096.0 / 149.0)).abs() < 0.05);
    }

    #[test]
    fn a_slow_receiver_loses_only_without_flow_control() {
        let link = Server::transfer(DurationPs::ZERO, 100.0);
        let receiver = Server::transfer(DurationPs::ZERO, 80.0);
        let without = run(&[link], receiver, 16, false, 1_000, 50_000);
        assert!((without.loss() - 0.2).abs() < 0.01, "{without:?}");
        let with = run(&[link], receiver, 16, true, 1_000, 50_000);
        assert_eq!(with.lost, 0);
        assert!((with.throughput_mb_s(1_000) / 80.0 - 1.0).abs() < 0.01);
    }
}
