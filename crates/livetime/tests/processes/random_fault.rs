//! Several deaths and stand-stills in one run, at random: of the event manager, of filter units,
//! builder units and the writer, whose events are given to others; some of them while the loss of
//! another is settled.
//!
//! `LIVETIME_LONG=1` makes a hundred such runs instead of three; `LIVETIME_SEED` others.

use std::collections::BTreeSet;

use crate::process_run::{Run, keeping_all, patient, turn};

const TRIGGERS: [&str; 2] = ["--triggers", "20000"];
/// Roles that a run survives.
const MORTAL: [&str; 7] = ["bu0", "bu1", "evm", "fu0", "fu1", "fu2", "wr0"];
/// Roles that may stand still besides.
const SLOW: [&str; 2] = ["ru0", "trg0"];
/// Lines of the builder's table.
const BUILDERS: [&str; 6] = [
    "",
    "mode = \"push\"\n",
    "transport = \"tcp\"\n",
    "mode = \"push\"\ntransport = \"tcp\"\n",
    "transport = \"tcp\"\nshaping = \"barrel-shifter\"\n",
    "transport = \"udp\"\n",
];

/// Numbers that look random and are the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (z ^ (z >> 27)) % n
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }
}

fn faults(random: &mut Random) -> Vec<String> {
    let count = 1 + random.below(4);
    (0..count)
        .map(|_| {
            let at = 500 + random.below(17_000);
            let role = random.one_of(&MORTAL);
            match random.below(6) {
                0 | 1 => format!("kill:{role}@{at}triggers"),
                2 | 3 => {
                    let others: Vec<&str> = MORTAL.into_iter().filter(|m| *m != role).collect();
                    let (lost, nth) = (random.one_of(&others), 1 + random.below(3));
                    format!("kill:{role}@loss-of:{lost}#{nth}")
                }
                _ => {
                    let role = random.one_of(&[&MORTAL[..], &SLOW].concat());
                    format!("stop:{role}@{at}triggers+{}ms", 50 + random.below(300))
                }
            }
        })
        .collect()
}

/// Three filter units that keep everything, so that the writer has its share.
fn busy(config: String, builder: &str) -> String {
    let config = keeping_all(patient(config).replace("units = 1", "units = 3"));
    config.replace("[builder]\n", &format!("[builder]\n{builder}"))
}

#[test]
fn no_event_is_lost_or_stored_twice_whatever_dies() {
    let _turn = turn();
    let seed = std::env::var("LIVETIME_SEED").ok();
    let seed: u64 = seed.map_or(2029, |seed| seed.parse().expect("a number"));
    let runs = match std::env::var_os("LIVETIME_LONG") {
        Some(_) => 100,
        None => 3,
    };
    let whole = Run::of(|config| busy(config, ""), &TRIGGERS);
    assert!(whole.stored().len() > 900, "everything is stored");
    let mut random = Random(seed);
    for nth in 0..runs {
        let (faults, builder) = (faults(&mut random), random.one_of(&BUILDERS));
        println!("seed {seed}, run {nth}: {} {builder:?}", faults.join(" "));
        let mut arguments = vec![TRIGGERS[0], TRIGGERS[1], "--processes"];
        arguments.extend(faults.iter().flat_map(|fault| ["--fault", fault]));
        let run = Run::of(|config| busy(config, builder), &arguments);
        let (errors, roles) = (run.errors(), &run.summary["roles"]);
        assert!(run.output.status.success(), "{errors}\n{roles:#}");
        run.assert_accounted();
        assert_eq!(run.digest(), whole.digest());
        run.assert_only_writer_lost();
        assert_eq!(run.count("events_incomplete"), 0);
        let (stored, all) = (run.stored(), whole.stored());
        assert!(stored.is_subset(&all), "nothing is made up");
        let missing: BTreeSet<u64> = all.difference(&stored).copied().collect();
        assert_eq!(missing.len() as u64, run.lost_in("store"));
        assert_eq!(run.differing(&whole), missing);
    }
}
