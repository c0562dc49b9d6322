"""KernelText: the text that a kernel's machine code was made from, for an emulated GPU that runs text.

In       what a search found about the code at an address
Out      KernelText; FindText, the type of such a search
Next     hcq/nv/foreign/kernel_text.py (the search for PTX), hcq/emu/nv/code.py (who asks)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class KernelText(NamedTuple):
    """A kernel by name, and what it was made from.

    text         the whole module; empty where the object has been found, but no text
    param_bytes  of its parameters
    symbols      addresses of the module's variables that its code reads or writes
    """

    name: str
    text: bytes
    param_bytes: int
    symbols: tuple[tuple[str, int], ...]


# (process, architecture, program address, (address, bytes) -> bytes or none, number of a constant bank -> its address
# or 0) -> the text, or None where no object has this code
FindText = Callable[[int, str, int, Callable[[int, int], bytes], Callable[[int], int]], "KernelText | None"]
