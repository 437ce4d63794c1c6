//! What other programs link: the client of the timing daemon, and the reader of run files.
//!
//! [`TimingClient`] speaks to the daemon over D-Bus, [`Subscription`] reads records from shared
//! memory, and [`Listener`] joins both and goes on by itself when the daemon was restarted. Run
//! files are read by [`livetime_store`], given again as [`store`], and all files of a run as one by
//! [`RunFolder`]. Nothing here starts a daemon or
//! decides a rule.
//!
//! ```no_run
//! use livetime_client::{Address, Filter, Listener, SubscriptionOptions};
//!
//! let filters = [Filter::group(0x123)];
//! let mut listener = Listener::start(&Address::usual(), &filters, &SubscriptionOptions::default())?;
//! while let Some(record) = listener.next(None)? {
//!     println!("{:#018x} late by {} ns", record.id, record.late_by_ns());
//! }
//! # Ok::<(), livetime_client::ClientError>(())
//! ```

pub mod address;
mod deadline;
pub mod error;
mod event_rows;
pub mod listener;
pub mod run_folder;
pub mod run_input;
pub mod shortfall;
pub mod subscription;
pub mod timing_client;

pub use address::Address;
pub use error::ClientError;
pub use listener::{Listener, ListenerThread};
pub use livetime_shm::OverflowRule;
pub use livetime_store as store;
pub use livetime_wire::timing_message::EventId;
pub use livetime_wire::{
    PriorityClass, RecordFlags, RecordKind, TaiNs, TimingMessage, TimingRecord,
};
pub use run_folder::{FileError, FolderError, RunFolder, unreadable_bytes};
pub use shortfall::Shortfall;
pub use subscription::{Subscription, SubscriptionOptions, Wait};
pub use timing_client::{Filter, SoftwareSink, TimingClient};
