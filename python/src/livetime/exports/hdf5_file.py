"""HDF5 files, for programs that know arrays only; written by h5py.

A column with one value per event is a dataset of its name. A column of lists is a group with
`count`, the length of each event's list, and the values of all events one after the other: in
`values`, or for records in one dataset per field. Attributes of the file say what is known of the
run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from .table import FLAT, Batch, columns, in_types

#: Values that are compressed together.
_CHUNK = 16_384


class Hdf5Writer:
    """An HDF5 file."""

    def __init__(self, path: Path, record: dict[str, str]) -> None:
        import h5py

        self._file: Any = h5py.File(path, "w")
        self._file.attrs.update(record)

    def append(self, batch: Batch) -> None:
        """Adds the rows of a batch."""
        for name in FLAT:
            self._extend(name, batch[name])
        for name, of in columns("fragment" in batch).items():
            column = batch[name]
            self._extend(f"{name}/count", ak.to_numpy(ak.num(column, axis=1)).astype("<u4"))
            fields = of if isinstance(of, dict) else {"values": of}
            for field in fields:
                values = column[field] if isinstance(of, dict) else column
                self._extend(f"{name}/{field}", ak.to_numpy(ak.flatten(values, axis=1)))

    def _extend(self, name: str, values: np.ndarray[Any, Any]) -> None:
        if name not in self._file:
            self._file.create_dataset(
                name,
                data=values,
                maxshape=(None,),
                chunks=(_CHUNK,),
                compression="gzip",
                compression_opts=1,
                shuffle=True,
            )
            return
        dataset = self._file[name]
        before = dataset.shape[0]
        dataset.resize(before + len(values), axis=0)
        dataset[before:] = values

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


def read(path: Path) -> ak.Array:
    """The columns of an exported file."""
    import h5py

    with h5py.File(path, "r") as file:
        whole: dict[str, Any] = {name: file[name][:] for name in FLAT}
        for name, of in columns("fragment" in file).items():
            counts = file[f"{name}/count"][:]
            if isinstance(of, dict):
                fields = {field: _lists(counts, file[f"{name}/{field}"][:]) for field in of}
                whole[name] = ak.zip(fields)
            else:
                whole[name] = _lists(counts, file[f"{name}/values"][:])
    return in_types(ak.zip(whole, depth_limit=1))


def _lists(counts: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> ak.Array:
    return ak.unflatten(values, counts.astype("<i8"))
