//! Recorded events: the two layouts, what is refused, and the real CMS files where they are.

use std::fs::File;
use std::path::PathBuf;

use livetime_source::recorded::PROBLEMS_MAX;
use livetime_source::{
    PacketEncoder, PacketHeader, RecordedError, RecordedEvents, RecordedProblem, SourceEvent,
};
use livetime_wire::object::ObjectKind;
use livetime_wire::trigger_packet::{TriggerPacketView, WORDS_MAX_DEFAULT};
use livetime_wire::{EventNumber, RunNs, RunNumber, TriggerNumber};
use proptest::prelude::*;

const MUONS: &str = "\
Run,Event,pt1,eta1,phi1,Q1,dxy1,iso1,pt2,eta2,phi2,Q2,dxy2,iso2
165617,74969122,54.7055,-0.432396,2.57421,1,-0.0745444,0.499921,34.2464,-0.98848,-0.498704,-1,0.0712224,3.42214
165617,75138253,24.5872,-2.0522,2.86657,-1,-0.0554371,0,28.5389,0.385163,-1.99117,1,0.0514773,0
";

const LEPTONS: &str = "\
Run,Event,PID1,E1,px1,py1,pz1,pt1,eta1,phi1,Q1,PID2,E2,px2,py2,pz2,pt2,eta2,phi2,Q2,mZ1,mZ2,M
172401,3729470,-11,79.9,45.9,11.9,-64.3,47.4089,-1.11208,0.253193,1,13,40.0,-36.9,-10.7,-11.4,38.3691,-0.293418,-2.86033,-1,90,92,185
";

fn read(text: &str) -> RecordedEvents {
    RecordedEvents::read(text.as_bytes()).expect("the text is good")
}

fn problems(text: &str) -> Vec<RecordedProblem> {
    match RecordedEvents::read(text.as_bytes()) {
        Err(RecordedError::Values { problems, .. }) => problems,
        other => panic!("{other:?} for {text}"),
    }
}

fn places(text: &str) -> Vec<String> {
    problems(text)
        .iter()
        .map(|problem| format!("{}:{}={}", problem.line, problem.column, problem.found))
        .collect()
}

#[test]
fn muon_pairs_are_read_and_repeat() {
    let events = read(MUONS);
    assert_eq!(events.rows(), 2);
    let mut event = SourceEvent::new();
    for index in [0, 2, 1_000_000_000_000] {
        events.event(index, &mut event);
        assert_eq!(
            (event.run, event.number),
            (RunNumber(165_617), EventNumber(74_969_122))
        );
    }
    let [first, second] = event.objects[..] else {
        panic!("{event:?}");
    };
    assert_eq!(first.kind, ObjectKind::Muon);
    assert_eq!(
        (first.pt, first.eta, first.phi),
        (54.7055, -0.432_396, 2.574_21)
    );
    assert_eq!(
        (first.charge, first.dxy, first.iso),
        (1.0, -0.074_544_4, 0.499_921)
    );
    assert_eq!(
        (second.charge, second.dxy, second.iso),
        (-1.0, 0.071_222_4, 3.422_14)
    );
    assert_eq!((first.chi2, second.chi2), (0.0, 0.0));
    events.event(1, &mut event);
    assert_eq!(event.number, EventNumber(75_138_253));
}

#[test]
fn leptons_with_pid_are_read() {
    let events = read(LEPTONS);
    let mut event = SourceEvent::new();
    events.event(0, &mut event);
    let kinds: Vec<_> = event.objects.iter().map(|object| object.kind).collect();
    assert_eq!(kinds, [ObjectKind::Electron, ObjectKind::Muon]);
    assert_eq!(
        (event.objects[1].pt, event.objects[1].charge),
        (38.3691, -1.0)
    );
    assert_eq!((event.objects[1].dxy, event.objects[1].iso), (0.0, 0.0));
}

#[test]
fn columns_may_come_in_any_order_with_spaces_and_crlf() {
    let text = "iso1 ,dxy1,Q1,phi1,eta1, pt1,Event,Run,comment\r\n0.5,0.1, -1,1,2,3,4,5,hello\r\n";
    let events = read(text);
    let mut event = SourceEvent::new();
    events.event(0, &mut event);
    assert_eq!((event.run, event.number), (RunNumber(5), EventNumber(4)));
    assert_eq!((event.objects[0].pt, event.objects[0].charge), (3.0, -1.0));
}

