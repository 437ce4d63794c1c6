//! Which roles may be on which hosts, and what is said about those that may not.

use super::*;

/// The least configuration with its roles on two hosts.
const TWO_HOSTS: &str = r#"
[builder]
transport = "tcp"
[[host]]
name = "readout"
address = "127.0.0.1"
roles = ["src0", "trg0", "ru0", "evm"]
[[host]]
name = "building"
address = "127.0.0.1"
roles = ["bu0", "bu1", "fu0", "wr0"]
"#;

#[test]
fn roles_are_placed_on_hosts_and_misplaced_ones_are_named() {
    let text = format!("{LEAST}{TWO_HOSTS}");
    let config = good(&text);
    assert_eq!(config.hosts.placement()["evm"], "readout");
    let cases = [
        (
            "name = \"building\"",
            "name = \"readout\"",
            "C0130",
            "host[1].name",
        ),
        (
            "name = \"building\"",
            "name = \"two words\"",
            "C0130",
            "host[1].name",
        ),
        (
            "name = \"building\"",
            "name = \"-building\"",
            "C0130",
            "host[1].name",
        ),
        ("\"fu0\", ", "\"fu0\", \"fu7\", ", "C0131", "host[1].roles"),
        ("\"fu0\", ", "\"fu0\", \"evm\", ", "C0132", "host[1].roles"),
        ("\"fu0\", ", "", "C0133", "host"),
        (
            "transport = \"tcp\"",
            "transport = \"shm\"",
            "C0134",
            "host[1].roles",
        ),
        (
            "address = \"127.0.0.1\"",
            "address = \"10.0.0.7\"",
            "C0136",
            "host",
        ),
        (
            "address = \"127.0.0.1\"",
            "address = \"here\"",
            "C0004",
            "host[0].address",
        ),
        ("address = \"127.0.0.1\"\n", "", "C0007", "host[0].address"),
        (
            "name = \"readout\"",
            "name = \"readout\"\ncommand = \"x\"",
            "C0137",
            "host[0].command",
        ),
        (
            "name = \"readout\"",
            "name = \"readout\"\nlauncher = \"exec\"",
            "C0135",
            "host[0].command",
        ),
    ];
    for (written, instead, code, path) in cases {
        let edited = text.replacen(written, instead, 1);
        assert_ne!(edited, text, "{written}");
        let problems = read_plain(&edited).problems;
        let found: Vec<_> = problems
            .iter()
            .map(|p| (p.code.code, p.path.as_str()))
            .collect();
        assert_eq!(found, [(code, path)], "{instead}: {problems:#?}");
    }
    // All at once: a role on two hosts, one that is not there, and one on none.
    let edited = text.replace("\"fu0\", ", "\"fu7\", \"evm\", ");
    let codes: Vec<_> = read_plain(&edited)
        .problems
        .iter()
        .map(|p| p.code.code)
        .collect();
    assert_eq!(codes.len(), 3, "{codes:?}");
}

#[test]
fn a_wrong_number_of_units_makes_no_role_look_wrong() {
    let units = "[builder]\nbuilder_units = 0";
    let text = format!("{LEAST}{TWO_HOSTS}").replace("[builder]", units);
    let problems = read_plain(&text).problems;
    let paths: Vec<_> = problems.iter().map(|p| p.path.as_str()).collect();
    assert_eq!(paths, ["builder.builder_units"]);
}

/// Given names and roles that cannot be read, then these are named, and nothing that would follow from them.
#[test]
fn hosts_that_cannot_be_read_make_no_others_look_wrong() {
    let text = format!("{LEAST}{TWO_HOSTS}");
    let names = text.replace("name = \"readout\"", "name = 1");
    let names = names.replace("name = \"building\"\n", "");
    let roles = text.replace("roles = [\"bu0\"", "roles = [0, \"bu0\"");
    for (edited, expected) in [
        (
            names,
            &[("C0003", "host[0].name"), ("C0007", "host[1].name")][..],
        ),
        (roles, &[("C0003", "host[1].roles")]),
    ] {
        let problems = read_plain(&edited).problems;
        let found = problems.iter().map(|p| (p.code.code, p.path.as_str()));
        let found: Vec<_> = found.collect();
        assert_eq!(found, expected, "{problems:#?}");
    }
}

