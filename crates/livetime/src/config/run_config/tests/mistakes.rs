//! Which problems a configuration has: all of them, each once, where the person who wrote it looks.

use std::collections::BTreeSet;

use super::super::super::cut_section::CUTS;
use super::*;

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

/// The first link of the file is the trigger link.
#[test]
fn too_many_sources_stand_where_most_of_them_are_written() {
    let link = |unit: u16, first: u32, count: u32| {
        format!("[[link]]\nto = \"ru{unit}\"\nsource_id = {first}\ncount = {count}\n")
    };
    let with = |links: &[String]| problems(&(LEAST.to_owned() + &links.concat()));
    let of_one = with(&[link(0, 1, 50)]);
    assert_eq!(of_one, each([("B0110", "link[2].count")]));
    let of_another = with(&[link(1, 1, 4), link(1, 100, 40), link(1, 200, 5)]);
    assert_eq!(of_another, each([("B0110", "link[3].count")]));
    let units: Vec<String> = (1..101)
        .map(|unit| link(unit, u32::from(unit) * 100, 32))
        .collect();
    // All but the first two tables have as many.
    let (code, path) = &with(&units)[0];
    assert_eq!(*code, "B0110");
    assert!(path.ends_with(".count"), "{path}");
    assert!(
        !["link[0].count", "link[1].count"].contains(&path.as_str()),
        "{path}"
    );
}

/// What follows from a problem that is said already would only hide it.
#[test]
fn a_mistake_is_said_once() {
    let far = LEAST.replace("0x510000", "0xffffffff\ncount = 2");
    assert_eq!(problems(&far), each([("C0006", "link[1].count")]));
    let file = format!("{LEAST}kind = \"file\"\n");
    assert_eq!(problems(&file), each([("C0007", "link[1].frames")]));
    let second = "[[link]]\nto = \"ru1\"\nsource_id = 1\n[builder]\n";
    let steps = format!("{LEAST}{second}first_step = [\"ru0\", \"ru0\"]\n");
    assert_eq!(problems(&steps), each([("B0115", "builder.first_step[1]")]));
    let all = steps.replace("\"ru0\"]", "\"ru1\"]");
    assert_eq!(problems(&all), each([("B0115", "builder.first_step")]));
}

