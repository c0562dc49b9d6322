"""Compiled cores: random machine code of AMD's, and random PTX, by the interpreter and by compiled code.

In       a case
Out      registers, LDS and memory that are alike
Next     tests/hcq/emu/amd/shader/random_code.py, tests/hcq/emu/nv/shader/random_ptx.py and random_copies.py (what is
         drawn), hcq/emu/amd/shader/native.py and hcq/emu/nv/shader/native.py (what runs it)
"""

from __future__ import annotations

from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

LENGTHS = (1, 4, 12, 40)
WAYS = "0", "always"


def run(case: Case) -> Outcome:
    """Of three cases one is PTX."""
    return ptx(case) if case.number % 3 == 2 else machine_code(case)


def ptx(case: Case) -> Outcome:
    """A product of a warpgroup, copies of threads, or branches and loops."""
    from tests.hcq.emu.nv.shader import random_copies, random_ptx

    rng = case.rng()
    what, seed = rng.choice(["product", "copies", "branches"]), rng.randrange(1 << 30)
    if what == "branches":
        text, results = random_ptx.branches(seed)
        ran = [random_ptx.run(text, seed, way, len(results)) for way in WAYS]
        wrong: object = random_ptx.differences(ran[0], ran[1], results, set())
    else:
        one = getattr(random_copies, what)(seed)
        text = one.text
        wrong = random_copies.differ(one, *(random_copies.run(one, way).out for way in WAYS))
    if wrong:
        raise Wrong(f"{what}, seed {seed}: {wrong} differ\n{text}")
    return Outcome.RIGHT


def machine_code(case: Case) -> Outcome:
    """A program of one architecture, under one MODE."""
    from tests.hcq.emu.amd.shader import random_code
    from tests.hcq.emu.amd.shader.kernels import ISAS

    rng = case.rng()
    arch, mode = rng.choice(sorted(ISAS)), rng.choice(random_code.MODES)
    seed = rng.randrange(1 << 30)
    words, names = random_code.code(arch, seed, mode, rng.choice(LENGTHS))
    interpreted, compiled, _ = random_code.run(arch, words, seed, mode)
    wrong = random_code.differences(interpreted, compiled)
    if wrong:
        code = " ".join(f"{word:08x}" for word in words)
        raise Wrong(f"{arch}, MODE {mode:#x}, seed {seed}: {'; '.join(wrong)}\n{', '.join(names)}\n{code}")
    return Outcome.RIGHT


CAMPAIGNS = (
    Campaign(
        "compiled-cores",
        "random machine code of AMD GPUs and random PTX, interpreted and compiled",
        run,
        short=40,
    ),
)
