//! Runs over several hosts: the same decisions and events as on one, what becomes of a run when
//! roles and hosts die, and hosts that are refused.
//!
//! The hosts are processes of this machine here, with their own memory, files and streams; hosts in
//! network namespaces are in `namespaces.rs`.

#[path = "../contents/mod.rs"]
mod contents;
mod folder_of_host;
mod joined_units;
#[path = "../processes/live_run.rs"]
mod live_run;
mod lost_hosts;
mod namespaces;
#[path = "../processes/process_run.rs"]
mod process_run;
mod start_of_hosts;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use livetime_client::RunFolder;
use livetime_control::HostHello;
use livetime_control::session::HostSession;
use livetime_node::process::HOST_PROTOCOL;
use rustix::process::{Pid, Signal, kill_process};

use crate::live_run::{cut_streams_of, order, process_of, start, wait_for_more};
use crate::process_run::{Run, patient, text, turn};

/// The example on one host, over TCP all the same.
fn on_one_host(config: String) -> String {
    patient(config).replace("[builder]\n", "[builder]\ntransport = \"tcp\"\n")
}

/// The example with readout and building on two hosts, the second with this launcher.
fn on_two_hosts(launcher: &str) -> impl Fn(String) -> String {
    let readout = host("readout", r#""src0", "trg0", "ru0", "ru1", "evm""#, "");
    let building = host("building", r#""bu0", "bu1", "fu0", "wr0""#, launcher);
    move |config: String| on_one_host(config) + &readout + &building
}

/// The table of a host of this machine with these roles, started by this launcher.
fn host(name: &str, roles: &str, launcher: &str) -> String {
    format!(
        "\n[[host]]\nname = \"{name}\"\naddress = \"127.0.0.1\"\nroles = [{roles}]\n{launcher}\n"
    )
}

/// The example with the event manager on a host of its own, and building on two, each with its
/// filter unit and its writer.
fn building_on_two(config: String) -> String {
    let hosts = [
        host("readout", r#""src0", "trg0", "ru0", "ru1""#, LOCAL),
        host("manager", r#""evm""#, LOCAL),
        host("first", r#""bu0", "fu0", "wr0""#, LOCAL),
        host("second", r#""bu1", "fu1", "wr1""#, LOCAL),
    ];
    in_two_groups(on_one_host(config)) + &hosts.concat()
}

/// A configuration with two filter units, each with its builder unit and its writer.
fn in_two_groups(config: String) -> String {
    let config = config.replace("units = 1", "units = 2\nsubfarms = 2");
    config.replace("[store]\n", "[store]\nwriters = 2\n")
}

/// The example with three filter units on two hosts of their own, and the writer where events are
/// built.
fn filtering_on_two(config: String) -> String {
    let hosts = [
        host("readout", r#""src0", "trg0", "ru0", "ru1", "evm""#, LOCAL),
        host("building", r#""bu0", "bu1", "wr0""#, LOCAL),
        host("first", r#""fu0", "fu1""#, LOCAL),
        host("second", r#""fu2""#, LOCAL),
    ];
    with_filters_apart(on_one_host(config)) + &hosts.concat()
}

/// A configuration with three filter units that need not be where events are built.
fn with_filters_apart(config: String) -> String {
    config.replace("units = 1", "units = 3\ntransport = \"tcp\"")
}

/// The example with the front-ends on a host of their own, and a readout unit on each of two others,
/// behind links of this kind.
fn readout_on_two(kind: &str) -> impl Fn(String) -> String + use<> {
    let hosts = [
        host("front-end", r#""src0", "trg0""#, LOCAL),
        host("first", r#""ru0", "evm""#, LOCAL),
        host("second", r#""ru1""#, LOCAL),
        host("building", r#""bu0", "bu1", "fu0", "wr0""#, LOCAL),
    ];
    let links = over_links(kind);
    move |config| links(on_one_host(config)) + &hosts.concat()
}

/// The example with the front-ends and the trigger on one host, and all else in common memory on
/// another, behind links of this kind.
fn all_but_front_end(kind: &str) -> impl Fn(String) -> String + use<> {
    let rest = r#""ru0", "ru1", "evm", "bu0", "bu1", "fu0", "wr0""#;
    let hosts = [
        host("front-end", r#""src0", "trg0""#, LOCAL),
        host("rest", rest, LOCAL),
    ];
    let links = over_links(kind);
    move |config| links(patient(config)) + &hosts.concat()
}

/// A configuration with its data links over sockets.
fn over_links(kind: &str) -> impl Fn(String) -> String + use<> {
    let keys = format!("count = 4\nkind = \"{kind}\"\n");
    move |config| {
        let changed = config.replace("count = 4\n", &keys);
        assert_ne!(changed, config, "the example has data links");
        changed
    }
}

const LOCAL: &str = "launcher = \"local\"";

/// A configuration with datagrams where the builder has streams. Whoever waits asks again soon.
fn over_udp(config: String) -> String {
    let keys = "[builder]\ntransport = \"udp\"\nretry = \"10 ms\"\nprobe = \"50 ms\"\n";
    let changed = config.replace("[builder]\ntransport = \"tcp\"\n", keys);
    assert_ne!(changed, config, "a builder over streams");
    changed
}

/// A run of the example on several hosts that decides and stores what one host does.
fn like_one_host(on_hosts: impl Fn(String) -> String) -> Run {
    let one = Run::of(on_one_host, &["--triggers", "10000"]);
    let run = Run::of(on_hosts, &["--triggers", "10000"]);
    for run in [&one, &run] {
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.causes(), BTreeSet::new());
    }
    assert_eq!(run.digest(), one.digest());
    assert_eq!(run.summary["counts"], one.summary["counts"]);
    assert_eq!(run.differing(&one), BTreeSet::new());
    assert!(!one.stored().is_empty());
    run
}

/// Kills each of these roles in a run of its own, which goes on and loses at most the writer's chunk.
fn survives_the_death_of(roles: &[&str], on_hosts: impl Fn(String) -> String) {
    for role in roles {
        let fault = format!("kill:{role}@3000triggers");
        let run = Run::of(&on_hosts, &["--triggers", "10000", "--fault", &fault]);
        assert!(run.output.status.success(), "{role}: {}", run.errors());
        assert!(run.errors().contains(role), "{role}: {}", run.errors());
        run.assert_accounted();
        let causes = run.causes();
        let may_lose = BTreeSet::from(["writer_lost".to_owned()]);
        assert!(
            causes.is_empty() || (role.starts_with("wr") && causes == may_lose),
            "{role}: {causes:?}"
        );
        let stored = run.stored().len() as u64;
        assert_eq!(stored, run.count("events_stored"), "{role}");
    }
}

#[test]
fn two_hosts_take_the_decisions_of_one_and_store_the_same_events() {
    let _turn = turn();
    like_one_host(on_two_hosts(LOCAL));
}

/// The event manager is on a host of its own, so that accepts cross hosts, too.
#[test]
fn hosts_over_udp_store_what_one_host_stores() {
    let _turn = turn();
    let on_hosts: [&dyn Fn(String) -> String; 2] = [&on_two_hosts(LOCAL), &building_on_two];
    for on_hosts in on_hosts {
        let run = like_one_host(|config| over_udp(on_hosts(config)));
        let transport = &run.summary["builder_transport"];
        assert_eq!(transport["kind"], "udp", "{transport}");
        assert!(
            transport["datagrams"]["sent"].as_u64() > Some(1000),
            "{transport}"
        );
    }
    survives_the_death_of(&["bu0"], |config| over_udp(on_two_hosts(LOCAL)(config)));
}

/// Traffic shaping on two hosts that build: by back-pressure over TCP, and by the run's clock, which
/// is common to all hosts, over UDP.
#[test]
fn hosts_with_shaped_traffic_store_what_one_host_stores() {
    let _turn = turn();
    let shaped = |config: String, lines: &str| {
        let lines = format!("[builder]\nshaping = \"barrel-shifter\"\nblock = \"4 KiB\"\n{lines}");
        config.replace("[builder]\n", &lines)
    };
    let clock = "pace = \"clock\"\nstep = \"100 us\"\n";
    let by_links = like_one_host(|config| shaped(building_on_two(config), ""));
    let by_clock = like_one_host(|config| shaped(over_udp(building_on_two(config)), clock));
    for run in [by_links, by_clock] {
        let shaping = &run.summary["builder_transport"]["shaping"];
        assert!(shaping["blocks"].as_u64() > Some(100), "{shaping}");
    }
    survives_the_death_of(&["bu1"], |config| shaped(building_on_two(config), clock));
}

/// The linear shift on two hosts that build: the barrier's messages cross them, too.
#[test]
fn hosts_that_send_in_phases_store_what_one_host_stores() {
    let _turn = turn();
    let shaped = |config: String| {
        let lines = "[builder]\nshaping = \"linear-shift\"\nblock = \"4 KiB\"\n";
        config.replace("[builder]\n", lines)
    };
    let over_streams = like_one_host(|config| shaped(building_on_two(config)));
    let in_datagrams = like_one_host(|config| shaped(over_udp(building_on_two(config))));
    for run in [over_streams, in_datagrams] {
        let shaping = &run.summary["builder_transport"]["shaping"];
        assert_eq!(shaping["kind"], "linear-shift");
        assert!(
            shaping["barrier"]["phases"].as_u64() > Some(100),
            "{shaping}"
        );
    }
    survives_the_death_of(&["bu1"], |config| shaped(building_on_two(config)));
}

#[test]
fn roles_of_hosts_may_die_and_are_replaced_there() {
    let _turn = turn();
    survives_the_death_of(&["bu0", "fu0", "evm", "wr0"], on_two_hosts(LOCAL));
}

/// On a host of its own, where accepts come over a stream; and where all but the front-ends share
/// memory with it.
#[test]
fn an_event_manager_apart_from_the_supervisor_may_die() {
    let _turn = turn();
    survives_the_death_of(&["evm"], building_on_two);
    survives_the_death_of(&["evm"], |config| over_udp(building_on_two(config)));
    survives_the_death_of(&["evm"], all_but_front_end("tcp"));
}

/// The supervisor says each accept once: an event manager whose stream from it was cut is ended, and
/// the next one is told what is open.
#[test]
fn an_event_manager_that_is_cut_off_is_replaced() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = std::fs::read_to_string(process_run::example()).expect("the example is there");
    let running = start(&building_on_two(config), folder.path());
    let id = running.id();
    let mut lines = process_run::Lines::of(running);
    let file = folder.path().join("run/events.mcap");
    wait_for_more(&file);
    wait_for_more(&file);
    let streams = cut_streams_of(process_of(folder.path(), "evm"));
    assert_eq!(streams, 3, "to bu0, bu1 and the supervisor");
    lines.wait_for(
        "its stream to the supervisor was cut); another took its place",
        1,
    );
    wait_for_more(&file);
    wait_for_more(&file);
    let pid = Pid::from_raw(id as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("it lives");
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(run.count("events_incomplete"), 0);
}

/// As it does when it is stopped at its terminal: all that hosts have said by then lies unread.
#[test]
fn a_coordinator_may_stand_still_for_longer_than_hosts_may_be_silent() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = std::fs::read_to_string(process_run::example()).expect("the example is there");
    // Silences that hosts on a busy machine do not come to.
    let control = "\n[control]\nsuspect = \"2 s\"\ndead = \"3 s\"\n";
    let running = start(&(on_two_hosts(LOCAL)(config) + control), folder.path());
    let coordinator = Pid::from_raw(running.id() as i32).expect("a process");
    let signal = |signal| kill_process(coordinator, signal).expect("it lives");
    let mut lines = process_run::Lines::of(running);
    let file = folder.path().join("run/events.mcap");
    wait_for_more(&file);
    wait_for_more(&file);
    signal(Signal::STOP);
    // Twice what a host may be silent.
    std::thread::sleep(Duration::from_secs(6));
    signal(Signal::CONT);
    // It has taken in what lay unread when an order is answered.
    order(folder.path(), &["status"]).expect("it goes on");
    wait_for_more(&file);
    signal(Signal::INT);
    lines.wait_for("the run ends in order", 1);
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    assert!(!run.errors().contains("is gone"), "{}", run.errors());
    assert!(!run.errors().contains("heard"), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
}

#[test]
fn two_hosts_that_build_store_together_what_one_stores() {
    let _turn = turn();
    let run = like_one_host(building_on_two);
    let writers = run.summary["writers"].as_array().expect("a list");
    let hosts: Vec<_> = writers.iter().map(|writer| &writer["host"]).collect();
    assert_eq!(hosts, ["first", "second"]);
    for writer in writers {
        assert!(writer["events_stored"].as_u64() > Some(0), "{writer}");
    }
}

#[test]
fn hosts_that_build_replace_the_dead_of_their_own() {
    let _turn = turn();
    survives_the_death_of(&["bu1", "fu1", "wr1"], building_on_two);
}

/// What is asserted of a run that went on without its second host: `whole` is one on one host that
/// nothing happened to, and in both everything is stored.
fn assert_goes_on_without_second(run: &Run, whole: &Run) {
    assert!(run.output.status.success(), "{}", run.errors());
    assert!(
        run.errors().contains("the others go on"),
        "{}",
        run.errors()
    );
    run.assert_accounted();
    assert_eq!(run.digest(), whole.digest());
    run.assert_only_writer_lost();
    let (stored, all) = (run.stored(), whole.stored());
    assert!(stored.is_subset(&all), "nothing is made up");
    let missing = (all.len() - stored.len()) as u64;
    assert_eq!(missing, run.lost_in("store"), "{}", run.errors());
    let writers = run.summary["writers"].as_array().expect("a list");
    let lost = writers.iter().map(|writer| writer["lost"] == true);
    assert!(lost.eq([false, true]), "{writers:?}");
    let last = |stored: &BTreeSet<u64>| stored.last().copied();
    assert_eq!(last(&stored), last(&all), "it went on to the end");
}

#[test]
fn without_a_building_host_the_run_goes_on_with_the_others() {
    let _turn = turn();
    let keep = |config| process_run::keeping_all(building_on_two(config));
    let whole = Run::of(
        |config| process_run::keeping_all(on_one_host(config)),
        &["--triggers", "12000"],
    );
    // The processes die together while their host lives, and no other takes their places.
    let go_on = |config| keep(config).replace("writers = 2", "writers = 2\non_loss = \"continue\"");
    let faults = ["bu1", "fu1", "wr1"].map(|role| format!("kill:{role}@4000triggers"));
    let faults = faults.iter().flat_map(|fault| ["--fault", fault]);
    let arguments: Vec<&str> = ["--triggers", "12000"].into_iter().chain(faults).collect();
    let run = Run::of(go_on, &arguments);
    assert_goes_on_without_second(&run, &whole);
    assert!(run.stored().range(8000..).count() > 0);
}

/// Waits until a whole event is in a run file.
fn await_event(file: &Path) {
    let has_event = || {
        let events = RunFolder::open(file);
        events.is_ok_and(|mut file| file.next_event().is_ok_and(|event| event.is_some()))
    };
    while !has_event() {
        std::thread::yield_now();
    }
}

/// Starts a run in which the agent of the building host `second` writes down its process number.
fn start_with_known_second(folder: &Path, arguments: &[&str]) -> process_run::Lines {
    let launcher =
        "launcher = \"exec\"\ncommand = \"echo $$ > part && mv part pid && exec {command}\"";
    let config = std::fs::read_to_string(process_run::example()).expect("the example is there");
    let config = process_run::keeping_all(building_on_two(config));
    let second = host("second", r#""bu1", "fu1", "wr1""#, LOCAL);
    let config = config.replace(
        second.trim(),
        host("second", r#""bu1", "fu1", "wr1""#, launcher).trim(),
    );
    assert!(config.contains("mv part pid"));
    std::fs::write(folder.join("run.toml"), config).expect("a writable folder");
    let running = Command::new(env!("CARGO_BIN_EXE_livetime"))
        .current_dir(folder)
        .args(["run", "run.toml", "--lossless", "--seed", "11", "--json"])
        .args(["--out", "run"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built program starts");
    process_run::Lines::of(running)
}

/// Kills the agent of `second` and with it its roles.
fn kill_second(folder: &Path) {
    let pid = std::fs::read_to_string(folder.join("pid")).expect("it was started");
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), Signal::KILL).expect("it lives");
}

#[test]
fn a_filter_unit_whose_host_is_gone_cannot_join() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lines = start_with_known_second(folder.path(), &["--duration", "600s"]);
    let await_refusal = |reason: &str| {
        let is_so = |said: Result<String, String>| said.is_err_and(|said| said.contains(reason));
        while !is_so(order(folder.path(), &["filter", "add"])) {
            std::thread::yield_now();
        }
    };
    await_refusal("`[filter] units_max` are there");
    kill_second(folder.path());
    await_refusal("the host or the building group of fu1 is gone");
    assert!(order(folder.path(), &["stop"]).is_ok());
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
}

/// The host's agent is killed as soon as something is in the file of its writer, and all its roles die
/// with it.
#[test]
fn a_building_host_that_is_killed_leaves_the_run_to_the_others() {
    const TRIGGERS: [&str; 2] = ["--triggers", "60000"];
    let _turn = turn();
    let whole = Run::of(
        |config| process_run::keeping_all(on_one_host(config)),
        &TRIGGERS,
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lines = start_with_known_second(folder.path(), &TRIGGERS);
    await_event(&folder.path().join("run/events-1.mcap"));
    kill_second(folder.path());
    let run = Run::finished(lines.finish(), folder);
    let errors = run.errors();
    assert!(errors.contains("host second is gone"), "{errors}");
    assert_goes_on_without_second(&run, &whole);
}

#[test]
fn filter_units_on_hosts_of_their_own_accept_what_those_of_one_host_do() {
    let _turn = turn();
    let run = like_one_host(filtering_on_two);
    for filter in ["fu0", "fu1", "fu2"] {
        let judged = &run.summary["roles"][filter]["network_frames_received"];
        assert!(judged.as_u64() > Some(0), "{filter}: {judged}");
    }
}

#[test]
fn roles_around_filter_units_of_other_hosts_may_die() {
    let _turn = turn();
    survives_the_death_of(&["fu0", "fu2", "bu1", "wr0"], filtering_on_two);
}

#[test]
fn readout_units_apart_from_front_ends_store_what_one_host_stores() {
    let _turn = turn();
    for kind in ["tcp", "udp"] {
        let run = like_one_host(readout_on_two(kind));
        for unit in ["ru0", "ru1"] {
            let frames = &run.summary["roles"][unit]["link_frames"];
            assert!(frames.as_u64() >= Some(40_000), "{kind} {unit}: {frames}");
        }
    }
    like_one_host(all_but_front_end("tcp"));
}

#[test]
fn around_readout_units_of_other_hosts_roles_may_die() {
    let _turn = turn();
    survives_the_death_of(&["bu1", "fu0"], readout_on_two("tcp"));
    let go_on = |kind: &str| {
        let on_hosts = readout_on_two(kind);
        let key = "[builder]\non_readout_loss = \"continue\"\n";
        move |config| on_hosts(config).replace("[builder]\n", key)
    };
    for kind in ["tcp", "udp"] {
        let arguments = ["--triggers", "6000", "--fault", "kill:ru1@2000triggers"];
        let run = Run::of(go_on(kind), &arguments);
        assert!(run.output.status.success(), "{kind}: {}", run.errors());
        run.assert_accounted();
        assert_eq!(run.count("triggers"), 6000, "{kind}");
        assert!(run.count("events_incomplete") > 0, "{kind}");
        assert!(run.causes().contains("link_down"), "{:?}", run.causes());
    }
    for kind in ["tcp", "udp"] {
        let restart = |config| {
            let key = "[builder]\non_readout_loss = \"restart\"\n";
            readout_on_two(kind)(config).replace("[builder]\n", key)
        };
        let arguments = ["--triggers", "20000", "--fault", "kill:ru1@2000triggers"];
        let run = Run::of(restart, &arguments);
        assert!(run.output.status.success(), "{kind}: {}", run.errors());
        assert!(run.errors().contains("another took its place"), "{kind}");
        run.assert_accounted();
        let counters = &run.summary["roles"]["ru1"];
        let boundary = counters["joined_after"].as_u64().expect("it has joined");
        assert!(boundary < 20_000, "{kind}");
        let filed = counters["fragments_filed"].as_u64();
        assert!(filed > Some(0), "{kind}: {counters}");
        let lost: u64 = run.losses().map(|(_, count)| count).sum();
        assert!(lost <= 4 * boundary, "{kind}: {lost} up to {boundary}");
    }
    for role in ["src0", "ru0"] {
        let fault = format!("kill:{role}@2000triggers");
        let arguments = ["--triggers", "100000", "--fault", &fault];
        let run = Run::of(readout_on_two("tcp"), &arguments);
        assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
        assert!(run.errors().contains(role), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.stored().len() as u64, run.count("events_stored"));
    }
}

#[test]
fn without_a_readout_unit_the_run_ends_and_every_loss_is_named() {
    let _turn = turn();
    let arguments = ["--triggers", "100000", "--fault", "kill:ru0@3000triggers"];
    let run = Run::of(on_two_hosts(LOCAL), &arguments);
    assert!(!run.output.status.success());
    assert!(run.errors().contains("ru0"), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.stored().len() as u64, run.count("events_stored"));
}

/// Starts the example with a second host that is started by `launcher`; the errors of the refusal.
fn refusal(folder: &Path, launcher: &str) -> String {
    let config = std::fs::read_to_string(process_run::example()).expect("the example is there");
    let config = on_two_hosts(launcher)(config);
    std::fs::write(folder.join("run.toml"), config).expect("a writable folder");
    let output = Command::new(env!("CARGO_BIN_EXE_livetime"))
        .current_dir(folder)
        .args(["run", "run.toml", "--out", "run"])
        .output()
        .expect("the built program starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(!folder.join("run").exists(), "nothing is begun");
    text(&output.stderr)
}

#[test]
fn a_host_whose_launcher_fails_is_named_before_the_start() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let launcher = "launcher = \"exec\"\ncommand = \"false # {command}\"";
    let errors = refusal(folder.path(), launcher);
    let said = "`host[1]` is not there: its launcher has ended (exit status: 1)";
    for part in ["\nerror[R0201]", said, "building"] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn a_host_of_another_version_is_refused_before_the_start() {
    let hello = HostHello {
        version: "0.0.9".to_owned(),
        protocol: 1,
        ..hello()
    };
    let errors = refusal_of(hello);
    assert!(errors.contains("R0202"), "{errors}");
    assert!(errors.contains("program version 0.0.9"), "{errors}");
}

/// The other host is on the loopback, of another MTU.
#[test]
fn a_host_of_another_mtu_is_refused_before_the_start() {
    let errors = refusal_of(HostHello {
        mtu: 999,
        ..hello()
    });
    assert!(errors.contains("R0203"), "{errors}");
    assert!(errors.contains("with an MTU of 999 B"), "{errors}");
    assert!(errors.contains("that of readout"), "{errors}");
}

/// What the second host of the example says of itself if nothing is wrong with it.
fn hello() -> HostHello {
    HostHello {
        host: "building".to_owned(),
        life: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: HOST_PROTOCOL,
        streams_at: "127.0.0.1:9".to_owned(),
        process: 1,
        mtu: 0,
    }
}

/// Starts the example with a second host that says this of itself; the errors of the refusal.
fn refusal_of(hello: HostHello) -> String {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The launcher writes down how the host would have been started; this test is the host.
    let launcher = "launcher = \"exec\"\n\
                    command = \"echo {command} > part && mv part command && exec sleep 600\"";
    let path = folder.path().to_owned();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let host = std::thread::spawn(move || {
        let command = loop {
            match std::fs::read_to_string(path.join("command")) {
                Ok(command) => break command,
                // The coordinator has ended without a word to any host.
                Err(_) if over.load(Ordering::Acquire) => return,
                Err(_) => std::thread::yield_now(),
            }
        };
        let option = |name: &str| {
            let mut words = command.split_whitespace();
            let found = words.find_map(|word| word.strip_prefix(name));
            found.expect("the option is there").to_owned()
        };
        let (tell, heard) = sync_channel(64);
        let (at, key) = (option("--connect="), option("--key="));
        let session = HostSession::open(&at, &key, &hello, &tell).expect("the coordinator listens");
        // Until the coordinator has gone, which takes its time only when something is wrong.
        while heard
            .recv_timeout(Duration::from_secs(60))
            .is_ok_and(|said| said != livetime_control::session::CoordinatorSaid::Token(false))
        {
        }
        drop(session);
    });
    let errors = refusal(folder.path(), launcher);
    is_over.store(true, Ordering::Release);
    host.join().expect("the host ends with its coordinator");
    errors
}
