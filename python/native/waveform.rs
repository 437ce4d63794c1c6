//! The designer of waveforms for Python: a curve in, coefficient sets as bytes and a bound out.
//!
//! The arithmetic is `livetime_timing::waveform`'s; arrays and plots are made in
//! `livetime/waveform.py`.

use livetime_timing::formula::Formula;
use livetime_timing::waveform::{DesignOptions, PointCurve, design, output_at};
use livetime_wire::DurationNs;
use livetime_wire::timing_coefficient::{CoefficientSet, SET_BYTES};
use pyo3::prelude::*;

use crate::LivetimeError;

fn failed(error: impl std::fmt::Display) -> PyErr {
    LivetimeError::new_err(error.to_string())
}

/// Coefficient sets (12 bytes each), largest error, its time [s], length [s].
type Designed = (Vec<u8>, f64, f64, f64);

/// The designer; it has no state.
#[pyclass(name = "WaveformDesigner")]
pub(crate) struct PyWaveformDesigner;

#[pymethods]
impl PyWaveformDesigner {
    /// Designs coefficient sets for a formula of `t` or for points with straight lines between
    /// them; values are multiplied by `scale`.
    #[staticmethod]
    #[pyo3(signature = (formula, points, scale, duration, tolerance, frequency))]
    fn design(
        py: Python<'_>,
        formula: Option<&str>,
        points: Vec<(f64, f64)>,
        scale: f64,
        duration: f64,
        tolerance: f64,
        frequency: Option<u8>,
    ) -> PyResult<Designed> {
        let options = DesignOptions {
            tolerance,
            frequency,
        };
        let duration = DurationNs::from_seconds(duration);
        let designed = match formula {
            Some(text) => {
                let formula = Formula::parse(text).map_err(failed)?;
                py.detach(|| design(|t| formula.at(t) * scale, duration, &options))
            }
            None => {
                let curve = PointCurve::new(points).map_err(failed)?;
                py.detach(|| design(|t| curve.at(t) * scale, duration, &options))
            }
        };
        let designed = designed.map_err(failed)?;
        let mut bytes = Vec::with_capacity(designed.sets.len() * SET_BYTES);
        for set in &designed.sets {
            let words = set.to_words().map_err(failed)?;
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        Ok((
            bytes,
            designed.error_max,
            designed.error_at.as_seconds(),
            designed.duration.as_seconds(),
        ))
    }

    /// What a generator puts out at each of the times, ns since the start.
    #[staticmethod]
    fn output(sets: &[u8], times_ns: Vec<u64>) -> PyResult<Vec<i32>> {
        let mut decoded = Vec::with_capacity(sets.len() / SET_BYTES);
        for set in sets.chunks(SET_BYTES) {
            let word = |index: usize| -> PyResult<u32> {
                let bytes = set
                    .get(4 * index..4 * index + 4)
                    .and_then(|b| b.try_into().ok());
                bytes
                    .map(u32::from_le_bytes)
                    .ok_or_else(|| failed("coefficient sets have 12 bytes each"))
            };
            let words = [word(0)?, word(1)?, word(2)?];
            decoded.push(CoefficientSet::from_words(words).map_err(failed)?);
        }
        let outputs = times_ns
            .into_iter()
            .map(|at| output_at(&decoded, DurationNs(at)));
        outputs
            .collect::<Option<Vec<i32>>>()
            .ok_or_else(|| failed("a waveform without coefficient sets has no output"))
    }
}
