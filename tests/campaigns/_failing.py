"""Campaigns that fail, for the tests of the runner: every kind of failure at a known case."""

from __future__ import annotations

import os
import signal
import time

from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

CRASHES, HANGS, IS_WRONG, RAISES, REFUSES = 2, 4, 5, 7, 8
kept: list[object] = []


def fail(case: Case) -> Outcome:
    """Fail as the number of the case says."""
    if case.number == CRASHES:
        os.kill(os.getpid(), signal.SIGKILL)
    if case.number == HANGS:
        time.sleep(3600)
    if case.number == IS_WRONG:
        raise Wrong("2 + 2 gave 5")
    if case.number == RAISES:
        raise KeyError("nobody expects this")
    return Outcome.REFUSED if case.number == REFUSES else Outcome.RIGHT


def leak(case: Case) -> Outcome:
    """Keep a descriptor for ever."""
    kept.append(os.open("/dev/null", os.O_RDONLY))
    return Outcome.RIGHT


def draw(case: Case) -> Outcome:
    """Say which random number the case drew."""
    raise Wrong(str(case.rng().random()))


def explain(case: Case) -> str:
    """What the smallest failing program would be."""
    return f"the smallest that fails as case {case.number} does"


CAMPAIGNS = (
    Campaign("failing", "failures of every kind", fail, short=10, deadline_s=10),
    Campaign("leaking", "a leak", leak, short=200),
    Campaign("drawing", "nothing", draw, short=2),
    Campaign("explaining", "failures that are explained", fail, short=10, deadline_s=10, explain=explain),
)
