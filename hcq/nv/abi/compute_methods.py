"""Methods of the compute classes, Ampere to Blackwell: windows, caches, local memory, small uploads, the launch itself.

In       a name: LaunchDma, CompletionType
Out      Method packets and the enums of their fields, made of data/compute_methods.tsv; FILE, all of them
Next     method.py (what a line of the file says), methods.py (pushbuffers), qmd.py (what SEND_PCAS_A launches)
Source   clcbc0.h; clc6c0.h, clc7c0.h, clc9c0.h, clcdc0.h and clcec0.h where they differ
"""

from __future__ import annotations

from typing import Any

from hcq.nv.abi.method import MethodFile

FILE = MethodFile("compute_methods", __name__)
declared_layouts = FILE.declared_layouts


def __getattr__(name: str) -> Any:
    """A method or an enum of the file, made when it is first asked for."""
    found = globals()[name] = FILE.named(name)
    return found
