"""Experiments: short programs for what was inferred and never seen, the same for every vendor.

In       the bench
Out      Found with what the hardware said; Failure when it is not what the driver counts on
Changes  the device: memory, launches
Next     plan.py (their order), checks.py (what must work in any case), variants.py (the driver itself, changed)
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from typing import Any

from hcq import command
from hcq.doctor.check import Failure, Found, Skip
from hcq.errors import DriverError, UsageError
from hcq.system import native
from hcq.tools.hw import kernels
from hcq.tools.hw.bench import REPORT_IT, Bench
from hcq.tools.hw.checks import same
from hcq.tools.hw.kernels import pack, unpack, words

LANES = 32
PAUSE_S = 0.1
BATCH, COMMANDS = 64, 8  # submissions before the host waits, commands in one that is to fill a ring
SCRATCH_BLOCKS = 4096  # on hardware: more waves than any GPU holds at once
LONG_BLOCKS = 2048  # on hardware: as many threads as the largest GPU runs at once
FILLS = (
    (1, 1),
    (2, 1),
    (3, 1),
    (5, 1),
    (1021, 1),
    (4, 4),
    (12, 4),
    (8, 8),
    (24, 8),
    (1016, 8),
)  # bytes, width
LINE = 128  # bytes, as many as any cache between the host and a GPU keeps together
OTHERS = 3  # processes that open the GPU during a long kernel


def code_reuse(bench: Bench) -> Found:
    """Load A, run, free, load B: where B lies at A's address, does B run? Instruction caches keep what nobody drops."""
    images = {mark: kernels.image(bench.device.arch, f"mark{mark}") for mark in (1, 2)}
    x, seen, again = bench.buffer(4 * LANES), set(), 0
    for number in range(bench.sizes.reloads):
        mark = 1 + number % 2
        program = bench.device.load(images[mark], "mark")
        again += program.entry in seen
        seen.add(program.entry)
        bench.device.run(program, [x], block=(LANES, 1, 1))
        same(unpack(x.read()), [mark] * LANES, f"load {number}, at {program.entry:#x}")
        del program
        bench.device.recent.clear()  # what is remembered of a submission keeps its program
    if not again:
        return Found(
            f"{bench.sizes.reloads} loads never lay at the same address: nothing was learned", {"again": 0}
        )
    return Found(
        f"{bench.sizes.reloads} loads, {again} over other code: the new code ran each time", {"again": again}
    )


