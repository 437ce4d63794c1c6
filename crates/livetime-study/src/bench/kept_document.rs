//! A document of a bench that was kept: whether it is one, of which bench, and whether its verdicts
//! follow from its figures.
//!
//! Nothing is measured here. How documents are made is in [`super::document`].

use serde_json::Value;

use super::document::SCHEMA;

/// Figures are kept with five digits: nearer to its target than that a value may lie on either side.
const DIGITS: f64 = 1e-4;

/// Why something is no document of the bench that was asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum KeptFault {
    /// It is of another kind.
    #[error("`schema` is {found}, not \"livetime.bench/1\"")]
    Schema {
        /// What it says it is.
        found: String,
    },
    /// It is of another bench.
    #[error("`bench` is {found}, not \"{wanted}\"")]
    Bench {
        /// Which.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// A part is missing.
    #[error("`{member}` is no object")]
    Member {
        /// Which.
        member: &'static str,
    },
    /// A target lacks a figure or its side.
    #[error(
        "`targets.{name}` needs a number or null as `value`, a number as `target`, \"at_least\" or \
         \"at_most\" as `bound`, and true, false or null as `met`"
    )]
    Target {
        /// Which.
        name: String,
    },
    /// A verdict is not that of its figures.
    #[error("`targets.{name}` has {met} as `met`, but {value} {is_met} {bound} {target}")]
    Verdict {
        /// Which.
        name: String,
        /// What it says.
        met: bool,
        /// What was reached.
        value: String,
        /// What that is.
        is_met: &'static str,
        /// On which side.
        bound: &'static str,
        /// What was to be reached.
        target: f64,
    },
}

/// Looks at a document that was kept, of the bench that was asked for, `all` being one of its own.
///
/// # Errors
/// The first fault.
pub fn check(document: &Value, wanted: &str) -> Result<(), KeptFault> {
    if document["schema"] != SCHEMA {
        let found = document["schema"].to_string();
        return Err(KeptFault::Schema { found });
    }
    if document["bench"] != wanted {
        return Err(KeptFault::Bench {
            found: document["bench"].to_string(),
            wanted: wanted.to_owned(),
        });
    }
    for member in ["machine", "floor", "result", "ratio", "targets"] {
        if !document[member].is_object() {
            return Err(KeptFault::Member { member });
        }
    }
    let targets = document["targets"].as_object();
    (targets.into_iter().flatten()).try_for_each(|(name, target)| check_target(name, target))
}

fn check_target(name: &str, kept: &Value) -> Result<(), KeptFault> {
    let value = &kept["value"];
    let bound = match kept["bound"].as_str() {
        Some("at_least") => Some("at least"),
        Some("at_most") => Some("at most"),
        _ => None,
    };
    let has_value = value.is_number() || value.is_null();
    let has_met = kept["met"].is_boolean() || kept["met"].is_null();
    let (Some(bound), Some(target), true) = (bound, kept["target"].as_f64(), has_value && has_met)
    else {
        let name = name.to_owned();
        return Err(KeptFault::Target { name });
    };
    // Where the verdict is null the figures do not tell.
    let Some(met) = kept["met"].as_bool() else {
        return Ok(());
    };
    let is_met = value.as_f64().is_some_and(|value| match bound {
        "at least" => value >= target,
        _ => value <= target,
    });
    let is_at_target =
        (value.as_f64()).is_some_and(|value| (value - target).abs() <= DIGITS * target.abs());
    if met == is_met || is_at_target {
        return Ok(());
    }
    Err(KeptFault::Verdict {
        name: name.to_owned(),
        met,
        value: value.to_string(),
        is_met: if is_met { "is" } else { "is not" },
        bound,
        target,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::{BenchDocument, Target};

    fn document() -> Value {
        let mut document = BenchDocument::new("ring");
        document.machine = json!({});
        document.add_target(Target::at_most("way", 1.2, 1.3));
        document.add_target(Target::at_least("gain", f64::NAN, 1.8));
        document.to_json()
    }

    #[test]
    fn a_document_of_the_bench_is_taken_and_nothing_else() {
        assert_eq!(check(&document(), "ring"), Ok(()));
        // Of a time in which nothing was left unjudged.
        let mut former = document();
        former["targets"]["gain"]["met"] = json!(false);
        former["targets"]["way"] =
            json!({ "value": 1.3, "target": 1.3, "bound": "at_most", "met": false });
        assert_eq!(check(&former, "ring"), Ok(()));
        let said = |document: &Value, wanted| check(document, wanted).unwrap_err().to_string();
        let run = json!({ "schema": "livetime.run/1" });
        assert_eq!(
            said(&run, "ring"),
            "`schema` is \"livetime.run/1\", not \"livetime.bench/1\""
        );
        assert!(said(&json!([1]), "ring").starts_with("`schema` is null"));
        for wanted in ["floor", "all"] {
            let text = format!("`bench` is \"ring\", not \"{wanted}\"");
            assert_eq!(said(&document(), wanted), text);
        }
        let mut without = document();
        without["floor"] = Value::Null;
        assert_eq!(said(&without, "ring"), "`floor` is no object");
    }

    #[test]
    fn a_verdict_follows_from_the_figures() {
        let said = |target: Value| {
            let mut changed = document();
            changed["targets"]["way"] = target;
            check(&changed, "ring").err().map(|fault| fault.to_string())
        };
        let wrong = json!({ "value": 1, "target": 2, "bound": "at_least", "met": true });
        assert_eq!(
            said(wrong).as_deref(),
            Some("`targets.way` has true as `met`, but 1 is not at least 2")
        );
        let wrong = json!({ "value": 1, "target": 2, "bound": "at_most", "met": false });
        assert_eq!(
            said(wrong).as_deref(),
            Some("`targets.way` has false as `met`, but 1 is at most 2")
        );
        for faulty in [
            json!({ "value": null, "target": 2, "bound": "at_most", "met": true }),
            json!({ "value": 1, "target": 2, "bound": "near", "met": true }),
            json!({ "value": "1", "target": 2, "bound": "at_most", "met": true }),
            json!({ "value": 1, "target": 2, "bound": "at_most" , "met": "yes" }),
            json!(7),
        ] {
            assert!(said(faulty.clone()).is_some(), "{faulty}");
        }
    }
}
