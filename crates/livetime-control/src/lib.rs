//! Control of a run over several hosts: who is there, who is steered, who is gone.
//!
//! [`membership`] is the core: it knows the hosts of a run, what they said of themselves and when
//! they were heard last, and says who joined, who is refused, suspect, back or dead. [`host_hello`]
//! is what a host says of itself. With the feature `zenoh`, `session` carries both, orders and
//! reports between the hosts. What orders and reports say is the business of those who send them;
//! data do not pass here.

pub mod host_hello;
pub mod membership;
#[cfg(feature = "zenoh")]
pub mod session;

pub use host_hello::HostHello;
pub use membership::{Difference, HostState, MemberEvent, Membership, MembershipTimes, Refusal};
