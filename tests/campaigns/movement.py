"""Movement: random programs that move values around, against NumPy, with no memory around their buffers.

In       a case
Out      right, or Wrong with the program; a load or store outside of every buffer ends the process
Changes  the CPU device's pool and target while a case runs
Next     _programs.py (the programs), _operations.py (what they are made of), _guard_pages.py (nothing around buffers)

Each program runs twice: its buffers end where memory may not be touched, then they begin there. The code is made for
this machine's processor or for an older one, so that wide and masked loads of every kind are met.
"""

from __future__ import annotations

import gc
import os
import platform
import signal
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.campaigns._guard_pages import guarded
from tests.campaigns._programs import Program, differences, draw, smallest, write
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

if TYPE_CHECKING:
    from hcq.compiler.target import Target

THREADS = 2
SHRINK_SECONDS = 120
TRIAL_SECONDS = 60  # of a smaller program, in a process of its own
SMALL_LEAF = 600  # elements, where every instruction is emulated
OLDER = {"x86-64-v3": (256, 16), "x86-64-v2": (128, 16)}  # vector bits and registers


def run(case: Case) -> Outcome:
    """One program on the CPU device, between guard pages."""
    what = _attempt(*_drawn(case))
    if what:
        raise Wrong(what)
    return Outcome.RIGHT


def run_emulated(case: Case) -> Outcome:
    """One small program on an emulated GPU, which reports stray accesses by itself."""
    from hcq.frontend.core import device as devices

    what = _compare(draw(case.rng(), SMALL_LEAF))
    devices.get(devices.default()).synchronize()
    _forget()
    if what:
        raise Wrong(what)
    return Outcome.RIGHT


def explain(case: Case) -> str:
    """The smallest program found that fails as this case does; each is tried in a process of its own."""
    return _explained(*_drawn(case), between_guards=True)


def explain_emulated(case: Case) -> str:
    return _explained(draw(case.rng(), SMALL_LEAF), "", between_guards=False)


def _drawn(case: Case) -> tuple[Program, str]:
    """The program of a case, and the processor that it is compiled for ("": this one)."""
    from hcq.compiler.target import cpu_target

    rng = case.rng()
    known = [name for name, (bits, _) in OLDER.items() if bits <= cpu_target(threads=THREADS).vector_bits]
    processor = rng.choice(("", *OLDER))
    most = rng.choice((500, 5_000, 40_000))
    return draw(rng, most), processor if processor in known and platform.machine() == "x86_64" else ""


def _target(processor: str) -> Target:
    from hcq.compiler.target import cpu_target
    from hcq.ir.dtype import dtypes

    host = cpu_target(threads=THREADS)
    if not processor:
        return host
    bits, registers = OLDER[processor]
    has_half = processor != "x86-64-v2"
    casts = host.casts if has_half else host.casts - {dtypes.float16}
    return replace(
        host, key=processor, cpu=processor, vector_bits=bits, vector_registers=registers, casts=casts
    )


def _attempt(program: Program, processor: str) -> str:
    """What is wrong with a program's results, or ""; its buffers flush with the page behind, then with that before."""
    from hcq.frontend.core import device as devices

    device = devices.get("CPU")
    devices._targets["CPU"] = _target(processor)
    try:
        with guarded(device) as pool:
            for pool.at_end in (True, False):
                told = _compare(program)
                gc.collect()
                pool.sweep()
                if told:
                    flush = "end" if pool.at_end else "begin"
                    return (
                        f"for {processor or 'this processor'}, buffers that {flush} at a guard page\n{told}"
                    )
    finally:
        _forget()
        device.recent.clear()  # which holds the programs of the last submissions
    return ""


def _forget() -> None:
    """Leave no plan and no code behind: the next case may be for another processor."""
    from hcq.compiler import compile as compiler
    from hcq.frontend.run import plan

    plan._plans.clear()
    plan._programs.clear()
    plan.toolchain.cache_clear()
    compiler.forget()


def _compare(program: Program) -> str:
    """The program and what is wrong with it, or ""."""
    from hcq import Tensor, dtypes

    written = write(program)
    names: dict[str, Any] = {"Tensor": Tensor, "dtypes": dtypes, "np": np}
    try:
        exec("\n".join(written.lines), names)
        ours = {value.name: _values(names[value.name]) for value in written.results}
    except Exception:
        return f"{written}\n{traceback.format_exc()}"
    what = differences(written, ours)
    return f"{written}\n{what}" if what else ""


def _values(tensor: Any) -> tuple[str, np.ndarray]:
    dtype = tensor.dtype.name
    return dtype, (tensor.float() if dtype.startswith(("bfloat", "fp8")) else tensor).numpy()


# -- what a failure is told as --------------------------------------------------------------------------------------


def _explained(program: Program, processor: str, between_guards: bool) -> str:
    def trial(candidate: Program) -> str:
        return _in_a_child(candidate, processor, between_guards)

    kind = trial(program)
    if not kind:
        return f"it fails among others only, for {processor or 'this processor'}:\n{write(program)}"
    small = smallest(program, lambda candidate: _kind(trial(candidate)) == _kind(kind), SHRINK_SECONDS)
    return f"smallest that fails, for {processor or 'this processor'}:\n{write(small)}\n{trial(small)}"


def _kind(told: str) -> str:
    """The kind of a failure: how the process ended, an exception, or wrong numbers."""
    last = told.strip().splitlines()[-1] if told.strip() else ""
    return last.split(":")[0] if "Error" in last or last.startswith(("SIG", "exit")) else last and "wrong"


def _in_a_child(program: Program, processor: str, between_guards: bool) -> str:
    """What a program says in a process of its own, or how it ends that process; "" when all is well.

    This process has opened no device, so a forked child can.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reads)
            signal.alarm(TRIAL_SECONDS)
            told = _attempt(program, processor) if between_guards else _compare(program)
            os.write(writes, told.encode()[-4000:])
            os._exit(0)
        except BaseException:
            os.write(writes, traceback.format_exc().encode()[-4000:])
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads, "rb") as said:
        told = said.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return told or (f"exit code {os.WEXITSTATUS(status)}" if status else "")


CAMPAIGNS = (
    Campaign(
        "movement",
        "random programs that move values; every buffer ends or begins at a guard page",
        run,
        short=96,
        environment={"HCQ_THREADS": str(THREADS)},
        explain=explain,
    ),
    Campaign(
        "movement-amd",
        "small ones of the same on an emulated gfx1100",
        run_emulated,
        short=4,
        environment={"HCQ_EMULATE": "amd:gfx1100", "HCQ_DEVICE": "AMD"},
        explain=explain_emulated,
    ),
    Campaign(
        "movement-nv",
        "small ones of the same on an emulated sm_90",
        run_emulated,
        short=4,
        environment={"HCQ_EMULATE": "nv:sm_90", "HCQ_DEVICE": "NV"},
        explain=explain_emulated,
    ),
)
