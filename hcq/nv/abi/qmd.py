"""QMD: the launch description of a grid, and which version of it a GPU reads. All versions take the same names.

In       fields by name; addresses and sizes in bytes, the shifts are the fields' units; a compute class
Out      qmd_for(class) -> QmdV3, QmdV4 or QmdV5, made of data/qmd.tsv; decode(words), which reads the version from the
         words themselves; the enums of the fields; sm_config
Next     compute_methods.py (SEND_PCAS_A launches one), layout_file.py (what a line of the file says)
Source   clc6c0qmd.h to clcec0qmd.h; a QMD names its own version
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hcq.errors import UsageError
from hcq.layout import SparsePacket
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.layout_file import LayoutFile

Q = TypeVar("Q", bound="Qmd")

FILE = LayoutFile("qmd", __name__)
ALIGNMENT_BYTES = 256  # SEND_PCAS_A and dependent QMDs carry the address in units of these, in 32 bits
VERSIONS = ("QmdV3", "QmdV4", "QmdV5")
# Inferred: of each class the newest version whose fields its header has. GA100's has 2.x and 3.0, and nobody has seen a
# launch of ours on one, nor on Blackwell
QMD_OF_CLASS: dict[int, str] = {
    ClassId.AMPERE_COMPUTE_A: "QmdV3",
    ClassId.AMPERE_COMPUTE_B: "QmdV3",
    ClassId.ADA_COMPUTE_A: "QmdV3",
    ClassId.HOPPER_COMPUTE_A: "QmdV4",
    ClassId.BLACKWELL_COMPUTE_A: "QmdV5",
    ClassId.BLACKWELL_COMPUTE_B: "QmdV5",
}
_RELEASE_SEMAPHORES = {
    f"release{i}_{new}": f"release_semaphore{i}_{old}"
    for i in range(3)
    for new, old in (("address", "addr"), ("payload", "payload"))
}
# shared name -> a version's own, where it is another one
RENAMED: dict[str, dict[str, str]] = {
    "QmdV3": {
        "grid_width": "cta_raster_width",
        "grid_height": "cta_raster_height",
        "grid_depth": "cta_raster_depth",
        "register_count": "register_count_v",
        "qmd_minor_version": "qmd_version",
    },
    "QmdV4": _RELEASE_SEMAPHORES,
    "QmdV5": _RELEASE_SEMAPHORES,
}


class Qmd(SparsePacket, words=0):
    """The launch description of one grid. Names are the vendor's; `renamed` maps shared names to a version's own."""

    version: ClassVar[int] = 0
    renamed: ClassVar[dict[str, str]] = {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int:
            """A field's value: which there are is data, which type checkers do not read."""

    @classmethod
    def launch(cls: type[Q], **values: Any) -> Q:
        """A QMD from names that all versions understand: grid_width, register_count, release0_address, ...

        Raises  UsageError for a name that this version has not, or a value that does not fit
        """
        return cls(**{cls.renamed.get(name, name): value for name, value in values.items()})

    def value(self, name: str) -> int:
        """The value of a field by its shared or its own name."""
        return self.values[self.renamed.get(name, name)]


def __getattr__(name: str) -> Any:
    """A version or an enum, made when it is first asked for."""
    if name not in VERSIONS and name not in FILE.enum_texts:
        raise AttributeError(f"{FILE.name} has no version and no enum {name!r}.")
    found = globals()[name] = _version(name) if name in VERSIONS else FILE.enum(name)
    return found


@cache
def _version(name: str) -> type[Qmd]:
    """The class of a version: a line of its name, bytes, the header's name, and its fields."""
    _, size_bytes, header_name, text = next(cells for cells in FILE.lines if cells[0] == name)
    body = {
        "__doc__": header_name,
        "__module__": __name__,
        "version": int(name.removeprefix("QmdV")),
        "renamed": RENAMED[name],
        **FILE.fields(text),
    }
    return new_class(name, (Qmd,), {"words": int(size_bytes) // 4}, lambda namespace: namespace.update(body))


def versions() -> tuple[type[Qmd], ...]:
    """All of them, the oldest first."""
    return tuple(map(_version, VERSIONS))


declared_layouts = versions


def qmd_for(compute_class: int) -> type[Qmd]:
    """The version that a compute class reads. Raises UsageError for a class that is not known."""
    if compute_class not in QMD_OF_CLASS:
        known = ", ".join(f"{number:#x} {ClassId(number).name}" for number in QMD_OF_CLASS)
        raise UsageError(f"qmd_for({compute_class:#x}): no such compute class. Known: {known}.")
    return _version(QMD_OF_CLASS[compute_class])


def decode(words: Sequence[int]) -> Qmd | None:
    """The QMD in these words, by the version they state themselves; None when they state none that is known.

    Versions 3 and 4 keep the number in bits 583:580, version 5 in bits 471:468.
    A version 5 with a 64-bit release payload may look like an older one: where the compute class is known, use
    qmd_for(compute_class).decode.
    """
    for version in versions():
        shown = version.decode(words)
        if shown.value("qmd_major_version") == version.version:
            return shown
    return None


def sm_config(kibibytes: int) -> int:
    """The *_SM_CONFIG_SHARED_MEM_SIZE value of a carve-out of the L1 cache for shared memory.

    Inferred from values that were seen: 3 is 8 KiB, 0x1a 100 KiB, 0x3a 228 KiB. No header says how they are made.
    """
    return kibibytes // 4 + 1
