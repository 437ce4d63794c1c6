//! Every key of every table is read, the defaults are those of the cores, and problems stand where
//! the person who wrote them looks.

use livetime_builder::BuilderConfig;
use livetime_node::process::{LossPolicy, OnLoss};
use livetime_node::{DataLinkConfig, WorkerConfig};
use livetime_readout::LinkConfig;
use livetime_shm::WaitStrategy;
use livetime_source::{ArrivalConfig, FragmentConfig, PhysicsConfig, TriggerSourceConfig};
use livetime_store::WriterLimits;
use livetime_trigger::{
    AngleMdeg, BeamSpot, ChargeRule, Cut, DimuonCut, EnergyMev, LengthUm, MassWindowConfig,
    PathConfig, SingleMuonCut, Sixteenths, TwoTrackCut,
};
use livetime_wire::fragment::CrcCheck;
use livetime_wire::trigger_packet::MuonStub;
use livetime_wire::{ByteSize, SourceId};

use super::*;

const EVERY_KEY: &str = include_str!("every_key.toml");
const CORES: [usize; 2] = [3, 5];

/// The least that is a configuration.
const LEAST: &str = r#"
format = 1
[[source]]
[[link]]
to = "trg0"
source_id = 0x700000
[[link]]
to = "ru0"
source_id = 0x510000
"#;

fn read_plain(text: &str) -> Reading {
    read(text, &Overrides::default(), &CORES)
}

fn good(text: &str) -> RunConfig {
    let Reading {
        config, problems, ..
    } = read_plain(text);
    config.unwrap_or_else(|| panic!("{problems:#?}"))
}

/// Codes and key paths of the problems.
fn problems(text: &str) -> Vec<(&'static str, String)> {
    let reading = read_plain(text);
    assert_eq!(reading.config.is_none(), !reading.problems.is_empty());
    let problems = reading.problems.into_iter();
    problems.map(|p| (p.code.code, p.path)).collect()
}

