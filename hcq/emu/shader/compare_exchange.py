"""Compare and exchange, of many numbers in memory that another process or thread changes, too.

In       addresses, what has been read there, what is to be there
Out      what was there: the same, and then it has been replaced, or something else
Changes  the numbers that were still as read
Next     hcq/system/machine_code.py (how code gets into a page), emu/amd/shader/memory.py and emu/amd/memory.py (who
         does atomic operations so)
Source   Intel SDM 2A: CMPXCHG; Arm Architecture Reference Manual: LDAXR, STLXR

Python has no word for it. On machines that are neither x86-64 nor aarch64 the numbers are compared and then written.
"""

from __future__ import annotations

import functools
import platform
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcq.system import native
from hcq.system.machine_code import as_function
from hcq.system.port import LinuxPort

Array = NDArray[Any]

# for each of `count` numbers: if *addresses[i] is found[i], it becomes new[i]; found[i] becomes what was there
PROTOTYPE = "void(*)(void *addresses, void *found, void *new, size_t count)"
CODE = {
    # test rcx, rcx; jz end; mov r8, [rdi]; mov eax, [rsi]; mov r9d, [rdx]; lock cmpxchg [r8], r9d; mov [rsi], eax; next
    ("x86_64", 4): "4885c974204c8b078b06448b0af0450fb10889064883c7084883c6044883c20448ffc9ebdbc3",
    ("x86_64", 8): "4885c974224c8b07488b064c8b0af04d0fb1084889064883c7084883c6084883c20848ffc9ebd9c3",
    # cbz x3, end; ldr x4, [x0], #8; ldr w5, [x1]; ldr w6, [x2], #4; again: ldaxr w7, [x4]; cmp w7, w5; b.ne met;
    # stlxr w8, w6, [x4]; cbnz w8, again; met: str w7, [x1], #4; sub x3, x3, #1; next
    ("aarch64", 4): (
        "830100b4048440f8250040b9464440b887fc5f88ff00056b6100005486fc088888ffff35274400b8630400d1f5ffff17c0035fd6"
    ),
    ("aarch64", 8): (
        "830100b4048440f8250040f9468440f887fc5fc8ff0005eb6100005486fc08c888ffff35278400f8630400d1f5ffff17c0035fd6"
    ),
}


@functools.cache
def _function(size_bytes: int) -> Any:
    code = CODE.get((platform.machine(), size_bytes))
    return None if code is None else as_function(bytes.fromhex(code), LinuxPort(), PROTOTYPE)


def exchange(addresses: Array, old: Array, new: Array) -> Array:
    """Replace (n,) numbers of 4 or 8 bytes, at addresses that are multiples of that, if they are still the old ones.

    Returns   what was there: equal to `old`, bit for bit, where it has been replaced
    """
    found = np.array(old, order="C")
    places = np.ascontiguousarray(addresses, dtype=np.uint64)
    put = np.ascontiguousarray(new, dtype=found.dtype)
    function = _function(found.itemsize)
    if function is None:
        return _one_by_one(places, found, put)
    function(*(native.pointer(one.ctypes.data) for one in (places, found, put)), len(found))
    return found


def add(address: int, addend: int) -> None:
    """Add to a number of 64 bits, at a multiple of 8, whatever others do there at the same time."""
    function = _function(8)
    words = np.empty(3, np.uint64)  # the address, what is found there, what is to be there
    at = words.ctypes.data
    places = [native.pointer(at + 8 * index) for index in range(3)]
    words[0], old = address, int.from_bytes(native.read(address, 8), "little")
    while True:
        words[1], words[2] = old, old + addend & 2**64 - 1
        if function is None:
            native.write(address, words[2:].tobytes(), 8)
            return
        function(*places, 1)
        found = int(words[1])
        if found == old:
            return
        old = found


def _one_by_one(places: Array, found: Array, put: Array) -> Array:
    for index, va in enumerate(places.tolist()):
        there = native.read(va, found.itemsize)
        if there == found[index].tobytes():
            native.write(va, put[index].tobytes(), found.itemsize)
        found[index] = np.frombuffer(there, found.dtype)[0]
    return found
