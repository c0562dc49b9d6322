"""Watch: the vendor's runtime, as its calls and rings show it.

In       the bench
Out      Skip: this version does not watch yet
Changes  nothing
Next     plan.py (what else is asked)
"""

from __future__ import annotations

from hcq.doctor.check import Found, Skip
from hcq.tools.hw.bench import Bench


def watch(bench: Bench) -> Found:
    """The vendor's runtime, watched."""
    raise Skip("this version does not watch the vendor's runtime yet")
