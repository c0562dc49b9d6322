"""gfx1151: RDNA3 with floats of scalars, which compute what gfx1201's do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hcq.emu.amd.shader.bench import ISAS, run

NEW = sorted(set(ISAS["gfx1151"].by_name) - set(ISAS["gfx1100"].by_name))
RNG_WORDS = (0x3F800000, 0xC0490FDB, 0x7F800000, 0x7FC00001, 0x80000000, 0x00000001, 0x4B189680, 0x3C003555)


def test_nothing_of_rdna3_is_missing():
    assert set(ISAS["gfx1100"].by_name) < set(ISAS["gfx1151"].by_name)
    assert len(NEW) == 58 and all(name.startswith("s_") for name in NEW)


@pytest.mark.parametrize("name", NEW)
def test_a_scalar_float_computes_what_gfx1201_computes(name: str) -> None:
    other = name.replace("s_min_f", "s_min_num_f").replace("s_max_f", "s_max_num_f")
    ((_, opcode),) = ISAS["gfx1151"].by_name[name]
    for a in RNG_WORDS:
        for b in RNG_WORDS[:4] if len(opcode.operands) > 2 else RNG_WORDS[:1]:
            registers = {"sdst": "s20", "ssrc0": "s2", "ssrc1": "s3", "literal32": 0x40A00000}
            texts = [registers[one.field] for one in opcode.operands]
            s = {2: a, 3: b, 20: 0x3F000000}
            own, theirs = (
                run(arch, one, *texts, s=s) for arch, one in (("gfx1151", name), ("gfx1201", other))
            )
            assert np.array_equal(own.s[:, 20], theirs.s[:, 20]) and np.array_equal(own.scc, theirs.scc)
