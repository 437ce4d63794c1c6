//! Runs of the chain and their troubles: overload, slow units, links that go down, lost packets,
//! pauses, a full disk, an end by force; and configurations that are refused.

use livetime_fabric::chain::{
    FilterChoice, LineTiming, LinkOutage, SimulatedChain, SimulatedChainError,
};
use livetime_fabric::{
    DurationPs, FaultAction, FaultPlan, Occasion, Outage, OutageKind, ScriptedFault, SimPs,
    SimulatedChainConfig, TimeWindow,
};
use livetime_readout::LinkConfig;
use livetime_store::Condition;
use livetime_trigger::dead_time::refused_fraction_m_d_1_k;
use livetime_trigger::{MassWindowConfig, RefusedBy};
use livetime_wire::{ByteSize, LossArea, LossCause, UnitId};

use crate::story::{
    at_ms, default_menu, lossless, menu_one_in, ms, small_chain, stored_events, tell, tell_in_order,
};

fn window_ms(from: u64, until: u64) -> TimeWindow {
    TimeWindow::new(
        SimPs::from_run_ns(at_ms(from)),
        SimPs::from_run_ns(at_ms(until)),
    )
}

/// Given 8 links with 2 KiB fragments and the default menu, when 10 kHz of random triggers come for
/// 300 ms, then nothing is lost, everything accepted is in the file, and latencies are those of the
/// lines and hosts.
#[test]
fn a_plain_run_stores_what_it_accepts() {
    let mut config = SimulatedChainConfig::new(livetime_wire::RunNumber(1), 8, 2, default_menu());
    config.source.triggers.duration = Some(ms(300));
    config.filter = FilterChoice::MassWindow(MassWindowConfig::default());
    let outcome = tell_in_order(&config);

    let counts = outcome.counts;
    assert!((2_700..3_300).contains(&counts.triggers), "{counts:?}");
    assert_eq!(outcome.losses.total() + counts.events_incomplete, 0);
    assert_eq!(counts.fragments_sent, 8 * counts.triggers);
    assert_eq!(counts.events_built, counts.l2_accepted);
    assert!(counts.l2_accepted > 100 && counts.filter_rejected > 0);
    let events = stored_events(&config, &outcome);
    assert_eq!(events.len() as u64, counts.filter_accepted);
    assert_eq!(outcome.condition, Condition::GOOD);
    assert_eq!(outcome.file_summary.map(|file| file.events_lost), Some(0));

    // 34 words on average at 40 MHz, 5 us for the decision, 100 ns and 700 ns each way.
    assert_eq!(outcome.decision_latency.len(), counts.triggers);
    let decision = outcome.decision_latency.value_at_quantile(0.5);
    assert!((5_500..12_000).contains(&decision), "{decision} ns");
    assert!(outcome.decision_latency.min() >= 5_500);
    // Two hops at least between assignment and the last fragment.
    assert_eq!(outcome.build_latency.len(), counts.events_built);
    assert!((2_000..100_000).contains(&outcome.build_latency.value_at_quantile(0.5)));
    assert!(outcome.dead_time.refused_fraction() < 0.01);
    let ended = outcome.ended_at;
    assert!(at_ms(299) < ended && ended < at_ms(302), "{ended:?}");
}

/// Given a decision loop of 20 us and 4 Level-2 buffers, when random triggers come at 40 kHz and at
/// three times the rate that it can decide, then dead time is that of M/D/1/4, decisions come at
/// the loop's pace, and nothing is lost.
#[test]
fn overload_is_dead_time_of_the_closed_form_and_no_loss() {
    for (rate_hz, duration_ms) in [(40_000.0, 2_000), (150_000.0, 500)] {
        let mut config = small_chain(menu_one_in(1_000), rate_hz, duration_ms);
        config.source.fragment.bytes_mean = ByteSize(160);
        config.source.fragment.log_sigma = 0.0;
        config.timing.service.decision = DurationPs::from_us(20);
        // The loop is the decision alone.
        config.timing.service.reply = DurationPs::ZERO;
        config.timing.service.send = DurationPs::ZERO;
        config.timing.trigger_line = LineTiming::INSTANT;
        let outcome = tell_in_order(&config);

        let expected = refused_fraction_m_d_1_k(rate_hz * 20e-6, 4);
        let offered = outcome.counts.offered as f64;
        // Refusals come in bursts: six times the spread of as many independent ones.
        let tolerance = 6.0 * (expected * (1.0 - expected) / offered).sqrt().max(1e-4);
        let dead = outcome.dead_time;
        for (name, found) in [
            ("refused", dead.refused_fraction()),
            ("busy", dead.busy_fraction()),
        ] {
            assert!(
                (found - expected).abs() < tolerance,
                "{name} at {rate_hz} Hz: {found}, expected {expected} +- {tolerance}"
            );
        }
        assert_eq!(outcome.losses.total(), 0);
        let by_buffers = RefusedBy::DEAD
            .iter()
            .position(|by| *by == RefusedBy::BuffersFull);
        assert_eq!(
            dead.refused.iter().sum::<u64>(),
            dead.refused[by_buffers.unwrap()]
        );
        if rate_hz > 50_000.0 {
            let pace = outcome.counts.triggers as f64 / dead.time.as_seconds();
            assert!((pace / 50_000.0 - 1.0).abs() < 0.02, "{pace} Hz");
        }
    }
}

