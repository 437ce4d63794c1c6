use std::cell::{Cell, RefCell};

use super::*;
use crate::builder_network::{BuilderNetwork, Shaping};
use crate::network::topology::Wiring;
use crate::network::{Arrival, Estimate, RoutePolicy};
use crate::scenario::TopologyChoice;
use candidate::candidates;
use search::Search;
use trial::Trial;

/// Links that are loaded to 74 %; hosts that take no time for anything.
pub(super) fn request() -> PlanRequest {
    PlanRequest {
        sources: 8,
        builders: 8,
        sizes: SizeLaw::LogNormal {
            mean: 2048.0,
            rms: 1024.0,
        },
        overhead_bytes: 0,
        mtu: 0,
        rate_hz: 45e3,
        link_bits_per_s: 1_000_000_000,
        hop_delay: DurationPs::ZERO,
        buffer_bytes: 256 << 10,
        block_bytes: 4096,
        hosts: HostModel {
            message: DurationPs::ZERO,
            event: DurationPs::ZERO,
            ..HostModel::default()
        },
        control: Control::Separate {
            bits_per_s: 10_000_000_000,
            latency: DurationPs::from_us(10),
        },
        networks: vec![NetworkKind::Delta],
        protocols: Vec::new(),
        events: 4_000,
        seed: 1,
    }
}

/// The answer for a way of sending on the first network.
fn answer(request: &PlanRequest, sending: Sending) -> PlanOption {
    assert_eq!(request.problem(), None);
    let is_it = |candidate: &Candidate| candidate.sending == sending;
    let candidate = candidates(request).into_iter().find(is_it).unwrap();
    let runs = Cell::new(0);
    let hear = |run: &PlanRun<'_>| {
        assert_eq!((run.sending, run.number), (sending, runs.get() + 1));
        runs.set(run.number);
    };
    let option = request.option(&candidate, &hear).unwrap();
    assert!(runs.get() >= 2, "a short run and a judged one");
    option
}

#[test]
fn shaping_holds_where_free_traffic_does_not() {
    let (source, builder) = request().link_loads(Shaping::None);
    assert!((source - 0.73728).abs() < 1e-9 && source == builder);
    let fifo = answer(&request(), Sending::PullInputFifo);
    assert_eq!(fifo.verdict, Verdict::Fails, "{fifo:?}");
    assert_eq!(fifo.bottleneck, Bottleneck::Switch);
    let barrel = answer(&request(), Sending::BarrelShifter);
    assert!(barrel.holds() && barrel.margin.unwrap() > 0.1, "{barrel:?}");
    assert!(answer(&request(), Sending::PullVirtualOutput).holds());
    // A barrier of 20 us for each phase of 4 KiB, which take 33 us.
    let linear = answer(&request(), Sending::LinearShift);
    assert_eq!(linear.bottleneck, Bottleneck::ControlNetwork, "{linear:?}");
}

#[test]
fn filters_and_builder_links_limit_whatever_the_network_does() {
    let mut slow = request();
    slow.hosts.event = DurationPs::from_us(1_000);
    let option = answer(&slow, Sending::PullVirtualOutput);
    assert_eq!(option.verdict, Verdict::Fails);
    assert_eq!(option.bottleneck, Bottleneck::Filter);
    // 8 filters of 1 ms have time for 8 kHz.
    let capacity = option.capacity_hz.unwrap();
    assert!((capacity - 8e3).abs() < 400.0, "{option:?}");

    let few = PlanRequest {
        builders: 2,
        ..request()
    };
    let option = answer(&few, Sending::BarrelShifter);
    assert_eq!(option.verdict, Verdict::Fails);
    assert_eq!(option.bottleneck, Bottleneck::BuilderLinks);
}

#[test]
fn more_events_are_judged_where_they_are_asked_for() {
    // More fragments and blocks than a run usually takes.
    let many = PlanRequest {
        sources: 32,
        builders: 32,
        events: 70_000,
        ..request()
    };
    for sending in [Sending::PullInputFifo, Sending::BarrelShifter] {
        let option = answer(&many, sending);
        assert!(option.events > 65_000, "{option:?}");
    }
}

