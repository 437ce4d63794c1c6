//! Hosts that are ended, lost while a role of theirs is started again or at the end of the run, and
//! hosts that only cannot be heard.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use livetime_client::RunFolder;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::live_run::{find_process, order, process_of, start, start_with, wait_for_more};
use crate::process_run::{self, Lines, Run, keeping_all, turn};
use crate::start_of_hosts::{host_of, launched_by};
use crate::{
    LOCAL, assert_goes_on_without_second, await_event, building_on_two, filtering_on_two, host,
    on_one_host, on_two_hosts, readout_on_two,
};

/// A launcher that has ended when its host is there, as one that starts it on another machine.
const DETACHED: &str = "exec setsid --fork {command} 2> errors";
/// Silence of a host that no busy machine makes.
const CONTROL: &str = "\n[control]\nsuspect = \"1 s\"\ndead = \"3 s\"\n";

fn example() -> String {
    std::fs::read_to_string(process_run::example()).expect("the example is there")
}

fn signal(process: Pid, signal: Signal) {
    kill_process(process, signal).expect("it lives");
}

/// A run without an end in which something is written, and its process.
fn begun(config: &str, folder: &Path) -> (Lines, Pid) {
    let running = start(config, folder);
    let coordinator = Pid::from_raw(running.id() as i32).expect("a process");
    let lines = Lines::of(running);
    await_event(&folder.join("run/events.mcap"));
    (lines, coordinator)
}

/// The deaths of its roles are heard before it is gone itself.
#[test]
fn a_building_host_that_is_ended_leaves_the_run_to_the_others() {
    const TRIGGERS: [&str; 5] = ["--triggers", "60000", "--seed", "11", "--lossless"];
    let _turn = turn();
    let whole = Run::of(|config| keeping_all(on_one_host(config)), &TRIGGERS[..2]);
    for name in [Signal::TERM, Signal::INT] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = keeping_all(building_on_two(example()));
        let lines = Lines::of(start_with(&config, folder.path(), &TRIGGERS));
        await_event(&folder.path().join("run/events-1.mcap"));
        signal(host_of(folder.path(), "second").0, name);
        let run = Run::finished(lines.finish(), folder);
        let errors = run.errors();
        assert!(
            errors.contains("host second leaves: ended by SIG"),
            "{errors}"
        );
        assert_goes_on_without_second(&run, &whole);
    }
}

/// One with filter units, and one with a readout unit that another would take the place of.
#[test]
fn a_host_that_is_ended_is_done_without_where_others_are_there() {
    let _turn = turn();
    let again = "[builder]\non_readout_loss = \"restart\"\n";
    let readout = readout_on_two("tcp")(example()).replace("[builder]\n", again);
    for (config, loses) in [(filtering_on_two(example()), false), (readout, true)] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (mut lines, coordinator) = begun(&config, folder.path());
        signal(host_of(folder.path(), "second").0, Signal::TERM);
        lines.wait_for(
            "ended by SIGTERM, and its roles with it); the others go on",
            1,
        );
        wait_for_more(&folder.path().join("run/events.mcap"));
        signal(coordinator, Signal::INT);
        let run = Run::finished(lines.finish(), folder);
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(!run.causes().is_empty(), loses, "{:?}", run.causes());
    }
}

/// What another should take the place of is lost with its host then.
#[test]
fn a_host_may_be_lost_while_a_role_of_it_is_started_again() {
    let _turn = turn();
    let building = building_on_two(example());
    let filtering = filtering_on_two(example());
    for (config, role) in [
        (&building, "wr1"),
        (&building, "bu1"),
        (&building, "fu1"),
        (&filtering, "fu2"),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (mut lines, coordinator) = begun(config, folder.path());
        let (agent, own) = host_of(folder.path(), "second");
        let first = process_of(folder.path(), role);
        signal(first, Signal::KILL);
        while find_process(folder.path(), role).is_none_or(|found| found == first) {
            std::thread::yield_now();
        }
        signal(agent, Signal::KILL);
        lines.wait_for(&format!("the process of {role} is gone"), 1);
        wait_for_more(&folder.path().join("run/events.mcap"));
        signal(coordinator, Signal::INT);
        let run = Run::finished(lines.finish(), folder);
        let _removed_by_another_host = std::fs::remove_dir_all(own);
        assert!(run.output.status.success(), "{role}: {}", run.errors());
        assert!(
            run.errors().contains("the others go on"),
            "{}",
            run.errors()
        );
        run.assert_accounted();
        run.assert_only_writer_lost();
    }
}

