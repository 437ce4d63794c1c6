//! What carries messages between units: the trait that transports implement.
//!
//! A message is the words of [`livetime_wire::message::Envelope::to_words`]. The trait says nothing
//! of payload: within one machine pages are shared, and a network transport sends the words of the
//! pages behind a `FragmentData`. Implementations live with the drivers.

use livetime_wire::UnitId;

/// One unit's end of the links to its peers: sends to any of them, receives from all.
///
/// Messages of one pair of units stay in order; nothing is promised between pairs. Not even that is
/// of a link of datagrams, which may lose, repeat and reorder: between readout units, event manager
/// and builder units only, whose cores make all of it good (see the table of [`crate`]). A message
/// that a core answers with [`crate::Handled::Busy`] is not consumed, and later ones of *other*
/// pairs must still be handed in.
pub trait FrameLink {
    /// Takes a message for `to`.
    ///
    /// # Errors
    /// [`LinkFull`] when it cannot be taken now. The sender keeps it and polls its core no further
    /// until it is taken: that is how back-pressure reaches a core.
    fn try_send(&mut self, to: UnitId, words: &[u32]) -> Result<(), LinkFull>;

    /// The oldest message that has come; the same one until [`FrameLink::consume`].
    fn poll(&mut self) -> Option<&[u32]>;

    /// Removes the message that [`FrameLink::poll`] shows.
    fn consume(&mut self);
}

/// A message could not be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the link to {to} is full")]
pub struct LinkFull {
    /// Whose link.
    pub to: UnitId,
}
