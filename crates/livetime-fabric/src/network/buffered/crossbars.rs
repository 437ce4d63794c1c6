//! Schedulers of elements whose inputs and outputs are matched, and who their ports are.
//!
//! An element is to be matched when a packet has come to it, one of its outputs has become idle, an
//! input has become free, or there is room again behind an output. Then every idle output and every
//! free input takes part. With packets of one size that start together, that is once in each packet
//! time, as in the slots of [`crate::cell::MatchedSwitch`]; otherwise it is at each of these events,
//! and pairs that a matching of few iterations has left over are looked at again at the next one.

use crate::matcher::{Matcher, Matching};

use super::super::topology::{LinkEnd, Topology};
use super::inner_links::InnerLinks;

/// No element.
const NONE: u32 = u32::MAX;

/// An element's ports and scheduler.
pub(super) struct Crossbar {
    pub(super) matcher: Matcher,
    /// Links by input port.
    pub(super) inputs: Vec<u32>,
    /// Links by output port: those that packets go to from the inputs.
    pub(super) outputs: Vec<u32>,
    /// How many packets each input may send at once: in so many matchings it takes part.
    pub(super) input_rounds: Vec<u32>,
    /// The most of them.
    pub(super) rounds: u32,
    is_due: bool,
}

/// All elements.
pub(super) struct Crossbars {
    pub(super) elements: Vec<Crossbar>,
    /// The element that gives a link away, by link.
    given_by: Vec<u32>,
    due: Vec<u32>,
}

impl Crossbar {
    /// An input may send as many packets as its rate has room for, each with the share of its
    /// output, at most that of a node.
    fn set_rounds(&mut self, rates: &[u64], node: u64) {
        let outputs = self
            .outputs
            .iter()
            .filter_map(|link| rates.get(*link as usize));
        let share = outputs.fold(node, |least, rate| least.min(*rate));
        for (rounds, link) in self.input_rounds.iter_mut().zip(&self.inputs) {
            let rate = rates.get(*link as usize).copied().unwrap_or(share);
            *rounds = u32::try_from(rate.div_ceil(share)).unwrap_or(u32::MAX);
            self.rounds = self.rounds.max(*rounds);
        }
    }
}

impl Crossbars {
    /// Schedulers for all elements; `rates` are those of all links, bits per second, and `node`
    /// that of a node's.
    pub(super) fn new(
        topology: &Topology,
        matching: Matching,
        inner: &InnerLinks,
        rates: &[u64],
        node: u64,
    ) -> Self {
        let elements = topology.elements();
        let new = |element: &super::super::topology::Element| Crossbar {
            matcher: Matcher::new(element.inputs as usize, element.outputs as usize, matching),
            inputs: vec![NONE; element.inputs as usize],
            outputs: vec![NONE; element.outputs as usize],
            input_rounds: vec![1; element.inputs as usize],
            rounds: 1,
            is_due: false,
        };
        let mut elements: Vec<Crossbar> = elements.iter().map(new).collect();
        let mut given_by = Vec::new();
        for (number, link) in (0..).zip(topology.links()) {
            if let LinkEnd::Port { element, port } = link.to {
                let crossbar = &mut elements[element as usize];
                crossbar.inputs[port as usize] = number;
            }
            if let LinkEnd::Port { element, port } = link.from {
                let link = inner.towards(topology, number);
                elements[element as usize].outputs[port as usize] = link;
                if given_by.len() <= link as usize {
                    given_by.resize(link as usize + 1, NONE);
                }
                given_by[link as usize] = element;
            }
        }
        for crossbar in &mut elements {
            crossbar.set_rounds(rates, node);
        }
        Self {
            due: Vec::with_capacity(elements.len()),
            elements,
            given_by,
        }
    }

    /// Whether an element gives the link away; it is due then.
    pub(super) fn take_over(&mut self, link: u32) -> bool {
        let element = self.given_by.get(link as usize).copied().unwrap_or(NONE);
        if element == NONE {
            return false;
        }
        let crossbar = &mut self.elements[element as usize];
        if !crossbar.is_due {
            crossbar.is_due = true;
            self.due.push(element);
        }
        true
    }

    /// The next element that is due.
    pub(super) fn take_due(&mut self) -> Option<u32> {
        let element = self.due.pop()?;
        self.elements[element as usize].is_due = false;
        Some(element)
    }
}
