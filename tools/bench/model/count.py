"""Count: run the kernels of the ladders on emulated GPUs, some blocks of each launch, and keep what they did.

In       ladders.CASES; nvrtc for CUDA C, clang and lld with AMD's target for the others
Out      counted.json: what was counted -> Counters of the sample
Changes  counted.json
Next     ladders.py (the launches), page.py (who predicts from it), hcq/performance/counters.py (the record)

    python -m tools.bench.model.count [--again] [TEXT]    TEXT: only what has it in its name
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, "") or __package__.startswith("tools"):  # from a checkout
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import hcq
from hcq import config
from hcq.errors import UsageError
from hcq.performance import counters, datasheets
from hcq.performance.counters import Counters
from hcq.tools.bench.model.ladders import CASES, Case

COUNTED = Path(__file__).with_name("counted.json")
CLANGS = (*(f"clang-{version}" for version in range(22, 15, -1)), "clang")
LONGEST_MS = 600_000
CHUNK = 1 << 24
INCLUDE = re.compile(r'^#include "(.*)"\n', re.MULTILINE)


def arch_of(case: Case) -> str:
    """What the case's chip runs."""
    return datasheets.chip(case.chip).arch


def key_of(case: Case) -> str:
    """Its name in counted.json, of a case of one launch."""
    return f"{arch_of(case)} {case.counted_as}"


def load() -> dict[str, Counters]:
    """What was counted before."""
    if not COUNTED.exists():
        return {}
    return {key: Counters.from_fields(fields) for key, fields in json.loads(COUNTED.read_text()).items()}


def save(found: dict[str, Counters]) -> None:
    """Keep it, one launch a line."""
    empty = Counters().as_fields()
    lines = []
    for key, made in sorted(found.items()):
        fields = {name: _short(value) for name, value in made.as_fields().items() if value != empty[name]}
        lines.append(f"{json.dumps(key)}: {json.dumps(fields)}")
    COUNTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return value


def source_of(name: str) -> str:
    """A file of kernels beside this one; what it includes stands in it."""
    path = next(Path(__file__).parent.glob(f"{name}.*"))
    return INCLUDE.sub(lambda found: (path.parent / found[1]).read_text(), path.read_text())


def image_of(case: Case) -> bytes:
    """The module that has the case's kernel, compiled for its chip. Raises UsageError where no compiler is."""
    source, arch = source_of(case.module), arch_of(case)
    if arch.startswith("sm_"):
        from hcq.nv.toolchain.images import of_cuda

        return of_cuda(source, arch, case.module)
    return _by_clang(source, arch)


def _by_clang(source: str, arch: str) -> bytes:
    clang = next((name for name in CLANGS if shutil.which(name)), None)
    if clang is None:
        raise UsageError(
            "kernels for AMD's GPUs need clang and lld, version 16 or later: apt install clang-19 lld-19"
        )
    how = [
        "--cuda-device-only",
        f"--offload-arch={arch}",
        "-nogpuinc",
        "-nogpulib",
        "--no-gpu-bundle-output",
        "-c",
    ]
    with tempfile.TemporaryDirectory() as folder:
        text, made = Path(folder, "k.hip"), Path(folder, "k.o")
        text.write_text(source)
        command = [clang, "-x", "hip", *how, "-O3", "-ffp-contract=fast", str(text), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise UsageError(f"{clang} does not compile {arch}: {done.stderr[-400:]}")
        return made.read_bytes()


def _buffer(device: Any, what: tuple[str, int]) -> Any:
    made = device.alloc(what[1])
    if what[0] == "random":
        import numpy as np

        piece = np.random.default_rng(1).integers(0, 256, CHUNK, np.uint8).tobytes()
        for at in range(0, what[1], CHUNK):
            made.write(piece, at)
    return made


def run(device: Any, image: bytes, case: Case) -> Counters:
    """What the sample of a launch did."""
    program = device.load(image, case.entry)
    program.dynamic_shared_bytes = case.shared_bytes
    arguments = [_buffer(device, one) if isinstance(one, tuple) else one for one in case.arguments]
    try:
        with counters.count(blocks=case.sample) as launches:
            queue = device.queue().dispatch(program, arguments, grid=case.grid, block=case.block)
            queue.submit().wait(timeout_ms=LONGEST_MS)
    finally:
        for one in arguments:
            if hasattr(one, "free"):
                one.free()
    return Counters.from_fields({**launches[0].as_fields(), "kernel": case.entry, "entry": 0})


def counts(arch: str, cases: Sequence[Case]) -> Iterator[tuple[str, Counters]]:
    """Each of these cases, as an emulated GPU of their architecture counts it: (its key, the record)."""
    kind = "nv" if arch.startswith("sm_") else "amd"
    before = config.current()
    config.use(dataclasses.replace(before, emulate=(f"{kind}:{arch}",), timeout_ms=LONGEST_MS))
    device = hcq.open(kind.upper())
    images: dict[str, bytes] = {}
    try:
        for case in cases:
            begun = time.monotonic()
            if case.module not in images:
                images[case.module] = image_of(case)
            made = run(device, images[case.module], case)
            print(f"{time.monotonic() - begun:6.1f} s  {case.ladder}, {case.row}", flush=True)
            yield key_of(case), made
    finally:
        device.close()
        config.use(before)


def on_device(arch: str, cases: Sequence[Case]) -> dict[str, Counters]:
    """All of them."""
    return dict(counts(arch, cases))


def main() -> None:
    """See the head."""
    parser = argparse.ArgumentParser(description="Count the kernels of the ladders on emulated GPUs.")
    parser.add_argument("text", nargs="?", default="", help="only what has this in its name")
    parser.add_argument("--again", action="store_true", help="also what is counted already")
    asked = parser.parse_args()
    found = load()
    wanted = [launch for case in CASES for launch in case.launches]
    found = {key: made for key, made in found.items() if key in {key_of(case) for case in wanted}}
    todo: dict[str, Case] = {}
    for case in wanted:
        if asked.text in f"{case.ladder} {key_of(case)}" and (asked.again or key_of(case) not in found):
            todo.setdefault(key_of(case), case)
    for arch in sorted({arch_of(case) for case in todo.values()}):
        for key, made in counts(arch, [case for case in todo.values() if arch_of(case) == arch]):
            found[key] = made
            save(found)


if __name__ == "__main__":
    main()
