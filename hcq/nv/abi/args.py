"""Args: the structure that one call of NVIDIA's kernel drivers takes. Its size is exact to the byte.

In       a size in bytes, and fields: structures.py makes a class of each line of its file
Out      packets whose bytes are exactly size_bytes long
Next     structures.py (all of them), ioctls.py (who calls with them)
Source   the open kernel module: a wrong size is NV_ERR_INVALID_PARAM_STRUCT or EINVAL
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hcq.layout import SparsePacket

S = TypeVar("S", bound="Args")


class Args(SparsePacket):
    """A structure in memory. Signed fields take their two's complement: a file descriptor of none is NO_FD."""

    size_bytes: ClassVar[int] = 0

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int:
            """A field's value: which there are is data, which type checkers do not read."""

    def __init_subclass__(cls, size_bytes: int, **kwargs: Any) -> None:
        super().__init_subclass__(words=-(-size_bytes // 4), **kwargs)
        cls.size_bytes = size_bytes

    def to_bytes(self) -> bytes:
        """As many bytes as the kernel driver takes."""
        return super().to_bytes()[: self.size_bytes]

    @classmethod
    def from_bytes(cls: type[S], data: bytes) -> S:
        """Read memory; missing bytes count as zero. Never raises."""
        whole = bytes(data[: cls.size_bytes]).ljust(4 * cls.length_words, b"\0")
        return cls.decode(struct.unpack(f"<{cls.length_words}I", whole))


NO_FD = 0xFFFFFFFF