fn each<const N: usize>(expected: [(&'static str, &str); N]) -> Vec<(&'static str, String)> {
    expected.map(|(code, path)| (code, path.to_owned())).into()
}

/// The value of each key, as they stand in `every_key.toml`.
#[test]
fn every_key_is_read_into_its_field() {
    let config = good(EVERY_KEY);
    assert_eq!(config.directory, PathBuf::from("elsewhere"));
    assert_eq!(config.events, Some(PathBuf::from("events.csv")));
    assert!(config.processes);
    let on_loss = LossPolicy {
        filter: OnLoss::Stop,
        builder: OnLoss::Continue,
    };
    assert_eq!(config.on_loss, on_loss);
    let chain = config.chain;
    let us = |us: u64| DurationNs(us * 1000);
    let expected = SourceConfig {
        seed: u64::MAX,
        triggers: TriggerSourceConfig {
            arrival: ArrivalConfig {
                kind: ArrivalKind::FixedGap,
                rate: RateHz(3000.0),
            },
            mode: OfferMode::Timed,
            triggers_max: Some(1234),
            duration: Some(us(7_000_000)),
            lateness_max: us(2000),
        },
        physics: PhysicsConfig {
            z_fraction: 0.1,
            continuum_fraction: 0.11,
            displaced_fraction: 0.12,
            single_muon_fraction: 0.13,
            calorimeter_fraction: 0.14,
            empty_fraction: 0.15,
            soft_tracks_mean: 1.5,
            soft_jets_mean: 2.5,
            beam_mm: (-1.0, 0.3),
            ..PhysicsConfig::default()
        },
        fragment: FragmentConfig {
            bytes_mean: ByteSize(3 * 1024),
            log_sigma: 0.5,
            bytes_max: ByteSize(24 * 1024),
            ..FragmentConfig::default()
        },
        data_links: vec![SourceId(0x51_0000), SourceId(0x51_0001)],
        packet_words_max: 400,
    };
    assert_eq!(chain.source, expected);
    let trigger_link = LinkConfig {
        page_words: 512,
        pages: 200,
        request_depth: 16,
        acknowledge_depth: 17,
        xoff_below: 30,
        xon_above: 40,
        words_in_flight: 64,
        fragment_words_max: 1024,
        crc: CrcCheck::Off,
        ..LinkConfig::default()
    };
    assert_eq!(chain.trigger_link, trigger_link);
    let data_link = LinkConfig {
        page_words: 2048,
        pages: 900,
        request_depth: 31,
        acknowledge_depth: 32,
        xoff_below: 70,
        xon_above: 140,
        words_in_flight: 200,
        fragment_words_max: 16 * 1024,
        crc: CrcCheck::Off,
        ..LinkConfig::default()
    };
    let links: Vec<_> = chain.data_links.iter().map(link_facts).collect();
    let source = |index: u32| (SourceId(0x51_0000 + index), 0, data_link.clone());
    assert_eq!(links, [source(0), source(1)]);
    let supervisor = SupervisorConfig {
        l2_buffers: 3,
        deadline: us(30),
        decision_timeout: us(2_000_000),
        output_queue: 32,
    };
    assert_eq!(chain.supervisor, supervisor);
    let expected = Menu::new_checked(expected_menu(), "trigger").expect("the menu is good");
    assert_eq!(chain.menu, expected);
    let builder = BuilderConfig {
        readout_units: vec![expected_sources()],
        builder_units: 3,
        filter_units: 2,
        credits: 20,
        requests_per_message: 4,
        timeout: us(300_000),
        retry: us(40_000),
        probe: us(500_000),
        evm_queue: 50,
        filter_in_flight: 6,
        history: 1024,
        trigger_window: 600,
    };
    assert_eq!(chain.builder, builder);
    let window = MassWindowConfig {
        mass_min_gev: 70.0,
        mass_max_gev: 110.0,
        keep_one_in: 9,
    };
    assert_eq!(chain.filter, FilterConfig::MassWindow(window));
    let store = WriterLimits {
        chunk_bytes: 64 << 10,
        event_bytes_max: 1 << 20,
        events_indexed_max: 1000,
        chunks_indexed_max: 100,
    };
    assert_eq!(chain.store, store);
    let worker = |name: &str, core, wait, roles: &[&str]| WorkerConfig {
        name: name.to_owned(),
        core: Some(core),
        wait,
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
    };
    let behind = ["ru0", "evm", "bu0", "bu1", "bu2", "fu0", "fu1", "wr0"];
    let expected = [
        worker("front", 3, WaitStrategy::Block, &["src0", "trg0"]),
        worker("back", 5, WaitStrategy::Adaptive, &behind),
    ];
    assert_eq!(chain.workers, expected);
}

fn link_facts(link: &DataLinkConfig) -> (SourceId, u16, LinkConfig) {
    (link.source, link.unit, link.link.clone())
}

fn expected_sources() -> Vec<SourceId> {
    vec![SourceId(0x51_0000), SourceId(0x51_0001)]
}

fn expected_menu() -> MenuConfig {
    let path = |name: &str, bit, l1_mask, prescale, cut| PathConfig {
        name: name.to_owned(),
        bit,
        l1_mask,
        cut,
        prescale,
    };
    let muon = SingleMuonCut {
        types: MuonStub::CMU | MuonStub::CMX,
        pt_min: EnergyMev(5000),
    };
    let dimuon = DimuonCut {
        types: MuonStub::CMP | MuonStub::BMU,
        pt_min: EnergyMev(2500),
        charge: ChargeRule::Same,
    };
    let two_track = TwoTrackCut {
        pt_min: EnergyMev(2000),
        sum_pt_min: EnergyMev(5000),
        chi2_max: Sixteenths(200),
        charge: ChargeRule::Any,
        dphi_min: AngleMdeg(3000),
        dphi_max: AngleMdeg(80_000),
        d_min: LengthUm(100),
        d_max: LengthUm(2000),
        lxy_min: LengthUm(150),
        d_pair_max: Some(LengthUm(140)),
    };
    MenuConfig {
        beam_spot: BeamSpot {
            x: LengthUm(-1000),
            y: LengthUm(300),
        },
        paths: vec![
            path("AUTO", 1, 1 | 1 << 63, 7, Cut::Auto),
            path("MIN_BIAS", 2, 1 << 1, 8, Cut::MinBias),
            path("MUON", 3, 1 << 2, 9, Cut::SingleMuon(muon)),
            path("DIMUON", 4, 1 << 3, 10, Cut::Dimuon(dimuon)),
            path("TWO_TRACK", 127, 1 << 4, 11, Cut::TwoTrack(two_track)),
        ],
    }
}

/// Each line of `every_key.toml` with a key, as its index, and its key.
fn key_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines.filter_map(|(index, line)| Some((index, line.split_once(" = ")?.0)))
}

#[test]
fn no_key_of_the_file_is_read_in_vain() {
    // The first counts only for workers without their own; the others can be nothing else.
    let without_effect = ["wait = \"spin\"", "count = 1", "name = \"mass_window\""];
    let whole = format!("{:?}", good(EVERY_KEY));
    let lines: Vec<&str> = EVERY_KEY.lines().collect();
    for (removed, _) in key_lines(EVERY_KEY) {
        let kept = lines.iter().enumerate().filter(|(i, _)| *i != removed);
        let text: Vec<&str> = kept.map(|(_, line)| *line).collect();
        let reading = read_plain(&text.join("\n"));
        let changed = reading
            .config
            .is_none_or(|config| format!("{config:?}") != whole);
        let expected = !without_effect.contains(&lines[removed]);
        assert_eq!(changed, expected, "without `{}`", lines[removed]);
    }
    let spin = EVERY_KEY.replace("wait = \"block\"\n", "");
    let workers = good(&spin).chain.workers;
    assert_eq!(workers[0].wait, WaitStrategy::Spin);
}

/// Asks each table for a key that it does not have: the answer lists those that it knows.
#[test]
fn every_key_that_a_table_knows_is_in_the_file() {
    let lines: Vec<&str> = EVERY_KEY.lines().collect();
    let headers: Vec<usize> = (lines.iter().enumerate())
        .filter(|(_, line)| line.starts_with('['))
        .map(|(index, _)| index)
        .collect();
    assert_eq!(headers.len(), 18, "tables of the file");
    let ends = headers.iter().skip(1).copied().chain([lines.len()]);
    for (start, end) in headers.iter().copied().zip(ends) {
        let mut text = lines.clone();
        text.insert(start + 1, "foreign_key = 1");
        let reading = read_plain(&text.join("\n"));
        let [problem] = reading.problems.as_slice() else {
            panic!("{}: {:#?}", lines[start], reading.problems);
        };
        assert_eq!(problem.code.code, "C0002", "{problem}");
        let table = lines[start..end].join("\n");
        let mut known: Vec<&str> = problem.allowed.split(", ").collect();
        // Tables of this one have headers of their own.
        known.retain(|key| !["fragment", "physics", "path", "worker"].contains(key));
        let mut written: Vec<&str> = key_lines(&table).map(|(_, key)| key).collect();
        written.sort_unstable();
        assert_eq!(written, known, "{}", lines[start]);
    }
}

#[test]
fn what_is_left_out_has_the_defaults_of_the_cores() {
    let RunConfig {
        directory,
        events,
        processes,
        on_loss,
        chain,
    } = good(LEAST);
    assert!(!processes);
    assert_eq!(on_loss, LossPolicy::default());
    assert_eq!((directory, events), (PathBuf::from("runs"), None));
    let source = SourceConfig {
        data_links: vec![SourceId(0x51_0000)],
        ..SourceConfig::default()
    };
    assert_eq!(chain.source, source);
    let trigger_link = LinkConfig {
        pages: 256,
        ..LinkConfig::default()
    };
    assert_eq!(chain.trigger_link, trigger_link);
    let links: Vec<_> = chain.data_links.iter().map(link_facts).collect();
    assert_eq!(links, [(SourceId(0x51_0000), 0, LinkConfig::default())]);
    let menu = Menu::new_checked(MenuConfig::default(), "trigger");
    assert_eq!(Ok(&chain.menu), menu.as_ref());
    assert_eq!(chain.supervisor, SupervisorConfig::default());
    let builder = BuilderConfig {
        readout_units: vec![vec![SourceId(0x51_0000)]],
        ..BuilderConfig::default()
    };
    assert_eq!(chain.builder, builder);
    let filter = FilterConfig::MassWindow(MassWindowConfig::default());
    assert_eq!(chain.filter, filter);
    assert_eq!(chain.store, WriterLimits::default());
    assert_eq!(chain.workers, chain.default_workers(CORES.len()));
    assert!(chain.recorded.is_none() && chain.faults.is_empty());
}

#[test]
fn every_example_is_good() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut examples = 0;
    for entry in std::fs::read_dir(folder).expect("there are examples") {
        let path = entry.expect("the folder is readable").path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let text = std::fs::read_to_string(&path).expect("the example is readable");
            good(&text);
            examples += 1;
        }
    }
    assert!(examples > 0);
}

