"""Registers of a wave as numbers, and what an instruction does to them.

In       nothing
Out      Uses; the name of a register by its number
Next     register_uses.py (the Uses of an instruction), register_waits.py (which registers have yet to be filled)

Scalar registers have the numbers that they have as source operands, vector ones are from VECTOR on. AccVGPRs are vector
registers from a launch's acc_offset on.
"""

from __future__ import annotations

from dataclasses import dataclass

VECTOR = 128  # v0 is register 128
VCC, EXEC = 106, 126


@dataclass(frozen=True)
class Uses:
    """Register numbers, in order of operands. across: it reads lanes that are off, or others than its own."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    across: bool = False

    @property
    def all(self) -> tuple[int, ...]:
        """Both, each register once."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


def name_of(register: int) -> str:
    """As it is written: s5, vcc_lo, v7."""
    if register >= VECTOR:
        return f"v{register - VECTOR}"
    special = {VCC: "vcc_lo", VCC + 1: "vcc_hi", EXEC: "exec_lo", EXEC + 1: "exec_hi"}
    return special.get(register, f"s{register}")
