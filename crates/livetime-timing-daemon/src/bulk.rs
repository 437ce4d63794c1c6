//! Bulk data of clients: sealed memory files, read once and bounded.
//!
//! A descriptor of a client is input in every respect. It must be a memory file sealed against
//! shrinking, growing and writing, so that what is checked is what is used; it is copied once and
//! never mapped. Pipes and files are refused: reading them could wait for the client.

use std::io;
use std::os::fd::OwnedFd;

use livetime_wire::TimingMessage;
use livetime_wire::timing_message::MESSAGE_BYTES;
use rustix::fs::SealFlags;

/// Messages of one schedule.
pub const SCHEDULE_MESSAGES_MAX: usize = 1 << 20;

/// Why bulk data are refused.
#[derive(Debug, thiserror::Error)]
pub enum BulkError {
    /// Not a memory file, or one that can still change.
    #[error(
        "descriptor is not a memory file sealed against shrinking, growing and writing; \
         seal it with F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_WRITE before passing it"
    )]
    NotSealed,
    /// Nothing in it, too much, or not a whole number of items.
    #[error("memory file has {found} bytes, allowed is a multiple of {item} up to {max}")]
    Size {
        /// Bytes found.
        found: u64,
        /// Bytes of an item.
        item: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The messages are not in the order of their times.
    #[error("message {index} of the schedule is earlier than the one before; sort them by time")]
    Order {
        /// Which message, from 0.
        index: usize,
    },
    /// The kernel refused a step.
    #[error("{step} of bulk data failed: {source}")]
    Kernel {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Copies a sealed memory file of a multiple of `item` bytes, at most `max`.
///
/// # Errors
/// [`BulkError`].
pub fn read_sealed(fd: &OwnedFd, item: usize, max: usize) -> Result<Vec<u8>, BulkError> {
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| BulkError::NotSealed)?;
    let needed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    if !seals.contains(needed) {
        return Err(BulkError::NotSealed);
    }
    let kernel = |step| {
        move |errno: rustix::io::Errno| BulkError::Kernel {
            step,
            source: errno.into(),
        }
    };
    let found = rustix::fs::fstat(fd).map_err(kernel("sizing"))?.st_size;
    let found = u64::try_from(found).unwrap_or(0);
    if found == 0 || found > max as u64 || found % item as u64 != 0 {
        return Err(BulkError::Size {
            found,
            item: item as u64,
            max: max as u64,
        });
    }
    let mut bytes = vec![0; found as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::pread(fd, &mut bytes[filled..], filled as u64) {
            // Sealed against shrinking: it ends where it said.
            Ok(0) => return Err(BulkError::NotSealed),
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(kernel("reading")(errno)),
        }
    }
    Ok(bytes)
}

/// The messages of a schedule in a sealed memory file: 32 bytes each, as on the timing network,
/// in the order of their times.
///
/// # Errors
/// [`BulkError`].
pub fn read_schedule(fd: OwnedFd) -> Result<Vec<TimingMessage>, BulkError> {
    let max = SCHEDULE_MESSAGES_MAX * MESSAGE_BYTES;
    let bytes = read_sealed(&fd, MESSAGE_BYTES, max)?;
    let messages: Vec<TimingMessage> = bytes
        .chunks_exact(MESSAGE_BYTES)
        .filter_map(|chunk| TimingMessage::parse(chunk).ok())
        .collect();
    for (index, pair) in messages.windows(2).enumerate() {
        if pair[1].time < pair[0].time {
            return Err(BulkError::Order { index: index + 1 });
        }
    }
    Ok(messages)
}

/// Puts bytes into a memory file and seals it, to be passed to the daemon.
///
/// # Errors
/// What the kernel says.
pub fn seal(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    use rustix::fs::MemfdFlags;
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut written = 0;
    while written < bytes.len() {
        written += rustix::io::pwrite(&fd, &bytes[written..], written as u64)?;
    }
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use livetime_wire::TaiNs;
    use livetime_wire::timing_message::EventId;
    use rustix::fs::MemfdFlags;

    use super::*;

    fn message(time: u64) -> [u8; MESSAGE_BYTES] {
        TimingMessage::new(EventId(time), 7, TaiNs(time)).to_bytes()
    }

    #[test]
    fn a_sealed_schedule_is_read_in_full() {
        let bytes = [message(1), message(5), message(5)].concat();
        let read = read_schedule(seal("schedule", &bytes).unwrap()).unwrap();
        assert_eq!(read.iter().map(|m| m.time.0).collect::<Vec<_>>(), [1, 5, 5]);
        let unsorted = [message(2), message(1)].concat();
        assert!(matches!(
            read_schedule(seal("schedule", &unsorted).unwrap()),
            Err(BulkError::Order { index: 1 })
        ));
    }

    #[test]
    fn hostile_descriptors_are_refused() {
        let flags = MemfdFlags::ALLOW_SEALING;
        let unsealed = rustix::fs::memfd_create("x", flags).unwrap();
        rustix::fs::ftruncate(&unsealed, 32).unwrap();
        assert!(matches!(read_schedule(unsealed), Err(BulkError::NotSealed)));
        let half = rustix::fs::memfd_create("x", flags).unwrap();
        rustix::fs::ftruncate(&half, 32).unwrap();
        rustix::fs::fcntl_add_seals(&half, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(matches!(read_schedule(half), Err(BulkError::NotSealed)));
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(matches!(read_schedule(pipe), Err(BulkError::NotSealed)));
        for bytes in [0usize, 31, 33] {
            let fd = seal("x", &vec![0; bytes]).unwrap();
            assert!(
                matches!(read_schedule(fd), Err(BulkError::Size { .. })),
                "{bytes}"
            );
        }
        let huge = rustix::fs::memfd_create("x", flags).unwrap();
        rustix::fs::ftruncate(&huge, 1 << 40).unwrap();
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&huge, seals).unwrap();
        assert!(matches!(read_schedule(huge), Err(BulkError::Size { .. })));
    }
}