#[test]
fn busy_processors_get_fewer_messages() {
    let mut busy = request();
    busy.networks = vec![NetworkKind::Crossbar];
    // One request and one release for each event and readout unit take 16 x 12 us of a builder
    // unit: 42 kHz for all eight. In groups they take a fraction of it.
    busy.hosts.message = DurationPs::from_us(12);
    let grouped = answer(&busy, Sending::PullVirtualOutput);
    assert!(grouped.interval > DurationPs::ZERO, "{grouped:?}");
    let rate = grouped.event_rate;
    assert!(rate.mean - rate.ci95 > busy.rate_hz, "{grouped:?}");
    // Where not even that is enough, the processor is named.
    busy.hosts.message = DurationPs::from_us(2_000);
    let hopeless = answer(&busy, Sending::PullVirtualOutput);
    assert!(!hopeless.holds());
    let processors = [
        Bottleneck::ReadoutProcessor,
        Bottleneck::BuilderProcessor,
        Bottleneck::ManagerProcessor,
    ];
    assert!(processors.contains(&hopeless.bottleneck), "{hopeless:?}");
}

#[test]
fn buffers_that_overflow_are_named() {
    let tight = PlanRequest {
        sizes: SizeLaw::Fixed(2048),
        buffer_bytes: 4 << 10,
        networks: vec![NetworkKind::Crossbar],
        ..request()
    };
    // Eight fragments come to a port at once whatever the credits, and two have room.
    let option = answer(&tight, Sending::PullLossy);
    assert!(!option.holds() && option.lost > 0, "{option:?}");
    assert_eq!(option.bottleneck, Bottleneck::Buffers);
    assert_eq!(option.credits, 1);
    let roomy = PlanRequest {
        buffer_bytes: 1 << 20,
        ..tight
    };
    let option = answer(&roomy, Sending::PullLossy);
    assert!(option.holds() && option.lost == 0, "{option:?}");
}

/// Few events of sizes that vary as much as their mean: no run of it converges.
fn short_of_events() -> PlanRequest {
    PlanRequest {
        events: 100,
        sizes: SizeLaw::Exponential { mean: 2048.0 },
        ..request()
    }
}

#[test]
fn what_has_not_converged_has_no_capacity() {
    let rate = |option: &PlanOption| option.event_rate.mean;
    let first = answer(&short_of_events(), Sending::PullWormhole);
    // About what it reaches: on neither side of it.
    let open = PlanRequest {
        rate_hz: rate(&first),
        ..short_of_events()
    };
    let option = answer(&open, Sending::PullWormhole);
    assert!(!option.event_rate.converged, "{option:?}");
    assert_eq!((option.capacity_hz, option.margin), (None, None));
    let Verdict::NotShown(reason) = &option.verdict else {
        panic!("{option:?}");
    };
    assert!(reason.starts_with("not converged"), "{reason}");
}

#[test]
fn what_has_not_converged_may_be_clear_all_the_same() {
    let reached = answer(&short_of_events(), Sending::PullWormhole);
    let at = |share: f64| {
        let asked = PlanRequest {
            rate_hz: share * reached.event_rate.mean,
            ..short_of_events()
        };
        answer(&asked, Sending::PullWormhole)
    };
    for (share, verdict) in [(0.4, Verdict::Holds), (1.6, Verdict::Fails)] {
        let option = at(share);
        assert!(!option.event_rate.converged, "{option:?}");
        assert_eq!(option.verdict, verdict, "{option:?}");
        let [least, most] = option.margin_bounds.expect("a run without a trend");
        assert!(least < most, "{option:?}");
        match verdict {
            Verdict::Holds => assert!(least > 0.0, "{option:?}"),
            _ => assert!(most < 0.0, "{option:?}"),
        }
        assert_eq!((option.capacity_hz, option.margin), (None, None));
    }
}

#[test]
fn each_packet_of_a_fragment_loads_the_links_with_its_overhead() {
    let whole = PlanRequest {
        sizes: SizeLaw::Fixed(6000),
        overhead_bytes: 100,
        rate_hz: 10e3,
        ..request()
    };
    let cut = PlanRequest {
        mtu: 1500,
        block_bytes: 1024,
        ..whole.clone()
    };
    let load = |bytes: f64| 10e3 * bytes * 8.0 / 1e9;
    assert!((whole.link_loads(Shaping::None).0 - load(6100.0)).abs() < 1e-9);
    assert!((cut.link_loads(Shaping::None).0 - load(6400.0)).abs() < 1e-9);
    let rate = |request: &PlanRequest| answer(request, Sending::PullWormhole).event_rate.mean;
    let ratio = rate(&cut) / rate(&whole);
    assert!(ratio < 1.0, "{ratio}");
    // A buffer holds packets, not fragments.
    let small = PlanRequest {
        buffer_bytes: 5000,
        ..cut
    };
    assert_eq!(small.problem(), None);
}

