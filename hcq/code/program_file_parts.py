"""Program file parts: what a kind of device adds to a saved program besides kernels, and what it needs of the machine.

In       what a backend declares (hcq/backends.py, `carried`)
Out      `Carried`; `NOTHING`, for devices that need kernels alone
Next     cpu/program_file_parts.py (the CPU's), artefact/program.py (checks and uses them), frontend/jit/saving.py
         (writes them)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


def _no_words() -> frozenset[str]:
    return frozenset()


def _no_runtime() -> tuple[str, bytes] | None:
    return None


def _ignored(key: str, image: bytes) -> None:
    pass


class Carried(NamedTuple):
    """What differs from kind to kind.

    abi       the version of the convention by which its kernels are launched, where it is ours
    features  what this machine's processor has that a compiler may have used
    runtime   code that the device itself needs and a compiler makes: its key, and the object; None when there is none
    offer     such code, for when the device opens and has none: taken if the key is the one it looks for
    """

    abi: int = 1
    features: Callable[[], frozenset[str]] = _no_words
    runtime: Callable[[], tuple[str, bytes] | None] = _no_runtime
    offer: Callable[[str, bytes], None] = _ignored


NOTHING = Carried()
