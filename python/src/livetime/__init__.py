"""Livetime run files as numpy and awkward arrays.

``livetime.open("runs/000042")`` gives a `Run`; its methods return whole columns, never an object
per event. Nothing here prints.
"""

from . import candidates
from ._native import FormatError, LivetimeError, __version__
from .exports import ExportError, export
from .exports import read as read_export
from .filter_menu import FilterMenu, FilterPath, FilterStream
from .filters import EventBatch, FailedEvent, Filter, FilterError, Replay, filter, replay
from .front_end import FrontEnd, FrontEndError, RunEnded
from .histogram import Axis, Histogram
from .imports import Imported, SampleError, import_events
from .live_run import LiveRun, OrderError
from .run import EVENT_DTYPE, Damage, DataWarning, Kind, Run
from .run import open_run as open

__all__ = [
    "EVENT_DTYPE",
    "Axis",
    "Damage",
    "DataWarning",
    "EventBatch",
    "ExportError",
    "FailedEvent",
    "Filter",
    "FilterError",
    "FilterMenu",
    "FilterPath",
    "FilterStream",
    "FormatError",
    "FrontEnd",
    "FrontEndError",
    "Histogram",
    "Imported",
    "Kind",
    "LiveRun",
    "LivetimeError",
    "OrderError",
    "Replay",
    "Run",
    "RunEnded",
    "SampleError",
    "__version__",
    "candidates",
    "export",
    "filter",
    "import_events",
    "open",
    "read_export",
    "replay",
]