#[test]
fn values_are_narrowed_from_double_precision() {
    // Nearest f32 of the decimal and of its f64 differ here: double rounding is the definition.
    let pt = "1.00000005960464477540";
    let row = format!("Run,Event,pt1,eta1,phi1,Q1,dxy1,iso1\n1,1,{pt},0,0,1,0,0\n");
    let mut event = SourceEvent::new();
    read(&row).event(0, &mut event);
    let wide: f64 = pt.parse().unwrap();
    assert_eq!(event.objects[0].pt, wide as f32);
}

#[test]
fn event_numbers_that_wrapped_in_32_bits_are_restored() {
    let events = read(&MUONS.replace("74969122", "-1572852967"));
    let mut event = SourceEvent::new();
    events.event(0, &mut event);
    assert_eq!(event.number, EventNumber(2_722_114_329));
}

#[test]
fn missing_columns_are_all_named() {
    let text = "Run,pt1,eta1,Q1,dxy1,pt2,eta2,phi2,Q2,dxy2,iso2\n1,2,3\n";
    let names: Vec<String> = problems(text).into_iter().map(|p| p.column).collect();
    assert_eq!(names, ["Event", "phi1", "iso1"]);
    let names: Vec<String> = problems("").into_iter().map(|p| p.column).collect();
    assert_eq!(
        names,
        ["Run", "Event", "pt1", "eta1", "phi1", "Q1", "dxy1", "iso1"]
    );
    assert_eq!(problems("a,b\n1,2\n")[0].found, "no such column");
}

/// What a header lacks of an object would lose that object and all behind it.
#[test]
fn headers_that_would_lose_objects_are_refused() {
    let objects = |numbers: &[u32], without: &str| {
        let of = |n: &u32| ["PID", "pt", "eta", "phi", "Q"].map(|name| format!("{name}{n}"));
        let columns = numbers.iter().flat_map(of);
        let columns = columns.filter(|column| column != without);
        let header: Vec<String> = columns.collect();
        format!("Run,Event,{}\n", header.join(","))
    };
    let named = |text: &str| -> Vec<String> {
        let problems = problems(text).into_iter();
        problems
            .map(|p| format!("{} {}", p.column, p.found))
            .collect()
    };
    let missing = |columns: &[&str]| -> Vec<String> {
        let columns = columns.iter();
        columns
            .map(|column| format!("{column} no such column"))
            .collect()
    };
    let of_second = missing(&["PID2", "pt2", "eta2", "phi2", "Q2"]);
    assert_eq!(named(&objects(&[1, 3], "")), of_second);
    assert_eq!(named(&objects(&[1, 2], "PID2")), missing(&["PID2"]));
    assert_eq!(named(&objects(&[1, 2], "PID1")), missing(&["PID1"]));
    let muons = MUONS.replace('2', "3");
    let header = muons.lines().next().unwrap();
    let of_second = missing(&["pt2", "eta2", "phi2", "Q2", "dxy2", "iso2"]);
    assert_eq!(named(header), of_second);
    let twice = objects(&[1, 2], "").replace("eta2", "eta1");
    assert_eq!(
        named(&twice)[..2],
        ["eta1 a second column with this name", "eta2 no such column"]
    );
    assert_eq!(
        named(&objects(&[1, 1], ""))[0],
        "PID1 a second column with this name"
    );
    for number in [0, 25] {
        let expected = format!("PID{number} an object with this number");
        assert_eq!(named(&objects(&[1, number], ""))[0], expected);
    }
}

#[test]
fn bad_values_are_reported_with_line_column_value_and_what_is_allowed() {
    let good = "165617,1,54,-0.4,2.5,1,-0.07,0.5,34,-0.9,-0.4,-1,0.07,3.4";
    let header = MUONS.lines().next().unwrap();
    let with = |column: usize, value: &str| {
        let mut values: Vec<&str> = good.split(',').collect();
        values[column] = value;
        values.join(",")
    };
    let bad = [
        (0, "4294967296", "Run"),
        (1, "-2147483649", "Event"),
        (1, "1.5", "Event"),
        (2, "0", "pt1"),
        (2, "inf", "pt1"),
        (3, "NaN", "eta1"),
        (4, "3.2", "phi1"),
        (5, "0", "Q1"),
        (5, "0.5", "Q1"),
        (5, "2", "Q1"),
        (6, "1e5", "dxy1"),
        (7, "-0.1", "iso1"),
        (13, "", "iso2"),
        (13, "muon", "iso2"),
    ];
    let mut text = format!("{header}\n{good}\n");
    for (column, value, _) in bad {
        text += &with(column, value);
        text.push('\n');
    }
    let expected: Vec<String> = (3..)
        .zip(bad)
        .map(|(line, (_, value, name))| format!("{line}:{name}={value}"))
        .collect();
    assert_eq!(places(&text), expected);
    let shown = problems(&text)[3].to_string();
    let wanted = "line 6, column pt1: found 0, allowed is 0.001 to 100000 GeV";
    assert_eq!(shown, wanted);
    let error = RecordedEvents::read(text.as_bytes())
        .unwrap_err()
        .to_string();
    assert_eq!(error.lines().count(), bad.len());
}

