//! Every key of every table is read, the defaults are those of the cores, and problems stand where
//! the person who wrote them looks.

use std::path::Path;

use livetime_builder::{BuildMode, BuilderConfig, ShapingConfig, ShapingPace};
use livetime_node::link::{LinkTransport, UdpConfig};
use livetime_node::process::{LossPolicy, OnLoss};
use livetime_node::{BuilderTransport, DataLinkConfig, WorkerConfig};
use livetime_readout::LinkConfig;
use livetime_shm::WaitStrategy;
use livetime_source::{ArrivalConfig, FragmentConfig, PhysicsConfig, TriggerSourceConfig};
use livetime_store::{FilePlan, OutputLimit, StreamFile, WriterLimits};
use livetime_trigger::{
    AngleMdeg, BeamFitConfig, BeamSpot, ChargeRule, Cut, DeadTimeControl, DimuonCut,
    ElectronMuonCut, EmCut, EnergyMev, JetCut, LengthUm, Lepton, LeptonTrackCut, MassWindowConfig,
    MergerConfig, MetEmCut, PathConfig, PhotonCut, Prescale, SingleElectronCut, SingleMuonCut,
    Sixteenths, SumEtCut, TauCut, Thousandths, TwoTrackCut,
};
use livetime_wire::fragment::CrcCheck;
use livetime_wire::trigger_packet::MuonStub;
use livetime_wire::{ByteSize, DurationNs, SourceId};

use livetime_trigger::EventCut;

use super::super::host_section::{HostConfig, HostLauncher};
use super::*;

