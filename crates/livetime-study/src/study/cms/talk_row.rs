//! Rows of the talk: its value, the model's, and a real run on this machine where there is one.
//!
//! They are gates of the network simulator. Those of V10 are reported and not gated: the talk's
//! figure stands beside the model's with the band that is expected of the scenario.

use livetime_fabric::gate::{self, Extent, GateRow, Rule};
use livetime_fabric::replica::run_all;
use serde_json::{Value, json};

use crate::bench::document::rounded;
use crate::report::Table;

use super::this_machine::ThisMachine;

/// The rows that are the talk's, and the reconstruction of its event building figures.
pub(super) fn rows(quick: bool) -> Vec<GateRow> {
    let extent = if quick { Extent::Quick } else { Extent::Full };
    let wanted = ["V7", "V8"];
    let mut jobs = gate::jobs(extent);
    jobs.retain(|job| wanted.contains(&job.gate));
    // The reconstruction is short and belongs to the talk, so it is there in both forms.
    jobs.extend(
        gate::jobs(Extent::Full)
            .into_iter()
            .filter(|job| job.gate == "V10"),
    );
    let work: Vec<_> = jobs.into_iter().map(|job| move || job.run()).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    run_all(work, threads, |_| ())
        .into_iter()
        .flatten()
        .collect()
}

/// For the document.
pub(super) fn to_json(row: &GateRow, here: &ThisMachine) -> Value {
    let real = here.beside(&row.check);
    json!({
        "gate": row.gate,
        "check": row.check,
        "talk": row.reference,
        "model": row.value,
        "real": real.map(|(value, _)| rounded(value)),
        "real_run": real.map(|(_, what)| what),
        "rule": row.rule.key(),
        "tolerance": row.tolerance,
        "band": row.band.map(|(low, high)| [low, high]),
        "verdict": row.verdict(),
    })
}

/// For people.
pub(super) fn table(rows: &[GateRow], here: &ThisMachine) -> Table {
    let cells = |row: &GateRow| {
        let tolerance = match (row.rule, row.band) {
            (_, Some((low, high))) => format!("expected {low} to {high}"),
            (Rule::Equal, _) => "exact".to_owned(),
            (Rule::AtLeast, _) => "at least".to_owned(),
            (Rule::Near | Rule::Reported, _) => format!("{}", rounded(row.tolerance)),
        };
        let verdict = match row.rule {
            Rule::Reported => "reported, not gated".to_owned(),
            Rule::Near | Rule::Equal | Rule::AtLeast => row.verdict().to_owned(),
        };
        vec![
            row.check.clone(),
            rounded(row.reference).to_string(),
            rounded(row.value).to_string(),
            match here.beside(&row.check) {
                Some((value, what)) => format!("{} ({what})", rounded(value)),
                None => String::new(),
            },
            tolerance,
            verdict,
        ]
    };
    Table {
        caption: "Rows of the talk beside the model and real runs on this machine".to_owned(),
        headings: [
            "row",
            "talk or theory",
            "model",
            "real run on this machine",
            "tolerance",
            "verdict",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: rows.iter().map(cells).collect(),
        conclusion: reconstruction(rows).into_iter().collect(),
    }
}

/// What the rows that are not judged say.
fn reconstruction(rows: &[GateRow]) -> Option<String> {
    let reported: Vec<(&GateRow, (f64, f64))> = rows
        .iter()
        .filter_map(|row| Some((row, row.band?)))
        .collect();
    let is_inside =
        |(row, (low, high)): &&(&GateRow, (f64, f64))| (*low..=*high).contains(&row.value);
    let inside = reported.iter().filter(is_inside).count();
    (!reported.is_empty()).then(|| {
        format!(
            "Event building figures of the talk: reported beside one natural scenario and not \
             gated, since the talk does not state its conditions; {inside} of {} runs are in the \
             band that is expected of them.",
            reported.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f64) -> GateRow {
        GateRow {
            gate: "V10",
            check: "staggered".to_owned(),
            value,
            reference: 0.3,
            tolerance: 0.04,
            rule: Rule::Reported,
            band: Some((0.26, 0.30)),
        }
    }

    #[test]
    fn a_row_that_is_not_judged_has_the_talks_figure_and_its_band() {
        let rows = [row(0.27), row(0.5)];
        let said = reconstruction(&rows).unwrap();
        assert!(said.contains("1 of 2 runs are in the band"), "{said}");
        assert_eq!(reconstruction(&[]), None);
        let judged = GateRow {
            rule: Rule::Near,
            band: None,
            ..row(0.3)
        };
        assert_eq!(reconstruction(&[judged]), None);
    }

    #[test]
    fn the_reconstruction_is_beside_the_figures_of_the_specification() {
        let jobs = gate::jobs(Extent::Full);
        let job = jobs.into_iter().find(|job| job.gate == "V10").unwrap();
        let rows = job.run();
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!((row.reference, row.band), (0.15, Some((0.13, 0.17))));
            assert_eq!((row.rule, row.verdict()), (Rule::Reported, "reported"));
        }
    }
}
