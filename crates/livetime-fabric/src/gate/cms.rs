//! Gate V7: the rows of the CMS event builder studies (Lyon, 2000) that a model can reproduce.
//!
//! Fitted parameters, each on a row of one channel or point to point unless said otherwise: offset,
//! speed and plateau of the adapters; the source gap of 7.4 % (149 of 160 MB/s); the message time
//! of 12 us and the block overhead of 3.04 us, fitted on event building rows; the times per
//! fragment and per frame of Gigabit Ethernet, likewise; the rates of the two 33 MHz buses, fitted on
//! the throughput and the loss of that row. Everything else is a prediction.

use crate::adapter::{self, Server};
use crate::analytic::building::{port_bits_per_s, two_step_share};
use crate::analytic::crossbar::fifo_inputs_limit;
use crate::analytic::transfer::ethernet_share;
use crate::barrel_builder::{Assignment, BarrelBuilder};
use crate::cell::{BufferedDelta, FifoCrossbar, Refill};
use crate::network::topology::Wiring;
use crate::network::{
    Arbiter, BufferPlace, Buffering, FlowControl, Forwarding, Load, Pattern, Queueing, SizeLaw,
    Topology, Traffic, buffered, wormhole,
};
use crate::time::DurationPs;

use super::{Extent, GateJob, GateRow};

const GATE: &str = "V7";

pub(super) fn add_jobs(extent: Extent, jobs: &mut Vec<GateJob>) {
    let mut add = |run: fn(Extent) -> Vec<GateRow>| {
        jobs.push(GateJob::new(GATE, move || run(extent)));
    };
    add(arithmetic);
    add(head_of_line);
    add(large_networks);
    add(adapters);
    add(gigabit_adapters);
    add(barrel_shifter);
    add(barrel_scaling);
    add(slow_builder);
    add(gigabit);
    add(gigabit_switch);
    add(onset_of_loss);
    add(virtual_lanes);
}

fn row(check: impl Into<String>, value: f64, reference: f64, tolerance: f64) -> GateRow {
    GateRow::near(GATE, check.into(), value, reference, tolerance)
}

/// A row whose tolerance is a share of the reference.
fn within(check: impl Into<String>, value: f64, reference: f64, share: f64) -> GateRow {
    row(check, value, reference, share * reference)
}

fn arithmetic(_extent: Extent) -> Vec<GateRow> {
    let share = two_step_share(0.25, 0.1);
    vec![
        within(
            "design: 2 KiB at 100 kHz per port, Gb/s",
            port_bits_per_s(2048.0, 1e5) / 1e9,
            1.6384,
            1e-9,
        ),
        within(
            "design: 512 ports of 2 Gb/s, Tb/s",
            512.0 * 2e9 / 1e12,
            1.024,
            1e-9,
        ),
        within("two-step building: share of the data", share, 0.325, 0.01),
        within("two-step building: factor saved", 1.0 / share, 3.08, 0.01),
    ]
}

fn saturated(topology: &Topology, gap: f64, packets: u64) -> crate::network::NetworkOutcome {
    let times = packets / u64::from(topology.sources());
    let traffic = Traffic::new(Pattern::Uniform);
    let load = Load::saturated(traffic, SizeLaw::Fixed(65_536), times);
    let packet = DurationPs::for_bits(65_536 * 8, load.link_bits_per_s);
    let source_gap = DurationPs((packet.0 as f64 * gap) as u64);
    wormhole::run(topology, &Load { source_gap, ..load })
}

/// Random traffic through one crossbar and through the demonstrator's network.
fn head_of_line(extent: Extent) -> Vec<GateRow> {
    let packets = extent.pick(400_000, 4_000_000);
    let four = Topology::crossbar(4).expect("in range");
    let sixteen = Topology::delta(4, 2, &Wiring::Omega).expect("in range");
    let plain = |topology: &Topology| saturated(topology, 0.0, packets).efficiency_link.mean;
    // Point to point is 149 of 160 MB/s: the gap of a source, fixed beforehand.
    let gap = 160.0 / 149.0 - 1.0;
    let of_p2p = |topology: &Topology| saturated(topology, gap, packets).efficiency_p2p;
    let slots = extent.pick(4_000, 20_000);
    let wide = FifoCrossbar::new(256, Arbiter::Random).throughput(slots, 1);
    vec![
        row(
            "random traffic, 256 x 256 against the limit of 59 %",
            wide,
            fifo_inputs_limit(),
            0.005,
        ),
        row("random 4x4, expected in the talk", plain(&four), 0.66, 0.01),
        row(
            "random 16x16, in brackets in the talk",
            plain(&sixteen),
            0.48,
            0.01,
        ),
        row(
            "random 4x4, measured, of point to point",
            of_p2p(&four),
            0.69,
            0.015,
        ),
        row(
            "random 16x16, measured, of point to point",
            of_p2p(&sixteen),
            0.51,
            0.015,
        ),
    ]
}

