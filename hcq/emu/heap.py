"""The C library's heap keeps what a shader core frees: the next instruction asks for as much again.

In       nothing
Out      keep_freed()
Changes  parameters of malloc, for the process
Next     worker.py (who calls, before an emulated GPU first runs)
Source   mallopt(3)

A shader core makes arrays of some hundred KiB for each instruction. From 128 KiB on glibc gets each from the kernel and
gives it back when it is freed, and all that is then written are pages that fault first: half of the time of a copy.
"""

from __future__ import annotations

import functools

from hcq.errors import DriverError
from hcq.system import native

PROTOTYPE = "int(*)(int, int)"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 64 << 20  # at the end of the heap; what one of glibc's arenas has at most
LARGEST_BYTES = 32 << 20  # of an array that comes from the heap; glibc takes no more


@functools.cache
def keep_freed() -> None:
    """Let the heap keep its memory. C libraries without mallopt have nothing to set."""
    try:
        mallopt = native.function(native.symbol("mallopt"), PROTOTYPE)
    except DriverError:
        return
    mallopt(M_MMAP_THRESHOLD, LARGEST_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
