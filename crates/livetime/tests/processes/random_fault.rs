//! Several deaths and stand-stills in one run, at random: of filter units, builder units and the
//! writer, whose events are given to others.
//!
//! `LIVETIME_LONG=1` makes a hundred such runs instead of three; `LIVETIME_SEED` others.

use crate::process_run::{Run, keeping_all, patient, turn};

const TRIGGERS: [&str; 2] = ["--triggers", "20000"];
/// Roles that a run survives.
const MORTAL: [&str; 6] = ["bu0", "bu1", "fu0", "fu1", "fu2", "wr0"];
/// Roles that may stand still besides.
const SLOW: [&str; 3] = ["ru0", "evm", "trg0"];

/// Numbers that look random and are the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (z ^ (z >> 27)) % n
    }
}

fn faults(random: &mut Random) -> Vec<String> {
    let count = 1 + random.below(4);
    (0..count)
        .map(|_| {
            let at = 500 + random.below(17_000);
            if random.below(4) > 0 {
                let role = MORTAL[random.below(MORTAL.len() as u64) as usize];
                return format!("kill:{role}@{at}triggers");
            }
            let all = [&MORTAL[..], &SLOW].concat();
            let role = all[random.below(all.len() as u64) as usize];
            format!("stop:{role}@{at}triggers+{}ms", 50 + random.below(300))
        })
        .collect()
}

/// Three filter units that keep everything, so that the writer has its share.
fn busy(config: String) -> String {
    keeping_all(patient(config).replace("units = 1", "units = 3"))
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
    let whole = Run::of(busy, &TRIGGERS);
    assert!(whole.stored().len() > 900, "everything is stored");
    let mut random = Random(seed);
    for nth in 0..runs {
        let faults = faults(&mut random);
        println!("seed {seed}, run {nth}: {}", faults.join(" "));
        let mut arguments = vec![TRIGGERS[0], TRIGGERS[1], "--processes"];
        arguments.extend(faults.iter().flat_map(|fault| ["--fault", fault]));
        let run = Run::of(busy, &arguments);
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.digest(), whole.digest());
        run.assert_only_writer_lost();
        assert!(
            run.stored().is_subset(&whole.stored()),
            "nothing is made up"
        );
        let missing = whole.stored().len() - run.stored().len();
        assert_eq!(missing as u64, run.lost_in("store"));
    }
}
