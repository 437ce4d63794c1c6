"""Front-ends in Python that send into a run of the program."""

import json
import signal
import socket
import struct
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import livetime
from program import PROGRAM, needs_program

SOURCES = (0x51_0000, 0x51_0001)
CONFIG = """
format = 1

[[source]]
kind = "external"
listen = "{address}"
queue = 8

[[link]]
to = "trg0"
source_id = 0x700000

[[link]]
to = "ru0"
source_id = 0x510000
count = 2

[[trigger.path]]
name = "ALL"
bit = 0
l1 = [0]
cut = "min_bias"

[filter]
name = "accept_all"
"""


def words_of(source, trigger):
    """What a source sends for a trigger: as many words as it can be told by."""
    return np.arange(trigger % 50, dtype=np.uint32) * 7 + source + trigger


@pytest.fixture
def run_of_front_ends(tmp_path):
    """Starts a run for front-ends; its address, its directory and its process."""
    processes = []

    def start(*options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        config = tmp_path / "front_ends.toml"
        config.write_text(CONFIG.format(address=address))
        directory = tmp_path / "run"
        command = [str(PROGRAM), "run", str(config), "--out", str(directory), "--json", *options]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe)
        processes.append(process)
        return address, directory, process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@needs_program
def test_what_front_ends_send_is_in_the_events_of_the_run(run_of_front_ends):
    address, directory, process = run_of_front_ends("--duration", "600s")
    triggers = 300

    def send(source):
        with livetime.FrontEnd(address) as front_end:
            assert front_end.first_trigger == 1 and front_end.words_max > 1000
            for trigger in range(1, triggers + 1):
                front_end.send(source, trigger, words_of(source, trigger), event_type=9)
            front_end.end(source)

    with ThreadPoolExecutor() as threads:
        list(threads.map(send, SOURCES))
    said, noted = process.communicate()
    assert process.returncode == 0, noted.decode()
    summary = json.loads(said)
    assert summary["counts"]["triggers"] == summary["counts"]["events_stored"] == triggers
    assert summary["conserved"] and summary["roles"]["src0"]["front_end_frames_used"] == 2 * triggers
    fragments = livetime.open(directory).fragments()
    assert len(fragments) == triggers
    for trigger, event in zip(livetime.open(directory).events()["trigger"], fragments):
        for source, words in zip(event["source"], event["words"]):
            found = np.asarray(words)[9:-5]
            assert np.array_equal(found, words_of(int(source), int(trigger))), (source, trigger)


@needs_program
def test_what_the_run_does_not_take_is_raised(run_of_front_ends):
    address, _, process = run_of_front_ends("--duration", "600s")
    front_end = livetime.FrontEnd(address)
    with pytest.raises(ValueError, match="whole 32-bit words"):
        front_end.send(SOURCES[0], 1, b"abc")
    with pytest.raises(ValueError, match="at most"):
        front_end.send(SOURCES[0], 1, bytes(4 * front_end.words_max + 4))
    with pytest.raises(ValueError, match="whole numbers"):
        front_end.send(-1, 1)
    with pytest.raises(livetime.FrontEndError, match="trigger 1: no link of the run has this source"):
        while True:
            front_end.send(7, 1)
    front_end.close()
    # The run goes on, and has read what was sent when a stream is closed.
    for _ in range(2):
        front_end = livetime.FrontEnd(address)
        front_end.send(SOURCES[0], 1)
        assert front_end.close()
    # Until it is ended, which front-ends hear.
    with livetime.FrontEnd(address) as front_end:
        process.terminate()
        with pytest.raises(livetime.RunEnded, match="after trigger 0") as ended:
            while True:
                front_end.send(SOURCES[0], 1)
        assert ended.value.last_trigger == 0
    said, _ = process.communicate()
    counters = json.loads(said)["roles"]["src0"]
    assert counters["front_end_unheard_of_0x510001"] == 1
    assert counters["front_end_frames_discarded"] == 1 and counters["front_end_frames_twice"] > 0


def test_addresses_and_runs_that_are_not_there():
    for address in ("here", "here:", ":80", "here:0", "here:65536"):
        with pytest.raises(ValueError, match="host:port"):
            livetime.FrontEnd(address)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ConnectionRefusedError):
        livetime.FrontEnd(address, timeout=0)


def answer(kind, number=0, trigger=1):
    """What a run of number 5 says: 1 welcome, 2 the run has ended, 3 refused."""
    return struct.pack("<4IQ", 0x4C464101, kind, 5, number, trigger)


