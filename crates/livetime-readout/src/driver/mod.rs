//! The library that programs use: cards and links by the calls of the field's own driver packages.
//!
//! [`LinkLibrary`] is `open`, `init`, `reset`, `link_reset`, `link_status`, `pages_in`, `flush`,
//! `pages_out`, `in_free`, `info`, `close` over anything behind [`PageLink`](crate::PageLink):
//! card models through their registers ([`CardChannel`]), the emulated link, sockets, files. When a
//! reader is to be woken is [`Notifier`]'s business. Nothing here waits or has threads; page memory
//! is [`PageMemory`](crate::card::PageMemory) or whatever the link was given.

pub mod card_channel;
pub mod link_library;
pub mod notifier;

pub use card_channel::{CardChannel, SharedCard};
pub use link_library::{
    ChannelInfo, LibraryError, LinkLibrary, LinkLibraryConfig, PagesIn, PagesOut,
};
pub use notifier::{Notification, Notifier, NotifierCounters};
