"""What an export puts under a name, what it leaves there, and what two of them do at once."""

import errno
import fcntl
import os
import socket
import stat
import threading

import pytest

import livetime
from livetime import output_file
from livetime.exports import differing_events

# The sample has flagged fragments on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::livetime.DataWarning")

ENDINGS = ["root", "rntuple", "parquet", "h5", "csv"]


@pytest.fixture
def other_run(sample, tmp_path_factory):
    """A run with other events: the first half of the sample."""
    directory = tmp_path_factory.mktemp("other")
    (directory / "events.mcap").write_bytes(sample.data[: len(sample.data) // 2])
    return livetime.open(directory)


@pytest.mark.parametrize("overwrite", [False, True])
def test_only_a_plain_file_is_replaced(run, tmp_path, monkeypatch, overwrite):
    # The path of a socket may not be long.
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "fifo.csv")
    (tmp_path / "folder.csv").mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket.csv")
    (tmp_path / "nothing.csv").symlink_to(tmp_path / "gone")
    (tmp_path / "way.csv").symlink_to("fifo.csv")
    names = sorted(os.listdir(tmp_path))
    for name, kind in [
        ("fifo.csv", "is a FIFO"),
        ("folder.csv", "is a directory"),
        ("socket.csv", "is a socket"),
        ("nothing.csv", "is a link to nothing"),
        ("way.csv", "is a FIFO"),
    ]:
        before = (tmp_path / name).lstat()
        with pytest.raises(livetime.ExportError, match=f"{name} {kind} and is not replaced"):
            livetime.export(run, tmp_path / name, format="parquet", overwrite=overwrite)
        assert os.path.samestat((tmp_path / name).lstat(), before)
    with pytest.raises(livetime.ExportError, match="out.objects.csv is a FIFO"):
        os.mkfifo(tmp_path / "out.objects.csv")
        livetime.export(run, tmp_path / "out.csv", overwrite=overwrite)
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "out.objects.csv"])


