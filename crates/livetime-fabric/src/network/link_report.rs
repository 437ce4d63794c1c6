//! What each link and each buffer of a network did while a run counted.
//!
//! A [`LinkReport`] holds every link; who prints one for people takes a [`Spread`] and the first
//! few of [`LinkReport::busiest`] and [`LinkReport::most_blocked`]. How the times are counted is in
//! `link_meter`.

use crate::time::DurationPs;

use super::topology::{Link, LinkEnd};

/// A link, and the input of the element behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkUse {
    /// Its ends and its speed.
    pub link: Link,
    /// Its rate, bits per second.
    pub bits_per_s: u64,
    /// What it has as a delay of its own.
    pub delay: DurationPs,
    /// Time in which bytes went over it: at its rate, or without buffers at that of the slowest
    /// link of their path, as long as the packet takes.
    pub busy: DurationPs,
    /// Time in which packets that had come over it waited and none of them went on. Without
    /// buffers: in which the packet that held it waited for another link.
    pub blocked: DurationPs,
    /// The part of it in which others stood behind a head that waited. Where each output has a queue
    /// of its own nobody does; without buffers all that is blocked is.
    pub head_of_line: DurationPs,
}

/// Whose a buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferOwner {
    /// An input of an element.
    Input {
        /// The element.
        element: u32,
        /// Its input port.
        port: u32,
    },
    /// An output of an element.
    Output {
        /// The element.
        element: u32,
        /// Its output port.
        port: u32,
    },
    /// The crosspoint of an input and an output of an element.
    Crosspoint {
        /// The element.
        element: u32,
        /// Its input port.
        input: u32,
        /// Its output port.
        output: u32,
    },
    /// A whole element.
    Element(u32),
}

/// A buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BufferUse {
    /// Whose it is.
    pub owner: BufferOwner,
    /// Bytes in it, taken and promised ones, averaged over time.
    pub mean_bytes: f64,
    /// The most bytes in it.
    pub max_bytes: u64,
}

/// Least, mean and greatest of some values; all 0 if there are none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
}

/// All links and buffers of a network.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkReport {
    /// Simulated time that was counted.
    pub counted: DurationPs,
    /// Rate of a node's link that has none of its own, bits per second.
    pub node_bits_per_s: u64,
    /// Links in the order of [`super::Topology::links`].
    pub links: Vec<LinkUse>,
    /// Buffers, those of inputs or elements first; none without buffers.
    pub buffers: Vec<BufferUse>,
    /// Numbers of the links that packets wait for at the end, since another packet holds the link or
    /// the buffer behind it has no room: those that stand still, where nothing moves any more.
    pub waited_for: Vec<u32>,
}

impl Spread {
    /// Of these values.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let (mut count, mut sum) = (0_u64, 0.0);
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            count += 1;
            sum += value;
            (min, max) = (min.min(value), max.max(value));
        }
        match count {
            0 => Self::default(),
            _ => Self {
                min,
                mean: sum / count as f64,
                max,
            },
        }
    }
}

impl LinkReport {
    /// A time as a share of the counted one, from 0 to 1.
    pub fn share(&self, time: DurationPs) -> f64 {
        time.0 as f64 / self.counted.0.max(1) as f64
    }

    /// Up to `count` links, the busiest first, equal ones in their order.
    pub fn busiest(&self, count: usize) -> Vec<&LinkUse> {
        self.first_by(count, |link| link.busy)
    }

    /// Up to `count` links that were blocked at all, the longest blocked first.
    pub fn most_blocked(&self, count: usize) -> Vec<&LinkUse> {
        let mut links = self.first_by(count, |link| link.blocked);
        links.retain(|link| link.blocked > DurationPs::ZERO);
        links
    }

    /// Up to `count` buffers, those with the most bytes on average first.
    pub fn fullest(&self, count: usize) -> Vec<&BufferUse> {
        let mut buffers: Vec<&BufferUse> = self.buffers.iter().collect();
        buffers.sort_by(|a, b| b.mean_bytes.total_cmp(&a.mean_bytes));
        buffers.truncate(count);
        buffers
    }

    /// The links that packets wait for at the end, with their numbers: those between elements first,
    /// which a circle is of.
    pub fn links_waited_for(&self) -> Vec<(u32, &LinkUse)> {
        let numbers = self.waited_for.iter();
        let link = |number: &u32| Some((*number, self.links.get(*number as usize)?));
        let mut links: Vec<(u32, &LinkUse)> = numbers.filter_map(link).collect();
        let is_port = |end| matches!(end, LinkEnd::Port { .. });
        links.sort_by_key(|(_, link)| !(is_port(link.link.from) && is_port(link.link.to)));
        links
    }

    fn first_by(&self, count: usize, time: impl Fn(&LinkUse) -> DurationPs) -> Vec<&LinkUse> {
        let mut links: Vec<&LinkUse> = self.links.iter().collect();
        links.sort_by_key(|link| core::cmp::Reverse(time(link)));
        links.truncate(count);
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_and_orders() {
        assert_eq!(Spread::of(core::iter::empty()), Spread::default());
        let spread = Spread::of([1.0, 4.0, 1.0].into_iter());
        assert_eq!((spread.min, spread.mean, spread.max), (1.0, 2.0, 4.0));
        let link = |source, busy, blocked| LinkUse {
            link: Link {
                from: LinkEnd::Source(source),
                to: LinkEnd::Destination(0),
                speed: 1,
            },
            bits_per_s: 1_000,
            delay: DurationPs::ZERO,
            busy: DurationPs(busy),
            blocked: DurationPs(blocked),
            head_of_line: DurationPs(0),
        };
        let report = LinkReport {
            counted: DurationPs(100),
            node_bits_per_s: 1_000,
            links: vec![link(0, 10, 5), link(1, 70, 0), link(2, 20, 30)],
            buffers: Vec::new(),
            waited_for: vec![0, 2],
        };
        let sources = |links: Vec<&LinkUse>| -> Vec<LinkEnd> {
            links.iter().map(|link| link.link.from).collect()
        };
        let source = LinkEnd::Source;
        assert_eq!(sources(report.busiest(2)), [source(1), source(2)]);
        assert_eq!(sources(report.most_blocked(9)), [source(2), source(0)]);
        let mut report = report;
        let port = |element| LinkEnd::Port { element, port: 0 };
        report.links[2].link = Link {
            from: port(0),
            to: port(1),
            speed: 1,
        };
        let waited_for = report.links_waited_for().into_iter();
        assert_eq!(
            waited_for.map(|(number, _)| number).collect::<Vec<u32>>(),
            [2, 0]
        );
        assert_eq!(report.share(report.links[1].busy), 0.7);
    }
}
