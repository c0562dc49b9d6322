"""Methods of the copy engines, Ampere to Blackwell: addresses, sizes, fills through remapping, and the launch itself.

In       a name: LaunchDma, DataTransferType
Out      Method packets and the enums of their fields, made of data/copy_methods.tsv; FILE, all of them
Next     method.py (what a line of the file says), methods.py (pushbuffers), compute_methods.py (the other engine)
Source   clc8b5.h; clc6b5.h, clc7b5.h, clc9b5.h and clcab5.h where they differ
"""

from __future__ import annotations

from typing import Any

from hcq.nv.abi.method import MethodFile

FILE = MethodFile("copy_methods", __name__)
declared_layouts = FILE.declared_layouts


def __getattr__(name: str) -> Any:
    """A method or an enum of the file, made when it is first asked for."""
    found = globals()[name] = FILE.named(name)
    return found
