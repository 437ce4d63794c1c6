//! Several decision nodes, and several inputs that a merger makes one: the same decisions.

use serde_json::Value;

use livetime_wire::decision::DecisionDigest;
use livetime_wire::{L2Mask, TriggerNumber};

use crate::workbench::{SMALL, Workbench, assert_conserved, changed, count, triggers, value};

/// A menu of physics without prescales, which each node would count for itself, and lines of the trigger.
fn config(trigger: &str) -> String {
    let menu = "[[trigger.path]]
name = \"MUON\"
bit = 5
l1 = [2]
cut = \"single_muon\"
pt_min = \"5 GeV\"

[[trigger.path]]
name = \"DIMUON\"
bit = 6
l1 = [3]
cut = \"dimuon\"
pt_min = \"2 GeV\"

[[trigger.path]]
name = \"ELECTRON\"
bit = 7
l1 = [5]
cut = \"single_electron\"
em_min = \"8 GeV\"
track_pt_min = \"4 GeV\"

[[trigger.path]]
name = \"SUM_ET\"
bit = 8
l1 = [7]
cut = \"sum_et\"
sum_et_min = \"20 GeV\"

[builder]";
    let start = SMALL.find("[[trigger.path]]").expect("the menu of SMALL");
    let end = SMALL.find("[builder]").expect("behind it");
    let mut text = SMALL.to_owned();
    text.replace_range(start..end + "[builder]".len(), menu);
    changed(&text, "[trigger]\n", &format!("[trigger]\n{trigger}"))
}

fn run(trigger: &str, options: &[&str]) -> (Value, Vec<u64>) {
    let bench = Workbench::new();
    bench.write("run.toml", config(trigger));
    let common = ["run", "run.toml", "--triggers", "4000", "--lossless"];
    let rest = ["--out", "out", "--json"];
    let arguments = [&common[..], &rest, options].concat();
    let document = bench.run(&arguments).ended_with(0).document();
    assert_conserved(&document);
    let stored = triggers(&bench.inspect("out/events.mcap"));
    (document, stored)
}

fn detail(run: &Value, role: &str, name: &str) -> u64 {
    value(run, "roles")[role][name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} of {role}: {run}"))
}

#[test]
fn nodes_and_inputs_decide_as_one_node_does() {
    let (reference, stored) = run("", &[]);
    assert!(stored.len() > 100, "{}", stored.len());
    assert_eq!(detail(&reference, "trg0", "packets"), 4000);
    for (nodes, inputs, options) in [
        (3, 1, &[][..]),
        (1, 4, &[]),
        (2, 5, &[]),
        (3, 2, &["--processes"]),
    ] {
        let trigger = format!("nodes = {nodes}\ninputs = {inputs}\n");
        let (document, same) = run(&trigger, options);
        let what = format!("{nodes} nodes of {inputs} inputs");
        assert_eq!(
            value(&document, "decision_digest"),
            value(&reference, "decision_digest"),
            "{what}"
        );
        assert_eq!(same, stored, "{what}");
        let mut packets = 0;
        for node in 0..nodes {
            let role = format!("trg{node}");
            let of_node = detail(&document, &role, "packets");
            // In turn: each has its share.
            assert!(of_node.abs_diff(4000 / nodes) <= 1, "{what}: {of_node}");
            packets += of_node;
            if inputs > 1 {
                assert_eq!(detail(&document, &role, "merger.merged"), of_node);
                let parts = detail(&document, &role, "merger.parts");
                assert_eq!(parts, of_node * inputs, "{what}");
            }
        }
        assert_eq!(packets, 4000, "{what}");
        assert_eq!(count(&document, "counts.triggers"), 4000);
    }
}

/// Prescales are counted by each node, so that the decisions depend on how many there are.
#[test]
fn a_source_takes_the_decisions_of_as_many_nodes() {
    let of_nodes = |nodes: u16| {
        let bench = Workbench::new();
        let table = format!("[trigger]\nnodes = {nodes}\n");
        bench.write("run.toml", changed(SMALL, "[trigger]\n", &table));
        let options = ["--triggers", "1000", "--lossless", "--out", "out", "--json"];
        let run = bench.run(&[&["run", "run.toml"][..], &options].concat());
        let run = run.ended_with(0).document();
        let options = ["source", "run.toml", "--triggers", "1000", "--decide"];
        let mut digest = DecisionDigest::default();
        for line in bench.run(&options).ended_with(0).out.lines() {
            let line: Value = serde_json::from_str(line).expect("a line of JSON");
            let number = |key: &str| line[key].as_str().expect("a number in quotes").to_owned();
            let trigger = number("trigger").parse().expect("a trigger number");
            let mask = u128::from_str_radix(&number("after"), 16).expect("a mask");
            digest.add(TriggerNumber(trigger), L2Mask(mask));
        }
        assert_eq!(
            value(&run, "decision_digest").as_str(),
            Some(digest.to_string().as_str()),
            "{nodes}"
        );
        digest
    };
    assert_ne!(of_nodes(1), of_nodes(3));
}
