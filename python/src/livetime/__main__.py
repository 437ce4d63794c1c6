"""``python -m livetime export RUN OUT``: the events of a run in another format; and
``python -m livetime import FILE OUT``: an event sample of another program as a source.

The result goes to standard output, progress to standard error; what cannot be done ends with
status 1, a wrong command line with 2.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Optional, Sequence

import awkward as ak

from ._native import LivetimeError, __version__
from .exports import FORMATS, ExportError, differing_events, export, read
from .filters import plain
from .imports import SampleError, import_events
from .run import DataWarning, open_run


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs a command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m livetime")
    parser.add_argument("--version", action="version", version=f"livetime {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export", help="the events of a run in another format")
    exporting.add_argument("run", help="run directory, or its events.mcap")
    exporting.add_argument("out", help="file to write; its ending says the format")
    exporting.add_argument("--format", choices=sorted(FORMATS))
    exporting.add_argument("--fragments", action="store_true", help="with the words of fragments")
    exporting.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    exporting.add_argument("--step", type=int, default=10_000, help="most events in memory at a time")
    exporting.add_argument(
        "--verify", action="store_true", help="read the file back and compare each event"
    )
    importing = commands.add_parser("import", help="an event sample as recorded events")
    importing.add_argument("file", help="ROOT or CSV file")
    importing.add_argument("out", help="CSV file of recorded events to write")
    importing.add_argument("--tree", help="name of the TTree or RNTuple")
    importing.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    if given.command == "import":
        return _import(given)
    # What is damaged is said once, at the end.
    warnings.filterwarnings("ignore", message=".* events are damaged", category=DataWarning)
    try:
        run = open_run(given.run)
        count = export(
            run,
            given.out,
            format=given.format,
            fragments=given.fragments,
            step=given.step,
            overwrite=given.overwrite,
            progress=_progress if sys.stderr.isatty() else None,
        )
        differing = differing_events(run, _again(given), given.step) if given.verify else None
        lacking = run.shortfall()
    except (ExportError, LivetimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"error: {error}; pip install 'livetime[export]' brings it", file=sys.stderr)
        return 1
    verdict = "" if differing is None else f": {differing} differ"
    print(plain(f"{count} events in {given.out}{verdict}"))
    if lacking is not None:
        says_where = f"`livetime inspect {given.run}` says where"
        print(f"warning: {given.run}: {lacking}; {says_where}", file=sys.stderr)
    return 1 if differing or lacking is not None else 0


def _import(given: argparse.Namespace) -> int:
    try:
        done = import_events(given.file, given.out, tree=given.tree, overwrite=given.overwrite)
    except (SampleError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"error: {error}; pip install 'livetime[export]' brings it", file=sys.stderr)
        return 1
    print(plain(f"{done.events} events, {done.objects} objects in {given.out}"))
    if done.objects_left_out:
        print(f"warning: {done.objects_left_out} objects left out", file=sys.stderr)
    return 0


def _again(given: argparse.Namespace) -> ak.Array:
    return read(given.out, format=given.format)


def _progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\r{done} of {total} events", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
