//! How fragments and events travel: streams, datagrams, shaped traffic.

use super::*;

#[test]
fn a_congestion_control_without_streams_is_a_problem() {
    let text = EVERY_KEY.replace("transport = \"tcp\"", "transport = \"shm\"");
    let reading = read_plain(&text);
    let found: Vec<(&str, &str)> = (reading.problems.iter())
        .map(|problem| (problem.code.code, problem.path.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("C0137", "builder.congestion"),
            ("L0207", "builder.shaping"),
            ("C0137", "filter.congestion")
        ]
    );
}

#[test]
fn datagrams_have_a_receive_buffer_and_carry_no_whole_events() {
    let udp = EVERY_KEY.replacen("congestion = \"reno\"\n", "receive_buffer = \"3 MiB\"\n", 1);
    let text = udp.replacen("transport = \"tcp\"", "transport = \"udp\"", 1);
    let transport = BuilderTransport::Udp {
        receive_buffer_bytes: 3 << 20,
    };
    assert_eq!(good(&text).chain.transport, transport);
    let problems = |text: &str| -> Vec<(&str, String)> {
        let problems = read_plain(text).problems.into_iter();
        problems
            .map(|problem| (problem.code.code, problem.path))
            .collect()
    };
    let refused = |code, key: &str| vec![(code, key.to_owned())];
    assert_eq!(problems(&udp), refused("C0137", "builder.receive_buffer"));
    let huge = text.replace("\"3 MiB\"", "\"3 GiB\"");
    assert_eq!(problems(&huge), refused("C0006", "builder.receive_buffer"));
    let events = EVERY_KEY.replace("congestion = \"reno\"\n", "");
    let events = events.replace("transport = \"tcp\"", "transport = \"udp\"");
    assert_eq!(problems(&events), refused("C0005", "filter.transport"));
}

#[test]
fn traffic_is_shaped_by_the_keys_that_go_together() {
    let (before, after) = EVERY_KEY
        .split_once("shaping = \"barrel-shifter\"\n")
        .expect("it is shaped");
    let (_, after) = after.split_once("shift_numbers = [2]\n").expect("it is");
    let with = |lines: &str| format!("{before}{lines}{after}");
    let shaping = |lines: &str| {
        let lines = format!("shaping = \"barrel-shifter\"\n{lines}");
        good(&with(&lines)).chain.builder.shaping
    };
    assert_eq!(shaping(""), Some(ShapingConfig::default()));
    let turn_max = ShapingConfig {
        pace: ShapingPace::BackPressure {
            turn_max: DurationNs(3_000_000),
        },
        ..ShapingConfig::default()
    };
    let written = "pace = \"back-pressure\"\nturn_max = \"3 ms\"\n";
    assert_eq!(shaping(written), Some(turn_max));
    let stepped = ShapingConfig {
        pace: ShapingPace::Clock {
            step: DurationNs(600_000),
        },
        ..ShapingConfig::default()
    };
    let written = "pace = \"clock\"\nstep = \"600 us\"\n";
    assert_eq!(shaping(written), Some(stepped));
    assert_eq!(
        good(&with("shaping = \"none\"\n")).chain.builder.shaping,
        None
    );
    let linear = "shaping = \"linear-shift\"\n";
    let shaping = |lines: &str| {
        let lines = format!("{linear}{lines}");
        good(&with(&lines)).chain.builder.shaping
    };
    let phases = |block_bytes, turn_max, retry, numbers: &[u16]| ShapingConfig {
        block_bytes,
        pace: ShapingPace::Barrier {
            turn_max: DurationNs(turn_max),
            retry: DurationNs(retry),
        },
        numbers: numbers.to_vec(),
    };
    assert_eq!(
        shaping(""),
        Some(phases(64 << 10, 10_000_000, 5_000_000, &[]))
    );
    let written =
        "block = \"4 KiB\"\nturn_max = \"3 ms\"\nbarrier_retry = \"1 ms\"\nshift_numbers = [2]\n";
    assert_eq!(
        shaping(written),
        Some(phases(4 << 10, 3_000_000, 1_000_000, &[2]))
    );
    let shaped = "shaping = \"barrel-shifter\"\n";
    let clock = "shaping = \"barrel-shifter\"\npace = \"clock\"\n";
    for (lines, expected) in [
        ("block = \"4 KiB\"\n", vec![("C0137", "builder.block")]),
        (
            "shaping = \"none\"\npace = \"clock\"\nlink_rate = \"1 Gb/s\"\n",
            vec![("C0137", "builder.pace"), ("C0137", "builder.link_rate")],
        ),
        ("shaping = \"barrel\"\n", vec![("C0005", "builder.shaping")]),
        (
            "barrier_retry = \"1 ms\"\n",
            vec![("C0137", "builder.barrier_retry")],
        ),
        (
            &format!("{shaped}barrier_retry = \"1 ms\"\n"),
            vec![("C0137", "builder.barrier_retry")],
        ),
        (
            &format!("{linear}pace = \"clock\"\nstep = \"1 ms\"\nlink_rate = \"1 Gb/s\"\n"),
            vec![
                ("C0137", "builder.pace"),
                ("C0137", "builder.step"),
                ("C0137", "builder.link_rate"),
            ],
        ),
        (
            &format!("{linear}turn_max = \"2 s\"\nbarrier_retry = \"10 ns\"\nblock = \"1 B\"\n"),
            vec![
                ("B0118", "builder.turn_max"),
                ("B0118", "builder.barrier_retry"),
                ("B0118", "builder.block"),
            ],
        ),
        (clock, vec![("C0007", "builder.link_rate")]),
        (
            &format!("{clock}step = \"1 ms\"\nlink_rate = \"1 Gb/s\"\nturn_max = \"1 ms\"\n"),
            vec![
                ("C0120", "builder.link_rate"),
                ("C0137", "builder.turn_max"),
            ],
        ),
        (
            &format!("{clock}link_rate = \"1 b/s\"\n"),
            vec![("C0006", "builder.link_rate")],
        ),
        (
            &format!("{clock}step = \"1 ns\"\nblock = \"1 B\"\n"),
            vec![("B0118", "builder.step"), ("B0118", "builder.block")],
        ),
        (
            &format!("{shaped}step = \"1 ms\"\nshift_numbers = [7]\n"),
            vec![
                ("C0137", "builder.step"),
                ("B0114", "builder.shift_numbers[0]"),
            ],
        ),
    ] {
        let mut expected: Vec<(&str, String)> = expected
            .into_iter()
            .map(|(code, key)| (code, key.to_owned()))
            .collect();
        let mut found = problems(&with(lines));
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{lines}");
    }
    let (first, rest) = (with(shaped), "transport = \"shm\"\n");
    let shm = first.replacen("transport = \"tcp\"\ncongestion = \"reno\"\n", rest, 1);
    assert_eq!(problems(&shm), each([("L0207", "builder.shaping")]));
}
