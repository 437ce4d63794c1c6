//! S-LINK source and destination, page-based receiver, fragment assembler and fragment buffer.
//!
//! Everything here is a state machine on word slices: no threads, no clocks, no sockets, and no
//! allocation after construction. It does not decide which trigger is kept and owns no page memory
//! (pages are reached through [`PageStore`] and [`PageRead`], given on each call). Start with
//! [`SlinkSource`] and [`Receiver`], then [`FragmentAssembler`] and [`FragmentBuffer`].
//!
//! ```text
//! fragment words -> SlinkSource -> line -> SlinkDestination -> pages       (Receiver: one link end)
//!                        ^                        |  request FIFO: pages to fill
//!                        +---- XON / XOFF --------+  acknowledge FIFO: pages filled
//!                                                 v
//!                    FragmentBuffer <- FragmentAssembler (framing, lengths, CRC-32C)
//! ```
//!
//! **What is counted where.** A fragment is *handed* to a source and *received* when its block is
//! closed. The source counts what the line never took whole: [`LinkDown`] for a fragment of which
//! no word left, [`LinkTruncated`] for one cut by the loss of the link. The receiving end counts
//! [`LinkTruncated`] only for a block whose end word was lost while the link was up. So
//! `handed = received + losses` holds exactly as long as both ends are told of a link loss at the
//! same place in the stream of words ([`SlinkSource::handle_link`], [`Receiver::handle_link`]).
//!
//! **Cost per fragment.** Payload bytes are written once (line to page) and read once (CRC) while
//! the page is still in the cache; the rest is about four cache lines of bookkeeping.
//!
//! [`LinkDown`]: livetime_wire::LossCause::LinkDown
//! [`LinkTruncated`]: livetime_wire::LossCause::LinkTruncated

pub mod card;
pub mod card_link;
pub mod card_link_config;
pub mod driver;
pub mod fragment_assembler;
pub mod fragment_buffer;
pub mod line;
pub mod line_fault;
pub mod link_config;
pub mod link_destination;
pub mod link_source;
pub mod page_fifo;
pub mod page_link;
pub mod page_store;
pub mod problem_code;
pub mod receiver;
pub mod reset_handshake;
pub mod return_channel;
pub mod self_test;

pub use card_link::CardLink;
pub use card_link_config::{CardLinkConfig, ErrorReporting};
pub use fragment_assembler::{
    Assembled, AssemblerConfig, AssemblerCounters, FragmentAssembler, Refusal, RefusedPages,
};
pub use fragment_buffer::{
    BufferCounters, FragmentBuffer, FragmentBufferConfig, InsertRefused, RefusedReason,
};
pub use line::{FlowControl, LineBlock, LineSlice, LinkState, LinkStatus};
pub use line_fault::{FaultRates, LineFault, LineFaultPlan};
pub use link_config::LinkConfig;
pub use link_destination::{DestinationCounters, SlinkDestination};
pub use link_source::{Begun, SlinkSource, SourceCounters, SourceLinkConfig, SourceTest};
pub use page_fifo::{BlockEnd, Completed, PageFifos, RequestFull};
pub use page_link::{PageError, PageLink};
pub use page_store::{HeapPages, PageRead, PageStore};
pub use receiver::{PageAccount, Receiver, ReceiverCounters};
pub use reset_handshake::{ResetHandshake, ResetPin, SystemReset};
pub use return_channel::{ReturnChannel, ReturnWord};
pub use self_test::{LinkWidth, SelfTest, TestChecker, TestPattern};
