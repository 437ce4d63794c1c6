//! The disk of the simulation: bytes in memory, and an end to them.

use std::io::{Error, ErrorKind, Result, Write};

/// Bytes written so far, up to a capacity.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedDisk {
    bytes: Vec<u8>,
    capacity: u64,
}

impl SimulatedDisk {
    pub(crate) fn new(capacity: Option<u64>) -> Self {
        Self {
            bytes: Vec::new(),
            capacity: capacity.unwrap_or(u64::MAX),
        }
    }

    /// Cuts the file at `bytes`.
    pub(crate) fn truncate(&mut self, bytes: u64) {
        self.bytes
            .truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Write for SimulatedDisk {
    /// As a real disk that runs full: takes what fits, and refuses the next write.
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let room = self.capacity - self.bytes.len() as u64;
        if room == 0 && !bytes.is_empty() {
            return Err(Error::from(ErrorKind::StorageFull));
        }
        let taken = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_takes_what_fits_and_no_more() {
        let mut disk = SimulatedDisk::new(Some(5));
        disk.write_all(b"abc").unwrap();
        let error = disk.write_all(b"def").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        disk.truncate(3);
        disk.write_all(b"xy").unwrap();
        assert_eq!(disk.into_bytes(), b"abcxy");
    }
}
