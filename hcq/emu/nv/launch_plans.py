"""Launches like those before: what was found of a launch description holds for the next one that says the same.

In       a QMD whose bank's address is taken out of it, the code it names, constant bank 0
Out      Plan: what follows from these, where all of it has been checked before
Changes  itself
Next     launch.py (who checks, and asks), compute_processor.py (who takes the address out)

A launcher writes the parameters of each launch to a place of their own, so its QMDs differ in one address; and its
banks in the parameters and in words that say where the bank is.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from hcq.emu.nv.code import Code
from hcq.nv.abi.qmd import Qmd

MAX_PLANS = 1 << 12


BEHIND = (
    *(f"release{number}_enable" for number in range(3)),
    *(f"dependent_qmd{number}_enable" for number in range(2)),
)


class Split(NamedTuple):
    """A QMD without the address of constant bank 0, which all launches have that say the same; and a QMD with it.

    is_alone  nothing follows its grid: no semaphore, no other QMD
    """

    common: Qmd
    qmd: Qmd
    is_alone: bool


class Spot(NamedTuple):
    """Words of the bank that say where it is: so far behind its start they are `ahead` of its address, or all zero."""

    at: int
    ahead: tuple[int, ...]


class Plan(NamedTuple):
    """What a launch does.

    head      the bank up to the parameters, with zeros at all spots
    left_out  which spots were zero
    """

    common: Qmd
    code: Code
    has_code: bool
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_bytes: int
    param_at: int
    envregs: dict[str, int]
    together: bool
    spots: tuple[Spot, ...]
    head: bytes
    left_out: tuple[bool, ...]

    def suits(self, code: Code, has_code: bool, bank: bytes, va: int) -> bool:
        """Whether a launch with the same QMD does the same: with this code, and a bank at this address."""
        if code is not self.code or has_code != self.has_code:
            return False
        head, left_out = without(bank, self.param_at, self.spots)
        if head != self.head or left_out != self.left_out:
            return False
        return all(
            is_zero
            or struct.unpack_from(f"<{len(one.ahead)}Q", bank, one.at) == tuple(va + by for by in one.ahead)
            for one, is_zero in zip(self.spots, left_out)
        )


def without(bank: bytes, param_at: int, spots: tuple[Spot, ...]) -> tuple[bytes, tuple[bool, ...]]:
    """A bank up to the parameters, with zeros at spots; which spots were zero."""
    head, zeros = bytearray(bank[:param_at]), []
    for one in spots:
        size = 8 * len(one.ahead)
        zeros.append(not any(head[one.at : one.at + size]))
        head[one.at : one.at + size] = bytes(size)
    return bytes(head), tuple(zeros)


class Plans:
    """Of a GPU: by what QMDs have in common, the address space and what the channel said."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Plan] = {}

    def find(self, common: Qmd, *rest: object) -> Plan | None:
        """The plan of launches that say the same."""
        return self._known.get((id(common), *rest))

    def keep(self, plan: Plan, *rest: object) -> None:
        """For the next ones. The plan holds on to what it is found by."""
        if len(self._known) >= MAX_PLANS:
            self._known.clear()
        key: tuple[object, ...] = (id(plan.common), *rest)
        self._known[key] = plan
