//! The timing daemon: one process owns the receiver and shares it among many clients.
//!
//! [`core_worker`] runs the pure core of `livetime-timing` on a thread of its own; [`delivery`]
//! writes records into the rings of the subscriptions ([`subscription`]); [`control`], in threads of its own, reaches
//! the core only through bounded rings ([`core_handle`]) and is spoken to over D-Bus ([`bus`]).
//! Nothing that a client does can hold up the core or another client. No rule of timing is decided
//! here. Start with [`daemon`].

pub mod access;
pub mod bulk;
pub mod bus;
pub mod control;
pub mod core_handle;
pub mod core_worker;
pub mod daemon;
pub mod delivery;
pub mod epoch;
pub mod executed_action;
pub mod generators;
pub mod kept_state;
pub mod lease;
pub mod signal_forwarder;
pub mod status;
pub mod subscription;
pub mod tai_clock;
pub mod wake_thread;

pub use access::{AccessRules, AccessRulesError};
pub use control::{Client, Control, ControlError, DeliveryMode};
pub use core_handle::{Core, CoreConfig, CoreError, CoreHandle, Injector};
pub use core_worker::{CoreCommand, CoreSnapshot, CoreWait, CoreWorker};
pub use daemon::{Daemon, DaemonConfig, DaemonError};
pub use delivery::{Delivery, DeliveryConfig, Routing};
pub use executed_action::ExecutedAction;
pub use subscription::{Subscription, SubscriptionConfig, SubscriptionEnds};
pub use tai_clock::{ClockSource, TaiClock};
pub use wake_thread::WakeThread;
