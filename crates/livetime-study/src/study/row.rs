//! A row of a study's comparison: the paper's value, the model's, this machine's and its floor.
//!
//! Shared by the studies of the link papers. A model's value has a range that it must be in; this
//! machine's value has none, for it is another machine than the paper's.

use serde_json::{Value, json};

use crate::bench::document::rounded;
use crate::report::Table;

/// One row; numbers in the unit named.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) quantity: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) paper: Option<f64>,
    pub(crate) model: Option<f64>,
    /// Least and most that the model may say; infinite where there is no bound.
    pub(crate) allowed: Option<(f64, f64)>,
    pub(crate) measured: Option<f64>,
    pub(crate) floor: Option<f64>,
}

/// A range of so many percent around a value.
pub(crate) fn within(value: f64, percent: f64) -> Option<(f64, f64)> {
    let off = value.abs() * percent / 100.0;
    Some((value - off, value + off))
}

impl Row {
    /// Whether the model is where it must be; a model without a range is not judged.
    pub(crate) fn is_good(&self) -> bool {
        let Some((least, most)) = self.allowed else {
            return true;
        };
        self.model
            .is_some_and(|model| (least..=most).contains(&model))
    }

    /// As an object of the document.
    pub(crate) fn to_json(&self) -> Value {
        let bounds = |(least, most): (f64, f64)| json!([rounded(least), rounded(most)]);
        json!({
            "id": self.id,
            "quantity": self.quantity,
            "unit": self.unit,
            "paper": self.paper,
            "model": self.model.map(rounded),
            "model_allowed": self.allowed.map(bounds),
            "model_within": self.allowed.map(|_| self.is_good()),
            "measured": self.measured.map(rounded),
            "floor": self.floor.map(rounded),
        })
    }
}

/// The rows as a table.
pub(crate) fn table(caption: &str, source: &str, rows: &[Row]) -> Table {
    let number = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) if value.is_infinite() => "no bound".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    };
    let judged = |row: &Row| match row.allowed {
        None => "-".to_owned(),
        Some((least, most)) => {
            let verdict = if row.is_good() { "within" } else { "OUTSIDE" };
            format!(
                "{verdict} {} .. {}",
                number(Some(least)),
                number(Some(most))
            )
        }
    };
    let cells = |row: &Row| {
        vec![
            row.quantity.to_owned(),
            number(row.paper),
            number(row.model),
            judged(row),
            number(row.measured),
            number(row.floor),
            row.unit.to_owned(),
        ]
    };
    let headings = [
        "quantity",
        source,
        "model",
        "model's range",
        "here",
        "bare machine",
        "unit",
    ];
    Table {
        caption: caption.to_owned(),
        headings: headings.map(str::to_owned).to_vec(),
        rows: rows.iter().map(cells).collect(),
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_outside_its_range_or_missing_is_not_good() {
        let row = |model, allowed| Row {
            model,
            allowed,
            ..Row::default()
        };
        assert!(row(Some(104.0), within(100.0, 5.0)).is_good());
        assert!(!row(Some(106.0), within(100.0, 5.0)).is_good());
        assert!(!row(None, within(100.0, 5.0)).is_good());
        assert!(!row(Some(f64::NAN), within(100.0, 5.0)).is_good());
        assert!(row(None, None).is_good());
        let shown = table("", "paper", &[row(Some(106.0), within(100.0, 5.0))]);
        assert_eq!(shown.rows[0][3], "OUTSIDE 95.00 .. 105");
    }
}