#[test]
fn options_replace_the_values_of_the_file() {
    let with = |overrides: Overrides| {
        let config = read(EVERY_KEY, &overrides, &CORES).config;
        config.expect("every_key.toml is good")
    };
    let nothing = Overrides::default();
    assert_eq!(
        format!("{:?}", with(nothing.clone())),
        format!("{:?}", good(EVERY_KEY))
    );
    let all = with(Overrides {
        seed: Some(5),
        duration: Some(DurationNs(9)),
        triggers: Some(6),
        rate: Some(RateHz(50.0)),
        events: Some(PathBuf::from("other.csv")),
        lossless: false,
    });
    let source = &all.chain.source;
    assert_eq!((source.seed, source.triggers.arrival.rate.0), (5, 50.0));
    assert_eq!(source.triggers.triggers_max, Some(6));
    assert_eq!(source.triggers.duration, Some(DurationNs(9)));
    assert_eq!(all.events, Some(PathBuf::from("other.csv")));

    let triggers = with(Overrides {
        triggers: Some(6),
        ..nothing.clone()
    });
    let ends = |config: &RunConfig| {
        let triggers = &config.chain.source.triggers;
        (triggers.triggers_max, triggers.duration)
    };
    assert_eq!(ends(&triggers), (Some(6), None), "the number is the end");
    let counted = EVERY_KEY.replace("duration = \"7 s\"\n", "");
    assert_eq!(
        ends(&good(&counted)),
        (Some(1234), None),
        "also in the file"
    );

    let lossless = with(Overrides {
        lossless: true,
        ..nothing.clone()
    });
    let triggers = &lossless.chain.source.triggers;
    assert_eq!(triggers.mode, OfferMode::Lossless);
    assert_eq!(triggers.arrival.kind, ArrivalKind::Unpaced);
    let timeout = lossless.chain.supervisor.decision_timeout;
    assert_eq!(timeout, SupervisorConfig::TIMEOUT_MAX);
    let paced = with(Overrides {
        lossless: true,
        rate: Some(RateHz(50.0)),
        ..nothing
    });
    let kind = paced.chain.source.triggers.arrival.kind;
    assert_eq!(kind, ArrivalKind::FixedGap, "a rate asked for is kept");
}

