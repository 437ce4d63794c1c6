//! Run files through the public interface: as they should be, as crashes leave them, on full disks.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod damage;
mod failing_input;
mod frame;
mod full_disk;
mod readers_agree;
mod support;
mod unreadable;
mod whole;
