//! 512 x 512 Myrinet: does the barrel shifter work for large systems?
//!
//! First the fabric alone, saturated, with what a barrel shifter needs and without; then the
//! protocol on it, at the design rate.

use livetime_fabric::network::topology::shift::ShiftSchedule;
use livetime_fabric::network::{
    Estimate, Load, Pattern, RoutePolicy, SizeLaw, Topology, TopologyError, Traffic, wormhole,
};
use livetime_fabric::time::DurationPs;

use super::steady::{Carried, NOT_CONVERGED};
use super::{Answer, MYRINET_HZ, large_window, myrinet_case, percent, promises};

/// Use of the links from which the shifter of the fabric alone is free of conflicts.
const FREE_OF_CONFLICTS: f64 = 0.99;
const LINK_BITS_PER_S: u64 = 2_000_000_000;

/// What is found.
struct Found {
    /// Use of the links of the fabric alone with numbered sources, their routes and blocks.
    best: Estimate,
    /// The same with fragments that are not cut, and with sources in their plain order.
    uncut: Estimate,
    plain: Estimate,
    /// With the protocol.
    carried: Carried,
    latency_ms: f64,
    is_conserved: bool,
}

impl Found {
    fn is_converged(&self) -> bool {
        let of_fabric = [self.best, self.uncut, self.plain];
        of_fabric.iter().all(|one| one.converged) && self.carried.is_known()
    }

    /// Whether a fabric that is free of conflicts and a protocol that carries the rate work.
    fn works(&self) -> &'static str {
        if !self.best.converged || !self.carried.is_known() {
            return "Not shown";
        }
        let is_free = self.best.mean > FREE_OF_CONFLICTS;
        match is_free && self.carried.is_carried() && self.is_conserved {
            true => "Yes",
            false => "No",
        }
    }

    fn verdict(&self) -> Vec<String> {
        let alone = format!(
            "The fabric alone: blocks of 4 KiB in an order without conflicts use {} of the links; \
             fragments that are not cut {}; sources in their plain order {}.",
            use_text(self.best),
            use_text(self.uncut),
            use_text(self.plain)
        );
        let with_protocol = format!(
            "With the protocol at {} kHz of 2 KiB the network {}; half of the events are built \
             within {:.0} ms.",
            MYRINET_HZ / 1_000,
            self.carried.to_clause(),
            self.latency_ms
        );
        vec![alone, with_protocol]
    }
}

fn use_text(share: Estimate) -> String {
    match share.converged {
        true => percent(share.mean),
        false => NOT_CONVERGED.to_owned(),
    }
}

/// The fabric alone, saturated: use of its links, in runs of four times the length each time until
/// it converges. Where packets block each other that takes more than 10 000 packet times.
fn shifted(
    topology: &Topology,
    schedule: &ShiftSchedule,
    sizes: &SizeLaw,
    hop_ns: u64,
    quick: bool,
) -> Estimate {
    let most = if quick { 32_000 } else { 128_000 };
    let mut times = 500;
    loop {
        let traffic = Traffic::new(Pattern::Shift(schedule.clone()));
        let mut load = Load {
            routes: schedule.policy,
            hop_delay: DurationPs::from_ns(hop_ns),
            link_bits_per_s: LINK_BITS_PER_S,
            ..Load::saturated(traffic, sizes.clone(), times)
        };
        load.warm_up = DurationPs(load.duration.0 / 2);
        let found = wormhole::run(topology, &load).efficiency_link;
        if found.converged || times >= most {
            return found;
        }
        times *= 4;
    }
}