/// Given few pages and builder units that take 100 us for a message, when every trigger is
/// accepted, then links say XOFF, triggers are refused for it, and nothing is lost.
#[test]
fn slow_builders_are_felt_as_xoff_at_the_source() {
    let mut config = small_chain(menu_one_in(1), 10_000.0, 200);
    config.timing.service.builder_message = DurationPs::from_us(100);
    config.builder.credits = 8;
    config.builder.evm_queue = 16;
    for link in &mut config.data_links {
        link.link = LinkConfig {
            page_words: 512,
            pages: 96,
            xoff_below: 32,
            xon_above: 48,
            fragment_words_max: 16 * 512,
            ..LinkConfig::default()
        };
    }
    let outcome = tell_in_order(&config);

    assert_eq!(outcome.losses.total() + outcome.counts.events_incomplete, 0);
    assert!(
        outcome.units.source.refused_xoff > 200,
        "{:?}",
        outcome.units.source
    );
    let links = &outcome.units.links[..4];
    assert!(
        links
            .iter()
            .any(|link| link.receiver.xoffs > 0 && link.source.xoffs > 0)
    );
    assert!(outcome.dead_time.busy_fraction() > 0.1);
    assert_eq!(outcome.counts.events_stored, outcome.counts.triggers);
}

/// Given that every trigger is accepted, when one of four links is down for 3 ms, then the events
/// of that time miss exactly its source, as many as the link counted lost, and all before and after
/// are complete.
#[test]
fn a_link_that_goes_down_is_named_in_each_event_and_recovers() {
    let mut config = small_chain(menu_one_in(1), 8_000.0, 20);
    config.builder.timeout = ms(10);
    config.builder.retry = ms(2);
    config.builder.probe = ms(10);
    config.link_outages = vec![LinkOutage {
        link: 2,
        from: at_ms(8),
        until: at_ms(11),
    }];
    let outcome = tell_in_order(&config);

    let lost = outcome.losses.in_area(LossArea::Link);
    assert_eq!(outcome.losses.total(), lost);
    assert_eq!(outcome.units.links[2].losses.total(), lost);
    assert!(
        (10..40).contains(&lost),
        "{lost} fragments in 3 ms at 8 kHz"
    );
    let events = stored_events(&config, &outcome);
    assert_eq!(events.len() as u64, outcome.counts.triggers);
    let (incomplete, complete): (Vec<_>, Vec<_>) =
        events.iter().partition(|event| !event.missing.is_empty());
    assert_eq!(incomplete.len() as u64, lost);
    assert_eq!(outcome.counts.events_incomplete, lost);
    for event in &incomplete {
        assert_eq!(event.missing, [config.source.data_links[2]]);
        // One that was on its way when the link went down may be a little older.
        let since_ms = event.triggered_at.0 as f64 * 1e-6;
        assert!((7.8..11.0).contains(&since_ms), "{since_ms} ms");
    }
    assert!(complete.iter().any(|event| event.triggered_at > at_ms(11)));
    assert!(outcome.condition.contains(Condition::DEGRADED));
}