#[test]
fn lines_are_counted_as_an_editor_does_it() {
    let header = MUONS.lines().next().unwrap();
    let good = "165617,1,54,-0.4,2.5,1,-0.07,0.5,34,-0.9,-0.4,-1,0.07,3.4";
    let bad = good.replace(",54,", ",0,");
    for end in ["\n", "\r\n", "\r\n\r\n"] {
        let text = [header, good, &bad, good, &bad].join(end) + end;
        let apart = end.matches('\n').count();
        let expected = [2, 4].map(|row| format!("{}:pt1=0", 1 + row * apart));
        assert_eq!(places(&text), expected, "{end:?}");
        assert_eq!(places(text.trim_end()), expected, "{end:?}");
    }
}

#[test]
fn unknown_particles_are_refused() {
    let text = LEPTONS.replace(",13,", ",15,");
    assert_eq!(places(&text), ["2:PID2=15"]);
}

#[test]
fn at_most_twenty_problems_are_reported_and_long_values_are_cut() {
    let header = MUONS.lines().next().unwrap();
    let row = "x,".repeat(13) + "x\n";
    let text = format!("{header}\n{}", row.repeat(1000));
    assert_eq!(problems(&text).len(), PROBLEMS_MAX);
    let error = RecordedEvents::read(text.as_bytes())
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("(more are not shown)"), "{error}");

    let long = format!("{header}\n{}", row.replacen('x', &"9".repeat(100_000), 1));
    assert_eq!(problems(&long)[0].found.len(), 40);
}

/// Whoever mends all that is shown is not to look for more.
#[test]
fn more_problems_are_named_only_where_there_are_more() {
    let (header, row) = LEPTONS.split_once('\n').unwrap();
    let bad = row.replace(",13,", ",15,");
    for (rows, are_all) in [(1, true), (20, true), (21, false), (22, false)] {
        let text = format!("{header}\n{}", bad.repeat(rows));
        let shown = problems(&text).len();
        assert_eq!(shown, rows.min(PROBLEMS_MAX));
        let error = RecordedEvents::read(text.as_bytes()).unwrap_err();
        let said = error.to_string();
        assert_eq!(!said.ends_with("(more are not shown)"), are_all, "{said}");
        assert_eq!(said.lines().count(), shown + usize::from(!are_all));
    }
}

#[test]
fn short_long_and_absent_rows_are_refused() {
    let header = MUONS.lines().next().unwrap();
    assert_eq!(places(header), ["2:Run=the end of the file"]);
    assert_eq!(places(&format!("{header}\n1,2,3\n")), ["2:eta1=3 values"]);
    let long = "1,".repeat(14) + "1\n";
    assert_eq!(
        places(&format!("{header}\n{long}")),
        ["2:behind the last=15 values"]
    );
}

#[test]
fn bytes_that_are_no_text_and_readers_that_fail_are_errors() {
    let read = RecordedEvents::read(&b"Run,Event\n\xFF\xFE,1\n"[..]);
    assert!(read.is_err());
    let mut text = MUONS.as_bytes().to_vec();
    text.extend_from_slice(b"\xC3\x28,1,1,1,1,1,1,1,1,1,1,1,1,1\n");
    let read = RecordedEvents::read(text.as_slice());
    assert!(matches!(read, Err(RecordedError::Read(_))), "{read:?}");

    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("disk on fire"))
        }
    }
    let error = RecordedEvents::read(Broken).unwrap_err().to_string();
    assert!(error.contains("disk on fire"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(RecordedEvents::read(bytes.as_slice()).is_err());
    }

    /// Rows made of the characters that rows are made of, behind a good header.
    #[test]
    fn any_rows_are_read_or_refused_and_what_is_read_is_in_range(
        rows in "([-+.0-9eEnaif,\"\n]{0,8},){0,40}",
    ) {
        let header = "Run,Event,pt1,eta1,phi1,Q1,dxy1,iso1\n";
        if let Ok(events) = RecordedEvents::read(format!("{header}{rows}").as_bytes()) {
            let mut event = SourceEvent::new();
            for row in 0..events.rows() {
                events.event(row as u64, &mut event);
                prop_assert!(event.objects[0].pt > 0.0);
                prop_assert_eq!(event.objects[0].charge.abs(), 1.0);
            }
        }
    }
}

