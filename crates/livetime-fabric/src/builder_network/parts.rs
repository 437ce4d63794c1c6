//! Fragments that are larger than a packet may be: cut where they are sent, whole where all of it came.
//!
//! The adapter sends the parts one after the other, each a packet like any other: with overhead and
//! work of its own, by a route of its own. A builder unit has a fragment when its last part has
//! come, in whatever order they do. One that lacks a part is none, as a datagram without one of its
//! frames, and is asked for again.

use livetime_wire::RunNs;

use super::adapter::{Cargo, Sending, Wanted};
use super::world::NetworkWorld;

/// What becomes of a fragment when nothing more comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is whole.
    Whole,
    /// A part was lost.
    Lost,
    /// Its builder or readout unit died.
    Withdrawn,
}

/// A fragment of which not all has come.
#[derive(Debug, Clone, Copy)]
struct Cut {
    sending: Sending,
    /// Bytes that were not sent yet.
    unsent: u32,
    /// Packets on their way.
    on_way: u32,
    fate: Fate,
}

/// All that are cut.
#[derive(Debug)]
pub(super) struct Parts {
    /// Bytes of the largest packet.
    mtu: u32,
    cuts: Vec<Option<Cut>>,
    free: Vec<u32>,
}

impl Parts {
    /// Of packets of at most so many bytes; `None` for 0, any size.
    pub(super) fn new(mtu: u32) -> Option<Self> {
        (mtu > 0).then(|| Self {
            mtu,
            cuts: Vec::new(),
            free: Vec::new(),
        })
    }

    /// Fragments of which not all has come.
    pub(super) fn open(&self) -> u64 {
        (self.cuts.len() - self.free.len()) as u64
    }

    /// Takes a fragment that no packet has room for; its number.
    fn begin(&mut self, sending: Sending) -> u32 {
        let cut = Cut {
            sending,
            unsent: sending.bytes,
            on_way: 0,
            fate: Fate::Whole,
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.cuts.push(None);
            self.cuts.len() as u32 - 1
        });
        self.cuts[number as usize] = Some(cut);
        number
    }

    fn cut_mut(&mut self, number: u32) -> &mut Cut {
        let cut = self.cuts[number as usize].as_mut();
        cut.expect("a number is free once all of its fragment is gone")
    }

    /// Where the next packet of a fragment goes, its bytes, and whether another follows.
    fn next(&mut self, number: u32) -> (u16, u32, bool) {
        let mtu = self.mtu;
        let cut = self.cut_mut(number);
        let bytes = cut.unsent.min(mtu);
        cut.unsent -= bytes;
        cut.on_way += 1;
        (cut.sending.port, bytes, cut.unsent > 0)
    }

    /// A packet has come, or will not; the fragment and what becomes of it if that was the last one.
    fn end(&mut self, number: u32, fate: Fate) -> Option<(Sending, Fate)> {
        let cut = self.cut_mut(number);
        cut.on_way -= 1;
        cut.spoil(fate);
        self.settle(number)
    }

    /// What is not sent yet will not be; as [`Parts::end`], if nothing is on its way.
    fn break_off(&mut self, number: u32) -> Option<(Sending, Fate)> {
        let cut = self.cut_mut(number);
        cut.unsent = 0;
        cut.spoil(Fate::Withdrawn);
        self.settle(number)
    }

    /// The unit at a port died with what it had of them.
    pub(super) fn withdraw(&mut self, port: u16) {
        let cuts = self.cuts.iter_mut().flatten();
        for cut in cuts.filter(|cut| cut.sending.port == port) {
            cut.spoil(Fate::Withdrawn);
        }
    }

    fn settle(&mut self, number: u32) -> Option<(Sending, Fate)> {
        let cut = *self.cut_mut(number);
        if cut.unsent > 0 || cut.on_way > 0 {
            return None;
        }
        self.cuts[number as usize] = None;
        self.free.push(number);
        Some((cut.sending, cut.fate))
    }
}

impl Cut {
    /// The first misfortune counts.
    fn spoil(&mut self, fate: Fate) {
        if self.fate == Fate::Whole {
            self.fate = fate;
        }
    }
}