#[test]
fn problems_of_one_table_do_not_hide_those_of_others() {
    let text = "[trigger]\nl2_buffers = 9\n[store]\nchunk = \"1 B\"\n[builder]\ncredits = 0\n";
    let expected = [
        ("C0006", "trigger.l2_buffers"),
        ("S0101", "store.chunk"),
        ("B0104", "builder.credits"),
        ("C0007", "format"),
        ("C0103", "source"),
        ("C0103", "link"),
        ("L0304", "link"),
    ];
    assert_eq!(problems(text), each(expected));
}

#[test]
fn a_source_written_twice_is_read_twice_and_said_once() {
    let second = "[[source]]\nrate = 5\n[[link]]\nto = \"ru0\"\nsource_id = 0x510000\n";
    let expected = [
        ("C0103", "source"),
        ("C0003", "source[1].rate"),
        ("C0105", "link[2].source_id"),
    ];
    assert_eq!(problems(&format!("{LEAST}{second}")), each(expected));
}

#[test]
fn readout_units_without_links_are_one_problem() {
    let text = LEAST.replace("ru0", "ru40000");
    assert_eq!(problems(&text), each([("C0106", "link")]));
}

#[test]
fn keys_that_would_change_nothing_are_problems() {
    let events = LEAST.replace("[[source]]", "[[source]]\nevents = \"a.csv\"");
    assert_eq!(problems(&events), each([("C0002", "source[0].events")]));
    let recorded = LEAST.replace("[[source]]", "[[source]]\nkind = \"recorded\"");
    assert_eq!(problems(&recorded), each([("C0007", "source[0].events")]));
    let count = LEAST.replace("0x700000", "0x700000\ncount = 2");
    assert_eq!(problems(&count), each([("C0006", "link[0].count")]));
    let window = format!("{LEAST}[filter]\nname = \"accept_all\"\nmass_min = \"1 GeV\"\n");
    assert_eq!(problems(&window), each([("C0002", "filter.mass_min")]));
}

