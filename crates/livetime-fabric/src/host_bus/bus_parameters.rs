//! The figures of the timed card models, each with its source.
//!
//! A figure is published, follows from a standard, or is fitted; a fitted one says on which row of
//! a paper, and only rows of one channel or of one direction are fitted on, but for the two that
//! say otherwise. What comes out for several channels and cards is then a prediction.

use crate::time::DurationPs;

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Printed in a paper or a specification.
    Published,
    /// Chosen so that a published row of one channel comes out.
    Fitted,
    /// Chosen so that a row of several channels or cards comes out; that row is no prediction.
    FittedOnSeveral,
    /// Ours, within what the text allows.
    Assumed,
}

/// A figure and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Field of [`BusParameters`].
    pub parameter: &'static str,
    /// Kind of source.
    pub origin: Origin,
    /// The source.
    pub text: &'static str,
}

/// Times of a host with its buses and of the links into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusParameters {
    /// A clock of the bus.
    pub bus_clock: DurationPs,
    /// Bytes per clock.
    pub bus_bytes: u64,
    /// Clocks of a burst into memory beside its data.
    pub burst_overhead_clocks: u64,
    /// Clocks of a burst out of memory beside its data.
    pub read_burst_overhead_clocks: u64,
    /// Longest burst, in bytes.
    pub burst_bytes: u64,
    /// Bus clocks of a register write by the host.
    pub register_write_clocks: u64,
    /// Bus clocks of a register read by the host, which waits for it.
    pub register_read_clocks: u64,
    /// A word on a link.
    pub link_word: DurationPs,
    /// A control word on a link.
    pub link_control_word: DurationPs,
    /// From the source's first word to the card.
    pub link_latency: DurationPs,
    /// Bursts that a channel of a card buffers before its link stops.
    pub channel_bursts: usize,
    /// Host time per fragment, single-cycle firmware, beside its waits for registers.
    pub cpu_single_cycle: DurationPs,
    /// Host time per fragment, DMA protocol.
    pub cpu_dma: DurationPs,
    /// From the condition to the driver's first access.
    pub interrupt: DurationPs,
    /// Fragments that make an interrupt, and completions that make a block.
    pub threshold: u32,
    /// What the memory takes from all segments together, in bytes per second.
    pub memory_rate: u64,
}

impl BusParameters {
    /// The host of the FILAR measurements: 64 bit at 66 MHz, bursts of 1 kB.
    pub const FILAR: Self = Self {
        bus_clock: DurationPs(15_152),
        bus_bytes: 8,
        burst_overhead_clocks: 22,
        read_burst_overhead_clocks: 60,
        burst_bytes: 1024,
        register_write_clocks: 8,
        register_read_clocks: 44,
        link_word: DurationPs(25_316),
        link_control_word: DurationPs(32_000),
        link_latency: DurationPs(400_000),
        channel_bursts: 4,
        cpu_single_cycle: DurationPs(150_000),
        cpu_dma: DurationPs(800_000),
        interrupt: DurationPs(2_000_000),
        threshold: 8,
        memory_rate: 1_100_000_000,
    };

    /// The host of the PULSAR measurements with its single-slot card: as above, bursts of 512 B.
    pub const PULSAR: Self = Self {
        burst_bytes: 512,
        ..Self::FILAR
    };

    /// The same host with a transmitter: its links run at 200 MB/s.
    pub const TRANSMITTER: Self = Self {
        link_word: DurationPs(20_000),
        ..Self::FILAR
    };

    /// Where each figure comes from.
    pub const SOURCES: [Source; 16] = [
        source(
            "bus_clock, bus_bytes",
            Origin::Published,
            "FILAR slides: 64 bit, 66 MHz; 528 MB/s",
        ),
        source(
            "burst_overhead_clocks",
            Origin::Fitted,
            "FILAR slides: about 450 MB/s on three channels; within what PCI 2.2 allows",
        ),
        source(
            "read_burst_overhead_clocks",
            Origin::FittedOnSeveral,
            "FILAR slides: transmitter saturated at 360 MB/s by two channels; reads slower",
        ),
        source(
            "burst_bytes (FILAR)",
            Origin::Published,
            "FILAR slides: bursts of up to 1 kB",
        ),
        source(
            "burst_bytes (PULSAR)",
            Origin::Fitted,
            "PULSAR note: 4.5 us for large blocks, 3.6 us for small ones",
        ),
        source(
            "register_write_clocks",
            Origin::Assumed,
            "PCI 2.2: arbitration, address, one data phase, turnaround of a posted write",
        ),
        source(
            "register_read_clocks",
            Origin::Fitted,
            "FILAR slides: the DMA firmware's +25 % at 1 kB; PCI 2.2 allows a retried read as long",
        ),
        source(
            "link_word",
            Origin::Fitted,
            "PULSAR note: 158 MB/s of the link's 160 for large blocks",
        ),
        source(
            "link_word (transmitter)",
            Origin::Fitted,
            "two channels carry 360 MB/s, so each more than 160: the chips' 2.5 Gb/s are 200",
        ),
        source(
            "link_control_word",
            Origin::Published,
            "HOLA data sheet: control words 125 MB/s",
        ),
        source(
            "link_latency",
            Origin::Assumed,
            "serialiser, some ten metres of fibre, deserialiser",
        ),
        source(
            "channel_bursts",
            Origin::Assumed,
            "enough for the arbitration of four channels",
        ),
        source(
            "cpu_single_cycle, cpu_dma",
            Origin::FittedOnSeveral,
            "FILAR slides: 100 kHz per channel sustained for less than 1 kB with 3 cards",
        ),
        source("interrupt", Origin::Assumed, "a driver of its time"),
        source("threshold", Origin::Assumed, "half of the FIFOs' depth"),
        source(
            "memory_rate",
            Origin::FittedOnSeveral,
            "FILAR slides: 1.1 GB/s with three cards; the chipset is said to be decisive",
        ),
    ];

    /// Bus time of a burst of `bytes` into memory.
    pub fn write_burst(&self, bytes: u64) -> DurationPs {
        self.clocks(self.burst_overhead_clocks + bytes.div_ceil(self.bus_bytes))
    }

    /// Bus time of a burst of `bytes` out of memory.
    pub fn read_burst(&self, bytes: u64) -> DurationPs {
        self.clocks(self.read_burst_overhead_clocks + bytes.div_ceil(self.bus_bytes))
    }

    /// Time that the memory needs for `bytes`.
    pub fn memory(&self, bytes: u64) -> DurationPs {
        DurationPs(bytes * 1_000_000_000_000 / self.memory_rate)
    }

    /// That many clocks of the bus.
    pub fn clocks(&self, clocks: u64) -> DurationPs {
        DurationPs(self.bus_clock.0 * clocks)
    }
}

const fn source(parameter: &'static str, origin: Origin, text: &'static str) -> Source {
    Source {
        parameter,
        origin,
        text,
    }
}