/// The agents stand still, as behind a cut link, and all roles go on: no launcher can end them.
#[test]
fn a_writer_that_may_live_keeps_its_file() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = keeping_all(launched_by(DETACHED, DETACHED)) + CONTROL;
    let (lines, _) = begun(&config, folder.path());
    let agents = ["readout", "building"].map(|name| host_of(folder.path(), name));
    agents
        .iter()
        .for_each(|(agent, _)| signal(*agent, Signal::STOP));
    let run = Run::finished(lines.finish(), folder);
    let errors = run.errors();
    assert_eq!(run.output.status.code(), Some(1), "{errors}");
    let said = "warning: nobody has seen src0, trg0, evm, wr0 end";
    assert!(errors.contains(said), "{errors}");
    let unseen = json!(["src0", "trg0", "evm", "wr0"]);
    assert_eq!(run.summary["not_seen_to_end"], unseen);
    assert_eq!(run.summary["decision_digest"], Value::Null);
    assert!(run.summary.get("decision_digest").is_some());
    let condition = run.summary["run"]["condition"].as_str();
    let mut flags = condition.expect("a condition").split('|');
    assert!(flags.any(|flag| flag == "INCOMPLETE"), "{condition:?}");
    assert_eq!(run.lost_writers(), 1);
    let file = run.folder.path().join("run/events.mcap");
    // The second chunk says that the first is whole.
    wait_for_more(&file);
    wait_for_more(&file);
    for (agent, own) in agents {
        signal(agent, Signal::KILL);
        let _removed_by_another_host = std::fs::remove_dir_all(own);
    }
    while find_process(run.folder.path(), "wr0").is_some() {
        std::thread::yield_now();
    }
    let mut events = RunFolder::open(&file).expect("its chunks are whole");
    assert!(events.end().is_none(), "nobody has closed it");
    let mut count = 0;
    while events.next_event().expect("its chunks are whole").is_some() {
        count += 1;
    }
    assert!(count > run.count("events_stored"), "it went on");
}

#[test]
fn a_host_that_is_heard_again_after_its_loss_ends() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = building_on_two(example());
    let second = |launcher| host("second", r#""bu1", "fu1", "wr1""#, launcher);
    let launcher = format!("launcher = \"exec\"\ncommand = \"{DETACHED}\"");
    let detached = config.replace(&second(LOCAL), &second(&launcher));
    assert_ne!(detached, config);
    let (mut lines, coordinator) = begun(&(detached + CONTROL), folder.path());
    let (agent, own) = host_of(folder.path(), "second");
    signal(agent, Signal::STOP);
    lines.wait_for("the process of bu1 is gone", 1);
    signal(agent, Signal::CONT);
    while own.exists() {
        std::thread::yield_now();
    }
    wait_for_more(&folder.path().join("run/events.mcap"));
    signal(coordinator, Signal::INT);
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    assert_eq!(run.lost_writers(), 1);
}

/// Its launcher starts it again at once, and what it starts knows nothing of the run.
#[test]
fn a_host_that_comes_in_the_place_of_a_dead_one_is_not_that_host() {
    let _turn = turn();
    for lost in [true, false] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let again = r#"launcher = "exec"
command = "until {command}; do :; done""#;
        let (mut lines, coordinator) = match lost {
            // A run that cannot go on without it.
            true => begun(&on_two_hosts(again)(example()), folder.path()),
            false => {
                let config = building_on_two(example());
                let second = |launcher| host("second", r#""bu1", "fu1", "wr1""#, launcher);
                let changed = config.replace(&second(LOCAL), &second(again));
                assert_ne!(changed, config);
                begun(&changed, folder.path())
            }
        };
        let name = if lost { "building" } else { "second" };
        signal(host_of(folder.path(), name).0, Signal::KILL);
        lines.wait_for(&format!("host {name} is gone"), 1);
        if !lost {
            lines.wait_for("the process of bu1 is gone", 1);
            wait_for_more(&folder.path().join("run/events.mcap"));
            signal(coordinator, Signal::INT);
        }
        let run = Run::finished(lines.finish(), folder);
        let errors = run.errors();
        assert_eq!(run.output.status.success(), !lost, "{errors}");
        let last = errors.rsplit_once(&format!("host {name} is not heard\n"));
        let since = last.expect("its connection has gone").1;
        let again = format!("host {name} is heard again");
        assert!(!since.contains(&again), "{errors}");
        assert!(errors.contains("it is not heard any more"), "{errors}");
        run.assert_accounted();
    }
}

