"""Compiled cores: random machine code of AMD's, by the interpreter and by compiled code.

In       a case
Out      registers, LDS and memory that are alike
Next     tests/hcq/emu/amd/shader/random_code.py (what is drawn), hcq/emu/amd/shader/native.py (what runs it)
"""

from __future__ import annotations

from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

LENGTHS = (1, 4, 12, 40)


def run(case: Case) -> Outcome:
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
        "compiled-cores", "random machine code on emulated AMD GPUs, interpreted and compiled", run, short=40
    ),
)
