//! Fragments: what they hold, how their sizes are distributed, and that they can be checked.

use livetime_source::{
    FragmentConfig, FragmentTrigger, FragmentWriter, PayloadError, PayloadKind, SourceEvent,
    SourceObject, check_payload,
};
use livetime_wire::fragment::{FragmentView, OVERHEAD_WORDS};
use livetime_wire::object::{ObjectBlock, ObjectBlockView, ObjectKind};
use livetime_wire::{ByteSize, EventNumber, RunNumber, SourceId, TriggerNumber};

const TRIGGER: FragmentTrigger = FragmentTrigger {
    trigger: TriggerNumber(0x5_0000_0007),
    bunch: 1234,
    trigger_type: 5,
    event_type: 6,
};

fn sources(links: u32) -> Vec<SourceId> {
    (0..links)
        .map(|module| SourceId(0x10000 | module))
        .collect()
}

fn writer(config: &FragmentConfig, links: u32) -> FragmentWriter {
    FragmentWriter::new(config, 99, RunNumber(42), &sources(links))
}

fn event(objects: u16) -> SourceEvent {
    let object = |k: u16| SourceObject {
        kind: ObjectKind::Track,
        pt: f32::from(k) + 0.5,
        eta: -0.1,
        phi: 0.2,
        charge: 1.0,
        dxy: 0.01,
        iso: 0.0,
        chi2: 0.0,
    };
    SourceEvent {
        run: RunNumber(165_617),
        number: EventNumber(0x1_0000_0002),
        objects: (0..objects).map(object).collect(),
    }
}

#[test]
fn each_object_travels_over_one_link_and_all_links_name_the_event() {
    let mut writer = writer(&FragmentConfig::default(), 8);
    let event = event(19);
    let mut seen = [false; 19];
    let mut out = Vec::new();
    for link in 0..8 {
        writer.write(&event, 3, link, &TRIGGER, &mut out);
        let view = FragmentView::new_checked(&out).unwrap();
        let header = view.header();
        assert_eq!(header.source, SourceId(0x10000 + link as u32));
        assert_eq!((header.run, header.trigger_low), (RunNumber(42), 7));
        assert_eq!(
            (header.bunch, header.trigger_type, header.event_type),
            (1234, 5, 6)
        );
        assert_eq!(view.check().front_end_status, 0);
        let block = ObjectBlockView::new_checked(view.data()).unwrap();
        let expected = ObjectBlock {
            source_run: RunNumber(165_617),
            source_event: EventNumber(0x1_0000_0002),
            event_objects: 19,
        };
        assert_eq!(block.header(), expected);
        for object in block.objects() {
            let index = usize::from(object.index);
            assert_eq!(index % 8, link);
            assert_eq!(object.pt, event.objects[index].pt);
            assert!(!core::mem::replace(&mut seen[index], true));
        }
        let payload = &view.data()[block.words()..];
        assert_eq!(writer.pattern(3, link).check(payload), Ok(()));
        assert!(payload.is_empty() || writer.pattern(4, link).check(payload).is_err());
        assert_eq!(check_payload(&out), Ok(()));
    }
    assert!(seen.iter().all(|seen| *seen));
    assert_eq!(writer.counts().fragments, 8);
}

#[test]
fn fragments_depend_on_seed_index_and_link_only_and_reuse_their_storage() {
    let config = FragmentConfig::default();
    let (mut a, mut b) = (writer(&config, 4), writer(&config, 4));
    let event = event(5);
    let (mut first, mut second) = (Vec::new(), Vec::with_capacity(4096));
    let storage = second.as_ptr();
    for index in 0..1000 {
        b.write(&event, index, 1, &TRIGGER, &mut second);
    }
    for (index, link) in [(17, 2), (3, 0), (999, 3)] {
        a.write(&event, index, link, &TRIGGER, &mut first);
        b.write(&event, index, link, &TRIGGER, &mut second);
        assert_eq!(
            first, second,
            "words left over from longer fragments do not show"
        );
    }
    assert_eq!(second.as_ptr(), storage, "16 KiB are enough: no allocation");
}

/// Sizes in bytes of `count` fragments without objects.
fn sizes(config: &FragmentConfig, count: u64) -> Vec<f64> {
    let mut writer = writer(config, 8);
    let (event, mut out) = (event(0), Vec::new());
    (0..count)
        .map(|k| {
            writer.write(&event, k / 8, (k % 8) as usize, &TRIGGER, &mut out);
            out.len() as f64 * 4.0
        })
        .collect()
}

