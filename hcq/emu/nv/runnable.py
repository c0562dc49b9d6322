"""Whether an emulated GPU can run an entry of a PTX text: asked when the entry is loaded, before anything is launched.

In       PTX, an entry, where its parameters begin in constant bank 0
Out      nothing; UsageError with the line and the instruction that cannot run
Changes  keeps what is parsed and decoded, for the launch
Next     shader/program.py (what an entry reaches), shader/opcodes.py (the rules, which launches decode by, too)
"""

from __future__ import annotations

from hcq.emu.nv.shader.run import Kernel, parsed
from hcq.errors import UsageError


def check(text: bytes, entry: str, param_base: int, label: str) -> None:
    """Refuse what cannot run, or is no PTX, in an entry or in what it reaches.

    label   how messages call the program
    Raises  UsageError
    """
    try:
        Kernel(parsed(text, param_base), entry, param_base=param_base).program.check()
    except UsageError as error:
        raise UsageError(
            f"load({label!r}): an emulated GPU cannot run the kernel {entry!r}: {error}"
        ) from None
