//! `udp`: datagrams of 1 KiB out of a socket into pages, beside a bare loop of batched receives.
//!
//! A batch of datagrams is sent over the loopback interface and waits in the socket; then it is
//! received, by a `UdpLink` with its pages polled and given back, or by a bare `recvmmsg` into
//! buffers. Neither asks for the senders' addresses. Only the receiving is timed. Every datagram of
//! the link is a block, which is counted whole or missing. Not measured: the sender, and a network.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Instant;

use livetime_node::link::{UdpConfig, UdpLink, UdpSource};
use livetime_readout::{HeapPages, LinkConfig, PageLink};
use livetime_wire::RunNs;
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg};
use serde_json::json;

use super::document::{BenchDocument, Target, time_per_item};
use super::interleave::{LIKE_FLOORS, add_item_floor, interleave};
use super::pinned_threads::run_alone;
use super::{BenchError, BenchOptions};

/// Data words of a datagram: 1 KiB.
const WORDS: usize = 256;
/// Datagrams of one system call.
const BATCH: usize = 32;
/// Pages of the link.
const PAGES: u32 = 256;

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a datagram is lost.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let (blocks, batches) = if options.quick { (2, 20) } else { (40, 500) };
    let mut document = BenchDocument::new("udp");
    let (measured, sent, received, lost) = run_alone(|| {
        let bare = std::cell::RefCell::new(Bare::new()?);
        let link = std::cell::RefCell::new(Link::new()?);
        let measured = interleave(
            blocks,
            LIKE_FLOORS,
            || bare.borrow_mut().receive(batches),
            || link.borrow_mut().receive(batches),
            |floor| *floor,
        )?;
        let link = link.into_inner();
        let counters = link.link.blocks().counters();
        Ok((
            measured,
            link.source.numbers().blocks_made(),
            link.received,
            counters.blocks_lost + counters.frames_missing,
        ))
    })?;
    if received != sent {
        return Err(BenchError::Conservation {
            what: "datagrams in pages",
            found: received,
            expected: sent,
        });
    }
    let selection = measured.select(|floor| *floor, |_| ());
    let share = selection.quotient(|kept| (kept.floor(|floor| *floor), *kept.block));
    let time = time_per_item(&selection.all(|kept| *kept.block));
    let rate = time["per_s_at_p50"].as_f64().unwrap_or(f64::NAN);
    let result = json!({
        "datagram_ns": time,
        "mb_per_s_at_p50": (rate * WORDS as f64 * 4.0 / 1e6).round(),
        "datagrams": received,
        "blocks": selection.to_json(),
    });
    document.add_result("1024_bytes", result);
    add_item_floor(
        &mut document.floor,
        "bare_receive_ns".to_owned(),
        &selection,
    );
    document.add_quotient("bare_receive_share", share);
    let target = Target::at_least("bare_receive_share", share.value(), 0.8);
    document.add_target(selection.judged(target));
    document.add_target(Target::at_most("datagrams_lost", lost as f64, 0.0));
    Ok(document)
}

fn file_error(step: &'static str) -> impl Fn(io::Error) -> BenchError {
    move |source| BenchError::File { step, source }
}

/// A socket that is read by nothing but the system call.
struct Bare {
    socket: UdpSocket,
    source: UdpSource,
    buffers: Vec<Vec<u8>>,
    block: Vec<u32>,
}

impl Bare {
    fn new() -> Result<Self, BenchError> {
        let error = file_error("opening a socket");
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(&error)?;
        let address = socket.local_addr().map_err(&error)?;
        Ok(Self {
            source: UdpSource::new(address, WORDS).map_err(&error)?,
            socket,
            buffers: vec![vec![0; 4 * (WORDS + 64)]; BATCH],
            block: vec![7; WORDS],
        })
    }

    /// Nanoseconds per datagram.
    fn receive(&mut self, batches: usize) -> Result<f64, BenchError> {
        let mut headers = MultiHeaders::<()>::preallocate(BATCH, None);
        let (mut ns, mut came) = (0, 0);
        for _ in 0..batches {
            for _ in 0..BATCH {
                let sent = self.source.send(&self.block);
                sent.map_err(file_error("sending a datagram"))?;
            }
            let start = Instant::now();
            let mut buffers = self.buffers.iter_mut();
            let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
                std::array::from_fn(|_| [IoSliceMut::new(buffers.next().expect("one for each"))]);
            let messages = recvmmsg(
                self.socket.as_raw_fd(),
                &mut headers,
                slices.iter_mut(),
                MsgFlags::MSG_DONTWAIT,
                None,
            );
            let messages = messages.map_err(|errno| file_error("receiving")(errno.into()))?;
            came += messages
                .map(|message| usize::from(message.bytes > 0))
                .sum::<usize>();
            ns += start.elapsed().as_nanos();
        }
        if came != batches * BATCH {
            return Err(BenchError::Conservation {
                what: "datagrams of the bare loop",
                found: came as u64,
                expected: (batches * BATCH) as u64,
            });
        }
        Ok(ns as f64 / came as f64)
    }
}

/// A link with its pages.
struct Link {
    link: UdpLink<HeapPages>,
    source: UdpSource,
    block: Vec<u32>,
    received: u64,
}

impl Link {
    fn new() -> Result<Self, BenchError> {
        let error = file_error("opening a link");
        let config = LinkConfig {
            page_words: 512,
            pages: PAGES,
            // A batch is handed over at once, as a driver that polls takes it.
            acknowledge_depth: 2 * BATCH as u32,
            fragment_words_max: 512,
            ..LinkConfig::default()
        };
        let pages = HeapPages::new(0, config.pages, config.page_words);
        let udp = UdpConfig {
            data_words_max: WORDS,
            ..UdpConfig::default()
        };
        let link = UdpLink::bind("127.0.0.1:0", udp, config, 0, pages).map_err(&error)?;
        let address = link.local_address().map_err(&error)?;
        Ok(Self {
            source: UdpSource::new(address, WORDS).map_err(&error)?,
            link,
            block: vec![7; WORDS],
            received: 0,
        })
    }

    /// Nanoseconds per datagram.
    fn receive(&mut self, batches: usize) -> Result<f64, BenchError> {
        let mut ns = 0;
        for _ in 0..batches {
            for _ in 0..BATCH {
                let sent = self.source.send(&self.block);
                sent.map_err(file_error("sending a datagram"))?;
            }
            let start = Instant::now();
            let came = self.link.receive(RunNs(1));
            came.map_err(file_error("receiving"))?;
            while let Some(completed) = self.link.poll() {
                self.received += 1;
                // The page was handed out a moment ago.
                let recycled = self.link.recycle(completed.page);
                debug_assert!(recycled.is_ok());
            }
            ns += start.elapsed().as_nanos();
        }
        Ok(ns as f64 / (batches * BATCH) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datagram_comes_into_a_page() {
        let mut link = Link::new().unwrap();
        assert!(link.receive(10).unwrap() > 0.0);
        assert_eq!(link.received, 320);
        assert!(Bare::new().unwrap().receive(10).unwrap() > 0.0);
    }
}
