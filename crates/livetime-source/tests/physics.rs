//! The physics generator: determinism, the mix, the shapes, and what Level 2 makes of it.

use livetime_source::{
    EventClass, PacketEncoder, PacketHeader, PhysicsConfig, PhysicsGenerator, SourceEvent,
};
use livetime_wire::object::ObjectKind;
use livetime_wire::trigger_packet::{MuonStub, SvtTrack, TriggerPacketView, WORDS_MAX_DEFAULT};
use livetime_wire::{RunNs, RunNumber, TriggerNumber};

const SEED: u64 = 20_050_527;
const EVENTS: u64 = 63_000;

fn generator() -> PhysicsGenerator {
    PhysicsGenerator::new(PhysicsConfig::default(), SEED)
}

#[test]
fn equal_seeds_give_equal_events_and_skipping_changes_nothing() {
    let (a, b) = (generator(), generator());
    let all: Vec<SourceEvent> = (0..500)
        .map(|index| {
            let mut event = SourceEvent::new();
            a.event(index, &mut event);
            event
        })
        .collect();
    let mut event = SourceEvent::new();
    let storage = event.objects.as_ptr();
    for index in (0..500).rev().step_by(7) {
        b.event(index, &mut event);
        assert_eq!(event, all[index as usize]);
        assert_eq!(event.number.0, index);
        assert_eq!(event.run, RunNumber(1));
    }
    b.event(u64::MAX, &mut event);
    assert_eq!(event.objects.as_ptr(), storage, "no allocation");

    let other = PhysicsGenerator::new(PhysicsConfig::default(), SEED + 1);
    let same = (0..500).filter(|index| {
        other.event(*index, &mut event);
        event.objects == all[*index as usize].objects
    });
    // Empty events are equal whatever the seed: 4 % of the pairs.
    assert!(same.count() < 60);
}

#[test]
fn the_mix_has_the_configured_fractions() {
    let generator = generator();
    let config = PhysicsConfig::default();
    let mut counts = [0_u64; EventClass::ALL.len()];
    for index in 0..EVENTS {
        counts[generator.class(index) as usize] += 1;
    }
    let named: f64 = config.fractions().iter().map(|(_, f)| f).sum();
    let fractions = config.fractions().map(|(_, fraction)| fraction);
    let expected = fractions.into_iter().chain([1.0 - named]);
    for ((class, count), fraction) in EventClass::ALL.iter().zip(counts).zip(expected) {
        let mean = EVENTS as f64 * fraction;
        let sigma = (mean * (1.0 - fraction)).sqrt();
        assert!(
            (count as f64 - mean).abs() <= 5.0 * sigma,
            "{class:?}: {count} of {mean}"
        );
    }
}

#[test]
fn every_fraction_can_be_switched_off() {
    let config = PhysicsConfig {
        z_fraction: 0.0,
        continuum_fraction: 0.0,
        displaced_fraction: 0.0,
        single_muon_fraction: 0.0,
        calorimeter_fraction: 0.0,
        empty_fraction: 1.0,
        soft_tracks_mean: 0.0,
        soft_jets_mean: 0.0,
        ..PhysicsConfig::default()
    };
    assert_eq!(config.validate("p"), []);
    let empty = PhysicsGenerator::new(config.clone(), 1);
    let soft = PhysicsGenerator::new(
        PhysicsConfig {
            empty_fraction: 0.0,
            ..config
        },
        1,
    );
    let mut event = SourceEvent::new();
    for index in 0..1000 {
        empty.event(index, &mut event);
        assert_eq!(event.objects, []);
        soft.event(index, &mut event);
        assert_eq!(event.objects.len(), 1);
    }
}

#[test]
fn the_z_peaks_at_its_mass_with_width_and_resolution() {
    let generator = generator();
    let mut event = SourceEvent::new();
    let mut bins = [0_u32; 60];
    let mut masses = Vec::new();
    for index in (0..400_000).filter(|index| generator.class(*index) == EventClass::Z) {
        generator.event(index, &mut event);
        let Some(mass) = event.dimuon_mass() else {
            continue;
        };
        if (60.0..120.0).contains(&mass) {
            bins[(mass - 60.0) as usize] += 1;
        }
        masses.push(mass);
    }
    let peak = (0..60).max_by_key(|bin| bins[*bin]).unwrap() + 60;
    assert!((90..=91).contains(&peak), "{bins:?}");
    masses.sort_by(f64::total_cmp);
    let n = masses.len();
    assert!(n > 5_000, "{n} pairs");
    assert!(
        (masses[n / 2] - 91.19).abs() < 0.15,
        "median {}",
        masses[n / 2]
    );
    // Half of the natural line lies within +-1.25 GeV; 0.8 GeV of resolution widen it.
    let quartiles = masses[3 * n / 4] - masses[n / 4];
    assert!((2.5..3.6).contains(&quartiles), "{quartiles}");
    // Both muons are in the chambers' range for most of them.
    assert!(
        n as f64 > 0.6 * 400_000.0 * PhysicsConfig::default().z_fraction,
        "{n}"
    );
}