/// A builder unit dies, and the host of a filter unit that is to settle this does not answer.
#[test]
fn an_end_at_once_is_heard_while_a_host_is_waited_for() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let control = "\n[control]\nsuspect = \"500 s\"\ndead = \"1000 s\"\n";
    let config = filtering_on_two(example()) + control;
    let (lines, _) = begun(&config, folder.path());
    let (agent, _) = host_of(folder.path(), "second");
    signal(agent, Signal::STOP);
    signal(process_of(folder.path(), "bu0"), Signal::KILL);
    // It is waited for from when no order is answered any more.
    while is_answered(folder.path(), "status") {}
    let answer = order(folder.path(), &["abort"]);
    signal(agent, Signal::CONT);
    assert_eq!(answer.as_deref(), Ok("the run ends at once"));
    let run = Run::finished(lines.finish(), folder);
    assert_eq!(run.output.status.code(), Some(0), "{}", run.errors());
    let condition = run.summary["run"]["condition"].as_str();
    assert!(
        condition.is_some_and(|condition| condition.contains("ABORTED")),
        "{condition:?}"
    );
    run.assert_accounted();
}

/// Whether a run answers an order within a time that it never needs.
fn is_answered(folder: &Path, order: &str) -> bool {
    let mut stream = UnixStream::connect(folder.join("run/control")).expect("it listens");
    let patience = stream.set_read_timeout(Some(Duration::from_secs(3)));
    patience.expect("a socket");
    stream
        .write_all(format!("{order}\n").as_bytes())
        .expect("a socket");
    matches!(stream.read(&mut [0]), Ok(1))
}

/// The run is ended at once while nobody knows yet that the host is not there.
#[test]
fn a_building_host_that_is_lost_at_the_end_is_no_error() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = building_on_two(example()) + CONTROL;
    let (mut lines, coordinator) = begun(&config, folder.path());
    let (agent, own) = host_of(folder.path(), "second");
    signal(agent, Signal::STOP);
    signal(coordinator, Signal::INT);
    lines.wait_for("once more ends it at once", 1);
    signal(coordinator, Signal::INT);
    let run = Run::finished(lines.finish(), folder);
    let errors = run.errors();
    let _removed_by_another_host = std::fs::remove_dir_all(own);
    for role in ["bu1", "fu1", "wr1"] {
        let said = format!("warning: the process of {role} died at the end of the run");
        assert!(errors.contains(&said), "{errors}");
    }
    assert!(run.output.status.success(), "{errors}");
    run.assert_accounted();
}

/// The counters of a run that goes on, once nothing is on its way any more.
fn totals_at_rest(folder: &Path) -> Vec<(String, u64)> {
    let totals = || {
        let said = order(folder, &["status", "--json"]).expect("the run answers");
        let status: Value = serde_json::from_str(&said).expect("a document");
        let counts = status["counts"].as_object().expect("counters by name");
        let counts = counts
            .iter()
            .map(|(name, count)| (name.clone(), count.as_u64()));
        let counts: Vec<_> = counts
            .map(|(name, n)| (name, n.expect("a number")))
            .collect();
        (counts, status["events_in_building"] == 0)
    };
    let mut before = totals();
    loop {
        wait_a_look();
        let now = totals();
        if now == before && now.1 {
            return now.0;
        }
        before = now;
    }
}

/// Between two looks at counters that may still change.
fn wait_a_look() {
    std::thread::sleep(std::time::Duration::from_millis(200));
}

