"""Front-ends in Python that send into a run of the program."""

import json
import socket
import subprocess
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
    # The run goes on, until it is ended, which front-ends hear.
    with livetime.FrontEnd(address) as front_end:
        front_end.send(SOURCES[0], 1)
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
