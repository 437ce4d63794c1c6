"""Event samples of other programs as recorded events."""

import os
import stat
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot

import livetime
from livetime.__main__ import main


def nano(path, muons, charges):
    """A file with the muon columns of NanoAOD."""
    counts = [len(row) for row in muons]
    flat = ak.unflatten(np.array(sum(muons, []), np.float32), counts)
    sign = ak.unflatten(np.array(sum(charges, []), np.int32), counts)
    muon = ak.zip({"pt": flat, "eta": flat * 0 + 0.5, "phi": flat * 0 - 1, "charge": sign})
    columns = {"run": np.full(len(muons), 7, np.uint32), "Muon": muon}
    with uproot.recreate(path) as file:
        file.mktree("Events", {"run": "uint32", "Muon": muon.type.content})
        file["Events"].extend(columns)


def test_muons_of_a_tree_become_rows_and_come_back(tmp_path):
    nano(tmp_path / "in.root", [[30.5, 12.25], [], [5.0]], [[1, -1], [], [-1]])
    done = livetime.import_events(tmp_path / "in.root", tmp_path / "out.csv")
    assert done == livetime.Imported(events=3, objects=3, objects_left_out=0)
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert rows[0] == "Run,Event,PID1,pt1,eta1,phi1,Q1,PID2,pt2,eta2,phi2,Q2"
    assert rows[1] == "7,1,-13,30.5,0.5,-1.0,1,13,12.25,0.5,-1.0,-1"
    assert rows[2] == "7,2,0,0,0,0,0,0,0,0,0,0"
    again = livetime.import_events(tmp_path / "out.csv", tmp_path / "again.csv")
    assert again == done
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()


def test_what_cannot_be_is_refused_with_its_place(tmp_path):
    nano(tmp_path / "in.root", [[30.5], [-3.0]], [[1], [1]])
    with pytest.raises(livetime.SampleError, match="event 2, pt of an object is -3.0"):
        livetime.import_events(tmp_path / "in.root", tmp_path / "out.csv")
    assert not list(tmp_path.glob("out*")), "nothing is left behind"
    with pytest.raises(livetime.SampleError, match="no tree Other"):
        livetime.import_events(tmp_path / "in.root", tmp_path / "out.csv", tree="Other")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(livetime.SampleError, match="no column pt1 among a, b"):
        livetime.import_events(tmp_path / "other.csv", tmp_path / "out.csv")
    (tmp_path / "bad.csv").write_text("Run,Event,pt1,eta1,phi1,Q1\n1,1,x,0,0,1\n")
    with pytest.raises(livetime.SampleError, match="line 2: "):
        livetime.import_events(tmp_path / "bad.csv", tmp_path / "out.csv")
    for row, place in [
        ("1,1,,,,\n\n1,2,30,,0,1", "line 4: eta1 is empty"),
        (f"1,{2**64},30,0,0,1", f"event 1, event is {2**64}, expected 0 to {2**64 - 1}"),
    ]:
        (tmp_path / "bad.csv").write_text(f"Run,Event,pt1,eta1,phi1,Q1\n{row}\n")
        with pytest.raises(livetime.SampleError, match=place):
            livetime.import_events(tmp_path / "bad.csv", tmp_path / "out.csv")
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(FileExistsError):
        livetime.import_events(tmp_path / "in.root", tmp_path / "out.csv")


def imported(tmp_path, text):
    (tmp_path / "in.csv").write_text(text)
    done = livetime.import_events(tmp_path / "in.csv", tmp_path / "out.csv", overwrite=True)
    rows = (tmp_path / "out.csv").read_text().splitlines()[1:]
    return done, [row.split(",") for row in rows]


def test_a_charge_is_taken_from_the_sign_of_the_kind_or_refused(tmp_path):
    head = "Run,Event,PID1,pt1,eta1,phi1"
    _, rows = imported(tmp_path, f"{head}\n1,1,-13,10,0,0\n1,2,11,10,0,0\n1,3,21,10,0,0\n")
    assert [row[2] + row[6] for row in rows] == ["-131", "11-1", "210"]
    for bad in ("nan", "0", "7"):
        with pytest.raises(livetime.SampleError, match="line 2: charge of an object is"):
            imported(tmp_path, f"{head},Q1\n1,1,13,10,0,0,{bad}\n")
    with pytest.raises(livetime.SampleError, match="line 2: neither Q1 nor PID1"):
        imported(tmp_path, "Run,Event,pt1,eta1,phi1\n1,1,10,0,0\n")
    columns = {"Muon_pt": [1.0], "Muon_eta": [0.0], "Muon_phi": [0.0]}
    with uproot.recreate(tmp_path / "in.root") as file:
        file["Events"] = {name: ak.Array([values]) for name, values in columns.items()}
    with pytest.raises(livetime.SampleError, match="event 1: no Muon_charge"):
        livetime.import_events(tmp_path / "in.root", tmp_path / "out.csv", overwrite=True)