impl NetworkWorld<'_> {
    /// What the link of an adapter sends next; a block is put beside cargo `tag`.
    #[inline]
    pub(super) fn next_wanted(&mut self, adapter: usize, tag: u32, now: RunNs) -> Wanted {
        let adapter = &mut self.adapters[adapter];
        let block = &mut self.blocks[tag as usize];
        let Some(parts) = &mut self.parts else {
            return adapter.next(now, block);
        };
        let number = match adapter.cut.take() {
            Some(number) => number,
            None => match adapter.next(now, block) {
                Wanted::Packet {
                    cargo: Cargo::Fragment(sending),
                    ..
                } if sending.bytes > parts.mtu => parts.begin(sending),
                other => return other,
            },
        };
        let (port, bytes, goes_on) = parts.next(number);
        adapter.cut = goes_on.then_some(number);
        let cargo = Cargo::Part(number);
        Wanted::Packet { port, bytes, cargo }
    }

    /// A packet of a cut fragment has come, or will not; the fragment, if it is whole now.
    pub(super) fn end_part(&mut self, number: u32, fate: Fate) -> Option<Sending> {
        let ended = self.parts.as_mut()?.end(number, fate);
        self.count_cut(ended)
    }

    /// The adapter's readout unit died in the middle of a fragment.
    pub(super) fn break_off(&mut self, adapter: usize) {
        if let (Some(number), Some(parts)) = (self.adapters[adapter].cut.take(), &mut self.parts) {
            let ended = parts.break_off(number);
            self.count_cut(ended);
        }
    }

    fn count_cut(&mut self, ended: Option<(Sending, Fate)>) -> Option<Sending> {
        match ended? {
            (sending, Fate::Whole) => return Some(sending),
            (_, Fate::Lost) => self.tally.lost += 1,
            (_, Fate::Withdrawn) => self.tally.withdrawn += 1,
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::TriggerNumber;

    use super::*;

    fn sending(bytes: u32, port: u16) -> Sending {
        Sending {
            port,
            trigger: TriggerNumber(7),
            bytes,
        }
    }

    #[test]
    fn a_fragment_is_cut_into_full_packets_and_a_rest() {
        let mut parts = Parts::new(1500).unwrap();
        let number = parts.begin(sending(4000, 3));
        let sent: Vec<_> = (0..3).map(|_| parts.next(number)).collect();
        assert_eq!(sent, [(3, 1500, true), (3, 1500, true), (3, 1000, false)]);
        assert!(parts.end(number, Fate::Whole).is_none());
        assert!(parts.end(number, Fate::Whole).is_none());
        let (whole, fate) = parts.end(number, Fate::Whole).unwrap();
        assert_eq!((whole.bytes, fate, parts.open()), (4000, Fate::Whole, 0));
        assert!(Parts::new(0).is_none());
    }

    #[test]
    fn a_fragment_ends_with_its_last_packet_and_by_its_first_misfortune() {
        let mut parts = Parts::new(1000).unwrap();
        let (one, other) = (parts.begin(sending(2500, 0)), parts.begin(sending(1001, 1)));
        for number in [one, one, other, other] {
            parts.next(number);
        }
        // All that was sent is gone, but not all was sent.
        assert!(parts.end(one, Fate::Lost).is_none());
        assert!(parts.end(one, Fate::Whole).is_none());
        parts.withdraw(0);
        parts.withdraw(1);
        parts.next(one);
        let ended = parts.end(one, Fate::Whole).map(|(_, fate)| fate);
        assert_eq!(ended, Some(Fate::Lost));
        assert!(parts.end(other, Fate::Whole).is_none());
        let ended = parts.end(other, Fate::Lost).map(|(_, fate)| fate);
        assert_eq!(ended, Some(Fate::Withdrawn));
        assert_eq!(parts.open(), 0);
        assert_eq!(
            parts.begin(sending(3000, 0)),
            other,
            "numbers are used again"
        );
    }

    #[test]
    fn what_is_broken_off_ends_when_nothing_is_on_its_way() {
        let mut parts = Parts::new(1000).unwrap();
        let number = parts.begin(sending(2500, 0));
        parts.next(number);
        assert!(parts.break_off(number).is_none());
        let ended = parts.end(number, Fate::Whole).map(|(_, fate)| fate);
        assert_eq!(ended, Some(Fate::Withdrawn));
        let number = parts.begin(sending(2500, 0));
        parts.next(number);
        assert!(parts.end(number, Fate::Whole).is_none());
        assert!(parts.break_off(number).is_some());
    }
}