/// Given a decision timeout of 1 ms, when two trigger packets and a reply are lost and another
/// packet comes 2 ms late, then four triggers are lost by name, readout units drop their fragments,
/// the late reply is known as such, and the run goes on.
#[test]
fn a_lost_trigger_packet_costs_its_trigger_and_no_more() {
    let mut config = small_chain(menu_one_in(4), 5_000.0, 20);
    config.supervisor.decision_timeout = ms(1);
    let layout = config.layout();
    let fault = |link, message, action| ScriptedFault {
        link,
        occasion: Occasion::Message(message),
        action,
    };
    let extra = DurationPs::from_ms(2);
    let gap = DurationPs::from_us(50);
    config.faults = FaultPlan::scripted(vec![
        fault(layout.trigger_link(), 10, FaultAction::Drop),
        fault(layout.trigger_link(), 20, FaultAction::Drop),
        fault(
            layout.trigger_link(),
            40,
            FaultAction::Reorder { hold: extra },
        ),
        fault(layout.return_link(), 30, FaultAction::Drop),
        fault(layout.return_link(), 60, FaultAction::Duplicate { gap }),
    ]);
    let outcome = tell_in_order(&config);

    assert_eq!(outcome.losses.of(LossCause::DecisionTimeout), 4);
    assert_eq!(outcome.losses.total(), 4);
    let supervisor = outcome.units.supervisor;
    assert_eq!(
        (supervisor.replies_late, supervisor.replies_duplicate),
        (1, 1)
    );
    let counts = outcome.counts;
    for readout in &outcome.units.readouts {
        assert_eq!(readout.triggers_dropped, counts.l2_rejected + 4);
        assert_eq!(readout.decisions_conflicting, 0);
    }
    assert_eq!(
        counts.fragments_dropped_by_decision,
        4 * (counts.l2_rejected + 4)
    );
    assert_eq!(
        stored_events(&config, &outcome).len() as u64,
        counts.l2_accepted
    );
    assert!(counts.triggers > 80 && outcome.units.trigger_node.packets == counts.triggers - 2);
}

/// Given two filter units of which one is 20 times slower, when events come faster than the slow
/// one filters, then it gets fewer and none is lost.
#[test]
fn a_slow_filter_unit_gets_fewer_events() {
    let mut config = small_chain(menu_one_in(1), 8_000.0, 100);
    config.builder.filter_units = 2;
    config.timing.service.filter = DurationPs::from_us(100);
    config.timing.slow_units.insert(UnitId::filter(1), 20);
    let outcome = tell_in_order(&config);

    assert_eq!(outcome.losses.total() + outcome.counts.events_incomplete, 0);
    let accepted = |filter: usize| outcome.units.filters[filter].accepted;
    assert_eq!(accepted(0) + accepted(1), outcome.counts.events_stored);
    // 500 Hz is all that the slow one can do.
    assert!((20..80).contains(&accepted(1)), "{}", accepted(1));
    assert!(accepted(0) > 10 * accepted(1));
    stored_events(&config, &outcome);
}

/// Given only a filter unit of 2 ms for an event, when triggers accepted come at 2 kHz, then the
/// chain goes at the filter's pace and the rest is dead time.
#[test]
fn a_slow_filter_alone_sets_the_pace_of_the_chain() {
    let mut config = small_chain(menu_one_in(1), 2_000.0, 1_000);
    config.timing.service.filter = DurationPs::from_ms(2);
    for link in &mut config.data_links {
        link.link.pages = 256;
    }
    let outcome = tell_in_order(&config);

    assert_eq!(outcome.losses.total() + outcome.counts.events_incomplete, 0);
    let stored = outcome.counts.events_stored as f64 / outcome.ended_at.0 as f64 * 1e9;
    assert!((stored / 500.0 - 1.0).abs() < 0.03, "{stored} Hz");
    assert!(outcome.dead_time.refused_fraction() > 0.5);
}

/// Given two builder units, when one stands still for 2 s of virtual time with a timeout of 1 s,
/// then the other goes on, nobody builds an event twice, and what the paused one had is complete as
/// soon as it looks at its messages again.
#[test]
fn a_builder_unit_that_pauses_for_two_seconds_loses_nothing() {
    let mut config = small_chain(menu_one_in(1), 1_000.0, 200);
    config.builder.probe = ms(500);
    let node = config.layout().node(UnitId::builder(0)).unwrap();
    config.faults = FaultPlan {
        outages: vec![Outage {
            node,
            kind: OutageKind::Pause,
            window: window_ms(50, 2_050),
        }],
        ..FaultPlan::none()
    };
    let outcome = tell_in_order(&config);

    let counts = outcome.counts;
    assert_eq!(outcome.losses.total() + counts.events_incomplete, 0);
    assert_eq!(counts.events_stored, counts.triggers);
    let built = |builder: usize| outcome.units.builders[builder].events_built;
    assert!(built(1) > built(0) + 50, "{} and {}", built(0), built(1));
    assert!(
        outcome.units.manager.assignments_repeated > 0,
        "the event manager asks"
    );
    assert!(outcome.ended_at > at_ms(2_050));
    assert_eq!(
        stored_events(&config, &outcome).len() as u64,
        counts.triggers
    );
}