/// A limit in a message is one that the reader keeps.
#[test]
fn limits_of_messages_hold() {
    let page = |size: &str| format!("{LEAST}page = \"{size} B\"\npages = 300\n");
    for size in ["4194304", "192"] {
        let found = read_plain(&page(size)).problems.into_iter();
        let of_page: Vec<_> = found.filter(|p| p.code.code == "L0101").collect();
        assert_eq!(of_page.len(), 1);
        assert_eq!(of_page[0].path, "link[1].page");
        assert_eq!(of_page[0].allowed, "256 B to 4194240 B, a multiple of 64 B");
    }
    for size in ["4194240", "256"] {
        let found = problems(&page(size));
        assert!(
            !found.iter().any(|(_, key)| key == "link[1].page"),
            "{found:?}"
        );
    }
    for (key, value, allowed) in [
        ("chunk", "1000 B", "4 KiB to 256 MiB"),
        ("event_max", "2 GiB", "1 KiB to 1 GiB"),
        ("file_max", "1000 B", "0 B, or at least 64 KiB"),
        ("output_per_second", "1000 B", "0 B, or at least 16 MiB"),
    ] {
        let mut found = read_plain(&format!("{LEAST}[store]\n{key} = \"{value}\"\n")).problems;
        found.retain(|problem| problem.path == format!("store.{key}"));
        let problem = found.first().expect("it is out of its range");
        assert_eq!(
            (problem.found.as_str(), problem.allowed.as_str()),
            (value, allowed)
        );
    }
    let path = "[[trigger.path]]\nname = \"A\"\nbit = 0\nl1 = [0]\ncut = \"auto\"\n";
    for (factor, is_allowed) in [("0", false), ("1", true), ("4294967296", false)] {
        let text = format!("{LEAST}{path}prescale = {factor}\n");
        let problem = read_plain(&text).problems.pop();
        let allowed = problem.map(|problem| problem.allowed);
        let expected = "a whole number from 1 to 4294967295".to_owned();
        assert_eq!(allowed, (!is_allowed).then_some(expected), "{factor}");
    }
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
    let silence = |keys: &str| problems(&format!("{LEAST}[builder]\n{keys}"));
    let idle = each([("C0137", "builder.suspect"), ("C0137", "builder.dead")]);
    assert_eq!(silence("suspect = \"1 s\"\ndead = \"2 s\"\n"), idle);
    for (table, key) in [
        ("trigger", "merge_timeout = \"2 ms\""),
        ("trigger", "beam_fit_d_max = \"1 mm\""),
        ("trigger", "dead_time_window = 10"),
        ("trigger", "luminosity = [5]"),
        ("store", "yielding_streams = [0]"),
    ] {
        let name = key.split(' ').next().unwrap_or(key);
        let found = problems(&format!("{LEAST}[{table}]\n{key}\n"));
        assert_eq!(found, each([("C0137", &format!("{table}.{name}"))]));
    }
    let limited = EVERY_KEY.replace("luminosity = [300, 150]\n", "");
    let unknown = each([("C0137", "trigger.path[0].luminosity_max")]);
    assert_eq!(problems(&limited), unknown);
    let none = EVERY_KEY.replace("luminosity = [300, 150]", "luminosity = []");
    assert_eq!(problems(&none), each([("C0006", "trigger.luminosity")]));
    // The merger would never come to give up.
    let late = problems(&format!(
        "{LEAST}[trigger]\ninputs = 2\nmerge_timeout = \"1 s\"\n"
    ));
    assert_eq!(late, each([("C0006", "trigger.merge_timeout")]));
    let control = format!("{LEAST}[control]\ndead = \"1 s\"\n");
    assert_eq!(problems(&control), each([("C0137", "control.dead")]));
    let patient = |kind: &str| {
        let keys = format!("0x510000\nkind = \"{kind}\"\npatience = \"20 ms\"\nwindow = 8");
        problems(&LEAST.replace("0x510000", &keys))
    };
    let idle_keys = each([("C0137", "link[1].patience"), ("C0137", "link[1].window")]);
    assert_eq!(patient("tcp"), idle_keys);
    assert_eq!(patient("udp"), []);
    assert_eq!(
        silence("heartbeat = \"100 ms\"\nsuspect = \"1 s\"\ndead = \"2 s\"\n"),
        []
    );
}

