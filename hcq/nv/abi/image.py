"""Image: what a loader places before a kernel's code, so that an emulated GPU finds the PTX it came from.

In       addresses of the PTX text, the entry's name and the module's variables in GPU memory
Out      KernelDescriptor, 64 bytes that end where the code starts; SymbolEntry, one variable of the module
Next     program.py (who places them), hcq/emu/nv/code.py (who reads them at the address that the QMD gives, minus 64)
Source   our own: a GPU jumps to the code and never reads these bytes

    program address - 64   KernelDescriptor
    program address        the first instruction
"""

from __future__ import annotations

import struct
import zlib
from typing import TypeVar

from hcq.layout import SparsePacket, bits

D = TypeVar("D", bound="ImagePart")

MAGIC = int.from_bytes(b"HCQPTX\0\0", "little")
DESCRIPTOR_BYTES = 64
SYMBOL_BYTES = 16
EMPTY_CODE = bytes(128)  # what stands for the code where there is only PTX


class ImagePart(SparsePacket):
    """A structure in the image, read from bytes."""

    @classmethod
    def from_bytes(cls: type[D], data: bytes) -> D:
        """Read memory; missing bytes count as zero. Never raises."""
        whole = bytes(data[: 4 * cls.length_words]).ljust(4 * cls.length_words, b"\0")
        return cls.decode(struct.unpack(f"<{cls.length_words}I", whole))


class KernelDescriptor(ImagePart, words=DESCRIPTOR_BYTES // 4):
    """Which PTX a kernel's code was made from. Addresses are the GPU's; kernels of a module share text and symbols."""

    magic = bits(63, 0, default=MAGIC)
    ptx_address = bits(127, 64, doc="the text, without a NUL")
    ptx_bytes = bits(191, 128)
    entry_name_address = bits(255, 192, doc="UTF-8, ends with a NUL")
    symbols_address = bits(
        319, 256, doc="SymbolEntry for each .global and .const variable and function; 0 for none"
    )
    symbol_count = bits(351, 320)
    param_bytes = bits(383, 352, doc="bytes of parameters in constant bank 0")
    ptx_crc32 = bits(415, 384, doc="of the text")

    @property
    def is_valid(self) -> bool:
        """Whether it begins as one of ours does."""
        return self.magic == MAGIC


class SymbolEntry(ImagePart, words=SYMBOL_BYTES // 4):
    """Where one variable of a module lies, or what variables hold as the address of one of its functions."""

    name_address = bits(63, 0, doc="UTF-8, ends with a NUL")
    address = bits(127, 64)


def crc32(text: bytes) -> int:
    """The checksum that ptx_crc32 takes."""
    return zlib.crc32(text)
