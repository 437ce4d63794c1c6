"""Livetime run files as numpy and awkward arrays.

``livetime.open("runs/000042")`` gives a `Run`; its methods return whole columns, never an object
per event. Nothing here prints.
"""

from ._native import FormatError, LivetimeError
from .histogram import Axis, Histogram
from .run import EVENT_DTYPE, Damage, DataWarning, Kind, Run
from .run import open_run as open

__all__ = [
    "EVENT_DTYPE",
    "Axis",
    "Damage",
    "DataWarning",
    "FormatError",
    "Histogram",
    "Kind",
    "LivetimeError",
    "Run",
    "open",
]
