//! Lines that are a command of the program: it must succeed, in time, with its targets met.
//!
//! Commands that judge themselves (`study`, `soak`, `sim gates`, `bench`) say so by their exit code
//! or in `targets` of their document; here that is read and put into figures.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Shown, Stage};
use crate::Failure;
use crate::program::finish;

/// Runs commands one after the other; each must end with exit code 0 in less than `under`.
pub(super) fn succeed(
    stage: &Stage,
    commands: &[&[&str]],
    under: Duration,
) -> Result<Shown, Failure> {
    let folder = stage.scratch_folder()?;
    let mut passed = true;
    let mut figures = Vec::new();
    for arguments in commands {
        let start = Instant::now();
        finish(stage.program.command(folder.path(), *arguments))?;
        let took = start.elapsed();
        passed &= took < under;
        figures.push(format!(
            "`{}` {:.0} s",
            arguments.join(" "),
            took.as_secs_f64()
        ));
    }
    let figures = figures.join("; ");
    let under = under.as_secs_f64();
    Ok(Shown::new(
        passed,
        format!("{figures} (each under {under:.0} s)"),
    ))
}

/// Runs a bench and reads its targets, each of which must be met; it must end in less than `under`.
pub(super) fn targets_met(
    stage: &Stage,
    arguments: &[&str],
    under: Duration,
) -> Result<Shown, Failure> {
    targets_met_in(stage, arguments, &[], under)
}

/// The same in an environment with these variables.
pub(super) fn targets_met_in(
    stage: &Stage,
    arguments: &[&str],
    environment: &[(&str, &Path)],
    under: Duration,
) -> Result<Shown, Failure> {
    let measured = Measured::new(stage, arguments, environment)?;
    measured.judge(under, |_| true)
}

/// Runs all benches, in less than `under`; the targets of those that are named must be met, and those
/// of the others are told.
pub(super) fn targets_met_of(
    stage: &Stage,
    benches: &[&str],
    under: Duration,
) -> Result<Shown, Failure> {
    let measured = Measured::new(stage, &["bench", "all", "--json"], &[])?;
    measured.judge(under, |target| {
        let bench = target.split('.').next();
        bench.is_some_and(|bench| benches.contains(&bench))
    })
}

/// What a bench said, and how long it took.
struct Measured {
    document: Value,
    took: Duration,
}

impl Measured {
    fn new(
        stage: &Stage,
        arguments: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Self, Failure> {
        let folder = stage.scratch_folder()?;
        let start = Instant::now();
        let mut command = stage.program.command(folder.path(), arguments);
        command.envs(environment.iter().copied());
        Ok(Self {
            document: serde_json::from_slice(&finish(command)?.stdout)?,
            took: start.elapsed(),
        })
    }

    fn judge(&self, under: Duration, is_judged: impl Fn(&str) -> bool) -> Result<Shown, Failure> {
        let targets = self.document["targets"].as_object();
        let targets = targets.ok_or("the document has no targets")?;
        let (mut judged, mut met, mut others_missed) = (0, 0, 0);
        let mut figures = Vec::new();
        for (name, target) in targets {
            let is_met = target["met"] == true;
            let line = target_text(name, target);
            if is_judged(name) {
                judged += 1;
                met += usize::from(is_met);
                eprintln!("  {line}");
                figures.push(line);
            } else {
                others_missed += usize::from(!is_met);
                eprintln!("  not judged here: {line}");
            }
        }
        if judged == 0 {
            return Err("the document has none of the targets".into());
        }
        let others = match targets.len() - judged {
            0 => String::new(),
            others => format!("; of {others} targets of other benches {others_missed} not met"),
        };
        let figures = format!(
            "{:.0} s (under {:.0} s); {met} of {judged} targets met: {}{others}",
            self.took.as_secs_f64(),
            under.as_secs_f64(),
            figures.join(", ")
        );
        Ok(Shown::new(met == judged && self.took < under, figures))
    }
}

fn target_text(name: &str, target: &Value) -> String {
    let bound = match target["bound"].as_str() {
        Some("at_most") => "<= ",
        Some("at_least") => ">= ",
        _ => "",
    };
    let verdict = match (target["met"].as_bool(), target["not_judged"].as_str()) {
        (Some(true), _) => String::new(),
        (None, Some(why)) => format!(" NOT JUDGED: {why}"),
        _ => " NOT MET".to_owned(),
    };
    format!(
        "{name} {} ({bound}{}){verdict}",
        target["value"], target["target"]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_says_its_value_and_whether_it_is_met() {
        let target = serde_json::json!({
            "value": 1.5, "target": 1.3, "bound": "at_most", "met": false,
        });
        assert_eq!(target_text("a", &target), "a 1.5 (<= 1.3) NOT MET");
        let target = serde_json::json!({
            "value": 1.5, "target": 1.3, "bound": "at_most", "met": null,
            "not_judged": "no two floors agreed",
        });
        let said = "a 1.5 (<= 1.3) NOT JUDGED: no two floors agreed";
        assert_eq!(target_text("a", &target), said);
        let target = serde_json::json!({"value": 2, "target": 1, "bound": "at_least", "met": true});
        assert_eq!(target_text("a", &target), "a 2 (>= 1)");
    }
}
