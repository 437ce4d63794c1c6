//! The sending end of a link over UDP.
//!
//! [`UdpSource`] splits blocks into datagrams and numbers them; it knows no XOFF, for UDP has none,
//! and a socket whose buffer is full makes it wait, or is tried again. The other end is
//! [`crate::link::udp_link`], what paces a link of a run [`crate::link::link_sender`].

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
    /// Datagrams of the block that is being sent which the socket has, where it does not wait.
    begun: usize,
}

/// Datagrams of a block of so many words, and the bytes of the largest of them.
pub(super) fn datagrams_of(words: usize, data_words_max: usize) -> (usize, usize) {
    let of_largest = HEADER_WORDS + words.min(data_words_max);
    (words.div_ceil(data_words_max).max(1), 4 * of_largest)
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
        Ok(Self::on(socket, data_words_max))
    }

    /// The same over a connected socket that is there already.
    pub fn on(socket: UdpSocket, data_words_max: usize) -> Self {
        let data_words_max = data_words_max.clamp(1, DATA_WORDS_MAX);
        Self {
            socket,
            numbers: FrameNumbers::default(),
            data_words_max,
            frame: Vec::with_capacity(HEADER_WORDS + data_words_max),
            begun: 0,
        }
    }

    /// The socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Most words of data of a frame.
    pub fn data_words_max(&self) -> usize {
        self.data_words_max
    }

    /// Datagrams of a block of so many words, and the bytes of the largest of them.
    pub fn datagrams(&self, words: usize) -> (usize, usize) {
        datagrams_of(words, self.data_words_max)
    }

    /// Sends of a block what the socket takes now, if it does not wait; `true` once it has all. What
    /// the system refuses otherwise, a network that loses it would not bring either: the numbers will
    /// tell.
    pub fn send_some(&mut self, block: &[u32]) -> bool {
        let mut numbers = self.numbers;
        let frames = numbers.frames(block.len(), self.data_words_max);
        for (header, range) in frames.skip(self.begun) {
            self.frame.clear();
            self.frame.extend(header.emit());
            self.frame.extend_from_slice(&block[range]);
            if !self.send_frame() {
                return false;
            }
            self.begun += 1;
        }
        (self.numbers, self.begun) = (numbers, 0);
        true
    }

    /// Says how much was sent, if the socket takes it now.
    pub fn send_tally(&mut self) {
        self.frame.clear();
        self.frame.extend(self.numbers.tally().emit());
        // One that is not taken is said again, like one that is lost.
        let _taken = self.send_frame();
    }

    /// Hands the system the frame; `false` if it is to be tried again later.
    fn send_frame(&self) -> bool {
        loop {
            match self.socket.send(self.frame.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // The answer to an earlier datagram that nobody took.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return true,
            }
        }
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

    /// Counts a block as sent without sending it, or the rest of it, as a network that loses it would.
    pub fn skip(&mut self, words: usize) {
        let _ = self.numbers.frames(words, self.data_words_max);
        self.begun = 0;
    }

    /// Frames and blocks sent so far.
    pub fn numbers(&self) -> FrameNumbers {
        self.numbers
    }
}
