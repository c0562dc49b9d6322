"""The filter: which system calls of a traced program stop. All others run at full speed.

In       nothing
Out      install(): the filter, in the process that is about to become the program
Changes  the process: it and all that it starts have the filter for good
Next     tracer.py (who is stopped), hcq/emu/supervisor/bpf.py (the sister: which calls an emulation answers)
Source   linux/seccomp.h, linux/bpf_common.h, linux/audit.h; unistd_64.h

A filter that answers calls (SECCOMP_RET_USER_NOTIF: the supervisor of emulated GPUs, some sandboxes) comes before this
one, and what it answers stops nobody here. Where one is there already, the tracer stops at every call instead.
"""

from __future__ import annotations

import struct

from hcq.system import native

RET_ALLOW, RET_TRACE = 0x7FFF0000, 0x7FF00000
LOAD, EQUAL, RETURN, AND, SHIFT = 0x20, 0x15, 0x06, 0x54, 0x74
NUMBER_AT, ARCH_AT, ARGS_AT = 0, 4, 16
X86_64 = 0xC000003E
OPEN, MMAP, IOCTL, OPENAT, OPENAT2 = 2, 9, 16, 257, 437
IOCTL_TYPES = (ord("K"), ord("d"), ord("F"), 0)  # KFD, DRM, NVIDIA's resource manager; its UVM has no type
MAP_SHARED, MAP_ANONYMOUS = 1, 0x20
PRCTL, SECCOMP = 157, 317
PR_SET_NO_NEW_PRIVS, SET_MODE_FILTER = 38, 1


def program() -> bytes:
    """As an array of struct sock_filter: opens, ioctls of GPUs' types, and shared mappings of files stop."""
    code: list[tuple[int, str, str, int]] = [
        (LOAD, "", "", ARCH_AT),
        (EQUAL, "", "allow", X86_64),
        (LOAD, "", "", NUMBER_AT),
        *((EQUAL, "trace", "", number) for number in (OPEN, OPENAT, OPENAT2)),
        (EQUAL, "mmap", "", MMAP),
        (EQUAL, "", "allow", IOCTL),
        (LOAD, "", "", ARGS_AT + 8),
        (SHIFT, "", "", 8),
        (AND, "", "", 0xFF),
        *((EQUAL, "trace", "", kind) for kind in IOCTL_TYPES),
        (RETURN, "", "", RET_ALLOW),
    ]
    places = {"mmap": len(code), "allow": len(code) + 3, "trace": len(code) + 4}
    code += [
        (LOAD, "", "", ARGS_AT + 24),
        (AND, "", "", MAP_SHARED | MAP_ANONYMOUS),
        (EQUAL, "trace", "", MAP_SHARED),
        (RETURN, "", "", RET_ALLOW),
        (RETURN, "", "", RET_TRACE),
    ]
    made = []
    for at, (what, yes, no, value) in enumerate(code):
        jumps = [places[name] - at - 1 if name else 0 for name in (yes, no)]
        made.append(struct.pack("<HBBI", what, *jumps, value))
    return b"".join(made)


def is_filtered() -> bool:
    """Whether this process has a filter already."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return any(line.startswith("Seccomp:") and line.split()[1] != "0" for line in file)


def install() -> int:
    """Give this process the filter. Returns 0, or -errno."""
    words = bytearray(program())
    head = bytearray(struct.pack("<HxxxxxxQ", len(words) // 8, native.address_of(words)))
    refused = native.system_call(PRCTL, PR_SET_NO_NEW_PRIVS, 1)
    return refused or native.system_call(SECCOMP, SET_MODE_FILTER, 0, native.address_of(head))
