//! The network link of a readout unit, builder unit or event manager, as a configuration asks for it.

use livetime_shm::PagePool;

use crate::builder_transport::BuilderTransport;
use crate::chain_config::ChainConfig;
use crate::chain_plan::{fragment_pages, receive_buffer_bytes};
use crate::transport::{FragmentShaper, NetworkLink, ReceivePages, TcpFrameLink, UdpFrameLink};

/// The link, without any way to a peer; `None` where units of one machine share memory. Payload is sent
/// from `sent_from` and received into `pages`.
pub(crate) fn network_link(
    config: &ChainConfig,
    sent_from: Option<PagePool>,
    pages: Option<ReceivePages>,
) -> Option<NetworkLink> {
    // Only who sends payload has something to hold back, or much of it for one that does not read.
    let is_sender = sent_from.is_some();
    let shaping = config.builder.shaping.as_ref().filter(|_| is_sender);
    let shaped_buffer = shaping.map(FragmentShaper::send_buffer_bytes);
    match config.transport {
        BuilderTransport::Shm => None,
        BuilderTransport::Tcp { .. } => {
            let link = TcpFrameLink::new(sent_from, pages);
            let link = match shaped_buffer {
                Some(bytes) => link.shaped(bytes),
                None if is_sender => with_room_for_credits(link, config),
                None => link,
            };
            Some(NetworkLink::Tcp(Box::new(link)))
        }
        BuilderTransport::Udp { .. } => {
            let link = UdpFrameLink::new(sent_from, pages, receive_buffer_bytes(config));
            let link = match shaped_buffer {
                Some(bytes) => link.shaped(bytes),
                None => link,
            };
            Some(NetworkLink::Udp(Box::new(link)))
        }
    }
}

/// Room for the fragments of all events that a builder unit may hold, as in a ring: those for one that
/// does not read must not keep others waiting.
fn with_room_for_credits(link: TcpFrameLink, config: &ChainConfig) -> TcpFrameLink {
    let links = config.data_links.iter();
    let pages = links.map(|link| fragment_pages(config, link)).max();
    link.with_room(config.builder.ring_slots(), pages.unwrap_or(1))
}
