"""A small GPFIFO, and a GPU that says late or never how far it has read: what was submitted happens, in order.

In       a case: fills, copies, bursts, replays, waits that the host ends, resets
Out      Outcome.RIGHT; Wrong when a word of memory is another than the same commands in order leave
Changes  the ring's size in this process, before the first device opens
Next     hcq/nv/rings.py (room in the ring), hcq/emu/nv/pbdma.py (GP_GET), runner.py (who runs it)
"""

from __future__ import annotations

import functools
import random
import struct
import threading
from typing import Any

import hcq
from hcq.nv import rings
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

ENTRIES, WORDS, HELD_S = 16, 32, 0.02


@functools.cache
def machine() -> tuple[Any, Any, Any]:
    """The device, its buffer, and a graph that copies the first half of it over the second."""
    rings.ENTRIES = ENTRIES
    device = hcq.open("NV")
    words = device.alloc(4 * WORDS, "words")
    graph = device.graph("halves")
    graph.copy(words, words, 2 * WORDS, 2 * WORDS, 0)
    return device, words, graph


class Model:
    """What memory holds when commands happen in the order of their submission."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.device, self.words, self.graph = machine()
        self.now = [rng.getrandbits(32) for _ in range(WORDS)]
        self.words.write(struct.pack(f"<{WORDS}I", *self.now))
        self.said: list[str] = []

    def fill(self, queue: Any) -> None:
        at, value = self.rng.randrange(WORDS), self.rng.getrandbits(32)
        queue.fill(self.words, value, 4, 4 * at, 4)
        self.now[at] = value

    def copy(self, queue: Any) -> None:
        to, of = self.rng.sample(range(WORDS), 2)
        queue.copy(self.words, self.words, 4, 4 * to, 4 * of)
        self.now[to] = self.now[of]

    def burst(self) -> None:
        """More submissions than the ring holds."""
        for _ in range(self.rng.randint(1, 3 * ENTRIES)):
            queue = self.device.queue()
            self.rng.choice((self.fill, self.copy))(queue)
            queue.submit()

    def replay(self) -> None:
        for _ in range(self.rng.randint(1, ENTRIES)):
            self.graph.replay()
        self.now[WORDS // 2 :] = self.now[: WORDS // 2]

    def hold(self) -> None:
        """The GPU stands still at a wait while the ring fills, until the host lets it go on."""
        go = self.device.signal("go")
        self.device.queue().wait(go, 1).submit()
        releasing = threading.Timer(HELD_S, lambda: go.set(1))
        releasing.start()
        self.burst()
        self.device.synchronize()
        releasing.join()

    def reset(self) -> None:
        self.device.synchronize()
        self.device.reset()

    def check(self) -> None:
        self.device.synchronize()
        found = list(struct.unpack(f"<{WORDS}I", self.words.read()))
        wrong = [at for at, pair in enumerate(zip(found, self.now)) if pair[0] != pair[1]]
        if wrong:
            raise Wrong(
                f"after {', '.join(self.said)} word {wrong[0]} is {found[wrong[0]]:#x}, not {self.now[wrong[0]]:#x}"
            )


def run(case: Case) -> Outcome:
    model = Model(case.rng())
    for _ in range(model.rng.randint(2, 6)):
        act = model.rng.choice((model.burst, model.burst, model.replay, model.hold, model.reset))
        model.said.append(act.__name__)
        act()
    model.check()
    return Outcome.RIGHT


CAMPAIGNS = tuple(
    Campaign(
        name,
        "bursts, replays, held queues and resets through a ring of 16 entries",
        run,
        short,
        {"HCQ_EMULATE": f"nv:{word}", "HCQ_DEVICE": "NV", "HCQ_TIMEOUT_MS": "20000"},
        is_flat=False,
    )
    for name, word, short in (("rings-late", "sm_90:late-get", 8), ("rings-seed", "sm_90:seed=1", 4))
)