def test_no_object_is_left_out_uncounted(tmp_path):
    done, rows = imported(
        tmp_path, "Run,Event,pt1,eta1,phi1,Q1,pt2,eta2,phi2,Q2\n1,1,,,,,20,0,0,1\n"
    )
    assert done == livetime.Imported(events=1, objects=1, objects_left_out=0)
    assert rows[0][3] == "20.0"
    names = [f"{name}{n}" for n in range(1, 31) for name in ("pt", "eta", "phi", "Q")]
    values = [value for n in range(1, 31) for value in (str(n), "0", "0", "1")]
    text = ",".join(["Run", "Event", *names]) + "\n" + ",".join(["1", "1", *values]) + "\n"
    done, rows = imported(tmp_path, text)
    assert done == livetime.Imported(events=1, objects=24, objects_left_out=6)
    assert rows[0][3] == "30.0"


def test_numbers_are_whole_and_what_the_program_takes(tmp_path):
    head = "Run,Event,PID1,pt1,eta1,phi1,Q1\n"
    events = ["5000000000", "9007199254740993", "-1", "7.0"]
    _, rows = imported(tmp_path, head + "".join(f"1,{n},13,5,0,0,-1\n" for n in events))
    found = [row[1] for row in rows]
    assert found == ["5000000000", "9007199254740993", "4294967295", "7"]
    for row, said in [
        ("1,1.5,13,5,0,0,-1", "line 2: 1.5 is no whole number"),
        ("1,1,99,5,0,0,-1", "PID of an object is 99"),
        ("1,1,13.7,5,0,0,-1", "line 2: 13.7 is no whole number"),
        ("1,1,inf,5,0,0,-1", "line 2: inf is no whole number"),
        ("-3,1,13,5,0,0,-1", "run is -3, expected 0 to 4294967295"),
    ]:
        with pytest.raises(livetime.SampleError, match=said):
            imported(tmp_path, head + row + "\n")


def test_what_an_export_writes_is_read_again(tmp_path, sample):
    run = livetime.open(sample.path)
    imported = {}
    for name, form in [("x.csv", "csv"), ("x.root", "root"), ("x.rntuple", "rntuple")]:
        livetime.export(run, tmp_path / name, format=form)
        done = livetime.import_events(tmp_path / name, tmp_path / f"of_{form}.csv")
        assert done.events == len(run)
        rows = (tmp_path / f"of_{form}.csv").read_text().splitlines()
        imported[form] = [row.split(",")[1:3] for row in rows[1:]]
    assert imported["csv"] == imported["root"] == imported["rntuple"]
    (tmp_path / "x.objects.csv").unlink()
    with pytest.raises(livetime.SampleError, match="x.objects.csv, which is not beside it"):
        livetime.import_events(tmp_path / "x.csv", tmp_path / "out.csv")


def test_numbers_of_events_of_a_csv_export_are_kept_whole(tmp_path):
    large = [2**32 + 5, 2**64 - 1]
    events = "".join(f"{trigger},0,1\n" for trigger in large)
    (tmp_path / "x.csv").write_text(f"trigger,mask_low,objects\n{events}")
    objects = "".join(f"{trigger},{row},1,9,0,0,1\n" for row, trigger in enumerate(large))
    (tmp_path / "x.objects.csv").write_text(f"trigger,row,kind,pt,eta,phi,charge\n{objects}")
    livetime.import_events(tmp_path / "x.csv", tmp_path / "out.csv")
    rows = (tmp_path / "out.csv").read_text().splitlines()[1:]
    assert [int(row.split(",")[1]) for row in rows] == large


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["Muon_pt", "Muon_eta"], "tree Events has Muon_pt and lacks Muon_phi"),
        (["Jet_pt", "Muon_pt", "Muon_phi"], "has Muon_pt, Jet_pt and lacks Muon_eta, Jet_eta, Jet_phi"),
        (["Muon_Px", "Muon_Pz"], "tree Events has Muon_Px and lacks Muon_Py"),
        (["object_pt", "object_eta"], "lacks object_kind, object_phi, object_charge"),
    ],
)
def test_columns_that_lack_are_named(tmp_path, columns, said):
    with uproot.recreate(tmp_path / "in.root") as file:
        lists = ak.Array([[30.0], [20.0]])
        file.mktree("Events", {name: lists.type.content for name in columns})
        file["Events"].extend({name: lists for name in columns})
    with pytest.raises(livetime.SampleError, match=said):
        livetime.import_events(tmp_path / "in.root", tmp_path / "out.csv")


def test_columns_have_one_name_each_and_rows_have_all_of_them(tmp_path):
    head = "Run,Event,PID1,pt1,eta1,phi1,Q1"
    for text, said in [
        (f"{head},pt1\n1,1,13,5,0,0,-1,6\n", "column pt1 is named twice"),
        (f"{head}, Run\n1,1,13,5,0,0,-1,1\n", "column Run is named twice"),
        (f"{head}\n1,1,13,5,0,0,-1,9\n", "line 2: 8 fields, expected 7"),
        (f"{head}\n1,1,13,5,0,0,-1\n1,2,13\n", "line 3: 3 fields, expected 7"),
    ]:
        with pytest.raises(livetime.SampleError, match=said):
            imported(tmp_path, text)
    done, _ = imported(tmp_path, f"{head},\n1,1,13,5,0,0,-1,\n")
    assert done.objects == 1


