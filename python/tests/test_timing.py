"""The timing daemon from Python: by loop, callback and asyncio, against the built program."""

import asyncio
import signal
import subprocess
import threading

import numpy as np
import pytest

import livetime
from livetime import timing
from program import PROGRAM, ROOT


def serve(socket, *options):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    process = subprocess.Popen(
        [PROGRAM, "timing", "serve", "--socket", socket, *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    if not line.startswith("ready "):
        process.kill()
        pytest.fail(f"the timing daemon said {line!r} and ended with {process.wait()}")
    return process


@pytest.fixture
def daemon(tmp_path):
    socket = tmp_path / "t.sock"
    process = serve(socket)
    yield str(socket)
    process.terminate()
    process.wait()


def test_records_come_as_arrays(daemon):
    control = timing.Control(daemon)
    with timing.Listener([timing.group(0x123)], address=daemon) as listener:
        start = control.time() + 5_000_000
        event = timing.group(0x123).id
        assert control.play([(event | n, n, start + 1000 * n) for n in range(100)]) == 100
        arrays = []
        while sum(map(len, arrays)) < 100:
            arrays.append(listener.read(timeout=30))
        records = np.concatenate(arrays)
    assert (timing.kinds(records) == timing.Kind.MESSAGE).all()
    assert records["param"].tolist() == list(range(100))
    assert timing.sequences(records).tolist() == list(range(100))
    assert (records["deadline"] == start + 1000 * records["param"]).all()
    # Late is what a busy machine makes of them, and all it may make of them.
    late = 1
    assert (records["flags"] & ~np.uint16(late) == 0).all()
    assert control.status()["schema"] == "livetime.timing_status/1"


def test_callbacks_and_asyncio(daemon):
    control = timing.Control(daemon)
    heard, called = [], threading.Event()

    def handle(records):
        heard.extend(records["param"].tolist())
        called.set()

    calling = timing.Listener([timing.group(5)], address=daemon)
    calling.call(handle)
    control.inject(timing.group(5).id, 77)
    assert called.wait(30)
    calling.close()
    assert heard == [77]

    async def listen():
        with timing.Listener([timing.number(6, 7)], address=daemon) as listener:
            control.inject(timing.number(6, 8).id, 1)
            asyncio.get_running_loop().call_soon(control.inject, timing.number(6, 7).id, 2)
            async for record in listener:
                return int(record["param"])

    assert asyncio.run(asyncio.wait_for(listen(), 30)) == 2


def test_asyncio_goes_on_with_the_next_daemon(tmp_path):
    socket = tmp_path / "t.sock"
    processes = [serve(socket)]

    def next_daemon():
        processes[0].kill()
        processes[0].wait()
        processes.append(serve(socket))

    async def listen():
        with timing.Listener([timing.group(8)], address=str(socket)) as listener:
            asyncio.get_running_loop().call_soon(next_daemon)
            kinds = []
            async for record in listener:
                kinds.append(timing.Kind(record["kind_class"] & 0xF))
                if kinds[-1] == timing.Kind.MESSAGE:
                    return kinds
                timing.Control(str(socket)).inject(timing.group(8).id, 1)

    try:
        kinds = asyncio.run(asyncio.wait_for(listen(), 30))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert kinds == [timing.Kind.RESTART, timing.Kind.MESSAGE]


def test_what_cannot_be_is_refused_and_a_wait_may_be_without_end(daemon):
    control = timing.Control(daemon)
    for number in (-1, 4096, 0x1123):
        with pytest.raises(ValueError, match="expected 0 to 4095"):
            timing.group(number)
        with pytest.raises(ValueError, match="expected 0 to 4095"):
            timing.number(1, number)
    with pytest.raises(ValueError, match="at least 1"):
        control.play([(1 << 60, 0, 0)], repeats=0)
    later = control.time() + 3_600_000_000_000
    assert control.play([(1 << 60, n, later - n) for n in range(3)]) == 3
    control.stop_schedules()
    with timing.Listener([timing.group(5)], address=daemon) as listener:
        assert len(listener.read(timeout=-1)) == 0
        with pytest.raises(ValueError, match="nan"):
            listener.read(timeout=float("nan"))
        for timeout in (None, float("inf"), 1e30):
            control.inject(timing.group(5).id)
            assert len(listener.read(timeout=timeout)) >= 1


def test_a_wait_hears_signals(daemon):
    with timing.Listener([timing.group(6)], address=daemon) as listener:
        main = threading.main_thread().ident
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
            listener.read()


def test_schedules_are_stopped(daemon):
    control = timing.Control(daemon)
    later = control.time() + 3_600_000_000_000
    assert control.play([(1 << 60, n, later + n) for n in range(10)], repeats=7) == 10
    assert control.status()["playing"] == 70
    assert control.stop_schedules() == 1
    assert control.status()["playing"] == 0
    assert control.stop_schedules() == 0


def test_a_small_ring_tells_what_it_lost(daemon):
    control = timing.Control(daemon)
    with timing.Listener([timing.group(9)], address=daemon, slots=16) as listener:
        event = timing.group(9).id
        start = control.time() + 2_000_000
        control.play([(event, n, start + 100 * n) for n in range(1000)])
        while control.status()["playing"] or control.time() < start + 50_000_000:
            pass
        accounted = 0
        while accounted < 1000:
            records = listener.read(timeout=30)
            gaps = records[timing.kinds(records) == timing.Kind.GAP]
            accounted += len(records) - len(gaps) + int(gaps["id"].sum())
        assert accounted == 1000


def by_read(listener):
    while True:
        yield listener.read(timeout=30)


def by_few(listener):
    while True:
        yield listener.read(3, timeout=30)


def by_loop(listener):
    for record in listener:
        yield np.array([record])


def by_asyncio(listener):
    loop = asyncio.new_event_loop()
    records = listener.__aiter__()
    try:
        while True:
            yield np.array([loop.run_until_complete(records.__anext__())])
    finally:
        loop.close()


def by_callback(listener):
    arrays, errors, ended = [], [], threading.Event()

    def hook(arguments):
        errors.append(arguments.exc_value)
        ended.set()

    usual, threading.excepthook = threading.excepthook, hook
    try:
        listener.call(arrays.append)
        assert ended.wait(30)
    finally:
        threading.excepthook = usual
    yield from arrays
    raise errors[0]


@pytest.mark.parametrize("way", [by_read, by_few, by_loop, by_asyncio, by_callback])
def test_a_subscription_that_was_ended_gives_what_it_holds_and_then_the_error(tmp_path, way):
    socket = str(tmp_path / "t.sock")
    process = serve(socket, "--virtual", "1000000000000")
    try:
        control = timing.Control(socket)
        listener = timing.Listener(
            [timing.group(9)], address=socket, slots=8, overflow="disconnect"
        )
        event = timing.group(9).id
        start = control.time() + 10_000_000
        control.play([(event, n, start + 1000 * n) for n in range(100)])
        control.advance_clock(start + 1_000_000)
        # Nobody reads until all are executed: the ring is full, and the subscription is ended.
        while sum(sink["delivered"] for sink in control.status()["sinks"]) < 100:
            pass
        arrays = []
        with pytest.raises(livetime.LivetimeError, match="its rule is disconnect"):
            for records in way(listener):
                arrays.append(records)
        records = np.concatenate(arrays)
        kinds = timing.kinds(records).tolist()
        assert kinds == [timing.Kind.MESSAGE] * 8 + [timing.Kind.GAP]
        assert records["param"].tolist() == list(range(9))
        # It stays ended: nobody was restarted, and nothing is subscribed anew.
        for _ in range(2):
            with pytest.raises(livetime.LivetimeError, match="its rule is disconnect"):
                listener.read(timeout=30)
        assert listener.restarts == 0
        listener.close()
    finally:
        process.kill()
        process.wait()


def first_of_loop(listener):
    for record in listener:
        return np.array([record])


def first_of_asyncio(listener):
    async def first():
        async for record in listener:
            return np.array([record])

    return asyncio.run(first())


def rest_by_read(listener):
    return [listener.read(timeout=30)]


def rest_by_few(listener):
    return [listener.read(most, timeout=30) for most in (0, 33, 33, 33)]


def rest_by_asyncio(listener):
    async def look(most):
        return await asyncio.wait_for(listener.read_async(most), 30)

    return [asyncio.run(look(most)) for most in (1, 98)]


@pytest.mark.parametrize("first", [first_of_loop, first_of_asyncio])
@pytest.mark.parametrize("rest", [rest_by_read, rest_by_few, rest_by_asyncio])
def test_a_loop_that_is_left_leaves_the_rest_to_the_next_look(tmp_path, first, rest):
    socket = str(tmp_path / "t.sock")
    process = serve(socket, "--virtual", "1000000000000")
    try:
        control = timing.Control(socket)
        with timing.Listener([timing.group(9)], address=socket) as listener:
            start = control.time() + 10_000_000
            control.play([(timing.group(9).id, n, start + 1000 * n) for n in range(100)])
            control.advance_clock(start + 1_000_000)
            # All are there at once for the first look.
            while sum(sink["delivered"] for sink in control.status()["sinks"]) < 100:
                pass
            arrays = [first(listener), *rest(listener)]
        assert np.concatenate(arrays)["param"].tolist() == list(range(100))
        with pytest.raises(livetime.LivetimeError, match="the listener is closed"):
            listener.read()
    finally:
        process.kill()
        process.wait()


def conditions(control):
    return [c for sink in control.status()["sinks"] for c in sink["conditions"]]


def test_conditions_outlive_their_control_by_a_lease(daemon):
    first = timing.Control(daemon)
    path = first.add_condition("IO1", timing.group(0x321, offset_ns=500), "on")
    assert path.startswith("/org/livetime/Timing1/tr0/IO1/c")
    token = first.lease(3600)
    del first
    second = timing.Control(daemon)
    while second.status()["leases_waiting"] == 0:
        pass
    assert [c["offset_ns"] for c in conditions(second)] == [500]
    with pytest.raises(livetime.LivetimeError, match="no lease of this token"):
        second.resume("0" * 32)
    assert second.resume(token) == 1
    assert second.status()["leases_waiting"] == 0
    second.remove(path)
    assert conditions(second) == []
    # Without a lease they go with the one who made them.
    second.add_condition("IO1", timing.number(0x321, 1), "off")
    assert second.lease(0) == ""
    del second
    third = timing.Control(daemon)
    while conditions(third):
        pass
    for seconds in (-1, 3601):
        with pytest.raises(ValueError, match="1 to 3600"):
            third.lease(seconds)
    for sink, action in [("IO1", "up"), ("IO1", 2), ("bus1", "on")]:
        with pytest.raises(ValueError, match='"on" or "off" for an output and a tag'):
            third.add_condition(sink, timing.Filter(), action)


def test_a_closed_listener_calls_nobody_back(daemon):
    listener = timing.Listener(address=daemon)
    listener.close()
    with pytest.raises(livetime.LivetimeError, match="the listener is closed"):
        listener.call(print)
    assert "livetime-timing" not in [thread.name for thread in threading.enumerate()]


def test_errors_say_what_to_do(tmp_path, daemon):
    with pytest.raises(livetime.LivetimeError, match="livetime timing serve"):
        timing.Control(str(tmp_path / "none.sock"))
    with pytest.raises(TypeError, match="sink is 5, expected a name"):
        timing.Control(daemon).add_condition(5, timing.Filter(), "on")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"slots": -1}, "slots is -1, expected a power of two from 2 to 65536"),
        ({"slots": 3}, "slots is 3, expected a power of two"),
        ({"slots": 2**40}, "slots is 1099511627776, expected a power of two"),
        ({"overflow": "all"}, "overflow is 'all', expected one of drop-oldest, "),
        ({"priority": "x"}, "priority is 'x', expected one of high, "),
        ({"filters": [timing.Filter(-1)]}, "id of a filter is -1, expected 0 to"),
        ({"filters": [timing.Filter(0, 2**64)]}, "mask of a filter is 18446744073709551616"),
        ({"filters": [timing.Filter(0, 0, 2**63)]}, "offset_ns of a filter is 9223372036854775808"),
    ],
)
def test_a_listener_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        timing.Listener(**options)


def test_messages_that_cannot_be_are_refused(daemon):
    control = timing.Control(daemon)
    for messages, message in [
        ([], "no messages to play"),
        ([(1, 2)], r"message 0 is \(1, 2\), expected \(id, param, time\)"),
        ([(1, 2, 3), (1, -1, 3)], "param of message 1 is -1, expected 0 to"),
        ([(2**64, 0, 0)], "id of message 0 is 18446744073709551616"),
    ]:
        with pytest.raises(ValueError, match=message):
            control.play(messages)
    for options in ({"repeats": 2**32}, {"lead_ns": -1}, {"period_ns": 2**64}):
        with pytest.raises(ValueError, match="expected"):
            control.play([(1, 2, 3)], **options)
    with pytest.raises(ValueError, match="tag is 4294967296"):
        control.add_condition("bus1", timing.Filter(), 2**32)
    with timing.Listener(address=daemon) as listener:
        with pytest.raises(ValueError, match="most is -1"):
            listener.read(most=-1)