/// A link of 10 Gb/s carries 152.59 kHz of 8 KiB, and a short run counts a few more.
#[test]
fn no_capacity_is_more_than_the_links_carry() {
    let mut full = PlanRequest {
        sizes: SizeLaw::Fixed(8192),
        rate_hz: 160e3,
        link_bits_per_s: 10_000_000_000,
        buffer_bytes: 1 << 20,
        hosts: HostModel::default(),
        networks: vec![NetworkKind::Crossbar],
        events: EVENTS_USUAL,
        ..request()
    };
    full.hosts.event = DurationPs::from_us(10);
    full.control = Control::Separate {
        bits_per_s: 1_000_000_000,
        latency: DurationPs::from_us(10),
    };
    let most = 10e9 / (8.0 * 8192.0);
    let option = answer(&full, Sending::BarrelShifter);
    assert!(option.event_rate.mean > most, "{option:?}");
    let capacity = option.capacity_hz.unwrap();
    assert!((capacity / most - 1.0).abs() < 1e-9, "{option:?}");
    let [least, bound] = option.margin_bounds.unwrap();
    assert!(
        least <= bound && bound < most / 160e3 - 1.0 + 1e-9,
        "{option:?}"
    );
    assert!(option.efficiency.unwrap() < 1.0 + 1e-9, "{option:?}");
}

/// An event of 50 MiB takes 84 ms of the links, and all those that builder units hold take longer
/// than one usually waits before it gives up.
#[test]
fn events_that_wait_for_each_other_for_long_are_whole() {
    let mut slow = PlanRequest {
        sources: 5,
        builders: 5,
        sizes: SizeLaw::Fixed(10 << 20),
        rate_hz: 10.0,
        buffer_bytes: 32 << 20,
        protocols: vec![Protocol::Pull],
        events: EVENTS_USUAL,
        ..request()
    };
    slow.hosts.event = DurationPs::from_ms(1);
    let most = 1e9 / (8.0 * f64::from(10 << 20));
    for candidate in candidates(&slow) {
        let search = Search::new(
            &slow,
            &candidate,
            candidate.choice.build().unwrap(),
            &|_| {},
        );
        let setting = search.first_setting();
        let usual = BuilderNetwork::default();
        let builder = search.builder(setting);
        let held = f64::from(builder.credits * slow.builders);
        assert!(builder.timeout.0 as f64 > 30e9 * held / most, "{builder:?}");
        assert!(usual.retry < builder.retry && builder.retry < builder.timeout);
        let trial = search.trial(setting, search.short(most), Arrival::Saturated);
        assert!(trial.incomplete == 0 || trial.lost > 0, "{trial:?}");

        let option = slow.option(&candidate, &|_| {}).unwrap();
        let rate = option.event_rate.mean;
        assert!(rate < 1.02 * most, "the links carry {most} Hz: {option:?}");
        if let Some(margin) = option.margin {
            assert!(margin < most / slow.rate_hz - 1.0 + 1e-9, "{option:?}");
        }
    }
}

#[test]
fn events_without_some_of_their_fragments_show_nothing() {
    let asked = request();
    let candidate = candidates(&asked).remove(0);
    let search = Search::new(
        &asked,
        &candidate,
        candidate.choice.build().unwrap(),
        &|_| {},
    );
    let mut trial = Trial::none(search.first_setting());
    trial.rate = Estimate::of(&[1.2 * asked.rate_hz; 32]);
    assert!(search.judge(&trial).holds(), "{trial:?}");
    trial.incomplete = 7;
    let option = search.judge(&trial);
    let Verdict::NotShown(reason) = &option.verdict else {
        panic!("{option:?}");
    };
    assert!(reason.starts_with("7 events were closed"), "{reason}");
    assert_eq!((option.capacity_hz, option.margin_bounds), (None, None));
    // A setting fails; the option only if no other one may carry the rate.
    let mut trial = Trial::none(search.first_setting());
    trial.rate = Estimate::of(&[0.8 * asked.rate_hz; 32]);
    assert_eq!(search.judge(&trial).verdict, Verdict::Fails);
    trial.is_open = true;
    let open = search.judge(&trial).verdict;
    assert!(matches!(open, Verdict::NotShown(_)), "{open:?}");
}

