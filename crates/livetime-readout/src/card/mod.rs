//! Models of the cards between links and hosts, register by register.
//!
//! What a driver writes and reads is what it would on the cards' buses: offsets, bits, FIFO depths,
//! saturation. The models know no time; how long an access or a transfer takes is the business of
//! the bus models in `livetime-fabric`, which drive these very structs. The library that programs
//! use is in [`crate::driver`].
//!
//! | card | here | channels |
//! |---|---|---|
//! | FILAR, single-cycle firmware | [`ReceiverCard`] | 4 in |
//! | FILAR, DMA-protocol firmware | [`ReceiverCard`] | 3 in |
//! | S32PCI64 | [`ReceiverCard`] | 1 in |
//! | SOLAR | [`SolarCard`] | 1 out |
//! | QUEST, transmitter and data source | [`QuestCard`] | 4 out |
//! | SLIDAD | [`Slidad`] | a drain at the end of a link |
//!
//! The data source SLIDAS is `livetime_source::slidas`. Register maps are those of the FILAR slides'
//! card as its public host code uses it; what is ours is said where it stands.

pub mod bus_map;
pub mod dma_block;
pub mod page_memory;
pub mod quest_card;
pub mod receiver_card;
pub mod receiver_register;
pub mod slidad;
pub mod solar_card;
pub mod transmitter;

pub use bus_map::BusMap;
pub use dma_block::{BlockError, CompletionEntry, DescriptorBlock};
pub use page_memory::{PageMemory, SegmentError, SegmentId};
pub use quest_card::{QuestCard, QuestFirmware};
pub use receiver_card::{DmaTransfer, ReceiverCard, ReceiverCardConfig, ReceiverKind};
pub use slidad::{DrainPattern, Slidad};
pub use solar_card::SolarCard;
pub use transmitter::{Transmitter, TransmitterCounters};
