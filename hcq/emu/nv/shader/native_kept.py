"""Machine code of PTX on disk: a process that runs a kernel which another one has compiled begins with its code.

In       a function, what its code depends on
Out      its machine code, without LLVM having compiled anything, and without a translation
Changes  the disk cache
Next     native_ahead.py (who asks), hcq/emu/compiled/assemble.py (the code itself), hcq/system/cache.py

The key has the function itself, and the text of all modules that take part in compiling.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import hcq.emu.compiled
import hcq.emu.shader
from hcq.emu.compiled import assemble
from hcq.emu.nv.shader import native_library
from hcq.emu.nv.shader.decode import Decoded
from hcq.emu.nv.shader.native_order import Point
from hcq.emu.nv.shader.native_state import Compiled, Facts
from hcq.system.cache import DiskCache

KIND = "emu-ptx"


@functools.cache
def _sources() -> str:
    """All that decides what code there is, as a hash."""
    found = hashlib.sha256()
    folders = [Path(__file__).parent, *(Path(one.__path__[0]) for one in (hcq.emu.compiled, hcq.emu.shader))]
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def _key(decoded: Decoded, key: Any) -> str:
    about = f"{decoded.function!r} {decoded.offsets} {decoded.late} {key}"
    return f"{_sources()} {assemble.host()} {hashlib.sha256(about.encode()).hexdigest()}"


def load(decoded: Decoded, key: Any) -> Compiled | None:
    """What is kept; None where nothing is."""
    data = DiskCache().get(KIND, _key(decoded, key))
    if data is None:
        return None
    known = json.loads(data)
    native_library.need(known["libraries"])
    code = assemble.Assembled.kept(known["code"])
    if code is None:
        return None
    facts = Facts(
        {Point(*point): number for number, point in enumerate(known["entries"])},
        [Point(*point) for point in known["exits"]],
        {Point(*point) for point in known["troubles"]},
        known["sites"],
        {int(slot): at for slot, at in known["offsets"].items()},
        known["size_bytes"],
        {int(slot): at for slot, at in known["numbers"].items()},
        set(known["written"]),
        set(known["first_read"]),
        known["why_not"],
        known["spreads"],
        known["libraries"],
        known["has_copies"],
        known["gathers"],
    )
    return Compiled(decoded, facts, code)


def keep(decoded: Decoded, key: Any, compiled: Compiled) -> None:
    """For the next process."""
    facts = {
        name: sorted(value) if isinstance(value, set) else value
        for name, value in compiled.facts._asdict().items()
    }
    facts |= {"entries": list(compiled.points), "code": compiled.code.key}
    DiskCache().put(KIND, _key(decoded, key), json.dumps(facts).encode())
