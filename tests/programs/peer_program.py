"""A program with tinygrad's drivers, which know nothing of emulation: two copies and a sum, or a bad pointer.

In       argv: "AMD" or "NV", then "bad pointer" or nothing; the GPUs that the system shows
Out      the sum's first numbers; or what that driver finds out about the fault
Next     test_peer_programs.py (who runs this), tools/peer/ (the compilers, and the PTX beside NVIDIA's machine code)
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from hcq.tools import peer
from hcq.tools.peer import amd, nv

BAD = 0x123456000


def main(vendor: str, what: str = "") -> None:
    peer.set_environment()
    {"AMD": amd, "NV": nv}[vendor].install(None)
    from tinygrad import Device, Tensor

    x = Tensor(np.arange(1000, dtype=np.float32)).to(vendor).realize()
    if what != "bad pointer":
        print((x + 3).numpy()[:4].tolist())
        return
    # what its kernels are given is this number
    x.uop.buffer.ensure_allocated()._buf.va_addr = BAD
    (x + 3).realize()
    said = ""
    while not said:
        time.sleep(0.01)
        try:
            Device[vendor].on_device_hang()
        except RuntimeError as error:
            said = str(error)
    print(said, flush=True)
    os._exit(3)  # its finalizers would wait for the GPU


if __name__ == "__main__":
    main(*sys.argv[1:])
