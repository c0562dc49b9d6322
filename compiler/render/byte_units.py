"""Matrix units of bytes: what the three renderers for GPUs know of them alike.

In       the name of a unit, as MATRIX instructions have it
Out      the formats of its factors, in PTX's words; how bytes of turned squares are sorted
Next     nvptx.py, cuda.py and amdgpu.py (who ask), ../loops/matrix_units.py (the units), ../linear/fragments.py
Source   PTX ISA, "prmt": a digit of the selector for each byte of the result, 0-3 of the first word, 4-7 of the other
"""

from __future__ import annotations

FACTORS = {
    a if a == b else a + b: (a, b) for kinds in (("s8", "u8"), ("e4m3", "e5m2")) for a in kinds for b in kinds
}

# two registers of turned pairs have two steps of k each: the first neighbour's four steps, the second one's
SORTED = (0x6420, 0x7531)


def are_floats(factors: tuple[str, str]) -> bool:
    """Whether their sums are float32, or else int32."""
    return factors[0].startswith("e")


def factors_of(unit: str) -> tuple[str, str] | None:
    """The formats of A and B; None for a unit of wider numbers.

    >>> factors_of("mma.u8s8"), factors_of("mma.f16")
    (('u8', 's8'), None)
    """
    return FACTORS.get(unit.rpartition(".")[2])
