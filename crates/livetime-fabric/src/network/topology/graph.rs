//! Any graph of switches, read from a text: shortest routes, all of them, counted and numbered.
//!
//! One statement a line: `switch NAME`, `source NAME SWITCH`, `destination NAME SWITCH`,
//! `node NAME SWITCH` (source and destination), and `link SWITCH SWITCH [SPEED]` for one link each
//! way. Ports are numbered in the order of the statements. Routes are those with the fewest links.

mod waiting_cycle;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Element, LINKS_MAX, NODES_MAX, Parts, ROUTE_LINKS_MAX, Route, Routing, Topology, TopologyError,
};

/// Switches that a graph may have: its distances are stored for each pair of them.
const SWITCHES_MAX: usize = 4096;
/// Fastest link, in multiples of a node's.
const SPEED_MAX: u32 = 1000;

/// A graph as it is written, names replaced by places in the lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Graph {
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
    /// Rate in multiples of a node's link.
    pub speed: u32,
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

impl Graph {
    /// Reads a graph.
    ///
    /// # Errors
    /// All statements that are none, with their lines; a link may have several problems. One that
    /// comes again, such as a switch that is not there, is named where it comes first.
    pub fn parse(text: &str) -> Result<Self, Vec<GraphProblem>> {
        let mut graph = Self::default();
        let mut names = BTreeMap::new();
        let mut problems = Vec::new();
        let mut seen = BTreeSet::new();
        for (index, line) in text.lines().enumerate() {
            let statement = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = statement.split_whitespace().collect();
            let line = index + 1;
            if let Err(found) = graph.read(&words, &mut names) {
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

    fn read(
        &mut self,
        words: &[&str],
        names: &mut BTreeMap<String, u32>,
    ) -> Result<(), Vec<String>> {
        let find = |names: &BTreeMap<String, u32>, name: &str| {
            let missing = || format!("no switch `{name}` above this line");
            names.get(name).copied().ok_or_else(missing)
        };
        match words {
            [] => {}
            ["switch", name] => {
                if self.switches.len() == SWITCHES_MAX {
                    return Err(vec![format!("more than {SWITCHES_MAX} switches")]);
                }
                let number = self.switches.len() as u32;
                if names.insert((*name).to_owned(), number).is_some() {
                    return Err(vec![format!("switch `{name}` is there twice")]);
                }
                self.switches.push((*name).to_owned());
            }
            [kind @ ("source" | "destination" | "node"), name, switch] => {
                let node = GraphNode {
                    name: (*name).to_owned(),
                    switch: find(names, switch).map_err(|problem| vec![problem])?,
                };
                if *kind != "destination" {
                    self.sources.push(node.clone());
                }
                if *kind != "source" {
                    self.destinations.push(node);
                }
            }
            ["link", from, to, speed @ ..] if speed.len() <= 1 => {
                let (from, to) = (find(names, from), find(names, to));
                let speed = match speed {
                    [speed] => speed.parse().ok().filter(|s| (1..=SPEED_MAX).contains(s)),
                    _ => Some(1),
                };
                let allowed = || format!("the speed is a whole number from 1 to {SPEED_MAX}");
                let (from, to, speed) = match (from, to, speed.ok_or_else(allowed)) {
                    (Ok(from), Ok(to), Ok(speed)) => (from, to, speed),
                    (from, to, speed) => {
                        let problems = [from.err(), to.err(), speed.err()];
                        return Err(problems.into_iter().flatten().collect());
                    }
                };
                self.links.push(GraphLink { from, to, speed });
                self.links.push(GraphLink {
                    from: to,
                    to: from,
                    speed,
                });
            }
            _ => {
                let found = words.join(" ");
                return Err(vec![format!(
                    "`{found}` is no statement; allowed are `switch NAME`, `source NAME SWITCH`, \
                     `destination NAME SWITCH`, `node NAME SWITCH`, `link SWITCH SWITCH [SPEED]`"
                )]);
            }
        }
        Ok(())
    }
}

impl Topology {
    /// The fabric of a graph.
    ///
    /// # Errors
    /// [`TopologyError::OutOfRange`] without sources or destinations or with too many, and
    /// [`TopologyError::Unroutable`] when a pair has no route of at most 22 switches.
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
        let routes = GraphRoutes::new(graph, leaving, first_delivery)?;
        Ok(parts.into_topology(Routing::Graph(routes)))
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
                let links = usize::from(routes.distance[pair]);
                if links + 2 > ROUTE_LINKS_MAX {
                    return Err(TopologyError::Unroutable {
                        from: source.name.clone(),
                        to: destination.name.clone(),
                    });
                }
                routes.hops_max = routes.hops_max.max(links + 1);
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
