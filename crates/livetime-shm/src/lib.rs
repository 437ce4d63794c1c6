//! Memory shared between threads and processes, and the raw machine.
//!
//! Page pools and rings through which data moves without copies or locks, the ways to wait for
//! it, to notice that a peer has died, to place threads, to read clocks, to open small files without
//! waiting, and to measure what the bare machine can do. It knows nothing about fragments, triggers or events, and depends on no
//! other crate of the project. Start with [`page_pool`] and [`ring`](mod@ring), then
//! [`wait`] and [`peer`].
//!
//! This is the only crate with `unsafe` code. Its rules: each block names the invariant it rests
//! on; each atomic access names the access it pairs with; whatever another process can write is
//! input, checked before use. A peer is trusted with nothing but this: that it does not write to
//! payload it has handed over. If it does, words change under a reader, which sees wrong values;
//! it can cause no access outside the memory it was given.
//!
//! Memory is passed as a sealed `memfd`, so that it can neither shrink under us nor outlive its
//! users. Peers die at any instruction: nothing here is held by a lock, unfinished work is
//! invisible, and what a dead process held is marked with its name.

#[cfg(not(target_os = "linux"))]
compile_error!("livetime-shm needs Linux: memfd, futex, pidfd");

pub mod affinity;
pub mod clock;
pub mod doorbell;
pub mod floor;
pub mod heap_pages;
pub mod mapping;
pub mod page_pool;
pub mod page_state;
pub mod peer;
pub mod plain_file;
pub mod prefetch;
pub mod process_id;
pub mod record_ring;
pub mod ring;
pub mod ring_region;
pub mod shared_words;
mod socket_bell;
mod system_limit;
pub mod tai_offset;
pub mod wait;
pub mod wake_descriptor;

pub use affinity::{
    PlacementError, allowed_cpus, avoid_cpu, cpus_apart, lock_memory, parse_cpu_list,
    pin_current_thread, request_fifo, request_normal, two_cpus,
};
pub use clock::{MonotonicClock, TickSource, TscClock};
pub use doorbell::{Doorbell, DoorbellError, Ticket, Waked};
pub use mapping::{Backing, HugePages, MappingError};
pub use page_pool::{
    OwnerId, PageError, PageIndex, PagePool, PageReader, PageState, PageWriter, PoolConfig,
    PoolCounts, PoolError, ReclaimError, Reclaimed,
};
pub use peer::{
    PASSED_FDS_MAX, PeerError, PeerWatch, Received, continue_process, control_pair, recv_fds,
    send_fds, stop_process,
};
pub use process_id::ProcessId;
pub use record_ring::{
    Found, OfferOutcome, Offered, OverflowRule, RecordMemory, RecordReader, RecordRingConfig,
    RecordRingError, RecordStorage, RecordWriter, RingClosed, RingMonitor, RingWord,
};
pub use ring::{Consumer, Producer, PushError, RingConfig, RingFault, Side};
pub use ring_region::{RingError, RingRegion, heap_ring, open_consumer, open_producer, ring};
pub use shared_words::{SharedWords, WordsError};
pub use system_limit::{limit_of_files, with_limit};
pub use wait::{WaitCounts, WaitStrategy, Waiter};
pub use wake_descriptor::{WakeGroup, WakeSource, WakeUp, Waker, wake_pair};