def test_the_files_of_an_export_are_held_against_each_other(tmp_path, sample):
    livetime.export(livetime.open(sample.path), tmp_path / "x.csv", format="csv")
    events = (tmp_path / "x.csv").read_text().splitlines()
    objects = (tmp_path / "x.objects.csv").read_text().splitlines()
    muon = next(at for at, line in enumerate(objects) if line.split(",")[2] == "1")
    foreign = ",".join(["999999", *objects[1].split(",")[1:]])
    for of_events, of_objects, said in [
        (events, objects[: len(objects) // 2], "objects, but x.objects.csv has "),
        (events, objects[: muon + 1] + objects[muon:], "objects, but x.objects.csv has "),
        (events, objects + objects[1:2], "row is 0, expected"),
        (events, [*objects, f"1,{len(events)},1,9,0,0,1,0"], "x.csv has no such event"),
        (events, [*objects[:-1], objects[1]], "is in|row is|objects, but"),
        (events[:3] + events[2:], objects, "of event|objects, but"),
        (events[:-1], objects, "objects, but|has no such event"),
        (events, [objects[0], foreign, *objects[2:]], "x.objects.csv: line 2: of event 999999"),
        (events, [*objects[:5], objects[5][:-3] + ",,,"], "line 6: "),
    ]:
        (tmp_path / "x.csv").write_text("\n".join(of_events) + "\n")
        (tmp_path / "x.objects.csv").write_text("\n".join(of_objects) + "\n")
        with pytest.raises(livetime.SampleError, match=said):
            livetime.import_events(tmp_path / "x.csv", tmp_path / "out.csv")
        assert not (tmp_path / "out.csv").exists()


def test_a_sample_is_not_written_over(tmp_path, sample):
    nano(tmp_path / "in.root", [[30.5]], [[1]])
    (tmp_path / "same.csv").symlink_to(tmp_path / "in.root")
    livetime.export(livetime.open(sample.path), tmp_path / "x.csv")
    for source, target, message in [
        ("in.root", "in.root", "is a file that is read here"),
        ("in.root", "same.csv", "is a file that is read here"),
        ("x.csv", "x.objects.csv", "is a file that is read here"),
        ("in.root", sample.path / "events.mcap", "is a run file"),
    ]:
        before = (tmp_path / target).read_bytes()
        with pytest.raises(livetime.SampleError, match=f"{message} and is not replaced"):
            livetime.import_events(tmp_path / source, tmp_path / target, overwrite=True)
        assert (tmp_path / target).read_bytes() == before


def test_only_a_plain_file_gives_way_to_recorded_events(tmp_path, capsys):
    nano(tmp_path / "in.root", [[30.5]], [[1]])
    os.mkfifo(tmp_path / "fifo.csv")
    (tmp_path / "mine.csv").write_text("mine")
    (tmp_path / "mine.csv.part").write_text("mine, too")
    for overwrite in (False, True):
        with pytest.raises(livetime.SampleError, match="fifo.csv is a FIFO and is not replaced"):
            livetime.import_events(
                tmp_path / "in.root", tmp_path / "fifo.csv", overwrite=overwrite
            )
    assert stat.S_ISFIFO((tmp_path / "fifo.csv").stat().st_mode)
    command = ["import", str(tmp_path / "in.root"), str(tmp_path / "mine.csv")]
    assert main(command) == 1
    assert "mine.csv is there already; ask for overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    assert (tmp_path / "mine.csv").read_text().startswith("Run,Event,")
    assert (tmp_path / "mine.csv.part").read_text() == "mine, too"


def test_files_of_other_formats_are_refused(tmp_path):
    for name, data in [
        ("x.parquet", b"PAR1\xff\xfe\x00"),
        ("x.hdf5", b"\x89HDF\r\n\x1a\n"),
        ("x.root", b"no file of ROOT" * 100),
        ("short.root", b"root"),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(livetime.SampleError, match=f"{name}: "):
            livetime.import_events(tmp_path / name, tmp_path / "out.csv")
        assert not (tmp_path / "out.csv").exists()


def test_recorded_collisions_of_a_root_file(tmp_path):
    folder = os.environ.get("LIVETIME_DATA")
    if not folder:
        pytest.skip("LIVETIME_DATA is not set")
    source = Path(folder) / "uproot-HZZ.root"
    done = livetime.import_events(source, tmp_path / "hzz.csv")
    with uproot.open(source) as file:
        tree = file["events"]
        count = int(ak.sum(tree["NMuon"].array()))
        assert done.events == tree.num_entries
        assert done.objects + done.objects_left_out >= count > 0
