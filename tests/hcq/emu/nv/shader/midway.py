"""A way to run kernels: they begin interpreted, and go on as machine code after a number of instructions.

In       how many instructions of the first function are interpreted
Out      a context in which kernels run so
Changes  what a kernel must cost before it is compiled, for that time
Next     hcq/emu/nv/shader/native_ahead.py (when kernels are compiled), test_native_midway.py (who asks)
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest

from hcq import config
from hcq.emu.nv.shader import native, native_ahead


@contextlib.contextmanager
def midway(instructions: int) -> Iterator[None]:
    """Within, a function is compiled after so many of its instructions, at whichever block its threads then are."""
    before = config.current()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "ASK_STEPS", 1)
        patch.setattr(native_ahead, "_expected_ns", lambda *_: 0.0)
        patch.setattr(native_ahead, "LANE_NS", 0.0)
        patch.setattr(native, "LANE_NS", 0.0)
        patch.setattr(native_ahead, "LOAD_NS", instructions * native.STEP_NS)
        patch.setattr(native_ahead, "BEGIN_NS", instructions * native.STEP_NS)
        patch.setattr(native_ahead, "COMPILE_NS", 0)
        config.use(dataclasses.replace(before, emu_compiled="1"))
        try:
            yield
        finally:
            config.use(before)
