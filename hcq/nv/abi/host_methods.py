"""Host methods: what the front end of a channel does itself, on any subchannel: semaphores, waiting, memory operations.

In       a name: SemExecute, SemExecuteOperation
Out      Method packets and the enums of their fields, made of data/host_methods.tsv; FILE, all of them
Next     method.py (what a line of the file says), methods.py (pushbuffers), compute_methods.py (an engine)
Source   clc56f.h, clc86f.h
"""

from __future__ import annotations

from typing import Any

from hcq.nv.abi.method import MethodFile

FILE = MethodFile("host_methods", __name__)
declared_layouts = FILE.declared_layouts


def __getattr__(name: str) -> Any:
    """A method or an enum of the file, made when it is first asked for."""
    found = globals()[name] = FILE.named(name)
    return found
