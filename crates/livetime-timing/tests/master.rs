//! The master function generator: all or nothing, jobs with time-outs, simultaneous stops.

use livetime_timing::function_generator::{
    FirmwareFault, GeneratorConfig, GeneratorError, GeneratorSignal, GeneratorState, MasterError,
    MasterFunctionGenerator, MasterOutput,
};
use livetime_wire::timing_coefficient::{CoefficientBlockView, emit_block};
use livetime_wire::{CoefficientSet, TaiNs};

const MS: u64 = 1_000_000;

fn flat(value: i32) -> CoefficientSet {
    CoefficientSet {
        c: value,
        frequency: 7,
        ..CoefficientSet::default()
    }
}

fn master(members: usize) -> MasterFunctionGenerator {
    MasterFunctionGenerator::new(members, GeneratorConfig::default())
}

fn drain(master: &mut MasterFunctionGenerator, now: TaiNs) -> Vec<MasterOutput> {
    std::iter::from_fn(|| master.poll_output(now))
        .filter(|output| !matches!(output, MasterOutput::Refill { .. }))
        .collect()
}

#[test]
fn a_block_is_appended_whole_or_not_at_all() {
    let mut sets: Vec<Vec<CoefficientSet>> = vec![vec![flat(1); 800]; 12];
    let mut master = master(12);
    for bad in 0..12 {
        sets[bad][799].step = 8;
        // Values that have no place in the bits cannot be emitted; the list form takes them.
        let channels: Vec<&[CoefficientSet]> = sets.iter().map(Vec::as_slice).collect();
        let error = master.append(TaiNs(0), &channels).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("channel {bad}: set 799: step is 8, allowed is 0 to 7")
        );
        sets[bad][799].step = 0;
        sets[bad][400].shift_a = 63;
        let channels: Vec<&[CoefficientSet]> = sets.iter().map(Vec::as_slice).collect();
        let bytes = emit_block(&channels).unwrap();
        let block = CoefficientBlockView::new_checked(&bytes).unwrap();
        let error = master
            .append_block(TaiNs(0), &block)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            format!("channel {bad}: set 400: shift_a is 63, allowed is 0 to 48")
        );
        sets[bad][400].shift_a = 0;
        assert!(master.members().iter().all(|member| member.queued() == 0));
    }
    let channels: Vec<&[CoefficientSet]> = sets.iter().map(Vec::as_slice).collect();
    let bytes = emit_block(&channels).unwrap();
    assert_eq!(bytes.len(), 4 * 14 + 115_200);
    let block = CoefficientBlockView::new_checked(&bytes).unwrap();
    let appended = master.append_block(TaiNs(0), &block).unwrap();
    assert!(!appended.low_fill);
    assert!(master.members().iter().all(|member| member.queued() == 800));
}

#[test]
fn wrong_channels_and_full_queues_change_nothing() {
    let mut master = master(3);
    let one = [flat(0)];
    let error = master.append(TaiNs(0), &[&one, &one]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "2 channels for 3 active function generators"
    );
    let full = vec![flat(0); 16_385];
    let error = master.append(TaiNs(0), &[&one, &one, &full]).unwrap_err();
    let expected = MasterError::Generator {
        channel: 2,
        error: GeneratorError::Full {
            sets: 16_385,
            room: 16_384,
        },
    };
    assert_eq!(error, expected);
    assert!(master.members().iter().all(|member| member.queued() == 0));
    assert!(matches!(
        master.set_active(&[0, 0]),
        Err(MasterError::Member {
            member: 0,
            members: 3
        })
    ));
    master.set_active(&[2, 0]).unwrap();
    master
        .append(TaiNs(0), &[&[flat(0), flat(0)], &one])
        .unwrap();
    let queued: Vec<usize> = master.members().iter().map(|m| m.queued()).collect();
    assert_eq!(
        queued,
        [1, 0, 2],
        "channels follow the order of the active members"
    );
}

/// 12 stops in the same nanosecond, 10 000 times, with immediate re-arming: software and hardware
/// never disagree, and the aggregate comes exactly once.
#[test]
fn twelve_simultaneous_stops_ten_thousand_times() {
    let mut master = master(12);
    let one = [flat(3)];
    let channels: Vec<&[CoefficientSet]> = vec![&one; 12];
    master.set_start_tag(5).unwrap();
    let mut now = 0;
    for _ in 0..10_000 {
        master.append(TaiNs(now), &channels).unwrap();
        master.arm(TaiNs(now)).unwrap();
        now += 10_000;
        assert_eq!(drain(&mut master, TaiNs(now)), [MasterOutput::AllArmed]);
        assert_eq!(master.handle_start_tag(TaiNs(now), 5), 0xFFF);
        assert!(drain(&mut master, TaiNs(now + 124_999)).is_empty());
        now += 125_000;
        let expected = MasterOutput::AllStopped {
            time: TaiNs(now),
            aborted: 0,
            underflow: 0,
        };
        assert_eq!(drain(&mut master, TaiNs(now)), [expected]);
        for member in master.members() {
            assert_eq!(member.state(), GeneratorState::Disabled);
            assert_eq!(member.queued(), 0);
        }
    }
}

