//! Real drivers: workers, rings, sockets, clocks and disks around the protocol cores.
