//! Every byte format: golden bytes, parse(emit(x)) = x, and no parser panics on any words.
//!
//! The golden files were computed by a program that shares no code with this crate. What these
//! tests do not see: whether senders and receivers agree on when to send which words.

mod builder_message;
mod coefficient_block;
mod event;
mod event_ticket;
mod fragment;
mod golden;
mod object_block;
mod quantity;
mod read_back;
mod reply;
mod slink;
mod timing_message;
mod trigger_packet;