#[test]
fn problems_of_a_path_stand_at_it_also_behind_a_broken_one() {
    let broken = EVERY_KEY
        .replace("bit = 1\n", "bit = 128\n")
        .replace("bit = 127", "bit = 4");
    let expected = [
        ("C0006", "trigger.path[0].bit"),
        ("T0101", "trigger.path[4].bit"),
    ];
    assert_eq!(problems(&broken), each(expected));
    let reading = read_plain(&broken);
    let related = reading.problems[1].related.as_ref();
    assert_eq!(
        related.map(|(path, _)| path.as_str()),
        Some("trigger.path[3].bit")
    );
    let only = format!("{LEAST}[[trigger.path]]\nname = 1\nbit = 0\nl1 = [0]\ncut = \"auto\"\n");
    assert_eq!(problems(&only), each([("C0003", "trigger.path[0].name")]));
    let none = format!("{LEAST}[trigger]\npath = []\n");
    assert_eq!(
        problems(&none).len(),
        1,
        "an empty menu: {:?}",
        problems(&none)
    );
}

#[test]
fn a_value_that_is_wrong_by_itself_is_not_compared_with_others() {
    let text = format!("{LEAST}pages = 300\n[builder]\ntrigger_window = 65536\ncredits = 5000\n");
    assert_eq!(problems(&text), each([("B0104", "builder.credits")]));
    let text = text.replace("5000", "500");
    assert_eq!(problems(&text), each([("B0107", "builder.credits")]));
}

/// What the cores call by the names of their fields.
#[test]
fn problems_of_the_cores_stand_at_written_keys() {
    let cases = [
        ("page = \"8 KiB\"", "page = \"100 B\"", "link[1].page"),
        (
            "fragment_max = \"64 KiB\"",
            "fragment_max = \"1 MiB\"",
            "link[1].fragment_max",
        ),
        ("in_flight = 6", "in_flight = 0", "filter.in_flight"),
        ("duration = \"7 s\"", "duration = \"0 s\"", "run.duration"),
        ("retry = \"40 ms\"", "retry = \"4 s\"", "builder.retry"),
        ("page = \"8 KiB\"", "page = \"9 B\"", "link[1].page"),
        (
            "packet_words_max = 400",
            "packet_words_max = 513",
            "trigger.packet_words_max",
        ),
        (
            "bytes_max = \"24 KiB\"",
            "bytes_max = \"65 KiB\"",
            "link[1].fragment_max",
        ),
        (
            "source_id = 0x510000",
            "source_id = 0xFFFFFFFF",
            "link[1].count",
        ),
        ("core = 3", "core = 4", "workers.worker[0].core"),
        (
            "roles = [\"src0\", \"trg0\"]",
            "roles = [\"src0\"]",
            "workers.worker",
        ),
    ];
    for (from, to, key) in cases {
        assert!(EVERY_KEY.contains(from), "{from}");
        let found = problems(&EVERY_KEY.replace(from, to));
        assert!(
            found.iter().any(|(_, found)| found == key),
            "`{to}`: {found:?}"
        );
    }
}