mod hosts;
mod mistakes;
mod transport;
mod two_step;

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
    let files = read_plain(EVERY_KEY).files;
    assert_eq!(files.events_path(), Some(Path::new("events.csv")));
    assert!(config.processes);
    let roles = "src0 trg0 trg1 ru0 evm bu0 bu1 bu2 fu0 fu1 wr0 wr1";
    let host = HostConfig {
        name: "all".to_owned(),
        address: "127.0.0.2".parse().unwrap(),
        roles: roles.split(' ').map(str::to_owned).collect(),
        launcher: HostLauncher::Exec("ssh {address} {command}".to_owned()),
    };
    let hosts = HostTable {
        hosts: vec![host],
        control: Some("127.0.0.1:7450".parse().unwrap()),
        suspect: DurationNs(700_000_000),
        dead: DurationNs(6_000_000_000),
    };
    assert_eq!(config.hosts, hosts);
    let on_loss = LossPolicy {
        filter: OnLoss::Stop,
        builder: OnLoss::Continue,
        writer: OnLoss::Stop,
        readout: OnLoss::Continue,
        retries: 3,
        time_limit: DurationNs(700_000_000),
        ..LossPolicy::default()
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
            starts_paused: false,
        },
        physics: PhysicsConfig {
            z_fraction: 0.1,
            continuum_fraction: 0.11,
            displaced_fraction: 0.12,
            single_muon_fraction: 0.13,
            calorimeter_fraction: 0.14,
            empty_fraction: 0.15,
            many_objects_fraction: 0.01,
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
    let merger = MergerConfig {
        inputs: 4,
        words_max: 400,
        timeout: DurationNs(2_000_000),
    };
    assert_eq!((chain.trigger_nodes, chain.merger), (2, merger));
    let transport = LinkTransport::Udp {
        config: UdpConfig {
            window: 128,
            patience: DurationNs(20_000_000),
            buffer_bytes: 2 << 20,
            data_words_max: 2048,
        },
        datagram_words: 2048,
    };
    assert!((chain.data_links.iter()).all(|link| link.transport == transport));
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
        subfarms: 2,
        writers: 2,
        credits: 20,
        requests_per_message: 4,
        timeout: us(300_000),
        retry: us(40_000),
        probe: us(500_000),
        evm_queue: 50,
        filter_in_flight: 6,
        history: 1024,
        trigger_window: 600,
        mode: BuildMode::Push,
        credit_bytes: 8 << 20,
        event_bytes: 64 << 10,
        heartbeat: us(50_000),
        suspect: us(250_000),
        dead: us(600_000),
        shaping: Some(ShapingConfig {
            block_bytes: 32 << 10,
            // Of 2^18 bits, rounded up.
            pace: ShapingPace::Clock {
                step: DurationNs(262_144),
            },
            numbers: vec![2],
        }),
        ..BuilderConfig::default()
    };
    assert_eq!(chain.builder, builder);
    let congestion = Some("reno".to_owned());
    let tcp = BuilderTransport::Tcp { congestion };
    assert_eq!(chain.transport, tcp);
    assert_eq!(chain.filter_transport, tcp);
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
        output: OutputLimit {
            bytes_per_s: 15_000_000,
            yielding_streams: 0b10,
        },
    };
    assert_eq!(chain.store, store);
    let files = FilePlan {
        streams: vec![StreamFile {
            name: "dimuon".to_owned(),
            streams: 0b1001,
        }],
        bytes_max: 2 << 30,
        time_max: DurationNs(600_000_000_000),
        free_bytes_min: 1 << 30,
        full_wait: DurationNs(30_000_000_000),
    };
    assert_eq!(chain.files, files);
    let worker = |name: &str, core, wait, roles: &[&str]| WorkerConfig {
        name: name.to_owned(),
        core: Some(core),
        wait,
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
    };
    let behind = [
        "ru0", "evm", "bu0", "bu1", "bu2", "fu0", "fu1", "wr0", "wr1",
    ];
    let expected = [
        worker("front", 3, WaitStrategy::Block, &["src0", "trg0", "trg1"]),
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
    let path = |name: &str, bit, l1_mask, prescale: u32, cut| PathConfig {
        name: name.to_owned(),
        bit,
        l1_mask,
        cut,
        prescale: prescale.into(),
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
        beam_fit: Some(BeamFitConfig {
            events: 400,
            d_max: LengthUm(3000),
        }),
        dead_time: DeadTimeControl {
            window: 500,
            raise_above_permille: 20,
            lower_below_permille: 5,
        },
        luminosity: vec![300, 150],
        paths: vec![
            expected_zero_bias(),
            path("LEPTON_TRACK", 101, 1 << 2, 2, expected_lepton_track()),
            PathConfig {
                prescale: Prescale {
                    steps: vec![1, 5],
                    ..Prescale::default()
                },
                ..path("ELECTRON", 102, 1 << 5, 1, expected_electron())
            },
            path(
                "PHOTON",
                103,
                1 << 5,
                2,
                Cut::Photon(PhotonCut { em: em(10_000, 50) }),
            ),
            path("ELECTRON_MUON", 104, 1 << 5, 2, expected_electron_muon()),
            path("JET", 105, 1 << 6, 2, Cut::Jet(jets(1, 15_000, None, None))),
            path(
                "FOUR_JETS",
                106,
                1 << 7,
                2,
                Cut::MultiJet(jets(4, 15_000, Some(125_000), None)),
            ),
            path(
                "JETS_MET",
                107,
                1 << 8,
                2,
                Cut::JetsMet(jets(3, 10_000, None, Some(20_000))),
            ),
            path(
                "MET_EM",
                108,
                1 << 8,
                2,
                Cut::MetEm(MetEmCut {
                    met_min: EnergyMev(25_000),
                    em: em(8000, 150),
                }),
            ),
            path(
                "SUM_ET",
                109,
                1 << 7,
                2,
                Cut::SumEt(SumEtCut {
                    sum_et_min: EnergyMev(100_000),
                }),
            ),
            path("TAU", 110, 1 << 6, 2, expected_tau()),
            path("AUTO", 1, 1 | 1 << 63, 7, Cut::Auto),
            path("MIN_BIAS", 2, 1 << 1, 8, Cut::MinBias),
            path("MUON", 3, 1 << 2, 9, Cut::SingleMuon(muon)),
            path("DIMUON", 4, 1 << 3, 10, Cut::Dimuon(dimuon)),
            path("TWO_TRACK", 127, 1 << 4, 11, Cut::TwoTrack(two_track)),
        ],
    }
}

fn expected_zero_bias() -> PathConfig {
    PathConfig {
        name: "ZERO_BIAS".to_owned(),
        bit: 100,
        l1_mask: 1 << 9,
        cut: Cut::ZeroBias,
        prescale: Prescale {
            steps: vec![2],
            interval_min: DurationNs(1_000_000_000),
            luminosity_max: Some(140),
        },
    }
}

