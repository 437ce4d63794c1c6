"""Histograms of a run: the UHI form as it is in the file, and a view that plotters understand.

`Histogram` follows the PlottableHistogram protocol of UHI, so that mplhep draws it as it is;
`to_hist` gives a `hist.Hist` for everything else. Nothing here fills.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import boost_histogram
    import hist

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Traits:
    """What UHI asks of an axis: livetime has only continuous, open axes."""

    circular: bool = False
    discrete: bool = False


class Axis:
    """One axis: a sequence of (lower, upper) edges, one for each bin without the flow bins."""

    traits = Traits()

    def __init__(self, uhi: Mapping[str, Any]) -> None:
        metadata = uhi.get("metadata", {})
        self.title: str = metadata.get("title", "")
        self.unit: str = metadata.get("unit", "")
        self.label: str = metadata.get("label", self.title)
        self.scale: str = metadata.get("scale", "linear")
        if uhi["type"] == "regular":
            bins = int(uhi["bins"])
            self.edges: Values = np.linspace(float(uhi["lower"]), float(uhi["upper"]), bins + 1)
        else:
            self.edges = np.asarray(uhi["edges"], dtype=np.float64)

    @property
    def centers(self) -> Values:
        """The middle of each bin."""
        return 0.5 * (self.edges[:-1] + self.edges[1:])

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __getitem__(self, index: int) -> tuple[float, float]:
        # Indexed on its own, so that negative numbers count from the end and IndexError ends loops.
        index = range(len(self))[index]
        return float(self.edges[index]), float(self.edges[index + 1])

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Axis):
            return NotImplemented
        return self.label == other.label and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        return hash((self.label, self.edges.tobytes()))

    def __repr__(self) -> str:
        return f"Axis({self.label!r}, {len(self)} bins, {self.edges[0]:g} to {self.edges[-1]:g})"


class Histogram:
    """A histogram of a run.

    It can be given to ``mplhep.histplot`` and, where boost-histogram is not too old, to
    ``hist.Hist``; `to_hist` works with older ones, too.
    """

    kind = "COUNT"

    def __init__(self, name: str, uhi: dict[str, Any]) -> None:
        self.name = name
        self._uhi = uhi
        self.axes: tuple[Axis, ...] = tuple(Axis(axis) for axis in uhi["axes"])
        storage = uhi["storage"]
        self._values: Values = np.asarray(storage["values"], dtype=np.float64)
        variances = storage.get("variances")
        self._variances: Optional[Values] = (
            None if variances is None else np.asarray(variances, dtype=np.float64)
        )

    def _view(self, array: Values, flow: bool) -> Values:
        inside = (slice(None) if flow else slice(1, -1),) * array.ndim
        return np.array(array[inside])

    def values(self, flow: bool = False) -> Values:
        """Entries, or the sum of weights, in each bin; with `flow` under- and overflow as well."""
        return self._view(self._values, flow)

    def variances(self, flow: bool = False) -> Values:
        """Variance of `values`."""
        return self._view(self._values if self._variances is None else self._variances, flow)

    def counts(self, flow: bool = False) -> Values:
        """Effective number of entries in each bin: the values themselves without weights."""
        values, variances = self.values(flow), self.variances(flow)
        squares = np.square(values)
        return np.divide(squares, variances, out=np.zeros_like(values), where=variances != 0)

    def total(self) -> float:
        """Sum over all bins, flow bins included."""
        return float(self._values.sum())

    def to_uhi(self) -> dict[str, Any]:
        """The histogram as a dictionary in UHI form, with lists as JSON has them."""
        return self._uhi

    def _to_uhi_(self) -> dict[str, Any]:
        # The hook by which boost-histogram and hist take histograms of other packages; they want
        # arrays where JSON has lists.
        storage = {**self._uhi["storage"], "values": self._stored("values")}
        if self._variances is not None:
            storage["variances"] = self._stored("variances")
        axes = [
            {**axis, "edges": np.asarray(axis["edges"], dtype=np.float64)}
            if "edges" in axis
            else dict(axis)
            for axis in self._uhi["axes"]
        ]
        return {**self._uhi, "axes": axes, "storage": storage}

    def _stored(self, key: str) -> npt.NDArray[Any]:
        return np.asarray(self._uhi["storage"][key])

    def to_boost(self) -> boost_histogram.Histogram[Any]:
        """A copy as a ``boost_histogram.Histogram``; needs that package."""
        from boost_histogram.serialization import from_uhi

        return from_uhi(self._to_uhi_())

    def to_hist(self) -> hist.Hist[Any]:
        """A copy as a ``hist.Hist``; needs that package."""
        import hist

        return hist.Hist(self.to_boost())

    def __repr__(self) -> str:
        axes = ", ".join(repr(axis) for axis in self.axes)
        return f"<livetime.Histogram {self.name!r}: {axes}; sum {self.total():g}>"

    def _repr_html_(self) -> Optional[str]:
        # A notebook falls back to the text where this is None.
        try:
            return str(self.to_hist()._repr_html_())
        except ImportError:
            return None
