//! Any graph of switches, read from a text: shortest routes, all of them, counted and numbered.
//!
//! One statement a line: `switch NAME`, `source NAME SWITCH`, `destination NAME SWITCH`,
//! `node NAME SWITCH` (source and destination), and `link SWITCH SWITCH [SPEED]` for one link each
//! way. Ports are numbered in the order of the statements. Routes are those with the fewest links,
//! however slow or long these are. Statements of links may end in `rate=RATE`, instead of a speed,
//! and in `delay=TIME`: they become the [`Cable`] of the node or link, and of the topology's links.

mod waiting_cycle;

use std::collections::{BTreeMap, BTreeSet};

use livetime_wire::quantity::QuantityError;
use livetime_wire::{BitRate, DurationNs};

use crate::time::DurationPs;

use super::{
    Cable, Element, LINKS_MAX, NODES_MAX, PORTS_MAX, Parts, RATES, ROUTE_LINKS_MAX, Route, Routing,
    Topology, TopologyError,
};

/// Switches that a graph may have: its distances are stored for each pair of them.
const SWITCHES_MAX: usize = 4096;
/// Fastest link, in multiples of a node's.
const SPEED_MAX: u32 = 1000;

/// The longest delay of its own.
const DELAY_MAX: DurationNs = DurationNs(1_000_000_000);

/// A graph as it is written, names replaced by places in the lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Graph {
    /// Name of its file, for problems.
    pub file: String,
    /// Names of the switches.
    pub switches: Vec<String>,
    /// Sources in the order of their numbers.
    pub sources: Vec<GraphNode>,
    /// Destinations in the order of their numbers.
    pub destinations: Vec<GraphNode>,
    /// Links between switches, each one way.
    pub links: Vec<GraphLink>,
}

/// A source or destination of a [`Graph`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphNode {
    /// Name.
    pub name: String,
    /// The switch it is attached to, as a place in [`Graph::switches`].
    pub switch: u32,
    /// What its link has of its own.
    pub cable: Cable,
    /// Line of the text, counted from 1.
    pub line: usize,
}

/// A statement of a graph that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct GraphProblem {
    /// Line of the text, counted from 1.
    pub line: usize,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

/// A link between switches of a [`Graph`], one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphLink {
    /// Switch it comes from.
    pub from: u32,
    /// Switch it goes to.
    pub to: u32,
    /// Rate in multiples of a node's link; 1 where the cable has a rate.
    pub speed: u32,
    /// What it has of its own.
    pub cable: Cable,
    /// Line of the text, counted from 1.
    pub line: usize,
}

#[derive(Debug, Clone)]
pub(super) struct GraphRoutes {
    source_switch: Vec<u32>,
    destination_switch: Vec<u32>,
    switches: usize,
    /// Links that leave each switch: (link number, next switch).
    leaving: Vec<Vec<(u32, u32)>>,
    /// Links between switches from one to another, and the number of shortest routes.
    distance: Vec<u16>,
    routes: Vec<u64>,
    first_delivery: u32,
    hops_max: usize,
}

/// Names that are taken: those of switches with their places. A source and a destination may have one
/// name, as the two sides of a node have.
#[derive(Default)]
struct Names {
    switches: BTreeMap<String, u32>,
    sources: BTreeSet<String>,
    destinations: BTreeSet<String>,
}

impl Names {
    /// Takes the name of a node for the sides that it has, and says for which it was taken before.
    fn take_node(&mut self, kind: &str, name: &str) -> Vec<String> {
        let sides = [
            ("source", "destination", &mut self.sources),
            ("destination", "source", &mut self.destinations),
        ];
        let sides = sides.into_iter().filter(|(_, other, _)| kind != *other);
        let twice = sides.filter_map(|(side, _, taken)| {
            let is_new = taken.insert(name.to_owned());
            (!is_new).then(|| format!("{side} `{name}` is there twice"))
        });
        twice.collect()
    }
}

impl Graph {
    /// Reads a graph.
    ///
    /// # Errors
    /// All statements that are none, with their lines; a link may have several problems. One that
    /// comes again, such as a switch that is not there, is named where it comes first.
    pub fn parse(text: &str) -> Result<Self, Vec<GraphProblem>> {
        let mut graph = Self::default();
        let mut names = Names::default();
        let mut problems = Vec::new();
        let mut seen = BTreeSet::new();
        for (index, line) in text.lines().enumerate() {
            let statement = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = statement.split_whitespace().collect();
            let line = index + 1;
            if let Err(found) = graph.read(line, &words, &mut names) {
                let found = found
                    .into_iter()
                    .filter(|problem| seen.insert(problem.clone()));
                problems.extend(found.map(|problem| GraphProblem { line, problem }));
            }
        }
        match problems.is_empty() {
            true => Ok(graph),
            false => Err(problems),
        }
    }