#[test]
fn sizes_are_log_normal_with_the_configured_mean() {
    for (bytes_mean, log_sigma) in [(2048, 0.8326), (1024, 0.3), (4096, 0.0)] {
        let config = FragmentConfig {
            bytes_mean: ByteSize(bytes_mean),
            log_sigma,
            ..FragmentConfig::default()
        };
        let sizes = sizes(&config, 100_000);
        let n = sizes.len() as f64;
        let mean = sizes.iter().sum::<f64>() / n;
        assert!(
            (mean / bytes_mean as f64 - 1.0).abs() < 0.02,
            "{config:?}: {mean}"
        );
        let logs: Vec<f64> = sizes.iter().map(|size| size.ln()).collect();
        let log_mean = logs.iter().sum::<f64>() / n;
        let width = (logs.iter().map(|l| (l - log_mean).powi(2)).sum::<f64>() / n).sqrt();
        assert!(
            (width - log_sigma).abs() < 0.01 * log_sigma + 1e-9,
            "{config:?}: {width}"
        );
        let median = log_mean.exp() / bytes_mean as f64;
        let expected = (-0.5 * log_sigma * log_sigma).exp();
        assert!(
            (median / expected - 1.0).abs() < 0.02,
            "{config:?}: {median}"
        );
    }
}

#[test]
fn sizes_stay_within_their_limits_and_always_hold_the_objects() {
    let config = FragmentConfig {
        bytes_mean: ByteSize(200),
        log_sigma: 2.0,
        bytes_max: ByteSize(4000),
        ..FragmentConfig::default()
    };
    let sizes = sizes(&config, 20_000);
    let smallest = (OVERHEAD_WORDS + ObjectBlock::words(0)) as f64 * 4.0;
    assert!(sizes.iter().all(|size| (smallest..=4000.0).contains(size)));
    assert!(
        sizes.contains(&smallest) && sizes.contains(&4000.0),
        "both limits are reached"
    );

    let mut writer = writer(&config, 2);
    let (event, mut out) = (event(256), Vec::new());
    for index in 0..200 {
        writer.write(&event, index, 1, &TRIGGER, &mut out);
        assert!(out.len() * 4 <= 4000, "{} words", out.len());
        let view = FragmentView::new_checked(&out).unwrap();
        assert_eq!(
            ObjectBlockView::new_checked(view.data())
                .unwrap()
                .objects()
                .len(),
            128
        );
    }
    assert_eq!(config.validate("f", 2), []);
}

#[test]
fn prefilled_payload_stays_and_header_and_crc_are_right() {
    let config = FragmentConfig {
        log_sigma: 0.0,
        payload: PayloadKind::Prefilled,
        ..FragmentConfig::default()
    };
    let mut writer = writer(&config, 2);
    let mut out = vec![0xABCD_0123; 512];
    for index in 0..3 {
        writer.write(&event(3), index, 1, &TRIGGER, &mut out);
        let view = FragmentView::new_checked(&out).unwrap();
        assert_eq!(view.check().crc_good, Some(true));
        assert_eq!(view.header().trigger_low, TRIGGER.trigger.low());
        let objects = ObjectBlockView::new_checked(view.data()).unwrap();
        assert_eq!(objects.objects().len(), 1, "object 1 of 3 goes over link 1");
        let payload = &view.data()[objects.words()..];
        assert!(payload.len() > 400);
        assert!(payload.iter().all(|word| *word == 0xABCD_0123));
    }
}

#[test]
fn every_flipped_bit_of_a_fragment_is_found() {
    let mut writer = writer(&FragmentConfig::default(), 8);
    let mut out = Vec::new();
    writer.write(&event(9), 5, 0, &TRIGGER, &mut out);
    for bit in 0..out.len() * 32 {
        out[bit / 32] ^= 1 << (bit % 32);
        assert!(check_payload(&out).is_err(), "bit {bit}");
        out[bit / 32] ^= 1 << (bit % 32);
    }
    assert_eq!(check_payload(&out), Ok(()));
    assert!(matches!(
        check_payload(&out[1..]),
        Err(PayloadError::Fragment(_))
    ));
}
