"""Threads that open, use and close emulated GPUs at once: each has its own device, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import hcq
from hcq import backends, config
from hcq.emu.port import port_for
from hcq.lifetime import open_devices

pytestmark = pytest.mark.own_devices

GPUS = 4


@pytest.fixture(autouse=True)
def turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], object], count: int) -> list[BaseException]:
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def thread(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=thread, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return errors


@pytest.mark.parametrize("word", ["amd:gfx1100", "nv:sm_90", "metal:m3"])
def test_threads_open_and_close_gpus_at_once(word: str) -> None:
    config.use(config.Config.read({**os.environ, "HCQ_EMULATE": ",".join([word] * GPUS)}))
    kind = backends.of(word).name

    def work(number: int) -> None:
        device = hcq.open(f"{kind}:{number}")
        held = []
        for turn in range(90):
            buffer = device.alloc((2 << 20) + 4096 * (turn % 3), "own")
            buffer.write(bytes([number]) * 64)
            held.append(buffer)
            if turn % 3 == 2:
                held.pop(0)
        device.queue().fill(held[0], number + 1).submit().wait()
        assert held[0].read(0, 64) == bytes([number + 1]) * 64
        assert all(buffer.read(0, 64) == bytes([number]) * 64 for buffer in held[1:])
        del held, buffer
        device.close()

    try:
        for _ in range(6):
            assert at_once(work, GPUS) == []
        gc.collect()
        hcq.open(f"{kind}:0").close()
        gc.collect()
        open_devices.unmap_closed()
        assert not open_devices._closed
        assert not open_devices._finalized
    finally:
        config.use(None)


def test_threads_that_ask_for_emulated_gpus_at_once_get_the_same() -> None:
    found: list[object] = []
    words = ["amd:gfx1201", "amd:gfx1201:seed=11"]
    assert at_once(lambda number: found.append(port_for(words)), 8) == []
    assert len(set(map(id, found))) == 1
