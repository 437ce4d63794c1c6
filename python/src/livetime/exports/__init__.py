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

from ..output_file import in_the_making
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

#: What reads the file of an export; of an export as CSV that of the events.
_READERS: dict[str, Callable[[Path], ak.Array]] = {
    "root": root_file.read,
    "rntuple": root_file.read,
    "parquet": parquet_file.read,
    "hdf5": hdf5_file.read,
    "csv": csv_file.read,
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
    fragments with all their words, as received. At most `step` events are held in memory at a time, of
    large ones with fragments fewer, up to 1 GiB, and after each such batch ``progress(done, total)`` is
    called. Events that a `Run.refresh` takes up
    meanwhile are not among them. The file is written beside its final name, as `.livetime-*.part`, and
    renamed at the end: a failed export leaves nothing behind, one that was killed that file.

    Raises FileExistsError if the target is there, or appears meanwhile, and `overwrite` is not asked
    for, ExportError for an unknown format, a `step` below 1 or a target that is a file of this or
    another run or no plain file, ImportError if the library of the format is missing.
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
    inputs = [run.file, *run.file.parent.glob("*.mcap")]
    total = len(run)
    done = 0
    with in_the_making(files, inputs, overwrite=overwrite, refused=ExportError) as parts:
        writer = _WRITERS[name](parts, run_record(run))
        try:
            for batch in batches(run, step, fragments, total):
                writer.append(batch)
                done += len(batch["trigger"])
                if progress is not None:
                    progress(done, total)
        finally:
            writer.close()
    return done


def read(path: Union[str, os.PathLike[str]], *, format: Optional[str] = None) -> ak.Array:
    """Reads an exported file of any of the formats: one record per event, with the columns of
    `livetime.exports.table`, in the same types in which they were written. `format` is one of
    `FORMATS`; without it the ending of `path` says it.

    Raises ExportError for an unknown format, an ending of none, a file that was not made by `export`
    or is not whole, or two files of CSV that do not belong together, OSError if there is none or it
    cannot be read, ImportError if the library of the format is missing.
    """
    source = Path(path)
    name = format or format_of(source)
    if name not in FORMATS:
        raise ExportError(f"format is {name!r}, expected one of {', '.join(FORMATS)}")
    try:
        return _READERS[name](source)
    except (ExportError, ImportError, MemoryError):
        raise
    except Exception as error:
        # What a library says of a file that is none of its own has no class in common.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ExportError(
            f"{source}: no whole file of an export in format {name}: {reason}"
        ) from error


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
