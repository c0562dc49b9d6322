"""A hostile program: it asks kernel drivers for what no program asks, cuts their files, and interrupts its own calls.

In       a seed, a number and how many acts; it runs under `python -m hcq emulate`
Out      a line at its end: how much memory the supervisor took meanwhile, in MiB
Changes  nothing outside this process and its children
Next     hostile_programs.py (who starts it and judges)

Pointers lead into memory made for this, to its end, or nowhere: what drivers write cannot hurt the program itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hcq
from hcq.amd.abi import drm, kfd
from hcq.errors import HcqError
from hcq.layout import Ioctl
from hcq.nv.abi import ioctls as nv

ARENA_BYTES, GUARD_BYTES = 1 << 20, 1 << 20
TICK_S = 0.01  # a call that blocks is interrupted so often
PATHS = (
    "/dev/kfd",
    "/dev/dri/renderD128",
    "/dev/dri/card0",
    "/dev/nvidiactl",
    "/dev/nvidia0",
    "/dev/nvidia-uvm",
)
KFD = [one for one in vars(kfd).values() if isinstance(one, Ioctl)]
NV: list[Any] = [one for one in vars(nv).values() if isinstance(one, Ioctl)]
RM = [one for one in NV if one.request >> 8 & 0xFF == ord("F")]
UVM = [one for one in NV if one not in RM]
DRM = (drm.VERSION_REQUEST, drm.INFO_REQUEST)
COUNTS = (0, 1, 2, 31, 255, 4096, 65536, 2**20, 2**31 - 1, 2**31, 2**32 - 1)
SIZES = (0, 1, 4095, 4096, 8192, 1 << 20, 1 << 34, 1 << 40, 1 << 46, 2**63, 2**64 - 4096, 2**64 - 1)

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]


class Program:
    """Random acts on the files of emulated drivers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        at = libc.mmap(None, ARENA_BYTES + GUARD_BYTES, mmap.PROT_READ | mmap.PROT_WRITE, 0x22, -1, 0)
        libc.mprotect(ctypes.c_void_p(at + ARENA_BYTES), ctypes.c_size_t(GUARD_BYTES), 0)
        self.arena = int(at)
        self.files: list[tuple[str, int]] = []
        self.words: list[int] = []  # what drivers have answered: handles, ids, offsets
        nodes = Path("/sys/devices/virtual/kfd/kfd/topology/nodes")
        if nodes.is_dir():
            self.words += [int((one / "gpu_id").read_text()) for one in nodes.iterdir()]

    def number(self) -> int:
        """A count, a size, an address, a descriptor, or what a driver has said before."""
        pick: list[Callable[[], int]] = [
            lambda: self.rng.choice(COUNTS),
            lambda: self.rng.choice(COUNTS),
            lambda: self.rng.choice(SIZES),
            lambda: self.arena + self.rng.choice((0, 8, 4096, ARENA_BYTES - 8, ARENA_BYTES - 4096)),
            lambda: self.rng.choice(self.files)[1] if self.files else 0,
            lambda: self.rng.choice(self.words) if self.words else 0,
            lambda: self.rng.choice(self.words) if self.words else 0,
            lambda: 1 << self.rng.randrange(64),
            lambda: self.rng.choice((1, 0xDEAD0000, 1 << 47, 1 << 63)),
        ]
        return self.rng.choice(pick)()

    def run(self, acts: int) -> None:
        self.begin()
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, TICK_S, TICK_S)
        for path in PATHS:
            self.open(path)
        kinds = [self.call] * 12 + [
            self.cut,
            self.write,
            self.again,
            self.seek,
            self.child,
            self.map,
            self.work,
        ]
        for _ in range(acts):
            with contextlib.suppress(OSError, ValueError, OverflowError, HcqError):
                self.rng.choice(kinds)()

    # ------------------------------------------------------------ acts

    def begin(self) -> None:
        """A device of our own driver: queues and memory that the supervisor has mapped, too."""
        self.device = hcq.open("AMD" if os.path.exists("/dev/kfd") else "NV")
        self.buffer = self.device.alloc(1 << 20)
        self.work(60_000)
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/self/fd/{fd}")
                if path.startswith(("/memfd:kfd", "/memfd:renderD", "/memfd:nvidia")):
                    self.files.append((f"/dev/{'dri/' * ('renderD' in path)}{path[7:].split()[0]}", fd))

    def work(self, timeout_ms: int = 100) -> None:
        """It computes, as long as what was done to its files and queues lets it."""
        self.device.queue().fill(self.buffer, self.rng.randrange(256)).submit().wait(timeout_ms=timeout_ms)

    def open(self, path: str) -> None:
        with contextlib.suppress(OSError):
            self.files.append((path, os.open(path, os.O_RDWR | os.O_CLOEXEC)))

    def call(self) -> None:
        """An ioctl: a right structure with wrong numbers, or bytes of any kind."""
        path, fd = self.rng.choice(self.files)
        if self.rng.random() < 0.1:
            request = self.rng.getrandbits(32)
            size = request >> 16 & 0x3FFF
        elif "dri" in path:
            request = self.rng.choice(DRM)
            size = request >> 16 & 0x3FFF
        else:
            known = KFD if path == "/dev/kfd" else UVM if "uvm" in path else RM
            one = self.rng.choice(known)
            request = one.request
            size = one.layout.size_bytes if known is UVM else request >> 16 & 0x3FFF
        if self.rng.random() < 0.05:
            request ^= 1 << self.rng.randrange(32)
        argument = ctypes.create_string_buffer(max(size, 1 << 14))
        at = 0
        while at < size:
            width = self.rng.choice((4, 8)) if at % 8 == 0 else 4
            if self.rng.random() < 0.7:
                value = self.number() & (1 << 8 * width) - 1
                argument[at : at + width] = value.to_bytes(width, "little")  # type: ignore[assignment]
            at += width
        for _ in range(8):  # what the pointers lead to
            word = self.number() & 2**64 - 1
            ctypes.memmove(self.arena + 8 * self.rng.randrange(64), word.to_bytes(8, "little"), 8)
        pointer = ctypes.addressof(argument) if self.rng.random() < 0.97 else self.rng.choice((0, 1, 1 << 47))
        before = argument.raw
        if libc.ioctl(fd, ctypes.c_ulong(request), ctypes.c_void_p(pointer)) == 0:
            after = argument.raw
            for at in range(0, size - 7, 4):
                if after[at : at + 4] != before[at : at + 4]:
                    self.words.append(int.from_bytes(after[at : at + self.rng.choice((4, 8))], "little"))
            del self.words[8:-56]

    def cut(self) -> None:
        """Make its file shorter or longer, through whatever leads to it."""
        _, fd = self.rng.choice(self.files)
        size = self.rng.choice((0, 1, 4096, 1 << 20, 1 << 47))
        way = self.rng.randrange(4)
        if way == 0:
            os.ftruncate(fd, size)
        elif way == 1:
            os.truncate(f"/proc/self/fd/{fd}", size)
        elif way == 2:
            os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_TRUNC))
        else:
            os.posix_fallocate(fd, self.rng.choice((0, 1 << 20)), self.rng.choice((1, 1 << 24)))

    def write(self) -> None:
        _, fd = self.rng.choice(self.files)
        data = self.rng.randbytes(64)
        if self.rng.random() < 0.5:
            os.write(fd, data)
        else:
            os.pwrite(fd, data, self.rng.choice((0, 4096, 1 << 20, 1 << 46)))

    def again(self) -> None:
        """One descriptor more, or one less."""
        path, fd = self.rng.choice(self.files)
        if len(self.files) > 32 and os.path.exists(path):
            self.files.remove((path, fd))
            os.close(fd)
        elif self.rng.random() < 0.5:
            self.open(path)
        else:
            self.files.append((path, os.dup(fd)))

    def seek(self) -> None:
        """On a descriptor of its own: the position says which open file it is."""
        path, fd = self.rng.choice(self.files)
        own = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.files.append((path, own))
        os.lseek(own, self.rng.choice((0, 4096, os.lseek(fd, 0, os.SEEK_CUR), (1 << 46) + 1)), os.SEEK_SET)

    def map(self) -> None:
        """Pages of its file; a child touches them, as they may lie behind the end."""
        _, fd = self.rng.choice(self.files)
        offset = self.rng.choice((0, 4096, 1 << 32, (1 << 46) - 4096, *[word & -4096 for word in self.words]))
        if not (pid := os.fork()):
            with contextlib.suppress(OSError, ValueError, OverflowError):
                mmap.mmap(fd, 4096, offset=offset & 2**62 - 1)[0:8] = self.rng.randbytes(8)
            os._exit(0)
        os.waitpid(pid, 0)

    def child(self) -> None:
        """A child that calls, too, and is killed while it does."""
        if not (pid := os.fork()):
            self.files = [(path, os.open(path, os.O_RDWR)) for path, _ in self.files if os.path.exists(path)]
            for _ in range(8):
                self.call()
            os._exit(0)
        os.kill(pid, signal.SIGKILL if self.rng.random() < 0.7 else signal.SIGCONT)
        os.waitpid(pid, 0)


def peak_mib(pid: int) -> int:
    """The most memory that a process has taken."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) >> 10


def main(seed: int, number: int, acts: int) -> None:
    """Run, and say how much memory the supervisor took for it."""
    before = peak_mib(os.getppid())
    Program(random.Random(f"{seed}/{number}")).run(acts)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"to its end: {peak_mib(os.getppid()) - before} MiB", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