    fn read(&mut self, line: usize, words: &[&str], names: &mut Names) -> Result<(), Vec<String>> {
        let find = |names: &Names, name: &str| {
            let missing = || format!("no switch `{name}` above this line");
            names.switches.get(name).copied().ok_or_else(missing)
        };
        match words {
            [] => {}
            ["switch", name] => {
                if self.switches.len() == SWITCHES_MAX {
                    return Err(vec![format!("more than {SWITCHES_MAX} switches")]);
                }
                // The first one keeps its place, which later lines name.
                if names.switches.contains_key(*name) {
                    return Err(vec![format!("switch `{name}` is there twice")]);
                }
                let number = self.switches.len() as u32;
                names.switches.insert((*name).to_owned(), number);
                self.switches.push((*name).to_owned());
            }
            [
                kind @ ("source" | "destination" | "node"),
                name,
                switch,
                own @ ..,
            ] if are_attributes(own) => {
                let mut problems = names.take_node(kind, name);
                let switch = find(names, switch).unwrap_or_else(|problem| {
                    problems.push(problem);
                    0
                });
                let cable = read_cable(own, None, &mut problems);
                if !problems.is_empty() {
                    return Err(problems);
                }
                let node = GraphNode {
                    name: (*name).to_owned(),
                    switch,
                    cable,
                    line,
                };
                if *kind != "destination" {
                    self.sources.push(node.clone());
                }
                if *kind != "source" {
                    self.destinations.push(node);
                }
            }
            ["link", from, to, rest @ ..] if are_link_words(rest) => {
                self.read_link(line, [find(names, from), find(names, to)], rest)?;
            }
            _ => {
                let found = words.join(" ");
                return Err(vec![format!(
                    "`{found}` is no statement; allowed are `switch NAME`, `source NAME SWITCH`, \
                     `destination NAME SWITCH`, `node NAME SWITCH`, `link SWITCH SWITCH [SPEED]`, \
                     all but the first with `rate=RATE` and `delay=TIME` behind, without spaces in \
                     them"
                )]);
            }
        }
        Ok(())
    }

    /// Reads what is behind `link`: its ends, and then a speed or attributes.
    fn read_link(
        &mut self,
        line: usize,
        ends: [Result<u32, String>; 2],
        rest: &[&str],
    ) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        let [from, to] = ends.map(|end| {
            end.unwrap_or_else(|problem| {
                problems.push(problem);
                0
            })
        });
        if problems.is_empty() && from == to {
            let name = &self.switches[from as usize];
            problems.push(format!(
                "a link from switch `{name}` to itself; allowed are two switches"
            ));
        }
        let (speed, own) = match rest {
            [speed, own @ ..] if !speed.contains('=') => (Some(*speed), own),
            own => (None, own),
        };
        let multiple = match speed {
            Some(speed) => speed.parse().ok().filter(|s| (1..=SPEED_MAX).contains(s)),
            None => Some(1),
        };
        if multiple.is_none() {
            let problem = format!("the speed is a whole number from 1 to {SPEED_MAX}");
            problems.push(problem);
        }
        let cable = read_cable(own, speed, &mut problems);
        let (Some(speed), true) = (multiple, problems.is_empty()) else {
            return Err(problems);
        };
        for (from, to) in [(from, to), (to, from)] {
            self.links.push(GraphLink {
                from,
                to,
                speed,
                cable,
                line,
            });
        }
        Ok(())
    }

    /// The cables of all links, in the order of the topology's; none if no link has anything of its
    /// own.
    fn cables(&self) -> Vec<Cable> {
        let of_nodes =
            |nodes: &[GraphNode]| -> Vec<Cable> { nodes.iter().map(|node| node.cable).collect() };
        let mut cables = of_nodes(&self.sources);
        cables.extend(self.links.iter().map(|link| link.cable));
        cables.extend(of_nodes(&self.destinations));
        match cables.iter().all(|cable| *cable == Cable::default()) {
            true => Vec::new(),
            false => cables,
        }
    }

    /// The node or link of a topology's link, counted as there: the line that states it, and what
    /// it is called.
    pub fn statement(&self, link: usize) -> Option<(usize, String)> {
        let switch = |switch: u32| &self.switches[switch as usize];
        let of_node = |kind, node: &GraphNode| (node.line, format!("{kind} `{}`", node.name));
        let between = self.sources.len() + self.links.len();
        if let Some(source) = self.sources.get(link) {
            return Some(of_node("source", source));
        }
        if let Some(link) = self.links.get(link - self.sources.len()) {
            let name = format!("link from `{}` to `{}`", switch(link.from), switch(link.to));
            return Some((link.line, name));
        }
        let destination = self.destinations.get(link - between)?;
        Some(of_node("destination", destination))
    }
}

