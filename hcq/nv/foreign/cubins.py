"""Cubins that a foreign program has loaded kernels from: in its memory, and in a folder that a person names.

In       the number of the process, an architecture; HCQ_EMU_PTX
Out      Candidate: a kernel of a cubin, with the PTX that the cubin was made from where that is known
Changes  nothing; keeps what it has found
Next     kernels.py (names for traces and reports), kernel_text.py (PTX for emulated GPUs), hcq/code/elf_search.py

Machine code alone has no name: a loader copies it out of its cubin, which mostly is still somewhere in the process. Its
code says that it is the one, but for what the loader filled in. A cubin that was made with line numbers (nvcc -lineinfo
or -G) holds its PTX, in the section .nv_debug_ptx_txt, with zeros for the ends of lines; for others a
folder has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hcq.code import elf_search
from hcq.code.elf import EM_CUDA
from hcq.code.elf_search import Wanted
from hcq.errors import UsageError
from hcq.nv.cubin import Cubin, CubinKernel

PTX_SECTION = ".nv_debug_ptx_txt"
COMPARED_BYTES = 64
INSTRUCTION_BYTES = 16
WANTED = Wanted(b"\x7fELF\x02\x01\x01", EM_CUDA)  # 64-bit, little-endian, version 1; the OS ABI has changed
Read = Callable[[int, int], bytes]


@dataclass(frozen=True)
class Candidate:
    """A kernel of a cubin. image: the cubin; beside: the PTX that lay beside it, if any."""

    cubin: Cubin
    kernel: CubinKernel
    image: bytes
    beside: bytes = b""

    @cached_property
    def code(self) -> bytes:
        """Its machine code, as the cubin has it."""
        return self.cubin.contents(self.kernel.code)[: self.kernel.code_bytes]

    @cached_property
    def holes(self) -> frozenset[int]:
        """Bytes of its code that a loader fills in."""
        begins = [one.offset for one in self.cubin.fixups if one.section == self.kernel.code]
        return frozenset(at for begin in begins for at in range(begin, begin + INSTRUCTION_BYTES))

    @property
    def ptx(self) -> bytes:
        """The PTX that it was made from; empty where nobody knows."""
        if PTX_SECTION in self.cubin.sections:
            return self.cubin.contents(PTX_SECTION).rstrip(b"\0").replace(b"\0", b"\n") + b"\n"
        return self.beside

    def fits(self, va: int, start: bytes, read: Read) -> bool:
        """Whether this is what lies at an address of a GPU, where there is more than the start of it."""
        head = min(len(start), len(self.code))
        return self._is_alike(start[:head], head) and self._is_alike(read(va, len(self.code)), len(self.code))

    def _is_alike(self, there: bytes, size_bytes: int) -> bool:
        code = self.code[:size_bytes]
        if there == code or len(there) != size_bytes:
            return there == code
        return all(at in self.holes or there[at] == byte for at, byte in enumerate(code))


class Cubins:
    """What was found, by the hash of each cubin. folder: of cubins, with NAME.ptx beside NAME.cubin."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._known: dict[bytes, list[Candidate]] | None = None

    def at(self, pid: int, va: int, arch: str, read: Read) -> Candidate | None:
        """The kernel at an address, among those of the folder and of a process; one with PTX where there are several.

        Raises  UsageError for a folder that cannot be read
        """
        start = read(va, COMPARED_BYTES)
        if not any(start):
            return None
        found = None
        for candidates in self._candidates(pid):
            for one in candidates:
                if runs_on(one.cubin.sm, arch) and one.fits(va, start, read):
                    if one.ptx:
                        return one
                    found = found or one
            if found is not None and self.folder is None:
                return found
        return found

    def _candidates(self, pid: int) -> Iterator[list[Candidate]]:
        """The kernels of each cubin: of those that are known, then of those that the process has and that are not."""
        if self._known is None:
            self._known = dict(self._of_folder()) if self.folder is not None else {}
        yield from list(self._known.values())
        for data, at in elf_search.objects_in(pid, WANTED):
            image = data[at : at + elf_search.size_of(data, at, WANTED)]
            mark = hashlib.sha256(image).digest()
            if mark not in self._known:
                self._known[mark] = list(_kernels_of(image))
                yield self._known[mark]

    def _of_folder(self) -> Iterator[tuple[bytes, list[Candidate]]]:
        assert self.folder is not None
        if not self.folder.is_dir():
            raise UsageError(
                f"HCQ_EMU_PTX={self.folder}: is no folder. Name one with NAME.cubin and NAME.ptx."
            )
        for path in sorted(self.folder.rglob("*.cubin")):
            try:
                image, text = path.read_bytes(), path.with_suffix(".ptx")
                beside = text.read_bytes() if text.exists() else b""
            except OSError as error:
                raise UsageError(f"HCQ_EMU_PTX={self.folder}: {path} cannot be read ({error}).") from None
            yield hashlib.sha256(image).digest(), list(_kernels_of(image, beside))


def runs_on(sm: int, arch: str) -> bool:
    """Whether a GPU executes machine code that was made for another one: of its generation, and no newer.

    >>> runs_on(80, "sm_89"), runs_on(89, "sm_80"), runs_on(90, "sm_100")
    (True, False, False)
    """
    number = int(arch.removeprefix("sm_"))
    return sm // 10 == number // 10 and sm <= number


def _kernels_of(image: bytes, beside: bytes = b"") -> Iterator[Candidate]:
    try:
        cubin = Cubin(image, "a foreign cubin")
    except UsageError:
        return
    for kernel in cubin.kernels.values():
        yield Candidate(cubin, kernel, image, beside)
