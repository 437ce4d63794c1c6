//! Chains with parts that do not fit each other.

use livetime_builder::ShapingPace;
use livetime_builder::builder_config::TRIGGERS_HELD_MAX;
use livetime_shm::ring::MAX_SLOTS;
use livetime_source::SourceConfig;
use livetime_trigger::MenuConfig;

use super::*;
use crate::chain_config::*;

use crate::chain_plan::{ChainPlan, Channel, FRONT_END, memory_bytes_least, pages_bytes};
use crate::front_end_server::FrontEndServerConfig;

const CORES: [usize; 2] = [0, 1];

/// Two readout units with two links each, and the default workers.
fn config() -> ChainConfig {
    let link = |index: u16| DataLinkConfig {
        source: SourceId(u32::from(index)),
        unit: index % 2,
        link: LinkConfig::default(),
        transport: LinkTransport::Emulated,
    };
    let sources = |unit| vec![SourceId(unit), SourceId(unit + 2)];
    let mut config = ChainConfig {
        run: RunNumber(1),
        source: SourceConfig::default(),
        recorded: None,
        front_ends: None,
        trigger_link: LinkConfig::default(),
        data_links: (0..4).map(link).collect(),
        trigger_nodes: 1,
        merger: MergerConfig::NONE,
        menu: Menu::new_checked(MenuConfig::default(), "trigger").expect("it is good"),
        supervisor: SupervisorConfig::default(),
        builder: BuilderConfig {
            readout_units: vec![sources(0), sources(1)],
            ..BuilderConfig::default()
        },
        transport: BuilderTransport::Shm,
        event_manager_apart: false,
        readout_apart: Vec::new(),
        filter_transport: BuilderTransport::Shm,
        filter: FilterConfig::AcceptAll,
        first_step: FirstStepConfig::default(),
        store: WriterLimits::default(),
        files: FilePlan::default(),
        packets: None,
        workers: Vec::new(),
        faults: Vec::new(),
        spill: None,
    };
    config.workers = config.default_workers(CORES.len());
    config
}

fn problems(config: &ChainConfig) -> Vec<(&'static str, String)> {
    let problems = config.validate(&CORES, "trigger_link", |index| format!("link[{index}]"));
    let problems = problems.into_iter();
    problems.map(|p| (p.code.code, p.path)).collect()
}

#[test]
fn chain_of_default_parts_has_no_problem() {
    assert_eq!(problems(&config()), []);
}

#[test]
fn each_contradiction_between_parts_is_one_problem_at_its_key() {
    type Change = fn(&mut ChainConfig);
    let cases: [(&str, &str, Change); 12] = [
        ("L0201", "link[2].page", |c| {
            c.data_links[2].link.page_words = 2048;
        }),
        ("L0202", "trigger_link.page", |c| {
            c.trigger_link.page_words = 1000
        }),
        ("L0203", "link[3].fragment_max", |c| {
            c.data_links[3].link.fragment_words_max = 4095;
        }),
        ("L0204", "trigger.packet_words_max", |c| {
            c.source.packet_words_max = 1025;
        }),
        ("L0204", "trigger.packet_words_max", |c| {
            c.trigger_link.fragment_words_max = 509;
        }),
        ("S0104", "store.event_max", |c| {
            c.store.event_bytes_max = 4 * 16 * 1024;
        }),
        ("B0107", "builder.credits", |c| {
            c.data_links[1].link.pages = 242
        }),
        ("B0107", "trigger.nodes", |c| {
            c.trigger_nodes = 2;
            c.workers[0].roles.push("trg1".to_owned());
            c.source.fragment.bytes_max = ByteSize(256 << 10);
            c.store.event_bytes_max = 16 << 20;
            let links = c.data_links.iter_mut();
            links.for_each(|link| link.link.fragment_words_max = 64 << 10);
            c.data_links[2].link.pages = 250;
        }),
        ("R0101", "workers.wait", |c| {
            c.workers[1].wait = WaitStrategy::Spin
        }),
        ("R0103", "workers.worker[0].core", |c| {
            c.workers[0].core = Some(2)
        }),
        ("R0102", "workers.worker", |c| c.builder.builder_units = 200),
        ("R0102", "workers.worker", |c| {
            c.workers[0].roles.push("ts0".to_owned());
        }),
    ];
    for (code, key, change) in cases {
        let mut config = config();
        change(&mut config);
        if code == "R0102" && config.builder.builder_units > 2 {
            // Enough pages, so that only the roles are wrong.
            let links = config.data_links.iter_mut();
            links.for_each(|link| link.link.pages = 4096);
        }
        assert_eq!(problems(&config), [(code, key.to_owned())]);
    }
}