/// Whether words are meant as attributes, each a key and a value.
fn are_attributes(words: &[&str]) -> bool {
    words.iter().all(|word| word.contains('='))
}

/// Whether words are meant as a speed and attributes, or as one of both.
fn are_link_words(words: &[&str]) -> bool {
    match words {
        [first, own @ ..] if !first.contains('=') => are_attributes(own),
        own => are_attributes(own),
    }
}

/// The cable of some attributes; `speed` is what stands before them. What is wrong with them is
/// added to the problems.
fn read_cable(attributes: &[&str], speed: Option<&str>, problems: &mut Vec<String>) -> Cable {
    let mut cable = Cable::default();
    let mut seen = BTreeSet::new();
    for attribute in attributes {
        let (key, value) = attribute.split_once('=').unwrap_or((attribute, ""));
        if !seen.insert(key) {
            problems.push(format!("`{key}` is there twice"));
            continue;
        }
        let refused = |error: QuantityError, allowed: &str| {
            format!("`{attribute}`: {error}; allowed is {allowed}")
        };
        match key {
            "rate" => match bit_rate(value) {
                Ok(rate) => cable.bits_per_s = Some(rate),
                Err(error) => problems.push(refused(
                    error,
                    "a rate from 1 kb/s to 100 Tb/s, such as `rate=25Gb/s`",
                )),
            },
            "delay" => match delay(value) {
                Ok(delay) => cable.delay = delay,
                Err(error) => {
                    let allowed = "a time from 0 ns to 1 s, such as `delay=5us`";
                    problems.push(refused(error, allowed));
                }
            },
            _ => problems.push(format!(
                "`{key}` is no key of a link; allowed are `rate=RATE` and `delay=TIME`"
            )),
        }
    }
    if let (Some(speed), true) = (speed, seen.contains("rate")) {
        problems.push(format!(
            "a speed of `{speed}` and a `rate` for one link; allowed is one of them"
        ));
    }
    cable
}

fn bit_rate(text: &str) -> Result<u64, QuantityError> {
    let BitRate(rate) = text.parse()?;
    let allowed = RATES.contains(&rate).then_some(rate);
    allowed.ok_or(QuantityError::OutOfRange)
}

fn delay(text: &str) -> Result<DurationPs, QuantityError> {
    let delay: DurationNs = text.parse()?;
    let allowed = (delay <= DELAY_MAX).then_some(DurationPs::from_duration_ns(delay));
    allowed.ok_or(QuantityError::OutOfRange)
}

impl Topology {
    /// The fabric of a graph.
    ///
    /// # Errors
    /// [`TopologyError::OutOfRange`] without sources or destinations or with too many,
    /// [`TopologyError::TooManyPorts`] of a switch, [`TopologyError::Unroutable`] when a pair has no route, and [`TopologyError::TooFar`] when it
    /// has none of at most [`ROUTE_LINKS_MAX`] links.
    pub fn graph(graph: &Graph) -> Result<Self, TopologyError> {
        let sources = graph.sources.len() as u32;
        let destinations = graph.destinations.len() as u32;
        super::in_range("sources", sources, 1, NODES_MAX)?;
        super::in_range("destinations", destinations, 1, NODES_MAX)?;
        super::in_range("links", graph.links.len() as u32, 0, LINKS_MAX as u32)?;
        let mut inputs = vec![0; graph.switches.len()];
        let mut outputs = vec![0; graph.switches.len()];
        let take = |ports: &mut Vec<u32>, switch: u32| {
            let port = ports[switch as usize];
            ports[switch as usize] += 1;
            port
        };
        let mut parts = Parts::new(sources, destinations, Vec::new());
        for (s, node) in graph.sources.iter().enumerate() {
            let port = take(&mut inputs, node.switch);
            parts.inject(s as u32, node.switch, port);
        }
        let mut leaving = vec![Vec::new(); graph.switches.len()];
        for link in &graph.links {
            let from = (link.from, take(&mut outputs, link.from));
            let to = (link.to, take(&mut inputs, link.to));
            leaving[link.from as usize].push((parts.links.len() as u32, link.to));
            parts.trunk(from, to, link.speed);
        }
        let first_delivery = parts.links.len() as u32;
        for (d, node) in graph.destinations.iter().enumerate() {
            let port = take(&mut outputs, node.switch);
            parts.deliver(node.switch, port, d as u32);
        }
        parts.elements = inputs
            .iter()
            .zip(&outputs)
            .map(|(inputs, outputs)| Element {
                inputs: *inputs,
                outputs: *outputs,
            })
            .collect();
        for (switch, element) in graph.switches.iter().zip(&parts.elements) {
            for (side, found) in [("inputs", element.inputs), ("outputs", element.outputs)] {
                if found > PORTS_MAX {
                    return Err(TopologyError::TooManyPorts {
                        switch: switch.clone(),
                        side,
                        found,
                    });
                }
            }
        }
        let routes = GraphRoutes::new(graph, leaving, first_delivery)?;
        let mut topology = parts.into_topology(Routing::Graph(routes));
        topology.cables = graph.cables();
        Ok(topology)
    }
}

