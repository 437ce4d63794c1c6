//! Routes and links of all topologies agree, and are those that the literature counts.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::shift::ShiftSchedule;
use super::*;

/// Every port is used once, every link starts and ends somewhere that exists.
fn check_links(topology: &Topology) {
    let mut ends = BTreeSet::new();
    for (index, link) in topology.links().iter().enumerate() {
        for (is_from, end) in [(true, link.from), (false, link.to)] {
            assert!(ends.insert((is_from, end)), "{end:?} is there twice");
            if let LinkEnd::Port { element, port } = end {
                let element = topology.elements()[element as usize];
                let ports = if is_from {
                    element.outputs
                } else {
                    element.inputs
                };
                assert!(port < ports, "link {index}: port {port} of {ports}");
            }
        }
        assert!(link.speed >= 1);
    }
    for s in 0..topology.sources() {
        assert_eq!(topology.links()[s as usize].from, LinkEnd::Source(s));
    }
    for d in 0..topology.destinations() {
        assert!(ends.contains(&(false, LinkEnd::Destination(d))));
    }
}

/// The links of a route follow each other from the source to the destination.
fn check_route(topology: &Topology, s: u32, d: u32, choice: u64) -> Route {
    let route = topology.route(s, d, choice);
    let links: Vec<Link> = route
        .links()
        .iter()
        .map(|link| topology.links()[*link as usize])
        .collect();
    assert_eq!(links[0].from, LinkEnd::Source(s));
    assert_eq!(links[links.len() - 1].to, LinkEnd::Destination(d));
    for pair in links.windows(2) {
        match (pair[0].to, pair[1].from) {
            (LinkEnd::Port { element: a, .. }, LinkEnd::Port { element: b, .. }) => {
                assert_eq!(a, b, "route {s} to {d}, choice {choice}");
            }
            other => panic!("route {s} to {d}, choice {choice}: {other:?}"),
        }
    }
    assert!(route.hops() <= topology.hops_max());
    route
}

fn small() -> Vec<(&'static str, Topology)> {
    let graph = "switch a\nswitch b\nswitch c\nnode n0 a\nnode n1 b\nsource n2 c\n\
                 destination n3 c # far\nlink a b\nlink a c 10\nlink b c\nlink a b";
    vec![
        ("crossbar", Topology::crossbar(5)),
        ("omega", Topology::delta(2, 4, &Wiring::Omega)),
        ("natural", Topology::delta(4, 2, &Wiring::Natural)),
        ("swapped", Topology::delta(3, 3, &Wiring::Swapped)),
        ("four layers", Topology::four_layer(3)),
        ("six layers", Topology::six_layer(2)),
        ("clos", Topology::clos(4, 3, 5)),
        ("benes", Topology::benes(16)),
        ("fat tree", Topology::fat_tree(3, 3)),
        ("two levels", Topology::two_level(3, 4, 2, 10)),
        ("graph", Topology::graph(&Graph::parse(graph).unwrap())),
    ]
    .into_iter()
    .map(|(name, topology)| (name, topology.unwrap()))
    .collect()
}

#[test]
fn every_route_of_small_networks_follows_its_links() {
    for (name, topology) in small() {
        check_links(&topology);
        for s in 0..topology.sources() {
            for d in 0..topology.destinations() {
                let count = topology.route_count(s, d);
                let routes: BTreeSet<Vec<u32>> = (0..count)
                    .map(|c| check_route(&topology, s, d, c).links().to_vec())
                    .collect();
                assert_eq!(routes.len() as u64, count, "{name} {s} to {d}");
                let policy = RoutePolicy::BySourcePort;
                topology.chosen_route(s, d, policy, RouteNumbers::default());
            }
        }
    }
}

#[test]
fn switches_of_graphs_have_no_more_ports_than_have_numbers() {
    let text = |kind: &str, nodes: u32| {
        let mut text = "switch hub\nswitch rim\nlink hub rim\n".to_owned();
        text += "node at_rim rim\n";
        for node in 0..nodes {
            text += &format!("{kind} n{node} hub\n");
        }
        text
    };
    for (kind, side) in [("source", "inputs"), ("destination", "outputs")] {
        let graph = |nodes| Topology::graph(&Graph::parse(&text(kind, nodes)).unwrap());
        let found = graph(65_535).unwrap().elements()[0];
        assert_eq!(found.inputs.max(found.outputs), 65_536);
        // The link from the rim is one more port.
        let mut more = Graph::parse(&text(kind, 65_535)).unwrap();
        let another = more.links.clone();
        more.links.extend(another);
        let refused = Topology::graph(&more).err().map(|error| error.to_string());
        let expected = format!("switch `hub` has 65537 {side}, allowed are up to 65536");
        assert_eq!(refused, Some(expected));
    }
}