#[test]
fn objects_are_in_their_ranges_and_80_percent_of_the_events_have_tracks() {
    let generator = generator();
    let mut event = SourceEvent::new();
    let mut with_tracks = 0;
    for index in 0..EVENTS {
        generator.event(index, &mut event);
        with_tracks += u64::from(event.objects.iter().any(|object| object.has_track()));
        for object in &event.objects {
            assert!(object.pt > 0.0 && object.pt < 3_500.0, "{object:?}");
            assert!(object.eta.abs() < 12.0, "{object:?}");
            assert!(object.phi.abs() <= core::f32::consts::PI, "{object:?}");
            assert_eq!(object.charge.abs(), f32::from(u8::from(object.has_track())));
            assert!(object.iso >= 0.0 && object.chi2 >= 0.0, "{object:?}");
            if object.kind == ObjectKind::Muon {
                assert!(object.eta.abs() < 2.41 && object.pt > 1.3, "{object:?}");
            }
        }
    }
    let fraction = with_tracks as f64 / EVENTS as f64;
    assert!((fraction - 0.8).abs() < 0.01, "{fraction}");
}

#[test]
fn prompt_tracks_point_at_the_beam_with_the_resolution_of_cdf() {
    let generator = generator();
    let mut event = SourceEvent::new();
    let (mut soft, mut stiff) = (Vec::new(), Vec::new());
    for index in 0..EVENTS {
        if generator.class(index) == EventClass::Displaced {
            continue;
        }
        generator.event(index, &mut event);
        for object in event.objects.iter().filter(|object| object.has_track()) {
            let phi = f64::from(object.phi);
            let d_cm = f64::from(object.dxy) + 0.0746 * phi.sin() - 0.0422 * phi.cos();
            match object.pt {
                ..1.0 => soft.push(1e4 * d_cm),
                20.0.. => stiff.push(1e4 * d_cm),
                _ => {}
            }
        }
    }
    for (values, width) in [(soft, 43.9), (stiff, 35.7)] {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let sigma = (values.iter().map(|d| d * d).sum::<f64>() / n).sqrt();
        assert!(mean.abs() < 1.5, "mean {mean} um of {n}");
        assert!((sigma - width).abs() < 1.5, "{sigma} um of {n}");
    }
}

/// Level-1 bits, `docs/formats/trigger-packet.md`, section 2.
const L1_TWO_TRACKS: u64 = 1 << 1;
const L1_MUON: u64 = 1 << 2;
const L1_DIMUON: u64 = 1 << 3;
const L1_EVERY_THOUSANDTH: u64 = 1 << 4;

/// The paths of `examples/dimuon.toml`, in `f64` from the packet's words: near enough for a rate.
/// The exact integer menu and its oracle are elsewhere. Minimum bias, AUTO of two tracks (1 in
/// 1000), muon above 15 GeV in both central chambers, dimuon of opposite charge, two displaced
/// tracks of a charm or B decay, and of B to two pions.
fn fired_paths(packet: &TriggerPacketView, two_track_triggers: &mut u64) -> [bool; 6] {
    let bits = packet.l1_bits();
    let muons: Vec<_> = packet.muons().collect();
    let central = |stub: &MuonStub| stub.types() == MuonStub::CMU | MuonStub::CMP;
    let stiff = muons
        .iter()
        .any(|stub| central(stub) && stub.pt_code() > 30);
    let opposite = pairs(&muons)
        .any(|(a, b)| a.pt_code() > 3 && b.pt_code() > 3 && a.is_negative() != b.is_negative());
    let two_tracks = bits & L1_TWO_TRACKS != 0;
    *two_track_triggers += u64::from(two_tracks);
    let tracks: Vec<_> = packet.svt().take(20).collect();
    let displaced = |d_min_um, dphi_deg, pair_um| {
        two_tracks && pairs(&tracks).any(|(a, b)| two_track(a, b, d_min_um, dphi_deg, pair_um))
    };
    [
        bits & L1_EVERY_THOUSANDTH != 0,
        two_tracks && *two_track_triggers % 1000 == 1,
        bits & L1_MUON != 0 && stiff,
        bits & L1_DIMUON != 0 && opposite,
        displaced(120.0, (2.0, 90.0), f64::INFINITY),
        displaced(100.0, (20.0, 135.0), 140.0),
    ]
}

