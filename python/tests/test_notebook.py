"""The example notebooks run from start to end, and the first draws the Z where it is."""

import base64
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import livetime

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "z_peak.ipynb"


def test_it_is_stored_without_results():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


def test_it_draws_the_z_peak(sample, tmp_path, monkeypatch):
    monkeypatch.setenv("LIVETIME_RUN", str(sample.path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [o.data["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 2
    assert all(len(base64.b64decode(picture)) > 5000 for picture in pictures)
    text = "".join(output.get("text", "") for output in outputs)
    [line] = [line for line in text.splitlines() if line.startswith("peak at ")]
    peak = float(line.removeprefix("peak at ").split(" GeV, ")[0])
    assert abs(peak - 91.2) < 1.0


@pytest.mark.parametrize(
    "name, sentences",
    [
        ("z_peak", ["no muon pair between 60 and 120 GeV in 0 events: no peak"]),
        (
            "filters",
            [
                "no muon pair between 60 and 120 GeV in 0 events: no peak",
                "has no events: no four-lepton candidates",
                "has no events: there is none to fail on",
            ],
        ),
    ],
)
def test_a_run_without_events_is_said_in_a_sentence(
    name, sentences, sample, copy_of, tmp_path, monkeypatch
):
    empty = copy_of(sample.data[: len(sample.data) // 400])
    assert len(livetime.open(empty)) == 0
    monkeypatch.setenv("LIVETIME_RUN", str(empty))
    monkeypatch.delenv("LIVETIME_RUN_FOUR", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOK.with_name(f"{name}.ipynb"), as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    for sentence in sentences:
        assert sentence in text
