"""What a campaign is: one kind of attack, of which a seed and a number name every case.

In       a seed and the number of a case
Out      an Outcome; or an exception, which is a failure
Next     runner.py (runs the cases of a campaign in a process of its own), __main__.py (the command)

A case depends on its seed, its number and the campaign's name alone, so one line repeats it. It runs in a worker
process that may die of it: a crash and a hang are results like any other.
"""

from __future__ import annotations

import enum
import importlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

SHARED = (
    "campaign",
    "digits_step",
    "fault_port",
    "runner",
    "worker",
)  # files of this folder that are no campaigns


class Outcome(enum.Enum):
    """How a case went that went as it should."""

    RIGHT = "right"  # the answer, compared with a second opinion
    REFUSED = "refused"  # one clear error of ours, and nothing lost


class Wrong(AssertionError):
    """A wrong answer, an error that is not clear, or something that was lost."""


@dataclass(frozen=True)
class Case:
    """One case of a campaign."""

    campaign: str
    seed: int
    number: int

    def rng(self) -> random.Random:
        """Random numbers that belong to this case alone."""
        return random.Random(f"{self.campaign}/{self.seed}/{self.number}")

    @property
    def command(self) -> str:
        """The line that repeats this case."""
        return f"python -m tests.campaigns {self.campaign} --seed {self.seed} --case {self.number}"


@dataclass(frozen=True)
class Campaign:
    """One kind of attack.

    name         what the command calls it
    injects      what is done to hcq, in a phrase for the table
    run          runs one case; returns its Outcome, raises Wrong (or anything) on a failure
    short        cases of the short form, which the test suite runs: a few seconds' worth
    environment  switches for the worker process: HCQ_EMULATE, HCQ_DEVICE, HCQ_TIMEOUT_MS, ...
    deadline_s   a case that takes longer hangs; generous, for machines are busy
    is_flat      memory, maps, descriptors and threads of the worker must stop growing
    explain      tells more of a case that failed, in a process of its own: the smallest program that fails
    module       where it is declared: `campaigns()` says it, and a worker imports that file alone
    """

    name: str
    injects: str
    run: Callable[[Case], Outcome]
    short: int
    environment: Mapping[str, str] = field(default_factory=dict)
    deadline_s: float = 120
    is_flat: bool = True
    explain: Callable[[Case], str] | None = None
    module: str = ""


def declared_in(module: str) -> dict[str, Campaign]:
    """The campaigns that a module declares in CAMPAIGNS, by name."""
    declared = importlib.import_module(module).CAMPAIGNS
    return {campaign.name: replace(campaign, module=module) for campaign in declared}


def campaigns() -> dict[str, Campaign]:
    """Every campaign of this folder, by name: each file but the shared ones says CAMPAIGNS = (Campaign(...), ...)."""
    found: dict[str, Campaign] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem in SHARED or path.stem.startswith(("_", "test_")):
            continue
        declared = declared_in(f"tests.campaigns.{path.stem}")
        assert not declared.keys() & found.keys(), (
            f"two campaigns are called {declared.keys() & found.keys()}"
        )
        found.update(declared)
    return found
