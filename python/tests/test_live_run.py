"""Orders from Python to a run of the program that goes on."""

import fcntl
import json
import os
import socket
import subprocess
import threading

import pytest

import livetime
from livetime import live_run
from program import PROGRAM, ROOT, needs_program


def wait_for(live, is_so):
    """Asks for the status until it is as it should be; a run that has ended answers with an error."""
    while True:
        status = live.status()
        if is_so(status):
            return status


@pytest.fixture
def running(tmp_path):
    """A run without an end, and its process."""
    # Longer than the path of a socket may be.
    directory = tmp_path / ("d" * 100)
    config = ROOT / "examples" / "dimuon.toml"
    options = ["--duration", "600s", "--out", str(directory), "--json"]
    command = [str(PROGRAM), "run", str(config), *options]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=subprocess.DEVNULL)
    try:
        live = livetime.LiveRun(directory)
        while process.poll() is None:
            try:
                live.status()
                break
            except livetime.OrderError:
                pass
        yield live, process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@needs_program
def test_a_run_is_paused_resumed_and_stopped(running):
    live, process = running
    wait_for(live, lambda status: status["counts"]["triggers"] > 0)
    assert "paused" in live.pause()
    assert live.status()["state"] == "paused"
    with pytest.raises(livetime.OrderError, match="paused already"):
        live.pause()
    live.resume()
    before = live.status()
    assert before["schema"] == "livetime.status/1"
    assert before["state"] == "running"
    more = before["counts"]["triggers"] + 100
    wait_for(live, lambda status: status["counts"]["triggers"] > more)
    with pytest.raises(livetime.OrderError, match="--processes"):
        live.add_filter()
    with pytest.raises(livetime.OrderError, match="bu0 is no filter unit"):
        live.remove_filter("bu0")
    assert "noted at" in live.note("beam back, 120 GeV")
    with pytest.raises(livetime.OrderError, match="no words"):
        live.note("  ")
    assert [note["text"] for note in live.status()["notes"]] == ["beam back, 120 GeV"]
    live.stop()
    out, _ = process.communicate()
    summary = json.loads(out)
    assert process.returncode == 0
    # On a busy machine events may be incomplete.
    assert summary["conserved"] and "INTERRUPTED" in summary["run"]["condition"].split("|")
    assert summary["roles"]["src0"]["pauses"] == 1
    run = livetime.open(live.directory)
    ((seconds, text),) = run.notes
    assert text == "beam back, 120 GeV"
    assert 0 < seconds < int(run.end["time_ns"]) * 1e-9
    assert f"after {seconds:.3g} s: beam back, 120 GeV" in str(run)
    with pytest.raises(livetime.OrderError, match="has it ended"):
        live.status()


def test_what_is_no_text_and_no_name_is_refused_before_it_is_sent(tmp_path):
    folder, sent = tmp_path / "run", []
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as control:
        place = os.open(folder, os.O_RDONLY)
        control.bind(f"/proc/self/fd/{place}/control")
        os.close(place)
        control.listen()
        live = livetime.LiveRun(folder)
        for unit in ("", "  ", "\u2003", "\t"):
            with pytest.raises(livetime.OrderError, match="is no filter unit; expected a name such"):
                live.remove_filter(unit)
        for wrong in (5, True, False, b"fu1", ["fu1"]):
            with pytest.raises(TypeError, match="expected a name such as 'fu1'"):
                live.remove_filter(wrong)
            with pytest.raises(TypeError, match="a note is .*, expected a text"):
                live.note(wrong)
        with pytest.raises(TypeError, match="a note is None, expected a text"):
            live.note(None)
        control.setblocking(False)
        with pytest.raises(BlockingIOError):
            sent.append(control.accept())
    assert sent == []


@pytest.fixture
def listening(tmp_path):
    """A socket at which a run would take orders, and what gives orders to it."""
    folder = tmp_path / "run"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as control:
        place = os.open(folder, os.O_RDONLY)
        control.bind(f"/proc/self/fd/{place}/control")
        os.close(place)
        control.listen()
        yield control, livetime.LiveRun(folder)


def answering(control, answer):
    """Answers the next order, and hangs up."""

    def serve():
        stream, _ = control.accept()
        with stream:
            while stream.recv(65536):
                pass
            stream.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "run has ended, and did not answer"),
        (b"ok: paus", "the answer of the run in .*run was cut off"),
        (b'ok: {"schema": "livetime.st', "the answer of the run in .*run was cut off"),
        (b"error: it is paus", "the answer of the run in .*run was cut off"),
        (b"well\n", "answered 'well'"),
        (b"error: it is paused already\n", "^it is paused already$"),
        (b"ok: 5\n", "answered '5', which is no status"),
    ],
)
def test_only_a_whole_answer_is_one(listening, answer, said):
    control, live = listening
    thread = answering(control, answer)
    with pytest.raises(livetime.OrderError, match=said):
        live.status()
    thread.join()


def test_an_answer_is_heard_though_the_order_was_not(listening, monkeypatch):
    control, live = listening

    plain = socket.socket

    class Late(plain):
        def sendall(self, data):
            # The run takes no more orders, says so and is gone.
            stream, _ = control.accept()
            with stream:
                plain.sendall(stream, b"error: the run has ended\n")
            plain.sendall(self, data)

    monkeypatch.setattr(live_run.socket, "socket", Late)
    with pytest.raises(livetime.OrderError, match="^the run has ended$"):
        live.pause()


def test_a_run_that_took_an_order_and_says_nothing_is_there(listening, monkeypatch):
    _, live = listening
    monkeypatch.setattr(live_run, "PATIENCE_S", 0.01)
    with pytest.raises(livetime.OrderError, match="run did not answer: timed out") as raised:
        live.pause()
    assert "no run takes orders" not in str(raised.value)


def test_a_run_that_begins_has_not_ended(tmp_path):
    live = livetime.LiveRun(tmp_path)
    with (tmp_path / "lock").open("w") as lock:
        with pytest.raises(livetime.OrderError, match="has it ended"):
            live.status()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(livetime.OrderError, match="has not begun to take orders yet"):
            live.status()
        (tmp_path / "summary.json").touch()
        with pytest.raises(livetime.OrderError, match="has it ended"):
            live.status()


def test_where_no_run_is_there_is_nobody_to_obey(tmp_path):
    live = livetime.LiveRun(tmp_path)
    with pytest.raises(livetime.OrderError, match="no run takes orders"):
        live.stop()
    with pytest.raises(livetime.OrderError, match="more than one line"):
        live.remove_filter("fu1\nstop")
    with pytest.raises(livetime.LivetimeError, match="has it ended"):
        livetime.LiveRun(tmp_path / "none").status()
    assert repr(live) == f"LiveRun({str(tmp_path)!r})"