#[test]
fn names_say_where_a_network_is_not_that_of_a_scenario_without_more_keys() {
    let all = PlanRequest {
        networks: Vec::new(),
        ..request()
    };
    for Candidate {
        name,
        choice,
        routes,
        sending,
        ..
    } in candidates(&all)
    {
        let wiring = match choice {
            TopologyChoice::Delta { wiring, .. } => wiring,
            _ => Wiring::default(),
        };
        let is_wired = wiring != Wiring::default();
        assert_eq!(name.ends_with(", natural wiring"), is_wired, "{name}");
        let is_shift = matches!(sending, Sending::BarrelShifter | Sending::LinearShift);
        let is_routed = routes != RoutePolicy::default() && !is_shift;
        let words = ", routes by source port";
        assert_eq!(name.ends_with(words), is_routed, "{name}");
    }
}

#[test]
fn bad_requests_are_refused() {
    type Change = fn(&mut PlanRequest);
    let cases: [(&str, Change); 10] = [
        ("1 sources", |r| r.sources = 1),
        ("list without sizes", |r| r.sizes = SizeLaw::Trace(vec![])),
        ("rate of 0", |r| r.rate_hz = 0.0),
        ("rate of 0.0009", |r| r.rate_hz = 9e-4),
        ("link of 5", |r| r.link_bits_per_s = 5),
        ("blocks of 1", |r| r.block_bytes = 1),
        ("packets of 9", |r| r.mtu = 9),
        ("in packets of up to 1500", |r| r.mtu = 1500),
        ("buffers of 9", |r| r.buffer_bytes = 9),
        ("which take 71 days", |r| {
            (r.events, r.sizes, r.link_bits_per_s) = (10_000_000, SizeLaw::Fixed(76_800), 1_000_000)
        }),
    ];
    for (part, change) in cases {
        let mut wrong = request();
        change(&mut wrong);
        let problem = wrong.problem().unwrap();
        assert!(problem.contains(part), "{problem}");
    }
    // Those who send no blocks may have packets of any size.
    let no_blocks = PlanRequest {
        mtu: 1500,
        protocols: vec![Protocol::Pull, Protocol::LinearShift],
        ..request()
    };
    assert_eq!(no_blocks.problem(), None);
}

/// Longer than simulated time can be: what is left of them is run.
#[test]
fn a_run_that_would_take_longer_than_time_is_as_long_as_it_may_be() {
    let asked = PlanRequest {
        sources: 2,
        builders: 1,
        sizes: SizeLaw::Fixed(16 << 20),
        link_bits_per_s: 100_000_000,
        buffer_bytes: 32 << 20,
        events: 10_000_000,
        ..request()
    };
    let problem = asked.problem().unwrap();
    assert!(problem.contains("which take 311 days"), "{problem}");
    let candidate = candidates(&asked).remove(0);
    let topology = candidate.choice.build().unwrap();
    let search = Search::new(&asked, &candidate, topology, &|_| {});
    let setting = |interval| search::Setting {
        interval,
        ..search.first_setting()
    };
    for interval in [DurationPs::ZERO, DurationPs::from_ms(1), DurationPs::MAX] {
        for expected_hz in [0.37, 1e-9, f64::MIN_POSITIVE] {
            let builder = search.builder(setting(interval));
            let (warm_up, duration) = search.times(&builder, search.long(expected_hz));
            let share = (warm_up + duration).0 as f64 / trial::TIME_MAX.0 as f64;
            assert!(
                (0.99..2.0).contains(&share),
                "{interval} {expected_hz} {warm_up} {duration}"
            );
        }
    }
}