/// Given a readout unit that stands still for 30 ms, when triggers go on, then its cards fill up,
/// XOFF holds the triggers, and nothing is lost.
#[test]
fn a_readout_unit_that_pauses_stops_its_links() {
    let mut config = small_chain(menu_one_in(10), 10_000.0, 100);
    let node = config.layout().node(UnitId::readout(1)).unwrap();
    config.faults = FaultPlan {
        outages: vec![Outage {
            node,
            kind: OutageKind::Pause,
            window: window_ms(20, 50),
        }],
        ..FaultPlan::none()
    };
    let outcome = tell_in_order(&config);

    assert_eq!(outcome.losses.total() + outcome.counts.events_incomplete, 0);
    let paused = outcome.units.links[3].receiver;
    assert!(paused.xoff_time > ms(25), "{paused:?}");
    assert!(outcome.units.source.refused_xoff > 200);
}

/// Given a disk of 300 kB, when more is to be stored, then the run ends in order, every event that
/// the file has not is counted, and the file is whole.
#[test]
fn a_full_disk_ends_the_run_in_order() {
    let mut config = small_chain(menu_one_in(1), 5_000.0, 1_000);
    config.disk_bytes_max = Some(300_000);
    config.store.chunk_bytes = 16 << 10;
    let outcome = tell_in_order(&config);

    let counts = outcome.counts;
    assert!(
        counts.offered < 1_000,
        "the source was stopped early: {counts:?}"
    );
    let lost = outcome.losses.of(LossCause::StoreWriteFailed);
    assert!(lost > 0 && outcome.losses.total() == lost);
    assert_eq!(counts.events_stored + lost, counts.triggers);
    assert!(counts.events_stored > 50);
    assert!(outcome.writer_failure.is_some());
    assert!(outcome.condition.contains(Condition::INTERRUPTED));
    assert!(outcome.run_file.len() <= 300_000);
    assert_eq!(
        stored_events(&config, &outcome).len() as u64,
        counts.events_stored
    );
    let file = outcome.file_summary.unwrap();
    assert_eq!(file.events_stored, counts.events_stored);
}

/// Given a disk without room even for the beginning, when the chain is made, then it says so.
#[test]
fn a_disk_without_any_room_is_refused_at_the_start() {
    let mut config = small_chain(menu_one_in(1), 5_000.0, 10);
    config.disk_bytes_max = Some(100);
    let refused = SimulatedChain::new_checked(&config).err();
    assert!(matches!(refused, Some(SimulatedChainError::RunFile(_))));
}

/// Given a chain under load, when it is ended by force at some moment, then what was under way is
/// counted as aborted, hop by hop, and the file holds what had been stored.
#[test]
fn a_forced_end_in_mid_run_settles_all_accounts() {
    let mut aborted = 0;
    for at_us in [0, 1, 130, 777, 2_000, 4_321, 9_999] {
        let mut config = small_chain(menu_one_in(2), 60_000.0, 1_000);
        config.timing.service.filter = DurationPs::from_us(80);
        config.force_end_at = Some(livetime_wire::RunNs(at_us * 1_000));
        let outcome = tell(&config);

        assert!(!outcome.is_drained);
        assert_eq!(outcome.ended_at.0, at_us * 1_000);
        assert!(outcome.condition.contains(Condition::ABORTED));
        let by_force = [
            LossCause::DecisionAborted,
            LossCause::LinkAborted,
            LossCause::FragmentAborted,
            LossCause::EventAborted,
            LossCause::FilterAborted,
            LossCause::FilterLost,
        ];
        let counted: u64 = by_force.iter().map(|cause| outcome.losses.of(*cause)).sum();
        assert_eq!(outcome.losses.total(), counted, "{:?}", outcome.losses);
        aborted += counted;
        let events = stored_events(&config, &outcome);
        assert_eq!(events.len() as u64, outcome.counts.events_stored);
    }
    assert!(aborted > 50, "{aborted}");
}

/// Given a link that is down and a paused builder unit, when the run is ended by force in the
/// middle of both, then the accounts settle all the same.
#[test]
fn a_forced_end_amid_other_trouble_settles_too() {
    let mut config = small_chain(menu_one_in(1), 20_000.0, 1_000);
    config.link_outages = vec![LinkOutage {
        link: 0,
        from: at_ms(2),
        until: at_ms(500),
    }];
    let node = config.layout().node(UnitId::builder(1)).unwrap();
    config.faults.outages = vec![Outage {
        node,
        kind: OutageKind::Pause,
        window: window_ms(4, 600),
    }];
    config.force_end_at = Some(at_ms(6));
    let outcome = tell(&config);
    assert!(!outcome.is_drained);
    assert!(outcome.losses.in_area(LossArea::Link) > 10);
    assert!(outcome.losses.in_area(LossArea::Builder) > 0);
    stored_events(&config, &outcome);
}