fn pairs<T: Copy>(items: &[T]) -> impl Iterator<Item = (T, T)> + '_ {
    (0..items.len()).flat_map(move |j| (0..j).map(move |i| (items[i], items[j])))
}

/// pT > 2, sum pT > 5.5, opposite charge, |d| and dphi in their ranges, Lxy > 200 um, and the
/// pair itself points to the beam within `pair_um`.
fn two_track(a: SvtTrack, b: SvtTrack, d_min_um: f64, dphi_deg: (f64, f64), pair_um: f64) -> bool {
    let radians = |t: SvtTrack| f64::from(t.phi()) * core::f64::consts::TAU / 8192.0;
    let pt = |t: SvtTrack| 180.855 / f64::from(t.c_magnitude().max(1));
    let d = |t: SvtTrack| {
        let phi = radians(t);
        10.0 * f64::from(t.d()) + 746.0 * phi.sin() - 422.0 * phi.cos()
    };
    let steps = a.phi().abs_diff(b.phi());
    let dphi = f64::from(steps.min(8192 - steps)) * 360.0 / 8192.0;
    let in_window = |t| (d_min_um..1000.0).contains(&d(t).abs()) && pt(t) > 2.0;
    if !(in_window(a)
        && in_window(b)
        && pt(a) + pt(b) > 5.5
        && (dphi_deg.0..dphi_deg.1).contains(&dphi))
        || a.is_negative() == b.is_negative()
    {
        return false;
    }
    let ((s1, k1), (s2, k2)) = (radians(a).sin_cos(), radians(b).sin_cos());
    let det = k1 * s2 - s1 * k2;
    let (x, y) = ((d(a) * k2 - d(b) * k1) / det, (d(a) * s2 - d(b) * s1) / det);
    let (px, py) = (pt(a) * k1 + pt(b) * k2, pt(a) * s1 + pt(b) * s2);
    let pt_pair = px.hypot(py);
    (x * px + y * py) / pt_pair > 200.0 && (y * px - x * py).abs() / pt_pair < pair_um
}

#[test]
fn about_5_percent_pass_level_two_and_packets_have_the_size_of_the_cdf_sample() {
    let generator = generator();
    let mut encoder = PacketEncoder::new(WORDS_MAX_DEFAULT);
    let mut two_track_triggers = 0;
    let (mut event, mut words) = (SourceEvent::new(), Vec::new());
    let (mut accepted, mut by_path) = (0_u64, [0_u64; 6]);
    let (mut displaced, mut displaced_fired) = (0_u64, 0_u64);
    let (mut words_with_tracks, mut with_tracks) = (0, 0_u64);
    for index in 0..EVENTS {
        generator.event(index, &mut event);
        let header = PacketHeader {
            trigger: TriggerNumber(index + 1),
            l2_buffer: 0,
            bunch: 0,
            run: RunNumber(1),
            lumi_section: 1,
            triggered_at: RunNs(0),
            index,
        };
        encoder.encode(&event, &header, &mut words);
        let packet = TriggerPacketView::new_checked(&words).unwrap();
        if packet.xtrp().len() > 0 {
            with_tracks += 1;
            words_with_tracks += words.len() as u64;
        }
        let fired = fired_paths(&packet, &mut two_track_triggers);
        accepted += u64::from(fired.contains(&true));
        for (count, fired) in by_path.iter_mut().zip(fired) {
            *count += u64::from(fired);
        }
        if generator.class(index) == EventClass::Displaced {
            displaced += 1;
            displaced_fired += u64::from(fired[4]);
        }
    }
    let fraction = accepted as f64 / EVENTS as f64;
    assert!(
        (0.045..0.055).contains(&fraction),
        "{fraction}, by path {by_path:?}"
    );
    assert!(by_path.iter().all(|count| *count >= 5), "{by_path:?}");
    // A quarter of the displaced pairs lies in the window, and few other events do.
    assert!(
        5 * displaced_fired > displaced,
        "{displaced_fired} of {displaced}"
    );
    assert!(
        by_path[4] < displaced_fired + displaced_fired / 5,
        "{by_path:?}"
    );
    // The PULSAR timing note gives 34 words for its sample.
    let mean = words_with_tracks as f64 / with_tracks as f64;
    assert!((30.0..40.0).contains(&mean), "{mean} words");
    assert!((mean - 34.0).abs() < 2.0, "{mean} words");

    assert_eq!(encoder.counts().truncated, 0);
}
