//! The peers of one kind that a unit talks to: epochs and sequence numbers, both ways.

use livetime_wire::message::{BuilderMessage, Envelope};
use livetime_wire::{UnitId, UnitKind};

use crate::message_exchange::{MessageCounts, Outgoing};

/// One peer: 8 bytes, since a large builder has a quarter of a million pairs.
#[derive(Debug, Clone, Copy, Default)]
struct Peer {
    next_in: u32,
    next_out: u32,
}

/// Peers of one kind, by index.
#[derive(Debug)]
pub(crate) struct PeerTable {
    kind: UnitKind,
    peers: Vec<Peer>,
    /// The epoch of all, while none had a second life.
    epoch: u32,
    /// By peer: its epoch, from the first renewal on.
    epochs: Vec<u32>,
    /// By peer: whether its next message may have any number; empty where none has.
    any_number: Vec<bool>,
    /// By peer: messages with numbers that were there before; empty where none may begin anew.
    repeated: Vec<u32>,
    #[cfg(feature = "mutants")]
    any_epoch: bool,
}

/// How a message stands to those before it from the same peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Its sequence number is new.
    Fresh,
    /// Its sequence number was there before, or was passed over.
    Repeated,
}

impl PeerTable {
    pub(crate) fn new(kind: UnitKind, count: usize, epoch: u32) -> Self {
        Self {
            kind,
            peers: vec![Peer::default(); count],
            epoch,
            epochs: Vec::new(),
            any_number: Vec::new(),
            repeated: Vec::new(),
            #[cfg(feature = "mutants")]
            any_epoch: false,
        }
    }

    /// Breaks what the configuration wants broken.
    #[cfg(feature = "mutants")]
    #[inline]
    pub(crate) fn with_mutant(mut self, config: &crate::BuilderConfig) -> Self {
        self.any_epoch = config.mutant == Some(crate::mutant::Mutant::NoEpoch);
        self
    }

