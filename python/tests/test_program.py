"""A run taken by the program itself: what Python reads is what the program counted."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import livetime

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(os.environ.get("LIVETIME_PROGRAM", ROOT / "target" / "release" / "livetime"))


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built")
def test_a_run_of_the_program(tmp_path):
    config = ROOT / "examples" / "dimuon.toml"
    directory = tmp_path / "run"
    options = ["--triggers", "2000", "--lossless", "--out", str(directory)]
    command = [str(PROGRAM), "run", str(config), *options]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    run = livetime.open(directory)
    assert run.complete
    assert run.damage == []
    counts = run.summary["counts"]
    assert counts["triggers"] == 2000
    events = run.events()
    assert len(events) == counts["events_stored"] > 0
    assert events["incomplete"].sum() == 0
    assert (events["fragments"] == 8).all()
    # The decision after prescale: every stored event was accepted by some path.
    assert np.any(list(run.fired().values()), axis=0).all()
    mass = run.dimuon_mass()
    assert 85 < np.nanmedian(mass) < 97
    decided = run.histograms["decision_latency"]
    assert decided.total() == 2000
    assert decided.axes[0].scale == "log"