@pytest.fixture
def front_end_and_run():
    """A front-end and the stream of what stands in for its run: little is read ahead for it."""
    opened = []

    def connect(timeout=30.0):
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.append(listener)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with ThreadPoolExecutor() as threads:
            front_end = threads.submit(livetime.FrontEnd, address, timeout=timeout)
            run, _ = listener.accept()
            opened.append(run)
            run.sendall(answer(1, number=1 << 24))
            return front_end.result(), run

    yield connect
    for each in opened:
        each.close()


def all_of(run):
    """What comes on a stream, up to its end."""
    return b"".join(iter(lambda: run.recv(1 << 20), b""))


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_after_an_interruption_within_a_frame_nothing_follows_it(front_end_and_run, raised):
    front_end, run = front_end_and_run()
    data = bytes(range(256)) * (1 << 18)
    received, main = [], threading.get_ident()

    def interrupt_and_read():
        # With more than the kernel takes, the call is within its frame when something of it is here.
        run.recv(1, socket.MSG_PEEK)
        signal.pthread_kill(main, signal.SIGALRM)
        received.append(all_of(run))

    def handler(*_):
        raise raised("it is enough")

    before = signal.signal(signal.SIGALRM, handler)
    reader = threading.Thread(target=interrupt_and_read)
    try:
        reader.start()
        with pytest.raises(raised, match="it is enough"):
            front_end.send(7, 1, data)
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(livetime.FrontEndError, match="trigger 1 of source 0x7 was cut off"):
        front_end.send(7, 2, b"next")
    assert not front_end.close()
    reader.join()
    whole = struct.pack("<4IQ2I", 0x4C464601, 5, 7, len(data) // 4, 1, 0, 0) + data
    assert len(received[0]) < len(whole) and whole.startswith(received[0])


def test_a_stream_is_closed_when_the_run_has_read_it(front_end_and_run):
    front_end, run = front_end_and_run()
    read = []

    def read_to_the_end():
        read.append(all_of(run))
        run.close()

    reader = threading.Thread(target=read_to_the_end)
    reader.start()
    front_end.send(7, 1, b"data")
    assert front_end.close() and len(read) == 1
    assert read[0].endswith(b"data")
    reader.join()
    with pytest.raises(livetime.FrontEndError, match="it was closed"):
        front_end.send(7, 2)
    # One that does not read is not waited for for ever, and may still read what was sent.
    front_end, run = front_end_and_run(timeout=0.1)
    front_end.send(7, 1, b"data")
    assert not front_end.close()
    assert all_of(run).endswith(b"data")


def test_a_stream_that_is_left_before_the_run_has_read_it_is_warned_of(front_end_and_run):
    front_end, _run = front_end_and_run(timeout=0.1)
    with pytest.warns(RuntimeWarning, match="has not read all that was sent within 0.1 s"), front_end:
        front_end.send(7, 1, b"data")


def test_data_and_numbers_that_would_become_others_are_refused(front_end_and_run):
    front_end, run = front_end_and_run()
    with pytest.raises(ValueError, match="highest byte first.*astype"):
        front_end.send(7, 1, np.arange(4, dtype=">u4"))
    for status in (1 << 32, -1):
        with pytest.raises(ValueError, match=f"status {status}: whole numbers"):
            front_end.send(7, 1, status=status)
    with pytest.raises(ValueError, match=r"status 2147483648: below 2\*\*31"):
        front_end.send(7, 1, status=1 << 31)
    front_end.send(7, 1, np.arange(2, dtype="<u4"), status=3)
    run.sendall(answer(3, number=6, trigger=1))
    with pytest.raises(livetime.FrontEndError, match="trigger 1: the trigger number is too far ahead"):
        front_end.close()
    run.shutdown(socket.SHUT_WR)
    sent = struct.pack("<4IQ2I", 0x4C464601, 5, 7, 2, 1, 0, 3) + struct.pack("<2I", 0, 1)
    assert all_of(run) == sent, "nothing of what was refused"


def test_a_front_end_may_wait_for_ever(front_end_and_run):
    front_end, run = front_end_and_run(timeout=float("inf"))
    run.close()
    assert front_end.close()


def test_what_the_run_says_to_the_last_frame_is_heard_at_the_end(front_end_and_run):
    refusal = answer(3, number=2, trigger=9)
    front_end, run = front_end_and_run()
    run.sendall(refusal)
    with pytest.raises(livetime.FrontEndError, match="trigger 9: no link of the run has this source"):
        front_end.close()
    front_end, run = front_end_and_run()
    with pytest.raises(KeyError), front_end:
        run.sendall(refusal)
        raise KeyError
    front_end, run = front_end_and_run()
    run.sendall(answer(2, trigger=9))
    assert front_end.close()


def test_what_takes_connections_and_says_nothing_is_no_run():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TimeoutError, match=f"{address} .* no welcome"):
            livetime.FrontEnd(address, timeout=0.1)
