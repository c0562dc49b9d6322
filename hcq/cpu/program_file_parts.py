"""What a program's file holds for the CPU device: which instructions its kernels may use, and the command processor.

In       this machine; objects that files hold
Out      `CARRIED`
Changes  which object `native_processor` links when the installation has none
Next     hcq/code/program_file_parts.py (what each part is), native_processor.py (who links it), docs/artefact.md
"""

from __future__ import annotations

import platform

from hcq.code.program_file_parts import Carried
from hcq.cpu import native_processor, processor
from hcq.errors import DriverError
from hcq.system.port import LinuxPort

# How kernels are called (docs/cpu-device.md, "Kernels"): who changes that raises this, for old files would crash
KERNEL_ABI = 1

# Words of /proc/cpuinfo that stand for instructions a compiler may use in a kernel. Others tell of modes, of what
# systems alone use, and of what was mended in a processor: those differ between kernels of Linux
_FAMILIES = ("sse", "ssse", "avx", "amx_", "bmi", "aes", "vaes", "sha", "fma", "tbm", "xop", "sm3", "sm4")
_WORDS = {
    "3dnowprefetch",
    "abm",
    "adx",
    "cmpccxadd",
    "cx16",
    "f16c",
    "gfni",
    "lahf_lm",
    "mmx",
    "movbe",
    "movdir64b",
    "movdiri",
    "pclmulqdq",
    "pni",
    "popcnt",
    "rdrand",
    "rdseed",
    "raoint",
    "serialize",
    "vpclmulqdq",
}


def features() -> frozenset[str]:
    """The words for this processor's instructions. On aarch64 all of them are."""
    try:
        text = LinuxPort().read_file("/proc/cpuinfo").decode("utf-8", "replace")
    except DriverError:
        return frozenset()
    for line in text.splitlines():
        name, _, words = line.partition(":")
        if name.strip() == "flags":
            return frozenset(w for w in words.split() if w in _WORDS or w.startswith(_FAMILIES))
        if name.strip() == "Features":
            return frozenset(words.split())
    return frozenset()


def _runtime() -> tuple[str, bytes]:
    machine = processor.machine_named(platform.machine())
    return native_processor.key_of(machine), native_processor.image_of(machine)


CARRIED = Carried(abi=KERNEL_ABI, features=features, runtime=_runtime, offer=native_processor.offer)