#[test]
fn pages_that_do_not_go_into_datagrams_are_named() {
    let over_udp = |change: fn(&mut ChainConfig)| {
        let mut config = config();
        change(&mut config);
        let before = problems(&config);
        config.transport = BuilderTransport::Udp {
            receive_buffer_bytes: 0,
        };
        (before, problems(&config))
    };
    let all = |index: usize| ("L0205", format!("link[{index}].page"));
    let (before, after) = over_udp(|config| {
        config.source.fragment.bytes_mean = ByteSize(100);
        for link in &mut config.data_links {
            link.link.page_words = (64 << 10) / 4;
        }
    });
    assert_eq!((before, after), (vec![], (0..4).map(all).collect()));
    let (before, after) = over_udp(|config| {
        config.data_links[1].link.page_words = 2048;
        config.data_links[3].link.page_words = 2048;
    });
    assert_eq!((before, after), (vec![], vec![all(1), all(3)]));
    let mut small = config();
    small.transport = BuilderTransport::Udp {
        receive_buffer_bytes: 32 << 10,
    };
    assert_eq!(
        problems(&small),
        [("L0206", "builder.receive_buffer".to_owned())]
    );
    let largest = |config: &mut ChainConfig| {
        for link in &mut config.data_links {
            link.link.page_words = 65_344 / 4;
        }
    };
    assert_eq!(over_udp(largest), (vec![], vec![]));
}

#[test]
fn workers_have_names_that_threads_can_have_and_each_its_own() {
    let named = |name: &str| {
        let mut config = config();
        config.workers[1].name = name.to_owned();
        let problems = config.check_worker_names();
        problems.into_iter().map(|p| (p.path, p.found)).collect()
    };
    let refused = |name: &str, found: &str| {
        let expected = ("workers.worker[1].name".to_owned(), found.to_owned());
        assert_eq!(named(name), [expected], "{name:?}");
    };
    refused("", "\"\"");
    refused("a\0b", "\"a\\0b\"");
    refused("a\nb", "\"a\\nb\"");
    refused(&"x".repeat(65), &format!("\"{}\"", "x".repeat(65)));
    refused("source", "\"source\"");
    let good: Vec<(String, String)> = named("größe 測試");
    assert_eq!(good, []);
    assert_eq!(named(&"x".repeat(64)), good);
}

#[test]
fn rings_of_the_largest_window_and_of_all_credits_can_be_made() {
    let mut config = config();
    config.builder.trigger_window = TRIGGERS_HELD_MAX;
    config.builder.history = TRIGGERS_HELD_MAX;
    let plan = ChainPlan::new(&config);
    let most = plan.rings.iter().map(|ring| ring.config.slots).max();
    assert_eq!(most, Some(MAX_SLOTS));
}

/// All problems of a configuration come at once: a check of what follows from a number meets it before it
/// is refused.
#[test]
fn pages_without_words_divide_nothing() {
    let mut empty = config();
    for link in &mut empty.data_links {
        link.link.page_words = 0;
    }
    for receive_buffer_bytes in [0, 1 << 20] {
        empty.transport = BuilderTransport::Udp {
            receive_buffer_bytes,
        };
        // That a page has words is for the link to say.
        assert!(!problems(&empty).is_empty());
        assert!(memory_bytes_least(&empty) > 0);
    }
}

#[test]
fn the_memory_of_a_run_is_that_of_its_pages_rings_and_tables() {
    let mut config = config();
    let of_pages = |config: &ChainConfig| {
        let plan = ChainPlan::new(config);
        let pools = plan.pools.iter().map(|pool| pool.config);
        let pages = pools.map(|pool| u64::from(pool.pages) * u64::from(pool.page_bytes));
        let pages: u64 = pages.sum();
        let tables: u64 = plan.tables.iter().map(|table| table.bytes).sum();
        let least = memory_bytes_least(config);
        assert!(
            least > pages + tables,
            "rings of the windows and trigger links come on top"
        );
        assert!(plan.memory_bytes(|_| true) > least, "all rings do");
        assert_eq!(plan.memory_bytes(|_| false), 0);
        assert!(plan.memory_bytes(|role| role == "ru0") < plan.memory_bytes(|_| true));
        pages
    };
    let in_memory = of_pages(&config);
    assert_eq!(
        in_memory,
        4 * 1024 * 4096,
        "1024 pages for each of four links"
    );
    config.transport = BuilderTransport::Tcp { congestion: None };
    let over_tcp = of_pages(&config);
    config.filter_transport = BuilderTransport::Tcp { congestion: None };
    let events_over_tcp = of_pages(&config);
    config.transport = BuilderTransport::Udp {
        receive_buffer_bytes: 0,
    };
    assert!(in_memory < over_tcp && over_tcp < events_over_tcp);
    assert!(of_pages(&config) > in_memory);
}

