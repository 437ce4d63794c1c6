//! Event tickets: no words panic, and a ticket that reads survives being handed on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::message::EventTicket;

fuzz_target!(|data: &[u8]| {
    let words = livetime_fuzz::words(data);
    let mut ticket = EventTicket::with_capacity(0);
    if ticket.read(&words).is_ok() {
        let (mut out, mut again) = (Vec::new(), EventTicket::with_capacity(0));
        ticket.emit(&mut out);
        again.read(&out).expect("an emitted ticket is well formed");
        assert_eq!(again, ticket);
    }
});