#[test]
fn building_groups_and_the_event_manager_are_on_hosts_of_their_own_and_whole() {
    let example = include_str!("../../../../../../examples/building_hosts.toml");
    let chain = good(example).chain;
    assert!(chain.event_manager_apart);
    assert_eq!((chain.builder.subfarms, chain.builder.writers), (2, 2));
    let moved = example.replace("\"fu0\", ", "\"fu0\", \"fu1\", ");
    let moved = moved.replace("\"bu1\", \"fu1\", ", "\"bu1\", ");
    let problems = read_plain(&moved).problems;
    let codes: Vec<_> = problems.iter().map(|p| p.code.code).collect();
    assert_eq!(codes, ["C0134"], "{problems:#?}");
    let three = example.replace("writers = 2", "writers = 3");
    let found = read_plain(&three).problems;
    let found = found.iter().map(|p| (p.code.code, p.path.as_str()));
    assert!(
        found
            .collect::<Vec<_>>()
            .contains(&("B0117", "store.writers"))
    );
}

#[test]
fn readout_units_behind_sockets_are_on_any_host() {
    let example = include_str!("../../../../../../examples/readout_hosts.toml");
    let chain = good(example).chain;
    assert_eq!(chain.readout_apart, [0, 1]);
    assert!(chain.event_manager_apart);
    // In common memory with the event builder, and still apart from the front-ends.
    let shared = example.replace("transport = \"tcp\" # what lets readout and", "# what lets");
    let problems = read_plain(&shared).problems;
    let [problem] = problems.as_slice() else {
        panic!("{problems:#?}");
    };
    assert_eq!(problem.allowed, "on one host: ru0 ru1 evm bu0 bu1 fu0 wr0");
    let emulated = example.replace("kind = \"udp\"\n", "");
    let problems = read_plain(&emulated).problems;
    let [problem] = problems.as_slice() else {
        panic!("{problems:#?}");
    };
    assert_eq!(problem.code.code, "C0134");
    assert_eq!(problem.allowed, "on one host: src0 trg0 ru1");
    assert!(
        problem.help.contains("`kind = \"tcp\"`"),
        "{}",
        problem.help
    );
}

#[test]
fn filter_units_behind_streams_are_on_any_host() {
    let example = include_str!("../../../../../../examples/filter_hosts.toml");
    assert_eq!(good(example).chain.builder.filter_units, 3);
    let shared = example.replace(
        "transport = \"tcp\" # what lets filter",
        "# what lets filter",
    );
    let problems = read_plain(&shared).problems;
    let [problem] = problems.as_slice() else {
        panic!("{problems:#?}");
    };
    assert_eq!(problem.code.code, "C0134");
    assert_eq!(problem.allowed, "on one host: bu0 bu1 fu0 fu1 fu2 wr0");
    assert!(problem.help.contains("`[filter]`"), "{}", problem.help);
}

#[test]
fn roles_that_share_memory_are_named_with_their_hosts() {
    let moved = format!("{LEAST}{TWO_HOSTS}").replace("\"ru0\", ", "");
    let moved = moved.replace("[\"bu0\"", "[\"ru0\", \"bu0\"");
    let problems = read_plain(&moved).problems;
    let [problem] = problems.as_slice() else {
        panic!("{problems:#?}");
    };
    assert_eq!(
        (problem.code.code, problem.path.as_str()),
        ("C0134", "host[1].roles")
    );
    assert_eq!(problem.found, "ru0 on building, src0 trg0 evm on readout");
    assert_eq!(problem.allowed, "on one host: src0 trg0 ru0 evm");
    assert!(
        problem.help.contains("`kind = \"tcp\"`"),
        "{}",
        problem.help
    );
}

