"""A Metal kernel that is saved between rounds of its loops and goes on from there is the same kernel."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from hcq.debug import timeline
from hcq.debug.plans import CONTINUE, Plan
from hcq.debug.session import Go, Goto, Order, Session
from hcq.debug.timeline import Place
from hcq.emu.metal.shader import program as programs
from hcq.emu.metal.shader.parser import parse
from hcq.emu.metal.shader.program import Program
from hcq.system import native
from tests.hcq.debug.rig import Scripted

GROUPS, THREADS = 4, 40

# loops in loops, breaks, `continue`, returns, an array of each thread's own, vectors, functions, shared memory, atomics
MSL = """#include <metal_stdlib>
using namespace metal;
static inline uint twice(uint x, uint n) {
  for (uint i = 0u; i < n; i++) {
    if (x > 90u) return x;
    x = x + x + 1u;
  }
  return x;
}
kernel void walk(device uint* out [[buffer(0)]], device atomic_uint* total [[buffer(1)]],
                 uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  threadgroup uint tile[40];
  uint own[5];
  uint2 pair = uint2(t, g);
  for (uint i = 0u; i < 5u; ++i) {
    own[i] = twice(t + i, i);
    if (i == 3u) continue;
    for (uint j = 0u; j < 4u; ++j) {
      own[i] = own[i] * 5u + j;
      pair.x = pair.x ^ own[i];
      if (own[i] % 7u == 0u) break;
    }
    tile[t] = own[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    pair.y = pair.y + tile[(t + i) % 40u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  uint k = 0u;
  while (k < t % 6u + 2u) {
    out[g * 40u + t] = out[g * 40u + t] * 3u + pair.y + own[k % 5u];
    atomic_fetch_add_explicit(total, 1u, memory_order_relaxed);
    k = k + 1u;
  }
  if (t > 35u) {
    out[g * 40u + t] = 7u;
    return;
  }
  do {
    pair.x = pair.x >> 1u;
  } while (pair.x > 5u);
  out[g * 40u + t] = out[g * 40u + t] + pair.x;
}
"""


def seen(session: Session, out: np.ndarray[Any, Any]) -> Any:
    """All that there is to see where a launch has stopped."""
    moment = session.stop.moment
    assert moment is not None
    waves = moment.waves.tolist()
    values = {(name, wave): moment.read(name, wave).tolist() for wave in waves for name in moment.names()}
    shared = [moment.shared(wave // 2).tolist() for wave in waves]
    memory = session.stop.read(native.address_of(out), out.nbytes)
    return moment.site, waves, [moment.on(wave).tolist() for wave in waves], values, shared, memory


class Walker(Scripted):
    """Sees each instruction once, then goes to some of them, in any order."""

    def __init__(self, out: np.ndarray[Any, Any]) -> None:
        super().__init__([])
        self.out, self.forward, self.wanted = out, {}, None

    def ask(self, session: Session) -> Order:
        stop = session.stop
        if stop.moment is None:
            return Go(CONTINUE)
        here = seen(session, self.out)
        if not stop.is_past and self.wanted is None:
            self.forward[stop.place] = here
            if "pair.x >> 1u" not in stop.moment.site.text or stop.moment.waves[-1] < 2 * (GROUPS - 1):
                return Go(Plan("", lambda moment: ""))
            rng = random.Random(1)
            self.wanted = rng.sample(range(1, stop.tick), 60)
        else:
            assert self.wanted
            assert stop.place == Place(1, self.wanted.pop(0))
            assert here == self.forward[stop.place], stop.place
        return Goto(Place(1, self.wanted[0]), "") if self.wanted else Go(CONTINUE)


@pytest.mark.parametrize("batch", [THREADS, 1 << 16])
def test_all_that_is_seen_of_a_moment_is_the_same_whenever_one_comes_back_to_it(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "BATCH", batch)
    monkeypatch.setattr(timeline, "FIRST_SPACING", 16)
    monkeypatch.setattr(timeline, "CLOSEST", 4)
    source = parse(MSL)
    arrays = [np.arange(GROUPS * THREADS, dtype=np.uint32), np.zeros(1, np.uint32)]
    plain = [one.copy() for one in arrays]
    grid, block = (GROUPS, 1, 1), (THREADS, 1, 1)
    program = Program(source, source.kernels["walk"], "interpreted")
    program.run(grid, block, {n: one.view(np.uint8) for n, one in enumerate(plain)})
    face = Walker(arrays[0])
    session = Session(face)
    session.points.add("kernel", "*")
    session.run_metal(program, grid, block, {n: one.view(np.uint8) for n, one in enumerate(arrays)}, 0)
    assert face.wanted == []
    assert len(session.history.records[0].snapshots) > 5
    for one, other in zip(arrays, plain):
        np.testing.assert_array_equal(one, other)
