//! Anonymous shared memory: a sealed `memfd`, mapped and prefaulted.
//!
//! A [`Mapping`] has a fixed size that no process can change (seals), so no mapped address is ever
//! behind the end of its file, where an access raises SIGBUS; it has no name, so nothing is left
//! behind when every process has died. Seals forbid no peer to punch holes (`FALLOC_FL_PUNCH_HOLE`)
//! into the file: small pages come back zeroed at the next access, huge ones only while the kernel has
//! one to spare, and without it that access raises SIGBUS. Huge pages are for peers of the same trust.
//! It knows nothing about what lies inside. Read [`crate::page_pool`] and [`mod@crate::ring`] for the layouts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes of a small page; every mapping is a multiple of it.
pub const SMALL_PAGE_BYTES: usize = 4096;
/// Bytes of the huge pages asked for.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
/// `f_type` of hugetlbfs in `statfs` (Linux `magic.h`).
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// Whether a mapping should try to live in huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Take 2 MiB pages when the kernel has enough of them reserved, else small pages.
    #[default]
    Prefer,
    /// Always take small pages.
    Never,
}

/// What a mapping lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// 2 MiB pages from the kernel's reserved pool.
    HugePages,
    /// 4 KiB pages.
    SmallPages,
}

/// Why a mapping could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// A mapping of no bytes, of more than the address space, or not of whole pages.
    #[error(
        "a mapping of {bytes} bytes is not possible, it has one or more pages of {SMALL_PAGE_BYTES} bytes"
    )]
    Size {
        /// Bytes asked for, or found in the descriptor.
        bytes: u64,
    },
    /// The descriptor is not a memory file sealed against shrinking and growing.
    #[error("descriptor is not a memory file sealed against shrinking and growing")]
    NotSealed,
    /// The kernel refused a step.
    #[error("{step} of {bytes} bytes of shared memory failed")]
    Kernel {
        /// The system call that failed.
        step: &'static str,
        /// Bytes of the mapping.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A fixed piece of memory shared by every process that holds its file descriptor.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    fd: OwnedFd,
    backing: Backing,
}