fn large_networks(extent: Extent) -> Vec<GateRow> {
    let delta = Topology::delta(8, 3, &Wiring::Omega).expect("in range");
    let random = saturated(&delta, 0.0, extent.pick(600_000, 3_000_000));
    let cycles = extent.pick(1_200, 8_000);
    let buffered = BufferedDelta::new(8, 3, 64, Refill::SameCycle).throughput(2_000, cycles, 1);
    vec![
        row(
            "512 ports, delta, random traffic",
            random.efficiency_link.mean,
            0.35,
            0.01,
        ),
        row(
            "512 ports, FIFOs of 64 between stages, ultimate 60 %",
            buffered,
            0.60,
            0.02,
        ),
    ]
}

/// Adapters point to point: work per packet beside the transfer.
fn adapters(extent: Extent) -> Vec<GateRow> {
    let packets = extent.pick(5_000, 50_000);
    let time = |plateau: u64, offset: u64, speed: f64, bytes: u32| {
        let work = Server::work(DurationPs::from_ns(plateau));
        let link = Server::transfer(DurationPs::from_ns(offset), speed);
        let sink = Server::work(DurationPs::ZERO);
        adapter::run(&[work, link], sink, 2, true, bytes, packets)
    };
    let myrinet = |bytes| time(2_700, 500, 149.0, bytes);
    let old = |bytes| time(2_700, 610, 164.0, bytes);
    let new = |bytes| time(1_400, 330, 263.0, bytes);
    let slope = |run: &dyn Fn(u32) -> adapter::RowOutcome| {
        12_288.0 / (run(16_384).per_packet_ps - run(4_096).per_packet_ps) * 1e6
    };
    vec![
        within("Myrinet p2p, slope in MB/s", slope(&myrinet), 149.0, 0.02),
        within(
            "Myrinet p2p, share of the 160 MB/s link",
            slope(&myrinet) / 160.0,
            0.93,
            0.02,
        ),
        within(
            "Myrinet p2p, plateau in us",
            myrinet(46).per_packet_ps / 1e6,
            2.7,
            0.05,
        ),
        within(
            "Myrinet 2000, older adapter, slope in MB/s",
            slope(&old),
            164.0,
            0.02,
        ),
        within("Myrinet 2000, slope in MB/s", slope(&new), 263.0, 0.02),
        within(
            "Myrinet 2000, plateau in us",
            new(46).per_packet_ps / 1e6,
            1.4,
            0.05,
        ),
    ]
}

/// Gigabit adapters point to point, behind a narrow and a wide bus.
fn gigabit_adapters(extent: Extent) -> Vec<GateRow> {
    let packets = extent.pick(5_000, 50_000);
    let mut rows = Vec::new();
    // 33 MHz buses: the receiving side is slower by what the sender loses without flow control.
    let link = Server::transfer(DurationPs::ZERO, 125.0 * ethernet_share());
    let slow_bus = Server::transfer(DurationPs::ZERO, 90.0);
    let sender = Server::transfer(DurationPs::ZERO, 107.0);
    let run = |with| adapter::run(&[sender, link], slow_bus, 32, with, 1_514, packets);
    rows.push(within(
        "GbE p2p, 32 bit 33 MHz, MB/s",
        run(true).throughput_mb_s(1_514),
        90.0,
        0.05,
    ));
    rows.push(within(
        "GbE p2p, loss without flow control",
        run(false).loss(),
        0.16,
        0.05,
    ));
    rows.push(GateRow::equal(
        GATE,
        "GbE p2p, loss with credits".to_owned(),
        run(true).loss(),
        0.0,
    ));
    let wide_bus = Server::transfer(DurationPs::ZERO, 400.0);
    let fast = adapter::run(&[wide_bus, link], wide_bus, 32, true, 1_514, packets);
    rows.push(within(
        "GbE p2p, 64 bit 66 MHz, MB/s",
        fast.throughput_mb_s(1_514),
        123.0,
        0.02,
    ));
    rows
}

fn barrel(nodes: u32, bytes: u32, extent: Extent) -> crate::barrel_builder::BarrelOutcome {
    let builder = BarrelBuilder::demonstrator(nodes, SizeLaw::Fixed(bytes));
    builder.run(extent.pick(3_000, 20_000))
}

