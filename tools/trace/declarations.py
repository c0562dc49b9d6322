"""declarations: packets, registers and methods that a user declares in a Python file of his own, for every verb.

In       the file; it enters its classes in the tables of hcq as docs/own-packets.md says
Out      the names of classes that the file declares and enters nowhere
Changes  the tables of this process
Next     docs/own-packets.md (how one is declared), hcq/layout.py (what it is made of)

The file runs, as any program does: name only files that you trust.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hcq.checks import printable
from hcq.errors import UsageError
from hcq.layout import Packet

RUN_AS = "declarations"  # what __name__ is in the file


def run(path: str) -> None:
    """Run a file of declarations, and say on stderr what it declares in vain. Raises UsageError as load does."""
    for name in load(path):
        print(f"hcq-trace: {printable(name)} is in no table, and is not used.", file=sys.stderr)


def load(path: str) -> list[str]:
    """Run a file of declarations; the classes of packets in it that no table has.

    Raises  UsageError that names the file, the line and the error
    """
    if not Path(path).is_file():
        raise UsageError(
            f"--declarations {path}: there is no such file. Name a Python file that declares packets."
        )
    try:
        made = runpy.run_path(path, run_name=RUN_AS)
    except SystemExit as error:
        raise UsageError(
            f"--declarations {path}: it ends the program ({error.code}); declarations only declare."
        ) from None
    except Exception as error:
        raise UsageError(
            f"--declarations {path}{_line(path, error)}: {type(error).__name__}: {error}."
        ) from None
    return list(_left_out(made))


def _line(path: str, error: Exception) -> str:
    """Where in the file an error is, as ", line 12"."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f", line {lines[-1]}" if lines else ""


def _left_out(made: Mapping[str, Any]) -> Iterator[str]:
    own = {
        name: thing
        for name, thing in made.items()
        if isinstance(thing, type)
        and issubclass(thing, Packet)
        and thing.__module__ == RUN_AS
        and not name.startswith("_")
    }
    if not own:
        return
    entered = {id(layout) for table in _tables() for layout in table.values()}
    bases = {id(base) for thing in own.values() for base in thing.__mro__[1:]}
    for name, thing in own.items():
        if id(thing) not in entered and id(thing) not in bases:
            yield name


def _tables() -> Iterator[Mapping[int, type[Packet]]]:
    """Every table that a decoder reads."""
    from hcq.amd.abi import other_packets, pm4
    from hcq.amd.chip import CHIPS
    from hcq.cpu.packets import PACKETS
    from hcq.nv.abi.classes import COMPUTE, COPY, GPFIFO
    from hcq.nv.abi.methods import methods_of

    for chip in CHIPS.values():
        yield chip.packets
        yield chip.copies.packets
    yield pm4.SetShReg.layouts
    yield pm4.SetUconfigReg.layouts
    yield other_packets.SDMA
    yield PACKETS
    for class_id in (*COMPUTE, *COPY, *GPFIFO):
        yield methods_of(class_id)