pub(super) fn answer(quick: bool) -> Result<Answer, TopologyError> {
    let topology = Topology::six_layer(8)?;
    let naive = ShiftSchedule::naive(&topology, RoutePolicy::BySourcePort);
    let schedule = ShiftSchedule::conflict_free(&topology).unwrap_or_else(|| naive.clone());
    let blocks = SizeLaw::Fixed(4096);
    let unsliced = SizeLaw::LogNormal {
        mean: 4096.0,
        rms: 4096.0,
    };
    let of = |schedule, sizes, hop_ns| shifted(&topology, schedule, sizes, hop_ns, quick);
    let case = myrinet_case("at the design rate", topology.clone(), large_window(quick));
    let (best, delayed, uncut, plain, offered) = std::thread::scope(|scope| {
        // As long as the others together.
        let offered = scope.spawn(|| case.run());
        let best = of(&schedule, &blocks, 0);
        let delayed = of(&schedule, &blocks, 125);
        let uncut = of(&schedule, &unsliced, 0);
        let plain = of(&naive, &blocks, 0);
        let offered = offered.join().expect("a run that panics ends the study");
        (best, delayed, uncut, plain, offered)
    });
    let found = Found {
        best,
        uncut,
        plain,
        carried: Carried::of_run(&offered),
        latency_ms: offered.latency_ns.value_at_quantile(0.5) as f64 * 1e-6,
        is_conserved: offered.is_conserved(),
    };
    let mut rows = Vec::new();
    let mut add = |what: &str, value: String| rows.push(vec![what.to_owned(), value]);
    add(
        "fabric alone, saturated: use of the links with blocks of 4 KiB",
        use_text(best),
    );
    add("the same with 125 ns for each hop", use_text(delayed));
    add(
        "the same order, fragments not cut into blocks",
        use_text(uncut),
    );
    add("sources in their plain order", use_text(plain));
    add(
        "with the protocol at 100 kHz of 2 KiB: built of the offered",
        found.carried.to_text(),
    );
    add(
        "median time from trigger to built event",
        format!("{:.1} ms", found.latency_ms),
    );
    add(
        "most events held by a builder unit, of 16 credits",
        offered.held_max.to_string(),
    );
    add("promises of the protocol", promises(&offered));
    Ok(conclude(&found, rows))
}

fn conclude(found: &Found, rows: Vec<Vec<String>>) -> Answer {
    Answer {
        question: "512 x 512 Myrinet: does the barrel shifter work for large systems?",
        answer: format!(
            "{}: use of the links in 6 layers when sources are numbered and routes chosen for it \
             and fragments are cut into blocks: {}; built of 100 kHz of 2 KiB with the protocol: {}.",
            found.works(),
            use_text(found.best),
            found.carried.to_text()
        ),
        verdict: found.verdict(),
        conditions:
            "6 layers of 8 x 8 crossbars without buffers, links of 2 Gb/s, 125 ns for each \
                     hop with the protocol, log-normal fragments of 2 KiB, triggers at random, 16 \
                     credits for a builder unit, which looks for work every 10 ms."
                .to_owned(),
        is_converged: found.is_converged(),
        is_conserved: found.is_conserved,
        headings: vec!["barrel shifter", "value"],
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(best: f64, carried: Carried) -> Found {
        let of = |mean| Estimate::of(&[mean; 32]);
        Found {
            best: of(best),
            uncut: of(0.3),
            plain: of(0.13),
            carried,
            latency_ms: 31.0,
            is_conserved: true,
        }
    }

    const ALL: Carried = Carried::Steady {
        share: 1.0,
        ci95: 0.005,
    };

    #[test]
    fn it_works_if_the_fabric_is_free_of_conflicts_and_the_rate_is_carried() {
        let answer = conclude(&found(1.0, ALL), vec![]);
        assert!(answer.is_converged && answer.answer.starts_with("Yes: "));
        assert!(answer.verdict[0].contains("use 100.0 % of the links"));
        assert!(answer.verdict[1].contains("carries the rate (100.0 % +- 0.5)"));
        assert_eq!(found(0.8, ALL).works(), "No");
        let grows = Carried::Growing { share: 0.2 };
        assert_eq!(found(1.0, grows).works(), "No");
        let mut broken = found(1.0, ALL);
        broken.is_conserved = false;
        assert_eq!(broken.works(), "No");
        assert!(!conclude(&broken, vec![]).is_conserved);
    }

    #[test]
    fn what_has_not_converged_is_not_shown() {
        let answer = conclude(&found(1.0, Carried::Unknown), vec![]);
        assert!(!answer.is_converged && answer.answer.starts_with("Not shown: "));
        let mut one = found(1.0, ALL);
        one.best.converged = false;
        assert_eq!(one.works(), "Not shown");
        assert!(one.verdict()[0].contains(NOT_CONVERGED));
    }

    #[test]
    fn a_fabric_is_run_until_it_converges() {
        let topology = Topology::four_layer(4).unwrap();
        let schedule = ShiftSchedule::conflict_free(&topology).unwrap();
        let best = shifted(&topology, &schedule, &SizeLaw::Fixed(4096), 0, true);
        assert!(best.converged && best.mean > FREE_OF_CONFLICTS);
        let sizes = SizeLaw::LogNormal {
            mean: 4096.0,
            rms: 4096.0,
        };
        let uncut = shifted(&topology, &schedule, &sizes, 0, false);
        assert!(uncut.converged && uncut.mean < 0.7, "{uncut:?}");
    }
}
