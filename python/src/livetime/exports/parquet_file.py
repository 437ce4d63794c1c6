"""Parquet files, one row group per batch, compressed with zstd; written by pyarrow.

Lists and records are kept as they are. What is known of the run is in the metadata of the schema,
under the keys of `table.run_record`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import awkward as ak

from .table import Batch, as_array, in_types


class ParquetWriter:
    """A Parquet file."""

    def __init__(self, path: Path, record: dict[str, str]) -> None:
        import pyarrow.parquet

        self._make = pyarrow.parquet.ParquetWriter
        self._path, self._record = path, record
        self._writer: Optional[Any] = None

    def append(self, batch: Batch) -> None:
        """Adds the rows of a batch as a row group."""
        table = ak.to_arrow_table(as_array(batch), extensionarray=False)
        if self._writer is None:
            schema = table.schema.with_metadata(self._record)
            self._writer = self._make(self._path, schema, compression="zstd")
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        """Ends the file."""
        if self._writer is not None:
            self._writer.close()


def read(path: Path) -> ak.Array:
    """The columns of an exported file."""
    import pyarrow.parquet

    # Opened here, since pyarrow takes no name that is not UTF-8.
    with path.open("rb") as file:
        return in_types(ak.from_arrow(pyarrow.parquet.read_table(file)))