#[test]
fn many_nodes_are_set_in_small_and_judged_as_they_are() {
    let large = PlanRequest {
        sources: 128,
        builders: 128,
        networks: vec![NetworkKind::Crossbar],
        ..request()
    };
    let runs = RefCell::new(Vec::new());
    let hear = |run: &PlanRun<'_>| runs.borrow_mut().push((run.number, run.sources));
    let option = |sending| {
        runs.borrow_mut().clear();
        let is_it = |candidate: &Candidate| candidate.sending == sending;
        let candidate = candidates(&large).into_iter().find(is_it).unwrap();
        large.option(&candidate, &hear).unwrap()
    };
    // The answers that few nodes have.
    let barrel = option(Sending::BarrelShifter);
    assert!(
        barrel.holds() && barrel.margin_bounds.unwrap()[0] > 0.1,
        "{barrel:?}"
    );
    let fifo = option(Sending::PullInputFifo);
    assert_eq!(fifo.verdict, Verdict::Fails, "{fifo:?}");
    assert_eq!(fifo.bottleneck, Bottleneck::Switch, "{fifo:?}");
    let runs = runs.into_inner();
    let small = runs
        .iter()
        .take_while(|(_, sources)| *sources == 64)
        .count();
    let whole = runs.iter().skip(small).all(|(_, sources)| *sources == 128);
    assert!(
        small >= 2 && whole && (1..=4).contains(&(runs.len() - small)),
        "{runs:?}"
    );
    assert!(
        runs.iter()
            .zip(1..)
            .all(|((number, _), nth)| *number == nth)
    );
}

#[test]
fn an_event_manager_that_tells_every_source_is_known_to_be_too_slow() {
    let mut large = PlanRequest {
        sources: 512,
        builders: 512,
        ..request()
    };
    // 512 messages of 2 us for 32 events: 31 kHz of the 45 kHz.
    large.hosts.message = DurationPs::from_us(2);
    let is_it = |candidate: &Candidate| candidate.sending == Sending::PushVirtualOutput;
    let candidate = candidates(&large).into_iter().find(is_it).unwrap();
    let option = large.option(&candidate, &|run| panic!("{run:?}")).unwrap();
    assert_eq!(option.verdict, Verdict::Fails);
    assert_eq!(option.bottleneck, Bottleneck::ManagerProcessor);
    let most = 32.0 / (512.0 * 2e-6) / 45e3 - 1.0;
    assert!(
        (option.margin_bounds.unwrap()[1] - most).abs() < 1e-9,
        "{option:?}"
    );
}

/// Pull on switches, with hosts that take the usual time.
fn pulled(kind: NetworkKind, sources: u32, rate_hz: f64) -> PlanRequest {
    PlanRequest {
        sources,
        builders: sources,
        sizes: SizeLaw::Fixed(2048),
        rate_hz,
        buffer_bytes: 1 << 20,
        hosts: HostModel::default(),
        control: Control::Separate {
            bits_per_s: 1_000_000_000,
            latency: DurationPs::from_us(10),
        },
        networks: vec![kind],
        protocols: vec![Protocol::Pull],
        events: EVENTS_USUAL,
        ..request()
    }
}

#[test]
fn what_is_busy_but_not_full_gets_more_credits() {
    // The bus carries 4.883 kHz; with four credits it waits now and then.
    let mut bus = pulled(NetworkKind::Crossbar, 4, 4.8e3);
    bus.hosts.bus_bytes_per_s = 10_000_000;
    let option = answer(&bus, Sending::PullVirtualOutput);
    assert!(option.holds() && option.credits > 4, "{option:?}");
    assert_eq!(option.bottleneck, Bottleneck::Bus);
    assert!(option.capacity_hz.unwrap() > 4.84e3, "{option:?}");
    // Links that carry 71.2 kHz of two packets.
    let mut links = PlanRequest {
        sizes: SizeLaw::Fixed(1600),
        mtu: 1500,
        overhead_bytes: 78,
        ..pulled(NetworkKind::Crossbar, 4, 70e3)
    };
    links.hosts.event = DurationPs::from_us(1);
    links.hosts.message = DurationPs::ZERO;
    let option = answer(&links, Sending::PullVirtualOutput);
    assert_ne!(option.verdict, Verdict::Fails, "{option:?}");
    assert!(option.event_rate.mean > 70e3, "{option:?}");
}