/// Hosts are told the addresses as they are written.
#[test]
fn addresses_that_mean_another_machine_there_are_refused() {
    let elsewhere = TWO_HOSTS.replacen("127.0.0.1", "10.0.0.7", 1);
    let with = |hosts: &str, control: &str| {
        let control = format!("[control]\naddress = \"{control}\"\n");
        problems(&format!("{LEAST}{hosts}{control}"))
    };
    for unspecified in ["0.0.0.0:7461", "[::]:7461", "127.0.0.1:7461", "10.0.0.1:0"] {
        let found = with(&elsewhere, unspecified);
        assert_eq!(found, each([("C0136", "control.address")]), "{unspecified}");
    }
    assert_eq!(with(&elsewhere, "10.0.0.1:7461"), []);
    // On this machine alone they mean this machine.
    for unspecified in ["0.0.0.0:7461", "127.0.0.1:7461"] {
        assert_eq!(with(TWO_HOSTS, unspecified), [], "{unspecified}");
    }
    for unspecified in ["0.0.0.0", "::"] {
        let hosts = TWO_HOSTS.replacen("127.0.0.1", unspecified, 1);
        let found = problems(&format!("{LEAST}{hosts}"));
        let expected = each([("C0138", "host[0].address")]);
        assert_eq!(found, expected, "{unspecified}");
    }
}

/// Given several mistakes in the tables of hosts, then that roles share memory is said beside them.
#[test]
fn roles_apart_are_said_beside_other_mistakes_of_hosts() {
    let shared = format!("{LEAST}{TWO_HOSTS}").replace("transport = \"tcp\"", "");
    let apart = ("C0134", "host[1].roles");
    assert_eq!(problems(&shared), each([apart]));
    let with = |from: &str, to: &str| problems(&shared.replace(from, to));
    let unknown = with("\"fu0\", ", "\"fu0\", \"fu7\", ");
    assert_eq!(unknown, each([("C0131", "host[1].roles"), apart]));
    let missing = with("\"fu0\", ", "");
    assert_eq!(
        missing,
        each([apart, ("C0133", "host")])
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
    );
    let unnamed = with("name = \"building\"", "name = \"readout\"");
    let first = ("C0134", "host[0].roles");
    assert_eq!(unnamed, each([first, ("C0130", "host[1].name")]));
    // A role on two hosts is said once.
    let twice = format!("{LEAST}{TWO_HOSTS}").replace("\"fu0\", ", "\"fu0\", \"evm\", ");
    assert_eq!(problems(&twice), each([("C0132", "host[1].roles")]));
}

#[test]
fn a_command_has_no_placeholder_that_stands_for_nothing() {
    let with = |command: &str| {
        let launcher = format!("launcher = \"exec\"\ncommand = '{command}'\nname = \"building\"");
        let text = format!("{LEAST}{TWO_HOSTS}").replace("name = \"building\"", &launcher);
        let problems = read_plain(&text).problems.into_iter();
        let problems = problems.map(|problem| (problem.code.code, problem.path, problem.found));
        problems.collect::<Vec<_>>()
    };
    for command in [
        "ssh {addres} {command}",
        "{command} --at={Host}",
        "x {command} {}{name}",
    ] {
        let problems = with(command);
        let [(code, path, found)] = problems.as_slice() else {
            panic!("{problems:?}");
        };
        assert_eq!((*code, path.as_str()), ("C0135", "host[1].command"));
        assert!(found.contains(", with {"), "{found}");
    }
    for command in [
        "ssh {address} {command}",
        "on {host} {command} ${HOME}",
        "{ {command}; }",
        "x {command} | awk \"{ print }\" - {a,b} {1..3} {",
    ] {
        assert_eq!(with(command), [], "{command}");
    }
}
