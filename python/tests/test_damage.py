"""Runs that are growing, cut off, damaged, foreign or not there."""

import json
import os
import pickle

import numpy as np
import pytest

import livetime

pytestmark = pytest.mark.filterwarnings("ignore::livetime.DataWarning")


def rows(run):
    """The triggers of all rows, after checking that every table has the same rows."""
    events = run.events()
    count = len(events)
    for table in (run.decisions(), run.objects(), run.fragments(), run.missing()):
        assert len(table) == count
    assert run.dimuon_mass().shape == (count,)
    return events["trigger"].tolist()


def test_a_path_that_is_not_there_is_the_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        livetime.open(tmp_path / "000007")
    assert error.value.filename == str(tmp_path / "000007")
    with pytest.raises(FileNotFoundError, match="events.mcap"):
        livetime.open(tmp_path)


@pytest.mark.parametrize("data", [b"", b"# a text\n" * 999, b"\x89MCAP0\r\n", bytes(100_000)])
def test_foreign_files_are_refused(tmp_path, data):
    path = tmp_path / "foreign.mcap"
    path.write_bytes(data)
    with pytest.raises(livetime.FormatError, match="not a run file") as error:
        livetime.open(path)
    assert str(path) in str(error.value)
    assert isinstance(error.value, livetime.LivetimeError)


def test_a_cut_file_gives_what_is_complete(sample, copy_of):
    found = []
    for share in (0.999, 0.9, 0.5, 0.1):
        cut = livetime.open(copy_of(sample.data[: int(len(sample.data) * share)], summary=False))
        triggers = rows(cut)
        # The first is cut behind its end-of-run record, on which no event depends.
        assert cut.complete == (cut.end is not None) == (len(triggers) == 3000)
        assert cut.end is None if share < 0.9 else True
        assert cut.summary is None
        assert cut.config["run"] == {"seed": 7}
        assert triggers == sorted(set(triggers) & set(sample.truth["trigger"]))
        assert len(cut) == len(triggers)
        found.append(len(triggers))
    assert found == sorted(found, reverse=True)
    assert 0 < found[-1] < found[1] < 3000
    assert cut.condition == "INTERRUPTED"
    assert "still being written, or cut off" in str(cut)
    assert repr(cut).endswith("INTERRUPTED>")
    [damage] = cut.damage
    assert damage.offset + damage.bytes == int(len(sample.data) * 0.1)
    assert "cut off" in damage.reason


def test_every_short_prefix_is_refused_or_read(sample, copy_of):
    outcomes = set()
    for length in range(0, 8000, 97):
        directory = copy_of(sample.data[:length])
        try:
            run = livetime.open(directory)
        except livetime.FormatError:
            outcomes.add("refused")
        else:
            assert rows(run) == []
            assert not run.complete
            outcomes.add("read")
    assert outcomes == {"refused", "read"}


def test_a_growing_file_is_followed(sample, copy_of):
    half = len(sample.data) // 2
    directory = copy_of(sample.data[:half], summary=False)
    run = livetime.open(directory)
    first = rows(run)
    assert run.histograms == {}
    with open(run.file, "ab") as file:
        file.write(sample.data[half:])
    assert rows(run) == first, "nothing changes without refresh"
    run.refresh()
    # New events are behind those that were there, though some have lower trigger numbers.
    grown = rows(run)
    assert grown[: len(first)] == first
    assert grown != sample.truth["trigger"]
    assert sorted(grown) == sample.truth["trigger"]
    assert run.events(len(first))["trigger"].tolist() == grown[len(first) :]
    assert rows(livetime.open(directory)) == sample.truth["trigger"]
    assert run.end["events_stored"] == 3000
    assert run.complete
    assert run.damage == []
    assert list(run.histograms) == ["dimuon_mass", "time_objects"]


