"""The data caches of an emulated GPU's SMs (nv:sm_90:caches): what a kernel has read stays as it was.

In       the address space as it is; loads and stores of kernels; invalidations from QMDs and methods
Out      a Memory for kernels that looks at memory once for each line
Changes  memory: stores go through at once
Next     launch.py (who runs kernels on it), memory.py (View), ../amd/caches.py (the same idea, with more levels)

Worse than any hardware, so that a missing invalidation shows at once: nothing leaves the cache by itself, and a line is
a whole page. Within a kernel its own stores are seen; after it, the cache holds what it held before, as another SM's
would. Volatile and atomic loads go through the cache, too: a kernel that waits for the host hangs in this mode.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hcq.emu.nv.errors import Access
from hcq.emu.nv.memory import PAGE, Bytes, View
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.memory import Mapping
from hcq.emu.nv.shader.types import Lanes, Scalar
from hcq.emu.pages import zeros


class Shadow(Mapping):
    """What the cache holds of a mapping, and which lines of it."""

    def __init__(self, source: Mapping) -> None:
        # pages that nobody touches take no memory
        super().__init__(source.start, zeros(len(source.host)), source.is_writable, source.name)
        self.source = source
        self.valid: NDArray[np.bool_] = np.zeros(-(-len(source.host) // PAGE), np.bool_)
        self.saved = self.valid.copy()  # lines that the running kernel has stored to

    def fetch(self, lines: Lanes) -> None:
        """Make these lines be there."""
        for line in lines[~self.valid[lines]].tolist():
            where = slice(line * PAGE, (line + 1) * PAGE)
            self.source.reach(line * PAGE, len(self.host[where]), is_write=False)
            self.host[where] = self.source.host[where]
            self.valid[line] = True


class DataCache:
    """The cache of one GPU. It outlives kernels; only an invalidation empties it."""

    def __init__(self) -> None:
        self.shadows: dict[int, Shadow] = {}  # by the identity of their source, which they keep alive

    def invalidate(self) -> None:
        """Drop what is held: the next kernel reads memory again."""
        self.shadows.clear()

    def over(self, view: View) -> CachedView:
        """Memory as kernels see it now. Mappings that are gone are dropped, as the kernel driver sees to."""
        known = self.shadows
        self.shadows = {id(one): known.get(id(one)) or Shadow(one) for one in view.ranges}
        return CachedView(view, list(self.shadows.values()))


class CachedView(View):
    """An address space through the cache, for one kernel."""

    is_plain = False

    def __init__(self, below: View, shadows: list[Shadow]) -> None:
        super().__init__(below.table, list(shadows))
        self.below = below
        self.before: list[tuple[Shadow, int, Bytes]] = []  # lines as they were before this kernel's stores

    def load(self, addresses: Lanes, scalar: Scalar, count: int) -> Lanes:
        self._reach(addresses, np.dtype(scalar).itemsize * count, Access.READ)
        return super().load(addresses, scalar, count)

    def store(self, addresses: Lanes, values: Lanes) -> None:
        size = values.dtype.itemsize * (1 if values.ndim == 1 else values.shape[1])
        self._reach(addresses, size, Access.WRITE)
        super().store(addresses, values)
        self.below.store(addresses, values)

    def _reach(self, addresses: Lanes, size: int, access: Access) -> None:
        """Fetch the lines of an access; an access is aligned, so it lies in one."""
        if not len(addresses):
            return
        one = self.common(addresses, size)
        if isinstance(one, Shadow):
            first, last = ((int(each) - one.start) // PAGE for each in (addresses.min(), addresses.max()))
            known = one.valid if access is Access.READ else one.saved
            if known[first : last + 1].all():
                return
        try:
            parts = self._parts(addresses, size)
        except BadAccess as bad:
            self.missed = bad.address, access
            raise
        for shadow, chosen in parts:
            assert isinstance(shadow, Shadow)
            lines = np.unique((addresses[chosen] - np.uint64(shadow.start)) // np.uint64(PAGE)).astype(
                np.int64
            )
            shadow.fetch(lines)
            if access is Access.WRITE:
                for line in lines[~shadow.saved[lines]].tolist():
                    self.before.append((shadow, line, shadow.host[line * PAGE : (line + 1) * PAGE].copy()))
                    shadow.saved[line] = True

    def end(self) -> None:
        """The kernel has ended: other SMs have not seen what it stored."""
        for shadow, line, data in self.before:
            shadow.host[line * PAGE : (line + 1) * PAGE] = data
            shadow.saved[line] = False
        self.before.clear()