/// A check that knows less than this passes what a run then refuses.
#[test]
fn the_pages_of_trigger_links_are_those_of_each_input_of_each_node() {
    let config_of = |pages: u32, inputs: usize, nodes: u16| {
        let mut config = config();
        config.trigger_link.pages = pages;
        (config.merger.inputs, config.trigger_nodes) = (inputs, nodes);
        config
    };
    for (pages, inputs, nodes) in [(64, 1, 1), (4096, 1, 1), (4096, 3, 1), (1000, 2, 4)] {
        let config = config_of(pages, inputs, nodes);
        let plan = ChainPlan::new(&config);
        let rings = plan.rings.iter();
        let of_links = rings.filter(|ring| ring.key.channel == Channel::Packets);
        let bytes = of_links
            .map(|ring| 4 * u64::from(ring.config.slots) * u64::from(ring.config.slot_words));
        let of_trigger = bytes.sum::<u64>();
        let without = pages_bytes(&config_of(0, 0, 0));
        assert_eq!(pages_bytes(&config) - without, of_trigger);
        assert!(of_trigger > 0 && memory_bytes_least(&config) > pages_bytes(&config));
    }
    let most = config_of(1 << 24, usize::MAX, u16::MAX);
    assert!(memory_bytes_least(&most) > 1 << 40, "nothing wraps around");
}

#[test]
fn the_memory_of_a_readout_unit_grows_with_its_window_and_its_links() {
    let of_unit = |window: u32, sources: u32| {
        let mut config = config();
        config.builder.trigger_window = window;
        config.builder.history = window;
        config.builder.readout_units[0] = (0..sources).map(SourceId).collect();
        let of_tables = |plan: &ChainPlan| {
            let mut of_unit = plan.tables.iter().filter(|table| table.role == "ru0");
            of_unit.next().map(|table| table.bytes)
        };
        of_tables(&ChainPlan::new(&config)).expect("it has tables")
    };
    let window = 1 << 20;
    // What was measured of whole runs, of which the rest is the ring from the supervisor.
    let per_trigger = of_unit(window, 4) / u64::from(window);
    assert!((400..600).contains(&per_trigger), "{per_trigger} B");
    let more = of_unit(window, 32) - of_unit(window, 4);
    let per_link = more / 28 / u64::from(window);
    assert!((88..112).contains(&per_link), "{per_link} B");
    assert_eq!(of_unit(2 * window, 4), 2 * of_unit(window, 4) - 8);
}

#[test]
fn the_memory_of_front_ends_of_users_is_that_of_their_open_triggers() {
    let config_of = |queue: u32, bytes_max: u64| {
        let mut config = config();
        config.source.fragment.bytes_max = ByteSize(bytes_max);
        let mut server = FrontEndServerConfig::default();
        server.events.queue = queue;
        config.front_ends = Some(server);
        config
    };
    let of_window = |queue: u32, bytes_max: u64| {
        let mut config = config_of(queue, bytes_max);
        let figures = |config: &ChainConfig| {
            let plan = ChainPlan::new(config);
            let here = plan.memory_bytes(|role| role == FRONT_END);
            [here, memory_bytes_least(config)]
        };
        let [here, least] = figures(&config);
        config.front_ends = None;
        let [here_without, least_without] = figures(&config);
        assert_eq!(here - here_without, least - least_without);
        here - here_without
    };
    let sources = config().detector_sources().len() as u64;
    assert!(sources > 1);
    let of_place = of_window(1, 0) / sources;
    assert!((32..64).contains(&of_place), "{of_place} B");
    let longest = 16 << 10;
    assert_eq!(
        of_window(65_536, longest),
        65_536 * sources * (longest + of_place)
    );
    // Values that other rules refuse are judged here as well.
    assert_eq!(memory_bytes_least(&config_of(u32::MAX, u64::MAX)), u64::MAX);
}

#[test]
fn what_does_not_move_is_not_shaped() {
    let mut config = config();
    for pace in [ShapingPace::default(), ShapingPace::BARRIER] {
        config.builder.shaping = Some(ShapingConfig {
            pace,
            ..ShapingConfig::default()
        });
        assert_eq!(problems(&config), [("L0207", "builder.shaping".to_owned())]);
    }
    config.transport = BuilderTransport::Tcp { congestion: None };
    assert_eq!(problems(&config), []);
}

