"""Foreign programs: traces, validation and reports for programs that do not use hcq (HIP, CUDA).

In       the events of a kernel driver (hcq/events/kernel_observer.py)
Out      HCQ_TRACE, HCQ_VALIDATE, HCQ_PROFILE=counters and HCQ_REPORT for programs that do not know us
Changes  what each of them says
Next     session.py (begins here)

    session.py   one for each kernel driver: processes, their GPUs, who watches them
    trace.py     HCQ_TRACE: the same records as a device of ours writes
    judge.py     HCQ_VALIDATE: the same rules, as warnings: nobody can refuse another program's packets
    counters.py  HCQ_PROFILE=counters: what each kernel did, on an emulated GPU
    report.py    a page about a fault, or about what a program left unfinished
"""

from __future__ import annotations

from hcq import config
from hcq.observe.foreign.session import Session


def session() -> Session | None:
    """A session with this process's switches; None where they ask for nothing."""
    settings = config.current()
    return Session(settings) if Session.is_wanted(settings) else None