/// With eight credits packets stand in each other's way more than with fewer.
#[test]
fn fewer_credits_are_tried_where_packets_wait_for_each_other() {
    let near = pulled(NetworkKind::Crossbar, 16, 40e3);
    for sending in [Sending::PullWormhole, Sending::PullInputFifo] {
        let option = answer(&near, sending);
        assert_ne!(option.verdict, Verdict::Fails, "{option:?}");
        assert!(
            option.credits < 8 && option.event_rate.mean > 41e3,
            "{option:?}"
        );
        assert_eq!(option.bottleneck, Bottleneck::Switch, "{option:?}");
    }
    // Eight credits carry 48.5 kHz here, and two let packets find an order of their own as long as there
    // are always triggers: those that come evenly do not keep it.
    let mut ordered = PlanRequest {
        sizes: SizeLaw::Fixed(1600),
        mtu: 1500,
        overhead_bytes: 78,
        ..pulled(NetworkKind::Delta, 4, 58e3)
    };
    ordered.hosts.event = DurationPs::from_us(1);
    ordered.hosts.message = DurationPs::ZERO;
    let option = answer(&ordered, Sending::PullInputFifo);
    assert!(!option.holds() && option.credits < 8, "{option:?}");
    assert_eq!(option.bottleneck, Bottleneck::Switch, "{option:?}");
}

#[test]
fn what_holds_at_a_rate_holds_at_a_lower_one() {
    for rate_hz in [5e3, 20e3, 30e3] {
        let asked = pulled(NetworkKind::TwoLevel, 8, rate_hz);
        let is_it = |candidate: &Candidate| {
            candidate.sending == Sending::PullWormhole && candidate.name.ends_with("2 cores")
        };
        let candidate = candidates(&asked).into_iter().find(is_it).unwrap();
        let option = asked.option(&candidate, &|_| {}).unwrap();
        assert!(option.holds(), "{rate_hz}: {option:?}");
        assert!(option.margin_bounds.unwrap()[0] > 0.0, "{option:?}");
    }
}

#[test]
fn a_clear_run_names_what_limits_it_also_where_the_links_are_too_slow() {
    // The links carry 61 kHz, and the switch two thirds of it.
    let option = answer(
        &pulled(NetworkKind::Crossbar, 16, 62e3),
        Sending::PullWormhole,
    );
    assert_eq!(option.verdict, Verdict::Fails);
    assert_eq!(option.bottleneck, Bottleneck::Switch, "{option:?}");
}

/// Eight sources on nine ports: a ninth of the blocks is for nobody.
#[test]
fn blocks_for_free_ports_load_what_brings_them() {
    let mut shifted = PlanRequest {
        protocols: vec![Protocol::BarrelShifter],
        ..pulled(NetworkKind::Delta, 8, 1e3)
    };
    let links = answer(&shifted, Sending::BarrelShifter);
    assert_eq!(links.bottleneck, Bottleneck::SourceLinks, "{links:?}");
    assert!((links.capacity_hz.unwrap() - 1e9 / (8.0 * 2048.0) * 8.0 / 9.0).abs() < 600.0);
    shifted.hosts.bus_bytes_per_s = 20_000_000;
    for gigabits in [1, 100] {
        shifted.link_bits_per_s = gigabits * 1_000_000_000;
        let option = answer(&shifted, Sending::BarrelShifter);
        assert_eq!(option.bottleneck, Bottleneck::Bus, "{option:?}");
        let most = 20e6 / 2048.0 * 8.0 / 9.0;
        assert!(
            (option.capacity_hz.unwrap() / most - 1.0).abs() < 0.01,
            "{option:?}"
        );
    }
}

/// With triggers that are always there 32 events share each message of the event manager; those that come
/// one by one go alone.
#[test]
fn what_holds_builds_triggers_that_come_evenly() {
    for rate_hz in [50e3, 20e3] {
        let asked = PlanRequest {
            sizes: SizeLaw::Fixed(4096),
            rate_hz,
            link_bits_per_s: 10_000_000_000,
            protocols: vec![Protocol::Push],
            ..pulled(NetworkKind::Crossbar, 16, rate_hz)
        };
        let option = answer(&asked, Sending::PushVirtualOutput);
        let candidate = candidates(&asked).remove(0);
        let topology = candidate.choice.build().unwrap();
        let search = Search::new(&asked, &candidate, topology, &|_| {});
        let setting = search::Setting {
            credits: option.credits,
            requests_per_message: option.requests_per_message,
            interval: option.interval,
        };
        let interval = DurationPs((1e12 / rate_hz) as u64);
        let even = search.trial(setting, search.long(rate_hz), Arrival::Fixed { interval });
        let is_built = even.refused == 0 && even.rate.mean > 0.98 * rate_hz;
        assert_eq!(option.holds(), is_built, "{option:?}, {even:?}");
        if !is_built {
            assert_eq!(
                option.bottleneck,
                Bottleneck::ManagerProcessor,
                "{option:?}"
            );
            assert!(
                option.capacity_hz.is_none_or(|hz| hz < rate_hz),
                "{option:?}"
            );
        }
    }
}

