//! A rate that the machine cannot hold: triggers are refused, and nothing is lost.

use crate::workbench::{SMALL, Workbench, assert_conserved, count, lost_in_all, value};

#[test]
fn dead_time_rises_and_nothing_is_lost() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let arguments = [
        "run",
        "small.toml",
        "--rate",
        "2MHz",
        "--duration",
        "600ms",
        "--json",
    ];
    let run = bench.run(&arguments).ended_with(0).document();
    assert_conserved(&run);
    assert_eq!(lost_in_all(&run), 0, "{run}");
    assert_eq!(run["run"]["condition"], "GOOD");
    let n = |name: &str| count(&run, &format!("counts.{name}"));
    // 1 200 000 on average with a standard deviation of 1100.
    assert!(n("offered").abs_diff(1_200_000) < 8_000, "{run}");
    assert!(n("triggers") > 0 && n("refused") > n("triggers"), "{run}");
    let refused = value(&run, "dead_time.refused_fraction").as_f64();
    assert!(refused.is_some_and(|fraction| fraction > 0.5), "{run}");
    assert_eq!(n("events_stored"), n("triggers").div_ceil(10));
}
