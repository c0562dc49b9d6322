"""Machine code: makes a callable from a few instructions that Python cannot express, such as a memory barrier.

In       instruction bytes for this machine's processor, and the function's type in C
Out      a callable
Changes  maps a page that is never writable and executable
Next     gpu/fence.py (a barrier), emu/shader/compare_exchange.py (compare and exchange), native.py (functions at an
         address)
"""

from __future__ import annotations

from typing import Any

from hcq.system import native
from hcq.system.port import MAP_ANONYMOUS, MAP_PRIVATE, PAGE_BYTES, PROT_EXEC, PROT_READ, PROT_WRITE, Port


def as_function(code: bytes, port: Port, prototype: str = "void(*)(void)") -> Any:
    """Machine code in a page of its own, as a function. Raises DriverError where that is refused.

    prototype   its type, as in C

    The page is never writable and executable. It was never executed before, so no instruction cache holds anything of
    it: the kernel makes the data cache's content visible to them when it first maps a page as executable.
    """
    va = port.mmap(0, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
    try:
        native.write(va, code, len(code))
        port.mprotect(va, PAGE_BYTES, PROT_READ | PROT_EXEC)
    except BaseException:
        port.munmap(va, PAGE_BYTES)
        raise
    return native.function(va, prototype)
