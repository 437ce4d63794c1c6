//! Page pools and rings in shared memory, wait strategies, pinning, clock reads and raw-machine floors.