impl GraphRoutes {
    fn new(
        graph: &Graph,
        leaving: Vec<Vec<(u32, u32)>>,
        first_delivery: u32,
    ) -> Result<Self, TopologyError> {
        let switches = graph.switches.len();
        let of = |nodes: &[GraphNode]| nodes.iter().map(|node| node.switch).collect();
        let mut routes = Self {
            source_switch: of(&graph.sources),
            destination_switch: of(&graph.destinations),
            switches,
            leaving,
            distance: vec![u16::MAX; switches * switches],
            routes: vec![0; switches * switches],
            first_delivery,
            hops_max: 0,
        };
        let mut entering = vec![Vec::new(); switches];
        for link in &graph.links {
            entering[link.to as usize].push(link.from);
        }
        for to in 0..switches {
            routes.walk_back(to, &entering);
        }
        for source in &graph.sources {
            for destination in &graph.destinations {
                let pair = source.switch as usize * switches + destination.switch as usize;
                let (from, to) = (&source.name, &destination.name);
                let links = match routes.distance[pair] {
                    u16::MAX => {
                        return Err(TopologyError::Unroutable {
                            from: from.clone(),
                            to: to.clone(),
                        });
                    }
                    // And those of the nodes.
                    between => usize::from(between) + 2,
                };
                if links > ROUTE_LINKS_MAX {
                    return Err(TopologyError::TooFar {
                        from: from.clone(),
                        to: to.clone(),
                        links,
                    });
                }
                routes.hops_max = routes.hops_max.max(links - 1);
            }
        }
        Ok(routes)
    }

    /// Distances and numbers of shortest routes from all switches to one, nearest first.
    fn walk_back(&mut self, to: usize, entering: &[Vec<u32>]) {
        let at = |from: usize| from * self.switches + to;
        self.distance[at(to)] = 0;
        self.routes[at(to)] = 1;
        let mut ring = vec![to];
        let mut distance = 0;
        while !ring.is_empty() {
            distance += 1;
            let mut next = Vec::new();
            for switch in ring {
                for from in &entering[switch] {
                    let from = *from as usize;
                    if self.distance[at(from)] == u16::MAX {
                        self.distance[at(from)] = distance;
                        next.push(from);
                    }
                    if self.distance[at(from)] == distance {
                        let more = self.routes[at(switch)];
                        self.routes[at(from)] = self.routes[at(from)].saturating_add(more);
                    }
                }
            }
            ring = next;
        }
    }

    pub(super) const fn hops_max(&self) -> usize {
        self.hops_max
    }

    pub(super) fn route_count(&self, source: u32, destination: u32) -> u64 {
        let from = self.source_switch[source as usize] as usize;
        let to = self.destination_switch[destination as usize] as usize;
        self.routes[from * self.switches + to]
    }

    pub(super) fn route(&self, source: u32, destination: u32, choice: u64, route: &mut Route) {
        let mut at = self.source_switch[source as usize] as usize;
        let to = self.destination_switch[destination as usize] as usize;
        let mut left = choice % self.routes[at * self.switches + to];
        while at != to {
            let distance = self.distance[at * self.switches + to] - 1;
            for (link, next) in &self.leaving[at] {
                let pair = *next as usize * self.switches + to;
                if self.distance[pair] != distance {
                    continue;
                }
                if left < self.routes[pair] {
                    route.push(*link);
                    at = *next as usize;
                    break;
                }
                left -= self.routes[pair];
            }
        }
        route.push(self.first_delivery + destination);
    }
}
