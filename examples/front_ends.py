"""Two boards that send into a run of examples/front_ends.toml: pulses that are made up here.

    python3 examples/front_ends.py 127.0.0.1:9870 [TRIGGERS]
"""

import sys
import threading

import numpy as np

import livetime

BOARDS = (0x51_0000, 0x51_0001)


def pulses(board: int, triggers: int):
    """For each trigger 128 samples of an ADC of 32 bits: a pulse on a pedestal with noise."""
    random = np.random.default_rng(board)
    time = np.arange(128)
    for _ in range(triggers):
        height, start = random.exponential(800.0), random.normal(40.0, 2.0)
        pulse = height * np.exp(-(time - start) / 15.0) * (time > start)
        yield (200.0 + pulse + random.normal(0.0, 3.0, 128)).astype(np.uint32)


def send(address: str, board: int, triggers: int) -> None:
    """What one board sends: a frame for each trigger, and its end."""
    with livetime.FrontEnd(address) as front_end:
        for trigger, samples in enumerate(pulses(board, triggers), start=front_end.first_trigger):
            front_end.send(board, trigger, samples)
        front_end.end(board)


if __name__ == "__main__":
    address = sys.argv[1]
    triggers = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    boards = [threading.Thread(target=send, args=(address, board, triggers)) for board in BOARDS]
    for board in boards:
        board.start()
    for board in boards:
        board.join()
