"""Exports to every format, read back and compared event by event."""

import os

import awkward as ak
import h5py
import numpy as np
import pyarrow.parquet
import pytest
import uproot

import livetime
from livetime.__main__ import main
from livetime.exports import differing_events, table

# The sample has flagged fragments on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::livetime.DataWarning")

NAMES = ["out.root", "out.ntuple.root", "out.parquet", "out.h5", "out.csv"]


def expected(run, fragments):
    """The columns from the run itself, in one batch."""
    (batch,) = table.batches(run, len(run), fragments)
    return table.in_types(table.as_array(batch))


def same_types(a, b):
    assert a.fields == b.fields
    for name in a.fields:
        assert ak.type(a[name]) == ak.type(b[name]), name


@pytest.mark.parametrize(
    ("name", "fragments"),
    [(name, with_fragments) for name in NAMES for with_fragments in (False, True)][:-1],
    # CSV files hold no fragments.
)
def test_every_event_comes_back(run, tmp_path, name, fragments):
    calls = []
    count = livetime.export(
        run,
        tmp_path / name,
        format="rntuple" if "ntuple" in name else None,
        fragments=fragments,
        step=700,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert count == len(run) == 3000
    assert calls == [(min(700 * n, 3000), 3000) for n in range(1, 6)]
    again = livetime.read_export(tmp_path / name)
    same_types(again, expected(run, fragments))
    assert differing_events(run, again, step=1000) == 0
    assert not list(tmp_path.glob("*.part*"))


@pytest.mark.parametrize("name", ["out.root", "out.parquet"])
def test_a_step_has_no_more_events_than_their_fragments_allow(run, tmp_path, monkeypatch, name):
    sizes = run.events()["bytes"].astype(int)
    # As if the events were large: a step of 700 is too much at once.
    most = 500 * int(sizes.mean())
    allowed = {**livetime.Run.fragments.__kwdefaults__, "bytes_max": most}
    monkeypatch.setattr(livetime.Run.fragments, "__kwdefaults__", allowed)
    monkeypatch.setattr(table, "BATCH_BYTES_MAX", most)
    done = [0]
    livetime.export(
        run,
        tmp_path / name,
        fragments=True,
        step=700,
        progress=lambda now, total: done.append(now),
    )
    assert done[-1] == len(run)
    steps = [sizes[first:last] for first, last in zip(done, done[1:])]
    assert all(0 < step.sum() <= most for step in steps)
    # Not one by one either.
    assert len(steps) < 20
    assert differing_events(run, livetime.read_export(tmp_path / name), step=700) == 0


def test_an_event_that_is_too_large_for_a_step_is_one_alone(run, monkeypatch):
    monkeypatch.setattr(table, "BATCH_BYTES_MAX", 1)
    batches = list(table.batches(run, 700, True, 5))
    assert [batch["trigger"].tolist() for batch in batches] == [
        [trigger] for trigger in run.events(0, 5)["trigger"].tolist()
    ]


def test_a_difference_would_be_seen(run, tmp_path):
    livetime.export(run, tmp_path / "out.parquet")
    again = livetime.read_export(tmp_path / "out.parquet")
    wrong = ak.to_numpy(again.trigger).copy()
    wrong[17] += 1
    assert differing_events(run, ak.with_field(again, wrong, "trigger")) == 1
    assert differing_events(run, again[:-5]) == 5
    # A list of other length, and a number in a list.
    objects = again.object.to_list()
    rows = [row for row, of_event in enumerate(objects) if of_event][:2]
    objects[rows[0]].pop()
    objects[rows[1]][0]["pt"] += 1.0
    other = ak.with_field(again, ak.Array(objects), "object")
    assert differing_events(run, table.in_types(other)) == 2


def test_other_programs_find_the_columns_and_the_run(run, tmp_path):
    for name in NAMES:
        form = "rntuple" if "ntuple" in name else None
        livetime.export(run, tmp_path / name, format=form, step=1000)
    with uproot.open(tmp_path / "out.root") as file:
        tree = file["events"]
        assert tree.num_entries == 3000
        assert (tree["trigger"].array(library="np") == run.events()["trigger"]).all()
        assert {"nobject", "object_pt", "mask_low"} <= set(tree.keys())
        assert '"livetime.run": "42"' in str(file["run"])
    parquet = pyarrow.parquet.ParquetFile(tmp_path / "out.parquet")
    assert parquet.metadata.num_rows == 3000 and parquet.num_row_groups == 3
    assert parquet.schema_arrow.metadata[b"livetime.run"] == b"42"
    with h5py.File(tmp_path / "out.h5") as file:
        assert file.attrs["livetime.run"] == "42"
        assert file["object/pt"].shape[0] == int(file["object/count"][:].sum())
    header = (tmp_path / "out.csv").read_text().splitlines()[0]
    assert header.startswith("trigger,triggered_at_ns,fragments,")
    assert (tmp_path / "out.objects.csv").exists()


def test_an_empty_run_gives_empty_tables(tmp_path, copy_of, sample):
    run = livetime.open(copy_of(sample.data[: len(sample.data) // 400]))
    assert len(run) == 0
    for name in ["out.root", "out.parquet", "out.h5", "out.csv"]:
        assert livetime.export(run, tmp_path / name) == 0
        assert len(livetime.read_export(tmp_path / name)) == 0


@pytest.mark.parametrize("ending", ["root", "parquet", "h5", "csv"])
def test_what_a_run_lacks_is_said_once_with_the_exit_code(
    ending, tmp_path, sample, copy_of, capsys
):
    magic = (0x4C544556).to_bytes(4, "little")
    data = bytearray(sample.data)
    data[data.index(magic, len(data) // 2) + 400] ^= 4
    run = copy_of(bytes(data))
    target = tmp_path / f"out.{ending}"
    assert main(["export", str(run), str(target), "--verify"]) == 1
    said = capsys.readouterr()
    assert said.out == f"2999 events in {target}: 0 differ\n"
    lacking = "1 of 3000 events are damaged or missing in events.mcap"
    assert said.err == f"warning: {run}: {lacking}; `livetime inspect {run}` says where\n"


def test_what_is_there_is_kept_unless_asked(run, tmp_path):
    target = tmp_path / "out.csv"
    (tmp_path / "out.objects.csv").write_text("mine")
    with pytest.raises(FileExistsError, match="out.objects.csv is there already"):
        livetime.export(run, target)
    assert not target.exists()
    assert livetime.export(run, target, overwrite=True) == 3000


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda rows: rows[::-1], "line 2: object of event .* in row .*, but x.csv has event"),
        (lambda rows: rows[1:], "but x.csv has event .* there"),
        (lambda rows: rows[:5], "but x.csv has 5 rows"),
        (lambda rows: [], "but x.csv has 0 rows"),
    ],
)
def test_a_changed_csv_table_has_no_objects_of_other_events(run, tmp_path, change, message):
    livetime.export(run, tmp_path / "x.csv")
    head, *rows = (tmp_path / "x.csv").read_text().splitlines()
    (tmp_path / "x.csv").write_text("\n".join([head, *change(rows)]) + "\n")
    with pytest.raises(livetime.ExportError, match=message):
        livetime.read_export(tmp_path / "x.csv")


def test_a_csv_table_without_some_of_its_objects_is_refused(run, tmp_path):
    livetime.export(run, tmp_path / "x.csv")
    objects = (tmp_path / "x.objects.csv").read_text().splitlines()
    (tmp_path / "x.objects.csv").write_text("\n".join(objects[:-1]) + "\n")
    with pytest.raises(livetime.ExportError, match="objects, but x.objects.csv has"):
        livetime.read_export(tmp_path / "x.csv")
    (tmp_path / "x.objects.csv").write_text("\n".join([objects[0], *objects[:0:-1]]) + "\n")
    with pytest.raises(livetime.ExportError, match="x.csv was at row .* before"):
        livetime.read_export(tmp_path / "x.csv")


def test_no_file_of_a_run_is_written_over(sample, copy_of, tmp_path):
    directory = copy_of(sample.data)
    run = livetime.open(directory)
    os.link(directory / "events.mcap", tmp_path / "hard.csv")
    (tmp_path / "soft.h5").symlink_to(directory / "events.mcap")
    (tmp_path / "way").symlink_to(directory)
    (directory / "events.0001.mcap").write_bytes(b"damaged from its beginning")
    foreign = tmp_path / "another.mcap"
    foreign.write_bytes(sample.data)
    for target, message in [
        (directory / "events.mcap", "is a file that is read here"),
        (directory / "events.0001.mcap", "is a file that is read here"),
        (tmp_path / "hard.csv", "is a file that is read here"),
        (tmp_path / "soft.h5", "is a file that is read here"),
        (tmp_path / "way" / "events.mcap", "is a file that is read here"),
        (foreign, "is a run file"),
        (directory / "summary.json", "belongs to the run in its directory"),
    ]:
        before = target.read_bytes()
        with pytest.raises(livetime.ExportError, match=f"{message} and is not replaced"):
            livetime.export(run, target, format="csv", overwrite=True)
        assert target.read_bytes() == before
    # What else is there may be replaced, also beside the run.
    (directory / "table.csv").write_text("mine")
    assert livetime.export(run, directory / "table.csv", overwrite=True) == 3000


@pytest.mark.parametrize(
    "name, objects",
    [
        ("out.CSV", "out.objects.CSV"),
        ("out.txt", "out.objects.txt"),
        ("run.csv-old.csv", "run.csv-old.objects.csv"),
        ("out", "out.objects"),
    ],
)
def test_the_two_tables_of_a_csv_export_have_two_names(run, tmp_path, name, objects):
    assert livetime.export(run, tmp_path / name, format="csv") == 3000
    assert {path.name for path in tmp_path.iterdir()} == {name, objects}
    again = livetime.read_export(tmp_path / name, format="csv")
    assert differing_events(run, again) == 0


def test_a_damaged_event_is_no_difference_whatever_the_step(tmp_path, sample, copy_of):
    data = bytearray(sample.data)
    magic = (0x4C54_4556).to_bytes(4, "little")
    for share in (4, 2):
        data[data.index(magic, len(data) // share) + 400] ^= 4
    damaged = livetime.open(copy_of(bytes(data)))
    with pytest.warns(livetime.DataWarning):
        assert livetime.export(damaged, tmp_path / "out.parquet") == 2998
        again = livetime.read_export(tmp_path / "out.parquet")
        for step in (10_000, 100, 7):
            assert differing_events(damaged, again, step=step) == 0
            assert differing_events(damaged, again[:-3], step=step) == 3
    assert damaged.shortfall() == "2 of 3000 events are damaged or missing in events.mcap"


def test_impossible_exports_are_refused_before_anything_is_written(run, tmp_path):
    for options, message in [
        ({"path": "out.xml"}, "ends in '.xml', expected one of .root"),
        ({"path": "out.root", "format": "excel"}, "format is 'excel', expected one of root"),
        ({"path": "out.root", "step": 0}, "step is 0, expected 1 or more"),
        ({"path": "out.csv", "fragments": True}, "no place for fragments"),
    ]:
        path = tmp_path / options.pop("path")
        with pytest.raises(livetime.ExportError, match=message):
            livetime.export(run, path, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_export_leaves_nothing_behind(run, tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    for name in ["out.root", "out.parquet", "out.h5", "out.csv"]:
        with pytest.raises(KeyboardInterrupt):
            livetime.export(run, tmp_path / name, step=1000, progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_from_the_shell(run, tmp_path, capsys):
    from livetime.__main__ import main

    target = tmp_path / "out.parquet"
    assert main(["export", str(run.file), str(target), "--step", "1000"]) == 0
    assert capsys.readouterr().out == f"3000 events in {target}\n"
    assert len(livetime.read_export(target)) == 3000
    again = ["export", str(run.file), str(target), "--overwrite", "--fragments", "--verify"]
    assert main(again) == 0
    assert capsys.readouterr().out == f"3000 events in {target}: 0 differ\n"
    assert main(["export", str(run.file), str(target)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "none"), str(target), "--overwrite"]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(SystemExit) as wrong:
        main(["export", str(run.file), str(target), "--format", "excel"])
    assert wrong.value.code == 2


@pytest.mark.parametrize("name", ["out.csv", "out.objects.csv"])
def test_a_csv_file_that_was_cut_within_a_line_is_refused(run, tmp_path, name):
    livetime.export(run, tmp_path / "out.csv")
    whole = (tmp_path / name).read_bytes()
    for cut in range(1, 40):
        if whole[:-cut].endswith(b"\n"):
            continue
        (tmp_path / name).write_bytes(whole[:-cut])
        with pytest.raises(livetime.ExportError, match=f"{name}: the last line has no end"):
            livetime.read_export(tmp_path / "out.csv")


def test_a_csv_value_that_is_none_is_refused(run, tmp_path):
    livetime.export(run, tmp_path / "out.csv")
    whole = (tmp_path / "out.csv").read_bytes()
    first, rest = whole.split(b"\r\n", 1)
    for wrong in (first + b"\r\nx" + rest, first + b"\r\n1\r\n" + rest, b"a,b\r\n" + rest):
        (tmp_path / "out.csv").write_bytes(wrong)
        with pytest.raises(livetime.ExportError, match=r"out.csv: a value is not as it was exported"):
            livetime.read_export(tmp_path / "out.csv")
