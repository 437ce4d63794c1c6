//! The sending end of a link over UDP.
//!
//! [`UdpSource`] splits blocks into datagrams and numbers them; it knows no XOFF, for UDP has none,
//! and a socket whose buffer is full makes it wait. The other end is [`crate::link::udp_link`].

use std::io::{self, ErrorKind};
use std::net::{ToSocketAddrs, UdpSocket};

use livetime_wire::link_frame::{DATA_WORDS_MAX, FrameNumbers, HEADER_WORDS};
use zerocopy::IntoBytes;

/// Sends blocks as datagrams.
#[derive(Debug)]
pub struct UdpSource {
    socket: UdpSocket,
    numbers: FrameNumbers,
    data_words_max: usize,
    frame: Vec<u32>,
}

impl UdpSource {
    /// A source that sends to `to` from any port; frames carry at most `data_words_max` words of
    /// data (1 to 16 370; 362 fill an Ethernet frame of 1500 bytes).
    ///
    /// # Errors
    /// What the system says of the socket or the address.
    pub fn new(to: impl ToSocketAddrs, data_words_max: usize) -> io::Result<Self> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(to)?;
        let data_words_max = data_words_max.clamp(1, DATA_WORDS_MAX);
        Ok(Self {
            socket,
            numbers: FrameNumbers::default(),
            data_words_max,
            frame: Vec::with_capacity(HEADER_WORDS + data_words_max),
        })
    }

    /// Sends a block.
    ///
    /// # Errors
    /// What the system says. A receiver that is not there yet is no error: its datagrams are lost,
    /// and it will say so.
    pub fn send(&mut self, block: &[u32]) -> io::Result<()> {
        for (header, range) in self.numbers.frames(block.len(), self.data_words_max) {
            self.frame.clear();
            self.frame.extend(header.emit());
            self.frame.extend_from_slice(&block[range]);
            loop {
                match self.socket.send(self.frame.as_bytes()) {
                    Ok(_) => break,
                    // The answer to an earlier datagram that nobody took.
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Counts a block as sent without sending it, as a network that loses all of it would.
    pub fn skip(&mut self, words: usize) {
        let _ = self.numbers.frames(words, self.data_words_max);
    }

    /// Counts blocks of `words` words as sent until there are `blocks`: none if the last one was
    /// numbered before the system refused it.
    pub fn skip_rest(&mut self, blocks: u64, words: usize) {
        while self.numbers.blocks_made() < blocks {
            self.skip(words);
        }
    }

    /// Frames and blocks sent so far.
    pub fn numbers(&self) -> FrameNumbers {
        self.numbers
    }
}