#[test]
fn arming_is_a_job_that_succeeds_or_names_who_is_missing() {
    let mut master = master(4);
    let one = [flat(0)];
    // Member 1 has no data and takes no part.
    master.append(TaiNs(0), &[&one, &[], &one, &one]).unwrap();
    master.set_fault(2, FirmwareFault::Silent);
    master.arm(TaiNs(0)).unwrap();
    assert!(drain(&mut master, TaiNs(1999 * MS)).is_empty());
    let outputs = drain(&mut master, TaiNs(2000 * MS));
    assert_eq!(outputs, [MasterOutput::ArmTimeout { missing: 0b100 }]);
    master.set_fault(2, FirmwareFault::None);
    master.abort(TaiNs(2000 * MS));
    let outputs = drain(&mut master, TaiNs(2001 * MS));
    let expected = MasterOutput::AllStopped {
        time: TaiNs(2000 * MS + 10_000),
        aborted: 0b1101,
        underflow: 0,
    };
    assert_eq!(outputs, [expected]);
    let error = master.arm(TaiNs(2002 * MS)).unwrap_err().to_string();
    assert!(error.contains("no data"), "{error}");
}

#[test]
fn a_dead_owner_ends_with_every_member_disabled() {
    let mut master = master(64);
    let ramp = vec![flat(9); 1000];
    let channels: Vec<&[CoefficientSet]> = vec![&ramp; 64];
    master.append(TaiNs(0), &channels).unwrap();
    master.arm(TaiNs(0)).unwrap();
    drain(&mut master, TaiNs(MS));
    assert_eq!(master.handle_start_tag(TaiNs(MS), 0), u64::MAX);
    master.set_fault(7, FirmwareFault::Silent);
    master.abort(TaiNs(5 * MS));
    let outputs = drain(&mut master, TaiNs(1005 * MS));
    let expected = MasterOutput::AllStopped {
        time: TaiNs(1005 * MS),
        aborted: u64::MAX,
        underflow: 0,
    };
    assert_eq!(
        outputs,
        [expected],
        "within a second even of a silent member"
    );
    assert!(
        master
            .members()
            .iter()
            .all(|m| m.state() == GeneratorState::Disabled)
    );
    assert!(
        master
            .members()
            .iter()
            .all(|m| m.output(TaiNs(1005 * MS)) == 9)
    );
}

#[test]
fn signals_of_members_are_given_on_request() {
    let mut master = master(2);
    master.set_individual_signals(true);
    let one = [flat(0)];
    master.append(TaiNs(0), &[&one, &one]).unwrap();
    master.arm(TaiNs(0)).unwrap();
    let outputs = drain(&mut master, TaiNs(MS));
    let signal = |member, signal| MasterOutput::Member { member, signal };
    let expected = [
        signal(0, GeneratorSignal::Enabled(true)),
        signal(0, GeneratorSignal::Armed(true)),
        signal(1, GeneratorSignal::Enabled(true)),
        signal(1, GeneratorSignal::Armed(true)),
        MasterOutput::AllArmed,
    ];
    assert_eq!(outputs, expected);
}

#[test]
fn a_block_that_cannot_be_armed_is_not_taken() {
    let mut master = master(2);
    let block_of = |sets: [&[CoefficientSet]; 2]| emit_block(&sets).unwrap();
    let (one, none) = ([flat(0)], []);
    let queued = |master: &MasterFunctionGenerator| {
        let members = master.members().iter();
        members.map(|member| member.queued()).collect::<Vec<_>>()
    };
    let empty = block_of([&none, &none]);
    let empty = CoefficientBlockView::new_checked(&empty).unwrap();
    let refused = master.append_block_and_arm(TaiNs(0), &empty);
    let error = GeneratorError::Empty;
    assert_eq!(refused, Err(MasterError::Generator { channel: 0, error }));
    let bytes = block_of([&one, &none]);
    let block = CoefficientBlockView::new_checked(&bytes).unwrap();
    master.append_block_and_arm(TaiNs(0), &block).unwrap();
    let both = block_of([&one, &one]);
    let both = CoefficientBlockView::new_checked(&both).unwrap();
    // What is armed, or is becoming so, is not armed again.
    for now in [TaiNs(0), TaiNs(MS)] {
        let before = queued(&master);
        let refused = master.append_block_and_arm(now, &both).unwrap_err();
        assert!(
            refused.to_string().contains("must be disabled"),
            "{refused}"
        );
        assert_eq!(queued(&master), before);
        drain(&mut master, TaiNs(MS));
    }
    master.abort(TaiNs(MS));
    drain(&mut master, TaiNs(1000 * MS));
    master
        .append_block_and_arm(TaiNs(1000 * MS), &both)
        .unwrap();
}