// SAFETY: the mapping is plain memory at a fixed address, valid until drop in whichever thread
// that happens; this type itself never reads or writes it (callers of `base` answer for that).
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`: a shared reference gives out only the address and the descriptor.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes a zeroed mapping of at least `bytes` bytes, sealed and prefaulted.
    ///
    /// Huge pages that the kernel does not have are no error: see [`Mapping::backing`].
    ///
    /// # Errors
    /// [`MappingError`]; too little memory is reported here and never as a later SIGBUS.
    pub fn create(name: &str, bytes: usize, huge: HugePages) -> Result<Self, MappingError> {
        if bytes == 0 || bytes > isize::MAX as usize - HUGE_PAGE_BYTES {
            return Err(MappingError::Size {
                bytes: bytes as u64,
            });
        }
        if huge == HugePages::Prefer
            && let Ok(mapping) = Self::create_backed(name, bytes, Backing::HugePages)
        {
            return Ok(mapping);
        }
        Self::create_backed(name, bytes, Backing::SmallPages)
    }

    /// Maps the memory behind a descriptor received from another process.
    ///
    /// The memory is not touched yet: check the contents first, then call [`Mapping::prefault`],
    /// so that a peer cannot make us commit memory for something that is not ours.
    ///
    /// # Errors
    /// [`MappingError::NotSealed`] for anything but a memory file whose size can no longer change,
    /// [`MappingError::Size`] for one that is not of whole pages, as [`Mapping::create`] makes them.
    pub fn open(fd: OwnedFd) -> Result<Self, MappingError> {
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| MappingError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(MappingError::NotSealed);
        }
        let stat = rustix::fs::fstat(&fd).map_err(|e| kernel("fstat", 0, e))?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let bytes = usize::try_from(size).map_err(|_| MappingError::Size { bytes: size })?;
        // Those who read a header rely on a whole page of it.
        let is_of_pages = bytes.is_multiple_of(SMALL_PAGE_BYTES);
        if bytes == 0 || bytes > isize::MAX as usize || !is_of_pages {
            return Err(MappingError::Size { bytes: size });
        }
        let statfs = rustix::fs::fstatfs(&fd).map_err(|e| kernel("fstatfs", bytes, e))?;
        let backing = match statfs.f_type as u64 {
            HUGETLBFS_MAGIC => Backing::HugePages,
            _ => Backing::SmallPages,
        };
        let base = map_shared(&fd, bytes)?;
        Ok(Self {
            base,
            bytes,
            fd,
            backing,
        })
    }

    /// Makes every page of the mapping present, so that no later access faults.
    ///
    /// A fault of one 4 KiB page costs microseconds under nested paging; contents are kept.
    ///
    /// # Errors
    /// [`MappingError::Kernel`] when the memory is not there.
    pub fn prefault(&self) -> Result<(), MappingError> {
        // SAFETY: the range is exactly our own live mapping; the advice changes no contents.
        let advised = unsafe {
            rustix::mm::madvise(
                self.base.as_ptr().cast(),
                self.bytes,
                Advice::LinuxPopulateWrite,
            )
        };
        match advised {
            Ok(()) => Ok(()),
            // Kernels before 5.14 do not know the advice: touch the pages by hand.
            Err(Errno::INVAL) => {
                for offset in (0..self.bytes).step_by(SMALL_PAGE_BYTES) {
                    // SAFETY: offset < bytes lies in the mapping; an atomic access to shared
                    // bytes races with nobody, and or-ing 0 changes nothing.
                    let byte = unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset)) };
                    // Relaxed, pairs with no load: only the page fault matters.
                    byte.fetch_or(0, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(e) => Err(kernel("prefaulting", self.bytes, e)),
        }
    }

    /// First byte of the mapping; page aligned, valid for [`Mapping::bytes`] while `self` lives.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes mapped: what was asked for, rounded up to whole pages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the memory lives in.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// The descriptor to pass to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn create_backed(name: &str, bytes: usize, backing: Backing) -> Result<Self, MappingError> {
        let (extra, page_bytes) = match backing {
            Backing::HugePages => (MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB, HUGE_PAGE_BYTES),
            Backing::SmallPages => (MemfdFlags::empty(), SMALL_PAGE_BYTES),
        };
        let bytes = bytes.next_multiple_of(page_bytes);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | extra;
        let fd =
            rustix::fs::memfd_create(name, flags).map_err(|e| kernel("memfd_create", bytes, e))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(|e| kernel("ftruncate", bytes, e))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|e| kernel("sealing", bytes, e))?;
        let base = map_shared(&fd, bytes)?;
        let mapping = Self {
            base,
            bytes,
            fd,
            backing,
        };
        mapping.prefault()?;
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and bytes come from our own mmap, unmapped nowhere else; whoever used the
        // address held a reference to this mapping, which is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping");
    }
}

fn map_shared(fd: &OwnedFd, bytes: usize) -> Result<NonNull<u8>, MappingError> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            fd,
            0,
        )
    }
    .map_err(|e| kernel("mmap", bytes, e))?;
    NonNull::new(address.cast()).ok_or(MappingError::Size {
        bytes: bytes as u64,
    })
}

fn kernel(step: &'static str, bytes: usize, errno: Errno) -> MappingError {
    MappingError::Kernel {
        step,
        bytes: bytes as u64,
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_one_descriptor_share_their_bytes() {
        let first = Mapping::create("test", 10_000, HugePages::Never).unwrap();
        assert_eq!(first.bytes(), 12_288);
        assert_eq!(first.backing(), Backing::SmallPages);
        let second = Mapping::open(first.fd().try_clone_to_owned().unwrap()).unwrap();
        second.prefault().unwrap();
        assert_eq!(second.bytes(), 12_288);
        // SAFETY: one thread, both addresses lie inside live mappings.
        unsafe {
            first.base().as_ptr().add(9_999).write_volatile(7);
            assert_eq!(second.base().as_ptr().add(9_999).read_volatile(), 7);
        }
    }

    #[test]
    fn huge_pages_are_used_or_replaced_and_say_which() {
        let mapping = Mapping::create("test", 1, HugePages::Prefer).unwrap();
        let page_bytes = match mapping.backing() {
            Backing::HugePages => HUGE_PAGE_BYTES,
            Backing::SmallPages => SMALL_PAGE_BYTES,
        };
        assert_eq!(mapping.bytes(), page_bytes);
        let opened = Mapping::open(mapping.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(opened.backing(), mapping.backing());
    }

    #[test]
    fn a_mapping_cannot_be_resized() {
        let mapping = Mapping::create("test", 4096, HugePages::Never).unwrap();
        assert!(rustix::fs::ftruncate(mapping.fd(), 0).is_err());
        assert!(rustix::fs::ftruncate(mapping.fd(), 8192).is_err());
    }

    #[test]
    fn foreign_descriptors_are_refused() {
        let unsealed = rustix::fs::memfd_create("t", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        assert!(matches!(
            Mapping::open(unsealed),
            Err(MappingError::NotSealed)
        ));

        let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
        assert!(matches!(Mapping::open(pipe), Err(MappingError::NotSealed)));

        let empty = rustix::fs::memfd_create("t", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::fcntl_add_seals(&empty, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(matches!(
            Mapping::open(empty),
            Err(MappingError::Size { bytes: 0 })
        ));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for bytes in [0, usize::MAX] {
            let made = Mapping::create("test", bytes, HugePages::Never);
            assert!(matches!(made, Err(MappingError::Size { .. })));
        }
    }
}
