//! C library: run files and the link library for programs in C and everything that calls C.
//!
//! A handle goes through the events of a run and the fragments of an event; what it hands out are
//! pointers into the chunk in memory, valid until the next call that says otherwise. It does not
//! write files or parse payload. A second handle is the library of the link cards. The header
//! `include/livetime.h` is generated from [`call`] and [`link_call`], the guide is
//! `docs/c-library.md`.
//!
//! This crate has `unsafe` code at its boundary only: pointers that come from C are looked at in
//! [`call`] and [`link_call`] and nowhere else. No panic crosses the boundary: [`status`] catches it.

pub mod call;
pub mod link;
pub mod link_call;
pub mod link_record;
pub mod record;
pub mod run;
pub mod status;
pub mod timing;
pub mod timing_call;