#[test]
fn link_with_pages_of_an_odd_size_is_named() {
    let mut config = config();
    let links = config.data_links.iter_mut();
    links.for_each(|link| link.link.page_words = 1032);
    let keys: Vec<String> = problems(&config).into_iter().map(|(_, key)| key).collect();
    assert_eq!(
        keys,
        [
            "link[0].page",
            "link[1].page",
            "link[2].page",
            "link[3].page"
        ]
    );
}

#[test]
fn misplaced_roles_are_listed_shortly() {
    let mut config = config();
    config.builder.builder_units = 20;
    config.workers[0].roles.push("wr0".to_owned());
    let problems = config.check_roles();
    let found: Vec<&str> = problems.iter().map(|p| p.found.as_str()).collect();
    let expected = [
        "bu2 bu3 bu4 bu5 bu6 bu7 bu8 bu9 and 10 more in no worker",
        "wr0 in several places",
    ];
    assert_eq!(found, expected);
}

/// A problem with the chain as processes: the key, what is found and what is allowed.
fn problem_of_processes(change: impl FnOnce(&mut ChainConfig)) -> Option<(String, String, String)> {
    let mut config = config();
    change(&mut config);
    let problem = config.check_processes("filter.units");
    problem.map(|problem| {
        assert_eq!(problem.code, SHARED_PAGES);
        (problem.path, problem.found, problem.allowed)
    })
}

/// What is checked is what the plan opens: the roles of each pool and the process that makes it.
fn opened_by_most(config: &ChainConfig) -> usize {
    let plan = ChainPlan::new(config);
    let roles = plan.pools.iter().map(|pool| pool.roles.len());
    roles.max().map_or(0, |roles| roles + 1)
}

#[test]
fn as_processes_there_are_as_many_units_as_can_open_their_pages() {
    type Change = fn(&mut ChainConfig);
    let tcp = || BuilderTransport::Tcp { congestion: None };
    let cases: [(Change, Change, &str); 4] = [
        // All in shared memory.
        (
            |c| c.builder.filter_units = 26,
            |c| c.builder.filter_units = 27,
            "filter.units",
        ),
        // Each writer takes a place.
        (
            |c| (c.builder.filter_units, c.builder.writers) = (25, 2),
            |c| (c.builder.filter_units, c.builder.writers) = (26, 2),
            "filter.units",
        ),
        // Builder units send events on to filter units.
        (
            |c| c.builder.builder_units = 26,
            |c| c.builder.builder_units = 27,
            "builder.builder_units",
        ),
        // Filter units read the pages of the builder units of their group.
        (
            |c| (c.builder.filter_units, c.builder.writers) = (54, 2),
            |c| (c.builder.filter_units, c.builder.writers) = (55, 2),
            "filter.units",
        ),
    ];
    for (index, (good, bad, key)) in cases.into_iter().enumerate() {
        let network = |config: &mut ChainConfig| match index {
            2 => config.filter_transport = tcp(),
            3 => config.transport = tcp(),
            _ => {}
        };
        let with = |change: Change| {
            move |config: &mut ChainConfig| {
                network(config);
                change(config);
                let is_full = opened_by_most(config) > MAX_OWNERS;
                assert_eq!(is_full, config.check_processes("").is_some(), "{index}");
            }
        };
        assert_eq!(problem_of_processes(with(good)), None, "{index}");
        let (path, found, allowed) = problem_of_processes(with(bad)).expect("one too many");
        assert_eq!(path, key);
        assert!(found.contains("31 processes"), "{found}");
        let most = [26, 25, 26, 54][index];
        let most = format!("at most {most}: 30 processes");
        assert!(allowed.starts_with(&most), "{allowed}");
    }
}

#[test]
fn where_all_is_sent_any_number_of_processes_will_do() {
    let problem = problem_of_processes(|config| {
        let tcp = BuilderTransport::Tcp { congestion: None };
        (config.transport, config.filter_transport) = (tcp.clone(), tcp);
        (config.builder.builder_units, config.builder.filter_units) = (100, 1000);
        assert!(opened_by_most(config) <= MAX_OWNERS);
    });
    assert_eq!(problem, None);
}

#[test]
fn with_too_many_of_all_readers_no_number_is_said_to_be_allowed() {
    let problem = problem_of_processes(|config| {
        (config.builder.filter_units, config.builder.writers) = (40, 30);
    });
    let (path, _, allowed) = problem.expect("both are too many");
    assert_eq!(path, "filter.units");
    assert!(allowed.starts_with("fewer: 30 processes"), "{allowed}");
}