fn barrel_shifter(extent: Extent) -> Vec<GateRow> {
    let nominal = barrel(16, 2048, extent);
    let small = barrel(16, 256, extent);
    let large = barrel(16, 8192, extent);
    let per_fragment = |bytes: f64, throughput: f64| bytes / throughput * 1e6;
    let halved = BarrelBuilder {
        requests_per_message: 2,
        ..BarrelBuilder::demonstrator(16, SizeLaw::Fixed(256))
    };
    let halved = halved.run(extent.pick(3_000, 20_000));
    let plateau = per_fragment(256.0, small.throughput);
    // 10 minutes are 2e7 slots of 4 KiB from each of 16 units.
    let ten_minutes = 600.0 / (nominal.slot.0 as f64 * 1e-12);
    let moved = nominal.throughput * 16.0 * 600.0 / 1e12;
    vec![
        within(
            "EVB 16x16, barrel shifter, MB/s per node",
            nominal.throughput / 1e6,
            143.0,
            0.02,
        ),
        within(
            "the same with fragments of two blocks",
            large.throughput / 1e6,
            143.0,
            0.02,
        ),
        within(
            "EVB 16x16 at 2 KiB, kHz",
            nominal.event_rate_hz / 1e3,
            70.0,
            0.02,
        ),
        within("EVB 16x16, plateau in us", plateau, 3.0, 0.05),
        within(
            "plateau with half as many requests in a message, ratio",
            per_fragment(256.0, halved.throughput) / plateau,
            2.0,
            0.05,
        ),
        within(
            "barrel shifter, slot in us",
            nominal.slot.0 as f64 / 1e6,
            30.0,
            0.05,
        ),
        within("slots in 10 minutes", ten_minutes, 2e7, 0.05),
        within(
            "capacity of the blocks of 10 minutes, TB",
            moved,
            1.31,
            0.30,
        ),
    ]
}

fn barrel_scaling(extent: Extent) -> Vec<GateRow> {
    let all = [4, 8, 16].map(|nodes| barrel(nodes, 2048, extent).throughput);
    let most = all.iter().copied().fold(f64::MIN, f64::max);
    let least = all.iter().copied().fold(f64::MAX, f64::min);
    vec![row(
        "barrel shifter 4, 8 and 16 nodes, most over least",
        most / least,
        1.0,
        0.02,
    )]
}

fn slow_builder(extent: Extent) -> Vec<GateRow> {
    let run = |assignment, slow_share| {
        let sizes = SizeLaw::LogNormal {
            mean: 2048.0,
            rms: 1024.0,
        };
        let builder = BarrelBuilder {
            assignment,
            slow_share,
            credits: 64,
            ..BarrelBuilder::demonstrator(16, sizes)
        };
        builder.run(extent.pick(30_000, 100_000))
    };
    let ratio = |assignment| run(assignment, 0.5).throughput / run(assignment, 1.0).throughput;
    vec![
        GateRow::at_least(
            GATE,
            "one builder of 16 slow by 50 %, on demand".to_owned(),
            ratio(Assignment::OnDemand),
            0.95,
        ),
        row(
            "one builder of 16 slow by 50 %, in turn",
            ratio(Assignment::InTurn),
            0.50,
            0.02,
        ),
    ]
}

/// Fifteen by fifteen over one switch with queues at its outputs, event after event.
fn gigabit_rate(bytes: u32, extent: Extent) -> f64 {
    let topology = Topology::crossbar(15).expect("in range");
    let frames = u64::from(bytes.div_ceil(1460));
    // 2.0 us per fragment and 0.4 us per frame, as a pause of the source.
    let source_gap = DurationPs::from_ns(2_000 + 400 * frames);
    let traffic = Traffic::new(Pattern::EventsInOrder).with_window(60);
    let load = Load {
        source_gap,
        ..Load::saturated(traffic, SizeLaw::Fixed(bytes), extent.pick(2_000, 20_000))
    };
    let switch = gigabit_buffers(1 << 20, FlowControl::Credits, Queueing::Output);
    buffered::run(&topology, &load, &switch).packets_per_source_hz
}

const fn gigabit_buffers(bytes: u64, flow: FlowControl, queueing: Queueing) -> Buffering {
    Buffering {
        forwarding: Forwarding::StoreAndForward,
        queueing,
        place: match queueing {
            Queueing::Output => BufferPlace::Output,
            _ => BufferPlace::Input,
        },
        bytes,
        lanes: 1,
        flow,
    }
}