    /// Nothing is broken here.
    #[cfg(not(feature = "mutants"))]
    #[inline]
    pub(crate) fn with_mutant(self, _config: &crate::BuilderConfig) -> Self {
        self
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    /// The life in which a peer is; 0 for one that there is not.
    #[inline]
    pub(crate) fn epoch_of(&self, index: usize) -> u32 {
        match self.epochs.get(index) {
            Some(epoch) => *epoch,
            None if index < self.peers.len() => self.epoch,
            None => 0,
        }
    }

    /// What changes with each message of a peer; 0 for one that there is not.
    pub(crate) fn heard_of(&self, index: usize) -> u32 {
        // A peer whose numbers begin again, after its former ones were taken, is heard all the same.
        let repeated = self.repeated.get(index).copied().unwrap_or(0);
        let next_in = self.peers.get(index).map_or(0, |peer| peer.next_in);
        next_in.wrapping_add(repeated)
    }

    /// Where the numbers of a peer are.
    #[inline]
    pub(crate) fn foresee(&self, index: usize) -> Option<&u32> {
        Some(&self.peers.get(index)?.next_in)
    }

    /// A peer begins a new life: only messages of its new epoch count, and the sequence numbers of
    /// both directions start again. Allocates the first time; this is not the data path.
    pub(crate) fn renew(&mut self, index: u16, epoch: u32) {
        let index = usize::from(index);
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        *peer = Peer::default();
        if let Some(any_number) = self.any_number.get_mut(index) {
            *any_number = false;
        }
        if epoch != self.epoch && self.epochs.is_empty() {
            self.epochs = vec![self.epoch; self.peers.len()];
        }
        if let Some(own) = self.epochs.get_mut(index) {
            *own = epoch;
        }
    }

    /// As [`PeerTable::renew`], of a peer for which this unit's epoch stays the same: it may still get
    /// what was said to its former life. Numbers go on, so that this does not pass for what is new.
    pub(crate) fn renew_hearer(&mut self, index: u16, epoch: u32) {
        let next_out = self.peers.get(usize::from(index)).map(|peer| peer.next_out);
        self.renew(index, epoch);
        if let (Some(peer), Some(next_out)) = (self.peers.get_mut(usize::from(index)), next_out) {
            peer.next_out = next_out;
        }
    }

    /// This unit is in the place of another, which the peers had talked to: their numbers go on.
    pub(crate) fn take_any_number(&mut self) {
        self.any_number = vec![true; self.peers.len()];
        self.repeated = vec![0; self.peers.len()];
    }

    /// Checks sender, epoch and sequence; `None` when the message is refused (and counted).
    pub(crate) fn receive(
        &mut self,
        envelope: &Envelope,
        counts: &mut MessageCounts,
    ) -> Option<Arrival> {
        debug_assert_eq!(envelope.sender.kind, self.kind);
        let index = usize::from(envelope.sender.index);
        let epoch = self.epoch_of(index);
        let Some(peer) = self.peers.get_mut(index) else {
            counts.strangers += 1;
            return None;
        };
        let is_fenced = envelope.epoch != epoch;
        #[cfg(feature = "mutants")]
        let is_fenced = is_fenced && !self.any_epoch;
        if is_fenced {
            counts.wrong_epoch += 1;
            return None;
        }
        counts.received += 1;
        if let Some(any_number) = self.any_number.get_mut(index)
            && std::mem::take(any_number)
        {
            peer.next_in = envelope.sequence;
        }
        let ahead = envelope.sequence.wrapping_sub(peer.next_in).cast_signed();
        if ahead < 0 {
            counts.repeated += 1;
            if let Some(repeated) = self.repeated.get_mut(index) {
                *repeated = repeated.wrapping_add(1);
            }
            return Some(Arrival::Repeated);
        }
        counts.missing += u64::from(ahead.cast_unsigned());
        peer.next_in = envelope.sequence.wrapping_add(1);
        Some(Arrival::Fresh)
    }

    /// Takes the next message of a peer off a link that numbers none; false when there is no such peer,
    /// which is counted.
    #[inline]
    pub(crate) fn receive_next(&mut self, index: usize, counts: &mut MessageCounts) -> bool {
        let Some(peer) = self.peers.get_mut(index) else {
            counts.strangers += 1;
            return false;
        };
        counts.received += 1;
        peer.next_in = peer.next_in.wrapping_add(1);
        true
    }

    /// The sequence number of the next message to peer `to`, which is thereby spent.
    #[inline]
    pub(crate) fn next_sequence(&mut self, to: usize, counts: &mut MessageCounts) -> u32 {
        counts.sent += 1;
        let peer = &mut self.peers[to];
        let sequence = peer.next_out;
        peer.next_out = sequence.wrapping_add(1);
        sequence
    }

    /// A message of `sender` to peer `to`.
    pub(crate) fn send(
        &mut self,
        sender: UnitId,
        epoch: u32,
        to: usize,
        message: BuilderMessage,
        counts: &mut MessageCounts,
    ) -> Outgoing {
        let sequence = self.next_sequence(to, counts);
        Outgoing {
            to: UnitId {
                kind: self.kind,
                index: to as u16,
            },
            envelope: Envelope {
                sender,
                epoch,
                sequence,
                message,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(index: u16, epoch: u32, sequence: u32) -> Envelope {
        Envelope {
            sender: UnitId::builder(index),
            epoch,
            sequence,
            message: BuilderMessage::EventRequest { credits: 1 },
        }
    }

    #[test]
    fn a_peer_whose_numbers_begin_again_is_heard() {
        let mut table = PeerTable::new(UnitKind::Builder, 1, 7);
        table.take_any_number();
        let mut counts = MessageCounts::default();
        let mut heard = [1_000_000, 0, 1, 2].map(|sequence| {
            let arrival = table.receive(&envelope(0, 7, sequence), &mut counts);
            let is_fresh = sequence == 1_000_000;
            assert_eq!(arrival == Some(Arrival::Fresh), is_fresh, "{arrival:?}");
            table.heard_of(0)
        });
        heard.sort_unstable();
        assert!(heard.windows(2).all(|two| two[0] < two[1]), "{heard:?}");
    }

    #[test]
    fn sequence_numbers_show_gaps_and_repetitions_across_the_wrap() {
        let mut table = PeerTable::new(UnitKind::Builder, 1, 7);
        table.peers[0].next_in = u32::MAX;
        let mut counts = MessageCounts::default();
        let mut receive = |sequence| table.receive(&envelope(0, 7, sequence), &mut counts);
        assert_eq!(receive(u32::MAX), Some(Arrival::Fresh));
        assert_eq!(receive(u32::MAX), Some(Arrival::Repeated));
        assert_eq!(receive(0), Some(Arrival::Fresh));
        assert_eq!(receive(3), Some(Arrival::Fresh));
        assert_eq!(receive(2), Some(Arrival::Repeated));
        assert_eq!(receive(4), Some(Arrival::Fresh));
        assert_eq!((counts.missing, counts.repeated), (2, 2));
        assert_eq!(counts.received, 6);
    }

    #[test]
    fn strangers_and_other_epochs_are_refused_and_counted() {
        let mut table = PeerTable::new(UnitKind::Builder, 2, 7);
        let mut counts = MessageCounts::default();
        assert_eq!(table.receive(&envelope(2, 7, 0), &mut counts), None);
        assert_eq!(table.receive(&envelope(1, 6, 0), &mut counts), None);
        assert_eq!(table.receive(&envelope(1, 8, 0), &mut counts), None);
        assert_eq!((counts.strangers, counts.wrong_epoch), (1, 2));
        assert_eq!(counts.received, 0);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_renewed_peer_starts_again_and_its_past_is_refused() {
        let mut table = PeerTable::new(UnitKind::Builder, 2, 7);
        let mut counts = MessageCounts::default();
        assert!(table.receive(&envelope(1, 7, 5), &mut counts).is_some());
        table.next_sequence(1, &mut counts);
        table.renew(1, 8);
        table.renew(9, 8);
        assert_eq!(table.receive(&envelope(1, 7, 6), &mut counts), None);
        let fresh = table.receive(&envelope(1, 8, 0), &mut counts);
        assert_eq!(fresh, Some(Arrival::Fresh));
        assert_eq!(table.next_sequence(1, &mut counts), 0);
        assert!(table.receive(&envelope(0, 7, 0), &mut counts).is_some());
        assert_eq!(counts.wrong_epoch, 1);
    }

    #[test]
    fn what_was_said_to_a_former_life_is_not_newer_than_what_is_said_to_the_next() {
        let mut counts = MessageCounts::default();
        let mut sender = PeerTable::new(UnitKind::Readout, 2, 7);
        let mut sent = |table: &mut PeerTable| table.next_sequence(1, &mut counts);
        let late: Vec<u32> = (0..3).map(|_| sent(&mut sender)).collect();
        sender.renew_hearer(1, 8);
        sender.renew_hearer(9, 8);
        let new: Vec<u32> = (0..3).map(|_| sent(&mut sender)).collect();
        assert_eq!((&late[..], &new[..]), (&[0, 1, 2][..], &[3, 4, 5][..]));

        let mut counts = MessageCounts::default();
        let mut hearer = PeerTable::new(UnitKind::Builder, 2, 7);
        hearer.take_any_number();
        let mut arrival = |number| hearer.receive(&envelope(1, 7, number), &mut counts);
        assert_eq!(arrival(late[2]), Some(Arrival::Fresh));
        assert_eq!(arrival(new[0]), Some(Arrival::Fresh));
        assert_eq!(arrival(late[1]), Some(Arrival::Repeated));
        assert_eq!(arrival(new[2]), Some(Arrival::Fresh));
        assert_eq!((counts.missing, counts.repeated), (1, 1));
        // After so many that a number has gone half round.
        hearer.take_any_number();
        let far = hearer.receive(&envelope(1, 7, 1 << 31), &mut counts);
        assert_eq!((far, counts.missing), (Some(Arrival::Fresh), 1));
    }

    #[test]
    fn each_peer_has_its_own_sequence() {
        let mut table = PeerTable::new(UnitKind::Readout, 2, 0);
        let mut counts = MessageCounts::default();
        let sequences: Vec<u32> = [0, 1, 1, 0]
            .map(|to| table.next_sequence(to, &mut counts))
            .into();
        assert_eq!(sequences, [0, 0, 1, 1]);
        assert_eq!(counts.sent, 4);
    }
}
