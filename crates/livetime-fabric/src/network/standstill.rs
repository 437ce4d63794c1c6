//! Packets that stand still for ever, found when a run is over.
//!
//! An engine says of each of its places what it waits for; a place that waits for nothing can go on,
//! and so can one that waits for another that can, whichever of several comes first. What is left over
//! waits in circles, or behind them: nothing that still moves will ever free it. Whoever can go on
//! perhaps is taken to be able to, so that nothing is said to stand still that does not.

/// Packets that stand still for ever: each waits for a link or for room that another one of them holds, or
/// that there will never be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standstill {
    /// How many.
    pub packets: u64,
    /// The sources that sent them or hold them, in order.
    pub sources: Vec<u32>,
    /// The links that they wait for, by number, in order.
    pub links: Vec<u32>,
}

impl Standstill {
    /// Of packets with their sources and the links that they wait for, in any order.
    pub(crate) fn of(mut sources: Vec<u32>, mut links: Vec<u32>) -> Self {
        let packets = sources.len() as u64;
        for numbers in [&mut sources, &mut links] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        Self {
            packets,
            sources,
            links,
        }
    }
}

/// Places of an engine by number, and what they wait for.
#[derive(Debug)]
pub(crate) struct Waits {
    can_go: Vec<bool>,
    /// What is waited for, and who waits.
    pairs: Vec<(u32, u32)>,
}

impl Waits {
    /// So many places.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            can_go: vec![false; places],
            pairs: Vec::new(),
        }
    }

    /// A place can go on.
    pub(crate) fn free(&mut self, place: usize) {
        self.can_go[place] = true;
    }

    /// A place goes on once another one does, if it does not for another reason.
    pub(crate) fn wait(&mut self, place: usize, other: usize) {
        self.pairs.push((other as u32, place as u32));
    }

    /// Which places can go on, by number.
    pub(crate) fn settle(mut self) -> Vec<bool> {
        self.pairs.sort_unstable();
        let places = (0..).zip(&self.can_go);
        let can = places.filter(|(_, can_go)| **can_go);
        let mut next: Vec<u32> = can.map(|(place, _)| place).collect();
        while let Some(other) = next.pop() {
            let first = self.pairs.partition_point(|(of, _)| *of < other);
            let behind = self.pairs[first..].iter();
            for (_, place) in behind.take_while(|(of, _)| *of == other) {
                if !std::mem::replace(&mut self.can_go[*place as usize], true) {
                    next.push(*place);
                }
            }
        }
        self.can_go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_and_what_is_behind_them_stand_still() {
        let mut waits = Waits::new(7);
        // 0 -> 1 -> 2 -> 0, 3 behind it; 4 waits for 3 or for 5, which waits for 6.
        for (place, other) in [(0, 1), (1, 2), (2, 0), (3, 0), (4, 3), (4, 5), (5, 6)] {
            waits.wait(place, other);
        }
        waits.free(6);
        let can_go = [false, false, false, false, true, true, true];
        assert_eq!(waits.settle(), can_go);
    }
}