/// Faster processors would not help much where packets that wait in one FIFO fill their switch.
#[test]
fn what_limits_nearly_as_much_is_named_too() {
    let mut asked = PlanRequest {
        sizes: SizeLaw::Fixed(4000),
        link_bits_per_s: 10_000_000_000,
        ..pulled(NetworkKind::Crossbar, 8, 171_784.0)
    };
    asked.hosts.event = DurationPs::from_ns(4_657);
    let option = answer(&asked, Sending::PullInputFifo);
    assert_eq!(
        option.bottleneck,
        Bottleneck::BuilderProcessor,
        "{option:?}"
    );
    assert_eq!(
        option.next_bottleneck,
        Some(Bottleneck::Switch),
        "{option:?}"
    );
    let option = answer(&asked, Sending::PullVirtualOutput);
    assert_eq!(option.next_bottleneck, None, "{option:?}");
    // Links of sources and builders alike, and a filter that is as slow as they are.
    asked.hosts.message = DurationPs::ZERO;
    asked.hosts.event = DurationPs::from_us(26);
    let option = answer(&asked, Sending::PullVirtualOutput);
    let both = [Some(option.bottleneck), option.next_bottleneck];
    assert!(both.contains(&Some(Bottleneck::Filter)), "{option:?}");
    assert!(option.next_bottleneck.is_some(), "{option:?}");
}

/// Fragments of one size lock into orders whose rates are on both sides of this one, by the seed.
#[test]
fn no_seed_holds_what_another_one_fails() {
    let mut asked = pulled(NetworkKind::Crossbar, 4, 45e3);
    asked.hosts.event = DurationPs::from_us(20);
    for sending in [Sending::PullWormhole, Sending::PullInputFifo] {
        let options = (1..=8).map(|seed| {
            let asked = PlanRequest {
                seed,
                ..asked.clone()
            };
            answer(&asked, sending)
        });
        let options: Vec<PlanOption> = options.collect();
        let has = |verdict: Verdict| options.iter().any(|option| option.verdict == verdict);
        assert!(
            !(has(Verdict::Holds) && has(Verdict::Fails)),
            "{options:#?}"
        );
        for option in &options {
            assert_eq!(option.starts, 8, "{option:?}");
            let [least, most] = option.margin_bounds.expect("runs that are filled");
            match option.verdict {
                Verdict::Holds => assert!(least > 0.0, "{option:?}"),
                Verdict::Fails => assert!(least < 0.0, "{option:?}"),
                Verdict::NotShown(_) => assert!(least < 0.0 && most > 0.0, "{option:?}"),
            }
        }
    }
    // Shifts give packets their order: one start is enough.
    asked.protocols = vec![Protocol::BarrelShifter];
    assert_eq!(answer(&asked, Sending::BarrelShifter).starts, 1);
}

/// With four times the credits packets are lost here, and nothing is gained where buffers have room for
/// them.
#[test]
fn buffers_are_named_only_where_larger_ones_would_help() {
    for (kind, elements) in [(NetworkKind::FourLayer, 36), (NetworkKind::TwoLevel, 6)] {
        let asked = PlanRequest {
            sizes: SizeLaw::Fixed(4096),
            ..pulled(kind, 16, 20e3)
        };
        let is_it = |candidate: &Candidate| {
            let topology = candidate.choice.build().unwrap();
            candidate.sending == Sending::PullLossy && topology.elements().len() == elements
        };
        let candidate = candidates(&asked).into_iter().find(is_it).unwrap();
        let option = asked.option(&candidate, &|_| {}).unwrap();
        assert_eq!(option.lost, 0, "{option:?}");
        assert_eq!(option.bottleneck, Bottleneck::Switch, "{option:?}");
    }
}