/// Given a supervisor whose messages the event manager cannot take, when builder units have no
/// credits to spare, then decisions wait in their hop and triggers are refused, as dead time.
#[test]
fn an_event_manager_without_credits_holds_the_supervisor_back() {
    let mut config = lossless(small_chain(menu_one_in(1), 1.0, 1), 400);
    config.builder.credits = 1;
    config.builder.builder_units = 1;
    config.builder.evm_queue = 1;
    config.timing.service.filter = DurationPs::from_us(500);
    let outcome = tell_in_order(&config);

    assert_eq!(outcome.counts.events_stored, 400);
    assert_eq!(outcome.losses.total() + outcome.counts.refused, 0);
    let busy = outcome.dead_time.busy[RefusedBy::DEAD
        .iter()
        .position(|by| *by == RefusedBy::OutputsFull)
        .unwrap()];
    assert!(
        busy > ms(50),
        "{busy} of {:?} {:?}",
        outcome.dead_time,
        outcome.ended_at
    );
}

/// Given faults that the protocol is not made for, when the chain is to be made, then each is
/// refused with its place.
#[test]
fn faults_that_cannot_be_carried_out_are_refused() {
    let base = small_chain(menu_one_in(1), 1_000.0, 1);
    let layout = base.layout();
    let tickets = layout.link(UnitId::builder(0), UnitId::filter(0)).unwrap();
    let script = |link, action| {
        let occasion = Occasion::Message(0);
        FaultPlan::scripted(vec![ScriptedFault {
            link,
            occasion,
            action,
        }])
    };
    let death = FaultPlan {
        outages: vec![Outage {
            node: layout.node(UnitId::builder(0)).unwrap(),
            kind: OutageKind::Death,
            window: TimeWindow::ALWAYS,
        }],
        ..FaultPlan::none()
    };
    let unknown = livetime_fabric::LinkId(layout.link_count() as u32);
    let plans = [
        script(tickets, FaultAction::Drop),
        script(unknown, FaultAction::Drop),
        death,
    ];
    for faults in plans {
        let config = SimulatedChainConfig {
            faults,
            ..base.clone()
        };
        let problems = config.validate();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(
            (problems[0].code.code, problems[0].path.as_str()),
            ("F0104", "faults")
        );
    }
    let extra = DurationPs::from_us(7);
    let harmless = SimulatedChainConfig {
        faults: script(tickets, FaultAction::Delay { extra }),
        ..base
    };
    assert_eq!(harmless.validate(), []);
    assert_eq!(tell_in_order(&harmless).faults.delayed, 1);
}

/// Given a configuration whose parts contradict each other, when it is checked, then each
/// contradiction is named.
#[test]
fn contradictions_between_the_parts_are_found() {
    type Change = fn(&mut SimulatedChainConfig);
    let cases: [(&str, &str, Change); 8] = [
        ("F0101", "link", |c| c.data_links.swap(0, 1)),
        ("F0101", "builder.readout_units[1]", |c| {
            c.builder.readout_units[1].pop();
        }),
        ("F0102", "timing.data_line", |c| {
            c.timing.data_line.bytes_per_s = 0
        }),
        ("F0102", "link.words_in_flight", |c| {
            c.timing.data_line.latency = DurationPs::from_us(10)
        }),
        ("F0102", "timing.trigger_line", |c| {
            c.timing.trigger_line.burst_words = 0
        }),
        ("F0103", "timing.front_end_events", |c| {
            c.timing.front_end_events = 0
        }),
        ("F0105", "link_outages[0]", |c| {
            c.link_outages = vec![LinkOutage {
                link: 4,
                from: at_ms(1),
                until: at_ms(2),
            }];
        }),
        ("F0105", "link_outages[0]", |c| {
            c.link_outages = vec![LinkOutage {
                link: 0,
                from: at_ms(1),
                until: at_ms(1),
            }];
        }),
    ];
    for (code, path, change) in cases {
        let mut config = small_chain(menu_one_in(1), 1_000.0, 1);
        change(&mut config);
        let problems = config.validate();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(
            (problems[0].code.code, problems[0].path.as_str()),
            (code, path)
        );
        let refused = SimulatedChain::new_checked(&config).err();
        assert!(matches!(refused, Some(SimulatedChainError::Config(_))));
    }
}
