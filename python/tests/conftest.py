"""The run that the tests read: written once by the Rust program in `sample_run`, with its truth."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import livetime

EVENTS = 3000
PACKAGE = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def make_sample():
    """Makes a run directory like that of the sample run, with so many events."""

    def make(directory, events):
        cargo = os.environ.get("CARGO", "cargo")
        command = [cargo, "run", "--release", "--quiet", "--package", "sample_run", "--"]
        subprocess.run([*command, str(directory), str(events)], cwd=PACKAGE, check=True)

    return make


@pytest.fixture(scope="session")
def sample(tmp_path_factory, make_sample):
    """Directory, file bytes and truth of the sample run."""
    directory = tmp_path_factory.mktemp("runs") / "000042"
    make_sample(directory, EVENTS)
    truth = json.loads((directory / "truth.json").read_text())
    data = (directory / "events.mcap").read_bytes()
    return SimpleNamespace(path=directory, truth=truth, data=data)


@pytest.fixture(scope="session")
def run(sample):
    return livetime.open(sample.path)


@pytest.fixture
def copy_of(sample, tmp_path):
    """Makes a run directory with other bytes in its run file."""

    def copy(data, summary=True):
        directory = tmp_path / "000042"
        directory.mkdir(exist_ok=True)
        (directory / "events.mcap").write_bytes(data)
        shutil.copy(sample.path / "config.toml", directory)
        if summary:
            shutil.copy(sample.path / "summary.json", directory)
        return directory

    return copy