def scratch(bench: Bench) -> Found:
    """An array of its own for every lane, on more lanes than the GPU has at once."""
    n = 256 * (8 if bench.is_emulated else SCRATCH_BLOCKS)
    x = words(n)
    source, out = bench.buffer(4 * n, pack(x)), bench.buffer(4 * n)
    program = bench.programs("local_memory")
    bench.device.run(program, [out, source], grid=(n // 256, 1, 1), block=(256, 1, 1))
    got = unpack(out.read())
    shown = range(0, n, max(n // 2048, 1))  # as many as Python computes in a second
    wanted = kernels.local_results_at(x, shown)
    same([got[at] for at in shown], wanted, f"scratch memory of {n} lanes")
    return Found(f"{n} lanes, each with 256 bytes of its own: right", {"lanes": n})


def ring_wrap(bench: Bench) -> Found:
    """Submissions until every ring was written around several times: its read pointer is understood."""
    device, rounds = bench.device, bench.sizes.ring_rounds
    sizes = {ring.name: ring.size for ring in device.ring_states()}
    start = puts(device)
    x, y = bench.buffer(64), bench.buffer(64)
    submissions, number = 0, 0
    began = time.perf_counter()

    def submit(commands: int) -> None:
        nonlocal submissions
        queue = device.queue()
        for _ in range(commands):
            queue.fill(x, number, value_bytes=8).barrier().copy(y, x)
        queue.submit()
        submissions += 1

    def moved_by(commands: int) -> dict[str, int]:
        before = puts(device)
        submit(commands)
        return {name: put - before[name] for name, put in puts(device).items()}

    # a GPFIFO counts segments: a submission moves it by as much, whatever is in it
    fills = 0 if moved_by(1) == moved_by(COMMANDS) else COMMANDS
    while any(put - start[name] < rounds * sizes[name] for name, put in puts(device).items()):
        number += 1
        submit(COMMANDS)
        for _ in range(BATCH - 1):
            submit(fills)
        device.synchronize()
        if time.perf_counter() - began > bench.item.deadline_s * 0.7:
            break
    turns = {name: round((put - start[name]) / sizes[name], 2) for name, put in puts(device).items()}
    if y.read(0, 8) != number.to_bytes(8, "little"):
        raise Failure(
            f"after {submissions} submissions the last copy is not there: {y.read(0, 8).hex()}.", REPORT_IT
        )
    text = ", ".join(f"{name} {turn} times around" for name, turn in turns.items())
    return Found(f"{submissions} submissions: {text}", {"submissions": submissions, "turns": str(turns)})


def puts(device: Any) -> dict[str, int]:
    """How much was written into each ring."""
    return {ring.name: ring.put for ring in device.ring_states()}


def long_kernel(bench: Bench) -> Found:
    """One kernel on the whole GPU while other processes make queues and work: its waves are saved and restored."""
    device, most = bench.device, bench.sizes.patience
    lanes = 256 * (4 if bench.is_emulated else LONG_BLOCKS)
    out, flag = bench.buffer(12 * lanes), device.signal("hw_check")
    arguments = [out, flag.va, most]
    running = (
        device.queue()
        .dispatch(bench.programs("patient"), arguments, (lanes // 256, 1, 1), (256, 1, 1))
        .submit()
    )
    words_ = [sys.executable, "-m", "hcq", "doctor", "--device", bench.name, "--json"]
    others = [
        subprocess.Popen(words_, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(0 if bench.is_emulated else OTHERS)
    ]
    time.sleep(PAUSE_S)  # the kernel runs before anybody else comes
    codes = [other.wait() for other in others]
    was_running = not running.is_done
    flag.set(1)
    running.wait()
    seen = list(struct.iter_unpack("<3I", out.read()))
    for lane in range(0, lanes, max(lanes // 2048, 1)):
        steps = seen[lane][0]
        wanted = steps, kernels.stepped(steps, lane), (lane ^ 1) * kernels.MIX & kernels.M32
        same(
            list(seen[lane]), list(wanted), f"lane {lane} after {steps} steps beside {len(others)} processes"
        )
    if any(codes):
        raise Failure(f"processes beside this one ended with {codes}.", "python -m hcq doctor  # says why")
    longest = max(steps for steps, _, _ in seen)
    how = "was still running then" if was_running else f"had given up after {most} steps"
    return Found(
        f"{lanes} lanes of up to {longest} steps beside {len(others)} processes: right; the kernel {how}",
        {"lanes": lanes, "steps": longest, "outlasted": was_running},
    )


def odd_fills(bench: Bench) -> Found:
    """Fills of every short length at every alignment, and nothing beside them changes."""
    x = bench.buffer(4096)
    checked = 0
    value = 0x8877665544332211
    for offset in range(8):
        for size, width in FILLS:
            x.write(b"\xee" * 2048)
            part = value % (1 << 8 * width)
            bench.device.queue().fill(x, part, size, offset, width).submit().wait()
            wanted = part.to_bytes(width, "little") * (size // width)
            got = x.read(0, 2048)
            if got != b"\xee" * offset + wanted + b"\xee" * (2048 - offset - size):
                raise Failure(
                    f"fill of {size} bytes at +{offset} left {got[: offset + size + 8].hex()[:80]}.",
                    REPORT_IT,
                )
            checked += 1
    return Found(f"{checked} fills of 1 to 1021 bytes at odd places: right", {"fills": checked})


def wait64(bench: Bench) -> Found:
    """A wait whose value needs more than 32 bits: it holds while the low half alone would do, and then goes on."""
    device = bench.device
    signal, x = device.signal("hw_check"), bench.buffer(8)
    value = (5 << 32) + 3
    signal.set(7)  # more than 3 in the low half, less than the whole
    try:
        done = device.queue().wait(signal, value).fill(x, 1).submit()
    except UsageError as refusal:
        raise Skip(str(refusal)) from None
    time.sleep(PAUSE_S)
    if done.is_done:
        raise Failure(f"a wait for {value:#x} went on at 7: the device compares 32 bits.", REPORT_IT)
    signal.set(value)
    done.wait()
    return Found(f"a wait for {value:#x} held at 7 and went on at {value:#x}", {"value": value})


def fresh_reads(bench: Bench) -> Found:
    """The host reads a line of the GPU's memory, the GPU writes it, the host reads it again: is it the new one?"""
    device, rounds = bench.device, bench.sizes.round_trips
    try:
        memory = device.gpu_memory.alloc(1 << 16, device.seen_place)
    except DriverError as refusal:
        raise Skip(f"the host does not see the GPU's memory: {refusal}") from None
    wrong: list[str] = []
    try:
        for number in range(1, rounds + 1):
            va = memory.va + LINE * (number % 8)
            before = native.read(va, 4)
            fill = device.encode(command.Fill(va, number | number << 32, LINE))
            device.submit([fill], []).wait()
            first, second = (int.from_bytes(native.read(va, 4), "little") for _ in range(2))
            if (first, second) != (number, number):
                wrong.append(
                    f"round {number}: {before.hex()} before, {first:#x} and {second:#x} after {number:#x} came"
                )
    finally:
        device.gpu_memory.free(memory)
    if wrong:
        raise Failure(f"{len(wrong)} of {rounds} reads were old; {wrong[0]}", REPORT_IT)
    return Found(f"{rounds} lines, read, written by the GPU and read twice: new each time", {"lines": rounds})