fn em(mev: i32, had_em_max: i32) -> EmCut {
    EmCut {
        em_min: EnergyMev(mev),
        had_em_max: Thousandths(had_em_max),
    }
}

fn jets(count: u32, mev: i32, sum_et: Option<i32>, met: Option<i32>) -> JetCut {
    JetCut {
        count,
        et_min: EnergyMev(mev),
        sum_et_min: sum_et.map(EnergyMev),
        met_min: met.map(EnergyMev),
    }
}

fn expected_lepton_track() -> Cut {
    Cut::LeptonTrack(LeptonTrackCut {
        lepton: Lepton::Muon(SingleMuonCut {
            types: MuonStub::CMU,
            pt_min: EnergyMev(4000),
        }),
        track_pt_min: EnergyMev(2000),
        chi2_max: Sixteenths(384),
        d_min: LengthUm(120),
        d_max: LengthUm(1000),
    })
}

fn expected_electron() -> Cut {
    Cut::SingleElectron(SingleElectronCut {
        em: em(8000, 100),
        track_pt_min: EnergyMev(4000),
        match_max: AngleMdeg(7000),
    })
}

fn expected_electron_muon() -> Cut {
    Cut::ElectronMuon(ElectronMuonCut {
        em: em(4000, 200),
        muon: SingleMuonCut {
            types: MuonStub::CMP,
            pt_min: EnergyMev(4000),
        },
    })
}

fn expected_tau() -> Cut {
    Cut::Tau(TauCut {
        et_min: EnergyMev(10_000),
        towers_max: 6,
        had_em_min: Thousandths(400),
        track_pt_min: EnergyMev(1000),
        match_max: AngleMdeg(8000),
    })
}

/// Each line of `every_key.toml` with a key, as its index, and its key.
fn key_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines.filter_map(|(index, line)| Some((index, line.split_once(" = ")?.0)))
}

#[test]
fn no_key_of_the_file_is_read_in_vain() {
    // The first counts only for workers without their own; the others can be nothing else.
    let without_effect = [
        "wait = \"spin\"",
        "count = 1",
        "name = \"mass_window\"",
        "units_max = 2",
    ];
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
    assert_eq!(headers.len(), 32, "tables of the file");
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
        // Tables of this one have headers of their own, a path has one kind of prescale, and a link
        // one kind of transport: files go without the keys of UDP. Push mode has one step,
        // streams have no receive buffer, and the rate of a link gives the step of a clock, with
        // which turns have no other time and there is no barrier.
        let elsewhere = [
            "fragment",
            "physics",
            "path",
            "worker",
            "frames",
            "file",
            "first_step",
            "receive_buffer",
            "step",
            "turn_max",
            "barrier_retry",
        ];
        let prescales = ["prescale", "prescales", "interval_min", "luminosity_max"];
        let compared = |key: &&str| !elsewhere.contains(key) && !prescales.contains(key);
        known.retain(compared);
        let mut written: Vec<&str> = key_lines(&table).map(|(_, key)| key).collect();
        written.retain(compared);
        written.sort_unstable();
        assert_eq!(written, known, "{}", lines[start]);
    }
}

