"""The filter: which system calls of a program wait for the supervisor. All others run as they always do.

In       the machine's instruction set
Out      CALLS: what each number means; program(): the filter as words of classic BPF
Next     listener.py (who installs it), answers.py (what is answered)
Source   unistd_64.h and asm-generic/unistd.h (numbers), linux/bpf_common.h, linux/seccomp.h, linux/audit.h

The filter cannot read what pointers point to. So each call with a path is asked about, fstat, fallocate (which would
take memory for a device's whole file), and those ioctls whose type is one of a GPU's; execve only because an emulated
driver has to hear that a process has become another program.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hcq.errors import UsageError

RET_ALLOW, RET_USER_NOTIF = 0x7FFF0000, 0x7FC00000
LOAD_WORD, JUMP_EQUAL, RETURN = (
    0x20,
    0x15,
    0x06,
)  # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET
SHIFT_RIGHT, AND = 0x74, 0x54  # BPF_ALU | BPF_RSH | BPF_K, BPF_ALU | BPF_AND | BPF_K
# struct seccomp_data: nr, arch, instruction_pointer, args[6]; both machines are little-endian
NUMBER_AT, ARCH_AT, ARGS_AT = 0, 4, 16
# KFD, DRM, NVIDIA, and NVIDIA's UVM, whose requests are plain numbers
IOCTL_TYPES = (ord("K"), ord("d"), ord("F"), 0)

X86_64 = {
    "open": 2,
    "stat": 4,
    "fstat": 5,
    "lstat": 6,
    "ioctl": 16,
    "access": 21,
    "execve": 59,
    "readlink": 89,
    "getxattr": 191,
    "lgetxattr": 192,
    "listxattr": 194,
    "llistxattr": 195,
    "openat": 257,
    "newfstatat": 262,
    "readlinkat": 267,
    "faccessat": 269,
    "execveat": 322,
    "statx": 332,
    "openat2": 437,
    "faccessat2": 439,
    "fallocate": 285,
}
AARCH64 = {
    "getxattr": 8,
    "lgetxattr": 9,
    "listxattr": 11,
    "llistxattr": 12,
    "ioctl": 29,
    "fallocate": 47,
    "faccessat": 48,
    "openat": 56,
    "readlinkat": 78,
    "newfstatat": 79,
    "fstat": 80,
    "execve": 221,
    "execveat": 281,
    "statx": 291,
    "openat2": 437,
    "faccessat2": 439,
}


@dataclass(frozen=True)
class Abi:
    """How system calls are numbered. calls: number -> name, of those that are asked about."""

    name: str
    audit_arch: int
    seccomp: int
    process_vm_readv: int
    process_vm_writev: int
    prctl: int
    calls: dict[int, str]


def _abi(name: str, audit_arch: int, others: tuple[int, int, int, int], numbers: dict[str, int]) -> Abi:
    seccomp, readv, writev, prctl = others
    return Abi(name, audit_arch, seccomp, readv, writev, prctl, {at: call for call, at in numbers.items()})


ABIS = {
    "x86_64": _abi("x86_64", 0xC000003E, (317, 310, 311, 157), X86_64),
    "aarch64": _abi("aarch64", 0xC00000B7, (277, 270, 271, 167), AARCH64),
}


def abi() -> Abi:
    """This machine's. Raises UsageError where it is not known."""
    machine = platform.machine()
    if machine not in ABIS:
        raise UsageError(
            f"programs run on emulated GPUs on {' and '.join(ABIS)}; this machine is {machine!r}."
        )
    return ABIS[machine]


def program(abi: Abi, ioctl_types: Sequence[int] = IOCTL_TYPES) -> bytes:
    """The filter, as an array of struct sock_filter."""
    paths = [number for number, name in abi.calls.items() if name != "ioctl"]
    (ioctl,) = (number for number, name in abi.calls.items() if name == "ioctl")
    # jumps count the instructions that they skip; `ask` is the last one, `allow` the one before
    tail = [(LOAD_WORD, 0, 0, ARGS_AT + 8), (SHIFT_RIGHT, 0, 0, 8), (AND, 0, 0, 0xFF)]
    tail += [(JUMP_EQUAL, len(ioctl_types) - at, 0, kind) for at, kind in enumerate(ioctl_types)]
    tail += [(RETURN, 0, 0, RET_ALLOW), (RETURN, 0, 0, RET_USER_NOTIF)]
    # a call of another instruction set (32-bit) has other numbers: it is not ours
    head = [(LOAD_WORD, 0, 0, ARCH_AT), (JUMP_EQUAL, 0, len(paths) + 1 + len(tail) - 1, abi.audit_arch)]
    head += [(LOAD_WORD, 0, 0, NUMBER_AT)]
    for at, number in enumerate(paths):
        head.append((JUMP_EQUAL, len(paths) - at - 1 + 1 + len(tail) - 1, 0, number))
    head.append((JUMP_EQUAL, 0, len(tail) - 2, ioctl))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in head + tail)
