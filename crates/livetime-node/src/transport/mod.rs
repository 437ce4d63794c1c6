//! What carries builder messages between machines, behind `livetime_builder::FrameLink`.
//!
//! [`TcpFrameLink`] has one stream per pair of units. Payload goes from the sender's pages into the
//! receiver's without a copy by our code. [`EventSender`] and [`EventReceiver`] carry whole events
//! over it, from a builder unit to its filter units. Rings of one machine are in
//! [`crate::message_ring`].

pub mod event_receiver;
pub mod event_sender;
pub mod tcp_frame_link;

pub use event_receiver::EventReceiver;
pub use event_sender::EventSender;
pub use tcp_frame_link::{
    ReceivePages, STREAM_PAGES_MAX, TcpFrameCounts, TcpFrameLink, set_congestion,
};