def test_a_flipped_bit_costs_one_event_and_is_listed(sample, copy_of):
    # The events of the sample are found by their magic word; one in the middle is hit.
    magic = (0x4C544556).to_bytes(4, "little")
    at = sample.data.index(magic, len(sample.data) // 2)
    data = bytearray(sample.data)
    data[at + 400] ^= 4
    run = livetime.open(copy_of(bytes(data)))
    assert run.damage == []
    triggers = rows(run)
    [lost] = set(sample.truth["trigger"]) - set(triggers)
    assert triggers == sorted(triggers)
    assert len(run) == 3000
    # The event, and the chunk around it, which was searched for another copy of it.
    [damage] = [damage for damage in run.damage if damage.offset == at]
    assert "CRC" in damage.reason
    assert all(one.offset <= at < one.offset + one.bytes for one in run.damage)
    assert not run.complete
    assert run.condition == "TAINTED|INCOMPLETE"
    assert f"bytes at {at}" in str(run)
    row = sample.truth["trigger"].index(lost)
    assert len(run.events(row, row + 1)) == 0
    # Going through the chunks finds the same events.
    found = run.inspect()
    assert (found["events"], found["events_missing"]) == (2999, 1)
    assert run.shortfall() == "1 of 3000 events are damaged or missing in events.mcap"
    with pytest.warns(livetime.DataWarning, match="1 of 3000 events are damaged"):
        run.events()

    def all_of_them(events):
        return events.events["trigger"] > 0

    # All others are filtered.
    with pytest.warns(livetime.DataWarning) as warned:
        done = livetime.replay(run, all_of_them)
    assert [str(warning.message) for warning in warned] == [
        "1 of 3000 events are damaged and were not filtered; Run.damage says where"
    ]
    assert warned[0].filename == __file__
    assert (done.damaged, done.failed) == ([row], [])
    assert (int(done.keep.sum()), done.dropped, done.events) == (2999, 0, 3000)
    assert "1 events are damaged or missing" in str(done)


def test_masks_of_a_filter_fit_the_rows_of_a_damaged_run(sample, copy_of):
    magic = (0x4C544556).to_bytes(4, "little")
    data = bytearray(sample.data)
    for share in (4, 3, 2):
        data[data.index(magic, len(data) // share) + 400] ^= 4
    run = livetime.open(copy_of(bytes(data)))
    triggers = run.events()["trigger"]
    failing = int(triggers[-1])

    def odd(events):
        of_batch = events.events["trigger"]
        if failing in of_batch:
            raise ValueError
        return {"odd": of_batch % 2 == 1, "third": of_batch % 3 == 0}

    for batch in (3000, 7):
        done = livetime.replay(run, odd, batch=batch)
        assert len(done.damaged) == 3 and done.events == 3000
        kept = triggers[done.keep]
        good = [trigger for trigger in triggers.tolist() if trigger != failing]
        assert kept.tolist() == [t for t in good if t % 2 == 1 or t % 3 == 0]
        assert (triggers[done.tags["third"]] % 3 == 0).all()
        assert done.dropped == len(triggers) - len(kept) - 1
        [event] = done.failed
        assert run.events(event.row, event.row + 1)["trigger"].tolist() == [failing]
    # Of a part: places of the run are counted, and the masks are as its rows.
    first = done.damaged[0]
    part = livetime.replay(run, odd, start=first - 2, stop=first + 4)
    assert part.damaged == [first] and len(part.keep) == len(run.events(first - 2, first + 4)) == 5


def test_events_that_are_not_where_the_index_says_are_found(sample, copy_of):
    # One byte is lost and another one put in further on: the file is as long as it was, and its
    # summary is believed.
    index = sample.data.rindex(b"event-index", 0, len(sample.data) - 2000) - 29
    third = index // 3
    for gone, come in [(20, index), (third, 2 * third), (2 * third, third), (third, third + 3000)]:
        data = bytearray(sample.data)
        del data[gone]
        data[come - 1 : come - 1] = b"\0"
        run = livetime.open(copy_of(bytes(data)))
        triggers = rows(run)
        lost = 3000 - len(triggers)
        assert lost <= (0 if gone == 20 else 4)
        assert set(triggers) <= set(sample.truth["trigger"])
        found = run.inspect()
        assert (found["events"], found["events_missing"]) == (len(triggers), lost)
        assert run.end["events_stored"] == 3000
        assert list(run.histograms) == ["dimuon_mass", "time_objects"]
        if lost == 0:
            assert run.shortfall() is None
        else:
            said = f"{lost} of 3000 events are damaged or missing in events.mcap"
            assert run.shortfall() == said


def test_a_file_without_a_chunk_is_named_as_one_that_is_there(sample, copy_of):
    directory = copy_of(sample.data)
    (directory / "events.mcap").rename(directory / "events.0001.mcap")
    (directory / "events.mcap").write_bytes(b"")
    run = livetime.open(directory)
    assert run.shortfall() == "without any chunk of a run file: events.mcap"
    assert run.damage[0] == livetime.Damage(0, 0, "events.mcap: no chunk of a run file is in it")
    assert not run.complete


def test_a_damaged_index_is_rebuilt(sample, copy_of):
    at = sample.data.rindex(b"event-index", 0, len(sample.data) - 2000)
    data = bytearray(sample.data)
    data[at + 200] ^= 1
    run = livetime.open(copy_of(bytes(data)))
    assert rows(run) == sample.truth["trigger"]


def test_flips_anywhere_never_give_wrong_values(sample, copy_of):
    truth = dict(zip(sample.truth["trigger"], sample.truth["mass"]))
    seed = 20261120
    random = np.random.default_rng(seed)
    for place in random.integers(0, len(sample.data) * 8, 60).tolist():
        data = bytearray(sample.data)
        data[place // 8] ^= 1 << place % 8
        run = livetime.open(copy_of(bytes(data)))
        masses = run.dimuon_mass()
        for trigger, mass in zip(rows(run), masses.tolist()):
            expected = truth[trigger]
            assert (expected is None) == np.isnan(mass), f"seed {seed}, bit {place}"
            assert expected is None or abs(mass - expected) < 1e-5 * expected


def test_documents_beside_the_file(sample, copy_of):
    directory = copy_of(sample.data)
    summary = json.loads((directory / "summary.json").read_text())
    summary["run"]["number"] = 41
    (directory / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(livetime.FormatError, match="another run than run 41"):
        livetime.open(directory)
    for text in ("{", "[]", "{}", "7"):
        (directory / "summary.json").write_text(text)
        with pytest.raises(livetime.FormatError, match="summary.json"):
            _ = livetime.open(directory).summary
    (directory / "config.toml").write_text("= wrong")
    assert livetime.open(directory).config["format"] == 1, "the file's own record is used"


def test_a_file_on_its_own_is_enough(sample, tmp_path):
    path = tmp_path / "moved.mcap"
    path.write_bytes(sample.data)
    run = livetime.open(path)
    assert run.summary is None
    assert run.complete
    assert run.paths["dimuon"] == 3
    assert "12000 offered" in str(run), "counts of the end-of-run record"


def test_a_file_that_is_not_there_is_named(sample, copy_of):
    directory = copy_of(sample.data)
    whole = livetime.open(directory)
    assert whole.shortfall() is None
    # The second part of a run alone: the first must have been there.
    (directory / "events.mcap").rename(directory / "events.0001.mcap")
    run = livetime.open(directory)
    assert run.shortfall() == "not there: events.mcap"
    assert run.damage[0] == livetime.Damage(0, 0, "events.mcap: the file is not there")
    assert not run.complete
    # The one that is there says that the run has ended.
    assert run.end["events_stored"] == 3000
    assert "files are missing" in str(run)


def test_a_file_that_was_cut_or_replaced_is_an_error_of_refresh(sample, copy_of):
    directory = copy_of(sample.data)
    run = livetime.open(directory)
    os.truncate(run.file, len(sample.data) // 2)
    with pytest.raises(OSError, match="events.mcap: cut to"):
        run.refresh()
    run.file.write_bytes(sample.data)
    run.refresh()
    (directory / "other").write_bytes(sample.data)
    # The file stays open here, so that its inode is not another one's.
    (directory / "other").rename(run.file)
    with pytest.raises(OSError, match="events.mcap: another file is there"):
        run.refresh()
    assert livetime.open(directory).complete


def test_a_file_that_cannot_be_read_is_left_out_and_named(sample, copy_of):
    directory = copy_of(sample.data)
    (directory / "events.z.mcap").mkdir()
    run = livetime.open(directory)
    assert rows(run) == sample.truth["trigger"]
    assert not run.complete
    assert "INCOMPLETE" in run.condition
    assert run.damage[0].reason.startswith("events.z.mcap: the file cannot be read: ")
    assert "cannot be read: events.z.mcap (" in run.shortfall()


def test_equal_damage_of_two_files_is_listed_of_each(sample, copy_of):
    data = bytearray(sample.data)
    data[data.index((0x4C544556).to_bytes(4, "little"), len(data) // 2) + 400] ^= 4
    # Nothing tells then that the second one is a copy of the first.
    data[data.index(b"livetime.run-begin/1")] ^= 1
    directory = copy_of(bytes(data))
    (directory / "events.z.mcap").write_bytes(data)
    run = livetime.open(directory)
    for read in (run.events, run.shortfall):
        read()
        of_file = {}
        for offset, size, reason in run.damage:
            file, _, why = reason.partition(": ")
            of_file.setdefault(file, []).append((offset, size, why))
        # No place is listed twice, and none without its file.
        assert set(of_file) == {"events.mcap", "events.z.mcap"}
        assert all(len(set(listed)) == len(listed) for listed in of_file.values())
    assert of_file["events.mcap"] == of_file["events.z.mcap"]


def test_a_path_need_not_be_text(sample, tmp_path):
    directory = tmp_path / os.fsdecode(b"nu\xff")
    try:
        directory.mkdir()
    except OSError as error:
        pytest.skip(f"the file system takes text alone: {error}")
    with pytest.raises(FileNotFoundError) as missing:
        livetime.open(directory)
    assert missing.value.filename == str(directory / "events.mcap")
    (directory / "events.mcap").write_bytes(sample.data)
    run = livetime.open(directory)
    assert len(run) == 3000
    assert "nu\\xff" in str(run), "it can be printed"
    assert len(pickle.loads(pickle.dumps(run))) == 3000


def test_damage_on_which_no_event_depends_changes_nothing_else(sample, copy_of):
    # Bytes behind the end have the file scanned, and times in a chunk's header are never believed.
    chunk_times = bytearray(sample.data)
    chunk_times[49] ^= 207
    for data in (sample.data + bytes(100), bytes(chunk_times)):
        run = livetime.open(copy_of(data))
        for _ in range(2):
            assert rows(run) == sample.truth["trigger"]
            assert (run.complete, run.condition) == (True, "GOOD")
            inspected = run.inspect()
            assert (inspected["complete"], inspected["condition"]) == (True, "GOOD")
            assert inspected["damaged_ranges"] > 0
            assert run.shortfall() is None


def test_a_damaged_event_makes_a_run_incomplete_as_inspect_says(sample, copy_of):
    magic = (0x4C544556).to_bytes(4, "little")
    at = sample.data.index(magic, len(sample.data) // 2)
    data = bytearray(sample.data)
    data[at + 400] ^= 4
    by_rows, by_inspect = (livetime.open(copy_of(bytes(data))) for _ in range(2))
    rows(by_rows)
    inspected = by_inspect.inspect()
    expected = (False, "TAINTED|INCOMPLETE")
    assert (inspected["complete"], inspected["condition"]) == expected
    for run in (by_rows, by_inspect):
        assert (run.complete, run.condition) == expected
    # Read in both ways it is still listed once.
    by_rows.inspect()
    of_events = [row for row in by_rows.damage if "event:" in row.reason]
    assert len(of_events) == 1


def test_what_a_file_says_is_shown_without_control_characters(sample, copy_of, monkeypatch):
    run = livetime.open(copy_of(sample.data))
    end = dict(run.end, reason="a\x1b[2J\nb µ")
    monkeypatch.setattr(livetime.Run, "end", end)
    assert "a\\x1b[2J\\nb µ" in str(run)
    assert "a\\x1b[2J\\nb µ" in run._repr_html_()


def test_a_configuration_that_cannot_be_is_a_format_error(sample, copy_of, monkeypatch):
    run = livetime.open(copy_of(sample.data))
    for bit in (128, -1, "3"):
        monkeypatch.setattr(livetime.Run, "paths", {"A": bit})
        with pytest.raises(livetime.FormatError, match="path A has bit .*, expected 0 to 127"):
            run.fired()
    deep = "a = " + "[" * 100_000
    monkeypatch.setattr(livetime.Run, "begin", {"config": deep})
    with pytest.raises(livetime.FormatError, match="not a configuration"):
        run.config