/// A file of the folder in `LIVETIME_DATA`, `None` (and a line that counts the skip) without it.
fn recorded(name: &str) -> Option<RecordedEvents> {
    let Some(folder) = std::env::var_os("LIVETIME_DATA") else {
        let required = std::env::var_os("LIVETIME_DATA_REQUIRED").is_some_and(|value| value == "1");
        assert!(
            !required,
            "LIVETIME_DATA is not set and LIVETIME_DATA_REQUIRED=1"
        );
        println!("SKIPPED: LIVETIME_DATA is not set");
        return None;
    };
    let path = PathBuf::from(folder).join(name);
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(RecordedEvents::read(file).expect("a real file is good"))
}

fn all(events: &RecordedEvents) -> impl Iterator<Item = SourceEvent> + '_ {
    (0..events.rows() as u64).map(|index| {
        let mut event = SourceEvent::new();
        events.event(index, &mut event);
        event
    })
}

#[test]
fn the_cms_dimuon_file_has_its_known_content() {
    let Some(events) = recorded("Zmumu_Run2011A.csv") else {
        return;
    };
    assert_eq!(events.rows(), 10_583);
    let opposite = all(&events)
        .filter(|event| event.objects[0].charge != event.objects[1].charge)
        .count();
    let fraction = opposite as f64 / 10_583.0;
    assert!((fraction - 0.966).abs() < 0.0005, "{fraction}");
    let runs: std::collections::BTreeSet<u32> = all(&events).map(|event| event.run.0).collect();
    assert_eq!(runs.len(), 19);
    let mut bins = [0_u32; 60];
    for mass in all(&events).filter_map(|event| event.dimuon_mass()) {
        if (60.0..120.0).contains(&mass) {
            bins[(mass - 60.0) as usize] += 1;
        }
    }
    let peak = (0..60).max_by_key(|bin| bins[*bin]).unwrap() + 60;
    assert!((90..=91).contains(&peak), "{bins:?}");
}

#[test]
fn cosmics_of_the_cms_file_saturate_the_impact_parameter() {
    let Some(events) = recorded("Zmumu_Run2011A.csv") else {
        return;
    };
    let mut encoder = PacketEncoder::new(WORDS_MAX_DEFAULT);
    let (mut words, mut saturated, mut farthest) = (Vec::new(), 0, 0.0_f32);
    for (index, event) in all(&events).enumerate() {
        let header = PacketHeader {
            trigger: TriggerNumber(index as u64 + 1),
            l2_buffer: 0,
            bunch: 0,
            run: RunNumber(1),
            lumi_section: 0,
            triggered_at: RunNs(0),
            index: index as u64,
        };
        encoder.encode(&event, &header, &mut words);
        let packet = TriggerPacketView::new_checked(&words).unwrap();
        for (object, track) in event.objects.iter().zip(packet.svt()) {
            farthest = farthest.max(object.dxy.abs());
            if object.dxy.abs() >= 0.511 {
                saturated += 1;
                let sign = if object.dxy < 0.0 { -1 } else { 1 };
                assert_eq!(track.d(), 511 * sign, "{object:?}");
            } else {
                let um = f64::from(object.dxy) * 1e4;
                assert!(
                    (f64::from(track.d()) * 10.0 - um).abs() <= 5.001,
                    "{object:?}"
                );
            }
        }
    }
    assert!(
        saturated > 0 && farthest > 100.0,
        "{saturated} tracks, up to {farthest} cm"
    );
    assert_eq!(encoder.counts().truncated, 0);
}

#[test]
fn the_cms_four_lepton_files_are_read_whole() {
    for (name, rows, electrons) in [
        ("2e2mu_2011.csv", 13, 26),
        ("2e2mu_2012.csv", 104, 208),
        ("4mu_2011.csv", 18, 0),
    ] {
        let Some(events) = recorded(name) else {
            return;
        };
        assert_eq!(events.rows(), rows, "{name}");
        let found = all(&events)
            .flat_map(|event| event.objects)
            .inspect(|object| assert_eq!((object.dxy, object.iso), (0.0, 0.0)))
            .filter(|object| object.kind == ObjectKind::Electron)
            .count();
        assert_eq!(found, electrons, "{name}");
        assert!(all(&events).all(|event| event.objects.len() == 4));
    }
}