#[test]
fn problems_of_a_path_stand_at_it_also_behind_a_broken_one() {
    let broken = EVERY_KEY
        .replace("bit = 1\n", "bit = 128\n")
        .replace("bit = 127", "bit = 4");
    let expected = [
        ("C0006", "trigger.path[11].bit"),
        ("T0101", "trigger.path[15].bit"),
    ];
    assert_eq!(problems(&broken), each(expected));
    let reading = read_plain(&broken);
    let related = reading.problems[1].related.as_ref();
    assert_eq!(
        related.map(|(path, _)| path.as_str()),
        Some("trigger.path[14].bit")
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

/// What stands for an unread value clashes with nothing, not even with what stands for another.
#[test]
fn a_value_that_cannot_be_read_hides_nothing_of_its_path() {
    let path = |name: &str, rest: &str| {
        format!("[[trigger.path]]\nname = {name}\n{rest}\nl1 = []\ncut = \"auto\"\nprescale = 1\n")
    };
    let one = path("\"A B\"", "bit = 128");
    let expected = [
        ("T0107", "trigger.path[0].name"),
        ("C0006", "trigger.path[0].bit"),
        ("T0104", "trigger.path[0].l1"),
    ];
    assert_eq!(problems(&format!("{LEAST}{one}")), each(expected));
    let several = path("1", "bit = 128") + &path("2", "bit = \"b\"") + &path("\"A\"", "bit = 0");
    let several = problems(&format!("{LEAST}{several}"));
    let unread: BTreeSet<&str> = several.iter().map(|(code, _)| *code).collect();
    assert_eq!(unread, BTreeSet::from(["C0003", "C0006", "T0104"]));
    assert_eq!(several.len(), 7);
    let streams = "[filter]\nname = \"menu\"\nstreams = [\"all\"]\n";
    let path = |name: &str, cut: &str| {
        format!("[[filter.path]]\nname = {name}\ncut = \"{cut}\"\nstreams = [\"all\"]\n")
    };
    let paths = path("1", "all") + &path("\"A B\"", "some") + &path("2", "all");
    let expected = [
        ("C0003", "filter.path[0].name"),
        ("T0302", "filter.path[1].name"),
        ("C0005", "filter.path[1].cut"),
        ("C0003", "filter.path[2].name"),
    ];
    assert_eq!(
        problems(&format!("{LEAST}{streams}{paths}")),
        each(expected)
    );
}

#[test]
fn a_decision_timeout_beyond_the_largest_is_said_beside_the_deadline() {
    let with = |timeout: &str| {
        let keys = format!("deadline = \"0 us\"\ndecision_timeout = \"{timeout}\"\n");
        problems(&format!("{LEAST}[trigger]\n{keys}"))
    };
    let deadline = ("T0202", "trigger.deadline");
    let both = each([deadline, ("T0203", "trigger.decision_timeout")]);
    assert_eq!(with("61 s"), both);
    assert_eq!(with("0 us"), each([deadline]), "compared with nothing");
}

/// As many as people would see rounded to what they did not write.
#[test]
fn times_between_two_nanoseconds_or_ticks_are_refused() {
    let fires = |interval: &str| {
        let path = "[[trigger.path]]\nname = \"A\"\nbit = 0\nl1 = [0]\ncut = \"auto\"\n";
        problems(&format!("{LEAST}{path}interval_min = \"{interval}\"\n"))
    };
    let at = "trigger.path[0].interval_min";
    for (interval, code) in [
        ("25.4 ns", "C0004"),
        ("24.6 ns", "C0004"),
        ("0 ns", "T0112"),
        ("24 ns", "T0112"),
    ] {
        assert_eq!(fires(interval), each([(code, at)]), "{interval}");
    }
    for interval in ["0.1 us", "25.0 ns", "0.000000025 s"] {
        assert_eq!(fires(interval), each([]), "{interval}");
    }
    let run = format!("{LEAST}[run]\nduration = \"1.5 ns\"\n");
    assert_eq!(problems(&run), each([("C0004", "run.duration")]));
    assert!(super::super::super::parse_quantity::<DurationNs>("1.5 ns").is_err());
}

/// Nothing is said of the table that the header has taken along.
#[test]
fn a_header_that_is_not_closed_is_one_problem() {
    for (written, broken) in [
        ("[[source]]", "[run\nseed = 9\n[[source]]"),
        ("[[source]]", "[[source"),
        ("[[link]]\nto = \"trg0\"", "[[link\nto = \"trg0\""),
    ] {
        let text = LEAST.replacen(written, broken, 1);
        let found = problems(&text);
        assert!(!found.is_empty(), "{text}");
        let mut codes = found.iter().map(|(code, _)| *code);
        assert!(codes.all(|code| code == "C0001"), "{text}: {found:?}");
    }
    let value = format!("{LEAST}pages = \"many\"\n[run\n");
    let expected = [("C0003", "link[1].pages"), ("C0001", "syntax error 1")];
    assert_eq!(problems(&value), each(expected));
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
            "roles = [\"src0\", \"trg0\", \"trg1\"]",
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

/// The other edge may be right: it is not held against the default of one that could not be read.
#[test]
fn an_edge_that_cannot_be_read_leaves_the_other_one_alone() {
    let window = |edges: &str| problems(&format!("{LEAST}[filter]\n{edges}\n"));
    let min = window("mass_min = \"0.5 keV\"\nmass_max = \"50 GeV\"");
    assert_eq!(min, each([("C0004", "filter.mass_min")]));
    let max = window("mass_min = \"130 GeV\"\nmass_max = 150");
    assert_eq!(max.len(), 1, "{max:?}");
    assert_eq!(max[0].1, "filter.mass_max");
    // One that is left out has its default.
    let upside_down = each([("T0301", "filter.mass_min")]);
    assert_eq!(window("mass_max = \"50 GeV\""), upside_down);
}

/// Given limits below what any event can have, then each is named where it stands.
#[test]
fn limits_of_the_filter_that_nothing_can_keep_are_problems() {
    let streams = "[filter]\nname = \"menu\"\nstreams = [\"all\"]\n";
    let path = |cut: &str, limits: &str| {
        let path = "[[filter.path]]\nname = \"A\"\nstreams = [\"all\"]\n";
        problems(&format!(
            "{LEAST}{streams}{path}cut = \"{cut}\"\n{limits}\n"
        ))
    };
    let vertex = each([("T0302", "filter.path[0].vertex_max")]);
    assert_eq!(path("dimuon", "vertex_max = \"-1 um\""), vertex);
    let pt = each([("T0302", "filter.path[0].pt_min")]);
    for cut in ["four_lepton", "muons", "electrons"] {
        assert_eq!(path(cut, "pt_min = \"-1 GeV\""), pt, "{cut}");
    }
    let window = path("dimuon", "mass_min = \"-6 GeV\"\nmass_max = \"-5 GeV\"");
    let edges = ["filter.path[0].mass_min", "filter.path[0].mass_max"];
    assert_eq!(window, each(edges.map(|edge| ("T0302", edge))));
    let equal = path("dimuon", "mass_min = \"5 GeV\"\nmass_max = \"5 GeV\"");
    assert_eq!(equal, each([("T0302", "filter.path[0].mass_min")]));
    // What could not be read is said, and nothing beside it.
    let unread = path("dimuon", "mass_min = \"0.5 keV\"\nmass_max = \"1 GeV\"");
    assert_eq!(unread, each([("C0004", "filter.path[0].mass_min")]));
}

/// What a key would have said about others is not known where its own value could not be read.
#[test]
fn keys_that_go_with_one_that_cannot_be_read_are_not_judged() {
    let path = |kind: &str, keys: &str| format!("{LEAST}[[{kind}.path]]\nname = \"A\"\n{keys}\n");
    let menu =
        "name = \"menuu\"\nstreams = [\"a\"]\n[[filter.path]]\nname = \"A\"\ncut = \"all\"\n";
    let of_links = "[[link]]\nto = 5\nsource_id = 6\n[[link]]\nto = \"ru2\"\nsource_id = 7\n";
    let roles = "[[host]]\nname = \"a\"\naddress = \"127.0.0.1\"\nroles = [\"src0\", \"ru1\"]\n";
    for (text, code, key) in [
        (format!("{LEAST}[filter]\n{menu}"), "C0005", "filter.name"),
        (
            format!("{LEAST}[filter]\nname = 3\nmass_min = \"1 GeV\"\n"),
            "C0003",
            "filter.name",
        ),
        (
            format!("{LEAST}[filter]\nunits = 0\nunits_max = 1\nsubfarms = 3\n"),
            "C0006",
            "filter.units",
        ),
        (
            path(
                "trigger",
                "bit = 1\nl1 = [0]\ncut = \"dimuons\"\npt_min = \"1 GeV\"",
            ),
            "C0005",
            "trigger.path[0].cut",
        ),
        (
            path(
                "trigger",
                "bit = 1\nl1 = [0]\ncut = \"auto\"\nprescales = \"1\"\n[trigger]\ndead_time_low = 0.001",
            ),
            "C0003",
            "trigger.path[0].prescales",
        ),
        (
            format!(
                "{LEAST}[filter]\nname = \"menu\"\nstreams = [\"a\"]\n[[filter.path]]\nname = \"A\"\n\
                     streams = [\"a\"]\ncut = \"dimuons\"\npt_min = \"1 GeV\"\n"
            ),
            "C0005",
            "filter.path[0].cut",
        ),
        (
            format!(
                "{LEAST}[filter]\nname = \"menu\"\nstreams = \"a\"\n[[filter.path]]\nname = \"A\"\n\
                     streams = [\"a\"]\ncut = \"all\"\n"
            ),
            "C0003",
            "filter.streams",
        ),
        (
            LEAST.replace(
                "[[source]]",
                "[[source]]\nkind = \"record\"\nevents = \"a\"",
            ),
            "C0005",
            "source[0].kind",
        ),
        (
            format!(
                "{LEAST}[builder]\ntransport = \"tpc\"\nshaping = \"barrel-shifter\"\ncongestion = \"bbr\"\n\
                     receive_buffer = \"1 MiB\"\n{roles}"
            ),
            "C0005",
            "builder.transport",
        ),
        (
            format!(
                "{LEAST}[builder]\ntransport = \"tcp\"\nshaping = \"barrel-shifter\"\npace = \"clok\"\n\
                     step = \"1 ms\"\n"
            ),
            "C0005",
            "builder.pace",
        ),
        (
            format!("{LEAST}[builder]\nheartbeat = \"1x\"\nsuspect = \"1 s\"\ndead = \"2 s\"\n"),
            "C0004",
            "builder.heartbeat",
        ),
        (
            format!("{LEAST}[builder]\ncredit_bytes = \"100 TiB\"\nevent_bytes = \"1 MiB\"\n"),
            "C0004",
            "builder.credit_bytes",
        ),
        (
            format!("{LEAST}[builder]\ntimeout = \"3\"\nretry = \"2 s\"\n"),
            "C0004",
            "builder.timeout",
        ),
        (
            format!("{LEAST}[trigger]\ninputs = 99\nmerge_timeout = \"2 ms\"\n"),
            "C0006",
            "trigger.inputs",
        ),
        (
            format!(
                "{LEAST}[trigger]\ninputs = 2\nmerge_timeout = \"2 s\"\ndecision_timeout = \"3\"\n"
            ),
            "C0004",
            "trigger.decision_timeout",
        ),
        (
            format!("{LEAST}[trigger]\nbeam_fit_events = \"a\"\nbeam_fit_d_max = \"1 mm\"\n"),
            "C0003",
            "trigger.beam_fit_events",
        ),
        (
            format!("{LEAST}[store]\noutput_per_second = \"x\"\nyielding_streams = [0]\n"),
            "C0004",
            "store.output_per_second",
        ),
        (
            format!("{LEAST}[control]\nsuspect = \"x\"\ndead = \"80 ms\"\n[[host]]\n"),
            "C0004",
            "control.suspect",
        ),
        (
            LEAST.replace("0x510000", "-1"),
            "C0006",
            "link[1].source_id",
        ),
        (format!("{LEAST}{of_links}{roles}"), "C0003", "link[2].to"),
        (LEAST.replace("\"trg0\"", "\"trg\""), "C0104", "link[0].to"),
    ] {
        let mut found = problems(&text);
        // Of an empty host much is missing, and it has few of the roles.
        found.retain(|(_, key)| !key.starts_with("host"));
        assert_eq!(found, each([(code, key)]), "{text}");
    }
}

/// The keys that a table allows, asked for one that it does not have; `words` governs which.
fn known_keys(text: &str, words: &str) -> BTreeSet<String> {
    let reading = read_plain(&text.replace("WORDS", &format!("{words}\nforeign_key = 1")));
    let mut problems = reading.problems.iter();
    let foreign = problems.find(|problem| problem.path.ends_with("foreign_key"));
    let foreign = foreign.expect("no table has such a key");
    foreign.allowed.split(", ").map(str::to_owned).collect()
}

/// Given each word that decides which keys a table has, then the lists of keys that are passed over
/// behind a wrong word are those that the readers of the right ones know.
#[test]
fn keys_behind_a_word_that_cannot_be_read_are_those_of_all_words() {
    let trigger = format!("{LEAST}[[trigger.path]]\nWORDS\n");
    let menu =
        format!("{LEAST}[filter]\nname = \"menu\"\nstreams = [\"a\"]\n[[filter.path]]\nWORDS\n");
    let filter = format!("{LEAST}[filter]\nWORDS\n");
    let cut = |word: &str| format!("cut = \"{word}\"");
    let name = |word: &str| format!("name = \"{word}\"");
    let cuts = CUTS.iter().map(|(word, _)| cut(word));
    let leptons =
        ["electron", "muon"].map(|word| format!("{}\nlepton = \"{word}\"", cut("lepton_track")));
    let of_menu = ["all", "dimuon", "four_lepton", "muons", "electrons"];
    let filters = ["accept_all", "mass_window", "menu", "user", "python"];
    for (text, wrong, words) in [
        (
            &trigger,
            cut("none"),
            cuts.chain(leptons).collect::<Vec<_>>(),
        ),
        (&menu, cut("none"), of_menu.map(cut).to_vec()),
        (&filter, name("none"), filters.map(name).to_vec()),
    ] {
        let passed_over = known_keys(text, &wrong);
        let of_words: Vec<_> = words.iter().map(|words| known_keys(text, words)).collect();
        let all: BTreeSet<String> = of_words.into_iter().flatten().collect();
        assert_eq!(passed_over, all, "{wrong}");
    }
}

#[test]
fn texts_that_the_system_cannot_have_as_names_are_problems() {
    let recorded = "[[source]]\nkind = \"recorded\"\nevents = \"a\\u0000.csv\"";
    let worker = "[[workers.worker]]\nname = \"a\\u0000b\"\nroles = [\"src0\", \"trg0\", \"ru0\", \"evm\", \
                  \"bu0\", \"bu1\", \"fu0\", \"wr0\"]\n";
    for (text, code, key) in [
        (
            format!("{LEAST}[run]\ndirectory = \"r\\u0000x\"\n"),
            "C0108",
            "run.directory",
        ),
        (
            format!("{LEAST}[builder]\ntransport = \"tcp\"\ncongestion = \"cu\\u0000bic\"\n"),
            "C0108",
            "builder.congestion",
        ),
        (
            LEAST.replace("[[source]]", recorded),
            "C0108",
            "source[0].events",
        ),
        (
            format!("{LEAST}kind = \"file\"\nframes = \"a\\nb\"\n"),
            "C0108",
            "link[1].frames",
        ),
        (
            format!("{LEAST}{worker}"),
            "R0105",
            "workers.worker[0].name",
        ),
    ] {
        assert_eq!(problems(&text), each([(code, key)]), "{text}");
    }
    let good = worker.replace("\\u0000", "-");
    assert_eq!(problems(&format!("{LEAST}{good}")), []);
}

/// A unit has one name, by which its host, its counters and its files go.
#[test]
fn readout_units_go_by_their_one_name() {
    for name in ["ru00", "ru+0", "ru", "ru65536"] {
        let text = LEAST.replace("\"ru0\"", &format!("\"{name}\""));
        assert_eq!(problems(&text), each([("C0104", "link[1].to")]), "{name}");
    }
    let steps = format!("{LEAST}[builder]\nfirst_step = [\"ru00\"]\n");
    assert_eq!(problems(&steps), each([("C0005", "builder.first_step")]));
}

#[test]
fn a_source_whose_triggers_all_come_too_late_is_a_problem() {
    let late = |time: &str| {
        let source = format!("[[source]]\nlateness_max = \"{time}\"");
        problems(&LEAST.replace("[[source]]", &source))
    };
    assert_eq!(late("0 ns"), each([("C0006", "source[0].lateness_max")]));
    assert_eq!(late("1 ns"), []);
}

#[test]
fn sizes_that_are_refused_are_said_as_they_were_written() {
    let found = |key: &str, size: &str| {
        let text = format!("{LEAST}kind = \"udp\"\n{key} = \"{size}\"\n");
        let mut problems = read_plain(&text).problems;
        problems.retain(|problem| problem.path == format!("link[1].{key}"));
        problems.pop().map(|problem| problem.found)
    };
    assert_eq!(found("datagram", "65481 B").as_deref(), Some("65481 B"));
    assert_eq!(found("fragment_max", "16385 B").as_deref(), Some("16385 B"));
}

#[test]
fn limits_are_said_in_the_units_of_their_key() {
    let allowed = |key: &str, size: &str| {
        let text = format!("{LEAST}kind = \"udp\"\n{key} = \"{size}\"\n");
        let mut problems = read_plain(&text).problems;
        problems.retain(|problem| problem.path == format!("link[1].{key}"));
        problems
            .pop()
            .map(|problem| (problem.found, problem.allowed))
    };
    let pair = |found: &str, allowed: &str| Some((found.to_owned(), allowed.to_owned()));
    assert_eq!(
        allowed("datagram", "65484 B"),
        pair("65484 B", "4 B to 65480 B")
    );
    assert_eq!(
        allowed("datagram", "3 B"),
        pair("3 B", "a multiple of 4 B from 4 B to 65480 B")
    );
    assert_eq!(
        allowed("socket_buffer", "1 B"),
        pair("1 B", "4 KiB to 1 GiB")
    );
    let spot = format!("{LEAST}[trigger]\nbeam_spot = [\"0.5 um\", \"0 um\"]\n");
    let problem = read_plain(&spot).problems.pop().expect("half a um");
    assert!(problem.allowed.contains("in whole um"), "{problem:?}");
}

#[test]
fn a_directory_without_a_name_is_none() {
    let empty = format!("{LEAST}[run]\ndirectory = \"\"\n");
    assert_eq!(problems(&empty), each([("C0109", "run.directory")]));
}

/// With one the event manager finds at each look, neither it nor the end of a run comes to rest.
#[test]
fn a_heartbeat_is_not_shorter_than_a_look_at_the_messages() {
    let with =
        |heartbeat: &str| problems(&format!("{LEAST}[builder]\nheartbeat = \"{heartbeat}\"\n"));
    for wrong in ["1 ns", "20 us", "999 us", "1 h", "584 years"] {
        let found = with(wrong);
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
        assert_eq!(found[0].1, "builder.heartbeat", "{wrong}");
    }
    for right in ["0 ns", "1 ms", "150 ms"] {
        assert_eq!(with(right), [], "{right}");
    }
}

/// What cannot be read is not taken for shared memory.
#[test]
fn processes_are_not_counted_where_it_is_not_known_what_they_share() {
    let with = |keys: &str| {
        problems(&format!(
            "{LEAST}[filter]\nunits = 27\n{keys}\n[workers]\nprocesses = true\n"
        ))
    };
    assert_eq!(with(""), each([("R0107", "filter.units")]));
    assert_eq!(with("transport = \"tcp\""), []);
    assert_eq!(
        with("transport = \"tpc\""),
        each([("C0005", "filter.transport")])
    );
}

/// Given the largest number that can be written at each key in turn, then there are problems or a
/// configuration, and no sum over it goes round.
#[test]
fn the_largest_number_at_any_key_can_be_judged() {
    let lines: Vec<&str> = EVERY_KEY.lines().collect();
    let udp = EVERY_KEY.replacen("congestion = \"reno\"\n", "receive_buffer = \"3 MiB\"\n", 1);
    let udp = udp.replacen("transport = \"tcp\"", "transport = \"udp\"", 1);
    for (index, key) in key_lines(EVERY_KEY) {
        for value in [
            "18446744073709551615",
            "9223372036854775807",
            "4294967295",
            "1e308",
            "\"8380000000 GiB\"",
            "\"18446744073709551615 ns\"",
            "\"9223372036854775807 ns\"",
            "\"1e15 MHz\"",
            "\"9223372036854775807 MeV\"",
        ] {
            let line = format!("{key} = {value}");
            for whole in [EVERY_KEY, &udp] {
                let _problems = problems(&whole.replacen(lines[index], &line, 1));
            }
        }
    }
}

/// Given fragments and events of more bytes together than there are numbers for, then they are too
/// large for the links, the run file and the receive buffer.
#[test]
fn sizes_that_no_number_can_hold_together_are_too_large() {
    let paths = |text: &str| -> BTreeSet<String> {
        let problems = problems(text).into_iter();
        problems.map(|(_, path)| path).collect()
    };
    let huge = "[source.fragment]\nbytes_max = \"8000000000 GiB\"\n";
    let links = "[[link]]\nto = \"ru0\"\nsource_id = 1\ncount = 2\n";
    let udp = "[builder]\ntransport = \"udp\"\nreceive_buffer = \"1 MiB\"\n";
    let found = paths(&format!("{LEAST}{links}{huge}{udp}[trigger]\nnodes = 2\n"));
    for path in [
        "source[0].fragment.bytes_max",
        "link[1].fragment_max",
        "store.event_max",
        "builder.receive_buffer",
        "trigger.nodes",
    ] {
        assert!(found.contains(path), "{path}: {found:?}");
    }
    // The sum over the links of a unit.
    let links = "page = \"64 B\"\ncount = 250\n";
    let huge = huge.replace("8000000000", "8380000000");
    let found = paths(&format!("{LEAST}{links}{huge}{udp}"));
    for path in ["store.event_max", "builder.receive_buffer", "link[1].page"] {
        assert!(found.contains(path), "{path}: {found:?}");
    }
    let store = "event_max = \"8000000000 GiB\"\noutput_per_second = \"1 GiB\"\nwriters = 3\n";
    let builders = "[builder]\nbuilder_units = 3\n[filter]\nunits = 3\n";
    let found = paths(&format!("{LEAST}{builders}[store]\n{store}"));
    for path in ["store.event_max", "store.output_per_second"] {
        assert!(found.contains(path), "{path}: {found:?}");
    }
}

/// Given two mistakes of which one might follow from the other, but does not, then both are said.
#[test]
fn a_mistake_hides_no_other() {
    let gap = "[[link]]\nto = \"ru2\"\nsource_id = 0x600000\ncount = 4000\n";
    let found = problems(&format!("{LEAST}{gap}"));
    assert!(found.contains(&("C0106", "link".to_owned())), "{found:?}");
    let of_many = ("B0110", "link[2].count".to_owned());
    assert!(found.contains(&of_many), "{found:?}");
    let builder = |keys: &str| problems(&format!("{LEAST}[builder]\n{keys}"));
    let code = |key: &str| {
        let one = builder(&format!("{key}\n"));
        one[0].0
    };
    for (governor, governed) in [
        ("timeout = \"0 s\"", "retry = \"0 s\""),
        ("timeout = 1", "retry = \"2 h\""),
        ("trigger_window = 1", "history = 100"),
        ("credits = 0", "trigger_window = 2"),
    ] {
        let codes = [code(governor), code(governed)];
        let found = builder(&format!("{governor}\n{governed}\n"));
        assert_eq!(
            found.iter().map(|p| p.0).collect::<Vec<_>>(),
            codes,
            "{found:?}"
        );
    }
}

/// Given a size that cannot be read, then nothing is compared with what stands in its place.
#[test]
fn nothing_is_compared_with_a_size_that_cannot_be_read() {
    let with = |size: &str| {
        let source = format!("[[source]]\nfragment = {{ bytes_max = \"{size}\" }}\n");
        problems(
            &LEAST
                .replace("[[source]]\n", &source)
                .replace("0x510000", "0x510000\nfragment_max = \"32 KiB\""),
        )
    };
    assert_eq!(with("64 KiB"), each([("L0203", "link[1].fragment_max")]));
    assert_eq!(
        with("-1 KiB"),
        each([("C0004", "source[0].fragment.bytes_max")])
    );
}
