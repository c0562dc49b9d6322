"""QMD: which version of the launch description a GPU reads, by its compute class. All versions take the same names.

In       a compute class
Out      qmd_for(class) -> QmdV3, QmdV4 or QmdV5; decode(words), which reads the version from the words themselves
Changes  nothing
Next     compute_methods.py (SEND_PCAS_A launches one), qmd_fields.py (what the versions share)
Source   clc6c0qmd.h to clcec0qmd.h; a QMD names its own version
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.errors import UsageError
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.qmd_fields import ALIGNMENT_BYTES, Qmd, sm_config
from hcq.nv.abi.qmd_v3 import QmdV3
from hcq.nv.abi.qmd_v4 import QmdV4
from hcq.nv.abi.qmd_v5 import QmdV5

__all__ = ["ALIGNMENT_BYTES", "Qmd", "QmdV3", "QmdV4", "QmdV5", "decode", "qmd_for", "sm_config"]

# Inferred: of each class the newest version whose fields its header has. GA100's has 2.x and 3.0, and nobody has seen a
# launch of ours on one, nor on Blackwell
QMD_OF_CLASS: dict[int, type[Qmd]] = {
    ClassId.AMPERE_COMPUTE_A: QmdV3,
    ClassId.AMPERE_COMPUTE_B: QmdV3,
    ClassId.ADA_COMPUTE_A: QmdV3,
    ClassId.HOPPER_COMPUTE_A: QmdV4,
    ClassId.BLACKWELL_COMPUTE_A: QmdV5,
    ClassId.BLACKWELL_COMPUTE_B: QmdV5,
}


def qmd_for(compute_class: int) -> type[Qmd]:
    """The version that a compute class reads. Raises UsageError for a class that is not known."""
    if compute_class not in QMD_OF_CLASS:
        known = ", ".join(f"{number:#x} {ClassId(number).name}" for number in QMD_OF_CLASS)
        raise UsageError(f"qmd_for({compute_class:#x}): no such compute class. Known: {known}.")
    return QMD_OF_CLASS[compute_class]


def decode(words: Sequence[int]) -> Qmd | None:
    """The QMD in these words, by the version they state themselves; None when they state none that is known.

    Versions 3 and 4 keep the number in bits 583:580, version 5 in bits 471:468.
    A version 5 with a 64-bit release payload may look like an older one: where the compute class is known, use
    qmd_for(compute_class).decode.
    """
    for version in (QmdV3, QmdV4, QmdV5):
        shown = version.decode(words)
        if shown.value("qmd_major_version") == version.version:
            return shown
    return None
