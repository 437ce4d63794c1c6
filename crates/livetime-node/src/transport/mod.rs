//! What carries builder messages between machines, behind `livetime_builder::FrameLink`.
//!
//! [`TcpFrameLink`] has one stream per pair of units, [`UdpFrameLink`] one socket for datagrams; either
//! brings payload from the sender's pages into the receiver's ([`ReceivePages`]) without a copy by our
//! code. [`NetworkLink`] is the one that a configuration asks for, and [`FragmentShaper`] gives the builder
//! units their turns on it. [`EventSender`] and
//! [`EventReceiver`] carry whole events over streams, from a builder unit to its filter units. Rings
//! of one machine are in [`crate::message_ring`].

mod allowance;
pub mod event_receiver;
pub mod event_sender;
pub mod fragment_shaper;
pub mod network_link;
pub mod receive_pages;
pub mod tcp_frame_link;
pub mod udp_frame_link;

pub use event_receiver::EventReceiver;
pub use event_sender::EventSender;
pub use fragment_shaper::FragmentShaper;
pub use network_link::NetworkLink;
pub use receive_pages::ReceivePages;
pub use tcp_frame_link::{STREAM_PAGES_MAX, TcpFrameCounts, TcpFrameLink, set_congestion};
pub use udp_frame_link::{UdpFrameCounts, UdpFrameLink};