#[test]
fn counts_of_the_512_port_networks() {
    let delta = Topology::delta(8, 3, &Wiring::Omega).unwrap();
    let four = Topology::four_layer(8).unwrap();
    let six = Topology::six_layer(8).unwrap();
    let counts = |t: &Topology| {
        let elements = t.elements().len();
        (t.sources(), elements, t.hops_max(), t.route_count(3, 400))
    };
    assert_eq!(counts(&delta), (512, 192, 3, 1));
    assert_eq!(counts(&four), (512, 256, 4, 8));
    assert_eq!(counts(&six), (512, 384, 6, 512));
    for topology in [&delta, &four, &six] {
        check_links(topology);
        let is_8x8 = |e: &Element| (e.inputs, e.outputs) == (8, 8);
        assert!(topology.elements().iter().all(is_8x8));
    }
    // 16 Clos networks of 128 ports with 24 crossbars of 16 ports each, an Xbar16 being two of ours
    // in the leaves and spines of both directions.
    assert_eq!(six.elements().len(), 16 * 24);
}

#[test]
fn gigabit_networks_have_the_ports_of_the_talk() {
    let one = Topology::gigabit_one();
    let two = Topology::gigabit_two();
    for topology in [&one, &two, &Topology::chassis()] {
        check_links(topology);
    }
    assert_eq!((one.sources(), one.elements().len()), (500, 45));
    assert_eq!(one.elements()[0].inputs + 20, 60, "20 up, 20 + 20 nodes");
    assert_eq!(one.elements()[44].inputs, 25);
    assert_eq!((two.sources(), two.elements().len()), (500, 27));
    // Capacity up is capacity of the nodes: not blocking.
    for topology in [&one, &two] {
        let up: u32 = topology
            .links()
            .iter()
            .filter(|link| matches!(link.to, LinkEnd::Port { element, .. } if element >= 25))
            .map(|link| link.speed)
            .sum();
        assert_eq!(up, 500);
    }
    let chassis = Topology::chassis();
    assert_eq!(chassis.links().iter().map(|l| l.speed).max(), Some(16));
}

#[test]
fn schedules_are_free_of_conflicts_and_the_plain_order_is_not() {
    let shifts = [
        ("crossbar", Topology::crossbar(16)),
        ("omega", Topology::delta(8, 3, &Wiring::Omega)),
        ("natural", Topology::delta(8, 3, &Wiring::Natural)),
        ("swapped", Topology::delta(4, 2, &Wiring::Swapped)),
        ("four layers", Topology::four_layer(8)),
        ("six layers", Topology::six_layer(4)),
        ("clos", Topology::clos(8, 8, 16)),
        ("fat tree", Topology::fat_tree(4, 3)),
        ("gigabit", Ok(Topology::gigabit_one())),
    ];
    for (name, topology) in shifts {
        let topology = topology.unwrap();
        let schedule = ShiftSchedule::conflict_free(&topology).unwrap();
        let steps = topology.destinations();
        assert_eq!(schedule.first_conflict(&topology, steps), None, "{name}");
    }
    for topology in [
        Topology::delta(8, 3, &Wiring::Natural).unwrap(),
        Topology::four_layer(8).unwrap(),
        Topology::six_layer(4).unwrap(),
    ] {
        let naive = ShiftSchedule::naive(&topology, RoutePolicy::BySourcePort);
        assert!(naive.first_conflict(&topology, 64).is_some());
    }
    assert!(ShiftSchedule::conflict_free(&Topology::benes(8).unwrap()).is_none());
}