#[test]
fn what_is_left_out_has_the_defaults_of_the_cores() {
    let RunConfig {
        directory,
        processes,
        are_threads,
        on_loss,
        hosts,
        chain,
    } = good(LEAST);
    assert!(!processes && !are_threads);
    assert_eq!(read_plain(LEAST).files.events_path(), None);
    assert_eq!(hosts, HostTable::default());
    assert_eq!(on_loss, LossPolicy::default());
    assert_eq!(directory, PathBuf::from("runs"));
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
    assert_eq!((chain.trigger_nodes, chain.merger), (1, MergerConfig::NONE));
    assert_eq!(chain.data_links[0].transport, LinkTransport::Emulated);
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
    assert_eq!(chain.files, FilePlan::default());
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
        paused: true,
        processes: true,
    });
    let source = &all.chain.source;
    assert_eq!((source.seed, source.triggers.arrival.rate.0), (5, 50.0));
    assert_eq!(source.triggers.triggers_max, Some(6));
    assert_eq!(source.triggers.duration, Some(DurationNs(9)));
    assert!(source.triggers.starts_paused);
    let other = Overrides {
        events: Some(PathBuf::from("other.csv")),
        ..nothing.clone()
    };
    let files = read(EVERY_KEY, &other, &CORES).files;
    assert_eq!(files.events_path(), Some(Path::new("other.csv")));

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
    let timeout = lossless.chain.merger.timeout;
    assert_eq!(timeout, MergerConfig::TIMEOUT_MAX, "a part may be late");
    let paced = with(Overrides {
        lossless: true,
        rate: Some(RateHz(50.0)),
        ..nothing
    });
    let kind = paced.chain.source.triggers.arrival.kind;
    assert_eq!(kind, ArrivalKind::FixedGap, "a rate asked for is kept");
}

#[test]
fn a_run_goes_on_without_a_writer_only_where_there_are_several() {
    let several = EVERY_KEY.replace(
        "on_loss = \"stop\"\nfile_max",
        "on_loss = \"continue\"\nfile_max",
    );
    assert_ne!(several, EVERY_KEY);
    assert_eq!(good(&several).on_loss.writer, OnLoss::Continue);
    let one = "[store]\non_loss = \"continue\"\n";
    let found = problems(&format!("{LEAST}{one}"));
    assert_eq!(found, each([("C0005", "store.on_loss")]));
}

#[test]
fn another_takes_the_place_of_an_event_manager_unless_builder_units_end_the_run() {
    for (on_loss, expected) in [
        ("restart", OnLoss::Restart),
        ("continue", OnLoss::Restart),
        ("stop", OnLoss::Stop),
    ] {
        let config = good(&format!("{LEAST}[builder]\non_loss = \"{on_loss}\"\n"));
        assert_eq!(config.on_loss.manager, expected, "{on_loss}");
    }
}

#[test]
fn another_takes_the_place_of_a_readout_unit_unless_its_links_play_files() {
    let restart = "[builder]\non_readout_loss = \"restart\"\n";
    let config = good(&format!("{LEAST}{restart}"));
    assert_eq!(config.on_loss.readout, OnLoss::Restart);
    let played = "kind = \"file\"\nframes = \".\"\n";
    let found = problems(&format!("{LEAST}{played}{restart}"));
    let expected = ("C0107", "builder.on_readout_loss".to_owned());
    assert!(found.contains(&expected), "{found:?}");
}

#[test]
fn a_python_filter_is_read_with_the_paths_of_the_menu() {
    let example = include_str!("../../../../../examples/dimuon.toml");
    let (before, _) = example.split_once("[filter]").expect("it has one");
    let filter = |keys: &str| {
        let text = format!("{before}[filter]\nretries = 2\n{keys}");
        let reading = read(&text, &Overrides::default(), &[0, 1]);
        let codes: Vec<String> = reading
            .problems
            .iter()
            .map(|p| p.code.code.to_owned())
            .collect();
        (reading.config.map(|config| config.chain.filter), codes)
    };
    let keys = "python = \"a/b.py:select\"\nbatch = 64\nwait = \"2 ms\"\ninterpreter = \"py\"\n\
                streams = [\"z\", \"w\"]\nmemory_max = \"1 GiB\"\ntime_limit = \"3 s\"";
    let (found, _) = filter(keys);
    let Some(FilterConfig::Python(python)) = found else {
        panic!("{found:?}");
    };
    assert_eq!(python.file, PathBuf::from("a/b.py"));
    assert_eq!(
        (python.function.as_str(), python.batch),
        ("select", Some(64))
    );
    assert_eq!(python.wait, Some(DurationNs(2_000_000)));
    assert_eq!(python.interpreter, PathBuf::from("py"));
    assert_eq!(python.streams, ["z", "w"]);
    assert_eq!(python.memory_max, ByteSize(1 << 30));
    assert_eq!(
        (python.retries, python.time_limit),
        (2, DurationNs(3_000_000_000))
    );
    assert!(python.paths.contains(&("DIMUON_OS".to_owned(), 16)));
    for (keys, code) in [
        ("name = \"python\"", "C0007"),
        ("python = \"no_function.py\"", "C0004"),
        ("python = \":select\"", "R0104"),
        ("python = \"a.py:f\"\nstreams = [\"a\", \"a\"]", "R0104"),
        ("python = \"a.py:f\"\nstreams = [\"error\"]", "R0104"),
        ("python = \"a.py:f\"\nmass_min = \"3 GeV\"", "C0002"),
        ("name = \"user\"\nchain = \"mine\"", "T0303"),
        ("name = \"accept_all\"\npython = \"a.py:f\"", "C0002"),
    ] {
        let (_, codes) = filter(keys);
        assert!(codes.iter().any(|found| found == code), "{keys}: {codes:?}");
    }
}

