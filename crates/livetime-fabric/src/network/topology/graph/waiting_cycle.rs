//! Whether links of a graph can wait for each other in a circle: its packets can then stand still for
//! ever.
//!
//! A packet that holds a link and waits for the next one of its route makes the first depend on the
//! second. If these dependencies have no cycle, there is no deadlock, whatever the traffic (Dally and
//! Seitz, IEEE Trans. Comput. 36(5), 1987). Constructed networks have none: their routes lead through
//! stages in one order, or up and then down.

use super::{GraphRoutes, Routing, Topology};

/// Pairs of links behind each other times destinations that are looked at; beyond it nothing is said.
const STEPS_MAX: usize = 200_000_000;

/// A link of the search: not seen, on the way from where it began, or without a cycle behind it.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Not,
    OnTheWay,
    Done,
}

impl Topology {
    /// Switches in the order in which links between them can wait for each other, the first one again
    /// at the end; `None` where no packet can wait for itself, or the graph is too large to tell.
    pub fn waiting_cycle(&self) -> Option<Vec<u32>> {
        match &self.routing {
            Routing::Graph(graph) => graph.waiting_cycle(),
            _ => None,
        }
    }

    /// Whether links might wait for each other in a circle: `true` for each graph, without a search.
    pub(crate) const fn may_deadlock(&self) -> bool {
        matches!(self.routing, Routing::Graph(_))
    }
}

impl GraphRoutes {
    fn waiting_cycle(&self) -> Option<Vec<u32>> {
        let first = self.leaving.iter().flatten().map(|(link, _)| *link).min()?;
        let mut ends = vec![(0, 0); self.leaving.iter().map(Vec::len).sum()];
        for (from, links) in self.leaving.iter().enumerate() {
            for (link, to) in links {
                ends[(link - first) as usize] = (from as u32, *to);
            }
        }
        let behind = self.links_behind(first, ends.len())?;
        let cycle = cycle_in(&behind)?;
        let mut switches: Vec<u32> = cycle.iter().map(|link| ends[*link as usize].0).collect();
        switches.push(*switches.first()?);
        Some(switches)
    }

    /// For each link, those that a route takes right behind it; links are numbered from `first`.
    fn links_behind(&self, first: u32, links: usize) -> Option<Vec<Vec<u32>>> {
        let mut to: Vec<u32> = self.destination_switch.clone();
        to.sort_unstable();
        to.dedup();
        let pairs = self.leaving.iter().flatten();
        let pairs = pairs.map(|(_, next)| self.leaving[*next as usize].len());
        if pairs.sum::<usize>().saturating_mul(to.len()) > STEPS_MAX {
            return None;
        }
        let mut behind = vec![Vec::new(); links];
        for to in to {
            self.add_behind(to as usize, first, &mut behind);
        }
        for list in &mut behind {
            list.sort_unstable();
            list.dedup();
        }
        Some(behind)
    }

    /// Adds what routes to one switch take.
    fn add_behind(&self, to: usize, first: u32, behind: &mut [Vec<u32>]) {
        let distance = |switch: u32| self.distance[switch as usize * self.switches + to];
        let mut is_on_route = vec![false; self.switches];
        let mut ring: Vec<u32> = self.source_switch.clone();
        while let Some(at) = ring.pop() {
            if std::mem::replace(&mut is_on_route[at as usize], true) {
                continue;
            }
            for (link, next) in &self.leaving[at as usize] {
                if distance(*next).checked_add(1) != Some(distance(at)) {
                    continue;
                }
                ring.push(*next);
                for (later, end) in &self.leaving[*next as usize] {
                    if distance(*end).checked_add(1) == Some(distance(*next)) {
                        behind[(link - first) as usize].push(later - first);
                    }
                }
            }
        }
    }
}

/// The links of a cycle, each in front of those behind it.
fn cycle_in(behind: &[Vec<u32>]) -> Option<Vec<u32>> {
    let mut seen = vec![Seen::Not; behind.len()];
    for start in 0..behind.len() as u32 {
        if seen[start as usize] != Seen::Not {
            continue;
        }
        seen[start as usize] = Seen::OnTheWay;
        // Links on the way, with how many of those behind each were looked at.
        let mut way = vec![(start, 0)];
        while let Some((link, looked)) = way.last_mut() {
            let Some(next) = behind[*link as usize].get(*looked).copied() else {
                seen[*link as usize] = Seen::Done;
                way.pop();
                continue;
            };
            *looked += 1;
            match seen[next as usize] {
                Seen::Done => {}
                Seen::Not => {
                    seen[next as usize] = Seen::OnTheWay;
                    way.push((next, 0));
                }
                Seen::OnTheWay => {
                    let links = way.iter().map(|(link, _)| *link);
                    return Some(links.skip_while(|link| *link != next).collect());
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Graph, Topology};

    fn cycle(text: &str) -> Option<Vec<u32>> {
        let graph = Graph::parse(text).unwrap();
        Topology::graph(&graph).unwrap().waiting_cycle()
    }

    fn ring(switches: usize) -> String {
        let mut text = String::new();
        for s in 0..switches {
            text += &format!("switch s{s}\nnode n{s} s{s}\n");
        }
        for s in 0..switches {
            text += &format!("link s{s} s{}\n", (s + 1) % switches);
        }
        text
    }

    #[test]
    fn a_ring_waits_for_itself_from_four_switches_on() {
        // Of three, no route takes two links.
        assert_eq!(cycle(&ring(3)), None);
        for switches in [4, 5, 8] {
            let found = cycle(&ring(switches)).expect("a ring");
            assert_eq!(found.len(), switches + 1);
            assert_eq!(found.first(), found.last());
            let step = |pair: &[u32]| (pair[1] as usize + switches - pair[0] as usize) % switches;
            let steps: Vec<usize> = found.windows(2).map(step).collect();
            assert!(steps.iter().all(|s| *s == 1) || steps.iter().all(|s| *s == switches - 1));
        }
    }

    #[test]
    fn a_tree_and_a_star_do_not() {
        let tree = "switch root\nswitch a\nswitch b\nswitch c\nnode x a\nnode y b\nnode z c\n\
                    link a root\nlink b root\nlink c root\n";
        assert_eq!(cycle(tree), None);
        assert_eq!(cycle("switch s\nnode a s\nnode b s\n"), None);
        assert_eq!(Topology::crossbar(4).unwrap().waiting_cycle(), None);
    }
}
