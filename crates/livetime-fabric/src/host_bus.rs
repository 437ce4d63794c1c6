//! Hosts of the link papers with time: buses, cards, links, and the driver's accesses.
//!
//! The card models are those of `livetime-readout`; added here is how long their accesses and
//! transfers take. [`receiver_throughput`] yields throughput against fragment length for cards, channels
//! and firmware, [`transmitter_throughput`] that of a transmitter, [`block_time()`] the time of one block
//! through a single-slot card, [`round_trips`] that of a packet there and its answer back. [`BusParameters`] has every figure and says where it comes from.

pub mod block_time;
pub mod bus_parameters;
mod pci_segment;
pub mod receiver_host;
pub mod round_trip;
pub mod transmitter_host;

pub use block_time::{BlockTiming, LineFit, block_time, line_fit};
pub use bus_parameters::{BusParameters, Origin, Source};
pub use receiver_host::{ReceiverHostConfig, Throughput, receiver_throughput};
pub use round_trip::{FarEnd, Interrupts, RoundTripConfig, round_trips};
pub use transmitter_host::transmitter_throughput;