/// What it had counted stays in the totals. Nobody says that nothing was lost with it, or that it has
/// streams again.
#[test]
fn no_total_falls_when_a_building_host_dies() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = keeping_all(building_on_two(example())) + CONTROL;
    let (mut lines, coordinator) = begun(&config, folder.path());
    await_event(&folder.path().join("run/events-1.mcap"));
    let (agent, own) = host_of(folder.path(), "second");
    order(folder.path(), &["pause"]).expect("the run answers");
    let before = totals_at_rest(folder.path());
    signal(agent, Signal::KILL);
    lines.wait_for("the process of bu1 is gone", 1);
    let after = totals_at_rest(folder.path());
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        assert!(after >= before, "{name}: {before} became {after}");
    }
    let status = order(folder.path(), &["status"]).expect("the run answers");
    let said = "is counted when the run ends";
    assert!(status.contains(said), "{status}");
    let metrics = order(folder.path(), &["status", "--prometheus"]).expect("the run answers");
    assert!(metrics.contains("livetime_roles_died 3"), "{metrics}");
    order(folder.path(), &["resume"]).expect("the run answers");
    wait_for_more(&folder.path().join("run/events.mcap"));
    signal(coordinator, Signal::INT);
    let run = Run::finished(lines.finish(), folder);
    let _removed_by_another_host = std::fs::remove_dir_all(own);
    let errors = run.errors();
    assert!(run.output.status.success(), "{errors}");
    assert!(!errors.contains("another took its place"), "{errors}");
    run.assert_accounted();
    run.assert_only_writer_lost();
}

/// The only building host, with several filter units: what those had accepted and rejected is known to the
/// event manager, and stays so.
#[test]
fn what_dead_filter_units_had_judged_is_what_the_summary_says() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = on_two_hosts(LOCAL)(example())
        .replace("units = 1", "units = 3")
        .replace("\"fu0\"", "\"fu0\", \"fu1\", \"fu2\"");
    let (mut lines, _) = begun(&(config + CONTROL), folder.path());
    order(folder.path(), &["pause"]).expect("the run answers");
    let before = totals_at_rest(folder.path());
    let (agent, own) = host_of(folder.path(), "building");
    signal(agent, Signal::KILL);
    lines.wait_for("the process of bu1 is gone", 1);
    let run = Run::finished(lines.finish(), folder);
    let _removed_by_another_host = std::fs::remove_dir_all(own);
    assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
    run.assert_accounted();
    run.assert_only_writer_lost();
    let judged = ["filter_accepted", "filter_rejected"];
    for (name, count) in before {
        if judged.contains(&name.as_str()) {
            assert!(count > 0, "{name}");
            assert_eq!(run.count(&name), count, "{name}");
        }
    }
}

/// The agent stands still, and the roles of its host go on until that is taken for dead: nobody has heard
/// what they counted meanwhile, which takes nothing off what was lost.
#[test]
fn a_loss_that_was_told_stays_when_a_readout_host_is_lost() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let keys = "[builder]\non_readout_loss = \"continue\"\nretry = \"1 ms\"\n";
    let config = keeping_all(readout_on_two("tcp")(example()))
        .replace("[builder]\n", keys)
        .replace("\ntimeout = \"20 s\"", "\ntimeout = \"1 ms\"");
    let late = |folder: &Path| {
        let said = order(folder, &["status", "--json"]).expect("the run answers");
        let status: Value = serde_json::from_str(&said).expect("a document");
        let late = status["losses"]["readout"]["fragment_late"].as_u64();
        late.expect("a number")
    };
    let (mut lines, coordinator) = begun(&(config + CONTROL), folder.path());
    while late(folder.path()) == 0 {
        std::thread::yield_now();
    }
    let (agent, own) = host_of(folder.path(), "second");
    signal(agent, Signal::STOP);
    lines.wait_for("the process of ru1 is gone", 1);
    let told = late(folder.path());
    signal(coordinator, Signal::INT);
    let run = Run::finished(lines.finish(), folder);
    let _removed_by_another_host = std::fs::remove_dir_all(own);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    let kept = run.losses().find(|(cause, _)| *cause == "fragment_late");
    assert!(kept.is_some_and(|(_, n)| n >= told), "{told}: {kept:?}");
}
