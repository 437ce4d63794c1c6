"""Waveforms for function generators: from a curve to coefficient sets with a stated error bound.

    from livetime.waveform import design

    ramp = design([(0, 0), (0.3, 0.8), (0.7, 0.8), (0.9, 0)], tolerance=1e-5)
    ramp.error      # largest difference from the curve, as a fraction of full scale
    ramp.sets       # numpy array: a, b, c, step, frequency, shift_a, shift_b
    ramp.plot()

A curve is a list of (seconds, value) points with straight lines between them, a formula of ``t``
such as ``"0.5 * (1 - cos(pi * t))"``, or a Python function that takes an array of seconds. Values
are fractions of full scale, -1 to 1. Corners belong on multiples of 125 us.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _native

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Units of the output at full scale.
FULL_SCALE = 2**31 - 1
#: Type of the array of coefficient sets.
SET_DTYPE = np.dtype(
    [
        ("a", "<i2"),
        ("b", "<i2"),
        ("c", "<i4"),
        ("step", "u1"),
        ("frequency", "u1"),
        ("shift_a", "u1"),
        ("shift_b", "u1"),
    ]
)
#: Highest sample frequency by its number, 2 MHz.
FREQUENCY_MAX = 7
#: Distance of the points at which Python functions are taken, seconds.
SAMPLE = 10e-6

#: Longest waveform, seconds.
DURATION_MAX = 3600

Curve = Union[str, Sequence["tuple[float, float]"], Callable[[np.ndarray], Any]]


@dataclass(frozen=True)
class Waveform:
    """A designed waveform."""

    #: The coefficient sets as bytes, 12 each.
    data: bytes
    #: Largest difference between output and curve at any moment, as a fraction of full scale. Of a
    #: Python function: from straight lines between its values every 10 us.
    error: float
    #: Where that difference is, seconds.
    error_at: float
    #: Length, seconds: that of the curve, rounded up to 125 us.
    duration: float
    _curve: Callable[[np.ndarray], np.ndarray]

    @property
    def sets(self) -> np.ndarray:
        """The coefficient sets as a structured array."""
        words = np.frombuffer(self.data, dtype="<u4").reshape(-1, 3)
        sets = np.empty(len(words), dtype=SET_DTYPE)
        sets["a"] = (words[:, 0] >> 16).astype("<u2").view("<i2")
        sets["b"] = (words[:, 0] & 0xFFFF).astype("<u2").view("<i2")
        sets["c"] = words[:, 1].view("<i4")
        places = (("step", 0, 3), ("frequency", 3, 3), ("shift_b", 6, 6), ("shift_a", 12, 6))
        for name, low, bits in places:
            sets[name] = (words[:, 2] >> low) & ((1 << bits) - 1)
        return sets

    def output(self, times: Any) -> np.ndarray:
        """What the generator puts out at these seconds, bit for bit, as fractions of full scale."""
        seconds = np.asarray(times, dtype=float)
        if not (seconds >= 0).all():
            raise ValueError("times are seconds from the start of the waveform, 0 or more")
        ns = np.rint(seconds * 1e9).astype("u8")
        values = _native.WaveformDesigner.output(self.data, ns.ravel().tolist())
        return np.asarray(values, dtype="i4").reshape(ns.shape) / FULL_SCALE

    def to_lines(self) -> str:
        """One line of seven numbers per set: a, shift_a, b, shift_b, c, step, frequency."""
        names = ("a", "shift_a", "b", "shift_b", "c", "step", "frequency")
        return "".join(" ".join(str(int(s[name])) for name in names) + "\n" for s in self.sets)

    def plot(self, axes: Axes | None = None, points: int = 1000) -> Axes:
        """Draws curve and output, and below the difference with its bound."""
        import matplotlib.pyplot as plt

        if axes is None:
            _, axes = plt.subplots()
        times = np.linspace(0, self.duration, points, endpoint=False)
        output = self.output(times)
        axes.plot(times, self._curve(times) * 100, label="curve")
        axes.plot(times, output * 100, "--", label=f"output, {len(self.data) // 12} sets")
        axes.set_xlabel("time [s]")
        axes.set_ylabel("output [% of full scale]")
        axes.set_title(f"error at most {self.error * 1e6:.3g} ppm of full scale")
        axes.legend()
        return axes


def design(
    curve: Curve,
    duration: float | None = None,
    *,
    tolerance: float = 1e-5,
    frequency: int | None = None,
) -> Waveform:
    """Designs a waveform.

    ``duration`` is in seconds and may be left out for points. ``tolerance`` is the largest error
    allowed, as a fraction of full scale; ``frequency`` fixes the sample frequency (0 to 7: 16 kHz
    to 2 MHz). Raises ValueError for another one, and :class:`livetime.LivetimeError` naming the
    place if the curve cannot be followed.
    """
    if frequency is not None and not 0 <= frequency <= FREQUENCY_MAX:
        raise ValueError(f"frequency is {frequency}, expected 0 to {FREQUENCY_MAX}")
    formula = None
    points: list[tuple[float, float]] = []
    if isinstance(curve, str):
        formula = curve
    elif callable(curve):
        if duration is None:
            raise TypeError("a function needs a duration")
        # Before so many points are made of it.
        if not 0 < duration <= DURATION_MAX:
            raise _native.LivetimeError(
                f"curve is {duration:g} s long, allowed is more than 0 s and at most {DURATION_MAX} s"
            )
        times = np.linspace(0, duration, int(np.ceil(duration / SAMPLE)) + 1)
        values = np.broadcast_to(np.asarray(curve(times), dtype=float), times.shape)
        points = [(float(t), float(v)) for t, v in zip(times, values)]
    else:
        points = [(float(t), float(v)) for t, v in curve]
        early = next(((n, t) for n, (t, _) in enumerate(points) if t < 0), None)
        if early is not None:
            raise _native.LivetimeError(f"point {early[0]} is at {early[1]:g} s, expected 0 or more")
        if duration is None:
            duration = max((t for t, _ in points), default=0.0)
    if duration is None:
        raise TypeError("a formula needs a duration")
    data, error, error_at, length = _native.WaveformDesigner.design(
        formula, points, FULL_SCALE, duration, tolerance * FULL_SCALE, frequency
    )
    return Waveform(bytes(data), error / FULL_SCALE, error_at, length, _drawn(curve, points))


def _drawn(curve: Curve, points: list[tuple[float, float]]) -> Callable[[np.ndarray], np.ndarray]:
    """The curve as a function for plots; a formula is drawn with numpy's functions."""
    if isinstance(curve, str):
        names = {"pi": np.pi, "e": np.e, "ln": np.log, "min": np.minimum, "max": np.maximum}
        names |= {n: getattr(np, n) for n in ("sin", "cos", "tan", "exp", "sqrt", "abs", "tanh")}
        code = compile(curve.replace("^", "**"), "formula", "eval")

        def formula(times: np.ndarray) -> np.ndarray:
            # The designer has read the formula, so it holds nothing but its few words.
            value = eval(code, {"__builtins__": {}}, names | {"t": times})  # noqa: S307
            return np.broadcast_to(np.asarray(value, dtype=float), times.shape)

        return formula
    times, values = np.array(points).T
    return lambda at: np.interp(at, times, values)


def to_block(waveforms: Iterable[Waveform]) -> bytes:
    """The waveforms of 1 to 64 channels as one block, for a master function generator."""
    channels = list(waveforms)
    if not 1 <= len(channels) <= 64:
        raise ValueError(f"a block has 1 to 64 channels, not {len(channels)}")
    counts = [len(waveform.data) // 12 for waveform in channels]
    header = struct.pack(f"<II{len(counts)}I", 0x4C544601, len(counts), *counts)
    return header + b"".join(waveform.data for waveform in channels)
