//! Buffers of switching elements, as a scenario describes them: queues, places, flow control.
//!
//! Plain values; what they do to packets is in [`super`], and [`Buffering::problem`] says which of
//! them cannot work.

/// When a packet may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Forwarding {
    /// When its header is there; onto a faster link when it is there whole.
    #[default]
    CutThrough,
    /// When it is there whole.
    StoreAndForward,
}

/// How packets queue in an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Queueing {
    /// One FIFO for each input and lane: the head blocks those behind it.
    #[default]
    InputFifo,
    /// A queue for each pair of input and output; an input sends one packet at a time, or as many
    /// as its link is faster than a node's.
    VirtualOutput,
    /// A queue for each output; an input may send to all outputs at once.
    Output,
}

/// Whose the buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BufferPlace {
    /// Each input has its own.
    #[default]
    Input,
    /// Each output has its own.
    Output,
    /// All ports of an element share one.
    Shared,
}

/// What keeps buffers from overflowing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowControl {
    /// Nothing: packets that find no room are lost.
    None,
    /// A packet is sent when the next buffer has room for all of it.
    #[default]
    Credits,
    /// A packet is sent unless the next buffer holds `stop` bytes or more and has not yet fallen
    /// to `go`; what arrives after the stop needs room above it, or is lost.
    StopGo {
        /// Bytes from which senders stop.
        stop: u64,
        /// Bytes down to which they stay stopped.
        go: u64,
    },
}

/// Buffers of all elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffering {
    /// When a packet may go on.
    pub forwarding: Forwarding,
    /// How packets queue.
    pub queueing: Queueing,
    /// Whose the buffers are.
    pub place: BufferPlace,
    /// Bytes of each buffer.
    pub bytes: u64,
    /// Virtual lanes, each with a FIFO of its own at each input; a packet keeps the lane drawn for
    /// it. Only for [`Queueing::InputFifo`]; the buffer is shared by the lanes.
    pub lanes: u32,
    /// Flow control of every link.
    pub flow: FlowControl,
}

impl Buffering {
    /// What is wrong with it for packets of up to `packet_max` bytes; `None` if nothing is.
    pub fn problem(&self, packet_max: u64) -> Option<String> {
        if self.bytes < packet_max {
            return Some(format!(
                "buffers of {} bytes for packets of up to {packet_max} bytes",
                self.bytes
            ));
        }
        if !(1..=16).contains(&self.lanes) {
            return Some(format!("{} lanes, allowed are 1 to 16", self.lanes));
        }
        if self.lanes > 1 && self.queueing != Queueing::InputFifo {
            return Some("lanes with queues that are not input FIFOs".to_owned());
        }
        match self.flow {
            FlowControl::StopGo { stop, go } if go > stop || stop > self.bytes || stop == 0 => {
                Some(format!(
                    "go at {go} and stop at {stop} of {} bytes, go may not be above stop nor stop \
                     above the buffer",
                    self.bytes
                ))
            }
            _ => None,
        }
    }
}
