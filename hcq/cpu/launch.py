"""Launches on the CPU device: where arguments go, and why a launch is refused. The hot path is in device.py.

In       a program, arguments, a grid
Out      the shape that arguments of these types are packed in; values in a form that packs, or the error
Changes  the program's notes on types that it has seen
Next     encode.py (the packet), device.py (encode_dispatch), hcq/gpu/program.py (the same for GPUs)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hcq import checks
from hcq.base import Grid
from hcq.cpu.encode import ArgumentShape, argument_shape
from hcq.cpu.processor import Machine
from hcq.device import Device
from hcq.errors import UsageError
from hcq.memory import Buffer, kind_of
from hcq.program import Program, check_dispatch
from hcq.queue import ONE
from hcq.system.call_site import site

MAX_GRID = 2**31 - 1


def place_arguments(
    machine: Machine, program: Program, args: Sequence[Any], types: tuple[type, ...]
) -> ArgumentShape:
    """Check arguments against the program's kinds, once for each combination of types, and place them."""
    letters = []
    if program.args is not None and len(args) != len(program.args):
        raise UsageError(
            f"dispatch {program.name}: takes {len(program.args)} arguments ({', '.join(program.args)}), got "
            f"{len(args)}."
        )
    is_kept = True
    for index, arg in enumerate(args):
        may_be_pointer = program.args is None or program.args[index] == "buffer"
        kind = "buffer" if arg is None and may_be_pointer else kind_of(arg)
        if not kind:
            raise UsageError(
                f"dispatch {program.name}: argument {index} is {checks.shown(arg)}. An argument is a Buffer, an "
                "int or a float, or None for a null pointer."
            )
        wanted = kind if program.args is None else program.args[index]
        if (wanted, kind) == ("buffer", "int"):  # null is 0, too, and that is looked at each time
            is_kept = False
            kind = "buffer" if checks.is_null(arg) else kind
        if wanted != kind and not (wanted == "float" and kind == "int"):
            raise UsageError(f"dispatch {program.name}: argument {index} is a {wanted}, got {arg!r}.")
        letters.append("f" if wanted == "float" else "i")
    shape = argument_shape(machine, "".join(letters))
    if is_kept:
        program.shapes[types] = shape
    if program.first_site is None:
        program.first_site = site()
    return shape


def fitting_values(
    device: Device,
    program: Program,
    args: Sequence[Any],
    values: list[Any],
    grid: Grid,
    groups_per_claim: int,
) -> list[Any]:
    """Packing failed: say why, or return the values in a form that packs (unsigned 64-bit ones as signed)."""
    check_dispatch(device, program, args, ONE, groups_per_claim)
    refuse_launch(device, program, grid, ONE)
    fitting: list[Any] = []
    for index, (arg, value) in enumerate(zip(args, values)):
        if isinstance(arg, Buffer):
            value = arg.address  # raises when it was freed
            if arg.device is not device:
                raise arg.elsewhere(f"dispatch {program.name}", device)
        elif arg is None:
            value = 0
        elif (program.args[index] if program.args is not None else kind_of(arg)) == "float":
            try:
                value = float(value)
            except OverflowError:
                raise _no_room(program, index, value) from None
        else:
            value = value.__index__()
            if not -(2**63) <= value < 2**64:
                raise _no_room(program, index, value)
            value = value - 2**64 if value >= 2**63 else value
        fitting.append(value)
    return fitting


def _no_room(program: Program, index: int, value: object) -> UsageError:
    return UsageError(
        f"dispatch {program.name}: argument {index} is {checks.shown(value)}; it does not fit 64 bits."
    )


def refuse_launch(device: Device, program: Program, grid: Grid, block: Grid) -> None:
    """Raises UsageError when grid or block cannot be right, or the program is another device's."""
    grid = checks.sizes(f"dispatch {program.name}", "grid", grid, (MAX_GRID, MAX_GRID, MAX_GRID))
    block = checks.sizes(f"dispatch {program.name}", "block", block, (MAX_GRID, MAX_GRID, MAX_GRID))
    if math.prod(grid) >= 2**62:
        raise UsageError(
            f"dispatch {program.name}: grid={grid!r} has {math.prod(grid)} groups, more than 2**62."
        )
    if block != ONE:
        raise UsageError(
            f"dispatch {program.name}: block={block!r}; a group is one call on {device.name}, so block is (1, 1, 1)."
        )
    if program.device is not device:
        raise UsageError(f"dispatch: {program!r} is loaded on {program.device.name}, not on {device.name}.")
