//! S-LINK source and destination, page-based receiver, fragment buffer.