fn gigabit(extent: Extent) -> Vec<GateRow> {
    let nominal = gigabit_rate(2048, extent);
    let best = 4000.0 * gigabit_rate(4000, extent) / 1e6;
    // A tooth is where one byte more costs a whole frame.
    let teeth: Vec<f64> = [1459_u32, 1460, 2919, 2920]
        .into_iter()
        .map(|bytes| 1e6 / gigabit_rate(bytes + 1, extent) - 1e6 / gigabit_rate(bytes, extent))
        .collect();
    let is_exact = teeth[0] < 0.1 && teeth[1] > 0.3 && teeth[2] < 0.1 && teeth[3] > 0.3;
    vec![
        within("GbE EVB 15x15 at 2 KiB, kHz", nominal / 1e3, 52.0, 0.03),
        within("GbE EVB 15x15 at 4000 B, MB/s", best, 116.0, 0.03),
        GateRow::equal(
            GATE,
            "GbE: teeth at multiples of 1460 B and nowhere else".to_owned(),
            f64::from(u8::from(is_exact)),
            1.0,
        ),
    ]
}

/// Back-pressure costs throughput in event building; credits of the application avoid loss.
fn gigabit_switch(extent: Extent) -> Vec<GateRow> {
    let topology = Topology::chassis();
    let run = |window, buffer, flow, queueing| {
        let traffic = Traffic::new(Pattern::EventsRandom).with_window(window);
        let times = extent.pick(1_500, 8_000);
        let load = Load::saturated(traffic, SizeLaw::Fixed(2048), times);
        buffered::run(&topology, &load, &gigabit_buffers(buffer, flow, queueing))
    };
    let open = run(256, 64 << 20, FlowControl::Credits, Queueing::Output);
    let pressed = run(256, 16 << 10, FlowControl::Credits, Queueing::InputFifo);
    let cost = open.efficiency_link.mean - pressed.efficiency_link.mean;
    // All fragments of the window can be in the buffer of one output.
    let lost = |buffer_packets| lost_to_one_output(15, 4, buffer_packets, extent) as f64;
    vec![
        GateRow::at_least(
            GATE,
            "GbE switch: efficiency lost to back-pressure".to_owned(),
            cost,
            0.05,
        ),
        GateRow::equal(
            GATE,
            "lost, buffer = sources x window x fragment".to_owned(),
            lost(60),
            0.0,
        ),
        GateRow::at_least(
            GATE,
            "lost with half that buffer, packets".to_owned(),
            lost(30),
            1.0,
        ),
    ]
}

/// Where credits are the only flow control, nothing is lost from the buffer on that holds what all
/// sources may have on its way, and with room for one packet less something is.
fn onset_of_loss(extent: Extent) -> Vec<GateRow> {
    let cases = [(2, 2), (4, 1), (4, 3), (8, 2), (15, 1)];
    let rows = cases.iter().map(|(sources, window)| {
        let rule = u64::from(sources * window);
        let loses = |buffer: &u64| lost_to_one_output(*sources, *window, *buffer, extent) > 0;
        let largest_lossy = (1..=2 * rule).rev().find(loses).unwrap_or(0);
        GateRow::equal(
            GATE,
            format!("smallest buffer without loss, {sources} sources x {window} packets"),
            (largest_lossy + 1) as f64,
            rule as f64,
        )
    });
    rows.collect()
}

/// Packets lost where all sources send to one output without flow control, each with so many on its
/// way, and the output has a buffer for so many.
fn lost_to_one_output(sources: u32, window: u32, buffer_packets: u64, extent: Extent) -> u64 {
    let traffic = Traffic::new(Pattern::Incast(0)).with_window(window);
    let load = Load::saturated(traffic, SizeLaw::Fixed(2048), extent.pick(1_000, 4_000));
    let switch = gigabit_buffers(buffer_packets * 2048, FlowControl::None, Queueing::Output);
    let crossbar = Topology::crossbar(sources).expect("in range");
    buffered::run(&crossbar, &load, &switch).packets_lost
}

/// More virtual lanes raise the efficiency of a network with small buffers.
fn virtual_lanes(extent: Extent) -> Vec<GateRow> {
    let cycles = extent.pick(600, 4_000);
    let all = [1, 2, 4, 8].map(|lanes| {
        let network = BufferedDelta {
            lanes,
            ..BufferedDelta::new(8, 3, 2, Refill::SameCycle)
        };
        network.throughput(500, cycles, 1)
    });
    let least_gain = all.windows(2).map(|pair| pair[1] - pair[0]);
    let least_gain = least_gain.fold(f64::MAX, f64::min);
    vec![GateRow::at_least(
        GATE,
        "512 ports, virtual lanes 1, 2, 4, 8: least gain".to_owned(),
        least_gain,
        0.02,
    )]
}
