//! The native part of the Python package: run files read into the buffers of numpy arrays.
//!
//! It fills columns without a Python object per event and without holding the interpreter's lock.
//! It makes no awkward arrays, dictionaries or plots: the Python files under `src/livetime` do,
//! from what [`run_file::RunFile`] returns. The columns are in [`columns`].

mod columns;
mod run_file;
mod timing;
mod waveform;

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    livetime,
    LivetimeError,
    PyException,
    "Base of the errors of livetime."
);
create_exception!(
    livetime,
    FormatError,
    LivetimeError,
    "The file is not a Livetime run."
);

/// Reads Livetime run files into numpy arrays.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{FormatError, LivetimeError};

    /// Version of the package, which is that of the program.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python has a name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use super::run_file::RunFile;

    #[pymodule_export]
    use super::timing::{PyTimingControl, PyTimingListener};

    #[pymodule_export]
    use super::waveform::PyWaveformDesigner;
}
