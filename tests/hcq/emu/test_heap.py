"""Once an emulated GPU has run, arrays of its shader core take memory that was freed before, not new pages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hcq.errors import DriverError
from hcq.system import native

PROGRAM = """
import resource, threading
import numpy as np
from hcq.emu.heap import keep_freed

def work():
    for _ in range(100):
        np.empty(1 << 20, np.uint8).fill(1)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed()
print(faults())
"""


def test_arrays_of_a_mebibyte_fault_once_and_not_each_time() -> None:
    try:
        native.symbol("mallopt")
    except DriverError:
        pytest.skip("this C library has no mallopt")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100 * 256 // 4
