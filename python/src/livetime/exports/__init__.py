"""Runs in the formats that other programs read: ROOT, Parquet, HDF5 and CSV.

`export` writes the events of a run batch by batch, so that memory stays bounded, into a file that
appears under its name only when it is whole. `read` gives the columns of such a file back, which
is how the tests compare every event. What the columns are is in `table`; each format has one file
here. Byte-stream files are written by ``livetime export --format bytestream``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Optional, Union

import awkward as ak

from ..output_file import reason_to_keep
from ..run import Run, open_run
from . import csv_file, hdf5_file, parquet_file, root_file
from .comparison import differing_events
from .table import ExportError, Writer, batches, run_record

#: Formats by name, with the endings that mean them.
FORMATS = {
    "root": (".root",),
    "rntuple": (".rntuple",),
    "parquet": (".parquet", ".pq"),
    "hdf5": (".h5", ".hdf5"),
    "csv": (".csv",),
}

#: How a writer is made of the files of an export and the record of its run.
_WRITERS: dict[str, Callable[[list[Path], dict[str, str]], Writer]] = {
    "root": lambda files, record: root_file.TreeWriter(files[0], record),
    "rntuple": lambda files, record: root_file.NtupleWriter(files[0], record),
    "parquet": lambda files, record: parquet_file.ParquetWriter(files[0], record),
    "hdf5": lambda files, record: hdf5_file.Hdf5Writer(files[0], record),
    "csv": csv_file.CsvWriter,
}


def export(
    run: Union[Run, str, os.PathLike[str]],
    path: Union[str, os.PathLike[str]],
    *,
    format: Optional[str] = None,
    fragments: bool = False,
    step: int = 10_000,
    overwrite: bool = False,
    progress: Optional[Callable[[int, int], None]] = None,
) -> int:
    """Writes the events of a run into a file of another format and returns their number.

    `format` is one of `FORMATS`; without it the ending of `path` says it. `fragments` adds the
    fragments with all their words, as received. `step` events are held in memory at a time, and
    after each such batch ``progress(done, total)`` is called. The file is written beside its final
    name with `.part` behind it and renamed at the end: a failed export leaves nothing behind.

    Raises FileExistsError if the target is there and `overwrite` is not asked for, ExportError for
    an unknown format, a `step` below 1 or a target that is a file of this or another run,
    ImportError if the library of the format is missing.
    """
    if not isinstance(run, Run):
        run = open_run(run)
    target = Path(path)
    name = format or format_of(target)
    if name not in _WRITERS:
        raise ExportError(f"format is {name!r}, expected one of {', '.join(_WRITERS)}")
    if step < 1:
        raise ExportError(f"step is {step}, expected 1 or more")
    if name == "csv" and fragments:
        raise ExportError("format csv has no place for fragments; use parquet, hdf5 or root")
    files = csv_file.names(target) if name == "csv" else [target]
    for file in files:
        if file.exists() and not overwrite:
            raise FileExistsError(f"{file} is there already; ask for overwrite or another name")
        kept = reason_to_keep(file, [run.file, *run.file.parent.glob("*.mcap")])
        if kept is not None:
            raise ExportError(f"{file} {kept} and is not replaced; another name is expected")
    parts = [file.with_name(file.name + ".part") for file in files]
    total = len(run)
    done = 0
    try:
        writer = _WRITERS[name](parts, run_record(run))
        try:
            for batch in batches(run, step, fragments):
                writer.append(batch)
                done += len(batch["trigger"])
                if progress is not None:
                    progress(done, total)
        finally:
            writer.close()
        for written, file in zip(parts, files):
            written.replace(file)
    finally:
        for written in parts:
            written.unlink(missing_ok=True)
    return done


def read(path: Union[str, os.PathLike[str]], *, format: Optional[str] = None) -> ak.Array:
    """Reads an exported file of any of the formats: one record per event, with the columns of
    `livetime.exports.table`, in the same types in which they were written. `format` is one of
    `FORMATS`; without it the ending of `path` says it.

    Raises ExportError for an unknown format, an ending of none, or two files of CSV that do not
    belong together or are not whole, KeyError if the file was not made by `export`.
    """
    source = Path(path)
    name = format or format_of(source)
    if name not in FORMATS:
        raise ExportError(f"format is {name!r}, expected one of {', '.join(FORMATS)}")
    if name in ("root", "rntuple"):
        return root_file.read(source)
    if name == "parquet":
        return parquet_file.read(source)
    if name == "hdf5":
        return hdf5_file.read(source)
    return csv_file.read(source)


def format_of(path: Path) -> str:
    """The format that the ending of a name means.

    Raises ExportError if it means none.
    """
    ending = path.suffix.lower()
    for name, endings in FORMATS.items():
        if ending in endings:
            return name
    known = ", ".join(ending for endings in FORMATS.values() for ending in endings)
    raise ExportError(f"{path.name} ends in {ending!r}, expected one of {known}, or a format")


__all__ = ["FORMATS", "ExportError", "differing_events", "export", "format_of", "read"]