#[test]
fn what_is_appended_during_an_abort_is_refused_and_not_thrown_away() {
    let mut master = master(2);
    let one = [flat(0)];
    let channels: [&[CoefficientSet]; 2] = [&one, &one];
    let bytes = emit_block(&channels).unwrap();
    let block = CoefficientBlockView::new_checked(&bytes).unwrap();
    let aborting = MasterError::Generator {
        channel: 0,
        error: GeneratorError::State {
            found: GeneratorState::Aborting,
            needed: GeneratorState::Disabled,
        },
    };
    for individual_signals in [false, true] {
        master.set_individual_signals(individual_signals);
        master.append(TaiNs(0), &channels).unwrap();
        master.arm(TaiNs(0)).unwrap();
        drain(&mut master, TaiNs(MS));
        master.abort(TaiNs(MS));
        let refused = master.append(TaiNs(MS), &channels);
        assert_eq!(refused, Err(aborting));
        assert_eq!(master.append_block(TaiNs(MS), &block), Err(aborting));
        // Nobody has polled since, and the hardware has answered.
        master.append_block(TaiNs(3 * MS), &block).unwrap();
        let outputs = drain(&mut master, TaiNs(3 * MS));
        let stopped = |output: &&MasterOutput| matches!(output, MasterOutput::AllStopped { .. });
        assert_eq!(outputs.iter().filter(stopped).count(), 1);
        for member in master.members() {
            assert_eq!(
                (member.state(), member.queued()),
                (GeneratorState::Disabled, 1)
            );
        }
        master.flush().unwrap();
    }
}

/// Given a waveform that was aborted, when the next one is appended and armed and nobody has polled between,
/// then the old stop is not the new job's, whether or not signals of members are wanted.
#[test]
fn a_stop_that_nobody_has_fetched_is_not_that_of_the_next_waveform() {
    let one = [flat(3)];
    let channels: [&[CoefficientSet]; 2] = [&one, &one];
    let bytes = emit_block(&channels).unwrap();
    let block = CoefficientBlockView::new_checked(&bytes).unwrap();
    for (individual_signals, at_once) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let mut master = master(2);
        master.set_individual_signals(individual_signals);
        master.set_start_tag(5).unwrap();
        master.append_block(TaiNs(0), &block).unwrap();
        master.arm(TaiNs(0)).unwrap();
        drain(&mut master, TaiNs(MS));
        master.abort(TaiNs(MS));
        if at_once {
            master.append_block_and_arm(TaiNs(3 * MS), &block).unwrap();
        } else {
            master.append_block(TaiNs(3 * MS), &block).unwrap();
            master.arm(TaiNs(3 * MS)).unwrap();
        }
        let aggregate = |output: &MasterOutput| !matches!(output, MasterOutput::Member { .. });
        let (outputs, of_members): (Vec<_>, Vec<_>) = drain(&mut master, TaiNs(3 * MS))
            .into_iter()
            .partition(aggregate);
        assert!(
            matches!(
                outputs[..],
                [MasterOutput::AllStopped { aborted: 0b11, .. }]
            ),
            "{outputs:?}"
        );
        // Armed no longer, stopped, not enabled, of each.
        assert_eq!(of_members.len(), if individual_signals { 6 } else { 0 });
        let (outputs, of_members): (Vec<_>, Vec<_>) = drain(&mut master, TaiNs(4 * MS))
            .into_iter()
            .partition(aggregate);
        assert_eq!(outputs, [MasterOutput::AllArmed]);
        assert_eq!(of_members.len(), if individual_signals { 4 } else { 0 });
        assert_eq!(master.handle_start_tag(TaiNs(5 * MS), 5), 0b11);
        let outputs = drain(&mut master, TaiNs(5 * MS));
        assert!(!outputs.iter().any(aggregate), "{outputs:?}");
        let outputs = drain(&mut master, TaiNs(6 * MS)).into_iter();
        let stops: Vec<_> = outputs.filter(aggregate).collect();
        assert!(
            matches!(stops[..], [MasterOutput::AllStopped { aborted: 0, .. }]),
            "{stops:?}"
        );
    }
}

/// Given a running waveform that wants more data, when arming is refused before anybody has polled, then the
/// owner is still asked for more.
#[test]
fn a_refused_arming_does_not_take_a_wanted_refill_away() {
    for individual_signals in [false, true] {
        let mut master = master(1);
        master.set_individual_signals(individual_signals);
        master.set_start_tag(5).unwrap();
        let sets = [flat(3); 300];
        master.append(TaiNs(0), &[&sets]).unwrap();
        master.arm(TaiNs(0)).unwrap();
        drain(&mut master, TaiNs(MS));
        assert_eq!(master.handle_start_tag(TaiNs(MS), 5), 1);
        drain(&mut master, TaiNs(MS));
        // A set takes 125 us: fewer than 242 are left.
        let now = TaiNs(11 * MS);
        assert!(master.arm(now).is_err());
        let outputs: Vec<_> = std::iter::from_fn(|| master.poll_output(now)).collect();
        assert!(
            matches!(outputs[..], [MasterOutput::Refill { member: 0, .. }]),
            "{outputs:?}"
        );
    }
}
