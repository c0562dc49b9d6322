"""How long a step back takes in a run of a million wave instructions: `python -m tests.hcq.debug.measure amd 16`.

In       a vendor (amd, nv, metal), and how many waves share the million
Out      seconds: the run under the debugger, the first step back from its end, the next ones, to its middle
Next     docs/debugger.md (the figures)
"""

from __future__ import annotations

import sys
import time

import numpy as np

from hcq.debug.commands import Commands
from hcq.debug.plans import CONTINUE
from hcq.debug.session import Go, Order, Session
from hcq.emu.metal.shader.parser import parse as parse_msl
from hcq.emu.metal.shader.program import Program
from hcq.emu.nv.shader.memory import AddressSpace as NvSpace
from hcq.emu.nv.shader.run import Kernel
from tests.hcq.debug.rig import Scripted
from tests.hcq.emu.amd.shader.kernels import ARGUMENT_BASE, Loaded

MILLION = 1_000_000
MOVES = ("reverse-step", "reverse-step", "reverse-step 10", "goto 1 {middle}", "reverse-step")
AMD = """
define amdgpu_kernel void @loop(i32 %n) {{
entry:
  br label %loop
loop:
  %k = phi i32 [0, %entry], [%kn, %loop]
  %kn = add i32 %k, 1
  %more = icmp slt i32 %kn, {rounds}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
PTX = """.version 8.3
.target sm_90
.address_size 64
.visible .entry loop()
{{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  mov.u32 %r1, 0;
LOOP:
  add.u32 %r2, %r1, 7;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p1, %r1, {rounds};
  @%p1 bra LOOP;
  ret;
}}
"""
MSL = """kernel void loop(device uint* out [[buffer(0)]], uint t [[thread_position_in_grid]]) {{
  uint k = 0u;
  uint sum = t;
  while (k < {rounds}u) {{
    sum = sum * 7u + k;
    k = k + 1u;
  }}
  out[t] = sum;
}}
"""


class Timed(Scripted):
    """Steps back from the end of the launch, and says how long each move took."""

    def __init__(self) -> None:
        super().__init__([])
        self.moves = list(MOVES)
        self.begin, self.doing = time.perf_counter(), "the run, to its last instruction"

    def ask(self, session: Session) -> Order:
        print(f"{time.perf_counter() - self.begin:8.2f} s  {self.doing}")
        if not self.moves:
            return Go(CONTINUE)
        record = session.history.records[-1]
        self.doing = self.moves.pop(0).format(middle=record.ticks // 2)
        session.points.all.clear()
        self.begin = time.perf_counter()
        return Commands(session, print).run(self.doing) or Go(CONTINUE)


def main(vendor: str, waves: int) -> None:
    """Run a loop, and step back from its end."""
    rounds = MILLION // (6 if vendor == "metal" else 4) // waves  # instructions of a round
    face = Timed()
    session = Session(face)
    if vendor == "amd":
        loaded = Loaded(AMD.format(rounds=rounds), "gfx1100")
        loaded.memory.map(ARGUMENT_BASE, bytearray(512), name="kernarg")
        session.points.add("text", "s_endpgm")
        start = loaded.launch("loop", ARGUMENT_BASE)
        session.run_amd(loaded.core, start, (waves, 1, 1), (32, 1, 1))
    elif vendor == "metal":
        source = parse_msl(MSL.format(rounds=rounds))
        session.points.add("text", "out[t]")
        out = np.zeros(128 * waves, np.uint8)
        session.run_metal(Program(source, source.kernels["loop"]), (waves, 1, 1), (32, 1, 1), {0: out}, 0)
    else:
        space = NvSpace()
        session.points.add("text", "ret")
        session.run_nv(
            Kernel(PTX.format(rounds=rounds), "loop"), 0, space, (waves, 1, 1), (32, 1, 1), space, b""
        )
    print(f"{session.history.records[-1].done} wave instructions")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