def test_a_device_is_not_replaced(run, tmp_path):
    # A node of our own, with the numbers of the one that takes everything.
    try:
        os.mknod(tmp_path / "device.h5", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no device nodes can be made here")
    with pytest.raises(livetime.ExportError, match="device.h5 is a character device"):
        livetime.export(run, tmp_path / "device.h5", overwrite=True)
    assert stat.S_ISCHR((tmp_path / "device.h5").stat().st_mode)


def test_a_link_stays_and_the_file_that_it_leads_to_is_replaced(run, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file.csv").write_text("mine")
    (tmp_path / "out.parquet").symlink_to("there/file.csv")
    with pytest.raises(FileExistsError, match="out.parquet is there already"):
        livetime.export(run, tmp_path / "out.parquet")
    assert livetime.export(run, tmp_path / "out.parquet", overwrite=True) == 3000
    assert (tmp_path / "out.parquet").is_symlink()
    assert differing_events(run, livetime.read_export(tmp_path / "out.parquet")) == 0
    assert os.listdir(tmp_path / "there") == ["file.csv"]
    (tmp_path / "one.csv").symlink_to("there/file.csv")
    (tmp_path / "one.objects.csv").symlink_to("there/file.csv")
    with pytest.raises(livetime.ExportError, match="are the same file"):
        livetime.export(run, tmp_path / "one.csv", overwrite=True)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_beside_the_target_is_no_business_of_an_export(
    ending, sample, copy_of, tmp_path
):
    run = livetime.open(copy_of(sample.data))
    mine = tmp_path / f"out.{ending}.part"
    mine.write_text("mine")
    (tmp_path / f"more.{ending}.part").symlink_to(run.file)
    assert livetime.export(run, tmp_path / f"out.{ending}") == 3000
    assert livetime.export(run, tmp_path / f"more.{ending}") == 3000
    assert mine.read_text() == "mine"
    assert run.file.read_bytes() == sample.data


@pytest.mark.parametrize("ending", ENDINGS)
def test_of_two_exports_to_one_name_the_last_one_to_end_is_there(
    ending, run, other_run, tmp_path
):
    target, inner = tmp_path / f"out.{ending}", []

    def meanwhile(done, total):
        if not inner:
            inner.append(livetime.export(other_run, target, step=300, overwrite=True))
            assert differing_events(other_run, livetime.read_export(target)) == 0

    assert livetime.export(run, target, step=500, overwrite=True, progress=meanwhile) == 3000
    assert inner == [len(other_run)] and inner != [3000]
    assert differing_events(run, livetime.read_export(target)) == 0
    assert not list(tmp_path.glob(".livetime-*"))


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("appears", ["out.csv", "out.objects.csv"])
def test_a_file_that_appears_meanwhile_stays(run, tmp_path, monkeypatch, appears, has_links):
    def no_link(*_, **__):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    if not has_links:
        monkeypatch.setattr(output_file.os, "link", no_link)
    progress = lambda done, total: (tmp_path / appears).write_text("mine")  # noqa: E731
    with pytest.raises(FileExistsError, match=f"{appears} is there already"):
        livetime.export(run, tmp_path / "out.csv", progress=progress)
    assert [path.name for path in tmp_path.iterdir()] == [appears]
    assert (tmp_path / appears).read_text() == "mine"
    assert livetime.export(run, tmp_path / "other.csv") == 3000
    assert differing_events(run, livetime.read_export(tmp_path / "other.csv")) == 0


@pytest.mark.parametrize("has_links", [True, False])
def test_a_name_that_is_taken_at_the_last_moment_is_not_replaced(
    run, tmp_path, monkeypatch, has_links
):
    publish = output_file._publish

    def late(parts, overwrite):
        # After everything was looked at.
        (tmp_path / "out.objects.csv").write_text("mine")
        publish(parts, overwrite)

    def no_link(*_, **__):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(output_file, "_publish", late)
    if not has_links:
        monkeypatch.setattr(output_file.os, "link", no_link)
    with pytest.raises(FileExistsError, match="out.objects.csv is there already"):
        livetime.export(run, tmp_path / "out.csv")
    assert {path.name for path in tmp_path.iterdir()} == {"out.objects.csv"}
    assert (tmp_path / "out.objects.csv").read_text() == "mine"


def test_a_name_that_was_kept_for_a_file_is_free_again_if_it_cannot_have_it(
    run, tmp_path, monkeypatch
):
    def fails(*_, **__):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(output_file.os, "link", fails)
    monkeypatch.setattr(output_file.os, "replace", fails)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        livetime.export(run, tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_what_appears_and_is_no_plain_file_stays_even_with_overwrite(run, tmp_path):
    def appears(done, total):
        os.mkfifo(tmp_path / "out.h5")

    with pytest.raises(livetime.ExportError, match="out.h5 is a FIFO"):
        livetime.export(run, tmp_path / "out.h5", overwrite=True, progress=appears)
    assert os.listdir(tmp_path) == ["out.h5"]


def test_the_pairs_of_two_exports_are_not_mixed(run, other_run, tmp_path, monkeypatch):
    """The second one comes when the first has given one of its two files its name."""
    target, order, comes = tmp_path / "out.csv", [], threading.Event()
    lock, replace = fcntl.flock, os.replace
    second = threading.Thread(
        target=livetime.export, args=(other_run, target), kwargs={"overwrite": True}
    )

    def locking(descriptor, operation):
        if threading.current_thread() is second:
            comes.set()
        lock(descriptor, operation)

    def replacing(part, end):
        is_second = threading.current_thread() is second
        if not is_second and not order:
            second.start()
            assert comes.wait(60)
        replace(part, end)
        order.append("second" if is_second else "first")

    monkeypatch.setattr(output_file.fcntl, "flock", locking)
    monkeypatch.setattr(output_file.os, "replace", replacing)
    assert livetime.export(run, target, overwrite=True) == 3000
    second.join()
    assert order == ["first", "first", "second", "second"]
    assert differing_events(other_run, livetime.read_export(target)) == 0


def test_what_is_left_of_an_export_that_was_killed_can_be_told(run, tmp_path):
    seen = []

    def look(done, total):
        seen.extend(path.name for path in tmp_path.iterdir())

    longest = tmp_path / ("x" * 247 + ".parquet")
    assert livetime.export(run, longest, progress=look) == 3000
    (name,) = seen
    assert name.startswith(".livetime-") and name.endswith(".part")
    assert stat.S_IMODE(longest.stat().st_mode) == 0o666 & ~_umask()
    with pytest.raises(FileNotFoundError, match="none/out.h5'"):
        livetime.export(run, tmp_path / "none" / "out.h5")


def _umask():
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_name_need_not_be_text(ending, run, tmp_path, capsys):
    from livetime.__main__ import main

    target = os.fsdecode(os.fsencode(tmp_path) + b"/n\xe9x." + ending.encode())
    assert livetime.export(run, target) == 3000
    assert differing_events(run, livetime.read_export(target)) == 0
    assert main(["export", str(run.file), target, "--overwrite", "--verify"]) == 0
    assert capsys.readouterr().out.endswith(f"n\\udce9x.{ending}: 0 differ\n")


def test_a_foreign_file_is_no_export(run, tmp_path):
    import h5py
    import pyarrow
    import pyarrow.parquet
    import uproot

    pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2]}), tmp_path / "table.parquet")
    with uproot.recreate(tmp_path / "tree.root") as file:
        file["events"] = {"x": [1, 2]}
    with uproot.recreate(tmp_path / "none.root") as file:
        file["other"] = {"x": [1, 2]}
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"] = [1, 2]
    (tmp_path / "alone.csv").write_text("a,b\n1,2\n")
    for name in ENDINGS:
        (tmp_path / f"junk.{name}").write_bytes(b"junk" * 200)
        (tmp_path / f"empty.{name}").write_bytes(b"")
        livetime.export(run, tmp_path / f"whole.{name}")
        cut = (tmp_path / f"whole.{name}").read_bytes()[:-1000]
        (tmp_path / f"cut.{name}").write_bytes(cut)
    foreign = [path for path in tmp_path.iterdir() if not path.name.startswith("whole.")]
    assert len(foreign) == 5 + 3 * len(ENDINGS)
    for path in foreign:
        with pytest.raises(livetime.ExportError, match=path.name):
            livetime.read_export(path)
    for name in ENDINGS:
        with pytest.raises(FileNotFoundError, match=f"gone.{name}"):
            livetime.read_export(tmp_path / f"gone.{name}")


@pytest.mark.parametrize("ending", ENDINGS)
def test_events_that_are_written_meanwhile_are_not_exported(ending, sample, tmp_path):
    file = tmp_path / "run" / "events.mcap"
    file.parent.mkdir()
    file.write_bytes(sample.data[: len(sample.data) // 2])
    growing, calls = livetime.open(file.parent), []
    before = len(growing)

    def refresh(done, total):
        if not calls:
            file.write_bytes(sample.data)
            growing.refresh()
        calls.append((done, total))

    target = tmp_path / f"out.{ending}"
    assert livetime.export(growing, target, step=before - 10, progress=refresh) == before
    assert calls == [(before - 10, before), (before, before)]
    assert len(growing) > before == len(livetime.read_export(target))
