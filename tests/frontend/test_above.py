"""What rooms above do for those below: registered in one place, and by no other way."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hcq.frontend.core import above


def test_all_that_rooms_below_ask_for_is_registered_with_the_tensor_and_imported_when_it_is_asked_for():
    program = """
import sys, hcq
hcq.Tensor([1.0, 2.0]).sum().item()
from hcq.frontend.core import above
assert all(callable(getattr(above, name)) for name in above.ASKED_FOR)
rooms = ("hcq.frontend.devices", "hcq.frontend.search")
assert not [name for name in sys.modules if name.startswith(rooms)]
parts = hcq.Tensor([1.0, 2.0]).shard(["CPU:0", "CPU:1"], axis=0)
assert parts.sum().item() == 3.0 and "hcq.frontend.devices.sharding.plan" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_nobody_asks_for_cannot_be_registered():
    with pytest.raises(NameError, match=r"register\(colour\): nothing below calls that"):
        above.register(colour=print)
