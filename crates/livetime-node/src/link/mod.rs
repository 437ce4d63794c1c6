//! Links of today: UDP, TCP and files behind [`PageLink`](livetime_readout::PageLink).
//!
//! Each takes frames ([`livetime_wire::link_frame`]), puts their words into the pages of a
//! [`Receiver`](livetime_readout::Receiver), and so looks to the rest of the chain like a card. What
//! the network or a file does to frames is found by their numbers and counted; a full receiver makes
//! a link wait and nothing is thrown away here. Start with [`udp_link`]; [`stream_link`] is TCP and
//! files, [`block_receiver`] what they share, [`fragment_link`] a data link of a run as its front-end
//! has it, [`link_sender`] and [`link_receiver`] the two ends of one over a socket.

pub mod block_receiver;
pub mod fragment_link;
mod frame_order;
pub mod link_receiver;
pub mod link_sender;
mod socket_window;
pub mod stream_link;
#[cfg(test)]
mod test_link;
pub mod transport;
pub mod udp_link;
pub mod udp_source;

pub use block_receiver::{BlockReceiver, FrameCounters};
pub use fragment_link::{FragmentLink, TransportCounters};
pub use link_receiver::LinkReceiver;
pub use link_sender::LinkSender;
pub use stream_link::{StreamLink, StreamSource};
pub use transport::{FramesFound, LinkTransport, check_frames_file, frames_file, run_of_frames};
pub use udp_link::{UdpConfig, UdpCounters, UdpLink};
pub use udp_source::UdpSource;