#[test]
fn what_cannot_be_built_is_refused() {
    assert!(matches!(
        Topology::crossbar(0),
        Err(TopologyError::OutOfRange { .. })
    ));
    assert!(Topology::delta(8, 9, &Wiring::Omega).is_err());
    assert!(Topology::benes(12).is_err());
    let twice = Wiring::Positions(vec![0, 1, 1, 3]);
    let error = Topology::delta(2, 2, &twice).unwrap_err().to_string();
    assert!(error.contains("source 2 at position 1"), "{error}");
    let broken = [
        ("switch a\nswitch a", "line 2: switch `a` is there twice"),
        (
            "switch a\nsource n a\ndestination n a\nnode n a",
            "line 4: source `n` is there twice",
        ),
        (
            "switch a\nnode n a\ndestination n a",
            "line 3: destination `n` is there twice",
        ),
        ("node n x", "line 1: no switch `x` above this line"),
        ("switch a\nswitch b\nlink a b 0", "line 3: the speed"),
        (
            "switch a\nlink a a",
            "line 2: a link from switch `a` to itself; allowed are two switches",
        ),
        ("swich a", "line 1: `swich a` is no statement"),
    ];
    for (text, message) in broken {
        let error = Graph::parse(text).unwrap_err()[0].to_string();
        assert!(error.starts_with(message), "{error}");
    }
    // All at once, and what is missing where it is missed first.
    let text = "switch a\nlink a b x\nnode n a\nnode m b\nlink c b\nnode\n";
    let errors = Graph::parse(text).unwrap_err();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let expected = [
        "line 2: no switch `b`",
        "line 2: the speed is a whole number",
        "line 5: no switch `c`",
        "line 6: `node` is no statement",
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:?}");
    for (error, start) in errors.iter().zip(expected) {
        assert!(error.starts_with(start), "{error}");
    }
    let both = Graph::parse("switch a\nsource n a\nnode m a\nsource n a\nnode m a\n").unwrap_err();
    let both: Vec<String> = both.iter().map(ToString::to_string).collect();
    let expected = [
        "line 4: source `n` is there twice",
        "line 5: source `m` is there twice",
        "line 5: destination `m` is there twice",
    ];
    assert_eq!(both, expected);
    // A switch that is there twice is the first one in later lines.
    let text = "switch a\nswitch a\nsource s a\ndestination d a\nlink a a\nswitch b\nlink a b\n";
    let loops: Vec<String> = Graph::parse(text)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        "line 2: switch `a` is there twice",
        "line 5: a link from switch `a` to itself; allowed are two switches",
    ];
    assert_eq!(loops, expected);
    let island = Graph::parse("switch a\nswitch b\nnode n a\nnode m b").unwrap();
    let error = Topology::graph(&island).unwrap_err().to_string();
    assert_eq!(error, "no route from source n to destination m");
}

#[test]
fn routes_have_up_to_so_many_links_as_are_kept() {
    let chain = |switches: u32| {
        let mut text = String::new();
        for s in 0..switches {
            text += &format!("switch s{s}\n");
        }
        for s in 1..switches {
            text += &format!("link s{} s{s}\n", s - 1);
        }
        text += &format!("source n s0\ndestination m s{}\n", switches - 1);
        Topology::graph(&Graph::parse(&text).unwrap())
    };
    let longest = chain(23).unwrap();
    assert_eq!(
        check_route(&longest, 0, 0, 0).links().len(),
        ROUTE_LINKS_MAX
    );
    let error = chain(24).unwrap_err().to_string();
    let text = "the shortest route from source n to destination m has 25 links, those of the nodes \
                included, allowed are 24";
    assert_eq!(error, text);
    let tree = Topology::fat_tree(2, 12).unwrap();
    let (first, last) = (0, tree.sources() - 1);
    assert_eq!(
        check_route(&tree, first, last, 7).links().len(),
        ROUTE_LINKS_MAX
    );
    for levels in 13..=16 {
        let error = Topology::fat_tree(2, levels).unwrap_err().to_string();
        assert_eq!(error, format!("levels is {levels}, allowed is 1 to 12"));
    }
    // The deepest of all others.
    for topology in [
        Topology::delta(2, 16, &Wiring::Omega),
        Topology::benes(1024),
        Topology::six_layer(40),
    ] {
        assert!(topology.unwrap().hops_max() < ROUTE_LINKS_MAX);
    }
}

#[test]
fn links_of_a_graph_may_have_rates_and_delays_of_their_own() {
    let text = "switch a\nswitch b\nnode n a delay=30ns\nsource s a\n\
                destination d b rate=400Mb/s delay=1.5us # slow\nlink a b rate=25Gb/s\n\
                link a b 4 delay=5us\nlink a b delay=0\n";
    let graph = Graph::parse(text).unwrap();
    let topology = Topology::graph(&graph).unwrap();
    check_links(&topology);
    let rates: Vec<u64> = topology.rates(1_000_000_000).collect();
    let giga = 1_000_000_000;
    // Sources n and s; the three links, each way; destinations n and d.
    let expected = [1, 1, 25, 25, 4, 4, 1, 1, 1];
    assert_eq!(rates[..9], expected.map(|rate| rate * giga));
    assert_eq!(rates[9], 400_000_000);
    let delays: Vec<u64> = (0..10)
        .map(|link| topology.cable(LinkId(link)).delay.0 / 1_000)
        .collect();
    assert_eq!(delays, [30, 0, 0, 0, 5_000, 5_000, 0, 0, 30, 1_500]);
    assert_eq!(graph.statement(1), Some((4, "source `s`".to_owned())));
    let link = "link from `b` to `a`".to_owned();
    assert_eq!(graph.statement(3), Some((6, link)));
    assert_eq!(graph.statement(9), Some((5, "destination `d`".to_owned())));
    assert_eq!(graph.statement(10), None);
    // Nothing of its own is no cable, however it is written.
    let plain = "switch a\nswitch b\nnode n a delay=0ns\nlink a b 2 delay=0\n";
    let plain = Graph::parse(plain).unwrap();
    assert!(!Topology::graph(&plain).unwrap().has_cables());
}