#[test]
fn a_level_three_menu_is_read_with_its_streams() {
    let example = include_str!("../../../../../examples/dimuon.toml");
    let (before, _) = example.split_once("[filter]").expect("it has one");
    let menu = |paths: &str| {
        let table =
            "[filter]\nname = \"menu\"\nstreams = [\"z\", \"rest\"]\nevent_limit = \"1 ms\"\n";
        let reading = read(
            &format!("{before}{table}{paths}"),
            &Overrides::default(),
            &[0, 1],
        );
        let codes = reading.problems.iter().map(|p| p.code.code.to_owned());
        let codes: Vec<String> = codes.collect();
        (reading.config.map(|config| config.chain.filter), codes)
    };
    let z = "[[filter.path]]\nname = \"Z\"\ncut = \"dimuon\"\nl2 = [16]\nmass_min = \"70 GeV\"\n\
             mass_max = \"110 GeV\"\npt_min = \"1 GeV\"\nvertex_max = \"2 mm\"\nstreams = [\"z\"]\n";
    let muons = "[[filter.path]]\nname = \"MU\"\ncut = \"muons\"\ncount = 2\npt_min = \"3 GeV\"\n\
                 prescale = 5\nstreams = [\"rest\", \"z\"]\n";
    let (found, codes) = menu(&format!("{z}{muons}"));
    assert_eq!(codes, [""; 0]);
    let Some(FilterConfig::Menu(found)) = found else {
        panic!("{found:?}");
    };
    assert_eq!(found.event_limit, DurationNs(1_000_000));
    let [z_path, muon_path] = &found.paths[..] else {
        panic!("{found:?}");
    };
    let EventCut::Dimuon(cut) = z_path.cut else {
        panic!("{z_path:?}");
    };
    assert_eq!(
        (cut.mass_min_gev, cut.mass_max_gev, cut.pt_min_gev),
        (70.0, 110.0, 1.0)
    );
    assert!((cut.vertex_max_cm - 0.2).abs() < 1e-12);
    assert_eq!(
        (z_path.l2.as_slice(), z_path.streams.as_slice()),
        (&[16][..], &[0][..])
    );
    assert_eq!(muon_path.cut, EventCut::Muons(2, 3.0));
    assert_eq!(
        (muon_path.prescale, muon_path.streams.as_slice()),
        (5, &[1, 0][..])
    );
    let (_, codes) = menu("[[filter.path]]\nname = \"Z\"\ncut = \"all\"\nstreams = [\"w\"]\n");
    assert_eq!(codes, ["C0005"], "and not that there is no path");
    for (paths, code) in [
        ("", "T0302"),
        ("[[filter.path]]\nname = \"Z\"\n", "C0007"),
        (
            "[[filter.path]]\nname = \"Z\"\ncut = \"dimuons\"\n",
            "C0005",
        ),
        (
            "[[filter.path]]\nname = \"Z\"\ncut = \"all\"\nstreams = [\"w\"]\n",
            "C0005",
        ),
        (
            "[[filter.path]]\nname = \"Z\"\ncut = \"all\"\nmass_min = \"1 GeV\"\n",
            "C0002",
        ),
        ("[[filter.path]]\nname = \"Z\"\ncut = \"all\"\n", "T0302"),
    ] {
        let (_, codes) = menu(paths);
        assert!(
            codes.iter().any(|found| found == code),
            "{paths}: {codes:?}"
        );
    }
}