#[test]
fn mistakes_of_rates_and_delays_are_named_all_at_once() {
    let text = "switch a\nswitch b rate=1Gb/s\nnode n a rate=fast delay=5\n\
                node m a dleay=5us rate=1Gb/s rate=2Gb/s\nlink a a 2 rate=4Gb/s\n\
                link a a 0 delay=2s\nlink a c rate=999b/s delay=1ns delay=1ns\n\
                link a a rate=5 Gb/s\nlink a a rate=1Gb/s 4\nsource s a delay=-1ns\n\
                link a a rate=200Tb/s rate\n";
    let errors = Graph::parse(text).unwrap_err();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let rate = "allowed is a rate from 1 kb/s to 100 Tb/s, such as `rate=25Gb/s`";
    let time = "allowed is a time from 0 ns to 1 s, such as `delay=5us`";
    let expected = [
        "line 2: `switch b rate=1Gb/s` is no statement; allowed are".to_owned(),
        format!("line 3: `rate=fast`: no number found; {rate}"),
        format!("line 3: `delay=5`: unit is missing; {time}"),
        "line 4: `dleay` is no key of a link; allowed are `rate=RATE` and `delay=TIME`".to_owned(),
        "line 4: `rate` is there twice".to_owned(),
        "line 5: a link from switch `a` to itself; allowed are two switches".to_owned(),
        "line 5: a speed of `2` and a `rate` for one link; allowed is one of them".to_owned(),
        "line 6: the speed is a whole number".to_owned(),
        format!("line 6: `delay=2s`: value is out of range; {time}"),
        "line 7: no switch `c`".to_owned(),
        format!("line 7: `rate=999b/s`: value is out of range; {rate}"),
        "line 7: `delay` is there twice".to_owned(),
        "line 8: `link a a rate=5 Gb/s` is no statement".to_owned(),
        "line 9: `link a a rate=1Gb/s 4` is no statement".to_owned(),
        format!("line 10: `delay=-1ns`: value is out of range; {time}"),
        "line 11: `link a a rate=200Tb/s rate` is no statement".to_owned(),
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, start) in errors.iter().zip(expected) {
        assert!(error.starts_with(&start), "{error}");
    }
}

proptest! {
    #[test]
    fn routes_of_any_delta_reach_their_destination(
        radix in 2_u32..9, stages in 1_u32..4, s in any::<u32>(), d in any::<u32>(),
    ) {
        for wiring in [Wiring::Omega, Wiring::Natural, Wiring::Swapped] {
            let topology = Topology::delta(radix, stages, &wiring).unwrap();
            check_links(&topology);
            let (s, d) = (s % topology.sources(), d % topology.destinations());
            let route = check_route(&topology, s, d, 0);
            prop_assert_eq!(route.hops(), stages as usize);
            // Destination tags: each output port is a digit of the destination.
            let place = |i: u32| radix.pow(stages - 1 - i);
            for (i, link) in route.links()[1..].iter().enumerate() {
                let port = match topology.links()[*link as usize].from {
                    LinkEnd::Port { port, .. } => port,
                    _ => u32::MAX,
                };
                prop_assert_eq!(port, d / place(i as u32) % radix);
            }
        }
    }

    #[test]
    fn routes_of_any_symmetric_network_reach_their_destination(
        radix in 2_u32..9, s in any::<u32>(), d in any::<u32>(), choice in any::<u64>(),
    ) {
        let networks = [Topology::four_layer(radix), Topology::six_layer(radix)];
        for topology in networks.map(Result::unwrap) {
            let nodes = topology.sources();
            check_route(&topology, s % nodes, d % nodes, choice >> 8);
        }
    }

    #[test]
    fn a_graph_text_never_panics(text in "(switch|node|link|source|rate=|delay=|Gb/s|us|=| |\n|[ab1#]){0,40}") {
        if let Ok(graph) = Graph::parse(&text) {
            let _ = Topology::graph(&graph);
        }
    }

    /// Statements of few names, so that these come again and meet themselves.
    #[test]
    fn lines_of_a_graph_never_panic(
        text in "((switch|node|source|destination|link) [ab]( [abc])?( (2|0|rate=1Gb/s|delay=1us)){0,2}\n){0,12}",
    ) {
        match Graph::parse(&text) {
            Ok(graph) => {
                let _ = Topology::graph(&graph);
                let links = graph.sources.len() + graph.links.len() + graph.destinations.len();
                prop_assert!((0..links).all(|link| graph.statement(link).is_some()));
            }
            Err(problems) => prop_assert!(!problems.is_empty()),
        }
    }
}
